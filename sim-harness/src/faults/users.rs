//! What users ask, take back and are told.
//!
//! Invariant: what a user was told is kept here apart from every node, so that no node can take it back unseen.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    amount::Amount,
    host::Host,
    ids::{RequestId, SiteId},
    negotiation::{Event, Outcome, RequestRecord, Reservation, Stage},
    plan::{HostGrant, Plan},
    request::{Request, RequestDocument},
    resources::Amounts,
    schedule::Schedule,
    time::{Span, Time, Window},
    trust::PublicKey,
};
use ed25519_dalek::SigningKey;
use rand::{RngExt, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    clock,
    figures::Figures,
    names,
    options::Options,
    world::{Event as WorldEvent, World},
};
use crate::engine::{Actor, Medium, Moment, Write};

/// How long a user waits when no entry point can be reached.
const COME_BACK_MS: u64 = 700;
/// A user's signature is good for this much longer than the latest start: clocks differ, and answers take time.
pub const CLOCKS_DIFFER: Span = Span(120);
const CORES: [u64; 4] = [1000, 2000, 4000, 8000];

/// What a user was told.
#[derive(Debug, Clone, PartialEq)]
pub enum Reported {
    /// Nothing yet.
    Nothing,
    /// It stands.
    Reserved {
        /// The try.
        attempt: u32,
        /// The plan.
        plan: Plan,
    },
    /// It stands, without hosts that are lost.
    Degraded(Box<Reservation>),
    /// It is over.
    Over(Outcome),
}

impl Reported {
    /// What was told to stand, with the hosts that are lost.
    pub fn plan(&self) -> Option<&Plan> {
        match self {
            Reported::Reserved { plan, .. } => Some(plan),
            Reported::Degraded(reservation) => Some(&reservation.plan),
            Reported::Nothing | Reported::Over(_) => None,
        }
    }

    /// Whether this host was told to be lost.
    pub fn is_lost(&self, grant: &HostGrant) -> bool {
        matches!(self, Reported::Degraded(reservation) if reservation.is_lost(&grant.site, &grant.host))
    }
}

/// A request as its user knows it.
#[derive(Debug)]
pub struct UserRequest {
    /// Its number among the requests of the run.
    pub number: u64,
    /// What was asked.
    pub request: Request,
    /// Who asked.
    pub user: PublicKey,
    /// The node that the user listens to.
    pub entry_point: usize,
    /// When the user has signed for that node, and its name.
    pub word: (Time, SiteId),
    /// Nodes that the user has ever signed for.
    pub signed_for: BTreeSet<usize>,
    /// The user has taken it back; whether that has got through is another matter.
    pub is_taken_back: bool,
    /// What the user was told last.
    pub told: Reported,
}

/// All users.
#[derive(Debug)]
pub struct Users {
    requests: BTreeMap<RequestId, UserRequest>,
    /// What they sign with.
    keys: Vec<SigningKey>,
}

impl Users {
    /// Users with these keys, who have asked nothing yet.
    pub fn new(keys: Vec<SigningKey>) -> Users {
        Users { requests: BTreeMap::new(), keys }
    }

    /// What the user with this number signs with, counted round.
    pub fn signing_key(&self, number: u64) -> &SigningKey {
        &self.keys[usize::try_from(number).unwrap_or(0) % self.keys.len()]
    }

    /// What users sign with.
    pub fn keys(&self) -> impl Iterator<Item = &SigningKey> {
        self.keys.iter()
    }

    /// The public key of the user with this number, counted round.
    pub fn key(&self, number: u64) -> PublicKey {
        PublicKey::of(self.signing_key(number))
    }

    /// What the user of a request knows.
    pub fn get(&self, id: &RequestId) -> Option<&UserRequest> {
        self.requests.get(id)
    }

    /// The requests of all users.
    pub fn all(&self) -> impl Iterator<Item = &UserRequest> {
        self.requests.values()
    }

    /// The user of a request signs for a node.
    pub fn sign_for(&mut self, id: &RequestId, node: usize) {
        if let Some(user) = self.requests.get_mut(id) {
            user.signed_for.insert(node);
        }
    }

    /// The user of a request listens to another node from now on, if the word that it has is later than that of the
    /// present one. What the present one has told counts no longer.
    pub fn go_over(&mut self, id: &RequestId, node: usize, word: (Time, SiteId)) -> bool {
        let Some(user) = self.requests.get_mut(id) else { return false };
        let is_later = user.word < word;
        if is_later {
            (user.entry_point, user.word, user.told) = (node, word, Reported::Nothing);
        }
        is_later
    }

