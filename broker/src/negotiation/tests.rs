//! A negotiation by itself: what it wants done, in which order, and what it makes of answers. How negotiations and
//! ledgers stand together against losses and crashes is simulated by `kolo-sim faults`.

use std::collections::BTreeSet;

use super::{testing::*, *};
use crate::{
    amount::Amount,
    ids::HostId,
    protocol::{AttemptStatus, HostState, Refusal, RefusalReason, SiteAnswer, SiteRequest},
    resources::{Amounts, ResourceName},
    schedule::Schedule,
    time::{Time, Window},
    trust,
};

#[test]
fn when_all_goes_well_the_decision_is_written_before_the_confirms_and_the_end_before_the_final_word() {
    let mut run = Run::new(record(), false);
    assert_eq!(run.wanted(), ["find, without {}"]);
    run.find(&["a", "b"]);
    assert_eq!(run.wanted(), ["Hold 1 a", "Hold 1 b"]);
    run.answer("a", Purpose::Hold, held(7));
    assert!(run.wanted().is_empty(), "one hold is not enough");
    run.answer("b", Purpose::Hold, held(8));
    assert_eq!(run.wanted(), ["write commit, owed 0", "Confirm 1 a held in 7", "Confirm 1 b held in 8"]);
    run.answer("b", Purpose::Confirm, confirmed(8));
    assert!(run.wanted().is_empty() && matches!(run.negotiation.stage(), Stage::Confirming(_)));
    run.answer("a", Purpose::Confirm, confirmed(7));
    assert_eq!(run.wanted(), ["write reserved, owed 0", "Settle 1 a", "Settle 1 b"]);
    assert!(matches!(run.negotiation.stage(), Stage::Reserved(_)) && run.negotiation.is_quiet());
}

