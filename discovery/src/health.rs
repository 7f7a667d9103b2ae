//! How other sites answer this node: one record a site, for everything that chooses whom to ask.
//!
//! Invariants: a site that answers has no record of failures; a failure within the back-off of an earlier one does not
//! lengthen it, so it counts once however many parts of the node have asked in vain; at most [`SITES_MAX`] sites are
//! remembered, and when there are more, the one whose failure is oldest is forgotten.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use broker::{ids::SiteId, time::Millis};

/// Most sites that are remembered.
const SITES_MAX: usize = 4096;
/// How long a failure is remembered: adverts live no longer by default.
const REMEMBERED_FOR: Millis = Millis(600_000);
/// The back-off after a first failure is twice this; it doubles with each further one,
pub(crate) const BACK_OFF_FIRST: Millis = Millis(500);
/// up to this.
pub(crate) const BACK_OFF_MAX: Millis = Millis(60_000);

#[derive(Debug, Clone, Copy)]
struct Record {
    failed_at: Millis,
    /// Failures in a row, each after the back-off of the one before.
    failures: u32,
    /// When the back-off is over.
    retry_at: Millis,
    /// Whether a connection was given up because the peer did not answer.
    is_lost: bool,
}

/// The sites that did not answer; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct PeerHealth(Arc<Mutex<BTreeMap<SiteId, Record>>>);

impl PeerHealth {
    /// Notes an answer.
    pub(crate) fn answered(&self, site: &SiteId) {
        let mut records = self.records();
        // Only a connection ends a loss.
        match records.get_mut(site) {
            Some(record) if record.is_lost => *record = Record { failures: 0, retry_at: Millis(0), ..*record },
            Some(_) => drop(records.remove(site)),
            None => {}
        }
    }

    /// Notes that a site did not answer in time, or could not be reached.
    pub(crate) fn failed(&self, site: &SiteId, now: Millis) {
        let mut records = self.records();
        let record = remembered(&mut records, site, now);
        if record.failures == 0 || now >= record.retry_at {
            record.failures = record.failures.saturating_add(1);
            let back_off = BACK_OFF_FIRST.0.saturating_mul(1 << record.failures.min(32));
            record.retry_at = now + Millis(back_off).min(BACK_OFF_MAX);
        }
        record.failed_at = now;
    }

    /// Notes that a connection was given up because the peer did not answer.
    pub(crate) fn lost(&self, site: &SiteId, now: Millis) {
        self.failed(site, now);
        remembered(&mut self.records(), site, now).is_lost = true;
    }

    /// Notes a connection; true when an earlier one was lost.
    pub(crate) fn connected(&self, site: &SiteId) -> bool {
        self.records().get_mut(site).is_some_and(|record| std::mem::take(&mut record.is_lost))
    }

    /// Whether the site failed within this time and has not answered since.
    pub(crate) fn is_silent(&self, site: &SiteId, now: Millis, within: Millis) -> bool {
        self.records().get(site).is_some_and(|record| record.failures > 0 && now - record.failed_at < within)
    }

    /// The sites that failed within this time and have not answered since.
    pub(crate) fn silent(&self, now: Millis, within: Millis) -> BTreeSet<SiteId> {
        let records = self.records();
        let silent = records.iter().filter(|(_, record)| record.failures > 0 && now - record.failed_at < within);
        silent.map(|(site, _)| site.clone()).collect()
    }

    /// How often the site failed in a row.
    pub(crate) fn failures(&self, site: &SiteId) -> u32 {
        self.records().get(site).map_or(0, |record| record.failures)
    }

    /// When the site last failed, and when its back-off is over; zero for both when it answers.
    pub(crate) fn back_off(&self, site: &SiteId) -> (Millis, Millis) {
        self.records().get(site).map_or((Millis(0), Millis(0)), |record| (record.failed_at, record.retry_at))
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<SiteId, Record>> {
        // The map is valid after every single operation, so a panic elsewhere does not make it worthless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record of a site, made if there is none.
fn remembered<'a>(records: &'a mut BTreeMap<SiteId, Record>, site: &SiteId, now: Millis) -> &'a mut Record {
    if records.len() >= SITES_MAX && !records.contains_key(site) {
        records.retain(|_, record| now - record.failed_at < REMEMBERED_FOR);
        if records.len() >= SITES_MAX {
            let oldest = records.iter().min_by_key(|(_, record)| record.failed_at).map(|(site, _)| site.clone());
            oldest.and_then(|oldest| records.remove(&oldest));
        }
    }
    let record =
        records.entry(site.clone()).or_insert(Record { failed_at: now, failures: 0, retry_at: now, is_lost: false });
    if now - record.failed_at >= REMEMBERED_FOR {
        record.is_lost = false;
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str) -> SiteId {
        SiteId::new(name).unwrap()
    }

    #[test]
    fn a_site_is_silent_until_it_answers_or_time_passes() {
        let (a, b) = (site("a"), site("b"));
        let health = PeerHealth::default();
        health.failed(&a, Millis(0));
        health.failed(&b, Millis(1_000));
        let within = Millis(15_000);
        assert_eq!(health.silent(Millis(2_000), within), BTreeSet::from([a.clone(), b.clone()]));
        assert!(health.is_silent(&a, Millis(2_000), within) && !health.is_silent(&a, Millis(2_000), Millis(2_000)));
        health.answered(&a);
        assert_eq!(health.silent(Millis(4_000), within), BTreeSet::from([b]));
        assert!(health.silent(Millis(16_000), within).is_empty());
    }

    #[test]
    fn failures_at_the_same_time_count_once_and_the_back_off_has_an_end() {
        let health = PeerHealth::default();
        let a = site("a");
        (0..50).for_each(|number| health.failed(&a, Millis(100 + number)));
        assert_eq!((health.failures(&a), health.back_off(&a)), (1, (Millis(149), Millis(1_100))));
        for _ in 0..100 {
            let (_, retry_at) = health.back_off(&a);
            health.failed(&a, retry_at);
        }
        let (failed_at, retry_at) = health.back_off(&a);
        assert_eq!((health.failures(&a), retry_at - failed_at), (101, BACK_OFF_MAX));
        health.answered(&a);
        assert_eq!((health.failures(&a), health.back_off(&a)), (0, (Millis(0), Millis(0))));
    }

    #[test]
    fn a_lost_peer_is_back_once() {
        let health = PeerHealth::default();
        assert!(!health.connected(&site("never lost")));
        health.lost(&site("a"), Millis(0));
        health.answered(&site("a"));
        assert!(!health.is_silent(&site("a"), Millis(1), Millis(100)));
        assert!(health.connected(&site("a")) && !health.connected(&site("a")));
    }

    #[test]
    fn little_is_remembered() {
        let health = PeerHealth::default();
        for number in 0..2 * SITES_MAX {
            health.failed(&site(&format!("s{number}")), Millis(number as u64));
        }
        assert_eq!(health.records().len(), SITES_MAX);
        assert_eq!((health.failures(&site("s0")), health.failures(&site(&format!("s{}", 2 * SITES_MAX - 1)))), (0, 1));
    }
}
