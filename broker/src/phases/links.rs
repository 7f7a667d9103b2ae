//! The links of the sites in one planning run: how many seats that talk to each other each of them bears.
//!
//! What t of N seats put on a link rises up to N / 2 and falls behind it in the same way. So a link with some room bears up to
//! [`Links::most`] seats at its site, or all but so many; at most one site, the *home*, has more than half. Where seats are replaced, what
//! they put on a link adds to what is booked there, as sites reckon it. Source: `formats.md`, version 2 (`traffic`). Invariant: sites are numbered from 0 in the order of the hosts.

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
    /// The seats of the whole request, N; those to plan may be what is left of it.
    pub all: usize,
    /// The site of each host, numbered from 0 in the order of the hosts.
    pub of: Vec<u32>,
    /// The link of each site; none when it has no limit, or all seats are to be at one site.
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

/// How the seats of a request may be spread over the sites.
pub(crate) struct Spread {
    /// [`Links::most`] of each site.
    pub most: Vec<usize>,
    /// Seats by site; or the link that leaves most hosts unused, when there would be enough hosts without links.
    pub seats: Result<Vec<usize>, Option<Overload>>,
}

/// How many hosts of each site a set may have.
pub(crate) struct Caps {
    /// The site of each host of a slot, by position, in order.
    pub of: Vec<u32>,
    /// The most of each site.
    pub most: Vec<usize>,
    /// The home, and the least that it has.
    pub least: Option<(usize, usize)>,
}

impl<'a> Links<'a> {
    /// The links of the sites of these hosts, which are in order of their sites.
    pub fn new(traffic: Traffic, job: &Job<'a>, hosts: &[&Candidate<'_>]) -> Links<'a> {
        let (mut of, mut links, mut falls) = (Vec::with_capacity(hosts.len()), Vec::new(), Vec::new());
        let starts = Window { start: job.earliest, end: job.latest + Span(1) };
        for same in hosts.chunk_by(|a, b| a.site == b.site) {
            let link = job.demand.traffic_between_sites().and_then(|_| job.uplinks.of(same[0].site));
            // The pool holds at most MAX_POOL hosts.
            of.resize(of.len() + same.len(), links.len() as u32);
            links.push(link);
            let steps: Vec<_> = link.into_iter().flat_map(|link| link.occupancy.segments(starts)).collect();
            falls.extend(steps.windows(2).filter(|two| two[1].1 < two[0].1).map(|two| two[1].0.0));
        }
        falls.sort_unstable();
        falls.dedup();
        Links { traffic, all: job.demand.seats_in_all(), of, links, falls }
    }

    /// How many sites there are.
    pub fn sites(&self) -> usize {
        self.links.len()
    }

    /// The starts at which more may fit into a link than before, in order.
    pub fn falls(&self) -> &[i64] {
        &self.falls
    }

    /// The most seats, up to half of all, that the link of a site bears through the whole window; half of all (rounded down) means any
    /// number.
    pub fn most(&self, site: usize, window: Window) -> usize {
        let of_link = |link: &Uplink| link.room(window).map_or(0, |room| self.traffic.most_at_site(self.all, room));
        self.links[site].map_or(self.all / 2, of_link)
    }

    /// What each link bears through the whole window, and one way to have N seats on the hosts that each site has available, at few enough
    /// sites.
    pub fn spread(&self, available: &[usize], window: Window, (pick, sites_max): (usize, usize)) -> Spread {
        let most = |(site, hosts): (usize, &usize)| if *hosts == 0 { 0 } else { self.most(site, window) };
        let most: Vec<usize> = available.iter().enumerate().map(most).collect();
        let overload = || {
            let (half, seats) = (self.all / 2, (pick, self.all));
            seats_by_count(available, &vec![half; most.len()], seats, sites_max)?;
            let unused = |site: &usize| available[*site].saturating_sub(most[*site]);
            let limited = (0..most.len()).filter(|site| most[*site] < half && unused(site) > 0);
            limited.max_by_key(|site| unused(site)).map(|site| self.overload(window, site, most[site] + 1))
        };
        let seats = seats_by_count(available, &most, (pick, self.all), sites_max).ok_or_else(overload);
        Spread { most, seats }
    }

    /// All ways in which the links bear N hosts of those that each site has available, for hosts of these sites: without a home, and with
    /// each one. None without any limit.
    pub fn ways(&self, of: &[u32], available: &[usize], most: &[usize], pick: usize) -> Option<Vec<Caps>> {
        let half = self.all / 2;
        if !(0..most.len()).any(|site| most[site] < half && available[site] > most[site]) {
            return None;
        }
        let caps: Vec<usize> = (0..most.len()).map(|site| usable(available[site], most[site], self.all)).collect();
        let home = |site: usize| {
            let least = self.all - most[site];
            let is_home = most[site] < half && least <= pick && available[site] >= least;
            let mut most = caps.clone();
            most[site] = available[site];
            is_home.then(|| Caps { of: of.to_vec(), most, least: Some((site, least)) })
        };
        let homes = (0..most.len()).filter_map(home);
        let none = Caps { of: of.to_vec(), most: caps.clone(), least: None };
        Some([none].into_iter().chain(homes).filter(|caps| caps.most.iter().sum::<usize>() >= pick).collect())
    }

    /// How many of these hosts lie at each site.
    pub fn counts(&self, hosts: impl Iterator<Item = u32>) -> Vec<usize> {
        let mut counts = vec![0; self.sites()];
        hosts.for_each(|host| counts[self.of[host as usize] as usize] += 1);
        counts
    }

    /// Whether the links bear a seat on each of these hosts through the whole window.
    pub fn bear(&self, hosts: impl Iterator<Item = u32>, window: Window) -> bool {
        let is_borne = |(site, seats): (usize, &usize)| {
            let is_used = (1..self.all).contains(seats);
            let bears = |link: &Uplink| link.room(window) >= Some(self.traffic.load(*seats, self.all));
            !is_used || self.links[site].is_none_or(bears)
        };
        self.counts(hosts).iter().enumerate().all(is_borne)
    }

    /// So many seats of all at a site, in the words of an answer.
    pub fn overload(&self, window: Window, site: usize, seats: usize) -> Overload {
        let room = self.links[site].map_or(Amount::MAX, |link| link.room(window).unwrap_or_default());
        Overload { start: window.start, site, seats, load: self.traffic.load(seats, self.all), room }
    }
}

