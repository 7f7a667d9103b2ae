//! After a load: whether every acknowledged reservation is still there, and every node still works.
//!
//! Invariant: what counts as acknowledged is the first report to the user; what the entry points report and the ledgers have
//! at the end is compared with it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use broker::request::Request;
use serde::Serialize;

use super::{
    invariants::{self, Breach, Reported, Violation},
    links,
};
use crate::grid::load::answer::{Answer, Fate};
use crate::grid::nodes::{
    cluster::{Cluster, Node},
    machine::seconds_since_epoch,
    wait::{Deadline, Wait},
    wire::{RequestState, RequestView, Reservation, ReservedHost},
};

/// How long a node may take to place one small request when all faults are over: its patience, twice.
const PROBE_LIMIT: Duration = Duration::from_secs(120);
/// How long a cancellation may take to reach all sites when all faults are over.
const CANCEL_LIMIT: Duration = Duration::from_secs(60);
/// How long a hold may outlive its request: the longest hold that a site grants by default, and a grace.
const SETTLE_LIMIT: Duration = Duration::from_secs(75);
/// How long reading the ledgers of all nodes may take.
const READ_LIMIT: Duration = Duration::from_secs(60);
/// Between two readings of all ledgers.
const READ_PAUSE: Duration = Duration::from_millis(250);
/// Between two looks at a node.
const PAUSE: Duration = Duration::from_millis(20);
/// What every node must be able to place in the end.
const PROBE: &str = r#"{"id":"probe","hosts":1,"duration":60}"#;

/// What was acknowledged, and what became of it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Aftermath {
    /// Requests whose reservation was acknowledged.
    pub acknowledged: usize,
    /// Those of them that the user then cancelled.
    pub taken_back: usize,
    /// Those that were never cancelled and are not in all ledgers as acknowledged.
    pub acknowledged_lost: usize,
    /// Nodes that do not answer, or cannot place a request.
    pub wedged: usize,
}

/// Has every node place a request, asks every entry point for the end of each of its requests, and checks all ledgers. What is wrong
/// beside violations is added to `failed_checks`, in words.
pub fn examine(
    cluster: &Cluster,
    answers: &mut [Answer],
    failed_checks: &mut Vec<String>,
) -> anyhow::Result<(Aftermath, Vec<Violation>)> {
    let mut aftermath = Aftermath::default();
    for (node, placed) in cluster.nodes().iter().zip(probe(cluster)?) {
        if let Err(text) = placed {
            aftermath.wedged += 1;
            failed_checks.push(format!("{} is wedged: {text}", node.name));
        }
    }
    for answer in &mut *answers {
        failed_checks.extend(look_at_the_end(cluster, answer)?);
    }
    let violations = check_ledgers(cluster, answers)?;
    let broken = violations.iter().filter(|violation| violation.breach == Breach::NotAsAcknowledged);
    let broken: BTreeSet<&str> = broken.filter_map(|violation| violation.request.as_deref()).collect();
    for (answer, view) in answers.iter().filter_map(|answer| Some((answer, answer.acknowledged()?))) {
        aftermath.acknowledged += 1;
        if matches!(answer.fate, Fate::Cancelled | Fate::Unclear) {
            aftermath.taken_back += 1;
            continue;
        }
        let in_ledgers = || broken.contains(view.id.as_str()).then(|| "not so in the ledgers".to_owned());
        if let Some(why) = lost(view, answer).or_else(in_ledgers) {
            aftermath.acknowledged_lost += 1;
            failed_checks.push(format!("{}: acknowledged, and lost: {why}", view.id));
        }
    }
    Ok((aftermath, violations))
}

/// Why an acknowledged reservation counts as lost; `None` while it does not.
fn lost(acknowledged: &RequestView, answer: &Answer) -> Option<String> {
    if answer.fate == Fate::Gone {
        return Some("its user came back to it and did not find it".to_owned());
    }
    let Some(after) = &answer.after else { return Some("its entry point no longer knows it".to_owned()) };
    if !after.state.is_reserved() {
        return Some(format!("now {:?}", after.state));
    }
    let parts = |view: &RequestView| view.reservation.as_ref().map(parts);
    (parts(acknowledged) != parts(after)).then(|| "now other hosts or another time".to_owned())
}

/// What a reservation consists of, comparable.
fn parts(reservation: &Reservation) -> (i64, i64, BTreeSet<(String, String)>) {
    let host = |host: &ReservedHost| (format!("{}/{}", host.site, host.host), format!("{:?}", host.amounts));
    (reservation.start, reservation.end, reservation.hosts.iter().map(host).collect())
}

