//! A request as the API shows it.

use std::{collections::BTreeSet, fmt};

use broker::{
    cost::Cost,
    ids::{HostId, RequestId, SeatNumber, ShapeNumber, SiteId},
    negotiation::{Failure, Loss, Outcome, RequestRecord, Reservation, Round, RoundOutcome},
    plan::{ObjectiveValue, Plan, Seat},
    reason::Reason,
    request::Request,
    resources::Amounts,
    scale::Factor,
    time::{Span, Time},
    variant::Variant,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;
use crate::{
    contact,
    entry::{
        extensions::{end_with, seat_ends},
        request::{ShownStage, Snapshot},
    },
    text::{
        price::price_text,
        words::{reason_text, site_text},
    },
};

/// So long after its start the coordinator of a reservation that may wait has heard whether it does.
const WAIT_TOLD_IN: Span = Span(5);

/// Whether a number is left out where it is written.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
pub fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A request at its entry point; `docs/api.md` says what its keys mean.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RequestView {
    pub id: RequestId,
    pub label: Option<RequestId>,
    pub user: String,
    pub state: RequestState,
    pub phase: Option<WorkPhase>,
    pub revision: u64,
    pub submitted_ms: u64,
    pub elapsed_ms: u64,
    pub attempts: usize,
    pub conflicts: u32,
    #[schema(value_type = schema::Request)]
    pub request: Request,
    pub reservation: Option<ReservationView>,
    pub reason: Option<ReasonView>,
    /// How the command ended that it was for, where the rest was given back because of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// The request whose reservation this one lengthens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extends: Option<RequestId>,
    /// What lengthens this one's reservation; its end counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<Extension>,
}

/// Where a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestState {
    Planning,
    Holding,
    Confirming,
    Confirmed,
    Active,
    Ended,
    /// The command that it was for has ended, and the rest of the time was given back.
    Done,
    Rejected,
    Refused,
    Failed,
    Cancelling,
    Cancelled,
    Degraded,
    Rebrokering,
    HandedOver,
}

impl RequestState {
    /// Whether nothing changes any more without a user, or by time alone.
    pub fn is_settled(self) -> bool {
        use RequestState::{Cancelling, Confirming, Holding, Planning, Rebrokering};
        !matches!(self, Planning | Holding | Confirming | Rebrokering | Cancelling)
    }

    /// Whether there is a reservation, or was one until its end.
    pub fn is_reserved(self) -> bool {
        use RequestState::{Active, Confirmed, Degraded, Ended, Rebrokering};
        matches!(self, Confirmed | Active | Ended | Degraded | Rebrokering)
    }

    /// Whether there is a reservation, or was one until its end or that of the command that it was for.
    pub fn was_reserved(self) -> bool {
        self.is_reserved() || self == RequestState::Done
    }

    /// The state in words.
    pub fn words(self) -> &'static str {
        match self {
            RequestState::Planning => "planning",
            RequestState::Holding => "holding",
            RequestState::Confirming => "confirming",
            RequestState::Confirmed => "confirmed",
            RequestState::Active => "active",
            RequestState::Ended => "ended",
            RequestState::Done => "done",
            RequestState::Rejected => "rejected",
            RequestState::Refused => "refused",
            RequestState::Failed => "failed",
            RequestState::Cancelling => "cancelling",
            RequestState::Cancelled => "cancelled",
            RequestState::Degraded => "degraded",
            RequestState::Rebrokering => "rebrokering",
            RequestState::HandedOver => "handed over",
        }
    }
}

impl fmt::Display for RequestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}

/// What is being worked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkPhase {
    /// Hosts are looked for and a plan is made.
    Find,
    /// The sites of a plan are asked to hold and confirm.
    Reserve,
}

/// More time for the same hosts.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Extension {
    pub id: RequestId,
    pub state: RequestState,
    pub start: Option<Time>,
    pub end: Option<Time>,
    pub hosts: usize,
}

