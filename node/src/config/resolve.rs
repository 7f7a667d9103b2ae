//! From the written layers to the configuration in force.
//!
//! Invariant: every complaint says where the value was written: file and key, or the flag.

use std::{
    fmt,
    net::SocketAddr,
    path::{self, Path, PathBuf},
    time::Duration,
};

use broker::{
    ids::HostId,
    ledger::LedgerLimits,
    negotiation::NegotiationSettings,
    phases::Settings,
    schedule::Schedule,
    time::{Millis, Span},
};
use discovery::{GridId, Intervals, Limits, Multiaddr};
use tracing_subscriber::EnvFilter;

use super::{
    ConfigError, DEFAULT_API, GossipConfig, HostSource, LogConfig, LogFormat, NodeConfig, OwnHost, Percent,
    Surroundings, file::ConfigFile, hosts, machine,
};
use crate::{
    contact,
    text::time,
    trust::{GridFile, Wallet},
};

/// The libraries below tell things at "info" that only their developers want to know.
const DEFAULT_LOG_FILTER: &str = "info,libp2p_swarm=warn,libp2p_kad=error";

/// A value and where it was written.
#[derive(Debug, Clone)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) place: String,
}

impl<T> Placed<T> {
    pub(super) fn wrong(&self, message: impl fmt::Display) -> ConfigError {
        ConfigError::Value { place: self.place.clone(), message: message.to_string() }
    }
}

pub(super) struct Layers {
    flags: ConfigFile,
    file: ConfigFile,
    path: Option<PathBuf>,
}

impl Layers {
    /// Flags over a file, which lies at `path`.
    pub(super) fn new(flags: ConfigFile, file: ConfigFile, path: Option<PathBuf>) -> Layers {
        Layers { flags, file, path }
    }

    /// The value of `key`: the flag's, else the file's.
    pub(super) fn written<T>(&self, key: &str, get: impl Fn(&ConfigFile) -> Option<T>) -> Option<Placed<T>> {
        if let Some(value) = get(&self.flags) {
            return Some(Placed { value, place: format!("--{}", key.replace(['.', '_'], "-")) });
        }
        get(&self.file).map(|value| Placed { value, place: self.place_in_file(key) })
    }

    /// The value of `key`, or `default`.
    pub(super) fn or<T>(&self, key: &str, default: T, get: impl Fn(&ConfigFile) -> Option<T>) -> Placed<T> {
        self.written(key, get).unwrap_or_else(|| Placed { value: default, place: format!("{key} (default)") })
    }

    fn place_in_file(&self, key: &str) -> String {
        match &self.path {
            Some(path) => format!("{}: {key}", path.display()),
            None => key.to_owned(),
        }
    }

    pub(super) fn duration(
        &self,
        key: &str,
        default: Duration,
        get: impl Fn(&ConfigFile) -> Option<String>,
    ) -> Result<Placed<Duration>, ConfigError> {
        let Some(text) = self.written(key, get) else {
            return Ok(Placed { value: default, place: format!("{key} (default)") });
        };
        let value = time::parse_duration(&text.value).map_err(|error| text.wrong(error))?;
        if value < Duration::from_millis(1) || value > LONGEST {
            return Err(text.wrong(format!("expected 1ms to {}", time::format_duration(LONGEST))));
        }
        Ok(Placed { value, place: text.place })
    }

    fn gossip(&self) -> Result<GossipConfig, ConfigError> {
        let (times, limits) = (Intervals::default(), Limits::default());
        let asked = self.or("gossip.asked_when_met", limits.sites_eager_max, |file| file.gossip.asked_when_met);
        if !(1..=limits.sites_max).contains(&asked.value) {
            return Err(asked.wrong(format!("expected 1 to {}, got {}", limits.sites_max, asked.value)));
        }
        Ok(GossipConfig {
            interval: self.duration("gossip.interval", GOSSIP_INTERVAL, |file| file.gossip.interval.clone())?.value,
            recheck: self.duration("gossip.recheck", times.recheck, |file| file.gossip.recheck.clone())?.value,
            asked_when_met: asked.value,
        })
    }

