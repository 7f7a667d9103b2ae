//! Waiting for a request, with a progress line, a time limit, and Ctrl-C that ends the wait and not the request.
//!
//! The HTTP client blocks, so it works on a thread of its own and reports over a short queue; the command's thread
//! listens to it, to the clock and to the user. Invariant: once the node has the request, every way out says its id.

use std::{future, io, pin::pin, thread, time::Duration};

use broker::time::Time;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use kolo_api::request_view::{RequestState, RequestView, ReservedHost};
use kolo_text::{safe::safe, time::format_duration};
use tokio::{sync::mpsc, time::sleep};

use crate::{
    args::Goal,
    client::{Client, request_path},
    error::CliError,
    output::shows_progress,
    report::progress_text,
    signing::Submission,
};

/// How long the node may keep one question open; short enough that a dead node is noticed, long enough to cost nothing.
pub(super) const POLL: Duration = Duration::from_secs(20);
/// Views that the command has not looked at yet; the client waits when there are more.
const QUEUE: usize = 4;

type News = Result<Box<RequestView>, CliError>;

/// What a request is awaited to come to.
#[derive(Debug, Clone)]
pub struct Awaited {
    goal: Goal,
    /// The seats whose hosts count; all when it is empty.
    on: Vec<u32>,
}

impl From<Goal> for Awaited {
    fn from(goal: Goal) -> Awaited {
        Awaited { goal, on: Vec::new() }
    }
}

/// Hands `submission` over and waits until it is settled, or until `timeout`.
///
/// # Errors
/// [`CliError`] when the node cannot be asked, or the wait ended first.
pub fn submit_and_wait(
    client: Client,
    submission: Submission,
    timeout: Option<Duration>,
) -> Result<RequestView, CliError> {
    wait(client, &Goal::Settled.into(), timeout, move |client| client.post("/v1/requests", &submission))
}

