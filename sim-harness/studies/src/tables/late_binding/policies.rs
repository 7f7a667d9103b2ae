//! Who gets which host, and when that is decided: at once (static), by the source's test (dynamic), and by Kolo's witness.
//!
//! Static and dynamic are what the product is compared with; it has neither binding at once nor algorithm 2, which never looks at what a
//! wait takes from other promises. The test of dynamic and the whole of Kolo's policy are asked of [`broker::binding`].
//! Invariant: a host that a policy names is free of reservations then.

use std::{collections::BTreeMap, sync::Arc};

use broker::{
    binding::{Answer, Degrees, Need, OwnWork, Seat, SeatKey, Witness},
    host::{Host, Speed},
    ids::{HostId, RequestId, SeatNumber},
    time::{Span, Time, Window},
};
use rand::RngExt;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::world::{Queue, Request, World};

/// How a reservation begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin {
    pub(super) host: usize,
    pub(super) wait: Span,
    /// Work that is lost, in seconds.
    pub(super) cost: u64,
}

impl Begin {
    /// On this host: waits for the running task where there is time for it (algorithm 2).
    fn on(host: usize, slack: Span, queue: &mut Queue, now: Time) -> Begin {
        let (done, left) = queue.at(now);
        let (wait, cost) = if left <= slack { (left, 0) } else { (Span(0), done.0) };
        Begin { host, wait, cost }
    }
}

/// Decides about reservations; those it has taken are known by their number.
pub(super) trait Policy {
    /// Whether a reservation is taken.
    fn ask(&mut self, number: usize, request: &Request, queues: &[Queue]) -> anyhow::Result<bool>;
    /// Where it begins.
    fn begin(&mut self, number: usize, request: &Request, queues: &mut [Queue]) -> anyhow::Result<Option<Begin>>;
    /// It has ended.
    fn end(&mut self, number: usize) -> anyhow::Result<()>;
    /// A host has failed: the reservations that fail with it.
    fn fail(&mut self, host: usize, now: Time) -> anyhow::Result<Vec<usize>>;
}

/// SRRM: a host is chosen when the reservation is asked for, at random or by the least cost as foreseen then.
pub(super) struct Static {
    random: Option<Xoshiro256PlusPlus>,
    reserved: Vec<BTreeMap<usize, Request>>,
    has_failed: Vec<bool>,
}

impl Static {
    pub(super) fn new(world: &World, is_random: bool) -> Static {
        Static {
            random: is_random.then(|| Xoshiro256PlusPlus::seed_from_u64(world.seed)),
            reserved: vec![BTreeMap::new(); world.queues.len()],
            has_failed: vec![false; world.queues.len()],
        }
    }

    /// What a reservation will cost on a host, as far as its queue and its reservations are known.
    fn foreseen(&self, host: usize, request: &Request, queue: &Queue) -> u64 {
        let mut queue = queue.clone();
        let mut before: Vec<&Request> = self.reserved[host].values().collect();
        before.retain(|other| other.asked < other.window.start && other.window.start < request.window.start);
        before.sort_by_key(|other| other.window.start);
        for other in before.into_iter().filter(|other| other.window.start >= request.asked) {
            let begin = Begin::on(host, other.slack(), &mut queue, other.window.start);
            queue.reserve(begin.wait > Span(0), other.window.start + begin.wait + other.length);
        }
        Begin::on(host, request.slack(), &mut queue, request.window.start).cost
    }
}

impl Policy for Static {
    fn ask(&mut self, number: usize, request: &Request, queues: &[Queue]) -> anyhow::Result<bool> {
        let is_free = |host: &usize| {
            queues[*host].level >= request.level
                && !self.has_failed[*host]
                && !self.reserved[*host].values().any(|other| other.window.overlaps(request.window))
        };
        let free: Vec<usize> = (0..queues.len()).filter(is_free).collect();
        let chosen = match &mut self.random {
            Some(random) if !free.is_empty() => Some(free[random.random_range(0..free.len())]),
            Some(_) => None,
            None => free.into_iter().min_by_key(|host| self.foreseen(*host, request, &queues[*host])),
        };
        Ok(chosen.is_some_and(|host| self.reserved[host].insert(number, *request).is_none()))
    }

    fn begin(&mut self, number: usize, request: &Request, queues: &mut [Queue]) -> anyhow::Result<Option<Begin>> {
        let host = self.reserved.iter().position(|reserved| reserved.contains_key(&number));
        Ok(host.map(|host| Begin::on(host, request.slack(), &mut queues[host], request.window.start)))
    }

    fn end(&mut self, number: usize) -> anyhow::Result<()> {
        for reserved in &mut self.reserved {
            reserved.remove(&number);
        }
        Ok(())
    }

    fn fail(&mut self, host: usize, _: Time) -> anyhow::Result<Vec<usize>> {
        self.has_failed[host] = true;
        Ok(std::mem::take(&mut self.reserved[host]).into_keys().collect())
    }
}

