//! A class of hosts with what is promised on them, to find hosts for more seats by giving others to those that float.
//!
//! In this order: the host on which a seat leaves least free; a host from which the seats in the way can all move elsewhere at once; two
//! hosts that exchange what floats on them later; all that floats anew, from left to right. Where only whole hosts are promised and
//! nothing on them is fixed in the future, the last two are exact: seats are then intervals, and a class has a place for all of them
//! unless more cross at one second than it has hosts.
//! Invariant: the use of a spot is what is fixed there and the seats that have it; a seat never has a spot that another of its request has
//! at the same time. Work is bounded by [`STEPS_MAX`], [`MOVES_MAX`] and [`PAIRS_MAX`].

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    amount::Amount,
    ids::{HostId, RequestId},
    resources::{Amounts, amount_of},
    schedule::{Occupancy, Schedule},
    time::{Time, Window},
};

/// Moves that are looked at to make room for one seat without placing all anew.
const STEPS_MAX: usize = 400;
/// Most seats that move for one promise, and most bookings that have moved and wait to be written: they are written as one. Beyond, a
/// promise finds no room; what waits is written first.
pub(super) const MOVES_MAX: usize = 256;
/// Most pairs of a host and a floating seat of which all are placed anew: beyond, no other assignment is looked for.
const PAIRS_MAX: usize = 1 << 18;

/// A host of the class.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    /// Its name.
    pub id: HostId,
    /// What it has.
    pub capacity: Amounts,
    /// All that is promised there.
    pub used: Schedule,
}

/// A seat that may have any of the hosts.
#[derive(Debug, Clone)]
pub(super) struct Floater {
    /// Whose it is.
    pub request: RequestId,
    /// When it is.
    pub window: Window,
    /// What it takes.
    pub amounts: Amounts,
    /// The spot that it has; none before it has one.
    pub at: Option<usize>,
}

/// A class of hosts, and the seats that float on it.
#[derive(Debug, Clone, Default)]
pub(super) struct Seating {
    spots: Vec<Spot>,
    floaters: Vec<Floater>,
    /// The floaters of each request.
    of_request: BTreeMap<RequestId, Vec<usize>>,
    /// Where seats are of requests that do not float.
    fixed: BTreeMap<RequestId, Vec<(usize, Window)>>,
}

impl Seating {
    /// The hosts, those that what is to be placed names first.
    pub fn new(spots: Vec<Spot>) -> Seating {
        Seating { spots, ..Seating::default() }
    }

    /// Which spot a host is.
    pub fn position(&self, host: &HostId) -> Option<usize> {
        self.spots.iter().position(|spot| spot.id == *host)
    }

    /// The host of a floater; none before it has one.
    pub fn host_of(&self, floater: usize) -> Option<&HostId> {
        Some(&self.spots[self.floaters.get(floater)?.at?].id)
    }

    /// Adds a seat that floats. What it uses of its spot, if it has one, is in the spot's use already.
    pub fn add(&mut self, floater: Floater) -> usize {
        let number = self.floaters.len();
        self.of_request.entry(floater.request.clone()).or_default().push(number);
        self.floaters.push(floater);
        number
    }

    /// Notes a seat of a request that stays where it is.
    pub fn note_fixed(&mut self, request: &RequestId, at: usize, window: Window) {
        self.fixed.entry(request.clone()).or_default().push((at, window));
    }

    /// Fixes a seat at a spot; what floats there gives way, the largest first. False when there is no room all the same.
    pub fn pin(&mut self, at: usize, request: Option<&RequestId>, window: Window, amounts: &Amounts) -> bool {
        let is_own = |floater: &Floater| request == Some(&floater.request) && floater.window.overlaps(window);
        let own = (0..self.floaters.len()).filter(|one| self.floaters[*one].at == Some(at));
        let own: Vec<usize> = own.filter(|one| is_own(&self.floaters[*one])).collect();
        own.into_iter().for_each(|one| self.lift(one));
        let mut in_way = self.in_way(at, window);
        while !self.has_room(at, window, amounts) {
            let Some(next) = in_way.pop() else { return false };
            self.lift(next);
        }
        self.spots[at].used.add(window, amounts);
        if let Some(request) = request {
            self.note_fixed(request, at, window);
        }
        true
    }

