//! The rounds of an honest user, and how long each of their steps takes.
//!
//! Invariant: a call counts as answered only with the exit code and the output that it must have.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use end_to_end::{run, tenants::Person};

/// Steps of a round, a command line each.
pub const STEPS: [&str; 5] = ["plan", "reserve", "run", "output", "cancel"];
/// Rounds of a measurement: of so few calls of a step the 99th percentile is the slowest.
pub const ROUNDS: usize = 8;
/// Most that the 99th percentile of a step may be, as a multiple of that without attacks: four times the goal, which is 1.5. The attackers share
/// the processors with the node here, and a machine that is slow or busy otherwise must not fail.
const RATIO_MAX: f64 = 6.0;
/// Time beyond that by which a busy machine may be late with one of the calls.
const SLACK: Duration = Duration::from_millis(300);

/// What an honest user has seen in [`ROUNDS`] rounds.
#[derive(Default)]
pub struct Measured {
    /// Of each step, the shortest first.
    took: [Vec<Duration>; STEPS.len()],
    /// Calls that were not answered rightly; each has ended its round.
    wrong: Vec<String>,
}

impl Measured {
    /// What `person` sees of the node with this data directory.
    pub fn of(person: &Person, data_dir: &Path) -> Measured {
        let mut seen = Measured::default();
        for number in 0..ROUNDS {
            let outcome = seen.round(person, data_dir, number);
            seen.wrong.extend(outcome.err());
        }
        seen.took.iter_mut().for_each(|took| took.sort_unstable());
        seen
    }

    fn round(&mut self, person: &Person, data_dir: &Path, number: usize) -> Result<(), String> {
        let mut step = |index: usize, arguments: &[&str], command: &[&str]| {
            let mut kolo = person.command(arguments, data_dir);
            kolo.args(command).stdin(Stdio::null());
            let began = Instant::now();
            let ended = run(&mut kolo);
            self.took[index].push(began.elapsed());
            if ended.code == Some(0) { Ok(ended.out) } else { Err(format!("{}: {ended:?}", STEPS[index])) }
        };
        let seat = ["-N", "1", "--per-host", "cpu=1", "-t", "10min", "--output", "quiet"];
        let place = step(0, &[&["plan"], &seat[..]].concat(), &[])?;
        if !place.contains('/') {
            return Err(format!("plan: {place:?}"));
        }
        let reserved = step(1, &[&["submit"], &seat[..]].concat(), &[])?;
        let (id, word) = (reserved.trim(), format!("round {number}"));
        step(2, &["run", "--in", id, "--detach"], &["--", "echo", &word])?;
        let out = step(3, &["logs", id, "--follow"], &[])?;
        if out.trim_end() != word {
            return Err(format!("output: {out:?} instead of {word:?}"));
        }
        step(4, &["cancel", id], &[]).map(drop)
    }

    /// Calls that were answered rightly.
    pub fn answered(&self) -> usize {
        self.took.iter().map(Vec::len).sum::<usize>() - self.wrong.len()
    }

    /// Calls that were not answered rightly.
    pub fn wrong(&self) -> &[String] {
        &self.wrong
    }

    /// The time within which so many of a hundred calls of a step were answered.
    pub fn percentile(&self, step: usize, percent: usize) -> Duration {
        let took = &self.took[step];
        let rank = (took.len() * percent).div_ceil(100);
        rank.checked_sub(1).map_or(Duration::ZERO, |index| took[index])
    }

    /// The step whose 99th percentile is the largest multiple of that in `alone`, and the multiple.
    pub fn worst_beside(&self, alone: &Measured) -> (usize, f64) {
        let ratio = |step| self.percentile(step, 99).div_duration_f64(alone.percentile(step, 99));
        let ratios = (0..STEPS.len()).map(|step| (step, ratio(step)));
        ratios.max_by(|(_, one), (_, other)| one.total_cmp(other)).unwrap()
    }

    /// Whether a step takes longer than it may beside `alone`.
    pub fn is_slow_beside(&self, alone: &Measured) -> bool {
        let most = |step| alone.percentile(step, 99).mul_f64(RATIO_MAX) + SLACK;
        (0..STEPS.len()).any(|step| self.percentile(step, 99) > most(step))
    }
}
