//! Whether a user may start a run on a seat here and now, as the site's ledger knows.
//!
//! Invariant: whoever is not the user of a reservation learns nothing of it, not even that it is there.

use std::collections::BTreeMap;

use broker::{
    ids::{HostId, RequestId, SeatNumber},
    ledger::{Booking, Books, Ledger},
    plan::Place,
    protocol::{AttemptId, Grant},
    resources::ResourceName,
    time::{Time, Window},
    trust::PublicKey,
};
use kolo_seat::opening::Opening;

use crate::site::promises::base_named_by;

/// The resource that limits memory.
const MEMORY: &str = "memory";
/// What a seat has that reserved no memory on a host of which others have all, in MiB: nothing would run with less.
const MEMORY_MIB_MIN: u64 = 64;

/// Why a seat is not the user's now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotNow {
    /// The user has nothing of this request here.
    #[error("this site has no reservation {request} of this user")]
    NoReservation {
        /// The request.
        request: RequestId,
    },
    /// The user has other seats here.
    #[error("seat {seat} of {request} is not at this site")]
    NoSeat {
        /// The request.
        request: RequestId,
        /// The seat.
        seat: SeatNumber,
    },
    /// It is held only.
    #[error("reservation {request} is not confirmed yet")]
    NotConfirmed {
        /// The request.
        request: RequestId,
    },
    /// It has not begun.
    #[error("seat {seat} of {request} begins in {} s", .start.0 - .now.0)]
    Early {
        /// The request.
        request: RequestId,
        /// The seat.
        seat: SeatNumber,
        /// When it begins.
        start: Time,
        /// The present on the site's clock.
        now: Time,
    },
    /// The owner's hook has not run for it, and it may begin on another host.
    #[error(
        "the owner's hook still makes the host of seat {seat} of {request} usable: run it later by --in {request} (owners: [activation] early)"
    )]
    Preparing {
        /// The request.
        request: RequestId,
        /// The seat.
        seat: SeatNumber,
    },
    /// It is over.
    #[error("the time of seat {seat} of {request} is over since {} s", .now.0 - .end.0)]
    Over {
        /// The request.
        request: RequestId,
        /// The seat.
        seat: SeatNumber,
        /// When it ended.
        end: Time,
        /// The present on the site's clock.
        now: Time,
    },
}

impl NotNow {
    /// Whether it may change by itself within seconds.
    pub fn may_change(&self) -> bool {
        const SOON_S: i64 = 5;
        match self {
            NotNow::NotConfirmed { .. } | NotNow::Preparing { .. } => true,
            NotNow::Early { start, now, .. } => start.0 - now.0 <= SOON_S,
            NotNow::NoReservation { .. } | NotNow::NoSeat { .. } | NotNow::Over { .. } => false,
        }
    }
}

/// Whether an opening is worth its verification: a long one is, of a key that has booked something here.
pub fn is_worth_reading<B: Books>(ledger: &Ledger<B>, opening: &Opening) -> bool {
    let has_booked = |author| ledger.of_users().any(|booking| booking.user_key.as_ref() == Some(author));
    opening.claimed_author().is_none_or(has_booked)
}

/// The requests that bookings say they lengthen. Each text is read once, as its signature takes a while to check.
#[derive(Debug, Default)]
pub struct Bases(BTreeMap<AttemptId, Option<RequestId>>);

impl Bases {
    /// Reads those that are new, and forgets those that are gone.
    pub fn read<B: Books>(&mut self, ledger: &Ledger<B>) {
        let mut before = std::mem::take(&mut self.0);
        let signed = ledger.of_users().filter_map(|booking| Some((&booking.attempt, booking.statement.as_deref()?)));
        self.0.extend(signed.map(|(attempt, statement)| {
            let known = before.remove(attempt);
            (attempt.clone(), known.unwrap_or_else(|| base_named_by(statement)))
        }));
    }
}

