//! A node that cheats. As an entry point it changes what its users have signed, and makes use of what the users of others
//! have signed, which it sees when it is asked for a hold itself; as a site it says that other nodes act for a request.
//!
//! Invariant: it can do what any program can that has its keys: all it sends comes from itself, and it has no key of a
//! user. It draws from a generator of its own, so that a seed without it runs as it would. Once everything is healed it
//! behaves.

use std::sync::Arc;

use broker::{
    ids::SiteId,
    negotiation::Purpose,
    protocol::{AttemptId, HoldRequest, Refusal, RefusalReason, SiteAnswer, SiteRequest, TakeOverStep},
    resources::Amounts,
    time::{Millis, Time},
    trust::{Authorization, RequestStatement},
};
use rand::RngExt;

use super::{
    message::{Body, Question},
    names,
    world::{Event, World},
};

/// Of 100 holds that it sends or is asked for, how many it abuses.
const ABUSED_PERCENT: u64 = 40;

impl World {
    fn cheats(&mut self, node: usize) -> bool {
        let is_attacker = self.options.attacker == Some(node) && !self.is_healed;
        is_attacker && self.attacks.random_range(0..100) < ABUSED_PERCENT
    }

    /// A hold that the attacker sends for a user of its own is perhaps not what the user has signed.
    pub(super) fn abuse_own(&mut self, node: usize, request: SiteRequest) -> SiteRequest {
        let SiteRequest::Hold(mut hold) = request else { return request };
        if self.cheats(node) {
            self.figures.attacks += 1;
            match self.attacks.random_range(0..5) {
                0 => hold.window.end = hold.window.end + hold.window.duration(),
                1 => hold.window = shifted(&hold),
                2 => enlarge(&mut hold.grants[0].amounts),
                3 => {
                    let duration = i64::try_from(2 * hold.window.duration().0).unwrap_or(i64::MAX);
                    hold.window.end = hold.window.end + hold.window.duration();
                    rewrite(&mut hold, |text| replace_number(text, "\"duration\":", duration));
                }
                _ => {
                    let other = self.users.key(self.attacks.random_range(0..100));
                    let authorization = Arc::make_mut(&mut hold.authorization);
                    authorization.request.author = other;
                }
            }
        }
        SiteRequest::Hold(hold)
    }

    /// The attacker is asked for a hold: it tries to get one somewhere else for itself with the same signature.
    pub(super) fn abuse_others(&mut self, node: usize, hold: &HoldRequest) {
        // What it sends to itself is its own users': it could cheat them without any signature.
        if hold.attempt.entry_point == self.nodes[node].site || !self.cheats(node) {
            return;
        }
        let to = self.attacks.random_range(0..self.nodes.len());
        let Some(host) = self.nodes[to].hosts.first().map(|(host, _)| host.id.clone()) else { return };
        if to == node {
            return;
        }
        self.figures.attacks += 1;
        if self.options.losses.is_some() {
            self.plan_to_steal(node, hold);
        }
        let (here, there) = (self.nodes[node].site.clone(), self.nodes[to].site.clone());
        let mut stolen = hold.clone();
        stolen.attempt.entry_point = here.clone();
        stolen.participants = vec![there];
        stolen.grants.truncate(1);
        if let Some(grant) = stolen.grants.first_mut() {
            grant.host = host;
        }
        let from = hold.attempt.entry_point.clone();
        if self.attacks.random_range(0..2) == 0 {
            rewrite(&mut stolen, |text| text.replace(&named(&from), &named(&here)));
        }
        let authorization = Arc::make_mut(&mut stolen.authorization);
        authorization.entry_point.clone_from(&self.nodes[node].credentials);
        stolen.hold_for = Millis(u64::MAX);
        let attempt = stolen.attempt.clone();
        self.attack(node, to, attempt, SiteRequest::Hold(stolen));
    }

    /// What the attacker is asked for may become a reservation: it wants to take that over some time later.
    fn plan_to_steal(&mut self, node: usize, hold: &HoldRequest) {
        let (from, here) = (hold.attempt.entry_point.clone(), self.nodes[node].site.clone());
        let mut authorization = (*hold.authorization).clone();
        authorization.entry_point.clone_from(&self.nodes[node].credentials);
        if self.attacks.random_range(0..2) == 0 {
            authorization.request.text = authorization.request.text.replace(&named(&from), &named(&here));
        }
        let authorization = Arc::new(authorization);
        for to in hold.participants.iter().filter_map(names::index_of) {
            let (attempt, authorization) = (hold.attempt.clone(), authorization.clone());
            let after = self.attacks.random_range(500..6_000);
            self.after(after, Event::Steal { node, to, attempt, authorization });
        }
    }

