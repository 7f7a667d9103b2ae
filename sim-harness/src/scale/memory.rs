//! What a node keeps in memory, worked out from the layout of what it keeps.
//!
//! The parts that grow with the grid are counted: the view, what gossip remembers, the node's part of the DHT. A process
//! with its runtime, and each open connection, were measured in small grids. Invariant: an estimate errs on the
//! large side where a container's slack is not known: a tree's node counts as full.

use std::mem::size_of;

use broker::{
    host::Host,
    ids::{HostId, SiteId},
    protocol::{Advert, ScheduleSnapshot},
    resources::ResourceName,
    schedule::Occupancy,
    view::SiteView,
};
use discovery::costs;
use serde::Serialize;

use super::world::World;

/// A process without neighbours, and one more connection: what fits real grids of 10 and 25 nodes on one machine (7.9 and
/// 8.9 MiB a node, shared pages counted once; `kolo-sim grid --nodes 10|25 --free`). Nodes that were short of processors
/// have more in their queues: 50 on two cores took 12.5 MiB.
const PROCESS_BYTES: f64 = 7.2 * MIB;
const CONNECTION_BYTES: f64 = 0.06 * MIB;
const MIB: f64 = 1_048_576.0;
/// Keys of a tree's node.
const TREE_KEYS: usize = 11;
/// A step of a schedule after random changes, with its share of the block.
const STEP_BYTES: usize = 27;
/// A shared text: two counters beside the text itself.
const SHARED_TEXT_BYTES: usize = 16;
/// What an entry of a hash map or a store takes beside its key and value.
const ENTRY_BYTES: usize = 64;

/// Memory of a node, in MiB.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Memory {
    /// Adverts and schedules of other sites.
    pub view_mib: f64,
    /// Messages and names of messages that gossip remembers.
    pub gossip_mib: f64,
    /// Records and providers that the node keeps for others.
    pub dht_mib: f64,
    /// A process and its connections.
    pub process_mib: f64,
    /// All of it.
    pub total_mib: f64,
}

fn tree(entries: usize, key_and_value: usize) -> usize {
    entries.div_ceil(TREE_KEYS) * (TREE_KEYS * key_and_value + 2 * size_of::<usize>())
}

fn text(bytes: usize) -> usize {
    SHARED_TEXT_BYTES + bytes
}

fn of_host(host: &Host) -> usize {
    let names: usize = host.capacity.keys().map(|name| text(name.as_str().len())).sum();
    let attributes: usize = host.attributes.iter().map(|(key, value)| key.len() + value.len()).sum();
    size_of::<Host>()
        + text(host.id.as_str().len())
        + tree(host.capacity.len(), size_of::<ResourceName>() + size_of::<u64>())
        + names
        + tree(host.attributes.len(), 2 * size_of::<String>())
        + attributes
}

fn of_advert(advert: &Advert) -> usize {
    let addresses: usize = advert.addresses.iter().map(|address| size_of::<String>() + address.len()).sum();
    let hosts: usize = advert.hosts.iter().map(of_host).sum();
    let contact = advert.contact.as_ref().map_or(0, String::len);
    text(advert.site.as_str().len()) + advert.name.len() + contact + addresses + hosts
}

fn of_schedules(snapshot: &ScheduleSnapshot) -> usize {
    let of_one = |occupancy: &Occupancy| size_of::<Occupancy>() + ENTRY_BYTES + occupancy.steps().len() * STEP_BYTES;
    let resources = snapshot.hosts.iter().flat_map(|(_, schedule)| schedule.occupancies());
    let used: usize = resources.map(|(name, occupancy)| text(name.as_str().len()) + of_one(occupancy)).sum();
    let maps = snapshot
        .hosts
        .iter()
        .map(|(_, schedule)| tree(schedule.occupancies().count(), size_of::<ResourceName>() + size_of::<Occupancy>()));
    used + maps.sum::<usize>() + tree(snapshot.hosts.len(), size_of::<HostId>() + size_of::<usize>() * 3)
}

impl World {
    /// What a node of this grid keeps, on average, at this moment.
    pub(super) fn memory(&self) -> Memory {
        let count = self.sites.len().max(1) as f64;
        let clock = self.clock();
        let (mut entries, mut adverts) = (0, 0);
        for site in &self.sites {
            let schedules = site.ledger.as_ref().map_or(0, |ledger| of_schedules(&ledger.snapshot(clock)));
            // The view keeps the advert as it is read and as it was signed.
            entries += size_of::<SiteView>() + size_of::<SiteId>() + ENTRY_BYTES;
            entries += of_advert(&site.advert) + site.advert_bytes as usize + schedules;
            adverts += site.advert_bytes as usize;
        }
        let known = self.settings.view_sites() as f64;
        let shape = &self.settings.gossip;
        let seconds = (self.settings.duration_us as f64 / 1e6).max(1.0);
        let heard_per_s = self.counts.gossip_published as f64 / seconds * self.settings.subscriptions() as f64
            / self.settings.shards as f64;
        let name = costs::gossip_name_bytes() as f64 + ENTRY_BYTES as f64;
        let kept_s = shape.heartbeat.as_secs_f64() * shape.kept_heartbeats as f64;
        let advert = adverts as f64 / count;
        let gossip = heard_per_s * (shape.names_kept.as_secs_f64() * name + kept_s * (advert + name));
        let copies = self.dht.0.copies.min(self.sites.len()) as f64;
        let keys = self.sites.first().map_or(0, |site| {
            let hosts: Vec<Host> = site.hosts.iter().map(|(host, _)| host.clone()).collect();
            costs::index_keys(&self.settings.grid, &site.id, &hosts)
        }) as f64;
        let provider = (3 * ENTRY_BYTES) as f64 + costs::dht_question_bytes() as f64;
        let dht = copies * (advert + 4.0 * ENTRY_BYTES as f64 + keys * provider);
        let process = PROCESS_BYTES + self.connections() * CONNECTION_BYTES;
        let view = known * entries as f64 / count;
        let mib = |bytes: f64| (bytes / MIB * 1000.0).round() / 1000.0;
        Memory {
            view_mib: mib(view),
            gossip_mib: mib(gossip),
            dht_mib: mib(dht),
            process_mib: mib(process),
            total_mib: mib(view + gossip + dht + process),
        }
    }
}
