//! Runs seeds, on all processors, until they are done or one shows a violation.
//!
//! Invariant: the result does not depend on the number of processors: the violation reported is that of the lowest seed,
//! and the counts are those of all seeds up to it.

use std::{
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    process,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::{TimeVal, TimeValLike},
};

use super::{canary::Canary, figures::Figures, history::Violation, trial::Trial};

/// A seed that has not ended after so long is named, and ends the program: nothing can be done about a loop from outside of its thread.
/// Processor time is counted, of each processor, so that a busy machine ends none. Seeds take 0.1 s, the longest some seconds.
const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// The result of a seed.
#[derive(Debug)]
pub struct SeedResult {
    pub figures: Figures,
    pub violation: Option<Violation>,
    /// What happened, if it was to be kept.
    pub history: String,
}

/// The result of all seeds.
#[derive(Debug, Default)]
pub struct RunResult {
    pub figures: Figures,
    /// The lowest seed in which something did not hold.
    pub found: Option<(u64, Violation)>,
}

/// The command that replays a seed.
pub fn replay_command(seed: u64, canary: Option<Canary>) -> String {
    let canary = canary.map_or_else(String::new, |canary| format!(" --canary {}", canary.name()));
    format!("kolo-sim faults --from {seed} --seeds 1 --history{canary}")
}

/// Runs one seed. A panic in the core is a violation like any other.
pub fn run_seed(seed: u64, canary: Option<Canary>, keeps_history: bool) -> SeedResult {
    let mut trial = Trial::of_seed(seed, canary, keeps_history);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| trial.run()));
    let grid = &mut trial.world.grid;
    if let Err(payload) = outcome {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        grid.violate("nothing panics", None, text.unwrap_or_else(|| "a panic without a message".to_owned()));
        grid.figures.violations = 1;
    }
    let violation = grid.violation().cloned();
    let request = violation.as_ref().and_then(|violation| violation.request.as_ref());
    SeedResult { history: grid.history(request), figures: grid.figures.clone(), violation }
}

/// Runs `seeds` seeds from `from` on; calls `at` with the number of seeds that are done. Stops at the first violation.
pub fn run_seeds(from: u64, seeds: u64, canary: Option<Canary>, at: impl Fn(u64)) -> RunResult {
    let (next, end) = (AtomicU64::new(from), AtomicU64::new(from.saturating_add(seeds)));
    let (sender, results) = mpsc::channel();
    let under_way: Mutex<BTreeMap<u64, Duration>> = Mutex::default();
    let begun = || under_way.lock().unwrap_or_else(PoisonError::into_inner);
    let work = |sender: mpsc::Sender<(u64, SeedResult)>| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) {
                return;
            }
            begun().insert(seed, processor_time());
            let result = run_seed(seed, canary, false);
            begun().remove(&seed);
            if result.violation.is_some() {
                // Lower seeds are under way already; higher ones need not be begun.
                end.fetch_min(seed + 1, Ordering::Relaxed);
            }
            if sender.send((seed, result)).is_err() {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..processors() {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        let mut run = RunResult::default();
        let (mut waiting, mut first) = (BTreeMap::new(), from);
        loop {
            let (seed, result) = match results.recv_timeout(Duration::from_secs(1)) {
                Ok(result) => result,
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    end_if_endless(&begun(), canary);
                    continue;
                }
            };
            waiting.insert(seed, result);
            // Seeds are added up in order, so that few results are kept.
            while run.found.is_none()
                && let Some(result) = waiting.remove(&first)
            {
                run.figures.add(&result.figures);
                run.found = result.violation.map(|violation| (first, violation));
                first += 1;
                at(first - from);
            }
        }
        run
    })
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Processor time that all threads of this process have taken; none where the system does not tell.
fn processor_time() -> Duration {
    let micros = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
    let taken = getrusage(UsageWho::RUSAGE_SELF).map(|used| micros(used.user_time()) + micros(used.system_time()));
    Duration::from_micros(taken.unwrap_or(0))
}

/// Names a seed that does not end, and ends the program.
fn end_if_endless(under_way: &BTreeMap<u64, Duration>, canary: Option<Canary>) {
    let now = processor_time();
    let taken = |since: &Duration| now.saturating_sub(*since) / u32::try_from(processors()).unwrap_or(1);
    let endless = under_way.iter().find(|(_, since)| taken(since) > ENDS_WITHIN);
    if let Some((seed, _)) = endless {
        eprintln!("seed {seed}: violated: every seed ends: it has not after {} s", ENDS_WITHIN.as_secs());
        eprintln!("replay: {}", replay_command(*seed, canary));
        process::exit(1);
    }
}
