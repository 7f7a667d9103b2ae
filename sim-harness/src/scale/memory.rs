//! What a node keeps in memory: what grows with the grid is worked out, a process and a connection were measured.
//!
//! Invariant: an estimate errs on the large side.

use std::mem::size_of;

use broker::{host::Host, protocol::ScheduleSnapshot, schedule::Occupancy, view::SiteView};
use serde::Serialize;

use super::{costs, site::Site, world::World};

const MIB: f64 = 1_048_576.0;
/// A process without neighbours, and one more connection: what fits real grids of 10 and 25 nodes on one machine (7.9 and
/// 8.9 MiB a node, shared pages counted once; `kolo-sim grid --nodes 10|25 --free`). Nodes that were short of processors
/// have more in their queues: 50 on two cores took 12.5 MiB.
const PROCESS_BYTES: f64 = 7.2 * MIB;
const CONNECTION_BYTES: f64 = 0.06 * MIB;
/// A step of a schedule after random changes, with its share of the block.
const STEP_BYTES: usize = 27;
/// A map whose only node is full, with its keys' text: of a host's capacities, its attributes, or its schedule.
const MAP_BYTES: usize = 460;
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

/// The schedules of a site in a view.
fn of_schedules(snapshot: &ScheduleSnapshot) -> usize {
    let of_one = |occupancy: &Occupancy| size_of::<Occupancy>() + ENTRY_BYTES + occupancy.steps().len() * STEP_BYTES;
    let occupancies = snapshot.hosts.iter().flat_map(|(_, schedule)| schedule.occupancies());
    snapshot.hosts.len() * MAP_BYTES + occupancies.map(|(_, occupancy)| of_one(occupancy)).sum::<usize>()
}

impl World {
    /// What a view keeps of a site: its advert as it is read and as it was signed, and its schedules.
    fn of_site(&self, site: &Site) -> usize {
        let schedules = site.ledger().map_or(0, |ledger| of_schedules(&ledger.snapshot(self.clocks())));
        let hosts = site.hosts.len() * (size_of::<Host>() + 2 * MAP_BYTES);
        size_of::<SiteView>() + ENTRY_BYTES + 2 * site.advert_bytes as usize + hosts + schedules
    }

    /// What a node of this grid keeps, on average, at this moment.
    pub(super) fn memory(&self) -> Memory {
        let count = self.sites.len().max(1) as f64;
        let of_sites: usize = self.sites.iter().map(|site| self.of_site(site)).sum();
        let view = self.settings.view_sites() as f64 * of_sites as f64 / count;
        let advert = self.sites.iter().map(|site| site.advert_bytes as f64).sum::<f64>() / count;
        let shape = &self.settings.gossip;
        let seconds = self.settings.duration.as_secs_f64().max(1.0);
        let share = self.settings.subscriptions() as f64 / self.settings.shards as f64;
        let received_per_s = self.counts.gossip_published as f64 / seconds * share;
        let name = costs::gossip_name_bytes() as f64 + ENTRY_BYTES as f64;
        let kept_s = shape.heartbeat.as_secs_f64() * shape.kept_heartbeats as f64;
        let gossip = received_per_s * (shape.names_kept.as_secs_f64() * name + kept_s * (advert + name));
        let copies = costs::dht_shape().copies.min(self.sites.len()) as f64;
        let keys = self.sites.first().map_or(0, |site| self.index_keys(site)) as f64;
        let provider = (3 * ENTRY_BYTES) as f64 + costs::dht_question_bytes() as f64;
        let dht = copies * (advert + 4.0 * ENTRY_BYTES as f64 + keys * provider);
        let process = PROCESS_BYTES + self.connections() * CONNECTION_BYTES;
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
