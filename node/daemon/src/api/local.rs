//! The owner's own work over the API: enter, list, take out. It stands in this site's ledger, and others see the hosts taken. And what
//! users have of this site, which its owner may take back.

use std::{sync::Arc, time::Duration};

use axum::{Extension, Json, extract::State, http::StatusCode};
use broker::{
    amount::Amount,
    ids::{HostId, RequestId},
    ledger::{Booking, FeedReport, Ledger, LocalWork},
    protocol::{AttemptId, Refusal, RefusalReason, SiteAnswer, SiteRequest},
    resources::Amounts,
    time::Window,
    uplinks::amounts_of,
};
use kolo_api::local::{FeedView, LocalEntry, LocalList, LocalView, PromiseView, TakenBack};
use kolo_trust::new_request_id;

use super::{
    authority::About,
    extract::{Body, Path},
    problem::Problem,
    queue::own_jobs,
    requests::{ambiguous, read_body},
    state::ApiState,
};
use crate::site::feed::FeedState;

/// How long the ledger may take, its write to disk included.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

fn local_view(booking: &Booking) -> LocalView {
    let grant = booking.grants.first();
    LocalView {
        id: booking.attempt.request.clone(),
        host: grant.map(|grant| grant.host().clone()),
        start: booking.window.start,
        end: booking.window.end,
        amounts: grant.map(|grant| grant.amounts.clone()).unwrap_or_default(),
    }
}

/// The hosts that users have of this site, by request.
fn promised(ledger: &Ledger) -> Vec<PromiseView> {
    let of_users = ledger.of_users().filter(|booking| !booking.is_held());
    let seats = of_users.flat_map(|booking| {
        let of = move |host: HostId, window: Window, amounts: Amounts| PromiseView {
            request: booking.attempt.request.clone(),
            user: booking.user.clone(),
            host,
            start: window.start,
            end: window.end,
            amounts,
        };
        let load = Some(booking.load()).filter(|load| *load > Amount::ZERO);
        let window = booking.grants.iter().map(|grant| grant.window).max_by_key(|window| window.end);
        let uplink = load.zip(window).map(|(load, window)| of(HostId::uplink(), window, amounts_of(load)));
        let hosts =
            booking.grants.iter().map(move |grant| of(grant.host().clone(), grant.window, grant.amounts.clone()));
        hosts.chain(uplink)
    });
    seats.collect()
}

fn feed_view(state: FeedState) -> FeedView {
    let FeedState { heard, report, failure, is_awaited } = state;
    let FeedReport { pieces, elsewhere, short, left_out, queued, .. } = report;
    FeedView { heard, failure, is_awaited, entries: pieces, elsewhere, short, left_out, queued }
}

/// The owner's own work that was entered, and what users have of this site.
#[utoipa::path(get, path = "/local", tag = "grid", responses((status = 200, description = "Done", body = LocalList)))]
pub async fn list_local_work(State(state): State<Arc<ApiState>>) -> Json<LocalList> {
    let is_draining = state.upkeep.is_draining();
    let ledger = state.ledger.lock();
    let queue = own_jobs(&ledger);
    let is_job = |booking: &&Booking| queue.iter().any(|job| job.id == booking.attempt.request);
    let local = ledger.local_work().filter(|booking| !is_job(booking)).map(local_view).collect();
    Json(LocalList {
        local,
        queue,
        promised: promised(&ledger),
        is_draining,
        feed: state.feed.as_ref().map(|feed| feed_view(feed.get())),
    })
}

/// Enters the owner's own work; answers once it is on disk.
#[utoipa::path(post, path = "/local", tag = "grid", request_body = LocalEntry, responses((status = 201, description = "Done", body = LocalView)))]
pub async fn enter_local_work(
    State(state): State<Arc<ApiState>>,
    Body(body): Body,
) -> Result<(StatusCode, Extension<About>, Json<LocalView>), Problem> {
    let entry: LocalEntry = read_body("own work", &body)?;
    let work = work_of(&state, entry)?;
    let id = work.id.clone();
    let answer = state.coordinator.own_site.enter(work, ANSWER_TIMEOUT).await;
    confirmed(answer)?;
    let ledger = state.ledger.lock();
    let booking = ledger.local_work().find(|booking| booking.attempt.request == id);
    let view = booking.map(local_view).ok_or_else(|| missing(id.as_str()))?;
    Ok((StatusCode::CREATED, About::of(&id), Json(view)))
}

