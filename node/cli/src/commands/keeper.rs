//! `kolo keeper`: the process that a node starts for a run, and the one that becomes the command. No one else has a use for it.

use std::{env, io};

use kolo_seat::{
    as_user::run_as,
    keeper::{
        in_unit, keep,
        launch::{self, launch},
    },
    ssh,
};

use crate::{
    error::CliError,
    exit::Exit,
    keeper_args::{AsUserArgs, InSandboxArgs, KeeperArgs, SshServerArgs},
};

pub fn run(args: &KeeperArgs) -> Result<Exit, CliError> {
    let kept = if args.launch { launch(&args.directory) } else { keep(&args.directory).map_err(io::Error::other) };
    kept.map_err(|source| CliError::Io { doing: "keeping a run", source })?;
    Ok(Exit::Done)
}

/// `kolo in-sandbox`: the command of a seat, where it is started in a sandbox.
pub fn in_sandbox(args: &InSandboxArgs) -> Result<Exit, CliError> {
    launch::in_sandbox(&args.command, &args.own, args.terminal, args.barrier)
        .map_err(|source| CliError::Io { doing: "running the command", source })?;
    Ok(Exit::Done)
}

/// `kolo in-unit`: what starts the command of a seat in a unit of systemd.
pub fn in_unit() -> Result<Exit, CliError> {
    in_unit::run().map_err(|source| CliError::Io { doing: "running the command", source })?;
    Ok(Exit::Done)
}

/// `kolo as-user`: what becomes the user of a seat in a unit of systemd, and then `kolo in-unit`.
pub fn as_user(AsUserArgs { uid, gid, name, command }: &AsUserArgs) -> Result<Exit, CliError> {
    run_as((*uid, *gid, name.as_str()), command)
        .map_err(|source| CliError::Io { doing: "becoming the user of commands", source })?;
    Ok(Exit::Done)
}

/// `kolo ssh-server`: the server of a seat, where it is started in a sandbox.
pub fn ssh_server(args: &SshServerArgs) -> Result<Exit, CliError> {
    let failed = |source| CliError::Io { doing: "serving SSH", source };
    let directory = env::current_dir().map_err(failed)?;
    let variables = launch::enter_sandbox(&args.own).map_err(failed)?;
    let home = ssh::Home { directory, variables };
    ssh::serve(&args.keys, home).map_err(io::Error::other).map_err(failed)?;
    Ok(Exit::Done)
}
