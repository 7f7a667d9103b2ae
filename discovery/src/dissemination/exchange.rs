//! Exchange of adverts with neighbours: a new node learns of all sites at once, and later finds adverts that gossip missed.
//!
//! The asker lists the adverts that it has (16 bytes each), the neighbour answers with those that are later. Every advert is
//! signed by its site, so it may come from any node. Invariant: one exchange at a time, of at most
//! [`PAGES_MAX`] pages; it ends at the first page that brings nothing new, or when as many envelopes were looked at as
//! the view has room for. A signature takes some 0.1 ms, so a lying neighbour costs at
//! most 0.4 s of one core in the default 30 s.

use std::time::Duration;

use broker::time::Millis;
use libp2p::PeerId;
use rand::seq::IndexedRandom as _;
use tokio::time;

use crate::{
    core::Core,
    counters::Counter,
    identity::site_of_peer,
    wire::{REQUEST_BYTES_MAX, WireAnswer, WireRequest},
};

/// Exchanges right after new neighbours were met; they serve the start.
const EAGER_EXCHANGES: u32 = 4;
/// The first pause after which any neighbour is asked again; it doubles up to the configured interval whenever no new site was met.
/// While a grid forms, neighbours know little themselves.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Pages of half a MiB: room for tens of thousands of adverts, and an end to a neighbour that never ends.
const PAGES_MAX: usize = 64;
/// Sites that the asker lists: as many as fit into a request. Adverts of the others are sent in vain.
pub const KNOWN_MAX: usize = REQUEST_BYTES_MAX / 20;
const PAGE_TIMEOUT: Millis = Millis(5_000);

/// Exchanges adverts until it is aborted.
pub(crate) async fn run(core: Core) {
    let interval = core.shared().config.intervals.exchange;
    let mut eager_left = EAGER_EXCHANGES;
    let mut asked: Vec<PeerId> = Vec::new();
    let mut pause = PAUSE_FIRST.min(interval);
    loop {
        let was_met = tokio::select! {
            () = core.shared().neighbour_met.notified(), if eager_left > 0 => true,
            () = time::sleep(pause.mul_f64(rand::random_range(0.8..1.2))) => false,
        };
        // Neighbours that were asked before are asked again later, when they may know more.
        let is_candidate = |peer: &PeerId| !was_met || !asked.contains(peer);
        let candidates: Vec<PeerId> = core.shared().connected().into_iter().filter(is_candidate).collect();
        let Some(peer) = candidates.choose(&mut rand::rng()).copied() else { continue };
        let sites_before = core.shared().view.site_count();
        let is_complete = exchange_with(&core, peer).await;
        let has_met_sites = core.shared().view.site_count() > sites_before;
        if has_met_sites {
            pause = PAUSE_FIRST.min(interval);
        } else if !was_met {
            pause = (pause * 2).min(interval);
        }
        if was_met && is_complete {
            eager_left -= 1;
            asked.push(peer);
        }
    }
}

async fn exchange_with(core: &Core, peer: PeerId) -> bool {
    let Some(site) = site_of_peer(&peer) else { return false };
    let shared = core.shared();
    let mut looked_at = 0;
    for _ in 0..PAGES_MAX {
        let mut known = shared.view.known_sequences();
        known.truncate(KNOWN_MAX);
        let Ok(WireAnswer::Adverts { envelopes, is_complete }) =
            core.request(&site, WireRequest::Adverts(known), PAGE_TIMEOUT).await
        else {
            return false;
        };
        let mut new = 0_u64;
        for envelope in envelopes {
            if !shared.may_be_news(&envelope) {
                continue;
            }
            looked_at += 1;
            if looked_at > shared.config.limits.sites_max {
                return true;
            }
            new += u64::from(core.receive_from(Some(peer), &envelope));
            // Checking a signature takes a while; others of this runtime get their turn in between.
            tokio::task::yield_now().await;
        }
        shared.counters.add(Counter::AdvertsExchanged, new);
        if is_complete || new == 0 {
            return true;
        }
    }
    false
}
