//! `kolo doctor`: looks at a data directory and at the node that runs on it, and says what is wrong and what to do about it.
//!
//! A check of the directory is a function from it to findings; [`CHECKS`] lists them. [`credentials`], [`running`],
//! [`feed`], [`week`] and [`link`] need to know more.
//!
//! Invariant: nothing is changed unless `--salvage`, `--free` or `--clock-is-right` asks for it; a finding that is a problem says what to do.

mod audit;
mod credentials;
mod feed;
mod finding;
mod freeing;
mod identity;
mod link;
mod runner;
mod running;
mod week;

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use kolo_config::disk::Disk;
use kolo_runtime::clock::unix_ms;
use kolo_storage::{
    Inspection, StoreError,
    data_dir::{API_TOKEN_FILE, IDENTITY_FILE, LEDGER_DIR},
};
use kolo_text::safe::safe;
use serde::Serialize;

use self::finding::{Finding, Level};
use super::Context;
use crate::{
    args::DoctorArgs,
    error::CliError,
    exit::Exit,
    output::{Look, Report},
};

/// Free space below which a ledger may soon fail to be written: a few journals and snapshots.
const FREE_MIB_MIN: u64 = 256;

type Check = fn(&Path) -> Vec<Finding>;

/// All checks, in the order in which they are shown.
const CHECKS: [Check; 5] = [check_directory, check_disk, check_ledger, audit::check, runner::check];

#[derive(Debug, Serialize)]
struct Findings {
    data_dir: String,
    findings: Vec<Finding>,
}

pub fn run(context: &mut Context, args: &DoctorArgs) -> Result<Exit, CliError> {
    let data_dir = match &context.global.data_dir {
        Some(directory) => directory.clone(),
        None => context.surroundings.default_data_dir()?,
    };
    // First, so that the checks see what came of it.
    let salvaged = args.salvage.then(|| salvage(&data_dir));
    let freed = args.free.then(|| freeing::free(&data_dir, args.yes)).transpose()?;
    let mut findings = examine(&data_dir);
    findings.findings.splice(0..0, salvaged.into_iter().chain(freed));
    if args.clock_is_right {
        findings.findings.insert(0, running::confirm_clock(&context.connect()?)?);
    }
    let is_other = context.global.data_dir.is_none() && !data_dir.exists();
    if let Some(service) = context.surroundings.service_data_dir.as_ref().filter(|_| is_other) {
        let what = format!("the service of this machine has its own in {}", service.display());
        let to_do = format!("to look at that one, as root: kolo doctor --data-dir {}", service.display());
        findings.findings.push(Finding::note("service", what, to_do));
    }
    let user_dir = context.surroundings.user_dir();
    let zone = context.now.time_zone();
    findings.findings.extend(credentials::check(&data_dir, user_dir.as_deref(), context.time(), zone));
    findings.findings.extend(running::check(context.connect(), context.time(), zone));
    findings.findings.extend(feed::check(context.connect(), zone));
    findings.findings.extend(week::check(context.connect(), context.time(), zone));
    findings.findings.extend(args.link_with.as_ref().map(|site| link::check(context.connect(), site)));
    context.output.print(&findings)?;
    let is_bad = findings.findings.iter().any(|finding| finding.level == Level::Problem);
    Ok(if is_bad { Exit::Failure } else { Exit::Done })
}

fn examine(data_dir: &Path) -> Findings {
    let findings = CHECKS.iter().flat_map(|check| check(data_dir)).collect();
    Findings { data_dir: data_dir.display().to_string(), findings }
}

impl Report for Findings {
    fn text(&self, look: &Look) -> String {
        let mut text = format!("data directory {}\n", safe(&self.data_dir));
        for finding in &self.findings {
            let level = format!("{:<8}", finding.level.name());
            let level = match finding.level {
                Level::Good => look.paint.good(&level),
                Level::Note => look.paint.doubtful(&level),
                Level::Problem => look.paint.bad(&level),
            };
            text.push_str(&format!("{level}{}: {}\n", finding.check, safe(&finding.what)));
            for line in &finding.picture {
                text.push_str(&format!("        {}\n", safe(line)));
            }
            if let Some(to_do) = &finding.to_do {
                text.push_str(&format!("        what to do: {}\n", safe(to_do)));
            }
        }
        text
    }

