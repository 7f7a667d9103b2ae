//! What the planner answers: a start with N hosts and their amounts, or why there is none. Nothing is held yet.
//!
//! Invariant: a [`Plan`] has N seats with distinct numbers on distinct hosts, and per resource their amounts add up to
//! `max(e_i, N d_i)`. `start_proven` is only set when every earlier start was excluded by proof.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::model::{
    amount::{Amount, format_amount},
    cost::Cost,
    demand::Unmet,
    ids::{HostId, SeatNumber, ShapeNumber, SiteId},
    request::ObjectiveKind,
    resources::{Amounts, ResourceName},
    scale::Factor,
    tariff::{Agreement, Parts},
    time::{Span, Time, Window},
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

/// How many hosts each constraint of phase I cut; a host is counted once, at the first constraint it fails.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutCounts {
    /// Not among the named candidates.
    pub candidates: u64,
    /// By required attribute, `key=value`.
    pub attributes: Vec<(String, u64)>,
    /// Slower than asked, or so slow that the work would never end.
    pub speed: u64,
    /// By resource whose capacity is below `d_i`.
    pub resources: Vec<(ResourceName, u64)>,
}

impl CutCounts {
    /// Counts `hosts` hosts that lack this.
    pub fn add(&mut self, unmet: Unmet, hosts: u64) {
        fn count<K: PartialEq>(counts: &mut Vec<(K, u64)>, key: K, hosts: u64) {
            match counts.iter_mut().find(|(known, _)| *known == key) {
                Some((_, count)) => *count += hosts,
                None => counts.push((key, hosts)),
            }
        }
        match unmet {
            Unmet::Candidates => self.candidates += hosts,
            Unmet::Attribute(key, value) => count(&mut self.attributes, format!("{key}={value}"), hosts),
            Unmet::Speed(_) => self.speed += hosts,
            Unmet::Minimum(name, _) => count(&mut self.resources, name, hosts),
        }
    }
}

/// What keeps hosts from a start, beside what is booked on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The request's deadline: a seat would end after it.
    Deadline(Time),
    /// The owner's least notice: a seat would start before it.
    Notice(Span),
    /// The owner's horizon: a seat would end behind it.
    Horizon(Span),
    /// The owner's share: a seat wants more of the host.
    Share(Parts),
    /// The request's limit of sites: none so few have hosts enough.
    SitesMax(u64),
}

impl Limit {
    fn words(self, show_time: &dyn Fn(Time) -> String) -> String {
        let span = |Span(seconds)| match [(86_400, "d"), (3_600, "h"), (60, "min")]
            .iter()
            .find(|(unit, _)| seconds % unit == 0)
        {
            Some((unit, name)) => format!("{}{name}", seconds / unit),
            None => format!("{seconds}s"),
        };
        match self {
            Limit::Deadline(deadline) => format!("deadline {}", show_time(deadline)),
            Limit::Notice(least) => format!("least notice {}", span(least)),
            Limit::Horizon(horizon) => format!("horizon {}", span(horizon)),
            Limit::Share(Parts(share)) => format!("share {} %", f64::from(share) / 10.0),
            Limit::SitesMax(most) => format!("sites_max {most}"),
        }
    }
}

/// The start that came nearest to a solution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearestMiss {
    /// The start.
    pub start: Time,
    /// Hosts that meet every per-host minimum through the whole window.
    pub hosts_available: u64,
    /// Resources of which even the N hosts with the most have too little, and by how much. Empty although enough hosts
    /// are available: no N of them reach all totals at once.
    pub short: Vec<(ResourceName, Amount)>,
    /// What keeps how many of the other hosts from it, a host counted once; what keeps most first, and not all where these are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<(Limit, u64)>,
}

/// Why a batch has found no alternative for a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Absence {
    /// It asks more of a host than any has, in words.
    TooLarge(String),
    /// This excludes it in the hosts and the money that were left for it.
    Excluded(Box<Reason>),
    /// The search was ended before its turn.
    Ended,
    /// No start was found for it beside the others.
    Crowded,
}

/// What excluded a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Phase I: fewer hosts than asked satisfy the minima and attributes, whatever their schedules.
    TooFewHosts {
        /// Hosts that do.
        found: u64,
        /// N.
        asked: u64,
        /// What cut the others.
        cut: CutCounts,
    },
    /// Phase II: even the N largest hosts together lack capacity.
    Capacity {
        /// The resource.
        resource: ResourceName,
        /// Asked in sum.
        needed: Amount,
        /// What the N largest hosts have.
        best: Amount,
    },
    /// Phases III and IV: no start inside the window works.
    NoWindow {
        /// N.
        asked: u64,
        /// The start that came nearest.
        nearest: NearestMiss,
    },
    /// The search limit was reached at a start that no bound excludes; a higher effort may find a plan.
    SearchLimit {
        /// N.
        asked: u64,
        /// The first such start.
        nearest: NearestMiss,
    },
    /// The latest start has already passed.
    WindowPassed {
        /// The latest start asked.
        latest: Time,
        /// The earliest possible.
        earliest: Time,
    },
    /// The plan of a batch leaves it out.
    Postponed {
        /// Alternatives that were found, of which none was chosen.
        alternatives: u64,
        /// Why none was found, where none was.
        because: Option<Absence>,
    },
    /// Enough hosts are free at some starts, and everywhere the sites' links do not bear the traffic between them.
    Uplink {
        /// The site whose link is short.
        site: SiteId,
        /// At this start.
        start: Time,
        /// So many seats of the site would be too many.
        seats: u64,
        /// What they would put on its link, in Mbit/s.
        load: Amount,
        /// What the link has free through the whole window, in Mbit/s.
        room: Amount,
    },
    /// Each of the shapes of the request is excluded, in their order; not all for the same reason.
    Shapes(Vec<Reason>),
    /// Enough hosts are free at some starts, and everywhere they cost too much.
    Budget {
        /// What was offered.
        budget: Cost,
        /// What the cheapest would cost, when that is known.
        cheapest: Option<Cost>,
    },
}

