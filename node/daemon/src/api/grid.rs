//! What the node knows of the grid, and its own ledger, over the API.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use broker::{
    amount::Amount,
    ids::SiteId,
    ledger::{Booking, BookingState, Books, HostLedger},
    protocol::{ClassesLeft, Grant},
    resources::{Amounts, ResourceName, amount_of},
    schedule::Schedule,
    time::{Millis, Span, Time, Window},
    view::Schedules,
};
use discovery::{AskError, BannedPeer, ClockOffset, LinkError, LinkSpeed, Reachability};
use kolo_api::{
    grid::{
        ApartView, BanView, ClockView, HostList, HostView, LinkView, ReachView, SOFTWARE, ScheduleState, SiteList,
        SiteView, Status, UplinkView,
    },
    ledger::{LedgerBooking, LedgerGrant, LedgerHost, LedgerView, Steps},
    prices::{ConditionsView, present_and_next},
};
use kolo_runtime::clock::{clock_doubt, is_off, unix_ms, unix_time};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    extract::{Query, in_range},
    problem::Problem,
    state::ApiState,
};
use crate::entry::driver::MAX_SCHEDULE_AGE;

/// Sites or hosts of one answer unless asked otherwise.
const LIST_DEFAULT: usize = 10_000;
/// Most sites or hosts of one answer.
const LIST_MAX: usize = 50_000;

fn clock_view(ClockOffset { sites, median_ms }: ClockOffset) -> ClockView {
    ClockView { sites, ahead_ms: median_ms, is_off: is_off(median_ms) }
}

/// The node and what it knows, in numbers.
#[utoipa::path(get, path = "/status", tag = "grid", responses((status = 200, description = "Done", body = Status)))]
pub async fn show_status(State(state): State<Arc<ApiState>>) -> Json<Status> {
    let discovery = state.discovery.status();
    let ledger_version = state.ledger.lock().version();
    Json(Status {
        site: state.discovery.site_id().clone(),
        name: state.name.clone(),
        grid: state.membership.grid().id.clone(),
        grid_form: state.membership.grid().form().to_owned(),
        software: SOFTWARE.to_owned(),
        started: state.started,
        api: state.port.address().to_string(),
        api_holder: state.port.holder(),
        api_displaced_by: state.port.displaced_by().map(str::to_owned),
        listen: state.discovery.listen_addresses().iter().map(ToString::to_string).collect(),
        peers: discovery.connected.len(),
        known_sites: state.discovery.view().site_count(),
        known_hosts: state.discovery.view().host_count(),
        active_requests: state.requests.active(),
        is_draining: state.upkeep.is_draining(),
        stopped: state.run_site.stopped(),
        lacks_room: state.upkeep.lacks_room(),
        ledger_version,
        bans: bans(&discovery.bans),
        apart: apart(discovery.apart),
        coarse_from: discovery.coarse_from,
        seen_as: discovery.seen_as.iter().map(ToString::to_string).collect(),
        clock: discovery.clock.map(clock_view),
        clock_ahead_s: clock_doubt().map(|doubt| doubt.ahead_s),
        failed_activations: state.activations.given_up(),
        counters: discovery.counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
    })
}

