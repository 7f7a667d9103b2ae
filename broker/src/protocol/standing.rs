//! What the owner's rules about users leave to one user: told to nobody but the node that coordinates for that user, and only where the
//! user has signed for it.
//!
//! Invariant: a hint, as schedules are; the site's ledger decides of each hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::LedgerVersion;
use crate::{
    amount::Amount,
    cost::Cost,
    host::Host,
    ids::HostId,
    resources::{Amounts, ResourceName, amount_of},
    schedule::{Occupancy, Schedule},
    time::{Span, Time, Window},
    trust::{Denial, Rule},
};

/// See the module. The default leaves everything.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Standing {
    /// The rule by which the user gets nothing, if there is one.
    pub denial: Option<Denial>,
    /// The longest reservation.
    pub longest: Option<Span>,
    /// No reservation ends later than this from now.
    pub reach: Option<Span>,
    /// How much of each host, in percent, the user may have at any time.
    pub host_percent: BTreeMap<ResourceName, u8>,
    /// What the user has of that already, on hosts where it is something.
    pub on_hosts: Vec<(HostId, Schedule)>,
    /// The shares of the site that bind the user: his own, and those of the node and the network through which he asks.
    pub of_site: Vec<ShareLeft>,
    /// What may still be agreed for the user, where there is a limit.
    pub credits: Option<Cost>,
    /// The ledger's version.
    pub version: LedgerVersion,
}

impl Eq for Standing {}

/// A share of all hosts of a site together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ShareLeft {
    /// The most at any time.
    pub most: Amounts,
    /// What is had of it already.
    pub used: Schedule,
    /// How much more may be had in all: amounts times seconds.
    pub left: BTreeMap<ResourceName, u64>,
}

impl ShareLeft {
    /// Whether this may be had as well.
    fn has_room(&self, window: Window, amounts: &Amounts) -> bool {
        amounts.iter().filter(|(_, amount)| **amount > Amount::ZERO).all(|(name, amount)| {
            let in_all = amount.0.saturating_mul(window.duration().0);
            let after = self.used.peak(name, window).0.saturating_add(amount.0);
            after <= amount_of(&self.most, name).0 && self.left.get(name).is_none_or(|left| in_all <= *left)
        })
    }

    fn take(&mut self, window: Window, amounts: &Amounts) {
        self.used.add(window, amounts);
        for (name, amount) in amounts {
            if let Some(left) = self.left.get_mut(name) {
                *left = left.saturating_sub(amount.0.saturating_mul(window.duration().0));
            }
        }
    }
}

/// A seat that the user would have: its host, when, what and for how much.
#[derive(Debug, Clone, Copy)]
pub struct WantedSeat<'a> {
    /// Its host.
    pub host: &'a Host,
    /// From when to when.
    pub window: Window,
    /// What of the host.
    pub amounts: &'a Amounts,
    /// For how much.
    pub cost: Cost,
}

/// The given percentage of `capacity`, rounded down.
pub(crate) fn share_of(capacity: Amount, percent: u8) -> Amount {
    let share = u128::from(capacity.0) * u128::from(percent) / 100;
    Amount(u64::try_from(share).unwrap_or(u64::MAX))
}

impl Standing {
    /// Makes what the user may not have of a host look taken in its schedule, from `now` on.
    pub fn restrict(&self, host: &Host, schedule: &mut Schedule, now: Time) {
        let nothing = Schedule::default();
        let of_host = self.on_hosts.iter().find(|(id, _)| *id == host.id).map_or(&nothing, |(_, used)| used);
        for (name, capacity) in &host.capacity {
            let mut limit = |most: Amount, used: &Schedule| {
                if most < *capacity || used.occupancy(name).is_some() {
                    schedule.raise(name, &beyond(*capacity, most, used.occupancy(name), now));
                }
            };
            if let Some(percent) = self.host_percent.get(name) {
                limit(share_of(*capacity, *percent), of_host);
            }
            for ShareLeft { most, used, .. } in self.of_site.iter().filter(|share| share.most.contains_key(name)) {
                limit(amount_of(most, name), used);
            }
        }
    }
}

impl Standing {
    /// The rule against each of these seats of one site, where those before it that have none are had: none for the seats that the user may
    /// have together. It says what a hold would be told at `now`.
    #[must_use]
    pub fn rules_against(&self, seats: &[WantedSeat<'_>], now: Time) -> Vec<Option<Rule>> {
        let (mut shares, mut longest, mut credits) = (self.of_site.clone(), self.longest, self.credits);
        let against = |seat: &WantedSeat<'_>| {
            let WantedSeat { window, amounts, cost, .. } = *seat;
            let length = window.duration();
            let rule = if let Some(denial) = &self.denial {
                Some(denial.rule)
            } else if longest.is_some_and(|longest| length > longest) {
                Some(Rule::MaxHostHours)
            } else if self.reach.is_some_and(|reach| window.end > now + reach) {
                Some(Rule::MaxReach)
            } else if !self.leaves_of_host(seat) {
                Some(Rule::UserShare)
            } else if credits.is_some_and(|credits| cost > credits) {
                Some(Rule::MaxCredits)
            } else if !shares.iter().all(|share| share.has_room(window, amounts)) {
                Some(Rule::SiteShare)
            } else {
                None
            };
            if rule.is_none() {
                longest = longest.map(|longest| Span(longest.0 - length.0));
                credits = credits.map(|credits| Cost(credits.0 - cost.0));
                shares.iter_mut().for_each(|share| share.take(window, amounts));
            }
            rule
        };
        seats.iter().map(against).collect()
    }

