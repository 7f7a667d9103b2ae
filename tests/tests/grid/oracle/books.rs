//! What all ledgers say, and the earliest start that they and the owners' rules leave: each possible start is looked at by itself.
//!
//! Invariant: a host counts where all that is asked of one host is free, offered and allowed through the whole window; of a site no more
//! of them count than the owner's rules leave to the user.

use std::collections::BTreeSet;

use serde_json::Value;

use super::rules::{Asker, Rules, peak};

const NAMES: [&str; 2] = ["cpu", "memory"];

/// A seat of a user, or the owner's own work.
#[derive(Debug, Clone)]
pub struct Booking {
    /// Empty for own work.
    pub key: String,
    pub entry_point: String,
    pub request: String,
    pub host: String,
    pub window: (i64, i64),
    amounts: Value,
}

impl Booking {
    pub fn amount(&self, name: &str) -> u64 {
        self.amounts[name].as_u64().unwrap_or(0)
    }

    pub fn length(&self) -> u64 {
        (self.window.1 - self.window.0).unsigned_abs()
    }
}

/// A host as its site's ledger has it.
#[derive(Debug, Clone)]
pub struct Host {
    pub id: String,
    pub arch: String,
    pub capacity: [u64; 2],
}

/// One site's ledger, beside the rules of its owner.
#[derive(Debug, Clone)]
pub struct Books {
    pub site: String,
    /// The key of the owner as a user.
    pub owner: String,
    pub rules: Rules,
    pub hosts: Vec<Host>,
    /// Own work too.
    pub bookings: Vec<Booking>,
}

fn window_of(value: &Value) -> (i64, i64) {
    let at = |key: &str| value[key].as_i64().unwrap_or_else(|| panic!("{key} in {value}"));
    (at("start"), at("end"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Books {
    /// Reads what `GET /v1/ledger` says.
    pub fn read(ledger: &Value, owner: &str, rules: &Rules) -> Books {
        let host = |host: &Value| Host {
            id: text(&host["id"]),
            arch: text(&host["attributes"]["arch"]),
            capacity: NAMES.map(|name| host["resources"][name].as_u64().unwrap()),
        };
        let seats = |booking: &Value| {
            let of_booking = |grant: &Value| Booking {
                key: text(&booking["user_key"]),
                entry_point: text(&booking["entry_point"]),
                request: text(&booking["request"]),
                host: text(&grant["host"]),
                window: window_of(&grant["window"]),
                amounts: grant["amounts"].clone(),
            };
            booking["grants"].as_array().unwrap().iter().map(of_booking).collect::<Vec<_>>()
        };
        Books {
            site: text(&ledger["site"]),
            owner: owner.to_owned(),
            rules: rules.clone(),
            hosts: ledger["hosts"].as_array().unwrap().iter().map(host).collect(),
            bookings: ledger["bookings"].as_array().unwrap().iter().flat_map(seats).collect(),
        }
    }

    /// The same where owners have no rules.
    pub fn without_rules(&self) -> Books {
        Books { rules: Rules::default(), ..self.clone() }
    }

    /// What is free of a host all through a window, and allowed to the user; none where it is not offered.
    fn free(&self, host: &Host, window: (i64, i64), (asker, now): (Asker<'_>, i64)) -> Option<[u64; 2]> {
        if !self.rules.offer(window, now) {
            return None;
        }
        let here = || self.bookings.iter().filter(|booking| booking.host == host.id);
        let free = |at: usize| host.capacity[at].saturating_sub(peak(here(), window, NAMES[at]));
        let cores = self.rules.cores_of_host((&host.id, host.capacity[0]), asker, window, &self.bookings);
        Some([free(0).min(cores), free(1)])
    }
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Asked {
    pub seats: usize,
    pub length: i64,
    pub earliest: i64,
    pub latest: i64,
    pub per_host: [u64; 2],
    pub total: [u64; 2],
    pub arch: Option<&'static str>,
    /// Whether each seat takes its host whole.
    pub exclusive: bool,
}

impl Asked {
    fn suits(&self, host: &Host) -> bool {
        self.arch.is_none_or(|arch| host.arch == arch) && (0..2).all(|at| host.capacity[at] >= self.per_host[at])
    }

    /// Whether some of these hosts, each of a site with what is free of it, do. Of a site so many seats are left.
    fn is_met_by(&self, free: &[(usize, [u64; 2])], left: &[u64]) -> bool {
        let uniform = self.total.iter().zip(self.per_host).all(|(total, each)| *total <= each * self.seats as u64);
        let of_site = |site: usize| free.iter().filter(|(at, _)| *at == site).count() as u64;
        let there: u64 = (0..left.len()).map(|site| of_site(site).min(left[site])).sum();
        if there < self.seats as u64 || uniform {
            return there >= self.seats as u64;
        }
        let mut chosen = Vec::new();
        self.some_reach(free, left, &mut chosen, 0)
    }

    /// Tries all sets.
    fn some_reach(&self, free: &[(usize, [u64; 2])], left: &[u64], chosen: &mut Vec<usize>, from: usize) -> bool {
        if chosen.len() == self.seats {
            let sum = |at: usize| chosen.iter().map(|host| free[*host].1[at]).sum::<u64>();
            return (0..2).all(|at| sum(at) >= self.total[at]);
        }
        (from..free.len()).any(|next| {
            let site = free[next].0;
            let of_site = chosen.iter().filter(|host| free[**host].0 == site).count() as u64;
            if of_site >= left[site] {
                return false;
            }
            chosen.push(next);
            let does = self.some_reach(free, left, chosen, next + 1);
            chosen.pop();
            does
        })
    }

    fn works_at(&self, start: i64, books: &[Books], (asker, now): (Asker<'_>, i64)) -> bool {
        let window = (start, start + self.length);
        let mut free = Vec::new();
        for (site, books) in books.iter().enumerate() {
            let suiting = books.hosts.iter().filter(|host| self.suits(host));
            let there = suiting.filter_map(|host| Some((host, books.free(host, window, (asker, now))?)));
            let is_enough = |(host, free): &(&Host, [u64; 2])| {
                (0..2).all(|at| free[at] >= self.per_host[at].max(u64::from(self.total[at] > 0)))
                    && (!self.exclusive || *free == host.capacity)
            };
            free.extend(there.filter(is_enough).map(|(_, free)| (site, free)));
        }
        let left = |books: &Books| {
            let capacities: Vec<[u64; 2]> = books.hosts.iter().map(|host| host.capacity).collect();
            let site = (asker, (books.site.as_str(), books.owner.as_str()));
            books.rules.seats(&capacities, site, (window, self.per_host), &books.bookings)
        };
        let left: Vec<u64> = books.iter().map(left).collect();
        self.is_met_by(&free, &left)
    }

    /// The earliest start: something becomes free or offered only where a booking ends or the owner's times begin.
    pub fn earliest_start(&self, books: &[Books], (asker, now): (Asker<'_>, i64)) -> Option<i64> {
        let ends = books.iter().flat_map(|books| books.bookings.iter().map(|booking| booking.window.1));
        let openings = books.iter().flat_map(|books| books.rules.openings((self.earliest, self.latest)));
        let starts: BTreeSet<i64> = ends.chain(openings).chain([self.earliest]).collect();
        starts.range(self.earliest..=self.latest).copied().find(|start| self.works_at(*start, books, (asker, now)))
    }
}
