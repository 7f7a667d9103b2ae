//! `kolo node`: runs the daemon, or shows the configuration it would run with.

use std::time::Duration;

use super::Context;
use crate::{
    cli::{error::CliError, exit::Exit},
    config::{self, NodeArgs},
    daemon,
};

/// Threads that serve messages: two, so that work which takes long on one of them holds no message up. A second one costs nothing
/// while there is little to do: 15 nodes on two processors use as much of them as with one each.
const WORKER_THREADS: usize = 2;
/// How long what still computes when the node has stopped may go on: a batch that is being planned may have minutes before it.
const COMPUTING_GRACE: Duration = Duration::from_secs(2);

pub fn run(context: &mut Context, args: &NodeArgs) -> Result<Exit, CliError> {
    let (global, is_printed) = (&context.global, args.print_config);
    let (args, global, surroundings) = (args.clone(), global.clone(), context.surroundings.clone());
    let load = move || config::load(&args, global.data_dir.as_deref(), global.api.as_deref(), &surroundings);
    let config = load()?;
    if is_printed {
        context.output.raw(&config::print_config(&config))?;
        return Ok(Exit::Done);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .map_err(|source| CliError::Io { doing: "starting the node's threads", source })?;
    let ended = runtime.block_on(Box::pin(daemon::run(config, Box::new(load))));
    runtime.shutdown_timeout(COMPUTING_GRACE);
    ended?;
    Ok(Exit::Done)
}
