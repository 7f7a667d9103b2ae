//! One run of a batch: the requests, the snapshot as it is occupied so far, and what is written down on the way.

use std::time::Duration;

use super::{
    alternatives::Alternative,
    objective::{BatchObjective, cost, since},
    policy::Options,
    watch::{Progress, Watch},
};
use crate::{
    cost::Cost,
    ids::ShapeNumber,
    offline::{Asked, OfflinePlanner},
    phases::{Job, PhaseStopwatch},
    plan::{Plan, PlanOutcome},
    reason::Absence,
    request::{ObjectiveKind, Request},
    shapes,
    time::Time,
};

/// See the module.
pub struct Run<'a> {
    /// On the snapshot as it is occupied so far.
    pub(super) planner: OfflinePlanner,
    pub(super) requests: &'a [Asked],
    pub(super) options: &'a Options,
    /// The earliest `earliest` of all requests.
    pub(super) origin: Time,
    /// What a plan may cost, in thousandths of a credit.
    pub(super) left: Option<u64>,
    /// Everything that was found.
    pub(super) alternatives: Vec<Alternative>,
    /// What the phases took for each request, in microseconds.
    pub(super) phases_us: Vec<[f64; 5]>,
    /// By request: why the planner last had no answer.
    pub(super) reasons: Vec<Option<Absence>>,
    /// What the policy proved: no plan of all requests has a smaller value.
    pub(super) proven: Option<i64>,
    /// Who waits for the answer.
    pub(super) watch: Watch<'a>,
    pub(super) stopwatch: PhaseStopwatch<&'a dyn Fn() -> Duration>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        planner: &OfflinePlanner,
        requests: &'a [Asked],
        options: &'a Options,
        watch: Watch<'a>,
    ) -> Run<'a> {
        let asked = requests.iter().filter_map(|asked| asked.request().map(earliest));
        Run {
            planner: planner.clone(),
            requests,
            options,
            origin: asked.min().unwrap_or(Time::ZERO),
            left: options.budget,
            alternatives: Vec::new(),
            phases_us: vec![[0.0; 5]; requests.len()],
            reasons: vec![None; requests.len()],
            proven: None,
            watch,
            stopwatch: PhaseStopwatch::new(watch.clock),
        }
    }

    /// A plan of a request beside what is occupied, by its own objective, or by that of the batch.
    pub(super) fn plan(&mut self, request: usize, is_for_batch: bool) -> Option<Plan> {
        let objective = self.options.objective.of_request();
        self.plan_by(request, |job| {
            if is_for_batch {
                job.objective = objective;
            }
        })
    }

    /// The same for jobs that are not quite what is asked; the best of its shapes.
    pub(super) fn plan_by(&mut self, request: usize, change: impl Fn(&mut Job<'_>)) -> Option<Plan> {
        self.goes_on(request).then_some(())?;
        self.stopwatch.reset();
        let left = self.budget_left();
        let change = |job: &mut Job<'_>| {
            change(job);
            job.budget = [job.budget, left].into_iter().flatten().min();
        };
        let outcomes = self.requests[request].shapes.iter().map(|asked| match asked {
            Ok(asked) => self.planner.plan_changed(&asked.unscaled(), change, &mut self.stopwatch),
            Err(rejection) => PlanOutcome::Rejected(rejection.clone()),
        });
        let outcome = shapes::best_of((0..).map(ShapeNumber).zip(outcomes));
        self.found(request, outcome)
    }

    /// Asks the one who waits whether a request is to be planned; notes that it was not.
    pub(super) fn goes_on(&mut self, request: usize) -> bool {
        let placed = self.alternatives.iter().filter(|found| found.chosen).count();
        let goes_on = (self.watch.goes_on)(Progress { placed, value: None });
        if !goes_on {
            self.reasons[request] = Some(Absence::Ended);
        }
        goes_on
    }

    /// What a plan may cost, as a request has it.
    pub(super) fn budget_left(&self) -> Option<Cost> {
        self.left.map(|left| Cost(left.min(Cost::MAX.0 - 1)))
    }

    /// Books what a search took, and notes why it found nothing.
    pub(super) fn found(&mut self, request: usize, outcome: PlanOutcome) -> Option<Plan> {
        let spent = self.stopwatch.stop();
        self.phases_us[request].iter_mut().zip(spent).for_each(|(sum, us)| *sum += us);
        match outcome {
            PlanOutcome::Allocated(plan) => Some(plan),
            PlanOutcome::Rejected(rejection) => {
                self.reasons[request] = Some(Absence::Excluded(Box::new(rejection.reason)));
                None
            }
        }
    }

    /// Takes the only plan that was found for a request: it occupies the snapshot, and what it costs is gone.
    pub(super) fn take(&mut self, request: usize, plan: &Plan) {
        self.planner.occupy(plan);
        self.left = self.left.map(|left| left.saturating_sub(cost(plan)));
        self.note(request, 0, plan, true);
    }

    /// Writes down what was found for a request.
    pub(super) fn note(&mut self, request: usize, slice: usize, plan: &Plan, chosen: bool) {
        let id = self.requests[request].id.clone();
        self.alternatives.push(Alternative { request, id, slice, plan: plan.clone(), chosen });
    }

    /// No plan of the batch that places all requests has a smaller value: each of them alone, on the whole of the snapshot, is no better.
    pub(super) fn bound(&mut self, empty: &OfflinePlanner) -> Option<i64> {
        self.planner = empty.clone();
        self.left = self.options.budget;
        let objective = self.options.objective;
        let kind = if objective == BatchObjective::RunTime { ObjectiveKind::HostTime } else { objective.of_request() };
        let mut bounds = Vec::with_capacity(self.requests.len());
        for request in 0..self.requests.len() {
            let bound = self.plan_by(request, |job| job.objective = kind)?.objective.bound?;
            let shapes = || self.requests[request].shapes.iter().flatten();
            let asked = shapes().next()?;
            let seats = shapes().map(|asked| asked.demand().seats()).min()? as u64;
            bounds.push(match objective {
                BatchObjective::Cost | BatchObjective::HostTime => bound,
                BatchObjective::Finish | BatchObjective::Makespan => since(Time(bound), self.origin),
                // All of its hosts are used from its start on, by itself at least.
                BatchObjective::RunTime => seats.cast_signed() * since(earliest(asked), self.origin) + bound,
            });
        }
        match objective {
            BatchObjective::Makespan | BatchObjective::RunTime => bounds.into_iter().max(),
            BatchObjective::Cost | BatchObjective::HostTime | BatchObjective::Finish => Some(bounds.into_iter().sum()),
        }
    }
}

/// The earliest start asked.
pub(super) fn earliest(request: &Request) -> Time {
    request.window().earliest.unwrap_or(Time::ZERO)
}
