//! Where a job that was taken out goes: the places of a few hosts at which their ends rise least, with some chance.
//!
//! Invariant: what is found fits, begins when the job may and ends in time.

use std::cmp::Reverse;

use rand::{RngExt, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    problem::{Job, Needs, Placement, RESOURCES_MAX, Sized},
    room::Room,
};

/// Most starts that are looked at for a job of several seats.
const STARTS_MAX: usize = 12;
/// Most factors that are looked at for each start of such a job.
const FACTORS_MAX: usize = 4;

/// What is worked out once of a job.
pub(super) struct Shape<'a> {
    pub job: &'a Job,
    /// Where it needs least.
    least: Sized,
    /// How long it lasts at its largest factor.
    shortest: i64,
    /// By resource: what it needs over all of its time.
    areas: [u128; RESOURCES_MAX],
}

impl<'a> Shape<'a> {
    pub fn of(job: &'a Job) -> Shape<'a> {
        let areas = job.needs.map(|need| u128::from(need) * u128::from(job.seconds.cast_unsigned()));
        Shape { job, least: job.at(job.scale.0), shortest: job.seconds_at(job.scale.1), areas }
    }
}

/// What a place must keep to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// No job ends later.
    pub end: i64,
    /// The hosts' ends rise by at most this much together.
    pub rise: i64,
}

impl Bounds {
    /// What a rise must be less than to be better than the least so far.
    fn below(self, least: Option<i64>) -> i64 {
        least.unwrap_or(i64::MAX).min(self.rise.saturating_add(1))
    }
}

/// A host when hosts are looked at in the order of their ends, those that are alike together.
#[derive(Debug, Clone, Copy)]
struct Ordered {
    host: usize,
    last: i64,
    print: u64,
}

/// A rise with the chance that it looks larger than it is.
fn chance(rise: i64, random: &mut Xoshiro256PlusPlus) -> i64 {
    rise + random.random_range(0..=rise / 8 + 4)
}

/// Calls with each factor, and the end that it leads to, at which a job fits on a host from `start` on, in the step `first`, and ends as
/// early as it can or with what is beside it.
fn factors(room: &mut Room, host: usize, first: usize, start: i64, shape: &Shape<'_>, mut look: impl FnMut(u32, i64)) {
    let (job, resources) = (shape.job, room.resources());
    let mut free = room.capacity;
    let steps = room.steps(host);
    let mut at = first;
    loop {
        let step = &steps[at];
        for ((free, capacity), used) in free[..resources].iter_mut().zip(&room.capacity).zip(&step.used) {
            *free = (*free).min(capacity.saturating_sub(*used));
        }
        at += 1;
        if (0..resources).any(|resource| shape.least.needs[resource] > free[resource]) {
            break;
        }
        let until = steps.get(at).map(|next| next.time);
        if let Some(until) = until {
            let span = until - start;
            let is_over = |resource: usize| shape.areas[resource] > u128::from(free[resource]) * span as u128;
            if span < shape.shortest || (0..resources).any(is_over) {
                continue;
            }
        }
        let Some(most) = job.inside(&free[..resources]) else { break };
        let end = start + job.seconds_at(most);
        if until.is_some_and(|until| end > until) {
            continue;
        }
        look(most, end);
        if let Some(until) = until
            && let Some(factor) = job.within(until - start)
            && factor < most
        {
            look(factor, start + job.seconds_at(factor));
        }
        break;
    }
    room.work += (at - first) as u64;
}

/// The place of a single seat.
pub(super) fn of_one(
    room: &mut Room,
    shape: &Shape<'_>,
    hosts: &[usize],
    bounds: Bounds,
    random: &mut Xoshiro256PlusPlus,
) -> Option<Placement> {
    let job = shape.job;
    // The rise as it looks, the host, the start and the factor.
    let mut best: Option<(i64, usize, i64, u32)> = None;
    for host in hosts {
        let last = room.end(*host);
        for at in 0..room.steps(*host).len() {
            room.work += 1;
            let Some(start) = room.start_in(*host, at, job.starts.0, &shape.least.needs) else { continue };
            let below = bounds.below(best.map(|(least, ..)| least));
            let earliest = start + shape.shortest;
            if earliest - last >= below || earliest > bounds.end {
                break;
            }
            factors(room, *host, at, start, shape, |factor, end| {
                let least = best.map(|(least, ..)| least);
                let rise = (end - last).max(0);
                if end > bounds.end || start > job.last_start(end - start) || rise >= bounds.below(least) {
                    return;
                }
                let rise = chance(rise, random);
                if least.is_none_or(|least| rise < least) {
                    best = Some((rise, *host, start, factor));
                }
            });
        }
    }
    let (_, host, start, factor) = best?;
    Some(Placement { start, factor, hosts: vec![host] })
}

