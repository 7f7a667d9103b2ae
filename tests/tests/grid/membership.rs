//! Closed grids: who belongs, who may book how much, and what becomes of those who do not, over real processes.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, Mutex},
    thread,
};

pub(super) use end_to_end::tenants::{Person, founded, founded_with, invite, joined, joined_with};
use end_to_end::{Ended, Node, hosts, run, wait_until, write_private};
use serde_json::Value;

fn submit(hosts: u32, duration: &str) -> Vec<String> {
    ["submit", "-N", &hosts.to_string(), "--per-host", "cpu=1", "-t", duration].map(str::to_owned).into()
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[test]
fn members_use_a_closed_grid_within_their_limits_until_they_are_revoked() {
    let first = founded("alpha", &hosts("a", 2));
    let nodes = [joined(&first, "beta", &hosts("b", 2)), joined(&first, "gamma", &hosts("c", 2))];
    let all = [&first, &nodes[0], &nodes[1]];
    for node in all {
        node.wait_until_it_knows(6);
    }
    let bob = Person::new();
    bob.join(&invite(&first, &["--role", "user", "--name", "bob", "--limit", "reservations=2"]));

    let reserving = submit(5, "1h");
    let data = nodes[1].data();
    assert!(bob.told(&words(&reserving), &data, 0).starts_with("reserved "), "through a node that is not bob's");
    let shown = bob.told(&["show", "last"], &data, 0);
    assert!(shown.contains("user: bob"), "{shown}");
    let _ = bob.told(&words(&reserving), &data, 0);
    let refused = bob.told(&words(&reserving), &data, 4);
    assert!(refused.contains("refused by rule `max-reservations`"), "{refused}");
    let explained = bob.told(&["explain", "last"], &data, 0);
    assert!(explained.contains("user bob") && explained.contains("`max-reservations`"), "{explained}");

    let nobody = Person::new().told(&words(&reserving), &data, 4);
    assert!(nobody.contains("refused by rule `credential`: this node has no user of its own"), "{nobody}");
    let founder = Person::new().told(&words(&submit(1, "1h")), &first.data(), 0);
    assert!(founder.starts_with("reserved "), "the first node signs for its founder: {founder}");

    for (node, is_issuer) in [(&first, true), (&nodes[1], false)] {
        let told = Person::new().told(&["grid", "invitations", "--output", "json"], &node.data(), 0);
        let listed: Value = serde_json::from_str(&told).unwrap();
        let invitations = listed["invitations"].as_array().unwrap();
        let of = |name: &str| {
            let is_used =
                |one: &&Value| one["members"].as_array().is_some_and(|all| all.iter().any(|m| m["name"] == name));
            invitations.iter().find(is_used).unwrap_or_else(|| panic!("{name}: {listed}"))
        };
        assert_eq!((&of("bob")["made_here"], of("bob")["issuer"].is_string()), (&is_issuer.into(), true), "{listed}");
        // Bob asked through the second only, so the first knows the keys of the credential alone.
        assert_eq!(of("bob")["members"][0]["since"].is_null(), is_issuer, "{listed}");
        assert!(of("beta")["members"][0]["subject"]["site"].is_string() && of("beta")["expires"].is_u64(), "{listed}");
        assert!(!told.contains("\"ada\""), "the founder came by no invitation: {told}");
    }

    let _ = Person::new().told(&["grid", "revoke", "bob"], &first.data(), 0);
    let told = Person::new().told(&["grid", "invitations"], &first.data(), 0);
    assert!(told.contains("revoked") && told.contains("as far as this node knows"), "{told}");
    for node in all {
        node.wait_until("the revocation to arrive", "/v1/grid", |grid| {
            grid["revocations"].as_array().is_some_and(|all| all.len() == 1)
        });
        let refused = bob.told(&words(&submit(1, "10min")), &node.data(), 4);
        assert!(refused.contains("refused by rule `revoked`"), "{refused}");
    }
}

#[test]
fn a_hundred_keys_of_one_invitation_have_one_account() {
    let first = founded("alpha", &hosts("a", 1));
    let token = invite(&first, &["--role", "user", "--name", "bob", "--limit", "reservations=1"]);
    let keys: Vec<Person> = (0..100).map(|_| Person::new()).collect();
    keys.iter().for_each(|key| key.join(&token));
    let (data, reserving) = (first.data(), submit(1, "1h"));
    let _ = keys[0].told(&words(&reserving), &data, 0);
    for key in &keys[1..] {
        let refused = key.told(&words(&reserving), &data, 4);
        assert!(refused.contains("refused by rule `max-reservations`"), "{refused}");
    }
    assert_eq!(first.bookings().len(), 1);
}

#[test]
fn a_revocation_outlives_a_restart_and_a_revoked_site_is_left_out() {
    let mut first = founded("alpha", &hosts("a", 1));
    let second = joined(&first, "beta", &hosts("b", 1));
    first.wait_until_it_knows(2);
    second.wait_until_it_knows(2);
    let told = Person::new().told(&["grid", "revoke", "alpha"], &first.data(), 64);
    assert!(told.contains("--myself"), "{told}");
    let _ = Person::new().told(&["grid", "revoke", "beta"], &first.data(), 0);
    let is_noticed = |log: &String| log.contains("other sites do not believe this node");
    wait_until("the revoked site to log it", || second.log(), is_noticed);
    let told = Person::new().told(&["doctor"], &second.data(), 1);
    assert!(told.contains("PROBLEM credential: site \"beta\": revoked"), "{told}");
    first.wait_until("the revoked site to be forgotten", "/v1/status", |status| status["known_sites"] == 1);
    first.kill();
    first.restart();
    let grid = first.get("/v1/grid");
    assert_eq!(grid["revocations"].as_array().map(Vec::len), Some(1), "{grid}");
    assert_eq!(first.get("/v1/status")["known_sites"], 1);
}

#[test]
fn a_node_without_a_credential_is_not_believed_and_gets_no_holds() {
    let first = founded("alpha", &hosts("a", 2));
    let intruder = Node::joining("intruder", &hosts("x", 3), &first, &[]);
    let status = first.wait_until("the intruder to be disconnected", "/v1/status", |status| {
        status["counters"]["non_members_disconnected"].as_u64() > Some(0)
    });
    assert_eq!((&status["known_hosts"], &status["counters"]["asks_in"]), (&2.into(), &0.into()), "{status}");
    assert_eq!(intruder.get("/v1/status")["known_hosts"], 3, "it has not heard of the others");
    let _ = Person::new().told(&words(&submit(5, "1h")), &intruder.data(), 2);
    assert!(first.bookings().is_empty());
}

#[test]
fn an_owner_refuses_by_name_of_the_rule() {
    let policy = "[[offered]]\ndates = \"1970-01-01\"\n[policy]\ndeny = [\"eve\"]\n";
    let first = founded("alpha", &format!("{policy}{}", hosts("a", 1)));
    let refused = Person::new().told(&words(&submit(1, "2h")), &first.data(), 2);
    assert!(refused.contains("no placement"), "{refused}");
    let eve = Person::new();
    eve.join(&invite(&first, &["--role", "user", "--name", "eve"]));
    let refused = eve.told(&words(&submit(1, "1h")), &first.data(), 4);
    assert!(refused.contains("refused by rule `owner-deny`: user eve"), "{refused}");
}

#[test]
fn an_expired_invitation_and_a_second_grid_in_one_directory_are_refused() {
    let first = founded("alpha", &hosts("a", 1));
    let token = invite(&first, &["--role", "user", "--name", "late", "--expires", "1s"]);
    let late = Person::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let kept = late.keeps(&token);
    let join = || late.kolo(&["join", &kept], &elsewhere.path().join(format!("{:?}", std::time::Instant::now())));
    let is_late = |joined: &Ended| joined.code == Some(4) && joined.err.contains("expired");
    wait_until("the invitation to expire", join, is_late);
    let told = late.told(&["grid", "init"], &first.data(), 1);
    assert!(told.contains("belongs to grid lab-"), "{told}");
    let told = late.told(&["join", &late.keeps(&token[..token.len() - 5])], elsewhere.path(), 64);
    assert!(told.contains("damaged"), "{told}");
    for secret in ["grid-root.key", "user.key", "identity.key"] {
        let mode = fs::metadata(first.data().join(secret)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
}

#[test]
fn a_token_that_others_can_read_is_refused() {
    let first = founded("alpha", &hosts("a", 1));
    let (token, eve) = (invite(&first, &["--role", "user", "--name", "eve"]), Person::new());
    let elsewhere = tempfile::tempdir().unwrap();
    let told = eve.told(&["join", &token], elsewhere.path(), 64);
    assert!(told.contains("kolo join FILE") && told.contains("kolo join -") && !told.contains(&token), "{told}");
    let told = eve.told(&["join", "none"], elsewhere.path(), 64);
    assert!(told.contains("none: there is no such file"), "{told}");
    let file = eve.keeps(&token);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let told = eve.told(&["join", &file], elsewhere.path(), 1);
    assert!(told.contains("mode 644") && told.contains("chmod 600"), "{told}");
    assert!(fs::read_dir(elsewhere.path()).unwrap().next().is_none(), "nothing was made");

    let mut by_input = eve.command(&["join", "-"], elsewhere.path());
    let joined = run(by_input.stdin(fs::File::open(&file).unwrap()));
    assert_eq!(joined.code, Some(0), "{joined:?}");

    // As a token of the API, which the socket does not ask for.
    let api = write_private(elsewhere.path(), "api.token", &first.token());
    let list = ["list", "--api", &first.address(), "--token-file", &api];
    fs::set_permissions(&api, fs::Permissions::from_mode(0o604)).unwrap();
    let told = eve.told(&list, elsewhere.path(), 1);
    assert!(told.contains("api.token: mode 604") && told.contains("chmod 600"), "{told}");
    fs::set_permissions(&api, fs::Permissions::from_mode(0o600)).unwrap();
    let _ = eve.told(&list, elsewhere.path(), 0);
}

/// Passes bytes on to `target` from its port of another address, and keeps what a client sends.
pub(super) fn recording_proxy(target: String) -> (String, Arc<Mutex<Vec<u8>>>) {
    let (_, port) = target.rsplit_once(':').unwrap();
    let listener = TcpListener::bind(format!("127.0.0.2:{port}")).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let sent = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&sent);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(&target)) else { return };
            let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
            let recorded = Arc::clone(&recorded);
            thread::spawn(move || record(client, server, &recorded));
        }
    });
    (address, sent)
}

