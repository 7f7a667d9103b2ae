//! Requests of one batch that are reserved together: all of them, or none.
//!
//! Each is held by an attempt of its own, and none is confirmed before all are held: a batch that finds no room then costs nothing, where
//! the cancellation of what was confirmed may. What a crash or a refused confirmation undoes after that, the others give back. One
//! decision over all attempts would need the same way out, since a site may lose a hold between the two phases.
//!
//! The coordinator keeps on disk which requests a batch ties together, from before the first is held until all are reserved. Invariant:
//! as long as it does, none of them is reported as reserved, to its user or its sites, and the end of one ends them all. One that its user
//! lets another node take over has ended here, and lives on there by itself. Where the coordinator is gone for good between the first and
//! the last confirmation, what all sites of a request have confirmed stays reserved until it is cancelled.

use std::collections::BTreeSet;

use super::{Failure, Negotiation, Outcome, State};
use crate::{
    ids::SiteId,
    time::{Millis, Now},
};

/// How far a request is that is tied to the others of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member {
    /// Not all of its sites hold.
    UnderWay,
    /// All of its sites hold.
    Held,
    /// It is to be confirmed, and that is decided.
    Confirming,
    /// All of its sites have confirmed.
    Reserved,
    /// It has ended.
    Ended,
}

/// What its coordinator does for a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing yet.
    Wait,
    /// Each that is held gets [`Event::AllHeld`](super::Event).
    Confirm,
    /// It forgets on its disk what the batch ties together; then each gets [`Event::BatchReserved`](super::Event).
    Untie,
    /// Each that has not ended gets [`Event::BatchFailed`](super::Event). When all have, and that is on disk, the batch is forgotten.
    GiveUp,
}

impl Step {
    /// What follows from how far the requests of a batch are.
    #[must_use]
    pub fn of(members: &[Member]) -> Step {
        let has = |member: Member| members.contains(&member);
        match (has(Member::Ended), has(Member::UnderWay), has(Member::Held), has(Member::Confirming)) {
            (true, ..) => Step::GiveUp,
            (_, true, ..) => Step::Wait,
            (_, _, true, _) => Step::Confirm,
            (_, _, _, true) => Step::Wait,
            (..) => Step::Untie,
        }
    }
}

impl Negotiation {
    /// How far it is, when it is tied to others.
    #[must_use]
    pub fn member(&self) -> Option<Member> {
        self.record.together.as_ref()?;
        Some(match &self.state {
            State::Closed { .. } => Member::Ended,
            State::Reserved { .. } => Member::Reserved,
            State::Confirming { .. } => Member::Confirming,
            State::Holding { sites, .. } if sites.values().all(super::Site::is_held) => Member::Held,
            State::Finding
            | State::PlanningAgain { .. }
            | State::Quoting(_)
            | State::BackingOff { .. }
            | State::Holding { .. } => Member::UnderWay,
        })
    }

    /// Whether it waits for the others of its batch when all of its sites hold.
    pub(super) fn waits_for_batch(&self) -> bool {
        self.record.together.is_some() && self.record.reservation.is_none()
    }

    /// All of the batch is held.
    pub(super) fn on_all_held(&mut self, now: Now) {
        if self.member() == Some(Member::Held) {
            self.commit(now);
        }
    }

    /// All of the batch is reserved: from now on it is a request as any other.
    pub(super) fn on_batch_reserved(&mut self, now: Now) {
        let State::Reserved { plan } = &self.state else { return };
        if self.record.together.is_none() {
            return;
        }
        let sites: BTreeSet<SiteId> = plan.seats.iter().map(|seat| seat.site.clone()).collect();
        self.record.together = None;
        self.persist(self.record.decision.clone());
        self.watch(now);
        self.settle(sites);
    }

    /// The batch is given up.
    pub(super) fn on_batch_failed(&mut self, now: Now, detail: String) {
        if self.member().is_some_and(|member| member != Member::Ended) {
            self.close(now, Outcome::Failed(Failure::Batch { detail }));
        }
    }

    /// Until when the answers to a hold are waited for; or the rest of the batch, when all sites hold. Half of the hold is left for the
    /// confirmation.
    pub(super) fn holding_ends_at(&self, asked_at: Millis) -> Millis {
        let wait = match self.member() {
            Some(Member::Held) => Millis(self.settings.hold_for.0 / 2),
            _ => self.settings.answer_timeout,
        };
        asked_at + wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_confirmed_before_all_is_held_and_one_end_is_the_end_of_all() {
        use Member::{Confirming, Ended, Held, Reserved, UnderWay};
        for (members, step) in [
            (&[UnderWay, Held][..], Step::Wait),
            (&[UnderWay, Reserved], Step::Wait),
            (&[Held, Held], Step::Confirm),
            (&[Held, Confirming, Reserved], Step::Confirm),
            (&[Confirming, Reserved], Step::Wait),
            (&[Reserved, Reserved], Step::Untie),
            (&[Reserved, Ended], Step::GiveUp),
            (&[Ended, Ended], Step::GiveUp),
        ] {
            assert_eq!(Step::of(members), step, "{members:?}");
        }
    }
}