/// Until when a user has a seat on `host` without a gap, with everything that lengthens his reservation; none when he does not have it now.
pub fn seat_end<B: Books>(
    (ledger, bases): (&Ledger<B>, &Bases),
    (request, seat): (&RequestId, SeatNumber),
    (user, host): (&PublicKey, &HostId),
    now: Time,
) -> Option<Time> {
    let lengthens =
        |booking: &Booking| bases.0.get(&booking.attempt).is_some_and(|base| base.as_ref() == Some(request));
    let windows = ledger.of_users().flat_map(|booking| {
        let is_his = !booking.is_held() && booking.user_key.as_ref() == Some(user);
        let is_base = booking.attempt.request == *request;
        let is_meant = move |grant: &&Grant| is_his && grant.host() == host && (!is_base || grant.seat == seat);
        booking.grants.iter().filter(is_meant).filter(move |_| is_base || lengthens(booking)).map(|grant| grant.window)
    });
    let mut windows: Vec<Window> = windows.collect();
    windows.sort_by_key(|window| window.start);
    let end = windows.iter().fold(now, |end, window| if window.start <= end { end.max(window.end) } else { end });
    (end > now).then_some(end)
}

/// The memory that a seat may have from now on, in MiB: what it has reserved, else what others leave of that of its host; none where the
/// host does not count it.
pub fn memory_of<B: Books>(ledger: &Ledger<B>, grant: &Grant, now: Time) -> Option<u64> {
    let is_memory = |name: &ResourceName| name.as_str() == MEMORY;
    if let Some((_, reserved)) = grant.amounts.iter().find(|(name, _)| is_memory(name)) {
        return Some(reserved.0);
    }
    let books = ledger.hosts().find(|books| books.host().id == *grant.host())?;
    let (name, capacity) = books.host().capacity.iter().find(|(name, _)| is_memory(name))?;
    let promised = books.promised().peak(name, Window { start: now, end: grant.window.end });
    Some(capacity.0.saturating_sub(promised.0).max(MEMORY_MIB_MIN))
}

/// What a seat of a request has here, if its user may use it at `now`; `is_usable` knows of which bookings the hosts are.
///
/// # Errors
/// [`NotNow`].
pub fn usable_seat<B: Books>(
    ledger: &Ledger<B>,
    (request, seat): (&RequestId, SeatNumber),
    user: &PublicKey,
    (now, is_usable): (Time, impl Fn(&AttemptId) -> bool),
) -> Result<Grant, NotNow> {
    let of_user = || {
        let is_meant =
            |booking: &&Booking| booking.attempt.request == *request && booking.user_key.as_ref() == Some(user);
        ledger.of_users().filter(is_meant)
    };
    let request = request.clone();
    if of_user().next().is_none() {
        return Err(NotNow::NoReservation { request });
    }
    let mut of_seat = of_user().filter(|booking| booking.grants.iter().any(|grant| grant.seat == seat)).peekable();
    if of_seat.peek().is_none() {
        return Err(NotNow::NoSeat { request, seat });
    }
    let confirmed = of_seat.find(|booking| !booking.is_held());
    let may_wait = confirmed.is_some_and(|booking| !booking.slack.is_zero());
    let grant =
        confirmed.and_then(|booking| Some((&booking.attempt, booking.grants.iter().find(|grant| grant.seat == seat)?)));
    let (attempt, grant) = grant.ok_or_else(|| NotNow::NotConfirmed { request: request.clone() })?;
    let Window { start, end } = grant.window;
    // What may yet wait for own jobs does not begin before that is settled.
    if now < start || may_wait {
        return Err(NotNow::Early { request, seat, start, now });
    }
    if now >= end {
        return Err(NotNow::Over { request, seat, end, now });
    }
    if matches!(grant.place, Place::Bound { .. }) && !is_usable(attempt) {
        return Err(NotNow::Preparing { request, seat });
    }
    Ok(grant.clone())
}

#[cfg(test)]
mod tests {
    use broker::{
        host::{Host, Speed},
        ids::{HostId, SiteId},
        ledger::{BookingRecord, Kept, LedgerLimits},
        time::{Millis, Now},
        trust::{SignedText, testing},
    };
    use kolo_seat::opening::OpeningError;
    use serde_json::json;

