//! Seats that reach each other at loopback addresses, and the examples of the documentation that rest on that or on one seat at a time.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use end_to_end::{
    Ended, Node, binary, hosts, run,
    skip::{missing, skip},
    wait_until,
};

use super::{
    membership::{Person, founded_with, invite},
    run_on_seats::{detached, kolo_run, runner, shared, sorted, two},
    shares::end_all,
};

/// Four hosts at three sites, the second of which is known by nobody but through the first.
fn three() -> [Node; 3] {
    let first = Node::start("alpha", &hosts("a", 1), runner());
    let second = Node::joining("beta", &hosts("b", 2), &first, runner());
    let third = Node::joining("gamma", &hosts("c", 1), &first, runner());
    [&first, &second, &third].iter().for_each(|node| node.wait_until_it_knows(4));
    [first, second, third]
}

/// An example of the documentation, as its reader runs it.
pub(super) fn example(node: &Node, name: &str, directory: &Path) -> Ended {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples").join(name).canonicalize().unwrap();
    let program = binary("kolo");
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let mut example = Command::new(script);
    example.current_dir(directory).env("PATH", path).env("KOLO_API", node.address());
    run(example.env("KOLO_TOKEN_FILE", node.data().join("api.token")).stdin(Stdio::null()))
}

fn lacks(tools: &[&str]) -> bool {
    let missing = missing(tools);
    if !missing.is_empty() {
        skip(&format!("this machine has no {}", missing.join(", ")));
    }
    !missing.is_empty()
}

#[test]
fn the_all_reduce_of_the_documentation_sums_over_four_seats_at_three_sites() {
    if lacks(&["python3"]) {
        return;
    }
    let directory = shared();
    let [first, _second, _third] = three();
    let ended = example(&first, "all-reduce.sh", directory.path());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let expected: Vec<String> = (0..4).map(|rank| format!("[{rank}] the sum of place 999 is 9990.0")).collect();
    assert_eq!(sorted(&ended.out), expected, "{ended:?}");
}

#[test]
fn gnu_parallel_runs_over_the_seats_as_in_the_documentation() {
    if lacks(&["parallel"]) {
        return;
    }
    let directory = shared();
    let [first, second, _third] = three();
    let ended = example(&first, "parallel.sh", directory.path());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let expected: String = (1..=20).map(|number| format!("{number} {}\n", number * number)).collect();
    assert!(ended.out.starts_with(&expected), "{ended:?}");
    wait_until("the hosts to be free", || second.bookings().len(), |count| *count == 0);
}

/// What the seat of rank 0 says to everybody who connects to port 4000 of its own address, until it is ended.
const SAYS_ALOUD: &str = r#"import os, socket
listener = socket.create_server((os.environ["KOLO_HOSTS"].split(",")[0], 4000))
print("listens", flush=True)
while True:
    stream, _ = listener.accept()
    stream.sendall(stream.recv(100) + b" heard")
    stream.close()
"#;

/// Says something to port 4000 of the address that it is given, and prints the answer; fails when it is cut off.
const ASKS: &str = r#"import socket, sys
stream = socket.create_connection((sys.argv[1], 4000))
stream.sendall(b"hello")
stream.shutdown(socket.SHUT_WR)
print(stream.makefile().read(), flush=True)
"#;

/// The addresses of the seats, by rank, as the seat of this rank has said them from its variable and its file.
fn hosts_of(out: &str, rank: u32) -> Vec<String> {
    let head = format!("[{rank}] hosts ");
    let line = out.lines().find_map(|line| line.strip_prefix(&head)).unwrap_or_else(|| panic!("{rank}: {out}"));
    let (variable, file) = line.split_once(' ').unwrap();
    assert_eq!(format!("{variable},"), file, "{out}");
    variable.split(',').map(str::to_owned).collect()
}

/// A closed site where bob runs this on two seats that reach each other at port 4000, and eve may run something beside him; none where the
/// machine gives runs no cgroups.
struct Neighbours {
    site: Node,
    bob: Person,
    eve: Person,
    id: String,
}

impl Neighbours {
    fn with(script: &str) -> Option<Neighbours> {
        // With an id for each seat, eve would be a stranger to the machine before anybody looked at cgroups.
        let site = founded_with("alpha", &hosts("a", 3), &[runner(), &["--runner-uids", "off"]].concat());
        if site.log().contains("the ports of a run (--port) are open to all commands") {
            skip("no cgroups can be made here");
            return None;
        }
        site.wait_until_it_knows(3);
        let [bob, eve] = ["bob", "eve"].map(|name| {
            let person = Person::new();
            person.join(&invite(&site, &["--role", "user", "--name", name]));
            person
        });
        let script = format!("echo hosts $KOLO_HOSTS $(tr '\\n' , < $KOLO_HOSTFILE); {script}");
        let order = ["run", "-N", "2", "--per-host", "cpu=1", "-t", "1h", "--port", "4000", "--detach"];
        let started = run(bob.command(&order, &site.data()).args(["--", "sh", "-c", &script]));
        assert_eq!(started.code, Some(0), "{started:?}");
        let id = started.out.trim().to_owned();
        Some(Neighbours { site, bob, eve, id })
    }

    fn bob_has_said(&self) -> String {
        run(&mut self.bob.command(&["logs", &self.id], &self.site.data())).out
    }

    /// End of a program of eve's that is given `address`.
    fn of_eve(&self, flags: &[&str], program: &str, address: &str) -> Ended {
        let order = [&["run", "-N", "1", "--per-host", "cpu=1", "-t", "1h"], flags].concat();
        let mut kolo = self.eve.command(&order, &self.site.data());
        run(kolo.args(["--", "python3", "-c", program, address]).stdin(Stdio::null()))
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        // Commands outlive their node.
        end_all(&self.site);
    }
}

