//! Plays a scenario step by step in whichever world.
//!
//! Invariant: a world only plays actions and shows what there is; what an expectation means is decided here, once for all
//! worlds.

use std::time::Duration;

use serde::Serialize;

use super::step::{Action, Asked, Expectation, ScenarioFile, Site, Step, Verb, What};
use crate::grid::nodes::{client::ClientError, wait::Interrupted};

/// A request as its entry point shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// Nothing final; what is seen instead.
    UnderWay(String),
    /// This has become of it: an outcome.
    Decided(What),
}

/// What ledgers have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bookings {
    /// Hosts of confirmed bookings.
    pub confirmed: usize,
    /// Hosts of holds.
    pub held: usize,
}

/// A grid in which scenarios can be played.
pub trait World {
    /// Time since the beginning.
    fn now(&self) -> Duration;

    /// Lets a moment pass: until something happens, or a short while, at most until `until`.
    fn pass(&mut self, until: Duration) -> anyhow::Result<()>;

    /// Does something; `text` is how the scenario says it.
    fn act(&mut self, action: &Action, text: &str) -> anyhow::Result<()>;

    /// What the entry point of a request shows.
    fn sight(&mut self, asked: &Asked) -> anyhow::Result<Sight>;

    /// What the ledgers of these sites, which run, have of one request, or of all.
    fn bookings(&mut self, asked: Option<&Asked>, at: &[Site]) -> anyhow::Result<Bookings>;

    /// What one of the sites `at` does not know of one of `sites`; nothing when each knows the ledgers of all as they are.
    fn missing_knowledge(&mut self, at: &[Site], sites: &[Site]) -> anyhow::Result<Option<String>>;

    /// An invariant that does not hold, as far as it can be checked while things go on.
    fn violation(&mut self) -> anyhow::Result<Option<String>>;

    /// Joins all links, starts every site that ever ran, waits until all is settled, and checks the invariants. What does
    /// not hold.
    fn settle(&mut self) -> anyhow::Result<Vec<String>>;
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

/// Plays all steps, settles, and calls `progress` after each step.
///
/// # Errors
/// Only [`Interrupted`]: whatever else goes wrong is part of the outcome.
pub fn play(file: &ScenarioFile, world: &mut impl World, progress: &impl Fn(&Played)) -> anyhow::Result<Outcomes> {
    // An interruption ends the run; any other error is what was seen.
    let seen = |error: anyhow::Error| if error.is::<Interrupted>() { Err(error) } else { Ok(format!("{error:#}")) };
    let mut outcomes = Outcomes::default();
    for step in &file.steps {
        let (line, begun, text) = (step.line, world.now(), step.text.clone());
        if let Some(seen) = one(step, world).or_else(|error| seen(error).map(Some))? {
            outcomes.failed = Some(Failed { line: Some(line), step: text, seen });
            return Ok(outcomes);
        }
        let now = world.now();
        let played = Played { line, step: text, at_ms: ms(now), took_ms: ms(now - begun) };
        progress(&played);
        outcomes.played.push(played);
    }
    match world.settle() {
        Ok(violations) => outcomes.violations = violations,
        Err(error) => {
            let step = "everything settles in the end".to_owned();
            outcomes.failed = Some(Failed { line: None, step, seen: seen(error)? });
        }
    }
    Ok(outcomes)
}

/// Plays one step. What was seen instead of what is expected, if it did not come true.
fn one(step: &Step, world: &mut impl World) -> anyhow::Result<Option<String>> {
    let begun = world.now();
    match &step.verb {
        Verb::Act(action) => world.act(action, &step.text).map(|()| None),
        Verb::Wait(time) => {
            while world.now() < begun + *time {
                world.pass(begun + *time)?;
            }
            Ok(None)
        }
        Verb::Expect(expectation) => {
            let until = begun + expectation.within;
            loop {
                let seen = match missing(expectation, world) {
                    // A node that does not answer may answer when asked again.
                    Err(error) if error.is::<ClientError>() => Some(format!("{error:#}")),
                    found => found?,
                };
                let Some(seen) = seen else { return Ok(None) };
                if world.now() >= until {
                    let limit_ms = expectation.within.as_millis();
                    return Ok(Some(format!("not within {limit_ms} ms; seen: {seen}")));
                }
                world.pass(until)?;
            }
        }
    }
}

/// What is seen instead of what is expected; nothing when it is true.
fn missing(expectation: &Expectation, world: &mut impl World) -> anyhow::Result<Option<String>> {
    let Expectation { what, asked, count, hosts, at, sites, .. } = expectation;
    match what {
        What::Booked => {
            let found = world.bookings(asked.first(), at)?;
            Ok((found.confirmed != *hosts).then(|| words(found)))
        }
        What::NothingBooked => {
            let found = world.bookings(asked.first(), at)?;
            Ok((found != Bookings::default()).then(|| words(found)))
        }
        What::SitesKnown => world.missing_knowledge(at, sites),
        What::NoViolation => world.violation(),
        What::Reserved | What::Rejected | What::Failed | What::Degraded | What::Cancelled => {
            let (mut seen, mut as_expected, mut under_way) = (Vec::new(), 0, 0);
            for one in asked {
                let sight = world.sight(one)?;
                as_expected += usize::from(matches!(&sight, Sight::Decided(found) if found == what));
                under_way += usize::from(matches!(sight, Sight::UnderWay(_)));
                seen.push(match sight {
                    Sight::UnderWay(words) => format!("{one} {words}"),
                    Sight::Decided(found) => format!("{one} {found}"),
                });
            }
            let is_met = as_expected == *count && under_way == 0;
            Ok((!is_met).then(|| seen.join(", ")))
        }
    }
}

fn words(found: Bookings) -> String {
    format!("{} hosts booked and {} held", found.confirmed, found.held)
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