    use super::*;

    /// Seat 2 of user 1 in a request, which may lengthen another one.
    fn booked(request: &str, lengthens: Option<&str>, (start, end): (i64, i64)) -> BookingRecord {
        let window = json!({"start": start, "end": end});
        let grant = json!({"seat": 2, "place": {"host": "h1"}, "window": window, "amounts": {"cpu": 1000}});
        let signed = lengthens.map(|base| {
            let asked = serde_json::from_value(json!({"hosts": 1, "duration": end - start, "extends": base})).unwrap();
            let (entry_point, id) = (SiteId::new("e").unwrap(), RequestId::new(request).unwrap());
            testing::authorize(1, &entry_point, &id, &asked).request
        });
        serde_json::from_value(json!({
            "attempt": {"entry_point": "e", "request": request, "attempt": 1},
            "window": window, "grants": [grant], "participants": ["s"], "user": "ada",
            "user_key": testing::public(1), "statement": signed, "settled": true, "confirmed": 0,
        }))
        .unwrap()
    }

    /// A ledger with these bookings; user 1 has seat 2 of request `mine` from second 100 to 200.
    fn ledger(more: &[BookingRecord]) -> Ledger {
        opened([more, &[booked("mine", None, (100, 200))]].concat())
    }

    fn opened(records: Vec<BookingRecord>) -> Ledger {
        let host = Host {
            id: HostId::new("h1").unwrap(),
            capacity: serde_json::from_value(json!({"cpu": 4000, "memory": 8192})).unwrap(),
            attributes: Default::default(),
            speed: Speed::REFERENCE,
            tariff: Default::default(),
        };
        let now = Now { monotonic: Millis(0), utc: Time(0) };
        let hosts = vec![(host, Default::default())];
        let kept = Kept::from(records);
        Ledger::open(SiteId::new("s").unwrap(), LedgerLimits::default(), 1, testing::open_gate(), hosts, kept, now).0
    }

    #[test]
    fn a_seat_is_its_users_within_its_window_and_nobody_elses() {
        let ledger = ledger(&[]);
        let ask = |request: &str, seat: u32, user: u64, now: i64| {
            let request = RequestId::new(request).unwrap();
            usable_seat(
                &ledger,
                (&request, SeatNumber(seat)),
                &testing::public(user),
                (Time(now), |_: &AttemptId| true),
            )
        };
        assert_eq!(ask("mine", 2, 1, 100).unwrap().window, Window { start: Time(100), end: Time(200) });
        assert!(ask("mine", 2, 1, 199).is_ok());
        let early = ask("mine", 2, 1, 99).unwrap_err();
        assert_eq!(early.to_string(), "seat 2 of mine begins in 1 s");
        assert!(early.may_change() && !ask("mine", 2, 1, 0).unwrap_err().may_change());
        let over = ask("mine", 2, 1, 200).unwrap_err();
        assert_eq!(over.to_string(), "the time of seat 2 of mine is over since 0 s");
        assert!(!over.may_change());
        assert!(matches!(ask("mine", 1, 1, 150), Err(NotNow::NoSeat { .. })));
        // Somebody else learns nothing of it.
        for (request, seat, user) in [("mine", 2, 2), ("mine", 1, 2), ("other", 2, 1)] {
            let refused = ask(request, seat, user, 150).unwrap_err();
            assert_eq!(refused.to_string(), format!("this site has no reservation {request} of this user"));
        }
    }

    #[test]
    fn what_a_stranger_sends_is_not_read_where_that_takes_long() {
        let ledger = ledger(&[]);
        let asked = serde_json::from_value(json!({"hosts": 1, "duration": 60})).unwrap();
        let (entry_point, id) = (SiteId::new("e").unwrap(), RequestId::new("mine").unwrap());
        let of = |user: u64, bytes: usize| {
            let signed = testing::authorize(user, &entry_point, &id, &asked).request;
            Opening::Start(SignedText { text: "{".repeat(bytes), ..signed })
        };
        const MIB: usize = 1 << 20;
        let told = [of(1, 7 * MIB), of(2, 7 * MIB), of(2, MIB / 16)].map(|opening| is_worth_reading(&ledger, &opening));
        assert_eq!(told, [true, false, true]);
        // What is read fails by its signature.
        assert!(matches!(of(2, MIB / 16).open(), Err(OpeningError::Trust(_))));
    }

