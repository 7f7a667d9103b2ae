//! What is said to a ledger, and by whom, drawn from bytes.

use std::sync::{Arc, LazyLock};

use fuzz_support::{Input, Seed};

use super::super::words;
use crate::{
    amount::Amount,
    ids::SiteId,
    protocol::{AttemptId, Grant, HoldRequest, SiteRequest},
    time::{Millis, Time},
    trust::{Authorization, RequestStatement, testing},
};

const REQUESTS: [&str; 4] = ["r0", "r1", "r2", "r3"];
const ENTRY_POINTS: [&str; 2] = ["e0", "e1"];
/// Every request lasts this long, as its user has signed.
const DURATION_S: u64 = 100;
/// When everything begins.
pub(super) const BEGIN: i64 = 1_000;
/// The user of all bookings, and another one, whose word about them is worth nothing.
const USERS: [u64; 2] = [1, 2];
/// A user signs for one node so many times, each time later than before.
const TIMES: i64 = 3;

/// What a user has signed of one request for one node, the earliest first.
type Words = Vec<Arc<Authorization>>;

/// What the users have signed, by user, node and request.
static SIGNED: LazyLock<[[[Words; 4]; 2]; 2]> = LazyLock::new(|| {
    let text = r#"{"hosts":2,"duration":100,"total":{"cpu":9000,"memory":300}}"#;
    let request = serde_json::from_str(text).expect("a legal request");
    let sign = |user: u64, entry_point: &str, id: &str, issued: i64| {
        let statement = testing::statement(&words::site(entry_point), &words::request_id(id), &request);
        let statement = RequestStatement { issued: Time(issued), ..statement };
        let request = testing::sign(&statement, &testing::key(user));
        Arc::new(Authorization { request, user: None, entry_point: None })
    };
    let of_request = |user, entry_point, id| (0..TIMES).map(|issued| sign(user, entry_point, id, issued)).collect();
    USERS.map(|user| ENTRY_POINTS.map(|entry_point| REQUESTS.map(|id| of_request(user, entry_point, id))))
});

pub(super) fn some_attempt(input: &mut Input<'_>) -> (usize, usize, AttemptId) {
    let (entry_point, request) = (usize::from(input.below(2)), usize::from(input.below(4)));
    let attempt = AttemptId {
        entry_point: words::site(ENTRY_POINTS[entry_point]),
        request: words::request_id(REQUESTS[request]),
        attempt: u32::from(input.below(4)),
    };
    (entry_point, request, attempt)
}

pub(super) fn some_request(input: &mut Input<'_>, incarnation: u64) -> SiteRequest {
    let kind = input.below(15);
    let (entry_point, request, attempt) = some_attempt(input);
    match kind {
        0..5 => SiteRequest::Hold(some_hold(input, entry_point, request, attempt)),
        5 | 6 => SiteRequest::Confirm { attempt, held_in: if input.below(8) == 0 { 0 } else { incarnation } },
        7 => SiteRequest::Release(attempt),
        8 => SiteRequest::Settle(attempt),
        9 => SiteRequest::Inquire(attempt),
        10 => SiteRequest::Inspect(attempt),
        11 => SiteRequest::Lookup(attempt.request),
        12 | 13 => SiteRequest::TakeOver { attempt, authorization: some_word(input, request) },
        _ => SiteRequest::GiveBack { attempt, authorization: some_word(input, request) },
    }
}

/// What makes a node act for the request: mostly of its user.
fn some_word(input: &mut Input<'_>, request: usize) -> Arc<Authorization> {
    let (carrier, time) = (usize::from(input.below(2)), usize::from(input.below(3)));
    let user = usize::from(input.below(16) == 15);
    SIGNED[user][carrier][request][time].clone()
}

/// The node that the user has signed it for.
pub(super) fn carrier_of(authorization: &Authorization) -> Option<SiteId> {
    authorization.request.open().ok().map(|signed: RequestStatement| signed.entry_point)
}

fn some_hold(input: &mut Input<'_>, entry_point: usize, request: usize, attempt: AttemptId) -> HoldRequest {
    let mut grants = Vec::new();
    for _ in 0..=input.below(2) {
        let host = words::host_id(input.one_of(&["h0", "h1", "h2", "h9"]));
        let mut amounts = words::amounts([("cpu", u64::from(input.byte()) * 18)]);
        if input.flag() {
            amounts.insert(words::resource("memory"), Amount(u64::from(input.byte())));
        }
        grants.push(Grant { host, amounts });
    }
    let participants = if input.below(16) == 0 { vec!["other"] } else { vec!["other", "site"] };
    HoldRequest {
        attempt,
        window: words::window(BEGIN - 100 + i64::from(input.byte()) * 5, DURATION_S),
        grants,
        participants: participants.into_iter().map(words::site).collect(),
        hold_for: Millis(1 + u64::from(input.byte()) * 400),
        authorization: SIGNED[0][entry_point][request][0].clone(),
    }
}

/// Who may send it.
pub(super) fn sender_of(request: &SiteRequest) -> Option<&'static str> {
    let site = match request {
        SiteRequest::Hold(HoldRequest { attempt, .. })
        | SiteRequest::Confirm { attempt, .. }
        | SiteRequest::Release(attempt)
        | SiteRequest::Settle(attempt)
        | SiteRequest::Inspect(attempt) => attempt.entry_point.clone(),
        SiteRequest::TakeOver { authorization, .. } | SiteRequest::GiveBack { authorization, .. } => {
            carrier_of(authorization)?
        }
        _ => return None,
    };
    ENTRY_POINTS.into_iter().find(|name| *name == site.as_str())
}

pub(super) fn seeds() -> Vec<Seed> {
    // Operation, sender, kind, entry point, request, attempt; then what the kind needs, then whether from a stranger.
    let hold = |request: u8, start: u8, cpu: u8| vec![0, 0, 0, 0, request, 1, 0, 0, cpu, 0, 1, start, 25, 1];
    let confirm = |request: u8| vec![0, 0, 5, 0, request, 1, 1, 1];
    let release = |request: u8| vec![0, 0, 7, 0, request, 1, 1];
    let settle = |request: u8| vec![0, 0, 8, 0, request, 1, 1];
    // By which node and word.
    let take_over = |node: u8, time: u8| vec![0, 1, 12, 0, 0, 1, node, time, 0, 1];
    let give_back = |node: u8, time: u8| vec![0, 1, 14, 0, 0, 1, node, time, 0, 1];
    let (wait, forget, crash) = (vec![12, 60], vec![14], vec![15]);
    vec![
        ("reserved", [hold(0, 40, 100), confirm(0), settle(0), crash.clone()].concat()),
        ("rivals", [hold(0, 40, 200), hold(1, 45, 100), release(0), hold(1, 45, 100), confirm(1)].concat()),
        ("taken-over", [hold(0, 40, 100), confirm(0), take_over(1, 0), release(0), vec![0, 1, 7, 0, 0, 1, 0]].concat()),
        (
            "given-back",
            [
                [hold(0, 40, 100), confirm(0), take_over(1, 0), take_over(0, 1)].concat(),
                [give_back(1, 0), give_back(0, 0), release(0), give_back(0, 1), hold(0, 40, 100)].concat(),
            ]
            .concat(),
        ),
        ("third", [hold(0, 40, 100), hold(1, 40, 110), release(0), hold(2, 40, 200)].concat()),
        ("lapsed", [hold(0, 40, 100), wait.clone(), confirm(0), hold(0, 40, 1)].concat()),
        ("running", [hold(0, 20, 100), confirm(0), wait, forget, release(0), crash].concat()),
    ]
}
