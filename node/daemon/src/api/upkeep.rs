//! What the owner changes while the node runs: whether the site is being emptied, whether commands are stopped, and the configuration.
//!
//! Invariant: a configuration that is wrong changes nothing, and a key is either put into force or named as one that waits for the
//! next start. That a site is being emptied, or its commands are stopped, outlives a restart. A site whose disk is full promises nothing
//! more either, until there is room again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{Json, extract::State, http::StatusCode};
use broker::{
    features::Images,
    host::Host,
    ids::HostId,
    ledger::{Books as _, HostLedger},
    needs::Need,
    offered::{Offered, SpansError},
    schedule::Schedule,
    tariff::Tariff,
    time::Time,
    trust::SharedGate,
};
use discovery::{Discovery, Offer, OfferError};
use kolo_api::upkeep::{ClockConfirmed, Drain, DrainView, Reloaded};
use kolo_config::{ConfigError, ConfigSource, NodeConfig};
use kolo_runtime::{clock, lock::locked};
use kolo_seat::{Confinement, RunError};
use kolo_storage::data_dir::{DataDir, DataDirError};
use tokio::task::block_in_place;
use tracing::{error, info};

use super::{
    extract::Body,
    problem::Problem,
    requests::read_body,
    state::ApiState,
    tls::{Tls, TlsError},
};
use crate::{seats::RunSite, site::task::SharedLedger};

/// Keys that are put into force at once; a name with a dot at its end is a whole table.
const LIVE: [&str; 11] = [
    "policy.",
    "ledger.",
    "price",
    "price_reach",
    "offered",
    "contact",
    "remote.cert",
    "remote.key",
    "hosts",
    "hosts_file",
    "uplink",
];

