//! Exchanging adverts with neighbours, which tells a node that has just come of everybody at once, and finds what gossip
//! missed later.
//!
//! Every advert is signed by its site, so it does not matter who passes it on. Invariant: one exchange at a time, of at
//! most [`PAGES_MAX`] pages; an advert that is known already costs a look at its first bytes.

use libp2p::PeerId;
use rand::seq::IndexedRandom as _;
use tokio::time;

use broker::time::Millis;

use crate::{
    codec::{WireAnswer, WireRequest},
    counters::Counter,
    handle::Core,
    identity::site_of_peer,
};

/// Exchanges right after new neighbours were met; they serve the start.
const EAGER_EXCHANGES: u32 = 4;
/// Pages of half a MiB: room for tens of thousands of adverts, and an end to a neighbour that never ends.
const PAGES_MAX: usize = 64;
const PAGE_TIMEOUT: Millis = Millis(5_000);

/// Exchanges adverts until it is aborted.
pub(crate) async fn run(core: Core) {
    let mut eager_left = EAGER_EXCHANGES;
    let mut asked: Vec<PeerId> = Vec::new();
    loop {
        let pause = core.shared().config.intervals.exchange.mul_f64(rand::random_range(0.8..1.2));
        let was_met = tokio::select! {
            () = core.shared().neighbour_met.notified(), if eager_left > 0 => true,
            () = time::sleep(pause) => false,
        };
        let neighbours = core.shared().connected();
        // At the start others than those asked already; later anybody, since much may have happened meanwhile.
        let candidates: Vec<PeerId> = neighbours.into_iter().filter(|peer| !was_met || !asked.contains(peer)).collect();
        let Some(peer) = candidates.choose(&mut rand::rng()).copied() else { continue };
        let is_complete = exchange_with(&core, peer).await;
        if was_met && is_complete {
            eager_left -= 1;
            asked.push(peer);
        }
    }
}

async fn exchange_with(core: &Core, peer: PeerId) -> bool {
    let Some(site) = site_of_peer(&peer) else { return false };
    let shared = core.shared();
    let mut after = None;
    for _ in 0..PAGES_MAX {
        let Ok(WireAnswer::Adverts { envelopes, next }) =
            core.request(&site, WireRequest::Adverts(after), PAGE_TIMEOUT).await
        else {
            return false;
        };
        for envelope in envelopes {
            if shared.may_be_news(&envelope) && shared.hear(&envelope).is_ok() {
                shared.count(Counter::AdvertsExchanged);
            }
            // Checking a signature takes a while; others of this runtime get their turn in between.
            tokio::task::yield_now().await;
        }
        match next {
            Some(next) => after = Some(next),
            None => return true,
        }
    }
    false
}
