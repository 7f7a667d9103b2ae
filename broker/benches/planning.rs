//! What phases II to V cost: by N, by hosts, and by steps of use on a host.
//!
//! `cargo bench -p broker --bench planning`; `kolo-study tables` compares with the source's pseudo-code. `full` asks so much that
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

/// N = 5 of a hundred sites with a thousand hosts each, all free: those of a site alike, or each a little larger than the one before, so
/// that all are looked at.
#[divan::bench_group(sample_count = 10)]
mod by_class {
    use super::*;

    fn bench(bencher: Bencher, is_alike: bool, objective: &str) {
        let sites: Vec<SiteId> = (0..100).map(|site| SiteId::new(&format!("s{site}")).expect("a plain word")).collect();
        let host = |at: u64| {
            let cpu = if is_alike { 4_000 } else { 4_000 + at };
            Host {
                id: HostId::new(&format!("n-{at}")).expect("a plain word"),
                capacity: [(ResourceName::new("cpu").expect("a plain word"), Amount(cpu))].into(),
                attributes: std::collections::BTreeMap::new(),
                speed: Speed::REFERENCE,
                tariff: Default::default(),
            }
        };
        let (hosts, schedule): (Vec<Host>, _) = ((0..1_000).map(host).collect(), Schedule::default());
        let of_site = |site| hosts.iter().map(move |host| (site, host));
        let candidates: Vec<Candidate<'_>> =
            sites.iter().flat_map(of_site).map(|(site, host)| Candidate { site, host, schedule: &schedule }).collect();
        let text = format!(
            r#"{{"hosts":5,"duration":3600,"latest":86400,"per_host":{{"cpu":3000}},"total":{{"cpu":18000}},"objective":"{objective}"}}"#
        );
        let request: Request = serde_json::from_str(&text).expect("a well-formed request");
        let job = Job { order: Some(1), ..Job::of(&request, (Time::ZERO, Time(86_400))) };
        bencher.bench_local(|| plan(&job, black_box(&candidates), Effort::Balanced, 1, &mut ()));
    }

    #[divan::bench(args = ["start", "finish", "cost"])]
    fn kolo_alike(bencher: Bencher, objective: &str) {
        bench(bencher, true, objective);
    }

    #[divan::bench(args = ["start", "finish", "cost"])]
    fn kolo_unlike(bencher: Bencher, objective: &str) {
        bench(bencher, false, objective);
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
