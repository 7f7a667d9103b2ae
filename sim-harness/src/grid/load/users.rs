//! A steady load: users that submit requests through any node, wait for the end, and cancel most reservations.
//!
//! Entry points may die and come back under it: a request whose submission was not answered is looked up by its label
//! and submitted again only when its entry point does not know it; one that was answered is asked for by its id.
//! Invariant: every request that was begun has an answer, and nothing is waited for longer than [`ANSWER_LIMIT`].

use std::{
    collections::{BTreeMap, VecDeque},
    panic::resume_unwind,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use broker::{ids::RequestId, request::Request};
use rand::RngExt;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    answer::{Answer, End},
    live::Pulse,
};
use crate::grid::nodes::{
    client::ClientError,
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
/// Longest sleep of a user that waits for the next request to be due.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Users of an open load: requests under way at the same time. More would only queue, and their latency counts anyway.
const OPEN_USERS: usize = 256;

/// How the requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// So many users, each with one request at a time.
    Closed {
        /// How many.
        users: usize,
    },
    /// At random moments, whatever became of the requests before (a Poisson process).
    Open {
        /// Requests a second, on average.
        per_second: f64,
    },
}

/// What is put on the grid.
pub struct Load<'a> {
    pub cluster: &'a Cluster,
    /// What is asked for, again and again, under new labels.
    pub requests: &'a [Request],
    /// Begins every label, so that two loads on one grid do not meet.
    pub name: &'a str,
    /// Decides entry points, moments, and which reservations are kept.
    pub seed: u64,
    pub pace: Pace,
    /// Most reservations at the same time. For one more the oldest is cancelled, so that each lives through
    /// much of what happens, and the grid never fills up.
    pub standing_max: usize,
    /// Where it is counted what goes on.
    pub pulse: &'a Pulse,
}

/// What the user did with a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Kept it, or never had it.
    Kept,
    /// Found it, and its cancellation was acknowledged.
    Cancelled,
    /// Found it and cancelled it, without an acknowledgement.
    Unclear,
    /// Came back to it and did not find it.
    Gone,
}

/// One request of the load.
#[derive(Debug)]
pub struct Placed {
    /// What became of it.
    pub answer: Answer,
    /// What the user did then.
    pub fate: Fate,
    /// Position of the entry point.
    pub entry_point: usize,
    /// When it was due; latency counts from here.
    pub due: Instant,
    /// When its end was reported.
    pub ended: Instant,
}

/// One request to come.
struct Ticket {
    index: usize,
    entry_point: usize,
    due: Instant,
}

/// Hands out what comes next.
struct Tickets {
    random: Xoshiro256PlusPlus,
    next: usize,
    due: Instant,
}

impl Tickets {
    fn next(&mut self, pace: Pace, nodes: usize) -> Ticket {
        let index = self.next;
        self.next += 1;
        let due = match pace {
            Pace::Closed { .. } => Instant::now(),
            Pace::Open { per_second } => {
                let gap: f64 = Exp1.sample(&mut self.random);
                self.due += Duration::from_secs_f64(gap / per_second);
                self.due
            }
        };
        Ticket { index, entry_point: self.random.random_range(0..nodes), due }
    }
}

/// The reservations at present, and what users did with earlier ones, by request id.
#[derive(Default)]
struct Standing {
    /// Position of the entry point and id, the oldest first.
    queue: VecDeque<(usize, String)>,
    fates: BTreeMap<String, Fate>,
}

