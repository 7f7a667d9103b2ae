//! The node shows who it is before its callers say anything: programs that listen in its place, other users, and callers that fill its port.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use end_to_end::{
    Ended, Node, binary, hosts, run, skip,
    squatter::{heard, squat},
    wait_until, write_private,
};
use nix::{
    sys::resource::{Resource, getrlimit, setrlimit},
    unistd::geteuid,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{
    membership::recording_proxy,
    run_on_seats::{runner, shared},
};

/// A command line of `kolo` that knows of the node by its data directory only.
fn beside(node: &Node, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("kolo"));
    command.arg("--data-dir").arg(node.data()).args(arguments);
    for name in ["KOLO_API", "KOLO_TOKEN_FILE", "KOLO_KEY"] {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("TZ", "UTC");
    command
}

const COMMANDS: [&[&str]; 5] = [
    &["list"],
    &["open"],
    &["doctor"],
    &["local", "add", "--host", "not-for-everybody", "--for", "1h", "--cpu", "1"],
    &["run", "-N", "1", "-t", "1h", "--", "echo", "not-for-everybody"],
];

#[test]
fn who_listens_in_the_place_of_a_stopped_node_gets_nothing_of_the_token() {
    let mut node = Node::first("alpha", &hosts("a", 1));
    let (address, token) = (node.address(), node.token());
    let token_file = node.data().join("api.token").display().to_string();
    node.wait_until_it_knows(1);
    let status = node.stop();
    assert!(status.success(), "{status}: {}", node.log());
    for name in ["api.sock", "api.address"] {
        assert!(!node.data().join(name).exists(), "{name} stays after a stop");
    }
    let squatter = squat(&address, "200 OK");
    for command in COMMANDS {
        let ended = run(&mut beside(&node, &[&["--api", &address, "--token-file", &token_file], command].concat()));
        let told = ended.out.clone() + &ended.err;
        assert!(ended.code.is_some_and(|code| code != 0), "{command:?}: {ended:?}");
        let expected = format!("what listens at http://{address} is not the node whose token is in {token_file}");
        assert!(told.contains(&expected) && told.contains("nothing was sent"), "{command:?}: {ended:?}");
    }
    let heard = heard(&squatter);
    assert!(heard.contains("GET /v1/proof?token="), "{heard}");
    for secret in [&*token, "not-for-everybody", "uthorization", "/v1/run", "/v1/links", "POST"] {
        assert!(!heard.contains(secret), "{secret:?} was told: {heard}");
    }
}

#[test]
fn after_a_crash_the_socket_says_that_no_node_runs_and_the_port_is_not_asked() {
    let mut node = Node::first("alpha", &hosts("a", 1));
    let address = node.address();
    node.kill();
    assert!(node.data().join("api.sock").exists() && node.data().join("api.address").exists());
    let squatter = squat(&address, "200 OK");
    for command in [&["list"][..], &["open"], &["run", "-N", "1", "-t", "1h", "--", "true"]] {
        let ended = run(&mut beside(&node, command));
        assert!(ended.err.contains("no node answers at ") && ended.err.contains("api.sock"), "{ended:?}");
        assert!(ended.code == Some(3) || command[0] == "run" && ended.code != Some(0), "{ended:?}");
    }
    assert_eq!(heard(&squatter), "");
    node.restart();
    assert_eq!(run(&mut beside(&node, &["list"])).code, Some(0), "the new node has the socket");
}

#[test]
fn a_node_whose_port_another_program_has_starts_with_its_socket_and_takes_the_port_when_it_is_free() {
    let mut node = Node::first("alpha", &hosts("a", 1));
    let address = node.address();
    assert!(node.stop().success());
    let other = TcpListener::bind(&address).unwrap();
    node.change("--api", &address);
    node.launch();
    let by_socket = |arguments: &[&str]| run(&mut beside(&node, arguments));
    let submit = ["submit", "-N", "1", "--per-host", "cpu=1", "-t", "1h"];
    wait_until("a reservation", || by_socket(&submit), |ended| ended.code == Some(0));
    let whose = format!("(uid {})", geteuid());
    let doctor = by_socket(&["doctor"]);
    assert!(doctor.code == Some(1) && doctor.out.contains("PROBLEM api: "), "{doctor:?}");
    assert!(doctor.out.contains(&whose) && doctor.out.contains(&address), "{doctor:?}");
    assert!(node.log().contains("another program has the port of the API") && node.log().contains(&whose));
    let open = by_socket(&["open"]);
    assert!(open.code != Some(0) && open.err.contains("has the port of the page"), "no link leads there: {open:?}");
    let told = || fs::read_to_string(node.data().join("api.address")).unwrap_or_default().trim().to_owned();
    assert_eq!(told(), "", "nobody is sent there");
    drop(other);
    wait_until("the port", told, |told| *told == address);
    assert_eq!(node.get("/v1/status").get("api_holder"), None);
    assert!(by_socket(&["open", "--output", "quiet"]).out.starts_with(&format!("http://{address}/#link=")));
}

/// BLAKE3 with this key over parts, each behind its length, as `docs/api.md` says.
fn keyed(key: &[u8; 32], parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

#[test]
fn who_follows_the_description_makes_a_call_without_showing_the_token_and_once() {
    let node = Node::first("alpha", &hosts("a", 1));
    let address = node.address();
    let key: [u8; 32] = Sha256::digest(node.token()).into();
    let (name, asked) = (keyed(&key, &["name"])[..16].to_owned(), "0f".repeat(16));
    let get = |path: &str, authorization: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{authorization}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let proof = get(&format!("/v1/proof?token={name}&nonce={asked}"), "");
    let proof: Value = serde_json::from_str(proof.split_once("\r\n\r\n").unwrap().1).unwrap();
    let nonce = proof["nonce"].as_str().unwrap();
    assert_eq!(proof["proof"], keyed(&key, &["node", &address, &asked, nonce]), "{proof}");
    let body = blake3::hash(b"").to_hex();
    let mac = keyed(&key, &["call", "GET", "/v1/status", nonce, &body]);
    let authorization = format!("authorization: Kolo-Token token={name}, nonce={nonce}, body={body}, mac={mac}\r\n");
    let answer = get("/v1/status", &authorization);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let again = get("/v1/status", &authorization);
    assert!(again.starts_with("HTTP/1.1 401") && again.contains("nonce"), "a call counts once: {again}");
}

#[test]
fn a_program_that_passes_calls_on_from_another_address_or_port_is_not_taken_for_the_node() {
    let node = Node::first("alpha", &hosts("a", 1));
    let token_file = node.data().join("api.token").display().to_string();
    let kolo = |api: &str| run(&mut beside(&node, &["list", "--api", api, "--token-file", &token_file]));
    // The proxy listens at the node's port of another address.
    let (same_port, sent) = recording_proxy(node.address());
    let ended = kolo(&same_port);
    assert!(ended.code == Some(1) && ended.err.contains("nothing was sent"), "{ended:?}");
    let sent = heard(&sent);
    assert!(sent.starts_with("GET /v1/proof?token=") && !sent.contains("uthorization"), "{sent}");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (elsewhere, target) = (listener.local_addr().unwrap().to_string(), node.address());
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut node) = (client.unwrap(), TcpStream::connect(&target).unwrap());
            let (mut answers, mut to_client) = (node.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
            thread::spawn(move || std::io::copy(&mut client, &mut node));
        }
    });
    let ended = kolo(&elsewhere);
    assert!(ended.code == Some(1) && ended.err.contains("nothing was sent"), "{ended:?}");
    assert!(ended.err.contains("a tunnel must begin at the address and port"), "{ended:?}");
}

