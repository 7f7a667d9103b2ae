//! Traces, machines files and what is written.

use std::{fs, path::PathBuf};

use sim_kit::error::BadUsage;

use super::{cluster, job, replay, traces::RULES};
use crate::replay::{
    args::{Overrun, Rules, Runtimes},
    cluster::ClusterSpec,
    growth::{Point, Speed},
    job::{ClusterIndex, Job},
    machines, metrics,
    output::{self, Outcome},
    page, policy,
    series::Series,
    trace::{self, Findings, Trace},
};

/// A plain record.
fn record(id: i64, submit_s: i64, run_s: i64, processors: i64, limit_s: i64) -> String {
    format!("{id} {submit_s} 0 {run_s} {processors} -1 -1 {processors} {limit_s} -1 1 1 1 1 -1 1 -1 -1\n")
}

fn read_on(clusters: &[ClusterSpec], text: &str, rules: &Rules) -> anyhow::Result<Trace> {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("a.swf");
    fs::write(&path, text).unwrap();
    trace::read(&path, clusters, rules)
}

fn read_with(text: &str, rules: &Rules) -> anyhow::Result<Trace> {
    read_on(&[cluster(10, 4, 1000)], text, rules)
}

fn read(text: &str) -> anyhow::Result<Trace> {
    read_with(text, &RULES)
}

/// An extended record of one processor with this node specification.
fn extended(id: i64, spec: &str) -> String {
    format!("{} q {spec}\n", record(id, 0, 5, 1, 9).trim_end())
}

fn machines_error(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.machines");
    fs::write(&path, text).unwrap();
    format!("{:#}", machines::read(&path).unwrap_err())
}

#[test]
fn lines_that_are_no_jobs_are_counted_with_their_numbers() {
    let text = format!(
        "; a comment\n{}{}1 2 3\n{}\n{}{}{}",
        record(1, 100, 50, 8, 60),
        record(2, 90, -1, 8, 60),
        record(3, 95, -77, 1, -1).replace("-77", "-7777"),
        record(4, 120, 50, 4, 60).replacen("50", "x", 1),
        record(5, 130, 50, 41, 60),
        record(6, 140, 500, 3, 60),
    );
    let Trace { jobs, findings } = read(&text).unwrap();
    let Findings { broken, incomplete, absurd_run_time, out_of_order, rejected, .. } = findings;
    assert_eq!(broken.first[0], (4, "expected at least 18 fields, got 3".to_owned()));
    assert_eq!(broken.first[1], (7, "field 4: expected a number of at most 1125899906842624, got \"x\"".to_owned()));
    assert_eq!((incomplete.count, incomplete.first[0].0), (1, 3));
    assert_eq!((absurd_run_time.count, absurd_run_time.first[0].0), (1, 5));
    assert_eq!((out_of_order.count, out_of_order.first[0].0), (2, 3));
    assert_eq!((rejected.count, rejected.first[0].0), (1, 8));
    // By submission, counted from the first of them.
    assert_eq!(jobs.iter().map(|job| (job.id, job.known.submit_s)).collect::<Vec<_>>(), [(3, 0), (1, 5), (6, 45)]);
    // Killed at its limit, and a second of teardown.
    assert_eq!((jobs[2].held_s, jobs[2].is_killed), (61, true));
    assert_eq!((jobs[0].held_s, jobs[0].known.limit_s), (2, 1));
}

#[test]
fn limits_bind_or_not_as_asked() {
    let text = record(1, 0, 500, 3, 60);
    let rules = |runtimes, overrun| Rules { runtimes, overrun, ..RULES };
    for (rules, held_s, planned_s, length_s) in [
        (rules(Runtimes::True, Overrun::Kill), 61, 61, 500),
        (rules(Runtimes::True, Overrun::Extend), 501, 501, 500),
        (rules(Runtimes::Estimates, Overrun::Kill), 61, 61, 500),
        (rules(Runtimes::Estimates, Overrun::Extend), 501, 61, 500),
    ] {
        let job = &read_with(&text, &rules).unwrap().jobs[0];
        assert_eq!((job.held_s, job.known.planned_s, job.known.length_s), (held_s, planned_s, length_s), "{rules:?}");
    }
    let few = Rules { jobs_max: Some(1), ..RULES };
    assert_eq!(read_with(&(text.clone() + &text), &few).unwrap().jobs.len(), 1);
}

