//! The offline planner behind `kolo plan`: request lines in, plan lines out (`formats.md`), on a snapshot of a grid.
//!
//! A dry run: requests do not see each other's plans, unless commits are asked for; then each plan occupies the snapshot
//! for the requests after it. Invariant: the same snapshot, lines, settings and seed give the same lines, up to the times
//! that the caller's [`PhaseStopwatch`] measures.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{
    amount::Amount,
    cost::Cost,
    demand::Demand,
    document::read_object,
    ids::{HostId, RequestId, ShapeNumber, SiteId},
    phases::{Candidate, Job, Phase, PhaseObserver, PhaseStopwatch, Settings, Windows, find, plan_on},
    plan::{Plan, PlanOutcome, Rejection, Seat},
    reason::Reason,
    request::{Effort, Request, RequestDocument, RequestError},
    resources::Amounts,
    shapes,
    snapshot::{GridSnapshot, SnapshotHost},
    strategy::{Phases, Strategy},
    time::{Span, Time, Window},
    uplinks::Uplinks,
};

/// What is wrong with a line of requests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line is no request.
    #[error("line {line}: {path}: {message}")]
    Malformed {
        /// Line number, from 1.
        line: usize,
        /// Where in the line's value.
        path: String,
        /// What was expected.
        message: String,
    },
    /// The request contradicts itself or is out of bounds.
    #[error("line {line}: {error}")]
    Request {
        /// Line number, from 1.
        line: usize,
        /// What is wrong, with the key.
        error: RequestError,
    },
    /// A named candidate is not in the snapshot.
    #[error("line {line}: candidates: {host} is not a host of the grid")]
    UnknownCandidate {
        /// Line number, from 1.
        line: usize,
        /// The name.
        host: HostId,
    },
}

/// One line of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The request's name, or `line-K` when it has none.
    pub id: RequestId,
    /// The request, or why no grid could serve it; each of its shapes, when it has any.
    pub shapes: Vec<Result<Request, Rejection>>,
    /// Whether the line is a list of shapes.
    pub has_shapes: bool,
}

impl Asked {
    /// A request under this name.
    #[must_use]
    pub fn new(id: RequestId, request: &Request) -> Asked {
        Asked { id, shapes: request.alternatives().map(Ok).collect(), has_shapes: request.has_shapes() }
    }

    /// The least that a host must be and have to serve any of its shapes, if some grid could.
    #[must_use]
    pub fn widest(&self) -> Option<Demand> {
        Demand::widest(self.shapes.iter().flatten().map(Request::demand))
    }

    /// Which of its shapes a plan is of, when it has any.
    pub(crate) fn shape_of(&self, outcome: &PlanOutcome) -> Option<ShapeNumber> {
        outcome.plan().filter(|_| self.has_shapes).map(|plan| plan.shape)
    }

    /// The request, if some grid could serve it; the first shape.
    #[must_use]
    pub fn request(&self) -> Option<&Request> {
        self.shapes.first().and_then(|request| request.as_ref().ok())
    }
}

/// One line of the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanLine {
    /// The request's name, or `line-K` when it has none.
    pub id: RequestId,
    /// Which of the request's shapes is planned, from 0, when it has any.
    pub shape: Option<ShapeNumber>,
    /// The plan, or why there is none.
    pub outcome: PlanOutcome,
    /// What phases I to V took, in microseconds.
    pub phases_us: [f64; 5],
}

/// Plans requests on a snapshot.
#[derive(Debug, Clone)]
pub struct OfflinePlanner {
    hosts: Vec<SnapshotHost>,
    /// Host ids are unique inside their site only.
    by_id: BTreeMap<HostId, Vec<usize>>,
    uplinks: Uplinks,
    settings: Settings,
    seed: u64,
    commit: bool,
    asked_at: Option<Time>,
}

