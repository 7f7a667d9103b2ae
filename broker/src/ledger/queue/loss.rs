//! What a user's hold costs the own queue: it is admitted only if the owner bears that.

use super::{JobStage, OwnJob, OwnPlan, PlannedJob};
use crate::{
    ledger::{
        Books, Ledger,
        floating::Arrangement,
        own_plan::{Cause, Loss},
    },
    protocol::{Grant, HostState, RefusalReason},
    time::{Now, Window},
    trust::{Denial, OwnerPolicy, Rule},
};

impl<B: Books> Ledger<B> {
    /// Plans what waits around these grants and the seats that make room for them: those of a user, at this time, only as far as the owner
    /// bears what that costs.
    ///
    /// # Errors
    /// The refusal, with what the grants would cost; nothing has changed then.
    pub(in crate::ledger) fn plan_queue(
        &mut self,
        user: Option<Now>,
        moves: Option<&Arrangement>,
        grants: &[Grant],
    ) -> Result<(), RefusalReason> {
        let (before, mut after) = moves.map(|moves| self.moved(moves)).unwrap_or_default();
        after.extend_from_slice(grants);
        match user {
            None => self.queue.exchange(&before, &after),
            Some(now) => {
                if let Some(plan) = self.plan_around(now, &before, &after)? {
                    self.queue.plan = Some(plan);
                }
            }
        }
        Ok(())
    }

    /// The plan of what waits when a user has come to hold something, so that what was promised `before` is promised as `after`, if the
    /// owner bears what that costs: neither more jobs late nor a larger mean slowdown than `quality_loss` allows, all holds together, over
    /// the jobs that would begin within `quality_horizon`. None when nothing waits.
    ///
    /// # Errors
    /// The refusal, with what it would cost.
    fn plan_around(&self, now: Now, before: &[Grant], after: &[Grant]) -> Result<Option<OwnPlan>, RefusalReason> {
        let Some(plan) = &self.queue.plan else { return Ok(None) };
        let mut around = plan.clone();
        around.exchange(before, after, Cause::User);
        let gate = self.gate.lock();
        let policy = gate.policy();
        let loss = around.loss(now.utc + policy.quality_horizon);
        // What costs nothing more is none of the owner's concern.
        if loss == plan.loss(now.utc + policy.quality_horizon) {
            return Ok(Some(around));
        }
        match excess(&loss, policy) {
            None => Ok(Some(around)),
            Some(detail) => Err(RefusalReason::NotAllowed(Denial::new(Rule::OwnQueue, detail))),
        }
    }

    /// Shows the hosts with the owner's planned jobs on them, so that the next plan goes around these.
    pub(in crate::ledger) fn add_planned(&self, states: &mut [HostState]) {
        for OwnJob { job, stage } in self.own_jobs() {
            let JobStage::Waits(PlannedJob { start: Some(start), hosts, .. }) = stage else { continue };
            for state in states.iter_mut().filter(|state| hosts.contains(&state.host)) {
                state.schedule.add(Window::starting(start, job.length), &job.amounts);
            }
        }
    }
}

/// What a loss has above what the owner allows; none when nothing.
fn excess(loss: &Loss, policy: &OwnerPolicy) -> Option<String> {
    let percent = u128::from(policy.quality_loss_percent);
    let Loss { jobs, without, with } = loss;
    let in_time = jobs.saturating_sub(without.late);
    let late_most = u128::from(without.late) + u128::from(in_time) * percent / 100;
    if u128::from(with.late) > late_most {
        return Some(format!("{} of {jobs} own jobs would be late, at most {late_most} may", with.late));
    }
    let most = without.slowdown_millionths.saturating_mul(100 + percent) / 100;
    (with.slowdown_millionths > most).then(|| {
        let mean = |sum: u128| {
            let thousandths = sum / u128::from((*jobs).max(1)) / 1_000;
            format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
        };
        let (would, most) = (mean(with.slowdown_millionths), mean(most));
        format!("the mean slowdown of {jobs} own jobs would be {would}, at most {most} is allowed")
    })
}