#[test]
fn processors_are_spread_over_hosts() {
    // Evenly, as many a host as divide the job; unevenly only if that needs too many hosts (11 of 10).
    for (processors, hosts, per_host) in [(1, 1, 1), (3, 1, 3), (8, 2, 4), (6, 2, 3), (7, 7, 1), (11, 3, 4)] {
        let shape = read(&record(1, 0, 5, processors, 9)).unwrap().jobs[0].known.shape;
        assert_eq!((shape.hosts, shape.processors_per_host), (hosts, per_host), "{processors}");
    }
    for (spec, processors, hosts, per_host) in [
        ("1:ppn=4", 8, 2, 4),
        ("2:ppn=2:x86#excl", 4, 2, 2),
        ("1:ppn=3", 2, 1, 3),
        ("1:ppn=1.5:brno", 2, 2, 1),
        ("1:ppn=1+3:ppn=2", 4, 1, 4),
        ("1", 3, 1, 3),
    ] {
        let line = record(1, 0, 5, processors, 9).replace(" -1 1 1 1 1 -1 1", " 2048 1 1 1 1 -1 1");
        let shape = read(&format!("{} q {spec}\n", line.trim_end())).unwrap().jobs[0].known.shape;
        assert_eq!((shape.hosts, shape.processors_per_host, shape.memory_per_host_kib), (hosts, per_host, 2), "{spec}");
    }
}

#[test]
fn broken_specifications_of_nodes_are_reported_with_line_and_field() {
    let good = record(1, 0, 5, 1, 9);
    for spec in
        ["ppn=abc", "1:ppn=0:x", "8:ppn=-1", "1:ppn=", "1:ppn=4x", "1:ppn=99999999999", "foo", "0", "-2:x", "#excl"]
    {
        let Trace { jobs, findings } = read(&format!("{good}{}", extended(2, spec))).unwrap();
        assert_eq!((jobs.len(), findings.broken.count, findings.rejected.count), (1, 1, 0), "{spec}");
        let (line, what) = &findings.broken.first[0];
        assert!(*line == 2 && what.starts_with("field 20: ") && what.contains(spec), "{spec}: {what}");
    }
    for spec in ["4", "2:infiniband", "host7:ppn=2:x", "1:^host8:ppn=2", "2:ppn=2#excl", "3+1:ppn=2", "1:ppn=x+2:ppn=1"]
    {
        let trace = read(&extended(2, spec)).unwrap();
        assert_eq!((trace.jobs.len(), trace.findings), (1, Findings::default()), "{spec}");
    }
}

#[test]
fn a_byte_order_mark_costs_no_job() {
    let record = record(1, 0, 5, 1, 9);
    let marked = read(&format!("\u{feff}{record}{record}")).unwrap();
    assert_eq!((marked.jobs.len(), marked.findings), (2, Findings::default()));
    assert_eq!(read(&format!("\u{feff}; a comment\n{record}")).unwrap().findings, Findings::default());
    // In the middle of a file it is no mark.
    assert_eq!(read(&format!("{record}\u{feff}{record}")).unwrap().findings.broken.count, 1);
}

#[test]
fn old_line_ends_cost_no_job_and_keep_the_numbers() {
    let (good, bad) = (record(1, 0, 5, 1, 9), "x\n");
    let text = format!("; a comment\n{good}{bad}\n{good}");
    for end in ["\n", "\r\n", "\r"] {
        let Trace { jobs, findings } = read(&text.replace('\n', end)).unwrap();
        assert_eq!((jobs.len(), jobs[0].line, jobs[1].line), (2, 2, 5), "{end:?}");
        assert_eq!((findings.broken.count, findings.broken.first[0].0), (1, 3), "{end:?}");
    }
}

