//! The entry point's side: every request is a real [`Negotiation`], fed with what arrives and with its timers.
//!
//! Invariant: what comes behind a record leaves when the record is on disk, and users are told then.

use std::collections::BTreeMap;

use broker::{
    ids::RequestId,
    negotiation::{self, Negotiation, Outcome, Output, Purpose, RequestRecord, Stage},
    plan::Allocation,
    protocol::{LedgerVersion, RefusalReason, SiteAnswer},
    request::Request,
    time::Millis,
    trust::testing,
};
use discovery::{config::SILENCE_REMEMBERED, costs};
use rand::RngExt;

use super::{
    geography::mix,
    search::Search,
    settings::Pace,
    site::{Asker, Touch},
    traffic::Kind,
    world::{Body, Event, World, utc},
};
use crate::grid::workload::shifted_request;

/// Users, each with a key.
const USERS: u64 = 100;
/// How often a user tries another entry point when one does not run.
const ENTRY_POINT_DRAWS: u32 = 20;

/// One request.
#[derive(Debug)]
pub struct Carried {
    /// The node that carries it.
    pub entry: usize,
    /// When it was submitted.
    pub submitted: u64,
    /// Its negotiation, while its node runs.
    pub negotiation: Option<Negotiation>,
    /// What is on disk.
    pub record: Box<RequestRecord>,
    /// Phase I under way.
    pub search: Option<Search>,
    /// The versions of the schedules that the last plan rested on, by site.
    pub planned: BTreeMap<usize, LedgerVersion>,
    /// The user has been told, or will be as soon as it is on disk.
    pub is_settled: bool,
    free_at: u64,
    timer_at: Option<u64>,
}

impl Carried {
    /// What is looked for.
    pub fn wanted(&self) -> &Request {
        self.negotiation.as_ref().map_or(&self.record.request, Negotiation::wanted)
    }

    /// Its node has started again: no timer is set.
    pub fn restart(&mut self) {
        self.timer_at = None;
    }
}

/// Whether there is something final to tell the user.
fn is_settled(negotiation: &Negotiation) -> bool {
    matches!(negotiation.stage(), Stage::Stands(_) | Stage::Degraded { .. } | Stage::Closed { .. })
}

/// The name of the request with this number.
fn name_of(number: usize) -> RequestId {
    RequestId::new(&format!("r{number}")).expect("a letter and a number are a short text")
}

/// The number of the request with this name.
pub fn number_of(id: &RequestId) -> Option<usize> {
    id.as_str().strip_prefix('r')?.parse().ok()
}

/// A reservation that its user has been told of.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    request: usize,
}

impl World {
    /// A user asks.
    pub(super) fn submit(&mut self, number: usize) {
        self.plan_submission(number + 1);
        let Some(entry) = self.draw_entry_point(number) else {
            self.counts.no_entry_point += 1;
            return;
        };
        let drawn = &self.pool[number % self.pool.len()];
        let shift = broker::time::Span(u64::try_from(utc(self.now).0).unwrap_or(0));
        let request = shifted_request(drawn, shift);
        let id = name_of(self.carried.len());
        let settings = self.settings.negotiation.clone();
        let Ok(starts) = request.starts(utc(self.now), settings.planner.default_reach) else { return };
        let site = self.sites[entry].id.clone();
        let authorization = testing::authorize(1 + number as u64 % USERS, &site, &id, &request);
        let record =
            RequestRecord::arrived(id, format!("user {number}"), request, authorization, self.now / 1000, starts);
        let seed = mix(self.settings.seed, 0x7265_0000 + self.carried.len() as u64);
        let negotiation = Negotiation::new(site, settings, record.clone(), false, seed, self.clock());
        self.counts.requests += 1;
        self.carried.push(Carried {
            entry,
            submitted: self.now,
            negotiation: Some(negotiation),
            record: Box::new(record),
            search: None,
            planned: BTreeMap::new(),
            is_settled: false,
            free_at: self.now + self.settings.disk_us,
            timer_at: None,
        });
        self.perform_request(self.carried.len() - 1);
    }

