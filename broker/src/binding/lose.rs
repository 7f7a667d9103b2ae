//! Hosts that come and go: floating seats move, and what no longer fits is given up, as few requests as can be.
//!
//! A certificate names seats of which one must go, so a search that branches over their requests finds the fewest. One class of whole hosts
//! needs no search: where too many seats are there, the one that ends last goes (Faigle, Nawijn 1995). Otherwise work is bounded, and the
//! loss is never larger than by the source's rule (figure 2). Invariant: what has begun elsewhere stays.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    admit::Obstacle,
    answer::BindingError,
    class::{Class, ClassIndex, Member},
    degree::Degrees,
    seat::{Seat, SeatKey},
    witness::Witness,
};
use crate::model::{
    host::Host,
    ids::{HostId, RequestId},
    time::{Time, Window},
};

/// States that the search for a smaller loss looks at.
const STATES_MAX: usize = 200;

/// What is given up because hosts have gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loss {
    /// The seats, which are no longer promised.
    pub seats: Vec<(SeatKey, Arc<Seat>)>,
    /// Whether no assignment loses seats of fewer requests.
    pub is_fewest: bool,
}

impl Loss {
    /// The requests that lose a seat.
    #[must_use]
    pub fn requests(&self) -> BTreeSet<&RequestId> {
        self.seats.iter().map(|(_, seat)| &seat.request).collect()
    }
}

/// A state of the search: seats still to be placed, the earliest last, and what was given up for the others.
#[derive(Clone)]
struct State {
    witness: Witness,
    pending: Vec<SeatKey>,
    out: Vec<SeatKey>,
    /// Requests that lose a seat.
    hit: BTreeSet<RequestId>,
}

/// Seats of which at least one must be given up.
struct Stuck {
    seats: Vec<SeatKey>,
    /// False where that is not known, and one is given up because no place was found.
    is_proven: bool,
}

impl Witness {
    /// A new host, which promised seats can use at once.
    ///
    /// # Errors
    /// [`BindingError::SameHost`].
    pub fn host_joins(&mut self, host: Host) -> Result<(), BindingError> {
        if self.members.iter().any(|member| member.host.id == host.id) {
            return Err(BindingError::SameHost(host.id));
        }
        let mut members = self.members.clone();
        members.push(Member { host, busy: Vec::new() });
        self.reshape(members, None, None);
        Ok(())
    }

    /// A host goes at `now`: seats that have begun there are lost, all others move if they can.
    ///
    /// # Errors
    /// [`BindingError::NoHost`].
    pub fn host_leaves(&mut self, id: &HostId, now: Time) -> Result<Loss, BindingError> {
        let at = self.position(id)?;
        let by_rule = self.lost_by_rule(at);
        let mut members = self.members.clone();
        members.remove(at);
        Ok(self.reshape(members, Some(now), by_rule))
    }

    /// Says when the owner needs a host, from now on; what has begun there stays, and the owner waits for it. Of no window the host is one of
    /// its class again.
    ///
    /// # Errors
    /// [`BindingError::NoHost`]; [`BindingError::Window`] of a window that is empty or out of range.
    pub fn host_is_busy(&mut self, id: &HostId, windows: &[Window]) -> Result<Loss, BindingError> {
        let at = self.position(id)?;
        if !windows.iter().all(|window| window.is_valid()) {
            return Err(BindingError::Window);
        }
        let bound = self.blocks.iter().filter(|block| block.class.is_some() && block.host.as_ref() == Some(id));
        let free_from = bound.map(|block| block.window.end).max().unwrap_or(Time::ZERO);
        let cut = windows.iter().map(|window| Window { start: window.start.max(free_from), end: window.end });
        let mut members = self.members.clone();
        members[at].busy = cut.filter(|window| window.start < window.end).collect();
        Ok(self.reshape(members, None, None))
    }

    fn position(&self, id: &HostId) -> Result<usize, BindingError> {
        let at = self.members.iter().position(|member| member.host.id == *id);
        at.ok_or_else(|| BindingError::NoHost(id.clone()))
    }

