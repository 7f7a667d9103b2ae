//! The command as a process: prepared, started once, told to end, ended with everything that it has started.

use std::{
    fs::File,
    io,
    os::{
        fd::AsRawFd as _,
        unix::{
            fs::{OpenOptionsExt as _, chown},
            process::ExitStatusExt as _,
        },
    },
    path::Path,
    pin::pin,
    process::ExitStatus,
    rc::Rc,
    time::{Duration, Instant},
};

use kolo_runtime::clock::unix_ms;
use nix::{
    libc::{O_DIRECTORY, O_NOFOLLOW, SIGKILL},
    sys::{
        resource::{UsageWho, getrusage},
        signal::{Signal, killpg},
        time::{TimeVal, TimeValLike as _},
    },
    unistd::{Gid, Pid, Uid, fchown, mkdtemp},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};

use super::{
    clock::present_ms,
    complain, environment, launch,
    state::{Keeper, Phase, State, Stop},
    streams::{self, Streams},
};
use crate::{
    cgroup::{self, Cgroup},
    confine::Runner,
    directory::{Started, Task},
    files::{serve, tree::Tree},
    frame::{End, REASON_BYTES_MAX, reason},
    podman::Place,
    processes, unit,
    used::{self, RunUse},
};

/// How long preparing may take.
const PREPARE_MAX: Duration = Duration::from_secs(20);
/// How long it may take from the word until it has become the command: a sandbox is made meanwhile.
const BECOME_MAX: Duration = Duration::from_secs(20);
/// How long it may take until that which a command has said is read when it has ended.
const SAID_MAX: Duration = Duration::from_secs(1);
/// How long a prepared command waits for the word, beside the time that other seats may take to put its files in place.
const WORD_MAX: Duration = Duration::from_secs(120);
/// How often the clock of the machine is looked at, which may be set, or stand still while the machine sleeps.
const TICK: Duration = Duration::from_secs(1);
/// The shortest wait between two looks.
const WAIT_MIN: Duration = Duration::from_millis(5);
/// The longest grace of a command whose user may run nothing any more.
const DENIED_GRACE_MAX: Duration = Duration::from_secs(1);
/// How long processes are killed. Only one that the system itself holds survives that.
const KILL_MAX: Duration = Duration::from_secs(10);
/// How long they may take at all, however long somebody who is attached holds them up.
const DRAIN_MAX: Duration = Duration::from_secs(120);
/// How long the outputs may still take when every process is gone and nobody holds them up.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The highest number of a signal.
const SIGNAL_MAX: i32 = 64;

/// Runs the task to its end, which is on disk when this returns, like everything that the command has said.
pub async fn run(keeper: &Rc<Keeper>, task: &Task) -> End {
    let end = match prepare(keeper, task).await {
        Ok(prepared) => prepared.run(keeper, task).await,
        Err(why) => End::Failed(reason(&why)),
    };
    kill_all(keeper, 0).await;
    remove_left(keeper, task);
    if !matches!(keeper.directory.ended(), Ok(Some(_))) {
        keep_end(keeper, &end);
    }
    end
}

/// Removes what was made for the command.
fn remove_left(keeper: &Keeper, task: &Task) {
    // What cannot be removed is the owner's to look at.
    let _ = keeper.directory.leave_scratch(task.order.keeps_files);
    if let Some(Err(error)) = keeper.cgroup.get().map(Cgroup::end) {
        complain(format_args!("the cgroup stays: {error}"));
    }
}

fn keep_end(keeper: &Keeper, end: &End) {
    if let Err(error) = keeper.directory.write_ended(end) {
        complain(format_args!("the end {end:?} cannot be kept: {error}"));
    }
}

/// What the command has used, for the site's owner; asked before its cgroup is removed.
fn use_of(keeper: &Keeper, task: &Task, started_ms: u64) -> used::Line {
    let of_cgroup = keeper.cgroup.get().and_then(Cgroup::cpu_ms).or(keeper.cpu_ms.get());
    let cpu_ms = of_cgroup.or_else(waited_for_cpu_ms).unwrap_or(0);
    let (order, user) = (&task.order, task.user);
    let (request, seat, run) = (order.request.clone(), order.seat, order.run.0);
    used::Line::Run(RunUse { user, request, seat, run, started_ms, ended_ms: unix_ms(), cpu_ms })
}

