//! A batch on the live view: requests that are planned together, and nothing is held.
//!
//! Invariant: requests, hosts and alternatives are bounded, and so is the work of a call; one batch is planned at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Json, extract::State, http::StatusCode};
use broker::{
    batch::{self, BatchAnswer, Given, Options, Order, PolicyError, Watch, policy_named},
    demand::Demand,
    ids::{HostId, RequestId, SiteId},
    negotiation::{Excluded, FoundHost},
    offline::{Asked, OfflinePlanner, PlanLine},
    phases::Phase,
    protocol::ClassesLeft,
    request::{Request, RequestDocument, RequestError},
    snapshot::{GridSnapshot, SnapshotHost, SnapshotSite},
    time::{Millis, Time},
    uplinks::Uplink,
};
use kolo_api::batch::{BatchPlans, BatchQuestion, REQUESTS_MAX};

use super::{
    batch_users::{self, Signer},
    extract::{Body, in_range},
    plan::{Asker, live_plan, used_schedules},
    problem::Problem,
    requests::{checked_request, read_body, wrong_request},
    state::ApiState,
};
use crate::entry::driver;

/// Most hosts that a batch is planned on.
const HOSTS_MAX: usize = 2_000;
/// Most alternatives of a request that may be asked for.
pub const ALTERNATIVES_MAX: usize = 1_000;
/// Most shapes that a batch is planned of; of each request the first, as many as of the others.
const SHAPES_MAX: usize = 2_000;
/// Shapes times hosts times alternatives, some 8 us each; fewer alternatives are looked for where there are more of the others.
const WORK_MAX: usize = 2_000_000;
/// The same where alternatives may collide, so that their choice takes longer than they do.
const WORK_OVERLAP_MAX: usize = 500_000;
/// How long hosts are looked for.
const FIND_FOR: Duration = Duration::from_secs(10);

/// How a batch is planned; checked.
pub struct How {
    policy: String,
    options: Options,
}

impl How {
    /// # Errors
    /// The problem with its key.
    pub fn of(question: &BatchQuestion) -> Result<How, Problem> {
        let policy = policy_named(&question.policy).map_err(wrong_policy)?;
        let alternatives = |count| in_range("alternatives", count, 1..=ALTERNATIVES_MAX);
        let given = Given {
            // The default is nothing to those policies that have no order.
            order: Some(question.order).filter(|order| *order != Order::default()),
            objective: question.objective,
            budget: question.budget,
            alternatives: question.alternatives.map(alternatives).transpose()?,
            overlap: question.overlap,
        };
        let options = given.options(&*policy).map_err(|error| Problem::wrong("policy", error))?;
        let first = in_range("first", question.first, 0..=REQUESTS_MAX)?;
        Ok(How { policy: question.policy.clone(), options: Options { first, ..options } })
    }

    /// The same for a batch whose first so many requests come before all others.
    pub fn with_first(mut self, first: usize) -> How {
        self.options.first = first;
        self
    }

    /// How many alternatives of each request are looked for.
    fn alternatives(&self, shapes: usize, hosts: usize) -> usize {
        let work_max = if self.options.overlap { WORK_OVERLAP_MAX } else { WORK_MAX };
        self.options.alternatives.min(work_max / (shapes * hosts).max(1)).max(1)
    }
}

fn wrong_policy(error: PolicyError) -> Problem {
    Problem::wrong("policy", error)
}

