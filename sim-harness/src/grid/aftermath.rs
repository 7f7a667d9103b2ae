//! After a load with faults: whether every promise that was told still stands, and every node still works.
//!
//! Invariant: what counts as promised is the first answer that a user was given; what the entry points and the ledgers
//! say at the end is held against it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use broker::request::Request;
use serde::Serialize;

use super::{
    cluster::{Cluster, Node},
    drive::End,
    error::GridError,
    invariants::Violation,
    load::{Fate, Placed},
    poll::Poll,
    settle,
    wait::{Look, wait_until},
    wire::{RequestState, RequestView, Reservation},
};

/// How long a node may take to place one small request when all faults are over: its patience, twice.
const PROBE_LIMIT: Duration = Duration::from_secs(120);
/// How long a cancellation may take to reach all sites when all faults are over.
const CANCEL_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// What every node must be able to place in the end.
const PROBE: &str = r#"{"id":"probe","hosts":1,"duration":60}"#;

/// What was promised, and what became of it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Aftermath {
    /// Requests whose user was told that the reservation stands.
    pub acknowledged: usize,
    /// Those of them that the user then took back.
    pub taken_back: usize,
    /// Those that were never taken back and do not stand as promised in all ledgers.
    pub acknowledged_lost: usize,
    /// Nodes that do not answer, or cannot place a request.
    pub wedged: usize,
}

/// What [`examine`] found.
#[derive(Debug, Default)]
pub struct Examined {
    /// The counts.
    pub aftermath: Aftermath,
    /// Breaches of the invariants.
    pub violations: Vec<Violation>,
    /// What else is wrong, in words.
    pub failed_checks: Vec<String>,
}

/// Has every node place a request, asks every entry point for the end of each of its requests, and checks all ledgers.
///
/// # Errors
/// [`GridError`] when a process ends by itself, does not answer, or the run is interrupted.
pub fn examine(cluster: &Cluster, placed: &mut [Placed]) -> Result<Examined, GridError> {
    let mut examined = Examined::default();
    for (index, told) in probe(cluster)?.into_iter().enumerate() {
        if let Err(text) = told {
            examined.aftermath.wedged += 1;
            examined.failed_checks.push(format!("{} is wedged: {text}", cluster.nodes[index].name));
        }
    }
    for one in placed.iter_mut() {
        if let Err(text) = look_at_the_end(cluster, one)? {
            examined.failed_checks.push(text);
        }
    }
    examined.violations = settle::check_ledgers(cluster, placed.iter().map(|one| &one.answer))?;
    let broken: BTreeSet<&str> = examined.violations.iter().filter_map(Violation::broken_promise).collect();
    for one in placed.iter() {
        let End::Told { view, .. } = &one.answer.end else { continue };
        if !view.state.stands() {
            continue;
        }
        examined.aftermath.acknowledged += 1;
        match one.fate {
            Fate::TakenBack | Fate::Unclear => examined.aftermath.taken_back += 1,
            Fate::Kept | Fate::Gone => {
                let in_ledgers = || broken.contains(view.id.as_str()).then(|| "not so in the ledgers".to_owned());
                if let Some(why) = lost(view, one).or_else(in_ledgers) {
                    examined.aftermath.acknowledged_lost += 1;
                    examined.failed_checks.push(format!("{}: told as reserved, and lost: {why}", view.id));
                }
            }
        }
    }
    Ok(examined)
}

/// Why a promise is no more what it was; `None` while it is.
fn lost(told: &RequestView, one: &Placed) -> Option<String> {
    if one.fate == Fate::Gone {
        return Some("its user came back to it and did not find it standing".to_owned());
    }
    let Some(after) = &one.answer.after else { return Some("its entry point no longer knows it".to_owned()) };
    if !after.state.stands() {
        return Some(format!("now {:?}", after.state));
    }
    let words = |reservation: &Option<Reservation>| reservation.as_ref().map(promise);
    (words(&told.reservation) != words(&after.reservation)).then(|| "now other hosts or another time".to_owned())
}

/// What a reservation promises, comparable.
fn promise(reservation: &Reservation) -> (i64, i64, BTreeSet<(String, String)>) {
    let host =
        |host: &super::wire::ReservedHost| (format!("{}/{}", host.site, host.host), format!("{:?}", host.amounts));
    (reservation.start, reservation.end, reservation.hosts.iter().map(host).collect())
}

