//! The hosts of each node and the requests, read or generated, on the time axis of the run.
//!
//! Invariant: all hosts of one site of a snapshot are at one node, and every node has at least one host.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use broker::{
    ids::{RequestId, SiteId},
    request::{Request, RequestDocument},
    resources::ResourceName,
    schedule::Schedule,
    snapshot::{GridSnapshot, SnapshotHost},
    time::{Span, Time},
};

use super::{
    args::{Checked, HostSource, RequestSource},
    error::UsageError,
};
use crate::generate;

/// What the run is about.
#[derive(Debug)]
pub struct Workload {
    /// The hosts of each node, those that come later last, with times relative to the start of the run.
    pub nodes: Vec<GridSnapshot>,
    /// The requests, with times relative to the start of the run.
    pub requests: Vec<Request>,
}

impl Workload {
    /// Reads or generates what the flags say.
    ///
    /// # Errors
    /// [`UsageError`] naming file, line and key.
    pub fn prepare(checked: &Checked) -> Result<Workload, UsageError> {
        let snapshot = match &checked.hosts {
            HostSource::Generated { hosts, free } => {
                let snapshot = generate::grid(checked.seed, *hosts);
                if *free { generate::without_load(snapshot) } else { snapshot }
            }
            HostSource::File(path) => GridSnapshot::read(&read(path)?)
                .map_err(|source| UsageError::Snapshot { path: path.clone(), source })?,
        };
        let mut requests = match &checked.requests {
            RequestSource::File(path) => read_requests(path, &read(path)?)?,
            RequestSource::Generated { count, hosts_per_request, kind } => {
                generate::requests(checked.seed, *hosts_per_request, *count, *kind, &snapshot)?
            }
        };
        requests.truncate(checked.limit);
        let sites = snapshot.hosts.iter().map(|entry| &entry.site).collect::<BTreeSet<_>>().len();
        match &checked.hosts {
            HostSource::File(path) if sites < checked.nodes => {
                Err(UsageError::FewerSitesThanNodes { path: path.clone(), nodes: checked.nodes, sites })
            }
            _ => {
                let hosts = snapshot.hosts.len();
                let mut nodes = deal(snapshot, checked.nodes);
                nodes.extend(newcomers(checked, hosts));
                Ok(Workload { nodes, requests })
            }
        }
    }

    /// Hosts of the first `nodes` nodes.
    pub fn hosts(&self, nodes: usize) -> usize {
        self.nodes.iter().take(nodes).map(|node| node.hosts.len()).sum()
    }
}

/// The hosts of the nodes that come later: drawn behind the `hosts` of the others, as many for each as those have.
fn newcomers(checked: &Checked, hosts: usize) -> Vec<GridSnapshot> {
    let each = hosts.div_ceil(checked.nodes);
    let all = hosts + each * checked.newcomers;
    let drawn = match checked.hosts {
        HostSource::Generated { free: true, .. } => generate::free_grid(checked.seed, all),
        HostSource::Generated { free: false, .. } | HostSource::File(_) => generate::grid(checked.seed, all),
    };
    drawn.hosts[hosts..].chunks(each).map(|hosts| GridSnapshot { hosts: hosts.to_vec() }).collect()
}

fn read(path: &Path) -> Result<String, UsageError> {
    fs::read_to_string(path).map_err(|source| UsageError::Read { path: path.to_owned(), source })
}

fn read_requests(path: &Path, text: &str) -> Result<Vec<Request>, UsageError> {
    let mut requests = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at = |message: String| UsageError::RequestLine { path: path.to_owned(), line: index + 1, message };
        let request: Request = serde_json::from_str(line).map_err(|error| at(error.to_string()))?;
        requests.push(if request.id().is_some() {
            request
        } else {
            let id = RequestId::new(&format!("line-{}", index + 1)).map_err(|error| at(error.to_string()))?;
            request.with_id(id)
        });
    }
    if requests.is_empty() { Err(UsageError::NoRequests { path: path.to_owned() }) } else { Ok(requests) }
}

/// Deals the sites to `nodes` nodes, the largest site first, each to the node with the fewest hosts so far.
pub fn deal(snapshot: GridSnapshot, nodes: usize) -> Vec<GridSnapshot> {
    let mut sites: BTreeMap<SiteId, Vec<SnapshotHost>> = BTreeMap::new();
    for entry in snapshot.hosts {
        sites.entry(entry.site.clone()).or_default().push(entry);
    }
    let mut sites: Vec<_> = sites.into_values().collect();
    sites.sort_by_key(|hosts| std::cmp::Reverse(hosts.len()));
    let mut dealt: Vec<GridSnapshot> = (0..nodes).map(|_| GridSnapshot { hosts: Vec::new() }).collect();
    for hosts in sites {
        if let Some(node) = dealt.iter_mut().min_by_key(|node| node.hosts.len()) {
            node.hosts.extend(hosts);
        }
    }
    dealt
}