    /// Gives a spot to every floater without one. False when that fails; what moved until then is not moved back.
    pub fn place_all(&mut self) -> bool {
        let mut waiting: Vec<usize> = (0..self.floaters.len()).filter(|one| self.floaters[*one].at.is_none()).collect();
        if self.is_short(&waiting) {
            return false;
        }
        waiting.sort_by_key(|one| (Reverse(weight(&self.floaters[*one].amounts)), self.floaters[*one].window.start));
        // More moves than a hold may make would refuse it, where placing all anew may move fewer.
        let (mut steps, mut exchanges) = (STEPS_MAX, MOVES_MAX);
        let is_small = self.floaters.len() * self.spots.len() <= PAIRS_MAX;
        let mut place = |one: usize| {
            self.settle(one) || is_small && self.eject(one, &mut steps) || self.exchange(one, &mut exchanges)
        };
        waiting.into_iter().all(&mut place) || self.place_anew()
    }

    /// Whether all hosts together have too little free at some second for those that wait, so that no assignment holds them.
    fn is_short(&self, waiting: &[usize]) -> bool {
        let windows = waiting.iter().map(|one| self.floaters[*one].window);
        let common = windows.reduce(|a, b| Window { start: a.start.max(b.start), end: a.end.min(b.end) });
        let Some(common) = common.filter(|common| common.start < common.end) else { return false };
        let mut asked: BTreeMap<_, u128> = BTreeMap::new();
        for (name, amount) in waiting.iter().flat_map(|one| &self.floaters[*one].amounts) {
            *asked.entry(name).or_default() += u128::from(amount.0);
        }
        asked.into_iter().filter(|(_, asked)| *asked > 0).any(|(name, asked)| {
            let mut used = Occupancy::default();
            let mut all: u128 = 0;
            for spot in &self.spots {
                let capacity = amount_of(&spot.capacity, name);
                all += u128::from(capacity.0);
                let Some(here) = spot.used.occupancy(name) else { continue };
                let mut segments = here.segments(common).peekable();
                while let Some((start, amount)) = segments.next() {
                    let end = segments.peek().map_or(common.end, |next| next.0);
                    used.add(Window { start, end }, amount.min(capacity));
                }
            }
            all.saturating_sub(u128::from(used.peak(common).0)) < asked
        })
    }

    /// Puts a floater where it leaves least free.
    fn settle(&mut self, one: usize) -> bool {
        let best =
            (0..self.spots.len()).filter(|at| self.may_have(one, *at)).min_by_key(|at| (self.left_at(*at, one), *at));
        if let Some(at) = best {
            self.put(one, at);
        }
        best.is_some()
    }

    /// Puts a floater on a spot from which all that is in the way finds another at once.
    fn eject(&mut self, one: usize, steps: &mut usize) -> bool {
        let (window, amounts) = (self.floaters[one].window, self.floaters[one].amounts.clone());
        let mut order: Vec<(usize, usize)> = Vec::with_capacity(self.spots.len());
        for at in (0..self.spots.len()).filter(|at| self.is_apart(one, *at)) {
            // Where nothing is in the way there is no room for another reason.
            let in_way = self.in_way(at, window).len();
            order.extend((in_way > 0).then_some((in_way, at)));
        }
        order.sort_unstable();
        for (_, at) in order {
            let mut in_way = self.in_way(at, window);
            let mut lifted = Vec::new();
            while !self.has_room(at, window, &amounts) {
                let Some(next) = in_way.pop() else { break };
                self.lift(next);
                lifted.push(next);
            }
            *steps = steps.saturating_sub(lifted.len().max(1));
            if self.has_room(at, window, &amounts) {
                self.put(one, at);
                if lifted.iter().all(|other| self.settle(*other)) {
                    return true;
                }
                self.lift(one);
            }
            for other in lifted {
                self.lift(other);
                self.put(other, at);
            }
            if *steps == 0 {
                return false;
            }
        }
        false
    }