    #[test]
    fn the_host_of_a_seat_of_a_class_is_used_once_the_owners_hook_has_run() {
        let mut record = serde_json::to_value(booked("mine", None, (100, 200))).unwrap();
        let ask = |record: &serde_json::Value, is_usable: bool| {
            let ledger = opened(vec![serde_json::from_value(record.clone()).unwrap()]);
            let mine = RequestId::new("mine").unwrap();
            usable_seat(&ledger, (&mine, SeatNumber(2)), &testing::public(1), (Time(100), |_: &AttemptId| is_usable))
        };
        assert!(ask(&record, false).is_ok(), "a host that was named");
        record["grants"][0]["place"] = json!({"bound": {"class": "h", "host": "h1"}});
        assert!(ask(&record, true).is_ok());
        let not_yet = ask(&record, false).unwrap_err();
        assert!(matches!(not_yet, NotNow::Preparing { .. }) && not_yet.may_change(), "{not_yet}");
    }

    #[test]
    fn a_seat_that_reserved_no_memory_has_what_others_leave() {
        let with = |request: &str, memory: u64, window| {
            let mut record = serde_json::to_value(booked(request, None, window)).unwrap();
            record["grants"][0]["amounts"] = json!({"cpu": 1000, "memory": memory});
            serde_json::from_value::<BookingRecord>(record).unwrap()
        };
        let all = ledger(&[
            with("now", 5000, (150, 180)),
            with("later", 2000, (170, 300)),
            with("over", 8192, (50, 100)),
            with("after", 8192, (300, 400)),
        ]);
        let memory = |request: &str, now: i64| {
            let request = RequestId::new(request).unwrap();
            let grant =
                usable_seat(&all, (&request, SeatNumber(2)), &testing::public(1), (Time(now), |_: &AttemptId| true))
                    .unwrap();
            memory_of(&all, &grant, Time(now))
        };
        assert_eq!([memory("now", 150), memory("later", 170)], [Some(5000), Some(2000)]);
        assert_eq!([memory("mine", 100), memory("mine", 180)], [Some(8192 - 7000), Some(8192 - 2000)]);
        let full = ledger(&[with("full", 8192, (100, 200))]);
        let mine = RequestId::new("mine").unwrap();
        let grant =
            usable_seat(&full, (&mine, SeatNumber(2)), &testing::public(1), (Time(100), |_: &AttemptId| true)).unwrap();
        assert_eq!(memory_of(&full, &grant, Time(100)), Some(MEMORY_MIB_MIN));
    }

    #[test]
    fn a_seat_lasts_as_long_as_what_lengthens_it_without_a_gap() {
        let end = |ledger: &Ledger, host: &str, now: i64| {
            let (request, host) = (RequestId::new("mine").unwrap(), HostId::new(host).unwrap());
            let mut bases = Bases::default();
            bases.read(ledger);
            let end = seat_end((ledger, &bases), (&request, SeatNumber(2)), (&testing::public(1), &host), Time(now));
            end.map(|end| end.0)
        };
        let plain = ledger(&[]);
        assert_eq!([99, 100, 199, 200].map(|now| end(&plain, "h1", now)), [None, Some(200), Some(200), None]);
        assert_eq!(end(&plain, "h2", 150), None);
        let longer = ledger(&[
            booked("more", Some("mine"), (200, 300)),
            booked("most", Some("mine"), (300, 400)),
            booked("later", Some("mine"), (450, 500)),
            booked("others", Some("yours"), (400, 450)),
            booked("plain", None, (400, 450)),
        ]);
        assert_eq!([150, 250, 399, 400].map(|now| end(&longer, "h1", now)), [Some(400), Some(400), Some(400), None]);
    }
}
