//! How requests, plans, sites and hosts look to people.
//!
//! Invariant: pure functions of the API's answers and the zone; every text of another site passes `safe` or `columns`.

use std::{collections::BTreeMap, time::Duration};

use broker::{
    cost::Cost,
    demand::Demand,
    request::{ObjectiveKind, Request},
    time::{Span, Time},
    variant::Variant,
};
use jiff::tz::TimeZone;
use kolo_api::{
    plan::UsedSchedule,
    request_view::{RequestState, RequestView, ReservationView, ReservedHost, WorkPhase},
};
use kolo_text::{
    safe::safe,
    time::{format_duration, format_span, format_time},
    words::{age_text, amounts_text, attributes_text, counted, moment_text, site_text, size_text, variant_text},
};
use serde::Serialize;

use super::output::{Look, Report};

/// A request, with the text that people are shown of it.
#[derive(Serialize)]
pub struct OfRequest {
    #[serde(flatten)]
    pub view: RequestView,
    #[serde(skip)]
    pub text: fn(&RequestView, &Look) -> String,
}

impl Report for OfRequest {
    fn text(&self, look: &Look) -> String {
        (self.text)(&self.view, look)
    }
    fn ids(&self) -> Vec<String> {
        vec![self.view.id.to_string()]
    }
}

/// The lines of a reservation: start and end with zone, then a line a site with its hosts and amounts. Of one that was planned within a
/// budget it says so.
pub fn reservation_text(head: &str, (reservation, is_within_budget): (&ReservationView, bool), look: &Look) -> String {
    let sites = by_site(&reservation.hosts);
    let mut text = format!(
        "{}: {} at {} from {} to {} ({})\n",
        look.paint.title(head),
        counted(reservation.hosts.len(), "host"),
        counted(sites.len(), "site"),
        format_time(reservation.start, &look.zone),
        format_time(reservation.end, &look.zone),
        format_span(reservation.end.since(reservation.start)),
    );
    if !reservation.wait.is_zero() {
        text.push_str(&format!(
            "  {} later than reserved: an own job of its site can end\n",
            format_span(reservation.wait)
        ));
    }
    for ((site, name), hosts) in sites {
        let hosts: Vec<_> = hosts.iter().map(|grant| grant_text(grant, reservation.end, look)).collect();
        text.push_str(&format!("  {}: {}\n", safe(&site_text(site, name)), hosts.join("; ")));
    }
    match &reservation.price {
        Some(price) => text.push_str(&format!("  {}\n", safe(price))),
        None if reservation.cost.is_zero() => {}
        None => text.push_str(&format!("  costs {} credits\n", reservation.cost)),
    }
    text.push_str(&format!("  {}\n", quality_text(reservation, is_within_budget, &look.zone)));
    text
}

/// The line that says which shape was chosen, and by which factor it is scaled; nothing where the request leaves no choice.
pub fn variant_line(request: &Request, variant: Variant) -> String {
    variant_text(request, variant).map_or_else(String::new, |text| format!("  {text}\n"))
}

/// What a host gives, when it ends if that is not at `end`, and what it costs.
fn grant_text(grant: &ReservedHost, end: Time, look: &Look) -> String {
    let lost = grant.lost.map_or_else(String::new, |loss| format!(" LOST ({loss})"));
    let until = (grant.end != end).then(|| format!(" until {}", format_time(grant.end, &look.zone)));
    let name = match &grant.class {
        Some(class) => format!("one of {}", safe(class.as_str())),
        None => safe(grant.host.as_str()),
    };
    let amounts = amounts_text(&grant.amounts);
    let cost = (!grant.cost.is_zero()).then(|| format!(" for {}", grant.cost));
    format!("{name} {amounts}{}{}{}", until.unwrap_or_default(), cost.unwrap_or_default(), look.paint.bad(&lost))
}

