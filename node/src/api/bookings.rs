//! Who has reserved what and when, at all sites: what a Gantt chart shows.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::{Query, State},
};
use broker::{
    ids::{HostId, RequestId, SiteId},
    resources::Amounts,
    time::Time,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{ApiState, grid::ScheduleState, problem::Problem};
use crate::daemon::bookings::Told;

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
    from: Option<i64>,
    /// Only those that start before this (Unix seconds).
    until: Option<i64>,
    /// Only those of this site.
    #[param(value_type = Option<String>)]
    site: Option<SiteId>,
    /// Only those of this user.
    user: Option<String>,
    /// How many at most.
    limit: Option<usize>,
    /// Goes on after the answer that gave this as `next`.
    after: Option<String>,
}

/// Answer of `GET /v1/bookings`.
#[derive(Debug, Serialize, ToSchema)]
pub struct BookingList {
    /// The node's clock (Unix seconds).
    #[schema(value_type = i64)]
    now: Time,
    /// Every site that was looked at, with or without reservations.
    sites: Vec<BookedSite>,
    /// By start.
    bookings: Vec<BookingView>,
    /// For `after`, when there are more.
    next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct BookedSite {
    #[schema(value_type = String)]
    site: SiteId,
    name: String,
    /// What is known of its schedule.
    schedule: ScheduleState,
    /// How long ago it told its reservations; none when it never has.
    told_age_s: Option<u64>,
    /// Whether it has told more than is kept.
    is_cut: bool,
    /// Whether its owner does not want its reservations told.
    is_withheld: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct BookingView {
    #[schema(value_type = String)]
    site: SiteId,
    #[schema(value_type = String)]
    request: RequestId,
    #[schema(value_type = String)]
    entry_point: SiteId,
    attempt: u32,
    user: String,
    #[schema(value_type = i64)]
    start: Time,
    #[schema(value_type = i64)]
    end: Time,
    hosts: Vec<BookedHost>,
}

#[derive(Debug, Serialize, ToSchema)]
struct BookedHost {
    #[schema(value_type = String)]
    host: HostId,
    #[schema(value_type = std::collections::BTreeMap<String, u64>)]
    amounts: Amounts,
}

/// Where a reservation stands in the list; unique, and the same in every answer.
type Position = (Time, SiteId, RequestId, u32);

fn position_of(view: &BookingView) -> Position {
    (view.start, view.site.clone(), view.request.clone(), view.attempt)
}

fn cursor_of(view: &BookingView) -> String {
    format!("{} {} {} {}", view.start.0, view.site, view.request, view.attempt)
}

fn read_cursor(text: &str) -> Option<Position> {
    let mut parts = text.split(' ');
    let start = parts.next()?.parse().ok()?;
    let site = SiteId::new(parts.next()?).ok()?;
    let request = RequestId::new(parts.next()?).ok()?;
    Some((Time(start), site, request, parts.next()?.parse().ok()?))
}

impl BookingQuery {
    fn views(&self, told: &BTreeMap<SiteId, Told>) -> Vec<BookingView> {
        let (from, until) = (Time(self.from.unwrap_or(i64::MIN)), Time(self.until.unwrap_or(i64::MAX)));
        let mut views = Vec::new();
        for (site, told) in told {
            let wanted = told.bookings.values().filter(|booking| {
                booking.window.end > from
                    && booking.window.start < until
                    && self.user.as_ref().is_none_or(|user| *user == booking.user)
            });
            views.extend(wanted.map(|booking| {
                BookingView {
                    site: site.clone(),
                    request: booking.attempt.request.clone(),
                    entry_point: booking.attempt.entry_point.clone(),
                    attempt: booking.attempt.attempt,
                    user: booking.user.clone(),
                    start: booking.window.start,
                    end: booking.window.end,
                    hosts: booking
                        .grants
                        .iter()
                        .map(|grant| BookedHost { host: grant.host.clone(), amounts: grant.amounts.clone() })
                        .collect(),
                }
            }));
        }
        views.sort_by_key(position_of);
        views
    }
}

/// Who has reserved what and when, at all sites.
#[utoipa::path(get, path = "/bookings", tag = "grid", params(BookingQuery), responses((status = 200, description = "Done", body = BookingList)))]
pub async fn list(
    State(state): State<Arc<ApiState>>,
    Query(query): Query<BookingQuery>,
) -> Result<Json<BookingList>, Problem> {
    let limit = query.limit.unwrap_or(LIST_DEFAULT);
    if !(1..=LIST_MAX).contains(&limit) {
        return Err(Problem::bad_request(format!("limit: expected 1 to {LIST_MAX}")).with_key("limit"));
    }
    let unknown = || Problem::bad_request("after: expected what an answer has given as next").with_key("after");
    let after = query.after.as_deref().map(|text| read_cursor(text).ok_or_else(unknown)).transpose()?;
    let told = state.bookings.look(&state.carrier, query.site.as_ref()).await;
    let now = state.carrier.clock.now();
    let sites = told.iter().map(|(site, told)| BookedSite {
        site: site.clone(),
        name: state.site_name(site),
        schedule: ScheduleState::of(&state, site),
        told_age_s: told.told.map(|at| (now.monotonic - at).0 / 1000),
        is_cut: told.is_cut,
        is_withheld: told.is_withheld,
    });
    let sites = sites.collect();
    let mut bookings = query.views(&told);
    if let Some(after) = after {
        bookings.drain(..bookings.partition_point(|view| position_of(view) <= after));
    }
    let next = (bookings.len() > limit).then(|| cursor_of(&bookings[limit - 1]));
    bookings.truncate(limit);
    Ok(Json(BookingList { now: now.utc, sites, bookings, next }))
}
