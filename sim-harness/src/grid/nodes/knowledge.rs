//! How knowledge spreads: until every node knows all sites, and until a change of a ledger is known everywhere.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use broker::protocol::LedgerVersion;

use super::{
    cluster::{Cluster, Node},
    wait::Wait,
    wire::{Freshness, SiteRow},
};

/// How long a grid may take to form, beside a second for every node and [`MEETING`] for every two of them.
const FORMATION_LIMIT: Duration = Duration::from_secs(60);
/// Processor time in which one node gets to know another: an encrypted connection, an advert, a schedule. Measured: 4 to 9 ms;
/// a machine that is busy with other things as well takes a multiple.
const MEETING: Duration = Duration::from_millis(30);
/// How long a site that joins a grid may take to know it.
const JOIN_LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at a site that joins.
const JOIN_PAUSE: Duration = Duration::from_millis(50);
/// How long a change may take to be known everywhere, beside a tenth of a second for every node.
const GOSSIP_LIMIT: Duration = Duration::from_secs(60);
/// How long agreement may take: more than the limit that a partition is held to, so that a miss is reported with its time.
const AGREEMENT_LIMIT: Duration = Duration::from_secs(120);

/// Up to so many sites one look costs about the same.
const CHEAP_LOOK_SITES: f64 = 200.0;
/// The longest pause between two looks at one node.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Most nodes that are asked how far a change has come: a look at a node costs the more the larger the grid is.
const SPREAD_NODES_MAX: usize = 200;

/// Between two looks at one of `looked_at` nodes in a grid of `sites`, growing with their number, and with what one look costs, so
/// that looking stays a small part of the load.
fn pause(sites: usize, looked_at: usize, per_node: Duration) -> Duration {
    let costs = (sites as f64 / CHEAP_LOOK_SITES).max(1.0);
    per_node.mul_f64(looked_at as f64 * costs).min(LOOK_PAUSE_MAX)
}

/// Waits until every node knows all sites with all their hosts, and the schedules of as many as it asks at once: the present
/// ones in a grid of no more than these, in a larger one any version, since a plan asks again. The times are
/// from the start of each node's process, in the order of the nodes.
pub fn formation(cluster: &Cluster, hosts: usize, progress: impl Fn(usize) + Sync) -> anyhow::Result<Vec<Duration>> {
    let nodes = cluster.nodes();
    let sites = nodes.len();
    let processors = thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    // Every node gets to know every other one.
    let meetings = MEETING.mul_f64(sites as f64 * sites as f64 / processors);
    let limit = FORMATION_LIMIT + Duration::from_secs(sites as u64) + meetings;
    let what = "every node to know the whole grid";
    let formed = AtomicUsize::new(0);
    let look = |node: &Node| {
        // The cheap question first. Whether the count includes the node itself does not matter here.
        let known = node.client().status()?.known_sites;
        if known + 1 < sites {
            return Err(format!("knows {known} of {sites} sites"));
        }
        missing(&node.client().sites()?, (sites, hosts), cluster.asked_when_met()).map_or(Ok(()), Err)?;
        progress(formed.fetch_add(1, Ordering::Relaxed) + 1);
        Ok(node.process.started().elapsed())
    };
    cluster.at_each(Wait { what, limit, pause: pause(sites, sites, Duration::from_millis(5)) }, &nodes, look)
}

/// What a node with these rows does not know yet.
fn missing(rows: &[SiteRow], (sites, hosts): (usize, usize), asked_when_met: usize) -> Option<String> {
    let known_hosts: usize = rows.iter().map(|row| row.hosts).sum();
    if rows.len() != sites || known_hosts != hosts {
        return Some(format!("knows {} of {sites} sites and {known_hosts} of {hosts} hosts", rows.len()));
    }
    let is_known = |row: &&SiteRow| match row.schedule {
        Freshness::Current => true,
        Freshness::Stale => sites > asked_when_met,
        Freshness::Unknown => false,
    };
    let known = rows.iter().filter(|row| !row.this_node).filter(is_known).count();
    // A node counts itself.
    let needed = sites.min(asked_when_met).saturating_sub(1);
    (known < needed).then(|| format!("has the schedules of {known} sites, not yet of {needed}"))
}

/// Waits until the node at `position`, which came when the `sites` were there, has met the hosts of all of them. Some may
/// have left meanwhile, or come back.
pub fn of_newcomer(cluster: &Cluster, position: usize, sites: &BTreeSet<String>) -> anyhow::Result<()> {
    let node = cluster.node(position);
    let mut met = BTreeSet::new();
    let look = || {
        let rows = node.client().sites()?;
        met.extend(rows.iter().filter(|row| row.hosts > 0).filter_map(|row| sites.get(&row.site)));
        if met.len() == sites.len() { Ok(()) } else { Err(format!("met {} of {} sites", met.len(), sites.len())) }
    };
    Wait { what: "a new site to know the whole grid", limit: JOIN_LIMIT, pause: JOIN_PAUSE }
        .until(|| cluster.check(), look)
}

