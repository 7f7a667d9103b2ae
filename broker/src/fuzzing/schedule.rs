//! An occupancy under operations, against a model that keeps one number a second.

use std::collections::BTreeMap;

use fuzz_support::{Input, Seed, Target};

use super::words;
use crate::{
    amount::Amount,
    schedule::{Occupancy, Schedule},
    time::{Span, Time, Window},
};

/// Operations on an occupancy.
pub const SCHEDULE: Target = Target { name: "schedule", run, seeds };

/// Seconds that the model knows; nothing is reserved from the last one on.
const HORIZON: usize = 1200;
/// Operations are short, but some of them read every second.
const OPERATIONS_MAX: usize = 400;

#[derive(Default)]
struct Both {
    occupancy: Occupancy,
    used: Vec<u64>,
    added: Vec<(usize, usize, u64)>,
}

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut both = Both { used: vec![0; HORIZON], ..Both::default() };
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        both.operate(&mut input);
    }
    both.compare();
    both.read_again();
}

fn seconds(start: usize, end: usize) -> Window {
    let time = |second: usize| Time(i64::try_from(second).unwrap_or(i64::MAX));
    Window { start: time(start), end: time(end) }
}

fn second(input: &mut Input<'_>) -> usize {
    usize::from(input.short()) % HORIZON
}

fn window(input: &mut Input<'_>) -> (usize, usize) {
    let start = second(input);
    let length = match input.byte() {
        byte @ 0..200 => usize::from(byte % 16) + 1,
        byte => usize::from(byte - 199) * 20,
    };
    (start.min(HORIZON - 2), (start + length).clamp(1, HORIZON - 1))
}

impl Both {
    fn operate(&mut self, input: &mut Input<'_>) {
        match input.below(8) {
            0 | 1 => {
                let ((start, end), amount) = (window(input), u64::from(input.byte()));
                self.add(start, end, amount);
            }
            2 => {
                // Many small changes at once, so that several blocks fill.
                let (mut start, stride, amount) = (second(input), 2 + usize::from(input.below(6)), input.byte());
                for count in 0..u64::from(input.below(100)) {
                    if start + 1 >= HORIZON {
                        break;
                    }
                    self.add(start, start + 1, u64::from(amount) + count % 3);
                    start += stride;
                }
            }
            3 => {
                let index = usize::from(input.short());
                if let Some(count) = (!self.added.is_empty()).then_some(self.added.len()) {
                    let (start, end, amount) = self.added.swap_remove(index % count);
                    self.remove(start, end, amount);
                }
            }
            4 => {
                let ((start, end), amount) = (window(input), u64::from(input.byte() % 8));
                self.remove(start, end, amount);
            }
            5 => {
                let t = second(input);
                self.occupancy.forget_before(seconds(t, t).start);
                self.used[..t].fill(0);
            }
            6 => {
                let ((start, end), limit) = (window(input), u64::from(input.byte()));
                self.read(start, end, limit);
            }
            _ => self.compare(),
        }
    }

    fn add(&mut self, start: usize, end: usize, amount: u64) {
        if start < end {
            self.occupancy.add(seconds(start, end), Amount(amount));
            self.used[start..end].iter_mut().for_each(|used| *used += amount);
            self.added.push((start, end, amount));
        }
    }

    fn remove(&mut self, start: usize, end: usize, amount: u64) {
        if start >= end {
            return;
        }
        let is_possible = self.used[start..end].iter().all(|used| *used >= amount);
        let before = self.occupancy.clone();
        let is_removed = self.occupancy.remove(seconds(start, end), Amount(amount)).is_ok();
        assert_eq!(is_removed, is_possible, "[{start}, {end}) {amount}");
        if is_removed {
            self.used[start..end].iter_mut().for_each(|used| *used -= amount);
        } else {
            assert_eq!(self.occupancy, before, "a refused removal changes nothing");
        }
    }

    fn peak(&self, start: usize, end: usize) -> u64 {
        self.used[start.min(HORIZON)..end.min(HORIZON)].iter().copied().max().unwrap_or(0)
    }

    fn read(&self, start: usize, end: usize, limit: u64) {
        if start >= end {
            return;
        }
        let window = seconds(start, end);
        assert_eq!(self.occupancy.used_at(window.start).0, self.used[start]);
        assert_eq!(self.occupancy.peak(window).0, self.peak(start, end));
        let changes: Vec<_> = (start..end)
            .filter(|second| *second == start || self.used[*second] != self.used[second - 1])
            .map(|second| (seconds(second, second).start, Amount(self.used[second])))
            .collect();
        assert_eq!(self.occupancy.segments(window).collect::<Vec<_>>(), changes);
        let (duration, latest) = (end - start, (start + 3 * (end - start)).min(HORIZON));
        let expected = (start..=latest).find(|from| self.peak(*from, from + duration) <= limit);
        let found = self.occupancy.earliest_fit(
            Amount(limit),
            Span(duration as u64),
            window.start,
            seconds(latest, latest).start,
        );
        assert_eq!(found, expected.map(|second| seconds(second, second).start), "[{start}, {end}) {limit}");
    }

    fn compare(&self) {
        let mut before = 0;
        let mut steps = Vec::new();
        for (second, used) in self.used.iter().enumerate() {
            if *used != before {
                steps.push((seconds(second, second).start, Amount(*used)));
                before = *used;
            }
        }
        assert_eq!(self.occupancy.steps(), steps);
        assert_eq!(self.occupancy.len(), steps.len());
    }

    fn read_again(&self) {
        let steps = self.occupancy.steps();
        let again = Occupancy::from_steps(&steps).expect("what was added within bounds reads again");
        assert_eq!(again, self.occupancy);
        let schedule = Schedule::from(BTreeMap::from([(words::resource("cpu"), again)]));
        let written = serde_json::to_string(&schedule).expect("a schedule can be written");
        assert_eq!(serde_json::from_str::<Schedule>(&written).expect("and read"), schedule);
    }
}

fn seeds() -> Vec<Seed> {
    let comb = [2, 0, 0, 0, 5, 99];
    let wide = [0, 0, 10, 255, 7];
    let read = [6, 0, 20, 9, 6];
    vec![
        ("one", [wide, [3, 0, 0, 7, 0]].concat()),
        ("blocks", [&comb[..], &[2, 1, 44, 1, 9, 99], &wide, &read, &[7]].concat()),
        ("emptied", [&comb[..], &[3, 0, 0].repeat(99), &[7]].concat()),
        ("forgotten", [&comb[..], &wide, &[5, 0, 100], &[4, 0, 90, 15, 1], &read].concat()),
    ]
}
