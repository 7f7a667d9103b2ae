//! What one user, one node and one network may have of a site, and what becomes of a node that lets its holds lapse.

use proptest::prelude::*;

use super::{
    tests::{at, grant, host, id},
    *,
};
use crate::{
    ids::{Network, RequestId},
    protocol::{HoldRequest, Refusal, RefusalReason, SiteAnswer, SiteRequest},
    request::Request,
    resources::{ResourceName, amount_of},
    time::{Span, Window},
    trust::{Gate, OwnerPolicy, Rule, Trust, testing},
};

/// A hold in short: through which node of which network, for which user, on how many hosts from which one on.
#[derive(Debug, Clone, Copy)]
struct Ask {
    user: u64,
    node: &'static str,
    network: Option<&'static str>,
    number: u64,
    first: u32,
    hosts: u32,
    amount: u64,
    start: i64,
    duration: u64,
}

const ASK: Ask = Ask {
    user: 1,
    node: "n1",
    network: None,
    number: 1,
    first: 0,
    hosts: 1,
    amount: 4_000,
    start: 2_000,
    duration: 3_600,
};

impl Ask {
    fn attempt(self) -> AttemptId {
        AttemptId {
            entry_point: id(self.node),
            request: RequestId::new(&format!("r{}", self.number)).unwrap(),
            attempt: 1,
        }
    }

    fn hold(self) -> SiteRequest {
        let text = format!(
            r#"{{"hosts":{},"duration":{},"per_host":{{"cpu":1}},"total":{{"cpu":99000}}}}"#,
            self.hosts, self.duration
        );
        let asked: Request = serde_json::from_str(&text).unwrap();
        let attempt = self.attempt();
        let window = Window::starting(Time(self.start), Span(self.duration));
        SiteRequest::Hold(HoldRequest {
            variant: Default::default(),
            authorization: testing::authorize(self.user, &id(self.node), &attempt.request, &asked).into(),
            attempt,
            grants: (0..self.hosts)
                .map(|seat| grant(seat, &format!("h{}", self.first + seat), window, self.amount))
                .collect(),
            participants: vec![id("site")],
            hold_for: Millis(20_000),
            may_substitute: false,
        })
    }
}

/// A site of eight hosts with 4,000 each, of which nobody may have more than a quarter.
fn ledger() -> Ledger {
    ledger_of(OwnerPolicy::of_open_grid(), 8)
}

fn ledger_of(policy: OwnerPolicy, hosts: u32) -> Ledger {
    let hosts = (0..hosts).map(|index| (host(&format!("h{index}")), Schedule::default())).collect();
    let gate = Gate::new(Trust::Open { grid: testing::GRID.to_owned() }, policy);
    Ledger::open(id("site"), LedgerLimits::default(), 7, gate, hosts, Vec::new(), at(0)).0
}

fn ask(ledger: &mut Ledger, now: Now, of: Ask, request: SiteRequest) -> SiteAnswer {
    let network = of.network.map(|text| Network::new(text).unwrap());
    ledger.handle(now, Event::Request { from: id(of.node), network, token: ReplyToken(1), request });
    ledger.sanity_check().unwrap();
    loop {
        if let Output::Reply { answer, .. } = ledger.poll_output().expect("every request is answered") {
            return answer;
        }
    }
}

/// How long the site holds; else by which rule it refuses.
fn hold(ledger: &mut Ledger, now: Now, of: Ask) -> Result<Millis, Rule> {
    match ask(ledger, now, of, of.hold()) {
        SiteAnswer::Held { hold_for, .. } => Ok(hold_for),
        SiteAnswer::Refused(Refusal {
            reason: RefusalReason::NotAllowed(denial) | RefusalReason::NotOffered { denial, .. },
            ..
        }) => Err(denial.rule),
        other => panic!("{other:?}"),
    }
}

fn release(ledger: &mut Ledger, now: Now, of: Ask) {
    let answer = ask(ledger, now, of, SiteRequest::Release(of.attempt()));
    assert!(matches!(answer, SiteAnswer::Released { .. }));
}

