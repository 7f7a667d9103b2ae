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
    plan::Place,
    protocol::{AttemptId, Grant, HoldRequest, Refusal, RefusalReason, SiteAnswer, SiteRequest, TakeOverStep},
    resources::Amounts,
    time::{Millis, Time, Window},
    trust::{Authorization, RequestStatement, testing},
};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    event::Event,
    grid::Grid,
    message::{Body, Question},
    names,
};

/// Of 100 holds that it sends or is asked for, how many it abuses.
const ABUSED_PERCENT: u64 = 40;

/// The attacker's choices; the node is [`Options::attacker`](super::options::Options::attacker).
pub struct Attacker {
    random: Xoshiro256PlusPlus,
}

impl Attacker {
    /// An attacker that draws its choices from this generator.
    pub fn new(random: Xoshiro256PlusPlus) -> Attacker {
        Attacker { random }
    }

    fn cheats(&mut self, grid: &Grid, node: usize) -> bool {
        let is_attacker = grid.options.attacker == Some(node) && !grid.is_healed;
        is_attacker && self.random.random_range(0..100) < ABUSED_PERCENT
    }

    /// A hold that the attacker sends for a user of its own is perhaps not what the user has signed.
    pub fn abuse_own(&mut self, grid: &mut Grid, node: usize, mut request: SiteRequest) -> SiteRequest {
        let (SiteRequest::Hold(hold) | SiteRequest::Book { hold, .. }) = &mut request else { return request };
        if self.cheats(grid, node) {
            grid.figures.attacks += 1;
            match self.random.random_range(0..5) {
                0 => lengthen(&mut hold.grants),
                1 => hold.grants.iter_mut().for_each(|grant| grant.window = shifted(grant.window)),
                2 => enlarge(&mut hold.grants[0].amounts),
                3 => {
                    lengthen(&mut hold.grants);
                    rewrite(hold, |text| {
                        ["\"duration\":", "\"work\":"]
                            .iter()
                            .fold(text.to_owned(), |text, key| double_number(&text, key))
                    });
                }
                _ => {
                    let other = grid.users.key(self.random.random_range(0..100));
                    let authorization = Arc::make_mut(&mut hold.authorization);
                    authorization.request.author = other;
                }
            }
        }
        request
    }

    /// The attacker is asked for a hold: it tries to get one somewhere else for itself with the same signature.
    pub fn abuse_others(&mut self, grid: &mut Grid, node: usize, hold: &HoldRequest) {
        // What it sends to itself is its own users': it could cheat them without any signature.
        if hold.attempt.entry_point == grid.nodes[node].site || !self.cheats(grid, node) {
            return;
        }
        let to = self.random.random_range(0..grid.nodes.len());
        let Some(host) = grid.nodes[to].hosts.first().map(|(host, _)| host.id.clone()) else { return };
        if to == node {
            return;
        }
        grid.figures.attacks += 1;
        if grid.options.losses.is_some() {
            self.plan_to_steal(grid, node, hold);
        }
        let (here, there) = (grid.nodes[node].site.clone(), grid.nodes[to].site.clone());
        let mut stolen = hold.clone();
        stolen.attempt.entry_point = here.clone();
        stolen.participants = vec![there];
        stolen.grants.truncate(1);
        if let Some(grant) = stolen.grants.first_mut() {
            grant.place = Place::Host(host);
        }
        let from = hold.attempt.entry_point.clone();
        if self.random.random_range(0..2) == 0 {
            rewrite(&mut stolen, |text| text.replace(&named(&from), &named(&here)));
        }
        let authorization = Arc::make_mut(&mut stolen.authorization);
        authorization.entry_point.clone_from(&grid.nodes[node].credentials);
        stolen.hold_for = Millis(u64::MAX);
        let attempt = stolen.attempt.clone();
        attack(grid, node, to, attempt, SiteRequest::Hold(stolen));
    }

    /// What the attacker is asked for may become a reservation: it wants to take that over some time later.
    fn plan_to_steal(&mut self, grid: &mut Grid, node: usize, hold: &HoldRequest) {
        let (from, here) = (hold.attempt.entry_point.clone(), grid.nodes[node].site.clone());
        let mut authorization = (*hold.authorization).clone();
        authorization.entry_point.clone_from(&grid.nodes[node].credentials);
        if self.random.random_range(0..2) == 0 {
            authorization.request.text = authorization.request.text.replace(&named(&from), &named(&here));
        }
        let authorization = Arc::new(authorization);
        for to in hold.participants.iter().filter_map(names::index_of) {
            let (attempt, authorization) = (hold.attempt.clone(), authorization.clone());
            let after = self.random.random_range(500..6_000);
            grid.after(after, Event::Steal { node, to, attempt, authorization });
        }
    }

