//! A simulated grid and its users: the product's state machines in it, and the requests, from their submission on.
//!
//! The core of the product runs here as it is: a real ledger for each site, a real negotiation with its planner for each
//! request, real views for what a coordinator plans on. A disk is modelled by delays: a record counts as written at once, and
//! what its machine lets out behind it leaves when the disk is done.
//! Invariant: no answer leaves before the changes in front of it are on disk, and users learn an outcome when it is on the
//! disk of their entry point; a node that comes back has what was on its disk, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    time::Duration,
};

use anyhow::Context as _;
use broker::{
    ids::{RequestId, SiteId},
    ledger::{self, ReplyToken, ScheduleUpdateParts},
    negotiation::{self, Negotiation, NegotiationSettings, Outcome, Output, Purpose, RequestRecord, Stage},
    plan::Plan,
    protocol::{AttemptId, LedgerVersion, ScheduleSnapshot, SiteAnswer, SiteRequest},
    request::Request,
    time::{Millis, Now, Span},
    trust::testing,
};
use discovery::{
    config::{SCHEDULE_AGE_MAX, SCHEDULE_AGE_MAX_AFTER_CONFLICT, SILENCE_REMEMBERED},
    dht::find::{FETCH_TIMEOUT, SILENT_FOR},
    wire::{WireAnswer, WireRequest},
};
use rand::RngExt;
use sim_kit::{
    error::BadUsage,
    generate::{self, Kind},
};

use super::{
    chance::drawn,
    grid::{Change, Grid, Mail},
    options::{BEGIN, HOUR, Pace, Settings},
    rounds::Rounds,
    search::Search,
    site::{self, Asker, Site},
    sizes::{answer_bytes, question_bytes},
    traffic,
};
use crate::{
    engine::{Actor, Disk, Machines, Medium, Moment, Write},
    grid::load::{rounds::SPREADS_MAX, workload::deal},
    shift::shifted_request,
};

/// Requests drawn; a longer run begins again with the first.
const POOL: usize = 2_048;
/// Users, each with a key.
const USERS: u64 = 100;
/// Names the draws of the seeds of negotiations.
const NEGOTIATIONS: u64 = 0x7265;
/// How long a crashed node is away, in seconds.
const CRASHED_S: Range<u64> = 5..180;
/// How long a site that has left is away, in seconds.
const LEFT_S: Range<u64> = 60..1_200;
/// From one look at whether a site has published its change to the next.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// A change that is not published for so long is not waited for.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(60);

/// One request.
#[derive(Debug)]
pub struct Submitted {
    pub id: RequestId,
    /// The node that it was submitted to.
    pub entry: usize,
    /// When it was submitted.
    pub at: Moment,
    /// Phase I under way.
    search: Option<Search>,
    /// The versions of the schedules that the last plan rested on, by site.
    planned: BTreeMap<usize, LedgerVersion>,
    /// Its outcome was reported, or will be as soon as it is on disk.
    is_settled: bool,
    /// When its last record is on disk.
    free_at: Moment,
}

/// The number of the request with this name.
fn number_of(id: &RequestId) -> Option<usize> {
    id.as_str().strip_prefix('r')?.parse().ok()
}

fn is_settled(negotiation: &Negotiation) -> bool {
    matches!(negotiation.stage(), Stage::Reserved(_) | Stage::Degraded { .. } | Stage::Closed { .. })
}

/// A grid with its users.
pub struct World {
    pub grid: Grid,
    /// Requests are drawn from here, again and again.
    pool: Vec<Request>,
    pub requests: Vec<Submitted>,
    /// Requests whose reservations are not cancelled, oldest first.
    reserved: VecDeque<usize>,
    rounds: Rounds,
}

