//! Hosts that the owner's hook could not make usable for seats that were bound to them: such a seat begins on another host of its class, or
//! is lost.
//!
//! Invariant: a seat goes only to a host of its class and tariff on which the hook has not failed, that has room for the rest of its time
//! and no other seat of its request, and where its account keeps to the owner's shares; what lengthens a reservation keeps it where it is;
//! the booking is on disk, together with what has made room, before the answer.

use std::collections::{BTreeMap, BTreeSet};

use super::{Arrangement, Wanted};
use crate::{
    ids::{HostId, SeatNumber},
    ledger::{Booking, Books, Ledger, substitutes::left_on},
    plan::Place,
    protocol::{AttemptId, Grant, RefusalReason, SiteAnswer},
    time::{Now, Window},
    trust::RequestStatement,
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
        // What lengthens it is promised on the same host, and would stay behind.
        let is_left = |grant: &&Grant| !self.is_lengthened_on(booking, grant.host());
        let there = booking.grants.iter().filter(is_there).filter(goes_on).filter(is_left);
        for seat in there.map(|grant| grant.seat).collect::<Vec<_>>() {
            let found = if *may_move { self.another_host(now, (attempt, seat), hosts) } else { None };
            let found = found.filter(|(_, moves)| moves.as_ref().is_none_or(|moves| self.may_move(moves)));
            self.leave(now, (attempt, seat), found);
        }
        self.confirmed(self.floating_places_of(attempt), None)
    }

    /// Whether the user lengthens a booking on this host, or is about to.
    fn is_lengthened_on(&self, booking: &Booking, host: &HostId) -> bool {
        let of_user = self.bookings.values().filter(|other| other.user_key == booking.user_key);
        let mut there = of_user.filter(|other| other.grants.iter().any(|grant| grant.host() == host));
        there.any(|other| {
            let statement = other.statement.as_ref().and_then(|signed| signed.open::<RequestStatement>().ok());
            statement.is_some_and(|statement| statement.request.extends() == Some(&booking.attempt.request))
        })
    }

    /// The host of a seat's class with room for it on which least stays free; else one from which what floats can move.
    fn another_host(
        &self,
        now: Now,
        (attempt, seat): (&AttemptId, SeatNumber),
        unusable: &BTreeSet<HostId>,
    ) -> Option<Found> {
        let booking = self.bookings.get(attempt)?;
        let grant = booking.grants.iter().find(|grant| grant.seat == seat)?;
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
            let keeps_share = booking.account.is_none_or(|account| self.check_share(&one, account).is_ok());
            self.check_room(&one).is_ok() && keeps_share && !self.shares_with_floating(&one, &attempt.request)
        };
        let free = hosts().filter(|(id, _)| has_room(id));
        let free = free.filter_map(|(id, books)| Some((left_on(books, &on(id)[0])?, id)));
        if let Some((_, id)) = free.min() {
            return Some((id.clone(), None));
        }
        // Who makes room might break the owner's shares elsewhere.
        if self.has_user_shares() {
            return None;
        }
        hosts().take(CROWDED_MAX).find_map(|(id, _)| {
            let wanted = Wanted { grants: &on(id), request: Some(&attempt.request), floats: false };
            Some((id.clone(), Some(self.arranged(&wanted)?)))
        })
    }

    /// Takes a seat from its host to the one that was found, or away.
    fn leave(&mut self, now: Now, (attempt, seat): (&AttemptId, SeatNumber), found: Option<Found>) {
        if let Some((_, Some(moves))) = &found {
            self.plan_for_owner(Some(moves), &[]);
            self.make_moves(moves);
        }
        let Some(mut booking) = self.bookings.get(attempt).cloned() else { return };
        let free_from = self.free_from(now);
        let before = self.rest_of(free_from, &booking);
        let at = booking.grants.iter().position(|grant| grant.seat == seat);
        match (at, found) {
            (Some(at), Some((to, _))) => {
                if let Place::Bound { host, .. } = &mut booking.grants[at].place {
                    *host = to;
                }
            }
            (Some(at), None) => {
                booking.lost.push(booking.grants.remove(at));
                // With fewer seats here more may go over the uplink. What has begun stays all the same.
                let load = self.load_of(booking.talk, booking.grants.len(), booking.window);
                let bears = load.is_none_or(|load| {
                    self.try_out(|ledger| ledger.end(attempt, free_from).is_some() && ledger.fits_still(&load, now))
                });
                if !bears {
                    if booking.window.start > now.utc {
                        booking.lost.append(&mut booking.grants);
                    } else {
                        self.begun.insert(attempt.clone());
                    }
                }
            }
            (None, _) => {}
        }
        let after = self.rest_of(free_from, &booking);
        self.amend_from(attempt, free_from, |present| *present = booking);
        let (before, after) = (missing(&before, &after), missing(&after, &before));
        self.queue.exchange(&before, &after);
        self.tell(before.iter().chain(&after));
        self.persist(attempt);
    }
}

