//! Schedules with more steps than a site tells: what is near stays exact, what is far is told coarsely.
//!
//! Invariant: a host never looks freer than it is, at any second; so what is added or removed later can be taken in by who has the coarse
//! schedules as by who has the exact ones. Only where a class has so many different uses that they alone are too many, all of it is told
//! as one use, and a change of another one is a gap.

use super::schedules::SiteSchedules;
use crate::{schedule::Occupancy, time::Time};

/// How schedules are made coarse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coarseness {
    /// What is before is exact, but where the uses of a class become one.
    pub from: Time,
    /// What is before is exact everywhere.
    pub doubtful_from: Time,
    /// So many steps become one.
    group: usize,
}

impl SiteSchedules {
    /// How these become at most `steps_max` steps (see [`SiteSchedules::len`]), if they are more; about three quarters of them stay exact.
    /// It takes an eighth of the steps, or more, that an occupancy has two.
    #[must_use]
    pub fn coarseness(&self, steps_max: usize) -> Option<Coarseness> {
        let all = self.len();
        if all <= steps_max {
            return None;
        }
        let mut times: Vec<Time> = self.all().flat_map(|one| one.steps().into_iter().map(|(time, _)| time)).collect();
        let weight_of_uses = (all - times.len()).min(steps_max / 4);
        let first = times.iter().copied().min();
        let near = (steps_max / 4 * 3 - weight_of_uses).min(times.len().checked_sub(1)?);
        let (_, from, _) = times.select_nth_unstable(near);
        let from = *from;
        let far = times.iter().filter(|time| **time >= from).count();
        // Each occupancy has one group that is not full, and its last step.
        let room = (steps_max / 4).saturating_sub(2 * self.all().count()).max(1);
        let doubtful_from = first.filter(|_| self.has_too_many_uses(steps_max)).unwrap_or(from);
        Some(Coarseness { from, doubtful_from, group: far.div_ceil(room).max(2) })
    }

    /// Makes these schedules coarse, of which `steps_max` are the most.
    pub fn coarsen(&mut self, Coarseness { from, group, .. }: Coarseness, steps_max: usize) {
        let has_too_many_uses = self.has_too_many_uses(steps_max);
        let (by_host, by_class) = self.parts_mut();
        for schedule in by_host.values_mut() {
            *schedule = schedule.coarsened(from, group).into();
        }
        for class in by_class.values_mut() {
            if has_too_many_uses {
                class.used = class.used.with_one_use();
            }
            class.used = class.used.coarsened(from, group);
        }
    }

    fn has_too_many_uses(&self, steps_max: usize) -> bool {
        self.len() - self.all().map(Occupancy::len).sum::<usize>() > steps_max / 4
    }

    fn all(&self) -> impl Iterator<Item = &Occupancy> {
        let of_hosts = self.hosts().flat_map(|(_, schedule)| schedule.occupancies()).map(|(_, occupancy)| occupancy);
        of_hosts.chain(self.classes().flat_map(|(_, class)| class.used.uses()).map(|(_, hosts)| hosts))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        amount::Amount,
        classes::Members,
        ids::HostId,
        protocol::{ChangeKind, ClassSchedules, HostChange, ScheduleChange},
        resources::{Amounts, ResourceName},
        schedule::{ClassOccupancy, Schedule},
        time::Window,
    };

