//! What the node knows of the grid, and its own ledger, over the API.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use broker::{
    amount::Amount,
    ids::{HostId, RequestId, SiteId},
    ledger::{Booking, BookingState, HostLedger},
    protocol::{Grant, LedgerVersion},
    resources::{Amounts, Attributes, ResourceName},
    schedule::Schedule,
    time::{Millis, Time, Window},
    trust::PublicKey,
    view::Schedules,
};
use discovery::BannedPeer;
use serde::Serialize;

use super::ApiState;
use crate::daemon::{carry::MAX_SCHEDULE_AGE, clock::unix_ms};

#[derive(Debug, Serialize)]
pub struct Status {
    site: SiteId,
    name: String,
    grid: String,
    grid_form: &'static str,
    software: &'static str,
    started: u64,
    api: String,
    listen: Vec<String>,
    peers: usize,
    known_sites: usize,
    known_hosts: usize,
    active_requests: usize,
    ledger_version: LedgerVersion,
    bans: Vec<BanView>,
    counters: BTreeMap<String, u64>,
}

/// `GET /v1/status`
pub async fn status(State(state): State<Arc<ApiState>>) -> Json<Status> {
    let discovery = state.discovery.status();
    let ledger_version = state.ledger.lock().version();
    Json(Status {
        site: state.discovery.site_id().clone(),
        name: state.name.clone(),
        grid: state.membership.grid().id.clone(),
        grid_form: state.membership.grid().form(),
        software: concat!("kolo ", env!("CARGO_PKG_VERSION")),
        started: state.started,
        api: state.address.clone(),
        listen: state.discovery.listen_addresses().iter().map(ToString::to_string).collect(),
        peers: discovery.connected.len(),
        known_sites: state.discovery.view().site_count(),
        known_hosts: state.discovery.view().host_count(),
        active_requests: state.requests.active(),
        ledger_version,
        bans: bans(&discovery.bans),
        counters: discovery.counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
    })
}

/// A peer that this node refuses to talk to.
#[derive(Debug, Serialize)]
struct BanView {
    site: SiteId,
    why: &'static str,
    until: u64,
    times: u32,
}

/// The bans in force, the one that ends last first.
fn bans(bans: &[BannedPeer]) -> Vec<BanView> {
    let now_s = unix_ms() / 1000;
    let view = |ban: &BannedPeer| BanView {
        site: ban.site.clone(),
        why: ban.why,
        until: now_s + ban.remaining.0.div_ceil(1000),
        times: ban.times,
    };
    let mut bans: Vec<BanView> = bans.iter().map(view).collect();
    bans.sort_by_key(|ban| std::cmp::Reverse(ban.until));
    bans
}

#[derive(Debug, Serialize)]
pub struct SiteList {
    sites: Vec<SiteView>,
    bans: Vec<BanView>,
}

#[derive(Debug, Serialize)]
struct SiteView {
    site: SiteId,
    name: String,
    this_node: bool,
    hosts: usize,
    advert_age_s: u64,
    expires_in_s: u64,
    schedule: ScheduleState,
    ledger_version: Option<LedgerVersion>,
    schedule_age_s: Option<u64>,
    addresses: Vec<String>,
}

/// What is known of a site's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleState {
    /// As it is, or was a short while ago.
    Current,
    /// Changes are known to be missing, or it was not heard of for long.
    Stale,
    /// Never heard of.
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

    /// Of a site in the view.
    pub(super) fn of(state: &ApiState, site: &SiteId) -> ScheduleState {
        let now = state.discovery.now();
        let known = state.discovery.view().with_site(site, |view| match view.schedules() {
            Schedules::Known(known) => Some((now - known.learnt, known.has_gap)),
            Schedules::Unknown => None,
        });
        ScheduleState::new(known.flatten())
    }
}

/// `GET /v1/sites`
pub async fn sites(State(state): State<Arc<ApiState>>) -> Json<SiteList> {
    let now_ms = unix_ms();
    let sites = state.discovery.view().sites(state.discovery.now()).into_iter().map(|summary| {
        let known = summary.schedule_age.map(|age| (age, summary.has_gap));
        SiteView {
            this_node: summary.advert.site == *state.discovery.site_id(),
            site: summary.advert.site,
            name: summary.advert.name,
            hosts: summary.advert.hosts.len(),
            advert_age_s: now_ms.saturating_sub(summary.advert.sequence) / 1000,
            expires_in_s: summary.expires_in.0 / 1000,
            schedule: ScheduleState::new(known),
            ledger_version: summary.version,
            schedule_age_s: summary.schedule_age.map(|age| age.0 / 1000),
            addresses: summary.advert.addresses,
        }
    });
    Json(SiteList { sites: sites.collect(), bans: bans(&state.discovery.status().bans) })
}

