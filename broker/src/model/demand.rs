//! What a request needs of the hosts: how many seats, what each and all together must give, and for how long.
//!
//! Source: section 3.2 of the dissertation; lengths by work and speed: `formats.md`, version 2. Invariant: a [`Demand`] was
//! checked by its [`super::request::Request`]: at least one seat, amounts in range, candidates sorted and distinct.

use std::{borrow::Cow, collections::BTreeSet};

use crate::model::{
    amount::Amount,
    host::{Host, Speed},
    ids::{HostId, SeatNumber, SiteId},
    needs::Needs,
    resources::{Amounts, Attributes, ResourceName, amount_of},
    scale::{Factor, Scale},
    time::Span,
    traffic::Traffic,
};

/// How long a seat lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Equally long on every host.
    Duration(Span),
    /// As long as the host takes for this work, in seconds at reference speed.
    Work(Span),
}

impl Length {
    /// The length of a seat on a host of this speed: the duration, or `ceil(work * 1000 / speed)`.
    #[must_use]
    pub fn at_speed(self, speed: Speed) -> Span {
        match self {
            Length::Duration(duration) => duration,
            Length::Work(work) => Span(work.0.saturating_mul(1000).div_ceil(u64::from(speed.thousandths()))),
        }
    }

    /// The length on the reference host.
    #[must_use]
    pub fn at_reference(self) -> Span {
        self.at_speed(Speed::REFERENCE)
    }
}

/// In thousandths of the reference speed. Slower hosts are chosen too; when a seat on one is lost late, its request may have expired.
const SLOWEST_EXPECTED: u32 = 50;

/// What a request needs of the hosts, wherever and whenever they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    pub(super) seats: u32,
    /// Of which these are what is left, see [`Demand::rest`].
    pub(super) seats_in_all: u32,
    pub(super) length: Length,
    pub(super) per_host: Amounts,
    pub(super) total: Amounts,
    pub(super) attributes: Attributes,
    pub(super) candidates: Option<Vec<HostId>>,
    pub(super) speed_min: Option<Speed>,
    pub(super) is_exclusive: bool,
    pub(super) sites_max: Option<u32>,
    pub(super) slack: Span,
    pub(super) traffic: Option<Traffic>,
    pub(super) scale: Option<Scale>,
    /// The one that amounts are multiplied with already, of those of `scale`.
    pub(super) factor: Option<Factor>,
    /// See [`Demand::is_of_shape`].
    pub(super) is_of_shape: bool,
    pub(super) needs: Needs,
}

impl Demand {
    /// N, at least 1.
    #[must_use]
    pub fn seats(&self) -> usize {
        self.seats as usize
    }

    /// The seats of the whole request, which traffic is reckoned from; more than [`Demand::seats`] where these are what is left.
    #[must_use]
    pub fn seats_in_all(&self) -> usize {
        self.seats_in_all as usize
    }

    /// The numbers of the seats, from 0 on.
    pub fn numbers(&self) -> impl Iterator<Item = SeatNumber> + use<> {
        (0..self.seats).map(SeatNumber)
    }

    /// How long each seat lasts; at least a second.
    #[must_use]
    pub fn length(&self) -> Length {
        self.length
    }

    /// How long a seat may be expected to last: on a host of the least speed asked, else of a twentieth of the reference speed, at the
    /// least factor.
    #[must_use]
    pub fn longest(&self) -> Span {
        let slowest = self.speed_min.or_else(|| Speed::try_from(SLOWEST_EXPECTED).ok()).unwrap_or_default();
        let length = self.length_at(slowest);
        self.range_to_choose().map_or(length, |(least, _)| least.length(length)).min(Span::MAX)
    }

    /// How long a seat on a host of this speed lasts; with traffic, every seat when that is the slowest of their hosts.
    #[must_use]
    pub fn length_at(&self, speed: Speed) -> Span {
        match (self.traffic, self.length) {
            (Some(traffic), Length::Work(work)) => traffic.length(work, speed),
            (None, Length::Work(_)) => self.factor().length(self.length.at_speed(speed)),
            (_, Length::Duration(_)) => self.length.at_speed(speed),
        }
    }

    /// How long a seat on this host lasts; with traffic, at least.
    #[must_use]
    pub fn length_on(&self, host: &Host) -> Span {
        self.length_at(host.speed)
    }

    /// `d_i` as asked.
    #[must_use]
    pub fn per_host(&self) -> &Amounts {
        &self.per_host
    }

    /// `e_i` as asked.
    #[must_use]
    pub fn total(&self) -> &Amounts {
        &self.total
    }

    /// Qualitative requirements, all of which must hold.
    #[must_use]
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The hosts to choose from, sorted and distinct, when the request names them.
    #[must_use]
    pub fn candidates(&self) -> Option<&[HostId]> {
        self.candidates.as_deref()
    }

    /// The least speed of every host, if any is asked.
    #[must_use]
    pub fn speed_min(&self) -> Option<Speed> {
        self.speed_min
    }

    /// Whether every seat takes its host whole: all of every resource, and only where nothing of it is used.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    /// All seats of the request lie at most at so many sites.
    #[must_use]
    pub fn sites_max(&self) -> Option<usize> {
        self.sites_max.map(|most| most as usize)
    }

