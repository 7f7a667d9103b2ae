//! The bookings that the sites of the grid have reported, for people who look at them.
//!
//! A site is asked when somebody looks and its ledger has changed since, or its answer is old. Invariant: nothing here is
//! ever used to grant or to plan; what a site reports is bounded in number, checked, and kept with its age. A reservation
//! that has ended stays until [`PAST_KEPT`] after its end, so the picture has a past: that which this node has seen.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use broker::{
    ids::SiteId,
    protocol::{AttemptId, LedgerVersion, PublicBooking, SiteAnswer, SiteRequest, hull},
    time::{Millis, Span, Time},
};
use kolo_runtime::lock::locked;
use tokio::{sync::Semaphore, task::JoinSet};

use crate::entry::{driver::Coordinator, request::Snapshot, requests::Requests};

/// Sites asked at the same time.
const ASKED_AT_ONCE: usize = 16;
/// Sites asked by one look; the others are shown as they were last reported.
const ASKED_BY_LOOK: usize = 512;
/// How long a site may take for one answer.
const ANSWER_TIMEOUT: Millis = Millis(2_000);
/// How long one look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);
/// A site whose ledger has not changed is asked again after this.
const ANSWER_LIFE: Millis = Millis(60_000);
/// A site that did not answer is left alone for this long.
const SILENT_FOR: Millis = Millis(10_000);
/// Most answers of one site taken for one look.
const ANSWERS_MAX: usize = 16;
/// Most reservations kept of one site, each counted once a host.
const PARTS_OF_SITE_MAX: usize = 40_000;
/// Most reservations kept of all sites together, each counted once a host; above it, those that end first are left out.
const PARTS_MAX: usize = 400_000;
/// How long a reservation is shown after its end.
const PAST_KEPT: Span = Span(14 * 86_400);
/// Longest name of a user that is shown.
const USER_BYTES_MAX: usize = 256;

/// What one site has reported.
#[derive(Debug, Clone, Default)]
pub struct SiteBookings {
    /// By attempt.
    pub bookings: Arc<BTreeMap<AttemptId, PublicBooking>>,
    /// The ledger's version then.
    pub version: Option<LedgerVersion>,
    /// When, on the monotonic clock; none when it never answered.
    pub reported: Option<Millis>,
    /// Whether the site has reported more than is kept.
    pub is_cut: bool,
    /// Whether its owner withholds them.
    pub is_withheld: bool,
    /// What `bookings` counts for the limits.
    parts: usize,
}

#[derive(Default)]
pub struct Bookings {
    by_site: Mutex<BTreeMap<SiteId, SiteBookings>>,
    /// This node's requests that have ended by then.
    ended: Mutex<(Time, Arc<Vec<Snapshot>>)>,
    /// One look asks; others that come meanwhile wait for what it brings.
    looking: tokio::sync::Mutex<()>,
}

impl Bookings {
    /// Asks the sites in `sites` (all known ones without it) whose reservations may have changed, and returns what is then
    /// known of each.
    pub async fn look(&self, coordinator: &Coordinator, sites: Option<&SiteId>) -> BTreeMap<SiteId, SiteBookings> {
        let _looking = self.looking.lock().await;
        let known = coordinator.discovery.view().site_ids();
        let wanted: Vec<SiteId> = known.iter().filter(|site| sites.is_none_or(|only| only == *site)).cloned().collect();
        let mut asked = self.to_ask(coordinator, &wanted);
        asked.truncate(ASKED_BY_LOOK);
        let turns = Arc::new(Semaphore::new(ASKED_AT_ONCE));
        let mut asking = JoinSet::new();
        for site in asked {
            let (coordinator, turns) = (coordinator.clone(), turns.clone());
            asking.spawn(async move {
                // The semaphore is never closed.
                let _turn = turns.acquire().await;
                let answer = ask(&coordinator, &site).await;
                (site, answer)
            });
        }
        let collect = async {
            while let Some(Ok((site, answer))) = asking.join_next().await {
                self.note(coordinator, &site, answer);
            }
        };
        // Sites that were not asked or have not answered by then are the first ones of the next look.
        let _ = tokio::time::timeout(LOOK_TIMEOUT, collect).await;
        let mut by_site = locked(&self.by_site);
        by_site.retain(|site, _| known.contains(site));
        wanted.into_iter().map(|site| (site.clone(), by_site.get(&site).cloned().unwrap_or_default())).collect()
    }

