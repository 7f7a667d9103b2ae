//! The tariffs of the ledger's hosts, which their owner changes while the node runs.
//!
//! Invariant: what was agreed before keeps its cost; nothing but the tariffs changes here.

use std::collections::BTreeMap;

use super::Ledger;
use crate::{ids::HostId, tariff::Tariff};

impl Ledger {
    /// Puts these tariffs into force for the hosts that are known; those of others stay.
    pub fn set_tariffs(&mut self, tariffs: &BTreeMap<HostId, Tariff>) {
        for (id, host) in &mut self.hosts {
            if let Some(tariff) = tariffs.get(id) {
                host.set_tariff(tariff.clone());
            }
        }
    }
}
