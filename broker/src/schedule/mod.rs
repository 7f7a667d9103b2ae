//! Schedules: how much of each resource of one host is reserved over time.
//!
//! [`Occupancy`] is one resource's step function, [`Schedule`] holds all of a host, [`ClassOccupancy`] counts hosts
//! that are alike. Invariant: a schedule keeps no resource that is never used, so two schedules are equal exactly when they say the same of
//! every second.

mod block;
mod class;
mod error;
mod extremes;
mod fit;
mod occupancy;
mod segments;
#[cfg(test)]
mod tests;
mod wire;

use std::{collections::BTreeMap, sync::Arc};

pub(crate) use self::extremes::Extremes;
use self::occupancy::Builder;
pub use self::{
    class::ClassOccupancy,
    error::{ScheduleError, Shortage},
    occupancy::{MAX_STEPS, Occupancy},
};
use crate::{
    amount::Amount,
    resources::{Amounts, ResourceName, amount_of},
    time::{Span, Time, Window},
};

/// The longest seat that can be had of a host, by whose rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Longest {
    /// The owner's longest reservation, for everybody.
    OfOwner(Span),
    /// Host-hours that the user has left of those that the owner gives to each user.
    OfUser(Span),
}

impl Longest {
    /// Length of the longest seat.
    #[must_use]
    pub fn span(self) -> Span {
        match self {
            Longest::OfOwner(span) | Longest::OfUser(span) => span,
        }
    }
}

/// The schedule of one host: an [`Occupancy`] by resource. A resource without one is free at all times. A planner's has also what its
/// owner does not offer to anybody ([`Schedule::close`]), and from when on it is coarse; that of a ledger and on the wire has not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    occupancies: BTreeMap<ResourceName, Occupancy>,
    /// 1 where the host cannot be had, whatever is asked of it. Hosts of a site share it.
    closed: Option<Arc<Occupancy>>,
    longest: Option<Longest>,
    coarse_from: Option<Time>,
}

impl Schedule {
    /// The schedule whose resources follow the given steps (see [`Occupancy::from_steps`]).
    ///
    /// # Errors
    /// [`ScheduleError::Resource`], which names the resource and wraps what is wrong with its steps.
    pub fn from_steps(map: &BTreeMap<ResourceName, Vec<(Time, Amount)>>) -> Result<Self, ScheduleError> {
        let occupancies = map.iter().map(|(name, steps)| match Occupancy::from_steps(steps) {
            Ok(occupancy) => Ok((name.clone(), occupancy)),
            Err(error) => Err(error.of_resource(name)),
        });
        Ok(Self::from(occupancies.collect::<Result<BTreeMap<_, _>, _>>()?))
    }

    /// The occupancy of one resource; `None` when it is never used.
    #[must_use]
    pub fn occupancy(&self, resource: &ResourceName) -> Option<&Occupancy> {
        self.occupancies.get(resource)
    }

    /// Every resource that is used at some time, in the order of the names.
    pub fn occupancies(&self) -> impl Iterator<Item = (&ResourceName, &Occupancy)> {
        self.occupancies.iter()
    }

    /// Makes the host one that cannot be had at these times, nor for longer than this.
    pub fn close(&mut self, closed: Option<Arc<Occupancy>>, longest: Option<Longest>) {
        (self.closed, self.longest) = (closed.filter(|closed| !closed.is_empty()), longest);
    }

    /// When the host cannot be had, whatever is asked of it: 1 there, 0 elsewhere. `None` when it always can.
    #[must_use]
    pub fn closed(&self) -> Option<&Occupancy> {
        self.closed.as_deref()
    }

    /// The limit that a seat of this length is beyond, if it is.
    #[must_use]
    pub fn excluding(&self, length: Span) -> Option<Longest> {
        self.longest.filter(|longest| length > longest.span())
    }

    /// Notes that more may be shown as used from this time on than is; of what is free from then on that says nothing.
    pub fn mark_coarse(&mut self, from: Time) {
        let is_used = |occupancy: &Occupancy| occupancy.iter().any(|(time, _)| time >= from);
        self.coarse_from = Some(from).filter(|_| self.occupancies.values().any(is_used));
    }

    /// From when on more may be shown as used than is. `None` where all of it is exact.
    #[must_use]
    pub fn coarse_from(&self) -> Option<Time> {
        self.coarse_from
    }

