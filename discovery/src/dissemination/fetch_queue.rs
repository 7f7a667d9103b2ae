//! The queue of sites whose schedules are to be fetched. Pure but for its jitter: it gets the time from its callers.
//!
//! After a cut of the network the sites of the other side need not wait out their back-off: a sign of life brings the next
//! fetch of its site forward, a connection with one that failed those of all that failed, and now and then one of these is
//! fetched in any case. Invariant: however many signs of life there are, a site is fetched no sooner than [`RETRY_MIN`] after
//! it failed, is brought forward once in [`SIGN_EVERY`], and all together once in that time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker::{ids::SiteId, time::Millis};
use rand::seq::IteratorRandom as _;
use tokio::sync::Notify;

use crate::{
    admission::{Rate, TokenBucket},
    clock::millis,
    health::PeerHealth,
};

/// The sites whose schedules are to be fetched.
#[derive(Debug, Clone)]
pub(crate) struct FetchQueue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sites: Mutex<Sites>,
    sites_max: usize,
    jitter: Millis,
    patience: Millis,
    changed: Notify,
}

#[derive(Debug)]
struct Sites {
    wants: BTreeMap<SiteId, Want>,
    /// Sites without a fetch under way, in the order in which they are due.
    waiting: BTreeSet<(Millis, SiteId)>,
    /// Sites whose last fetch failed.
    failed: BTreeSet<SiteId>,
    health: PeerHealth,
    /// Spent by fetches of sites that never answered, unless they succeed.
    strangers: TokenBucket,
    /// When the failed sites were last brought forward together.
    reunited_at: Option<Millis>,
    /// When one of the failed sites may be fetched although it is not due.
    scout_at: Millis,
}

#[derive(Debug, Default, Clone, Copy)]
struct Want {
    /// When it is fetched next, unless that is under way.
    due: Millis,
    /// When a sign of its life last brought the next fetch forward.
    hastened_at: Option<Millis>,
    is_under_way: bool,
    /// The fetch under way was paid for, as one that may fail; a success gives it back.
    is_paid_for: bool,
    /// A change was missed during the fetch, whose answer may not have it yet.
    is_wanted_again: bool,
}

/// However alive it seems, a site is not tried again sooner after it failed.
const RETRY_MIN: Millis = Millis(2_000);
/// A site's signs of life bring its fetches forward once in this time, and connections those of all that failed.
const SIGN_EVERY: Millis = Millis(30_000);
/// Sites that failed are not all tried in the same moment.
const REUNION_SPREAD: Millis = Millis(1_000);
/// How often one of the sites that failed is tried, whatever their back-off: so one side of a cut soon finds the other again.
const SCOUT_EVERY: Millis = Millis(5_000);
/// Failures in a second, and at once, of sites that never answered; above it the next ones wait.
const STRANGERS_FAIL_PER_S: u32 = 4;
const STRANGERS_FAIL_AT_ONCE: u32 = 64;
/// How long sites that never answered wait then.
const STRANGERS_WAIT: Millis = Millis(1_000);
/// How long a background fetch may take; twice as long when the one before failed, as far as requests go.
const FETCH_TIMEOUT: Millis = Millis(5_000);

impl FetchQueue {
    /// Keeps at most `sites_max` sites; a fetch waits for up to `jitter`, that of a gap `patience` longer.
    pub(crate) fn new(health: PeerHealth, sites_max: usize, jitter: Duration, patience: Duration) -> FetchQueue {
        let (jitter, patience) = (millis(jitter), millis(patience));
        let sites = Sites {
            wants: BTreeMap::new(),
            waiting: BTreeSet::new(),
            failed: BTreeSet::new(),
            health,
            strangers: TokenBucket::new(Rate::per_s(STRANGERS_FAIL_PER_S, STRANGERS_FAIL_AT_ONCE), Millis(0)),
            reunited_at: None,
            scout_at: SCOUT_EVERY,
        };
        FetchQueue(Arc::new(Inner { sites: Mutex::new(sites), sites_max, jitter, patience, changed: Notify::new() }))
    }

    /// Asks for a fetch of the site, soon.
    pub(crate) fn want(&self, site: &SiteId, now: Millis) {
        self.want_from(site, now);
    }

    /// Whether the site is queued.
    pub(crate) fn wants(&self, site: &SiteId) -> bool {
        self.sites().wants.contains_key(site)
    }

