//! Commands in units of systemd, where it has started the machine; elsewhere a machine inside of this one has (`scripts/test-cgroups`).

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::Command,
    time::Duration,
};

use broker::{ids::SeatNumber, time::Span};
use kolo_seat::{
    Confinement, RunId, RunNumber, RunOrder, RunState, Runner, Task,
    frame::{Data, End, FromKeeper, TerminalSize, ToKeeper},
    uids::{RunUids, UidRange},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};

use super::site::{Site, User, is_alive, now, passes_in_a_machine, skip, until};

fn has_units() -> bool {
    Path::new("/run/systemd/system").is_dir() && geteuid().is_root()
}

/// A site whose commands run in units; none where there are none, which is said.
fn site() -> Option<Site> {
    match has_units() {
        true => Some(Site::new()),
        false => {
            skip("units want root, and a machine that systemd has started");
            None
        }
    }
}

fn task(site: &Site, run: u64, script: &str) -> Task {
    let task = site.task(&["sh", "-c", script]);
    let order = RunOrder { run: RunNumber(run), ..task.order };
    Task { order, confinement: Confinement { runner: Runner::Systemd, ..task.confinement }, ..task }
}

async fn running(site: &Site, task: &Task) -> (RunId, User) {
    let id = site.start(task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("up").await;
    (id, user)
}

/// What systemd says of a unit, or of all.
fn systemctl(words: &[&str]) -> String {
    String::from_utf8(Command::new("systemctl").args(words).output().unwrap().stdout).unwrap()
}

/// The unit of a run of the only seat.
fn unit(site: &Site, id: &RunId) -> String {
    let noted = fs::read_to_string(site.only_run().with_file_name(id.run.to_string()).join("cgroup")).unwrap();
    noted.trim_matches('"').rsplit_once('/').unwrap().1.to_owned()
}

async fn is_gone(unit: &str) {
    until("its unit goes", || !systemctl(&["list-units", "--all", "--plain", "--no-legend"]).contains(unit)).await;
    assert!(!Path::new("/sys/fs/cgroup/system.slice").join(unit).exists());
}

#[tokio::test]
async fn a_command_in_a_unit_has_its_directory_and_nothing_of_its_owner() {
    let Some(site) = site() else { return };
    let secret = site.directory.path().join("secret");
    fs::write(&secret, "of the owner").unwrap();
    let odd = site.directory.path().join("o d:d\"\\%n");
    fs::create_dir(&odd).unwrap();
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        "id -un; cat {}; ls -d /home /root /var /run/user 2>/dev/null | wc -l; cat /proc/[0-9]*/comm | grep -c systemd; ls /sys/class/net; echo $KOLO_RANK/$KOLO_SIZE $MINE; cat; grep -h -E 'NoNewPrivs|CapBnd|CapEff|SigBlk' /proc/self/status | tr -d '\\t'; echo x >/tmp/x; echo x >\"$ODD/x\"; env | cut -d= -f1 | sort | tr '\\n' ' '; readlink /proc/self/fd/* | grep -c socket; echo err >&2; exit 143",
        secret.display()
    );
    let mut first = task(&site, 1, &script);
    first.confinement.paths.push(odd.clone());
    first.order.environment = BTreeMap::from(
        [("MINE", "\"it's\" $all = %n"), ("ODD", odd.to_str().unwrap())].map(|(a, b)| (a.to_owned(), b.to_owned())),
    );
    first.order.has_stdin = true;
    let id = site.start(&first);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.until(|_, frame| matches!(frame, FromKeeper::Started { .. })).await;
    let unit = unit(&site, &id);
    let told = systemctl(&["show", &unit]);
    assert!(told.contains("User=nobody") && !told.contains("it's"), "what all may read has no variables: {told}");
    user.send(&ToKeeper::Stdin { offset: 0, data: Data(b"in\n".to_vec()) }).await;
    user.send(&ToKeeper::StdinEnd).await;
    let end = user.end().await;
    let [stdout, stderr] = user.said.each_ref().map(|said| String::from_utf8_lossy(said).into_owned());
    assert_eq!(end, End::Code(143), "{stdout}{stderr}");
    let expected = "nobody\n0\n0\nlo\n0/2 \"it's\" $all = %n\nin\nSigBlk:0000000000000000\nCapEff:0000000000000000\nCapBnd:0000000000000000\nNoNewPrivs:1\nHOME KOLO_HOSTFILE KOLO_HOSTS KOLO_RANK KOLO_REQUEST KOLO_SIZE LANG MINE ODD PATH PWD TMPDIR ";
    assert!(stdout.starts_with(expected) && stdout.ends_with("0\n"), "{stdout}");
    assert!(stderr.contains("secret: No such file") && stderr.ends_with("err\n"), "{stderr}");
    assert!(odd.join("x").exists() && !Path::new("/tmp/x").exists());
    is_gone(&unit).await;
    assert!(fs::read_dir(&first.scratch_in).unwrap().next().is_none());
}

