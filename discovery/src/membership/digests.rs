//! Which sites show another digest of revocations than this node.
//!
//! Invariant: no site is asked twice about the same digest, and none again within [`ASK_EVERY`] unless it had something new, so
//! that sites which show made-up digests cost a request a minute.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use broker::{ids::SiteId, time::Millis};
use tokio::sync::Notify;

/// Between two requests to a site that had nothing new.
pub(crate) const ASK_EVERY: Millis = Millis(60_000);
/// Sites that may wait to be asked; those beyond are asked when their next advert comes.
const WAITING_MAX: usize = 64;
/// Sites of which is remembered what they were asked about; when full, all are forgotten.
const ASKED_MAX: usize = 4096;

/// Sites that show another digest of revocations than this node, and those asked already.
#[derive(Debug, Default)]
pub(crate) struct DifferingDigests {
    sites: Mutex<Sites>,
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct Sites {
    waiting: BTreeMap<SiteId, u64>,
    asked: BTreeMap<SiteId, Asked>,
}

#[derive(Debug)]
struct Asked {
    /// About what; nothing when it did not answer.
    digest: Option<u64>,
    again_at: Millis,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// To ask this site, which shows this digest.
    Ask(SiteId, u64),
    /// To wait until then, or for a change.
    Wait(Option<Millis>),
}

impl DifferingDigests {
    /// Notes that a site shows a digest that is not this node's.
    pub(crate) fn note(&self, site: &SiteId, digest: u64) {
        let mut sites = self.sites();
        let is_known = sites.asked.get(site).is_some_and(|asked| asked.digest == Some(digest));
        if !is_known && (sites.waiting.len() < WAITING_MAX || sites.waiting.contains_key(site)) {
            sites.waiting.insert(site.clone(), digest);
            drop(sites);
            self.changed.notify_one();
        }
    }

    /// Takes a site that may be asked.
    pub(crate) fn take(&self, now: Millis) -> Next {
        let mut sites = self.sites();
        let again_at = |site: &SiteId| sites.asked.get(site).map_or(Millis(0), |asked| asked.again_at);
        let Some((at, site)) = sites.waiting.keys().map(|site| (again_at(site), site.clone())).min() else {
            return Next::Wait(None);
        };
        if at > now {
            return Next::Wait(Some(at));
        }
        if sites.asked.len() >= ASKED_MAX {
            sites.asked.clear();
        }
        let digest = sites.waiting.remove(&site).unwrap_or_default();
        sites.asked.insert(site.clone(), Asked { digest: Some(digest), again_at: now + ASK_EVERY });
        Next::Ask(site, digest)
    }

    /// A site that did not answer may be asked about the same again, in its time.
    pub(crate) fn failed(&self, site: &SiteId) {
        if let Some(asked) = self.sites().asked.get_mut(site) {
            asked.digest = None;
        }
    }

    /// A site that had something new need not wait.
    pub(crate) fn had_news(&self, site: &SiteId) {
        if let Some(asked) = self.sites().asked.get_mut(site) {
            asked.again_at = Millis(0);
        }
    }

    fn sites(&self) -> MutexGuard<'_, Sites> {
        // Both maps are valid after every single operation, so a panic elsewhere does not make them worthless.
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_asked_once_about_a_digest_and_once_a_minute_in_all() {
        let differing = DifferingDigests::default();
        let site = SiteId::new("a").unwrap();
        differing.note(&site, 7);
        differing.note(&site, 8);
        assert_eq!(differing.take(Millis(5)), Next::Ask(site.clone(), 8));
        differing.note(&site, 8);
        assert_eq!(differing.take(Millis(5)), Next::Wait(None), "it was asked about that");
        let again_at = Millis(5) + ASK_EVERY;
        for digest in 9..1000 {
            differing.note(&site, digest);
            assert_eq!(differing.take(Millis(digest)), Next::Wait(Some(again_at)));
        }
        assert_eq!(differing.take(again_at), Next::Ask(site.clone(), 999));
        differing.failed(&site);
        differing.note(&site, 999);
        assert_eq!(differing.take(again_at + ASK_EVERY), Next::Ask(site.clone(), 999));
        differing.had_news(&site);
        differing.note(&site, 1000);
        assert_eq!(differing.take(again_at + ASK_EVERY), Next::Ask(site, 1000));
    }

    #[test]
    fn only_so_many_sites_wait_and_none_waits_behind_one_that_must() {
        let differing = DifferingDigests::default();
        let site = |number: usize| SiteId::new(&format!("s{number:03}")).unwrap();
        for number in 0..WAITING_MAX * 2 {
            differing.note(&site(number), 1);
        }
        for number in 0..WAITING_MAX {
            assert_eq!(differing.take(Millis(0)), Next::Ask(site(number), 1));
        }
        assert_eq!(differing.take(Millis(0)), Next::Wait(None));
        differing.note(&site(0), 2);
        differing.note(&site(WAITING_MAX), 1);
        assert_eq!(differing.take(Millis(0)), Next::Ask(site(WAITING_MAX), 1));
    }
}
