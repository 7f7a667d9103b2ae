//! Phases III and IV for seats that talk to each other, all of one length, whose hosts need not reach anything together.
//!
//! How many seats each site may have decides a start, and with costs the cheapest hosts of each site serve: for no home and for each
//! possible one they are taken in the order of their costs. Only the cheapest hosts of few sites need more, a table over sites and seats.
//! A start is looked at where a host comes or a link has more room. Source: `formats.md`, version 2 (`traffic`, `sites_max`).
//!
//! Invariant: starts are looked at in ascending order, and every start that is passed over is no better than the best so far.

use super::{
    best_offer::Choice,
    links::{Links, Overload, Spread, usable},
    offers::Offers,
    problem::Problem,
    ranks::Ranks,
};
use crate::{
    objective::{Measures, Objective, Within},
    time::{Span, Time},
};

/// Steps of all tables over sites and seats together, for each node of a search.
const STEPS_IN_NODE: u64 = 5;

/// The search; read what it knows when it has ended.
pub(crate) struct Search<'p, 'a> {
    problem: &'p Problem<'a>,
    links: &'p Links<'a>,
    objective: &'p dyn Objective,
    steps_left: u64,
    /// By cost: nothing dearer is of interest.
    cost_most: i64,
    /// The best so far.
    pub best: Option<Choice>,
    /// What the N cheapest cost at the start where that is least, when they were too dear at all of them.
    pub cheapest: Option<i64>,
    /// The start at which most hosts are there, and how many.
    pub most: (Time, usize),
    /// The first link that excluded a start.
    pub overload: Option<Overload>,
    /// The least value that was neither reached nor excluded, and the first start that may have it.
    pub unproven: Option<(i64, Time)>,
}

/// The hosts that are there at one start.
struct There {
    /// With their costs, cheapest first; all cost nothing where costs do not matter.
    hosts: Vec<(i64, u32)>,
    /// How many of them each site has.
    available: Vec<usize>,
    /// What the link of each site bears ([`Links::most`]).
    most: Vec<usize>,
}

/// A set of hosts.
struct Set {
    cost: i64,
    hosts: Vec<u32>,
    /// No set costs less.
    bound: i64,
}

impl<'p, 'a> Search<'p, 'a> {
    /// Nodes that are left for searches of other lengths.
    pub fn nodes_left(&self) -> u64 {
        self.steps_left / STEPS_IN_NODE
    }

    /// Looks at all starts of the window, as far as they may be better; by cost, than what costs more than `cost_most`.
    pub fn run(
        problem: &'p Problem<'a>,
        links: &'p Links<'a>,
        objective: &'p dyn Objective,
        window: (Time, Time),
        (nodes_max, cost_most): (u64, i64),
    ) -> Search<'p, 'a> {
        let mut search = Search {
            problem,
            links,
            objective,
            steps_left: nodes_max.saturating_mul(STEPS_IN_NODE),
            cost_most,
            best: None,
            cheapest: None,
            most: (window.0, 0),
            overload: None,
            unproven: None,
        };
        if search.is_by_cost() {
            search.sweep(window);
        } else {
            search.look_at_first(window.0);
            if search.best.is_none() && window.0 < window.1 {
                search.sweep((window.0 + Span(1), window.1));
            }
        }
        search
    }

    fn is_by_cost(&self) -> bool {
        matches!(self.objective.within(0, 0), Within::Cost(_))
    }

    /// Most requests that have a plan have one at the first start, and then nothing beyond its window needs to be read.
    fn look_at_first(&mut self, start: Time) {
        let hosts = self.problem.slot_at(start).hosts;
        let available = self.links.counts(hosts.iter().copied());
        let cost = |host: &u32| {
            let costs = self.problem.costs.as_ref();
            costs.map_or(0, |costs| costs.of_minima(costs.step_at(*host as usize, start.0)))
        };
        let mut hosts: Vec<(i64, u32)> = hosts.iter().map(|host| (cost(host), *host)).collect();
        hosts.sort_unstable();
        self.look(start, &available, || hosts);
    }

