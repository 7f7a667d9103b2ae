//! `kolo batch submit`: each request of a batch is reserved as the batch has planned it; what cannot be had so is planned again alone.
//! With `--together` all of them are, or none.
//!
//! Otherwise every request has a submission of its own, so no request waits for another. Invariant: nothing is submitted before
//! all is planned and signed; however the command ends, it says of every request what is known of it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use broker::{
    batch::BatchLine,
    cost::Cost,
    ids::RequestId,
    negotiation::{HandedPlan, HandedSeat},
    scale::Factor,
    time::Time,
    variant::Variant,
};
use indicatif::{ProgressBar, ProgressStyle};
use kolo_api::{
    plan::{AllocatedPlan, LivePlan, PlannedHost},
    request_view::{RequestView, ReservationView, ReservedHost},
    together::TiedRequests,
};
use kolo_text::{
    time::format_time,
    words::{counted, or_dash},
};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    Context,
    batch::{Batch, batch_text},
    batch_file::{self, Reading},
};
use crate::{
    batch_args::BatchSubmitArgs,
    client::{Client, request_path},
    error::CliError,
    exit::Exit,
    output::{Look, Report, columns_but, remark, shows_progress},
    price::with_budgets,
    signing::{self, Submission},
};

/// Requests that are under way at a time.
const SIDE_BY_SIDE: usize = 32;
/// How long the node may keep one question open.
const POLL: Duration = Duration::from_secs(20);

/// Runs the command.
///
/// # Errors
/// [`CliError`] when nothing was submitted, or the command was interrupted.
pub fn run(context: &mut Context, args: &BatchSubmitArgs) -> Result<Exit, CliError> {
    let mut reading = Reading::at(context.time());
    let passed = args.postponed.as_deref().map(|file| reading.read_postponed(file)).transpose()?.unwrap_or_default();
    let batch = Batch::read(&args.batch, reading)?;
    if !passed.is_empty() {
        remark(&format!("the window of these has passed, they are dropped: {}", passed.join(", ")));
    }
    let client = context.connect_as(&args.key)?;
    let planned = batch.plan(context, &client, &args.key)?;
    let mut rows: Vec<Row> =
        batch.lines.iter().zip(&planned.plans).map(|(line, plan)| Row::new(&line.name, plan)).collect();
    let placed: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].plan.is_some()).collect();
    if args.together && placed.len() < rows.len() {
        // The others are not submitted, so there is nothing to tie together.
        context.output.print(&Submitted { requests: rows, batch: planned.batch })?;
        return Ok(Exit::NoPlacement);
    }
    let costs = placed.iter().map(|at| (batch.lines[*at].request.clone(), rows[*at].planned_cost)).collect();
    let limits = (args.batch.batch_budget.is_some(), context.usual_budget()?);
    let requests = with_budgets(&client, costs, limits)?;
    let plans = placed.iter().filter_map(|at| rows[*at].plan.clone());
    let planned_requests = requests.into_iter().zip(plans);
    let submissions = signing::planned_submissions(context, &client, &args.key, planned_requests, !args.together)?;
    if let Some(file) = &args.postponed {
        // Before the first is submitted, so that the next run submits none again.
        let postponed = batch.lines.iter().zip(&rows).filter(|(_, row)| row.plan.is_none());
        batch_file::write(file, postponed.map(|(line, _)| &line.document))?;
    }
    let begun = if args.together {
        let tied: TiedRequests = client.post("/v1/batches/submit", &json!({ "requests": submissions }))?;
        if tied.requests.len() != placed.len() {
            return Err(CliError::failed("the node's answer is not understood: not one request for each"));
        }
        tied.requests.into_iter().map(|view| Begun::Submitted(Box::new(view))).collect::<Vec<_>>()
    } else {
        submissions.into_iter().map(Begun::New).collect()
    };
    let is_interrupted = submit(&client, placed.into_iter().zip(begun).collect(), &mut rows)?;
    let exit = exit_of(&rows);
    context.output.print(&Submitted { requests: rows, batch: planned.batch })?;
    if is_interrupted {
        return Err(CliError::failed("interrupted; what was submitted goes on").hinted("kolo list says how it goes"));
    }
    Ok(exit)
}

