//! The stock clients of SSH on a seat: what they run, copy and forward, and who comes in.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use end_to_end::{Ended, Node, hosts, run, skip, wait_for};
use tempfile::TempDir;

use crate::run_on_seats::runner;

/// A user with a directory of his own, and a reservation of one seat.
struct User {
    node: Node,
    home: TempDir,
    id: String,
}

/// None, where the tools are not installed.
fn user(tools: &[&str], more: &[&str]) -> Option<User> {
    let missing = skip::missing(tools);
    if !missing.is_empty() {
        skip::skip(&format!("not installed: {}", missing.join(", ")));
        return None;
    }
    let node = Node::start("alpha", &hosts("a", 1), &[runner(), more].concat());
    node.wait_until_it_knows(1);
    let id = node.kolo_json(&["submit", "-N", "1", "-t", "1h"], 0)["id"].as_str().unwrap().to_owned();
    Some(User { node, home: tempfile::tempdir().unwrap(), id })
}

impl User {
    fn kolo(&self, arguments: &[&str]) -> Command {
        let mut kolo = self.node.command(&[]);
        kolo.args(arguments).env("XDG_CONFIG_HOME", self.home.path()).stdin(Stdio::null());
        kolo
    }

    /// The file that `kolo ssh-config` prints.
    fn config(&self) -> PathBuf {
        let printed = run(&mut self.kolo(&["ssh-config", &self.id]));
        assert_eq!(printed.code, Some(0), "{printed:?}");
        end_to_end::write(self.home.path(), "config", &printed.out)
    }

    fn seat(&self) -> String {
        format!("kolo-{}-0", self.id)
    }

    /// A client of SSH with that file.
    fn client(&self, program: &str, arguments: &[&str]) -> Command {
        let mut client = Command::new(program);
        client.arg("-F").arg(self.config()).args(["-o", "LogLevel=ERROR", "-o", "BatchMode=yes"]).args(arguments);
        client.env("XDG_CONFIG_HOME", self.home.path()).stdin(Stdio::null());
        client
    }

    fn ssh(&self, arguments: &[&str]) -> Ended {
        run(&mut self.client("ssh", &[&[&self.seat()[..]][..], arguments].concat()))
    }
}

#[test]
fn a_stock_client_runs_commands_and_copies_files() {
    // The old scp wants a user with a name, which the id of a seat has not.
    let Some(user) = user(&["ssh", "scp"], &["--runner-uids", "off"]) else { return };
    let ended = user.ssh(&["echo out; echo err >&2; exit 7"]);
    assert_eq!((ended.code, ended.out.trim()), (Some(7), "out"), "{ended:?}");
    assert!(ended.err.contains("err"), "{ended:?}");
    let killed = user.ssh(&["kill -TERM $$"]);
    assert_eq!(killed.code, Some(255), "ssh's own word for a signal: {killed:?}");

    // What one session leaves the next one finds, and so does scp.
    assert_eq!(user.ssh(&["pwd > here; id -u > who; test \"$HOME\" = \"$(cat here)\""]).code, Some(0));
    let whole: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (from, to) = (user.home.path().join("from"), user.home.path().join("to"));
    fs::write(&from, &whole).unwrap();
    let seat = user.seat();
    let up = run(&mut user.client("scp", &["-p", from.to_str().unwrap(), &format!("{seat}:copy")]));
    assert_eq!(up.code, Some(0), "{up:?}");
    let down = run(&mut user.client("scp", &[&format!("{seat}:copy"), to.to_str().unwrap()]));
    assert_eq!(down.code, Some(0), "{down:?}");
    assert!(fs::read(&to).unwrap() == whole);
    let old = run(&mut user.client("scp", &["-O", &format!("{seat}:copy"), to.to_str().unwrap()]));
    assert_eq!(old.code, Some(0), "{old:?}");
    assert!(user.ssh(&["ls -l copy; wc -c < copy"]).out.contains("3000000"));
    let missing = run(&mut user.client("scp", &[&format!("{seat}:no-such-file"), to.to_str().unwrap()]));
    assert!(missing.code != Some(0) && missing.err.to_lowercase().contains("no such file"), "{missing:?}");

    // Both ways at once, far more than any window, and nobody waits for the other.
    let mut both = user.client("ssh", &[&seat, "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = both.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || {
        for _ in 0..10 {
            stdin.write_all(&whole).unwrap();
        }
    });
    let mut said = Vec::new();
    both.stdout.take().unwrap().read_to_end(&mut said).unwrap();
    feeding.join().unwrap();
    assert_eq!((both.wait().unwrap().code(), said.len()), (Some(0), 30_000_000));
    if geteuid_is_root() {
        assert_ne!(user.ssh(&["id -u"]).out.trim(), "0");
    }
}