    fn span(&self, key: &str, default: Span, get: impl Fn(&ConfigFile) -> Option<String>) -> Result<Span, ConfigError> {
        Ok(self.optional_span(key, get)?.unwrap_or(default))
    }

    pub(super) fn optional_span(
        &self,
        key: &str,
        get: impl Fn(&ConfigFile) -> Option<String>,
    ) -> Result<Option<Span>, ConfigError> {
        let Some(text) = self.written(key, get) else { return Ok(None) };
        time::parse_span(&text.value).map(Some).map_err(|error| text.wrong(error))
    }

    /// A path, absolute: one in the file is relative to the file's directory, so that it means the same wherever the node
    /// is started.
    pub(super) fn path(
        &self,
        key: &str,
        get: impl Fn(&ConfigFile) -> Option<PathBuf>,
    ) -> Result<Option<Placed<PathBuf>>, ConfigError> {
        let from_flag = get(&self.flags).is_some();
        let Some(written) = self.written(key, get) else { return Ok(None) };
        let base = self.path.as_deref().and_then(Path::parent).filter(|_| !from_flag);
        let joined = base.map_or_else(|| written.value.clone(), |base| base.join(&written.value));
        let value = path::absolute(joined).map_err(|error| written.wrong(error))?;
        Ok(Some(Placed { value, place: written.place }))
    }

    pub(super) fn resolve(&self, surroundings: &Surroundings) -> Result<NodeConfig, ConfigError> {
        let data_dir = match self.path("data_dir", |file| file.data_dir.clone())? {
            Some(placed) => placed.value,
            None => surroundings.default_data_dir()?,
        };
        let mut bootstrap = self.multiaddrs("bootstrap", &[], |file| file.bootstrap.clone())?;
        let grid = self.grid(&data_dir, &bootstrap)?;
        let name = self.name(&data_dir, grid.as_ref(), surroundings)?;
        if bootstrap.value.is_empty() {
            bootstrap.value = grid.as_ref().map(|grid| grid.bootstrap.clone()).unwrap_or_default();
        }
        let listen = self.multiaddrs("listen", &DEFAULT_LISTEN, |file| file.listen.clone())?;
        if listen.value.is_empty() {
            return Err(listen.wrong("expected at least one address"));
        }
        let (host_source, hosts) = self.hosts(surroundings.host_name.as_deref().unwrap_or(&name.value), &data_dir)?;
        let hold_max = self.duration("ledger.hold_max", duration_of(LedgerLimits::default().hold_max), |file| {
            file.ledger.hold_max.clone()
        })?;
        let activation = self.activation(&data_dir, surroundings)?;
        let ledger = self.ledger(&hold_max)?;
        Ok(NodeConfig {
            data_dir,
            name: name.value,
            grid,
            listen: listen.value,
            announce: self.multiaddrs("announce", &[], |file| file.announce.clone())?.value,
            bootstrap: bootstrap.value,
            contact: self.contact()?,
            api: self.api()?,
            remote: self.remote()?,
            host_source,
            hosts,
            negotiation: self.negotiation(&hold_max)?,
            local: self.local(&ledger, surroundings)?,
            ledger,
            policy: self.policy()?,
            activation,
            gossip: self.gossip()?,
            history_keep: self
                .duration("storage.history_keep", HISTORY_KEEP, |file| file.storage.history_keep.clone())?
                .value,
            log: self.log()?,
        })
    }

    fn log(&self) -> Result<LogConfig, ConfigError> {
        let filter = self.or("log.filter", DEFAULT_LOG_FILTER.to_owned(), |file| file.log.filter.clone());
        EnvFilter::try_new(&filter.value).map_err(|error| filter.wrong(error))?;
        let format = self.or("log.format", LogFormat::Human, |file| file.log.format).value;
        Ok(LogConfig { format, filter: filter.value })
    }

