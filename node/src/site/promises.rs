//! Who uses the machines of this site, for its owner's log: a line when hosts are reserved, given back, and free again at the end.
//!
//! Invariant: one entry for each booking of a user in the ledger, so there are no more than these.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    ids::HostId,
    ledger::{Booking, BookingRecord, GoneRecord, Record},
    protocol::{AttemptId, Grant},
    time::{Time, Window},
};
use jiff::tz::TimeZone;
use tracing::info;

use crate::{runtime::span::of_request, text::time::format_time};

/// Most hosts that a line names.
const NAMED_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Promise {
    user: String,
    hosts: String,
    window: Window,
}

/// What has become of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Reserved,
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
            let (user, hosts) = (booking.user.clone(), hosts_text(&booking.grants));
            (booking.attempt.clone(), Promise { user, hosts, window: booking.window })
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
        let BookingRecord { attempt, user, window, grants, user_key, .. } = booking;
        if user_key.is_none() || grants.is_empty() || self.0.contains_key(attempt) {
            return None;
        }
        let promise = Promise { user: user.clone(), hosts: hosts_text(grants), window: *window };
        self.0.insert(attempt.clone(), promise.clone());
        Some(News { turn: Turn::Reserved, attempt: attempt.clone(), promise })
    }
}

impl News {
    /// Writes the line.
    pub fn log(&self) {
        let Promise { user, hosts, window } = &self.promise;
        let [from, until] = [window.start, window.end].map(|time| format_time(time, &TimeZone::UTC));
        let coordinator = &self.attempt.entry_point;
        of_request(&self.attempt.request).in_scope(|| match self.turn {
            Turn::Reserved => info!(user, hosts, from, until, %coordinator, "hosts of this site are reserved"),
            Turn::GivenBack => info!(user, hosts, from, until, "hosts of this site are given back"),
            Turn::Ended => info!(user, hosts, from, until, "the time of a user on hosts of this site is over"),
        });
    }
}

#[cfg(test)]
mod tests {
    use broker::{
        ids::{RequestId, SeatNumber, SiteId},
        plan::Place,
        resources::Amounts,
        trust::PublicKey,
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
            statement: None,
            settled: false,
            coordinator: None,
            fed_as: None,
            is_substituted: false,
            confirmed: None,
            lost: Vec::new(),
            talk: None,
            network: None,
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
        assert_eq!(turn(&Record::Put(put("own", 1, false)), 50), None);
        assert_eq!(turn(&Record::Remove(put("own", 1, false).attempt), 50), None);
        assert_eq!(turn(&Record::Remove(one.attempt.clone()), 150).unwrap().0, Turn::GivenBack);
        assert_eq!(turn(&Record::Remove(one.attempt), 150), None);
        assert_eq!(turn(&Record::Remove(other.attempt), 200).unwrap().0, Turn::Ended);
    }
}