/// Plans of several requests on the live view, which all fit together; nothing is held.
#[utoipa::path(post, path = "/batches/plan", tag = "planning", request_body = BatchQuestion, responses((status = 200, description = "Done", body = BatchPlans)))]
pub async fn plan_batch(State(state): State<Arc<ApiState>>, Body(body): Body) -> Result<Json<BatchPlans>, Problem> {
    let question: BatchQuestion = read_body("batch", &body)?;
    let how = How::of(&question)?;
    let now = state.coordinator.clock.now().utc;
    let settings = state.requests.settings().planner;
    let requests = checked(&question, |request| request.starts(now, settings.default_reach))?;
    let asked: Vec<Asked> = (1..).zip(&requests).map(asked).collect::<Result<_, _>>()?;
    let signer = Asker::of(&state, question.asker)?.signer(&state, &requests[0]);
    let signers = vec![signer; asked.len()];
    let (BatchAnswer { lines, batch, .. }, Looked { sites, left_out }) = answer(&state, how, asked, signers).await?;
    let plans = requests.iter().zip(lines).map(|(request, line)| {
        let phases_us = Phase::ALL.into_iter().map(|phase| phase.name().to_owned()).zip(line.phases_us).collect();
        live_plan(&state, request, line.outcome, phases_us, (sites.len(), left_out))
    });
    Ok(Json(BatchPlans { plans: plans.collect(), batch, schedules: used_schedules(&state, sites.iter()) }))
}

/// What a batch was planned on.
pub struct Looked {
    /// The site of each host that was looked at.
    sites: Vec<SiteId>,
    /// Hosts that fit some request and were not looked at, at least.
    left_out: usize,
}

/// Plans requests together on the live view, as soon as hosts are found for them, within what owners leave to those who have signed for
/// each.
///
/// # Errors
/// A problem when the node plans another batch, or ends.
pub async fn answer(
    state: &ApiState,
    how: How,
    mut asked: Vec<Asked>,
    signers: Vec<Option<Signer>>,
) -> Result<(BatchAnswer, Looked), Problem> {
    let now = state.coordinator.clock.now().utc;
    let settings = state.requests.settings().planner;
    let busy = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the node plans another batch; try again in a moment");
    let turn = state.coordinator.planning.batch().ok_or_else(busy)?;
    let shapes_max = SHAPES_MAX / asked.len().max(1);
    asked.iter_mut().for_each(|one| one.shapes.truncate(shapes_max));
    let shapes = asked.iter().map(|one| one.shapes.len()).sum();
    let demands: Vec<Demand> = asked.iter().filter_map(Asked::widest).collect();
    let talks = demands.iter().any(|demand| demand.traffic().is_some());
    let (mut hosts, left_out) = find_hosts(state, demands, settings.m_max as usize).await;
    let denied = batch_users::leave(state, &mut hosts, &mut asked, &signers).await;
    let uplinks = state.discovery.view().uplinks(hosts.iter().map(|host| &host.site).filter(|_| talks));
    let site = |(id, link): (&SiteId, &Uplink)| SnapshotSite { id: id.clone(), uplink: Some(link.clone()) };
    let of_sites = uplinks.iter().map(site).collect();
    let sites: Vec<SiteId> = hosts.iter().map(|host| host.site.clone()).collect();
    let alternatives = how.alternatives(shapes, hosts.len());
    let How { policy, options } = how;
    let options = Options { alternatives, ..options };
    let of_host = |host: FoundHost| {
        let schedule = host.offered(now).into_owned();
        SnapshotHost { site: host.site, host: host.host, schedule }
    };
    let snapshot = GridSnapshot { sites: of_sites, hosts: hosts.into_iter().map(of_host).collect() };
    let planner = OfflinePlanner::new(snapshot, settings, rand::random(), false).asked_at(now);
    let plan = move || -> Result<BatchAnswer, Problem> {
        // Made here, since a policy stays on its thread.
        let policy = policy_named(&policy).map_err(wrong_policy)?;
        let started = Instant::now();
        batch::plan(&*policy, &planner, &asked, &options, Watch::timed(&|| started.elapsed()))
            .map_err(|error| Problem::wrong("requests", error))
    };
    let mut answer = turn.run(plan).await.ok_or_else(busy)??;
    let tell = |(request, line): (usize, PlanLine)| PlanLine { outcome: denied.told(request, line.outcome), ..line };
    answer.lines = answer.lines.into_iter().enumerate().map(tell).collect();
    Ok((answer, Looked { sites, left_out }))
}

