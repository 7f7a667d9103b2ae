//! What a user signs so that a node coordinates a request: the request itself and the one entry point that may do so.

use serde::{Deserialize, Serialize};

use super::{Chain, Denial, Labels, Rule, SignedText, Statement};
use crate::{
    ids::{RequestId, SiteId},
    request::Request,
    time::Time,
    variant::Variant,
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

    /// The statement as if its request allowed this variant only.
    ///
    /// # Errors
    /// [`Rule::Shape`] or [`Rule::Scale`] when it does not allow that.
    pub(crate) fn of_variant(&self, variant: Variant) -> Result<RequestStatement, Denial> {
        let Variant { shape, scale } = variant;
        let request = self.request.of_variant(variant).ok_or_else(|| match self.request.shape(shape) {
            None => {
                let given = self.request.shapes().count();
                Denial::new(Rule::Shape, format!("shape {shape} (from 0), the user gave {given}"))
            }
            Some(demand) => {
                let allowed = demand.scale().map_or_else(|| "none".to_owned(), |scale| scale.to_string());
                Denial::new(Rule::Scale, format!("factor {scale}, the user allows {allowed}"))
            }
        })?;
        Ok(RequestStatement { request, ..self.clone() })
    }

    /// Whether its request allows one variant only, the plain one.
    pub(crate) fn is_plain(&self) -> bool {
        !self.request.has_shapes() && !self.request.demand().is_to_be_scaled()
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
