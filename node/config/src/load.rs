//! From what is written to what is in force.
//!
//! Invariant: relations between values hold in what [`load`] returns, and every complaint names file and key, or the flag.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    net::SocketAddr,
    ops::RangeInclusive,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use broker::{
    amount::Amount,
    batch::policy_named,
    features::{IMAGES_MAX, Images},
    ids::{HostId, MAX_ID_BYTES},
    ledger::{HostLedger, LedgerLimits},
    needs::{ImageName, Need},
    negotiation::NegotiationSettings,
    offered::{Offered, Spans, SpansError},
    phases,
    schedule::Schedule,
    time::{Millis, Span, Time},
    trust::{Limits, OwnerPolicy},
    uplinks::unit_of,
};
use discovery::{AddressBlock, GridId, Multiaddr};
use kolo_runtime::clock::unix_time;
use kolo_seat::{Runner, order::check_image_name};
use kolo_trust::{GridFile, Wallet};
use tracing_subscriber::EnvFilter;

use super::{
    args::NodeArgs,
    contact,
    error::ConfigError,
    hosts::{self, OwnHost},
    layers::{self, Places},
    machine,
    offered::{Calendar, too_many_spans},
    settings::{BatchSettings, LedgerSettings, PolicySettings, Settings},
    surroundings::Surroundings,
    tariffs::{Pricing, too_many_steps},
    values::{Binding, Percent, Program, Rate, Setting as _},
};

/// How addresses begin that only nodes of the same process reach.
const INSIDE_PROCESS: &str = "/memory/";
/// As many processes as a system has.
const RUNNER_PROCESSES_MAX: u64 = 1 << 22;
/// More than may be on its way to a user, so that one who is attached is never waited for in vain.
const RUNNER_SPOOL_MIB_MIN: u64 = 8;
/// A kept output that fills no disk by itself.
const RUNNER_SPOOL_MIB_MAX: u64 = 1 << 20;
/// The log of the hook's runs, in the data directory.
const ACTIVATION_LOG_FILE: &str = "activation.log";
/// Longest name of a site in bytes; the same as that of a host, since it names the detected machine too.
const NAME_BYTES_MAX: usize = MAX_ID_BYTES;
const ADDRESSES_MAX: usize = 64;
const MULTIPLIER_MAX: u32 = 4096;
const ATTEMPTS_MAX: u32 = 10_000;
/// A hold takes some hundred bytes: a bound on what holds cost in memory.
const HOLDS_MAX: usize = 1_000_000;
const USERS_MAX: usize = 10_000;
const TRIES_MAX: u32 = 100;
/// Longest time that a reservation is started before its window.
const EARLY_MAX: Span = Span(86_400);
/// A feed that runs more often costs more than it is worth.
const FEED_EVERY_MIN_S: u64 = 1;
/// To find hosts for a batch takes some seconds.
pub const BATCH_EVERY_MIN: Duration = Duration::from_secs(1);
const PROGRAM_WORDS_MAX: usize = 64;
const REMOTE_NAMES_MAX: usize = 64;
/// How far ahead prices may be published.
const PRICE_REACH: RangeInclusive<Span> = Span(86_400)..=Span(366 * 86_400);

/// The configuration in force.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeConfig {
    /// All keys, with what was found for those that were not written.
    pub settings: Settings,
    /// Where identity, ledger and tokens are kept; absolute.
    pub data_dir: PathBuf,
    /// The site's name for people; not unique.
    pub name: String,
    /// The grid to belong to: kept in the data directory, or configured, and open then. Absent at the first start of a
    /// node that makes a grid of its own.
    pub grid: Option<GridFile>,
    /// Where and how browsers of other machines are served, if they are.
    pub remote: Option<RemoteConfig>,
    /// The machines that the site offers.
    pub hosts: Vec<OwnHost>,
    /// When they are to be had; the spans of the policy are those of the present day.
    pub calendar: Calendar,
    /// What they cost; their tariffs are those of the present day.
    pub pricing: Pricing,
    /// How requests are planned and negotiated when this node is their entry point.
    pub negotiation: NegotiationSettings,
    /// What this site grants.
    pub ledger: LedgerLimits,
    /// Which users this site grants what.
    pub policy: OwnerPolicy,
    /// The log of the hook's runs; absolute.
    pub activation_log: PathBuf,
    /// Where the owner's programs look for programs.
    pub search_path: Option<OsString>,
}

