//! `kolo extend`: makes a reservation longer, on the same hosts with the same amounts.
//!
//! The added time is asked for by requests of its own, one for all hosts that end together: the user signs each, every site
//! checks it, and it stands on all its hosts or on none. Where hosts give different amounts, what each is to give is handed in as a plan. The node shows them as parts of the reservation. Invariant: whatever goes wrong, the reservation that is there stays
//! as it is, and what was added before something went wrong is given back.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    amount::Amount,
    cost::Cost,
    ids::{RequestId, ShapeNumber},
    negotiation::{HandedPlan, HandedSeat},
    request::{Request, RequestDocument},
    resources::{Amounts, amount_of},
    scale::Factor,
    time::{Span, Time},
};
use kolo_api::request_view::{ReasonView, RequestView, ReservationView, ReservedHost};
use kolo_text::{
    request_file::seconds_of,
    safe::safe,
    time::{format_span, format_time},
};
use serde::Serialize;

use super::{Context, path_of, waiting};
use crate::{
    client::{Client, request_path},
    error::CliError,
    exit::Exit,
    output::{Look, Report},
    price::with_budget_of,
    report::{reservation_text, variant_line},
    request_args::ExtendArgs,
    signing,
};

/// Most requests that one extension makes.
const REQUESTS_MAX: usize = 64;

/// Runs the command. Exit codes are those of `kolo submit`.
///
/// # Errors
/// [`CliError`]; around [`CliError::Unreserved`] when the hosts are not free then.
pub fn run(context: &mut Context, args: &ExtendArgs) -> Result<Exit, CliError> {
    let client = context.connect_as(&args.key)?;
    let named: RequestView = client.get(&path_of(&client, &args.selector)?)?;
    // What lengthens a reservation is a part of it.
    let before = match &named.extends {
        Some(base) => client.get(&request_path(base.as_str()))?,
        None => named,
    };
    let wrong = match extend(context, &client, args, &before) {
        Err(wrong) if before.reservation.as_ref().is_some_and(has_open_hosts) => wrong,
        result => return result,
    };
    // A host of a class may have been another one by then. Its site has bound it now.
    match client.post::<RequestView>(&format!("{}/repair", request_path(before.id.as_str())), &()) {
        Ok(after) if places(&after) != places(&before) => extend(context, &client, args, &after),
        Ok(_) | Err(_) => Err(wrong),
    }
}

/// Whether it is open which host of a class some seat has.
fn has_open_hosts(reservation: &ReservationView) -> bool {
    reservation.hosts.iter().any(|host| host.class.is_some())
}

/// Where the seats are.
fn places(view: &RequestView) -> Vec<(&str, &str)> {
    let hosts = view.reservation.iter().flat_map(|reservation| &reservation.hosts);
    hosts.map(|host| (host.site.as_str(), host.host.as_str())).collect()
}

fn extend(context: &mut Context, client: &Client, args: &ExtendArgs, before: &RequestView) -> Result<Exit, CliError> {
    let reservation = before.reservation.as_ref().filter(|_| before.state.is_reserved());
    let Some(reservation) = reservation.filter(|reservation| reservation.end > context.time()) else {
        let why = format!("request {} is {}: there is nothing to go on from", before.id, before.state);
        return Err(CliError::not_extended(why));
    };
    if reservation.hosts.iter().any(|host| host.lost.is_some()) {
        let why = format!("request {} has lost hosts; have it repaired first (kolo repair)", before.id);
        return Err(CliError::not_extended(why));
    }
    let end = format_time(reservation.end, context.now.time_zone());
    let requests = requests_behind(before, reservation, seconds_of(args.by))?;
    let mut added: Vec<RequestView> = Vec::with_capacity(requests.len());
    for Behind { request, alike, plan } in requests {
        let is_handed_in = plan.is_some();
        let left = args.budget.map(|budget| left_of(budget, &added));
        let usual = if left.is_some() { left } else { context.usual_budget()? };
        let one = with_budget_of(client, request, alike, usual)
            .and_then(|request| signing::submission(context, client, &args.key, request, plan))
            .and_then(|submission| waiting::submit_and_wait(client.clone(), submission, None));
        let wrong = match one {
            Ok(view) if fits(&view, reservation) => {
                added.push(view);
                continue;
            }
            Ok(view) if view.reservation.is_some() => {
                added.push(view);
                let why = format!("from {end} on only hosts of the same name elsewhere could be had");
                CliError::not_extended(why)
            }
            Ok(view) => {
                let hint = view.reason.as_ref().and_then(|reason| hint_for(reason, &end));
                let why = view.reason.as_ref().filter(|_| is_handed_in).map(|reason| reason.detail.clone());
                let error =
                    why.map_or_else(|| CliError::Unreserved(Box::new(view)), |why| CliError::no_placement(&why));
                hint.into_iter().fold(error, CliError::hinted)
            }
            Err(error) => error,
        };
        for view in &added {
            let _: RequestView = client.delete(&request_path(view.id.as_str()))?;
        }
        return Err(wrong);
    }
    let after: RequestView = client.get(&request_path(before.id.as_str()))?;
    context.done(&extended(after, args.by, added))
}

