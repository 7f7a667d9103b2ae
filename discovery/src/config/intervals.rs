//! Times between things that are done again and again, and how they grow with the grid.
//!
//! Every node receives every site's advert, so with a fixed interval a node would check more signatures the more sites
//! there are: a thousand sites at 200 s make five a second everywhere. So a large grid renews adverts less often, and each
//! lives as much longer. Invariants: a node receives at most one advert a second on average, up to [`STRETCH_MAX`] x
//! [`SITES_AT_FULL_PACE`] sites; and the life of an advert and the time until its renewal keep the configured relation, so
//! that the same number of renewals may be lost in every grid.

use std::time::Duration;

use super::limits::Limits;

/// Longest time to live of an advert that any node believes.
pub const TIME_TO_LIVE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Between two rounds of looking for the neighbours in the DHT, one look-up for each distance that has any.
const NEIGHBOURS_REFRESH: Duration = Duration::from_secs(300);
/// Up to so many sites renew at the configured pace; with the default 200 s each, one of them a second.
pub const SITES_AT_FULL_PACE: usize = 200;
/// The slowest pace: with the default intervals an advert is renewed every hour and lives for three. A crashed site is
/// forgotten after that.
pub const STRETCH_MAX: f64 = 18.0;

/// Times between things that are done again and again, and how long to wait.
#[derive(Debug, Clone)]
pub struct Intervals {
    /// Time between two updates with this site's schedule changes, on average: after a quiet time some go at once. Every other site
    /// checks the signature of each.
    pub gossip: Duration,
    /// The same for bundles of updates to the neighbours in gossip. Each costs all of them a message.
    pub relay: Duration,
    /// How long an advert is believed. A crashed site is forgotten after at most this; later in a large grid.
    pub advert_time_to_live: Duration,
    /// After what time the advert is published again; later in a large grid.
    pub advert_refresh: Duration,
    /// After what time the keys of the index are published again, later in a large grid; they are believed three times as
    /// long. That is longer than for adverts, since there are more of them and a stale one only costs a look at an advert.
    pub index_refresh: Duration,
    /// Pause between two puts into the DHT, longer in a large grid. Each asks some 20 nodes, so a grid that starts at once
    /// would otherwise be busy with nothing else.
    pub dht_put_pause: Duration,
    /// How far in the future of this clock another site's clock may sign.
    pub skew_max: Duration,
    /// After what time without use a connection is closed.
    pub idle_connection: Duration,
    /// The longest that any direct request may take; callers give shorter ones.
    pub request: Duration,
    /// Between two exchanges of adverts with a neighbour, which find what gossip missed.
    pub exchange: Duration,
    /// Between two checks of the schedule that was confirmed longest ago, which find a lost last update.
    pub recheck: Duration,
    /// Schedules confirmed within this time are not checked again.
    pub recheck_age: Duration,
    /// A missed schedule is fetched after a random part of this, so that not all sites ask the same one at once.
    pub repair_jitter: Duration,
    /// How long changes that were missed may still come by gossip before they are fetched. A plan that needs them does not
    /// wait.
    pub repair_patience: Duration,
    /// Between two rounds of housekeeping: expiry, trimming, finding neighbours again.
    pub housekeeping: Duration,
    /// How long a stopping node waits until its departure is sent.
    pub farewell: Duration,
    /// How long a direct request may take to arrive once its stream is open.
    pub request_arrival: Duration,
    /// How long all bytes of a test of a link may take, each way: those that wait in buffers after the last was sent are to come, too.
    pub link_way: Duration,
    /// After what time a connection is closed whose other side has not said which grid it is of.
    pub introduction: Duration,
    /// After what time a connection is closed whose other side has not proven that it belongs to the closed grid.
    pub proof: Duration,
    /// Between two looks whether the peers that are connected still belong to it.
    pub proof_recheck: Duration,
    /// How long a first ban lasts; every further ban of the same peer lasts twice as long.
    pub ban_first: Duration,
    /// The longest ban; a ban is forgotten as long after its end.
    pub ban_longest: Duration,
}

