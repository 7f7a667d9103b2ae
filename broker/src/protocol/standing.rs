//! What the owner's rules about users leave to one user: told to nobody but the node that coordinates for that user, and only where the
//! user has signed for it.
//!
//! Invariant: a hint, as schedules are; the site's ledger decides of each hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::LedgerVersion;
use crate::{
    amount::Amount,
    host::Host,
    ids::HostId,
    resources::{Amounts, ResourceName, amount_of},
    schedule::{Occupancy, Schedule},
    time::{Span, Time, Window},
    trust::Denial,
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
    /// What the user, or who shares with him, may have of all hosts together at any time, and has already.
    pub of_site: Vec<(Amounts, Schedule)>,
    /// The ledger's version.
    pub version: LedgerVersion,
}

impl Eq for Standing {}

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
            for (most, used) in self.of_site.iter().filter(|(most, _)| most.contains_key(name)) {
                limit(amount_of(most, name), used);
            }
        }
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
            of_site: vec![(amounts(8), used(40, 50, 8))],
            ..Standing::default()
        };
        let mut schedule = used(0, 25, 5);
        standing.restrict(&host, &mut schedule, Time(10));
        let free = |at| 10 - schedule.peak(&cpu, window(at, at + 1)).0;
        // 5 are free until 25, of which the user may have 6, but 2 from 20 to 30; and 8 of the site, which are had from 40 to 50.
        assert_eq!([5, 15, 22, 28, 35, 45, 60].map(free), [5, 5, 2, 2, 6, 0, 6]);
    }
}
