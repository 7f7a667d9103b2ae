//! What one user may have beside what the user has, and that a signed request is used once.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    tests::{ask, at, grant, host, id, reason},
    *,
};
use crate::{
    host::Host,
    ids::{RequestId, ShapeNumber},
    protocol::{Grant, HoldRequest, RefusalReason, SiteAnswer, SiteRequest},
    request::Request,
    resources::{ResourceName, amount_of},
    scale::Factor,
    time::{Span, Window},
    trust::{Authorization, Chain, Credential, Gate, Limits, OwnerPolicy, Role, Rule, Subject, Trust, testing},
    variant::Variant,
};

/// One hold in short: on hosts `h0`, `h1`, ... `amount` of cpu each, from `start` on for `duration` seconds.
#[derive(Debug, Clone, Copy)]
struct Ask {
    user: u64,
    request: u64,
    attempt: u32,
    hosts: u64,
    amount: u64,
    start: i64,
    duration: u64,
    is_movable: bool,
}

const ASK: Ask =
    Ask { user: 1, request: 1, attempt: 1, hosts: 1, amount: 100, start: 2_000, duration: 3_600, is_movable: false };

impl Ask {
    fn attempt_id(self) -> AttemptId {
        let request = RequestId::new(&format!("r{}", self.request)).unwrap();
        AttemptId { entry_point: id("entry"), request, attempt: self.attempt }
    }

    fn grant(self, index: u64) -> Grant {
        let window = Window::starting(Time(self.start), Span(self.duration));
        grant(u32::try_from(index).unwrap(), host_id(index).as_str(), window, self.amount)
    }