#[test]
fn a_user_a_node_and_a_network_have_a_quarter_of_the_site_each() {
    let others = [
        ("user ", Ask { node: "n2", ..ASK }),
        ("node ", Ask { user: 2, ..ASK }),
        ("network ", Ask { user: 2, node: "n2", ..ASK }),
    ];
    for (party, other) in others {
        let mut ledger = ledger();
        let in_network = |ask: Ask| Ask { network: Some("203.0.113.0/24"), ..ask };
        assert!(hold(&mut ledger, at(0), in_network(Ask { hosts: 2, ..ASK })).is_ok());
        // On a host that is free: the share, not the room, is what is missing.
        let further = in_network(Ask { number: 2, first: 7, ..other });
        let answer = ask(&mut ledger, at(0), further, further.hold());
        let SiteAnswer::Refused(Refusal { reason: RefusalReason::NotAllowed(denial), .. }) = answer else {
            panic!("{party}: {answer:?}")
        };
        assert!(denial.rule == Rule::SiteShare && denial.detail.starts_with(party), "{party}: {denial:?}");
        release(&mut ledger, at(0), in_network(ASK));
        assert!(hold(&mut ledger, at(0), further).is_ok(), "{party}: what was given back counts no more");
    }
    let mut ledger = ledger();
    assert!(hold(&mut ledger, at(0), Ask { hosts: 2, network: Some("203.0.113.0/24"), ..ASK }).is_ok());
    let stranger =
        Ask { user: 2, node: "n2", network: Some("198.51.100.0/24"), number: 2, start: 9_000, hosts: 2, ..ASK };
    assert!(hold(&mut ledger, at(0), stranger).is_ok(), "nobody else is concerned");
}

#[test]
fn a_site_of_one_host_can_be_had_whole_but_not_for_all_time() {
    let mut ledger = ledger_of(OwnerPolicy::of_open_grid(), 1);
    // A quarter of seven days is 42 hours.
    let day = 86_400;
    let long =
        |number: u64| Ask { number, start: 2_000 + i64::try_from(number).unwrap() * day / 2, duration: 43_200, ..ASK };
    for number in 0..3 {
        assert!(hold(&mut ledger, at(0), long(number)).is_ok());
    }
    assert_eq!(hold(&mut ledger, at(0), long(3)), Err(Rule::SiteShare));
    assert!(hold(&mut ledger, at(0), Ask { duration: 6 * 3_600, ..long(3) }).is_ok());
    assert_eq!(hold(&mut ledger, at(0), Ask { duration: 60, ..long(4) }), Err(Rule::SiteShare));
    assert_eq!(hold(&mut ledger, at(0), Ask { duration: 43_201, ..long(5) }), Err(Rule::OwnerMaxDuration));
    assert_eq!(hold(&mut ledger, at(0), Ask { start: 8 * day, ..long(6) }), Err(Rule::OwnerMaxReach));
}

#[test]
fn the_owner_and_members_of_a_closed_grid_may_have_all_of_the_site() {
    let mut own = ledger();
    own.gate.lock().set_owner(testing::public(1));
    assert!(hold(&mut own, at(0), Ask { hosts: 8, ..ASK }).is_ok());
    let mut closed = ledger_of(OwnerPolicy::default(), 8);
    assert!(hold(&mut closed, at(0), Ask { hosts: 8, ..ASK }).is_ok(), "the default where there is a key");
}

#[test]
fn a_site_that_is_emptied_keeps_what_it_holds_and_promises_nothing_more() {
    let mut ledger = ledger();
    assert!(hold(&mut ledger, at(0), ASK).is_ok());
    ledger.gate.lock().set_draining(true);
    assert_eq!(hold(&mut ledger, at(0), Ask { number: 2, start: 9_000, ..ASK }), Err(Rule::Draining));
    let confirm = SiteRequest::Confirm { attempt: ASK.attempt(), held_in: 7 };
    assert!(matches!(ask(&mut ledger, at(0), ASK, confirm), SiteAnswer::Confirmed { .. }));
    ledger.gate.lock().set_draining(false);
    assert!(hold(&mut ledger, at(0), Ask { number: 2, start: 9_000, ..ASK }).is_ok());
}

