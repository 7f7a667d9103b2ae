//! What is used of the hosts of a class, by count: which of them it is used on is not told.
//!
//! Invariant: no set of amounts is kept that nothing uses at any time, so two of these are equal exactly when they say the same of
//! every second. The count of seats that take whole hosts is exact as long as those that have not begun can have any host: a class has
//! one for one more of them unless all are in use at one second of its window. Where seats share hosts it is a hint: which amounts follow
//! each other on one host is not told.

use std::{cmp::Reverse, collections::BTreeMap, iter, mem};

use super::{Occupancy, Schedule, ScheduleError};
use crate::{
    amount::Amount,
    resources::{Amounts, ResourceName, amount_of},
    time::{Time, Window},
};

/// For each set of amounts, on how many hosts exactly these are used, over time. A host of which nothing is used counts nowhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassOccupancy {
    by_use: BTreeMap<Amounts, Occupancy>,
}

impl FromIterator<(Amounts, Occupancy)> for ClassOccupancy {
    fn from_iter<I: IntoIterator<Item = (Amounts, Occupancy)>>(uses: I) -> ClassOccupancy {
        let is_told = |(used, hosts): &(Amounts, Occupancy)| !used.is_empty() && !hosts.is_empty();
        ClassOccupancy { by_use: uses.into_iter().filter(is_told).collect() }
    }
}

impl ClassOccupancy {
    /// Each set of amounts with the number of hosts on which exactly these are used.
    pub fn uses(&self) -> impl Iterator<Item = (&Amounts, &Occupancy)> {
        self.by_use.iter()
    }

    /// Counts so many hosts on which `before` was used during the window as hosts on which `after` is.
    ///
    /// # Errors
    /// [`ScheduleError::NotReserved`] when there are fewer hosts on which `before` was used; then nothing has changed.
    pub fn exchange(
        &mut self,
        window: Window,
        hosts: Amount,
        (before, after): (&Amounts, &Amounts),
    ) -> Result<(), ScheduleError> {
        if !before.is_empty() {
            let counted = self.by_use.get_mut(before).ok_or(ScheduleError::NotReserved { window, amount: hosts })?;
            counted.remove(window, hosts)?;
            if counted.is_empty() {
                self.by_use.remove(before);
            }
        }
        if !after.is_empty() {
            let counted = self.by_use.entry(after.clone()).or_default();
            counted.add(window, hosts);
            if counted.is_empty() {
                self.by_use.remove(after);
            }
        }
        Ok(())
    }

    /// Schedules of as many hosts as it takes, at most `hosts_max`, which together use at each second what is counted. Uses that take
    /// more than half of one resource of the `capacity`, no two of which go on one host, are moved to the first hosts at every second, so
    /// that as many others are free throughout a window as are free at its busiest second. A smaller one stays on its host, and of those
    /// that change at one second as few hosts change as can be. Where that is more than [`WORK_MAX`], all hosts look taken from there on.
    #[must_use]
    pub fn spread(&self, capacity: &Amounts, hosts_max: usize) -> Vec<Schedule> {
        let mut uses: Vec<(&Amounts, &Occupancy)> = self.by_use.iter().collect();
        uses.sort_by_cached_key(|(used, _)| Reverse((weight(used), *used)));
        let mut steps: Vec<(Time, usize, u64)> = Vec::with_capacity(self.len());
        for (number, (_, hosts)) in uses.iter().enumerate() {
            steps.extend(hosts.iter().map(|(time, hosts)| (time, number, hosts.0)));
        }
        steps.sort_unstable();
        let uses: Vec<&Amounts> = uses.into_iter().map(|(used, _)| used).collect();
        let mut spread = Spread::new(&uses, capacity, hosts_max);
        for at_once in steps.chunk_by(|one, next| one.0 == next.0) {
            if !spread.change(at_once) {
                spread.close(at_once[0].0, capacity);
                break;
            }
        }
        spread.schedules
    }

    /// What has never less hosts in use, each of them with never less: see [`Occupancy::coarsened`].
    #[must_use]
    pub fn coarsened(&self, from: Time, group: usize) -> ClassOccupancy {
        self.uses().map(|(used, hosts)| (used.clone(), hosts.coarsened(from, group))).collect()
    }

