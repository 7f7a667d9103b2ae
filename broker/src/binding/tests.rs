//! Late binding against slow, obvious oracles: the colouring of hosts by trying everything, the loss by trying every set of requests.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::model::{
    amount::Amount,
    host::{Host, Speed},
    ids::{HostId, RequestId, SeatNumber},
    resources::{Amounts, amount_of},
    time::{Span, Time, Window},
};

fn amounts(cpu: u64) -> Amounts {
    Amounts::from([("cpu".parse().unwrap(), Amount(cpu))])
}

/// A host with a bit of properties and so many cores.
fn host(number: usize, properties: u8, cpu: u64) -> Host {
    let has = |bit: &u8| properties & (1 << bit) != 0;
    Host {
        id: HostId::new(&format!("h{number}")).unwrap(),
        capacity: amounts(cpu),
        attributes: (0..8).filter(has).map(|bit| (format!("p{bit}"), "yes".to_owned())).collect(),
        speed: Speed::REFERENCE,
        tariff: std::sync::Arc::default(),
    }
}

fn seat(request: usize, (start, length): (i64, u64), properties: u8) -> Seat {
    Seat {
        request: RequestId::new(&format!("r{request}")).unwrap(),
        number: SeatNumber(0),
        window: Window::starting(Time(start), Span(length)),
        need: Need { attributes: host(0, properties, 1).attributes, is_exclusive: true, ..Need::default() },
    }
}

fn part(request: usize, window: (i64, u64), cpu: u64) -> Seat {
    let whole = seat(request, window, 0);
    Seat { need: Need { amounts: amounts(cpu), is_exclusive: false, ..whole.need }, ..whole }
}

/// Whether a seat can be added to those that a host has.
fn fits(host: &Host, busy: &[Window], there: &[&Seat], seat: &Seat) -> bool {
    let crossing: Vec<&&Seat> = there.iter().filter(|other| other.window.overlaps(seat.window)).collect();
    let cpu = "cpu".parse().unwrap();
    let used_at = |at: Time| -> Amount {
        let there = crossing.iter().filter(|other| other.window.start <= at && at < other.window.end);
        there.map(|other| amount_of(&other.need.amounts, &cpu)).sum()
    };
    let starts = crossing.iter().map(|other| other.window.start.max(seat.window.start));
    let asked = amount_of(&seat.need.amounts, &cpu);
    seat.need.is_met_by(host)
        && !busy.iter().any(|busy| busy.overlaps(seat.window))
        && !crossing.iter().any(|other| other.need.is_exclusive || seat.need.is_exclusive)
        && starts.chain([seat.window.start]).all(|at| used_at(at) + asked <= amount_of(&host.capacity, &cpu))
}

/// Every seat has a host that meets its need and holds what it has; what is bound is where it was bound.
fn check(witness: &Witness) {
    let assignment = witness.assignment();
    let hosts: BTreeMap<&HostId, (&Host, &[Window])> =
        witness.hosts().map(|(host, busy)| (&host.id, (host, busy))).collect();
    let mut there: BTreeMap<&HostId, Vec<&Seat>> = BTreeMap::new();
    for (key, seat) in witness.seats() {
        let on = assignment.get(&key).unwrap_or_else(|| panic!("{seat:?} has no host"));
        assert!(witness.host_of(key).is_none_or(|host| host == on));
        let (host, busy) = hosts[on];
        let there = there.entry(on).or_default();
        assert!(fits(host, busy, there, seat), "{seat:?} on {on} with {there:?}");
        there.push(seat);
    }
}

/// Whether hosts can be found for all seats, by trying everything; some have theirs.
fn can_all(hosts: &[(Host, Vec<Window>)], bound: &[(Seat, HostId)], seats: &[Seat]) -> bool {
    fn place<'a>(hosts: &[(Host, Vec<Window>)], there: &mut Vec<Vec<&'a Seat>>, seats: &'a [Seat]) -> bool {
        let Some((first, rest)) = seats.split_first() else { return true };
        (0..hosts.len()).any(|at| {
            if !fits(&hosts[at].0, &hosts[at].1, &there[at], first) {
                return false;
            }
            there[at].push(first);
            let found = place(hosts, there, rest);
            there[at].pop();
            found
        })
    }
    let of = |(host, _): &(Host, Vec<Window>)| -> Vec<&Seat> {
        bound.iter().filter(|(_, on)| *on == host.id).map(|(seat, _)| seat).collect()
    };
    place(hosts, &mut hosts.iter().map(of).collect(), seats)
}

