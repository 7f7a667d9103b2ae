//! `kolo batch`: requests that the node plans together, by its present view.
//!
//! Invariant: the whole file is read and checked before the node is asked anything.

use std::time::Duration;

use broker::{
    batch::{BatchLine, BatchObjective, ByItself, policy_named},
    cost::Cost,
    time::Span,
};
use jiff::tz::TimeZone;
use kolo_api::{
    batch::{BatchPlans, BatchQuestion},
    plan::LivePlan,
};
use kolo_text::{
    safe::safe,
    time::{format_duration, format_span, format_time},
    words::counted,
};
use serde::Serialize;

use super::{
    Context,
    batch_file::{Line, Reading},
    batch_submit, batch_waiting,
};
use crate::{
    batch_args::{BatchCommand, BatchCommandArgs, LiveBatchArgs},
    client::Client,
    error::CliError,
    exit::Exit,
    grid_args::KeyArgs,
    output::{Look, Report, columns_but},
    signing,
};

/// How long the node may plan a batch.
const PLANNING: Duration = Duration::from_secs(120);
/// Requests that were planned by themselves and are named to people; JSON has them all.
const APART_SHOWN: usize = 8;

/// Runs the command.
///
/// # Errors
/// [`CliError`]; of a malformed file with its line and key.
pub fn run(context: &mut Context, args: &BatchCommandArgs) -> Result<Exit, CliError> {
    match &args.command {
        BatchCommand::Plan(args) => {
            let batch = Batch::read(args, Reading::at(context.time()))?;
            let client = context.connect()?;
            let plans = batch.plan(context, &client, &KeyArgs::default())?;
            let exit = if plans.batch.postponed == 0 { Exit::Done } else { Exit::NoPlacement };
            context.output.print(&Planned { names: batch.names(), plans })?;
            Ok(exit)
        }
        BatchCommand::Submit(args) => batch_submit::run(context, args),
        BatchCommand::Add(args) => batch_waiting::add(context, args),
        BatchCommand::List => batch_waiting::list(context),
        BatchCommand::Drop(args) => batch_waiting::drop_one(context, args),
        BatchCommand::Run(args) => batch_waiting::run(context, args),
    }
}

/// A file of requests, and how they are planned.
pub(super) struct Batch {
    pub lines: Vec<Line>,
    question: BatchQuestion,
}

impl Batch {
    /// Reads and checks the flags and the file, behind what `reading` has, which keeps precedence.
    ///
    /// # Errors
    /// [`CliError`] that names the flag, or file, line and key.
    pub fn read(args: &LiveBatchArgs, mut reading: Reading) -> Result<Batch, CliError> {
        policy_named(&args.policy).map_err(|error| CliError::of_flag("--policy", error))?;
        let first = reading.count();
        reading.read(&args.file)?;
        let lines = reading.done(&args.file)?;
        let requests = lines.iter().map(|line| line.document.clone()).collect();
        let question = BatchQuestion {
            requests,
            policy: args.policy.clone(),
            order: args.order,
            objective: args.batch_objective,
            budget: args.batch_budget.map(|budget| budget.0),
            alternatives: args.alternatives.map(|count| count as usize),
            overlap: args.overlap,
            first,
            asker: None,
        };
        Ok(Batch { lines, question })
    }

    /// Asks the node for a plan of each request, for whoever signs with this key.
    ///
    /// # Errors
    /// [`CliError`] when the node has none.
    pub fn plan(&self, context: &Context, client: &Client, key: &KeyArgs) -> Result<BatchPlans, CliError> {
        let question = BatchQuestion { asker: signing::asker(context, client, key)?, ..self.question.clone() };
        let plans: BatchPlans = client.post_waiting("/v1/batches/plan", &question, PLANNING)?;
        if plans.plans.len() != self.lines.len() {
            return Err(CliError::failed("the node's answer is not understood: not one plan a request"));
        }
        Ok(plans)
    }

    pub fn names(&self) -> Vec<String> {
        self.lines.iter().map(|line| line.name.clone()).collect()
    }
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
        let header = ["REQUEST", "OUTCOME", "SCALE", "START", "END", "HOSTS", "COST", "REASON"];
        let table = columns_but(look, "SCALE", header, rows);
        format!("{table}{}\n", batch_text(&self.plans.batch))
    }
    fn ids(&self) -> Vec<String> {
        let is_placed = |plan: &LivePlan| matches!(plan, LivePlan::Allocated(_));
        let placed = self.names.iter().zip(&self.plans.plans).filter(|(_, plan)| is_placed(plan));
        placed.map(|(name, _)| name.clone()).collect()
    }
}

