//! Deliberate faults in what nodes hear of each other: a message is changed before the node that it is for sees it, into one
//! that it answers as a node with the fault would.
//!
//! Invariant: without a deliberate fault nothing is changed.

use std::sync::Arc;

use broker::{
    ids::{HostId, RequestId, SiteId},
    negotiation::{Negotiation, Purpose},
    protocol::{RefusalReason, SiteAnswer, SiteRequest},
    time::{Span, Time},
    trust::{Authorization, PublicKey, RequestStatement, SignedText},
};

use super::{
    canary::Canary,
    message::{Body, Message, Question},
    world::{Event, World},
};

/// Later than any word that a user says.
const LATER: Span = Span(10_000_000);

impl World {
    /// A question as a site with the fault takes it.
    pub(super) fn mutate_question(&mut self, from: usize, mut request: SiteRequest) -> SiteRequest {
        match (self.canary, &mut request) {
            (Some(Canary::ForgetHoldDeadline), SiteRequest::Hold(hold)) => hold.hold_for.0 = u64::MAX / 8,
            (Some(Canary::SkipSignature), SiteRequest::Hold(hold)) => self.sign_as_it_is(&mut hold.authorization),
            (Some(Canary::SkipSignature), SiteRequest::TakeOver { authorization, .. }) => {
                self.sign_as_it_is(authorization);
            }
            (Some(Canary::TakeOverUnsigned), SiteRequest::TakeOver { attempt, authorization, .. })
                if !self.is_signed_for(from, &attempt.request, &authorization.request) =>
            {
                let issued = self.utc() + Span(1);
                self.sign_anew(from, &attempt.request, issued, authorization);
            }
            (Some(Canary::TakeOverUnordered), SiteRequest::TakeOver { attempt, authorization, .. })
                if self.is_signed_for(from, &attempt.request, &authorization.request) =>
            {
                let order = Time(i64::try_from(self.name()).unwrap_or(i64::MAX / 2));
                self.sign_anew(from, &attempt.request, order + LATER + LATER, authorization);
            }
            _ => {}
        }
        request
    }

    /// An answer as a coordinator with the fault takes it; none when it does not take it for one.
    pub(super) fn mutate_answer(
        &mut self,
        node: usize,
        from: usize,
        question: &Question,
        mut answer: SiteAnswer,
    ) -> Option<SiteAnswer> {
        let Question::Negotiation { request, purpose, .. } = question else { return Some(answer) };
        match (self.canary, &mut answer) {
            (Some(Canary::LossIgnored), SiteAnswer::Booked { hosts, .. }) if *purpose == Purpose::Inspect => {
                *hosts = self.hosts_believed(node, from, request);
            }
            (Some(Canary::HandOverIgnored), SiteAnswer::Refused(refusal))
                if matches!(refusal.reason, RefusalReason::HandedOver(_)) =>
            {
                return None;
            }
            (Some(Canary::HandOverUnsigned), SiteAnswer::Refused(refusal)) => {
                if let RefusalReason::HandedOver(signed) = &mut refusal.reason
                    && !signed.open::<RequestStatement>().is_ok_and(|word| word.id == *request)
                {
                    self.sign_hand_over(from, request, signed);
                }
            }
            _ => {}
        }
        Some(answer)
    }

    /// Whether a question never leaves: the coordinator believes that what a repair has replaced is given back.
    pub(super) fn forgets_to_give_up(&mut self, node: usize, to: usize, body: &Body) -> bool {
        let Body::Ask { ask, question, request: asked } = body else { return false };
        let Question::Negotiation { request, purpose: Purpose::Release, .. } = question else { return false };
        if self.canary != Some(Canary::LostNotGivenUp) {
            return false;
        }
        let negotiation = self.nodes[node].running().and_then(|running| running.machines.negotiations.get(request));
        let is_repaired = |negotiation: &Negotiation| {
            let reservation = negotiation.record().reservation.as_ref();
            negotiation.reserved_plan().is_some() && reservation.is_some_and(|reservation| reservation.repairs > 0)
        };
        if !negotiation.is_some_and(is_repaired) {
            return false;
        }
        let version = broker::protocol::LedgerVersion::default();
        let answer = match asked {
            SiteRequest::TakeOver { .. } => {
                SiteAnswer::Booked { hosts: Vec::new(), is_settled: false, before: None, others: Vec::new(), version }
            }
            _ => SiteAnswer::Released { version },
        };
        let body = Body::Answer { ask: *ask, question: question.clone(), answer };
        let message = Message { id: self.name(), run: self.nodes[to].run, from: to, to: node, body };
        self.after(1, Event::Arrival(message));
        true
    }

    fn hosts_believed(&self, node: usize, from: usize, request: &RequestId) -> Vec<HostId> {
        let negotiation = self.nodes[node].running().and_then(|running| running.machines.negotiations.get(request));
        let plan = negotiation.and_then(Negotiation::reserved_plan);
        let grants = plan.into_iter().flat_map(|plan| &plan.grants);
        grants.filter(|grant| grant.site == self.nodes[from].site).map(|grant| grant.host.clone()).collect()
    }

    fn is_signed_for(&self, node: usize, request: &RequestId, signed: &SignedText) -> bool {
        let is_users = self.users.get(request).is_some_and(|user| user.user == signed.author);
        let names: &SiteId = &self.nodes[node].site;
        is_users
            && signed.open::<RequestStatement>().is_ok_and(|word| word.entry_point == *names && word.id == *request)
    }

    /// What was signed by nobody, or was changed since, is signed by whoever is said to have.
    fn sign_as_it_is(&self, authorization: &mut Arc<Authorization>) {
        let signed = &authorization.request;
        if signed.open::<RequestStatement>().is_ok() {
            return;
        }
        let key = self.users.keys().find(|key| PublicKey::of(key) == signed.author);
        let statement = serde_json::from_str::<RequestStatement>(&signed.text);
        if let (Some(key), Ok(statement)) = (key, statement)
            && let Ok(signed) = SignedText::sign(&statement, key)
        {
            Arc::make_mut(authorization).request = signed;
        }
    }

    fn sign_anew(&self, node: usize, request: &RequestId, issued: Time, authorization: &mut Arc<Authorization>) {
        let Some(user) = self.users.get(request) else { return };
        *authorization = Arc::new(self.sign_for(node, (request, &user.request), user.number, (issued, issued + LATER)));
    }

    fn sign_hand_over(&self, node: usize, request: &RequestId, signed: &mut Arc<SignedText>) {
        let Some(user) = self.users.get(request) else { return };
        let issued = self.utc() + LATER;
        let authorization = self.sign_for(node, (request, &user.request), user.number, (issued, issued + LATER));
        *signed = Arc::new(authorization.request);
    }
}
