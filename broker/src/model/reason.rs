//! Why the planner has no plan: what cut the hosts, which start came nearest, which limit, price or uplink was in the way; and all of it in
//! words.
//!
//! Invariant: the words name what could be changed to get a plan.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::model::{
    amount::{Amount, format_amount},
    cost::Cost,
    demand::Unmet,
    ids::SiteId,
    resources::ResourceName,
    tariff::Parts,
    time::{Span, Time, Window},
};

/// How many hosts each constraint of phase I cut; a host is counted once, at the first constraint it fails.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutCounts {
    /// Not among the named candidates.
    pub candidates: u64,
    /// By required attribute, `key=value`.
    pub attributes: Vec<(String, u64)>,
    /// Slower than asked, or so slow that the work would never end.
    pub speed: u64,
    /// By resource whose capacity is below `d_i`, `memory>=8GiB`.
    pub resources: Vec<(String, u64)>,
    /// By what their site does not do for the request, in words; these come before all others but the candidates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<(String, u64)>,
    /// Whose owners give no seats so long.
    #[serde(default)]
    pub length: u64,
    /// Hosts of owners of whose host-hours the user has too few left for so long a seat.
    #[serde(default)]
    pub host_hours: u64,
    /// Whose owners give this user nothing, by rules about users.
    #[serde(default)]
    pub users: u64,
}

impl CutCounts {
    /// Counts `hosts` hosts that lack this.
    pub fn add(&mut self, unmet: Unmet, hosts: u64) {
        match unmet {
            Unmet::Candidates => self.candidates += hosts,
            Unmet::Attribute(key, value) => count(&mut self.attributes, format!("{key}={value}"), hosts),
            Unmet::Speed(_) => self.speed += hosts,
            Unmet::Length(_) => self.length += hosts,
            Unmet::Minimum(name, least) => {
                count(&mut self.resources, format!("{name}>={}", format_amount(&name, least)), hosts);
            }
        }
    }

    /// Counts `hosts` hosts of sites that do not do what the request needs, as these words say of their owner or program.
    pub fn add_of_sites(&mut self, words: String, hosts: u64) {
        count(&mut self.sites, words, hosts);
    }

    /// What their sites do not do, for the end of a sentence.
    fn words_of_sites(&self) -> String {
        let of_site = |(words, hosts): &(String, u64)| {
            let noun = if *hosts == 1 { "host" } else { "hosts" };
            format!("; {hosts} {noun}: {words}")
        };
        self.sites.iter().map(of_site).collect()
    }

