//! What must hold in the modelled grid after every step, and after everything has settled.

use std::collections::{BTreeMap, BTreeSet};

use super::{World, index_of};
use crate::{
    ids::{RequestId, SiteId},
    negotiation::Stage,
    plan::Allocation,
};

impl World {
    /// Users look at their requests after every step; what was told stays true.
    pub(super) fn hear_stages(&mut self) -> Result<(), String> {
        for node in &self.nodes {
            for (id, negotiation) in &node.negotiations {
                match negotiation.stage() {
                    Stage::Stands(allocation) if !self.cancelled.contains(id) => {
                        self.told.entry(id.clone()).or_insert_with(|| allocation.clone());
                    }
                    _ => {}
                }
            }
        }
        for (id, allocation) in &self.told {
            self.check_on_disk(id, allocation)?;
        }
        Ok(())
    }

    /// A success told is durable on all hosts, exactly as told.
    fn check_on_disk(&self, id: &RequestId, allocation: &Allocation) -> Result<(), String> {
        let mut hosts = BTreeSet::new();
        for grant in &allocation.grants {
            if !hosts.insert((&grant.site, &grant.host)) {
                return Err(format!("{id}: host {}/{} twice", grant.site, grant.host));
            }
            let disk = &self.nodes[index_of(&grant.site)].disk_reservations;
            let there = disk.values().any(|reservation| {
                reservation.attempt.request == *id
                    && reservation.window.start == allocation.start
                    && reservation.grants.iter().any(|one| one.host == grant.host && one.amounts == grant.amounts)
            });
            if !there {
                return Err(format!("{id} was told to stand, but {}/{} has nothing on disk", grant.site, grant.host));
            }
        }
        Ok(())
    }

    /// After everything has settled: what stands is on the ledgers, and nothing else is.
    pub(super) fn check_end(&self) -> Result<(), String> {
        let mut expected: BTreeMap<(RequestId, SiteId), usize> = BTreeMap::new();
        for node in &self.nodes {
            for (id, negotiation) in &node.negotiations {
                if let Stage::Stands(allocation) = negotiation.stage() {
                    let asked = negotiation.record().request.hosts();
                    if allocation.grants.len() != asked {
                        return Err(format!("{id}: {} hosts instead of {asked}", allocation.grants.len()));
                    }
                    for grant in &allocation.grants {
                        *expected.entry((id.clone(), grant.site.clone())).or_default() += 1;
                    }
                }
            }
        }
        let mut present: BTreeMap<(RequestId, SiteId), usize> = BTreeMap::new();
        for node in &self.nodes {
            for booking in node.ledger.bookings() {
                let key = (booking.attempt.request.clone(), node.ledger.site().clone());
                *present.entry(key).or_default() += booking.grants.len();
            }
        }
        if expected != present {
            return Err(format!("ledgers hold {present:?} instead of {expected:?}"));
        }
        Ok(())
    }
}
