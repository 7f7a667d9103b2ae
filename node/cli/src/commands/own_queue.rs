//! `kolo local queue`: jobs of the owner that the site may move until they begin.

use std::{collections::BTreeMap, path::Path};

use broker::{
    ids::{HostId, RequestId},
    resources::{Amounts, ResourceName},
};
use jiff::Zoned;
use kolo_api::{
    local::LocalList,
    queue::{JobEntries, JobEntry, JobExtension, JobList, JobState, JobView},
};
use kolo_text::{
    document::{self, DocumentError, Syntax, Written},
    safe::safe,
    time::{format_span, format_time, parse_span, parse_time},
    words::{amounts_text, or_dash},
};
use serde::{Deserialize, Serialize};

use super::{Context, local::amounts_of};
use crate::{
    client::job_path,
    error::CliError,
    exit::Exit,
    local_args::{JobArgs, QueueArgs, QueueCommand},
    output::{Look, Report, columns},
};

pub fn run(context: &mut Context, args: &QueueArgs) -> Result<Exit, CliError> {
    match &args.command {
        QueueCommand::Add(args) => {
            let jobs = match &args.file {
                Some(file) => read(file, &context.now)?,
                None => vec![checked(args, context)?],
            };
            let list: JobList = context.connect()?.post("/v1/local/queue", &JobEntries { jobs })?;
            context.done(&list)
        }
        QueueCommand::List => {
            let LocalList { queue: jobs, .. } = context.connect()?.get("/v1/local")?;
            context.done(&JobList { jobs })
        }
        QueueCommand::Remove(args) => {
            let job: JobView = context.connect()?.delete(&job_path(&args.id))?;
            context.done(&Done { word: "taken out", job })
        }
        QueueCommand::Done(args) => {
            let job: JobView = context.connect()?.post(&(job_path(&args.id) + "/done"), &())?;
            context.done(&Done { word: "ended", job })
        }
        QueueCommand::Extend(args) => {
            let longer = JobExtension { longer_s: args.longer };
            let job: JobView = context.connect()?.post(&(job_path(&args.id) + "/extend"), &longer)?;
            context.done(&Done { word: "extended", job })
        }
    }
}

fn checked(args: &JobArgs, context: &Context) -> Result<JobEntry, CliError> {
    let id = args.id.as_ref().map(|text| RequestId::new(text)).transpose();
    let amounts = amounts_of(&args.amounts)?;
    if amounts.is_empty() {
        return Err(CliError::Usage("say what the job uses of each host, such as --cpu 4".to_owned()));
    }
    Ok(JobEntry {
        id: id.map_err(|error| CliError::of_flag("--id", error))?,
        length_s: args.length.unwrap_or_default(),
        deadline: context.time_of("--deadline", &args.deadline)?,
        hosts: args.hosts,
        amounts,
        preempt: args.preempt,
    })
}

/// A file of jobs, as people write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jobs {
    job: Vec<WrittenJob>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenJob {
    id: Option<RequestId>,
    length: String,
    deadline: Option<Written>,
    hosts: Option<u32>,
    amounts: BTreeMap<ResourceName, Written>,
    #[serde(default)]
    preempt: bool,
}

fn read(file: &Path, now: &Zoned) -> Result<Vec<JobEntry>, CliError> {
    let text = document::read_text(file)?;
    let jobs: Jobs = document::parse(file, &text, Syntax::of(file))?;
    if jobs.job.is_empty() {
        return Err(DocumentError::about(file, "job", "expected at least one").into());
    }
    let entry = |(place, job): (usize, WrittenJob)| {
        let wrong = |key: &str, message: String| DocumentError::about(file, format!("job[{place}].{key}"), message);
        let deadline = job.deadline.map(|written| match written {
            Written::Text(text) => parse_time(&text, now).map_err(|error| wrong("deadline", error.to_string())),
            Written::Integer(_) => Err(wrong("deadline", "expected a text, such as \"tomorrow 08:00\"".to_owned())),
        });
        let mut amounts = Amounts::new();
        for (name, written) in &job.amounts {
            let amount = written.amount(name).map_err(|message| wrong(&format!("amounts.{name}"), message))?;
            amounts.insert(name.clone(), amount);
        }
        Ok(JobEntry {
            id: job.id,
            length_s: parse_span(&job.length).map_err(|error| wrong("length", error.to_string()))?,
            deadline: deadline.transpose()?,
            hosts: job.hosts.unwrap_or(1),
            amounts,
            preempt: job.preempt,
        })
    };
    jobs.job.into_iter().enumerate().map(entry).collect()
}

