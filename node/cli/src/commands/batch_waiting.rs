//! `kolo batch add`, `list`, `drop` and `run`: requests that wait at the node and are planned together with what has come since.
//!
//! Invariant: what is added is on the node's disk, all of a file or nothing; from then on nobody needs to wait here.

use std::time::Duration;

use broker::batch::policy_named;
use jiff::tz::TimeZone;
use kolo_api::{
    batch_run::{BatchRun, EveryQuestion, RunQuestion, RunsEvery},
    waiting::{WaitingList, WaitingState, WaitingView},
};
use kolo_text::{
    safe::safe,
    time::{format_duration, format_time},
    words::{moment_text, or_dash},
};

use super::{Context, batch::batch_text, batch_file::Reading};
use crate::{
    batch_args::{BatchAddArgs, BatchDropArgs, BatchRunArgs, Every},
    client::waiting_path,
    error::CliError,
    exit::Exit,
    output::{Look, Report, columns_but},
    price::with_budgets_to_wait,
    signing,
};

/// How long a run may take.
const RUNNING: Duration = Duration::from_mins(30);

/// Runs `kolo batch add`.
///
/// # Errors
/// [`CliError`]; of a malformed file with its line and key.
pub fn add(context: &mut Context, args: &BatchAddArgs) -> Result<Exit, CliError> {
    let mut reading = Reading::at(context.time());
    reading.read(&args.file)?;
    let requests = reading.done(&args.file)?.into_iter().map(|line| line.request).collect();
    let client = context.connect_as(&args.key)?;
    let requests = with_budgets_to_wait(&client, requests, context.usual_budget()?)?;
    let question = signing::to_wait(context, &client, &args.key, requests)?;
    let added: WaitingList = client.post("/v1/batches/waiting", &question)?;
    context.done(&added)
}

/// Runs `kolo batch list`.
///
/// # Errors
/// [`CliError`]
pub fn list(context: &mut Context) -> Result<Exit, CliError> {
    let list: WaitingList = context.connect()?.get("/v1/batches/waiting")?;
    context.done(&list)
}

/// Runs `kolo batch drop`.
///
/// # Errors
/// [`CliError`], also when nothing of the user's is called so.
pub fn drop_one(context: &mut Context, args: &BatchDropArgs) -> Result<Exit, CliError> {
    if args.id.is_empty() {
        return Err(CliError::Usage("expected the id of a request that waits, its beginning, or a label".to_owned()));
    }
    let dropped: WaitingView = context.connect()?.delete(&waiting_path(&args.id))?;
    context.done(&dropped)
}

/// Runs `kolo batch run`.
///
/// # Errors
/// [`CliError`]
pub fn run(context: &mut Context, args: &BatchRunArgs) -> Result<Exit, CliError> {
    if let Some(policy) = &args.policy {
        policy_named(policy).map_err(|error| CliError::of_flag("--policy", error))?;
    }
    let how = RunQuestion { policy: args.policy.clone(), order: args.order, objective: args.batch_objective };
    if let Some(Every(every)) = args.every {
        let question = EveryQuestion { every_s: every.map(|every| every.as_secs()), how };
        let runs: RunsEvery = context.connect()?.post("/v1/batches/every", &question)?;
        return context.done(&runs);
    }
    let done: BatchRun = context.connect()?.post_waiting("/v1/batches/run", &how, RUNNING)?;
    let is_reserved = |view: &WaitingView| view.request_state.is_some_and(|state| state.was_reserved());
    let exit = if done.requests.iter().all(is_reserved) { Exit::Done } else { Exit::NoPlacement };
    context.output.print(&done)?;
    Ok(exit)
}

impl Report for RunsEvery {
    fn text(&self, _: &Look) -> String {
        every_text(self.every_s)
    }
    fn ids(&self) -> Vec<String> {
        Vec::new()
    }
}

/// How often the node runs batches, for people.
fn every_text(every_s: Option<u64>) -> String {
    match every_s {
        Some(every_s) => format!("the node plans what waits every {}\n", format_duration(Duration::from_secs(every_s))),
        None => "the node plans what waits when it is asked to (kolo batch run)\n".to_owned(),
    }
}

impl Report for WaitingList {
    fn text(&self, look: &Look) -> String {
        table(&self.requests, look) + &every_text(self.every_s)
    }
    fn ids(&self) -> Vec<String> {
        self.requests.iter().map(|view| view.id.to_string()).collect()
    }
}

