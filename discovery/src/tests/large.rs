//! The schedules of large sites, between real nodes.

use broker::schedule::Occupancy;

use super::*;
use crate::{
    SiteSummary,
    wire::{WireAnswer, WireRequest, check::STEPS_PER_SITE_MAX},
};

/// Names that are told one by one.
fn name(number: usize) -> HostId {
    HostId::new(&format!("node-{number}.example.org")).unwrap()
}

/// A node whose site has so many hosts with so many steps each, from a time in the future on.
async fn site(bootstrap: &[Multiaddr], hosts: usize, steps: usize) -> Node {
    let node = node(bootstrap).await;
    let occupancy = |number: usize| {
        let step = |at: usize| {
            (
                Time(4_000_000_000 + i64::try_from(60 * at + number % 60).unwrap()),
                Amount(1 + (at as u64 + 1) % 2 * 3_000),
            )
        };
        let last = (Time(4_000_000_000 + i64::try_from(60 * steps).unwrap()), Amount(0));
        let steps: Vec<(Time, Amount)> = (0..steps - 1).map(step).chain([last]).collect();
        Schedule::from(BTreeMap::from([(cpu(), Occupancy::from_steps(&steps).unwrap())]))
    };
    node.ledger.state.lock().unwrap().1 = (0..hosts).map(|number| (name(number), occupancy(number))).collect();
    let described = (0..hosts).map(|number| host(name(number).as_str(), 4, "x86_64")).collect();
    node.discovery.publish_advert(offer("large".to_owned(), described)).unwrap();
    node
}

fn is_current(viewer: &Node, of: &Node) -> bool {
    viewer.discovery.view().is_fresh(of.discovery.site_id(), viewer.discovery.now(), Millis(60_000))
        && viewer.discovery.view().version(of.discovery.site_id()) == Some(of.ledger.version())
}

fn schedules(viewer: &Node, of: &Node) -> SiteSchedules {
    let known = viewer.discovery.view().with_site(of.discovery.site_id(), |view| match view.schedules() {
        broker::view::Schedules::Known(known) => known.schedules.clone(),
        broker::view::Schedules::Unknown => SiteSchedules::default(),
    });
    known.unwrap()
}

fn summary(viewer: &Node, of: &Node) -> SiteSummary {
    let sites = viewer.discovery.view().sites(viewer.discovery.now());
    sites.into_iter().find(|site| site.advert.site == *of.discovery.site_id()).unwrap()
}

/// What this process has in memory, in MiB.
fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or_default() >> 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_of_two_thousand_hosts_and_two_million_steps_is_known_to_itself_and_to_others() {
    let (hosts, steps) = (2_000, 1_000);
    let large = site(&[], hosts, steps).await;
    let started = Instant::now();
    eventually("it knows its own", || is_current(&large, &large)).await;
    let own = started.elapsed();
    let other = node(&large.discovery.listen_addresses()).await;
    let started = Instant::now();
    eventually("others know it", || is_current(&other, &large)).await;
    println!("own after {own:?}, others after {:?}, at most {} MiB in this process", started.elapsed(), memory_mib());
    let told = large.ledger.snapshot().schedules;
    assert_eq!(told.len(), hosts * steps);
    assert!(schedules(&large, &large) == told && schedules(&other, &large) == told);
    assert_eq!((summary(&other, &large).coarse_from, large.discovery.status().coarse_from), (None, None));
    let found = other.discovery.find(query(2_000), 1).await;
    assert_eq!((found.hosts.len(), found.without_schedule), (2_000, 0));

    // Changes come by gossip, and by a question where gossip has missed some.
    let updates = counter(&other, Counter::UpdatesApplied);
    large.discovery.publish_changes(large.ledger.occupy(name(7).as_str(), 700));
    eventually("the change has come", || is_current(&other, &large)).await;
    assert!(counter(&other, Counter::UpdatesApplied) > updates, "by gossip");
    let parts = counter(&other, Counter::AsksOut);
    let update = large.ledger.occupy(name(8).as_str(), 800);
    large.discovery.core().schedules().note_changes(&update);
    other.discovery.fetch_schedule(large.discovery.site_id(), Millis(5_000)).await.unwrap();
    assert!(is_current(&other, &large));
    assert!(counter(&other, Counter::AsksOut) <= parts + 4, "no part had to come again");
    assert!(schedules(&other, &large) == large.ledger.snapshot().schedules);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_million_steps_are_told_coarsely_with_a_word_and_never_as_free() {
    let large = site(&[], 1_500, 2_000).await;
    let other = node(&large.discovery.listen_addresses()).await;
    eventually("both know it", || is_current(&large, &large) && is_current(&other, &large)).await;
    let exact = large.ledger.snapshot().schedules;
    assert!(schedules(&large, &large) == exact, "nothing is lost at the site");
    let told = schedules(&other, &large);
    assert!(told.len() <= STEPS_PER_SITE_MAX && told.len() > STEPS_PER_SITE_MAX / 2, "{}", told.len());
    let from = large.discovery.status().coarse_from.unwrap();
    assert_eq!(summary(&other, &large).coarse_from, Some(from));
    for number in (0..1_500).step_by(100) {
        let of = |schedules: &SiteSchedules| schedules.host(&name(number)).unwrap().occupancy(&cpu()).unwrap().clone();
        let (is, looks) = (of(&exact), of(&told));
        for (time, used) in is.steps() {
            assert!(
                looks.used_at(time) >= used && (looks.used_at(time) == used || time >= from),
                "{number} at {time:?}"
            );
        }
        let (end, _) = is.steps().pop().unwrap();
        assert_eq!(looks.used_at(end), Amount(0), "it is free when all is over");
    }
    let update = large.ledger.occupy(name(3).as_str(), 900);
    large.discovery.publish_changes(update);
    eventually("changes are taken in as well", || is_current(&other, &large)).await;
}

/// The site changes all the time while the parts come, and nobody is told of what.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_while_the_parts_come_is_fetched_again_until_all_is_known() {
    let large = site(&[], 100, 2_000).await;
    let other = node(&large.discovery.listen_addresses()).await;
    for number in 0..20 {
        large.ledger.occupy(name(number).as_str(), 5);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Nothing is gossiped of these, so the asker learns of the last one when it asks for another reason.
    let site = large.discovery.site_id();
    eventually("it is met", || other.discovery.view().knows(site)).await;
    let deadline = Instant::now() + DEADLINE;
    while !is_current(&other, &large) {
        assert!(Instant::now() < deadline, "{:?}", summary(&other, &large).trouble);
        let _ = other.discovery.fetch_schedule(site, Millis(5_000)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(schedules(&other, &large) == large.ledger.snapshot().schedules);
    let gone = WireRequest::SchedulesPart { version: LedgerVersion { incarnation: 9, change: 9 }, number: 1 };
    let answer = other.discovery.core().request(site, gone, Millis(5_000)).await;
    assert!(matches!(answer, Ok(WireAnswer::PartsGone)), "{answer:?}");
}
