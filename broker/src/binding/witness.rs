//! The witness: every promised seat, and the class of hosts that it is assigned to.
//!
//! Invariant: see [`super`]. A block that is out of its class (in the middle of a change) counts nowhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    answer::BindingError,
    class::{BlockIndex, Class, ClassIndex, Member},
    seat::{Need, Seat, SeatKey},
};
use crate::{
    model::{
        host::Host,
        ids::HostId,
        time::{Time, Window},
    },
    schedule::Schedule,
};

/// What takes one host: a seat that wants it whole, or seats on parts of it whose windows hang together.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub window: Window,
    pub seats: Vec<SeatKey>,
    /// The classes that could take it, by their position.
    pub candidates: Arc<[ClassIndex]>,
    /// None while it is out.
    pub class: Option<ClassIndex>,
    /// Its host, once one of its seats is bound.
    pub host: Option<HostId>,
    /// What its seats use; none where the host is taken whole.
    pub parts: Option<Schedule>,
}

/// A promised seat and its block.
#[derive(Debug, Clone)]
pub(super) struct Promise {
    pub seat: Arc<Seat>,
    pub block: BlockIndex,
}

/// The block of a seat that is in none.
const NOWHERE: BlockIndex = BlockIndex(usize::MAX);

/// All promised seats of a site and an assignment that keeps every promise.
#[derive(Debug, Clone)]
pub struct Witness {
    pub(super) members: Vec<Member>,
    pub(super) classes: Vec<Class>,
    pub(super) blocks: Vec<Block>,
    /// Places in `blocks` that hold none.
    free: Vec<BlockIndex>,
    pub(super) seats: BTreeMap<SeatKey, Promise>,
    next_key: u64,
    /// The latest start of a seat that was bound: none may start before.
    pub(super) bound_until: Option<Time>,
}

impl Witness {
    /// The witness of a site with these hosts and no seat.
    ///
    /// # Errors
    /// [`BindingError::SameHost`] when two have one name.
    pub fn new(hosts: impl IntoIterator<Item = Host>) -> Result<Witness, BindingError> {
        let members: Vec<Member> = hosts.into_iter().map(|host| Member { host, busy: Vec::new() }).collect();
        let mut names = BTreeSet::new();
        if let Some(twice) = members.iter().find(|member| !names.insert(&member.host.id)) {
            return Err(BindingError::SameHost(twice.host.id.clone()));
        }
        Ok(Witness {
            classes: Class::of(&members),
            members,
            blocks: Vec::new(),
            free: Vec::new(),
            seats: BTreeMap::new(),
            next_key: 0,
            bound_until: None,
        })
    }

    /// Every promised seat.
    pub fn seats(&self) -> impl Iterator<Item = (SeatKey, &Arc<Seat>)> {
        self.seats.iter().map(|(key, promise)| (*key, &promise.seat))
    }

    /// How many seats are promised.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    /// Whether no seat is promised.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// The hosts, and when each is needed by its owner.
    pub fn hosts(&self) -> impl Iterator<Item = (&Host, &[Window])> {
        self.members.iter().map(|member| (&member.host, &member.busy[..]))
    }

    /// The host of a seat that is bound.
    #[must_use]
    pub fn host_of(&self, key: SeatKey) -> Option<&HostId> {
        self.blocks.get(self.seats.get(&key)?.block.0)?.host.as_ref()
    }

    /// The assignment in full: each class is coloured from left to right. What is not bound may have another host at the next call.
    #[must_use]
    pub fn assignment(&self) -> BTreeMap<SeatKey, HostId> {
        let mut assignment = BTreeMap::new();
        for class in &self.classes {
            let mut blocks: Vec<&Block> = class.blocks().map(|index| &self.blocks[index.0]).collect();
            blocks.sort_by_key(|block| (block.host.is_none(), block.window.start));
            let mut free_from: BTreeMap<&HostId, Option<Time>> = class.hosts.iter().map(|host| (host, None)).collect();
            for block in blocks {
                let is_free = |from: &Option<Time>| from.is_none_or(|from| from <= block.window.start);
                let host = match &block.host {
                    Some(host) => Some(host),
                    None => free_from.iter().find(|(_, from)| is_free(from)).map(|(host, _)| *host),
                };
                let Some(host) = host else { continue };
                free_from.insert(host, Some(block.window.end));
                assignment.extend(block.seats.iter().map(|key| (*key, host.clone())));
            }
        }
        assignment
    }