/// How good a placement is, in words.
fn quality_text(plan: &ReservationView, is_within_budget: bool, zone: &TimeZone) -> String {
    let ReservationView { efficiency, efficiency_bound: bound, objective, .. } = plan;
    let shown = |value: i64| match objective.kind {
        ObjectiveKind::Start | ObjectiveKind::Finish => format_time(Time(value), zone),
        ObjectiveKind::Cost => format!("{} credits", Cost(value.unsigned_abs())),
        ObjectiveKind::Runtime | ObjectiveKind::HostTime => format_span(Span(value.unsigned_abs())),
    };
    let seen = match (plan.hosts_seen, plan.hosts_left_out) {
        (Some(_), 0) => String::new(),
        (Some(seen), _) => format!(" among the {} looked at", counted(seen, "host")),
        (None, _) => " among the hosts looked at".to_owned(),
    };
    let seen = if is_within_budget { format!(" within the budget{seen}") } else { seen };
    // What an extension adds is none of the plan's.
    let is_longer = objective.kind == ObjectiveKind::Finish && plan.end > Time(objective.value);
    let name = if is_longer { "planned finish".to_owned() } else { objective.kind.name().replace('_', " ") };
    let best = match (objective.kind, objective.bound) {
        (ObjectiveKind::Start, _) if !plan.start_proven => "an earlier start may exist".to_owned(),
        (ObjectiveKind::Start, _) => format!("no earlier start exists{seen}"),
        (_, None) => format!("{name} {}, perhaps not the best", shown(objective.value)),
        (_, Some(bound)) if bound == objective.value => {
            format!("{name} {}, the best{seen}", shown(bound))
        }
        (_, Some(bound)) => {
            format!("{name} {}, at best {}{seen}", shown(objective.value), shown(bound))
        }
    };
    // Of a plan that was made elsewhere, or found reserved, it is not known.
    if *efficiency <= 0.0 {
        return best;
    }
    // Both are ratios of sums of whole numbers; equal ones may differ in the last digits.
    if *efficiency >= bound * (1.0 - 1e-9) {
        format!("{best}; efficiency {efficiency:.4}, the best at this start")
    } else {
        format!("{best}; efficiency {efficiency:.4} of at most {bound:.4} at this start")
    }
}

/// The schedules that an answer rests on, with their ages; nothing when there are none.
pub fn schedules_text(schedules: &[UsedSchedule], zone: &TimeZone) -> String {
    /// More would push what matters off the screen; JSON has them all.
    const SHOWN: usize = 8;
    if schedules.is_empty() {
        return String::new();
    }
    let one = |used: &UsedSchedule| {
        let site = safe(&site_text(used.site.as_str(), &used.site_name));
        format!("{site} {}, {} old", counted(used.hosts, "host"), age_text(Some(used.age_s)))
    };
    let mut parts: Vec<_> = schedules.iter().take(SHOWN).map(one).collect();
    if let Some(more) = schedules.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        let oldest = schedules.iter().map(|used| used.age_s).max();
        parts.push(format!("and {} more, the oldest of all {}", counted(more, "site"), age_text(oldest)));
    }
    let used = format!("  schedules used: {}\n", parts.join("; "));
    let coarse = || schedules.iter().filter_map(|used| Some((used.hosts, used.coarse_from?)));
    let Some(from) = coarse().map(|(_, from)| from).min() else { return used };
    let hosts = counted(coarse().map(|(hosts, _)| hosts).sum(), "host");
    let from = format_time(from, zone);
    format!(
        "{used}  {hosts} of sites that tell coarsely what is used after {from}: of starts behind that nothing is proven\n"
    )
}

fn by_site(hosts: &[ReservedHost]) -> BTreeMap<(&str, &str), Vec<&ReservedHost>> {
    let mut sites: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for grant in hosts {
        sites.entry((grant.site.as_str(), grant.site_name.as_str())).or_default().push(grant);
    }
    sites
}

/// A line a host whose site says how it is reached.
fn contacts_text(reservation: &ReservationView) -> String {
    let line = |grant: &ReservedHost| {
        grant.contact.as_ref().map(|contact| format!("  reach {}: {}\n", safe(grant.host.as_str()), safe(contact)))
    };
    reservation.hosts.iter().filter(|grant| grant.lost.is_none()).filter_map(line).collect()
}

/// What is being done for a request, for a progress line.
pub fn progress_text(view: &RequestView) -> String {
    let doing = match (view.state, view.phase) {
        (RequestState::Holding, _) => "holding hosts",
        (RequestState::Planning, Some(WorkPhase::Find)) => "looking for hosts and planning",
        (state, _) => state.words(),
    };
    let attempt = view.attempts.max(1);
    match view.conflicts {
        0 => format!("{doing} (attempt {attempt})"),
        conflicts => format!("{doing} (attempt {attempt}, {conflicts} lost to others)"),
    }
}

