//! The alternatives of a request: shapes, one of which is planned.
//!
//! Source: `formats.md`, version 2 (`shapes`). Invariant: every alternative is a request document without shapes, and what it does not
//! have of its own is as in the request.

use serde::{Deserialize, Serialize};

use crate::model::{
    request::{RequestDocument, RequestError, too_many},
    resources::Amounts,
};

/// Most alternatives of one request.
pub const MAX_SHAPES: usize = 64;

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
    pub(crate) fn has(&self, key: &str) -> bool {
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