impl OfflinePlanner {
    /// A planner on `snapshot`. With `commit`, plans occupy it for the requests after them.
    #[must_use]
    pub fn new(snapshot: GridSnapshot, settings: Settings, seed: u64, commit: bool) -> OfflinePlanner {
        let uplinks = snapshot.uplinks();
        let mut hosts = snapshot.hosts;
        hosts.sort_by(|a, b| (&a.site, &a.host.id).cmp(&(&b.site, &b.host.id)));
        let mut by_id: BTreeMap<HostId, Vec<usize>> = BTreeMap::new();
        for (index, host) in hosts.iter().enumerate() {
            by_id.entry(host.host.id.clone()).or_default().push(index);
        }
        OfflinePlanner { hosts, by_id, uplinks, settings, seed, commit, asked_at: None }
    }

    /// The same planner, for requests that owners are asked for at this time ([`Job::asked_at`]).
    #[must_use]
    pub fn asked_at(self, now: Time) -> OfflinePlanner {
        OfflinePlanner { asked_at: Some(now), ..self }
    }

    /// How hard it searches.
    pub(crate) fn effort(&self) -> Effort {
        self.settings.effort
    }

    /// Reads one line.
    ///
    /// # Errors
    /// [`LineError`] when the line is no request, or names hosts that the snapshot does not have.
    pub fn read_line(&self, line: usize, text: &str) -> Result<Asked, LineError> {
        let document = read_document(line, text)?;
        let id = match &document.id {
            Some(id) => id.clone(),
            None => RequestId::new(&format!("line-{line}")).map_err(|error| malformed(line, "id", &error))?,
        };
        let has_shapes = document.shapes.is_some();
        let shapes = alternatives(document).map_err(|error| LineError::Request { line, error })?;
        let named = shapes.iter().flatten().flat_map(|request| request.demand().candidates().into_iter().flatten());
        if let Some(host) = named.into_iter().find(|host| self.named(host).next().is_none()) {
            return Err(LineError::UnknownCandidate { line, host: host.clone() });
        }
        Ok(Asked { id, shapes, has_shapes })
    }

    /// Answers one line.
    ///
    /// # Errors
    /// See [`OfflinePlanner::read_line`].
    pub fn plan_line(
        &mut self,
        line: usize,
        text: &str,
        stopwatch: &mut PhaseStopwatch<impl Fn() -> Duration>,
    ) -> Result<PlanLine, LineError> {
        Ok(self.plan_asked(&self.read_line(line, text)?, stopwatch))
    }

    /// Answers a line that was read.
    pub fn plan_asked(&mut self, asked: &Asked, stopwatch: &mut PhaseStopwatch<impl Fn() -> Duration>) -> PlanLine {
        stopwatch.reset();
        let outcomes = asked.shapes.iter().map(|request| match request {
            Ok(request) => self.plan(request, stopwatch),
            Err(rejection) => PlanOutcome::Rejected(rejection.clone()),
        });
        let outcome = shapes::best_of((0..).map(ShapeNumber).zip(outcomes));
        // The shares of phase VI are not reported: offline nothing is reserved.
        let [phases_us @ .., _] = stopwatch.stop();
        if self.commit
            && let PlanOutcome::Allocated(plan) = &outcome
        {
            self.occupy(plan);
        }
        PlanLine { id: asked.id.clone(), shape: asked.shape_of(&outcome), outcome, phases_us }
    }

    /// Plans one request on every host of the snapshot, or every one that it names.
    #[must_use]
    pub fn plan(&self, request: &Request, observer: &mut impl PhaseObserver) -> PlanOutcome {
        self.plan_changed(request, |_| (), observer)
    }

