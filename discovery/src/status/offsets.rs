//! How far the clocks of other sites are from this one's, by the times that they sign.
//!
//! A message is a little old when it arrives, so its time shows how far the site's clock is ahead at least; changes of
//! schedules travel at once, and show it to within a second or so. Invariant: numbers are kept against the monotonic clock, so that they
//! hold when this machine's wall clock is set; of at most [`SITES_MAX`] sites, each with one number.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use broker::{ids::SiteId, time::Millis};

use crate::wire::Payload;

/// Most sites of which a number is kept; a median of more is no better.
const SITES_MAX: usize = 1_024;
/// Age up to which an advert shows the time of its site, in milliseconds; less than what people are told of.
const ADVERT_MS_MAX: u64 = 3_000;
/// How long a number counts. Clocks are set now and then.
const LIFE: Millis = Millis(600_000);

/// The clocks of other sites beside this machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// Sites that sent something lately.
    pub sites: usize,
    /// How far the clock in the middle of theirs is ahead of this one, in milliseconds; below zero when it is behind.
    pub median_ms: i64,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    /// The site's wall clock at the zero of this node's monotonic one, in Unix milliseconds.
    zero_ms: i64,
    at: Millis,
}

#[derive(Debug, Default)]
pub(crate) struct Offsets(Mutex<BTreeMap<SiteId, Sample>>);

impl Offsets {
    /// Takes note of a time that a site has signed, read at `utc_ms` of this machine.
    pub(crate) fn note(&self, site: &SiteId, payload: &Payload, sent_ms: u64, utc_ms: u64, now: Millis) {
        // An advert may have waited for a neighbour to take it, so an old one proves nothing; a fresh one does, or one from the future.
        if matches!(payload, Payload::Advert(_)) && sent_ms.saturating_add(ADVERT_MS_MAX) <= utc_ms {
            return;
        }
        let zero_ms = zero_ms(sent_ms, now);
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match samples.get(site) {
            // The message that took the least time on its way is the most exact.
            Some(known) if known.zero_ms >= zero_ms && now - known.at < LIFE => return,
            Some(_) => {}
            None if samples.len() < SITES_MAX => {}
            None => {
                samples.retain(|_, sample| now - sample.at < LIFE);
                if samples.len() >= SITES_MAX {
                    return;
                }
            }
        }
        samples.insert(site.clone(), Sample { zero_ms, at: now });
    }

    /// The offsets known at `now`, beside a wall clock of this machine at `utc_ms`; none when no site sent anything lately.
    pub(crate) fn summary(&self, utc_ms: u64, now: Millis) -> Option<ClockOffset> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = samples.values().filter(|sample| now - sample.at < LIFE);
        let own_ms = zero_ms(utc_ms, now);
        let mut ahead: Vec<i64> = recent.map(|sample| sample.zero_ms.saturating_sub(own_ms)).collect();
        ahead.sort_unstable();
        let median_ms = *ahead.get(ahead.len().checked_sub(1)? / 2)?;
        Some(ClockOffset { sites: ahead.len(), median_ms })
    }
}

/// Reading of a wall clock at the zero of the monotonic one, when the first shows `utc_ms` and the second `now`.
fn zero_ms(utc_ms: u64, now: Millis) -> i64 {
    let whole = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    whole(utc_ms).saturating_sub(whole(now.0))
}

#[cfg(test)]
mod tests {
    use broker::protocol::{Advert, LedgerVersion, ScheduleUpdate};

    use super::*;

    fn site(number: usize) -> SiteId {
        SiteId::new(&format!("s{number}")).unwrap()
    }

    fn update() -> Payload {
        let from = LedgerVersion { incarnation: 1, change: 0 };
        Payload::Update(ScheduleUpdate { site: site(0), from, changes: Vec::new() })
    }

    #[test]
    fn the_quickest_message_of_each_site_counts_and_the_median_is_reported() {
        let offsets = Offsets::default();
        assert_eq!(offsets.summary(995, Millis(0)), None);
        for (number, sent_ms) in [(1, 1_000), (1, 900), (2, 7_000), (3, 500)] {
            offsets.note(&site(number), &update(), sent_ms, 1_000, Millis(5));
        }
        assert_eq!(offsets.summary(1_001, Millis(6)), Some(ClockOffset { sites: 3, median_ms: 0 }));
        offsets.note(&site(1), &update(), 4_002, 1_002, Millis(7));
        assert_eq!(offsets.summary(1_003, Millis(8)), Some(ClockOffset { sites: 3, median_ms: 3_000 }));
        let set = Some(ClockOffset { sites: 3, median_ms: 3_000 - 86_400_000 });
        assert_eq!(offsets.summary(86_401_003, Millis(8)), set, "the own clock was set a day ahead");
        assert_eq!(offsets.summary(1_002, Millis(7) + LIFE), None, "a number counts for a while only");
    }

    #[test]
    fn an_advert_may_have_waited() {
        let offsets = Offsets::default();
        let advert = Payload::Advert(Advert {
            site: site(1),
            name: String::new(),
            sequence: 1,
            time_to_live_s: 1,
            contact: None,
            hosts: Default::default(),
            uplink: None,
            quotes: false,
            addresses: Vec::new(),
            features: Default::default(),
            offer: Default::default(),
        });
        offsets.note(&site(1), &advert, 1_000, 4_000, Millis(1));
        assert_eq!(offsets.summary(2_000, Millis(1)), None);
        offsets.note(&site(1), &advert, 2_500, 2_000, Millis(1));
        assert_eq!(offsets.summary(2_000, Millis(1)), Some(ClockOffset { sites: 1, median_ms: 500 }));
    }

    #[test]
    fn sites_are_bounded() {
        let offsets = Offsets::default();
        for number in 0..=SITES_MAX {
            offsets.note(&site(number), &update(), 1, 1, Millis(1));
        }
        assert_eq!(offsets.summary(1, Millis(1)).map(|known| known.sites), Some(SITES_MAX));
    }
}