    /// Puts a floater on a spot that is free at its start, after that spot has exchanged what is in the way, and all after it, with another
    /// one: one where nothing is at that time, so that no seat is cut. The spot is then free for longer, until it is for long enough.
    fn exchange(&mut self, one: usize, steps: &mut usize) -> bool {
        let Floater { window, amounts, .. } = self.floaters[one].clone();
        let free_until = |seating: &Seating, at: usize, from: Time| {
            let spot = &seating.spots[at];
            let ends = amounts.keys().filter_map(|name| {
                let (used, free) = (spot.used.occupancy(name)?, amount_of(&spot.capacity, name).0);
                let free = Amount(free.checked_sub(amount_of(&amounts, name).0)?);
                let mut segments = used.segments(Window { start: from, end: Time(i64::MAX) });
                segments.find(|(_, used)| *used > free).map(|(time, _)| time)
            });
            ends.min().unwrap_or(Time(i64::MAX))
        };
        let apart = (0..self.spots.len()).filter(|at| self.is_apart(one, *at));
        let Some((mut until, Reverse(at))) = apart.map(|at| (free_until(self, at, window.start), Reverse(at))).max()
        else {
            return false;
        };
        while until > window.start && until < window.end && *steps > 0 {
            let others = (0..self.spots.len()).filter(|other| *other != at);
            let longest = others.map(|other| (free_until(self, other, until), Reverse(other))).max();
            let Some((later, Reverse(other))) = longest.filter(|(later, _)| *later > until) else { return false };
            if !self.exchange_from(until, (at, other), steps) {
                return false;
            }
            until = later;
        }
        let fits = self.may_have(one, at);
        if fits {
            self.put(one, at);
        }
        fits
    }

    /// Two spots exchange the floaters that begin at this time or later; false where that cannot be, and then nothing has changed.
    fn exchange_from(&mut self, time: Time, (one, other): (usize, usize), steps: &mut usize) -> bool {
        let later = (0..self.floaters.len()).filter(|number| self.floaters[*number].window.start >= time);
        let there = later.filter_map(|number| match self.floaters[number].at? {
            at if at == one => Some((number, one, other)),
            at if at == other => Some((number, other, one)),
            _ => None,
        });
        let moves: Vec<(usize, usize, usize)> = there.collect();
        if moves.len() > *steps {
            return false;
        }
        *steps = steps.saturating_sub(moves.len().max(1));
        moves.iter().for_each(|(number, ..)| self.lift(*number));
        let mut fits = true;
        for (number, _, to) in &moves {
            fits &= self.may_have(*number, *to);
            if fits {
                self.put(*number, *to);
            }
        }
        if !fits {
            moves.iter().for_each(|(number, ..)| self.lift(*number));
            moves.iter().for_each(|(number, from, _)| self.put(*number, *from));
        }
        fits
    }

    /// Gives every floater a spot anew, in the order of their starts, its present one where that is free.
    fn place_anew(&mut self) -> bool {
        if self.floaters.len() * self.spots.len() > PAIRS_MAX {
            return false;
        }
        let before: Vec<Option<usize>> = self.floaters.iter().map(|floater| floater.at).collect();
        (0..self.floaters.len()).for_each(|one| self.lift(one));
        let mut order: Vec<usize> = (0..self.floaters.len()).collect();
        let key = |floater: &Floater| (floater.window.start, Reverse(weight(&floater.amounts)));
        order.sort_by_key(|one| key(&self.floaters[*one]));
        order.into_iter().all(|one| {
            let same = before[one].filter(|at| self.may_have(one, *at));
            if let Some(at) = same {
                self.put(one, at);
            }
            same.is_some() || self.settle(one)
        })
    }

    fn may_have(&self, one: usize, at: usize) -> bool {
        let Floater { window, amounts, .. } = &self.floaters[one];
        self.has_room(at, *window, amounts) && self.is_apart(one, at)
    }

    fn has_room(&self, at: usize, window: Window, amounts: &Amounts) -> bool {
        self.spots[at].used.admits(&self.spots[at].capacity, window, amounts).is_ok()
    }

    /// Whether nothing else of its request is there.
    fn is_apart(&self, one: usize, at: usize) -> bool {
        let Floater { request, window, .. } = &self.floaters[one];
        let floating = self.of_request.get(request).into_iter().flatten().filter(|other| **other != one);
        let floating = floating.map(|other| &self.floaters[*other]).filter_map(|other| Some((other.at?, other.window)));
        let fixed = self.fixed.get(request).into_iter().flatten().copied();
        !floating.chain(fixed).any(|(spot, other)| spot == at && other.overlaps(*window))
    }

