//! What this node's part of the DHT takes from others.

use std::time::Duration;

use super::*;
use crate::{
    GridId, Identity,
    tests::{advert, sealed, shared_alone},
};

fn dht() -> (Dht, Kad, Arc<Shared>) {
    let shared = shared_alone();
    let peer = shared.identity.peer_id();
    (Dht::new(Arc::clone(&shared)), Kad::new(peer, MemoryStore::new(peer)), shared)
}

fn put(dht: &mut Dht, kad: &mut Kad, key: &RecordKey, value: &[u8]) -> bool {
    let stored = dht.store_record(kad, Record::new(key.clone(), value.to_vec())).is_ok();
    assert!(!stored || kad.store_mut().get(key).is_some_and(|record| record.value == value));
    stored
}

#[test]
fn only_signed_adverts_under_their_authors_key_are_stored_and_no_older_ones() {
    let (mut dht, mut kad, shared) = dht();
    let (site, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let grid = GridId::new("test").unwrap();
    let now = shared.clock.utc_ms();
    let key = index::advert_key(&grid, site.site_id());
    let (older, newer) = (sealed(&site, "test", now, advert(&site, 5)), sealed(&site, "test", now, advert(&site, 6)));

    assert!(!put(&mut dht, &mut kad, &key, b"garbage"));
    assert!(!put(&mut dht, &mut kad, &index::advert_key(&grid, other.site_id()), &older));
    assert!(!put(&mut dht, &mut kad, &key, &sealed(&other, "test", now, advert(&site, 5))));
    assert!(put(&mut dht, &mut kad, &key, &older));
    assert!(put(&mut dht, &mut kad, &key, &newer));
    assert!(!put(&mut dht, &mut kad, &key, &older));
    assert!(put(&mut dht, &mut kad, &key, &newer), "the same again renews its life");
}

#[test]
fn one_provider_gets_no_more_keys_than_a_site_has_and_they_expire() {
    let (mut dht, mut kad, _) = dht();
    let provider = PeerId::random();
    let past = Some(Instant::now());
    let entry = |number: usize, length: usize| {
        let mut key = number.to_be_bytes().to_vec();
        key.resize(length, 0);
        ProviderRecord { expires: past, ..ProviderRecord::new(RecordKey::new(&key), provider, Vec::new()) }
    };
    assert_eq!(dht.store_provider(&mut kad, entry(0, 31)), Err(NotStored::Invalid), "no key of ours");
    let stored =
        (0..2 * KEYS_PER_SITE_MAX).filter(|number| dht.store_provider(&mut kad, entry(*number, 32)).is_ok()).count();
    assert_eq!(stored, KEYS_PER_SITE_MAX);
    assert!(dht.store_provider(&mut kad, entry(0, 32)).is_ok(), "a known key is renewed");
    dht.drop_expired(&mut kad);
    assert!(dht.stored.is_empty() && kad.store_mut().providers(&entry(0, 32).key).is_empty());
}

#[test]
fn made_up_providers_leave_room_for_sites_that_are_known() {
    let (mut dht, mut kad, shared) = dht();
    let entries_max = shared.config.limits.dht_keys_max / 2;
    let entry = |number: usize, provider: PeerId| {
        let mut key = number.to_be_bytes().to_vec();
        key.resize(32, 0);
        let expires = Some(Instant::now() + Duration::from_secs(60));
        ProviderRecord { expires, ..ProviderRecord::new(RecordKey::new(&key), provider, Vec::new()) }
    };
    dht.stored_entries = entries_max;
    assert_eq!(dht.store_provider(&mut kad, entry(0, PeerId::random())), Err(NotStored::NoRoom));
    let site = Identity::generate().unwrap();
    let envelope = sealed(&site, "test", shared.clock.utc_ms(), advert(&site, 5));
    shared.receive(&envelope).unwrap();
    assert_eq!(dht.store_provider(&mut kad, entry(0, site.peer_id())), Ok(()));
}

#[test]
fn puts_come_later_where_they_take_long() {
    let shortest = Millis(1_000);
    assert_eq!(rest_after(Millis(0), shortest), shortest);
    assert_eq!(rest_after(Millis(500), shortest), Millis(4_000));
    assert_eq!(rest_after(Millis(u64::MAX), shortest), PUT_PAUSE_MAX);
    assert_eq!(rest_after(Millis(0), Millis(100_000)), Millis(100_000), "whoever asks for more gets it");
}

#[test]
fn the_advert_and_the_keys_of_the_index_take_turns() {
    let key = |number: u8| Put::Index(RecordKey::new(&[number]));
    let mut puts: VecDeque<Put> = [Put::Advert(vec![1]), key(1), key(2)].into();
    let mut was_advert = false;
    let mut order = Vec::new();
    while let Some(put) = take_turn(&mut puts, was_advert) {
        was_advert = matches!(put, Put::Advert(_));
        order.push(was_advert);
        // It is renewed all the time.
        if was_advert && order.len() < 6 {
            puts.push_front(Put::Advert(vec![2]));
        }
    }
    assert_eq!(order, [true, false, true, false, true, true]);
}
