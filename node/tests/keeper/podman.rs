//! Commands in containers of podman, as the machine has it; an image is made of programs of this machine.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use kolo_seat::{
    Confinement, Keepers, RunError, RunNumber, RunOrder, RunState, Runner, Task,
    frame::{Data, End, TerminalSize, ToKeeper},
};
use nix::{
    sys::{
        signal::{Signal, kill},
        statfs::{CGROUP2_SUPER_MAGIC, statfs},
    },
    unistd::{Pid, User, geteuid},
};

use super::site::{Site, cgroups, is_alive, skip, until};

const IMAGE: &str = "localhost/kolo-test:1";
/// What the image has.
const PROGRAMS: [&str; 9] = ["sh", "cat", "env", "head", "id", "ls", "seq", "sleep", "stty"];
/// Gives what follows a machine whose cgroups crun knows: it takes those of version 2 alone.
const VERSION_2_ONLY: &str = "mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec \"$@\"";

/// The store of an image, and how keepers are started that use it; none where podman does not work, which is said.
struct Containers {
    store: PathBuf,
    before: Vec<&'static str>,
    cgroups: Option<PathBuf>,
}

impl Containers {
    /// Makes the image in a directory, as the user of commands.
    fn made_in(directory: &Path) -> Option<Containers> {
        let is_version_2 = statfs("/sys/fs/cgroup").is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC);
        let before = match is_version_2 {
            true => vec![],
            false if geteuid().is_root() => vec!["unshare", "-m", "sh", "-c", VERSION_2_ONLY, "kolo"],
            false => {
                skip("crun wants cgroups of version 2 alone");
                return None;
            }
        };
        let made = make_image(directory);
        let Err(why) = made else {
            let cgroups = cgroups().filter(|_| is_version_2).map(Path::to_owned);
            return Some(Containers { store: directory.join("store"), before, cgroups });
        };
        skip(&format!("podman makes no image here: {why}"));
        None
    }

    fn keepers(&self, site: &Site) -> Keepers {
        let words = [env!("CARGO_BIN_EXE_kolo"), "keeper"];
        let program = self.before.iter().copied().chain(words).map(Into::into).collect();
        Keepers::with_program(&site.directory.path().join("runs"), program).unwrap()
    }

    fn confinement(&self, before: Confinement) -> Confinement {
        let (images, image_store) = (vec![IMAGE.to_owned()], Some(self.store.clone()));
        Confinement { runner: Runner::Podman, images, image_store, cgroups: self.cgroups.clone(), ..before }
    }

    fn task(&self, site: &Site, script: &str) -> Task {
        let task = site.task(&["sh", "-c", script]);
        let order = RunOrder { image: Some(IMAGE.to_owned()), ..task.order };
        Task { order, confinement: self.confinement(task.confinement), ..task }
    }
}

fn user() -> Option<User> {
    User::from_name("nobody").unwrap().filter(|_| geteuid().is_root())
}

/// Programs of this machine with their libraries, as an image in `store`.
fn make_image(directory: &Path) -> Result<(), String> {
    let script = r#"
        set -e
        mkdir -p "$1/image/bin" "$1/image/tmp" "$1/image/etc"
        cd "$1/image"
        for name in $2; do
            file=$(command -v "$name")
            cp -L "$file" "bin/$name"
            for library in $(ldd "$file" | grep -o '/[^ ]*'); do
                mkdir -p ".$(dirname "$library")"
                cp -L "$library" ".$library"
            done
        done
        tar -cf ../image.tar .
        chmod 644 ../image.tar
    "#;
    let told = |output: std::io::Result<std::process::Output>| {
        let output = output.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    };
    told(Command::new("sh").args(["-c", script, "sh"]).arg(directory).arg(PROGRAMS.join(" ")).output())?;
    let home = directory.join("home");
    for name in ["store", "home"] {
        fs::create_dir(directory.join(name)).unwrap();
        let owner = user().map(|user| (user.uid.as_raw(), user.gid.as_raw()));
        if let Some((uid, gid)) = owner {
            std::os::unix::fs::chown(directory.join(name), Some(uid), Some(gid)).unwrap();
        }
    }
    let mut import = Command::new("podman");
    import.arg("--root").arg(directory.join("store")).arg("--runroot").arg(home.join("run"));
    import.args(["--storage-driver", "overlay", "--events-backend", "none", "import"]).arg(directory.join("image.tar"));
    import.arg(IMAGE).env("HOME", &home).env("XDG_RUNTIME_DIR", &home).current_dir("/");
    if let Some(user) = user() {
        import.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    // It leaves a process that holds what it writes to.
    let said = directory.join("said");
    let log = fs::File::create(&said).unwrap();
    let status = import.stdout(log.try_clone().unwrap()).stderr(log).status().map_err(|error| error.to_string())?;
    if let Ok(pid) = fs::read_to_string(home.join("libpod/tmp/pause.pid")) {
        let _ = kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL);
    }
    if status.success() { Ok(()) } else { Err(fs::read_to_string(said).unwrap()) }
}

