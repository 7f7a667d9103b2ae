//! The schedule against an oracle that keeps one number a second.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Seconds that the oracle knows; nothing is reserved from the last one on.
const HORIZON: usize = 1500;

fn window(start: usize, end: usize) -> Window {
    Window { start: Time(i64::try_from(start).unwrap()), end: Time(i64::try_from(end).unwrap()) }
}

fn time(second: usize) -> Time {
    window(second, second).start
}

fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).unwrap()
}

/// What is used in every second.
#[derive(Clone)]
struct Oracle(Vec<u64>);

impl Oracle {
    fn new() -> Self {
        Self(vec![0; HORIZON])
    }

    fn add(&mut self, start: usize, end: usize, amount: u64) {
        self.0[start..end].iter_mut().for_each(|used| *used += amount);
    }

    fn remove(&mut self, start: usize, end: usize, amount: u64) -> bool {
        let possible = self.0[start..end].iter().all(|used| *used >= amount);
        if possible {
            self.0[start..end].iter_mut().for_each(|used| *used -= amount);
        }
        possible
    }

    fn peak(&self, start: usize, end: usize) -> u64 {
        self.0[start.min(HORIZON)..end.min(HORIZON)].iter().copied().max().unwrap_or(0)
    }

    fn earliest_fit(&self, limit: u64, duration: usize, from: usize, latest: usize) -> Option<usize> {
        (from..=latest).find(|start| self.peak(*start, start + duration) <= limit)
    }

    fn segments(&self, start: usize, end: usize) -> Vec<(Time, Amount)> {
        let changes = (start..end).filter(|second| *second == start || self.0[*second] != self.0[second - 1]);
        changes.map(|second| (time(second), Amount(self.0[second]))).collect()
    }

    fn steps(&self) -> Vec<(Time, Amount)> {
        let mut steps = self.segments(0, HORIZON);
        if steps.first().is_some_and(|step| step.1 == Amount::ZERO) {
            steps.remove(0);
        }
        steps
    }
}

#[derive(Debug, Clone)]
enum Change {
    Add(usize, usize, u64),
    /// Of what was added, by index; where the list is empty, nothing happens.
    RemoveAdded(usize),
    /// Of anything, added or not.
    RemoveAny(usize, usize, u64),
    Forget(usize),
}

/// Short and long windows, so that blocks fill as well as get passed whole.
fn some_window() -> impl Strategy<Value = (usize, usize)> {
    let length = prop_oneof![4 => 1_usize..12, 2 => 1_usize..200, 1 => 1_usize..HORIZON];
    (0..HORIZON - 1, length)
        .prop_map(|(start, length)| (start, (start + length).min(HORIZON - 1)))
        .prop_filter("a window is not empty", |(start, end)| start < end)
}

fn some_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => (some_window(), 0_u64..9).prop_map(|((start, end), amount)| Change::Add(start, end, amount)),
        6 => any::<usize>().prop_map(Change::RemoveAdded),
        1 => (some_window(), 0_u64..3).prop_map(|((start, end), amount)| Change::RemoveAny(start, end, amount)),
    ]
}

/// Applies the changes to both and compares what they say of them.
fn run(changes: Vec<Change>) -> (Occupancy, Oracle) {
    let (mut occupancy, mut oracle) = (Occupancy::default(), Oracle::new());
    let mut added: Vec<(usize, usize, u64)> = Vec::new();
    for change in changes {
        match change {
            Change::Add(start, end, amount) => {
                occupancy.add(window(start, end), Amount(amount));
                oracle.add(start, end, amount);
                added.push((start, end, amount));
            }
            Change::RemoveAdded(_) if added.is_empty() => {}
            Change::RemoveAdded(index) => {
                let (start, end, amount) = added.swap_remove(index % added.len());
                let removed = occupancy.remove(window(start, end), Amount(amount)).is_ok();
                assert_eq!(removed, oracle.remove(start, end, amount));
            }
            Change::RemoveAny(start, end, amount) => {
                let before = occupancy.clone();
                let removed = occupancy.remove(window(start, end), Amount(amount)).is_ok();
                assert_eq!(removed, oracle.remove(start, end, amount));
                assert!(removed || occupancy == before);
            }
            Change::Forget(t) => {
                occupancy.forget_before(time(t));
                oracle.0[..t].fill(0);
                added.iter_mut().for_each(|(start, end, _)| (*start, *end) = ((*start).max(t), (*end).max(t)));
            }
        }
        occupancy.assert_invariants();
    }
    assert_eq!(occupancy.steps(), oracle.steps());
    (occupancy, oracle)
}