/// Asks some connected sites to open a connection to this node; takes up to eight seconds.
#[utoipa::path(get, path = "/reach", tag = "grid", responses((status = 200, description = "Done", body = ReachView)))]
pub async fn test_reach(State(state): State<Arc<ApiState>>) -> Json<ReachView> {
    let Reachability { asked, reached } = state.discovery.ask_reachability().await;
    Json(ReachView { asked, reached })
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LinkQuery {
    /// The other site, whose owner allows it (`uplink_tests`).
    #[param(value_type = String)]
    with: SiteId,
}

/// Measures the link to another site, with up to 32 MiB each way; takes seconds.
#[utoipa::path(get, path = "/uplink", tag = "grid", params(LinkQuery), responses((status = 200, description = "Done", body = LinkView)))]
pub async fn measure_link(
    State(state): State<Arc<ApiState>>,
    Query(LinkQuery { with }): Query<LinkQuery>,
) -> Result<Json<LinkView>, Problem> {
    let discovery = &state.discovery;
    let LinkSpeed { to_mbps, from_mbps } = discovery.measure_link(&with).await.map_err(|error| match error {
        LinkError::Itself | LinkError::Unreachable(AskError::NotASite(_)) => Problem::wrong("with", error),
        LinkError::NotAllowed => Problem::new(StatusCode::FORBIDDEN, error.to_string()).with_rule("uplink_tests"),
        LinkError::NotNow { .. } | LinkError::Running => Problem::new(StatusCode::TOO_MANY_REQUESTS, error.to_string()),
        _ => Problem::new(StatusCode::BAD_GATEWAY, error.to_string()),
    })?;
    let uplink = |site| discovery.view().with_site(site, |view| view.advert().uplink).flatten().map(|mbps| mbps.0);
    let (uplink_mbps, their_uplink_mbps) = (uplink(discovery.site_id()), uplink(&with));
    Ok(Json(LinkView { to_mbps, from_mbps, uplink_mbps, their_uplink_mbps }))
}

fn apart(apart: Vec<(SiteId, String)>) -> Vec<ApartView> {
    apart.into_iter().map(|(site, why)| ApartView { site, why }).collect()
}

/// The bans in force, the one that ends last first.
fn bans(bans: &[BannedPeer]) -> Vec<BanView> {
    let now = unix_time();
    let view = |ban: &BannedPeer| BanView {
        site: ban.site.clone(),
        why: ban.why.to_owned(),
        until: now + Span(ban.remaining.0.div_ceil(1000)),
        times: ban.times,
    };
    let mut bans: Vec<BanView> = bans.iter().map(view).collect();
    bans.sort_by_key(|ban| std::cmp::Reverse(ban.until));
    bans
}

fn uplink_view(view: &broker::view::SiteView, now: Time) -> Option<UplinkView> {
    let link = view.uplink()?;
    let free = link.mbps.saturating_sub(link.occupancy.used_at(now));
    let is_known = matches!(view.schedules(), Schedules::Known(_));
    Some(UplinkView { mbps: link.mbps.0, free_now_mbps: is_known.then_some(free.0) })
}

/// The state of a schedule with its age and whether changes are missing; none when there is no schedule.
fn state_of(known: Option<(Millis, bool)>) -> ScheduleState {
    match known {
        None => ScheduleState::Unknown,
        Some((age, has_gap)) if has_gap || age > MAX_SCHEDULE_AGE => ScheduleState::Stale,
        Some(_) => ScheduleState::Current,
    }
}

/// The state of the schedule of a site in the view.
pub fn schedule_state(state: &ApiState, site: &SiteId) -> ScheduleState {
    let now = state.discovery.now();
    let known = state.discovery.view().with_site(site, |view| match view.schedules() {
        Schedules::Known(known) => Some((now - known.learnt, known.has_gap)),
        Schedules::Unknown => None,
    });
    state_of(known.flatten())
}

/// Every known site, with the age of what is known of it.
#[utoipa::path(get, path = "/sites", tag = "grid", params(PageQuery), responses((status = 200, description = "Done", body = SiteList)))]
pub async fn list_sites(
    State(state): State<Arc<ApiState>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<SiteList>, Problem> {
    let limit = query.limit()?;
    let now_ms = unix_ms();
    let (view, now) = (state.discovery.view(), state.coordinator.clock.now().utc);
    let mut summaries = view.sites(state.discovery.now());
    if let Some(after) = &query.after {
        summaries.retain(|summary| summary.advert.site.as_str() > after.as_str());
    }
    let next = (summaries.len() > limit).then(|| summaries[limit - 1].advert.site.to_string());
    summaries.truncate(limit);
    let status = state.discovery.status();
    let sites = summaries.into_iter().map(|summary| {
        let this_node = summary.advert.site == *state.discovery.site_id();
        let known = summary.schedule_age.map(|age| (age, summary.has_gap));
        let uplink = view.with_site(&summary.advert.site, |view| uplink_view(view, now)).flatten();
        let schedule = state_of(known);
        SiteView {
            this_node,
            site: summary.advert.site,
            name: summary.advert.name,
            hosts: summary.advert.hosts.count(),
            advert_age_s: now_ms.saturating_sub(summary.advert.sequence) / 1000,
            expires_in_s: summary.expires_in.0 / 1000,
            schedule,
            schedule_trouble: summary.trouble.filter(|_| schedule != ScheduleState::Current),
            coarse_from: if this_node { status.coarse_from } else { summary.coarse_from },
            ledger_version: summary.version,
            schedule_age_s: summary.schedule_age.map(|age| age.0 / 1000),
            addresses: summary.advert.addresses,
            uplink,
        }
    });
    Ok(Json(SiteList { sites: sites.collect(), bans: bans(&status.bans), apart: apart(status.apart.clone()), next }))
}

/// Which part of a list is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// How many at most.
    #[param(minimum = 1, maximum = 50_000)]
    limit: Option<usize>,
    /// Goes on after the answer that gave this as `next`.
    after: Option<String>,
}

impl PageQuery {
    fn limit(&self) -> Result<usize, Problem> {
        in_range("limit", self.limit.unwrap_or(LIST_DEFAULT), 1..=LIST_MAX)
    }
}

/// Every known host, by site, then by host.
#[utoipa::path(get, path = "/hosts", tag = "grid", params(("limit" = Option<usize>, Query, description = "How many at most", minimum = 1, maximum = 50_000), ("after" = Option<String>, Query, description = "Goes on after the answer that gave this as `next`", pattern = "^[^ ]+ .+$")), responses((status = 200, description = "Done", body = HostList)))]
pub async fn list_hosts(
    State(state): State<Arc<ApiState>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<HostList>, Problem> {
    let limit = query.limit()?;
    let (after_site, after_host) = match &query.after {
        Some(after) => {
            after.split_once(' ').ok_or_else(|| Problem::wrong("after", "expected what an answer has given as next"))?
        }
        None => ("", ""),
    };
    let now = state.coordinator.clock.now().utc;
    let monotonic = state.discovery.now();
    let view = state.discovery.view();
    let mut hosts: Vec<HostView> = Vec::new();
    for site in view.site_ids().into_iter().filter(|site| site.as_str() >= after_site) {
        let mut of_site = view.with_site(&site, |view| hosts_of(view, now, monotonic)).unwrap_or_default();
        if site.as_str() == after_site {
            of_site.retain(|host| host.host.as_str() > after_host);
        }
        of_site.sort_by(|a, b| a.host.cmp(&b.host));
        hosts.extend(of_site);
        if hosts.len() > limit {
            break;
        }
    }
    let last = hosts.get(limit - 1).filter(|_| hosts.len() > limit);
    let next = last.map(|last| format!("{} {}", last.site, last.host));
    hosts.truncate(limit);
    Ok(Json(HostList { hosts, next }))
}

fn hosts_of(view: &broker::view::SiteView, now: Time, monotonic: Millis) -> Vec<HostView> {
    let advert = view.advert();
    let known = match view.schedules() {
        Schedules::Known(known) => Some(known),
        Schedules::Unknown => None,
    };
    let mut left = ClassesLeft::default();
    let is_offered = advert.offer.check(Window::starting(now, Span(1)), now).is_ok();
    let host_view = |host: broker::host::Host| {
        let free_now = known.map(|known| match is_offered {
            true => free_at(&host, &known.schedules.next_of(&host, &mut left), now),
            false => host.capacity.keys().map(|name| (name.clone(), Amount::ZERO)).collect(),
        });
        let (prices, next_prices) = present_and_next(&host.tariff.prices, now);
        HostView {
            site: advert.site.clone(),
            site_name: advert.name.clone(),
            host: host.id,
            resources: host.capacity,
            attributes: host.attributes,
            speed: host.speed,
            prices,
            next_prices,
            conditions: ConditionsView::of(&host.tariff.conditions),
            free_now,
            schedule_age_s: known.map(|known| (monotonic - known.learnt).0 / 1000),
        }
    };
    advert.hosts.iter().map(host_view).collect()
}

/// What is free of a host, and promised by its owner.
fn free_at(host: &broker::host::Host, schedule: &Schedule, at: Time) -> Amounts {
    let above_share = host.tariff.conditions.above_share(&host.capacity).unwrap_or_default();
    let free = |(name, capacity): (&ResourceName, &Amount)| {
        let used = schedule.occupancy(name).map_or(Amount::ZERO, |occupancy| occupancy.used_at(at));
        (name.clone(), capacity.saturating_sub(used).saturating_sub(amount_of(&above_share, name)))
    };
    host.capacity.iter().map(free).collect()
}

/// This site's hosts and bookings.
#[utoipa::path(get, path = "/ledger", tag = "grid", responses((status = 200, description = "Done", body = LedgerView)))]
pub async fn show_ledger(State(state): State<Arc<ApiState>>) -> Json<LedgerView> {
    let ledger = state.ledger.lock();
    Json(LedgerView {
        site: ledger.site().clone(),
        ledger_version: ledger.version(),
        hosts: ledger.hosts().map(ledger_host).collect(),
        uplink: ledger.uplink().map(ledger_host),
        bookings: ledger.bookings().map(booking_view).collect(),
    })
}

fn steps(schedule: &Schedule) -> Steps {
    schedule.occupancies().map(|(name, occupancy)| (name.clone(), occupancy.steps())).collect()
}

fn ledger_host(ledger: &HostLedger) -> LedgerHost {
    let host = ledger.host();
    LedgerHost {
        id: host.id.clone(),
        resources: host.capacity.clone(),
        attributes: host.attributes.clone(),
        speed: host.speed,
        occupancy: steps(ledger.reserved()),
        own: steps(ledger.own()),
    }
}

fn grant_view(grant: &Grant) -> LedgerGrant {
    let Grant { seat, place, window, amounts, .. } = grant;
    LedgerGrant { seat: seat.0, host: place.host().clone(), window: *window, amounts: amounts.clone() }
}

fn booking_view(booking: &Booking) -> LedgerBooking {
    let (state, settled) = match booking.state {
        BookingState::Held { .. } => ("held", false),
        BookingState::Confirmed { .. } => ("confirmed", false),
        BookingState::Settled | BookingState::Returned { .. } => ("confirmed", true),
    };
    LedgerBooking {
        entry_point: booking.attempt.entry_point.clone(),
        request: booking.attempt.request.clone(),
        attempt: booking.attempt.attempt,
        state,
        settled,
        user: booking.user.clone(),
        user_key: booking.user_key,
        window: booking.window,
        grants: booking.grants.iter().map(grant_view).collect(),
        uplink_mbps: booking.load().0,
    }
}
