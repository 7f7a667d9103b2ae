//! The bounds of the shared view: eviction, expiry, departures, and what a hostile site can make it keep.

use std::{collections::BTreeMap, time::Duration};

use broker::{
    amount::Amount,
    classes::Hosts,
    features::Features,
    protocol::{ChangeKind, HostChange, ScheduleChange, SiteSchedules},
    resources::ResourceName,
    time::Window,
    uplinks,
};

use super::*;
use crate::health::PeerHealth;

fn site(name: &str) -> SiteId {
    SiteId::new(name).unwrap()
}

fn advert(name: &str, sequence: u64, time_to_live_s: u32) -> Advert {
    Advert {
        site: site(name),
        name: String::new(),
        sequence,
        time_to_live_s,
        contact: None,
        hosts: Hosts::from_iter([Host {
            id: HostId::new("h1").unwrap(),
            capacity: BTreeMap::new(),
            attributes: BTreeMap::new(),
            speed: broker::host::Speed::REFERENCE,
            tariff: Default::default(),
        }]),
        uplink: None,
        quotes: false,
        addresses: Vec::new(),
        features: Features::own(),
        offer: Default::default(),
    }
}

fn view(sites_max: usize) -> SharedView {
    view_of((sites_max, sites_max))
}

fn view_of(limits: (usize, usize)) -> SharedView {
    let wanted = FetchQueue::new(PeerHealth::default(), limits.0, Duration::ZERO, Duration::ZERO);
    SharedView::new(site("own"), limits, wanted, Arc::new(Counters::default()))
}

fn receive(view: &SharedView, name: &str, sequence: u64, remaining: u64) -> Received {
    view.receive_advert(advert(name, sequence, 60), name.as_bytes(), Millis(0), Millis(remaining))
}

fn snapshot(name: &str, change: u64) -> ScheduleSnapshot {
    ScheduleSnapshot {
        site: site(name),
        version: LedgerVersion { incarnation: 1, change },
        schedules: SiteSchedules::default(),
    }
}

#[test]
fn the_site_that_expires_first_is_evicted_but_never_the_own() {
    let view = view(3);
    receive(&view, "own", 1, 1);
    receive(&view, "late", 1, 900);
    receive(&view, "soon", 1, 100);
    receive(&view, "later", 1, 950);
    assert_eq!(view.site_ids(), [site("late"), site("later"), site("own")]);
    assert_eq!(view.counters.get(Counter::SitesEvicted), 1);
    view.drop_expired(Millis(920));
    assert_eq!(view.site_ids(), [site("later"), site("own")]);
}

/// A site that answers from a network, when it finds a place.
fn arrive(view: &SharedView, name: &str, network: &str, now: Millis) -> bool {
    if !view.make_room_for(&site(name), now) {
        return false;
    }
    let life = Millis(24 * 3_600_000);
    assert_eq!(view.receive_advert(advert(name, 1 + now.0, 60), name.as_bytes(), now, life), Received::Applied);
    view.note_network(&site(name), Network::new(network).ok());
    view.receive_snapshot(snapshot(name, 1 + now.0), None, now);
    true
}

#[test]
fn made_up_sites_that_answer_from_one_network_leave_the_places_of_others() {
    const PLACES: usize = 64;
    let view = view(PLACES);
    receive(&view, "own", 1, 1_000_000);
    let made_up = |number: usize| format!("made-up-{number}");
    for number in 0..2 * PLACES {
        arrive(&view, &made_up(number), "203.0.113.0/24", Millis(0));
    }
    assert_eq!(view.site_count(), PLACES, "alone they have all");
    // Honest sites come to a full view, as made-up ones go on coming.
    let honest: Vec<String> = (0..PLACES / 2).map(|number| format!("honest-{number}")).collect();
    for (number, name) in honest.iter().enumerate() {
        let network = format!("198.51.{number}.0/24");
        assert!(arrive(&view, name, &network, Millis(1)), "{name}");
        arrive(&view, &made_up(1_000 + number), "203.0.113.0/24", Millis(1));
    }
    for number in 0..4 * PLACES {
        arrive(&view, &made_up(2_000 + number), "203.0.113.0/24", Millis(2));
    }
    assert!(honest.iter().all(|name| view.knows(&site(name))), "{:?}", view.site_ids());
    assert!(view.knows(&site("own")) && view.site_count() == PLACES);
}

