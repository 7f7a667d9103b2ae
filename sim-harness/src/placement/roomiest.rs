//! Roomiest hosts first, the worked example of docs/dev/placement-policies.md: at the earliest start that works, the hosts that have
//! the largest part of themselves free.
//!
//! Invariant: no search. Where the roomiest hosts lack what is asked in sum, the start is passed over, even if others
//! would do.

use super::{Asked, Choice, FreeHost, Placement};

/// The policy.
#[derive(Debug)]
pub struct Roomiest;

impl Placement for Roomiest {
    fn place(&mut self, asked: &Asked<'_>) -> Option<Choice> {
        asked.starts().into_iter().find_map(|start| {
            let mut hosts = asked.free_at(start);
            hosts.sort_by(|a, b| room(b).total_cmp(&room(a)));
            hosts.truncate(asked.request.demand().seats());
            let is_solution = hosts.len() == asked.request.demand().seats() && asked.is_met_by(&hosts);
            is_solution.then(|| Choice { start, hosts: hosts.iter().map(|host| host.at).collect() })
        })
    }
}

/// The least free part of any resource.
fn room(host: &FreeHost) -> f64 {
    let parts = host.free.iter().zip(&host.capacity).map(|(free, capacity)| *free as f64 / (*capacity).max(1) as f64);
    parts.fold(1.0, f64::min)
}
