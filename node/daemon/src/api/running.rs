//! What users run on this site's hosts, for its owner: listed, and ended with a reason that its user reads, one or all.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use axum::{Extension, Json, extract::State, http::StatusCode};
use broker::trust::PublicKey;
use kolo_api::running::{AccountShare, RunningList, RunningView, Stop};
use kolo_seat::{
    Keepers, KeptRun, RunError, RunId, RunState,
    frame::reason,
    places::{AccountRuns, RUNS_OF_ACCOUNT_MAX},
};
use serde::Deserialize;
use tokio::task::block_in_place;
use utoipa::IntoParams;

use super::{
    authority::About,
    extract::{Body, Path, Query},
    problem::Problem,
    requests::{ambiguous, read_body},
    state::ApiState,
    upkeep::UpkeepError,
};

/// Reason that users are told where the owner says none.
const REASON: &str = "the owner needs the machine";

fn running_view(kept: &KeptRun) -> Option<RunningView> {
    let pid = match kept.state {
        RunState::Waiting => None,
        RunState::Running { pid } => Some(pid),
        RunState::Ended(_) => return None,
    };
    let order = &kept.task.order;
    Some(RunningView {
        request: order.request.clone(),
        seat: order.seat,
        run: order.run.0,
        user_key: kept.task.user.to_string(),
        command: order.shown(),
        pid,
        end: kept.task.deadline,
    })
}

/// What runs here, with its names.
async fn running(state: &ApiState) -> Result<Vec<(RunId, RunningView)>, Problem> {
    let Some(keepers) = state.run_site.keepers().cloned() else { return Ok(Vec::new()) };
    let kept = on_disk(move || keepers.list()).await?;
    Ok(kept.iter().filter_map(|kept| Some((RunId::of(&kept.task), running_view(kept)?))).collect())
}

/// Does what the disk is needed for.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> Result<T, RunError> + Send + 'static) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string());
    let done = done.and_then(|done| done.map_err(|error| error.to_string()));
    done.map_err(|why| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, why))
}

/// What users run on this site's hosts.
#[utoipa::path(get, path = "/local/running", tag = "grid", responses((status = 200, description = "Done", body = RunningList)))]
pub async fn list_running(State(state): State<Arc<ApiState>>) -> Result<Json<RunningList>, Problem> {
    let running = running(&state).await?.into_iter().map(|(_, view)| view).collect();
    Ok(Json(list_of(&state, running).await?))
}

/// Runs and output of all accounts together, of at most this age.
pub(super) async fn kept_lately(state: &ApiState, age_max: Duration) -> Result<AccountRuns, Problem> {
    let Some(keepers) = state.run_site.keepers().cloned() else { return Ok(AccountRuns::default()) };
    on_disk(move || keepers.kept_lately(age_max)).await
}

/// Runs and output of each account.
async fn kept_by_account(state: &ApiState) -> Result<BTreeMap<PublicKey, AccountRuns>, Problem> {
    let Some(keepers) = state.run_site.keepers().cloned() else { return Ok(BTreeMap::new()) };
    on_disk(move || keepers.kept_by_account()).await
}

/// These runs, with what accounts take here.
async fn list_of(state: &ApiState, running: Vec<RunningView>) -> Result<RunningList, Problem> {
    let kept = kept_by_account(state).await?;
    let shares = state.run_site.shares();
    let (streams, open_files) = (shares.streams.taken(), shares.open_files.taken());
    let accounts: BTreeSet<&PublicKey> = kept.keys().chain(streams.keys()).chain(open_files.keys()).collect();
    let accounts = accounts.into_iter().map(|account| AccountShare {
        account: account.to_string(),
        runs: kept.get(account).map_or(0, |kept| kept.runs),
        output_bytes: kept.get(account).map_or(0, |kept| kept.output_bytes),
        streams: streams.get(account).copied().unwrap_or(0),
        open_files: open_files.get(account).copied().unwrap_or(0),
    });
    Ok(RunningList {
        stopped: state.run_site.stopped(),
        running,
        accounts: accounts.collect(),
        runs_max: RUNS_OF_ACCOUNT_MAX,
        streams_max: shares.streams.share(),
        open_files_max: shares.open_files.share(),
    })
}

