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

/// When a host has room for some amounts.
#[derive(Debug, Clone, Copy)]
struct Gap {
    from_s: i64,
    end_s: i64,
    /// The number of the next one that is longer, or how many there are: where this one is too short, all between are.
    longer: usize,
}

impl Gap {
    /// The last gap has no end, and no other is as long.
    fn length_s(&self) -> i64 {
        if self.end_s == i64::MAX { self.end_s } else { self.end_s.saturating_sub(self.from_s) }
    }
}

/// All such gaps in ascending order; no two touch.
#[derive(Debug, Clone)]
struct Gaps {
    amounts: Amounts,
    gaps: Vec<Gap>,
    /// The steps have changed since.
    is_stale: bool,
}

/// Amounts whose gaps are kept: most jobs ask for what others ask for as well. At the bound the oldest makes room.
const KEPT_MAX: usize = 8;

impl Gaps {
    /// The first second from `from_s` on and not after `latest_s` at which a gap has so many seconds left; `i64::MAX` when none has.
    fn first(&self, from_s: i64, latest_s: i64, length_s: i64) -> i64 {
        // Most ask from the present on, where the first gap is.
        let is_first = self.gaps.first().is_none_or(|gap| gap.end_s > from_s);
        let mut at = if is_first { 0 } else { self.gaps.partition_point(|gap| gap.end_s <= from_s) };
        while let Some(gap) = self.gaps.get(at) {
            let start_s = from_s.max(gap.from_s);
            if start_s > latest_s {
                break;
            }
            if gap.end_s >= start_s.saturating_add(length_s) {
                return start_s;
            }
            // Of one that has begun before only a part counts.
            at = if gap.from_s < from_s { at + 1 } else { gap.longer };
        }
        i64::MAX
    }

    /// Begins anew with these steps, each with whether there is room.
    fn fill(&mut self, steps: impl Iterator<Item = (i64, i64, bool)>) {
        self.gaps.clear();
        for (from_s, end_s, _) in steps.filter(|(.., has_room)| *has_room) {
            match self.gaps.last_mut() {
                Some(last) if last.end_s == from_s => last.end_s = end_s,
                _ => self.gaps.push(Gap { from_s, end_s, longer: 0 }),
            }
        }
        for at in (0..self.gaps.len()).rev() {
            let length_s = self.gaps[at].length_s();
            let mut next = at + 1;
            while self.gaps.get(next).is_some_and(|gap| gap.length_s() <= length_s) {
                next = self.gaps[next].longer;
            }
            self.gaps[at].longer = next;
        }
        self.is_stale = false;
    }

    /// The same if what is taken from one second to another were free: the seconds at which a job is planned that asks for the same, and
    /// of which this is none.
    fn first_beside(&self, (from_s, latest_s): (i64, i64), length_s: i64, (own_s, own_end_s): (i64, i64)) -> i64 {
        let first_s = self.first(from_s, latest_s, length_s);
        // Only the gap that reaches up to the job becomes longer.
        let before = self.gaps.partition_point(|gap| gap.from_s < own_s).checked_sub(1).map(|at| self.gaps[at]);
        let Some(before) = before.filter(|gap| gap.end_s >= own_s) else { return first_s };
        let behind = self.gaps.partition_point(|gap| gap.end_s < own_end_s);
        let behind = self.gaps.get(behind).filter(|gap| gap.from_s <= own_end_s);
        let end_s = behind.map_or(own_end_s, |gap| gap.end_s);
        let start_s = from_s.max(before.from_s);
        if start_s <= latest_s && end_s >= start_s.saturating_add(length_s) { first_s.min(start_s) } else { first_s }
    }
}

/// One host.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub capacity: Amounts,
    steps: Vec<Step>,
    /// As of the steps, unless stale.
    kept: Vec<Gaps>,
}

const NOTHING: Amounts = [0; super::job::RESOURCES_MAX];

fn has_room(capacity: &Amounts, taken: &Amounts, amounts: &Amounts) -> bool {
    (0..amounts.len()).all(|at| taken[at] + amounts[at] <= capacity[at])
}

impl Host {
    pub fn new(capacity: Amounts) -> Host {
        Host { capacity, steps: vec![Step { from_s: i64::MIN, taken: NOTHING }], kept: Vec::new() }
    }

    /// Whether an empty host would do.
    pub fn could_hold(&self, amounts: &Amounts) -> bool {
        amounts.iter().zip(&self.capacity).all(|(amount, capacity)| amount <= capacity)
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
        self.kept_gaps(ask.amounts).first(from_s, latest_s, ask.length_s)
    }

    /// The same, before the second at which the job itself is planned here, and as if it were not.
    pub fn first_beside(&mut self, from_s: i64, latest_s: i64, ask: &Ask, planned_s: i64) -> i64 {
        if ask.starts_alone {
            // It has the host for itself at first, which no other shows as room.
            let mut without = self.clone();
            let end_s = planned_s.saturating_add(ask.length_s);
            without.give_back(planned_s, planned_s.saturating_add(1), &self.capacity);
            without.give_back(planned_s.saturating_add(1), end_s, &ask.amounts);
            return without.first_by_steps(from_s, latest_s, ask);
        }
        let own = (planned_s, planned_s.saturating_add(ask.length_s));
        self.kept_gaps(ask.amounts).first_beside((from_s, latest_s), ask.length_s, own)
    }

    fn kept_gaps(&mut self, amounts: Amounts) -> &Gaps {
        let at = self.kept.iter().position(|gaps| gaps.amounts == amounts);
        let at = at.unwrap_or_else(|| {
            if self.kept.len() == KEPT_MAX {
                self.kept.remove(0);
            }
            self.kept.push(Gaps { amounts, gaps: Vec::new(), is_stale: true });
            self.kept.len() - 1
        });
        let (steps, capacity) = (&self.steps, &self.capacity);
        let kept = &mut self.kept[at];
        if kept.is_stale {
            let ends = steps.iter().skip(1).map(|next| next.from_s).chain([i64::MAX]);
            kept.fill(
                steps
                    .iter()
                    .zip(ends)
                    .map(|(step, end_s)| (step.from_s, end_s, has_room(capacity, &step.taken, &amounts))),
            );
        }
        kept
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
            if !has_room(&self.capacity, &step.taken, &ask.amounts) || (must_be_empty && step.taken != NOTHING) {
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
        self.kept.iter_mut().for_each(|gaps| gaps.is_stale = true);
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
            self.kept.iter_mut().for_each(|gaps| gaps.is_stale = true);
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
                    let ask = Ask { amounts: [*amount, 0, 0, 0], length_s: *length_s, starts_alone: *length_s % 8 == 0 };
                    let expected = host.first_by_steps(*from_s, *latest_s, &ask);
                    prop_assert_eq!(host.first(*from_s, *latest_s, &ask), expected);
                    // A job that is planned there, and would begin earlier.
                    let planned_s = latest_s + 1;
                    if host.fits(planned_s, &ask) {
                        let mut with = host.clone();
                        let alone_s = if ask.starts_alone { planned_s + 1 } else { planned_s };
                        with.take(planned_s, alone_s, &[4, 0, 0, 0]);
                        with.take(alone_s, planned_s + length_s, &ask.amounts);
                        prop_assert_eq!(with.first_beside(*from_s, *latest_s, &ask, planned_s), expected);
                    }
                }
            }
        }
    }
}
