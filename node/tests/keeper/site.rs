//! A site with nothing but keepers, and a user of it.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use broker::{
    ids::{HostId, RequestId, SeatNumber, SiteId},
    time::{Span, Time},
    trust::testing,
};
use kolo_seat::{
    Confinement, Keepers, RunId, RunNumber, RunOrder, RunState, Runner, Task,
    cgroup::prepare as prepare_cgroups,
    frame::{End, FrameReader, FromKeeper, ToKeeper, encode},
};
use nix::unistd::Pid;
use tokio::{
    io::AsyncWriteExt as _,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

/// What `scripts/test-cgroups` ends with where it cannot make a machine.
const SKIPPED: i32 = 77;
/// Longest wait for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn now() -> Time {
    Time(i64::try_from(now_ms() / 1000).unwrap())
}

pub fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Where this machine lets cgroups of runs be made.
pub fn cgroups() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND.get_or_init(|| prepare_cgroups().inspect_err(|error| eprintln!("{error}")).ok()).as_deref()
}

/// Says that the running test is skipped, and why, where nobody overlooks it.
pub fn skip(why: &str) {
    let line = format!("{}: {why}\n", std::thread::current().name().unwrap_or("keeper"));
    eprint!("SKIPPED: {line}");
    if let Some(list) = std::env::var_os("KOLO_SKIPPED") {
        let file = fs::File::options().create(true).append(true).open(list);
        file.and_then(|mut file| file.write_all(line.as_bytes())).unwrap();
    }
}

/// Runs tests of this binary on a machine inside of this one, by `scripts/test-cgroups` with these words.
pub fn passes_in_a_machine(words: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/test-cgroups");
    let tests = std::env::current_exe().unwrap();
    let done = Command::new(script).arg("--as-is").args(words).arg(tests).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    match done.status.code() {
        Some(SKIPPED) => skip(said.trim()),
        code => assert_eq!(code, Some(0), "{said}"),
    }
}

/// A site with nothing but keepers; what it has left running ends with it.
pub struct Site {
    pub directory: tempfile::TempDir,
    pub keepers: Keepers,
}

impl Site {
    pub fn new() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let keepers = Site::open(directory.path());
        Site { directory, keepers }
    }

    pub fn open(directory: &Path) -> Keepers {
        for (name, mode) in [(".", 0o755), ("scratch", 0o755), ("open", 0o777)] {
            fs::create_dir_all(directory.join(name)).unwrap();
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        Keepers::with_program(&directory.join("runs"), vec![env!("CARGO_BIN_EXE_kolo").into(), "keeper".into()])
            .unwrap()
    }

    pub fn task(&self, command: &[&str]) -> Task {
        let order = RunOrder {
            grid: testing::GRID.to_owned(),
            site: SiteId::new("s").unwrap(),
            request: RequestId::new("r").unwrap(),
            seat: SeatNumber(0),
            run: RunNumber(1),
            rank: 0,
            hosts: vec!["a".to_owned(), "b".to_owned()],
            command: command.iter().map(|&text| text.to_owned()).collect(),
            image: None,
            ssh_keys: vec![],
            environment: BTreeMap::new(),
            directory: None,
            terminal: None,
            has_stdin: false,
            files: None,
            keeps_files: false,
            peers: None,
            issued: now(),
            expires: now() + Span(600),
            nonce: "n".to_owned(),
        };
        Task {
            account: None,
            addresses: Vec::new(),
            order,
            user: testing::public(1),
            host: HostId::new("a").unwrap(),
            deadline: now() + Span(600),
            grace: Duration::from_secs(2),
            spool_bytes: 1 << 20,
            files: None,
            home: None,
            scratch_in: self.directory.path().join("scratch"),
            confinement: Confinement {
                runner: Runner::None,
                user: nix::unistd::geteuid().is_root().then(|| "nobody".to_owned()),
                paths: vec![self.directory.path().join("open")],
                has_network: false,
                memory_mib: None,
                cpu_millicores: None,
                processes_max: 200,
                cgroups: cgroups().map(Path::to_owned),
                images: vec![],
                image_store: None,
                has_nested_namespaces: false,
                uids: None,
            },
        }
    }

    pub fn start(&self, task: &Task) -> RunId {
        self.keepers.start(task, now()).unwrap()
    }

    pub async fn attach(&self, id: &RunId, from: [u64; 2]) -> User {
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
            ended: None,
        };
        user.send(&ToKeeper::Attach { from_stdout: from[0], from_stderr: from[1] }).await;
        user
    }

    /// Runs a command as its user does who gives the word when it is ready.
    pub async fn run(&self, task: &Task) -> (End, String, String) {
        let id = self.start(task);
        let mut user = self.attach(&id, [0; 2]).await;
        user.go().await;
        let end = user.end().await;
        user.send(&ToKeeper::EndSeen).await;
        let [stdout, stderr] = user.said.map(|said| String::from_utf8_lossy(&said).into_owned());
        (end, stdout, stderr)
    }

    pub async fn sh(&self, script: &str) -> (End, String, String) {
        self.run(&self.task(&["sh", "-c", script])).await
    }

    pub fn state(&self) -> Option<RunState> {
        self.keepers.list().unwrap().pop().map(|run| run.state)
    }

    /// The number in a file that a keeper leaves, and the file of the only run.
    pub fn pid_in(&self, name: &str) -> Pid {
        let text = fs::read_to_string(self.only_run().join(name)).unwrap();
        let pid = text.split_once("\"pid\":").unwrap().1;
        Pid::from_raw(pid[..pid.find([',', '}']).unwrap()].parse().unwrap())
    }

    pub fn only_run(&self) -> PathBuf {
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
pub struct User {
    frames: FrameReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
    pub said: [Vec<u8>; 2],
    pub has: [u64; 2],
    pub gaps: Vec<(u64, u64)>,
    pub stdin_given: Option<u64>,
    pub pid: Option<u32>,
    /// The end of one that was never ready.
    ended: Option<End>,
}

impl User {
    pub async fn send(&mut self, frame: &ToKeeper) {
        self.write.write_all(&encode(frame).unwrap()).await.unwrap();
    }

    pub async fn next(&mut self) -> Option<FromKeeper> {
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

    pub async fn acknowledge(&mut self) {
        let acknowledge = ToKeeper::Acknowledge { stdout: self.has[0], stderr: self.has[1] };
        // A keeper that has ended does not listen any more.
        let _ = self.write.write_all(&encode(&acknowledge).unwrap()).await;
    }

    pub async fn until(&mut self, mut is_it: impl FnMut(&User, &FromKeeper) -> bool) -> FromKeeper {
        loop {
            let frame = self.next().await.expect("the stream goes on");
            if is_it(self, &frame) {
                return frame;
            }
        }
    }

    pub async fn go(&mut self) {
        match self.until(|_, frame| matches!(frame, FromKeeper::Ready | FromKeeper::Ended(_))).await {
            FromKeeper::Ended(end) => self.ended = Some(end),
            _ => self.send(&ToKeeper::Go).await,
        }
    }

    pub async fn has_said(&mut self, text: &str) {
        self.until(|user, _| String::from_utf8_lossy(&user.said[0]).contains(text)).await;
    }

    pub async fn end(&mut self) -> End {
        if let Some(end) = self.ended.take() {
            return end;
        }
        loop {
            if let FromKeeper::Ended(end) = self.next().await.expect("an end") {
                return end;
            }
        }
    }
}

pub async fn until(what: &str, mut is_it: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_it() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // One whose first thread has ended holds its files and sockets as long as another one goes on.
    fields[0] != "Z" || fields[17] != "1"
}
