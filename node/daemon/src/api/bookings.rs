//! Who has reserved what and when, at all sites: what a Gantt chart shows.
//!
//! Sites report what they have now; what has ended is what they reported before, and this node's requests, which it remembers over a
//! restart.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use broker::{
    ids::{RequestId, SiteId},
    protocol::{PublicBooking, hull},
    time::{Time, Window},
};
use kolo_api::bookings::{BookedHost, BookedSite, BookingList, BookingView, NotOffered};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    extract::{Query, in_range},
    grid::schedule_state,
    problem::Problem,
    state::ApiState,
};
use crate::entry::{bookings::SiteBookings, request::Snapshot};

/// Reservations of one answer unless asked otherwise.
const LIST_DEFAULT: usize = 5_000;
/// Most reservations of one answer.
const LIST_MAX: usize = 20_000;

/// Which reservations are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct BookingQuery {
    /// Only those that end after this (Unix seconds).
    #[param(minimum = 0, maximum = 253_402_300_799_i64)]
    from: Option<i64>,
    /// Only those that start before this (Unix seconds).
    #[param(minimum = 0, maximum = 253_402_300_799_i64)]
    until: Option<i64>,
    /// Only those of this site.
    #[param(value_type = Option<String>, min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    site: Option<SiteId>,
    /// Only those of this user.
    user: Option<String>,
    /// How many at most.
    #[param(minimum = 1, maximum = 20_000)]
    limit: Option<usize>,
    /// Goes on after the answer that gave this as `next`.
    #[param(pattern = r"^[0-9]{1,12} [^ \x00-\x1f\x7f-\x9f]{1,128} [^ \x00-\x1f\x7f-\x9f]{1,128} [0-9]{1,9}$")]
    after: Option<String>,
}

/// Most of these for each site.
const NOT_OFFERED_MAX: usize = 200;

/// The place of a reservation in the list; unique, and the same in every answer.
type Position<'a> = (Time, &'a SiteId, &'a RequestId, u32);

/// A reservation that may be shown; copied only if it is.
enum Row<'a> {
    /// With its window.
    Reported(&'a SiteId, &'a PublicBooking, Window),
    Ended(&'a BookingView),
}

impl<'a> Row<'a> {
    fn position(&self) -> Position<'a> {
        match self {
            Row::Reported(site, reported, window) => {
                (window.start, site, &reported.attempt.request, reported.attempt.attempt)
            }
            Row::Ended(view) => (view.start, &view.site, &view.request, view.attempt),
        }
    }

    fn view(&self) -> BookingView {
        match self {
            Row::Ended(view) => (*view).clone(),
            Row::Reported(site, reported, window) => BookingView {
                site: (*site).clone(),
                request: reported.attempt.request.clone(),
                part_of: None,
                entry_point: reported.attempt.entry_point.clone(),
                attempt: reported.attempt.attempt,
                user: reported.user.clone(),
                start: window.start,
                end: window.end,
                hosts: reported
                    .grants
                    .iter()
                    .map(|grant| BookedHost {
                        host: grant.host().clone(),
                        end: grant.window.end,
                        amounts: grant.amounts.clone(),
                    })
                    .collect(),
                uplink_mbps: reported.load.0,
            },
        }
    }
}

fn cursor_of(view: &BookingView) -> String {
    format!("{} {} {} {}", view.start.0, view.site, view.request, view.attempt)
}

fn read_cursor(text: &str) -> Option<(Time, SiteId, RequestId, u32)> {
    let mut parts = text.split(' ');
    let start = parts.next()?.parse().ok()?;
    let site = SiteId::new(parts.next()?).ok()?;
    let request = RequestId::new(parts.next()?).ok()?;
    Some((Time(start), site, request, parts.next()?.parse().ok()?))
}

impl BookingQuery {
    fn wants(&self, window: Window, user: &str) -> bool {
        self.from.is_none_or(|from| window.end > Time(from))
            && self.until.is_none_or(|until| window.start < Time(until))
            && self.user.as_ref().is_none_or(|wanted| wanted == user)
    }

