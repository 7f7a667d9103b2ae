//! What others are told of a class: a count for what floats, names for what is pinned, and that it follows the books.

use proptest::prelude::*;

use super::*;
use crate::{
    host::Host,
    ledger::{
        Event, HostLedger, LedgerLimits, ReplyToken,
        floating::tests::{books, hold, hold_on, open, place},
        tests::{at, attempt, cpu, id},
    },
    protocol::{
        ChangeKind, ClassChange, ClassesLeft, HoldRequest, HostChange, ScheduleChange, ScheduleUpdate, SiteRequest,
    },
    resources::Amounts,
    tariff::Tariff,
    time::{Millis, Span, Window},
    trust::testing,
    view::{Received, SiteView, tests::advert},
};

/// What of these outputs others are told.
fn published(ledger: &mut Ledger) -> Vec<ScheduleChange> {
    let outputs = std::iter::from_fn(|| ledger.poll_output());
    let updates =
        outputs.filter_map(|output| if let Output::Publish(parts) = output { Some(parts.changes) } else { None });
    updates.flatten().collect()
}

fn ask(ledger: &mut Ledger, now: Now, request: SiteRequest) -> Vec<ScheduleChange> {
    let token = ReplyToken(1);
    ledger.handle(now, Event::Request { from: id("entry"), network: None, token, request });
    ledger.sanity_check().unwrap();
    published(ledger)
}

fn booked(ledger: &mut Ledger, now: Now, hold: HoldRequest) -> Vec<ScheduleChange> {
    let incarnation = ledger.version().incarnation;
    ask(ledger, now, SiteRequest::Book { hold, incarnation })
}

fn window(start: i64, length: u64) -> Window {
    Window::starting(Time(start), Span(length))
}

fn of_class(window: Window, hosts: u32, [before, after]: [u64; 2]) -> ScheduleChange {
    let [before, after] = [before, after].map(|amount| if amount == 0 { Amounts::new() } else { cpu(amount) });
    ScheduleChange::Class(ClassChange { class: HostId::new("n").unwrap(), window, hosts, before, after })
}

fn of_host(host: &str, window: Window, amount: u64, kind: ChangeKind) -> ScheduleChange {
    ScheduleChange::Host(HostChange { host: HostId::new(host).unwrap(), window, amounts: cpu(amount), kind })
}

#[test]
fn what_floats_is_told_by_count_and_what_moves_is_not() {
    let (mut ledger, _) = open(books(0..4), 7, Vec::new(), at(0));
    let hold_of = |of: &str, hosts: &[usize], window, amount| hold_on(of, hosts, window, amount, true);
    let told = booked(&mut ledger, at(0), hold_of("a", &[0, 1, 2], (1_100, 100), 4_000));
    assert_eq!(told, [of_class(window(1_100, 100), 3, [0, 4_000])]);
    // Two seats that fit beside each other, of which the second begins on the same host as it stands.
    let told = booked(&mut ledger, at(0), hold("b", 3, (1_050, 100), 1_000));
    assert_eq!(told, [of_class(window(1_050, 100), 1, [0, 1_000])]);
    let told = booked(&mut ledger, at(0), hold("c", 3, (1_000, 70), 2_000));
    let expected = [of_class(window(1_000, 50), 1, [0, 2_000]), of_class(window(1_050, 20), 1, [1_000, 3_000])];
    assert_eq!(told, expected);
    let told = ask(&mut ledger, at(0), SiteRequest::Release(attempt("a", 1)));
    assert_eq!(told, [of_class(window(1_100, 100), 3, [4_000, 0])]);

    let (mut ledger, _) = open(books(0..2), 7, Vec::new(), at(0));
    booked(&mut ledger, at(0), hold("a", 0, (1_100, 100), 4_000));
    booked(&mut ledger, at(0), hold("b", 1, (1_300, 100), 4_000));
    let told = booked(&mut ledger, at(0), hold("c", 0, (1_150, 200), 4_000));
    let [a, b, c] = ["a", "b", "c"].map(|of| place(&ledger, of).host().clone());
    assert!(a == b && a != c, "one of them has moved");
    assert_eq!(told, [of_class(window(1_150, 200), 1, [0, 4_000])]);
}