    /// The hosts in use as if each had the largest of all amounts in use.
    #[must_use]
    pub fn with_one_use(&self) -> ClassOccupancy {
        let mut largest = Amounts::new();
        let mut hosts = Occupancy::default();
        for (used, counted) in self.uses() {
            for (name, amount) in used {
                let known = largest.entry(name.clone()).or_default();
                *known = (*known).max(*amount);
            }
            let (steps, ends) = (counted.steps(), counted.steps().into_iter().skip(1).map(|(time, _)| time));
            for ((start, count), end) in steps.into_iter().zip(ends.chain([Time(i64::MAX)])) {
                hosts.add(Window { start, end }, count);
            }
        }
        [(largest, hosts)].into_iter().collect()
    }

    /// How many steps it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_use.values().map(Occupancy::len).sum()
    }

    /// Whether nothing is used at any time.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_use.is_empty()
    }

    /// Drops what is before `time`.
    pub fn forget_before(&mut self, time: Time) {
        self.by_use.retain(|_, hosts| {
            hosts.forget_before(time);
            !hosts.is_empty()
        });
    }
}

/// Most work that a spread is worth: a step of a schedule is [`LOOKS`], as many looks at one host or use are one. So it has at most a
/// quarter of a million steps.
const WORK_MAX: usize = 1 << 22;
const LOOKS: usize = 16;

/// Hosts with what is used of them, as [`ClassOccupancy::spread`] goes through time.
struct Spread<'a> {
    uses: &'a [&'a Amounts],
    hosts_max: usize,
    /// Which uses no other one goes beside on one host.
    is_whole: Vec<bool>,
    /// How many hosts have each use.
    counts: Vec<usize>,
    /// The use of each host, since when.
    hosts: Vec<Option<(usize, Time)>>,
    schedules: Vec<Schedule>,
    work_left: usize,
}

impl<'a> Spread<'a> {
    fn new(uses: &'a [&'a Amounts], capacity: &Amounts, hosts_max: usize) -> Spread<'a> {
        let is_more_than_half =
            |used: &Amounts, name: &ResourceName| amount_of(used, name).0 > amount_of(capacity, name).0 / 2;
        let count_of = |name: &&ResourceName| uses.iter().filter(|used| is_more_than_half(used, name)).count();
        let resource = capacity.keys().rev().max_by_key(count_of);
        let is_whole = |used: &&Amounts| resource.is_some_and(|name| is_more_than_half(used, name));
        Spread {
            uses,
            hosts_max,
            is_whole: uses.iter().map(is_whole).collect(),
            counts: vec![0; uses.len()],
            hosts: Vec::new(),
            schedules: Vec::new(),
            work_left: WORK_MAX,
        }
    }

    /// Whether there is so much work left, which is then done.
    fn may(&mut self, work: usize) -> bool {
        let left = self.work_left.checked_sub(work);
        self.work_left = left.unwrap_or_default();
        left.is_some()
    }

    /// From a time on, all hosts look taken.
    fn close(&mut self, now: Time, capacity: &Amounts) {
        (0..self.hosts.len()).for_each(|at| self.set(at, None, now));
        self.schedules.resize(self.hosts_max, Schedule::default());
        let rest = Window { start: now, end: Time(i64::MAX) };
        self.schedules.iter_mut().for_each(|schedule| schedule.add(rest, capacity));
    }

    /// From a time on, so many hosts have these uses; whether that is not too much work.
    fn change(&mut self, at_once: &[(Time, usize, u64)]) -> bool {
        let Some((now, ..)) = at_once.first().copied() else { return true };
        if !self.may(1 + (self.uses.len() + self.hosts.len() * (1 + at_once.len())) / LOOKS) {
            return false;
        }
        let (mut gone, mut new): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for (_, used, hosts) in at_once {
            let hosts = usize::try_from(*hosts).unwrap_or(usize::MAX).min(self.hosts_max);
            let before = mem::replace(&mut self.counts[*used], hosts);
            if !self.is_whole[*used] {
                let less = before.saturating_sub(hosts);
                let more = hosts.saturating_sub(before).min(self.hosts_max - new.len());
                new.extend(iter::repeat_n(*used, more));
                let there =
                    self.hosts.iter().enumerate().rev().filter(|(_, host)| host.is_some_and(|(is, _)| is == *used));
                gone.extend(there.map(|(at, _)| at).take(less));
            }
        }
        if !self.may(gone.len() * new.len() / LOOKS) {
            return false;
        }
        // A seat that begins or ends on a host leaves the others there: of two uses one has all of the other.
        let has_all = |one: &Amounts, other: &Amounts| other.iter().all(|(name, used)| amount_of(one, name) >= *used);
        for any in [false, true] {
            gone.retain(|at| {
                let Some((before, _)) = self.hosts[*at] else { return true };
                let goes_with = |after: &usize| {
                    let (before, after) = (self.uses[before], self.uses[*after]);
                    any || has_all(before, after) || has_all(after, before)
                };
                let Some(found) = new.iter().position(goes_with) else { return true };
                self.set(*at, Some(new.swap_remove(found)), now);
                false
            });
        }
        gone.into_iter().for_each(|at| self.set(at, None, now));
        self.place(&new, now);
        self.work_left > 0
    }

    /// Gives the first hosts without smaller uses the whole ones, and the next ones these.
    fn place(&mut self, new: &[usize], now: Time) {
        let whole = (0..self.uses.len()).filter(|used| self.is_whole[*used]);
        let whole = whole.flat_map(|used| iter::repeat_n(used, self.counts[used]));
        let whole: Vec<usize> = whole.take(self.hosts_max).collect();
        let mut next = whole.iter().chain(new);
        let mut at = 0;
        while at < self.hosts_max {
            let has_part = self.hosts.get(at).is_some_and(|host| host.is_some_and(|(used, _)| !self.is_whole[used]));
            if !has_part {
                let Some(used) = next.next() else { break };
                self.set(at, Some(*used), now);
            }
            at += 1;
        }
        for at in at..self.hosts.len() {
            if self.hosts[at].is_some_and(|(used, _)| self.is_whole[used]) {
                self.set(at, None, now);
            }
        }
    }

    /// From now on a host has this use.
    fn set(&mut self, at: usize, used: Option<usize>, now: Time) {
        if self.hosts.len() <= at {
            self.hosts.resize(at + 1, None);
            self.schedules.resize(at + 1, Schedule::default());
        }
        match self.hosts[at] {
            Some((before, _)) if Some(before) == used => return,
            Some((before, since)) => {
                self.may(LOOKS * self.uses[before].len());
                self.schedules[at].add(Window { start: since, end: now }, self.uses[before]);
            }
            None => {}
        }
        self.hosts[at] = used.map(|used| (used, now));
    }
}

