//! What the use of hosts costs: what this site has earned, and what requests of this node have spent.
//!
//! Kolo moves no money: these are the records of what was agreed, for those who settle it among themselves. Invariant: what this site has
//! earned is told to those who may look at everything, what was spent to whoever may see the request; at most [`LINES_MAX`] of each.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Extension, Json, extract::State};
use broker::{
    cost::Cost,
    ids::{RequestId, SiteId},
    ledger::{Booking, Charge, ChargedFor},
    negotiation::{Decision, Due, Loss, Outcome, RequestRecord},
    plan::{Plan, Seat},
    time::{Time, Window},
};
use kolo_api::accounts::{AccountLine, AccountState, Accounts, ReservedPart, UsedLine};
use kolo_seat::used::{Used, add_up};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    extract::{Query, in_range},
    problem::Problem,
    scopes::Caller,
    state::ApiState,
};
use crate::site::promises::{reserved_until, windows};

/// Most lines of each kind, the newest.
const LINES_MAX: usize = 20_000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AccountsQuery {
    /// Most lines of each kind; the newest are kept.
    #[param(minimum = 1, maximum = 20_000)]
    lines: Option<usize>,
}

/// What hosts have cost, by what was agreed; nothing is paid here.
#[utoipa::path(get, path = "/accounts", tag = "grid", params(AccountsQuery), responses((status = 200, description = "Done", body = Accounts)))]
pub async fn show_accounts(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<AccountsQuery>,
) -> Result<Json<Accounts>, Problem> {
    let lines_max = in_range("lines", query.lines.unwrap_or(LINES_MAX), 1..=LINES_MAX)?;
    let now = state.coordinator.clock.now().utc;
    let mut earned = if caller.is_limited() { Vec::new() } else { earned(&state) };
    let snapshots = state.requests.snapshots();
    let mine = snapshots.iter().filter(|snapshot| caller.sees(&snapshot.record));
    let mut spent: Vec<AccountLine> = mine.flat_map(|snapshot| spent(&state, &snapshot.record, now)).collect();
    let has_more = !caller.is_limited() && state.ledger.charges().is_cut();
    let mut used = if caller.is_limited() { Vec::new() } else { used(&state, now).await };
    let are_cut = [
        keep_newest(&mut earned, lines_max, |line| &line.part),
        keep_newest(&mut spent, lines_max, |line| &line.part),
        keep_newest(&mut used, lines_max, |line| &line.part),
    ];
    Ok(Json(Accounts { earned, spent, used, is_cut: has_more || are_cut.contains(&true) }))
}

/// The newest lines in front, and no more than may be; whether some are left out.
fn keep_newest<T>(lines: &mut Vec<T>, lines_max: usize, part: impl Fn(&T) -> &ReservedPart) -> bool {
    lines.sort_by(|a, b| {
        let (a, b) = (part(a), part(b));
        (b.window.start, &b.request).cmp(&(a.window.start, &a.request))
    });
    let is_cut = lines.len() > lines_max;
    lines.truncate(lines_max);
    is_cut
}

/// The lines of use; none where no commands are run.
async fn used(state: &ApiState, now: Time) -> Vec<UsedLine> {
    let Some(keepers) = state.run_site.keepers().cloned() else { return Vec::new() };
    let standing = |booking: &Booking| {
        let Booking { attempt, user, user_key, grants, statement, .. } = booking;
        (!booking.is_held()).then(|| (attempt.clone(), user.clone(), *user_key, windows(grants), statement.clone()))
    };
    let standing: Vec<_> = state.ledger.lock().of_users().filter_map(standing).collect();
    // Reads files, and checks signatures.
    let added = tokio::task::spawn_blocking(move || {
        let reserved = standing.into_iter().filter_map(|(attempt, user, key, seats, statement)| {
            reserved_until(now, &attempt, (&user, key), &seats, statement.as_deref())
        });
        add_up(keepers.used(), reserved)
    });
    let line = |Used { user, request, window, seats, reserved_s, used_ms, cpu_ms, runs }| UsedLine {
        part: part_here(state, &user, &request, (window, seats)),
        runs,
        reserved_s,
        used_ms,
        cpu_ms,
    };
    added.await.unwrap_or_default().into_iter().map(line).collect()
}

