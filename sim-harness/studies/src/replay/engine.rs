//! The event loop: submissions and ends in virtual time, and a policy that is asked after each.
//!
//! A start takes one microsecond, during which the policy is not asked; hosts are chosen when the job really starts. So
//! jobs that are submitted in the same second do not all start at once: the first that fits starts, then the policy
//! looks at all that have come meanwhile. A job holds its hosts for its time and the teardown.
//! Invariant: events are handled in the order of their moments, equal ones in the order in which they were made; every
//! job ends exactly once.

use anyhow::{Context, bail};
use sim_kit::virtual_time::{EventQueue, Moment};

use super::{
    cluster::{Cluster, ClusterSpec},
    job::{ClusterIndex, Job, JobIndex},
    policy::{Policy, Start, View},
};

/// How long a start takes: long enough to give simultaneous starts an order, too short to be seen in any figure.
pub const START_US: i64 = 1;

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

/// Replays all jobs. Returns when each ran, in the order of the jobs. `watch` gets the number of jobs that have ended.
///
/// # Errors
/// When the policy never starts a job, starts one that does not fit, or cannot handle one.
pub fn replay(
    jobs: &[Job],
    clusters: &[ClusterSpec],
    policy: &mut dyn Policy,
    watch: impl Fn(usize),
) -> anyhow::Result<Vec<Run>> {
    let clusters = clusters.iter().cloned().map(Cluster::new).collect();
    let mut engine = Engine {
        jobs,
        clusters,
        events: EventQueue::new(Moment::default()),
        submitted: 0,
        is_starting: false,
        runs: vec![None; jobs.len()],
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
    ended: usize,
}

impl Engine<'_> {
    /// Handles the next event and asks the policy; false when there is none.
    fn step(&mut self, policy: &mut dyn Policy) -> anyhow::Result<bool> {
        let submission = self.jobs.get(self.submitted).map(|job| Moment::of_second(job.known.submit_s));
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
            policy.submitted(job, &self.view()).with_context(|| self.name_of(job))?;
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
        View { now: self.events.now(), clusters: &self.clusters, submitted: &self.jobs[..self.submitted] }
    }

    fn start(&mut self, Start { job: index, cluster, hosts }: Start) -> anyhow::Result<()> {
        self.is_starting = false;
        let now = self.events.now();
        let job = &self.jobs[index.at()];
        let is_new = index.at() < self.submitted && self.runs[index.at()].is_none();
        let target = self.clusters.get_mut(cluster.at()).filter(|_| is_new && job.known.may_run_on(cluster));
        let hosts = target.as_deref().and_then(|target| match hosts {
            Some(hosts) => Some(hosts).filter(|hosts| target.holds_on(hosts, &job.known.shape)),
            None => target.first_fit(&job.known.shape),
        });
        let hosts = hosts.filter(|hosts| hosts.len() == job.known.shape.hosts as usize);
        let (Some(target), Some(hosts)) = (target, hosts) else {
            bail!("{} is started where it does not fit or for the second time", self.name_of(index));
        };
        target.take(index, hosts, &job.known, now.plus_seconds(job.known.expected_s()));
        let end = now.plus_seconds(job.held_s);
        self.events.plan(end, Event::End(index));
        self.runs[index.at()] = Some(Run { start: now, end, cluster });
        Ok(())
    }

    fn end(&mut self, index: JobIndex, policy: &mut dyn Policy) {
        let Some(run) = self.runs[index.at()] else { return };
        let expected_end = run.start.plus_seconds(self.jobs[index.at()].known.expected_s());
        self.clusters[run.cluster.at()].give_back(index, expected_end);
        self.ended += 1;
        policy.ended(index, &self.view());
    }

    fn name_of(&self, index: JobIndex) -> String {
        let Job { id, line, .. } = &self.jobs[index.at()];
        format!("job {id} (line {line})")
    }

    fn finish(self) -> anyhow::Result<Vec<Run>> {
        let waiting = self.runs.iter().filter(|run| run.is_none()).count();
        if let Some(first) = self.runs.iter().position(Option::is_none) {
            bail!("{} is never started; {waiting} jobs wait for ever", self.name_of(JobIndex(first as u32)));
        }
        Ok(self.runs.into_iter().flatten().collect())
    }
}
