//! The share of the site of one party: a user's account, a node with all its users, a network with all its nodes.
//!
//! Of the uplink a party has its share as well, but no more only because it is one unit.
//! Invariant ([`Ledger::check_shares`]): what a party uses is what its bookings add up to; no entry is empty. Own work is no party's.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    Booking, Books, Ledger,
    uplink::{Taken, talk_of},
};
use crate::{
    amount::{Amount, format_amount},
    host::Host,
    ids::{HostId, Network, SiteId, tail_of},
    protocol::{Grant, HoldRequest, HostState, ShareLeft, hull},
    resources::{Amounts, ResourceName, amount_of},
    schedule::Schedule,
    time::{Now, Span, Time, Window},
    trust::{Denial, Permit, PublicKey, Rule},
};

/// Whose share is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    Account(PublicKey),
    Node(SiteId),
    Network(Network),
}

impl Party {
    /// A node, and the network in which it is, if that is known.
    pub(super) fn nodes(node: &SiteId, network: Option<&Network>) -> impl Iterator<Item = Party> {
        [Party::Node(node.clone())].into_iter().chain(network.cloned().map(Party::Network))
    }

    /// Those that share what `account` has through `node`. The site's own node is none: its owner decides whom it serves.
    fn sharing(
        own: &SiteId,
        account: PublicKey,
        node: &SiteId,
        network: Option<&Network>,
    ) -> impl Iterator<Item = Party> {
        let nodes = (node != own).then(|| Party::nodes(node, network));
        [Party::Account(account)].into_iter().chain(nodes.into_iter().flatten())
    }

    fn of(own: &SiteId, booking: &Booking) -> impl Iterator<Item = Party> {
        let (node, network) = (&booking.attempt.entry_point, booking.network.as_ref());
        booking.account.into_iter().flat_map(move |account| Party::sharing(own, account, node, network))
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Account(key) => write!(f, "user {}", key.fingerprint()),
            Party::Node(site) => write!(f, "node {}", tail_of(site.as_str())),
            Party::Network(network) => write!(f, "network {network}"),
        }
    }
}

/// What one party uses of all hosts together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Use {
    bookings: usize,
    at_a_time: Schedule,
    /// Amount times seconds.
    in_all: BTreeMap<ResourceName, u128>,
}

impl Use {
    fn add<'g>(&mut self, grants: impl IntoIterator<Item = &'g Grant>) {
        for Grant { window, amounts, .. } in grants {
            self.at_a_time.add(*window, amounts);
            for (name, amount) in amounts.iter().filter(|(_, amount)| **amount > Amount::ZERO) {
                *self.in_all.entry(name.clone()).or_default() += product(*amount, window.duration());
            }
        }
    }

    /// When nothing of it is left.
    fn last_end(&self) -> Option<Time> {
        self.at_a_time.occupancies().filter_map(|(_, occupancy)| Some(occupancy.steps().last()?.0)).max()
    }

    fn remove<'g>(&mut self, grants: impl IntoIterator<Item = &'g Grant>) {
        for Grant { window, amounts, .. } in grants {
            let freed = self.at_a_time.remove(*window, amounts);
            debug_assert!(freed.is_ok(), "a booking takes back what it has put in");
            for (name, amount) in amounts {
                if let Some(sum) = self.in_all.get_mut(name) {
                    *sum -= product(*amount, window.duration());
                }
            }
        }
        self.in_all.retain(|_, sum| *sum > 0);
    }
}

fn product(amount: Amount, time: Span) -> u128 {
    u128::from(amount.0) * u128::from(time.0)
}

/// What every party uses, and what there is.
#[derive(Debug, Default)]
pub(super) struct Shares {
    used: BTreeMap<Party, Use>,
    /// Of each resource what all hosts have together, and the largest that one host has.
    capacity: BTreeMap<ResourceName, (u128, Amount)>,
}

