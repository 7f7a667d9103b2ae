//! Grid snapshots (`kolo-grid/3`, 2 and 1): all hosts of a grid with their schedules, as one JSON value.
//!
//! Invariant: host ids are unique in a snapshot (plans name hosts by id alone), an occupancy belongs to a resource that
//! its host has, and all amounts and times are in range. A use above the capacity is legal, since owners over-commit. A class of like hosts
//! (`count`) is read as its hosts, and written as them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    amount::Amount,
    classes::hosts_of_class,
    cost::Prices,
    document::{Misfit, read_object},
    host::{Host, Speed},
    ids::{HostId, SiteId},
    offered::{Offered, Spans},
    resources::{Amounts, Attributes, ResourceName},
    schedule::{Occupancy, Schedule, ScheduleError},
    tariff::Tariff,
    time::Time,
    uplinks::{Uplink, Uplinks},
};

/// Most hosts of all classes of a snapshot together.
const CLASS_HOSTS_MAX: usize = 100_000;

/// All hosts of a grid at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GridSnapshot {
    /// Sites that say more than which hosts they have.
    pub sites: Vec<SnapshotSite>,
    /// The hosts, in the order of the document.
    pub hosts: Vec<SnapshotHost>,
}

/// One site of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotSite {
    /// The site.
    pub id: SiteId,
    /// Its link to all others; without one there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<Uplink>,
}

/// One host of a snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotHost {
    /// The site that owns the host.
    pub site: SiteId,
    /// What the site says of the host.
    pub host: Host,
    /// What is reserved on it.
    pub schedule: Schedule,
}

/// What is wrong with a snapshot. Every text names the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Not JSON, a wrong `format`, or a key or value that the format does not know.
    #[error("{path}: {message}")]
    Malformed {
        /// Path of the offending key, such as `hosts[3].resources.cpu`; `.` is the document itself.
        path: String,
        /// What is wrong, with line and column.
        message: String,
    },
    /// Two hosts or classes have the same id.
    #[error("hosts[{index}].id: {host} is the id of an earlier host or class; ids are unique in a snapshot")]
    DuplicateHost {
        /// Position of the second host, from 0.
        index: usize,
        /// The id.
        host: HostId,
    },
    /// A capacity is above [`Amount::MAX`].
    #[error("host {host}: resources.{resource}: {amount} is larger than any amount ({max})", max = Amount::MAX.0)]
    CapacityTooLarge {
        /// The host.
        host: HostId,
        /// The resource.
        resource: ResourceName,
        /// What was given, in base units.
        amount: Amount,
    },
    /// An occupancy names a resource that its host does not have.
    #[error("host {host}: occupancy.{resource}: the host has no such resource")]
    UnknownResource {
        /// The host.
        host: HostId,
        /// The resource.
        resource: ResourceName,
    },
    /// The steps of an occupancy are not ascending, out of range or too many; the cause names resource and index.
    #[error("host {host}: occupancy.{error}")]
    Occupancy {
        /// The host.
        host: HostId,
        /// What is wrong.
        error: ScheduleError,
    },
    /// A site is listed twice.
    #[error("sites[{index}].id: {site} is the id of an earlier site")]
    DuplicateSite {
        /// Position of the second, from 0.
        index: usize,
        /// The id.
        site: SiteId,
    },
    /// An uplink's capacity is above [`Amount::MAX`].
    #[error("site {site}: uplink.mbps: {mbps} is larger than any amount ({max})", max = Amount::MAX.0)]
    UplinkTooLarge {
        /// The site.
        site: SiteId,
        /// What was given, in Mbit/s.
        mbps: Amount,
    },
}

