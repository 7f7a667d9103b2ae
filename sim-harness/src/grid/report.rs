//! Shows what a run has found: a table and a few reservations in words for people, one JSON object for programs.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write},
};

use broker::amount::format_amount;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::{
    args::Checked,
    drive::{Answer, End},
    error::GridError,
    findings::{Figures, Findings, Outcome},
    hostile::PhaseFigures,
    load_figures::LoadFigures,
    measure::Percentiles,
    newcomers::JoinFigures,
    page,
    process::system,
    wire::Reservation,
};
use crate::{
    print::{self, OutputForm},
    report::{Table, write_whole},
};

/// Reservations shown in words.
const SHOWN_RESERVATIONS: usize = 5;
/// Violations and failed checks shown; the rest is counted.
const SHOWN_FAILURES: usize = 50;

/// Prints the result, and writes it to the files that were asked for.
///
/// # Errors
/// [`GridError::System`] naming the file.
pub fn tell(findings: &Findings, checked: &Checked) -> Result<(), GridError> {
    let figures = findings.figures();
    if let Some(path) = &checked.json {
        let write = |file: &mut dyn Write| {
            serde_json::to_writer(&mut *file, &figures)?;
            file.write_all(b"\n")
        };
        write_whole(path, write).map_err(system(&format!("--json: cannot write {}", path.display())))?;
    }
    if let Some(path) = &checked.html {
        let written = page::page(findings, &figures).write(path);
        written.map_err(system(&format!("--html: cannot write {}", path.display())))?;
    }
    print(findings, &figures, checked.output).map_err(system("cannot write the result"))
}

/// Prints the result on standard output; with JSON the words go to standard error and the object is the last line.
fn print(findings: &Findings, figures: &Figures, form: OutputForm) -> io::Result<()> {
    match form {
        OutputForm::Table => print::print(&for_people(findings, figures)),
        OutputForm::Json => {
            let words = not_reserved(findings) + &failures(findings);
            io::stderr().lock().write_all(words.as_bytes())?;
            print::print(&(serde_json::to_string(figures)? + "\n"))
        }
    }
}

fn for_people(findings: &Findings, figures: &Figures) -> String {
    let mut text = not_reserved(findings);
    let answers = &findings.driven.answers;
    let (seed, nodes, hosts) = (figures.seed, figures.nodes, figures.hosts);
    line(&mut text, &format!("\nGrid of {nodes} nodes and {hosts} hosts, seed {seed}"));
    line(&mut text, &counts(figures));
    sections(figures).iter().for_each(|words| line(&mut text, words));
    line(&mut text, &table(figures).text());
    let reserved: Vec<String> = answers.iter().filter_map(in_words).take(SHOWN_RESERVATIONS).collect();
    if !reserved.is_empty() {
        line(&mut text, "Reservations, for example:");
        reserved.iter().for_each(|words| line(&mut text, words));
    }
    text.push_str(&failures(findings));
    line(&mut text, &verdict(figures));
    text
}

/// What became of the requests.
pub fn counts(figures: &Figures) -> String {
    format!(
        "{} requests: {} reserved, {} rejected, {} failed; {} tries, {} conflicts",
        figures.requests, figures.reserved, figures.rejected, figures.failed, figures.attempts, figures.conflicts
    )
}

/// What must be zero.
pub fn verdict(figures: &Figures) -> String {
    format!("{} violations, {} crashes, {} failed checks", figures.violations, figures.crashes, figures.failed_checks)
}

/// A line for each request that is not reserved: which, and why.
fn not_reserved(findings: &Findings) -> String {
    let mut text = String::new();
    let not_reserved = || findings.driven.answers.iter().filter(|answer| answer.outcome() != Outcome::Reserved);
    for answer in not_reserved().take(SHOWN_FAILURES) {
        let why = answer.why_not().unwrap_or_else(|| "nothing says why".to_owned());
        let outcome = if answer.outcome() == Outcome::Rejected { "rejected" } else { "failed" };
        line(&mut text, &format!("{} {outcome}: {why}", answer.label()));
    }
    let more = not_reserved().count().saturating_sub(SHOWN_FAILURES);
    if more > 0 {
        line(&mut text, &format!("and {more} more not reserved"));
    }
    text
}

