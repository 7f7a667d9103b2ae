//! The plan itself: what happens to it, and how it answers.
//!
//! Invariant: no host is ever planned for more than it has, but where something runs on past its plan or has begun before its hosts
//! failed; every job that waits has a place.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    job::{Amounts, Job, JobKey, Place, Quality},
    room::{Freed, Room},
};

/// A job with its place.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub job: Arc<Job>,
    /// The clusters that could ever hold it.
    pub clusters: Arc<[usize]>,
    pub place: Place,
}

impl Planned {
    pub(super) fn quality(&self) -> Quality {
        self.job.quality_at(self.place.start_s)
    }

    fn end_s(&self) -> i64 {
        self.place.start_s.saturating_add(self.job.length_s)
    }
}

/// What something other than the plan's own jobs takes of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The host's number.
    pub host: usize,
    /// From this second on.
    pub from_s: i64,
    /// Until this second.
    pub to_s: i64,
    /// How much.
    pub amounts: Amounts,
}

/// Why something could not be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No cluster that the job may run on could hold it when empty.
    #[error("no cluster could ever hold the job")]
    NeverFits,
    /// The job has a length below one second, or its name is taken.
    #[error("expected a new job of at least one second")]
    Invalid,
}

/// Where jobs that wait are put when they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// As the source does: in the first gap of the first cluster, those with most free first, that keeps the quality of the cluster's plan;
    /// else behind all other jobs of the first.
    Source,
    /// Where they start first.
    Earliest,
}

/// The plan of all jobs of a site that wait and run.
#[derive(Debug, Clone)]
pub struct Timetable {
    pub(super) room: Room,
    arrivals: Arrivals,
    pub(super) waiting: BTreeMap<JobKey, Planned>,
    /// The same by start.
    pub(super) starts: BTreeSet<(i64, JobKey)>,
    running: BTreeMap<JobKey, Planned>,
    /// By host: until when it is away.
    away: BTreeMap<usize, i64>,
}

impl Timetable {
    /// An empty plan for clusters of hosts with these capacities. Hosts are numbered over all clusters.
    #[must_use]
    pub fn new(clusters: &[Vec<Amounts>], arrivals: Arrivals) -> Timetable {
        Timetable {
            room: Room::new(clusters),
            arrivals,
            waiting: BTreeMap::new(),
            starts: BTreeSet::new(),
            running: BTreeMap::new(),
            away: BTreeMap::new(),
        }
    }

    /// Lets time pass. It never goes back.
    pub fn advance(&mut self, now_s: i64) {
        self.room.now_s = self.room.now_s.max(now_s);
    }

    /// What the plan is worth: all jobs that wait or run.
    #[must_use]
    pub fn quality(&self) -> Quality {
        let mut quality = Quality::default();
        self.waiting.values().chain(self.running.values()).for_each(|planned| quality += planned.quality());
        quality
    }

    /// The jobs that wait, by planned start.
    pub fn waiting(&self) -> impl Iterator<Item = (JobKey, &Place)> {
        self.starts.iter().filter_map(|(_, key)| Some((*key, &self.waiting.get(key)?.place)))
    }

    /// A job that waits.
    #[must_use]
    pub fn job(&self, key: JobKey) -> Option<&Job> {
        self.waiting.get(&key).map(|planned| &*planned.job)
    }

    /// The jobs that run and should have ended before this second.
    pub fn overdue(&self) -> impl Iterator<Item = JobKey> {
        let late = self.running.iter().filter(|(_, planned)| planned.end_s() < self.room.now_s);
        late.map(|(key, _)| *key)
    }

    /// When something is planned next after this second: a start, or an end that might not come.
    #[must_use]
    pub fn next_after(&self, second: i64) -> Option<i64> {
        let start_s = self.starts.range((second.saturating_add(1), JobKey(0))..).next().map(|(start_s, _)| *start_s);
        let ends = self.running.values().map(|planned| planned.end_s().saturating_add(1));
        ends.filter(|end_s| *end_s > second).chain(start_s).min()
    }

    /// A job comes and is given a place.
    ///
    /// # Errors
    /// When it could never be given one.
    pub fn arrive(&mut self, key: JobKey, job: Job) -> Result<&Place, PlanError> {
        if job.length_s < 1 || self.waiting.contains_key(&key) || self.running.contains_key(&key) {
            return Err(PlanError::Invalid);
        }
        let clusters = self.room.clusters_for(&job);
        let place = match self.arrivals {
            Arrivals::Source => self.as_the_source(&job, &clusters),
            Arrivals::Earliest => self.room.earliest_of(&job, &clusters, self.room.now_s),
        };
        let place = place.ok_or(PlanError::NeverFits)?;
        self.room.put(&job, &place);
        self.starts.insert((place.start_s, key));
        let planned = Planned { job: Arc::new(job), clusters: clusters.into(), place };
        Ok(&self.waiting.entry(key).or_insert(planned).place)
    }

