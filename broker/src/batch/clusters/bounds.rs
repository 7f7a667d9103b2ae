//! Lower bounds on the latest end: shares of all that is there, of which concurrent gangs never take more than the whole.
//!
//! A row gives every mode a share so that modes which fit together never have more than [`WHOLE`] of it; the seconds of all gangs
//! weighted by their shares then need their time. Rows are weightings of hosts and uplinks, and dual feasible functions of them (Fekete,
//! Schepers 2001): gangs that take more than half exclude each other. Invariant: shares are rounded down, what is free is rounded up.

use super::{
    blend::blend,
    modes::Modes,
    problem::{Gang, Problem, Units},
    room::Room,
};

/// All that is there at once.
pub(super) const WHOLE: i64 = 1 << 20;

/// Most gangs that are searched exactly.
pub(super) const GANGS_MAX: usize = 16;
/// Above so many modes of all gangs together only a few rows are made.
const MODES_MAX: usize = 20_000;
/// Most blends of rows.
const BLENDS: usize = 4;

/// One row.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// By gang and mode; none where there are too many gangs for a proof.
    pub shares: Vec<Vec<i64>>,
    /// By step of the empty room: how much of the whole is free.
    pub free: Vec<i64>,
    /// By gang and length (see [`Bounds::lengths`]): the least of share by seconds of the modes that are not longer.
    pub areas: Vec<Vec<i64>>,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// Those that said most so far come first.
    pub rows: Vec<Row>,
    /// By gang: the lengths of its modes, rising.
    pub lengths: Vec<Vec<i64>>,
    /// When what is free of the empty room changes.
    pub times: Vec<i64>,
}

/// A dual feasible function: shares `x` of a whole with sum at most the whole have images that do so as well.
#[derive(Debug, Clone, Copy)]
enum Dual {
    Same,
    /// More than the whole less this counts as all, less than this as nothing.
    Above(i64),
    /// Rounded down to so many parts, where it is not a multiple of them plus one.
    Parts(i64),
}

impl Dual {
    /// The image of `part` of `all`, in parts of [`WHOLE`].
    fn of(self, part: i64, all: i64) -> i64 {
        match self {
            Dual::Same => part * WHOLE / all,
            Dual::Above(least) if part > all - least => WHOLE,
            Dual::Above(least) if part < least => 0,
            Dual::Above(_) => part * WHOLE / all,
            Dual::Parts(parts) if part * (parts + 1) % all == 0 => part * WHOLE / all,
            Dual::Parts(parts) => (part * (parts + 1) / all) * WHOLE / parts,
        }
    }
}

impl Bounds {
    /// All rows for these modes.
    pub fn of(problem: &Problem, modes: &[Modes], room: &Room) -> Bounds {
        let groups = problem.groups.len();
        let lengths = modes.iter().map(lengths_of).collect();
        let mut bounds = Bounds { rows: Vec::new(), lengths, times: room.times().to_vec() };
        let most = room.most();
        let is_large = modes.iter().map(|of| of.all.len()).sum::<usize>() > MODES_MAX;
        let is_proof = modes.len() <= GANGS_MAX;
        let mut weightings = if is_large { vec![vec![1; groups]] } else { grid(groups) };
        for link in groups..room.width() {
            let mut one = vec![0; room.width()];
            one[link] = 1;
            weightings.push(one);
        }
        for weights in &mut weightings {
            weights.resize(room.width(), 0);
            bounds.push(modes, room, weights, Dual::Same);
        }
        let hosts: Vec<i64> = (0..room.width()).map(|unit| i64::from(unit < groups)).collect();
        let all: i64 = most[..groups].iter().map(|most| i64::from(*most)).sum();
        for least in (1..=all / 2).step_by(usize::try_from(all / 64).unwrap_or(0) + 1) {
            bounds.push(modes, room, &hosts, Dual::Above(least));
        }
        for weights in &weightings {
            let all: i64 = weights.iter().zip(&most).map(|(weight, most)| weight * i64::from(*most)).sum();
            bounds.push(modes, room, weights, Dual::Above(all / 2));
            bounds.push(modes, room, weights, Dual::Above(all / 3 + 1));
            for parts in 1..4 {
                bounds.push(modes, room, weights, Dual::Parts(parts));
            }
        }
        if !is_large {
            bounds.add_blends(&problem.gangs, modes);
        }
        if !is_proof {
            bounds.rows.iter_mut().for_each(|row| row.shares.clear());
        }
        bounds
    }

    fn push(&mut self, modes: &[Modes], room: &Room, weights: &[i64], dual: Dual) {
        let sum =
            |needs: &[Units]| weights.iter().zip(needs).map(|(weight, need)| weight * i64::from(*need)).sum::<i64>();
        let all = sum(&room.most());
        if all <= 0 {
            return;
        }
        let shares = |of: &Modes| of.all.iter().map(|mode| dual.of(sum(&mode.needs), all)).collect();
        let free = |at| WHOLE - dual.of(all - sum(room.level(at)), all);
        let mut row = Row {
            shares: modes.iter().map(shares).collect(),
            free: (0..room.times().len()).map(free).collect(),
            areas: Vec::new(),
        };
        row.areas = self.areas(modes, &row.shares);
        if row.areas.iter().any(|areas| areas.last().is_some_and(|area| *area > 0)) {
            self.rows.push(row);
        }
    }