/// DRRM: admitted by `freeDeg`, bound by algorithm 2.
pub(super) struct Dynamic {
    graph: Degrees<usize>,
    taken: BTreeMap<usize, usize>,
    has_failed: Vec<bool>,
}

impl Dynamic {
    pub(super) fn new(world: &World) -> Dynamic {
        let hosts = world.queues.len();
        Dynamic { graph: Degrees::new(hosts), taken: BTreeMap::new(), has_failed: vec![false; hosts] }
    }
}

impl Policy for Dynamic {
    fn ask(&mut self, number: usize, request: &Request, queues: &[Queue]) -> anyhow::Result<bool> {
        let could = |host: &usize| queues[*host].level >= request.level && !self.has_failed[*host];
        Ok(self.graph.admit(number, request.window, (0..queues.len()).filter(could).collect()))
    }

    fn begin(&mut self, number: usize, request: &Request, queues: &mut [Queue]) -> anyhow::Result<Option<Begin>> {
        let is_free = |host: &&usize| !self.taken.values().any(|taken| taken == *host);
        let candidates: Vec<usize> = self.graph.candidates(number).iter().filter(is_free).copied().collect();
        let on = |host: &usize| Begin::on(*host, request.slack(), &mut queues[*host], request.window.start);
        // The first that can be waited for, else the cheapest.
        let best = candidates.iter().map(on).min_by_key(|begin| begin.cost);
        if let Some(begin) = best {
            self.taken.insert(number, begin.host);
            self.graph.bind(number, begin.host);
        }
        Ok(best)
    }

    fn end(&mut self, number: usize) -> anyhow::Result<()> {
        self.taken.remove(&number);
        self.graph.remove(number);
        Ok(())
    }

    fn fail(&mut self, host: usize, _: Time) -> anyhow::Result<Vec<usize>> {
        self.has_failed[host] = true;
        Ok(self.graph.fail(host))
    }
}

/// Kolo: admitted by the witness for its length alone; it waits where the other promises leave time.
pub(super) struct Kolo {
    witness: Witness,
    keys: BTreeMap<usize, SeatKey>,
}

fn attributes(levels: u8) -> broker::resources::Attributes {
    (1..=levels).map(|level| (format!("level{level}"), "yes".to_owned())).collect()
}

fn name(host: usize) -> anyhow::Result<HostId> {
    Ok(HostId::new(&format!("{host}"))?)
}

impl Kolo {
    pub(super) fn new(world: &World) -> anyhow::Result<Kolo> {
        let host = |(number, queue): (usize, &Queue)| {
            let (capacity, speed) = (BTreeMap::new(), Speed::REFERENCE);
            let attributes = attributes(queue.level);
            anyhow::Ok(Host { id: name(number)?, capacity, attributes, speed, tariff: Arc::default() })
        };
        let hosts = world.queues.iter().enumerate().map(host).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Kolo { witness: Witness::new(hosts)?, keys: BTreeMap::new() })
    }
}

impl Policy for Kolo {
    fn ask(&mut self, number: usize, request: &Request, _: &[Queue]) -> anyhow::Result<bool> {
        let seat = Seat {
            request: RequestId::new(&format!("{number}"))?,
            number: SeatNumber(0),
            window: Window::starting(request.window.start, request.length),
            need: Need { attributes: attributes(request.level), is_exclusive: true, ..Need::default() },
        };
        let Answer::Yes(keys) = self.witness.admit(&[seat])? else { return Ok(false) };
        self.keys.extend(keys.into_iter().map(|key| (number, key)));
        Ok(true)
    }

    fn begin(&mut self, number: usize, request: &Request, queues: &mut [Queue]) -> anyhow::Result<Option<Begin>> {
        let Some(key) = self.keys.get(&number) else { return Ok(None) };
        let tasks: Vec<(Span, Span)> = queues.iter_mut().map(|queue| queue.at(request.window.start)).collect();
        let task = |host: &Host| tasks.get(host.id.as_str().parse::<usize>().ok()?).copied();
        let work = |host: &Host| {
            task(host).map_or(OwnWork::Excluded, |(done, left)| OwnWork::Running { left, cost: done.0, may_stop: true })
        };
        let bound = self.witness.bind(*key, request.slack(), work)?;
        let host: usize = bound.host.as_str().parse()?;
        Ok(Some(Begin { host, wait: bound.wait, cost: bound.cost }))
    }

    fn end(&mut self, number: usize) -> anyhow::Result<()> {
        if let Some(key) = self.keys.remove(&number) {
            self.witness.remove(key)?;
        }
        Ok(())
    }

    fn fail(&mut self, host: usize, now: Time) -> anyhow::Result<Vec<usize>> {
        let loss = self.witness.host_leaves(&name(host)?, now)?;
        let lost =
            |(number, key): (&usize, &SeatKey)| loss.seats.iter().any(|(lost, _)| lost == key).then_some(*number);
        let lost: Vec<usize> = self.keys.iter().filter_map(lost).collect();
        self.keys.retain(|number, _| !lost.contains(number));
        Ok(lost)
    }
}
