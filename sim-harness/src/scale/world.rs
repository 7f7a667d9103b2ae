//! The simulated grid: one queue of events in virtual time, everything in it drawn from one seed.
//!
//! The core of the product runs here as it is: a real ledger for each site, a real negotiation with its planner for each
//! request, real views for what an entry point plans on. The network, the disk and libp2p are models.
//! Invariant: the same settings give the same run, event for event; no clock is read.

use std::collections::{BTreeMap, VecDeque};

use broker::{
    ids::SiteId,
    protocol::{LedgerVersion, ScheduleSnapshot, SiteAnswer, SiteRequest},
    request::Request,
    time::{Millis, Now, Time},
};
use discovery::costs::DhtShape;
use rand::RngExt;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    counts::Counts,
    entry::{Carried, Standing},
    geography::{Geography, mix},
    gossip::Topic,
    kademlia::{self, Lookup},
    rounds::{Change, Rounds},
    settings::{BEGIN_US, Pace, SECOND_US, Settings},
    site::{Asker, Site},
    traffic::{Kind, Traffic},
};
use crate::engine::{EventQueue, Moment};

/// How long a mesh is taken to stay as it is, and one spread to stand for the messages of a topic.
pub const EPOCH_US: u64 = 60 * SECOND_US;

/// What a message between two nodes says.
#[derive(Debug)]
pub enum Body {
    /// A question of a negotiation or of another participant.
    Ask {
        /// Where the answer goes.
        asker: Asker,
        /// The question.
        request: SiteRequest,
    },
    /// Its answer.
    Answer {
        /// Where it goes.
        asker: Asker,
        /// The answer.
        answer: SiteAnswer,
    },
    /// The question for all schedules.
    Fetch {
        /// What waits for them.
        wish: Wish,
        /// The version that is known already.
        known: Option<LedgerVersion>,
    },
    /// All schedules, as they were at a moment.
    Schedules {
        /// What waited for them.
        wish: Wish,
        /// The moment.
        as_of: u64,
        /// What they were.
        snapshot: Box<ScheduleSnapshot>,
    },
}

/// Why schedules are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// A request is to be planned on them: its number and that of its search.
    Search {
        /// The request.
        request: usize,
        /// The search.
        search: u64,
    },
    /// A change was missed.
    Repair,
}

/// One message on its way.
#[derive(Debug)]
pub struct Message {
    /// The sender, and its run.
    pub from: (usize, u64),
    /// The receiver.
    pub to: usize,
    /// Its size.
    pub bytes: u64,
    /// What it is for.
    pub kind: Kind,
    /// What it says.
    pub body: Body,
}

/// Something that is going to happen.
#[derive(Debug)]
pub enum Event {
    /// A message arrives.
    Arrival(Box<Message>),
    /// A question has got no answer in time.
    Unanswered { asker: Asker, site: usize },
    /// A negotiation's timer.
    RequestTimer { request: usize },
    /// A ledger's timer.
    SiteTimer { site: usize, run: u64 },
    /// A site may tell its changes.
    Tell { site: usize, run: u64 },
    /// A change was missed: the site is asked.
    Repair { node: usize, run: u64, site: usize },
    /// A search has waited long enough.
    SearchOver { request: usize, search: u64 },
    /// A user asks.
    Submit { number: usize },
    /// A request is settled, and its user told.
    Settled { request: usize },
    /// Whether a change has been told is looked at.
    Look { change: Change },
    /// A user takes a reservation back.
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
    pub(super) now: u64,
    queue: EventQueue<Event>,
    last_name: u64,
    pub(super) sites: Vec<Site>,
    pub(super) index: BTreeMap<SiteId, usize>,
    /// All hosts by shard: site, and position among its hosts.
    pub(super) hosts_by_shard: Vec<Vec<(usize, usize)>>,
    pub(super) earth: Geography,
    pub(super) topics: Vec<Topic>,
    pub(super) dht: (DhtShape, Lookup),
    pub(super) pool: Vec<Request>,
    pub(super) carried: Vec<Carried>,
    pub(super) standing: VecDeque<Standing>,
    pub(super) rounds: Rounds,
    pub(super) traffic: Traffic,
    /// Until when regular traffic has been counted.
    pub(super) counted_until: u64,
    pub(super) counts: Counts,
}

