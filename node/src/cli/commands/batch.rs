//! `kolo batch`: requests of a file that the node plans together, by its present view.
//!
//! Invariant: the whole file is read and checked before the node is asked anything.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    time::Duration,
};

use broker::{
    batch::{BatchLine, policy_named},
    ids::RequestId,
    offline::{LineError, read_document},
    phases::Settings,
    request::{Request, RequestDocument},
    time::Time,
};
use jiff::tz::TimeZone;
use serde::Serialize;

use super::{
    Context, batch_submit,
    plan_offline::{at_line, each_line, wrong_line},
};
use crate::{
    api::{
        batch::{BatchPlans, BatchQuestion, REQUESTS_MAX},
        plan::LivePlan,
    },
    cli::{
        batch_args::{BatchCommand, BatchCommandArgs, LiveBatchArgs},
        client::Client,
        error::CliError,
        exit::Exit,
        output::{Look, Report, columns},
    },
    text::{
        document::DocumentError,
        time::{format_duration, format_time},
        words::counted,
    },
};

/// How long the node may plan a batch.
const PLANNING: Duration = Duration::from_secs(120);

/// Runs the command.
///
/// # Errors
/// [`CliError`]; of a malformed file with its line and key.
pub fn run(context: &mut Context, args: &BatchCommandArgs) -> Result<Exit, CliError> {
    match &args.command {
        BatchCommand::Plan(args) => {
            let batch = Batch::read(args, context.time())?;
            let client = context.connect()?;
            let plans = batch.plan(&client)?;
            let exit = if plans.batch.postponed == 0 { Exit::Done } else { Exit::NoPlacement };
            context.output.print(&Planned { names: batch.names(), plans })?;
            Ok(exit)
        }
        BatchCommand::Submit(args) => batch_submit::run(context, args),
    }
}

/// One request of a file.
pub(super) struct Line {
    /// Its label, or `line-K`.
    pub name: String,
    pub request: Request,
}

/// A file of requests, and how they are planned.
pub(super) struct Batch {
    pub lines: Vec<Line>,
    question: BatchQuestion,
}

impl Batch {
    /// Reads and checks the file and the flags.
    ///
    /// # Errors
    /// [`CliError`] that names the flag, or file, line and key.
    pub fn read(args: &LiveBatchArgs, now: Time) -> Result<Batch, CliError> {
        policy_named(&args.policy).map_err(|error| CliError::of_flag("--policy", error))?;
        let input: Box<dyn Read> = if args.file == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            let source = File::open(&args.file);
            Box::new(source.map_err(|source| DocumentError::Read { file: args.file.clone(), source })?)
        };
        let (lines, requests) = read(&args.file, BufReader::new(input), now)?.into_iter().unzip();
        let question = BatchQuestion {
            requests,
            policy: args.policy.clone(),
            order: args.order,
            objective: args.batch_objective,
            budget: args.batch_budget,
            alternatives: args.alternatives.map(|count| count as usize),
            overlap: args.overlap,
        };
        Ok(Batch { lines, question })
    }

    /// Asks the node for a plan of each request.
    ///
    /// # Errors
    /// [`CliError`] when the node has none.
    pub fn plan(&self, client: &Client) -> Result<BatchPlans, CliError> {
        let plans: BatchPlans = client.post_waiting("/v1/batches/plan", &self.question, PLANNING)?;
        if plans.plans.len() != self.lines.len() {
            return Err(CliError::failed("the node's answer is not understood: not one plan a request"));
        }
        Ok(plans)
    }

    pub fn names(&self) -> Vec<String> {
        self.lines.iter().map(|line| line.name.clone()).collect()
    }
}

