//! `kolo grid`: makes a grid, invites, revokes, shows members and invitations, and rotates the root key.
//!
//! Invariant: secrets go into 0600 files, and into a token when that is what was asked for; nowhere else.

mod init;
mod invitations;
mod invite;
mod revoke;
mod rotate_root;
mod show;

pub(super) use self::init::site_name;

use std::path::Path;

use broker::trust::PublicKey;
use kolo_trust::GridFile;

use super::Context;
use crate::{
    error::CliError,
    exit::Exit,
    grid_args::{GridArgs, GridCommand},
};

pub fn run(context: &mut Context, args: &GridArgs) -> Result<Exit, CliError> {
    match &args.command {
        GridCommand::Init(args) => init::run(context, args),
        GridCommand::Invite(args) => invite::run(context, args),
        GridCommand::Revoke(args) => revoke::run(context, args),
        GridCommand::Show => show::run(context),
        GridCommand::Invitations => invitations::run(context),
        GridCommand::RotateRoot(args) => rotate_root::run(context, args),
    }
}

/// The closed grid of a data directory.
fn closed_grid(data_dir: &Path) -> Result<(GridFile, PublicKey), CliError> {
    let grid = GridFile::load(data_dir)?.ok_or_else(|| {
        let directory = data_dir.display();
        CliError::failed(format!(
            "{directory} is of no node of a grid: name the --data-dir of one, or make a new grid with kolo grid init"
        ))
    })?;
    match grid.root {
        Some(root) => Ok((grid, root)),
        None => Err(CliError::failed(format!(
            "grid {} is open: anybody joins it with kolo node --grid {} --bootstrap ADDRESS, and nobody is revoked",
            grid.id, grid.id
        ))),
    }
}
