//! Direct requests and answers, read from a stream as a peer writes it.

use std::{cell::RefCell, sync::Arc, time::Duration};

use broker::{
    ids::{HostId, RequestId, SeatNumber, SiteId},
    plan::Place,
    protocol::{
        AttemptId, AttemptStatus, FoundBooking, Grant, HoldRequest, LedgerVersion, Refusal, RefusalReason,
        ScheduleSnapshot, SiteAnswer, SiteRequest, TakeOverStep,
    },
    resources::Amounts,
    schedule::Schedule,
    time::{Millis, Time, Window},
    trust::{Authorization, Chain, Revocation, SignedText, Subject},
};
use discovery::{
    counters::Counters,
    wire::{self, Asked, Codec, WireAnswer, WireRequest, WireSchedules, check},
};
use ed25519_dalek::SigningKey;
use futures::io::Cursor;
use libp2p::{StreamProtocol, request_response::Codec as _};
use tokio::runtime::{Builder, Runtime};

use crate::{Seed, Target};

/// Requests of peers.
pub const ASK: Target = Target { name: "ask", run: ask, seeds: ask_seeds };
/// Answers of peers.
pub const ANSWER: Target = Target { name: "answer", run: answer, seeds: answer_seeds };

const PROTOCOL: StreamProtocol = StreamProtocol::new("/kolo/fuzz/ask/4");