fn geteuid_is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The directories of runs of the site.
fn sessions(node: &Node) -> Vec<PathBuf> {
    let seats = fs::read_dir(node.data().join("runs")).unwrap().map(|seat| seat.unwrap().path());
    let runs = seats.filter_map(|seat| fs::read_dir(seat).ok()).flatten().map(|run| run.unwrap().path());
    runs.filter(|run| run.join("task").exists()).collect()
}

#[test]
fn only_the_key_that_the_order_names_comes_in_and_nothing_is_left() {
    let Some(user) = user(&["ssh", "ssh-keygen"], &[]) else { return };
    assert_eq!(user.ssh(&["true"]).code, Some(0));
    wait_for("the session to go", || {
        let left = sessions(&user.node);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    // A key of the user's own, named, comes in; another one does not, whoever calls the proxy.
    let keys = ["named", "other"].map(|name| {
        let file = user.home.path().join(name);
        let made = run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file));
        assert_eq!(made.code, Some(0), "{made:?}");
        file.display().to_string()
    });
    let named = run(&mut user.kolo(&["ssh", &format!("{}/0", user.id), "--identity", &keys[0], "--", "echo in"]));
    assert_eq!((named.code, named.out.trim()), (Some(0), "in"), "{named:?}");
    let config = fs::read_to_string(user.config()).unwrap();
    let (config, own) = (config.replace("kolo/ssh.key", "other"), config);
    assert!(config != own && Path::new(&keys[1]).exists());
    end_to_end::write(user.home.path(), "wrong", &config);
    let mut wrong = Command::new("ssh");
    wrong.arg("-F").arg(user.home.path().join("wrong")).args(["-o", "BatchMode=yes", &user.seat(), "true"]);
    let wrong = run(wrong.env("XDG_CONFIG_HOME", user.home.path()).stdin(Stdio::null()));
    assert!(wrong.code == Some(255) && wrong.err.contains("Permission denied (publickey)"), "{wrong:?}");

    let bad = run(&mut user.kolo(&["ssh-proxy", &format!("{}/x", user.id)]));
    assert!(bad.code == Some(64) && bad.err.contains("is no seat"), "{bad:?}");
    let bad = run(&mut user.kolo(&["ssh-proxy", &user.id, "--identity", "/no/such/key"]));
    assert!(bad.code == Some(64) && bad.err.contains("/no/such/key.pub"), "{bad:?}");
    let secret = fs::metadata(user.home.path().join("kolo/ssh.key")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&secret.permissions()) & 0o777, 0o600);
}

