//! The seats of a reservation that a command is about, and a job of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use broker::{
    ids::{RequestId, SeatNumber, SiteId},
    time::Time,
};
use discovery::STREAMS_PER_PEER_MAX;
use kolo_api::request_view::{RequestView, ReservedHost};
use kolo_seat::opening::{AttachOrder, Wish};
use tokio::{
    runtime::{self, Runtime},
    sync::mpsc,
};

use crate::{
    client::Client,
    error::CliError,
    run::{
        each::Each,
        input::{self, UserInput},
        job::{Job, JobEnd, NEWS_QUEUE, Shown, TOLD_QUEUE, Terms, code, interrupted},
        printer::Printer,
        seat::{Opener, Seat, nonce},
        terminal::Keys,
    },
    run_args::StdinTo,
};

/// The seats `on` of a reservation, or all, in their order.
///
/// # Errors
/// When there is no reservation, one of them is not there, or is lost.
pub fn chosen<'v>(view: &'v RequestView, on: &[u32]) -> Result<Vec<&'v ReservedHost>, CliError> {
    let reservation = view.reservation.as_ref().filter(|_| view.state.is_reserved()).ok_or_else(|| {
        let over = view.exit_code.map_or_else(String::new, |code| format!(", with exit code {code}"));
        let message = format!("request {} is {}{over}: it has no reservation", view.id, view.state);
        CliError::of_run(code::NO_RESERVATION, message)
    })?;
    let mut seats = numbered(reservation.hosts.iter().collect(), on, |host| host.seat)?;
    seats.sort_by_key(|host| host.seat);
    match seats.iter().find(|host| host.lost.is_some()) {
        Some(lost) => Err(CliError::of_run(
            code::NO_RESERVATION,
            format!("seat {} (host {} of {}) is lost", lost.seat, lost.host, lost.site_name),
        )
        .hinted(format!("kolo repair {} replaces it, or leave it out with --on", view.id))),
        None => Ok(seats),
    }
}

/// Those of all seats of a reservation that have the numbers `on`; all when there are none.
///
/// # Errors
/// When one is not there.
pub fn numbered<T>(mut seats: Vec<T>, on: &[u32], number: impl Fn(&T) -> SeatNumber) -> Result<Vec<T>, CliError> {
    let wanted: BTreeSet<SeatNumber> = on.iter().copied().map(SeatNumber).collect();
    let last = seats.len().saturating_sub(1);
    seats.retain(|seat| wanted.is_empty() || wanted.contains(&number(seat)));
    if seats.len() < wanted.len() {
        return Err(CliError::Usage(format!("--on: the reservation has the seats 0 to {last}")));
    }
    Ok(seats)
}

/// Whether the user's node carries streams to all these seats at once.
///
/// # Errors
/// When there are too many at one other site.
pub fn check_streams(client: &Client, hosts: &[&ReservedHost]) -> Result<(), CliError> {
    let mut seats = BTreeMap::<&SiteId, usize>::new();
    hosts.iter().for_each(|host| *seats.entry(&host.site).or_default() += 1);
    let many = |count: &usize| *count > STREAMS_PER_PEER_MAX;
    if !seats.values().any(many) {
        return Ok(());
    }
    let own = client.challenge("GET", "/v1/requests")?.site;
    match hosts.iter().find(|host| host.site != own && many(&seats[&host.site])) {
        None => Ok(()),
        Some(host) => {
            let (count, site) = (seats[&host.site], &host.site_name);
            let message = format!(
                "{count} seats are at site {site}, and a node reaches at most {STREAMS_PER_PEER_MAX} of another site at once"
            );
            let hint = format!(
                "choose some with --on, or call the node of {site} itself (--api), which reaches all of its own"
            );
            Err(CliError::of_run(code::NOT_READY, message).hinted(hint))
        }
    }
}

/// Whether only one seat is meant, as it is for a terminal.
///
/// # Errors
/// When there are several.
pub fn one<'v>(hosts: &[&'v ReservedHost]) -> Result<&'v ReservedHost, CliError> {
    check_one(hosts.len()).map(|()| hosts[0])
}

/// Whether so many seats are one.
///
/// # Errors
/// When they are not.
pub fn check_one(seats: usize) -> Result<(), CliError> {
    match seats {
        1 => Ok(()),
        _ => Err(CliError::Usage(format!("a terminal is for one seat, not for {seats}: name one, as by --on 0"))),
    }
}