/// Those of these grants that are not among the `others`.
fn missing(these: &[Grant], others: &[Grant]) -> Vec<Grant> {
    let key = |grant: &Grant| (grant.host().clone(), grant.seat);
    let known: BTreeMap<(HostId, SeatNumber), &Grant> = others.iter().map(|grant| (key(grant), grant)).collect();
    these.iter().filter(|grant| known.get(&key(grant)) != Some(grant)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        amount::Amount,
        ledger::{
            Event, HostLedger, LocalWork, Output, ReplyToken,
            floating::tests::{Disk, book, books, bound, drain, floating, hold, hold_on, open, place, told},
            tests::{at, attempt, cpu, id, reason},
        },
        protocol::SiteRequest,
        request::Request,
        resources::ResourceName,
        schedule::Schedule,
        time::{Span, Time},
        trust::{OwnerPolicy, testing},
        uplinks::unit_of,
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

    /// A settled booking of `a` on n-0, n-1 ... from 1,100 s on, for 200 s, bound; `more` is added to its request.
    fn settled(ledger: &mut Ledger, disk: &mut Disk, hosts: &[usize], amount: u64, more: &str) {
        let mut hold = hold_on("a", hosts, (1_100, 200), amount, true);
        let count = hosts.len();
        let asked = format!(r#"{{"hosts":{count},"work":200,"per_host":{{"cpu":{amount}}}{more}}}"#);
        let asked: Request = serde_json::from_str(&asked).unwrap();
        hold.authorization = testing::authorize(1, &id("entry"), &hold.attempt.request, &asked).into();
        book(ledger, disk, at(0), hold);
        told(ledger, disk, at(0), SiteRequest::Settle(attempt("a", 1)));
        ledger.handle_timeout(at(100_000));
        drain(ledger, disk);
    }

    #[test]
    fn a_lost_seat_takes_no_seat_that_runs_with_it_where_the_uplink_has_no_room_for_what_is_left() {
        let uplink = HostLedger::new(unit_of(Amount(1)), Schedule::default());
        let (mut ledger, _) = open(books(0..4).into_iter().chain([uplink]).collect(), 7, Vec::new(), at(0));
        let mut disk = Disk::new();
        settled(&mut ledger, &mut disk, &[0, 1, 2, 3], 4_000, r#","traffic":{"mbps":500}"#);
        fails(&mut ledger, &mut disk, 1_110, &[0], false);
        let booking = &disk[&attempt("a", 1)];
        assert_eq!((booking.grants.len(), booking.lost.len()), (3, 1));
        let uplink = HostLedger::new(unit_of(Amount(1)), Schedule::default());
        let kept = disk.values().cloned().collect();
        let (again, _) = open(books(0..4).into_iter().chain([uplink]).collect(), 8, kept, at(111_000));
        assert_eq!(again.bookings().next().unwrap().grants.len(), 3);
    }

    #[test]
    fn a_seat_that_moves_in_its_class_is_not_told_and_what_lengthens_a_reservation_keeps_it() {
        let (mut ledger, _) = open(books(0..3), 7, Vec::new(), at(0));
        let mut disk = Disk::new();
        settled(&mut ledger, &mut disk, &[0, 1], 2_000, "");
        let change = ledger.version().change;
        fails(&mut ledger, &mut disk, 1_110, &[0], true);
        assert_eq!(place(&ledger, "a"), bound(2));
        assert_eq!(ledger.version().change, change, "as many hosts of the class are used");
        let mut longer = hold_on("b", &[2], (1_300, 100), 2_000, false);
        let asked = r#"{"hosts":1,"duration":100,"per_host":{"cpu":2000},"extends":"a"}"#;
        let asked: Request = serde_json::from_str(asked).unwrap();
        longer.authorization = testing::authorize(1, &id("entry"), &longer.attempt.request, &asked).into();
        let answer = told(&mut ledger, &mut disk, at(111_000), SiteRequest::Hold(longer));
        assert!(matches!(answer, SiteAnswer::Held { .. }), "{answer:?}");
        fails(&mut ledger, &mut disk, 1_112, &[0, 2], true);
        assert_eq!(place(&ledger, "a"), bound(2));
    }

    #[test]
    fn a_seat_goes_to_no_host_of_which_its_user_has_the_owners_share() {
        let (mut ledger, _) = open(books(0..2), 7, Vec::new(), at(0));
        let shares = [(ResourceName::new("cpu").unwrap(), 50)].into();
        ledger.gate.lock().set_policy(OwnerPolicy { user_share_percent: shares, ..OwnerPolicy::default() });
        let mut disk = Disk::new();
        settled(&mut ledger, &mut disk, &[0], 2_000, "");
        book(&mut ledger, &mut disk, at(100_000), hold_on("b", &[1], (1_100, 300), 1_000, false));
        fails(&mut ledger, &mut disk, 1_110, &[0], true);
        assert_eq!(disk[&attempt("a", 1)].lost.len(), 1);
    }
}