impl Default for Intervals {
    fn default() -> Intervals {
        Intervals {
            gossip: Duration::from_millis(500),
            relay: Duration::from_millis(100),
            advert_time_to_live: Duration::from_secs(600),
            advert_refresh: Duration::from_secs(200),
            index_refresh: Duration::from_secs(900),
            dht_put_pause: Duration::from_secs(1),
            skew_max: Duration::from_secs(120),
            idle_connection: Duration::from_secs(60),
            request: Duration::from_secs(10),
            exchange: Duration::from_secs(30),
            recheck: Duration::from_secs(2),
            recheck_age: Duration::from_secs(60),
            repair_jitter: Duration::from_millis(200),
            repair_patience: Duration::from_millis(1_500),
            housekeeping: Duration::from_secs(1),
            farewell: Duration::from_millis(300),
            request_arrival: Duration::from_secs(5),
            link_way: Duration::from_secs(15),
            introduction: Duration::from_secs(10),
            proof: Duration::from_secs(5),
            proof_recheck: Duration::from_secs(10),
            ban_first: Duration::from_secs(600),
            ban_longest: Duration::from_secs(24 * 3600),
        }
    }
}

/// How many times as long as configured the intervals of a site are that knows so many sites.
fn stretch(sites: usize) -> f64 {
    (sites as f64 / SITES_AT_FULL_PACE as f64).clamp(1.0, STRETCH_MAX)
}

impl Intervals {
    /// After what time a site that knows `sites` sites publishes its advert again.
    #[must_use]
    pub fn advert_refresh_among(&self, sites: usize) -> Duration {
        self.advert_refresh.mul_f64(stretch(sites))
    }

    /// How long an advert is believed that a site publishes which knows `sites` sites.
    #[must_use]
    pub fn advert_time_to_live_among(&self, sites: usize) -> Duration {
        self.advert_time_to_live.mul_f64(stretch(sites))
    }

    /// The longest that any site's advert is believed.
    #[must_use]
    pub fn advert_time_to_live_longest(&self) -> Duration {
        self.advert_time_to_live.mul_f64(STRETCH_MAX)
    }

    /// After what time a site publishes its keys of the index again, at this upkeep.
    #[must_use]
    pub fn index_refresh_at(&self, upkeep: DhtUpkeep) -> Duration {
        match upkeep {
            DhtUpkeep::Full => self.index_refresh,
            DhtUpkeep::Rare => self.index_refresh * INDEX_STRETCH,
        }
    }

    /// Between two rounds of looking for the neighbours in the DHT.
    #[must_use]
    pub fn neighbours_refresh_at(&self, upkeep: DhtUpkeep) -> Duration {
        match upkeep {
            DhtUpkeep::Full => NEIGHBOURS_REFRESH,
            DhtUpkeep::Rare => NEIGHBOURS_REFRESH * NEIGHBOURS_STRETCH,
        }
    }

    /// How long a node with this upkeep believes a key of the index.
    #[must_use]
    pub fn index_time_to_live_at(&self, upkeep: DhtUpkeep) -> Duration {
        self.index_refresh_at(upkeep) * 3
    }

    /// The pause between two puts into the DHT of a site that knows `sites` sites and has `keys` keys of the index. With rare
    /// upkeep the keys take turns with the advert and are spread over the time until their next renewal; the advert is put
    /// while the one before it is good.
    #[must_use]
    pub fn dht_put_pause_at(&self, upkeep: DhtUpkeep, sites: usize, keys: usize) -> Duration {
        let puts = u32::try_from(keys.max(1)).unwrap_or(u32::MAX).saturating_mul(2);
        let spread = (self.index_refresh_at(upkeep) / puts).min(self.advert_refresh_among(sites));
        match upkeep {
            DhtUpkeep::Full => self.dht_put_pause,
            DhtUpkeep::Rare => spread.max(self.dht_put_pause),
        }
    }
}

