//! Fetching of schedules in the background: from new sites, from sites whose changes were missed, and in turn from sites whose
//! schedules were confirmed long ago, so that even a lost last update is found. In a large grid new sites wait for their turn as
//! well, or for a plan that needs them.
//!
//! Invariant: at most one fetch of a site is under way, at most `repair_fan_out` in all; each waits a random moment
//! first, so that a change that many missed does not bring them all to the site at once; failures back off, and fewer are
//! under way at once until they succeed again. A gap waits longer, since the missed change is mostly on its way: a node
//! that asked a site to confirm learns of the new version before gossip brings the change. A site whose
//! changes have arrived meanwhile is not fetched. An attacker can make up sites that never answer, so the failures of such sites
//! have a budget of their own.

use std::time::Duration;

use broker::{ids::SiteId, time::Millis};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::time;
use tracing::debug;

use super::fetch_queue::FetchQueue;
use crate::{clock::millis, core::Core};

/// Fetches that may be under way however many have failed: one site that never answers holds up no other.
const FAN_OUT_MIN: usize = 2;
/// No recheck begins within this many times what the last fetch took: where answers are slow, machines have more urgent things
/// to do.
const RECHECK_REST: u64 = 2;
/// The longest such rest.
const RECHECK_REST_MAX: Millis = Millis(16_000);

/// How many fetches may be under way at once. In a grid that is busier than its machines can bear, as when many sites of one
/// machine start together, answers come too late and are asked for again; it gets out of that only when all ask for less.
#[derive(Debug, PartialEq, Eq)]
struct FanOut {
    allowed: usize,
    most: usize,
    /// Successes since it was changed last.
    successes: usize,
}

impl FanOut {
    fn new(most: usize) -> FanOut {
        FanOut { allowed: most, most, successes: 0 }
    }

    /// Half as many after a failure, one more after as many successes as are allowed at once.
    fn ended(&mut self, succeeded: bool) {
        if !succeeded {
            *self =
                FanOut { allowed: (self.allowed / 2).max(FAN_OUT_MIN.min(self.most)), most: self.most, successes: 0 };
            return;
        }
        self.successes += 1;
        if self.successes >= self.allowed {
            *self = FanOut { allowed: (self.allowed + 1).min(self.most), most: self.most, successes: 0 };
        }
    }
}

/// A fetch that has ended.
struct Fetched {
    site: SiteId,
    succeeded: bool,
    started: Millis,
}

type Fetches = FuturesUnordered<BoxFuture<'static, Fetched>>;

/// Fetches the schedules of queued sites until it is aborted.
pub(crate) async fn run(core: Core, queue: FetchQueue) {
    let mut fetches: Fetches = FuturesUnordered::new();
    let mut rests_until = Millis(0);
    let mut recheck = time::interval(core.shared().config.intervals.recheck);
    recheck.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    let mut fan_out = FanOut::new(core.shared().config.limits.repair_fan_out);
    loop {
        let next_due = start_due(&core, &queue, &fan_out, &mut fetches);
        let pause = next_due
            .map_or(Duration::from_secs(3600), |due| Duration::from_millis((due - core.shared().clock.now()).0.max(1)));
        tokio::select! {
            () = queue.changed() => {}
            () = time::sleep(pause) => {}
            _ = recheck.tick() => if core.shared().clock.now() >= rests_until {
                want_unsure(&core, &queue);
            },
            Some(Fetched { site, succeeded, started }) = fetches.next(), if !fetches.is_empty() => {
                let now = core.shared().clock.now();
                if succeeded {
                    rests_until = now + Millis((now - started).0.saturating_mul(RECHECK_REST)).min(RECHECK_REST_MAX);
                }
                fan_out.ended(succeeded);
                queue.finished(&site, now, succeeded);
            }
        }
    }
}

/// Starts the fetches that are due, as far as the fan-out allows; returns when the next one is due, if none of those under way
/// will wake the loop.
fn start_due(core: &Core, queue: &FetchQueue, fan_out: &FanOut, fetches: &mut Fetches) -> Option<Millis> {
    let shared = core.shared();
    let longest = millis(shared.config.intervals.request);
    while fetches.len() < fan_out.allowed {
        let is_near = |site: &SiteId| shared.is_connected(site);
        let has_answered = |site: &SiteId| shared.view.version(site).is_some();
        match queue.take_due(shared.clock.now(), is_near, has_answered) {
            Ok(site) => {
                let (core, timeout) = (core.clone(), queue.fetch_timeout(&site, longest));
                let started = shared.clock.now();
                // A site that has gone meanwhile needs nothing, nor one whose changes have come.
                let needs_nothing = !shared.view.knows(&site) || shared.view.is_fresh(&site, started, queue.patience());
                fetches.push(
                    async move {
                        let fetched =
                            if needs_nothing { Ok(()) } else { core.fetch_whole_schedule(&site, timeout).await };
                        if let Err(error) = &fetched {
                            debug!(%site, %error, "schedules not fetched");
                        }
                        Fetched { site, succeeded: fetched.is_ok(), started }
                    }
                    .boxed(),
                );
            }
            Err(next_due) => return next_due,
        }
    }
    None
}

/// Queues the site whose schedules were confirmed longest ago, and one without any: in a large grid a new site's schedules are
/// not fetched at once.
fn want_unsure(core: &Core, queue: &FetchQueue) {
    let shared = core.shared();
    let now = shared.clock.now();
    let age_min = u64::try_from(shared.config.intervals.recheck_age.as_millis()).unwrap_or(u64::MAX);
    let unsure = [shared.view.longest_unconfirmed(now, Millis(age_min)), shared.view.any_unknown()];
    for site in unsure.into_iter().flatten() {
        queue.want(&site, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_are_fetched_at_once_while_fetches_fail() {
        let mut fan_out = FanOut::new(8);
        (0..100).for_each(|_| fan_out.ended(true));
        assert_eq!(fan_out.allowed, 8);
        fan_out.ended(false);
        assert_eq!(fan_out.allowed, 4);
        (0..100).for_each(|_| fan_out.ended(false));
        assert_eq!(fan_out.allowed, FAN_OUT_MIN);
        fan_out.ended(true);
        fan_out.ended(true);
        assert_eq!(fan_out.allowed, 3);
        (0..100).for_each(|_| fan_out.ended(true));
        assert_eq!(fan_out.allowed, 8);
        let mut alone = FanOut::new(1);
        alone.ended(false);
        assert_eq!(alone.allowed, 1);
    }
}