/// How many seats of a site a plan may have, when the site is no home.
pub(crate) fn usable(available: usize, most: usize, all: usize) -> usize {
    if most == all / 2 { available } else { available.min(most) }
}

/// Seats by site, at the sites with most hosts; none when the links, or the limit of sites, exclude every set.
fn seats_by_count(
    available: &[usize],
    most: &[usize],
    (pick, in_all): (usize, usize),
    sites_max: usize,
) -> Option<Vec<usize>> {
    let usable: Vec<usize> = available.iter().zip(most).map(|(hosts, most)| usable(*hosts, *most, in_all)).collect();
    let mut order: Vec<usize> = (0..usable.len()).filter(|site| usable[*site] > 0).collect();
    order.sort_by_key(|site| std::cmp::Reverse(usable[*site]));
    let sum = |count: usize| order.iter().take(count).map(|site| usable[*site]).sum::<usize>();
    let (all, but_one) = (sum(sites_max), sum(sites_max.saturating_sub(1)));
    let place: Vec<usize> = {
        let mut place = vec![usize::MAX; usable.len()];
        order.iter().enumerate().for_each(|(at, site)| place[*site] = at);
        place
    };
    let with_home = |home: &usize| {
        let others = if place[*home] < sites_max { all - usable[*home] } else { but_one };
        let least = in_all - most[*home];
        sites_max > 0 && least <= pick && available[*home] >= least && available[*home].min(pick) + others >= pick
    };
    let home = if all >= pick { None } else { Some((0..usable.len()).find(with_home)?) };
    let mut seats = vec![0; usable.len()];
    let mut left = pick;
    for (site, room) in home
        .map(|home| (home, available[home]))
        .into_iter()
        .chain(order.iter().filter(|site| Some(**site) != home).map(|site| (*site, usable[*site])))
    {
        seats[site] = room.min(left);
        left -= seats[site];
    }
    Some(seats)
}
