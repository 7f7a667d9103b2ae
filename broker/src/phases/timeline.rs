//! What is free on every host as the start moves on: the state at one start, and all changes until a later one.
//!
//! Invariant: after the changes up to a start are applied, `V_a` and the `a_ij^t` are those of that start. Use above the
//! limit of a host counts as just above it, so only available hosts show what they have free.

use super::{
    problem::{Problem, Slot},
    windowed::SlidingPeak,
};
use crate::time::{Span, Time};

/// Changes gathered at a time; a longer range is taken in parts.
const CHANGES_MAX: usize = 1 << 20;

/// A use above every capacity, far from the ends of 64 bits.
const NOTHING_FREE: i64 = i64::MAX / 2;

/// A change of what one host has free of one resource.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    /// From this start on.
    pub time: i64,
    /// `host * width + resource`.
    cell: u32,
    used: i64,
}

/// See the module.
pub(crate) struct Timeline<'s, 'a> {
    problem: &'s Problem<'a>,
    /// `a_ij^t` of the hosts that were gathered.
    free: Vec<i64>,
    /// Resources of a host whose free amount is below `d_i`; not 0 for hosts that were not gathered.
    short: Vec<u32>,
    available: usize,
    changes: Vec<Change>,
    /// The longest part whose changes fit, as far as is known.
    length_max: i64,
}

impl<'s, 'a> Timeline<'s, 'a> {
    /// A timeline on which no host is available.
    pub fn new(problem: &'s Problem<'a>) -> Timeline<'s, 'a> {
        let (free, short, changes) = (Vec::new(), Vec::new(), Vec::new());
        Timeline { problem, free, short, available: 0, changes, length_max: i64::MAX }
    }

    /// Number of hosts that are available.
    pub fn available(&self) -> usize {
        self.available
    }

    /// `a_ij^t` of one host, `None` when it is not available.
    pub fn free(&self, host: usize) -> Option<&[i64]> {
        let width = self.problem.width();
        (self.short[host] == 0).then(|| &self.free[host * width..][..width])
    }

    /// The hosts that are available now, as the slot of this start.
    pub fn slot(&self, start: Time) -> Slot {
        let problem = self.problem;
        let mut slot = Slot { start, hosts: Vec::with_capacity(self.available), free: Vec::new() };
        slot.free.reserve(self.available * problem.width());
        for host in 0..problem.hosts.len() {
            if let Some(free) = self.free(host) {
                slot.hosts.push(host as u32);
                slot.free.extend_from_slice(free);
            }
        }
        slot
    }

    /// Goes to `first`. The last start until which all changes are gathered: `last`, or an earlier one when those of the
    /// whole range are too many.
    pub fn begin(&mut self, hosts: &[u32], first: Time, last: Time) -> Time {
        loop {
            let until = Time(last.0.min(first.0.saturating_add(self.length_max - 1)));
            self.gather(hosts, first, until);
            if self.changes.len() < CHANGES_MAX || until == first {
                self.available = self.short.iter().filter(|short| **short == 0).count();
                return until;
            }
            self.length_max = ((until.0 - first.0 + 1) / 2).max(1);
        }
    }

    fn gather(&mut self, hosts: &[u32], first: Time, last: Time) {
        let problem = self.problem;
        let width = problem.width();
        let Timeline { free, short, changes, .. } = self;
        free.clear();
        free.resize(problem.hosts.len() * width, 0);
        short.clear();
        short.resize(problem.hosts.len(), u32::MAX);
        changes.clear();
        let mut peak = SlidingPeak::default();
        for host in hosts.iter().map(|host| *host as usize) {
            let before = changes.len();
            let until = Time(last.0.min(problem.latest(host)));
            if until < first {
                continue;
            }
            let length = Span(problem.lengths[host].unsigned_abs());
            short[host] = 0;
            for column in 0..width {
                let cell = host * width + column;
                let limit = problem.limit(host, column);
                let own = changes.len();
                let used = match problem.occupancy(host, column) {
                    None => 0,
                    Some(occupancy) => {
                        peak.follow(occupancy, length, (first, until), limit, |time, used| {
                            // The pool times the width of a request is below 2^32.
                            changes.push(Change { time, cell: cell as u32, used });
                        })
                    }
                };
                free[cell] = problem.capacity[cell] - used;
                short[host] += u32::from(used > limit);
                if used > limit && changes.len() == own {
                    // Short for good: its other resources do not matter.
                    changes.truncate(before);
                    short[host] = u32::MAX;
                    break;
                }
            }
            if until < last && short[host] != u32::MAX {
                // From here on the deadline excludes it: nothing is free, and no later change says otherwise.
                changes.push(Change { time: until.0 + 1, cell: (host * width) as u32, used: NOTHING_FREE });
            }
            if changes.len() >= CHANGES_MAX && first < last {
                return;
            }
        }
        changes.sort_by_key(|change| change.time);
    }

    /// Takes the changes, in order of time; to be given back by [`Timeline::keep`].
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Keeps the room of the changes for the next part.
    pub fn keep(&mut self, changes: Vec<Change>) {
        self.changes = changes;
    }

    /// Splits changes of one time by host.
    pub fn by_host<'c>(&self, same_time: &'c [Change]) -> impl Iterator<Item = (usize, &'c [Change])> + use<'c> {
        let width = self.problem.width();
        let of_host = same_time.chunk_by(move |a, b| a.cell as usize / width == b.cell as usize / width);
        of_host.map(move |changes| (changes[0].cell as usize / width, changes))
    }

    /// Applies all changes of one host at one time; true when something free rose.
    pub fn apply(&mut self, host: usize, changes: &[Change]) -> bool {
        let problem = self.problem;
        let first_cell = host * problem.width();
        let was_available = self.short[host] == 0;
        let mut rose = false;
        for change in changes {
            let cell = change.cell as usize;
            let (before, after) = (self.free[cell], problem.capacity[cell] - change.used);
            let minimum = problem.minimum[cell - first_cell];
            self.free[cell] = after;
            rose |= after > before;
            self.short[host] = self.short[host] + u32::from(after < minimum) - u32::from(before < minimum);
        }
        self.available = self.available + usize::from(self.short[host] == 0) - usize::from(was_available);
        rose
    }
}
