//! Hosts that the owner's hook could not make usable for seats that were bound to them: such a seat begins on another host of its class, or
//! is lost.
//!
//! Invariant: a seat goes only to a host of its class and tariff on which the hook has not failed, that has room for the rest of its time
//! and no other seat of its request; the booking is on disk, together with what has made room, before the answer.

use std::collections::BTreeSet;

use super::{Arrangement, Wanted};
use crate::{
    ids::{HostId, SeatNumber},
    ledger::{Booking, Books, Ledger, substitutes::left_on},
    plan::Place,
    protocol::{AttemptId, ChangeKind, Grant, RefusalReason, SiteAnswer},
    time::{Now, Window},
};

/// Most hosts without room on which others are asked to move out of the way of one seat.
const CROWDED_MAX: usize = 8;

/// Hosts on which the owner's hook has failed for a booking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// The booking.
    pub attempt: AttemptId,
    /// All of them, those that its seats have left before included.
    pub hosts: BTreeSet<HostId>,
    /// Whether others are to be tried; else the seats are lost.
    pub may_move: bool,
}

/// A host for a seat, and what has to move for it.
type Found = (HostId, Option<Arrangement>);

impl<B: Books> Ledger<B> {
    /// Takes the seats of a booking that were bound to these hosts away from them. The same once more changes nothing.
    pub(in crate::ledger) fn on_unusable(&mut self, now: Now, unusable: &Unusable) -> SiteAnswer {
        let Unusable { attempt, hosts, may_move } = unusable;
        let is_promise = |booking: &&Booking| !booking.is_held() && !self.is_local(&booking.attempt);
        let Some(booking) = self.bookings.get(attempt).filter(is_promise) else {
            return self.refusal(RefusalReason::NoSuchHold);
        };
        let is_there = |grant: &&Grant| matches!(&grant.place, Place::Bound { host, .. } if hosts.contains(host));
        let goes_on = |grant: &&Grant| grant.window.end > now.utc.max(self.forgotten);
        let there = booking.grants.iter().filter(is_there).filter(goes_on);
        for seat in there.map(|grant| grant.seat).collect::<Vec<_>>() {
            let found = if *may_move { self.another_host(now, (attempt, seat), hosts) } else { None };
            let found = found.filter(|(_, moves)| moves.as_ref().is_none_or(|moves| self.may_move(moves)));
            self.leave(now, (attempt, seat), found);
        }
        self.confirmed(self.floating_places_of(attempt), None)
    }

    /// The host of a seat's class with room for it on which least stays free; else one from which what floats can move.
    fn another_host(
        &self,
        now: Now,
        (attempt, seat): (&AttemptId, SeatNumber),
        unusable: &BTreeSet<HostId>,
    ) -> Option<Found> {
        let grant = self.bookings.get(attempt)?.grants.iter().find(|grant| grant.seat == seat)?;
        let Place::Bound { class, host } = &grant.place else { return None };
        let window = Window { start: grant.window.start.max(now.utc).max(self.forgotten), end: grant.window.end };
        let tariff = self.hosts.get(host).map(|books| &books.host().tariff);
        let is_apart = |id: &HostId| {
            let others = self.of_name(&attempt.request).flat_map(|booking| &booking.grants);
            let mut fixed = others.filter(|other| !other.place.is_floating() && other.host() == id);
            !fixed.any(|other| other.window.overlaps(window))
        };
        let may_have = |(id, books): &(&HostId, &B)| {
            books.class() == Some(class)
                && tariff.is_none_or(|tariff| books.host().tariff == *tariff)
                && !unusable.contains(*id)
                && is_apart(id)
        };
        let on = |id: &HostId| {
            let place = Place::Bound { class: class.clone(), host: id.clone() };
            [Grant { place, window, ..grant.clone() }]
        };
        let hosts = || self.hosts.iter().filter(may_have);
        let has_room = |id: &HostId| {
            let one = on(id);
            self.check_room(&one).is_ok() && !self.shares_with_floating(&one, &attempt.request)
        };
        let free = hosts().filter(|(id, _)| has_room(id));
        let free = free.filter_map(|(id, books)| Some((left_on(books, &on(id)[0])?, id)));
        if let Some((_, id)) = free.min() {
            return Some((id.clone(), None));
        }
        hosts().take(CROWDED_MAX).find_map(|(id, _)| {
            let wanted = Wanted { grants: &on(id), request: Some(&attempt.request), floats: false };
            Some((id.clone(), Some(self.arranged(&wanted)?)))
        })
    }

