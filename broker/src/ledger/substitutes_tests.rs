//! Which hosts take the place of others, against a slow search; and that the answer to a hold stays the same.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    tests::{ask, at, attempt, confirm, cpu, grant, host, id, reason},
    *,
};
use crate::{
    host::{Host, Speed},
    plan::Place,
    protocol::{Grant, HoldRequest, Places, RefusalReason, SiteAnswer, SiteRequest},
    request::Request,
    resources::{Attributes, ResourceName},
    time::{Span, Window},
    trust::{OwnerPolicy, testing},
};

const START: i64 = 2_000;

fn all_busy(amount: u64) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.add(Window::starting(Time(START), Span(10)), &cpu(amount));
    schedule
}

/// Hosts by capacity and by how much of it is in use at the start.
fn site(hosts: &[(&str, u64, u64)]) -> Ledger {
    let offered =
        |(name, capacity, used): &(&str, u64, u64)| (Host { capacity: cpu(*capacity), ..host(name) }, all_busy(*used));
    let hosts = hosts.iter().map(offered).collect();
    Ledger::open(id("site"), LedgerLimits::default(), 7, testing::open_gate(), hosts, Vec::new(), at(0)).0
}

fn hold_of(attempt: AttemptId, asked: &str, seats: &[(&str, u64)]) -> HoldRequest {
    let asked: Request = serde_json::from_str(asked).unwrap();
    let grants = (0..).zip(seats).map(|(seat, (host, amount))| {
        let length = asked.demand().length().at_reference();
        grant(seat, host, Window::starting(Time(START), length), *amount)
    });
    HoldRequest {
        variant: Default::default(),
        grants: grants.collect(),
        participants: vec![id("site")],
        hold_for: Millis(5_000),
        may_substitute: true,
        authorization: testing::authorize(1, &id("entry"), &attempt.request, &asked).into(),
        attempt,
    }
}

fn places(named: &[(u32, &str)]) -> Places {
    let place = |(seat, host): &(u32, &str)| (crate::ids::SeatNumber(*seat), Place::Host(HostId::new(host).unwrap()));
    named.iter().map(place).collect()
}