impl NodeConfig {
    /// What the site's uplink carries, in Mbit/s; none when it sets no limit.
    pub fn uplink(&self) -> Option<Amount> {
        self.settings.uplink.map(Rate::mbps)
    }

    /// What the owner allows of users' commands, and the images that they run in; none where they run without.
    pub fn allowed(&self) -> (BTreeSet<Need>, Images) {
        let Settings { runner, runner_network, runner_images, .. } = &self.settings;
        let network = runner.filter(|runner| runner.is_on_network(*runner_network)).map(|_| Need::Network);
        let needs = runner.map(|_| Need::Run).into_iter().chain(network).collect();
        let images = runner_images.iter().filter(|_| *runner == Some(Runner::Podman));
        (needs, Images::of(images.filter_map(|image| ImageName::try_from(image.clone()).ok()).collect()))
    }

    /// When, how long and how far ahead the hosts are to be had.
    pub fn offered(&self) -> Offered {
        self.policy.offered(Some(self.ledger.farthest_future))
    }

    /// The spans of the day of `now`.
    ///
    /// # Errors
    /// [`SpansError`].
    pub fn spans(&self, now: Time) -> Result<Option<Arc<Spans>>, SpansError> {
        self.calendar.spans(reach_of(&self.policy, &self.ledger), now)
    }

    /// What the ledger has books of: the hosts with the owner's own work, and the uplink if it has a limit.
    pub fn units(&self) -> Vec<HostLedger> {
        let is_late = self.settings.ledger.binding == Binding::Late;
        let books = |own: &OwnHost| {
            let class = own.class.clone().filter(|_| is_late);
            HostLedger::new(own.host.clone(), own.own_work.clone()).in_class(class)
        };
        let uplink = self.uplink().map(|mbps| HostLedger::new(unit_of(mbps), Schedule::default()));
        self.hosts.iter().map(books).chain(uplink).collect()
    }
}

/// Reads the configuration again, as it was read at the start.
pub type ConfigSource = Box<dyn Fn() -> Result<NodeConfig, ConfigError> + Send + Sync>;

/// How browsers of other machines are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteConfig {
    /// Where to listen.
    pub address: SocketAddr,
    /// Chain of certificates (PEM); absolute.
    pub cert: PathBuf,
    /// Private key (PEM); absolute.
    pub key: PathBuf,
    /// What browsers may call this node beside its addresses.
    pub names: Vec<String>,
}

/// Reads the file that `args` name, puts the flags over it, and checks everything.
///
/// # Errors
/// [`ConfigError`] that names file and key, or the flag.
pub fn load(
    args: &NodeArgs,
    data_dir: Option<&Path>,
    api: Option<&str>,
    surroundings: &Surroundings,
) -> Result<NodeConfig, ConfigError> {
    let (settings, places) = layers::read(args, data_dir, api)?;
    let is_inside = |address: &&String| address.starts_with(INSIDE_PROCESS);
    if let Some(address) = settings.listen.iter().find(is_inside) {
        return Err(
            places.wrong("listen", format!("{address:?} is an address inside one process: nobody could reach it"))
        );
    }
    check(settings, &places, surroundings)
}

/// Reads the file of a node that runs in one process with others, and may listen inside that.
pub fn load_in_process(file: PathBuf) -> Result<NodeConfig, ConfigError> {
    let (settings, places) = layers::read(&NodeArgs::of_file(file), None, None)?;
    check(settings, &places, &Surroundings::of_process())
}

