//! What users ask and cancel, and what was reported to them.
//!
//! Invariant: what was reported to a user is kept here apart from every node, so that no node can take it back unseen.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use broker::{
    cost::Cost,
    demand::Length,
    ids::{RequestId, SiteId},
    negotiation::{Outcome, Reservation, Stage},
    plan::{Plan, Seat},
    request::{Request, RequestDocument},
    resources::Amounts,
    time::Time,
    trust::{PublicKey, RequestStatement},
};
use ed25519_dalek::SigningKey;
use rand::{RngExt, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    figures::Figures,
    names::{self, amounts},
    options::Options,
};

/// What was reported to a user.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// Nothing yet.
    Nothing,
    /// A reservation.
    Reserved { attempt: u32, plan: Plan },
    /// A reservation that has lost hosts.
    Degraded(Box<Reservation>),
    /// The request is over.
    Over(Outcome),
}

impl Report {
    fn of(attempt: u32, stage: Stage<'_>) -> Report {
        match stage {
            Stage::Reserved(plan) => Report::Reserved { attempt, plan: plan.clone() },
            Stage::Degraded { reservation, .. } => {
                Report::Degraded(Box::new(Reservation { repair: None, failure: None, ..reservation.clone() }))
            }
            Stage::Closed { outcome, .. } => Report::Over(outcome.clone()),
            Stage::Planning | Stage::Holding(_) | Stage::Confirming(_) | Stage::BackingOff => Report::Nothing,
        }
    }

    /// The plan of the reservation, with the hosts that are lost.
    pub fn plan(&self) -> Option<&Plan> {
        match self {
            Report::Reserved { plan, .. } => Some(plan),
            Report::Degraded(reservation) => Some(&reservation.plan),
            Report::Nothing | Report::Over(_) => None,
        }
    }

    /// Whether the reservation that was reported was made in an earlier attempt: a repair keeps the attempt, a move does not.
    pub fn is_before(&self, attempt: u32) -> bool {
        match self {
            Report::Reserved { attempt: reported, .. } => *reported < attempt,
            Report::Degraded(reservation) => reservation.parts.iter().all(|part| part.attempt < attempt),
            Report::Nothing | Report::Over(_) => false,
        }
    }

    /// Whether this seat was reported as lost.
    pub fn is_lost(&self, seat: &Seat) -> bool {
        matches!(self, Report::Degraded(reservation) if reservation.is_lost(seat.number))
    }
}

/// A request as its user knows it.
#[derive(Debug)]
pub struct UserRequest {
    /// Its number among the requests of the run.
    pub number: u64,
    pub request: Request,
    /// The plan that came with it.
    pub handed_in: Option<Plan>,
    /// The batch that it is of, and what all of that may cost.
    pub batch: Option<(u64, Option<Cost>)>,
    /// The batch with which it is reserved or not at all.
    pub tied: Option<u64>,
    pub user: PublicKey,
    /// The node that the user asks about it.
    pub entry_point: usize,
    /// The term in which the user has authorized that node, and its name.
    pub term: (u64, SiteId),
    /// Nodes that the user has ever signed for.
    pub signed_for: BTreeSet<usize>,
    /// The user has cancelled it; whether that has arrived is another matter.
    pub is_cancelled: bool,
    /// What was reported last.
    pub report: Report,
}

/// All users.
#[derive(Debug)]
pub struct Users {
    requests: BTreeMap<RequestId, UserRequest>,
    keys: Vec<SigningKey>,
}

impl Users {
    /// Users with these keys, who have asked nothing yet.
    pub fn new(keys: Vec<SigningKey>) -> Users {
        Users { requests: BTreeMap::new(), keys }
    }

    /// The key that the user with this number signs with, counted round.
    pub fn signing_key(&self, number: u64) -> &SigningKey {
        &self.keys[usize::try_from(number).unwrap_or(0) % self.keys.len()]
    }

