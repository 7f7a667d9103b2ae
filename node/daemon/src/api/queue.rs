//! The owner's own queue over the API: jobs that the site may move, with where each is planned.
//!
//! Invariant: what is answered is on disk.

use std::sync::Arc;

use axum::{Extension, Json, extract::State, http::StatusCode};
use broker::{
    ids::RequestId,
    ledger::{JobStage, Ledger, OwnJob, QueueError, QueueOrder, QueuedJob},
    time::Time,
};
use kolo_api::queue::{JobEntries, JobEntry, JobExtension, JobList, JobState, JobView};

use super::{
    authority::About,
    extract::{Body, Path},
    local::{ANSWER_TIMEOUT, new_name},
    problem::Problem,
    requests::{ambiguous, read_body},
    state::ApiState,
};

fn job_view(OwnJob { job, stage }: OwnJob<'_>) -> JobView {
    let QueuedJob { attempt, arrival, length, deadline, hosts, amounts, preempt, first_begun: _ } = job.clone();
    let (state, start, end, on) = match stage {
        JobStage::Waits(planned) => {
            (JobState::Waits, planned.start, planned.start.map(|start| start + length), planned.hosts)
        }
        JobStage::Runs(booking) => {
            let on = booking.grants.iter().map(|grant| grant.host().clone()).collect();
            (JobState::Runs, Some(booking.window.start), Some(booking.window.end), on)
        }
    };
    JobView {
        id: attempt.request,
        state,
        arrival,
        length_s: length,
        deadline,
        hosts,
        amounts,
        start,
        end,
        on,
        is_late: end.zip(deadline).is_some_and(|(end, deadline)| end > deadline),
        preempt,
    }
}

/// The jobs of the own queue, those that run and begin first in front; those without a start come last.
pub fn own_jobs(ledger: &Ledger) -> Vec<JobView> {
    let mut jobs: Vec<JobView> = ledger.own_jobs().map(job_view).collect();
    jobs.sort_by_key(|job| (job.start.is_none(), job.start));
    jobs
}

/// Takes jobs into the owner's own queue, all or none; answers once they are on disk.
#[utoipa::path(post, path = "/local/queue", tag = "grid", request_body = JobEntries, responses((status = 201, description = "Done", body = JobList)))]
pub async fn queue_jobs(
    State(state): State<Arc<ApiState>>,
    Body(body): Body,
) -> Result<(StatusCode, Json<JobList>), Problem> {
    let entries: JobEntries = read_body("own jobs", &body)?;
    if entries.jobs.is_empty() {
        return Err(Problem::wrong("jobs", "expected at least one job"));
    }
    let jobs = entries.jobs.into_iter().map(|entry| job_of(&state, entry)).collect::<Result<Vec<_>, Problem>>()?;
    let ids: Vec<RequestId> = jobs.iter().map(|job| job.attempt.request.clone()).collect();
    carried_out(&state, QueueOrder::Add(jobs)).await?;
    let mut jobs = own_jobs(&state.ledger.lock());
    jobs.retain(|job| ids.contains(&job.id));
    Ok((StatusCode::CREATED, Json(JobList { jobs })))
}

fn job_of(state: &ApiState, entry: JobEntry) -> Result<QueuedJob, Problem> {
    let JobEntry { id, length_s: length, deadline, hosts, amounts, preempt } = entry;
    if deadline.is_some_and(|deadline| !deadline.is_in_range()) {
        return Err(Problem::wrong("deadline", "expected seconds since 1970"));
    }
    let id = id.map_or_else(|| new_name("job"), Ok)?;
    let attempt = state.ledger.lock().own_attempt(&id);
    Ok(QueuedJob { attempt, arrival: Time::ZERO, length, deadline, hosts, amounts, preempt, first_begun: None })
}

async fn carried_out(state: &ApiState, order: QueueOrder) -> Result<(), Problem> {
    let result = state.coordinator.own_site.order(order, ANSWER_TIMEOUT).await;
    let result = result.map_err(|why| Problem::new(StatusCode::SERVICE_UNAVAILABLE, why))?;
    result.map_err(|error| {
        let detail = error.to_string();
        match error {
            QueueError::Unknown(_) => Problem::new(StatusCode::NOT_FOUND, detail),
            QueueError::Known(_)
            | QueueError::HasNotBegun(_)
            | QueueError::OfFeed(_)
            | QueueError::Full
            | QueueError::Promised { .. } => Problem::new(StatusCode::CONFLICT, detail),
            QueueError::TooLate(_) => Problem::bad_request(detail).with_key("deadline"),
            QueueError::NeverFits { .. } | QueueError::TooManyResources(_) => {
                Problem::bad_request(detail).with_key("amounts")
            }
            QueueError::Malformed { .. } => Problem::bad_request(detail),
        }
    })
}

/// The job that a selector means.
fn selected(state: &ApiState, selector: &str) -> Result<JobView, Problem> {
    let mut found = own_jobs(&state.ledger.lock());
    let is_whole = found.iter().any(|job| job.id.as_str() == selector);
    found.retain(|job| if is_whole { job.id.as_str() == selector } else { job.id.begins_with(selector) });
    if found.len() > 1 {
        return Err(ambiguous(format!("{selector:?} is the beginning of several own jobs; give more of the id")));
    }
    found.pop().ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, format!("there is no own job {selector:?}")))
}

/// Takes a job out of the own queue, whether it waits or runs; answers with what it was.
#[utoipa::path(delete, path = "/local/queue/{id}", tag = "grid", params(("id" = String, Path, description = "An id, or the unique beginning of one")), responses((status = 200, description = "Done", body = JobView)))]
pub async fn remove_job(
    State(state): State<Arc<ApiState>>,
    Path(selector): Path,
) -> Result<(Extension<About>, Json<JobView>), Problem> {
    let job = selected(&state, &selector)?;
    carried_out(&state, QueueOrder::Remove(job.id.clone())).await?;
    Ok((About::of(&job.id), Json(job)))
}

/// A job of the own queue has ended before its time: its hosts are free, and what waits moves forward.
#[utoipa::path(post, path = "/local/queue/{id}/done", tag = "grid", params(("id" = String, Path, description = "An id, or the unique beginning of one")), responses((status = 200, description = "Done", body = JobView)))]
pub async fn end_job(
    State(state): State<Arc<ApiState>>,
    Path(selector): Path,
) -> Result<(Extension<About>, Json<JobView>), Problem> {
    let job = selected(&state, &selector)?;
    carried_out(&state, QueueOrder::Done(job.id.clone())).await?;
    Ok((About::of(&job.id), Json(job)))
}

/// A job of the own queue takes longer; what waits moves back. One that runs never takes what is promised.
#[utoipa::path(post, path = "/local/queue/{id}/extend", tag = "grid", request_body = JobExtension, params(("id" = String, Path, description = "An id, or the unique beginning of one")), responses((status = 200, description = "Done", body = JobView)))]
pub async fn extend_job(
    State(state): State<Arc<ApiState>>,
    Path(selector): Path,
    Body(body): Body,
) -> Result<(Extension<About>, Json<JobView>), Problem> {
    let JobExtension { longer_s } = read_body("an extension", &body)?;
    let job = selected(&state, &selector)?;
    carried_out(&state, QueueOrder::Extend(job.id.clone(), longer_s)).await?;
    let job = selected(&state, job.id.as_str())?;
    Ok((About::of(&job.id), Json(job)))
}
