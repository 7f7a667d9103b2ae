//! One simulated node: its disk, its clocks, and (while it runs) the real ledger, negotiations and views.
//!
//! Invariant: a crash loses all of [`Running`], and nothing of [`Disk`].

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use broker::{
    amount::Amount,
    demand::Demand,
    host::Host,
    ids::{HostId, RequestId, SeatNumber, SiteId},
    ledger::{BookingRecord, LedgerLimits},
    negotiation::{Excluded, Found, NegotiationSettings, Outcome, Purpose, RequestRecord, Stage},
    offered::Offered,
    protocol::{AttemptId, Grant},
    schedule::Schedule,
    time::{Now, Span, Time, Window},
    trust::{Authorization, Chain, SharedGate, SignedText},
    uplinks::unit_of,
};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    canary::Canary,
    choice::one_of,
    clock::{self, Clock},
    credentials,
    lookup::Lookup,
    message::{Body, Question},
    mutations,
    names::{self, amounts},
    options::{DISK_MS_MAX, Options},
    room::Room,
    views::Views,
};
use crate::engine::{Actor, Disk, Machines, Moment, Receipts, Setup, Write};

const CORES: [u64; 4] = [1000, 2000, 4000, 8000];

/// The sender of a question to the ledger, which gets the answer.
#[derive(Debug)]
pub struct Asker {
    pub from: usize,
    pub ask: u64,
    pub question: Question,
    /// The message that brought the question.
    pub message: u64,
    pub is_confirm: bool,
    /// The request that it wants to take over, and the authorization that it showed.
    pub takes_over: Option<(RequestId, Arc<Authorization>)>,
}

/// A question of a negotiation that has no answer yet.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub request: RequestId,
    pub site: SiteId,
    pub attempt: u32,
    pub purpose: Purpose,
}

/// What a node has in memory.
#[derive(Debug)]
pub struct Running {
    pub machines: Machines<Asker>,
    /// What its ledger lets through.
    pub gate: SharedGate,
    pub views: Views,
    /// Answers that wait until what is being written of a request is on disk, with their receivers.
    pub held_back: Vec<(RequestId, usize, Body)>,
    /// Records that participants are answered from before they are on disk, for the fault of doing so.
    pub answered_early: BTreeMap<RequestId, Box<RequestRecord>>,
    /// Questions that wait for an answer.
    pub waiting: BTreeMap<u64, Waiting>,
    /// Writes under way, oldest first.
    pub writes: BTreeMap<u64, (Actor, Write)>,
    /// Messages that the ledger has granted.
    pub granted: BTreeSet<u64>,
    /// Releases sent, for the fault of not repeating them.
    pub released: BTreeSet<(RequestId, u32, SiteId)>,
    /// Bookings that the owner has taken back, and when they would have ended.
    pub evicted: BTreeMap<AttemptId, Time>,
    /// Look-ups for users who want the node to take a request over.
    pub lookups: BTreeMap<RequestId, Lookup>,
    /// When this run began.
    pub started: Moment,
    /// When sites last answered in time what they still have of a request, and when before that.
    pub inspected: BTreeMap<(RequestId, usize), (Moment, Moment)>,
}

impl Running {
    /// A node that has just started, with nothing but its state machines.
    fn new(machines: Machines<Asker>, gate: SharedGate, started: Moment) -> Running {
        Running {
            machines,
            gate,
            views: Views::default(),
            held_back: Vec::new(),
            answered_early: BTreeMap::new(),
            waiting: BTreeMap::new(),
            writes: BTreeMap::new(),
            granted: BTreeSet::new(),
            released: BTreeSet::new(),
            evicted: BTreeMap::new(),
            lookups: BTreeMap::new(),
            started,
            inspected: BTreeMap::new(),
        }
    }

    /// The hosts that could serve a request as far as the node knows, and the sites whose schedules it lacks. While it promises nothing
    /// more its own are not among them.
    pub fn find(&self, wanted: &Demand, exclude: &Excluded, now: Now) -> (Found, Vec<usize>) {
        let ledger = &self.machines.ledger;
        if !self.gate.lock().is_draining() {
            return self.views.find(ledger, wanted, exclude, now);
        }
        let mut exclude = exclude.clone();
        exclude.sites.insert(ledger.site().clone());
        self.views.find(ledger, wanted, &exclude, now)
    }

    /// The authorization by which the node coordinates a request, if it is later than this one.
    pub fn later_authorization(&self, authorization: &Authorization, request: &RequestId) -> Option<Arc<SignedText>> {
        self.machines.negotiations.get(request)?.record().later_authorization(authorization)
    }

    /// Whether writes of this state machine are under way.
    pub fn is_writing(&self, actor: &Actor) -> bool {
        self.writes.values().any(|(whose, _)| whose == actor)
    }

