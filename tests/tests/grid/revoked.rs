//! What runs for a user who is revoked, or denied by an owner, ends; what is reserved stays, unless the revocation takes it back.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Output, Stdio},
    time::{Duration, Instant},
};

use end_to_end::{Node, hosts, skip, wait_until};

use super::{
    membership::{Person, founded_with, invite, joined_with},
    run_on_seats::runner,
};

/// How long a command may go on at a site that has heard of it.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// A closed grid of two sites that run commands, and bob, who runs one on both of them that hears no SIGTERM: its reservation.
struct Lab {
    first: Node,
    second: Node,
    bob: Person,
    id: String,
}

fn lab() -> Lab {
    let first = founded_with("alpha", &hosts("a", 1), runner());
    let second = joined_with(&first, "beta", &hosts("b", 1), runner());
    [&first, &second].iter().for_each(|node| node.wait_until_it_knows(2));
    let bob = Person::new();
    bob.join(&invite(&first, &["--role", "user", "--name", "bob"]));
    let mut kolo = bob.command(&["run", "-N", "2", "--total", "cpu=5", "-t", "1h", "--detach"], &first.data());
    let started = end_to_end::run(kolo.args(["--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"]));
    assert_eq!(started.code, Some(0), "{started:?}");
    Lab { first, second, bob, id: started.out.trim().to_owned() }
}

impl Lab {
    /// What bob has begun, when it has said as many lines.
    fn begun(&self, arguments: &[&str], behind: &[&str], lines: usize) -> Child {
        let mut kolo = self.bob.command(arguments, &self.first.data());
        let kolo = kolo.args(behind).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kolo.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.as_mut().unwrap());
        let mut text = String::new();
        for _ in 0..lines {
            assert_ne!(out.read_line(&mut text).unwrap(), 0, "{arguments:?}: {text}");
        }
        assert_eq!(text.matches("up").count(), lines, "{arguments:?}: {text}");
        child
    }

    /// What bob is told who tries to use the reservation.
    fn refusals(&self, directory: &Path) -> Vec<String> {
        let (id, data) = (&self.id, self.first.data());
        let file = directory.join("file");
        fs::write(&file, "x").unwrap();
        let (file, into) = (file.to_str().unwrap(), directory.to_str().unwrap());
        let (from, to) = (format!("{id}/1:up"), format!("{id}/1:in/"));
        let plain: [&[&str]; 4] = [&["attach", id], &["logs", id], &["cp", file, &to], &["cp", &from, into]];
        let mut tried: Vec<_> = plain.map(|words| self.bob.command(words, &data)).into();
        let mut run = self.bob.command(&["run", "--in", id], &data);
        run.args(["--", "true"]);
        tried.push(run);
        tried
            .iter_mut()
            .map(|kolo| {
                let ended = end_to_end::run(kolo.stdin(Stdio::null()));
                assert_ne!(ended.code, Some(0), "{ended:?}");
                ended.err
            })
            .collect()
    }
}

fn runs(node: &Node) -> usize {
    node.get("/v1/local/running")["running"].as_array().unwrap().len()
}

