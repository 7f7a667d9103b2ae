//! Phase III: where in the window a start is possible at all.
//!
//! The window is cut into strides of equal length. One pass over an occupancy gives, for every stride, an amount that is
//! used in the window of *each* start inside the stride; what the host has free there is an upper bound for the whole
//! stride. A stride in which too few hosts are left, or the N with the most free miss a total, is closed by proof, and
//! no start inside it is looked at again. Resources are taken in the order of their scarcity, so that most requests
//! without a solution are settled after one of them.
//!
//! Invariant: a feasible start is never inside a closed stride.

use super::{
    bounds::{Judge, Picker, Verdict},
    miss::Miss,
    problem::{Problem, Slot, signed_use},
};
use crate::{
    amount::Amount,
    schedule::{Extremes, Occupancy},
    time::{Span, Time},
};

/// Most cells of the tables of all resources together (strides by hosts by resources): 64 MiB.
const CELLS_MAX: usize = 1 << 23;
/// Occupancies whose number of steps is looked at to choose the pieces.
const CELLS_SAMPLED: usize = 24;
/// Bounds of the number of pieces that window and duration together are cut into.
const PIECES_MIN: i64 = 16;
const PIECES_MAX: i64 = 1024;
/// Steps of an occupancy that one piece should hold.
const STEPS_IN_PIECE: i64 = 4;
/// Steps of the search for multipliers that close a stride, and how many strides may stay open before it is given up.
const STRIDE_STEPS: u32 = 8;
const FAILURES_MAX: u32 = 4;
/// Closed strides that are looked at again when the strides before and after them are open.
const GAP_STRIDES: usize = 3;

/// Starts `first..=last` that are still open, and the hosts that may be available somewhere in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OpenRange {
    /// First start.
    pub first: Time,
    /// Last start.
    pub last: Time,
    /// Hosts that no bound rules out in all of the range, ascending.
    pub hosts: Vec<u32>,
}

/// The strides of one planning run.
struct Strides<'p, 'a> {
    problem: &'p Problem<'a>,
    first: i64,
    last: i64,
    length: i64,
    count: usize,
    is_open: Vec<bool>,
    /// Whether a host is ruled out in a stride, indexed `stride * hosts + host`.
    is_out: Vec<bool>,
}

/// The ranges of `first..=last` that no bound closes, in order. `room` says which resources are scarce.
pub(crate) fn open_ranges(
    problem: &Problem<'_>,
    (first, last): (Time, Time),
    room: &[f64],
    judge: &mut Judge,
    miss: &mut Miss,
) -> Vec<OpenRange> {
    let hosts = problem.hosts.len();
    let whole = last.0 - first.0 + 1 + problem.length_max;
    let length = pieces_of(whole, pieces_wanted(problem, whole));
    let count = pieces_of(last.0 - first.0 + 1, length) as usize;
    let mut strides = Strides {
        problem,
        first: first.0,
        last: last.0,
        length,
        count,
        is_open: vec![true; count],
        is_out: vec![false; count * hosts],
    };
    let mut order: Vec<usize> = (0..problem.width()).collect();
    order.sort_by(|a, b| room[*a].total_cmp(&room[*b]));
    let mut scanner = Scanner::default();
    let mut floors = vec![Vec::new(); problem.width()];
    for resource in order {
        floors[resource] = scanner.floors(&strides, resource);
        if !strides.close(resource, &floors[resource], &mut judge.picker, miss) {
            return Vec::new();
        }
    }
    strides.close_by_all(&floors, judge, miss);
    strides.into_ranges()
}

/// How much more of every resource there is than needed, by what the available hosts of one slot have free; by what the
/// N largest hosts have (`largest`, from phase II) when hardly any host is available there.
pub(crate) fn room(problem: &Problem<'_>, slot: &Slot, largest: &[i64]) -> Vec<f64> {
    let width = problem.width();
    let of = |resource: usize| {
        let needed = problem.needed[resource].max(1) as f64;
        if 2 * slot.len() < problem.pick {
            return largest[resource] as f64 / needed;
        }
        let free: f64 = slot.free.iter().skip(resource).step_by(width).map(|free| *free as f64).sum();
        free * problem.pick as f64 / slot.len() as f64 / needed
    };
    (0..width).map(of).collect()
}

