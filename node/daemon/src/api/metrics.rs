//! `/metrics` for Prometheus.
//!
//! Invariant: without a token it tells what this node has done; what it knows of other sites only with one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use broker::{ledger::BookingState, view::Schedules};
use discovery::ClockOffset;
use kolo_runtime::metrics::{OfGrid, Present};

use super::{
    grid::schedule_state,
    running::kept_lately,
    scopes::{Access, Caller},
    state::ApiState,
};

/// Age up to which the sum of all runs is told: it costs a look at each of them, and whoever reaches the port may ask.
const KEPT_AGE_MAX: Duration = Duration::from_secs(5);
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /metrics`
pub async fn metrics(State(state): State<Arc<ApiState>>, Extension(caller): Extension<Caller>) -> Response {
    let (holds, reservations) = {
        let ledger = state.ledger.lock();
        let holds = ledger.bookings().filter(|booking| matches!(booking.state, BookingState::Held { .. })).count();
        (holds, ledger.bookings().count() - holds)
    };
    let status = state.discovery.status();
    let (peers, clock) = (status.connected.len(), status.clock);
    // What cannot be listed is told by `kolo local running`.
    let kept = kept_lately(&state, KEPT_AGE_MAX).await.unwrap_or_default();
    let present = Present {
        active: state.requests.active(),
        holds,
        reservations,
        run_open_files: open_for_runs(&state),
        runs_kept: kept.runs,
        run_output_bytes: kept.output_bytes,
        lacks_room: state.upkeep.lacks_room(),
        audit_syslog_lost: state.audit.lost_by_syslog(),
        discovery: status.counters.into_iter().collect(),
    };
    let of_grid = Access::Metrics.admits(&caller).then(|| of_grid(&state, peers, clock));
    let text = state.metrics.write(&present, of_grid.as_ref());
    ([(header::CONTENT_TYPE, KIND)], text).into_response()
}

/// Files that this process has open for runs.
fn open_for_runs(state: &ApiState) -> usize {
    let shares = state.run_site.shares();
    [&shares.streams, &shares.open_files].into_iter().flat_map(|divided| divided.taken().into_values()).sum()
}

fn of_grid(state: &ApiState, peers: usize, clock: Option<ClockOffset>) -> OfGrid {
    let view = state.discovery.view();
    let now = state.discovery.now();
    let mut sites: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut ages = Vec::new();
    for site in view.site_ids() {
        *sites.entry(schedule_state(state, &site).as_str()).or_default() += 1;
        let age = view.with_site(&site, |site| match site.schedules() {
            Schedules::Known(known) => Some((now - known.learnt).0 / 1000),
            Schedules::Unknown => None,
        });
        if site != *state.discovery.site_id() {
            ages.extend(age.flatten());
        }
    }
    let clock_ahead_ms = clock.map(|clock| clock.median_ms);
    OfGrid { sites, hosts: view.host_count(), peers, ages, clock_ahead_ms }
}