    fn draw_entry_point(&mut self, number: usize) -> Option<usize> {
        let sites = self.sites.len();
        if let Pace::Rounds { .. } = self.settings.pace {
            return Some(self.rounds.entry_point(number));
        }
        let mut drawn = (0..ENTRY_POINT_DRAWS).map(|_| self.random.random_range(0..sites));
        drawn.find(|site| self.sites[*site].is_up())
    }

    /// Feeds a negotiation and lets its outputs out.
    pub(super) fn feed_request(&mut self, request: usize, event: negotiation::Event) {
        let now = self.clock();
        let Some(negotiation) = &mut self.carried[request].negotiation else { return };
        negotiation.handle(now, event, &mut ());
        self.perform_request(request);
    }

    pub(super) fn perform_request(&mut self, request: usize) {
        loop {
            let carried = &mut self.carried[request];
            let Some(output) = carried.negotiation.as_mut().and_then(Negotiation::poll_output) else { break };
            match output {
                Output::Persist(record) => {
                    carried.record = record;
                    carried.free_at = carried.free_at.max(self.now + self.settings.disk_us);
                }
                Output::Find { count, seed, exclude, .. } => self.search(request, count, seed, &exclude),
                Output::Ask { site, attempt, purpose, request: question, timeout } => {
                    let Some(to) = self.index.get(&site).copied() else { continue };
                    // A request that is being written down for the first time may be planned and held for already.
                    let waits = carried.record.last_attempt > 0;
                    let at = if waits { carried.free_at.max(self.now) } else { self.now };
                    let planned = carried.planned.get(&to).copied();
                    let asker = Asker::Negotiation { request, attempt, purpose, until: at + timeout.0 * 1000, planned };
                    let (from, bytes) = (carried.entry, costs::request_bytes(&question));
                    self.send(at, from, to, (Kind::Direct, bytes), Body::Ask { asker, request: question });
                }
            }
        }
        self.note_settled(request);
        self.arm_request(request);
    }

    fn arm_request(&mut self, request: usize) {
        let carried = &mut self.carried[request];
        let Some(Millis(due)) = carried.negotiation.as_ref().and_then(Negotiation::poll_timeout) else { return };
        let due = due.saturating_mul(1000).max(self.now + 1);
        if carried.timer_at.is_none_or(|planned| due < planned) {
            carried.timer_at = Some(due);
            self.at(due, Event::RequestTimer { request });
        }
    }

    pub(super) fn wake_request(&mut self, request: usize) {
        let now = self.clock();
        let carried = &mut self.carried[request];
        if carried.timer_at.is_none_or(|planned| planned > self.now) {
            return;
        }
        carried.timer_at = None;
        let Some(negotiation) = &mut carried.negotiation else { return };
        if negotiation.poll_timeout().is_some_and(|due| due <= now.monotonic) {
            negotiation.handle_timeout(now);
        }
        self.perform_request(request);
    }

    /// The first time that a request stands or is over, its user will be told.
    fn note_settled(&mut self, request: usize) {
        let carried = &mut self.carried[request];
        let Some(negotiation) = &carried.negotiation else { return };
        if is_settled(negotiation) && !carried.is_settled {
            carried.is_settled = true;
            let at = carried.free_at;
            self.at(at, Event::Settled { request });
        }
    }

    /// A user hears what came of the request.
    pub(super) fn tell_user(&mut self, request: usize) {
        let carried = &mut self.carried[request];
        let Some(negotiation) = &carried.negotiation else {
            // The node went down with the answer: whoever goes on with the request tells it.
            carried.is_settled = false;
            return;
        };
        if !is_settled(negotiation) {
            carried.is_settled = false;
            return;
        }
        let tries = negotiation.record().history.tries.len() as u64;
        self.counts.tries += tries;
        self.counts.conflicts += u64::from(negotiation.record().history.conflicts);
        match negotiation.stage() {
            Stage::Stands(allocation) => {
                let (allocation, entry) = (allocation.clone(), carried.entry);
                let took_us = self.now - carried.submitted;
                self.counts.reserved += 1;
                self.counts.first_try += u64::from(tries == 1);
                self.note_latency(entry, &allocation, took_us);
                self.keep(request);
            }
            Stage::Closed { outcome: Outcome::Rejected { .. }, .. } => self.counts.rejected += 1,
            _ => self.counts.failed += 1,
        }
        if let Pace::Rounds { .. } = self.settings.pace {
            self.settled_in_round(request);
        }
    }

