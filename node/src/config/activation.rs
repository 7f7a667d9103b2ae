//! `[activation]`: the owner's hook, which makes reservations usable.
//!
//! Invariant: a hook in force is a program that was there when the configuration was read.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use broker::time::Span;
use clap::Args;

use super::{ConfigError, Surroundings, file::ActivationSection, resolve::Layers};

/// The log of the hook's runs, in the data directory.
const LOG_FILE: &str = "activation.log";
/// How long a run may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How often an event whose run has failed is tried again.
const TRIES: u32 = 3;
/// Most further tries.
const TRIES_MAX: u32 = 100;
/// Longest time that a reservation is started before its window.
const EARLY_MAX: Span = Span(86_400);

/// `[activation]` in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivationConfig {
    /// The program (absolute) and its arguments; empty: nothing runs.
    pub hook: Vec<String>,
    /// How long a run may take.
    pub timeout: Duration,
    /// How often an event whose run has failed is tried again.
    pub tries: u32,
    /// How long before its window a reservation is started, if not at its start.
    pub early: Option<Span>,
    /// The log of the runs; absolute.
    pub log: PathBuf,
    /// Where hooks look for programs.
    pub search_path: Option<OsString>,
}

/// The flags of `[activation]`.
#[derive(Debug, Clone, Default, Args)]
pub struct ActivationArgs {
    /// Program to run when reservations come, begin, change and go; its arguments follow, one a flag [default: none]
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    activation_hook: Option<Vec<String>>,
    /// How long a run of it may take [default: 60s]
    #[arg(long, value_name = "DURATION")]
    activation_timeout: Option<String>,
    /// How often it is run again for an event for which it has failed [default: 3]
    #[arg(long, value_name = "COUNT")]
    activation_tries: Option<u32>,
    /// How long before its window a reservation is started [default: at its start]
    #[arg(long, value_name = "DURATION")]
    activation_early: Option<String>,
    /// Log of its runs [default: activation.log in the data directory]
    #[arg(long, value_name = "FILE")]
    activation_log: Option<PathBuf>,
}

impl ActivationArgs {
    /// The flags as a written layer.
    pub(super) fn layer(&self) -> ActivationSection {
        ActivationSection {
            hook: self.activation_hook.clone(),
            timeout: self.activation_timeout.clone(),
            tries: self.activation_tries,
            early: self.activation_early.clone(),
            log: self.activation_log.clone(),
        }
    }
}

impl Layers {
    /// What is in force of `[activation]`.
    pub(super) fn activation(
        &self,
        data_dir: &Path,
        surroundings: &Surroundings,
    ) -> Result<ActivationConfig, ConfigError> {
        let hook = self.program("activation.hook", |file| file.activation.hook.clone())?;
        let timeout = self.duration("activation.timeout", TIMEOUT, |file| file.activation.timeout.clone())?.value;
        let tries = self.or("activation.tries", TRIES, |file| file.activation.tries);
        if tries.value > TRIES_MAX {
            return Err(tries.wrong(format!("expected 0 to {TRIES_MAX}, got {}", tries.value)));
        }
        let early = self.optional_span("activation.early", |file| file.activation.early.clone())?;
        if early.is_some_and(|early| early > EARLY_MAX) {
            let message = "expected at most 24h".to_owned();
            let place = self.or("activation.early", String::new(), |file| file.activation.early.clone()).place;
            return Err(ConfigError::Value { place, message });
        }
        let log = self.path("activation.log", |file| file.activation.log.clone())?;
        let log = log.map_or_else(|| data_dir.join(LOG_FILE), |log| log.value);
        let search_path = surroundings.search_path.clone();
        Ok(ActivationConfig { hook, timeout, tries: tries.value, early, log, search_path })
    }
}
