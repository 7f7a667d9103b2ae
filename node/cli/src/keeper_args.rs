//! The raw arguments of what a node starts of this program for the runs of users.
//!
//! Invariant: nobody types them, so they are hidden, and may change with every version.

use std::path::PathBuf;

use clap::Args;

/// `kolo keeper`
#[derive(Debug, Args)]
pub struct KeeperArgs {
    /// Become the command instead
    #[arg(long)]
    pub launch: bool,
    /// The directory of the run
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// `kolo ssh-server`.
#[derive(Debug, Clone, Args)]
pub struct SshServerArgs {
    /// A directory that sessions may write to; may be repeated
    #[arg(long, value_name = "DIR")]
    pub own: Vec<PathBuf>,
    /// The keys that are let in
    #[arg(value_name = "KEY")]
    pub keys: Vec<String>,
}

/// `kolo in-sandbox`.
#[derive(Debug, Clone, Args)]
pub struct InSandboxArgs {
    /// A directory that the command may write to; may be repeated
    #[arg(long, value_name = "DIR")]
    pub own: Vec<PathBuf>,
    /// The standard input is its terminal
    #[arg(long)]
    pub terminal: bool,
    /// The descriptor at which its keeper hears that it could not be run
    #[arg(long, value_name = "NUMBER")]
    pub barrier: Option<i32>,
    /// The command and its arguments, behind --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `kolo as-user`.
#[derive(Debug, Clone, Args)]
pub struct AsUserArgs {
    /// The id of the user
    #[arg(value_name = "UID")]
    pub uid: u32,
    /// The id of the group
    #[arg(value_name = "GID")]
    pub gid: u32,
    /// The user whose other groups it gets
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The command and its arguments, behind --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