/// A site whose gate has this set to false refuses by `rule`, and keeps what it has promised.
fn promises_nothing_until(set: fn(&mut Gate, bool), is_set: fn(&Gate) -> bool, rule: Rule) {
    let mut ledger = ledger();
    assert!(hold(&mut ledger, at(0), ASK).is_ok());
    set(&mut ledger.gate.lock(), false);
    assert!(!is_set(&ledger.gate.lock()));
    assert_eq!(hold(&mut ledger, at(0), Ask { number: 2, start: 9_000, ..ASK }), Err(rule));
    let confirm = SiteRequest::Confirm { attempt: ASK.attempt(), held_in: 7 };
    assert!(matches!(ask(&mut ledger, at(0), ASK, confirm), SiteAnswer::Confirmed { .. }), "a promise stays");
    set(&mut ledger.gate.lock(), true);
    assert!(hold(&mut ledger, at(0), Ask { number: 2, start: 9_000, ..ASK }).is_ok());
}

#[test]
fn a_site_that_does_not_know_its_owners_work_promises_nothing() {
    promises_nothing_until(Gate::set_own_work_known, Gate::is_own_work_known, Rule::OwnWork);
}

#[test]
fn a_site_that_does_not_believe_its_clock_promises_nothing() {
    promises_nothing_until(Gate::set_clock_believed, Gate::is_clock_believed, Rule::Clock);
}

#[test]
fn a_site_without_room_on_its_disk_promises_nothing_and_says_so_in_words() {
    promises_nothing_until(Gate::set_room, Gate::has_room, Rule::Disk);
    let mut ledger = ledger();
    ledger.gate.lock().set_room(false);
    let SiteAnswer::Refused(refusal) = ask(&mut ledger, at(0), ASK, ASK.hold()) else { panic!() };
    let RefusalReason::NotAllowed(denial) = refusal.reason else { panic!("{:?}", refusal.reason) };
    let words = "refused by rule `disk`: this site's disk is full; it grants nothing new until its owner frees room";
    assert_eq!(denial.to_string(), words);
    ledger.gate.lock().set_draining(true);
    assert_eq!(hold(&mut ledger, at(0), ASK), Err(Rule::Draining), "the owner's will is told first");
}

#[test]
fn a_refusal_shows_which_hosts_are_within_the_share() {
    let mut ledger = ledger();
    let SiteAnswer::Refused(refusal) = ask(&mut ledger, at(0), ASK, Ask { hosts: 3, ..ASK }.hold()) else { panic!() };
    assert!(refusal.shows_what_is_free());
    let cpu = ResourceName::new("cpu").unwrap();
    let window = Window::starting(Time(500_000), Span(10));
    let used: Vec<u64> = refusal.hosts.iter().map(|state| state.schedule.peak(&cpu, window).0).collect();
    assert_eq!(used, [0, 0, 4_000], "the third looks taken at any time");
}

#[test]
fn whoever_has_its_share_is_shown_when_it_may_have_more() {
    let mut ledger = ledger();
    assert!(hold(&mut ledger, at(0), Ask { hosts: 2, ..ASK }).is_ok());
    let third = Ask { number: 2, first: 7, ..ASK };
    let answer = ask(&mut ledger, at(0), third, third.hold());
    let SiteAnswer::Refused(refusal) = answer else { panic!("{answer:?}") };
    let cpu = ResourceName::new("cpu").unwrap();
    let peak = |start| refusal.hosts[0].schedule.peak(&cpu, Window::starting(Time(start), Span(10))).0;
    assert_eq!([peak(2_000), peak(5_590), peak(5_600)], [4_000, 4_000, 0], "the first two end at 5,600");
    assert!(hold(&mut ledger, at(0), Ask { number: 3, start: 5_600, ..ASK }).is_ok());
}

#[test]
fn the_sites_own_node_serves_as_many_users_as_there_is_room_for() {
    let mut ledger = ledger();
    for (user, first) in [(1, 0), (2, 2), (3, 4)] {
        let one = Ask { user, node: "site", number: user, first, hosts: 2, ..ASK };
        assert!(hold(&mut ledger, at(0), one).is_ok(), "user {user}");
    }
}

