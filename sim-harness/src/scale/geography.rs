//! Where sites are, and how long a message takes between two of them.
//!
//! Sites lie around eight regions of the world. A message travels the great circle at two thirds of the speed of light,
//! half as far again for the way that cables take, and through an access line at both ends. A frame that is lost is sent
//! again after the time-out of TCP. Invariant: the delay between two sites is the same both ways and never zero; a draw
//! follows from the seed and the name of the message alone, so nothing depends on the order in which delays are asked for.

use clap::ValueEnum;
use rand::RngExt;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

/// What lies between two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NetworkKind {
    /// The world.
    Wan,
    /// One machine: every message takes the same short time.
    Loopback,
    /// Nothing: messages arrive at once.
    Instant,
}

/// Latitude, longitude, and how many of a hundred sites are there.
const REGIONS: [(f64, f64, u32); 8] = [
    (50.0, 8.0, 28),
    (41.0, -76.0, 22),
    (38.0, -121.0, 14),
    (36.0, 137.0, 14),
    (20.0, 78.0, 8),
    (-23.0, -46.0, 6),
    (-34.0, 151.0, 4),
    (-26.0, 28.0, 4),
];
/// Sites of a region are at most so many degrees from its middle.
const SCATTER_DEGREES: f64 = 7.0;
const EARTH_RADIUS_KM: f64 = 6_371.0;
/// Two thirds of the speed of light, with half of the way on top.
const KM_PER_MS: f64 = 200.0 / 1.5;
/// An access line takes so many microseconds.
const ACCESS_US: std::ops::Range<u64> = 500..8_000;
/// Every message is up to this share of its way later than the fastest, in hundredths.
const JITTER_PERCENT: u64 = 10;
/// A direct request of 1 KiB on an open connection takes 0.21 to 0.28 ms there and back on the machine that the real
/// grid was measured on, with 15 to 100 nodes.
const LOOPBACK_US: u64 = 120;
/// TCP sends again after this and one way there and back.
const RETRANSMIT_US: u64 = 200_000;
/// Sites that a typical distance is taken over.
const SAMPLED: u64 = 16;
/// Losses in a row that a message meets at most; later frames are not lost.
const LOSSES_MAX: u32 = 4;

#[derive(Debug, Clone, Copy)]
struct Place {
    x: f64,
    y: f64,
    z: f64,
    access_us: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Geography {
    kind: NetworkKind,
    seed: u64,
    loss_ppm: u64,
    places: Vec<Place>,
}

/// One message under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// Until it arrives.
    pub delay_us: u64,
    /// How often it was lost before.
    pub losses: u32,
}

impl Geography {
    /// Places for `sites` sites. Of a million frames `loss_ppm` are lost.
    pub fn new(kind: NetworkKind, seed: u64, sites: usize, loss_ppm: u64) -> Geography {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(mix(seed, 0x9e0));
        let places = (0..sites).map(|_| Place::draw(&mut random)).collect();
        Geography { kind, seed, loss_ppm, places }
    }

    /// The shortest time one way.
    pub fn one_way_us(&self, a: usize, b: usize) -> u64 {
        match (self.kind, self.places.get(a), self.places.get(b)) {
            (NetworkKind::Wan, Some(from), Some(to)) => from.access_us + to.access_us + from.travel_us(to),
            (NetworkKind::Instant, ..) => 0,
            _ => LOOPBACK_US,
        }
    }

    /// There and back.
    pub fn round_trip_us(&self, a: usize, b: usize) -> u64 {
        2 * self.one_way_us(a, b)
    }

    /// There and back to somebody, on average.
    pub fn typical_round_trip_us(&self, own: usize) -> u64 {
        let others = (0..SAMPLED).map(|number| mix(own as u64, number) as usize % self.places.len().max(1));
        others.map(|other| self.round_trip_us(own, other)).sum::<u64>() / SAMPLED
    }

    /// How the message called `name` passes from `a` to `b`.
    pub fn passage(&self, a: usize, b: usize, name: u64) -> Passage {
        let way_us = self.one_way_us(a, b);
        let drawn = mix(self.seed ^ name, ((a as u64) << 32) | b as u64);
        let jitter_us = way_us * JITTER_PERCENT / 100 * (drawn & 0xffff) / 0x1_0000;
        let mut losses = 0;
        while losses < LOSSES_MAX && mix(drawn, u64::from(losses) + 1) % 1_000_000 < self.loss_ppm {
            losses += 1;
        }
        let again_us = u64::from(losses) * (RETRANSMIT_US + 2 * way_us);
        Passage { delay_us: way_us + jitter_us + again_us, losses }
    }
}

impl Place {
    fn draw(random: &mut Xoshiro256PlusPlus) -> Place {
        let mut ticket = random.random_range(0..100);
        let mut region = REGIONS[0];
        for candidate in REGIONS {
            region = candidate;
            if ticket < candidate.2 {
                break;
            }
            ticket -= candidate.2;
        }
        let mut degrees = |middle: f64| (middle + random.random_range(-SCATTER_DEGREES..SCATTER_DEGREES)).to_radians();
        let (latitude, longitude) = (degrees(region.0), degrees(region.1));
        let (x, y) = (latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin());
        Place { x, y, z: latitude.sin(), access_us: random.random_range(ACCESS_US) }
    }

    fn travel_us(&self, to: &Place) -> u64 {
        let cosine = (self.x * to.x + self.y * to.y + self.z * to.z).clamp(-1.0, 1.0);
        (cosine.acos() * EARTH_RADIUS_KM / KM_PER_MS * 1000.0) as u64
    }
}

/// A number that follows from two others and looks like chance (the finaliser of `SplitMix64`).
pub fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_add(b.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_those_of_the_world() {
        let earth = Geography::new(NetworkKind::Wan, 1, 300, 10_000);
        let mut round_trips_ms: Vec<u64> = (0..150)
            .flat_map(|a| (150..300).map(move |b| (a, b)))
            .map(|(a, b)| earth.round_trip_us(a, b) / 1000)
            .collect();
        round_trips_ms.sort_unstable();
        let (median, most) = (round_trips_ms[round_trips_ms.len() / 2], round_trips_ms[round_trips_ms.len() - 1]);
        assert!((80..160).contains(&median) && (200..400).contains(&most), "{median} ms, at most {most} ms");
        assert_eq!(earth.one_way_us(3, 9), earth.one_way_us(9, 3));
    }

    #[test]
    fn losses_cost_time_and_come_as_often_as_asked() {
        let earth = Geography::new(NetworkKind::Wan, 2, 10, 50_000);
        let passages: Vec<Passage> = (0..20_000).map(|name| earth.passage(1, 2, name)).collect();
        let lost = passages.iter().filter(|passage| passage.losses > 0).count();
        assert!((800..1200).contains(&lost), "{lost}");
        assert!(passages.iter().all(|passage| passage.losses == 0 || passage.delay_us > RETRANSMIT_US));
        assert_eq!(earth.passage(1, 2, 7), earth.passage(1, 2, 7));
    }
}