    /// How much later than planned all seats may begin where they wait for an own job of their site; zero when they may not.
    #[must_use]
    pub fn slack(&self) -> Span {
        self.slack
    }

    /// All-to-all traffic between the seats, if there is any.
    #[must_use]
    pub fn traffic(&self) -> Option<Traffic> {
        self.traffic
    }

    /// The traffic that may go from site to site: none where all seats are to be at one site, whatever becomes of some of them.
    #[must_use]
    pub fn traffic_between_sites(&self) -> Option<Traffic> {
        self.traffic.filter(|_| self.sites_max != Some(1))
    }

    /// The factors that may be chosen, if any.
    #[must_use]
    pub fn scale(&self) -> Option<Scale> {
        self.scale
    }

    /// Whether a factor is still to be chosen.
    #[must_use]
    pub fn is_to_be_scaled(&self) -> bool {
        self.range_to_choose().is_some()
    }

    /// The least and the largest factor, where one is still to be chosen.
    fn range_to_choose(&self) -> Option<(Factor, Factor)> {
        self.scale.filter(|_| self.factor.is_none()).map(|scale| scale.range().into_inner())
    }

    /// The factor at which it is.
    #[must_use]
    pub fn factor(&self) -> Factor {
        self.factor.unwrap_or_default()
    }

    /// What it needs at this factor; none where it allows no such factor.
    #[must_use]
    pub fn scaled(&self, factor: Factor) -> Option<Cow<'_, Demand>> {
        match self.range_to_choose() {
            Some((least, most)) => (least..=most).contains(&factor).then(|| Cow::Owned(self.at_factor(factor))),
            None => (self.factor() == factor).then_some(Cow::Borrowed(self)),
        }
    }

    /// The demand at this factor.
    #[must_use]
    pub(crate) fn at_factor(&self, factor: Factor) -> Demand {
        self.relaxed((factor, factor))
    }

    /// What it needs at least at any factor of a range: the amounts of the low end for the length of the high end.
    pub(crate) fn relaxed(&self, (low, high): (Factor, Factor)) -> Demand {
        let (per_host, total) = (low.amounts(&self.per_host), low.amounts(&self.total));
        let length = match self.length {
            Length::Duration(duration) => Length::Duration(high.length(duration)),
            // How long it lasts unscaled depends on the host.
            Length::Work(work) => Length::Work(work),
        };
        Demand { per_host, total, length, factor: Some(high), ..self.clone() }
    }

    /// Whether it is that of a shape, which a site has to know.
    #[must_use]
    pub fn is_of_shape(&self) -> bool {
        self.is_of_shape
    }

    /// What it needs of the nodes of its sites, which says nothing of their hosts.
    #[must_use]
    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    /// The least that a host must be and have to serve any of these, which are shapes of one request, at any factor, for as many hosts as
    /// the largest needs; for whoever looks for hosts.
    pub(crate) fn widest<'d>(shapes: impl Iterator<Item = &'d Demand>) -> Option<Demand> {
        let least = |shape: &Demand| shape.range_to_choose().map_or_else(|| shape.clone(), |all| shape.relaxed(all));
        shapes.map(least).reduce(|mut widest, shape| {
            let names = widest.resources();
            let least = |name| (widest.minimum_on_each(&name).min(shape.minimum_on_each(&name)), name);
            let least = names.into_iter().map(least).filter(|(least, _)| *least > Amount::ZERO);
            widest.per_host = least.map(|(least, name)| (name, least)).collect();
            widest.total.clear();
            widest.seats = widest.seats.max(shape.seats);
            widest.seats_in_all = widest.seats;
            widest
        })
    }

    /// Every resource named in `per_host` or `total`, in order.
    #[must_use]
    pub fn resources(&self) -> Vec<ResourceName> {
        let mut names: Vec<_> = self.per_host.keys().chain(self.total.keys()).cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    /// `d_i` as asked; for a resource that only has a total, the source's "small positive amount": one base unit, when the
    /// total has a unit for every seat, else nothing.
    #[must_use]
    pub fn minimum_on_each(&self, name: &ResourceName) -> Amount {
        match self.per_host.get(name) {
            Some(asked) => *asked,
            None => Amount(u64::from(amount_of(&self.total, name).0 >= u64::from(self.seats))),
        }
    }

    /// [`Demand::minimum_on_each`] of all resources.
    #[must_use]
    pub fn minima(&self) -> Amounts {
        self.resources().into_iter().map(|name| (name.clone(), self.minimum_on_each(&name))).collect()
    }

    /// What all seats together must have of `name`: `max(e_i, N d_i)`.
    #[must_use]
    pub fn needed_in_sum(&self, name: &ResourceName) -> Amount {
        let from_hosts = amount_of(&self.per_host, name).0.saturating_mul(u64::from(self.seats));
        amount_of(&self.total, name).max(Amount(from_hosts))
    }

    /// What every host of this demand must be and have, whatever its schedule (phase I).
    #[must_use]
    pub fn host_needs(&self) -> HostNeeds<'_> {
        let minima = self.resources().into_iter().map(|name| (self.minimum_on_each(&name), name));
        let minima = minima.filter(|(least, _)| *least > Amount::ZERO).collect();
        let names_sites = self.candidates().is_some_and(|named| named.iter().any(|name| name.as_str().contains('/')));
        HostNeeds { demand: self, minima, names_sites }
    }

    /// The demand that is left when other seats of it have `kept` amounts already, and `taken` hosts are out of the question; with
    /// traffic, what is left lasts `lasting` as the other seats do, on hosts that are fast enough for that. None when no seat is left, too
    /// few candidates are, or no host is fast enough.
    #[must_use]
    pub fn rest<'k>(
        &self,
        seats: u32,
        kept: &(impl Iterator<Item = &'k Amounts> + Clone),
        (taken, lasting): (&BTreeSet<(SiteId, HostId)>, Span),
    ) -> Option<Demand> {
        let mut rest = Demand { seats, ..self.clone() };
        if let (Some(traffic), Length::Work(work)) = (self.traffic, self.length) {
            let slowest = traffic.slowest(work, lasting)?;
            rest.length = Length::Duration(lasting);
            rest.speed_min = Some(self.speed_min.map_or(slowest, |least| least.max(slowest)));
        }
        for (resource, total) in &mut rest.total {
            let have = kept.clone().fold(Amount::ZERO, |sum, amounts| sum + amount_of(amounts, resource));
            *total = total.saturating_sub(have);
        }
        rest.total.retain(|_, total| *total > Amount::ZERO);
        if let Some(candidates) = &mut rest.candidates {
            candidates.retain(|candidate| !taken.iter().any(|(_, host)| host == candidate));
        }
        let has_enough = rest.candidates.as_ref().is_none_or(|candidates| candidates.len() >= seats as usize);
        (seats > 0 && has_enough).then_some(rest)
    }
}

