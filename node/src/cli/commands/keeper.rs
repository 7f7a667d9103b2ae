//! `kolo keeper`: the process that a node starts for a run, and the one that becomes the command. No one else has a use for it.

use std::io;

use crate::{
    cli::{args::KeeperArgs, error::CliError, exit::Exit},
    run::keeper::{keep, launch::launch},
};

pub fn run(args: &KeeperArgs) -> Result<Exit, CliError> {
    let kept = if args.launch { launch(&args.directory) } else { keep(&args.directory).map_err(io::Error::other) };
    kept.map_err(|source| CliError::Io { doing: "keeping a run", source })?;
    Ok(Exit::Done)
}
