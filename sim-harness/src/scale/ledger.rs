//! The site's side: the real [`Ledger`] answers, writes and tells.
//!
//! Invariant: outputs leave in the ledger's order, and none of them before the changes in front of it are on disk.

use broker::{
    ids::SiteId,
    ledger::{Event as Asked, Ledger, Output, Record, ReplyToken},
    negotiation::Negotiation,
    protocol::{AttemptId, AttemptStatus, SiteAnswer, SiteRequest},
    time::Millis,
};
use discovery::costs;

use super::{
    entry,
    site::Asker,
    traffic::Kind,
    world::{Body, Event, World},
};

impl World {
    pub(super) fn arrive_question(&mut self, site: usize, from: usize, asker: Asker, request: SiteRequest) {
        let token = self.name();
        let from = self.sites[from].id.clone();
        self.sites[site].askers.insert(token, asker);
        self.feed_ledger(site, Asked::Request { from, token: ReplyToken(token), request });
    }

    fn feed_ledger(&mut self, site: usize, event: Asked) {
        let now = self.clock();
        let Some(ledger) = &mut self.sites[site].ledger else { return };
        ledger.handle(now, event);
        self.perform_ledger(site);
    }

    pub(super) fn perform_ledger(&mut self, site: usize) {
        while let Some(output) = self.sites[site].ledger.as_mut().and_then(Ledger::poll_output) {
            let own = &mut self.sites[site];
            match output {
                Output::Persist(record) => {
                    match record {
                        Record::Put(reservation) => {
                            own.reservations.insert(reservation.attempt.clone(), reservation);
                        }
                        Record::Remove(attempt) => {
                            own.reservations.remove(&attempt);
                        }
                    }
                    own.disk_free_at = own.disk_free_at.max(self.now + self.settings.disk_us);
                }
                Output::Publish(parts) => self.changed(site, parts),
                Output::Reply { token, answer } => self.reply(site, token.0, answer),
                Output::Inquire { to, attempt } => self.inquire(site, &to, attempt),
                // No owner of the simulation has a feed.
                Output::Fed { .. } => {}
            }
        }
        self.arm_ledger(site);
    }

    fn reply(&mut self, site: usize, token: u64, mut answer: SiteAnswer) {
        let Some(asker) = self.sites[site].askers.remove(&token) else { return };
        self.note_hold(site, asker, &answer);
        let at = self.sites[site].disk_free_at;
        let to = match asker {
            Asker::Negotiation { request, .. } => self.carried[request].entry,
            Asker::Participant { from, .. } => from,
        };
        if let (SiteAnswer::Status { decision, .. }, Asker::Participant { from, request, attempt }) =
            (&mut answer, asker)
        {
            *decision = self.decision_of(site, from, (request, attempt));
        }
        let bytes = costs::answer_bytes(&answer);
        self.send(at, site, to, (Kind::Direct, bytes), Body::Answer { asker, answer });
    }

    /// What a node, as entry point, tells a participant of a try of its own.
    fn decision_of(&self, site: usize, asker: usize, (request, attempt): (usize, u32)) -> Option<AttemptStatus> {
        let carried = self.carried.get(request).filter(|carried| carried.entry == site)?;
        let statuses = carried.negotiation.as_ref().map(Negotiation::statuses);
        let attempt = self.attempt_id(request, attempt);
        let asker = &self.sites[asker].id;
        Some(statuses.map_or(AttemptStatus::Unknown, |statuses| statuses.of(&attempt, asker)))
    }

    fn attempt_id(&self, request: usize, attempt: u32) -> AttemptId {
        let carried = &self.carried[request];
        AttemptId { entry_point: self.sites[carried.entry].id.clone(), request: carried.record.id.clone(), attempt }
    }

    /// A participant asks what became of a try.
    fn inquire(&mut self, site: usize, to: &SiteId, attempt: AttemptId) {
        let Some(to) = self.index.get(to).copied() else { return };
        let Some(request) = entry::number_of(&attempt.request) else { return };
        let asker = Asker::Participant { from: site, request, attempt: attempt.attempt };
        let question = SiteRequest::Inquire(attempt);
        let bytes = costs::request_bytes(&question);
        self.send(self.now, site, to, (Kind::Direct, bytes), Body::Ask { asker, request: question });
    }

    pub(super) fn hear_status(
        &mut self,
        site: usize,
        from: SiteId,
        (request, attempt): (usize, u32),
        answer: &SiteAnswer,
    ) {
        let SiteAnswer::Status { decision, booking } = *answer else { return };
        let attempt = self.attempt_id(request, attempt);
        self.feed_ledger(site, Asked::StatusHeard { from, attempt, decision, booking });
    }

    fn arm_ledger(&mut self, site: usize) {
        let own = &mut self.sites[site];
        let Some(Millis(due)) = own.ledger.as_ref().and_then(Ledger::poll_timeout) else { return };
        let due = due.saturating_mul(1000).max(self.now + 1);
        if own.timer_at.is_none_or(|planned| due < planned) {
            own.timer_at = Some(due);
            let run = own.run;
            self.at(due, Event::SiteTimer { site, run });
        }
    }

    pub(super) fn wake_ledger(&mut self, site: usize) {
        let now = self.clock();
        let own = &mut self.sites[site];
        if own.timer_at.is_none_or(|planned| planned > self.now) {
            return;
        }
        own.timer_at = None;
        let Some(ledger) = &mut own.ledger else { return };
        ledger.handle_timeout(now);
        self.perform_ledger(site);
    }
}