fn check(mut settings: Settings, places: &Places, surroundings: &Surroundings) -> Result<NodeConfig, ConfigError> {
    let data_dir = match &settings.data_dir {
        Some(directory) => directory.clone(),
        None => surroundings.default_data_dir()?,
    };
    check_addresses(&settings, places)?;
    let grid = grid(&settings, places, &data_dir)?;
    if settings.bootstrap.is_empty() {
        settings.bootstrap = grid.as_ref().map(|grid| grid.bootstrap.clone()).unwrap_or_default();
    }
    if grid.as_ref().is_none_or(|grid| grid.root.is_none()) {
        limit_strangers(&mut settings.policy);
    }
    let name = name(&settings, places, &data_dir, grid.as_ref(), surroundings)?;
    let machine_name = surroundings.host_name.as_deref().unwrap_or(&name);
    let mut hosts = hosts(&settings, places, machine_name, &data_dir)?;
    let pricing = pricing(&settings, places, &mut hosts)?;
    let calendar = calendar(&settings, places)?;
    check_programs(&mut settings, places)?;
    check_runner(&settings, places)?;
    if let Some(contact) = &settings.contact {
        contact::check(contact).map_err(|error| places.wrong("contact", error))?;
    }
    EnvFilter::try_new(&settings.log.filter).map_err(|error| places.wrong("log.filter", error))?;
    let sites_max = discovery::Limits::default().sites_max;
    within(places, "gossip.asked_when_met", settings.gossip.asked_when_met, 1, sites_max)?;
    let activation_log = settings.activation.log.clone().unwrap_or_else(|| data_dir.join(ACTIVATION_LOG_FILE));
    settings.data_dir = Some(data_dir.clone());
    settings.grid = grid.as_ref().map(|grid| grid.id.clone());
    settings.name = Some(name.clone());
    settings.activation.log = Some(activation_log.clone());
    check_batches(&settings.batch, places)?;
    let ledger = ledger(&settings.ledger, settings.activation.early.unwrap_or(Span(0)), places)?;
    let mut policy = policy(&settings.policy, places)?;
    let spans = calendar.spans(reach_of(&policy, &ledger), unix_time());
    policy.spans = spans.map_err(|error| places.wrong("offered", too_many_spans(&error)))?;
    Ok(NodeConfig {
        data_dir,
        name,
        grid,
        remote: remote(&settings, places)?,
        hosts,
        pricing,
        negotiation: negotiation(&settings, places)?,
        ledger,
        policy,
        calendar,
        activation_log,
        search_path: surroundings.search_path.clone(),
        settings,
    })
}

fn within<T: Copy + PartialOrd + std::fmt::Display>(
    places: &Places,
    key: &str,
    value: T,
    least: T,
    most: T,
) -> Result<(), ConfigError> {
    if value < least || value > most {
        return Err(places.wrong(key, format!("expected {least} to {most}, got {value}")));
    }
    Ok(())
}

fn check_addresses(settings: &Settings, places: &Places) -> Result<(), ConfigError> {
    let lists = [("listen", &settings.listen), ("announce", &settings.announce), ("bootstrap", &settings.bootstrap)];
    for (key, addresses) in lists {
        if addresses.len() > ADDRESSES_MAX {
            return Err(places.wrong(key, format!("at most {ADDRESSES_MAX} addresses")));
        }
        for text in addresses {
            text.parse::<Multiaddr>().map_err(|error| {
                let expected = "expected one such as /ip4/192.0.2.1/tcp/4001";
                places.wrong(key, format!("{text:?} is no multiaddr ({error}): {expected}"))
            })?;
        }
    }
    for text in &settings.dial_ranges {
        let parsed = text.parse::<AddressBlock>();
        parsed.map_err(|error| places.wrong("dial_ranges", format!("{text:?}: {error}")))?;
    }
    if settings.listen.is_empty() {
        return Err(places.wrong("listen", "expected at least one address"));
    }
    if let Some(api) = settings.api.filter(|api| !api.ip().is_loopback()) {
        return Err(places.wrong(
            "api",
            format!(
                "{api} is no loopback address: the API is for users of this machine only; expected 127.0.0.1 or [::1]. For \
                 browsers of other machines see [remote]"
            ),
        ));
    }
    Ok(())
}

