//! Fetching revocations: a site whose advert shows another digest than this node's is asked for its list.
//!
//! A site that revokes renews its advert at once, which gossip takes to all nodes within a second or two; each of them then
//! asks that site directly. Invariant: one fetch is under way at a time, each after a random pause, of at most
//! [`REVOCATIONS_MAX`] entries and [`PAGES_MAX`] pages; it ends with the first false entry, for which the site is blamed, and
//! signatures are checked on a thread of their own.

use std::{sync::Arc, time::Duration};

use broker::{ids::SiteId, time::Millis, trust::REVOCATIONS_MAX};
use tokio::{
    task,
    time::{self, Instant},
};

use super::{Learnt, digests::Next};
use crate::{
    admission::Offence,
    core::Core,
    counters::Counter,
    wire::{WireAnswer, WireRequest},
};

/// Before each fetch a random part of this, so that not all sites ask the revoking one at the same moment.
const PAUSE_MAX: Duration = Duration::from_millis(400);
const FETCH_TIMEOUT: Millis = Millis(5_000);
/// Pages of half a MiB: room for any list that a node keeps, and an end to a site that never ends.
const PAGES_MAX: usize = 16;
/// This node's own advert shows the new digest after a random part of this: most others have it by then.
const RENEW_WITHIN: Duration = Duration::from_secs(30);

/// Asks sites that know other revocations until it is aborted.
pub(crate) async fn run(core: Core) {
    let shared = core.shared();
    let mut renew_at: Option<Instant> = None;
    loop {
        let (site, digest) = match shared.differing_digests.take(shared.clock.now()) {
            Next::Ask(site, digest) => (site, digest),
            Next::Wait(again_at) => {
                let again_at = again_at.map(|at| Instant::now() + Duration::from_millis((at - shared.clock.now()).0));
                tokio::select! {
                    () = shared.differing_digests.changed.notified() => {}
                    () = until(again_at) => {}
                    () = until(renew_at) => {
                        renew_at = None;
                        core.renew_advert();
                    }
                }
                continue;
            }
        };
        if digest == shared.config.membership.revocations_digest() {
            continue;
        }
        time::sleep(PAUSE_MAX.mul_f64(rand::random_range(0.0..1.0))).await;
        let (learnt, is_complete) = fetch(&core, &site).await;
        if !is_complete {
            shared.differing_digests.failed(&site);
        }
        if learnt.is_false {
            core.blame(&site, Offence::FalseRevocation);
        }
        if learnt.news > 0 {
            shared.counters.add(Counter::RevocationsLearnt, learnt.news as u64);
            shared.differing_digests.had_news(&site);
            task::block_in_place(|| core.check_members());
            renew_at.get_or_insert_with(|| Instant::now() + RENEW_WITHIN.mul_f64(rand::random_range(0.0..1.0)));
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Fetches the list of a site: what came of it, and whether that was all.
async fn fetch(core: &Core, site: &SiteId) -> (Learnt, bool) {
    let mut learnt = Learnt::default();
    let mut from = 0;
    for _ in 0..PAGES_MAX {
        let request = WireRequest::Revocations { from };
        let Ok(WireAnswer::Revocations { revocations, total }) = core.request(site, request, FETCH_TIMEOUT).await
        else {
            return (learnt, false);
        };
        from += u32::try_from(revocations.len()).unwrap_or(u32::MAX);
        let is_last = from >= total || revocations.is_empty();
        let page = if from as usize > REVOCATIONS_MAX {
            // No honest site has more.
            Learnt { news: 0, is_false: true }
        } else {
            let membership = Arc::clone(&core.shared().config.membership);
            let learning = task::spawn_blocking(move || membership.learn_revocations(&revocations));
            // An error means that the node stops.
            let Ok(page) = learning.await else { return (learnt, false) };
            page
        };
        learnt = Learnt { news: learnt.news + page.news, is_false: page.is_false };
        if is_last || learnt.is_false {
            break;
        }
    }
    (learnt, true)
}