    /// The same for a job that is not quite what the request asks.
    pub(crate) fn plan_changed(
        &self,
        request: &Request,
        change: impl FnOnce(&mut Job<'_>),
        observer: &mut impl PhaseObserver,
    ) -> PlanOutcome {
        observer.enter(Phase::Find);
        let rejected = |reason| PlanOutcome::Rejected(Rejection { reason, start_proven: true });
        let mut job = match self.job(request) {
            Ok(job) => job,
            Err(reason) => return rejected(reason),
        };
        change(&mut job);
        match self.eligible(job.demand) {
            Ok(candidates) => Phases.plan(&job, &candidates, self.effort_of(request), self.seed, observer),
            Err(reason) => rejected(reason),
        }
    }

    /// What is to be planned of a request.
    ///
    /// # Errors
    /// See [`OfflinePlanner::starts`].
    pub(crate) fn job<'a>(&'a self, request: &'a Request) -> Result<Job<'a>, Reason> {
        let starts = self.starts(request)?;
        Ok(Job { asked_at: self.asked_at, uplinks: &self.uplinks, ..Job::of(request, starts) })
    }

    /// The hosts of the snapshot that could serve a demand if they were empty.
    ///
    /// # Errors
    /// See [`find::eligible`].
    pub(crate) fn eligible(&self, demand: &Demand) -> Result<Vec<Candidate<'_>>, Reason> {
        let pool = self.pool(demand);
        if demand.is_to_be_scaled() {
            // Who could serve it depends on the factor, and is found out for each.
            return Ok(pool);
        }
        Ok(find::eligible(demand, &pool)?.into_iter().map(|index| pool[index]).collect())
    }

