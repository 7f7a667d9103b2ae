//! Kolo's own phases II to V, as one placement policy among others.

use broker::{
    phases::{self, Candidate, Job},
    plan::Seat,
    request::Effort,
};

use super::{Asked, Choice, Placement};

/// The policy.
#[derive(Debug)]
pub struct Kolo;

impl Placement for Kolo {
    fn place(&mut self, asked: &Asked<'_>) -> Option<Choice> {
        let Asked { request, earliest, latest, candidates, seed } = *asked;
        let effort = request.effort().unwrap_or(Effort::Fast);
        let outcome = phases::plan(&Job::of(request, (earliest, latest)), candidates, effort, seed, &mut ());
        let plan = outcome.plan()?;
        let place = |grant: &Seat| {
            candidates
                .binary_search_by(|Candidate { site, host, .. }| (*site, &host.id).cmp(&(&grant.site, grant.host())))
                .ok()
        };
        Some(Choice { start: plan.start, hosts: plan.seats.iter().filter_map(place).collect() })
    }
}
