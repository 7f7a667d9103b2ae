//! Deliberate faults in what nodes receive from each other: a message is changed before its receiver sees it, into one that
//! the receiver answers as a node with the fault would.
//!
//! Invariant: without a deliberate fault nothing is changed.

use std::sync::Arc;

use broker::{
    amount::Amount,
    demand::Demand,
    ids::{Network, RequestId, SeatNumber, SiteId},
    ledger::{BookingRecord, ChargedFor, Record},
    negotiation::{Decision, Negotiation, Purpose, Repair, RequestRecord},
    plan::Place,
    protocol::{AttemptId, Grant, HoldRequest, RefusalReason, ScheduleChange, SiteAnswer, SiteRequest},
    receipt::Receipt,
    request::{Request, RequestDocument},
    resources::Amounts,
    time::Span,
    trust::{Authorization, OwnerPolicy, PublicKey, RequestStatement, SignedText, testing},
};

use super::{
    canary::Canary,
    event::Event,
    grid::Grid,
    message::{Body, Message, Question},
    names,
    queues::Queues,
};

/// Higher than any term that a user signs.
const HIGHER: u64 = 1 << 60;
/// Longer than any slack of a user.
const TOO_LONG: Span = Span(7_200);
/// How long what is forged is valid.
const VALID: Span = Span(10_000_000);

/// A question as a site with the fault takes it.
pub fn mutate_question(grid: &mut Grid, from: usize, mut request: SiteRequest) -> SiteRequest {
    match (grid.canary, &mut request) {
        (Some(Canary::ForgetHoldDeadline), SiteRequest::Hold(hold) | SiteRequest::Book { hold, .. }) => {
            hold.hold_for.0 = u64::MAX / 8;
        }
        (Some(Canary::SkipSignature), SiteRequest::Hold(hold) | SiteRequest::Book { hold, .. }) => {
            sign_as_it_is(grid, &mut hold.authorization);
        }
        (Some(Canary::QuoteHolds), SiteRequest::Quote(hold)) => request = SiteRequest::Hold(hold.clone()),
        (Some(Canary::SkipSignature), SiteRequest::TakeOver { authorization, .. }) => {
            sign_as_it_is(grid, authorization);
        }
        (
            Some(
                canary @ (Canary::GrantLonger | Canary::IgnoreDeadline | Canary::ShareWholeHosts | Canary::LoadPerHost),
            ),
            SiteRequest::Hold(hold) | SiteRequest::Book { hold, .. },
        ) => grant_otherwise(grid, canary, hold),
        (Some(Canary::RepairForgetsLink), SiteRequest::Hold(hold))
            if is_repairing(grid, from, &hold.attempt.request) =>
        {
            grant_otherwise(grid, Canary::RepairForgetsLink, hold);
        }
        (Some(Canary::SeatsRenumbered), SiteRequest::Hold(hold) | SiteRequest::Book { hold, .. }) => renumber(hold),
        (Some(Canary::TakeOverUnsigned), SiteRequest::TakeOver { attempt, authorization, .. })
            if !is_signed_for(grid, from, &attempt.request, &authorization.request) =>
        {
            sign_anew(grid, from, &attempt.request, HIGHER, authorization);
        }
        (Some(Canary::TakeOverUnordered), SiteRequest::TakeOver { attempt, authorization, .. })
            if is_signed_for(grid, from, &attempt.request, &authorization.request) =>
        {
            let order = grid.name();
            sign_anew(grid, from, &attempt.request, HIGHER + order, authorization);
        }
        _ => {}
    }
    request
}

/// The network in which others meet a node, where owners have shares.
pub fn network_seen(grid: &Grid, node: usize) -> Option<Network> {
    let shares = grid.options.shares.as_ref().filter(|_| grid.canary != Some(Canary::NetworkNotCounted))?;
    names::network(shares.network_of(node)?)
}

