//! What owners order for their own queues, and when ([`Queues`](super::queues::Queues)).

use broker::{
    ids::RequestId,
    ledger::{self, QueueOrder, QueuedJob, ReplyToken},
    protocol::AttemptId,
    time::{Span, Time},
};
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{canary::Canary, choice::one_of, event::Event, grid::Grid, names, world::World};
use crate::engine::Medium as _;

/// Plans when owners order something.
pub fn plan(grid: &mut Grid) {
    let Some(queues) = grid.options.queues.clone() else { return };
    let mut random = queues.generator();
    for site in 0..grid.nodes.len() {
        for _ in 0..random.random_range(0..=queues.orders_max) {
            let (at, seed) = (random.random_range(0..grid.options.faulty_ms), random.random());
            grid.after(at, Event::Order { site, seed });
        }
    }
}

/// The owner of a site orders something.
pub fn order(world: &mut World, site: usize, seed: u64) {
    let grid = &mut world.grid;
    let (mut random, now) = (Xoshiro256PlusPlus::seed_from_u64(seed), grid.clock(site).utc);
    let token = grid.name();
    let Some(stoppable) = grid.options.queues.as_ref().map(|queues| queues.stoppable) else { return };
    let Some(running) = grid.nodes[site].running() else { return };
    let known: Vec<RequestId> = running.machines.ledger.own_jobs().map(|own| own.job.attempt.request.clone()).collect();
    let one = known.choose(&mut random).cloned();
    let mut order = match (random.random_range(0..8), one) {
        (0, Some(id)) => QueueOrder::Remove(id),
        (1, Some(id)) => QueueOrder::Done(id),
        (2, Some(id)) => QueueOrder::Extend(id, Span(random.random_range(1..40))),
        _ => {
            let attempt = running.machines.ledger.own_attempt(&names::own_job(token));
            QueueOrder::Add(vec![draw(&mut random, attempt, (now, stoppable))])
        }
    };
    grid.truth.note_order(site, token, &order);
    grid.figures.own_orders += 1;
    grid.note(None, format_args!("the owner of s{site} orders {order:?}"));
    if let (QueueOrder::Add(jobs), Some(Canary::OwnJobsStopped)) = (&mut order, world.grid.canary) {
        jobs.iter_mut().for_each(|job| job.preempt = true);
    }
    world.feed_ledger(site, ledger::Event::Queue { token: ReplyToken(token), order });
}

fn draw(random: &mut Xoshiro256PlusPlus, attempt: AttemptId, (now, stoppable): (Time, f64)) -> QueuedJob {
    let length = Span(one_of(random, &[2, 5, 20, 60, 300, 2_000]));
    let slack = Span(random.random_range(0..2_000));
    let cores = one_of(random, &[500, 1_000, 2_000, 4_000]);
    QueuedJob {
        attempt,
        arrival: now,
        length,
        deadline: random.random_bool(0.7).then_some(now + length + slack),
        hosts: random.random_range(1..=2),
        amounts: names::amounts(cores, cores),
        preempt: random.random_bool(stoppable),
        first_begun: None,
    }
}
