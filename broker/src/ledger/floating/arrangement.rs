//! Hosts for what has no room where it is named: seats that float make room for it.
//!
//! Invariant: a seat moves within its class, to a host of the same tariff, and never beside another seat of its request.

use std::collections::{BTreeMap, BTreeSet};

use super::MOVES_MAX;
use crate::{
    ids::{HostId, RequestId, SeatNumber},
    ledger::{
        Books, Ledger,
        seating::{Floater, Seating, Spot},
    },
    plan::Place,
    protocol::{AttemptId, Grant},
    tariff::Tariff,
};

/// What is to have hosts.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Wanted<'a> {
    pub grants: &'a [Grant],
    /// Whose seats they are, if they are a request's.
    pub request: Option<&'a RequestId>,
    /// Whether those on hosts of a class float.
    pub floats: bool,
}

/// Hosts by which everything fits.
pub(in crate::ledger) struct Arrangement {
    /// What is wanted, with its hosts.
    pub given: Vec<Grant>,
    moves: Vec<(AttemptId, SeatNumber, HostId)>,
}

/// Seats on hosts of one class that have one tariff, by their place among the grants: where a seat goes it costs what was agreed.
struct Alike<'a> {
    class: HostId,
    /// None when the named host is gone.
    tariff: Option<&'a Tariff>,
    seats: Vec<usize>,
}

/// A class, as the seating knows it.
struct Group {
    seating: Seating,
    /// Which seat each floater of the seating is.
    seats: Vec<(AttemptId, SeatNumber)>,
}

