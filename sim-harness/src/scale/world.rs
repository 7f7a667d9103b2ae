//! The simulated grid: one queue of events in virtual time, everything in it drawn from one seed.
//!
//! The core of the product runs here as it is: a real ledger for each site, a real negotiation with its planner for each
//! request, real views for what a coordinator plans on. The network, the disk and libp2p are models.
//! Invariant: the same settings give the same run, event for event; no clock is read.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use broker::{
    ids::SiteId,
    protocol::{LedgerVersion, ScheduleSnapshot, SiteAnswer, SiteRequest},
    request::Request,
    time::{Now, Time},
};
use rand::RngExt;
use rand_distr::{Distribution, Exp};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    chance::{drawn, pair},
    counts::Counts,
    geography::Geography,
    requests::Submitted,
    rounds::{Change, Rounds},
    settings::{BEGIN, HOUR, Pace, Settings},
    site::{Asker, Site},
    topic::{EPOCH, Topic},
    traffic::{Kind, Traffic},
};
use crate::engine::{EventQueue, Medium, Moment};

/// The content of a message between two nodes.
#[derive(Debug)]
pub enum Body {
    /// A question of a coordinator or of another participant.
    Ask { asker: Asker, request: SiteRequest },
    /// Its answer.
    Answer { asker: Asker, answer: SiteAnswer },
    /// The question for all schedules, unless they are still those of the version that is known.
    Fetch { wish: Wish, known: Option<LedgerVersion> },
    /// All schedules, as they were at a moment.
    Schedules { wish: Wish, as_of: Moment, snapshot: Box<ScheduleSnapshot> },
}

/// Why schedules are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// A request is to be planned on them; a search has a name.
    Search { request: usize, search: u64 },
    /// A change was missed.
    Repair,
}

/// One message on its way: from a run of a node to a node.
#[derive(Debug)]
pub struct Message {
    from: (usize, u64),
    to: usize,
    bytes: u64,
    kind: Kind,
    body: Body,
}

/// Something that is going to happen.
#[derive(Debug)]
pub enum Event {
    /// A message arrives.
    Arrival(Box<Message>),
    /// The time for an answer is over.
    Unanswered { asker: Asker, site: usize },
    /// A node's timer.
    Wake { site: usize, run: u64 },
    /// A site may publish its changes.
    Publish { site: usize, run: u64 },
    /// A change was missed: its site is asked.
    Repair { node: usize, run: u64, site: usize },
    /// The time for a round of a search is over.
    SearchOver { request: usize, search: u64 },
    /// A user submits a request.
    Submit { number: usize },
    /// The outcome of a request is on disk, and reported to its user.
    Settled { request: usize },
    /// From time to time: has this change been published?
    Look { change: Change },
    /// A user cancels a reservation.
    Cancel { request: usize },
    /// A node stops.
    Stop,
    /// A node starts again.
    Start { site: usize },
    /// Meshes are drawn anew, and what went through the old ones is counted.
    Epoch,
}

/// See the module's documentation.
pub struct World {
    pub(super) settings: Settings,
    pub(super) random: Xoshiro256PlusPlus,
    queue: EventQueue<Event>,
    last_name: u64,
    pub(super) sites: Vec<Site>,
    pub(super) index: BTreeMap<SiteId, usize>,
    /// All hosts by shard: site, and position among its hosts.
    pub(super) hosts_by_shard: Vec<Vec<(usize, usize)>>,
    pub(super) earth: Geography,
    pub(super) topics: Vec<Topic>,
    pub(super) pool: Vec<Request>,
    pub(super) requests: Vec<Submitted>,
    /// Requests whose reservations are not cancelled, oldest first.
    pub(super) reserved: VecDeque<usize>,
    pub(super) rounds: Rounds,
    pub(super) traffic: Traffic,
    /// Until when regular traffic has been counted.
    pub(super) counted_until: Moment,
    pub(super) counts: Counts,
}

