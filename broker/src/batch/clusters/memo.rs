//! States that were searched already: what is left to place, and what the running gangs still need.
//!
//! Invariant: only states that were searched to the end are remembered, and of those none that another one dominates.

use super::problem::Units;

/// Most states that are remembered of each set of gangs.
const STATES_MAX: usize = 256;

/// What running gangs still need: from each time on until the next; nothing after the last.
#[derive(Debug, Clone, Default)]
pub(super) struct Profile {
    /// Starts of the steps, the first is the time of the state.
    pub times: Vec<i64>,
    /// Needs by step.
    pub needs: Vec<Units>,
}

impl Profile {
    /// Whether this one starts no later and never needs more.
    fn is_below(&self, other: &Profile, width: usize) -> bool {
        if self.times[0] > other.times[0] {
            return false;
        }
        let (mut mine, last) = (0, other.times.len());
        for at in 0..last {
            while self.times.get(mine + 1).is_some_and(|next| *next <= other.times[at]) {
                mine += 1;
            }
            let ours = &self.needs[mine * width..(mine + 1) * width];
            let theirs = &other.needs[at * width..(at + 1) * width];
            if ours.iter().zip(theirs).any(|(ours, theirs)| ours > theirs) {
                return false;
            }
        }
        true
    }
}

/// See the module.
pub(super) struct Memo {
    width: usize,
    /// By set of gangs that are left.
    known: Vec<Vec<Profile>>,
    /// States compared so far.
    pub work: u64,
}

impl Memo {
    /// For so many gangs.
    pub fn new(gangs: usize, width: usize) -> Memo {
        Memo { width, known: vec![Vec::new(); 1 << gangs], work: 0 }
    }

    /// Whether a state that is at least as good was searched.
    pub fn knows(&mut self, left: u32, state: &Profile) -> bool {
        let known = &mut self.known[left as usize];
        self.work += known.len() as u64;
        let Some(at) = known.iter().position(|other| other.is_below(state, self.width)) else { return false };
        // What prunes is asked first the next time.
        known.swap(at, at / 2);
        true
    }

    /// Writes down a state that has been searched.
    pub fn remember(&mut self, left: u32, state: Profile) {
        let known = &mut self.known[left as usize];
        self.work += known.len() as u64;
        known.retain(|other| !state.is_below(other, self.width));
        if known.len() < STATES_MAX {
            known.push(state);
        }
    }
}
