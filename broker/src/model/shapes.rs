//! The alternatives of a request: shapes, one of which is planned.
//!
//! Source: `formats.md`, version 2 (`shapes`). Invariant: every alternative is a request document without shapes, and what it does not
//! have of its own is as in the request. What is said of the best of them holds for all.

use serde::{Deserialize, Serialize};

use crate::model::{
    demand::{Demand, Length},
    ids::ShapeNumber,
    plan::{Plan, PlanOutcome, Rejection},
    reason::Reason,
    request_document::{RequestDocument, checked_demand, too_many},
    request_error::RequestError,
    resources::Amounts,
    time::Span,
};

/// Most alternatives of one request.
pub const MAX_SHAPES: usize = 64;

/// Most candidates of all alternatives together.
const MAX_CANDIDATES_OF_SHAPES: usize = 20_000;

/// One of the alternatives of a request as it is written down; unchecked. What it does not have is as in the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapeDocument {
    /// N.
    pub hosts: u32,
    /// `t_res` in seconds; this or `work`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<i64>,
    /// Seconds of work at reference speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<i64>,
    /// `d_i`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_host: Option<Amounts>,
    /// `e_i`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Amounts>,
}

impl ShapeDocument {
    /// Whether it is the shape, and not the rest of the request, that says this dotted key.
    fn has(&self, key: &str) -> bool {
        match key.split('.').next() {
            Some("hosts" | "duration" | "work") => true,
            Some("per_host") => self.per_host.is_some(),
            Some("total") => self.total.is_some(),
            _ => false,
        }
    }
}

impl RequestDocument {
    /// The requests of which one is to be planned, in order: one for each shape, or the request itself.
    ///
    /// # Errors
    /// [`RequestError`] when there is no shape, too many, or something beside them that each of them has.
    pub fn alternatives(mut self) -> Result<Vec<RequestDocument>, RequestError> {
        let Some(shapes) = self.shapes.take() else { return Ok(vec![self]) };
        if shapes.is_empty() {
            return Err(RequestError::NoShapes);
        }
        too_many("shapes", MAX_SHAPES, shapes.len())?;
        // Each has a list of its own.
        let candidates = self.candidates.as_ref().map_or(0, Vec::len);
        too_many("candidates", MAX_CANDIDATES_OF_SHAPES / shapes.len(), candidates)?;
        let beside = [("hosts", self.hosts > 0), ("duration", self.duration.is_some()), ("work", self.work.is_some())];
        if let Some((key, _)) = beside.iter().find(|(_, is_there)| *is_there) {
            return Err(RequestError::BesideShapes { key });
        }
        let alternative = |shape: ShapeDocument| RequestDocument {
            hosts: shape.hosts,
            duration: shape.duration,
            work: shape.work,
            per_host: shape.per_host.unwrap_or_else(|| self.per_host.clone()),
            total: shape.total.unwrap_or_else(|| self.total.clone()),
            ..self.clone()
        };
        Ok(shapes.into_iter().map(alternative).collect())
    }
}

/// The error of the alternative at `index`, as one of the whole list where it is the shape that says the key.
pub(crate) fn error_of(shapes: Option<&[ShapeDocument]>, index: usize, error: RequestError) -> RequestError {
    match shapes.and_then(|shapes| shapes.get(index)) {
        Some(shape) if shape.has(&error.key()) => RequestError::Shape { index, error: Box::new(error) },
        _ => error,
    }
}

/// What the first alternative of a request needs, and what the others do.
pub(super) fn checked_demands(document: RequestDocument) -> Result<(Demand, Vec<Demand>), RequestError> {
    let shapes = document.shapes.clone();
    let checked = |(index, alternative)| {
        let demand = checked_demand(alternative).map_err(|error| error_of(shapes.as_deref(), index, error))?;
        Ok(Demand { is_of_shape: shapes.is_some(), ..demand })
    };
    let mut demands = document.alternatives()?.into_iter().enumerate().map(checked);
    let first = demands.next().ok_or(RequestError::NoShapes)??;
    Ok((first, demands.collect::<Result<_, _>>()?))
}

