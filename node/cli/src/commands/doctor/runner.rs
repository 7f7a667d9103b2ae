//! Whether this machine can confine the commands of users as the owner wants it.
//!
//! The node notes at each start how that is. Invariant: nothing of a user is run; a sandbox is tried around nothing.

use std::{os::unix::fs::MetadataExt as _, path::Path};

use kolo_seat::{
    Confinement,
    confine::{NOTE_FILE, Note},
};
use kolo_trust::files;

use super::finding::Finding;

const CHECK: &str = "runner";
/// Largest note.
const NOTE_BYTES_MAX: u64 = 64 * 1024;

/// What is said where the owner lets no commands run.
const NOTHING_RUNS: &str =
    "commands of users are not run; runner = \"bubblewrap\" in site.toml lets them (docs/run.md)";

/// Tries what the node here has noted; nothing to say before it has.
pub(super) fn check(data_dir: &Path) -> Vec<Finding> {
    let note = files::read(&data_dir.join(NOTE_FILE), NOTE_BYTES_MAX).ok().flatten();
    let Some(noted) = note else { return Vec::new() };
    match serde_json::from_str::<Option<Note>>(&noted) {
        Ok(Some(_)) if !is_of_us(data_dir) => {
            let to_do = "run kolo doctor as the user of the node";
            vec![Finding::note(CHECK, "another user's node runs commands, which is tested only as that user", to_do)]
        }
        Ok(Some(note)) => findings(&note, data_dir),
        Ok(None) => vec![Finding::good(CHECK, NOTHING_RUNS)],
        Err(error) => {
            let to_do = "start the node again, which writes it";
            vec![Finding::problem(CHECK, format!("its note {NOTE_FILE} cannot be read: {error}"), to_do)]
        }
    }
}

fn is_of_us(data_dir: &Path) -> bool {
    std::fs::metadata(data_dir).is_ok_and(|found| found.uid() == nix::unistd::geteuid().as_raw())
}

fn findings(Note { confinement, scratch_in }: &Note, data_dir: &Path) -> Vec<Finding> {
    let misses = match confinement.check_for(data_dir, scratch_in) {
        Ok(misses) => misses,
        Err(error) => {
            let to_do = "the node does not start like this; without the key runner it starts, and runs no commands";
            return vec![Finding::problem(CHECK, error.to_string(), to_do)];
        }
    };
    let without_cgroups = (!confinement.has_cgroup()).then(|| {
        let what = "seats have no cgroups: their processors and the sum of their memory are not limited, and the ports of a run (--port) are open to all commands";
        Finding::note(CHECK, what, "the log of the node says why at its start, and docs/run.md what gives it some")
    });
    let shared = shared(confinement);
    if misses.is_empty() && without_cgroups.is_none() {
        let what = format!("commands of users are confined by runner = {:?}", confinement.runner.as_str());
        return [Finding::good(CHECK, what)].into_iter().chain(shared).collect();
    }
    let to_do = "docs/run.md, \"For owners\", says what a machine needs to enforce it";
    let misses = misses.into_iter().map(|miss| Finding::note(CHECK, miss, to_do));
    misses.chain(without_cgroups).chain(shared).collect()
}

/// What commands of different users share, in one note; none where they share nothing.
fn shared(confinement: &Confinement) -> Option<Finding> {
    let shared = confinement.shared();
    let to_do = "docs/run.md, \"What users share\", says which runner parts users how far";
    let what = || format!("users are not parted in all: {}", shared.join("; "));
    (!shared.is_empty()).then(|| Finding::note(CHECK, what(), to_do))
}

#[cfg(test)]
mod tests {
    use kolo_seat::Runner;

    use super::{super::finding::Level, *};

    fn plain() -> Confinement {
        Confinement {
            runner: Runner::None,
            user: Some("no-such-user".to_owned()),
            paths: Vec::new(),
            has_network: false,
            memory_mib: None,
            cpu_millicores: None,
            processes_max: 9,
            cgroups: None,
            images: Vec::new(),
            image_store: None,
            has_nested_namespaces: false,
            uids: None,
        }
    }

    #[test]
    fn what_users_share_is_one_note_that_names_the_table() {
        let found = shared(&plain()).unwrap();
        assert!(found.level == Level::Note && found.what.contains("listens with on the network"), "{found:?}");
        assert!(found.to_do.unwrap().contains("\"What users share\""));
        let uids = serde_json::from_str("\"2013265920-2147483647\"").unwrap();
        let closed = Confinement { runner: Runner::Bubblewrap, uids, ..plain() };
        assert_eq!(shared(&closed), None);
    }

    #[test]
    fn what_the_node_has_noted_is_tried() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(check(directory.path()), []);
        let note = |text: &str| files::replace(&directory.path().join(NOTE_FILE), text).unwrap();
        note("null");
        assert_eq!(check(directory.path()), [Finding::good(CHECK, NOTHING_RUNS)]);
        note("{");
        assert_eq!(check(directory.path())[0].level, Level::Problem);
        let confinement = plain();
        let scratch_in = std::env::temp_dir();
        note(&serde_json::to_string(&Note { confinement, scratch_in }).unwrap());
        let found = check(directory.path());
        assert!(found[0].level == Level::Problem && found[0].what.contains("useradd"), "{found:?}");
    }
}