#[test]
fn the_nodes_user_needs_no_token_and_nobody_else_comes_in_by_the_socket() {
    let paths = shared();
    let arguments = [runner(), &["--runner-paths", paths.path().to_str().unwrap()]].concat();
    let node = Node::start("alpha", &hosts("a", 1), &arguments);
    node.wait_until_it_knows(1);
    let address = node.address();
    let [token, away] = ["api.token", "away"].map(|name| node.data().join(name));
    fs::rename(&token, &away).unwrap();
    let done = |arguments: &[&str]| {
        let ended = run(&mut beside(&node, arguments));
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        ended.out
    };
    let id = done(&["submit", "-N", "1", "--per-host", "cpu=1", "-t", "1h", "--output", "quiet"]);
    assert!(done(&["list", "--output", "quiet"]).contains(id.trim()));
    assert_eq!(done(&["run", "--in", id.trim(), "--", "echo", "by the socket"]), "by the socket\n");
    let link = done(&["open", "--output", "quiet"]);
    assert!(link.starts_with(&format!("http://{address}/#link=")), "the page is at the port: {link}");
    assert!(done(&["doctor"]).contains("runs"));
    assert!(done(&["token", "create", "--scope", "read", "--output", "quiet"]).trim().len() == 64);
    let audit = fs::read_to_string(node.data().join("audit.jsonl")).unwrap();
    assert!(audit.contains("\"who\":\"operator\"") && audit.contains("127.0.0.1"), "{audit}");
    fs::rename(&away, &token).unwrap();
    let Some(kolo) = of_nobody() else { return };

    let socket = node.data().join("api.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let as_nobody = || {
        let mut command = beside(&node, &["list"]);
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command = Command::new(kolo.path().join("kolo"));
        command.args(arguments).env("XDG_CONFIG_HOME", "/nonexistent").env("HOME", "/nonexistent").current_dir("/");
        command.env_remove("KOLO_API").env_remove("KOLO_TOKEN_FILE").uid(NOBODY).gid(NOBODY);
        run(&mut command)
    };
    // Whatever others may do with the files: with the directory open, and with the socket open as well.
    open_to_all(node.data().parent().unwrap());
    open_to_all(&node.data());
    let Ended { code, err, .. } = as_nobody();
    assert!(code.is_some_and(|code| code != 0) && err.contains("Permission denied"), "{code:?} {err}");
    open_to_all(&socket);
    let Ended { code, err, .. } = as_nobody();
    assert!(code == Some(3) && err.contains("no node answers at ") && err.contains("api.sock"), "{err}");
    let refused = "kolo_api_connections_refused_total{door=\"socket\",why=\"address\"} 0";
    assert!(node.metrics().contains("door=\"socket\"") && !node.metrics().contains(refused), "{}", node.metrics());
    assert_eq!(run(&mut beside(&node, &["list"])).code, Some(0));
}