fn changes(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Change>> {
    proptest::collection::vec(some_change(), count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn changes_and_forgetting_agree_with_the_oracle(
        changes in changes(0..500),
        forgotten in proptest::collection::vec((0.0..1.0, 0..HORIZON), 0..4),
    ) {
        let mut changes = changes;
        for (place, t) in forgotten {
            changes.insert((place * changes.len() as f64) as usize, Change::Forget(t));
        }
        run(changes);
    }

    #[test]
    fn reading_agrees_with_the_oracle(
        changes in changes(0..400),
        reads in proptest::collection::vec((some_window(), 0_u64..80, 0..HORIZON, 0..HORIZON), 1..40),
    ) {
        let (occupancy, oracle) = run(changes);
        for ((start, end), limit, duration, latest) in reads {
            prop_assert_eq!(occupancy.used_at(time(start)).0, oracle.0[start]);
            prop_assert_eq!(occupancy.peak(window(start, end)).0, oracle.peak(start, end));
            prop_assert_eq!(
                occupancy.segments(window(start, end)).collect::<Vec<_>>(),
                oracle.segments(start, end)
            );
            for duration in [duration, duration % 16] {
                let expected = oracle.earliest_fit(limit, duration, start, latest).map(time);
                let span = Span(duration as u64);
                prop_assert_eq!(occupancy.earliest_fit(Amount(limit), span, time(start), time(latest)), expected);
            }
        }
    }

    #[test]
    fn a_forward_search_finds_what_a_fresh_one_finds(
        changes in changes(0..400),
        limit in 0_u64..60,
        duration in 1_u64..40,
        advances in proptest::collection::vec(0_usize..150, 1..30),
    ) {
        let (occupancy, _) = run(changes);
        let latest = time(HORIZON);
        let (mut fit, mut from) = (occupancy.fit(Amount(limit), Span(duration)), time(0));
        for advance in advances {
            from = from + Span(advance as u64);
            let fresh = occupancy.earliest_fit(Amount(limit), Span(duration), from, latest);
            let found = fit.next_from(from, latest);
            prop_assert_eq!(found, fresh);
            let Some(found) = found else { break };
            from = found;
        }
    }

    #[test]
    fn steps_and_bytes_restore_the_same_occupancy(changes in changes(0..400)) {
        let (occupancy, oracle) = run(changes);
        let restored = Occupancy::from_steps(&oracle.steps()).unwrap();
        restored.assert_invariants();
        prop_assert_eq!(&restored, &occupancy);
        // Steps that repeat the value before them are legal and say nothing new.
        let every_second = (0..HORIZON).map(|second| (time(second), Amount(oracle.0[second]))).collect::<Vec<_>>();
        prop_assert_eq!(&Occupancy::from_steps(&every_second).unwrap(), &occupancy);
        let schedule = Schedule::from(BTreeMap::from([(resource("cpu"), occupancy)]));
        let json = serde_json::to_string(&schedule).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Schedule>(&json).unwrap(), &schedule);
        let bytes = bincode::serde::encode_to_vec(&schedule, bincode::config::standard()).unwrap();
        let (read, length): (Schedule, usize) =
            bincode::serde::decode_from_slice(&bytes, bincode::config::standard()).unwrap();
        prop_assert_eq!((&read, length), (&schedule, bytes.len()));
    }

    #[test]
    fn a_schedule_fits_all_resources_at_once(
        used in proptest::array::uniform3(changes(0..150)),
        capacity in proptest::array::uniform3(0_u64..60),
        asked in proptest::array::uniform3(0_u64..8),
        duration in 1_usize..60,
        (from, latest) in (0..HORIZON, 0..HORIZON),
    ) {
        let names = ["cpu", "gpu", "memory"].map(resource);
        let [cpu, gpu, memory] = used.map(run);
        let oracles = [cpu.1, gpu.1, memory.1];
        let schedule = Schedule::from(names.iter().cloned().zip([cpu.0, gpu.0, memory.0]).collect::<BTreeMap<_, _>>());
        let amounts = |amounts: [u64; 3]| names.iter().cloned().zip(amounts.map(Amount)).collect::<Amounts>();
        let short = |start: usize| {
            (0..3).find_map(|index| {
                let free = capacity[index].saturating_sub(oracles[index].peak(start, start + duration));
                let (resource, asked) = (names[index].clone(), Amount(asked[index]));
                (asked.0 > free).then_some(Shortage { resource, asked, free: Amount(free) })
            })
        };
        let span = Span(duration as u64);
        let expected = (from..=latest).find(|start| short(*start).is_none()).map(time);
        let (capacity, asked) = (amounts(capacity), amounts(asked));
        prop_assert_eq!(schedule.earliest_fit(&capacity, &asked, span, time(from), time(latest)), expected);
        let admitted = schedule.admits(&capacity, Window::starting(time(from), span), &asked);
        prop_assert_eq!(admitted.err(), short(from));
    }

    #[test]
    fn blocks_that_run_empty_are_joined(
        order in Just((0..400_usize).collect::<Vec<_>>()).prop_shuffle(),
        wide in proptest::collection::vec((some_window(), 1_u64..5), 1..5),
        kept in 0_usize..60,
    ) {
        let (mut occupancy, mut oracle) = (Occupancy::default(), Oracle::new());
        let short = |index: usize| (index * 3, index * 3 + 2, 1 + index as u64 % 5);
        for (start, end, amount) in (0..400).map(short) {
            occupancy.add(window(start, end), Amount(amount));
            oracle.add(start, end, amount);
        }
        for (done, index) in order[kept..].iter().enumerate() {
            // Wide ones come in between, so that blocks that are already sparse have something pending.
            if done % 75 == 74 && let Some(((start, end), amount)) = wide.get(done / 75) {
                occupancy.add(window(*start, *end), Amount(*amount));
                oracle.add(*start, *end, *amount);
            }
            let (start, end, amount) = short(*index);
            prop_assert!(occupancy.remove(window(start, end), Amount(amount)).is_ok());
            prop_assert!(oracle.remove(start, end, amount));
            occupancy.assert_invariants();
        }
        prop_assert_eq!(occupancy.steps(), oracle.steps());
    }

    #[test]
    fn hostile_steps_are_refused_or_in_order(
        steps in proptest::collection::vec((-3_i64..40, prop_oneof![0_u64..3, Just(u64::MAX)]), 0..8),
    ) {
        let steps: Vec<_> = steps.into_iter().map(|(time, used)| (Time(time), Amount(used))).collect();
        let legal = steps.windows(2).all(|pair| pair[0].0 < pair[1].0)
            && steps.iter().all(|step| step.0 >= Time::ZERO && step.1 <= Amount::MAX);
        let bytes = bincode::serde::encode_to_vec(&steps, bincode::config::standard()).unwrap();
        let read = bincode::serde::decode_from_slice::<Occupancy, _>(&bytes, bincode::config::standard());
        prop_assert_eq!(read.is_ok(), legal);
        prop_assert_eq!(Occupancy::from_steps(&steps).is_ok(), legal);
    }
}

#[test]
fn thousands_of_steps_use_the_lazy_paths() {
    let (mut occupancy, mut oracle) = (Occupancy::default(), Oracle::new());
    for start in 0..HORIZON - 10 {
        occupancy.add(window(start, start + 3), Amount(1 + (start as u64 * 7) % 11));
        oracle.add(start, start + 3, 1 + (start as u64 * 7) % 11);
    }
    occupancy.add(window(5, HORIZON - 5), Amount(100));
    oracle.add(5, HORIZON - 5, 100);
    occupancy.assert_invariants();
    assert!(occupancy.pending_blocks() > 10);
    occupancy.remove(window(9, HORIZON - 20), Amount(98)).unwrap();
    assert!(oracle.remove(9, HORIZON - 20, 98));
    occupancy.assert_invariants();
    assert_eq!(occupancy.steps(), oracle.steps());
    assert_eq!(occupancy.peak(window(3, HORIZON - 30)).0, oracle.peak(3, HORIZON - 30));
    assert!(occupancy.remove(window(0, HORIZON), Amount(1)).is_err());
}

#[test]
fn a_resource_that_agreed_is_asked_again_when_another_moves_the_start() {
    let occupied = |name, start, end| (resource(name), vec![(time(start), Amount(1)), (time(end), Amount(0))]);
    let map = BTreeMap::from([occupied("cpu", 6, 12), occupied("gpu", 5, 8), occupied("memory", 0, 5)]);
    let one: Amounts = map.keys().map(|name| (name.clone(), Amount(1))).collect();
    let schedule = Schedule::from_steps(&map).unwrap();
    assert_eq!(schedule.earliest_fit(&one, &one, Span(1), Time(0), Time(99)), Some(Time(12)));
    assert_eq!(schedule.earliest_fit(&one, &one, Span(1), Time(0), Time(11)), None);
}

#[test]
fn the_latest_start_may_be_where_a_block_begins() {
    let steps: Vec<_> = (0..200).map(|second| (time(second), Amount(5 + second as u64 % 2))).collect();
    for free in 1..200 {
        let mut occupancy = Occupancy::from_steps(&steps).unwrap();
        occupancy.remove(window(free, 200), Amount(5)).unwrap();
        assert_eq!(occupancy.earliest_fit(Amount(1), Span(1), Time(0), time(free)), Some(time(free)));
        assert_eq!(occupancy.earliest_fit(Amount(1), Span(1), Time(0), time(free - 1)), None);
    }
}

#[test]
fn an_occupancy_that_was_emptied_is_the_default() {
    let mut occupancy = Occupancy::default();
    for start in 0..300 {
        occupancy.add(window(start * 2, start * 3 + 1), Amount(5));
    }
    for start in (0..300).rev() {
        occupancy.remove(window(start * 2, start * 3 + 1), Amount(5)).unwrap();
    }
    assert_eq!(occupancy, Occupancy::default());
    assert!(occupancy.is_empty());
}

#[test]
fn empty_windows_and_zero_amounts_change_nothing() {
    let mut occupancy = Occupancy::default();
    occupancy.add(window(5, 5), Amount(3));
    occupancy.add(window(7, 5), Amount(3));
    occupancy.add(window(5, 7), Amount(0));
    assert_eq!(occupancy.len(), 0);
    occupancy.add(window(5, 7), Amount(3));
    assert_eq!(occupancy.remove(window(9, 4), Amount(9)), Ok(()));
    assert_eq!(occupancy.peak(window(6, 6)), Amount::ZERO);
    assert_eq!(occupancy.segments(window(6, 6)).count(), 0);
    assert_eq!(occupancy.steps(), [(Time(5), Amount(3)), (Time(7), Amount(0))]);
}

#[test]
fn the_ends_of_time_are_safe() {
    let always = Window { start: Time(i64::MIN), end: Time(i64::MAX) };
    let mut occupancy = Occupancy::from_steps(&[(Time(5), Amount(9))]).unwrap();
    assert_eq!(occupancy.peak(always), Amount(9));
    assert_eq!(occupancy.segments(always).count(), 2);
    assert_eq!(occupancy.earliest_fit(Amount(8), Span(u64::MAX), Time(0), Time::MAX), None);
    assert_eq!(occupancy.earliest_fit(Amount(9), Span(u64::MAX), Time(0), Time::MAX), Some(Time(0)));
    assert_eq!(occupancy.earliest_fit(Amount(8), Span(5), Time(0), Time(0)), Some(Time(0)));
    assert_eq!(occupancy.earliest_fit(Amount(8), Span(6), Time(0), Time::MAX), None);
    assert_eq!(occupancy.earliest_fit(Amount(9), Span(1), Time(7), Time(6)), None);
    for _ in 0..3 {
        occupancy.add(window(0, 10), Amount(u64::MAX - 1));
    }
    occupancy.assert_invariants();
    assert_eq!(occupancy.peak(always), Amount(u64::MAX));
}

#[test]
fn errors_name_the_index() {
    let index_of = |steps: &[(i64, u64)]| {
        let steps: Vec<_> = steps.iter().map(|(time, used)| (Time(*time), Amount(*used))).collect();
        Occupancy::from_steps(&steps).unwrap_err().to_string()
    };
    assert!(index_of(&[(0, 1), (0, 2)]).starts_with("step 1: time 0 is not after"));
    assert!(index_of(&[(0, 1), (4, 2), (3, 3)]).starts_with("step 2: time 3 is not after"));
    assert!(index_of(&[(-1, 1)]).starts_with("step 0: expected a time of 0 to"));
    assert!(index_of(&[(1, 1), (i64::MAX, 2)]).starts_with("step 1: expected a time of 0 to"));
    assert!(index_of(&[(1, 1), (2, 1 << 48)]).starts_with("step 1: 281474976710656 is larger"));
    let million: Vec<_> = (0..=MAX_STEPS).map(|second| (time(second), Amount(second as u64 % 2))).collect();
    assert_eq!(Occupancy::from_steps(&million), Err(ScheduleError::TooManySteps));
    assert_eq!(Occupancy::from_steps(&million[..MAX_STEPS]).unwrap().len(), MAX_STEPS - 1);
    let map = BTreeMap::from([(resource("cpu"), vec![(Time(1), Amount(1)), (Time(1), Amount(2))])]);
    assert!(Schedule::from_steps(&map).unwrap_err().to_string().starts_with("cpu: step 1:"));
    assert!(serde_json::from_str::<Schedule>(r#"{"cpu":[[3,1],[2,0]]}"#).unwrap_err().to_string().contains("step 1"));
}

#[test]
fn removing_from_a_schedule_is_all_or_nothing() {
    let amounts = |cpu, memory| Amounts::from([(resource("cpu"), Amount(cpu)), (resource("memory"), Amount(memory))]);
    let mut schedule = Schedule::default();
    schedule.add(window(0, 10), &amounts(4, 4));
    let before = schedule.clone();
    let error = schedule.remove(window(0, 10), &amounts(4, 5)).unwrap_err();
    assert!(error.to_string().starts_with("memory: cannot remove 5"), "{error}");
    assert_eq!(schedule, before);
    let absent = Amounts::from([(resource("gpu"), Amount(1))]);
    assert!(schedule.remove(window(0, 10), &absent).is_err());
    schedule.remove(window(0, 10), &amounts(4, 4)).unwrap();
    assert_eq!(schedule, Schedule::default());
    assert_eq!(schedule.occupancies().count(), 0);
    schedule.add(window(0, 10), &amounts(1, 2));
    schedule.forget_before(Time(20));
    assert_eq!(schedule, Schedule::default());
    assert_eq!(serde_json::from_str::<Schedule>(r#"{"cpu":[],"memory":[[3,0]]}"#).unwrap(), schedule);
}
