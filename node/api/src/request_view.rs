//! A request as the API shows it.

use std::{collections::BTreeSet, fmt};

use broker::{
    cost::Cost,
    ids::{HostId, RequestId, SeatNumber, ShapeNumber, SiteId},
    negotiation::Loss,
    plan::ObjectiveValue,
    reason::Reason,
    request::Request,
    resources::Amounts,
    scale::Factor,
    time::{Span, Time},
    variant::Variant,
};
use kolo_text::words::reason_text;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

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

    pub fn new(code: &str, detail: impl Into<String>) -> ReasonView {
        ReasonView { code: code.to_owned(), detail: detail.into(), site: None }
    }
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
}

/// What stands for the newest request on the command line.
pub const LAST: &str = "last";

/// Answer of `POST /v1/requests/read`.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReadRequest {
    #[schema(value_type = schema::Request)]
    pub request: Request,
}