impl World {
    /// A grid whose nodes all run and know each other. Requests are drawn from `pool`, again and again.
    pub fn new(settings: Settings, sites: Vec<Site>, pool: Vec<Request>) -> World {
        let index = sites.iter().enumerate().map(|(position, site)| (site.id.clone(), position)).collect();
        let mut hosts_by_shard = vec![Vec::new(); settings.shards];
        for (position, site) in sites.iter().enumerate() {
            hosts_by_shard[site.shard].extend((0..site.hosts.len()).map(|host| (position, host)));
        }
        let mut world = World {
            random: Xoshiro256PlusPlus::seed_from_u64(settings.seed),
            queue: EventQueue::new(BEGIN),
            last_name: 0,
            index,
            hosts_by_shard,
            earth: Geography::new(settings.network, settings.seed, sites.len(), settings.loss_ppm),
            topics: Topic::all(&sites, settings.shards),
            pool,
            requests: Vec::new(),
            reserved: VecDeque::new(),
            rounds: Rounds::default(),
            traffic: Traffic::new(sites.len()),
            counted_until: BEGIN,
            counts: Counts::default(),
            sites,
            settings,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.draw_meshes();
        self.at(BEGIN + EPOCH, Event::Epoch);
        match self.settings.pace {
            Pace::Open { .. } => self.plan_submission(0),
            Pace::Rounds { at_once, requests } => {
                self.rounds = Rounds::new(requests, at_once, self.sites.len(), self.settings.seed);
                self.begin_round(BEGIN + Duration::from_secs(1));
            }
        }
        self.plan_stop();
    }

    /// Lets everything happen; now and then calls `at` with the thousandths of virtual time that have passed.
    pub fn run(&mut self, mut at: impl FnMut(u64)) {
        let mut reported = 0;
        while let Some(event) = self.queue.next_until(BEGIN + self.settings.duration) {
            self.counts.totals.events += 1;
            self.happen(event);
            let passed = (self.now() - BEGIN).as_secs_f64() / self.settings.duration.as_secs_f64();
            let thousandths = (passed * 1000.0) as u64;
            if thousandths > reported {
                reported = thousandths;
                at(thousandths);
            }
            if matches!(self.settings.pace, Pace::Rounds { .. }) && self.rounds.is_over() {
                break;
            }
        }
        self.count_epoch();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(message) => self.arrive(*message),
            Event::Unanswered { asker, site } => self.give_up(&asker, site),
            Event::Wake { site, run } if self.sites[site].run == run => self.wake(site),
            Event::Publish { site, run } if self.sites[site].run == run => self.publish_changes(site),
            Event::Repair { node, run, site } if self.sites[node].run == run => self.repair(node, site),
            Event::Wake { .. } | Event::Publish { .. } | Event::Repair { .. } => {}
            Event::SearchOver { request, search } => self.end_search_round(request, search),
            Event::Submit { number } => self.submit(number),
            Event::Settled { request } => self.report_to_user(request),
            Event::Look { change } => self.look_for(change),
            Event::Cancel { request } => self.cancel(request),
            Event::Stop => self.stop_some_site(),
            Event::Start { site } => self.start(site),
            Event::Epoch => {
                self.count_epoch();
                self.draw_meshes();
                self.after(EPOCH, Event::Epoch);
            }
        }
    }

    /// Plans an event.
    pub(super) fn at(&mut self, at: Moment, event: Event) {
        self.queue.plan(at, event);
    }

    /// Plans an event for some time from now.
    pub(super) fn after(&mut self, length: Duration, event: Event) {
        self.at(self.now() + length, event);
    }

    /// Virtual time.
    pub(super) fn now(&self) -> Moment {
        self.queue.now()
    }

    /// What all clocks show; nobody's is wrong here.
    pub(super) fn clocks(&self) -> Now {
        clocks(self.now())
    }

    /// A name that nothing else has.
    pub(super) fn name(&mut self) -> u64 {
        self.last_name += 1;
        self.last_name
    }