    /// The source's rule; see [`Arrivals::Source`].
    fn as_the_source(&mut self, job: &Job, clusters: &[usize]) -> Option<Place> {
        let mut clusters: Vec<usize> = clusters.to_vec();
        clusters.sort_by_key(|cluster| std::cmp::Reverse(self.room.free_now(*cluster)));
        for cluster in &clusters {
            let Some(place) = self.room.earliest(job, *cluster, self.room.now_s, i64::MAX) else { continue };
            let own = job.quality_at(place.start_s);
            let here = self.waiting.values().chain(self.running.values());
            let here = here.filter(|planned| planned.place.cluster == *cluster).map(Planned::quality);
            let (mut count, mut sum) = (0_u128, Quality::default());
            here.for_each(|quality| {
                count += 1;
                sum.slowdown_millionths += quality.slowdown_millionths;
            });
            // One more in time; or as many, and their mean slowdown does not rise.
            if own.late == 0 || own.slowdown_millionths * count <= sum.slowdown_millionths || count == 0 {
                return Some(place);
            }
        }
        clusters.iter().find_map(|cluster| {
            let here = self
                .starts
                .iter()
                .rev()
                .find(|(_, key)| self.waiting.get(key).is_some_and(|planned| planned.place.cluster == *cluster));
            let last_s = here.map_or(self.room.now_s, |(start_s, _)| *start_s);
            self.room.earliest(job, *cluster, last_s.max(self.room.now_s), i64::MAX)
        })
    }

    /// A job that waits starts now, on its planned hosts. Those that it would disturb because it starts late move.
    pub fn begin(&mut self, key: JobKey) {
        let Some(mut planned) = self.waiting.remove(&key) else { return };
        self.starts.remove(&(planned.place.start_s, key));
        self.room.forget(&planned.place.hosts);
        if planned.place.start_s != self.room.now_s {
            self.room.take_out(&planned.job, &planned.place);
            planned.place.start_s = self.room.now_s;
            self.room.put(&planned.job, &planned.place);
            self.mend(&planned.place.hosts, planned.place.start_s, planned.end_s());
        }
        self.running.insert(key, planned);
    }

    /// A job that runs has ended, or one that waits goes. What waits moves forward into the time that it leaves.
    pub fn end(&mut self, key: JobKey) {
        let waiting = self.waiting.remove(&key).inspect(|planned| {
            self.starts.remove(&(planned.place.start_s, key));
        });
        let Some(planned) = self.running.remove(&key).or(waiting) else { return };
        self.room.take_out(&planned.job, &planned.place);
        self.room.forget(&planned.place.hosts);
        self.pull_forward(&planned.place.hosts, planned.place.start_s, planned.end_s());
    }

    /// A job that runs will run until `until_s`, beyond its plan. What it would disturb moves.
    pub fn overrun(&mut self, key: JobKey, until_s: i64) {
        let Some(planned) = self.running.get_mut(&key) else { return };
        let old_s = planned.end_s();
        if until_s <= old_s {
            return;
        }
        Arc::make_mut(&mut planned.job).length_s = until_s.saturating_sub(planned.place.start_s);
        let (hosts, amounts) = (planned.place.hosts.clone(), planned.job.amounts);
        hosts.iter().for_each(|host| self.room.take(*host, old_s, until_s, &amounts));
        self.mend(&hosts, old_s, until_s);
    }

    /// Where a job waits to run.
    #[must_use]
    pub fn place(&self, key: JobKey) -> Option<&Place> {
        self.waiting.get(&key).map(|planned| &planned.place)
    }

    /// A job that waits goes where it starts first from a second on, which has not passed.
    pub fn replan(&mut self, key: JobKey, from_s: i64) {
        let Some(planned) = self.waiting.get_mut(&key) else { return };
        self.starts.remove(&(planned.place.start_s, key));
        self.room.take_out(&planned.job, &planned.place);
        planned.place = self.room.earliest_of(&planned.job, &planned.clusters, from_s).unwrap_or_else(Place::never);
        self.room.put(&planned.job, &planned.place);
        self.starts.insert((planned.place.start_s, key));
    }

    /// A job that waits leaves the plan, and what comes next may have its place: nothing moves forward.
    pub fn withdraw(&mut self, key: JobKey) {
        let Some(planned) = self.waiting.remove(&key) else { return };
        self.starts.remove(&(planned.place.start_s, key));
        self.room.take_out(&planned.job, &planned.place);
    }

    /// Something else takes amounts of hosts, whatever is planned there. Jobs that wait and no longer fit move.
    pub fn reserve(&mut self, taken: &[Taken]) {
        taken.iter().for_each(|one| self.room.take(one.host, one.from_s, one.to_s, &one.amounts));
        if let Some((hosts, from_s, to_s)) = span_of(taken) {
            self.room.forget(&hosts);
            self.mend(&hosts, from_s, to_s);
        }
    }

