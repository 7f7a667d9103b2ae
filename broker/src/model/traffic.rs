//! All-to-all traffic between the seats of a request: how long the seats then last, and what it puts on the sites' links.
//!
//! Source: `formats.md`, version 2 (`traffic`); equations 2.3 to 2.6 of the thesis on batches over several clusters, without saturation,
//! which is never planned. Invariant: everything is whole and rounded up, and nothing wraps for checked requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{amount::Amount, host::Speed, ids::SiteId, time::Span};

/// What the traffic of a request puts on the link of each site that has any, in Mbit/s.
pub type Loads = BTreeMap<SiteId, Amount>;

/// All seats of a request talk to each other, so they last equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// What one seat sends to all others, in Mbit/s.
    pub mbps: Amount,
    /// The part of the work that a slow host makes longer, in thousandths; the rest is talk. At most [`Traffic::COMPUTE_MAX`].
    #[serde(default = "all_compute", skip_serializing_if = "is_all_compute")]
    pub compute: u32,
}

/// The traffic of a request and the number of its seats: all that is needed to know what those at one site put on its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Talk {
    /// What each seat sends.
    pub traffic: Traffic,
    /// N, of the whole request.
    pub seats: u32,
}

impl Talk {
    /// What so many seats put on the link of the site that they are booked at, in Mbit/s; no more than an amount can be, which is more
    /// than any link has.
    #[must_use]
    pub fn load(self, here: usize) -> Amount {
        self.traffic.load(here, self.seats as usize).min(Amount::MAX)
    }
}

fn all_compute() -> u32 {
    Traffic::COMPUTE_MAX
}

fn is_all_compute(compute: &u32) -> bool {
    *compute == Traffic::COMPUTE_MAX
}

impl Traffic {
    /// All of the work: no host waits for another.
    pub const COMPUTE_MAX: u32 = 1000;

    /// How long each seat lasts when the slowest of their hosts has this speed: `ceil(L * (c / p + (1000 - c) / 1000))`.
    #[must_use]
    pub fn length(self, work: Span, slowest: Speed) -> Span {
        let (compute, speed) = (u128::from(self.compute.min(Self::COMPUTE_MAX)), u128::from(slowest.thousandths()));
        let parts = u128::from(work.0) * (compute * 1000 + (1000 - compute) * speed);
        Span(u64::try_from(parts.div_ceil(1000 * speed)).unwrap_or(u64::MAX))
    }

    /// The least speed at which seats last no longer than `lasting`; none when no speed does it.
    #[must_use]
    pub fn slowest(self, work: Span, lasting: Span) -> Option<Speed> {
        let is_enough =
            |thousandths: u32| Speed::try_from(thousandths).is_ok_and(|speed| self.length(work, speed) <= lasting);
        let (mut too_slow, mut enough) = (0, u32::MAX);
        if !is_enough(enough) {
            return None;
        }
        while too_slow + 1 < enough {
            let middle = u32::midpoint(too_slow, enough);
            if is_enough(middle) { enough = middle } else { too_slow = middle }
        }
        Speed::try_from(enough).ok()
    }

    /// What `here` of all `seats` at a site put on its link: `ceil(t * b * (N - t) / (N - 1))`, nothing when all are there.
    #[must_use]
    pub fn load(self, here: usize, seats: usize) -> Amount {
        let away = seats.saturating_sub(here) as u128;
        let sent = (here as u128).saturating_mul(u128::from(self.mbps.0)).saturating_mul(away);
        // A single seat has none away.
        Amount(u64::try_from(sent.div_ceil(seats.saturating_sub(1).max(1) as u128)).unwrap_or(u64::MAX))
    }

    /// The most of `seats`, at most half of them, that a link with this room carries. The load rises up to half of the seats and falls
    /// behind it in the same way, so as many away from the site do as well, and no number between the two does.
    #[must_use]
    pub fn most_at_site(self, seats: usize, room: Amount) -> usize {
        let (mut fits, mut least_over) = (0, seats / 2 + 1);
        while fits + 1 < least_over {
            let middle = usize::midpoint(fits, least_over);
            if self.load(middle, seats) <= room { fits = middle } else { least_over = middle }
        }
        fits
    }

