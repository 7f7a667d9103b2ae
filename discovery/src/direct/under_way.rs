//! The schedules of large sites that are being fetched, part by part.
//!
//! Invariant: at most [`FETCHES_MAX`] at a time, of one site one, so that what is not complete takes bounded memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use broker::ids::SiteId;

use crate::command::AskError;

/// Large sites whose schedules are fetched at the same time; each takes up to 34 MiB until it is complete.
const FETCHES_MAX: usize = 4;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnderWay(Arc<Mutex<BTreeMap<SiteId, Parts>>>);

/// Parts that are there, and all of them.
#[derive(Debug, Clone, Copy)]
struct Parts {
    have: u32,
    all: u32,
}

/// A fetch under way; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Fetching {
    under_way: UnderWay,
    site: SiteId,
}

impl UnderWay {
    /// Begins a fetch of a site with so many parts.
    pub(crate) fn begin(&self, site: &SiteId, parts: u32) -> Result<Fetching, AskError> {
        let mut sites = self.sites();
        if let Some(Parts { have, all }) = sites.get(site).copied() {
            return Err(AskError::OnTheirWay { have, parts: all });
        }
        if sites.len() >= FETCHES_MAX {
            return Err(AskError::Busy);
        }
        sites.insert(site.clone(), Parts { have: 1, all: parts });
        Ok(Fetching { under_way: self.clone(), site: site.clone() })
    }

    /// How far the fetch of a site is; none when there is none.
    pub(crate) fn progress(&self, site: &SiteId) -> Option<AskError> {
        self.sites().get(site).map(|parts| AskError::OnTheirWay { have: parts.have, parts: parts.all })
    }

    fn sites(&self) -> MutexGuard<'_, BTreeMap<SiteId, Parts>> {
        // The map is valid after every single operation, so a panic elsewhere does not make it worthless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fetching {
    /// Notes how many parts are there.
    pub(crate) fn note(&self, have: u32, all: u32) {
        self.under_way.sites().insert(self.site.clone(), Parts { have, all });
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.under_way.sites().remove(&self.site);
    }
}