fn told(ended: &Output) -> String {
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

#[test]
fn a_revocation_ends_what_runs_at_every_site_and_leaves_what_is_reserved() {
    let lab = lab();
    let (first, second, id) = (&lab.first, &lab.second, &lab.id);
    let attached = lab.begun(&["attach", id], &[], 2);
    let session = skip::missing(&["ssh"]).is_empty().then(|| {
        lab.begun(&["ssh", &format!("{id}/1")], &["--", "trap '' TERM HUP; echo up; while :; do sleep 0.1; done"], 1)
    });
    assert_eq!(runs(first) + runs(second), 2 + usize::from(session.is_some()));

    let _ = Person::new().told(&["grid", "revoke", "bob"], &first.data(), 0);
    for node in [first, second] {
        let knows = |grid: &serde_json::Value| grid["revocations"].as_array().is_some_and(|all| all.len() == 1);
        node.wait_until("the revocation to arrive", "/v1/grid", knows);
        let heard = Instant::now();
        wait_until("the commands to end", || runs(node), |count| *count == 0);
        assert!(heard.elapsed() < ENDS_WITHIN, "{:?}\n{}", heard.elapsed(), node.log());
    }
    let ended = attached.wait_with_output().unwrap();
    let err = told(&ended);
    assert_eq!(ended.status.code(), Some(123), "{err}");
    assert_eq!(err.matches("refused by rule `revoked`").count(), 2, "{err}");
    if let Some(session) = session {
        let ended = session.wait_with_output().unwrap();
        assert!(!ended.status.success(), "{}", told(&ended));
    }

    let directory = tempfile::tempdir().unwrap();
    for refused in lab.refusals(directory.path()) {
        assert!(refused.contains("refused by rule `revoked`"), "{refused}");
    }
    let (listed, kept) = (first.get("/v1/requests"), [first.bookings(), second.bookings()]);
    assert_eq!((kept[0].len(), kept[1].len()), (1, 1), "what is reserved stays: {listed}");
    assert!(listed["requests"].as_array().unwrap().iter().any(|one| one["id"] == **id), "{listed}");
}

#[test]
fn a_revocation_that_takes_hosts_back_frees_them_at_every_site_for_others() {
    let mut lab = lab();
    let (first, second) = (&lab.first, &lab.second);
    let all_of_both = ["submit", "-N", "2", "--per-host", "cpu=4", "-t", "1h", "--latest", "now+1min"];
    let eva = Person::new();
    eva.join(&invite(first, &["--role", "user", "--name", "eva"]));
    let _ = eva.told(&all_of_both, &second.data(), 2);

    // Whoever is revoked without it can be told to give back later.
    let _ = Person::new().told(&["grid", "revoke", "bob"], &first.data(), 0);
    let told = Person::new().told(&["grid", "revoke", "bob", "--take-back"], &first.data(), 0);
    assert!(told.contains("each frees the hosts"), "{told}");
    for node in [first, second] {
        let takes_back = |grid: &serde_json::Value| grid["revocations"][0]["takes_back"] == true;
        node.wait_until("the revocation to arrive", "/v1/grid", takes_back);
        let heard = Instant::now();
        wait_until("the hosts to be free", || node.bookings().len(), |count| *count == 0);
        assert!(heard.elapsed() < ENDS_WITHIN, "{:?}\n{}", heard.elapsed(), node.log());
        wait_until("the commands to end", || runs(node), |count| *count == 0);
    }
    wait_until(
        "another user to get the hosts",
        || end_to_end::run(&mut eva.command(&all_of_both, &second.data())),
        |ended| ended.code == Some(0),
    );
    let shown = Person::new().told(&["grid", "show"], &first.data(), 0);
    assert!(shown.contains("taken back"), "{shown}");

    // What is known outlives a restart, and takes nothing of others.
    assert!(lab.second.stop().success());
    lab.second.restart();
    assert_eq!(lab.second.get("/v1/grid")["revocations"][0]["takes_back"], true);
    assert_eq!((lab.first.bookings().len(), lab.second.bookings().len()), (1, 1));
}

#[test]
fn an_owner_who_denies_a_user_ends_what_runs_there_and_nowhere_else() {
    let lab = lab();
    let (first, second) = (&lab.first, &lab.second);
    let attached = lab.begun(&["attach", &lab.id], &[], 2);
    let before = fs::read_to_string(second.config()).unwrap();
    fs::write(second.config(), format!("{before}[policy]\ndeny = [\"bob\"]\n")).unwrap();
    let _ = second.kolo_json(&["reload"], 0);
    let heard = Instant::now();
    wait_until("the command to end", || runs(second), |count| *count == 0);
    assert!(heard.elapsed() < ENDS_WITHIN, "{:?}\n{}", heard.elapsed(), second.log());
    assert_eq!((runs(first), first.bookings().len(), second.bookings().len()), (1, 1, 1));
    // What the owner takes back counts at once as well.
    fs::write(second.config(), before).unwrap();
    let _ = second.kolo_json(&["reload"], 0);
    let mut again = lab.bob.command(&["run", "--in", &lab.id, "--detach"], &first.data());
    let again = end_to_end::run(again.args(["--", "sleep", "1000"]));
    assert_eq!(again.code, Some(0), "{again:?}");
    let _ = first.kolo(&["cancel", &lab.id]);
    let ended = attached.wait_with_output().unwrap();
    assert!(told(&ended).contains("refused by rule `owner-deny`: user bob"), "{}", told(&ended));
}