    /// The times at which anything changes, in order.
    #[must_use]
    pub fn changes(&self) -> Vec<Time> {
        let occupancies = self.occupancies.values().chain(self.closed());
        let mut times: Vec<Time> = occupancies.flat_map(Occupancy::iter).map(|(time, _)| time).collect();
        times.sort_unstable();
        times.dedup();
        times
    }

    /// Whether a seat of such `amounts` can be had: they fit, and its owner offers the host all through the window and for so long.
    #[must_use]
    pub fn offers(&self, capacity: &Amounts, window: Window, amounts: &Amounts) -> bool {
        self.excluding(window.duration()).is_none()
            && self.is_open(window)
            && self.admits(capacity, window, amounts).is_ok()
    }

    /// Whether its owner offers the host all through the window.
    #[must_use]
    pub fn is_open(&self, window: Window) -> bool {
        self.closed().is_none_or(|closed| closed.peak(window) == Amount::ZERO)
    }

    /// When anything at all is used, or the host cannot be had: 1 there, 0 elsewhere.
    #[must_use]
    pub fn busy(&self) -> Occupancy {
        let times = self.changes();
        let is_used =
            |at| self.occupancies.values().chain(self.closed()).any(|occupancy| occupancy.used_at(at) > Amount::ZERO);
        let mut busy = Builder::new(times.len());
        for at in times {
            // Ascending times cannot be refused.
            let _ = busy.push(at, Amount(u64::from(is_used(at))));
        }
        busy.finish()
    }

    /// What is used during the window: first `(window.start, use there)`, then each change inside the window. Nothing when the window is
    /// empty.
    #[must_use]
    pub fn uses(&self, window: Window) -> Vec<(Time, Amounts)> {
        if window.start >= window.end {
            return Vec::new();
        }
        let changes = self.occupancies().flat_map(|(_, occupancy)| occupancy.segments(window)).map(|(time, _)| time);
        let mut times: Vec<Time> = changes.chain([window.start]).collect();
        times.sort_unstable();
        times.dedup();
        let used_at = |at: &Time| {
            let used = self.occupancies().map(|(name, occupancy)| (name.clone(), occupancy.used_at(*at)));
            (*at, used.filter(|(_, amount)| *amount > Amount::ZERO).collect())
        };
        times.iter().map(used_at).collect()
    }

    /// Reserves `amounts` for the whole of `window`. Whether they fit is not asked here: see [`Schedule::admits`].
    pub fn add(&mut self, window: Window, amounts: &Amounts) {
        for (name, amount) in amounts.iter().filter(|(_, amount)| **amount > Amount::ZERO) {
            self.add_one(name, window, *amount);
        }
    }

    /// Makes at least as much of a resource used as `floor` says.
    pub(crate) fn raise(&mut self, name: &ResourceName, floor: &Occupancy) {
        let used = self.occupancies.get(name).cloned().unwrap_or_default();
        let mut times: Vec<Time> = used.iter().chain(floor.iter()).map(|(time, _)| time).collect();
        times.sort_unstable();
        times.dedup();
        let mut raised = Builder::new(times.len());
        for at in times {
            // Ascending times of schedules cannot be refused, and amounts saturate where owners over-commit.
            let _ = raised.push(at, used.used_at(at).max(floor.used_at(at)).min(Amount::MAX));
        }
        let raised = raised.finish();
        if !raised.is_empty() {
            self.occupancies.insert(name.clone(), raised);
        }
    }

    fn add_one(&mut self, name: &ResourceName, window: Window, amount: Amount) {
        if let Some(occupancy) = self.occupancies.get_mut(name) {
            occupancy.add(window, amount);
        } else {
            let mut occupancy = Occupancy::default();
            occupancy.add(window, amount);
            if !occupancy.is_empty() {
                self.occupancies.insert(name.clone(), occupancy);
            }
        }
    }

    /// Takes `amounts` back for the whole of `window`. A part of the window that was forgotten (see
    /// [`Schedule::forget_before`]) is no longer there to be taken back: clip the window first.
    ///
    /// # Errors
    /// [`ScheduleError::Resource`] around [`ScheduleError::NotReserved`] when some resource would fall below zero; then
    /// nothing has changed.
    pub fn remove(&mut self, window: Window, amounts: &Amounts) -> Result<(), ScheduleError> {
        for (done, (name, amount)) in amounts.iter().enumerate() {
            if let Err(error) = self.remove_one(name, window, *amount) {
                for (name, amount) in amounts.iter().take(done) {
                    self.add_one(name, window, *amount);
                }
                return Err(error.of_resource(name));
            }
        }
        Ok(())
    }

