//! The report: the question, the tables, and plots of them; for readers of the source and for others.
//!
//! Invariant: words say what a plot shows, figures are those of [`super::present`]; the source's are called so.

use sim_kit::report::{Axis, Page, Plot};

use super::{
    Tables,
    present::{self, Section},
    source,
    study::{Figures, Point, Study},
    summary::{Comparison, Row, VersionTables},
};

/// The page.
pub(super) fn page(tables: &Tables) -> Page {
    let mut page = Page::new("Simple and collective requests");
    page.text(
        "A user asks a grid for N hosts for some time. A simple request says what every single host must have: \"10 hosts \
         with 4 GB each\". A collective request also says what the hosts must have together, and leaves the split open: \
         \"10 hosts with 40 GB in all\". Hosts differ and are partly in use, so the collective request fits in more ways, \
         and jobs start earlier. This page measures how much, on the cases of the dissertation that Kolo implements (chapter \
         3), and prints that dissertation's own figures beside ours (\"source\").",
    );
    page.text(
        "The start is the moment from which all N hosts are free; earlier is better. The efficiency factor (3.2) says how \
         full the chosen hosts are with the request on them: the product, over the resources, of use to capacity; of two \
         answers with the same start the one with the higher factor leaves emptier hosts to others. Of the search, phase II \
         checks whether the hosts could ever do, III finds the starts worth trying, IV picks hosts, V looks for better ones.",
    );
    page.text(
        "\"Textbook\" is the source's pseudo-code taken literally, run here on the same machine, hosts and requests as \
         Kolo's core, so the two can be compared. The source's own figures come from other hosts, another day and another \
         machine: shares and trends can be compared with ours, counts and milliseconds cannot.",
    );
    page.text(&format!("Cases: {}. The grid has {} hosts.", tables.origin, tables.grid_hosts));
    solved(&mut page, tables);
    optimality(&mut page, tables);
    times(&mut page, tables);
    page.heading("Each version beside Kolo");
    page.text(
        "\"Proven\" answers carry a proof that no earlier start exists among the hosts looked at, \"optimal\" ones that no \
         other hosts have a better factor; \"of bound\" is the factor as a part of an upper bound. A version's factor is given \
         as a part of Kolo's, where both start at the same time.",
    );
    for section in present::details(tables).chain(present::policies(tables)) {
        add(&mut page, Some(section));
    }
    if let Some(study) = &tables.study {
        parameters(&mut page, study);
    }
    page
}

fn add(page: &mut Page, section: Option<Section>) {
    if let Some((title, table)) = section {
        page.text(&format!("{title}:"));
        page.table(&table);
    }
}

/// Values at 0, 1, 2, ...
fn indexed(values: impl Iterator<Item = f64>) -> Vec<(f64, f64)> {
    values.enumerate().map(|(at, value)| (at as f64, value)).collect()
}

fn percent(of: &str) -> Axis {
    Axis::linear(&format!("per cent of the {of}")).within(0.0, 100.0)
}