impl World {
    /// The grid of a run at rest, before its first event.
    ///
    /// # Errors
    /// [`BadUsage`] when no request can be drawn.
    pub fn new(settings: Settings) -> anyhow::Result<World> {
        let (seed, pace) = (settings.run.seed, settings.pace);
        let snapshot = generate::free_grid(seed, settings.hosts);
        let pool = generate::requests(seed, settings.run.hosts_per_request, POOL, Kind::Collective, &snapshot)
            .context(BadUsage::new("--hosts-per-request"))?;
        let pool = if settings.run.whole { pool.into_iter().map(generate::whole).collect() } else { pool };
        let dealt = deal(snapshot, settings.sites).into_iter().enumerate();
        let sites = dealt.map(|(position, dealt)| {
            let mut hosts: Vec<_> = dealt.hosts.into_iter().map(|entry| (entry.host, entry.schedule)).collect();
            if settings.run.alike {
                site::make_alike(&mut hosts);
            }
            Site::new(&settings, position, hosts)
        });
        let sites: Vec<Site> = sites.collect();
        let rounds = match pace {
            Pace::Open { .. } => Rounds::default(),
            Pace::Rounds { at_once, requests } => Rounds::new(requests, at_once, sites.len(), seed),
        };
        let grid = Grid::new(settings, sites);
        let mut world = World { grid, pool, requests: Vec::new(), reserved: VecDeque::new(), rounds };
        world.plan_submission(0);
        world.begin_round(BEGIN + Duration::from_secs(1));
        world.plan_stop();
        Ok(world)
    }

    /// Lets everything happen; now and then calls `at` with the thousandths of virtual time that have passed.
    pub fn run(&mut self, mut at: impl FnMut(u64)) {
        let mut reported = 0;
        while let Some(event) = self.grid.next() {
            event(self);
            let passed = (self.now() - BEGIN).as_secs_f64() / self.grid.settings.run.duration.as_secs_f64();
            let thousandths = (passed * 1000.0) as u64;
            if thousandths > reported {
                reported = thousandths;
                at(thousandths);
            }
            if matches!(self.grid.settings.pace, Pace::Rounds { .. }) && self.rounds.is_over() {
                break;
            }
        }
        self.grid.end_epoch();
    }

    /// Sends a question to the ledger of a site.
    fn ask(&mut self, at: Moment, (from, to): (usize, usize), asker: Asker, request: SiteRequest) {
        let bytes = question_bytes(&WireRequest::Site(request.clone()));
        let mail = Mail { from, to, kind: traffic::Kind::Direct, bytes, is_question: true };
        let lost = asker.clone();
        let received = move |world: &mut World| {
            let token = world.grid.name();
            let from = world.grid.sites[from].id.clone();
            if let Some(machines) = world.machines(to) {
                machines.askers.insert(token, asker);
            }
            world.feed_ledger(to, ledger::Event::Request { from, network: None, token: ReplyToken(token), request });
        };
        self.grid.send(at, mail, received, move |world| world.lose(&lost, to));
    }

    /// A question to a site, or its answer, is lost.
    fn lose(&mut self, asker: &Asker, site: usize) {
        if let Asker::Coordinator { request, attempt, purpose, until, .. } = *asker {
            self.grid.at(until, move |world| world.give_up(request, (site, attempt, purpose)));
        }
    }

    /// An answer has reached the node that asked.
    fn arrive_answer(&mut self, site: usize, node: usize, asker: Asker, answer: SiteAnswer) {
        match asker {
            Asker::Coordinator { request, attempt, purpose, .. } => {
                self.grid.sites[node].contacts.silent.remove(&site);
                if let Some(version) = answer.version() {
                    let planned = self.requests[request].planned.get(&site).copied();
                    self.grid.note_version(node, site, version, planned);
                }
                self.answer_request(request, (site, attempt, purpose), Ok(answer));
            }
            Asker::Participant { attempt, round, .. } => {
                let id = self.grid.sites[site].id.clone();
                self.receive_status(node, id, (attempt, round), &answer);
            }
        }
    }

    /// The time for an answer is over.
    fn give_up(&mut self, request: usize, asked: (usize, u32, Purpose)) {
        let until = self.now().plus_ms(SILENCE_REMEMBERED.0);
        self.grid.sites[self.requests[request].entry].contacts.silent.insert(asked.0, until);
        self.answer_request(request, asked, Err("no answer in time".to_owned()));
    }

    fn answer_request(
        &mut self,
        request: usize,
        (site, attempt, purpose): (usize, u32, Purpose),
        answer: Result<SiteAnswer, String>,
    ) {
        let site = self.grid.sites[site].id.clone();
        self.feed(request, negotiation::Event::Answer { site, attempt, purpose, answer });
    }