/// Hosts and when they are busy, seats that are bound, and seats that float.
type Known = (Vec<(Host, Vec<Window>)>, Vec<(Seat, HostId)>, Vec<Seat>);

/// Hosts and seats as the oracle knows them.
fn known(witness: &Witness) -> Known {
    let hosts = witness.hosts().map(|(host, busy)| (host.clone(), busy.to_vec())).collect();
    let (mut bound, mut floating) = (Vec::new(), Vec::new());
    for (key, seat) in witness.seats() {
        match witness.host_of(key) {
            Some(host) => bound.push((seat.as_ref().clone(), host.clone())),
            None => floating.push(seat.as_ref().clone()),
        }
    }
    (hosts, bound, floating)
}

/// The seats of a certificate are promised or asked for, are all there at its second, and outnumber the hosts that they can use.
fn check_certificate(witness: &Witness, asked: &[Seat], certificate: &Certificate) {
    let at = certificate.at;
    let hosts: Vec<(&Host, &[Window])> =
        witness.hosts().filter(|(host, _)| certificate.hosts.contains(&host.id)).collect();
    let is_busy = |busy: &[Window]| busy.iter().any(|busy| busy.start <= at && at < busy.end);
    let mut usable: Vec<u64> = hosts.iter().filter(|(_, busy)| !is_busy(busy)).map(|(host, _)| cores(host)).collect();
    let (mut whole, mut needed, mut parts) = (0, 0, 0);
    for seat in &certificate.seats {
        let key = witness.seats().find(|(_, promised)| promised == &seat).map(|(key, _)| key);
        assert!(key.is_some() || asked.contains(seat));
        assert!(seat.window.start <= at && at < seat.window.end);
        match key.and_then(|key| witness.host_of(key)) {
            Some(host) => assert!(certificate.hosts.contains(host)),
            None => {
                let others = witness.hosts().filter(|(host, _)| !certificate.hosts.contains(&host.id));
                assert!(others.into_iter().all(|(host, _)| !seat.need.is_met_by(host)));
            }
        }
        if seat.need.is_exclusive {
            whole += 1;
        } else {
            parts += 1;
            needed += seat.need.amounts.values().map(|amount| amount.0).sum::<u64>();
        }
    }
    usable.sort_unstable();
    let left = usable.len().checked_sub(whole);
    let room = left.map(|left| usable.iter().rev().take(left).sum::<u64>());
    assert!(room.is_none_or(|room| needed > room || (left == Some(0) && parts > 0)), "{certificate:?}");
}

fn cores(host: &Host) -> u64 {
    host.capacity.values().map(|amount| amount.0).sum()
}

fn windows() -> impl Strategy<Value = (i64, u64)> {
    (0_i64..12, 1_u64..7)
}

#[derive(Debug, Clone)]
enum Step {
    Admit(Vec<((i64, u64), u8)>),
    Bind(u64, bool),
    Remove(usize),
    Busy(usize, Vec<(i64, u64)>),
    Leave(usize),
    Join(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => vec((windows(), 0_u8..4), 1..3).prop_map(Step::Admit),
        2 => (0_u64..4, any::<bool>()).prop_map(|(slack, may_stop)| Step::Bind(slack, may_stop)),
        1 => (0_usize..6).prop_map(Step::Remove),
        1 => (0_usize..4, vec(windows(), 0..3)).prop_map(|(host, busy)| Step::Busy(host, busy)),
        1 => (0_usize..4).prop_map(Step::Leave),
        1 => (0_u8..4).prop_map(Step::Join),
    ];
    vec(step, 1..24)
}