fn record(mut client: TcpStream, mut server: TcpStream, recorded: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        recorded.lock().unwrap().extend_from_slice(&bytes[..count]);
        if server.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
    let _ = server.shutdown(std::net::Shutdown::Both);
}

#[test]
fn a_signed_request_counts_once_at_one_entry_point_and_as_it_was_signed() {
    let first = founded("alpha", &hosts("a", 2));
    let second = joined(&first, "beta", &hosts("b", 2));
    first.wait_until_it_knows(4);
    second.wait_until_it_knows(4);
    let bob = Person::new();
    bob.join(&invite(&first, &["--role", "user", "--name", "bob"]));
    let (proxy, sent) = recording_proxy(first.address());
    let reserving = submit(3, "1h");
    // By bob's key, as the node's token counts at the node's own address only.
    let elsewhere = bob.home().join("no-node");
    let _ = bob.told(&[words(&reserving), vec!["--api", &proxy]].concat(), &elsewhere, 0);
    let sent = String::from_utf8(sent.lock().unwrap().clone()).unwrap();
    let (_, post) = sent.split_once("POST /v1/requests").expect("the request went through the proxy");
    let (_, body) = post.split_once("\r\n\r\n").expect("a body follows the head");
    let signed: Value = serde_json::Deserializer::from_str(body).into_iter().next().unwrap().unwrap();
    assert!(signed["authorization"]["user"].is_array(), "bob shows a credential: {signed}");
    let body = signed.to_string();

    let before = first.bookings().len() + second.bookings().len();
    let (status, answer) = first.post("/v1/requests", &body);
    assert_eq!((status, &answer["existing"]["user"]), (409, &Value::from("bob")), "{answer}");
    let (status, answer) = second.post("/v1/requests", &body);
    assert_eq!((status, &answer["rule"]), (403, &Value::from("entry-point")), "{answer}");
    let altered = body.replace("\\\"hosts\\\":3", "\\\"hosts\\\":1");
    assert_ne!(altered, body);
    let (status, answer) = first.post("/v1/requests", &altered);
    assert_eq!((status, &answer["rule"]), (403, &Value::from("signature")), "{answer}");
    assert_eq!(first.bookings().len() + second.bookings().len(), before, "a replay does nothing");
}
