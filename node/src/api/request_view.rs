//! A request as the API shows it.

use broker::{
    ids::{HostId, RequestId, SiteId},
    negotiation::{Failure, Loss, Outcome, RequestRecord, Standing},
    plan::Allocation,
    request::Request,
    resources::Amounts,
    time::Time,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::schema;
use crate::{
    contact,
    entry::{
        extensions::end_with,
        request::{ShownStage, Snapshot},
    },
    text::words::{reason_text, site_text},
};

/// See `docs/api.md`.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequestView {
    #[schema(value_type = String)]
    id: RequestId,
    #[schema(value_type = Option<String>)]
    label: Option<RequestId>,
    user: String,
    state: &'static str,
    phase: Option<&'static str>,
    revision: u64,
    submitted_ms: u64,
    elapsed_ms: u64,
    attempts: usize,
    conflicts: u32,
    #[schema(value_type = schema::Request)]
    request: Request,
    reservation: Option<ReservationView>,
    reason: Option<ReasonView>,
    /// The request whose reservation this one lengthens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    extends: Option<RequestId>,
    /// What lengthens this one's reservation; its end counts them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    extensions: Vec<ExtensionView>,
}

/// More time for the same hosts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Extension)]
struct ExtensionView {
    #[schema(value_type = String)]
    id: RequestId,
    state: &'static str,
    #[schema(value_type = Option<i64>)]
    start: Option<Time>,
    #[schema(value_type = Option<i64>)]
    end: Option<Time>,
    hosts: usize,
}

/// A request with those that lengthen its reservation, or the one that it lengthens.
pub struct Family {
    /// The request.
    pub snapshot: Snapshot,
    /// What lengthens it, the oldest first.
    pub parts: Vec<Snapshot>,
    /// What it lengthens.
    pub extends: Option<RequestId>,
}

/// What a site says of itself in its advert, for people.
#[derive(Debug, Default)]
pub struct SiteWords {
    /// Its name.
    pub name: String,
    /// How users reach its hosts, with places to fill in.
    pub contact: Option<String>,
}

/// Answer of `GET /v1/requests`.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequestList {
    /// Newest first.
    pub requests: Vec<RequestView>,
    /// For `after`, when there are more.
    pub next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ReservationView {
    #[schema(value_type = i64)]
    start: Time,
    #[schema(value_type = i64)]
    end: Time,
    efficiency: f64,
    efficiency_bound: f64,
    start_proven: bool,
    hosts: Vec<HostView>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReservedHost)]
struct HostView {
    #[schema(value_type = String)]
    site: SiteId,
    site_name: String,
    #[schema(value_type = String)]
    host: HostId,
    #[schema(value_type = std::collections::BTreeMap<String, u64>)]
    amounts: Amounts,
    /// How the user reaches it, in the words of its site's owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    contact: Option<String>,
    /// Why the host is lost, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Loss>)]
    lost: Option<Loss>,
}

/// Why there is no reservation.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReasonView {
    code: &'static str,
    detail: String,
    /// The site that refuses, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    site: Option<SiteId>,
}

impl ReasonView {
    fn new(code: &'static str, detail: impl Into<String>) -> ReasonView {
        ReasonView { code, detail: detail.into(), site: None }
    }
}