/// Something that a host lacks to serve a request, whatever its schedule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unmet {
    /// It is not one of the named candidates.
    Candidates,
    /// An attribute does not have this value.
    Attribute(String, String),
    /// It is slower than this.
    Speed(Speed),
    /// Its owner gives no seats longer than this.
    Length(Span),
    /// The capacity is below this minimum.
    Minimum(ResourceName, Amount),
}

/// The one definition of "could serve": the hosts of phase I, for the planner, for discovery and for the simulators.
#[derive(Debug, Clone)]
pub struct HostNeeds<'r> {
    demand: &'r Demand,
    /// `d_i` above zero, in the order of the resources.
    minima: Vec<(Amount, ResourceName)>,
    /// Whether some candidate is named as `site/host`.
    names_sites: bool,
}

impl<'r> HostNeeds<'r> {
    /// Whose needs they are.
    #[must_use]
    pub fn demand(&self) -> &'r Demand {
        self.demand
    }

    /// The candidates of the request that mean this host: its id (of any site), or `site/host`.
    pub fn names_of(&self, site: &SiteId, host: &HostId) -> impl Iterator<Item = &'r HostId> + use<'r> {
        let named = self.demand.candidates().unwrap_or_default();
        let qualified = self.names_sites.then(|| format!("{site}/{host}"));
        [Some(host.as_str()), qualified.as_deref()]
            .map(|name| {
                let name = name?;
                named.binary_search_by(|candidate| candidate.as_str().cmp(name)).ok().map(|at| &named[at])
            })
            .into_iter()
            .flatten()
    }

    /// The first need that this host does not meet: candidates, then attributes, then speed, then minima.
    #[must_use]
    pub fn first_unmet(&self, site: &SiteId, host: &Host) -> Option<Unmet> {
        if self.demand.candidates().is_some() && self.names_of(site, &host.id).next().is_none() {
            return Some(Unmet::Candidates);
        }
        let lacks = |(key, value): &(&String, &String)| host.attributes.get(*key) != Some(*value);
        if let Some((key, value)) = self.demand.attributes().iter().find(lacks) {
            return Some(Unmet::Attribute(key.clone(), value.clone()));
        }
        if let Some(least) = self.demand.speed_min.filter(|least| host.speed < *least) {
            return Some(Unmet::Speed(least));
        }
        let short = self.minima.iter().find(|(least, name)| amount_of(&host.capacity, name) < *least);
        short.map(|(least, name)| Unmet::Minimum(name.clone(), *least))
    }

    /// Whether this host could serve the request if it were empty.
    #[must_use]
    pub fn are_met_by(&self, site: &SiteId, host: &Host) -> bool {
        self.first_unmet(site, host).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_lasts_as_long_as_the_host_takes_for_it() {
        let speed = |thousandths: u32| Speed::try_from(thousandths).unwrap();
        assert_eq!(Length::Work(Span(100)).at_speed(speed(1000)), Span(100));
        assert_eq!(Length::Work(Span(100)).at_speed(speed(3000)), Span(34));
        assert_eq!(Length::Work(Span(100)).at_speed(speed(1)), Span(100_000));
        assert_eq!(Length::Duration(Span(100)).at_speed(speed(7)), Span(100));
        assert!(Speed::try_from(0).is_err());
    }
}
