//! The study on batches that are read: `--sets` names a folder with one folder a batch, each with `grid.json` and `requests.jsonl`.
//!
//! Invariant: batches are grouped by their hosts and by whether a job has several seats, and every batch of a folder counts.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use broker::{batch::Order, offline::OfflinePlanner, phases::Settings, snapshot::GridSnapshot};
use serde::Serialize;
use sim_kit::{error::BadUsage, progress::Progress, report::Table, stats::mean};

use super::{
    experiments::{Gain, Gains, by_form, plain, room_percent},
    setup::Batch,
};
use crate::tables::parallel;

/// What came of a batch.
struct Made {
    hosts: usize,
    is_parallel: bool,
    requests: usize,
    room_percent: f64,
    gains: [Gain; 3],
    seconds: [f64; 3],
}

/// Batches for equally many hosts, of jobs of one seat or of several.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    hosts: usize,
    is_parallel: bool,
    batches: usize,
    /// Requests of a batch, mean.
    requests: f64,
    /// What no schedule gains more than, in per cent, mean.
    room_percent: f64,
    /// By form.
    gains: [Gains; 3],
    /// The longest time of a batch, by form.
    seconds: [f64; 3],
}

/// Plans all batches of a folder.
///
/// # Errors
/// Names the file that cannot be read or planned.
pub(super) fn groups(folder: &Path) -> anyhow::Result<Vec<Group>> {
    let bad = || BadUsage::new(folder.display());
    let entries = fs::read_dir(folder).with_context(bad)?.collect::<Result<Vec<_>, _>>().with_context(bad)?;
    let mut sets: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(|set| set.is_dir()).collect();
    sets.sort();
    ensure!(!sets.is_empty(), BadUsage::new(format!("{}: expected folders with grid.json", folder.display())));
    let progress = Progress::new("batches", sets.len() as u64);
    let mut made = parallel::all(sets.len() as u64, &progress, |number| made(&sets[number as usize]))?;
    progress.end();
    made.sort_by_key(|made| (made.hosts, made.is_parallel));
    let same = made.chunk_by(|a, b| (a.hosts, a.is_parallel) == (b.hosts, b.is_parallel));
    Ok(same.map(group).collect())
}

fn group(all: &[Made]) -> Group {
    let gains = |form: usize| Gains::of(&all.iter().map(|made| made.gains[form]).collect::<Vec<_>>());
    let longest = |form: usize| all.iter().map(|made| made.seconds[form]).fold(0.0, f64::max);
    Group {
        hosts: all[0].hosts,
        is_parallel: all[0].is_parallel,
        batches: all.len(),
        requests: mean(all.iter().map(|made| made.requests as f64)),
        room_percent: mean(all.iter().map(|made| made.room_percent)),
        gains: [0, 1, 2].map(gains),
        seconds: [0, 1, 2].map(longest),
    }
}

fn made(set: &Path) -> anyhow::Result<Made> {
    let read = |name: &str| {
        let file = set.join(name);
        fs::read_to_string(&file).with_context(|| BadUsage::new(file.display()))
    };
    let grid = GridSnapshot::read(&read("grid.json")?).with_context(|| BadUsage::new(set.display()))?;
    let hosts = grid.hosts.len();
    let planner = OfflinePlanner::new(grid, Settings::default(), 1, false);
    let asked = |(number, line)| planner.read_line(number, line);
    let requests = (1..).zip(read("requests.jsonl")?.lines()).map(asked).collect::<Result<Vec<_>, _>>();
    let requests = requests.with_context(|| BadUsage::new(set.join("requests.jsonl").display()))?;
    let is_parallel = requests.iter().filter_map(|asked| asked.request()).any(|asked| asked.demand().seats() > 1);
    let batch = Batch { planner, requests };
    let (plain, lines) = (plain(&batch, Order::Lpt)?, by_form(&batch, Order::Lpt)?);
    Ok(Made {
        hosts,
        is_parallel,
        requests: batch.requests.len(),
        room_percent: room_percent(&plain, &lines),
        seconds: [0, 1, 2].map(|form| lines[form].us as f64 / 1e6),
        gains: lines.map(|line| Gain::of(&plain, &line)),
    })
}

/// A row a group: of each form how many batches are better and worse, and its mean gain; the room; the longest times.
pub(super) fn text(groups: &Vec<Group>) -> String {
    let mut table = Table::new([
        "hosts, seats",
        "batches",
        "requests",
        "set: better, worse, %",
        "partition",
        "best",
        "room %",
        "longest, seconds",
    ]);
    for group in groups {
        let seats = if group.is_parallel { "several" } else { "one" };
        let gains = group.gains.map(|Gains { run_time_percent, improved, worse, .. }| {
            format!("{improved}, {worse}, {:.1}", run_time_percent.mean)
        });
        let seconds = group.seconds.map(|seconds| format!("{seconds:.3}")).join(", ");
        let begin = [group.batches.to_string(), format!("{:.0}", group.requests)];
        let row = begin.into_iter().chain(gains).chain([format!("{:.1}", group.room_percent), seconds]);
        table.row(format!("{}, {seats}", group.hosts), row);
    }
    format!("Gain of run time over longest first without pairs\n{}\n", table.text())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_batch_of_a_folder_counts_in_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let resources = json!({"cpu": 1000, "memory": 1000, "io": 1000});
        for (name, hosts, seats) in [("a", 2, 1), ("b", 2, 1), ("c", 3, 2)] {
            let set = folder.path().join(name);
            fs::create_dir(&set).unwrap();
            let host = |at: usize| json!({"id": format!("h{at}"), "site": "s", "resources": resources});
            let grid = json!({"format": "kolo-grid/2", "hosts": (0..hosts).map(host).collect::<Vec<_>>()});
            fs::write(set.join("grid.json"), grid.to_string()).unwrap();
            // They need 1400 of memory together, and are longer by less when they share a host.
            let job = |at: usize, cpu: u64, other: u64| {
                let amounts = json!({"cpu": cpu, "memory": other, "io": other});
                json!({"id": format!("j{at}"), "hosts": seats, "duration": 1000, "per_host": amounts, "earliest": 0,
                    "latest": 1_000_000, "scale": [100, 1000]})
            };
            let jobs: Vec<String> = (0..4)
                .map(|at| if at % 2 == 0 { job(at, 400, 1000) } else { job(at, 1000, 400) }.to_string())
                .collect();
            fs::write(set.join("requests.jsonl"), jobs.join("\n")).unwrap();
        }
        let groups = groups(folder.path()).unwrap();
        let sizes: Vec<_> = groups.iter().map(|group| (group.hosts, group.is_parallel, group.batches)).collect();
        assert_eq!(sizes, [(2, false, 2), (3, true, 1)]);
        // 2,802 seconds in place of 4,000.
        assert!((groups[0].gains[0].run_time_percent.mean - 29.95).abs() < 0.01, "{groups:?}");
        assert_eq!(groups[0].gains[0].improved, 2);
        assert!(text(&groups).contains("2, 0, 29.9"), "{}", text(&groups));
        fs::write(folder.path().join("a/requests.jsonl"), "{").unwrap();
        let error = format!("{:#}", super::groups(folder.path()).unwrap_err());
        assert!(error.contains("requests.jsonl"), "{error}");
    }
}
