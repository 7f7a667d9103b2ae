//! `kolo node-group`: runs many daemons in one process, for tests of large grids; not shown in the help.

use super::Context;
use crate::{
    cli::{args::NodeGroupArgs, error::CliError, exit::Exit},
    config::{self, NodeArgs},
    daemon,
};

/// Runs the command.
pub fn run(context: &Context, args: &NodeGroupArgs) -> Result<Exit, CliError> {
    let load =
        |file: &std::path::PathBuf| config::load(&NodeArgs::of_file(file.clone()), None, None, &context.surroundings);
    let configs = args.configs.iter().map(load).collect::<Result<Vec<_>, _>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| CliError::Io { doing: "starting the nodes' threads", source })?;
    runtime.block_on(Box::pin(daemon::group::run_group(configs)))?;
    Ok(Exit::Done)
}