#[tokio::test]
async fn units_of_two_seats_are_of_two_user_ids_and_have_nothing_of_the_root_that_they_begin_as() {
    let Some(site) = site() else { return };
    let script = "id -u; id -g; id -G; echo $USER; echo x > file; echo x > /etc/x; grep -h -E 'Cap|NoNewPrivs' /proc/self/status | tr -d '\\t'; cat /proc/[0-9]*/comm | grep -c systemd";
    let of_seat = |seat: u32, run: u64| {
        let task = task(&site, run, script);
        let order = RunOrder { seat: SeatNumber(seat), keeps_files: true, ..task.order };
        let uids = task.confinement.with_uids(Some(RunUids::Of(UidRange::UNUSED)));
        uids.map(|confinement| Task { order, confinement, ..task })
    };
    if let Err(why) = of_seat(0, 1) {
        return skip(&why.to_string());
    }
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let none = "0".repeat(16);
    let mut ids = Vec::new();
    for (seat, run) in [(0, 1), (0, 2), (1, 1)] {
        let id = site.start(&of_seat(seat, run).unwrap());
        let mut user = site.attach(&id, [0; 2]).await;
        user.go().await;
        let end = user.end().await;
        let [stdout, stderr] = user.said.each_ref().map(|said| String::from_utf8_lossy(said).into_owned());
        let (uid, rest) = stdout.split_once('\n').unwrap_or_default();
        let gid = nobody.gid;
        let expected = format!(
            "{gid}\n{gid}\nnobody\nCapInh:{none}\nCapPrm:{none}\nCapEff:{none}\nCapBnd:{none}\nCapAmb:{none}\nNoNewPrivs:1\n0\n"
        );
        assert_eq!((&end, rest), (&End::Code(1), &*expected), "{stderr}");
        assert!(stderr.contains("/etc/x"), "{stderr}");
        let files = site.keepers.files(&id).unwrap();
        assert_eq!(fs::metadata(files.scratch.join("file")).unwrap().uid().to_string(), uid);
        user.send(&ToKeeper::EndSeen).await;
        ids.push(uid.parse::<u32>().unwrap());
    }
    assert!(ids[0] == ids[1] && ids[0] != ids[2], "{ids:?}");
    assert!(ids.iter().all(|id| UidRange::UNUSED.first().as_raw() <= *id), "{ids:?}");
}

#[tokio::test]
async fn what_a_unit_says_comes_whole_and_signals_and_keys_reach_it() {
    let Some(site) = site() else { return };
    let mut first = task(&site, 1, "trap 'echo told; exit 9' TERM; seq 1 30000; echo up; while :; do sleep 0.05; done");
    first.confinement.memory_mib = Some(64);
    let (_, mut user) = running(&site, &first).await;
    user.send(&ToKeeper::Signal(15)).await;
    assert_eq!(user.end().await, End::Code(9));
    let expected: String = (1..=30_000).map(|number| format!("{number}\n")).chain(["up\ntold\n".to_owned()]).collect();
    assert!(user.said[0] == expected.as_bytes(), "{} bytes", user.said[0].len());

    for run in [2, 3] {
        let (id, mut user) = running(&site, &task(&site, run, "echo up; exec sleep 1000")).await;
        match run {
            2 => user.send(&ToKeeper::Signal(15)).await,
            _ => drop(systemctl(&["stop", &unit(&site, &id)])),
        }
        assert_eq!(user.end().await, End::Signal(15), "systemd would call it a success");
        user.send(&ToKeeper::EndSeen).await;
    }

    let script = "stty size; echo up; until [ \"$(stty size)\" = '50 132' ]; do sleep 0.02; done; read line; echo got $line; tty; sleep 100";
    let mut third = task(&site, 4, script);
    third.order.terminal = Some(TerminalSize { rows: 24, columns: 80 });
    third.order.has_stdin = true;
    let (_, mut user) = running(&site, &third).await;
    user.send(&ToKeeper::Resize(TerminalSize { rows: 50, columns: 132 })).await;
    user.send(&ToKeeper::Stdin { offset: 0, data: Data(b"x\n".to_vec()) }).await;
    user.has_said("got x\r\n/dev/pts/").await;
    // The key for an interrupt.
    user.send(&ToKeeper::Stdin { offset: 2, data: Data(vec![3]) }).await;
    assert_eq!(user.end().await, End::Signal(2), "{}", String::from_utf8_lossy(&user.said[0]));
}