    fn areas(&self, modes: &[Modes], shares: &[Vec<i64>]) -> Vec<Vec<i64>> {
        (0..modes.len()).map(|gang| areas(&modes[gang], &shares[gang], &self.lengths[gang])).collect()
    }

    /// Puts blends before the other rows: of all gangs, and of those that come late.
    fn add_blends(&mut self, gangs: &[Gang], modes: &[Modes]) {
        if self.rows.is_empty() {
            return;
        }
        let mut arrivals: Vec<i64> = gangs.iter().map(|gang| gang.earliest).collect();
        arrivals.sort_unstable();
        arrivals.dedup();
        let late = |from: &i64| (0..gangs.len()).filter(|gang| gangs[*gang].earliest >= *from).collect();
        let sets: Vec<Vec<usize>> = arrivals.iter().step_by(arrivals.len() / BLENDS + 1).map(late).collect();
        let mut blends: Vec<Row> = sets.iter().map(|gangs| blend(&self.rows, modes, gangs)).collect();
        blends.iter_mut().for_each(|row| row.areas = self.areas(modes, &row.shares));
        self.rows.splice(0..0, blends);
    }

    /// No placement of all gangs ends before it; at most `known`.
    pub fn least_end(&self, problem: &Problem, known: i64) -> i64 {
        let (mut below, mut end) = (-1, known);
        while below + 1 < end {
            let middle = i64::midpoint(below, end);
            if self.excludes(problem, middle) { below = middle } else { end = middle }
        }
        end
    }

    /// Whether no placement of all gangs ends by then.
    fn excludes(&self, problem: &Problem, end: i64) -> bool {
        let classes = || {
            problem.gangs.iter().enumerate().map(|(at, gang)| (at, self.class(at, end - gang.earliest), gang.earliest))
        };
        if classes().any(|(_, class, _)| class == 0) {
            return true;
        }
        let mut arrivals: Vec<i64> = problem.gangs.iter().map(|gang| gang.earliest).collect();
        arrivals.sort_unstable();
        arrivals.dedup();
        arrivals.iter().any(|from| {
            let late: Vec<_> = classes().filter(|(.., earliest)| earliest >= from).collect();
            self.rows.iter().any(|row| {
                let area = late.iter().map(|(gang, class, _)| row.areas[*gang][class - 1]).sum();
                row.end(&self.times, *from, area) > end
            })
        })
    }

    /// How many of a gang's lengths are at most so long.
    pub fn class(&self, gang: usize, seconds: i64) -> usize {
        self.lengths[gang].partition_point(|length| *length <= seconds)
    }
}

impl Row {
    /// When so much (share by seconds) can be done at the earliest, from `start` on.
    pub fn end(&self, times: &[i64], start: i64, area: i64) -> i64 {
        if area <= 0 {
            return start;
        }
        if times.len() == 1 {
            return start + ceil_div(area, self.free[0]);
        }
        let (mut time, mut left) = (start, area);
        let mut at = times.partition_point(|known| *known <= start).saturating_sub(1);
        while let Some(next) = times.get(at + 1) {
            let done = self.free[at].saturating_mul(next - time);
            if done >= left {
                break;
            }
            left -= done;
            time = *next;
            at += 1;
        }
        time + ceil_div(left, self.free[at])
    }
}

fn ceil_div(area: i64, free: i64) -> i64 {
    if free <= 0 { i64::MAX / 4 } else { (area + free - 1) / free }
}

fn lengths_of(modes: &Modes) -> Vec<i64> {
    let mut lengths: Vec<i64> = modes.all.iter().map(|mode| mode.seconds).collect();
    lengths.dedup();
    lengths
}

fn areas(modes: &Modes, shares: &[i64], lengths: &[i64]) -> Vec<i64> {
    let mut least = i64::MAX;
    let mut at = 0;
    lengths
        .iter()
        .map(|length| {
            while let Some(mode) = modes.all.get(at).filter(|mode| mode.seconds <= *length) {
                least = least.min(shares[at] * mode.seconds);
                at += 1;
            }
            least
        })
        .collect()
}

/// Small whole weights of the groups, none a multiple of another one.
fn grid(groups: usize) -> Vec<Vec<i64>> {
    let most: i64 = match groups {
        0..=2 => 6,
        3 => 4,
        4 => 2,
        5 | 6 => 1,
        _ => 0,
    };
    let mut all: Vec<Vec<i64>> = vec![Vec::new()];
    for _ in 0..groups {
        all =
            all.iter().flat_map(|known| (0..=most).map(move |weight| [known.as_slice(), &[weight]].concat())).collect();
    }
    let divisor = |weights: &Vec<i64>| weights.iter().fold(0, |divisor, weight| common_divisor(divisor, *weight));
    all.retain(|weights| divisor(weights) == 1);
    if most == 0 {
        all = vec![vec![1; groups]];
    }
    all
}

fn common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
