//! What people and programs write: amounts, requests, grid snapshots.
//!
//! Whatever is accepted must be written down again such that it reads as the same.

use broker::{
    amount::{Amount, format_amount, parse_amount},
    demand::Demand,
    ids::ShapeNumber,
    request::{Request, RequestDocument},
    scale::{Factor, Scale},
    snapshot::GridSnapshot,
    time::{Span, Time},
    variant::Variant,
};

use crate::Target;

/// `RESOURCE=AMOUNT` as people write it.
pub const AMOUNT: Target = Target { name: "amount", run: amount, golden: Vec::new };

fn amount(data: &[u8]) {
    let Some((name, text)) = std::str::from_utf8(data).ok().and_then(|text| text.split_once('=')) else { return };
    let Ok(resource) = name.parse() else { return };
    if let Ok(amount) = parse_amount(&resource, text) {
        assert!(amount <= Amount::MAX, "{amount} is larger than any amount");
        assert_eq!(parse_amount(&resource, &format_amount(&resource, amount)), Ok(amount));
    }
}

/// A request as JSON.
pub const REQUEST: Target = Target { name: "request", run: request, golden: Vec::new };

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
    let widest = request.widest();
    for (shape, asked) in (0..).map(ShapeNumber).zip(request.shapes()) {
        let range = asked.scale().map_or(Factor::ONE..=Factor::ONE, Scale::range);
        assert!(request.demand_of(Variant { shape, scale: Factor::MAX }).is_none() || *range.end() == Factor::MAX);
        for factor in [*range.start(), *range.end()] {
            let demand = request.demand_of(Variant { shape, scale: factor }).expect("both ends are allowed");
            check_demand(&widest, &demand);
            assert!(asked.scale().is_none() || demand.longest() <= asked.longest(), "the least factor lasts longest");
        }
    }
}

/// Whoever looks for hosts finds those that could serve this.
fn check_demand(widest: &Demand, demand: &Demand) {
    for name in demand.resources() {
        assert!(demand.needed_in_sum(&name) < Amount(u64::MAX), "a sum over hosts fits into 64 bits");
        assert!(widest.minimum_on_each(&name) <= demand.minimum_on_each(&name), "the widest leaves no host out");
    }
    assert!(demand.candidates().is_none_or(|named| named.len() >= demand.seats() && named.is_sorted()));
}

/// A `kolo-grid/1` snapshot.
pub const SNAPSHOT: Target = Target { name: "snapshot", run: snapshot, golden: Vec::new };

fn snapshot(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(snapshot) = GridSnapshot::read(text) else { return };
    assert_eq!(GridSnapshot::read(&snapshot.write()).as_ref(), Ok(&snapshot));
}
