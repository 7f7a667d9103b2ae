//! Fetching schedules in the background: of sites that are new, of sites whose changes were missed, and, one after the
//! other, of sites that were not heard of for long, so that even a lost last update is found.
//!
//! Invariant: at most one fetch of a site is under way, at most `repair_fan_out` in all; each waits a random moment
//! first, so that a change that many missed does not bring them all to the site at once; failures back off.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker::{ids::SiteId, time::Millis};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{sync::Notify, time};

use crate::handle::Core;

/// The sites whose schedules are to be fetched.
#[derive(Debug, Clone)]
pub(crate) struct Wanted(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sites: Mutex<BTreeMap<SiteId, Want>>,
    sites_max: usize,
    jitter: Millis,
    changed: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Want {
    not_before: Millis,
    failures: u32,
    is_under_way: bool,
    /// Something was missed while a fetch was under way, which may have come too early to tell of it.
    is_wanted_again: bool,
}

const BACK_OFF_FIRST: Millis = Millis(500);
const BACK_OFF_MAX: Millis = Millis(60_000);
/// After this many failures in a row the site is left to the slow recheck, or to the next sign of life.
const FAILURES_MAX: u32 = 8;
/// How long a background fetch may take.
const FETCH_TIMEOUT: Millis = Millis(5_000);

impl Wanted {
    pub(crate) fn new(sites_max: usize, jitter: Duration) -> Wanted {
        let jitter = Millis(u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX));
        Wanted(Arc::new(Inner { sites: Mutex::new(BTreeMap::new()), sites_max, jitter, changed: Notify::new() }))
    }

    /// Asks for a fetch of the site, soon.
    pub(crate) fn want(&self, site: &SiteId, now: Millis) {
        let mut sites = self.sites();
        if let Some(want) = sites.get_mut(site) {
            want.is_wanted_again |= want.is_under_way;
            return;
        }
        // Above the limit the slow recheck and `find` fetch what is needed.
        if sites.len() < self.0.sites_max {
            let not_before = now + Millis(rand::random_range(0..=self.0.jitter.0));
            let want = Want { not_before, failures: 0, is_under_way: false, is_wanted_again: false };
            sites.insert(site.clone(), want);
            drop(sites);
            self.0.changed.notify_one();
        }
    }

    /// Takes a site that is due, one that `is_near` if there is any, or tells when the next one is.
    fn take_due(&self, now: Millis, is_near: impl Fn(&SiteId) -> bool) -> Result<SiteId, Option<Millis>> {
        let mut sites = self.sites();
        let due = |want: &Want| !want.is_under_way && want.not_before <= now;
        let near = sites.iter().find(|(site, want)| due(want) && is_near(site));
        // Sites that never answered wait behind the others, so that made-up ones hold nobody up for long.
        let far = || sites.iter().filter(|(_, want)| due(want)).min_by_key(|(_, want)| want.failures);
        let chosen = near.or_else(far).map(|(site, _)| site.clone());
        match chosen {
            Some(site) => {
                if let Some(want) = sites.get_mut(&site) {
                    want.is_under_way = true;
                }
                Ok(site)
            }
            None => Err(sites.values().filter(|want| !want.is_under_way).map(|want| want.not_before).min()),
        }
    }

    /// Notes the end of a fetch.
    fn finished(&self, site: &SiteId, now: Millis, succeeded: bool) {
        let mut sites = self.sites();
        let Some(want) = sites.get_mut(site) else { return };
        let jitter = Millis(rand::random_range(0..=self.0.jitter.0));
        want.is_under_way = false;
        if succeeded {
            if !want.is_wanted_again {
                sites.remove(site);
                return;
            }
            *want = Want { not_before: now + jitter, failures: 0, is_under_way: false, is_wanted_again: false };
            return;
        }
        want.failures += 1;
        if want.failures >= FAILURES_MAX {
            sites.remove(site);
            return;
        }
        let back_off = Millis(BACK_OFF_FIRST.0 << want.failures).min(BACK_OFF_MAX);
        want.not_before = now + back_off + jitter;
    }

    fn sites(&self) -> MutexGuard<'_, BTreeMap<SiteId, Want>> {
        // The map is valid after every single operation, so a panic elsewhere does not make it worthless.
        self.0.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fetches what is wanted until it is aborted.
pub(crate) async fn run(core: Core, wanted: Wanted) {
    let mut fetches: FuturesUnordered<BoxFuture<'static, (SiteId, bool)>> = FuturesUnordered::new();
    let mut recheck = time::interval(core.shared().config.intervals.recheck);
    recheck.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        let next_due = start_due(&core, &wanted, &mut fetches);
        let pause = next_due
            .map_or(Duration::from_secs(3600), |due| Duration::from_millis((due - core.shared().clock.now()).0.max(1)));
        tokio::select! {
            () = wanted.0.changed.notified() => {}
            () = time::sleep(pause) => {}
            _ = recheck.tick() => want_longest_unconfirmed(&core, &wanted),
            Some((site, succeeded)) = fetches.next(), if !fetches.is_empty() => {
                wanted.finished(&site, core.shared().clock.now(), succeeded);
            }
        }
    }
}