#[test]
fn a_site_that_told_nothing_for_long_gives_way_unless_this_node_has_reserved_there() {
    let view = view(3);
    for (name, network, confirmed) in [
        ("booked", "198.51.100.0/24", 0),
        ("silent", "198.51.101.0/24", 1),
        ("useful", "198.51.102.0/24", 3 * 3_600_000),
    ] {
        assert!(arrive(&view, name, network, Millis(confirmed)), "{name}");
    }
    view.keep_booked([site("booked")].into());
    let now = Millis(2 * 3_600_000);
    assert!(!arrive(&view, "newcomer", "203.0.113.0/24", now), "nobody was silent for long");
    let later = Millis(4 * 3_600_000);
    assert!(arrive(&view, "newcomer", "203.0.113.0/24", later));
    assert!(!arrive(&view, "another", "203.0.114.0/24", later), "what is booked stays");
    assert_eq!(view.site_ids(), ["booked", "newcomer", "useful"].map(site));
    view.keep_booked(BTreeSet::new());
    assert!(arrive(&view, "another", "203.0.114.0/24", later));
    assert!(!view.knows(&site("booked")));
}

#[test]
fn a_departed_site_returns_only_with_a_later_advert() {
    let view = view(10);
    receive(&view, "a", 5, 60_000);
    assert_eq!(view.receive_advert(advert("a", 7, 0), b"", Millis(0), Millis(1)), Received::Applied);
    assert!(!view.knows(&site("a")));
    assert_eq!(receive(&view, "a", 6, 60_000), Received::Old);
    assert!(!view.knows(&site("a")));
    assert_eq!(receive(&view, "a", 8, 60_000), Received::Applied);
    assert_eq!(view.host_count(), 1);
}

#[test]
fn departures_are_bounded_as_well() {
    let view = view(2);
    for number in 0..10 {
        let name = format!("s{number}");
        view.receive_advert(advert(&name, 1, 0), b"", Millis(number), Millis(1));
    }
    assert_eq!(view.departures().len(), 2);
}

#[test]
fn a_host_is_handed_out_only_with_a_fresh_schedule() {
    let view = view(10);
    let host = HostId::new("h1").unwrap();
    receive(&view, "a", 1, 60_000);
    assert!(view.fresh_host((&site("a"), &host), Millis(10), Millis(100), &mut Default::default()).is_none());
    view.receive_snapshot(snapshot("a", 1), None, Millis(10));
    assert!(view.fresh_host((&site("a"), &host), Millis(110), Millis(100), &mut Default::default()).is_some());
    assert!(view.fresh_host((&site("a"), &host), Millis(111), Millis(100), &mut Default::default()).is_none());
    view.receive_version(&site("a"), LedgerVersion { incarnation: 1, change: 2 }, Millis(20));
    assert!(view.fresh_host((&site("a"), &host), Millis(20), Millis(100), &mut Default::default()).is_none());
    assert_eq!(view.counters.get(Counter::Gaps), 1);
}

#[test]
fn what_is_planned_on_knows_from_when_on_it_is_coarse() {
    let view = view(10);
    let host = HostId::new("h1").unwrap();
    receive(&view, "a", 1, 60_000);
    let of_host = |view: &SharedView| {
        view.fresh_host((&site("a"), &host), Millis(20), Millis(100), &mut Default::default()).unwrap().schedule
    };
    let mut used = Schedule::default();
    used.add(
        Window { start: Time(5), end: Time(50) },
        &BTreeMap::from([(ResourceName::new("cpu").unwrap(), Amount(1))]),
    );
    let told = |change| {
        let schedules = SiteSchedules::new([(host.clone(), used.clone())], []);
        ScheduleSnapshot { schedules, ..snapshot("a", change) }
    };
    view.receive_snapshot(told(1), Some(Time(9)), Millis(10));
    assert_eq!((of_host(&view).coarse_from(), view.coarse_from(&site("a"))), (Some(Time(9)), Some(Time(9))));
    view.receive_snapshot(told(2), Some(Time(51)), Millis(10));
    assert_eq!(of_host(&view).coarse_from(), None, "nothing of this host is so far");
    view.receive_snapshot(told(3), None, Millis(10));
    assert_eq!((&*of_host(&view), view.coarse_from(&site("a"))), (&used, None));
}

