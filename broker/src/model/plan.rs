//! What the planner answers: a start with N hosts and their amounts, or that there is none. Nothing is held yet.
//!
//! Invariant: a [`Plan`] has N seats with distinct numbers on distinct hosts, and per resource their amounts add up to
//! `max(e_i, N d_i)`. `start_proven` is only set when every earlier start was excluded by proof.

use serde::{Deserialize, Serialize};

use crate::model::{
    cost::Cost,
    ids::{HostId, SeatNumber, ShapeNumber, SiteId},
    reason::{CutCounts, NearestMiss, Reason},
    request::ObjectiveKind,
    resources::Amounts,
    scale::Factor,
    tariff::Agreement,
    time::{Time, Window},
    traffic::{Loads, Traffic},
    variant::Variant,
};

/// Where a seat is at its site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// This host.
    Host(HostId),
    /// One of the hosts of a class. Which one is open until the seat begins.
    Floating {
        /// The class.
        class: HostId,
        /// The host that it would begin on as things stand.
        host: HostId,
    },
    /// The host that a floating seat was given when it began.
    Bound {
        /// The class.
        class: HostId,
        /// The host.
        host: HostId,
    },
}

impl Place {
    /// Its host; of a seat that floats the one that it would begin on as things stand.
    #[must_use]
    pub fn host(&self) -> &HostId {
        match self {
            Place::Host(host) | Place::Floating { host, .. } | Place::Bound { host, .. } => host,
        }
    }

    /// Whether its host is open.
    #[must_use]
    pub fn is_floating(&self) -> bool {
        matches!(self, Place::Floating { .. })
    }

    /// What its site has promised: the host, or one of a class. Names of classes and hosts differ in a site, so either is written as a
    /// host is.
    #[must_use]
    pub fn promised(&self) -> &HostId {
        match self {
            Place::Host(name) | Place::Floating { class: name, .. } | Place::Bound { class: name, .. } => name,
        }
    }

    /// What users see of it: the class until it is bound, the host from then on.
    #[must_use]
    pub fn shown(&self) -> &HostId {
        if self.is_floating() { self.promised() } else { self.host() }
    }
}

/// One of the N seats of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// Which of the N.
    pub number: SeatNumber,
    /// Its site.
    pub site: SiteId,
    /// Where it is there.
    pub place: Place,
    /// From when to when. All seats of a plan start together; on hosts of different speed they end apart.
    pub window: Window,
    /// Its share of every resource that the request names; of every resource of the host, when it takes the host whole.
    pub amounts: Amounts,
    /// For how much it is had; nothing where prices are not known.
    #[serde(default, skip_serializing_if = "Agreement::is_free")]
    pub agreed: Agreement,
}

impl Seat {
    /// Its host.
    #[must_use]
    pub fn host(&self) -> &HostId {
        self.place.host()
    }
}

/// What a plan is worth by the request's objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectiveValue {
    /// The objective.
    pub kind: ObjectiveKind,
    /// Its value; smaller is better. Seconds, or thousandths of a credit.
    pub value: i64,
    /// No plan inside the window has a smaller value, among the hosts looked at. Equal to `value` when that is proven; none when nothing
    /// is known, because seats were replaced, or found reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<i64>,
}

/// A plan: a start and N hosts with amounts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Which of the request's shapes it is of.
    #[serde(default, skip_serializing_if = "ShapeNumber::is_first")]
    pub shape: ShapeNumber,
    /// The start `t_s`.
    pub start: Time,
    /// The seats, in the order of their numbers; those of a plan are ordered by site and host as well, until a site gives other hosts.
    pub seats: Vec<Seat>,
    /// The traffic between the seats, which all last equally long then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// The factor at which a moldable request is planned.
    #[serde(default, skip_serializing_if = "Factor::is_one")]
    pub scale: Factor,
    /// What it is worth.
    pub objective: ObjectiveValue,
    /// The efficiency factor with the request placed (equation 3.2, largest use in the window).
    pub efficiency: f64,
    /// No host set of this value at this start has a higher factor. Equal to `efficiency` when the answer is optimal.
    pub efficiency_bound: f64,
    /// No better start exists, by proof, among the hosts looked at.
    pub start_proven: bool,
}

impl Plan {
    /// Which of all that the request allows it is.
    #[must_use]
    pub fn variant(&self) -> Variant {
        Variant { shape: self.shape, scale: self.scale }
    }

    /// The latest end of a seat.
    #[must_use]
    pub fn end(&self) -> Time {
        self.seats.iter().map(|seat| seat.window.end).max().unwrap_or(self.start)
    }

    /// What all seats together cost.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.seats.iter().map(|seat| seat.agreed.cost).sum()
    }

    /// The seat with this number.
    #[must_use]
    pub fn seat(&self, number: SeatNumber) -> Option<&Seat> {
        self.seats.binary_search_by_key(&number, |seat| seat.number).ok().map(|at| &self.seats[at])
    }

    /// What the sites' links carry from the start to the latest end.
    #[must_use]
    pub fn loads(&self) -> Loads {
        let sites = self.seats.iter().map(|seat| &seat.site);
        self.traffic.map(|traffic| traffic.loads(sites)).unwrap_or_default()
    }

    /// From the start to the latest end.
    #[must_use]
    pub fn window(&self) -> Window {
        Window { start: self.start, end: self.end() }
    }

    /// Whether no other host set at this start is better.
    #[must_use]
    pub fn is_optimal_at_start(&self) -> bool {
        self.efficiency >= self.efficiency_bound
    }
}

/// A plan that could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// What excluded it.
    pub reason: Reason,
    /// No feasible start exists, among the hosts looked at.
    pub start_proven: bool,
}

/// The planner's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanOutcome {
    /// A plan.
    Allocated(Plan),
    /// None, and why.
    Rejected(Rejection),
}

impl PlanOutcome {
    /// That a strategy has found no plan; it says neither why nor that there is none.
    #[must_use]
    pub fn unexplained(start: Time, asked: usize) -> PlanOutcome {
        let nearest = NearestMiss { start, hosts_available: 0, short: Vec::new(), cuts: Vec::new() };
        let reason = Reason::SearchLimit { asked: asked as u64, nearest };
        PlanOutcome::Rejected(Rejection { reason, start_proven: false })
    }

    /// The same with what has cut the hosts that the planner was not even given.
    #[must_use]
    pub fn with_cut(self, before: &CutCounts) -> PlanOutcome {
        match self {
            PlanOutcome::Rejected(Rejection { reason, start_proven }) => {
                PlanOutcome::Rejected(Rejection { reason: reason.with_cut(before), start_proven })
            }
            allocated @ PlanOutcome::Allocated(_) => allocated,
        }
    }

    /// The plan, if there is one.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        match self {
            PlanOutcome::Allocated(plan) => Some(plan),
            PlanOutcome::Rejected(_) => None,
        }
    }

    /// Whether the start, or its absence, is proven.
    #[must_use]
    pub fn start_proven(&self) -> bool {
        match self {
            PlanOutcome::Allocated(plan) => plan.start_proven,
            PlanOutcome::Rejected(rejection) => rejection.start_proven,
        }
    }
}