#[test]
fn a_plan_at_one_site_is_decided_there_in_one_round() {
    let mut run = booking();
    assert_eq!(run.wanted(), ["write commit, owed 0", "Confirm 1 a"]);
    let Some(Output::Ask { request: SiteRequest::Book { hold, incarnation }, .. }) = run.outputs.last() else {
        panic!()
    };
    assert_eq!((&hold.participants, *incarnation), (&vec![site("a")], version(0).incarnation));
    run.answer("a", Purpose::Confirm, confirmed(0));
    assert_eq!(run.wanted(), ["write reserved, owed 0", "Settle 1 a"]);

    let cpu = ResourceName::new("cpu").unwrap();
    let taken = RefusalReason::HeldByAnother { host: HostId::new("h").unwrap(), resource: cpu };
    for (answer, is_left_out) in [(Some(RefusalReason::NoSuchHold), false), (Some(taken), false), (None, true)] {
        let mut run = booking();
        let answer = answer.map(refused).ok_or_else(|| "no answer".to_owned());
        let event = Event::Answer { site: site("a"), attempt: 1, purpose: Purpose::Confirm, answer };
        run.negotiation.handle(at(20), event, &mut ());
        run.drain();
        assert_eq!(run.wanted()[..2], ["write open, owed 1", "Release 1 a"], "it may have booked all the same");
        while !run.wanted().iter().any(|what| what.starts_with("find")) {
            run.time_passes_to(10_000);
        }
        assert!(run.wanted().contains(&format!("find, without {}", if is_left_out { r#"{"a"}"# } else { "{}" })));
        run.find(&["a", "b"]);
        assert!(run.wanted().iter().any(|what| what.starts_with("Hold 2 ")), "the second attempt shows in a hold why");
    }
}

#[test]
fn a_participant_never_hears_that_an_attempt_newer_than_the_record_is_dead() {
    let before = record();
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, held(8));
    let Some(Output::Persist(commit)) = run.outputs.first() else { panic!("{:?}", run.outputs) };
    let attempt = AttemptId { entry_point: site("e"), request: before.id.clone(), attempt: 1 };
    let heard = |record: &RequestRecord| record.status_of(&site("e"), &attempt, &site("a"));
    // Whichever record the node answers from: a confirm is on its way only when the later one is on disk.
    assert_eq!((heard(&before), heard(commit)), (AttemptStatus::Pending, AttemptStatus::Pending));
    let later = RequestRecord { last_attempt: 2, decision: Decision::Open, ..RequestRecord::clone(commit) };
    assert_eq!(heard(&later), AttemptStatus::Aborted, "it was decided against since");
    let resumed = Run::new(before, true);
    let Some(Output::Persist(jumped)) = resumed.outputs.first() else { panic!("{:?}", resumed.outputs) };
    assert_eq!(heard(jumped), AttemptStatus::Aborted, "a crash has ended it before a decision");
}

#[test]
fn a_refused_hold_releases_the_try_everywhere_and_the_next_has_another_number() {
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, refused(RefusalReason::AttemptIsOver));
    assert_eq!(run.wanted(), ["Release 1 a", "Release 1 b", r#"find, without {"a"}"#]);
    run.find(&["b", "c"]);
    assert_eq!(run.wanted(), ["Hold 2 b", "Hold 2 c"]);
    let late = Event::Answer { site: site("b"), attempt: 1, purpose: Purpose::Hold, answer: Ok(held(8)) };
    run.negotiation.handle(at(25), late, &mut ());
    run.answer("c", Purpose::Hold, held(9));
    assert!(run.wanted().is_empty(), "a late answer to the first try does not count for the second");
}

#[test]
fn a_conflict_with_another_request_is_waited_out() {
    let mut run = Run::holding();
    let cpu = ResourceName::new("cpu").unwrap();
    let reason = RefusalReason::HeldByAnother { host: HostId::new("h").unwrap(), resource: cpu };
    run.answer("a", Purpose::Hold, refused(reason));
    assert_eq!(run.wanted(), ["Release 1 a", "Release 1 b"]);
    assert!(matches!(run.negotiation.stage(), Stage::BackingOff));
    run.time_passes_to(1_000);
    assert_eq!(run.wanted(), ["find, without {}"], "the site is asked again");
}

/// A site's host is held by somebody else, all of it, in this window.
fn held_by_another(start: i64, end: i64) -> SiteAnswer {
    let (cpu, h) = (ResourceName::new("cpu").unwrap(), HostId::new("h").unwrap());
    let window = Window { start: Time(start), end: Time(end) };
    let held = vec![(window, Amounts::from([(cpu.clone(), Amount(CAPACITY))]))];
    let reason = RefusalReason::HeldByAnother { host: h.clone(), resource: cpu };
    let hosts = vec![HostState { host: h, schedule: Schedule::default(), held }];
    SiteAnswer::Refused(Refusal { reason, version: version(1), hosts })
}

#[test]
fn a_hold_of_another_is_planned_around_at_once_where_that_costs_no_time() {
    let sites = ["a", "b", "c", "d"];
    let asked = |run: &Run| -> BTreeSet<String> { run.holds().into_iter().map(|(site, ..)| site).collect() };
    let mut rivals = [Run::new(record(), false), Run::new(record(), false)];
    for run in &mut rivals {
        run.find(&sites);
    }
    let [first, second] = rivals.each_ref().map(asked);
    assert_eq!(first, second, "both want the same hosts");
    // Each has one of them, and the other has the other.
    for (run, taken) in rivals.iter_mut().zip(&first) {
        let other = first.iter().find(|site| *site != taken).unwrap();
        run.answer(other, Purpose::Hold, held(7));
        run.answer(taken, Purpose::Hold, held_by_another(0, 100_000));
        assert!(run.wanted().iter().all(|what| !what.starts_with("find")), "{:?}", run.wanted());
        let again = asked(run);
        assert!(again.len() == 2 && !again.contains(taken), "{again:?}");
        for site in &again {
            run.answer(site, Purpose::Hold, held(8));
        }
        assert!(matches!(run.negotiation.stage(), Stage::Confirming(_)));
    }
    // Where the start would be later, the hold is waited out: it may go away.
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, held(7));
    run.answer("b", Purpose::Hold, held_by_another(0, 100_000));
    assert_eq!(run.wanted(), ["Release 1 a", "Release 1 b"]);
    assert!(matches!(run.negotiation.stage(), Stage::BackingOff));
    run.time_passes_to(1_000);
    assert_eq!(run.wanted(), ["find, without {}"]);
}

#[test]
fn coordinators_that_see_the_same_choose_apart_where_that_is_as_early() {
    let names: Vec<String> = (0..40).map(|number| format!("s{number}")).collect();
    let chosen = |seed: u64, is_busy: &dyn Fn(usize) -> bool| {
        let settings = NegotiationSettings::default();
        let negotiation = Negotiation::new(site("s0"), settings, record(), false, seed, at(0));
        let mut run = Run { negotiation, outputs: Vec::new() };
        run.drain();
        let mut hosts: Vec<FoundHost> = names.iter().map(|name| host_of(name)).collect();
        for (_, host) in hosts.iter_mut().enumerate().filter(|(at, _)| is_busy(*at)) {
            let mut schedule = Schedule::default();
            schedule.add(Window { start: Time(0), end: Time(8_000) }, &host.host.capacity);
            host.schedule = std::sync::Arc::new(schedule);
        }
        run.find_hosts(10, hosts, 0);
        let Stage::Holding(plan) = run.negotiation.stage() else { panic!("seed {seed}") };
        assert_eq!((plan.start, plan.start_proven), (Time(5_000), true));
        plan.seats.iter().map(|seat| seat.site.to_string()).collect::<BTreeSet<_>>()
    };
    let sets: BTreeSet<_> = (0..30).map(|seed| chosen(seed, &|_| false)).collect();
    assert!(sets.len() > 20, "{} different sets of 30", sets.len());
    // Few sites do not serve then, whichever are drawn; all hosts do.
    let only = BTreeSet::from(["s17".to_owned(), "s31".to_owned()]);
    assert!((0..30).all(|seed| chosen(seed, &|at| at != 17 && at != 31) == only));
}

/// A site has no room, and shows that.
fn not_enough() -> SiteAnswer {
    let (cpu, h) = (ResourceName::new("cpu").unwrap(), HostId::new("h").unwrap());
    let mut schedule = Schedule::default();
    let window = Window { start: Time(0), end: Time(100_000) };
    schedule.add(window, &Amounts::from([(cpu.clone(), Amount(CAPACITY))]));
    let reason = RefusalReason::NotEnough { host: h.clone(), resource: cpu, asked: Amount(750), free: Amount(0) };
    let hosts = vec![HostState { host: h, schedule, held: Vec::new() }];
    SiteAnswer::Refused(Refusal { reason, version: version(1), hosts })
}

#[test]
fn a_refusal_that_shows_what_is_free_is_planned_around_at_once() {
    let mut run = Run::new(record(), false);
    run.find(&["a", "b", "c"]);
    let asked: Vec<String> =
        run.wanted().iter().filter_map(|what| what.strip_prefix("Hold 1 ")).map(str::to_owned).collect();
    let [refusing, other] = asked.try_into().unwrap();
    let third = ["a", "b", "c"].into_iter().find(|site| *site != refusing && *site != other).unwrap();
    run.answer(&refusing, Purpose::Hold, not_enough());
    assert!(run.wanted().is_empty(), "the other has a quarter as long again to say what it has");
    run.time_passes_to(22);
    let asked: BTreeSet<String> = run.wanted().into_iter().filter(|what| what.starts_with("Hold")).collect();
    assert_eq!(asked, BTreeSet::from([format!("Hold 2 {other}"), format!("Hold 2 {third}")]));
    run.answer(&other, Purpose::Hold, held(8));
    run.answer(third, Purpose::Hold, not_enough());
    assert_eq!(run.wanted()[2..], ["find, without {}"], "one is not enough, others may be");
    assert_eq!(run.negotiation.record().history.rounds.len(), 2);
}

#[test]
fn a_site_that_gives_no_more_than_a_share_of_it_is_planned_with_and_named_when_that_is_too_little() {
    let over_share = || {
        let SiteAnswer::Refused(refusal) = not_enough() else { panic!() };
        let reason = RefusalReason::NotAllowed(trust::Denial::new(trust::Rule::SiteShare, "why"));
        SiteAnswer::Refused(Refusal { reason, ..refusal })
    };
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, over_share());
    run.answer("b", Purpose::Hold, held(8));
    assert_eq!(run.wanted()[2..], ["find, without {}"], "other hosts of the site may do");
    run.find(&["a", "b", "c"]);
    assert_eq!(run.wanted(), ["Hold 2 b", "Hold 2 c"], "not the host that is beyond the share");
    run.answer("b", Purpose::Hold, over_share());
    run.answer("c", Purpose::Hold, over_share());
    while !matches!(run.negotiation.stage(), Stage::Closed { .. }) {
        run.find(&["a", "b", "c"]);
    }
    let Stage::Closed { outcome: Outcome::Failed(Failure::Refused { detail, .. }), .. } = run.negotiation.stage()
    else {
        panic!()
    };
    assert!(detail.contains("site-share"), "{detail}");
}

#[test]
fn a_site_whose_refusal_for_its_share_was_cut_short_is_asked_once_more() {
    let cut = || {
        let reason = RefusalReason::NotAllowed(trust::Denial::new(trust::Rule::SiteShare, "why"));
        SiteAnswer::Refused(Refusal { reason, version: version(1), hosts: Vec::new() })
    };
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, cut());
    run.answer("b", Purpose::Hold, held(8));
    run.wanted();
    run.time_passes_to(1_000);
    assert_eq!(run.wanted(), ["find, without {}"], "smaller parts of it may do");
}

#[test]
fn a_refusal_that_comes_after_the_try_has_ended_still_spares_the_next_one() {
    let cpu = || ResourceName::new("cpu").unwrap();
    let window = Window { start: Time(0), end: Time(100_000) };
    let full = || {
        let mut schedule = Schedule::default();
        schedule.add(window, &Amounts::from([(cpu(), Amount(CAPACITY))]));
        let reason = RefusalReason::HeldByAnother { host: HostId::new("h").unwrap(), resource: cpu() };
        let hosts = vec![HostState { host: HostId::new("h").unwrap(), schedule, held: Vec::new() }];
        SiteAnswer::Refused(Refusal { reason, version: version(1), hosts })
    };
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, full());
    run.answer("b", Purpose::Hold, full());
    run.time_passes_to(1_000);
    run.find_at(1_000, &["a", "b", "c"]);
    let asked_in_vain: Vec<String> = run.wanted().into_iter().filter(|what| what.starts_with("Hold")).collect();
    assert!(asked_in_vain.is_empty(), "a and b are full: {asked_in_vain:?}");
}