/// How often a node renews what it has in the DHT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DhtUpkeep {
    /// At the configured intervals: the index is read, because the grid is larger than a view or there is no gossip; or the
    /// grid is so small that upkeep costs little.
    Full,
    /// Rarely: gossip brings every site's advert and the view has room for all, so the index is hardly ever read; and the
    /// grid is so large that a put opens twenty to forty connections.
    Rare,
}

impl DhtUpkeep {
    /// The upkeep of a node that knows `sites` sites.
    #[must_use]
    pub fn of(gossip: bool, sites: usize, limits: &Limits) -> DhtUpkeep {
        let has_room = sites < limits.sites_max / 4 * 3;
        if gossip && sites > limits.sites_eager_max && has_room { DhtUpkeep::Rare } else { DhtUpkeep::Full }
    }
}

/// How many times less often a node with rare upkeep looks for neighbours: every twenty minutes instead of five.
const NEIGHBOURS_STRETCH: u32 = 4;
/// How many times less often it renews the index: every four hours instead of fifteen minutes.
const INDEX_STRETCH: u32 = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_grids_keep_the_configured_pace() {
        let times = Intervals::default();
        for sites in [0, 1, SITES_AT_FULL_PACE] {
            assert_eq!(times.advert_refresh_among(sites), times.advert_refresh);
            assert_eq!(times.advert_time_to_live_among(sites), times.advert_time_to_live);
        }
        assert_eq!(times.advert_refresh_among(1000), Duration::from_secs(1000));
        assert_eq!(times.advert_time_to_live_among(1_000_000), Duration::from_secs(3 * 3600));
    }

    #[test]
    fn the_index_is_renewed_rarely_where_gossip_brings_everything() {
        let (times, limits) = (Intervals::default(), Limits::default());
        let upkeep = |sites| DhtUpkeep::of(true, sites, &limits);
        assert_eq!((upkeep(64), upkeep(65), upkeep(3_071)), (DhtUpkeep::Full, DhtUpkeep::Rare, DhtUpkeep::Rare));
        assert_eq!((upkeep(3_072), DhtUpkeep::of(false, 1_000, &limits)), (DhtUpkeep::Full, DhtUpkeep::Full));
        assert_eq!(times.dht_put_pause_at(DhtUpkeep::Full, 1_000, 12), times.dht_put_pause);
        assert_eq!(times.dht_put_pause_at(DhtUpkeep::Rare, 1_000, 12), Duration::from_secs(600));
        for (sites, keys) in [(65, 0), (65, 1), (65, 12), (1_000, 12), (3_000, 257)] {
            let pause = times.dht_put_pause_at(DhtUpkeep::Rare, sites, keys);
            let all = pause * 2 * u32::try_from(keys).unwrap();
            assert!(all <= times.index_refresh_at(DhtUpkeep::Rare), "{keys} keys take {all:?}");
            // Every other put is the advert's.
            assert!(pause * 2 < times.advert_time_to_live_among(sites), "{pause:?} among {sites}");
        }
        assert_eq!(times.dht_put_pause_at(DhtUpkeep::Rare, 100, usize::MAX), times.dht_put_pause);
    }

    proptest! {
        #[test]
        fn a_node_hears_at_most_an_advert_a_second_and_no_advert_ends_before_its_renewals(sites in 1_usize..20_000) {
            let times = Intervals::default();
            let refresh = times.advert_refresh_among(sites);
            let received_per_s = sites as f64 / refresh.as_secs_f64();
            let bounded = sites <= SITES_AT_FULL_PACE * STRETCH_MAX as usize;
            prop_assert!(!bounded || received_per_s <= 1.000_001, "{received_per_s} a second");
            prop_assert!(times.advert_time_to_live_among(sites).as_secs_f64() >= 2.99 * refresh.as_secs_f64());
            prop_assert!(times.advert_time_to_live_among(sites) <= times.advert_time_to_live_longest());
            prop_assert!(refresh >= times.advert_refresh_among(sites - 1));
        }
    }
}