impl World {
    /// A grid whose nodes all run and know each other. Requests are drawn from `pool`, again and again.
    pub fn new(settings: Settings, sites: Vec<Site>, pool: Vec<Request>) -> World {
        let count = sites.len();
        let index = sites.iter().enumerate().map(|(position, site)| (site.id.clone(), position)).collect();
        let mut hosts_by_shard = vec![Vec::new(); settings.shards];
        for (position, site) in sites.iter().enumerate() {
            hosts_by_shard[site.shard].extend((0..site.hosts.len()).map(|host| (position, host)));
        }
        let shape = discovery::costs::dht_shape();
        let mut world = World {
            random: Xoshiro256PlusPlus::seed_from_u64(mix(settings.seed, 1)),
            now: BEGIN_US,
            queue: EventQueue::new(Moment::of_us(BEGIN_US)),
            last_name: 0,
            index,
            hosts_by_shard,
            earth: Geography::new(settings.network, settings.seed, count, settings.loss_ppm),
            topics: Topic::all(&sites, settings.shards),
            dht: (shape, kademlia::measure(count, shape, settings.seed)),
            pool,
            carried: Vec::new(),
            standing: VecDeque::new(),
            rounds: Rounds::default(),
            traffic: Traffic::new(count),
            counted_until: BEGIN_US,
            counts: Counts::default(),
            sites,
            settings,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.draw_meshes();
        self.at(self.now + EPOCH_US, Event::Epoch);
        match self.settings.pace {
            Pace::Open { .. } => self.plan_submission(0),
            Pace::Rounds { at_once, requests } => {
                self.rounds = Rounds::new(requests, at_once, self.sites.len(), self.settings.seed);
                self.begin_round(self.now + SECOND_US);
            }
        }
        self.plan_stop();
    }

    /// The end of the run, as far as it is known.
    fn end(&self) -> u64 {
        BEGIN_US + self.settings.duration_us
    }

    /// Lets everything happen; `at` hears now and then how much of the virtual time, in thousandths, has passed.
    pub fn run(&mut self, mut at: impl FnMut(u64)) {
        let mut told = 0;
        let end = Moment::of_us(self.end());
        while let Some(event) = self.queue.next_until(end) {
            self.now = self.queue.now().us();
            self.counts.events += 1;
            self.happen(event);
            let passed = (self.now - BEGIN_US) * 1000 / self.settings.duration_us;
            if passed > told {
                told = passed;
                at(passed);
            }
            if self.is_done() {
                return self.count_epoch();
            }
        }
        self.now = self.end();
        self.count_epoch();
    }

    /// Rounds end when all requests are settled.
    fn is_done(&self) -> bool {
        match self.settings.pace {
            Pace::Open { .. } => false,
            Pace::Rounds { .. } => self.rounds.is_over(),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(message) => self.arrive(*message),
            Event::Unanswered { asker, site } => self.hear_silence(asker, site),
            Event::RequestTimer { request } => self.wake_request(request),
            Event::SiteTimer { site, run } if self.sites[site].run == run => self.wake_ledger(site),
            Event::Tell { site, run } if self.sites[site].run == run => self.tell(site),
            Event::Repair { node, run, site } if self.sites[node].run == run => self.repair(node, site),
            Event::SiteTimer { .. } | Event::Tell { .. } | Event::Repair { .. } => {}
            Event::SearchOver { request, search } => self.end_search_round(request, search),
            Event::Submit { number } => self.submit(number),
            Event::Settled { request } => self.tell_user(request),
            Event::Look { change } => self.look_for(change),
            Event::Cancel { request } => self.cancel(request),
            Event::Stop => self.stop_some_site(),
            Event::Start { site } => self.start(site),
            Event::Epoch => {
                self.count_epoch();
                self.draw_meshes();
                self.at(self.now + EPOCH_US, Event::Epoch);
            }
        }
    }

    /// Plans an event.
    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.queue.plan(Moment::of_us(time), event);
    }