    /// The configured name, else the one that the site was invited by, else the machine's.
    fn name(
        &self,
        data_dir: &Path,
        grid: Option<&GridFile>,
        surroundings: &Surroundings,
    ) -> Result<Placed<String>, ConfigError> {
        let invited = grid.map(|grid| Wallet::at(data_dir).site_name(grid)).transpose()?.flatten();
        let known = invited.into_iter().chain(surroundings.host_name.clone()).find(|name| is_name(name));
        let default = known.unwrap_or_else(|| "site".to_owned());
        let name = self.or("name", default, |file| file.name.clone());
        if is_name(&name.value) {
            Ok(name)
        } else {
            Err(name.wrong(format!("expected 1 to {MAX_NAME_BYTES} bytes without control characters")))
        }
    }

    fn contact(&self) -> Result<Option<String>, ConfigError> {
        let Some(contact) = self.written("contact", |file| file.contact.clone()) else { return Ok(None) };
        contact::check(&contact.value).map_err(|error| contact.wrong(error))?;
        Ok(Some(contact.value))
    }

    fn multiaddrs(
        &self,
        key: &str,
        default: &[&str],
        get: impl Fn(&ConfigFile) -> Option<Vec<String>>,
    ) -> Result<Placed<Vec<String>>, ConfigError> {
        let addresses = self.or(key, default.iter().map(|text| (*text).to_owned()).collect(), get);
        if addresses.value.len() > MAX_ADDRESSES {
            return Err(addresses.wrong(format!("at most {MAX_ADDRESSES} addresses")));
        }
        for text in &addresses.value {
            text.parse::<Multiaddr>().map_err(|error| {
                let expected = "expected one such as /ip4/192.0.2.1/tcp/4001";
                addresses.wrong(format!("{text:?} is no multiaddr ({error}): {expected}"))
            })?;
        }
        Ok(addresses)
    }

    fn grid(&self, data_dir: &Path, bootstrap: &Placed<Vec<String>>) -> Result<Option<GridFile>, ConfigError> {
        let configured = self.written("grid", |file| file.grid.clone());
        if let Some(grid) = &configured {
            GridId::new(&grid.value).map_err(|error| grid.wrong(error))?;
        }
        let kept = GridFile::load(data_dir)?;
        match (configured, kept) {
            (Some(grid), Some(kept)) if grid.value != kept.id => Err(grid.wrong(format!(
                "{} belongs to grid {}: use another data directory for grid {}",
                data_dir.display(),
                kept.id,
                grid.value
            ))),
            (_, Some(kept)) => Ok(Some(kept)),
            (Some(grid), None) => Ok(Some(GridFile::new(grid.value, None, Vec::new()))),
            (None, None) if bootstrap.value.is_empty() => Ok(None),
            (None, None) => Err(ConfigError::BootstrapWithoutGrid { place: bootstrap.place.clone() }),
        }
    }

    fn api(&self) -> Result<SocketAddr, ConfigError> {
        let text = self.or("api", DEFAULT_API.to_owned(), |file| file.api.clone());
        let address: SocketAddr = text.value.parse().map_err(|_| {
            text.wrong(format!("{:?} is no address: expected one such as {DEFAULT_API}, or port 0", text.value))
        })?;
        if address.ip().is_loopback() {
            Ok(address)
        } else {
            Err(text.wrong(format!(
                "{address} is no loopback address: the API is for users of this machine only; expected 127.0.0.1 or [::1]. \
                 For browsers of other machines see [remote]"
            )))
        }
    }