impl Report for BatchRun {
    fn text(&self, look: &Look) -> String {
        let batch = self.batch.as_ref().map(|batch| batch_text(batch) + "\n").unwrap_or_default();
        table(&self.requests, look) + &batch
    }
    fn ids(&self) -> Vec<String> {
        let submitted = self.requests.iter().filter(|view| view.state == WaitingState::Submitted);
        submitted.map(|view| view.id.to_string()).collect()
    }
}

impl Report for WaitingView {
    fn text(&self, _: &Look) -> String {
        let rest = if self.state == WaitingState::Submitted { "; its request goes on" } else { "" };
        format!("dropped {}{rest}\n", safe(self.id.as_str()))
    }
    fn ids(&self) -> Vec<String> {
        vec![self.id.to_string()]
    }
}

fn table(views: &[WaitingView], look: &Look) -> String {
    if views.is_empty() {
        return "no request waits\n".to_owned();
    }
    let header = ["ID", "LABEL", "STATE", "SCALE", "HOSTS", "ADDED", "STARTS BY", "REASON"];
    columns_but(look, "SCALE", header, views.iter().map(|view| row(view, &look.zone)))
}

fn row(view: &WaitingView, zone: &TimeZone) -> [String; 8] {
    let state = match (view.state, view.request_state) {
        (WaitingState::Waiting, _) => "waiting".to_owned(),
        (WaitingState::Postponed, _) => format!("postponed ({})", view.postponed),
        (WaitingState::Submitted, Some(state)) => state.words().to_owned(),
        (WaitingState::Submitted, None) => "submitted".to_owned(),
        (WaitingState::Passed, _) => "passed".to_owned(),
        (WaitingState::Refused, _) => "not taken".to_owned(),
    };
    [
        view.id.to_string(),
        or_dash(view.label.as_ref().map(ToString::to_string).unwrap_or_default()),
        state,
        or_dash(view.scale.map(|scale| scale.to_string()).unwrap_or_default()),
        view.request.demand().seats().to_string(),
        moment_text(view.added_ms, zone),
        format_time(view.latest, zone),
        or_dash(view.reason.clone().unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn what_waits_is_a_table_and_says_what_became_of_it() {
        let view = |id: &str, keys: &str| -> WaitingView {
            let text = format!(
                r#"{{"id":"{id}","label":null,"user":"ada","added_ms":1763700000000,"latest":1763712000,
                "request":{{"hosts":3,"duration":7200}},{keys}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let requests = vec![
            view("r-1", r#""state":"postponed","postponed":2,"reason":"no room\u001b[31m""#),
            view("r-2", r#""state":"waiting","postponed":0"#),
            view("r-3", r#""state":"submitted","postponed":0,"request_state":"confirmed""#),
            view("r-4", r#""state":"passed","postponed":1"#),
            view("r-5", r#""state":"refused","postponed":0,"reason":"revoked""#),
        ];
        let list = WaitingList { requests: requests.clone(), every_s: Some(600) };
        assert_eq!(
            printed(&list, OutputFormat::Table),
            "ID   LABEL  STATE          HOSTS  ADDED                      STARTS BY                  REASON\n\
             r-1  -      postponed (2)  3      2025-11-21 04:40:00+00:00  2025-11-21 08:00:00+00:00  no room\\u{1b}[31m\n\
             r-2  -      waiting        3      2025-11-21 04:40:00+00:00  2025-11-21 08:00:00+00:00  -\n\
             r-3  -      confirmed      3      2025-11-21 04:40:00+00:00  2025-11-21 08:00:00+00:00  -\n\
             r-4  -      passed         3      2025-11-21 04:40:00+00:00  2025-11-21 08:00:00+00:00  -\n\
             r-5  -      not taken      3      2025-11-21 04:40:00+00:00  2025-11-21 08:00:00+00:00  revoked\n\
             the node plans what waits every 10m\n"
        );
        let scaled = view("r-6", r#""state":"submitted","postponed":0,"request_state":"confirmed","scale":500"#);
        let list = printed(&WaitingList { requests: vec![scaled], every_s: None }, OutputFormat::Table);
        assert!(list.contains("STATE      SCALE  HOSTS") && list.contains("confirmed  0.5    3"), "{list}");
        let run = BatchRun { requests, batch: None };
        assert_eq!(printed(&run, OutputFormat::Quiet), "r-3\n");
        assert_eq!(printed(&run.requests[2], OutputFormat::Table), "dropped r-3; its request goes on\n");
        assert_eq!(
            printed(&WaitingList { requests: vec![], every_s: None }, OutputFormat::Table),
            "no request waits\nthe node plans what waits when it is asked to (kolo batch run)\n"
        );
    }
}