/// The rules of the owner of the first node, by which its ledger takes a question of the second.
pub fn mutate_policy(grid: &Grid, (node, from): (usize, usize), request: &SiteRequest) {
    let (Some(Canary::RepairForgetsShare), Some(shares)) = (grid.canary, &grid.options.shares) else { return };
    let Some(running) = grid.nodes[node].running() else { return };
    let SiteRequest::Hold(hold) = request else { return };
    let is_forgotten = is_repairing(grid, from, &hold.attempt.request);
    let policy = if is_forgotten { OwnerPolicy::default() } else { shares.policy() };
    running.gate.lock().set_policy(Queues::in_force(grid.options.queues.as_ref(), policy));
}

/// An answer as a coordinator with the fault takes it; none when it does not take it for one.
pub fn mutate_answer(
    grid: &mut Grid,
    node: usize,
    from: usize,
    question: &Question,
    mut answer: SiteAnswer,
) -> Option<SiteAnswer> {
    let Question::Negotiation { request, purpose, .. } = question else { return Some(answer) };
    match (grid.canary, &mut answer) {
        (Some(Canary::LossIgnored), SiteAnswer::Booked { seats, .. }) if matches!(purpose, Purpose::Inspect(_)) => {
            *seats = seats_believed(grid, node, from, request);
        }
        (Some(Canary::LieBelieved), SiteAnswer::Booked { seats, .. })
            if matches!(purpose, Purpose::Inspect(_)) && grid.truth.is_lied_about(request) =>
        {
            *seats = seats_believed(grid, node, from, request);
        }
        (Some(Canary::ChargeHalved), SiteAnswer::Released { charged, .. }) => charged.0 /= 2,
        (Some(Canary::PlacesIgnored), SiteAnswer::Held { places, .. }) => places.clear(),
        // Nor does it see the hosts in the receipt.
        (Some(Canary::PlacesIgnored), SiteAnswer::Confirmed { places, receipt, .. }) => {
            places.clear();
            *receipt = receipt_without_hold(grid, from, node, question);
        }
        (Some(Canary::HandOverIgnored), SiteAnswer::Refused(refusal))
            if matches!(refusal.reason, RefusalReason::HandedOver(_)) =>
        {
            return None;
        }
        (Some(Canary::HandOverUnsigned), SiteAnswer::Refused(refusal)) => {
            if let RefusalReason::HandedOver(signed) = &mut refusal.reason
                && !signed.open::<RequestStatement>().is_ok_and(|signed| signed.id == *request)
                && let Some(authorization) = signed_for(grid, from, request, HIGHER)
            {
                *signed = Arc::new(authorization.request);
            }
        }
        _ => {}
    }
    Some(answer)
}

/// What is written of a cancellation gives the refund once more.
pub fn refund_twice(record: &mut Record) {
    if let Record::Charge(charge) = record
        && charge.reason == ChargedFor::Cancellation
    {
        let refund = charge.agreed.0.saturating_sub(charge.charged.0);
        charge.charged.0 = charge.charged.0.saturating_sub(refund);
    }
}

/// Whether a question never leaves: the coordinator believes that what a repair has replaced is given back.
pub fn forgets_to_give_up(grid: &mut Grid, node: usize, to: usize, body: &Body) -> bool {
    let Body::Ask { ask, question, request: asked } = body else { return false };
    let Question::Negotiation { request, purpose: Purpose::Release, .. } = question else { return false };
    if grid.canary != Some(Canary::LostNotGivenUp) {
        return false;
    }
    let is_repaired = |negotiation: &Negotiation| {
        let reservation = negotiation.record().reservation.as_ref();
        negotiation.reserved_plan().is_some() && reservation.is_some_and(|reservation| reservation.repairs > 0)
    };
    if !grid.negotiation(node, request).is_some_and(is_repaired) {
        return false;
    }
    let version = broker::protocol::LedgerVersion::default();
    let answer = match asked {
        SiteRequest::TakeOver { .. } => SiteAnswer::Booked {
            seats: Vec::new(),
            places: Vec::new(),
            is_settled: false,
            before: None,
            others: Vec::new(),
            charged: Default::default(),
            version,
            receipt: None,
            wait: Default::default(),
        },
        _ => SiteAnswer::Released { version, charged: Default::default() },
    };
    let body = Body::Answer { ask: *ask, question: question.clone(), answer };
    let message = Message { id: grid.name(), run: grid.nodes[to].run, from: to, to: node, body };
    grid.after(1, Event::Arrival(message));
    true
}

