//! Fetching schedules in the background: of sites that are new, of sites whose changes were missed, and, one after the
//! other, of sites that were not heard of for long, so that even a lost last update is found. In a large grid new sites
//! wait for such a turn as well, or for a plan that needs them.
//!
//! Invariant: at most one fetch of a site is under way, at most `repair_fan_out` in all; each waits a random moment
//! first, so that a change that many missed does not bring them all to the site at once; failures back off, and fewer are
//! under way at once until they succeed again. A gap waits longer, since what was missed is mostly on its way: whoever
//! asked a site to confirm hears of the new version before gossip brings the change. What gossip has brought meanwhile
//! is not fetched. Anybody can make up sites that never answer, so the failures of sites that never did have a budget of
//! their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker::{ids::SiteId, time::Millis};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{sync::Notify, time};

use crate::{handle::Core, rate::TokenBucket, shared::millis};

/// The sites whose schedules are to be fetched.
#[derive(Debug, Clone)]
pub(crate) struct Wanted(Arc<Inner>);

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
    /// Those of which no fetch is under way, the first that is due first.
    waiting: BTreeSet<(Millis, SiteId)>,
    /// Spent by fetches of sites that never answered, unless they succeed.
    failures: TokenBucket,
}

#[derive(Debug, Default, Clone, Copy)]
struct Want {
    failures: u32,
    is_under_way: bool,
    /// The fetch under way was paid for, as one that may fail; a success gives it back.
    is_paid_for: bool,
    /// Something was missed while a fetch was under way, which may have come too early to tell of it.
    is_wanted_again: bool,
}

const BACK_OFF_FIRST: Millis = Millis(500);
const BACK_OFF_MAX: Millis = Millis(60_000);
/// After this many failures in a row the site is left to the slow recheck, or to the next sign of life.
const FAILURES_MAX: u32 = 8;
/// Failures in a second, and at once, of sites that never answered; above it the next ones wait.
const STRANGERS_FAIL_PER_S: u64 = 4;
const STRANGERS_FAIL_AT_ONCE: u64 = 64;
/// How long they wait.
const STRANGERS_WAIT: Millis = Millis(1_000);
/// How long a background fetch may take; twice as long when the one before failed, as far as requests go.
const FETCH_TIMEOUT: Millis = Millis(5_000);
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

impl Wanted {
    /// Keeps at most `sites_max` sites; a fetch waits for up to `jitter`, that of a gap `patience` longer.
    pub(crate) fn new(sites_max: usize, jitter: Duration, patience: Duration) -> Wanted {
        let (jitter, patience) = (millis(jitter), millis(patience));
        let failures = TokenBucket::new(STRANGERS_FAIL_PER_S, STRANGERS_FAIL_AT_ONCE, Millis(0));
        let sites = Sites { wants: BTreeMap::new(), waiting: BTreeSet::new(), failures };
        Wanted(Arc::new(Inner { sites: Mutex::new(sites), sites_max, jitter, patience, changed: Notify::new() }))
    }

    /// Asks for a fetch of the site, soon.
    pub(crate) fn want(&self, site: &SiteId, now: Millis) {
        self.want_from(site, now);
    }

    /// Whether the site is to be fetched.
    pub(crate) fn wants(&self, site: &SiteId) -> bool {
        self.sites().wants.contains_key(site)
    }