/// The same where what runs commands stays.
const LIVE_WITH_RUNNER: [&str; 2] = ["runner_network", "runner_images"];

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum UpkeepError {
    /// File and key are named.
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// This machine cannot run commands like this.
    #[error(transparent)]
    Runs(#[from] RunError),
    /// What the calendar comes to cannot be published.
    #[error("offered: {0}")]
    Spans(SpansError),
    /// This node was started without a way to read its configuration again.
    #[error("this node cannot read its configuration again; restart it")]
    NoSource,
}

impl From<UpkeepError> for Problem {
    fn from(error: UpkeepError) -> Problem {
        let status = match &error {
            UpkeepError::DataDir(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, error.to_string())
    }
}

/// The parts of the node that the owner changes.
pub struct Upkeep {
    pub data_dir: DataDir,
    pub gate: SharedGate,
    pub ledger: SharedLedger,
    pub discovery: Discovery,
    /// What makes connections of other machines private.
    pub tls: Option<Tls>,
    /// What is in force.
    pub config: Mutex<NodeConfig>,
    /// Where the configuration comes from.
    pub source: Option<ConfigSource>,
    /// Where commands run, once that is known.
    pub runs: OnceLock<Arc<RunSite>>,
    /// Whether the disk is too full for new promises.
    pub lacks_room: AtomicBool,
}

impl Upkeep {
    /// Whether the site promises nothing more.
    pub fn is_draining(&self) -> bool {
        self.data_dir.is_draining()
    }

    /// Whether the site promises nothing more because its disk is full.
    pub fn lacks_room(&self) -> bool {
        self.lacks_room.load(Ordering::Relaxed)
    }

    /// Takes note of whether the disk is too full for new promises; true when that is news.
    ///
    /// # Errors
    /// [`OfferError`] when the advert is refused; the ledger goes by it all the same.
    pub fn set_lacks_room(&self, lacks_room: bool) -> Result<bool, OfferError> {
        let config = locked(&self.config);
        if self.lacks_room.swap(lacks_room, Ordering::Relaxed) == lacks_room {
            return Ok(false);
        }
        self.gate.lock().set_room(!lacks_room);
        self.advertise_as(&config)?;
        Ok(true)
    }

    /// Begins or ends to empty the site.
    ///
    /// # Errors
    /// [`UpkeepError`] when that cannot be written down, and nothing has changed then; or when the advert is refused.
    pub fn drain(&self, is_draining: bool) -> Result<(), UpkeepError> {
        let config = locked(&self.config);
        self.data_dir.set_draining(is_draining)?;
        self.gate.lock().set_draining(is_draining);
        self.advertise_as(&config)?;
        info!(is_draining, "what is promised stays");
        Ok(())
    }

    /// Ends all commands of users for a reason and lets none start; without a reason they may start again. That outlives a restart.
    ///
    /// # Errors
    /// As for [`Upkeep::drain`].
    pub fn stop(&self, why: Option<&str>) -> Result<(), UpkeepError> {
        let config = locked(&self.config);
        self.data_dir.set_stopped(why)?;
        self.stop_runs(&config, why);
        self.advertise_as(&config)?;
        info!(why, "all commands of users are stopped for this reason, or may start where there is none");
        Ok(())
    }

    /// Takes in the place where commands run, and hands it back: those that were stopped before this start stay so.
    pub fn with_runs(&self, runs: Arc<RunSite>) -> Arc<RunSite> {
        let runs = self.runs.get_or_init(|| runs).clone();
        self.stop_runs(&locked(&self.config), self.data_dir.stopped().as_deref());
        runs
    }

    fn stop_runs(&self, config: &NodeConfig, why: Option<&str>) {
        if let Some(runs) = self.runs.get() {
            runs.set_stopped(why);
        }
        let (allowed, images) = self.allowed(config);
        self.gate.lock().set_allowed(allowed, images);
    }

    /// Things that commands may have here: none while they are stopped.
    fn allowed(&self, config: &NodeConfig) -> (BTreeSet<Need>, Images) {
        let is_stopped = self.runs.get().is_some_and(|runs| runs.stopped().is_some());
        if is_stopped { (BTreeSet::new(), Images::default()) } else { config.allowed() }
    }

    /// Tells the grid what this site has: no host while it does not know its owner's own work, and no time while it is being emptied or
    /// its disk is full.
    ///
    /// # Errors
    /// [`OfferError`] when the hosts are not what others accept.
    pub fn advertise(&self) -> Result<(), OfferError> {
        self.advertise_as(&locked(&self.config))
    }

    fn advertise_as(&self, config: &NodeConfig) -> Result<(), OfferError> {
        let (is_draining, is_disk_full, is_own_work_known) = {
            let gate = self.gate.lock();
            (gate.is_draining(), !gate.has_room(), gate.is_own_work_known())
        };
        let hosts = config.hosts.iter().filter(|_| is_own_work_known).map(|own| own.host.clone()).collect();
        let (name, contact) = (config.name.clone(), config.settings.contact.clone());
        let (uplink, (allows, images)) = (config.uplink(), self.allowed(config));
        let offered = Offered { is_draining, is_disk_full, ..config.offered() }.into();
        self.discovery.publish_advert(Offer { name, contact, hosts, uplink, allows, images, offered })
    }

    /// Reads the configuration again and puts into force what can be.
    ///
    /// # Errors
    /// [`UpkeepError`] when something in it is wrong; nothing has changed then.
    pub fn reload(&self) -> Result<Reloaded, UpkeepError> {
        let mut config = locked(&self.config);
        let new = self.source.as_ref().ok_or(UpkeepError::NoSource)?()?;
        let mut reloaded = difference(&config, &new);
        let tls = match (&self.tls, &new.remote) {
            (Some(tls), Some(remote)) => Some((tls, Tls::open(&remote.cert, &remote.key)?)),
            _ => None,
        };
        let mut offered = config.clone();
        offered.hosts.clone_from(&new.hosts);
        (offered.settings.uplink, offered.settings.contact) = (new.settings.uplink, new.settings.contact.clone());
        let confined = self.confined_as(&config, &new)?;
        if confined.is_some() {
            offered.settings.runner_network = new.settings.runner_network;
            offered.settings.runner_images.clone_from(&new.settings.runner_images);
        }
        (offered.policy, offered.ledger) = (new.policy.clone(), new.ledger.clone());
        let is_offered = |config: &NodeConfig| {
            let (uplink, contact) = (config.uplink(), config.settings.contact.clone());
            (config.hosts.clone(), uplink, contact, config.allowed(), config.offered())
        };
        if is_offered(&offered) != is_offered(&config) {
            self.advertise_as(&offered)?;
        }
        if let Some((runs, confinement)) = confined {
            runs.confine(confinement, self.data_dir.path());
        }
        offered.settings.ledger.binding = new.settings.ledger.binding;
        let has_other_units = units_without_prices(&offered) != units_without_prices(&config);
        *config = offered;
        (config.settings.hosts, config.settings.hosts_file) = (new.settings.hosts, new.settings.hosts_file);
        (config.pricing, config.calendar) = (new.pricing, new.calendar);
        config.settings.offered = new.settings.offered;
        (config.settings.price, config.settings.price_reach) = (new.settings.price, new.settings.price_reach);
        if let Some((tls, opened)) = tls {
            // The file may hold another certificate under the same name.
            if tls.replace(&opened) && !reloaded.changed.iter().any(|key| key == "remote.cert") {
                reloaded.changed.push("remote.cert".to_owned());
            }
            let remote = &mut config.settings.remote;
            (remote.cert, remote.key) = (new.settings.remote.cert, new.settings.remote.key);
        }
        let (allowed, images) = self.allowed(&config);
        {
            let mut gate = self.gate.lock();
            gate.set_policy(new.policy);
            gate.set_allowed(allowed, images);
        }
        self.ledger.lock().set_limits(new.ledger);
        if has_other_units {
            self.ledger.replace_hosts(config.units());
        } else {
            self.ledger.set_tariffs(tariffs_of(&config));
        }
        (config.settings.policy, config.settings.ledger) = (new.settings.policy, new.settings.ledger);
        let (changed, at_next_start) = (reloaded.changed.join(" "), reloaded.at_next_start.join(" "));
        info!(changed, at_next_start, "the configuration was read again");
        Ok(reloaded)
    }

    /// How commands are confined anew by this configuration; none where that does not change, or waits for the next start.
    fn confined_as(&self, old: &NodeConfig, new: &NodeConfig) -> Result<Option<(&RunSite, Confinement)>, RunError> {
        let allowed = |config: &NodeConfig| {
            (config.settings.runner, config.settings.runner_network, config.settings.runner_images.clone())
        };
        let ((before, ..), (runner, has_network, images)) = (allowed(old), allowed(new));
        let runs = self.runs.get().filter(|_| runner == before && allowed(old) != allowed(new));
        let Some(runs) = runs else { return Ok(None) };
        let confinement = runs.confinement_with((has_network, &images), self.data_dir.path())?;
        Ok(confinement.map(|confinement| (&**runs, confinement)))
    }

    /// Works out prices and offered times of the present day, and publishes them if they are others.
    ///
    /// # Errors
    /// [`UpkeepError`] when they cannot be published; those of before stay in force then.
    pub fn renew(&self, now: Time) -> Result<(), UpkeepError> {
        let mut config = locked(&self.config);
        let tariffs = match config.pricing.is_empty() {
            true => BTreeMap::new(),
            false => config.pricing.tariffs(config.hosts.iter().map(|own| &own.host.id), now),
        };
        let mut offered = with_tariffs(&config, &tariffs);
        offered.policy.spans = config.spans(now).map_err(UpkeepError::Spans)?;
        if offered.hosts != config.hosts || offered.policy != config.policy {
            self.advertise_as(&offered)?;
            (config.hosts, config.policy) = (offered.hosts, offered.policy);
            self.gate.lock().set_policy(config.policy.clone());
            self.ledger.set_tariffs(tariffs);
            info!("prices and offered times of the next days are published");
        }
        Ok(())
    }

    /// [`Upkeep::reload`] for a signal, to which nobody can answer.
    pub fn reload_and_log(&self) {
        if let Err(error) = self.reload() {
            error!(%error, "the configuration was read again and is wrong; nothing has changed");
        }
    }
}

/// The tariffs that a configuration has.
fn tariffs_of(config: &NodeConfig) -> BTreeMap<HostId, Arc<Tariff>> {
    config.hosts.iter().map(|own| (own.host.id.clone(), own.host.tariff.clone())).collect()
}

/// What a configuration has on offer, whatever it costs.
fn units_without_prices(config: &NodeConfig) -> Vec<(Host, Schedule, Option<HostId>)> {
    let unit = |books: &HostLedger| {
        let host = Host { tariff: Arc::default(), ..books.host().clone() };
        (host, books.own().clone(), books.class().cloned())
    };
    config.units().iter().map(unit).collect()
}

/// The configuration in force with these tariffs.
fn with_tariffs(config: &NodeConfig, tariffs: &BTreeMap<HostId, Arc<Tariff>>) -> NodeConfig {
    let mut config = config.clone();
    for own in &mut config.hosts {
        if let Some(tariff) = tariffs.get(&own.host.id) {
            own.host.tariff.clone_from(tariff);
        }
    }
    config
}

fn difference(old: &NodeConfig, new: &NodeConfig) -> Reloaded {
    let values = |config: &NodeConfig| -> BTreeMap<String, _> {
        config.settings.keys("").into_iter().map(|key| (key.path(), key.value)).collect()
    };
    let (old_values, new_values) = (values(old), values(new));
    let differ = old_values.keys().filter(|key| old_values.get(*key) != new_values.get(*key));
    let has_runner = old.settings.runner.is_some() && old.settings.runner == new.settings.runner;
    let has_door = old.remote.is_some() && new.remote.is_some();
    let is_live = |key: &String| {
        let is_listed = LIVE.iter().any(|live| key == live || live.ends_with('.') && key.starts_with(live));
        let is_of_runner = has_runner && LIVE_WITH_RUNNER.contains(&key.as_str());
        is_of_runner || is_listed && (has_door || !key.starts_with("remote."))
    };
    let (mut changed, at_next_start): (Vec<String>, Vec<String>) = differ.cloned().partition(is_live);
    // The file may list other hosts under the same name.
    let lists_others = new.settings.hosts_file.is_some() && old.hosts != new.hosts;
    if lists_others && !changed.iter().any(|key| key == "hosts_file") {
        changed.push("hosts_file".to_owned());
    }
    Reloaded { changed, at_next_start }
}

/// Begins or ends to empty the site: it promises nothing more, and what it has promised stays.
#[utoipa::path(post, path = "/drain", tag = "grid", request_body = Drain, responses((status = 200, description = "Done", body = DrainView)))]
pub async fn drain_site(State(state): State<Arc<ApiState>>, Body(body): Body) -> Result<Json<DrainView>, Problem> {
    let Drain { is_draining } = read_body("drain", &body)?;
    // The disk, and perhaps the end of a reload.
    block_in_place(|| state.upkeep.drain(is_draining))?;
    let ledger = state.ledger.lock();
    let until = ledger.of_users().map(|booking| booking.window.end).max();
    Ok(Json(DrainView { is_draining, bookings: ledger.of_users().count(), until }))
}

/// Reads the configuration again; one that is wrong changes nothing.
#[utoipa::path(post, path = "/reload", tag = "grid", responses((status = 200, description = "Done", body = Reloaded)))]
pub async fn reload_configuration(State(state): State<Arc<ApiState>>) -> Result<Json<Reloaded>, Problem> {
    // Files, and a look at the machine.
    Ok(Json(block_in_place(|| state.upkeep.reload())?))
}

/// The operator says that the machine's clock is right: what is past by it is past.
#[utoipa::path(post, path = "/clock/confirm", tag = "grid", responses((status = 200, description = "Done", body = ClockConfirmed)))]
pub async fn confirm_clock(State(state): State<Arc<ApiState>>) -> Json<ClockConfirmed> {
    let was_ahead_s = clock::clock_doubt().map(|doubt| doubt.ahead_s);
    clock::confirm_clock();
    state.upkeep.gate.lock().set_clock_believed(true);
    Json(ClockConfirmed { was_ahead_s })
}
