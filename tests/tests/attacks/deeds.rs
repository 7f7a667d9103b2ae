//! What hostile tenants and a stranger do.
//!
//! Invariant: whatever computes without end has the lowest priority, since outside its user would have a machine for it; so what is seen of an
//! attack is what it makes of the node.

use std::{
    io::Read as _,
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use end_to_end::{
    Ended, Node, binary, run,
    tenants::{Person, copy_run},
    wait_until,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;

use crate::siege::{SPOOL_MIB, Siege};

/// Ports at which each seat of a run reaches each other one; the most there may be.
const PORTS: u64 = 8;
const FIRST_PORT: u64 = 20_000;
/// Most seats of a run that takes ports: two tenants fit on the hosts of the site.
const SEATS_MAX: u64 = 28;
/// Seats whose runs say more together than the disk holds.
const WRITERS: u64 = 12;
/// Bytes of output after which the disk is filling.
const FILLING_BYTES: u64 = 32 << 20;
/// Looks at output that must be the same until nobody writes any more.
const SAME_LOOKS: u32 = 5;
/// Runs that an account has when its places are taken.
const RUNS_OF_ACCOUNT_MAX: usize = 256;
/// More connections than a node bears at its port.
const CONNECTIONS: usize = 1_100;
/// Address that the stranger comes from.
const STRANGER: &str = "127.66.1.1";

/// A command that leaves processes, says so, and goes on.
const FORKS: &str = "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; echo all of them; wait";

/// Connects to whatever listens at the ports of runs, again and again, and says so after ten times. That nothing of another run is heard there
/// is shown in `grid/peers.rs`, with commands that speak.
const DIALS: &str = r#"count=0; while :; do
    while read -r _ local _ state _; do
        [[ $state = 0A && $local = *7F:4E2? ]] || continue
        ip=$((16#${local:6:2})).$((16#${local:4:2})).$((16#${local:2:2})).$((16#${local:0:2}))
        { exec 3<>/dev/tcp/$ip/$((16#${local:9})) && count=$((count+1)); exec 3>&-; } 2>/dev/null
        [ $count != 10 ] || echo dialled
    done </proc/net/tcp
done"#;

/// Seats of a run that takes as many files for ports as one account may have here.
fn greedy_seats(siege: &Siege) -> u64 {
    let share = siege.running()["open_files_max"].as_u64().unwrap();
    (2..=SEATS_MAX).rev().find(|seats| seats * (seats - 1) * PORTS <= share).unwrap()
}

/// `kolo run` of a hostile tenant with these flags, left running.
fn left(siege: &Siege, person: &Person, flags: &[&str], command: &[&str]) -> Ended {
    let mut kolo = person.command(&[&["run", "--detach"], flags].concat(), &siege.site.data());
    run(kolo.arg("--").args(command).stdin(Stdio::null()))
}

fn id_of(started: &Ended) -> String {
    assert_eq!(started.code, Some(0), "{started:?}");
    started.out.trim().to_owned()
}

/// Each tenant takes all files for ports of runs that an account may have, and is refused more; their reservations.
pub fn take_ports(siege: &Siege) -> [String; 2] {
    let seats = greedy_seats(siege).to_string();
    let ports: Vec<String> = (FIRST_PORT..FIRST_PORT + PORTS).map(|port| format!("--port={port}")).collect();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    siege.hostile.each_ref().map(|person| {
        let flags = [&["-N", &seats, "--per-host", "cpu=1", "-t", "1h"], &ports[..]].concat();
        let id = id_of(&left(siege, person, &flags, &["sleep", "1000"]));
        let again = left(siege, person, &[&["--in", &id], &ports[..]].concat(), &["sleep", "1000"]);
        assert!(again.code != Some(0) && again.err.contains("your account has"), "{again:?}");
        id
    })
}

/// Connections to the port of the API that say nothing.
pub fn idle_connections(site: &Node) -> Vec<TcpStream> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let address = site.address();
    (0..CONNECTIONS).map_while(|_| TcpStream::connect(&address).ok()).collect()
}

/// Leaves a command of a tenant running on a seat of its own; its reservation.
fn start(siege: &Siege, person: &Person, command: &[&str]) -> String {
    id_of(&left(siege, person, &["-N", "1", "--per-host", "cpu=1", "-t", "1h"], command))
}

/// Each tenant has a run with many processes; their reservations.
pub fn fork(siege: &Siege) -> [String; 2] {
    siege.hostile.each_ref().map(|person| {
        let id = start(siege, person, &["sh", "-c", FORKS]);
        let said = || person.kolo(&["logs", &id], &siege.site.data()).out;
        wait_until("the processes", said, |said| said.contains("all of them"));
        id
    })
}

/// Both tenants say more than the disk holds, until nobody can say more.
pub fn fill_disk(siege: &Siege, reservations: &[String; 2]) {
    let bytes = (SPOOL_MIB + 1) << 20;
    let script =
        format!("nice -n 19 head -c {bytes} /dev/zero; nice -n 19 head -c {bytes} /dev/zero >&2; exec sleep 1000");
    let seats: Vec<String> = (0..greedy_seats(siege).min(WRITERS)).map(|seat| seat.to_string()).collect();
    let said = || {
        let shown = siege.running();
        let accounts = shown["accounts"].as_array().unwrap().iter();
        accounts.map(|account| account["output_bytes"].as_u64().unwrap()).sum::<u64>()
    };
    for (person, id) in siege.hostile.iter().zip(reservations) {
        // Of the second one perhaps not even the start has room.
        let _ = left(siege, person, &["--in", id, "--on", &seats.join(",")], &["sh", "-c", &script]);
        wait_until("output", said, |bytes| *bytes >= FILLING_BYTES);
    }
    let (mut last, mut same) = (0, 0);
    let looks = || {
        let now = said();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same
    };
    wait_until("the end of all output", looks, |same| *same >= SAME_LOOKS);
}

/// A tenant connects to the ports of the other one's run while something is seen.
pub fn while_dialling<T>(siege: &Siege, seen: impl FnOnce() -> T) -> T {
    let [_, eve] = &siege.hostile;
    let id = start(siege, eve, &["nice", "-n", "19", "bash", "-c", DIALS]);
    let said = || eve.kolo(&["logs", &id], &siege.site.data()).out;
    wait_until("ten connections", said, |said| said.contains("dialled"));
    let seen = seen();
    let _ = eve.told(&["cancel", &id], &siege.site.data(), 0);
    seen
}

/// Both tenants have as many runs as an account may have: copies of the runs of these reservations, in these directories.
pub fn take_places(siege: &Siege, reservations: &[String; 2]) -> [PathBuf; 2] {
    let [of_bob, of_eve] = reservations;
    [(of_bob, "bob"), (of_eve, "eve")].map(|(id, name)| copy_run(&siege.site, id, name, RUNS_OF_ACCOUNT_MAX))
}

/// A command with what processor time is left.
fn polite(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice
}

/// Ends what is done meanwhile, also when a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Both tenants call `kolo ps` again and again, by their keys, while something is seen. Each call is a line of the log of users for each of
/// their seats.
pub fn while_listing<T>(siege: &Siege, seen: impl FnOnce() -> T) -> T {
    let address = siege.site.address();
    let (over, listed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let seen = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for person in &siege.hostile {
                    let elsewhere = person.home().join("no-node");
                    // Of calls without a token many are refused.
                    let ended = run(&mut polite(&person.command(&["ps", "--api", &address], &elsewhere)));
                    listed.fetch_add(usize::from(ended.code == Some(0)), Ordering::Relaxed);
                }
            }
        });
        let _ends = Ends(&over);
        seen()
    });
    assert!(listed.into_inner() > 0, "nobody was told anything");
    seen
}

/// A peer without a credential that breaks every rule at full speed, ended when dropped.
struct Stranger(Child);

impl Stranger {
    fn of(site: &Node) -> Stranger {
        let status = site.get("/v1/status");
        let mut command = Command::new(binary("kolo-sim"));
        command.args(["attacker", "--grid", status["grid"].as_str().unwrap(), "--from", STRANGER]);
        for target in status["listen"].as_array().unwrap() {
            command.args(["--target", target.as_str().unwrap()]);
        }
        let mut command = polite(&command);
        Stranger(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// What it has done until now, when it ends.
    fn deeds(&mut self) -> Value {
        drop(self.0.stdin.take());
        let mut report = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut report).unwrap();
        serde_json::from_str(&report).unwrap()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A stranger attacks while something is seen, and becomes no site of the grid.
pub fn while_a_stranger_attacks<T>(siege: &Siege, seen: impl FnOnce() -> T) -> T {
    let mut stranger = Stranger::of(&siege.site);
    let seen = seen();
    let deeds = stranger.deeds();
    assert!(deeds["identities"].as_u64() > Some(0), "{deeds}");
    assert_eq!(siege.site.get("/v1/status")["known_sites"], 1, "{deeds}");
    seen
}
