//! Limits on what other sites publish, checked before anything is stored.
//!
//! Invariant: what passed here has bounded counts, lengths and amounts, and its windows are valid, so that the view can
//! use it without looking again. The limits on bytes (see `wire`) come first and bound the cost of decoding.

use broker::{
    amount::Amount,
    features::FEATURES_MAX,
    host::Host,
    protocol::{Advert, ClassChange, HostChange, LedgerVersion, ScheduleChange, ScheduleSnapshot, ScheduleUpdate},
    request::MAX_NAMES,
    resources::{Amounts, ResourceName},
    tariff::Tariff,
};
use libp2p::Multiaddr;

pub use crate::config::TIME_TO_LIVE_MAX;

/// Most hosts of a site.
pub const HOSTS_PER_SITE_MAX: usize = 2048;
/// Most bytes that describe the hosts of a site, when those of a class are told one by one.
const DESCRIBED_BYTES_MAX: usize = 2 << 20;
/// Most schedules of a site: those of the hosts, and that of the uplink.
pub const UNITS_PER_SITE_MAX: usize = HOSTS_PER_SITE_MAX + 1;
/// Longest name of a site, in bytes.
pub const SITE_NAME_BYTES_MAX: usize = 128;
/// Longest contact of a site, in bytes.
pub const CONTACT_BYTES_MAX: usize = 256;
/// Longest key of an attribute, in bytes.
pub const ATTRIBUTE_KEY_BYTES_MAX: usize = 64;
/// Longest value of an attribute, in bytes.
pub const ATTRIBUTE_VALUE_BYTES_MAX: usize = 128;
/// Most addresses of a site.
pub const ADDRESSES_MAX: usize = 16;
/// Longest address, in bytes.
const ADDRESS_BYTES_MAX: usize = 256;
/// Most changes in one update.
pub const CHANGES_MAX: usize = 1024;
/// Most steps of all schedules of one site when they are fetched; at 17 bytes each, 34 MiB. A site that has more tells the far future
/// coarsely.
pub const STEPS_PER_SITE_MAX: usize = 1 << 21;
/// Most of these once changes have come since.
pub const STEPS_KEPT_MAX: usize = STEPS_PER_SITE_MAX + STEPS_PER_SITE_MAX / 8;
/// A site with more steps than this is a large one.
pub const LARGE_SITE_STEPS: usize = 1 << 18;
/// Most steps of all large sites together, 270 MiB: beyond it the schedules of one more are not kept.
pub const STEPS_OF_LARGE_SITES_MAX: usize = 8 * STEPS_PER_SITE_MAX;
/// Most sets of amounts of classes in one part of the schedules of a site.
pub const USES_PER_PART_MAX: usize = 8192;
/// Largest number in a ledger version; far beyond any ledger, and far from overflow.
const VERSION_MAX: u64 = 1 << 53;

/// What breaks a limit, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(String);

impl Invalid {
    /// What is wrong, in words.
    pub(super) fn new(what: String) -> Invalid {
        Invalid(what)
    }