/// Does a step on the witness, and asks the oracles about it.
fn play(witness: &mut Witness, step: &Step, number: usize, is_one_class: bool) {
    match step {
        Step::Admit(asked) => {
            let seats: Vec<Seat> =
                asked.iter().map(|(window, properties)| seat(number, *window, *properties)).collect();
            let (hosts, bound, mut all) = known(witness);
            if all.len() > 7 {
                return;
            }
            all.extend(seats.iter().cloned());
            match witness.admit(&seats) {
                Ok(Answer::Yes(keys)) => {
                    assert!(can_all(&hosts, &bound, &all));
                    assert_eq!(keys.len(), seats.len());
                }
                Ok(Answer::No(certificate)) => {
                    assert!(!can_all(&hosts, &bound, &all), "{certificate:?}");
                    check_certificate(witness, &seats, &certificate);
                }
                Ok(Answer::Undecided) => assert!(!is_one_class),
                Err(error) => assert!(matches!(error, BindingError::Past { .. })),
            }
        }
        Step::Bind(slack, may_stop) => bind_first(witness, *slack, *may_stop),
        Step::Remove(at) => {
            let key = witness.seats().nth(*at).map(|(key, _)| key);
            if let Some(key) = key {
                witness.remove(key).unwrap();
                assert_eq!(witness.remove(key), Err(BindingError::NoSeat));
            }
        }
        Step::Busy(at, busy) => {
            let id = witness.hosts().nth(*at).map(|(host, _)| host.id.clone());
            if let Some(id) = id {
                let windows: Vec<Window> =
                    busy.iter().map(|(at, span)| Window::starting(Time(*at), Span(*span))).collect();
                witness.host_is_busy(&id, &windows).unwrap();
            }
        }
        Step::Leave(at) => {
            let id = witness.hosts().nth(*at).map(|(host, _)| host.id.clone());
            if let Some(id) = id {
                check_loss(witness, &id, is_one_class);
            }
        }
        Step::Join(properties) => {
            let properties = if is_one_class { 3 } else { *properties };
            witness.host_joins(host(100 + number, properties, 4)).unwrap();
        }
    }
}

/// Binds the seat that starts first, never to `h0`.
fn bind_first(witness: &mut Witness, slack: u64, may_stop: bool) {
    let floating = witness.seats().filter(|(key, _)| witness.host_of(*key).is_none());
    let first = floating.min_by_key(|(key, seat)| (seat.window.start, *key)).map(|(key, _)| key);
    if let Some(key) = first {
        let work = |host: &Host| match cores(host) {
            _ if host.id.as_str() == "h0" => OwnWork::Excluded,
            cores => OwnWork::Running { left: Span(2), cost: cores, may_stop },
        };
        let before = witness.clone().seats().map(|(_, seat)| seat.window).max();
        match witness.bind(key, Span(slack), work) {
            Ok(bound) => {
                assert!(bound.wait <= Span(slack) && bound.host.as_str() != "h0");
                assert_eq!(witness.bind(key, Span(9), |_| OwnWork::Idle).unwrap().host, bound.host);
            }
            Err(error) => {
                assert_eq!(error, BindingError::NoneLeft);
                assert_eq!(witness.seats().map(|(_, seat)| seat.window).max(), before);
            }
        }
    }
}

