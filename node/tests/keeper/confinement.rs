//! What a command may not do on its owner's machine, in a sandbox or without one.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use kolo_seat::{
    Confinement, RunError, RunNumber, RunOrder, Runner, Task,
    frame::{End, ToKeeper},
};

use nix::unistd::geteuid;

use super::site::{Site, is_alive, now, skip, until};

#[tokio::test]
async fn a_command_gets_what_it_is_to_know_and_nothing_of_the_node() {
    let site = Site::new();
    let (end, stdout, _) = site.sh("cat $KOLO_HOSTFILE; env | cut -d= -f1 | sort | tr '\\n' ' '; echo; pwd; echo $HOME $KOLO_RANK/$KOLO_SIZE; cat").await;
    assert_eq!(end, End::Code(0));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..2], ["a", "b"]);
    let own = [
        "HOME",
        "KOLO_HOSTFILE",
        "KOLO_HOSTS",
        "KOLO_RANK",
        "KOLO_REQUEST",
        "KOLO_SIZE",
        "LANG",
        "PATH",
        "PWD",
        "TMPDIR",
    ];
    // A shell adds some of its own.
    let names: Vec<&str> =
        lines[2].split_whitespace().filter(|name| !["_", "OLDPWD", "SHLVL"].contains(name)).collect();
    assert_eq!(names, own);
    assert_eq!(lines[4], format!("{} 0/2", lines[3]));
}

#[tokio::test]
async fn a_command_is_not_root_and_sees_nothing_of_its_owner() {
    let site = Site::new();
    let secret = site.directory.path().join("secret");
    fs::write(&secret, "of the owner").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o666)).unwrap();
    let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let script = format!(
        "id -u; cat {secret}; echo x > {secret}; echo x > /tmp/kolo-x; kill {}; echo open > {open}; cat {open}; grep NoNewPrivs /proc/self/status",
        other.id(),
        secret = secret.display(),
        open = site.directory.path().join("open/file").display(),
    );
    let (end, stdout, stderr) = site.sh(&script).await;
    let is_alive = is_alive(other.id());
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(is_alive && end == End::Code(0), "{end:?} {stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[1..], ["open", "NoNewPrivs:\t1"]);
    assert_ne!(lines[0], "0");
    assert_eq!(fs::read_to_string(secret).unwrap(), "of the owner");
    assert!(!Path::new("/tmp/kolo-x").exists());
}

#[tokio::test]
async fn nothing_is_started_as_root() {
    let site = Site::new();
    let task = site.task(&["true"]);
    let with = |user: Option<&str>| {
        let user = user.map(str::to_owned);
        Task { confinement: Confinement { user, ..task.confinement.clone() }, ..task.clone() }
    };
    assert!(matches!(site.keepers.start(&with(Some("root")), now()), Err(RunError::Confine(_))));
    assert_eq!(site.keepers.start(&with(None), now()).is_err(), nix::unistd::geteuid().is_root());
}

#[tokio::test]
async fn limits_of_memory_and_processes_hold() {
    let site = Site::new();
    let script = "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c; i=0; while [ $i -lt 1000 ]; do sleep 30 & i=$((i+1)); done; echo all";
    let task = site.task(&["sh", "-c", script]);
    let confinement =
        Confinement { memory_mib: Some(64), processes_max: 40, cgroups: None, ..task.confinement.clone() };
    let (_, stdout, stderr) = site.run(&Task { confinement, ..task }).await;
    assert_eq!(stdout, "0\n", "{stderr}");
    assert!(stderr.contains("memory exhausted") && stderr.contains("fork"), "{stderr}");
}

/// A task in a sandbox, where this machine has one.
fn in_sandbox(site: &Site, script: &str) -> Option<Task> {
    let task = site.task(&["sh", "-c", script]);
    let confinement = Confinement { runner: Runner::Bubblewrap, ..task.confinement.clone() };
    let task = Task { confinement: confinement.suited_to_bubblewrap(), ..task };
    match task.confinement.check(&task.scratch_in) {
        Ok(_) => Some(task),
        Err(why) => {
            skip(&why.to_string());
            None
        }
    }
}

