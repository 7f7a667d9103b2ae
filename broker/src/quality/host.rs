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

/// When a host has room for some amounts, in ascending order; no two touch.
#[derive(Debug, Clone)]
struct Gaps {
    amounts: Amounts,
    gaps: Vec<(i64, i64)>,
    /// The longest of each [`BLOCK`] gaps.
    longest_s: Vec<i64>,
}

/// Gaps that are passed over at once when none of them is long enough.
const BLOCK: usize = 16;
/// Amounts whose gaps are kept: most jobs ask for what others ask for as well. At the bound the oldest makes room.
const KEPT_MAX: usize = 8;

impl Gaps {
    /// The first second from `from_s` on and not after `latest_s` at which a gap has so many seconds left; `i64::MAX` when none has.
    fn first(&self, from_s: i64, latest_s: i64, length_s: i64) -> i64 {
        let mut at = self.gaps.partition_point(|(_, end_s)| *end_s <= from_s);
        while let Some((gap_s, end_s)) = self.gaps.get(at) {
            let start_s = from_s.max(*gap_s);
            if start_s > latest_s {
                break;
            }
            if self.longest_s[at / BLOCK] < length_s {
                at = (at / BLOCK + 1) * BLOCK;
                continue;
            }
            if *end_s >= start_s.saturating_add(length_s) {
                return start_s;
            }
            at += 1;
        }
        i64::MAX
    }
}

/// One host.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub capacity: Amounts,
    steps: Vec<Step>,
    /// As of the steps.
    kept: Vec<Gaps>,
}

const NOTHING: Amounts = [0; super::job::RESOURCES_MAX];

impl Host {
    pub fn new(capacity: Amounts) -> Host {
        Host { capacity, steps: vec![Step { from_s: i64::MIN, taken: NOTHING }], kept: Vec::new() }
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
    pub fn first(&mut self, from_s: i64, latest_s: i64, ask: &Ask) -> i64 {
        if ask.starts_alone {
            return self.first_by_steps(from_s, latest_s, ask);
        }
        let at = self.kept.iter().position(|gaps| gaps.amounts == ask.amounts);
        let at = at.unwrap_or_else(|| {
            if self.kept.len() == KEPT_MAX {
                self.kept.remove(0);
            }
            let gaps = self.gaps(ask.amounts);
            self.kept.push(gaps);
            self.kept.len() - 1
        });
        self.kept[at].first(from_s, latest_s, ask.length_s)
    }

    fn gaps(&self, amounts: Amounts) -> Gaps {
        let mut gaps: Vec<(i64, i64)> = Vec::new();
        for (at, step) in self.steps.iter().enumerate().filter(|(_, step)| self.has_room(&step.taken, &amounts)) {
            let end_s = self.steps.get(at + 1).map_or(i64::MAX, |next| next.from_s);
            match gaps.last_mut() {
                Some(last) if last.1 == step.from_s => last.1 = end_s,
                _ => gaps.push((step.from_s, end_s)),
            }
        }
        let longest = |block: &[(i64, i64)]| {
            let lengths = block.iter().map(|(start_s, end_s)| end_s.saturating_sub(*start_s));
            // The last gap has no end.
            block.iter().map(|(_, end_s)| *end_s).filter(|end_s| *end_s == i64::MAX).chain(lengths).max()
        };
        let longest_s = gaps.chunks(BLOCK).filter_map(longest).collect();
        Gaps { amounts, gaps, longest_s }
    }

    /// [`Host::first`] of any job, step by step.
    fn first_by_steps(&self, from_s: i64, latest_s: i64, ask: &Ask) -> i64 {
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
        self.first_by_steps(start_s, start_s, ask) == start_s
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
        self.kept.clear();
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
            self.kept.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is kept of gaps answers as a look at every step does, whatever was changed before.
        #[test]
        fn gaps_answer_as_steps_do(
            changes in prop::collection::vec((0_i64..200, 1_i64..40, 1_u64..4), 1..80),
            asked in prop::collection::vec((0_i64..220, 0_i64..220, 1_i64..60, 1_u64..5), 1..20),
        ) {
            let mut host = Host::new([4, 0, 0, 0]);
            for (from_s, length_s, amount) in changes {
                let (amounts, to_s) = ([amount, 0, 0, 0], from_s + length_s);
                let ask = Ask { amounts, length_s, starts_alone: false };
                // Also more than there is.
                if host.fits(from_s, &ask) || amount == 3 {
                    host.take(from_s, to_s, &amounts);
                }
                for (from_s, latest_s, length_s, amount) in &asked {
                    let ask = Ask { amounts: [*amount, 0, 0, 0], length_s: *length_s, starts_alone: false };
                    let expected = host.first_by_steps(*from_s, *latest_s, &ask);
                    prop_assert_eq!(host.first(*from_s, *latest_s, &ask), expected);
                }
            }
        }
    }
}