    fn note_latency(&mut self, entry: usize, allocation: &Allocation, took_us: u64) {
        self.counts.latency_ms.push(took_us as f64 / 1000.0);
        let sites = allocation.grants.iter().filter_map(|grant| self.index.get(&grant.site).copied());
        let farthest_us = sites.filter(|site| *site != entry).map(|site| self.earth.round_trip_us(entry, site)).max();
        if let Some(farthest_us) = farthest_us.filter(|farthest_us| *farthest_us > 0) {
            self.counts.round_trips.push(took_us as f64 / farthest_us as f64);
        }
    }

    /// Reservations stand until there are too many of them.
    fn keep(&mut self, request: usize) {
        self.standing.push_back(Standing { request });
        if matches!(self.settings.pace, Pace::Open { .. })
            && self.standing.len() > self.settings.standing_max
            && let Some(Standing { request }) = self.standing.pop_front()
        {
            self.at(self.now, Event::Cancel { request });
        }
    }

    pub(super) fn cancel(&mut self, request: usize) {
        if self.carried[request].negotiation.is_some() {
            self.counts.cancelled += 1;
            self.feed_request(request, negotiation::Event::Cancel);
        }
    }

    /// An answer has reached the node that asked.
    pub(super) fn arrive_answer(&mut self, site: usize, node: usize, asker: Asker, answer: SiteAnswer) {
        let id = self.sites[site].id.clone();
        match asker {
            Asker::Negotiation { request, attempt, purpose, .. } => {
                self.sites[node].silent.remove(&site);
                self.note_version(node, site, request, &answer);
                self.feed_request(
                    request,
                    negotiation::Event::Answer { site: id, attempt, purpose, answer: Ok(answer) },
                );
            }
            Asker::Participant { request, attempt, .. } => self.hear_status(node, id, (request, attempt), &answer),
        }
    }

    /// Direct answers tell how far the site's ledger is: its schedules are confirmed, or a change was missed.
    fn note_version(&mut self, node: usize, site: usize, request: usize, answer: &SiteAnswer) {
        let Some(version) = answer.version() else { return };
        if node == site || !self.knows(node, site) {
            return;
        }
        if self.carried[request].planned.get(&site) == Some(&version) {
            let touch = Touch { at: self.now, as_of: self.now - self.earth.one_way_us(node, site).min(self.now) };
            self.sites[node].touched.insert(site, touch);
        } else if self.sites[node].wanted.insert(site) {
            let waits_us = self.missed_wait_us(mix(self.now, site as u64));
            let run = self.sites[node].run;
            self.at(self.now + waits_us, Event::Repair { node, run, site });
        }
    }

    /// A question will get no answer.
    pub(super) fn expect_silence(&mut self, asker: Asker, site: usize) {
        if let Asker::Negotiation { until, .. } = asker {
            self.at(until, Event::Unanswered { asker, site });
        }
    }

    pub(super) fn hear_silence(&mut self, asker: Asker, site: usize) {
        let Asker::Negotiation { request, attempt, purpose, .. } = asker else { return };
        let until = self.now + SILENCE_REMEMBERED.0 * 1000;
        let node = self.carried[request].entry;
        self.sites[node].silent.insert(site, until);
        let site = self.sites[site].id.clone();
        let answer = Err("no answer in time".to_owned());
        self.feed_request(request, negotiation::Event::Answer { site, attempt, purpose, answer });
    }

    /// Counts how a hold fared, by how old the schedules were that it was planned on.
    pub(super) fn note_hold(&mut self, site: usize, asker: Asker, answer: &SiteAnswer) {
        let Asker::Negotiation { purpose: Purpose::Hold, planned: Some(version), .. } = asker else { return };
        let lag_ms = self.sites[site].went_beyond(version).map(|at| (self.now - at.min(self.now)) / 1000);
        let (is_taken, by_hold) = match answer {
            SiteAnswer::Refused(refusal) => match refusal.reason {
                RefusalReason::NotEnough { .. } => (true, false),
                RefusalReason::HeldByAnother { .. } => (true, true),
                _ => return,
            },
            _ => (false, false),
        };
        self.counts.note_hold(lag_ms, is_taken, by_hold);
    }
}