fn solved(page: &mut Page, tables: &Tables) {
    let Some(all) = &tables.comparison else { return };
    page.heading("What leaving the split open brings");
    page.text(&format!(
        "Of {} cases {} are solved as simple requests and {} as collective ones. {} are solved as both; of these the \
         collective request starts earlier in {}, by {:.1} hours on average, and later in {}. (Each kind has its own \
         hosts to choose from: phase I leaves out hosts too small for the larger minima of the simple one, so that \
         one chooses among larger hosts and is sometimes luckier.) At the same start the collective \
         factor is better in {}, by {:.1} % on average, and worse in {}. The source: 146 and 322 of 540, earlier in 26 \
         by 3 hours, better in 73 by 8.5 %, worse in 21.",
        all.cases,
        all.solved_simple,
        all.solved_collective,
        all.solved_by_both,
        all.collective_earlier,
        all.hours_earlier,
        all.simple_earlier,
        all.collective_better,
        100.0 * all.collective_gain,
        all.simple_better,
    ));
    let rows: Vec<_> = tables.versions[0].table_3_2.iter().filter_map(|row| Some((row.hosts?, row))).collect();
    let share = |count: usize, of: usize| 100.0 * count as f64 / of.max(1) as f64;
    let ours = |count: fn(&Comparison) -> usize| indexed(rows.iter().map(|(_, row)| share(count(row), row.cases)));
    let theirs = |counts: source::Counts| {
        let of = |hosts| Some(share(source::count(counts, hosts)?, source::count(source::CASES, hosts)?));
        indexed(rows.iter().map(|(hosts, _)| of(*hosts).unwrap_or(f64::NAN)))
    };
    let total = |count: fn(&Row) -> usize| tables.collective.iter().map(count).sum::<usize>();
    page.plot(
        &Plot::new("Cases solved", Axis::names("N", rows.iter().map(|(hosts, _)| hosts.to_string())), percent("cases"))
            .bars("simple", ours(|row| row.solved_simple))
            .bars("collective", ours(|row| row.solved_collective))
            .bars("simple, source", theirs(source::SOLVED_SIMPLE))
            .bars("collective, source", theirs(source::SOLVED_COLLECTIVE)),
        &format!(
            "{} of Kolo's {} answers to collective requests are proven: no earlier start, or none at all, among the hosts \
             looked at.",
            total(|row| row.proven),
            total(|row| row.cases),
        ),
    );
    let mut gains =
        Plot::new("Start-time gain", Axis::linear("hours"), Axis::linear("per cent of the cases solved by both"));
    for VersionTables { version, start_gains_hours, .. } in &tables.versions {
        gains = gains.steps(version, at_least(start_gains_hours));
    }
    page.plot(
        &gains,
        "How many cases start at least so many hours earlier as collective requests. Left of zero the simple request was \
         the earlier one.",
    );
    add(page, present::table_3_2(tables));
}

/// For ascending values: how many per cent of them are at least x.
fn at_least(values: &[f64]) -> Vec<(f64, f64)> {
    let left = |at: usize| 100.0 * (values.len() - at) as f64 / values.len() as f64;
    let below = values.first().map(|first| (first.min(0.0), 100.0));
    below.into_iter().chain(values.iter().enumerate().map(|(at, value)| (*value, left(at + 1)))).collect()
}

fn optimality(page: &mut Page, tables: &Tables) {
    let Some(section) = present::table_3_3(tables) else { return };
    page.heading("How far from the best answer");
    page.text(
        "For N = 5 there are few enough sets of hosts to try them all, at every start. \"Solvable\" counts the cases for which \
         that finds an answer to the collective request among the hosts that the case may choose from; \"late\" those \
         answered with a later start than the earliest possible, and by how many hours; the factor is compared where the \
         start is the best. A simple request is compared with what the collective one could have had.",
    );
    let mut plot = Plot::new(
        "Efficiency factor at the best start, N = 5",
        percent("cases"),
        Axis::linear("part of the best factor"),
    );
    for VersionTables { version, table_3_3, table_3_3_simple, .. } in &tables.versions {
        for (kind, optimality) in [("collective", table_3_3), ("simple", table_3_3_simple)] {
            if let Some(optimality) = optimality {
                let shares = &optimality.factor_shares;
                let place = |at: usize| 100.0 * (at + 1) as f64 / shares.len() as f64;
                let points = shares.iter().enumerate().map(|(at, share)| (place(at), *share));
                plot = plot.line(&format!("{kind}, {version}"), points);
            }
        }
    }
    page.plot(
        &plot,
        "Each line goes from the worst case to the best one; 1 is the best factor that any set of hosts has.",
    );
    add(page, Some(section));
}

