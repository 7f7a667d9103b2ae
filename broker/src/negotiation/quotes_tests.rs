//! Which plan is held after quotes.

use std::collections::BTreeMap;

use super::{
    testing::{CAPACITY, Run, at, record, site, version},
    *,
};
use crate::{
    amount::Amount,
    host::{Host, Speed},
    ids::HostId,
    protocol::{HostState, Quote, Refusal, RefusalReason, SiteAnswer, SiteRequest},
    resources::{Amounts, ResourceName},
    schedule::Schedule,
    time::{Time, Window},
    trust::{Denial, Rule},
};

fn cpu(amount: u64) -> Amounts {
    Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(amount))])
}

/// Two hosts are asked for, and these are found; all of these sites give quotes.
fn found(sites: &[&str]) -> Run {
    let mut run = Run::new(record(), false);
    find(&mut run, 10, sites, sites);
    run
}

/// These are found, some of which give quotes.
fn find(run: &mut Run, now: u64, sites: &[&str], quoting: &[&str]) {
    let host = |name: &&str| FoundHost {
        site: site(name),
        host: Host {
            id: HostId::new("h").unwrap(),
            capacity: cpu(CAPACITY),
            attributes: BTreeMap::new(),
            speed: Speed::REFERENCE,
            tariff: Default::default(),
        },
        schedule: Default::default(),
        offer: Default::default(),
        standing: None,
        version: version(0),
    };
    let quoting = quoting.iter().map(|name| site(name)).collect();
    let found = Found { hosts: sites.iter().map(host).collect(), known_hosts: 9, quoting, ..Found::default() };
    run.negotiation.handle(at(now), Event::Found(found), &mut ());
    run.drain();
}

/// The sites that are asked for quotes now, and the round.
fn quoted(run: &Run) -> (Vec<String>, u32) {
    let mut round = 0;
    let quote = |output: &Output| match output {
        Output::Ask { site, purpose: Purpose::Quote(of), request: SiteRequest::Quote(hold), .. } => {
            assert_eq!(hold.grants.len(), 1);
            round = *of;
            Some(site.to_string())
        }
        _ => None,
    };
    (run.outputs.iter().filter_map(quote).collect(), round)
}

fn states() -> Vec<HostState> {
    let mut schedule = Schedule::default();
    schedule.add(Window { start: Time(0), end: Time(90_000) }, &cpu(CAPACITY));
    vec![HostState { host: HostId::new("h").unwrap(), schedule, held: Vec::new() }]
}

fn costs(late: u64) -> SiteAnswer {
    let quote = Quote { late, slowdown_millionths: 7 * late };
    let hosts = if late == 0 { Vec::new() } else { states() };
    SiteAnswer::Quoted { quote, hosts, version: version(0) }
}

fn would_refuse() -> SiteAnswer {
    let reason = RefusalReason::NotAllowed(Denial::new(Rule::OwnQueue, "too late"));
    SiteAnswer::Refused(Refusal { reason, version: version(0), hosts: states() })
}

fn refused_as(reason: RefusalReason) -> SiteAnswer {
    SiteAnswer::Refused(Refusal { reason, version: version(0), hosts: Vec::new() })
}

/// Each site that was asked answers so.
fn all_answer(run: &mut Run, answer: impl Fn(&str) -> SiteAnswer) {
    let (sites, round) = quoted(run);
    for name in sites {
        run.answer(&name, Purpose::Quote(round), answer(&name));
    }
}

fn held_at(run: &Run) -> Vec<String> {
    run.holds().into_iter().map(|(site, ..)| site).collect()
}

#[test]
fn what_costs_nothing_is_held_and_no_attempt_is_counted_before() {
    let mut run = found(&["a", "b"]);
    assert_eq!((quoted(&run), run.negotiation.stage()), ((vec!["a".to_owned(), "b".to_owned()], 1), Stage::Planning));
    assert!(run.negotiation.record().history.attempts.is_empty());
    run.answer("a", Purpose::Quote(1), costs(0));
    assert!(run.outputs.is_empty(), "the other one has not answered");
    run.answer("b", Purpose::Quote(1), costs(0));
    assert_eq!((held_at(&run), run.negotiation.record().last_attempt), (vec!["a".to_owned(), "b".to_owned()], 1));
}

#[test]
fn hosts_that_cost_less_at_the_same_start_are_held_instead() {
    let mut run = found(&["a", "b", "c", "d"]);
    let (first, _) = quoted(&run);
    all_answer(&mut run, |name| costs(u64::from(name == first[0])));
    let (second, round) = quoted(&run);
    assert_eq!((round, second.contains(&first[0]), second.contains(&first[1])), (2, false, true), "{second:?}");
    all_answer(&mut run, |_| costs(0));
    assert_eq!(held_at(&run), second);
    let quotes = &run.negotiation.record().history.rounds[0].quotes;
    assert_eq!(quotes[0].answer, "1 more own jobs late, their mean slowdown 0.000007 larger");
}

