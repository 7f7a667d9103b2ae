//! The keepers of a site's seats, as its node uses them: started, found again, reached, ended.
//!
//! Each run has a directory `SEAT/RUN`, and each seat a file with the highest number that it has seen. Everything is found on disk, so a
//! node that starts knows what one before it has left running. Invariants: a number is used once, whatever crashes when; there are at most
//! [`RUNS_OF_SEAT_MAX`] runs of a seat, each within the bounds of its spools, and of a site and an account what [`places`](super::places) has.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use broker::{
    ids::{RequestId, SeatNumber},
    time::Time,
    trust::PublicKey,
};
use data_encoding::HEXLOWER;
use kolo_runtime::lock::locked;
use kolo_trust::{TrustFileError, files};
use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::{
    confine_error::ConfineError,
    directory::{DirectoryError, RunDirectory, RunState, Task},
    disk::{bytes_beside_beginnings, bytes_for_users, disk_full},
    files::serve::SeatFiles,
    frame::{End, reason},
    home::{self, Home},
    keeper::{
        connection::{OF_OWNER, OF_USER},
        environment,
        owner::{HEARD, OwnerWord},
    },
    last::{self, Last},
    order::{OrderError, RunNumber},
    places::{AccountRuns, NoPlace, PlacedRun, RunPlaces, by_account},
    processes,
    removal::remove_tree,
    seat_uid, used,
};

/// Most runs of one seat.
pub const RUNS_OF_SEAT_MAX: usize = 64;
/// How long an end that nobody asks for is kept.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// How long a keeper may take to answer its node.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long a keeper that cannot be reached may take to end: one that was killed lives for a moment.
const DYING_MAX: Duration = Duration::from_secs(1);
const DYING_PAUSE: Duration = Duration::from_millis(10);
/// The socket of a keeper.
const SOCKET: &str = "socket";
/// What a keeper complains of.
const LOG: &str = "log";

/// The name of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId {
    /// Whose it is.
    pub user: PublicKey,
    /// Of which reservation.
    pub request: RequestId,
    /// On which seat.
    pub seat: SeatNumber,
    /// Which one.
    pub run: RunNumber,
}

impl RunId {
    /// That of a task.
    pub fn of(task: &Task) -> RunId {
        let order = &task.order;
        RunId { user: task.user, request: order.request.clone(), seat: order.seat, run: order.run }
    }
}

/// One run of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRun {
    /// What was to be done.
    pub task: Task,
    /// How far it is.
    pub state: RunState,
}

