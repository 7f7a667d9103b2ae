//! Clusters of hosts with what is taken of them: where a job fits, and when first.
//!
//! Invariant: the hosts of a cluster have consecutive numbers; nothing changes before the present second.

use std::{cmp::Reverse, collections::BTreeMap, ops::Range};

use super::{
    host::{Ask, Host},
    job::{Amounts, Job, Place},
};

/// By host, from when to when room has become free, or more than that.
#[derive(Debug, Default)]
pub(super) struct Freed(BTreeMap<usize, (i64, i64)>);

impl Freed {
    /// These hosts have more room in this time.
    pub fn add(&mut self, hosts: &[usize], from_s: i64, to_s: i64) {
        for host in hosts {
            let window = self.0.entry(*host).or_insert((from_s, to_s));
            *window = (window.0.min(from_s), window.1.max(to_s));
        }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Room {
    hosts: Vec<Host>,
    clusters: Vec<Range<usize>>,
    pub now_s: i64,
    /// The first starts of one search, by host, and room to sort them.
    firsts: Vec<i64>,
    sorted: Vec<i64>,
}

impl Job {
    fn ask(&self) -> Ask {
        Ask { amounts: self.amounts, length_s: self.length_s, starts_alone: self.starts_alone }
    }
}

impl Room {
    /// Empty clusters of hosts with these capacities.
    pub fn new(clusters: &[Vec<Amounts>]) -> Room {
        let hosts: Vec<Host> = clusters.iter().flatten().map(|capacity| Host::new(*capacity)).collect();
        let mut next = 0;
        let ranges = clusters.iter().map(|cluster| {
            let range = next..next + cluster.len();
            next = range.end;
            range
        });
        let clusters = ranges.collect();
        Room { hosts, clusters, now_s: i64::MIN, firsts: Vec::new(), sorted: Vec::new() }
    }

    /// The hosts of a cluster.
    pub fn cluster(&self, cluster: usize) -> Range<usize> {
        self.clusters.get(cluster).cloned().unwrap_or_default()
    }

    /// The clusters that could hold a job when empty.
    pub fn clusters_for(&self, job: &Job) -> Vec<usize> {
        let could = |cluster: &&usize| {
            let hosts = &self.hosts[self.cluster(**cluster)];
            job.hosts > 0 && hosts.iter().filter(|host| host.could_hold(&job.amounts)).count() >= job.hosts
        };
        job.clusters.iter().filter(could).copied().collect()
    }

    /// What is free now on the hosts of a cluster together, of the first resource.
    pub fn free_now(&self, cluster: usize) -> u64 {
        let free = |host: &Host| host.capacity[0].saturating_sub(host.taken_at(self.now_s)[0]);
        self.hosts[self.cluster(cluster)].iter().map(free).sum()
    }

    /// The earliest place in a cluster from `from_s` on, and from when the job may start on, and not after `latest_s`.
    pub fn earliest(&mut self, job: &Job, cluster: usize, from_s: i64, latest_s: i64) -> Option<Place> {
        self.earliest_beside(job, cluster, (from_s, latest_s), None)
    }

    /// The same of a job that is planned at `place`, which begins later, as if it were not.
    pub fn earliest_beside(
        &mut self,
        job: &Job,
        cluster: usize,
        (from_s, latest_s): (i64, i64),
        place: Option<&Place>,
    ) -> Option<Place> {
        let (range, ask) = (self.cluster(cluster), job.ask());
        let from_s = from_s.max(job.not_before_s);
        if job.hosts == 0 || range.len() < job.hosts || from_s > latest_s {
            return None;
        }
        let first = |number: usize, host: &mut Host, from_s: i64| match place {
            Some(place) if place.hosts.binary_search(&number).is_ok() => {
                host.first_beside(from_s, latest_s, &ask, place.start_s)
            }
            _ => host.first(from_s, latest_s, &ask),
        };
        let hosts = &mut self.hosts[range.clone()];
        self.firsts.clear();
        // So many hosts may have no room in time.
        let mut spare = range.len() - job.hosts;
        for (number, host) in range.clone().zip(hosts.iter_mut()) {
            let first_s = first(number, host, from_s);
            if first_s == i64::MAX {
                spare = spare.checked_sub(1)?;
            }
            self.firsts.push(first_s);
        }
        let start_s = loop {
            self.sorted.clone_from(&self.firsts);
            // Before this second fewer hosts than needed take it together.
            let nth_s = *self.sorted.select_nth_unstable(job.hosts - 1).1;
            if nth_s > latest_s || nth_s == i64::MAX {
                return None;
            }
            let mut free = 0;
            for ((first_s, number), host) in self.firsts.iter_mut().zip(range.clone()).zip(hosts.iter_mut()) {
                if *first_s < nth_s {
                    *first_s = first(number, host, nth_s);
                }
                free += usize::from(*first_s == nth_s);
            }
            if free >= job.hosts {
                break nth_s;
            }
        };
        let mut chosen: Vec<usize> =
            self.firsts.iter().zip(range).filter(|(first_s, _)| **first_s == start_s).map(|(_, host)| host).collect();
        if chosen.len() > job.hosts {
            // The fullest hosts, so that empty ones stay empty.
            chosen.sort_by_key(|host| Reverse(self.hosts[*host].taken_at(start_s)[0]));
            chosen.truncate(job.hosts);
            chosen.sort_unstable();
        }
        Some(Place { start_s, cluster, hosts: chosen.into() })
    }

    /// The earliest place in any of these clusters; of equally early ones the first.
    pub fn earliest_of(&mut self, job: &Job, clusters: &[usize], from_s: i64) -> Option<Place> {
        let mut best: Option<Place> = None;
        for cluster in clusters {
            let latest_s = best.as_ref().map_or(i64::MAX, |best| best.start_s.saturating_sub(1));
            best = self.earliest(job, *cluster, from_s, latest_s).or(best);
        }
        best
    }

    /// The clusters in which a placed job might start earlier by what has become free: on one host at least it could use that.
    pub fn gaining(&mut self, job: &Job, clusters: &[usize], place: &Place, freed: &Freed) -> Vec<usize> {
        let ask = job.ask();
        let mut gaining = Vec::new();
        for cluster in clusters {
            let gains = freed.0.range(self.cluster(*cluster)).any(|(host, (from_s, to_s))| {
                let first_s = from_s.saturating_sub(job.length_s - 1).max(self.now_s);
                let latest_s = (*to_s).min(place.start_s) - 1;
                // Its own place hides what is free for it there.
                let is_own = first_s <= latest_s && place.hosts.contains(host);
                is_own || self.hosts[*host].first(first_s, latest_s, &ask) <= latest_s
            });
            if gains {
                gaining.push(*cluster);
            }
        }
        gaining
    }

    /// Whether each of a place's hosts takes the job there.
    pub fn fits(&self, job: &Job, place: &Place) -> bool {
        place.hosts.iter().all(|host| self.hosts[*host].fits(place.start_s, &job.ask()))
    }

    /// Puts a job where it fits.
    pub fn put(&mut self, job: &Job, place: &Place) {
        self.each(job, place, place.start_s.saturating_add(job.length_s), Host::take);
    }

    /// Takes a job away.
    pub fn take_out(&mut self, job: &Job, place: &Place) {
        self.each(job, place, place.start_s.saturating_add(job.length_s), Host::give_back);
    }

    fn each(&mut self, job: &Job, place: &Place, end_s: i64, change: fn(&mut Host, i64, i64, &Amounts)) {
        let alone_end_s = if job.starts_alone { place.start_s.saturating_add(1) } else { place.start_s };
        for host in &place.hosts {
            let host = &mut self.hosts[*host];
            let capacity = host.capacity;
            change(host, place.start_s.max(self.now_s), alone_end_s, &capacity);
            change(host, alone_end_s.max(self.now_s), end_s, &job.amounts);
        }
    }

    /// Takes or gives back amounts of one host for a window, whatever is there.
    pub fn take(&mut self, host: usize, from_s: i64, to_s: i64, amounts: &Amounts) {
        self.hosts[host].take(from_s.max(self.now_s), to_s, amounts);
    }

    /// Gives back what [`Room::take`] took.
    pub fn give_back(&mut self, host: usize, from_s: i64, to_s: i64, amounts: &Amounts) {
        self.hosts[host].give_back(from_s.max(self.now_s), to_s, amounts);
    }

    /// What a host has when it is empty.
    pub fn capacity(&self, host: usize) -> Option<&Amounts> {
        self.hosts.get(host).map(|host| &host.capacity)
    }

    /// Forgets what these hosts had before the present second.
    pub fn forget(&mut self, hosts: &[usize]) {
        hosts.iter().for_each(|host| self.hosts[*host].forget(self.now_s));
    }
}
