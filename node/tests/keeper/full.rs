//! Scratch disks that are full: a command is told so as everywhere, and one that cannot be prepared says why.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use broker::ids::RequestId;
use kolo_seat::{
    RunNumber, RunOrder, RunState, Task,
    files::serve::Stores,
    frame::{End, ToKeeper},
    freeing::Leavings,
};
use nix::unistd::geteuid;

use super::site::{Site, skip, until};

/// A disk of one MiB at this place, as long as this lives.
struct Small(PathBuf);

impl Small {
    fn at(path: &Path) -> Option<Small> {
        let options = "size=1m,mode=0755";
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).status();
        if !geteuid().is_root() || !mounted.is_ok_and(|status| status.success()) {
            skip("no disk can be mounted here");
            return None;
        }
        Some(Small(path.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_run_whose_output_fills_the_sites_disk_is_told_so_whether_or_not_somebody_is_attached() {
    let site = Site::new();
    let Some(_disk) = Small::at(&site.directory.path().join("runs")) else { return };
    let script = "head -c 3000000 /dev/zero || exit 5; sleep 1000";
    let is_told = |end: &End| matches!(end, End::Broken(why) if why.contains("disk of the site is full"));
    let other = site.directory.path().join("open/other");
    for (number, stays) in [(1, true), (2, false)] {
        let task = site.task(&["sh", "-c", script]);
        let order = RunOrder { run: RunNumber(number), ..task.order };
        let id = site.start(&Task { order, ..task });
        let mut user = site.attach(&id, [0; 2]).await;
        user.go().await;
        if stays {
            let end = user.end().await;
            assert!(is_told(&end), "{end:?}");
        }
        drop(user);
        let ended = || site.keepers.find(&id).map(|run| run.state);
        until("its end", || matches!(ended(), Ok(RunState::Ended(_)))).await;
        let Ok(RunState::Ended(end)) = ended() else { unreachable!() };
        assert!(is_told(&end), "on disk too: {end:?}");
        // What it has said until then is still there, and so is the site.
        let mut again = site.attach(&id, [0; 2]).await;
        assert!(is_told(&again.end().await) && again.said[0].len() > 100_000);
        again.send(&ToKeeper::EndSeen).await;
        until("its room is free again", || site.keepers.list().unwrap().is_empty()).await;
    }
    // Nothing starts where not even that has room.
    let runs = site.directory.path().join("runs");
    fs::write(runs.join("of-somebody-else"), vec![1; 2 << 20]).unwrap_err();
    let task = site.task(&["touch", other.to_str().unwrap()]);
    let order = RunOrder { run: RunNumber(3), ..task.order };
    let refused = site.keepers.start(&Task { order, ..task }, super::site::now()).unwrap_err();
    assert!(refused.to_string().contains("No space left") && !other.exists(), "{refused}");
}

#[tokio::test]
async fn a_command_that_fills_the_scratch_disk_is_told_so_and_one_that_finds_it_full_does_not_start() {
    let site = Site::new();
    let scratch = site.directory.path().join("scratch");
    let Some(_disk) = Small::at(&scratch) else { return };
    let (end, _, stderr) = site.sh("head -c 9000000 /dev/zero > big || exit 5").await;
    assert_eq!(end, End::Code(5), "{stderr}");
    assert!(stderr.contains("No space left"), "{stderr}");
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "what it has left is removed");

    fs::write(scratch.join("of-somebody-else"), vec![1; 2 << 20]).unwrap_err();
    let task = site.task(&["true"]);
    let mut order = task.order.clone();
    order.run.0 = 2;
    let id = site.start(&kolo_seat::Task { order, ..task });
    let mut user = site.attach(&id, [0; 2]).await;
    let end = user.end().await;
    let why = |end: &End| matches!(end, End::Failed(why) if why.contains("scratch directory") && why.contains("No space left"));
    assert!(why(&end), "{end:?}");
}

#[tokio::test]
async fn what_ended_runs_have_left_is_freed_and_what_goes_on_keeps_all() {
    let site = Site::new();
    let [runs, files] = ["runs", "files"].map(|name| site.directory.path().join(name));
    let stores = Stores::at(&files);
    let mut ids = Vec::new();
    for (request, script) in [("over", "head -c 300000 /dev/zero"), ("going-on", "echo begun; sleep 1000")] {
        let task = site.task(&["sh", "-c", script]);
        let order = RunOrder { request: RequestId::new(request).unwrap(), ..task.order };
        let id = site.start(&Task { order, ..task });
        let mut user = site.attach(&id, [0; 2]).await;
        user.go().await;
        let store = stores.of(&id.user, &id.request);
        fs::create_dir_all(&store).unwrap();
        fs::write(store.join("piece"), vec![1; 100_000]).unwrap();
        ids.push((id, store));
    }
    let [(over, its_files), (going_on, kept_files)] = ids.try_into().unwrap();
    until("its end", || matches!(site.keepers.find(&over).unwrap().state, RunState::Ended(_))).await;

    let found = Leavings::find(&runs, &files).unwrap();
    assert_eq!((found.runs.len(), found.files.len()), (1, 1));
    assert!(found.runs[0].id == over && found.files[0].id == over && found.bytes() > 400_000, "{found:?}");
    let freed = found.free();
    assert!(freed.bytes > 400_000 && freed.left.is_empty(), "{freed:?}");
    assert!(site.keepers.find(&over).is_err() && !its_files.exists());
    assert!(site.keepers.goes_on(&going_on) && kept_files.exists());
    assert!(Leavings::find(&runs, &files).unwrap().is_empty());
    // Its number stays used.
    let task = site.task(&["true"]);
    let order = RunOrder { request: over.request.clone(), ..task.order };
    assert!(site.keepers.start(&Task { order, ..task }, super::site::now()).is_err());
}
