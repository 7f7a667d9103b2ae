//! The flags of `kolo node`: every key of the file is a flag as well, with dots and underscores as dashes.
//!
//! Invariant: flags become the same [`ConfigFile`] as a file, so that both are checked by the same code.

use std::path::{Path, PathBuf};

use broker::{request::Effort, resources::Attributes};
use clap::Args;
use serde::Deserialize;

use super::{
    ConfigError, HostTable, LogFormat,
    activation::ActivationArgs,
    file::{
        ConfigFile, GossipSection, LedgerSection, LogSection, MachineSection, NegotiationSection, PlannerSection,
        StorageSection,
    },
    local::LocalArgs,
    policy::PolicyArgs,
    remote::RemoteArgs,
};
use crate::text::document::{self, Syntax};

/// Flags of `kolo node`. The data directory and the address of the API are global flags and come in separately.
#[derive(Debug, Clone, Default, Args)]
pub struct NodeArgs {
    /// Configuration file (TOML); flags win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the configuration in force, with comments, and exit
    #[arg(long)]
    pub print_config: bool,
    /// What people call the site [default: the host name]
    #[arg(long)]
    name: Option<String>,
    /// Id of the grid to belong to [default: the one kept in the data directory, else a new one]
    #[arg(long, value_name = "ID")]
    grid: Option<String>,
    /// Multiaddr to listen on; may be repeated [default: loopback, TCP and QUIC, ports chosen by the system]
    #[arg(long, value_name = "MULTIADDR")]
    listen: Option<Vec<String>>,
    /// Multiaddr to tell others in the place of those listened on, such as that of a port forward; may be repeated
    #[arg(long, value_name = "MULTIADDR")]
    announce: Option<Vec<String>>,
    /// Multiaddr of a node of the grid; may be repeated
    #[arg(long, value_name = "MULTIADDR")]
    bootstrap: Option<Vec<String>>,
    /// How users reach the hosts, such as 'ssh {user}@{host}.example.org' [default: not told]
    #[arg(long, value_name = "TEXT")]
    contact: Option<String>,
    /// Snapshot (kolo-grid/1) with this site's hosts and the owner's own occupancy
    #[arg(long, value_name = "GRID.json")]
    hosts_file: Option<PathBuf>,
    /// A host as an inline TOML table, such as '{ id = "h1", resources = { cpu = "4", memory = "8GiB" } }'; may be repeated
    #[arg(long, value_name = "TABLE")]
    hosts: Option<Vec<String>>,
    /// Share of this machine to offer, when no hosts are listed [default: 50%]
    #[arg(long, value_name = "PERCENT")]
    machine_share: Option<String>,
    /// Attribute of this machine, when no hosts are listed; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_attribute)]
    machine_attributes: Option<Vec<(String, String)>>,
    /// Planning effort for requests that ask for none: fast, balanced, thorough [default: balanced]
    #[arg(long, value_name = "EFFORT", value_parser = parse_effort)]
    planner_effort: Option<Effort>,
    /// Hosts looked at first, as a multiple of those asked (M_init) [default: 3]
    #[arg(long, value_name = "M")]
    planner_m_init: Option<u32>,
    /// Hosts looked at most, as a multiple of those asked (M_max) [default: 24]
    #[arg(long, value_name = "M")]
    planner_m_max: Option<u32>,
    /// How far behind the earliest start the latest one is, when a request names none [default: 24h]
    #[arg(long, value_name = "DURATION")]
    planner_default_reach: Option<String>,
    /// How long sites are asked to hold [default: 10s]
    #[arg(long, value_name = "DURATION")]
    negotiation_hold: Option<String>,
    /// How long a site's answer is waited for [default: 2s]
    #[arg(long, value_name = "DURATION")]
    negotiation_answer_timeout: Option<String>,
    /// How long a request is tried in all [default: 60s]
    #[arg(long, value_name = "DURATION")]
    negotiation_patience: Option<String>,
    /// Most attempts a request [default: 32]
    #[arg(long, value_name = "COUNT")]
    negotiation_attempts: Option<u32>,
    /// Shortest wait between two looks whether a reservation is still whole [default: 60s]
    #[arg(long, value_name = "DURATION")]
    negotiation_check_min: Option<String>,
    /// Longest wait between two looks whether a reservation is still whole [default: 1h]
    #[arg(long, value_name = "DURATION")]
    negotiation_check_max: Option<String>,
    /// How long a site may not answer before its hosts count as lost [default: 5m]
    #[arg(long, value_name = "DURATION")]
    negotiation_lost_after: Option<String>,
    /// How long requests that are over are remembered [default: 90d]
    #[arg(long, value_name = "DURATION")]
    storage_history_keep: Option<String>,
    /// Most holds at a time [default: 10000]
    #[arg(long, value_name = "COUNT")]
    ledger_max_holds: Option<usize>,
    /// Most holds at a time of one entry point [default: 1000]
    #[arg(long, value_name = "COUNT")]
    ledger_max_holds_per_entry_point: Option<usize>,
    /// How far ahead a reservation may end [default: 366d]
    #[arg(long, value_name = "DURATION")]
    ledger_farthest_future: Option<String>,
    /// Longest hold granted [default: 60s]
    #[arg(long, value_name = "DURATION")]
    ledger_hold_max: Option<String>,
    /// The owner's rules.
    #[command(flatten)]
    policy: PolicyArgs,
    /// The owner's hook.
    #[command(flatten)]
    activation: ActivationArgs,
    /// The feed of the owner's own work.
    #[command(flatten)]
    local: LocalArgs,
    /// The page for other machines.
    #[command(flatten)]
    remote: RemoteArgs,
    /// Least time between two messages with schedule changes [default: 500ms]
    #[arg(long, value_name = "DURATION")]
    gossip_interval: Option<String>,
    /// How log lines look [default: human]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Which log lines are written, such as info or discovery=debug,info [default: info]
    #[arg(long, value_name = "FILTER")]
    log_filter: Option<String>,
}

