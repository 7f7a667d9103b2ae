//! What a coordinator makes of a site that lets seats begin later.

use super::{
    guard_tests::{LOST, every_seat},
    testing::{Run, at, record, site, version},
    *,
};
use crate::{
    cost::Cost,
    ids::{HostId, SeatNumber},
    plan::Place,
    protocol::{FoundBooking, Grant, SiteAnswer},
    receipt::Receipt,
    request::Request,
    time::{Millis, Span, Time, Window},
    trust::{asked::CLOCKS_DIFFER, testing},
};

/// A record of a request for two seats of 60 s from 30,000 s on, with these keys as well.
fn asking(keys: &str) -> RequestRecord {
    let text = format!(r#"{{"hosts":2,"duration":60,"total":{{"cpu":1500}}{keys}}}"#);
    let request: Request = serde_json::from_str(&text).unwrap();
    RequestRecord { request, earliest: Time(30_000), latest: Time(40_000), ..record() }
}

/// Reserved on two hosts of `a`, or on one of `a` and one of `b`.
fn reserved(keys: &str, is_at_one: bool) -> Run {
    let mut run = Run::new(asking(keys), false);
    let sites: &[&str] = if is_at_one { &["a", "a"] } else { &["a", "b"] };
    let hosts = sites.iter().enumerate().map(|(number, of)| {
        let mut found = super::testing::host_of(of);
        found.host.id = HostId::new(&format!("h{number}")).unwrap();
        found
    });
    run.find_hosts(10, hosts.collect(), 0);
    if is_at_one {
        run.answer("a", Purpose::Confirm, super::testing::confirmed(7));
    } else {
        run.all_hold_and_confirm(sites);
    }
    assert_eq!(start_and_end(&run), (30_000, 30_060));
    run
}

fn waits(wait: u64, receipt: Option<std::sync::Arc<crate::trust::SignedText>>) -> SiteAnswer {
    SiteAnswer::Booked {
        seats: every_seat(),
        places: Vec::new(),
        is_settled: true,
        before: None,
        others: Vec::new(),
        charged: Cost::ZERO,
        version: version(1),
        receipt,
        wait: Span(wait),
    }
}

/// As all seats have it.
fn start_and_end(run: &Run) -> (i64, i64) {
    let plan = run.negotiation.reserved_plan().unwrap();
    let window = Window { start: plan.start, end: plan.end() };
    assert!(plan.seats.iter().all(|seat| seat.window == window));
    (window.start.0, window.end.0)
}

#[test]
fn a_later_start_is_on_disk_before_it_is_shown_and_is_believed_once() {
    let mut run = reserved(r#","slack":600"#, true);
    let due = run.wake();
    run.inspected(due, "a", Ok(waits(120, None)));
    assert_eq!(run.wanted(), ["write reserved, owed 0"]);
    let Some(Output::Persist(written)) = run.outputs.first() else { panic!("{:?}", run.outputs) };
    let written: RequestRecord = serde_json::from_str(&serde_json::to_string(written).unwrap()).unwrap();
    for run in [&mut run, &mut Run::new(written, true)] {
        assert_eq!(start_and_end(run), (30_120, 30_180));
        let plan = run.negotiation.reserved_plan().unwrap();
        assert!(!plan.start_proven && plan.objective.value == 30_120 && plan.objective.bound.is_none());
        let Stage::Reserved(shown) = run.negotiation.stage() else { panic!() };
        assert_eq!(shown.start, Time(30_120));
        // Again, one that has forgotten it, and one that goes on.
        for wait in [120, 0, 240, 600] {
            let due = run.wake();
            run.inspected(due, "a", Ok(waits(wait, None)));
            assert_eq!((start_and_end(run), run.wanted().len()), ((30_120, 30_180), 0), "{wait}");
        }
    }
}

#[test]
fn who_hears_nothing_around_the_start_asks_on_until_it_would_be_over() {
    let mut heard = reserved(r#","slack":600"#, true);
    let mut now = heard.wake();
    while at(now).utc <= Time(30_060) + CLOCKS_DIFFER {
        heard.inspected(now, "a", Err("no answer".to_owned()));
        now = heard.wake();
    }
    let mut other = reserved(r#","slack":600"#, true);
    let late = now;
    while at(other.wake()).utc < at(late).utc {
        other.inspected(late, "a", Err("no answer".to_owned()));
    }
    heard.inspected(now, "a", Ok(waits(500, None)));
    assert_eq!(start_and_end(&heard), (30_500, 30_560));
    assert!(heard.negotiation.poll_timeout().is_some(), "it goes on");
    other.inspected(late, "a", Ok(waits(0, None)));
    let is_over = other.negotiation.poll_timeout().is_none() && !other.negotiation.may_have_waited(at(late));
    assert!(is_over, "it has begun as reserved");
}

#[test]
fn what_its_user_has_not_granted_is_no_answer() {
    for (keys, is_at_one, wait, is_believed) in [
        (r#","slack":600"#, true, 600, true),
        (r#","slack":600"#, true, 601, false),
        (r#","slack":600"#, true, u64::MAX, false),
        (r#","slack":600"#, false, 1, false),
        ("", true, 1, false),
        (r#","slack":600,"latest":30010"#, true, 10, true),
        (r#","slack":600,"latest":30010"#, true, 11, false),
        (r#","slack":600,"deadline":30070"#, true, 10, true),
        (r#","slack":600,"deadline":30070"#, true, 11, false),
    ] {
        let mut run = reserved(keys, is_at_one);
        let start = if is_believed { 30_000 + i64::try_from(wait).unwrap() } else { 30_000 };
        let since = run.wake();
        run.inspected(since, "a", Ok(waits(wait, None)));
        assert_eq!(start_and_end(&run), (start, start + 60), "{keys} {wait}");
        let mut now = since;
        while !is_believed && run.lost() == 0 {
            assert!(now < since + 3 * LOST, "it counts as silent: {keys} {wait}");
            now = run.wake();
            if run.outputs.iter().any(|output| matches!(output, Output::Ask { purpose: Purpose::Inspect(_), .. })) {
                run.inspected(now, "a", Ok(waits(wait, None)));
            }
        }
    }
}

#[test]
fn a_site_that_may_still_let_seats_wait_is_asked_soon_after_their_start() {
    for (keys, is_soon) in [(r#","slack":600"#, true), ("", false)] {
        let mut run = reserved(keys, true);
        let mut now = run.wake();
        while at(now).utc < Time(30_000) {
            run.inspected(now, "a", Ok(waits(0, None)));
            let Some(Millis(due)) = run.negotiation.poll_timeout() else { break };
            now = due;
            run.negotiation.handle_timeout(at(now));
            run.drain();
        }
        let late = at(now).utc.since(Time(30_000));
        assert_eq!(late <= Span(3) && at(now).utc >= Time(30_000), is_soon, "{keys}: {late:?}");
    }
}

#[test]
fn who_takes_over_believes_no_wait_beyond_what_its_user_has_granted() {
    for (keys, wait, is_believed) in [
        (r#","slack":600"#, 600, true),
        (r#","slack":600"#, 601, false),
        (r#","slack":600,"latest":30120"#, 120, true),
        (r#","slack":600,"latest":30119"#, 120, false),
        (r#","slack":600,"deadline":30179"#, 120, false),
    ] {
        let (record, _) = taken_over(keys, wait);
        let known = record.reservation.as_ref().unwrap().wait();
        assert_eq!(known, if is_believed { Span(wait) } else { Span(0) }, "{keys} {wait}");
    }
}

/// A seat of what has waited, as it is now.
fn grant_at(window: Window, seat: u32) -> Grant {
    Grant {
        seat: SeatNumber(seat),
        place: Place::Host(HostId::new(&format!("h{seat}")).unwrap()),
        window,
        amounts: serde_json::from_str(r#"{"cpu":750}"#).unwrap(),
        agreed: Default::default(),
    }
}

/// What a node takes over of a reservation that has waited so long, and the attempt that made it.
fn taken_over(keys: &str, wait: u64) -> (RequestRecord, AttemptId) {
    let window = Window { start: Time(30_000), end: Time(30_060) }.later(Span(wait));
    let record = asking(keys);
    let attempt = AttemptId { entry_point: site("gone"), request: record.id.clone(), attempt: 1 };
    let part = FoundBooking {
        attempt: attempt.clone(),
        variant: Default::default(),
        grants: [0, 1].map(|seat| grant_at(window, seat)).to_vec(),
        wait: Span(wait),
        participants: vec![site("a")],
        statement: std::sync::Arc::new(record.authorization.clone().unwrap().request),
    };
    let answers = LookupAnswers { parts: vec![(site("a"), part)], ..LookupAnswers::default() };
    (record.take_over(&answers).unwrap(), attempt)
}

#[test]
fn who_takes_over_what_has_waited_knows_its_windows_and_what_the_receipt_says() {
    let window = Window { start: Time(30_120), end: Time(30_180) };
    let (record, attempt) = taken_over(r#","slack":600"#, 120);
    let mut run = Run::new(record, true);
    run.negotiation.check_receipts(testing::GRID.to_owned(), |_| Some(testing::public(9)));
    run.negotiation.handle(at(1), Event::Check, &mut ());
    run.drain();
    let signed = |windows: Window| {
        let grants: Vec<Grant> = [0, 1].map(|seat| grant_at(windows, seat)).to_vec();
        let user = testing::public(1);
        let receipt = Receipt::of((testing::GRID, &site("a")), &attempt, user, &grants, Time(5_001));
        Some(testing::sign(&receipt, &testing::key(9)).into())
    };
    run.inspected(2, "a", Ok(waits(120, signed(window))));
    assert!(run.negotiation.record().receipts.is_empty(), "the receipt is of what was confirmed");
    run.negotiation.handle(at(3), Event::Check, &mut ());
    run.drain();
    run.inspected(4, "a", Ok(waits(120, signed(window.earlier(Span(120))))));
    assert_eq!((run.negotiation.record().receipts.len(), start_and_end(&run)), (1, (30_120, 30_180)));
}
