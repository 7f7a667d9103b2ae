//! What a run has found in words: a summary, a picture, one reservation, a table of what was measured.

use std::{collections::BTreeMap, fmt::Write as _};

use broker::amount::format_amount;
use jiff::SignedDuration;

use super::{
    findings::{Figures, Findings},
    picture::{local_time, picture},
};
use crate::stats::Percentiles;
use crate::{
    grid::{
        faults::{attack::PhaseFigures, newcomers::JoinFigures},
        load::{
            answer::{Answer, Outcome},
            figures::LoadFigures,
        },
        nodes::wire::Reservation,
    },
    print::counted,
    report::Table,
};

/// Violations and failed checks shown; the rest is counted.
const SHOWN_FAILURES: usize = 50;

/// The result for people: what became of the requests and a picture first, details behind.
pub fn for_people(findings: &Findings, figures: &Figures, with_reasons: bool) -> String {
    let mut text = String::new();
    let (seed, nodes, hosts) = (figures.seed, figures.nodes, figures.hosts);
    line(&mut text, &format!("\nGrid of {nodes} nodes and {hosts} hosts, seed {seed}"));
    line(&mut text, &counts(figures));
    text.push_str(&not_reserved(findings, with_reasons));
    // Not those that their users have cancelled since.
    let reserved = || {
        findings.driven.answers.iter().filter_map(|answer| {
            let view = answer.last_view().filter(|view| view.state.is_reserved())?;
            Some((answer, view.reservation.as_ref()?))
        })
    };
    let sites = |reservation: &Reservation| hosts_by_site(reservation).len();
    // The earliest of those with the most sites.
    let example = reserved().max_by_key(|(_, found)| (sites(found), -found.start));
    if let Some((answer, example)) = example {
        let all: Vec<&Reservation> = reserved().map(|(_, reservation)| reservation).collect();
        line(&mut text, &format!("\n{}", picture(&all, example)));
        line(&mut text, &in_words(answer, example));
    }
    sections(figures).iter().for_each(|words| line(&mut text, words));
    line(&mut text, &table(figures).text());
    text.push_str(&failures(findings));
    line(&mut text, &verdict(figures));
    text
}

/// What became of the requests.
pub fn counts(figures: &Figures) -> String {
    format!(
        "{} requests: {} reserved, {} rejected, {} failed; {} attempts, {} conflicts",
        figures.requests, figures.reserved, figures.rejected, figures.failed, figures.attempts, figures.conflicts
    )
}

/// What must be zero.
pub fn verdict(figures: &Figures) -> String {
    format!("{} violations, {} crashes, {} failed checks", figures.violations, figures.crashes, figures.failed_checks)
}

/// How many requests are not reserved, and how to see why; or, `with_reasons`, a line for each.
pub fn not_reserved(findings: &Findings, with_reasons: bool) -> String {
    let answers: Vec<&Answer> =
        findings.driven.answers.iter().filter(|answer| answer.outcome() != Outcome::Reserved).collect();
    let mut text = String::new();
    if !with_reasons && !answers.is_empty() {
        line(
            &mut text,
            &format!("{} not reserved: --reasons lists each with the reason", counted(answers.len() as u64, "request")),
        );
        return text;
    }
    for answer in answers {
        let why = answer.why_not().unwrap_or_else(|| "no reason given".to_owned());
        let outcome = if answer.outcome() == Outcome::Rejected { "rejected" } else { "failed" };
        line(&mut text, &format!("{} {outcome}: {why}", answer.label()));
    }
    text
}

/// What an experiment adds, in words.
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
            "{} acknowledged, {} of them cancelled, {} lost; {} nodes wedged",
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
fn in_words(answer: &Answer, reservation: &Reservation) -> String {
    let length = SignedDuration::from_secs(reservation.end.saturating_sub(reservation.start));
    let mut text = format!(
        "# is {}, asked at {}: from {} for {length:#} on {} hosts",
        answer.label(),
        answer.entry_point,
        local_time(reservation.start, "%Y-%m-%d %H:%M:%S %:z"),
        reservation.hosts.len()
    );
    for (site, hosts) in hosts_by_site(reservation) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n    {site}: {}", hosts.join(", "));
    }
    text
}

/// The hosts of each site with their amounts.
fn hosts_by_site(reservation: &Reservation) -> BTreeMap<&str, Vec<String>> {
    let mut sites: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for host in &reservation.hosts {
        let amounts: Vec<String> =
            host.amounts.iter().map(|(name, amount)| format!("{name}={}", format_amount(name, *amount))).collect();
        sites.entry(&host.site_name).or_default().push(format!("{} ({})", host.host, amounts.join(" ")));
    }
    sites
}

/// Violations and failed checks, one line each.
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
    use serde_json::json;

    use super::*;
    use crate::grid::load::answer::tests::answer;

    fn findings() -> Findings {
        let host = |site: &str, host: &str| json!({"site": "x", "site_name": site, "host": host, "amounts": {"cpu": 1500, "memory": 2048}});
        let hosts = [host("node-002", "h3"), host("node-001", "h1"), host("node-001", "h2")];
        let reservation = json!({"start": 1_800_000_000, "end": 1_800_005_400, "hosts": hosts});
        let mut findings = Findings { nodes: 2, hosts: 3, seed: 9, ..Findings::default() };
        findings.driven.answers = vec![answer("confirmed", &reservation, 7), answer("rejected", &json!(null), 1)];
        findings
    }

    #[test]
    fn people_read_a_summary_a_picture_and_a_reservation_with_start_zone_and_hosts_by_site() {
        let findings = findings();
        let text = for_people(&findings, &findings.figures(), false);
        assert!(
            text.starts_with("\nGrid of 2 nodes and 3 hosts, seed 9\n2 requests: 1 reserved, 1 rejected, 0 failed;"),
            "{text}"
        );
        assert!(text.contains("\n1 request not reserved: --reasons lists each with the reason\n"), "{text}");
        assert!(text.contains("\n# is r1, asked at node-001: from 2027-01-15 "), "{text}");
        assert!(text.contains(" for 1h 30m on 3 hosts\n"), "{text}");
        let hosts = "    node-001: h1 (cpu=1.5 memory=2GiB), h2 (cpu=1.5 memory=2GiB)\n    node-002: h3";
        assert!(text.contains(hosts), "{text}");
        assert!(text.ends_with("0 violations, 0 crashes, 0 failed checks\n"), "{text}");
        let text = for_people(&findings, &findings.figures(), true);
        assert!(text.contains("\nr1 rejected: no reason given\n"), "{text}");
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
            ("latency_ms", json!({"p50": 7.0, "p99": 7.0, "max": 7.0})),
            ("gossip_ms", json!(null)),
            ("seed", json!(9)),
        ] {
            assert_eq!(object[key], expected, "{key}");
        }
    }
}