    /// Asks for a fetch of a site of which something was missed, unless it comes meanwhile.
    pub(crate) fn want_missed(&self, site: &SiteId, now: Millis) {
        self.sign_of_life(site, now + self.0.patience);
        self.want_from(site, now + self.0.patience);
    }

    fn want_from(&self, site: &SiteId, from: Millis) {
        let mut sites = self.sites();
        if let Some(want) = sites.wants.get_mut(site) {
            want.is_wanted_again |= want.is_under_way;
            return;
        }
        // Above the limit the slow recheck and `find` fetch what is needed.
        if sites.wants.len() < self.0.sites_max {
            let due = from + self.jitter();
            sites.wants.insert(site.clone(), Want { due, ..Want::default() });
            sites.waiting.insert((due, site.clone()));
            drop(sites);
            self.0.changed.notify_one();
        }
    }

    /// Notes a sign of life of a site: something that it has signed just now. If the last fetch failed, the next one comes
    /// soon.
    pub(crate) fn sign_of_life(&self, site: &SiteId, now: Millis) {
        if self.sites().hasten(site, now, self.jitter()) {
            self.0.changed.notify_one();
        }
    }

    /// Notes a connection with a site that there was none with. If it did not answer, the network may have been cut, and be
    /// whole again: others that did not answer are tried as well.
    pub(crate) fn connected(&self, site: &SiteId, now: Millis) {
        let mut sites = self.sites();
        let mut is_changed = sites.hasten(site, now, self.jitter());
        if sites.failed.contains(site) && sites.reunited_at.is_none_or(|last| last + SIGN_EVERY <= now) {
            sites.reunited_at = Some(now);
            for other in sites.failed.clone() {
                let spread = Millis(rand::random_range(0..=REUNION_SPREAD.0));
                is_changed |= sites.bring_forward(&other, now, spread);
            }
        }
        drop(sites);
        if is_changed {
            self.0.changed.notify_one();
        }
    }

    /// Waits until something is to be fetched sooner than [`FetchQueue::take_due`] returned.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// How long what was missed has to come by itself.
    pub(crate) fn patience(&self) -> Millis {
        self.0.patience
    }

    fn jitter(&self) -> Millis {
        Millis(rand::random_range(0..=self.0.jitter.0))
    }

    /// Takes a site that is due, one that `is_near` if there is any, or returns when the next one is. Those that never
    /// answered wait while their budget is spent.
    pub(crate) fn take_due(
        &self,
        now: Millis,
        is_near: impl Fn(&SiteId) -> bool,
        has_answered: impl Fn(&SiteId) -> bool,
    ) -> Result<SiteId, Option<Millis>> {
        let mut sites = self.sites();
        let sites = &mut *sites;
        let due = || sites.waiting.iter().take_while(|(at, _)| *at <= now);
        let may_fail = !sites.strangers.is_empty(now);
        let near = due().find(|(_, site)| is_near(site));
        let failures = |site: &SiteId| sites.health.failures(site);
        // Sites that failed wait behind the others, so that made-up ones do not hold up real ones for long.
        let far = || due().filter(|(_, site)| may_fail || has_answered(site)).min_by_key(|(_, site)| failures(site));
        let scout = || sites.scout(now, &has_answered);
        if let Some(chosen) = near.or_else(far).cloned().or_else(scout) {
            sites.waiting.remove(&chosen);
            if let Some(want) = sites.wants.get_mut(&chosen.1) {
                // No failed site needs to be fetched early while one of them is fetched anyway.
                if sites.failed.contains(&chosen.1) {
                    sites.scout_at = now + SCOUT_EVERY;
                }
                want.is_under_way = true;
                // Paid for now and not when it has failed: several are under way at once.
                want.is_paid_for = !has_answered(&chosen.1) && sites.strangers.take(1, now);
            }
            return Ok(chosen.1);
        }
        let due: Vec<(Millis, SiteId)> = due().cloned().collect();
        for (_, site) in due {
            sites.wait_until(&site, now + STRANGERS_WAIT);
        }
        let next = sites.waiting.first().map(|(at, _)| *at);
        Err(next.into_iter().chain(sites.next_scout(&has_answered)).min())
    }