/// A site and its containers.
fn site() -> Option<(Site, Containers)> {
    let mut site = Site::new();
    let directory = site.directory.path().join("images");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    let containers = Containers::made_in(&directory)?;
    site.keepers = containers.keepers(&site);
    Some((site, containers))
}

/// Every process with these words in its command line.
fn processes_with(words: &str) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        is_alive(*pid) && String::from_utf8_lossy(&line).replace('\0', " ").contains(words)
    };
    pids.filter(has).collect()
}

#[tokio::test]
async fn a_command_in_a_container_has_its_image_and_its_directory_and_nothing_else() {
    let Some((site, containers)) = site() else { return };
    let secret = site.directory.path().join("secret");
    fs::write(&secret, "of the owner").unwrap();
    let script = format!(
        "id -u; cat {}; ls /sys/class/net; ls -d /usr/share; echo $KOLO_RANK/$KOLO_SIZE $MINE; cat; echo kept > file; ls -n file; grep() {{ while read l; do case $l in $1*) echo \"$l\"; esac; done; }}; grep NoNewPrivs < /proc/self/status; grep CapEff < /proc/self/status; echo err >&2; exit 7",
        secret.display()
    );
    let mut task = containers.task(&site, &script);
    task.order.environment = BTreeMap::from([("MINE".to_owned(), "\"it's\" $all = #x ".to_owned())]);
    task.order.has_stdin = true;
    task.order.keeps_files = true;
    let id = site.start(&task);
    let mut at = site.attach(&id, [0; 2]).await;
    at.go().await;
    at.send(&ToKeeper::Stdin { offset: 0, data: Data(b"in\n".to_vec()) }).await;
    at.send(&ToKeeper::StdinEnd).await;
    let end = at.end().await;
    let [stdout, stderr] = at.said.each_ref().map(|said| String::from_utf8_lossy(said).into_owned());
    assert_eq!(end, End::Code(7), "{stdout}{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..4], ["0", "lo", "0/2 \"it's\" $all = #x", "in"], "{stdout}{stderr}");
    assert_eq!(lines[5..], ["NoNewPrivs:\t1", "CapEff:\t0000000000000000"], "{stdout}");
    assert!(stderr.contains("secret: No such file") && stderr.ends_with("err\n"), "{stderr}");
    // Its root is nobody else outside.
    let file = site.keepers.files(&id).unwrap().scratch.join("file");
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept\n");
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(file).unwrap());
    assert_eq!(owner, user().map_or(geteuid(), |user| user.uid).as_raw());
    let left = fs::read_dir(site.directory.path().join("scratch")).unwrap().count();
    assert_eq!((left, processes_with(site.directory.path().join("scratch").to_str().unwrap())), (1, vec![]));
}

#[tokio::test]
async fn what_a_container_says_comes_whole_and_signals_and_sizes_reach_it() {
    let Some((site, containers)) = site() else { return };
    let task =
        containers.task(&site, "seq 1 300000; trap 'echo told; exit 9' TERM; echo up; while :; do sleep 0.05; done");
    let id = site.start(&task);
    let mut at = site.attach(&id, [0; 2]).await;
    at.go().await;
    at.has_said("up\n").await;
    at.send(&ToKeeper::Signal(15)).await;
    assert_eq!(at.end().await, End::Code(9));
    let expected: String = (1..=300_000).map(|number| format!("{number}\n")).chain(["up\ntold\n".to_owned()]).collect();
    assert!(at.said[0] == expected.as_bytes(), "{} bytes", at.said[0].len());

    let script = "stty size; echo up; until [ \"$(stty size)\" = '50 132' ]; do sleep 0.02; done; read line; echo got $line; stty raw -echo; echo raw; head -c 3; stty sane; echo sane; sleep 100";
    let task = containers.task(&site, script);
    let terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let order = RunOrder { terminal, run: RunNumber(2), has_stdin: true, ..task.order };
    let id = site.start(&Task { order, ..task });
    let mut at = site.attach(&id, [0; 2]).await;
    at.go().await;
    at.has_said("up").await;
    at.send(&ToKeeper::Resize(TerminalSize { rows: 50, columns: 132 })).await;
    at.send(&ToKeeper::Stdin { offset: 0, data: Data(b"x\n".to_vec()) }).await;
    at.has_said("got x\r\nraw").await;
    // The keys by which podman would leave a container.
    at.send(&ToKeeper::Stdin { offset: 2, data: Data(b"\x10\x11x".to_vec()) }).await;
    at.has_said("\u{10}\u{11}xsane").await;
    // The key for an interrupt.
    at.send(&ToKeeper::Stdin { offset: 5, data: Data(vec![3]) }).await;
    let end = at.end().await;
    assert_eq!(end, End::Signal(2), "{}", String::from_utf8_lossy(&at.said[0]));
}