    /// The searches for windows of some jobs of one request, one after the other; none where [`Windows`] has none.
    pub(crate) fn windows<'a>(
        &self,
        jobs: &[Job<'a>],
        candidates: &'a [Candidate<'a>],
        request: &Request,
    ) -> Option<Vec<Windows<'a>>> {
        jobs.iter().map(|job| Windows::new(job, candidates, self.effort_of(request), self.seed)).collect()
    }

    fn effort_of(&self, request: &Request) -> Effort {
        request.effort().unwrap_or(self.settings.effort)
    }

    /// The earliest and the latest start of a request.
    ///
    /// # Errors
    /// [`Reason::WindowPassed`] when there is none.
    pub(crate) fn starts(&self, request: &Request) -> Result<(Time, Time), Reason> {
        request.starts(Time::ZERO, self.settings.default_reach).map_err(|error| match error {
            RequestError::WindowPassed { now, latest, .. } => Reason::WindowPassed { latest, earliest: now },
            // Nothing else can be wrong with the window of a checked request.
            _ => Reason::WindowPassed { latest: Time::ZERO, earliest: Time::ZERO },
        })
    }

    /// The sites' links, with what is reserved on them.
    pub(crate) fn uplinks(&self) -> &Uplinks {
        &self.uplinks
    }

    /// All hosts, by site and name.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Candidate<'_>> {
        self.hosts.iter().map(candidate)
    }

    /// Whether any host has a price.
    pub(crate) fn has_prices(&self) -> bool {
        self.hosts.iter().any(|host| !host.host.tariff.prices.is_empty())
    }

    /// The plan at this start on exactly these of [`OfflinePlanner::candidates`], if they serve the request then, whatever that costs.
    pub(crate) fn plan_at(&self, request: &Request, start: Time, hosts: &[usize]) -> Option<Plan> {
        let chosen: Vec<Candidate<'_>> = hosts.iter().map(|index| candidate(&self.hosts[*index])).collect();
        let job = Job { budget: None, ..Job::of(request, (start, start)) };
        plan_on(&Job { asked_at: self.asked_at, uplinks: &self.uplinks, ..job }, &chosen, start)
    }

    /// The plan at this start on the free hosts that are used the longest already, if they serve the request.
    pub(crate) fn packed(
        &self,
        request: &Request,
        start: Time,
        last_ends: &BTreeMap<(SiteId, HostId), Time>,
    ) -> Option<Plan> {
        let request = &*request.unscaled();
        let demand = request.demand();
        let least = demand.minima();
        let is_free = |candidate: &Candidate<'_>| {
            let amounts = if demand.is_exclusive() { &candidate.host.capacity } else { &least };
            let window = Window::starting(start, demand.length_on(candidate.host));
            request.window().deadline.is_none_or(|deadline| window.end <= deadline)
                && candidate.schedule.offers(&candidate.host.capacity, window, amounts)
        };
        let mut free = self.eligible(demand).ok()?;
        free.retain(is_free);
        free.sort_by_key(|candidate| Reverse(last_ends.get(&(candidate.site.clone(), candidate.host.id.clone()))));
        free.truncate(demand.seats());
        free.sort_by_key(|candidate| (candidate.site, &candidate.host.id));
        let job = Job::of(request, (start, start));
        plan_on(&Job { asked_at: self.asked_at, uplinks: &self.uplinks, ..job }, &free, start)
    }

    fn pool(&self, demand: &Demand) -> Vec<Candidate<'_>> {
        match demand.candidates() {
            Some(named) => {
                let mut indices: Vec<usize> = named.iter().flat_map(|name| self.named(name)).collect();
                indices.sort_unstable();
                indices.dedup();
                indices.into_iter().map(|index| candidate(&self.hosts[index])).collect()
            }
            None => self.hosts.iter().map(candidate).collect(),
        }
    }

    /// The hosts that a candidate may mean: by their id, or by `site/host`.
    fn named(&self, name: &HostId) -> impl Iterator<Item = usize> {
        let plain = self.by_id.get(name).into_iter().flatten().copied();
        let qualified = name.as_str().split_once('/').and_then(|(site, host)| self.at(site, host));
        plain.chain(qualified)
    }

    fn index_of(&self, seat: &Seat) -> Option<usize> {
        self.at(seat.site.as_str(), seat.host().as_str())
    }

    fn at(&self, site: &str, host: &str) -> Option<usize> {
        self.hosts.binary_search_by(|known| (known.site.as_str(), known.host.id.as_str()).cmp(&(site, host))).ok()
    }

    /// What all hosts have together.
    pub(crate) fn capacity(&self) -> Amounts {
        let mut all = Amounts::new();
        for (name, amount) in self.hosts.iter().flat_map(|host| &host.host.capacity) {
            let sum = all.entry(name.clone()).or_default();
            *sum = Amount(sum.0.saturating_add(amount.0));
        }
        all
    }

    /// Occupies the snapshot by a plan.
    pub(crate) fn occupy(&mut self, plan: &Plan) {
        self.uplinks.add(plan.window(), &plan.loads());
        for seat in &plan.seats {
            if let Some(index) = self.index_of(seat) {
                self.hosts[index].schedule.add(seat.window, &seat.amounts);
            }
        }
    }

    /// Takes the hosts of a plan whole while it lasts, beside whatever is on them.
    pub(crate) fn take_whole(&mut self, plan: &Plan) {
        for seat in &plan.seats {
            let Some(index) = self.index_of(seat) else { continue };
            let SnapshotHost { host, schedule, .. } = &mut self.hosts[index];
            schedule.add(seat.window, &host.capacity);
        }
    }

    /// Undoes [`OfflinePlanner::take_whole`].
    pub(crate) fn give_back_whole(&mut self, plan: &Plan) {
        for seat in &plan.seats {
            let Some(index) = self.index_of(seat) else { continue };
            let SnapshotHost { host, schedule, .. } = &mut self.hosts[index];
            let removed = schedule.remove(seat.window, &host.capacity);
            debug_assert!(removed.is_ok(), "{removed:?}");
        }
    }

    /// Whether a plan fits into the snapshot as it is.
    pub(crate) fn admits(&self, plan: &Plan) -> bool {
        let fits = plan.seats.iter().all(|seat| {
            self.index_of(seat).map(|index| &self.hosts[index]).is_some_and(
                |SnapshotHost { host, schedule, .. }| schedule.offers(&host.capacity, seat.window, &seat.amounts),
            )
        });
        fits && self.uplinks.admit(plan.window(), &plan.loads())
    }

    /// Takes a plan out of the snapshot that occupies it.
    pub(crate) fn vacate(&mut self, plan: &Plan) {
        self.uplinks.remove(plan.window(), &plan.loads());
        for seat in &plan.seats {
            let Some(index) = self.index_of(seat) else { continue };
            let removed = self.hosts[index].schedule.remove(seat.window, &seat.amounts);
            debug_assert!(removed.is_ok(), "{removed:?}");
        }
    }
}

