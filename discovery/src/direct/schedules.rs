//! Schedules of this site, served beside the queue of requests: in parts, or what has changed since a version.
//!
//! Invariants: all parts that an asker gets of one version are cut from one look at the ledger; at most [`KEPT_MAX`] versions of a large site
//! are kept, and none longer than [`KEPT_FOR`] after it was last asked for; a look for others is taken at most once in [`LOOK_EVERY`] as
//! long as who has an older one can be told what has changed since. So however many ask, memory and time are bounded.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use broker::{
    protocol::{LedgerVersion, ScheduleSnapshot, ScheduleUpdate},
    time::Time,
};
use tokio::{
    sync::{mpsc, oneshot},
    time,
};
use tracing::{info, warn};

use super::recent::RecentChanges;
use crate::{
    config::ScheduleSource,
    counters::{Counter, Counters},
    wire::{WireAnswer, WireSchedules, check::STEPS_PER_SITE_MAX},
};

/// A question for the schedules, and where the answer goes.
enum SchedulesQuestion {
    /// Of another site that has this version.
    All(Option<LedgerVersion>, oneshot::Sender<WireAnswer>),
    /// Of another site that has got the first part.
    Part(LedgerVersion, u32, oneshot::Sender<WireAnswer>),
    /// Of this node, which has this version; none is answered when it is the present one.
    Own(Option<LedgerVersion>, oneshot::Sender<Option<ScheduleSnapshot>>),
}

/// Answers questions for the schedules.
#[derive(Debug, Clone)]
pub(crate) struct ScheduleServer {
    questions: mpsc::Sender<SchedulesQuestion>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    recent: RecentChanges,
    coarse_from: Option<Time>,
}

/// Questions that wait for one look at the ledger.
const QUESTIONS_MAX: usize = 256;
/// Versions in more than one part that are kept: who has begun with the one before can end with it.
const KEPT_MAX: usize = 2;
/// How long such a version is kept when nobody asks for it.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// How often others cause a look at the ledger of a large site.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl ScheduleServer {
    /// A handle, and the task that answers, which ends when all handles are gone.
    pub(crate) fn new(
        source: Arc<dyn ScheduleSource>,
        counters: Arc<Counters>,
    ) -> (ScheduleServer, impl Future<Output = ()>) {
        let (questions, receiver) = mpsc::channel(QUESTIONS_MAX);
        let state = Arc::new(Mutex::new(State::default()));
        let serving = Serving { source, counters, state: Arc::clone(&state), kept: VecDeque::new() };
        (ScheduleServer { questions, state }, serving.run(receiver))
    }

    /// Asks for all schedules; `None` when too many are waiting.
    pub(crate) fn ask(&self, known: Option<LedgerVersion>) -> Option<oneshot::Receiver<WireAnswer>> {
        self.send(|reply| SchedulesQuestion::All(known, reply))
    }

    /// Asks for a part; `None` when too many are waiting.
    pub(crate) fn ask_part(&self, version: LedgerVersion, number: u32) -> Option<oneshot::Receiver<WireAnswer>> {
        self.send(|reply| SchedulesQuestion::Part(version, number, reply))
    }

    /// Asks for this node itself, whatever the size; `None` when too many are waiting.
    pub(crate) fn ask_own(&self, known: Option<LedgerVersion>) -> Option<oneshot::Receiver<Option<ScheduleSnapshot>>> {
        self.send(|reply| SchedulesQuestion::Own(known, reply))
    }

    fn send<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> SchedulesQuestion) -> Option<oneshot::Receiver<T>> {
        let (reply, receiver) = oneshot::channel();
        self.questions.try_send(question(reply)).ok()?;
        Some(receiver)
    }

    /// Takes note of changes that are published.
    pub(crate) fn note_changes(&self, update: &ScheduleUpdate) {
        valid(&self.state).recent.push(update);
    }

    /// From when on others are told more than is used, because there are more steps than are told; none when all is told as it is.
    pub(crate) fn coarse_from(&self) -> Option<Time> {
        valid(&self.state).coarse_from
    }
}

