//! Fetching revocations: a site whose advert shows another digest than this node's is asked for its list.
//!
//! A site that revokes renews its advert at once, which gossip takes to all nodes within a second or two; each of them then
//! asks that site directly. Invariant: one fetch is under way at a time, each after a random pause.

use std::time::Duration;

use broker::{ids::SiteId, time::Millis};
use tokio::time::{self, Instant};

use crate::{
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
        let Some((site, digest)) = shared.differing_digests.take() else {
            let renew = async {
                match renew_at {
                    Some(at) => time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shared.differing_digests.changed.notified() => {}
                () = renew => {
                    renew_at = None;
                    core.renew_advert();
                }
            }
            continue;
        };
        if digest == shared.config.membership.revocations_digest() {
            continue;
        }
        time::sleep(PAUSE_MAX.mul_f64(rand::random_range(0.0..1.0))).await;
        let Some(news) = fetch(&core, &site).await else {
            shared.differing_digests.failed(&site);
            continue;
        };
        if news > 0 {
            shared.counters.add(Counter::RevocationsLearnt, news as u64);
            shared.drop_non_members();
            renew_at.get_or_insert_with(|| Instant::now() + RENEW_WITHIN.mul_f64(rand::random_range(0.0..1.0)));
        }
    }
}

/// Fetches the list of a site; returns how many were new, none when it does not answer.
async fn fetch(core: &Core, site: &SiteId) -> Option<usize> {
    let mut news = 0;
    let mut from = 0;
    for _ in 0..PAGES_MAX {
        let request = WireRequest::Revocations { from };
        let Ok(WireAnswer::Revocations { revocations, total }) = core.request(site, request, FETCH_TIMEOUT).await
        else {
            return (news > 0).then_some(news);
        };
        from += u32::try_from(revocations.len()).unwrap_or(u32::MAX);
        news += core.shared().config.membership.learn_revocations(&revocations);
        if from >= total || revocations.is_empty() {
            break;
        }
    }
    Some(news)
}