#[test]
fn whoever_lets_holds_lapse_holds_for_a_shorter_time_and_then_not_at_all_until_it_is_forgiven() {
    let mut ledger = ledger();
    let honest = Ask { node: "n2", user: 2, number: 1_000, start: 99_000, ..ASK };
    let mut now_ms = 0;
    let mut leases = Vec::new();
    for number in 0..100 {
        // Each lapses, or is given back so late that it has been as much in the way.
        match hold(&mut ledger, at(now_ms), Ask { number, ..ASK }) {
            Ok(lease) => leases.push(lease.0 / 1000),
            Err(rule) => {
                assert_eq!(rule, Rule::LapsedHolds);
                break;
            }
        }
        now_ms += if number % 2 == 0 { 21_000 } else { 6_000 };
        release(&mut ledger, at(now_ms), Ask { number, ..ASK });
    }
    leases.dedup();
    assert_eq!(leases, [20, 15, 7], "seconds");
    assert!((30..60).contains(&(now_ms / 10_000)), "{now_ms}: refused after some minutes");
    let lease = hold(&mut ledger, at(now_ms), honest).unwrap();
    assert_eq!(lease, Millis(20_000), "another node is not concerned");
    release(&mut ledger, at(now_ms), honest);
    let forgiven = at(now_ms + 40 * 60_000);
    assert_eq!(hold(&mut ledger, forgiven, Ask { number: 200, start: 9_000, ..ASK }), Ok(Millis(20_000)));
}

