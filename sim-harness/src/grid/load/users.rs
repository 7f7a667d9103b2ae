//! A steady load: users that submit requests through any node, wait for the end, and cancel most reservations.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex,
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
    answer::{Answer, Fate},
    live::Pulse,
    user::{self, Patience},
};
use crate::grid::nodes::{
    cluster::Cluster,
    wait::{locked, on_threads},
};

/// Longest sleep of a user that waits for the next request to be due.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Users of an open load: requests under way at the same time. More would only queue, and their latency counts anyway.
const OPEN_USERS: usize = 256;

/// How the requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// So many users, each with one request at a time.
    Closed { users: usize },
    /// At random moments, whatever became of the requests before (a Poisson process); so many a second, on average.
    Open { per_second: f64 },
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
    pub reservations_max: usize,
    /// Where it is counted what goes on.
    pub pulse: &'a Pulse,
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
struct Reservations {
    /// Position of the entry point and id, the oldest first.
    present: VecDeque<(usize, String)>,
    fates: BTreeMap<String, Fate>,
}

impl Load<'_> {
    /// Goes on until `over`; what is under way then is followed to its end.
    pub fn run(&self, over: &AtomicBool) -> anyhow::Result<Vec<Answer>> {
        let users = match self.pace {
            Pace::Closed { users } => users,
            Pace::Open { .. } => OPEN_USERS,
        };
        let random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let tickets = Mutex::new(Tickets { random, next: 0, due: Instant::now() });
        let reservations = Mutex::new(Reservations::default());
        let found = on_threads(users, |_| -> anyhow::Result<Vec<Answer>> {
            let mut mine = Vec::new();
            while let Some(ticket) = self.next_due(&tickets, over)? {
                self.pulse.request_begins();
                let label = RequestId::new(&format!("{}-{}", self.name, ticket.index)).expect("short, without spaces");
                let request = self.requests[ticket.index % self.requests.len()].clone().with_id(label);
                let answer = user::ask(
                    self.cluster,
                    &self.cluster.node(ticket.entry_point),
                    request,
                    ticket.due,
                    Patience::ThroughFaults,
                )?;
                self.pulse.request_ends(&answer);
                self.make_room(&answer, &reservations)?;
                mine.push(answer);
            }
            Ok(mine)
        });
        let mut answers: Vec<Answer> =
            found.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect();
        let fates = &locked(&reservations).fates;
        for answer in &mut answers {
            answer.fate = answer.view().and_then(|view| fates.get(&view.id)).copied().unwrap_or(Fate::Kept);
        }
        answers.sort_by_key(|answer| answer.due);
        Ok(answers)
    }

    /// The next request, once it is due; `None` when the load is over before. One user waits, with the tickets in hand, and
    /// the others wait behind it: hundreds that each look at the clock would be a load of their own.
    fn next_due(&self, tickets: &Mutex<Tickets>, over: &AtomicBool) -> anyhow::Result<Option<Ticket>> {
        let mut tickets = locked(tickets);
        if over.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let ticket = tickets.next(self.pace, self.cluster.len());
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

    /// Adds the newest reservation, and cancels the oldest when there are too many.
    fn make_room(&self, newest: &Answer, reservations: &Mutex<Reservations>) -> anyhow::Result<()> {
        let Some(view) = newest.acknowledged() else { return Ok(()) };
        let oldest = {
            let present = &mut locked(reservations).present;
            present.push_back((newest.entry_point.0, view.id.clone()));
            if present.len() > self.reservations_max { present.pop_front() } else { None }
        };
        if let Some((entry_point, id)) = oldest {
            let fate = user::cancel(self.cluster, &self.cluster.node(entry_point), &id)?;
            locked(reservations).fates.insert(id, fate);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