/// What brings a user back to the last run of a seat.
pub fn attach(grid: &str, request: &RequestId, host: &ReservedHost) -> Result<Wish, CliError> {
    Ok(Wish::Attach(AttachOrder {
        grid: grid.to_owned(),
        site: host.site.clone(),
        request: request.clone(),
        seat: host.seat,
        run: None,
        issued: Time(0),
        expires: Time(0),
        nonce: nonce()?,
    }))
}

/// What all seats of a job share.
pub struct Common<'a> {
    pub client: &'a Client,
    pub opener: &'a Opener,
    pub terms: &'a Terms,
    pub stdin: StdinTo,
    /// The lines that the seats run, where they run lines of a file.
    pub each: Option<&'a Arc<Each>>,
    /// Whether output is followed to the end of the run.
    pub follows: bool,
    /// Whether the site may forget the run once its end was told.
    pub takes_end: bool,
    /// Where output goes, when not to the user.
    pub printer: Option<Arc<Printer>>,
}

fn runtime() -> Result<Runtime, CliError> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|source| CliError::Io { doing: "talking with the seats", source })
}

/// Does what has to wait for the network, until it is interrupted.
///
/// # Errors
/// Those of `work`, and that of an interrupt.
pub fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    runtime()?.block_on(async {
        tokio::select! {
            done = work => done,
            error = interrupted() => Err(error),
        }
    })
}

/// Runs a job of these seats, each with what is wanted of it; the first has rank 0.
///
/// # Errors
/// When not all could be made ready.
pub fn run(common: &Common<'_>, hosts: &[&ReservedHost], wishes: Vec<Wish>) -> Result<JobEnd, CliError> {
    let failed = |source| CliError::Io { doing: "running the command", source };
    let is_labelled = wishes.len() > 1 || common.each.is_some();
    let line_end = if common.terms.has_terminal { "\r\n" } else { "\n" };
    let printer = match &common.printer {
        Some(printer) => Arc::clone(printer),
        None if common.terms.detaches => Arc::new(Printer::silent()),
        None => Arc::new(Printer::new(is_labelled, line_end).map_err(failed)?),
    };
    let with_input = match common.stdin {
        StdinTo::First => 1,
        StdinTo::All => wishes.len(),
        StdinTo::None => 0,
    };
    let shown: BTreeMap<u32, Shown> = (0..)
        .zip(hosts)
        .map(|(rank, host)| (rank, Shown { host: host.host.to_string(), site: host.site_name.clone() }))
        .collect();
    let runtime = runtime()?;
    let end = runtime.block_on(async {
        let (tell, news) = mpsc::channel(NEWS_QUEUE);
        let inputs = match common.each {
            Some(each) => each.inputs(wishes.len()).into_iter().map(UserInput::of).collect(),
            None => input::of_stdin(with_input, common.terms.has_terminal.then(Keys::default)).map_err(failed)?,
        };
        let mut inputs = inputs.into_iter();
        let seat = |(rank, wish)| {
            let (to, told) = mpsc::channel(TOLD_QUEUE);
            let seat = Seat {
                client: common.client.clone(),
                opener: common.opener.clone(),
                rank,
                wish,
                printer: Arc::clone(&printer),
                news: tell.clone(),
                told,
                input: inputs.next(),
                each: common.each.cloned(),
                follows: common.follows,
                takes_end: common.takes_end,
            };
            (seat, to)
        };
        let seats = (0..).zip(wishes).map(seat).collect();
        drop(tell);
        Job::run(seats, news, &shown, (&printer, common.terms)).await
    });
    // Nothing that blocks is waited for.
    runtime.shutdown_background();
    let end = match (end?, common.each) {
        (JobEnd::Over(code), Some(each)) => JobEnd::Over(each.summary(code, |text| printer.remark(text))),
        (JobEnd::Unknown(code), Some(each)) => JobEnd::Unknown(each.summary(code, |text| printer.remark(text))),
        (end, _) => end,
    };
    let Some(source) = printer.take_failure() else { return Ok(end) };
    printer.remark(&CliError::output(source).to_string());
    // What was said is lost, so it is no success.
    Ok(match end {
        JobEnd::Over(0) => JobEnd::Over(code::UNKNOWN),
        JobEnd::Left(0) => JobEnd::Left(code::UNKNOWN),
        end => end,
    })
}