/// Waits until every node knows every ledger of which it has an advert as it is now, or newer. Later changes that a node has missed,
/// as always happens under load, do not count: a node shows the version up to which it knows everything. The time is from
/// `since`.
pub fn agreement(cluster: &Cluster, since: Instant) -> anyhow::Result<Duration> {
    let nodes = cluster.nodes();
    let what = "every node to know all ledgers as they are";
    let pause = pause(nodes.len(), nodes.len(), Duration::from_millis(5));
    let wait = Wait { what, limit: AGREEMENT_LIMIT, pause };
    let versions = cluster.at_each(wait, &nodes, |node| {
        let status = node.client().status()?;
        Ok((status.site, status.ledger_version))
    })?;
    // Of most sites of a large grid a node may not know the ledger yet.
    let unknown_max = versions.len().saturating_sub(cluster.asked_when_met());
    let times = cluster.at_each(wait, &nodes, |node| {
        let rows = node.client().sites()?;
        let (mut known, mut unknown) = (0, 0);
        for (site, version) in &versions {
            let Some(row) = rows.iter().find(|row| row.site == *site) else { continue };
            known += usize::from(row.ledger_version.is_some_and(|known| known >= *version));
            unknown += usize::from(row.ledger_version.is_none());
        }
        if known + unknown.min(unknown_max) < versions.len() {
            return Err(format!("knows {known} of {} ledgers as they are", versions.len()));
        }
        Ok(since.elapsed())
    })?;
    Ok(times.into_iter().max().unwrap_or_default())
}

/// Waits until all other nodes, of a large grid some two hundred spread evenly over it, know version `version` of the ledger of
/// the node `changed`, or have no version of it; the time is from `since`.
pub fn spread(cluster: &Cluster, changed: &Node, version: LedgerVersion, since: Instant) -> anyhow::Result<Duration> {
    let site = &changed.site;
    let what = format!("every node to know version {}.{} of site {site}", version.incarnation, version.change);
    let mut others = cluster.nodes();
    let sites = others.len();
    others.retain(|node| node.position != changed.position);
    let every = others.len().div_ceil(SPREAD_NODES_MAX).max(1);
    let others: Vec<_> = others.into_iter().step_by(every).collect();
    let limit = GOSSIP_LIMIT + Duration::from_millis(100).mul_f64(sites as f64);
    let wait = Wait { what: &what, limit, pause: pause(sites, others.len(), Duration::from_millis(2)) };
    let times = cluster.at_each(wait, &others, |node| {
        let rows = node.client().sites()?;
        match rows.iter().find(|row| row.site == *site).and_then(|row| row.ledger_version) {
            Some(known) if known >= version => Ok(since.elapsed()),
            Some(known) => Err(format!("knows version {}.{}", known.incarnation, known.change)),
            None if sites > cluster.asked_when_met() => Ok(Duration::ZERO),
            None => Err("knows no version".to_owned()),
        }
    })?;
    Ok(times.into_iter().max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(hosts: usize, this_node: bool, schedule: Freshness) -> SiteRow {
        SiteRow { site: "s".to_owned(), this_node, hosts, schedule, ledger_version: None }
    }

    #[test]
    fn a_node_knows_the_grid_when_nothing_is_missing() {
        let own = row(2, true, Freshness::Unknown);
        let rows = [own.clone(), row(3, false, Freshness::Current)];
        assert_eq!(missing(&rows, (2, 5), 16), None);
        assert!(missing(&rows, (3, 5), 16).unwrap().contains("2 of 3 sites"));
        assert!(missing(&rows, (2, 6), 16).unwrap().contains("5 of 6 hosts"));
        assert!(missing(&[own.clone(), row(3, false, Freshness::Stale)], (2, 5), 16).unwrap().contains("not yet of 1"));
        let known = |stale, unknown| -> Vec<SiteRow> {
            let others = [(stale, Freshness::Stale), (unknown, Freshness::Unknown)];
            let others = others.into_iter().flat_map(|(count, freshness)| vec![row(1, false, freshness); count]);
            [row(1, true, Freshness::Unknown)].into_iter().chain(others).collect()
        };
        let asked = 16;
        assert_eq!(missing(&known(asked - 1, 200), (asked + 200, asked + 200), 16), None);
        assert!(missing(&known(asked - 2, 201), (asked + 200, asked + 200), 16).unwrap().contains("not yet of"));
    }
}