    /// Whether the node is about to coordinate a request: it asks sites what they have of it, or writes that down.
    pub fn is_arriving(&self, request: &RequestId) -> bool {
        self.lookups.contains_key(request)
            || !self.machines.negotiations.contains_key(request) && self.is_writing(&Actor::Request(request.clone()))
    }

    /// Whether the node coordinates a request, or is about to.
    pub fn coordinates(&self, request: &RequestId) -> bool {
        self.machines.negotiations.contains_key(request) || self.is_arriving(request)
    }
}

/// Whether a node runs.
#[derive(Debug)]
pub enum State {
    /// Not yet part of the grid.
    Absent,
    /// Running.
    Up(Box<Running>),
    /// Not running, to be started again.
    Down,
    /// Not running, never to be started again.
    Gone,
}

/// One node of the grid.
#[derive(Debug)]
pub struct Node {
    pub site: SiteId,
    pub clock: Clock,
    /// Its hosts with the owner's own work.
    pub hosts: Vec<(Host, Schedule)>,
    /// The same before the owner took any away.
    pub hosts_at_first: Vec<(Host, Schedule)>,
    /// The class that all of them are of, if any.
    pub class: Option<HostId>,
    /// What its uplink carries, in Mbit/s; none without a limit.
    pub uplink: Option<Amount>,
    /// The same before the owner took any away.
    pub uplink_at_first: Option<Amount>,
    /// At its next start it has less to offer.
    pub is_to_shrink: bool,
    /// On its disk: its owner empties the site.
    pub is_draining: bool,
    /// In its configuration: the rules of its owner, once they have changed.
    pub offered: Option<Offered>,
    /// What had begun when it started with less to offer than at first: that stays, whatever there is.
    pub begun: BTreeSet<AttemptId>,
    /// What its ledger has dropped at its last start, since the hosts are not there any more.
    pub dropped: BTreeSet<(AttemptId, SeatNumber)>,
    /// Its membership, when the grid is closed.
    pub credentials: Option<Chain>,
    pub disk: Disk,
    /// What its disk has room for.
    pub room: Room,
    pub state: State,
    /// Counts starts and stops: what was planned for an earlier run does not happen.
    pub run: u64,
    /// Its longest write.
    pub disk_ms_max: u64,
    /// Everything takes this much longer at the moment.
    pub slow_ms: u64,
}

impl Node {
    /// Draws a node that has not started.
    pub fn draw(index: usize, random: &mut Xoshiro256PlusPlus, options: &Options) -> Node {
        let clock = Clock::draw(random, options);
        let hosts = draw_hosts(random, options);
        Node {
            site: names::site(index),
            clock,
            hosts_at_first: hosts.clone(),
            hosts,
            class: None,
            uplink: None,
            uplink_at_first: None,
            is_to_shrink: false,
            is_draining: false,
            offered: None,
            begun: BTreeSet::new(),
            dropped: BTreeSet::new(),
            credentials: credentials::of_site(options, index),
            disk: Disk::default(),
            room: Room::default(),
            state: State::Absent,
            run: 0,
            disk_ms_max: one_of(random, &DISK_MS_MAX),
            slow_ms: 0,
        }
    }

    /// What is in memory, if it runs.
    pub fn running(&self) -> Option<&Running> {
        if let State::Up(running) = &self.state { Some(running) } else { None }
    }

    /// What is in memory, if it runs.
    pub fn running_mut(&mut self) -> Option<&mut Running> {
        if let State::Up(running) = &mut self.state { Some(running) } else { None }
    }

    /// What it has promised: in memory, on disk or on the way to it. What it has just taken back in memory is there again when it
    /// crashes before that is on disk.
    pub fn promised(&self) -> BTreeMap<AttemptId, Vec<Grant>> {
        let ledger = || self.running().into_iter().map(|running| &running.machines.ledger);
        let in_memory = ledger().flat_map(|ledger| ledger.bookings());
        let in_memory = in_memory.map(|booking| (&booking.attempt, &booking.grants));
        let begun = self.running().into_iter().flat_map(|running| running.writes.values());
        let begun = begun.filter_map(|(_, write)| match write {
            Write::Ledger(record) => Some(record.as_ref()),
            _ => None,
        });
        let on_the_way = begun.chain(ledger().flat_map(|ledger| ledger.waiting_records()));
        let on_the_way = on_the_way.flat_map(|record| record.put()).chain(self.disk.reservations.values());
        let written = on_the_way.map(|record| (&record.attempt, &record.grants));
        let mut promised = BTreeMap::<_, Vec<_>>::new();
        for (attempt, grants) in in_memory.chain(written) {
            promised.entry(attempt.clone()).or_default().extend(grants.iter().cloned());
        }
        promised
    }

