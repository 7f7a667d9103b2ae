//! The directory of a run: what the node gives its keeper, and what the keeper leaves for whoever comes later.
//!
//! `task` is there before the keeper is; `started` is on disk before the command runs, `ended` before anybody is told the end. Invariant: a
//! run that was started and has neither an end nor a keeper is [`End::Lost`]: nobody starts it again.

use std::{
    fs,
    fs::File,
    io::{self, Write as _},
    net::Ipv4Addr,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use broker::{ids::HostId, time::Time, trust::PublicKey};
use kolo_runtime::clock::unix_ms;
use kolo_trust::{TrustFileError, files};
use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    cgroup::Cgroup,
    confine::Confinement,
    frame::{End, Output},
    home::Home,
    order::RunOrder,
    podman::Place,
    processes,
    removal::remove_tree,
    spool::Spool,
};

/// Largest task: an order with its longest texts, as JSON.
const TASK_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Largest of the other files.
const NOTE_BYTES_MAX: u64 = 64 * 1024;

/// File names of the outputs, by [`Output`].
const OUTPUTS: [&str; 2] = ["stdout", "stderr"];
/// Where room for the end is kept until it is there.
const ROOMS: [&str; 2] = ["end-room", "end-room-2"];
/// Longest end, in bytes: a reason of which each takes six.
const END_BYTES_MAX: u64 = 8 * 1024;

/// What a keeper is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// What is run.
    pub order: RunOrder,
    /// Who signed it.
    pub user: PublicKey,
    /// Account of the reservation at the start of the run; none in tasks that an earlier program has written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<PublicKey>,
    /// The host of the seat, which a longer reservation keeps.
    pub host: HostId,
    /// When the seat's window ends; the site changes it with the reservation. Nothing runs after it.
    pub deadline: Time,
    /// How long before the deadline, or after the owner's word, the command is told to end.
    pub grace: Duration,
    /// Largest ring of each output, in bytes.
    pub spool_bytes: u64,
    /// Where scratch directories are made.
    pub scratch_in: PathBuf,
    /// The store with the files of the order, where it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<PathBuf>,
    /// Where the seats of the run are reached from this one, by rank; nowhere when they are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Ipv4Addr>,
    /// The directory of the seat, that sessions of SSH begin in; others have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<Home>,
    /// How the command is confined.
    pub confinement: Confinement,
}

impl Task {
    /// The account that the run counts for.
    pub fn account(&self) -> PublicKey {
        self.account.unwrap_or(self.user)
    }

    /// The names by which the command reaches the seats of the run, by rank: addresses where there are any.
    pub fn hosts(&self) -> Vec<String> {
        match self.addresses.as_slice() {
            [] => self.order.hosts.clone(),
            addresses => addresses.iter().map(ToString::to_string).collect(),
        }
    }

    /// The end of a run that no keeper has prepared until `now_ms` and that was never started, when it is too late for it.
    pub fn missed(&self, now_ms: u64) -> Option<End> {
        let is_over = |end: Time| u64::try_from(end.0).unwrap_or(0).saturating_mul(1000) <= now_ms;
        let why = "it was not started while its order held: its keeper had ended";
        (is_over(self.order.expires) || is_over(self.deadline)).then(|| End::Failed(why.to_owned()))
    }
}

/// A process: the one that became the command, or a keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Its number; that of a command is also its group's.
    pub pid: u32,
    /// When it was made, in ticks since the machine started: its number alone may become another one's.
    pub ticks: u64,
}

/// Whether something has failed because the disk has no room.
pub fn is_disk_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_full = |error: &io::Error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    error.downcast_ref().is_some_and(is_full) || error.source().is_some_and(is_disk_full)
}

/// How far a run is, as its directory shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    /// Its user has not given the word to start.
    Waiting,
    /// It runs as this process.
    Running {
        /// The process, and its group.
        pid: u32,
    },
    /// It is over.
    Ended(End),
}

/// A run's directory.
#[derive(Debug, Clone)]
pub struct RunDirectory(PathBuf);

/// Why a directory of a run cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] TrustFileError),
    /// The disk refuses.
    #[error("{path}: {source}", path = path.display())]
    Disk {
        /// What was used.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{path}: {detail}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// There is no task, so it is no directory of a run.
    #[error("{path}: there is no run in it", path = .0.display())]
    NoTask(PathBuf),
}

