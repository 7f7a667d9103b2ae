//! A hoarder asks a site for holds.
//!
//! Invariant: what it holds lies behind all that users ask for.

use std::sync::Arc;

use broker::{
    ids::SeatNumber,
    plan::Place,
    protocol::{AttemptId, Grant, HoldRequest, SiteRequest},
    request::{Request, RequestDocument},
    time::{Span, Window},
    trust::RequestStatement,
    variant::Variant,
};

use super::{
    event::Event,
    grid::Grid,
    message::{Body, Question},
    names,
};

/// Requests of users have lower numbers.
const FIRST_NUMBER: u64 = 1_000_000;
/// How far ahead the windows begin: within all shares, and later than any request of a user ends.
const AHEAD: Span = Span(15_000);
/// How long they are.
const LENGTH: Span = Span(60);
/// How long what is signed is valid.
const VALID: Span = Span(10_000_000);

/// Plans when the hoarder of a seed asks for holds.
pub fn plan(grid: &mut Grid) {
    let Some(hoards) = grid.options.hoards.clone() else { return };
    let (node, site) = hoards.parties(grid.options.entry_points, grid.nodes.len());
    for (number, at) in (FIRST_NUMBER..).zip(hoards.times(grid.options.faulty_ms)) {
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
        variant: Variant::default(),
        grants: vec![grant],
        participants: vec![grid.nodes[site].site.clone()],
        hold_for: hoards.hold_for(number),
        may_substitute: false,
        authorization: Arc::new(grid.authorize(node, (&id, &request), number, term)),
    };
    grid.figures.hoarded += 1;
    let ask = grid.name();
    grid.send(node, site, Body::Ask { ask, question: Question::Hoard(attempt), request: SiteRequest::Hold(hold) });
}
