//! `[local]`: the program that tells what the owner's own work takes.
//!
//! Invariant: a feed in force is a program that was there when the configuration was read, and its reach is one that the
//! ledger promises as well.

use std::{ffi::OsString, time::Duration};

use broker::{ledger::LedgerLimits, time::Span};
use clap::Args;

use super::{ConfigError, Surroundings, file::LocalSection, resolve::Layers};

/// How often the feed is run.
const EVERY: Duration = Duration::from_secs(30);
/// Less than this would cost more than it tells.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// How long a run may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How far ahead work counts, and how long work counts whose end nobody knows.
const REACH: Span = Span(7 * 86_400);

/// `[local]` in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalConfig {
    /// The program (absolute) and its arguments; empty: nothing runs.
    pub feed: Vec<String>,
    /// How often it is run.
    pub every: Duration,
    /// How long a run may take.
    pub timeout: Duration,
    /// How far ahead work counts, and how long work counts whose end nobody knows: at least this, less than twice this.
    pub reach: Span,
    /// Where it looks for programs.
    pub search_path: Option<OsString>,
}

/// The flags of `[local]`.
#[derive(Debug, Clone, Default, Args)]
pub struct LocalArgs {
    /// Program that tells the owner's own work; its arguments follow, one a flag [default: none]
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    local_feed: Option<Vec<String>>,
    /// How often it is run [default: 30s]
    #[arg(long, value_name = "DURATION")]
    local_every: Option<String>,
    /// How long a run of it may take [default: 20s]
    #[arg(long, value_name = "DURATION")]
    local_timeout: Option<String>,
    /// How far ahead work counts, and how long if its end is not known [default: 7d]
    #[arg(long, value_name = "DURATION")]
    local_reach: Option<String>,
}

impl LocalArgs {
    /// The flags as a written layer.
    pub(super) fn layer(&self) -> LocalSection {
        LocalSection {
            feed: self.local_feed.clone(),
            every: self.local_every.clone(),
            timeout: self.local_timeout.clone(),
            reach: self.local_reach.clone(),
        }
    }
}

impl Layers {
    /// What is in force of `[local]`.
    pub(super) fn local(&self, ledger: &LedgerLimits, surroundings: &Surroundings) -> Result<LocalConfig, ConfigError> {
        let feed = self.program("local.feed", |file| file.local.feed.clone())?;
        let every = self.duration("local.every", EVERY, |file| file.local.every.clone())?;
        if every.value < EVERY_MIN {
            return Err(every.wrong("expected at least 1s"));
        }
        let timeout = self.duration("local.timeout", TIMEOUT, |file| file.local.timeout.clone())?.value;
        let reach = self.written("local.reach", |file| file.local.reach.clone());
        // Work counts for up to twice the reach.
        let longest = Span(ledger.farthest_future.0 / 2);
        let reach_span = self.optional_span("local.reach", |file| file.local.reach.clone())?;
        if let (Some(reach), Some(span)) = (reach, reach_span)
            && !(Span(60)..=longest).contains(&span)
        {
            return Err(reach.wrong("expected 1min to half of ledger.farthest_future"));
        }
        let reach = reach_span.unwrap_or_else(|| REACH.min(longest));
        Ok(LocalConfig { feed, every: every.value, timeout, reach, search_path: surroundings.search_path.clone() })
    }
}