    /// The keys that users sign with.
    pub fn keys(&self) -> &[SigningKey] {
        &self.keys
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

    /// A user submits a request through an entry point.
    pub fn submit(
        &mut self,
        number: u64,
        request: Request,
        handed_in: Option<Plan>,
        (entry_point, site): (usize, SiteId),
    ) {
        let user = UserRequest {
            number,
            user: self.key(number),
            request,
            handed_in,
            batch: None,
            tied: None,
            entry_point,
            term: (RequestStatement::FIRST_TERM, site),
            signed_for: BTreeSet::from([entry_point]),
            is_cancelled: false,
            report: Report::Nothing,
        };
        self.requests.insert(names::request(number), user);
    }

    /// A request is of this batch, which may cost so much; `is_tied`: it is reserved as a whole or not at all.
    pub fn join_batch(&mut self, id: &RequestId, batch: u64, budget: Option<Cost>, is_tied: bool) {
        if let Some(user) = self.requests.get_mut(id) {
            (user.batch, user.tied) = (Some((batch, budget)), is_tied.then_some(batch));
        }
    }

    /// The user of a request cancels it.
    pub fn cancel(&mut self, id: &RequestId) {
        if let Some(user) = self.requests.get_mut(id) {
            user.is_cancelled = true;
        }
    }

    /// The user of a request signs for a node.
    pub fn sign_for(&mut self, id: &RequestId, node: usize) {
        if let Some(user) = self.requests.get_mut(id) {
            user.signed_for.insert(node);
        }
    }

    /// The user of a request asks another node from now on, if the term that it has is higher than that of the present one.
    /// What the present one has reported counts no longer.
    pub fn go_over(&mut self, id: &RequestId, node: usize, term: (u64, SiteId)) -> bool {
        let Some(user) = self.requests.get_mut(id) else { return false };
        let is_higher = user.term < term;
        if is_higher {
            (user.entry_point, user.term, user.report) = (node, term, Report::Nothing);
        }
        is_higher
    }

    /// The user of a request looks at it. Returns what was reported before, and what is now, when there is news.
    ///
    /// # Errors
    /// What contradicts what was reported before, unless that may have been lost (`may_differ`).
    pub fn look(
        &mut self,
        id: &RequestId,
        attempt: u32,
        stage: Stage<'_>,
        may_differ: bool,
    ) -> Result<Option<(Report, String)>, String> {
        let Some(user) = self.requests.get_mut(id) else { return Ok(None) };
        let news = Report::of(attempt, stage);
        if user.report == news {
            return Ok(None);
        }
        let is_consistent = match (&user.report, &news) {
            (Report::Nothing, _) | (Report::Over(Outcome::HandedOver), Report::Over(_)) => true,
            (_, Report::Over(Outcome::HandedOver)) if user.signed_for.len() > 1 => true,
            (Report::Reserved { .. } | Report::Degraded(_), now) => match now {
                Report::Reserved { .. } | Report::Degraded(_) => true,
                Report::Over(Outcome::Cancelled(_)) => user.is_cancelled,
                Report::Over(_) | Report::Nothing => false,
            },
            (Report::Over(_), _) => false,
        };
        if !is_consistent && !may_differ {
            return Err(format!("reported: {}; and then: {}", words(&user.report), words(&news)));
        }
        let text = words(&news);
        Ok(Some((mem::replace(&mut user.report, news), text)))
    }

    /// Counts what came of the requests.
    pub fn count(&self, figures: &mut Figures) {
        for user in self.requests.values() {
            figures.requests += 1;
            if let Some(plan) = user.report.plan() {
                let demand = user.request.shape(plan.shape).unwrap_or(user.request.demand());
                figures.moldable += u64::from(demand.scale().is_some());
                figures.scaled += u64::from(!plan.scale.is_one());
                figures.of_shapes += u64::from(demand.is_of_shape());
                figures.of_other_shapes += u64::from(!plan.shape.is_first());
                figures.of_work += u64::from(matches!(demand.length(), Length::Work(_)));
                figures.by_deadline += u64::from(user.request.window().deadline.is_some());
                figures.of_whole_hosts += u64::from(demand.is_exclusive());
                figures.with_traffic += u64::from(demand.traffic().is_some());
                figures.of_batches += u64::from(user.batch.is_some());
                figures.handed_in += u64::from(user.handed_in.is_some());
                figures.at_few_sites += u64::from(demand.sites_max().is_some());
            }
            *match &user.report {
                Report::Reserved { .. } | Report::Degraded(_) => &mut figures.reservations,
                Report::Over(Outcome::Cancelled(_) | Outcome::HandedOver) => &mut figures.cancelled,
                Report::Over(Outcome::Rejected { .. }) => &mut figures.rejected,
                Report::Over(Outcome::Failed(_)) => &mut figures.failed,
                Report::Nothing => &mut figures.never_told,
            } += 1;
        }
    }
}

fn words(report: &Report) -> String {
    match report {
        Report::Nothing => "it is under way".to_owned(),
        Report::Reserved { attempt, plan } => format!("#{attempt} is reserved, {}", hosts(plan)),
        Report::Degraded(reservation) => {
            let lost = reservation.lost.iter().map(|(seat, loss)| format!("{seat} ({loss})")).collect::<Vec<_>>();
            format!("it is reserved, {}, without seats {}", hosts(&reservation.plan), lost.join(", "))
        }
        Report::Over(Outcome::Cancelled(_)) => "it is cancelled".to_owned(),
        Report::Over(Outcome::HandedOver) => "another node has taken it over".to_owned(),
        Report::Over(Outcome::Rejected { reason, .. }) => format!("rejected, {}", reason.detail()),
        Report::Over(Outcome::Failed(failure)) => failure.to_string(),
    }
}

fn hosts(plan: &Plan) -> String {
    let names = plan.seats.iter().map(|grant| format!("{}={}/{}", grant.number, grant.site, grant.host()));
    format!("at {} on {}", plan.start.0, names.collect::<Vec<_>>().join(" "))
}

/// Draws a request; `None` when the draw makes no sense.
pub fn draw_request(
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
        hosts,
        duration: Some(duration),
        earliest: Some(earliest),
        latest: Some(Time(earliest.0 + reach)),
        per_host,
        total,
        move_on_loss,
        ..RequestDocument::default()
    };
    Request::try_from(document).ok()
}