#[test]
fn where_every_plan_costs_something_the_cheapest_is_held_as_if_nobody_had_been_asked() {
    let mut run = found(&["a", "b", "c", "d"]);
    let (first, _) = quoted(&run);
    all_answer(&mut run, |_| costs(2));
    let (second, _) = quoted(&run);
    assert!(second.iter().all(|name| !first.contains(name)), "{first:?} {second:?}");
    all_answer(&mut run, |_| costs(3));
    assert_eq!(held_at(&run), first);
    // What was shown of their hosts is in nobody's way.
    run.answer(&first[0], Purpose::Hold, testing::held(7));
    run.answer(&first[1], Purpose::Hold, testing::taken(CAPACITY, 750));
    assert_eq!(
        (quoted(&run).0.len(), quoted(&run).1),
        (2, 3),
        "planned on the three that are left: {:?}",
        run.wanted()
    );
}

#[test]
fn a_site_that_would_refuse_is_not_held_at_while_others_do() {
    let mut run = found(&["a", "b", "c"]);
    let (first, _) = quoted(&run);
    all_answer(&mut run, |name| if name == first[0] { would_refuse() } else { costs(0) });
    let (second, _) = quoted(&run);
    assert_eq!((second.len(), second.contains(&first[0])), (2, false), "{second:?}");
    all_answer(&mut run, |_| costs(0));
    assert_eq!(held_at(&run), second);

    // One of two that refuse does so for good.
    let mut run = found(&["a", "b", "c", "d"]);
    let (first, _) = quoted(&run);
    let never = || refused_as(RefusalReason::NotAllowed(Denial::new(Rule::OwnerDeny, "never")));
    all_answer(&mut run, |name| if name == first[0] { would_refuse() } else { never() });
    let (second, _) = quoted(&run);
    assert!(second.iter().all(|name| !first.contains(name)), "{first:?} {second:?}");

    // With nothing else it looks for more hosts, and ends.
    let mut run = found(&["a", "b"]);
    all_answer(&mut run, |_| would_refuse());
    assert!(run.wanted()[0].starts_with("find"), "{:?}", run.wanted());
    assert!(run.negotiation.record().history.attempts.is_empty());
}

#[test]
fn a_site_that_is_busy_for_a_moment_is_asked_to_hold_all_the_same() {
    let other = || refused_as(RefusalReason::OtherAttempt);
    for busy in [refused_as(RefusalReason::Busy), other()] {
        let mut run = found(&["a", "b"]);
        run.answer("a", Purpose::Quote(1), busy);
        run.answer("b", Purpose::Quote(1), costs(0));
        assert_eq!(held_at(&run), ["a", "b"], "the hold will tell");
    }
}

#[test]
fn plans_without_a_site_that_quotes_use_no_round() {
    let mut run = Run::new(record(), false);
    for time in 1..=4 {
        find(&mut run, time * 1_000, &["a", "b"], &[]);
        run.answer("a", Purpose::Hold, refused_as(RefusalReason::OtherAttempt));
        run.time_passes_to(time * 1_000 + 900);
        assert!(run.wanted().iter().any(|what| what.starts_with("find")), "{:?}", run.wanted());
    }
    find(&mut run, 5_000, &["a", "b"], &["b"]);
    assert_eq!(quoted(&run), (vec!["b".to_owned()], 1));
}

#[test]
fn whoever_gives_no_quote_is_asked_to_hold_all_the_same_and_late_quotes_change_nothing() {
    let mut run = found(&["a", "b"]);
    run.answer("a", Purpose::Quote(1), costs(0));
    run.time_passes_to(10_000);
    assert_eq!(held_at(&run), ["a", "b"]);
    run.answer("b", Purpose::Quote(1), would_refuse());
    assert!(run.outputs.is_empty() && matches!(run.negotiation.stage(), Stage::Holding(_)));

    let mut run = found(&["a", "b", "c", "d", "e", "f", "g", "h"]);
    for round in 1..=3 {
        assert_eq!(quoted(&run).1, round);
        all_answer(&mut run, |_| costs(1));
    }
    assert_eq!(held_at(&run).len(), 2, "three rounds are enough");
}

#[test]
fn a_request_that_is_cancelled_while_quotes_are_asked_for_owes_nothing() {
    let mut run = found(&["a", "b"]);
    run.cancel();
    assert_eq!(run.wanted(), ["write closed, owed 0"]);
}