    /// Notes the end of a fetch.
    pub(crate) fn finished(&self, site: &SiteId, now: Millis, succeeded: bool) {
        let mut sites = self.sites();
        let sites = &mut *sites;
        let Some(want) = sites.wants.get_mut(site) else { return };
        let jitter = self.jitter();
        want.is_under_way = false;
        let was_paid_for = std::mem::take(&mut want.is_paid_for);
        let next = if succeeded {
            if was_paid_for {
                sites.strangers.give_back(1);
            }
            let is_wanted_again = std::mem::take(&mut want.is_wanted_again);
            sites.failed.remove(site);
            sites.health.answered(site);
            *want = Want { due: want.due, hastened_at: want.hastened_at, ..Want::default() };
            is_wanted_again.then_some(now + jitter)
        } else {
            sites.failed.insert(site.clone());
            // The request has failed already, unless this node was too busy to send it.
            sites.health.failed(site, now);
            let (_, retry_at) = sites.health.back_off(site);
            Some(retry_at.max(now + RETRY_MIN) + jitter)
        };
        match next {
            Some(next) => sites.wait_until(site, next),
            None => {
                sites.wants.remove(site);
            }
        }
    }

    /// How long the next fetch of the site may take, when no request may take longer than `longest`.
    pub(crate) fn fetch_timeout(&self, site: &SiteId, longest: Millis) -> Millis {
        let has_failed = self.sites().failed.contains(site);
        if has_failed { Millis(FETCH_TIMEOUT.0 * 2).min(longest.max(FETCH_TIMEOUT)) } else { FETCH_TIMEOUT }
    }

