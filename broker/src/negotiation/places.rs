//! The places that a site gives in the stead of those that an attempt has named.
//!
//! Invariant: the plan has the hosts that the sites have given before a decision about it is written that is reported to anybody; what
//! it says of its efficiency is true of them. A site gives hosts for its own seats only, and none twice.

use std::collections::{BTreeMap, BTreeSet};

use super::{Negotiation, State, commit::Site};
use crate::{
    ids::{SeatNumber, SiteId},
    plan::{Place, Plan, Seat},
    protocol::SiteAnswer,
};

impl Negotiation {
    /// Whether sites may give other hosts than are named. A plan that was handed in alone is reserved as it is, what lengthens a reservation is
    /// on its hosts, and the hosts of a repair are others than the reservation has had, which its sites do not know.
    pub(super) fn may_substitute(&self) -> bool {
        (self.record.handed_in.is_none() || self.record.replans)
            && self.record.request.extends().is_none()
            && !self.is_repairing()
    }

    /// Puts the places that the answer names into the plan. An answer that names impossible ones is none.
    pub(super) fn with_places(
        &mut self,
        site: &SiteId,
        answer: Result<SiteAnswer, String>,
    ) -> Result<SiteAnswer, String> {
        let changed = match (&self.state, &answer) {
            (State::Holding { plan, sites, .. }, Ok(SiteAnswer::Held { places, .. })) => {
                // A site that has lost its hold in a crash may give others when the same hold comes again.
                let asked = sites.get(site).into_iter().flat_map(Site::grants);
                let asked = asked.map(|grant| (grant.seat, grant.place.clone()));
                self.seats_with(plan, site, asked.chain(places.iter().cloned()))?
            }
            (State::Confirming { plan, sites, .. }, Ok(SiteAnswer::Confirmed { places, .. })) => {
                let changed = self.seats_with(plan, site, places.iter().cloned())?;
                if changed.is_some() && sites.len() > 1 {
                    return Err("other hosts than it has held".to_owned());
                }
                changed
            }
            _ => None,
        };
        if let Some(seats) = changed {
            self.change_seats(seats);
        }
        answer
    }

    fn change_seats(&mut self, seats: Vec<Seat>) {
        let (State::Holding { plan, .. } | State::Confirming { plan, .. }) = &self.state else { return };
        let mut plan = Plan { seats, ..plan.clone() };
        // Nothing is known of a host that discovery has not found, or that seemed full.
        (plan.efficiency, plan.efficiency_bound) = match self.search.efficiency_of(&plan) {
            Some(efficiency) => (efficiency, plan.efficiency_bound.max(efficiency)),
            None => (0.0, 1.0),
        };
        if let State::Holding { plan: present, .. } | State::Confirming { plan: present, .. } = &mut self.state {
            *present = plan;
        }
    }

    /// The seats of a plan, those at `site` in these places, later ones before earlier ones; none when that changes nothing.
    fn seats_with(
        &self,
        plan: &Plan,
        site: &SiteId,
        places: impl Iterator<Item = (SeatNumber, Place)>,
    ) -> Result<Option<Vec<Seat>>, String> {
        let mut changed: BTreeMap<usize, Place> = BTreeMap::new();
        for (number, place) in places {
            let at = plan.seats.binary_search_by_key(&number, |seat| seat.number).ok();
            let at = at.filter(|at| plan.seats[*at].site == *site);
            changed.insert(at.ok_or_else(|| format!("a place for seat {number}, which it was not asked for"))?, place);
        }
        changed.retain(|at, place| plan.seats[*at].place != *place);
        if changed.is_empty() {
            return Ok(None);
        }
        let demand = self.record.request.demand_of(plan.variant()).ok_or("a place for what was not asked for")?;
        let needs = demand.host_needs();
        let is_named = needs.demand().candidates().is_some();
        let mut seats = plan.seats.clone();
        for (at, place) in changed {
            let host = place.host();
            if !self.may_substitute() || is_named && needs.names_of(site, host).next().is_none() {
                return Err(format!("host {host} in the place of {}, which it must not give", seats[at].host()));
            }
            seats[at].place = place;
        }
        let here: Vec<&Seat> = seats.iter().filter(|seat| seat.site == *site).collect();
        let hosts: BTreeSet<_> = here.iter().map(|seat| seat.host()).collect();
        if hosts.len() < here.len() {
            return Err("a host for two seats".to_owned());
        }
        Ok(Some(seats))
    }
}