/// What is known of one request.
#[derive(Debug, Serialize)]
struct Row {
    /// Its label, or the line that it is from.
    request: String,
    /// Its name in the grid, once it is submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<RequestId>,
    /// Its state; or `postponed`, `not submitted`, `unknown`.
    outcome: String,
    /// The factor by which it is scaled, in thousandths, where it is moldable.
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<Factor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<Time>,
    hosts: usize,
    /// What the reservation costs, if it costs anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
    /// Attempts that have met a conflict.
    conflicts: u32,
    /// Whether it is reserved at the start and on the hosts of the batch's plan.
    is_as_planned: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip)]
    plan: Option<HandedPlan>,
    #[serde(skip)]
    planned_cost: Cost,
    #[serde(skip)]
    exit: Exit,
}

impl Row {
    fn new(name: &str, plan: &LivePlan) -> Row {
        let (outcome, plan, planned_cost, reason) = match plan {
            LivePlan::Allocated(plan) => ("not submitted", Some(handed(plan)), plan.cost, None),
            LivePlan::Rejected(plan) => ("postponed", None, Cost::ZERO, Some(plan.reason.detail.clone())),
        };
        Row {
            request: name.to_owned(),
            id: None,
            outcome: outcome.to_owned(),
            scale: None,
            start: None,
            hosts: 0,
            cost: None,
            conflicts: 0,
            is_as_planned: false,
            reason,
            exit: if plan.is_some() { Exit::Failure } else { Exit::NoPlacement },
            plan,
            planned_cost,
        }
    }

    /// What the node says now.
    fn learn(&mut self, view: &RequestView) {
        self.id = Some(view.id.clone());
        self.outcome = view.state.words().to_owned();
        self.conflicts = view.conflicts;
        self.reason = view.reason.as_ref().map(|reason| reason.detail.clone());
        self.exit = Exit::of(view);
        if let Some(reservation) = view.reservation.as_ref().filter(|_| view.state.is_reserved()) {
            (self.start, self.hosts) = (Some(reservation.start), reservation.hosts.len());
            self.scale = reservation.scale;
            self.is_as_planned = self.plan.as_ref().is_some_and(|plan| is_same(plan, reservation));
            self.cost = Some(reservation.cost).filter(|cost| !cost.is_zero());
        }
    }

    fn fail(&mut self, error: &CliError) {
        let is_refused = self.id.is_none() && matches!(error, CliError::Problem { .. });
        self.outcome = if is_refused { "not submitted" } else { "unknown" }.to_owned();
        (self.reason, self.exit) = (Some(error.to_string()), error.exit());
    }
}

fn handed(plan: &AllocatedPlan) -> HandedPlan {
    let seat = |host: &PlannedHost| HandedSeat {
        site: host.site.clone(),
        host: host.id.clone(),
        end: host.end,
        amounts: host.amounts.clone(),
    };
    let Variant { shape, scale } = plan.variant();
    HandedPlan { start: plan.start, shape, scale, hosts: plan.hosts.iter().map(seat).collect() }
}

fn is_same(plan: &HandedPlan, reservation: &ReservationView) -> bool {
    let is_planned =
        |host: &ReservedHost| plan.hosts.iter().any(|planned| planned.site == host.site && planned.host == host.host);
    let variant = Variant { shape: plan.shape, scale: plan.scale };
    plan.start == reservation.start && variant == reservation.variant() && reservation.hosts.iter().all(is_planned)
}

/// What is followed to its end.
enum Begun {
    New(Submission),
    Submitted(Box<RequestView>),
}

/// What no thread has taken, with the places of their rows.
type Waiting = Mutex<VecDeque<(usize, Begun)>>;
type News = (usize, Result<Box<RequestView>, CliError>);