#[test]
fn what_is_no_text_is_called_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.swf");
    for (head, expected) in [
        (&b"\x1f\x8b\x08\x00"[..], "a.swf: the file is compressed (gzip): unpack it, as by gunzip"),
        (b"BZh91AY", "compressed (bzip2)"),
        (b"\xfd7zXZ\x00", "compressed (xz)"),
        (b"\x28\xb5\x2f\xfd", "compressed (zstd)"),
        (b"PK\x03\x04", "compressed (zip)"),
        (b"\xff\xfe1\x00", "the file is UTF-16"),
    ] {
        fs::write(&path, [head, b"rest\nof it\n"].concat()).unwrap();
        let error = trace::read(&path, &[cluster(1, 1, 1)], &RULES).unwrap_err();
        assert!(error.is::<BadUsage>() && error.to_string().contains(expected), "{error}");
    }
}

/// A record with this status (field 11).
fn with_status(id: i64, submit_s: i64, run_s: i64, status: i64) -> String {
    format!("{id} {submit_s} 0 {run_s} 4 -1 -1 4 3600 -1 {status} 1 1 1 1 1 -1 -1\n")
}

#[test]
fn parts_of_an_execution_are_left_out_where_the_job_has_a_line() {
    let text = [
        with_status(1, 0, 1000, 1),
        with_status(1, 0, 400, 2),
        with_status(1, -1, 600, 3),
        with_status(2, 5, 7, 1),
        // Behind another job's line, and without one of its own.
        with_status(1, 0, 9, 4),
        with_status(3, 20, 30, 2),
        with_status(3, -1, 40, 3),
    ];
    let Trace { jobs, findings } = read(&text.concat()).unwrap();
    assert_eq!(jobs.iter().map(|job| (job.id, job.known.length_s)).collect::<Vec<_>>(), [(1, 1000), (2, 7), (3, 30)]);
    assert_eq!((findings.part.count, findings.part.first[2].0), (3, 5));
    assert_eq!((findings.broken.count, findings.broken.first[0].0, findings.out_of_order.count), (1, 7, 0));
}

#[test]
fn jobs_that_never_ran_are_left_out_and_counted() {
    let none = |id| with_status(id, 0, 0, 0).replacen(" 0 4 ", " 0 0 ", 1);
    let text = [
        with_status(1, 0, 50, 1),
        with_status(2, 0, 0, 5),
        with_status(3, 0, -1, 5),
        none(4),
        // Too short to be measured, and cancelled while it ran.
        with_status(5, 0, 0, 1),
        with_status(6, 0, 20, 5),
    ];
    let Trace { jobs, findings } = read(&text.concat()).unwrap();
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [1, 5, 6]);
    assert_eq!(findings.incomplete.count, 3);
    assert_eq!(findings.incomplete.first.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3, 4]);
}

#[test]
fn a_limit_that_is_none_is_unknown_and_the_job_is_kept() {
    for limit in ["4294967295", "1000000000000000000", "1e300", "0", "-1", "-7"] {
        let Trace { jobs, findings } = read(&record(1, 0, 5, 1, 9).replacen(" 9 ", &format!(" {limit} "), 1)).unwrap();
        assert_eq!((jobs.len(), &findings), (1, &Findings::default()), "{limit}");
        assert_eq!((jobs[0].known.limit_s, jobs[0].held_s, jobs[0].is_killed), (5, 6, false), "{limit}");
    }
}

#[test]
fn files_that_cannot_be_used_are_refused_with_file_and_line() {
    let good = record(1, 0, 5, 1, 9);
    let cut = format!("{good}2 0 5");
    let error = read(&cut).unwrap_err();
    assert!(error.is::<BadUsage>());
    assert!(error.to_string().contains("a.swf: line 2: the file ends inside a record"), "{error}");
    // An extended record that is cut looks like a plain one.
    let cut = format!("{}{}", extended(1, "1:ppn=1"), record(2, 0, 5, 1, 9).trim_end());
    let error = read(&cut).unwrap_err().to_string();
    assert!(error.contains("line 2: the file ends inside a record: expected 20 fields"), "{error}");
    assert_eq!(read(good.trim_end()).unwrap().jobs.len(), 1, "no line end, but nothing is missing");
    let error = read(&format!("{good}{}\n", "9".repeat(70_000))).unwrap_err().to_string();
    assert!(error.contains("line 2: longer than 65536 bytes"), "{error}");
    let error = read("no trace\nat all\n").unwrap_err().to_string();
    assert!(error.contains("no job to replay (2 broken lines") && error.contains("line 1: "), "{error}");
    assert!(read("").unwrap_err().to_string().contains("no job to replay"));
    let missing = trace::read(&PathBuf::from("/nowhere/a.swf"), &[cluster(1, 1, 1)], &RULES).unwrap_err();
    assert!(missing.is::<BadUsage>() && format!("{missing:#}").starts_with("/nowhere/a.swf: No such"));
    let folder = tempfile::tempdir().unwrap();
    let error = trace::read(folder.path(), &[cluster(1, 1, 1)], &RULES).unwrap_err();
    assert!(error.is::<BadUsage>() && format!("{error:#}").contains("directory"), "{error:#}");
}

