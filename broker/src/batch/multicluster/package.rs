//! PAS: which jobs are placed together, and the cheapest way to do so.
//!
//! Source: the thesis, algorithm 1, and the model of figure 3.4 with (3.7) and (3.8); CBS and JPR differ in what is cheap. Invariant: an
//! assignment is the cheapest of all unless the caller has stopped the search.

use std::ops::Add;

/// The jobs of a queue that fit into so many free hosts together (3.2) and that `joins` lets in beside those before them. What does not fit
/// is passed over, or with `is_strict` ends the package.
pub fn selected(
    queue: impl IntoIterator<Item = usize>,
    mut hosts: u32,
    is_strict: bool,
    seats: impl Fn(usize) -> u32,
    mut joins: impl FnMut(&[usize]) -> bool,
) -> Vec<usize> {
    let mut package = Vec::new();
    for job in queue {
        if seats(job) <= hosts {
            package.push(job);
            if joins(&package) {
                hosts -= seats(job);
                continue;
            }
            package.pop();
        }
        if is_strict {
            break;
        }
    }
    package
}

/// Hosts and links beside which jobs of a package are placed, and the bound of a search.
pub trait Beside<Mode> {
    /// Hosts and links that are free.
    type Room;

    /// Room that is left when a job, named by its place in the package, begins in this mode; none when the mode does not fit, or saturates
    /// a link (3.7).
    fn with(&mut self, room: &Self::Room, job: usize, mode: &Mode) -> Option<Self::Room>;
    /// Counts modes of a job that are too dear beside those chosen to be tried.
    fn passed_over(&mut self, _modes: usize) {}
    /// Whether the search may look at one more set of modes; it is asked once for each.
    fn may_go_on(&mut self) -> bool {
        true
    }
}

/// Modes chosen for all jobs of a package.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned<Cost> {
    /// The sum of all costs.
    pub cost: Cost,
    /// Number of the chosen mode, by job.
    pub modes: Vec<usize>,
}

struct Search<'a, Cost, Mode, B: Beside<Mode>> {
    /// By job: its modes with their costs, the cheapest first.
    jobs: &'a [&'a [(Cost, Mode)]],
    /// The least that all jobs from here on cost.
    least: Vec<Cost>,
    beside: &'a mut B,
    is_any_enough: bool,
    chosen: Vec<usize>,
    best: Option<Assigned<Cost>>,
}

/// The cheapest modes of all jobs that fit beside each other (3.8), or with `is_any_enough` the first found. The modes of each job are
/// given with their costs, the cheapest first.
pub fn cheapest<Cost, Mode, B>(
    jobs: &[&[(Cost, Mode)]],
    room: &B::Room,
    beside: &mut B,
    is_any_enough: bool,
) -> Option<Assigned<Cost>>
where
    Cost: Copy + Default + PartialOrd + Add<Output = Cost>,
    B: Beside<Mode>,
{
    let mut least = vec![Cost::default(); jobs.len() + 1];
    for at in (0..jobs.len()).rev() {
        least[at] = least[at + 1] + jobs[at].first().map_or(Cost::default(), |mode| mode.0);
    }
    let mut search = Search { jobs, least, beside, is_any_enough, chosen: Vec::new(), best: None };
    search.visit(Cost::default(), room);
    search.best
}

impl<Cost: Copy + PartialOrd + Add<Output = Cost>, Mode, B: Beside<Mode>> Search<'_, Cost, Mode, B> {
    /// Places the jobs that are left beside those that are chosen.
    fn visit(&mut self, cost: Cost, room: &B::Room) {
        let at = self.chosen.len();
        if !self.beside.may_go_on() || self.is_over(cost + self.least[at]) {
            return;
        }
        let Some(modes) = self.jobs.get(at).copied() else {
            self.best = Some(Assigned { cost, modes: self.chosen.clone() });
            return;
        };
        for (number, (price, mode)) in modes.iter().enumerate() {
            if self.is_over(cost + *price + self.least[at + 1]) {
                self.beside.passed_over(modes.len() - number);
                break;
            }
            if let Some(after) = self.beside.with(room, at, mode) {
                self.chosen.push(number);
                self.visit(cost + *price, &after);
                self.chosen.pop();
            }
        }
    }

    /// Whether an assignment of this cost would be of no use beside the best one found.
    fn is_over(&self, cost: Cost) -> bool {
        self.best.as_ref().is_some_and(|best| self.is_any_enough || cost >= best.cost)
    }
}
