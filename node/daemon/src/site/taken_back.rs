//! Frees the hosts that a revoked account has reserved, where its revocation takes them back, as the owner's eviction frees them.
//!
//! Invariant: a request ends only when all that is booked here under its id is of such accounts, so that nobody loses hosts to an id that
//! somebody else has chosen.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use broker::{
    ids::RequestId,
    ledger::{Booking, Ledger},
    protocol::{Refusal, RefusalReason, SiteAnswer},
    trust::PublicKey,
};
use futures::future::join_all;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use super::task::{OwnSite, SharedLedger};
use crate::net::membership::Membership;

/// Time between two looks for bookings to free.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests that are ended with one write of the ledger.
const AT_ONCE: usize = 64;

/// Frees hosts until it is aborted. What is still being decided is tried again at each sweep.
pub async fn run(ledger: SharedLedger, membership: Arc<Membership>, own_site: OwnSite) {
    let mut sweep = interval(SWEEP_EVERY);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = BTreeSet::new();
    loop {
        sweep.tick().await;
        let keys = membership.taken_back();
        if keys.is_empty() {
            continue;
        }
        let found = Found::of(&ledger.lock(), &keys);
        for request in found.shared.difference(&told) {
            warn!(
                %request,
                "others have reserved under the same id, so the hosts of a revoked account stay; free them all by kolo local evict"
            );
        }
        told = found.shared;
        for requests in found.revoked.chunks(AT_ONCE) {
            join_all(requests.iter().map(|request| free(&own_site, request))).await;
        }
    }
}

async fn free(own_site: &OwnSite, request: &RequestId) {
    match own_site.evict(request.clone(), ANSWER_TIMEOUT).await {
        Ok(SiteAnswer::Refused(Refusal { reason: RefusalReason::Busy | RefusalReason::NoSuchHold, .. })) => {}
        Ok(SiteAnswer::Released { .. }) => info!(%request, "hosts are free again: their user is revoked"),
        other => warn!(%request, ?other, "the hosts of a revoked account; tried again"),
    }
}

/// Requests that revoked accounts have reserved for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Requests of revoked accounts alone.
    revoked: Vec<RequestId>,
    /// Requests whose id other accounts have used too.
    shared: BTreeSet<RequestId>,
}

/// Accounts with bookings under one id.
#[derive(Default)]
struct UnderId {
    /// Whether a revoked account has reserved; a hold alone lapses by itself.
    is_revoked: bool,
    /// Whether anybody else has anything.
    has_others: bool,
}

impl Found {
    fn of(ledger: &Ledger, keys: &BTreeSet<PublicKey>) -> Found {
        let mut ids: BTreeMap<&RequestId, UnderId> = BTreeMap::new();
        for booking in ledger.of_users() {
            let under = ids.entry(&booking.attempt.request).or_default();
            let is_revoked = is_of(booking, keys);
            under.is_revoked |= is_revoked && !booking.is_held();
            under.has_others |= !is_revoked;
        }
        let mut found = Found::default();
        for (id, under) in ids.into_iter().filter(|(_, under)| under.is_revoked) {
            match under.has_others {
                true => drop(found.shared.insert(id.clone())),
                false => found.revoked.push(id.clone()),
            }
        }
        found
    }
}

/// Whether one of these keys is in the line of the credential with which something was booked.
fn is_of(booking: &Booking, keys: &BTreeSet<PublicKey>) -> bool {
    let line = booking.lineage.iter().flat_map(|line| line.iter());
    line.chain(&booking.user_key).chain(&booking.account).any(|key| keys.contains(key))
}

#[cfg(test)]
mod tests {
    use broker::{
        host::{Host, Speed},
        ids::{HostId, SiteId},
        ledger::{BookingRecord, LedgerLimits},
        time::{Millis, Now, Time},
        trust::testing,
    };
    use serde_json::json;

    use super::*;

    /// What user `user`, who was invited by key 8, has of host h1 for a request; a booking of the attempt with this number.
    fn booked(request: &str, attempt: u32, user: u64) -> BookingRecord {
        let window = json!({"start": 100, "end": 200});
        let grant = json!({"seat": 0, "place": {"host": "h1"}, "window": window, "amounts": {"cpu": 1000}});
        serde_json::from_value(json!({
            "attempt": {"entry_point": "e", "request": request, "attempt": attempt},
            "window": window, "grants": [grant], "participants": ["s"], "user": "ada", "user_key": testing::public(user),
            "lineage": [testing::public(8), testing::public(user)], "settled": true, "confirmed": 0,
        }))
        .unwrap()
    }

    fn found(records: Vec<BookingRecord>, keys: &[u64]) -> (Vec<String>, Vec<String>) {
        let host = Host {
            id: HostId::new("h1").unwrap(),
            capacity: serde_json::from_value(json!({"cpu": 4000})).unwrap(),
            attributes: Default::default(),
            speed: Speed::REFERENCE,
            tariff: Default::default(),
        };
        let now = Now { monotonic: Millis(0), utc: Time(0) };
        let (site, gate) = (SiteId::new("s").unwrap(), testing::open_gate());
        let hosts = vec![(host, Default::default())];
        let ledger = Ledger::open(site, LedgerLimits::default(), 1, gate, hosts, records, now).0;
        let keys = keys.iter().map(|key| testing::public(*key)).collect();
        let Found { revoked, shared } = Found::of(&ledger, &keys);
        let names = |ids: Vec<RequestId>| ids.iter().map(ToString::to_string).collect();
        (names(revoked), names(shared.into_iter().collect()))
    }

    #[test]
    fn what_a_key_or_one_of_its_line_has_reserved_is_found_and_nothing_of_others() {
        let all = || vec![booked("a", 1, 1), booked("b", 1, 2), booked("both", 1, 1), booked("both", 2, 2)];
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(found(all(), &[3]), (names(&[]), names(&[])));
        assert_eq!(found(all(), &[1]), (names(&["a"]), names(&["both"])), "another user has the same id");
        for everybody in [&[8][..], &[1, 2]] {
            assert_eq!(found(all(), everybody), (names(&["a", "b", "both"]), names(&[])));
        }
    }
}
