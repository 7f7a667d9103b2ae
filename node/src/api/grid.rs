//! What the node knows of the grid, and its own ledger, over the API.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State, http::StatusCode};
use broker::{
    amount::Amount,
    cost::PriceList,
    host::Speed,
    ids::{HostId, RequestId, SiteId},
    ledger::{Booking, BookingState, Books, HostLedger},
    protocol::{ClassesLeft, Grant, LedgerVersion},
    resources::{Amounts, Attributes, ResourceName, amount_of},
    schedule::Schedule,
    time::{Millis, Span, Time, Window},
    trust::PublicKey,
    view::Schedules,
};
use discovery::{AskError, BannedPeer, ClockOffset, LinkError, LinkSpeed, Reachability};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    extract::{Query, in_range},
    prices::{ConditionsView, NextPrices, present_and_next},
    problem::Problem,
    schema,
    state::ApiState,
};
use crate::{
    entry::driver::MAX_SCHEDULE_AGE,
    runtime::clock::{is_off, unix_ms},
    site::activation::FailedActivation,
};

/// Sites or hosts of one answer unless asked otherwise.
const LIST_DEFAULT: usize = 10_000;
/// Most sites or hosts of one answer.
const LIST_MAX: usize = 50_000;
/// Name and version of this program.
pub const SOFTWARE: &str = concat!("kolo ", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Status {
    pub site: SiteId,
    pub name: String,
    pub grid: String,
    pub grid_form: String,
    pub software: String,
    pub started: u64,
    pub api: String,
    pub listen: Vec<String>,
    pub peers: usize,
    pub known_sites: usize,
    pub known_hosts: usize,
    pub active_requests: usize,
    /// Whether this site promises nothing more.
    pub is_draining: bool,
    pub ledger_version: LedgerVersion,
    pub bans: Vec<BanView>,
    /// Sites that speak another version of the protocol between nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<ApartView>,
    /// From when on others are told more than is used of this site's hosts, because its schedules have more steps than are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub coarse_from: Option<Time>,
    /// What peers say this node's address is, most of them first.
    pub seen_as: Vec<String>,
    /// None when no message of another site has come lately.
    pub clock: Option<ClockView>,
    /// Events for which the owner's hook has failed to the last try, oldest first.
    pub failed_activations: Vec<FailedActivation>,
    pub counters: BTreeMap<String, u64>,
}

/// The clocks of other sites beside this machine's.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClockView {
    /// Sites whose signed messages tell their time.
    pub sites: usize,
    /// How far the clock in the middle of theirs is ahead of this machine's; below zero when it is behind.
    pub ahead_ms: i64,
    /// Whether that is so far that reservations would begin and end at the wrong time here.
    #[serde(default)]
    pub is_off: bool,
}

impl From<ClockOffset> for ClockView {
    fn from(ClockOffset { sites, median_ms }: ClockOffset) -> ClockView {
        ClockView { sites, ahead_ms: median_ms, is_off: is_off(median_ms) }
    }
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
        api: state.address.clone(),
        listen: state.discovery.listen_addresses().iter().map(ToString::to_string).collect(),
        peers: discovery.connected.len(),
        known_sites: state.discovery.view().site_count(),
        known_hosts: state.discovery.view().host_count(),
        active_requests: state.requests.active(),
        is_draining: state.upkeep.is_draining(),
        ledger_version,
        bans: bans(&discovery.bans),
        apart: apart(discovery.apart),
        coarse_from: discovery.coarse_from,
        seen_as: discovery.seen_as.iter().map(ToString::to_string).collect(),
        clock: discovery.clock.map(ClockView::from),
        failed_activations: state.activations.given_up(),
        counters: discovery.counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
    })
}

/// What other sites say of the way to this node.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReachView {
    /// Sites that have tried to open a connection to this node, at the addresses that it tells.
    pub asked: usize,
    /// Those of them that could.
    pub reached: usize,
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
    with: SiteId,
}

/// How fast the link between this site and another is, beside what is configured.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LinkView {
    /// To the other site, as that one has clocked it.
    pub to_mbps: u64,
    /// From it.
    pub from_mbps: u64,
    /// What this site's uplink carries, if it has a limit.
    pub uplink_mbps: Option<u64>,
    /// The same of the other site.
    pub their_uplink_mbps: Option<u64>,
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

/// A peer that this node refuses to talk to.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BanView {
    pub site: SiteId,
    pub why: String,
    pub until: Time,
    pub times: u32,
}

/// A site that speaks another version of the protocol between nodes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ApartView {
    pub site: SiteId,
    /// Which of the two programs is too old, and what to do.
    pub why: String,
}

fn apart(apart: Vec<(SiteId, String)>) -> Vec<ApartView> {
    apart.into_iter().map(|(site, why)| ApartView { site, why }).collect()
}

