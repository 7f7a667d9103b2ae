//! The feed for Slurm (`packaging/feeds/slurm`) with stand-ins for Slurm's programs, which print what a test wants.
//!
//! `scripts/test-slurm` runs it against a real Slurm.

use std::{fs, path::Path, process::Command};

use broker::time::Time;
use jiff::{Span as Pause, Timestamp, Zoned, civil::Weekday, tz::TimeZone};
use serde_json::Value;

use super::document;

/// Central Europe, as it needs no data of zones.
const ZONE: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
const DAY: i64 = 86_400;

/// What Slurm's programs print.
#[derive(Default)]
struct Slurm {
    sinfo: String,
    squeue: String,
    /// What `squeue -r` prints: a line for each task of an array.
    squeue_by_task: String,
    reservations: String,
}

impl Slurm {
    /// What the feed says, looking ahead until `horizon`.
    fn told(&self, horizon: i64) -> Value {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let texts = [("sinfo", &self.sinfo), ("squeue", &self.squeue), ("by_task", &self.squeue_by_task)];
        for (name, text) in texts.into_iter().chain([("reservations", &self.reservations)]) {
            fs::write(at.join(format!("{name}.text")), text).unwrap();
        }
        let text = |name: &str| at.join(format!("{name}.text")).display().to_string();
        program(at, "sinfo", &format!("cat {}", text("sinfo")));
        let (by_task, plain) = (text("by_task"), text("squeue"));
        program(at, "squeue", &format!("case \" $* \" in *' -r '*) cat {by_task} ;; *) cat {plain} ;; esac"));
        program(
            at,
            "scontrol",
            &format!("[ \"$2\" != show ] || [ \"$3\" != reservation ] || cat {}", text("reservations")),
        );
        let feed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/feeds/slurm");
        let path = format!("{}:{}", at.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.arg(feed).env("PATH", path).env("TZ", ZONE).env("KOLO_HORIZON", horizon.to_string());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let site = broker::ids::SiteId::new("s").unwrap();
        let now = Time(Timestamp::now().as_second());
        document::read(&output.stdout, (&site, &Default::default()), now, Time(horizon)).unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The spans of the reservation with these flags on a node, from `start` on for two hours.
    fn spans(flags: &str, start: i64, horizon: i64) -> Vec<(i64, i64)> {
        let end = start + 7_200;
        let reservations = format!(
            "ReservationName=own StartTime={start} EndTime={end} Duration=02:00:00 Nodes=n1 NodeCnt=1 CoreCnt=8 \
             Features=(null) PartitionName=(null) Flags={flags} TRES=cpu=8\n"
        );
        let told = Slurm { reservations, ..Slurm::default() }.told(horizon);
        let work = told["work"].as_array().unwrap();
        work.iter().map(|work| (work["start"].as_i64().unwrap(), work["end"].as_i64().unwrap())).collect()
    }
}

/// A child writes it: what other tests start meanwhile would inherit the open file, and such a file cannot be started.
fn program(directory: &Path, name: &str, script: &str) {
    let write = r#"printf '#!/bin/sh\n%s\n' "$1" >"$0" && chmod 755 "$0""#;
    let written = Command::new("sh").args(["-c", write]).arg(directory.join(name)).arg(script).status().unwrap();
    assert!(written.success());
}

fn now() -> i64 {
    Timestamp::now().as_second()
}

#[test]
fn nodes_that_cannot_be_used_are_told_whatever_the_mark_behind_their_state() {
    let states = [
        ("idle", true),
        ("idle~", true),
        ("mixed-", true),
        ("allocated", true),
        ("completing", true),
        ("reserved", true),
        ("idle*", false),
        ("mixed*", false),
        ("allocated*", false),
        ("drained$", false),
        ("draining@", false),
        ("unknown*", false),
        ("down*", false),
        ("down", false),
        ("failing", false),
        ("blocked", false),
        ("reboot^", false),
        ("idle^", false),
        ("idle%", false),
    ];
    let sinfo = (0..).zip(states).map(|(n, (state, _))| format!("n{n} 8 16000 {state}\n")).collect();
    let told = Slurm { sinfo, ..Slurm::default() }.told(now() + DAY);
    let work = told["work"].as_array().unwrap();
    for (n, (state, is_usable)) in (0..).zip(states) {
        let is_told = work.iter().any(|work| work["host"] == format!("n{n}"));
        assert_eq!(is_told, !is_usable, "{state}: {told}");
    }
}

#[test]
fn an_array_of_tens_of_thousands_is_one_line() {
    let end = now() + 3_600;
    let running: String =
        (1..6).map(|n| format!("{n}|RUNNING|(null)|{}|{end}|n{n}|(null)|8|OK|1:00:00|1\n", now() - 60)).collect();
    let task = "90|PENDING|(null)|N/A|N/A||(null)|1|OK|1:00:00|1\n";
    let slurm = Slurm {
        squeue: format!("{running}{task}"),
        squeue_by_task: format!("{running}{}", task.repeat(25_000)),
        ..Slurm::default()
    };
    let told = slurm.told(now() + DAY);
    let hosts: Vec<&str> = told["work"].as_array().unwrap().iter().filter_map(|work| work["host"].as_str()).collect();
    assert_eq!(hosts, ["n1", "n2", "n3", "n4", "n5"], "{told}");
    assert_eq!(told["queue"].as_array().unwrap().len(), 1, "the next task of the array");
    assert_eq!((&told["queue"][0]["length"], &told["queue"][0]["amounts"]["cpu"]), (&3_600.into(), &1_000.into()));
}

#[test]
fn what_recurs_does_so_until_the_horizon_by_the_local_clock() {
    let zone = TimeZone::posix(ZONE).unwrap();
    // Over both changes of the clock.
    let (start, horizon) = (now() / 60 * 60 + 3_600, now() + 400 * DAY);
    let first = Timestamp::from_second(start).unwrap().to_zoned(zone);
    let is_weekend = |day: &Zoned| matches!(day.weekday(), Weekday::Saturday | Weekday::Sunday);
    let days = |step: usize, is_on: &dyn Fn(&Zoned) -> bool| -> Vec<i64> {
        let later = (0..401_i64).step_by(step).map(|day| first.checked_add(Pause::new().days(day)).unwrap());
        let on = later.filter(|day| *day == first || is_on(day)).map(|day| day.timestamp().as_second());
        on.filter(|at| *at < horizon).collect()
    };
    for (flags, expected) in [
        ("DAILY,SPEC_NODES", days(1, &|_| true)),
        ("MAINT,WEEKLY", days(7, &|_| true)),
        ("WEEKDAY", days(1, &|day| !is_weekend(day))),
        ("SPEC_NODES,WEEKEND", days(1, &is_weekend)),
        ("SPEC_NODES", vec![start]),
        // Not one of the words that it begins like.
        ("DAILYX", vec![start]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|at| (at, at + 7_200)).collect();
        let told = Slurm::spans(flags, start, horizon);
        // The hour that there is twice, or never, once a year.
        let is_near = |(told, expected): (&(i64, i64), &(i64, i64))| (told.0 - expected.0).abs() <= 3_600;
        let differ = told.iter().zip(&expected).filter(|(told, expected)| told != expected).count();
        assert!(told.len() == expected.len() && differ <= 2, "{flags}: {differ} of {}: {told:?}", expected.len());
        assert!(told.iter().zip(&expected).all(is_near), "{flags}");
    }
}

#[test]
fn what_recurs_often_covers_the_horizon_and_what_floats_too() {
    let (start, horizon) = (now() / 60 * 60 - 30_000, now() + 400 * DAY);
    let hourly = Slurm::spans("HOURLY", start, now() + 2 * DAY);
    let steps: Vec<i64> = hourly.windows(2).map(|two| two[1].0 - two[0].0).collect();
    assert!(hourly.len() > 45 && steps.iter().all(|step| *step == 3_600), "{hourly:?}");
    assert!(hourly[0].0 <= now() && hourly.iter().all(|(_, end)| *end > now()), "what is over is not told: {hourly:?}");
    let often = Slurm::spans("HOURLY", start, horizon);
    assert!(often.len() <= 2_003, "{}", often.len());
    assert_eq!(often.last().map(|span| span.1), Some(horizon), "the rest in one piece");
    assert_eq!(Slurm::spans("TIME_FLOAT,SPEC_NODES", now() + 600, horizon)[0].1, horizon);
    assert_eq!(Slurm::spans("SPEC_NODES", now() - 2 * DAY, horizon), [], "over, and never again");
}
