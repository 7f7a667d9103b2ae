//! `kolo node`: runs the daemon, or shows the configuration it would run with.

use super::Context;
use crate::{
    cli::{error::CliError, exit::Exit},
    config::{self, NodeArgs},
    daemon,
};

/// Threads that serve messages. A message passes through some ten tasks; handing it from thread to thread costs more than
/// the work that is done on it, so they share one. Long planning and the disk have threads of their own.
const WORKER_THREADS: usize = 1;

pub fn run(context: &mut Context, args: &NodeArgs) -> Result<Exit, CliError> {
    let global = &context.global;
    let config = config::load(args, global.data_dir.as_deref(), global.api.as_deref(), &context.surroundings)?;
    if args.print_config {
        context.output.raw(&config::print_config(&config))?;
        return Ok(Exit::Done);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .map_err(|source| CliError::Io { doing: "starting the node's threads", source })?;
    runtime.block_on(Box::pin(daemon::run(config)))?;
    Ok(Exit::Done)
}