    /// Takes a seat from its host to the one that was found, or away.
    fn leave(&mut self, now: Now, (attempt, seat): (&AttemptId, SeatNumber), found: Option<Found>) {
        if let Some((_, Some(moves))) = &found {
            // Of the owner nothing is refused.
            let _ = self.plan_queue(None, Some(moves), &[]);
            self.make_moves(moves);
        }
        let Some(mut booking) = self.end(attempt) else { return };
        let before = self.rest_of(now, &booking);
        self.release(&before, true);
        let at = booking.grants.iter().position(|grant| grant.seat == seat);
        match (at, found) {
            (Some(at), Some((to, _))) => {
                if let Place::Bound { host, .. } = &mut booking.grants[at].place {
                    *host = to;
                }
            }
            (Some(at), None) => {
                booking.lost.push(booking.grants.remove(at));
                // With fewer seats here more may go over the uplink.
                let load = self.load_of(booking.talk, booking.grants.len(), booking.window);
                if load.is_some_and(|load| !self.fits_still(&load, now)) {
                    booking.lost.append(&mut booking.grants);
                }
            }
            (None, _) => {}
        }
        let after = self.rest_of(now, &booking);
        self.promise(&after);
        self.reserve(&after);
        self.queue.exchange(&before, &after);
        self.publish(&before, ChangeKind::Removed);
        self.publish(&after, ChangeKind::Added);
        self.persist(&booking);
        self.begin(booking);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ledger::{
            Event, LocalWork, Output, ReplyToken,
            floating::tests::{Disk, book, books, bound, drain, floating, hold, hold_on, open, place, told},
            tests::{at, attempt, cpu, reason},
        },
        protocol::SiteRequest,
        time::{Span, Time},
    };

    /// The hook has failed on these hosts.
    fn fails(ledger: &mut Ledger, disk: &mut Disk, second: u64, hosts: &[usize], may_move: bool) -> SiteAnswer {
        let hosts = hosts.iter().map(|host| HostId::new(&format!("n-{host}")).unwrap()).collect();
        let unusable = Unusable { attempt: attempt("a", 1), hosts, may_move };
        ledger.handle(at((second - 1_000) * 1_000), Event::Unusable { token: ReplyToken(1), unusable });
        ledger.sanity_check().unwrap();
        let mut answer = None;
        while let Some(output) = ledger.poll_output() {
            match output {
                Output::Persist(record) => crate::ledger::floating::tests::write(disk, &record),
                Output::Reply { answer: is, .. } => answer = Some(is),
                _ => {}
            }
        }
        answer.unwrap()
    }

    #[test]
    fn a_seat_whose_hook_fails_begins_on_the_next_host_of_its_class_until_none_is_to_be_tried() {
        let (mut ledger, _) = open(books(0..4), 7, Vec::new(), at(0));
        let mut disk = Disk::new();
        book(&mut ledger, &mut disk, at(0), hold("a", 0, (1_100, 200), 4_000));
        let refused = fails(&mut ledger, &mut disk, 1_000, &[0], true);
        assert!(matches!(refused, SiteAnswer::Confirmed { .. }) && place(&ledger, "a") == floating(0), "not bound yet");
        // n-1 has one that floats, n-2 one that does not, and n-3 own work for a moment: there only the one that floats fits.
        book(&mut ledger, &mut disk, at(0), hold("b", 1, (1_200, 100), 4_000));
        book(&mut ledger, &mut disk, at(0), hold_on("c", &[2], (1_100, 200), 4_000, false));
        let work = LocalWork {
            id: crate::ids::RequestId::new("own").unwrap(),
            host: HostId::new("n-3").unwrap(),
            window: Window::starting(Time(1_100), Span(50)),
            amounts: cpu(1),
        };
        ledger.handle(at(0), Event::Local { token: ReplyToken(1), work });
        ledger.handle_timeout(at(100_000));
        drain(&mut ledger, &mut disk);
        assert_eq!((place(&ledger, "a"), place(&ledger, "b")), (bound(0), floating(1)));
        for _ in 0..2 {
            fails(&mut ledger, &mut disk, 1_110, &[0], true);
            assert_eq!((place(&ledger, "a"), place(&ledger, "b")), (bound(1), floating(3)), "once only");
        }
        let on_disk = |disk: &Disk, of: &str| disk[&attempt(of, 1)].grants[0].place.clone();
        assert_eq!((on_disk(&disk, "a"), on_disk(&disk, "b")), (bound(1), floating(3)));
        let free = hold_on("d", &[0], (1_200, 50), 4_000, false);
        assert!(matches!(book(&mut ledger, &mut disk, at(110_000), free), SiteAnswer::Confirmed { .. }), "it is free");

        let (mut again, misfits) = open(books(0..4), 8, disk.values().cloned().collect(), at(110_000));
        assert!(misfits.is_empty() && place(&again, "a") == bound(1));
        let answer = fails(&mut again, &mut disk, 1_120, &[0, 1], false);
        assert!(matches!(answer, SiteAnswer::Confirmed { places, .. } if places.is_empty()));
        let lost = &disk[&attempt("a", 1)];
        assert!(lost.grants.is_empty() && lost.lost.len() == 1, "its coordinator learns of it: {lost:?}");
        let answer = told(&mut again, &mut disk, at(120_000), SiteRequest::Inspect(attempt("a", 1)));
        assert!(matches!(answer, SiteAnswer::Booked { seats, .. } if seats.is_empty()));
        let nothing = Unusable { attempt: attempt("x", 1), hosts: BTreeSet::new(), may_move: true };
        again.handle(at(120_000), Event::Unusable { token: ReplyToken(1), unusable: nothing });
        let Some(Output::Reply { answer, .. }) = again.poll_output() else { panic!() };
        assert_eq!(reason(answer), RefusalReason::NoSuchHold);
    }
}