/// Writes a line of use down. Others may be writing, which takes a while.
async fn note_use(keeper: &Keeper, line: used::Line) {
    let run = keeper.directory.path().to_owned();
    let add = move || used::beside_run(&run).map_or(Ok(()), |beside| used::add(beside, &line));
    if let Ok(Err(error)) = tokio::task::spawn_blocking(add).await {
        complain(format_args!("what the command has used cannot be written down: {error}"));
    }
}

/// How long all processes were on processors that this one has waited for, in milliseconds.
fn waited_for_cpu_ms() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    let ms = |time: TimeVal| time.num_milliseconds();
    u64::try_from(ms(usage.user_time()) + ms(usage.system_time())).ok()
}

/// A command that waits at the barrier.
struct Prepared {
    process: Process,
    barrier: UnixStream,
    streams: Streams,
    /// How long it waits for the word.
    word_max: Duration,
}

/// What becomes the command, or starts it.
struct Process {
    child: Child,
    /// Its number; that of the first process of a unit, which is no child.
    pid: u32,
    /// That one tells by this how the command has ended, and ends with it.
    unit: Option<UnixStream>,
}

async fn prepare(keeper: &Rc<Keeper>, task: &Task) -> Result<Prepared, String> {
    let failed = |doing: &'static str| move |error: io::Error| format!("{doing}: {error}");
    clear(keeper).map_err(failed("what a keeper before this one has left cannot be removed"))?;
    let owner = task.confinement.owner().map_err(|error| error.to_string())?;
    let word_max = WORD_MAX + make_scratch(keeper, task, owner).await?;
    make_cgroup(keeper, task).map_err(|why| format!("there is no cgroup: {why}"))?;
    let (streams, given) = streams::make(&task.order, owner).map_err(failed("it gets no streams"))?;
    let barrier = UnixListener::bind("barrier").map_err(failed("there is no barrier"))?;
    let is_unit = keeper.runner == Runner::Systemd;
    if let Some((uid, gid)) = owner.filter(|_| is_unit) {
        chown("barrier", Some(uid.as_raw()), Some(gid.as_raw())).map_err(failed("there is no barrier"))?;
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg("keeper").arg("--launch").arg(keeper.directory.path());
    command.stdin(given.stdin).stdout(given.stdout).stderr(given.stderr);
    let mut child = command.spawn().map_err(failed("it cannot be started"))?;
    // The command holds ends of the pipes, which must close with the child.
    drop(command);
    let mut pid = child.id().ok_or("it has ended at once")?;
    let own = i32::try_from(pid).ok();
    let mut at_barrier = pin!(timeout(PREPARE_MAX, async {
        let mut came = loop {
            let (came, _) = barrier.accept().await?;
            // What a keeper before this one has started may come here late.
            if is_unit || came.peer_cred()?.pid() == own {
                break came;
            }
        };
        let word = came.read_u8().await?;
        let unit = if is_unit && word == launch::READY { Some(barrier.accept().await?.0) } else { None };
        Ok::<_, io::Error>((came, word, unit))
    }));
    let at_barrier = tokio::select! {
        at_barrier = &mut at_barrier => at_barrier,
        // What it has said before its end is still to be read.
        status = child.wait() => match timeout(SAID_MAX, at_barrier).await {
            Ok(Ok(Ok(said))) => Ok(Ok(said)),
            _ => return Err(format!("it ended before it was prepared: {}", why_not(keeper, &streams, status))),
        },
    };
    let (mut barrier, word, unit) = match at_barrier {
        Ok(came) => came.map_err(failed("it was not prepared"))?,
        Err(_) => return Err(format!("it was not prepared in {} s", PREPARE_MAX.as_secs())),
    };
    if word != launch::READY {
        return Err(rest_of(&mut barrier).await);
    }
    if let Some(unit) = &unit {
        let first = unit.peer_cred().map_err(failed("its unit is not known"))?.pid();
        pid = first.and_then(|first| u32::try_from(first).ok()).ok_or("its unit has no process")?;
    }
    Ok(Prepared { process: Process { child, pid, unit }, barrier, streams, word_max })
}

fn why_not(keeper: &Keeper, streams: &Streams, status: io::Result<ExitStatus>) -> String {
    let unit = keeper.cgroup.get().filter(|_| keeper.runner == Runner::Systemd).and_then(Cgroup::name);
    match (status, unit) {
        (Ok(status), Some(unit)) => unit::why_not(status, &streams.complaints(), unit),
        (status, _) => format!("{status:?}"),
    }
}

/// Removes what a keeper has prepared that ended before the word: its command has ended with it.
fn clear(keeper: &Keeper) -> io::Result<()> {
    if let Some(cgroup) = keeper.directory.cgroup().map_err(io::Error::other)? {
        cgroup.end().map_err(io::Error::other)?;
    }
    let removed = [keeper.directory.remove_scratch(), std::fs::remove_file("barrier")];
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    removed
        .into_iter()
        .try_for_each(|removed| removed.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) }))
}

