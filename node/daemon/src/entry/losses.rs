//! Finds reservations whose sites no longer show what they have confirmed, and has them checked at once; their sites keep their places in
//! the view.
//!
//! The coordinator asks the sites of a reservation only now and then, up to an hour apart. What sites tell all nodes of their schedules says
//! sooner that a seat is gone: its amounts are no longer used. That is a hint; the question that follows decides ([`Command::Check`]).
//! Seats of a class are told by count only, and wait for the next round of questions. Invariant: only reservations at sites that have told
//! something new are looked at, and none is checked more often than in the rounds of its coordinator.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use broker::{
    amount::Amount,
    ids::{RequestId, SiteId},
    plan::{Place, Plan, Seat},
    protocol::LedgerVersion,
    schedule::Schedule,
    time::{Millis, Now, Span, Time, Window},
    view::{Schedules, SiteView},
};
use discovery::Discovery;
use kolo_runtime::clock::Clock;

use super::{
    request::{Command, ShownStage, Snapshot},
    requests::Requests,
};

/// How often is looked. A loss counts when it is seen twice: a booking may be younger than the schedule.
const EVERY: Duration = Duration::from_secs(3);
/// So long before its end nothing is expected of a seat any more: the clocks of sites differ.
const CLOCKS_DIFFER: Span = Span(60);

/// Looks for as long as the node is up.
pub async fn look_for_losses(requests: Arc<Requests>, discovery: Discovery, clock: Clock) {
    let mut losses = Losses::default();
    loop {
        tokio::time::sleep(EVERY).await;
        let (requests, discovery) = (requests.clone(), discovery.clone());
        let looked = tokio::task::spawn_blocking(move || {
            losses.look(&requests, &discovery, clock.now());
            losses
        });
        // An error says that the node is stopping.
        let Ok(kept) = looked.await else { return std::future::pending().await };
        losses = kept;
    }
}

/// What was seen when it was looked last.
#[derive(Default)]
struct Losses {
    versions: BTreeMap<SiteId, LedgerVersion>,
    /// Reservations that miss something, and when each was checked.
    doubted: BTreeMap<RequestId, Option<Millis>>,
}

impl Losses {
    fn look(&mut self, requests: &Requests, discovery: &Discovery, now: Now) {
        let view = discovery.view();
        let versions = view.site_ids().into_iter().filter_map(|site| Some((site.clone(), view.version(&site)?)));
        let versions: BTreeMap<SiteId, LedgerVersion> = versions.collect();
        let is_new = |(site, version): &(&SiteId, &LedgerVersion)| self.versions.get(*site) != Some(*version);
        let changed: BTreeSet<SiteId> = versions.iter().filter(is_new).map(|(site, _)| site.clone()).collect();
        self.versions = versions;
        let before = std::mem::take(&mut self.doubted);
        let again_after = requests.settings().check_min;
        let mut booked = BTreeSet::new();
        requests.for_each(|handle| {
            let snapshot = handle.snapshot.borrow();
            let ShownStage::Reserved(plan) = &snapshot.stage else { return };
            let Snapshot { record, .. } = &*snapshot;
            let go_on = plan.seats.iter().filter(|seat| seat.window.end > now.utc);
            booked.extend(go_on.map(|seat| seat.site.clone()));
            let is_looked_at =
                before.contains_key(&record.id) || plan.seats.iter().any(|seat| changed.contains(&seat.site));
            let shows = |seat: &Seat| view.with_site(&seat.site, |site| is_shown(site, seat, now.utc));
            if !is_looked_at || !misses_a_seat(plan, now.utc, |seat| shows(seat).unwrap_or(true)) {
                return;
            }
            let checked = match before.get(&record.id) {
                None => None,
                Some(Some(at)) if now.monotonic - *at < again_after => Some(*at),
                Some(_) => {
                    // A full channel means that it is about to be checked.
                    let _ = handle.commands.try_send(Command::Check(None));
                    Some(now.monotonic)
                }
            };
            self.doubted.insert(record.id.clone(), checked);
        });
        discovery.keep_booked(booked);
    }
}

/// Whether a seat of the plan that goes on is not shown by its site.
fn misses_a_seat(plan: &Plan, now: Time, is_shown: impl Fn(&Seat) -> bool) -> bool {
    let goes_on = |seat: &&Seat| now + CLOCKS_DIFFER < seat.window.end;
    plan.seats.iter().filter(goes_on).any(|seat| !is_shown(seat))
}