    /// The first `limit` reservations behind `after`, by start, and whether there are more.
    fn page<'a>(
        &self,
        reported: &'a BTreeMap<SiteId, SiteBookings>,
        ended: &'a [BookingView],
        after: Option<Position<'_>>,
        limit: usize,
    ) -> (Vec<BookingView>, bool) {
        let of_sites = reported.iter().flat_map(|(site, reported)| {
            let row = move |booking: &'a PublicBooking| {
                let window = hull(&booking.grants).filter(|window| self.wants(*window, &booking.user))?;
                Some(Row::Reported(site, booking, window))
            };
            reported.bookings.values().filter_map(row)
        });
        let rows = of_sites.chain(ended.iter().map(Row::Ended));
        let mut rows: Vec<Row<'_>> = rows.filter(|row| after.is_none_or(|after| row.position() > after)).collect();
        let has_more = rows.len() > limit;
        if has_more {
            // Only those that are shown are put in order.
            rows.select_nth_unstable_by(limit, |a, b| a.position().cmp(&b.position()));
            rows.truncate(limit);
        }
        rows.sort_unstable_by(|a, b| a.position().cmp(&b.position()));
        (rows.iter().map(Row::view).collect(), has_more)
    }

    /// What `ended` had at the sites of `reported`, without what these have reported themselves.
    fn remembered(
        &self,
        reported: &BTreeMap<SiteId, SiteBookings>,
        ended: &[Snapshot],
        own: &SiteId,
    ) -> Vec<BookingView> {
        let mut views: BTreeMap<(&SiteId, &RequestId), BookingView> = BTreeMap::new();
        for snapshot in ended {
            let record = &snapshot.record;
            let Some(plan) = snapshot.stage.reserved_plan() else { continue };
            let (window, loads) = (plan.window(), plan.loads());
            if !self.wants(window, &record.user) {
                continue;
            }
            for grant in plan.seats.iter().filter(|grant| reported.contains_key(&grant.site)) {
                let view = views.entry((&grant.site, &record.id)).or_insert_with(|| BookingView {
                    site: grant.site.clone(),
                    request: record.id.clone(),
                    part_of: None,
                    entry_point: own.clone(),
                    attempt: record.last_attempt,
                    user: record.user.clone(),
                    start: window.start,
                    end: grant.window.end,
                    hosts: Vec::new(),
                    uplink_mbps: loads.get(&grant.site).map_or(0, |load| load.0),
                });
                let (host, end, amounts) = (grant.host().clone(), grant.window.end, grant.amounts.clone());
                view.end = view.end.max(end);
                view.hosts.push(BookedHost { host, end, amounts });
            }
        }
        if !views.is_empty() {
            for (site, reported) in reported {
                reported.bookings.keys().for_each(|attempt| drop(views.remove(&(site, &attempt.request))));
            }
        }
        views.into_values().collect()
    }
}

/// When a site offers its hosts to nobody who asks now, within these bounds.
fn not_offered(
    state: &ApiState,
    site: &SiteId,
    now: Time,
    (from, until): (Option<i64>, Option<i64>),
) -> Vec<NotOffered> {
    let offer = state.discovery.view().with_site(site, |view| view.advert().offer.clone()).unwrap_or_default();
    let (from, until) = (Time(from.unwrap_or(0)), Time(until.unwrap_or(Time::MAX.0)).min(Time::MAX));
    let inside = offer.closed(now).into_iter().filter(|closed| closed.end > from && closed.start < until);
    let view = |closed: Window| NotOffered { start: closed.start.max(from), end: closed.end.min(until) };
    inside.take(NOT_OFFERED_MAX).map(view).collect()
}