fn times(page: &mut Page, tables: &Tables) {
    page.heading("How long the search takes");
    page.text(
        "Phases II to V of one request, on this machine, inputs included. The source measured a mean below 0.1 s for N = 15 \
         and below 1 s for N = 60, on a processor of 2005.",
    );
    let hosts = || Axis::names("N", tables.collective.iter().map(|row| row.hosts.to_string()));
    let mut plot = Plot::new("Mean search time", hosts(), Axis::log("microseconds"));
    for (kind, rows) in present::kinds(tables) {
        for (at, version) in tables.versions.iter().enumerate() {
            let us = rows.iter().map(|row| present::version_us(row, at).unwrap_or(f64::NAN));
            plot = plot.line(&format!("{kind}, {}", version.version), indexed(us));
        }
    }
    page.plot(&plot, "Each step up the axis is ten times as long.");
    add(page, present::times(tables));
    add(page, present::table_3_4(tables));
    let phases = |name: &str, us: fn(&Row) -> Option<[f64; 4]>| {
        let mut plot = Plot::new(&format!("Time by phase, {name}"), hosts(), percent("time"));
        for (at, phase) in ["II", "III", "IV", "V"].into_iter().enumerate() {
            let share = |row: &Row| us(row).map_or(f64::NAN, |us| 100.0 * us[at] / us.iter().sum::<f64>());
            plot = plot.bars(phase, indexed(tables.collective.iter().map(share)));
        }
        plot
    };
    page.plot(
        &phases("Kolo", |row| Some(row.phases_us)),
        "Kolo proves the start in phase III, mostly, where the source searches in phase IV.",
    );
    if tables.collective.iter().any(|row| row.textbook.is_some()) {
        page.plot(
            &phases("textbook", |row| Some(row.textbook.as_ref()?.phases_us)),
            "The source: II below 1 %, III about 5 %.",
        );
    }
    add(page, present::phases(tables));
}

fn parameters(page: &mut Page, study: &Study) {
    page.heading("The parameters");
    page.text(
        "M_init: phase I looks at M_init N hosts. L1: phase IV of the source gives up after N L1 swaps; L2: phase V tries N L2 \
         swaps. The source settled on 3, 7 and 10: M = 3 found 50 % more solutions than 2 and 7 % fewer than 4, which took \
         60 % longer on cases without a solution; beyond L1 = 7 and L2 = 10 little improved. Kolo reads L1 and L2 as limits \
         of its own searches, which are exact where they can be, so they matter less to it.",
    );
    let plot = |page: &mut Page, (name, points): (&str, &[Point]), what, unit, figure: fn(&Figures) -> f64, caption| {
        let each = |of: fn(&Point) -> &Figures| -> Vec<(f64, f64)> {
            points.iter().map(|point| (f64::from(point.value), figure(of(point)))).collect()
        };
        let plot = Plot::new(&format!("{name} and {what}"), Axis::linear(name), Axis::linear(unit))
            .line("textbook", each(|point| &point.textbook))
            .line("Kolo", each(|point| &point.kolo));
        page.plot(&plot, caption);
    };
    let (m, l1, l2) = (("M_init", &study.m_init[..]), ("L1", &study.l1[..]), ("L2", &study.l2[..]));
    let mut sections = present::study(study);
    plot(page, m, "what is solved", "cases solved", |f| f.solved, "More hosts looked at, more solved.");
    let caption = "Time of a request that cannot be solved among the hosts looked at.";
    plot(page, m, "time without a solution", "microseconds", |f| f.unsolved_us, caption);
    add(page, sections.next());
    let caption = "Cases whose start differs from run to run: the search gave up too early in some of them.";
    plot(page, l1, "the start", "cases", |f| f.start_varies as f64, caption);
    plot(page, l1, "time", "microseconds, solved cases", |f| f.solved_us, "Mean time of a solved case.");
    add(page, sections.next());
    let caption = "L2 = 0 leaves phase V out: the step from there is what phase V brings (10 % in the source).";
    plot(page, l2, "the factor", "part of the best factor found", |f| f.factor_share, caption);
    let caption = "Standard deviation of the factor from run to run, as a part of its mean.";
    plot(page, l2, "how much the factor varies", "per cent", |f| 100.0 * f.factor_sd_mean, caption);
    add(page, sections.next());
}
