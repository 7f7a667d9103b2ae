//! Benchmarks of the schedule of one host with three resources, at 10 to 100,000 reservations and in two shapes.
//!
//! The named baseline is a plain sorted list a resource, searched from its beginning. `cargo bench -p broker
//! --bench schedule` prints divan's tables and, behind them, one table of medians with the ratio of the baseline to the
//! schedule in the same run; with `-- ratios` only the latter.

// A benchmark measures time; only the library is free of clocks.
#![allow(clippy::disallowed_methods)]

use std::{cell::RefCell, collections::VecDeque, hint::black_box, time::Instant};

use broker::{
    amount::Amount,
    resources::{Amounts, ResourceName},
    schedule::{Occupancy, Schedule},
    time::{Span, Time, Window},
};
use divan::Bencher;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const COUNTS: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
const RESOURCES: [&str; 3] = ["cpu", "gpu", "memory"];
/// Reservations that are kept out of the schedule when it is built, to be added and removed.
const SPARE: usize = 64;
/// Capacity of every resource: above every use, so that only the limit of a search matters.
const CAPACITY: u64 = 1 << 40;

#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Each reservation overlaps about four others, as on a busy host.
    Spread,
    /// Each reservation overlaps about three fifths of all others: hundreds at 1,000.
    Stacked,
}

impl Shape {
    fn longest(self, count: usize) -> i64 {
        let horizon = horizon(count);
        match self {
            Shape::Spread => 400,
            Shape::Stacked => horizon,
        }
    }
}

/// Length of the time in which `count` reservations start, in seconds.
fn horizon(count: usize) -> i64 {
    i64::try_from(count).expect("counts are small") * 100
}

type Reservation = (Window, Amounts);

fn reservations(shape: Shape, count: usize) -> Vec<Reservation> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut reservation = || {
        let start = Time(rng.random_range(0..horizon(count)));
        let span = Span(rng.random_range(1..=shape.longest(count)).unsigned_abs());
        let amounts = RESOURCES.map(|name| (resource(name), Amount(rng.random_range(1..1000))));
        (Window::starting(start, span), Amounts::from(amounts))
    };
    (0..count + SPARE).map(|_| reservation()).collect()
}

fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).expect("the names above are resource names")
}

fn amounts_of(amount: u64) -> Amounts {
    RESOURCES.map(|name| (resource(name), Amount(amount))).into()
}

/// What both sides of the comparison can do.
trait Subject: From<Schedule> {
    fn add(&mut self, reservation: &Reservation);
    fn remove(&mut self, reservation: &Reservation);
    fn earliest_fit(&self, capacity: &Amounts, asked: &Amounts, duration: Span, from: Time) -> Option<Time>;
}

impl Subject for Schedule {
    fn add(&mut self, (window, amounts): &Reservation) {
        Schedule::add(self, *window, amounts);
    }

    fn remove(&mut self, (window, amounts): &Reservation) {
        Schedule::remove(self, *window, amounts).expect("what is removed was added");
    }

    fn earliest_fit(&self, capacity: &Amounts, asked: &Amounts, duration: Span, from: Time) -> Option<Time> {
        Schedule::earliest_fit(self, capacity, asked, duration, from, Time::MAX)
    }
}

/// The baseline: for each resource a list of times and what is used from then on, searched from its beginning.
struct PlainSortedList {
    lists: [Vec<(Time, u64)>; RESOURCES.len()],
}

impl From<Schedule> for PlainSortedList {
    fn from(schedule: Schedule) -> Self {
        let steps = |name| schedule.occupancy(&resource(name)).map(Occupancy::steps).unwrap_or_default();
        Self { lists: RESOURCES.map(|name| steps(name).into_iter().map(|(t, used)| (t, used.0)).collect()) }
    }
}

impl PlainSortedList {
    fn cut(list: &mut Vec<(Time, u64)>, t: Time) -> usize {
        let index = list.iter().position(|step| step.0 >= t).unwrap_or(list.len());
        if list.get(index).is_none_or(|step| step.0 != t) {
            let used = index.checked_sub(1).map_or(0, |before| list[before].1);
            list.insert(index, (t, used));
        }
        index
    }

    fn shift(&mut self, (window, amounts): &Reservation, sign: i64) {
        for (list, amount) in self.lists.iter_mut().zip(amounts.values()) {
            let first = Self::cut(list, window.start);
            let last = Self::cut(list, window.end);
            for step in &mut list[first..last] {
                step.1 = step.1.wrapping_add_signed(sign * amount.0.cast_signed());
            }
            for index in [last, first] {
                if list[index].1 == index.checked_sub(1).map_or(0, |before| list[before].1) {
                    list.remove(index);
                }
            }
        }
    }
}

impl Subject for PlainSortedList {
    fn add(&mut self, reservation: &Reservation) {
        self.shift(reservation, 1);
    }

