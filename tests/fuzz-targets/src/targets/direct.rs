//! Direct requests and answers, read from a stream as a peer writes it.

use std::{cell::RefCell, sync::Arc, time::Duration};

use broker::{ids::SiteId, protocol::SiteRequest};
use discovery::{
    counters::Counters,
    wire::{self, Asked, Assembly, Codec, WireAnswer, WireRequest, check},
};
use futures::io::Cursor;
use libp2p::{StreamProtocol, request_response::Codec as _};
use tokio::runtime::{Builder, Runtime};

use super::golden::golden;
use crate::Target;

/// Requests of peers.
pub const ASK: Target = Target { name: "ask", run: ask, golden: || golden("request ") };
/// Answers of peers.
pub const ANSWER: Target = Target { name: "answer", run: answer, golden: || golden("answer ") };

const PROTOCOL: StreamProtocol = StreamProtocol::new("/kolo/fuzz/ask/7");

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
    // Two answers are the same when they are written the same.
    assert_eq!(wire::answer_bytes(&again), wire::answer_bytes(&answer));
    if let (WireAnswer::Schedules(schedules), Ok(site)) = (answer, SiteId::new("s")) {
        let Ok(Ok(snapshot)) = Assembly::of(Arc::unwrap_or_clone(schedules)).map(|parts| parts.finish(site)) else {
            return;
        };
        assert!(snapshot.schedules.hosts().count() <= check::UNITS_PER_SITE_MAX);
        assert!(snapshot.schedules.len() <= check::STEPS_PER_SITE_MAX);
        assert_eq!(check::check_snapshot(&snapshot), Ok(()));
    }
}