/// Who has reserved what and when, at all sites.
#[utoipa::path(get, path = "/bookings", tag = "grid", params(BookingQuery), responses((status = 200, description = "Done", body = BookingList)))]
pub async fn list_bookings(
    State(state): State<Arc<ApiState>>,
    Query(query): Query<BookingQuery>,
) -> Result<Json<BookingList>, Problem> {
    let limit = in_range("limit", query.limit.unwrap_or(LIST_DEFAULT), 1..=LIST_MAX)?;
    for (key, time) in [("from", query.from), ("until", query.until)] {
        in_range(key, time.unwrap_or(0), 0..=Time::MAX.0)?;
    }
    if let (Some(from), Some(until)) = (query.from, query.until)
        && until < from
    {
        return Err(Problem::wrong("until", "expected a time that is not before from"));
    }
    let unknown = || Problem::wrong("after", "expected what an answer has given as next");
    let after = query.after.as_deref().map(|text| read_cursor(text).ok_or_else(unknown)).transpose()?;
    let reported = state.bookings.look(&state.coordinator, query.site.as_ref()).await;
    let now = state.coordinator.clock.now();
    let sites = reported.iter().map(|(site, reported)| BookedSite {
        site: site.clone(),
        name: state.site_name(site),
        schedule: schedule_state(&state, site),
        told_age_s: reported.reported.map(|at| (now.monotonic - at).0 / 1000),
        is_cut: reported.is_cut,
        is_withheld: reported.is_withheld,
        uplink_mbps: state.discovery.view().with_site(site, |view| view.advert().uplink).flatten().map(|mbps| mbps.0),
        not_offered: not_offered(&state, site, now.utc, (query.from, query.until)),
    });
    let sites = sites.collect();
    let ended = state.bookings.ended(&state.requests, now.utc);
    let ended = query.remembered(&reported, &ended, state.discovery.site_id());
    let after = after.as_ref().map(|(start, site, request, attempt)| (*start, site, request, *attempt));
    let (mut bookings, has_more) = query.page(&reported, &ended, after, limit);
    let next = bookings.last().filter(|_| has_more).map(cursor_of);
    for booking in &mut bookings {
        booking.part_of = state.requests.base_of_id(&booking.request);
    }
    Ok(Json(BookingList { now: now.utc, sites, bookings, next }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use broker::{
        amount::Amount,
        ids::SeatNumber,
        plan::Place,
        protocol::{AttemptId, Grant},
        resources::Amounts,
    };
    use proptest::prelude::*;

    use super::*;

    fn query() -> BookingQuery {
        BookingQuery { from: None, until: None, site: None, user: None, limit: None, after: None }
    }

    fn name<T: TryFrom<String, Error: std::fmt::Debug>>(text: String) -> T {
        T::try_from(text).unwrap()
    }

    proptest! {
        /// Pages of any size, one behind the other, against the whole list in order.
        #[test]
        fn pages_leave_nothing_out_and_tell_nothing_twice(
            bookings in prop::collection::btree_map((0_u8..3, 0_u8..20), (0_i64..5, 1_i64..5), 0..30),
            limit in 1_usize..8,
        ) {
            let mut reported: BTreeMap<SiteId, SiteBookings> = BTreeMap::new();
            for ((site, request), (start, long)) in &bookings {
                let attempt =
                    AttemptId { entry_point: name("e".to_owned()), request: name(format!("r{request}")), attempt: 1 };
                let window = Window { start: Time(*start), end: Time(start + long) };
                let place = Place::Host(name("h".to_owned()));
                let grants = vec![Grant { seat: SeatNumber(0), place, window, amounts: Amounts::new(), agreed: Default::default() }];
                let booking = PublicBooking { attempt: attempt.clone(), grants, user: String::new(), load: Amount(0) };
                Arc::make_mut(&mut reported.entry(name(format!("s{site}"))).or_default().bookings).insert(attempt, booking);
            }
            let mut expected: Vec<(i64, String, String)> = bookings
                .iter()
                .map(|((site, request), (start, _))| (*start, format!("s{site}"), format!("r{request}")))
                .collect();
            expected.sort();
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let cursor = after.as_deref().and_then(read_cursor);
                let cursor = cursor.as_ref().map(|(start, site, request, attempt)| (*start, site, request, *attempt));
                let (page, has_more) = query().page(&reported, &[], cursor, limit);
                prop_assert!(page.len() == limit || !has_more);
                after = page.last().map(cursor_of);
                seen.extend(page.into_iter().map(|view| (view.start.0, view.site.to_string(), view.request.to_string())));
                if !has_more {
                    break;
                }
            }
            prop_assert_eq!(seen, expected);
        }
    }
}
