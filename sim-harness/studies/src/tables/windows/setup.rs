//! The source's set-up: one domain of hosts, the local jobs of their owners, and the batch of one cycle.
//!
//! Source: the dissertation on windows of slots, chapter 3 (24 hosts, speeds within one order of magnitude, 600 units, 20 jobs, price by
//! speed with a normal discount or surcharge, budgets up to the market and 60 %, local jobs by hypergeometric draws). What it leaves
//! open follows from figures that are no gains: a market price of 6 is the middle of speeds from 2 to 10; in table 1 the first window's cost of
//! 1,248 and run of 50 are 3.5 hosts with 355 units of work each, and its 12.1 alternatives are a local load of 7 %; with budgets from 0.8
//! of the market on some job had no place in 6 % of 200 cycles even in an empty domain, but the source has a load with next to none, so they
//! begin at 0.9. Any host may serve a job. Invariant: the same seed and number give the same hosts and jobs at any load, and nearly the same local jobs, so that loads and
//! prices are compared on the same draws.

use broker::{
    amount::Amount,
    cost::{Cost, Price, Prices},
    host::{Host, Speed},
    ids::{HostId, RequestId, SiteId},
    offline::Asked,
    request::{ObjectiveKind, Request, RequestDocument},
    resources::{Amounts, Attributes, ResourceName},
    schedule::Schedule,
    snapshot::{GridSnapshot, SnapshotHost},
    tariff::Tariff,
    time::{Time, Window},
};
use rand::{RngExt, seq::SliceRandom};
use rand_distr::{Distribution, Hypergeometric, Normal};
use rand_xoshiro::{
    SplitMix64, Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use serde::Serialize;

/// Hosts of the domain.
pub(super) const HOSTS: usize = 24;
/// Jobs of a batch.
pub(super) const JOBS: usize = 20;
/// Length of a cycle, in units of time.
pub(super) const CYCLE: i64 = 600;
/// Seconds of a unit: enough that rounding to seconds does not show.
const UNIT_S: i64 = 60;
/// Thousandths of a credit an hour that a price of one a unit is.
const HOURLY: f64 = 1000.0 * 3600.0 / UNIT_S as f64;
/// Speeds of hosts, in thousandths; the market's price for a unit is the speed.
const SPEEDS: std::ops::RangeInclusive<u32> = 2_000..=10_000;
/// Standard deviation of discounts and surcharges, as parts of the market price.
const DISCOUNT_SD: f64 = 0.2;
/// The largest discount or surcharge.
const DISCOUNT_MAX: f64 = 0.6;
/// Hosts of a job.
const SEATS: std::ops::RangeInclusive<u32> = 2..=5;
/// Units of work on each host, at speed 1.
const WORK: std::ops::RangeInclusive<i64> = 200..=510;
/// What a job may cost, as parts of the market price: from those who need a discount to the market and 60 %.
const BUDGETS: std::ops::RangeInclusive<f64> = 0.9..=1.6;
/// Places in the cycle, each of which has a local job of a host or none.
const PLACES: u64 = 10;
/// Units of such a place.
const PLACE: i64 = CYCLE / PLACES.cast_signed();
/// The part of its place that a local job takes on average.
const FILLED: f64 = 0.75;
/// What local jobs may take at most, in thousandths of all hosts.
pub(super) const LOAD_MAX: u32 = 700;

/// The criteria of jobs, each as likely as the others.
pub(super) const CRITERIA: [ObjectiveKind; 4] =
    [ObjectiveKind::Start, ObjectiveKind::Runtime, ObjectiveKind::Finish, ObjectiveKind::Cost];

/// One cycle: the domain and the batch.
pub(super) struct Cycle {
    /// The hosts with their local jobs, in the order of their names.
    pub(super) grid: GridSnapshot,
    /// The jobs, by priority.
    pub(super) jobs: Vec<Request>,
}

/// One host whose owner asks his own price, while all others ask that of the market.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    /// Position of the host.
    pub(super) host: usize,
    /// Its speed and its price for a unit, in thousandths.
    pub(super) speed: u32,
    pub(super) price: u32,
}

/// What is drawn, for the page.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    hosts: usize,
    jobs: usize,
    cycle_units: i64,
    speeds_thousandths: [u32; 2],
    discount_sd: f64,
    discount_max: f64,
    seats: [u32; 2],
    work_units: [i64; 2],
    budgets: [f64; 2],
}

/// The set-up in figures.
pub(super) fn figures() -> Figures {
    Figures {
        hosts: HOSTS,
        jobs: JOBS,
        cycle_units: CYCLE,
        speeds_thousandths: [*SPEEDS.start(), *SPEEDS.end()],
        discount_sd: DISCOUNT_SD,
        discount_max: DISCOUNT_MAX,
        seats: [*SEATS.start(), *SEATS.end()],
        work_units: [*WORK.start(), *WORK.end()],
        budgets: [*BUDGETS.start(), *BUDGETS.end()],
    }
}