fn held(ledger: &mut Ledger, hold: &HoldRequest) -> Places {
    match ask(ledger, at(0), "entry", SiteRequest::Hold(hold.clone())).0 {
        SiteAnswer::Held { places, .. } => places,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_host_without_room_is_replaced_by_the_one_on_which_least_stays_free_and_always_by_the_same() {
    let mut ledger = site(&[("h1", 4_000, 3_500), ("h2", 4_000, 0), ("h3", 4_000, 2_000), ("h4", 4_000, 3_500)]);
    let asked = r#"{"hosts":2,"duration":100,"per_host":{"cpu":1000}}"#;
    let hold = hold_of(attempt("r", 1), asked, &[("h1", 1_000), ("h2", 1_000)]);
    let named = HoldRequest { may_substitute: false, ..hold.clone() };
    let refused = reason(ask(&mut ledger, at(0), "entry", SiteRequest::Hold(named)).0);
    assert!(matches!(&refused, RefusalReason::NotEnough { host, .. } if host.as_str() == "h1"), "{refused}");
    for _ in 0..2 {
        assert_eq!(held(&mut ledger, &hold), places(&[(0, "h3")]), "what was held is held");
        ledger.sanity_check().unwrap();
    }
    let other = HoldRequest { grants: hold.grants[..1].to_vec(), ..hold.clone() };
    let refused = reason(ask(&mut ledger, at(0), "entry", SiteRequest::Hold(other)).0);
    assert_eq!(refused, RefusalReason::AttemptIsOver, "another plan under the same number");

    let (answer, records) = ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    assert!(matches!(answer, SiteAnswer::Confirmed { places, .. } if places.is_empty()));
    let Record::Put(record) = &records[0] else { panic!("{records:?}") };
    assert_eq!(record.grants.iter().map(|grant| grant.host().as_str()).collect::<Vec<_>>(), ["h3", "h2"]);
    // A coordinator that has crashed asks once more.
    let (answer, _) = ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    assert!(matches!(answer, SiteAnswer::Confirmed { places: told, .. } if told == places(&[(0, "h3"), (1, "h2")])));
}

#[test]
fn the_seat_that_takes_most_chooses_first() {
    let full = 4_000;
    let mut ledger = site(&[("h1", full, full), ("h2", full, full), ("h3", 100_000, 97_000), ("h4", 2_000, 500)]);
    let hold =
        hold_of(attempt("r", 1), r#"{"hosts":2,"duration":100,"total":{"cpu":4000}}"#, &[("h1", 1_000), ("h2", 3_000)]);
    assert_eq!(held(&mut ledger, &hold), places(&[(0, "h4"), (1, "h3")]));
    ledger.sanity_check().unwrap();
}

#[test]
fn where_nothing_was_replaced_no_confirm_names_places() {
    let mut ledger = site(&[("h1", 4_000, 0)]);
    let hold = hold_of(attempt("r", 1), r#"{"hosts":1,"duration":100,"per_host":{"cpu":1}}"#, &[("h1", 1)]);
    assert_eq!(held(&mut ledger, &hold), places(&[]));
    for _ in 0..2 {
        let (answer, _) = ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
        assert!(matches!(&answer, SiteAnswer::Confirmed { places, .. } if places.is_empty()), "{answer:?}");
    }
}

#[test]
fn a_booking_at_once_names_what_it_has_given_also_when_it_is_asked_again() {
    let mut ledger = site(&[("h1", 4_000, 4_000), ("h2", 4_000, 0)]);
    let hold = hold_of(attempt("r", 1), r#"{"hosts":1,"duration":100,"per_host":{"cpu":1}}"#, &[("h1", 1)]);
    for _ in 0..2 {
        let book = SiteRequest::Book { hold: hold.clone(), incarnation: 7 };
        let (answer, _) = ask(&mut ledger, at(0), "entry", book);
        assert!(
            matches!(&answer, SiteAnswer::Confirmed { places: told, .. } if *told == places(&[(0, "h2")])),
            "{answer:?}"
        );
    }
}

#[test]
fn a_host_that_the_request_has_already_is_no_substitute() {
    let asked = r#"{"hosts":2,"duration":100,"per_host":{"cpu":1}}"#;
    let mut ledger = site(&[("h1", 4_000, 4_000), ("h2", 4_000, 0)]);
    let both = hold_of(attempt("r", 1), asked, &[("h1", 1), ("h2", 1)]);
    let refused = reason(ask(&mut ledger, at(0), "entry", SiteRequest::Hold(both.clone())).0);
    assert!(matches!(refused, RefusalReason::NotEnough { .. }), "{refused}");
    assert_eq!(ledger.bookings().count(), 0);

    // An earlier attempt has the other seat there.
    let second = HoldRequest { grants: both.grants[1..].to_vec(), ..both.clone() };
    assert_eq!(held(&mut ledger, &second), Places::new());
    ask(&mut ledger, at(0), "entry", confirm(attempt("r", 1)));
    let first = HoldRequest { attempt: attempt("r", 2), grants: both.grants[..1].to_vec(), ..both };
    let refused = reason(ask(&mut ledger, at(0), "entry", SiteRequest::Hold(first)).0);
    assert!(matches!(refused, RefusalReason::NotEnough { .. }), "{refused}");
    ledger.sanity_check().unwrap();
}

#[test]
fn a_whole_host_is_replaced_by_one_that_is_free_and_as_large() {
    let asked = r#"{"hosts":1,"duration":100,"exclusive":true}"#;
    let larger = ("h2", 5_000, 0);
    for (other, expected) in [(("h3", 4_000, 0), Some("h3")), (("h3", 4_000, 1), None)] {
        let mut ledger = site(&[("h1", 4_000, 1), larger, other]);
        let hold = SiteRequest::Hold(hold_of(attempt("r", 1), asked, &[("h1", 4_000)]));
        match (ask(&mut ledger, at(0), "entry", hold).0, expected) {
            (SiteAnswer::Held { places: told, .. }, Some(host)) => assert_eq!(told, places(&[(0, host)])),
            (SiteAnswer::Refused(_), None) => {}
            (other, _) => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_share_of_a_host_that_one_user_may_have_holds_for_a_substitute() {
    let mut ledger = site(&[("h1", 4_000, 4_000), ("h2", 4_000, 0), ("h3", 8_000, 0)]);
    let shares = BTreeMap::from([(ResourceName::new("cpu").unwrap(), 25)]);
    ledger.gate.lock().set_policy(OwnerPolicy { user_share_percent: shares, ..OwnerPolicy::default() });
    let asked = r#"{"hosts":1,"duration":100,"per_host":{"cpu":800}}"#;
    for (name, host) in [("r1", "h2"), ("r2", "h3"), ("r3", "h3")] {
        assert_eq!(held(&mut ledger, &hold_of(attempt(name, 1), asked, &[("h1", 800)])), places(&[(0, host)]));
    }
    let refused = ask(&mut ledger, at(0), "entry", SiteRequest::Hold(hold_of(attempt("r4", 1), asked, &[("h1", 800)])));
    assert!(matches!(reason(refused.0), RefusalReason::NotEnough { .. }));
}

/// A host: capacity, whether it has the attribute, whether it is fast, and from when to when it is how full.
type Offered = (u64, bool, bool, (i64, u64, u64));

fn offered() -> impl Strategy<Value = Offered> {
    let busy = (-60..160_i64, 1..80_u64, 0..4_u64);
    (2..5_u64, any::<bool>(), prop::bool::weighted(0.3), busy)
}

fn host_of((at, &(capacity, is_big, is_fast, (from, length, used))): (usize, &Offered)) -> (Host, Schedule) {
    let mut schedule = Schedule::default();
    schedule.add(Window::starting(Time(START + from), Span(length)), &cpu(used.min(capacity)));
    let attributes = Attributes::from([("kind".to_owned(), if is_big { "big" } else { "small" }.to_owned())]);
    let speed = if is_fast { Speed::try_from(2_000).unwrap() } else { Speed::REFERENCE };
    (Host { capacity: cpu(capacity), attributes, speed, ..host(&format!("h{at}")) }, schedule)
}

/// Whether the host could give the seat, second by second.
fn could_give((host, schedule): &(Host, Schedule), grant: &Grant) -> bool {
    let resource = ResourceName::new("cpu").unwrap();
    let used = |at| schedule.occupancy(&resource).map_or(0, |occupancy| occupancy.used_at(Time(at)).0);
    let mut seconds = grant.window.start.0..grant.window.end.0;
    seconds.all(|at| used(at) + grant.amounts[&resource].0 <= host.capacity[&resource].0)
}

proptest! {
    /// A seat finds a host exactly if a slow search finds one; several seats have as many hosts, each of which serves.
    #[test]
    fn a_substitute_serves_and_is_found_if_there_is_one(
        offered in prop::collection::vec(offered(), 1..7), seats in 1..4_usize, amount in 1..4_u64,
        wants_kind in any::<bool>(), is_named in any::<bool>(), is_whole in prop::bool::weighted(0.2), length in 1..4_u64,
    ) {
        let hosts: Vec<(Host, Schedule)> = offered.iter().enumerate().map(host_of).collect();
        // As a plan has them: each named host serves, if it is empty, and all are equally fast.
        let first = hosts[0].0.clone();
        let is_named_one = |host: &Host| !is_named || host.id.as_str() != "h1";
        let serves = |host: &Host| {
            let is_kind = !wants_kind || host.attributes == first.attributes;
            let has = host.capacity == first.capacity || !is_whole && host.capacity >= cpu(amount);
            is_kind && has && host.speed == first.speed && is_named_one(host)
        };
        let amount = if is_whole { offered[0].0 } else { amount.min(offered[0].0) };
        let plan: Vec<&Host> = hosts.iter().map(|(host, _)| host).filter(|host| serves(host)).take(seats).collect();
        let mut asked = serde_json::json!({ "hosts": plan.len(), "work": 40 * length, "exclusive": is_whole });
        if !is_whole {
            asked["per_host"] = serde_json::json!({ "cpu": amount });
        }
        if wants_kind {
            asked["attributes"] = serde_json::json!(first.attributes);
        }
        if is_named {
            let named: Vec<_> = hosts.iter().map(|(host, _)| host).filter(|host| is_named_one(host)).collect();
            asked["candidates"] = serde_json::json!(named.iter().map(|host| &host.id).collect::<Vec<_>>());
        }
        let named: Vec<(&str, u64)> = plan.iter().map(|host| (host.id.as_str(), amount)).collect();
        let mut hold = hold_of(attempt("r", 1), &asked.to_string(), &named);
        let request: Request = serde_json::from_value(asked).unwrap();
        let window = Window::starting(Time(START), request.demand().length_on(&first));
        hold.grants.iter_mut().for_each(|grant| grant.window = window);

        let (site, limits) = (id("site"), LedgerLimits::default());
        let (mut ledger, _) = Ledger::open(site, limits, 7, testing::open_gate(), hosts.clone(), Vec::new(), at(0));
        let able: Vec<&Host> = hosts.iter().filter(|one| serves(&one.0) && could_give(one, &hold.grants[0])).map(|one| &one.0).collect();
        match ask(&mut ledger, at(0), "entry", SiteRequest::Hold(hold.clone())).0 {
            SiteAnswer::Held { places, .. } => {
                let booking = ledger.bookings().next().unwrap();
                let given: BTreeSet<&HostId> = booking.grants.iter().map(Grant::host).collect();
                prop_assert_eq!(given.len(), plan.len());
                prop_assert!(given.iter().all(|host| able.iter().any(|able| able.id == **host)), "{given:?} of {able:?}");
                let kept = |(given, asked): (&Grant, &Grant)| {
                    let is_told = places.contains(&(asked.seat, given.place.clone()));
                    is_told != (given.place == asked.place) && Grant { place: asked.place.clone(), ..given.clone() } == *asked
                };
                prop_assert!(booking.grants.iter().zip(&hold.grants).all(kept));
            }
            // All seats are alike, so as many hosts are enough.
            SiteAnswer::Refused(_) => prop_assert!(able.len() < plan.len(), "{able:?} are able, {} are asked", plan.len()),
            other => panic!("{other:?}"),
        }
        prop_assert_eq!(ledger.sanity_check(), Ok(()));
    }
}
