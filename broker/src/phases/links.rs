//! The links of the sites in one planning run: how many seats that talk to each other each of them bears.
//!
//! What t of N seats put on a link rises up to N / 2 and falls behind it in the same way. So a link with some room bears up to
//! [`Links::most`] seats at its site, or all but so many; at most one site, the *home*, has more than half. Source: `formats.md`, version
//! 2 (`traffic`). Invariant: sites are numbered from 0 in the order of the hosts.

use super::{Candidate, Job};
use crate::{
    amount::Amount,
    time::{Span, Time, Window},
    traffic::Traffic,
    uplinks::Uplink,
};

/// The links of one planning run.
pub(crate) struct Links<'a> {
    traffic: Traffic,
    /// The site of each host, numbered from 0 in the order of the hosts.
    pub of: Vec<u32>,
    /// The link of each site; none when it has no limit.
    links: Vec<Option<&'a Uplink>>,
    /// The starts at which more may fit into a link than before, in order.
    falls: Vec<i64>,
}

/// What of the limits of links an answer names: the seats at a site that its link does not bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overload {
    pub start: Time,
    /// By its number.
    pub site: usize,
    pub seats: usize,
    pub load: Amount,
    pub room: Amount,
}

impl<'a> Links<'a> {
    /// The links of the sites of these hosts, which are in order of their sites.
    pub fn new(traffic: Traffic, job: &Job<'a>, hosts: &[&Candidate<'_>]) -> Links<'a> {
        let (mut of, mut links, mut falls) = (Vec::with_capacity(hosts.len()), Vec::new(), Vec::new());
        let starts = Window { start: job.earliest, end: job.latest + Span(1) };
        for same in hosts.chunk_by(|a, b| a.site == b.site) {
            let link = job.uplinks.of(same[0].site);
            // The pool holds at most MAX_POOL hosts.
            of.resize(of.len() + same.len(), links.len() as u32);
            links.push(link);
            let steps: Vec<_> = link.into_iter().flat_map(|link| link.occupancy.segments(starts)).collect();
            falls.extend(steps.windows(2).filter(|two| two[1].1 < two[0].1).map(|two| two[1].0.0));
        }
        falls.sort_unstable();
        falls.dedup();
        Links { traffic, of, links, falls }
    }

    /// How many sites there are.
    pub fn sites(&self) -> usize {
        self.links.len()
    }

    /// The starts at which more may fit into a link than before, in order.
    pub fn falls(&self) -> &[i64] {
        &self.falls
    }

    /// The first of them after this start.
    pub fn fall_after(&self, start: i64) -> Option<i64> {
        self.falls.get(self.falls.partition_point(|fall| *fall <= start)).copied()
    }

    /// What the link of a site has free through the whole window; none without a limit.
    fn room(&self, site: usize, window: Window) -> Option<Amount> {
        self.links[site].map(|link| link.room(window))
    }

    /// The most of `pick` seats, up to half of them, that the link of a site bears through the whole window; half of them (rounded down)
    /// means any number.
    pub fn most(&self, site: usize, window: Window, pick: usize) -> usize {
        self.room(site, window).map_or(pick / 2, |room| self.traffic.most_at_site(pick, room))
    }

    /// How many of these hosts lie at each site.
    pub fn counts(&self, hosts: impl Iterator<Item = u32>) -> Vec<usize> {
        let mut counts = vec![0; self.sites()];
        hosts.for_each(|host| counts[self.of[host as usize] as usize] += 1);
        counts
    }

    /// Whether the links bear a seat on each of these hosts through the whole window.
    pub fn bear(&self, hosts: impl ExactSizeIterator<Item = u32>, window: Window) -> bool {
        let pick = hosts.len();
        let is_borne = |(site, seats): (usize, &usize)| {
            let load = self.traffic.load(*seats, pick);
            load == Amount::ZERO || self.room(site, window).is_none_or(|room| load <= room)
        };
        self.counts(hosts).iter().enumerate().all(is_borne)
    }

    /// So many seats of all at a site, in the words of an answer.
    pub fn overload(&self, window: Window, site: usize, (seats, pick): (usize, usize)) -> Overload {
        let room = self.room(site, window).unwrap_or(Amount::MAX);
        Overload { start: window.start, site, seats, load: self.traffic.load(seats, pick), room }
    }
}
