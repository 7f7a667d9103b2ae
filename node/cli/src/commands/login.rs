//! `kolo login`: the user's key, made, or taken from a file or the agent of SSH.
//!
//! Invariant: a key that is there is never replaced.

use std::path::Path;

use kolo_trust::{AgentKey, TrustFileError, Wallet};

use super::{Context, join::user_directory, whoami::Who};
use crate::{args::LoginArgs, error::CliError, exit::Exit};

/// Runs the command.
///
/// # Errors
/// [`CliError`] when the key cannot be taken, or another one is there.
pub fn run(context: &mut Context, args: &LoginArgs) -> Result<Exit, CliError> {
    let wallet = Wallet::at(&user_directory(context)?);
    match (&args.ssh_key, &args.agent) {
        (Some(file), _) => take(&wallet, file)?,
        (None, Some(which)) => {
            let key = AgentKey::find(which.as_deref())?;
            wallet.take_agent_key(&key).map_err(another)?;
        }
        (None, None) => drop(wallet.user_key_or_new()?),
    }
    let who = Who::of(&wallet)?.ok_or_else(|| CliError::failed("the key is gone again"))?;
    context.done(&who)
}

fn take(wallet: &Wallet, file: &Path) -> Result<(), CliError> {
    let missing = || CliError::Usage(format!("--ssh-key: there is no {}", file.display()));
    let key = Wallet::of_key(file).key()?.ok_or_else(missing)?;
    wallet.take_key(&key).map_err(another)
}

/// Another key is there.
fn another(error: TrustFileError) -> CliError {
    let hint =
        "the key that is there may be known to grids; take this one in another place with --data-dir, or move it away";
    CliError::from(error).hinted(hint)
}