    /// The loads of seats at these sites, one entry a seat.
    #[must_use]
    pub fn loads<'s>(self, sites: impl Iterator<Item = &'s SiteId>) -> Loads {
        let mut here: BTreeMap<&SiteId, usize> = BTreeMap::new();
        sites.for_each(|site| *here.entry(site).or_default() += 1);
        let seats = here.values().sum();
        let loads = here.into_iter().map(|(site, here)| (site.clone(), self.load(here, seats)));
        loads.filter(|(_, load)| *load > Amount::ZERO).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{request::MAX_HOSTS, time::Time};

    fn traffic(mbps: u64, compute: u32) -> Traffic {
        Traffic { mbps: Amount(mbps), compute }
    }

    #[test]
    fn the_example_of_the_source_lasts_as_long_as_it_says() {
        // Section 3.3.4: 116.7, 85, 87.5 and 123.3 seconds at speeds of .75 and .5.
        for (work, compute, slowest, seconds) in
            [(100, 500, 750, 117), (50, 700, 500, 85), (75, 500, 750, 88), (100, 700, 750, 124)]
        {
            assert_eq!(traffic(1, compute).length(Span(work), Speed::try_from(slowest).unwrap()), Span(seconds));
        }
    }

    #[test]
    fn the_largest_numbers_do_not_wrap() {
        let slowest = Speed::try_from(1).unwrap();
        assert_eq!(traffic(1, 1000).length(Span::MAX, slowest), Span(Span::MAX.0 * 1000));
        assert_eq!(
            traffic(1, 0).length(Span::MAX, Speed::try_from(u32::MAX).unwrap()),
            Span(Time::MAX.0.cast_unsigned())
        );
        let seats = MAX_HOSTS as usize;
        assert_eq!(traffic(Amount::MAX.0, 0).load(1, seats), Amount::MAX);
        assert!(traffic(Amount::MAX.0, 0).load(seats / 2, seats).0 > Amount::MAX.0 * 2_500);
    }

    #[test]
    fn one_seat_and_seats_at_one_site_load_nothing() {
        assert_eq!(traffic(9, 1000).load(1, 1), Amount::ZERO);
        assert_eq!(traffic(9, 1000).load(7, 7), Amount::ZERO);
        let [a, b] = ["a", "b"].map(|site| SiteId::new(site).unwrap());
        assert_eq!(traffic(9, 1000).loads([&a, &a].into_iter()), Loads::new());
        // 2 * 9 * 1 / 2 on both ends.
        assert_eq!(traffic(9, 1000).loads([&a, &b, &a].into_iter()), Loads::from([(a, Amount(9)), (b, Amount(9))]));
    }

    proptest! {
        #[test]
        fn formulas_are_those_of_the_format(
            work in 1_u64..1 << 40, speed in 1_u32..5_000, compute in 0_u32..=1000, mbps in 0_u64..1 << 20,
            seats in 1_usize..60, here in 0_usize..60, room in 0_u64..1 << 24,
        ) {
            let (traffic, here) = (traffic(mbps, compute), here.min(seats));
            let length = u128::from(traffic.length(Span(work), Speed::try_from(speed).unwrap()).0);
            // length - 1 < L * (c * 1000 + (1000 - c) * p) / (1000 * p) <= length
            let (parts, whole) = (u128::from(compute) * 1000 + u128::from(1000 - compute) * u128::from(speed), u128::from(speed) * 1000);
            prop_assert!((length - 1) * whole < u128::from(work) * parts && u128::from(work) * parts <= length * whole);
            let lasting = traffic.length(Span(work), Speed::try_from(speed).unwrap());
            let slowest = traffic.slowest(Span(work), lasting).unwrap();
            prop_assert!(slowest <= Speed::try_from(speed).unwrap() && traffic.length(Span(work), slowest) <= lasting);
            let slower = Speed::try_from(slowest.thousandths() - 1);
            prop_assert!(slower.is_ok_and(|slower| traffic.length(Span(work), slower) > lasting) || slowest.thousandths() == 1);
            let load = traffic.load(here, seats).0;
            let (sent, pairs) = (here as u64 * mbps * (seats - here) as u64, seats as u64 - 1);
            prop_assert_eq!(load, sent.div_ceil(pairs.max(1)));
            let most = traffic.most_at_site(seats, Amount(room));
            for here in 0..=seats {
                let fits = traffic.load(here, seats) <= Amount(room);
                prop_assert_eq!(fits, here <= most || here >= seats - most, "{} of {}, most {}", here, seats, most);
            }
        }
    }
}