/// Why a run is not started, or not reached.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No site could run it.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The machine cannot confine it.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The window or the order is over.
    #[error("it is too late to start it: {0}")]
    Late(&'static str),
    /// The very run is there; ask it.
    #[error("run {0} of this seat was started before")]
    Known(RunNumber),
    /// The number was used, or may have been.
    #[error("run {0} of this seat is not started: that number was used, or is too low to tell; take a higher one")]
    Used(RunNumber),
    /// The seat has too many.
    #[error(
        "the seat has {0} of at most {RUNS_OF_SEAT_MAX} runs, and none of them has ended; one that ends frees its place (kolo ps)"
    )]
    SeatFull(usize),
    /// The account, or the site, has too many.
    #[error("{0}")]
    Full(NoPlace),
    /// There is no such run.
    #[error("there is no such run here; its end may have been fetched already")]
    Unknown,
    /// It is over, or its keeper is gone.
    #[error("the run has ended")]
    Over,
    /// Its directory is not there.
    #[error("the run has no files here: it waits for its start, or has ended and they were not to be kept")]
    NoFiles,
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] TrustFileError),
    /// The system refuses.
    #[error("{doing}: {source}")]
    System {
        /// What was done.
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

pub fn system(doing: &'static str) -> impl Fn(io::Error) -> RunError {
    move |source| RunError::System { doing, source }
}

/// All runs of a site.
#[derive(Debug)]
pub struct Keepers {
    root: PathBuf,
    /// What the name of a keeper's directory is added to.
    program: Vec<OsString>,
    /// Keepers that this process has started, to be taken off the system's list; held while a run is started.
    started: Mutex<Vec<Child>>,
    /// The account of each run, by its directory: read once, as an order may be long.
    accounts: Mutex<BTreeMap<PathBuf, PublicKey>>,
    /// Sum over all runs when they were last looked at for [`Keepers::kept_lately`].
    summed: Mutex<Option<(Instant, AccountRuns)>>,
}

impl Keepers {
    /// The runs that lie in `root`. What a crash has left of lost runs ends now.
    ///
    /// # Errors
    /// [`RunError`] when the directory cannot be used.
    pub fn open(root: &Path) -> Result<Keepers, RunError> {
        Keepers::with_program(root, vec!["/proc/self/exe".into(), "keeper".into()])
    }

    /// As [`Keepers::open`], with another program than this one, to whose arguments the directory of a run is added.
    ///
    /// # Errors
    /// As for [`Keepers::open`].
    pub fn with_program(root: &Path, program: Vec<OsString>) -> Result<Keepers, RunError> {
        files::open_directory(root)?;
        let (started, accounts, summed) = (Mutex::default(), Mutex::default(), Mutex::default());
        let keepers = Keepers { root: root.to_owned(), program, started, accounts, summed };
        for directory in keepers.directories(None)? {
            let _ = end_rest(&directory);
        }
        Ok(keepers)
    }

    /// Ends what the keeper of a run has left running, when it has died without ending it; whether nothing of the run is left to be ended.
    pub fn end_rest(&self, id: &RunId) -> bool {
        end_rest(&self.directory(id))
    }

    /// Starts the keeper of a run, whose command waits for its user's word. `now` decides whether it is too late. Blocks for some
    /// milliseconds: the number is on disk before anything else.
    ///
    /// # Errors
    /// [`RunError::Known`] when it was started before, and any other when it was not started.
    pub fn start(&self, task: &Task, now: Time) -> Result<RunId, RunError> {
        task.order.check()?;
        task.confinement.user()?;
        task.confinement.check_image(task.order.image.as_deref(), !task.order.ssh_keys.is_empty())?;
        if task.deadline <= now {
            return Err(RunError::Late("the window of the seat is over"));
        }
        if task.order.expires <= now {
            return Err(RunError::Late("the order has expired"));
        }
        let mut started = locked(&self.started);
        started.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let id = RunId::of(task);
        let directory = self.directory(&id);
        let seat = self.seat(&id);
        let mut last = Last::read(&seat)?.unwrap_or_default();
        if last.has_seen(id.run) {
            let is_this = directory.task().is_ok_and(|known| known.order == task.order);
            return Err(if is_this { RunError::Known(id.run) } else { RunError::Used(id.run) });
        }
        self.make_room(&seat, task, now)?;
        let for_users = File::open(&self.root).and_then(bytes_for_users);
        if for_users.map_err(system("the disk of the runs cannot be looked at"))? == 0 {
            return Err(system("a run cannot be kept")(disk_full()));
        }
        let mut task = task.clone();
        let is_new = Last::read(&seat)?.is_none();
        task.confinement.uids = seat_uid::of_seat(&seat, is_new, task.confinement.uids, &self.seats()?)?;
        last.add(id.run, task.deadline, now);
        last.write(&seat)?;
        if !task.order.ssh_keys.is_empty() {
            self.settle(&seat, &mut task)?;
        }
        directory.write_task(&task)?;
        started.push(self.spawn(&directory)?);
        Ok(id)
    }

    /// Gives a session of SSH the directory of its seat, and that of the newest run which goes on there.
    fn settle(&self, seat: &Path, task: &mut Task) -> Result<(), RunError> {
        let owner = task.confinement.owner()?;
        let made = home::of_seat(seat, &task.scratch_in, owner);
        let directory = made.map_err(system("there is no directory of the seat"))?;
        let runs = self.directories(Some(seat))?.into_iter().filter_map(|run| {
            let order = run.task().ok()?.order;
            let goes_on = order.ssh_keys.is_empty() && matches!(run.state(), Ok(RunState::Running { .. }));
            Some((order.run, run.scratch().ok()??)).filter(|_| goes_on)
        });
        let run = runs.max().map(|(_, scratch)| scratch);
        task.confinement.paths.extend(run.iter().chain([&directory]).cloned());
        task.home = Some(Home { directory, run });
        Ok(())
    }

    /// Whether a run is there and has not ended; one that is lost does not go on, though no end of it is on disk.
    pub fn goes_on(&self, id: &RunId) -> bool {
        let directory = self.directory(id);
        directory.is_there() && !directory.is_over()
    }

    /// A stream to the keeper of a run, whose next byte in is its user's first. A run whose keeper is gone gets one again, that tells what
    /// is left of it.
    ///
    /// # Errors
    /// [`RunError::Unknown`] when there is no such run.
    pub fn connect(&self, id: &RunId) -> Result<UnixStream, RunError> {
        let directory = self.directory(id);
        if !directory.is_there() {
            return Err(RunError::Unknown);
        }
        let mut stream = match dial(&directory) {
            Ok(stream) => stream,
            Err(_) => self.dial_again(&directory)?,
        };
        stream.write_all(&[OF_USER]).map_err(system("its keeper cannot be reached"))?;
        Ok(stream)
    }

    /// A stream to a keeper that could not be reached: to another one when it is gone. Its socket is not taken from one that lives: it could
    /// not be reached again.
    fn dial_again(&self, directory: &RunDirectory) -> Result<UnixStream, RunError> {
        let until = Instant::now() + DYING_MAX;
        loop {
            let mut started = locked(&self.started);
            let error = match dial(directory) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            if !directory.is_kept()? {
                started.push(self.spawn(directory)?);
                return dial(directory).map_err(system("its keeper cannot be reached"));
            }
            drop(started);
            if Instant::now() > until {
                return Err(system("its keeper cannot be reached now")(error));
            }
            thread::sleep(DYING_PAUSE);
        }
    }

    /// A run as its directory shows it.
    ///
    /// # Errors
    /// [`RunError::Unknown`] when there is no such run.
    pub fn find(&self, id: &RunId) -> Result<KeptRun, RunError> {
        let directory = self.directory(id);
        match directory.task() {
            Ok(task) => Ok(KeptRun { task, state: directory.state()? }),
            Err(DirectoryError::NoTask(_)) => Err(RunError::Unknown),
            Err(error) => Err(error.into()),
        }
    }

    /// What commands have used here, and what was reserved, as far as it is written down.
    pub fn used(&self) -> Vec<used::Line> {
        used::beside_runs(&self.root).map(used::read).unwrap_or_default()
    }

    /// Whether the end of a run is on disk, or the run is forgotten.
    pub fn has_ended(&self, id: &RunId) -> bool {
        let directory = self.directory(id);
        directory.has_end() || !directory.is_there()
    }

    /// The directory that a run works in, and whom it belongs to when that is not this process's user.
    ///
    /// # Errors
    /// [`RunError::NoFiles`] when there is none, or none any more.
    pub fn files(&self, id: &RunId) -> Result<SeatFiles, RunError> {
        let scratch = self.directory(id).scratch()?.filter(|scratch| scratch.exists()).ok_or(RunError::NoFiles)?;
        Ok(SeatFiles { scratch, owner: self.find(id)?.task.confinement.owner()? })
    }

    /// The number by which the kernel knows the cgroup of a run.
    ///
    /// # Errors
    /// When it is not there yet, or not any more.
    pub fn cgroup_number(&self, id: &RunId) -> io::Result<u64> {
        let cgroup = self.directory(id).cgroup().map_err(io::Error::other)?;
        cgroup.ok_or(io::ErrorKind::NotFound)?.number_of_kernel()
    }

    /// Forgets a run that is over.
    ///
    /// # Errors
    /// When its files cannot be removed.
    pub fn forget(&self, id: &RunId) -> Result<(), RunError> {
        let directory = self.directory(id);
        if let RunState::Ended(_) = directory.state()? {
            directory.remove()?;
        }
        Ok(())
    }

    /// Removes the files of runs and seats that are over, and their windows for longer than [`last::FILES_KEPT_FOR`].
    ///
    /// # Errors
    /// When the runs cannot be listed.
    pub fn remove_old_files(&self, now: Time) -> Result<(), RunError> {
        for directory in self.directories(None)? {
            if !directory.scratch().is_ok_and(|scratch| scratch.is_some_and(|scratch| scratch.exists())) {
                continue;
            }
            let is_late = directory.task().is_ok_and(|task| last::is_past(task.deadline, now));
            if is_late
                && directory.is_over()
                && let Err(error) = directory.remove_scratch()
            {
                warn!(%error, "the files of a run that is over cannot be removed");
            }
        }
        for seat in self.seats()? {
            if Last::is_late(&seat, now)
                && self.directories(Some(&seat))?.iter().all(RunDirectory::is_over)
                && let Err(error) = home::remove(&seat)
            {
                warn!(%error, "the directory of a seat that is over cannot be removed");
            }
        }
        Ok(())
    }

    /// Ends a run for a reason that its user is told. Returns when its keeper knows.
    ///
    /// # Errors
    /// [`RunError::Over`] when it has ended already.
    pub fn end(&self, id: &RunId, why: &str) -> Result<(), RunError> {
        self.say(id, &OwnerWord::End(reason(why)))
    }

    /// Ends a run whose user may run nothing here any more, within a second, for a reason that the user is told. Returns when its
    /// keeper knows.
    ///
    /// # Errors
    /// [`RunError::Over`] when it has ended already.
    pub fn deny(&self, id: &RunId, why: &str) -> Result<(), RunError> {
        self.say(id, &OwnerWord::Deny(reason(why)))
    }

    /// Moves the end of a run's window.
    ///
    /// # Errors
    /// [`RunError::Over`] when it has ended already.
    pub fn set_deadline(&self, id: &RunId, deadline: Time) -> Result<(), RunError> {
        self.say(id, &OwnerWord::Deadline(deadline))
    }

    /// The last run of a command on a seat: a session of SSH is nothing that anybody comes back to.
    ///
    /// # Errors
    /// [`RunError::Unknown`] when there is none.
    pub fn latest(&self, user: PublicKey, request: &RequestId, seat: SeatNumber) -> Result<RunId, RunError> {
        let id = |run| RunId { user, request: request.clone(), seat, run };
        let directories = self.directories(Some(&self.seat(&id(RunNumber(0)))))?;
        let number = |directory: &RunDirectory| directory.path().file_name()?.to_str()?.parse().ok();
        let mut ids: Vec<RunId> = directories.iter().filter_map(number).map(|number| id(RunNumber(number))).collect();
        ids.sort_unstable_by_key(|id| std::cmp::Reverse(id.run));
        let is_command = |id: &RunId| self.directory(id).task().is_ok_and(|task| task.order.ssh_keys.is_empty());
        ids.into_iter().find(is_command).ok_or(RunError::Unknown)
    }

    /// All runs that there are, as their directories show them, with as much of their orders as people look at.
    ///
    /// # Errors
    /// [`RunError`] when the directory cannot be read; a run that cannot be is left out.
    pub fn list(&self) -> Result<Vec<KeptRun>, RunError> {
        let kept = |directory: RunDirectory| {
            let mut task = directory.task().ok()?;
            task.order.shorten();
            Some(KeptRun { task, state: directory.state().ok()? })
        };
        Ok(self.directories(None)?.into_iter().filter_map(kept).collect())
    }

    fn say(&self, id: &RunId, word: &OwnerWord) -> Result<(), RunError> {
        let directory = self.directory(id);
        if !directory.is_there() {
            return Err(RunError::Unknown);
        }
        if matches!(directory.state()?, RunState::Ended(_)) {
            return Err(RunError::Over);
        }
        let line = serde_json::to_string(word).map_err(|error| system("the word cannot be written")(error.into()))?;
        let say = || {
            let mut stream = dial(&directory)?;
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            stream.write_all(&[&[OF_OWNER], line.as_bytes(), b"\n"].concat())?;
            let mut answer = [0];
            stream.read_exact(&mut answer)?;
            if answer == [HEARD] { Ok(()) } else { Err(io::Error::other("it answers with something else")) }
        };
        say().map_err(system("its keeper cannot be told"))
    }

    /// Runs and output of each account.
    ///
    /// # Errors
    /// When the runs cannot be listed.
    pub fn kept_by_account(&self) -> Result<BTreeMap<PublicKey, AccountRuns>, RunError> {
        Ok(by_account(&self.placed(&self.directories(None)?)))
    }

    /// Runs and output of all accounts together, as they were at most `age_max` ago: however often that is asked, all runs are looked at once
    /// in that time, and by one caller while others wait.
    ///
    /// # Errors
    /// When the runs cannot be listed.
    pub fn kept_lately(&self, age_max: Duration) -> Result<AccountRuns, RunError> {
        let mut summed = locked(&self.summed);
        if let Some((at, kept)) = *summed
            && at.elapsed() < age_max
        {
            return Ok(kept);
        }
        let at = Instant::now();
        let mut all = AccountRuns::default();
        for kept in self.kept_by_account()?.into_values() {
            all.runs += kept.runs;
            all.output_bytes = all.output_bytes.saturating_add(kept.output_bytes);
        }
        *summed = Some((at, all));
        Ok(all)
    }

    /// Forgets ends that nobody has asked for in time, and as many as there is no room for beside one more run.
    fn make_room(&self, seat: &Path, task: &Task, now: Time) -> Result<(), RunError> {
        self.forget_old(now)?;
        self.make_room_on(seat)?;
        let mut directories = self.directories(None)?;
        let free_bytes = File::open(&self.root).and_then(bytes_beside_beginnings);
        let free_bytes = free_bytes.map_err(system("the disk of the runs cannot be looked at"))?;
        let run_bytes = 2 * task.spool_bytes;
        let mut places = RunPlaces { runs: self.placed(&directories), free_bytes, run_bytes };
        let account = task.account();
        if places.short_for(&account).is_none() {
            return Ok(());
        }
        for (run, directory) in places.runs.iter_mut().zip(&directories) {
            run.ended = if directory.is_over() { directory.changed() } else { None };
        }
        while let Some(short) = places.short_for(&account) {
            match places.next_to_go(&account, short) {
                Some(index) if forget(&directories[index]) => {
                    directories.swap_remove(index);
                    places.free_bytes += places.runs.swap_remove(index).output_bytes;
                }
                Some(index) => places.runs[index].ended = None,
                // A run whose output has little room starts where it has any.
                None if short == NoPlace::Disk => break,
                None => return Err(RunError::Full(short)),
            }
        }
        Ok(())
    }

    fn make_room_on(&self, seat: &Path) -> Result<(), RunError> {
        let all = self.directories(Some(seat))?;
        let mut count = all.len();
        if count < RUNS_OF_SEAT_MAX {
            return Ok(());
        }
        let mut ended: Vec<_> = all.into_iter().filter(RunDirectory::is_over).collect();
        ended.sort_by_cached_key(RunDirectory::changed);
        for directory in ended {
            count -= usize::from(forget(&directory));
            if count < RUNS_OF_SEAT_MAX {
                return Ok(());
            }
        }
        Err(RunError::SeatFull(count))
    }

    /// The runs in these directories, in their order, as if none had ended.
    fn placed(&self, directories: &[RunDirectory]) -> Vec<PlacedRun> {
        let mut known = locked(&self.accounts);
        let mut before = std::mem::take(&mut *known);
        let placed = |directory: &RunDirectory| {
            let account = before.remove(directory.path()).or_else(|| Some(directory.task().ok()?.account()));
            if let Some(account) = account {
                known.insert(directory.path().to_owned(), account);
            }
            // The owner's to look at where the task cannot be read.
            let account = account.unwrap_or(PublicKey::from_bytes([0; 32]));
            PlacedRun { account, output_bytes: directory.output_bytes(), ended: None }
        };
        directories.iter().map(placed).collect()
    }

    fn forget_old(&self, now: Time) -> Result<(), RunError> {
        let present = UNIX_EPOCH + Duration::from_secs(u64::try_from(now.0).unwrap_or(0));
        for directory in self.directories(None)? {
            let changed = directory.changed();
            let age = changed.and_then(|changed| present.duration_since(changed).ok());
            if age.is_some_and(|age| age > KEPT_FOR) && directory.is_over() {
                forget(&directory);
            }
        }
        for seat in self.seats()? {
            if Last::is_late(&seat, now)
                && self.directories(Some(&seat))?.is_empty()
                && let Err(error) = home::remove(&seat).and_then(|()| remove_tree(&seat))
            {
                warn!(seat = %seat.display(), %error, "a seat cannot be forgotten");
            }
        }
        Ok(())
    }

    fn seats(&self) -> Result<Vec<PathBuf>, RunError> {
        let entries = fs::read_dir(&self.root).map_err(system("the runs cannot be listed"))?;
        Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect())
    }

    /// The directories of all runs, or of those of one seat.
    fn directories(&self, seat: Option<&Path>) -> Result<Vec<RunDirectory>, RunError> {
        let seats = match seat {
            Some(seat) => vec![seat.to_owned()],
            None => self.seats()?,
        };
        let runs = seats.into_iter().filter_map(|seat| fs::read_dir(seat).ok()).flatten();
        let runs = runs.filter_map(|entry| Some(RunDirectory::at(&entry.ok()?.path())));
        Ok(runs.filter(RunDirectory::is_there).collect())
    }

    fn seat(&self, id: &RunId) -> PathBuf {
        let name = Sha256::new().chain_update(id.user.as_bytes()).chain_update(id.request.as_str()).finalize();
        self.root.join(format!("{}.{}", HEXLOWER.encode(&name[..16]), id.seat))
    }

    fn directory(&self, id: &RunId) -> RunDirectory {
        RunDirectory::at(&self.seat(id).join(id.run.to_string()))
    }

    /// A keeper with its socket as standard input; whoever connects before it is up waits in the socket.
    fn spawn(&self, directory: &RunDirectory) -> Result<Child, RunError> {
        let spawn = || {
            let socket = short_path(directory, |path| {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                UnixListener::bind(path)
            })?;
            let log = File::options().append(true).create(true).open(directory.file(LOG))?;
            let (program, arguments) = self.program.split_first().ok_or(io::ErrorKind::NotFound)?;
            let mut command = Command::new(program);
            command.args(arguments).arg(directory.path()).env_clear().current_dir("/");
            command.stdin(OwnedFd::from(socket)).stdout(Stdio::null()).stderr(log).spawn()
        };
        spawn().map_err(system("its keeper cannot be started"))
    }
}

