//! Requests of some seeds that are lists of shapes: other numbers of hosts, for other lengths, perhaps with amounts of their own.
//!
//! Invariant: drawn from generators of their own, by the number of the request, so that other seeds run as they would.

use broker::{
    amount::Amount,
    request::{Request, RequestDocument},
    shapes::ShapeDocument,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::choice::one_of;

/// What sets the generators of requests apart from that of the seed.
const REQUESTS: u64 = 0x05ba_9e50_0000;

/// The shapes of a seed.
#[derive(Debug, Clone)]
pub struct Shapes {
    seed: u64,
    /// Of 100 requests, how many have some.
    percent: u64,
}

impl Shapes {
    /// Draws the shapes of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Shapes> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let drawn = Shapes { seed, percent: one_of(&mut random, &[30, 90]) };
        random.random_bool(0.5).then_some(drawn)
    }

    /// The request with this number, as one of two or three shapes for some.
    pub fn vary(&self, number: u64, request: Request) -> Request {
        let mut random = Xoshiro256PlusPlus::seed_from_u64((self.seed ^ REQUESTS).wrapping_add(number));
        if random.random_range(0..100) >= self.percent {
            return request;
        }
        let mut asked = RequestDocument::from(request.clone());
        let own =
            ShapeDocument { hosts: asked.hosts, duration: asked.duration, work: asked.work, ..Default::default() };
        let mut shapes = vec![own.clone()];
        for _ in 0..random.random_range(1..=2) {
            let hosts = random.random_range(1..=5);
            // As long, or as much longer as there are fewer hosts.
            let is_as_long = random.random_range(0..3) == 0;
            let length = |seconds: i64| {
                if is_as_long { seconds } else { (seconds * i64::from(own.hosts) / i64::from(hosts)).max(1) }
            };
            let (duration, work) = (own.duration.map(length), own.work.map(length));
            let halved = || asked.total.iter().map(|(name, amount)| (name.clone(), Amount(amount.0 / 2)));
            let total = (random.random_range(0..2) == 0).then(|| halved().collect());
            let at = random.random_range(0..=shapes.len());
            shapes.insert(at, ShapeDocument { hosts, duration, work, per_host: None, total });
        }
        (asked.hosts, asked.duration, asked.work, asked.shapes) = (0, None, None, Some(shapes));
        Request::try_from(asked).unwrap_or(request)
    }
}
