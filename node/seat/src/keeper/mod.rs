//! The keeper of a seat: a small process of its own for one run, so that a restart of the node changes nothing.
//!
//! It has the command's streams, its deadline and its end. The node gives it a directory and a listening socket, as its standard
//! input; users come through that socket. Invariants: the command runs only after its user has said so and `started` is on disk, and
//! never again; nothing of it runs after the deadline, or after the command itself has ended; the end is on disk before anybody is told.

mod clock;
pub mod connection;
pub mod environment;
pub mod in_unit;
pub mod launch;
pub mod owner;
mod process;
mod state;
mod streams;

use std::{
    fmt,
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::net::UnixListener as StdListener},
    path::Path,
    rc::Rc,
    time::Duration,
};

use nix::unistd::setsid;
use tokio::{
    net::UnixListener,
    signal::unix::{SignalKind, signal},
    task::LocalSet,
    time::timeout,
};

use self::state::{Keeper, Phase, Stop};
use crate::{
    cgroup,
    directory::{DirectoryError, RunDirectory, Started},
    frame::{End, Output, reason},
    processes,
};

/// How long a keeper whose run is over waits for somebody to ask. Whoever asks later starts it again.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// How long those who are attached may take to go when somebody has the end.
const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// Why a keeper cannot work.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Its directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The system refuses.
    #[error("the keeper cannot {doing}: {source}")]
    System {
        /// What it needs.
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// There is one.
    #[error("another keeper has the run")]
    Taken,
}

/// Says what the owner may want to know, in the log of the run. A disk that is full takes nothing, which ends no keeper.
fn complain(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{what}");
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> KeeperError {
    move |source| KeeperError::System { doing, source }
}

/// Keeps the run in `directory`, with the socket that is this process's standard input. Returns when nobody needs it any more.
pub fn keep(directory: &Path) -> Result<(), KeeperError> {
    // It fails for the leader of a group, which has a session of its own or is started by hand.
    let _ = setsid();
    processes::adopt_orphans().map_err(system("adopt what the command leaves behind"))?;
    std::env::set_current_dir(directory).map_err(system("go to its directory"))?;
    let directory = RunDirectory::at(directory);
    let pid = std::process::id();
    let ticks = processes::started_ticks(pid).unwrap_or_default();
    let _lock = directory.lock(Started { pid, ticks })?.ok_or(KeeperError::Taken)?;
    if let Some(Err(error)) = directory.task()?.confinement.cgroups.as_deref().map(cgroup::leave_node) {
        // Whoever ends the cgroup of the node ends it too.
        complain(format_args!("it stays in the cgroup of its node: {error}"));
    }
    let listener =
        io::stdin().as_fd().try_clone_to_owned().map(StdListener::from).map_err(system("take its socket"))?;
    listener.set_nonblocking(true).map_err(system("use its socket"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system("start"))?;
    LocalSet::new().block_on(&runtime, run(directory, listener))
}

async fn run(directory: RunDirectory, listener: StdListener) -> Result<(), KeeperError> {
    let listener = UnixListener::from_std(listener).map_err(system("use its socket"))?;
    let task = directory.task()?;
    clock::follow_node(&directory);
    let spools =
        [directory.spool(Output::Stdout, task.spool_bytes)?, directory.spool(Output::Stderr, task.spool_bytes)?];
    let known = match (directory.ended()?, directory.started()?) {
        (Some(end), _) => Some(end),
        (None, Some(_)) => Some(End::Lost),
        (None, None) => task.missed(clock::present_ms(&directory)),
    };
    // The keeper before this one is gone: this one has its lock.
    if let Some(Err(error)) = directory.cgroup()?.filter(|_| known.is_some()).map(|cgroup| cgroup.end()) {
        complain(format_args!("what is left of the run cannot be ended: {error}"));
    }
    let no_room = || directory.set_room_aside().err().map(|error| format!("its end could not be kept: {error}"));
    let known = known.or_else(|| Some(End::Failed(reason(&no_room()?))));
    let phase = known.clone().map_or(Phase::Preparing, Phase::Ended);
    let keeper = Rc::new(Keeper::new(directory, &task, phase, spools));
    tokio::task::spawn_local(accept(keeper.clone(), listener));
    if known.is_none() {
        tokio::task::spawn_local(hear_signal(keeper.clone()));
        let end = process::run(&keeper, &task).await;
        keeper.change(|state| state.phase = Phase::Ended(end));
    }
    while !is_done(&keeper).await {}
    if keeper.state().is_seen {
        keeper.directory.remove()?;
    }
    Ok(())
}

/// Waits until somebody has the end, or nobody asks any more.
async fn is_done(keeper: &Keeper) -> bool {
    let is_seen = timeout(IDLE_MAX, keeper.until(|state| state.is_seen.then_some(()))).await.is_ok();
    if is_seen {
        // Whoever is still attached may be about to be told the end too.
        let _ = timeout(FAREWELL_MAX, keeper.until(|_| (keeper.attached.get() == 0).then_some(()))).await;
    }
    is_seen || keeper.attached.get() + keeper.unattached.get() == 0
}

async fn accept(keeper: Rc<Keeper>, listener: UnixListener) {
    // One that cannot be taken is gone, or there are no descriptors left; the next may do.
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let keeper = keeper.clone();
        tokio::task::spawn_local(async move {
            if let Err(error) = connection::serve(keeper.clone(), stream).await {
                // Into the log in the directory; a user who breaks off is no error of the run.
                complain(format_args!("a connection was closed: {error}"));
            }
            keeper.change(|_| ());
        });
    }
}

/// The machine goes down, or its owner ends the keeper by hand: the command is told to end, and its user why.
async fn hear_signal(keeper: Rc<Keeper>) {
    let Ok(mut terminated) = signal(SignalKind::terminate()) else { return };
    terminated.recv().await;
    let why = Stop::Owner(
        "the keeper of the seat was told to end (SIGTERM): the machine goes down, or its owner wants it back"
            .to_owned(),
    );
    keeper.change(|state| {
        state.stop.get_or_insert(why);
    });
}
