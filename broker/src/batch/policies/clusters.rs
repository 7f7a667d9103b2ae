//! `oas`, `mesd`, `pas`, `cbs` and `jpr`: requests with traffic over clusters with limited uplinks, for the least makespan.
//!
//! Source: the thesis on parallel jobs over several clusters, chapter 3. A host runs one seat at a time. Invariant: no uplink is saturated,
//! also where the source lets a policy do so; the bound of `oas` is what its search proved.

use std::collections::BTreeMap;

use super::PolicyError;
use crate::{
    batch::{
        BatchError, BatchObjective, Order,
        clusters::{Reduced, Taste, Work, mesd, packages, shortest},
        multicluster::Choice,
        order::ordered,
        policy::Policy,
        run::Run,
    },
    plan::Plan,
    reason::Absence,
};

/// Most requests of a batch.
const REQUESTS_MAX: usize = 1_000;
/// Most numbers of the rooms that `oas` keeps at a time: 256 MiB. What would need more is placed as `mesd` does.
const NUMBERS_MAX: usize = 64 << 20;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Oas,
    Slots,
    Mesd(Choice),
    Packages(Taste),
}

struct Clusters {
    name: &'static str,
    kind: Kind,
}

fn make(name: &'static str, parameter: Option<&str>, kind: Kind) -> Result<Box<dyn Policy>, PolicyError> {
    match parameter {
        None => Ok(Box::new(Clusters { name, kind })),
        Some(got) => Err(PolicyError::Parameter { policy: name, expected: "no colon", got: got.to_owned() }),
    }
}

/// Makes the policy that orders and places all requests at once.
///
/// # Errors
/// It takes `slots` or nothing.
pub(super) fn make_oas(parameter: Option<&str>) -> Result<Box<dyn Policy>, PolicyError> {
    match parameter {
        None => make("oas", None, Kind::Oas),
        Some("slots") => make("oas:slots", None, Kind::Slots),
        Some(got) => Err(PolicyError::Parameter { policy: "oas", expected: "oas or oas:slots", got: got.to_owned() }),
    }
}

/// Makes the policy that always takes the request that loses least.
///
/// # Errors
/// It takes `literal` or nothing.
pub(super) fn make_mesd(parameter: Option<&str>) -> Result<Box<dyn Policy>, PolicyError> {
    match parameter {
        None => make("mesd", None, Kind::Mesd(Choice::Carried)),
        Some("literal") => make("mesd:literal", None, Kind::Mesd(Choice::Literal)),
        Some(got) => {
            Err(PolicyError::Parameter { policy: "mesd", expected: "mesd or mesd:literal", got: got.to_owned() })
        }
    }
}

/// Makes the policy of packages that run shortest.
///
/// # Errors
/// It takes nothing behind its name.
pub(super) fn make_pas(parameter: Option<&str>) -> Result<Box<dyn Policy>, PolicyError> {
    make("pas", parameter, Kind::Packages(Taste::ShortRuns))
}

/// Makes the policy of packages that load the uplinks least.
///
/// # Errors
/// It takes nothing behind its name.
pub(super) fn make_cbs(parameter: Option<&str>) -> Result<Box<dyn Policy>, PolicyError> {
    make("cbs", parameter, Kind::Packages(Taste::FewLoads))
}

/// Makes the policy of packages on the fastest hosts.
///
/// # Errors
/// It takes nothing behind its name.
pub(super) fn make_jpr(parameter: Option<&str>) -> Result<Box<dyn Policy>, PolicyError> {
    make("jpr", parameter, Kind::Packages(Taste::FastHosts))
}

impl Policy for Clusters {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn objective(&self) -> Option<BatchObjective> {
        Some(BatchObjective::Makespan)
    }

    fn ignores(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Oas | Kind::Slots | Kind::Mesd(_) => &["order", "alternatives", "overlap", "shapes"],
            Kind::Packages(_) => &["alternatives", "overlap", "shapes"],
        }
    }

    fn check(&self, run: &Run<'_>) -> Result<(), BatchError> {
        let refused = |what: String| Err(BatchError::Refused { policy: self.name.to_owned(), what });
        if run.requests.len() > REQUESTS_MAX {
            return refused(format!("at most {REQUESTS_MAX} requests, got {}", run.requests.len()));
        }
        // Where nothing costs anything, every budget is kept.
        if run.options.budget.is_some() && run.planner.has_prices() {
            return refused("a budget of the batch cannot be kept".to_owned());
        }
        Ok(())
    }

    fn untreated(&self, run: &Run<'_>, requests: &[usize]) -> BTreeMap<usize, String> {
        let has_total =
            |at: &&usize| run.requests[**at].request().is_some_and(|asked| !asked.demand().total().is_empty());
        let with_total = requests.iter().filter(has_total);
        with_total.map(|at| (*at, "total: only amounts per host can be placed".to_owned())).collect()
    }

    fn plan(&self, run: &mut Run<'_>) -> Vec<Option<Plan>> {
        let reduced = Reduced::of(run);
        let reduced = if matches!(self.kind, Kind::Slots) { reduced.in_slots(run) } else { reduced };
        let Reduced { problem, modes, room, .. } = &reduced;
        let ends =
            modes.iter().zip(&problem.gangs).filter_map(|(of, gang)| Some(gang.earliest + of.all.first()?.seconds));
        let longest = ends.max();
        // Two rooms a gang, with at most two levels more for each gang before it.
        let levels = room.times().len() + 2 * modes.len();
        let too_large = (2 * modes.len() * levels).saturating_mul(room.width()) > NUMBERS_MAX;
        let (placed, bound) = match self.kind {
            Kind::Oas | Kind::Slots if too_large => (mesd(problem, modes, room, Choice::Carried), longest),
            Kind::Oas | Kind::Slots => {
                shortest(problem, modes, room, Work::of(modes.len(), run.planner.effort()), run.watch)
            }
            Kind::Mesd(choice) => (mesd(problem, modes, room, choice), longest),
            Kind::Packages(taste) => (packages(problem, modes, room, taste, &queue(run, &reduced)), longest),
        };
        for request in 0..run.requests.len() {
            let gang = reduced.requests.binary_search(&request).ok();
            run.reasons[request] = Some(Absence::Crowded);
            if gang.is_none() {
                // The planner of single requests knows why.
                let _ = run.plan(request, false);
            }
        }
        run.proven = bound.filter(|_| reduced.is_exact);
        reduced.plans(run, &placed)
    }
}

/// Whose turn it is first, and whether nobody overtakes.
fn queue(run: &mut Run<'_>, reduced: &Reduced) -> (Vec<usize>, bool) {
    let mut gangs: Vec<usize> = (0..reduced.requests.len()).collect();
    match run.options.order {
        Order::File | Order::Fcfs | Order::Fpfs => gangs.sort_by_key(|gang| reduced.problem.gangs[*gang].earliest),
        _ => {
            let turns = ordered(run);
            gangs.sort_by_key(|gang| turns.iter().position(|request| *request == reduced.requests[*gang]));
        }
    }
    (gangs, matches!(run.options.order, Order::File | Order::Fcfs))
}