#[test]
fn failed_attempts_and_a_crash_now_and_then_cost_nothing() {
    let mut ledger = ledger();
    for number in 0..200 {
        let now = at(number * 3_000);
        let one = Ask { number, start: 9_000, ..ASK };
        assert_eq!(hold(&mut ledger, now, one), Ok(Millis(20_000)));
        release(&mut ledger, at(number * 3_000 + 2_000), one);
    }
    // A crash loses many holds at once.
    for number in 300..340 {
        assert_eq!(hold(&mut ledger, at(600_000), Ask { number, amount: 10, start: 9_000, ..ASK }), Ok(Millis(20_000)));
    }
    assert_eq!(hold(&mut ledger, at(630_000), Ask { number: 400, start: 9_000, ..ASK }), Ok(Millis(20_000)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A hold is refused for the share of the site exactly when, at some second or in all, a party would have more of it.
    #[test]
    fn no_party_ever_has_more_than_its_share(
        asks in prop::collection::vec((1..3_u64, 0..2_usize, 1..5_u32, 1..1_500_u64, 0..60_i64, 1..40_u64), 1..14)
    ) {
        let name = ResourceName::new("cpu").unwrap();
        // In all a quarter of 100 s of 8 hosts.
        let policy = OwnerPolicy { max_reach: Some(Span(1_100)), max_duration: Some(Span(60)), ..OwnerPolicy::of_open_grid() };
        let mut ledger = ledger_of(policy, 8);
        let capacity = amount_of(&host("h0").capacity, &name).0;
        let (most, most_in_all) = (8 * capacity / 4, 8 * capacity * 1_100 / 4);
        let mut granted: Vec<Ask> = Vec::new();
        for (number, (user, node, hosts, amount, start, duration)) in (0_u64..).zip(asks) {
            let one = Ask { user, node: ["n1", "n2"][node], number, hosts, amount, start: 2_000 + start, duration, ..ASK };
            let mut after = granted.clone();
            after.push(one);
            let used = |asks: &[&Ask], second: i64| -> u64 {
                let there = |one: &&&Ask| (one.start..one.start + i64::try_from(one.duration).unwrap()).contains(&second);
                asks.iter().filter(there).map(|one| one.amount * u64::from(one.hosts)).sum()
            };
            let fits = |of_party: &dyn Fn(&Ask) -> bool| {
                let asks: Vec<&Ask> = after.iter().filter(|one| of_party(one)).collect();
                let in_all: u64 = asks.iter().map(|one| one.amount * u64::from(one.hosts) * one.duration).sum();
                in_all <= most_in_all && (2_000..2_100).all(|second| used(&asks, second) <= most)
            };
            let fits = fits(&|other| other.user == one.user) && fits(&|other| other.node == one.node);
            let answer = ask(&mut ledger, at(0), one, one.hold());
            let is_over = matches!(
                &answer,
                SiteAnswer::Refused(refusal)
                    if matches!(&refusal.reason, RefusalReason::NotAllowed(denial) if denial.rule == Rule::SiteShare)
            );
            prop_assert_eq!(is_over, !fits, "{:?}: {:?}", one, answer);
            if matches!(answer, SiteAnswer::Held { .. }) {
                granted = after;
            }
        }
    }
}

proptest! {
    /// A seat alone, beside what others and the user have already.
    #[test]
    fn a_user_is_told_beforehand_what_a_hold_is_told(
        before in prop::collection::vec((1_u64..4, 0_usize..2, 0_u32..4, 1_u64..4_000, 0_i64..6, 1_u64..6), 0..8),
        asked in (1_u64..4, 0_usize..2, 0_u32..4, 1_u64..4_000, 0_i64..6, 1_u64..6),
        (site, host, hours) in (prop::option::of(10_u8..100), prop::option::of(10_u8..100), prop::option::of(1_u64..9)),
    ) {
        let cpu = || ResourceName::new("cpu").unwrap();
        let limits = crate::trust::Limits { max_host_hours: hours, ..OwnerPolicy::default().limits };
        let user_share_percent = host.map(|percent| (cpu(), percent)).into_iter().collect();
        let policy = OwnerPolicy { site_share_percent: site, user_share_percent, limits, ..OwnerPolicy::default() };
        prop_assert_eq!(policy.offered(None).asks, site.is_some() || host.is_some() || hours.is_some());
        let mut ledger = ledger_of(policy, 4);
        let ask_of = |number: u64, (user, node, first, amount, start, hours): (u64, usize, u32, u64, i64, u64)| Ask {
            user, node: ["n1", "n2"][node], number, first, amount, start: 2_000 + 3_600 * start, duration: 3_600 * hours, ..ASK
        };
        for (number, raw) in (10..).zip(before) {
            let of = ask_of(number, raw);
            let _ = ask(&mut ledger, at(10), of, of.hold());
        }
        let of = ask_of(1, asked);
        let SiteRequest::Hold(held) = of.hold() else { unreachable!() };
        let standing = match ask(&mut ledger, at(20), of, SiteRequest::Standing(held.authorization.clone())) {
            SiteAnswer::Standing(standing) => standing,
            other => panic!("{other:?}"),
        };
        let (grant, mut schedule) = (&held.grants[0], Schedule::default());
        let host = ledger.hosts().find(|books| books.host().id == *grant.host()).unwrap().host().clone();
        standing.restrict(&host, &mut schedule, Time(20));
        let is_left = standing.denial.is_none()
            && standing.longest.is_none_or(|longest| grant.window.duration() <= longest)
            && schedule.admits(&host.capacity, grant.window, &grant.amounts).is_ok();
        match ask(&mut ledger, at(30), of, of.hold()) {
            SiteAnswer::Held { .. } => prop_assert!(is_left, "{:?}", standing),
            SiteAnswer::Refused(Refusal { reason: RefusalReason::NotAllowed(denial), .. }) => prop_assert!(!is_left, "{}", denial),
            SiteAnswer::Refused(Refusal { reason: RefusalReason::NotEnough { .. } | RefusalReason::HeldByAnother { .. }, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn who_is_denied_is_told_so_and_who_has_not_signed_is_told_nothing() {
    let mut ledger =
        ledger_of(OwnerPolicy { deny: [testing::public(1).fingerprint()].into(), ..OwnerPolicy::default() }, 1);
    let mut denial = |of: Ask, signed_for: &'static str| {
        let SiteRequest::Hold(held) = (Ask { node: signed_for, ..of }).hold() else { unreachable!() };
        match ask(&mut ledger, at(10), of, SiteRequest::Standing(held.authorization)) {
            SiteAnswer::Standing(standing) => standing.denial.map(|denial| denial.rule),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(denial(ASK, "n1"), Some(Rule::OwnerDeny));
    assert_eq!(denial(Ask { user: 2, ..ASK }, "n1"), None);
    assert_eq!(denial(Ask { user: 2, ..ASK }, "n2"), Some(Rule::EntryPoint), "signed for another node");
}