#[derive(Debug, Serialize)]
pub struct HostList {
    hosts: Vec<HostView>,
}

#[derive(Debug, Serialize)]
struct HostView {
    site: SiteId,
    site_name: String,
    host: HostId,
    resources: Amounts,
    attributes: Attributes,
    speed: u32,
    price: u32,
    free_now: Option<Amounts>,
    schedule_age_s: Option<u64>,
}

/// `GET /v1/hosts`
pub async fn hosts(State(state): State<Arc<ApiState>>) -> Json<HostList> {
    let now = Time(i64::try_from(unix_ms() / 1000).unwrap_or(i64::MAX));
    let monotonic = state.discovery.now();
    let view = state.discovery.view();
    let of_site = |site: SiteId| view.with_site(&site, |view| hosts_of(view, now, monotonic));
    Json(HostList { hosts: view.site_ids().into_iter().filter_map(of_site).flatten().collect() })
}

fn hosts_of(view: &broker::view::SiteView, now: Time, monotonic: Millis) -> Vec<HostView> {
    let advert = view.advert();
    let known = match view.schedules() {
        Schedules::Known(known) => Some(known),
        Schedules::Unknown => None,
    };
    let host_view = |host: &broker::host::Host| {
        let schedule = known.and_then(|known| known.by_host.get(&host.id));
        HostView {
            site: advert.site.clone(),
            site_name: advert.name.clone(),
            host: host.id.clone(),
            resources: host.capacity.clone(),
            attributes: host.attributes.clone(),
            speed: host.speed,
            price: host.price,
            free_now: schedule.map(|schedule| free_at(&host.capacity, schedule, now)),
            schedule_age_s: known.map(|known| (monotonic - known.learnt).0 / 1000),
        }
    };
    advert.hosts.iter().map(host_view).collect()
}

fn free_at(capacity: &Amounts, schedule: &Schedule, at: Time) -> Amounts {
    let free = |(name, capacity): (&ResourceName, &Amount)| {
        let used = schedule.occupancy(name).map_or(Amount::ZERO, |occupancy| occupancy.used_at(at));
        (name.clone(), capacity.saturating_sub(used))
    };
    capacity.iter().map(free).collect()
}

#[derive(Debug, Serialize)]
pub struct LedgerView {
    site: SiteId,
    ledger_version: LedgerVersion,
    hosts: Vec<LedgerHost>,
    bookings: Vec<BookingView>,
}

type Steps = BTreeMap<ResourceName, Vec<(Time, Amount)>>;

#[derive(Debug, Serialize)]
struct LedgerHost {
    id: HostId,
    resources: Amounts,
    attributes: Attributes,
    speed: u32,
    price: u32,
    /// The owner's own work and all reservations.
    occupancy: Steps,
    /// The owner's own work.
    own: Steps,
}

#[derive(Debug, Serialize)]
struct BookingView {
    entry_point: SiteId,
    request: RequestId,
    attempt: u32,
    state: &'static str,
    settled: bool,
    user: String,
    user_key: Option<PublicKey>,
    window: Window,
    grants: Vec<Grant>,
}

/// `GET /v1/ledger`
pub async fn ledger(State(state): State<Arc<ApiState>>) -> Json<LedgerView> {
    let ledger = state.ledger.lock();
    Json(LedgerView {
        site: ledger.site().clone(),
        ledger_version: ledger.version(),
        hosts: ledger.hosts().map(ledger_host).collect(),
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
        price: host.price,
        occupancy: steps(ledger.reserved()),
        own: steps(ledger.own()),
    }
}

fn booking_view(booking: &Booking) -> BookingView {
    let (state, settled) = match booking.state {
        BookingState::Held { .. } => ("held", false),
        BookingState::Confirmed { .. } => ("confirmed", false),
        BookingState::Settled => ("confirmed", true),
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
        grants: booking.grants.clone(),
    }
}