/// The snapshot with every time moved by `by`.
pub fn shifted_snapshot(snapshot: &GridSnapshot, by: Span) -> GridSnapshot {
    let shift = |entry: &SnapshotHost| {
        let steps: BTreeMap<ResourceName, Vec<_>> = entry
            .schedule
            .occupancies()
            .map(|(name, occupancy)| {
                let steps = occupancy.steps().into_iter().map(|(t, used)| ((t + by).min(Time::MAX), used)).collect();
                (name.clone(), last_of_each_time(steps))
            })
            .collect();
        let schedule =
            Schedule::from_steps(&steps).expect("ascending times stay so when moved, and none passes the end of time");
        SnapshotHost { schedule, ..entry.clone() }
    };
    GridSnapshot { hosts: snapshot.hosts.iter().map(shift).collect() }
}

/// Steps that the shift pushed to the end of time fall on one moment there; the last one counts.
fn last_of_each_time<T>(steps: Vec<(Time, T)>) -> Vec<(Time, T)> {
    let mut kept: Vec<(Time, T)> = Vec::with_capacity(steps.len());
    for step in steps {
        if kept.last().is_some_and(|last| last.0 == step.0) {
            kept.pop();
        }
        kept.push(step);
    }
    kept
}

/// The request with its window moved by `by`.
pub fn shifted_request(request: &Request, by: Span) -> Request {
    let mut document = RequestDocument::from(request.clone());
    document.earliest = document.earliest.map(|t| (t + by).min(Time::MAX));
    document.latest = document.latest.map(|t| (t + by).min(Time::MAX));
    Request::try_from(document).expect("moving both ends of a checked window, up to the end of time, keeps their order")
}

#[cfg(test)]
mod tests {
    use broker::amount::Amount;

    use super::*;

    fn relabelled(hosts: usize, site_of: impl Fn(usize) -> usize) -> GridSnapshot {
        let mut snapshot = generate::grid(1, hosts);
        for (index, entry) in snapshot.hosts.iter_mut().enumerate() {
            entry.site = SiteId::new(&format!("s{}", site_of(index))).unwrap();
        }
        snapshot
    }

    #[test]
    fn sites_stay_together_and_nodes_get_even_shares() {
        // 40 sites with 1 host and 10 with 3.
        let snapshot = relabelled(70, |index| if index < 40 { index } else { 40 + (index - 40) / 3 });
        let nodes = deal(snapshot.clone(), 7);
        assert!(nodes.iter().all(|node| node.hosts.len() == 10), "{:?}", nodes.iter().map(|n| n.hosts.len()));
        let mut home = BTreeMap::new();
        for (index, node) in nodes.iter().enumerate() {
            for entry in &node.hosts {
                assert_eq!(*home.entry(entry.site.clone()).or_insert(index), index, "{} is split", entry.site);
            }
        }
        assert_eq!(home.len(), 50);
        let mut ids: Vec<_> =
            nodes.iter().flat_map(|node| node.hosts.iter().map(|entry| entry.host.id.clone())).collect();
        ids.sort();
        let mut expected: Vec<_> = snapshot.hosts.iter().map(|entry| entry.host.id.clone()).collect();
        expected.sort();
        assert_eq!(ids, expected);
        assert!(deal(relabelled(30, |index| index), 30).iter().all(|node| node.hosts.len() == 1));
    }

    #[test]
    fn shifting_moves_occupancy_and_windows_alike() {
        let snapshot = generate::grid(2, 3);
        let by = Span(1_700_000_000);
        let shifted = shifted_snapshot(&snapshot, by);
        for (before, after) in snapshot.hosts.iter().zip(&shifted.hosts) {
            for (name, occupancy) in before.schedule.occupancies() {
                for (t, used) in occupancy.steps() {
                    assert_eq!(after.schedule.occupancy(name).map(|moved| moved.used_at(t + by)), Some(used));
                    assert_eq!(after.schedule.occupancy(name).map(|moved| moved.used_at(t)), Some(Amount::ZERO));
                }
            }
        }
        let request: Request = serde_json::from_str(r#"{"hosts":1,"duration":60,"earliest":5,"latest":9}"#).unwrap();
        let moved = shifted_request(&request, by);
        assert_eq!(moved.starts(Time(0), Span(0)), Ok((Time(1_700_000_005), Time(1_700_000_009))));
        let open: Request = serde_json::from_str(r#"{"hosts":1,"duration":60}"#).unwrap();
        assert_eq!(shifted_request(&open, by), open);
    }

    #[test]
    fn a_bad_request_line_names_file_line_and_key() {
        let path = Path::new("r.jsonl");
        let error =
            read_requests(path, "{\"hosts\":1,\"duration\":60}\n\n{\"hosts\":0,\"duration\":60}\n").unwrap_err();
        assert!(error.to_string().starts_with("r.jsonl:3: hosts: expected 1"), "{error}");
        let read = read_requests(path, "{\"hosts\":1,\"duration\":60}\n").unwrap();
        assert_eq!(read[0].id().unwrap().as_str(), "line-1");
        assert!(matches!(read_requests(path, "\n"), Err(UsageError::NoRequests { .. })));
    }
}
