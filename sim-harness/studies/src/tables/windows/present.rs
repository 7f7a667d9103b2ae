//! The tables of the study as people read them, on a terminal and on a page.
//!
//! Invariant: the source's figures stand in rows and columns that are called so.

use serde::Serialize;
use sim_kit::report::Table;

use super::{
    criteria::{Criteria, Means, Row, ratio},
    price::{self, Point, Prices},
    scheme::Measured,
    setup,
    slicing::Level,
    source,
};

/// Everything that is printed.
#[derive(Debug, Serialize)]
pub(super) struct Windows {
    pub(super) seed: u64,
    pub(super) experiments: u64,
    pub(super) setup: setup::Figures,
    pub(super) criteria: Vec<Criteria>,
    pub(super) levels: Vec<Level>,
    pub(super) prices: Vec<Prices>,
}

/// All tables as text.
pub(super) fn text(windows: &Windows) -> String {
    let Windows { seed, experiments, criteria, levels, prices, .. } = windows;
    let mut text = format!("{experiments} experiments, seed {seed}; {}\n", setup::words());
    let mut add = |title: &str, table: &Table| text += &format!("\n{title}\n{}\n", table.text());
    for criteria in criteria {
        let Criteria { parts, load_thousandths, .. } = criteria;
        let load = percent(*load_thousandths);
        add(
            &format!("Table 1: means of a job by its criterion, {parts} parts, local load {load} %"),
            &table_1(criteria),
        );
        add("Gains: the first window's figure divided by that by the job's own criterion", &gains(criteria));
    }
    for level in levels {
        add(&title(level), &slices(level));
    }
    for prices in prices {
        add(&owner_title(prices), &owner(&prices.points));
    }
    text
}

/// What a level of load is.
pub(super) fn title(level: &Level) -> String {
    let Level { name, wanted, load_thousandths, .. } = level;
    let load = percent(*load_thousandths);
    format!("Parts of a batch under {name} load (Y = {wanted} wanted with k = 1; local load {load} %)")
}

/// Thousandths in per cent.
pub(super) fn percent(thousandths: u32) -> f64 {
    f64::from(thousandths) / 10.0
}

fn dash(figure: Option<f64>, digits: usize) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))
}

/// Table 1.
pub(super) fn table_1(criteria: &Criteria) -> Table {
    let mut table =
        Table::new(["criterion", "jobs", "placed", "alternatives", "start", "run", "finish", "cost", "host time"]);
    let mut add = |name: &str, means: &Means, theirs: Option<[f64; 5]>| {
        let Means { jobs, placed, alternatives, window } = means;
        let Measured { start, run, finish, cost, host_time } = window;
        let figures = [alternatives, start, run, finish, cost, host_time].map(|figure| format!("{figure:.1}"));
        table.row(name, [jobs, placed].map(ToString::to_string).into_iter().chain(figures));
        if let Some(theirs) = theirs {
            let figures = theirs.map(|figure| format!("{figure:.1}"));
            let dashes = || std::iter::repeat_n("-".to_owned(), 2);
            table.row(format!("{name}: source"), dashes().chain(figures).chain(dashes().take(1)));
        }
    };
    for Row { criterion, own, .. } in &criteria.rows {
        add(criterion, own, source::table_1(criterion));
    }
    add("first window", &criteria.first, Some(source::FIRST));
    table
}

/// The gains of table 1. Alone a job starts at once: that has no limit to speak of.
pub(super) fn gains(criteria: &Criteria) -> Table {
    let mut table = Table::new(["criterion", "start", "run", "finish", "cost", "host time", "own, alone"]);
    let dashes = |count| std::iter::repeat_n("-".to_owned(), count);
    for Row { criterion, gains, gain_alone, .. } in &criteria.rows {
        let Measured { start, run, finish, cost, host_time } = gains;
        let gains = [start, run, finish, cost, host_time].map(|gain| format!("{gain:.3}"));
        table.row(
            *criterion,
            gains
                .into_iter()
                .chain([dash(Some(*gain_alone).filter(|gain| (f64::MIN_POSITIVE..100.0).contains(gain)), 3)]),
        );
        if let Some([_, theirs @ ..]) = source::table_1(criterion) {
            let gains = theirs.iter().zip(&source::FIRST[1..]).map(|(own, first)| format!("{:.3}", first / own));
            table.row(format!("{criterion}: source"), gains.chain(dashes(2)));
        }
    }
    table
}

/// A level of load.
pub(super) fn slices(level: &Level) -> Table {
    let mut table = Table::new([
        "policy",
        "Y",
        "alternatives",
        "start",
        "cycles both",
        "host time",
        "backfilling's",
        "gain",
        "gain: source",
        "less, %",
    ]);
    let plain = &level.backfilling;
    let (start, host_time) = (format!("{:.1}", plain.start), format!("{:.1}", plain.host_time));
    let unplaced = format!("{:.4}", plain.unplaced);
    let dash_text = || "-".to_owned();
    table.row(
        "backfilling",
        [unplaced, dash_text(), start, dash_text(), host_time, dash_text(), dash_text(), dash_text(), dash_text()],
    );
    let best = level.best().map(|best| best.parts);
    for slices in &level.slices {
        let theirs = source::gains(level.name).and_then(|[whole, most]| match slices.parts {
            1 => Some(whole),
            parts => (best == Some(parts)).then_some(most),
        });
        let name = format!("k = {}{}", slices.parts, if best == Some(slices.parts) { ", best" } else { "" });
        table.row(
            name,
            [
                format!("{:.4}", slices.unplaced),
                format!("{:.1}", slices.alternatives),
                format!("{:.1}", slices.start),
                slices.both.to_string(),
                format!("{:.1}", slices.host_time),
                format!("{:.1}", slices.host_time_of_backfilling),
                format!("{:.3}", slices.gain),
                dash(theirs, 2),
                format!("{:.1}", 100.0 * (1.0 - ratio(slices.host_time, slices.host_time_of_backfilling))),
            ],
        );
    }
    table
}

/// What the owner's prices are seen with.
pub(super) fn owner_title(prices: &Prices) -> String {
    let (parts, load, market, objective) = (price::PARTS, percent(price::LOAD), price::MARKET, prices.objective);
    format!("One owner's price, the batch by {objective}, {parts} parts, local load {load} %; the market's is {market}")
}

/// The owner's price.
pub(super) fn owner(prices: &[Point]) -> Table {
    let most = most_profit(prices);
    let mut table =
        Table::new(["price", "load, %", "load, %: source", "profit", "part of the most", "part of the most: source"]);
    for Point { price, load, profit } in prices {
        table.row(
            price.to_string(),
            [
                format!("{:.1}", 100.0 * load),
                dash(source::load(*price).map(|load| 100.0 * load), 0),
                format!("{profit:.0}"),
                format!("{:.2}", profit / most),
                dash(source::profit(*price), 1),
            ],
        );
    }
    table
}

/// The largest profit, never zero.
pub(super) fn most_profit(prices: &[Point]) -> f64 {
    prices.iter().map(|point| point.profit).fold(f64::MIN_POSITIVE, f64::max)
}