/// What a scenario adds, in words.
pub fn sections(figures: &Figures) -> Vec<String> {
    let mut words: Vec<String> =
        (!figures.conditions.is_empty()).then(|| figures.conditions.join("; ")).into_iter().collect();
    if let Some(crashes) = &figures.crashes_caused {
        let cut_short = crashes.recovery_ms.cut_short;
        let (kills, leaves) = (crashes.kills, crashes.leaves);
        words.push(format!("{kills} kills, {leaves} left in order; {cut_short} recoveries cut short by the next end"));
    }
    words.extend(figures.joins.as_ref().map(JoinFigures::words));
    if let Some(partition) = &figures.partition {
        let halves: Vec<String> =
            partition.halves.iter().map(|half| format!("{} of {}", half.reserved, half.answered)).collect();
        words.push(format!(
            "cut for {:.1} s: {} requests reserved in the halves; all agree {:.0} ms after the healing",
            partition.cut_ms / 1000.0,
            halves.join(" and "),
            partition.agree_after_heal_ms
        ));
    }
    words.extend(
        figures.rest_ms.map(|rest| format!("at rest {:.1} s after forming, or after the load before", rest / 1000.0)),
    );
    words.extend(figures.loads.iter().map(LoadFigures::words));
    words.extend(figures.highest_rate.map(|rate| format!("the highest rate that it kept up with: {rate:.1} a second")));
    words.extend(figures.hostile.iter().map(PhaseFigures::words));
    if let Some(after) = &figures.aftermath {
        words.push(format!(
            "{} told as reserved, {} of them taken back, {} lost; {} nodes wedged",
            after.acknowledged, after.taken_back, after.acknowledged_lost, after.wedged
        ));
    }
    words
}

fn line(text: &mut String, words: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{words}");
}

/// What was measured.
pub fn table(figures: &Figures) -> Table {
    let mut table = Table::new(["", "median", "99 %", "largest"]);
    let mut rows: Vec<(&str, Option<Percentiles>)> = vec![
        ("submit to confirmed, ms", figures.latency_ms),
        ("node start to whole grid known, ms", figures.formation_ms),
        ("change to known everywhere, ms", figures.gossip_ms),
        ("resident memory a node, MiB", figures.memory_mib),
        ("without shared pages counted twice, MiB", figures.memory_proportional_mib),
    ];
    if let Some(crashes) = &figures.crashes_caused {
        rows.extend([
            ("new process to answering, ms", crashes.recovery_ms.start),
            ("end to answering again, ms", crashes.recovery_ms.answers),
            ("end to all settled, ms", crashes.recovery_ms.settled),
        ]);
    }
    if let Some(joins) = &figures.joins {
        rows.extend([
            ("new site to answering, ms", joins.join_ms.answers),
            ("from then to whole grid known, ms", joins.join_ms.knows_grid),
        ]);
    }
    for (name, half) in ["alone, first half, ms", "alone, second half, ms"]
        .iter()
        .zip(figures.partition.iter().flat_map(|partition| &partition.halves))
    {
        rows.push((name, half.latency_ms));
    }
    for (name, row) in rows {
        let cell = |value: fn(&Percentiles) -> f64| {
            row.as_ref().map_or_else(|| "-".to_owned(), |row| format!("{:.1}", value(row)))
        };
        table.push([name.to_owned(), cell(|row| row.p50), cell(|row| row.p99), cell(|row| row.max)]);
    }
    table
}

/// A reservation as people say it: name, start, length, hosts by site.
fn in_words(answer: &Answer) -> Option<String> {
    let End::Told { view, .. } = &answer.end else { return None };
    let reservation = view.reservation.as_ref().filter(|_| view.state.stands())?;
    let start = Timestamp::from_second(reservation.start).ok()?.to_zoned(TimeZone::system());
    let length = SignedDuration::from_secs(reservation.end.saturating_sub(reservation.start));
    Some(format!(
        "  {}, asked at {}: from {} for {length:#} on {} hosts:\n{}",
        answer.label(),
        answer.entry_point,
        start.strftime("%Y-%m-%d %H:%M:%S %:z"),
        reservation.hosts.len(),
        hosts_by_site(reservation)
    ))
}