    /// The user of a request looks at it. Returns what was told before when there is news.
    ///
    /// # Errors
    /// What contradicts what the user was told before.
    pub fn hear(
        &mut self,
        id: &RequestId,
        attempt: u32,
        stage: Stage<'_>,
    ) -> Result<Option<(Reported, String)>, String> {
        let Some(user) = self.requests.get_mut(id) else { return Ok(None) };
        let news = match stage {
            Stage::Reserved(plan) => Reported::Reserved { attempt, plan: plan.clone() },
            Stage::Degraded { reservation, .. } => {
                Reported::Degraded(Box::new(Reservation { repair: None, failure: None, ..reservation.clone() }))
            }
            Stage::Closed { outcome, .. } => Reported::Over(outcome.clone()),
            Stage::Planning | Stage::Holding(_) | Stage::Confirming(_) | Stage::BackingOff => Reported::Nothing,
        };
        match (&user.told, &news) {
            (before, now) if before == now => return Ok(None),
            (Reported::Nothing, _) => {}
            (Reported::Reserved { .. } | Reported::Degraded(_), Reported::Reserved { .. } | Reported::Degraded(_)) => {}
            (Reported::Reserved { .. } | Reported::Degraded(_), Reported::Over(Outcome::Cancelled(_)))
                if user.is_taken_back => {}
            (_, Reported::Over(Outcome::HandedOver)) if user.signed_for.len() > 1 => {}
            (Reported::Over(Outcome::HandedOver), Reported::Over(_)) => {}
            (before @ (Reported::Reserved { .. } | Reported::Degraded(_)), now) => {
                return Err(format!("the user was told: {}; and then: {}", words(before), words(now)));
            }
            (before @ Reported::Over(_), now) => {
                return Err(format!("the user was told: {}; and then: {}", words(before), words(now)));
            }
        }
        let text = words(&news);
        Ok(Some((std::mem::replace(&mut user.told, news), text)))
    }

    /// Counts what came of the requests.
    pub fn count(&self, figures: &mut Figures) {
        for user in self.requests.values() {
            figures.requests += 1;
            match &user.told {
                Reported::Reserved { .. } | Reported::Degraded(_) => figures.reservations += 1,
                Reported::Over(Outcome::Cancelled(_) | Outcome::HandedOver) => figures.cancelled += 1,
                Reported::Over(Outcome::Rejected { .. }) => figures.rejected += 1,
                Reported::Over(Outcome::Failed(_)) => figures.failed += 1,
                Reported::Nothing => figures.never_told += 1,
            }
        }
    }
}

fn words(told: &Reported) -> String {
    match told {
        Reported::Nothing => "it is under way".to_owned(),
        Reported::Reserved { attempt, plan } => format!("#{attempt} stands, {}", hosts(plan)),
        Reported::Degraded(reservation) => {
            let lost = reservation.lost.iter().map(|(site, hosts)| format!("{site} {hosts:?}")).collect::<Vec<_>>();
            format!("it stands, {}, without {}", hosts(&reservation.plan), lost.join(", "))
        }
        Reported::Over(Outcome::Cancelled(_)) => "it is taken back".to_owned(),
        Reported::Over(Outcome::HandedOver) => "another node has taken it over".to_owned(),
        Reported::Over(Outcome::Rejected { reason, .. }) => format!("rejected, {}", reason.detail()),
        Reported::Over(Outcome::Failed(failure)) => failure.to_string(),
    }
}

fn hosts(plan: &Plan) -> String {
    let names = plan.grants.iter().map(|grant| format!("{}/{}", grant.site, grant.host));
    format!("at {} on {}", plan.start.0, names.collect::<Vec<_>>().join(" "))
}

/// Draws the hosts of a site and the owner's own work on them.
pub fn draw_hosts(random: &mut Xoshiro256PlusPlus, options: &Options) -> Vec<(Host, Schedule)> {
    let count = random.random_range(1..=options.hosts_max);
    let mut hosts = Vec::with_capacity(count);
    for index in 0..count {
        let cores = CORES[random.random_range(0..CORES.len())];
        let capacity = amounts(cores, cores * 2);
        let mut own = Schedule::default();
        if random.random_range(0..3) == 0 {
            let start = Time(clock::true_utc(Moment::default()).0 + random.random_range(0..4_000));
            own.add(Window::starting(start, Span(random.random_range(60..3_000))), &amounts(cores / 2, cores));
        }
        let id = names::host(index);
        hosts.push((Host { id, capacity, attributes: BTreeMap::new() }, own));
    }
    hosts
}

fn amounts(cpu: u64, memory: u64) -> Amounts {
    Amounts::from([(names::resource("cpu"), Amount(cpu)), (names::resource("memory"), Amount(memory))])
}

