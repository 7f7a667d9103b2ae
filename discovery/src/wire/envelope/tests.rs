//! Envelopes from friends, from strangers, and from nobody at all.

use std::collections::BTreeMap;

use broker::{
    amount::Amount,
    classes::Members,
    features::{FEATURES_MAX, Feature, Features},
    host::Host,
    ids::HostId,
    protocol::{ChangeKind, HostChange, LedgerVersion, ScheduleChange},
    resources::ResourceName,
    time::{Time, Window},
};
use proptest::prelude::*;

use super::*;

const NOW_MS: u64 = 1_800_000_000_000;

fn grid() -> GridId {
    GridId::new("test").unwrap()
}

fn terms(grid: &GridId) -> Terms<'_> {
    Terms { grid, utc_ms: NOW_MS, skew_max: Millis(1000) }
}

fn stamp(sequence: u64) -> Stamp {
    Stamp { sequence, sent_ms: NOW_MS, time_to_live: Millis(60_000) }
}

fn host(id: &str) -> Host {
    Host {
        id: HostId::new(id).unwrap(),
        capacity: BTreeMap::from([(ResourceName::new("cpu").unwrap(), Amount(4000))]),
        attributes: BTreeMap::from([("arch".to_owned(), "x86_64".to_owned())]),
        speed: broker::host::Speed::REFERENCE,
        tariff: Default::default(),
    }
}

fn advert(site: &SiteId) -> Advert {
    Advert {
        site: site.clone(),
        name: "here".to_owned(),
        sequence: 7,
        time_to_live_s: 60,
        contact: Some("ssh {user}@{host}".to_owned()),
        hosts: [host("h1"), host("h2")].into_iter().collect(),
        uplink: None,
        quotes: false,
        addresses: vec!["/ip4/127.0.0.1/tcp/4001".to_owned()],
        features: Features::own(),
        offer: Default::default(),
    }
}

fn update(site: &SiteId, changes: usize) -> ScheduleUpdate {
    let change = ScheduleChange::Host(HostChange {
        host: HostId::new("h1").unwrap(),
        window: Window { start: Time(10), end: Time(20) },
        amounts: host("h1").capacity,
        kind: ChangeKind::Added,
    });
    ScheduleUpdate { site: site.clone(), from: LedgerVersion::default(), changes: vec![change; changes] }
}

#[test]
fn what_is_sealed_opens_and_says_the_same() {
    let me = Identity::generate().unwrap();
    let payload = Payload::Advert(advert(me.site_id()));
    let envelope = seal(&me, &grid(), stamp(7), payload.clone()).unwrap();
    let opened = open(&envelope, terms(&grid())).unwrap();
    assert_eq!(
        opened,
        Opened {
            author: me.site_id().clone(),
            sent_ms: NOW_MS,
            remaining: Millis(60_000),
            badge: Badge::default(),
            payload
        }
    );
    assert_eq!(peek(&envelope), Some((me.site_id().clone(), 7)));
}

