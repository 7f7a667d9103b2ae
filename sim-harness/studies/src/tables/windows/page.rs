//! The report of the study: what was asked, the tables, and plots of them.
//!
//! Invariant: as of [`super::super::page`].

use sim_kit::report::{Axis, Page, Plot};

use super::{
    present::{self, Windows},
    price, setup,
    slicing::{PARTS, Slices},
    source,
};

/// The page.
pub(super) fn page(windows: &Windows) -> Page {
    let mut page = Page::new("Windows of slots");
    page.text(
        "Owners' own jobs come first and leave free times of their hosts, the slots. A job asks for several hosts at once, a window of \
         slots, and says what is best for it. This page repeats the experiments of a dissertation of 2013 with Kolo's planner and prints \
         that dissertation's figures beside ours (\"source\"). Its units and money are ours, its hosts and jobs are drawn anew: ratios can be \
         compared, other figures less.",
    );
    page.text(&format!("{} experiments, seed {}. {}.", windows.experiments, windows.seed, setup::words()));
    criteria(&mut page, windows);
    slices(&mut page, windows);
    owner(&mut page, windows);
    page
}

/// Values at 0, 1, 2, ...
fn indexed(values: impl Iterator<Item = f64>) -> Vec<(f64, f64)> {
    values.enumerate().map(|(at, value)| (at as f64, value)).collect()
}

fn criteria(page: &mut Page, windows: &Windows) {
    page.heading("Each job by its own criterion");
    page.text(
        "Every job has one of the criteria. The batch is cut into parts, one after another: windows are searched for each job of the part in \
         turn, each beside all others, until nobody finds another; one of each job is chosen so that the host time of the part is least \
         and all together cost no more than alternatives do on average, and slides to the left. The first window is the source's older algorithm in the same scheme: whatever the criterion, it takes the first \
         window that the budget pays. The gain is the first window's figure divided by the own one; more than 1 is better. \"Own, alone\" \
         is the gain by the own criterion if there were no other jobs of the batch; of that no window has more, by proof.",
    );
    for criteria in &windows.criteria {
        let load = present::percent(criteria.load_thousandths);
        let names: Vec<&str> = criteria.rows.iter().map(|row| row.criterion).collect();
        let theirs =
            |(at, name): (usize, &&str)| source::table_1(name).map_or(f64::NAN, |row| source::FIRST[at] / row[at]);
        let title = format!("Gain by the job's own criterion, local load {load} %, {} parts", criteria.parts);
        let plot = Plot::new(&title, Axis::names("criterion", names.clone()), Axis::linear("times"))
            .bars("Kolo", indexed(criteria.rows.iter().map(|row| row.gains.by(row.criterion))))
            .bars("source", indexed((1..).zip(names.iter().take(4)).map(theirs)));
        page.plot(&plot, "Each criterion's own figure.");
        page.table(&present::table_1(criteria));
        page.table(&present::gains(criteria));
    }
}

fn slices(page: &mut Page, windows: &Windows) {
    page.heading("How many parts");
    page.text(
        "The product's policy slices:K against plain backfilling, which gives each job in turn the first start that its budget pays. Y is the \
         share of cycles in which some job has no place; the local load is searched that gives the source's Y with k = 1. Host times are \
         compared over the cycles that both place whole.",
    );
    let names = || Axis::names("parts k", PARTS.map(|parts| parts.to_string()));
    let mut host_times = Plot::new("Host time", names(), Axis::linear("units a job"));
    let mut gains = Plot::new("Gain against backfilling", names(), Axis::linear("times"));
    for level in &windows.levels {
        let line = |figure: fn(&Slices) -> f64| indexed(level.slices.iter().map(figure));
        host_times = host_times.line(&format!("{} load", level.name), line(|slices| slices.host_time));
        gains = gains.line(&format!("{} load", level.name), line(|slices| slices.gain));
    }
    page.plot(&host_times, "Means over the cycles that backfilling places whole as well.");
    page.plot(
        &gains,
        "Backfilling's host time divided by the own one; the tables also say by how much the own one is less.",
    );
    for level in &windows.levels {
        page.text(&format!("{}:", present::title(level)));
        page.table(&present::slices(level));
    }
}

fn owner(page: &mut Page, windows: &Windows) {
    page.heading("An owner's price");
    page.text(&format!(
        "One owner asks another price than the {} that the market asks for the host's speed; all others stay at the market. The \
         profit is the price times the time in which the host works for the batch. The local load is {} %, the batch is cut into {} \
         parts.",
        price::MARKET,
        present::percent(price::LOAD),
        price::PARTS
    ));
    for prices in &windows.prices {
        let most = present::most_profit(&prices.points);
        let at = |figure: &dyn Fn(&price::Point) -> f64| -> Vec<(f64, f64)> {
            prices.points.iter().map(|point| (f64::from(point.price), figure(point))).collect()
        };
        let plot = Plot::new(&present::owner_title(prices), Axis::linear("price"), Axis::linear("per cent"))
            .line("load of the host", at(&|point| 100.0 * point.load))
            .line("profit, of the largest", at(&|point| 100.0 * point.profit / most))
            .line("load, source", at(&|point| source::load(point.price).map_or(f64::NAN, |load| 100.0 * load)));
        page.plot(&plot, "The source: the profit is largest near 6 and half of that at 2 and at 10.");
        page.table(&present::owner(&prices.points));
    }
}