    fn feed(&mut self, request: usize, event: negotiation::Event) {
        let Submitted { entry, id, .. } = &self.requests[request];
        let (entry, id) = (*entry, id.clone());
        self.feed_request(entry, &id, event);
    }

    /// The negotiation of a request, while its node runs.
    fn negotiation(&self, request: usize) -> Option<&Negotiation> {
        let Submitted { entry, id, .. } = &self.requests[request];
        self.grid.sites[*entry].negotiation(id)
    }

    /// Counts the answer to a hold, by how old the schedules were that it was planned on.
    fn count_hold(&mut self, site: usize, asker: &Asker, answer: &SiteAnswer) {
        if let Asker::Coordinator { purpose: Purpose::Hold, planned: Some(version), .. } = asker {
            let unseen = self.grid.sites[site].history.went_beyond(*version).map(|at| self.now() - at);
            self.grid.counts.count_hold(unseen, answer);
        }
    }

    /// Plans the next request of an open load.
    fn plan_submission(&mut self, number: usize) {
        if let Pace::Open { per_second } = self.grid.settings.pace {
            self.grid.by_chance(per_second * HOUR.as_secs_f64(), move |world| world.submit(number));
        }
    }

    /// A user submits a request.
    fn submit(&mut self, number: usize) {
        self.plan_submission(number + 1);
        let entry = match self.grid.settings.pace {
            Pace::Rounds { .. } => Some(self.rounds.entry_point(number)),
            Pace::Open { .. } => self.grid.draw_running_site(),
        };
        let Some(entry) = entry else { return };
        let (now, clocks) = (self.now(), self.grid.clocks());
        let shift = Span(u64::try_from(clocks.utc.0).unwrap_or(0));
        let request = shifted_request(&self.pool[number % self.pool.len()], shift);
        let number_here = self.requests.len();
        let id = RequestId::new(&format!("r{number_here}")).expect("a letter and a number are a short text");
        let reach = NegotiationSettings::default().planner.default_reach;
        let Ok(starts) = request.starts(clocks.utc, reach) else { return };
        let own = &mut self.grid.sites[entry];
        let authorization = testing::authorize(1 + number as u64 % USERS, &own.id, &id, &request);
        let user = format!("user {number}");
        let record = RequestRecord::arrived(id.clone(), user, request, authorization, now.ms(), starts);
        let seed = drawn([self.grid.settings.run.seed, NEGOTIATIONS, number_here as u64]);
        own.disk.apply(Write::Request(Box::new(record.clone())));
        if let Some(machines) = &mut own.machines {
            machines.begin(record, false, seed, clocks);
        }
        self.grid.counts.requests += 1;
        self.grid.counts.fetches_per_request.whole += 1;
        self.requests.push(Submitted {
            id: id.clone(),
            entry,
            at: now,
            search: None,
            planned: BTreeMap::new(),
            is_settled: false,
            free_at: now + self.grid.settings.run.disk,
        });
        self.perform_request(entry, &id);
    }

    /// Reports the outcome of a request to its user.
    fn report_to_user(&mut self, request: usize) {
        let Some(negotiation) = self.negotiation(request).filter(|negotiation| is_settled(negotiation)) else {
            // Its node went down meanwhile, or went on with it: the outcome is reported when there is one again.
            self.requests[request].is_settled = false;
            return;
        };
        let history = &negotiation.record().history;
        let (attempts, conflicts) = (history.attempts.len() as u64, u64::from(history.conflicts));
        let reserved = match negotiation.stage() {
            Stage::Reserved(plan) => Some(plan.clone()),
            _ => None,
        };
        let is_rejected = matches!(negotiation.stage(), Stage::Closed { outcome: Outcome::Rejected { .. }, .. });
        let counts = &mut self.grid.counts;
        counts.attempts += attempts;
        counts.conflicts += conflicts;
        counts.first_try_share.count(reserved.is_some() && attempts == 1);
        match reserved {
            Some(plan) => {
                counts.reserved += 1;
                self.note_latency(request, &plan);
                self.keep(request);
            }
            None if is_rejected => counts.rejected += 1,
            None => counts.failed += 1,
        }
        if let Pace::Rounds { .. } = self.grid.settings.pace {
            self.settled_in_round(request);
        }
    }