    /// The request is for two hosts with 4,000 in all.
    fn request(self) -> SiteRequest {
        let moves = if self.is_movable { r#","move_on_loss":true"# } else { "" };
        let text = format!(r#"{{"hosts":2,"duration":{},"total":{{"cpu":4000}}{moves}}}"#, self.duration);
        let asked: Request = serde_json::from_str(&text).unwrap();
        let attempt = self.attempt_id();
        let authorization = testing::authorize(self.user, &id("entry"), &attempt.request, &asked);
        SiteRequest::Hold(HoldRequest {
            variant: Default::default(),
            attempt,
            grants: (0..self.hosts).map(|index| self.grant(index)).collect(),
            participants: vec![id("site")],
            hold_for: Millis(5_000),
            may_substitute: false,
            authorization: authorization.into(),
        })
    }
}

fn host_id(index: u64) -> HostId {
    HostId::new(&format!("h{index}")).unwrap()
}

fn ledger(policy: OwnerPolicy) -> Ledger {
    let hosts = (0..4).map(|index| (host(host_id(index).as_str()), Schedule::default())).collect();
    let gate = Gate::new(Trust::Open { grid: testing::GRID.to_owned() }, policy);
    Ledger::open(id("site"), LedgerLimits::default(), 7, gate, hosts, Vec::new(), at(0)).0
}

fn limited(limits: Limits) -> Ledger {
    ledger(OwnerPolicy { limits, ..OwnerPolicy::default() })
}

/// Holds; the rule that is against it, if one is.
fn hold(ledger: &mut Ledger, one: Ask) -> Result<(), Rule> {
    match ask(ledger, at(0), "entry", one.request()).0 {
        SiteAnswer::Held { .. } | SiteAnswer::Confirmed { .. } => Ok(()),
        answer => match reason(answer) {
            RefusalReason::NotAllowed(denial) => Err(denial.rule),
            other => panic!("{other}"),
        },
    }
}

fn confirm(ledger: &mut Ledger, one: Ask) {
    let confirm = SiteRequest::Confirm { attempt: one.attempt_id(), held_in: 7 };
    assert!(matches!(ask(ledger, at(0), "entry", confirm).0, SiteAnswer::Confirmed { .. }));
}

fn settle(ledger: &mut Ledger, one: Ask) {
    confirm(ledger, one);
    assert_eq!(ask(ledger, at(0), "entry", SiteRequest::Settle(one.attempt_id())).0, SiteAnswer::Settled);
}

fn release(ledger: &mut Ledger, one: Ask) {
    assert!(matches!(
        ask(ledger, at(0), "entry", SiteRequest::Release(one.attempt_id())).0,
        SiteAnswer::Released { .. }
    ));
}

#[test]
fn a_user_has_only_so_many_holds_and_reservations_and_gets_them_back() {
    let mut holds = limited(Limits { max_holds: Some(2), ..Limits::default() });
    let numbered = |request| Ask { request, ..ASK };
    for request in [1, 2, 1] {
        assert_eq!(hold(&mut holds, numbered(request)), Ok(()), "a repeated hold is no further one");
    }
    assert_eq!(hold(&mut holds, numbered(3)), Err(Rule::MaxHolds));
    assert_eq!(hold(&mut holds, Ask { user: 2, ..numbered(4) }), Ok(()), "another user is not concerned");
    confirm(&mut holds, numbered(1));
    assert_eq!(hold(&mut holds, numbered(3)), Ok(()));

    let mut reservations = limited(Limits { max_reservations: Some(2), ..Limits::default() });
    confirm_all(&mut reservations, &[numbered(1), numbered(2)]);
    assert_eq!(hold(&mut reservations, numbered(3)), Err(Rule::MaxReservations));
    release(&mut reservations, numbered(1));
    assert_eq!(hold(&mut reservations, numbered(3)), Ok(()));
    assert_eq!(hold(&mut reservations, numbered(4)), Err(Rule::MaxReservations), "a hold may become one");
    reservations.sanity_check().unwrap();
}

fn confirm_all(ledger: &mut Ledger, asks: &[Ask]) {
    for one in asks {
        assert_eq!(hold(ledger, *one), Ok(()));
        confirm(ledger, *one);
    }
}

#[test]
fn host_hours_are_counted_over_hosts_and_survive_a_restart() {
    let limits = Limits { max_host_hours: Some(3), ..Limits::default() };
    let mut before = limited(limits);
    assert_eq!(hold(&mut before, Ask { hosts: 2, ..ASK }), Ok(()));
    let confirm = SiteRequest::Confirm { attempt: ASK.attempt_id(), held_in: 7 };
    let (_, records) = ask(&mut before, at(0), "entry", confirm);
    let more = Ask { request: 2, hosts: 1, ..ASK };
    assert_eq!(hold(&mut before, Ask { duration: 3_601, ..more }), Err(Rule::MaxHostHours));
    let [Record::Put(kept)] = &records[..] else { panic!("one record") };
    assert_eq!((kept.user_key, &kept.user), (Some(testing::public(1)), &testing::public(1).fingerprint()));
    let hosts = (0..4).map(|index| (host(host_id(index).as_str()), Schedule::default())).collect();
    let gate =
        Gate::new(Trust::Open { grid: testing::GRID.to_owned() }, OwnerPolicy { limits, ..OwnerPolicy::default() });
    let (mut after, _) = Ledger::open(id("site"), LedgerLimits::default(), 8, gate, hosts, vec![kept.clone()], at(0));
    assert_eq!(hold(&mut after, Ask { duration: 3_601, ..more }), Err(Rule::MaxHostHours));
    assert_eq!(hold(&mut after, Ask { request: 3, ..more }), Ok(()), "three hours are three hours");
}

#[test]
fn credits_are_counted_over_reservations_until_they_end() {
    let mut ledger = limited(Limits { max_credits: Some(3), ..Limits::default() });
    let mut try_hold = |request, cost| {
        let ask_for = Ask { request, hosts: 1, ..ASK };
        let SiteRequest::Hold(mut hold) = ask_for.request() else { panic!("a hold") };
        hold.grants.iter_mut().for_each(|grant| grant.agreed.cost = crate::cost::Cost(cost));
        // A tenth of a core for an hour.
        let prices = serde_json::from_str(&format!(r#"{{"cpu":{}}}"#, cost * 10)).unwrap();
        let tariff = crate::tariff::Tariff { prices, ..Default::default() };
        ledger.set_tariffs(at(0), [(host_id(0), tariff.into())].into());
        match ask(&mut ledger, at(0), "entry", SiteRequest::Hold(hold)).0 {
            SiteAnswer::Held { .. } => Ok(()),
            answer => match reason(answer) {
                RefusalReason::NotAllowed(denial) => Err(denial.rule),
                other => panic!("{other}"),
            },
        }
    };
    assert_eq!(try_hold(1, 2_000), Ok(()));
    assert_eq!(try_hold(2, 1_001), Err(Rule::MaxCredits));
    assert_eq!(try_hold(3, 1_000), Ok(()), "three credits are three credits");
}

#[test]
fn seats_are_counted_with_their_own_lengths_and_begin_at_one_time() {
    let limits = Limits { max_host_hours: Some(3), ..Limits::default() };
    let speeds = [("h0", 1_000), ("h1", 500), ("h2", 1_000)];
    let hosts = speeds.map(|(name, speed)| {
        (Host { speed: crate::host::Speed::try_from(speed).unwrap(), ..host(name) }, Schedule::default())
    });
    let gate =
        Gate::new(Trust::Open { grid: testing::GRID.to_owned() }, OwnerPolicy { limits, ..OwnerPolicy::default() });
    let (mut ledger, _) = Ledger::open(id("site"), LedgerLimits::default(), 7, gate, hosts.to_vec(), Vec::new(), at(0));
    let asked: Request = serde_json::from_str(r#"{"hosts":3,"work":3600,"total":{"cpu":4000}}"#).unwrap();
    let mut try_hold = |attempt: u32, seats: &[(u32, &str, u64)], start: i64| {
        let attempt = Ask { attempt, ..ASK }.attempt_id();
        let authorization = testing::authorize(1, &id("entry"), &attempt.request, &asked).into();
        let seat = |(seat, host, length): &(u32, &str, u64)| {
            grant(*seat, host, Window::starting(Time(start), Span(*length)), 100)
        };
        let grants = seats.iter().map(seat).collect();
        let participants = vec![id("site")];
        let (hold_for, may_substitute) = (Millis(5_000), false);
        let hold = HoldRequest {
            attempt,
            variant: Default::default(),
            grants,
            participants,
            hold_for,
            may_substitute,
            authorization,
        };
        let confirm = SiteRequest::Confirm { attempt: hold.attempt.clone(), held_in: 7 };
        let settle = SiteRequest::Settle(hold.attempt.clone());
        match ask(&mut ledger, at(0), "entry", SiteRequest::Hold(hold)).0 {
            SiteAnswer::Held { .. } => {}
            answer => match reason(answer) {
                RefusalReason::NotAllowed(denial) => return Err(denial.rule),
                other => panic!("{other}"),
            },
        }
        ask(&mut ledger, at(0), "entry", confirm);
        ask(&mut ledger, at(0), "entry", settle);
        ledger.sanity_check().unwrap();
        Ok(())
    };
    assert_eq!(try_hold(1, &[(0, "h0", 3_600), (1, "h1", 7_200)], 2_000), Ok(()), "three hours in all");
    assert_eq!(try_hold(2, &[(2, "h2", 3_600)], 2_000), Err(Rule::MaxHostHours));
    assert_eq!(try_hold(3, &[(2, "h2", 3_600)], 9_000), Err(Rule::HostCount), "at another time");
    assert_eq!(try_hold(4, &[(1, "h0", 3_600), (2, "h2", 3_600)], 2_000), Err(Rule::HostCount), "four in all");
}

#[test]
fn a_signed_request_is_used_once() {
    let mut ledger = ledger(OwnerPolicy::default());
    let whole = Ask { hosts: 2, amount: 2_000, ..ASK };
    assert_eq!(hold(&mut ledger, whole), Ok(()));
    settle(&mut ledger, whole);
    let again = Ask { attempt: 2, hosts: 1, amount: 100, ..whole };
    assert_eq!(hold(&mut ledger, again), Err(Rule::HostCount), "the same hosts a second time");
    assert_eq!(hold(&mut ledger, Ask { start: 9_000, ..again }), Err(Rule::HostCount), "at another time");
    release(&mut ledger, whole);
    assert_eq!(reason(ask(&mut ledger, at(0), "entry", whole.request()).0), RefusalReason::AttemptIsOver);

    let part = Ask { request: 2, hosts: 1, amount: 3_000, ..ASK };
    assert_eq!(hold(&mut ledger, part), Ok(()));
    settle(&mut ledger, part);
    assert_eq!(hold(&mut ledger, Ask { attempt: 2, amount: 1_001, ..part }), Err(Rule::Total));
    let other_host = Ask { attempt: 2, amount: 1_000, ..part };
    assert_eq!(hold(&mut ledger, other_host), Ok(()), "the rest of it, in place of what was lost elsewhere");
}

#[test]
fn a_try_that_was_given_up_is_waited_for_and_a_move_may_overlap() {
    let mut ledger = ledger(OwnerPolicy::default());
    let first = Ask { hosts: 2, ..ASK };
    assert_eq!(hold(&mut ledger, first), Ok(()));
    confirm(&mut ledger, first);
    let second = Ask { attempt: 2, ..first };
    assert_eq!(reason(ask(&mut ledger, at(0), "entry", second.request()).0), RefusalReason::OtherAttempt);
    release(&mut ledger, first);
    assert_eq!(hold(&mut ledger, second), Ok(()));

    let movable = Ask { request: 2, hosts: 2, is_movable: true, ..ASK };
    assert_eq!(hold(&mut ledger, movable), Ok(()));
    settle(&mut ledger, movable);
    let moved = Ask { attempt: 2, start: 9_000, ..movable };
    assert_eq!(hold(&mut ledger, moved), Ok(()));
    settle(&mut ledger, moved);
    assert_eq!(hold(&mut ledger, Ask { attempt: 3, start: 20_000, ..movable }), Err(Rule::HostCount));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A hold is refused for the share of a host exactly when, at some second, the user would have more of it.
    #[test]
    fn no_user_ever_has_more_than_the_share(
        asks in prop::collection::vec((1..3_u64, 1..3_u64, 1..1_500_u64, 0..60_i64, 1..40_u64), 1..14)
    ) {
        let name = ResourceName::new("cpu").unwrap();
        let policy =
            OwnerPolicy { user_share_percent: BTreeMap::from([(name.clone(), 40)]), ..OwnerPolicy::default() };
        let mut ledger = ledger(policy);
        let mut granted: Vec<Ask> = Vec::new();
        for (number, (user, hosts, amount, start, duration)) in (0_u64..).zip(asks) {
            let one = Ask { user, request: number, hosts, amount, start: 2_000 + start, duration, ..ASK };
            let of = |asks: &[Ask], index: u64, second: i64| -> u64 {
                let there = |one: &&Ask| {
                    one.user == user && index < one.hosts
                        && (one.start..one.start + i64::try_from(one.duration).unwrap()).contains(&second)
                };
                asks.iter().filter(there).map(|one| one.amount).sum()
            };
            let mut after = granted.clone();
            after.push(one);
            let most = amount_of(&host("h0").capacity, &name).0 * 40 / 100;
            let fits = (0..4).all(|index| (2_000..2_100).all(|second| of(&after, index, second) <= most));
            let answer = ask(&mut ledger, at(0), "entry", one.request()).0;
            let is_over = matches!(
                &answer,
                SiteAnswer::Refused(refusal)
                    if matches!(&refusal.reason, RefusalReason::NotAllowed(denial) if denial.rule == Rule::UserShare)
            );
            prop_assert_eq!(is_over, !fits, "{:?}: {:?}", one, answer);
            if matches!(answer, SiteAnswer::Held { .. }) {
                granted = after;
            }
            prop_assert_eq!(ledger.sanity_check(), Ok(()));
        }
    }
}

#[test]
fn an_owner_may_keep_to_himself_who_has_reserved() {
    for publishes_bookings in [true, false] {
        let mut ledger = ledger(OwnerPolicy { publishes_bookings, ..OwnerPolicy::default() });
        hold(&mut ledger, ASK).unwrap();
        ask(&mut ledger, at(0), "entry", SiteRequest::Confirm { attempt: ASK.attempt_id(), held_in: 7 });
        let SiteAnswer::Bookings { bookings, is_withheld, .. } =
            ask(&mut ledger, at(0), "stranger", SiteRequest::Bookings { after: None }).0
        else {
            panic!("expected bookings")
        };
        assert_eq!((bookings.len(), is_withheld), (usize::from(publishes_bookings), !publishes_bookings));
    }
}

/// A hold of user `user` of a closed grid, whose key was made a credential for with the invitation of key 9.
fn invited(one: Ask, limits: Limits) -> SiteRequest {
    let SiteRequest::Hold(mut hold) = one.request() else { unreachable!("it is a hold") };
    let of = |user, is_invitation| Credential {
        limits,
        is_invitation,
        ..testing::credential(Subject::Key(testing::public(user)), Role::User, "bob")
    };
    let invitation = Chain::of_root(testing::sign(&of(9, true), &testing::key(0)));
    let user = invitation.with(testing::sign(&of(one.user, false), &testing::key(9)));
    let entry_point = testing::member(Subject::Site(id("entry")), Role::Site, "entry");
    hold.authorization =
        Authorization { user: Some(user), entry_point: Some(entry_point), ..(*hold.authorization).clone() }.into();
    SiteRequest::Hold(hold)
}

#[test]
fn a_hundred_keys_of_one_invitation_have_its_limits_once() {
    let limits = Limits { max_reservations: Some(2), ..Limits::default() };
    let hosts = || (0..4).map(|index| (host(host_id(index).as_str()), Schedule::default())).collect();
    let open = |kept: Vec<BookingRecord>| {
        let gate = Gate::new(testing::closed(), OwnerPolicy::default());
        Ledger::open(id("site"), LedgerLimits::default(), 7, gate, hosts(), kept, at(0)).0
    };
    let mut ledger = open(Vec::new());
    let granted = |ledger: &mut Ledger, users: std::ops::Range<u64>| {
        let mut records = Vec::new();
        for user in users {
            let one = Ask { user: 100 + user, request: user, start: 2_000 + 3_600 * user.cast_signed(), ..ASK };
            let answer = ask(ledger, at(0), "entry", invited(one, limits)).0;
            if matches!(answer, SiteAnswer::Held { .. }) {
                let confirm = SiteRequest::Confirm { attempt: one.attempt_id(), held_in: 7 };
                records.extend(ask(ledger, at(0), "entry", confirm).1);
            } else {
                let refused = reason(answer);
                let is_expected =
                    matches!(&refused, RefusalReason::NotAllowed(denial) if denial.rule == Rule::MaxReservations);
                assert!(is_expected, "{refused}");
            }
        }
        let put = |record| if let Record::Put(booking) = record { Some(booking) } else { None };
        records.into_iter().filter_map(put).collect::<Vec<_>>()
    };
    let kept = granted(&mut ledger, 0..100);
    assert_eq!(kept.len(), 2);
    ledger.sanity_check().unwrap();
    let mut restarted = open(kept);
    restarted.sanity_check().unwrap();
    assert!(granted(&mut restarted, 100..120).is_empty(), "the disk knows whose account it is");
}

#[test]
fn a_number_that_another_plan_has_had_is_over() {
    let mut ledger = ledger(OwnerPolicy::default());
    assert_eq!((hold(&mut ledger, ASK), hold(&mut ledger, ASK)), (Ok(()), Ok(())));
    let other = ask(&mut ledger, at(0), "entry", Ask { amount: 200, ..ASK }.request()).0;
    assert_eq!(reason(other), RefusalReason::AttemptIsOver);
    confirm(&mut ledger, ASK);
    ledger.sanity_check().unwrap();
}

#[test]
fn all_bookings_of_a_request_are_at_one_factor() {
    let asked: Request =
        serde_json::from_str(r#"{"hosts":4,"duration":3600,"per_host":{"cpu":50},"scale":[500,2000]}"#).unwrap();
    let hold = |factor: u32, attempt: u32, duration: u64, seats: std::ops::Range<u64>| {
        let one = Ask { attempt, duration, ..ASK };
        let SiteRequest::Hold(hold) = one.request() else { unreachable!() };
        let authorization = testing::authorize(1, &id("entry"), &hold.attempt.request, &asked).into();
        let grants = seats.map(|index| one.grant(index)).collect();
        let variant = Variant { scale: Factor::of_thousandths(factor), ..Variant::default() };
        SiteRequest::Hold(HoldRequest { variant, grants, authorization, ..hold })
    };
    let said = |ledger: &mut Ledger, request: SiteRequest| match ask(ledger, at(0), "entry", request).0 {
        SiteAnswer::Held { .. } => None,
        answer => Some(reason(answer)),
    };
    let is_of = |refused: Option<RefusalReason>, rule: Rule| matches!(&refused, Some(RefusalReason::NotAllowed(denial)) if denial.rule == rule);
    let mut ledger = ledger(OwnerPolicy::default());
    assert!(is_of(said(&mut ledger, hold(2001, 1, 1_800, 0..1)), Rule::Scale), "beyond the range");
    assert!(is_of(said(&mut ledger, hold(1000, 1, 1_800, 0..1)), Rule::Duration), "shorter than at this factor");
    assert!(is_of(said(&mut ledger, hold(2000, 1, 3_600, 0..1)), Rule::Duration), "longer than at this factor");
    assert_eq!(said(&mut ledger, hold(2000, 1, 1_800, 0..2)), None);
    assert_eq!(said(&mut ledger, hold(1999, 1, 1_801, 0..2)), Some(RefusalReason::AttemptIsOver), "another plan");
    confirm(&mut ledger, ASK);
    ask(&mut ledger, at(0), "entry", SiteRequest::Settle(ASK.attempt_id()));
    assert!(is_of(said(&mut ledger, hold(1999, 2, 1_801, 2..3)), Rule::Scale), "two factors");
    assert_eq!(said(&mut ledger, hold(2000, 2, 1_800, 2..4)), None, "the rest at the same factor");
    ledger.sanity_check().unwrap();
}

#[test]
fn all_bookings_of_a_request_are_of_one_shape() {
    let asked: Request = serde_json::from_str(
        r#"{"per_host":{"cpu":100},"shapes":[{"hosts":2,"duration":3600},{"hosts":4,"duration":1800}]}"#,
    )
    .unwrap();
    let hold = |shape: u32, attempt: u32, duration: u64, seats: std::ops::Range<u64>| {
        let one = Ask { attempt, duration, ..ASK };
        let SiteRequest::Hold(hold) = one.request() else { unreachable!() };
        let authorization = testing::authorize(1, &id("entry"), &hold.attempt.request, &asked).into();
        let grants = seats.map(|index| one.grant(index)).collect();
        SiteRequest::Hold(HoldRequest {
            variant: Variant { shape: ShapeNumber(shape), ..Variant::default() },
            grants,
            authorization,
            ..hold
        })
    };
    let said = |ledger: &mut Ledger, request: SiteRequest| match ask(ledger, at(0), "entry", request).0 {
        SiteAnswer::Held { .. } => None,
        answer => Some(reason(answer)),
    };
    let mut ledger = ledger(OwnerPolicy::default());
    let is_of = |refused: Option<RefusalReason>, rule: Rule| matches!(&refused, Some(RefusalReason::NotAllowed(denial)) if denial.rule == rule);
    assert!(is_of(said(&mut ledger, hold(0, 1, 1_800, 0..1)), Rule::Duration), "a seat of the other shape");
    assert!(is_of(said(&mut ledger, hold(0, 1, 3_600, 0..3)), Rule::HostCount), "as many as the other shape has");
    assert!(is_of(said(&mut ledger, hold(2, 1, 3_600, 0..1)), Rule::Shape), "none of them");
    assert_eq!(said(&mut ledger, hold(1, 1, 1_800, 0..2)), None);
    // The same number for another plan, after a crash of the coordinator.
    let again = said(&mut ledger, hold(0, 1, 3_600, 0..1));
    assert_eq!(again, Some(RefusalReason::AttemptIsOver));
    confirm(&mut ledger, ASK);
    assert_eq!(said(&mut ledger, hold(0, 2, 3_600, 0..1)), Some(RefusalReason::OtherAttempt), "it may be aborted yet");
    ask(&mut ledger, at(0), "entry", SiteRequest::Settle(ASK.attempt_id()));
    assert!(is_of(said(&mut ledger, hold(0, 2, 3_600, 0..1)), Rule::Shape));
    assert_eq!(said(&mut ledger, hold(1, 2, 1_800, 2..4)), None, "the rest of the same shape");
    let found = ask(&mut ledger, at(0), "other", SiteRequest::Lookup(ASK.attempt_id().request)).0;
    assert!(matches!(&found, SiteAnswer::Found { parts, .. } if parts[0].variant.shape == ShapeNumber(1)), "{found:?}");
    ledger.sanity_check().unwrap();
}
