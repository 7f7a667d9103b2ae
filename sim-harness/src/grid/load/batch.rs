//! The same requests twice: each by itself, all at the same moment through different nodes, and as a batch through one node.
//!
//! Invariant: every request that was sent has an answer.

use std::{
    io::Write,
    process::{Command, Stdio},
    sync::Barrier,
    time::Instant,
};

use anyhow::{Context, bail};
use broker::request::Request;
use discovery::counters::Counter;
use serde::{Deserialize, Serialize};

use super::{
    answer::{Answer, Counts, Fate, milliseconds},
    user::{self, Patience},
};
use crate::grid::nodes::{cluster::Cluster, process::without_own_settings, wait::on_threads};

/// What the two have come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchFigures {
    /// Each by itself.
    pub singly: Counts,
    /// From the moment at which all were sent until all were answered.
    pub singly_ms: f64,
    /// Those of the batch that were submitted.
    pub batch: Counts,
    /// From the start of the command until its end: planning, submission, answers.
    pub batch_ms: f64,
    /// Requests of the batch that have no plan beside the others, and were not submitted.
    pub postponed: usize,
    /// Reserved at the start and on the hosts of the batch's plan.
    pub as_planned: usize,
    /// What nodes have asked each other meanwhile: each by itself, and as a batch.
    pub asks: [Asks; 2],
}

/// Direct requests between nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Asks {
    /// All.
    pub sent: u64,
    /// Those that shared a message with others.
    pub shared: u64,
}

impl Asks {
    /// What all nodes have sent until now. A node that does not answer just now is left out.
    pub fn of(cluster: &Cluster) -> Asks {
        let mut asks = Asks::default();
        for status in cluster.nodes().iter().filter_map(|node| node.client().status().ok()) {
            let count = |counter: Counter| status.counters.get(counter.name()).copied().unwrap_or_default();
            asks.sent += count(Counter::AsksOut);
            asks.shared += count(Counter::AsksShared);
        }
        asks
    }

    /// What has been sent since.
    pub fn since(self, before: Asks) -> Asks {
        Asks { sent: self.sent.saturating_sub(before.sent), shared: self.shared.saturating_sub(before.shared) }
    }
}

impl BatchFigures {
    /// The figures, without what only a batch has.
    pub fn new(singly: &[Answer], batch: &Batch, asks: [Asks; 2]) -> BatchFigures {
        let took_ms = |answers: &[Answer]| {
            let (first, last) =
                (answers.iter().map(|answer| answer.due).min(), answers.iter().map(|answer| answer.ended).max());
            first.zip(last).map_or(0.0, |(first, last)| milliseconds(last - first))
        };
        // Of the command, it is not known when each was answered.
        let counts = Counts { latency_ms: None, ..Counts::of(&batch.answers) };
        BatchFigures {
            singly: Counts::of(singly),
            singly_ms: took_ms(singly),
            batch: counts,
            batch_ms: took_ms(&batch.answers),
            postponed: batch.postponed,
            as_planned: batch.as_planned,
            asks,
        }
    }
}

/// What `kolo batch submit` has come to.
pub struct Batch {
    pub answers: Vec<Answer>,
    postponed: usize,
    as_planned: usize,
}

/// Sends all requests at the same moment, each through the next node.
pub fn singly(cluster: &Cluster, requests: &[Request]) -> anyhow::Result<Vec<Answer>> {
    let (entry_points, barrier) = (cluster.nodes(), Barrier::new(requests.len()));
    let answers = on_threads(requests.len(), |index| {
        let node = &entry_points[index % entry_points.len()];
        // Opens the connection, which is not part of the latency. If that fails, the submission says why.
        let _ = node.client().status();
        barrier.wait();
        user::ask(cluster, node, requests[index].clone(), Instant::now(), Patience::None)
    });
    answers.into_iter().collect()
}

/// What the command prints.
#[derive(Deserialize)]
struct Printed {
    requests: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    id: Option<String>,
    outcome: String,
    is_as_planned: bool,
}

/// Hands all requests to the first node with the command that people use.
pub fn as_batch(cluster: &Cluster, requests: &[Request]) -> anyhow::Result<Batch> {
    let node = cluster.node(0);
    let mut command = Command::new(&cluster.launch.kolo);
    let command = without_own_settings(&mut command);
    command.args(["batch", "submit", "-", "--output", "json", "--data-dir"]).arg(&node.data_dir);
    let due = Instant::now();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        for request in requests {
            writeln!(input, "{}", serde_json::to_string(request)?)?;
        }
    }
    let output = child.wait_with_output()?;
    let ended = Instant::now();
    let error = String::from_utf8_lossy(&output.stderr);
    let printed: Printed = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("kolo batch submit: {}: {}", output.status, error.trim()))?;
    let mut batch = Batch { answers: Vec::new(), postponed: 0, as_planned: 0 };
    if printed.requests.len() != requests.len() {
        bail!("kolo batch submit has answered {} of {} requests", printed.requests.len(), requests.len());
    }
    for (request, row) in requests.iter().zip(printed.requests) {
        batch.as_planned += usize::from(row.is_as_planned);
        if row.outcome == "postponed" {
            batch.postponed += 1;
            continue;
        }
        let end = match row.id {
            Some(id) => node.client().find(&id).map(Box::new).map_err(|error| error.to_string()),
            None => Err(row.outcome),
        };
        let entry_point = (node.position, node.name.clone());
        let request = request.clone();
        let fate = Fate::Kept;
        batch.answers.push(Answer { request, entry_point, due, ended, end, explanation: None, fate, after: None });
    }
    Ok(batch)
}
