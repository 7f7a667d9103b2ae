//! Links of sites to all others, with what is reserved on them over time.
//!
//! Source: `formats.md`, version 2 (`sites[].uplink`). Invariant: a site that has no entry has no limit. Whether loads fit is asked apart
//! from adding them, as for schedules of hosts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    amount::Amount,
    host::{Host, Speed},
    ids::{HostId, SiteId},
    resources::{Amounts, Attributes, ResourceName},
    schedule::{Occupancy, Schedule},
    time::{Time, Window},
    traffic::Loads,
};

/// An uplink as a unit of its site's books, where it stands beside the hosts under a name that no host has.
#[must_use]
pub fn unit_of(mbps: Amount) -> Host {
    Host {
        id: HostId::uplink(),
        capacity: amounts_of(mbps),
        attributes: Attributes::new(),
        speed: Speed::REFERENCE,
        tariff: Default::default(),
    }
}

/// So much of an uplink.
#[must_use]
pub fn amounts_of(mbps: Amount) -> Amounts {
    Amounts::from([(ResourceName::mbps(), mbps)])
}

/// A site's link to all others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uplink {
    /// Its capacity in Mbit/s.
    pub mbps: Amount,
    /// What of it is used over time, in Mbit/s.
    #[serde(default)]
    pub occupancy: Occupancy,
    /// From when on more may be shown as used than is.
    #[serde(skip)]
    pub coarse_from: Option<Time>,
}

impl Uplink {
    /// A link of which so much is used as the books of its unit say.
    #[must_use]
    pub fn with_schedule(mbps: Amount, schedule: &Schedule) -> Uplink {
        let occupancy = schedule.occupancy(&ResourceName::mbps()).cloned().unwrap_or_default();
        Uplink { mbps, occupancy, coarse_from: schedule.coarse_from() }
    }

    /// What is free of it through the whole of `window`, in Mbit/s; none when more than all of it is used, where not even nothing fits.
    #[must_use]
    pub fn room(&self, window: Window) -> Option<Amount> {
        self.mbps.0.checked_sub(self.occupancy.peak(window).0).map(Amount)
    }
}

/// The links of all sites that have a limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Uplinks(BTreeMap<SiteId, Uplink>);

impl FromIterator<(SiteId, Uplink)> for Uplinks {
    fn from_iter<I: IntoIterator<Item = (SiteId, Uplink)>>(links: I) -> Uplinks {
        Uplinks(links.into_iter().collect())
    }
}

impl Uplinks {
    /// Those of a planning run that knows of none.
    pub const NONE: &'static Uplinks = &Uplinks(BTreeMap::new());

    /// The link of a site; none when it has no limit.
    #[must_use]
    pub fn of(&self, site: &SiteId) -> Option<&Uplink> {
        self.0.get(site)
    }

    /// The sites that have a limit, with their links.
    pub fn iter(&self) -> impl Iterator<Item = (&SiteId, &Uplink)> {
        self.0.iter()
    }

    /// Whether all loads fit through the whole of `window`.
    #[must_use]
    pub fn admit(&self, window: Window, loads: &Loads) -> bool {
        loads.iter().all(|(site, load)| self.of(site).is_none_or(|link| link.room(window) >= Some(*load)))
    }

    /// Reserves the loads for the whole of `window`.
    pub fn add(&mut self, window: Window, loads: &Loads) {
        for (site, load) in loads {
            if let Some(link) = self.0.get_mut(site) {
                link.occupancy.add(window, *load);
            }
        }
    }

    /// Undoes [`Uplinks::add`].
    pub fn remove(&mut self, window: Window, loads: &Loads) {
        for (site, load) in loads {
            let Some(link) = self.0.get_mut(site) else { continue };
            let removed = link.occupancy.remove(window, *load);
            debug_assert!(removed.is_ok(), "{removed:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    #[test]
    fn what_is_added_is_no_longer_free_until_it_is_removed() {
        let [limited, free] = ["limited", "free"].map(|site| SiteId::new(site).unwrap());
        let occupancy =
            Occupancy::from_steps(&[(Time(0), Amount(600)), (Time(100), Amount(0)), (Time(200), Amount(300))]).unwrap();
        let mut links: Uplinks =
            [(limited.clone(), Uplink { mbps: Amount(1000), occupancy, coarse_from: None })].into_iter().collect();
        let loads = Loads::from([(limited.clone(), Amount(700)), (free.clone(), Amount(1 << 40))]);
        let window = |start| Window::starting(Time(start), Span(50));
        assert_eq!([60, 100, 151].map(|start| links.admit(window(start), &loads)), [false, true, true]);
        let empty = links.clone();
        links.add(window(100), &loads);
        assert_eq!([100, 149, 150].map(|start| links.admit(window(start), &loads)), [false, false, true]);
        assert_eq!(links.of(&limited).map(|link| link.room(window(100))), Some(Some(Amount(300))));
        assert_eq!(links.of(&free), None);
        links.remove(window(100), &loads);
        assert_eq!(links, empty);
    }
}
