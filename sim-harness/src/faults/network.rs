//! The modelled network: delays, loss, repetition, reordering and cut links.
//!
//! Invariant: what a node sends to itself is neither lost nor repeated; after the healing nothing is.

use std::collections::BTreeSet;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::options::Options;

/// Where the links of the grid are cut.
#[derive(Debug, Default)]
pub struct Network {
    /// Links that let nothing through, from and to.
    cut: BTreeSet<(usize, usize)>,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It never arrives.
    Lost,
    /// It arrives after this time, and perhaps a second time.
    Arrives { after_ms: u64, again_after_ms: Option<u64> },
}

impl Network {
    /// Cuts the links between `part` and the rest, in both directions or only out of `part`.
    pub fn cut(&mut self, sites: usize, part: &BTreeSet<usize>, is_one_way: bool) {
        for inside in part {
            for outside in (0..sites).filter(|site| !part.contains(site)) {
                self.cut.insert((*inside, outside));
                if !is_one_way {
                    self.cut.insert((outside, *inside));
                }
            }
        }
    }

    /// All links work again.
    pub fn heal(&mut self) {
        self.cut.clear();
    }

    /// Decides about a message of a kind of which `loss_percent` are lost, from `from` to `to`. Once `is_healed`, it
    /// arrives, and soon.
    pub fn fate(
        &self,
        random: &mut Xoshiro256PlusPlus,
        (options, loss_percent): (&Options, u64),
        (from, to): (usize, usize),
        is_healed: bool,
    ) -> Fate {
        if from == to {
            return Fate::Arrives { after_ms: 0, again_after_ms: None };
        }
        let after_ms = random.random_range(1..=options.delay_ms_max);
        if is_healed {
            return Fate::Arrives { after_ms, again_after_ms: None };
        }
        let mut happens = |percent: u64| random.random_range(0..100) < percent;
        if self.cut.contains(&(from, to)) || happens(loss_percent) {
            return Fate::Lost;
        }
        let (is_late, is_repeated) = (happens(options.late_percent), happens(options.repeat_percent));
        let mut late = || random.random_range(1..=options.latest_ms);
        Fate::Arrives { after_ms: if is_late { late() } else { after_ms }, again_after_ms: is_repeated.then(late) }
    }
}