    fn remove_one(&mut self, name: &ResourceName, window: Window, amount: Amount) -> Result<(), ScheduleError> {
        let Some(occupancy) = self.occupancies.get_mut(name) else {
            return Occupancy::default().remove(window, amount);
        };
        occupancy.remove(window, amount)?;
        if occupancy.is_empty() {
            self.occupancies.remove(name);
        }
        Ok(())
    }

    /// The largest use of `resource` in `window`.
    #[must_use]
    pub fn peak(&self, resource: &ResourceName, window: Window) -> Amount {
        self.occupancies.get(resource).map_or(Amount::ZERO, |occupancy| occupancy.peak(window))
    }

    /// Whether `amounts` fit during `window` beside what is reserved. An amount of zero always fits, also beside an
    /// over-committed resource.
    ///
    /// # Errors
    /// [`Shortage`] names the first resource (in the order of the names) that is short, and what was free of it.
    pub fn admits(&self, capacity: &Amounts, window: Window, amounts: &Amounts) -> Result<(), Shortage> {
        for (name, asked) in amounts.iter().filter(|(_, amount)| **amount > Amount::ZERO) {
            let free = amount_of(capacity, name).saturating_sub(self.peak(name, window));
            if *asked > free {
                return Err(Shortage { resource: name.clone(), asked: *asked, free });
            }
        }
        Ok(())
    }

    /// The earliest start in `[from, latest]` at which `amounts` fit for `duration`, all resources at once, and its owner offers the host.
    #[must_use]
    pub fn earliest_fit(
        &self,
        capacity: &Amounts,
        amounts: &Amounts,
        duration: Span,
        from: Time,
        latest: Time,
    ) -> Option<Time> {
        if self.excluding(duration).is_some() {
            return None;
        }
        let mut fits = Vec::with_capacity(amounts.len() + 1);
        fits.extend(self.closed().map(|closed| closed.fit(Amount::ZERO, duration)));
        for (name, asked) in amounts.iter().filter(|(_, amount)| **amount > Amount::ZERO) {
            let limit = Amount(amount_of(capacity, name).0.checked_sub(asked.0)?);
            if let Some(occupancy) = self.occupancies.get(name) {
                fits.push(occupancy.fit(limit, duration));
            }
        }
        let mut start = (from <= latest).then_some(from)?;
        // Every resource in turn moves the start on, until a whole round agrees on it.
        let mut agreed = 0;
        while agreed < fits.len() {
            for fit in &mut fits {
                let found = fit.next_from(start, latest)?;
                agreed = if found == start { agreed + 1 } else { 1 };
                start = found;
            }
        }
        Some(start)
    }

    /// What has never less in use: see [`Occupancy::coarsened`].
    #[must_use]
    pub fn coarsened(&self, from: Time, group: usize) -> Schedule {
        let occupancies = self.occupancies.iter();
        let occupancies = occupancies.map(|(name, one)| (name.clone(), one.coarsened(from, group))).collect();
        let mut coarsened = Self { occupancies, ..self.clone() };
        coarsened.mark_coarse(from);
        coarsened
    }

    /// Whether all is free at all times.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.closed.is_none() && self.longest.is_none() && self.occupancies.values().all(Occupancy::is_empty)
    }

    /// Whether anything is used before `t`, so that [`Schedule::forget_before`] would change something.
    #[must_use]
    pub fn has_before(&self, t: Time) -> bool {
        self.occupancies.values().any(|occupancy| occupancy.has_before(t))
    }

    /// Drops what is before `t`; every value from `t` on is unchanged, before it the use becomes zero.
    pub fn forget_before(&mut self, t: Time) {
        self.occupancies.retain(|_, occupancy| {
            occupancy.forget_before(t);
            !occupancy.is_empty()
        });
    }
}

impl From<BTreeMap<ResourceName, Occupancy>> for Schedule {
    fn from(mut occupancies: BTreeMap<ResourceName, Occupancy>) -> Self {
        occupancies.retain(|_, occupancy| !occupancy.is_empty());
        Self { occupancies, ..Self::default() }
    }
}