/// The jobs as a table.
pub(super) fn jobs_text(jobs: &[JobView], look: &Look) -> String {
    let time = |time: Option<_>| or_dash(time.map(|time| format_time(time, &look.zone)).unwrap_or_default());
    let row = |job: &JobView| {
        let is_to_stop = job.start.zip(job.end).is_some_and(|(start, end)| start + job.length_s > end);
        let state = match (job.state, job.is_late) {
            _ if is_to_stop => "runs, to stop",
            (JobState::Waits, false) => "waits",
            (JobState::Waits, true) => "waits, late",
            (JobState::Runs, false) => "runs",
            (JobState::Runs, true) => "runs, late",
        };
        [
            job.id.to_string(),
            state.to_owned(),
            amounts_text(&job.amounts),
            or_dash(job.on.iter().map(HostId::as_str).collect::<Vec<_>>().join(" ")),
            time(job.start),
            time(job.end),
            time(job.deadline),
        ]
    };
    columns(look, ["ID", "STATE", "USES", "HOSTS", "FROM", "UNTIL", "DEADLINE"], jobs.iter().map(row))
}

impl Report for JobList {
    fn text(&self, look: &Look) -> String {
        if self.jobs.is_empty() { "no own jobs are queued\n".to_owned() } else { jobs_text(&self.jobs, look) }
    }

    fn ids(&self) -> Vec<String> {
        self.jobs.iter().map(|job| job.id.to_string()).collect()
    }
}

/// What was done with one job.
#[derive(Serialize)]
struct Done {
    #[serde(skip)]
    word: &'static str,
    #[serde(flatten)]
    job: JobView,
}

impl Report for Done {
    fn text(&self, _: &Look) -> String {
        let JobView { id, length_s, amounts, hosts, .. } = &self.job;
        let (id, length, amounts) = (safe(id.as_str()), format_span(*length_s), amounts_text(amounts));
        format!("{} {id}: {length}, {amounts} on each of {hosts}\n", self.word)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.job.id.to_string()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn jobs_are_listed_with_where_they_are_planned() {
        let list: JobList = serde_json::from_str(
            r#"{"jobs":[{"id":"a","state":"runs","arrival":1763712000,"length_s":3600,"deadline":1763719200,"hosts":2,"amounts":{"cpu":4000},
                "start":1763712000,"end":1763715600,"on":["h1","h2"],"is_late":false},
                {"id":"b","state":"waits","arrival":1763712000,"length_s":60,"hosts":1,"amounts":{"cpu":500},"on":[],"is_late":false}]}"#,
        )
        .unwrap();
        assert_eq!(
            printed(&list, OutputFormat::Table),
            "ID  STATE  USES     HOSTS  FROM                       UNTIL                      DEADLINE\n\
             a   runs   cpu=4    h1 h2  2025-11-21 08:00:00+00:00  2025-11-21 09:00:00+00:00  2025-11-21 10:00:00+00:00\n\
             b   waits  cpu=0.5  -      -                          -                          -\n"
        );
        let done = Done { word: "ended", job: list.jobs[0].clone() };
        assert_eq!(printed(&done, OutputFormat::Table), "ended a: 1h, cpu=4 on each of 2\n");
    }

    #[test]
    fn a_file_of_jobs_is_read_and_what_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("jobs.toml");
        let now: Zoned = "2025-11-21T08:00:00+00:00[UTC]".parse().unwrap();
        let told = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read(&file, &now)
        };
        let jobs = told(
            "[[job]]\nid = \"a\"\nlength = \"2h\"\ndeadline = \"tomorrow 08:00\"\nhosts = 2\namounts = { cpu = \"2.5\", memory = \"1GiB\" }\n\
             [[job]]\nlength = \"10min\"\namounts = { gpu = 1 }",
        )
        .unwrap();
        assert_eq!((jobs.len(), jobs[0].length_s.0, jobs[0].hosts, jobs[1].hosts), (2, 7200, 2, 1));
        assert_eq!(jobs[0].deadline.map(|time| time.0), Some(1_763_712_000 + 86_400));
        for (text, expected) in [
            ("", "job"),
            ("job = []", "job: expected at least one"),
            ("[[job]]\nlength = \"2h\"", "missing field `amounts`"),
            ("[[job]]\nlength = \"2\"\namounts = { cpu = \"1\" }", "job[0].length"),
            ("[[job]]\nlength = \"2h\"\ndeadline = 5\namounts = { cpu = \"1\" }", "job[0].deadline: expected a text"),
            ("[[job]]\nlength = \"2h\"\namounts = { cpu = 1 }", "job[0].amounts.cpu: write \"1\" for cores"),
            ("[[job]]\nlength = \"2h\"\ncores = 1\namounts = {}", "cores"),
        ] {
            let error = told(text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("jobs.toml"), "{text}: {error}");
        }
    }
}