#[test]
fn uplinks_are_known_with_what_is_used_of_them_and_are_no_hosts() {
    let view = view(10);
    for (name, uplink) in [("a", Some(Amount(1000))), ("b", Some(Amount(500))), ("c", None)] {
        let advert = Advert { uplink, ..advert(name, 1, 60) };
        view.receive_advert(advert, name.as_bytes(), Millis(0), Millis(60_000));
    }
    let window = Window { start: Time(100), end: Time(200) };
    let mut used = Schedule::default();
    used.add(window, &uplinks::amounts_of(Amount(300)));
    let schedules = SiteSchedules::new([(HostId::uplink(), used)], []);
    let known = ScheduleSnapshot { schedules, ..snapshot("a", 0) };
    view.receive_snapshot(known, None, Millis(10));
    let change = |amounts, kind| ScheduleChange::Host(HostChange { host: HostId::uplink(), window, amounts, kind });
    let changes = vec![change(uplinks::amounts_of(Amount(200)), ChangeKind::Added)];
    let from = LedgerVersion { incarnation: 1, change: 0 };
    view.receive_update(&ScheduleUpdate { site: site("a"), from, changes }, Millis(11));
    let links = view.uplinks(&[site("a"), site("b"), site("c"), site("unknown")]);
    let room = |name| links.of(&site(name)).map(|link| link.room(window));
    assert_eq!(["a", "b", "c"].map(room), [Some(Some(Amount(500))), Some(Some(Amount(500))), None]);
    assert!(
        view.fresh_host((&site("a"), &HostId::uplink()), Millis(11), Millis(100), &mut Default::default()).is_none()
    );
    assert_eq!(view.host_count(), 3);
}

#[test]
fn pages_of_adverts_cover_all_sites_once() {
    let teller = view(100);
    let names: Vec<String> = (10..40).map(|number| format!("site{number}")).collect();
    for name in &names {
        receive(&teller, name, 1, 60_000);
    }
    let asker = view(100);
    let mut paged = Vec::new();
    loop {
        let known = asker.known_sequences().into_iter().collect();
        let (envelopes, is_complete) = teller.envelopes_later_than(&known, 20);
        for name in envelopes.into_iter().map(|envelope| String::from_utf8(envelope).unwrap()) {
            receive(&asker, &name, 1, 60_000);
            paged.push(name);
        }
        if is_complete {
            break;
        }
    }
    paged.sort_unstable();
    assert_eq!(paged, names);
}

#[test]
fn a_site_cannot_grow_its_schedules_without_end() {
    let view = view(10);
    receive(&view, "a", 1, 60_000);
    view.receive_snapshot(snapshot("a", 0), None, Millis(0));
    let cpu = BTreeMap::from([(ResourceName::new("cpu").unwrap(), Amount(1))]);
    let mut next = 0;
    while view.version(&site("a")).is_some() {
        assert!(next < 2 * STEPS_KEPT_MAX as u64, "never forgotten");
        let changes: Vec<ScheduleChange> = (next..next + 1000)
            .map(|number| Time(i64::try_from(3 * number).unwrap()))
            .map(|start| {
                ScheduleChange::Host(HostChange {
                    host: HostId::new("h1").unwrap(),
                    window: Window { start, end: Time(start.0 + 1) },
                    amounts: cpu.clone(),
                    kind: ChangeKind::Added,
                })
            })
            .collect();
        let from = LedgerVersion { incarnation: 1, change: next };
        view.receive_update(&ScheduleUpdate { site: site("a"), from, changes }, Millis(0));
        next += 1000;
    }
}

#[test]
fn in_a_large_grid_new_sites_wait_until_they_are_asked_in_turn() {
    let view = view_of((10, 2));
    for name in ["a", "b", "c", "own"] {
        receive(&view, name, 1, 1000);
    }
    let wanted = |name: &str| view.fetches.wants(&site(name));
    assert!(wanted("a") && wanted("b") && !wanted("c"), "the first two were met while there were few");
    assert!(wanted("own"), "a node knows its own schedules");
    assert_eq!(view.any_unknown(), Some(site("c")));
    let update =
        ScheduleUpdate { site: site("c"), from: LedgerVersion { incarnation: 1, change: 3 }, changes: Vec::new() };
    assert_eq!(view.receive_update(&update, Millis(0)), Received::Gap);
    assert!(!wanted("c"), "nor are they asked because they have changed");
    view.receive_snapshot(snapshot("c", 4), None, Millis(0));
    assert_eq!(view.any_unknown(), None);
}

