//! Small grids: what must hold of every run, whatever its figures.

use std::time::Duration;

use broker::ledger::Books;

use super::{
    figures::Figures,
    geography::NetworkKind,
    report,
    settings::{Pace, Settings},
    setup,
    traffic::{KINDS, Kind},
    world::World,
};
use crate::engine::Moment;

fn settings(sites: usize, shards: usize) -> Settings {
    let mut settings = Settings::new(sites, 4 * sites).unwrap();
    settings.shards = shards;
    settings.duration = Duration::from_secs(300);
    settings.pace = Pace::Open { per_second: 0.5 };
    settings.loss_ppm = 5_000;
    settings.churn_percent = 300;
    settings
}

fn run(settings: Settings) -> World {
    let mut world = setup::world(settings).unwrap();
    world.run(|_| ());
    world
}

fn figures(settings: Settings) -> Figures {
    run(settings).figures(0.0)
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_one_does_not() {
    let text = |seed| serde_json::to_string(&figures(Settings { seed, ..settings(30, 4) })).unwrap();
    assert_eq!(text(7), text(7));
    assert_ne!(text(7), text(8));
}

#[test]
fn bytes_sent_are_received_or_lost() {
    let world = run(settings(40, 2));
    for kind in KINDS {
        let sum = world.traffic.sum(kind);
        assert_eq!(sum.sent, sum.received + sum.lost, "{kind:?}");
        assert!(sum.received > 0, "{kind:?}");
    }
    for kind in [Kind::Gossip, Kind::Direct] {
        assert!(world.traffic.sum(kind).lost > 0, "{kind:?}: frames are lost");
    }
    let figures = world.figures(0.0);
    assert!(figures.totals.crashes > 0 && figures.totals.leaves > 0 && figures.totals.reserved > 50, "{figures:?}");
    let settled = figures.totals.reserved + figures.totals.rejected + figures.totals.failed;
    assert_eq!(figures.totals.requests, settled + figures.still_open);
}

#[test]
fn ledgers_stay_sound_through_crashes() {
    let world = run(settings(20, 1));
    for site in &world.sites {
        let ledger = site.ledger();
        assert_eq!(ledger.map_or(Ok(()), broker::ledger::Ledger::sanity_check), Ok(()));
        // What is worked out of the past ends with the present.
        if let (Some(ledger), Some(last)) = (ledger, site.snapshot_at(world.now())) {
            assert_eq!(last.version, ledger.version());
            let schedules = ledger.hosts().map(|host| (host.host().id.clone(), host.reserved().clone()));
            assert_eq!(last.hosts, schedules.collect::<Vec<_>>());
        }
    }
}

#[test]
fn without_delay_views_are_true_and_lonely_requests_never_conflict() {
    let mut settings = settings(25, 1);
    (settings.network, settings.disk) = (NetworkKind::Instant, Duration::ZERO);
    (settings.loss_ppm, settings.churn_percent) = (0, 0);
    settings.intervals.gossip = Duration::ZERO;
    settings.pace = Pace::Open { per_second: 0.2 };
    let figures = figures(settings);
    assert_eq!((figures.totals.failed, figures.totals.conflicts), (0, 0), "{figures:?}");
    assert!(figures.totals.reserved > 30, "{figures:?}");
    assert_eq!(figures.stale_hosts_share, 0.0);
    assert_eq!(figures.staleness[0].conflict_rate, 0.0);
}

#[test]
fn slow_gossip_makes_plans_stale_and_holds_fail() {
    let with_gossip_every = |seconds| {
        let mut settings = Settings { seed: 3, ..settings(12, 1) };
        (settings.churn_percent, settings.loss_ppm) = (0, 0);
        settings.pace = Pace::Open { per_second: 1.0 };
        settings.intervals.gossip = Duration::from_secs(seconds);
        figures(settings)
    };
    let (fast, slow) = (with_gossip_every(1), with_gossip_every(60));
    assert!(slow.stale_hosts_share > 2.0 * fast.stale_hosts_share, "{fast:?} {slow:?}");
    assert!(slow.conflict_rate > fast.conflict_rate, "{fast:?} {slow:?}");
}

#[test]
fn shards_cut_gossip_and_memory_where_the_view_is_smaller_than_the_grid() {
    let with_shards = |shards| {
        let mut settings = Settings { view_hosts: 100, ..settings(200, shards) };
        settings.churn_percent = 0;
        figures(settings)
    };
    let (whole, split) = (with_shards(1), with_shards(16));
    let received = |figures: &Figures| figures.traffic[0].received_bytes_per_s.map_or(0.0, |bytes| bytes.p50);
    assert_eq!((whole.view_sites, split.view_sites), (200, 25));
    assert!(received(&split) < received(&whole) / 3.0, "{} {}", received(&split), received(&whole));
    assert!(split.memory.view_mib < whole.memory.view_mib / 3.0);
    assert!(split.totals.reserved > 0, "a part of the grid is enough to reserve");
}

#[test]
fn a_page_plots_what_grows_with_the_grid_if_there_are_several_sizes() {
    let runs = [figures(settings(20, 1)), figures(settings(40, 1)), figures(settings(40, 2))];
    let html = report::page(&runs, None).html();
    for expected in ["<th>40 / 2</th>", "Memory of a node", "1 shard</li>", "2 shards</li>", "<title>1 shard: 20; "] {
        assert!(html.contains(expected), "{expected} in {html}");
    }
    assert!(!report::page(&runs[1..], None).html().contains("Memory of a node"), "one size does not grow");
}

#[test]
fn rounds_go_as_in_the_real_grid_and_after_a_lonely_request_all_wait_for_its_news() {
    let mut settings = settings(8, 1);
    (settings.network, settings.churn_percent, settings.loss_ppm) = (NetworkKind::Loopback, 0, 0);
    settings.pace = Pace::Rounds { at_once: 3, requests: 13 };
    let world = run(settings);
    let submitted: Vec<Moment> = world.requests.iter().map(|submitted| submitted.at).collect();
    let rounds = [0..1, 1..4, 4..5, 5..8, 8..9, 9..12, 12..13];
    assert_eq!((submitted.len(), world.counts.totals.reserved), (13, 13));
    for round in &rounds {
        assert!(
            submitted[round.clone()].iter().all(|at| *at == submitted[round.start]),
            "{round:?} at the same moment"
        );
        let mut entry_points: Vec<usize> =
            world.requests[round.clone()].iter().map(|submitted| submitted.entry).collect();
        entry_points.sort_unstable();
        entry_points.dedup();
        assert_eq!(entry_points.len(), round.len(), "{round:?} through different entry points");
    }
    assert!(rounds.windows(2).all(|pair| submitted[pair[0].start] < submitted[pair[1].start]));
    let spreads = &world.counts.spread_ms;
    let lonely = rounds.iter().filter(|round| round.len() == 1);
    assert_eq!(spreads.len(), 4);
    for (round, spread_ms) in lonely.zip(spreads).take(3) {
        let waited = submitted[round.end] - submitted[round.start];
        assert_eq!(waited.as_secs_f64() * 1000.0, *spread_ms, "{round:?}");
    }
}