fn read(file: &Path, input: impl BufRead, now: Time) -> Result<Vec<(Line, RequestDocument)>, CliError> {
    let mut labels: BTreeMap<RequestId, usize> = BTreeMap::new();
    let mut lines = Vec::new();
    each_line(file, input, |number, text| {
        if lines.len() == REQUESTS_MAX {
            return Err(at_line(file, number, "", format!("a batch has at most {REQUESTS_MAX} requests")));
        }
        let document = read_document(number, text).map_err(|error| wrong_line(file, error))?;
        if document.shapes.is_some() {
            return Err(at_line(file, number, "shapes", "not yet supported in a batch".to_owned()));
        }
        if document.extends.is_some() {
            return Err(at_line(file, number, "extends", "not in a batch".to_owned()));
        }
        let wrong = |error| wrong_line(file, LineError::Request { line: number, error });
        let request = Request::try_from(document.clone()).map_err(wrong)?;
        request.starts(now, Settings::default().default_reach).map_err(wrong)?;
        if let Some(label) = request.id()
            && let Some(other) = labels.insert(label.clone(), number)
        {
            return Err(at_line(file, number, "id", format!("{label} is the id of line {other} as well")));
        }
        let name = request.id().map_or_else(|| format!("line-{number}"), ToString::to_string);
        lines.push((Line { name, request }, document));
        Ok(())
    })?;
    if lines.is_empty() {
        return Err(DocumentError::about(file, "", "a batch has at least one request; there is none").into());
    }
    Ok(lines)
}

/// What `kolo batch plan` prints.
#[derive(Serialize)]
struct Planned {
    #[serde(skip)]
    names: Vec<String>,
    #[serde(flatten)]
    plans: BatchPlans,
}

impl Report for Planned {
    fn text(&self, look: &Look) -> String {
        let rows = self.names.iter().zip(&self.plans.plans).map(|(name, plan)| plan_row(name, plan, &look.zone));
        let table = columns(look, ["REQUEST", "OUTCOME", "START", "END", "HOSTS", "COST", "REASON"], rows);
        format!("{table}{}\n", batch_text(&self.plans.batch))
    }
    fn ids(&self) -> Vec<String> {
        let is_placed = |plan: &LivePlan| matches!(plan, LivePlan::Allocated(_));
        let placed = self.names.iter().zip(&self.plans.plans).filter(|(_, plan)| is_placed(plan));
        placed.map(|(name, _)| name.clone()).collect()
    }
}

fn plan_row(name: &str, plan: &LivePlan, zone: &TimeZone) -> [String; 7] {
    let [outcome, start, end, hosts, cost, reason] = match plan {
        LivePlan::Allocated(plan) => [
            "possible".to_owned(),
            format_time(plan.start, zone),
            format_time(plan.end, zone),
            plan.hosts.len().to_string(),
            plan.cost.to_string(),
            "-".to_owned(),
        ],
        LivePlan::Rejected(plan) => {
            let dash = || "-".to_owned();
            ["postponed".to_owned(), dash(), dash(), dash(), dash(), plan.reason.detail.clone()]
        }
    };
    [name.to_owned(), outcome, start, end, hosts, cost, reason]
}