    fn sites(&self) -> MutexGuard<'_, Sites> {
        // They are valid after every single operation, so a panic elsewhere does not make them worthless.
        self.0.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sites {
    /// Has a site that waits do so until `due`.
    fn wait_until(&mut self, site: &SiteId, due: Millis) {
        if let Some(want) = self.wants.get_mut(site) {
            self.waiting.remove(&(want.due, site.clone()));
            want.due = due;
            self.waiting.insert((due, site.clone()));
        }
    }

    /// Lets a site that failed be tried `wait` after it may be; true if that is sooner than it was due.
    fn bring_forward(&mut self, site: &SiteId, now: Millis, wait: Millis) -> bool {
        let failed = self.wants.get(site).filter(|want| !want.is_under_way && self.failed.contains(site));
        let may_retry = self.health.back_off(site).0 + RETRY_MIN;
        let sooner = failed.map(|want| (now.max(may_retry) + wait, want.due));
        let sooner = sooner.filter(|(due, was_due)| due < was_due).map(|(due, _)| due);
        if let Some(due) = sooner {
            self.wait_until(site, due);
        }
        sooner.is_some()
    }

    /// Brings a site forward that has shown a sign of life, unless one did so just now.
    fn hasten(&mut self, site: &SiteId, now: Millis, wait: Millis) -> bool {
        let lately = |want: &Want| want.hastened_at.is_some_and(|last| now < last + SIGN_EVERY);
        let is_hastened = !self.wants.get(site).is_none_or(lately) && self.bring_forward(site, now, wait);
        if let Some(want) = self.wants.get_mut(site).filter(|_| is_hastened) {
            want.hastened_at = Some(now);
        }
        is_hastened
    }

    /// Sites that have answered once and then failed, as they wait, and when each may be tried although it is not due.
    fn scouts(&self, has_answered: impl Fn(&SiteId) -> bool) -> impl Iterator<Item = (Millis, (Millis, &SiteId))> {
        let waits = move |site| {
            let want = self.wants.get(site).filter(|want| !want.is_under_way && has_answered(site))?;
            Some((self.scout_at.max(self.health.back_off(site).0 + RETRY_MIN), (want.due, site)))
        };
        self.failed.iter().filter_map(waits)
    }

    /// One of them, if it is time.
    fn scout(&self, now: Millis, has_answered: impl Fn(&SiteId) -> bool) -> Option<(Millis, SiteId)> {
        let ready = self.scouts(has_answered).filter(|(at, _)| *at <= now);
        ready.map(|(_, waits)| waits).choose(&mut rand::rng()).map(|(due, site)| (due, site.clone()))
    }

    fn next_scout(&self, has_answered: impl Fn(&SiteId) -> bool) -> Option<Millis> {
        self.scouts(has_answered).map(|(at, _)| at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{BACK_OFF_FIRST, BACK_OFF_MAX};

    fn site(name: &str) -> SiteId {
        SiteId::new(name).unwrap()
    }

    #[test]
    fn a_site_is_fetched_once_at_a_time_and_again_when_more_was_missed() {
        let queue = FetchQueue::new(PeerHealth::default(), 10, Duration::ZERO, Duration::ZERO);
        queue.want(&site("a"), Millis(10));
        queue.want(&site("a"), Millis(11));
        assert_eq!(queue.take_due(Millis(9), |_| false, |_| true), Err(Some(Millis(10))));
        assert_eq!(queue.take_due(Millis(10), |_| false, |_| true), Ok(site("a")));
        assert_eq!(queue.take_due(Millis(10), |_| false, |_| true), Err(None));
        queue.want(&site("a"), Millis(12));
        queue.finished(&site("a"), Millis(13), true);
        assert_eq!(queue.take_due(Millis(13), |_| false, |_| true), Ok(site("a")));
        queue.finished(&site("a"), Millis(14), true);
        assert_eq!(queue.take_due(Millis(99), |_| false, |_| true), Err(None));
    }

    #[test]
    fn a_site_that_did_not_answer_in_time_gets_more_time() {
        let queue = FetchQueue::new(PeerHealth::default(), 10, Duration::ZERO, Duration::ZERO);
        queue.want(&site("a"), Millis(0));
        assert_eq!(queue.fetch_timeout(&site("a"), Millis(10_000)), FETCH_TIMEOUT);
        assert_eq!(queue.take_due(Millis(0), |_| false, |_| true), Ok(site("a")));
        queue.finished(&site("a"), Millis(5_000), false);
        assert_eq!(queue.fetch_timeout(&site("a"), Millis(10_000)), Millis(10_000));
        assert_eq!(queue.fetch_timeout(&site("a"), Millis(6_000)), Millis(6_000));
    }

    #[test]
    fn what_was_missed_has_time_to_come_by_itself() {
        let queue = FetchQueue::new(PeerHealth::default(), 10, Duration::ZERO, Duration::from_secs(1));
        queue.want_missed(&site("missed"), Millis(10));
        queue.want(&site("new"), Millis(10));
        assert_eq!(queue.take_due(Millis(10), |_| false, |_| true), Ok(site("new")));
        assert_eq!(queue.take_due(Millis(1009), |_| false, |_| true), Err(Some(Millis(1010))));
        assert_eq!(queue.take_due(Millis(1010), |_| false, |_| true), Ok(site("missed")));
    }

    #[test]
    fn near_sites_come_first_and_failures_back_off() {
        let queue = FetchQueue::new(PeerHealth::default(), 2, Duration::ZERO, Duration::ZERO);
        queue.want(&site("a"), Millis(0));
        queue.want(&site("b"), Millis(0));
        queue.want(&site("above the limit"), Millis(0));
        assert_eq!(queue.take_due(Millis(0), |site| site.as_str() == "b", |_| true), Ok(site("b")));
        let mut now = Millis(0);
        let mut fetched_at = Vec::new();
        while fetched_at.len() < 10 {
            match queue.take_due(now, |_| false, |_| false) {
                Ok(site) => {
                    queue.finished(&site, now, false);
                    fetched_at.push(now);
                }
                Err(due) => now = due.unwrap(),
            }
        }
        let pauses: Vec<Millis> = fetched_at.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(pauses[..3], [RETRY_MIN, RETRY_MIN, Millis(8 * BACK_OFF_FIRST.0)]);
        assert!(pauses.is_sorted() && pauses[8] == BACK_OFF_MAX, "{pauses:?}");
    }

    #[test]
    fn sites_that_never_answered_spend_their_budget_and_hold_up_nobody_else() {
        let queue = FetchQueue::new(PeerHealth::default(), 10_000, Duration::ZERO, Duration::ZERO);
        let now = Millis(100_000);
        for number in 0..1_000 {
            queue.want(&site(&format!("made-up-{number}")), now);
        }
        let has_answered = |site: &SiteId| site.as_str() == "honest";
        let mut fetched = 0;
        while let Ok(site) = queue.take_due(now, |_| false, has_answered) {
            fetched += 1;
            queue.finished(&site, now, false);
        }
        assert_eq!(fetched, STRANGERS_FAIL_AT_ONCE);
        queue.want(&site("honest"), now);
        queue.want(&site("near"), now);
        let is_near = |site: &SiteId| site.as_str() == "near";
        assert_eq!(queue.take_due(now, is_near, has_answered), Ok(site("near")));
        assert_eq!(queue.take_due(now, is_near, has_answered), Ok(site("honest")));
        assert_eq!(queue.take_due(now, is_near, has_answered), Err(Some(now + STRANGERS_WAIT)));
        let later = (1..=10).map(|second| now + Millis(second * 1_000));
        let fetched: Vec<u32> = later
            .map(|now| {
                let due = std::iter::from_fn(|| queue.take_due(now, |_| false, has_answered).ok());
                due.map(|site| queue.finished(&site, now, false)).count() as u32
            })
            .collect();
        assert!(fetched.iter().all(|count| *count <= STRANGERS_FAIL_PER_S), "{fetched:?}");
    }
    /// Of sites that failed `failures` times, the last time at the moment that is told.
    fn failing(names: &[&str], failures: u32) -> (FetchQueue, Millis) {
        let queue = FetchQueue::new(PeerHealth::default(), 100, Duration::ZERO, Duration::ZERO);
        names.iter().for_each(|name| queue.want(&site(name), Millis(0)));
        let mut now = Millis(0);
        for _ in 0..failures {
            now = now + BACK_OFF_MAX;
            while let Ok(site) = queue.take_due(now, |_| false, |_| false) {
                queue.finished(&site, now, false);
            }
        }
        (queue, now)
    }

    #[test]
    fn a_sign_of_life_ends_the_back_off_once_in_a_while() {
        let (queue, failed) = failing(&["a", "b"], 6);
        let due = |now| queue.take_due(now, |_| false, |_| false);
        assert_eq!(due(failed), Err(Some(failed + Millis(500 << 6))));
        queue.sign_of_life(&site("a"), failed + Millis(10));
        assert_eq!(due(failed + Millis(10)), Err(Some(failed + RETRY_MIN)), "not at once");
        let again = failed + RETRY_MIN;
        assert_eq!(due(again), Ok(site("a")));
        queue.finished(&site("a"), again, false);
        for after in [0, 10_000, 20_000] {
            queue.sign_of_life(&site("a"), again + Millis(after));
            assert_eq!(due(again), Err(Some(failed + Millis(500 << 6))), "only b, whatever a does");
        }
        let later = failed + Millis(10) + SIGN_EVERY;
        assert_eq!(due(later).unwrap_err(), Some(failed + Millis(500 << 6)));
        queue.sign_of_life(&site("a"), later);
        assert_eq!(due(later), Ok(site("a")));
        queue.finished(&site("a"), later, true);
        assert!(!queue.wants(&site("a")) && queue.wants(&site("b")));
    }

    #[test]
    fn a_site_that_is_back_brings_all_others_that_failed_forward_once_in_a_while() {
        let (queue, failed) = failing(&["a", "b", "c"], 6);
        let now = failed + RETRY_MIN;
        queue.connected(&site("never asked for"), now);
        assert_eq!(queue.take_due(now, |_| false, |_| false), Err(Some(failed + Millis(500 << 6))));
        queue.connected(&site("a"), now);
        let at_once = now + REUNION_SPREAD;
        let fetch_all = |at| {
            let due = std::iter::from_fn(|| queue.take_due(at, |_| false, |_| false).ok());
            let mut due: Vec<SiteId> = due.inspect(|site| queue.finished(site, at, false)).collect();
            due.sort_unstable();
            due
        };
        assert_eq!(fetch_all(at_once), [site("a"), site("b"), site("c")]);
        // Somebody who comes and goes makes this node try nobody but himself, and seldom.
        let mut tries = 0;
        for second in 1..SIGN_EVERY.0 / 1_000 {
            let at = now + Millis(second * 1_000);
            queue.connected(&site("a"), at);
            tries += fetch_all(at).len();
        }
        assert_eq!(tries, 0);
    }

    #[test]
    fn one_of_those_that_failed_is_tried_now_and_then_and_keeps_its_back_off() {
        let (queue, failed) = failing(&["a", "b"], 6);
        let due = failed + Millis(500 << 6);
        let mut tries = Vec::new();
        let mut now = failed;
        while now < due {
            match queue.take_due(now, |_| false, |_| true) {
                Ok(site) => {
                    queue.finished(&site, now, false);
                    tries.push(now);
                }
                Err(next) => now = next.unwrap(),
            }
        }
        let expected = (due - failed).0 / SCOUT_EVERY.0;
        assert!((expected..=expected + 1).contains(&(tries.len() as u64)), "{tries:?}");
        assert!(tries.windows(2).all(|two| two[1] - two[0] >= SCOUT_EVERY));
        assert!(tries.iter().all(|at| *at >= failed + RETRY_MIN));
        assert!(queue.take_due(due, |_| false, |_| true).is_ok(), "nobody has lost a turn of his own");
    }
}
