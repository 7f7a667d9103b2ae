//! The written layer of the configuration: every key optional, nothing checked but names and types.
//!
//! What each key means is said where they are printed (`print`). Invariant: this struct knows exactly the documented keys; anything else in a file is an error that names it.

use std::{collections::BTreeMap, path::PathBuf};

use broker::{
    request::Effort,
    resources::{Attributes, ResourceName},
};
use serde::Deserialize;

use super::{HostTable, LogFormat};

/// The keys at the top.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    pub data_dir: Option<PathBuf>,
    pub name: Option<String>,
    pub grid: Option<String>,
    pub listen: Option<Vec<String>>,
    pub announce: Option<Vec<String>>,
    pub bootstrap: Option<Vec<String>>,
    pub contact: Option<String>,
    pub api: Option<String>,
    pub remote: RemoteSection,
    pub hosts_file: Option<PathBuf>,
    pub hosts: Option<Vec<HostTable>>,
    pub machine: MachineSection,
    pub planner: PlannerSection,
    pub negotiation: NegotiationSection,
    pub ledger: LedgerSection,
    pub policy: PolicySection,
    pub activation: ActivationSection,
    pub local: LocalSection,
    pub gossip: GossipSection,
    pub storage: StorageSection,
    pub log: LogSection,
}

/// `[machine]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MachineSection {
    pub share: Option<String>,
    pub attributes: Option<Attributes>,
}

/// `[planner]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlannerSection {
    pub effort: Option<Effort>,
    pub m_init: Option<u32>,
    pub m_max: Option<u32>,
    pub default_reach: Option<String>,
}

/// `[negotiation]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NegotiationSection {
    pub hold: Option<String>,
    pub answer_timeout: Option<String>,
    pub patience: Option<String>,
    pub attempts: Option<u32>,
    pub check_min: Option<String>,
    pub check_max: Option<String>,
    pub lost_after: Option<String>,
}

/// `[storage]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageSection {
    pub history_keep: Option<String>,
}

/// `[ledger]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LedgerSection {
    pub max_holds: Option<usize>,
    pub max_holds_per_entry_point: Option<usize>,
    pub farthest_future: Option<String>,
    pub hold_max: Option<String>,
}

/// `[gossip]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GossipSection {
    pub interval: Option<String>,
    pub recheck: Option<String>,
    pub asked_when_met: Option<usize>,
}

/// `[log]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    pub format: Option<LogFormat>,
    pub filter: Option<String>,
}

/// `[activation]`, as written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ActivationSection {
    pub hook: Option<Vec<String>>,
    pub timeout: Option<String>,
    pub tries: Option<u32>,
    pub early: Option<String>,
    pub log: Option<PathBuf>,
}

/// `[local]`, as written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalSection {
    pub feed: Option<Vec<String>>,
    pub every: Option<String>,
    pub timeout: Option<String>,
    pub reach: Option<String>,
}

/// `[policy]`, as written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicySection {
    pub allow: Option<Vec<String>>,
    pub deny: Option<Vec<String>>,
    pub max_duration: Option<String>,
    pub max_reach: Option<String>,
    pub hours: Option<String>,
    pub user_share: Option<BTreeMap<ResourceName, String>>,
    pub max_holds: Option<u32>,
    pub max_reservations: Option<u32>,
    pub max_host_hours: Option<u64>,
    pub tell_bookings: Option<bool>,
}

/// `[remote]`, as written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RemoteSection {
    pub listen: Option<String>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub names: Option<Vec<String>>,
}
