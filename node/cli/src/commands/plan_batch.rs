//! `kolo plan --batch`: plans a file of requests together on a snapshot; one line a request, then the line of the batch.
//!
//! A thin caller of [`broker::batch`]. Invariant: the whole file is read and checked before the first answer.

use std::{
    fs::File,
    io::{BufRead, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use broker::{
    batch::{self, BatchAnswer, BatchLine, Given, Options, Policy, Progress, Watch, policy_named},
    offline::OfflinePlanner,
};
use indicatif::{ProgressBar, ProgressStyle};
use kolo_text::document::DocumentError;
use serde::Serialize;
use signal_hook::{consts::SIGINT, flag};

use super::plan_offline::{read, write_line};
use crate::{error::CliError, output::shows_progress, request_args::BatchArgs};

/// A batch as it is asked for.
pub(super) struct AskedBatch {
    policy: Box<dyn Policy>,
    options: Options,
    explain: Option<PathBuf>,
}

/// Checks the flags.
///
/// # Errors
/// [`CliError`] that names the flag.
pub(super) fn asked(args: &BatchArgs, policy: &str) -> Result<AskedBatch, CliError> {
    let policy = policy_named(policy).map_err(|error| CliError::of_flag("--batch", error))?;
    let given = Given {
        order: args.order,
        objective: args.batch_objective,
        budget: args.batch_budget.map(|budget| budget.0),
        alternatives: args.alternatives.map(|count| count as usize),
        overlap: args.overlap,
    };
    let options = given.options(&*policy).map_err(|error| CliError::of_flag("--batch", error))?;
    Ok(AskedBatch { policy, options, explain: args.explain_alternatives.clone() })
}

#[derive(Serialize)]
struct LastLine<'a> {
    batch: &'a BatchLine,
}

impl AskedBatch {
    /// Reads all requests, plans them and prints the answer.
    ///
    /// # Errors
    /// [`CliError`] that names file, line and key of what is wrong.
    pub(super) fn plan(
        &self,
        planner: &OfflinePlanner,
        file: &Path,
        input: impl BufRead,
        output: &mut impl Write,
    ) -> Result<(), CliError> {
        let requests = read(planner, file, input)?;
        let explain = self.explain.as_deref().map(|path| create(path).map(|file| (path, file))).transpose()?;
        let (started, waiting) = (Instant::now(), Waiting::new(&self.policy.name())?);
        let goes_on = |progress| waiting.goes_on(progress);
        let watch = Watch { clock: &|| started.elapsed(), goes_on: &goes_on };
        let answer = batch::plan(&*self.policy, planner, &requests, &self.options, watch);
        waiting.done();
        let answer = answer.map_err(|error| DocumentError::about(file, "", error))?;
        if let Some((path, written)) = explain {
            write_alternatives(written, &answer)
                .map_err(|source| DocumentError::Read { file: path.to_owned(), source })?;
        }
        answer.lines.iter().try_for_each(|line| write_line(output, line))?;
        write_line(output, &LastLine { batch: &answer.batch })
    }
}

/// The one who waits at the terminal: sees the best so far, and ends the search with Ctrl-C; a second one ends the command.
struct Waiting {
    line: ProgressBar,
    policy: String,
    is_over: Arc<AtomicBool>,
}

impl Waiting {
    fn new(policy: &str) -> Result<Waiting, CliError> {
        let is_over = Arc::new(AtomicBool::new(false));
        flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, is_over.clone())
            .and_then(|_| flag::register(SIGINT, is_over.clone()))
            .map_err(|source| CliError::Io { doing: "waiting for signals", source })?;
        let template = ProgressStyle::with_template("{spinner} {msg} {elapsed}; Ctrl-C takes the best so far");
        let line = if shows_progress() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        Ok(Waiting {
            line: template.map_or(line.clone(), |style| line.with_style(style)),
            policy: policy.to_owned(),
            is_over,
        })
    }

    fn goes_on(&self, Progress { placed, value }: Progress) -> bool {
        let value = value.map(|value| format!(", value {value}")).unwrap_or_default();
        self.line.set_message(format!("{}: {placed} placed{value}", self.policy));
        self.line.tick();
        !self.is_over.load(Ordering::Relaxed)
    }

    fn done(&self) {
        self.line.finish_and_clear();
        if self.is_over.load(Ordering::Relaxed) {
            eprintln!("the search was ended: this is the best that it had found");
        }
    }
}