/// The scratch directory, with the list of hosts and the files of the order in it, of the user that the command runs as. How long other
/// seats may take for the files.
async fn make_scratch(keeper: &Keeper, task: &Task, owner: Option<(Uid, Gid)>) -> Result<Duration, String> {
    let failed = |error: io::Error| format!("there is no scratch directory: {error}");
    let scratch = new_scratch(keeper, task, owner).map_err(failed)?;
    let mut placing = Duration::ZERO;
    if let (Some(store), Some(manifest)) = (task.files.clone(), task.order.files) {
        let tree = Tree::of_new_seat(&scratch, owner).map_err(failed)?;
        // Whoever is attached meanwhile hears that the keeper is there.
        let placed = tokio::task::spawn_blocking(move || serve::place(&store, &manifest, &tree)).await;
        placing = placed.map_err(|error| error.to_string())?.map_err(|error| format!("its files: {error}"))?;
    }
    if let Some((uid, gid)) = owner {
        fchown(&scratch, Some(uid), Some(gid)).map_err(|error| failed(error.into()))?;
    }
    Ok(placing)
}

/// A new directory with the list of hosts, still of the keeper's own user.
fn new_scratch(keeper: &Keeper, task: &Task, owner: Option<(Uid, Gid)>) -> io::Result<File> {
    let scratch = mkdtemp(&task.scratch_in.join("kolo-run-XXXXXX"))?;
    keeper.directory.write_scratch(&scratch).map_err(io::Error::other)?;
    place(keeper).map_or(Ok(()), |place| place.make(owner))?;
    // By descriptor from here on: whoever may write beside it may put another one in its place.
    let opened = File::options().read(true).custom_flags(O_DIRECTORY | O_NOFOLLOW).open(&scratch)?;
    let hostfile = environment::write_hostfile(task, &Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string()))?;
    if let Some((uid, gid)) = owner {
        fchown(&hostfile, Some(uid), Some(gid))?;
    }
    Ok(opened)
}

/// The cgroup, which the command goes into while it is prepared; systemd makes that of a unit.
fn make_cgroup(keeper: &Keeper, task: &Task) -> Result<(), String> {
    // No other process of this machine is called that until it starts anew, and then there are no cgroups of before.
    let pid = std::process::id();
    let name = format!("{pid}-{}", processes::started_ticks(pid).unwrap_or_default());
    let path = match (keeper.runner, &task.confinement.cgroups) {
        (Runner::Systemd, _) => {
            cgroup::of_unit(&format!("kolo-run-{name}.service")).map_err(|error| error.to_string())?
        }
        (_, Some(place)) => place.join(name),
        (_, None) => return Ok(()),
    };
    keeper.directory.write_cgroup(&path).map_err(|error| error.to_string())?;
    let cgroup = keeper.cgroup.get_or_init(|| Cgroup::at(path));
    match keeper.runner {
        Runner::Systemd => Ok(()),
        _ => cgroup.make(task.confinement.limits()).map_err(|error| error.to_string()),
    }
}