/// Ends what a keeper that is gone has left in the cgroup of its run; whether nothing is left there.
fn end_cgroup(directory: &RunDirectory) -> bool {
    let is_left = matches!(directory.is_kept(), Ok(false));
    let Some(cgroup) = directory.cgroup().ok().flatten().filter(|_| is_left) else { return true };
    let ended = cgroup.end();
    ended
        .inspect_err(|error| warn!(%error, run = %directory.path().display(), "what is left of a run cannot be ended"))
        .is_ok()
}

/// Ends what a keeper that has died without ending it has left running; whether nothing of the run is left to be ended.
pub(super) fn end_rest(directory: &RunDirectory) -> bool {
    let is_ended = end_cgroup(directory);
    let Ok(RunState::Ended(end)) = directory.state() else { return false };
    let scratch = if end == End::Lost { directory.scratch().ok().flatten() } else { None };
    let Some(scratch) = scratch else { return is_ended };
    let (name, value) = environment::mark(&scratch);
    let is_gone = processes::kill_marked(name, &value);
    let keeps_files = directory.task().map_or(true, |task| task.order.keeps_files);
    // What cannot be removed is the owner's to look at.
    let _ = directory.leave_scratch(keeps_files);
    is_ended && is_gone
}

/// Removes a run; whether it is gone. One that cannot be removed holds up no other.
pub(super) fn forget(directory: &RunDirectory) -> bool {
    end_cgroup(directory);
    directory.remove().inspect_err(|error| warn!(%error, "a run cannot be forgotten")).is_ok()
}

