//! Files of a user's on their way to seats and back.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use end_to_end::{Node, hosts, run, wait_until};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::run_on_seats::{runner, shared};

/// Three hosts at two sites.
fn two() -> [Node; 2] {
    let first = Node::start("alpha", &hosts("a", 1), runner());
    let second = Node::joining("beta", &hosts("b", 2), &first, runner());
    [&first, &second].iter().for_each(|node| node.wait_until_it_knows(3));
    [first, second]
}

fn kolo_run(node: &Node, seats: &str, flags: &[&str], script: &str) -> Command {
    let mut kolo = node.command(&["run", "-N", seats, "--per-host", "cpu=4", "-t", "1h"]);
    kolo.args(flags).args(["--", "sh", "-c", script]).stdin(Stdio::null());
    kolo
}

/// Files of the stores of a site, and how many bytes they have.
fn kept(node: &Node) -> (usize, u64) {
    let stores = fs::read_dir(node.data().join("files")).into_iter().flatten().flatten();
    let pieces = stores.flat_map(|store| fs::read_dir(store.path()).unwrap().flatten());
    pieces.fold((0, 0), |(count, bytes), piece| (count + 1, bytes + piece.metadata().map_or(0, |found| found.len())))
}

/// Runs that a site keeps.
fn runs(node: &Node) -> usize {
    let seats = fs::read_dir(node.data().join("runs")).into_iter().flatten().flatten();
    let runs = seats.flat_map(|seat| fs::read_dir(seat.path()).into_iter().flatten().flatten());
    runs.filter(|run| run.path().join("task").exists()).count()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_run_takes_its_files_with_it_and_brings_results_back() {
    let directory = shared();
    let [first, second] = two();
    let (work, into) = (directory.path().join("work"), directory.path().join("results"));
    fs::create_dir_all(work.join("data")).unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(work.join("data/large"), &large).unwrap();
    fs::write(
        work.join("job.sh"),
        "#!/bin/sh\nmkdir out && cp data/large out/$KOLO_RANK && ln -s /etc/passwd out/link\n",
    )
    .unwrap();
    fs::set_permissions(work.join("job.sh"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // What a site keeps of files goes with the reservation.
    let flags = ["--keep", "--send", &text(&work), "--fetch", "out/*", "--into", &text(&into)];
    let ended = run(&mut kolo_run(&first, "3", &flags, "exec ./job.sh"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for rank in 0..3 {
        let out = into.join(format!("seat-{rank}/out"));
        assert!(fs::read(out.join(rank.to_string())).unwrap() == large, "seat {rank}");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 1, "links do not come");
        assert_eq!(fs::read_dir(into.join(format!("seat-{rank}"))).unwrap().count(), 1, "nothing else is left");
    }
    // Twelve pieces of the large file, the script and the manifest, once for both seats of beta.
    let (count, bytes) = kept(&second);
    assert_eq!(count, 14, "{bytes} bytes");
    let audit = fs::read_to_string(second.data().join("audit-users.jsonl")).unwrap();
    assert_eq!(audit.matches("\"what\":\"keep files\"").count(), 1, "{audit}");
    wait_until("the runs to be forgotten", || runs(&first) + runs(&second), |count| *count == 0);

    let booked = || first.bookings().len() + second.bookings().len();
    let before = booked();
    symlink("/etc/passwd", work.join("data/l")).unwrap();
    let refused = run(&mut kolo_run(&first, "1", &["--send", &text(&work)], "true"));
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(refused.err.contains("\"data/l\" is a link"), "{refused:?}");
    assert_eq!(booked(), before, "nothing was reserved");
}

#[test]
fn files_go_into_what_runs_and_come_back_and_nobody_else_gets_them() {
    let directory = shared();
    let [first, second] = two();
    let script = "while [ ! -e in/go ]; do sleep 0.1; done; cat in/go > answer; sleep 100";
    let started = run(&mut kolo_run(&first, "2", &["--detach"], script));
    let id = started.out.trim().to_owned();
    assert_eq!(started.code, Some(0), "{started:?}");
    let file = directory.path().join("go");
    fs::write(&file, "hello\n").unwrap();
    let sent = first.kolo(&["cp", &text(&file), &format!("{id}:in/")]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    for seat in 0..2 {
        let into = directory.path().join(format!("from-{seat}"));
        let answer = || {
            let fetched = first.kolo(&["cp", &format!("{id}/{seat}:answer"), &text(&into)]);
            (fetched.code, fs::read_to_string(into.join("answer")).unwrap_or_default())
        };
        wait_until("the answer", answer, |(code, said)| *code == Some(0) && said == "hello\n");
    }
    let which = first.kolo(&["cp", &format!("{id}:answer"), "."]);
    assert!(which.code == Some(64) && which.err.contains("2 seats: say which"), "{which:?}");
    let missing = first.kolo(&["cp", &format!("{id}/0:no"), &text(directory.path())]);
    assert!(missing.code == Some(1) && missing.err.contains("has no file \"no\""), "{missing:?}");
    let outside = first.kolo(&["cp", &text(&file), &format!("{id}/0:../go")]);
    assert!(outside.code != Some(0) && outside.err.contains("names no file below the directory"), "{outside:?}");
    // Beta's operator has another key, and the id.
    let key = text(&second.data().join("user.key"));
    for words in [[format!("{id}/0:answer"), text(directory.path())], [text(&file), format!("{id}/0:in/")]] {
        let stolen = first.kolo(&["cp", &words[0], &words[1], "--key", &key]);
        assert!(stolen.code != Some(0) && !directory.path().join("answer").exists(), "{stolen:?}");
    }
    let _ = first.kolo_json(&["cancel", &id], 0);
}

/// 64 MiB of which no two pieces are the same.
fn noise() -> Vec<u8> {
    let mut state = 1_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_le_bytes()
    };
    (0..(64 << 20) / 4).flat_map(|_| random()).collect()
}

#[test]
fn an_interrupt_while_files_are_sent_ends_the_run_and_gives_all_back() {
    let directory = shared();
    let [first, second] = two();
    let work = directory.path().join("work");
    fs::create_dir_all(&work).unwrap();
    fs::write(work.join("large"), noise()).unwrap();
    let mut kolo = kolo_run(&first, "3", &["--send", &text(&work)], "true");
    let mut child = kolo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("some pieces to be there", || kept(&second).0, |count| *count > 3);
    second.silence(true);
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    wait_until("it to end", || child.try_wait().unwrap().is_some(), |ended| *ended);
    second.silence(false);
    let ended = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(130) && err.contains("interrupted"), "{ended:?}");
    wait_until("nothing to be booked", || first.bookings().len() + second.bookings().len(), |count| *count == 0);
}

#[test]
fn a_site_that_goes_and_comes_back_is_sent_what_it_lacks() {
    let directory = shared();
    let [first, mut second] = two();
    let work = directory.path().join("work");
    fs::create_dir_all(&work).unwrap();
    let large = noise();
    fs::write(work.join("large"), &large).unwrap();
    let mut kolo = kolo_run(&first, "3", &["--send", &text(&work)], "cat large | wc -c");
    let child = kolo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("some pieces to be there", || kept(&second).0, |count| *count > 3);
    second.kill();
    let before = kept(&second).0;
    second.restart();
    let ended = child.wait_with_output().unwrap();
    let [out, err] = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!(ended.status.code(), Some(0), "{before} pieces before: {err}");
    assert_eq!(out.matches(&format!("{}", large.len())).count(), 3, "{out}");
}