fn grid(settings: &Settings, places: &Places, data_dir: &Path) -> Result<Option<GridFile>, ConfigError> {
    if let Some(grid) = &settings.grid {
        GridId::new(grid).map_err(|error| places.wrong("grid", error))?;
    }
    match (settings.grid.clone(), GridFile::load(data_dir)?) {
        (Some(grid), Some(kept)) if grid != kept.id => {
            let message = format!(
                "{} belongs to grid {}: use another data directory for grid {grid}",
                data_dir.display(),
                kept.id
            );
            Err(places.wrong("grid", message))
        }
        (_, Some(kept)) => Ok(Some(kept)),
        (Some(grid), None) => Ok(Some(GridFile::new(grid, None, Vec::new()))),
        (None, None) if settings.bootstrap.is_empty() => Ok(None),
        (None, None) => Err(ConfigError::BootstrapWithoutGrid {
            place: places.written("bootstrap").unwrap_or("bootstrap").to_owned(),
        }),
    }
}

/// The configured name, else the one that the site was invited by, else that of the machine.
fn name(
    settings: &Settings,
    places: &Places,
    data_dir: &Path,
    grid: Option<&GridFile>,
    surroundings: &Surroundings,
) -> Result<String, ConfigError> {
    let is_name =
        |text: &String| !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control);
    if let Some(name) = &settings.name {
        return if is_name(name) {
            Ok(name.clone())
        } else {
            Err(places.wrong("name", format!("expected 1 to {NAME_BYTES_MAX} bytes without control characters")))
        };
    }
    let invited = match grid {
        Some(grid) => Wallet::at(data_dir).site_name(grid)?,
        None => None,
    };
    let known = invited.into_iter().chain(surroundings.host_name.clone()).find(is_name);
    Ok(known.unwrap_or_else(|| "site".to_owned()))
}