    /// The attacker says that it coordinates somebody else's reservation.
    pub fn steal(
        &mut self,
        grid: &mut Grid,
        node: usize,
        to: usize,
        attempt: AttemptId,
        authorization: Arc<Authorization>,
    ) {
        if grid.nodes[node].running().is_some() && !grid.is_healed {
            let steps = [TakeOverStep::Prepare, TakeOverStep::Commit, TakeOverStep::Abort];
            let step = steps[self.random.random_range(0..steps.len())];
            attack(grid, node, to, attempt.clone(), SiteRequest::TakeOver { attempt, authorization, step });
        }
    }

    /// What the attacker, as a site, answers to an entry point: perhaps that another node coordinates the request, with a
    /// statement of its user, or a forged one; or that another node has acted before.
    pub fn lie(
        &mut self,
        grid: &mut Grid,
        node: usize,
        from: usize,
        question: &Question,
        answer: SiteAnswer,
    ) -> SiteAnswer {
        let Question::Negotiation { request, purpose: Purpose::Confirm | Purpose::Inspect(_), .. } = question else {
            return answer;
        };
        if node == from || !self.cheats(grid, node) {
            return answer;
        }
        let (here, there) = (grid.nodes[node].site.clone(), grid.nodes[from].site.clone());
        let Some(running) = grid.nodes[node].running() else { return answer };
        let booking = running.machines.ledger.bookings().find(|booking| booking.attempt.request == *request);
        let Some(mut statement) = booking.and_then(|booking| booking.statement.clone()) else { return answer };
        grid.figures.attacks += 1;
        match (self.random.random_range(0..3), answer) {
            (0, mut answer @ SiteAnswer::Booked { .. }) => {
                if let SiteAnswer::Booked { before, places, .. } = &mut answer {
                    *before = Some(names::site(self.random.random_range(0..grid.nodes.len())));
                    places.clear();
                }
                answer
            }
            (kind, answer) => {
                if kind == 1 {
                    let signed = Arc::make_mut(&mut statement);
                    signed.text = signed.text.replace(&named(&there), &named(&here));
                }
                let version = answer.version().unwrap_or_default();
                SiteAnswer::Refused(Refusal {
                    reason: RefusalReason::HandedOver(statement),
                    version,
                    hosts: Vec::new(),
                })
            }
        }
    }
}

fn attack(grid: &mut Grid, node: usize, to: usize, attempt: AttemptId, request: SiteRequest) {
    let ask = grid.name();
    grid.send(node, to, Body::Ask { ask, question: Question::Attack(attempt), request });
}

/// A site has granted the attacker a hold, or what others have reserved.
pub fn receive_spoils(grid: &mut Grid, node: usize, from: usize, attempt: &AttemptId, answer: &SiteAnswer) {
    match answer {
        SiteAnswer::Held { version, .. } => {
            let confirm = SiteRequest::Confirm { attempt: attempt.clone(), held_in: version.incarnation };
            attack(grid, node, from, attempt.clone(), confirm);
        }
        SiteAnswer::Booked { .. } => {
            attack(grid, node, from, attempt.clone(), SiteRequest::Release(attempt.clone()));
        }
        _ => {}
    }
}

fn lengthen(grants: &mut [Grant]) {
    for Grant { window, .. } in grants {
        window.end = window.end + window.duration();
    }
}

fn shifted(window: Window) -> Window {
    // Beyond the latest start that any request has.
    let later = |time: Time| Time(time.0 + 100_000);
    Window { start: later(window.start), end: later(window.end) }
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
    debug_assert!(testing::said::<RequestStatement>(&authorization.request).is_ok(), "what is forged can be read");
}

/// Doubles the number behind `key`.
fn double_number(text: &str, key: &str) -> String {
    let Some((before, after)) = text.split_once(key) else { return text.to_owned() };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = after[..after.len() - rest.len()].parse().unwrap_or_default();
    format!("{before}{key}{}{rest}", 2 * number)
}