/// A part of a reservation at this site.
fn part_here(state: &ApiState, user: &str, request: &RequestId, (window, seats): (Window, u32)) -> ReservedPart {
    let (user, request) = (user.to_owned(), request.clone());
    ReservedPart {
        user,
        site: state.discovery.site_id().clone(),
        site_name: state.name.clone(),
        request,
        window,
        seats,
    }
}

fn earned(state: &ApiState) -> Vec<AccountLine> {
    let of_charge = |charge: &Charge| AccountLine {
        part: part_here(state, &charge.user, &charge.attempt.request, (charge.window, charge.seats)),
        agreed: charge.agreed,
        charged: charge.charged,
        state: match charge.reason {
            ChargedFor::Use => AccountState::Over,
            ChargedFor::Cancellation => AccountState::Cancelled,
        },
    };
    let of_booking = |booking: &Booking| {
        let agreed: Cost = booking.grants.iter().map(|grant| grant.agreed.cost).sum();
        let is_counted = !booking.is_held() && agreed > Cost::ZERO;
        let seats = u32::try_from(booking.grants.len()).unwrap_or(u32::MAX);
        is_counted.then(|| AccountLine {
            part: part_here(state, &booking.user, &booking.attempt.request, (booking.window, seats)),
            agreed,
            charged: Cost::ZERO,
            state: AccountState::Stands,
        })
    };
    let mut lines: Vec<AccountLine> = state.ledger.charges().iter().map(of_charge).collect();
    lines.extend(state.ledger.lock().bookings().filter_map(of_booking));
    lines
}

fn spent(state: &ApiState, record: &RequestRecord, now: Time) -> Vec<AccountLine> {
    let line = |site: &SiteId, (window, seats): (Window, u32), agreed, charged, of_state| AccountLine {
        part: ReservedPart {
            user: record.user.clone(),
            site: site.clone(),
            site_name: state.site_name(site),
            request: record.id.clone(),
            window,
            seats,
        },
        agreed,
        charged,
        state: of_state,
    };
    let plan: Option<&Plan> = match (&record.reservation, &record.decision) {
        (_, Decision::Closed(Outcome::Cancelled(plan))) => plan.as_ref(),
        (Some(reservation), Decision::Reserved { .. }) => Some(&reservation.plan),
        (None, Decision::Reserved { plan, .. }) => Some(plan),
        _ => None,
    };
    let stands = matches!(record.decision, Decision::Reserved { .. });
    let mut by_site: BTreeMap<&SiteId, (Vec<Window>, Cost)> = BTreeMap::new();
    let is_taken_back = |seat: &&Seat| {
        let lost = record.reservation.as_ref().and_then(|reservation| reservation.lost.get(&seat.number));
        lost == Some(&Loss::TakenBack)
    };
    for seat in plan.into_iter().flat_map(|plan| &plan.seats).filter(|seat| !is_taken_back(seat)) {
        let (windows, cost) = by_site.entry(&seat.site).or_default();
        windows.push(seat.window);
        *cost = [*cost, seat.agreed.cost].into_iter().sum();
    }
    let none = Window { start: record.earliest, end: record.earliest };
    let size_at = |site: &SiteId| {
        let windows = by_site.get(site).map(|(windows, _)| windows.as_slice()).unwrap_or_default();
        (Window::hull(windows.iter().copied()).unwrap_or(none), u32::try_from(windows.len()).unwrap_or(u32::MAX))
    };
    let is_priced = |(_, (_, cost)): &(&&SiteId, &(Vec<Window>, Cost))| *cost > Cost::ZERO;
    let standing = by_site.iter().filter(is_priced).filter(|_| stands).map(|(site, (_, agreed))| {
        let size = size_at(site);
        let is_over = size.0.end <= now;
        let (charged, of_state) =
            if is_over { (*agreed, AccountState::Over) } else { (Cost::ZERO, AccountState::Stands) };
        line(site, size, *agreed, charged, of_state)
    });
    let given_back = record.dues.iter().map(|due: &Due| {
        let of_state = if due.is_final { AccountState::Cancelled } else { AccountState::Open };
        line(&due.site, (due.window, due.seats), due.agreed, due.cost, of_state)
    });
    standing.chain(given_back).collect()
}
