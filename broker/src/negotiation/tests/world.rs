//! A modelled grid of a few sites: ledgers, negotiations, disks, and a network with faults.

mod checks;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{
    amount::Amount,
    host::Host,
    ids::{HostId, RequestId, SiteId},
    ledger::{self, Ledger, LedgerLimits, Record, ReplyToken, Reservation},
    negotiation::{
        Decision, Event, Found, FoundHost, Negotiation, NegotiationSettings, Output, Purpose, RequestRecord, Stage,
    },
    plan::{Allocation, CutCounts},
    protocol::{AttemptId, ScheduleSnapshot, SiteAnswer, SiteRequest},
    request::Request,
    resources::{Amounts, ResourceName},
    schedule::Schedule,
    time::{Millis, Now, Time},
};

const SITES: usize = 4;
const HOSTS_A_SITE: usize = 3;
const CAPACITY: u64 = 4000;
/// Steps with faults; afterwards the network is healed and everything must settle.
const FAULTY_STEPS: usize = 400;
const HEALED_STEPS: usize = 20_000;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    pub(super) loss_percent: u64,
    pub(super) repeat_percent: u64,
    pub(super) stale_percent: u64,
    pub(super) cancel_percent: u64,
    pub(super) crash_per_mille: u64,
}

#[derive(Debug, Clone)]
enum Message {
    Ask { from: usize, to: usize, request: SiteRequest, question: Question },
    Answer { to: usize, from: usize, question: Question, answer: SiteAnswer },
}

/// What an answer is the answer to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Negotiation { request: RequestId, attempt: u32, purpose: Purpose },
    Inquiry(AttemptId),
}

struct Node {
    ledger: Ledger,
    negotiations: BTreeMap<RequestId, Negotiation>,
    disk_reservations: BTreeMap<AttemptId, Reservation>,
    disk_requests: BTreeMap<RequestId, RequestRecord>,
    incarnation: u64,
    tokens: BTreeMap<u64, (usize, Question)>,
    next_token: u64,
}

pub(super) struct World {
    options: Options,
    random: Xoshiro256PlusPlus,
    now: u64,
    nodes: Vec<Node>,
    network: Vec<Message>,
    /// Asks that wait for an answer: (deadline, entry point, site, question).
    waiting: BTreeSet<(u64, usize, usize, Question)>,
    old_snapshots: Vec<Vec<ScheduleSnapshot>>,
    /// What users were told: requests that stand, unless taken back.
    told: BTreeMap<RequestId, Allocation>,
    cancelled: BTreeSet<RequestId>,
    healed: bool,
    log: String,
}

fn site(index: usize) -> SiteId {
    SiteId::new(&format!("s{index}")).unwrap()
}

fn index_of(site: &SiteId) -> usize {
    site.as_str()[1..].parse().unwrap()
}

fn cpu(amount: u64) -> Amounts {
    Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(amount))])
}

fn hosts() -> Vec<(Host, Schedule)> {
    (0..HOSTS_A_SITE)
        .map(|index| {
            let host = Host {
                id: HostId::new(&format!("h{index}")).unwrap(),
                capacity: cpu(CAPACITY),
                attributes: BTreeMap::new(),
                speed: 1000,
                price: 0,
            };
            (host, Schedule::default())
        })
        .collect()
}

fn settings() -> NegotiationSettings {
    NegotiationSettings {
        hold_for: Millis(2_000),
        answer_timeout: Millis(300),
        patience: Millis(20_000),
        ..NegotiationSettings::default()
    }
}

