//! What coarse schedules leave unproven.
//!
//! A schedule that is coarse from some time on shows never less in use than is. So whatever is planned there can be had, but what seems
//! full there may be free. Invariant: an answer calls only those starts excluded that the exact parts of all schedules exclude.

use super::{Candidate, Job};
use crate::{
    objective::{self, Measures},
    plan::{PlanOutcome, Rejection},
    reason::Reason,
    time::Time,
};

/// The first start in the window of a job of which these schedules do not tell all; none when they tell all of each.
pub(crate) fn first_doubtful(job: &Job<'_>, candidates: &[Candidate<'_>]) -> Option<Time> {
    let length = |candidate: &Candidate<'_>| job.demand.length_on(candidate.host).0.cast_signed();
    // Seats with traffic last as long as the longest of them.
    let longest = job.demand.traffic().map(|_| candidates.iter().map(length).max().unwrap_or(0));
    let of_link = |candidate: &Candidate<'_>| longest.and(job.uplinks.of(candidate.site)?.coarse_from);
    let of_host = |candidate: &Candidate<'_>| {
        let from = candidate.schedule.coarse_from().into_iter().chain(of_link(candidate)).min()?;
        if job.deadline.is_some_and(|deadline| deadline <= from) {
            return None;
        }
        // A seat of a moldable request may have any length.
        let is_moldable = job.demand.is_to_be_scaled();
        let length = longest.unwrap_or_else(|| length(candidate));
        Some(if is_moldable { job.earliest } else { Time(from.0.saturating_sub(length) + 1) })
    };
    let first = candidates.iter().filter_map(of_host).min()?.max(job.earliest);
    (first <= job.latest).then_some(first)
}

/// The same answer, which claims nothing of the starts that are doubtful.
pub(super) fn doubted(outcome: PlanOutcome, job: &Job<'_>, candidates: &[Candidate<'_>]) -> PlanOutcome {
    let Some(doubtful) = first_doubtful(job, candidates) else { return outcome };
    match outcome {
        PlanOutcome::Allocated(mut plan) => {
            let open = objective::of(job.objective).value(doubtful.0, least(job, candidates));
            plan.start_proven &= (open, doubtful) >= (plan.objective.value, plan.start);
            plan.objective.bound = plan.objective.bound.map(|bound| bound.min(open));
            if plan.start >= doubtful {
                plan.efficiency_bound = 1.0_f64.max(plan.efficiency_bound);
            }
            PlanOutcome::Allocated(plan)
        }
        PlanOutcome::Rejected(Rejection { reason, start_proven }) => {
            let start_proven = start_proven && !rests_on_schedules(&reason);
            PlanOutcome::Rejected(Rejection { reason, start_proven })
        }
    }
}

/// The least that any seats measure.
fn least(job: &Job<'_>, candidates: &[Candidate<'_>]) -> Measures {
    let lengths = candidates.iter().map(|candidate| job.demand.length_on(candidate.host).0.cast_signed());
    let shortest = lengths.min().filter(|_| !job.demand.is_to_be_scaled()).unwrap_or(0);
    let seats = i64::try_from(job.demand.seats()).unwrap_or(i64::MAX);
    Measures { longest: shortest, together: shortest.saturating_mul(seats), cost: 0 }
}

fn rests_on_schedules(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::NoWindow { .. } | Reason::SearchLimit { .. } | Reason::Uplink { .. } | Reason::Budget { .. }
    )
}