fn plan_row(name: &str, plan: &LivePlan, zone: &TimeZone) -> [String; 8] {
    let [outcome, scale, start, end, hosts, cost, reason] = match plan {
        LivePlan::Allocated(plan) => [
            "possible".to_owned(),
            plan.scale.map_or_else(|| "-".to_owned(), |scale| scale.to_string()),
            format_time(plan.start, zone),
            format_time(plan.end, zone),
            plan.hosts.len().to_string(),
            plan.cost.to_string(),
            "-".to_owned(),
        ],
        LivePlan::Rejected(plan) => {
            let dash = || "-".to_owned();
            ["postponed".to_owned(), dash(), dash(), dash(), dash(), dash(), plan.reason.detail.clone()]
        }
    };
    [name.to_owned(), outcome, scale, start, end, hosts, cost, reason]
}

/// The line of the batch, for people.
pub(super) fn batch_text(batch: &BatchLine) -> String {
    let all = batch.placed + batch.postponed;
    let last = format_duration(Duration::from_secs(u64::try_from(batch.makespan).unwrap_or(0)));
    let objective = &batch.objective;
    let name = BatchObjective::ALL.iter().find(|(_, kind)| *kind == objective.kind);
    let name = name.map_or("", |(name, _)| *name).replace('_', " ");
    let shown = |value: i64| match objective.kind {
        BatchObjective::Cost => format!("{} credits", Cost(value.unsigned_abs())),
        BatchObjective::HostTime | BatchObjective::Finish | BatchObjective::Makespan | BatchObjective::RunTime => {
            format_span(Span(value.unsigned_abs()))
        }
    };
    let best = match objective.bound {
        Some(bound) if bound == objective.value => ", the best".to_owned(),
        Some(bound) => format!(", at best {}", shown(bound)),
        None => String::new(),
    };
    let apart: String = batch.by_itself.iter().take(APART_SHOWN).map(apart_text).collect();
    let more = batch.by_itself.len().saturating_sub(APART_SHOWN);
    let more = if more > 0 { format!("and {more} more, which JSON names\n") } else { String::new() };
    format!(
        "{apart}{more}{} of {} planned by {}; last end after {last}; {name} {}{best}",
        batch.placed,
        counted(all, "request"),
        if batch.by_itself.is_empty() {
            batch.policy.clone()
        } else {
            format!("{}, {} of them by itself", batch.policy, batch.by_itself.len())
        },
        shown(objective.value)
    )
}

/// The line of a request that the policy could not treat.
fn apart_text(apart: &ByItself) -> String {
    format!("{} was planned by itself: {}\n", safe(apart.request.as_str()), safe(&apart.why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

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
            "REQUEST  OUTCOME    START                      END                        HOSTS  COST  REASON\n\
             x        possible   2025-11-21 08:00:00+00:00  2025-11-21 09:00:00+00:00  1      1.50  -\n\
             line-2   postponed  -                          -                          -      -     no room\n\
             1 of 2 requests planned by slices:1; last end after 1h; finish 1h\n"
        );
        let mut scaled = serde_json::to_value(&planned.plans).unwrap();
        scaled["plans"][0]["scale"] = 833.into();
        let scaled = Planned { names: planned.names.clone(), plans: serde_json::from_value(scaled).unwrap() };
        let text = printed(&scaled, OutputFormat::Table);
        assert!(
            text.starts_with("REQUEST  OUTCOME    SCALE  START ") && text.contains("\nx        possible   0.833  2025")
        );
        let mut batch = planned.plans.batch.clone();
        (batch.objective.kind, batch.objective.value) = (BatchObjective::Cost, 48_000);
        batch.objective.bound = Some(40_500);
        assert!(batch_text(&batch).ends_with("; cost 48.00 credits, at best 40.50 credits"), "{}", batch_text(&batch));
        batch.by_itself = (0..10)
            .map(|at| ByItself { request: format!("r{at}").parse().unwrap(), why: "total: no\u{1b}".to_owned() })
            .collect();
        let text = batch_text(&batch);
        assert!(text.starts_with("r0 was planned by itself: total: no\\u{1b}\nr1 "), "{text}");
        assert!(
            text.contains(
                "\nand 2 more, which JSON names\n1 of 2 requests planned by slices:1, 10 of them by itself; "
            ),
            "{text}"
        );
        assert_eq!(printed(&planned, OutputFormat::Quiet), "x\n");
        let json: serde_json::Value = serde_json::from_str(&printed(&planned, OutputFormat::Json)).unwrap();
        assert_eq!((&json["batch"]["postponed"], &json["plans"][0]["id"]), (&1.into(), &"x".into()));
    }
}