/// Draws a request; `None` when the draw makes no sense.
fn draw_request(
    random: &mut Xoshiro256PlusPlus,
    fates: &mut Xoshiro256PlusPlus,
    options: &Options,
    arrival: Time,
) -> Option<Request> {
    let hosts: u32 = random.random_range(1..=5);
    let asked = u64::from(hosts) * random.random_range(200..=4_500);
    let duration = if options.has_short_durations { [20, 40, 600] } else { [600, 3_600, 7_200] };
    let reach = if options.has_tight_windows { [0, 5, 120] } else { [30, 7_200, 28_800] };
    let (duration, reach) = (*duration.choose(random)?, *reach.choose(random)?);
    // A user's clock may be ahead of or behind the entry point's.
    let (ahead_s, move_on_loss) = match &options.losses {
        None => (0, false),
        Some(losses) => (*losses.ahead_s.choose(fates)?, fates.random_range(0..100) < losses.move_percent),
    };
    let earliest = Time(arrival.0 + ahead_s + random.random_range(0..10));
    let per_host = if random.random_range(0..2) == 0 { amounts(100, 100) } else { Amounts::new() };
    let mut total = amounts(asked, asked / 2);
    if random.random_range(0..2) == 0 {
        total.remove(&names::resource("memory"));
    }
    let document = RequestDocument {
        id: None,
        hosts,
        duration,
        earliest: Some(earliest),
        latest: Some(Time(earliest.0 + reach)),
        per_host,
        total,
        attributes: BTreeMap::new(),
        candidates: None,
        effort: None,
        move_on_loss,
    };
    Request::try_from(document).ok()
}

impl World {
    /// A user asks one of the entry points that run.
    pub(super) fn submit(&mut self, number: u64) {
        let running = (0..self.options.entry_points).filter(|node| self.nodes[*node].running().is_some());
        let running: Vec<usize> = running.collect();
        let Some(&entry_point) = running.choose(&mut self.random) else {
            if !self.is_healed {
                self.after(COME_BACK_MS, WorldEvent::Submit { number });
            }
            return;
        };
        let now = self.clock(entry_point);
        let Some(request) = draw_request(&mut self.random, &mut self.fates, &self.options, now.utc) else { return };
        self.submit_through(entry_point, number, request);
    }

    /// A user asks this entry point, which runs.
    pub(super) fn submit_through(&mut self, entry_point: usize, number: u64, request: Request) {
        let now = self.clock(entry_point);
        let Ok(starts) = request.starts(now.utc, Span(3_600)) else { return };
        let id = names::request(number);
        let valid = (self.utc(), starts.1 + CLOCKS_DIFFER);
        let authorization = self.sign_for(entry_point, (&id, &request), number, valid);
        let name = format!("user {number}");
        let record = RequestRecord::arrived(id.clone(), name, request.clone(), authorization, self.now().ms(), starts);
        self.note(
            Some(&id),
            format_args!(
                "a user asks s{entry_point} for {} hosts with {:?} in all, {:?} each, for {} s, from {} to {}",
                request.hosts(),
                request.total(),
                request.per_host(),
                request.duration().0,
                record.earliest.0,
                record.latest.0
            ),
        );
        let user = self.users.key(number);
        let user = UserRequest {
            number,
            user,
            request,
            entry_point,
            word: (valid.0, self.nodes[entry_point].site.clone()),
            signed_for: BTreeSet::from([entry_point]),
            is_taken_back: false,
            told: Reported::Nothing,
        };
        self.users.requests.insert(id.clone(), user);
        self.write(entry_point, Actor::Request(id), Write::Request(Box::new(record)));
    }

    /// Some users take back at once what has just come to stand.
    fn change_mind(&mut self, id: &RequestId) {
        let Some(user) = self.users.get(id) else { return };
        let (number, stands) = (user.number, matches!(user.told, Reported::Reserved { .. }));
        if stands && !self.is_healed && self.random.random_range(0..100) < self.options.cancel_percent {
            // Until about then sites may still ask what became of it.
            let after = self.random.random_range(0..=self.options.outcome_wait.0);
            self.after(after, WorldEvent::Cancel { number });
        }
    }

    /// A user takes a request back.
    pub(super) fn cancel(&mut self, number: u64) {
        let id = names::request(number);
        let Some(user) = self.users.requests.get_mut(&id) else { return };
        let entry_point = user.entry_point;
        let carried =
            self.nodes[entry_point].running().is_some_and(|running| running.machines.negotiations.contains_key(&id));
        if !carried || matches!(user.told, Reported::Over(_)) {
            return;
        }
        user.is_taken_back = true;
        self.note(Some(&id), format_args!("the user takes it back"));
        self.feed_request(entry_point, &id, Event::Cancel);
    }

    /// The user looks at the request; what is told from now on must stay true.
    pub(super) fn show(&mut self, node: usize, id: &RequestId) {
        if self.users.get(id).is_some_and(|user| user.entry_point != node) {
            self.may_go_over(node, id);
            // A wish that the user has taken there is shown when it is on disk.
            if self.is_writing(node, &Actor::Request(id.clone())) {
                return;
            }
        }
        if self.users.get(id).is_none_or(|user| user.entry_point != node) {
            return;
        }
        let Some(negotiation) = self.nodes[node].running().and_then(|running| running.machines.negotiations.get(id))
        else {
            return;
        };
        let (stage, attempt) = (negotiation.stage(), negotiation.record().last_attempt);
        match self.users.hear(id, attempt, stage) {
            Ok(None) => {}
            Ok(Some((before, news))) => {
                self.note(Some(id), format_args!("the user sees: {news}"));
                self.check_news(node, id, &before);
                self.change_mind(id);
            }
            Err(what) => self.violate("what was told stays true", Some(id), what),
        }
        self.check_told(id);
    }
}