#[test]
fn gigantic_numbers_are_broken_lines_or_rejected_jobs() {
    let good = record(1, 0, 5, 1, 9);
    for (line, expected) in [
        (record(2, 0, 1_000_000_001, 1, -1), "field 4: expected at most 1000000000 seconds, got 1000000001"),
        (record(2, 0, 5, 1, 9).replacen(" 9 ", " long ", 1), "field 9: expected a number"),
        (record(2, 200_000_000_000, 5, 1, 9), "field 2: expected at most 100000000000 seconds"),
        (record(2, 0, 5, 1, 9).replacen(" 5 ", " 1e300 ", 1), "field 4: expected a number"),
        (record(2, 0, 5, 1, 9).replacen(" 5 ", " NaN ", 1), "field 4: expected a number"),
    ] {
        let Trace { jobs, findings } = read(&(good.clone() + &line)).unwrap();
        assert_eq!((jobs.len(), findings.broken.count, findings.broken.first[0].0), (1, 1, 2), "{line}");
        assert!(findings.broken.first[0].1.starts_with(expected), "{:?}", findings.broken);
    }
    let Findings { rejected, .. } = read(&(good + &record(2, 0, 5, 1 << 40, 9))).unwrap().findings;
    assert_eq!((rejected.count, rejected.first[0].0), (1, 2));
}

#[test]
fn jobs_of_the_longest_times_are_replayed_under_every_policy() {
    let longest = |id| record(id, 0, 1_000_000_000, 1, 1_000_000_000);
    let last = record(9, 100_000_000_000, 1_000_000_000, 1, -1);
    let text: String = (1..9).map(longest).chain([last]).collect();
    let clusters = [cluster(1, 2, 1000)];
    let trace = read_on(&clusters, &text, &RULES).unwrap();
    for policy in policy::names() {
        assert_eq!(replay(policy, &trace.jobs, &clusters).len(), 9, "{policy}");
    }
}

