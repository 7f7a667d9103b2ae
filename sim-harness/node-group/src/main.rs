//! `kolo-node-group CONFIG...`: many nodes in one process, each complete: data directory, journal, API and all. For grids larger
//! than a machine has room for as processes; the nodes listen inside the process (`/memory/PORT`).
//!
//! Invariant: nodes share nothing but the threads, the log and the end: when one stops by itself, all are stopped. No more
//! nodes are on their way into the grid at any time than the processors bear, so that it forms as fast as it grows.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use discovery::Discovery;
use kolo_config::NodeConfig;
use kolo_daemon::daemon::DaemonError;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{self, Instant},
};

/// Nodes that start at the same time. More would only compete for the processors.
const STARTING_MAX: usize = 8;
/// How long a node that has started keeps its place among those at most, if it does not meet the others.
const MEETING_LIMIT: Duration = Duration::from_secs(20);
/// Between two looks whether it has.
const MEETING_PAUSE: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    let configs = std::env::args_os().skip(1).map(|file| kolo_config::load_in_process(PathBuf::from(file)));
    let result = configs.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string()).and_then(|configs| {
        let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
        runtime.block_on(Box::pin(run_group(configs))).map_err(|error| error.to_string())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Keeps the place of a node that starts until it has met nine tenths of the sites which had when it began. A node that was
/// let go before would be one more of hundreds that open connections at once, none of which gets an answer in time.
async fn meet_the_others(discovery: Discovery, met: Arc<AtomicUsize>, place: OwnedSemaphorePermit) {
    let (others, end) = (met.load(Ordering::Relaxed), Instant::now() + MEETING_LIMIT);
    // It knows itself as well.
    while discovery.view().site_count() * 10 < others * 9 + 10 && Instant::now() < end {
        time::sleep(MEETING_PAUSE).await;
    }
    met.fetch_add(1, Ordering::Relaxed);
    drop(place);
}

/// Runs one node for each of `configs` until told to stop; the first one is up before the others start, since they may
/// find the grid through it. The log is the first one's.
///
/// # Errors
/// [`DaemonError`] of the first node that cannot start or has to stop, after all have been stopped.
async fn run_group(configs: Vec<NodeConfig>) -> Result<(), DaemonError> {
    if let Some(first) = configs.first() {
        kolo_daemon::daemon::start_log(first)?;
    }
    // Not divided by the nodes: most of their connections are inside the process.
    let open_files = kolo_runtime::open_files::raise();
    let (stop, stopping) = watch::channel(false);
    let starting = Arc::new(Semaphore::new(1));
    let met = Arc::new(AtomicUsize::new(0));
    let mut nodes: JoinSet<Result<(), DaemonError>> = JoinSet::new();
    let mut configs = configs.into_iter();
    let mut stopped = std::pin::pin!(kolo_daemon::daemon::stop_signal());
    let mut result = Ok(());
    loop {
        tokio::select! {
            ended = nodes.join_next(), if !nodes.is_empty() => {
                let ended = ended.map_or(Ok(Ok(())), |ended| ended);
                let ended = ended.unwrap_or_else(|error| Err(DaemonError::Stopped(format!("a node failed: {error}"))));
                result = result.and(ended);
                stop.send_replace(true);
            }
            Ok(place) = Arc::clone(&starting).acquire_owned(), if configs.len() > 0 && !*stopping.borrow() => {
                if let Some(config) = configs.next() {
                    let mut stopping = stopping.clone();
                    let stop = async move {
                        // An error says that the group is gone.
                        let _ = stopping.wait_for(|stopping| *stopping).await;
                        Ok(())
                    };
                    let met = Arc::clone(&met);
                    let is_up = move |discovery| drop(tokio::spawn(meet_the_others(discovery, met, place)));
                    nodes.spawn(Box::pin(kolo_daemon::daemon::run_until(config, open_files, stop, is_up)));
                }
                // The second one starts when the first one is up, and the others with it.
                if nodes.len() == 2 {
                    starting.add_permits(STARTING_MAX - 1);
                }
            }
            stop_result = &mut stopped, if !*stopping.borrow() => {
                result = result.and(stop_result);
                stop.send_replace(true);
            }
        }
        if nodes.is_empty() && (configs.len() == 0 || *stopping.borrow()) {
            return result;
        }
    }
}