    /// The source's graph of this state, whose hosts are numbered as members; none where seats are on parts or hosts have a pinned future.
    #[must_use]
    pub fn degrees(&self) -> Option<Degrees<SeatKey>> {
        let is_plain = self.members.iter().all(|member| member.busy.is_empty())
            && self.seats.values().all(|promise| promise.seat.need.is_exclusive);
        is_plain.then(|| {
            let mut graph = Degrees::new(self.members.len());
            for (key, promise) in &self.seats {
                let hosts = self.members.iter().enumerate();
                let meets = hosts.filter(|(_, member)| promise.seat.need.is_met_by(&member.host));
                graph.insert(*key, promise.seat.window, meets.map(|(at, _)| at).collect());
            }
            for key in self.seats.keys() {
                if let Some(Ok(at)) = self.host_of(*key).map(|host| self.position(host)) {
                    graph.bind(*key, at);
                }
            }
            graph
        })
    }

    /// What the source's rule gives up when a host fails; none where that is no proof of an assignment for the others.
    fn lost_by_rule(&self, host: usize) -> Option<Vec<SeatKey>> {
        let mut graph = self.degrees()?;
        let lost = graph.fail(host);
        graph.all_are_free().then_some(lost)
    }

    /// Goes over to these hosts. Of `now` none, nothing that is bound is on a host that goes.
    fn reshape(&mut self, members: Vec<Member>, now: Option<Time>, by_rule: Option<Vec<SeatKey>>) -> Loss {
        let mut state = self.regrouped(members, now);
        let begun = std::mem::take(&mut state.out);
        let mut best = state.clone();
        best.dive();
        let mut is_fewest = best.is_exact();
        if let Some(rule) = by_rule.filter(|_| !is_fewest) {
            let mut by_rule = state.clone();
            let requests: BTreeSet<RequestId> = rule.iter().map(|key| by_rule.request(*key)).collect();
            requests.iter().for_each(|request| by_rule.give_up(request));
            by_rule.dive();
            if by_rule.hit.len() < best.hit.len() {
                best = by_rule;
            }
        }
        if !is_fewest {
            let (mut states, mut is_complete) = (STATES_MAX, true);
            let fewer = (state.hit.len()..best.hit.len())
                .find_map(|most| state.search(most - state.hit.len(), &mut states, &mut is_complete));
            best = fewer.unwrap_or(best);
            is_fewest = is_complete;
        }
        *self = best.witness;
        let lost = begun.into_iter().chain(best.out);
        let seats = lost.filter_map(|key| Some((key, self.seats.remove(&key)?.seat))).collect();
        Loss { seats, is_fewest }
    }

    /// This witness over these hosts: what no longer fits where it was is pending, and `out` holds what has begun on a host that is gone.
    fn regrouped(&self, members: Vec<Member>, now: Option<Time>) -> State {
        let mut state = State { witness: self.clone(), pending: Vec::new(), out: Vec::new(), hit: BTreeSet::new() };
        let witness = &mut state.witness;
        let old = std::mem::replace(&mut witness.classes, Class::of(&members));
        witness.members = members;
        witness.clear_blocks();
        let class_of = |host: &HostId| witness.classes.iter().position(|class| class.hosts.contains(host));
        let new: Vec<Option<ClassIndex>> =
            old.iter().map(|class| class.hosts.iter().find_map(class_of).map(ClassIndex)).collect();
        let mut blocks: Vec<_> = self.blocks.iter().filter(|block| block.class.is_some()).collect();
        // What is bound takes its place first, then the others from left to right.
        blocks.sort_by_key(|block| (block.host.is_none(), block.window.start));
        for block in blocks {
            let Some(host) = &block.host else {
                let class = block.class.and_then(|class| new[class.0]);
                let index = witness.insert(&block.seats, None);
                match class.filter(|class| witness.blocks[index.0].candidates.contains(class)) {
                    Some(class) if witness.has_room(class, index) => witness.put(index, class),
                    _ => {
                        witness.delete(index);
                        state.pending.extend(&block.seats);
                    }
                }
                continue;
            };
            let class = witness.classes.iter().position(|class| class.hosts.contains(host));
            if let Some(class) = class {
                let index = witness.insert(&block.seats, Some(host.clone()));
                witness.put(index, ClassIndex(class));
                continue;
            }
            for key in &block.seats {
                let seat = &witness.seats[key].seat;
                if now.is_some_and(|now| seat.window.start > now) {
                    state.pending.push(*key);
                } else {
                    state.hit.insert(seat.request.clone());
                    state.out.push(*key);
                }
            }
        }
        state.sort();
        state
    }
}

