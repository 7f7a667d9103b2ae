//! What the users of some seeds ask beyond amounts for a time: work, whose length depends on the host, deadlines, whole hosts, and
//! few sites.
//!
//! Invariant: drawn from generators of their own, by the number of the request or host, so that other seeds run as they would.

use broker::{
    host::Speed,
    ids::HostId,
    request::{Request, RequestDocument},
    time::Time,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{grid::Grid, options::one_of};

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

    /// Gives the hosts of every site their speeds.
    pub fn set_speeds(&self, grid: &mut Grid) {
        for (index, node) in (0..).zip(&mut grid.nodes) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed.wrapping_add(index));
            for (host, _) in &mut node.hosts {
                host.speed = Speed::try_from(one_of(&mut random, &SPEEDS)).unwrap_or_default();
            }
            node.hosts_at_first.clone_from(&node.hosts);
        }
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

/// Whether a site had a host with exactly these amounts at some time: its owner may take half of it away, and give it back.
pub fn is_whole(grid: &Grid, site: usize, host: &HostId, amounts: &broker::resources::Amounts) -> bool {
    let at_first = grid.nodes[site].hosts_at_first.iter().find(|(at_first, _)| at_first.id == *host);
    at_first.is_some_and(|(at_first, _)| {
        let is_half = amounts
            .iter()
            .all(|(name, amount)| at_first.capacity.get(name).is_some_and(|capacity| capacity.0 / 2 == amount.0));
        at_first.capacity == *amounts || is_half && at_first.capacity.len() == amounts.len()
    })
}
