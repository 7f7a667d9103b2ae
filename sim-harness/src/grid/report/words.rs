//! What a run has found in words: a summary, a picture, one reservation, a table of what was measured.

use std::collections::BTreeMap;

use broker::amount::format_amount;
use jiff::SignedDuration;
use sim_kit::{print::counted, report::Table, stats::Percentiles};

use super::{
    findings::{Figures, Findings},
    picture::{local_time, picture},
};
use crate::grid::{
    faults::attack::PhaseFigures,
    load::{
        answer::{Answer, Counts, Outcome},
        batch::Asks,
        figures::LoadFigures,
    },
    nodes::wire::Reservation,
};

/// Violations and failed checks shown; the rest is counted.
const SHOWN_FAILURES: usize = 50;

/// The result for people: what became of the requests and a picture first, details behind.
pub fn for_people(findings: &Findings, with_reasons: bool) -> String {
    let figures = &findings.figures;
    let mut text = format!(
        "\nGrid of {} nodes and {} hosts, seed {}\n{}\n{}",
        figures.nodes,
        figures.hosts,
        figures.seed,
        counts(figures),
        not_reserved(findings, with_reasons)
    );
    // Not those that their users have cancelled since.
    let reserved = findings.answers.iter().filter_map(|answer| {
        let view = answer.last_view().filter(|view| view.state.is_reserved())?;
        Some((answer, view.reservation.as_ref()?))
    });
    let (answers, all): (Vec<&Answer>, Vec<&Reservation>) = reserved.unzip();
    // The earliest of those with the most sites.
    let example = answers.iter().zip(&all).max_by_key(|(_, found)| (hosts_by_site(found).len(), -found.start));
    if let Some((answer, example)) = example {
        text += &format!("\n{}\n{}\n", picture(&all, example), in_words(answer, example));
    }
    for words in sections(figures) {
        text += &(words + "\n");
    }
    text + &format!("{}\n{}{}\n", table(figures).text(), failures(findings), verdict(figures))
}

/// What became of the requests.
pub fn counts(figures: &Figures) -> String {
    let counts = &figures.counts;
    format!(
        "{} requests: {} reserved, {} rejected, {} failed; {} attempts, {} conflicts",
        counts.requests, counts.reserved, counts.rejected, counts.failed, counts.attempts, counts.conflicts
    )
}

/// What must be zero.
pub fn verdict(figures: &Figures) -> String {
    format!("{} violations, {} crashes, {} failed checks", figures.violations, figures.crashes, figures.failed_checks)
}

/// How many requests are not reserved, and how to see why; or, `with_reasons`, a line for each.
pub fn not_reserved(findings: &Findings, with_reasons: bool) -> String {
    let not_reserved = findings.answers.iter().filter(|answer| answer.outcome() != Outcome::Reserved);
    if with_reasons {
        let line = |answer: &Answer| {
            let why = answer.why_not().unwrap_or_else(|| "no reason given".to_owned());
            let outcome = if answer.outcome() == Outcome::Rejected { "rejected" } else { "failed" };
            format!("{} {outcome}: {why}\n", answer.label())
        };
        return not_reserved.map(line).collect();
    }
    match not_reserved.count() {
        0 => String::new(),
        count => format!("{} not reserved: --reasons lists each with the reason\n", counted(count as u64, "request")),
    }
}