/// A request with those that lengthen its reservation, or the one that it lengthens.
pub struct Family {
    pub snapshot: Snapshot,
    /// What lengthens it, the oldest first.
    pub parts: Vec<Snapshot>,
    /// What it lengthens.
    pub extends: Option<RequestId>,
}

/// What a site says of itself in its advert, for people.
#[derive(Debug, Default)]
pub struct SiteWords {
    pub name: String,
    /// How users reach its hosts, with places to fill in.
    pub contact: Option<String>,
}

/// Answer of `GET /v1/requests`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RequestList {
    /// Newest first.
    pub requests: Vec<RequestView>,
    /// For `after`, when there are more.
    pub next: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReservationView {
    /// Which of the request's shapes it is of, from 0, where it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, nullable = false)]
    pub shape: Option<ShapeNumber>,
    /// The factor by which it is scaled, in thousandths, where the request is moldable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, nullable = false)]
    pub scale: Option<Factor>,
    pub start: Time,
    /// Of its last host.
    pub end: Time,
    /// How much later than reserved it begins, so that an own job of its site can end; left out when it does not.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    #[schema(value_type = u64)]
    pub wait: Span,
    #[schema(value_type = schema::ObjectiveValue)]
    pub objective: ObjectiveValue,
    /// What its hosts cost together, in thousandths of a credit; left out when that is nothing. What lengthens it has its own.
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    #[schema(value_type = u64)]
    pub cost: Cost,
    /// What the budget has to do with it and what a larger one would do, in words; left out where there is none, or nothing costs anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub price: Option<String>,
    /// Hosts that the last round of planning looked at.
    pub hosts_seen: Option<usize>,
    /// Hosts that fit, and that it did not look at, since their schedules are not known; left out when there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hosts_left_out: usize,
    pub efficiency: f64,
    pub efficiency_bound: f64,
    pub start_proven: bool,
    pub hosts: Vec<ReservedHost>,
}

impl ReservationView {
    /// Which of all that the request allows it is.
    pub fn variant(&self) -> Variant {
        Variant { shape: self.shape.unwrap_or_default(), scale: self.scale.unwrap_or_default() }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReservedHost {
    pub site: SiteId,
    pub site_name: String,
    /// With `class`, the one that it would be as things stand.
    pub host: HostId,
    /// While it is open which host of this class it will be; that is settled when it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<HostId>,
    /// Which of the request's seats.
    #[schema(value_type = u32)]
    pub seat: SeatNumber,
    /// Its own end; that of the reservation is the latest.
    pub end: Time,
    #[schema(value_type = schema::Amounts)]
    pub amounts: Amounts,
    /// In thousandths of a credit; left out when it is nothing.
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    #[schema(value_type = u64)]
    pub cost: Cost,
    /// How the user reaches it, in the words of its site's owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
    /// Why the host is lost, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Loss>)]
    pub lost: Option<Loss>,
}

/// Why there is no reservation.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReasonView {
    pub code: String,
    pub detail: String,
    /// The site that refuses, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<SiteId>,
}

impl ReasonView {
    /// Why there is no plan.
    pub fn of(reason: &Reason) -> ReasonView {
        ReasonView::new(reason.code(), reason_text(reason))
    }

    fn new(code: &str, detail: impl Into<String>) -> ReasonView {
        ReasonView { code: code.to_owned(), detail: detail.into(), site: None }
    }
}

/// The round that has made a plan. With a reservation of its own in the record, later rounds have looked for hosts in place of lost ones.
pub fn round_of<'a>(record: &'a RequestRecord, plan: &Plan) -> Option<&'a Round> {
    let rounds = record.history.rounds.iter().filter(|_| record.reservation.is_none());
    rounds.rev().find(|round| round.outcome == RoundOutcome::Planned(plan.start))
}

impl RequestView {
    /// When it is certain that its reservation begins: where it may yet wait for own jobs of its site, a while after its start, in which its
    /// coordinator hears of that.
    pub fn begins_at(&self) -> Option<Time> {
        let reservation = self.reservation.as_ref()?;
        let may_wait = reservation.wait.is_zero() && !self.request.demand().slack().is_zero();
        let sites: BTreeSet<&SiteId> = reservation.hosts.iter().map(|host| &host.site).collect();
        let later = if may_wait && sites.len() == 1 { WAIT_TOLD_IN } else { Span::default() };
        Some(reservation.start + later)
    }

