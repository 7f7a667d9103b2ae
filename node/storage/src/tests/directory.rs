//! The directory: every state that a crash can leave between two file operations, and files that are missing, foreign
//! or changed.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use super::*;
use crate::{
    entry::{self, Entry},
    files, salvage, start, writer,
};

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn files_of(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    entries.map(|path| (PathBuf::from(path.file_name().unwrap()), fs::read(&path).unwrap())).collect()
}

fn lay_out(dir: &Path, files: &Files) {
    fs::create_dir_all(dir).unwrap();
    for (name, bytes) in files {
        fs::write(dir.join(name), bytes).unwrap();
    }
}

/// The attempts that a start from these files finds, or the refusal.
fn found(files: &Files) -> Result<Vec<u32>, StoreError> {
    let directory = tempfile::tempdir().unwrap();
    lay_out(directory.path(), files);
    let Some(loaded) = files::load(directory.path())? else { return Ok(Vec::new()) };
    let mut attempts: Vec<u32> =
        entry::remembered(&loaded.state)?.reservations.iter().map(|found| found.attempt.attempt).collect();
    attempts.sort_unstable();
    Ok(attempts)
}

/// Two generations: `snapshot.1`, `journal.1` closed, `journal.2` in use, `journal.3` ready; attempts 1 to 4, without 2.
fn two_generations(dir: &Path) -> Files {
    let home = |role, generation| crate::sector::Home { ledger: 9, generation, role };
    use crate::sector::Role::{Journal as J, Snapshot as S};
    let state = start_state();
    let mut journals: Vec<_> = (1..=3)
        .map(|generation| {
            let file = files::create_journal(dir, home(J, generation), 16).unwrap();
            crate::journal::Journal::new(Box::new(file), home(J, generation), 16)
        })
        .collect();
    files::write_snapshot(dir, home(S, 1), &state).unwrap();
    let group = |changes: &[Change]| {
        let mut content = Vec::new();
        writer::push_changes(changes, &mut content).unwrap();
        content
    };
    journals[0].append(&group(&[put(2), put(3)])).unwrap();
    let mut close = Vec::new();
    entry::push_entry(&Entry::Close, &mut close).unwrap();
    journals[0].append(&close).unwrap();
    journals[1].append(&group(&[remove(2), put(4)])).unwrap();
    files_of(dir)
}

fn start_state() -> entry::State {
    let mut state = entry::State::new();
    if let Entry::Put(key, value) = entry::put_reservation(&reservation(1)).unwrap() {
        state.insert(key, value);
    }
    state
}

#[test]
fn every_step_of_a_compaction_leaves_the_same_state() {
    let directory = tempfile::tempdir().unwrap();
    let before = two_generations(directory.path());
    assert_eq!(found(&before).unwrap(), [1, 3, 4]);
    files::compact(directory.path(), 9, 1, |_, _| false).unwrap();
    let after = files_of(directory.path());
    assert_eq!(
        after.keys().map(|name| name.to_str().unwrap()).collect::<Vec<_>>(),
        ["journal.2", "journal.3", "room.journal", "room.snapshot", "snapshot.2"]
    );
    assert_eq!(found(&after).unwrap(), [1, 3, 4]);
    // The crash between the new snapshot and the removals, in either order, and in the middle of the new snapshot.
    let new = after[Path::new("snapshot.2")].clone();
    for removed in [&[][..], &["snapshot.1"], &["journal.1"]] {
        let mut files = before.clone();
        files.insert("snapshot.2".into(), new.clone());
        removed.iter().for_each(|name| drop(files.remove(Path::new(name))));
        assert_eq!(found(&files).unwrap(), [1, 3, 4]);
    }
    for cut in [0, 1, 511, 512, new.len() - 1] {
        let mut files = before.clone();
        files.insert("snapshot.2.new".into(), new[..cut].to_vec());
        assert_eq!(found(&files).unwrap(), [1, 3, 4]);
    }
}

#[test]
fn a_start_can_be_cut_off_between_any_two_files() {
    let directory = tempfile::tempdir().unwrap();
    let before = two_generations(directory.path());
    let path = directory.path().join("started");
    lay_out(&path, &before);
    fs::write(path.join("snapshot.2.new"), "half").unwrap();
    let (writer, _) = start::start(&path, 1, small()).unwrap();
    writer.stop().unwrap();
    assert!(!&path.join("snapshot.2.new").exists());
    let after = files_of(&path);
    // The empty journal behind the one in use is made anew.
    let (journal, snapshot) = (Path::new("journal.3"), Path::new("snapshot.3"));
    let mut files = before;
    files.insert(journal.into(), vec![0; 16 * 512]);
    // An empty journal as it is before its first group: the one that the start made, without its seal.
    let mut empty = after[journal].clone();
    empty[512..].fill(0);
    files.insert(journal.into(), empty);
    assert_eq!(found(&files).unwrap(), [1, 3, 4]);
    files.insert(snapshot.into(), after[snapshot].clone());
    assert_eq!(found(&files).unwrap(), [1, 3, 4]);
}

