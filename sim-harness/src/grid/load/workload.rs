//! The hosts of each node and the requests, read or generated, on the time axis of the run.
//!
//! Invariant: all hosts of one site of a snapshot are at one node, and every node has at least one host.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, bail};
use broker::{
    amount::Amount,
    ids::{RequestId, SiteId},
    request::{Request, RequestDocument},
    snapshot::{GridSnapshot, SnapshotHost},
    traffic::Traffic,
};
use sim_kit::{
    error::BadUsage,
    generate::{self, Kind},
};

/// The hosts of a grid: a file, or generated.
#[derive(Debug, Clone, Copy)]
pub enum HostSource<'a> {
    /// A snapshot file.
    File(&'a Path),
    /// So many hosts; `free` ones have no occupancy.
    Generated { hosts: usize, free: bool },
}

/// The requests: a file with one a line, or generated.
#[derive(Debug, Clone, Copy)]
pub enum RequestSource<'a> {
    File(&'a Path),
    /// Collective ones.
    Generated {
        count: usize,
        hosts_per_request: u32,
    },
}

/// The hosts and requests of a run, with times relative to its start.
#[derive(Debug)]
pub struct Workload {
    /// The hosts of each node, those that come later last.
    pub nodes: Vec<GridSnapshot>,
    pub requests: Vec<Request>,
}

impl Workload {
    /// Reads or generates hosts for `nodes` nodes and as many `newcomers`, and at most `limit` requests.
    pub fn prepare(
        seed: u64,
        (nodes, newcomers): (usize, usize),
        hosts: HostSource<'_>,
        requests: RequestSource<'_>,
        limit: usize,
    ) -> anyhow::Result<Workload> {
        let snapshot = match hosts {
            HostSource::Generated { hosts, free } => generated(seed, hosts, free),
            HostSource::File(path) => {
                let snapshot = GridSnapshot::read(&read(path)?).with_context(|| BadUsage::new(path.display()))?;
                let sites = snapshot.hosts.iter().map(|entry| &entry.site).collect::<BTreeSet<_>>().len();
                if sites < nodes {
                    let found = format!("{nodes} nodes, but {} has only {sites} sites", path.display());
                    bail!(BadUsage::new(format!("--nodes: {found}; a node needs one")));
                }
                snapshot
            }
        };
        let mut requests = match requests {
            RequestSource::File(path) => read_requests(path, &read(path)?)?,
            RequestSource::Generated { count, hosts_per_request } => {
                generate::requests(seed, hosts_per_request, count, Kind::Collective, &snapshot)
                    .context(BadUsage::new("--hosts-per-request"))?
            }
        };
        requests.truncate(limit);
        let present = snapshot.hosts.len();
        let each = present.div_ceil(nodes);
        let mut nodes = deal(snapshot, nodes);
        // Those that come later have as many hosts each, drawn behind those of the others.
        let later =
            generated(seed, present + each * newcomers, matches!(hosts, HostSource::Generated { free: true, .. }));
        nodes.extend(
            later.hosts[present..]
                .chunks(each)
                .map(|hosts| GridSnapshot { hosts: hosts.to_vec(), ..GridSnapshot::default() }),
        );
        Ok(Workload { nodes, requests })
    }

    /// The same with traffic in every second request, from the first on; these then ask for work, at reference speed.
    pub fn with_traffic(mut self, mbps: u64) -> anyhow::Result<Workload> {
        for request in self.requests.iter_mut().step_by(2) {
            let mut asked = RequestDocument::from(request.clone());
            asked.work = asked.work.or(asked.duration.take());
            asked.traffic = Some(Traffic { mbps: Amount(mbps), compute: Traffic::COMPUTE_MAX });
            *request = Request::try_from(asked).context(BadUsage::new("--traffic"))?;
        }
        Ok(self)
    }

    /// Hosts of the first `nodes` nodes.
    pub fn hosts(&self, nodes: usize) -> usize {
        self.nodes.iter().take(nodes).map(|node| node.hosts.len()).sum()
    }
}

fn generated(seed: u64, hosts: usize, free: bool) -> GridSnapshot {
    if free { generate::free_grid(seed, hosts) } else { generate::grid(seed, hosts) }
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| BadUsage::new(path.display()))
}

fn read_requests(path: &Path, text: &str) -> anyhow::Result<Vec<Request>> {
    let mut requests = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line_number = index + 1;
        let at = || BadUsage::new(format!("{}:{line_number}", path.display()));
        let request: Request = serde_json::from_str(line).with_context(at)?;
        requests.push(if request.id().is_some() {
            request
        } else {
            request.with_id(RequestId::new(&format!("line-{line_number}")).with_context(at)?)
        });
    }
    if requests.is_empty() {
        bail!(BadUsage::new(format!("{}: expected at least one request, found none", path.display())));
    }
    Ok(requests)
}

/// Deals the sites to `nodes` nodes, the largest site first, each to the node with the fewest hosts so far.
pub fn deal(snapshot: GridSnapshot, nodes: usize) -> Vec<GridSnapshot> {
    let mut sites: BTreeMap<SiteId, Vec<SnapshotHost>> = BTreeMap::new();
    for entry in snapshot.hosts {
        sites.entry(entry.site.clone()).or_default().push(entry);
    }
    let mut sites: Vec<_> = sites.into_values().collect();
    sites.sort_by_key(|hosts| std::cmp::Reverse(hosts.len()));
    let mut dealt: Vec<GridSnapshot> =
        (0..nodes).map(|_| GridSnapshot { hosts: Vec::new(), ..GridSnapshot::default() }).collect();
    for hosts in sites {
        if let Some(node) = dealt.iter_mut().min_by_key(|node| node.hosts.len()) {
            node.hosts.extend(hosts);
        }
    }
    dealt
}

#[cfg(test)]
mod tests {
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
        let ids = |entry: &SnapshotHost| entry.host.id.clone();
        let dealt: BTreeSet<_> = nodes.iter().flat_map(|node| node.hosts.iter().map(ids)).collect();
        assert_eq!(dealt, snapshot.hosts.iter().map(ids).collect());
        assert!(deal(relabelled(30, |index| index), 30).iter().all(|node| node.hosts.len() == 1));
    }

    #[test]
    fn newcomers_have_hosts_that_nobody_else_has() {
        let requests = RequestSource::Generated { count: 1, hosts_per_request: 2 };
        let hosts = HostSource::Generated { hosts: 12, free: true };
        let workload = Workload::prepare(1, (3, 2), hosts, requests, 5).unwrap();
        assert_eq!(workload.nodes.iter().map(|node| node.hosts.len()).collect::<Vec<_>>(), [4; 5]);
        let ids = workload.nodes.iter().flat_map(|node| &node.hosts).map(|entry| entry.host.id.clone());
        assert_eq!(ids.collect::<BTreeSet<_>>().len(), 20);
        assert_eq!(workload.hosts(3), 12);
    }

    #[test]
    fn a_bad_request_line_names_file_line_and_key() {
        let path = Path::new("r.jsonl");
        let error =
            read_requests(path, "{\"hosts\":1,\"duration\":60}\n\n{\"hosts\":0,\"duration\":60}\n").unwrap_err();
        assert!(format!("{error:#}").starts_with("r.jsonl:3: hosts: expected 1"), "{error:#}");
        let read = read_requests(path, "{\"hosts\":1,\"duration\":60}\n").unwrap();
        assert_eq!(read[0].id().unwrap().as_str(), "line-1");
        assert!(read_requests(path, "\n").unwrap_err().to_string().contains("found none"));
    }
}
