//! Many commands over the seats of one reservation, as a user starts them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use end_to_end::{Node, hosts, run, wait_until};
use nix::sys::signal::Signal;

use super::{
    peers::example,
    run_on_seats::{runner, shared},
};

/// Eight hosts at three sites, that let users run commands and write to `shared`.
fn three(shared: &Path) -> [Node; 3] {
    let paths = ["--runner-paths", shared.to_str().unwrap()];
    let runner = [runner(), &paths].concat();
    let first = Node::start("alpha", &hosts("a", 3), &runner);
    let second = Node::joining("beta", &hosts("b", 3), &first, &runner);
    let third = Node::joining("gamma", &hosts("c", 2), &first, &runner);
    [&first, &second, &third].iter().for_each(|node| node.wait_until_it_knows(8));
    [first, second, third]
}

/// `kolo run --each` over all eight hosts.
fn each(node: &Node, file: &Path, flags: &[&str]) -> Command {
    let mut kolo = node.command(&["run", "-N", "8", "--per-host", "cpu=1", "-t", "30min"]);
    kolo.arg("--each").arg(file).args(flags).stdin(Stdio::null());
    kolo
}

fn file_of(directory: &Path, lines: &str) -> PathBuf {
    let file = directory.join("tasks.txt");
    fs::write(&file, lines).unwrap();
    file
}

#[test]
fn the_sweep_of_the_documentation_runs_a_hundred_tasks_over_eight_seats() {
    let directory = shared();
    let [first, _second, _third] = three(directory.path());
    let ended = example(&first, "sweep.sh", directory.path());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let results = fs::read_to_string(directory.path().join("sweep.txt")).unwrap();
    let found: Vec<(u32, u32, f64)> = results
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0].parse().unwrap(), words[1].parse().unwrap(), words[2].parse().unwrap())
        })
        .collect();
    let tasks: Vec<(u32, u32)> = found.iter().map(|(seed, points, _)| (*seed, *points)).collect();
    let expected: Vec<(u32, u32)> =
        (1..=10).flat_map(|seed| (1..=10).map(move |thousands| (seed, 1000 * thousands))).collect();
    assert_eq!(tasks, expected, "every task once, in the order of the file");
    assert!(found.iter().all(|(_, _, pi)| (pi - std::f64::consts::PI).abs() < 0.3), "{results}");
}

