//! The owner's hook, run by real nodes that are killed in the middle, and the hook that is shipped, on real control groups.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use end_to_end::{Node, hosts, run, skip, wait_until};
use serde_json::Value;
use tempfile::TempDir;

/// A hook that writes down what it is told, and hangs in an event while there is a file of its name in `hold`.
struct Recorder {
    directory: TempDir,
}

impl Recorder {
    fn new() -> Recorder {
        let recorder = Recorder { directory: tempfile::tempdir().unwrap() };
        fs::create_dir(recorder.path("hold")).unwrap();
        let script = format!(
            "#!/bin/sh\ncd {}\ncat > \"$KOLO_EVENT.json\"\nenv > \"$KOLO_EVENT.env\"\n\
             echo \"$KOLO_EVENT $KOLO_RUN\" >> \"begun.$KOLO_BOOKING\"\n\
             while [ -e \"hold/$KOLO_EVENT\" ]; do sleep 0.05; done\n\
             echo \"$KOLO_EVENT $KOLO_RUN\" >> \"done.$KOLO_BOOKING\"\n",
            recorder.directory.path().display()
        );
        let hook = recorder.path("hook");
        fs::write(&hook, script).unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        recorder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn hold(&self, event: &str) {
        fs::write(self.path("hold").join(event), "").unwrap();
    }

    fn go_on(&self, event: &str) {
        fs::remove_file(self.path("hold").join(event)).unwrap();
    }

    /// A site with so many hosts.
    fn node(&self, count: usize) -> Node {
        let hook = self.path("hook").display().to_string();
        let arguments = ["--activation-hook", &hook, "--contact", "ssh {user}@{host}"];
        Node::start("alpha", &hosts("a", count), &arguments)
    }

    /// What the hook was told of an event last.
    fn told(&self, event: &str, variable: &str) -> String {
        let text = fs::read_to_string(self.path(&format!("{event}.env"))).unwrap();
        let found = text.lines().find_map(|line| line.strip_prefix(variable)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("no {variable}: {text}")).to_owned()
    }

    /// How many bookings it was told of.
    fn bookings(&self) -> usize {
        let names = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("begun.")).count()
    }

    /// What was written down of the events, in order.
    fn lines(&self, kind: &str, request: &str) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        let is_of = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with(&format!("{kind}.{request}-"))
        };
        let text = entries.filter(is_of).map(|path| fs::read_to_string(path).unwrap()).collect::<String>();
        text.lines().map(str::to_owned).collect()
    }

    fn wait_for(&self, kind: &str, request: &str, expected: &[&str]) {
        let what = format!("{expected:?} of {request} in {kind}");
        wait_until(&what, || self.lines(kind, request), |lines| lines == expected);
    }

    fn wait_for_end(&self, what: &str, request: &str, holds: impl Fn(&Vec<String>) -> bool) {
        wait_until(what, || self.lines("done", request), holds);
    }
}

fn submit(node: &Node, duration: &str, more: &[&str]) -> (String, Value) {
    let asked = ["submit", "-N", "1", "--per-host", "cpu=1.5", "--per-host", "memory=512MiB", "-t", duration];
    let view = node.kolo_json(&[&asked, more].concat(), 0);
    (view["id"].as_str().unwrap().to_owned(), view)
}

/// Waits until the ends of so many successful runs for `event` since the node's start are on its disk.
fn wait_until_counted(node: &Node, event: &str, count: usize) {
    let expected = format!("kolo_activation_runs_total{{event=\"{event}\",outcome=\"done\"}} {count}");
    let has_counted = |metrics: &String| metrics.lines().any(|line| line == expected);
    wait_until(&expected, || node.metrics(), has_counted);
}