/// The line of the batch, for people.
pub(super) fn batch_text(batch: &BatchLine) -> String {
    let all = batch.placed + batch.postponed;
    let last = format_duration(Duration::from_secs(u64::try_from(batch.makespan).unwrap_or(0)));
    let objective = &batch.objective;
    let name = broker::batch::BatchObjective::ALL.iter().find(|(_, kind)| *kind == objective.kind);
    let name = name.map_or("", |(name, _)| *name).replace('_', " ");
    let best = match objective.bound {
        Some(bound) if bound == objective.value => ", the best".to_owned(),
        Some(bound) => format!(", at best {bound}"),
        None => String::new(),
    };
    format!(
        "{} of {} planned by {}; last end after {last}; {name} {}{best}",
        batch.placed,
        counted(all, "request"),
        batch.policy,
        objective.value
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{output::OutputFormat, samples::printed};

    fn read_text(text: &str) -> Result<Vec<String>, String> {
        let read = read(Path::new("r.jsonl"), text.as_bytes(), Time(1_000));
        let read = read.map_err(|error| format!("{} {error}", error.exit().code()))?;
        Ok(read.into_iter().map(|(line, _)| line.name).collect())
    }

    #[test]
    fn what_is_wrong_is_said_with_line_and_key() {
        let good = |id: &str| format!("{{\"id\":\"{id}\",\"hosts\":1,\"duration\":60}}\n");
        let plain = "{\"hosts\":1,\"duration\":60}\n";
        assert_eq!(read_text(&(good("a") + "\n" + plain)).unwrap(), ["a", "line-3"]);
        assert_eq!(read_text(&plain.repeat(1_000)).unwrap().len(), 1_000);
        for (text, expected) in [
            (String::new(), "64 r.jsonl: a batch has at least one request"),
            (plain.repeat(10_000), "64 r.jsonl:1001: a batch has at most 1000 requests"),
            (good("a") + &good("b") + &good("a"), "64 r.jsonl:3: id: a is the id of line 1 as well"),
            (plain.repeat(999) + "{\"hosts\":1,\"duration\":60,\"total\":7}", "64 r.jsonl:1000: total: invalid type"),
            (plain.repeat(999) + "{\"hosts\":1,\"duration\":0}", "64 r.jsonl:1000: duration: expected 1 to"),
            ("{\"hosts\":1,\"duration\":60,\"latest\":999}".to_owned(), "64 r.jsonl:1: latest"),
            ("{\"hosts\":1,\"duration\":60,\"extends\":\"r\"}".to_owned(), "64 r.jsonl:1: extends: not in a batch"),
            ("nonsense".to_owned(), "64 r.jsonl:1: "),
        ] {
            let error = read_text(&text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn plans_are_a_table_with_the_line_of_the_batch() {
        let plans = serde_json::json!({"schedules":[],"plans":[
            {"id":"x","outcome":"allocated","start":1_763_712_000,"end":1_763_715_600,
             "objective":{"kind":"start","value":1_763_712_000,"bound":null},"cost":1_500,"hosts_seen":5,"hosts":[{"id":"h1",
             "site":"12D3KooWaaaa1111","site_name":"","end":1_763_715_600,"amounts":{"cpu":500},"schedule_age_s":2}],
             "efficiency":0.5,"efficiency_bound":0.5,"start_proven":false,"phases_us":{},"schedules":[]},
            {"id":null,"outcome":"rejected","reason":{"code":"postponed","detail":"no room"},"hosts_seen":5,
             "start_proven":false,"phases_us":{},"schedules":[]}],
            "batch":{"policy":"slices:1","placed":1,"postponed":1,"makespan":3_600,"cost":1_500,"host_time":3_600,
             "finish_sum":3_600,"run_time":3_600,"objective":{"kind":"finish","value":3_600,"bound":null},
             "alternatives":3,"us":9}});
        let names = vec!["x".to_owned(), "line-2".to_owned()];
        let planned = Planned { names, plans: serde_json::from_value(plans).unwrap() };
        assert_eq!(
            printed(&planned, OutputFormat::Table),
            "REQUEST  OUTCOME    START                      END                        HOSTS  COST   REASON\n\
             x        possible   2025-11-21 08:00:00+00:00  2025-11-21 09:00:00+00:00  1      1.500  -\n\
             line-2   postponed  -                          -                          -      -      no room\n\
             1 of 2 requests planned by slices:1; last end after 1h; finish 3600\n"
        );
        assert_eq!(printed(&planned, OutputFormat::Quiet), "x\n");
        let json: serde_json::Value = serde_json::from_str(&printed(&planned, OutputFormat::Json)).unwrap();
        assert_eq!((&json["batch"]["postponed"], &json["plans"][0]["id"]), (&1.into(), &"x".into()));
    }
}