/// One small request through every node, taken back at once. In the order of the nodes: why a node could not.
fn probe(cluster: &Cluster) -> Result<Vec<Result<(), String>>, GridError> {
    let nodes: Vec<usize> = (0..cluster.nodes.len()).collect();
    let poll = Poll { what: "every node to answer", limit: PROBE_LIMIT, pause: PAUSE };
    let begun = Instant::now();
    poll.each(cluster, &nodes, |node| {
        let told = place_probe(node);
        let again = told.is_err() && begun.elapsed() < PROBE_LIMIT / 2;
        Ok(if again { Look::NotYet(format!("{told:?}")) } else { Look::Done(told) })
    })
}

fn place_probe(node: &Node) -> Result<(), String> {
    let request: Request = serde_json::from_str(PROBE).map_err(|error| error.to_string())?;
    let submitted = node.client().submit(&request).map_err(|error| error.to_string())?;
    let view = node.client().settled(&submitted.id, PROBE_LIMIT / 4).map_err(|error| error.to_string())?;
    if !view.state.stands() {
        return Err(format!("a request for one host ended as {:?}: {:?}", view.state, view.reason));
    }
    let cancelled = node.client().cancel(&view.id).map_err(|error| error.to_string())?;
    match cancelled.state {
        RequestState::Cancelled | RequestState::Cancelling => Ok(()),
        other => Err(format!("a cancelled request is {other:?}")),
    }
}

/// Asks the entry point how the request ended, and waits until what the user took back is free everywhere. The inner
/// error says in words what is wrong.
fn look_at_the_end(cluster: &Cluster, one: &mut Placed) -> Result<Result<(), String>, GridError> {
    let End::Told { view, .. } = &one.answer.end else { return Ok(Ok(())) };
    let node = &cluster.nodes[one.entry_point];
    let is_over = |seen: &RequestView| match one.fate {
        Fate::TakenBack => seen.state == RequestState::Cancelled,
        Fate::Kept | Fate::Unclear | Fate::Gone => seen.state.is_final(),
    };
    let found = wait_until(
        "the end of a request",
        CANCEL_LIMIT,
        PAUSE,
        || cluster.check(),
        || {
            Ok(match node.client().find(&view.id) {
                Ok(seen) if is_over(&seen) => Look::Done(Some(seen)),
                Ok(seen) => Look::NotYet(format!("{:?}", seen.state)),
                Err(error) if error.status() == Some(404) => Look::Done(None),
                Err(error) => Look::NotYet(error.to_string()),
            })
        },
    );
    match found {
        Ok(Some(seen)) => {
            one.answer.after = Some(Box::new(seen));
            Ok(Ok(()))
        }
        // Nodes forget what is over; what must not be forgotten is told as lost.
        Ok(None) => Ok(Ok(())),
        Err(GridError::Deadline { last, .. }) => {
            Ok(Err(format!("{}: {:?} by its user, but after the faults were over it stayed {last}", view.id, one.fate)))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grid::drive::Answer;

    fn view(state: &str, start: i64) -> RequestView {
        let hosts = json!([{"site": "A", "site_name": "a", "host": "h1", "amounts": {"cpu": 5}}]);
        let reservation = json!({"start": start, "end": start + 60, "hosts": hosts});
        let view = json!({"id": "q", "state": state, "attempts": 1, "conflicts": 0, "reservation": reservation,
            "reason": null});
        serde_json::from_value(view).unwrap()
    }

    fn placed(after: Option<RequestView>, fate: Fate) -> Placed {
        let end = End::Told { view: Box::new(view("confirmed", 100)), latency: Duration::ZERO, explanation: None };
        let request = serde_json::from_str(PROBE).unwrap();
        let answer = Answer { request, entry_point: String::new(), end, after: after.map(Box::new) };
        Placed { answer, fate, entry_point: 0, due: Instant::now(), ended: Instant::now() }
    }

    #[test]
    fn a_promise_that_is_gone_cancelled_or_moved_is_lost() {
        let why = |after, fate| lost(&view("confirmed", 100), &placed(after, fate));
        assert_eq!(why(Some(view("confirmed", 100)), Fate::Kept), None);
        assert_eq!(why(Some(view("active", 100)), Fate::Kept), None);
        assert!(why(None, Fate::Kept).unwrap().contains("no longer knows it"));
        assert!(why(Some(view("failed", 100)), Fate::Kept).unwrap().contains("Failed"));
        assert!(why(Some(view("confirmed", 160)), Fate::Kept).unwrap().contains("another time"));
        assert!(why(Some(view("confirmed", 100)), Fate::Gone).unwrap().contains("did not find it"));
    }
}