#[test]
fn a_silent_site_is_left_out_of_the_next_try_and_asked_again_where_there_is_no_plan_without_it() {
    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, held(7));
    run.time_passes_to(10 + 2_000);
    assert_eq!(run.wanted(), ["Release 1 a", "Release 1 b", r#"find, without {"b"}"#]);
    run.find_at(2_010, &["a", "c"]);
    assert_eq!(run.wanted(), ["Hold 2 a", "Hold 2 c"], "others do");

    let mut run = Run::holding();
    run.answer("a", Purpose::Hold, held(7));
    run.time_passes_to(10 + 2_000);
    run.find_at(2_010, &["a"]);
    assert_eq!(run.negotiation.stage(), Stage::BackingOff);
    let now = run.wake();
    assert_eq!(run.wanted(), ["find, without {}"]);
    run.find_at(now, &["a", "b"]);
    assert_eq!(run.wanted(), ["Hold 2 a", "Hold 2 b"]);
}

#[test]
fn a_request_fails_that_needs_a_site_which_is_always_silent() {
    let (mut run, mut now) = (Run::holding(), 10);
    for silences in 1.. {
        run.answer("a", Purpose::Hold, held(7));
        now += 2_000;
        run.time_passes_to(now);
        run.find_at(now, &["a"]);
        if !matches!(run.negotiation.stage(), Stage::BackingOff) {
            assert_eq!(silences, 3);
            break;
        }
        now = run.wake();
        run.find_at(now, &["a", "b"]);
    }
    let failed = Stage::Closed {
        outcome: &Outcome::Failed(Failure::Unreachable { found: 1, asked: 2, without_schedule: 0, silent_sites: 1 }),
        releasing: false,
    };
    assert_eq!(run.negotiation.stage(), failed);
}

#[test]
fn hosts_that_could_not_be_looked_at_are_waited_for_before_a_no_that_proves_nothing() {
    let always = Window { start: Time(0), end: Time(1_000_000_000) };
    for missing in [0, 3] {
        let (mut run, mut now, mut finds) = (Run::new(record(), false), 10, 0);
        while matches!(run.negotiation.stage(), Stage::Planning | Stage::BackingOff) {
            if matches!(run.negotiation.stage(), Stage::BackingOff) {
                now = run.wake();
            }
            run.find_busy_and_missing_at(now, &["a", "b"], always, missing);
            finds += 1;
        }
        let Stage::Closed { outcome: Outcome::Rejected { start_proven, .. }, .. } = run.negotiation.stage() else {
            panic!("{:?}", run.negotiation.stage())
        };
        // A second search is wider.
        let expected = if missing == 0 { (2, true) } else { (2 + 4, false) };
        assert_eq!((finds, *start_proven), expected);
    }
}

#[test]
fn a_refused_confirm_is_decided_against_on_disk_and_released_until_acknowledged() {
    let mut run = Run::confirming();
    run.answer("a", Purpose::Confirm, confirmed(7));
    run.answer("b", Purpose::Confirm, refused(RefusalReason::NoSuchHold));
    assert_eq!(run.wanted(), ["write open, owed 2", "Release 1 a", "Release 1 b", "find, without {}"]);
    assert_eq!(run.status(1, "a"), AttemptStatus::Aborted);
    run.answer("b", Purpose::Release, SiteAnswer::Released { version: version(8), charged: Default::default() });
    run.time_passes_to(20 + 2_000 + 250);
    assert_eq!(run.wanted(), ["Release 1 a"], "only who has not acknowledged is told again");
    run.answer("a", Purpose::Release, SiteAnswer::Released { version: version(7), charged: Default::default() });
    assert_eq!(run.wanted(), ["write open, owed 0"]);
}

#[test]
fn after_a_crash_a_decided_try_is_confirmed_again_and_an_open_request_starts_again() {
    let decided = Run::confirming().negotiation.record().clone();
    let run = Run::new(decided, true);
    assert_eq!(run.wanted(), ["Confirm 1 a held in 7", "Confirm 1 b held in 8"]);
    assert_eq!(run.status(1, "a"), AttemptStatus::Pending, "a confirm may still be refused");

    let stands = Run::reserved().negotiation.record().clone();
    let run = Run::new(stands, true);
    assert!(run.wanted().is_empty() && matches!(run.negotiation.stage(), Stage::Reserved(_)));

    let run = Run::new(record(), true);
    assert_eq!(run.wanted(), ["write open, owed 0", "find, without {}"]);
}

#[test]
fn what_was_not_asked_for_its_schedule_is_asked_before_a_no() {
    let window = Window { start: Time(0), end: Time(90_000) };
    let mut full = Schedule::default();
    full.add(window, &Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(CAPACITY))]));
    let found = |sites: &[&str], left_out| {
        let hosts = sites.iter().map(|name| FoundHost { schedule: full.clone().into(), ..host_of(name) });
        Found { hosts: hosts.collect(), known_hosts: 9, left_out, ..Found::default() }
    };
    let mut run = Run::new(record(), false);
    let mut counts = Vec::new();
    let names = ["a", "b", "c", "d", "e"];
    // Each find shows one more site, until none is left out; then hosts are looked for that are not known yet.
    for (shown, left_out) in [(2, 3), (3, 2), (4, 1), (5, 0), (5, 0)] {
        run.negotiation.handle(at(10), Event::Found(found(&names[..shown], left_out)), &mut ());
        run.drain();
        let asked = run.outputs.iter().find_map(|output| match output {
            Output::Find { count, enough, .. } => Some((*count, *enough)),
            _ => None,
        });
        counts.extend(asked);
    }
    assert_eq!(counts, [(12, 2), (24, 2), (48, 2), (48, 48)]);
    let Stage::Closed { outcome: Outcome::Rejected { start_proven: true, .. }, .. } = run.negotiation.stage() else {
        panic!("{:?}", run.negotiation.stage())
    };
}