    fn note_latency(&mut self, request: usize, plan: &Plan) {
        let Submitted { entry, at, .. } = self.requests[request];
        let (took, grid) = (self.now() - at, &mut self.grid);
        grid.counts.latency_ms.push(took.as_secs_f64() * 1000.0);
        let sites = plan.seats.iter().filter_map(|grant| grid.index.get(&grant.site).copied());
        let farthest = sites.filter(|site| *site != entry).map(|site| grid.earth.round_trip(entry, site)).max();
        if let Some(farthest) = farthest.filter(|farthest| !farthest.is_zero()) {
            grid.counts.latency_round_trips.push(took.div_duration_f64(farthest));
        }
    }

    /// Users keep reservations until there are two for each site.
    fn keep(&mut self, request: usize) {
        self.reserved.push_back(request);
        if matches!(self.grid.settings.pace, Pace::Open { .. })
            && self.reserved.len() > 2 * self.grid.sites.len()
            && let Some(request) = self.reserved.pop_front()
        {
            self.grid.at(self.now(), move |world| world.feed(request, negotiation::Event::Cancel));
        }
    }

    /// Submits the requests of the next round, if requests come in rounds.
    fn begin_round(&mut self, at: Moment) {
        for number in self.rounds.next().into_iter().flatten() {
            self.grid.at(at, move |world| world.submit(number));
        }
    }

    /// After the last request of a round the next one begins; after a request that was alone, the first few times when every
    /// node knows of its change: the real grid measures there how long that takes, and so does this.
    fn settled_in_round(&mut self, request: usize) {
        let Some(was_alone) = self.rounds.settle() else { return };
        let is_measured = was_alone && self.grid.counts.spread_ms.len() < SPREADS_MAX && self.grid.sites.len() > 1;
        match self.change_of(request).filter(|_| is_measured) {
            Some(change) => self.look_for(change),
            None => self.begin_round(self.now()),
        }
    }

    /// What a reservation has changed at the site of its first host.
    fn change_of(&self, request: usize) -> Option<Change> {
        let Stage::Reserved(plan) = self.negotiation(request)?.stage() else { return None };
        let site = *self.grid.index.get(&plan.seats.first()?.site)?;
        let version = self.grid.sites[site].ledger()?.version();
        Some(Change { site, version, since: self.requests[request].at })
    }

    /// Begins the next round when every node knows of the change.
    fn look_for(&mut self, change: Change) {
        let now = self.now();
        self.rounds.is_waiting = false;
        if let Some(known) = self.grid.known_everywhere(change) {
            // Nobody looks before the user knows the outcome.
            let known = known.max(now);
            self.grid.counts.spread_ms.push((known - change.since).as_secs_f64() * 1000.0);
            self.begin_round(known);
        } else if now < change.since + PUBLISHED_WITHIN {
            self.rounds.is_waiting = true;
            self.grid.after(LOOK_EVERY, move |world| world.look_for(change));
        } else {
            self.begin_round(now);
        }
    }

    /// Begins to look for `count` hosts.
    fn search(&mut self, request: usize, count: usize, seed: u64, exclude: &BTreeSet<SiteId>) {
        let name = self.grid.name();
        let exclude = exclude.iter().filter_map(|site| self.grid.index.get(site).copied()).collect();
        let search = Search::new(self.requests[request].entry, count, seed, exclude, self.now());
        self.search_round(request, search, name);
    }

    fn search_round(&mut self, request: usize, mut search: Search, name: u64) {
        let node = self.requests[request].entry;
        let Some(negotiation) = self.negotiation(request) else { return };
        let has_met_conflict = negotiation.record().history.conflicts > 0;
        let ask_after = if has_met_conflict { SCHEDULE_AGE_MAX_AFTER_CONFLICT } else { SCHEDULE_AGE_MAX };
        let (wanted, hosts) = (negotiation.wanted(), self.grid.hosts_near(node));
        let round = search.begin_round(name, (self.grid.views(), &hosts), wanted, ask_after);
        self.requests[request].search = Some(search);
        if round.stale.is_empty() {
            return self.finish_search_round(request);
        }
        for (site, known) in round.stale {
            self.grid.counts.fetches_per_request.part += 1;
            self.grid.fetch(node, site, Some((request, name)), known);
        }
        let until = self.now().plus_ms(FETCH_TIMEOUT.0);
        self.grid.at(until, move |world| world.end_search_round(request, name));
    }