/// Submits and waits for the ends; whether the user has ended that before.
fn submit(client: &Client, submissions: VecDeque<(usize, Begun)>, rows: &mut [Row]) -> Result<bool, CliError> {
    let failed = |source| CliError::Io { doing: "submitting the batch", source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let progress = progress_bar(submissions.len());
    let (sender, receiver) = mpsc::channel(SIDE_BY_SIDE);
    let workers = SIDE_BY_SIDE.min(submissions.len());
    let waiting = Arc::new(Mutex::new(submissions));
    for _ in 0..workers {
        let (client, waiting, sender) = (client.clone(), waiting.clone(), sender.clone());
        // Not joined: when the wait ends first, the process does too.
        let work = move || while submit_next(&client, &waiting, &sender) {};
        thread::Builder::new().name("submit".to_owned()).spawn(work).map_err(failed)?;
    }
    drop(sender);
    let is_interrupted = runtime.block_on(listen(receiver, rows, &progress));
    progress.finish_and_clear();
    if is_interrupted {
        let left: Vec<usize> = locked(&waiting).drain(..).map(|(at, _)| at).collect();
        let is_asked = |(at, row): &(usize, &mut Row)| row.plan.is_some() && row.id.is_none() && !left.contains(at);
        rows.iter_mut().enumerate().filter(is_asked).for_each(|(_, row)| row.outcome = "unknown".to_owned());
    }
    Ok(is_interrupted)
}

/// Taking one from the front is one step: a thread that has panicked cannot have left it half-done.
fn locked(waiting: &Waiting) -> MutexGuard<'_, VecDeque<(usize, Begun)>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Submits one request and follows it to its end; whether there may be more to do.
fn submit_next(client: &Client, waiting: &Waiting, news: &mpsc::Sender<News>) -> bool {
    let next = locked(waiting).pop_front();
    let Some((at, begun)) = next else { return false };
    let mut answer: Result<RequestView, CliError> = match begun {
        Begun::New(submission) => client.post("/v1/requests", &submission),
        Begun::Submitted(view) => Ok(*view),
    };
    loop {
        let next = answer.as_ref().ok().filter(|view| !view.state.is_settled()).map(|view| {
            format!(
                "{}?until=settled&wait_ms={}&revision={}",
                request_path(view.id.as_str()),
                POLL.as_millis(),
                view.revision
            )
        });
        if news.blocking_send((at, answer.map(Box::new))).is_err() {
            return false;
        }
        let Some(path) = next else { return true };
        answer = client.get_waiting(&path, POLL);
    }
}

async fn listen(mut news: mpsc::Receiver<News>, rows: &mut [Row], progress: &ProgressBar) -> bool {
    let mut ended = 0;
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            biased;
            received = news.recv() => match received {
                None => return false,
                Some((at, answer)) => {
                    ended += u64::from(answer.as_ref().map_or(true, |view| view.state.is_settled()));
                    progress.set_position(ended);
                    match answer {
                        Ok(view) => rows[at].learn(&view),
                        Err(error) => rows[at].fail(&error),
                    }
                }
            },
            _ = &mut interrupt => return true,
        }
    }
}

fn progress_bar(requests: usize) -> ProgressBar {
    if !shows_progress() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(requests as u64);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} of {len} requests {elapsed}") {
        bar.set_style(style);
    }
    bar
}

/// Done when all are reserved; no placement when nothing else has gone wrong.
fn exit_of(rows: &[Row]) -> Exit {
    let unreserved = || rows.iter().filter(|row| row.exit != Exit::Done);
    match unreserved().find(|row| row.exit != Exit::NoPlacement) {
        Some(row) => row.exit,
        None if unreserved().next().is_some() => Exit::NoPlacement,
        None => Exit::Done,
    }
}

/// What `kolo batch submit` prints.
#[derive(Serialize)]
struct Submitted {
    requests: Vec<Row>,
    batch: BatchLine,
}

