//! Requests of some seeds whose users may wait: their reservations may begin later for own jobs of their sites.
//!
//! Invariant: drawn from generators of their own, by the number of the request, so that other seeds run as they would.

use broker::{
    request::{Request, RequestDocument},
    time::Span,
};
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How much later requests may begin.
const SLACKS: [Span; 4] = [Span(20), Span(120), Span(600), Span(3_600)];
/// Of 100 requests, so many have some.
const PERCENT: u64 = 80;

/// What sets the generators of requests apart from that of the seed.
const REQUESTS: u64 = 0x51ac_6000_0000;

/// The slacks of a seed.
#[derive(Debug, Clone)]
pub struct Slacks {
    seed: u64,
}

impl Slacks {
    /// Those of a seed.
    pub fn of(seed: u64) -> Slacks {
        Slacks { seed }
    }

    /// The request with this number, of a user who may wait for some of them. All is at one site for most of these.
    pub fn vary(&self, number: u64, request: Request) -> Request {
        let mut random = Xoshiro256PlusPlus::seed_from_u64((self.seed ^ REQUESTS).wrapping_add(number));
        if random.random_range(0..100) >= PERCENT {
            return request;
        }
        let mut asked = RequestDocument::from(request.clone());
        asked.slack = SLACKS.choose(&mut random).copied().unwrap_or_default();
        if random.random_bool(0.75) {
            asked.sites_max = Some(1);
        }
        Request::try_from(asked).unwrap_or(request)
    }
}