/// The requests with the starts that they have now.
fn checked(
    question: &BatchQuestion,
    starts: impl Fn(&Request) -> Result<(Time, Time), RequestError>,
) -> Result<Vec<Request>, Problem> {
    let count = question.requests.len();
    if count == 0 || count > REQUESTS_MAX {
        let message = format!("a batch has 1 to {REQUESTS_MAX} requests; there are {count}");
        return Err(Problem::wrong("requests", message));
    }
    let mut labels = BTreeSet::new();
    let check = |(at, document): (usize, &RequestDocument)| {
        let place = format!("requests[{at}].");
        let request = checked_request(document.clone(), &place)?;
        if request.extends().is_some() {
            return Err(Problem::wrong(&format!("{place}extends"), "not in a batch"));
        }
        if let Some(label) = request.id().filter(|label| !labels.insert((*label).clone())) {
            return Err(Problem::wrong(&format!("{place}id"), format_args!("{label} is there twice")));
        }
        let (earliest, latest) = starts(&request).map_err(|error| wrong_request(&error, &place))?;
        let timed = RequestDocument { earliest: Some(earliest), latest: Some(latest), ..document.clone() };
        checked_request(timed, &place)
    };
    question.requests.iter().enumerate().map(check).collect()
}

fn asked((number, request): (usize, &Request)) -> Result<Asked, Problem> {
    let unnamed = || RequestId::new(&format!("line-{number}"));
    let id = request.id().cloned().map_or_else(unnamed, Ok);
    let id = id.map_err(|error| Problem::wrong("requests", error))?;
    Ok(Asked::new(id, request))
}

/// Hosts that could serve the requests, for those that ask for the same together: all whose schedules are known, and of others `multiplier`
/// for each seat; and how many were left out, at least.
async fn find_hosts(state: &ApiState, demands: Vec<Demand>, multiplier: usize) -> (Vec<FoundHost>, usize) {
    let mut kinds: Vec<(Demand, usize)> = Vec::new();
    for demand in demands {
        let seats = demand.seats();
        match kinds.iter_mut().find(|(known, _)| *known == demand) {
            Some((_, of_kind)) => *of_kind += seats,
            None => kinds.push((demand, seats)),
        }
    }
    let wanted =
        |(demand, seats): &(Demand, usize)| demand.candidates().map_or(seats.saturating_mul(multiplier), <[_]>::len);
    kinds.sort_by_key(wanted);
    let started = Instant::now();
    let mut hosts: BTreeMap<(SiteId, HostId), FoundHost> = BTreeMap::new();
    let mut left_out = 0;
    for (left, kind) in (1..=kinds.len()).rev().zip(&kinds) {
        if started.elapsed() >= FIND_FOR {
            left_out += 1;
            break;
        }
        let part = part_of(HOSTS_MAX - hosts.len(), left);
        let count = wanted(kind).min(part);
        let demand = &kind.0;
        let counts = (count, count.min(demand.seats()));
        let age_max = driver::MAX_SCHEDULE_AGE;
        let found = driver::find(&state.discovery, demand, counts, rand::random(), Excluded::default(), age_max).await;
        left_out += found.left_out + found.without_schedule;
        let mut new = 0;
        for host in found.hosts {
            let name = (host.site.clone(), host.host.id.clone());
            if hosts.contains_key(&name) {
                continue;
            }
            if new == part {
                left_out += 1;
            } else {
                hosts.insert(name, host);
                new += 1;
            }
        }
    }
    // Of one class the finds show the same free hosts under several names.
    let view = state.discovery.view();
    let mut left: BTreeMap<SiteId, ClassesLeft> = BTreeMap::new();
    for ((site, host), found) in &mut hosts {
        let left = left.entry(site.clone()).or_default();
        if let Some(known) = view.host_since((site, host), state.discovery.now(), Millis(0), left) {
            (found.schedule, found.version, found.offer) = (known.schedule, known.version, known.offer);
        }
    }
    (hosts.into_values().collect(), left_out)
}

