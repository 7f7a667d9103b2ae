//! The hosts of the site: from `[[hosts]]` tables or from a snapshot.
//!
//! Invariant: ids of hosts and classes are unique in the site, and there is at least one host. Amounts are read as people
//! write them. A class (`count`) is its hosts.

use std::{collections::BTreeMap, collections::BTreeSet, path::Path};

use broker::{
    classes::{ClassError, hosts_of_class},
    host::Host,
    ids::HostId,
    resources::{Amounts, Attributes, ResourceName},
    schedule::Schedule,
    snapshot::GridSnapshot,
};
use discovery::check::{HOSTS_PER_SITE_MAX, check_host};
use kolo_text::{
    document::{self, DocumentError, Written},
    resource,
    speed::written_speed,
};
use serde::Deserialize;
use toml::Value;

use super::error::ConfigError;

/// One `[[hosts]]` table: a host, or a class of like hosts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostTable {
    /// The host's name, unique in the site.
    pub id: HostId,
    /// Capacities, such as `cpu = "2.5"` or `memory = "4GiB"`.
    #[serde(default)]
    pub resources: BTreeMap<ResourceName, Written>,
    #[serde(default)]
    pub attributes: Attributes,
    /// Times the reference speed, such as `1.5`.
    pub speed: Option<serde_json::Value>,
    /// So many hosts that are alike; without it, one.
    pub count: Option<u64>,
}

impl HostTable {
    /// Its keys as they are written, each with its meaning.
    pub fn written(&self) -> Vec<(&'static str, Value, &'static str)> {
        let resources = self.resources.iter().map(|(name, written)| {
            let value = match written {
                Written::Integer(number) => Value::Integer(*number),
                Written::Text(text) => Value::String(text.clone()),
            };
            (name.to_string(), value)
        });
        let attributes = self.attributes.iter().map(|(key, value)| (key.clone(), Value::String(value.clone())));
        let mut written = vec![
            ("id", Value::String(self.id.to_string()), "Its name, unique in the site."),
            ("resources", Value::Table(resources.collect()), "Capacities: cpu in cores, memory and disk with units."),
            ("attributes", Value::Table(attributes.collect()), "Qualitative properties. Default: none."),
        ];
        let speed = self.speed.as_ref().and_then(|speed| Value::try_from(speed).ok());
        written.extend(speed.map(|speed| ("speed", speed, "Times the reference speed. Default: 1.")));
        let count = self.count.and_then(|count| Value::try_from(count).ok());
        written.extend(
            count.map(|count| ("count", count, "So many hosts that are alike: ID-1, ID-2, ... Default: one host.")),
        );
        written
    }
}

/// One host of the site.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnHost {
    pub host: Host,
    /// The owner's own work, which Kolo plans around.
    pub own_work: Schedule,
    /// The class that it is one of.
    pub class: Option<HostId>,
}

/// Makes hosts of tables. `place` says where they are written.
///
/// # Errors
/// [`ConfigError::Value`] when an amount is malformed or an id is used twice.
pub fn from_tables(tables: &[HostTable], place: &str) -> Result<Vec<OwnHost>, ConfigError> {
    let wrong = |host: &HostId, key: &str, message: String| ConfigError::Value {
        place: format!("{place}: host {host}{key}"),
        message,
    };
    let mut ids = BTreeSet::new();
    let mut hosts = Vec::new();
    for table in tables {
        let members = members(table, hosts.len()).map_err(|error| wrong(&table.id, ": count", error.to_string()))?;
        if let Some(id) = [&table.id].into_iter().chain(&members).find(|id| !ids.insert((*id).clone())) {
            return Err(wrong(id, "", "the id is used twice".to_owned()));
        }
        let mut capacity = Amounts::new();
        for (name, written) in &table.resources {
            if let Some(common) = resource::common_named(name.as_str()).filter(|common| *common != name.as_str()) {
                return Err(wrong(
                    &table.id,
                    &format!(": resources.{name}"),
                    format!("say {common}: so users ask for it"),
                ));
            }
            let amount =
                written.amount(name).map_err(|message| wrong(&table.id, &format!(": resources.{name}"), message))?;
            capacity.insert(name.clone(), amount);
        }
        let speed = table.speed.as_ref().map(written_speed).transpose();
        let speed = speed.map_err(|message| wrong(&table.id, ": speed", message))?.unwrap_or_default();
        let (id, attributes) = (table.id.clone(), table.attributes.clone());
        let host = Host { id, capacity, attributes, speed, tariff: Default::default() };
        let class = table.count.map(|_| host.id.clone());
        let own = |host| OwnHost { host, own_work: Schedule::default(), class: class.clone() };
        if table.count.is_none() {
            hosts.push(own(host));
        } else {
            hosts.extend(members.into_iter().map(|id| own(Host { id, ..host.clone() })));
        }
    }
    check(&hosts, place)?;
    Ok(hosts)
}

/// The hosts of a class beside so many others; none of a table of one host.
fn members(table: &HostTable, others: usize) -> Result<Vec<HostId>, ClassError> {
    let most = HOSTS_PER_SITE_MAX.saturating_sub(others);
    table.count.map_or(Ok(Vec::new()), |count| hosts_of_class(&table.id, count, most))
}