/// What an experiment adds, in words.
pub fn sections(figures: &Figures) -> Vec<String> {
    let mut words = Vec::new();
    if !figures.conditions.is_empty() {
        words.push(figures.conditions.join("; "));
    }
    if let Some(crashes) = &figures.crashes_caused {
        let cut_short = crashes.recovery_ms.cut_short;
        let (kills, leaves) = (crashes.kills, crashes.leaves);
        words.push(format!("{kills} kills, {leaves} left in order; {cut_short} recoveries cut short by the next end"));
    }
    if let Some(joins) = &figures.joins {
        words.push(format!(
            "{} new sites joined: {} requests through them, {} reservations with hosts of theirs",
            joins.joined, joins.asked_at_newcomers, joins.reserved_at_newcomers
        ));
    }
    if let Some(partition) = &figures.partition {
        let halves = partition.halves.each_ref().map(|half| format!("{} of {}", half.reserved, half.answered));
        words.push(format!(
            "cut for {:.1} s: {} requests reserved in the halves; all agree {:.0} ms after the healing",
            partition.cut_ms / 1000.0,
            halves.join(" and "),
            partition.agree_after_heal_ms
        ));
    }
    if let Some(rest_ms) = figures.rest_ms {
        words.push(format!("at rest {:.1} s after forming, or after the load before", rest_ms / 1000.0));
    }
    words.extend(figures.loads.iter().map(load_words));
    if let Some(batch) = &figures.batch {
        let of = |counts: &Counts| {
            format!("{} of {} reserved, {} conflicts", counts.reserved, counts.requests, counts.conflicts)
        };
        words.push(format!(
            "each by itself: {} in {:.1} s; as a batch: {}, {} as planned, {} postponed, in {:.1} s",
            of(&batch.singly),
            batch.singly_ms / 1000.0,
            of(&batch.batch),
            batch.as_planned,
            batch.postponed,
            batch.batch_ms / 1000.0
        ));
        let of = |asks: &Asks| format!("{} questions between nodes, {} in shared messages", asks.sent, asks.shared);
        words.push(batch.asks.each_ref().map(of).join("; as a batch: "));
    }
    if let Some(rate) = figures.highest_rate {
        words.push(format!("the highest rate that it kept up with: {rate:.1} a second"));
    }
    words.extend(figures.hostile.iter().map(phase_words));
    if let Some(after) = &figures.aftermath {
        words.push(format!(
            "{} acknowledged, {} of them cancelled, {} lost; {} nodes wedged",
            after.acknowledged, after.taken_back, after.acknowledged_lost, after.wedged
        ));
    }
    words
}

fn latency_words(latency: Option<Percentiles>) -> String {
    let words = |found: Percentiles| format!("{:.0} / {:.0} / {:.0} ms", found.p50, found.p99, found.max);
    format!("p50 / p99 / max {}", latency.map_or_else(|| "none".to_owned(), words))
}

fn load_words(load: &LoadFigures) -> String {
    let (counts, rate) = (&load.counts, load.asked_per_second);
    let cpu = load.nodes_cpu.zip(load.cpu_ms_per_request);
    format!(
        "at {rate:.1} a second: {} of {} reserved, {} failed, {} conflicts; {}{}",
        counts.reserved,
        counts.requests,
        counts.failed,
        counts.conflicts,
        latency_words(counts.latency_ms),
        cpu.map_or_else(String::new, |(share, each)| format!("; processors: {share:.2}, {each:.0} ms a request"))
    )
}

fn phase_words(phase: &PhaseFigures) -> String {
    let (counts, costs) = (&phase.counts, &phase.costs);
    let defence: Vec<String> = costs.defence.iter().map(|(name, count)| format!("{name} {count}")).collect();
    format!(
        "{}: {} of {} reserved, {}{}; memory +{:.1} MiB; processors: nodes {:.2}, attackers {:.2}; {} hostile messages under {} \
         identities, thrown out {} times{}\n    {}",
        phase.phase,
        counts.reserved,
        counts.requests,
        latency_words(counts.latency_ms),
        phase.p99_ratio.map_or_else(String::new, |ratio| format!(", p99 x {ratio:.2}")),
        costs.memory_growth_mib,
        costs.nodes_cpu,
        costs.attackers_cpu,
        costs.deeds.sent.values().sum::<u64>(),
        costs.deeds.identities,
        costs.deeds.thrown_out,
        costs
            .deeds
            .granted
            .iter()
            .map(|(attack, count)| format!(", {attack:?} got {count} grants"))
            .collect::<String>(),
        defence.join(", ")
    )
}

/// What was measured.
pub fn table(figures: &Figures) -> Table {
    let mut rows: Vec<(&str, Option<Percentiles>)> = vec![
        ("submit to confirmed, ms", figures.counts.latency_ms),
        ("node start to whole grid known, ms", figures.formation_ms),
        ("change to known everywhere, ms", figures.gossip_ms),
        ("resident memory a node, MiB", figures.memory_mib),
        ("without shared pages counted twice, MiB", figures.memory_proportional_mib),
    ];
    if let Some(links) = &figures.links {
        rows.push(("with traffic, ms", links.with_traffic.latency_ms));
        rows.push(("without traffic, ms", links.without.latency_ms));
    }
    if let Some(crashes) = &figures.crashes_caused {
        rows.extend([
            ("new process to answering, ms", crashes.recovery_ms.start),
            ("end to answering again, ms", crashes.recovery_ms.answers),
            ("end to all settled, ms", crashes.recovery_ms.settled),
        ]);
    }
    if let Some(joins) = &figures.joins {
        rows.push(("new site to answering, ms", joins.join_ms.answers));
        rows.push(("from then to whole grid known, ms", joins.join_ms.knows_grid));
    }
    if let Some(partition) = &figures.partition {
        let [first, second] = &partition.halves;
        rows.push(("alone, first half, ms", first.latency_ms));
        rows.push(("alone, second half, ms", second.latency_ms));
    }
    let mut table = Table::new(["", "median", "99 %", "largest"]);
    for (name, row) in rows {
        let cells = row.map(|row| [row.p50, row.p99, row.max].map(|value| format!("{value:.1}")));
        let [median, tail, largest] = cells.unwrap_or_else(|| ["-", "-", "-"].map(str::to_owned));
        table.push([name.to_owned(), median, tail, largest]);
    }
    table
}