    fn words(&self) -> String {
        let one = |name: &str, hosts: u64| (hosts > 0).then(|| format!("{name} {hosts}"));
        let attributes = self.attributes.iter().map(|(pair, hosts)| format!("{pair} {hosts}"));
        let resources = self.resources.iter().map(|(least, hosts)| format!("per_host.{least} {hosts}"));
        let all = one("candidates", self.candidates).into_iter().chain(attributes).chain(one("speed", self.speed));
        all.chain(resources)
            .chain(one("rules of owners about users", self.users))
            .chain(one("the longest reservation of their owners (`owner-max-duration`)", self.length))
            .chain(one("what is left of the user's host-hours (`max-host-hours`)", self.host_hours))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn count(counts: &mut Vec<(String, u64)>, key: String, hosts: u64) {
    match counts.iter_mut().find(|(known, _)| *known == key) {
        Some((_, count)) => *count += hosts,
        None => counts.push((key, hosts)),
    }
}

/// What keeps hosts from a start, beside what is booked on them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// The times of the owner, at this site: a seat would lie outside. When the next one begins and ends, if any is known.
    Offered(SiteId, Option<Window>),
    /// The owner's longest seat: it would be longer.
    Longest(Span),
    /// Host-hours left to the user, of those that the owner gives to each: a seat would be longer.
    HostHours(Span),
}

impl Limit {
    fn words(&self, show_time: &dyn Fn(Time) -> String) -> String {
        match *self {
            Limit::Deadline(deadline) => format!("deadline {}", show_time(deadline)),
            Limit::Notice(least) => format!("least notice {least}"),
            Limit::Horizon(horizon) => format!("horizon {horizon}"),
            Limit::Share(Parts(share)) => format!("share {} %", f64::from(share) / 10.0),
            Limit::SitesMax(most) => format!("sites_max {most}"),
            Limit::Offered(ref site, Some(Window { start, end })) if end >= Time::MAX => {
                format!("site {site} offers its hosts only from {} on:", show_time(start))
            }
            Limit::Offered(ref site, Some(Window { start, end })) => {
                format!(
                    "site {site} offers its hosts only at its owner's times, next from {} to {}:",
                    show_time(start),
                    show_time(end)
                )
            }
            Limit::Offered(ref site, None) => format!("site {site} offers no hosts from then on:"),
            Limit::Longest(longest) => format!("the owner's longest reservation {longest}"),
            Limit::HostHours(left) => format!("the {left} left of the user's host-hours"),
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

impl NearestMiss {
    /// Of so many hosts that were asked for.
    fn words(&self, asked: u64, show_time: &dyn Fn(Time) -> String) -> String {
        let available = self.hosts_available;
        let mut text = format!("nearest miss: {} of {asked} hosts at {}", available.min(asked), show_time(self.start));
        for (resource, missing) in &self.short {
            // Writing to a String cannot fail.
            let _ = write!(text, "; {resource} short by {}", format_amount(resource, *missing));
        }
        if !self.cuts.is_empty() {
            let cuts = self.cuts.iter().map(|(limit, hosts)| format!("{} {hosts}", limit.words(show_time)));
            let _ = write!(text, "; hosts cut by {}", cuts.collect::<Vec<_>>().join(", "));
        } else if self.short.is_empty() && available >= asked {
            text.push_str("; every total alone could be met, all of them at once could not");
        }
        text
    }
}

/// Why a batch has no plan for a request.
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
    /// Its cheapest alternative costs more than is left of the budget of the batch.
    Spent {
        /// What is left.
        left: Cost,
        /// What that alternative costs.
        cheapest: Cost,
    },
}

impl Absence {
    fn words(&self, show_time: &dyn Fn(Time) -> String) -> String {
        match self {
            Absence::TooLarge(what) => what.clone(),
            Absence::Excluded(reason) => reason.detail_by(show_time),
            Absence::Ended => "the search was ended before its turn".to_owned(),
            Absence::Crowded => "no start was found for it beside the others".to_owned(),
            Absence::Spent { left, cheapest } => {
                format!("its cheapest alternative costs {cheapest} credits, {left} of the budget of the batch are left")
            }
        }
    }
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
        cut: Box<CutCounts>,
    },
    /// Phase I: enough hosts satisfy the minima and attributes, but too few of them have a schedule that is known.
    SchedulesUnknown {
        /// Hosts that satisfy them, at least.
        suit: u64,
        /// Those of them whose schedule is not known.
        unknown: u64,
        /// N.
        asked: u64,
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
        /// Why none was found, or none was chosen, where that is known.
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
    /// Owners' rules leave out hosts that would serve.
    Ruled {
        /// Reason why no start is possible under the owners' present rules.
        reason: Box<Reason>,
        /// When it could start without them, where that is known.
        start: Option<Time>,
        /// The rules, by name, and how many hosts each leaves out that would be there then.
        rules: Vec<(String, u64)>,
    },
    /// Each of the shapes of the request is excluded, in their order; not all for the same reason.
    Shapes(Vec<Reason>),
    /// Enough hosts are free at some starts, and everywhere they cost too much.
    Budget {
        /// What was offered.
        budget: Cost,
        /// What the cheapest plan found would cost.
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

    /// The same with what has cut the hosts that a planner was not even given, where there were too few of them.
    #[must_use]
    pub fn with_cut(self, before: &CutCounts) -> Reason {
        self.recounted(&|cut: CutCounts| if cut == CutCounts::default() { before.clone() } else { cut })
    }

    /// The same with what has cut hosts counted anew, where there were too few of them.
    #[must_use]
    pub fn recounted(self, count: &impl Fn(CutCounts) -> CutCounts) -> Reason {
        match self {
            Reason::TooFewHosts { found, asked, cut } => Reason::TooFewHosts { found, asked, cut: count(*cut).into() },
            Reason::Shapes(reasons) => {
                Reason::Shapes(reasons.into_iter().map(|reason| reason.recounted(count)).collect())
            }
            Reason::Ruled { reason, start, rules } => {
                Reason::Ruled { reason: Box::new(reason.recounted(count)), start, rules }
            }
            Reason::Postponed { alternatives, because: Some(Absence::Excluded(reason)) } => {
                let because = Absence::Excluded(Box::new(reason.recounted(count)));
                Reason::Postponed { alternatives, because: Some(because) }
            }
            other => other,
        }
    }

    /// The same where `unknown` more hosts satisfy the minima and attributes, whose schedules are not known.
    #[must_use]
    pub fn beside_unknown(self, unknown: u64) -> Reason {
        match self {
            Reason::TooFewHosts { found, asked, .. } if unknown > 0 && found + unknown >= asked => {
                Reason::SchedulesUnknown { suit: found + unknown, unknown, asked }
            }
            Reason::TooFewHosts { found, asked, cut } => Reason::TooFewHosts { found: found + unknown, asked, cut },
            Reason::Shapes(reasons) => {
                Reason::of_shapes(reasons.into_iter().map(|reason| reason.beside_unknown(unknown)).collect())
            }
            Reason::Ruled { reason, start, rules } => {
                Reason::Ruled { reason: Box::new(reason.beside_unknown(unknown)), start, rules }
            }
            reason => reason,
        }
    }

    /// A stable name of the kind of reason; of several, of the first.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Reason::TooFewHosts { .. } => "too_few_hosts",
            Reason::SchedulesUnknown { .. } => "schedules_unknown",
            Reason::Capacity { .. } => "capacity",
            Reason::NoWindow { .. } => "no_window",
            Reason::Uplink { .. } => "uplink",
            Reason::Budget { .. } => "budget",
            Reason::SearchLimit { .. } => "search_limit",
            Reason::WindowPassed { .. } => "window_passed",
            Reason::Postponed { .. } => "postponed",
            Reason::Ruled { reason, .. } => reason.code(),
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
            Reason::Ruled { reason, start, rules } => {
                let rule = |(name, hosts): &(String, u64)| {
                    format!("`{name}` leaves out {hosts} host{}", if *hosts == 1 { "" } else { "s" })
                };
                let rules = rules.iter().map(rule).collect::<Vec<_>>().join(", ");
                let start = start.map(|start| format!("without them it could start at {}; ", show_time(start)));
                format!("{}; rules of owners: {}{rules}", reason.detail_by(show_time), start.unwrap_or_default())
            }
            Reason::TooFewHosts { found, asked, cut } => {
                let cuts = cut.words();
                let cuts = if cuts.is_empty() { cuts } else { format!("; hosts cut by {cuts}") };
                let of_sites = cut.words_of_sites();
                format!("{found} of {asked} hosts satisfy the minima and attributes{of_sites}{cuts}")
            }
            Reason::SchedulesUnknown { suit, unknown, asked } => format!(
                "{suit} hosts suit, {asked} are asked for, and the schedule of {unknown} of them is not known (yet): \
                 kolo sites and kolo doctor say why"
            ),
            Reason::Capacity { resource, needed, best } => format!(
                "{resource}: {} asked in sum, the largest hosts together have {}",
                format_amount(resource, *needed),
                format_amount(resource, *best)
            ),
            Reason::NoWindow { asked, nearest } => format!("no start works; {}", nearest.words(*asked, show_time)),
            Reason::Uplink { site, start, seats, load, room } => format!(
                "no start works; the uplink of {site} has {} Mbit/s free at {}, {seats} of its hosts would put {} Mbit/s on it",
                room.0,
                show_time(*start),
                load.0
            ),
            Reason::Budget { budget, cheapest: Some(cheapest) } => {
                format!(
                    "the cheapest plan found costs {cheapest} credits, the budget is {budget}: offer that much, ask for less, or \
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
            Reason::Postponed { alternatives, because } => {
                let because = match because {
                    Some(because) if *alternatives == 0 || matches!(because, Absence::Spent { .. }) => {
                        because.words(show_time)
                    }
                    None if *alternatives == 0 => Absence::Crowded.words(show_time),
                    _ => format!("none of {alternatives} alternatives is part of the best choice"),
                };
                format!("left for another batch: {because}")
            }
        }
    }

    /// The sentence with times in plain seconds, for traces.
    #[must_use]
    pub fn detail(&self) -> String {
        self.detail_with(|time| format!("{} s", time.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_suit_are_told_from_hosts_whose_schedule_is_known() {
        let too_few = |found, asked| Reason::TooFewHosts { found, asked, cut: Box::default() };
        let words = |reason: Reason, unknown| reason.beside_unknown(unknown).detail();
        assert_eq!(words(too_few(0, 5), 0), "0 of 5 hosts satisfy the minima and attributes");
        assert_eq!(words(too_few(0, 5), 3), "3 of 5 hosts satisfy the minima and attributes");
        let unknown = too_few(2, 5).beside_unknown(4);
        assert_eq!(unknown.code(), "schedules_unknown");
        assert!(
            unknown.detail().starts_with("6 hosts suit, 5 are asked for, and the schedule of 4 of them is not known")
        );
        let of_shapes = Reason::Shapes(vec![too_few(0, 5), too_few(0, 9)]).beside_unknown(6);
        assert!(of_shapes.detail().contains("shape 1 of 2: 6 hosts suit"), "{}", of_shapes.detail());
        assert!(of_shapes.detail().contains("shape 2 of 2: 6 of 9 hosts satisfy"), "{}", of_shapes.detail());
    }
}
