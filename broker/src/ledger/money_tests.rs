//! Prices at the hold, and what is charged when a booking ends.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    tests::{ask, at, attempt, confirm, grant, host, id, reason},
    *,
};
use crate::{
    cost::Cost,
    host::Host,
    protocol::{Grant, HoldRequest, RefusalReason, SiteAnswer, SiteRequest},
    receipt::Receipt,
    request::Request,
    tariff::{Agreement, Before, Conditions, Parts, Tariff},
    time::{Span, Window},
    trust::{Rule, testing},
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
    let asked: Request =
        serde_json::from_str(r#"{"hosts":1,"duration":3600,"budget":8999,"total":{"cpu":1000}}"#).unwrap();
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
    ledger.set_tariffs(at(0), BTreeMap::from([(HostId::new("h1").unwrap(), Arc::new(dearer))]));
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

#[test]
fn what_was_paid_counts_against_the_budget_for_as_long_as_the_signed_request_can_be_used() {
    let day = |days: u64| at(days * 86_400_000);
    let mut ledger = ledger();
    let first = booked(&mut ledger, "r", 4_000);
    let (_, records) = ask(&mut ledger, at(0), "entry", SiteRequest::Release(first));
    let charges: Vec<Charge> = records.into_iter().filter_map(charge).collect();
    assert_eq!(charges[0].charged, Cost(3_000));
    // Six more credits are more than the budget of 8.999 leaves.
    let again = |ledger: &mut Ledger, name, days, number| {
        let now = day(days);
        ledger.forget_past(now);
        ask(ledger, now, "entry", hold(attempt(name, number), now.utc.0 + 4_000, agreed(6_000))).0
    };
    let is_over_budget =
        |answer| matches!(reason(answer), RefusalReason::NotAllowed(denial) if denial.rule == Rule::Budget);
    for days in [1, 8, 300] {
        assert!(is_over_budget(again(&mut ledger, "r", days, 2)), "day {days}");
    }
    assert!(
        matches!(again(&mut ledger, "s", 300, 1), SiteAnswer::Held { .. }),
        "another request has a budget of its own"
    );
    // A site that starts again remembers it too.
    let hosts = vec![HostLedger::new(Host { tariff: Arc::new(tariff()), ..host("h1") }, Schedule::default())];
    let (limits, kept) = (LedgerLimits::default(), Kept { charges, ..Kept::default() });
    let mut ledger = Ledger::open_with(id("site"), limits, 8, testing::open_gate(), hosts, kept, day(7)).0;
    assert!(is_over_budget(again(&mut ledger, "r", 8, 3)));
}

#[test]
fn what_stands_and_what_was_paid_are_within_one_budget() {
    let two = || {
        let hosts = ["h1", "h2"].map(|id| Host { tariff: Arc::new(tariff()), ..host(id) });
        let hosts = hosts.map(|host| (host, Schedule::default())).to_vec();
        Ledger::open(id("site"), LedgerLimits::default(), 7, testing::open_gate(), hosts, Vec::new(), at(0)).0
    };
    // A core for an hour on one of two hosts, with a budget of 14.
    let seat = |number, seat: u32, start| {
        let asked = r#"{"hosts":2,"duration":3600,"budget":14000,"move_on_loss":true,"total":{"cpu":2000}}"#;
        let asked: Request = serde_json::from_str(asked).unwrap();
        let SiteRequest::Hold(mut hold) = hold(attempt("r", number), start, agreed(6_000)) else { unreachable!() };
        hold.authorization = testing::authorize(1, &id("entry"), &hold.attempt.request, &asked).into();
        hold.grants[0] =
            Grant { agreed: agreed(6_000), ..grant(seat, ["h1", "h2"][seat as usize], hold.grants[0].window, 1_000) };
        hold
    };
    let settle = |ledger: &mut Ledger, hold: HoldRequest| {
        let attempt = hold.attempt.clone();
        assert!(matches!(ask(ledger, at(0), "entry", SiteRequest::Hold(hold)).0, SiteAnswer::Held { .. }));
        ask(ledger, at(0), "entry", confirm(attempt.clone()));
        ask(ledger, at(0), "entry", SiteRequest::Settle(attempt.clone()));
        attempt
    };
    let is_over_budget =
        |answer| matches!(reason(answer), RefusalReason::NotAllowed(denial) if denial.rule == Rule::Budget);
    // Three were paid, six stand.
    let mut ledger = two();
    let first = settle(&mut ledger, seat(1, 0, 3_000));
    ask(&mut ledger, at(0), "entry", SiteRequest::Release(first));
    settle(&mut ledger, seat(2, 0, 3_000));
    assert!(is_over_budget(ask(&mut ledger, at(0), "entry", SiteRequest::Hold(seat(3, 1, 3_000))).0));
    // Twelve stand, at two times.
    let mut ledger = two();
    settle(&mut ledger, seat(1, 0, 3_000));
    settle(&mut ledger, seat(2, 1, 3_000));
    assert!(is_over_budget(ask(&mut ledger, at(0), "entry", SiteRequest::Hold(seat(3, 0, 9_000))).0));
}

fn charge(record: Record) -> Option<Charge> {
    match record {
        Record::Charge(charge) => Some(charge),
        _ => None,
    }
}

#[test]
fn what_user_and_site_have_signed_stays_with_the_charge() {
    let mut ledger = ledger();
    ledger.sign_receipts(Arc::new(testing::key(7)));
    let attempt = booked(&mut ledger, "r", 4_000);
    let answered = ledger.bookings().find_map(|booking| ledger.receipt_for(booking)).unwrap();
    ledger.forget_past(at(7_000_000));
    assert_eq!(ledger.bookings().count(), 0);
    let outputs: Vec<Output> = std::iter::from_fn(|| ledger.poll_output()).collect();
    let charged = outputs.into_iter().find_map(|output| match output {
        Output::Persist(record) => charge(record),
        _ => None,
    });
    // As it is on disk.
    let text = serde_json::to_string(&charged.unwrap()).unwrap();
    let kept: Charge = serde_json::from_str(&text).unwrap();
    assert_eq!((&kept.attempt, &*kept.receipt.clone().unwrap()), (&attempt, &*answered));
    let receipt: Receipt = kept.receipt.unwrap().open().unwrap();
    assert_eq!((receipt.request, receipt.user), (attempt.request.clone(), testing::public(1)));
    let statement = kept.statement.unwrap();
    assert_eq!(statement.open::<crate::trust::RequestStatement>().unwrap().id, attempt.request);
    assert_eq!(statement.author, testing::public(1));
}
