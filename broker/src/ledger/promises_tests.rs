//! Whatever comes, changes and goes, in trials too, the books are what the bookings add up to.

use proptest::prelude::*;

use super::{super::tests::*, *};
use crate::{
    amount::Amount,
    ids::{RequestId, SeatNumber},
    ledger::{BookingState, LedgerLimits, QueuedJob},
    plan::Place,
    protocol::hull,
    schedule::Schedule,
    time::{Millis, Span},
    traffic::{Talk, Traffic},
    trust::testing,
    uplinks::unit_of,
};

/// A hold of these grants, alone of its request.
pub(in crate::ledger) fn booking(number: usize, grants: Vec<Grant>) -> Booking {
    Booking {
        attempt: attempt(&format!("b{number}"), 1),
        variant: Default::default(),
        window: hull(&grants).unwrap(),
        grants,
        participants: vec![id("site"), id("other")],
        user: "ada".to_owned(),
        user_key: None,
        account: None,
        lineage: None,
        network: None,
        statement: None,
        state: BookingState::Held { since: Millis(0), deadline: Millis(5_000) },
        coordinator: None,
        fed_as: None,
        is_substituted: false,
        confirmed: None,
        lost: Vec::new(),
        talk: None,
        slack: Span::default(),
        wait: Span::default(),
    }
}

/// An event in the life of a booking, which its number names.
#[derive(Debug, Clone)]
enum Step {
    Begin { number: usize, seats: Vec<(u8, i64, u64)>, talk: u64, is_held: bool },
    Confirm(usize),
    EndAt(usize, i64),
    Move(usize, u8),
    Lose(usize),
    End(usize),
    Pass(i64),
    Try(Vec<Step>),
}

const HOSTS: [&str; 3] = ["h0", "h1", "h2"];
/// The bookings of the last numbers are own jobs that may be stopped.
const NUMBERS: usize = 6;
const JOBS_FROM: usize = 4;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let seats = prop::collection::vec((0..3_u8, 0_i64..60, 1_u64..40), 1..4);
    let one = prop_oneof![
        4 => (0..NUMBERS, seats, 0..3_u64, any::<bool>())
            .prop_map(|(number, seats, talk, is_held)| Step::Begin { number, seats, talk, is_held }),
        2 => (0..NUMBERS).prop_map(Step::Confirm),
        2 => (0..NUMBERS, 0_i64..90).prop_map(|(number, end)| Step::EndAt(number, end)),
        2 => (0..NUMBERS, 0..3_u8).prop_map(|(number, host)| Step::Move(number, host)),
        1 => (0..NUMBERS).prop_map(Step::Lose),
        2 => (0..NUMBERS).prop_map(Step::End),
        1 => (1_i64..8).prop_map(Step::Pass),
    ];
    let flat = prop::collection::vec(one, 1..8);
    flat.prop_recursive(2, 24, 4, |inner| {
        prop::collection::vec((inner.clone(), inner), 1..3).prop_map(|pairs| {
            pairs.into_iter().flat_map(|(plain, tried)| plain.into_iter().chain([Step::Try(tried)])).collect()
        })
    })
}

fn open() -> Ledger {
    let hosts = HOSTS.map(|name| (host(name), Schedule::default()));
    let uplink = (unit_of(Amount(1_000)), Schedule::default());
    let hosts = hosts.into_iter().chain([uplink]).collect();
    let (mut ledger, _) =
        Ledger::open(id("site"), LedgerLimits::default(), 7, testing::open_gate(), hosts, Vec::new(), at(0));
    let job = |number| QueuedJob {
        attempt: name_of(number),
        arrival: Time(1_000),
        length: Span(10),
        deadline: None,
        hosts: 1,
        amounts: cpu(1),
        preempt: true,
        first_begun: None,
    };
    ledger.know_jobs((JOBS_FROM..NUMBERS).map(job).collect());
    ledger
}

fn name_of(number: usize) -> AttemptId {
    attempt(&format!("b{number}"), 1)
}