/// Everything about one request.
pub fn request_text(view: &RequestView, look: &Look) -> String {
    let mut text = String::new();
    if let Some(reservation) = &view.reservation {
        text.push_str(&reservation_text(
            &format!("{} {}", view.state, safe(view.id.as_str())),
            (reservation, view.request.budget().is_some()),
            look,
        ));
        text.push_str(&variant_line(&view.request, reservation.variant()));
        text.push_str(&contacts_text(reservation));
    } else {
        let head = format!("{} {}", view.state, safe(view.id.as_str()));
        text.push_str(&format!("{}\n", look.paint.title(&head)));
    }
    if let Some(code) = view.exit_code {
        text.push_str(&format!(
            "  its command has ended with exit code {code}, and the rest of the time was given back\n"
        ));
    }
    if let Some(reason) = &view.reason {
        text.push_str(&format!("  reason: {} ({})\n", safe(&reason.detail), safe(&reason.code)));
    }
    if !view.state.is_settled() {
        text.push_str(&format!("  now: {}\n", progress_text(view)));
    }
    if let Some(base) = &view.extends {
        text.push_str(&format!("  lengthens {}\n", safe(base.as_str())));
    }
    for part in &view.extensions {
        let until = part.end.map_or_else(|| "-".to_owned(), |end| format_time(end, &look.zone));
        let hosts = counted(part.hosts, "host");
        text.push_str(&format!("  extended until {until}: {hosts}, {} by {}\n", part.state, safe(part.id.as_str())));
    }
    if let Some(label) = &view.label {
        text.push_str(&format!("  label: {}\n", safe(label.as_str())));
    }
    if !view.user.is_empty() {
        text.push_str(&format!("  user: {}\n", safe(&view.user)));
    }
    text.push_str(&format!(
        "  submitted {}; {}, {} lost to others, {}\n",
        moment_text(view.submitted_ms, &look.zone),
        counted(view.attempts, "attempt"),
        view.conflicts,
        format_duration(Duration::from_millis(view.elapsed_ms)),
    ));
    text.push_str(&asked_text(view, &look.zone));
    text
}

