//! Sends the requests into the grid and waits for the answers.
//!
//! Requests come in rounds. All requests of a round are sent at the same moment, each through another node; between such
//! rounds one request goes alone, and how fast its change becomes known everywhere is measured. Invariant: every
//! request that was sent has an answer, or counts as lost.

use std::{
    ops::Range,
    panic::resume_unwind,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use broker::request::Request;
use rand::seq::SliceRandom;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::answer::{Answer, End};
use crate::grid::nodes::{
    client::ClientError,
    cluster::{Cluster, Node},
    knowledge,
};

/// How long a request may take to be settled: a node's default patience twice over.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// Longest wait in one call, so that a crash or an interrupt is seen in between.
const CALL_WAIT: Duration = Duration::from_secs(1);
/// Most requests after which the spreading of a change is measured.
pub const SPREADS_MAX: usize = 10;

/// What has been found so far; kept when something ends the run early.
#[derive(Debug, Default)]
pub struct Driven {
    /// In the order of the requests.
    pub answers: Vec<Answer>,
    /// From a submission until all nodes knew of the change that it made.
    pub spreads: Vec<Duration>,
}

/// Sends all `requests`, at most `at_once` at the same moment.
pub fn drive(
    cluster: &Cluster,
    requests: &[Request],
    at_once: usize,
    seed: u64,
    driven: &mut Driven,
    progress: impl Fn(usize),
) -> anyhow::Result<()> {
    let mut entry_points: Vec<usize> = (0..cluster.nodes.len()).collect();
    entry_points.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    for round in rounds(requests.len(), at_once) {
        cluster.check()?;
        let alone = round.len() == 1;
        let sent = Instant::now();
        let barrier = Barrier::new(round.len());
        let answers: Vec<anyhow::Result<Answer>> = thread::scope(|scope| {
            let workers: Vec<_> = round
                .map(|index| {
                    let entry_point = entry_points[index % entry_points.len()];
                    let (request, barrier) = (&requests[index], &barrier);
                    scope.spawn(move || submit(cluster, entry_point, request, barrier))
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        let mut first_error = Ok(());
        for answer in answers {
            match answer {
                Ok(answer) => driven.answers.push(answer),
                Err(error) => first_error = first_error.and(Err(error)),
            }
        }
        first_error?;
        progress(driven.answers.len());
        if alone && driven.spreads.len() < SPREADS_MAX && cluster.nodes.len() > 1 && cluster.checks_often {
            driven.spreads.extend(measure_spread(cluster, driven.answers.last(), sent)?);
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

fn submit(cluster: &Cluster, entry_point: usize, request: &Request, barrier: &Barrier) -> anyhow::Result<Answer> {
    let node = &cluster.nodes[entry_point];
    // Opens the connection, which is not part of the latency. If that fails, the submission says why.
    let _ = node.client().status();
    barrier.wait();
    let ended = follow(cluster, node, request);
    // The lost answer of a crashed node is reported as the crash.
    cluster.check()?;
    let end = ended.unwrap_or_else(|error| End::Lost(error.to_string()));
    Ok(Answer { request: request.clone(), entry_point: node.name.clone(), end, after: None })
}

fn follow(cluster: &Cluster, node: &Node, request: &Request) -> Result<End, ClientError> {
    let submitted = Instant::now();
    let mut view = node.client().submit(request)?;
    loop {
        let latency = submitted.elapsed();
        if view.state.is_final() {
            let explanation = if view.state.is_reserved() { None } else { Some(node.client().explain(&view.id)?) };
            return Ok(End::Reported { view: Box::new(view), latency, explanation });
        }
        if latency >= ANSWER_LIMIT || cluster.check().is_err() {
            return Ok(End::Lost(format!("still {:?} after {} s", view.state, latency.as_secs())));
        }
        view = node.client().settled(&view.id, CALL_WAIT)?;
    }
}

/// Measures how long the change of a request that went alone took to be known everywhere. `None` when it made none.
fn measure_spread(cluster: &Cluster, answer: Option<&Answer>, since: Instant) -> anyhow::Result<Option<Duration>> {
    let Some(host) = answer.and_then(Answer::reservation).and_then(|reservation| reservation.hosts.first()) else {
        return Ok(None);
    };
    let Some(changed) = cluster.nodes.iter().position(|node| node.site == host.site) else { return Ok(None) };
    let node = &cluster.nodes[changed];
    let version = node.client().ledger().with_context(|| node.name.clone())?.ledger_version;
    knowledge::spread(cluster, changed, version, since).map(Some)
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