    fn hosts(&self, machine_name: &str, data_dir: &Path) -> Result<(HostSource, Vec<OwnHost>), ConfigError> {
        let file = self.path("hosts_file", |file| file.hosts_file.clone())?;
        let tables = self.written("hosts", |file| file.hosts.clone());
        let share = self.written("machine.share", |file| file.machine.share.clone());
        let attributes = self.written("machine.attributes", |file| file.machine.attributes.clone());
        if let (Some(file), Some(tables)) = (&file, &tables) {
            return Err(tables.wrong(format!("hosts are listed in {} already: name one of the two", file.place)));
        }
        let machine_place =
            share.as_ref().map(|share| &share.place).or(attributes.as_ref().map(|attributes| &attributes.place));
        if let (Some(listed), Some(machine)) =
            (file.as_ref().map(|file| &file.place).or(tables.as_ref().map(|tables| &tables.place)), machine_place)
        {
            let message = format!("hosts are listed in {listed}, so this machine is not offered: name one of the two");
            return Err(ConfigError::Value { place: machine.clone(), message });
        }
        if let Some(file) = file {
            let hosts = hosts::from_snapshot(&file.value)?;
            return Ok((HostSource::File(file.value), hosts));
        }
        if let Some(tables) = tables {
            let hosts = hosts::from_tables(&tables.value, &tables.place)?;
            return Ok((HostSource::Listed(tables.value), hosts));
        }
        let share = match share {
            Some(text) => Percent::parse(&text.value).map_err(|message| text.wrong(message))?,
            None => Percent::HALF,
        };
        let attributes_place = attributes.as_ref().map_or("this machine", |placed| &placed.place).to_owned();
        let attributes = attributes.map(|placed| placed.value).unwrap_or_default();
        let id = HostId::new(machine_name).map_err(|error| ConfigError::Machine(error.to_string()))?;
        let host = machine::detect(id, share, &attributes, data_dir)?;
        let hosts = vec![OwnHost { host, own_work: Schedule::default() }];
        hosts::check(&hosts, &attributes_place)?;
        Ok((HostSource::Machine { share, attributes }, hosts))
    }

    fn planner(&self) -> Result<Settings, ConfigError> {
        let default = Settings::default();
        let m_init = self.or("planner.m_init", default.m_init, |file| file.planner.m_init);
        let m_max = self.or("planner.m_max", default.m_max, |file| file.planner.m_max);
        if m_init.value == 0 {
            return Err(m_init.wrong("expected at least 1"));
        }
        if m_max.value < m_init.value || m_max.value > MAX_MULTIPLIER {
            let message = format!("expected m_init ({}) to {MAX_MULTIPLIER}, got {}", m_init.value, m_max.value);
            return Err(m_max.wrong(message));
        }
        Ok(Settings {
            effort: self.or("planner.effort", default.effort, |file| file.planner.effort).value,
            m_init: m_init.value,
            m_max: m_max.value,
            default_reach: self
                .span("planner.default_reach", default.default_reach, |file| file.planner.default_reach.clone())?,
        })
    }

    fn negotiation(&self, hold_max: &Placed<Duration>) -> Result<NegotiationSettings, ConfigError> {
        let default = NegotiationSettings::default();
        let answer_timeout =
            self.duration("negotiation.answer_timeout", duration_of(default.answer_timeout), |file| {
                file.negotiation.answer_timeout.clone()
            })?;
        let hold =
            self.duration("negotiation.hold", duration_of(default.hold_for), |file| file.negotiation.hold.clone())?;
        let patience = self.duration("negotiation.patience", duration_of(default.patience), |file| {
            file.negotiation.patience.clone()
        })?;
        let attempts = self.or("negotiation.attempts", default.max_attempts, |file| file.negotiation.attempts);
        // Holding and confirming each wait for answers while the hold runs.
        longer(&hold, "negotiation.hold", "twice negotiation.answer_timeout", answer_timeout.value.saturating_mul(2))?;
        longer(&patience, "negotiation.patience", "negotiation.answer_timeout", answer_timeout.value)?;
        if hold_max.value < hold.value {
            return Err(hold_max.wrong(format!(
                "ledger.hold_max ({}) must not be below negotiation.hold ({})",
                time::format_duration(hold_max.value),
                time::format_duration(hold.value)
            )));
        }
        if !(1..=MAX_ATTEMPTS).contains(&attempts.value) {
            return Err(attempts.wrong(format!("expected 1 to {MAX_ATTEMPTS}, got {}", attempts.value)));
        }
        let check_min = self.duration("negotiation.check_min", duration_of(default.check_min), |file| {
            file.negotiation.check_min.clone()
        })?;
        let check_max = self.duration("negotiation.check_max", duration_of(default.check_max), |file| {
            file.negotiation.check_max.clone()
        })?;
        let lost_after = self.duration("negotiation.lost_after", duration_of(default.lost_after), |file| {
            file.negotiation.lost_after.clone()
        })?;
        // Else answers to one round of questions would still be waited for when the next begins.
        longer(&check_min, "negotiation.check_min", "negotiation.answer_timeout", answer_timeout.value)?;
        Ok(NegotiationSettings {
            planner: self.planner()?,
            check_min: millis_of(check_min.value),
            check_max: millis_of(check_max.value),
            lost_after: millis_of(lost_after.value),
            hold_for: millis_of(hold.value),
            answer_timeout: millis_of(answer_timeout.value),
            patience: millis_of(patience.value),
            max_attempts: attempts.value,
            ..default
        })
    }

