//! What users do at simulated nodes: they submit requests, with plans or without, look at what comes of them, cancel, and go to
//! other nodes.
//!
//! Invariant: only what users know and sign is changed here; what a node writes or is fed is left to the caller.

use broker::{
    demand::Demand,
    ids::{RequestId, ShapeNumber},
    negotiation::{Decision, HandedPlan, RequestRecord},
    protocol::SiteRequest,
    request::Request,
    scale::Factor,
    time::Span,
    trust::RequestStatement,
};
use rand::RngExt;

use super::{
    canary::Canary,
    checks,
    demands::Demands,
    event::{Event, NodeEvent},
    grid::Grid,
    handed_in,
    lookup::Lookup,
    message::{Body, Question},
    mutations, names,
    users::Report,
};

/// A user's signature is good for this much longer than the latest start: clocks differ, and answers take time.
const CLOCKS_DIFFER: Span = Span(120);

/// A user submits a request through an entry point, which runs, with its plan of a batch if it is of one: the record that is to be
/// written there.
pub fn submit(
    grid: &mut Grid,
    entry_point: usize,
    (number, request): (u64, Request),
    of_batch: Option<HandedPlan>,
) -> Option<RequestRecord> {
    let now = grid.clock(entry_point);
    let starts = request.starts(now.utc, Span(3_600)).ok()?;
    let id = names::request(number);
    let signed = (RequestStatement::FIRST_TERM, starts.1 + CLOCKS_DIFFER);
    let authorization = grid.authorize(entry_point, (&id, &request), number, signed);
    let name = format!("user {number}");
    let remembered = mutations::mutate_request(grid.canary, request.clone());
    let statement = authorization.request.open::<RequestStatement>().ok();
    let mut record = RequestRecord::arrived(id.clone(), name, remembered, authorization, grid.now().ms(), starts);
    let with_plan = grid.options.handed_in_every.is_some_and(|every| number % every == 1);
    record.replans = of_batch.is_some();
    let handed_in = match (statement, of_batch) {
        // One that does not fit any more is made again.
        (Some(statement), Some(plan)) => {
            record.handed_in = handed_in::checked(grid, entry_point, &statement, starts.1, plan).ok();
            None
        }
        (Some(statement), None) if with_plan => handed_in::plan(grid, &statement, starts),
        _ => None,
    };
    if !record.replans {
        record.handed_in = handed_in.clone().filter(|_| grid.canary != Some(Canary::PlanAnew));
    }
    let shapes = request.shapes();
    let shapes = shapes.map(|one| (one.seats(), one.length(), one.total().clone(), one.per_host().clone()));
    grid.note(
        Some(&id),
        format_args!(
            "a user asks s{entry_point} for one of {:?}, from {} to {}, deadline {:?}, at most {:?} sites, whole: {}",
            shapes.collect::<Vec<_>>(),
            record.earliest.0,
            record.latest.0,
            request.window().deadline,
            request.demand().sites_max(),
            request.demand().is_exclusive()
        ),
    );
    let site = grid.nodes[entry_point].site.clone();
    grid.users.submit(number, request, handed_in, (entry_point, site));
    Some(record)
}

/// A user cancels a request; the node that is to hear of it, when it has the request.
pub fn cancel(grid: &mut Grid, number: u64) -> Option<(usize, RequestId)> {
    let id = names::request(number);
    let user = grid.users.get(&id)?;
    let entry_point = user.entry_point;
    if grid.negotiation(entry_point, &id).is_none() || matches!(user.report, Report::Over(_)) {
        return None;
    }
    grid.users.cancel(&id);
    grid.note(Some(&id), format_args!("the user cancels it"));
    Some((entry_point, id))
}

/// The user looks at the request at this node; what is reported from now on must stay true.
pub fn look(grid: &mut Grid, node: usize, id: &RequestId) {
    if grid.users.get(id).is_none_or(|user| user.entry_point != node) {
        return;
    }
    let running = grid.nodes[node].running();
    let Some(negotiation) = running.and_then(|running| running.machines.negotiations.get(id)) else { return };
    let may_differ = grid.truth.is_lied_about(id);
    match grid.users.look(id, negotiation.record().last_attempt, negotiation.stage(), may_differ) {
        Ok(None) => {}
        Ok(Some((before, news))) => {
            grid.note(Some(id), format_args!("the user sees: {news}"));
            checks::check_news(grid, node, id, &before);
            change_mind(grid, id);
        }
        Err(what) => grid.violate("a report stays true", Some(id), what),
    }
    checks::check_reported(grid, id);
    checks::check_together(grid, id);
}

/// Some users cancel at once what has just been reserved.
fn change_mind(grid: &mut Grid, id: &RequestId) {
    let Some(user) = grid.users.get(id) else { return };
    let (number, is_reserved) = (user.number, matches!(user.report, Report::Reserved { .. }));
    if is_reserved && !grid.is_healed && grid.random.random_range(0..100) < grid.options.cancel_percent {
        // Until about then sites may still ask what became of it.
        let after = grid.random.random_range(0..=grid.options.outcome_wait.0);
        grid.after(after, Event::Cancel { number });
    }
}