    fn sweep(&mut self, window: (Time, Time)) {
        let Offers { host, cost, events, .. } = Offers::new(self.problem, window);
        let (mut cheap, pick) = (Ranks::new(&cost), self.problem.pick);
        if self.is_by_cost() && cost.len() >= pick && cheap.least_of_all(pick).sum > self.cost_most {
            return;
        }
        let mut available = vec![0; self.links.sites()];
        let falls = self.links.falls();
        let mut falls = falls[falls.partition_point(|fall| *fall <= window.0.0)..].iter().copied().peekable();
        let mut groups = events.chunk_by(|a, b| a.0 == b.0).peekable();
        loop {
            let next = groups.peek().map(|same_time| same_time[0].0).into_iter().chain(falls.peek().copied()).min();
            let Some(start) = next.filter(|start| *start <= window.1.0) else { return };
            let mut is_more = falls.next_if_eq(&start).is_some();
            for (_, event) in groups.next_if(|same_time| same_time[0].0 == start).into_iter().flatten() {
                let (kind, comes) = ((event / 2) as usize, event % 2 == 1);
                let site = self.links.of[host[kind] as usize] as usize;
                available[site] = if comes { available[site] + 1 } else { available[site] - 1 };
                cheap.set(kind, comes);
                is_more |= comes;
            }
            if !is_more || !self.may_improve(&cheap) {
                continue;
            }
            let hosts = || cheap.members().map(|kind| (cost[kind as usize], host[kind as usize])).collect();
            self.look(Time(start), &available, hosts);
            if self.best.is_some() && !self.is_by_cost() {
                return;
            }
        }
    }

    /// Whether the cheapest hosts that are there, wherever they are, would be better than the best.
    fn may_improve(&self, cheap: &Ranks) -> bool {
        let most = self.best.as_ref().map_or(self.cost_most, |best| best.value - 1);
        !self.is_by_cost() || cheap.len() < self.problem.pick || cheap.least(self.problem.pick).sum <= most
    }

    /// Looks for a better plan at one start. `hosts` are those that are there, cheapest first.
    fn look(&mut self, start: Time, available: &[usize], hosts: impl FnOnce() -> Vec<(i64, u32)>) {
        let (problem, links, pick) = (self.problem, self.links, self.problem.pick);
        let all = available.iter().sum();
        if all > self.most.1 {
            self.most = (start, all);
        }
        if all < pick {
            return;
        }
        let window = problem.window(start);
        let sites_max = problem.sites.as_ref().map_or(usize::MAX, |limit| limit.most);
        let Spread { most, seats } = links.spread(available, window, (pick, sites_max));
        let seats = match seats {
            Ok(seats) => seats,
            Err(overload) => {
                self.overload = self.overload.or(overload);
                return;
            }
        };
        let there = There { hosts: hosts(), available: available.to_vec(), most };
        let set = match &problem.costs {
            None => there.at(links, &seats, 0),
            Some(_) => there.cheapest(links, pick, sites_max, &seats, &mut self.steps_left),
        };
        let measures = |cost| Measures {
            longest: problem.length_max,
            together: problem.length_max * pick.cast_signed() as i64,
            cost,
        };
        let value = self.objective.value(start.0, measures(set.cost));
        let below = self.best.as_ref().map_or(i64::MAX, |best| best.value);
        let is_open = set.bound < set.cost && set.bound <= problem.budget;
        let low = self.objective.value(start.0, measures(set.bound));
        if set.cost > problem.budget {
            self.cheapest = Some(self.cheapest.map_or(set.bound, |least| least.min(set.bound)));
            if is_open {
                self.leave_open((low, start));
            }
            return;
        }
        if is_open && self.is_by_cost() && low < below {
            self.leave_open((low, start));
        }
        if value < below {
            self.best = Some(Choice { start, hosts: set.hosts, value });
        }
    }

    fn leave_open(&mut self, open: (i64, Time)) {
        self.unproven = Some(self.unproven.map_or(open, |known| known.min(open)));
    }
}

impl There {
    /// So many of the cheapest hosts of each site.
    fn at(&self, links: &Links<'_>, seats: &[usize], bound: i64) -> Set {
        let mut left = seats.to_vec();
        let mut set = Set { cost: 0, hosts: Vec::new(), bound };
        for (cost, host) in &self.hosts {
            let left = &mut left[links.of[*host as usize] as usize];
            if *left > 0 {
                *left -= 1;
                set.cost += cost;
                set.hosts.push(*host);
            }
        }
        set
    }

