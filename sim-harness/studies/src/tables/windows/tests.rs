//! The figures of the study against values made by hand, and the whole of it on a few cycles.

use broker::{
    batch::choice::{Aim, Item, Question, choose},
    cost::Cost,
    request::{ObjectiveKind, Request, RequestDocument},
    snapshot::GridSnapshot,
    time::{Time, Window},
};
use clap::Parser;

use super::{
    super::parallel,
    criteria::{Compared, table},
    scheme::{self, Measured, Search, Served, alone, served},
    setup::{Cycle, cycle},
    slicing::{self, Batch, Planned, sliced},
    *,
};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: TablesArgs,
}

/// Two hosts: `a` of speed 2 and price 2 a unit, `b` of speed 10 whose owner gives a fifth off, and takes all but the first 25 units.
fn two_hosts(jobs: Vec<Request>) -> Cycle {
    let text = r#"{"format":"kolo-grid/2","hosts":[
        {"id":"a","site":"s","resources":{"cpu":1000},"speed":2000,"prices":{"cpu":120000},"occupancy":{}},
        {"id":"b","site":"s","resources":{"cpu":1000},"speed":10000,"prices":{"cpu":480000},
         "occupancy":{"cpu":[[1500,1000],[36000,0]]}}]}"#;
    Cycle { grid: GridSnapshot::read(text).unwrap(), jobs }
}

/// One host, 100 units of work at speed 1.
fn job(objective: &str, budget: u64) -> Request {
    let text = format!(
        r#"{{"hosts":1,"work":6000,"earliest":0,"deadline":36000,"per_host":{{"cpu":1000}},"objective":"{objective}"}}"#
    );
    let document: RequestDocument = serde_json::from_str(&text).unwrap();
    Request::try_from(RequestDocument { budget: Some(Cost(budget)), ..document }).unwrap()
}

fn window(start: f64, run: f64, cost: f64) -> Option<Measured> {
    Some(Measured { start, run, finish: start + run, cost, host_time: run })
}

#[test]
fn a_cycle_by_hand() {
    // On a: 50 units for 100 credits; on b: 10 units for 80, twice beside the owner's job.
    let jobs = vec![job("start", 90_000), job("runtime", 200_000), job("cost", 200_000)];
    let all = two_hosts(jobs);
    let of = |search, parts| served(&all, parts, search).unwrap();
    // One part: the first has b, then the second b and the third a; the two share what is left of a, 12 places in all.
    let own = of(Search::Kolo, 1);
    assert_eq!(own.iter().map(|job| job.alternatives).collect::<Vec<_>>(), [1, 7, 6]);
    let windows: Vec<_> = own.iter().map(|job| job.window).collect();
    assert_eq!(windows, [window(0.0, 10.0, 80.0), window(10.0, 10.0, 80.0), window(0.0, 50.0, 100.0)]);
    // The first window is on a where that is paid; of the first job's both windows on b and of the second's one the host time is least.
    let first = of(Search::First, 3);
    let windows: Vec<_> = first.iter().map(|job| job.window).collect();
    assert_eq!(windows, [window(0.0, 10.0, 80.0), window(10.0, 10.0, 80.0), window(0.0, 50.0, 100.0)]);
    assert_eq!(first.iter().map(|job| job.alternatives).collect::<Vec<_>>(), [2, 13, 12]);
    // Alone each has b.
    assert!(alone(&all).iter().all(|job| job.window == window(0.0, 10.0, 80.0)));
    // The product's policy as well: the batch's host time is what the windows have.
    assert_eq!(sliced(&all, 1, broker::batch::BatchObjective::HostTime).unwrap().batch.host_time, 60 * (10 + 10 + 50));
}

