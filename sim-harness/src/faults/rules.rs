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

use super::{event::Event, grid::Grid, options::one_of};

/// How far ahead spans are laid out.
const LAID_OUT: i64 = 3 * 86_400;

/// The changes of rules of a seed.
#[derive(Debug, Clone)]
pub struct Rules {
    seed: u64,
    /// How many there are.
    changes: usize,
}

impl Rules {
    /// Draws those of a seed: two of three seeds have some.
    pub fn draw(seed: u64) -> Option<Rules> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let changes = one_of(&mut random, &[1, 4, 16]);
        (random.random_range(0..3) > 0).then_some(Rules { seed, changes })
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

/// Plans the changes.
pub fn plan(grid: &mut Grid) {
    let Some(rules) = grid.options.rules.clone() else { return };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(rules.seed ^ 1);
    for _ in 0..rules.changes {
        let at = random.random_range(0..grid.options.faulty_ms);
        let (site, seed) = (random.random_range(0..grid.nodes.len()), random.random());
        grid.after(at, Event::Rules { site, seed });
    }
}

/// The owner of a site has other rules from now on.
pub fn change(grid: &mut Grid, site: usize, seed: u64) {
    let (mut random, now) = (Xoshiro256PlusPlus::seed_from_u64(seed), grid.clock(site).utc);
    let offered = draw(&mut random, now);
    grid.note(None, format_args!("s{site} offers {offered:?}"));
    grid.nodes[site].offered = Some(offered);
    grid.figures.rule_changes += 1;
    let policy = super::life::policy_of(grid, site);
    if let Some(running) = grid.nodes[site].running() {
        running.gate.lock().set_policy(policy);
    }
}

fn draw(random: &mut Xoshiro256PlusPlus, now: Time) -> Offered {
    let (open, closed) = (one_of(random, &[60, 900, 4_000, 20_000]), one_of(random, &[1, 60, 900, 8_000]));
    let first = now.0 - random.random_range(0..open + closed);
    let starts = (0..).map(|number| first + number * (open + closed)).take_while(|start| *start < now.0 + LAID_OUT);
    let spans = starts.take(Spans::MOST).map(|start| Window { start: Time(start.max(0)), end: Time(start + open) });
    let spans = Spans::new(spans.filter(|span| span.start < span.end)).map(Arc::new);
    Offered {
        spans: spans.ok().filter(|_| random.random_range(0..4) > 0),
        longest: one_of(random, &[None, None, Some(Span(500)), Some(Span(5_000))]),
        reach: one_of(random, &[None, None, Some(Span(4_000))]),
        asks: false,
    }
}
