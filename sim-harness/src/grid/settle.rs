//! Reads all ledgers once every request is settled, and has them checked.

use std::time::Duration;

use super::{
    cluster::Cluster,
    drive::Answer,
    error::GridError,
    invariants::{self, Told, Violation},
    poll::Poll,
    seconds_since_epoch,
    wait::{Look, wait_until},
    wire::Ledger,
};

/// How long a hold may outlive its request: the longest hold that a site grants by default, and a grace.
const SETTLE_LIMIT: Duration = Duration::from_secs(75);
/// How long reading the ledgers of all nodes may take.
const READ_LIMIT: Duration = Duration::from_secs(60);
/// Between two readings of all ledgers.
const PAUSE: Duration = Duration::from_millis(250);

/// Waits until no ledger holds anything of a request that is not reserved, or the time for that is over, and checks the
/// ledgers as they are then.
///
/// # Errors
/// [`GridError`] when a node does not answer, crashes, or the run is interrupted.
pub fn check_ledgers<'a>(
    cluster: &Cluster,
    answers: impl IntoIterator<Item = &'a Answer>,
) -> Result<Vec<Violation>, GridError> {
    let told: Vec<Told<'_>> = answers
        .into_iter()
        .filter_map(|answer| Some(Told { request: &answer.request, view: answer.last_view()? }))
        .collect();
    let settled = wait_until(
        "settled ledgers",
        SETTLE_LIMIT,
        PAUSE,
        || cluster.check(),
        || {
            let ledgers = read(cluster)?;
            let is_unsettled = invariants::is_unsettled(&ledgers, &told);
            Ok(if is_unsettled { Look::NotYet("holds or leftovers".to_owned()) } else { Look::Done(ledgers) })
        },
    );
    let ledgers = match settled {
        Ok(ledgers) => ledgers,
        // What is left is told as violations, each with its site and request.
        Err(GridError::Deadline { .. }) => read(cluster)?,
        Err(error) => return Err(error),
    };
    let now = i64::try_from(seconds_since_epoch()).unwrap_or(i64::MAX);
    Ok(invariants::check(&ledgers, &told, now))
}

fn read(cluster: &Cluster) -> Result<Vec<Ledger>, GridError> {
    let nodes: Vec<usize> = (0..cluster.nodes.len()).collect();
    let poll = Poll { what: "all ledgers", limit: READ_LIMIT, pause: PAUSE };
    poll.each(cluster, &nodes, |node| node.client().ledger().map(Look::Done))
}