impl RequestView {
    /// Shows a request at `now_ms` (Unix milliseconds). `words_of` gives what sites say of themselves.
    pub fn new(family: &Family, now_ms: u64, words_of: impl Fn(&SiteId) -> SiteWords) -> RequestView {
        let Family { snapshot, parts, extends } = family;
        let record = &snapshot.record;
        let duration = record.request.duration();
        let reservation = snapshot.stage.allocation().map(|allocation| ReservationView {
            start: allocation.start,
            end: end_with(snapshot, parts).unwrap_or(allocation.start + duration),
            efficiency: allocation.efficiency,
            efficiency_bound: allocation.efficiency_bound,
            start_proven: allocation.start_proven,
            hosts: hosts_of(allocation, standing_of(&snapshot.stage), record, &words_of),
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
            attempts: record.history.tries.len(),
            conflicts: record.history.conflicts,
            request: record.request.clone(),
            reservation,
            reason: reason_of(&snapshot.stage, |site| words_of(site).name),
            extends: extends.clone(),
            extensions: parts.iter().map(|part| extension_view(part, now_ms)).collect(),
        }
    }
}

fn extension_view(part: &Snapshot, now_ms: u64) -> ExtensionView {
    let allocation = part.stage.allocation();
    let start = allocation.map(|allocation| allocation.start);
    ExtensionView {
        id: part.record.id.clone(),
        state: state_of(part, &[], now_ms),
        start,
        end: start.map(|start| start + part.record.request.duration()),
        hosts: part.record.request.hosts(),
    }
}

fn standing_of(stage: &ShownStage) -> Option<&Standing> {
    match stage {
        ShownStage::Degraded { standing, .. } => Some(standing),
        _ => None,
    }
}

fn hosts_of(
    allocation: &Allocation,
    standing: Option<&Standing>,
    record: &RequestRecord,
    words_of: impl Fn(&SiteId) -> SiteWords,
) -> Vec<HostView> {
    let view = |grant: &broker::plan::HostGrant| {
        let words = words_of(&grant.site);
        let fill = |text: &String| contact::fill(text, grant.host.as_str(), record.user.as_str(), record.id.as_str());
        HostView {
            site: grant.site.clone(),
            site_name: words.name,
            host: grant.host.clone(),
            amounts: grant.amounts.clone(),
            contact: words.contact.as_ref().map(fill),
            lost: standing.and_then(|standing| standing.lost.get(&grant.site)?.get(&grant.host).copied()),
        }
    };
    allocation.grants.iter().map(view).collect()
}

/// The state in the words of the design, of a request with `parts` that lengthen it.
pub fn state_of(snapshot: &Snapshot, parts: &[Snapshot], now_ms: u64) -> &'static str {
    let now = Time(i64::try_from(now_ms / 1000).unwrap_or(i64::MAX));
    match &snapshot.stage {
        ShownStage::Planning | ShownStage::BackingOff => "planning",
        ShownStage::Holding(_) => "holding",
        ShownStage::Confirming(_) => "confirming",
        ShownStage::Stands(_) | ShownStage::Degraded { .. }
            if end_with(snapshot, parts).is_some_and(|end| end <= now) =>
        {
            "ended"
        }
        ShownStage::Stands(allocation) if now < allocation.start => "confirmed",
        ShownStage::Stands(_) => "active",
        ShownStage::Degraded { is_rebrokering: true, .. } => "rebrokering",
        ShownStage::Degraded { .. } => "degraded",
        ShownStage::Closed { outcome, releasing } => match outcome {
            Outcome::Rejected { .. } => "rejected",
            Outcome::Failed(Failure::Refused { .. }) => "refused",
            Outcome::Failed(_) => "failed",
            Outcome::Cancelled(_) if *releasing || parts.iter().any(is_releasing) => "cancelling",
            Outcome::Cancelled(_) => "cancelled",
            Outcome::HandedOver => "handed_over",
        },
    }
}

fn is_releasing(part: &Snapshot) -> bool {
    matches!(part.stage, ShownStage::Closed { releasing: true, .. })
}

fn phase_of(stage: &ShownStage) -> Option<&'static str> {
    match stage {
        ShownStage::Planning | ShownStage::BackingOff => Some("find"),
        ShownStage::Holding(_) | ShownStage::Confirming(_) => Some("reserve"),
        ShownStage::Stands(_) | ShownStage::Degraded { .. } | ShownStage::Closed { .. } => None,
    }
}

/// Why there is no reservation, or why a lost host has not been replaced; none when all is well, or may still be. `name_of`
/// gives the name of a site, empty when it is not known.
pub fn reason_of(stage: &ShownStage, name_of: impl Fn(&SiteId) -> String) -> Option<ReasonView> {
    let outcome = match stage {
        ShownStage::Closed { outcome, .. } => outcome,
        ShownStage::Degraded { standing, .. } => standing.failure.as_ref()?,
        _ => return None,
    };
    Some(match outcome {
        Outcome::Rejected { reason, .. } => ReasonView::new(reason.code(), reason_text(reason)),
        Outcome::Failed(Failure::Refused { site, detail }) => {
            let name = name_of(site);
            let who = site_text(site.as_str(), Some(name.as_str()).filter(|name| !name.is_empty()));
            ReasonView { site: Some(site.clone()), ..ReasonView::new("refused", format!("site {who}: {detail}")) }
        }
        Outcome::Failed(failure @ Failure::PatienceOver { .. }) => {
            ReasonView::new("patience_over", failure.to_string())
        }
        Outcome::Failed(failure @ Failure::Unreachable { .. }) => ReasonView::new("unreachable", failure.to_string()),
        Outcome::HandedOver => {
            ReasonView::new("handed_over", "another node acts for the reservation now, because its user wanted that")
        }
        Outcome::Cancelled(_) => ReasonView::new("cancelled", "taken back by the user"),
    })
}