fn work_of(state: &ApiState, entry: LocalEntry) -> Result<LocalWork, Problem> {
    if !entry.start.is_in_range() || !entry.end.is_in_range() || entry.end <= entry.start {
        return Err(Problem::wrong("end", "expected a time behind start"));
    }
    let ledger = state.ledger.lock();
    let mut hosts = ledger.hosts().map(broker::ledger::Books::host);
    let units = || ledger.hosts().chain(ledger.uplink()).map(broker::ledger::Books::host);
    let host = match (entry.host, hosts.next(), hosts.next()) {
        (Some(id), ..) => units().find(|host| host.id == id).ok_or(id),
        (None, Some(only), None) => Ok(only),
        (None, ..) => {
            return Err(Problem::wrong("host", "this site has several; say which"));
        }
    };
    let host = host.map_err(|id| Problem::wrong("host", format_args!("this site has no {id}")))?;
    let amounts = entry.amounts.unwrap_or_else(|| host.capacity.clone());
    let is_amount = |amount: &Amount| *amount > Amount::ZERO && *amount <= Amount::MAX;
    let known = amounts.iter().all(|(name, amount)| host.capacity.contains_key(name) && is_amount(amount));
    if amounts.is_empty() || !known {
        return Err(Problem::wrong("amounts", format_args!("expected some of what host {} has", host.id)));
    }
    let id = new_name("local")?;
    Ok(LocalWork { id, host: host.id.clone(), window: Window { start: entry.start, end: entry.end }, amounts })
}

/// A name that nothing else has, with `what` in front.
pub(super) fn new_name(what: &str) -> Result<RequestId, Problem> {
    let failed = |error: String| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error);
    let id = new_request_id().map_err(|error| failed(error.to_string()))?;
    RequestId::new(&format!("{what}-{id}")).map_err(|error| failed(error.to_string()))
}

/// Takes own work out.
#[utoipa::path(delete, path = "/local/{id}", tag = "grid", params(("id" = String, Path, description = "An id, or the unique beginning of one")), responses((status = 200, description = "Done", body = LocalView)))]
pub async fn remove_local_work(
    State(state): State<Arc<ApiState>>,
    Path(selector): Path,
) -> Result<(Extension<About>, Json<LocalView>), Problem> {
    let found: Vec<(AttemptId, LocalView)> = {
        let ledger = state.ledger.lock();
        let matching = ledger.local_work().filter(|booking| booking.attempt.request.begins_with(&selector));
        matching.take(2).map(|booking| (booking.attempt.clone(), local_view(booking))).collect()
    };
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some((attempt, view)), None) => {
            let request = SiteRequest::Release(attempt);
            let answer = state.coordinator.own_site.ask(request, ANSWER_TIMEOUT).await;
            confirmed(answer)?;
            Ok((About::of(&view.id), Json(view)))
        }
        (Some(_), Some(_)) => {
            let detail = format!("{selector:?} is the beginning of several entries; give more of the id");
            Err(ambiguous(detail))
        }
        (None, _) => Err(missing(&selector)),
    }
}

/// Takes this site's hosts back from a request; its coordinator looks for others.
#[utoipa::path(delete, path = "/local/promised/{id}", tag = "grid", params(("id" = String, Path, description = "The id of a request, or the unique beginning of one")), responses((status = 200, description = "Done", body = TakenBack)))]
pub async fn take_back_hosts(
    State(state): State<Arc<ApiState>>,
    Path(selector): Path,
) -> Result<(Extension<About>, Json<TakenBack>), Problem> {
    let mut promised = promised(&state.ledger.lock());
    let is_whole = promised.iter().any(|seat| seat.request.as_str() == selector);
    let is_meant = |id: &RequestId| if is_whole { id.as_str() == selector } else { id.begins_with(&selector) };
    promised.retain(|seat| is_meant(&seat.request));
    let Some(request) = promised.first().map(|seat| seat.request.clone()) else {
        let detail = format!("no host of this site is promised to a request {selector:?}");
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    };
    if promised.iter().any(|seat| seat.request != request) {
        return Err(ambiguous(format!("{selector:?} is the beginning of several requests; give more of the id")));
    }
    match state.coordinator.own_site.evict(request.clone(), ANSWER_TIMEOUT).await {
        Ok(SiteAnswer::Refused(Refusal { reason: RefusalReason::Busy, .. })) => {
            let detail = format!("request {request} is being decided; try again in a moment");
            Err(Problem::new(StatusCode::CONFLICT, detail))
        }
        answer => confirmed(answer).map(|()| (About::of(&request), Json(TakenBack { promised }))),
    }
}

fn missing(id: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("there is no own work {id:?}"))
}

fn confirmed(answer: Result<SiteAnswer, String>) -> Result<(), Problem> {
    match answer {
        Ok(SiteAnswer::Confirmed { .. } | SiteAnswer::Released { .. }) => Ok(()),
        Ok(SiteAnswer::Refused(Refusal { reason, .. })) => Err(match reason {
            RefusalReason::NotEnough { .. } | RefusalReason::UplinkFull { .. } => {
                let detail = format!("{reason}: the rest is promised to others until then");
                Problem::new(StatusCode::CONFLICT, detail).with_key("amounts")
            }
            reason => Problem::bad_request(reason.to_string()),
        }),
        Ok(other) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("unexpected answer {other:?}"))),
        Err(why) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, why)),
    }
}