fn seats_believed(grid: &Grid, node: usize, from: usize, request: &RequestId) -> Vec<SeatNumber> {
    let plan = grid.negotiation(node, request).and_then(Negotiation::reserved_plan);
    let seats = plan.into_iter().flat_map(|plan| &plan.seats);
    seats.filter(|seat| seat.site == grid.nodes[from].site).map(|seat| seat.number).collect()
}

/// What the entry point remembers of a request that was submitted to it.
pub fn mutate_request(canary: Option<Canary>, request: Request) -> Request {
    let mut asked = RequestDocument::from(request.clone());
    match canary {
        Some(Canary::ForgetSitesMax) => asked.sites_max = None,
        Some(Canary::IgnoreDeadline) => asked.deadline = None,
        Some(Canary::BudgetForgotten) => asked.budget = None,
        _ => {}
    }
    Request::try_from(asked).unwrap_or(request)
}

/// Of what is written together only the last, which needed the room.
pub fn forget_moves(record: &mut Record) {
    if let Record::PutAll(all) = record
        && let Some(last) = all.pop()
    {
        *record = Record::Put(last);
    }
}

/// What has waited begins later than its user grants.
pub fn wait_too_long(record: &mut Record) {
    let all = match record {
        Record::Put(one) => std::slice::from_mut(one),
        Record::PutAll(all) => all,
        _ => return,
    };
    for booking in all.iter_mut().filter(|booking| !booking.wait.is_zero()) {
        booking.wait = Span(booking.wait.0 + TOO_LONG.0);
        booking.window = booking.window.later(TOO_LONG);
        booking.grants.iter_mut().for_each(|grant| grant.window = grant.window.later(TOO_LONG));
    }
}

/// What a site tells that leaves one host of a class out.
pub fn miscount(changes: &mut [ScheduleChange]) {
    for change in changes {
        if let ScheduleChange::Class(change) = change {
            change.hosts -= 1;
        }
    }
}

/// What a site remembers that has forgotten which seats it has bound.
pub fn unbind(bookings: &mut [BookingRecord]) {
    for grant in bookings.iter_mut().flat_map(|booking| &mut booking.grants) {
        if let Place::Bound { class, host } = &grant.place {
            grant.place = Place::Floating { class: class.clone(), host: host.clone() };
        }
    }
}

/// Puts receipts in the place of those that a coordinator keeps, from the same sites, that name another price.
pub fn accept_other_prices(record: &mut RequestRecord) {
    for kept in &mut record.receipts {
        let Ok(mut receipt) = testing::said::<Receipt>(&kept.receipt) else { continue };
        receipt.seats.iter_mut().for_each(|kind| kind.cost.0 += 1);
        let key = names::index_of(&kept.site).map(names::signing_key);
        if let Some(signed) = key.and_then(|key| SignedText::sign(&receipt, &key).ok()) {
            kept.receipt = Arc::new(signed);
        }
    }
}

/// The receipt of a site for what it was asked to confirm, whatever it holds.
pub fn receipt_without_hold(grid: &Grid, node: usize, from: usize, question: &Question) -> Option<Arc<SignedText>> {
    let Question::Negotiation { request, attempt, .. } = question else { return None };
    let Decision::Commit { plan, .. } = &grid.negotiation(from, request)?.record().decision else { return None };
    let site = &grid.nodes[node].site;
    let seats: Vec<Grant> = plan.seats.iter().filter(|seat| seat.site == *site).map(Grant::from).collect();
    let name = AttemptId { entry_point: grid.nodes[from].site.clone(), request: request.clone(), attempt: *attempt };
    let user = grid.users.get(request)?.user;
    let receipt = Receipt::of((grid.trust.grid(), site), &name, user, &seats, grid.clock(node).utc);
    SignedText::sign(&receipt, &names::signing_key(node)).ok().map(Arc::new)
}

