//! What is taken of one host over time, in steps.
//!
//! Invariant: steps begin in ascending order, the first before everything; the last has nothing but what is taken for ever.

use super::job::Amounts;

/// What is taken from a second on, until the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    from_s: i64,
    taken: Amounts,
}

/// What a job asks of a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub amounts: Amounts,
    pub length_s: i64,
    pub starts_alone: bool,
}

/// One host.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub capacity: Amounts,
    steps: Vec<Step>,
}

const NOTHING: Amounts = [0; super::job::RESOURCES_MAX];

impl Host {
    pub fn new(capacity: Amounts) -> Host {
        Host { capacity, steps: vec![Step { from_s: i64::MIN, taken: NOTHING }] }
    }

    /// Whether an empty host would do.
    pub fn could_hold(&self, amounts: &Amounts) -> bool {
        amounts.iter().zip(&self.capacity).all(|(amount, capacity)| amount <= capacity)
    }

    fn has_room(&self, taken: &Amounts, amounts: &Amounts) -> bool {
        (0..amounts.len()).all(|at| taken[at] + amounts[at] <= self.capacity[at])
    }

    /// The step that this second is in.
    fn step_at(&self, second: i64) -> usize {
        self.steps.partition_point(|step| step.from_s <= second).saturating_sub(1)
    }

    /// What is taken at a second.
    pub fn taken_at(&self, second: i64) -> &Amounts {
        &self.steps[self.step_at(second)].taken
    }

    /// The first second from `from_s` on and not after `latest_s` at which the host takes such a job; `i64::MAX` when there is none.
    pub fn first(&self, from_s: i64, latest_s: i64, ask: &Ask) -> i64 {
        let mut start_s = from_s;
        let first = self.step_at(from_s);
        for (at, step) in self.steps.iter().enumerate().skip(first) {
            if start_s > latest_s {
                break;
            }
            let end_s = self.steps.get(at + 1).map_or(i64::MAX, |next| next.from_s);
            let must_be_empty = ask.starts_alone && step.from_s <= start_s;
            if !self.has_room(&step.taken, &ask.amounts) || (must_be_empty && step.taken != NOTHING) {
                start_s = end_s;
            } else if end_s >= start_s.saturating_add(ask.length_s) {
                return start_s;
            }
        }
        i64::MAX
    }

    /// Whether the host takes such a job at this second.
    pub fn fits(&self, start_s: i64, ask: &Ask) -> bool {
        self.first(start_s, start_s, ask) == start_s
    }

    /// Begins a step at this second, if none does. Returns its number.
    fn cut(&mut self, second: i64) -> usize {
        let at = self.step_at(second);
        if self.steps[at].from_s == second {
            return at;
        }
        let taken = self.steps[at].taken;
        self.steps.insert(at + 1, Step { from_s: second, taken });
        at + 1
    }

    /// Changes what is taken from one second to another, and joins steps that are alike.
    fn change(&mut self, from_s: i64, to_s: i64, change: impl Fn(&mut u64, u64), amounts: &Amounts) {
        if from_s >= to_s {
            return;
        }
        let first = self.cut(from_s);
        let end = if to_s == i64::MAX { self.steps.len() } else { self.cut(to_s) };
        for step in &mut self.steps[first..end] {
            step.taken.iter_mut().zip(amounts).for_each(|(taken, amount)| change(taken, *amount));
        }
        if end < self.steps.len() && self.steps[end].taken == self.steps[end - 1].taken {
            self.steps.remove(end);
        }
        if first > 0 && self.steps[first].taken == self.steps[first - 1].taken {
            self.steps.remove(first);
        }
    }

    /// Takes amounts from one second to another.
    pub fn take(&mut self, from_s: i64, to_s: i64, amounts: &Amounts) {
        self.change(from_s, to_s, |taken, amount| *taken += amount, amounts);
    }

    /// Gives back what was taken.
    pub fn give_back(&mut self, from_s: i64, to_s: i64, amounts: &Amounts) {
        self.change(from_s, to_s, |taken, amount| *taken -= amount, amounts);
    }

    /// Forgets what was before this second.
    pub fn forget(&mut self, before_s: i64) {
        let first = self.step_at(before_s);
        if first > 0 {
            self.steps.drain(..first);
            self.steps[0].from_s = i64::MIN;
        }
    }
}