#[test]
fn each_event_is_told_once_whatever_becomes_of_the_node() {
    let recorder = Recorder::new();
    recorder.hold("start");
    let mut node = recorder.node(1);
    let (id, view) = submit(&node, "1h", &["--id", "my $(job)"]);
    let host = &view["reservation"]["hosts"][0];
    assert!(host["contact"].as_str().unwrap().ends_with("@a1"), "{view}");
    recorder.wait_for("begun", &id, &["reserved 1", "start 1"]);

    // The node is killed in the middle of the run, which goes on and is never heard of again.
    node.kill();
    node.restart();
    recorder.wait_for("begun", &id, &["reserved 1", "start 1", "start 2"]);
    recorder.go_on("start");
    recorder.wait_for_end("both runs to end", &id, |lines| lines.len() == 3);
    wait_until_counted(&node, "start", 1);

    // Nothing that is over is told again.
    node.kill();
    node.restart();
    let cancelled = node.kolo_json(&["cancel", &id], 0);
    assert_eq!(cancelled["state"], "cancelled");
    recorder.wait_for("begun", &id, &["reserved 1", "start 1", "start 2", "cancelled 1"]);

    let text = fs::read_to_string(recorder.path("start.env")).unwrap();
    let start = &view["reservation"]["start"];
    for line in [
        "KOLO_EVENT=start".to_owned(),
        format!("KOLO_REQUEST={id}"),
        "KOLO_LABEL=my $(job)".to_owned(),
        format!("KOLO_START={start}"),
        "KOLO_DURATION_S=3600".to_owned(),
        "KOLO_HOSTS=a1".to_owned(),
        "KOLO_HOST_0_CPU_MILLICORES=1500".to_owned(),
        "KOLO_HOST_0_MEMORY_MIB=512".to_owned(),
        "KOLO_SITE=alpha".to_owned(),
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
    assert!(!text.contains("HOME="), "of the node's environment only PATH: {text}");
    let document: Value = serde_json::from_slice(&fs::read(recorder.path("start.json")).unwrap()).unwrap();
    assert_eq!((&document["schema"], &document["event"]), (&"kolo-activation/1".into(), &"start".into()));
    assert_eq!(document["hosts"][0]["amounts"]["cpu_millicores"], 1500);
    let log = fs::read_to_string(node.data().join("activation.log")).unwrap();
    assert!(log.contains("reserved of") && log.contains("run 2: done"), "{log}");

    // The owner's own work is nobody's reservation.
    let own = ["local", "add", "--host", "a1", "--from", "now", "--for", "1h", "--cpu", "1"];
    assert_eq!(node.kolo(&own).code, Some(0));
    // One that ends by itself is told its end, and is forgotten.
    let (short, _) = submit(&node, "6s", &[]);
    recorder.wait_for("begun", &short, &["reserved 1", "start 1", "end 1"]);
    assert_eq!(recorder.bookings(), 2, "one list of events a booking");
}

#[test]
fn what_lengthens_a_reservation_changes_it_until_it_is_taken_back() {
    let recorder = Recorder::new();
    let mut node = recorder.node(1);
    let (id, view) = submit(&node, "1h", &[]);
    recorder.wait_for("done", &id, &["reserved 1", "start 1"]);
    let end = view["reservation"]["end"].as_i64().unwrap();

    recorder.hold("changed");
    let extended = node.kolo_json(&["extend", &id, "--by", "30min"], 0);
    let mut events = vec!["reserved 1", "start 1", "changed 1"];
    recorder.wait_for("begun", &id, &events);
    // The node is killed in the middle of the run.
    node.kill();
    node.restart();
    events.push("changed 2");
    recorder.wait_for("begun", &id, &events);
    recorder.go_on("changed");
    assert_eq!(recorder.told("changed", "KOLO_END"), (end + 1800).to_string());
    assert_eq!(recorder.told("changed", "KOLO_DURATION_S"), "5400");
    assert_eq!(recorder.told("changed", "KOLO_REQUEST"), id);
    let document: Value = serde_json::from_slice(&fs::read(recorder.path("changed.json")).unwrap()).unwrap();
    assert_eq!((&document["event"], &document["end"]), (&"changed".into(), &(end + 1800).into()));
    recorder.wait_for_end("the runs to end", &id, |lines| lines.len() == events.len());

    // Once more, over a restart that finds nothing to tell; then the first one goes, and with it what is behind it.
    let again = node.kolo_json(&["extend", &id, "--by", "30min"], 0);
    events.push("changed 1");
    recorder.wait_for("begun", &id, &events);
    assert_eq!(recorder.told("changed", "KOLO_END"), (end + 3600).to_string());
    wait_until_counted(&node, "changed", 2);
    node.kill();
    node.restart();
    let last = again["added"][0]["id"].as_str().unwrap();
    let _ = node.kolo_json(&["cancel", last], 0);
    events.push("changed 1");
    recorder.wait_for("begun", &id, &events);
    assert_eq!(recorder.told("changed", "KOLO_END"), (end + 1800).to_string());
    let first = extended["added"][0]["id"].as_str().unwrap();
    let _ = node.kolo_json(&["cancel", first], 0);
    events.push("changed 1");
    recorder.wait_for("begun", &id, &events);
    assert_eq!(recorder.told("changed", "KOLO_END"), end.to_string());

    // Taken back as a whole.
    let _ = node.kolo_json(&["extend", &id, "--by", "30min"], 0);
    events.push("changed 1");
    recorder.wait_for("begun", &id, &events);
    let _ = node.kolo_json(&["cancel", &id], 0);
    recorder.wait_for_end("the last event", &id, |lines| lines.last().is_some_and(|last| last == "cancelled 1"));
    assert_eq!(recorder.bookings(), 1, "what lengthens it has no events of its own");
}

#[test]
fn a_longer_reservation_ends_once_and_a_smaller_one_is_told_so() {
    let recorder = Recorder::new();
    let mut node = recorder.node(2);
    // Long enough to be lengthened on a busy machine before it is over.
    let (short, view) = submit(&node, "15s", &[]);
    recorder.wait_for("done", &short, &["reserved 1", "start 1"]);
    let _ = node.kolo_json(&["extend", &short, "--by", "2s"], 0);
    let end = view["reservation"]["end"].as_i64().unwrap() + 2;
    recorder.wait_for("done", &short, &["reserved 1", "start 1", "changed 1"]);

    // Different amounts on the two hosts: one request for both, and the hook hears of them together.
    let asked = ["submit", "-N", "2", "--total", "cpu=5.001", "-t", "1h", "--earliest", "now+2h"];
    let view = node.kolo_json(&asked, 0);
    let id = view["id"].as_str().unwrap();
    recorder.wait_for("done", id, &["reserved 1"]);
    let extended = node.kolo_json(&["extend", id, "--by", "1h"], 0);
    assert_eq!(extended["added"].as_array().unwrap().len(), 1, "{extended}");
    recorder.wait_for("done", id, &["reserved 1", "changed 1"]);
    let later = (view["reservation"]["end"].as_i64().unwrap() + 3600).to_string();
    let told = || (recorder.told("changed", "KOLO_HOSTS"), recorder.told("changed", "KOLO_END"));
    assert_eq!(told(), ("a1,a2".to_owned(), later.clone()));

    recorder.wait_for("done", &short, &["reserved 1", "start 1", "changed 1", "end 1"]);
    assert_eq!(recorder.told("end", "KOLO_END"), end.to_string());
    assert_eq!(recorder.bookings(), 2);

    // The owner takes the second host away.
    node.kill();
    let config = node.data().with_file_name("site.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, &text[..text.rfind("[[hosts]]").unwrap()]).unwrap();
    node.restart();
    recorder.wait_for("done", id, &["reserved 1", "changed 1", "changed 1"]);
    assert_eq!(told(), ("a1".to_owned(), later));
}

#[test]
fn a_hook_that_fails_is_tried_again_and_the_doctor_tells() {
    let directory = tempfile::tempdir().unwrap();
    let hook = directory.path().join("hook");
    fs::write(&hook, "#!/bin/sh\necho cannot do $KOLO_EVENT >&2\nexit 7\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let hook = hook.display().to_string();
    let node = Node::start("alpha", &hosts("a", 1), &["--activation-hook", &hook, "--activation-tries", "1"]);
    let _ = submit(&node, "1h", &["--earliest", "now+2h"]);
    let status =
        node.wait_until("the event to be given up", "/v1/status", |status| status["failed_activations"][0].is_object());
    let failed = &status["failed_activations"][0];
    assert_eq!((&failed["event"], &failed["why"]), (&"reserved".into(), &"exit status: 7".into()));
    let log = || fs::read_to_string(node.data().join("activation.log")).unwrap();
    wait_until("the log of one run and one more", log, |log| log.matches("cannot do reserved").count() == 2);
    let doctor = node.kolo(&["doctor", "--data-dir", &node.data().display().to_string()]);
    assert!(["PROBLEM activation: ", "exit status: 7"].iter().all(|part| doctor.out.contains(part)), "{doctor:?}");
}

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("packaging/hooks/systemd-slice")
}

fn run_shipped(event: &str, cpu: &str, memory: &str) {
    let mut command = Command::new(shipped());
    command.arg("a1").envs([("KOLO_EVENT", event), ("KOLO_BOOKING", "end-to-end"), ("KOLO_HOST_COUNT", "2")]);
    command.envs([("KOLO_HOST_0", "other"), ("KOLO_HOST_0_CPU_MILLICORES", "9"), ("KOLO_HOST_1", "a1")]);
    command.envs([("KOLO_HOST_1_CPU_MILLICORES", cpu), ("KOLO_HOST_1_MEMORY_MIB", memory)]);
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(0), "{event}: {ended:?}");
}

#[test]
fn the_hooks_say_when_a_reservation_is_for_machines_of_other_names() {
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("keys");
    let on = |hook: &str, arguments: &[&str], host: &str| {
        let mut command = Command::new(shipped().with_file_name(hook));
        command.args(arguments).envs([("KOLO_EVENT", "start"), ("KOLO_BOOKING", "b"), ("KOLO_HOST_COUNT", "1")]);
        // Nothing is there in which a group could be made.
        command.envs([("KOLO_HOST_0", host), ("KOLO_CGROUP_ROOT", directory.path().to_str().unwrap())]);
        run(&mut command)
    };
    for (name, host) in [("n2", "n1"), ("n1.other.org", "n1.example.org"), ("n11", "n1"), ("n1", "n11.example.org")] {
        let elsewhere = on("systemd-slice", &[name], host);
        let said = format!("the reservation has {host}, and this machine is {name}");
        assert!(elsewhere.code == Some(0) && elsewhere.out.contains(&said), "{name} {host}: {elsewhere:?}");
    }
    let elsewhere = on("authorized-keys", &[keys.to_str().unwrap(), "n2"], "n1");
    assert!(elsewhere.code == Some(0) && elsewhere.err.contains("the reservation has n1, and this machine is n2"));
    if Path::new("/run/systemd/system").exists() {
        return skip::skip("systemd runs here, and would make a slice");
    }
    for (name, host) in [("n1", "n1"), ("n1", "n1.example.org"), ("n1.example.org", "n1")] {
        let here = on("systemd-slice", &[name], host);
        assert!(here.code == Some(1) && here.err.contains("neither systemd nor control groups"), "{name}: {here:?}");
    }
}

#[test]
fn the_hook_for_an_sshd_opens_an_account_for_the_window_and_ends_its_sessions() {
    let missing = skip::missing(&["ssh-keygen", "flock", "base64", "setsid"]);
    if !missing.is_empty() {
        return skip::skip(&format!("not installed: {}", missing.join(", ")));
    }
    let hook = shipped().with_file_name("authorized-keys");
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("keys");
    let own = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ada@desk";
    fs::write(&keys, format!("{own}\n")).unwrap();
    let on = |event: &str, host: &str, end: &str| {
        let mut command = Command::new(&hook);
        command.arg(&keys).arg("a1").envs([("KOLO_EVENT", event), ("KOLO_BOOKING", "b-1"), ("KOLO_HOST_COUNT", "1")]);
        command.envs([("KOLO_HOST_0", host), ("KOLO_HOST_0_END", end), ("TZ", "UTC")]);
        // The first example of RFC 8032, and what OpenSSH calls it.
        command.env("KOLO_USER", "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        let ended = run(&mut command);
        assert_eq!(ended.code, Some(0), "{event}: {ended:?}");
        let text = fs::read_to_string(&keys).unwrap();
        let mut lines = text.lines().map(str::to_owned);
        assert_eq!(lines.next().as_deref(), Some(own), "{event}: what is there stays");
        lines.collect::<Vec<String>>()
    };
    for (event, host) in [("reserved", "a1"), ("changed", "a1"), ("start", "b1")] {
        assert!(on(event, host, "2000000000").is_empty(), "{event} on {host}");
    }
    let opened = on("start", "a1", "2000000000");
    let session = format!("{} session {} b-1", hook.display(), keys.display());
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea kolo:b-1";
    let expected = format!("restrict,pty,expiry-time=\"20330518033320\",command=\"{session}\" {key}");
    assert_eq!((on("start", "a1", "2000000000"), opened), (vec![expected.clone()], vec![expected]), "once");
    let longer = on("changed", "a1", "2000000060");
    assert!(longer.len() == 1 && longer[0].contains("20330518033420"), "{longer:?}");
    let read = run(Command::new("ssh-keygen").arg("-l").arg("-f").arg(&keys));
    assert!(read.code == Some(0) && read.out.contains("kolo:b-1 (ED25519)"), "{read:?}");

    // Where the guest could write, he could have other files written.
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let mut refused = Command::new(&hook);
    refused.arg(&keys).envs([("KOLO_EVENT", "end"), ("KOLO_BOOKING", "b-1"), ("KOLO_HOST_COUNT", "0")]);
    let refused = run(&mut refused);
    assert!(refused.code == Some(1) && refused.err.contains("has to belong to the user of this hook"), "{refused:?}");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();

    // What sshd starts for a session: a shell leads it.
    let session = |command: &str| {
        let mut session = Command::new("setsid");
        session
            .args(["--wait", "sh", "-c", r#""$@"; exit $?"#, "sh"])
            .arg(&hook)
            .arg("session")
            .arg(&keys)
            .args(["b-1"])
            .env("SHELL", "/bin/sh");
        session.envs([("SSH_ORIGINAL_COMMAND", command), ("KOLO_LOOK_EVERY_S", "0.1")]).stdout(Stdio::piped());
        session
    };
    let ended = run(&mut session("echo in; exit 5"));
    assert_eq!((ended.code, ended.out.trim()), (Some(5), "in"), "{ended:?}");
    let mut goes_on = session("echo in; sleep 1000").spawn().unwrap();
    let mut said = [0; 3];
    std::io::Read::read_exact(goes_on.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert!(on("end", "a1", "2000000000").is_empty());
    assert_ne!(goes_on.wait().unwrap().code(), Some(0), "it ends with the reservation");
    let late = run(&mut session("echo in"));
    assert!(late.code == Some(1) && late.err.contains("the reservation is over"), "{late:?}");
}

/// Ended when dropped.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_shipped_hook_limits_and_ends_real_processes() {
    let root = Path::new("/sys/fs/cgroup");
    let version_2 = fs::read_to_string(root.join("cgroup.controllers"));
    let is_2 = version_2
        .is_ok_and(|text| ["cpu", "memory"].iter().all(|name| text.split_whitespace().any(|word| word == *name)));
    let files: [(PathBuf, &str, &str); 2] = if is_2 {
        let group = root.join("kolo/end-to-end");
        [(group.join("cpu.max"), "150000 100000", "50000 100000"), (group.join("memory.max"), "67108864", "33554432")]
    } else {
        let (cpu, memory) = (root.join("cpu/kolo/end-to-end"), root.join("memory/kolo/end-to-end"));
        [
            (cpu.join("cpu.cfs_quota_us"), "150000", "50000"),
            (memory.join("memory.limit_in_bytes"), "67108864", "33554432"),
        ]
    };
    let top = if is_2 { root.join("kolo") } else { root.join("memory/kolo") };
    if Path::new("/run/systemd/system").exists() || fs::create_dir_all(&top).is_err() {
        skip::skip("control groups are systemd's here, or cannot be made (no root, or no controllers)");
        return;
    }
    let read = |file: &Path| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    run_shipped("reserved", "1500", "64");
    assert!(files.iter().all(|(file, ..)| !file.exists()), "a reservation that has not begun has no group");
    run_shipped("start", "1500", "64");
    run_shipped("start", "1500", "64");
    for (file, expected, _) in &files {
        assert_eq!(read(file), *expected, "{}", file.display());
    }
    run_shipped("changed", "500", "32");
    for (file, _, expected) in &files {
        assert_eq!(read(file), *expected, "{}", file.display());
    }
    // A guest that takes more than was granted is ended by the kernel; one that stays within is ended by the hook.
    let procs = files[1].0.with_file_name("cgroup.procs");
    let guest = |script: &str| {
        let enter = format!("echo $$ > {} && {script}", procs.display());
        Guest(Command::new("sh").args(["-c", &enter]).stdout(Stdio::null()).spawn().unwrap())
    };
    let mut greedy = guest("head -c 200000000 /dev/zero | tail -c 200000000");
    assert!(!greedy.0.wait().unwrap().success(), "200 MB do not fit into 32 MiB");
    let mut modest = guest("exec sleep 300");
    let own = modest.0.id().to_string();
    wait_until("the guest to be in its group", || read(&procs), |inside| *inside == own);
    run_shipped("end", "500", "32");
    assert!(!modest.0.wait().unwrap().success());
    assert!(files.iter().all(|(file, ..)| !file.exists()), "the group is gone");
    run_shipped("end", "500", "32");
    for top in ["cpu/kolo", "memory/kolo", "kolo"] {
        let _ = fs::remove_dir(root.join(top));
    }
}