/// What helps against the reason why a reservation does not go on at `end`; none where the reason says it all.
fn hint_for(reason: &ReasonView, end: &str) -> Option<String> {
    match reason.code.as_str() {
        // Where something else than what is booked is in the way, it is named.
        "no_window" if !reason.detail.contains("hosts cut by") => {
            Some(format!("these hosts are not all free from {end} on; kolo slots says when as many are"))
        }
        "refused" => Some("the rule counts for what is added; with a shorter --by it may allow it".to_owned()),
        _ => None,
    }
}

/// What earlier requests of an extension have left of its budget.
fn left_of(budget: Cost, added: &[RequestView]) -> Cost {
    let costs = added.iter().filter_map(|view| view.reservation.as_ref()).map(|reservation| reservation.cost);
    Cost(budget.0.saturating_sub(costs.sum::<Cost>().0))
}

/// Whether what was added is of the same hosts, with the same amounts.
fn fits(added: &RequestView, reservation: &ReservationView) -> bool {
    let wanted = shares(&reservation.hosts);
    let is_wanted = |added: &ReservationView| {
        shares(&added.hosts).into_iter().all(|(host, amounts)| wanted.get(&host) == Some(&amounts))
    };
    added.reservation.as_ref().is_some_and(is_wanted)
}

/// What each host gives.
fn shares(hosts: &[ReservedHost]) -> BTreeMap<(&str, &str), &Amounts> {
    hosts.iter().map(|grant| ((grant.site.as_str(), grant.host.as_str()), &grant.amounts)).collect()
}

/// A request for the time right behind some hosts.
#[derive(Debug)]
struct Behind {
    request: Request,
    /// The same for the hosts of each kind, where they give different amounts: what these cost, it costs.
    alike: Vec<Request>,
    /// What each host gives, where that does not follow from the request.
    plan: Option<HandedPlan>,
}

/// Requests that only the same hosts can satisfy, and only right behind `reservation`: one for all hosts that end together, since the
/// seats of a request begin together.
fn requests_behind(before: &RequestView, reservation: &ReservationView, seconds: i64) -> Result<Vec<Behind>, CliError> {
    let wrong = |error: &dyn std::fmt::Display| CliError::not_extended(error);
    let names: BTreeSet<&str> = reservation.hosts.iter().map(|grant| grant.host.as_str()).collect();
    if names.len() < reservation.hosts.len() {
        return Err(wrong(&"hosts of several sites have the same name, and a request names hosts without their sites"));
    }
    let mut by_end: BTreeMap<Time, Vec<&ReservedHost>> = BTreeMap::new();
    for grant in &reservation.hosts {
        by_end.entry(grant.end).or_default().push(grant);
    }
    if by_end.len() > REQUESTS_MAX {
        let ends = by_end.len();
        return Err(wrong(&format!("its hosts end at {ends} times, and {REQUESTS_MAX} requests are made at most")));
    }
    let behind = |(end, hosts): (Time, Vec<&ReservedHost>)| {
        let mut alike: BTreeMap<&Amounts, Vec<&ReservedHost>> = BTreeMap::new();
        hosts.iter().for_each(|host| alike.entry(&host.amounts).or_default().push(host));
        if alike.len() == 1 {
            return Ok(Behind { request: request_for(before, &hosts, end, seconds)?, alike: Vec::new(), plan: None });
        }
        let alike = alike.values().map(|hosts| request_for(before, hosts, end, seconds)).collect::<Result<_, _>>()?;
        let seat = |host: &&ReservedHost| HandedSeat {
            site: host.site.clone(),
            host: host.host.clone(),
            end: end + Span(seconds.unsigned_abs()),
            amounts: host.amounts.clone(),
        };
        let plan = HandedPlan {
            start: end,
            shape: ShapeNumber::default(),
            scale: Factor::ONE,
            hosts: hosts.iter().map(seat).collect(),
        };
        Ok(Behind { request: request_for(before, &hosts, end, seconds)?, alike, plan: Some(plan) })
    };
    by_end.into_iter().map(behind).collect()
}