/// The user whom nothing belongs to.
const NOBODY: u32 = 65_534;

/// A directory with a `kolo` that every user may start; reports the rest of the test as skipped where it cannot be started as one.
fn of_nobody() -> Option<tempfile::TempDir> {
    if !geteuid().is_root() {
        skip::skip("only root can try whether other users are refused");
        return None;
    }
    let directory = shared();
    let (from, to) = (binary("kolo"), directory.path().join("kolo"));
    if fs::hard_link(&from, &to).is_err() {
        fs::copy(&from, &to).unwrap();
    }
    Some(directory)
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn a_token_with_a_scope_opens_by_the_port_what_it_opened_before() {
    let node = Node::first("alpha", &hosts("a", 1));
    node.wait_until_it_knows(1);
    let directory = tempfile::tempdir().unwrap();
    let token = |arguments: &[&str]| {
        let made = run(&mut beside(&node, &[&["token", "create", "--output", "quiet"], arguments].concat()));
        assert_eq!(made.code, Some(0), "{made:?}");
        write_private(directory.path(), arguments[1], &made.out)
    };
    let (reader, ada) = (token(&["--scope", "read"]), token(&["--scope", "submit", "--user", "ada"]));
    let address = node.address();
    let kolo = |file: &str, arguments: &[&str]| {
        let elsewhere = directory.path().join("elsewhere").display().to_string();
        let more = ["--api", &address, "--token-file", file, "--data-dir", &elsewhere];
        run(Command::new(binary("kolo")).args(arguments).args(more).env("XDG_CONFIG_HOME", "/nonexistent"))
    };
    let submit = ["submit", "-N", "1", "--per-host", "cpu=1", "-t", "1h", "--output", "quiet"];
    let submitted = kolo(&ada, &submit);
    assert_eq!(submitted.code, Some(0), "{submitted:?}");
    assert_eq!(kolo(&reader, &["list", "--output", "quiet"]).out, submitted.out);
    assert_eq!(kolo(&reader, &["cancel", submitted.out.trim()]).code, Some(4));
    assert_eq!(kolo(&ada, &["cancel", submitted.out.trim()]).code, Some(0));
    assert_eq!(run(&mut beside(&node, &["token", "revoke", "ada"])).code, Some(0));
    let revoked = kolo(&ada, &["list"]);
    assert!(revoked.code == Some(1) && revoked.err.contains("does not know the token"), "{revoked:?}");
}

/// More connections than a node bears at its port.
const CONNECTIONS: usize = 1_100;

#[test]
fn callers_that_take_every_place_at_the_port_do_not_keep_the_nodes_user_out() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let wanted = CONNECTIONS as u64 + 500;
    if hard < wanted {
        return skip::skip("this process may not open enough files");
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(wanted), hard).unwrap();
    let node = Node::first("alpha", &hosts("a", 1));
    let address = node.address();
    let token_file = node.data().join("api.token").display().to_string();
    let by_port = || run(&mut beside(&node, &["list", "--api", &address, "--token-file", &token_file]));
    assert_eq!(by_port().code, Some(0));
    let mut taken = Vec::new();
    let ended = wait_until(
        "the port to be full",
        || {
            taken.clear();
            taken.extend((0..CONNECTIONS).map(|_| TcpStream::connect(&address).unwrap()));
            by_port()
        },
        |ended| ended.code == Some(3),
    );
    assert!(ended.err.contains("no node answers"), "{ended:?}");
    assert_eq!(run(&mut beside(&node, &["list"])).code, Some(0));
    let is_held = |stream: &TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut stream = stream;
        stream.read(&mut [0]).is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    };
    assert!(taken.first().is_some_and(is_held), "the places were taken all the while");
}
