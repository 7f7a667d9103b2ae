//! The modes of a gang: how many hosts of each group it may take, how long it then lasts, and what its uplinks carry.
//!
//! Source: the thesis, (2.2) to (2.6). Invariant: no mode needs more than is ever free; shorter modes come first.

use std::collections::BTreeMap;

use super::{
    problem::{Problem, Units},
    room::Room,
};

/// Most ways to spread a gang that are looked at.
const LOOKED_AT_MAX: u64 = 100_000;
/// Most and fewest modes of a gang that are kept, as the numbers that they all consist of allow: 128 MiB.
const MODES: (usize, usize) = (16, 4_096);
/// See [`MODES`].
const NUMBERS_MAX: usize = 32 << 20;

/// Where there are more: so many lengths, and so many groups to begin with, of which at least one mode each is tried.
const FILLED_LENGTHS: usize = 8;
/// See [`FILLED_LENGTHS`].
const FILLED_BEGINS: usize = 32;

/// One way to spread a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::batch) struct Mode {
    /// How long it lasts.
    pub seconds: i64,
    /// Hosts of each group, then Mbit/s of each uplink.
    pub needs: Vec<Units>,
    /// The speeds of its hosts together, in thousandths.
    pub speeds: i64,
}

/// All modes of a gang.
#[derive(Debug, Clone, Default)]
pub(in crate::batch) struct Modes {
    /// Shorter ones first; of equally long ones those that take slower hosts.
    pub all: Vec<Mode>,
    /// Whether others were left out because there are too many.
    pub is_cut: bool,
}

struct Spread<'a> {
    problem: &'a Problem,
    gang: usize,
    most: &'a [Units],
    /// By group: hosts that serve from this group on.
    behind: Vec<Units>,
    needs: Vec<Units>,
    looked_at: u64,
    found: Modes,
    found_max: usize,
}

impl Modes {
    /// The modes of a gang in a room.
    pub fn of(problem: &Problem, room: &Room, gang: usize) -> Modes {
        let most = room.most();
        let serves = |group: usize| problem.gangs[gang].seconds[group].map_or(0, |_| most[group]);
        let mut behind = vec![0; problem.groups.len() + 1];
        for group in (0..problem.groups.len()).rev() {
            behind[group] = behind[group + 1] + serves(group);
        }
        let needs = vec![0; room.width()];
        let found_max = NUMBERS_MAX / room.width().max(1);
        let found = Modes::default();
        let mut spread = Spread { problem, gang, most: &most, behind, needs, looked_at: 0, found, found_max };
        spread.visit(0, problem.gangs[gang].seats, 0, 0);
        if spread.found.is_cut {
            spread.fill_from_everywhere();
        }
        let mut found = spread.found;
        found.all.sort_by(|a, b| (a.seconds, a.speeds, &b.needs).cmp(&(b.seconds, b.speeds, &a.needs)));
        let modes_max = (found_max / problem.gangs.len().max(1)).clamp(MODES.0, MODES.1);
        if found.all.len() > modes_max {
            found.is_cut = true;
            thin_out(&mut found.all, modes_max);
        }
        found
    }
}

/// Keeps some of each length.
fn thin_out(all: &mut Vec<Mode>, most: usize) {
    let step = all.len().div_ceil(most).max(1);
    let mut at = 0;
    all.retain(|_| {
        at += 1;
        (at - 1) % step == 0
    });
    all.shrink_to_fit();
}

impl Spread<'_> {
    /// Spreads `left` seats over the groups from this one on; `here` are at its site already, `sites` are used before it.
    fn visit(&mut self, group: usize, left: Units, here: Units, sites: usize) {
        self.looked_at += 1;
        if left > self.behind[group] || self.found.is_cut {
            return;
        }
        let problem = self.problem;
        let gang = &problem.gangs[self.gang];
        let Some(this) = problem.groups.get(group) else { return self.keep() };
        if self.looked_at > LOOKED_AT_MAX || self.found.all.len() >= self.found_max {
            self.found.is_cut = true;
            return;
        }
        let is_last_of_site = problem.groups.get(group + 1).is_none_or(|next| next.site != this.site);
        let most = if gang.seconds[group].is_some() { self.most[group].min(left) } else { 0 };
        for hosts in (0..=most).rev() {
            let here = here + hosts;
            self.needs[group] = hosts;
            if !is_last_of_site {
                self.visit(group + 1, left - hosts, here, sites);
                continue;
            }
            let sites = sites + usize::from(here > 0);
            if sites <= gang.sites_max && self.carries(this.site, here) {
                self.visit(group + 1, left - hosts, 0, sites);
            }
        }
        self.needs[group] = 0;
    }

    /// Modes that fill one site after the other, from many groups on, and of many lengths: something of everything, where all is too much.
    fn fill_from_everywhere(&mut self) {
        let problem = self.problem;
        let gang = &problem.gangs[self.gang];
        let count = problem.groups.len();
        let mut lengths: Vec<i64> = gang.seconds.iter().flatten().copied().collect();
        lengths.sort_unstable();
        lengths.dedup();
        for longest in lengths.iter().rev().step_by(lengths.len() / FILLED_LENGTHS + 1) {
            for first in (0..count).step_by(count / FILLED_BEGINS + 1) {
                self.needs.fill(0);
                let mut left = gang.seats;
                let mut sites: BTreeMap<usize, Units> = BTreeMap::new();
                for group in (first..count).chain(0..first) {
                    if gang.seconds[group].is_some_and(|own| own <= *longest) {
                        let hosts = self.most[group].clamp(0, left);
                        self.needs[group] = hosts;
                        left -= hosts;
                        *sites.entry(problem.groups[group].site).or_default() += hosts;
                    }
                }
                let used = sites.values().filter(|hosts| **hosts > 0).count();
                if left == 0 && used <= gang.sites_max && sites.into_iter().all(|(site, here)| self.carries(site, here))
                {
                    self.keep();
                }
            }
        }
        self.found.all.sort_by(|a, b| a.needs.cmp(&b.needs));
        self.found.all.dedup();
    }

    /// Whether the uplink of the site carries the traffic of so many seats; then it is written down.
    fn carries(&mut self, site: usize, here: Units) -> bool {
        let problem = self.problem;
        let gang = &problem.gangs[self.gang];
        let Some(link) = problem.links.iter().position(|link| link.site == site) else { return true };
        let unit = problem.groups.len() + link;
        self.needs[unit] = usize::try_from(here).ok().and_then(|here| gang.loads.get(here)).map_or(0, |load| *load);
        self.needs[unit] <= self.most[unit]
    }

    fn keep(&mut self) {
        let gang = &self.problem.gangs[self.gang];
        let used = || self.problem.groups.iter().enumerate().filter(|(group, _)| self.needs[*group] > 0);
        let seconds = used().filter_map(|(group, _)| gang.seconds[group]).max().unwrap_or(0);
        if gang.earliest > gang.latest_start(seconds) {
            return;
        }
        let speeds = used().map(|(group, this)| i64::from(this.speed) * i64::from(self.needs[group])).sum();
        self.found.all.push(Mode { seconds, needs: self.needs.clone(), speeds });
    }
}
