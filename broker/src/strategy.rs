//! A strategy decides when and where a request runs: one interface for `kolo plan` and the studies.
//!
//! Invariant: an answer depends on the arguments and on what the strategy was told before; nothing else.

use crate::{
    ids::ShapeNumber,
    phases::{self, Candidate, Job, PhaseObserver, find},
    plan::{PlanOutcome, Rejection},
    request::Effort,
    shapes,
};

/// Decides when and where one job runs.
pub trait Strategy {
    /// The plan, or why there is none. The candidates are ordered by site and name, and could serve the job if they were empty.
    fn plan(
        &mut self,
        job: &Job<'_>,
        candidates: &[Candidate<'_>],
        effort: Effort,
        seed: u64,
        observer: &mut dyn PhaseObserver,
    ) -> PlanOutcome;
}

/// The six phases: the strategy of the product.
#[derive(Debug, Clone, Copy, Default)]
pub struct Phases;

impl Strategy for Phases {
    fn plan(
        &mut self,
        job: &Job<'_>,
        candidates: &[Candidate<'_>],
        effort: Effort,
        seed: u64,
        mut observer: &mut dyn PhaseObserver,
    ) -> PlanOutcome {
        phases::plan(job, candidates, effort, seed, &mut observer)
    }
}

/// The best plan of the shapes of one request, each a job of its own, by the six phases. Of a shape, all hosts that could serve some other
/// may be among the candidates.
#[must_use]
pub fn plan_best<'a>(
    jobs: impl Iterator<Item = (ShapeNumber, Job<'a>)>,
    candidates: &[Candidate<'_>],
    effort: Effort,
    seed: u64,
    mut observer: &mut dyn PhaseObserver,
) -> PlanOutcome {
    plan_best_by(jobs, candidates, |job, candidates| phases::plan(job, candidates, effort, seed, &mut observer))
}

/// The same where each shape is planned by `plan_one`.
pub(crate) fn plan_best_by<'a>(
    jobs: impl Iterator<Item = (ShapeNumber, Job<'a>)>,
    candidates: &[Candidate<'_>],
    mut plan_one: impl FnMut(&Job<'a>, &[Candidate<'_>]) -> PlanOutcome,
) -> PlanOutcome {
    shapes::best_of(jobs.map(|(shape, job)| {
        let mut plan = |candidates: &[_]| plan_one(&job, candidates);
        // Who could serve a moldable one depends on the factor, and is found out for each.
        let is_of_some = job.demand.is_of_shape() && !job.demand.is_to_be_scaled();
        let outcome = match is_of_some.then(|| find::eligible(job.demand, candidates)) {
            None => plan(candidates),
            Some(Ok(serving)) => plan(&serving.into_iter().map(|at| candidates[at]).collect::<Vec<_>>()),
            Some(Err(reason)) => PlanOutcome::Rejected(Rejection { reason, start_proven: true }),
        };
        (shape, outcome)
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        offline::OfflinePlanner,
        phases::{PhaseStopwatch, Settings},
        request::Request,
        snapshot::{GridSnapshot, SnapshotHost},
        time::Time,
    };

    /// What is said of a plan, without the time that it took.
    fn said(mut line: Value) -> Value {
        line.as_object_mut().unwrap().remove("phases_us");
        line
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Each shape is planned as a request by itself, and the best of these answers is sought.
        #[test]
        fn the_best_of_all_shapes_is_the_best_of_planning_each_alone(
            hosts in prop::collection::vec((1_u64..9, prop::option::of(500_u32..3_000), 0_u64..9, 1_i64..400), 1..7),
            shapes in prop::collection::vec((1_u32..5, 1_i64..300, any::<bool>(), 0_u64..9, 0_u64..20), 1..5),
            objective in prop::sample::select(vec!["start", "finish", "runtime", "host_time"]),
            latest in 0_i64..400,
        ) {
            let host = |(at, (cpu, speed, used, until)): (usize, (u64, Option<u32>, u64, i64))| {
                json!({"id": format!("h{at}"), "site": format!("s{}", at % 3), "resources": {"cpu": cpu}, "attributes": {},
                    "speed": speed.unwrap_or(1000), "occupancy": {"cpu": [[0, used.min(cpu)], [until, 0]]}})
            };
            let grid = json!({"format": "kolo-grid/2", "hosts": hosts.into_iter().enumerate().map(host).collect::<Vec<_>>()});
            let snapshot = GridSnapshot::read(&grid.to_string()).unwrap();
            let shape = |(hosts, length, is_work, each, total): (u32, i64, bool, u64, u64)| {
                let length_key = if is_work { "work" } else { "duration" };
                json!({"hosts": hosts, length_key: length, "per_host": {"cpu": each}, "total": {"cpu": total}})
            };
            let shapes: Vec<Value> = shapes.into_iter().map(shape).collect();
            let common = json!({"id": "r", "earliest": 0, "latest": latest, "objective": objective});
            let with = |more: &Value| {
                let mut line = common.clone();
                line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                line
            };
            let mut planner = OfflinePlanner::new(snapshot.clone(), Settings::default(), 1, false);
            let mut plan = |line: &Value| {
                let plan = planner.plan_line(1, &line.to_string(), &mut PhaseStopwatch::new(|| Duration::ZERO)).unwrap();
                said(serde_json::to_value(plan).unwrap())
            };
            let alone: Vec<Value> = shapes.iter().map(|shape| plan(&with(shape))).collect();
            let key = |plan: &Value| (plan["objective"]["value"].as_i64(), plan["start"].as_i64());
            let allocated = || alone.iter().enumerate().filter(|(_, plan)| plan["outcome"] == "allocated");
            let least = allocated().map(|(_, plan)| key(plan)).min();
            let of_least = || allocated().filter(|(_, plan)| Some(key(plan)) == least);
            let densest = of_least().map(|(_, plan)| plan["efficiency"].as_f64().unwrap()).fold(0.0, f64::max);
            let first = of_least().find(|(_, plan)| plan["efficiency"].as_f64() == Some(densest));

            let request = with(&json!({ "shapes": shapes }));
            let answer = plan(&request);
            let is_proven = alone.iter().all(|plan| plan["start_proven"] == true);
            prop_assert_eq!(&answer["start_proven"], is_proven);
            match first {
                None => prop_assert_eq!(&answer["outcome"], "rejected"),
                Some((shape, best)) => {
                    prop_assert_eq!(answer["shape"].as_u64(), Some(shape as u64));
                    for part in ["start", "finish", "hosts", "efficiency"] {
                        prop_assert_eq!(&answer[part], &best[part]);
                    }
                    prop_assert_eq!(key(&answer), key(best));
                    if is_proven {
                        prop_assert_eq!(&answer["objective"]["bound"], &answer["objective"]["value"]);
                    }
                }
            }

            // As a node plans them, on all hosts that serve some shape.
            let request: Request = serde_json::from_value(request).unwrap();
            let needs = request.widest();
            let needs = needs.host_needs();
            let mut hosts: Vec<_> = snapshot.hosts.iter().collect();
            hosts.sort_by_key(|host| (&host.site, &host.host.id));
            let candidates: Vec<Candidate<'_>> = hosts
                .into_iter()
                .filter(|host| needs.are_met_by(&host.site, &host.host))
                .map(|host| Candidate { site: &host.site, host: &host.host, schedule: &host.schedule })
                .collect();
            for demand in request.shapes() {
                let is_wider = |host: &SnapshotHost| {
                    !demand.host_needs().are_met_by(&host.site, &host.host) || needs.are_met_by(&host.site, &host.host)
                };
                prop_assert!(snapshot.hosts.iter().all(is_wider));
            }
            let jobs = Job::of_shapes(&request, (Time(0), Time(latest)));
            let outcome = plan_best(jobs, &candidates, Effort::Balanced, 1, &mut ());
            prop_assert_eq!(outcome.start_proven(), is_proven);
            prop_assert_eq!(outcome.plan().map(|plan| u64::from(plan.shape.0)), answer["shape"].as_u64());
            let value = outcome.plan().map(|plan| (plan.objective.value, plan.start.0, plan.objective.bound));
            let bound = answer["objective"]["bound"].as_i64();
            prop_assert_eq!(value, least.map(|(value, start)| (value.unwrap(), start.unwrap(), bound)));
        }
    }
}
