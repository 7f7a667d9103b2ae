//! Arguments of `kolo backup` and `kolo restore`.

use std::path::PathBuf;

use clap::Args;

/// `kolo backup`
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The file to make, outside of the data directory; whoever can read it can be the site
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A file of the configuration to save with it; may be given several times
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
}

/// `kolo restore`
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// What `kolo backup` has made
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}