/// The checked alternatives of a request. One that names fewer candidates than it wants hosts is a well-formed question with a plain
/// answer: whoever drew the candidates could not know.
fn alternatives(document: RequestDocument) -> Result<Vec<Result<Request, Rejection>>, RequestError> {
    let shapes = document.shapes.clone();
    let checked = |(index, document)| match Request::try_from(document) {
        Ok(request) => Ok(Ok(request)),
        Err(RequestError::FewerCandidatesThanHosts { hosts, candidates }) => {
            let cut = Box::default();
            let reason = Reason::TooFewHosts { found: candidates as u64, asked: u64::from(hosts), cut };
            Ok(Err(Rejection { reason, start_proven: true }))
        }
        Err(error) => Err(shapes::error_of(shapes.as_deref(), index, error)),
    };
    document.alternatives()?.into_iter().enumerate().map(checked).collect()
}

/// Reads a line of requests as it is written down.
///
/// # Errors
/// [`LineError::Malformed`] when the line is no request.
pub fn read_document(line: usize, text: &str) -> Result<RequestDocument, LineError> {
    read_object(text.as_bytes()).map_err(|misfit| {
        let path = if misfit.key.is_empty() { "." } else { misfit.key.as_str() };
        malformed(line, path, &misfit.message)
    })
}

fn malformed(line: usize, path: &str, error: &impl ToString) -> LineError {
    LineError::Malformed { line, path: path.to_owned(), message: error.to_string() }
}

fn candidate(host: &SnapshotHost) -> Candidate<'_> {
    Candidate { site: &host.site, host: &host.host, schedule: &host.schedule }
}

#[derive(Serialize)]
struct HostLine<'a> {
    id: &'a HostId,
    seconds: Span,
    cost: Cost,
    amounts: &'a Amounts,
}

impl HostLine<'_> {
    fn of(seat: &Seat) -> HostLine<'_> {
        HostLine { id: seat.host(), seconds: seat.window.duration(), cost: seat.agreed.cost, amounts: &seat.amounts }
    }
}

struct PhasesLine([f64; 5]);

impl Serialize for PhasesLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Nanoseconds are the finest a clock tells.
        serializer.collect_map(Phase::ALL.map(Phase::name).iter().zip(self.0.map(|us| (us * 1000.0).round() / 1000.0)))
    }
}

#[derive(Serialize)]
struct ReasonLine {
    code: &'static str,
    detail: String,
}