/// What is said at the barrier, to its end.
async fn rest_of(barrier: &mut UnixStream) -> String {
    let mut said = Vec::new();
    let _ = barrier.take(REASON_BYTES_MAX as u64).read_to_end(&mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

impl Prepared {
    async fn run(mut self, keeper: &Rc<Keeper>, task: &Task) -> End {
        keeper.change(|state| state.phase = Phase::Ready);
        if let Some(end) = self.wait_for_word(keeper).await {
            return end;
        }
        if let Err(why) = self.start(keeper).await {
            return End::Failed(reason(&why));
        }
        let started_ms = unix_ms();
        let copied = tokio::task::spawn_local(self.streams.copy(keeper.clone()));
        let pid = self.process.pid;
        let (status, stopped) = self.process.watch(keeper, task).await;
        // Nothing is awaited before this, so that no signal goes to a number that is free.
        keeper.change(|state| state.phase = Phase::Ending { pid });
        let was_out_of_memory = keeper.cgroup.get().is_some_and(Cgroup::was_out_of_memory);
        kill_all(keeper, pid).await;
        let end = match &status {
            // The sandbox has ended by itself, and the command has not run in it.
            Ok(status) if stopped.is_none() && status.code().is_some() && !has_run(keeper) => {
                End::Failed(format!("{} could not start it; standard error says why", keeper.runner.as_str()))
            }
            _ => end_of(status, (stopped, was_out_of_memory), task.confinement.runner),
        };
        let end = broken_or(end, keeper);
        // Known from here on, whatever becomes of the last words.
        keep_end(keeper, &end);
        let line = use_of(keeper, task, started_ms);
        remove_left(keeper, task);
        tokio::join!(drain(keeper, copied), note_use(keeper, line));
        let whole = broken_or(end.clone(), keeper);
        if whole != end {
            // The last words were lost.
            keep_end(keeper, &whole);
        }
        whole
    }

    /// Waits for the user's word; the end when it is not to start. Whether the order holds was judged when the site took it: its files may
    /// have taken longer since.
    async fn wait_for_word(&mut self, keeper: &Keeper) -> Option<End> {
        let waiting_since = Instant::now();
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                stop = keeper.until(|state| state.stop.clone()) => return Some(End::from(stop)),
                () = keeper.until(|state| state.may_start.then_some(())) => {
                    return (present_ms(&keeper.directory) >= deadline_ms(&keeper.state())).then_some(End::WindowEnded);
                }
                status = self.process.child.wait() => return Some(End::Failed(format!("it ended before it was started: {status:?}"))),
                _ = ticks.tick() => {}
            }
            if present_ms(&keeper.directory) >= deadline_ms(&keeper.state()) {
                return Some(End::WindowEnded);
            }
            if waiting_since.elapsed() > self.word_max {
                let why = format!("nobody gave the word to start in {} s", self.word_max.as_secs());
                return Some(End::Failed(why));
            }
        }
    }

    /// From here on the run has its one start.
    async fn start(&mut self, keeper: &Keeper) -> Result<(), String> {
        let pid = self.process.pid;
        let ticks = processes::started_ticks(pid).ok_or("it ended before it was started")?;
        keeper.directory.write_started(Started { pid, ticks }).map_err(|error| error.to_string())?;
        self.barrier.write_all(&[launch::GO]).await.map_err(|error| format!("it does not hear: {error}"))?;
        // The barrier closes when it has become the command.
        let said = timeout(BECOME_MAX, rest_of(&mut self.barrier)).await;
        let said = said.map_err(|_| format!("it has not become the command in {} s", BECOME_MAX.as_secs()))?;
        if let Some(why) = said.strip_prefix(char::from(launch::FAILED)) {
            return Err(why.to_owned());
        }
        let unit = keeper.cgroup.get().filter(|_| self.process.unit.is_some());
        if let Some(Err(error)) = unit.map(|cgroup| cgroup.spare(pid)) {
            complain(format_args!("one that wants more memory may not be told so: {error}"));
        }
        keeper.change(|state| state.phase = Phase::Running { pid });
        Ok(())
    }
}