/// The known values of `format`.
#[derive(PartialEq, Serialize, Deserialize)]
enum Format {
    #[serde(rename = "kolo-grid/1")]
    One,
    #[serde(rename = "kolo-grid/2")]
    Two,
    #[serde(rename = "kolo-grid/3")]
    Three,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadDocument {
    format: Format,
    #[serde(default)]
    sites: Vec<SnapshotSite>,
    hosts: Vec<ReadHost>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadHost {
    id: HostId,
    /// A class of so many like hosts; without it, one host.
    count: Option<u64>,
    site: SiteId,
    #[serde(default)]
    resources: Amounts,
    #[serde(default)]
    attributes: Attributes,
    #[serde(default)]
    speed: Speed,
    #[serde(default)]
    prices: Prices,
    /// Part of the first version, where nothing read it.
    price: Option<u32>,
    #[serde(default)]
    occupancy: BTreeMap<ResourceName, Vec<(Time, Amount)>>,
    /// When the host can be reserved; without it, always.
    offered: Option<Vec<(i64, i64)>>,
}

#[derive(Serialize)]
struct WrittenDocument<'a> {
    format: Format,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sites: &'a [SnapshotSite],
    hosts: Vec<WrittenHost<'a>>,
}

#[derive(Serialize)]
struct WrittenHost<'a> {
    id: &'a HostId,
    site: &'a SiteId,
    resources: &'a Amounts,
    attributes: &'a Attributes,
    #[serde(skip_serializing_if = "Speed::is_reference")]
    speed: Speed,
    #[serde(skip_serializing_if = "Prices::is_empty")]
    prices: &'a Prices,
    occupancy: &'a Schedule,
    #[serde(skip_serializing_if = "Option::is_none")]
    offered: Option<Vec<(i64, i64)>>,
}

impl GridSnapshot {
    /// Reads a document of any version. `resources`, `attributes`, `prices` and `occupancy` may be left out when they are
    /// empty; `price` of the first version is accepted there and not kept.
    ///
    /// # Errors
    /// [`SnapshotError`], which names the place and what was expected there.
    pub fn read(text: &str) -> Result<Self, SnapshotError> {
        let document: ReadDocument = read_object(text.as_bytes()).map_err(|Misfit { key, message, .. }| {
            let path = if key.is_empty() { ".".to_owned() } else { key };
            SnapshotError::Malformed { path, message }
        })?;
        let mut ids = BTreeSet::new();
        let mut hosts = Vec::with_capacity(document.hosts.len());
        let mut class_hosts_left = CLASS_HOSTS_MAX;
        for (index, read) in document.hosts.into_iter().enumerate() {
            let members = read.members(index, &document.format, &mut class_hosts_left)?;
            if let Some(host) = [&read.id].into_iter().chain(&members).find(|id| !ids.insert((*id).clone())) {
                return Err(SnapshotError::DuplicateHost { index, host: host.clone() });
            }
            let one = read.checked(index, &document.format)?;
            if members.is_empty() {
                hosts.push(one);
                continue;
            }
            hosts.extend(
                members.into_iter().map(|id| SnapshotHost { host: Host { id, ..one.host.clone() }, ..one.clone() }),
            );
        }
        check_sites(&document.sites)?;
        Ok(Self { sites: document.sites, hosts })
    }

    /// The links of its sites.
    #[must_use]
    pub fn uplinks(&self) -> Uplinks {
        self.sites.iter().filter_map(|site| Some((site.id.clone(), site.uplink.clone()?))).collect()
    }

    /// Writes the snapshot as one line of JSON that [`GridSnapshot::read`] reads as the same snapshot. Hosts keep their
    /// order, names inside a host are sorted.
    #[must_use]
    pub fn write(&self) -> String {
        let hosts = self.hosts.iter().map(|entry| WrittenHost {
            id: &entry.host.id,
            site: &entry.site,
            resources: &entry.host.capacity,
            attributes: &entry.host.attributes,
            speed: entry.host.speed,
            prices: &entry.host.tariff.prices,
            occupancy: &entry.schedule,
            offered: entry.schedule.closed().map(open_times),
        });
        let has_closed = self.hosts.iter().any(|entry| entry.schedule.closed().is_some());
        let format = if has_closed { Format::Three } else { Format::Two };
        let document = WrittenDocument { format, sites: &self.sites, hosts: hosts.collect() };
        serde_json::to_string(&document).expect("writing to a string cannot fail, and every map key is a string")
    }
}

