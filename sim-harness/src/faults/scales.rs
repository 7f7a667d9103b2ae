//! Requests of some seeds that are moldable: by which factors they may be stretched or squeezed.
//!
//! Invariant: drawn from generators of their own, by the number of the request, so that other seeds run as they would.

use broker::request::{Request, RequestDocument};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::json;

/// Factors of requests; some may not be had as they are asked.
const RANGES: [[u32; 2]; 5] = [[500, 2000], [250, 1000], [1000, 3000], [300, 800], [1500, 4000]];
/// Of 100 requests, how many have some: of one seed or of another.
const PERCENT: [u64; 2] = [40, 90];

/// What sets the generators of requests apart from that of the seed.
const REQUESTS: u64 = 0x5ca1_e000_0000;

/// The factors of a seed.
#[derive(Debug, Clone)]
pub struct Scales {
    seed: u64,
    /// Of 100 requests, how many have some.
    percent: u64,
}

impl Scales {
    /// Draws the factors of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Scales> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let drawn = Scales { seed, percent: PERCENT[random.random_range(0..PERCENT.len())] };
        random.random_bool(0.5).then_some(drawn)
    }

    /// The request with this number, moldable for some of those that can be.
    pub fn vary(&self, number: u64, request: Request) -> Request {
        let mut random = Xoshiro256PlusPlus::seed_from_u64((self.seed ^ REQUESTS).wrapping_add(number));
        if random.random_range(0..100) >= self.percent {
            return request;
        }
        let range = RANGES[random.random_range(0..RANGES.len())];
        let scale = serde_json::from_value(json!(range)).ok();
        Request::try_from(RequestDocument { scale, ..request.clone().into() }).unwrap_or(request)
    }
}
