//! The list of all scheduling policies.
//!
//! The engine reports to a policy what happens and asks it, after every event, for the next job to start; the policy answers
//! with one job at a time and is asked again until it has none. [`Policy`] is this engine's way to ask disciplines of a queue,
//! which move jobs that wait. Who invents a policy that says when and where one request runs writes a
//! [`broker::strategy::Strategy`]; [`Placed`] makes each of them a policy here. First come first served, the orders, and EASY and conservative
//! backfilling are what the product is compared with and does not have; `qos-plan` and what is placed are decided by `broker`.
//! Invariant: a policy names a job at most once, and only while the cluster can hold it.

mod backlog;
mod conservative;
mod easy;
mod ordered;
mod placed;
mod qos;
mod view;

pub use self::view::{Policy, Setup, Start, View};
use self::{conservative::Conservative, easy::Easy, ordered::Ordered, placed::Placed, qos::QosPlan};
use crate::placement;

/// Makes a policy for one replay.
pub type MakePolicy = fn(&Setup<'_>) -> Box<dyn Policy>;

/// The policy that keeps a plan.
pub const PLANNED: &str = "qos-plan";

/// Every policy of the queue by its name on the command line.
pub const POLICIES: [(&str, MakePolicy); 6] = [
    ("fcfs", |_| Box::new(Ordered::fcfs())),
    ("easy", |_| Box::new(Easy::default())),
    ("conservative", |setup| Box::new(Conservative::new(setup))),
    ("edf", |_| Box::new(Ordered::edf())),
    ("sjf", |_| Box::new(Ordered::sjf())),
    (PLANNED, |setup| Box::new(QosPlan::new(setup))),
];

/// The names of all policies: those of the queue, then those that place one job after the other.
pub fn names() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|(name, _)| *name).chain(placement::strategies().map(|(name, _)| name))
}

/// The policy of that name.
pub fn named(name: &str, setup: &Setup<'_>) -> Option<Box<dyn Policy>> {
    if let Some((_, make)) = POLICIES.iter().find(|(known, _)| *known == name) {
        return Some(make(setup));
    }
    placement::named(name).map(|make| Box::new(Placed::new(setup, make())) as Box<dyn Policy>)
}