    fn ids(&self) -> Vec<String> {
        let problems = self.findings.iter().filter(|finding| finding.level == Level::Problem);
        problems.map(|finding| finding.check.to_owned()).collect()
    }
}

fn check_directory(data_dir: &Path) -> Vec<Finding> {
    const CHECK: &str = "directory";
    let metadata = match fs::metadata(data_dir) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => {
            return vec![Finding::problem(CHECK, "it is no directory", "name a directory with --data-dir")];
        }
        Err(error) => {
            let what = match error.kind() {
                io::ErrorKind::NotFound => "there is none".to_owned(),
                _ => error.to_string(),
            };
            let to_do = "start kolo node once, which makes it, or name another with --data-dir";
            return vec![Finding::problem(CHECK, what, to_do)];
        }
    };
    let mut findings = Vec::new();
    let secrets = [IDENTITY_FILE, API_TOKEN_FILE].map(|name| data_dir.join(name));
    let secrets = secrets.map(|path| (fs::metadata(&path), path));
    for (metadata, path) in [(Ok(metadata), data_dir.to_owned())].into_iter().chain(secrets) {
        match metadata {
            Ok(metadata) if metadata.mode() & 0o077 != 0 => {
                let what = format!("other users may read {}", path.display());
                let to_do = format!("chmod go= {}", path.display());
                findings.push(Finding::problem(CHECK, what, to_do));
            }
            // A secret that is not there is made at the next start.
            Ok(_) | Err(_) => {}
        }
    }
    if findings.is_empty() {
        findings.push(Finding::good(CHECK, "it is private to its owner"));
    }
    findings
}

fn check_disk(data_dir: &Path) -> Vec<Finding> {
    const CHECK: &str = "disk";
    let disk = match Disk::of(data_dir) {
        Ok(disk) => disk,
        Err(error) => return vec![Finding::new(CHECK, Level::Note, format!("the system reports an error: {error}"))],
    };
    let what = format!("{} MiB are free for {}", disk.free_mib, data_dir.display());
    vec![if disk.is_read_only {
        Finding::problem(CHECK, "it cannot be written", "mount it for writing; the system's log may say why it is not")
    } else if disk.free_mib < FREE_MIB_MIN {
        let to_do = format!(
            "make room for at least {FREE_MIB_MIN} MiB: on a full disk a site promises nothing new, and its users' commands end; \
             kolo doctor --free, with the node stopped, drops what ended commands have left"
        );
        Finding::problem(CHECK, what, to_do)
    } else {
        Finding::good(CHECK, what)
    }]
}

fn check_ledger(data_dir: &Path) -> Vec<Finding> {
    const CHECK: &str = "ledger";
    if !data_dir.is_dir() {
        return Vec::new();
    }
    let inspected = kolo_storage::inspect(&data_dir.join(LEDGER_DIR));
    let site = if let Inspection::Good(summary) = &inspected { summary.site.as_ref() } else { None };
    let identity = identity::check(data_dir, site);
    let ledger = match inspected {
        Inspection::Empty => Finding::new(CHECK, Level::Note, "no node has run here yet"),
        Inspection::InUse => {
            let what = "a node runs here, and checked it when it started; stop the node to have it checked again";
            Finding::new(CHECK, Level::Note, what)
        }
        Inspection::Good(summary) => {
            let torn = "; the last write was cut off before anybody was told of it, and the next start drops it";
            let what = format!(
                "every sector checks out: {} reservations, {} requests, {} writes since the snapshot{}",
                summary.reservations,
                summary.requests,
                summary.groups,
                if summary.is_torn { torn } else { "" }
            );
            Finding::good(CHECK, what)
        }
        Inspection::Bad(error) => {
            let to_do = advice(&error, data_dir);
            Finding::problem(CHECK, error.to_string(), to_do)
        }
    };
    [ledger].into_iter().chain(identity).collect()
}