    /// Requests of this node whose reservation has ended by `now`; looked for once a second at most.
    pub fn ended(&self, requests: &Requests, now: Time) -> Arc<Vec<Snapshot>> {
        let mut ended = locked(&self.ended);
        if ended.0 != now {
            *ended = (now, Arc::new(requests.ended(now)));
        }
        ended.1.clone()
    }

    /// The sites that may have something new to report, those with the oldest report first.
    fn to_ask(&self, coordinator: &Coordinator, sites: &[SiteId]) -> Vec<SiteId> {
        let now = coordinator.clock.now().monotonic;
        let by_site = locked(&self.by_site);
        let is_due = |site: &&SiteId| {
            let Some(known) = by_site.get(site) else { return true };
            let is_silent = coordinator.discovery.is_silent(site, SILENT_FOR);
            let is_old = known.reported.is_none_or(|reported| now - reported >= ANSWER_LIFE);
            !is_silent && (is_old || known.version != coordinator.discovery.view().version(site))
        };
        let mut due: Vec<SiteId> = sites.iter().filter(is_due).cloned().collect();
        due.sort_by_key(|site| by_site.get(site).and_then(|known| known.reported));
        due
    }

    fn note(&self, coordinator: &Coordinator, site: &SiteId, answer: Option<Answer>) {
        let now = coordinator.clock.now();
        let mut by_site = locked(&self.by_site);
        let others: usize = by_site.iter().filter(|(id, _)| *id != site).map(|(_, reported)| reported.parts).sum();
        let known = by_site.entry(site.clone()).or_default();
        let Some(answer) = answer else { return };
        let room = PARTS_OF_SITE_MAX.min(PARTS_MAX.saturating_sub(others));
        *known = known.replaced(answer, now.utc, now.monotonic, room);
    }
}

/// What a site has reported in one look.
struct Answer {
    bookings: Vec<PublicBooking>,
    version: LedgerVersion,
    is_complete: bool,
    is_withheld: bool,
}

async fn ask(coordinator: &Coordinator, site: &SiteId) -> Option<Answer> {
    let mut all =
        Answer { bookings: Vec::new(), version: LedgerVersion::default(), is_complete: false, is_withheld: false };
    let mut after = None;
    for _ in 0..ANSWERS_MAX {
        let answer = coordinator.ask(site, SiteRequest::Bookings { after: after.clone() }, ANSWER_TIMEOUT).await;
        let Ok(SiteAnswer::Bookings { bookings, is_complete, is_withheld, version }) = answer else { return None };
        let last = bookings.last().map(|booking| booking.attempt.clone());
        all.bookings.extend(bookings);
        all.version = version;
        all.is_withheld = is_withheld;
        // A page that does not go on would be asked for again and again.
        if is_complete || last <= after || all.bookings.len() > PARTS_OF_SITE_MAX {
            all.is_complete = is_complete;
            break;
        }
        after = last;
    }
    Some(all)
}

