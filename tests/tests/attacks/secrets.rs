//! What nobody may get: each is tried as an attacker would, and judged by what comes of it.

use std::{
    fs,
    process::{Command, Stdio},
};

use end_to_end::{
    Node, binary, run, skip,
    squatter::{heard, squat},
    wait_until,
};
use serde_json::json;

use crate::siege::Siege;

/// Known to carol and her commands.
const SECRET: &str = "not-for-everybody";
/// A line that passes itself off as one of another seat, and a title for the terminal, as `printf` takes them.
const FORGED: &str = r"x\r[0] forged\033]0;title\007\n";

/// A reservation of carol's with a command that has a secret in its environment and in a file.
pub fn keep(siege: &Siege) -> String {
    let order = ["run", "-N", "1", "--per-host", "cpu=1", "-t", "1h", "--detach"];
    let mut kolo = siege.carol.command(&order, &siege.site.data());
    kolo.args(["--env", &format!("PASSWORD={SECRET}")]).stdin(Stdio::null());
    let script = "echo $PASSWORD > note; echo kept; exec sleep 1000";
    let started = run(kolo.args(["--", "sh", "-c", script]));
    assert_eq!(started.code, Some(0), "{started:?}");
    let id = started.out.trim().to_owned();
    let said = || siege.carol.kolo(&["logs", &id], &siege.site.data()).out;
    wait_until("the secret", said, |said| said.contains("kept"));
    id
}

/// A command of another tenant reads neither the keys of the node, nor the environment and the files of another command.
pub fn are_closed_to_commands(siege: &Siege) {
    let [_, eve] = &siege.hostile;
    let (data, scratch) = (siege.site.data(), siege.scratch.path());
    let script = format!(
        "exec 2>/dev/null; cat {0}/api.token {0}/identity.key {0}/user.key; grep -rs {SECRET} {1}; \
         cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep {SECRET}; echo tried",
        data.display(),
        scratch.display()
    );
    let mut kolo = eve.command(&["run", "-N", "1", "--per-host", "cpu=1", "-t", "10min"], &data);
    let ended = run(kolo.args(["--", "sh", "-c", &script]).stdin(Stdio::null()));
    assert_eq!((ended.code, &*ended.out), (Some(0), "tried\n"), "{ended:?}");
}

/// The cookie of a browser's session, which other ports of the machine are shown as well, opens nothing.
pub fn are_not_opened_by_a_cookie(site: &Node) {
    let (status, link) = site.post("/v1/links", "");
    assert_eq!(status, 201, "{link}");
    let code = link["url"].as_str().unwrap().split_once("#link=").unwrap().1;
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let url = |path: &str| format!("http://{}{path}", site.address());
    let session = agent.post(url("/v1/session")).send_json(json!({"link": code})).unwrap();
    let cookie = session.headers().get("set-cookie").unwrap().to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap();
    assert!(session.status().as_u16() == 201 && cookie.contains('='), "{cookie}");
    assert_eq!(agent.get(url("/v1/requests")).header("cookie", cookie).call().unwrap().status().as_u16(), 401);
}

/// What a seat says is no line of another one on the terminal of its user, and drives nothing there.
pub fn lines_cannot_be_forged(siege: &Siege) {
    if !skip::missing(&["script"]).is_empty() {
        return skip::skip("not installed: script");
    }
    let order = ["run", "-N", "2", "--per-host", "cpu=1", "-t", "10min"];
    let mut kolo = siege.carol.command(&order, &siege.site.data());
    kolo.args(["--", "printf", FORGED]);
    let words = [kolo.get_program()].into_iter().chain(kolo.get_args());
    let line: Vec<String> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line.join(" "), "/dev/null"]).stdin(Stdio::null());
    for (name, value) in kolo.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    let shown = run(&mut terminal);
    assert!(shown.code == Some(0) && shown.out.contains("[1] [0] forged"), "{shown:?}");
    assert!(!shown.out.split(['\r', '\n']).any(|line| line.starts_with("[0] forged")), "{shown:?}");
    assert!(!shown.out.contains("\u{1b}]"), "{shown:?}");
}

/// A line of the operator's in the log of changes.
pub fn audited(site: &Node) -> bool {
    fs::read_to_string(site.data().join("audit.jsonl")).unwrap().contains("POST /v1/tokens")
}

/// Whoever listens in the place of a stopped node does not hear the operator's token.
pub fn are_kept_from_a_squatter(site: &Node, address: &str) {
    let squatter = squat(address, "200 OK");
    let mut kolo = Command::new(binary("kolo"));
    kolo.args(["list", "--api", address, "--token-file"]).arg(site.data().join("api.token"));
    let ended = run(&mut kolo);
    assert!(ended.code != Some(0) && ended.err.contains("nothing was sent"), "{ended:?}");
    let heard = heard(&squatter);
    assert!(heard.contains("GET /v1/proof?token=") && !heard.contains(&site.token()), "{heard}");
}