#[test]
fn a_site_that_is_to_be_asked_holds_up_no_recheck_and_one_that_was_lost_is_asked_when_it_is_back() {
    let view = view(10);
    for (name, heard) in [("a", 1_000), ("b", 2_000)] {
        receive(&view, name, 1, 100_000);
        view.receive_snapshot(snapshot(name, 1), None, Millis(heard));
        let taken = view.fetches.take_due(Millis(0), |_| true, |_| true);
        view.fetches.finished(&taken.unwrap(), Millis(0), true);
    }
    let unconfirmed = || view.longest_unconfirmed(Millis(90_000), Millis(60_000));
    assert_eq!(unconfirmed(), Some(site("a")));
    view.receive_connected(&site("a"), false, Millis(90_000));
    view.receive_connected(&site("nobody"), true, Millis(90_000));
    assert!(!view.fetches.wants(&site("a")) && !view.fetches.wants(&site("nobody")));
    view.receive_connected(&site("a"), true, Millis(90_000));
    assert!(view.fetches.wants(&site("a")));
    assert_eq!(unconfirmed(), Some(site("b")), "however often the first one fails");
}

#[test]
fn an_unknown_site_is_found_wherever_it_is() {
    let view = view_of((1_000, 1));
    receive(&view, "own", 1, 60_000);
    for number in 0..50 {
        let name = format!("told-{number}");
        receive(&view, &name, 1, 60_000);
        view.receive_snapshot(snapshot(&name, 1), None, Millis(0));
    }
    view.receive_snapshot(snapshot("own", 1), None, Millis(0));
    assert_eq!(view.any_unknown(), None);
    receive(&view, "silent", 1, 60_000);
    for _ in 0..200 {
        assert_eq!(view.any_unknown(), Some(site("silent")));
    }
    view.fetches.want(&site("silent"), Millis(0));
    assert_eq!(view.any_unknown(), None, "it is about to be asked");
}

proptest::proptest! {
    #[test]
    fn expired_sites_are_gone_at_every_look(
        steps in proptest::collection::vec((0_u8..6, 1_u64..40, proptest::bool::ANY), 1..60),
    ) {
        let view = view(100);
        let mut oracle: BTreeMap<SiteId, u64> = BTreeMap::new();
        let mut now = 0;
        for (sequence, (name, time, looks)) in (1..).zip(steps) {
            let name = format!("s{name}");
            view.receive_advert(advert(&name, sequence, 60), b"signed", Millis(now), Millis(time));
            oracle.insert(site(&name), now + time);
            now += time / 3;
            if looks {
                view.drop_expired(Millis(now));
                oracle.retain(|_, expires| *expires > now);
                proptest::prop_assert_eq!(view.site_ids(), oracle.keys().cloned().collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn only_so_many_large_sites_are_kept_and_small_ones_always() {
    let view = view(100);
    let of_steps = |steps: usize| {
        let steps: Vec<(Time, Amount)> =
            (0..steps).map(|at| (Time(i64::try_from(at).unwrap()), Amount(at as u64 % 2 + 1))).collect();
        let occupancy = broker::schedule::Occupancy::from_steps(&steps).unwrap();
        let schedule = Schedule::from(BTreeMap::from([(ResourceName::new("cpu").unwrap(), occupancy)]));
        SiteSchedules::new([(HostId::new("h1").unwrap(), schedule)], [])
    };
    let schedules = of_steps(STEPS_OF_LARGE_SITES_MAX / 8);
    let mut kept = 0;
    for number in 0..10 {
        let name = format!("large-{number}");
        receive(&view, &name, 1, 60_000);
        let large = ScheduleSnapshot { schedules: schedules.clone(), ..snapshot(&name, 1) };
        if view.has_room_for(&large) {
            view.receive_snapshot(large.clone(), None, Millis(0));
            kept += 1;
        } else {
            view.note_trouble(&site(&name), "no room".to_owned());
        }
        assert_eq!(view.has_room_for(&large), number < 8, "in the place of what it had");
    }
    assert_eq!(kept, 8);
    let small = ScheduleSnapshot { schedules: of_steps(LARGE_SITE_STEPS), ..snapshot("small", 1) };
    assert!(view.has_room_for(&small));
    let told = view.sites(Millis(1)).into_iter().find(|told| told.advert.site == site("large-9")).unwrap();
    assert_eq!((told.version, told.trouble.as_deref()), (None, Some("no room")));
}