    /// Floaters of a spot that cross the window, the largest last.
    fn in_way(&self, at: usize, window: Window) -> Vec<usize> {
        let is_there = |one: &usize| self.floaters[*one].at == Some(at) && self.floaters[*one].window.overlaps(window);
        let mut there: Vec<usize> = (0..self.floaters.len()).filter(is_there).collect();
        there.sort_by_key(|one| weight(&self.floaters[*one].amounts));
        there
    }

    /// What stays free of what a floater takes of a spot, in parts of a million of it.
    fn left_at(&self, at: usize, one: usize) -> u128 {
        let (spot, Floater { window, amounts, .. }) = (&self.spots[at], &self.floaters[one]);
        let left = |(name, asked): (_, &Amount)| {
            let capacity = amount_of(&spot.capacity, name);
            let free = capacity.saturating_sub(spot.used.peak(name, *window)).saturating_sub(*asked);
            u128::from(free.0) * 1_000_000 / u128::from(capacity.0.max(1))
        };
        amounts.iter().map(left).sum()
    }

    fn put(&mut self, one: usize, at: usize) {
        let Floater { window, amounts, .. } = &self.floaters[one];
        self.spots[at].used.add(*window, amounts);
        self.floaters[one].at = Some(at);
    }

    fn lift(&mut self, one: usize) {
        let Some(at) = self.floaters[one].at.take() else { return };
        let Floater { window, amounts, .. } = &self.floaters[one];
        let freed = self.spots[at].used.remove(*window, amounts);
        debug_assert!(freed.is_ok(), "a seat takes back what it has put in");
    }
}