    /// Shows a request at `now_ms` (Unix milliseconds). `words_of` gives what sites say of themselves.
    pub fn new(family: &Family, now_ms: u64, words_of: impl Fn(&SiteId) -> SiteWords) -> RequestView {
        let Family { snapshot, parts, extends } = family;
        let record = &snapshot.record;
        let reservation = snapshot.stage.plan().map(|plan| ReservationView {
            shape: Some(plan.shape).filter(|_| record.request.has_shapes()),
            scale: record.request.demand().scale().map(|_| plan.scale),
            start: plan.start,
            end: end_with(snapshot, parts).unwrap_or(plan.end()),
            wait: record.reservation.as_ref().map(Reservation::wait).unwrap_or_default(),
            objective: plan.objective,
            cost: plan.cost(),
            price: record.request.budget().and_then(|budget| price_text(plan, Some(budget), round_of(record, plan))),
            hosts_seen: round_of(record, plan).map(|round| round.found_hosts),
            hosts_left_out: round_of(record, plan).map_or(0, |round| round.left_out + round.without_schedule),
            efficiency: plan.efficiency,
            efficiency_bound: plan.efficiency_bound,
            start_proven: plan.start_proven,
            hosts: hosts_of(plan, parts, degraded(&snapshot.stage), record, &words_of),
        });
        let elapsed_ms =
            if snapshot.stage.is_under_way() { now_ms.saturating_sub(record.submitted_ms) } else { record.elapsed_ms };
        RequestView {
            id: record.id.clone(),
            label: record.request.id().cloned(),
            user: record.user.clone(),
            state: state_of(snapshot, parts, now_ms),
            phase: phase_of(&snapshot.stage),
            revision: snapshot.revision,
            submitted_ms: record.submitted_ms,
            elapsed_ms,
            attempts: record.history.attempts.len(),
            conflicts: record.history.conflicts,
            request: record.request.clone(),
            reservation,
            reason: reason_of(snapshot, |site| words_of(site).name),
            exit_code: record.exit_code,
            extends: extends.clone(),
            extensions: parts.iter().map(|part| extension_view(part, now_ms)).collect(),
        }
    }
}

fn extension_view(part: &Snapshot, now_ms: u64) -> Extension {
    let plan = part.stage.plan();
    Extension {
        id: part.record.id.clone(),
        state: state_of(part, &[], now_ms),
        start: plan.map(|plan| plan.start),
        end: plan.map(Plan::end),
        hosts: plan.map_or_else(|| part.record.request.demand().seats(), |plan| plan.seats.len()),
    }
}

fn degraded(stage: &ShownStage) -> Option<&Reservation> {
    match stage {
        ShownStage::Degraded { reservation, .. } => Some(reservation),
        _ => None,
    }
}

/// The seats of a plan, each with its end when `parts` lengthen it.
fn hosts_of(
    plan: &Plan,
    parts: &[Snapshot],
    reservation: Option<&Reservation>,
    record: &RequestRecord,
    words_of: impl Fn(&SiteId) -> SiteWords,
) -> Vec<ReservedHost> {
    let view = |(grant, end): (&Seat, Time)| {
        let words = words_of(&grant.site);
        let fill = |text: &String| contact::fill(text, grant.host().as_str(), record.user.as_str(), record.id.as_str());
        let class = grant.place.is_floating().then(|| grant.place.promised().clone());
        ReservedHost {
            site: grant.site.clone(),
            site_name: words.name,
            host: grant.host().clone(),
            seat: grant.number,
            end,
            amounts: grant.amounts.clone(),
            cost: grant.agreed.cost,
            contact: words.contact.as_ref().filter(|_| class.is_none()).map(fill),
            class,
            lost: reservation.and_then(|reservation| reservation.lost.get(&grant.number).copied()),
        }
    };
    plan.seats.iter().zip(seat_ends(plan, parts)).map(view).collect()
}

