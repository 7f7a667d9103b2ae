//! Who uses the machines of this site, for its owner's log: a line when hosts are reserved, given back, and free again at the end.
//!
//! Invariant: one entry for each booking of a user in the ledger, so there are no more than these.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use broker::{
    ids::{HostId, RequestId},
    ledger::{Booking, BookingRecord, GoneRecord, Record},
    protocol::{AttemptId, Grant},
    time::{Time, Window},
    trust::{PublicKey, RequestStatement, SignedText},
};
use jiff::tz::TimeZone;
use kolo_runtime::span::of_request;
use kolo_seat::used::Reserved;
use kolo_text::time::format_time;
use tracing::info;

/// Most hosts that a line names.
const NAMED_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Promise {
    user: String,
    user_key: Option<PublicKey>,
    hosts: String,
    window: Window,
    /// When its seats begin and end.
    seats: Vec<Window>,
    /// What its user has signed.
    statement: Option<Arc<SignedText>>,
}

impl Promise {
    fn new(
        (user, user_key): (&str, Option<PublicKey>),
        window: Window,
        grants: &[Grant],
        statement: Option<&Arc<SignedText>>,
    ) -> Promise {
        let (user, hosts, seats) = (user.to_owned(), hosts_text(grants), windows(grants));
        Promise { user, user_key, hosts, window, seats, statement: statement.cloned() }
    }
}

/// When seats begin and end.
pub fn windows(grants: &[Grant]) -> Vec<Window> {
    grants.iter().map(|grant| grant.window).collect()
}

/// What has become of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Reserved,
    /// Its seats begin later than they were reserved for.
    Waits,
    GivenBack,
    Ended,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub struct News {
    turn: Turn,
    attempt: AttemptId,
    promise: Promise,
}

/// What this site has promised to users.
pub struct Promises(BTreeMap<AttemptId, Promise>);

/// The names of the hosts, as far as a line has room.
fn hosts_text(grants: &[Grant]) -> String {
    let names: BTreeSet<&str> = grants.iter().map(|grant| HostId::as_str(grant.place.shown())).collect();
    let text = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

impl Promises {
    /// Those that stand when the node starts; they were logged before.
    pub fn of<'a>(of_users: impl Iterator<Item = &'a Booking>) -> Promises {
        let of_users = of_users.filter(|booking| !booking.is_held());
        let promise = |booking: &Booking| {
            let Booking { attempt, user, user_key, window, grants, statement, .. } = booking;
            (attempt.clone(), Promise::new((user, *user_key), *window, grants, statement.as_ref()))
        };
        Promises(of_users.map(promise).collect())
    }

    /// What a change of the ledger on disk means for the owner at `now`; none when a promise stays what it is, or it is own work.
    pub fn note(&mut self, record: &Record, now: Time) -> Option<News> {
        let gone = match record {
            Record::Put(_) | Record::PutAll(_) => return self.note_put(record.put()),
            Record::Charge(_) | Record::Queue(_) | Record::Dequeue(_) => return None,
            Record::Gone(GoneRecord { attempt, .. }) | Record::Remove(attempt) => attempt,
        };
        let promise = self.0.remove(gone)?;
        let turn = if promise.window.end <= now { Turn::Ended } else { Turn::GivenBack };
        Some(News { turn, attempt: gone.clone(), promise })
    }

    /// Of several bookings all but the last have only moved.
    fn note_put(&mut self, bookings: &[BookingRecord]) -> Option<News> {
        let (last, moved) = bookings.split_last()?;
        moved.iter().for_each(|one| drop(self.note_booking(one)));
        self.note_booking(last)
    }

    fn note_booking(&mut self, booking: &BookingRecord) -> Option<News> {
        let BookingRecord { attempt, grants, user, user_key, window, statement, .. } = booking;
        if let Some(known) = self.0.get_mut(attempt) {
            // When all seats are lost, those that there were count until now.
            if !grants.is_empty() {
                known.seats = windows(grants);
            }
            let waits = known.window.start < window.start;
            known.window = *window;
            return waits.then(|| News { turn: Turn::Waits, attempt: attempt.clone(), promise: known.clone() });
        }
        if user_key.is_none() || grants.is_empty() {
            return None;
        }
        let promise = Promise::new((user, *user_key), *window, grants, statement.as_ref());
        self.0.insert(attempt.clone(), promise.clone());
        Some(News { turn: Turn::Reserved, attempt: attempt.clone(), promise })
    }
}

/// The request whose reservation the user's signed request says it lengthens.
pub fn base_named_by(statement: &SignedText) -> Option<RequestId> {
    // A signature takes a while to check, and most texts do not have the key.
    let may_be = statement.text.contains("\"extends\"");
    let statement = may_be.then(|| statement.open::<RequestStatement>().ok()).flatten()?;
    statement.request.extends().cloned()
}