    /// Takes a seat out: it has ended or was given up.
    ///
    /// # Errors
    /// [`BindingError::NoSeat`].
    pub fn remove(&mut self, key: SeatKey) -> Result<Arc<Seat>, BindingError> {
        if !self.seats.contains_key(&key) {
            return Err(BindingError::NoSeat);
        }
        self.lift(key);
        self.seats.remove(&key).map(|promise| promise.seat).ok_or(BindingError::NoSeat)
    }

    /// Takes a seat out of its block and leaves it promised. What it held together falls apart; of that, what begins later than all that
    /// is bound floats again, so that bound blocks stay at the left edge of time.
    pub(super) fn lift(&mut self, key: SeatKey) {
        let index = self.seats[&key].block;
        let class = self.blocks[index.0].class;
        let block = self.delete(index);
        let rest: Vec<SeatKey> = block.seats.into_iter().filter(|other| *other != key).collect();
        for part in self.hanging_together(rest) {
            let starts = part.iter().map(|key| self.seats[key].seat.window.start);
            let host = block.host.clone().filter(|_| starts.min() <= self.bound_until);
            let split = self.insert(&part, host);
            if let Some(class) = class {
                self.put(split, class);
            }
        }
    }

    /// These seats, those whose windows hang together in one group.
    fn hanging_together(&self, mut keys: Vec<SeatKey>) -> Vec<Vec<SeatKey>> {
        keys.sort_by_key(|key| self.seats[key].seat.window.start);
        let (mut groups, mut end): (Vec<Vec<SeatKey>>, _) = (Vec::new(), Time(i64::MIN));
        for key in keys {
            let window = self.seats[&key].seat.window;
            match groups.last_mut() {
                Some(group) if window.start < end => group.push(key),
                _ => groups.push(vec![key]),
            }
            end = end.max(window.end);
        }
        groups
    }

    /// A new key for a seat that is in no block yet.
    pub(super) fn promise(&mut self, seat: Arc<Seat>) -> SeatKey {
        let key = SeatKey(self.next_key);
        self.next_key += 1;
        self.seats.insert(key, Promise { seat, block: NOWHERE });
        key
    }

    /// Whether a seat is in a block that may move.
    pub(super) fn is_floating(&self, key: SeatKey) -> bool {
        let block = self.seats.get(&key).and_then(|promise| self.blocks.get(promise.block.0));
        block.is_some_and(|block| block.host.is_none())
    }

    /// Takes all seats out of their blocks.
    pub(super) fn clear_blocks(&mut self) {
        self.blocks.clear();
        self.free.clear();
        self.seats.values_mut().for_each(|promise| promise.block = NOWHERE);
    }

    /// Makes a block of seats that one host can hold; it is in no class yet.
    pub(super) fn insert(&mut self, keys: &[SeatKey], host: Option<HostId>) -> BlockIndex {
        let index = self.free.pop().unwrap_or(BlockIndex(self.blocks.len()));
        let mut parts: Option<Schedule> = None;
        for key in keys {
            let Some(promise) = self.seats.get_mut(key) else { continue };
            promise.block = index;
            if !promise.seat.need.is_exclusive {
                parts.get_or_insert_default().add(promise.seat.window, &promise.seat.need.amounts);
            }
        }
        let windows = keys.iter().map(|key| self.seats[key].seat.window);
        let window = Window::hull(windows).unwrap_or(Window { start: Time::ZERO, end: Time::ZERO });
        let candidates = self.candidates_of_all(keys, parts.as_ref(), window);
        candidates.iter().for_each(|class| self.classes[class.0].wanted += 1);
        let block = Block { window, seats: keys.to_vec(), candidates, class: None, host, parts };
        if index.0 == self.blocks.len() {
            self.blocks.push(block);
        } else {
            self.blocks[index.0] = block;
        }
        index
    }