/// The state in the words of the design, of a request with `parts` that lengthen it.
pub fn state_of(snapshot: &Snapshot, parts: &[Snapshot], now_ms: u64) -> RequestState {
    let now = Time(i64::try_from(now_ms / 1000).unwrap_or(i64::MAX));
    match &snapshot.stage {
        ShownStage::Planning | ShownStage::BackingOff => RequestState::Planning,
        ShownStage::Holding(_) => RequestState::Holding,
        ShownStage::Confirming(_) => RequestState::Confirming,
        ShownStage::Reserved(_) | ShownStage::Degraded { .. }
            if end_with(snapshot, parts).is_some_and(|end| end <= now) =>
        {
            RequestState::Ended
        }
        ShownStage::Reserved(plan) if now < plan.start => RequestState::Confirmed,
        ShownStage::Reserved(_) => RequestState::Active,
        ShownStage::Degraded { is_rebrokering: true, .. } => RequestState::Rebrokering,
        ShownStage::Degraded { .. } => RequestState::Degraded,
        ShownStage::Closed { outcome, releasing } => match outcome {
            Outcome::Rejected { .. } => RequestState::Rejected,
            Outcome::Failed(Failure::Refused { .. }) => RequestState::Refused,
            Outcome::Failed(_) => RequestState::Failed,
            Outcome::Cancelled(_) if snapshot.record.exit_code.is_some() => RequestState::Done,
            Outcome::Cancelled(_) if *releasing || parts.iter().any(is_releasing) => RequestState::Cancelling,
            Outcome::Cancelled(_) => RequestState::Cancelled,
            Outcome::HandedOver => RequestState::HandedOver,
        },
    }
}

fn is_releasing(part: &Snapshot) -> bool {
    matches!(part.stage, ShownStage::Closed { releasing: true, .. })
}

fn phase_of(stage: &ShownStage) -> Option<WorkPhase> {
    match stage {
        ShownStage::Planning | ShownStage::BackingOff => Some(WorkPhase::Find),
        ShownStage::Holding(_) | ShownStage::Confirming(_) => Some(WorkPhase::Reserve),
        ShownStage::Reserved(_) | ShownStage::Degraded { .. } | ShownStage::Closed { .. } => None,
    }
}

/// Why there is no reservation, or why a lost host has not been replaced; none when all is well, or may still be. `name_of`
/// gives the name of a site, empty when it is not known.
pub fn reason_of(snapshot: &Snapshot, name_of: impl Fn(&SiteId) -> String) -> Option<ReasonView> {
    let outcome = match &snapshot.stage {
        ShownStage::Closed { outcome: Outcome::Cancelled(_), .. } if snapshot.record.exit_code.is_some() => {
            return None;
        }
        ShownStage::Closed { outcome, .. } => outcome,
        ShownStage::Degraded { reservation, .. } => reservation.failure.as_ref()?,
        _ => return None,
    };
    Some(match outcome {
        Outcome::Rejected { reason, .. } => ReasonView::of(reason),
        Outcome::Failed(Failure::Refused { site, detail }) => {
            let name = name_of(site);
            let who = site_text(site.as_str(), &name);
            ReasonView { site: Some(site.clone()), ..ReasonView::new("refused", format!("site {who}: {detail}")) }
        }
        Outcome::Failed(failure @ Failure::PatienceOver { .. }) => {
            ReasonView::new("patience_over", failure.to_string())
        }
        Outcome::Failed(failure @ Failure::Batch { .. }) => ReasonView::new("batch", failure.to_string()),
        Outcome::Failed(failure @ Failure::Unreachable { .. }) => ReasonView::new("unreachable", failure.to_string()),
        Outcome::HandedOver => {
            ReasonView::new("handed_over", "another node coordinates the reservation now, because its user wanted that")
        }
        Outcome::Cancelled(_) => ReasonView::new("cancelled", "taken back by the user"),
    })
}
