//! A collective request: a demand, a window, an objective, and its relations to other requests.
//!
//! Its written form is [`RequestDocument`]. Invariant: a [`Request`] is checked; everything behind this module may rely on the bounds of that
//! form.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::model::{
    cost::Cost,
    demand::{Demand, Length},
    ids::{RequestId, ShapeNumber},
    request_document::checked_window,
    scale::Factor,
    shapes::{as_document, checked_demands},
    time::{Span, Time},
    variant::Variant,
};
pub use crate::model::{
    request_document::{
        Effort, MAX_CANDIDATES, MAX_HOSTS, MAX_NAMES, ObjectiveKind, RequestDocument, SLACK_MAX, StartWindow,
    },
    request_error::RequestError,
};

/// A checked request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RequestDocument", into = "RequestDocument")]
pub struct Request {
    id: Option<RequestId>,
    demand: Demand,
    /// The demands of its other shapes, which differ in hosts, length and amounts only.
    others: Vec<Demand>,
    window: StartWindow,
    objective: ObjectiveKind,
    budget: Option<Cost>,
    extends: Option<RequestId>,
    effort: Option<Effort>,
    moves_on_loss: bool,
}

impl TryFrom<RequestDocument> for Request {
    type Error = RequestError;

    fn try_from(document: RequestDocument) -> Result<Request, RequestError> {
        let window = checked_window(&document)?;
        let (id, extends) = (document.id.clone(), document.extends.clone());
        let RequestDocument { objective, budget, effort, move_on_loss, .. } = document;
        if let Some(budget) = budget.filter(|budget| *budget >= Cost::MAX) {
            return Err(RequestError::BudgetTooLarge(budget.0));
        }
        let (demand, others) = checked_demands(document)?;
        Ok(Request { id, demand, others, window, objective, budget, extends, effort, moves_on_loss: move_on_loss })
    }
}

impl From<Request> for RequestDocument {
    fn from(request: Request) -> RequestDocument {
        let Request { id, demand, others, window, objective, budget, extends, effort, moves_on_loss } = request;
        RequestDocument {
            id,
            earliest: window.earliest,
            latest: window.latest,
            deadline: window.deadline,
            objective,
            budget,
            extends,
            effort,
            move_on_loss: moves_on_loss,
            ..as_document(demand, &others)
        }
    }
}

impl Request {
    /// The writer's name for the request, if it has one.
    #[must_use]
    pub fn id(&self) -> Option<&RequestId> {
        self.id.as_ref()
    }

    /// What it needs of the hosts; of a request with shapes, what the first of them needs.
    #[must_use]
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Whether it is a list of shapes, one of which is reserved.
    #[must_use]
    pub fn has_shapes(&self) -> bool {
        self.demand.is_of_shape
    }

    /// What each of its shapes needs, in order: at least one.
    pub fn shapes(&self) -> impl Iterator<Item = &Demand> + Clone {
        std::iter::once(&self.demand).chain(&self.others)
    }

    /// The request as if each of its shapes were all that it allows, in order: at least one.
    pub fn alternatives(&self) -> impl Iterator<Item = Request> {
        let alternative = |demand: &Demand| Request { demand: demand.clone(), others: Vec::new(), ..self.clone() };
        self.shapes().map(alternative)
    }

    /// What this shape needs.
    #[must_use]
    pub fn shape(&self, shape: ShapeNumber) -> Option<&Demand> {
        self.shapes().nth(shape.0 as usize)
    }

