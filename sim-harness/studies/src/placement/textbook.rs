//! The source's phases II to V, taken literally, as one strategy among others: the baseline of `kolo-study tables`. (Among
//! equally unmet totals it takes the last instead of a random one.)
//!
//! Invariant: nothing here is shared with the core's phases, except the shape of the input and the default of `d_i`.

use broker::{
    phases::{Candidate, Job, Phase, PhaseObserver, plan_on},
    plan::PlanOutcome,
    request::Effort,
    resources::amount_of,
    strategy::Strategy,
    time::{Time, Window},
};
use rand::RngExt;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

/// The strategy.
#[derive(Debug)]
pub struct Textbook;

impl Strategy for Textbook {
    fn plan(
        &mut self,
        job: &Job<'_>,
        candidates: &[Candidate<'_>],
        _: Effort,
        seed: u64,
        observer: &mut dyn PhaseObserver,
    ) -> PlanOutcome {
        let found = plan(job, candidates, TextbookLimits::default(), seed, observer);
        let plan = found.and_then(|found| {
            let chosen: Vec<Candidate<'_>> = found.hosts.iter().map(|at| candidates[*at]).collect();
            plan_on(job, &chosen, found.start)
        });
        plan.map_or_else(|| PlanOutcome::unexplained(job.earliest, job.demand.seats()), PlanOutcome::Allocated)
    }
}

/// What the pseudo-code finds.
#[derive(Debug, Clone, PartialEq)]
pub struct TextbookPlan {
    /// The start.
    pub start: Time,
    /// Indices of the chosen candidates.
    pub hosts: Vec<usize>,
    /// The factor at that start.
    pub efficiency: f64,
}

/// The source's parameters `L1` and `L2`.
#[derive(Debug, Clone, Copy)]
pub struct TextbookLimits {
    /// Phase IV makes `N L1` tries.
    pub l1: usize,
    /// Phase V makes `N L2` tries.
    pub l2: usize,
}

impl Default for TextbookLimits {
    /// What the source settles on (section 3.4.3).
    fn default() -> Self {
        TextbookLimits { l1: 7, l2: 10 }
    }
}

struct Host {
    /// `r_ij`.
    capacity: Vec<i64>,
    /// `Z_ij(t)` as steps.
    steps: Vec<Vec<(i64, i64)>>,
}

struct Run {
    pick: usize,
    duration: i64,
    d: Vec<i64>,
    e: Vec<i64>,
    hosts: Vec<Host>,
    limits: TextbookLimits,
    random: Xoshiro256PlusPlus,
}

/// The hosts of `V_a` at one start: index, and `a_ij^t` by resource.
type Available = Vec<(usize, Vec<i64>)>;

/// Phases II to V, literally.
pub fn plan(
    job: &Job<'_>,
    candidates: &[Candidate<'_>],
    limits: TextbookLimits,
    seed: u64,
    observer: &mut dyn PhaseObserver,
) -> Option<TextbookPlan> {
    let &Job { demand, earliest, latest, .. } = job;
    observer.enter(Phase::Check);
    let names = demand.resources();
    let end = latest + demand.length().at_reference();
    let whole = Window { start: earliest, end };
    let host = |candidate: &Candidate<'_>| Host {
        capacity: names.iter().map(|name| amount_of(&candidate.host.capacity, name).0.cast_signed()).collect(),
        steps: names
            .iter()
            .map(|name| match candidate.schedule.occupancy(name) {
                Some(occupancy) => {
                    occupancy.segments(whole).map(|(time, used)| (time.0, used.0.cast_signed())).collect()
                }
                None => vec![(earliest.0, 0)],
            })
            .collect(),
    };
    let mut textbook = Run {
        pick: demand.seats(),
        duration: demand.length().at_reference().0.cast_signed(),
        d: names.iter().map(|name| demand.minimum_on_each(name).0.cast_signed()).collect(),
        e: names
            .iter()
            .map(|name| {
                let least = demand.minimum_on_each(name).0 * demand.seats() as u64;
                amount_of(demand.total(), name).0.max(least).cast_signed()
            })
            .collect(),
        hosts: candidates.iter().map(host).collect(),
        limits,
        random: Xoshiro256PlusPlus::seed_from_u64(seed),
    };
    if candidates.len() < textbook.pick || !textbook.check() {
        return None;
    }
    observer.enter(Phase::StartTimes);
    let times = textbook.start_times(earliest.0, latest.0);
    times.into_iter().find_map(|t| textbook.at(t, observer))
}

impl Run {
    /// Phase II.
    fn check(&self) -> bool {
        (0..self.e.len()).all(|i| {
            let mut capacities: Vec<i64> = self.hosts.iter().map(|host| host.capacity[i]).collect();
            capacities.sort_unstable_by(|a, b| b.cmp(a));
            capacities[..self.pick].iter().sum::<i64>() >= self.e[i]
        })
    }

    /// Phase III: times at which something rises on a host that is available from then on.
    fn start_times(&self, earliest: i64, latest: i64) -> Vec<i64> {
        let mut times = Vec::new();
        for host in &self.hosts {
            for steps in &host.steps {
                for (index, (time, used)) in steps.iter().enumerate() {
                    let rises = index == 0 || steps[index - 1].1 > *used;
                    if rises && (earliest..=latest).contains(time) && self.free_amounts(host, *time).is_some() {
                        times.push(*time);
                    }
                }
            }
        }
        times.sort_unstable();
        times.dedup();
        times
    }