#[test]
fn a_session_outlives_its_node_and_ends_with_the_window_and_with_its_client() {
    let Some(mut user) = user(&["ssh"], &[]) else { return };
    let mut talking = user.client("ssh", &[&user.seat(), "echo ready; read line; echo got $line; exec sleep 1000"]);
    let mut talking = talking.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(talking.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let address = user.node.address();
    user.node.change("--api", &address);
    user.node.kill();
    user.node.restart();
    writeln!(talking.stdin.as_mut().unwrap(), "again").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "got again");
    let _ = user.node.kolo_json(&["cancel", &user.id], 0);
    assert_ne!(talking.wait().unwrap().code(), Some(0), "it ends with its seat");

    // A client that is killed takes its command with it.
    let id = user.node.kolo_json(&["submit", "-N", "1", "-t", "1h"], 0)["id"].as_str().unwrap().to_owned();
    let user = User { id, ..user };
    let mut talking =
        user.client("ssh", &[&user.seat(), "echo $$; exec sleep 1000"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(talking.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(!sessions(&user.node).is_empty());
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(talking.id()).unwrap()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    let _ = talking.wait().unwrap();
    wait_for("the session to go", || {
        let left = sessions(&user.node);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

/// The most memory that the server of the only session has had, in MiB.
fn peak_mib(node: &Node) -> u64 {
    let started = fs::read_to_string(sessions(node)[0].join("started")).unwrap();
    let pid = serde_json::from_str::<serde_json::Value>(&started).unwrap()["pid"].as_u64().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn a_client_that_takes_nothing_and_a_command_that_takes_nothing_fill_no_memory() {
    let Some(user) = user(&["ssh"], &["--runner-spool-mib", "8"]) else { return };
    let script = "yes & sleep 1000";
    let mut slow = user.client("ssh", &[&user.seat(), script]);
    let mut slow = slow.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = slow.stdout.take().unwrap();
    let mut piece = [0; 1000];
    stdout.read_exact(&mut piece).unwrap();
    // 200 MB go in, which the command does not read; what it says waits for a client that does not read either.
    let mut stdin = slow.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || {
        let piece = vec![b'x'; 1 << 20];
        (0..200).all(|_| stdin.write_all(&piece).is_ok())
    });
    wait_for("the input to be taken", || if feeding.is_finished() { Ok(()) } else { Err(String::new()) });
    assert!(feeding.join().unwrap());
    let peak = peak_mib(&user.node);
    eprintln!("the server has used at most {peak} MiB");
    assert!(peak < 100, "{peak} MiB");
    drop(stdout);
    slow.kill().unwrap();
    slow.wait().unwrap();
}

#[test]
fn a_connection_from_the_seat_and_a_terminal() {
    let Some(user) = user(&["ssh"], &[]) else { return };
    let service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = service.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&[b"got ", &all[..]].concat()).unwrap();
    });
    // Without a sandbox the seat has the machine's network.
    if geteuid_is_root() {
        let mut tunnel = user.client("ssh", &["-W", &format!("127.0.0.1:{port}"), &user.seat()]);
        let mut tunnel = tunnel.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        tunnel.stdin.take().unwrap().write_all(b"word").unwrap();
        let ended = tunnel.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stdout), "got word");
        serving.join().unwrap();
    }
    let shown = user.ssh(&["-tt", "stty size; test -t 0 && echo a terminal"]);
    assert!(shown.out.contains("a terminal"), "{shown:?}");
}

#[test]
fn a_key_of_ssh_is_a_users_key_at_any_node_without_a_token() {
    let missing = skip::missing(&["ssh-keygen"]);
    if !missing.is_empty() {
        return skip::skip("not installed: ssh-keygen");
    }
    let node = Node::start("alpha", &hosts("a", 1), runner());
    node.wait_until_it_knows(1);
    let home = tempfile::tempdir().unwrap();
    let key = |name: &str, more: &[&str]| {
        let file = home.path().join(name);
        let made = run(Command::new("ssh-keygen").args(["-q", "-N", ""]).args(more).arg("-f").arg(&file));
        assert_eq!(made.code, Some(0), "{made:?}");
        file.display().to_string()
    };
    // No token, and no data directory of a node.
    let kolo = |arguments: &[&str]| {
        let mut kolo = Command::new(end_to_end::binary("kolo"));
        kolo.args(["--api", &node.address(), "--data-dir"]).arg(home.path().join("mine")).args(arguments);
        run(kolo.env("XDG_CONFIG_HOME", home.path()).env("TZ", "UTC").stdin(Stdio::null()))
    };
    let nobody = kolo(&["whoami"]);
    assert!(nobody.code == Some(1) && nobody.err.contains("kolo login"), "{nobody:?}");
    let (own, other) = (key("own", &["-t", "ed25519"]), key("other", &["-t", "ed25519"]));
    let taken = kolo(&["login", "--ssh-key", &own]);
    let public = fs::read_to_string(format!("{own}.pub")).unwrap();
    let public = public.rsplit_once(' ').unwrap().0;
    assert!(taken.code == Some(0) && taken.out.contains(public), "{taken:?}");
    assert_eq!(kolo(&["login", "--ssh-key", &own]).code, Some(0), "again is nothing new");
    let refused = kolo(&["login", "--ssh-key", &other]);
    assert!(refused.code == Some(1) && refused.err.contains("exists already"), "{refused:?}");
    let locked = home.path().join("locked");
    fs::copy(&other, &locked).unwrap();
    let locked = locked.display().to_string();
    assert_eq!(
        run(Command::new("ssh-keygen").args(["-q", "-p", "-P", "", "-N", "secret", "-f", &locked])).code,
        Some(0)
    );
    let refused = kolo(&["login", "--ssh-key", &locked]);
    assert!(refused.code != Some(0) && refused.err.contains("passphrase"), "{refused:?}");

    let who = kolo(&["whoami", "--output", "json"]).json();
    assert_eq!((&who["ssh_key"], &who["node"]["access"]), (&public.into(), &"key".into()), "{who}");
    let ran = kolo(&["run", "-N", "1", "-t", "1h", "--", "sh", "-c", "echo in"]);
    assert_eq!((ran.code, ran.out.trim()), (Some(0), "in"), "{ran:?}");
    let audit = fs::read_to_string(node.data().join("audit-users.jsonl")).unwrap();
    assert!(audit.contains(&format!("user {}", who["key"].as_str().unwrap())), "{audit}");
}