/// Whether a site shows that what the seat has is used; also where it says nothing of that.
fn is_shown(site: &SiteView, seat: &Seat, now: Time) -> bool {
    let (Place::Host(host), Schedules::Known(known)) = (&seat.place, site.schedules()) else { return true };
    // A site that is drained offers no hosts, and keeps what it has promised.
    if known.has_gap || site.advert().hosts.is_empty() {
        return true;
    }
    if site.advert().hosts.get(host).is_none() {
        return false;
    }
    is_used(known.schedules.host(host), seat, now)
}

/// Whether all that a seat still has is used by the schedule of its host; none: it is free.
fn is_used(schedule: Option<&Schedule>, seat: &Seat, now: Time) -> bool {
    // Of what is past by its own clock a site tells nothing.
    let window = Window { start: seat.window.start.max(now + CLOCKS_DIFFER), end: seat.window.end };
    if window.start >= window.end {
        return true;
    }
    let is_used = |name, amount: Amount| match schedule.and_then(|schedule| schedule.occupancy(name)) {
        Some(occupancy) => occupancy.segments(window).all(|(_, used)| used >= amount),
        None => false,
    };
    seat.amounts.iter().filter(|(_, amount)| **amount > Amount::ZERO).all(|(name, amount)| is_used(name, *amount))
}

#[cfg(test)]
mod tests {
    use broker::{
        ids::{HostId, SeatNumber},
        resources::{Amounts, ResourceName},
    };

    use super::*;

    fn amounts(cpu: u64, memory: u64) -> Amounts {
        [("cpu", cpu), ("memory", memory)]
            .map(|(name, amount)| (ResourceName::new(name).unwrap(), Amount(amount)))
            .into()
    }

    fn seat(start: i64, end: i64, amounts: Amounts) -> Seat {
        Seat {
            number: SeatNumber(0),
            site: SiteId::new("s").unwrap(),
            place: Place::Host(HostId::new("h").unwrap()),
            window: Window { start: Time(start), end: Time(end) },
            amounts,
            agreed: Default::default(),
        }
    }

    #[test]
    fn a_seat_is_there_as_long_as_all_of_it_is_used_all_the_time() {
        let seat = seat(1_000, 2_000, amounts(500, 0));
        let of = |parts: &[(i64, i64, u64)]| {
            let mut schedule = Schedule::default();
            for (start, end, cpu) in parts {
                schedule.add(Window { start: Time(*start), end: Time(*end) }, &amounts(*cpu, 0));
            }
            schedule
        };
        let shown = |schedule: Option<&Schedule>, now| is_used(schedule, &seat, Time(now));
        assert!(!shown(None, 0) && !shown(Some(&of(&[(0, 1_000, 500)])), 0), "nothing of it is used");
        assert!(shown(Some(&of(&[(1_000, 2_000, 500)])), 0));
        assert!(
            shown(Some(&of(&[(1_000, 1_500, 500), (1_500, 2_000, 700)])), 0),
            "others have the same amounts beside it"
        );
        assert!(!shown(Some(&of(&[(1_000, 1_500, 500), (1_600, 2_000, 500)])), 0), "a gap");
        assert!(!shown(Some(&of(&[(1_000, 2_000, 499)])), 0), "less than it has");
        assert!(shown(Some(&of(&[(1_500, 2_000, 500)])), 1_450), "what is past is not told any more");
        assert!(shown(None, 1_950), "it ends soon by any clock");
    }

    #[test]
    fn only_seats_that_go_on_are_missed() {
        let (over, going) = (seat(0, 900, amounts(1, 0)), seat(0, 5_000, amounts(1, 0)));
        let plan = |seats: Vec<Seat>| Plan {
            shape: Default::default(),
            start: Time(0),
            traffic: None,
            scale: Default::default(),
            objective: broker::plan::ObjectiveValue {
                kind: broker::request::ObjectiveKind::Start,
                value: 0,
                bound: None,
            },
            seats,
            efficiency: 1.0,
            efficiency_bound: 1.0,
            start_proven: false,
        };
        assert!(!misses_a_seat(&plan(vec![over.clone()]), Time(1_000), |_| false));
        assert!(misses_a_seat(&plan(vec![over.clone(), going.clone()]), Time(1_000), |_| false));
        assert!(!misses_a_seat(&plan(vec![over, going]), Time(1_000), |_| true));
    }
}