/// Reads a snapshot of this site's hosts; its `site` labels play no role.
///
/// # Errors
/// [`ConfigError`] when the file cannot be read or is no snapshot.
pub fn from_snapshot(file: &Path) -> Result<Vec<OwnHost>, ConfigError> {
    let text = document::read_text(file)?;
    let snapshot = GridSnapshot::read(&text).map_err(|error| DocumentError::about(file, "", error))?;
    if let Some(closed) = snapshot.hosts.iter().find(|entry| entry.schedule.closed().is_some()) {
        let place = format!("{}: host {}: offered", file.display(), closed.host.id);
        let message = "when hosts are offered is written in [[offered]] tables, for all hosts of the site".to_owned();
        return Err(ConfigError::Value { place, message });
    }
    let hosts: Vec<_> = snapshot
        .hosts
        .into_iter()
        .map(|entry| OwnHost { host: entry.host, own_work: entry.schedule, class: None })
        .collect();
    check(&hosts, &file.display().to_string())?;
    Ok(hosts)
}

/// Whether other sites will take such an offer. `place` says where it is written.
///
/// # Errors
/// [`ConfigError::Value`] when there are no hosts, too many, or one of them has names or amounts beyond the limits.
pub fn check(hosts: &[OwnHost], place: &str) -> Result<(), ConfigError> {
    let wrong = |message| ConfigError::Value { place: place.to_owned(), message };
    if hosts.is_empty() || hosts.len() > HOSTS_PER_SITE_MAX {
        return Err(wrong(format!("expected 1 to {HOSTS_PER_SITE_MAX} hosts, got {}", hosts.len())));
    }
    hosts.iter().try_for_each(|own| check_host(&own.host)).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use broker::host::Speed;
    use kolo_text::document::Syntax;

    use super::*;

    #[derive(Deserialize)]
    struct Tables {
        hosts: Vec<HostTable>,
    }

    fn read(text: &str) -> Result<Vec<OwnHost>, String> {
        let tables: Tables =
            document::parse(Path::new("site.toml"), text, Syntax::Toml).map_err(|error| error.to_string())?;
        from_tables(&tables.hosts, "site.toml: hosts").map_err(|error| error.to_string())
    }

    #[test]
    fn tables_take_texts_with_units() {
        let hosts = read(
            "[[hosts]]\nid = \"h1\"\nresources = { cpu = \"2.5\", memory = \"4GiB\", mhz = 2400, gpu = \"2\" }\n\
             attributes = { arch = \"x86_64\" }\nspeed = 1.5\n[[hosts]]\nid = \"h2\"",
        )
        .unwrap();
        let host = &hosts[0].host;
        let capacity: Vec<_> = host.capacity.iter().map(|(name, amount)| (name.as_str(), amount.0)).collect();
        assert_eq!(capacity, [("cpu", 2500), ("gpu", 2), ("memory", 4096), ("mhz", 2400)]);
        assert_eq!((host.speed.thousandths(), hosts[1].host.speed), (1500, Speed::REFERENCE));
    }

    #[test]
    fn a_class_is_its_hosts() {
        let hosts = read(
            "[[hosts]]\nid = \"n\"\ncount = 3\nresources = { cpu = \"2\" }\n[[hosts]]\nid = \"h\"\n\
             [[hosts]]\nid = \"m\"\ncount = 1",
        )
        .unwrap();
        let named: Vec<_> = hosts.iter().map(|own| own.host.id.as_str()).collect();
        assert_eq!(named, ["n-1", "n-2", "n-3", "h", "m-1"]);
        assert!(hosts[..3].iter().all(|own| own.host.capacity == hosts[0].host.capacity));
        let classes: Vec<_> = hosts.iter().map(|own| own.class.as_ref().map(HostId::as_str)).collect();
        assert_eq!(classes, [Some("n"), Some("n"), Some("n"), None, Some("m")]);
        assert_eq!(read("[[hosts]]\nid = \"n\"\ncount = 2048").unwrap().len(), 2048);
    }

    #[test]
    fn what_is_wrong_with_a_table_is_named() {
        for (text, expected) in [
            ("[[hosts]]\nid = \"h\"\nresources = { cpu = 4 }", "host h: resources.cpu: write \"4\" for cores"),
            ("[[hosts]]\nid = \"h\"\nresources = { memory = 4 }", "512MiB or 40GiB"),
            ("[[hosts]]\nid = \"h\"\nresources = { gpu = -1 }", "whole number of GPUs"),
            ("[[hosts]]\nid = \"h\"\nresources = { CPU = \"1\" }", "site.toml:3: hosts[0].resources"),
            ("[[hosts]]\nid = \"h\"\nspeeed = 1", "speeed"),
            ("[[hosts]]\nid = \"h\"\nspeed = 0", "host h: speed: \"0\": expected how many times"),
            ("[[hosts]]\nattributes = {}", "missing field `id`"),
            ("[[hosts]]\nid = \"h\"\n[[hosts]]\nid = \"h\"", "host h: the id is used twice"),
            ("hosts = []", "expected 1 to 2048 hosts, got 0"),
            ("[[hosts]]\nid = \"n\"\ncount = 0", "host n: count: expected 1 to 2048 hosts, got 0"),
            ("[[hosts]]\nid = \"n\"\ncount = 100000", "host n: count: expected 1 to 2048 hosts, got 100000"),
            ("[[hosts]]\nid = \"h\"\n[[hosts]]\nid = \"n\"\ncount = 2048", "host n: count: expected 1 to 2047 hosts"),
            ("[[hosts]]\nid = \"n\"\ncount = 2\n[[hosts]]\nid = \"n-2\"", "host n-2: the id is used twice"),
            ("[[hosts]]\nid = \"n\"\ncount = 2\n[[hosts]]\nid = \"n\"", "host n: the id is used twice"),
            ("[[hosts]]\nid = \"n-1\"\n[[hosts]]\nid = \"n\"\ncount = 2", "host n-1: the id is used twice"),
            (
                "[[hosts]]\nid = \"h\"\nattributes = { rack = \"a\\u0007\" }",
                "site.toml: hosts: host h: attribute \"rack\" = \"a\\u{7}\": expected at most 64 bytes before",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