#[test]
fn each_reason_to_drop_is_told_apart() {
    let (me, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let payload = Payload::Advert(advert(me.site_id()));
    let sealed = |stamp| seal(&me, &grid(), stamp, payload.clone()).unwrap();
    let drop_of = |envelope: &[u8]| open(envelope, terms(&grid())).unwrap_err();

    assert_eq!(drop_of(b""), Dropped::Malformed);
    assert_eq!(drop_of(&[0; 500]), Dropped::Unsigned);
    assert_eq!(drop_of(&vec![VERSION; ADVERT_BYTES_MAX + 1]), Dropped::Oversized);
    let foreign = seal(&me, &GridId::new("other").unwrap(), stamp(7), payload.clone()).unwrap();
    assert_eq!(drop_of(&foreign), Dropped::ForeignGrid);
    let late = Stamp { sent_ms: NOW_MS - 60_000, ..stamp(7) };
    assert_eq!(drop_of(&sealed(late)), Dropped::Expired);
    let early = Stamp { sent_ms: NOW_MS + 1001, ..stamp(7) };
    assert_eq!(drop_of(&sealed(early)), Dropped::FromFuture);
    assert_eq!(drop_of(&sealed(stamp(8))), Dropped::Invalid, "the advert says 7");
    let for_another = seal(&other, &grid(), stamp(7), payload.clone()).unwrap();
    assert_eq!(drop_of(&for_another), Dropped::WrongAuthor);

    let mut resigned = sealed(stamp(7));
    resigned[2..34].copy_from_slice(&other.public_key());
    assert_eq!(drop_of(&resigned), Dropped::Unsigned);
}

#[test]
fn an_update_is_held_to_its_own_smaller_size() {
    let me = Identity::generate().unwrap();
    let small = seal(&me, &grid(), stamp(1), Payload::Update(update(me.site_id(), 512))).unwrap();
    assert!(open(&small, terms(&grid())).is_ok());
    let mut long = update(me.site_id(), 512);
    for change in &mut long.changes {
        let ScheduleChange::Host(change) = change else { continue };
        change.host = HostId::new(&"x".repeat(120)).unwrap();
    }
    assert_eq!(seal(&me, &grid(), stamp(1), Payload::Update(long)), None);
}

#[test]
fn adverts_beyond_the_limits_are_refused() {
    let me = Identity::generate().unwrap();
    let good = advert(me.site_id());
    let mut bad: Vec<Advert> = vec![good.clone(); 16];
    bad[0].name = "x".repeat(129);
    bad[1].name = "evil\u{1b}[31m".to_owned();
    bad[2].hosts.classes_mut()[0].host.capacity.insert(ResourceName::new("gpu").unwrap(), Amount(u64::MAX));
    bad[3].hosts = [host("h2"), host("h2")].into_iter().collect();
    bad[4].addresses = vec!["not an address".to_owned()];
    bad[5].hosts.classes_mut()[0].host.attributes.insert("k".repeat(65), "v".to_owned());
    bad[6].addresses = vec!["/memory/1".to_owned(); 17];
    bad[7].hosts = (0..2049).map(|i| host(&format!("h{i}"))).collect();
    bad[8].contact = Some("x".repeat(257));
    bad[9].contact = Some("ssh h\u{7}".to_owned());
    bad[10].features = (0..=FEATURES_MAX).map(|number| Feature::try_from(format!("f{number}")).unwrap()).collect();
    bad[11].hosts.classes_mut()[0].host.id = HostId::uplink();
    bad[12].uplink = Some(Amount(0));
    bad[13].uplink = Some(Amount(Amount::MAX.0 + 1));
    // Nothing is unfolded to see it.
    bad[14].hosts = [host("n-1"), host("n-2")].into_iter().collect();
    bad[14].hosts.classes_mut()[0].members = Some(Members { first: 1, count: u32::MAX });
    bad[15].hosts = [host("n-1"), host("n-2"), host("h"), host("n-2")].into_iter().collect();
    for advert in bad {
        let envelope = seal(&me, &grid(), stamp(7), Payload::Advert(advert.clone())).unwrap();
        assert_eq!(open(&envelope, terms(&grid())), Err(Dropped::Invalid), "{}", advert.name);
    }
}

#[test]
fn a_claimed_length_does_not_allocate() {
    // A body whose host list claims 2^60 entries must fail on the limit, not on memory.
    let me = Identity::generate().unwrap();
    let mut body = encode(&("test", NOW_MS, 60_000_u64)).unwrap();
    body.extend(encode(&(0_u32, me.site_id(), "n", 7_u64, 60_u32, None::<String>, 1_u64 << 60)).unwrap());
    assert!(decode::<Body<Advert>, ADVERT_BYTES_MAX>(&body).is_err());
}

#[test]
fn what_a_later_version_signs_is_not_understood_and_no_offence() {
    let me = Identity::generate().unwrap();
    let good = seal(&me, &grid(), stamp(7), Payload::Advert(advert(me.site_id()))).unwrap();
    let body = &good[HEADER_BYTES..];
    for (version, kind, dropped) in [
        (99, ADVERT, Dropped::UnknownVersion(99)),
        (VERSION, 99, Dropped::UnknownKind(99)),
        // A known kind is read as such.
        (VERSION, UPDATE, Dropped::Malformed),
    ] {
        let envelope = signed_envelope(&me, (version, kind), 7, body);
        assert_eq!(open(&envelope, terms(&grid())), Err(dropped));
        assert_eq!(peek_in(&envelope, &grid()), Ok((me.site_id().clone(), 7)), "its author has its share");
        assert_eq!(dropped.is_forwarders_fault(), dropped == Dropped::Malformed);
        let mut unsigned = good.clone();
        unsigned[..2].copy_from_slice(&[version, kind]);
        assert_eq!(open(&unsigned, terms(&grid())), Err(Dropped::Unsigned), "whatever its version");
    }
    assert!(Dropped::UnknownVersion(99).to_string().contains("version 99"));
}

#[test]
fn extra_entries_are_signed_bounded_and_ignored() {
    let me = Identity::generate().unwrap();
    let payload = Payload::Advert(advert(me.site_id()));
    let with = |extra: &Extra| {
        let envelope = seal_with_badge(&me, &grid(), stamp(7), payload.clone(), (Badge::default(), extra)).unwrap();
        let opened = open(&envelope, terms(&grid()));
        let mut changed = envelope;
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(open(&changed, terms(&grid())), Err(Dropped::Unsigned));
        opened.map(|opened| opened.payload)
    };
    let one = |key: usize, value: usize| Extra::from([("k".repeat(key), vec![7; value])]);
    let many = |count: usize| (0..count).map(|number| (number.to_string(), vec![1])).collect::<Extra>();
    for good in [Extra::new(), one(EXTRA_KEY_BYTES_MAX, EXTRA_VALUE_BYTES_MAX), many(EXTRA_MAX)] {
        assert_eq!(with(&good).as_ref(), Ok(&payload));
    }
    for bad in [one(EXTRA_KEY_BYTES_MAX + 1, 1), one(1, EXTRA_VALUE_BYTES_MAX + 1), many(EXTRA_MAX + 1)] {
        assert_eq!(with(&bad), Err(Dropped::Invalid));
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(open(&bytes, terms(&grid())).is_err());
        prop_assert!(decode::<Body<Advert>, ADVERT_BYTES_MAX>(&bytes).is_err());
        prop_assert!(peek(&bytes).is_none_or(|(author, _)| !author.as_str().is_empty()));
    }

    #[test]
    fn no_changed_byte_goes_unnoticed(position in any::<prop::sample::Index>(), flip in 1_u8..) {
        let me = Identity::generate().unwrap();
        let mut envelope = seal(&me, &grid(), stamp(1), Payload::Update(update(me.site_id(), 2))).unwrap();
        let position = position.index(envelope.len());
        envelope[position] ^= flip;
        prop_assert!(open(&envelope, terms(&grid())).is_err());
    }
}