/// What was reserved for a user until `now`, with `seats` of these windows; none when it has not begun, or is the owner's own.
pub fn reserved_until(
    now: Time,
    attempt: &AttemptId,
    (user, user_key): (&str, Option<PublicKey>),
    seats: &[Window],
    statement: Option<&SignedText>,
) -> Option<Reserved> {
    let window = Window::hull(seats.iter().copied())?;
    let seat_s = seats.iter().map(|seat| seat.end.min(now).since(seat.start).0).fold(0, u64::saturating_add);
    (seat_s > 0).then_some(())?;
    let base = statement.and_then(base_named_by);
    Some(Reserved {
        attempt: attempt.clone(),
        request: base.unwrap_or_else(|| attempt.request.clone()),
        user: user.to_owned(),
        user_key: user_key?,
        window,
        seats: u32::try_from(seats.len()).unwrap_or(u32::MAX),
        seat_s,
    })
}

impl News {
    /// What was reserved, when it is over at `now`.
    pub fn reserved(&self, now: Time) -> Option<Reserved> {
        let Promise { user, user_key, seats, statement, .. } = &self.promise;
        let is_over = matches!(self.turn, Turn::GivenBack | Turn::Ended);
        let reserved = || reserved_until(now, &self.attempt, (user, *user_key), seats, statement.as_deref());
        is_over.then(reserved).flatten()
    }

    /// Writes the line.
    pub fn log(&self) {
        let Promise { user, hosts, window, .. } = &self.promise;
        let [from, until] = [window.start, window.end].map(|time| format_time(time, &TimeZone::UTC));
        let coordinator = &self.attempt.entry_point;
        of_request(&self.attempt.request).in_scope(|| match self.turn {
            Turn::Reserved => info!(user, hosts, from, until, %coordinator, "hosts of this site are reserved"),
            Turn::Waits => {
                info!(user, hosts, from, until, "a user's reservation begins later, when own jobs have ended");
            }
            Turn::GivenBack => info!(user, hosts, from, until, "hosts of this site are given back"),
            Turn::Ended => info!(user, hosts, from, until, "the time of a user on hosts of this site is over"),
        });
    }
}

#[cfg(test)]
mod tests {
    use broker::{
        ids::{SeatNumber, SiteId},
        plan::Place,
        resources::Amounts,
        time::Span,
    };

    use super::*;

    fn put(request: &str, hosts: usize, is_of_user: bool) -> BookingRecord {
        let window = Window { start: Time(100), end: Time(200) };
        let grant = |number: usize| Grant {
            seat: SeatNumber(u32::try_from(number).unwrap()),
            place: Place::Host(HostId::new(&format!("h{number:02}")).unwrap()),
            window,
            amounts: Amounts::new(),
            agreed: Default::default(),
        };
        let entry_point = SiteId::new("e").unwrap();
        BookingRecord {
            variant: Default::default(),
            attempt: AttemptId { entry_point, request: RequestId::new(request).unwrap(), attempt: 1 },
            window,
            grants: (0..hosts).map(grant).collect(),
            participants: Vec::new(),
            user: "ada".to_owned(),
            user_key: is_of_user.then(|| PublicKey::from_bytes([1; 32])),
            account: None,
            lineage: None,
            statement: None,
            settled: false,
            coordinator: None,
            fed_as: None,
            is_substituted: false,
            confirmed: None,
            lost: Vec::new(),
            talk: None,
            network: None,
            slack: Default::default(),
            wait: Default::default(),
        }
    }

    #[test]
    fn each_promise_is_told_when_it_is_made_and_when_it_is_over() {
        let mut promises = Promises::of(std::iter::empty());
        let (one, other) = (put("r", 2, true), put("s", 18, true));
        let mut turn =
            |record: &Record, now: i64| promises.note(record, Time(now)).map(|news| (news.turn, news.promise.hosts));
        assert_eq!(turn(&Record::Put(one.clone()), 50), Some((Turn::Reserved, "h00, h01".to_owned())));
        assert_eq!(turn(&Record::Put(BookingRecord { settled: true, ..one.clone() }), 50), None, "the same promise");
        let (_, many) = turn(&Record::Put(other.clone()), 50).unwrap();
        assert!(many.ends_with("h15 and 2 more"), "{many}");
        let later = BookingRecord { window: one.window.later(Span(50)), ..one.clone() };
        assert_eq!(turn(&Record::PutAll(vec![put("own", 1, false), later.clone()]), 100).unwrap().0, Turn::Waits);
        assert_eq!(turn(&Record::Put(later), 100), None, "told once");
        assert_eq!(turn(&Record::Put(put("own", 1, false)), 50), None);
        assert_eq!(turn(&Record::Remove(put("own", 1, false).attempt), 50), None);
        assert_eq!(turn(&Record::Remove(one.attempt.clone()), 249).unwrap().0, Turn::GivenBack);
        assert_eq!(turn(&Record::Remove(one.attempt), 249), None);
        assert_eq!(turn(&Record::Remove(other.attempt), 200).unwrap().0, Turn::Ended);
    }

    #[test]
    fn what_was_reserved_counts_until_it_is_over() {
        let one = put("r", 2, true);
        let over = |at: i64| {
            let mut promises = Promises::of(std::iter::empty());
            let made = promises.note(&Record::Put(one.clone()), Time(50)).unwrap();
            assert_eq!(made.reserved(Time(50)), None);
            let news = promises.note(&Record::Remove(one.attempt.clone()), Time(at)).unwrap();
            news.reserved(Time(at)).map(|reserved| (reserved.seats, reserved.seat_s))
        };
        assert_eq!((over(90), over(130), over(400)), (None, Some((2, 60)), Some((2, 200))));
    }
}
