//! `kolo backup` and `kolo restore`: a node's data directory in one file, and back.
//!
//! Invariant: a restored directory is whole and checked, and what is not in it is said.

use std::path::PathBuf;

use broker::time::Time;
use kolo_api::grid::SOFTWARE;
use kolo_runtime::clock::unix_ms;
use kolo_storage::{
    backup::{self, BackupError, CONFIG_DIR},
    restore,
};
use kolo_text::{safe::safe, time::format_time};
use serde::Serialize;

use super::Context;
use crate::{
    backup_args::{BackupArgs, RestoreArgs},
    error::CliError,
    exit::Exit,
    output::{Look, Report},
};

/// Promises in a backup.
#[derive(Debug, Serialize)]
struct Saved {
    file: String,
    data_dir: String,
    site: Option<String>,
    /// Time of the backup.
    made: Time,
    reservations: usize,
    requests: usize,
    files: usize,
    bytes: u64,
    is_restored: bool,
}

pub fn back_up(context: &mut Context, args: &BackupArgs) -> Result<Exit, CliError> {
    let data_dir = data_dir(context)?;
    // What is promised while it is made may or may not be in it.
    let made_ms = unix_ms();
    let made =
        backup::back_up(&data_dir, &args.config, &args.file, (made_ms, SOFTWARE)).map_err(|error| explained(&error))?;
    context.done(&Saved {
        file: args.file.display().to_string(),
        data_dir: data_dir.display().to_string(),
        site: made.ledger.site.map(|site| site.to_string()),
        made: time_of(made_ms),
        reservations: made.ledger.reservations,
        requests: made.ledger.requests,
        files: made.manifest.files.len(),
        bytes: made.bytes,
        is_restored: false,
    })
}

pub fn restore(context: &mut Context, args: &RestoreArgs) -> Result<Exit, CliError> {
    let Some(data_dir) = context.global.data_dir.clone() else {
        return Err(CliError::Usage("name the directory to restore to: --data-dir DIR".to_owned()));
    };
    let restored = restore::restore(&args.file, &data_dir).map_err(|error| explained(&error))?;
    context.done(&Saved {
        file: args.file.display().to_string(),
        data_dir: data_dir.display().to_string(),
        site: restored.ledger.site.map(|site| site.to_string()),
        made: time_of(restored.manifest.made_ms),
        reservations: restored.ledger.reservations,
        requests: restored.ledger.requests,
        files: restored.manifest.files.len(),
        bytes: restored.manifest.files.iter().map(|saved| saved.bytes).sum(),
        is_restored: true,
    })
}

fn data_dir(context: &Context) -> Result<PathBuf, CliError> {
    match &context.global.data_dir {
        Some(directory) => Ok(directory.clone()),
        None => Ok(context.surroundings.default_data_dir()?),
    }
}

fn time_of(unix_ms: u64) -> Time {
    Time(i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX))
}

fn explained(error: &BackupError) -> CliError {
    let hint = match error {
        BackupError::NoLedger(_) => {
            "name the node's own directory with --data-dir; that of the packaged service is /var/lib/kolo"
        }
        BackupError::Disk { .. } => "run it as the user who runs the node (sudo -u kolo), where there is room",
        BackupError::Damaged { .. } => "take another copy of the backup, or an older one",
        BackupError::Ledger(_) => "kolo doctor says more",
        BackupError::Exists(_) | BackupError::Unfit { .. } => return CliError::failed(error.to_string()),
    };
    CliError::failed(error.to_string()).hinted(hint)
}

impl Report for Saved {
    fn text(&self, look: &Look) -> String {
        let (made, file) = (format_time(self.made, &look.zone), safe(&self.file));
        let held = format!("{} reservations and {} requests", self.reservations, self.requests);
        if !self.is_restored {
            return format!(
                "{file}: {held}, {} files, {} KiB, as they were at {made}\n\
                 keep it as secret as the keys, which are in it; what users run, and their files, is not\n",
                self.files,
                self.bytes.div_ceil(1 << 10),
            );
        }
        format!(
            "{dir}: restored {held} as they were at {made}; every file and every sector of the ledger checks out\n\
             not here: what this site has promised since then, which it may promise again. The entry points of these reservations ask it \
             within the hour, and look for other hosts; their users see that with kolo show\n\
             not here: requests that this node has taken on since then; their users send them again, or take them over through another \
             node (kolo repair)\n\
             here again: what was given back since then, until its end or kolo local evict\n\
             not here: commands that run, what they have said, and files that users have sent\n\
             configuration: {CONFIG_DIR} in it, when any was saved\n\
             before kolo node starts with it: the node that the backup is of must never run again\n",
            dir = safe(&self.data_dir),
        )
    }

    fn ids(&self) -> Vec<String> {
        vec![if self.is_restored { self.data_dir.clone() } else { self.file.clone() }]
    }
}
