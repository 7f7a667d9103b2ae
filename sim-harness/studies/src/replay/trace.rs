//! Reads a whole trace into jobs that can be replayed on given clusters, and notes what was wrong with it.
//!
//! Invariant: every line of the file is a comment, a job, or counted in the [`Findings`]; jobs come out in the order of
//! submission, and each fits some cluster when that is empty.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

use anyhow::{anyhow, bail, ensure};
use serde::Serialize;
use sim_kit::{error::BadUsage, print::counted};

use super::{
    args::{JOBS_MAX, Overrun, Rules, Runtimes},
    cluster::ClusterSpec,
    job::{ClusterIndex, Job, Known, Shape},
    lines::{Line, Lines},
    record::{FIELDS_EXTENDED, Record},
};

/// Line numbers kept of each kind of finding.
const LINES_KEPT: usize = 10;

/// Lines of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Noted {
    /// How many.
    pub count: u64,
    /// The first of them: line number, and what was found there.
    pub first: Vec<(u64, String)>,
}

impl Noted {
    fn note(&mut self, line: u64, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < LINES_KEPT {
            self.first.push((line, what()));
        }
    }
}

/// What was found in a trace beside jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Lines that are no records.
    pub broken: Noted,
    /// Records without a run time or without processors, and jobs that were cancelled before they began: they never ran.
    pub incomplete: Noted,
    /// Parts of executions whose jobs have lines of their own.
    pub part: Noted,
    /// Records whose run time is negative but not "unknown"; replayed with one second.
    pub absurd_run_time: Noted,
    /// Records submitted before the one above them; put where they belong.
    pub out_of_order: Noted,
    /// Jobs that no cluster could ever run.
    pub rejected: Noted,
}

impl Findings {
    /// The kinds: the name of one, what became of it, the lines.
    pub fn kinds(&self) -> [(&'static str, &'static str, &Noted); 6] {
        [
            ("broken line", ", left out", &self.broken),
            ("record", " without a run, left out", &self.incomplete),
            ("part", " of an execution whose job is counted as a whole, left out", &self.part),
            ("absurd run time", ", taken for 1 second", &self.absurd_run_time),
            ("record", " out of order, sorted by submission", &self.out_of_order),
            ("job", " that no cluster could ever run, rejected", &self.rejected),
        ]
    }
}

/// A trace, ready to be replayed.
#[derive(Debug, Default)]
pub struct Trace {
    /// The jobs in the order of submission.
    pub jobs: Vec<Job>,
    /// What else was found.
    pub findings: Findings,
}

/// Reads a trace for these clusters; `-` is standard input.
///
/// # Errors
/// Bad usage with file and line when the file cannot be read, is no text, ends inside a record, is too large, or holds no job.
pub fn read(path: &Path, clusters: &[ClusterSpec], rules: &Rules) -> anyhow::Result<Trace> {
    let trace = if path == Path::new("-") {
        Trace::read(io::stdin().lock(), clusters, rules)
    } else {
        let file = File::open(path).map_err(anyhow::Error::from);
        file.and_then(|file| Trace::read(BufReader::new(file), clusters, rules))
    };
    trace.map_err(|error| anyhow!(BadUsage::new(format_args!("{}: {error:#}", path.display()))))
}

/// The trace of these records, which come from no file; a record's line is its number.
pub fn of_records(records: impl Iterator<Item = Record>, clusters: &[ClusterSpec], rules: &Rules) -> Trace {
    let mut trace = Trace::default();
    for (line, record) in (1..).zip(records) {
        trace.add(line, &record, clusters, rules);
    }
    trace.begin_at_zero();
    trace
}

