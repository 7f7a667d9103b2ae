//! What sites have refused to commands although their adverts claim it: such a site is avoided for a while by finds that need it.
//!
//! Invariant: at most [`REFUSALS_MAX`] refusals are remembered, each for [`REMEMBERED_FOR`] after the last time; when there are more, the
//! oldest is forgotten.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use broker::{
    ids::SiteId,
    needs::{Lack, Needs},
    time::Millis,
};

/// Most refusals that are remembered.
const REFUSALS_MAX: usize = 1024;
/// How long one is: as long as adverts live by default, so that an owner who has mended it is found again.
const REMEMBERED_FOR: Millis = Millis(600_000);

/// What was refused, where, and when it was last.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<(SiteId, Lack), Millis>>);

impl Refusals {
    /// Notes that a site has refused something for the lack of this.
    pub(crate) fn note(&self, site: &SiteId, lack: Lack, now: Millis) {
        let mut refusals = self.locked();
        refusals.insert((site.clone(), lack), now);
        if refusals.len() > REFUSALS_MAX {
            let oldest = refusals.iter().min_by_key(|(_, refused_at)| **refused_at).map(|(what, _)| what.clone());
            oldest.and_then(|oldest| refusals.remove(&oldest));
        }
    }

    /// The sites that have refused something of these needs lately, each with the first such thing.
    pub(crate) fn of(&self, needs: &Needs, now: Millis) -> BTreeMap<SiteId, Lack> {
        let mut refusals = self.locked();
        refusals.retain(|_, refused_at| now - *refused_at < REMEMBERED_FOR);
        let mut sites = BTreeMap::new();
        for lack in needs.lacks() {
            for (site, _) in refusals.keys().filter(|(_, refused)| *refused == lack) {
                sites.entry(site.clone()).or_insert_with(|| lack.clone());
            }
        }
        sites
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<(SiteId, Lack), Millis>> {
        // The map is valid after every single operation, so a panic elsewhere does not make it worthless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use broker::needs::Need;

    use super::*;

    fn site(name: &str) -> SiteId {
        SiteId::new(name).unwrap()
    }

    #[test]
    fn a_site_is_avoided_for_what_it_has_refused_and_only_for_a_while() {
        let refusals = Refusals::default();
        let [run, network] = [Need::Run, Need::Network].map(|need| Needs { of_node: [need].into(), image: None });
        refusals.note(&site("a"), Lack::Need(Need::Network), Millis(1_000));
        refusals.note(&site("b"), Lack::WithoutImage, Millis(2_000));
        assert_eq!(refusals.of(&network, Millis(2_000)), [(site("a"), Lack::Need(Need::Network))].into());
        assert_eq!(refusals.of(&run, Millis(2_000)), [(site("b"), Lack::WithoutImage)].into());
        assert_eq!(refusals.of(&Needs::default(), Millis(2_000)), BTreeMap::new());
        assert_eq!(refusals.of(&network, Millis(1_000) + REMEMBERED_FOR), BTreeMap::new());
    }

    #[test]
    fn little_is_remembered() {
        let refusals = Refusals::default();
        for number in 0..2 * REFUSALS_MAX {
            refusals.note(&site(&format!("s{number}")), Lack::Need(Need::Run), Millis(number as u64));
        }
        let known = refusals.of(&Needs { of_node: [Need::Run].into(), image: None }, Millis(0));
        assert_eq!(known.len(), REFUSALS_MAX);
        assert!(known.contains_key(&site(&format!("s{}", 2 * REFUSALS_MAX - 1))) && !known.contains_key(&site("s0")));
    }
}