impl Load<'_> {
    /// Goes on until `over`; what is under way then is followed to its end.
    pub fn run(&self, over: &AtomicBool) -> anyhow::Result<Vec<Placed>> {
        let users = match self.pace {
            Pace::Closed { users } => users,
            Pace::Open { .. } => OPEN_USERS,
        };
        let random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let tickets = Mutex::new(Tickets { random, next: 0, due: Instant::now() });
        let standing = Mutex::new(Standing::default());
        let user = || -> anyhow::Result<Vec<Placed>> {
            let mut mine = Vec::new();
            while let Some(ticket) = self.next_due(&tickets, over)? {
                self.pulse.request_begins();
                mine.push(self.place(&ticket)?);
                self.make_room(mine.last(), &standing)?;
            }
            Ok(mine)
        };
        let found: Vec<anyhow::Result<Vec<Placed>>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..users).map(|_| scope.spawn(user)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        let mut placed = Vec::new();
        for result in found {
            placed.extend(result?);
        }
        let fates = standing.into_inner().unwrap_or_else(PoisonError::into_inner).fates;
        for one in &mut placed {
            let fate = one.answer.last_view().and_then(|view| fates.get(&view.id));
            one.fate = fate.copied().unwrap_or(Fate::Kept);
        }
        placed.sort_by_key(|one| one.due);
        Ok(placed)
    }

    /// The next request, once it is due; `None` when the load is over before. One user waits, with the tickets in hand, and
    /// the others wait behind it: hundreds that each look at the clock would be a load of their own.
    fn next_due(&self, tickets: &Mutex<Tickets>, over: &AtomicBool) -> anyhow::Result<Option<Ticket>> {
        let mut tickets = tickets.lock().unwrap_or_else(PoisonError::into_inner);
        if over.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let ticket = tickets.next(self.pace, self.cluster.nodes.len());
        loop {
            let left = ticket.due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Some(ticket));
            }
            self.cluster.check()?;
            if over.load(Ordering::Relaxed) {
                return Ok(None);
            }
            thread::sleep(left.min(LOOK_PAUSE));
        }
    }

    fn place(&self, ticket: &Ticket) -> anyhow::Result<Placed> {
        let node = &self.cluster.nodes[ticket.entry_point];
        let label = RequestId::new(&format!("{}-{}", self.name, ticket.index)).expect("a short text without spaces");
        let request = self.requests[ticket.index % self.requests.len()].clone().with_id(label);
        let end = self.follow(node, &request, ticket.due)?;
        let answer = Answer { request, entry_point: node.name.clone(), end, after: None };
        self.pulse.request_ends(&answer);
        let (entry_point, due) = (ticket.entry_point, ticket.due);
        Ok(Placed { answer, fate: Fate::Kept, entry_point, due, ended: Instant::now() })
    }

    /// Adds `newest` to the reservations, and cancels the oldest when there are too many.
    fn make_room(&self, newest: Option<&Placed>, standing: &Mutex<Standing>) -> anyhow::Result<()> {
        let Some((entry_point, view)) = newest.and_then(|one| Some((one.entry_point, one.answer.last_view()?))) else {
            return Ok(());
        };
        if !view.state.is_reserved() {
            return Ok(());
        }
        let oldest = {
            let mut standing = standing.lock().unwrap_or_else(PoisonError::into_inner);
            standing.queue.push_back((entry_point, view.id.clone()));
            if standing.queue.len() > self.standing_max { standing.queue.pop_front() } else { None }
        };
        if let Some((entry_point, id)) = oldest {
            let fate = cancel(self.cluster, &self.cluster.nodes[entry_point], &id)?;
            standing.lock().unwrap_or_else(PoisonError::into_inner).fates.insert(id, fate);
        }
        Ok(())
    }

    fn follow(&self, node: &Node, request: &Request, due: Instant) -> anyhow::Result<End> {
        let deadline = due + ANSWER_LIMIT;
        let mut view = match self.submit(node, request, deadline)? {
            Ok(view) => view,
            Err(text) => return Ok(End::Lost(text)),
        };
        loop {
            if view.state.is_final() {
                return Ok(End::Reported { view: Box::new(view), latency: due.elapsed(), explanation: None });
            }
            match node.client().settled(&view.id, CALL_WAIT) {
                Ok(seen) => view = seen,
                Err(error) if error.status() == Some(404) => {
                    return Ok(End::Lost(format!("{} is no longer known to its entry point: {error}", view.id)));
                }
                Err(_) => thread::sleep(RETRY_PAUSE),
            }
            self.cluster.check()?;
            if Instant::now() >= deadline {
                let text = format!("{} still {:?} after {} s", view.id, view.state, ANSWER_LIMIT.as_secs());
                return Ok(End::Lost(text));
            }
        }
    }

    /// Submits until the entry point has taken the request; the inner error says why it never did.
    fn submit(&self, node: &Node, request: &Request, deadline: Instant) -> anyhow::Result<Result<RequestView, String>> {
        let label = request.id().map_or("", |id| id.as_str());
        let mut may_be_in = false;
        loop {
            let client = node.client();
            let answered = if may_be_in { client.find(label) } else { client.submit(request) };
            let error = match answered {
                Ok(view) => return Ok(Ok(view)),
                Err(error) => error,
            };
            match next_step(&error, may_be_in) {
                Step::Submit => may_be_in = false,
                Step::LookUp => may_be_in = true,
                Step::GiveUp => return Ok(Err(error.to_string())),
            }
            self.cluster.check()?;
            if Instant::now() >= deadline {
                return Ok(Err(format!("not submitted within {} s: {error}", ANSWER_LIMIT.as_secs())));
            }
            thread::sleep(RETRY_PAUSE);
        }
    }
}

