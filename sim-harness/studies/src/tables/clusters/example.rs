//! The worked example of MESD in the source (3.3.4), beside the source's figures.
//!
//! Invariant: what stands as the source's is what it prints; it rounds, and three of its times are not those of its formulas.

use broker::batch::multicluster::Choice;
use serde::Serialize;
use sim_kit::report::Table;

use crate::clusters::{
    mesd::ordered,
    world::{Cluster, Job, State},
};

/// What is printed above the table.
pub(super) const TITLE: &str = "The example of 3.3.4, seconds: on the best hosts (ideal), on what the first choice leaves, and whose turn it is (source)";

/// A job of the example.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    job: usize,
    ideal: f64,
    source_ideal: f64,
    /// None of the one that is chosen first.
    second_round: Option<f64>,
    source_second_round: Option<f64>,
    turn: usize,
    source_turn: usize,
}

/// Hosts of power .75, .75, .5, .25 and .15, and four jobs that send nothing.
pub(super) fn clusters_and_jobs() -> ([Cluster; 4], [Job; 4]) {
    let cluster = |(hosts, power)| Cluster { hosts, power, link: 1.0 };
    let job = |(tasks, compute, base)| Job { tasks, compute, base, bandwidth: 0.0, arrival: 0.0 };
    (
        [(2, 0.75), (1, 0.5), (1, 0.25), (1, 0.15)].map(cluster),
        [(2, 0.5, 100.0), (3, 0.7, 50.0), (2, 0.5, 75.0), (2, 0.7, 100.0)].map(job),
    )
}

/// The jobs with their times and turns.
pub(super) fn lines() -> Vec<Line> {
    /// Hosts of each job when all are free, and when the first job has the two fastest.
    const HOSTS: [([u32; 4], Option<[u32; 4]>); 4] = [
        ([2, 0, 0, 0], None),
        ([2, 1, 0, 0], Some([0, 1, 1, 1])),
        ([2, 0, 0, 0], Some([0, 1, 1, 0])),
        ([2, 0, 0, 0], Some([0, 1, 1, 0])),
    ];
    const SOURCE: [(f64, Option<f64>, usize); 4] =
        [(116.7, None, 1), (100.0, Some(258.3), 4), (87.5, Some(187.5), 2), (123.3, Some(330.0), 3)];
    let (clusters, jobs) = clusters_and_jobs();
    let state = State::empty(&clusters, &jobs);
    let order: Vec<usize> = ordered(&[0, 1, 2, 3], &state, Choice::Literal).into_iter().map(|(job, _)| job).collect();
    let line = |job: usize| {
        let ((all, left), (source_ideal, source_second_round, source_turn)) = (HOSTS[job], SOURCE[job]);
        let time = |counts: [u32; 4]| jobs[job].time(&counts, &clusters);
        let turn = order.iter().position(|other| *other == job).map_or(0, |at| at + 1);
        Line {
            job: job + 1,
            ideal: time(all),
            source_ideal,
            second_round: left.map(time),
            source_second_round,
            turn,
            source_turn,
        }
    };
    (0..jobs.len()).map(line).collect()
}

/// The lines for people.
pub(super) fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(["job", "ideal", "second round", "turn"].map(str::to_owned));
    for line in lines {
        let seconds = |own: f64, source: f64| format!("{own:.1} ({source:.1})");
        let second = line.second_round.zip(line.source_second_round);
        let second = second.map_or_else(|| "-".to_owned(), |(own, source)| seconds(own, source));
        let turn = format!("{} ({})", line.turn, line.source_turn);
        table.push([format!("J{}", line.job), seconds(line.ideal, line.source_ideal), second, turn]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_comes_out_as_its_formulas_say() {
        let text = table(&lines()).text();
        for cells in [
            ["J1", "116.7 (116.7)", "-", "1 (1)"],
            ["J2", "85.0 (100.0)", "248.3 (258.3)", "4 (4)"],
            ["J3", "87.5 (87.5)", "187.5 (187.5)", "2 (2)"],
            ["J4", "123.3 (123.3)", "310.0 (330.0)", "3 (3)"],
        ] {
            let line = text.lines().find(|line| line.contains(cells[0])).unwrap();
            assert!(cells.iter().all(|cell| line.contains(cell)), "{cells:?} {line}");
        }
    }
}