    /// What was reserved is free again. What waits moves forward into it.
    pub fn release(&mut self, taken: &[Taken]) {
        taken.iter().for_each(|one| self.room.give_back(one.host, one.from_s, one.to_s, &one.amounts));
        if let Some((hosts, from_s, to_s)) = span_of(taken) {
            self.pull_forward(&hosts, from_s, to_s);
        }
    }

    /// A host fails or is taken out, until it is planned to be back. Returns the jobs that ran there, which are no longer in the plan.
    pub fn lose(&mut self, host: usize, until_s: i64) -> Vec<JobKey> {
        let Some(capacity) = self.room.capacity(host).copied() else { return Vec::new() };
        self.join(host);
        let on_it = self.running.iter().filter(|(_, planned)| planned.place.hosts.contains(&host));
        let lost: Vec<JobKey> = on_it.map(|(key, _)| *key).collect();
        let mut freed = Vec::new();
        for planned in lost.iter().filter_map(|key| self.running.remove(key)) {
            self.room.take_out(&planned.job, &planned.place);
            freed.push(planned);
        }
        self.room.take(host, self.room.now_s, until_s, &capacity);
        self.away.insert(host, until_s);
        self.mend(&[host], self.room.now_s, until_s);
        for planned in freed {
            self.pull_forward(&planned.place.hosts, planned.place.start_s, planned.end_s());
        }
        lost
    }

    /// A host is back.
    pub fn join(&mut self, host: usize) {
        let Some(until_s) = self.away.remove(&host) else { return };
        if let Some(capacity) = self.room.capacity(host).copied() {
            self.room.give_back(host, self.room.now_s, until_s, &capacity);
            self.pull_forward(&[host], self.room.now_s, until_s);
        }
    }

    /// Jobs that wait on these hosts in this time keep their places if they still fit there, in the order of their starts; else they get
    /// the earliest.
    pub(super) fn mend(&mut self, hosts: &[usize], from_s: i64, to_s: i64) {
        let is_hit = |planned: &Planned| {
            planned.place.start_s < to_s
                && planned.end_s() > from_s
                && planned.place.hosts.iter().any(|host| hosts.contains(host))
        };
        let hit: Vec<JobKey> =
            self.starts.iter().map(|(_, key)| *key).filter(|key| self.waiting.get(key).is_some_and(is_hit)).collect();
        for planned in hit.iter().filter_map(|key| self.waiting.get(key)) {
            self.room.take_out(&planned.job, &planned.place);
        }
        for key in hit {
            let Some(planned) = self.waiting.get_mut(&key) else { continue };
            if planned.place.start_s < self.room.now_s || !self.room.fits(&planned.job, &planned.place) {
                self.starts.remove(&(planned.place.start_s, key));
                let place = self.room.earliest_of(&planned.job, &planned.clusters, self.room.now_s);
                planned.place = place.unwrap_or_else(Place::never);
                self.starts.insert((planned.place.start_s, key));
            }
            self.room.put(&planned.job, &planned.place);
        }
    }

    /// Jobs that wait move forward, in the order of their starts, into room that has become free on these hosts in this time, and into what
    /// they leave by that.
    fn pull_forward(&mut self, hosts: &[usize], from_s: i64, to_s: i64) {
        let now_s = self.room.now_s;
        let mut freed = Freed::default();
        freed.add(hosts, from_s.max(now_s), to_s);
        if to_s <= now_s {
            return;
        }
        for (start_s, key) in self.starts.clone().range((now_s.saturating_add(1), JobKey(0))..) {
            let Some(planned) = self.waiting.get_mut(key) else { continue };
            let clusters = self.room.gaining(&planned.job, &planned.clusters, &planned.place, &freed);
            if clusters.is_empty() {
                continue;
            }
            let Planned { job, place: old, .. } = &*planned;
            let earlier = |cluster: &usize| self.room.earliest_beside(job, *cluster, (now_s, start_s - 1), Some(old));
            let Some(place) = clusters.iter().filter_map(earlier).min_by_key(|place| place.start_s) else { continue };
            self.room.take_out(job, old);
            self.room.put(job, &place);
            freed.add(&old.hosts, *start_s, planned.end_s());
            planned.place = place;
            self.starts.remove(&(*start_s, *key));
            self.starts.insert((planned.place.start_s, *key));
        }
    }
}

/// The hosts, and from when to when something of them is taken; none of nothing.
fn span_of(taken: &[Taken]) -> Option<(Vec<usize>, i64, i64)> {
    let hosts: BTreeSet<usize> = taken.iter().map(|one| one.host).collect();
    let from_s = taken.iter().map(|one| one.from_s).min()?;
    let to_s = taken.iter().map(|one| one.to_s).max()?;
    Some((hosts.into_iter().collect(), from_s, to_s))
}
