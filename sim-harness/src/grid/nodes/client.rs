//! A node's local API over HTTP. Every call fails with [`ClientError`].
//!
//! Invariant: no call lasts longer than [`CALL_LIMIT`] beyond the wait that it asks for.

use std::{fs, io, path::Path, time::Duration};

use broker::request::Request;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use ureq::{Agent, Body, RequestBuilder, http};

use super::wire::{Explanation, Ledger, Plan, RequestView, SiteRow, Status};

/// Longest answer time of a call. Generous: a hundred nodes may share two processors.
const CALL_LIMIT: Duration = Duration::from_secs(20);
/// Largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Why a call to a node failed: no connection, a time-out, an answer that is not what the API describes, or an error of the node.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {text}")]
pub struct ClientError {
    call: String,
    text: String,
    /// The HTTP status, where the node answered with an error.
    pub status: Option<u16>,
}

/// A look at a node that does not answer describes why.
impl From<ClientError> for String {
    fn from(error: ClientError) -> String {
        error.to_string()
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
        #[derive(Deserialize)]
        struct Sites {
            sites: Vec<SiteRow>,
        }
        self.get("/v1/sites", Duration::ZERO).map(|list: Sites| list.sites)
    }

    /// The node's ledger.
    pub fn ledger(&self) -> Result<Ledger, ClientError> {
        self.get("/v1/ledger", Duration::ZERO)
    }

    /// Submits a request.
    pub fn submit(&self, request: &Request) -> Result<RequestView, ClientError> {
        let call = self.agent.post(format!("{}/v1/requests", self.base));
        answer("POST /v1/requests", self.authorized(call).send_json(request))
    }

    /// Plans a request without holding anything.
    pub fn plan(&self, request: &Request) -> Result<Plan, ClientError> {
        let call = self.agent.post(format!("{}/v1/plan", self.base));
        answer("POST /v1/plan", self.authorized(call).send_json(request))
    }

    /// The request with this id or label, as it is now; status 404 when the node has none.
    pub fn find(&self, selector: &str) -> Result<RequestView, ClientError> {
        self.get(&format!("/v1/requests/{selector}"), Duration::ZERO)
    }

    /// The newest requests of the node, at most `limit`.
    pub fn requests(&self, limit: usize) -> Result<Vec<RequestView>, ClientError> {
        #[derive(Deserialize)]
        struct Requests {
            requests: Vec<RequestView>,
        }
        self.get(&format!("/v1/requests?limit={limit}"), Duration::ZERO).map(|list: Requests| list.requests)
    }

    /// Cancels the request.
    pub fn cancel(&self, id: &str) -> Result<RequestView, ClientError> {
        let call = self.agent.delete(format!("{}/v1/requests/{id}", self.base));
        answer(&format!("DELETE /v1/requests/{id}"), self.authorized(call).call())
    }

    /// Takes the node's hosts back from the request, as their owner.
    pub fn take_back(&self, id: &str) -> Result<(), ClientError> {
        let call = self.agent.delete(format!("{}/v1/local/promised/{id}", self.base));
        answer(&format!("DELETE /v1/local/promised/{id}"), self.authorized(call).call()).map(|_: Value| ())
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
        let call = self.authorized(self.agent.get(format!("{}{path}", self.base)));
        answer(&format!("GET {path}"), call.config().timeout_global(Some(CALL_LIMIT + wait)).build().call())
    }

    fn authorized<B>(&self, call: RequestBuilder<B>) -> RequestBuilder<B> {
        call.header("Authorization", &self.authorization)
    }
}

/// Reads the answer to a call; that of a refusal is a problem document (RFC 9457).
fn answer<T: DeserializeOwned>(
    call: &str,
    called: Result<http::Response<Body>, ureq::Error>,
) -> Result<T, ClientError> {
    let failed = |error: ureq::Error| ClientError { call: call.to_owned(), text: error.to_string(), status: None };
    let mut response = called.map_err(failed)?;
    let status = response.status();
    let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    if status.is_success() {
        return body.read_json().map_err(failed);
    }
    let text = body.lossy_utf8(true).read_to_string().unwrap_or_else(|error| error.to_string());
    let problem: Value = serde_json::from_str(&text).unwrap_or_default();
    let text = match problem["title"].as_str() {
        Some(title) => format!("{status}: {title}: {}", problem["detail"].as_str().unwrap_or_default()),
        None => format!("{status}: {text}"),
    };
    Err(ClientError { call: call.to_owned(), text, status: Some(status.as_u16()) })
}
