//! The plan against a slow, obvious one that looks at every second and every host.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Amounts, Arrivals, Job, JobKey, Place, PlanError, Quality, Timetable};

const CLUSTERS: [&[u64]; 2] = [&[4, 4, 4], &[2, 6]];
/// Later than anything in these tests ends.
const HORIZON_S: i64 = 600;

fn amounts(first: u64) -> Amounts {
    [first, first / 2, 0, 0]
}

fn clusters() -> Vec<Vec<Amounts>> {
    CLUSTERS.iter().map(|hosts| hosts.iter().map(|first| amounts(*first)).collect()).collect()
}

/// Jobs with places, second by second.
#[derive(Debug, Clone, Default)]
struct Slow {
    jobs: BTreeMap<JobKey, (Job, Place)>,
    /// Hosts that are away, and until when.
    away: BTreeMap<usize, i64>,
}

fn capacities() -> Vec<(usize, Amounts)> {
    clusters()
        .into_iter()
        .enumerate()
        .flat_map(|(cluster, hosts)| hosts.into_iter().map(move |host| (cluster, host)))
        .collect()
}

impl Slow {
    /// What is taken of a host at a second, and whether somebody needs it alone then.
    fn taken(&self, host: usize, second: i64) -> (Amounts, bool) {
        let (mut taken, mut is_alone) = ([0; 4], self.away.get(&host).is_some_and(|until_s| second < *until_s));
        for (job, place) in self.jobs.values().filter(|(_, place)| place.hosts.contains(&host)) {
            if place.start_s <= second && second < place.start_s + job.length_s {
                taken.iter_mut().zip(job.amounts).for_each(|(taken, amount)| *taken += amount);
                is_alone |= job.starts_alone && place.start_s == second;
            }
        }
        (taken, is_alone)
    }

    fn fits(&self, job: &Job, host: usize, start_s: i64) -> bool {
        let (cluster, capacity) = capacities()[host];
        job.clusters.contains(&cluster)
            && (start_s..start_s + job.length_s).all(|second| {
                let (taken, is_alone) = self.taken(host, second);
                !is_alone && (0..4).all(|at| taken[at] + job.amounts[at] <= capacity[at])
            })
            && (!job.starts_alone || self.taken(host, start_s).0 == [0; 4])
    }

    fn earliest(&self, job: &Job, now_s: i64) -> Option<Place> {
        (now_s.max(job.not_before_s)..HORIZON_S).find_map(|start_s| {
            (0..CLUSTERS.len()).find_map(|cluster| {
                let hosts =
                    capacities().into_iter().enumerate().filter(|(_, (of, _))| *of == cluster).map(|(host, _)| host);
                let mut free: Vec<usize> = hosts.filter(|host| self.fits(job, *host, start_s)).collect();
                free.sort_by_key(|host| std::cmp::Reverse(self.taken(*host, start_s).0[0]));
                free.truncate(job.hosts);
                free.sort_unstable();
                (free.len() == job.hosts).then(|| Place { start_s, cluster, hosts: free.into() })
            })
        })
    }

    /// All that may start later than now, in the order of their starts, to the earliest place if that is earlier.
    fn compress(&mut self, now_s: i64) {
        let mut order: Vec<(i64, JobKey)> = self.jobs.iter().map(|(key, (_, place))| (place.start_s, *key)).collect();
        order.retain(|(start_s, _)| *start_s > now_s);
        order.sort_unstable();
        for (start_s, key) in order {
            let (job, old) = self.jobs.remove(&key).unwrap();
            let place = self.earliest(&job, now_s).filter(|place| place.start_s < start_s).unwrap_or(old);
            self.jobs.insert(key, (job, place));
        }
    }

    fn is_compressed(&self, now_s: i64) -> bool {
        let mut again = self.clone();
        again.compress(now_s);
        format!("{again:?}") == format!("{self:?}")
    }