    /// Schedules have reached the search of a request with this name.
    pub fn arrive_schedules(&mut self, site: usize, (request, name): (usize, u64), snapshot: &ScheduleSnapshot) {
        let search = self.requests[request].search.as_mut().filter(|search| search.name == name);
        let Some(search) = search else { return };
        search.receive(site, &self.grid.sites[site], snapshot);
        if !search.is_waiting() {
            self.finish_search_round(request);
        }
    }

    /// Sites that have not answered a search by now are left out for a while.
    fn end_search_round(&mut self, request: usize, name: u64) {
        let until = self.now().plus_ms(SILENT_FOR.0);
        let Submitted { entry, search, .. } = &mut self.requests[request];
        let search = search.as_mut().filter(|search| search.name == name && search.is_waiting());
        let Some(search) = search else { return };
        let silent = search.give_up().into_iter().map(|site| (site, until));
        self.grid.sites[*entry].contacts.silent.extend(silent);
        self.finish_search_round(request);
    }

    fn finish_search_round(&mut self, request: usize) {
        let Some(search) = self.requests[request].search.take() else { return };
        if search.goes_on(self.now()) {
            let name = self.grid.name();
            return self.search_round(request, search, name);
        }
        let Some(negotiation) = self.negotiation(request) else { return };
        let hosts = self.grid.hosts_near(self.requests[request].entry);
        let (found, ages_ms) = search.finish((self.grid.views(), &hosts), negotiation.wanted());
        self.grid.counts.view_age_ms.extend(ages_ms);
        // Notes on what a plan will rest, and how much of it is not true any more.
        let planned = &mut self.requests[request].planned;
        planned.clear();
        for host in &found.hosts {
            let Some(site) = self.grid.index.get(&host.site).copied() else { continue };
            let is_stale = self.grid.sites[site].history.went_beyond(host.version).is_some();
            self.grid.counts.stale_hosts_share.count(is_stale);
            let oldest = planned.entry(site).or_insert(host.version);
            *oldest = host.version.min(*oldest);
        }
        self.feed(request, negotiation::Event::Found(found));
    }

    /// Plans the next end of a node.
    fn plan_stop(&mut self) {
        let stops_per_hour = self.grid.sites.len() as f64 * self.grid.settings.run.churn as f64 / 100.0;
        self.grid.by_chance(stops_per_hour, World::stop_some_site);
    }

    /// A node ends, if the one that is drawn runs: half of them crash and are back soon, half leave in order and come back
    /// later.
    fn stop_some_site(&mut self) {
        self.plan_stop();
        let random = &mut self.grid.random;
        let site = random.random_range(0..self.grid.sites.len());
        let leaves = random.random_bool(0.5);
        let away_s = random.random_range(if leaves { LEFT_S } else { CRASHED_S });
        if !self.grid.sites[site].is_up() {
            return;
        }
        let now = self.now();
        self.grid.sites[site].stop(now, leaves);
        for submitted in self.requests.iter_mut().filter(|submitted| submitted.entry == site) {
            submitted.search = None;
        }
        let counts = &mut self.grid.counts;
        let stopped = if leaves { &mut counts.leaves } else { &mut counts.crashes };
        *stopped += 1;
        self.grid.after(Duration::from_secs(away_s), move |world| world.start(site));
    }

    /// A node starts with what is on its disk.
    fn start(&mut self, site: usize) {
        let (run, now) = (self.grid.settings.run.clone(), self.now());
        self.grid.sites[site].start(&run, now);
        self.perform_ledger(site);
        let ids: Vec<_> = self.grid.sites[site].disk.requests.keys().cloned().collect();
        for id in ids {
            self.perform_request(site, &id);
        }
        self.grid.rebuild_view(site);
    }
}

impl Medium for World {
    type Asker = Asker;

    fn now(&self) -> Moment {
        self.grid.now()
    }