fn hosts(
    settings: &Settings,
    places: &Places,
    machine_name: &str,
    data_dir: &Path,
) -> Result<Vec<OwnHost>, ConfigError> {
    let written = |keys: &[&'static str]| keys.iter().find_map(|key| Some((*key, places.written(key)?)));
    let (file, tables) = (written(&["hosts_file"]), written(&["hosts"]));
    let machine = written(&["machine.share", "machine.attributes"]);
    if let (Some((_, file)), Some((key, _))) = (file, tables) {
        return Err(places.wrong(key, format!("hosts are listed in {file} already: name one of the two")));
    }
    if let (Some((_, listed)), Some((key, _))) = (file.or(tables), machine) {
        let message = format!("hosts are listed in {listed}, so this machine is not offered: name one of the two");
        return Err(places.wrong(key, message));
    }
    if let Some(file) = &settings.hosts_file {
        return hosts::from_snapshot(file);
    }
    if let (Some(tables), Some((_, place))) = (&settings.hosts, tables) {
        return hosts::from_tables(tables, place);
    }
    let id = HostId::new(machine_name).map_err(|error| ConfigError::Machine(error.to_string()))?;
    let host = machine::detect(id, settings.machine.share, &settings.machine.attributes, data_dir)?;
    let hosts = vec![OwnHost { host, own_work: Schedule::default(), class: None }];
    hosts::check(&hosts, places.written("machine.attributes").unwrap_or("this machine"))?;
    Ok(hosts)
}

/// The prices of the tables, given to their hosts.
fn pricing(settings: &Settings, places: &Places, hosts: &mut [OwnHost]) -> Result<Pricing, ConfigError> {
    within(places, "price_reach", settings.price_reach.0, PRICE_REACH.start().0, PRICE_REACH.end().0)
        .map_err(|_| places.wrong("price_reach", "expected 1d to 366d"))?;
    let tables = settings.price.as_deref().unwrap_or_default();
    let pricing = Pricing::new(tables, settings.price_reach, hosts, places.written("price").unwrap_or("price"))?;
    if !pricing.is_empty() {
        let mut tariffs = pricing.tariffs(hosts.iter().map(|own| &own.host.id), unix_time());
        for own in &mut *hosts {
            // One that no table names has the prices of the file of hosts.
            if let Some(tariff) = tariffs.remove(&own.host.id) {
                own.host.tariff = tariff;
            }
        }
    }
    match too_many_steps(hosts.iter().map(|own| &own.host.tariff)) {
        Some(message) => Err(places.wrong(if pricing.is_empty() { "hosts_file" } else { "price" }, message)),
        None => Ok(pricing),
    }
}

/// When hosts are offered.
fn calendar(settings: &Settings, places: &Places) -> Result<Calendar, ConfigError> {
    let tables = settings.offered.as_deref().unwrap_or_default();
    Calendar::new(tables, places.written("offered").unwrap_or("offered"))
}

/// How far ahead that must be known.
fn reach_of(policy: &OwnerPolicy, ledger: &LedgerLimits) -> Span {
    policy.max_reach.unwrap_or(ledger.farthest_future).min(ledger.farthest_future)
}

fn longer(places: &Places, key: &str, value: Millis, than_key: &str, than: Millis) -> Result<(), ConfigError> {
    if value > than {
        return Ok(());
    }
    let message = format!("{key} ({}) must be longer than {than_key} ({})", shown(value), shown(than));
    Err(places.wrong(key, message))
}

fn shown(millis: Millis) -> String {
    millis.write().as_ref().and_then(toml::Value::as_str).unwrap_or_default().to_owned()
}

fn negotiation(settings: &Settings, places: &Places) -> Result<NegotiationSettings, ConfigError> {
    let (coordinator, planner, hold_max) = (&settings.negotiation, &settings.planner, settings.ledger.hold_max);
    if planner.m_init == 0 {
        return Err(places.wrong("planner.m_init", "expected at least 1"));
    }
    if planner.m_max < planner.m_init || planner.m_max > MULTIPLIER_MAX {
        let message = format!("expected m_init ({}) to {MULTIPLIER_MAX}, got {}", planner.m_init, planner.m_max);
        return Err(places.wrong("planner.m_max", message));
    }
    // Holding and confirming each wait for answers while the hold runs.
    let answer_timeout = coordinator.answer_timeout;
    let twice = Millis(answer_timeout.0.saturating_mul(2));
    longer(places, "negotiation.hold", coordinator.hold, "twice negotiation.answer_timeout", twice)?;
    // Else answers to one check would still be waited for when the next begins.
    for (key, value) in
        [("negotiation.patience", coordinator.patience), ("negotiation.check_min", coordinator.check_min)]
    {
        longer(places, key, value, "negotiation.answer_timeout", answer_timeout)?;
    }
    if hold_max < coordinator.hold {
        let (most, hold) = (shown(hold_max), shown(coordinator.hold));
        let message = format!("ledger.hold_max ({most}) must not be below negotiation.hold ({hold})");
        return Err(places.wrong("ledger.hold_max", message));
    }
    within(places, "negotiation.attempts", coordinator.attempts, 1, ATTEMPTS_MAX)?;
    Ok(NegotiationSettings {
        planner: phases::Settings {
            effort: planner.effort,
            m_init: planner.m_init,
            m_max: planner.m_max,
            default_reach: planner.default_reach,
            spread: planner.spread,
        },
        check_min: coordinator.check_min,
        check_max: coordinator.check_max,
        lost_after: coordinator.lost_after,
        hold_for: coordinator.hold,
        answer_timeout,
        patience: coordinator.patience,
        max_attempts: coordinator.attempts,
        ..NegotiationSettings::default()
    })
}

/// Seats are bound `early`, when the hook starts them.
fn ledger(settings: &LedgerSettings, early: Span, places: &Places) -> Result<LedgerLimits, ConfigError> {
    let (all, each) = (settings.max_holds, settings.max_holds_per_entry_point);
    within(places, "ledger.max_holds", all, 1, HOLDS_MAX)?;
    if each == 0 || each > all {
        let message = format!("expected 1 to ledger.max_holds ({all}), got {each}");
        return Err(places.wrong("ledger.max_holds_per_entry_point", message));
    }
    let default = LedgerLimits::default();
    Ok(LedgerLimits {
        max_holds: all,
        max_holds_per_entry_point: each,
        farthest_future: settings.farthest_future,
        bound_before: early,
        hold_max: settings.hold_max,
        // An attempt must be remembered longer than any hold of it could have lasted.
        tombstone_life: default.tombstone_life.max(settings.hold_max + default.hold_max),
        ..default
    })
}

/// In an open grid anybody may book, so what the owner has not written is limited.
fn limit_strangers(policy: &mut PolicySettings) {
    let limits = OwnerPolicy::of_open_grid();
    policy.max_duration = policy.max_duration.or(limits.max_duration);
    policy.max_reach = policy.max_reach.or(limits.max_reach);
    policy.site_share = policy.site_share.or(limits.site_share_percent.and_then(Percent::new));
}

fn policy(settings: &PolicySettings, places: &Places) -> Result<OwnerPolicy, ConfigError> {
    if settings.allow.as_ref().is_some_and(BTreeSet::is_empty) {
        let message = "nobody could book: name somebody, or leave the key out to allow everybody";
        return Err(places.wrong("policy.allow", message));
    }
    let nobody = BTreeSet::new();
    for (key, users) in [("policy.allow", settings.allow.as_ref().unwrap_or(&nobody)), ("policy.deny", &settings.deny)]
    {
        if users.len() > USERS_MAX {
            return Err(places.wrong(key, format!("at most {USERS_MAX} users")));
        }
        if let Some(user) = users.iter().find(|user| user.trim().is_empty() || user.chars().any(char::is_control)) {
            let message = format!("{user:?} is no user: expected a name, a key, or the first 16 digits of one");
            return Err(places.wrong(key, message));
        }
    }
    let limits = [
        ("policy.max_holds", settings.max_holds.map(u64::from)),
        ("policy.max_reservations", settings.max_reservations.map(u64::from)),
        ("policy.max_host_hours", settings.max_host_hours),
        ("policy.max_credits", settings.max_credits.map(u64::from)),
    ];
    if let Some((key, _)) = limits.into_iter().find(|(_, limit)| *limit == Some(0)) {
        return Err(places.wrong(key, "expected at least 1"));
    }
    Ok(OwnerPolicy {
        allow: settings.allow.clone(),
        deny: settings.deny.clone(),
        max_duration: settings.max_duration,
        max_reach: settings.max_reach,
        spans: None,
        user_share_percent: settings.user_share.iter().map(|(name, share)| (name.clone(), share.number())).collect(),
        site_share_percent: settings.site_share.map(Percent::number),
        limits: Limits {
            max_holds: settings.max_holds,
            max_reservations: settings.max_reservations,
            max_host_hours: settings.max_host_hours,
            max_credits: settings.max_credits,
            ..OwnerPolicy::default().limits
        },
        quality_loss_percent: settings.quality_loss.0,
        quality_horizon: settings.quality_horizon,
        publishes_bookings: settings.tell_bookings,
    })
}

/// The owner's hook and feed, and when they run.
fn check_programs(settings: &mut Settings, places: &Places) -> Result<(), ConfigError> {
    check_program(places, "activation.hook", &settings.activation.hook)?;
    within(places, "activation.tries", settings.activation.tries, 0, TRIES_MAX)?;
    if settings.activation.early.is_some_and(|early| early > EARLY_MAX) {
        return Err(places.wrong("activation.early", "expected at most 24h"));
    }
    check_program(places, "notices.command", &settings.notices.command)?;
    within(places, "notices.tries", settings.notices.tries, 0, TRIES_MAX)?;
    if settings.notices.url.is_some() && !settings.notices.command.0.is_empty() {
        return Err(places.wrong("notices.url", "there is notices.command already: name one of the two"));
    }
    check_program(places, "local.feed", &settings.local.feed)?;
    if settings.local.every.as_secs() < FEED_EVERY_MIN_S {
        return Err(places.wrong("local.every", "expected at least 1s"));
    }
    // Work counts for up to twice the reach.
    let longest = Span(settings.ledger.farthest_future.0 / 2);
    if places.written("local.reach").is_none() {
        settings.local.reach = settings.local.reach.min(longest);
    } else if !(Span(60)..=longest).contains(&settings.local.reach) {
        return Err(places.wrong("local.reach", "expected 1min to half of ledger.farthest_future"));
    }
    Ok(())
}

/// What runs commands. Whether this machine can is found when the node starts.
fn check_runner(settings: &Settings, places: &Places) -> Result<(), ConfigError> {
    if let Some(path) = settings.runner_paths.iter().find(|path| !Path::new(path).is_absolute() || path.contains('\0'))
    {
        return Err(places.wrong("runner_paths", format!("{path:?} is no absolute path")));
    }
    let images = settings.runner_images.len();
    if images > IMAGES_MAX {
        return Err(
            places.wrong("runner_images", format!("{images} images, and at most {IMAGES_MAX} can be told to others"))
        );
    }
    for image in &settings.runner_images {
        check_image_name(image).map_err(|error| places.wrong("runner_images", error))?;
    }
    if let Some(store) = settings.runner_image_store.as_ref().filter(|store| !store.is_absolute()) {
        return Err(places.wrong("runner_image_store", format!("{store:?} is no absolute path")));
    }
    within(places, "runner_processes", settings.runner_processes, 1, RUNNER_PROCESSES_MAX)?;
    within(places, "runner_spool_mib", settings.runner_spool_mib, RUNNER_SPOOL_MIB_MIN, RUNNER_SPOOL_MIB_MAX)
}

fn check_batches(settings: &BatchSettings, places: &Places) -> Result<(), ConfigError> {
    if settings.every.is_some_and(|every| every < BATCH_EVERY_MIN) {
        return Err(places.wrong("batch.every", "expected at least 1s"));
    }
    policy_named(&settings.policy).map(drop).map_err(|error| places.wrong("batch.policy", error))
}

fn check_program(places: &Places, key: &str, Program(words): &Program) -> Result<(), ConfigError> {
    let Some(program) = words.first() else { return Ok(()) };
    if words.len() > PROGRAM_WORDS_MAX || words.iter().any(|word| word.contains('\0')) {
        return Err(places.wrong(key, format!("expected a program and at most {} arguments", PROGRAM_WORDS_MAX - 1)));
    }
    let metadata = fs::metadata(program).map_err(|error| places.wrong(key, format!("{program}: {error}")))?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(places.wrong(key, format!("{program} is no program: expected a file that may be run (chmod +x)")));
    }
    Ok(())
}

/// There is no way to offer the API to other machines without a certificate.
fn remote(settings: &Settings, places: &Places) -> Result<Option<RemoteConfig>, ConfigError> {
    let remote = &settings.remote;
    let Some(address) = remote.listen else {
        let alone = ["remote.cert", "remote.key"].into_iter().find(|key| places.written(key).is_some());
        return alone.map_or(Ok(None), |key| Err(places.wrong(key, "is of no use without remote.listen")));
    };
    let (Some(cert), Some(key)) = (remote.cert.clone(), remote.key.clone()) else {
        let message = "wants remote.cert and remote.key: other machines are served over TLS only";
        return Err(places.wrong("remote.listen", message));
    };
    let is_name = |name: &String| {
        !name.is_empty() && name.len() < 256 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
    };
    if remote.names.len() > REMOTE_NAMES_MAX || !remote.names.iter().all(is_name) {
        let message = format!("expected at most {REMOTE_NAMES_MAX} host names such as kolo.example.org");
        return Err(places.wrong("remote.names", message));
    }
    Ok(Some(RemoteConfig { address, cert, key, names: remote.names.clone() }))
}
