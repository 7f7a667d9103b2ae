//! Prices at the hold, and what is charged when a booking ends.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    tests::{ask, at, attempt, confirm, grant, host, id, reason},
    *,
};
use crate::{
    cost::Cost,
    host::Host,
    protocol::{HoldRequest, RefusalReason, SiteAnswer, SiteRequest},
    request::Request,
    tariff::{Agreement, Before, Conditions, Parts, Tariff},
    time::Span,
    trust::testing,
};

/// Six credits a core and hour; a cancellation an hour ahead gives all back, a later one half.
fn tariff() -> Tariff {
    let step = |(start, part)| Before { start: Span(start), part: Parts(part) };
    let refunds = [(0, 500), (3_600, 1_000)].map(step).to_vec();
    Tariff {
        prices: serde_json::from_str(r#"{"cpu":6000}"#).unwrap(),
        conditions: Conditions { refunds, notice_min: Span(120), ..Conditions::default() },
    }
}

fn ledger() -> Ledger {
    let hosts = vec![(Host { tariff: Arc::new(tariff()), ..host("h1") }, Schedule::default())];
    Ledger::open(id("site"), LedgerLimits::default(), 7, testing::open_gate(), hosts, Vec::new(), at(0)).0
}

/// One core for an hour from `start` on, for so much.
fn hold(attempt: AttemptId, start: i64, agreed: Agreement) -> SiteRequest {
    let asked: Request = serde_json::from_str(r#"{"hosts":1,"duration":3600,"total":{"cpu":1000}}"#).unwrap();
    let authorization = testing::authorize(1, &id("entry"), &attempt.request, &asked).into();
    let window = Window::starting(Time(start), Span(3_600));
    let grants = vec![Grant { agreed, ..grant(0, "h1", window, 1_000) }];
    let (participants, hold_for) = (vec![id("site")], Millis(5_000));
    SiteRequest::Hold(HoldRequest {
        attempt,
        variant: Default::default(),
        grants,
        participants,
        hold_for,
        may_substitute: false,
        authorization,
    })
}

fn agreed(cost: u64) -> Agreement {
    Agreement { cost: Cost(cost), refunds: tariff().conditions.refunds }
}

/// A settled booking from `start` on, for six credits.
fn booked(ledger: &mut Ledger, name: &str, start: i64) -> AttemptId {
    let attempt = attempt(name, 1);
    assert!(matches!(
        ask(ledger, at(0), "entry", hold(attempt.clone(), start, agreed(6_000))).0,
        SiteAnswer::Held { .. }
    ));
    ask(ledger, at(0), "entry", confirm(attempt.clone()));
    ask(ledger, at(0), "entry", SiteRequest::Settle(attempt.clone()));
    attempt
}

fn charge_of(records: &[Record]) -> Option<(Cost, ChargedFor)> {
    records.iter().find_map(|record| match record {
        Record::Charge(charge) => Some((charge.charged, charge.reason)),
        _ => None,
    })
}

#[test]
fn nothing_is_held_below_its_price_or_on_other_conditions_and_the_refusal_shows_them() {
    let mut ledger = ledger();
    let other = Agreement { refunds: Vec::new(), ..agreed(6_000) };
    for (start, wrong) in
        [(9_000, agreed(5_999)), (9_000, other), (9_000, Agreement::default()), (1_059, agreed(6_000))]
    {
        let answer = ask(&mut ledger, at(0), "entry", hold(attempt("r", 1), start, wrong)).0;
        let RefusalReason::PriceChanged { tariff: shown, .. } = reason(answer) else { panic!("another reason") };
        assert_eq!(*shown, tariff());
    }
    assert!(matches!(
        ask(&mut ledger, at(0), "entry", hold(attempt("r", 2), 1_060, agreed(6_000))).0,
        SiteAnswer::Held { .. }
    ));
    let dearer = Tariff { prices: serde_json::from_str(r#"{"cpu":6001}"#).unwrap(), ..tariff() };
    ledger.set_tariffs(BTreeMap::from([(HostId::new("h1").unwrap(), Arc::new(dearer))]));
    let answer = ask(&mut ledger, at(0), "entry", hold(attempt("s", 1), 9_000, agreed(6_000))).0;
    assert!(matches!(reason(answer), RefusalReason::PriceChanged { .. }));
}

#[test]
fn a_release_charges_what_the_refunds_leave_once_and_says_so_again() {
    // The clock of `at(0)` shows 1,000.
    for (start, charged) in [(9_000, 0), (4_000, 3_000)] {
        let mut ledger = ledger();
        let attempt = booked(&mut ledger, "r", start);
        let release = SiteRequest::Release(attempt.clone());
        let (answer, records) = ask(&mut ledger, at(0), "entry", release.clone());
        let SiteAnswer::Released { charged: told, .. } = answer else { panic!("{answer:?}") };
        assert_eq!((told, charge_of(&records)), (Cost(charged), Some((Cost(charged), ChargedFor::Cancellation))));
        let (again, records) = ask(&mut ledger, at(1), "entry", release);
        let SiteAnswer::Released { charged: told, .. } = again else { panic!("{again:?}") };
        assert_eq!((told, charge_of(&records)), (Cost(charged), None));
        ledger.sanity_check().unwrap();
    }
}

#[test]
fn what_is_kept_to_its_end_is_paid_in_full_and_what_was_never_complete_not_at_all() {
    let mut ledger = ledger();
    booked(&mut ledger, "r", 4_000);
    ledger.forget_past(at(7_000_000));
    let mut records = Vec::new();
    while let Some(output) = ledger.poll_output() {
        if let Output::Persist(record) = output {
            records.push(record);
        }
    }
    assert_eq!(charge_of(&records), Some((Cost(6_000), ChargedFor::Use)));

    let (mut ledger, attempt) = (self::ledger(), attempt("s", 1));
    ask(&mut ledger, at(0), "entry", hold(attempt.clone(), 4_000, agreed(6_000)));
    ask(&mut ledger, at(0), "entry", confirm(attempt.clone()));
    let (answer, records) = ask(&mut ledger, at(0), "entry", SiteRequest::Release(attempt));
    assert!(matches!(answer, SiteAnswer::Released { charged: Cost(0), .. }), "{answer:?}");
    assert_eq!(charge_of(&records), None);
}

#[test]
fn what_the_owner_takes_back_costs_nothing() {
    let mut ledger = ledger();
    let attempt = booked(&mut ledger, "r", 4_000);
    ledger.handle(at(0), Event::Evict { token: ReplyToken(1), request: attempt.request });
    while let Some(output) = ledger.poll_output() {
        assert!(!matches!(output, Output::Persist(Record::Charge(_))));
    }
    ledger.sanity_check().unwrap();
}
