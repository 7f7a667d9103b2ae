//! How often a site tells of itself again, by the size of the grid.
//!
//! Every site hears every other one's advert, so if all renewed theirs at a fixed pace, a node would check more signatures the
//! more sites there are: a thousand sites at 200 s make five a second everywhere. So what is renewed is renewed more seldom in a
//! large grid, and is good for as much longer. Invariants: a node hears no more than an advert a second on average, up to
//! [`STRETCH_MAX`] x [`SITES_AT_FULL_PACE`] sites; and the life of an advert and the time until its renewal always have
//! the relation that is configured, so that as many renewals as ever may be lost.

use std::time::Duration;

use crate::{
    behaviour::DHT_BOOTSTRAP_EVERY,
    config::{Intervals, Limits},
};

/// Up to so many sites renew at the configured pace; with the default 200 s each, one of them a second.
pub const SITES_AT_FULL_PACE: usize = 200;
/// The slowest pace: with the default intervals an advert is renewed every hour and good for three. What is told of a site
/// that crashed is believed no longer than that.
pub const STRETCH_MAX: f64 = 18.0;

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

    /// After what time a site publishes its keys of the index again, at leisure or not.
    #[must_use]
    pub fn index_refresh_at(&self, leisure: Leisure) -> Duration {
        match leisure {
            Leisure::None => self.index_refresh,
            Leisure::Index => self.index_refresh * INDEX_STRETCH,
        }
    }

    /// Between two rounds of looking for the neighbours in the DHT.
    #[must_use]
    pub fn neighbours_refresh_at(&self, leisure: Leisure) -> Duration {
        match leisure {
            Leisure::None => DHT_BOOTSTRAP_EVERY,
            Leisure::Index => DHT_BOOTSTRAP_EVERY * NEIGHBOURS_STRETCH,
        }
    }

    /// How long a key of the index is believed by a node that has so much leisure itself.
    #[must_use]
    pub fn index_time_to_live_at(&self, leisure: Leisure) -> Duration {
        self.index_refresh_at(leisure) * 3
    }

    /// The pause between two puts into the DHT of a site that knows `sites` sites and has `keys` keys of the index. At leisure
    /// these take turns with the advert and are spread over the time until they are published again; the advert is put
    /// while the one before it is good.
    #[must_use]
    pub fn dht_put_pause_at(&self, leisure: Leisure, sites: usize, keys: usize) -> Duration {
        let puts = u32::try_from(keys.max(1)).unwrap_or(u32::MAX).saturating_mul(2);
        let spread = (self.index_refresh_at(leisure) / puts).min(self.advert_refresh_among(sites));
        match leisure {
            Leisure::None => self.dht_put_pause,
            Leisure::Index => spread.max(self.dht_put_pause),
        }
    }
}

/// Whether the index may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leisure {
    /// It is looked at: the grid is larger than a view, or there is no gossip; or the grid is so small that it costs little.
    None,
    /// Gossip brings every site's advert, since the view has room for all, so that hardly anybody looks at the index; and the grid
    /// is so large that a put meets hardly anybody with whom there is a connection, and so opens twenty to forty.
    Index,
}

impl Leisure {
    /// What a node has that knows `sites` sites.
    #[must_use]
    pub fn of(gossip: bool, sites: usize, limits: &Limits) -> Leisure {
        let has_room = sites < limits.sites_max / 4 * 3;
        if gossip && sites > limits.sites_eager_max && has_room { Leisure::Index } else { Leisure::None }
    }
}

/// How many times as long a round of looking for neighbours waits at leisure: twenty minutes in the place of five.
const NEIGHBOURS_STRETCH: u32 = 4;
/// How many times as long the index is good that is published at leisure: four hours in the place of fifteen minutes.
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
    fn the_index_rests_where_gossip_brings_everything_and_puts_are_dear() {
        let (times, limits) = (Intervals::default(), Limits::default());
        let leisure = |sites| Leisure::of(true, sites, &limits);
        assert_eq!((leisure(64), leisure(65), leisure(3_071)), (Leisure::None, Leisure::Index, Leisure::Index));
        assert_eq!((leisure(3_072), Leisure::of(false, 1_000, &limits)), (Leisure::None, Leisure::None));
        assert_eq!(times.dht_put_pause_at(Leisure::None, 1_000, 12), times.dht_put_pause);
        assert_eq!(times.dht_put_pause_at(Leisure::Index, 1_000, 12), Duration::from_secs(600));
        for (sites, keys) in [(65, 0), (65, 1), (65, 12), (1_000, 12), (3_000, 257)] {
            let pause = times.dht_put_pause_at(Leisure::Index, sites, keys);
            let all = pause * 2 * u32::try_from(keys).unwrap();
            assert!(all <= times.index_refresh_at(Leisure::Index), "{keys} keys take {all:?}");
            // Every other put is the advert's.
            assert!(pause * 2 < times.advert_time_to_live_among(sites), "{pause:?} among {sites}");
        }
        assert_eq!(times.dht_put_pause_at(Leisure::Index, 100, usize::MAX), times.dht_put_pause);
    }

    proptest! {
        #[test]
        fn a_node_hears_at_most_an_advert_a_second_and_no_advert_ends_before_its_renewals(sites in 1_usize..20_000) {
            let times = Intervals::default();
            let refresh = times.advert_refresh_among(sites);
            let heard_per_s = sites as f64 / refresh.as_secs_f64();
            let bounded = sites <= SITES_AT_FULL_PACE * STRETCH_MAX as usize;
            prop_assert!(!bounded || heard_per_s <= 1.000_001, "{heard_per_s} a second");
            prop_assert!(times.advert_time_to_live_among(sites).as_secs_f64() >= 2.99 * refresh.as_secs_f64());
            prop_assert!(times.advert_time_to_live_among(sites) <= times.advert_time_to_live_longest());
            prop_assert!(refresh >= times.advert_refresh_among(sites - 1));
        }
    }
}