    fn cpu(amount: u64) -> Amounts {
        Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(amount))])
    }

    fn host(number: usize) -> HostId {
        HostId::new(&format!("h{number}")).unwrap()
    }

    fn peak(schedules: &SiteSchedules, number: usize, second: i64) -> u64 {
        let window = Window { start: Time(second), end: Time(second + 1) };
        let cpu = ResourceName::new("cpu").unwrap();
        schedules.host(&host(number)).map_or(0, |schedule| schedule.peak(&cpu, window).0)
    }

    proptest! {
        /// Windows on three hosts, told exactly and coarsely; then some are removed and others added.
        #[test]
        fn nothing_looks_freer_and_changes_can_be_taken_in(
            added in prop::collection::vec((0_usize..3, 0_i64..400, 1_i64..20, 1_u64..9), 40..150),
            kept in 0_usize..150,
            later in prop::collection::vec((0_usize..3, 0_i64..400, 1_i64..20, 1_u64..9), 0..10),
        ) {
            let change = |(number, start, length, used): &(usize, i64, i64, u64), kind| ScheduleChange::Host(HostChange {
                host: host(*number),
                window: Window { start: Time(*start), end: Time(start + length) },
                amounts: cpu(*used),
                kind,
            });
            let mut exact = SiteSchedules::default();
            for one in &added {
                prop_assert!(exact.apply(&change(one, ChangeKind::Added), Time::ZERO));
            }
            let (all, most) = (exact.len(), 48);
            let mut told = exact.clone();
            let coarseness = told.coarseness(most);
            prop_assert_eq!(coarseness.is_some(), all > most);
            let from = coarseness.map_or(Time(i64::MAX), |coarse| coarse.from);
            if let Some(coarseness) = coarseness {
                told.coarsen(coarseness, most);
            }
            prop_assert!(told.len() <= most, "{} of {}", told.len(), all);
            let removed = added.iter().skip(kept).map(|one| change(one, ChangeKind::Removed));
            for change in removed.chain(later.iter().map(|one| change(one, ChangeKind::Added))) {
                for number in 0..3 {
                    for second in 0..430 {
                        let (is, told) = (peak(&exact, number, second), peak(&told, number, second));
                        prop_assert!(told >= is, "h{} has {} in use at {}, {} told", number, is, second, told);
                        prop_assert!(told == is || second >= from.0, "exact before {:?}", from);
                    }
                }
                prop_assert!(exact.apply(&change, Time::ZERO) && told.apply(&change, Time::ZERO));
            }
        }
    }

    #[test]
    fn steps_that_follow_make_the_same_occupancy() {
        let steps: Vec<(Time, Amount)> = (0..500).map(|at| (Time(10 * at), Amount(at.unsigned_abs() % 3))).collect();
        let whole = Occupancy::from_steps(&steps).unwrap();
        for size in [1, 7, 61, 62, 63, 499] {
            let mut grown = Occupancy::default();
            steps.chunks(size).for_each(|chunk| grown.append(chunk).unwrap());
            assert_eq!(grown, whole);
        }
        let mut grown = whole.clone();
        assert!(grown.append(&[(Time(4_990), Amount(9))]).is_err(), "not after the last");
        assert_eq!(grown, whole);
    }

    #[test]
    fn a_class_with_too_many_uses_is_told_as_one() {
        let mut used = ClassOccupancy::default();
        for second in 0..40 {
            let window = Window { start: Time(second), end: Time(second + 2) };
            used.exchange(window, Amount(1), (&Amounts::new(), &cpu(second.unsigned_abs() + 1))).unwrap();
        }
        let class = |used| (host(0), ClassSchedules { members: Members { first: 1, count: 9 }, used });
        let mut told = SiteSchedules::new([(host(7), Schedule::default())], [class(used)]);
        let most = 300;
        let coarseness = told.coarseness(most).unwrap();
        assert_eq!(coarseness.doubtful_from, Time(0), "not even what is near is exact");
        told.coarsen(coarseness, most);
        assert!(told.len() <= most, "{}", told.len());
        let (_, class) = told.classes().next().unwrap();
        let (used, hosts) = class.used.uses().next().unwrap();
        assert_eq!((used, class.used.uses().count()), (&cpu(40), 1));
        assert!((1..40).all(|second| hosts.used_at(Time(second)) >= Amount(2)));
        assert_eq!(hosts.used_at(Time(41)), Amount(0));
    }
}