#[tokio::test]
async fn a_unit_has_the_limits_of_the_seat() {
    let Some(site) = site() else { return };
    let script = "for i in 1 2 3; do head -c 20000000 /dev/zero | tail -c 20000000 | sleep 1000 & done; wait; exit 5";
    let mut first = task(&site, 1, script);
    first.confinement.memory_mib = Some(32);
    assert_eq!(site.run(&first).await.0, End::OutOfMemory);

    let mut second = task(&site, 2, "b() { while :; do sleep 1000 & done; }; b 2>/dev/null & echo up; exec sleep 1000");
    let Confinement { memory_mib, cpu_millicores, processes_max, .. } = &mut second.confinement;
    (*memory_mib, *cpu_millicores, *processes_max) = (Some(64), Some(255), 40);
    let (id, mut user) = running(&site, &second).await;
    let unit = unit(&site, &id);
    let limit = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/system.slice/{unit}/{name}")).unwrap();
    let limits = ["memory.max", "memory.swap.max", "cpu.max", "pids.max"].map(|name| limit(name).trim().to_owned());
    assert_eq!(limits[2..], ["25500 100000", "42"]);
    assert!(limits[0] == "67108864" && limits[1] == "0", "{limits:?}");
    until("it has as many as it gets", || limit("pids.current").trim().parse::<u64>().unwrap() >= 40).await;
    site.keepers.end(&id, "enough").unwrap();
    assert_eq!(user.end().await, End::Owner("enough".to_owned()));
    is_gone(&unit).await;
}

#[tokio::test]
async fn a_unit_that_hears_no_signal_ends_with_its_window_or_when_its_owner_says_so() {
    let Some(site) = site() else { return };
    let script = "trap '' TERM; (env -i setsid sleep 1000 &); echo up; while :; do sleep 0.1; done";
    for run in [1, 2] {
        let next = Task { grace: Duration::from_secs(1), ..task(&site, run, script) };
        let (id, mut user) = running(&site, &next).await;
        let unit = unit(&site, &id);
        let end = if run == 1 {
            site.keepers.set_deadline(&id, now() + Span(3)).unwrap();
            End::WindowEnded
        } else {
            site.keepers.end(&id, "enough").unwrap();
            End::Owner("enough".to_owned())
        };
        assert_eq!(user.end().await, end);
        is_gone(&unit).await;
        user.send(&ToKeeper::EndSeen).await;
        until("it is forgotten", || site.keepers.find(&id).is_err()).await;
    }
}