#[test]
fn what_another_user_runs_beside_a_run_is_not_carried_by_its_ports() {
    if lacks(&["python3"]) {
        return;
    }
    let script = format!(
        "[ $KOLO_RANK = 1 ] || exec python3 -c '{SAYS_ALOUD}'; \
         while :; do python3 -c '{ASKS}' ${{KOLO_HOSTS%%,*}}; sleep 0.5; done"
    );
    let Some(lab) = Neighbours::with(&script) else { return };
    let heard = || lab.bob_has_said().matches("[1] hello heard").count();
    wait_until("an answer", heard, |count| *count > 0);
    let address = &hosts_of(&lab.bob_has_said(), 1)[0];
    let asked = lab.of_eve(&[], ASKS, address);
    assert!(asked.code == Some(1) && asked.err.contains("reset"), "the same user of the machine: {asked:?}");
    assert!(!asked.out.contains("heard"), "{asked:?}");
    let before = heard();
    wait_until("bob goes on", heard, |count| *count > before);
}

#[test]
fn what_another_user_lets_listen_at_the_address_of_a_seat_is_not_reached_by_its_run() {
    if lacks(&["python3"]) {
        return;
    }
    let script = format!(
        "[ $KOLO_RANK = 1 ] || exec sleep 1000; \
         while :; do python3 -c '{ASKS}' ${{KOLO_HOSTS%%,*}} || echo cut off; sleep 0.5; done"
    );
    let Some(lab) = Neighbours::with(&script) else { return };
    wait_until("the addresses", || lab.bob_has_said(), |out| out.contains("[0] hosts") && out.contains("[1] hosts"));
    let address = &hosts_of(&lab.bob_has_said(), 0)[0];
    let program =
        SAYS_ALOUD.replace("os.environ[\"KOLO_HOSTS\"].split(\",\")[0]", "sys.argv[1]").replace("os,", "sys,");
    let started = lab.of_eve(&["--detach"], &program, address);
    assert_eq!(started.code, Some(0), "{started:?}");
    let told = || lab.bob_has_said();
    let out = wait_until("word of it", told, |out| out.contains("[1] cut off") || out.contains("heard"));
    assert!(!out.contains("heard"), "{out}");
    let id = started.out.trim();
    let listens = run(&mut lab.eve.command(&["logs", id], &lab.site.data()));
    assert!(listens.out.contains("listens"), "eve got the address: {listens:?}");
}

#[test]
fn a_port_leads_only_where_the_user_has_said_and_only_for_the_commands_of_the_run() {
    if lacks(&["python3"]) {
        return;
    }
    let (first, mut second) = two();
    let script = format!(
        "echo hosts $KOLO_HOSTS $(tr '\\n' , < $KOLO_HOSTFILE); [ $KOLO_RANK = 1 ] || exec python3 -c '{SAYS_ALOUD}'; \
         while :; do python3 -c '{ASKS}' ${{KOLO_HOSTS%%,*}}; sleep 0.5; done"
    );
    let flags = ["-N", "2", "--total", "cpu=5", "-t", "1h", "--port", "0:4000", "--port", "5000"];
    let id = detached(&first, &flags, &script);
    let said = || first.kolo(&["logs", &id]).out;
    wait_until("an answer", said, |out| out.lines().any(|line| line == "[1] hello heard"));
    let out = said();
    let [at_first, at_second] = [hosts_of(&out, 0), hosts_of(&out, 1)];
    assert!(at_first.iter().chain(&at_second).all(|host| host.starts_with("127.")), "{out}");
    assert_ne!(at_first, at_second, "several seats of one machine have addresses of their own");

    // The addresses of rank 0 at the site of rank 1: one who is not the user of commands is cut off.
    let port = |host: &str, port: u16| std::net::TcpStream::connect((host, port));
    if nix::unistd::geteuid().is_root() {
        let mut stranger = port(&at_second[0], 4000).unwrap();
        let mut answer = Vec::new();
        let read = std::io::Read::read_to_end(&mut stranger, &mut answer);
        assert!(read.is_err() && answer.is_empty(), "{read:?} {answer:?}");
    }
    assert!(port(&at_first[1], 4000).is_err(), "4000 is a port of rank 0 alone");
    assert!(port(&at_first[1], 5000).is_ok(), "5000 is one of every seat");

    // A node that starts again carries on.
    second.kill();
    second.restart();
    let heard = said().matches("hello heard").count();
    wait_until("answers after the restart", || said().matches("hello heard").count(), |count| *count > heard + 1);

    // With the run everything ends.
    let _ = first.kolo_json(&["cancel", &id], 0);
    wait_until("nobody to listen", || port(&at_second[0], 4000).is_err(), |is_over| *is_over);
}

#[test]
fn ports_that_cannot_be_are_refused_and_nothing_is_kept_for_them() {
    let (first, _second) = two();
    let with = |port: &str| {
        run(&mut kolo_run(&first, &["-N", "2", "--total", "cpu=5", "-t", "1h", "--port", port], &["true"]))
    };
    for (port, expected) in
        [("80", "1024 or higher"), ("x", "is no port"), ("1:2:3", "is no port"), ("7:4000", "no seat of this rank")]
    {
        let ended = with(port);
        assert!(ended.code == Some(64) && ended.err.contains(expected), "{port}: {ended:?}");
    }
    wait_until("the hosts to be free", || first.bookings().len(), |count| *count == 0);
    assert_eq!(with("4000").code, Some(0));
}
