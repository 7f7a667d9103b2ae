//! Requests with traffic at their coordinator: what it plans, what a refused link teaches it, and what it replaces.

use super::{
    guard_tests::booked,
    testing::{Run, at, confirmed, held, record, site, told, version},
    *,
};
use crate::{
    amount::Amount,
    host::{Host, Speed},
    ids::{HostId, SeatNumber},
    protocol::{FoundBooking, HostState, Refusal, RefusalReason, SiteAnswer, SiteRequest},
    reason::Reason,
    request::Request,
    resources::{Amounts, ResourceName},
    schedule::Schedule,
    time::{Time, Window},
    trust,
    uplinks::{Uplink, amounts_of},
};

/// Two hosts for 60 s of work at reference speed, which send each other 50 Mbit/s; hours away.
fn asked(more: &str) -> RequestRecord {
    let text = format!(r#"{{"hosts":2,"work":60,"per_host":{{"cpu":700}},"traffic":{{"mbps":50}}{more}}}"#);
    let request: Request = serde_json::from_str(&text).unwrap();
    let id = record().id;
    let authorization = trust::testing::authorize(1, &site("e"), &id, &request);
    RequestRecord::arrived(id, "ada".to_owned(), request, authorization, 0, (Time(30_000), Time(30_000)))
}

/// So much of an uplink is used all the time.
fn used(mbps: u64) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.add(Window { start: Time(0), end: Time(90_000) }, &amounts_of(Amount(mbps)));
    schedule
}

/// A free host with one core.
fn linked_host(of: &str, id: &str, speed: u32) -> FoundHost {
    FoundHost {
        site: site(of),
        host: Host {
            id: HostId::new(id).unwrap(),
            capacity: Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(1_000))]),
            attributes: Default::default(),
            speed: Speed::try_from(speed).unwrap(),
            tariff: Default::default(),
        },
        schedule: Default::default(),
        offer: Default::default(),
        standing: None,
        version: version(0),
    }
}

impl Run {
    /// Sites with a host each, of this speed, and an uplink of 100 Mbit/s of which so much is used.
    fn find_linked(&mut self, now: u64, sites: &[(&str, u32, u64)]) {
        let host = |(name, speed, _): &(&str, u32, u64)| linked_host(name, "h", *speed);
        let link = |(name, _, mbps): &(&str, u32, u64)| (site(name), Uplink::with_schedule(Amount(100), &used(*mbps)));
        // As phase I does.
        let needs = self.negotiation.wanted().host_needs();
        let serves = |found: &FoundHost| needs.are_met_by(&found.site, &found.host);
        let found = Found {
            hosts: sites.iter().map(host).filter(serves).collect(),
            uplinks: sites.iter().map(link).collect(),
            known_hosts: 9,
            ..Found::default()
        };
        self.negotiation.handle(at(now), Event::Found(found), &mut ());
        self.drain();
    }

    /// The holds that are asked for now: the site, the seat, and how long it lasts.
    fn seats_asked(&self) -> Vec<(String, u32, u64)> {
        let hold = |output: &Output| match output {
            Output::Ask { site, request: SiteRequest::Hold(hold), .. } => {
                Some((site.to_string(), hold.grants[0].seat.0, hold.grants[0].window.duration().0))
            }
            _ => None,
        };
        self.outputs.iter().filter_map(hold).collect()
    }

    fn reserved_linked(sites: &[(&str, u32, u64)]) -> Run {
        let mut run = Run::new(asked(""), false);
        run.find_linked(10, sites);
        let names: Vec<&str> = sites.iter().map(|(name, ..)| *name).collect();
        run.all_hold_and_confirm(&names);
        assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)), "{:?}", run.wanted());
        run
    }
}

fn seats(expected: &[(&str, u32, u64)]) -> Vec<(String, u32, u64)> {
    expected.iter().map(|(name, seat, seconds)| ((*name).to_owned(), *seat, *seconds)).collect()
}

