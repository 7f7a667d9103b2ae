//! What becomes of the hosts that sites give in the stead of those asked for, in the plan, on disk and in the report.

use std::collections::BTreeMap;

use super::{
    testing::{Run, at, held, record, site, version},
    *,
};
use crate::{
    amount::Amount,
    host::{Host, Speed},
    ids::{HostId, SeatNumber},
    plan::Place,
    protocol::{Places, SiteAnswer, SiteRequest},
    reason::CutCounts,
    request::Request,
    resources::{Amounts, ResourceName},
    schedule::Schedule,
    time::{Time, Window},
    trust,
};

fn cpu(amount: u64) -> Amounts {
    Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(amount))])
}

/// Hosts are found, each with what is used of its 1,000 until after the request.
fn find(run: &mut Run, hosts: &[(&str, &str, u64)]) {
    let found = |(of, name, used): &(&str, &str, u64)| {
        let mut schedule = Schedule::default();
        schedule.add(Window { start: Time(4_000), end: Time(10_000) }, &cpu(*used));
        let id = HostId::new(name).unwrap();
        let host = Host {
            id,
            capacity: cpu(1_000),
            attributes: BTreeMap::new(),
            speed: Speed::REFERENCE,
            tariff: Default::default(),
        };
        let (site, schedule) = (site(of), schedule.into());
        FoundHost { site, host, schedule, version: version(7), offer: Default::default(), standing: None }
    };
    let hosts = hosts.iter().map(found).collect();
    let found = Found { hosts, known_hosts: 9, without_schedule: 0, cut: CutCounts::default(), ..Found::default() };
    run.negotiation.handle(at(10), Event::Found(found), &mut ());
    run.drain();
}

fn places(given: &[(u32, &str)]) -> Places {
    given.iter().map(|(seat, host)| (SeatNumber(*seat), Place::Host(HostId::new(host).unwrap()))).collect()
}

fn held_on(given: &[(u32, &str)]) -> SiteAnswer {
    match held(7) {
        SiteAnswer::Held { version, hold_for, .. } => SiteAnswer::Held { version, hold_for, places: places(given) },
        other => panic!("{other:?}"),
    }
}

fn confirmed_on(given: &[(u32, &str)]) -> SiteAnswer {
    SiteAnswer::Confirmed { places: places(given), version: version(7), receipt: None }
}

fn hosts_of(plan: &Plan) -> Vec<String> {
    plan.seats.iter().map(|seat| format!("{}/{}", seat.site, seat.host())).collect()
}

/// Asked to hold: seat 0 is on host h of site a, seat 1 on that of b. Host z of each looks less useful, host y full.
fn holding(record: RequestRecord) -> Run {
    let mut run = Run::new(record, false);
    find(&mut run, &[("a", "h", 200), ("b", "h", 200), ("a", "z", 0), ("b", "z", 0), ("a", "y", 1_000)]);
    let Stage::Holding(plan) = run.negotiation.stage() else { panic!("{:?}", run.negotiation.stage()) };
    assert_eq!(hosts_of(plan), ["a/h", "b/h"], "{plan:?}");
    run
}

fn written(run: &Run) -> &RequestRecord {
    let record = run.outputs.iter().find_map(|output| match output {
        Output::Persist(record) => Some(record),
        _ => None,
    });
    record.unwrap_or_else(|| panic!("{:?}", run.wanted()))
}

#[test]
fn the_hosts_given_are_decided_on_written_and_reported() {
    let mut run = holding(record());
    let Some(Output::Ask { request: SiteRequest::Hold(_), .. }) = run.outputs.first() else { panic!() };
    let planned = run.negotiation.stage();
    let Stage::Holding(planned) = planned else { panic!("{planned:?}") };
    let planned = planned.clone();
    run.answer("a", Purpose::Hold, held_on(&[(0, "z")]));
    // The site has crashed, and the hold has come once more.
    run.answer("a", Purpose::Hold, held_on(&[]));
    run.answer("a", Purpose::Hold, held_on(&[(0, "z")]));
    run.answer("b", Purpose::Hold, held(8));
    let Decision::Commit { plan, .. } = &written(&run).decision else { panic!("{:?}", run.wanted()) };
    assert_eq!(hosts_of(plan), ["a/z", "b/h"]);
    assert!(plan.efficiency < planned.efficiency, "{} < {}", plan.efficiency, planned.efficiency);
    assert!(plan.efficiency > 0.0 && plan.efficiency_bound >= planned.efficiency && plan.start_proven);

    let mut run = Run::new(written(&run).clone(), true);
    run.answer("a", Purpose::Confirm, confirmed_on(&[(0, "y")]));
    assert!(matches!(run.negotiation.stage(), Stage::Confirming(plan) if hosts_of(plan) == ["a/z", "b/h"]));
    run.answer("a", Purpose::Confirm, confirmed_on(&[(0, "z")]));
    run.answer("b", Purpose::Confirm, confirmed_on(&[]));
    let Decision::Reserved { plan, .. } = &written(&run).decision else { panic!("{:?}", run.wanted()) };
    assert_eq!(hosts_of(plan), ["a/z", "b/h"]);
}

