//! The site that gives up its place when the view is full.
//!
//! Sites that have never answered go first. Answers can be had from made-up sites too, but each comes from a network, of which nobody has as
//! many: so the largest networks follow, as long as they have more than an equal part of all places, and then sites that have told nothing
//! for long. Invariants: a newcomer takes no other place; sites at which this node has reservations go only when there is nothing else.

use std::{cmp::Reverse, collections::BTreeMap};

use broker::{
    ids::{Network, SiteId},
    time::Millis,
};

/// Time without confirmation of a site's schedules after which another may have its place: longer than it takes to ask all sites of a full
/// view once, one in two seconds.
pub(super) const USEFUL_FOR: Millis = Millis(3 * 3_600_000);
/// A network may have at least one part in so many.
pub(super) const PARTS_MIN: usize = 4;

/// Facts that decide about the place of a site.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub site: SiteId,
    /// True when this node has a reservation there.
    pub is_booked: bool,
    /// True when it was asked for its schedules in vain.
    pub has_failed: bool,
    /// Last confirmation of its schedules; none when they are not known.
    pub confirmed: Option<Millis>,
    /// Network from which it has answered, where that says something about its owner.
    pub network: Option<Network>,
    pub expires: Millis,
}

/// Use of a place, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// Its site has never answered.
    Unproven {
        has_not_failed: bool,
        expires: Millis,
    },
    /// Its site is one of so many of its network, which are more than the network's share.
    Crowded {
        of_network: Reverse<usize>,
        confirmed: Millis,
    },
    /// Its site has told nothing for longer than [`USEFUL_FOR`].
    Silent {
        confirmed: Millis,
    },
    Useful {
        confirmed: Millis,
    },
    Booked,
}

impl Worth {
    /// True when a site that nothing is known of may have the place.
    pub(super) fn gives_way(self) -> bool {
        !matches!(self, Worth::Useful { .. } | Worth::Booked)
    }
}

/// The site that gives up its place first, of `sites` that have `places` at most.
pub(super) fn first_to_go(sites: &[Placed], places: usize, now: Millis) -> Option<(Worth, &SiteId)> {
    let mut networks: BTreeMap<&Network, usize> = BTreeMap::new();
    for network in sites.iter().filter(|one| one.confirmed.is_some()).filter_map(|one| one.network.as_ref()) {
        *networks.entry(network).or_default() += 1;
    }
    let share = (places / networks.len().max(PARTS_MIN)).max(1);
    let worth = |one: &Placed| {
        let Some(confirmed) = one.confirmed.filter(|_| !one.is_booked) else {
            let unproven = Worth::Unproven { has_not_failed: !one.has_failed, expires: one.expires };
            return if one.is_booked { Worth::Booked } else { unproven };
        };
        let of_network = one.network.as_ref().and_then(|network| networks.get(network)).copied().unwrap_or(0);
        match now.0.saturating_sub(confirmed.0) > USEFUL_FOR.0 {
            _ if of_network > share => Worth::Crowded { of_network: Reverse(of_network), confirmed },
            true => Worth::Silent { confirmed },
            false => Worth::Useful { confirmed },
        }
    };
    sites.iter().map(|one| (worth(one), &one.site)).min()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const PLACES: usize = 12;

    fn placed() -> impl Strategy<Value = Placed> {
        let confirmed = prop::option::weighted(0.8, 0_u64..6);
        let network = prop::option::weighted(0.9, 0_u8..6);
        let flags = (prop::bool::weighted(0.1), prop::bool::ANY);
        (flags, confirmed, network, 0_u64..6, 0_u16..1000).prop_map(|(flags, confirmed, network, expires, name)| {
            Placed {
                site: SiteId::new(&format!("s{name}")).unwrap(),
                is_booked: flags.0,
                has_failed: flags.1,
                confirmed: confirmed.map(Millis),
                network: network.map(|number| Network::new(&format!("203.0.{}.0/24", number * number / 4)).unwrap()),
                expires: Millis(expires),
            }
        })
    }

    /// The site that the rules name, tried one after the other on all sites; true when its place may be a newcomer's.
    fn named_by_rules(sites: &[Placed], now: Millis) -> Option<(&SiteId, bool)> {
        let free = || sites.iter().filter(|one| !one.is_booked);
        let first = |group: Vec<&'_ Placed>, when: &dyn Fn(&Placed) -> Millis| {
            let soonest = group.iter().map(|one| when(one)).min()?;
            let soonest = group.into_iter().filter(|one| when(one) == soonest);
            soonest.map(|one| one.site.clone()).min()
        };
        let found =
            |site: SiteId, gives_way| sites.iter().find(|one| one.site == site).map(|one| (&one.site, gives_way));
        let confirmed = |one: &Placed| one.confirmed.unwrap();
        for has_failed in [true, false] {
            let unproven = free().filter(|one| one.confirmed.is_none() && one.has_failed == has_failed).collect();
            if let Some(site) = first(unproven, &|one| one.expires) {
                return found(site, true);
            }
        }
        let proven = || free().filter(|one| one.confirmed.is_some());
        let size = |network: &Network| {
            sites.iter().filter(|one| one.confirmed.is_some() && one.network.as_ref() == Some(network)).count()
        };
        let all: BTreeSet<&Network> =
            sites.iter().filter(|one| one.confirmed.is_some()).filter_map(|one| one.network.as_ref()).collect();
        let share = 1.max(PLACES / PARTS_MIN.max(all.len()));
        for most in (share + 1..=sites.len()).rev() {
            let crowd = proven().filter(|one| one.network.as_ref().is_some_and(|network| size(network) == most));
            if let Some(site) = first(crowd.collect(), &confirmed) {
                return found(site, true);
            }
        }
        let silent = proven().filter(|one| confirmed(one).0 + USEFUL_FOR.0 < now.0);
        if let Some(site) = first(silent.collect(), &confirmed) {
            return found(site, true);
        }
        if let Some(site) = first(proven().collect(), &confirmed) {
            return found(site, false);
        }
        found(sites.iter().map(|one| one.site.clone()).min()?, false)
    }

    proptest! {
        #[test]
        fn the_one_goes_whom_the_rules_name(
            mut sites in prop::collection::vec(placed(), 0..=PLACES),
            later in 0_u64..8,
        ) {
            sites.sort_by(|a, b| a.site.cmp(&b.site));
            sites.dedup_by(|a, b| a.site == b.site);
            let now = Millis(USEFUL_FOR.0 + later);
            let gone = first_to_go(&sites, PLACES, now).map(|(worth, site)| (site, worth.gives_way()));
            prop_assert_eq!(gone, named_by_rules(&sites, now));
        }
    }
}
