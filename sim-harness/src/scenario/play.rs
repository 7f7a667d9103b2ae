//! Plays a scenario step by step in whichever world.
//!
//! Invariant: a world only does what it is told and shows what there is; what an expectation means is decided here, once
//! for all worlds.

use std::time::Duration;

use serde::Serialize;

use super::step::{Action, Asked, Expectation, Outcome, ScenarioFile, Site, Step, Verb};
use crate::grid::error::GridError;

/// A request as its entry point shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// Nothing final; what is seen instead.
    UnderWay(String),
    /// This has become of it.
    Decided(Outcome),
}

/// What ledgers have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bookings {
    /// Hosts of confirmed bookings.
    pub confirmed: usize,
    /// Hosts of holds.
    pub held: usize,
}

/// Why a world cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// An invariant does not hold.
    #[error("violated: {0}")]
    Violated(String),
    /// Real processes could not be started, asked or ended.
    #[error(transparent)]
    Grid(#[from] GridError),
}

/// A grid in which scenarios can be played.
pub trait World {
    /// Time since the beginning.
    fn now(&self) -> Duration;

    /// Lets a moment pass: until something happens, or a short while, at most until `until`.
    ///
    /// # Errors
    /// [`WorldError`].
    fn pass(&mut self, until: Duration) -> Result<(), WorldError>;

    /// Does something.
    ///
    /// # Errors
    /// [`WorldError`].
    fn act(&mut self, action: &Action) -> Result<(), WorldError>;

    /// What the entry point of a request shows.
    ///
    /// # Errors
    /// [`WorldError`].
    fn sight(&mut self, asked: &Asked) -> Result<Sight, WorldError>;

    /// What the ledgers of these sites, which run, have of one request, or of all.
    ///
    /// # Errors
    /// [`WorldError`].
    fn bookings(&mut self, asked: Option<&Asked>, at: &[Site]) -> Result<Bookings, WorldError>;

    /// What one of the sites `at` does not know of one of `sites`; nothing when each knows the ledgers of all as they are.
    ///
    /// # Errors
    /// [`WorldError`].
    fn missing_knowledge(&mut self, at: &[Site], sites: &[Site]) -> Result<Option<String>, WorldError>;

    /// An invariant that does not hold, as far as can be told while things go on.
    ///
    /// # Errors
    /// [`WorldError`].
    fn violation(&mut self) -> Result<Option<String>, WorldError>;

    /// Joins all links, starts every site that ever ran, waits until all is settled, and checks the invariants. What does
    /// not hold.
    ///
    /// # Errors
    /// [`WorldError`].
    fn settle(&mut self) -> Result<Vec<String>, WorldError>;
}

/// A step that was played.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Played {
    /// Where it is written.
    pub line: usize,
    /// What it says.
    pub step: String,
    /// When it was over, since the beginning.
    pub at_ms: u64,
    /// How long it took.
    pub took_ms: u64,
}

/// A step that did not come true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// Where it is written; none when it was not a step that failed.
    pub line: Option<usize>,
    /// What was to be.
    pub step: String,
    /// What was seen instead.
    pub seen: String,
}

/// What came of a scenario.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// The steps that came true.
    pub played: Vec<Played>,
    /// What ended it early.
    pub failed: Option<Failed>,
    /// Invariants that do not hold in the end.
    pub violations: Vec<String>,
}

impl Outcomes {
    /// Whether all came true and all invariants hold.
    pub fn is_good(&self) -> bool {
        self.failed.is_none() && self.violations.is_empty()
    }
}

/// Plays all steps, settles, and tells of each step that is over.
///
/// # Errors
/// Only [`GridError::Interrupted`]: whatever else goes wrong is part of the outcome.
pub fn play(file: &ScenarioFile, world: &mut impl World, tell: &impl Fn(&Played)) -> Result<Outcomes, GridError> {
    let mut outcomes = Outcomes::default();
    let failed = |line, step: String, seen| Some(Failed { line, step, seen });
    for step in &file.steps {
        let begun = world.now();
        match one(step, world) {
            Ok(None) => {
                let (line, now) = (step.line, world.now());
                let played = Played { line, step: step.verb.to_string(), at_ms: ms(now), took_ms: ms(now - begun) };
                tell(&played);
                outcomes.played.push(played);
            }
            Ok(Some(seen)) => {
                outcomes.failed = failed(Some(step.line), step.verb.to_string(), seen);
                return Ok(outcomes);
            }
            Err(WorldError::Grid(GridError::Interrupted)) => return Err(GridError::Interrupted),
            Err(error) => {
                outcomes.failed = failed(Some(step.line), step.verb.to_string(), error.to_string());
                return Ok(outcomes);
            }
        }
    }
    match world.settle() {
        Ok(violations) => outcomes.violations = violations,
        Err(WorldError::Grid(GridError::Interrupted)) => return Err(GridError::Interrupted),
        Err(error) => outcomes.failed = failed(None, "everything settles in the end".to_owned(), error.to_string()),
    }
    Ok(outcomes)
}

/// Plays one step. What was seen instead of what is expected, if it did not come true.
fn one(step: &Step, world: &mut impl World) -> Result<Option<String>, WorldError> {
    let begun = world.now();
    match &step.verb {
        Verb::Act(action) => world.act(action).map(|()| None),
        Verb::Wait(time) => {
            while world.now() < begun + *time {
                world.pass(begun + *time)?;
            }
            Ok(None)
        }
        Verb::Expect { what, within } => {
            let until = begun + *within;
            loop {
                let seen = match missing(what, world) {
                    // A node that does not answer may answer when asked again.
                    Err(WorldError::Grid(error @ GridError::Client { .. })) => Some(error.to_string()),
                    found => found?,
                };
                let Some(seen) = seen else { return Ok(None) };
                if world.now() >= until {
                    return Ok(Some(format!("not within {} ms; seen: {seen}", within.as_millis())));
                }
                world.pass(until)?;
            }
        }
    }
}

/// What is seen instead of what is expected; nothing when it is true.
fn missing(what: &Expectation, world: &mut impl World) -> Result<Option<String>, WorldError> {
    match what {
        Expectation::Outcome { asked, outcome, count } => {
            let mut seen = Vec::new();
            let (mut as_expected, mut under_way) = (0, 0);
            for one in asked {
                let sight = world.sight(one)?;
                let words = match &sight {
                    Sight::UnderWay(words) => words,
                    Sight::Decided(outcome) => outcome.name(),
                };
                seen.push(format!("{one} {words}"));
                as_expected += usize::from(sight == Sight::Decided(*outcome));
                under_way += usize::from(matches!(sight, Sight::UnderWay(_)));
            }
            let is_met = as_expected == *count && under_way == 0;
            Ok((!is_met).then(|| seen.join(", ")))
        }
        Expectation::Booked { asked, hosts, at } => {
            let found = world.bookings(Some(asked), at)?;
            Ok((found.confirmed != *hosts).then(|| words(found)))
        }
        Expectation::NothingBooked { asked, at } => {
            let found = world.bookings(asked.as_ref(), at)?;
            Ok((found != Bookings::default()).then(|| words(found)))
        }
        Expectation::SitesKnown { at, sites } => world.missing_knowledge(at, sites),
        Expectation::NoViolation => world.violation(),
    }
}

fn words(found: Bookings) -> String {
    format!("{} hosts booked and {} held", found.confirmed, found.held)
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