fn valid(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // It is valid after every single operation, so a panic elsewhere does not make it worthless.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A version in parts.
struct Kept {
    version: LedgerVersion,
    parts: Vec<Arc<WireSchedules>>,
    made: Instant,
    asked: Instant,
}

struct Serving {
    source: Arc<dyn ScheduleSource>,
    counters: Arc<Counters>,
    state: Arc<Mutex<State>>,
    /// The newest last.
    kept: VecDeque<Kept>,
}

impl Serving {
    async fn run(mut self, mut questions: mpsc::Receiver<SchedulesQuestion>) {
        let mut waiting = Vec::with_capacity(QUESTIONS_MAX);
        loop {
            match time::timeout(KEPT_FOR, questions.recv_many(&mut waiting, QUESTIONS_MAX)).await {
                Ok(0) => return,
                Ok(_) => {}
                Err(_) => {
                    self.kept.clear();
                    continue;
                }
            }
            self.kept.retain(|kept| kept.asked.elapsed() < KEPT_FOR);
            let version = self.source.version();
            // What all that wait get of a site of one part.
            let mut first: Option<Arc<WireSchedules>> = None;
            for question in waiting.drain(..) {
                // An error means that the asker has gone.
                match question {
                    SchedulesQuestion::All(known, reply) => {
                        let answer = self.all(known, version, &mut first);
                        self.counters.count(Counter::SchedulesServed);
                        let _ = reply.send(answer);
                    }
                    SchedulesQuestion::Part(version, number, reply) => {
                        let _ = reply.send(self.part(version, number));
                    }
                    SchedulesQuestion::Own(known, reply) => {
                        let own = (known != Some(version)).then(|| self.look());
                        let _ = reply.send(own);
                    }
                }
            }
        }
    }

    /// A look at the ledger; the owner is told when it is too much to be told others as it is, and when it is no more.
    fn look(&self) -> ScheduleSnapshot {
        let snapshot = self.source.snapshot();
        let coarseness = snapshot.schedules.coarseness(STEPS_PER_SITE_MAX);
        let coarse_from = coarseness.map(|coarse| coarse.from);
        let before = std::mem::replace(&mut valid(&self.state).coarse_from, coarse_from);
        match (before, coarse_from) {
            (None, Some(from)) => warn!(
                steps = snapshot.schedules.len(),
                most = STEPS_PER_SITE_MAX,
                from = from.0,
                "this site has more steps of occupancy than others are told: from this second on hosts look busier to them than they are"
            ),
            (Some(_), None) => info!("others are told all of this site's occupancy as it is again"),
            _ => {}
        }
        snapshot
    }

    fn all(
        &mut self,
        known: Option<LedgerVersion>,
        version: LedgerVersion,
        first: &mut Option<Arc<WireSchedules>>,
    ) -> WireAnswer {
        if known == Some(version) {
            return WireAnswer::Unchanged(version);
        }
        let changes = known.and_then(|known| valid(&self.state).recent.since(known));
        // Where the newest change is not published yet, who asks gets more than that.
        if let Some(changes) = changes.filter(|changes| changes.leads_to(version)) {
            return WireAnswer::Changes(changes);
        }
        if let Some(first) = first {
            return WireAnswer::Schedules(Arc::clone(first));
        }
        let latest = self.kept.back_mut().filter(|latest| {
            let since = || valid(&self.state).recent.since(latest.version);
            let is_followed = || since().is_some_and(|changes| changes.leads_to(version));
            latest.version == version || latest.made.elapsed() < LOOK_EVERY && is_followed()
        });
        if let Some(latest) = latest {
            latest.asked = Instant::now();
            return WireAnswer::Schedules(Arc::clone(&latest.parts[0]));
        }
        let part = self.cut();
        *first = Some(Arc::clone(&part));
        WireAnswer::Schedules(part)
    }

    /// Cuts the present schedules into parts, of which it returns the first and keeps all if there are more.
    fn cut(&mut self) -> Arc<WireSchedules> {
        let mut snapshot = self.look();
        let coarseness = snapshot.schedules.coarseness(STEPS_PER_SITE_MAX);
        if let Some(coarseness) = coarseness {
            snapshot.schedules.coarsen(coarseness, STEPS_PER_SITE_MAX);
        }
        let parts = WireSchedules::parts_of(&snapshot, coarseness.map(|coarse| coarse.doubtful_from));
        let parts: Vec<Arc<WireSchedules>> = parts.into_iter().map(Arc::new).collect();
        let first = Arc::clone(&parts[0]);
        if parts.len() > 1 {
            if self.kept.len() == KEPT_MAX {
                self.kept.pop_front();
            }
            let now = Instant::now();
            self.kept.push_back(Kept { version: snapshot.version, parts, made: now, asked: now });
        }
        first
    }

    fn part(&mut self, version: LedgerVersion, number: u32) -> WireAnswer {
        let kept = self.kept.iter_mut().rev().find(|kept| kept.version == version);
        let Some(kept) = kept else { return WireAnswer::PartsGone };
        kept.asked = Instant::now();
        let part = usize::try_from(number).ok().and_then(|number| kept.parts.get(number));
        part.map_or(WireAnswer::PartsGone, |part| WireAnswer::Schedules(Arc::clone(part)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use broker::{
        amount::Amount,
        ids::{HostId, SiteId},
        protocol::{ChangeKind, HostChange, ScheduleChange, SiteSchedules},
        resources::{Amounts, ResourceName},
        schedule::{Occupancy, Schedule},
        time::Window,
    };

    use super::*;

    /// A ledger of one host, which counts how often it was looked at.
    struct Source {
        steps: usize,
        change: AtomicU64,
        looks: AtomicUsize,
    }

    impl ScheduleSource for Source {
        fn snapshot(&self) -> ScheduleSnapshot {
            self.looks.fetch_add(1, Ordering::Relaxed);
            let steps: Vec<(Time, Amount)> =
                (1..=self.steps).map(|at| (Time(i64::try_from(at).unwrap()), Amount(1 + at as u64 % 2))).collect();
            let occupancy = [(ResourceName::new("cpu").unwrap(), Occupancy::from_steps(&steps).unwrap())];
            let host = (
                HostId::new("h").unwrap(),
                Schedule::from(occupancy.into_iter().collect::<std::collections::BTreeMap<_, _>>()),
            );
            let schedules = SiteSchedules::new([host], []);
            ScheduleSnapshot { site: SiteId::new("s").unwrap(), version: self.version(), schedules }
        }

        fn version(&self) -> LedgerVersion {
            LedgerVersion { incarnation: 1, change: self.change.load(Ordering::Relaxed) }
        }
    }

    fn serving(steps: usize) -> (Arc<Source>, ScheduleServer) {
        let source = Arc::new(Source { steps, change: AtomicU64::new(0), looks: AtomicUsize::new(0) });
        let (server, serve) = ScheduleServer::new(Arc::clone(&source) as _, Arc::default());
        tokio::spawn(serve);
        (source, server)
    }

    /// Another change, published or not.
    fn change(source: &Source, server: Option<&ScheduleServer>) {
        let from = source.version();
        source.change.fetch_add(1, Ordering::Relaxed);
        let window = Window { start: Time(1), end: Time(2) };
        let (host, kind) = (HostId::new("h").unwrap(), ChangeKind::Added);
        let changes = vec![ScheduleChange::Host(HostChange { host, window, amounts: Amounts::new(), kind })];
        if let Some(server) = server {
            server.note_changes(&ScheduleUpdate { site: SiteId::new("s").unwrap(), from, changes });
        }
    }

    async fn all(server: &ScheduleServer, known: Option<LedgerVersion>) -> WireAnswer {
        server.ask(known).unwrap().await.unwrap()
    }

    async fn first(server: &ScheduleServer) -> Arc<WireSchedules> {
        let answer = all(server, None).await;
        let WireAnswer::Schedules(part) = answer else { panic!("{answer:?}") };
        part
    }

    #[tokio::test]
    async fn who_has_an_earlier_version_is_told_what_has_changed_since() {
        let (source, server) = serving(10);
        let known = source.version();
        assert!(matches!(all(&server, Some(known)).await, WireAnswer::Unchanged(_)));
        change(&source, Some(&server));
        change(&source, Some(&server));
        let answer = all(&server, Some(known)).await;
        assert!(matches!(&answer, WireAnswer::Changes(since) if since.changes.len() == 2), "{answer:?}");
        assert_eq!(source.looks.load(Ordering::Relaxed), 0);
        change(&source, None);
        assert!(matches!(all(&server, Some(known)).await, WireAnswer::Schedules(_)), "one is not published yet");
    }

    #[tokio::test]
    async fn however_many_ask_for_a_large_site_it_is_looked_at_once() {
        let (source, server) = serving(200_000);
        let begun = first(&server).await.whole();
        assert!(begun.parts > 1);
        for _ in 0..100 {
            change(&source, Some(&server));
            assert_eq!(first(&server).await.whole(), begun, "who begins now hears of the changes at the end");
        }
        assert_eq!(source.looks.load(Ordering::Relaxed), 1);
        for number in 0..begun.parts {
            let part = server.ask_part(begun.version, number).unwrap().await.unwrap();
            assert!(matches!(part, WireAnswer::Schedules(_)), "{part:?}");
        }
        for (version, number) in [(begun.version, begun.parts), (source.version(), 0)] {
            let part = server.ask_part(version, number).unwrap().await.unwrap();
            assert!(matches!(part, WireAnswer::PartsGone), "{part:?}");
        }
        // Changes that nobody was told of: all must be told anew, and the version before the last is not kept.
        for _ in 0..KEPT_MAX {
            change(&source, None);
            assert_eq!(first(&server).await.whole().version, source.version());
        }
        assert!(matches!(server.ask_part(begun.version, 0).unwrap().await.unwrap(), WireAnswer::PartsGone));
    }

    #[tokio::test]
    async fn more_than_may_be_told_is_told_coarsely_and_its_owner_knows() {
        let (source, server) = serving(STEPS_PER_SITE_MAX + STEPS_PER_SITE_MAX / 2);
        let own = server.ask_own(None).unwrap().await.unwrap().unwrap();
        assert_eq!(own.schedules.len(), source.steps, "a site knows all of its own");
        let from = server.coarse_from().unwrap();
        assert!(from > Time(i64::try_from(STEPS_PER_SITE_MAX).unwrap() / 2), "{from:?}");
        assert_eq!(first(&server).await.whole().coarse_from, Some(from));
        assert!(server.ask_own(Some(source.version())).unwrap().await.unwrap().is_none(), "it has not changed");
    }
}
