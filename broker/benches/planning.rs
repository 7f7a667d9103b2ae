//! What phases II to V cost: by N, by hosts, and by steps of use on a host.
//!
//! `cargo bench -p broker --bench planning`; `kolo-sim tables` compares with the source's pseudo-code. `full` asks so much that
//! most or all starts must be excluded; `first` is a request that fits at its earliest start.

use broker::{
    amount::Amount,
    host::{Host, Speed},
    ids::{HostId, SiteId},
    phases::{Candidate, Job, plan},
    request::{Effort, Request},
    resources::ResourceName,
    schedule::Schedule,
    time::Time,
};
use divan::{Bencher, black_box};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Seconds between two steps, as in the traces of the source.
const STEP_SECONDS: usize = 300;
/// Mean capacities and their spread (table 3.1, in base units).
const RESOURCES: [(&str, u64, u64); 3] = [("cpu", 2900, 1500), ("memory", 3020, 860), ("mhz", 2680, 360)];

fn main() {
    divan::main();
}

/// Hosts with random use that changes every five minutes.
struct Grid {
    site: SiteId,
    hosts: Vec<(Host, Schedule)>,
    steps: usize,
}

impl Grid {
    fn new(count: usize, steps: usize) -> Grid {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let hosts = (0..count).map(|index| host(index, steps, &mut random)).collect();
        Grid { site: SiteId::new("site").expect("a plain word"), hosts, steps }
    }

    fn candidates(&self, count: usize) -> Vec<Candidate<'_>> {
        let as_candidate = |(host, schedule)| Candidate { site: &self.site, host, schedule };
        self.hosts.iter().take(count).map(|(host, schedule)| as_candidate((host, schedule))).collect()
    }

    /// A request for `hosts` hosts with the given part of their mean capacity in sum, for an hour, on the whole trace.
    fn request(&self, hosts: usize, percent: u64) -> Request {
        let total = |(name, mean, _): &(&str, u64, u64)| format!(r#""{name}":{}"#, mean * percent / 100 * hosts as u64);
        let least = |(name, mean, _): &(&str, u64, u64)| format!(r#""{name}":{}"#, mean * percent / 200);
        let list = |entries: Vec<String>| entries.join(",");
        let text = format!(
            r#"{{"hosts":{hosts},"duration":3600,"earliest":0,"latest":{},"total":{{{}}},"per_host":{{{}}}}}"#,
            self.steps * STEP_SECONDS,
            list(RESOURCES.iter().map(total).collect()),
            list(RESOURCES.iter().map(least).collect()),
        );
        serde_json::from_str(&text).expect("a well-formed request")
    }

    fn latest(&self) -> Time {
        Time((self.steps * STEP_SECONDS).cast_signed() as i64)
    }
}

fn host(index: usize, steps: usize, random: &mut Xoshiro256PlusPlus) -> (Host, Schedule) {
    let name = |name: &str| ResourceName::new(name).expect("a plain word");
    let capacities = RESOURCES.map(|(_, mean, spread)| mean - spread + random.random_range(0..=2 * spread));
    let occupancies = RESOURCES.iter().zip(capacities).map(|((resource, ..), capacity)| {
        let step = |at: usize| {
            let used = capacity * random.random_range(0..60) / 100;
            (Time((at * STEP_SECONDS).cast_signed() as i64), Amount(used))
        };
        (name(resource), (0..steps).map(step).collect())
    });
    let schedule = Schedule::from_steps(&occupancies.collect()).expect("ascending steps");
    let capacity =
        RESOURCES.iter().zip(capacities).map(|((resource, ..), capacity)| (name(resource), Amount(capacity)));
    let id = HostId::new(&format!("h{index:05}")).expect("a plain word");
    let host = Host {
        id,
        capacity: capacity.collect(),
        attributes: std::collections::BTreeMap::new(),
        speed: Speed::REFERENCE,
        tariff: Default::default(),
    };
    (host, schedule)
}

fn bench_kolo(bencher: Bencher, grid: &Grid, pool: usize, hosts: usize, percent: u64) {
    let (request, candidates) = (grid.request(hosts, percent), grid.candidates(pool));
    bencher.bench_local(|| {
        plan(&Job::of(&request, (Time::ZERO, grid.latest())), black_box(&candidates), Effort::Balanced, 1, &mut ())
    });
}

/// N on a day of steps, with three times as many hosts to choose from.
mod by_hosts_asked {
    use super::*;

    const N: [usize; 6] = [2, 5, 10, 15, 30, 60];

    #[divan::bench(args = N)]
    fn kolo_first(bencher: Bencher, hosts: usize) {
        bench_kolo(bencher, &Grid::new(3 * hosts, 288), 3 * hosts, hosts, 40);
    }

    #[divan::bench(args = N)]
    fn kolo_full(bencher: Bencher, hosts: usize) {
        bench_kolo(bencher, &Grid::new(3 * hosts, 288), 3 * hosts, hosts, 85);
    }
}

/// N = 15 out of a whole grid.
#[divan::bench_group(sample_count = 10)]
mod by_pool {
    use super::*;

    const POOLS: [usize; 2] = [606, 10_000];

    #[divan::bench(args = POOLS)]
    fn kolo_first(bencher: Bencher, pool: usize) {
        bench_kolo(bencher, &Grid::new(pool, 288), pool, 15, 40);
    }

    #[divan::bench(args = POOLS)]
    fn kolo_full(bencher: Bencher, pool: usize) {
        bench_kolo(bencher, &Grid::new(pool, 288), pool, 15, 85);
    }
}

/// Steps on each host, N = 15 of 45 hosts.
#[divan::bench_group(sample_count = 20)]
mod by_steps {
    use super::*;

    const STEPS: [usize; 4] = [10, 100, 1_000, 10_000];

    #[divan::bench(args = STEPS)]
    fn kolo_full(bencher: Bencher, steps: usize) {
        bench_kolo(bencher, &Grid::new(45, steps), 45, 15, 85);
    }
}