/// Starts what is due and fits; tells when the next is due, when none is under way that would wake the loop.
fn start_due(
    core: &Core,
    wanted: &Wanted,
    fetches: &mut FuturesUnordered<BoxFuture<'static, (SiteId, bool)>>,
) -> Option<Millis> {
    let shared = core.shared();
    while fetches.len() < shared.config.limits.repair_fan_out {
        let is_near = |site: &SiteId| shared.is_connected(site);
        match wanted.take_due(shared.clock.now(), is_near) {
            Ok(site) => {
                let core = core.clone();
                fetches.push(
                    async move {
                        // A site that has gone meanwhile needs nothing.
                        let succeeded =
                            !core.shared().view.knows(&site) || core.fetch_schedule(&site, FETCH_TIMEOUT).await.is_ok();
                        (site, succeeded)
                    }
                    .boxed(),
                );
            }
            Err(next_due) => return next_due,
        }
    }
    None
}

fn want_longest_unconfirmed(core: &Core, wanted: &Wanted) {
    let shared = core.shared();
    let now = shared.clock.now();
    let age_min = u64::try_from(shared.config.intervals.recheck_age.as_millis()).unwrap_or(u64::MAX);
    if let Some(site) = shared.view.longest_unconfirmed(now, Millis(age_min)) {
        wanted.want(&site, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str) -> SiteId {
        SiteId::new(name).unwrap()
    }

    #[test]
    fn a_site_is_fetched_once_at_a_time_and_again_when_more_was_missed() {
        let wanted = Wanted::new(10, Duration::ZERO);
        wanted.want(&site("a"), Millis(10));
        wanted.want(&site("a"), Millis(11));
        assert_eq!(wanted.take_due(Millis(9), |_| false), Err(Some(Millis(10))));
        assert_eq!(wanted.take_due(Millis(10), |_| false), Ok(site("a")));
        assert_eq!(wanted.take_due(Millis(10), |_| false), Err(None));
        wanted.want(&site("a"), Millis(12));
        wanted.finished(&site("a"), Millis(13), true);
        assert_eq!(wanted.take_due(Millis(13), |_| false), Ok(site("a")));
        wanted.finished(&site("a"), Millis(14), true);
        assert_eq!(wanted.take_due(Millis(99), |_| false), Err(None));
    }

    #[test]
    fn near_sites_come_first_and_failures_back_off_until_given_up() {
        let wanted = Wanted::new(2, Duration::ZERO);
        wanted.want(&site("a"), Millis(0));
        wanted.want(&site("b"), Millis(0));
        wanted.want(&site("above the limit"), Millis(0));
        assert_eq!(wanted.take_due(Millis(0), |site| site.as_str() == "b"), Ok(site("b")));
        let mut now = Millis(0);
        let mut tries = 0;
        loop {
            match wanted.take_due(now, |_| false) {
                Ok(site) => {
                    tries += 1;
                    wanted.finished(&site, now, false);
                }
                Err(Some(due)) => now = due,
                Err(None) => break,
            }
        }
        assert_eq!(tries, FAILURES_MAX);
        assert!(now > Millis(60_000));
    }
}
