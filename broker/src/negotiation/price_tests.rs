//! Prices at the coordinator: a dearer host makes room for another one, and what a larger budget would do is written down.

use std::sync::Arc;

use super::{
    testing::{Run, at, record, refused, site, version},
    *,
};
use crate::{
    amount::Amount,
    cost::Cost,
    host::{Host, Speed},
    ids::{HostId, RequestId},
    protocol::{RefusalReason, SiteAnswer, SiteRequest},
    reason::{CutCounts, Reason},
    request::Request,
    resources::{Amounts, ResourceName},
    schedule::Schedule,
    tariff::Tariff,
    time::{Time, Window},
    trust,
};

fn asked(hosts: u32, budget: u64) -> RequestRecord {
    let text = format!(r#"{{"hosts":{hosts},"duration":3600,"per_host":{{"cpu":1000}},"budget":{budget}}}"#);
    let request: Request = serde_json::from_str(&text).unwrap();
    let id: RequestId = record().id;
    let authorization = trust::testing::authorize(1, &site("e"), &id, &request);
    RequestRecord::arrived(id, "ada".to_owned(), request, authorization, 0, (Time(5_000), Time(9_000)))
}

/// So much for the whole host for an hour.
fn tariff(price: u64) -> Arc<Tariff> {
    let prices = if price == 0 { "{}".to_owned() } else { format!(r#"{{"cpu":{price}}}"#) };
    Arc::new(Tariff { prices: serde_json::from_str(&prices).unwrap(), ..Tariff::default() })
}

impl Run {
    /// Sites with a host each, of this price, that is taken until this time.
    fn find_priced(&mut self, sites: &[(&str, u64, i64)]) {
        let cpu = |amount| Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(amount))]);
        let host = |(name, price, until): &(&str, u64, i64)| {
            let mut schedule = Schedule::default();
            if *until > 0 {
                schedule.add(Window { start: Time(0), end: Time(*until) }, &cpu(1_000));
            }
            let host = Host {
                id: HostId::new("h").unwrap(),
                capacity: cpu(1_000),
                attributes: Default::default(),
                speed: Speed::REFERENCE,
                tariff: tariff(*price),
            };
            let (site, schedule, offer) = (site(name), schedule.into(), Arc::default());
            FoundHost { site, host, schedule, version: version(0), offer, standing: None }
        };
        let (hosts, uplinks) = (sites.iter().map(host).collect(), Default::default());
        let found = Found {
            hosts,
            known_hosts: 9,
            without_schedule: 0,
            cut: CutCounts::default(),
            uplinks,
            ..Found::default()
        };
        self.negotiation.handle(at(10), Event::Found(found), &mut ());
        self.drain();
    }

    fn asked_to_hold(&self) -> Vec<String> {
        let hold = |output: &Output| match output {
            Output::Ask { site, request: SiteRequest::Hold(_), .. } => Some(site.to_string()),
            _ => None,
        };
        self.outputs.iter().filter_map(hold).collect()
    }

    /// Whatever is to be found is found again, until sites are asked to hold or all is over.
    fn go_on(&mut self, sites: &[(&str, u64, i64)]) {
        for _ in 0..50 {
            if !self.asked_to_hold().is_empty() || matches!(self.negotiation.stage(), Stage::Closed { .. }) {
                return;
            }
            if self.outputs.iter().any(|output| matches!(output, Output::Find { .. })) {
                self.find_priced(sites);
            } else {
                let due = self.negotiation.poll_timeout().unwrap();
                self.time_passes_to(due.0);
            }
        }
        panic!("it goes on for ever: {:?}", self.negotiation.stage());
    }
}

fn dearer() -> SiteAnswer {
    refused(RefusalReason::PriceChanged { host: HostId::new("h").unwrap(), tariff: tariff(9_000) })
}

#[test]
fn a_dearer_host_makes_room_for_another_within_the_budget_or_the_cheapest_is_told() {
    let sites = [("a", 1_000, 0), ("b", 1_500, 0), ("c", 1_800, 0)];
    let mut run = Run::new(asked(2, 3_500), false);
    run.find_priced(&sites);
    let first = run.asked_to_hold();
    assert_eq!(first.len(), 2);
    run.answer(&first[0], Purpose::Hold, dearer());
    run.go_on(&sites);
    let second = run.asked_to_hold();
    assert!(second.len() == 2 && !second.contains(&first[0]), "{first:?}, then {second:?}");
    run.answer(&second[0], Purpose::Hold, dearer());
    run.go_on(&sites);
    let Stage::Closed { outcome: Outcome::Rejected { reason, .. }, .. } = run.negotiation.stage() else {
        panic!("{:?}", run.negotiation.stage())
    };
    // One of the three is left at its price, and costs that much beside one for nine credits.
    let left = sites.iter().find(|(name, ..)| *name == second[1]).unwrap().1;
    assert_eq!(*reason, Reason::Budget { budget: Cost(3_500), cheapest: Some(Cost(left + 9_000)) });
}

#[test]
fn what_a_larger_budget_would_do_is_written_down() {
    let without = |budget, sites: &[(&str, u64, i64)]| {
        let mut run = Run::new(asked(1, budget), false);
        run.find_priced(sites);
        let round = run.negotiation.record().history.rounds.last().unwrap().clone();
        let told = round.without_budget.map(|best| (best.objective.value, best.objective.bound, best.cost.0));
        (round.outcome, told)
    };
    let (soon, late) = (Time(5_000), Time(8_000));
    let planned = RoundOutcome::Planned;
    assert_eq!(
        without(2_000, &[("a", 3_000, 0), ("b", 1_000, late.0)]),
        (planned(late), Some((soon.0, Some(soon.0), 3_000)))
    );
    assert_eq!(without(3_000, &[("a", 3_000, 0)]), (planned(soon), Some((soon.0, Some(soon.0), 3_000))));
    assert_eq!(
        without(3_000, &[("a", 3_000, late.0)]),
        (planned(late), Some((late.0, Some(late.0), 3_000))),
        "more money changes nothing"
    );
    assert_eq!(without(3_000, &[("a", 0, late.0)]), (planned(late), None), "nothing costs anything");
}