    /// Asks for a fetch of a site of which something was missed, unless it comes meanwhile.
    pub(crate) fn want_missed(&self, site: &SiteId, now: Millis) {
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
            let not_before = from + Millis(rand::random_range(0..=self.0.jitter.0));
            sites.wants.insert(site.clone(), Want::default());
            sites.waiting.insert((not_before, site.clone()));
            drop(sites);
            self.0.changed.notify_one();
        }
    }

    /// Takes a site that is due, one that `is_near` if there is any, or tells when the next one is. Those that never
    /// answered wait while their budget is spent.
    fn take_due(
        &self,
        now: Millis,
        is_near: impl Fn(&SiteId) -> bool,
        has_answered: impl Fn(&SiteId) -> bool,
    ) -> Result<SiteId, Option<Millis>> {
        let mut sites = self.sites();
        let sites = &mut *sites;
        let due = || sites.waiting.iter().take_while(|(at, _)| *at <= now);
        let may_fail = sites.failures.available(now) > 0;
        let near = due().find(|(_, site)| is_near(site));
        let failures = |site: &SiteId| sites.wants.get(site).map_or(0, |want| want.failures);
        // Sites that failed wait behind the others, so that made-up ones hold nobody up for long.
        let far = || due().filter(|(_, site)| may_fail || has_answered(site)).min_by_key(|(_, site)| failures(site));
        if let Some(chosen) = near.or_else(far).cloned() {
            sites.waiting.remove(&chosen);
            if let Some(want) = sites.wants.get_mut(&chosen.1) {
                want.is_under_way = true;
                // Paid for now and not when it has failed: several are under way at once.
                want.is_paid_for = !has_answered(&chosen.1) && sites.failures.take(1, now);
            }
            return Ok(chosen.1);
        }
        let due: Vec<(Millis, SiteId)> = due().cloned().collect();
        for due in due {
            sites.waiting.remove(&due);
            sites.waiting.insert((now + STRANGERS_WAIT, due.1));
        }
        Err(sites.waiting.first().map(|(at, _)| *at))
    }

    /// Notes the end of a fetch.
    fn finished(&self, site: &SiteId, now: Millis, succeeded: bool) {
        let mut sites = self.sites();
        let sites = &mut *sites;
        let Some(want) = sites.wants.get_mut(site) else { return };
        let jitter = Millis(rand::random_range(0..=self.0.jitter.0));
        want.is_under_way = false;
        let was_paid_for = std::mem::take(&mut want.is_paid_for);
        let next = if succeeded {
            if was_paid_for {
                sites.failures.give_back(1);
            }
            let is_wanted_again = std::mem::take(&mut want.is_wanted_again);
            want.failures = 0;
            is_wanted_again.then_some(now + jitter)
        } else {
            want.failures += 1;
            let back_off = Millis(BACK_OFF_FIRST.0 << want.failures).min(BACK_OFF_MAX);
            (want.failures < FAILURES_MAX).then_some(now + back_off + jitter)
        };
        match next {
            Some(next) => {
                sites.waiting.insert((next, site.clone()));
            }
            None => {
                sites.wants.remove(site);
            }
        }
    }

    /// How long the next fetch of the site may take, when no request may take longer than `longest`.
    fn fetch_timeout(&self, site: &SiteId, longest: Millis) -> Millis {
        let has_failed = self.sites().wants.get(site).is_some_and(|want| want.failures > 0);
        if has_failed { Millis(FETCH_TIMEOUT.0 * 2).min(longest.max(FETCH_TIMEOUT)) } else { FETCH_TIMEOUT }
    }

    fn sites(&self) -> MutexGuard<'_, Sites> {
        // They are valid after every single operation, so a panic elsewhere does not make them worthless.
        self.0.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fetch that has ended.
struct Fetched {
    site: SiteId,
    succeeded: bool,
    started: Millis,
}

type Fetches = FuturesUnordered<BoxFuture<'static, Fetched>>;

/// Fetches what is wanted until it is aborted.
pub(crate) async fn run(core: Core, wanted: Wanted) {
    let mut fetches: Fetches = FuturesUnordered::new();
    let mut rests_until = Millis(0);
    let mut recheck = time::interval(core.shared().config.intervals.recheck);
    recheck.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    let mut fan_out = FanOut::new(core.shared().config.limits.repair_fan_out);
    loop {
        let next_due = start_due(&core, &wanted, &fan_out, &mut fetches);
        let pause = next_due
            .map_or(Duration::from_secs(3600), |due| Duration::from_millis((due - core.shared().clock.now()).0.max(1)));
        tokio::select! {
            () = wanted.0.changed.notified() => {}
            () = time::sleep(pause) => {}
            _ = recheck.tick() => if core.shared().clock.now() >= rests_until {
                want_unsure(&core, &wanted);
            },
            Some(Fetched { site, succeeded, started }) = fetches.next(), if !fetches.is_empty() => {
                let now = core.shared().clock.now();
                if succeeded {
                    rests_until = now + Millis((now - started).0.saturating_mul(RECHECK_REST)).min(RECHECK_REST_MAX);
                }
                fan_out.ended(succeeded);
                wanted.finished(&site, now, succeeded);
            }
        }
    }
}

/// Starts what is due and fits; tells when the next is due, when none is under way that would wake the loop.
fn start_due(core: &Core, wanted: &Wanted, fan_out: &FanOut, fetches: &mut Fetches) -> Option<Millis> {
    let shared = core.shared();
    let longest = millis(shared.config.intervals.request);
    while fetches.len() < fan_out.allowed {
        let is_near = |site: &SiteId| shared.is_connected(site);
        let has_answered = |site: &SiteId| shared.view.version(site).is_some();
        match wanted.take_due(shared.clock.now(), is_near, has_answered) {
            Ok(site) => {
                let (core, timeout) = (core.clone(), wanted.fetch_timeout(&site, longest));
                let started = shared.clock.now();
                // A site that has gone meanwhile needs nothing, nor one whose changes have come.
                let needs_nothing =
                    !shared.view.knows(&site) || shared.view.is_fresh(&site, started, wanted.0.patience);
                fetches.push(
                    async move {
                        let succeeded = needs_nothing || core.fetch_schedule(&site, timeout).await.is_ok();
                        Fetched { site, succeeded, started }
                    }
                    .boxed(),
                );
            }
            Err(next_due) => return next_due,
        }
    }
    None
}