fn hosts_by_site(reservation: &Reservation) -> String {
    let mut sites: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for host in &reservation.hosts {
        let amounts: Vec<String> =
            host.amounts.iter().map(|(name, amount)| format!("{name}={}", format_amount(name, *amount))).collect();
        sites.entry(&host.site_name).or_default().push(format!("{} ({})", host.host, amounts.join(" ")));
    }
    let lines: Vec<String> =
        sites.into_iter().map(|(site, hosts)| format!("    {site}: {}", hosts.join(", "))).collect();
    lines.join("\n")
}

/// What must not be and is, one line each.
pub fn failures(findings: &Findings) -> String {
    let mut text = String::new();
    for (title, all) in [
        ("violation", findings.violations.iter().map(ToString::to_string).collect::<Vec<_>>()),
        ("failed", findings.failed_checks.clone()),
    ] {
        all.iter().take(SHOWN_FAILURES).for_each(|words| line(&mut text, &format!("{title}: {words}")));
        if all.len() > SHOWN_FAILURES {
            line(&mut text, &format!("{title}: and {} more", all.len() - SHOWN_FAILURES));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn findings() -> Findings {
        let host = |site: &str, host: &str| json!({"site": "x", "site_name": site, "host": host, "amounts": {"cpu": 1500, "memory": 2048}});
        let view = json!({"id": "q", "state": "confirmed", "attempts": 1, "conflicts": 0, "reason": null,
            "reservation": {"start": 1_800_000_000, "end": 1_800_005_400,
                "hosts": [host("node-002", "h3"), host("node-001", "h1"), host("node-001", "h2")]}});
        let answer = Answer {
            request: serde_json::from_value(json!({"id": "r1", "hosts": 3, "duration": 5400})).unwrap(),
            entry_point: "node-001".to_owned(),
            end: End::Told {
                view: serde_json::from_value(view).unwrap(),
                latency: Duration::from_micros(7300),
                explanation: None,
            },
            after: None,
        };
        let mut findings = Findings { nodes: 2, hosts: 3, seed: 9, ..Findings::default() };
        findings.driven.answers.push(answer);
        findings
    }

    #[test]
    fn people_read_reservations_with_start_zone_and_hosts_by_site() {
        let findings = findings();
        let text = for_people(&findings, &findings.figures());
        assert!(text.contains("  r1, asked at node-001: from 2027-01-15 "), "{text}");
        assert!(text.contains(" for 1h 30m on 3 hosts:"), "{text}");
        assert!(
            text.contains("    node-001: h1 (cpu=1.5 memory=2GiB), h2 (cpu=1.5 memory=2GiB)\n    node-002: h3"),
            "{text}"
        );
        assert!(text.contains("1 requests: 1 reserved, 0 rejected, 0 failed; 1 tries, 0 conflicts"), "{text}");
        assert!(text.ends_with("0 violations, 0 crashes, 0 failed checks\n"), "{text}");
    }

    #[test]
    fn programs_read_one_object_with_all_figures() {
        let mut findings = findings();
        findings.failed_checks = vec!["broken".to_owned(); 60];
        assert!(failures(&findings).ends_with("failed: and 10 more\n"));
        let object = serde_json::to_value(findings.figures()).unwrap();
        for (key, expected) in [
            ("nodes", json!(2)),
            ("reserved", json!(1)),
            ("violations", json!(0)),
            ("failed_checks", json!(60)),
            ("latency_ms", json!({"p50": 7.3, "p99": 7.3, "max": 7.3})),
            ("gossip_ms", json!(null)),
            ("seed", json!(9)),
        ] {
            assert_eq!(object[key], expected, "{key}");
        }
    }
}
