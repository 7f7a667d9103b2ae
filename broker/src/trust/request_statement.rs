//! What a user signs so that a node coordinates a request: the request itself and the one entry point that may do so.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Chain, Denial, Labels, Rule, SignedText, Statement};
use crate::{
    ids::{RequestId, ShapeNumber, SiteId},
    request::Request,
    time::Time,
};

/// A user's signed request. It names its entry point, so that no other node can use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestStatement {
    /// In this grid.
    pub grid: String,
    /// The only node that may coordinate it.
    pub entry_point: SiteId,
    /// The request's name in the grid, made by the user.
    pub id: RequestId,
    /// What is asked.
    pub request: Request,
    /// Orders what the user has signed of this request: a node that takes it over needs a higher term than any before.
    pub term: u64,
    /// When it was signed, on the user's clock. Nothing may start (much) before.
    pub issued: Time,
    /// From this second on no site holds anything for it.
    pub expires: Time,
    /// For display: the only part in which a site ignores what it does not know.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

impl RequestStatement {
    /// The term of a request that is submitted.
    pub const FIRST_TERM: u64 = 1;

    /// The statement as if its request had this shape only; an error when there is no such shape.
    pub(crate) fn of_shape(self: &Arc<RequestStatement>, shape: ShapeNumber) -> Result<Arc<RequestStatement>, Denial> {
        if shape.is_first() && !self.request.has_shapes() {
            return Ok(self.clone());
        }
        let request = self.request.of_shape(shape).ok_or_else(|| {
            let given = self.request.shapes().count();
            Denial::new(Rule::Shape, format!("shape {shape} (from 0), the user gave {given}"))
        })?;
        Ok(Arc::new(RequestStatement { request, ..(**self).clone() }))
    }

    /// Orders what a user has signed of one request: by the term. A user who signs at two ends of a cut may sign an equal one for two
    /// nodes; then the name of the node decides, so that all come to the same coordinator, in whatever order they learn of them.
    #[must_use]
    pub fn rank(&self) -> (u64, &SiteId) {
        (self.term, &self.entry_point)
    }
}

impl Statement for RequestStatement {
    const KIND: &'static str = "request";
    /// Leaves room for some thousand named candidates; one message to a site carries it and the grants.
    const TEXT_BYTES_MAX: usize = 64 * 1024;
}

/// What shows a site that a hold is what a user asked for; travels in every hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    /// The user's signed [`RequestStatement`].
    pub request: SignedText,
    /// The user's credentials; needed in a closed grid.
    pub user: Option<Chain>,
    /// The entry point's credentials; needed in a closed grid.
    pub entry_point: Option<Chain>,
}
