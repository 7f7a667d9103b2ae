//! Commands on reserved hosts: run, watched, told how they ended, and by nobody but the user.

use std::{
    fs,
    io::{BufRead as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

pub use end_to_end::tenants::{runner, shared};
use end_to_end::{Ended, Node, hosts, run, wait_for, wait_until};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// Two sites with a host each, that let users run commands, as another user where the tests run as root, else in a sandbox. They may write to `shared`.
pub(super) fn two_with(shared: &Path) -> (Node, Node) {
    let paths = ["--runner-paths", shared.to_str().unwrap()];
    let runner = [runner(), &paths].concat();
    let first = Node::start("alpha", &hosts("a", 1), &runner);
    let second = Node::joining("beta", &hosts("b", 1), &first, &runner);
    [&first, &second].iter().for_each(|node| node.wait_until_it_knows(2));
    (first, second)
}

pub(super) fn two() -> (Node, Node) {
    two_with(Path::new("/tmp"))
}

/// `kolo run` through a node, with these flags and behind them the command.
pub(super) fn kolo_run(node: &Node, flags: &[&str], command: &[&str]) -> Command {
    let mut kolo = node.command(&[]);
    kolo.arg("run").args(flags).arg("--").args(command).stdin(Stdio::null());
    kolo
}

fn on_both(node: &Node, flags: &[&str], script: &str) -> Ended {
    let both = ["-N", "2", "--total", "cpu=5", "-t", "1h"];
    run(&mut kolo_run(node, &[&both, flags].concat(), &["sh", "-c", script]))
}

pub(super) fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn one_command_runs_on_two_sites_and_ends_with_one_true_code() {
    let (first, second) = two();
    let script = "echo out $KOLO_RANK of $KOLO_SIZE; echo err $KOLO_RANK >&2; exit $((KOLO_RANK * 3))";
    let ended = on_both(&first, &[], script);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(sorted(&ended.out), ["[0] out 0 of 2", "[1] out 1 of 2"], "{ended:?}");
    assert!(ended.err.contains("[0] err 0") && ended.err.contains("[1] err 1"), "{ended:?}");
    let listed = first.kolo_json(&["list"], 0)["requests"][0].clone();
    assert_eq!(
        (&listed["state"], &listed["exit_code"], &listed["reason"]),
        (&"done".into(), &3.into(), &Value::Null),
        "{listed}"
    );
    let shown = first.kolo(&["show", "last"]).out;
    assert!(shown.starts_with("done ") && shown.contains("ended with exit code 3"), "{shown}");
    assert_eq!(first.kolo(&["wait", "last", "--for", "end"]).code, Some(0));
    // The rest of the hour is free again.
    wait_until("the hosts to be free", || first.bookings().len() + second.bookings().len(), |count| *count == 0);

    for (script, expected) in [("true", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("exec /no/such/program", 127)] {
        let ended = on_both(&first, &[], script);
        assert_eq!(ended.code, Some(expected), "{script}: {ended:?}");
    }
    let missing = run(&mut kolo_run(&first, &["-N", "1", "-t", "1h"], &["/no/such/program"]));
    assert_eq!(missing.code, Some(121), "{missing:?}");
    assert!(missing.err.contains("could not be started"), "{missing:?}");
    assert!(first.log().contains("a stream to a run"), "the owner sees who runs what");
    let audit = fs::read_to_string(second.data().join("audit-users.jsonl")).unwrap();
    assert!(audit.contains("\"what\":\"run\""), "{audit}");
}

#[test]
fn arguments_that_no_system_takes_are_refused_and_nothing_is_kept_for_them() {
    let (first, second) = two();
    let long = "x".repeat(100_000);
    let ended = run(&mut kolo_run(&first, &["-N", "2", "--total", "cpu=5", "-t", "1h"], &[long.as_str(); 15]));
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.err.contains("put the rest into a file"), "{}", ended.err);
    wait_until("the hosts to be free", || first.bookings().len() + second.bookings().len(), |count| *count == 0);
}

#[test]
fn input_goes_to_the_first_seat_or_to_all_and_large_output_comes_whole() {
    let (first, _second) = two();
    let input: Vec<u8> = (0..3_000_000_u32).flat_map(|number| format!("{number}\n").into_bytes()).collect();
    for (to, expected) in [("first", ["[0] 3000000", "[1] 0"]), ("all", ["[0] 3000000", "[1] 3000000"])] {
        let flags = ["-N", "2", "--total", "cpu=5", "-t", "1h", "--stdin", to];
        let mut child = kolo_run(&first, &flags, &["sh", "-c", "wc -l | tr -d ' '"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.clone();
        let feeding = std::thread::spawn(move || stdin.write_all(&input).unwrap());
        let ended = child.wait_with_output().unwrap();
        feeding.join().unwrap();
        let out = String::from_utf8(ended.stdout).unwrap();
        assert_eq!((ended.status.code(), sorted(&out)), (Some(0), expected.into()), "{to}");
    }
    let mut many = kolo_run(&first, &["-N", "1", "-t", "1h"], &["sh", "-c", "seq 1 2000000"]);
    let ended = run(&mut many);
    let expected: String = (1..=2_000_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(ended.code, Some(0));
    assert!(ended.out == expected, "{} bytes of {}", ended.out.len(), expected.len());
}

#[test]
fn a_signal_reaches_every_seat() {
    let (first, _second) = two();
    let script = "trap 'echo got it; exit 5' INT; echo ready; while :; do sleep 0.1; done";
    let flags = ["-N", "2", "--total", "cpu=5", "-t", "1h"];
    let child = kolo_run(&first, &flags, &["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    // Both have set their traps when both have said so.
    let id = first.wait_until("the run", "/v1/requests", |list| list["requests"][0]["state"] == "active");
    let id = id["requests"][0]["id"].as_str().unwrap().to_owned();
    wait_for("both seats to be ready", || {
        let seen = first.kolo(&["logs", &id]);
        if seen.out.matches("ready").count() == 2 { Ok(()) } else { Err(format!("{seen:?}")) }
    });
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(5));
    assert_eq!(String::from_utf8_lossy(&ended.stdout).matches("got it").count(), 2);
}

#[test]
fn whoever_does_not_read_the_output_ends_the_command_all_the_same() {
    let directory = shared();
    let (first, _second) = two();
    let mark = directory.path().join("mark");
    // More than a pipe holds, before it is ready.
    let output = "head -c 300000 /dev/zero | tr '\\0' x; while :; do echo tick; done";
    let script = format!("trap 'echo > {}; exit 5' INT; {output}", mark.display());
    let mut kolo = kolo_run(&first, &["-N", "1", "-t", "1h"], &["sh", "-c", &script]);
    let mut child = kolo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let list = first.wait_until("the run", "/v1/requests", |list| list["requests"][0]["state"] == "active");
    let id = list["requests"][0]["id"].as_str().unwrap().to_owned();
    wait_for("the command to be ready", || {
        let seen = first.kolo(&["logs", &id]);
        if seen.out.contains("tick") { Ok(()) } else { Err(format!("{seen:?}")) }
    });
    let pid = Pid::from_raw(child.id().cast_signed());
    kill(pid, Signal::SIGINT).unwrap();
    wait_for("the command to hear it", || if mark.exists() { Ok(()) } else { Err(String::new()) });
    wait_for("its user to leave", || {
        kill(pid, Signal::SIGINT).unwrap();
        if child.try_wait().unwrap().is_some() { Ok(()) } else { Err(String::new()) }
    });
    assert_eq!(child.wait().unwrap().code(), Some(125));
    let _ = first.kolo_json(&["cancel", &id], 0);
}

#[test]
fn whoever_looks_at_the_output_and_leaves_changes_nothing() {
    let (first, second) = two();
    let script = "while :; do echo tick; sleep 0.05; done";
    let left = run(&mut kolo_run(&first, &["-N", "1", "-t", "1h", "--detach"], &["sh", "-c", script]));
    let id = left.out.trim().to_owned();
    let look = || first.command(&["logs", "-f", &id]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = look();
    // As `head -1` does.
    let mut line = String::new();
    std::io::BufReader::new(reader.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "tick\n");
    assert_eq!(reader.wait().unwrap().code(), Some(141));
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut reader = look();
        let mut output = std::io::BufReader::new(reader.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        kill(Pid::from_raw(i32::try_from(reader.id()).unwrap()), signal).unwrap();
        assert_eq!(reader.wait().unwrap().code(), Some(128 + signal as i32));
        drop(output);
    }
    // Whoever is hung up on does not know how it ends.
    let mut watcher = first.command(&["attach", &id]).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = std::io::BufReader::new(watcher.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    kill(Pid::from_raw(i32::try_from(watcher.id()).unwrap()), Signal::SIGHUP).unwrap();
    assert_eq!(watcher.wait().unwrap().code(), Some(125));
    let ended = [&first, &second].map(|node| node.kolo(&["local", "end", &id]).code);
    assert!(ended.contains(&Some(0)), "it ran until now: {ended:?}");
}

#[test]
fn several_commands_that_begin_at_once_on_the_same_seats_all_run() {
    let (first, _second) = two();
    let id = detached(&first, &["-N", "2", "--total", "cpu=5", "-t", "1h"], "sleep 100");
    let begin = |number: usize| {
        let mut kolo = kolo_run(&first, &["--in", &id], &["echo", &number.to_string()]);
        kolo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let begun: Vec<_> = (0..8).map(begin).collect();
    for (number, command) in begun.into_iter().enumerate() {
        let ended = command.wait_with_output().unwrap();
        let out = String::from_utf8_lossy(&ended.stdout);
        assert_eq!(sorted(&out), [format!("[0] {number}"), format!("[1] {number}")], "{ended:?}");
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    }
}

#[test]
fn nobody_else_runs_and_nobody_runs_before_or_after_the_window() {
    let directory = shared();
    let (first, second) = two_with(directory.path());
    let id =
        first.kolo_json(&["submit", "-N", "2", "--total", "cpu=5", "-t", "1h"], 0)["id"].as_str().unwrap().to_owned();
    let view = first.get(&format!("/v1/requests/{id}"));
    // Beta's operator has another key, and the id; alpha passes on what is signed.
    let mark = directory.path().join("mark");
    let touch = ["touch", mark.to_str().unwrap()];
    let key = second.data().join("user.key");
    let stolen = run(&mut kolo_run(&first, &["--in", &id, "--key", key.to_str().unwrap()], &touch));
    assert_eq!(stolen.code, Some(121), "{stolen:?}");
    assert!(stolen.err.contains("no reservation") && stolen.err.contains("of this user"), "{stolen:?}");
    assert_eq!(view["reservation"]["hosts"][0]["seat"], 0);

    let later = first.kolo_json(&["submit", "-N", "1", "-t", "1h", "--earliest", "+3h"], 0);
    let later = later["id"].as_str().unwrap();
    let mut early = kolo_run(&first, &["--in", later], &["true"]).stderr(Stdio::piped()).spawn().unwrap();
    // It waits for the start, and goes when the user does not.
    assert!(early.try_wait().unwrap().is_none());
    let pid = Pid::from_raw(early.id().cast_signed());
    wait_for("it to go", || {
        // One that comes before it listens is lost where the shell around the tests has SIGINT ignored.
        kill(pid, Signal::SIGINT).unwrap();
        if early.try_wait().unwrap().is_some() { Ok(()) } else { Err(String::new()) }
    });
    assert_ne!(early.wait().unwrap().code(), Some(0));

    let over = first.kolo_json(&["submit", "-N", "1", "-t", "1s"], 0)["id"].as_str().unwrap().to_owned();
    let _ = first.kolo_json(&["wait", &over, "--for", "end"], 0);
    let late = run(&mut kolo_run(&first, &["--in", &over], &["true"]));
    assert_eq!(late.code, Some(121), "{late:?}");
    assert!(late.err.contains("no reservation") || late.err.contains("is over"), "{late:?}");

    let closed = Node::joining("gamma", &hosts("c", 1), &first, &[]);
    closed.wait_until_it_knows(3);
    let id =
        closed.kolo_json(&["submit", "-N", "3", "--total", "cpu=5", "-t", "1h"], 0)["id"].as_str().unwrap().to_owned();
    let refused = run(&mut kolo_run(&closed, &["--in", &id], &touch));
    assert_eq!(refused.code, Some(121), "{refused:?}");
    assert!(refused.err.contains("host c1 of gamma") && refused.err.contains("lets nothing run"), "{refused:?}");
    assert!(!mark.exists(), "none runs unless all can");
}

#[test]
fn nothing_runs_past_the_window_or_without_its_reservation() {
    let (first, second) = two();
    let begun = Instant::now();
    let ended = run(&mut kolo_run(&first, &["-N", "1", "-t", "8s"], &["sleep", "1000"]));
    assert_eq!(ended.code, Some(124), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());

    // Who cancels ends what runs.
    let flags = ["-N", "2", "--total", "cpu=5", "-t", "1h", "--detach"];
    let id = run(&mut kolo_run(&first, &flags, &["sleep", "1000"])).out.trim().to_owned();
    assert_eq!(first.bookings().len() + second.bookings().len(), 2);
    let watching = first.command(&["attach", &id]).stderr(Stdio::piped()).spawn().unwrap();
    let _ = first.kolo_json(&["cancel", &id], 0);
    let ended = watching.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(matches!(ended.status.code(), Some(123 | 120)), "{err}");
}

#[test]
fn what_its_user_cancels_while_it_runs_is_cancelled_and_what_was_over_stays_what_it_was() {
    let directory = shared();
    let (mut first, _second) = two_with(directory.path());
    let started = directory.path().join("started");
    let labelled = |label: &str| ["-N", "1", "--per-host", "cpu=1", "-t", "1h", "--id", label].map(str::to_owned);
    let ended = run(&mut kolo_run(&first, &labelled("good").each_ref().map(|flag| flag.as_str()), &["true"]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let script = format!("touch {}; sleep 1000", started.display());
    let flags = labelled("long");
    let running = kolo_run(&first, &flags.each_ref().map(|flag| flag.as_str()), &["sh", "-c", &script])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = wait_until("the command", || started.exists(), |has_begun| *has_begun);
    assert_eq!(first.kolo_json(&["cancel", "long"], 0)["state"], "cancelled");
    let code = running.wait_with_output().unwrap().status.code();
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    let brief = first.kolo_json(&["submit", "-N", "1", "-t", "1s", "--id", "brief"], 0)["id"].clone();
    assert_eq!(first.kolo_json(&["wait", brief.as_str().unwrap(), "--for", "end"], 0)["state"], "ended");
    for (label, state) in [("good", "done"), ("brief", "ended")] {
        let begun = Instant::now();
        let refused = first.kolo(&["cancel", label]);
        assert!(refused.code == Some(1) && refused.err.contains(&format!("is {state}, not cancelled")), "{refused:?}");
        // A cancellation waits five seconds for sites that do not answer.
        assert!(begun.elapsed() < Duration::from_secs(4), "nothing is to be waited for: {:?}", begun.elapsed());
    }
    let states = |node: &Node| {
        let of = |label: &str| node.kolo_json(&["show", label], 0);
        ["good", "long", "brief"].map(|label| (of(label)["state"].clone(), of(label).get("exit_code").cloned()))
    };
    let expected = [("done", Some(0)), ("cancelled", None), ("ended", None)];
    let expected = expected.map(|(state, code)| (Value::from(state), code.map(Value::from)));
    assert_eq!(states(&first), expected);
    let listed = first.kolo_json(&["list"], 0).to_string();
    for state in ["done", "cancelled", "ended"] {
        assert_eq!(listed.matches(&format!("\"state\":\"{state}\"")).count(), 1, "{listed}");
    }
    first.kill();
    first.restart();
    assert_eq!(states(&first), expected, "after a restart as well");
}

#[test]
fn kills_of_both_nodes_lose_nothing_and_run_nothing_twice() {
    let directory = shared();
    let (mut first, mut second) = two_with(directory.path());
    let started = directory.path().join("started");
    let script =
        format!("echo x >> {}; for i in $(seq 1 60); do echo line $i; sleep 0.2; done; exit 9", started.display());
    let flags = ["-N", "2", "--total", "cpu=5", "-t", "1h"];
    let child = kolo_run(&first, &flags, &["sh", "-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    wait_until("both to run", || fs::read_to_string(&started).unwrap_or_default(), |text| text == "x\nx\n");
    // It comes back where it was, so that the other one finds it.
    let (address, status) = (first.address(), first.get("/v1/status"));
    let listen = status["listen"][0].as_str().unwrap().split("/p2p/").next().unwrap().to_owned();
    second.kill();
    second.restart();
    first.kill();
    first.change("--api", &address);
    first.change("--listen", &listen);
    first.restart();
    let ended = child.wait_with_output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(9), "{out}");
    for rank in 0..2 {
        let head = format!("[{rank}] ");
        let lines: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix(&head)).collect();
        let expected: Vec<String> = (1..=60).map(|number| format!("line {number}")).collect();
        assert_eq!(lines, expected, "every line once, in order");
    }
    assert_eq!(fs::read_to_string(&started).unwrap(), "x\nx\n", "each seat has run once");
}

/// A run that was left alone, as `kolo run --detach` says it.
pub(super) fn detached(node: &Node, flags: &[&str], script: &str) -> String {
    let ended = run(&mut kolo_run(node, &[flags, &["--detach"]].concat(), &["sh", "-c", script]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.out.trim().to_owned()
}

#[test]
fn an_owner_sees_what_runs_and_ends_it_for_a_reason_that_its_user_reads() {
    let (first, second) = two();
    let flags = ["-N", "2", "--total", "cpu=5", "-t", "1h"];
    let id = detached(&first, &flags, "sleep 1000");
    let watching = first.command(&["attach", &id]).stderr(Stdio::piped()).spawn().unwrap();
    let listed = second.kolo(&["local", "running"]);
    assert!(listed.out.contains(&id) && listed.out.contains("sleep 1000"), "{listed:?}");
    let ended = second.kolo(&["local", "end", &id, "--reason", "the cat sleeps on it"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    wait_until("it to end there", || second.kolo(&["local", "running"]).out, |text| text.contains("run nothing"));
    assert!(first.kolo(&["local", "running"]).out.contains(&id), "the other seat is another owner's");
    let other = first.kolo(&["local", "end", &id, "--reason", "nor here"]);
    assert_eq!(other.code, Some(0), "{other:?}");
    let told = watching.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!(told.status.code(), Some(123), "{err}");
    assert!(err.contains("the cat sleeps on it") && err.contains("nor here"), "{err}");
    let again = second.kolo(&["local", "end", &id, "--reason", "again"]);
    assert!(again.code != Some(0) && again.err.contains("nothing of a request"), "{again:?}");
}

#[test]
fn a_run_lasts_as_long_as_its_reservation() {
    let (first, mut second) = two();
    let flags = ["-N", "2", "--total", "cpu=5", "-t", "20s"];
    let id = detached(&first, &flags, "while :; do sleep 0.1; done");
    let begun = end_of_run(&second).unwrap();
    let extended = first.kolo_json(&["extend", &id, "--by", "1h"], 0);
    let part = extended["added"][0]["id"].as_str().unwrap().to_owned();
    let is_longer = |end: &Option<i64>| *end == Some(begun + 3600);
    wait_until("the keeper to know", || end_of_run(&second), is_longer);
    // A node that starts after that knows it too.
    second.kill();
    second.restart();
    wait_until("the first end to be over", seconds, |now| *now > begun + 1);
    assert_eq!([end_of_run(&first), end_of_run(&second)], [Some(begun + 3600); 2]);
    let more = run(&mut kolo_run(&first, &["--in", &part], &["echo", "more"]));
    assert!(more.code == Some(0) && sorted(&more.out) == ["[0] more", "[1] more"], "{more:?}");
    let watching = first.command(&["attach", &id]).stderr(Stdio::piped()).spawn().unwrap();
    let _ = first.kolo_json(&["cancel", &part], 0);
    let ended = watching.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(123) && err.contains("no longer has this seat"), "{err}");
}

fn seconds() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// When the only run of a site ends, as its keeper was told last.
fn end_of_run(node: &Node) -> Option<i64> {
    node.get("/v1/local/running")["running"][0]["end"].as_i64()
}