#[tokio::test]
async fn no_container_outlives_its_keeper_or_podman() {
    let Some((site, containers)) = site() else { return };
    let scratch = site.directory.path().join("scratch");
    // Of this test alone, whatever else runs on the machine.
    let sleep = format!("sleep 4242.{}", std::process::id());
    for (number, whose) in [(1, "keeper"), (2, "podman")] {
        let mut task = containers.task(&site, &format!("trap '' TERM; echo up; {sleep}"));
        task.order.run = RunNumber(number);
        let id = site.start(&task);
        let mut at = site.attach(&id, [0; 2]).await;
        at.go().await;
        at.has_said("up\n").await;
        let Ok(RunState::Running { pid }) = site.keepers.find(&id).map(|run| run.state) else { panic!("it runs") };
        let sleeping = processes_with(&sleep);
        assert!(sleeping.len() >= 2, "the first process of the container, and the command: {sleeping:?}");
        if whose == "podman" {
            kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
            assert_eq!(at.end().await, End::Signal(9));
        } else {
            kill(site.pid_in("lock"), Signal::SIGKILL).unwrap();
            until("the keeper is gone", || !site.keepers.goes_on(&id)).await;
            assert!(site.keepers.end_rest(&id), "once is enough");
        }
        until(whose, || processes_with(&sleep).is_empty()).await;
        until("its place goes", || fs::read_dir(&scratch).unwrap().count() == 0).await;
        until("podman goes", || processes_with(scratch.to_str().unwrap()).is_empty()).await;
        drop(at);
        site.keepers.forget(&id).unwrap();
    }
}

#[tokio::test]
async fn a_directory_whose_path_is_too_long_for_podman_is_told_before_anything_runs() {
    let Some((site, containers)) = site() else { return };
    let long = site.directory.path().join("a-directory-with-a-long-name-for-scratch-directories");
    fs::create_dir(&long).unwrap();
    fs::set_permissions(&long, fs::Permissions::from_mode(0o755)).unwrap();
    let task = Task { scratch_in: long.clone(), ..containers.task(&site, "true") };
    let checked = task.confinement.check(&long).map_err(|error| error.to_string());
    let is_told = checked.as_ref().is_err_and(|why| why.starts_with("runner_scratch: ") && why.contains("characters"));
    assert!(fs::read_dir(&long).unwrap().next().is_none(), "nothing is left there");
    let end = site.run(&task).await.0;
    let is_too_long = matches!(&end, End::Failed(why) if why.contains("50 characters"));
    assert_eq!(is_told, is_too_long, "{checked:?} {end:?}");
    let nowhere = task.confinement.check(Path::new("/srv/no-such-dir")).unwrap_err().to_string();
    assert!(nowhere.starts_with("runner_scratch: ") && nowhere.contains("/srv/no-such-dir"), "{nowhere}");
}

#[tokio::test]
async fn an_image_that_is_not_the_owners_or_not_there_is_refused_with_what_mends_it() {
    let Some((site, containers)) = site() else { return };
    let mut task = containers.task(&site, "true");
    task.order.image = Some("localhost/other".to_owned());
    let refused = site.keepers.start(&task, super::site::now()).unwrap_err();
    assert!(matches!(&refused, RunError::Confine(_)) && refused.to_string().contains(IMAGE), "{refused}");
    let missing = Confinement { images: vec!["localhost/other".to_owned()], ..task.confinement.clone() };
    let why = missing.check(&task.scratch_in).unwrap_err().to_string();
    assert!(why.contains("podman --root") && why.ends_with("pull localhost/other"), "{why}");
    // Had the owner taken it away since the node has started, nothing would run.
    task.confinement = missing;
    let (end, ..) = site.run(&task).await;
    assert!(matches!(&end, End::Failed(why) if why.contains("localhost/other")), "{end:?}");
    if containers.before.is_empty() {
        containers.confinement(task.confinement).check(&task.scratch_in).unwrap();
    }
}