/// What one kind of `left` may take of so many hosts. Those that want fewest come first, so that what they do not need is for the others.
fn part_of(hosts: usize, left: usize) -> usize {
    hosts / left.max(1)
}

#[cfg(test)]
mod tests {
    use broker::time::Span;

    use super::*;

    fn wrong(requests: &str) -> String {
        let question: BatchQuestion = serde_json::from_str(&format!(r#"{{"requests":{requests}}}"#)).unwrap();
        let starts = |request: &Request| request.starts(Time(1_000), Span(60));
        checked(&question, starts).unwrap_err().0.detail
    }

    #[test]
    fn a_batch_that_cannot_be_meant_is_refused_by_its_key() {
        let one = r#"{"id":"a","hosts":1,"duration":60}"#;
        let many = |count: usize| format!("[{}]", vec![r#"{"hosts":1,"duration":60}"#; count].join(","));
        for (requests, expected) in [
            ("[]".to_owned(), "requests: a batch has 1 to 1000 requests; there are 0"),
            (many(10_000), "requests: a batch has 1 to 1000 requests; there are 10000"),
            (format!("[{one},{one}]"), "requests[1].id: a is there twice"),
            (format!(r#"[{one},{{"hosts":0,"duration":60}}]"#), "request: hosts: expected 1 to"),
            (r#"[{"hosts":1,"duration":60,"latest":999}]"#.to_owned(), "request: latest"),
            (r#"[{"hosts":1,"duration":60,"extends":"a"}]"#.to_owned(), "requests[0].extends: not in a batch"),
        ] {
            let detail = wrong(&requests);
            assert!(detail.starts_with(expected), "{detail}");
        }
        let question: BatchQuestion = serde_json::from_str(&format!(r#"{{"requests":{}}}"#, many(1_000))).unwrap();
        let starts = |request: &Request| request.starts(Time(1_000), Span(60));
        let requests = checked(&question, starts).unwrap();
        let window = requests[999].window();
        assert_eq!((window.earliest, window.latest), (Some(Time(1_000)), Some(Time(1_060))));
    }

    #[test]
    fn a_large_batch_looks_for_fewer_alternatives() {
        let looked_for = |keys: &str, requests, hosts| {
            let question = serde_json::from_str(&format!(r#"{{"requests":[]{keys}}}"#)).unwrap();
            How::of(&question).ok().map(|how| how.alternatives(requests, hosts))
        };
        assert_eq!((looked_for("", 10, 100), looked_for("", 1_000, 1_000)), (Some(10), Some(2)));
        assert_eq!((looked_for("", 1_000, 2_000), looked_for(r#","overlap":true"#, 1_000, 100)), (Some(1), Some(5)));
        assert_eq!(looked_for(r#","alternatives":1000"#, 1_000, 0), Some(1_000));
        assert_eq!([0, 1_001].map(|count| looked_for(&format!(r#","alternatives":{count}"#), 1, 1)), [None, None]);
        assert_eq!(looked_for(r#","policy":"best""#, 1, 1), None);
    }

    #[test]
    fn each_kind_of_hosts_gets_its_part() {
        let parts = |wanted: &[usize]| {
            let (mut free, mut parts) = (2_000, Vec::new());
            for (left, wanted) in (1..=wanted.len()).rev().zip(wanted) {
                parts.push(part_of(free, left).min(*wanted));
                free -= parts[parts.len() - 1];
            }
            parts
        };
        assert_eq!(parts(&[10, 5_000, 9_000]), [10, 995, 995]);
        assert_eq!((parts(&[9_000]), parts(&[700, 700])), (vec![2_000], vec![700, 700]));
        assert_eq!(parts(&[100; 1_000]), [2; 1_000]);
    }
}