/// The place of several seats that start together, at the starts and factors that these hosts suggest.
pub(super) fn of_many(
    room: &mut Room,
    shape: &Shape<'_>,
    hosts: &[usize],
    bounds: Bounds,
    random: &mut Xoshiro256PlusPlus,
) -> Option<Placement> {
    let job = shape.job;
    let ordered = |host| Ordered { host, last: room.end(host), print: room.print(host) };
    let mut order: Vec<Ordered> = (0..room.hosts()).map(ordered).collect();
    order.sort_unstable_by_key(|one| (Reverse(one.last), one.print, one.host));
    room.work += order.len() as u64;
    let widest = order.get(..job.seats)?;
    let mut best: Option<(i64, Placement)> = None;
    for start in some_starts(room, shape, hosts, bounds, random) {
        let below = bounds.below(best.as_ref().map(|(least, _)| *least));
        let earliest = start + shape.shortest;
        if widest.iter().map(|one| (earliest - one.last).max(0)).sum::<i64>() >= below {
            continue;
        }
        for factor in some_factors(room, shape, hosts, start, random) {
            let sized = job.at(factor);
            if start + sized.seconds > bounds.end || start > job.last_start(sized.seconds) {
                continue;
            }
            let least = best.as_ref().map(|(least, _)| *least);
            let found = least_late(room, (job.seats, start, &sized), &order, bounds.below(least));
            let Some((rise, hosts)) = found else { continue };
            let rise = chance(rise, random);
            if least.is_none_or(|least| rise < least) {
                best = Some((rise, Placement { start, factor, hosts }));
            }
        }
    }
    let (_, mut placement) = best?;
    placement.hosts.sort_unstable();
    Some(placement)
}

fn some_starts(
    room: &Room,
    shape: &Shape<'_>,
    hosts: &[usize],
    bounds: Bounds,
    random: &mut Xoshiro256PlusPlus,
) -> Vec<i64> {
    let mut starts: Vec<i64> = Vec::new();
    for host in hosts {
        let begins = |at| room.start_in(*host, at, shape.job.starts.0, &shape.least.needs);
        starts.extend((0..room.steps(*host).len()).filter_map(begins));
    }
    starts.retain(|start| start + shape.shortest <= bounds.end);
    some_of(starts, STARTS_MAX, random)
}

fn some_factors(
    room: &mut Room,
    shape: &Shape<'_>,
    hosts: &[usize],
    start: i64,
    random: &mut Xoshiro256PlusPlus,
) -> Vec<u32> {
    let mut suggested = Vec::new();
    for host in hosts {
        let first = room.step_at(*host, start);
        factors(room, *host, first, start, shape, |factor, _| suggested.push(factor));
    }
    some_of(suggested, FACTORS_MAX, random)
}

/// At most so many of these, in any order.
fn some_of<T: Ord>(mut all: Vec<T>, most: usize, random: &mut Xoshiro256PlusPlus) -> Vec<T> {
    all.sort_unstable();
    all.dedup();
    all.shuffle(random);
    all.truncate(most);
    all
}