    fn remove(&mut self, reservation: &Reservation) {
        self.shift(reservation, -1);
    }

    fn earliest_fit(&self, capacity: &Amounts, asked: &Amounts, duration: Span, from: Time) -> Option<Time> {
        let limits = capacity.values().zip(asked.values()).map(|(capacity, asked)| capacity.0 - asked.0);
        let limited: Vec<_> = self.lists.iter().zip(limits).collect();
        let mut start = from;
        loop {
            let before = start;
            for (list, limit) in &limited {
                for (index, (_, used)) in list.iter().enumerate() {
                    let end = list.get(index + 1).map_or(Time(i64::MAX), |next| next.0);
                    if *used > *limit && end > start && list[index].0 < start + duration {
                        start = end;
                    }
                }
            }
            if start == before {
                return Some(start);
            }
        }
    }
}

/// A subject with its reservations, and searches whose answer lies far behind their beginning.
struct Bench<S> {
    subject: S,
    spare: Vec<Reservation>,
    capacity: Amounts,
    asked: Amounts,
    duration: Span,
    from: Vec<Time>,
}

impl<S: Subject> Bench<S> {
    fn new(shape: Shape, count: usize) -> Self {
        let mut reservations = reservations(shape, count);
        let spare = reservations.split_off(count);
        let mut schedule = Schedule::default();
        for (window, amounts) in &reservations {
            schedule.add(*window, amounts);
        }
        let subject = S::from(schedule);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let from = (0..SPARE).map(|_| Time(rng.random_range(0..horizon(count)))).collect();
        // Searches that go far. Spread: room that each resource has often, all three at once about once in a schedule,
        // so that the resources keep moving each other on. Stacked: room that there is half of the time, but nowhere
        // long enough.
        let (limit, duration) = match shape {
            Shape::Spread => (400, Span(200 + 70 * u64::from(count.ilog2()))),
            Shape::Stacked => (count as u64 * 250, Span(horizon(count).unsigned_abs())),
        };
        Self { subject, spare, capacity: amounts_of(CAPACITY), asked: amounts_of(CAPACITY - limit), duration, from }
    }

    fn search(&self, index: usize) -> Option<Time> {
        self.subject.earliest_fit(&self.capacity, &self.asked, self.duration, self.from[index % SPARE])
    }
}

fn fit<S: Subject>(bencher: Bencher<'_, '_>, shape: Shape, count: usize) {
    let bench = Bench::<S>::new(shape, count);
    let mut index = 0;
    bencher
        .with_inputs(|| {
            index += 1;
            index
        })
        .bench_local_values(|index| bench.search(index));
}

/// Times `change` on spare reservations; what it has done is undone between the samples.
fn changes<S: Subject>(bencher: Bencher<'_, '_>, shape: Shape, count: usize, change: Change) {
    let bench = RefCell::new(Bench::<S>::new(shape, count));
    if matches!(change, Change::Remove) {
        let Bench { subject, spare, .. } = &mut *bench.borrow_mut();
        spare.iter().for_each(|reservation| subject.add(reservation));
    }
    let waiting = RefCell::new((0..SPARE).collect::<VecDeque<usize>>());
    let done = RefCell::new(VecDeque::new());
    bencher
        .with_inputs(|| {
            let Bench { subject, spare, .. } = &mut *bench.borrow_mut();
            if let Some(index) = waiting.borrow_mut().pop_front() {
                return index;
            }
            let index = done.borrow_mut().pop_front().expect("a sample is no longer than the spare list");
            change.undo(subject, &spare[index]);
            index
        })
        .bench_local_values(|index| {
            let Bench { subject, spare, .. } = &mut *bench.borrow_mut();
            change.apply(subject, &spare[index]);
            done.borrow_mut().push_back(index);
        });
}

#[derive(Clone, Copy)]
enum Change {
    Add,
    Remove,
}

impl Change {
    fn apply(self, subject: &mut impl Subject, reservation: &Reservation) {
        match self {
            Change::Add => subject.add(reservation),
            Change::Remove => subject.remove(reservation),
        }
    }

    fn undo(self, subject: &mut impl Subject, reservation: &Reservation) {
        match self {
            Change::Add => subject.remove(reservation),
            Change::Remove => subject.add(reservation),
        }
    }
}

#[divan::bench(types = [Schedule, PlainSortedList], args = COUNTS, sample_count = 20, sample_size = 4)]
fn spread_earliest_fit<S: Subject>(bencher: Bencher<'_, '_>, count: usize) {
    fit::<S>(bencher, Shape::Spread, count);
}

#[divan::bench(types = [Schedule, PlainSortedList], args = COUNTS, sample_count = 100, sample_size = 32)]
fn spread_add<S: Subject>(bencher: Bencher<'_, '_>, count: usize) {
    changes::<S>(bencher, Shape::Spread, count, Change::Add);
}