thread_local! {
    /// Reading has a time limit, which needs a timer; the bytes are all there, so nothing ever waits for it.
    static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

fn wait_for<T>(work: impl Future<Output = T>) -> T {
    RUNTIME.with_borrow_mut(|runtime| {
        let started = || Builder::new_current_thread().enable_time().build().expect("a timer");
        runtime.get_or_insert_with(started).block_on(work)
    })
}

fn codec() -> Codec {
    Codec::new(wire::ASK_VERSIONS, Arc::new(Counters::default()), Duration::from_secs(60))
}

fn ask(data: &[u8]) {
    let asked = wait_for(codec().read_request(&PROTOCOL, &mut Cursor::new(data.to_vec())));
    let Ok(Asked::Request(request)) = asked else { return };
    let mut stream = Cursor::new(Vec::new());
    let written = wait_for(codec().write_request(&PROTOCOL, &mut stream, Asked::Request(request.clone())));
    written.expect("a request that was read can be written");
    stream.set_position(0);
    let again = wait_for(codec().read_request(&PROTOCOL, &mut stream)).expect("and read");
    assert_eq!(again, Asked::Request(request.clone()));
    if let WireRequest::Site(SiteRequest::Hold(hold) | SiteRequest::Book { hold, .. }) = request
        && hold.check().is_ok()
    {
        assert!(hold.grants.iter().all(|grant| grant.window.is_valid()));
        assert!(!hold.grants.is_empty() && !hold.participants.is_empty());
    }
}

fn answer(data: &[u8]) {
    let Ok(answer) = wait_for(codec().read_response(&PROTOCOL, &mut Cursor::new(data.to_vec()))) else { return };
    let mut stream = Cursor::new(Vec::new());
    let written = wait_for(codec().write_response(&PROTOCOL, &mut stream, answer.clone()));
    written.expect("an answer that was read can be written");
    stream.set_position(0);
    let again = wait_for(codec().read_response(&PROTOCOL, &mut stream)).expect("and read");
    // Two answers are the same when they are written the same; names that came twice came once more from neither.
    assert_eq!(wire::answer_bytes(&again), wire::answer_bytes(&answer));
    if let (WireAnswer::Schedules(schedules), Ok(site)) = (answer, SiteId::new("s")) {
        let snapshot = Arc::unwrap_or_clone(schedules).into_snapshot(site);
        assert!(snapshot.hosts.len() <= check::HOSTS_PER_SITE_MAX);
        if check::check_snapshot(&snapshot).is_ok() {
            let steps: usize = snapshot.hosts.iter().map(|(_, schedule)| check::steps_of(schedule)).sum();
            assert!(steps <= check::STEPS_PER_SITE_MAX);
        }
    }
}

fn attempt() -> Option<AttemptId> {
    let (entry_point, request) = (SiteId::new("e").ok()?, RequestId::new("r").ok()?);
    Some(AttemptId { entry_point, request, attempt: 3 })
}

fn some_amounts() -> Amounts {
    let amount = |name: &&str| Some((name.parse().ok()?, broker::amount::Amount(70_000)));
    ["cpu", "memory"].iter().filter_map(amount).collect()
}

/// A hold as it travels; what is signed is not a request, which the wire does not know.
fn hold(attempt: &AttemptId) -> Option<HoldRequest> {
    let site = attempt.entry_point.clone();
    let subject = Subject::Site(site.clone());
    let signed = Revocation { grid: "test".to_owned(), subject, revoked: Time::ZERO, keep_until: Time(1) };
    let request = SignedText::sign(&signed, &SigningKey::from_bytes(&[9; 32])).ok()?;
    let user = Some(Chain::of_root(request.clone()));
    Some(HoldRequest {
        attempt: attempt.clone(),
        grants: vec![Grant {
            seat: SeatNumber(2),
            place: Place::Host(HostId::new("h1").ok()?),
            window: Window { start: Time(1_000), end: Time(2_000) },
            amounts: some_amounts(),
        }],
        participants: vec![site],
        hold_for: Millis(10_000),
        authorization: Arc::new(Authorization { request, user, entry_point: None }),
    })
}

fn ask_seeds() -> Vec<Seed> {
    let Some(attempt) = attempt() else { return Vec::new() };
    let Some(hold) = hold(&attempt) else { return Vec::new() };
    let site = |request| WireRequest::Site(request);
    let (id, authorization) = (attempt.request.clone(), Arc::clone(&hold.authorization));
    let requests = [
        ("hold", site(SiteRequest::Hold(hold.clone()))),
        ("book", site(SiteRequest::Book { hold, incarnation: 1 << 40 })),
        ("confirm", site(SiteRequest::Confirm { attempt: attempt.clone(), held_in: 1 << 40 })),
        ("release", site(SiteRequest::Release(attempt.clone()))),
        ("settle", site(SiteRequest::Settle(attempt.clone()))),
        ("inquire", site(SiteRequest::Inquire(attempt.clone()))),
        ("inspect", site(SiteRequest::Inspect(attempt.clone()))),
        ("lookup", site(SiteRequest::Lookup(id))),
        ("takeover", site(SiteRequest::TakeOver { attempt, authorization, step: TakeOverStep::Commit })),
        ("revocations", WireRequest::Revocations { from: 300 }),
        ("schedules", WireRequest::Schedules(Some(LedgerVersion { incarnation: 9, change: 300 }))),
        ("advert", WireRequest::Advert),
        ("reach", WireRequest::DialBack),
        ("bookings", site(SiteRequest::Bookings { after: None })),
        ("adverts", WireRequest::Adverts(vec![(1, 2), (u64::MAX, 70_000)])),
    ];
    requests.into_iter().map(|(name, request)| (name, wire::request_bytes(&request))).collect()
}

fn answer_seeds() -> Vec<Seed> {
    let version = LedgerVersion { incarnation: 9, change: 300 };
    let (Ok(host), Ok(site)) = (HostId::new("h1"), SiteId::new("s")) else { return Vec::new() };
    let Some(hold) = attempt().and_then(|attempt| hold(&attempt)) else { return Vec::new() };
    let mut schedule = Schedule::default();
    schedule.add(Window { start: Time(1_000), end: Time(2_000) }, &some_amounts());
    let snapshot = ScheduleSnapshot { site: site.clone(), version, hosts: vec![(host.clone(), schedule)] };
    let statement = Arc::new(hold.authorization.request.clone());
    let HoldRequest { attempt, grants, participants, .. } = hold;
    let others = vec![attempt.clone()];
    let part = FoundBooking { attempt, grants, participants, statement };
    let refusal = Refusal { reason: RefusalReason::UnknownHost(host.clone()), version, hosts: Vec::new() };
    let status = SiteAnswer::Status { decision: Some(AttemptStatus::Aborted), booking: AttemptStatus::Pending };
    let answers = [
        ("schedules", WireAnswer::Schedules(Arc::new(WireSchedules::from_snapshot(snapshot)))),
        ("found", WireAnswer::Site(SiteAnswer::Found { parts: vec![part], is_coordinated: true, version })),
        (
            "booked",
            WireAnswer::Site(SiteAnswer::Booked {
                seats: vec![SeatNumber(2)],
                is_settled: true,
                before: Some(site.clone()),
                others,
                version,
            }),
        ),
        ("revocations", WireAnswer::Revocations { revocations: vec![vec![b'x'; 40]], total: 7 }),
        ("unchanged", WireAnswer::Unchanged(version)),
        ("held", WireAnswer::Site(SiteAnswer::Held { version, hold_for: Millis(10_000) })),
        ("refused", WireAnswer::Site(SiteAnswer::Refused(refusal))),
        ("status", WireAnswer::Site(status)),
        ("adverts", WireAnswer::Adverts { envelopes: vec![vec![1; 120], Vec::new()], is_complete: true }),
        ("busy", WireAnswer::Busy),
        ("not-understood", WireAnswer::NotUnderstood { kind: 99 }),
        ("reached", WireAnswer::DialedBack(true)),
    ];
    answers.into_iter().map(|(name, answer)| (name, wire::answer_bytes(&answer))).collect()
}