/// Enough pieces that one holds few steps, and that a window covers at least one piece whole if the steps allow it.
fn pieces_wanted(problem: &Problem<'_>, whole: i64) -> i64 {
    // A sample of the hosts tells enough.
    let (hosts, width) = (problem.hosts.len(), problem.width());
    let cells = (hosts * width).clamp(1, CELLS_SAMPLED);
    let of_cell = |cell: usize| problem.occupancy(cell / width, cell % width);
    let steps: usize = (0..cells.min(hosts * width)).filter_map(of_cell).map(Occupancy::len).sum();
    let steps = (steps / cells).cast_signed() as i64;
    let covered = 2 * whole / problem.length_max;
    let most = PIECES_MAX.min((CELLS_MAX / (hosts * width).max(1)).cast_signed() as i64).max(1);
    (steps / STEPS_IN_PIECE).max(covered.min(steps / 2)).clamp(PIECES_MIN.min(most), most)
}

impl Strides<'_, '_> {
    /// The first start of a stride.
    fn start_of(&self, stride: usize) -> Time {
        Time(self.first + stride.cast_signed() as i64 * self.length)
    }

    /// Closes strides by what is used of `resource` at least; false when none is left open.
    fn close(&mut self, resource: usize, floor: &[i64], picker: &mut Picker, miss: &mut Miss) -> bool {
        let problem = self.problem;
        let (hosts, width, pick) = (problem.hosts.len(), problem.width(), problem.pick);
        let needed = problem.needed[resource];
        // The N largest of some values are together at most N thresholds and what exceeds them, whatever the threshold;
        // the N-th largest of an earlier stride mostly settles the matter without a selection.
        let mut threshold = 0;
        for stride in 0..self.count {
            if !self.is_open[stride] {
                continue;
            }
            let start = self.start_of(stride);
            let floor = &floor[stride * hosts..][..hosts];
            let is_out = &mut self.is_out[stride * hosts..][..hosts];
            let mut available = 0;
            let mut bound = threshold * pick.cast_signed() as i64;
            for host in 0..hosts {
                let capacity = problem.capacity[host * width + resource];
                is_out[host] |= floor[host] > capacity - problem.minimum[resource] || start.0 > problem.latest(host);
                available += usize::from(!is_out[host]);
                if !is_out[host] {
                    // A whole pool of the largest amounts would not fit; then nothing is closed by this bound.
                    bound = bound.saturating_add((capacity - floor[host] - threshold).max(0));
                }
            }
            if available < pick {
                miss.note_stride(start, Miss::too_few(available, pick));
                self.is_open[stride] = false;
            } else if problem.is_binding[resource] && bound < needed {
                miss.note_stride(start, bound as f64 / needed as f64);
                self.is_open[stride] = false;
            } else if problem.is_binding[resource] {
                let free = (0..hosts)
                    .filter(|host| !is_out[*host])
                    .map(|host| problem.capacity[host * width + resource] - floor[host]);
                let best = picker.sum_of_largest(pick, free);
                if best < needed {
                    miss.note_stride(start, best as f64 / needed as f64);
                    self.is_open[stride] = false;
                    threshold = picker.smallest_of_sum(pick);
                }
            }
        }
        self.is_open.contains(&true)
    }

    /// Closes strides by all totals at once; gives up when that does not succeed often enough to pay.
    fn close_by_all(&mut self, floors: &[Vec<i64>], judge: &mut Judge, miss: &mut Miss) {
        let problem = self.problem;
        let (hosts, width) = (problem.hosts.len(), problem.width());
        let mut failures_left = FAILURES_MAX;
        let mut slot = Slot { start: Time(self.first), hosts: Vec::new(), free: Vec::new() };
        for stride in (0..self.count).filter(|stride| self.is_open[*stride]).collect::<Vec<_>>() {
            let is_out = &self.is_out[stride * hosts..][..hosts];
            slot.start = self.start_of(stride);
            slot.hosts.clear();
            slot.free.clear();
            for host in (0..hosts).filter(|host| !is_out[*host]) {
                let floor = |resource: usize| floors[resource][stride * hosts + host];
                slot.hosts.push(host as u32);
                slot.free
                    .extend((0..width).map(|resource| problem.capacity[host * width + resource] - floor(resource)));
            }
            if let Verdict::Excluded(weights, _) = judge.judge(problem, &slot, STRIDE_STEPS) {
                miss.note_stride(slot.start, judge.reach(&weights));
                self.is_open[stride] = false;
            } else {
                failures_left -= 1;
                if failures_left == 0 {
                    return;
                }
            }
        }
    }

