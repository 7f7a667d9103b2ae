//! A disk that others have filled: the ledger goes on in the room that it has.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use super::*;

/// Says that the running test is skipped, where nobody overlooks it.
fn skip(why: &str) {
    let line = format!("{}: {why}\n", std::thread::current().name().unwrap_or("storage"));
    eprint!("SKIPPED: {line}");
    if let Some(list) = std::env::var_os("KOLO_SKIPPED") {
        let file = File::options().create(true).append(true).open(list);
        file.and_then(|mut file| file.write_all(line.as_bytes())).unwrap();
    }
}

/// A disk of 2 MiB at this place, as long as this lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn at(path: &Path) -> Option<SmallDisk> {
        let options = "size=2m,mode=0700";
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).status();
        let is_there = mounted.is_ok_and(|status| status.success());
        if !is_there {
            skip("no disk can be mounted here");
        }
        is_there.then(|| SmallDisk(path.to_owned()))
    }

    /// Takes all that is left of it.
    fn fill(&self) {
        let mut filler = File::options().create(true).append(true).open(self.0.join("filler")).unwrap();
        for bytes in [4096, 1] {
            while filler.write_all(&vec![1; bytes]).is_ok() {}
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn settings() -> StoreSettings {
    StoreSettings { journal_bytes_first: 32 << 10, journal_bytes_max: 64 << 10, ..StoreSettings::default() }
}

/// Writes reservations that are there once more, so that journals are compacted again and again.
async fn change_often(store: &Store, disk: &SmallDisk, known: u32) {
    for round in 0..1500 {
        store.commit(vec![put(1 + round % known)]).await.unwrap();
        if round % 100 == 0 {
            disk.fill();
        }
    }
}

#[tokio::test]
async fn a_snapshot_is_written_where_its_room_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let (store, _) = Store::open(&path, 1, small()).unwrap();
    let inode = |name: &str| fs::metadata(path.join(name)).map(|found| found.ino());
    let room = inode("room.snapshot").unwrap();
    for attempt in 1.. {
        store.commit(vec![put(attempt)]).await.unwrap();
        if let Ok(snapshot) = inode("snapshot.2") {
            assert_eq!(snapshot, room);
            break;
        }
    }
    assert!(store.has_room());
}

#[tokio::test]
async fn a_full_disk_stops_neither_changes_nor_starts_and_new_promises_are_to_be_none_then() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::at(directory.path()) else { return };
    let path = directory.path().join("ledger");
    let (mut store, _) = Store::open(&path, 1, settings()).unwrap();
    let mut known = 40;
    store.commit((1..=known).map(put).collect()).await.unwrap();
    change_often(&store, &disk, known).await;
    for start in 2..5 {
        drop(store);
        disk.fill();
        let found;
        (store, found) = reopen(&path, start, &settings());
        assert_eq!(found.reservations.len(), usize::try_from(known).unwrap());
        disk.fill();
        while store.has_room() {
            known += 1;
            assert!(known < 1000, "the disk is full");
            store.commit(vec![put(known)]).await.unwrap();
        }
        change_often(&store, &disk, known).await;
    }
    fs::remove_file(directory.path().join("filler")).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !store.has_room() {
        assert!(std::time::Instant::now() < until, "there is room again");
        store.look_for_room();
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