/// One small request through every node, cancelled at once. In the order of the nodes: why a node could not place it.
fn probe(cluster: &Cluster) -> anyhow::Result<Vec<Result<(), String>>> {
    let begun = Instant::now();
    let wait = Wait { what: "every node to answer", limit: PROBE_LIMIT, pause: PAUSE };
    cluster.at_each(wait, &cluster.nodes(), |node| match place_probe(node) {
        Err(text) if begun.elapsed() < PROBE_LIMIT / 2 => Err(text),
        placed => Ok(placed),
    })
}

fn place_probe(node: &Node) -> Result<(), String> {
    let request: Request = serde_json::from_str(PROBE).map_err(|error| error.to_string())?;
    let submitted = node.client().submit(&request)?;
    let view = node.client().settled(&submitted.id, PROBE_LIMIT / 4)?;
    if !view.state.is_reserved() {
        return Err(format!("a request for one host ended as {:?}: {:?}", view.state, view.reason));
    }
    match node.client().cancel(&view.id)?.state {
        RequestState::Cancelled | RequestState::Cancelling => Ok(()),
        other => Err(format!("a cancelled request is {other:?}")),
    }
}

/// Asks the entry point how the request ended, and waits until what the user cancelled is free everywhere. In words, what is wrong.
fn look_at_the_end(cluster: &Cluster, answer: &mut Answer) -> anyhow::Result<Option<String>> {
    let Some(view) = answer.view() else { return Ok(None) };
    let node = cluster.node(answer.entry_point.0);
    let is_over = |seen: &RequestView| match answer.fate {
        Fate::Cancelled => seen.state == RequestState::Cancelled,
        Fate::Kept | Fate::Unclear | Fate::Gone => seen.state.is_final(),
    };
    let wait = Wait { what: "the end of a request", limit: CANCEL_LIMIT, pause: PAUSE };
    let found = wait.until(
        || cluster.check(),
        || match node.client().find(&view.id) {
            Ok(seen) if is_over(&seen) => Ok(Some(Box::new(seen))),
            Ok(seen) => Err(format!("{:?}", seen.state)),
            // Nodes forget what is over; what they must not forget counts as lost.
            Err(error) if error.status == Some(404) => Ok(None),
            Err(error) => Err(error.to_string()),
        },
    );
    match found {
        Ok(seen) => {
            answer.after = seen;
            Ok(None)
        }
        Err(error) => {
            let (id, fate, Deadline { last, .. }) = (&view.id, answer.fate, error.downcast()?);
            Ok(Some(format!("{id}: {fate:?} by its user, but after the faults were over it stayed {last}")))
        }
    }
}

/// Waits until no ledger holds anything of a request that is not reserved, or the time for that is over; the violations then.
pub fn check_ledgers(cluster: &Cluster, answers: &[Answer]) -> anyhow::Result<Vec<Violation>> {
    let reported: Vec<Reported<'_>> = answers
        .iter()
        .filter_map(|answer| Some(Reported { request: &answer.request, view: answer.last_view()? }))
        .collect();
    let read = Wait { what: "all ledgers", limit: READ_LIMIT, pause: READ_PAUSE };
    let begun = Instant::now();
    loop {
        let ledgers = cluster.at_each(read, &cluster.nodes(), |node| Ok(node.client().ledger()?))?;
        let now = i64::try_from(seconds_since_epoch()).unwrap_or(i64::MAX);
        let mut violations = invariants::check(&ledgers, &cluster.sites(), &reported, now);
        violations
            .extend(cluster.launch.uplink_mbps.into_iter().flat_map(|mbps| links::check(&ledgers, &reported, mbps)));
        if begun.elapsed() >= SETTLE_LIMIT || !violations.iter().any(Violation::is_left) {
            return Ok(violations);
        }
        cluster.pass(READ_PAUSE)?;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grid::load::answer::tests::answer;

    fn reserved(state: &str, start: i64) -> Answer {
        let hosts = json!([{"site": "A", "site_name": "a", "host": "h1", "end": 200, "amounts": {"cpu": 5}}]);
        answer(state, &json!({"start": start, "end": start + 60, "hosts": hosts}), 0)
    }

    #[test]
    fn a_reservation_that_is_gone_cancelled_or_moved_is_lost() {
        let why = |after: Option<Answer>, fate| {
            let after = after.and_then(|answer| answer.end.ok());
            let answer = Answer { after, fate, ..reserved("confirmed", 100) };
            lost(answer.acknowledged().unwrap(), &answer)
        };
        assert_eq!(why(Some(reserved("confirmed", 100)), Fate::Kept), None);
        assert_eq!(why(Some(reserved("active", 100)), Fate::Kept), None);
        assert!(why(None, Fate::Kept).unwrap().contains("no longer knows it"));
        assert!(why(Some(reserved("failed", 100)), Fate::Kept).unwrap().contains("Failed"));
        assert!(why(Some(reserved("confirmed", 160)), Fate::Kept).unwrap().contains("another time"));
        assert!(why(Some(reserved("confirmed", 100)), Fate::Gone).unwrap().contains("did not find it"));
    }
}