#[test]
fn the_budget_of_a_batch_is_what_alternatives_cost_on_average() {
    let items = |costs: &[u64]| -> Vec<Item> { costs.iter().map(|cost| Item::new(1, *cost, 1)).collect() };
    assert_eq!(scheme::budget(&[items(&[1, 2]), items(&[]), items(&[10])]), 2 + 10);
    // Of the one the mean is 60, of the other 100: the dearer and shorter one of the first is within 160 only with the cheaper second.
    let two = |short: u64, long: u64| vec![Item::new(1, short, 1), Item::new(5, long, 1)];
    let all = [two(80, 40), two(150, 50)];
    let of = |budget| choose(&Question { items: &all, budget, floor: 0, work: 1000 }, Aim::Sum).picks;
    assert_eq!(of(None), [Some(0), Some(0)]);
    assert_eq!(of(Some(scheme::budget(&all))), [Some(0), Some(1)]);
}

#[test]
fn table_1_by_hand() {
    let served = |criterion, alternatives, window| Served { criterion, alternatives, window };
    let cycles = [
        Compared {
            own: vec![
                served(ObjectiveKind::Start, 4, window(10.0, 20.0, 100.0)),
                served(ObjectiveKind::Cost, 2, window(50.0, 40.0, 50.0)),
            ],
            first: vec![
                served(ObjectiveKind::Start, 1, window(40.0, 30.0, 90.0)),
                served(ObjectiveKind::Cost, 3, window(20.0, 30.0, 110.0)),
            ],
            alone: vec![served(ObjectiveKind::Cost, 1, window(0.0, 40.0, 25.0))],
        },
        Compared { own: vec![served(ObjectiveKind::Start, 0, None)], first: Vec::new(), alone: Vec::new() },
    ];
    let table = table(70, &cycles);
    assert_eq!((table.first.jobs, table.first.placed, table.first.alternatives), (2, 2, 2.0));
    assert_eq!(Some(table.first.window), window(30.0, 30.0, 100.0));
    let row = |name| table.rows.iter().find(|row| row.criterion == name).unwrap();
    let start = row("start");
    assert_eq!((start.own.jobs, start.own.placed, start.own.alternatives), (2, 1, 2.0));
    assert_eq!((start.gains.start, start.gains.run, start.gain_alone), (3.0, 1.5, 0.0));
    assert_eq!((row("cost").gains.cost, row("cost").gain_alone), (2.0, 4.0));
    assert_eq!(row("finish").own.window, Measured::default());
}

#[test]
fn levels_by_hand() {
    let batch = |is_whole, host_time| Batch { is_whole, alternatives: 40, start: host_time / 2.0, host_time };
    let planned = |own, plain| Planned { backfilling: plain, slices: vec![own; slicing::PARTS.len()] };
    let cycles = [
        planned(batch(true, 100.0), batch(true, 150.0)),
        planned(batch(true, 300.0), batch(true, 350.0)),
        planned(batch(false, 1.0), batch(true, 400.0)),
        planned(batch(true, 900.0), batch(false, 1.0)),
    ];
    let level = slicing::figures(("high", 0.3), 200, &cycles);
    assert_eq!((level.backfilling.unplaced, level.backfilling.host_time), (0.25, 300.0));
    for slices in &level.slices {
        assert_eq!((slices.unplaced, slices.both, slices.alternatives), (0.25, 2, 2.0));
        assert_eq!((slices.host_time, slices.host_time_of_backfilling, slices.gain), (200.0, 250.0, 1.25));
    }
}

