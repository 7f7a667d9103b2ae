//! Signing a user's requests.
//!
//! Invariant: every signed request has an id of its own, 80 random bits, and names the one node that may coordinate it.

use broker::{
    ids::{RequestId, SiteId},
    request::{Request, RequestDocument, RequestError},
    time::{Span, Time},
    trust::{Authorization, Chain, Labels, RequestStatement},
};
use data_encoding::BASE32_NOPAD;

use super::{error::TrustFileError, files::random_bytes, user_key::UserKey};

/// For how long a request without a latest start may be worked on; as long as any node's reach that makes sense.
const REACH: Span = Span(7 * 86_400);

/// A question is answered by then, whatever the clocks say.
const ANSWERED_IN: Span = Span(600);

/// A user's key and credentials.
#[derive(Clone)]
pub struct Signer {
    pub key: UserKey,
    /// The credentials in the grid that was asked for; an open grid needs none.
    pub chain: Option<Chain>,
}

impl Signer {
    /// Signs `request` under the name `id` for the entry point that is to coordinate it. The signature holds until the
    /// reservation must have ended, so that the entry point can replace hosts that are lost. `last` is the highest known term of
    /// a request that is taken over; the new one is the next.
    ///
    /// # Errors
    /// [`TrustFileError::Trust`] when the request is too large for a signed one, or its window is over, [`TrustFileError::Agent`] when an
    /// agent does not sign it.
    pub fn sign(
        &self,
        grid: &str,
        entry_point: &SiteId,
        id: RequestId,
        request: Request,
        now: Time,
        last: Option<u64>,
    ) -> Result<Authorization, TrustFileError> {
        let latest = request.starts(now, REACH).map_or(now, |(_, latest)| latest);
        let expires = latest + request.longest();
        self.sign_until(expires, (grid, entry_point), (id, request), now, last)
    }

    /// Signs a question to owners through this entry point: what is signed shows who asks, and reserves nothing.
    ///
    /// # Errors
    /// [`TrustFileError::Agent`] when an agent does not sign it.
    pub fn sign_question(&self, grid: &str, entry_point: &SiteId, now: Time) -> Result<Authorization, TrustFileError> {
        let request = question().map_err(|error| TrustFileError::Random(error.to_string()))?;
        self.sign_until(now + ANSWERED_IN, (grid, entry_point), (new_request_id()?, request), now, None)
    }

    fn sign_until(
        &self,
        expires: Time,
        (grid, entry_point): (&str, &SiteId),
        (id, request): (RequestId, Request),
        now: Time,
        last: Option<u64>,
    ) -> Result<Authorization, TrustFileError> {
        let grid = grid.to_owned();
        let entry_point = entry_point.clone();
        let term = last.map_or(RequestStatement::FIRST_TERM, |last| last.saturating_add(1));
        let labels = Labels::default();
        let statement = RequestStatement { grid, entry_point, id, request, term, issued: now, expires, labels };
        let request = self.key.sign(&statement)?;
        Ok(Authorization { request, user: self.chain.clone(), entry_point: None })
    }
}

/// What a question of a user is signed as: a request whose latest start is long over, which no site grants.
fn question() -> Result<Request, RequestError> {
    let over = Some(Time(1));
    let document = RequestDocument { hosts: 1, duration: Some(1), earliest: over, latest: over, ..Default::default() };
    document.try_into()
}

/// A request's name in the grid: 80 random bits, so that nobody ever chooses the same.
pub fn new_request_id() -> Result<RequestId, TrustFileError> {
    let text = BASE32_NOPAD.encode(&random_bytes::<10>()?).to_ascii_lowercase();
    RequestId::new(&text).map_err(|error| TrustFileError::Random(error.to_string()))
}
