//! The least end by a general constraint solver: a second opinion that shares nothing with the search but the modes.
//!
//! The solver learns from conflicts (lazy clause generation). Its `cumulative` takes constant lengths only, so what is in use is summed at
//! every start: there alone can it grow beyond what is free. What is not free for a while is a task that is placed already.

use std::ops::ControlFlow;

use pumpkin_conflict_resolvers::resolvers::ResolutionResolver;
use pumpkin_constraints as constraints;
use pumpkin_core::{
    DefaultBrancher, Solver,
    optimisation::{OptimisationDirection, linear_sat_unsat::LinearSatUnsat},
    results::{OptimisationResult, ProblemSolution as _, SolutionReference},
    termination::Indefinite,
    variables::{DomainId, TransformableVariable as _},
};

use super::{
    modes::Modes,
    problem::{Problem, Steps, Units},
};

struct Task {
    start: DomainId,
    end: DomainId,
    /// Of each group, then of each uplink.
    needs: Vec<DomainId>,
}

fn small(number: i64) -> i32 {
    i32::try_from(number).expect("the problems of tests are small")
}

/// The least end of all placements of all gangs that end before `horizon`; none when there is no such placement.
pub(super) fn least_end(problem: &Problem, modes: &[Modes], horizon: i64) -> Option<i64> {
    if modes.iter().any(|modes| modes.all.is_empty()) {
        return None;
    }
    let units: Vec<&Steps> =
        problem.groups.iter().map(|group| &group.free).chain(problem.links.iter().map(|link| &link.free)).collect();
    let most: Vec<Units> = units.iter().map(|steps| steps.iter().map(|step| step.1).max().unwrap_or(0)).collect();
    let mut solver = Solver::default();
    let gangs: Vec<Task> = (0..modes.len()).map(|gang| task(&mut solver, problem, modes, gang, horizon)).collect();
    let last = solver.new_bounded_integer(0, small(horizon));
    for gang in &gangs {
        let tag = solver.new_constraint_tag();
        solver.add_constraint(constraints::binary_less_than_or_equals(gang.end, last, tag)).post();
    }
    let booked = booked(&mut solver, &units, &most, horizon);
    let all: Vec<&Task> = gangs.iter().chain(&booked).collect();
    for (at, own) in all.iter().enumerate() {
        let in_use: Vec<Vec<DomainId>> = all
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at && (at < gangs.len() || *other < gangs.len()))
            .map(|(_, other)| in_use(&mut solver, other, own.start, &most))
            .collect();
        for (unit, most) in most.iter().enumerate() {
            let terms: Vec<DomainId> = in_use.iter().map(|of| of[unit]).chain([own.needs[unit]]).collect();
            let tag = solver.new_constraint_tag();
            solver.add_constraint(constraints::less_than_or_equals(terms, *most, tag)).post();
        }
    }
    let mut brancher = solver.default_brancher();
    let go_on =
        |_: &Solver, _: SolutionReference<'_>, _: &DefaultBrancher, _: &ResolutionResolver| -> ControlFlow<()> {
            ControlFlow::Continue(())
        };
    let procedure = LinearSatUnsat::new(OptimisationDirection::Minimise, last, go_on);
    match solver.optimise(&mut brancher, &mut Indefinite, &mut ResolutionResolver::default(), procedure) {
        OptimisationResult::Optimal(best) => Some(i64::from(best.get_integer_value(last))),
        OptimisationResult::Unsatisfiable => None,
        other => panic!("a search without limits ends: {other:?}"),
    }
}

/// A gang in one of its modes.
fn task(solver: &mut Solver, problem: &Problem, modes: &[Modes], gang: usize, horizon: i64) -> Task {
    let asked = &problem.gangs[gang];
    let start = solver.new_bounded_integer(small(asked.earliest), small(asked.latest.min(horizon)));
    let end = solver.new_bounded_integer(0, small(asked.deadline.min(horizon)));
    let rows: Vec<Vec<i32>> = modes[gang]
        .all
        .iter()
        .map(|mode| [small(mode.seconds)].into_iter().chain(mode.needs.iter().copied()).collect())
        .collect();
    let columns: Vec<DomainId> = (0..rows[0].len())
        .map(|column| solver.new_sparse_integer(rows.iter().map(|row| row[column]).collect::<Vec<_>>()))
        .collect();
    let tag = solver.new_constraint_tag();
    solver.add_constraint(constraints::table(columns.clone(), rows, tag)).post();
    let tag = solver.new_constraint_tag();
    let sum = [start.scaled(1), columns[0].scaled(1), end.scaled(-1)];
    solver.add_constraint(constraints::equals(sum, 0, tag)).post();
    Task { start, end, needs: columns[1..].to_vec() }
}

/// What is not free, as tasks that are placed already.
fn booked(solver: &mut Solver, units: &[&Steps], most: &[Units], horizon: i64) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (unit, steps) in units.iter().enumerate() {
        for (at, (time, level)) in steps.iter().enumerate().filter(|(_, step)| step.1 < most[unit]) {
            let from = if at == 0 { 0 } else { small(*time) };
            let until = small(steps.get(at + 1).map_or(horizon, |next| next.0));
            let mut just = |value| solver.new_bounded_integer(value, value);
            let needs =
                (0..units.len()).map(|other| just(if other == unit { most[unit] - level } else { 0 })).collect();
            tasks.push(Task { start: just(from), end: just(until), needs });
        }
    }
    tasks
}

/// What a task has in use at a time: all of its needs, but where it has not begun or has ended.
fn in_use(solver: &mut Solver, task: &Task, time: DomainId, most: &[Units]) -> Vec<DomainId> {
    let [is_later, is_over, runs] = std::array::from_fn(|_| solver.new_literal());
    let tag = solver.new_constraint_tag();
    solver.add_constraint(constraints::binary_less_than(time, task.start, tag)).implied_by(is_later);
    let tag = solver.new_constraint_tag();
    solver.add_constraint(constraints::binary_less_than_or_equals(task.end, time, tag)).implied_by(is_over);
    let tag = solver.new_constraint_tag();
    solver.add_clause([is_later, is_over, runs].map(|literal| literal.get_true_predicate()), tag);
    let in_use: Vec<DomainId> = most.iter().map(|most| solver.new_bounded_integer(0, *most)).collect();
    for (need, used) in task.needs.iter().zip(&in_use) {
        let tag = solver.new_constraint_tag();
        solver.add_constraint(constraints::binary_less_than_or_equals(*need, *used, tag)).implied_by(runs);
    }
    in_use
}
