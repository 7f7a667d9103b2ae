//! What all processes of a command may use together, and that none of them outlives it.
//!
//! The machine must let the tests make cgroups. Where it has not all of the controllers, a machine inside of this one has
//! (`scripts/test-cgroups`).

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use broker::time::Span;
use kolo_seat::{Confinement, RunId, RunNumber, RunOrder, RunState, Task, frame::End};
use nix::sys::signal::{Signal, kill};

use super::site::{Site, User, cgroups, is_alive, now, passes_in_a_machine, skip, until};

/// Whether this machine has cgroups with these controllers; it is said when not.
fn has(controllers: &[&str]) -> bool {
    let Some(place) = cgroups() else {
        skip("no cgroups can be made here");
        return false;
    };
    let enabled = fs::read_to_string(place.join("cgroup.subtree_control")).unwrap();
    let missing: Vec<_> =
        controllers.iter().filter(|name| !enabled.split_whitespace().any(|is| is == **name)).collect();
    if !missing.is_empty() {
        skip(&format!("cgroups of this machine have no {missing:?}"));
    }
    missing.is_empty()
}

/// A command that runs, with its cgroup.
async fn running(site: &Site, task: &Task) -> (User, PathBuf) {
    let id = site.start(task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("up\n").await;
    let noted = fs::read_to_string(site.only_run().join("cgroup")).unwrap();
    let cgroup = PathBuf::from(noted.trim().trim_matches('"'));
    assert!(cgroup.starts_with(cgroups().unwrap()) && cgroup.is_dir(), "{cgroup:?}");
    (user, cgroup)
}

fn limited(site: &Site, script: &str, limit: impl Fn(&mut Confinement)) -> Task {
    let mut task = site.task(&["sh", "-c", script]);
    limit(&mut task.confinement);
    task
}

fn number(file: &Path) -> u64 {
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn whoever_wants_more_memory_than_the_seat_has_is_ended_and_told_so() {
    if !has(&["memory"]) {
        return;
    }
    let site = Site::new();
    // Three processes, each of which keeps less than the seat has until somebody reads it.
    let script = "for i in 1 2 3; do head -c 20000000 /dev/zero | tail -c 20000000 | sleep 1000 & done; wait; exit 5";
    let mut task = limited(&site, script, |confinement| confinement.memory_mib = Some(32));
    assert_eq!(site.run(&task).await.0, End::OutOfMemory);
    task.order = RunOrder { run: RunNumber(2), ..task.order };
    task.confinement.memory_mib = Some(128);
    task.order.command =
        ["sh", "-c", "head -c 20000000 /dev/zero | tail -c 20000000 | wc -c"].map(str::to_owned).into();
    assert_eq!(site.run(&task).await, (End::Code(0), "20000000\n".to_owned(), String::new()));
}

#[tokio::test]
async fn a_seat_gets_its_processors_and_no_more() {
    if !has(&["cpu"]) {
        return;
    }
    let site = Site::new();
    let task = limited(&site, "echo up; while :; do :; done", |confinement| confinement.cpu_millicores = Some(250));
    let (_user, cgroup) = running(&site, &task).await;
    assert_eq!(fs::read_to_string(cgroup.join("cpu.max")).unwrap(), "25000 100000\n");
    let is_held_back = || {
        let said = fs::read_to_string(cgroup.join("cpu.stat")).unwrap();
        said.lines().any(|line| line.strip_prefix("nr_throttled ").is_some_and(|count| count != "0"))
    };
    until("it is held back", is_held_back).await;
}

#[tokio::test]
async fn a_command_that_forks_without_end_is_contained_and_ends_when_its_owner_says_so() {
    if !has(&[]) {
        return;
    }
    let site = Site::new();
    // Each goes out of its group and its environment, and hears no signal that can be ignored.
    let script = "trap '' TERM; b() { while :; do (exec env -i setsid sleep 1000) & (b) & done; }; echo up; b 2>/dev/null & exec sleep 1000";
    let task = limited(&site, script, |confinement| confinement.processes_max = 40);
    let (mut user, cgroup) = running(&site, &task).await;
    let counted = cgroup.join("pids.current");
    let count = || fs::read_to_string(cgroup.join("cgroup.procs")).unwrap().lines().count();
    // Without a controller the limit is that of the user, whom other tests run as too.
    let expected = if counted.exists() { 35 } else { 5 };
    until("it has as many as it gets", || count() >= expected).await;
    if counted.exists() {
        assert_eq!(number(&cgroup.join("pids.max")), 42);
        assert!(number(&counted) <= 42);
    }
    let pids: Vec<u32> =
        fs::read_to_string(cgroup.join("cgroup.procs")).unwrap().lines().map(|pid| pid.parse().unwrap()).collect();
    let id = RunId::of(&task);
    site.keepers.end(&id, "enough").unwrap();
    assert_eq!(user.end().await, End::Owner("enough".to_owned()));
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    until("its cgroup goes", || !cgroup.exists()).await;
}

#[tokio::test]
async fn a_daemon_that_a_command_has_left_ends_with_the_window() {
    if !has(&[]) {
        return;
    }
    let site = Site::new();
    let script = "mkfifo told; (env -i setsid sh -c 'trap \"\" TERM; sleep 1000 & echo $!; echo >told; wait' &); read x <told; echo up; trap '' TERM; while :; do sleep 0.1; done";
    let task = Task { grace: Duration::from_secs(1), ..site.task(&["sh", "-c", script]) };
    let (mut user, cgroup) = running(&site, &task).await;
    let said = String::from_utf8_lossy(&user.said[0]).into_owned();
    let daemon: u32 = said.lines().next().unwrap().parse().unwrap();
    assert!(is_alive(daemon));
    site.keepers.set_deadline(&RunId::of(&task), now() + Span(3)).unwrap();
    assert_eq!(user.end().await, End::WindowEnded);
    assert!(!is_alive(daemon));
    until("its cgroup goes", || !cgroup.exists()).await;
}

#[tokio::test]
async fn what_a_keeper_that_is_killed_leaves_ends_when_the_node_starts() {
    if !has(&[]) {
        return;
    }
    let site = Site::new();
    let task = site.task(&["sh", "-c", "env -i setsid sleep 1000 & echo $!; echo up; exec sleep 1000"]);
    let (user, cgroup) = running(&site, &task).await;
    let left: u32 = String::from_utf8_lossy(&user.said[0]).lines().next().unwrap().parse().unwrap();
    kill(site.pid_in("lock"), Signal::SIGKILL).unwrap();
    until("the command ends with its keeper", || !is_alive(user.pid.unwrap())).await;
    assert!(is_alive(left), "nothing else ends it: it has not even the variables of the run");
    // The node need not start anew for that.
    site.keepers.end_rest(&RunId::of(&task));
    assert!(!is_alive(left) && !cgroup.exists());
    let node = Site::open(site.directory.path());
    assert_eq!(node.list().unwrap()[0].state, RunState::Ended(End::Lost));
}

#[tokio::test]
async fn a_keeper_is_in_no_cgroup_of_a_command_or_of_its_node() {
    if !has(&[]) {
        return;
    }
    let site = Site::new();
    let (_user, cgroup) = running(&site, &site.task(&["sh", "-c", "echo up; exec sleep 1000"])).await;
    let keeper = site.pid_in("lock").to_string();
    let is_in = |place: &Path| fs::read_to_string(place.join("cgroup.procs")).unwrap().lines().any(|pid| pid == keeper);
    assert!(is_in(&cgroups().unwrap().join("keepers")) && !is_in(&cgroup));
}

/// Runs these tests where all controllers are.
#[test]
fn a_machine_with_all_controllers_passes() {
    let enabled = cgroups().map(|place| fs::read_to_string(place.join("cgroup.subtree_control")).unwrap());
    if enabled.is_some_and(|enabled| enabled.contains("cpu") && enabled.contains("memory") && enabled.contains("pids"))
    {
        return;
    }
    passes_in_a_machine(&[]);
}