impl State {
    fn request(&self, key: SeatKey) -> RequestId {
        self.witness.seats[&key].seat.request.clone()
    }

    /// The earliest last.
    fn sort(&mut self) {
        let witness = &self.witness;
        self.pending.sort_by_key(|key| std::cmp::Reverse((witness.seats[key].seat.window.start, *key)));
    }

    /// Places what is pending; where that fails, the seats of which one must be given up.
    fn fill(&mut self) -> Result<(), Stuck> {
        while let Some(key) = self.pending.pop() {
            match self.witness.place(key) {
                Ok(()) => {}
                Err(Obstacle::Short(shortage)) => {
                    let floats = |other: &SeatKey| *other == key || self.witness.host_of(*other).is_none();
                    let seats = shortage.seats.into_iter().filter(floats).collect();
                    self.pending.push(key);
                    return Err(Stuck { seats, is_proven: true });
                }
                Err(Obstacle::Unknown) => {
                    self.pending.push(key);
                    return Err(Stuck { seats: vec![key], is_proven: false });
                }
            }
        }
        Ok(())
    }

    /// Gives up all seats of a request that are not bound.
    fn give_up(&mut self, request: &RequestId) {
        let witness = &mut self.witness;
        let of_request = witness.seats.iter().filter(|(_, promise)| promise.seat.request == *request);
        let keys: Vec<SeatKey> = of_request.map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(at) = self.pending.iter().position(|pending| *pending == key) {
                self.pending.remove(at);
            } else if !witness.is_floating(key) {
                continue;
            } else {
                witness.lift(key);
            }
            self.out.push(key);
        }
        self.hit.insert(request.clone());
    }

    /// The seat whose request is given up for the others: of a request that is lost anyway, else the one that ends last.
    fn victim(&self, seats: &[SeatKey]) -> Option<RequestId> {
        let of = |key: &SeatKey| self.witness.seats[key].seat.as_ref();
        let rank = |key: &&SeatKey| (self.hit.contains(&of(key).request), of(key).window.end, **key);
        seats.iter().max_by_key(rank).map(|key| of(key).request.clone())
    }

    /// Places everything, and gives up what stands in the way.
    fn dive(&mut self) {
        while let Err(Stuck { seats, .. }) = self.fill() {
            let Some(victim) = self.victim(&seats) else { break };
            self.give_up(&victim);
        }
        self.regain();
    }

    /// Places again what was given up and still fits.
    fn regain(&mut self) {
        let witness = &mut self.witness;
        self.out.sort_by_key(|key| (witness.seats[key].seat.window.start, *key));
        self.out.retain(|key| witness.place(*key).is_err());
    }

    /// Gives up at most so many more requests for a place of everything else.
    fn search(&self, most: usize, states: &mut usize, is_complete: &mut bool) -> Option<State> {
        let Some(left) = states.checked_sub(1) else {
            *is_complete = false;
            return None;
        };
        *states = left;
        let mut state = self.clone();
        let Stuck { seats, is_proven } = match state.fill() {
            Ok(()) => {
                state.regain();
                return Some(state);
            }
            Err(stuck) => stuck,
        };
        *is_complete &= is_proven;
        let requests: BTreeSet<RequestId> = seats.iter().map(|key| state.request(*key)).collect();
        // What is lost anyway costs nothing more.
        let free = requests.iter().find(|request| state.hit.contains(*request)).cloned();
        let cost = usize::from(free.is_none());
        let left = most.checked_sub(cost)?;
        free.map_or(requests, |free| BTreeSet::from([free])).iter().find_map(|request| {
            let mut next = state.clone();
            next.give_up(request);
            next.search(left, states, is_complete)
        })
    }

    /// Whether giving up what ends last is known to lose the fewest: one class, whole hosts, one window for all seats of a request.
    fn is_exact(&self) -> bool {
        let seats = || self.witness.seats.values().map(|promise| &promise.seat);
        let mut windows: Vec<_> = seats().map(|seat| (&seat.request, seat.window)).collect();
        windows.sort();
        windows.dedup();
        self.witness.classes.len() < 2
            && seats().all(|seat| seat.need.is_exclusive)
            && windows.windows(2).all(|pair| pair[0].0 != pair[1].0)
    }
}