    /// The open strides; those close to each other are taken together, since a range of its own costs a new look at every
    /// schedule.
    fn into_ranges(self) -> Vec<OpenRange> {
        let hosts = self.problem.hosts.len();
        let mut ranges = Vec::new();
        let mut is_out = vec![true; hosts];
        let mut first = None;
        for stride in 0..self.count {
            if !self.is_open[stride] {
                continue;
            }
            first.get_or_insert(stride);
            let out_here = &self.is_out[stride * hosts..][..hosts];
            is_out.iter_mut().zip(out_here).for_each(|(is_out, out_here)| *is_out &= out_here);
            let goes_on = self.is_open[stride + 1..].iter().take(GAP_STRIDES + 1).any(|is_open| *is_open);
            if let Some(begin) = first
                && !goes_on
            {
                let last = self.start_of(stride + 1).0 - 1;
                ranges.push(OpenRange {
                    first: self.start_of(begin),
                    last: Time(last.min(self.last)),
                    hosts: (0..hosts as u32).filter(|host| !is_out[*host as usize]).collect(),
                });
                first = None;
                is_out.fill(true);
            }
        }
        ranges
    }
}

/// Finds what is used at least in every window that starts in a stride.
#[derive(Default)]
struct Scanner {
    extremes: Vec<Extremes>,
    largest: Vec<i64>,
}

impl Scanner {
    /// The floors of one resource, indexed `stride * hosts + host`.
    fn floors(&mut self, strides: &Strides<'_, '_>, resource: usize) -> Vec<i64> {
        let problem = strides.problem;
        let hosts = problem.hosts.len();
        let mut floors = vec![0; strides.count * hosts];
        for host in 0..hosts {
            let is_used = |stride: usize| strides.is_open[stride] && !strides.is_out[stride * hosts + host];
            if let Some(occupancy) = problem.occupancy(host, resource)
                && (0..strides.count).any(is_used)
            {
                self.scan(occupancy, strides);
                self.bound(&mut floors, host, strides);
            }
        }
        floors
    }

    /// Largest and smallest use in every piece of the time that any window covers.
    fn scan(&mut self, occupancy: &Occupancy, strides: &Strides<'_, '_>) {
        let whole = strides.last - strides.first + strides.problem.length_max;
        let pieces = pieces_of(whole, strides.length) as usize;
        self.extremes.resize(pieces, Extremes::default());
        occupancy.extremes(Time(strides.first), Span(strides.length.unsigned_abs()), &mut self.extremes);
    }

    /// Every window that starts in a stride covers the whole pieces between its last start and its first end; where there
    /// are none, it still lies inside the pieces that any of its windows touches.
    fn bound(&mut self, floors: &mut [i64], host: usize, strides: &Strides<'_, '_>) {
        let hosts = strides.problem.hosts.len();
        let duration = strides.problem.lengths[host];
        let covered = (duration / strides.length - 1).max(0) as usize;
        if covered > 0 {
            self.largest.clear();
            self.largest.extend(self.extremes.iter().map(|piece| signed_use(Amount(piece.largest))));
            widen(&mut self.largest, covered);
            for stride in 0..strides.count {
                floors[stride * hosts + host] = self.largest[stride + 1];
            }
        } else {
            let touched = ((strides.length + duration - 2) / strides.length) as usize;
            for stride in 0..strides.count {
                let last = (stride + touched).min(self.extremes.len() - 1);
                let smallest = self.extremes[stride..=last].iter().map(|piece| piece.smallest).min();
                floors[stride * hosts + host] = signed_use(Amount(smallest.unwrap_or(0)));
            }
        }
    }
}

/// How many pieces of `length` cover a positive `whole`.
fn pieces_of(whole: i64, length: i64) -> i64 {
    (whole - 1) / length + 1
}

/// Replaces every value by the largest of it and the `count - 1` after it.
fn widen(values: &mut [i64], count: usize) {
    let mut width = 1;
    while width < count {
        let shift = width.min(count - width);
        for at in 0..values.len().saturating_sub(shift) {
            values[at] = values[at].max(values[at + shift]);
        }
        width += shift;
    }
}