fn dial(directory: &RunDirectory) -> io::Result<UnixStream> {
    short_path(directory, |path| UnixStream::connect(path))
}

/// Uses the socket of a directory by a path that is short enough for a socket, however long that of the directory is.
fn short_path<T>(directory: &RunDirectory, use_it: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    let open = File::open(directory.path())?;
    use_it(&Path::new("/proc/self/fd").join(open.as_raw_fd().to_string()).join(SOCKET))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_runs_are_looked_at_once_in_a_time_however_often_their_sum_is_asked() {
        let root = tempfile::tempdir().unwrap();
        let keepers = Keepers::with_program(root.path(), Vec::new()).unwrap();
        let add = |name: &str| {
            let run = root.path().join("seat.0").join(name);
            fs::create_dir_all(&run).unwrap();
            fs::write(run.join("task"), "no task that can be read").unwrap();
        };
        let long = Duration::from_secs(3600);
        let runs = |age_max| keepers.kept_lately(age_max).unwrap().runs;
        add("1");
        assert_eq!(runs(long), 1);
        add("2");
        let now: usize = keepers.kept_by_account().unwrap().into_values().map(|kept| kept.runs).sum();
        assert_eq!((runs(long), now), (1, 2));
        assert_eq!((runs(Duration::ZERO), runs(long)), (2, 2));
    }
}