#[test]
fn every_line_runs_once_on_a_seat_and_the_largest_code_counts() {
    let directory = shared();
    let [first, second, mut third] = three(directory.path());
    let ran = directory.path().join("ran");
    let line = |number: u32| match number {
        7 => format!("echo 7 >> {}; echo seven >&2; exit 7", ran.display()),
        9 => format!("echo 9 >> {}; kill -TERM $$", ran.display()),
        _ => format!("echo $KOLO_LINE $KOLO_RANK; echo {number} >> {}; sleep 0.1", ran.display()),
    };
    let lines: String = (1..=200).map(|number| line(number) + "\n").collect();
    // The node of a site goes and comes back; what it has begun goes on.
    let child = each(&first, &file_of(directory.path(), &lines), &[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("lines to run", || fs::read_to_string(&ran).unwrap_or_default(), |text| text.lines().count() > 8);
    third.kill();
    third.restart();
    let ended = child.wait_with_output().unwrap();
    let [out, err] = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(ended.status.code(), Some(143), "{err}");
    let said = fs::read_to_string(&ran).unwrap();
    let (count, once): (usize, BTreeSet<u32>) =
        (said.lines().count(), said.lines().map(|line| line.parse().unwrap()).collect());
    assert_eq!((count, once), (200, (1..=200).collect()), "each has run once");
    let ranks: BTreeSet<&str> = out.lines().map(|line| line.rsplit_once(' ').unwrap().1).collect();
    assert_eq!((out.lines().count(), ranks.len()), (198, 8), "over all seats: {out}");
    assert!(out.lines().all(|line| {
        let (label, rest) = line.split_once(' ').unwrap();
        label == format!("[{}]", rest.split_once(' ').unwrap().0)
    }));
    for expected in [
        "[7] seven",
        "kolo: line 7: ended with code 7",
        "kolo: line 9: ended with code 143",
        "kolo: of 200 lines 198 ended with code 0, 2 with another one, 0 in an unknown way; 0 not run",
    ] {
        assert!(err.lines().any(|line| line == expected), "{expected}: {err}");
    }
    assert!(second.bookings().is_empty(), "the rest of the time was given back");
}

#[test]
fn the_first_failure_ends_all_where_that_is_wanted_and_bad_files_run_nothing() {
    let directory = shared();
    let [first, _second, _third] = three(directory.path());
    let lines: String = (1..=500).map(|number| format!("sleep 0.1; [ {number} != 9 ]\n")).collect();
    let ended = run(&mut each(&first, &file_of(directory.path(), &lines), &["-K"]));
    assert!(matches!(ended.code, Some(code) if code != 0), "{ended:?}");
    assert!(ended.err.contains("kolo: line 9: ended with code 1"), "{ended:?}");
    assert!(ended.err.contains("not run: those from line"), "{ended:?}");

    let empty = run(&mut each(&first, &file_of(directory.path(), "# nothing\n\n"), &[]));
    assert_eq!(empty.code, Some(64), "{empty:?}");
    assert!(empty.err.contains("tasks.txt: there is no command in it"), "{empty:?}");
    let both = run(&mut each(&first, &file_of(directory.path(), "true\n"), &["--", "true"]));
    assert_eq!(both.code, Some(64), "{both:?}");
}

#[test]
fn lines_that_are_left_running_run_once_and_are_told_of_later() {
    let directory = shared();
    let [_first, mut second, _third] = three(directory.path());
    let (done, held) = (directory.path().join("done"), directory.path().join("held"));
    fs::write(&held, "").unwrap();
    let line = |number| {
        let (held, done) = (held.display(), done.display());
        format!("while [ -e {held} ]; do sleep 0.05; done; echo $KOLO_LINE >> {done}; [ {number} != 7 ] || exit 3\n")
    };
    let file = file_of(directory.path(), &(1..=30).map(line).collect::<String>());
    let left = run(&mut each(&second, &file, &["--detach"]));
    assert_eq!(left.code, Some(0), "{left:?}");
    let id = left.out.trim().to_owned();
    // Nobody has the file any more, and the node that took it is not there for a while.
    fs::remove_file(file).unwrap();
    second.kill();
    second.restart();
    assert_eq!(second.kolo_json(&["ps", &id], 0)["runs"].as_array().map(Vec::len), Some(8));
    fs::remove_file(held).unwrap();
    let ended = run(&mut second.command(&["attach", &id]));
    assert!(ended.code == Some(3) && ended.err.contains("line 7: exit code 3"), "{ended:?}");
    let text = fs::read_to_string(done).unwrap();
    let mut numbers: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=30).collect::<Vec<_>>(), "each once");
}

#[test]
fn an_interrupt_reaches_the_lines_that_run_and_no_other_is_started() {
    let directory = shared();
    let [first, _second, _third] = three(directory.path());
    let began = directory.path().join("began");
    let lines = format!("echo x >> {}; exec sleep 1000\n", began.display()).repeat(20);
    let child = each(&first, &file_of(directory.path(), &lines), &[]).stderr(Stdio::piped()).spawn().unwrap();
    let began = || fs::read_to_string(&began).unwrap_or_default().lines().count();
    wait_until("eight lines to run", began, |count| *count == 8);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, Signal::SIGINT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!((ended.status.code(), began()), (Some(130), 8), "{err}");
    assert!(err.contains("12 lines not run: those from line 9 to line 20"), "{err}");
}

#[test]
#[ignore = "a measurement; run by hand: cargo test -p end-to-end --test grid -- --ignored --nocapture a_thousand_short"]
fn a_thousand_short_lines() {
    let directory = shared();
    let [first, _second, _third] = three(directory.path());
    let file = file_of(directory.path(), &"true\n".repeat(1000));
    let begun = Instant::now();
    let ended = run(&mut each(&first, &file, &[]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    println!("1000 lines over 8 seats at 3 sites, with reservation and start: {:?}", begun.elapsed());
}
