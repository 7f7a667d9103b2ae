//! What a site has only so much of is divided by account: who takes all they can stops neither the site nor others.

use std::{
    fs,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use end_to_end::{
    Ended, Node, hosts, run, seconds_from_now,
    tenants::{Person, copy_run, founded_with, runner, three_users_of},
    wait_until,
};
use serde_json::{Value, json};

use super::run_on_seats::detached;

/// A limit under which all users together may have 96 files open for the ports of their runs, and each a quarter of that.
const OPEN_FILES_MAX: u32 = 1_024;

/// How bob or carol runs `script` on so many seats, each of which is reached at these ports by the others.
fn reaching(node: &Node, person: &Person, (seats, ports): (u32, u32), more: &[&str], script: &str) -> Ended {
    let seats = seats.to_string();
    let mut kolo = person.command(&["run", "-N", &seats, "--per-host", "cpu=1", "-t", "1h"], &node.data());
    kolo.args((0..ports).flat_map(|port| ["--port".to_owned(), (20_000 + port).to_string()]));
    run(kolo.args(more).args(["--", "sh", "-c", script]).stdin(Stdio::null()))
}

fn open_files(node: &Node) -> Value {
    node.get("/v1/local/running")["accounts"].clone()
}

#[test]
fn two_users_who_take_all_they_can_leave_a_third_what_it_needs() {
    let mut site = founded_with("alpha", &hosts("a", 10), runner());
    site.limit_open_files(OPEN_FILES_MAX);
    site.kill();
    site.restart();
    site.wait_until_it_knows(10);
    let [bob, eve, carol] = three_users_of(&site);

    // 9 * 8 * 8 listeners, as one order.
    let greedy = reaching(&site, &bob, (9, 8), &[], "true");
    assert!(
        greedy.code != Some(0) && greedy.err.contains("of at most 24 open files for the ports of runs at this site"),
        "{greedy:?}"
    );
    // As many as they get, one after the other: 2 * 4 listeners each, and streams.
    for person in [&bob, &eve] {
        let mut taken = (0..8).map(|_| reaching(&site, person, (2, 4), &["--detach"], "sleep 1000"));
        let refused = taken.find(|ended| ended.code != Some(0)).expect("eight times eight is more than a share");
        assert!(refused.err.contains("your account has"), "{refused:?}");
    }
    let shown = open_files(&site);
    let of = |account: &Value| account["open_files"].as_u64().unwrap();
    assert!(shown.as_array().unwrap().iter().filter(|account| of(account) >= 24).count() == 2, "{shown}");

    let honest = reaching(&site, &carol, (2, 1), &[], "echo up");
    assert_eq!((honest.code, honest.out.matches("up").count()), (Some(0), 2), "{honest:?}");
    // What goes on is as much at the next start, and no more.
    let before = Instant::now();
    site.kill();
    site.restart();
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    let shown = open_files(&site);
    assert!(shown.as_array().unwrap().iter().all(|account| of(account) <= 24), "{shown}");
    let honest = reaching(&site, &carol, (2, 1), &[], "echo up");
    assert_eq!((honest.code, honest.out.matches("up").count()), (Some(0), 2), "{honest:?}");
    end_all(&site);
}

/// Ends what runs here: commands outlive their node.
pub(super) fn end_all(site: &Node) {
    let running = || site.get("/v1/local/running")["running"].as_array().unwrap().clone();
    for run in running() {
        let _ = site.kolo(&["local", "end", run["request"].as_str().unwrap()]);
    }
    wait_until("the end of all runs", running, Vec::is_empty);
}

/// Most runs of an account.
const RUNS_OF_ACCOUNT_MAX: usize = 256;

/// Command by which a person runs `script` on one seat.
fn on_a_seat(node: &Node, person: &Person, more: &[&str], script: &str) -> Ended {
    let mut kolo = person.command(&["run", "-N", "1", "--per-host", "cpu=1", "-t", "1h"], &node.data());
    run(kolo.args(more).args(["--", "sh", "-c", script]).stdin(Stdio::null()))
}

/// Has a person start a run that goes on, and copies it until its account has as many runs as it may; the directory of the copies. A copy
/// waits for the word of its user.
fn take_all_places(site: &Node, person: &Person, name: &str) -> PathBuf {
    let started = on_a_seat(site, person, &["--detach"], "sleep 1000");
    assert_eq!(started.code, Some(0), "{started:?}");
    copy_run(site, started.out.trim(), name, RUNS_OF_ACCOUNT_MAX)
}

#[test]
fn two_users_with_all_runs_they_may_have_take_no_place_of_a_third_and_lose_their_own_ends_only() {
    let site = founded_with("alpha", &hosts("a", 10), runner());
    site.wait_until_it_knows(10);
    let [bob, eve, carol] = three_users_of(&site);
    let [of_bob, of_eve] = [(&bob, "bob"), (&eve, "eve")].map(|(person, name)| take_all_places(&site, person, name));
    let refused = on_a_seat(&site, &bob, &[], "echo up");
    let told = "your account has 256 of at most 256 runs at this site, and none of them has ended";
    assert!(refused.code != Some(0) && refused.err.contains(told), "{refused:?}");
    let honest = on_a_seat(&site, &carol, &[], "echo up");
    assert_eq!((honest.code, &*honest.out), (Some(0), "up\n"), "{honest:?}");

    let shown = site.get("/v1/local/running");
    let runs = shown["accounts"].as_array().unwrap().iter().map(|account| account["runs"].as_u64().unwrap());
    assert_eq!(
        (runs.filter(|runs| *runs == 256).count(), &shown["runs_max"]),
        (2, &json!(256)),
        "{}",
        shown["accounts"]
    );
    let listed = site.kolo(&["local", "running", "--accounts"]);
    assert_eq!(listed.out.matches("256 of 256").count(), 2, "{listed:?}");
    let metrics = site.metrics();
    let kept = metrics.lines().find_map(|line| line.strip_prefix("kolo_runs_kept ")?.parse().ok());
    assert!(kept >= Some(512_u32), "{metrics}");

    // One end of each; whoever wants a place gives up an own one.
    for copies in [&of_bob, &of_eve] {
        fs::write(copies.join("1/ended"), "{\"Code\":0}").unwrap();
    }
    let again = on_a_seat(&site, &bob, &[], "echo up");
    assert_eq!((again.code, &*again.out), (Some(0), "up\n"), "{again:?}");
    assert_eq!((of_bob.join("1").exists(), of_eve.join("1").exists()), (false, true));
    [of_bob, of_eve].iter().for_each(|copies| fs::remove_dir_all(copies).unwrap());
    end_all(&site);
}

#[test]
fn a_node_that_may_open_nothing_more_goes_on_writing_its_ledger() {
    let mut site = Node::start("alpha", &hosts("a", 1), &[]);
    let (url, bearer) = (format!("http://{}/v1/local", site.address()), format!("Bearer {}", site.token()));
    // The connection that is open already is used again.
    let agent = ureq::agent();
    let enter = |hour: u64| {
        let start = seconds_from_now(3_600 * hour);
        let work = json!({"start": start, "end": start + 60, "amounts": {"cpu": 1}});
        let entered = agent.post(&url).header("Authorization", &bearer).send_json(work);
        let mut entered = entered.unwrap_or_else(|error| panic!("{hour}: {error}\n{}", site.log()));
        entered.body_mut().read_to_vec().unwrap();
    };
    enter(1);
    // Some 220 changes fill the first journal, and twice as many each one after it.
    site.without_descriptors(|| (2..900).for_each(enter));
    assert_eq!(site.bookings().len(), 899);
    site.kill();
    site.restart();
    assert_eq!(site.bookings().len(), 899);
    let journals = fs::read_dir(site.data().join("ledger")).unwrap();
    let last =
        journals.filter_map(|one| one.unwrap().file_name().to_str()?.strip_prefix("journal.")?.parse().ok()).max();
    assert!(last > Some(3_u32), "no journal was filled: {last:?}");
}

/// The processes of this machine by number, with the parent of each.
fn parents() -> Vec<(u32, u32)> {
    let processes = fs::read_dir("/proc").unwrap();
    let numbers = processes.filter_map(|process| process.unwrap().file_name().to_str()?.parse().ok());
    let parent = |number: u32| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    numbers.filter_map(|number| Some((number, parent(number)?))).collect()
}

#[test]
fn what_a_command_leaves_behind_is_taken_off_the_list_of_processes() {
    let site = Node::start("alpha", &hosts("a", 1), runner());
    let script = "for one in 1 2 3 4 5 6 7 8; do (sleep 0.2 &); done; echo left; exec sleep 1000";
    let id = detached(&site, &["-N", "1", "--per-host", "cpu=1", "-t", "1h"], script);
    wait_until("its word", || site.kolo(&["logs", &id]).out, |out| out.contains("left"));
    let command = site.get("/v1/local/running")["running"][0]["pid"].as_u64().unwrap();
    let keeper = parents().iter().find(|(number, _)| u64::from(*number) == command).unwrap().1;
    let children = || parents().iter().filter(|(_, parent)| *parent == keeper).count();
    wait_until("the command to be the keeper's only child", children, |count| *count == 1);
    end_all(&site);
}