#[test]
fn machines_files_are_checked() {
    for (text, expected) in [
        ("", "no cluster"),
        ("0\ta\t1\t2\t1\n", "line 1: expected 6 fields (id, name, nodes, "),
        ("0 a 1 2 1 5\n", "tab separated, got 1"),
        ("0\ta\t1\t2\t1\t5\n1\tb\t0\t2\t1\t5\n", "line 2: nodes: expected at least 1, got 0"),
        ("0\ta\t1\tx\t1\t5\n", "cpus_per_node: invalid digit"),
        ("0\ta\t1\t1\t2\t5\n", "speed: only clusters of equal speed (1) can be replayed, got 2"),
        ("0\ta\t1\t1\t1\t-5\n", "memory_per_node_KiB: invalid digit"),
        ("0\ta\t99999999999\t1\t1\t5\n", "nodes: number too large"),
        ("0\ta\t131072\t1\t1\t5\n1\tb\t1\t1\t1\t5\n", "line 2: more than 131072 hosts"),
        ("0\ta\t1\t1\t1\t5\n0\tb\t1\t1\t1\t5\n", "line 2: id: 0 is that of a cluster above"),
    ] {
        let error = machines_error(text);
        assert!(error.contains("a.machines: ") && error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn metrics_series_and_files_say_what_happened() {
    let clusters = [cluster(1, 2, 0)];
    // The second job waits 10 s and runs 5: response 15, slowdown 3, bounded slowdown 1.5.
    let jobs = vec![job(0, 10, 1, 2), job(0, 5, 1, 1)];
    let runs = replay("fcfs", &jobs, &clusters);
    let trace = Trace { jobs, findings: Findings::default() };
    let second = metrics::times(&trace, &runs, &clusters).nth(1).unwrap();
    assert_eq!((second.wait_s, second.response_s, second.slowdown, second.bounded_slowdown), (10, 15, 3.0, 1.5));
    let metrics = metrics::measure(&trace, &runs, &clusters);
    assert_eq!((metrics.jobs, metrics.makespan_s), (2, 15.0));
    assert!((metrics.utilisation - 25.0 / 30.0).abs() < 1e-12);
    assert_eq!((metrics.wait_s.mean, metrics.wait_s.median, metrics.wait_s.p95), (5.0, 5.0, 10.0));
    let series = Series::of(&trace.jobs, &runs);
    let total = |values: &[f64]| values.iter().sum::<f64>() * series.piece_s;
    assert!((total(&series.processors) - 25.0).abs() < 1e-9 && (total(&series.waiting) - 10.0).abs() < 1e-9);
    let speed = Speed { replay_seconds: 1.0, jobs_per_second: 2.0 };
    let [machines, policy] = ["m", "fcfs"].map(str::to_owned);
    let (memory_mib_max, growth) = (Some(1.5), Vec::new());
    let (rules, slack, search) = (RULES, Vec::new(), None);
    let trace_name = "<a>.swf".to_owned();
    let mut outcome = Outcome {
        metrics,
        trace: trace_name,
        machines,
        policy,
        rules,
        seed: 1,
        slack,
        search,
        speed,
        memory_mib_max,
        growth,
    };
    let line = serde_json::to_value(&outcome).unwrap();
    assert_eq!((&line["jobs"], &line["slowdown"]["mean"]), (&2.into(), &2.0.into()));
    assert_eq!((&line["jobs_per_second"], line.get("growth")), (&2.0.into(), None));
    let page = page::page(&outcome, &series, 2).html();
    assert!(page.contains("&lt;a&gt;.swf") && page.matches("<svg").count() == 2 && !page.contains("http"));
    outcome.growth = vec![Point { jobs: 2, speed }];
    assert_eq!(serde_json::to_value(&outcome).unwrap()["growth"][0]["jobs"], 2);
    assert!(output::table(&outcome).contains("at most 2 MiB"));
    assert_eq!(page::page(&outcome, &series, 2).html().matches("<svg").count(), 3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.csv");
    let clusters = [ClusterSpec { name: "a,\"b\"".to_owned(), ..clusters[0].clone() }];
    output::write_jobs(&path, &trace, &runs, &clusters).unwrap();
    let csv = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert!(
        lines[0].starts_with("id,line,submit_s,start_s,end_s,cluster,hosts,") && lines[0].ends_with(",killed,in_time")
    );
    assert_eq!(lines[2], r#"0,1,0,10,15,"a,""b""",1,1,10,15,3.0000,1.5000,0,0"#);
}

#[test]
fn tags_exclude_clusters() {
    let specs = ["1:ppn=1:cl_b#excl", "1:ppn=1:x86:^cl_b", "1:ppn=1:^cl_c", "1:ppn=1:cl_c", "1:ppn=1#cl_b"];
    let text: String = (1..).zip(specs).map(|(id, spec)| extended(id, spec)).collect();
    let named = |name: &str| ClusterSpec { name: name.to_owned(), ..cluster(1, 1, 1) };
    let clusters = [named("a"), named("b")];
    let trace = read_on(&clusters, &text, &RULES).unwrap();
    let excluded: Vec<(i64, Vec<ClusterIndex>)> =
        trace.jobs.iter().map(|job| (job.id, job.known.excluded.to_vec())).collect();
    let (a, b) = (ClusterIndex(0), ClusterIndex(1));
    assert_eq!(excluded, [(1, vec![a]), (2, vec![b]), (3, vec![]), (5, vec![a])]);
    assert_eq!(trace.findings.rejected.first[0].0, 4, "there is no cluster c");
    let exclusive: Vec<i64> = trace.jobs.iter().filter(|job| job.known.shape.is_exclusive).map(|job| job.id).collect();
    assert_eq!(exclusive, [1]);
    let trace = read_on(&clusters, &text, &Rules { ignores_tags: true, ..RULES }).unwrap();
    let is_free = |job: &Job| job.known.excluded.is_empty() && !job.known.shape.is_exclusive;
    assert!(trace.jobs.len() == 5 && trace.jobs.iter().all(is_free));
}
