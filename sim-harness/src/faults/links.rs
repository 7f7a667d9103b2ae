//! Uplinks of sites, and traffic between the hosts of some requests.
//!
//! Invariant: drawn from generators of their own, by the number of the site or request, so that other seeds run as they would.

use broker::{
    amount::Amount,
    request::{Request, RequestDocument},
    traffic::Traffic,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::options::one_of;

/// Capacities of uplinks, in Mbit/s; none has no limit.
const UPLINKS: [Option<Amount>; 6] =
    [None, Some(Amount(15)), Some(Amount(60)), Some(Amount(60)), Some(Amount(150)), Some(Amount(600))];
/// What a host sends to all others, in Mbit/s.
const TRAFFIC: [u64; 5] = [1, 10, 25, 60, 200];
/// Which part of the work computes, in thousandths.
const COMPUTE: [u32; 3] = [Traffic::COMPUTE_MAX, 700, 0];
/// One request in so many has traffic.
const TALKS_EVERY: u32 = 3;
/// What sets the generators of requests apart from those of sites.
const REQUESTS: u64 = 0x07a1_c500_0000;

/// The links of a seed.
#[derive(Debug, Clone)]
pub struct Links {
    seed: u64,
}

impl Links {
    /// The links of a seed.
    pub fn of(seed: u64) -> Links {
        Links { seed }
    }

    /// The capacity of a site's uplink, in Mbit/s; none without a limit.
    pub fn uplink_of(&self, site: u64) -> Option<Amount> {
        one_of(&mut Xoshiro256PlusPlus::seed_from_u64(self.seed.wrapping_add(site)), &UPLINKS)
    }

    /// The request with this number, with traffic for some.
    pub fn vary(&self, number: u64, request: Request) -> Request {
        let mut random = Xoshiro256PlusPlus::seed_from_u64((self.seed ^ REQUESTS).wrapping_add(number));
        if random.random_range(0..TALKS_EVERY) > 0 {
            return request;
        }
        let mut asked = RequestDocument::from(request.clone());
        asked.work = asked.work.or(asked.duration.take());
        asked.traffic =
            Some(Traffic { mbps: Amount(one_of(&mut random, &TRAFFIC)), compute: one_of(&mut random, &COMPUTE) });
        Request::try_from(asked).unwrap_or(request)
    }
}