/// A host goes: the fewest requests are lost, by trying every set of them.
fn check_loss(witness: &mut Witness, id: &HostId, is_one_class: bool) {
    let (mut hosts, mut bound, floating) = known(witness);
    let by_rule = witness.degrees().and_then(|mut graph| {
        let at = hosts.iter().position(|(host, _)| host.id == *id)?;
        let lost = graph.fail(at);
        graph.all_are_free().then(|| {
            witness
                .seats()
                .filter(|(key, _)| lost.contains(key))
                .map(|(_, seat)| seat.request.clone())
                .collect::<BTreeSet<_>>()
                .len()
        })
    });
    let now = bound.iter().map(|(seat, _)| seat.window.start).max().unwrap_or(Time::ZERO);
    let loss = witness.host_leaves(id, now).unwrap();
    hosts.retain(|(host, _)| host.id != *id);
    let begun: BTreeSet<RequestId> =
        bound.iter().filter(|(_, host)| host == id).map(|(seat, _)| seat.request.clone()).collect();
    bound.retain(|(_, host)| host != id);
    let requests: Vec<&RequestId> =
        floating.iter().map(|seat| &seat.request).collect::<BTreeSet<_>>().into_iter().collect();
    let is_possible = |set: usize| {
        let gone = |request: &RequestId| {
            begun.contains(request)
                || requests.iter().position(|other| *other == request).is_some_and(|at| set & (1 << at) != 0)
        };
        let kept: Vec<Seat> = floating.iter().filter(|seat| !gone(&seat.request)).cloned().collect();
        can_all(&hosts, &bound, &kept)
    };
    let is_more = |set: &usize| {
        requests.iter().enumerate().filter(|(at, request)| set & (1 << at) != 0 && !begun.contains(**request)).count()
    };
    let fewest = (0..1_usize << requests.len()).filter(|set| is_possible(*set)).map(|set| is_more(&set)).min().unwrap();
    let lost = loss.requests().len();
    assert!(lost >= fewest + begun.len());
    assert!(!(is_one_class || loss.is_fewest) || lost == fewest + begun.len(), "{lost} lost, {fewest} would do");
    assert!(by_rule.is_none_or(|by_rule| lost <= by_rule));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// One class: every answer is right, none is undecided, and every loss is the least.
    #[test]
    fn one_class_is_exact(count in 1_usize..4, steps in steps()) {
        let mut witness = Witness::new((0..count).map(|at| host(at, 3, 4))).unwrap();
        for (number, step) in steps.iter().enumerate() {
            if !matches!(step, Step::Busy(..)) {
                play(&mut witness, step, number, true);
                check(&witness);
            }
        }
    }

    /// Several classes, pins and properties: yes and no are never wrong.
    #[test]
    fn no_answer_is_wrong(properties in vec(0_u8..4, 1..5), steps in steps()) {
        let hosts = properties.iter().enumerate().map(|(at, properties)| host(at, *properties, 4));
        let mut witness = Witness::new(hosts).unwrap();
        for (number, step) in steps.iter().enumerate() {
            play(&mut witness, step, number, false);
            check(&witness);
        }
    }

    /// Long chains of moves: a full calendar of five levels, that begins and ends.
    #[test]
    fn a_full_calendar_keeps_its_promises(asked in vec((0_i64..6, 1_u64..30, 0_u32..5), 40..120)) {
        let level = |level: u32| (1_u8 << level) - 1;
        let mut witness = Witness::new((0..10).map(|at| host(at, level(at as u32 % 5), 4))).unwrap();
        for (number, (after, length, needed)) in asked.iter().enumerate() {
            let half = i64::try_from(number / 2).unwrap();
            let start = half + after;
            let _ = witness.admit(&[seat(number, (start, *length), level(*needed))]);
            let now = Time(half - 1);
            let seats: Vec<(SeatKey, Window)> = witness.seats().map(|(key, seat)| (key, seat.window)).collect();
            let mut due: Vec<(Time, SeatKey)> = Vec::new();
            for (key, window) in seats {
                if window.end <= now {
                    witness.remove(key).unwrap();
                } else if window.start <= now && witness.host_of(key).is_none() {
                    due.push((window.start, key));
                }
            }
            due.sort();
            for (_, key) in due {
                witness.bind(key, Span(0), |_| OwnWork::Idle).unwrap();
            }
            check(&witness);
        }
    }

    /// Parts: what first fit finds room for on the hosts of the assignment is promised.
    #[test]
    fn parts_are_no_worse_than_first_fit(
        asked in vec((windows(), 0_u64..5), 1..20), count in 1_usize..4, removed in 0_usize..20, leaves in any::<bool>()
    ) {
        let mut witness = Witness::new((0..count).map(|at| host(at, 0, 4))).unwrap();
        for (number, (window, cpu)) in asked.iter().enumerate() {
            let asked = if *cpu == 0 { seat(number, *window, 0) } else { part(number, *window, *cpu) };
            let assignment = witness.assignment();
            let first_fit = witness.hosts().any(|(host, busy)| {
                let there: Vec<&Seat> = witness.seats().filter(|(key, _)| assignment[key] == host.id).map(|(_, seat)| seat.as_ref()).collect();
                fits(host, busy, &there, &asked)
            });
            let (hosts, bound, mut all) = known(&witness);
            match witness.admit(std::slice::from_ref(&asked)).unwrap() {
                Answer::Yes(_) => {}
                Answer::No(certificate) => {
                    assert!(!first_fit);
                    check_certificate(&witness, std::slice::from_ref(&asked), &certificate);
                    all.push(asked);
                    assert!(all.len() > 8 || !can_all(&hosts, &bound, &all));
                }
                Answer::Undecided => assert!(!first_fit),
            }
            if number == removed {
                let first = witness.seats().next().map(|(key, _)| key);
                first.map(|key| witness.remove(key).unwrap());
            }
            check(&witness);
        }
        let first = witness.seats().min_by_key(|(_, seat)| seat.window.start).map(|(key, _)| key);
        if let Some(key) = first {
            witness.bind(key, Span(3), |_| OwnWork::Idle).unwrap();
            check(&witness);
        }
        if leaves {
            witness.host_leaves(&HostId::new("h0").unwrap(), Time(4)).unwrap();
            check(&witness);
        } else if let Some(key) = first {
            // What is bound ends early, another seat comes, and all begin.
            let bound = witness.remove(key).unwrap();
            let _ = witness.admit(&[seat(asked.len(), (bound.window.start.0 + 1, 4), 0)]).unwrap();
            check(&witness);
            let mut due: Vec<(Time, SeatKey)> = witness.seats().map(|(key, seat)| (seat.window.start, key)).collect();
            due.sort();
            for (_, key) in due {
                witness.bind(key, Span(0), |_| OwnWork::Idle).unwrap();
                check(&witness);
            }
        }
    }

    /// Whatever the source's test lets in, step by step, is promised.
    #[test]
    fn where_the_source_says_yes_so_does_the_witness(
        properties in vec(0_u8..8, 2..12), asked in vec((windows(), 0_u8..8, any::<bool>()), 1..40)
    ) {
        let hosts: Vec<Host> = properties.iter().enumerate().map(|(at, properties)| host(at, *properties, 4)).collect();
        let (mut witness, mut graph) = (Witness::new(hosts.clone()).unwrap(), Degrees::new(hosts.len()));
        for (number, (window, properties, is_removed)) in asked.iter().enumerate() {
            let asked = seat(number, *window, *properties);
            let able = (0..hosts.len()).filter(|at| asked.need.is_met_by(&hosts[*at])).collect();
            if graph.admit(number, asked.window, able) {
                let answer = witness.admit(&[asked]).unwrap();
                prop_assert!(matches!(answer, Answer::Yes(_)), "{:?}", answer);
                let Answer::Yes(keys) = answer else { unreachable!() };
                if *is_removed {
                    witness.remove(keys[0]).unwrap();
                    graph.remove(number);
                }
            }
            check(&witness);
        }
    }
}