/// One request for these hosts from `end` on: each gives what the least of them gives, and all together what they give now.
fn request_for(before: &RequestView, hosts: &[&ReservedHost], end: Time, seconds: i64) -> Result<Request, CliError> {
    let wrong = |error: &dyn std::fmt::Display| CliError::not_extended(error);
    let (mut least, mut total) = (Amounts::new(), Amounts::new());
    for name in hosts.iter().flat_map(|host| host.amounts.keys()) {
        let of_each = || hosts.iter().map(|host| amount_of(&host.amounts, name));
        let (smallest, sum) = (of_each().min().unwrap_or_default(), of_each().fold(Amount::ZERO, |a, b| a + b));
        if of_each().any(|amount| amount != smallest) {
            total.insert(name.clone(), sum);
        }
        if smallest > Amount::ZERO {
            least.insert(name.clone(), smallest);
        }
    }
    let is_exclusive = before.request.demand().is_exclusive();
    let document = RequestDocument {
        hosts: u32::try_from(hosts.len()).map_err(|error| wrong(&error))?,
        duration: Some(seconds),
        earliest: Some(end),
        latest: Some(end),
        per_host: least,
        // Whole hosts give what they have.
        total: if is_exclusive { Amounts::new() } else { total },
        attributes: before.request.demand().attributes().clone(),
        candidates: Some(hosts.iter().map(|host| host.host.clone()).collect()),
        exclusive: is_exclusive,
        traffic: before.request.demand().traffic(),
        extends: Some(before.id.clone()),
        effort: before.request.effort(),
        ..RequestDocument::default()
    };
    Request::try_from(document).map_err(|error| wrong(&error))
}

/// What was added, and until when the reservation lasts now.
#[derive(Serialize)]
struct Extended {
    extends: RequestId,
    end: Option<Time>,
    added: Vec<RequestView>,
    /// The reservation as it is now, and what was asked for.
    #[serde(skip)]
    reservation: Option<(ReservationView, Request)>,
    #[serde(skip)]
    by: Span,
}

fn extended(after: RequestView, by: Span, added: Vec<RequestView>) -> Extended {
    let end = after.reservation.as_ref().map(|reservation| reservation.end);
    Extended { extends: after.id, end, added, reservation: after.reservation.zip(Some(after.request)), by }
}

impl Report for Extended {
    fn text(&self, look: &Look) -> String {
        let head = format!("extended {} by {}", safe(self.extends.as_str()), format_span(self.by));
        match &self.reservation {
            Some((reservation, request)) => {
                let text = reservation_text(&head, (reservation, request.budget().is_some()), look);
                text + &variant_line(request, reservation.variant())
            }
            None => format!("{}\n", look.paint.title(&head)),
        }
    }

