//! `kolo`: the node of a site and the command line of its users, which know each other here only.

use std::{process::ExitCode, time::Duration};

use kolo_cli::NodeFailure;
use kolo_config::{ConfigSource, NodeConfig};
use kolo_daemon::daemon::{self, DaemonError};

/// Threads that serve messages: two, so that work which takes long on one of them holds no message up. A second one costs nothing
/// while there is little to do: 15 nodes on two processors use as much of them as with one each.
const WORKER_THREADS: usize = 2;
/// How long what still computes when the node has stopped may go on: a batch that is being planned may have minutes before it.
const COMPUTING_GRACE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    kolo_cli::run(run_node)
}

fn run_node(config: NodeConfig, source: ConfigSource) -> Result<(), NodeFailure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .map_err(|error| NodeFailure::Other(format!("starting the node's threads: {error}")))?;
    let ended = runtime.block_on(Box::pin(daemon::run(config, source)));
    runtime.shutdown_timeout(COMPUTING_GRACE);
    ended.map_err(|error| match error {
        DaemonError::Value { .. } => NodeFailure::Value(error.to_string()),
        _ => NodeFailure::Other(error.to_string()),
    })
}