#[test]
fn nothing_is_said_of_the_efficiency_on_a_host_that_is_not_known_or_seems_full() {
    for given in ["new", "y"] {
        let mut run = holding(record());
        run.answer("a", Purpose::Hold, held_on(&[(0, given)]));
        run.answer("b", Purpose::Hold, held(8));
        let Decision::Commit { plan, .. } = &written(&run).decision else { panic!("{:?}", run.wanted()) };
        assert_eq!((hosts_of(plan), plan.efficiency), (vec![format!("a/{given}"), "b/h".to_owned()], 0.0));
        assert!(plan.efficiency_bound >= 1.0 && !plan.is_optimal_at_start());
    }
}

#[test]
fn places_that_a_site_must_not_give_are_no_answer() {
    let named: Request =
        serde_json::from_str(r#"{"hosts":2,"duration":60,"total":{"cpu":1500},"candidates":["h","a/z"]}"#).unwrap();
    let id = record().id;
    let authorization = trust::testing::authorize(1, &site("e"), &id, &named);
    let named = RequestRecord { request: named, authorization: Some(authorization), ..record() };
    let of_another = (record(), "a", vec![(1, "z")]);
    let of_nobody = (record(), "a", vec![(2, "z")]);
    let not_named = (named.clone(), "b", vec![(1, "z")]);
    for (record, from, given) in [of_another, of_nobody, not_named] {
        let mut run = holding(record);
        run.answer(from, Purpose::Hold, held_on(&given));
        let expected =
            ["Release 1 a".to_owned(), "Release 1 b".to_owned(), format!("find, without {{{:?}}}", site(from))];
        assert_eq!(run.wanted(), expected, "{given:?}");
    }
    let mut run = holding(named);
    run.answer("a", Purpose::Hold, held_on(&[(0, "z")]));
    assert!(run.wanted().is_empty(), "{:?}", run.wanted());

    let Stage::Holding(plan) = run.negotiation.stage() else { panic!() };
    let mut handed_in = Run::new(RequestRecord { handed_in: Some(plan.clone()), ..record() }, false);
    handed_in.answer("a", Purpose::Hold, held_on(&[(0, "h")]));
    assert!(matches!(handed_in.negotiation.stage(), Stage::Closed { .. }), "it was to be as it is");
}

/// Both seats are at one site, which is asked to book at once.
fn booking() -> Run {
    booking_of(record())
}

fn booking_of(record: RequestRecord) -> Run {
    let mut run = Run::new(record, false);
    find(&mut run, &[("a", "g", 200), ("a", "h", 200)]);
    let Some(Output::Ask { request: SiteRequest::Book { hold, .. }, .. }) = run.outputs.last() else {
        panic!("{:?}", run.outputs)
    };
    assert!(hold.may_substitute);
    run
}

#[test]
fn a_host_for_two_seats_is_no_answer_to_a_booking_at_once() {
    let mut run = booking();
    run.answer("a", Purpose::Confirm, confirmed_on(&[(0, "h")]));
    assert_eq!(run.wanted()[..2], ["write open, owed 1", "Release 1 a"], "{:?}", run.wanted());
}

#[test]
fn what_was_booked_at_once_on_other_hosts_is_reported_also_after_a_crash() {
    let mut run = booking();
    run.answer("a", Purpose::Confirm, confirmed_on(&[(0, "h"), (1, "z")]));
    let Decision::Reserved { plan, .. } = &written(&run).decision else { panic!("{:?}", run.wanted()) };
    assert_eq!(hosts_of(plan), ["a/h", "a/z"]);

    let mut run = Run::new(booking().negotiation.record().clone(), true);
    assert_eq!(run.wanted(), ["Confirm 1 a held in 7"]);
    run.answer("a", Purpose::Confirm, confirmed_on(&[(0, "h"), (1, "z")]));
    let Decision::Reserved { plan, .. } = &written(&run).decision else { panic!("{:?}", run.wanted()) };
    assert_eq!(
        (hosts_of(plan), plan.efficiency, plan.efficiency_bound),
        (vec!["a/h".to_owned(), "a/z".to_owned()], 0.0, 1.0)
    );
}

#[test]
fn a_site_with_two_seats_on_one_host_of_a_class_is_not_believed_and_replaced() {
    let class = || HostId::new("class").unwrap();
    let floats = |host: &str| Place::Floating { class: class(), host: HostId::new(host).unwrap() };
    let bound = |host: &str| Place::Bound { class: class(), host: HostId::new(host).unwrap() };
    let both = |first: Place, second: Place| vec![(SeatNumber(0), first), (SeatNumber(1), second)];
    let told = |places: Places| match guard_tests::booked(true) {
        SiteAnswer::Booked { seats, is_settled, before, others, charged, version, receipt, wait, .. } => {
            Ok(SiteAnswer::Booked { seats, places, is_settled, before, others, charged, version, receipt, wait })
        }
        other => panic!("{other:?}"),
    };
    let reserved = || {
        let mut run = booking_of(RequestRecord { earliest: Time(30_000), latest: Time(40_000), ..record() });
        let places = both(floats("g"), floats("h"));
        run.answer("a", Purpose::Confirm, SiteAnswer::Confirmed { places, version: version(7), receipt: None });
        run
    };
    let known = |run: &Run| -> Vec<Place> {
        run.negotiation.reserved_plan().unwrap().seats.iter().map(|seat| seat.place.clone()).collect()
    };
    assert_eq!(known(&reserved()), [floats("g"), floats("h")]);
    for lie in [both(bound("g"), bound("g")), both(floats("h"), bound("h")), both(floats("g"), floats("g"))] {
        let mut run = reserved();
        let due = run.wake();
        run.inspected(due, "a", told(lie));
        assert_eq!((known(&run), run.lost()), (vec![floats("g"), floats("h")], 0));
    }
    let mut run = reserved();
    // As far as is known both are on h for a moment; and a seat whose hook has failed there goes to another host.
    for first in ["h", "x"] {
        let due = run.wake();
        run.inspected(due, "a", told(vec![(SeatNumber(0), bound(first))]));
        assert_eq!(known(&run), [bound(first), floats("h")]);
    }
    let since = run.wake();
    let mut now = since;
    while run.lost() == 0 {
        assert!(now < since + 3 * guard_tests::LOST, "it counts as silent");
        run.inspected(now, "a", told(vec![(SeatNumber(1), bound("x"))]));
        if run.lost() == 0 {
            now = run.wake();
        }
    }
    assert!(now >= since + guard_tests::LOST && run.lost() == 2 && known(&run) == [bound("x"), floats("h")]);
}

#[test]
fn a_seat_that_finds_no_host_to_begin_on_is_lost_although_the_reservation_has_begun() {
    let class = || HostId::new("class").unwrap();
    let floats = |host: &str| Place::Floating { class: class(), host: HostId::new(host).unwrap() };
    let mut run = booking_of(RequestRecord { request: request_for(3_600), ..record() });
    let places = vec![(SeatNumber(0), floats("g")), (SeatNumber(1), floats("h"))];
    run.answer("a", Purpose::Confirm, SiteAnswer::Confirmed { places, version: version(7), receipt: None });
    let due = run.wake();
    assert!(run.negotiation.reserved_plan().unwrap().start <= at(due).utc);
    let SiteAnswer::Booked { is_settled, before, others, charged, version, receipt, wait, .. } =
        guard_tests::booked(true)
    else {
        panic!()
    };
    let (seats, places) = (vec![SeatNumber(1)], vec![(SeatNumber(1), floats("h"))]);
    let answer = SiteAnswer::Booked { seats, places, is_settled, before, others, charged, version, receipt, wait };
    run.inspected(due, "a", Ok(answer));
    assert_eq!(run.lost(), 1);
    assert!(run.wanted().iter().all(|what| !what.starts_with("find")), "too late to repair: {:?}", run.wanted());
}

fn request_for(seconds: u64) -> Request {
    serde_json::from_str(&format!(r#"{{"hosts":2,"duration":{seconds},"total":{{"cpu":1500}}}}"#)).unwrap()
}
