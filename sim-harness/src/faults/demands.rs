//! What the users of some seeds ask beyond amounts for a time: work, whose length depends on the host, deadlines, whole hosts, and
//! few sites.
//!
//! Invariant: drawn from generators of their own, by the number of the request or host, so that other seeds run as they would.

use broker::{
    host::Speed,
    request::{Request, RequestDocument},
    time::Time,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::choice::one_of;

/// Speeds of hosts, in thousandths of the reference speed.
const SPEEDS: [u32; 4] = [500, 1_000, 1_700, 4_000];
/// What sets the generators of requests apart from those of sites.
const REQUESTS: u64 = 0x0a5c_ed00_0000;

/// The demands of a seed.
#[derive(Debug, Clone)]
pub struct Demands {
    seed: u64,
    /// Of 100 requests, how many have a deadline, how many a limit of sites, and how many take hosts whole.
    deadline_percent: u64,
    sites_max_percent: u64,
    exclusive_percent: u64,
}

impl Demands {
    /// Draws the demands of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Demands> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let drawn = Demands {
            seed,
            deadline_percent: one_of(&mut random, &[0, 30, 80]),
            sites_max_percent: one_of(&mut random, &[0, 50, 90]),
            exclusive_percent: one_of(&mut random, &[0, 0, 20]),
        };
        random.random_bool(0.5).then_some(drawn)
    }

    /// The slowest host.
    pub fn slowest() -> Speed {
        Speed::try_from(SPEEDS[0]).unwrap_or_default()
    }

    /// The speeds of a site's hosts, one after the other.
    pub fn speeds_of(&self, site: u64) -> impl Iterator<Item = Speed> + use<> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed.wrapping_add(site));
        std::iter::repeat_with(move || Speed::try_from(one_of(&mut random, &SPEEDS)).unwrap_or_default())
    }

    /// The request with this number, asking more; none when that makes no sense.
    pub fn vary(&self, number: u64, request: Request) -> Option<Request> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64((self.seed ^ REQUESTS).wrapping_add(number));
        let mut is_drawn = |percent| random.random_range(0..100) < percent;
        let mut asked = RequestDocument::from(request);
        asked.work = asked.duration.take();
        let has_deadline = is_drawn(self.deadline_percent);
        let (has_limit, few) = (is_drawn(self.sites_max_percent), is_drawn(50));
        asked.exclusive = is_drawn(self.exclusive_percent);
        asked.sites_max = has_limit.then_some(if few { 1 } else { 2 });
        // The slower hosts need longer than this.
        let is_tight = is_drawn(50);
        if let (true, Some(earliest), Some(work)) = (has_deadline, asked.earliest, asked.work) {
            let last = if is_tight { earliest } else { asked.latest.unwrap_or(earliest) };
            asked.deadline = Some(Time(last.0 + work));
        }
        Request::try_from(asked).ok()
    }
}