/// Lets a hold through that is not what the user has signed: its statement is signed anew, as far as it was valid.
fn grant_otherwise(grid: &Grid, canary: Canary, hold: &mut HoldRequest) {
    let Ok(statement) = hold.authorization.request.open::<RequestStatement>() else { return };
    let key = grid.users.keys().iter().find(|key| PublicKey::of(key) == hold.authorization.request.author);
    let mut asked = RequestDocument::from(statement.request.clone());
    match (canary, &mut asked) {
        (Canary::GrantLonger, RequestDocument { duration: Some(duration), .. }) => {
            *duration += 60;
            hold.grants.iter_mut().for_each(|grant| grant.window.end = grant.window.end + Span(60));
        }
        (Canary::IgnoreDeadline, RequestDocument { deadline, .. }) => *deadline = None,
        (Canary::RepairForgetsLink, RequestDocument { traffic: Some(traffic), .. }) => traffic.mbps = Amount::ZERO,
        (Canary::LoadPerHost, RequestDocument { traffic: Some(traffic), .. }) => {
            let seats = statement.request.shape(hold.variant.shape).map_or(1, Demand::seats) as u64;
            let away = seats.saturating_sub(hold.grants.len() as u64);
            traffic.mbps.0 = (traffic.mbps.0 * (seats - 1)).div_ceil(away.max(1));
        }
        (Canary::ShareWholeHosts, RequestDocument { exclusive: true, .. }) => {
            (asked.exclusive, asked.per_host) = (false, Amounts::new());
            for (name, amount) in hold.grants.iter_mut().flat_map(|grant| &mut grant.amounts) {
                amount.0 -= 1;
                *asked.total.entry(name.clone()).or_default() += *amount;
            }
        }
        _ => return,
    }
    if let (Some(key), Ok(request)) = (key, Request::try_from(asked))
        && let Ok(signed) = SignedText::sign(&RequestStatement { request, ..statement }, key)
    {
        Arc::make_mut(&mut hold.authorization).request = signed;
    }
}

/// Whether a coordinator replaces hosts of a reservation.
fn is_repairing(grid: &Grid, node: usize, request: &RequestId) -> bool {
    let reservation = grid.negotiation(node, request).and_then(|negotiation| negotiation.record().reservation.as_ref());
    reservation.is_some_and(|reservation| reservation.repair == Some(Repair::Replace))
}

/// Numbers the seats of a hold otherwise.
fn renumber(hold: &mut HoldRequest) {
    let Ok(statement) = hold.authorization.request.open::<RequestStatement>() else { return };
    let seats = u32::try_from(statement.request.seats_max()).unwrap_or(1);
    hold.grants.iter_mut().for_each(|grant| grant.seat = SeatNumber((grant.seat.0 + 1) % seats));
}

fn is_signed_for(grid: &Grid, node: usize, request: &RequestId, signed: &SignedText) -> bool {
    let is_users = grid.users.get(request).is_some_and(|user| user.user == signed.author);
    let names: &SiteId = &grid.nodes[node].site;
    is_users && signed.open::<RequestStatement>().is_ok_and(|one| one.entry_point == *names && one.id == *request)
}

/// Signs a statement whose signature is not valid, with the key of its alleged author.
fn sign_as_it_is(grid: &Grid, authorization: &mut Arc<Authorization>) {
    let signed = &authorization.request;
    if signed.open::<RequestStatement>().is_ok() {
        return;
    }
    let key = grid.users.keys().iter().find(|key| PublicKey::of(key) == signed.author);
    let statement = testing::said::<RequestStatement>(signed);
    if let (Some(key), Ok(statement)) = (key, statement)
        && let Ok(signed) = SignedText::sign(&statement, key)
    {
        Arc::make_mut(authorization).request = signed;
    }
}

fn sign_anew(grid: &Grid, node: usize, request: &RequestId, term: u64, authorization: &mut Arc<Authorization>) {
    if let Some(signed) = signed_for(grid, node, request, term) {
        *authorization = Arc::new(signed);
    }
}

fn signed_for(grid: &Grid, node: usize, request: &RequestId, term: u64) -> Option<Authorization> {
    let user = grid.users.get(request)?;
    Some(grid.authorize(node, (request, &user.request), user.number, (term, grid.utc() + VALID)))
}
