//! What the admission of a floating seat costs: 64 hosts, about 1,000 seats whose windows cross, requests that come one by one.
//!
//! Seats are bound when they start and go when they end. The named baseline is the same answer by a new assignment of all seats there are.
//! `cargo bench -p broker --bench binding` prints shares of answers and times, with the ratio in the same run.

// A benchmark measures time; only the library is free of clocks.
#![allow(clippy::disallowed_methods)]

mod timing;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use broker::{
    binding::{Answer, Need, OwnWork, Seat, SeatKey, Witness},
    host::{Host, Speed},
    ids::{HostId, RequestId, SeatNumber},
    time::{Span, Time, Window},
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use timing::{is_bench, median, timed};

const HOSTS: u32 = 64;
const REQUESTS: usize = 10_000;
/// Answers before the calendar is full, which are not counted.
const WARM_UP: usize = 2_000;
const LENGTH_S_MAX: u64 = 660;
const BOOK_AHEAD_S_MAX: i64 = 10_000;
/// One answer of so many is given by the baseline too.
const BASELINE_EVERY: usize = 50;
const LOADS_PERCENT: [u32; 4] = [80, 90, 100, 110];

/// How hosts differ.
#[derive(Clone, Copy, Debug)]
enum Kind {
    OneClass,
    FiveLevels,
    FourProperties,
}

impl Kind {
    /// The properties of a host or of a need: level n has the first n, of four properties each is there or not.
    fn properties(self, drawn: u32) -> Vec<u32> {
        match self {
            Kind::OneClass => Vec::new(),
            Kind::FiveLevels => (0..drawn % 5).collect(),
            Kind::FourProperties => (0..4).filter(|bit| drawn & (1 << bit) != 0).collect(),
        }
    }

    fn need(self, drawn: u32) -> Need {
        let properties = self.properties(drawn).into_iter();
        let attributes = properties.map(|bit| (format!("p{bit}"), "yes".to_owned())).collect();
        Need { attributes, is_exclusive: true, ..Need::default() }
    }
}

fn hosts(kind: Kind) -> Vec<Host> {
    let host = |number: u32| Host {
        id: HostId::new(&format!("h{number}")).expect("a name"),
        capacity: BTreeMap::new(),
        attributes: kind.need(number).attributes,
        speed: Speed::REFERENCE,
        tariff: Arc::default(),
    };
    (0..HOSTS).map(host).collect()
}

/// A new assignment of all seats there are and this one, from left to right.
fn anew(kind: Kind, witness: &Witness, seat: &Seat) -> Answer {
    let mut seats: Vec<Seat> = witness.seats().map(|(_, seat)| seat.as_ref().clone()).chain([seat.clone()]).collect();
    seats.sort_by_key(|seat| seat.window.start);
    let mut witness = Witness::new(hosts(kind)).expect("distinct hosts");
    witness.admit(&seats).expect("valid windows")
}

fn percentile(times: &[f64], percent: usize) -> f64 {
    times[(times.len() - 1) * percent / 100]
}

fn run(kind: Kind, load_percent: u32) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(u64::from(load_percent));
    let interval = LENGTH_S_MAX as f64 / 2.0 / f64::from(HOSTS) * 100.0 / f64::from(load_percent);
    let mut witness = Witness::new(hosts(kind)).expect("distinct hosts");
    let (mut clock, mut events) = (0.0, BTreeSet::<(Time, bool, SeatKey)>::new());
    let (mut times, mut anew_times, mut counts, mut seats) = (Vec::new(), Vec::new(), [0_usize; 3], 0);
    for number in 0..REQUESTS {
        clock += -interval * (1.0 - random.random::<f64>()).ln();
        let now = Time(clock as i64);
        // Ends come before starts of the same second.
        while let Some((_, is_start, key)) = events.first().copied().filter(|(at, ..)| *at <= now) {
            events.pop_first();
            if is_start {
                witness.bind(key, Span(0), |_| OwnWork::Idle).expect("a host is left");
            } else {
                witness.remove(key).expect("it is there");
            }
        }
        let start = now + Span(1) + Span(random.random_range(0..BOOK_AHEAD_S_MAX as u64));
        let window = Window::starting(start, Span(random.random_range(1..=LENGTH_S_MAX)));
        let need = kind.need(random.random_range(0..HOSTS));
        let request = RequestId::new(&format!("r{number}")).expect("a name");
        let seat = Seat { request, number: SeatNumber(0), window, need };
        let is_counted = number >= WARM_UP;
        if is_counted && number.is_multiple_of(BASELINE_EVERY) {
            anew_times.push(timed(|| anew(kind, &witness, &seat)).1 * 1e3);
        }
        let asked = [seat];
        let (answer, ms) = timed(|| witness.admit(&asked).expect("a window to come"));
        if is_counted {
            times.push(ms * 1e3);
            seats += witness.len();
            counts[match &answer {
                Answer::Yes(_) => 0,
                Answer::No(_) => 1,
                Answer::Undecided => 2,
            }] += 1;
        }
        if let Answer::Yes(keys) = answer {
            events.extend([(window.start, true, keys[0]), (window.end, false, keys[0])]);
        }
    }
    times.sort_by(f64::total_cmp);
    let percent = counts.map(|count| 100.0 * count as f64 / times.len() as f64);
    let again = median(anew_times);
    let [median, p99, longest] = [50, 99, 100].map(|percent| percentile(&times, percent));
    let (kind, ratio, seats) = (format!("{kind:?}"), again / median, seats / times.len());
    println!(
        "{kind:<15} {load_percent:>5} {seats:>6} {:>7.2} {:>7.2} {:>10.2} {median:>8.2} {p99:>8.1} {longest:>8.0} {again:>9.0} {ratio:>7.0}",
        percent[0], percent[1], percent[2]
    );
}

fn main() {
    if !is_bench() {
        return;
    }
    println!("{HOSTS} hosts; times in us; anew: median of a new assignment; ratio: anew / median");
    println!(
        "{:<15} {:>5} {:>6} {:>7} {:>7} {:>10} {:>8} {:>8} {:>8} {:>9} {:>7}",
        "hosts", "load%", "seats", "yes%", "no%", "undecided%", "median", "p99", "max", "anew", "ratio"
    );
    for kind in [Kind::OneClass, Kind::FiveLevels, Kind::FourProperties] {
        LOADS_PERCENT.into_iter().for_each(|load| run(kind, load));
    }
}
