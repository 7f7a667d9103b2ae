//! The sites and the requests of a run, drawn from its seed.
//!
//! Hosts and requests are those of the generator that the real grid uses too, so the two can be compared.
//! Invariant: the hosts of a site, its name and its shard depend on the seed and its position only.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use broker::{protocol::Advert, request::Request, schedule::Schedule, time::Millis, trust::testing};
use discovery::{
    identity::{peer_of_key, site_of_peer},
    index,
};

use super::{
    chance::drawn,
    churn, costs,
    settings::{BEGIN, Settings},
    site::Site,
    upkeep,
    world::World,
};
use crate::{
    engine::Disk,
    error::BadUsage,
    generate::{self, Kind},
    grid::load::workload::deal,
};

/// Keys of sites begin here, after those of users.
const FIRST_SITE_KEY: u64 = 1_000_000;
/// Requests drawn; a longer run begins again with the first.
const POOL: usize = 2_048;
/// Names the draws of the shards that nodes take part in.
const SHARDS: u64 = 0x7368;

/// The grid of a run at rest, before its first event.
///
/// # Errors
/// When no request can be drawn.
pub fn world(settings: Settings) -> anyhow::Result<World> {
    let snapshot = generate::free_grid(settings.seed, settings.hosts);
    let pool: Vec<Request> =
        generate::requests(settings.seed, settings.hosts_per_request, POOL, Kind::Collective, &snapshot)
            .context(BadUsage::new("--hosts-per-request"))?;
    let sites = deal(snapshot, settings.sites)
        .into_iter()
        .enumerate()
        .map(|(position, dealt)| {
            let hosts = dealt.hosts.into_iter().map(|entry| (entry.host, entry.schedule)).collect();
            site(&settings, position, hosts)
        })
        .collect();
    Ok(World::new(settings, sites, pool))
}

fn site(settings: &Settings, position: usize, hosts: Vec<(broker::host::Host, Schedule)>) -> Site {
    let key = testing::public(FIRST_SITE_KEY + position as u64);
    let id = peer_of_key(key.as_bytes())
        .and_then(|peer| site_of_peer(&peer))
        .expect("the public half of a signing key is a key, and its peer id a short text");
    let time_to_live = settings.intervals.advert_time_to_live_among(settings.view_sites());
    let advert = Advert {
        site: id.clone(),
        name: format!("site-{position:05}"),
        sequence: 1_800_000_000_000,
        time_to_live_s: u32::try_from(time_to_live.as_secs()).unwrap_or(u32::MAX),
        contact: None,
        hosts: hosts.iter().map(|(host, _)| host.clone()).collect(),
        addresses: upkeep::addresses(position).iter().map(|address| format!("{address}/p2p/{id}")).collect(),
    };
    let time_to_live = Millis(u64::try_from(time_to_live.as_millis()).unwrap_or(u64::MAX));
    let shard = usize::from(index::head_of(&id)) % settings.shards;
    let mut site = Site {
        advert_bytes: costs::advert_bytes(&settings.grid, advert.clone(), time_to_live),
        advert,
        schedules_bytes: 0,
        shard,
        subscribed: subscriptions(settings, position, shard),
        hosts,
        machines: None,
        disk: Disk::default(),
        run: 0,
        has_left: false,
        lives: Vec::new(),
        published: Vec::new(),
        pending: churn::pending(settings),
        pacer: churn::pacer(settings),
        is_publishing: false,
        disk_free_at: BEGIN,
        silent: BTreeMap::new(),
        wanted: BTreeSet::new(),
        touched: BTreeMap::new(),
        contacted: BTreeMap::new(),
        id,
    };
    churn::open(&mut site, settings, BEGIN, false);
    site
}

/// The shards that a node takes part in: its own, so that it can publish, and others by chance, ascending.
fn subscriptions(settings: &Settings, position: usize, own: usize) -> Vec<usize> {
    let mut others: Vec<usize> = (0..settings.shards).filter(|shard| *shard != own).collect();
    others.sort_by_key(|shard| drawn([settings.seed, SHARDS, position as u64, *shard as u64]));
    others.truncate(settings.subscriptions() - 1);
    others.push(own);
    others.sort_unstable();
    others
}