    /// The attacker says that it coordinates somebody else's reservation.
    pub(super) fn steal(&mut self, node: usize, to: usize, attempt: AttemptId, authorization: Arc<Authorization>) {
        if self.nodes[node].running().is_some() && !self.is_healed {
            let steps = [TakeOverStep::Prepare, TakeOverStep::Commit, TakeOverStep::Abort];
            let step = steps[self.attacks.random_range(0..steps.len())];
            self.attack(node, to, attempt.clone(), SiteRequest::TakeOver { attempt, authorization, step });
        }
    }

    /// A site has granted the attacker a hold, or what others have reserved.
    pub(super) fn hear_attacked(&mut self, node: usize, from: usize, attempt: &AttemptId, answer: &SiteAnswer) {
        match answer {
            SiteAnswer::Held { version, .. } => {
                let confirm = SiteRequest::Confirm { attempt: attempt.clone(), held_in: version.incarnation };
                self.attack(node, from, attempt.clone(), confirm);
            }
            SiteAnswer::Booked { .. } => {
                self.attack(node, from, attempt.clone(), SiteRequest::Release(attempt.clone()));
            }
            _ => {}
        }
    }

    /// What the attacker, as a site, answers to an entry point: perhaps that another node coordinates the request, with the
    /// words that it has of its user, or has made; or that another node has acted before.
    pub(super) fn lie(&mut self, node: usize, from: usize, question: &Question, answer: SiteAnswer) -> SiteAnswer {
        let Question::Negotiation { request, purpose: Purpose::Confirm | Purpose::Inspect, .. } = question else {
            return answer;
        };
        if node == from || !self.cheats(node) {
            return answer;
        }
        let (here, there) = (self.nodes[node].site.clone(), self.nodes[from].site.clone());
        let Some(running) = self.nodes[node].running() else { return answer };
        let booking = running.machines.ledger.bookings().find(|booking| booking.attempt.request == *request);
        let Some(mut word) = booking.and_then(|booking| booking.statement.clone()) else { return answer };
        self.figures.attacks += 1;
        match (self.attacks.random_range(0..3), answer) {
            (0, SiteAnswer::Booked { hosts, is_settled, others, version, .. }) => {
                let before = Some(names::site(self.attacks.random_range(0..self.nodes.len())));
                SiteAnswer::Booked { hosts, is_settled, before, others, version }
            }
            (kind, answer) => {
                if kind == 1 {
                    let signed = Arc::make_mut(&mut word);
                    signed.text = signed.text.replace(&named(&there), &named(&here));
                }
                let version = answer.version().unwrap_or_default();
                SiteAnswer::Refused(Refusal { reason: RefusalReason::HandedOver(word), version, hosts: Vec::new() })
            }
        }
    }

    fn attack(&mut self, node: usize, to: usize, attempt: AttemptId, request: SiteRequest) {
        let ask = self.name();
        self.send(node, to, Body::Ask { ask, question: Question::Attack(attempt), request });
    }
}

fn shifted(hold: &HoldRequest) -> broker::time::Window {
    // Beyond the latest start that any request has.
    let later = |time: Time| Time(time.0 + 100_000);
    broker::time::Window { start: later(hold.window.start), end: later(hold.window.end) }
}

/// More than any request of the simulation asks for in all.
fn enlarge(amounts: &mut Amounts) {
    for amount in amounts.values_mut() {
        amount.0 += 1_000_000;
    }
}

fn named(site: &SiteId) -> String {
    format!("\"entry_point\":\"{site}\"")
}

/// Changes the text of the statement and leaves the signature as it was.
fn rewrite(hold: &mut HoldRequest, change: impl Fn(&str) -> String) {
    let authorization: &mut Authorization = Arc::make_mut(&mut hold.authorization);
    authorization.request.text = change(&authorization.request.text);
    debug_assert!(
        serde_json::from_str::<RequestStatement>(&authorization.request.text).is_ok(),
        "what is forged can be read"
    );
}

/// Puts `number` in the place of the one behind `key`.
fn replace_number(text: &str, key: &str, number: i64) -> String {
    let Some((before, after)) = text.split_once(key) else { return text.to_owned() };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}{key}{number}{rest}")
}