    fn check(&self, now_s: i64) {
        for (host, (_, capacity)) in capacities().into_iter().enumerate() {
            for second in now_s..HORIZON_S {
                let (taken, _) = self.taken(host, second);
                assert!(
                    taken.iter().zip(capacity).all(|(taken, most)| *taken <= most),
                    "host {host} at {second}: {self:?}"
                );
            }
        }
        for (job, place) in self.jobs.values().filter(|(_, place)| place.start_s >= now_s) {
            let mut others = self.clone();
            others.jobs.retain(|_, (_, other)| other != place);
            assert!(
                place.start_s >= job.not_before_s
                    && place.hosts.len() == job.hosts
                    && place.hosts.iter().all(|host| others.fits(job, *host, place.start_s))
            );
        }
    }
}

fn a_job() -> impl Strategy<Value = Job> {
    (1_i64..30, 0_i64..60, 1_usize..4, 1_u64..5, 0..6_u8, 1..4_u8, prop_oneof![3 => Just(0), 1 => 1_i64..40]).prop_map(
        |(length_s, slack_s, hosts, first, alone, mask, not_before_s)| Job {
            arrival_s: 0,
            length_s,
            deadline_s: (slack_s > 10).then_some(length_s + slack_s),
            hosts,
            amounts: amounts(first),
            starts_alone: alone == 0,
            not_before_s,
            clusters: (0..2).filter(|cluster| mask & (1 << cluster) != 0).collect(),
        },
    )
}

#[derive(Debug, Clone)]
enum Event {
    Arrive(Job),
    /// One that waits or runs goes.
    End(prop::sample::Index),
    Pass(i64),
    Improve(u32, u64),
    Overrun(prop::sample::Index, i64),
    Lose(usize, i64),
    Join(usize),
}

fn calm() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => a_job().prop_map(Event::Arrive),
        2 => any::<prop::sample::Index>().prop_map(Event::End),
        1 => (1_i64..15).prop_map(Event::Pass),
        1 => (1_u32..30, any::<u64>()).prop_map(|(plans, seed)| Event::Improve(plans, seed)),
    ]
}

fn rough() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => calm(),
        1 => (any::<prop::sample::Index>(), 1_i64..20).prop_map(|(which, more_s)| Event::Overrun(which, more_s)),
        1 => (0..5_usize, 1_i64..40).prop_map(|(host, away_s)| Event::Lose(host, away_s)),
        1 => (0..5_usize).prop_map(Event::Join),
    ]
}

/// A plan and its slow twin, which is told what is where.
struct Twins {
    plan: Timetable,
    slow: Slow,
    now_s: i64,
}

impl Twins {
    fn new(arrivals: Arrivals) -> Twins {
        let mut plan = Timetable::new(&clusters(), arrivals);
        plan.advance(0);
        Twins { plan, slow: Slow::default(), now_s: 0 }
    }

    fn copy_waiting(&mut self) {
        for (key, place) in self.plan.waiting() {
            self.slow.jobs.get_mut(&key).unwrap().1 = place.clone();
        }
    }

    fn arrive(&mut self, key: JobKey, mut job: Job) -> Option<Place> {
        job.arrival_s = self.now_s;
        job.not_before_s += self.now_s;
        job.deadline_s = job.deadline_s.map(|deadline_s| deadline_s + self.now_s);
        match self.plan.arrive(key, job.clone()) {
            Err(error) => {
                assert_eq!(error, PlanError::NeverFits);
                assert!(Slow::default().earliest(&job, 0).is_none());
                None
            }
            Ok(place) => {
                let place = place.clone();
                self.slow.jobs.insert(key, (job, place.clone()));
                Some(place)
            }
        }
    }

