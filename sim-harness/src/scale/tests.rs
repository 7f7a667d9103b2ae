//! Small grids: what must hold of every run, whatever its figures.

use std::{collections::BTreeSet, time::Duration};

use broker::{
    amount::Amount,
    host::Host,
    ids::HostId,
    request::{Request, RequestDocument},
    resources::{Amounts, Attributes, ResourceName},
    time::Millis,
};
use rand::RngExt;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    figures::{Counts, Figures},
    geography::NetworkKind,
    options::{Pace, RunArgs, Settings, clocks},
    report::Report,
    search::Search,
    site::Site,
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
    run(settings).grid.figures(0.0)
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
            let now = clocks(grid.now());
            let mut shown = ledger.snapshot(now).schedules;
            let mut schedules = last.schedules;
            for schedules in [&mut shown, &mut schedules] {
                schedules.forget_before(now.utc);
            }
            assert_eq!(schedules, shown);
        }
    }
}

/// Phase I against what a request means, written out: also with totals only, with attributes and with named candidates. All
/// hosts of all sites are known here, so the search has to hand out every host that could serve and no other one.
#[test]
fn hosts_are_found_that_could_serve_and_no_others() {
    let mut grid = World::new(settings(12, 1)).unwrap().grid;
    // A resource that some hosts lack shows whether totals count.
    let rare = ResourceName::new("rare").unwrap();
    let hosts = grid.sites.iter_mut().flat_map(|site| &mut site.hosts);
    for (number, (host, _)) in hosts.enumerate().filter(|(number, _)| number % 4 > 0) {
        host.capacity.insert(rare.clone(), Amount(number as u64 % 4 - 1));
    }
    let grid = grid;
    let all: Vec<(&Site, &Host)> =
        grid.sites.iter().flat_map(|site| site.hosts.iter().map(move |(host, _)| (site, host))).collect();
    let names: Vec<&ResourceName> = all[0].1.capacity.keys().chain([&rare]).collect();
    let name_of = |(site, host): &(&Site, &Host)| HostId::new(&format!("{}/{}", site.id, host.id)).unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut with_totals_only = 0;
    for seed in 0..300 {
        let n = random.random_range(1..5_u32);
        let (mut per_host, mut total) = (Amounts::new(), Amounts::new());
        for name in &names {
            let of_some = all[random.random_range(0..all.len())].1.capacity.get(*name).copied().unwrap_or_default();
            if random.random_bool(0.2) {
                per_host.insert((*name).clone(), of_some);
            }
            if random.random_bool(0.4) {
                total.insert((*name).clone(), Amount(random.random_range(0..6)));
            }
        }
        let attributes =
            if random.random_bool(0.3) { all[seed % all.len()].1.attributes.clone() } else { Attributes::new() };
        let candidates: Option<Vec<HostId>> = random.random_bool(0.3).then(|| {
            let few = all.iter().enumerate().filter(|(number, _)| number % 3 == seed % 3);
            few.map(|(number, of)| if number % 2 == 0 { name_of(of) } else { of.1.id.clone() }).collect()
        });
        let is_met = |of: &&(&Site, &Host)| {
            let has = |name: &ResourceName, least: u64| of.1.capacity.get(name).is_some_and(|amount| amount.0 >= least);
            let minima = per_host.iter().all(|(name, least)| least.0 == 0 || has(name, least.0));
            let mut totals = total.iter().filter(|(name, _)| !per_host.contains_key(*name));
            let in_sum = totals.all(|(name, total)| total.0 < u64::from(n) || has(name, 1));
            let is_named =
                candidates.as_ref().is_none_or(|names| names.contains(&name_of(of)) || names.contains(&of.1.id));
            let has_attributes = attributes.iter().all(|(key, value)| of.1.attributes.get(key) == Some(value));
            minima && in_sum && is_named && has_attributes
        };
        let expected: BTreeSet<HostId> = all.iter().filter(is_met).map(name_of).collect();
        with_totals_only += usize::from(per_host.is_empty() && expected.len() < all.len() && candidates.is_none());
        let document = RequestDocument {
            hosts: n,
            duration: Some(1),
            per_host: per_host.clone(),
            total: total.clone(),
            attributes: attributes.clone(),
            candidates: candidates.clone(),
            ..RequestDocument::default()
        };
        let request = Request::try_from(document).unwrap();
        let mut search = Search::new(0, all.len(), seed as u64, BTreeSet::new(), grid.now());
        let age_max = Millis(u64::MAX);
        let round = search.begin_round(1, (grid.views(), &grid.hosts_near(0)), request.demand(), age_max);
        for (site, _) in round.stale {
            let snapshot = grid.sites[site].ledger().unwrap().snapshot(grid.clocks());
            search.receive(site, &grid.sites[site], &snapshot);
        }
        let (found, _) = search.finish((grid.views(), &grid.hosts_near(0)), request.demand());
        let without_schedule = found.without_schedule + found.left_out;
        let found = found.hosts.iter().map(|found| HostId::new(&format!("{}/{}", found.site, found.host.id)).unwrap());
        assert_eq!((found.collect::<BTreeSet<_>>(), without_schedule), (expected, 0), "{request:?}");
    }
    assert!(with_totals_only > 10, "{with_totals_only}");
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
    for expected in ["<th>40 / 2</th>", "Memory of a node", "1 shard</li>", "2 shards</li>"] {
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
