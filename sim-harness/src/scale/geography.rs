//! Where sites are, and how long a message takes between two of them.
//!
//! Sites lie around eight regions of the world. A message travels the great circle at two thirds of the speed of light,
//! half as far again for the way that cables take, and through an access line at both ends. A frame that is lost is sent
//! again after the time-out of TCP. Invariant: the delay between two sites is the same both ways and never zero; a draw
//! follows from the seed and the name of the message alone, so nothing depends on the order in which delays are asked for.

use std::time::Duration;

use clap::ValueEnum;
use rand::RngExt;
use rand_xoshiro::SplitMix64;

use super::chance::{chance, pair};

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
const KM_PER_S: f64 = 200_000.0 / 1.5;
/// An access line takes so many microseconds.
const ACCESS_US: std::ops::Range<u64> = 500..8_000;
/// Every message is later than the fastest by up to this share of its way, in millionths.
const JITTER_PPM_MAX: u32 = 100_000;
/// A direct request of 1 KiB on an open connection takes 0.21 to 0.28 ms there and back on the machine that the real
/// grid was measured on, with 15 to 100 nodes.
const LOOPBACK: Duration = Duration::from_micros(120);
/// TCP sends again after this and one way there and back.
const RETRANSMIT: Duration = Duration::from_millis(200);
/// Round trips until a new connection can be used: QUIC's, which is dialled beside TCP and is there first. A stream costs none: a
/// request leaves with the name of its protocol.
pub const DIAL_ROUND_TRIPS: u32 = 1;
/// Sites that a typical distance is taken over.
const SAMPLED: usize = 16;
/// Names the draw of all places.
const PLACES: u64 = 0x9e0;
/// Losses in a row that a message meets at most; later frames are not lost.
const LOSSES_MAX: u32 = 4;

#[derive(Debug, Clone, Copy)]
struct Place {
    x: f64,
    y: f64,
    z: f64,
    access: Duration,
}

/// Where the sites of a run are, and how messages between them fare.
#[derive(Debug)]
pub struct Geography {
    kind: NetworkKind,
    seed: u64,
    loss_ppm: u64,
    places: Vec<Place>,
}

/// How one message fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// Until it arrives.
    pub delay: Duration,
    /// How often it was lost before.
    pub losses: u32,
}

impl Geography {
    /// Places for `sites` sites. Of a million frames `loss_ppm` are lost.
    pub fn new(kind: NetworkKind, seed: u64, sites: usize, loss_ppm: u64) -> Geography {
        let mut random = chance([seed, PLACES]);
        let places = (0..sites).map(|_| Place::draw(&mut random)).collect();
        Geography { kind, seed, loss_ppm, places }
    }

    /// The shortest time one way.
    pub fn one_way(&self, a: usize, b: usize) -> Duration {
        match (self.kind, self.places.get(a), self.places.get(b)) {
            (NetworkKind::Wan, Some(from), Some(to)) => from.access + to.access + from.travel(to),
            (NetworkKind::Instant, ..) => Duration::ZERO,
            _ => LOOPBACK,
        }
    }

    /// There and back.
    pub fn round_trip(&self, a: usize, b: usize) -> Duration {
        2 * self.one_way(a, b)
    }

    /// There and back to a site as far away as others are on average.
    pub fn typical_round_trip(&self, a: usize) -> Duration {
        let sites = self.places.len();
        let others = (0..SAMPLED).map(|sample| (a + 1 + sample * sites / SAMPLED) % sites.max(1));
        others.map(|other| self.round_trip(a, other)).sum::<Duration>() / SAMPLED as u32
    }

    /// How the message called `name` fares between two sites.
    pub fn passage(&self, a: usize, b: usize, name: u64) -> Passage {
        let way = self.one_way(a, b);
        let mut chance = chance([self.seed, name, pair(a, b)]);
        let jitter = way * chance.random_range(0..JITTER_PPM_MAX) / 1_000_000;
        let mut losses = 0;
        while losses < LOSSES_MAX && chance.random_range(0..1_000_000) < self.loss_ppm {
            losses += 1;
        }
        Passage { delay: way + jitter + losses * (RETRANSMIT + 2 * way), losses }
    }
}

impl Place {
    fn draw(random: &mut SplitMix64) -> Place {
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
        Place { x, y, z: latitude.sin(), access: Duration::from_micros(random.random_range(ACCESS_US)) }
    }

    fn travel(&self, to: &Place) -> Duration {
        let cosine = (self.x * to.x + self.y * to.y + self.z * to.z).clamp(-1.0, 1.0);
        Duration::from_micros((cosine.acos() * EARTH_RADIUS_KM / KM_PER_S * 1e6) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_those_of_the_world() {
        let earth = Geography::new(NetworkKind::Wan, 1, 300, 10_000);
        let mut round_trips_ms: Vec<u128> = (0..150)
            .flat_map(|a| (150..300).map(move |b| (a, b)))
            .map(|(a, b)| earth.round_trip(a, b).as_millis())
            .collect();
        round_trips_ms.sort_unstable();
        let (median, most) = (round_trips_ms[round_trips_ms.len() / 2], round_trips_ms[round_trips_ms.len() - 1]);
        assert!((80..160).contains(&median) && (200..400).contains(&most), "{median} ms, at most {most} ms");
        assert_eq!(earth.one_way(3, 9), earth.one_way(9, 3));
    }

    #[test]
    fn losses_cost_time_and_come_as_often_as_asked() {
        let earth = Geography::new(NetworkKind::Wan, 2, 10, 50_000);
        let passages: Vec<Passage> = (0..20_000).map(|name| earth.passage(1, 2, name)).collect();
        let lost = passages.iter().filter(|passage| passage.losses > 0).count();
        assert!((800..1200).contains(&lost), "{lost}");
        assert!(passages.iter().all(|passage| passage.losses == 0 || passage.delay > RETRANSMIT));
        assert_eq!(earth.passage(1, 2, 7), earth.passage(1, 2, 7));
    }
}