impl Process {
    /// Waits until the command ends by itself or is ended; how, and why it was told to.
    async fn watch(&mut self, keeper: &Keeper, task: &Task) -> (io::Result<ExitStatus>, Option<End>) {
        let (pid, leader) = (self.pid, self.child.id().unwrap_or(0));
        let in_ms = |grace: Duration| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let grace_ms = in_ms(task.grace);
        let (mut told, mut has_more_to_reap): (Option<(End, u64)>, bool) = (None, false);
        let mut child_ended = match signal(SignalKind::child()) {
            Ok(signals) => signals,
            Err(error) => return (Err(error), None),
        };
        loop {
            let (now, stop, deadline) = {
                let state = keeper.state();
                (present_ms(&keeper.directory), state.stop.clone(), deadline_ms(&state))
            };
            let (is_told, is_denied) = (told.is_some(), matches!(stop, Some(Stop::Denied(_))));
            if !is_told && (stop.is_some() || now.saturating_add(grace_ms) >= deadline) {
                let why = stop.map_or(End::WindowEnded, End::from);
                told = Some((why, now.saturating_add(grace_ms).min(deadline)));
                send(keeper, pid, Signal::SIGTERM);
                // One that is stopped hears it only when it goes on.
                send(keeper, pid, Signal::SIGCONT);
            }
            if let Some((_, until)) = told.as_mut().filter(|_| is_denied) {
                *until = (*until).min(now.saturating_add(in_ms(DENIED_GRACE_MAX)));
            }
            let until = told.as_ref().map_or(deadline.saturating_sub(grace_ms), |(_, until)| *until);
            if told.is_some() && now >= until {
                kill_all(keeper, leader).await;
            }
            let longest = if has_more_to_reap { WAIT_MIN } else { TICK };
            let wait = Duration::from_millis(until.saturating_sub(now)).clamp(WAIT_MIN, longest);
            tokio::select! {
                status = self.ended() => return (status, told.map(|(why, _)| why)),
                _ = keeper.until(|state| (!is_told && state.stop.is_some()).then_some(())) => {}
                _ = child_ended.recv(), if !has_more_to_reap => has_more_to_reap = processes::reap_orphans(leader),
                () = sleep(wait) => has_more_to_reap = has_more_to_reap && processes::reap_orphans(leader),
            }
        }
    }

    /// Waits until the command has ended.
    async fn ended(&mut self) -> io::Result<ExitStatus> {
        let Some(unit) = &mut self.unit else { return self.child.wait().await };
        // It is said at once or not at all, when all in the unit was killed.
        let mut said = [0; 4];
        let status = unit.read_exact(&mut said).await.map_or(SIGKILL, |_| i32::from_ne_bytes(said));
        Ok(ExitStatus::from_raw(status))
    }
}

/// The end of a command, unless its output could not be kept: what was said is not whole then, which is no success, and a command whose
/// output nobody takes fails for that.
fn broken_or(end: End, keeper: &Keeper) -> End {
    match (&end, keeper.state().stop.clone()) {
        (End::Code(_) | End::Signal(_), Some(stop @ Stop::Broken(_))) => End::from(stop),
        _ => end,
    }
}

fn deadline_ms(state: &State) -> u64 {
    u64::try_from(state.deadline.0).unwrap_or(0).saturating_mul(1000)
}

/// Sends a signal to the command and its group; what stands around it does not get it.
pub fn send(keeper: &Keeper, pid: u32, signal: Signal) {
    let container = place(keeper).and_then(|place| place.init());
    match (keeper.runner, container, i32::try_from(pid)) {
        // The sandbox is two processes, the second of which starts the command.
        (Runner::Bubblewrap, ..) => processes::signal_below(pid, 2, signal),
        (Runner::Podman, Some(init), _) => processes::signal_below(init, 1, signal),
        (Runner::Systemd, ..) => keeper.cgroup.get().into_iter().for_each(|cgroup| cgroup.signal(signal, pid)),
        (Runner::None | Runner::Podman, _, Ok(group)) => {
            // An error says that nobody is left to be told.
            let _ = killpg(Pid::from_raw(group), signal);
        }
        (Runner::None | Runner::Podman, _, Err(_)) => {}
    }
}