impl NodeArgs {
    /// As if nothing but this configuration file were named.
    pub fn of_file(config: PathBuf) -> NodeArgs {
        NodeArgs { config: Some(config), ..NodeArgs::default() }
    }

    /// The flags as a written layer.
    ///
    /// # Errors
    /// [`ConfigError::Document`] when a `--hosts` table is malformed.
    pub(super) fn layer(&self, data_dir: Option<&Path>, api: Option<&str>) -> Result<ConfigFile, ConfigError> {
        let hosts = match &self.hosts {
            Some(tables) => Some(tables.iter().map(|table| inline_host(table)).collect::<Result<_, _>>()?),
            None => None,
        };
        Ok(ConfigFile {
            data_dir: data_dir.map(Path::to_owned),
            name: self.name.clone(),
            grid: self.grid.clone(),
            listen: self.listen.clone(),
            announce: self.announce.clone(),
            bootstrap: self.bootstrap.clone(),
            contact: self.contact.clone(),
            api: api.map(str::to_owned),
            remote: self.remote.layer(),
            hosts_file: self.hosts_file.clone(),
            hosts,
            machine: MachineSection {
                share: self.machine_share.clone(),
                attributes: self.machine_attributes.as_ref().map(|pairs| pairs.iter().cloned().collect::<Attributes>()),
            },
            planner: PlannerSection {
                effort: self.planner_effort,
                m_init: self.planner_m_init,
                m_max: self.planner_m_max,
                default_reach: self.planner_default_reach.clone(),
            },
            negotiation: NegotiationSection {
                hold: self.negotiation_hold.clone(),
                answer_timeout: self.negotiation_answer_timeout.clone(),
                patience: self.negotiation_patience.clone(),
                attempts: self.negotiation_attempts,
                check_min: self.negotiation_check_min.clone(),
                check_max: self.negotiation_check_max.clone(),
                lost_after: self.negotiation_lost_after.clone(),
            },
            ledger: LedgerSection {
                max_holds: self.ledger_max_holds,
                max_holds_per_entry_point: self.ledger_max_holds_per_entry_point,
                farthest_future: self.ledger_farthest_future.clone(),
                hold_max: self.ledger_hold_max.clone(),
            },
            policy: self.policy.layer(),
            activation: self.activation.layer(),
            local: self.local.layer(),
            gossip: GossipSection { interval: self.gossip_interval.clone(), ..GossipSection::default() },
            storage: StorageSection { history_keep: self.storage_history_keep.clone() },
            log: LogSection { format: self.log_format, filter: self.log_filter.clone() },
        })
    }
}

fn inline_host(table: &str) -> Result<HostTable, ConfigError> {
    #[derive(Deserialize)]
    struct Line {
        hosts: HostTable,
    }
    let line: Line = document::parse(Path::new("--hosts"), &format!("hosts = {table}"), Syntax::Toml)?;
    Ok(line.hosts)
}

/// Reads `key=value`.
fn parse_attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected key=value, such as arch=x86_64".to_owned()),
    }
}

/// Reads an effort.
///
/// # Errors
/// What was expected.
pub fn parse_effort(text: &str) -> Result<Effort, String> {
    match text {
        "fast" => Ok(Effort::Fast),
        "balanced" => Ok(Effort::Balanced),
        "thorough" => Ok(Effort::Thorough),
        _ => Err("expected fast, balanced or thorough".to_owned()),
    }
}