    /// `a_ij^t` where `A_j^s(t)` = 1.
    fn free_amounts(&self, host: &Host, t: i64) -> Option<Vec<i64>> {
        let end = t + self.duration;
        let free = |i: usize| {
            let steps = &host.steps[i];
            let from = steps.partition_point(|(time, _)| *time <= t).saturating_sub(1);
            let used = steps[from..].iter().take_while(|(time, _)| *time < end).map(|(_, used)| *used).max();
            host.capacity[i] - used.unwrap_or(0)
        };
        let amounts: Vec<i64> = (0..self.d.len()).map(free).collect();
        amounts.iter().zip(&self.d).all(|(a, d)| a >= d).then_some(amounts)
    }

    /// Phases IV and V at one start.
    fn at(&mut self, t: i64, observer: &mut dyn PhaseObserver) -> Option<TextbookPlan> {
        observer.enter(Phase::SelectAndSwap);
        let available: Available = (0..self.hosts.len())
            .filter_map(|host| self.free_amounts(&self.hosts[host], t).map(|free| (host, free)))
            .collect();
        if available.len() < self.pick {
            return None;
        }
        let (mut chosen, mut outside) =
            if available.len() == self.pick { (available, Vec::new()) } else { self.select_and_swap(available) };
        if !self.is_feasible(&chosen) {
            return None;
        }
        if !outside.is_empty() {
            observer.enter(Phase::Optimize);
            self.optimize(&mut chosen, &mut outside);
        }
        let efficiency = self.utilisations(&chosen).iter().product();
        let mut hosts: Vec<usize> = chosen.into_iter().map(|(host, _)| host).collect();
        hosts.sort_unstable();
        Some(TextbookPlan { start: Time(t), hosts, efficiency })
    }

    fn sum(&self, set: &Available, i: usize) -> i64 {
        set.iter().map(|(_, free)| free[i]).sum()
    }

    fn is_feasible(&self, set: &Available) -> bool {
        (0..self.e.len()).all(|i| self.sum(set, i) >= self.e[i])
    }

    /// `u~_i` of every resource (3.3).
    fn utilisations(&self, set: &Available) -> Vec<f64> {
        (0..self.e.len())
            .map(|i| {
                let capacity: i64 = set.iter().map(|(host, _)| self.hosts[*host].capacity[i]).sum();
                let used = self.e[i] + capacity - self.sum(set, i);
                // Hosts without any of it are full when nothing is asked of them, and too small for anything else.
                if capacity == 0 && used > 0 { f64::INFINITY } else { used as f64 / capacity.max(1) as f64 }
            })
            .collect()
    }

    /// The function `SelectAndSwap`.
    fn select_and_swap(&mut self, mut outside: Available) -> (Available, Available) {
        let mut chosen = Available::new();
        let kinds = self.e.len();
        for k in 0..self.pick {
            let most = outside.iter().map(|(_, free)| free[k % kinds]).max().unwrap_or(0);
            let best: Vec<usize> = (0..outside.len()).filter(|at| outside[*at].1[k % kinds] == most).collect();
            let at = best[self.random.random_range(0..best.len())];
            chosen.push(outside.remove(at));
        }
        let (mut tries, mut m) = (1, 0);
        while !self.is_feasible(&chosen) && tries <= self.pick * self.limits.l1 && m < outside.len() {
            let utilisations = self.utilisations(&chosen);
            let worst = (0..kinds).max_by(|a, b| utilisations[*a].total_cmp(&utilisations[*b])).unwrap_or(0);
            outside.sort_by_key(|(_, free)| std::cmp::Reverse(free[worst]));
            let mut members: Vec<usize> = (0..self.pick).collect();
            for at in 0..members.len() {
                let other = at + self.random.random_range(0..members.len() - at);
                members.swap(at, other);
            }
            let mut swapped = false;
            for member in members {
                if tries > self.pick * self.limits.l1 {
                    break;
                }
                tries += 1;
                if self.can_swap(&chosen, &chosen[member], &outside[m]) {
                    std::mem::swap(&mut chosen[member], &mut outside[m]);
                    swapped = true;
                    break;
                }
            }
            m = if swapped { 0 } else { m + 1 };
        }
        (chosen, outside)
    }

    fn can_swap(&self, chosen: &Available, member: &(usize, Vec<i64>), outsider: &(usize, Vec<i64>)) -> bool {
        (0..self.e.len()).all(|i| {
            let sum = self.sum(chosen, i);
            sum - member.1[i] + outsider.1[i] >= sum.min(self.e[i])
        })
    }

    /// Phase V.
    fn optimize(&mut self, chosen: &mut Available, outside: &mut Available) {
        for _ in 0..self.pick * self.limits.l2 {
            let member = self.random.random_range(0..chosen.len());
            let outsider = self.random.random_range(0..outside.len());
            let before: f64 = self.utilisations(chosen).iter().product();
            std::mem::swap(&mut chosen[member], &mut outside[outsider]);
            let after = self.utilisations(chosen);
            if after.iter().any(|u| *u > 1.0) || after.iter().product::<f64>() < before {
                std::mem::swap(&mut chosen[member], &mut outside[outsider]);
            }
        }
    }
}