/// The hosts that end least later with so many seats, latest end first; by how much together, if that is less than `below`.
fn least_late(
    room: &mut Room,
    (seats, start, sized): (usize, i64, &Sized),
    order: &[Ordered],
    below: i64,
) -> Option<(i64, Vec<usize>)> {
    let end = start + sized.seconds;
    let (mut rise, mut chosen) = (0, Vec::with_capacity(seats));
    // What was found of the hosts that are like the last one.
    let mut like: Option<(u64, bool)> = None;
    for (at, one) in order.iter().enumerate() {
        let missing = seats - chosen.len();
        // Those that follow end no later.
        let later = (end - one.last).max(0);
        if order.len() - at < missing || rise + later * (missing as u64).cast_signed() >= below {
            return None;
        }
        let is_free = match like {
            Some((print, is_free)) if print == one.print => is_free,
            _ => room.fits(one.host, start, sized).is_ok(),
        };
        like = Some((one.print, is_free));
        if is_free {
            rise += later;
            chosen.push(one.host);
            if chosen.len() == seats {
                return Some((rise, chosen));
            }
        }
    }
    None
}

/// The places of jobs side by side on these hosts, of which each takes the first, at the factors at which all of them have ended first.
pub(super) fn together(
    room: &mut Room,
    shapes: &[&Shape<'_>],
    hosts: &[usize],
    bounds: Bounds,
    random: &mut Xoshiro256PlusPlus,
) -> Option<Vec<Placement>> {
    let mut least = [0; RESOURCES_MAX];
    shapes.iter().for_each(|shape| add(&mut least, &shape.least.needs));
    let first = shapes.iter().map(|shape| shape.job.starts.0).max()?;
    let shortest = shapes.iter().map(|shape| shape.shortest).max()?;
    let lasts: Vec<i64> = hosts.iter().map(|host| room.end(*host)).collect();
    let rise = |end: i64| lasts.iter().map(|last| (end - last).max(0)).sum::<i64>();
    // The rise as it looks, the start and how long all are.
    let mut best: Option<(i64, i64, i64)> = None;
    for at in 0..room.steps(hosts[0]).len() {
        room.work += 1;
        let Some(start) = room.start_in(hosts[0], at, first, &least) else { continue };
        let below = bounds.below(best.map(|(least, ..)| least));
        let earliest = start + shortest;
        if rise(earliest) >= below || earliest > bounds.end {
            break;
        }
        let Some(seconds) = shortest_together(room, shapes, hosts, start, &least) else { continue };
        let rise = rise(start + seconds);
        if start + seconds > bounds.end || rise >= below {
            continue;
        }
        let rise = chance(rise, random);
        if best.is_none_or(|(least, ..)| rise < least) {
            best = Some((rise, start, seconds));
        }
    }
    let (_, start, seconds) = best?;
    let place = |shape: &&Shape<'_>| {
        let factor = shape.job.within(seconds)?;
        let is_in_time = start <= shape.job.last_start(shape.job.seconds_at(factor));
        is_in_time.then(|| Placement { start, factor, hosts: hosts[..shape.job.seats].to_vec() })
    };
    shapes.iter().map(place).collect()
}

fn add(sum: &mut Needs, needs: &Needs) {
    sum.iter_mut().zip(needs).for_each(|(sum, need)| *sum += need);
}

/// How soon after this start all of these jobs have ended side by side, that they fit as long as each takes least.
fn shortest_together(
    room: &mut Room,
    shapes: &[&Shape<'_>],
    hosts: &[usize],
    start: i64,
    least: &Needs,
) -> Option<i64> {
    let fits = |room: &mut Room, seconds: i64| {
        let (mut sized, mut needs) =
            (Sized { factor: 1000, seconds: 0, needs: [0; RESOURCES_MAX] }, [0; RESOURCES_MAX]);
        for shape in shapes {
            let one = shape.job.at(shape.job.within(seconds)?);
            sized.seconds = sized.seconds.max(one.seconds);
            add(&mut needs, &one.needs);
        }
        sized.needs = needs;
        room.work += shapes.len() as u64;
        hosts.iter().all(|host| room.fits(*host, start, &sized).is_ok()).then_some(sized.seconds)
    };
    let slowest = shapes.iter().map(|shape| shape.least.seconds).max()?;
    let until = hosts.iter().map(|host| room.free_until(*host, start, least)).min()?;
    let (mut never, mut enough) = (0, slowest.min(until.saturating_sub(start)));
    enough = fits(room, enough)?;
    while never + 1 < enough {
        let middle = i64::midpoint(never, enough);
        match fits(room, middle) {
            Some(_) => enough = middle,
            None => never = middle,
        }
    }
    Some(enough)
}
