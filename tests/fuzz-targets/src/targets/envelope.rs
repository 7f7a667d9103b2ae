//! Envelopes, as gossip and the DHT bring them: from anybody, and signed by somebody who may say anything.
//!
//! The first byte says which. A signed one is made of the bytes behind it: version, kind, sequence (8) and body.

use broker::{
    features::Features,
    protocol::Advert,
    time::{Millis, Time},
    view::SiteView,
};
use discovery::{
    config::GridId,
    dht::index,
    wire::{self, Opened, Payload, Terms, bundle, check},
};
use ed25519_dalek::{Signer as _, SigningKey};

use super::golden::golden;
use crate::{Input, Target};

/// Envelopes from outside.
pub const ENVELOPE: Target = Target { name: "envelope", run, golden: golden_inputs };

const GRID: &str = "test";
const NOW_MS: u64 = 1_800_000_000_000;
/// A contract of the wire, repeated here: what an author signs begins with it.
const SIGNED_PREFIX: &[u8] = b"kolo-envelope";

/// The author of the golden envelopes.
fn key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
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
            let advert = Advert {
                site: site.clone(),
                name: String::new(),
                sequence: 7,
                time_to_live_s: 60,
                contact: None,
                hosts: Default::default(),
                uplink: None,
                quotes: false,
                addresses: Vec::new(),
                features: Features::own(),
                offer: Default::default(),
            };
            let mut view = SiteView::new(advert, Millis(0), opened.remaining);
            let snapshot =
                broker::protocol::ScheduleSnapshot { site, version: update.from, schedules: Default::default() };
            view.receive_snapshot(snapshot, Millis(0));
            view.receive_update(&update, Millis(1));
            view.forget_before(Time(1_000));
        }
    }
}

/// Each as it came, and what its author has signed, to be signed here.
fn golden_inputs() -> Vec<Vec<u8>> {
    let bundles = golden("bundle");
    let in_bundles = bundles.iter().flat_map(|bundle| bundle::unbundle(bundle).unwrap_or_default()).map(<[u8]>::to_vec);
    let split = |envelope: Vec<u8>| {
        // Version and kind, the author's key, the sequence, the signature, the body.
        let (head, sequence, body) = (&envelope[..2], &envelope[34..42], &envelope[106..]);
        [[&[0], &envelope[..]].concat(), [&[1], head, sequence, body].concat()]
    };
    golden("envelope").into_iter().chain(in_bundles).flat_map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_envelopes_are_opened_also_when_they_are_signed_here() {
        let grid = GridId::new(GRID).unwrap();
        let terms = Terms { grid: &grid, utc_ms: NOW_MS, skew_max: Millis(1000) };
        let inputs = golden_inputs();
        assert_eq!(inputs.len(), 4);
        for bytes in inputs {
            let mut input = Input::new(&bytes[1..]);
            let envelope = match bytes[0] {
                0 => input.rest().to_vec(),
                _ => signed(input.byte(), input.byte(), input.long(), input.rest()),
            };
            assert!(wire::open(&envelope, terms).is_ok(), "{}", bytes.escape_ascii());
        }
    }
}