/// One host is free at every second, but none for all of `[1, 5)`: the assignment, not the count, decides where hosts are pinned.
#[test]
fn counting_is_not_enough_with_pins() {
    let mut witness = Witness::new([host(0, 0, 1), host(1, 0, 1)]).unwrap();
    let busy = |start, length| [Window::starting(Time(start), Span(length))];
    witness.host_is_busy(&HostId::new("h0").unwrap(), &busy(4, 2)).unwrap();
    witness.host_is_busy(&HostId::new("h1").unwrap(), &busy(0, 2)).unwrap();
    assert_eq!(witness.admit(&[seat(0, (1, 4), 0)]), Ok(Answer::Undecided));
    witness.host_is_busy(&HostId::new("h1").unwrap(), &[]).unwrap();
    assert!(matches!(witness.admit(&[seat(0, (1, 4), 0)]), Ok(Answer::Yes(_))));
}

/// Of two parts on one bound host the first ends early: a whole host that begins before the second does gets another one.
#[test]
fn what_is_left_of_a_bound_block_floats_again() {
    let mut witness = Witness::new((0..2).map(|at| host(at, 0, 4))).unwrap();
    let Ok(Answer::Yes(parts)) = witness.admit(&[part(0, (0, 10), 2), part(1, (5, 15), 2)]) else {
        panic!("there is room")
    };
    let (first, second) = (parts[0], parts[1]);
    let on = |witness: &mut Witness, key| witness.bind(key, Span(0), |_| OwnWork::Idle).unwrap().host;
    let host_of_first = on(&mut witness, first);
    witness.remove(first).unwrap();
    let Ok(Answer::Yes(whole)) = witness.admit(&[seat(2, (3, 7), 0)]) else { panic!("there is room") };
    check(&witness);
    let host_of_whole = on(&mut witness, whole[0]);
    let host_of_second = on(&mut witness, second);
    assert_ne!(host_of_whole, host_of_second, "the first was on {host_of_first}");
    check(&witness);
}

