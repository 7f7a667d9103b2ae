//! Whose turn it is first: the orders of a batch.
//!
//! Invariant: a total order; those that keep precedence ([`Options::first`](super::Options::first)) come before all others; among equals
//! the order of the file.

use std::{cmp::Reverse, collections::BTreeSet};

use serde::{Deserialize, Serialize};

use super::run::{Run, earliest};
use crate::{
    request::{ObjectiveKind, Request},
    resources::{ResourceName, amount_of},
    time::Time,
};

/// Whose turn it is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The order of the file.
    #[default]
    File,
    /// The earliest `earliest`.
    Fcfs,
    /// The fewest hosts.
    Sjf,
    /// The most hosts.
    Bjf,
    /// The first that fits beside those before it.
    Fpfs,
    /// The shortest at reference speed.
    Spt,
    /// The longest at reference speed.
    Lpt,
    /// The highest demand of a seat: the largest part of what the grid has of any resource.
    Hdf,
    /// The earliest deadline.
    Edf,
}

impl Order {
    /// All orders, by name.
    pub const ALL: [(&str, Order); 9] = [
        ("file", Order::File),
        ("fcfs", Order::Fcfs),
        ("sjf", Order::Sjf),
        ("bjf", Order::Bjf),
        ("fpfs", Order::Fpfs),
        ("spt", Order::Spt),
        ("lpt", Order::Lpt),
        ("hdf", Order::Hdf),
        ("edf", Order::Edf),
    ];

    /// Whose turn it is first in an order that looks at hosts or the length at reference speed only; in others all are equal.
    pub fn turn<L>(self, hosts: usize, length: L) -> Turn<L> {
        match self {
            Order::Sjf => Turn::Fewest(hosts),
            Order::Bjf => Turn::Most(Reverse(hosts)),
            Order::Spt => Turn::Shortest(length),
            Order::Lpt => Turn::Longest(Reverse(length)),
            Order::File | Order::Fcfs | Order::Fpfs | Order::Hdf | Order::Edf => Turn::Equal,
        }
    }
}

/// Key by which [`Order::turn`] sorts requests, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn<L> {
    /// The order looks at neither hosts nor length.
    Equal,
    /// Number of hosts, few before many.
    Fewest(usize),
    /// Number of hosts, many before few.
    Most(Reverse<usize>),
    /// Length, short before long.
    Shortest(L),
    /// Length, long before short.
    Longest(Reverse<L>),
}

/// The requests of the batch in the order asked, first those that keep precedence; of both, those that no grid could serve come last.
pub(super) fn ordered(run: &mut Run<'_>) -> Vec<usize> {
    let mut all: Vec<usize> = (0..run.requests.len()).collect();
    match run.options.order {
        order @ (Order::File | Order::Sjf | Order::Bjf | Order::Spt | Order::Lpt) => by_key(run, &mut all, |request| {
            let demand = request.demand();
            order.turn(demand.seats(), demand.length().at_reference())
        }),
        Order::Fcfs => by_key(run, &mut all, earliest),
        Order::Edf => by_key(run, &mut all, |request| request.window().deadline.unwrap_or(Time::MAX)),
        Order::Hdf => {
            let capacity = run.planner.capacity();
            let part = |name: &ResourceName, request: &Request| {
                let (demand, all) = (request.demand(), u128::from(amount_of(&capacity, name).0.max(1)));
                (u128::from(demand.needed_in_sum(name).0) << 40) / (all * (demand.seats() as u128).max(1))
            };
            let demand = |request: &Request| request.demand().resources().iter().map(|name| part(name, request)).max();
            by_key(run, &mut all, |request| Reverse(demand(request)));
        }
        Order::Fpfs => {
            by_key(run, &mut all, earliest);
            all = by_start(run, all);
        }
    }
    all
}

fn by_key<K: Ord>(run: &Run<'_>, all: &mut [usize], key: impl Fn(&Request) -> K) {
    all.sort_by_cached_key(|at| {
        let request = run.requests[*at].request();
        (*at >= run.options.first, request.is_none(), request.map(&key))
    });
}

/// Always the one that can start first beside those before it, of those that keep precedence as long as there are any. A start only moves back as others are placed, so it is looked up
/// again when its turn comes.
fn by_start(run: &mut Run<'_>, queue: Vec<usize>) -> Vec<usize> {
    let begun = run.planner.clone();
    let first = run.options.first;
    let turn = |(place, request): (usize, usize)| (request >= first, Time::ZERO, place, request);
    let mut waiting: BTreeSet<(bool, Time, usize, usize)> = queue.into_iter().enumerate().map(turn).collect();
    let mut ordered = Vec::with_capacity(waiting.len());
    while let Some((is_later, expected, place, request)) = waiting.pop_first() {
        let plan = run.plan_by(request, |job| job.objective = ObjectiveKind::Start);
        let start = plan.as_ref().map_or(Time::MAX, |plan| plan.start);
        let now = (is_later, start, place, request);
        if start > expected && waiting.first().is_some_and(|next| *next < now) {
            waiting.insert(now);
            continue;
        }
        plan.iter().for_each(|plan| run.planner.occupy(plan));
        ordered.push(request);
    }
    run.planner = begun;
    ordered
}