/// Where podman works for the run; nothing is read where it does not.
fn place(keeper: &Keeper) -> Option<Place> {
    match keeper.runner {
        Runner::Podman => keeper.directory.scratch().ok().flatten().map(|scratch| Place::of(&scratch)),
        Runner::None | Runner::Bubblewrap | Runner::Systemd => None,
    }
}

/// Kills everything in the cgroup of the command and below the keeper, and sees it gone.
async fn kill_all(keeper: &Keeper, leader: u32) {
    let began = Instant::now();
    let cgroup = keeper.cgroup.get();
    // systemd removes that of a unit when nothing is in it.
    keeper.cpu_ms.set(cgroup.and_then(Cgroup::cpu_ms).or(keeper.cpu_ms.get()));
    let is_left = || {
        cgroup.inspect(|cgroup| cgroup.kill());
        processes::kill_descendants(leader) > 0 || cgroup.is_some_and(Cgroup::is_used)
    };
    while is_left() {
        if began.elapsed() > KILL_MAX {
            complain(format_args!("some processes of the command cannot be killed"));
            return;
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Whether the command has run, as what stands around it says.
fn has_run(keeper: &Keeper) -> bool {
    let said = || std::fs::read_to_string(keeper.directory.file(launch::SANDBOX_STATUS));
    match keeper.runner {
        Runner::None | Runner::Systemd => true,
        Runner::Bubblewrap => said().is_ok_and(|said| said.contains("\"exit-code\"")),
        Runner::Podman => place(keeper).is_some_and(|place| place.init().is_some()),
    }
}

fn end_of(status: io::Result<ExitStatus>, (stopped, was_out_of_memory): (Option<End>, bool), runner: Runner) -> End {
    let status = match status {
        Ok(status) => status,
        Err(error) => return End::Broken(reason(&format!("it cannot be waited for: {error}"))),
    };
    // Some of what stands around it says as a shell does that a signal has ended the command.
    let is_like_shell = matches!(runner, Runner::Bubblewrap | Runner::Podman);
    let as_shell = |code: i32| Some(code - 128).filter(|signal| is_like_shell && (1..=SIGNAL_MAX).contains(signal));
    let signal = status.signal().or_else(|| status.code().and_then(as_shell));
    let code = status.code().filter(|_| signal.is_none());
    match (stopped, code, signal) {
        // It was told to end, so whatever it says is not how it would have ended.
        (Some(why), ..) => why,
        (None, None, Some(SIGKILL)) if was_out_of_memory => End::OutOfMemory,
        (None, Some(code), _) => End::Code(code),
        (None, None, Some(signal)) => End::Signal(signal),
        (None, None, None) => End::Broken(format!("it ended as {status}")),
    }
}

/// Lets the outputs end. Everything that could write is gone, so they do, unless somebody attached holds them up.
async fn drain(keeper: &Keeper, mut copied: tokio::task::JoinHandle<()>) {
    let is_held = |state: &mut State| {
        use crate::frame::Output;
        [Output::Stdout, Output::Stderr].iter().any(|output| state.room(*output, Instant::now()) == 0)
    };
    let began = Instant::now();
    while timeout(LAST_WORDS, &mut copied).await.is_err() {
        if !is_held(&mut keeper.state()) || began.elapsed() > DRAIN_MAX {
            copied.abort();
            break;
        }
    }
    for spool in &keeper.state().spools {
        if let Err(error) = spool.sync() {
            complain(format_args!("the output cannot be put on disk: {error}"));
        }
    }
}

impl From<Stop> for End {
    fn from(stop: Stop) -> End {
        match stop {
            Stop::Owner(why) | Stop::Denied(why) => End::Owner(why),
            Stop::Broken(why) => End::Broken(reason(&why)),
            Stop::User => End::Failed("its user has given it up before it was started".to_owned()),
        }
    }
}