/// Orders sets of amounts: one that has more of something, and less of nothing, is heavier.
fn weight(used: &Amounts) -> u128 {
    used.values().map(|amount| u128::from(amount.0)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::resources::ResourceName;

    const HOSTS: usize = 4;

    fn amounts(cores: u64, memory: u64) -> Amounts {
        let named = [("cpu", cores), ("memory", memory)].into_iter().filter(|(_, amount)| *amount > 0);
        named.map(|(name, amount)| (ResourceName::new(name).unwrap(), Amount(amount))).collect()
    }

    fn used_at(schedule: &Schedule, time: Time) -> Amounts {
        let used = schedule.occupancies().map(|(name, occupancy)| (name.clone(), occupancy.used_at(time)));
        used.filter(|(_, amount)| *amount > Amount::ZERO).collect()
    }

    proptest! {
        /// Hosts are told by count as each of them changes: what they are spread on has the same in use at every second.
        #[test]
        fn what_is_spread_uses_at_each_second_what_the_hosts_use(
            added in prop::collection::vec((0..HOSTS, 0_i64..20, 1_i64..10, 0_u64..3, 0_u64..3), 0..12),
            forgotten in 0_i64..15,
        ) {
            let mut hosts = vec![Schedule::default(); HOSTS];
            let mut class = ClassOccupancy::default();
            for (host, start, length, cores, memory) in added {
                for second in start..start + length {
                    let window = Window { start: Time(second), end: Time(second + 1) };
                    let before = used_at(&hosts[host], window.start);
                    hosts[host].add(window, &amounts(cores, memory));
                    class.exchange(window, Amount(1), (&before, &used_at(&hosts[host], window.start))).unwrap();
                }
            }
            let too_many = class.clone().exchange(
                Window { start: Time(0), end: Time(40) }, Amount(1), (&amounts(1, 0), &Amounts::new()),
            );
            prop_assert!(too_many.is_err());
            class.forget_before(Time(forgotten));
            let told = class.uses().map(|(used, hosts)| (used.clone(), hosts.clone()));
            prop_assert_eq!(&told.collect::<ClassOccupancy>(), &class);
            let capacity = amounts(20, 20);
            let spread = class.spread(&capacity, HOSTS);
            prop_assert!(spread.len() <= HOSTS);
            for second in forgotten..40 {
                let of = |schedules: &[Schedule]| -> Vec<Amounts> {
                    let used = schedules.iter().map(|schedule| used_at(schedule, Time(second)));
                    let mut used: Vec<Amounts> = used.filter(|used| !used.is_empty()).collect();
                    used.sort_unstable();
                    used
                };
                prop_assert_eq!(of(&spread), of(&hosts), "at {}", second);
            }
        }

        /// Seats that take more than half of a host: as many hosts are free for a window as are free at its busiest second.
        #[test]
        fn whole_hosts_are_exact_by_count(
            seats in prop::collection::vec((0_i64..20, 1_i64..10, 11_u64..14), 0..12),
            (start, length) in (0_i64..20, 1_i64..15),
        ) {
            let used = |second: i64| {
                seats.iter().filter(move |(from, length, _)| (*from..from + length).contains(&second))
            };
            let most = (0..40).map(|second| used(second).count()).max().unwrap();
            let mut class = ClassOccupancy::default();
            for (from, length, cores) in &seats {
                let window = Window { start: Time(*from), end: Time(from + length) };
                class.exchange(window, Amount(1), (&Amounts::new(), &amounts(*cores, 1))).unwrap();
            }
            let spread = class.spread(&amounts(20, 20), most);
            prop_assert_eq!(spread.len(), most);
            let window = Window { start: Time(start), end: Time(start + length) };
            let cpu = ResourceName::new("cpu").unwrap();
            let taken = spread.iter().filter(|schedule| schedule.peak(&cpu, window) > Amount::ZERO).count();
            prop_assert_eq!(taken, (start..start + length).map(|second| used(second).count()).max().unwrap());
        }
    }

    /// Of two hosts with smaller seats one gets another seat, and the first seat of the other one ends: each keeps what it has.
    #[test]
    fn smaller_uses_stay_on_their_hosts() {
        let mut class = ClassOccupancy::default();
        let mut exchange = |start, end, before: u64, after: u64| {
            let window = Window { start: Time(start), end: Time(end) };
            class.exchange(window, Amount(1), (&amounts(before, 0), &amounts(after, 0))).unwrap();
        };
        exchange(0, 30, 0, 4);
        exchange(0, 20, 0, 7);
        exchange(10, 30, 4, 5);
        exchange(15, 20, 7, 3);
        exchange(15, 20, 0, 20);
        let mut expected = vec![Schedule::default(); 3];
        for (at, start, end, cores) in [(0, 0, 10, 4), (0, 10, 30, 5), (1, 0, 15, 7), (1, 15, 20, 3), (2, 15, 20, 20)] {
            expected[at].add(Window { start: Time(start), end: Time(end) }, &amounts(cores, 0));
        }
        let mut spread = class.spread(&amounts(20, 20), 8);
        spread.sort_by_key(|schedule| {
            schedule.peak(&ResourceName::new("cpu").unwrap(), Window { start: Time(0), end: Time(12) })
        });
        expected.sort_by_key(|schedule| {
            schedule.peak(&ResourceName::new("cpu").unwrap(), Window { start: Time(0), end: Time(12) })
        });
        assert_eq!(spread, expected);
        assert_eq!(class.spread(&amounts(20, 20), 1).len(), 1, "of a site that counts more hosts than it has");
    }

    /// A site that tells of all its hosts another use at each second.
    #[test]
    fn what_is_too_much_to_spread_looks_taken() {
        let (hosts, seconds) = (1_000, 2_000_i64);
        let window = |second| Window { start: Time(second), end: Time(second + 1) };
        let mut class = ClassOccupancy::default();
        for second in 0..seconds {
            let used = amounts(11 + (second % 2).unsigned_abs(), 1);
            class.exchange(window(second), Amount(hosts), (&Amounts::new(), &used)).unwrap();
        }
        let spread = class.spread(&amounts(20, 20), 500);
        let peak =
            |second| spread.iter().map(|one| one.peak(&ResourceName::new("cpu").unwrap(), window(second)).0).min();
        assert_eq!((spread.len(), peak(0), peak(1)), (500, Some(11), Some(12)));
        assert_eq!(peak(seconds + 5), Some(20), "beyond the bound");
        let steps: usize = spread.iter().flat_map(Schedule::occupancies).map(|(_, one)| one.len()).sum();
        assert!(steps * LOOKS < 2 * WORK_MAX, "{steps}");
    }
}