/// The set-up in words.
pub(super) fn words() -> String {
    format!(
        "{HOSTS} hosts of speeds {} to {}, a cycle of {CYCLE} units, {JOBS} jobs of {} to {} hosts with {} to {} units of work at speed 1 \
         on each, a price of the speed times 1 + a normal draw of deviation {DISCOUNT_SD} (at most {DISCOUNT_MAX} up or down), budgets \
         of {} to {} times the market price. Local jobs: each host has {PLACES} places of {PLACE} units; how many of them hold a job, and how \
         long it lasts ({} units on average), are hypergeometric draws for the local load named",
        SPEEDS.start() / 1000,
        SPEEDS.end() / 1000,
        SEATS.start(),
        SEATS.end(),
        WORK.start(),
        WORK.end(),
        BUDGETS.start(),
        BUDGETS.end(),
        PLACE as f64 * FILLED,
    )
}

/// The job as a request of a batch.
pub(super) fn asked((place, job): (usize, &Request)) -> anyhow::Result<Asked> {
    let id = RequestId::new(&format!("job-{:02}", place + 1))?;
    Ok(Asked::new(id, job))
}

/// Seconds in units of time.
pub(super) fn units(seconds: f64) -> f64 {
    seconds / UNIT_S as f64
}

/// A cost in credits: a price of one for one unit.
pub(super) fn credits(cost: Cost) -> f64 {
    cost.0 as f64 / 1000.0
}

/// The same job by another criterion.
///
/// # Errors
/// None that a checked request could have.
pub(super) fn with_objective(job: &Request, objective: ObjectiveKind) -> anyhow::Result<Request> {
    Ok(Request::try_from(RequestDocument { objective, ..RequestDocument::from(job.clone()) })?)
}

/// Draws a cycle with so many thousandths of local load.
///
/// # Errors
/// None that a draw in range could have.
pub(super) fn cycle(seed: u64, number: u64, load: u32, owner: Option<Owner>) -> anyhow::Result<Cycle> {
    let mut hosts = Vec::with_capacity(HOSTS);
    for at in 0..HOSTS {
        let mut random = stream(seed, number, at as u64);
        let speed = random.random_range(SPEEDS);
        let discount: f64 = Normal::new(0.0, DISCOUNT_SD)?.sample(&mut random);
        let price = f64::from(speed) / 1000.0 * (1.0 + discount.clamp(-DISCOUNT_MAX, DISCOUNT_MAX));
        let (speed, price) = match owner.filter(|owner| owner.host == at) {
            Some(owner) => (owner.speed, f64::from(owner.price) / 1000.0),
            None => (speed, price),
        };
        hosts.push(host(at, speed, price, local_jobs(load, &mut random)?)?);
    }
    let mut random = stream(seed, number, HOSTS as u64);
    let jobs = (0..JOBS).map(|_| job(&mut random)).collect::<anyhow::Result<_>>()?;
    Ok(Cycle { grid: GridSnapshot { hosts, ..GridSnapshot::default() }, jobs })
}

fn stream(seed: u64, number: u64, part: u64) -> Xoshiro256PlusPlus {
    let base = SplitMix64::seed_from_u64(seed).next_u64();
    Xoshiro256PlusPlus::seed_from_u64(base.wrapping_add(number * (HOSTS as u64 + 1) + part))
}

fn core() -> anyhow::Result<Amounts> {
    Ok(Amounts::from([(ResourceName::new("cpu")?, Amount(1000))]))
}

fn host(at: usize, speed: u32, price: f64, schedule: Schedule) -> anyhow::Result<SnapshotHost> {
    let price = Price((price * HOURLY).round() as u32);
    let prices = Prices::Always([(ResourceName::new("cpu")?, price)].into());
    Ok(SnapshotHost {
        site: SiteId::new("domain")?,
        host: Host {
            id: HostId::new(&format!("host-{:02}", at + 1))?,
            capacity: core()?,
            attributes: Attributes::new(),
            speed: Speed::try_from(speed)?,
            tariff: Tariff { prices, ..Tariff::default() }.into(),
        },
        schedule,
    })
}

fn local_jobs(load: u32, random: &mut impl Rng) -> anyhow::Result<Schedule> {
    let length = Hypergeometric::new(2 * PLACE as u64, (2.0 * FILLED * PLACE as f64) as u64, PLACE as u64)?;
    let mut places: Vec<Window> = Vec::new();
    for place in 0..PLACES.cast_signed() {
        let length = length.sample(random).cast_signed().max(1);
        let start = place * PLACE + random.random_range(0..=PLACE - length);
        places.push(Window { start: Time(start * UNIT_S), end: Time((start + length) * UNIT_S) });
    }
    places.shuffle(random);
    let chance = f64::from(load.min(LOAD_MAX)) / 1000.0 / FILLED;
    let count = Hypergeometric::new(1000, (1000.0 * chance).round() as u64, PLACES)?.sample(random);
    let (mut schedule, core) = (Schedule::default(), core()?);
    places.iter().take(count as usize).for_each(|window| schedule.add(*window, &core));
    Ok(schedule)
}

fn job(random: &mut impl Rng) -> anyhow::Result<Request> {
    let (hosts, work) = (random.random_range(SEATS), random.random_range(WORK));
    let budget = f64::from(hosts) * work as f64 * 1000.0 * random.random_range(BUDGETS);
    let document = RequestDocument {
        hosts,
        // At speed 1, which is the reference speed.
        work: Some(work * UNIT_S),
        earliest: Some(Time::ZERO),
        deadline: Some(Time(CYCLE * UNIT_S)),
        objective: CRITERIA[random.random_range(0..CRITERIA.len())],
        per_host: core()?,
        budget: Some(Cost(budget as u64)),
        ..RequestDocument::default()
    };
    Ok(Request::try_from(document)?)
}
