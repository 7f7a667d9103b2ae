//! The processes that come from one process, as the machine lists them.
//!
//! A keeper adopts what its command leaves behind ([`adopt_orphans`]), so that nothing the command has started gets out of its reach,
//! whatever group or session it puts itself into. Invariant: only descendants of this very process are touched, and what bears
//! the mark of a run.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        prctl::set_child_subreaper,
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, waitid, waitpid},
    },
    unistd::Pid,
};

/// How long marked processes are killed. Only one that the system itself holds survives that.
const MARKED_MAX: Duration = Duration::from_secs(5);
/// Processes that are taken off the list at once; then the rest of a keeper has its turn.
const REAPS_MAX: usize = 256;
const MARKED_PAUSE: Duration = Duration::from_millis(1);

/// One process, as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listed {
    parent: i32,
    is_zombie: bool,
    threads: u64,
    started_ticks: u64,
}

/// From now on orphans among the descendants of this process become its children.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(true)?)
}

/// When a process started, in ticks since the machine did; with its number it names the process for ever. None when it is gone.
pub fn started_ticks(pid: u32) -> Option<u64> {
    let listed = read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    (!listed.is_zombie).then_some(listed.started_ticks)
}

/// Sends SIGKILL to every descendant of this process, and takes those off the list that have ended, but for `leader`, whom
/// somebody else waits for. How many are still there; a zombie is not.
pub fn kill_descendants(leader: u32) -> usize {
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    let all = list();
    let mut left = 0;
    for (&pid, listed) in &all {
        if generations_below(&all, pid, me).is_none() {
            continue;
        }
        if !listed.is_zombie {
            left += 1;
            // An error says that it has just ended.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        } else if listed.parent == me && u32::try_from(pid) != Ok(leader) {
            let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
        }
    }
    left
}

/// Takes adopted processes that have ended off the list, until there are none or `leader` is one that has: somebody else waits for that
/// one, and whoever comes after its end is killed with all. It costs nothing where nobody has ended, however many processes there are. At
/// most [`REAPS_MAX`] at once; true when there may be more, since a command may make them as fast as they go.
pub fn reap_orphans(leader: u32) -> bool {
    let (ended, look) = (WaitPidFlag::WEXITED, WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT);
    for _ in 0..REAPS_MAX {
        let Ok(Some(pid)) = waitid(Id::All, ended | look).map(|status| status.pid()) else { return false };
        if u32::try_from(pid.as_raw()) == Ok(leader) || waitpid(pid, Some(WaitPidFlag::WNOHANG)).is_err() {
            return false;
        }
    }
    true
}

/// Sends SIGKILL to every process with this variable in its environment, but for this one, until none is seen any more; whether that is so.
pub fn kill_marked(name: &str, value: &str) -> bool {
    let mark = format!("{name}={value}").into_bytes();
    let is_marked = |pid: i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark)
    };
    let me = i32::try_from(std::process::id()).ok();
    let (began, mut looks_in_vain) = (Instant::now(), 0);
    // Twice in vain: one that becomes another program has no environment for a moment, and what it starts has come since the last look.
    while looks_in_vain < 2 {
        if began.elapsed() > MARKED_MAX {
            return false;
        }
        looks_in_vain += 1;
        for pid in list().into_keys().filter(|pid| Some(*pid) != me && is_marked(*pid)) {
            looks_in_vain = 0;
            // An error says that it has just ended.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        thread::sleep(MARKED_PAUSE);
    }
    true
}

/// Sends `signal` to every descendant of `leader`, itself one of this process, that is at least so many generations below it.
pub fn signal_below(leader: u32, generations: usize, signal: Signal) {
    let leader = i32::try_from(leader).unwrap_or(0);
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    let all = list();
    if generations_below(&all, leader, me).is_none() {
        return;
    }
    for &pid in
        all.keys().filter(|pid| generations_below(&all, **pid, leader).is_some_and(|below| below >= generations))
    {
        // An error says that it has just ended.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// How many processes and threads a user of this machine has.
pub fn threads_of(uid: u32) -> u64 {
    let is_his = |pid: &i32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|found| found.uid() == uid);
    list().into_iter().filter(|(pid, _)| is_his(pid)).map(|(_, listed)| listed.threads).sum()
}

/// How far `pid` is below `ancestor`; none when it does not come from it.
fn generations_below(all: &BTreeMap<i32, Listed>, pid: i32, ancestor: i32) -> Option<usize> {
    let mut parent = all.get(&pid)?.parent;
    // No line of parents is longer than the list.
    for generations in 1..=all.len() {
        if parent == ancestor {
            return Some(generations);
        }
        parent = all.get(&parent)?.parent;
    }
    None
}

fn list() -> BTreeMap<i32, Listed> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))).collect()
}

/// Reads a line `pid (name) state parent ...`; the name may hold anything.
fn read(stat: &str) -> Option<Listed> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // The 20th and the 22nd field; the parent is the fourth.
    let threads = fields.nth(15)?.parse().ok()?;
    let started_ticks = fields.nth(1)?.parse().ok()?;
    // The first thread may have ended while another one still has the files and locks of all.
    let is_zombie = matches!(state, "Z" | "X") && threads <= 1;
    Some(Listed { parent, is_zombie, threads, started_ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_program_is_called() {
        let line = "42 (a) b) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 5 0 9001 2 3";
        assert_eq!(read(line), Some(Listed { parent: 7, is_zombie: false, threads: 5, started_ticks: 9001 }));
        assert!(!read(&line.replace(" S ", " Z ")).unwrap().is_zombie, "other threads go on");
        assert!(read(&line.replace(" S ", " Z ").replace(" 5 0 ", " 1 0 ")).unwrap().is_zombie);
        assert_eq!(read("42 (a"), None);
        let me = std::process::id();
        assert!(started_ticks(me).is_some() && started_ticks(me) == started_ticks(me));
    }

    #[test]
    fn marked_processes_are_gone_with_what_they_start_meanwhile() {
        let value = std::process::id().to_string();
        let mark = format!("KOLO_MARK={value}");
        let marked = || {
            let has = |pid: &i32| {
                fs::read(format!("/proc/{pid}/environ")).is_ok_and(|all| String::from_utf8_lossy(&all).contains(&mark))
            };
            list().keys().filter(|pid| has(pid)).count()
        };
        // They start others between any look at the list and the end of those on it.
        let one = "i=0; while [ $i -lt 300 ]; do (sleep 20 &); i=$((i+1)); done";
        let script = format!("for one in 1 2 3 4 5 6 7 8; do ({one}) & done; wait");
        let mut started =
            std::process::Command::new("sh").args(["-c", &script]).env("KOLO_MARK", &value).spawn().unwrap();
        let began = Instant::now();
        while marked() < 30 {
            assert!(began.elapsed() < Duration::from_secs(30), "there are too few");
        }
        assert!(kill_marked("KOLO_MARK", &value));
        started.wait().unwrap();
        assert_eq!(marked(), 0);
    }

    #[test]
    fn descent_goes_through_every_generation_and_stops_at_a_circle() {
        let of = |parents: &[(i32, i32)]| {
            let listed = |parent| Listed { parent, is_zombie: false, threads: 1, started_ticks: 0 };
            parents.iter().map(|&(pid, parent)| (pid, listed(parent))).collect::<BTreeMap<_, _>>()
        };
        let all = of(&[(2, 1), (3, 2), (4, 3), (5, 1), (8, 9), (9, 8)]);
        let below = [2, 3, 4, 5, 8].map(|pid| generations_below(&all, pid, 2));
        assert_eq!(below, [None, Some(1), Some(2), None, None]);
    }
}