    fn ledger(&self, hold_max: &Placed<Duration>) -> Result<LedgerLimits, ConfigError> {
        let default = LedgerLimits::default();
        let all = self.or("ledger.max_holds", default.max_holds, |file| file.ledger.max_holds);
        let each = self.or("ledger.max_holds_per_entry_point", default.max_holds_per_entry_point, |file| {
            file.ledger.max_holds_per_entry_point
        });
        if !(1..=MAX_HOLDS).contains(&all.value) {
            return Err(all.wrong(format!("expected 1 to {MAX_HOLDS}, got {}", all.value)));
        }
        if each.value == 0 || each.value > all.value {
            return Err(each.wrong(format!("expected 1 to ledger.max_holds ({}), got {}", all.value, each.value)));
        }
        let hold_max = millis_of(hold_max.value);
        Ok(LedgerLimits {
            max_holds: all.value,
            max_holds_per_entry_point: each.value,
            farthest_future: self
                .span("ledger.farthest_future", default.farthest_future, |file| file.ledger.farthest_future.clone())?,
            hold_max,
            // An attempt must be remembered longer than any hold of it could have lasted.
            tombstone_life: default.tombstone_life.max(hold_max + default.hold_max),
            ..default
        })
    }
}

/// Loopback only: who may reach the node from outside is the owner's decision.
const DEFAULT_LISTEN: [&str; 2] = ["/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"];
/// Longest name of a site in bytes; the same as that of a host, since it names the detected machine too.
const MAX_NAME_BYTES: usize = broker::ids::MAX_ID_BYTES;
const MAX_ADDRESSES: usize = 64;
const MAX_MULTIPLIER: u32 = 4096;
const MAX_ATTEMPTS: u32 = 10_000;
/// A hold takes some hundred bytes: a bound on what holds cost in memory.
const MAX_HOLDS: usize = 1_000_000;
/// How long requests that are over are remembered.
const HISTORY_KEEP: Duration = Duration::from_hours(90 * 24);
/// At one message a second a grid of a hundred sites costs each of them a fraction of a core.
const GOSSIP_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time-out that makes sense.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

fn duration_of(millis: Millis) -> Duration {
    Duration::from_millis(millis.0)
}

/// Whole milliseconds; what is finer is dropped.
fn millis_of(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && !text.chars().any(char::is_control)
}

fn longer(value: &Placed<Duration>, key: &str, than_key: &str, than: Duration) -> Result<(), ConfigError> {
    if value.value > than {
        return Ok(());
    }
    let (value_text, than_text) = (time::format_duration(value.value), time::format_duration(than));
    Err(value.wrong(format!("{key} ({value_text}) must be longer than {than_key} ({than_text})")))
}