    /// A name that nothing else has.
    pub(super) fn name(&mut self) -> u64 {
        self.last_name += 1;
        self.last_name
    }

    /// What all clocks show; nobody's is wrong here.
    pub(super) fn clock(&self) -> Now {
        Now { monotonic: millis(self.now), utc: utc(self.now) }
    }

    /// Sends a message that leaves at `at`. What a node says to itself needs no network.
    pub(super) fn send(&mut self, at: u64, from: usize, to: usize, (kind, bytes): (Kind, u64), body: Body) {
        let mut arrives = at.max(self.now);
        if from != to {
            let name = self.name();
            let passage = self.earth.passage(from, to, name);
            arrives += passage.delay_us;
            if matches!(body, Body::Ask { .. } | Body::Fetch { .. }) {
                arrives += self.preparation_us(from, to);
            }
            if passage.losses > 0 {
                self.traffic.loses(kind, from, bytes * u64::from(passage.losses));
            }
        }
        let message = Message { from: (from, self.sites[from].run), to, bytes, kind, body };
        self.at(arrives, Event::Arrival(Box::new(message)));
    }

    /// What passes before a request leaves: a new stream is agreed on, on a new connection if there is none.
    fn preparation_us(&mut self, from: usize, to: usize) -> u64 {
        let idle_us = u64::try_from(self.settings.intervals.idle_connection.as_micros()).unwrap_or(u64::MAX);
        let last = self.sites[from].contacted.insert(to, self.now);
        let was_contacted = last.is_some_and(|at| at + idle_us > self.now);
        self.sites[to].contacted.insert(from, self.now);
        let pair = ((from.min(to) as u64) << 32) | from.max(to) as u64;
        let is_neighbour = mix(self.settings.seed ^ 0x6e65, pair) % (self.sites.len() as u64)
            < self.settings.limits.connections_kept as u64;
        let dials = if was_contacted || is_neighbour { 0 } else { discovery::costs::DIAL_ROUND_TRIPS };
        self.earth.round_trip_us(from, to) * (discovery::costs::STREAM_ROUND_TRIPS + dials)
    }

    fn arrive(&mut self, message: Message) {
        let Message { from: (from, run), to, bytes, kind, body } = message;
        let is_sent = self.sites[from].run == run;
        if !is_sent || !self.sites[to].is_up() {
            if from != to {
                self.traffic.loses(kind, from, bytes);
            }
            // Who waits for an answer hears nothing.
            if let Body::Ask { asker, .. } | Body::Answer { asker, .. } = body {
                let site = if matches!(body, Body::Ask { .. }) { to } else { from };
                self.expect_silence(asker, site);
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

    /// The next request of an open load.
    pub(super) fn plan_submission(&mut self, number: usize) {
        let Pace::Open { per_second } = self.settings.pace else { return };
        let share: f64 = self.random.random_range(f64::MIN_POSITIVE..1.0);
        let gap_us = (-share.ln() / per_second * SECOND_US as f64) as u64;
        self.at(self.now + gap_us, Event::Submit { number });
    }
}

/// A time of the simulation on the monotonic clocks.
pub fn millis(time: u64) -> Millis {
    Millis(time / 1000)
}

/// A time of the simulation on the wall clocks.
pub fn utc(time: u64) -> Time {
    Time(i64::try_from(time / SECOND_US).unwrap_or(i64::MAX / 4))
}