    /// Time passes; jobs begin when they should and end as planned.
    fn pass(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.now_s += 1;
            self.plan.advance(self.now_s);
            self.slow.away.retain(|_, until_s| *until_s > self.now_s);
            let ended = |(job, place): &(Job, Place)| place.start_s + job.length_s <= self.now_s;
            let over: Vec<JobKey> =
                self.slow.jobs.iter().filter(|(_, both)| ended(both)).map(|(key, _)| *key).collect();
            for key in over {
                self.plan.end(key);
                self.slow.jobs.remove(&key);
            }
            self.begin();
        }
    }

    /// What is planned to begin now does.
    fn begin(&mut self) {
        self.copy_waiting();
        let due = self.plan.waiting().take_while(|(_, place)| place.start_s <= self.now_s).map(|(key, _)| key);
        due.collect::<Vec<_>>().into_iter().for_each(|key| self.plan.begin(key));
    }

    fn quality(&self) -> Quality {
        let mut quality = Quality::default();
        self.slow.jobs.values().for_each(|(job, place)| quality += job.quality_at(place.start_s));
        quality
    }

    /// Anything but what a test looks at more closely.
    fn apply(&mut self, key: JobKey, event: Event) {
        let keys: Vec<JobKey> = self.slow.jobs.keys().copied().collect();
        match event {
            Event::Arrive(job) => drop(self.arrive(key, job)),
            Event::End(which) if !keys.is_empty() => {
                let gone = which.get(&keys);
                self.plan.end(*gone);
                self.slow.jobs.remove(gone);
            }
            Event::Pass(seconds) => self.pass(seconds),
            Event::Improve(plans, seed) => {
                let before = self.plan.quality();
                self.plan.improve(plans, seed);
                assert!(self.plan.quality() <= before);
            }
            Event::Overrun(which, more_s) if !keys.is_empty() => {
                let late = which.get(&keys);
                let (job, place) = self.slow.jobs.get_mut(late).unwrap();
                if !self.plan.waiting().any(|(key, _)| key == *late) {
                    job.length_s += more_s;
                    self.plan.overrun(*late, place.start_s + job.length_s);
                }
            }
            Event::Lose(host, away_s) => {
                for lost in self.plan.lose(host, self.now_s + away_s) {
                    let (_, place) = self.slow.jobs.remove(&lost).unwrap();
                    assert!(place.hosts.contains(&host) && place.start_s <= self.now_s);
                }
                self.slow.away.insert(host, self.now_s + away_s);
            }
            Event::Join(host) => {
                self.plan.join(host);
                self.slow.away.remove(&host);
            }
            Event::End(_) | Event::Overrun(..) => {}
        }
        self.begin();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn arrivals_get_the_earliest_place_and_ends_compress_the_plan(events in prop::collection::vec(calm(), 1..25)) {
        let mut twins = Twins::new(Arrivals::Earliest);
        for (number, event) in (0..).zip(events) {
            match event {
                Event::Arrive(job) => {
                    let not_before_s = job.not_before_s + twins.now_s;
                    let expected = twins.slow.earliest(&Job { not_before_s, ..job.clone() }, twins.now_s);
                    prop_assert_eq!(twins.arrive(JobKey(number), job), expected);
                    twins.begin();
                }
                Event::End(which) if !twins.slow.jobs.is_empty() => {
                    let keys: Vec<JobKey> = twins.slow.jobs.keys().copied().collect();
                    let gone = *which.get(&keys);
                    // Each job is looked at once, so what moves may leave room for one before it that no later event frees: from there on the
                    // oracle, which looks everywhere, would move more.
                    let is_compressed = twins.slow.is_compressed(twins.now_s);
                    let mut expected = twins.slow.clone();
                    expected.jobs.remove(&gone);
                    expected.compress(twins.now_s);
                    twins.apply(JobKey(number), Event::End(which));
                    if is_compressed {
                        prop_assert_eq!(format!("{:?}", twins.slow), format!("{expected:?}"));
                    }
                }
                other => twins.apply(JobKey(number), other),
            }
            twins.slow.check(twins.now_s);
            prop_assert_eq!(twins.plan.quality(), twins.quality());
        }
    }

    #[test]
    fn whatever_happens_no_host_is_planned_for_more_than_it_has(
        events in prop::collection::vec(rough(), 1..40),
        is_source in any::<bool>(),
    ) {
        let mut twins = Twins::new(if is_source { Arrivals::Source } else { Arrivals::Earliest });
        for (number, event) in (0..).zip(events) {
            twins.apply(JobKey(number), event);
            twins.slow.check(twins.now_s);
            prop_assert!(twins.plan.waiting().all(|(_, place)| place.start_s > twins.now_s - 1));
        }
    }
}