fn create(path: &Path) -> Result<File, DocumentError> {
    File::create(path).map_err(|source| DocumentError::Read { file: path.to_owned(), source })
}

fn write_alternatives(file: File, answer: &BatchAnswer) -> std::io::Result<()> {
    let mut file = BufWriter::new(file);
    for alternative in &answer.alternatives {
        serde_json::to_writer(&mut file, alternative)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use broker::{phases::Settings, snapshot::GridSnapshot};

    use super::*;

    fn lines(policy: &str, requests: &str) -> Result<Vec<serde_json::Value>, String> {
        let grid = r#"{"format":"kolo-grid/1","hosts":[{"id":"h1","site":"s1","resources":{"cpu":1000}}]}"#;
        let planner = OfflinePlanner::new(GridSnapshot::read(grid).unwrap(), Settings::default(), 1, false);
        let shown = |error: CliError| format!("{} {error}", error.exit().code());
        let policy = policy_named(policy).map_err(|error| shown(CliError::of_flag("--batch", error)))?;
        let batch = AskedBatch { policy, options: Options::default(), explain: None };
        let mut printed = Vec::new();
        let result = batch.plan(&planner, Path::new("r.jsonl"), requests.as_bytes(), &mut printed);
        assert!(result.is_ok() || printed.is_empty(), "an answer before the whole file was checked");
        result.map_err(shown)?;
        Ok(String::from_utf8(printed).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    #[test]
    fn a_line_a_request_and_one_of_the_batch() {
        let request = |id, earliest| {
            format!(
                "{{\"id\":\"{id}\",\"hosts\":1,\"duration\":60,\"earliest\":{earliest},\"per_host\":{{\"cpu\":600}}}}\n"
            )
        };
        for policy in ["in-order", "slices:1", "slices:2"] {
            let lines = lines(policy, &(request("a", 0) + &request("b", 10))).unwrap();
            assert_eq!((&lines[0]["id"], &lines[1]["id"]), (&"a".into(), &"b".into()), "{policy}");
            assert_eq!((&lines[0]["start"], &lines[1]["start"]), (&0.into(), &60.into()), "{policy}");
            assert_eq!((&lines[2]["batch"]["policy"], &lines[2]["batch"]["makespan"]), (&policy.into(), &120.into()));
        }
    }

    #[test]
    fn what_is_wrong_is_said_before_any_answer() {
        let good = |id| format!("{{\"id\":\"{id}\",\"hosts\":1,\"duration\":60}}\n");
        let many: String = (0..999).map(good).collect();
        for (policy, requests, expected) in [
            ("in-order", String::new(), "64 r.jsonl: a batch has at least one request"),
            ("in-order", good(1) + &good(2) + &good(1), "64 r.jsonl:3: id: 1 is the id of line 1 as well"),
            (
                "slices:2",
                many.clone() + "{\"hosts\":1,\"duration\":60,\"total\":7}",
                "64 r.jsonl:1000: total: invalid type",
            ),
            ("slices:2", many + "{\"hosts\":1,\"duration\":0}", "64 r.jsonl:1000: duration: expected 1 to"),
            ("slices:0", good(1), "64 --batch: slices: expected slices:K"),
            ("colocate", good(1), "64 --batch: colocate: expected colocate:set, colocate:partition or colocate:best"),
        ] {
            let error = lines(policy, &requests).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        // What only the policy cannot treat is planned by itself.
        for (policy, requests, why) in [
            ("colocate:set", good(1), "per_host: expected cpu and at most two"),
            ("pas", "{\"hosts\":1,\"duration\":9,\"total\":{\"cpu\":7}}".to_owned(), "total: "),
        ] {
            let lines = lines(policy, &requests).unwrap();
            let said = lines.last().unwrap()["batch"]["by_itself"][0]["why"].as_str().unwrap().to_owned();
            assert!(said.starts_with(why), "{said}");
        }
    }
}