#[tokio::test]
async fn a_sandbox_shows_nothing_of_the_machine_and_tells_ends_as_they_are() {
    let site = Site::new();
    let script = "ls /home /root /var /run/user 2>/dev/null | wc -l; ls /proc | grep -c '^[0-9]'; cat /proc/net/dev | wc -l; pwd; echo x > here; head -c 4 /run/kolo | wc -c; echo y > /tmp/y; exit 9";
    let Some(task) = in_sandbox(&site, script) else { return };
    let (end, stdout, stderr) = site.run(&task).await;
    assert_eq!(end, End::Code(9), "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    let processes: u32 = lines[1].parse().unwrap();
    // Two lines of titles, and the loopback.
    assert!(lines[0] == "0" && processes < 10 && lines[2] == "3", "{stdout}");
    // Where the kernel has Landlock, what the sandbox itself has put there is closed too.
    assert!(!has_landlock(&site) || lines[4] == "0" && stderr.contains("Permission denied"), "{stdout}{stderr}");
    let command = ["sh", "-c", "kill -KILL $$"].map(str::to_owned).into();
    let next = Task { order: RunOrder { run: RunNumber(2), command, ..task.order.clone() }, ..task };
    assert_eq!(site.run(&next).await.0, End::Signal(9));
}

#[tokio::test]
async fn a_command_in_a_sandbox_makes_no_user_namespaces() {
    let site = Site::new();
    let Some(task) = in_sandbox(&site, "unshare --user true && echo made; echo tried") else { return };
    if task.confinement.has_nested_namespaces {
        skip("bubblewrap cannot take user namespaces from commands here");
        return;
    }
    let (end, stdout, stderr) = site.run(&task).await;
    assert_eq!((end, &*stdout), (End::Code(0), "tried\n"), "{stderr}");
    let confinement = Confinement { has_nested_namespaces: true, ..task.confinement.clone() };
    let next = Task { order: RunOrder { run: RunNumber(2), ..task.order.clone() }, confinement, ..task };
    let (_, stdout, stderr) = site.run(&next).await;
    if !stdout.starts_with("made") {
        skip(&format!("that it is bubblewrap who forbids it: {stderr}"));
    }
}

/// Whether the kernel closes files to who asks it to: without a sandbox no command runs where it does not.
fn has_landlock(site: &Site) -> bool {
    let plain = site.task(&["true"]);
    let confinement = Confinement { user: Some("nobody".to_owned()), ..plain.confinement };
    match confinement.check(&plain.scratch_in) {
        Ok(_) => true,
        // One who is not root runs nothing without a sandbox, so it is not asked.
        Err(why) => {
            skip(&format!("Landlock within the sandbox: {why}"));
            false
        }
    }
}

#[tokio::test]
async fn a_command_that_cannot_be_executed_has_not_run_in_a_sandbox_or_without_one() {
    let site = Site::new();
    let Some(sandboxed) = in_sandbox(&site, "true") else { return };
    let program = |name: &str, text: &str, mode: u32| {
        let path = site.directory.path().join("open").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // One without its interpreter, and one that only its owner may execute.
    let mut programs = vec![program("lost", "#!/no/such/interpreter\n", 0o755)];
    programs.extend(geteuid().is_root().then(|| program("closed", "#!/bin/sh\n", 0o744)));
    let plain = geteuid().is_root().then(|| site.task(&["true"]).confinement);
    let mut run = 0;
    for program in programs {
        let mut ends = Vec::new();
        for confinement in [Some(sandboxed.confinement.clone()), plain.clone()].into_iter().flatten() {
            run += 1;
            let order = RunOrder { run: RunNumber(run), command: vec![program.clone()], ..sandboxed.order.clone() };
            ends.push(site.run(&Task { order, confinement, ..sandboxed.clone() }).await.0);
        }
        let begins = format!("{program} cannot be run: ");
        let is_told = |end: &End| matches!(end, End::Failed(why) if why.starts_with(&begins)) && *end == ends[0];
        assert!(ends.iter().all(is_told), "{ends:?}");
    }
}

#[tokio::test]
async fn nothing_of_the_barrier_reaches_a_command_in_a_sandbox() {
    let site = Site::new();
    let script = "for one in /proc/self/fd/*; do readlink $one; done | grep -c socket";
    let Some(task) = in_sandbox(&site, script) else { return };
    assert_eq!(site.run(&task).await.1, "0\n");
}

#[tokio::test]
async fn what_the_sandbox_cannot_set_up_has_not_run() {
    let site = Site::new();
    let Some(task) = in_sandbox(&site, "exit 255") else { return };
    assert_eq!(site.run(&task).await.0, End::Code(255), "there is no signal of that number");
    let missing = Confinement { paths: vec![PathBuf::from("/srv/no-such-dir")], ..task.confinement.clone() };
    let refused = missing.check(&task.scratch_in).unwrap_err().to_string();
    assert!(refused.starts_with("runner_paths: /srv/no-such-dir: "), "{refused}");
    // It may go while the node runs.
    let task = Task { order: RunOrder { run: RunNumber(2), ..task.order }, confinement: missing, ..task };
    let (end, _, stderr) = site.run(&task).await;
    assert!(matches!(end, End::Failed(_)) && stderr.contains("no-such-dir"), "{end:?} {stderr}");
}

#[tokio::test]
async fn a_sandbox_tells_nothing_of_files_that_it_does_not_show() {
    let site = Site::new();
    let Some(task) = in_sandbox(&site, "true") else { return };
    let secret = site.directory.path().join("secret");
    fs::write(&secret, "of the owner").unwrap();
    let mut said = Vec::new();
    for (run, name) in [(1, "secret"), (2, "no-such")] {
        let path = site.directory.path().join(name).to_str().unwrap().to_owned();
        for (run, directory, command) in [(2 * run, None, path.as_str()), (2 * run + 1, Some(path.clone()), "true")] {
            let (run, command) = (RunNumber(run), vec![command.to_owned()]);
            let order = RunOrder { run, directory, command, ..task.order.clone() };
            let End::Failed(why) = site.run(&Task { order, ..task.clone() }).await.0 else { panic!("it runs") };
            said.push(why.replace(&path, "FILE"));
        }
    }
    assert_eq!(said[..2], said[2..]);
}

#[tokio::test]
async fn a_command_in_a_sandbox_is_told_to_end_before_it_is_ended() {
    let site = Site::new();
    let script = "trap 'echo told; exit 3' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.05; done";
    let Some(task) = in_sandbox(&site, script) else { return };
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("up").await;
    user.send(&ToKeeper::Signal(15)).await;
    assert_eq!(user.end().await, End::Code(3));
    assert!(user.said[0].ends_with(b"told\n"));
}

#[tokio::test]
async fn variables_of_an_order_reach_the_command_and_not_the_sandbox_around_it() {
    let site = Site::new();
    let Some(task) = in_sandbox(&site, "echo $SECRET; echo $PATH; echo $LD_PRELOAD; sleep 1000") else { return };
    let open = site.directory.path().join("open");
    let escaped = open.join("escaped");
    fs::write(open.join("bwrap"), format!("#!/bin/sh\nid > {}\n", escaped.display())).unwrap();
    fs::set_permissions(open.join("bwrap"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", open.display());
    let variables = [("PATH", path.as_str()), ("LD_PRELOAD", "/no/such.so"), ("SECRET", "of the user")];
    let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let id = site.start(&Task { order: RunOrder { environment, ..task.order }, ..task });
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said(&format!("of the user\n{path}\n/no/such.so\n")).await;
    let outside = PathBuf::from(format!("/proc/{}", user.pid.unwrap()));
    let program = fs::read_link(outside.join("exe")).unwrap();
    assert!(program.ends_with("bwrap") && !program.starts_with(&open) && !escaped.exists(), "{program:?}");
    for file in ["environ", "cmdline"] {
        let text = String::from_utf8_lossy(&fs::read(outside.join(file)).unwrap()).into_owned();
        assert!(!text.contains("/no/such.so") && !text.contains("of the user"), "{file}: {text}");
    }
}

#[tokio::test]
async fn a_scratch_directory_is_the_commands_and_goes_with_it() {
    let site = Site::new();
    let task = site.task(&["sh", "-c", "echo x > file; mkdir -p a/b; echo up; sleep 1000"]);
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("up").await;
    let scratch = fs::read_dir(&task.scratch_in).unwrap().next().unwrap().unwrap();
    assert_eq!(scratch.metadata().unwrap().mode() & 0o777, 0o700);
    let hosts = fs::metadata(scratch.path().join(".kolo-hosts")).unwrap();
    assert_eq!(hosts.uid(), scratch.metadata().unwrap().uid(), "it is the command's to read, whatever the umask");
    site.keepers.end(&id, "over").unwrap();
    user.end().await;
    until("it goes", || fs::read_dir(&task.scratch_in).unwrap().count() == 0).await;
}
