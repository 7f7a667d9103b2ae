//! `kolo extend`: makes a reservation longer, on the same hosts with the same amounts.
//!
//! The added time is asked for by requests of its own, one for all hosts that give the same: the user signs each, every site
//! checks it, and it stands on all its hosts or on none. The node shows them as parts of the reservation. Invariant: whatever goes wrong, the reservation that is there stays
//! as it is, and what was added before something went wrong is given back.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    ids::{HostId, RequestId},
    request::{Request, RequestDocument},
    resources::Amounts,
    time::{Span, Time},
};
use serde::Serialize;

use super::{Context, path_of, waiting};
use crate::{
    api::request_view::{RequestView, ReservationView, ReservedHost},
    cli::{
        client::request_path,
        error::CliError,
        exit::Exit,
        output::{Look, Report},
        price::with_budget,
        report::reservation_text,
        request_args::ExtendArgs,
        signing,
    },
    text::{
        request_file::seconds_of,
        safe::safe,
        time::{format_span, format_time},
    },
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
    let requests = requests_behind(&before, reservation, seconds_of(args.by))?;
    let mut added = Vec::with_capacity(requests.len());
    for request in requests {
        let one = with_budget(&client, request)
            .and_then(|request| signing::submission(context, &client, &args.key, request, None))
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
            Ok(view) => CliError::Unreserved(Box::new(view))
                .hinted(format!("these hosts are not all free from {end} on; kolo slots says when as many are")),
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

/// Requests that only the same hosts can satisfy, and only right behind `reservation`: one for all hosts that give
/// the same and end together.
fn requests_behind(
    before: &RequestView,
    reservation: &ReservationView,
    seconds: i64,
) -> Result<Vec<Request>, CliError> {
    let wrong = |error: &dyn std::fmt::Display| CliError::not_extended(error);
    let names: BTreeSet<&str> = reservation.hosts.iter().map(|grant| grant.host.as_str()).collect();
    if names.len() < reservation.hosts.len() {
        return Err(wrong(&"hosts of several sites have the same name, and a request names hosts without their sites"));
    }
    let mut alike: BTreeMap<(&Amounts, Time), Vec<HostId>> = BTreeMap::new();
    for grant in &reservation.hosts {
        alike.entry((&grant.amounts, grant.end)).or_default().push(grant.host.clone());
    }
    if alike.len() > REQUESTS_MAX {
        let ways = alike.len();
        let why = format!(
            "its hosts differ in amounts and ends in {ways} ways, and {REQUESTS_MAX} requests are made at most"
        );
        return Err(wrong(&why));
    }
    let request = |((amounts, end), hosts): ((&Amounts, Time), Vec<HostId>)| {
        let document = RequestDocument {
            hosts: u32::try_from(hosts.len()).map_err(|error| wrong(&error))?,
            duration: Some(seconds),
            earliest: Some(end),
            latest: Some(end),
            per_host: amounts.clone(),
            attributes: before.request.demand().attributes().clone(),
            candidates: Some(hosts),
            exclusive: before.request.demand().is_exclusive(),
            extends: Some(before.id.clone()),
            effort: before.request.effort(),
            ..RequestDocument::default()
        };
        Request::try_from(document).map_err(|error| wrong(&error))
    };
    alike.into_iter().map(request).collect()
}

/// What was added, and until when the reservation lasts now.
#[derive(Serialize)]
struct Extended {
    extends: RequestId,
    end: Option<Time>,
    added: Vec<RequestView>,
    /// The reservation as it is now.
    #[serde(skip)]
    reservation: Option<ReservationView>,
    #[serde(skip)]
    by: Span,
}

fn extended(after: RequestView, by: Span, added: Vec<RequestView>) -> Extended {
    let end = after.reservation.as_ref().map(|reservation| reservation.end);
    Extended { extends: after.id, end, added, reservation: after.reservation, by }
}

impl Report for Extended {
    fn text(&self, look: &Look) -> String {
        let head = format!("extended {} by {}", safe(self.extends.as_str()), format_span(self.by));
        match &self.reservation {
            Some(reservation) => reservation_text(&head, reservation, look),
            None => format!("{}\n", look.paint.title(&head)),
        }
    }

    fn ids(&self) -> Vec<String> {
        self.added.iter().map(|view| view.id.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::samples::view,
        cli::{output::OutputFormat, samples::printed},
    };

    #[test]
    fn only_the_same_hosts_can_satisfy_what_is_asked_behind() {
        let before = view("active", None);
        let mut reservation = before.reservation.clone().unwrap();
        // h1 has 2.4 cores and 3 GiB, b1 one core and half a GiB, h2 one core and one GiB.
        let requests = requests_behind(&before, &reservation, 3600).unwrap();
        assert_eq!(requests.len(), 3);
        assert_eq!(
            serde_json::to_value(&requests[2]).unwrap(),
            serde_json::json!({"extends": "r-42", "hosts": 1, "duration": 3600, "earliest": 1_763_719_200_i64,
                "latest": 1_763_719_200_i64, "per_host": {"cpu": 2400, "memory": 3072}, "candidates": ["h1"]})
        );
        assert!(fits(&before, &reservation));
        let same = reservation.hosts[0].amounts.clone();
        reservation.hosts.iter_mut().for_each(|grant| grant.amounts = same.clone());
        assert_eq!(
            requests_behind(&before, &reservation, 3600).unwrap().len(),
            1,
            "one request when all give the same"
        );
        assert!(!fits(&before, &reservation));
        reservation.hosts[0].host = HostId::new("b1").unwrap();
        let error = requests_behind(&before, &reservation, 3600).unwrap_err();
        assert!(error.to_string().contains("the same name"), "{error}");
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