impl SiteBookings {
    /// What is known after an answer: what it reports, and what it no longer reports because it has ended.
    fn replaced(&self, answer: Answer, now: Time, monotonic: Millis, room: usize) -> SiteBookings {
        let is_sound = |booking: &PublicBooking| {
            let are_valid = booking.grants.iter().all(|grant| grant.window.is_valid());
            are_valid && !booking.grants.is_empty() && booking.user.len() <= USER_BYTES_MAX
        };
        let reported = answer.bookings.into_iter().filter(is_sound).map(|booking| (booking.attempt.clone(), booking));
        let mut bookings: BTreeMap<AttemptId, PublicBooking> = reported.collect();
        let ended = self.bookings.iter().filter(|(_, old)| {
            let end = end_of(old);
            end <= now && now - PAST_KEPT <= end
        });
        for (attempt, booking) in ended {
            bookings.entry(attempt.clone()).or_insert_with(|| booking.clone());
        }
        let mut is_cut = !answer.is_complete;
        let mut parts: usize = bookings.values().map(parts_of).sum();
        if parts > room {
            is_cut = true;
            let mut ends: Vec<(Time, AttemptId)> =
                bookings.iter().map(|(attempt, booking)| (end_of(booking), attempt.clone())).collect();
            ends.sort();
            for (_, attempt) in ends {
                parts -= bookings.remove(&attempt).as_ref().map_or(0, parts_of);
                if parts <= room {
                    break;
                }
            }
        }
        let version = Some(answer.version);
        SiteBookings {
            bookings: Arc::new(bookings),
            version,
            reported: Some(monotonic),
            is_cut,
            is_withheld: answer.is_withheld,
            parts,
        }
    }
}

/// What a reservation counts for the limits.
fn parts_of(booking: &PublicBooking) -> usize {
    booking.grants.len().max(1)
}

/// When its last host is free again.
fn end_of(booking: &PublicBooking) -> Time {
    hull(&booking.grants).map_or(Time::ZERO, |window| window.end)
}

#[cfg(test)]
mod tests {
    use broker::{
        amount::Amount,
        ids::{HostId, RequestId, SeatNumber},
        plan::Place,
        protocol::Grant,
        resources::Amounts,
        time::Window,
    };

    use super::*;

    fn booking(request: &str, start: i64, end: i64) -> PublicBooking {
        PublicBooking {
            attempt: AttemptId {
                entry_point: SiteId::new("entry").unwrap(),
                request: RequestId::new(request).unwrap(),
                attempt: 1,
            },
            grants: vec![Grant {
                seat: SeatNumber(0),
                place: Place::Host(HostId::new("h").unwrap()),
                window: Window { start: Time(start), end: Time(end) },
                amounts: Amounts::new(),
                agreed: Default::default(),
            }],
            user: "ada".to_owned(),
            load: Amount(0),
        }
    }

    fn answer(bookings: Vec<PublicBooking>) -> Answer {
        Answer { bookings, version: LedgerVersion::default(), is_complete: true, is_withheld: false }
    }

    fn names(reported: &SiteBookings) -> Vec<String> {
        reported.bookings.keys().map(|attempt| attempt.request.to_string()).collect()
    }

    #[test]
    fn what_has_ended_stays_and_what_was_cancelled_goes() {
        let reported = SiteBookings::default();
        let first = vec![booking("cancelled", 0, 100), booking("ended", 0, 50), booking("stands", 0, 100)];
        let reported = reported.replaced(answer(first), Time(10), Millis(1), 10);
        assert_eq!(names(&reported), ["cancelled", "ended", "stands"]);
        let reported = reported.replaced(answer(vec![booking("stands", 0, 100)]), Time(60), Millis(2), 10);
        assert_eq!(names(&reported), ["ended", "stands"]);
        let late = Time(50) + PAST_KEPT + Span(1);
        assert_eq!(names(&reported.replaced(answer(Vec::new()), late, Millis(3), 10)), ["stands"]);
    }

    #[test]
    fn what_makes_no_sense_is_not_taken_and_the_oldest_go_first() {
        let mut shouting = booking("shouting", 0, 100);
        shouting.user = "x".repeat(USER_BYTES_MAX + 1);
        let all = vec![shouting, booking("backwards", 9, 3), booking("a", 0, 30), booking("b", 0, 20)];
        let reported = SiteBookings::default().replaced(answer(all), Time(0), Millis(1), 1);
        assert_eq!(names(&reported), ["a"]);
        assert!(reported.is_cut);
    }
}