#[divan::bench(types = [Schedule, PlainSortedList], args = COUNTS, sample_count = 100, sample_size = 32)]
fn spread_remove<S: Subject>(bencher: Bencher<'_, '_>, count: usize) {
    changes::<S>(bencher, Shape::Spread, count, Change::Remove);
}

#[divan::bench(types = [Schedule, PlainSortedList], args = COUNTS, sample_count = 20, sample_size = 4)]
fn stacked_earliest_fit<S: Subject>(bencher: Bencher<'_, '_>, count: usize) {
    fit::<S>(bencher, Shape::Stacked, count);
}

#[divan::bench(types = [Schedule, PlainSortedList], args = COUNTS, sample_count = 100, sample_size = 32)]
fn stacked_add<S: Subject>(bencher: Bencher<'_, '_>, count: usize) {
    changes::<S>(bencher, Shape::Stacked, count, Change::Add);
}

#[divan::bench(types = [Schedule, PlainSortedList], args = COUNTS, sample_count = 100, sample_size = 32)]
fn stacked_remove<S: Subject>(bencher: Bencher<'_, '_>, count: usize) {
    changes::<S>(bencher, Shape::Stacked, count, Change::Remove);
}

/// Reading of one occupancy, as the planner does: each step of the whole, and the peak of half of it.
#[divan::bench(args = [10, 100, 1_000, 10_000])]
fn window_segments(bencher: Bencher<'_, '_>, count: usize) {
    let bench = Bench::<Schedule>::new(Shape::Spread, count);
    let (_, occupancy) = bench.subject.occupancies().next().expect("the schedule is not empty");
    let window = Window { start: Time(1), end: Time::MAX };
    bencher.counter(divan::counter::ItemsCount::new(occupancy.len())).bench_local(|| {
        occupancy.segments(black_box(window)).fold(0, |sum, (t, used)| sum ^ t.0.unsigned_abs() ^ used.0)
    });
}

#[divan::bench(args = [10, 100, 1_000, 10_000])]
fn window_peak(bencher: Bencher<'_, '_>, count: usize) {
    let bench = Bench::<Schedule>::new(Shape::Spread, count);
    let (_, occupancy) = bench.subject.occupancies().next().expect("the schedule is not empty");
    let window = Window { start: Time(horizon(count) / 4), end: Time(horizon(count) * 3 / 4) };
    bencher.bench_local(|| occupancy.peak(black_box(window)));
}

/// Median time of one operation in nanoseconds: earliest fit, add, remove.
fn medians<S: Subject>(shape: Shape, count: usize) -> [f64; 3] {
    let mut bench = Bench::<S>::new(shape, count);
    let rounds = (20_000 / count).clamp(5, 200);
    let mut nanoseconds: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        let searches = if count > 1000 { 4 } else { SPARE };
        let begin = Instant::now();
        for index in 0..searches {
            black_box(bench.search(index));
        }
        nanoseconds[0].push(begin.elapsed().as_nanos() as f64 / searches as f64);
        for (place, change) in [(1, Change::Add), (2, Change::Remove)] {
            let begin = Instant::now();
            for reservation in &bench.spare {
                change.apply(&mut bench.subject, reservation);
            }
            nanoseconds[place].push(begin.elapsed().as_nanos() as f64 / SPARE as f64);
        }
    }
    nanoseconds.map(|mut of_one| {
        of_one.sort_by(f64::total_cmp);
        of_one[of_one.len() / 2]
    })
}

fn print_ratios() {
    println!(
        "one host, three resources; median microseconds (baseline: plain sorted list; ratio: baseline / schedule)"
    );
    println!("{:<8} {:>8} {:<13} {:>11} {:>12} {:>8}", "shape", "count", "operation", "schedule", "baseline", "ratio");
    for shape in [Shape::Spread, Shape::Stacked] {
        for count in COUNTS {
            let schedule = medians::<Schedule>(shape, count);
            let baseline = medians::<PlainSortedList>(shape, count);
            for (index, operation) in ["earliest fit", "add", "remove"].into_iter().enumerate() {
                let (ours, theirs) = (schedule[index] / 1000.0, baseline[index] / 1000.0);
                let shape = format!("{shape:?}").to_lowercase();
                let ratio = theirs / ours;
                println!("{shape:<8} {count:>8} {operation:<13} {ours:>11.3} {theirs:>12.3} {ratio:>8.1}");
            }
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let only_ratios = arguments.iter().any(|argument| argument == "ratios");
    if !only_ratios {
        divan::main();
    }
    // A test run of this target checks that the benchmarks work; it measures nothing.
    if only_ratios || (arguments.iter().any(|argument| argument == "--bench") && arguments.len() == 2) {
        print_ratios();
    }
}
