//! Another host of the site in the place of one that a hold names and that has no room. All coordinators prefer the same hosts, and the
//! news of what is taken comes late: a refusal would cost each of them another attempt.
//!
//! Invariant: a substitute passes every check that the named host would have to pass, is exactly as fast and as dear, so that the seat keeps
//! its window, its amounts and its cost, and has nothing else of the request.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{Books, Ledger};
use crate::{
    amount::Amount,
    host::Host,
    ids::HostId,
    plan::Place,
    protocol::{Grant, HoldRequest, Places},
    resources::amount_of,
    trust::{Permit, asked},
};

/// Most hosts that are tried for one message: no site has more, and a hold of a thousand seats on full hosts would cost far more.
const TRIES_MAX: usize = 1_024;

/// What decides which hosts may take the place of others.
#[derive(Debug)]
pub(super) struct Substitutes<'a> {
    hold: &'a HoldRequest,
    permit: &'a Permit,
    /// How many sites take part.
    sites: usize,
}

impl<'a> Substitutes<'a> {
    /// For a hold that is permitted.
    pub(super) fn of(hold: &'a HoldRequest, permit: &'a Permit) -> Substitutes<'a> {
        Substitutes { hold, permit, sites: hold.participants.iter().collect::<BTreeSet<_>>().len() }
    }
}

/// Whether what is held is what `hold` asks for, as far as it names hosts that must be given.
pub(super) fn is_what_it_gives(hold: &HoldRequest, held: &[Grant]) -> bool {
    let is_same = |(held, asked): (&Grant, &Grant)| {
        let is_same_place = hold.may_substitute || held.place == asked.place;
        is_same_place
            && (held.seat, held.window, &held.amounts, &held.agreed)
                == (asked.seat, asked.window, &asked.amounts, &asked.agreed)
    };
    held.len() == hold.grants.len() && held.iter().zip(&hold.grants).all(is_same)
}

/// The places given where they are not those asked for.
pub(super) fn replaced(given: &[Grant], asked: &[Grant]) -> Places {
    let others = given.iter().zip(asked).filter(|(given, asked)| given.place != asked.place);
    others.map(|(given, _)| (given.seat, given.place.clone())).collect()
}

impl<B: Books> Ledger<B> {
    /// The grants with other hosts in the place of those that have no room, or a floating seat of the same request; none when some seat finds no host.
    pub(super) fn substituted(&self, grants: &[Grant], others: &Substitutes<'_>) -> Option<Vec<Grant>> {
        let request = &others.hold.attempt.request;
        let may_stay = |grant: &Grant| {
            let one = std::slice::from_ref(grant);
            self.check_room(one).is_ok() && !self.shares_with_floating(one, request)
        };
        let kept: Vec<bool> = grants.iter().map(may_stay).collect();
        let of_request = self.of_name(request).flat_map(|booking| &booking.grants);
        let mut taken: BTreeSet<HostId> = of_request.map(|grant| grant.host().clone()).collect();
        taken.extend(grants.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(grant, _)| grant.host().clone()));
        let mut tries = TRIES_MAX;
        let mut given = grants.to_vec();
        let mut displaced: Vec<usize> = (0..grants.len()).filter(|at| !kept[*at]).collect();
        // What takes most has the fewest hosts to choose from.
        displaced
            .sort_by_key(|at| Reverse(grants[*at].amounts.values().map(|amount| u128::from(amount.0)).sum::<u128>()));
        for at in displaced {
            let host = self.substitute(&grants[at], &taken, others, &mut tries)?;
            taken.insert(host.clone());
            given[at].place = Place::Host(host);
        }
        self.check_room(&given).is_ok().then_some(given)
    }

    /// The host for a seat on which least is left free of what the seat takes, so that large rooms stay large. All holds of the site
    /// come here one after the other, so it does not matter that all would choose the same.
    fn substitute(
        &self,
        grant: &Grant,
        taken: &BTreeSet<HostId>,
        Substitutes { permit, sites, .. }: &Substitutes<'_>,
        tries: &mut usize,
    ) -> Option<HostId> {
        let named = self.hosts.get(grant.host())?.host();
        let is_alike = |host: &Host| host.speed == named.speed && host.tariff == named.tariff;
        let others = self.hosts.iter().filter(|(id, books)| !taken.contains(*id) && is_alike(books.host()));
        let mut best: Option<(u128, &HostId)> = None;
        for (id, books) in others.take(*tries) {
            *tries -= 1;
            // Most hosts of a full site end here.
            let left = left_on(books, grant).filter(|left| best.is_none_or(|(least, _)| *left < least));
            let Some(left) = left else { continue };
            let one = [Grant { place: Place::Host(id.clone()), ..grant.clone() }];
            let serves = || {
                let asked = asked::check(&permit.statement, (&one, *sites), &self.site, |_| Some(books.host()));
                asked.is_ok() && self.check_share(&one, permit.account).is_ok()
            };
            if self.check_room(&one).is_ok() && serves() {
                best = Some((left, id));
            }
        }
        best.map(|(_, id)| id.clone())
    }
}

/// How much stays free of what a seat takes, over all its resources: in parts of a million of the host's own. None where there is too
/// little.
pub(super) fn left_on(books: &impl Books, grant: &Grant) -> Option<u128> {
    let left = |(name, asked): (_, &Amount)| {
        let capacity = amount_of(&books.host().capacity, name);
        let free = capacity.0.checked_sub(books.promised().peak(name, grant.window).0)?.checked_sub(asked.0)?;
        Some(u128::from(free) * 1_000_000 / u128::from(capacity.0.max(1)))
    };
    grant.amounts.iter().map(left).sum()
}
