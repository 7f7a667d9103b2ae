//! An owner in trouble ends everything that users run, and nothing starts until the owner says so.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use end_to_end::{Ended, Node, hosts, run, wait_until};
use nix::{sys::signal::kill, unistd::Pid};

use super::run_on_seats::{detached, kolo_run, runner};

/// Time that a command may go on that hears no SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

#[test]
fn all_commands_end_at_one_word_and_none_starts_until_the_other_one_also_after_a_restart() {
    let mut site = Node::start("alpha", &hosts("a", 2), runner());
    site.wait_until_it_knows(2);
    let flags = ["-N", "1", "--per-host", "cpu=1", "-t", "1h"];
    let deaf = detached(&site, &flags, "trap '' TERM; echo up; while :; do sleep 0.1; done");
    let other = detached(&site, &flags, "echo here; exec sleep 1000");
    for (id, word) in [(&deaf, "up"), (&other, "here")] {
        wait_until("its word", || site.kolo(&["logs", id]).out, |out| out.contains(word));
    }
    let pids: Vec<i32> = {
        let list = site.get("/v1/local/running");
        list["running"].as_array().unwrap().iter().map(|run| run["pid"].as_i64().unwrap().try_into().unwrap()).collect()
    };
    let watching = site.command(&["attach", &deaf]).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();

    let began = Instant::now();
    let stopped = site.kolo(&["local", "stop-all", "--reason", "fire in the rack"]);
    assert_eq!(
        (stopped.code, stopped.out.starts_with("2 of users' commands were ended")),
        (Some(0), true),
        "{stopped:?}"
    );
    assert!(began.elapsed() < ENDS_WITHIN, "{:?}", began.elapsed());
    assert_eq!(pids.len(), 2);
    let are_gone = || pids.iter().all(|pid| kill(Pid::from_raw(*pid), None).is_err());
    wait_until("the processes to be gone", are_gone, |gone| *gone);
    let watched = watching.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&watched.stderr).into_owned();
    let why = "the owner has stopped all commands at this site: fire in the rack";
    assert!(watched.status.code() == Some(123) && told.contains(why), "{told}");

    let again = |site: &Node| run(kolo_run(site, &["--in", &other], &["echo", "again"]).stdin(Stdio::null()));
    let anew = |site: &Node| run(kolo_run(site, &flags, &["echo", "anew"]).stdin(Stdio::null()));
    let is_refused = |ended: &Ended| ended.code != Some(0) && ended.out.is_empty();
    let check = |site: &Node| {
        let refused = again(site);
        assert!(is_refused(&refused) && refused.err.contains(why), "{refused:?}");
        assert!(is_refused(&anew(site)), "nothing is reserved for commands");
        let listed = site.kolo(&["local", "running"]).out;
        assert!(listed.contains("stopped (kolo local resume): fire in the rack"), "{listed}");
        assert!(listed.contains("users run nothing"), "{listed}");
        let doctor = site.kolo(&["doctor", "--data-dir", site.data().to_str().unwrap()]).out;
        assert!(doctor.contains("all commands of users are stopped here: fire in the rack"), "{doctor}");
        assert_eq!(site.get(&format!("/v1/requests/{other}"))["state"], "active", "what is reserved stays");
    };
    check(&site);
    let logs = site.kolo(&["logs", &other]);
    assert!(logs.out.contains("here"), "what was said can be fetched: {logs:?}");
    site.kill();
    site.restart();
    check(&site);

    let resumed = site.kolo(&["local", "resume"]);
    assert_eq!((resumed.code, &*resumed.out), (Some(0), "users may run commands on this site again\n"), "{resumed:?}");
    let ended = again(&site);
    assert_eq!((ended.code, &*ended.out), (Some(0), "again\n"), "{ended:?}");
    let ended = wait_until("the advert", || anew(&site), |ended| ended.code == Some(0));
    assert_eq!(ended.out, "anew\n");
    let doctor = site.kolo(&["doctor", "--data-dir", site.data().to_str().unwrap()]).out;
    assert!(!doctor.contains("stopped here"), "{doctor}");
    let audit = fs::read_to_string(site.data().join("audit.jsonl")).unwrap();
    assert_eq!(audit.matches("\"what\":\"POST /v1/local/stop\"").count(), 2, "{audit}");
}