    /// Wrong in these words, unless it holds.
    pub(super) fn unless(holds: bool, what: impl FnOnce() -> String) -> Result<(), Invalid> {
        if holds { Ok(()) } else { Err(Invalid(what())) }
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Invalid> {
    Invalid::unless(holds, what)
}

fn is_clean(text: &str, bytes_max: usize) -> bool {
    text.len() <= bytes_max && !text.chars().any(char::is_control)
}

/// Checks an advert.
///
/// # Errors
/// [`Invalid`] names the limit that it breaks.
pub fn check_advert(advert: &Advert) -> Result<(), Invalid> {
    ensure(is_clean(&advert.name, SITE_NAME_BYTES_MAX), || {
        format!("site name: more than {SITE_NAME_BYTES_MAX} bytes, or control characters")
    })?;
    ensure(advert.contact.as_ref().is_none_or(|contact| is_clean(contact, CONTACT_BYTES_MAX)), || {
        format!("contact: more than {CONTACT_BYTES_MAX} bytes, or control characters")
    })?;
    ensure(advert.time_to_live_s <= u32::try_from(TIME_TO_LIVE_MAX.as_secs()).unwrap_or(u32::MAX), || {
        "time to live: more than a day".to_owned()
    })?;
    ensure(advert.sequence <= VERSION_MAX, || "sequence: out of range".to_owned())?;
    advert.hosts.check(HOSTS_PER_SITE_MAX).map_err(|error| Invalid(format!("hosts: {error}")))?;
    let is_link = |mbps: Amount| Amount::ZERO < mbps && mbps <= Amount::MAX;
    ensure(advert.uplink.is_none_or(is_link), || format!("uplink: expected 1 to {} Mbit/s", Amount::MAX.0))?;
    ensure(advert.features.len() <= FEATURES_MAX, || format!("more than {FEATURES_MAX} features"))?;
    ensure(advert.addresses.len() <= ADDRESSES_MAX, || format!("more than {ADDRESSES_MAX} addresses"))?;
    for address in &advert.addresses {
        ensure(address.len() <= ADDRESS_BYTES_MAX && address.parse::<Multiaddr>().is_ok(), || {
            "an address is too long or malformed".to_owned()
        })?;
    }
    advert.hosts.classes().iter().try_for_each(|class| check_host(&class.host))?;
    let described: usize = advert.hosts.classes().iter().map(|class| class.count() * bytes_of(&class.host)).sum();
    ensure(described <= DESCRIBED_BYTES_MAX, || format!("{described} bytes of hosts; at most {DESCRIBED_BYTES_MAX}"))
}

/// About as many bytes describe a host.
fn bytes_of(host: &Host) -> usize {
    let attributes = host.attributes.iter().map(|(key, value)| key.len() + value.len());
    let capacity = host.capacity.keys().map(|name| name.as_str().len() + size_of::<Amount>());
    host.id.as_str().len() + attributes.chain(capacity).sum::<usize>()
}

/// Checks a tariff: its prices are in order, and few enough, and its conditions can be met.
///
/// # Errors
/// [`Invalid`] names what is wrong.
pub fn check_tariff(tariff: &Tariff) -> Result<(), Invalid> {
    ensure(tariff.prices.is_in_order(), || "the steps of prices are out of order, or too many".to_owned())?;
    tariff.conditions.check().map_err(|error| Invalid(error.to_string()))
}

/// Checks a host of an advert.
///
/// # Errors
/// [`Invalid`] names the limit that it breaks.
pub fn check_host(host: &Host) -> Result<(), Invalid> {
    ensure(!host.id.is_uplink(), || format!("host {}: this name stands for the site's link to others", host.id))?;
    // Hooks and commands get the names of hosts in lists, and people write SITE/HOST.
    let splits = |part: char| part == ',' || part == '/' || part.is_whitespace();
    ensure(!host.id.as_str().contains(splits), || {
        format!("host {:?}: a comma, a blank or a / in a name would split it where hosts are listed", host.id.as_str())
    })?;
    let (id, mbps) = (&host.id, ResourceName::mbps());
    ensure(!host.capacity.contains_key(&mbps), || {
        format!("host {id}: the resource {} is of the uplink", mbps.as_str())
    })?;
    check_amounts(&host.capacity).map_err(|error| Invalid(format!("host {}: {error}", host.id)))?;
    ensure(host.attributes.len() <= MAX_NAMES, || format!("host {}: more than {MAX_NAMES} attributes", host.id))?;
    for (key, value) in &host.attributes {
        let is_good = is_clean(key, ATTRIBUTE_KEY_BYTES_MAX) && is_clean(value, ATTRIBUTE_VALUE_BYTES_MAX);
        ensure(is_good, || {
            format!(
                "host {}: attribute {key:?} = {value:?}: expected at most {ATTRIBUTE_KEY_BYTES_MAX} bytes before and \
                 {ATTRIBUTE_VALUE_BYTES_MAX} behind the =, without control characters",
                host.id
            )
        })?;
    }
    Ok(())
}

fn check_amounts(amounts: &Amounts) -> Result<(), Invalid> {
    ensure(amounts.len() <= MAX_NAMES && amounts.values().all(|amount| *amount <= Amount::MAX), || {
        format!("more than {MAX_NAMES} resources, or an amount above {}", Amount::MAX)
    })
}

/// Checks a version.
///
/// # Errors
/// [`Invalid`] when a number is out of range.
pub fn check_version(version: LedgerVersion) -> Result<(), Invalid> {
    ensure(version.incarnation <= VERSION_MAX && version.change <= VERSION_MAX, || "version: out of range".to_owned())
}

/// Checks an update of schedules.
///
/// # Errors
/// [`Invalid`] names the limit that it breaks.
pub fn check_update(update: &ScheduleUpdate) -> Result<(), Invalid> {
    check_version(update.from)?;
    ensure(update.changes.len() <= CHANGES_MAX, || format!("more than {CHANGES_MAX} changes"))?;
    for change in &update.changes {
        ensure(change.window().is_valid(), || format!("window {:?} is empty or out of range", change.window()))?;
        match change {
            ScheduleChange::Host(HostChange { amounts, .. }) => check_amounts(amounts)?,
            ScheduleChange::Class(ClassChange { hosts, before, after, .. }) => {
                check_amounts(before)?;
                check_amounts(after)?;
                ensure((1..=HOSTS_PER_SITE_MAX).contains(&(*hosts as usize)), || {
                    format!("{hosts} hosts of a class; expected 1 to {HOSTS_PER_SITE_MAX}")
                })?;
            }
        }
    }
    Ok(())
}

/// Checks fetched schedules.
///
/// # Errors
/// [`Invalid`] names the limit that they break.
pub fn check_snapshot(snapshot: &ScheduleSnapshot) -> Result<(), Invalid> {
    check_version(snapshot.version)?;
    let schedules = &snapshot.schedules;
    ensure(schedules.hosts().count() <= UNITS_PER_SITE_MAX, || {
        format!("schedules of more than {UNITS_PER_SITE_MAX} hosts")
    })?;
    let members = schedules.classes().map(|(_, class)| class.members.count as usize).fold(0, usize::saturating_add);
    ensure(members <= HOSTS_PER_SITE_MAX, || format!("classes of more than {HOSTS_PER_SITE_MAX} hosts"))?;
    for used in schedules.classes().flat_map(|(_, class)| class.used.uses()).map(|(used, _)| used) {
        check_amounts(used)?;
    }
    ensure(schedules.len() <= STEPS_PER_SITE_MAX, || format!("schedules of more than {STEPS_PER_SITE_MAX} steps"))
}

/// How many steps a schedule has, over all resources.
#[must_use]
pub fn steps_of(schedule: &broker::schedule::Schedule) -> usize {
    schedule.occupancies().map(|(_, occupancy)| occupancy.len()).sum()
}