impl Shares {
    /// Nobody uses anything of these hosts and of the uplink.
    pub(super) fn of<'a>(hosts: impl Iterator<Item = &'a Host>, uplink: Option<&Host>) -> Shares {
        let mut capacity: BTreeMap<ResourceName, (u128, Amount)> = BTreeMap::new();
        for (name, amount) in hosts.flat_map(|host| &host.capacity) {
            let (sum, largest) = capacity.entry(name.clone()).or_default();
            *sum += u128::from(amount.0);
            *largest = (*largest).max(*amount);
        }
        for (name, amount) in uplink.into_iter().flat_map(|uplink| &uplink.capacity) {
            capacity.entry(name.clone()).or_default().0 += u128::from(amount.0);
        }
        Shares { used: BTreeMap::new(), capacity }
    }

    /// Counts a booking at the site `own`, and what it takes there.
    pub(super) fn add(&mut self, own: &SiteId, booking: &Booking, taken: &Taken<'_>) {
        for party in Party::of(own, booking) {
            let used = self.used.entry(party).or_default();
            used.bookings += 1;
            used.add(taken.iter());
        }
    }

    /// Counts a booking at the site `own` no longer.
    pub(super) fn remove(&mut self, own: &SiteId, booking: &Booking, taken: &Taken<'_>) {
        for party in Party::of(own, booking) {
            let Some(used) = self.used.get_mut(&party) else { continue };
            used.bookings -= 1;
            used.remove(taken.iter());
            if used.bookings == 0 {
                self.used.remove(&party);
            }
        }
    }
}

/// A hold would lift a party above its share.
#[derive(Debug)]
pub(super) struct OverShare {
    /// The refusal.
    pub(super) denial: Denial,
    /// The hosts that would still be within the share together.
    within: BTreeSet<HostId>,
    /// When what the party has already ends, if it may have the hosts afterwards.
    until: Option<Time>,
}

/// A grant would lift a party above its share.
struct Excess {
    denial: Denial,
    /// At some time; else in all.
    is_at_a_time: bool,
}

/// What one party may use of the site.
struct Allowance {
    at_a_time: Amounts,
    in_all: BTreeMap<ResourceName, u128>,
}

impl<B: Books> Ledger<B> {
    /// Checks that nobody gets more than a share of the site by this hold. The owner may have all of it.
    pub(super) fn check_shares_of(
        &mut self,
        hold: &HoldRequest,
        network: Option<&Network>,
        permit: &Permit,
    ) -> Result<(), OverShare> {
        let load = hull(&hold.grants).and_then(|window| self.load_of(talk_of(permit), hold.grants.len(), window));
        let taken: Vec<&Grant> = hold.grants.iter().chain(&load).collect();
        self.check_use((permit.user, permit.account), (&hold.attempt.entry_point, network), &taken)
    }

    /// Checks that nobody gets more than a share if a user, on this account, has this as well, through a node in that network.
    pub(super) fn check_use(
        &mut self,
        (user, account): (PublicKey, PublicKey),
        (node, network): (&SiteId, Option<&Network>),
        taken: &[&Grant],
    ) -> Result<(), OverShare> {
        let Some(allowed) = self.allowance(user) else { return Ok(()) };
        for party in Party::sharing(&self.site, account, node, network) {
            // Counted to be checked, and taken back: the hold may yet be refused for want of room.
            let used = self.shares.used.entry(party.clone()).or_default();
            let (mut fitting, mut excess) = (Vec::new(), None);
            for grant in taken.iter().copied() {
                let one = std::slice::from_ref(grant);
                used.add(one);
                match allowed.check(&party, used, grant) {
                    Ok(()) => fitting.push(grant),
                    Err(first) => {
                        used.remove(one);
                        excess = excess.or(Some(first));
                    }
                }
            }
            fitting.iter().for_each(|grant| used.remove(std::slice::from_ref(*grant)));
            let over = excess.map(|Excess { denial, is_at_a_time }| {
                let until = used.last_end().filter(|_| is_at_a_time && fitting.is_empty());
                OverShare { denial, within: fitting.iter().map(|grant| grant.host().clone()).collect(), until }
            });
            if used.bookings == 0 {
                self.shares.used.remove(&party);
            }
            if let Some(over) = over {
                return Err(over);
            }
        }
        Ok(())
    }

