//! Keepers as real processes: the binary as it is shipped, real commands, real kills.
//!
//! Tests wait for what they are about, and look at whole seconds only where a second is what is promised.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use broker::{
    ids::{RequestId, SeatNumber, SiteId},
    time::{Span, Time},
    trust::testing,
};
use kolo::{
    keeping::{Confinement, Keepers, RunError, RunId, RunState, Runner, Task},
    readers::run::{
        Data, End, FrameReader, FromKeeper, Output, RunNumber, RunOrder, STDIN_BYTES_AHEAD_MAX, TerminalSize, ToKeeper,
        encode,
    },
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::AsyncWriteExt as _,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

fn now() -> Time {
    Time(i64::try_from(now_ms() / 1000).unwrap())
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// A site with nothing but keepers; what it has left running ends with it.
struct Site {
    directory: tempfile::TempDir,
    keepers: Keepers,
}

impl Site {
    fn new() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let keepers = Site::open(directory.path());
        Site { directory, keepers }
    }

    fn open(directory: &Path) -> Keepers {
        for (name, mode) in [(".", 0o755), ("scratch", 0o755), ("open", 0o777)] {
            fs::create_dir_all(directory.join(name)).unwrap();
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        Keepers::with_program(&directory.join("runs"), vec![env!("CARGO_BIN_EXE_kolo").into(), "keeper".into()])
            .unwrap()
    }

    fn task(&self, command: &[&str]) -> Task {
        let order = RunOrder {
            grid: testing::GRID.to_owned(),
            site: SiteId::new("s").unwrap(),
            request: RequestId::new("r").unwrap(),
            seat: SeatNumber(0),
            run: RunNumber(1),
            rank: 0,
            hosts: vec!["a".to_owned(), "b".to_owned()],
            command: command.iter().map(|&text| text.to_owned()).collect(),
            environment: BTreeMap::new(),
            directory: None,
            terminal: None,
            has_stdin: false,
            issued: now(),
            expires: now() + Span(600),
            nonce: "n".to_owned(),
        };
        Task {
            order,
            user: testing::public(1),
            deadline: now() + Span(600),
            grace: Duration::from_secs(2),
            spool_bytes: 1 << 20,
            scratch_in: self.directory.path().join("scratch"),
            confinement: Confinement {
                runner: Runner::None,
                user: nix::unistd::geteuid().is_root().then(|| "nobody".to_owned()),
                paths: vec![self.directory.path().join("open")],
                has_network: false,
                memory_mib: None,
                processes_max: 200,
            },
        }
    }

    fn start(&self, task: &Task) -> RunId {
        self.keepers.start(task, now()).unwrap()
    }

    async fn attach(&self, id: &RunId, from: [u64; 2]) -> User {
        let stream = self.keepers.connect(id).unwrap();
        stream.set_nonblocking(true).unwrap();
        let (read, write) = UnixStream::from_std(stream).unwrap().into_split();
        let mut user = User {
            frames: FrameReader::new(read),
            write,
            said: [Vec::new(), Vec::new()],
            has: from,
            gaps: Vec::new(),
            stdin_given: None,
            pid: None,
        };
        user.send(&ToKeeper::Attach { from_stdout: from[0], from_stderr: from[1] }).await;
        user
    }

    /// Runs a command as its user does who gives the word when it is ready.
    async fn run(&self, task: &Task) -> (End, String, String) {
        let id = self.start(task);
        let mut user = self.attach(&id, [0; 2]).await;
        user.go().await;
        let end = user.end().await;
        user.send(&ToKeeper::EndSeen).await;
        let [stdout, stderr] = user.said.map(|said| String::from_utf8_lossy(&said).into_owned());
        (end, stdout, stderr)
    }

    async fn sh(&self, script: &str) -> (End, String, String) {
        self.run(&self.task(&["sh", "-c", script])).await
    }

    fn state(&self) -> Option<RunState> {
        self.keepers.list().unwrap().pop().map(|run| run.state)
    }

    /// The number in a file that a keeper leaves, and the file of the only run.
    fn pid_in(&self, name: &str) -> Pid {
        let text = fs::read_to_string(self.only_run().join(name)).unwrap();
        let pid = text.split_once("\"pid\":").unwrap().1;
        Pid::from_raw(pid[..pid.find([',', '}']).unwrap()].parse().unwrap())
    }

    fn only_run(&self) -> PathBuf {
        let seats = fs::read_dir(self.directory.path().join("runs")).unwrap();
        let mut runs =
            seats.flat_map(|seat| fs::read_dir(seat.unwrap().path()).unwrap()).map(|run| run.unwrap().path());
        runs.find(|run| run.is_dir()).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let runs = self.keepers.list().unwrap_or_default();
        for run in runs {
            let _ = self.keepers.end(&RunId::of(&run.task), "the test is over");
        }
    }
}

/// One who is attached.
struct User {
    frames: FrameReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
    said: [Vec<u8>; 2],
    has: [u64; 2],
    gaps: Vec<(u64, u64)>,
    stdin_given: Option<u64>,
    pid: Option<u32>,
}

impl User {
    async fn send(&mut self, frame: &ToKeeper) {
        self.write.write_all(&encode(frame).unwrap()).await.unwrap();
    }

    async fn next(&mut self) -> Option<FromKeeper> {
        let frame = timeout(PATIENCE, self.frames.next()).await.expect("a frame in time").unwrap();
        match &frame {
            Some(FromKeeper::Output { output, offset, data }) => {
                let index = *output as usize;
                assert_eq!(*offset, self.has[index], "each byte once and in order");
                self.has[index] += data.0.len() as u64;
                self.said[index].extend_from_slice(&data.0);
                self.acknowledge().await;
            }
            Some(FromKeeper::Gap { output, from, to }) => {
                assert_eq!(*from, self.has[*output as usize]);
                self.has[*output as usize] = *to;
                self.gaps.push((*from, *to));
            }
            Some(FromKeeper::StdinAck { offset }) => self.stdin_given = Some(*offset),
            Some(FromKeeper::Started { pid }) => self.pid = Some(*pid),
            _ => {}
        }
        frame
    }

    async fn acknowledge(&mut self) {
        let acknowledge = ToKeeper::Acknowledge { stdout: self.has[0], stderr: self.has[1] };
        // A keeper that has ended does not listen any more.
        let _ = self.write.write_all(&encode(&acknowledge).unwrap()).await;
    }

    async fn until(&mut self, mut is_it: impl FnMut(&User, &FromKeeper) -> bool) -> FromKeeper {
        loop {
            let frame = self.next().await.expect("the stream goes on");
            if is_it(self, &frame) {
                return frame;
            }
        }
    }

    async fn go(&mut self) {
        self.until(|_, frame| matches!(frame, FromKeeper::Ready | FromKeeper::Ended(_))).await;
        self.send(&ToKeeper::Go).await;
    }

    async fn has_said(&mut self, text: &str) {
        self.until(|user, _| String::from_utf8_lossy(&user.said[0]).contains(text)).await;
    }

    async fn end(&mut self) -> End {
        loop {
            if let FromKeeper::Ended(end) = self.next().await.expect("an end") {
                return end;
            }
        }
    }
}

async fn until(what: &str, mut is_it: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_it() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

#[tokio::test]
async fn a_command_says_what_it_says_and_ends_as_it_ends() {
    let site = Site::new();
    assert_eq!(site.sh("echo out; echo err >&2; exit 3").await, (End::Code(3), "out\n".to_owned(), "err\n".to_owned()));
    until("the run is forgotten", || site.keepers.list().unwrap().is_empty()).await;
    assert_eq!(fs::read_dir(site.directory.path().join("scratch")).unwrap().count(), 0, "nothing of it is left");
    let other = Site::new();
    assert_eq!(other.sh("kill -KILL $$").await.0, End::Signal(9));
}

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
async fn what_cannot_run_is_told_before_anything_runs() {
    let site = Site::new();
    let id = site.start(&site.task(&["no-such-program"]));
    let mut user = site.attach(&id, [0; 2]).await;
    let end = user.until(|_, frame| matches!(frame, FromKeeper::Ready | FromKeeper::Ended(_))).await;
    let FromKeeper::Ended(End::Failed(why)) = end else { panic!("{end:?}") };
    assert!(why.starts_with("no-such-program: not found in PATH"), "{why}");
}

#[tokio::test]
async fn nothing_runs_before_the_word() {
    let site = Site::new();
    let mark = site.directory.path().join("open/mark");
    let id = site.start(&site.task(&["touch", mark.to_str().unwrap()]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.until(|_, frame| *frame == FromKeeper::Ready).await;
    assert_eq!(site.state(), Some(RunState::Waiting));
    site.keepers.end(&id, "another seat is not ready").unwrap();
    assert_eq!(user.end().await, End::Owner("another seat is not ready".to_owned()));
    assert!(!mark.exists());
}

#[tokio::test]
async fn a_number_is_used_once_whatever_becomes_of_the_run() {
    let site = Site::new();
    let mark = site.directory.path().join("open/mark");
    let task = site.task(&["sh", "-c", &format!("echo run >> {}", mark.display())]);
    assert_eq!(site.run(&task).await.0, End::Code(0));
    until("the run is forgotten", || site.keepers.list().unwrap().is_empty()).await;
    assert!(matches!(site.keepers.start(&task, now()), Err(RunError::Used { .. })));
    let again = Site::open(site.directory.path());
    assert!(matches!(again.start(&task, now()), Err(RunError::Used { .. })));
    let lower = Task { order: RunOrder { run: RunNumber(0), ..task.order.clone() }, ..task.clone() };
    assert!(matches!(again.start(&lower, now()), Err(RunError::Used { .. })));
    assert!(matches!(again.connect(&RunId::of(&task)), Err(RunError::Unknown)));
    assert_eq!(fs::read_to_string(mark).unwrap(), "run\n");
    let late = Task { order: RunOrder { run: RunNumber(2), ..task.order.clone() }, deadline: now(), ..task };
    assert!(matches!(again.start(&late, now()), Err(RunError::Late(_))));
}

#[tokio::test]
async fn a_run_goes_on_without_its_node_and_is_found_again() {
    let site = Site::new();
    let task = site.task(&["sh", "-c", "echo one; read line; echo $line; exit 7"]);
    let task = Task { order: RunOrder { has_stdin: true, ..task.order }, ..task };
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("one").await;
    drop(user);
    let node = Site::open(site.directory.path());
    assert!(matches!(node.list().unwrap()[0].state, RunState::Running { .. }));
    assert!(matches!(node.start(&task, now()), Err(RunError::Known(_))));
    let mut user = site.attach(&id, [4, 0]).await;
    user.send(&ToKeeper::Stdin { offset: 0, data: Data(b"two\n".to_vec()) }).await;
    assert_eq!(user.end().await, End::Code(7));
    assert_eq!(user.said[0], b"two\n", "from where the first one was");
    drop(user);
    // The end is told as often as it is asked for, also by a keeper that is started for it.
    let keeper = site.pid_in("lock");
    kill(keeper, Signal::SIGKILL).unwrap();
    until("the keeper is gone", || !is_alive(keeper.as_raw().unsigned_abs())).await;
    let mut user = site.attach(&id, [0; 2]).await;
    assert_eq!(user.end().await, End::Code(7));
    assert_eq!(user.said[0], b"one\ntwo\n");
}

#[tokio::test]
async fn a_run_whose_keeper_is_killed_is_lost_and_over() {
    let site = Site::new();
    let task = site.task(&["sh", "-c", "setsid sleep 1000 & echo $!; exec sleep 1000"]);
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("\n").await;
    let left: u32 = String::from_utf8_lossy(&user.said[0]).trim().parse().unwrap();
    let pid = user.pid.unwrap();
    kill(site.pid_in("lock"), Signal::SIGKILL).unwrap();
    until("the command ends with its keeper", || !is_alive(pid)).await;
    until("it is known to be lost", || site.state() == Some(RunState::Ended(End::Lost))).await;
    let node = Site::open(site.directory.path());
    until("what it had left ends when the node starts", || !is_alive(left)).await;
    assert!(matches!(node.start(&task, now()), Err(RunError::Known(_))), "and it is not run again");
    let mut user = site.attach(&id, [0; 2]).await;
    assert_eq!(user.end().await, End::Lost);
}

#[tokio::test]
async fn nothing_outlives_the_command_or_holds_its_end_up() {
    let site = Site::new();
    let (end, stdout, _) =
        site.sh("setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1000; done' & sleep 1000 & echo $!; exit 4").await;
    assert_eq!(end, End::Code(4));
    assert!(!is_alive(stdout.trim().parse().unwrap()));
}

#[tokio::test]
async fn a_window_ends_to_the_second_whatever_the_command_does() {
    let site = Site::new();
    let task = site.task(&[
        "sh",
        "-c",
        "trap 'echo told' TERM; (trap '' TERM; setsid sleep 1000) & while :; do sleep 0.05; done",
    ]);
    let task = Task { deadline: now() + Span(4), grace: Duration::from_secs(1), ..task };
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("told").await;
    let deadline_ms = u64::try_from(task.deadline.0).unwrap() * 1000;
    assert!(now_ms() + 1100 >= deadline_ms, "not told before the grace begins");
    assert_eq!(user.end().await, End::WindowEnded);
    let over_ms = now_ms().saturating_sub(deadline_ms);
    assert!(now_ms() >= deadline_ms && over_ms < 1000, "{over_ms} ms over");
    assert!(!is_alive(user.pid.unwrap()));
}

#[tokio::test]
async fn an_owner_ends_a_run_with_words_that_its_user_reads_and_may_move_the_end() {
    let site = Site::new();
    let id = site.start(&site.task(&["sleep", "1000"]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.until(|_, frame| matches!(frame, FromKeeper::Started { .. })).await;
    site.keepers.set_deadline(&id, now() + Span(1200)).unwrap();
    site.keepers.end(&id, "I need it").unwrap();
    assert_eq!(user.end().await, End::Owner("I need it".to_owned()));
    assert!(matches!(site.keepers.end(&id, "again"), Err(RunError::Over)));
}

#[tokio::test]
async fn signals_arrive() {
    let site = Site::new();
    let id = site.start(&site.task(&["sh", "-c", "trap 'exit 12' USR1; echo up; while :; do sleep 0.05; done"]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("up").await;
    user.send(&ToKeeper::Signal(10)).await;
    assert_eq!(user.end().await, End::Code(12));
}

#[tokio::test]
async fn input_flows_at_the_pace_of_the_command_and_none_is_lost() {
    let site = Site::new();
    let task = site.task(&["sh", "-c", "sleep 0.2; sha256sum; exit 5"]);
    let id = site.start(&Task { order: RunOrder { has_stdin: true, ..task.order }, ..task });
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    let piece = vec![b'x'; 60_000];
    let total = 200 * piece.len() as u64;
    let mut offset = 0;
    while offset < total {
        while offset + piece.len() as u64 > user.stdin_given.unwrap_or(0) + STDIN_BYTES_AHEAD_MAX {
            user.next().await.unwrap();
        }
        user.send(&ToKeeper::Stdin { offset, data: Data(piece.clone()) }).await;
        offset += piece.len() as u64;
    }
    user.send(&ToKeeper::StdinEnd).await;
    assert_eq!(user.end().await, End::Code(5));
    let expected = std::process::Command::new("sh")
        .args(["-c", "head -c 12000000 /dev/zero | tr '\\0' x | sha256sum"])
        .output()
        .unwrap();
    assert_eq!(user.said[0], expected.stdout);
}

#[tokio::test]
async fn whoever_sends_too_far_ahead_is_cut_off_and_the_run_goes_on() {
    let site = Site::new();
    let task = site.task(&["sh", "-c", "sleep 1000"]);
    let id = site.start(&Task { order: RunOrder { has_stdin: true, ..task.order }, ..task });
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.send(&ToKeeper::Stdin { offset: 1 << 40, data: Data(vec![1]) }).await;
    while user.next().await.is_some() {}
    let mut user = site.attach(&id, [0; 2]).await;
    user.until(|_, frame| matches!(frame, FromKeeper::Started { .. })).await;
}

#[tokio::test]
async fn a_terminal_is_one_and_takes_its_size() {
    let site = Site::new();
    let task =
        site.task(&["sh", "-c", "tty >/dev/null && stty size; echo up; read line; stty size; echo got $line; exit 6"]);
    let terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let id = site.start(&Task { order: RunOrder { terminal, ..task.order }, ..task });
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("up").await;
    user.send(&ToKeeper::Resize(TerminalSize { rows: 50, columns: 132 })).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    user.send(&ToKeeper::Stdin { offset: 0, data: Data(b"x\n".to_vec()) }).await;
    assert_eq!(user.end().await, End::Code(6));
    let said = String::from_utf8_lossy(&user.said[0]).replace('\r', "");
    assert!(said.starts_with("24 80\nup\n") && said.ends_with("50 132\ngot x\n"), "{said}");
}

#[tokio::test]
async fn output_of_nobody_is_bounded_on_disk_and_its_gap_is_named() {
    let site = Site::new();
    let total = 200_000_000;
    let id = site.start(&site.task(&["sh", "-c", &format!("seq 1 30000000 | head -c {total}; echo done >&2")]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.until(|_, frame| matches!(frame, FromKeeper::Started { .. })).await;
    drop(user);
    until("it ends", || matches!(site.state(), Some(RunState::Ended(_)))).await;
    let kept: u64 = fs::read_dir(site.only_run()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(kept < 3 << 20, "{kept} bytes");
    let mut user = site.attach(&id, [0; 2]).await;
    assert_eq!(user.end().await, End::Code(0));
    let head: u64 = 64 * 1024;
    assert_eq!((user.gaps.len(), user.gaps[0].0, user.has[0]), (1, head, total));
    let expected = std::process::Command::new("sh")
        .args(["-c", &format!("seq 1 30000000 | head -c {total} | tail -c {}", total - user.gaps[0].1)])
        .output()
        .unwrap();
    assert!(user.said[0][usize::try_from(head).unwrap()..] == expected.stdout);
    assert_eq!(user.said[Output::Stderr as usize], b"done\n");
}

#[tokio::test]
async fn output_of_one_who_breaks_off_and_comes_back_is_whole() {
    let site = Site::new();
    let total: u64 = 30_000_000;
    // The spool has room for all that is said while nobody is attached.
    let task = Task { spool_bytes: 64 << 20, ..site.task(&["sh", "-c", &format!("seq 1 30000000 | head -c {total}")]) };
    let id = site.start(&task);
    let (mut has, mut said, mut breaks) = (0, Vec::new(), 0);
    loop {
        let mut user = site.attach(&id, [has, 0]).await;
        if breaks == 0 {
            user.go().await;
        }
        let until = has + 3_000_000;
        let frame = user.until(|user, frame| user.has[0] >= until || matches!(frame, FromKeeper::Ended(_))).await;
        has = user.has[0];
        said.append(&mut user.said[0]);
        assert_eq!(user.gaps, []);
        breaks += 1;
        if let FromKeeper::Ended(end) = frame {
            assert_eq!(end, End::Code(0));
            break;
        }
    }
    let expected =
        std::process::Command::new("sh").args(["-c", &format!("seq 1 30000000 | head -c {total}")]).output().unwrap();
    assert!(breaks > 5 && said == expected.stdout, "{breaks} breaks, {} bytes", said.len());
}

#[tokio::test]
async fn one_who_is_attached_loses_nothing_of_more_than_the_spool_holds() {
    let site = Site::new();
    let id = site.start(&site.task(&["sh", "-c", "seq 1 30000000 | head -c 20000000"]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(user.end().await, End::Code(0));
    assert_eq!((user.gaps, user.said[0].len()), (vec![], 20_000_000));
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
    let script = "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c; i=0; while [ $i -lt 60 ]; do sleep 30 & i=$((i+1)); done; echo all";
    let task = site.task(&["sh", "-c", script]);
    let confinement = Confinement { memory_mib: Some(64), processes_max: 40, ..task.confinement.clone() };
    let (_, stdout, stderr) = site.run(&Task { confinement, ..task }).await;
    assert_eq!(stdout, "0\n", "{stderr}");
    assert!(stderr.contains("memory exhausted") && stderr.contains("fork"), "{stderr}");
}

/// A task in a sandbox, where this machine has one.
fn in_sandbox(site: &Site, script: &str) -> Option<Task> {
    let task = site.task(&["sh", "-c", script]);
    let task = Task { confinement: Confinement { runner: Runner::Bubblewrap, ..task.confinement.clone() }, ..task };
    match task.confinement.check() {
        Ok(_) => Some(task),
        Err(why) => {
            let line = format!("{}: {why}\n", std::thread::current().name().unwrap_or("keeper"));
            eprint!("SKIPPED: {line}");
            if let Some(list) = std::env::var_os("KOLO_SKIPPED") {
                let file = fs::File::options().create(true).append(true).open(list);
                file.and_then(|mut file| file.write_all(line.as_bytes())).unwrap();
            }
            None
        }
    }
}

#[tokio::test]
async fn a_sandbox_shows_nothing_of_the_machine_and_tells_ends_as_they_are() {
    let site = Site::new();
    let script = "ls /home /root /var /run/user 2>/dev/null | wc -l; ls /proc | grep -c '^[0-9]'; cat /proc/net/dev | wc -l; pwd; echo x > here; exit 9";
    let Some(task) = in_sandbox(&site, script) else { return };
    let (end, stdout, stderr) = site.run(&task).await;
    assert_eq!(end, End::Code(9), "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    let processes: u32 = lines[1].parse().unwrap();
    // Two lines of titles, and the loopback.
    assert!(lines[0] == "0" && processes < 10 && lines[2] == "3", "{stdout}");
    let command = ["sh", "-c", "kill -KILL $$"].map(str::to_owned).into();
    let next = Task { order: RunOrder { run: RunNumber(2), command, ..task.order.clone() }, ..task };
    assert_eq!(site.run(&next).await.0, End::Signal(9));
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
async fn a_command_that_ends_well_because_its_window_ends_was_out_of_time() {
    let site = Site::new();
    let task = site.task(&["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"]);
    assert_eq!(site.run(&Task { deadline: now() + Span(3), ..task }).await.0, End::WindowEnded);
}

#[tokio::test]
async fn an_owner_is_heard_however_many_users_are_attached_and_whatever_they_say() {
    let site = Site::new();
    let id = site.start(&site.task(&["sleep", "1000"]));
    let mut users = vec![site.attach(&id, [0; 2]).await];
    users[0].go().await;
    users[0].until(|_, frame| matches!(frame, FromKeeper::Started { .. })).await;
    users[0].send(&ToKeeper::Acknowledge { stdout: u64::MAX, stderr: u64::MAX }).await;
    for _ in 1..8 {
        let mut user = site.attach(&id, [0; 2]).await;
        user.until(|_, frame| matches!(frame, FromKeeper::Started { .. })).await;
        users.push(user);
    }
    let mut stream = site.keepers.connect(&id).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(std::io::Read::read(&mut stream, &mut [0]).unwrap_or(0), 0, "there is no place for one more");
    site.keepers.end(&id, &"x".repeat(20_000)).unwrap();
    for mut user in users {
        let End::Owner(why) = user.end().await else { panic!("it was not its owner") };
        assert_eq!(why.len(), 1024);
    }
}

#[tokio::test]
async fn the_oldest_ends_make_room_for_more() {
    let site = Site::new();
    let task = site.task(&["true"]);
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    assert_eq!(user.end().await, End::Code(0));
    let first = site.only_run();
    for number in 2..=64 {
        let copy = first.with_file_name(number.to_string());
        fs::create_dir(&copy).unwrap();
        for file in ["task", "ended"] {
            fs::copy(first.join(file), copy.join(file)).unwrap();
        }
    }
    site.start(&Task { order: RunOrder { run: RunNumber(100), ..task.order.clone() }, ..task });
    assert!(!first.exists() && site.keepers.list().unwrap().len() == 64);
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

#[tokio::test]
async fn a_keeper_that_is_killed_before_the_word_is_replaced_and_its_command_runs_once() {
    let site = Site::new();
    let id = site.start(&site.task(&["sh", "-c", "echo once"]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.until(|_, frame| *frame == FromKeeper::Ready).await;
    let keeper = site.pid_in("lock");
    kill(keeper, Signal::SIGKILL).unwrap();
    until("the keeper is gone", || !is_alive(keeper.as_raw().unsigned_abs())).await;
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    assert_eq!(user.end().await, End::Code(0));
    assert_eq!(user.said[0], b"once\n");
    assert_eq!(fs::read_dir(site.directory.path().join("scratch")).unwrap().count(), 0);
}

/// What a user sees who comes back until he knows the end.
async fn end_through_breaks(site: &Site, id: &RunId) -> End {
    for _ in 0..100 {
        let Ok(stream) = site.keepers.connect(id) else { continue };
        stream.set_nonblocking(true).unwrap();
        let (read, mut write) = UnixStream::from_std(stream).unwrap().into_split();
        let mut frames = FrameReader::new(read);
        let attach = encode(&ToKeeper::Attach { from_stdout: 0, from_stderr: 0 }).unwrap();
        let _ = write.write_all(&attach).await;
        while let Ok(Ok(Some(frame))) = timeout(PATIENCE, frames.next::<FromKeeper>()).await {
            match frame {
                FromKeeper::Ready => drop(write.write_all(&encode(&ToKeeper::Go).unwrap()).await),
                FromKeeper::Ended(end) => {
                    let _ = write.write_all(&encode(&ToKeeper::EndSeen).unwrap()).await;
                    return end;
                }
                _ => {}
            }
        }
    }
    panic!("no end after 100 tries");
}

#[tokio::test]
async fn runs_whose_keepers_are_killed_at_any_moment_run_once_at_most_and_never_seem_to_succeed() {
    let site = Site::new();
    let (mut lost, mut done) = (0, 0);
    for number in 1..=60_u64 {
        let mark = site.directory.path().join(format!("open/mark-{number}"));
        let script = format!("echo begun >> {0}; sleep 0.03; echo ended >> {0}", mark.display());
        let task = site.task(&["sh", "-c", &script]);
        let id = site.start(&Task { order: RunOrder { run: RunNumber(number), ..task.order }, ..task });
        let lock = site.directory.path().join("runs");
        let killer = std::thread::spawn(move || {
            // Between nothing and longer than the run takes, in steps that do not repeat.
            std::thread::sleep(Duration::from_micros(number * 7919 % 60 * 2000));
            let seat = fs::read_dir(lock).unwrap().next().unwrap().unwrap().path();
            let noted = fs::read_to_string(seat.join(number.to_string()).join("lock")).unwrap_or_default();
            let pid = noted.split_once("\"pid\":").and_then(|(_, rest)| rest.split(',').next()?.parse().ok());
            pid.map(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL))
        });
        let end = end_through_breaks(&site, &id).await;
        let _ = killer.join().unwrap();
        let marks = fs::read_to_string(&mark).unwrap_or_default();
        match end {
            End::Code(0) => {
                assert_eq!(marks, "begun\nended\n", "run {number}");
                done += 1;
            }
            End::Lost => {
                assert!(["", "begun\n", "begun\nended\n"].contains(&marks.as_str()), "run {number}: {marks}");
                lost += 1;
            }
            other => panic!("run {number}: {other:?}, {marks}"),
        }
    }
    assert!(lost > 5 && done > 5, "{lost} lost, {done} done: the kills hit nothing, or everything");
}