    fn clock(&self, _: usize) -> Now {
        self.grid.clocks()
    }

    fn when(&self, _: usize, at: Millis) -> Moment {
        Moment::of_ms(at.0).max(self.now() + Duration::from_micros(1))
    }

    fn plan_wake(&mut self, site: usize, at: Moment) {
        self.grid.at_node(at, site, move |world| world.wake(site));
    }

    fn machines(&mut self, site: usize) -> Option<&mut Machines<Asker>> {
        self.grid.sites[site].machines.as_mut()
    }

    fn disk(&self, site: usize) -> &Disk {
        &self.grid.sites[site].disk
    }

    fn is_writing(&self, _: usize, _: &Actor) -> bool {
        false
    }

    fn stops_here(&mut self, _: usize) -> bool {
        false
    }

    fn persist(&mut self, site: usize, actor: Actor, write: Write) {
        let done = self.now() + self.grid.settings.run.disk;
        let own = &mut self.grid.sites[site];
        own.disk.apply(write);
        let free_at = match &actor {
            Actor::Ledger => Some(&mut own.disk_free_at),
            Actor::Request(id) | Actor::Batch(id) => number_of(id).map(|number| &mut self.requests[number].free_at),
        };
        if let Some(free_at) = free_at {
            *free_at = done.max(*free_at);
        }
    }

    fn publish(&mut self, site: usize, update: ScheduleUpdateParts) {
        self.grid.change(site, update);
    }

    fn reply(&mut self, site: usize, asker: Asker, mut answer: SiteAnswer) {
        self.count_hold(site, &asker, &answer);
        let to = match &asker {
            Asker::Coordinator { request, .. } => self.requests[*request].entry,
            Asker::Participant { from, attempt, .. } => {
                if let SiteAnswer::Status { decision, .. } = &mut answer {
                    let from = self.grid.sites[*from].id.clone();
                    *decision = self.decision_of(site, attempt, &from);
                }
                *from
            }
        };
        let at = self.grid.sites[site].disk_free_at;
        let bytes = answer_bytes(&WireAnswer::Site(answer.clone()));
        let mail = Mail { from: site, to, kind: traffic::Kind::Direct, bytes, is_question: false };
        let lost = asker.clone();
        let received = move |world: &mut World| world.arrive_answer(site, to, asker, answer);
        self.grid.send(at, mail, received, move |world| world.lose(&lost, site));
    }

    fn inquire(&mut self, site: usize, to: &SiteId, attempt: AttemptId, round: u32) {
        let Some(to) = self.grid.index.get(to).copied() else { return };
        if to == site {
            return self.inquire_of_itself(site, attempt, round);
        }
        let request = SiteRequest::Inquire(attempt.clone());
        let asker = Asker::Participant { from: site, attempt, round };
        self.ask(self.now(), (site, to), asker, request);
    }

    fn seek(&mut self, site: usize, id: &RequestId, output: Output) {
        let Some(request) = number_of(id) else { return };
        match output {
            Output::Find { count, seed, exclude, .. } => self.search(request, count, seed, &exclude.sites),
            Output::Ask { site: to, attempt, purpose, request: question, timeout } => {
                let Some(to) = self.grid.index.get(&to).copied() else { return };
                let submitted = &self.requests[request];
                // A request that is being written down for the first time may be planned and held for already.
                let record = self.grid.sites[site].disk.requests.get(id);
                let waits = record.is_some_and(|record| record.last_attempt > 0);
                let at = if waits { submitted.free_at.max(self.now()) } else { self.now() };
                let planned = submitted.planned.get(&to).copied();
                let asker = Asker::Coordinator { request, attempt, purpose, until: at.plus_ms(timeout.0), planned };
                self.ask(at, (site, to), asker, question);
            }
            Output::Persist(_) => {}
        }
    }

    /// The first time that a request is reserved or over, its user will learn it.
    fn after_request(&mut self, _: usize, id: &RequestId) {
        let Some(request) = number_of(id) else { return };
        if !self.requests[request].is_settled && self.negotiation(request).is_some_and(is_settled) {
            let submitted = &mut self.requests[request];
            submitted.is_settled = true;
            self.grid.at(submitted.free_at, move |world| world.report_to_user(request));
        }
    }
}