fn asked_text(view: &RequestView, zone: &TimeZone) -> String {
    let request = &view.request;
    let demand = request.demand();
    let one = |demand: &Demand| {
        let mut parts = vec![size_text(demand)];
        if !demand.total().is_empty() {
            parts.push(format!("together {}", amounts_text(demand.total())));
        }
        if !demand.per_host().is_empty() {
            parts.push(format!("each {}", amounts_text(demand.per_host())));
        }
        parts.join(", ")
    };
    let mut parts = vec![request.shapes().map(one).collect::<Vec<_>>().join("; or ")];
    if !demand.attributes().is_empty() {
        parts.push(format!("where {}", safe(&attributes_text(demand.attributes()))));
    }
    parts.extend(demand.scale().map(|scale| format!("scaled by {scale}")));
    parts.extend(demand.speed_min().map(|speed| format!("each of speed {speed} or more")));
    parts.extend(demand.is_exclusive().then(|| "whole".to_owned()));
    parts.extend(demand.traffic().map(|traffic| format!("each sending {} Mbit/s to all others", traffic.mbps)));
    parts.extend(demand.sites_max().map(|most| format!("at most at {}", counted(most, "site"))));
    parts.extend(request.budget().map(|budget| match budget {
        Cost::ZERO => "free of charge".to_owned(),
        budget => format!("for at most {budget} credits"),
    }));
    // The window as written down; what the writer left open depends on the arrival.
    if let Ok((earliest, latest)) = request.starts(Time::ZERO, Span::MAX) {
        if earliest > Time::ZERO {
            parts.push(format!("not before {}", format_time(earliest, zone)));
        }
        let deadline = request.window().deadline;
        if latest < deadline.unwrap_or(Time::MAX) {
            parts.push(format!("start by {}", format_time(latest, zone)));
        }
        parts.extend(deadline.map(|deadline| format!("end by {}", format_time(deadline, zone))));
    }
    format!("  asked: {}\n", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use broker::{negotiation::Loss, plan::ObjectiveValue};
    use kolo_api::samples::view;

    use super::*;

    #[test]
    fn a_reservation_reads_as_a_person_would_say_it() {
        let view = view("confirmed", None);
        let text =
            reservation_text("reserved r-42", (view.reservation.as_ref().unwrap(), false), &Look::plain(TimeZone::UTC));
        assert_eq!(
            text,
            "reserved r-42: 3 hosts at 2 sites from 2025-11-21 08:00:00+00:00 to 2025-11-21 10:00:00+00:00 (2h)\n  \
             alpha (..aaaa1111): h1 cpu=2.4 memory=3GiB; h2 cpu=1 memory=1GiB\n  \
             beta\\u{1b}[31m (..bbbb2222): b1 cpu=1 memory=512MiB\n  \
             no earlier start exists among the hosts looked at; efficiency 0.8123 of at most 0.8150 at this start\n"
        );
    }

    #[test]
    fn a_host_that_is_reserved_shorter_says_so() {
        let mut view = view("confirmed", None);
        view.reservation.as_mut().unwrap().hosts[2].end = Time(1_763_715_600);
        let text = request_text(&view, &Look::plain(TimeZone::UTC));
        assert!(text.contains("h2 cpu=1 memory=1GiB until 2025-11-21 09:00:00+00:00\n"), "{text}");
        assert!(text.contains("h1 cpu=2.4 memory=3GiB;"), "{text}");
    }

    #[test]
    fn how_hosts_are_reached_is_shown_as_text() {
        let mut view = view("confirmed", None);
        let hosts = &mut view.reservation.as_mut().unwrap().hosts;
        hosts[0].contact = Some("ssh ada@h1\u{1b}[31m".to_owned());
        hosts[1].contact = Some("ssh ada@b1".to_owned());
        hosts[1].lost = Some(Loss::SiteSilent);
        let text = request_text(&view, &Look::plain(TimeZone::UTC));
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("reach")).collect();
        assert_eq!(lines, ["  reach h1: ssh ada@h1\\u{1b}[31m"]);
    }

    #[test]
    fn progress_names_the_phase_and_the_attempt() {
        let mut at = view("planning", None);
        at.phase = Some(WorkPhase::Find);
        assert_eq!(progress_text(&at), "looking for hosts and planning (attempt 2, 1 lost to others)");
        at.state = RequestState::Confirming;
        at.conflicts = 0;
        assert_eq!(progress_text(&at), "confirming (attempt 2)");
    }

    #[test]
    fn a_rejected_request_shows_its_reason() {
        let text =
            request_text(&view("rejected", Some(("no_window", "memory short by 3 GiB"))), &Look::plain(TimeZone::UTC));
        assert_eq!(
            text,
            "rejected r-42\n  reason: memory short by 3 GiB (no_window)\n  label: mine\n  submitted 2025-11-21 \
             04:40:00+00:00; 2 attempts, 1 lost to others, 9ms\n  asked: 3 hosts for 2h\n"
        );
    }

    #[test]
    fn what_is_best_and_the_ends_of_hosts_are_shown() {
        let mut plan = view("confirmed", None).reservation.unwrap();
        (plan.start_proven, plan.efficiency) = (false, plan.efficiency_bound);
        let quality = |plan: &ReservationView| quality_text(plan, false, &TimeZone::UTC);
        assert_eq!(quality(&plan), "an earlier start may exist; efficiency 0.8150, the best at this start");
        (plan.hosts_seen, plan.hosts_left_out) = (Some(12), 3);
        plan.objective = ObjectiveValue { kind: ObjectiveKind::HostTime, value: 7200, bound: Some(7200) };
        assert!(
            quality(&plan).starts_with("host time 2h, the best among the 12 hosts looked at; "),
            "{}",
            quality(&plan)
        );
        plan.objective.bound = Some(3600);
        assert!(quality(&plan).starts_with("host time 2h, at best 1h among the 12 hosts looked at; "));
        plan.objective.bound = None;
        assert!(quality(&plan).starts_with("host time 2h, perhaps not the best; "));
        plan.objective = ObjectiveValue { kind: ObjectiveKind::Cost, value: 12_500, bound: Some(12_000) };
        assert!(quality(&plan).starts_with("cost 12.50 credits, at best 12.00 credits among the 12 hosts"));
        (plan.hosts[0].end, plan.hosts[1].cost, plan.cost) = (Time(1_763_715_600), Cost(750), Cost(750));
        plan.price = Some("it costs 0.75 credits of a budget of 1.00: more money changes nothing".to_owned());
        let priced = reservation_text("reserved", (&plan, true), &Look::plain(TimeZone::UTC));
        assert!(
            priced.contains("\n  it costs 0.75 credits of a budget of 1.00: more money changes nothing\n"),
            "{priced}"
        );
        assert!(
            priced.contains(" within the budget among the 12 hosts looked at") && !priced.contains("  costs"),
            "{priced}"
        );
        plan.price = None;
        plan.objective.kind = ObjectiveKind::Start;
        plan.start_proven = true;
        let limited = reservation_text("reserved", (&plan, true), &Look::plain(TimeZone::UTC));
        assert!(limited.contains("no earlier start exists within the budget among the 12 hosts"), "{limited}");
        let text = reservation_text("reserved", (&plan, false), &Look::plain(TimeZone::UTC));
        assert!(
            text.contains("h1 cpu=2.4 memory=3GiB until 2025-11-21 09:00:00+00:00; h2 cpu=1 memory=1GiB\n"),
            "{text}"
        );
        assert!(text.contains("no earlier start exists among the 12 hosts"), "{text}");
        plan.hosts_left_out = 0;
        assert!(quality(&plan).starts_with("no earlier start exists; "), "it was all of them: {}", quality(&plan));
        assert!(text.contains("b1 cpu=1 memory=512MiB for 0.75\n  costs 0.75 credits\n"), "{text}");
    }
}