#[test]
fn the_same_seed_draws_the_same_cycle_and_the_load_is_what_was_asked() {
    let drawn = |seed, number, load| cycle(seed, number, load, None).unwrap();
    let (one, again, other) = (drawn(1, 7, 300), drawn(1, 7, 300), drawn(1, 8, 300));
    assert!(one.grid == again.grid && one.jobs == again.jobs);
    assert!(one.grid != other.grid && one.jobs != other.jobs && one.jobs != drawn(2, 7, 300).jobs);
    let whole = Window { start: Time(0), end: Time(36_000) };
    let busy = |load| {
        let hosts = (0..200).flat_map(|number| drawn(3, number, load).grid.hosts);
        let busy = |end: Time, (start, used): (Time, u64)| if used > 0 { end.0 - start.0 } else { 0 };
        let of_host = |host: broker::snapshot::SnapshotHost| {
            let steps: Vec<_> = host.schedule.busy().segments(whole).map(|(time, used)| (time, used.0)).collect();
            let ends = steps.iter().skip(1).map(|(time, _)| *time).chain([whole.end]);
            steps.iter().zip(ends).map(|(step, end)| busy(end, *step)).sum::<i64>()
        };
        hosts.map(of_host).sum::<i64>() as f64 / (200.0 * 24.0 * 36_000.0)
    };
    assert_eq!(busy(0), 0.0);
    for load in [70, 300, 700] {
        let share = f64::from(load) / 1000.0;
        assert!((busy(load) - share).abs() < 0.02 * share.max(0.3), "{load}: {}", busy(load));
    }
}

#[test]
fn few_experiments_give_all_tables_and_the_same_ones_again() {
    let windows = make(5, 3).unwrap();
    let value = |windows: &Windows| serde_json::to_value(windows).unwrap();
    assert_eq!(value(&windows), value(&make(5, 3).unwrap()));
    assert_ne!(value(&windows)["criteria"], value(&make(6, 3).unwrap())["criteria"]);
    assert_eq!((windows.criteria.len(), windows.levels.len(), windows.prices.len()), (2, 3, 2));
    for criteria in &windows.criteria {
        let jobs: usize = criteria.rows.iter().filter(|row| row.criterion != "host_time").map(|row| row.own.jobs).sum();
        assert_eq!((jobs, criteria.first.jobs), (60, 60));
        assert!(criteria.rows.iter().all(|row| row.own.placed <= row.own.jobs));
    }
    for level in &windows.levels {
        assert!(level.slices[0].unplaced <= level.wanted || level.load_thousandths == 0, "{level:?}");
    }
    for point in windows.prices.iter().flat_map(|prices| &prices.points) {
        assert!((0.0..=1.0).contains(&point.load));
        assert!((point.profit - f64::from(point.price) * point.load * 600.0).abs() < 1e-6);
    }
    let (text, page) = (present::text(&windows), page::page(&windows).html());
    for title in ["Table 1", "local load 30 %", "under low load"] {
        assert!(text.contains(title), "{title}");
    }
    for title in ["Each job by its own criterion", "How many parts", "An owner's price", "first window: source"] {
        assert!(page.contains(title), "{title}");
    }
    assert!(!page.contains("http") && !page.contains("NaN") && !text.contains("NaN") && !text.contains("-0.0"));
}

#[test]
fn experiments_come_in_order_and_the_first_error_is_told() {
    let progress = Progress::new("experiments", 50);
    assert_eq!(parallel::all(50, &progress, Ok).unwrap(), (0..50).collect::<Vec<_>>());
    let failing = |number| if number == 30 { anyhow::bail!("the 30th") } else { Ok(number) };
    assert_eq!(parallel::all(50, &progress, failing).unwrap_err().to_string(), "the 30th");
}

#[test]
fn impossible_flags_are_refused_by_name() {
    let refused = |flags: &[&str]| {
        let parsed = Cli::try_parse_from(["tables"].iter().chain(flags));
        parsed.err().map(|error| error.to_string()).unwrap_or_else(|| panic!("{flags:?}"))
    };
    for (flags, name) in [
        (&["--study", "windows", "--experiments", "0"][..], "--experiments"),
        (&["--study", "windows", "--experiments", "many"], "--experiments"),
        (&["--experiments", "5"], "--study"),
        (&["--study", "slots"], "--study"),
        (&["--study", "windows", "--grid", "g.json"], "--grid"),
        (&["--study", "windows", "--cases", "5"], "--cases"),
    ] {
        let message = refused(flags);
        assert!(message.contains(name), "{flags:?}: {message}");
    }
    let args = Cli::try_parse_from(["tables", "--study", "windows", "--experiments", "7"])
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(args.args.experiments, Some(7));
}