/// Asks for the schedules that were confirmed longest ago, and for some that are not known at all: those of a large grid's
/// sites are not fetched when they are met.
fn want_unsure(core: &Core, wanted: &Wanted) {
    let shared = core.shared();
    let now = shared.clock.now();
    let age_min = u64::try_from(shared.config.intervals.recheck_age.as_millis()).unwrap_or(u64::MAX);
    let unsure = [shared.view.longest_unconfirmed(now, Millis(age_min)), shared.view.any_unknown()];
    for site in unsure.into_iter().flatten() {
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
        let wanted = Wanted::new(10, Duration::ZERO, Duration::ZERO);
        wanted.want(&site("a"), Millis(10));
        wanted.want(&site("a"), Millis(11));
        assert_eq!(wanted.take_due(Millis(9), |_| false, |_| true), Err(Some(Millis(10))));
        assert_eq!(wanted.take_due(Millis(10), |_| false, |_| true), Ok(site("a")));
        assert_eq!(wanted.take_due(Millis(10), |_| false, |_| true), Err(None));
        wanted.want(&site("a"), Millis(12));
        wanted.finished(&site("a"), Millis(13), true);
        assert_eq!(wanted.take_due(Millis(13), |_| false, |_| true), Ok(site("a")));
        wanted.finished(&site("a"), Millis(14), true);
        assert_eq!(wanted.take_due(Millis(99), |_| false, |_| true), Err(None));
    }

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

    #[test]
    fn whoever_did_not_answer_in_time_gets_more_time() {
        let wanted = Wanted::new(10, Duration::ZERO, Duration::ZERO);
        wanted.want(&site("a"), Millis(0));
        assert_eq!(wanted.fetch_timeout(&site("a"), Millis(10_000)), FETCH_TIMEOUT);
        assert_eq!(wanted.take_due(Millis(0), |_| false, |_| true), Ok(site("a")));
        wanted.finished(&site("a"), Millis(5_000), false);
        assert_eq!(wanted.fetch_timeout(&site("a"), Millis(10_000)), Millis(10_000));
        assert_eq!(wanted.fetch_timeout(&site("a"), Millis(6_000)), Millis(6_000));
    }

    #[test]
    fn what_was_missed_has_time_to_come_by_itself() {
        let wanted = Wanted::new(10, Duration::ZERO, Duration::from_secs(1));
        wanted.want_missed(&site("missed"), Millis(10));
        wanted.want(&site("new"), Millis(10));
        assert_eq!(wanted.take_due(Millis(10), |_| false, |_| true), Ok(site("new")));
        assert_eq!(wanted.take_due(Millis(1009), |_| false, |_| true), Err(Some(Millis(1010))));
        assert_eq!(wanted.take_due(Millis(1010), |_| false, |_| true), Ok(site("missed")));
    }

    #[test]
    fn near_sites_come_first_and_failures_back_off_until_given_up() {
        let wanted = Wanted::new(2, Duration::ZERO, Duration::ZERO);
        wanted.want(&site("a"), Millis(0));
        wanted.want(&site("b"), Millis(0));
        wanted.want(&site("above the limit"), Millis(0));
        assert_eq!(wanted.take_due(Millis(0), |site| site.as_str() == "b", |_| true), Ok(site("b")));
        let mut now = Millis(0);
        let mut tries = 0;
        loop {
            match wanted.take_due(now, |_| false, |_| true) {
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

    #[test]
    fn sites_that_never_answered_spend_their_budget_and_hold_up_nobody_else() {
        let wanted = Wanted::new(10_000, Duration::ZERO, Duration::ZERO);
        let now = Millis(100_000);
        for number in 0..1_000 {
            wanted.want(&site(&format!("made-up-{number}")), now);
        }
        let has_answered = |site: &SiteId| site.as_str() == "honest";
        let mut fetched = 0;
        while let Ok(site) = wanted.take_due(now, |_| false, has_answered) {
            fetched += 1;
            wanted.finished(&site, now, false);
        }
        assert_eq!(fetched, STRANGERS_FAIL_AT_ONCE);
        wanted.want(&site("honest"), now);
        wanted.want(&site("near"), now);
        let is_near = |site: &SiteId| site.as_str() == "near";
        assert_eq!(wanted.take_due(now, is_near, has_answered), Ok(site("near")));
        assert_eq!(wanted.take_due(now, is_near, has_answered), Ok(site("honest")));
        assert_eq!(wanted.take_due(now, is_near, has_answered), Err(Some(now + STRANGERS_WAIT)));
        let later = (1..=10).map(|second| now + Millis(second * 1_000));
        let fetched: Vec<u64> = later
            .map(|now| {
                let due = std::iter::from_fn(|| wanted.take_due(now, |_| false, has_answered).ok());
                due.map(|site| wanted.finished(&site, now, false)).count() as u64
            })
            .collect();
        assert!(fetched.iter().all(|count| *count <= STRANGERS_FAIL_PER_S), "{fetched:?}");
    }
}