impl Serialize for PlanLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        match &self.outcome {
            PlanOutcome::Allocated(plan) => {
                let hosts: Vec<_> = plan.seats.iter().map(HostLine::of).collect();
                map.serialize_entry("outcome", "allocated")?;
                if let Some(shape) = self.shape {
                    map.serialize_entry("shape", &shape)?;
                }
                if !plan.scale.is_one() {
                    map.serialize_entry("scale", &plan.scale)?;
                }
                map.serialize_entry("start", &plan.start)?;
                map.serialize_entry("finish", &plan.end())?;
                map.serialize_entry("cost", &plan.cost())?;
                map.serialize_entry("hosts", &hosts)?;
                map.serialize_entry("objective", &plan.objective)?;
                map.serialize_entry("efficiency", &plan.efficiency)?;
                map.serialize_entry("efficiency_bound", &plan.efficiency_bound)?;
                map.serialize_entry("start_proven", &plan.start_proven)?;
            }
            PlanOutcome::Rejected(rejection) => {
                let reason = ReasonLine { code: rejection.reason.code(), detail: rejection.reason.detail() };
                map.serialize_entry("outcome", "rejected")?;
                map.serialize_entry("reason", &reason)?;
                map.serialize_entry("start_proven", &rejection.start_proven)?;
            }
        }
        map.serialize_entry("phases_us", &PhasesLine(self.phases_us))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: &str = r#"{"format":"kolo-grid/1","hosts":[
        {"id":"a","site":"s1","resources":{"cpu":4000,"memory":4096},"attributes":{"arch":"x86_64"},
         "occupancy":{"cpu":[[0,1000],[100,0]]}},
        {"id":"b","site":"s2","resources":{"cpu":2000,"memory":8192},"attributes":{"arch":"x86_64"},"occupancy":{}},
        {"id":"c","site":"s2","resources":{"cpu":8000},"attributes":{"arch":"riscv"},"occupancy":{}}]}"#;

    fn planner(commit: bool) -> OfflinePlanner {
        OfflinePlanner::new(GridSnapshot::read(GRID).unwrap(), Settings::default(), 1, commit)
    }

    fn line(planner: &mut OfflinePlanner, text: &str) -> serde_json::Value {
        serde_json::to_value(planner.plan_line(7, text, &mut PhaseStopwatch::new(|| Duration::ZERO)).unwrap()).unwrap()
    }

    #[test]
    fn lines_are_what_the_format_says() {
        let mut planner = planner(false);
        let text = r#"{"id":"r","hosts":2,"duration":50,"earliest":0,"latest":200,
            "per_host":{"cpu":500},"total":{"cpu":6000},"attributes":{"arch":"x86_64"}}"#;
        let answer = line(&mut planner, text);
        assert_eq!(answer["id"], "r");
        assert_eq!(answer["outcome"], "allocated");
        assert_eq!(answer["start"], 100);
        assert_eq!(answer["hosts"][0]["id"], "a");
        assert_eq!(answer["hosts"][0]["amounts"]["cpu"], 4000);
        assert_eq!(answer["efficiency"], 1.0);
        assert_eq!(answer["start_proven"], true);
        assert_eq!(answer["phases_us"]["optimize"], 0.0);
        let answer = line(&mut planner, r#"{"hosts":2,"duration":50,"candidates":["a"]}"#);
        assert_eq!(answer["reason"]["detail"], "1 of 2 hosts satisfy the minima and attributes");
        let answer = line(&mut planner, r#"{"hosts":2,"duration":50,"attributes":{"arch":"riscv"}}"#);
        assert_eq!(answer["id"], "line-7");
        assert_eq!(answer["reason"]["code"], "too_few_hosts");
        assert_eq!(
            answer["reason"]["detail"],
            "1 of 2 hosts satisfy the minima and attributes; hosts cut by arch=riscv 2"
        );
    }

    #[test]
    fn a_commit_occupies_the_snapshot_and_a_dry_run_does_not() {
        let text = r#"{"hosts":1,"duration":50,"latest":200,"total":{"cpu":8000}}"#;
        let mut dry = planner(false);
        let mut committing = planner(true);
        for expected in [0, 50, 100] {
            assert_eq!(line(&mut dry, text)["start"], 0);
            assert_eq!(line(&mut committing, text)["start"], expected);
        }
    }

    #[test]
    fn bad_lines_name_line_and_key() {
        let mut planner = planner(false);
        let mut error = |text: &str| {
            planner.plan_line(3, text, &mut PhaseStopwatch::new(|| Duration::ZERO)).unwrap_err().to_string()
        };
        assert!(error(r#"{"hosts":0,"duration":1}"#).contains("line 3"));
        assert!(error(r#"{"hosts":1,"duration":1,"total":{"CPU":1}}"#).contains("total"));
        assert!(error(r#"{"hosts":1,"duration":1} x"#).contains("line 3"));
        assert_eq!(
            error(r#"{"hosts":1,"duration":1,"candidates":["z"]}"#),
            "line 3: candidates: z is not a host of the grid"
        );
    }
}