impl Reason {
    /// What excludes all shapes of a request, each of which one of these excludes.
    pub(crate) fn of_shapes(mut reasons: Vec<Reason>) -> Reason {
        let is_one = reasons.windows(2).all(|two| two[0] == two[1]);
        let one = if is_one { reasons.pop() } else { None };
        one.unwrap_or(Reason::Shapes(reasons))
    }

    /// A stable name of the kind of reason; of several, of the first.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Reason::TooFewHosts { .. } => "too_few_hosts",
            Reason::Capacity { .. } => "capacity",
            Reason::NoWindow { .. } => "no_window",
            Reason::Uplink { .. } => "uplink",
            Reason::Budget { .. } => "budget",
            Reason::SearchLimit { .. } => "search_limit",
            Reason::WindowPassed { .. } => "window_passed",
            Reason::Postponed { .. } => "postponed",
            Reason::Shapes(reasons) => reasons.first().map_or("no_window", Reason::code),
        }
    }

    /// A sentence for people. Times are seconds of the schedule's clock, shown by `show_time`.
    #[must_use]
    pub fn detail_with(&self, show_time: impl Fn(Time) -> String) -> String {
        self.detail_by(&show_time)
    }

    fn detail_by(&self, show_time: &dyn Fn(Time) -> String) -> String {
        match self {
            Reason::Shapes(reasons) => {
                let of_shape = |(number, reason): (u32, &Reason)| {
                    format!("shape {number} of {}: {}", reasons.len(), reason.detail_by(show_time))
                };
                (1..).zip(reasons).map(of_shape).collect::<Vec<_>>().join("; ")
            }
            Reason::TooFewHosts { found, asked, cut } => {
                let mut text = format!("{found} of {asked} hosts satisfy the minima and attributes");
                let mut cuts = Vec::new();
                if cut.candidates > 0 {
                    cuts.push(format!("candidates {}", cut.candidates));
                }
                cuts.extend(cut.attributes.iter().map(|(pair, count)| format!("{pair} {count}")));
                if cut.speed > 0 {
                    cuts.push(format!("speed {}", cut.speed));
                }
                cuts.extend(cut.resources.iter().map(|(name, count)| format!("per_host.{name} {count}")));
                if !cuts.is_empty() {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "; hosts cut by {}", cuts.join(", "));
                }
                text
            }
            Reason::Capacity { resource, needed, best } => format!(
                "{resource}: {} asked in sum, the largest hosts together have {}",
                format_amount(resource, *needed),
                format_amount(resource, *best)
            ),
            Reason::NoWindow { asked, nearest } => format!("no start works; {}", describe(nearest, *asked, show_time)),
            Reason::Uplink { site, start, seats, load, room } => format!(
                "no start works; the uplink of {site} has {} Mbit/s free at {}, {seats} of its hosts would put {} Mbit/s on it",
                room.0,
                show_time(*start),
                load.0
            ),
            Reason::Budget { budget, cheapest: Some(cheapest) } => {
                format!(
                    "the cheapest plan costs {cheapest} credits, the budget is {budget}: offer that much, ask for less, or \
                     allow other starts"
                )
            }
            Reason::Budget { budget, cheapest: None } => {
                format!("no plan costs {budget} credits or less: offer more, ask for less, or allow other starts")
            }
            Reason::SearchLimit { asked, nearest } => {
                let (available, start) = (nearest.hosts_available, show_time(nearest.start));
                format!(
                    "no start found within the search limit: at {start} {available} hosts are available for {asked}, and \
                     whether some of them reach all totals at once is not settled; a higher effort may tell"
                )
            }
            Reason::WindowPassed { latest, earliest } => format!(
                "the latest start asked ({}) is before the earliest possible ({})",
                show_time(*latest),
                show_time(*earliest)
            ),
            Reason::Postponed { alternatives: 0, because } => {
                let because = match because {
                    Some(Absence::Excluded(reason)) => reason.detail_by(show_time),
                    Some(Absence::TooLarge(what)) => what.clone(),
                    Some(Absence::Ended) => "the search was ended before its turn".to_owned(),
                    Some(Absence::Crowded) | None => "no start was found for it beside the others".to_owned(),
                };
                format!("left for another batch: {because}")
            }
            Reason::Postponed { alternatives, .. } => {
                format!("left for another batch: none of {alternatives} alternatives is part of the best choice")
            }
        }
    }

    /// The sentence with times in plain seconds, for traces.
    #[must_use]
    pub fn detail(&self) -> String {
        self.detail_with(|time| format!("{} s", time.0))
    }
}

fn describe(nearest: &NearestMiss, asked: u64, show_time: impl Fn(Time) -> String) -> String {
    let available = nearest.hosts_available;
    let mut text = format!("nearest miss: {} of {asked} hosts at {}", available.min(asked), show_time(nearest.start));
    for (resource, missing) in &nearest.short {
        // Writing to a String cannot fail.
        let _ = write!(text, "; {resource} short by {}", format_amount(resource, *missing));
    }
    if !nearest.cuts.is_empty() {
        let cuts = nearest.cuts.iter().map(|(limit, hosts)| format!("{} {hosts}", limit.words(&show_time)));
        let _ = write!(text, "; hosts cut by {}", cuts.collect::<Vec<_>>().join(", "));
    } else if nearest.short.is_empty() && available >= asked {
        text.push_str("; every total alone could be met, all of them at once could not");
    }
    text
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
