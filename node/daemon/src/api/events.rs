//! Server-sent events: that something has changed, never what; who listens asks for it.
//!
//! Invariant: at most [`CLIENTS_MAX`] clients listen at a time, half of them such as see only their own requests; these hear of nothing
//! else. One that does not keep up loses events and is told `all` in their place, so that it asks for everything again; it never holds
//! anybody up.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::{
        Sse,
        sse::{Event, KeepAlive},
    },
};
use broker::{ids::SiteId, protocol::LedgerVersion};
use futures::stream::{self, Stream, StreamExt as _};
use kolo_api::{grid::ScheduleState, schema};
use kolo_runtime::changes::{CLIENTS_MAX, Change, Listening};
use tokio::{
    sync::broadcast,
    time::{Instant, MissedTickBehavior},
};

use super::{grid::schedule_state, operator_token::TokenTerm, problem::Problem, scopes::Caller, state::ApiState};

/// How often the view of sites is compared with what it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A stream ends then; the browser opens another, and must show that its session is still good.
const STREAM_LIFE: Duration = Duration::from_hours(1);

struct Listener {
    listening: Listening,
    until: Instant,
}

/// Server-sent events `request`, `site` and `all`: what has changed, so that it is asked for again.
#[utoipa::path(get, path = "/events", tag = "grid", responses((status = 200, description = "A stream of server-sent events; the schema is that of the data of one", body = schema::Event, content_type = "text/event-stream")))]
pub async fn listen_to_events(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Extension(term): Extension<TokenTerm>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let kept_free = if caller.is_limited() { CLIENTS_MAX / 2 } else { 0 };
    let listening = state.changes.listen(kept_free).ok_or_else(|| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("{CLIENTS_MAX} clients listen already; try again later"))
    })?;
    let listener = Listener { listening, until: Instant::now() + STREAM_LIFE };
    let stopped = state.changes.stopped();
    // None: the caller's token is no longer in force.
    let is_heard = Arc::new(move |change: &Change| {
        state.is_in_force(&caller).then(|| match change {
            _ if !caller.is_limited() => true,
            Change::Request { id, .. } => {
                state.requests.get(id).is_some_and(|handle| caller.sees(&handle.watch().borrow().record))
            }
            Change::Site { .. } => false,
        })
    });
    let stream = stream::unfold((listener, is_heard), |(mut listener, is_heard)| async move {
        let received = loop {
            let received = tokio::time::timeout_at(listener.until, listener.listening.changes.recv()).await.ok()?;
            if received.as_ref().map_or(Some(true), |change| is_heard(change))? {
                break received;
            }
        };
        let event = match received {
            Ok(change) => {
                let data = serde_json::to_string(&change).unwrap_or_else(|_| "{}".to_owned());
                Event::default().event(change.kind()).data(data)
            }
            Err(broadcast::error::RecvError::Lagged(_)) => {
                listener.listening.changes = listener.listening.changes.resubscribe();
                Event::default().event("all").data("{}")
            }
            Err(broadcast::error::RecvError::Closed) => return None,
        };
        Some((Ok(event), (listener, is_heard)))
    })
    .take_until(stopped)
    .take_until(term.until_over());
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

/// What of a site is compared.
type Known = (Option<LedgerVersion>, ScheduleState);

/// Tells changes of the view for as long as the node is up; looks only while somebody listens.
pub async fn watch_sites(state: Arc<ApiState>) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: BTreeMap<SiteId, Known> = BTreeMap::new();
    loop {
        every.tick().await;
        if !state.changes.has_listeners() {
            continue;
        }
        let view = state.discovery.view();
        let known = |site: SiteId| {
            let known = (view.version(&site), schedule_state(&state, &site));
            (site, known)
        };
        let after: BTreeMap<SiteId, Known> = view.site_ids().into_iter().map(known).collect();
        for site in changed(&before, &after) {
            state.changes.tell(Change::Site { site });
        }
        before = after;
    }
}

fn changed(before: &BTreeMap<SiteId, Known>, after: &BTreeMap<SiteId, Known>) -> Vec<SiteId> {
    let gone = before.keys().filter(|site| !after.contains_key(*site));
    let new = after.iter().filter(|(site, known)| before.get(*site) != Some(known)).map(|(site, _)| site);
    gone.chain(new).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_that_come_go_or_change_are_told_and_no_others() {
        let site = |name: &str| SiteId::new(name).unwrap();
        let known = |change: u64| (Some(LedgerVersion { incarnation: 1, change }), ScheduleState::Current);
        let before = [(site("a"), known(1)), (site("b"), known(1)), (site("c"), known(1))].into();
        let stale = (known(1).0, ScheduleState::Stale);
        let after = [(site("b"), known(1)), (site("c"), stale), (site("d"), known(1))].into();
        assert_eq!(changed(&before, &after), [site("a"), site("c"), site("d")]);
        assert_eq!(changed(&after, &after), []);
    }
}