/// The times from 0 on that are not closed.
fn open_times(closed: &Occupancy) -> Vec<(i64, i64)> {
    let mut open: Vec<(i64, i64)> = Vec::new();
    let mut since = Some(0);
    for (Time(time), closed) in closed.steps() {
        match since {
            None if closed == Amount::ZERO => since = Some(time),
            Some(from) if closed > Amount::ZERO => {
                open.extend((from < time).then_some((from, time)));
                since = None;
            }
            _ => {}
        }
    }
    open
}

fn check_sites(sites: &[SnapshotSite]) -> Result<(), SnapshotError> {
    let mut ids = BTreeSet::new();
    for (index, SnapshotSite { id, uplink }) in sites.iter().enumerate() {
        if !ids.insert(id) {
            return Err(SnapshotError::DuplicateSite { index, site: id.clone() });
        }
        if let Some(mbps) = uplink.as_ref().map(|link| link.mbps).filter(|mbps| *mbps > Amount::MAX) {
            return Err(SnapshotError::UplinkTooLarge { site: id.clone(), mbps });
        }
    }
    Ok(())
}

impl ReadHost {
    /// The hosts of the class; none of a single host.
    fn members(&self, index: usize, format: &Format, left: &mut usize) -> Result<Vec<HostId>, SnapshotError> {
        let Some(count) = self.count else { return Ok(Vec::new()) };
        let malformed = |message: String| SnapshotError::Malformed { path: format!("hosts[{index}].count"), message };
        if *format == Format::One {
            return Err(malformed("a key of the other version of the format".to_owned()));
        }
        let members = hosts_of_class(&self.id, count, *left).map_err(|error| malformed(error.to_string()))?;
        *left -= members.len();
        Ok(members)
    }

