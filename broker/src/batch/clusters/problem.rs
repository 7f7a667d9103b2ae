//! What is to be placed and where: groups of hosts that are alike, uplinks, and gangs.
//!
//! Source: the thesis on parallel jobs over several clusters, chapter 2. Invariant: times are seconds after an origin that no gang starts
//! before; needs of a mode stand in the order of the groups, then of the links.

/// How much of something: hosts of a group, or Mbit/s of an uplink.
pub(in crate::batch) type Units = i32;

/// A level from each of these times on, in seconds after the origin; the first one holds before it as well.
pub(in crate::batch) type Steps = Vec<(i64, Units)>;

/// Hosts of one site that serve the same requests equally fast and are free at the same times.
#[derive(Debug, Clone)]
pub(in crate::batch) struct Group {
    /// Its site.
    pub site: usize,
    /// In thousandths of the reference speed.
    pub speed: u32,
    /// How many of them are free.
    pub free: Steps,
}

/// The uplink of a site.
#[derive(Debug, Clone)]
pub(in crate::batch) struct Link {
    /// Its site.
    pub site: usize,
    /// Mbit/s that are free.
    pub free: Steps,
}

/// A request whose seats run together.
#[derive(Debug, Clone)]
pub(in crate::batch) struct Gang {
    /// How many hosts.
    pub seats: Units,
    /// The earliest start.
    pub earliest: i64,
    /// The latest start.
    pub latest: i64,
    /// It ends by then.
    pub deadline: i64,
    /// How long it lasts when its slowest host is of this group; none when the group does not serve it.
    pub seconds: Vec<Option<i64>>,
    /// Mbit/s on the uplink of a site that has so many of its seats: formula (2.6), rounded up; empty without traffic.
    pub loads: Vec<Units>,
    /// At most at so many sites.
    pub sites_max: usize,
}

impl Gang {
    /// The latest start of a mode that lasts so long.
    pub(super) fn latest_start(&self, seconds: i64) -> i64 {
        self.latest.min(self.deadline.saturating_sub(seconds))
    }
}

/// What is to be placed, and where.
#[derive(Debug, Clone, Default)]
pub(in crate::batch) struct Problem {
    /// All hosts, by group; groups of one site stand together.
    pub groups: Vec<Group>,
    /// The uplinks that have a limit.
    pub links: Vec<Link>,
    /// What is to be placed, in order of arrival.
    pub gangs: Vec<Gang>,
}

impl Problem {
    /// The same in slots of so many seconds: a gang starts with a slot and has its last one to the end, and of a slot is free what is free
    /// throughout. Source: the thesis, 3.2.1.
    pub fn in_slots(&self, seconds: i64) -> Problem {
        let up = |time: i64| -(-time).div_euclid(seconds);
        let slotted = |steps: &Steps| -> Steps {
            let mut slots: Vec<i64> =
                steps.iter().flat_map(|(time, _)| [time.div_euclid(seconds), up(*time)]).collect();
            slots.sort_unstable();
            slots.dedup();
            let within = |slot: &i64| {
                let from = steps.partition_point(|(time, _)| *time <= slot * seconds).saturating_sub(1);
                let inside = |at: &usize| *at == from || steps[*at].0 < (slot + 1) * seconds;
                (*slot, (from..steps.len()).take_while(inside).map(|at| steps[at].1).min().unwrap_or(0))
            };
            slots.iter().map(within).collect()
        };
        let mut problem = self.clone();
        problem.groups.iter_mut().for_each(|group| group.free = slotted(&group.free));
        problem.links.iter_mut().for_each(|link| link.free = slotted(&link.free));
        for gang in &mut problem.gangs {
            gang.seconds.iter_mut().flatten().for_each(|own| *own = up(*own));
            gang.earliest = up(gang.earliest);
            gang.latest = gang.latest.div_euclid(seconds);
            gang.deadline = gang.deadline.div_euclid(seconds);
        }
        problem
    }
}

/// Where and when a gang runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::batch) struct Placement {
    /// Its start.
    pub start: i64,
    /// Which of its modes.
    pub mode: usize,
}