    fn leaves_of_host(&self, seat: &WantedSeat<'_>) -> bool {
        let used = self.on_hosts.iter().find(|(id, _)| *id == seat.host.id).map(|(_, used)| used);
        self.host_percent.iter().all(|(name, percent)| {
            let most = share_of(amount_of(&seat.host.capacity, name), *percent);
            let used = used.map_or(Amount::ZERO, |used| used.peak(name, seat.window));
            used.0.saturating_add(amount_of(seat.amounts, name).0) <= most.0
        })
    }

    /// The times at which what is left changes, in order.
    #[must_use]
    pub fn changes(&self) -> Vec<Time> {
        let schedules = self.of_site.iter().map(|share| &share.used).chain(self.on_hosts.iter().map(|(_, used)| used));
        let mut times: Vec<Time> = schedules.flat_map(Schedule::changes).collect();
        times.sort_unstable();
        times.dedup();
        times
    }
}

/// How much of a capacity is beyond what is left of `most`.
fn beyond(capacity: Amount, most: Amount, used: Option<&Occupancy>, now: Time) -> Occupancy {
    let always = Window { start: now, end: Time(2 * Time::MAX.0) };
    let mut beyond = Occupancy::default();
    let uses: Vec<(Time, Amount)> = match used {
        Some(used) => used.segments(always).collect(),
        None => vec![(now, Amount::ZERO)],
    };
    let ends = uses.iter().skip(1).map(|(time, _)| *time).chain([always.end]);
    for ((start, used), end) in uses.iter().zip(ends) {
        beyond.add(Window { start: *start, end }, capacity.saturating_sub(most.saturating_sub(*used)));
    }
    beyond
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_share_looks_taken() {
        let cpu = ResourceName::new("cpu").unwrap();
        let amounts = |amount| Amounts::from([(cpu.clone(), Amount(amount))]);
        let window = |start, end| Window { start: Time(start), end: Time(end) };
        let used = |start, end, amount| {
            let mut schedule = Schedule::default();
            schedule.add(window(start, end), &amounts(amount));
            schedule
        };
        let host = Host {
            id: HostId::new("h").unwrap(),
            capacity: amounts(10),
            attributes: Default::default(),
            speed: Default::default(),
            tariff: Default::default(),
        };
        let standing = Standing {
            host_percent: BTreeMap::from([(cpu.clone(), 60)]),
            on_hosts: vec![(host.id.clone(), used(20, 30, 4))],
            of_site: vec![ShareLeft { most: amounts(8), used: used(40, 50, 8), left: BTreeMap::new() }],
            ..Standing::default()
        };
        let mut schedule = used(0, 25, 5);
        standing.restrict(&host, &mut schedule, Time(10));
        let free = |at| 10 - schedule.peak(&cpu, window(at, at + 1)).0;
        // 5 are free until 25, of which the user may have 6, but 2 from 20 to 30; and 8 of the site, which are had from 40 to 50.
        assert_eq!([5, 15, 22, 28, 35, 45, 60].map(free), [5, 5, 2, 2, 6, 0, 6]);
        let seat = |start, end, amounts| WantedSeat { host: &host, window: window(start, end), amounts, cost: Cost(5) };
        let (three, six) = (&amounts(3), &amounts(6));
        let rules = |standing: &Standing, seats: &[WantedSeat<'_>]| standing.rules_against(seats, Time(10));
        let (user, site) = (Some(Rule::UserShare), Some(Rule::SiteShare));
        assert_eq!(rules(&standing, &[seat(15, 22, three), seat(12, 20, three)]), [user, None]);
        assert_eq!(
            rules(&standing, &[seat(30, 40, three), seat(31, 32, six), seat(30, 40, three)]),
            [None, site, None]
        );
        let few = Standing { longest: Some(Span(15)), credits: Some(Cost(9)), reach: Some(Span(50)), ..standing };
        let seats = [seat(50, 61, three), seat(50, 60, three), seat(50, 55, three), seat(50, 52, three)];
        let expected = [Rule::MaxReach, Rule::MaxCredits, Rule::MaxCredits].map(Some);
        assert_eq!(rules(&few, &seats), [expected[0], None, expected[1], expected[2]]);
        let few = Standing { credits: None, ..few };
        assert_eq!(rules(&few, &seats[1..]), [None, None, Some(Rule::MaxHostHours)]);
    }
}
