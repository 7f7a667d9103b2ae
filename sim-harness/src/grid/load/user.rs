//! What one user does with one request: submits it through a node, waits for the end, and perhaps cancels the reservation.
//!
//! Entry points may die and come back under it: a request whose submission was not answered is looked up by its label
//! and submitted again only when its entry point does not know it; one that was answered is asked for by its id.
//! Invariant: every request that was begun has an answer, and nothing is waited for longer than [`ANSWER_LIMIT`].

use std::{
    thread,
    time::{Duration, Instant},
};

use broker::request::Request;

use super::answer::{Answer, Fate};
use crate::grid::nodes::{
    cluster::{Cluster, Node},
    wire::{RequestState, RequestView},
};

/// How long a request may take to be settled: a node's default patience, and what several deaths of the entry point
/// add to it.
const ANSWER_LIMIT: Duration = Duration::from_secs(180);
/// Longest wait in one call, so that a crash or an interrupt is seen in between.
const CALL_WAIT: Duration = Duration::from_secs(1);
/// Between two calls to an entry point that does not answer.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// What a user does when a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// No faults are injected: a failed call is reported as a request without an end.
    None,
    /// Entry points may die: the user comes back until the limit.
    ThroughFaults,
}

/// Submits a request that is due through `node`, and follows it to its end.
pub fn ask(
    cluster: &Cluster,
    node: &Node,
    request: Request,
    due: Instant,
    patience: Patience,
) -> anyhow::Result<Answer> {
    let end = follow(cluster, node, &request, due + ANSWER_LIMIT, patience)?.map(Box::new);
    let entry_point = (node.position, node.name.clone());
    let ended = Instant::now();
    Ok(Answer { request, entry_point, due, ended, end, explanation: None, fate: Fate::Kept, after: None })
}

/// The inner error says why no end was reported.
fn follow(
    cluster: &Cluster,
    node: &Node,
    request: &Request,
    deadline: Instant,
    patience: Patience,
) -> anyhow::Result<Result<RequestView, String>> {
    let mut view = match submit(cluster, node, request, deadline, patience)? {
        Ok(view) => view,
        refused => return Ok(refused),
    };
    while !view.state.is_final() {
        cluster.check()?;
        if Instant::now() >= deadline {
            return Ok(Err(format!("{} still {:?} after {} s", view.id, view.state, ANSWER_LIMIT.as_secs())));
        }
        match node.client().settled(&view.id, CALL_WAIT) {
            Ok(seen) => view = seen,
            Err(error) if error.status == Some(404) => {
                return Ok(Err(format!("{} is no longer known to its entry point: {error}", view.id)));
            }
            Err(error) if patience == Patience::None => return Ok(Err(error.to_string())),
            Err(_) => thread::sleep(RETRY_PAUSE),
        }
    }
    Ok(Ok(view))
}

/// Submits until the entry point has taken the request; the inner error says why it never did.
fn submit(
    cluster: &Cluster,
    node: &Node,
    request: &Request,
    deadline: Instant,
    patience: Patience,
) -> anyhow::Result<Result<RequestView, String>> {
    let label = request.id().map_or("", |id| id.as_str());
    let mut may_be_in = false;
    loop {
        let client = node.client();
        let answered = if may_be_in { client.find(label) } else { client.submit(request) };
        let error = match answered {
            Ok(view) => return Ok(Ok(view)),
            Err(error) => error,
        };
        if patience == Patience::None {
            return Ok(Err(error.to_string()));
        }
        match next_step(error.status, may_be_in) {
            Step::Submit => may_be_in = false,
            Step::LookUp => may_be_in = true,
            Step::GiveUp => return Ok(Err(error.to_string())),
        }
        cluster.check()?;
        if Instant::now() >= deadline {
            return Ok(Err(format!("not submitted within {} s: {error}", ANSWER_LIMIT.as_secs())));
        }
        thread::sleep(RETRY_PAUSE);
    }
}

/// Looks whether the reservation is there, and cancels it until the entry point acknowledges that.
pub fn cancel(cluster: &Cluster, node: &Node, id: &str) -> anyhow::Result<Fate> {
    let deadline = Instant::now() + ANSWER_LIMIT;
    let mut was_there = false;
    loop {
        let client = node.client();
        let seen = if was_there { client.cancel(id) } else { client.find(id) };
        match seen {
            Ok(view) if was_there => match view.state {
                RequestState::Cancelled | RequestState::Cancelling => return Ok(Fate::Cancelled),
                _ => thread::sleep(RETRY_PAUSE),
            },
            Ok(view) if view.state.is_reserved() => was_there = true,
            Ok(_) => return Ok(Fate::Gone),
            Err(error) if error.status == Some(404) => return Ok(Fate::Gone),
            Err(_) => thread::sleep(RETRY_PAUSE),
        }
        cluster.check()?;
        if Instant::now() >= deadline {
            return Ok(if was_there { Fate::Unclear } else { Fate::Gone });
        }
    }
}

/// Cancels the reservations that users have kept, so that the next load finds the grid as the one before did.
pub fn cancel_all(cluster: &Cluster, answers: &mut [Answer]) -> anyhow::Result<()> {
    for answer in answers.iter_mut().filter(|answer| answer.fate == Fate::Kept) {
        if let Some(view) = answer.acknowledged() {
            answer.fate = cancel(cluster, &cluster.node(answer.entry_point.0), &view.id)?;
        }
    }
    Ok(())
}

/// What a user does after a failed submission or look-up.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Submit,
    LookUp,
    GiveUp,
}

/// No answer, or a failure of the node, leaves open whether the request is in: it is looked up. While a node is down its
/// port may be another node's, which refuses the token (401).
fn next_step(status: Option<u16>, may_be_in: bool) -> Step {
    match status {
        Some(404) if may_be_in => Step::Submit,
        Some(503) if !may_be_in => Step::Submit,
        None | Some(401 | 500..) => Step::LookUp,
        Some(_) => Step::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_submitted_again_before_the_entry_point_was_asked() {
        for (status, may_be_in, expected) in [
            (500, false, Step::LookUp),
            (401, false, Step::LookUp),
            (401, true, Step::LookUp),
            (404, true, Step::Submit),
            (503, false, Step::Submit),
            (503, true, Step::LookUp),
            (400, false, Step::GiveUp),
        ] {
            assert_eq!(next_step(Some(status), may_be_in), expected, "{status}");
        }
    }
}
