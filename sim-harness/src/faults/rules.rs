//! Owners whose rules change while requests are under way: when their hosts are to be had, how long and how far ahead.
//!
//! Invariant: drawn from a generator of their own, so that other seeds run as they would.

use std::sync::Arc;

use broker::{
    offered::{Offered, Spans},
    time::{Span, Time, Window},
    trust::OwnerPolicy,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::choice::one_of;

/// How far ahead spans are laid out.
const LAID_OUT: i64 = 3 * 86_400;

/// The changes of rules of a seed.
#[derive(Debug, Clone)]
pub struct Rules {
    seed: u64,
    /// How many there are.
    pub changes: usize,
}

impl Rules {
    /// Draws those of a seed: two of three seeds have some.
    pub fn draw(seed: u64) -> Option<Rules> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let changes = one_of(&mut random, &[1, 4, 16]);
        (random.random_range(0..3) > 0).then_some(Rules { seed, changes })
    }

    /// What draws when, and where, rules change.
    pub fn generator(&self) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 1)
    }
}

/// The rules of the owner of a site in force, beside those that hold for all.
pub fn in_force(offered: Option<&Offered>, policy: OwnerPolicy) -> OwnerPolicy {
    let Some(Offered { spans, longest, reach, .. }) = offered.cloned() else { return policy };
    OwnerPolicy {
        spans,
        max_duration: [longest, policy.max_duration].into_iter().flatten().min(),
        max_reach: [reach, policy.max_reach].into_iter().flatten().min(),
        ..policy
    }
}

/// Draws what an owner offers from `now` on.
pub fn offered_from(random: &mut Xoshiro256PlusPlus, now: Time) -> Offered {
    let (open, closed) = (one_of(random, &[60, 900, 4_000, 20_000]), one_of(random, &[1, 60, 900, 8_000]));
    let first = now.0 - random.random_range(0..open + closed);
    let starts = (0..).map(|number| first + number * (open + closed)).take_while(|start| *start < now.0 + LAID_OUT);
    let spans = starts.take(Spans::MOST).map(|start| Window { start: Time(start.max(0)), end: Time(start + open) });
    let spans = Spans::new(spans.filter(|span| span.start < span.end)).map(Arc::new);
    Offered {
        spans: spans.ok().filter(|_| random.random_range(0..4) > 0),
        longest: one_of(random, &[None, None, Some(Span(500)), Some(Span(5_000))]),
        reach: one_of(random, &[None, None, Some(Span(4_000))]),
        ..Offered::default()
    }
}
