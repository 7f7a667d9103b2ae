//! Requests from the side of their users: submitted through an entry point, settled, and some time later cancelled.
//!
//! Invariant: users learn an outcome when it is on the disk of their entry point.

use std::collections::BTreeMap;

use broker::{
    ids::RequestId,
    negotiation::{self, Negotiation, Outcome, RequestRecord, Stage},
    plan::Plan,
    protocol::LedgerVersion,
    time::Span,
    trust::testing,
};

use super::{
    chance::drawn,
    search::Search,
    settings::Pace,
    world::{Event, World},
};
use crate::{
    engine::{Medium, Moment, Write},
    shift::shifted_request,
};

/// Users, each with a key.
const USERS: u64 = 100;
/// Names the draws of the seeds of negotiations.
const NEGOTIATIONS: u64 = 0x7265;

/// One request.
#[derive(Debug)]
pub struct Submitted {
    /// Its name.
    pub id: RequestId,
    /// The node that it was submitted to.
    pub entry: usize,
    /// When it was submitted.
    pub at: Moment,
    /// Phase I under way.
    pub search: Option<Search>,
    /// The versions of the schedules that the last plan rested on, by site.
    pub planned: BTreeMap<usize, LedgerVersion>,
    /// Its outcome was reported, or will be as soon as it is on disk.
    pub is_settled: bool,
    /// When its last record is on disk.
    pub free_at: Moment,
}

/// The number of the request with this name.
pub fn number_of(id: &RequestId) -> Option<usize> {
    id.as_str().strip_prefix('r')?.parse().ok()
}

fn is_settled(negotiation: &Negotiation) -> bool {
    matches!(negotiation.stage(), Stage::Reserved(_) | Stage::Degraded { .. } | Stage::Closed { .. })
}

impl World {
    /// The negotiation of a request, while its node runs.
    pub(super) fn negotiation(&self, request: usize) -> Option<&Negotiation> {
        let Submitted { entry, id, .. } = &self.requests[request];
        self.sites[*entry].negotiation(id)
    }

    /// A user submits a request.
    pub(super) fn submit(&mut self, number: usize) {
        self.plan_submission(number + 1);
        let entry = match self.settings.pace {
            Pace::Rounds { .. } => Some(self.rounds.entry_point(number)),
            Pace::Open { .. } => self.draw_running_site(),
        };
        let Some(entry) = entry else { return };
        let (now, clocks) = (self.now(), self.clocks());
        let shift = Span(u64::try_from(clocks.utc.0).unwrap_or(0));
        let request = shifted_request(&self.pool[number % self.pool.len()], shift);
        let number_here = self.requests.len();
        let id = RequestId::new(&format!("r{number_here}")).expect("a letter and a number are a short text");
        let Ok(starts) = request.starts(clocks.utc, self.settings.negotiation.planner.default_reach) else { return };
        let authorization = testing::authorize(1 + number as u64 % USERS, &self.sites[entry].id, &id, &request);
        let user = format!("user {number}");
        let record = RequestRecord::arrived(id.clone(), user, request, authorization, now.ms(), starts);
        self.counts.totals.requests += 1;
        self.requests.push(Submitted {
            id: id.clone(),
            entry,
            at: now,
            search: None,
            planned: BTreeMap::new(),
            is_settled: false,
            free_at: now + self.settings.disk,
        });
        let seed = drawn([self.settings.seed, NEGOTIATIONS, number_here as u64]);
        let own = &mut self.sites[entry];
        own.disk.apply(Write::Request(Box::new(record.clone())));
        if let Some(machines) = &mut own.machines {
            machines.begin(record, false, seed, clocks);
        }
        self.perform_request(entry, &id);
    }

    /// The first time that a request is reserved or over, its user will learn it.
    pub(super) fn note_settled(&mut self, request: usize) {
        let is_new = !self.requests[request].is_settled && self.negotiation(request).is_some_and(is_settled);
        if is_new {
            let submitted = &mut self.requests[request];
            submitted.is_settled = true;
            let at = submitted.free_at;
            self.at(at, Event::Settled { request });
        }
    }

    /// Reports the outcome of a request to its user.
    pub(super) fn report_to_user(&mut self, request: usize) {
        let Some(negotiation) = self.negotiation(request).filter(|negotiation| is_settled(negotiation)) else {
            // Its node went down meanwhile, or went on with it: the outcome is reported when there is one again.
            self.requests[request].is_settled = false;
            return;
        };
        let history = &negotiation.record().history;
        let (attempts, conflicts) = (history.attempts.len() as u64, u64::from(history.conflicts));
        let reserved = match negotiation.stage() {
            Stage::Reserved(plan) => Ok(plan.clone()),
            stage => Err(matches!(stage, Stage::Closed { outcome: Outcome::Rejected { .. }, .. })),
        };
        self.counts.totals.attempts += attempts;
        self.counts.totals.conflicts += conflicts;
        match reserved {
            Ok(plan) => {
                self.counts.totals.reserved += 1;
                self.counts.first_attempt += u64::from(attempts == 1);
                self.note_latency(request, &plan);
                self.keep(request);
            }
            Err(true) => self.counts.totals.rejected += 1,
            Err(false) => self.counts.totals.failed += 1,
        }
        if let Pace::Rounds { .. } = self.settings.pace {
            self.settled_in_round(request);
        }
    }

    fn note_latency(&mut self, request: usize, plan: &Plan) {
        let Submitted { entry, at, .. } = self.requests[request];
        let took = self.now() - at;
        self.counts.latency_ms.push(took.as_secs_f64() * 1000.0);
        let sites = plan.grants.iter().filter_map(|grant| self.index.get(&grant.site).copied());
        let farthest = sites.filter(|site| *site != entry).map(|site| self.earth.round_trip(entry, site)).max();
        if let Some(farthest) = farthest.filter(|farthest| !farthest.is_zero()) {
            self.counts.round_trips.push(took.div_duration_f64(farthest));
        }
    }

    /// Users keep reservations until there are too many of them.
    fn keep(&mut self, request: usize) {
        self.reserved.push_back(request);
        if matches!(self.settings.pace, Pace::Open { .. })
            && self.reserved.len() > self.settings.reservations_max
            && let Some(request) = self.reserved.pop_front()
        {
            self.at(self.now(), Event::Cancel { request });
        }
    }

    /// A user cancels a reservation.
    pub(super) fn cancel(&mut self, request: usize) {
        let Submitted { entry, id, .. } = &self.requests[request];
        let (entry, id) = (*entry, id.clone());
        self.feed_request(entry, &id, negotiation::Event::Cancel);
    }
}