/// The bans in force, the one that ends last first.
fn bans(bans: &[BannedPeer]) -> Vec<BanView> {
    let now = Time(i64::try_from(unix_ms() / 1000).unwrap_or(i64::MAX));
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

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SiteList {
    pub sites: Vec<SiteView>,
    pub bans: Vec<BanView>,
    /// Sites that speak another version of the protocol between nodes; nothing else is known of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<ApartView>,
    /// For `after`, when there are more.
    pub next: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SiteView {
    pub site: SiteId,
    pub name: String,
    pub this_node: bool,
    pub hosts: usize,
    pub advert_age_s: u64,
    pub expires_in_s: u64,
    pub schedule: ScheduleState,
    pub ledger_version: Option<LedgerVersion>,
    pub schedule_age_s: Option<u64>,
    /// Why the schedule is not current, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub schedule_trouble: Option<String>,
    /// From when on hosts look busier than they are, because the site has more steps than are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub coarse_from: Option<Time>,
    pub addresses: Vec<String>,
    /// Its link to all others, if that has a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<UplinkView>,
}

/// A site's link to all others.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UplinkView {
    /// What it carries.
    pub mbps: u64,
    /// What of that is free now; none when the site's schedules are not known.
    pub free_now_mbps: Option<u64>,
}

impl UplinkView {
    fn of(view: &broker::view::SiteView, now: Time) -> Option<UplinkView> {
        let link = view.uplink()?;
        let free = link.mbps.saturating_sub(link.occupancy.used_at(now));
        let is_known = matches!(view.schedules(), Schedules::Known(_));
        Some(UplinkView { mbps: link.mbps.0, free_now_mbps: is_known.then_some(free.0) })
    }
}

/// What is known of a site's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleState {
    /// As it is, or was a short while ago.
    Current,
    /// Changes are known to be missing, or it is old.
    Stale,
    /// Never received.
    Unknown,
}

impl ScheduleState {
    /// Of a schedule with its age and whether changes are missing; none when there is no schedule.
    fn new(known: Option<(Millis, bool)>) -> ScheduleState {
        match known {
            None => ScheduleState::Unknown,
            Some((age, has_gap)) if has_gap || age > MAX_SCHEDULE_AGE => ScheduleState::Stale,
            Some(_) => ScheduleState::Current,
        }
    }

    /// The state's name, as in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            ScheduleState::Current => "current",
            ScheduleState::Stale => "stale",
            ScheduleState::Unknown => "unknown",
        }
    }

    /// Of a site in the view.
    pub fn of(state: &ApiState, site: &SiteId) -> ScheduleState {
        let now = state.discovery.now();
        let known = state.discovery.view().with_site(site, |view| match view.schedules() {
            Schedules::Known(known) => Some((now - known.learnt, known.has_gap)),
            Schedules::Unknown => None,
        });
        ScheduleState::new(known.flatten())
    }
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
        let uplink = view.with_site(&summary.advert.site, |view| UplinkView::of(view, now)).flatten();
        let schedule = ScheduleState::new(known);
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

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HostList {
    pub hosts: Vec<HostView>,
    /// For `after`, when there are more.
    pub next: Option<String>,
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

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HostView {
    pub site: SiteId,
    pub site_name: String,
    pub host: HostId,
    #[schema(value_type = schema::Amounts)]
    pub resources: Amounts,
    pub attributes: Attributes,
    /// Thousandths of the reference speed; 1000 when it is left out.
    #[serde(default, skip_serializing_if = "Speed::is_reference")]
    #[schema(value_type = u32)]
    pub speed: Speed,
    /// For a start now: thousandths of a credit for a core, a GiB, or one of anything else, for an hour. What is not named is free.
    #[serde(default, skip_serializing_if = "PriceList::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, u32>)]
    pub prices: PriceList,
    /// The next change of the prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_prices: Option<NextPrices>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<ConditionsView>,
    #[schema(value_type = Option<schema::Amounts>)]
    pub free_now: Option<Amounts>,
    pub schedule_age_s: Option<u64>,
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

#[derive(Debug, Serialize, ToSchema)]
pub struct LedgerView {
    site: SiteId,
    ledger_version: LedgerVersion,
    hosts: Vec<LedgerHost>,
    /// The uplink, as a host with `mbps`; left out when it has no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    uplink: Option<LedgerHost>,
    bookings: Vec<BookingView>,
}

type Steps = BTreeMap<ResourceName, Vec<(Time, Amount)>>;

#[derive(Debug, Serialize, ToSchema)]
struct LedgerHost {
    id: HostId,
    #[schema(value_type = schema::Amounts)]
    resources: Amounts,
    attributes: Attributes,
    /// Thousandths of the reference speed.
    #[schema(value_type = u32)]
    speed: Speed,
    /// The owner's own work and all reservations.
    #[schema(value_type = std::collections::BTreeMap<String, Vec<schema::Step>>)]
    occupancy: Steps,
    /// The owner's own work.
    #[schema(value_type = std::collections::BTreeMap<String, Vec<schema::Step>>)]
    own: Steps,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LedgerBooking)]
struct BookingView {
    entry_point: SiteId,
    request: RequestId,
    attempt: u32,
    state: &'static str,
    settled: bool,
    user: String,
    user_key: Option<PublicKey>,
    #[schema(value_type = schema::Window)]
    window: Window,
    grants: Vec<GrantView>,
    /// What they put on the uplink.
    uplink_mbps: u64,
}

/// A seat.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Grant)]
struct GrantView {
    /// Which of the seats of the request.
    seat: u32,
    host: HostId,
    #[schema(value_type = schema::Window)]
    window: Window,
    #[schema(value_type = schema::Amounts)]
    amounts: Amounts,
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

fn grant_view(grant: &Grant) -> GrantView {
    let Grant { seat, place, window, amounts, .. } = grant;
    GrantView { seat: seat.0, host: place.host().clone(), window: *window, amounts: amounts.clone() }
}

fn booking_view(booking: &Booking) -> BookingView {
    let (state, settled) = match booking.state {
        BookingState::Held { .. } => ("held", false),
        BookingState::Confirmed { .. } => ("confirmed", false),
        BookingState::Settled | BookingState::Returned { .. } => ("confirmed", true),
    };
    BookingView {
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