fn limits() -> LedgerLimits {
    LedgerLimits { final_word_wait: Millis(1_500), tombstone_life: Millis(30_000), ..LedgerLimits::default() }
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> World {
        let now = Now { monotonic: Millis(0), utc: Time(1_000_000) };
        let nodes = (0..SITES)
            .map(|index| Node {
                ledger: Ledger::open(site(index), limits(), 1, hosts(), Vec::new(), now).0,
                negotiations: BTreeMap::new(),
                disk_reservations: BTreeMap::new(),
                disk_requests: BTreeMap::new(),
                incarnation: 1,
                tokens: BTreeMap::new(),
                next_token: 0,
            })
            .collect();
        World {
            options,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            now: 0,
            nodes,
            network: Vec::new(),
            waiting: BTreeSet::new(),
            old_snapshots: Vec::new(),
            told: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            healed: false,
            log: String::new(),
        }
    }

    fn clock(&self) -> Now {
        Now { monotonic: Millis(self.now), utc: Time(1_000_000 + i64::try_from(self.now / 1000).unwrap()) }
    }

    fn chance(&mut self, percent: u64) -> bool {
        !self.healed && self.random.random_range(0..100) < percent
    }

    fn note(&mut self, text: std::fmt::Arguments<'_>) {
        writeln!(self.log, "{:>7} {text}", self.now).unwrap();
    }

    pub(super) fn history(&self) -> String {
        self.log.clone()
    }

    pub(super) fn standing(&self) -> usize {
        self.stages(|stage| matches!(stage, Stage::Stands(_)))
    }

    pub(super) fn closed(&self) -> usize {
        self.stages(|stage| matches!(stage, Stage::Closed { .. }))
    }

    fn stages(&self, wanted: impl Fn(Stage<'_>) -> bool) -> usize {
        self.nodes.iter().flat_map(|node| node.negotiations.values()).filter(|one| wanted(one.stage())).count()
    }

    pub(super) fn run(&mut self) -> Result<(), String> {
        for step in 0..FAULTY_STEPS {
            if step % 25 == 0 && step < 300 {
                self.submit(step);
            }
            self.step()?;
        }
        self.healed = true;
        self.note(format_args!("healed"));
        for _ in 0..HEALED_STEPS {
            if self.is_settled() {
                return self.check_end();
            }
            self.step()?;
        }
        Err("does not settle after the network is healed".to_owned())
    }

    fn is_settled(&self) -> bool {
        self.network.is_empty()
            && self.waiting.is_empty()
            && self.nodes.iter().all(|node| {
                node.ledger.poll_timeout().is_none() && node.negotiations.values().all(Negotiation::is_quiet)
            })
    }

    fn submit(&mut self, step: usize) {
        let entry_point = self.random.random_range(0..SITES);
        let count = self.random.random_range(2..=6);
        let total = self.random.random_range(1..=count * CAPACITY);
        let text = format!(r#"{{"hosts":{count},"duration":3600,"total":{{"cpu":{total}}}}}"#);
        let request: Request = serde_json::from_str(&text).unwrap();
        let id = RequestId::new(&format!("r{step}")).unwrap();
        let now = self.clock();
        let record = RequestRecord {
            id: id.clone(),
            user: "u".to_owned(),
            request,
            submitted_ms: 0,
            elapsed_ms: 0,
            earliest: now.utc,
            latest: now.utc + crate::time::Span(8 * 3600),
            last_attempt: 0,
            decision: Decision::Open,
            owed: Vec::new(),
            history: super::super::History::default(),
        };
        self.note(format_args!("submit {id} at s{entry_point}: {text}"));
        let seed = self.random.random();
        let negotiation = Negotiation::new(site(entry_point), settings(), record.clone(), false, seed, now);
        self.nodes[entry_point].disk_requests.insert(id.clone(), record);
        self.nodes[entry_point].negotiations.insert(id.clone(), negotiation);
        self.drain_negotiation(entry_point, &id);
    }

    /// One thing happens: a message arrives (or is lost, or arrives and stays), time passes, a node crashes, a user
    /// cancels.
    fn step(&mut self) -> Result<(), String> {
        if !self.healed && self.random.random_range(0..1000) < self.options.crash_per_mille {
            let index = self.random.random_range(0..SITES);
            self.crash(index);
        }
        if self.chance(self.options.cancel_percent) && self.random.random_range(0..20) == 0 {
            self.cancel();
        }
        let pass_time = self.network.is_empty() || (!self.healed && self.random.random_range(0..4) == 0);
        if pass_time {
            self.pass_time();
        } else {
            let index = self.random.random_range(0..self.network.len());
            let message = if self.chance(self.options.repeat_percent) {
                self.network[index].clone()
            } else {
                self.network.swap_remove(index)
            };
            if self.chance(self.options.loss_percent) {
                self.note(format_args!("lost {message:?}"));
            } else {
                self.now += 1;
                self.deliver(message);
            }
        }
        if self.old_snapshots.len() < 20 || self.random.random_range(0..20) == 0 {
            let now = self.clock();
            let snapshots = self.nodes.iter().map(|node| node.ledger.snapshot(now)).collect();
            let slot = self.random.random_range(0..=self.old_snapshots.len().min(19));
            if slot == self.old_snapshots.len() {
                self.old_snapshots.push(snapshots);
            } else {
                self.old_snapshots[slot] = snapshots;
            }
        }
        for node in &self.nodes {
            node.ledger.sanity_check()?;
        }
        self.hear_stages()
    }

    fn pass_time(&mut self) {
        let next = self
            .nodes
            .iter()
            .flat_map(|node| {
                let of_negotiations = node.negotiations.values().filter_map(Negotiation::poll_timeout);
                of_negotiations.chain(node.ledger.poll_timeout())
            })
            .map(|at| at.0)
            .chain(self.waiting.first().map(|waiting| waiting.0))
            .min();
        let Some(next) = next else { return };
        // Sometimes a timer is late.
        self.now = self.now.max(next) + if self.chance(20) { 40 } else { 0 };
        while let Some(first) = self.waiting.first().cloned()
            && first.0 <= self.now
        {
            self.waiting.remove(&first);
            let (_, entry_point, to, question) = first;
            self.feed_answer(entry_point, to, &question, Err("no answer".to_owned()));
        }
        let now = self.clock();
        for index in 0..SITES {
            self.nodes[index].ledger.handle_timeout(now);
            self.drain_ledger(index);
            let ids: Vec<RequestId> = self.nodes[index].negotiations.keys().cloned().collect();
            for id in ids {
                if let Some(negotiation) = self.nodes[index].negotiations.get_mut(&id)
                    && negotiation.poll_timeout().is_some_and(|at| at <= now.monotonic)
                {
                    negotiation.handle_timeout(now);
                }
                self.drain_negotiation(index, &id);
            }
        }
    }

    fn cancel(&mut self) {
        let all: Vec<(usize, RequestId)> = (0..SITES)
            .flat_map(|index| self.nodes[index].negotiations.keys().map(move |id| (index, id.clone())))
            .collect();
        let Some((index, id)) = all.choose(&mut self.random).cloned() else { return };
        self.note(format_args!("cancel {id}"));
        let now = self.clock();
        self.nodes[index].negotiations.get_mut(&id).unwrap().handle(now, Event::Cancel, &mut ());
        self.drain_negotiation(index, &id);
        self.cancelled.insert(id.clone());
        self.told.remove(&id);
    }

    /// Everything that is not on disk is lost; the node comes back at once.
    fn crash(&mut self, index: usize) {
        self.note(format_args!("crash s{index}"));
        let now = self.clock();
        let seed = self.random.random();
        let node = &mut self.nodes[index];
        node.incarnation += 1;
        let reservations = node.disk_reservations.values().cloned().collect();
        let (ledger, misfits) = Ledger::open(site(index), limits(), node.incarnation, hosts(), reservations, now);
        assert!(misfits.is_empty(), "what was granted fits again");
        node.ledger = ledger;
        node.tokens.clear();
        node.negotiations = node
            .disk_requests
            .iter()
            .map(|(id, record)| {
                (id.clone(), Negotiation::new(site(index), settings(), record.clone(), true, seed, now))
            })
            .collect();
        self.waiting.retain(|(_, entry_point, _, _)| *entry_point != index);
        self.drain_ledger(index);
        let ids: Vec<RequestId> = self.nodes[index].negotiations.keys().cloned().collect();
        for id in ids {
            self.drain_negotiation(index, &id);
        }
    }

    fn deliver(&mut self, message: Message) {
        self.note(format_args!("{message:?}"));
        let now = self.clock();
        match message {
            Message::Ask { from, to, request, question } => {
                let node = &mut self.nodes[to];
                node.next_token += 1;
                let token = node.next_token;
                node.tokens.insert(token, (from, question));
                let event = ledger::Event::Request { from: site(from), token: ReplyToken(token), request };
                node.ledger.handle(now, event);
                self.drain_ledger(to);
            }
            Message::Answer { to, from, question, answer } => {
                let waited = self.waiting.iter().find(|w| w.1 == to && w.2 == from && w.3 == question).cloned();
                if let Some(waited) = waited {
                    self.waiting.remove(&waited);
                }
                // Repeated and late answers reach the negotiation as well.
                self.feed_answer(to, from, &question, Ok(answer));
            }
        }
    }

    fn feed_answer(&mut self, to: usize, from: usize, question: &Question, answer: Result<SiteAnswer, String>) {
        let now = self.clock();
        match question {
            Question::Negotiation { request, attempt, purpose } => {
                let event = Event::Answer { site: site(from), attempt: *attempt, purpose: *purpose, answer };
                if let Some(negotiation) = self.nodes[to].negotiations.get_mut(request) {
                    negotiation.handle(now, event, &mut ());
                }
                self.drain_negotiation(to, request);
            }
            Question::Inquiry(attempt) => {
                let Ok(SiteAnswer::Status { decision, booking }) = answer else { return };
                let event =
                    ledger::Event::StatusHeard { from: site(from), attempt: attempt.clone(), decision, booking };
                self.nodes[to].ledger.handle(now, event);
                self.drain_ledger(to);
            }
        }
    }

    fn drain_ledger(&mut self, index: usize) {
        while let Some(output) = self.nodes[index].ledger.poll_output() {
            match output {
                ledger::Output::Persist(Record::Put(reservation)) => {
                    self.nodes[index].disk_reservations.insert(reservation.attempt.clone(), reservation);
                }
                ledger::Output::Persist(Record::Remove(attempt)) => {
                    self.nodes[index].disk_reservations.remove(&attempt);
                }
                ledger::Output::Publish(_) => {}
                ledger::Output::Reply { token, mut answer } => {
                    let Some((to, question)) = self.nodes[index].tokens.remove(&token.0) else { continue };
                    if let (SiteAnswer::Status { decision, .. }, Question::Inquiry(attempt)) = (&mut answer, &question)
                        && index_of(&attempt.entry_point) == index
                    {
                        let known = self.nodes[index].negotiations.get(&attempt.request);
                        *decision = known.map(|negotiation| negotiation.status_of(attempt.attempt));
                    }
                    self.network.push(Message::Answer { to, from: index, question, answer });
                }
                ledger::Output::Inquire { to, attempt } => {
                    let question = Question::Inquiry(attempt.clone());
                    let request = SiteRequest::Inquire(attempt);
                    self.network.push(Message::Ask { from: index, to: index_of(&to), request, question });
                }
            }
        }
    }

    fn drain_negotiation(&mut self, index: usize, id: &RequestId) {
        loop {
            let Some(negotiation) = self.nodes[index].negotiations.get_mut(id) else { return };
            let Some(output) = negotiation.poll_output() else { return };
            match output {
                Output::Persist(record) => {
                    self.nodes[index].disk_requests.insert(id.clone(), *record);
                }
                Output::Ask { site, attempt, purpose, request, timeout } => {
                    let to = index_of(&site);
                    let question = Question::Negotiation { request: id.clone(), attempt, purpose };
                    self.waiting.insert((self.now + timeout.0, index, to, question.clone()));
                    self.network.push(Message::Ask { from: index, to, request, question });
                }
                Output::Find { count, exclude, .. } => {
                    let found = self.find(count, &exclude);
                    let now = self.clock();
                    let negotiation = self.nodes[index].negotiations.get_mut(id).unwrap();
                    negotiation.handle(now, Event::Found(found), &mut ());
                }
            }
        }
    }

    /// Phase I on snapshots that are sometimes old.
    fn find(&mut self, count: usize, exclude: &BTreeSet<SiteId>) -> Found {
        let now = self.clock();
        let stale = self.chance(self.options.stale_percent);
        let old = if stale { self.old_snapshots.choose(&mut self.random).cloned() } else { None };
        let snapshots =
            old.unwrap_or_else(|| self.nodes.iter().map(|node| node.ledger.snapshot(now)).collect::<Vec<_>>());
        let mut found = Vec::new();
        for snapshot in snapshots.into_iter().filter(|snapshot| !exclude.contains(&snapshot.site)) {
            for (host, schedule) in hosts().into_iter().map(|(host, _)| host).zip(snapshot.hosts).map(|(h, s)| (h, s.1))
            {
                found.push(FoundHost { site: snapshot.site.clone(), host, schedule, version: snapshot.version });
            }
        }
        while found.len() > count {
            let index = self.random.random_range(0..found.len());
            found.swap_remove(index);
        }
        Found { known_hosts: SITES * HOSTS_A_SITE, hosts: found, without_schedule: 0, cut: CutCounts::default() }
    }
}