/// Takes a step at a time; the time after it.
fn take(ledger: &mut Ledger, now: i64, step: &Step) -> i64 {
    let from = Time(now);
    match step {
        Step::Begin { number, seats, talk, is_held } => {
            let grants = (0..).zip(seats).map(|(seat, (host, start, amount))| {
                let window = Window::starting(Time(now + start), Span(30));
                grant(seat, HOSTS[usize::from(*host)], window, *amount)
            });
            let mut begun = booking(*number, grants.collect());
            if *number < JOBS_FROM {
                begun.account =
                    Some(testing::public(u64::from(begun.attempt.request == RequestId::new("b1").unwrap())));
                begun.talk =
                    (*talk > 0).then_some(Talk { traffic: Traffic { mbps: Amount(*talk), compute: 1_000 }, seats: 4 });
            }
            if !is_held || *number >= JOBS_FROM {
                begun.state = BookingState::Settled;
            }
            if !ledger.bookings.contains_key(&begun.attempt) {
                ledger.begin(begun);
            }
        }
        Step::Confirm(number) => {
            ledger.amend(&name_of(*number), |booking| booking.state = BookingState::confirmed(Millis(9_000)));
        }
        Step::EndAt(number, end) => {
            let end = Time(now + end);
            // Only own jobs are cut to nothing.
            let grants = ledger.bookings.get(&name_of(*number)).into_iter().flat_map(|booking| &booking.grants);
            if *number >= JOBS_FROM || grants.map(|grant| grant.window.start).all(|start| start < end) {
                ledger.end_at(&name_of(*number), end);
            }
        }
        Step::Move(number, host) => {
            let to = Place::Host(HostId::new(HOSTS[usize::from(*host)]).unwrap());
            ledger.amend_from(&name_of(*number), from, |booking| booking.grants[0].place = to);
        }
        Step::Lose(number) => {
            let is_left = |grant: &Grant| grant.seat != SeatNumber(1);
            ledger.amend_from(&name_of(*number), from, |booking| booking.grants.retain(is_left));
        }
        Step::End(number) => drop(ledger.end(&name_of(*number), from)),
        Step::Pass(seconds) => {
            ledger.forget_books_before(from);
            return now + seconds;
        }
        Step::Try(steps) => {
            let before = state(ledger);
            ledger.try_out(|ledger| {
                // In a trial no time passes.
                for step in steps.iter().filter(|step| !matches!(step, Step::Pass(_))) {
                    take(ledger, now, step);
                }
            });
            assert_eq!(state(ledger), before, "a trial leaves nothing behind");
        }
    }
    check(ledger);
    now
}

/// All that a trial must leave as it is.
fn state(ledger: &Ledger) -> (Vec<Booking>, Vec<[Schedule; 2]>, Time) {
    let books = ledger.units().map(|books| [books.reserved().clone(), books.promised().clone()]);
    (ledger.bookings().cloned().collect(), books.collect(), ledger.settled_before)
}

fn check(ledger: &Ledger) {
    ledger.units().try_for_each(|books| ledger.check_books(books)).unwrap();
    ledger.check_accounts().unwrap();
    ledger.check_shares().unwrap();
    let held = ledger.bookings().filter(|booking| booking.is_held()).count();
    assert_eq!(ledger.held_by.values().sum::<usize>(), held);
    assert_eq!(ledger.timers.len(), ledger.bookings().filter(|booking| booking.state.wakes_at().is_some()).count());
}

#[test]
fn a_trial_takes_nothing_from_books_that_were_cleared() {
    let mut ledger = open();
    let begin = Step::Begin { number: 2, seats: vec![(0, 0, 1)], talk: 0, is_held: true };
    let steps = [begin, Step::Pass(1), Step::Pass(1), Step::Try(vec![Step::Confirm(2)]), Step::End(2)];
    steps.iter().fold(1_000, |now, step| take(&mut ledger, now, step));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_books_are_what_the_bookings_add_up_to(steps in steps()) {
        let mut ledger = open();
        let now = steps.iter().fold(1_000, |now, step| take(&mut ledger, now, step));
        // What had begun has left its past behind.
        for number in 0..NUMBERS {
            ledger.end(&name_of(number), Time(now));
        }
        ledger.forget_books_before(Time(now));
        prop_assert!(ledger.units().all(|books| books.promised().is_empty() && books.reserved().is_empty()));
        check(&ledger);
    }
}