impl Trace {
    fn read(reader: impl BufRead, clusters: &[ClusterSpec], rules: &Rules) -> anyhow::Result<Trace> {
        let (mut trace, mut lines) = (Trace::default(), Lines::of(reader)?);
        let (mut latest_s, mut is_extended) = (0, false);
        // Parts whose job was not the one read last; and that one.
        let (mut parts, mut whole) = (Vec::new(), None);
        let most = rules.jobs_max.unwrap_or(JOBS_MAX) as usize;
        while rules.jobs_max.is_none() || trace.jobs.len() < most {
            let Some(line) = lines.next_line()? else { break };
            if line.text.is_empty() || line.text.starts_with(b";") {
                continue;
            }
            let number = line.number;
            let Some(record) = trace.record(&line, is_extended)? else { continue };
            is_extended |= record.nodes.is_some();
            let is_full = trace.jobs.len() + parts.len() == JOBS_MAX as usize;
            ensure!(!is_full, "line {number}: more than {JOBS_MAX} jobs; --limit replays the first of them");
            if record.is_part && whole != Some(record.id) {
                parts.push((number, record));
                continue;
            }
            if record.is_part {
                trace.note_part(number, &record);
                continue;
            }
            whole = Some(record.id);
            if record.submit_s < latest_s {
                let what = || format!("submitted at {}, after one at {latest_s}", record.submit_s);
                trace.findings.out_of_order.note(number, what);
            }
            latest_s = latest_s.max(record.submit_s);
            trace.add(number, &record, clusters, rules);
        }
        trace.add_parts(parts, most, clusters, rules);
        trace.begin_at_zero();
        if trace.jobs.is_empty() {
            let Findings { broken, incomplete, rejected, .. } = &trace.findings;
            let first = broken.first.first().map_or_else(String::new, |(line, what)| format!("; line {line}: {what}"));
            let (broken, incomplete) = (counted(broken.count, "broken line"), incomplete.count);
            bail!("no job to replay ({broken}, {incomplete} without a run, {} rejected){first}", rejected.count);
        }
        Ok(trace)
    }

    /// The record in a line; none when it is broken, which is noted.
    fn record(&mut self, line: &Line<'_>, is_extended: bool) -> anyhow::Result<Option<Record>> {
        let Line { text, number, is_cut } = line;
        match Record::read(text) {
            Err(error) if *is_cut => bail!("line {number}: the file ends inside a record: {error}"),
            Err(error) => {
                self.findings.broken.note(*number, || error.to_string());
                Ok(None)
            }
            Ok(record) if *is_cut && is_extended && record.nodes.is_none() => {
                bail!("line {number}: the file ends inside a record: expected {FIELDS_EXTENDED} fields, as above")
            }
            Ok(record) => Ok(Some(record)),
        }
    }

    fn note_part(&mut self, line: u64, record: &Record) {
        self.findings.part.note(line, || format!("job {}: run time {}", record.id, record.run_s));
    }

    /// Leaves the parts out whose jobs have lines of their own; the others are jobs, up to `most` in all.
    fn add_parts(&mut self, parts: Vec<(u64, Record)>, most: usize, clusters: &[ClusterSpec], rules: &Rules) {
        if parts.is_empty() {
            return;
        }
        let mut whole: Vec<i64> = self.jobs.iter().map(|job| job.id).collect();
        whole.sort_unstable();
        for (line, record) in parts {
            if whole.binary_search(&record.id).is_ok() {
                self.note_part(line, &record);
            } else if record.submit_s < 0 {
                let what = || format!("field 2: expected a submission time of 0 or later, got {}", record.submit_s);
                self.findings.broken.note(line, what);
            } else if self.jobs.len() < most {
                self.add(line, &record, clusters, rules);
            }
        }
    }

    /// Brings the jobs into the order of submission, and counts time from the first of them.
    fn begin_at_zero(&mut self) {
        self.jobs.sort_by_key(|job| job.known.submit_s);
        let first_s = self.jobs.first().map_or(0, |job| job.known.submit_s);
        for job in &mut self.jobs {
            job.known.submit_s -= first_s;
            job.known.deadline_s -= first_s;
        }
    }