#[test]
fn links_that_are_known_to_be_full_are_planned_around_and_named() {
    let mut run = Run::new(asked(""), false);
    run.find_linked(10, &[("a", 1000, 50), ("b", 500, 51), ("c", 500, 0)]);
    assert_eq!(run.seats_asked(), seats(&[("a", 0, 120), ("c", 1, 120)]), "both last as long as the slower one needs");
    let mut run = Run::new(asked(""), false);
    run.find_linked(10, &[("a", 1000, 51), ("b", 1000, 51)]);
    // There are no more.
    run.find_linked(10, &[("a", 1000, 51), ("b", 1000, 51)]);
    let Stage::Closed { outcome: Outcome::Rejected { reason, start_proven: true }, .. } = run.negotiation.stage()
    else {
        panic!("{:?}", run.wanted());
    };
    assert!(matches!(reason, Reason::Uplink { room: Amount(49), load: Amount(50), .. }), "{reason:?}");
}

#[test]
fn what_a_full_link_has_shown_is_minded_by_the_next_plan() {
    let sites = [("a", 1000, 0), ("b", 1000, 0), ("c", 500, 0)];
    let refused = |reason, hosts| SiteAnswer::Refused(Refusal { reason, version: version(1), hosts });
    let state = |schedule, held| vec![HostState { host: HostId::uplink(), schedule, held }];
    let full = RefusalReason::UplinkFull { asked: Amount(50), free: Amount(40) };
    let mut run = Run::new(asked(""), false);
    run.find_linked(10, &sites);
    assert_eq!(run.seats_asked(), seats(&[("a", 0, 60), ("b", 1, 60)]));
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, refused(full.clone(), state(used(60), Vec::new())));
    assert_eq!(run.seats_asked(), seats(&[("a", 0, 120), ("c", 1, 120)]), "{:?}", run.wanted());

    // One that has become smaller since its advert, with something else on it: what is free tells how small.
    let other_hours = {
        let mut schedule = used(10);
        schedule.add(Window { start: Time(50_000), end: Time(60_000) }, &amounts_of(Amount(30)));
        schedule
    };
    let of_others = vec![(Window { start: Time(0), end: Time(90_000) }, amounts_of(Amount(5)))];
    let small = RefusalReason::UplinkFull { asked: Amount(50), free: Amount(30) };
    let mut run = Run::new(asked(""), false);
    run.find_linked(10, &sites);
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, refused(small, state(other_hours, of_others)));
    assert_eq!(run.seats_asked(), seats(&[("a", 0, 120), ("c", 1, 120)]), "{:?}", run.wanted());

    // One that nothing was known of: no plan could mind it, so it is asked no more.
    let mut run = Run::new(asked(""), false);
    run.find_linked(10, &sites);
    run.negotiation.search.forget_found();
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, refused(full, state(used(60), Vec::new())));
    let excluded = run.outputs.iter().find_map(|output| match output {
        Output::Find { exclude, .. } => Some(exclude.sites.iter().map(ToString::to_string).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(excluded, Some(vec!["b".to_owned()]));
}

#[test]
fn a_replacement_is_fast_enough_and_its_link_bears_it() {
    let mut run = Run::reserved_linked(&[("a", 800, 0), ("b", 1000, 0)]);
    let due = run.wake();
    run.inspected(due, "a", Ok(booked(true)));
    run.inspected(due, "b", Ok(booked(false)));
    // What a has is booked there already; c is too slow, and the link of d is full.
    run.find_linked(due, &[("a", 800, 50), ("c", 799, 0), ("d", 1000, 51), ("e", 800, 50)]);
    assert_eq!(run.seats_asked(), seats(&[("e", 1, 75)]));
    run.all_hold_and_confirm(&["e"]);
    assert_eq!((run.hosts(), run.lost()), (vec!["a".to_owned(), "e".to_owned()], 0));
    let plan = run.negotiation.reserved_plan().unwrap();
    assert_eq!(plan.loads().into_values().collect::<Vec<_>>(), [Amount(50), Amount(50)]);
}

#[test]
fn a_node_that_takes_over_keeps_only_seats_that_end_together() {
    let told = |from, seat, seconds| told(asked(""), from, 2, (Default::default(), seconds), seat);
    let taken = |parts: &[(SiteId, FoundBooking)]| {
        let heard = LookupAnswers { parts: parts.to_vec(), ..LookupAnswers::default() };
        asked("").take_over(&heard).unwrap().reservation.unwrap().plan
    };
    let plan = taken(&[told("a", 0, 75), told("b", 1, 75)]);
    assert_eq!((plan.seats.len(), plan.loads().len()), (2, 2));
    assert_eq!(taken(&[told("a", 0, 75), told("b", 1, 80)]).seats.len(), 1);

    let heard = LookupAnswers { parts: vec![told("a", 0, 75)], ..LookupAnswers::default() };
    let mut run = Run::new(asked("").take_over(&heard).unwrap(), true);
    run.negotiation.handle(at(1), Event::Check, &mut ());
    run.inspected(2, "a", Ok(booked(true)));
    run.find_linked(10, &[("c", 799, 0), ("d", 1000, 51), ("e", 800, 50)]);
    assert_eq!(run.seats_asked(), seats(&[("e", 1, 75)]), "{:?}", run.wanted());
    run.answer("e", Purpose::Hold, held(7));
    run.answer("e", Purpose::Confirm, confirmed(7));
    assert_eq!(run.hosts(), ["a", "e"]);
}

#[test]
fn an_uplink_that_shrinks_leaves_hosts_that_serve_again() {
    let asked = || {
        let text = r#"{"hosts":4,"work":60,"per_host":{"cpu":700},"traffic":{"mbps":40}}"#;
        let request: Request = serde_json::from_str(text).unwrap();
        let id = record().id;
        let authorization = trust::testing::authorize(1, &site("e"), &id, &request);
        RequestRecord::arrived(id, "ada".to_owned(), request, authorization, 0, (Time(30_000), Time(30_000)))
    };
    let grid = |run: &mut Run, now, (of_a, used_of_a): (usize, u64), (of_b, mbps_of_b): (usize, u64)| {
        let hosts = (0..of_a).map(|at| ("a", at)).chain((0..of_b).map(|at| ("b", at)));
        let found = Found {
            hosts: hosts.map(|(name, at)| linked_host(name, &format!("{name}{at}"), 1000)).collect(),
            uplinks: [("a", 100, used_of_a), ("b", mbps_of_b, 0)]
                .map(|(name, mbps, mbps_used)| (site(name), Uplink::with_schedule(Amount(mbps), &used(mbps_used))))
                .into_iter()
                .collect(),
            known_hosts: 9,
            ..Found::default()
        };
        run.negotiation.handle(at(now), Event::Found(found), &mut ());
        run.drain();
    };
    for (mbps, serves) in [(45, true), (39, false)] {
        let mut run = Run::new(asked(), false);
        grid(&mut run, 10, (2, 0), (2, 60));
        run.all_hold_and_confirm(&["a", "b"]);
        assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)), "{:?}", run.wanted());
        let due = run.wake();
        let told = |seats: &[u32]| SiteAnswer::Booked {
            seats: seats.iter().map(|seat| SeatNumber(*seat)).collect(),
            places: Vec::new(),
            is_settled: !seats.is_empty(),
            before: None,
            others: Vec::new(),
            charged: Default::default(),
            version: version(1),
            receipt: None,
            wait: Default::default(),
        };
        run.inspected(due, "a", Ok(told(&[0, 1])));
        // Two of its hosts would put 54 Mbit/s on it.
        run.inspected(due, "b", Ok(told(&[])));
        // Another host of a, and the two of b are free again. What finds no plan looks once more.
        for _ in 0..if serves { 1 } else { 2 } {
            grid(&mut run, due, (3, 54), (2, mbps));
        }
        if serves {
            let asked: Vec<(String, u32)> = run.seats_asked().into_iter().map(|(site, seat, _)| (site, seat)).collect();
            assert_eq!(asked, [("a".to_owned(), 2), ("b".to_owned(), 3)], "{:?}", run.wanted());
        } else {
            let failure = run.negotiation.record().reservation.as_ref().unwrap().failure.clone();
            let Some(Outcome::Rejected { reason, .. }) = failure else { panic!("{failure:?}") };
            assert!(matches!(&reason, Reason::Uplink { site: short, .. } if *short == site("b")), "{reason:?}");
        }
    }
}
