//! Small grids: what must hold of every run, whatever its figures.

use std::{collections::BTreeSet, time::Duration};

use broker::ledger::Books;

use super::{
    counts::Counts,
    figures::Figures,
    geography::NetworkKind,
    options::{Pace, RunArgs, Settings},
    report::Report,
    traffic::{Flow, KINDS, Kind},
    world::World,
};
use crate::engine::Moment;

fn settings(sites: usize, shards: usize) -> Settings {
    let run = RunArgs { duration: Duration::from_secs(300), loss: 5_000, churn: 300, ..RunArgs::default() };
    Settings { shards, ..Settings::new(sites, 4 * sites, Pace::Open { per_second: 0.5 }, run).unwrap() }
}

fn run(settings: Settings) -> World {
    let mut world = World::new(settings).unwrap();
    world.run(|_| ());
    world
}

fn figures(settings: Settings) -> Figures {
    Figures::new(&run(settings).grid, 0.0)
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_one_does_not() {
    let text = |seed| {
        let mut settings = settings(30, 4);
        settings.run.seed = seed;
        serde_json::to_string(&figures(settings)).unwrap()
    };
    assert_eq!(text(7), text(7));
    assert_ne!(text(7), text(8));
}

#[test]
fn bytes_sent_are_received_or_lost() {
    let grid = run(settings(40, 2)).grid;
    for (kind, name) in KINDS {
        let sum: Flow = grid.traffic.of(kind).sum();
        assert_eq!(sum.sent, sum.received + sum.lost, "{name}");
        assert!(sum.received > 0, "{name}");
        assert!(sum.lost > 0 || matches!(kind, Kind::Upkeep | Kind::Dht), "{name}: frames are lost");
    }
    let Counts { crashes, leaves, reserved, .. } = grid.counts;
    assert!(crashes > 0 && leaves > 0 && reserved > 50, "{:?}", grid.counts);
}

#[test]
fn ledgers_stay_sound_through_crashes() {
    let grid = run(settings(20, 1)).grid;
    for site in &grid.sites {
        let ledger = site.ledger();
        assert_eq!(ledger.map_or(Ok(()), broker::ledger::Ledger::sanity_check), Ok(()));
        // What is worked out of the past ends with the present.
        if let (Some(ledger), Some(last)) = (ledger, site.history.snapshot_at(&site.id, grid.now())) {
            assert_eq!(last.version, ledger.version());
            let schedules = ledger.hosts().map(|host| (host.host().id.clone(), host.reserved().clone()));
            assert_eq!(last.hosts, schedules.collect::<Vec<_>>());
        }
    }
}

#[test]
fn without_delay_views_are_true_and_lonely_requests_never_conflict() {
    let mut settings = settings(25, 1);
    (settings.run.network, settings.run.disk) = (NetworkKind::Instant, Duration::ZERO);
    (settings.run.loss, settings.run.churn) = (0, 0);
    settings.intervals.gossip = Duration::ZERO;
    settings.pace = Pace::Open { per_second: 0.2 };
    let counts = figures(settings).counts;
    assert_eq!((counts.failed, counts.conflicts), (0, 0), "{counts:?}");
    assert!(counts.reserved > 30, "{counts:?}");
    assert_eq!((counts.stale_hosts_share.value(), counts.staleness[0].conflict_rate.value()), (0.0, 0.0));
}

#[test]
fn slow_gossip_makes_plans_stale_and_holds_fail() {
    let [fast, slow] = [1, 60].map(|seconds| {
        let mut settings = settings(12, 1);
        (settings.run.seed, settings.run.churn, settings.run.loss) = (3, 0, 0);
        settings.pace = Pace::Open { per_second: 1.0 };
        settings.intervals.gossip = Duration::from_secs(seconds);
        let counts = figures(settings).counts;
        (counts.stale_hosts_share.value(), counts.conflict_rate.value())
    });
    assert!(slow.0 > 2.0 * fast.0 && slow.1 > fast.1, "{fast:?} {slow:?}");
}

#[test]
fn shards_cut_gossip_and_memory_where_the_view_is_smaller_than_the_grid() {
    let [whole, split] = [1, 16].map(|shards| {
        let mut settings = settings(200, shards);
        (settings.run.view_hosts, settings.run.churn) = (100, 0);
        figures(settings)
    });
    let received = |figures: &Figures| figures.traffic[0].received_bytes_per_s.map_or(0.0, |bytes| bytes.p50);
    assert_eq!((whole.view_sites, split.view_sites), (200, 25));
    assert!(received(&split) < received(&whole) / 3.0, "{} {}", received(&split), received(&whole));
    assert!(split.memory.view_mib < whole.memory.view_mib / 3.0);
    assert!(split.counts.reserved > 0, "a part of the grid is enough to reserve");
}

#[test]
fn a_page_plots_what_grows_with_the_grid_if_there_are_several_sizes() {
    let runs = [figures(settings(20, 1)), figures(settings(40, 1)), figures(settings(40, 2))];
    let html = Report::new(&runs, None).page().html();
    for expected in ["<th>40 / 2</th>", "Memory of a node", "1 shard</li>", "2 shards</li>", "<title>1 shard: 20; "] {
        assert!(html.contains(expected), "{expected} in {html}");
    }
    assert!(!Report::new(&runs[1..], None).page().html().contains("Memory of a node"), "one size does not grow");
}

#[test]
fn rounds_go_as_in_the_real_grid_and_after_a_lonely_request_all_wait_for_its_news() {
    let mut settings = settings(8, 1);
    (settings.run.network, settings.run.churn, settings.run.loss) = (NetworkKind::Loopback, 0, 0);
    settings.pace = Pace::Rounds { at_once: 3, requests: 13 };
    let World { grid, requests, .. } = run(settings);
    let submitted: Vec<Moment> = requests.iter().map(|submitted| submitted.at).collect();
    let rounds = [0..1, 1..4, 4..5, 5..8, 8..9, 9..12, 12..13];
    assert_eq!((submitted.len(), grid.counts.reserved), (13, 13));
    for round in &rounds {
        assert!(
            submitted[round.clone()].iter().all(|at| *at == submitted[round.start]),
            "{round:?} at the same moment"
        );
        let entry_points: BTreeSet<usize> = requests[round.clone()].iter().map(|submitted| submitted.entry).collect();
        assert_eq!(entry_points.len(), round.len(), "{round:?} through different entry points");
    }
    assert!(rounds.windows(2).all(|pair| submitted[pair[0].start] < submitted[pair[1].start]));
    let spreads = &grid.counts.spread_ms;
    assert_eq!(spreads.len(), 4);
    for (round, spread_ms) in rounds.iter().filter(|round| round.len() == 1).zip(spreads).take(3) {
        let waited = submitted[round.end] - submitted[round.start];
        assert_eq!(waited.as_secs_f64() * 1000.0, *spread_ms, "{round:?}");
    }
}