    fn add(&mut self, line: u64, record: &Record, clusters: &[ClusterSpec], rules: &Rules) {
        if !record.has_run {
            let what = || format!("job {}: run time {}, processors {}", record.id, record.run_s, record.processors);
            self.findings.incomplete.note(line, what);
            return;
        }
        if record.run_s < 0 {
            let what = || format!("job {}: run time {}", record.id, record.run_s);
            self.findings.absurd_run_time.note(line, what);
        }
        let excluded = if rules.ignores_tags { Box::default() } else { excluded_by(record, clusters) };
        let Some(shape) = shape_of(record, clusters, &excluded, rules) else {
            let what = || format!("job {}: {} processors, memory {}", record.id, record.processors, record.memory);
            self.findings.rejected.note(line, what);
            return;
        };
        let run_s = record.run_s.max(1);
        let limit_s = if record.limit_s < 0 { run_s } else { record.limit_s.max(1) };
        let is_killed = rules.overrun == Overrun::Kill && run_s > limit_s;
        let held_s = if is_killed { limit_s } else { run_s };
        let (planned_s, length_s) = match rules.runtimes {
            Runtimes::True => (held_s, run_s),
            Runtimes::Estimates => (limit_s, limit_s.max(run_s)),
        };
        self.jobs.push(Job {
            id: record.id,
            // At most JOBS_MAX lines are jobs, but comments count as well.
            line: u32::try_from(line).unwrap_or(u32::MAX),
            known: Known {
                submit_s: record.submit_s,
                planned_s: planned_s + rules.teardown_s,
                teardown_s: rules.teardown_s,
                length_s,
                limit_s,
                deadline_s: record.submit_s.saturating_add(limit_s.saturating_mul(2)),
                shape,
                excluded,
            },
            held_s: held_s + rules.teardown_s,
            is_killed,
        });
    }
}

/// The clusters that a record's tags exclude.
fn excluded_by(record: &Record, clusters: &[ClusterSpec]) -> Box<[ClusterIndex]> {
    let Some(nodes) = &record.nodes else { return Box::default() };
    let excluded = (0_u32..).zip(clusters).filter(|(_, spec)| !nodes.allows(&spec.name));
    excluded.map(|(index, _)| ClusterIndex(index)).collect()
}

/// What a record needs of each host, if some cluster that is not excluded has that.
fn shape_of(record: &Record, clusters: &[ClusterSpec], excluded: &[ClusterIndex], rules: &Rules) -> Option<Shape> {
    let processors = u32::try_from(record.processors).ok()?;
    let memory = u64::try_from(record.memory).unwrap_or(0);
    let allowed = || (0_u32..).zip(clusters).filter(|(index, _)| !excluded.contains(&ClusterIndex(*index)));
    let fits = |shape: &Shape| allowed().any(|(_, cluster)| cluster.could_ever_run(shape));
    if let Some(nodes) = &record.nodes {
        // The whole job on one node where the specification does not say. A few records ask more of a node than they have in all.
        let per_host = nodes.processors_per_node.unwrap_or(processors);
        let memory_per_host_kib = (memory + 512) / 1024;
        let hosts = (processors / per_host).max(1);
        let is_exclusive = nodes.is_exclusive() && !rules.ignores_tags;
        return Some(Shape { hosts, processors_per_host: per_host, memory_per_host_kib, is_exclusive }).filter(fits);
    }
    let shape = |hosts, processors_per_host| {
        let memory_per_host_kib = memory;
        Shape { hosts, processors_per_host, memory_per_host_kib, is_exclusive: false }
    };
    // As many processors a host as divide the job evenly on the largest cluster; uneven shares only if that fails.
    let host = clusters.first()?.processors_per_host.min(processors);
    let even = (1..=host).rev().filter(|per_host| processors.is_multiple_of(*per_host));
    let uneven = processors.div_ceil(processors.div_ceil(host));
    even.map(|per_host| shape(processors / per_host, per_host))
        .chain([shape(processors.div_ceil(uneven), uneven)])
        .find(fits)
}