    /// What this variant needs; none where the request does not allow it.
    #[must_use]
    pub fn demand_of(&self, variant: Variant) -> Option<Cow<'_, Demand>> {
        self.shape(variant.shape)?.scaled(variant.scale)
    }

    /// The request as if this variant were all that it allows.
    #[must_use]
    pub fn of_variant(&self, variant: Variant) -> Option<Request> {
        Some(Request { demand: self.demand_of(variant)?.into_owned(), others: Vec::new(), ..self.clone() })
    }

    /// The least that a host must be and have to serve any of its shapes, for as many hosts as the largest needs.
    #[must_use]
    pub fn widest(&self) -> Demand {
        Demand::widest(self.shapes()).unwrap_or_else(|| self.demand.clone())
    }

    /// The request at this factor.
    #[must_use]
    pub fn at_factor(&self, factor: Factor) -> Request {
        Request { demand: self.demand.at_factor(factor), ..self.clone() }
    }

    /// The request at the factor at which it is scaled least, where none is chosen.
    #[must_use]
    pub fn unscaled(&self) -> Cow<'_, Request> {
        match self.demand.scale().filter(|_| self.demand.is_to_be_scaled()) {
            Some(scale) => Cow::Owned(self.at_factor(scale.plain())),
            None => Cow::Borrowed(self),
        }
    }

    /// N of its largest shape.
    #[must_use]
    pub fn seats_max(&self) -> usize {
        self.shapes().map(Demand::seats).max().unwrap_or_default()
    }

    /// How long after the planned start a seat may be expected to end, whichever shape is chosen.
    #[must_use]
    pub fn longest(&self) -> Span {
        let last = |demand: &Demand| Span(demand.longest().0.saturating_add(demand.slack().0));
        self.shapes().map(last).max().unwrap_or_default()
    }

    /// Earliest and latest start: as asked, else from `arrival` on, until the deadline or for `default_reach` (the source's
    /// `t_C`). A start before `arrival` is impossible, so the earliest start is never before it.
    ///
    /// # Errors
    /// [`RequestError::WindowPassed`] when the latest start has already passed.
    pub fn starts(&self, arrival: Time, default_reach: Span) -> Result<(Time, Time), RequestError> {
        let StartWindow { earliest, latest, deadline } = self.window;
        let earliest = earliest.unwrap_or(arrival).max(arrival);
        let key = if latest.is_none() && deadline.is_some() { "deadline" } else { "latest" };
        let latest = latest.or(deadline).unwrap_or_else(|| (earliest + default_reach).min(Time::MAX));
        if latest < earliest {
            // The earliest start as written is not behind it.
            return Err(RequestError::WindowPassed { key, latest, now: arrival });
        }
        Ok((earliest, latest))
    }

    /// The window as written.
    #[must_use]
    pub fn window(&self) -> StartWindow {
        self.window
    }

    /// When the last of its seats may be expected to end, if they begin at `start`.
    #[must_use]
    pub fn latest_end(&self, start: Time) -> Time {
        let end = |demand: &Demand| match demand.length() {
            Length::Duration(_) => start + demand.longest(),
            Length::Work(_) => self.window.deadline.unwrap_or_else(|| start + demand.longest()),
        };
        self.shapes().map(end).max().unwrap_or(start)
    }

    /// What is best.
    #[must_use]
    pub fn objective(&self) -> ObjectiveKind {
        self.objective
    }

    /// All seats together cost at most this.
    #[must_use]
    pub fn budget(&self) -> Option<Cost> {
        self.budget
    }

    /// The request whose reservation this one makes longer.
    #[must_use]
    pub fn extends(&self) -> Option<&RequestId> {
        self.extends.as_ref()
    }

    /// The asked effort, if any.
    #[must_use]
    pub fn effort(&self) -> Option<Effort> {
        self.effort
    }

    /// Whether the reservation may move to another start when hosts of it are lost.
    #[must_use]
    pub fn moves_on_loss(&self) -> bool {
        self.moves_on_loss
    }

    /// The same request under another name.
    #[must_use]
    pub fn with_id(mut self, id: RequestId) -> Request {
        self.id = Some(id);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{amount::Amount, host::Speed, traffic::Traffic};

    fn read(text: &str) -> Result<Request, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn bad_requests_name_their_key() {
        let amounts =
            |names: std::ops::Range<u32>| names.map(|at| format!("\"r{at}\":0")).collect::<Vec<_>>().join(",");
        let (per_host, total) = (amounts(0..32), amounts(20..33));
        let shapes = vec![r#"{"hosts":1,"work":1}"#; 65].join(",");
        let too_many_shapes = format!(r#"{{"shapes":[{shapes}]}}"#);
        let too_many = format!(r#"{{"hosts":1,"duration":1,"per_host":{{{per_host}}},"total":{{{total}}}}}"#);
        for (text, expected) in [
            (r#"{"hosts":0,"duration":1}"#, "hosts:"),
            (r#"{"hosts":1,"duration":0}"#, "duration:"),
            (r#"{"hosts":1,"duration":-3}"#, "duration:"),
            (r#"{"hosts":1,"duration":1,"earliest":9,"latest":8}"#, "latest:"),
            (r#"{"hosts":1,"duration":1,"earliest":-9}"#, "earliest:"),
            (r#"{"hosts":1,"duration":1,"total":{"cpu":281474976710656}}"#, "total.cpu"),
            (r#"{"hosts":1,"duration":1,"totals":{}}"#, "totals"),
            (r#"{"hosts":3,"duration":1,"candidates":["a","b","a"]}"#, "distinct candidates"),
            (r#"{"hosts":1,"duration":1,"per_host":{"CPU":1}}"#, "no resource name"),
            (r#"{"hosts":1}"#, "duration"),
            (&too_many, "total: at most 32 entries, got 33"),
            (r#"{"hosts":1,"duration":1,"work":1}"#, "work:"),
            (r#"{"hosts":1,"work":0}"#, "work:"),
            (r#"{"hosts":1,"work":1,"sites_max":0}"#, "sites_max:"),
            (r#"{"hosts":1,"work":1,"slack":86401}"#, "slack: expected 0 to 86400 seconds (a day), got 86401"),
            (r#"{"hosts":1,"work":1,"slack":-1}"#, "-1"),
            (r#"{"hosts":1,"work":1,"slack":1,"extends":"q"}"#, "slack: what lengthens a reservation begins where"),
            (r#"{"hosts":1,"work":1,"speed_min":0}"#, "speed: expected at least 1"),
            (r#"{"hosts":1,"work":1,"earliest":9,"deadline":8}"#, "deadline:"),
            (r#"{"hosts":1,"work":1,"objective":"best"}"#, "unknown variant `best`"),
            (r#"{"hosts":1,"work":1,"budget":-5}"#, "-5"),
            (r#"{"hosts":1,"work":1,"budget":281474976710655}"#, "budget"),
            (r#"{"work":1,"shapes":[{"hosts":1}]}"#, "work: given beside shapes"),
            (r#"{"hosts":1,"shapes":[{"hosts":1,"work":1}]}"#, "hosts: given beside shapes"),
            (r#"{"shapes":[]}"#, "shapes: expected at least 1, got 0"),
            (r#"{"shapes":[{"hosts":1,"work":1},{"hosts":1}]}"#, "shapes[1].duration: this or work is needed"),
            (
                r#"{"candidates":["a"],"shapes":[{"hosts":1,"work":1},{"hosts":2,"work":1}]}"#,
                "shapes[1].hosts: 2 asked",
            ),
            (&too_many_shapes, "shapes: at most 64 entries, got 65"),
            (r#"{"hosts":1,"work":1,"scale":[1,2]}"#, "scale: there are no amounts to scale"),
            (
                r#"{"hosts":1,"work":1,"per_host":{"cpu":1},"scale":[2000,500]}"#,
                "scale: [2000,500]: the least is above the largest",
            ),
            (
                r#"{"hosts":1,"work":1,"per_host":{"cpu":1},"scale":[0,500]}"#,
                "scale: [0,500]: a factor is from 1 to 1000000 thousandths",
            ),
            (
                r#"{"hosts":1,"work":1,"scale":[500]}"#,
                "expected the least and the largest factor in thousandths, such as [500, 2000]",
            ),
            (
                r#"{"hosts":1,"work":1,"scale":"0.5..2"}"#,
                "expected the least and the largest factor in thousandths, such as [500, 2000]",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_key_is_what_the_text_begins_with() {
        for text in [
            r#"{"hosts":0,"duration":1}"#,
            r#"{"hosts":1,"duration":0}"#,
            r#"{"hosts":1,"duration":1,"earliest":9,"latest":8}"#,
            r#"{"hosts":1,"duration":1,"latest":-9}"#,
            r#"{"hosts":1,"duration":1,"total":{"cpu":281474976710656}}"#,
            r#"{"hosts":3,"duration":1,"candidates":["a","b","a"]}"#,
        ] {
            let error = Request::try_from(serde_json::from_str::<RequestDocument>(text).unwrap()).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{}: ", error.key())), "{error}");
        }
    }

    #[test]
    fn a_request_is_written_as_it_was_read() {
        for text in [
            r#"{"hosts":1,"duration":5}"#,
            r#"{"id":"r","hosts":2,"work":5,"earliest":1,"latest":2,"deadline":9,"objective":"host_time","per_host":{"cpu":1},"total":{"cpu":4},"attributes":{"a":"b"},"candidates":["x","y"],"speed_min":7,"exclusive":true,"sites_max":3,"extends":"q","effort":"fast","move_on_loss":true}"#,
            r#"{"earliest":1,"per_host":{"cpu":1},"shapes":[{"hosts":1,"work":5},{"hosts":3,"duration":4,"per_host":{},"total":{"cpu":7}}]}"#,
            r#"{"sites_max":1,"slack":600,"shapes":[{"hosts":1,"work":5},{"hosts":2,"work":5}]}"#,
            r#"{"shapes":[{"hosts":1,"work":5}]}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(text).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn traffic_is_read_and_checked() {
        let read = |text: &str| Request::try_from(serde_json::from_str::<RequestDocument>(text).unwrap());
        let request = read(r#"{"hosts":3,"work":90,"traffic":{"mbps":5}}"#).unwrap();
        let speed = |thousandths: u32| Speed::try_from(thousandths).unwrap();
        assert_eq!(request.demand().traffic(), Some(Traffic { mbps: Amount(5), compute: 1000 }));
        assert_eq!(request.demand().length_at(speed(500)), Span(180));
        let text = r#"{"hosts":3,"work":90,"traffic":{"mbps":5,"compute":500}}"#;
        let request = read(text).unwrap();
        assert_eq!(request.demand().length_at(speed(500)), Span(135));
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        let request = read(r#"{"hosts":3,"duration":90,"extends":"r","traffic":{"mbps":5}}"#).unwrap();
        assert_eq!(request.demand().length_at(speed(500)), Span(90), "on the hosts that it has");
        for (text, expected) in [
            (r#"{"hosts":1,"duration":1,"traffic":{"mbps":5}}"#, "traffic: "),
            (
                r#"{"hosts":1,"work":1,"traffic":{"mbps":5,"compute":1001}}"#,
                "traffic.compute: expected 0 to 1000, got 1001",
            ),
            (r#"{"hosts":1,"work":1,"traffic":{"mbps":281474976710656}}"#, "traffic.mbps: 281474976710656 is larger"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
            assert!(error.to_string().starts_with(&format!("{}: ", error.key())), "{error}");
        }
    }

    #[test]
    fn the_window_defaults_to_arrival_and_reach_and_never_starts_in_the_past() {
        let request = read(r#"{"hosts":1,"duration":10}"#).unwrap();
        assert_eq!(request.starts(Time(100), Span(50)), Ok((Time(100), Time(150))));
        let request = read(r#"{"hosts":1,"duration":10,"earliest":20,"latest":120}"#).unwrap();
        assert_eq!(request.starts(Time(100), Span(50)), Ok((Time(100), Time(120))));
        let passed = request.starts(Time(121), Span(50)).unwrap_err();
        assert_eq!(passed.to_string(), "latest: 1970-01-01 00:02:00 UTC is past, it is 1970-01-01 00:02:01 UTC");
        let request = read(r#"{"hosts":1,"duration":10,"deadline":400}"#).unwrap();
        assert_eq!(request.starts(Time(100), Span(50)), Ok((Time(100), Time(400))));
        assert!(request.starts(Time(401), Span(50)).unwrap_err().to_string().starts_with("deadline: "));
    }
}
