//! Levels against the slow oracle of counting, and where a search minds them.

use proptest::prelude::*;

use super::*;
use crate::{
    ids::HostId,
    negotiation::{
        Event, Found, FoundHost, Output, Purpose, RequestRecord,
        testing::{Run, at, record, site, version},
    },
    protocol::{Refusal, RefusalReason, SiteAnswer, SiteRequest},
    request::Request,
    resources::Amounts,
    time::Span,
    trust,
};

fn cpu() -> ResourceName {
    "cpu".parse().unwrap()
}

fn host(id: &str) -> Host {
    Host {
        id: HostId::new(id).unwrap(),
        capacity: [(cpu(), Amount(4)), ("memory".parse().unwrap(), Amount(8))].into(),
        attributes: Default::default(),
        speed: Default::default(),
        tariff: Default::default(),
    }
}

fn takes(cores: u64, memory: u64) -> Amounts {
    [(cpu(), Amount(cores)), ("memory".parse().unwrap(), Amount(memory))].into()
}

fn window(start: i64, length: u64) -> Window {
    Window::starting(Time(start), Span(length))
}

/// These hosts of one site, by level from 10 s on.
fn leveled(hosts: &[Host], schedules: &[Schedule]) -> Vec<Schedule> {
    let site = site("s");
    let hosts: Vec<(&SiteId, &Host)> = hosts.iter().map(|host| (&site, host)).collect();
    let mut shown: Vec<Cow<'_, Schedule>> = schedules.iter().map(Cow::Borrowed).collect();
    level(&hosts, &mut shown, Time(10), |_| true);
    shown.into_iter().map(Cow::into_owned).collect()
}

fn free_in(schedules: &[Schedule], window: Window) -> usize {
    schedules.iter().filter(|schedule| schedule.peak(&cpu(), window) == Amount::ZERO).count()
}

proptest! {
    /// As many hosts are free for a window as are never needed in it together, and no amount is lost.
    #[test]
    fn levels_are_exact_by_count(
        seats in prop::collection::vec((0_usize..6, 0_i64..60, 1_u64..25, 3_u64..5, 0_u64..9), 0..20),
        (start, length) in (10_i64..80, 1_u64..30),
    ) {
        let hosts: Vec<Host> = (0..6).map(|number| host(&format!("n-{number}"))).collect();
        let mut schedules = vec![Schedule::default(); hosts.len()];
        for (at, from, length, cores, memory) in seats {
            let (seat, amounts) = (window(from, length), takes(cores, memory));
            if schedules[at].admits(&hosts[at].capacity, seat, &amounts).is_ok() {
                schedules[at].add(seat, &amounts);
            }
        }
        let shown = leveled(&hosts, &schedules);
        for at in (10..100).map(Time) {
            for name in hosts[0].capacity.keys() {
                let used = |schedules: &[Schedule]| {
                    let used = |schedule: &Schedule| schedule.occupancy(name).map_or(0, |used| used.used_at(at).0);
                    let mut used: Vec<u64> = schedules.iter().map(used).collect();
                    used.sort_unstable();
                    used
                };
                prop_assert_eq!(used(&shown), used(&schedules), "{} at {}", name, at.0);
            }
        }
        let asked = window(start, length);
        let busy = |at: i64| schedules.len() - free_in(&schedules, window(at, 1));
        let most = (start..start + length.cast_signed()).map(busy).max().unwrap();
        prop_assert_eq!(free_in(&shown, asked), hosts.len() - most);
        prop_assert!(free_in(&shown, asked) >= free_in(&schedules, asked));
    }
}

#[test]
fn a_host_with_parts_one_of_another_kind_and_one_that_is_nested_stay_as_they_are() {
    let used = |seats: &[(i64, u64, u64)]| {
        let mut schedule = Schedule::default();
        seats.iter().for_each(|(start, length, cores)| schedule.add(window(*start, *length), &takes(*cores, 1)));
        schedule
    };
    let mut hosts = ["n-1", "n-2", "n-3", "n-4", "m"].map(host);
    // Two seats that fit on one host; a part of a host; another kind; no number.
    let schedules =
        [used(&[(20, 10, 4)]), used(&[(40, 20, 3)]), used(&[(30, 10, 2)]), used(&[(50, 10, 4)]), used(&[(70, 5, 4)])];
    hosts[3].speed = serde_json::from_str("2000").unwrap();
    let shown = leveled(&hosts, &schedules);
    assert!(shown[0].is_empty(), "both are on the host that is in use for longer");
    assert_eq!(shown[1], used(&[(20, 10, 4), (40, 20, 3)]));
    assert_eq!(shown[2..], schedules[2..]);
    let nested = [used(&[(10, 10, 4)]), used(&[(10, 40, 4)])];
    assert_eq!(leveled(&hosts[..2], &nested), nested);
}

/// When a seat is asked for on one of two hosts of a site, of which one is in use until 5,030 s and the other from then on.
fn start_asked_for(run: &mut Run, now: u64) -> Time {
    let hosts = [("n-1", window(4_000, 1_030)), ("n-2", window(5_030, 4_000))].map(|(id, busy)| {
        let mut schedule = Schedule::default();
        schedule.add(busy, &takes(4, 0));
        FoundHost { site: site("s"), host: host(id), schedule, version: version(0) }
    });
    let found = Found { hosts: hosts.into(), known_hosts: 2, ..Found::default() };
    run.negotiation.handle(at(now), Event::Found(found), &mut ());
    run.drain();
    let start = |output: &Output| match output {
        Output::Ask { request: SiteRequest::Book { hold, .. } | SiteRequest::Hold(hold), .. } => {
            Some(hold.grants[0].window.start)
        }
        _ => None,
    };
    run.outputs.iter().find_map(start).unwrap()
}

fn asked(more: &str) -> RequestRecord {
    let text = format!(r#"{{"hosts":1,"duration":60,"per_host":{{"cpu":4}}{more}}}"#);
    let request: Request = serde_json::from_str(&text).unwrap();
    let id = record().id;
    let authorization = trust::testing::authorize(1, &site("e"), &id, &request);
    RequestRecord::arrived(id, "ada".to_owned(), request, authorization, 0, (Time(5_000), Time(9_000)))
}

#[test]
fn a_site_that_refuses_what_a_level_shows_is_planned_with_as_it_is() {
    let mut run = Run::new(asked(""), false);
    assert_eq!(start_asked_for(&mut run, 10), Time(5_000), "one host is free at any time");
    let reason =
        RefusalReason::NotEnough { host: host("n-2").id, resource: cpu(), asked: Amount(4), free: Amount::ZERO };
    let refused = SiteAnswer::Refused(Refusal { reason, version: version(0), hosts: Vec::new() });
    run.answer("s", Purpose::Confirm, refused);
    let mut now = 20;
    while !run.outputs.iter().any(|output| matches!(output, Output::Find { .. })) {
        now = run.negotiation.poll_timeout().unwrap().0;
        run.time_passes_to(now);
    }
    assert_eq!(start_asked_for(&mut run, now), Time(5_030));
}

#[test]
fn hosts_that_are_named_are_planned_with_as_they_are() {
    let mut run = Run::new(asked(r#","candidates":["n-1","n-2"]"#), false);
    assert_eq!(start_asked_for(&mut run, 10), Time(5_030));
}