/// Cancels the reservations of `placed` that users have kept, so that the next load finds the grid as the one before did.
pub fn cancel_all(cluster: &Cluster, placed: &mut [Placed]) -> anyhow::Result<()> {
    for one in placed.iter_mut().filter(|one| one.fate == Fate::Kept) {
        if let Some(id) = one.answer.last_view().filter(|view| view.state.is_reserved()).map(|view| view.id.clone()) {
            one.fate = cancel(cluster, &cluster.nodes[one.entry_point], &id)?;
        }
    }
    Ok(())
}

/// Looks whether the reservation is there, and cancels it until the entry point acknowledges that.
fn cancel(cluster: &Cluster, node: &Node, id: &str) -> anyhow::Result<Fate> {
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
            Err(error) if error.status() == Some(404) => return Ok(Fate::Gone),
            Err(_) => thread::sleep(RETRY_PAUSE),
        }
        cluster.check()?;
        if Instant::now() >= deadline {
            return Ok(if was_there { Fate::Unclear } else { Fate::Gone });
        }
    }
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
fn next_step(error: &ClientError, may_be_in: bool) -> Step {
    match error.status() {
        Some(404) if may_be_in => Step::Submit,
        Some(503) if !may_be_in => Step::Submit,
        None | Some(401 | 500..) => Step::LookUp,
        Some(_) => Step::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16) -> ClientError {
        ClientError::Refused { call: String::new(), status, text: String::new() }
    }

    #[test]
    fn nothing_is_submitted_again_before_the_entry_point_was_asked() {
        assert_eq!(next_step(&refused(500), false), Step::LookUp);
        assert_eq!(next_step(&refused(401), false), Step::LookUp);
        assert_eq!(next_step(&refused(401), true), Step::LookUp);
        assert_eq!(next_step(&refused(404), true), Step::Submit);
        assert_eq!(next_step(&refused(503), false), Step::Submit);
        assert_eq!(next_step(&refused(503), true), Step::LookUp);
        assert_eq!(next_step(&refused(400), false), Step::GiveUp);
    }

    #[test]
    fn an_open_load_comes_at_the_rate_asked_and_from_everywhere() {
        let begun = Instant::now();
        let mut tickets = Tickets { random: Xoshiro256PlusPlus::seed_from_u64(3), next: 0, due: begun };
        let pace = Pace::Open { per_second: 50.0 };
        let drawn: Vec<Ticket> = (0..5000).map(|_| tickets.next(pace, 10)).collect();
        let seconds = drawn[4999].due.duration_since(begun).as_secs_f64();
        assert!((95.0..105.0).contains(&seconds), "{seconds}");
        for node in 0..10 {
            let share = drawn.iter().filter(|ticket| ticket.entry_point == node).count();
            assert!((400..600).contains(&share), "{share}");
        }
        assert!(drawn.windows(2).all(|pair| pair[0].due <= pair[1].due && pair[0].index + 1 == pair[1].index));
    }
}
