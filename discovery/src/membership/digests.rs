//! Which sites show another digest of revocations than this node.
//!
//! Invariant: no site is asked twice about the same digest, so that sites which show made-up digests cost a few requests a
//! second at most.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use broker::ids::SiteId;
use tokio::sync::Notify;

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
    asked: BTreeMap<SiteId, u64>,
}

impl DifferingDigests {
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

    pub(crate) fn take(&self) -> Option<(SiteId, u64)> {
        let mut sites = self.sites();
        let (site, digest) = sites.waiting.pop_first()?;
        if sites.asked.len() >= ASKED_MAX {
            sites.asked.clear();
        }
        sites.asked.insert(site.clone(), digest);
        Some((site, digest))
    }

    /// A site that did not answer may be asked again.
    pub(crate) fn failed(&self, site: &SiteId) {
        self.sites().asked.remove(site);
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
    fn a_site_is_asked_once_about_a_digest_and_again_when_it_did_not_answer() {
        let differing = DifferingDigests::default();
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
        let differing = DifferingDigests::default();
        for number in 0..WAITING_MAX * 2 {
            differing.note(&SiteId::new(&format!("s{number}")).unwrap(), 1);
        }
        assert_eq!(std::iter::from_fn(|| differing.take()).count(), WAITING_MAX);
    }
}