impl<B: Books> Ledger<B> {
    /// Hosts for what is wanted, where others of their class go elsewhere; none when none were found.
    pub(in crate::ledger) fn arranged(&self, wanted: &Wanted<'_>) -> Option<Arrangement> {
        let mut arrangement = Arrangement { given: wanted.grants.to_vec(), moves: Vec::new() };
        let mut alike: Vec<Alike<'_>> = Vec::new();
        let mut others = Vec::new();
        for (at, grant) in wanted.grants.iter().enumerate() {
            let Some(class) = self.class_of(grant) else {
                others.push(grant.clone());
                continue;
            };
            let tariff = self.hosts.get(grant.host()).map(|books| &*books.host().tariff);
            // No host is of two groups, since each is arranged by itself.
            let goes_with = |one: &&mut Alike<'_>| {
                one.class == class && (one.tariff == tariff || one.tariff.is_none() || tariff.is_none())
            };
            match alike.iter_mut().find(goes_with) {
                Some(one) => {
                    one.tariff = one.tariff.or(tariff);
                    one.seats.push(at);
                }
                None => alike.push(Alike { class, tariff, seats: vec![at] }),
            }
        }
        if alike.is_empty() {
            return None;
        }
        self.check_room(&others).ok()?;
        for one in alike {
            self.arrange_alike(&one, wanted, &mut arrangement)?;
        }
        Some(arrangement)
    }

    fn arrange_alike(
        &self,
        Alike { class, tariff, seats }: &Alike<'_>,
        wanted: &Wanted<'_>,
        arrangement: &mut Arrangement,
    ) -> Option<()> {
        let is_in =
            |books: &&B| books.class() == Some(class) && tariff.is_none_or(|tariff| *books.host().tariff == *tariff);
        let Group { mut seating, seats: floating } = self.group_of(self.hosts.values().filter(is_in));
        if let Some(request) = wanted.request {
            self.note_fixed(request, &mut seating);
        }
        let mut new = Vec::new();
        for at in seats {
            let Grant { window, amounts, place, .. } = &wanted.grants[*at];
            // What begins at once has any host too; only that it moves no more.
            match wanted.request.filter(|_| wanted.floats || place.is_floating()) {
                Some(request) => {
                    let (request, window, amounts) = (request.clone(), *window, amounts.clone());
                    new.push((*at, seating.add(Floater { request, window, amounts, at: None })));
                }
                None => {
                    let spot = seating.position(place.host())?;
                    if !seating.pin(spot, wanted.request, *window, amounts) {
                        return None;
                    }
                }
            }
        }
        if !seating.place_all() {
            return None;
        }
        for (at, floater) in new {
            let host = seating.host_of(floater)?.clone();
            arrangement.given[at].place = match &wanted.grants[at].place {
                Place::Floating { class, .. } => Place::Floating { class: class.clone(), host },
                Place::Host(_) | Place::Bound { .. } => Place::Host(host),
            };
        }
        for (number, (attempt, seat)) in floating.into_iter().enumerate() {
            let host = seating.host_of(number)?;
            let is_there = |grant: &&Grant| grant.seat == seat && grant.host() == host;
            if !self.bookings.get(&attempt)?.grants.iter().any(|grant| is_there(&grant)) {
                arrangement.moves.push((attempt, seat, host.clone()));
            }
        }
        Some(())
    }

    /// These hosts with the seats that float on them.
    fn group_of<'a>(&'a self, hosts: impl Iterator<Item = &'a B>) -> Group
    where
        B: 'a,
    {
        let spot = |books: &B| Spot {
            id: books.host().id.clone(),
            capacity: books.host().capacity.clone(),
            used: books.promised().clone(),
        };
        let spots: Vec<Spot> = hosts.map(spot).collect();
        let at: BTreeMap<HostId, usize> = spots.iter().enumerate().map(|(at, spot)| (spot.id.clone(), at)).collect();
        let mut requests = BTreeSet::new();
        let mut group = Group { seating: Seating::new(spots), seats: Vec::new() };
        let open_from = self.open_from();
        let bookings = self.floating.by_start.iter().filter_map(|(_, attempt)| self.bookings.get(attempt));
        for booking in bookings {
            for grant in &booking.grants {
                let Some(at) = at.get(grant.host()).copied() else { continue };
                if grant.place.is_floating() && grant.window.start > open_from {
                    let (request, window) = (booking.attempt.request.clone(), grant.window);
                    group.seating.add(Floater { request, window, amounts: grant.amounts.clone(), at: Some(at) });
                    group.seats.push((booking.attempt.clone(), grant.seat));
                    requests.insert(&booking.attempt.request);
                }
            }
        }
        requests.into_iter().for_each(|request| self.note_fixed(request, &mut group.seating));
        group
    }

    /// Notes where seats of a request are that do not float.
    fn note_fixed(&self, request: &RequestId, seating: &mut Seating) {
        for grant in self.of_name(request).flat_map(|booking| &booking.grants) {
            if let Some(at) = seating.position(grant.host()).filter(|_| !grant.place.is_floating()) {
                seating.note_fixed(request, at, grant.window);
            }
        }
    }

    /// The grants that an arrangement moves, as they are and as they would be.
    pub(in crate::ledger) fn moved(&self, arrangement: &Arrangement) -> (Vec<Grant>, Vec<Grant>) {
        let moves = arrangement.moves.iter().filter_map(|(attempt, seat, host)| {
            let grant = self.bookings.get(attempt)?.grants.iter().find(|grant| grant.seat == *seat)?;
            let mut after = grant.clone();
            if let Place::Floating { host: at, .. } = &mut after.place {
                *at = host.clone();
            }
            Some((grant.clone(), after))
        });
        moves.unzip()
    }

    /// Whether an arrangement moves few enough; what has moved before is written when both together would be too many.
    pub(in crate::ledger) fn may_move(&mut self, arrangement: &Arrangement) -> bool {
        let may = arrangement.moves.len() <= MOVES_MAX;
        if may && arrangement.moves.len() + self.floating.unwritten.len() > MOVES_MAX {
            self.write_moved(None);
        }
        may
    }

    /// Moves seats to the hosts of an arrangement, which has to be of the present state, and publishes it.
    pub(in crate::ledger) fn make_moves(&mut self, arrangement: &Arrangement) {
        let (before, after) = self.move_seats(arrangement);
        self.tell(before.iter().chain(&after));
    }

    /// Moves seats and publishes nothing: the reserved ones, before and after. While a ledger takes in its bookings anew, nobody
    /// knows a version that has them.
    pub(super) fn move_seats(&mut self, arrangement: &Arrangement) -> (Vec<Grant>, Vec<Grant>) {
        let mut moves: BTreeMap<&AttemptId, BTreeMap<SeatNumber, &HostId>> = BTreeMap::new();
        for (attempt, seat, host) in &arrangement.moves {
            moves.entry(attempt).or_default().insert(*seat, host);
        }
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (attempt, hosts) in moves {
            let mut moved = Vec::new();
            let booking = self.amend(attempt, |booking| {
                for grant in &mut booking.grants {
                    let Some(to) = hosts.get(&grant.seat) else { continue };
                    let old = grant.clone();
                    if let Place::Floating { host, .. } = &mut grant.place {
                        *host = (*to).clone();
                    }
                    moved.push((old, grant.clone()));
                }
            });
            if booking.is_some_and(|booking| !booking.is_held()) {
                let (old, new): (Vec<Grant>, Vec<Grant>) = moved.into_iter().unzip();
                before.extend(old);
                after.extend(new);
                self.floating.unwritten.insert(attempt.clone());
            }
        }
        (before, after)
    }
}