impl RunDirectory {
    /// The directory at `path`, whether or not it is there.
    pub fn at(path: &Path) -> RunDirectory {
        RunDirectory(path.to_owned())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What is to be done.
    pub fn task(&self) -> Result<Task, DirectoryError> {
        self.read("task", TASK_BYTES_MAX)?.ok_or_else(|| DirectoryError::NoTask(self.0.clone()))
    }

    /// Makes the directory with its task, or changes it; on disk when this returns.
    pub fn write_task(&self, task: &Task) -> Result<(), DirectoryError> {
        self.write("task", task)
    }

    /// The keeper that had the run last; none when there was none.
    pub fn keeper(&self) -> Result<Option<Started>, DirectoryError> {
        let text = files::read(&self.file("lock"), NOTE_BYTES_MAX)?;
        // One that has just made the file has written nothing yet.
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// The process that the command was started as; none when it was not.
    pub fn started(&self) -> Result<Option<Started>, DirectoryError> {
        self.read("started", NOTE_BYTES_MAX)
    }

    /// Notes that the command starts now.
    pub fn write_started(&self, started: Started) -> Result<(), DirectoryError> {
        self.write("started", &started)
    }

    /// How the run ended, as its keeper noted.
    pub fn ended(&self) -> Result<Option<End>, DirectoryError> {
        self.read("ended", NOTE_BYTES_MAX)
    }

    /// Whether there is a run.
    pub fn is_there(&self) -> bool {
        self.file("task").exists()
    }

    /// Whether an end is on disk.
    pub fn has_end(&self) -> bool {
        self.file("ended").exists()
    }

    /// Time of the last change to the list of its files, which for a run that is over is its end.
    pub fn changed(&self) -> Option<SystemTime> {
        fs::metadata(&self.0).and_then(|found| found.modified()).ok()
    }

    /// Bytes of the disk that its outputs take.
    pub fn output_bytes(&self) -> u64 {
        const BLOCK_BYTES: u64 = 512;
        let taken = |name: &str| fs::metadata(self.file(name)).map_or(0, |found| found.blocks() * BLOCK_BYTES);
        OUTPUTS.map(taken).into_iter().sum()
    }

    /// Whether a keeper has the run.
    pub fn is_kept(&self) -> Result<bool, DirectoryError> {
        Ok(self.keeper()?.is_some_and(|keeper| processes::started_ticks(keeper.pid) == Some(keeper.ticks)))
    }

    /// How far the run is.
    pub fn state(&self) -> Result<RunState, DirectoryError> {
        if let Some(end) = self.ended()? {
            return Ok(RunState::Ended(end));
        }
        let is_kept = self.is_kept()?;
        Ok(match self.started()? {
            Some(started) if is_kept => RunState::Running { pid: started.pid },
            // Its keeper may have ended between the two looks.
            Some(_) => RunState::Ended(self.ended()?.unwrap_or(End::Lost)),
            None if is_kept => RunState::Waiting,
            // A keeper that is started now would not run it either.
            None => self.task()?.missed(unix_ms()).map_or(RunState::Waiting, RunState::Ended),
        })
    }

    /// Whether the run is known to be over.
    pub fn is_over(&self) -> bool {
        matches!(self.state(), Ok(RunState::Ended(_)))
    }

    /// Takes the room on the disk that the end needs, which may be changed once: it is kept then, also by a disk that is full.
    pub fn set_room_aside(&self) -> Result<(), DirectoryError> {
        for path in ROOMS.map(|name| self.file(name)) {
            let room = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
            let taken = room.and_then(|room| Ok(fallocate(&room, FallocateFlags::empty(), 0, END_BYTES_MAX)?));
            // Where it cannot be taken in advance, it is taken when it is needed.
            match taken {
                Err(error) if is_disk_full(&error) => return Err(DirectoryError::Disk { path, source: error }),
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes how the run ended.
    pub fn write_ended(&self, end: &End) -> Result<(), DirectoryError> {
        let path = self.file("ended");
        let Some(room) = ROOMS.map(|name| self.file(name)).into_iter().find(|room| room.exists()) else {
            return self.write("ended", end);
        };
        let text = serde_json::to_string(end)
            .map_err(|error| DirectoryError::Malformed { path: path.clone(), detail: error.to_string() })?;
        let write = || {
            let file = File::options().write(true).open(&room)?;
            (&file).write_all(text.as_bytes())?;
            file.set_len(text.len() as u64)?;
            file.sync_all()?;
            fs::rename(&room, &path)?;
            File::open(&self.0)?.sync_all()
        };
        write().map_err(|source| DirectoryError::Disk { path: path.clone(), source })
    }

    /// The scratch directory of the run, to be removed after it.
    pub fn scratch(&self) -> Result<Option<PathBuf>, DirectoryError> {
        self.read("scratch", NOTE_BYTES_MAX)
    }

    /// Removes what the end of a run leaves on the disk: what podman has, and the scratch directory, unless its user may still fetch files;
    /// then that goes with the run, or when the node sees that the window is over.
    pub fn leave_scratch(&self, keeps_files: bool) -> io::Result<()> {
        match self.scratch().map_err(io::Error::other)? {
            Some(scratch) if keeps_files => Place::of(&scratch).remove(),
            _ => self.remove_scratch(),
        }
    }

    /// Removes the scratch directory, when there is one, and what podman has beside it.
    pub fn remove_scratch(&self) -> io::Result<()> {
        let Some(scratch) = self.scratch().map_err(io::Error::other)? else { return Ok(()) };
        let removed = [Place::of(&scratch).remove(), remove_tree(&scratch)];
        removed.into_iter().collect()
    }

    /// Notes the scratch directory.
    pub fn write_scratch(&self, scratch: &Path) -> Result<(), DirectoryError> {
        self.write("scratch", &scratch)
    }

    /// The cgroup of the run, to be ended after it; it may not be there.
    pub fn cgroup(&self) -> Result<Option<Cgroup>, DirectoryError> {
        Ok(self.read("cgroup", NOTE_BYTES_MAX)?.map(Cgroup::at))
    }

    /// Notes the cgroup.
    pub fn write_cgroup(&self, path: &Path) -> Result<(), DirectoryError> {
        self.write("cgroup", &path)
    }

    /// What was said on an output.
    pub fn spool(&self, output: Output, ring_bytes: u64) -> Result<Spool, DirectoryError> {
        let path = self.file(OUTPUTS[output as usize]);
        Spool::open(&path, ring_bytes).map_err(|source| DirectoryError::Disk { path, source })
    }

    /// The lock that `keeper` holds as long as it lives; none when another one has it.
    pub fn lock(&self, keeper: Started) -> Result<Option<File>, DirectoryError> {
        let path = self.file("lock");
        let disk = |source| DirectoryError::Disk { path: path.clone(), source };
        let file = File::options().write(true).create(true).truncate(false).open(&path).map_err(disk)?;
        match file.try_lock() {
            Ok(()) => {
                let text = serde_json::to_string(&keeper).map_err(io::Error::from).map_err(disk)?;
                file.set_len(0).and_then(|()| (&file).write_all(text.as_bytes())).map_err(disk)?;
                Ok(Some(file))
            }
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(disk(error)),
        }
    }

    /// Forgets the run, and what is kept of its files. The task goes first: what is left of a removal that was broken off is no run.
    pub fn remove(&self) -> Result<(), DirectoryError> {
        // What cannot be removed is the owner's to look at.
        let _ = self.remove_scratch();
        let removed = [fs::remove_file(self.file("task")), remove_tree(&self.0)];
        let failed = removed.into_iter().filter_map(Result::err).find(|error| error.kind() != io::ErrorKind::NotFound);
        failed.map_or(Ok(()), |source| Err(DirectoryError::Disk { path: self.0.clone(), source }))
    }

    fn read<T: DeserializeOwned>(&self, name: &str, bytes_max: u64) -> Result<Option<T>, DirectoryError> {
        read_json(self.file(name), bytes_max)
    }

    fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), DirectoryError> {
        write_json(self.file(name), value)
    }
}

/// What a file holds as JSON; none when it is not there.
pub(super) fn read_json<T: DeserializeOwned>(path: PathBuf, bytes_max: u64) -> Result<Option<T>, DirectoryError> {
    let Some(text) = files::read(&path, bytes_max)? else { return Ok(None) };
    let read = serde_json::from_str(&text);
    read.map(Some).map_err(|error| DirectoryError::Malformed { path, detail: error.to_string() })
}

/// Writes a file as JSON; on disk when this returns.
pub(super) fn write_json<T: Serialize>(path: PathBuf, value: &T) -> Result<(), DirectoryError> {
    match serde_json::to_string(value) {
        Ok(text) => Ok(files::replace(&path, &text)?),
        Err(error) => Err(DirectoryError::Malformed { path, detail: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_before_an_upgrade_is_read() {
        let directory = tempfile::tempdir().unwrap();
        // As nodes wrote it before there were containers.
        let order = r#"{"grid":"g","site":"s","request":"r","seat":2,"run":7,"rank":0,"hosts":["a"],"command":["true"],"has_stdin":false,"issued":1,"expires":2,"nonce":"n"}"#;
        let confinement = r#"{"runner":"none","user":"nobody","paths":["/srv"],"has_network":false,"memory_mib":64,"cpu_millicores":1000,"processes_max":100,"cgroups":"/sys/fs/cgroup/kolo"}"#;
        let user = "01".repeat(32);
        let task = format!(
            r#"{{"order":{order},"user":"{user}","host":"h","deadline":100,"grace":{{"secs":2,"nanos":0}},"spool_bytes":1024,"scratch_in":"/tmp","confinement":{confinement}}}"#
        );
        let run = RunDirectory::at(directory.path());
        files::replace(&run.file("task"), &task).unwrap();
        let read = run.task().unwrap();
        assert_eq!((read.order.run.0, read.deadline, read.confinement.images.len()), (7, Time(100), 0));
    }
}
