//! The feed: a program of the owner that reports again and again what the owner's own work takes, such as the jobs of a local
//! batch system. The ledger counts it as taken, so that the grid does not get it.
//!
//! Invariant: a run that fails in any way changes nothing: what was known stays until a later run reports otherwise. Until one
//! run of this node has not failed, the site promises nothing: whatever it knows may be from long ago.

mod document;
mod program;
#[cfg(test)]
mod slurm_tests;

use std::{
    ffi::OsString,
    sync::{Arc, Mutex},
    time::Duration,
};

use broker::{
    ledger::{Books as _, Event, FeedReport, HostLedger, ReplyToken},
    time::Time,
    trust::SharedGate,
};
use kolo_config::{LocalSettings, NodeConfig};
use kolo_runtime::{clock::Clock, lock::locked, metrics::Metrics};
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use self::document::Said;
use crate::site::task::{OwnSite, SharedLedger};

/// How long the ledger may take, its write to disk included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Nobody waits for what comes of the first run.
const NOBODY: ReplyToken = ReplyToken(0);

/// What is known of the feed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeedState {
    /// When it last ran well.
    pub heard: Option<Time>,
    /// What came of that.
    pub report: FeedReport,
    /// Why the last run was of no use, if it was not.
    pub failure: Option<String>,
    /// Whether the site promises nothing until a run is of use.
    pub is_awaited: bool,
}

/// What is known of the feed, as other tasks read it.
#[derive(Debug, Clone, Default)]
pub struct SharedFeedState(Arc<Mutex<FeedState>>);

impl SharedFeedState {
    /// What is known now.
    pub fn get(&self) -> FeedState {
        locked(&self.0).clone()
    }

    fn set(&self, state: FeedState) {
        *locked(&self.0) = state;
    }
}

pub struct Feed {
    settings: LocalSettings,
    /// Where it looks for programs.
    search_path: Option<OsString>,
    own_site: OwnSite,
    ledger: SharedLedger,
    gate: SharedGate,
    clock: Clock,
    metrics: Arc<Metrics>,
    state: SharedFeedState,
}

impl Feed {
    /// The feed of a site.
    pub fn new(
        config: &NodeConfig,
        own_site: OwnSite,
        (ledger, gate): (SharedLedger, SharedGate),
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Feed {
        let (settings, search_path) = (config.settings.local.clone(), config.search_path.clone());
        Feed { settings, search_path, own_site, ledger, gate, clock, metrics, state: SharedFeedState::default() }
    }

    /// What is known of it; none when there is none.
    pub fn state(&self) -> Option<SharedFeedState> {
        (!self.settings.feed.0.is_empty()).then(|| self.state.clone())
    }

    /// Runs it once, before anybody is granted anything. When that fails, nobody is until a later run does not.
    pub async fn begin(&self) {
        let said = if self.settings.feed.0.is_empty() {
            // What an earlier feed has reported holds no longer when the owner has taken the feed away.
            Ok(Said::default())
        } else {
            self.said().await
        };
        match said {
            // The next run reports what has come of it.
            Ok(Said { works, queue, .. }) => {
                self.ledger.lock().handle(self.clock.now(), Event::Feed { token: NOBODY, works, queue });
            }
            Err(why) => {
                self.set_awaited(true);
                self.note(Err(why));
                warn!("until the feed of own work has worked once, this site promises nothing to the grid");
            }
        }
    }

    /// Runs it until the caller drops the future; calls `offer` when the site may promise something from now on.
    pub async fn run(self, offer: impl Fn()) {
        if self.settings.feed.0.is_empty() {
            return std::future::pending().await;
        }
        let mut every = tokio::time::interval(self.settings.every);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            let report = self.round().await;
            let is_first = report.is_ok() && self.state.get().is_awaited;
            if is_first {
                self.set_awaited(false);
            }
            self.note(report);
            if is_first {
                offer();
            }
        }
    }

    fn set_awaited(&self, is_awaited: bool) {
        self.gate.lock().set_own_work_known(!is_awaited);
        self.state.set(FeedState { is_awaited, ..self.state.get() });
    }

    /// One run, until the ledger has what it reports.
    async fn round(&self) -> Result<FeedReport, String> {
        let Said { works, queue, unread } = self.said().await?;
        let report = self.own_site.feed((works, queue), ANSWER_TIMEOUT).await?;
        Ok(FeedReport { left_out: report.left_out + unread, ..report })
    }

    /// One run, until what it reports is understood.
    async fn said(&self) -> Result<Said, String> {
        let now = self.clock.now().utc;
        let horizon = document::horizon(now, self.settings.reach).map_err(|error| error.to_string())?;
        let run = program::run(&self.settings.feed.0, self.search_path.as_ref(), horizon, self.settings.timeout);
        let said = run.await.map_err(|error| error.to_string())?;
        let capacity = |books: &HostLedger| (books.host().id.clone(), books.host().capacity.clone());
        let (capacities, site) = {
            let ledger = self.ledger.lock();
            (ledger.hosts().map(capacity).collect(), ledger.site().clone())
        };
        document::read(&said, (&site, &capacities), now, horizon).map_err(|error| error.to_string())
    }

    fn note(&self, report: Result<FeedReport, String>) {
        let before = self.state.get();
        match report {
            Ok(report) => {
                self.metrics.fed(Some(&report));
                if before.failure.is_some() {
                    info!("the feed of own work works again");
                }
                if report.left_out > 0 && before.report.left_out == 0 {
                    warn!(
                        left_out = report.left_out,
                        "not all own work could be entered; the grid may be given the rest"
                    );
                }
                if report.short > 0 && before.report.short == 0 {
                    warn!(short = report.short, "own work takes what the grid was promised before");
                }
                self.state.set(FeedState { heard: Some(self.clock.now().utc), report, failure: None, ..before });
            }
            Err(why) => {
                self.metrics.fed(None);
                // Once, not every few seconds for as long as it lasts.
                if before.failure.as_ref() != Some(&why) {
                    warn!(
                        program = self.settings.feed.0.first(),
                        why, "the feed of own work fails; what was known of it stays"
                    );
                }
                self.state.set(FeedState { failure: Some(why), ..before });
            }
        }
    }
}