fn weight(amounts: &Amounts) -> u128 {
    amounts.values().map(|amount| u128::from(amount.0)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        binding::{Answer, Need, Seat, Witness},
        host::Host,
        ids::SeatNumber,
        time::{Span, Time},
    };

    fn cores(amount: u64) -> Amounts {
        Amounts::from([("cpu".parse().unwrap(), Amount(amount))])
    }

    fn id(number: usize) -> HostId {
        HostId::new(&format!("n-{number}")).unwrap()
    }

    fn request(number: usize) -> RequestId {
        RequestId::new(&format!("r{number}")).unwrap()
    }

    fn seating(hosts: usize, capacity: u64) -> Seating {
        let spot = |at| Spot { id: id(at), capacity: cores(capacity), used: Schedule::default() };
        Seating::new((0..hosts).map(spot).collect())
    }

    fn floater(of: usize, start: i64, length: u64, amount: u64) -> Floater {
        let window = Window::starting(Time(start), Span(length));
        Floater { request: request(of), window, amounts: cores(amount), at: None }
    }

    /// Every floater has a spot, alone of its request there, and no spot holds more than it has; the use is what is there.
    fn check(seating: &Seating, fixed: &[(usize, Window, u64)]) {
        for (at, spot) in seating.spots.iter().enumerate() {
            let mut used = Schedule::default();
            let here: Vec<&Floater> = seating.floaters.iter().filter(|one| one.at == Some(at)).collect();
            here.iter().for_each(|one| used.add(one.window, &one.amounts));
            let fixed = fixed.iter().filter(|(on, ..)| *on == at);
            fixed.for_each(|(_, window, amount)| used.add(*window, &cores(*amount)));
            assert_eq!(used, spot.used);
            let peak = used.peak(&"cpu".parse().unwrap(), Window { start: Time(-1), end: Time(10_000) });
            assert!(peak <= amount_of(&spot.capacity, &"cpu".parse().unwrap()), "{peak} on {at}");
            for (one, other) in here.iter().enumerate().flat_map(|(n, one)| here[..n].iter().map(move |o| (one, o))) {
                assert!(one.request != other.request || !one.window.overlaps(other.window));
            }
        }
        assert!(seating.floaters.iter().all(|one| one.at.is_some()));
    }

    proptest! {
        /// Whole hosts of one class: yes and no are those of the witness that counts.
        #[test]
        fn whole_hosts_are_exact(asked in prop::collection::vec((0_i64..60, 1_u64..25), 1..40), hosts in 1_usize..5) {
            let kind = |at| Host {
                id: id(at),
                capacity: cores(4),
                attributes: Default::default(),
                speed: Default::default(),
                tariff: Default::default(),
            };
            let mut witness = Witness::new((0..hosts).map(kind)).unwrap();
            let mut seating = seating(hosts, 4);
            for (number, (start, length)) in asked.into_iter().enumerate() {
                let floater = floater(number, start, length, 4);
                let seat = Seat {
                    request: floater.request.clone(),
                    number: SeatNumber(0),
                    window: floater.window,
                    need: Need { amounts: cores(4), is_exclusive: true, ..Need::default() },
                };
                let expected = matches!(witness.admit(&[seat]).unwrap(), Answer::Yes(_));
                let mut next = seating.clone();
                let new = next.add(floater);
                let (mut exchanged, mut steps) = (next.clone(), usize::MAX);
                prop_assert_eq!(exchanged.settle(new) || exchanged.exchange(new, &mut steps), expected);
                prop_assert_eq!(next.place_all(), expected);
                if expected {
                    check(&exchanged, &[]);
                }
                if expected {
                    seating = next;
                    check(&seating, &[]);
                }
            }
        }

        /// Parts beside what is fixed: what first fit could place is placed, and all that was placed stays so.
        #[test]
        fn parts_do_as_well_as_first_fit(
            asked in prop::collection::vec((0_i64..60, 1_u64..25, 1_u64..5, 0_usize..12), 1..30),
            fixed in prop::collection::vec((0_usize..3, 0_i64..60, 1_u64..25, 1_u64..5), 0..6),
        ) {
            let mut seating = seating(3, 4);
            let mut pinned = Vec::new();
            for (number, (start, length, amount, of)) in asked.into_iter().enumerate() {
                let one = floater(of, start, length, amount);
                let mut next = seating.clone();
                let new = next.add(one);
                let fits_somewhere = (0..3).any(|at| next.may_have(new, at));
                let placed = next.place_all();
                prop_assert!(placed || !fits_somewhere);
                if placed {
                    seating = next;
                }
                if let Some((at, start, length, amount)) = fixed.get(number) {
                    let window = Window::starting(Time(*start), Span(*length));
                    let mut next = seating.clone();
                    if next.pin(*at, None, window, &cores(*amount)) && next.place_all() {
                        seating = next;
                        pinned.push((*at, window, *amount));
                    }
                }
                check(&seating, &pinned);
            }
        }
    }

    #[test]
    fn a_class_too_large_to_place_anew_is_exact_too() {
        let hosts = 700;
        let mut seating = seating(hosts, 4);
        for number in 0..hosts {
            // Half of them are in use until 10, the others from then on.
            let start = if number % 2 == 0 { 0 } else { 10 };
            seating.add(floater(number, start, 10, 4));
        }
        assert!(seating.place_all() && seating.floaters.len() * seating.spots.len() > PAIRS_MAX);
        let long = hosts / 2;
        (0..long).for_each(|number| {
            let window = Window { start: Time(0), end: Time(20) };
            seating.add(Floater { request: request(hosts + number), window, amounts: cores(4), at: None });
            assert!(seating.place_all(), "{number}");
        });
        check(&seating, &[]);
        seating.add(floater(9_999, 5, 10, 4));
        assert!(!seating.place_all());
    }

    #[test]
    fn a_seat_in_the_way_moves() {
        // n-0 is fixed at [0, 10), n-1 has a float at [20, 30) that would do on n-0 as well.
        let mut seating = seating(2, 4);
        assert!(seating.pin(0, None, Window { start: Time(0), end: Time(10) }, &cores(4)));
        let first = seating.add(Floater { at: Some(1), ..floater(1, 20, 10, 4) });
        seating.spots[1].used.add(Window { start: Time(20), end: Time(30) }, &cores(4));
        let second = seating.add(floater(2, 5, 20, 4));
        assert!(seating.place_all());
        assert_eq!((seating.host_of(first), seating.host_of(second)), (Some(&id(0)), Some(&id(1))));
        seating.add(floater(3, 22, 2, 1));
        assert!(!seating.place_all(), "both are taken");
    }
}
