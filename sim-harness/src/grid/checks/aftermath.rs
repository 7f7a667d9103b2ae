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

use super::invariants::{self, Reported, Violation};
use crate::grid::load::{
    answer::Answer,
    users::{Fate, Placed},
};
use crate::grid::nodes::{
    cluster::{Cluster, Node},
    run_files::seconds_since_epoch,
    wait::{Deadline, Look, Wait},
    wire::{Ledger, RequestState, RequestView, Reservation, ReservedHost},
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

/// What [`examine`] found.
#[derive(Debug, Default)]
pub struct Examined {
    pub aftermath: Aftermath,
    /// Breaches of the invariants.
    pub violations: Vec<Violation>,
    /// What else is wrong, in words.
    pub failed_checks: Vec<String>,
}

/// Has every node place a request, asks every entry point for the end of each of its requests, and checks all ledgers.
pub fn examine(cluster: &Cluster, placed: &mut [Placed]) -> anyhow::Result<Examined> {
    let mut examined = Examined::default();
    for (index, placed) in probe(cluster)?.into_iter().enumerate() {
        if let Err(text) = placed {
            examined.aftermath.wedged += 1;
            examined.failed_checks.push(format!("{} is wedged: {text}", cluster.nodes[index].name));
        }
    }
    for one in placed.iter_mut() {
        if let Err(text) = look_at_the_end(cluster, one)? {
            examined.failed_checks.push(text);
        }
    }
    examined.violations = check_ledgers(cluster, placed.iter().map(|one| &one.answer))?;
    let broken: BTreeSet<&str> = examined.violations.iter().filter_map(Violation::broken_reservation).collect();
    for one in placed.iter() {
        let Some(view) = one.answer.view().filter(|view| view.state.is_reserved()) else { continue };
        examined.aftermath.acknowledged += 1;
        match one.fate {
            Fate::Cancelled | Fate::Unclear => examined.aftermath.taken_back += 1,
            Fate::Kept | Fate::Gone => {
                let in_ledgers = || broken.contains(view.id.as_str()).then(|| "not so in the ledgers".to_owned());
                if let Some(why) = lost(view, one).or_else(in_ledgers) {
                    examined.aftermath.acknowledged_lost += 1;
                    examined.failed_checks.push(format!("{}: acknowledged, and lost: {why}", view.id));
                }
            }
        }
    }
    Ok(examined)
}

/// Why an acknowledged reservation counts as lost; `None` while it does not.
fn lost(acknowledged: &RequestView, one: &Placed) -> Option<String> {
    if one.fate == Fate::Gone {
        return Some("its user came back to it and did not find it".to_owned());
    }
    let Some(after) = &one.answer.after else { return Some("its entry point no longer knows it".to_owned()) };
    if !after.state.is_reserved() {
        return Some(format!("now {:?}", after.state));
    }
    let terms = |view: &RequestView| view.reservation.as_ref().map(terms);
    (terms(acknowledged) != terms(after)).then(|| "now other hosts or another time".to_owned())
}

/// What a reservation consists of, comparable.
fn terms(reservation: &Reservation) -> (i64, i64, BTreeSet<(String, String)>) {
    let host = |host: &ReservedHost| (format!("{}/{}", host.site, host.host), format!("{:?}", host.amounts));
    (reservation.start, reservation.end, reservation.hosts.iter().map(host).collect())
}

/// One small request through every node, cancelled at once. In the order of the nodes: why a node could not place it.
fn probe(cluster: &Cluster) -> anyhow::Result<Vec<Result<(), String>>> {
    let nodes: Vec<usize> = (0..cluster.nodes.len()).collect();
    let wait = Wait { what: "every node to answer", limit: PROBE_LIMIT, pause: PAUSE };
    let begun = Instant::now();
    let look = |node: &Node| {
        let placed = place_probe(node);
        let again = placed.is_err() && begun.elapsed() < PROBE_LIMIT / 2;
        Ok(if again { Look::NotYet(format!("{placed:?}")) } else { Look::Done(placed) })
    };
    cluster.at_each(wait, &nodes, look, |_| ())
}

fn place_probe(node: &Node) -> Result<(), String> {
    let request: Request = serde_json::from_str(PROBE).map_err(|error| error.to_string())?;
    let submitted = node.client().submit(&request).map_err(|error| error.to_string())?;
    let view = node.client().settled(&submitted.id, PROBE_LIMIT / 4).map_err(|error| error.to_string())?;
    if !view.state.is_reserved() {
        return Err(format!("a request for one host ended as {:?}: {:?}", view.state, view.reason));
    }
    let cancelled = node.client().cancel(&view.id).map_err(|error| error.to_string())?;
    match cancelled.state {
        RequestState::Cancelled | RequestState::Cancelling => Ok(()),
        other => Err(format!("a cancelled request is {other:?}")),
    }
}

/// Asks the entry point how the request ended, and waits until what the user cancelled is free everywhere. The inner error says
/// what is wrong.
fn look_at_the_end(cluster: &Cluster, one: &mut Placed) -> anyhow::Result<Result<(), String>> {
    let Some(view) = one.answer.view() else { return Ok(Ok(())) };
    let node = &cluster.nodes[one.entry_point];
    let is_over = |seen: &RequestView| match one.fate {
        Fate::Cancelled => seen.state == RequestState::Cancelled,
        Fate::Kept | Fate::Unclear | Fate::Gone => seen.state.is_final(),
    };
    let wait = Wait { what: "the end of a request", limit: CANCEL_LIMIT, pause: PAUSE };
    let found = wait.until(
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
        // Nodes forget what is over; what they must not forget counts as lost.
        Ok(None) => Ok(Ok(())),
        Err(error) => {
            let Deadline { last, .. } = error.downcast()?;
            Ok(Err(format!("{}: {:?} by its user, but after the faults were over it stayed {last}", view.id, one.fate)))
        }
    }
}

/// Waits until no ledger holds anything of a request that is not reserved, or the time for that is over, and checks the ledgers as
/// they are then.
pub fn check_ledgers<'a>(
    cluster: &Cluster,
    answers: impl IntoIterator<Item = &'a Answer>,
) -> anyhow::Result<Vec<Violation>> {
    let reported: Vec<Reported<'_>> = answers
        .into_iter()
        .filter_map(|answer| Some(Reported { request: &answer.request, view: answer.last_view()? }))
        .collect();
    let wait = Wait { what: "settled ledgers", limit: SETTLE_LIMIT, pause: READ_PAUSE };
    let settled = wait.until(
        || cluster.check(),
        || {
            let ledgers = read_ledgers(cluster)?;
            let is_unsettled = invariants::is_unsettled(&ledgers, &reported);
            Ok(if is_unsettled { Look::NotYet("holds or leftovers".to_owned()) } else { Look::Done(ledgers) })
        },
    );
    let ledgers = match settled {
        // What is left counts as violations, each with its site and request.
        Err(error) if error.is::<Deadline>() => read_ledgers(cluster)?,
        settled => settled?,
    };
    let now = i64::try_from(seconds_since_epoch()).unwrap_or(i64::MAX);
    Ok(invariants::check(&ledgers, &reported, now))
}

