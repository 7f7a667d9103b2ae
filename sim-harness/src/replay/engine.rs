//! The event loop: submissions and ends in virtual time, and a policy that is asked after each.
//!
//! A start takes one microsecond, during which the policy is not asked; hosts are chosen when the job really starts. So
//! jobs that are submitted in the same second do not all start at once: the first that fits starts, then the policy
//! looks at all that have come meanwhile. A job holds its hosts for its time and the teardown.
//! Invariant: events are handled in the order of their moments, equal ones in the order in which they were made; every
//! job ends exactly once.

use super::{
    cluster::{Cluster, ClusterIndex, ClusterSpec},
    job::{Job, JobIndex},
    moment::{Moment, START_US},
    policy::{Policy, Start, View},
};
use crate::engine::EventQueue;

/// When and where a job ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// When it started.
    pub start: Moment,
    /// When it gave its hosts back.
    pub end: Moment,
    /// On which cluster.
    pub cluster: ClusterIndex,
}

/// A policy that leaves jobs behind or starts what does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// Nothing happens any more, but jobs wait.
    #[error("the policy never starts job {id} (line {line}); {waiting} jobs wait for ever")]
    Stuck {
        /// The first such job.
        id: i64,
        /// Its line in the trace.
        line: u32,
        /// How many there are.
        waiting: usize,
    },
    /// A start that its cluster cannot hold.
    #[error("the policy starts job {id} (line {line}) where it does not fit or for the second time")]
    Impossible {
        /// The job.
        id: i64,
        /// Its line in the trace.
        line: u32,
    },
}

/// Replays all jobs. Returns when each ran, in the order of the jobs. `watch` gets the number of jobs that have ended.
///
/// # Errors
/// [`EngineError`] when the policy is broken.
pub fn replay(
    jobs: &[Job],
    clusters: &[ClusterSpec],
    policy: &mut dyn Policy,
    watch: impl Fn(usize),
) -> Result<Vec<Run>, EngineError> {
    let clusters = clusters.iter().cloned().map(Cluster::new).collect();
    let mut engine = Engine {
        jobs,
        clusters,
        events: EventQueue::new(Moment::default()),
        submitted: 0,
        is_starting: false,
        runs: vec![None; jobs.len()],
        hosts: vec![Box::default(); jobs.len()],
        ended: 0,
    };
    while engine.step(policy)? {
        watch(engine.ended);
    }
    engine.finish()
}

/// What has been planned to happen.
#[derive(Debug)]
enum Event {
    Start(Start),
    End(JobIndex),
}

struct Engine<'a> {
    jobs: &'a [Job],
    clusters: Vec<Cluster>,
    events: EventQueue<Event>,
    /// Number of jobs submitted so far.
    submitted: usize,
    /// A start is under way.
    is_starting: bool,
    runs: Vec<Option<Run>>,
    /// The hosts of running jobs.
    hosts: Vec<Box<[u32]>>,
    ended: usize,
}

impl Engine<'_> {
    /// Handles the next event and asks the policy; false when there is none.
    fn step(&mut self, policy: &mut dyn Policy) -> Result<bool, EngineError> {
        let submission = self.jobs.get(self.submitted).map(|job| Moment::of_second(job.submit_s));
        let now = self.events.now();
        // A policy that is asked while a start is under way would be asked again right after it.
        let wake = if self.is_starting { None } else { policy.wake_after(now).filter(|at| *at > now) };
        let Some(next) = [submission, self.events.next_at(), wake].into_iter().flatten().min() else {
            return Ok(false);
        };
        // Of one moment a submission comes first, then what was planned, then the policy's own wish.
        if Some(next) == submission {
            self.events.skip_to(next);
            let job = JobIndex(self.submitted as u32);
            self.submitted += 1;
            policy.submitted(job, &self.view());
        } else {
            match self.events.next_until(next) {
                Some(Event::End(job)) => self.end(job, policy),
                Some(Event::Start(start)) => self.start(start)?,
                None => {}
            }
        }
        if !self.is_starting
            && let Some(start) = policy.next(&self.view())
        {
            self.is_starting = true;
            let at = Moment(self.events.now().0.saturating_add(START_US));
            self.events.plan(at, Event::Start(start));
        }
        Ok(true)
    }

    fn view(&self) -> View<'_> {
        View { now: self.events.now(), jobs: self.jobs, clusters: &self.clusters }
    }

    fn start(&mut self, Start { job: index, cluster, hosts }: Start) -> Result<(), EngineError> {
        self.is_starting = false;
        let now = self.events.now();
        let job = &self.jobs[index.at()];
        let impossible = EngineError::Impossible { id: job.id, line: job.line };
        let is_new = index.at() < self.submitted && self.runs[index.at()].is_none();
        let target = self.clusters.get_mut(cluster.at()).filter(|_| is_new).ok_or_else(|| impossible.clone())?;
        let hosts = match hosts {
            Some(hosts) => Some(hosts).filter(|hosts| target.holds_on(hosts, &job.shape)),
            None => target.first_fit(&job.shape),
        };
        let hosts = hosts.filter(|hosts| hosts.len() == job.shape.hosts as usize).ok_or(impossible)?;
        target.take(index, &hosts, &job.shape, now.plus_seconds(job.expected_s()));
        let end = now.plus_seconds(job.held_s);
        self.events.plan(end, Event::End(index));
        self.hosts[index.at()] = hosts;
        self.runs[index.at()] = Some(Run { start: now, end, cluster });
        Ok(())
    }

    fn end(&mut self, index: JobIndex, policy: &mut dyn Policy) {
        let job = &self.jobs[index.at()];
        let Some(run) = self.runs[index.at()] else { return };
        let hosts = std::mem::take(&mut self.hosts[index.at()]);
        let expected_end = run.start.plus_seconds(job.expected_s());
        self.clusters[run.cluster.at()].give_back(index, &hosts, &job.shape, expected_end);
        self.ended += 1;
        policy.ended(index, &self.view());
    }

    fn finish(self) -> Result<Vec<Run>, EngineError> {
        let waiting = self.runs.iter().filter(|run| run.is_none()).count();
        if let Some(first) = self.runs.iter().position(Option::is_none) {
            let job = &self.jobs[first];
            return Err(EngineError::Stuck { id: job.id, line: job.line, waiting });
        }
        Ok(self.runs.into_iter().flatten().collect())
    }
}
