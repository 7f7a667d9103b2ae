//! People are told: a program of the operator over kills of its node, a web server, and a user who watches.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
    sync::{Arc, Mutex},
    thread,
};

use end_to_end::{Node, hosts, wait_until};
use serde_json::Value;

/// Losses are noticed within seconds.
const QUICK: [&str; 6] =
    ["--negotiation-check-min", "3s", "--negotiation-check-max", "3s", "--negotiation-lost-after", "1s"];

#[test]
fn a_program_is_told_each_event_once_whatever_becomes_of_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let script = format!(
        "#!/bin/sh\ncd {}\ncat > \"$KOLO_EVENT.json\"\nenv > \"$KOLO_EVENT.env\"\n\
         echo \"$KOLO_EVENT $KOLO_NUMBER $KOLO_RUN\" >> \"told.$KOLO_REQUEST\"\n\
         while [ -e \"hold.$KOLO_EVENT\" ]; do sleep 0.05; done\n",
        directory.path().display()
    );
    fs::write(path("tell"), script).unwrap();
    fs::set_permissions(path("tell"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(path("hold.reserved"), "").unwrap();
    let told = |request: &str| fs::read_to_string(path(&format!("told.{request}"))).unwrap_or_default();
    let wait = |request: &str, expected: &str| {
        wait_until(&format!("{expected:?} of {request}"), || told(request), |told| told == expected);
    };

    let mut node = Node::start("alpha", &hosts("a", 1), &["--notices-command", path("tell").to_str().unwrap()]);
    let asked = ["submit", "-N", "1", "--per-host", "cpu=1", "-t", "1h", "--id", "my $(job)"];
    let view = node.kolo_json(&asked, 0);
    let id = view["id"].as_str().unwrap();
    wait(id, "reserved 1 1\n");
    // The node is killed in the middle; what was on its way goes out again, under its number.
    node.kill();
    node.restart();
    wait(id, "reserved 1 1\nreserved 1 2\n");
    fs::remove_file(path("hold.reserved")).unwrap();
    wait(id, "reserved 1 1\nreserved 1 2\nstart 2 1\n");
    let counted = "kolo_notices_total{outcome=\"taken\"} 2";
    wait_until(counted, || node.metrics(), |metrics| metrics.contains(counted));
    // Nothing that was taken goes out again.
    node.kill();
    node.restart();
    let _ = node.kolo_json(&["cancel", id], 0);
    wait(id, "reserved 1 1\nreserved 1 2\nstart 2 1\ncancelled 3 1\n");

    let text = fs::read_to_string(path("start.env")).unwrap();
    for line in [format!("KOLO_REQUEST={id}"), "KOLO_LABEL=my $(job)".to_owned(), "KOLO_STATE=active".to_owned()] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
    assert!(text.contains("/a1\n") && !text.contains("HOME="), "of the node's environment only PATH: {text}");
    let document: Value = serde_json::from_slice(&fs::read(path("start.json")).unwrap()).unwrap();
    assert_eq!((&document["schema"], &document["request"]["id"]), (&"kolo-notice/1".into(), &id.into()));

    // One without a reservation is told too, and one that was over before is not told again.
    let failed = node.kolo(&["submit", "-N", "2", "-t", "1h", "--output", "json"]).json();
    wait(failed["id"].as_str().unwrap(), "failed 1 1\n");
    assert_eq!(told(id).lines().count(), 4);
}

/// What a web server was posted, and how it answers: the first time that it cannot.
fn web_server() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, posted) =
        (format!("http://{}/hook", listener.local_addr().unwrap()), Arc::<Mutex<Vec<Value>>>::default());
    let kept = posted.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut bytes, mut piece) = (stream.unwrap(), Vec::new(), [0; 4096]);
            let document = loop {
                let count = stream.read(&mut piece).unwrap();
                bytes.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                if let Ok(document) = serde_json::from_str(body) {
                    break document;
                }
                assert!(count > 0, "{text}");
            };
            let mut kept = kept.lock().unwrap();
            let status = if kept.is_empty() { "503 Service Unavailable" } else { "204 No Content" };
            kept.push(document);
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, posted)
}

#[test]
fn a_web_server_and_a_user_who_watches_hear_of_start_loss_and_end() {
    let (url, posted) = web_server();
    let first = Node::start("alpha", &hosts("a", 1), &[&QUICK[..], &["--notices-url", &url]].concat());
    let mut second = Node::joining("beta", &hosts("b", 1), &first, &QUICK);
    first.wait_until_it_knows(2);
    // Hosts are looked after until the window begins.
    let asked = ["submit", "-N", "2", "--per-host", "cpu=1", "-t", "5s", "--earliest", "+40s"];
    let view = first.kolo_json(&asked, 0);
    let id = view["id"].as_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let heard = directory.path().join("heard");
    let command = format!("echo $KOLO_EVENT >> {}", heard.display());
    // The flags of the connection stand before the command that is run.
    let mut watch = first.command(&["watch", id, "--output", "json"]);
    let mut watch = watch.args(["--", "/bin/sh", "-c", &command]).stdout(Stdio::piped()).spawn().unwrap();
    second.kill();

    let events = |documents: &[Value]| -> Vec<(String, u64, u64)> {
        let event = |document: &Value| {
            let numbers = ["number", "run"].map(|key| document[key].as_u64().unwrap());
            (document["event"].as_str().unwrap().to_owned(), numbers[0], numbers[1])
        };
        documents.iter().map(event).collect()
    };
    let all = [("reserved", 1, 1), ("reserved", 1, 2), ("degraded", 2, 1), ("start", 3, 1), ("end", 4, 1)];
    let all = all.map(|(event, number, run)| (event.to_owned(), number, run));
    let documents = wait_until("all that is told", || posted.lock().unwrap().clone(), |told| events(told) == all);
    let lost: Vec<&str> = documents[2]["request"]["reservation"]["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|host| host.get("lost").is_some())
        .map(|host| host["host"].as_str().unwrap())
        .collect();
    assert_eq!(lost, ["b1"]);

    assert!(watch.wait().unwrap().success(), "it was reserved to its end");
    let mut said = String::new();
    watch.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let said: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<&str> = said.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(said, ["reserved", "degraded", "start", "end"]);
    assert_eq!(fs::read_to_string(&heard).unwrap(), "reserved\ndegraded\nstart\nend\n");
}

#[test]
fn what_is_lost_while_it_is_used_is_told_and_that_it_is_there_again() {
    let (url, posted) = web_server();
    let first = Node::start("alpha", &hosts("a", 1), &[&QUICK[..], &["--notices-url", &url]].concat());
    let mut second = Node::joining("beta", &hosts("b", 1), &first, &QUICK);
    first.wait_until_it_knows(2);
    let _ = first.kolo_json(&["submit", "-N", "2", "--per-host", "cpu=1", "-t", "1h"], 0);
    let last = || posted.lock().unwrap().last().map(|document| document["event"].clone());
    let told = |event: &str| wait_until(event, last, |last| *last == Some(event.into()));
    told("start");
    second.kill();
    told("degraded");
    second.restart();
    told("repaired");
}