fn simple(length_s: i64, hosts: usize, deadline_s: i64, clusters: &[usize]) -> Job {
    let deadline_s = Some(deadline_s);
    Job {
        arrival_s: 0,
        length_s,
        deadline_s,
        hosts,
        amounts: [1, 0, 0, 0],
        starts_alone: false,
        not_before_s: 0,
        clusters: clusters.into(),
    }
}

/// Two clusters of two hosts and of one.
fn three_hosts(arrivals: Arrivals) -> Timetable {
    let mut plan = Timetable::new(&[vec![[1, 0, 0, 0]; 2], vec![[1, 0, 0, 0]]], arrivals);
    plan.advance(0);
    plan
}

#[test]
fn the_sources_rule_spreads_jobs_and_puts_those_that_lower_the_quality_behind_all_others() {
    let mut plan = three_hosts(Arrivals::Source);
    let mut arrive = |key, job| plan.arrive(JobKey(key), job).map(|place| (place.start_s, place.cluster)).unwrap();
    assert_eq!(arrive(1, simple(100, 1, 100, &[0, 1])), (0, 0), "most free");
    assert_eq!(arrive(2, simple(100, 2, 400, &[0, 1])), (100, 0), "in time");
    assert_eq!(arrive(3, simple(50, 1, 50, &[0, 1])), (0, 0), "a gap, of equally free ones in the first");
    // The mean slowdown of cluster 0 is 4/3 with it, of cluster 1 there is none.
    assert_eq!(arrive(4, simple(20, 1, 10, &[0, 1])), (0, 1));
    // Late everywhere: at 50 its slowdown would be 6, at 20 it would be 3, and cluster 1 has 1.
    assert_eq!(arrive(5, simple(10, 1, 5, &[0, 1])), (200, 0), "behind what starts at 100");
}

#[test]
fn a_search_finds_the_order_that_keeps_all_in_time() {
    let mut plan = three_hosts(Arrivals::Earliest);
    for (key, job) in [(1, simple(100, 1, 1000, &[1])), (2, simple(30, 1, 90, &[1])), (3, simple(60, 1, 60, &[1]))] {
        plan.arrive(JobKey(key), job).unwrap();
    }
    assert_eq!(plan.quality().late, 2);
    plan.improve(20, 1);
    let starts: Vec<(u64, i64)> = plan.waiting().map(|(key, place)| (key.0, place.start_s)).collect();
    assert_eq!((plan.quality().late, starts), (0, vec![(3, 0), (2, 60), (1, 90)]));
}

#[test]
fn a_job_without_a_place_gets_one_when_its_host_is_back() {
    let mut plan = three_hosts(Arrivals::Earliest);
    plan.arrive(JobKey(1), simple(10, 1, 10, &[1])).unwrap();
    assert_eq!(plan.lose(2, i64::MAX), []);
    assert_eq!(plan.waiting().next().unwrap().1.start_s, i64::MAX);
    plan.advance(7);
    plan.join(2);
    assert_eq!(plan.waiting().next().unwrap().1.start_s, 7);
    assert_eq!(plan.arrive(JobKey(1), simple(10, 1, 10, &[0])), Err(PlanError::Invalid));
}