    /// What a party may use when `user` asks; none when there is no limit.
    fn allowance(&self, user: PublicKey) -> Option<Allowance> {
        let gate = self.gate.lock();
        let policy = gate.policy();
        let percent = u128::from(policy.site_share_percent.filter(|percent| *percent < 100 && !gate.is_owner(user))?);
        let reach = policy.max_reach.unwrap_or(self.limits.farthest_future).min(self.limits.farthest_future);
        let longest = policy.max_duration.unwrap_or(reach).min(reach);
        let mut allowed = Allowance { at_a_time: Amounts::new(), in_all: BTreeMap::new() };
        for (name, (sum, one)) in &self.shares.capacity {
            let share = Amount(u64::try_from(sum * percent / 100).unwrap_or(u64::MAX));
            allowed.at_a_time.insert(name.clone(), share.max(*one));
            let in_all = sum.saturating_mul(u128::from(reach.0)) / 100 * percent;
            allowed.in_all.insert(name.clone(), in_all.max(product(*one, longest)));
        }
        Some(allowed)
    }

    /// What a user, on this account, and those that share with him may have of all hosts together at a time, and have.
    pub(super) fn left_of_shares(
        &self,
        (user, account): (PublicKey, PublicKey),
        (node, network): (&SiteId, Option<&Network>),
    ) -> Vec<ShareLeft> {
        let Some(allowed) = self.allowance(user) else { return Vec::new() };
        let of_party = |party: Party| {
            let used = self.shares.used.get(&party);
            let had = |name: &ResourceName| used.and_then(|used| used.in_all.get(name)).copied().unwrap_or_default();
            let left = |(name, all): (&ResourceName, &u128)| {
                (name.clone(), u64::try_from(all.saturating_sub(had(name))).unwrap_or(u64::MAX))
            };
            let left: BTreeMap<ResourceName, u64> = allowed.in_all.iter().map(left).collect();
            let mut most = allowed.at_a_time.clone();
            let spent = left.iter().filter(|(_, left)| **left == 0);
            most.extend(spent.map(|(name, _)| (name.clone(), Amount::ZERO)));
            ShareLeft { most, used: used.map(|used| used.at_a_time.clone()).unwrap_or_default(), left }
        };
        Party::sharing(&self.site, account, node, network).map(of_party).collect()
    }

    /// The hosts asked for, as they are for a party that has its share: those beyond it look taken until the party has less, or for as
    /// long as anything is promised, so that the next plan begins later or has fewer hosts here.
    pub(super) fn states_within_share(&self, hold: &HoldRequest, over: &OverShare, now: Now) -> Vec<HostState> {
        let uplink = self.uplink().map(|uplink| &uplink.host().id);
        let mut states = self.states_of(hold.grants.iter().map(Grant::host).chain(uplink), now);
        let end = over.until.filter(|until| *until > now.utc).unwrap_or(now.utc + self.limits.farthest_future);
        for state in states.iter_mut().filter(|state| !over.within.contains(&state.host)) {
            if let Some(host) = self.unit(&state.host) {
                state.schedule.add(Window { start: now.utc, end }, &host.host().capacity);
            }
        }
        states
    }

    /// Checks the module's invariant from scratch.
    pub(super) fn check_shares(&self) -> Result<(), String> {
        let mut counted = Shares::default();
        self.bookings.values().for_each(|booking| counted.add(&self.site, booking, &self.taken_by(booking)));
        if counted.used == self.shares.used {
            return Ok(());
        }
        Err(format!("shares are {:?}, the bookings say {:?}", self.shares.used, counted.used))
    }
}

impl Allowance {
    /// Whether a party that uses this much is within its share, with `last` as its last grant.
    fn check(&self, party: &Party, used: &Use, last: &Grant) -> Result<(), Excess> {
        let excess = |is_at_a_time, detail| Excess { denial: Denial::new(Rule::SiteShare, detail), is_at_a_time };
        for name in last.amounts.keys() {
            let (most, peak) = (amount_of(&self.at_a_time, name), used.at_a_time.peak(name, last.window));
            if peak > most {
                let [peak, most] = [peak, most].map(|amount| format_amount(name, amount));
                let detail = format!("{party} would have {peak} of {name} at a time, {most} are allowed");
                return Err(excess(true, detail));
            }
            let most = self.in_all.get(name).copied().unwrap_or_default();
            if used.in_all.get(name).is_some_and(|sum| *sum > most) {
                let hours = |sum: u128| format_amount(name, Amount(u64::try_from(sum / 3600).unwrap_or(u64::MAX)));
                let detail = format!("{party} would have more than {} hours of {name} in all", hours(most));
                return Err(excess(false, detail));
            }
        }
        Ok(())
    }
}
