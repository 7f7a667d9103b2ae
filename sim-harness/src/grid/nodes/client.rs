//! A node's local API over HTTP. Every call fails with [`ClientError`].
//!
//! Invariant: no call lasts longer than [`CALL_LIMIT`] beyond the wait that it asks for.

use std::{fs, io, path::Path, time::Duration};

use broker::request::Request;
use serde::de::DeserializeOwned;
use ureq::{Agent, Body, http};

use super::wire::{Explanation, Ledger, Problem, RequestList, RequestView, SiteRow, Sites, Status};

/// Longest answer time of a call. Generous: a hundred nodes may share two processors.
const CALL_LIMIT: Duration = Duration::from_secs(20);
/// Largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Why a call to a node failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection, a time-out, or an answer that is not what the API describes.
    #[error("{call}: {source}")]
    Call { call: String, source: Box<ureq::Error> },
    /// The node answered with an error.
    #[error("{call}: {status}: {text}")]
    Refused { call: String, status: u16, text: String },
}

impl ClientError {
    /// The HTTP status that the node answered with.
    pub fn status(&self) -> Option<u16> {
        match self {
            ClientError::Refused { status, .. } => Some(*status),
            ClientError::Call { .. } => None,
        }
    }
}

/// A connection to one node.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    base: String,
    authorization: String,
}

impl Client {
    /// Reads the API's address and token from the node's data directory. `None` while the node has not written them.
    pub fn from_data_dir(data_dir: &Path) -> io::Result<Option<Client>> {
        let read = |name: &str| match fs::read_to_string(data_dir.join(name)) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let (Some(address), Some(token)) = (read("api.address")?, read("api.token")?) else { return Ok(None) };
        let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(CALL_LIMIT)).build();
        let (base, authorization) = (format!("http://{address}"), format!("Bearer {token}"));
        Ok(Some(Client { agent: config.into(), base, authorization }))
    }

    /// Host and port of the API.
    pub fn address(&self) -> &str {
        self.base.trim_start_matches("http://")
    }

    /// The node's state.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.get("/v1/status", Duration::ZERO)
    }

    /// The sites that the node knows.
    pub fn sites(&self) -> Result<Vec<SiteRow>, ClientError> {
        self.get("/v1/sites", Duration::ZERO).map(|list: Sites| list.sites)
    }

    /// The node's ledger.
    pub fn ledger(&self) -> Result<Ledger, ClientError> {
        self.get("/v1/ledger", Duration::ZERO)
    }

    /// Submits a request.
    pub fn submit(&self, request: &Request) -> Result<RequestView, ClientError> {
        let path = "/v1/requests";
        let call = self.agent.post(format!("{}{path}", self.base)).header("Authorization", &self.authorization);
        answer("POST", path, call.send_json(request))
    }

    /// The request with this id or label, as it is now; status 404 when the node has none.
    pub fn find(&self, selector: &str) -> Result<RequestView, ClientError> {
        self.get(&format!("/v1/requests/{selector}"), Duration::ZERO)
    }

    /// The newest requests of the node, at most `limit`.
    pub fn requests(&self, limit: usize) -> Result<Vec<RequestView>, ClientError> {
        self.get(&format!("/v1/requests?limit={limit}"), Duration::ZERO).map(|list: RequestList| list.requests)
    }

    /// Cancels the request.
    pub fn cancel(&self, id: &str) -> Result<RequestView, ClientError> {
        let path = format!("/v1/requests/{id}");
        let call = self.agent.delete(format!("{}{path}", self.base)).header("Authorization", &self.authorization);
        answer("DELETE", &path, call.call())
    }

    /// The request's state, once it is settled or `wait` is over.
    pub fn settled(&self, id: &str, wait: Duration) -> Result<RequestView, ClientError> {
        self.get(&format!("/v1/requests/{id}?wait_ms={}&until=settled", wait.as_millis()), wait)
    }

    /// Why the request ended as it did.
    pub fn explain(&self, id: &str) -> Result<Explanation, ClientError> {
        self.get(&format!("/v1/requests/{id}/explain"), Duration::ZERO)
    }

    fn get<T: DeserializeOwned>(&self, path: &str, wait: Duration) -> Result<T, ClientError> {
        let call = self.agent.get(format!("{}{path}", self.base)).header("Authorization", &self.authorization);
        answer("GET", path, call.config().timeout_global(Some(CALL_LIMIT + wait)).build().call())
    }
}

fn answer<T: DeserializeOwned>(
    method: &str,
    path: &str,
    called: Result<http::Response<Body>, ureq::Error>,
) -> Result<T, ClientError> {
    let call = || format!("{method} {path}");
    let failed = |source| ClientError::Call { call: call(), source: Box::new(source) };
    let mut response = called.map_err(failed)?;
    let status = response.status();
    let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    if status.is_success() {
        return body.read_json().map_err(failed);
    }
    let text = match body.lossy_utf8(true).read_to_string() {
        Ok(text) => serde_json::from_str::<Problem>(&text)
            .map_or(text, |problem| format!("{}: {}", problem.title, problem.detail.unwrap_or_default())),
        Err(error) => error.to_string(),
    };
    Err(ClientError::Refused { call: call(), status: status.as_u16(), text })
}