    fn checked(self, index: usize, format: &Format) -> Result<SnapshotHost, SnapshotError> {
        let of_other_version = match format {
            Format::One if !self.prices.is_empty() => Some("prices"),
            Format::Two | Format::Three if self.price.is_some() => Some("price"),
            Format::One | Format::Two if self.offered.is_some() => Some("offered"),
            _ => None,
        };
        if let Some(key) = of_other_version {
            let path = format!("hosts[{index}].{key}");
            return Err(SnapshotError::Malformed {
                path,
                message: "a key of the other version of the format".to_owned(),
            });
        }
        if !self.prices.is_in_order() {
            let path = format!("hosts[{index}].prices");
            let message = "the times of the steps do not rise, are out of range, or are more than 10,000".to_owned();
            return Err(SnapshotError::Malformed { path, message });
        }
        if let Some((resource, amount)) = self.resources.iter().find(|(_, amount)| **amount > Amount::MAX) {
            let resource = resource.clone();
            return Err(SnapshotError::CapacityTooLarge { host: self.id, resource, amount: *amount });
        }
        if let Some(resource) = self.occupancy.keys().find(|resource| !self.resources.contains_key(*resource)) {
            let resource = resource.clone();
            return Err(SnapshotError::UnknownResource { host: self.id, resource });
        }
        let mut schedule = Schedule::from_steps(&self.occupancy)
            .map_err(|error| SnapshotError::Occupancy { host: self.id.clone(), error })?;
        if let Some(spans) = self.offered {
            let spans = Spans::try_from(spans).map_err(|error| SnapshotError::Malformed {
                path: format!("hosts[{index}].offered"),
                message: error.to_string(),
            })?;
            let offered = Offered { spans: Some(Arc::new(spans)), ..Offered::default() };
            let mut closed = Occupancy::default();
            offered.closed(Time::ZERO).into_iter().for_each(|window| closed.add(window, Amount(1)));
            schedule.close(Some(Arc::new(closed)), None);
        }
        let Self { id, resources: capacity, attributes, speed, prices, .. } = self;
        Ok(SnapshotHost {
            site: self.site,
            host: Host { id, capacity, attributes, speed, tariff: Arc::new(Tariff { prices, ..Tariff::default() }) },
            schedule,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::{Span, Window};

    fn document(host: &str) -> String {
        format!(r#"{{"format":"kolo-grid/1","hosts":[{{"id":"h0","site":"s"}},{host}]}}"#)
    }

    #[test]
    fn the_example_of_the_format_is_read() {
        let text = r#"{"format":"kolo-grid/1","hosts":[
            {"id":"h1","site":"s1","resources":{"cpu":4000,"mhz":2680,"memory":3072},
             "attributes":{"arch":"x86_64","os":"linux"},"speed":1500,"price":7,
             "occupancy":{"cpu":[[0,1200],[300,900],[86400,0]],"memory":[[0,512]]}}]}"#;
        let snapshot = GridSnapshot::read(text).unwrap();
        let [entry] = &snapshot.hosts[..] else { panic!("one host expected, got {snapshot:?}") };
        let cpu = ResourceName::new("cpu").unwrap();
        assert_eq!(entry.site.as_str(), "s1");
        assert_eq!(entry.host.capacity[&cpu], Amount(4000));
        assert_eq!(entry.schedule.peak(&cpu, Window::starting(Time(200), Span(50))), Amount(1200));
        assert_eq!(entry.schedule.occupancy(&cpu).unwrap().len(), 3);
        assert_eq!(GridSnapshot::read(&snapshot.write()), Ok(snapshot));
    }

    #[test]
    fn the_second_version_is_read_and_written() {
        let text = r#"{"format":"kolo-grid/2","sites":[{"id":"s1","uplink":{"mbps":1000,"occupancy":[[0,0],[300,200]]}}],
            "hosts":[{"id":"h1","site":"s1","resources":{"cpu":1000},"speed":1250,"prices":{"cpu":6000},
                      "occupancy":{"cpu":[[0,1000],[60,0]]}},
                     {"id":"h2","site":"s1","prices":[[0,{"cpu":1}],[9,{}]]}]}"#;
        let snapshot = GridSnapshot::read(text).unwrap();
        assert_eq!(snapshot.hosts[0].host.speed.thousandths(), 1250);
        assert!(matches!(&snapshot.hosts[1].host.tariff.prices, Prices::From(steps) if steps.len() == 2));
        assert_eq!(GridSnapshot::read(&snapshot.write()), Ok(snapshot));
    }

    #[test]
    fn a_class_is_read_as_its_hosts() {
        let grid = |hosts: &str| GridSnapshot::read(&format!(r#"{{"format":"kolo-grid/2","hosts":[{hosts}]}}"#));
        let class = r#"{"id":"n","site":"s","count":3,"resources":{"cpu":1000},"occupancy":{"cpu":[[0,500]]}}"#;
        let snapshot = grid(class).unwrap();
        let ids: Vec<&str> = snapshot.hosts.iter().map(|entry| entry.host.id.as_str()).collect();
        assert_eq!(ids, ["n-1", "n-2", "n-3"]);
        assert!(snapshot.hosts.iter().all(|entry| entry.schedule == snapshot.hosts[0].schedule));
        assert_eq!(GridSnapshot::read(&snapshot.write()), Ok(snapshot));
        assert_eq!(grid(r#"{"id":"n","site":"s","count":100000}"#).unwrap().hosts.len(), 100_000);
        for (hosts, expected) in [
            (r#"{"id":"n","site":"s","count":0}"#.to_owned(), "hosts[0].count: expected 1 to 100000 hosts, got 0"),
            (r#"{"id":"n","site":"s","count":100001}"#.to_owned(), "hosts[0].count: expected 1 to 100000 hosts"),
            (format!(r#"{class},{{"id":"m","site":"s","count":99998}}"#), "hosts[1].count: expected 1 to 99997 hosts"),
            (format!(r#"{class},{{"id":"n-2","site":"s"}}"#), "hosts[1].id: n-2 is the id of an earlier"),
            (format!(r#"{class},{{"id":"n","site":"t"}}"#), "hosts[1].id: n is the id of an earlier"),
            (format!(r#"{{"id":"n-3","site":"s"}},{class}"#), "hosts[1].id: n-3 is the id of an earlier"),
            (format!(r#"{{"id":"{}","site":"s","count":1}}"#, "n".repeat(127)), "hosts[0].count: the names of"),
        ] {
            let error = grid(&hosts).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{hosts}: {error}");
        }
        assert!(GridSnapshot::read(&document(r#"{"id":"n","site":"s","count":2}"#)).is_err(), "of the first version");
    }

    #[test]
    fn the_times_of_owners_are_read_and_written() {
        let grid = |format: u32, host: &str| {
            GridSnapshot::read(&format!(
                r#"{{"format":"kolo-grid/{format}","hosts":[{{"id":"h","site":"s",{host}}}]}}"#
            ))
        };
        let snapshot = grid(3, r#""offered":[[10,20],[20,30],[40,50]]"#).unwrap();
        let is_open = |start, end| snapshot.hosts[0].schedule.is_open(Window { start: Time(start), end: Time(end) });
        assert!(is_open(10, 30) && is_open(40, 50) && !is_open(9, 10) && !is_open(29, 31) && !is_open(50, 51));
        assert!(snapshot.write().contains(r#""offered":[[10,30],[40,50]]"#));
        assert_eq!(GridSnapshot::read(&snapshot.write()), Ok(snapshot));
        assert!(!grid(3, r#""offered":[]"#).unwrap().hosts[0].schedule.is_open(Window::starting(Time(5), Span(1))));
        for (format, offered, expected) in [
            (2, "[[1,2]]", "hosts[0].offered: a key of the other version"),
            (3, "[[5,5]]", "hosts[0].offered: span 0 ends before it begins, or is empty (5 to 5)"),
            (3, "[[5,9],[3,4]]", "hosts[0].offered: span 1 begins at 3, before the end of the span before it (9)"),
            (3, "[[-5,9]]", "hosts[0].offered: span 0 is out of range"),
        ] {
            let error = grid(format, &format!(r#""offered":{offered}"#)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn what_is_optional_may_be_left_out_and_zero_capacities_are_legal() {
        let snapshot = GridSnapshot::read(&document(r#"{"id":"h1","site":"s","resources":{"cpu":0}}"#)).unwrap();
        assert!(snapshot.hosts[0].host.capacity.is_empty());
        assert_eq!(GridSnapshot::read(&snapshot.write()), Ok(snapshot));
        assert_eq!(GridSnapshot::read(r#"{"format":"kolo-grid/1","hosts":[]}"#), Ok(GridSnapshot::default()));
    }

    #[test]
    fn use_above_the_capacity_is_read_and_leaves_nothing_free() {
        let text = document(r#"{"id":"h1","site":"s","resources":{"cpu":5},"occupancy":{"cpu":[[0,9]]}}"#);
        let snapshot = GridSnapshot::read(&text).unwrap();
        let SnapshotHost { host, schedule, .. } = &snapshot.hosts[1];
        let amounts = Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(1))]);
        let window = Window::starting(Time(3), Span(4));
        assert_eq!(schedule.admits(&host.capacity, window, &amounts).unwrap_err().free, Amount::ZERO);
        assert_eq!(schedule.earliest_fit(&host.capacity, &amounts, Span(1), Time(0), Time(100)), None);
    }

    #[test]
    fn a_list_is_no_snapshot() {
        let error = GridSnapshot::read(r#"["kolo-grid/1",[]]"#).unwrap_err().to_string();
        assert!(error.starts_with(".: invalid type: a list, expected an object"), "{error}");
    }

    #[test]
    fn every_error_names_its_place() {
        for (host, expected) in [
            (r#"{"id":"h1","site":"s","speeed":1}"#, &["hosts[1]", "speeed"][..]),
            (r#"{"id":"h1","site":"s","resources":{"CPU":1}}"#, &["hosts[1].resources", "\"CPU\" is no resource name"]),
            (r#"{"id":"h1","site":"s","resources":{"cpu":-1}}"#, &["hosts[1].resources.cpu", "-1"]),
            (r#"{"id":"h1","site":"s","resources":{"cpu":1.5}}"#, &["hosts[1].resources.cpu", "1.5"]),
            (r#"{"id":"h1","site":"s","occupancy":{"cpu":[[0]]}}"#, &["hosts[1].occupancy.cpu[0]"]),
            (r#"{"id":"h1"}"#, &["hosts[1].site", "missing"]),
            (r#"["h1","s",{},{},1000,0,{}]"#, &["hosts[1]", "a list, expected an object"]),
            (r#"{"id":"","site":"s"}"#, &["hosts[1].id", "empty"]),
            (r#"{"id":"h0","site":"t"}"#, &["hosts[1].id", "h0"]),
            (r#"{"id":"h1","site":"s","occupancy":{"gpu":[]}}"#, &["host h1", "occupancy.gpu", "no such resource"]),
            (
                r#"{"id":"h1","site":"s","resources":{"cpu":281474976710656}}"#,
                &["host h1", "resources.cpu", "281474976710656"],
            ),
            (
                r#"{"id":"h1","site":"s","resources":{"cpu":1},"occupancy":{"cpu":[[0,281474976710656]]}}"#,
                &["host h1", "occupancy.cpu", "step 0", "281474976710656"],
            ),
            (
                r#"{"id":"h1","site":"s","resources":{"cpu":1},"occupancy":{"cpu":[[0,1],[5,2],[5,3]]}}"#,
                &["host h1", "occupancy.cpu", "step 2"],
            ),
            (
                r#"{"id":"h1","site":"s","resources":{"cpu":1},"occupancy":{"cpu":[[-1,1]]}}"#,
                &["host h1", "occupancy.cpu", "step 0", "-1"],
            ),
        ] {
            let error = GridSnapshot::read(&document(host)).unwrap_err().to_string();
            for part in expected {
                assert!(error.contains(part), "{host}: {error}");
            }
        }
    }

    #[test]
    fn documents_of_another_kind_are_refused() {
        for (text, expected) in [
            (r#"{"format":"kolo-grid/4","hosts":[],"new":1}"#, "format: unknown variant `kolo-grid/4`"),
            (r#"{"format":"kolo-grid/2","hosts":[],"new":1}"#, "new: unknown field `new`"),
            (r#"{"format":"kolo-grid/2","hosts":[{"id":"h","site":"s","price":1}]}"#, "hosts[0].price: "),
            (r#"{"format":"kolo-grid/1","hosts":[{"id":"h","site":"s","prices":{"cpu":1}}]}"#, "hosts[0].prices: "),
            (
                r#"{"format":"kolo-grid/2","hosts":[{"id":"h","site":"s","speed":0}]}"#,
                "hosts[0].speed: speed: expected",
            ),
            (
                r#"{"format":"kolo-grid/2","sites":[{"id":"s","uplink":{"mbps":1,"occupancy":[[5,0],[5,1]]}}],"hosts":[]}"#,
                "sites[0].uplink.occupancy: step 1: time 5",
            ),
            (r#"{"format":"kolo-grid/2","sites":[{"id":"s"},{"id":"s"}],"hosts":[]}"#, "sites[1].id: s is"),
            (
                r#"{"format":"kolo-grid/2","sites":[{"id":"s","uplink":{"mbps":281474976710656}}],"hosts":[]}"#,
                "site s: uplink.mbps: 281474976710656 is larger",
            ),
            (
                r#"{"format":"kolo-grid/2","hosts":[{"id":"h","site":"s","prices":{"cpu":-1}}]}"#,
                "hosts[0].prices.cpu: ",
            ),
            (
                r#"{"format":"kolo-grid/2","hosts":[{"id":"h","site":"s","prices":[[5,{}],[5,{}]]}]}"#,
                "hosts[0].prices: the times",
            ),
            (r#"{"hosts":[]}"#, "missing field `format`"),
            (r#"{"format":"kolo-grid/1"}"#, "missing field `hosts`"),
            (r#"{"format":"kolo-grid/1","hosts":[],"hots":1}"#, "hots"),
            (r#"{"format":"kolo-grid/1","hosts":[]} x"#, "trailing characters"),
            ("", "EOF"),
            ("[1", ""),
        ] {
            let error = GridSnapshot::read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(cut in 0_usize..200, replacement in "\\PC{0,4}") {
            let text = document(r#"{"id":"h1","site":"s","resources":{"cpu":1},"occupancy":{"cpu":[[0,1],[5,2]]}}"#);
            let cut = cut.min(text.len());
            let _ = GridSnapshot::read(&format!("{}{replacement}{}", &text[..cut], &text[(cut + 1).min(text.len())..]));
        }
    }
}