    /// The cheapest N hosts that the links bear. `seats` is some way to have N seats at few enough sites.
    fn cheapest(&self, links: &Links<'_>, pick: usize, sites_max: usize, seats: &[usize], steps_left: &mut u64) -> Set {
        let may_be_home = |site: &usize| {
            let (most, least) = (self.most[*site], links.all - self.most[*site]);
            most < links.all / 2 && least <= pick && self.available[*site] >= least
        };
        let homes = (0..self.most.len()).filter(may_be_home).map(Some);
        let ways = [None].into_iter().chain(homes).filter_map(|home| self.with_home(links, pick, home));
        // `seats` is such a way as well, so there is one.
        let Some((bound, by_site)) = ways.min_by_key(|(cost, _)| *cost) else { return self.at(links, seats, 0) };
        if by_site.iter().filter(|seats| **seats > 0).count() <= sites_max {
            return self.at(links, &by_site, bound);
        }
        match self.of_few_sites(links, pick, sites_max, steps_left) {
            Some(by_site) => {
                let set = self.at(links, &by_site, 0);
                Set { bound: set.cost, ..set }
            }
            None => self.at(links, seats, bound),
        }
    }

    /// The cheapest way to have all but a few seats at the home, or without one no more than a few anywhere: its cost and the seats by
    /// site. Seats that the home must have are its cheapest hosts; for all others there is a choice.
    fn with_home(&self, links: &Links<'_>, pick: usize, home: Option<usize>) -> Option<(i64, Vec<usize>)> {
        let mut seats = vec![0; self.most.len()];
        let mut forced = home.map_or(0, |home| links.all - self.most[home]);
        let (mut free, mut cost) = (pick - forced, 0);
        for (price, host) in &self.hosts {
            let site = links.of[*host as usize] as usize;
            let most = if Some(site) == home { pick } else { usable(self.available[site], self.most[site], links.all) };
            let choice = if Some(site) == home && forced > 0 { &mut forced } else { &mut free };
            if *choice > 0 && seats[site] < most {
                *choice -= 1;
                seats[site] += 1;
                cost += price;
            }
            if forced + free == 0 {
                return Some((cost, seats));
            }
        }
        None
    }

    /// The cheapest way to have all seats at few sites; none when the table would take too many steps.
    fn of_few_sites(
        &self,
        links: &Links<'_>,
        pick: usize,
        sites_max: usize,
        steps_left: &mut u64,
    ) -> Option<Vec<usize>> {
        let sites = self.most.len();
        let most_sites = sites_max.min(sites);
        let steps = (sites * most_sites) as u64 * (pick * pick) as u64;
        *steps_left = steps_left.checked_sub(steps)?;
        let mut prices: Vec<Vec<i64>> = vec![vec![0]; sites];
        for (cost, host) in &self.hosts {
            let sums = &mut prices[links.of[*host as usize] as usize];
            sums.push(sums.last().copied().unwrap_or(0) + cost);
        }
        // The least cost of so many seats at so many of the sites before, and how many of them are at each site.
        let width = pick + 1;
        let mut least = vec![i64::MAX; (most_sites + 1) * width];
        let mut taken = vec![0; sites * (most_sites + 1) * width];
        least[0] = 0;
        for site in 0..sites {
            for count in (1..=most_sites).rev() {
                for all in (1..=pick).rev() {
                    for seats in 1..=all.min(self.available[site]) {
                        let is_borne = seats <= self.most[site] || seats >= links.all - self.most[site];
                        let before = least[(count - 1) * width + all - seats];
                        if is_borne && before < i64::MAX && before + prices[site][seats] < least[count * width + all] {
                            least[count * width + all] = before + prices[site][seats];
                            taken[(site * (most_sites + 1) + count) * width + all] = seats;
                        }
                    }
                }
            }
        }
        let mut count = (1..=most_sites).min_by_key(|count| least[count * width + pick])?;
        let (mut all, mut by_site) = (pick, vec![0; sites]);
        for site in (0..sites).rev() {
            by_site[site] = taken[(site * (most_sites + 1) + count) * width + all];
            all -= by_site[site];
            count -= usize::from(by_site[site] > 0);
        }
        Some(by_site)
    }
}
