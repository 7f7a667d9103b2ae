//! Brand-new sites that join while a load goes on, with hosts and keys of their own, and how soon they are part of the grid.
//!
//! Invariant: they come one after the other, and at most as many as hosts were made for.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::grid::load::answer::{Answer, milliseconds};
use crate::grid::nodes::{cluster::Cluster, knowledge, launch::Launch};
use crate::stats::{Percentiles, percentiles};

/// Nodes through which a newcomer looks for the grid: some may be down just now.
pub const THROUGH: usize = 3;

/// How one site joined.
#[derive(Debug, Clone)]
pub struct Join {
    name: String,
    site: String,
    /// From its start, the invitation included, until its API answered.
    answers: Duration,
    /// From then until it had met the hosts of all sites that were there when it came.
    knows: Duration,
}

/// The sites that are still to come, and those that came.
pub struct Newcomers<'a> {
    cluster: &'a Cluster,
    launch: &'a Launch<'a>,
    /// Nodes that are part of the grid, from the first on.
    arrived: AtomicUsize,
    is_joining: AtomicBool,
    joins: Mutex<Vec<Join>>,
}

impl<'a> Newcomers<'a> {
    /// Those nodes of `launch` that are not in `cluster` are still to come.
    pub fn new(cluster: &'a Cluster, launch: &'a Launch<'a>) -> Newcomers<'a> {
        Newcomers {
            cluster,
            launch,
            arrived: AtomicUsize::new(cluster.nodes.len()),
            is_joining: AtomicBool::new(false),
            joins: Mutex::default(),
        }
    }

    /// How many nodes are part of the grid, from the first on: all but one that is just joining.
    pub fn arrived(&self) -> usize {
        self.arrived.load(Ordering::Acquire)
    }

    /// Whether a site is still to come and none is joining just now; then the next one counts as joining.
    pub fn may_come(&self) -> bool {
        self.arrived() < self.launch.nodes.len() && !self.is_joining.swap(true, Ordering::AcqRel)
    }

    /// Lets the next site join, after [`Newcomers::may_come`]. It finds the grid at the nodes at the positions `through`.
    pub fn join(&self, through: &[usize]) -> anyhow::Result<()> {
        let nodes = &self.cluster.nodes;
        let position = nodes.len();
        let there: BTreeSet<&str> = nodes.iter().map(|node| node.site.as_str()).collect();
        let bootstrap: Vec<String> = through.iter().map(|index| nodes[*index].address()).collect();
        let begun = Instant::now();
        self.cluster.grow(self.launch, position + 1, &bootstrap, |_| ())?;
        let answers = begun.elapsed();
        knowledge::of_newcomer(self.cluster, position, &there)?;
        let knows = begun.elapsed().saturating_sub(answers);
        let node = &nodes[position];
        let join = Join { name: node.name.clone(), site: node.site.clone(), answers, knows };
        self.joins.lock().unwrap_or_else(PoisonError::into_inner).push(join);
        self.arrived.store(position + 1, Ordering::Release);
        self.is_joining.store(false, Ordering::Release);
        Ok(())
    }

    /// How they came.
    pub fn into_joins(self) -> Vec<Join> {
        self.joins.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sites that joined, and what became of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JoinFigures {
    /// Brand-new sites that joined.
    pub joined: usize,
    /// Requests that came in through one of them.
    pub asked_at_newcomers: usize,
    /// Reservations with hosts of theirs.
    pub reserved_at_newcomers: usize,
    pub join_ms: JoinTimes,
}

/// Times of the joining.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JoinTimes {
    /// From the start, the invitation included, until the API answered.
    pub answers: Option<Percentiles>,
    /// From then until the hosts of all sites that were there before were known.
    pub knows_grid: Option<Percentiles>,
}

impl JoinFigures {
    /// Puts together how sites joined and what users saw of them.
    pub fn new(joins: &[Join], answers: &[Answer]) -> JoinFigures {
        let names: BTreeSet<&str> = joins.iter().map(|join| join.name.as_str()).collect();
        let sites: BTreeSet<&str> = joins.iter().map(|join| join.site.as_str()).collect();
        let has_theirs = |answer: &&Answer| {
            answer.reservation().is_some_and(|found| found.hosts.iter().any(|host| sites.contains(host.site.as_str())))
        };
        let times =
            |time: fn(&Join) -> Duration| percentiles(&joins.iter().map(time).map(milliseconds).collect::<Vec<_>>());
        JoinFigures {
            joined: joins.len(),
            asked_at_newcomers: answers.iter().filter(|answer| names.contains(answer.entry_point.as_str())).count(),
            reserved_at_newcomers: answers.iter().filter(has_theirs).count(),
            join_ms: JoinTimes { answers: times(|join| join.answers), knows_grid: times(|join| join.knows) },
        }
    }

    /// For people.
    pub fn words(&self) -> String {
        format!(
            "{} new sites joined: {} requests through them, {} reservations with hosts of theirs",
            self.joined, self.asked_at_newcomers, self.reserved_at_newcomers
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grid::load::answer::tests::answer;

    #[test]
    fn requests_through_newcomers_and_reservations_with_their_hosts_are_counted_apart() {
        let join = |name: &str, site: &str| Join {
            name: name.to_owned(),
            site: site.to_owned(),
            answers: Duration::from_millis(30),
            knows: Duration::from_millis(700),
        };
        let answer = |entry_point: &str, state: &str, site: &str| {
            let hosts = json!([{"site": site, "site_name": "-", "host": "h1", "amounts": {"cpu": 5}}]);
            let answer = answer(state, &json!({"start": 0, "end": 60, "hosts": hosts}), 1);
            Answer { entry_point: entry_point.to_owned(), ..answer }
        };
        let answers =
            [answer("new-1", "confirmed", "A"), answer("old", "confirmed", "N"), answer("old", "cancelled", "N")];
        let figures = JoinFigures::new(&[join("new-1", "N"), join("new-2", "M")], &answers);
        assert_eq!((figures.joined, figures.asked_at_newcomers, figures.reserved_at_newcomers), (2, 1, 1));
        assert_eq!(figures.join_ms.knows_grid.map(|times| times.max), Some(700.0));
    }
}
