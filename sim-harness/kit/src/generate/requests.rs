//! Requests as in the source's experiments: durations, windows and totals of section 3.4.2, formula (3.4).
//!
//! Invariant: a simple and a collective request of the same seed and place differ in their per-host minima only (and in
//! the rounding of a simple total to a multiple of N).

use std::collections::BTreeMap;

use broker::{
    amount::Amount,
    ids::RequestId,
    request::{Request, RequestDocument, RequestError},
    resources::{Amounts, Attributes, ResourceName},
    snapshot::GridSnapshot,
    time::Time,
};
use rand::RngExt;

use super::{STEP_S, Stream, stream};
use crate::stats::{Spread, spread};

/// Whether the split of the totals is left open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Every host must have an equal part: `d_i = e_i / N`.
    Simple,
    /// The hosts together must have the total: `d_i = e_i / 2N`.
    Collective,
}

const DURATIONS_S: [i64; 6] = [600, 1800, 3600, 7200, 10_800, 18_000];
/// `t_earliest` is drawn from 0 to this many seconds (5 h 50 min).
const EARLIEST_MAX_S: i64 = 21_000;
/// `t_latest + t_res` is drawn from this range of seconds (18 h 10 min to 24 h).
const END_S: (i64, i64) = (65_400, 86_400);

/// Draws `count` requests for `n` hosts each. Totals are drawn around the mean capacities of `snapshot` (3.4), over the
/// resources that every host of it has; the commonest `arch` is asked for, where hosts name one.
///
/// # Errors
/// [`RequestError`] when `n` is no possible number of hosts, or the capacities are so large that a total is none.
pub fn requests(
    seed: u64,
    n: u32,
    count: usize,
    kind: Kind,
    snapshot: &GridSnapshot,
) -> Result<Vec<Request>, RequestError> {
    let ranges = total_ranges(n, snapshot);
    let attributes = commonest_arch(snapshot);
    (0..count)
        .map(|index| {
            let mut random = stream(seed, Stream::Request(index));
            let duration = DURATIONS_S[random.random_range(0..DURATIONS_S.len())];
            let earliest = random.random_range(0..=EARLIEST_MAX_S / STEP_S) * STEP_S;
            let end = random.random_range(END_S.0 / STEP_S..=END_S.1 / STEP_S) * STEP_S;
            let (mut per_host, mut total) = (Amounts::new(), Amounts::new());
            for (name, (low, high)) in &ranges {
                let drawn = random.random_range(*low..=*high);
                let (minimum, sum) = match kind {
                    Kind::Simple => (drawn / u64::from(n.max(1)), drawn / u64::from(n.max(1)) * u64::from(n)),
                    Kind::Collective => (drawn / (2 * u64::from(n.max(1))), drawn),
                };
                per_host.insert(name.clone(), Amount(minimum));
                total.insert(name.clone(), Amount(sum));
            }
            Request::try_from(RequestDocument {
                id: Some(RequestId::new(&format!("r{:03}", index + 1)).expect("a short text")),
                hosts: n,
                duration: Some(duration),
                earliest: Some(Time(earliest)),
                latest: Some(Time(end - duration)),
                per_host,
                total,
                attributes: attributes.clone(),
                ..RequestDocument::default()
            })
        })
        .collect()
}

/// The same request, of whole hosts.
pub fn whole(request: Request) -> Request {
    let (per_host, total) = (Amounts::new(), Amounts::new());
    let document = RequestDocument { exclusive: true, per_host, total, ..RequestDocument::from(request) };
    Request::try_from(document).expect("hosts without amounts may be taken whole")
}

/// Interval (3.4) of each resource that every host has, from 2 N base units on so that no per-host minimum is zero.
fn total_ranges(n: u32, snapshot: &GridSnapshot) -> BTreeMap<ResourceName, (u64, u64)> {
    let mut capacities: BTreeMap<&ResourceName, Vec<f64>> = BTreeMap::new();
    for entry in &snapshot.hosts {
        for (name, capacity) in &entry.host.capacity {
            capacities.entry(name).or_default().push(capacity.0 as f64);
        }
    }
    capacities
        .into_iter()
        .filter(|(_, values)| values.len() == snapshot.hosts.len())
        .map(|(name, values)| {
            let Spread { mean, sd, .. } = spread(values.into_iter());
            let low = ((f64::from(n) * (mean - 2.0 * sd)) as u64).max(2 * u64::from(n));
            let high = ((f64::from(n) * (mean + 0.5 * sd)) as u64).max(low);
            (name.clone(), (low, high))
        })
        .collect()
}

fn commonest_arch(snapshot: &GridSnapshot) -> Attributes {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for arch in snapshot.hosts.iter().filter_map(|entry| entry.host.attributes.get("arch")) {
        *counts.entry(arch).or_default() += 1;
    }
    let commonest = counts.into_iter().max_by_key(|(_, count)| *count);
    commonest.map(|(arch, _)| ("arch".to_owned(), arch.to_owned())).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use broker::{resources::amount_of, time::Span};

    use super::*;
    use crate::generate::grid;

    #[test]
    fn requests_are_drawn_as_in_the_source() {
        let snapshot = grid(1, 606);
        let drawn = requests(1, 5, 2000, Kind::Collective, &snapshot).unwrap();
        let memory = ResourceName::new("memory").unwrap();
        let mut sum = 0.0;
        for request in &drawn {
            let (earliest, latest) = request.starts(Time(0), Span(0)).unwrap();
            assert!(earliest.0 <= 21_000 && earliest.0 % 300 == 0);
            let end = latest.0 + request.demand().length().at_reference().0.cast_signed();
            assert!((65_400..=86_400).contains(&end));
            assert_eq!(request.demand().seats(), 5);
            assert_eq!(request.demand().attributes()["arch"], "x86_64");
            let total = amount_of(request.demand().total(), &memory).0;
            assert_eq!(amount_of(request.demand().per_host(), &memory).0, total / 10);
            sum += total as f64;
        }
        // The middle of (3.4) is N (mean - 0.75 sd).
        let middle = 5.0 * (3020.8 - 0.75 * 860.2);
        assert!((sum / 2000.0 / middle - 1.0).abs() < 0.04, "mean total {} against {middle}", sum / 2000.0);
    }

    #[test]
    fn simple_requests_split_evenly_and_the_same_seed_gives_the_same_requests() {
        let snapshot = grid(1, 60);
        let simple = requests(4, 15, 30, Kind::Simple, &snapshot).unwrap();
        let collective = requests(4, 15, 30, Kind::Collective, &snapshot).unwrap();
        assert_eq!(simple, requests(4, 15, 30, Kind::Simple, &snapshot).unwrap());
        assert_eq!(collective[..10], requests(4, 15, 10, Kind::Collective, &snapshot).unwrap());
        for (simple, collective) in simple.iter().zip(&collective) {
            let (simple, collective) = (simple.demand(), collective.demand());
            assert_eq!(simple.length(), collective.length());
            for (name, total) in simple.total() {
                assert_eq!(amount_of(simple.per_host(), name).0 * 15, total.0);
                assert!(amount_of(collective.total(), name).0 - total.0 < 15);
            }
        }
        assert!(requests(4, 0, 1, Kind::Simple, &snapshot).is_err());
    }
}