    /// The gap to the next of events that come by chance, so many in an hour.
    pub(super) fn gap(&mut self, per_hour: f64) -> Option<Duration> {
        let gap_h: f64 = Exp::new(per_hour).ok().filter(|_| per_hour > 0.0)?.sample(&mut self.random);
        Some(HOUR.mul_f64(gap_h))
    }

    /// The next request of an open load.
    pub(super) fn plan_submission(&mut self, number: usize) {
        let Pace::Open { per_second } = self.settings.pace else { return };
        if let Some(gap) = self.gap(per_second * HOUR.as_secs_f64()) {
            self.after(gap, Event::Submit { number });
        }
    }

    /// Sends a message that leaves at `at`. A node's message to itself needs no network.
    pub(super) fn send(&mut self, at: Moment, from: usize, to: usize, (kind, bytes): (Kind, u64), body: Body) {
        let mut arrives = at.max(self.now());
        if from != to {
            let name = self.name();
            let passage = self.earth.passage(from, to, name);
            arrives = arrives + passage.delay;
            if matches!(body, Body::Ask { .. } | Body::Fetch { .. }) {
                arrives = arrives + self.preparation(from, to);
            }
            if passage.losses > 0 {
                self.traffic.loses(kind, from, bytes * u64::from(passage.losses));
            }
        }
        let message = Message { from: (from, self.sites[from].run), to, bytes, kind, body };
        self.at(arrives, Event::Arrival(Box::new(message)));
    }

    /// What passes before a request leaves: a new stream is agreed on, on a new connection if there is none.
    fn preparation(&mut self, from: usize, to: usize) -> Duration {
        let now = self.now();
        let last = self.sites[from].contacted.insert(to, now);
        let was_contacted = last.is_some_and(|at| at + self.settings.intervals.idle_connection > now);
        self.sites[to].contacted.insert(from, now);
        let chance = drawn([self.settings.seed, NEIGHBOURS, pair(from.min(to), from.max(to))]);
        let is_neighbour = chance % (self.sites.len() as u64) < self.settings.limits.connections_kept as u64;
        let dials = if was_contacted || is_neighbour { 0 } else { super::costs::DIAL_ROUND_TRIPS };
        self.earth.round_trip(from, to) * (super::costs::STREAM_ROUND_TRIPS + dials) as u32
    }

    fn arrive(&mut self, message: Message) {
        let Message { from: (from, run), to, bytes, kind, body } = message;
        let is_sent = self.sites[from].run == run;
        if !is_sent || !self.sites[to].is_up() {
            if from != to {
                self.traffic.loses(kind, from, bytes);
            }
            let (asker, site) = match body {
                Body::Ask { asker, .. } => (asker, to),
                Body::Answer { asker, .. } => (asker, from),
                Body::Fetch { .. } | Body::Schedules { .. } => return,
            };
            if let Asker::Coordinator { until, .. } = asker {
                self.at(until, Event::Unanswered { asker, site });
            }
            return;
        }
        if from != to {
            self.traffic.passes(kind, (from, to), bytes, 0);
        }
        match body {
            Body::Ask { asker, request } => self.arrive_question(to, from, asker, request),
            Body::Answer { asker, answer } => self.arrive_answer(from, to, asker, answer),
            Body::Fetch { wish, known } => self.answer_fetch(to, from, wish, known),
            Body::Schedules { wish, as_of, snapshot } => self.arrive_schedules(to, from, wish, as_of, &snapshot),
        }
    }

    /// A site that runs, by chance; none when several draws find none.
    pub(super) fn draw_running_site(&mut self) -> Option<usize> {
        let sites = self.sites.len();
        let mut drawn = (0..DRAWS_MAX).map(|_| self.random.random_range(0..sites));
        drawn.find(|site| self.sites[*site].is_up())
    }
}

/// Names the draws of connections that are kept.
const NEIGHBOURS: u64 = 0x6e65;
/// Draws of a site until one runs.
const DRAWS_MAX: u32 = 20;

/// What clocks show that are right.
pub fn clocks(at: Moment) -> Now {
    Now { monotonic: at.millis(), utc: Time(at.second()) }
}
