//! A node of some seeds that asks one site for hold after hold and confirms none.
//!
//! Invariant: drawn from generators of its own, so that other seeds run as they would. What it holds lies behind all that users ask for.

use std::sync::Arc;

use broker::{
    ids::{SeatNumber, ShapeNumber},
    plan::Place,
    protocol::{AttemptId, Grant, HoldRequest, SiteRequest},
    request::{Request, RequestDocument},
    time::{Millis, Span, Window},
    trust::RequestStatement,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    event::Event,
    grid::Grid,
    message::{Body, Question},
    names,
    options::{Options, one_of},
};

/// Requests of users have lower numbers.
const FIRST_NUMBER: u64 = 1_000_000;
/// How far ahead the windows begin: within all shares, and later than any request of a user ends.
const AHEAD: Span = Span(15_000);
/// How long they are.
const LENGTH: Span = Span(60);
/// How long what is signed is valid.
const VALID: Span = Span(10_000_000);

/// The hoarder of a seed.
#[derive(Debug, Clone)]
pub struct Hoards {
    seed: u64,
}

impl Hoards {
    /// Draws that of a seed: a third of the seeds have one.
    pub fn draw(seed: u64) -> Option<Hoards> {
        (Xoshiro256PlusPlus::seed_from_u64(seed).random_range(0..3) == 0).then_some(Hoards { seed })
    }

    /// The hoarder, and the site whose hosts it holds, which is another one.
    pub fn parties(&self, options: &Options) -> (usize, usize) {
        let mut random = self.generator(0);
        let (node, next) = (random.random_range(0..options.entry_points), random.random_range(1..options.sites));
        (node, (node + next) % options.sites)
    }

    fn generator(&self, number: u64) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64((self.seed ^ 1).wrapping_add(number))
    }
}

/// Plans when the hoarder of a seed asks for holds: four times a second and more.
pub fn plan(grid: &mut Grid) {
    let Some(hoards) = &grid.options.hoards else { return };
    let (node, site) = hoards.parties(&grid.options);
    let mut random = hoards.generator(1);
    let mut at = random.random_range(0..2_000);
    for number in FIRST_NUMBER.. {
        at += random.random_range(100..250);
        if at >= grid.options.faulty_ms {
            break;
        }
        grid.after(at, Event::Hoard { node, site, number });
    }
}

/// A node that runs asks a site for a hold on its first host.
pub fn hold(grid: &mut Grid, (node, site): (usize, usize), number: u64) {
    let Some(hoards) = grid.options.hoards.clone().filter(|_| !grid.is_healed) else { return };
    let Some((host, _)) = grid.nodes[site].hosts.first().filter(|_| grid.nodes[node].running().is_some()) else {
        return;
    };
    let (id, amounts) = (names::request(number), names::amounts(1, 1));
    let asked = RequestDocument {
        hosts: 1,
        duration: Some(LENGTH.0.cast_signed()),
        per_host: amounts.clone(),
        ..Default::default()
    };
    let Ok(request) = Request::try_from(asked) else { return };
    let start = grid.utc() + AHEAD;
    let window = Window { start, end: start + LENGTH };
    let agreed = host.tariff.agreement(Some(grid.clock(site).utc), window, &amounts);
    let grant = Grant { seat: SeatNumber(0), place: Place::Host(host.id.clone()), window, amounts, agreed };
    let term = (RequestStatement::FIRST_TERM, grid.utc() + VALID);
    let attempt = AttemptId { entry_point: grid.nodes[node].site.clone(), request: id.clone(), attempt: 1 };
    let hold = HoldRequest {
        attempt: attempt.clone(),
        shape: ShapeNumber::default(),
        grants: vec![grant],
        participants: vec![grid.nodes[site].site.clone()],
        hold_for: one_of(&mut hoards.generator(number), &[Millis(200), Millis(500), Millis(700), Millis(12_000)]),
        may_substitute: false,
        authorization: Arc::new(grid.authorize(node, (&id, &request), number, term)),
    };
    grid.figures.hoarded += 1;
    let ask = grid.name();
    grid.send(node, site, Body::Ask { ask, question: Question::Hoard(attempt), request: SiteRequest::Hold(hold) });
}