#[test]
fn a_file_that_is_missing_or_foreign_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let files = two_generations(directory.path());
    for name in ["snapshot.1", "journal.1", "journal.2"] {
        let mut missing = files.clone();
        missing.remove(Path::new(name));
        assert!(matches!(found(&missing), Err(StoreError::Damaged { .. })), "{name}");
    }
    let mut without_both = files.clone();
    without_both.remove(Path::new("journal.2"));
    without_both.remove(Path::new("journal.3"));
    assert!(found(&without_both).is_err(), "the closing entry says that there is a next journal");
    for (to, from) in [("journal.1", "journal.2"), ("journal.2", "journal.3"), ("journal.2", "snapshot.1")] {
        let mut foreign = files.clone();
        foreign.insert(to.into(), files[Path::new(from)].clone());
        assert!(found(&foreign).is_err(), "{from} as {to}");
    }
}

#[test]
fn every_flipped_bit_and_every_cut_of_any_file_is_noticed_or_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let files = two_generations(directory.path());
    let scratch = tempfile::tempdir().unwrap();
    lay_out(scratch.path(), &files);
    let found = || -> Result<Vec<u32>, StoreError> {
        let loaded = files::load(scratch.path())?.unwrap();
        Ok(entry::remembered(&loaded.state)?.reservations.iter().map(|found| found.attempt.attempt).collect())
    };
    for (name, bytes) in &files {
        let path = scratch.path().join(name);
        // A prime step visits every bit of a byte in turn, and all bytes but the blank ones closely.
        for bit in (0..bytes.len() * 8).step_by(7) {
            if bit >= 8 * 512 * 6 && bit % 5 != 0 {
                continue;
            }
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &flipped).unwrap();
            if let Ok(attempts) = found() {
                assert_eq!(attempts, [1, 3, 4], "{} bit {bit}", name.display());
            }
        }
        for length in (0..bytes.len()).step_by(61) {
            fs::write(&path, &bytes[..length]).unwrap();
            assert!(found().is_err(), "{} cut to {length}", name.display());
        }
        fs::write(&path, bytes).unwrap();
    }
    assert_eq!(found().unwrap(), [1, 3, 4]);
}

#[test]
fn salvage_keeps_every_group_that_is_whole_and_the_damaged_files() {
    for (name, sector, kept) in
        [("snapshot.1", 1, vec![3, 4]), ("journal.1", 1, vec![1, 4]), ("journal.2", 0, vec![1, 3, 4])]
    {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        fs::create_dir(&path).unwrap();
        let mut files = two_generations(&path);
        files.get_mut(Path::new(name)).unwrap()[sector * 512 + 30] ^= 1;
        lay_out(&path, &files);
        assert!(start::start(&path, 1, small()).is_err());
        let lock = fs::metadata(path.join("lock")).unwrap().ino();
        let salvage = salvage::salvage(&path, 77).unwrap().unwrap();
        assert_eq!(salvage.reservations, kept.len(), "{name}");
        assert_eq!(files_of(&salvage.moved_to), files);
        assert_eq!(fs::metadata(&salvage.moved_to).unwrap().permissions().mode() & 0o777, 0o700, "private");
        assert_eq!(fs::metadata(path.join("lock")).unwrap().ino(), lock, "a node is kept out all the time");
        let (writer, found) = start::start(&path, 1, small()).unwrap();
        writer.stop().unwrap();
        let mut attempts: Vec<u32> = found.reservations.iter().map(|found| found.attempt.attempt).collect();
        attempts.sort_unstable();
        assert_eq!(attempts, kept, "{name}");
        assert!(found.incarnation > 77);
        assert_eq!(salvage::salvage(&path, 78).unwrap(), None, "a good ledger is left alone");
    }
}

#[test]
fn another_layout_is_named() {
    let directory = tempfile::tempdir().unwrap();
    // A header of a later layout, with a checksum that is right.
    let other = crate::sector::tests::header_of_layout(3);
    fs::write(directory.path().join("snapshot.1"), other).unwrap();
    let refused = start::start(directory.path(), 1, small()).err().unwrap();
    assert!(matches!(refused, StoreError::Layout { found: 3, .. }), "{refused}");
}
