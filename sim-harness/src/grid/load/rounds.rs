//! Sends the requests into the grid and waits for the answers.
//!
//! Requests come in rounds. All requests of a round are sent at the same moment, each through another node; between such
//! rounds one request goes alone, and how fast its change becomes known everywhere is measured. Invariant: every
//! request that was sent has an answer.

use std::{
    ops::Range,
    sync::Barrier,
    time::{Duration, Instant},
};

use anyhow::Context;
use broker::request::Request;
use rand::seq::SliceRandom;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    answer::Answer,
    user::{self, Patience},
};
use crate::grid::nodes::{cluster::Cluster, knowledge, wait::on_threads};

/// Most requests after which the spreading of a change is measured.
pub const SPREADS_MAX: usize = 10;

/// Sends all `requests`, at most `at_once` at the same moment. `answers` come in the order of the requests; `spreads` are the
/// times from a submission until all nodes knew of the change that it made. Both have what was found when something ends the
/// run early.
pub fn drive(
    cluster: &Cluster,
    (requests, at_once): (&[Request], usize),
    seed: u64,
    (answers, spreads): (&mut Vec<Answer>, &mut Vec<Duration>),
    progress: impl Fn(usize),
) -> anyhow::Result<()> {
    let mut entry_points = cluster.nodes();
    entry_points.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    for round in rounds(requests.len(), at_once) {
        cluster.check()?;
        let sent = Instant::now();
        let barrier = Barrier::new(round.len());
        let found = on_threads(round.len(), |number| -> anyhow::Result<Answer> {
            let index = round.start + number;
            let node = &entry_points[index % entry_points.len()];
            // Opens the connection, which is not part of the latency. If that fails, the submission says why.
            let _ = node.client().status();
            barrier.wait();
            let request = requests[index].clone();
            let mut answer = user::ask(cluster, node, request, Instant::now(), Patience::None)?;
            if let Some(view) = answer.view().filter(|view| !view.state.is_reserved()) {
                match node.client().explain(&view.id) {
                    Ok(explanation) => answer.explanation = Some(explanation),
                    Err(error) => answer.end = Err(error.to_string()),
                }
            }
            Ok(answer)
        });
        let mut first_error = Ok(());
        for answer in found {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => first_error = first_error.and(Err(error)),
            }
        }
        first_error?;
        progress(answers.len());
        if round.len() == 1 && spreads.len() < SPREADS_MAX && cluster.len() > 1 && cluster.checks_often() {
            spreads.extend(measure_spread(cluster, answers.last(), sent)?);
        }
    }
    Ok(())
}

/// Rounds of one and of `at_once` requests, in turn.
pub fn rounds(requests: usize, at_once: usize) -> Vec<Range<usize>> {
    let mut rounds = Vec::new();
    let mut next = 0;
    while next < requests {
        let size = if rounds.len() % 2 == 0 { 1 } else { at_once };
        let end = (next + size).min(requests);
        rounds.push(next..end);
        next = end;
    }
    rounds
}

/// Measures how long the change of a request that went alone took to be known everywhere. `None` when it made none.
fn measure_spread(cluster: &Cluster, answer: Option<&Answer>, since: Instant) -> anyhow::Result<Option<Duration>> {
    let host = answer.and_then(Answer::reservation).and_then(|reservation| reservation.hosts.first());
    let Some(changed) = host.and_then(|host| cluster.nodes().into_iter().find(|node| node.site == host.site)) else {
        return Ok(None);
    };
    let version = changed.client().ledger().with_context(|| changed.name.clone())?.ledger_version;
    knowledge::spread(cluster, &changed, version, since).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_take_every_request_once() {
        assert_eq!(rounds(12, 8), [0..1, 1..9, 9..10, 10..12]);
        assert_eq!(rounds(3, 1), [0..1, 1..2, 2..3]);
        assert!(rounds(0, 8).is_empty());
        for (requests, at_once) in [(40, 8), (7, 3), (100, 15)] {
            let all: Vec<usize> = rounds(requests, at_once).into_iter().flatten().collect();
            assert_eq!(all, (0..requests).collect::<Vec<_>>());
        }
    }
}
