//! The run of a seed: its options, and everything that is planned before it begins.
//!
//! Invariant: what was added to the simulator later draws from generators of its own, so earlier seeds run as they did.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    aimed,
    canary::Canary,
    options::Options,
    world::{Event, World},
};

/// With this the seed of a run becomes that of its generator of losses and takeovers.
const FATES: u64 = 0x5eed_0f10_55e5;
/// With this the seed of a run becomes that of its generator of users that change their entry point again and again.
const WANDERINGS: u64 = 0x0a11_0f17_5eed;
/// One seed in so many has such users.
const WANDERING_EVERY: u64 = 16;

impl World {
    /// The grid of a seed, before anything has happened.
    pub fn of_seed(seed: u64, canary: Option<Canary>, keeps_history: bool) -> World {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut options = Options::draw(&mut random);
        let mut attacks = Xoshiro256PlusPlus::seed_from_u64(!seed);
        options.draw_trust(&mut attacks);
        let mut fates = Xoshiro256PlusPlus::seed_from_u64(seed ^ FATES);
        options.draw_losses(&mut fates);
        let mut aims = aimed::aims_of(seed);
        if let Some(aims) = &mut aims {
            options.aim(aims);
        }
        let mut world = World::new(options, [random, attacks, fates], canary, keeps_history);
        world.plan_ahead();
        world.plan_losses();
        if aims.is_some() {
            world.aims = aims;
            world.plan_aim();
        }
        if seed % WANDERING_EVERY == WANDERING_EVERY / 4 {
            world.plan_wanderings(Xoshiro256PlusPlus::seed_from_u64(seed ^ WANDERINGS));
        }
        world
    }

    /// What is known beforehand: who joins when, what users do, and when the faults end.
    fn plan_ahead(&mut self) {
        let (sites, faulty_ms) = (self.options.sites, self.options.faulty_ms);
        for node in 0..sites {
            // Entry points are never late: users have somewhere to go.
            let is_late = node >= self.options.entry_points && node + self.options.late_sites >= sites;
            let at = if is_late { self.random.random_range(0..faulty_ms) } else { 0 };
            self.after(at, Event::Start { node, run: 0 });
        }
        for number in 0..self.options.requests {
            let at = self.random.random_range(50..faulty_ms);
            self.after(at, Event::Submit { number });
            if self.random.random_range(0..100) < self.options.cancel_percent {
                let after = self.random.random_range(1..8_000);
                self.after(at + after, Event::Cancel { number });
            }
        }
        self.after(200, Event::Fault);
        self.after(faulty_ms, Event::Heal);
    }
}
