//! What people and programs write: amounts, requests, grid snapshots.
//!
//! Whatever is accepted must be written down again such that it reads as the same.

use broker::{
    amount::{Amount, format_amount, parse_amount},
    request::{Request, RequestDocument},
    snapshot::GridSnapshot,
    time::{Span, Time},
};

use crate::{Seed, Target};

/// `RESOURCE=AMOUNT` as people write it.
pub const AMOUNT: Target = Target {
    name: "amount",
    run: amount,
    seeds: || {
        let texts = [
            ("cores", "cpu=2.5"),
            ("millicores", "cpu=2500m"),
            ("gibibytes", "memory=1.5GiB"),
            ("kibibytes", "disk=2048KiB"),
            ("largest-unit", "disk=1PiB"),
            ("gigahertz", "mhz=2.4GHz"),
            ("own-name", "licence.x=7"),
        ];
        texts.map(|(name, text)| (name, text.as_bytes().to_vec())).to_vec()
    },
};

fn amount(data: &[u8]) {
    let Some((name, text)) = std::str::from_utf8(data).ok().and_then(|text| text.split_once('=')) else { return };
    let Ok(resource) = name.parse() else { return };
    if let Ok(amount) = parse_amount(&resource, text) {
        assert!(amount <= Amount::MAX, "{amount} is larger than any amount");
        assert_eq!(parse_amount(&resource, &format_amount(&resource, amount)), Ok(amount));
    }
}

/// A request as JSON.
pub const REQUEST: Target = Target { name: "request", run: request, seeds: request_seeds };

fn request(data: &[u8]) {
    let Ok(document) = serde_json::from_slice::<RequestDocument>(data) else { return };
    let Ok(request) = Request::try_from(document) else { return };
    let written = serde_json::to_string(&request).expect("a request that was read can be written");
    let again: Request = serde_json::from_str(&written).expect("what was written reads again");
    assert_eq!(again, request);
    for arrival in [Time::ZERO, Time(1_800_000_000), Time::MAX] {
        if let Ok((earliest, latest)) = request.starts(arrival, Span(86_400)) {
            assert!(arrival <= earliest && earliest <= latest && latest <= Time::MAX, "{earliest:?} {latest:?}");
        }
    }
    for name in request.demand().resources() {
        assert!(request.demand().needed_in_sum(&name) < Amount(u64::MAX), "a sum over hosts fits into 64 bits");
    }
    assert!(
        request.demand().candidates().is_none_or(|named| named.len() >= request.demand().seats() && named.is_sorted())
    );
}

fn request_seeds() -> Vec<Seed> {
    let texts: [(&str, &str); 4] = [
        ("least", r#"{"hosts":1,"duration":1}"#),
        (
            "full",
            r#"{"id":"r1","hosts":5,"duration":3600,"earliest":0,"latest":82800,"per_host":{"cpu":500},"total":{"cpu":12000,"memory":15360},"attributes":{"arch":"x86_64"},"candidates":["h1","h2","h3","h4","h5"],"effort":"thorough"}"#,
        ),
        (
            "bounds",
            r#"{"hosts":10000,"duration":253402300799,"per_host":{"gpu":281474976710655},"latest":253402300799}"#,
        ),
        ("refused", r#"{"hosts":0,"duration":-1,"unknown":[null,1.5e300,"\u0000\ud800"]}"#),
    ];
    texts.map(|(name, text)| (name, text.as_bytes().to_vec())).to_vec()
}

/// A `kolo-grid/1` snapshot.
pub const SNAPSHOT: Target = Target { name: "snapshot", run: snapshot, seeds: snapshot_seeds };

fn snapshot(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(snapshot) = GridSnapshot::read(text) else { return };
    assert_eq!(GridSnapshot::read(&snapshot.write()).as_ref(), Ok(&snapshot));
}

fn snapshot_seeds() -> Vec<Seed> {
    let texts: [(&str, &str); 4] = [
        ("empty", r#"{"format":"kolo-grid/1","hosts":[]}"#),
        (
            "bare",
            r#"{"format":"kolo-grid/1","hosts":[{"id":"h0","site":"s","resources":{"cpu":0}},{"id":"h1","site":"s"}]}"#,
        ),
        (
            "full",
            r#"{"format":"kolo-grid/1","hosts":[{"id":"h1","site":"s1","resources":{"cpu":4000,"mhz":2680,"memory":3072},"attributes":{"arch":"x86_64","os":"linux"},"speed":1500,"price":7,"occupancy":{"cpu":[[0,1200],[300,900],[86400,0]],"memory":[[0,512]]}}]}"#,
        ),
        (
            "bounds",
            r#"{"format":"kolo-grid/1","hosts":[{"id":"h","site":"s","resources":{"cpu":281474976710655},"occupancy":{"cpu":[[0,281474976710655],[506804601598,1]]}}]}"#,
        ),
    ];
    texts.map(|(name, text)| (name, text.as_bytes().to_vec())).to_vec()
}
