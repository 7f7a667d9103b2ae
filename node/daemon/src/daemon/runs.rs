//! Puts together what runs users' commands on this site's hosts.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use discovery::Discovery;
use kolo_config::NodeConfig;
use kolo_runtime::{audit::AuditLog, clock::Clock, divided::Divided, syslog::Syslog};
use kolo_seat::{Confinement, Keepers, Runner, cgroup, confine::Note, files::serve::Stores, used};
use kolo_storage::data_dir::{FILES_DIR, RUNS_DIR};
use kolo_trust::GridFile;
use tracing::warn;

use super::error::DaemonError;
use crate::{
    seats::{RunShares, RunSite, RunTerms, allowed::write_note},
    site::{task::SharedLedger, usable::Usable},
};

/// One part in so many of the files that are open for runs goes to streams, the rest to ports.
const STREAMS_PART: usize = 4;
/// How long before the end of its window a command is told to end; of a short window a tenth.
const GRACE_MAX: Duration = Duration::from_secs(10);

/// Where runs of users start, if the owner lets any, and the log of who has changed what. `open_files` bounds the files that this process
/// has open for the runs of all users together.
///
/// # Errors
/// When what lies in the data directory cannot be used.
pub fn site(
    config: &NodeConfig,
    (discovery, grid): (&Discovery, &GridFile),
    (ledger, usable, clock): (&SharedLedger, &Usable, Clock),
    open_files: usize,
) -> Result<(Arc<RunSite>, Arc<AuditLog>), DaemonError> {
    let settings = &config.settings;
    let with_uids = |confinement: Confinement| confinement.with_uids(settings.runner_uids);
    let confinement =
        confinement(config).map(with_uids).transpose().map_err(|error| DaemonError::Runs(error.into()))?;
    let confinement = confinement.map(with_cgroups).map(Confinement::suited_to_bubblewrap);
    let scratch_in = settings.runner_scratch.clone().unwrap_or_else(std::env::temp_dir);
    let note = confinement.map(|confinement| Note { confinement, scratch_in });
    write_note(&config.data_dir, note.as_ref()).map_err(DaemonError::Runs)?;
    let terms = note.map(|Note { confinement, scratch_in }| {
        confinement.check_hides_files(own_files(config))?;
        for miss in confinement.check_for(&config.data_dir, &scratch_in)? {
            warn!(runner = confinement.runner.as_str(), "{miss}");
        }
        let spool_bytes = settings.runner_spool_mib << 20;
        if ledger.lock().hosts().count() > 1 {
            warn!("the commands of all hosts of this site run on this machine; give each machine a node of its own");
        }
        Ok(RunTerms { grace_max: GRACE_MAX, spool_bytes, scratch_in, confinement })
    });
    let terms = terms.transpose().map_err(DaemonError::Runs)?;
    let root = config.data_dir.join(RUNS_DIR);
    // What an earlier configuration has left running is still watched and ended.
    let has_keepers = terms.is_some() || root.exists();
    let keepers = has_keepers.then(|| Keepers::open(&root)).transpose().map_err(DaemonError::Runs)?;
    let runner = (keepers.map(Arc::new), terms, Stores::at(&config.data_dir.join(FILES_DIR)));
    let here = (discovery, grid.id.clone());
    let audit = Arc::new(audit_log(config)?);
    let books = (ledger.clone(), usable.clone());
    let streams = open_files / STREAMS_PART;
    let shares = RunShares {
        streams: Divided::new("streams to runs", streams),
        open_files: Divided::new("open files for the ports of runs", open_files - streams),
    };
    Ok((Arc::new(RunSite::new(here, books, (clock, shares), audit.clone(), runner)), audit))
}

/// The log of who has changed what, with a copy for the machine's syslog where the owner wants that.
fn audit_log(config: &NodeConfig) -> Result<AuditLog, DaemonError> {
    let log = AuditLog::at(&config.data_dir);
    if !config.settings.audit.syslog {
        return Ok(log);
    }
    let failed = |error: io::Error| DaemonError::Value { key: "audit.syslog", detail: error.to_string() };
    Ok(log.with_syslog(Syslog::of_machine().map_err(failed)?))
}

/// The files of the owner that the configuration names, which may be or hold secrets.
fn own_files(config: &NodeConfig) -> impl Iterator<Item = &Path> {
    let settings = &config.settings;
    let programs = [&settings.activation.hook, &settings.notices.command, &settings.local.feed];
    let programs = programs.into_iter().flat_map(|program| &program.0).map(Path::new).filter(|path| path.is_absolute());
    let key = config.remote.iter().map(|remote| remote.key.as_path());
    key.chain(settings.hosts_file.as_deref()).chain(programs)
}

/// Where it is written down what was reserved and used, when commands are run.
pub fn use_directory(config: &NodeConfig) -> Option<PathBuf> {
    config.settings.runner?;
    used::beside_runs(&config.data_dir.join(RUNS_DIR)).map(Path::to_owned)
}

/// How commands are confined, when any are run.
fn confinement(config: &NodeConfig) -> Option<Confinement> {
    let settings = &config.settings;
    Some(Confinement {
        runner: settings.runner?,
        user: settings.runner_user.clone(),
        paths: settings.runner_paths.iter().map(PathBuf::from).collect(),
        has_network: settings.runner_network,
        memory_mib: None,
        cpu_millicores: None,
        processes_max: settings.runner_processes,
        cgroups: None,
        images: settings.runner_images.clone(),
        image_store: settings.runner_image_store.clone(),
        has_nested_namespaces: false,
        uids: None,
    })
}

/// With cgroups, where the machine gives the node some.
fn with_cgroups(confinement: Confinement) -> Confinement {
    let cgroups = cgroup::prepare().inspect_err(|error| match confinement.runner {
        Runner::Systemd => warn!("{error}: keepers end with the service of the node unless it has KillMode=process"),
        _ => warn!(
            "{error}: only the memory of each process of a seat is limited, its processors are not, and the ports of a run (--port) are open to all commands"
        ),
    });
    Confinement { cgroups: cgroups.ok(), ..confinement }
}
