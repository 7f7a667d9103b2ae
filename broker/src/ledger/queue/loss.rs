//! What a user's hold costs the own queue: it is admitted only if the owner bears that.

use super::{JobStage, OwnJob, OwnPlan, PlannedJob};
use crate::{
    ledger::{
        Books, Ledger,
        floating::Arrangement,
        own_plan::{Cause, Loss},
    },
    protocol::{Grant, HostState, Quote, RefusalReason},
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
                if let Some((plan, _)) = self.plan_around(now, &before, &after)? {
                    self.queue.plan = Some(plan);
                }
            }
        }
        Ok(())
    }

    /// What these grants of a user, and the seats that make room for them, would cost what waits.
    ///
    /// # Errors
    /// The refusal, when that is more than the owner bears.
    pub(in crate::ledger) fn quote_queue(
        &self,
        now: Now,
        moves: Option<&Arrangement>,
        grants: &[Grant],
    ) -> Result<Quote, RefusalReason> {
        let (before, mut after) = moves.map(|moves| self.moved(moves)).unwrap_or_default();
        after.extend_from_slice(grants);
        Ok(self.plan_around(now, &before, &after)?.map(|(_, quote)| quote).unwrap_or_default())
    }

    /// Whether own jobs wait.
    pub fn has_waiting_jobs(&self) -> bool {
        self.queue.plan.is_some()
    }

    /// The plan of what waits when a user has come to hold something, so that what was promised `before` is promised as `after`, and what
    /// that costs, if the owner bears what that costs: neither more jobs late nor a larger mean slowdown than `quality_loss` allows, all holds together, over
    /// the jobs that would begin within `quality_horizon`. None when nothing waits.
    ///
    /// # Errors
    /// The refusal, with what it would cost.
    fn plan_around(
        &self,
        now: Now,
        before: &[Grant],
        after: &[Grant],
    ) -> Result<Option<(OwnPlan, Quote)>, RefusalReason> {
        let Some(plan) = &self.queue.plan else { return Ok(None) };
        let mut around = plan.clone();
        around.exchange(before, after, Cause::User);
        let gate = self.gate.lock();
        let policy = gate.policy();
        let until = now.utc + policy.quality_horizon;
        let (loss, present) = (around.loss(until), plan.loss(until));
        // What costs nothing more is none of the owner's concern.
        if loss == present {
            return Ok(Some((around, Quote::default())));
        }
        match excess(&loss, policy) {
            None => Ok(Some((around, quote_of(&present, &loss)))),
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

/// By how much a loss is larger than another one.
fn quote_of(present: &Loss, loss: &Loss) -> Quote {
    let more = loss.with.slowdown_millionths.saturating_sub(present.with.slowdown_millionths);
    let slowdown_millionths = u64::try_from(more.div_ceil(u128::from(loss.jobs.max(1)))).unwrap_or(u64::MAX);
    Quote { late: loss.with.late.saturating_sub(present.with.late), slowdown_millionths }
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
