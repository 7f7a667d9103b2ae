//! Frees the hosts that a revoked account has reserved, where its revocation takes them back, as the owner's eviction frees them.
//!
//! Invariant: a request ends only when all that is booked here under its id is of such accounts, so that nobody loses hosts to an id that
//! somebody else has chosen. However long the ledger takes, one line a revocation says so.

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
use tracing::{debug, info, warn};

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
    let mut told = Told::default();
    loop {
        sweep.tick().await;
        let keys = membership.taken_back();
        told.keep_only(&keys);
        if keys.is_empty() {
            continue;
        }
        let found = Found::of(&ledger.lock(), &keys);
        for request in told.news_of_shared(&found.shared) {
            warn!(
                %request,
                "others have reserved under the same id, so the hosts of a revoked account stay; free them all by kolo local evict"
            );
        }
        for requests in found.revoked.chunks(AT_ONCE) {
            let answers = join_all(requests.iter().map(|(request, _)| free(&own_site, request))).await;
            for ((request, key), answer) in requests.iter().zip(answers) {
                let Err(why) = answer else { continue };
                if told.is_news_of(*key) {
                    let account = key.fingerprint();
                    warn!(%request, account, why, "hosts of a revoked account are not free yet; tried again and again until they are");
                } else {
                    debug!(%request, why, "hosts of a revoked account are not free yet");
                }
            }
        }
    }
}

/// Frees the hosts of a request, unless it is still being decided; the answer where it says neither.
async fn free(own_site: &OwnSite, request: &RequestId) -> Result<(), String> {
    match own_site.evict(request.clone(), ANSWER_TIMEOUT).await {
        Ok(SiteAnswer::Refused(Refusal { reason: RefusalReason::Busy | RefusalReason::NoSuchHold, .. })) => Ok(()),
        Ok(SiteAnswer::Released { .. }) => {
            info!(%request, "hosts are free again: their user is revoked");
            Ok(())
        }
        other => Err(format!("{other:?}")),
    }
}

/// Troubles that the log has a line of.
#[derive(Debug, Default)]
struct Told {
    /// Requests of the last sweep whose id other accounts have used too.
    shared: BTreeSet<RequestId>,
    /// Revoked keys whose hosts were not free at once.
    slow: BTreeSet<PublicKey>,
}

impl Told {
    /// Those of the shared requests of a sweep that the one before did not have.
    fn news_of_shared(&mut self, shared: &BTreeSet<RequestId>) -> Vec<RequestId> {
        let news = shared.difference(&self.shared).cloned().collect();
        self.shared.clone_from(shared);
        news
    }

    /// Whether it is news that hosts of a revoked key are not free yet.
    fn is_news_of(&mut self, key: PublicKey) -> bool {
        self.slow.insert(key)
    }

    /// Forgets the keys that are revoked no longer.
    fn keep_only(&mut self, keys: &BTreeSet<PublicKey>) {
        self.slow.retain(|key| keys.contains(key));
    }
}

/// Requests that revoked accounts have reserved for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Requests of revoked accounts alone, each with a revoked key.
    revoked: Vec<(RequestId, PublicKey)>,
    /// Requests whose id other accounts have used too.
    shared: BTreeSet<RequestId>,
}

/// Accounts with bookings under one id.
#[derive(Default)]
struct UnderId {
    /// The key of a revoked account that has reserved; a hold alone lapses by itself.
    revoked: Option<PublicKey>,
    /// Whether anybody else has anything.
    has_others: bool,
}

impl Found {
    fn of(ledger: &Ledger, keys: &BTreeSet<PublicKey>) -> Found {
        let mut ids: BTreeMap<&RequestId, UnderId> = BTreeMap::new();
        for booking in ledger.of_users() {
            let under = ids.entry(&booking.attempt.request).or_default();
            let revoked = revoked_key(booking, keys);
            under.revoked = under.revoked.or(revoked.filter(|_| !booking.is_held()));
            under.has_others |= revoked.is_none();
        }
        let mut found = Found::default();
        for (id, under) in ids {
            let Some(key) = under.revoked else { continue };
            match under.has_others {
                true => drop(found.shared.insert(id.clone())),
                false => found.revoked.push((id.clone(), key)),
            }
        }
        found
    }
}

/// The first of these keys in the line of the credential with which something was booked.
fn revoked_key(booking: &Booking, keys: &BTreeSet<PublicKey>) -> Option<PublicKey> {
    let line = booking.lineage.iter().flat_map(|line| line.iter());
    line.chain(&booking.user_key).chain(&booking.account).find(|key| keys.contains(*key)).copied()
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
        assert!(revoked.iter().all(|(_, key)| keys.contains(key)), "{revoked:?}");
        let revoked = revoked.into_iter().map(|(id, _)| id).collect();
        (names(revoked), names(shared.into_iter().collect()))
    }

    #[test]
    fn a_slow_ledger_is_told_once_a_revocation() {
        let (mut told, keys) = (Told::default(), [1, 2].map(testing::public));
        assert_eq!(keys.map(|key| told.is_news_of(key)), [true; 2]);
        told.keep_only(&keys.into());
        assert_eq!(keys.map(|key| told.is_news_of(key)), [false; 2]);
        told.keep_only(&[keys[1]].into());
        assert_eq!(keys.map(|key| told.is_news_of(key)), [true, false], "revoked again");
        let shared = |ids: &[&str]| ids.iter().map(|id| RequestId::new(id).unwrap()).collect::<BTreeSet<_>>();
        assert_eq!(told.news_of_shared(&shared(&["a", "b"])).len(), 2);
        assert_eq!(told.news_of_shared(&shared(&["b", "c"])), shared(&["c"]).into_iter().collect::<Vec<_>>());
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