/// A reservation as people describe it: name, start, length, hosts by site.
fn in_words(answer: &Answer, reservation: &Reservation) -> String {
    let length = SignedDuration::from_secs(reservation.end.saturating_sub(reservation.start));
    let sites = hosts_by_site(reservation).into_iter();
    format!(
        "# is {}, asked at {}: from {} for {length:#} on {} hosts{}",
        answer.label(),
        answer.entry_point.1,
        local_time(reservation.start, "%Y-%m-%d %H:%M:%S %:z"),
        reservation.hosts.len(),
        sites.map(|(site, hosts)| format!("\n    {site}: {}", hosts.join(", "))).collect::<String>()
    )
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
    let violations: Vec<String> = findings.violations.iter().map(ToString::to_string).collect();
    let mut text = String::new();
    for (title, all) in [("violation", &violations), ("failed", &findings.failed_checks)] {
        text.extend(all.iter().take(SHOWN_FAILURES).map(|words| format!("{title}: {words}\n")));
        if all.len() > SHOWN_FAILURES {
            text += &format!("{title}: and {} more\n", all.len() - SHOWN_FAILURES);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::grid::load::answer::tests::answer;

    fn findings() -> Findings {
        let host = |site: &str, host: &str| json!({"site": "x", "site_name": site, "host": host, "end": 160, "amounts": {"cpu": 1500, "memory": 2048}});
        let hosts = [host("node-002", "h3"), host("node-001", "h1"), host("node-001", "h2")];
        let reservation = json!({"start": 1_800_000_000, "end": 1_800_005_400, "hosts": hosts});
        let answers = vec![answer("confirmed", &reservation, 7), answer("rejected", &json!(null), 1)];
        let spreads = vec![Duration::from_millis(3)];
        let mut findings = Findings { answers, spreads, ..Findings::default() };
        findings.finish();
        findings.failed_checks.clear();
        findings.figures = Figures { nodes: 2, hosts: 3, seed: 9, failed_checks: 0, ..findings.figures };
        findings
    }

    #[test]
    fn people_read_a_summary_a_picture_and_a_reservation_with_start_zone_and_hosts_by_site() {
        let findings = findings();
        let text = for_people(&findings, false);
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
        let text = for_people(&findings, true);
        assert!(text.contains("\nr1 rejected: no reason given\n"), "{text}");
    }

    #[test]
    fn a_load_is_described_in_one_line() {
        let latency_ms = Some(Percentiles { p50: 30.0, p99: 249.0, max: 900.0 });
        let counts = Counts { requests: 100, reserved: 98, conflicts: 3, latency_ms, ..Counts::default() };
        let (nodes_cpu, cpu_ms_per_request) = (Some(1.5), Some(30.0));
        let load =
            LoadFigures { asked_per_second: 50.0, counts, nodes_cpu, cpu_ms_per_request, ..LoadFigures::default() };
        assert_eq!(
            load_words(&load),
            "at 50.0 a second: 98 of 100 reserved, 0 failed, 3 conflicts; p50 / p99 / max 30 / 249 / 900 ms; processors: \
             1.50, 30 ms a request"
        );
    }

    #[test]
    fn programs_read_one_object_with_all_figures() {
        let mut findings = findings();
        findings.failed_checks = vec!["broken".to_owned(); 60];
        assert!(failures(&findings).ends_with("failed: and 10 more\n"));
        let object = serde_json::to_value(findings.figures).unwrap();
        for (key, expected) in [
            ("nodes", json!(2)),
            ("reserved", json!(1)),
            ("violations", json!(0)),
            ("latency_ms", json!({"p50": 7.0, "p99": 7.0, "max": 7.0})),
            ("gossip_ms", json!({"p50": 3.0, "p99": 3.0, "max": 3.0})),
            ("formation_ms", json!(null)),
            ("seed", json!(9)),
        ] {
            assert_eq!(object[key], expected, "{key}");
        }
    }
}
