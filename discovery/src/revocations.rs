//! Learning revocations: a site whose advert shows another digest than this node's is asked for its list.
//!
//! Who revokes renews its advert at once, which gossip takes to everybody within a second or two; everybody then asks that
//! site directly. Invariant: one fetch is under way at a time, each after a random pause, and no site is asked twice
//! about the same digest, so that sites which show made-up digests cost a few requests a second at most.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker::{ids::SiteId, time::Millis};
use tokio::{
    sync::Notify,
    time::{self, Instant},
};

use crate::{
    codec::{WireAnswer, WireRequest},
    counters::Counter,
    handle::Core,
};

/// Sites that may wait to be asked; those beyond are asked when their next advert comes.
const WAITING_MAX: usize = 64;
/// Sites of which is remembered what they were asked about; when full, all are forgotten.
const ASKED_MAX: usize = 4096;
/// Before each fetch a random part of this, so that not all sites ask the revoking one at the same moment.
const PAUSE_MAX: Duration = Duration::from_millis(400);
const FETCH_TIMEOUT: Millis = Millis(5_000);
/// Pages of half a MiB: room for any list that a node keeps, and an end to a site that never ends.
const PAGES_MAX: usize = 16;
/// This node's own advert shows what it learnt after a random part of this: others have mostly heard it themselves.
const RENEW_WITHIN: Duration = Duration::from_secs(30);

/// The sites that know other revocations.
#[derive(Debug, Default)]
pub(crate) struct Differing {
    sites: Mutex<Sites>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Sites {
    waiting: BTreeMap<SiteId, u64>,
    asked: BTreeMap<SiteId, u64>,
}

impl Differing {
    /// Notes that a site shows a digest that is not this node's.
    pub(crate) fn note(&self, site: &SiteId, digest: u64) {
        let mut sites = self.sites();
        let is_known = sites.asked.get(site) == Some(&digest);
        if !is_known && (sites.waiting.len() < WAITING_MAX || sites.waiting.contains_key(site)) {
            sites.waiting.insert(site.clone(), digest);
            drop(sites);
            self.changed.notify_one();
        }
    }

    fn take(&self) -> Option<(SiteId, u64)> {
        let mut sites = self.sites();
        let (site, digest) = sites.waiting.pop_first()?;
        if sites.asked.len() >= ASKED_MAX {
            sites.asked.clear();
        }
        sites.asked.insert(site.clone(), digest);
        Some((site, digest))
    }

    /// A site that did not answer may be asked again.
    fn failed(&self, site: &SiteId) {
        self.sites().asked.remove(site);
    }

    fn sites(&self) -> MutexGuard<'_, Sites> {
        // Both maps are valid after every single operation, so a panic elsewhere does not make them worthless.
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks sites that know other revocations until it is aborted.
pub(crate) async fn run(core: Core) {
    let shared = core.shared();
    let mut renew_at: Option<Instant> = None;
    loop {
        let Some((site, digest)) = shared.differing.take() else {
            let renew = async {
                match renew_at {
                    Some(at) => time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shared.differing.changed.notified() => {}
                () = renew => {
                    renew_at = None;
                    core.renew_advert();
                }
            }
            continue;
        };
        if digest == shared.config.membership.revocations_digest() {
            continue;
        }
        time::sleep(PAUSE_MAX.mul_f64(rand::random_range(0.0..1.0))).await;
        let Some(news) = fetch(&core, &site).await else {
            shared.differing.failed(&site);
            continue;
        };
        if news > 0 {
            shared.counters.add(Counter::RevocationsLearnt, news as u64);
            shared.drop_non_members();
            renew_at.get_or_insert_with(|| Instant::now() + RENEW_WITHIN.mul_f64(rand::random_range(0.0..1.0)));
        }
    }
}

/// Fetches the list of a site; how many were news, none when it does not answer.
async fn fetch(core: &Core, site: &SiteId) -> Option<usize> {
    let mut news = 0;
    let mut from = 0;
    for _ in 0..PAGES_MAX {
        let request = WireRequest::Revocations { from };
        let Ok(WireAnswer::Revocations { revocations, total }) = core.request(site, request, FETCH_TIMEOUT).await
        else {
            return (news > 0).then_some(news);
        };
        from += u32::try_from(revocations.len()).unwrap_or(u32::MAX);
        news += core.shared().config.membership.hear_revocations(&revocations);
        if from >= total || revocations.is_empty() {
            break;
        }
    }
    Some(news)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_asked_once_about_a_digest_and_again_when_it_did_not_answer() {
        let differing = Differing::default();
        let site = SiteId::new("a").unwrap();
        differing.note(&site, 7);
        differing.note(&site, 8);
        assert_eq!(differing.take(), Some((site.clone(), 8)));
        differing.note(&site, 8);
        assert_eq!(differing.take(), None);
        differing.failed(&site);
        differing.note(&site, 8);
        assert_eq!(differing.take(), Some((site, 8)));
    }

    #[test]
    fn only_so_many_sites_wait() {
        let differing = Differing::default();
        for number in 0..WAITING_MAX * 2 {
            differing.note(&SiteId::new(&format!("s{number}")).unwrap(), 1);
        }
        assert_eq!(std::iter::from_fn(|| differing.take()).count(), WAITING_MAX);
    }
}