impl Report for Submitted {
    fn text(&self, look: &Look) -> String {
        let row = |row: &Row| {
            [
                or_dash(row.id.as_ref().map(ToString::to_string).unwrap_or_default()),
                row.request.clone(),
                row.outcome.clone(),
                or_dash(row.scale.map(|scale| scale.to_string()).unwrap_or_default()),
                or_dash(row.start.map(|start| format_time(start, &look.zone)).unwrap_or_default()),
                row.hosts.to_string(),
                or_dash(row.cost.map(|cost| cost.to_string()).unwrap_or_default()),
                or_dash(row.reason.clone().unwrap_or_default()),
            ]
        };
        let header = ["ID", "REQUEST", "OUTCOME", "SCALE", "START", "HOSTS", "COST", "REASON"];
        let table = columns_but(look, "SCALE", header, self.requests.iter().map(row));
        let reserved = || self.requests.iter().filter(|row| row.exit == Exit::Done);
        format!(
            "{table}{}\n{} of {} reserved, {} as planned\n",
            batch_text(&self.batch),
            reserved().count(),
            counted(self.requests.len(), "request"),
            reserved().filter(|row| row.is_as_planned).count()
        )
    }
    fn ids(&self) -> Vec<String> {
        self.requests
            .iter()
            .filter(|row| row.exit == Exit::Done)
            .filter_map(|row| row.id.as_ref())
            .map(ToString::to_string)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use broker::{ids::ShapeNumber, scale::Factor};
    use kolo_api::samples::view;

    use super::*;
    use crate::{
        output::OutputFormat,
        samples::{printed, serve},
    };

    fn planned() -> LivePlan {
        serde_json::from_value(json!({"id":"x","outcome":"allocated","start":1_763_712_000,"end":1_763_715_600,
            "objective":{"kind":"start","value":1_763_712_000,"bound":null},"cost":1_500,"hosts_seen":5,"hosts":[],
            "efficiency":0.5,"efficiency_bound":0.5,"start_proven":false,"phases_us":{},"schedules":[]}))
        .unwrap()
    }

    fn postponed() -> LivePlan {
        serde_json::from_value(json!({"id":null,"outcome":"rejected","reason":{"code":"postponed","detail":"no room"},
            "hosts_seen":5,"start_proven":false,"phases_us":{},"schedules":[]}))
        .unwrap()
    }

    #[test]
    fn a_reservation_of_another_variant_is_not_as_planned() {
        let reservation = view("confirmed", None).reservation.unwrap();
        let seat = |host: &ReservedHost| HandedSeat {
            site: host.site.clone(),
            host: host.host.clone(),
            end: host.end,
            amounts: host.amounts.clone(),
        };
        let hosts = reservation.hosts.iter().map(seat).collect();
        let (shape, scale) = (ShapeNumber::default(), Factor::default());
        let plan = HandedPlan { start: reservation.start, shape, scale, hosts };
        assert!(is_same(&plan, &reservation));
        for other in [
            ReservationView { scale: Some(Factor::of_thousandths(900)), ..reservation.clone() },
            ReservationView { shape: Some(ShapeNumber(1)), ..reservation.clone() },
            ReservationView { start: Time(reservation.start.0 + 1), ..reservation.clone() },
        ] {
            assert!(!is_same(&plan, &other));
        }
    }

    fn submission() -> Submission {
        let request = serde_json::from_value(json!({"hosts":3,"duration":7200})).unwrap();
        let plan = HandedPlan {
            start: Time(1_763_712_000),
            shape: Default::default(),
            scale: Default::default(),
            hosts: Vec::new(),
        };
        Submission::Planned { request: Box::new(request), plan, replans: true }
    }

    #[test]
    fn each_request_is_submitted_with_its_plan_and_followed_to_its_end() {
        let body = |state: &str, why| serde_json::to_string(&view(state, why)).unwrap();
        let answers = vec![
            ("201 Created", body("holding", None)),
            ("200 OK", body("confirmed", None)),
            ("400 Bad Request", r#"{"type":"about:blank","status":400,"title":"bad","detail":"plan: no"}"#.to_owned()),
        ];
        let (client, server) = serve(answers);
        let mut rows = vec![Row::new("a", &planned()), Row::new("b", &postponed()), Row::new("c", &planned())];
        // One after the other, since the node of the test answers so.
        for at in [0, 2] {
            let only = VecDeque::from([(at, Begun::New(submission()))]);
            assert!(!submit(&client, only, &mut rows).unwrap());
        }
        let asked = server.join().unwrap();
        assert!(asked[0].contains(r#""replans":true"#) && asked[0].starts_with("POST /v1/requests HTTP"), "{asked:?}");
        assert!(asked[1].starts_with("GET /v1/requests/r-42?until=settled"), "{asked:?}");
        assert_eq!(exit_of(&rows), Exit::Usage, "what went wrong says more than what had no room");
        assert_eq!(exit_of(&rows[..2]), Exit::NoPlacement);
        assert_eq!(exit_of(&rows[..1]), Exit::Done);
        let batch = json!({"policy":"slices:1","placed":2,"postponed":1,"makespan":3_600,"cost":0,"host_time":0,"finish_sum":0,
            "run_time":0,"objective":{"kind":"finish","value":7,"bound":7},"alternatives":3,"us":9});
        let submitted = Submitted { requests: rows, batch: serde_json::from_value(batch).unwrap() };
        assert_eq!(
            printed(&submitted, OutputFormat::Table),
            "ID    REQUEST  OUTCOME        START                      HOSTS  COST  REASON\n\
             r-42  a        confirmed      2025-11-21 08:00:00+00:00  3      -     -\n\
             -     b        postponed      -                          0      -     no room\n\
             -     c        not submitted  -                          0      -     plan: no\n\
             2 of 3 requests planned by slices:1; last end after 1h; finish 7s, the best\n\
             1 of 3 requests reserved, 0 as planned\n"
        );
        assert_eq!(printed(&submitted, OutputFormat::Quiet), "r-42\n");
    }
}