/// The written form of what a request needs; of the first shape it has, what others have as well is common to all.
pub(super) fn as_document(demand: Demand, others: &[Demand]) -> RequestDocument {
    let seconds = |span: Span| Some(span.0.cast_signed());
    let length = |demand: &Demand| match demand.length {
        Length::Duration(duration) => (seconds(duration), None),
        Length::Work(work) => (None, seconds(work)),
    };
    let shape = |shape: &Demand| {
        let (duration, work) = length(shape);
        let own = |own: &Amounts, common: &Amounts| (own != common).then(|| own.clone());
        let (per_host, total) = (own(&shape.per_host, &demand.per_host), own(&shape.total, &demand.total));
        ShapeDocument { hosts: shape.seats, duration, work, per_host, total }
    };
    let shapes = demand.is_of_shape.then(|| [&demand].into_iter().chain(others).map(shape).collect());
    let (duration, work) = if shapes.is_some() { (None, None) } else { length(&demand) };
    RequestDocument {
        hosts: if shapes.is_some() { 0 } else { demand.seats },
        duration,
        work,
        per_host: demand.per_host,
        total: demand.total,
        attributes: demand.attributes,
        candidates: demand.candidates,
        speed_min: demand.speed_min,
        exclusive: demand.is_exclusive,
        sites_max: demand.sites_max,
        slack: demand.slack,
        traffic: demand.traffic,
        scale: demand.scale,
        needs: demand.needs.of_node,
        image: demand.needs.image,
        shapes,
        ..RequestDocument::default()
    }
}

/// The best of the outcomes of all shapes, the first among equals. What is proven of it holds for all of them.
#[must_use]
pub fn best_of(outcomes: impl Iterator<Item = (ShapeNumber, PlanOutcome)>) -> PlanOutcome {
    let (mut best, mut bound, mut is_proven, mut reasons) = (None, Some(i64::MAX), true, Vec::new());
    for (shape, outcome) in outcomes {
        is_proven &= outcome.start_proven();
        match outcome {
            PlanOutcome::Allocated(plan) => {
                bound = bound.zip(plan.objective.bound).map(|(a, b)| a.min(b));
                if best.as_ref().is_none_or(|best| is_better(&plan, best)) {
                    best = Some(Plan { shape, ..plan });
                }
            }
            PlanOutcome::Rejected(rejection) => {
                // Where nothing is known of a shape, it may have any value.
                bound = bound.map(|bound| if rejection.start_proven { bound } else { 0 });
                reasons.push(rejection.reason);
            }
        }
    }
    match best {
        Some(mut plan) => {
            (plan.objective.bound, plan.start_proven) = (bound, is_proven);
            PlanOutcome::Allocated(plan)
        }
        None => {
            let reason = Reason::of_shapes(reasons);
            PlanOutcome::Rejected(Rejection { reason, start_proven: is_proven })
        }
    }
}

/// By value, start and efficiency.
fn is_better(one: &Plan, other: &Plan) -> bool {
    let key = |plan: &Plan| (plan.objective.value, plan.start);
    key(one) < key(other) || (key(one) == key(other) && one.efficiency > other.efficiency)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{cost::Cost, request::Request};

    #[test]
    fn priced_requests_and_shapes_are_checked() {
        let document = |text: &str| serde_json::from_str::<RequestDocument>(text).unwrap();
        let shapes = r#"{"per_host":{"cpu":1},"budget":7,"shapes":[{"hosts":1,"work":5},{"hosts":2,"duration":3,"per_host":{}}]}"#;
        let all = document(shapes).alternatives().unwrap();
        let all: Vec<Request> = all.into_iter().map(|document| Request::try_from(document).unwrap()).collect();
        assert_eq!(all.iter().map(|request| request.demand().seats()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(all.iter().map(|request| request.demand().per_host().len()).collect::<Vec<_>>(), [1, 0]);
        assert!(all.iter().all(|request| request.budget() == Some(Cost(7))));
        for (text, expected) in [
            (r#"{"shapes":[]}"#, "shapes: expected at least 1"),
            (r#"{"hosts":1,"shapes":[{"hosts":1,"work":1}]}"#, "hosts: given beside shapes"),
            (r#"{"work":1,"shapes":[{"hosts":1}]}"#, "work: given beside shapes"),
        ] {
            let error = document(text).alternatives().unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
            assert!(error.to_string().starts_with(&format!("{}: ", error.key())), "{error}");
        }
        let error = Request::try_from(document(r#"{"hosts":1,"work":1,"budget":281474976710655}"#)).unwrap_err();
        assert_eq!(error.to_string(), "budget: 281474976710655 is larger than any budget (281474976710654)");
    }
}
