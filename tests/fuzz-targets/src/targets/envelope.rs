//! Envelopes, as gossip and the DHT bring them: from anybody, and signed by somebody who may say anything.
//!
//! The first byte says which. A signed one is made of the bytes behind it: version, kind, sequence (8) and body.

use broker::{
    features::Features,
    host::Host,
    ids::{HostId, SiteId},
    protocol::{Advert, ChangeKind, LedgerVersion, ScheduleChange, ScheduleUpdate},
    resources::Amounts,
    time::{Millis, Time, Window},
    view::SiteView,
};
use discovery::{
    config::GridId,
    dht::index,
    identity::{peer_of_key, site_of_peer},
    membership::Badge,
    wire::{self, Extra, Opened, Payload, Terms, bundle, check},
};
use ed25519_dalek::{Signer as _, SigningKey};

use crate::{Input, Seed, Target};

/// Envelopes from outside.
pub const ENVELOPE: Target = Target { name: "envelope", run, seeds };

const GRID: &str = "test";
const NOW_MS: u64 = 1_800_000_000_000;
const VERSION: u8 = 2;
const ADVERT: u8 = 1;
const UPDATE: u8 = 2;
/// A contract of the wire, repeated here: what an author signs begins with it.
const SIGNED_PREFIX: &[u8] = b"kolo-envelope";

fn key() -> SigningKey {
    SigningKey::from_bytes(&[9; 32])
}

fn site_of(key: &SigningKey) -> Option<SiteId> {
    site_of_peer(&peer_of_key(&key.verifying_key().to_bytes())?)
}

fn signed(version: u8, kind: u8, sequence: u64, body: &[u8]) -> Vec<u8> {
    let key = key();
    let claim = [&[version, kind], &key.verifying_key().to_bytes()[..], &sequence.to_be_bytes()].concat();
    let signature = key.sign(&[SIGNED_PREFIX, &claim, body].concat()).to_bytes();
    [&claim, &signature[..], body].concat()
}

fn run(data: &[u8]) {
    // A bundle is read before anything in it is.
    for envelope in bundle::unbundle(data).unwrap_or_default() {
        assert!(!envelope.is_empty() && envelope.len() + bundle::NAME_BYTES < data.len());
    }
    let mut input = Input::new(data);
    let is_signed = input.flag();
    let envelope = if is_signed {
        let (version, kind, sequence) = (input.byte(), input.byte(), input.long());
        signed(version, kind, sequence, input.rest())
    } else {
        input.rest().to_vec()
    };
    let Ok(grid) = GridId::new(GRID) else { return };
    let claimed = wire::peek(&envelope);
    let in_grid = wire::peek_in(&envelope, &grid);
    let terms = Terms { grid: &grid, utc_ms: NOW_MS, skew_max: Millis(1000) };
    let Ok(opened) = wire::open(&envelope, terms) else { return };
    let (author, sequence) = claimed.expect("what can be opened can be looked at");
    assert_eq!(in_grid, Ok((author.clone(), sequence)));
    assert_eq!(author, opened.author);
    check_opened(&grid, opened);
}

/// Relied on by everything that believes it.
fn check_opened(grid: &GridId, opened: Opened) {
    let longest = u64::try_from(check::TIME_TO_LIVE_MAX.as_millis()).unwrap_or(u64::MAX);
    assert!(opened.remaining > Millis(0) && opened.remaining <= Millis(longest));
    match opened.payload {
        Payload::Advert(advert) => {
            assert_eq!(advert.site, opened.author);
            assert_eq!(check::check_advert(&advert), Ok(()));
            let keys = index::keys_of_site(grid, &advert.site, &advert.hosts);
            assert!(keys.len() <= index::KEYS_PER_SITE_MAX);
            assert_eq!(keys.is_empty(), advert.hosts.is_empty());
            let mut view = SiteView::new(advert.clone(), Millis(0), opened.remaining);
            view.receive_advert(advert, Millis(1), opened.remaining);
        }
        Payload::Update(update) => {
            assert_eq!(update.site, opened.author);
            assert_eq!(check::check_update(&update), Ok(()));
            let site = update.site.clone();
            let advert = advert(site.clone(), Vec::new());
            let mut view = SiteView::new(advert, Millis(0), opened.remaining);
            let snapshot = broker::protocol::ScheduleSnapshot { site, version: update.from, hosts: Vec::new() };
            view.receive_snapshot(snapshot, Millis(0));
            view.receive_update(&update, Millis(1));
            view.forget_before(Time(1_000));
        }
    }
}

fn advert(site: SiteId, hosts: Vec<Host>) -> Advert {
    Advert {
        site,
        name: "here".to_owned(),
        sequence: 7,
        time_to_live_s: 60,
        contact: Some("ssh {user}@{host}.example.org".to_owned()),
        hosts,
        addresses: vec!["/ip4/192.0.2.1/tcp/7741".to_owned(), "/ip6/::1/udp/7741/quic-v1".to_owned()],
        features: Features::own(),
    }
}

fn seeds() -> Vec<Seed> {
    let (Some(site), Ok(host)) = (site_of(&key()), HostId::new("h1")) else { return Vec::new() };
    let capacity: Amounts = some_amounts();
    let described = Host {
        id: host.clone(),
        capacity: capacity.clone(),
        attributes: [("arch".to_owned(), "x86_64".to_owned())].into(),
        speed: broker::host::Speed::REFERENCE,
    };
    let window = Window { start: Time(1_000), end: Time(2_000) };
    let change = |kind| ScheduleChange { host: host.clone(), window, amounts: capacity.clone(), kind };
    let update = ScheduleUpdate {
        site: site.clone(),
        from: LedgerVersion { incarnation: 5, change: 3 },
        changes: vec![change(ChangeKind::Added), change(ChangeKind::Removed)],
    };
    let advert = advert(site, vec![described]);
    let badge = Badge { credential: vec![1, 2, 3], revocations_digest: 4 };
    let extra = Extra::from([("of a later version".to_owned(), vec![1, 2])]);
    let advert = wire::encode(&(GRID, NOW_MS, 60_000_u64, &badge, advert, extra)).unwrap_or_default();
    let update = wire::encode(&(GRID, NOW_MS, 60_000_u64, &badge, update, Extra::new())).unwrap_or_default();
    let seed = |kind: u8, body: &[u8]| [&[1, VERSION, kind], &7_u64.to_be_bytes()[..], body].concat();
    vec![
        ("advert", seed(ADVERT, &advert)),
        ("update", seed(UPDATE, &update)),
        ("later", seed(99, &advert)),
        ("whole", [&[0], &signed(VERSION, ADVERT, 7, &advert)[..]].concat()),
        ("cut", seed(ADVERT, &advert[..advert.len() / 2])),
    ]
}

fn some_amounts() -> Amounts {
    [("cpu", 4_000), ("memory", 65_536)]
        .into_iter()
        .filter_map(|(name, amount)| Some((name.parse().ok()?, broker::amount::Amount(amount))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_of_todays_encoding() {
        let grid = GridId::new(GRID).unwrap();
        let terms = Terms { grid: &grid, utc_ms: NOW_MS, skew_max: Millis(1000) };
        for (name, seed) in seeds().into_iter().filter(|(name, _)| ["advert", "update"].contains(name)) {
            assert!(wire::open(&signed(seed[1], seed[2], 7, &seed[11..]), terms).is_ok(), "{name}");
        }
    }
}
