//! `kolo login`: the user's key, made or taken from SSH.
//!
//! Invariant: a key that is there is never replaced.

use std::path::Path;

use super::{Context, join::user_directory, whoami::Who};
use crate::{
    cli::{args::LoginArgs, error::CliError, exit::Exit},
    trust::Wallet,
};

/// Runs the command.
///
/// # Errors
/// [`CliError`] when the key cannot be taken, or another one is there.
pub fn run(context: &mut Context, args: &LoginArgs) -> Result<Exit, CliError> {
    let wallet = Wallet::at(&user_directory(context)?);
    match &args.ssh_key {
        None => drop(wallet.key_or_new()?),
        Some(file) => take(&wallet, file)?,
    }
    let who = Who::of(&wallet)?.ok_or_else(|| CliError::failed("the key is gone again"))?;
    context.done(&who)
}

fn take(wallet: &Wallet, file: &Path) -> Result<(), CliError> {
    let missing = || CliError::Usage(format!("--ssh-key: there is no {}", file.display()));
    let key = Wallet::of_key(file).key()?.ok_or_else(missing)?;
    let hint =
        "the key that is there may be known to grids; take this one in another place with --data-dir, or move it away";
    wallet.take_key(&key).map_err(|error| CliError::from(error).hinted(hint))
}
