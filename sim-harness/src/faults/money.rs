//! The prices and conditions of owners, and the budgets of users.
//!
//! Invariant: drawn from generators of their own, by the number of the site or request, so that other seeds run as they would.

use broker::{
    cost::{Cost, Price, PriceList, Prices},
    request::{ObjectiveKind, Request, RequestDocument},
    resources::ResourceName,
    tariff::{Before, Conditions, Parts, Tariff},
    time::{Span, Time},
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::choice::one_of;

/// What sets the generators of requests apart from those of sites.
const REQUESTS: u64 = 0x00b4_d6e7_0000;
/// Most changes of prices in a run.
const CHANGES_MAX: usize = 12;

/// The money of a seed.
#[derive(Debug, Clone)]
pub struct Money {
    /// Of its generators.
    pub seed: u64,
    /// Of 100 hosts, how many have a price.
    priced_percent: u64,
    /// Of 100 requests, how many have a budget.
    budget_percent: u64,
    /// Whether owners ask for notice, or keep a part of their hosts for themselves.
    pub restricts: bool,
    /// How often owners change their prices.
    pub changes: usize,
}

impl Money {
    /// Draws the money of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Money> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let drawn = Money {
            seed,
            priced_percent: one_of(&mut random, &[30, 80, 100]),
            budget_percent: one_of(&mut random, &[0, 60, 100]),
            restricts: random.random_range(0..3) == 0,
            changes: one_of(&mut random, &[0, 3, CHANGES_MAX]),
        };
        random.random_bool(0.5).then_some(drawn)
    }

    /// Draws the tariff of a host.
    pub fn tariff(&self, random: &mut Xoshiro256PlusPlus, now: Time) -> Tariff {
        if random.random_range(0..100) >= self.priced_percent {
            return Tariff::default();
        }
        let list =
            |price: u32| ResourceName::new("cpu").map(|cpu| PriceList::from([(cpu, Price(price))])).unwrap_or_default();
        let mut price = || one_of(random, &[0, 20_000, 300_000, 600_000]);
        let (first, second) = (price(), price());
        let later = Time(now.0 + random.random_range(0..600));
        let prices = match random.random_range(0..2) {
            0 => Prices::Always(list(first)),
            _ => Prices::From(vec![(Time::ZERO, list(first)), (later, list(second))]),
        };
        let step = |(start, part): &(u64, u32)| Before { start: Span(*start), part: Parts(*part) };
        let steps = |steps: &[(u64, u32)]| steps.iter().map(step).collect();
        let mut conditions = Conditions {
            surcharges: steps(one_of(random, &[&[], &[(120, 500)], &[(30, 2_000), (600, 100)]])),
            refunds: steps(one_of(random, &[&[], &[(0, 500)], &[(60, 300), (600, 1_000)]])),
            ..Conditions::default()
        };
        if self.restricts {
            conditions.notice_min = Span(one_of(random, &[0, 10, 60]));
            conditions.horizon = one_of(random, &[None, Some(Span(7_200))]);
            conditions.share_max = one_of(random, &[None, Some(Parts(700))]);
        }
        Tariff { prices, conditions }
    }

    /// The request with this number, with a budget for some.
    pub fn vary(&self, number: u64, request: Request) -> Request {
        let mut random = Xoshiro256PlusPlus::seed_from_u64((self.seed ^ REQUESTS).wrapping_add(number));
        let mut asked = RequestDocument::from(request.clone());
        let seats = u64::from(asked.hosts);
        let budget = seats * one_of(&mut random, &[100, 3_000, 20_000]) + random.random_range(0..500);
        asked.budget = (random.random_range(0..100) < self.budget_percent).then_some(Cost(budget));
        if random.random_range(0..4) == 0 {
            asked.objective = ObjectiveKind::Cost;
        }
        Request::try_from(asked).unwrap_or(request)
    }
}