#[test]
fn two_crashes_in_a_row_never_give_out_the_number_of_a_try_twice() {
    let mut numbers = Vec::new();
    let mut on_disk = record();
    for is_resumed in [false, true, true, true] {
        let mut run = Run::new(on_disk.clone(), is_resumed);
        if let Some(Output::Persist(record)) = run.outputs.first() {
            on_disk = (**record).clone();
        }
        run.find(&["a", "b"]);
        numbers.extend(run.outputs.iter().filter_map(|output| match output {
            Output::Ask { attempt, site, .. } if site.as_str() == "a" => Some(*attempt),
            _ => None,
        }));
    }
    assert!(numbers.len() == 4 && numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}

#[test]
fn owed_releases_survive_a_crash_and_stay_on_record_until_acknowledged() {
    let mut run = Run::reserved();
    run.cancel();
    let mut run = Run::new(run.negotiation.record().clone(), true);
    assert_eq!(run.wanted(), ["Release 1 a", "Release 1 b"]);
    assert_eq!(run.negotiation.record().owed.len(), 2);
    assert!(matches!(run.negotiation.stage(), Stage::Closed { releasing: true, .. }));
    run.answer("a", Purpose::Release, SiteAnswer::Released { version: version(7), charged: Default::default() });
    run.answer("b", Purpose::Release, SiteAnswer::Released { version: version(8), charged: Default::default() });
    assert_eq!(run.wanted(), ["write closed, owed 0"]);
    assert!(run.negotiation.is_quiet());
}

#[test]
fn a_cancel_is_on_disk_before_any_site_is_told_in_every_state() {
    let mut finding = Run::new(record(), false);
    finding.cancel();
    assert_eq!(finding.wanted(), ["write closed, owed 0"]);
    for (mut run, stood) in [(Run::holding(), false), (Run::confirming(), true), (Run::reserved(), true)] {
        run.cancel();
        assert_eq!(run.wanted(), ["write closed, owed 2", "Release 1 a", "Release 1 b"]);
        assert_eq!(run.status(1, "a"), AttemptStatus::Aborted);
        let Stage::Closed { outcome: Outcome::Cancelled(plan), releasing: true } = run.negotiation.stage() else {
            panic!("{:?}", run.negotiation.stage());
        };
        assert_eq!(plan.is_some(), stood);
        run.cancel();
        assert!(run.wanted().is_empty(), "a second cancel changes nothing");
    }
}

#[test]
fn a_site_that_is_busy_is_asked_once_more_after_a_while_and_then_left_out() {
    let mut run = Run::holding();
    for (answered_at, left_out) in [(20, "{}"), (1_000, r#"{"b"}"#)] {
        run.answer("a", Purpose::Hold, held(7));
        run.answer("b", Purpose::Hold, refused(RefusalReason::Busy));
        if left_out == "{}" {
            let due = run.negotiation.poll_timeout().unwrap().0;
            assert!(due > answered_at + 20 && due < answered_at + 100, "{due}");
            run.time_passes_to(due);
        }
        assert_eq!(run.wanted().last().unwrap(), &format!("find, without {left_out}"));
        run.find(&["a", "b"]);
    }
    let mut run = booking();
    run.answer("a", Purpose::Confirm, refused(RefusalReason::Busy));
    run.time_passes_to(200);
    assert_eq!(run.wanted().last().unwrap(), "find, without {}", "it may have booked, and is given back");
}
