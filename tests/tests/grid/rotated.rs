//! A new root key follows the old one: old members go on for a while, new ones join under it, and then the old key makes nobody a member.

use std::fs;

use end_to_end::{Node, hosts, seconds_from_now, wait_until};
use serde_json::Value;

use super::membership::{Person, founded, invite, joined};

const SUBMIT: [&str; 7] = ["submit", "-N", "1", "--per-host", "cpu=1", "-t", "10min"];

fn has_two_roots(grid: &Value) -> bool {
    grid["roots"].as_array().is_some_and(|roots| roots.len() == 2)
}

/// Whether anybody has revoked this key, and the newest of two roots.
fn is_revoked(grid: &Value, key: &str) -> (bool, bool) {
    let all = grid["revocations"].as_array().map_or(&[][..], Vec::as_slice);
    let of_key = all.iter().filter(|one| one["subject"]["key"] == key);
    let authors: Vec<&Value> = of_key.map(|one| &one["author"]).collect();
    (!authors.is_empty(), authors.contains(&&grid["roots"][1]["key"]))
}

/// Lets an admin revoke a key at one node, and another one hear of it.
fn revoke(admin: &Person, key: &str, at: &Node, other: &Node) {
    let _ = admin.told(&["grid", "revoke", key], &at.data(), 0);
    other.wait_until("what an admin revokes to arrive", "/v1/grid", |grid| is_revoked(grid, key) == (true, false));
}

/// Lets the site, which was left out, join again in its own directory.
fn join_again(site: &mut Node, first: &Node) {
    assert!(site.stop().success());
    let token = invite(first, &["--role", "site", "--name", "beta", "--no-user"]);
    let home = Person::new();
    let _ = home.told(&["join", &home.keeps(&token)], &site.data(), 0);
    site.restart();
}

/// Starts the node again where others have met it.
fn restart_in_place(node: &mut Node) {
    let status = node.get("/v1/status");
    let (listen, _) = status["listen"][0].as_str().unwrap().split_once("/p2p/").unwrap();
    node.change("--listen", listen);
    assert!(node.stop().success());
    node.restart();
}

#[test]
fn a_new_root_key_follows_the_old_one_whose_members_go_on_until_it_ends() {
    let mut first = founded("alpha", &hosts("a", 1));
    let mut second = joined(&first, "beta", &hosts("b", 1));
    [&first, &second].iter().for_each(|node| node.wait_until_it_knows(2));
    let bob = Person::new();
    bob.join(&invite(&first, &["--role", "user", "--name", "bob"]));
    // An admin revokes a key before the rotation, and another one after it, while the old credential counts.
    let ida = Person::new();
    ida.join(&invite(&first, &["--role", "admin", "--name", "ida"]));
    let revoked = ["07", "08"].map(|byte| byte.repeat(32));
    revoke(&ida, &revoked[0], &second, &first);
    let stolen = tempfile::tempdir().unwrap();
    for file in ["grid.json", "grid-root.key"] {
        fs::copy(first.data().join(file), stolen.path().join(file)).unwrap();
    }

    let told = Person::new().told(&["grid", "rotate-root", "--overlap", "1h"], &first.data(), 0);
    assert!(told.contains("is followed by") && told.contains("user bob"), "{told}");
    second.wait_until("the new root to arrive", "/v1/grid", has_two_roots);
    restart_in_place(&mut first);
    assert!(has_two_roots(&first.get("/v1/grid")), "it is on disk");
    let third = joined(&first, "gamma", &hosts("c", 1));
    [&first, &second, &third].iter().for_each(|node| node.wait_until_it_knows(3));
    third.wait_until("the roots to be told", "/v1/grid", has_two_roots);
    let _ = bob.told(&SUBMIT, &second.data(), 0);
    let shown = Person::new().told(&["grid", "show"], &second.data(), 0);
    assert_eq!(shown.matches("root key ").count(), 2, "{shown}");

    // Whoever has the old key invites with it, as long as it counts.
    let status = first.get("/v1/status");
    let inviting = ["grid", "invite", "--role", "user", "--name", "eve", "--output", "quiet", "--bootstrap"];
    let address = status["listen"][0].as_str().unwrap();
    let token = Person::new().told(&[&inviting[..], &[address]].concat(), stolen.path(), 0);
    let eve = Person::new();
    eve.join(token.trim());
    let _ = eve.told(&SUBMIT, &third.data(), 0);

    revoke(&ida, &revoked[1], &second, &first);
    let told = Person::new().told(&["grid", "rotate-root", "--end-overlap"], &first.data(), 0);
    assert!(told.contains("revoked by the new key as well: 1,"), "only what it had not revoked yet: {told}");
    let are_revoked = |grid: &Value| revoked.iter().all(|key| is_revoked(grid, key).1);
    third.wait_until("what the admin has revoked to be the new root's", "/v1/grid", are_revoked);
    let has_ended = |grid: &Value| grid["roots"][0]["until"].as_u64().is_some_and(|until| until <= seconds_from_now(0));
    for node in [&first, &third] {
        node.wait_until("the end to be told", "/v1/grid", has_ended);
        for person in [&eve, &bob] {
            let refused = person.told(&SUBMIT, &node.data(), 4);
            assert!(refused.contains("refused by rule `expired`") && refused.contains("was followed by"), "{refused}");
            assert!(refused.contains("kolo join FILE"), "it says what to do: {refused}");
        }
    }
    first.wait_until("the old member to be left out", "/v1/status", |status| status["known_sites"] == 2);
    let is_noticed = |log: &String| log.contains("other sites do not believe this node");
    wait_until("the old member to log it", || second.log(), is_noticed);

    join_again(&mut second, &first);
    [&first, &second, &third].iter().for_each(|node| node.wait_until_it_knows(3));
}