    fn ids(&self) -> Vec<String> {
        self.added.iter().map(|view| view.id.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use broker::ids::HostId;
    use kolo_api::samples::view;

    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn only_the_same_hosts_can_satisfy_what_is_asked_behind() {
        let before = view("active", None);
        let mut reservation = before.reservation.clone().unwrap();
        // h1 has 2.4 cores and 3 GiB, b1 one core and half a GiB, h2 one core and one GiB.
        let [one] = &requests_behind(&before, &reservation, 3600).unwrap()[..] else { panic!("all end together") };
        assert_eq!(
            serde_json::to_value(&one.request).unwrap(),
            serde_json::json!({"extends": "r-42", "hosts": 3, "duration": 3600, "earliest": 1_763_719_200_i64,
                "latest": 1_763_719_200_i64, "per_host": {"cpu": 1000, "memory": 512},
                "total": {"cpu": 4400, "memory": 4608}, "candidates": ["b1", "h1", "h2"]})
        );
        assert_eq!(one.alike.len(), 3, "each kind is priced by itself");
        let plan = one.plan.as_ref().unwrap();
        let given: Vec<_> = plan.hosts.iter().map(|seat| (&seat.site, &seat.host, &seat.amounts, seat.end)).collect();
        let end = Time(1_763_719_200 + 3600);
        let expected: Vec<_> =
            reservation.hosts.iter().map(|host| (&host.site, &host.host, &host.amounts, end)).collect();
        assert_eq!((plan.start, given), (Time(1_763_719_200), expected));
        assert!(fits(&before, &reservation));
        let same = reservation.hosts[0].amounts.clone();
        reservation.hosts.iter_mut().for_each(|grant| grant.amounts = same.clone());
        let [one] = &requests_behind(&before, &reservation, 3600).unwrap()[..] else { panic!("one request") };
        assert!(one.plan.is_none() && one.alike.is_empty() && one.request.demand().total().is_empty());
        assert!(!fits(&before, &reservation));
        reservation.hosts[0].end = Time(1_763_719_300);
        assert_eq!(requests_behind(&before, &reservation, 3600).unwrap().len(), 2, "they begin apart");
        reservation.hosts[0].host = HostId::new("b1").unwrap();
        let error = requests_behind(&before, &reservation, 3600).unwrap_err();
        assert!(error.to_string().contains("the same name"), "{error}");
    }

    #[test]
    fn the_factor_and_both_ends_are_shown() {
        let mut after = view("active", None);
        after.request = Request::try_from(
            serde_json::from_str::<RequestDocument>(
                r#"{"hosts":3,"duration":3600,"per_host":{"cpu":500},"scale":[500,2000]}"#,
            )
            .unwrap(),
        )
        .unwrap();
        let reservation = after.reservation.as_mut().unwrap();
        reservation.scale = Some(Factor::of_thousandths(2000));
        reservation.objective.kind = broker::request::ObjectiveKind::Finish;
        reservation.objective.value = reservation.end.0 - 3600;
        let text = printed(&extended(after, Span(3600), vec![]), OutputFormat::Table);
        assert!(text.contains("  factor 2 of 0.5..2: 3 hosts for 30m\n") && text.contains("planned finish "), "{text}");
    }

    #[test]
    fn what_was_added_first_takes_of_the_budget() {
        let mut first = view("confirmed", None);
        first.reservation.as_mut().unwrap().cost = Cost(400);
        assert_eq!(left_of(Cost(1_000), &[first.clone(), view("confirmed", None)]), Cost(600));
        assert_eq!(left_of(Cost(300), &[first]), Cost(0));
    }

    #[test]
    fn the_added_time_has_ids_of_its_own() {
        let mut added = view("confirmed", None);
        added.id = RequestId::new("new").unwrap();
        let extended = extended(view("active", None), Span(3600), vec![added]);
        let text = printed(&extended, OutputFormat::Table);
        assert!(text.starts_with("extended r-42 by 1h: 3 hosts at 2 sites from "), "{text}");
        let json: serde_json::Value = serde_json::from_str(&printed(&extended, OutputFormat::Json)).unwrap();
        assert_eq!((&json["extends"], &json["added"][0]["id"]), (&"r-42".into(), &"new".into()));
        assert_eq!(printed(&extended, OutputFormat::Quiet), "new\n");
    }
}