/// Makes a new ledger of a damaged one, and says what came of it.
fn salvage(data_dir: &Path) -> Finding {
    const CHECK: &str = "salvage";
    let salvaged = match kolo_storage::salvage(&data_dir.join(LEDGER_DIR), unix_ms()) {
        Ok(Some(salvaged)) => salvaged,
        Ok(None) => return Finding::new(CHECK, Level::Note, "the ledger is not damaged; nothing was done"),
        Err(error) => {
            let to_do = advice(&error, data_dir);
            return Finding::problem(CHECK, error.to_string(), to_do);
        }
    };
    let what = format!(
        "a new ledger holds {} reservations and {} requests; {} sectors are lost, and with them what only they held",
        salvaged.reservations, salvaged.requests, salvaged.sectors_lost
    );
    let to_do = format!(
        "kolo node starts with it; the damaged files are in {}. Ask those who have reservations here to look with kolo \
         show whether theirs still stand",
        salvaged.moved_to.display()
    );
    Finding::note(CHECK, what, to_do)
}

/// What an owner can do about a ledger that does not open.
fn advice(error: &StoreError, data_dir: &Path) -> String {
    let dir = data_dir.display();
    match error {
        StoreError::Damaged { .. } => format!(
            "1. leave the node stopped and copy {dir} elsewhere; 2. look for disk errors in the system's log, and replace \
             a disk that has any; 3. if a copy of the whole directory exists that was made after the node last ran, put it \
             back (an older copy would forget what was promised since); 4. else kolo doctor --salvage makes a new ledger of \
             what can be read"
        ),
        StoreError::Layout { .. } | StoreError::Undecodable { .. } => {
            "run the version of kolo that wrote it, or a newer one; nothing is lost".to_owned()
        }
        StoreError::OtherSite { .. } => identity::BACKUP.to_owned(),
        StoreError::Full { .. } => {
            "make room on the disk; kolo doctor --free drops what ended commands have left".to_owned()
        }
        StoreError::TooManyOpen { .. } => {
            "end programs that have many files open, or raise the limit (ulimit -n)".to_owned()
        }
        StoreError::Disk { .. } | StoreError::InUse(_) | StoreError::TooLarge { .. } | StoreError::Stopped => {
            "check that the user who runs the node may read and write all files there, that the disk is not full, and \
             that the system's log has no disk errors"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use kolo_storage::{Store, StoreSettings};

    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    fn levels(findings: &Findings, check: &str) -> Vec<Level> {
        findings.findings.iter().filter(|finding| finding.check == check).map(|finding| finding.level).collect()
    }

    #[test]
    fn a_directory_goes_from_empty_to_good_to_damaged() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(levels(&examine(&directory.path().join("none")), "directory"), [Level::Problem]);
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(levels(&examine(directory.path()), "directory"), [Level::Problem]);
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let empty = examine(directory.path());
        assert_eq!(levels(&empty, "directory"), [Level::Good]);
        assert_eq!(levels(&empty, "ledger"), [Level::Note]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was made");

        let ledger = directory.path().join(LEDGER_DIR);
        let (store, _) = Store::open(&ledger, 1, StoreSettings::default()).unwrap();
        assert!(matches!(kolo_storage::inspect(&ledger), Inspection::InUse));
        drop(store);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while matches!(kolo_storage::inspect(&ledger), Inspection::InUse) {
            assert!(std::time::Instant::now() < deadline, "the writer has not stopped");
            std::thread::yield_now();
        }
        assert_eq!(levels(&examine(directory.path()), "ledger"), [Level::Good]);
        assert_eq!(levels(&examine(directory.path()), "identity"), [Level::Problem], "its key is gone");
        discovery::Identity::load_or_create(&directory.path().join(IDENTITY_FILE)).unwrap();

        let snapshot = directory.path().join("ledger/snapshot.1");
        let mut bytes = fs::read(&snapshot).unwrap();
        bytes[600] ^= 1;
        fs::write(&snapshot, bytes).unwrap();
        let bad = examine(directory.path());
        assert_eq!(levels(&bad, "ledger"), [Level::Problem]);
        let text = printed(&bad, OutputFormat::Table);
        assert!(
            text.contains("snapshot.1: sector 1: ") && text.contains("what to do: 1. leave the node stopped"),
            "{text}"
        );
        assert_eq!(printed(&bad, OutputFormat::Quiet), "ledger\n");
    }

    #[test]
    fn every_problem_says_what_to_do() {
        let errors = [StoreError::Stopped, StoreError::Layout { file: "f".to_owned(), found: 9 }];
        assert!(errors.iter().all(|error| !advice(error, Path::new("/d")).is_empty()));
        let findings = examine(Path::new("/nowhere"));
        assert!(findings.findings.iter().all(|finding| (finding.level == Level::Problem) == finding.to_do.is_some()));
    }
}
