//! The report of a replay: the metrics, how full the machines were, how many jobs waited.

use sim_kit::{
    print::counted,
    report::{Axis, Page, Plot},
};

use super::{
    args::{Overrun, Runtimes},
    growth::{self, Point},
    output::{self, Outcome},
    series::Series,
};

const DAY_S: f64 = 86_400.0;

/// The page.
pub fn page(Outcome { metrics, trace, policy, rules, growth, .. }: &Outcome, series: &Series, processors: u64) -> Page {
    let mut page = Page::new(&format!("{policy} on {trace}"));
    let days = series.piece_s * series.processors.len() as f64 / DAY_S;
    page.text(&format!(
        "{jobs} on {processors}; {killed} killed at their limit, {rejected} rejected. The scheduler knew \
         {known}; a job that reached its limit {at_limit}. Makespan {days:.1} days, utilisation {utilisation:.2} %.",
        jobs = counted(metrics.jobs as u64, "job"),
        processors = counted(processors, "processor"),
        killed = metrics.killed,
        rejected = metrics.rejected,
        known = if rules.runtimes == Runtimes::True { "the true run times" } else { "the users' limits" },
        at_limit = if rules.overrun == Overrun::Kill { "ended there" } else { "ran on" },
        utilisation = 100.0 * metrics.utilisation,
    ));
    page.table(&output::spreads(metrics));
    let each = format!("Each step is the exact mean over one {}th of the makespan.", series.processors.len());
    let used = series.processors.iter().map(|used| 100.0 * used / processors as f64);
    page.plot(
        &Plot::new("Processors in use", Axis::linear("days"), Axis::linear("per cent of all").within(0.0, 100.0))
            .area("in use", steps(series, used)),
        &each,
    );
    page.plot(
        &Plot::new("Waiting jobs", Axis::linear("days"), Axis::linear("jobs"))
            .area("waiting", steps(series, series.waiting.iter().copied())),
        &each,
    );
    if !growth.is_empty() {
        add_growth(&mut page, growth);
    }
    page.heading("What was found in the trace");
    let found = output::findings(&metrics.findings);
    page.lines(if found.is_empty() { "Every line of the trace was a job." } else { &found });
    page
}

/// How the time of the replay grows with the number of jobs.
fn add_growth(page: &mut Page, points: &[Point]) {
    page.heading("How the replay itself grows");
    if let Some(exponent) = growth::exponent(points) {
        page.text(&format!(
            "Beginnings of the same trace, the shorter ones replayed several times (the fastest counts). From the first to \
             the last the time grew with the power {exponent:.2} of the number of jobs: 1 is proportional, 2 is with its \
             square."
        ));
    }
    page.table(&output::growth(points));
    let seconds = points.iter().map(|point| (point.jobs as f64, point.speed.replay_seconds));
    let each_s = seconds.clone().next().map_or(0.0, |(jobs, seconds)| seconds / jobs);
    let proportional = points.iter().map(|point| (point.jobs as f64, each_s * point.jobs as f64));
    page.plot(
        &Plot::new("Time of the replay", Axis::log("jobs"), Axis::log("s"))
            .line("measured", seconds)
            .line("in proportion to the jobs", proportional),
        "Both axes grow by powers of ten. The second line leads from the first point on as if twice the jobs took twice the \
         time.",
    );
}

/// The steps of a series over days, and its end.
fn steps(series: &Series, values: impl Iterator<Item = f64> + Clone) -> impl Iterator<Item = (f64, f64)> {
    let last = values.clone().last();
    values.chain(last).enumerate().map(|(index, value)| (index as f64 * series.piece_s / DAY_S, value))
}