#[test]
fn a_host_to_which_something_is_pinned_is_told_by_name_until_that_begins() {
    let (mut ledger, _) = open(books(0..3), 7, Vec::new(), at(0));
    booked(&mut ledger, at(0), hold("a", 1, (1_500, 100), 4_000));
    let pinned = hold_on("b", &[1], (1_200, 100), 4_000, false);
    let (first, second) = (window(1_200, 100), window(1_500, 100));
    let expected = [
        of_host("n-1", first, 4_000, ChangeKind::Added),
        of_host("n-1", second, 4_000, ChangeKind::Added),
        of_class(second, 1, [4_000, 0]),
    ];
    assert_eq!(booked(&mut ledger, at(0), pinned), expected);
    let snapshot = ledger.snapshot(at(0)).schedules;
    let free = |left: &mut ClassesLeft| {
        let hosts = ledger.hosts().map(HostLedger::host);
        hosts.filter(|host| snapshot.next_of(host, left).is_empty()).map(|host| host.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(free(&mut ClassesLeft::default()), ["n-0", "n-2"], "nothing of the others is in use");
    // Hosts that are left out are those in use: who looks for one beside the floating seat that n-0 may have finds two.
    booked(&mut ledger, at(0), hold("c", 0, (1_200, 100), 4_000));
    let snapshot = ledger.snapshot(at(0)).schedules;
    let hosts: Vec<&Host> = ledger.hosts().map(HostLedger::host).collect();
    let mut left = ClassesLeft::default();
    hosts.iter().filter(|host| host.id.as_str() != "n-2").for_each(|host| snapshot.pass_over(host, &mut left));
    assert!(snapshot.next_of(hosts[2], &mut left).is_empty());
    ask(&mut ledger, at(0), SiteRequest::Release(attempt("c", 1)));
    // When it has begun, the host counts again; the time that is past is not told once more.
    ledger.forget_past(at(250_000));
    ledger.sanity_check().unwrap();
    let rest = Window { start: Time(1_250), end: Time(1_300) };
    let expected = [
        of_host("n-1", rest, 4_000, ChangeKind::Removed),
        of_host("n-1", second, 4_000, ChangeKind::Removed),
        of_class(rest, 1, [0, 4_000]),
        of_class(second, 1, [0, 4_000]),
    ];
    assert_eq!(published(&mut ledger), expected);
}

#[test]
fn hosts_of_a_class_with_different_tariffs_are_told_by_name_as_long_as_they_differ() {
    let (mut ledger, _) = open(books(0..3), 7, Vec::new(), at(0));
    booked(&mut ledger, at(0), hold("a", 1, (1_100, 100), 4_000));
    let taken = window(1_100, 100);
    let priced = |host: &str, prices: &str| {
        let tariff = Tariff { prices: serde_json::from_str(prices).unwrap(), ..Tariff::default() };
        BTreeMap::from([(HostId::new(host).unwrap(), std::sync::Arc::new(tariff))])
    };
    ledger.set_tariffs(at(0), priced("n-2", r#"{"cpu":5}"#));
    ledger.sanity_check().unwrap();
    let by_name = [of_host("n-1", taken, 4_000, ChangeKind::Added), of_class(taken, 1, [4_000, 0])];
    assert_eq!(published(&mut ledger), by_name);
    // A seat of the other price has only n-2 to go to, and n-1 is not shown as free.
    let snapshot = ledger.snapshot(at(0)).schedules;
    let left = &mut ClassesLeft::default();
    let free: Vec<bool> = ledger.hosts().map(|books| snapshot.next_of(books.host(), left).is_empty()).collect();
    assert_eq!(free, [true, false, true]);
    ledger.set_tariffs(at(0), priced("n-2", "{}"));
    ledger.sanity_check().unwrap();
    let by_count = [of_host("n-1", taken, 4_000, ChangeKind::Removed), of_class(taken, 1, [0, 4_000])];
    assert_eq!(published(&mut ledger), by_count);
}

#[test]
fn hosts_whose_names_are_in_no_row_are_told_by_name() {
    let (mut ledger, _) = open(books([0, 1, 3]), 7, Vec::new(), at(0));
    let told = booked(&mut ledger, at(0), hold("a", 1, (1_100, 100), 4_000));
    assert_eq!(told, [of_host("n-1", window(1_100, 100), 4_000, ChangeKind::Added)]);
    let (ledger, _) = Ledger::<HostLedger>::open_with(
        id("site"),
        LedgerLimits::default(),
        7,
        testing::open_gate(),
        books(0..1_000),
        Vec::new(),
        at(0),
    );
    assert_eq!(ledger.snapshot(at(0)).schedules.len(), 0, "a thousand free hosts");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A view that hears of every change shows what a snapshot shows, through moves, pins, hosts that bind and time that passes.
    #[test]
    fn a_view_of_the_changes_is_the_snapshot(
        steps in prop::collection::vec((0_u8..8, 0_usize..4, 1_i64..80, 1_u64..60, 1_u64..5), 1..30),
    ) {
        let (mut ledger, _) = open(books(0..4), 7, Vec::new(), at(0));
        let mut view = SiteView::new(advert(1), Millis(0), Millis(u64::MAX));
        view.receive_snapshot(ledger.snapshot(at(0)), Millis(0));
        let mut second = 0;
        for (number, (kind, host, start, length, quarters)) in steps.into_iter().enumerate() {
            let now = at(second * 1_000);
            let starts = (now.utc + Span(start.unsigned_abs())).0;
            let of = format!("r{number}");
            match kind {
                0 => second += length,
                1 => ledger.forget_past(now),
                2 => {
                    let attempt = attempt(&format!("r{}", number / 2), 1);
                    let token = ReplyToken(1);
                    let request = SiteRequest::Release(attempt);
                    ledger.handle(now, Event::Request { from: id("entry"), network: None, token, request });
                }
                _ => {
                    let hold = hold_on(&of, &[host], (starts, length), quarters.min(4) * 1_000, kind > 3);
                    let (token, incarnation) = (ReplyToken(1), ledger.version().incarnation);
                    let request = SiteRequest::Book { hold, incarnation };
                    ledger.handle(now, Event::Request { from: id("entry"), network: None, token, request });
                }
            }
            ledger.handle_timeout(at(second * 1_000));
            prop_assert_eq!(ledger.sanity_check(), Ok(()));
            while let Some(output) = ledger.poll_output() {
                if let Output::Publish(ScheduleUpdateParts { from, changes }) = output {
                    let update = ScheduleUpdate { site: id("site"), from, changes };
                    let heard = view.receive_update(&update, Millis(0));
                    prop_assert_eq!(heard, Received::Applied);
                }
            }
            // Its clock is ahead.
            if length % 4 == 0 {
                view.forget_before(at(second * 1_000).utc + Span(length));
            }
        }
        let now = at(second * 1_000);
        let later = now.utc + Span(60);
        view.forget_before(later);
        let known = view.fresh_schedules(Millis(0), Millis(u64::MAX)).expect("no gap");
        let mut shown = ledger.snapshot(now).schedules;
        shown.forget_before(later);
        prop_assert_eq!(&known.schedules, &shown);
    }
}