fn read_ledgers(cluster: &Cluster) -> anyhow::Result<Vec<Ledger>> {
    let nodes: Vec<usize> = (0..cluster.nodes.len()).collect();
    let wait = Wait { what: "all ledgers", limit: READ_LIMIT, pause: READ_PAUSE };
    cluster.at_each(wait, &nodes, |node| node.client().ledger().map(Look::Done), |_| ())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grid::load::answer::tests::answer;

    fn reserved(state: &str, start: i64) -> Answer {
        let hosts = json!([{"site": "A", "site_name": "a", "host": "h1", "amounts": {"cpu": 5}}]);
        answer(state, &json!({"start": start, "end": start + 60, "hosts": hosts}), 0)
    }

    fn placed(after: Option<Answer>, fate: Fate) -> Placed {
        let after = after.and_then(|answer| answer.view().cloned()).map(Box::new);
        let answer = Answer { after, ..reserved("confirmed", 100) };
        Placed { answer, fate, entry_point: 0, due: Instant::now(), ended: Instant::now() }
    }

    #[test]
    fn a_reservation_that_is_gone_cancelled_or_moved_is_lost() {
        let why = |after, fate| lost(reserved("confirmed", 100).view().unwrap(), &placed(after, fate));
        assert_eq!(why(Some(reserved("confirmed", 100)), Fate::Kept), None);
        assert_eq!(why(Some(reserved("active", 100)), Fate::Kept), None);
        assert!(why(None, Fate::Kept).unwrap().contains("no longer knows it"));
        assert!(why(Some(reserved("failed", 100)), Fate::Kept).unwrap().contains("Failed"));
        assert!(why(Some(reserved("confirmed", 160)), Fate::Kept).unwrap().contains("another time"));
        assert!(why(Some(reserved("confirmed", 100)), Fate::Gone).unwrap().contains("did not find it"));
    }
}
