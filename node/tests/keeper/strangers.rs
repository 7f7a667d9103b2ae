//! Commands on different seats are of different users of the machine, where the node is root.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use broker::ids::SeatNumber;
use kolo_seat::{
    Confinement, RunNumber, RunOrder, Runner, Task,
    frame::{End, ToKeeper},
    uids::{RunUids, UidRange},
};

use super::site::{Site, skip};

/// A run of a seat that has a user id of its own, where this machine gives it one.
fn own(site: &Site, (seat, run): (u32, u64), script: &str) -> Option<Task> {
    let task = site.task(&["sh", "-c", script]);
    let order = RunOrder { seat: SeatNumber(seat), run: RunNumber(run), keeps_files: true, ..task.order.clone() };
    match task.confinement.clone().with_uids(Some(RunUids::Of(UidRange::UNUSED))) {
        Ok(confinement) if Path::new("/usr/bin/perl").exists() => Some(Task { order, confinement, ..task }),
        Ok(_) => {
            skip("this machine has no perl");
            None
        }
        Err(why) => {
            skip(&why.to_string());
            None
        }
    }
}

#[tokio::test]
async fn a_seat_has_its_user_for_all_its_runs_and_no_other_seat_gets_at_its_sockets() {
    let site = Site::new();
    let listens = "id -u; exec perl -MSocket -e '$| = 1; socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un(\"socket\")) or die; listen(S, 5); print \"at $ENV{HOME} up\\n\"; while (accept(C, S)) { print C \"secret\"; close C }'";
    let Some(task) = own(&site, (0, 1), listens) else { return };
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said(" up\n").await;
    let said = String::from_utf8_lossy(&user.said[0]).into_owned();
    let (uid, rest) = said.split_once("\nat ").unwrap();
    let home = rest.strip_suffix(" up\n").unwrap();
    let asks = format!(
        "id -u; echo x > file; perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un(\"{home}/socket\")) or die \"$!\"; print <S>'"
    );
    let of_user = own(&site, (0, 2), &asks).unwrap();
    assert_eq!(site.run(&of_user).await, (End::Code(0), format!("{uid}\nsecret"), String::new()));
    let (end, stdout, stderr) = site.run(&own(&site, (1, 1), &asks).unwrap()).await;
    assert!(end != End::Code(0) && stderr.starts_with("Permission denied"), "{end:?} {stdout} {stderr}");
    let other: u32 = stdout.trim().parse().unwrap();
    assert!(uid != other.to_string() && UidRange::UNUSED.first().as_raw() <= other, "{uid} {other}");
    site.keepers.end(&id, "enough").unwrap();
    assert_eq!(user.end().await, End::Owner("enough".to_owned()));

    // What it leaves is its own, and the node's to give to its user.
    let files = site.keepers.files(&id).unwrap();
    assert_eq!(files.owner.map(|(uid, _)| uid.to_string()), Some(uid.to_owned()));
    assert_eq!(fs::metadata(files.scratch.join("socket")).unwrap().uid().to_string(), uid);
    user.send(&ToKeeper::EndSeen).await;
}

#[tokio::test]
async fn in_a_sandbox_the_user_of_a_seat_bears_the_name_of_that_of_commands() {
    let site = Site::new();
    let Some(task) = own(&site, (0, 1), "id -un; echo x > file; cat file; stat -c %U file") else { return };
    let confinement = Confinement { runner: Runner::Bubblewrap, ..task.confinement.clone() }.suited_to_bubblewrap();
    if let Err(why) = confinement.check(&task.scratch_in) {
        skip(&why.to_string());
        return;
    }
    let task = Task { confinement, ..task };
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    assert_eq!(user.end().await, End::Code(0));
    assert_eq!(String::from_utf8_lossy(&user.said[0]), "nobody\nx\nnobody\n");
    let files = site.keepers.files(&id).unwrap();
    let outside = fs::metadata(files.scratch.join("file")).unwrap().uid();
    assert!(UidRange::UNUSED.first().as_raw() <= outside, "{outside}");
    user.send(&ToKeeper::EndSeen).await;
}
