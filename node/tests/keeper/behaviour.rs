//! What a keeper does for the command of a user, and what it does whatever is killed when.

use std::{fs, path::PathBuf, time::Duration};

use broker::time::Span;
use kolo_seat::{
    RunError, RunId, RunNumber, RunOrder, RunState, Task,
    frame::{Data, End, FrameReader, FromKeeper, Output, STDIN_BYTES_AHEAD_MAX, TerminalSize, ToKeeper, encode},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{io::AsyncWriteExt as _, net::UnixStream, time::timeout};

use super::site::{PATIENCE, Site, is_alive, now, now_ms, until};

#[tokio::test]
async fn a_command_says_what_it_says_and_ends_as_it_ends() {
    let site = Site::new();
    assert_eq!(site.sh("echo out; echo err >&2; exit 3").await, (End::Code(3), "out\n".to_owned(), "err\n".to_owned()));
    until("the run is forgotten", || site.keepers.list().unwrap().is_empty()).await;
    assert_eq!(fs::read_dir(site.directory.path().join("scratch")).unwrap().count(), 0, "nothing of it is left");
    let other = Site::new();
    assert_eq!(other.sh("kill -KILL $$").await.0, End::Signal(9));
}

#[tokio::test]
async fn what_cannot_run_is_told_before_anything_runs() {
    let site = Site::new();
    let id = site.start(&site.task(&["no-such-program"]));
    let mut user = site.attach(&id, [0; 2]).await;
    let end = user.until(|_, frame| matches!(frame, FromKeeper::Ready | FromKeeper::Ended(_))).await;
    let FromKeeper::Ended(End::Failed(why)) = end else { panic!("{end:?}") };
    assert!(why.starts_with("no-such-program: not found in PATH"), "{why}");
}

#[tokio::test]
async fn nothing_runs_before_the_word() {
    let site = Site::new();
    let mark = site.directory.path().join("open/mark");
    let id = site.start(&site.task(&["touch", mark.to_str().unwrap()]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.until(|_, frame| *frame == FromKeeper::Ready).await;
    assert_eq!(site.state(), Some(RunState::Waiting));
    site.keepers.end(&id, "another seat is not ready").unwrap();
    assert_eq!(user.end().await, End::Owner("another seat is not ready".to_owned()));
    assert!(!mark.exists());
}

#[tokio::test]
async fn an_order_that_the_site_took_in_time_starts_whenever_all_are_ready() {
    let site = Site::new();
    let task = site.task(&["true"]);
    let expires = now() + Span(10);
    let id = site.start(&Task { order: RunOrder { expires, ..task.order }, ..task });
    let mut user = site.attach(&id, [0; 2]).await;
    user.until(|_, frame| *frame == FromKeeper::Ready).await;
    until("the order to expire", || now() > expires).await;
    user.send(&ToKeeper::Go).await;
    assert_eq!(user.end().await, End::Code(0));
}

#[tokio::test]
async fn a_run_whose_keeper_is_killed_before_the_word_is_over_with_its_order() {
    let site = Site::new();
    let mark = site.directory.path().join("open/mark");
    let task = site.task(&["touch", mark.to_str().unwrap()]);
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.until(|_, frame| *frame == FromKeeper::Ready).await;
    kill(site.pid_in("lock"), Signal::SIGKILL).unwrap();
    assert_eq!(site.state(), Some(RunState::Waiting), "its user may come back for it");
    let file = site.only_run().join("task");
    let (text, expires) = (fs::read_to_string(&file).unwrap(), task.order.expires.0);
    fs::write(&file, text.replace(&format!("\"expires\":{expires}"), "\"expires\":1")).unwrap();
    until("its keeper to be gone", || site.state() != Some(RunState::Waiting)).await;
    let state = site.state();
    assert!(matches!(state, Some(RunState::Ended(End::Failed(_)))), "{state:?}");
    assert!(matches!(site.keepers.end(&id, "away with it"), Err(RunError::Over)));
    let mut user = site.attach(&id, [0; 2]).await;
    user.send(&ToKeeper::Go).await;
    let end = user.end().await;
    assert!(matches!(end, End::Failed(_)) && !mark.exists(), "{end:?}");
}

#[tokio::test]
async fn a_keeper_that_lives_is_not_robbed_of_its_socket() {
    let site = Site::new();
    let id = site.start(&site.task(&["sleep", "1000"]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.until(|_, frame| matches!(frame, FromKeeper::Started { .. })).await;
    let socket = site.only_run().join("socket");
    let aside = site.only_run().join("aside");
    fs::rename(&socket, &aside).unwrap();
    assert!(matches!(site.keepers.connect(&id), Err(RunError::System { .. })), "it cannot be reached now");
    fs::rename(&aside, &socket).unwrap();
    site.keepers.end(&id, "reached again").unwrap();
    assert_eq!(user.end().await, End::Owner("reached again".to_owned()));
}

#[tokio::test]
async fn whoever_has_all_is_told_so_at_once_and_not_before() {
    let site = Site::new();
    let id = site.start(&site.task(&["sh", "-c", "yes | head -c 300000; echo all; sleep 1000"]));
    let mut starter = site.attach(&id, [0; 2]).await;
    starter.go().await;
    starter.has_said("all").await;
    let mut reader = site.attach(&id, [0; 2]).await;
    reader.until(|reader, _| reader.has[0] == starter.has[0]).await;
    let begun = std::time::Instant::now();
    reader.until(|_, frame| *frame == FromKeeper::Heartbeat).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "before it is silent for long");
    assert_eq!(reader.has[0], starter.has[0], "and all has come");
    site.keepers.end(&id, "over").unwrap();
}

#[tokio::test]
async fn a_number_is_used_once_whatever_becomes_of_the_run() {
    let site = Site::new();
    let mark = site.directory.path().join("open/mark");
    let task = site.task(&["sh", "-c", &format!("echo run >> {}", mark.display())]);
    assert_eq!(site.run(&task).await.0, End::Code(0));
    until("the run is forgotten", || site.keepers.list().unwrap().is_empty()).await;
    assert!(matches!(site.keepers.start(&task, now()), Err(RunError::Used(_))));
    let again = Site::open(site.directory.path());
    assert!(matches!(again.start(&task, now()), Err(RunError::Used(_))));
    assert!(matches!(again.connect(&RunId::of(&task)), Err(RunError::Unknown)));
    assert_eq!(fs::read_to_string(mark).unwrap(), "run\n");
    let late = Task { order: RunOrder { run: RunNumber(2), ..task.order.clone() }, deadline: now(), ..task };
    assert!(matches!(again.start(&late, now()), Err(RunError::Late(_))));
}

#[tokio::test]
async fn a_run_goes_on_without_its_node_and_is_found_again() {
    let site = Site::new();
    let task = site.task(&["sh", "-c", "echo one; read line; echo $line; exit 7"]);
    let task = Task { order: RunOrder { has_stdin: true, ..task.order }, ..task };
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("one").await;
    drop(user);
    let node = Site::open(site.directory.path());
    assert!(matches!(node.list().unwrap()[0].state, RunState::Running { .. }));
    assert!(matches!(node.start(&task, now()), Err(RunError::Known(_))));
    let mut user = site.attach(&id, [4, 0]).await;
    user.send(&ToKeeper::Stdin { offset: 0, data: Data(b"two\n".to_vec()) }).await;
    assert_eq!(user.end().await, End::Code(7));
    assert_eq!(user.said[0], b"two\n", "from where the first one was");
    drop(user);
    // The end is told as often as it is asked for, also by a keeper that is started for it.
    let keeper = site.pid_in("lock");
    kill(keeper, Signal::SIGKILL).unwrap();
    until("the keeper is gone", || !is_alive(keeper.as_raw().unsigned_abs())).await;
    let mut user = site.attach(&id, [0; 2]).await;
    assert_eq!(user.end().await, End::Code(7));
    assert_eq!(user.said[0], b"one\ntwo\n");
}

#[tokio::test]
async fn the_word_of_one_who_leaves_at_once_holds() {
    let site = Site::new();
    for number in 1..=8 {
        let task = site.task(&["true"]);
        let id = site.start(&Task { order: RunOrder { run: RunNumber(number), ..task.order.clone() }, ..task });
        let mut user = site.attach(&id, [0; 2]).await;
        user.send(&ToKeeper::Go).await;
        drop(user);
        let ended = || site.keepers.find(&id).map(|run| run.state);
        until("it runs", || matches!(ended(), Ok(RunState::Ended(End::Code(0))))).await;
    }
}

#[tokio::test]
async fn whoever_else_comes_to_the_barrier_is_not_heard() {
    let site = Site::new();
    let id = site.start(&site.task(&["sh", "-c", "sleep 0.1; exit 7"]));
    let barrier = site.only_run().join("barrier");
    // It comes before the command does, as what a keeper before this one has started may.
    let other = std::thread::spawn(move || {
        let began = std::time::Instant::now();
        while began.elapsed() < PATIENCE {
            if let Ok(other) = std::os::unix::net::UnixStream::connect(&barrier) {
                return other;
            }
        }
        panic!("there is no barrier");
    });
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    assert_eq!(user.end().await, End::Code(7));
    drop(other.join().unwrap());
}

#[tokio::test]
async fn what_its_user_gives_up_before_the_word_never_runs_and_leaves_at_once() {
    let site = Site::new();
    let mark = site.directory.path().join("open/mark");
    let id = site.start(&site.task(&["touch", mark.to_str().unwrap()]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.until(|_, frame| *frame == FromKeeper::Ready).await;
    user.send(&ToKeeper::Signal(9)).await;
    user.send(&ToKeeper::Go).await;
    let end = user.end().await;
    assert!(matches!(&end, End::Failed(why) if why.contains("its user has given it up")), "{end:?}");
    assert!(!mark.exists());
}

#[tokio::test]
async fn a_run_whose_keeper_is_killed_is_lost_and_over() {
    let site = Site::new();
    let task = site.task(&["sh", "-c", "setsid sleep 1000 & echo $!; exec sleep 1000"]);
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("\n").await;
    let left: u32 = String::from_utf8_lossy(&user.said[0]).trim().parse().unwrap();
    let pid = user.pid.unwrap();
    kill(site.pid_in("lock"), Signal::SIGKILL).unwrap();
    until("the command ends with its keeper", || !is_alive(pid)).await;
    until("it is known to be lost", || site.state() == Some(RunState::Ended(End::Lost))).await;
    let node = Site::open(site.directory.path());
    until("what it had left ends when the node starts", || !is_alive(left)).await;
    assert!(matches!(node.start(&task, now()), Err(RunError::Known(_))), "and it is not run again");
    let mut user = site.attach(&id, [0; 2]).await;
    assert_eq!(user.end().await, End::Lost);
}

#[tokio::test]
async fn files_that_a_user_may_fetch_stay_when_the_keeper_is_killed() {
    for keeps_files in [true, false] {
        let site = Site::new();
        let task = site.task(&["sh", "-c", "echo x > file; echo up; exec sleep 1000"]);
        let id = site.start(&Task { order: RunOrder { keeps_files, ..task.order }, ..task });
        let mut user = site.attach(&id, [0; 2]).await;
        user.go().await;
        user.has_said("up").await;
        let scratch = site.keepers.files(&id).unwrap().scratch;
        assert!(!site.keepers.end_rest(&id), "its keeper lives");
        kill(site.pid_in("lock"), Signal::SIGKILL).unwrap();
        until("it is lost", || site.state() == Some(RunState::Ended(End::Lost))).await;
        assert!(site.keepers.end_rest(&id), "once is enough");
        assert!(!is_alive(user.pid.unwrap()));
        drop(Site::open(site.directory.path()));
        assert_eq!(scratch.join("file").exists(), keeps_files, "nor does the start of the node remove it");
        site.keepers.forget(&id).unwrap();
        assert!(!scratch.exists());
    }
}

#[tokio::test]
async fn nothing_outlives_the_command_or_holds_its_end_up() {
    let site = Site::new();
    let (end, stdout, _) =
        site.sh("setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1000; done' & sleep 1000 & echo $!; exit 4").await;
    assert_eq!(end, End::Code(4));
    assert!(!is_alive(stdout.trim().parse().unwrap()));
}

#[tokio::test]
async fn a_window_ends_to_the_second_whatever_the_command_does() {
    let site = Site::new();
    let task = site.task(&[
        "sh",
        "-c",
        "trap 'echo told' TERM; (trap '' TERM; setsid sleep 1000) & while :; do sleep 0.05; done",
    ]);
    let task = Task { deadline: now() + Span(8), grace: Duration::from_secs(1), ..task };
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("told").await;
    let deadline_ms = u64::try_from(task.deadline.0).unwrap() * 1000;
    assert!(now_ms() + 1100 >= deadline_ms, "not told before the grace begins");
    assert_eq!(user.end().await, End::WindowEnded);
    let over_ms = now_ms().saturating_sub(deadline_ms);
    assert!(now_ms() >= deadline_ms && over_ms < 1000, "{over_ms} ms over");
    assert!(!is_alive(user.pid.unwrap()));
}

#[tokio::test]
async fn an_owner_ends_a_run_with_words_that_its_user_reads_and_may_move_the_end() {
    let site = Site::new();
    let id = site.start(&site.task(&["sleep", "1000"]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.until(|_, frame| matches!(frame, FromKeeper::Started { .. })).await;
    site.keepers.set_deadline(&id, now() + Span(1200)).unwrap();
    site.keepers.end(&id, "I need it").unwrap();
    assert_eq!(user.end().await, End::Owner("I need it".to_owned()));
    assert!(matches!(site.keepers.end(&id, "again"), Err(RunError::Over)));
}

#[tokio::test]
async fn whoever_may_run_nothing_any_more_has_no_grace_of_an_earlier_end() {
    let site = Site::new();
    let task = site.task(&["sh", "-c", "trap 'echo told' TERM; echo up; while :; do sleep 0.05; done"]);
    let id = site.start(&Task { deadline: now() + Span(3600), grace: Duration::from_secs(600), ..task });
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("up").await;
    site.keepers.end(&id, "I need it").unwrap();
    user.has_said("told").await;
    site.keepers.deny(&id, "revoked").unwrap();
    assert_eq!(user.end().await, End::Owner("I need it".to_owned()));
}

#[tokio::test]
async fn signals_arrive() {
    let site = Site::new();
    let id = site.start(&site.task(&["sh", "-c", "trap 'exit 12' USR1; echo up; while :; do sleep 0.05; done"]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("up").await;
    user.send(&ToKeeper::Signal(10)).await;
    assert_eq!(user.end().await, End::Code(12));
}

#[tokio::test]
async fn input_flows_at_the_pace_of_the_command_and_none_is_lost() {
    let site = Site::new();
    let task = site.task(&["sh", "-c", "sleep 0.2; sha256sum; exit 5"]);
    let id = site.start(&Task { order: RunOrder { has_stdin: true, ..task.order }, ..task });
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    let piece = vec![b'x'; 60_000];
    let total = 200 * piece.len() as u64;
    let mut offset = 0;
    while offset < total {
        while offset + piece.len() as u64 > user.stdin_given.unwrap_or(0) + STDIN_BYTES_AHEAD_MAX {
            user.next().await.unwrap();
        }
        user.send(&ToKeeper::Stdin { offset, data: Data(piece.clone()) }).await;
        offset += piece.len() as u64;
    }
    user.send(&ToKeeper::StdinEnd).await;
    assert_eq!(user.end().await, End::Code(5));
    let expected = std::process::Command::new("sh")
        .args(["-c", "head -c 12000000 /dev/zero | tr '\\0' x | sha256sum"])
        .output()
        .unwrap();
    assert_eq!(user.said[0], expected.stdout);
}

#[tokio::test]
async fn whoever_sends_too_far_ahead_is_cut_off_and_the_run_goes_on() {
    let site = Site::new();
    let task = site.task(&["sh", "-c", "sleep 1000"]);
    let id = site.start(&Task { order: RunOrder { has_stdin: true, ..task.order }, ..task });
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.send(&ToKeeper::Stdin { offset: 1 << 40, data: Data(vec![1]) }).await;
    while user.next().await.is_some() {}
    let mut user = site.attach(&id, [0; 2]).await;
    user.until(|_, frame| matches!(frame, FromKeeper::Started { .. })).await;
}

#[tokio::test]
async fn a_terminal_is_one_and_takes_its_size() {
    let site = Site::new();
    let script = "tty >/dev/null && stty size; echo up; until [ \"$(stty size)\" = '50 132' ]; do sleep 0.02; done; read line; echo got $line; exit 6";
    let task = site.task(&["sh", "-c", script]);
    let terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let id = site.start(&Task { order: RunOrder { terminal, ..task.order }, ..task });
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.has_said("up").await;
    user.send(&ToKeeper::Resize(TerminalSize { rows: 50, columns: 132 })).await;
    user.send(&ToKeeper::Stdin { offset: 0, data: Data(b"x\n".to_vec()) }).await;
    assert_eq!(user.end().await, End::Code(6));
    let said = String::from_utf8_lossy(&user.said[0]).replace('\r', "");
    assert!(said.starts_with("24 80\nup\n") && said.ends_with("got x\n"), "{said}");
}

#[tokio::test]
async fn output_of_nobody_is_bounded_on_disk_and_its_gap_is_named() {
    let site = Site::new();
    let total = 200_000_000;
    let id = site.start(&site.task(&["sh", "-c", &format!("seq 1 30000000 | head -c {total}; echo done >&2")]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    user.until(|_, frame| matches!(frame, FromKeeper::Started { .. })).await;
    drop(user);
    until("it ends", || matches!(site.state(), Some(RunState::Ended(_)))).await;
    let kept: u64 = fs::read_dir(site.only_run()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(kept < 3 << 20, "{kept} bytes");
    let mut user = site.attach(&id, [0; 2]).await;
    assert_eq!(user.end().await, End::Code(0));
    let head: u64 = 64 * 1024;
    assert_eq!((user.gaps.len(), user.gaps[0].0, user.has[0]), (1, head, total));
    let expected = std::process::Command::new("sh")
        .args(["-c", &format!("seq 1 30000000 | head -c {total} | tail -c {}", total - user.gaps[0].1)])
        .output()
        .unwrap();
    assert!(user.said[0][usize::try_from(head).unwrap()..] == expected.stdout);
    assert_eq!(user.said[Output::Stderr as usize], b"done\n");
}

#[tokio::test]
async fn output_of_one_who_breaks_off_and_comes_back_is_whole() {
    let site = Site::new();
    let total: u64 = 30_000_000;
    // The spool has room for all that is said while nobody is attached.
    let task = Task { spool_bytes: 64 << 20, ..site.task(&["sh", "-c", &format!("seq 1 30000000 | head -c {total}")]) };
    let id = site.start(&task);
    let (mut has, mut said, mut breaks) = (0, Vec::new(), 0);
    loop {
        let mut user = site.attach(&id, [has, 0]).await;
        if breaks == 0 {
            user.go().await;
        }
        let until = has + 3_000_000;
        let frame = user.until(|user, frame| user.has[0] >= until || matches!(frame, FromKeeper::Ended(_))).await;
        has = user.has[0];
        said.append(&mut user.said[0]);
        assert_eq!(user.gaps, []);
        breaks += 1;
        if let FromKeeper::Ended(end) = frame {
            assert_eq!(end, End::Code(0));
            break;
        }
    }
    let expected =
        std::process::Command::new("sh").args(["-c", &format!("seq 1 30000000 | head -c {total}")]).output().unwrap();
    assert!(breaks > 5 && said == expected.stdout, "{breaks} breaks, {} bytes", said.len());
}

#[tokio::test]
async fn one_who_is_attached_loses_nothing_of_more_than_the_spool_holds() {
    let site = Site::new();
    let id = site.start(&site.task(&["sh", "-c", "seq 1 30000000 | head -c 20000000"]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    let kept = || fs::metadata(site.only_run().join("stdout")).map_or(0, |found| found.len());
    until("the spool is full", || kept() > site.task(&[]).spool_bytes).await;
    assert_eq!(user.end().await, End::Code(0));
    assert_eq!((user.gaps, user.said[0].len()), (vec![], 20_000_000));
}

#[tokio::test]
async fn a_command_that_ends_well_because_its_window_ends_was_out_of_time() {
    let site = Site::new();
    let task = site.task(&["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"]);
    assert_eq!(site.run(&Task { deadline: now() + Span(3), ..task }).await.0, End::WindowEnded);
}

#[tokio::test]
async fn an_owner_is_heard_however_many_users_are_attached_and_whatever_they_say() {
    let site = Site::new();
    let id = site.start(&site.task(&["sleep", "1000"]));
    let mut users = vec![site.attach(&id, [0; 2]).await];
    users[0].go().await;
    users[0].until(|_, frame| matches!(frame, FromKeeper::Started { .. })).await;
    users[0].send(&ToKeeper::Acknowledge { stdout: u64::MAX, stderr: u64::MAX }).await;
    for _ in 1..8 {
        let mut user = site.attach(&id, [0; 2]).await;
        user.until(|_, frame| matches!(frame, FromKeeper::Started { .. })).await;
        users.push(user);
    }
    let mut stream = site.keepers.connect(&id).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(std::io::Read::read(&mut stream, &mut [0]).unwrap_or(0), 0, "there is no place for one more");
    site.keepers.end(&id, &"x".repeat(20_000)).unwrap();
    for mut user in users {
        let End::Owner(why) = user.end().await else { panic!("it was not its owner") };
        assert_eq!(why.len(), 1024);
    }
}

#[tokio::test]
async fn the_oldest_ends_make_room_for_more() {
    let site = Site::new();
    let task = site.task(&["true"]);
    let id = site.start(&task);
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    assert_eq!(user.end().await, End::Code(0));
    let first = site.only_run();
    for number in 2..=64 {
        let copy = first.with_file_name(number.to_string());
        fs::create_dir(&copy).unwrap();
        for file in ["task", "ended"] {
            fs::copy(first.join(file), copy.join(file)).unwrap();
        }
    }
    site.start(&Task { order: RunOrder { run: RunNumber(100), ..task.order.clone() }, ..task });
    assert!(!first.exists() && site.keepers.list().unwrap().len() == 64);
}

#[tokio::test]
async fn a_keeper_that_is_killed_before_the_word_is_replaced_and_its_command_runs_once() {
    let site = Site::new();
    let id = site.start(&site.task(&["sh", "-c", "echo once"]));
    let mut user = site.attach(&id, [0; 2]).await;
    user.until(|_, frame| *frame == FromKeeper::Ready).await;
    let keeper = site.pid_in("lock");
    kill(keeper, Signal::SIGKILL).unwrap();
    until("the keeper is gone", || !is_alive(keeper.as_raw().unsigned_abs())).await;
    let mut user = site.attach(&id, [0; 2]).await;
    user.go().await;
    assert_eq!(user.end().await, End::Code(0));
    assert_eq!(user.said[0], b"once\n");
    assert_eq!(fs::read_dir(site.directory.path().join("scratch")).unwrap().count(), 0);
}

/// What a user sees who comes back until he knows the end.
async fn end_through_breaks(site: &Site, id: &RunId) -> End {
    for _ in 0..100 {
        let Ok(stream) = site.keepers.connect(id) else { continue };
        stream.set_nonblocking(true).unwrap();
        let (read, mut write) = UnixStream::from_std(stream).unwrap().into_split();
        let mut frames = FrameReader::new(read);
        let attach = encode(&ToKeeper::Attach { from_stdout: 0, from_stderr: 0 }).unwrap();
        let _ = write.write_all(&attach).await;
        while let Ok(Ok(Some(frame))) = timeout(PATIENCE, frames.next::<FromKeeper>()).await {
            match frame {
                FromKeeper::Ready => drop(write.write_all(&encode(&ToKeeper::Go).unwrap()).await),
                FromKeeper::Ended(end) => {
                    let _ = write.write_all(&encode(&ToKeeper::EndSeen).unwrap()).await;
                    return end;
                }
                _ => {}
            }
        }
    }
    panic!("no end after 100 tries");
}

#[tokio::test]
async fn runs_whose_keepers_are_killed_at_any_moment_run_once_at_most_and_never_seem_to_succeed() {
    let site = Site::new();
    let (mut lost, mut done) = (0, 0);
    for number in 1..=60_u64 {
        let mark = site.directory.path().join(format!("open/mark-{number}"));
        let script = format!("echo begun >> {0}; sleep 0.15; echo ended >> {0}", mark.display());
        let task = site.task(&["sh", "-c", &script]);
        let id = site.start(&Task { order: RunOrder { run: RunNumber(number), ..task.order }, ..task });
        let lock = site.directory.path().join("runs");
        let killer = std::thread::spawn(move || {
            // Between nothing and longer than the run takes, in steps that do not repeat.
            std::thread::sleep(Duration::from_micros(number * 7919 % 60 * 6000));
            let seat = fs::read_dir(lock).unwrap().next().unwrap().unwrap().path();
            let noted = |name: &str| fs::read_to_string(seat.join(number.to_string()).join(name)).unwrap_or_default();
            let cgroup = noted("cgroup");
            let noted = noted("lock");
            let pid = noted.split_once("\"pid\":").and_then(|(_, rest)| rest.split(',').next()?.parse().ok());
            pid.map(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL));
            PathBuf::from(cgroup.trim_matches('"'))
        });
        let end = end_through_breaks(&site, &id).await;
        let cgroup = killer.join().unwrap();
        until("its cgroup goes", || !cgroup.is_dir()).await;
        let marks = fs::read_to_string(&mark).unwrap_or_default();
        match end {
            End::Code(0) => {
                assert_eq!(marks, "begun\nended\n", "run {number}");
                done += 1;
            }
            End::Lost => {
                assert!(["", "begun\n", "begun\nended\n"].contains(&marks.as_str()), "run {number}: {marks}");
                lost += 1;
            }
            other => panic!("run {number}: {other:?}, {marks}"),
        }
    }
    assert!(lost > 5 && done > 5, "{lost} lost, {done} done: the kills hit nothing, or everything");
}
