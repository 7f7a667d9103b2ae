//! What a user's hold costs the own queue: it is admitted only if the owner bears that.

use super::{Cut, JobStage, OwnJob, OwnPlan, PlannedJob};
use crate::{
    ledger::{
        Books, Ledger,
        floating::Arrangement,
        own_plan::{Cause, Loss},
    },
    protocol::{AttemptId, Grant, HostState, Quote, RefusalReason},
    quality::Quality,
    time::{Now, Window},
    trust::{Denial, OwnerPolicy, Rule},
};

/// Something costs the owner's queue too much.
#[derive(Debug)]
pub(super) struct TooDear;

impl<B: Books> Ledger<B> {
    /// Plans what waits around these grants of the owner and the seats that make room for them.
    pub(in crate::ledger) fn plan_for_owner(&mut self, moves: Option<&Arrangement>, grants: &[Grant]) {
        let (before, mut after) = moves.map(|moves| self.moved(moves)).unwrap_or_default();
        after.extend_from_slice(grants);
        self.queue.exchange(&before, &after);
    }

    /// The plan of what waits around these grants of a user and the seats that make room for them, and what they cost it, while the jobs are
    /// cut. None when nothing waits.
    ///
    /// # Errors
    /// The refusal, when that is more than the owner bears.
    pub(in crate::ledger) fn plan_for_user(
        &self,
        now: Now,
        moves: Option<&Arrangement>,
        (grants, cuts): (&[Grant], &[Cut]),
    ) -> Result<Option<(OwnPlan, Quote)>, RefusalReason> {
        let (before, mut after) = moves.map(|moves| self.moved(moves)).unwrap_or_default();
        after.extend_from_slice(grants);
        self.plan_around(now, (&before, &after), cuts)
    }

    /// Lets waiting own jobs follow a plan of [`Ledger::plan_for_user`].
    pub(in crate::ledger) fn follow_plan(&mut self, planned: Option<(OwnPlan, Quote)>) {
        if let Some((plan, _)) = planned {
            self.queue.plan = Some(plan);
        }
    }

    /// Whether own jobs wait, or may be stopped: then a hold may cost the owner something, and others do well to ask for a quote.
    pub fn has_jobs_to_move(&self) -> bool {
        self.queue.plan.is_some() || self.queue.jobs.values().any(|job| job.preempt)
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
        (before, after): (&[Grant], &[Grant]),
        cuts: &[Cut],
    ) -> Result<Option<(OwnPlan, Quote)>, RefusalReason> {
        let counts_all = |plan: &&OwnPlan| {
            let mut amounts = cuts.iter().filter_map(|cut| cut.freed.first()).map(|grant| &grant.amounts);
            amounts.all(|amounts| plan.counts(amounts))
        };
        let present = self.queue.plan.as_ref();
        let mut around = match present.filter(counts_all) {
            Some(plan) => {
                let mut around = plan.clone();
                let before: Vec<Grant> = before.iter().chain(cuts.iter().flat_map(|cut| &cut.freed)).cloned().collect();
                around.exchange(&before, after, Cause::User);
                around
            }
            None if cuts.is_empty() => return Ok(None),
            None => {
                // In the books is what is cut free already.
                let unknown =
                    || Denial::new(Rule::OwnQueue, "an own job that would be stopped could not be planned anew");
                let around = self.plan_with_cuts(now.utc, cuts);
                let mut around = around.ok_or_else(|| RefusalReason::NotAllowed(unknown()))?;
                around.exchange(before, after, Cause::User);
                around
            }
        };
        // What has run has a place.
        let _ = self.plan_cuts(&mut around, cuts);
        let gate = self.gate.lock();
        let policy = gate.policy();
        let until = now.utc + policy.quality_horizon;
        let (loss, present) = (around.loss(until), present.map(|plan| plan.loss(until)).unwrap_or_default());
        // What costs nothing more is none of the owner's concern.
        if loss == present {
            return Ok(Some((around, Quote::default())));
        }
        match excess(&loss, policy) {
            None => Ok(Some((around, quote_of(&present, &loss)))),
            Some(detail) => Err(RefusalReason::NotAllowed(Denial::new(Rule::OwnQueue, detail))),
        }
    }

    /// The plan of what waits when jobs that are cut end whole, since what was promised `before` is promised as `after`. None when nothing waits.
    ///
    /// # Errors
    /// When the other jobs lose more by that than these would, or all together more than the owner bears.
    pub(super) fn plan_of_spared(
        &self,
        now: Now,
        (before, after): (&[Grant], &[Grant]),
        spared: &[AttemptId],
    ) -> Result<Option<OwnPlan>, TooDear> {
        let Some(present) = &self.queue.plan else { return Ok(None) };
        let gate = self.gate.lock();
        let until = now.utc + gate.policy().quality_horizon;
        let mut around = present.clone();
        around.exchange(before, after, Cause::User);
        spared.iter().for_each(|job| around.remove(job));
        // They count on, and lose nothing.
        let mut loss = around.loss(until);
        for fair in spared.iter().filter_map(|job| present.fair(job)) {
            loss.jobs += 1;
            loss.without += fair;
            loss.with += fair;
        }
        let is_dear = lost(&loss) > lost(&present.loss(until)) || excess(&loss, gate.policy()).is_some();
        if is_dear { Err(TooDear) } else { Ok(Some(around)) }
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

    /// Shows the hosts with the owner's jobs that run there and may be stopped.
    pub(in crate::ledger) fn add_stoppable(&self, states: &mut [HostState]) {
        let jobs = self.queue.jobs.iter().filter(|(_, job)| job.preempt);
        let running = jobs.filter_map(|(attempt, _)| self.bookings.get(attempt));
        for grant in running.flat_map(|booking| &booking.grants) {
            if let Some(state) = states.iter_mut().find(|state| state.host == *grant.host()) {
                state.schedule.add(grant.window, &grant.amounts);
            }
        }
    }
}

/// What is lost in all.
fn lost(Loss { without, with, .. }: &Loss) -> Quality {
    Quality {
        late: with.late.saturating_sub(without.late),
        slowdown_millionths: with.slowdown_millionths.saturating_sub(without.slowdown_millionths),
    }
}

/// By how much a loss is larger than another one.
fn quote_of(present: &Loss, loss: &Loss) -> Quote {
    let (before, after) = (lost(present), lost(loss));
    let more = after.slowdown_millionths.saturating_sub(before.slowdown_millionths);
    let more = more.div_ceil(u128::from(loss.jobs.max(1)));
    Quote { late: after.late.saturating_sub(before.late), slowdown_millionths: u64::try_from(more).unwrap_or(u64::MAX) }
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