    /// Whether it is gone for good.
    pub fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone)
    }

    /// Its owner has taken nothing away.
    pub fn is_whole(&self) -> bool {
        (&self.hosts, self.uplink) == (&self.hosts_at_first, self.uplink_at_first)
    }

    /// It starts with what its disk remembers. Returns the reservations that have no room any more.
    pub fn start(
        &mut self,
        now: Moment,
        (gate, mut limits, negotiation): (SharedGate, LedgerLimits, NegotiationSettings),
        seed: u64,
        canary: Option<Canary>,
    ) -> Vec<BookingRecord> {
        self.run += 1;
        self.disk.incarnation += 1;
        self.clock.believes_all = canary == Some(Canary::ClockBelieved);
        self.clock.restart(now, self.run.is_multiple_of(4));
        let clocks = self.clock.now(now);
        let has_begun = |reservation: &&BookingRecord| reservation.window.start <= clocks.utc;
        let begun = self.disk.reservations.values().filter(|_| !self.is_whole()).filter(has_begun);
        self.begun = begun.map(|reservation| reservation.attempt.clone()).collect();
        let mut kept = self.disk.kept();
        match canary {
            Some(Canary::OwnJobsForgotten) => kept.queue.clear(),
            Some(Canary::ForgetReservations) => kept.bookings.clear(),
            // Bound anew when it begins, not before.
            Some(Canary::BoundMoved) if !kept.bookings.is_empty() => {
                mutations::unbind(&mut kept.bookings);
                limits.bound_before = Span(0);
            }
            Some(Canary::BudgetPerAttempt) => self.disk.requests.values_mut().for_each(|record| record.dues.clear()),
            Some(Canary::ForgetCoordinator) => kept.bookings.iter_mut().for_each(|one| one.coordinator = None),
            _ => {}
        }
        let book_fault = canary.and_then(Canary::of_books);
        let (site, mut hosts) = (self.site.clone(), self.hosts.clone());
        hosts.extend(self.uplink.map(|mbps| (unit_of(mbps), Schedule::default())));
        let key = names::index_of(&site).map(|index| Arc::new(names::signing_key(index)));
        let receipts = key.map(|key| Receipts { key, key_of: names::key_of });
        let class = self.class.clone();
        let setup = Setup { site, hosts, class, gate: gate.clone(), limits, negotiation, receipts, book_fault };
        let is_resumed = canary != Some(Canary::ReuseAttemptNumbers);
        let seed_of = |place| seed.wrapping_add(place);
        let (machines, misfits) = Machines::open(setup, &self.disk, kept, is_resumed, seed_of, clocks);
        self.state = State::Up(Box::new(Running::new(machines, gate, now)));
        misfits
    }

    /// It runs no longer; what was in memory, if it ran.
    pub fn stop(&mut self) -> Option<Running> {
        match mem::replace(&mut self.state, State::Down) {
            State::Up(running) => {
                self.run += 1;
                Some(*running)
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Whether it runs, and could take a request over: it does not coordinate it.
    pub fn can_take_over(&self, id: &RequestId) -> bool {
        let Some(running) = self.running() else { return false };
        let is_free = running.machines.negotiations.get(id).is_none_or(|negotiation| {
            let stage = negotiation.stage();
            matches!(stage, Stage::Closed { outcome: Outcome::HandedOver, releasing: false })
        });
        is_free && !running.lookups.contains_key(id) && !running.is_writing(&Actor::Request(id.clone()))
    }

    /// Whether such a grant of a request is on its disk, and it does not mean to drop it.
    pub fn has_on_disk(&self, request: &RequestId, is_it: impl Fn(&BookingRecord, &Grant) -> bool) -> bool {
        self.reservations_of(request).any(|reservation| {
            let mut grants = reservation.grants.iter();
            grants.any(|grant| {
                is_it(reservation, grant) && !self.dropped.contains(&(reservation.attempt.clone(), grant.seat))
            })
        })
    }

    /// The reservations of a request on its disk.
    pub fn reservations_of(&self, request: &RequestId) -> impl Iterator<Item = &BookingRecord> {
        self.disk.reservations.values().filter(move |reservation| reservation.attempt.request == *request)
    }
}

/// Draws the hosts of a site and the owner's own work on them.
fn draw_hosts(random: &mut Xoshiro256PlusPlus, options: &Options) -> Vec<(Host, Schedule)> {
    let count = random.random_range(1..=options.hosts_max);
    let draw = |index| {
        let cores = one_of(random, &CORES);
        let mut own = Schedule::default();
        if random.random_range(0..3) == 0 {
            let start = Time(clock::true_utc(Moment::default()).0 + random.random_range(0..4_000));
            own.add(Window::starting(start, Span(random.random_range(60..3_000))), &amounts(cores / 2, cores));
        }
        let (id, capacity) = (names::host(index), amounts(cores, cores * 2));
        (
            Host {
                id,
                capacity,
                attributes: BTreeMap::new(),
                speed: broker::host::Speed::REFERENCE,
                tariff: Default::default(),
            },
            own,
        )
    };
    (0..count).map(draw).collect()
}