#[tokio::test]
async fn no_unit_outlives_its_keeper_and_none_needs_what_has_made_it() {
    let Some(site) = site() else { return };
    let script = "trap '' TERM; (env -i setsid sleep 1000 &); echo up; while :; do sleep 0.1; done";
    for (run, whose) in [(1, "keeper, which nobody sees"), (2, "keeper"), (3, "systemd-run")] {
        let (id, mut user) = running(&site, &task(&site, run, script)).await;
        let Ok(RunState::Running { pid }) = site.keepers.find(&id).map(|run| run.state) else { panic!("it runs") };
        let unit = unit(&site, &id);
        let keeper = site.pid_in("lock");
        if run == 3 {
            let listed = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap();
            let child = Pid::from_raw(listed.split_whitespace().next().unwrap().parse().unwrap());
            kill(child, Signal::SIGKILL).unwrap();
            until("it is gone", || !is_alive(u32::try_from(child.as_raw()).unwrap())).await;
            user.send(&ToKeeper::Signal(9)).await;
            assert_eq!(user.end().await, End::Signal(9));
        } else {
            kill(keeper, Signal::SIGKILL).unwrap();
            until("the keeper is gone", || !site.keepers.goes_on(&id)).await;
            assert!(run == 1 || site.keepers.end_rest(&id), "once is enough");
            assert!(run == 1 || !is_alive(pid));
        }
        is_gone(&unit).await;
        assert!(!is_alive(pid), "{whose}");
        drop(user);
        site.keepers.end_rest(&id);
        site.keepers.forget(&id).unwrap();
    }
}

#[tokio::test]
async fn what_cannot_run_in_a_unit_has_not_run_and_says_why() {
    let Some(site) = site() else { return };
    let open = site.directory.path().join("open");
    let lost = open.join("lost");
    fs::write(&lost, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&lost, fs::Permissions::from_mode(0o755)).unwrap();
    let lost = lost.to_str().unwrap();
    let missing = site.directory.path().join("no-such");
    let with = |run: u64, command: &str, directory: Option<&str>| {
        let mut next = task(&site, run, "");
        next.order.command = vec![command.to_owned()];
        next.order.directory = directory.map(str::to_owned);
        next
    };
    let mut without = with(4, "true", None);
    without.confinement.paths.push(missing.clone());
    let refused = without.confinement.check(&without.scratch_in).unwrap_err().to_string();
    assert!(refused.starts_with("runner_paths: "), "{refused}");
    let tasks = [
        (with(1, "no-such", None), "no-such: not found in PATH"),
        (with(2, "true", Some("/root")), "/root: no such directory"),
        (with(3, lost, None), "lost cannot be run: "),
        (without, "journalctl -u kolo-run-"),
    ];
    for (next, expected) in tasks {
        let (end, ..) = site.run(&next).await;
        assert!(matches!(&end, End::Failed(why) if why.contains(expected)), "{expected}: {end:?}");
    }
    let image =
        Task { order: RunOrder { image: Some("x".to_owned()), ..task(&site, 9, "").order }, ..task(&site, 9, "") };
    assert!(site.keepers.start(&image, now()).is_err());
}

#[test]
fn the_doctor_tries_a_unit() {
    let Some(site) = site() else { return };
    let doctor = |user: &str| {
        let confinement =
            Confinement { user: Some(user.to_owned()), paths: Vec::new(), ..task(&site, 1, "").confinement };
        // As a node has it that is told nothing of ids.
        let confinement = confinement.with_uids(None).unwrap();
        let note = serde_json::json!({ "confinement": confinement, "scratch_in": site.directory.path() });
        fs::write(site.directory.path().join("runner"), note.to_string()).unwrap();
        let kolo = Command::new(env!("CARGO_BIN_EXE_kolo"))
            .arg("--data-dir")
            .arg(site.directory.path())
            .arg("doctor")
            .output();
        String::from_utf8(kolo.unwrap().stdout).unwrap()
    };
    let said = doctor("nobody");
    assert!(said.contains("confined by runner = \"systemd\""), "{said}");
    assert!(doctor("no-such-user").contains("useradd"));
}

/// Runs these tests where systemd has started the machine.
#[test]
fn a_machine_that_systemd_has_started_passes() {
    if !has_units() {
        passes_in_a_machine(&["--systemd"]);
    }
}

#[tokio::test]
async fn a_session_of_ssh_is_served_in_a_unit() {
    let Some(site) = site() else { return };
    let mut session = task(&site, 1, "");
    session.order.command = vec![];
    session.order.ssh_keys =
        vec!["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPWTqf4vcjDTnmdcEB8XxQTTx7Jnio6iessc4/6A3chv".to_owned()];
    session.order.has_stdin = true;
    let id = site.start(&session);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("SSH-2.0-kolo").await;
    let unit = unit(&site, &id);
    user.send(&ToKeeper::StdinEnd).await;
    user.end().await;
    is_gone(&unit).await;
}