/// A node that the user of a request does not ask yet shows it: the user goes there if its term is the highest. Whether the user has
/// cancelled the request before, so that this node is to hear of it.
pub fn may_go_over(grid: &mut Grid, node: usize, id: &RequestId) -> bool {
    let Some(negotiation) = grid.negotiation(node, id) else { return false };
    let record = negotiation.record();
    if record.taken_over.is_empty() || matches!(record.decision, Decision::Closed(_)) {
        return false;
    }
    let statement = record.authorization.as_ref().and_then(|own| own.request.open::<RequestStatement>().ok());
    let Some(statement) = statement else { return false };
    if !grid.users.go_over(id, node, (statement.term, statement.entry_point)) {
        return false;
    }
    grid.note(Some(id), format_args!("the user is with s{node} now"));
    grid.users.get(id).is_some_and(|user| user.is_cancelled)
}

/// The user of a request asks this node, which runs, to coordinate it: the node looks up what sites have of it, as
/// `kolo repair` does.
pub fn go_to(grid: &mut Grid, node: usize, id: &RequestId) {
    let (name, sites) = (grid.name(), grid.nodes.len());
    if let Some(running) = grid.running(node) {
        running.lookups.insert(id.clone(), Lookup::new(name, sites));
    }
    grid.note(Some(id), format_args!("the user wants s{node} to take it over"));
    for to in 0..sites {
        let ask = grid.name();
        let question = Question::Lookup { request: id.clone(), name };
        grid.send(node, to, Body::Ask { ask, question, request: SiteRequest::Lookup(id.clone()) });
    }
    let until = grid.clock(node).monotonic + grid.options.answer_timeout;
    let until = grid.nodes[node].clock.when(until);
    grid.node_at(until, node, NodeEvent::LookedUp { request: id.clone(), name });
}

/// All sites have answered, or have had the time to: the user signs. What the node is to write before it acts on it, if there is
/// anything to take over.
pub fn sign_over(grid: &mut Grid, node: usize, id: &RequestId, name: u64) -> Option<RequestRecord> {
    let running = grid.running(node)?;
    if !running.lookups.get(id).is_some_and(|lookup| lookup.is_named(name)) {
        return None;
    }
    let lookup = running.lookups.remove(id)?;
    let user = grid.users.get(id).filter(|user| !user.is_cancelled)?;
    if !grid.nodes[node].can_take_over(id) {
        return None;
    }
    let mut answers = lookup.finish(node);
    let parts = answers.parts.iter_mut().map(|(_, part)| &mut part.variant);
    match grid.canary {
        Some(Canary::ShapeForgotten) => parts.for_each(|variant| variant.shape = ShapeNumber::default()),
        // That it is not scaled is refused where the request does not allow it.
        Some(Canary::FactorForgotten) => parts.for_each(|variant| {
            let scale = user.request.shape(variant.shape).and_then(Demand::scale);
            variant.scale = scale.map_or(Factor::ONE, |scale| *scale.range().start());
        }),
        _ => {}
    }
    if grid.canary == Some(Canary::ForgetSuccessors) {
        answers.coordinating.clear();
        answers.silent.clear();
    }
    let (number, request) = (user.number, user.request.clone());
    let now = grid.clock(node).utc;
    let starts = request.starts(now, Span(3_600)).unwrap_or((now, now));
    let known = grid.nodes[node].disk.requests.get(id);
    let (last_attempt, own) = known.map_or((0, None), |known| (known.last_attempt, known.present_statement()));
    let reported = answers.parts.iter().filter_map(|(_, part)| part.statement.open::<RequestStatement>().ok());
    let last = reported.chain(own).map(|statement| statement.term).max().unwrap_or_default();
    let longest = |demand: &Demand| {
        let least = demand.scale().map(|scale| *scale.range().start()).unwrap_or_default();
        least.length(demand.length().at_speed(Demands::slowest()))
    };
    let longest = request.shapes().map(longest).max().unwrap_or_default();
    let expires = grid.utc().max(starts.1) + longest + CLOCKS_DIFFER;
    let authorization = grid.authorize(node, (id, &request), number, (last + 1, expires));
    let name = format!("user {number}");
    let mut record = RequestRecord::arrived(id.clone(), name, request, authorization, grid.now().ms(), starts);
    record.last_attempt = last_attempt;
    match record.take_over(&answers) {
        Err(error) => {
            grid.note(Some(id), format_args!("s{node} does not: {error}"));
            None
        }
        Ok(record) => {
            grid.figures.taken_over += 1;
            checks::check_taken_over(grid, id, &record);
            grid.users.sign_for(id, node);
            if let Some(running) = grid.running(node) {
                running.machines.negotiations.remove(id);
            }
            Some(record)
        }
    }
}
