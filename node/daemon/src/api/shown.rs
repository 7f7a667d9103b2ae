//! A request as the API shows it, made of what its entry point knows.

use broker::{
    ids::{RequestId, SiteId},
    negotiation::{Failure, Outcome, RequestRecord, Reservation, Round, RoundOutcome},
    plan::{Plan, Seat},
    time::Time,
};
use kolo_api::request_view::{
    Extension, ReasonView, RequestState, RequestView, ReservationView, ReservedHost, WorkPhase,
};
use kolo_config::contact;
use kolo_text::{price::price_text, words::site_text};

use crate::entry::{
    extensions::{end_with, seat_ends},
    request::{ShownStage, Snapshot},
};

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

/// The round that has made a plan. With a reservation of its own in the record, later rounds have looked for hosts in place of lost ones.
pub fn round_of<'a>(record: &'a RequestRecord, plan: &Plan) -> Option<&'a Round> {
    let rounds = record.history.rounds.iter().filter(|_| record.reservation.is_none());
    rounds.rev().find(|round| round.outcome == RoundOutcome::Planned(plan.start))
}

/// Shows a request at `now_ms` (Unix milliseconds). `words_of` gives what sites say of themselves.
pub fn request_view(family: &Family, now_ms: u64, words_of: impl Fn(&SiteId) -> SiteWords) -> RequestView {
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