/// Waits until the request that `begin` gives has come to what is `awaited`, or until `timeout`.
pub fn wait(
    client: Client,
    awaited: &Awaited,
    timeout: Option<Duration>,
    begin: impl FnOnce(&Client) -> Result<RequestView, CliError> + Send + 'static,
) -> Result<RequestView, CliError> {
    let failed = |source| CliError::Io { doing: "waiting for the request", source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let of_client = awaited.clone();
    // Not joined: when the wait ends first, the process does too.
    thread::Builder::new()
        .name("wait".to_owned())
        .spawn(move || {
            let first = begin(&client);
            follow(&client, &of_client, first, &sender);
        })
        .map_err(failed)?;
    let progress = progress_line();
    let result = runtime.block_on(listen(receiver, awaited, timeout, tokio::signal::ctrl_c(), &progress));
    progress.finish_and_clear();
    result
}

impl Awaited {
    /// The hosts of these seats, of a reservation that has begun; of all when there are none.
    pub fn hosts(on: &[u32]) -> Awaited {
        Awaited { goal: Goal::Hosts, on: on.to_vec() }
    }

    /// Whether `view` has come to the goal, or can no more.
    fn is_reached(&self, view: &RequestView) -> bool {
        match self.goal {
            _ if !view.state.is_reserved() => view.state.is_settled(),
            Goal::Settled => view.state.is_settled(),
            Goal::Start => has_begun(view),
            Goal::Hosts => view.state == RequestState::Ended || has_begun(view) && !self.is_open(view),
            Goal::End => view.state == RequestState::Ended,
        }
    }

    /// Whether one of the seats that count and are not lost may still get another host: hosts of a class are free until they begin, and until
    /// their owner's hook is done.
    fn is_open(&self, view: &RequestView) -> bool {
        let counts = |host: &&ReservedHost| self.on.is_empty() || self.on.contains(&host.seat.0);
        let mut hosts = view.reservation.iter().flat_map(|reservation| &reservation.hosts).filter(counts);
        hosts.any(|host| host.class.is_some() && host.lost.is_none())
    }
}

fn has_begun(view: &RequestView) -> bool {
    // Where it may begin later, the state alone does not say that it will not.
    let is_certain = view.begins_at() == view.reservation.as_ref().map(|reservation| reservation.start);
    view.state == RequestState::Ended
        || view.state == RequestState::Active && is_certain
        || until(view, Goal::Start) == 0
}

/// The path of the next view after `view`, which time alone changes in so many milliseconds, if it does.
pub(super) fn question(view: &RequestView, changes_ms: Option<u64>) -> String {
    let poll_ms = u64::try_from(POLL.as_millis()).unwrap_or(u64::MAX);
    // Time changes a state without a new revision; a little later, the node sees it too.
    let wait_ms = changes_ms.map_or(poll_ms, |changes_ms| changes_ms.saturating_add(200).min(poll_ms));
    format!("{}?wait_ms={wait_ms}&revision={}", request_path(view.id.as_str()), view.revision)
}

/// Milliseconds until this time.
pub(super) fn until_ms(at: Time) -> u64 {
    let milliseconds = at.0.saturating_mul(1000).saturating_sub(Timestamp::now().as_millisecond());
    u64::try_from(milliseconds).unwrap_or(0)
}

/// Milliseconds until it is certain that the reservation of `view` has begun, or until it ends; zero without one.
fn until(view: &RequestView, goal: Goal) -> u64 {
    let Some(reservation) = &view.reservation else { return 0 };
    until_ms(match goal {
        Goal::End => reservation.end,
        Goal::Hosts | Goal::Start => view.begins_at().unwrap_or(reservation.start),
        Goal::Settled => reservation.start,
    })
}

/// Asks the node until the request has come to what is `awaited`, or nobody listens any more.
fn follow(client: &Client, awaited: &Awaited, first: Result<RequestView, CliError>, news: &mpsc::Sender<News>) {
    let mut answer = first;
    loop {
        let next = answer.as_ref().ok().filter(|view| !awaited.is_reached(view)).map(|view| {
            // What has begun has its hosts with a new revision.
            let is_of_time = |until_ms: &u64| awaited.goal != Goal::Hosts || *until_ms > 0;
            let changes_ms = view.state.is_reserved().then(|| until(view, awaited.goal)).filter(is_of_time);
            question(view, changes_ms)
        });
        if news.blocking_send(answer.map(Box::new)).is_err() {
            return;
        }
        let Some(path) = next else { return };
        answer = client.get_waiting(&path, POLL);
    }
}

async fn listen(
    mut news: mpsc::Receiver<News>,
    awaited: &Awaited,
    timeout: Option<Duration>,
    interrupt: impl Future<Output = io::Result<()>>,
    progress: &ProgressBar,
) -> Result<RequestView, CliError> {
    let mut interrupt = pin!(interrupt);
    let mut time_over = pin!(async {
        match timeout {
            Some(timeout) => sleep(timeout).await,
            None => future::pending().await,
        }
    });
    let mut latest: Option<Box<RequestView>> = None;
    loop {
        tokio::select! {
            biased;
            received = news.recv() => match received {
                Some(Ok(view)) if awaited.is_reached(&view) => return Ok(*view),
                Some(Ok(view)) => {
                    progress.set_message(safe(&progress_text(&view)));
                    latest = Some(view);
                }
                Some(Err(error)) => return Err(error),
                // The thread ends only after it has sent the view that reaches the goal, or an error.
                None => return Err(interrupted(None)),
            },
            _ = &mut interrupt => {
                return Err(interrupted(latest.as_deref()));
            }
            () = &mut time_over => {
                let Some(view) = latest else { return Err(interrupted(None)) };
                let waited = format_duration(timeout.unwrap_or_default());
                let error = CliError::failed(format!("request {} is still {} after {waited}", view.id, view.state));
                return Err(error.hinted(goes_on(&view)));
            }
        }
    }
}

/// The user has ended the wait, before the node had answered or with `view` as its last answer.
fn interrupted(view: Option<&RequestView>) -> CliError {
    match view {
        Some(view) => CliError::failed(format!("interrupted; request {} goes on", view.id)).hinted(goes_on(view)),
        None => CliError::failed("interrupted before the node answered")
            .hinted("kolo list says whether the node has the request"),
    }
}

fn goes_on(view: &RequestView) -> String {
    format!("kolo show {0} says how it goes; kolo cancel {0} ends it", view.id)
}

/// A spinner with what is being done and how long already; hidden unless a person looks.
fn progress_line() -> ProgressBar {
    if !shows_progress() {
        return ProgressBar::hidden();
    }
    let line = ProgressBar::new_spinner().with_message("asking the node");
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        line.set_style(style);
    }
    line.enable_steady_tick(Duration::from_millis(100));
    line
}

#[cfg(test)]
mod tests {
    use broker::request::Request;
    use kolo_api::samples::view;

    use super::*;
    use crate::{exit::Exit, samples::serve};