/// What is ended, and why.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct EndQuery {
    /// Only on this seat.
    seat: Option<u32>,
    /// What its user is told.
    reason: Option<String>,
}

/// Ends what a request runs on this site's hosts; its user is told the reason.
#[utoipa::path(delete, path = "/local/running/{id}", tag = "grid", params(("id" = String, Path, description = "The id of a request, or the unique beginning of one"), EndQuery), responses((status = 200, description = "Done", body = RunningList)))]
pub async fn end_running(
    State(state): State<Arc<ApiState>>,
    Path(selector): Path,
    Query(query): Query<EndQuery>,
) -> Result<(Extension<About>, Json<RunningList>), Problem> {
    let mut found = running(&state).await?;
    found.retain(|(id, _)| {
        let is_seat = query.seat.is_none_or(|seat| id.seat.0 == seat);
        is_seat && (id.request.as_str() == selector || id.request.begins_with(&selector))
    });
    let Some((first, _)) = found.first() else {
        let detail = format!("nothing of a request {selector:?} runs on this site");
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    };
    let request = first.request.clone();
    if found.iter().any(|(id, _)| id.request != request) {
        return Err(ambiguous(format!("{selector:?} is the beginning of several requests; give more of the id")));
    }
    let (ids, views): (Vec<RunId>, Vec<RunningView>) = found.into_iter().unzip();
    if let Some(keepers) = state.run_site.keepers().cloned() {
        let why = query.reason.unwrap_or_else(|| REASON.to_owned());
        on_disk(move || for_all(&ids, |id| end(&keepers, id, &why))).await?;
    }
    Ok((About::of(&request), Json(list_of(&state, views).await?)))
}

/// Ends what all users run on this site's hosts, and lets nothing start until it is said again; users are told the reason.
#[utoipa::path(post, path = "/local/stop", tag = "grid", request_body = Stop, responses((status = 200, description = "Done; what runs is told to end within a second", body = RunningList)))]
pub async fn stop_running(State(state): State<Arc<ApiState>>, Body(body): Body) -> Result<Json<RunningList>, Problem> {
    let Stop { is_stopped, reason: said } = read_body("stop", &body)?;
    let why =
        is_stopped.then(|| reason(said.as_deref().map(str::trim).filter(|why| !why.is_empty()).unwrap_or(REASON)));
    let running = running(&state).await?.into_iter().map(|(_, view)| view).collect();
    // The disk, and keepers.
    block_in_place(|| {
        state.upkeep.stop(why.as_deref())?;
        state.run_site.sweep();
        Ok::<_, UpkeepError>(())
    })?;
    Ok(Json(list_of(&state, running).await?))
}

/// Does something for all, whether or not it fails for some; the first error.
fn for_all<T, E>(all: &[T], each: impl FnMut(&T) -> Result<(), E>) -> Result<(), E> {
    all.iter().map(each).fold(Ok(()), Result::and)
}

fn end(keepers: &Keepers, id: &RunId, why: &str) -> Result<(), RunError> {
    match keepers.end(id, why) {
        // It has ended by itself meanwhile.
        Err(RunError::Over | RunError::Unknown) => Ok(()),
        ended => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_told_and_the_first_error_is_reported() {
        let mut told = Vec::new();
        let done = for_all(&[1, 2, 3, 4], |id| {
            told.push(*id);
            if id % 2 == 0 { Err(*id) } else { Ok(()) }
        });
        assert_eq!((done, told), (Err(2), vec![1, 2, 3, 4]));
        assert_eq!(for_all(&[], |_: &u32| Err(())), Ok(()));
    }
}