/// Algorithm 2: what can be waited for costs nothing, else the least is lost; the wait keeps every other promise.
#[test]
fn a_seat_is_bound_where_it_hurts_least() {
    let mut witness = Witness::new((0..3).map(|at| host(at, 0, 1))).unwrap();
    let Ok(Answer::Yes(keys)) = witness.admit(&[0, 1, 2].map(|at| seat(at, (10, 10), 0))) else {
        panic!("there is room")
    };
    let work = |host: &Host| {
        let (left, cost) = [(5, 30), (9, 20), (2, 40)][host.id.as_str()[1..].parse::<usize>().unwrap()];
        OwnWork::Running { left: Span(left), cost, may_stop: cost > 20 }
    };
    let bind = |witness: &mut Witness, at: usize, slack| witness.bind(keys[at], Span(slack), work);
    let expect = |host: &str, wait, cost| Ok(Bound { host: HostId::new(host).unwrap(), wait: Span(wait), cost });
    assert_eq!(bind(&mut witness, 0, 5), expect("h2", 2, 0));
    assert_eq!(bind(&mut witness, 1, 4), expect("h0", 0, 30));
    assert_eq!(bind(&mut witness, 2, 8), Err(BindingError::NoneLeft));
    assert_eq!(bind(&mut witness, 2, 9), expect("h1", 9, 0));
    // The host of the first is promised to somebody else from 22 on only.
    assert!(matches!(witness.admit(&[seat(3, (21, 5), 0), seat(4, (21, 5), 0)]), Ok(Answer::No(_))));
    assert!(matches!(witness.admit(&[seat(3, (22, 5), 0), seat(4, (22, 5), 0)]), Ok(Answer::Yes(_))));
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert_eq!(
        Witness::new([host(0, 0, 1), host(0, 0, 2)]).err(),
        Some(BindingError::SameHost(HostId::new("h0").unwrap()))
    );
    let mut none = Witness::new([]).unwrap();
    assert!(matches!(none.admit(&[seat(0, (0, 1), 0)]), Ok(Answer::No(_))));
    let mut witness = Witness::new([host(0, 0, 1)]).unwrap();
    assert_eq!(witness.admit(&[seat(0, (0, 0), 0)]), Err(BindingError::Window));
    let Ok(Answer::Yes(keys)) = witness.admit(&[seat(0, (5, 2), 0), seat(1, (7, 2), 0)]) else {
        panic!("there is room")
    };
    assert_eq!(witness.bind(keys[1], Span(0), |_| OwnWork::Idle), Err(BindingError::NotYet(Time(5))));
    witness.bind(keys[0], Span(0), |_| OwnWork::Idle).unwrap();
    let past = BindingError::Past { start: Time(4), bound: Time(5) };
    assert_eq!(witness.admit(&[seat(2, (4, 1), 0)]), Err(past));
    assert!(witness.host_leaves(&HostId::new("h7").unwrap(), Time(0)).is_err());
}
