//! Which sites have not answered this node lately, so that not every request finds out anew.
//!
//! Invariant: an entry lives for [`SILENCE_REMEMBERED`] after the last silence, or until the site answers; there are never
//! more than there are sites in the view.

use std::{collections::BTreeSet, sync::Arc};

use broker::{ids::SiteId, time::Millis};
use dashmap::DashMap;
use discovery::config::SILENCE_REMEMBERED;

/// See the module's documentation; clones share it.
#[derive(Debug, Clone, Default)]
pub struct SilentSites(Arc<DashMap<SiteId, Millis>>);

impl SilentSites {
    /// Notes whether a site has answered.
    pub fn note(&self, site: &SiteId, answered: bool, now: Millis) {
        if !answered {
            self.0.insert(site.clone(), now + SILENCE_REMEMBERED);
        } else if !self.0.is_empty() {
            self.0.remove(site);
        }
    }

    /// The sites that have not answered lately.
    pub fn now(&self, now: Millis) -> BTreeSet<SiteId> {
        if self.0.is_empty() {
            return BTreeSet::new();
        }
        self.0.retain(|_, until| *until > now);
        self.0.iter().map(|entry| entry.key().clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_silent_until_it_answers_or_time_passes() {
        let (a, b) = (SiteId::new("a").unwrap(), SiteId::new("b").unwrap());
        let silent = SilentSites::default();
        silent.note(&a, false, Millis(0));
        silent.note(&b, false, Millis(1_000));
        assert_eq!(silent.now(Millis(2_000)), BTreeSet::from([a.clone(), b.clone()]));
        silent.note(&a, true, Millis(3_000));
        assert_eq!(silent.now(Millis(4_000)), BTreeSet::from([b]));
        assert!(silent.now(Millis(16_000)).is_empty());
    }
}