    fn listen_to(
        views: Vec<News>,
        timeout: Option<Duration>,
        interrupt: impl Future<Output = io::Result<()>>,
    ) -> Result<RequestView, CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (sender, receiver) = mpsc::channel(QUEUE);
            for received in views {
                sender.send(received).await.unwrap();
            }
            let result = listen(receiver, &Goal::Settled.into(), timeout, interrupt, &ProgressBar::hidden()).await;
            drop(sender);
            result
        })
    }

    fn at(state: &str) -> News {
        Ok(Box::new(view(state, None)))
    }

    #[test]
    fn the_wait_ends_when_the_request_does() {
        let received = listen_to(vec![at("planning"), at("holding"), at("confirmed")], None, future::pending());
        assert!(received.unwrap().state.is_reserved());
        let error = CliError::failed("not understood");
        let error = listen_to(vec![at("planning"), Err(error)], None, future::pending()).unwrap_err();
        assert_eq!(error.to_string(), "not understood");
    }

    #[test]
    fn the_node_is_asked_until_the_request_is_settled() {
        let body = |state: &str| serde_json::to_string(&view(state, None)).unwrap();
        let (client, server) = serve(vec![("201 Created", body("planning")), ("200 OK", body("confirmed"))]);
        let request: Request = serde_json::from_str(r#"{"hosts":3,"duration":7200}"#).unwrap();
        let (sender, mut receiver) = mpsc::channel(QUEUE);
        let first = client.post("/v1/requests", &Submission::Plain(Box::new(request.clone())));
        follow(&client, &Goal::Settled.into(), first, &sender);
        let asked = server.join().unwrap();
        assert!(asked[0].starts_with("POST /v1/requests HTTP"), "{asked:?}");
        let (_, sent) = asked[0].split_once("\r\n\r\n").unwrap();
        assert_eq!(serde_json::from_str::<Request>(sent).unwrap(), request);
        assert!(asked[1].starts_with("GET /v1/requests/r-42?wait_ms=20000&revision=7 HTTP"), "{asked:?}");
        let received = [receiver.try_recv(), receiver.try_recv()].map(|news| news.unwrap().unwrap().state.words());
        assert_eq!(received, ["planning", "confirmed"]);
    }

    #[test]
    fn a_goal_is_reached_by_state_or_by_time() {
        let mut view = view("confirmed", None);
        let mut at = |state: &str, start: i64| {
            view.state = serde_json::from_value(state.into()).unwrap();
            view.reservation.as_mut().unwrap().start.0 = Timestamp::now().as_second() + start;
            [Goal::Settled, Goal::Start, Goal::End].map(|goal| Awaited::from(goal).is_reached(&view))
        };
        assert_eq!(at("confirmed", 3600), [true, false, false]);
        assert_eq!(at("degraded", -5), [true, true, false]);
        assert_eq!(at("active", -5), [true, true, false]);
        assert_eq!(at("ended", -5), [true, true, true]);
        assert_eq!(at("rebrokering", 3600), [false, false, false]);
        assert_eq!(at("cancelled", 3600), [true, true, true], "nothing more can come");

        at("active", -5);
        let is_reached = |on: &[u32], view: &RequestView| Awaited::hosts(on).is_reached(view);
        assert!(is_reached(&[], &view));
        let hosts = |view: &mut RequestView| view.reservation.as_mut().unwrap().hosts.clone();
        let mut open = hosts(&mut view);
        open[0].class = Some(open[0].host.clone());
        view.reservation.as_mut().unwrap().hosts = open.clone();
        assert!(!is_reached(&[], &view), "the owner's hook is not done");
        let (first, other) = (open[0].seat.0, open[1].seat.0);
        assert!(
            !is_reached(&[other, first], &view) && is_reached(&[other], &view),
            "only the seats that are meant count"
        );
        open[0].lost = Some(broker::negotiation::Loss::TakenBack);
        view.reservation.as_mut().unwrap().hosts = open;
        assert!(is_reached(&[], &view), "it has failed, and there is no other host");
    }

    #[test]
    fn an_interrupt_says_that_the_request_goes_on() {
        let error = listen_to(vec![at("planning")], None, future::ready(Ok(()))).unwrap_err();
        assert_eq!(error.to_string(), "interrupted; request r-42 goes on");
        let hint = error.hint().unwrap();
        assert!(hint.contains("kolo show r-42") && hint.contains("kolo cancel r-42"), "{hint}");
        let early = listen_to(vec![], None, future::ready(Ok(()))).unwrap_err();
        assert_eq!(early.to_string(), "interrupted before the node answered");
    }

    #[test]
    fn a_time_limit_ends_the_wait_only() {
        let error = listen_to(vec![at("holding")], Some(Duration::ZERO), future::pending()).unwrap_err();
        assert_eq!(error.to_string(), "request r-42 is still holding after 0s");
        assert_eq!(error.exit(), Exit::Failure);
    }
}