    fn candidates_of_all(&self, keys: &[SeatKey], parts: Option<&Schedule>, window: Window) -> Arc<[ClassIndex]> {
        let of = |key: &SeatKey| self.candidates(&self.seats[key].seat.need);
        let (Some(parts), [first, rest @ ..]) = (parts.filter(|_| keys.len() > 1), keys) else {
            return keys.first().map(of).unwrap_or_default();
        };
        let holds = |class: &ClassIndex| {
            let capacity = &self.classes[class.0].kind.capacity;
            let peaks = parts.occupancies().map(|(name, used)| (name.clone(), used.peak(window))).collect();
            rest.iter().all(|key| self.seats[key].seat.need.is_met_by(&self.classes[class.0].kind))
                && Schedule::default().admits(capacity, window, &peaks).is_ok()
        };
        of(first).iter().copied().filter(holds).collect()
    }

    /// Takes a block away, out of its class too.
    pub(super) fn delete(&mut self, index: BlockIndex) -> Block {
        self.take(index);
        let empty = Block {
            window: self.blocks[index.0].window,
            seats: Vec::new(),
            candidates: Arc::default(),
            class: None,
            host: None,
            parts: None,
        };
        let block = std::mem::replace(&mut self.blocks[index.0], empty);
        block.candidates.iter().for_each(|class| self.classes[class.0].wanted -= 1);
        for key in &block.seats {
            if let Some(promise) = self.seats.get_mut(key) {
                promise.block = NOWHERE;
            }
        }
        self.free.push(index);
        block
    }

    /// The classes whose hosts meet the need.
    pub(super) fn candidates(&self, need: &Need) -> Arc<[ClassIndex]> {
        let meets = |(at, class): (usize, &Class)| need.is_met_by(&class.kind).then_some(ClassIndex(at));
        self.classes.iter().enumerate().filter_map(meets).collect()
    }

    /// Classes with those first that the fewest blocks could use (best fit).
    pub(super) fn by_fit(&self, candidates: &[ClassIndex]) -> Vec<ClassIndex> {
        let mut sorted = candidates.to_vec();
        sorted.sort_by_key(|class| self.classes[class.0].wanted);
        sorted
    }

    /// Puts a block that is out into a class.
    pub(super) fn put(&mut self, index: BlockIndex, class: ClassIndex) {
        let block = &mut self.blocks[index.0];
        block.class = Some(class);
        self.classes[class.0].add(index, block.window);
    }

    /// Takes a block out of its class.
    pub(super) fn take(&mut self, index: BlockIndex) {
        let block = &mut self.blocks[index.0];
        if let Some(class) = block.class.take() {
            self.classes[class.0].remove(index, block.window);
        }
    }

    /// Whether a class has a host for a block that is not in it.
    pub(super) fn has_room(&self, class: ClassIndex, index: BlockIndex) -> bool {
        self.classes[class.0].has_room(self.blocks[index.0].window)
    }

    /// Blocks of a class that cross the window.
    pub(super) fn crossing(&self, class: ClassIndex, window: Window) -> impl Iterator<Item = BlockIndex> {
        self.classes[class.0].near(window).filter(move |index| self.blocks[index.0].window.overlaps(window))
    }

    /// Blocks of a class that are there at this second.
    pub(super) fn there_at(&self, class: ClassIndex, at: Time) -> impl Iterator<Item = BlockIndex> {
        self.crossing(class, Window { start: at, end: Time(at.0.saturating_add(1)) })
    }
}
