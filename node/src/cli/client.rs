//! The client of the node's local API.
//!
//! Invariant: every call has a time limit and a limit on the answer's size; the token, or a signed call, goes to the named address only
//! (no proxy, no redirects), and over TLS only to a node with a certificate that somebody trusted has signed.

use std::{fmt::Display, io, path::PathBuf, sync::Arc, thread, time::Duration};

use broker::ids::SiteId;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::error::Category;
use ureq::{
    Agent, Body, Timeout,
    http::{Method, Response, StatusCode},
    tls::Certificate,
};

use super::{error::CliError, exit::Exit};
use crate::{
    api::{
        challenge,
        grid::{HostList, LinkView, SiteList},
        problem::Problem,
        request_view::RequestList,
        session::Challenge,
    },
    runtime::https,
    trust::UserKey,
};

/// How long a connection may take: the node is on the same machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer may take beside the time it was asked to wait: planning at full effort on a large grid.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for a test of the link to another site.
const LINK_WAIT: Duration = Duration::from_secs(45);
/// Largest answer, in bytes: 10,000 hosts take some 5 MB.
const MAX_ANSWER_BYTES: u64 = 256 << 20;

/// The rule by which a node refuses what may mean several things.
const AMBIGUOUS: &str = "ambiguous";

/// The path that requests are handed to.
const SUBMIT: &str = "/v1/requests";
/// The header that says who calls.
const AUTHORIZATION: &str = "authorization";
/// How long a client without a token waits when it has called too often, and how many times.
const BUSY_PAUSE: Duration = Duration::from_secs(1);
const BUSY_RETRIES: u32 = 20;

/// Most pages of one list: no view of a node is as large.
const MAX_PAGES: usize = 1_000;

/// What the node says is wrong; `list` is the command that shows what there is of the kind that was asked for.
fn refusal(status: StatusCode, problem: &Problem, list: Option<&'static str>) -> CliError {
    let what = [problem.detail.as_str(), problem.title.as_str()].into_iter().find(|text| !text.is_empty());
    let what = what.map_or_else(|| format!("the node answers {status}"), str::to_owned);
    let message = match &problem.key {
        // The texts of the broker name the key already.
        Some(key) if !what.contains(key.as_str()) => format!("{key}: {what}"),
        _ => what,
    };
    let hint = match list {
        _ if status == StatusCode::UNAUTHORIZED => Some(
            "with a key you submit, and see and change what is yours; for the rest the node's operator makes a token (kolo token), which \
             you name with --token-file"
                .to_owned(),
        ),
        Some(list) if status == StatusCode::NOT_FOUND => Some(format!("{list} shows what there is")),
        Some(list) if problem.rule.as_deref() == Some(AMBIGUOUS) => {
            Some(format!("write more of the id; {list} shows what there is"))
        }
        _ => None,
    };
    CliError::Problem { status, message, hint }
}

/// What every agent is bound to.
fn limited() -> ureq::config::ConfigBuilder<ureq::typestate::AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(ANSWER_TIMEOUT))
}

/// How a client says who it is.
#[derive(Debug, Clone)]
pub enum Shown {
    /// By nothing: such calls only as anybody may make.
    Nothing,
    /// By a token and the file that it is from.
    Token { token: String, file: PathBuf },
    /// By signing each call for this node. What is submitted is signed by itself.
    Key { key: UserKey, site: SiteId },
}

/// A client of one node.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    base: String,
    shown: Shown,
    /// Who has signed the certificates of nodes that are trusted.
    authorities: Arc<[Certificate<'static>]>,
}

impl Client {
    /// A client of the node at `base` (`http://address:port`).
    pub fn new(base: String, shown: Shown) -> Client {
        Client { agent: limited().build().into(), base, shown, authorities: Arc::default() }
    }

    /// The same client, that says otherwise who it is.
    pub fn showing(self, shown: Shown) -> Client {
        Client { shown, ..self }
    }

    /// Where the node is asked: scheme, address and port.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Whether the node is asked over TLS; then [`Client::trusting`] says whom to trust.
    pub fn is_tls(&self) -> bool {
        self.base.starts_with("https://")
    }

    /// The same client, for nodes whose certificates one of `authorities` has signed.
    pub fn trusting(self, authorities: Vec<Certificate<'static>>) -> Client {
        let known = authorities.clone().into();
        Client { agent: limited().tls_config(https::trusting(authorities)).build().into(), authorities: known, ..self }
    }

    /// Host and port of the node.
    pub(super) fn address(&self) -> &str {
        self.base.split_once("://").map_or(&self.base, |(_, address)| address)
    }

    /// Who has signed the certificates of nodes that are trusted.
    pub(super) fn authorities(&self) -> &[Certificate<'static>] {
        &self.authorities
    }

    /// A nonce for one call, and which node of which grid answers.
    pub fn challenge(&self, method: &str, path: &str) -> Result<Challenge, CliError> {
        let path = escaped(&format!("/v1/challenge?method={method}&path="), path);
        let authorization = match &self.shown {
            Shown::Token { token, .. } => Some(format!("Bearer {token}")),
            Shown::Nothing | Shown::Key { .. } => None,
        };
        self.call_with(&Method::GET, &path, &(), Duration::ZERO, || Ok(authorization.clone()))
    }

    /// The header that says who calls; none when the call says so itself.
    ///
    /// # Errors
    /// [`CliError`] when a call cannot be signed.
    pub(super) fn authorization(&self, method: &Method, path: &str) -> Result<Option<String>, CliError> {
        match &self.shown {
            Shown::Nothing => Ok(None),
            Shown::Token { token, .. } => Ok(Some(format!("Bearer {token}"))),
            Shown::Key { .. } if *method == Method::POST && path == SUBMIT => Ok(None),
            Shown::Key { key, site } => {
                let nonce = self.challenge(method.as_str(), path)?.nonce;
                Ok(challenge::sign(key, method.as_str(), path, &nonce, site).map(Some)?)
            }
        }
    }

    /// Asks for what is at `path`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.call(&Method::GET, path, &(), Duration::ZERO)
    }

    /// Asks for what is at `path`; the node may take `wait` before it answers.
    pub fn get_waiting<T: DeserializeOwned>(&self, path: &str, wait: Duration) -> Result<T, CliError> {
        self.call(&Method::GET, path, &(), wait)
    }

    /// Hands `body` to `path`.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, CliError> {
        self.call(&Method::POST, path, body, Duration::ZERO)
    }

    /// The same; the node may take `wait` before it answers.
    pub fn post_waiting<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, CliError> {
        self.call(&Method::POST, path, body, wait)
    }

    /// Measures the link to a site.
    pub fn link_with(&self, site: &SiteId) -> Result<LinkView, CliError> {
        self.get_waiting(&escaped("/v1/uplink?with=", site.as_str()), LINK_WAIT)
    }

    /// All known sites.
    pub fn sites(&self) -> Result<SiteList, CliError> {
        self.pages("/v1/sites", |all: &mut SiteList| &mut all.next, |all, page| all.sites.extend(page.sites))
    }

    /// All requests that the caller may see, the newest first.
    pub fn requests(&self) -> Result<RequestList, CliError> {
        self.pages(
            "/v1/requests",
            |all: &mut RequestList| &mut all.next,
            |all, page| all.requests.extend(page.requests),
        )
    }

    /// All known hosts.
    pub fn hosts(&self) -> Result<HostList, CliError> {
        self.pages("/v1/hosts", |all: &mut HostList| &mut all.next, |all, page| all.hosts.extend(page.hosts))
    }

    /// A list whose pages have a place for the `next` one, page by page.
    fn pages<L: DeserializeOwned>(
        &self,
        path: &str,
        next: fn(&mut L) -> &mut Option<String>,
        join: fn(&mut L, L),
    ) -> Result<L, CliError> {
        let mut all: L = self.get(path)?;
        for _ in 0..MAX_PAGES {
            let Some(after) = next(&mut all).take() else { break };
            let mut page: L = self.get(&escaped(&format!("{path}?after="), &after))?;
            *next(&mut all) = next(&mut page).take();
            join(&mut all, page);
        }
        Ok(all)
    }

    /// Deletes what is at `path`.
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.call(&Method::DELETE, path, &(), Duration::ZERO)
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, CliError> {
        self.call_with(method, path, body, wait, || self.authorization(method, path))
    }

    /// Calls, and again after a while when the node bears no more calls without a token at the moment; each time `authorization` says
    /// who calls.
    fn call_with<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
        authorization: impl Fn() -> Result<Option<String>, CliError>,
    ) -> Result<T, CliError> {
        for _ in 0..BUSY_RETRIES {
            match self.call_once(method, path, body, wait, authorization()?.as_deref()) {
                Err(CliError::Problem { status, .. }) if status == StatusCode::TOO_MANY_REQUESTS => {
                    thread::sleep(BUSY_PAUSE);
                }
                answer => return answer,
            }
        }
        self.call_once(method, path, body, wait, authorization()?.as_deref())
    }

    fn call_once<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
        authorization: Option<&str>,
    ) -> Result<T, CliError> {
        let url = format!("{}{path}", self.base);
        let limit = Some(ANSWER_TIMEOUT.saturating_add(wait));
        let result = if *method == Method::POST {
            let request = self.agent.post(&url);
            let request =
                authorization.into_iter().fold(request, |request, value| request.header(AUTHORIZATION, value));
            request.config().timeout_global(limit).build().send_json(body)
        } else {
            let request = if *method == Method::DELETE { self.agent.delete(&url) } else { self.agent.get(&url) };
            let request =
                authorization.into_iter().fold(request, |request, value| request.header(AUTHORIZATION, value));
            request.config().timeout_global(limit).build().call()
        };
        let failed = |error: ureq::Error| match error {
            ureq::Error::Timeout(waited_for) if !matches!(waited_for, Timeout::Resolve | Timeout::Connect) => {
                let waited = ANSWER_TIMEOUT.saturating_add(wait).as_secs();
                let hint = match *method {
                    Method::GET => "it is busy, or has been stopped; try again",
                    _ => "it may still do what was asked; kolo list shows what it has",
                };
                let message = format!("the node at {} has not answered within {waited} s", self.base);
                CliError::Failed { message, exit: Exit::Unreachable }.hinted(hint)
            }
            error => self.transport_error(&error),
        };
        self.read(list_of(path), result.map_err(failed)?, failed)
    }

    fn read<T: DeserializeOwned>(
        &self,
        list: Option<&'static str>,
        mut response: Response<Body>,
        failed: impl Fn(ureq::Error) -> CliError,
    ) -> Result<T, CliError> {
        let status = response.status();
        let bytes = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec().map_err(failed)?;
        if status == StatusCode::UNAUTHORIZED
            && let Shown::Token { file, .. } = &self.shown
        {
            let message = format!("the node at {} refuses the token in {}", self.base, file.display());
            let hint = "name the api.token of that node's data directory with --token-file or --data-dir";
            return Err(CliError::failed(message).hinted(hint));
        }
        if !status.is_success() {
            return match serde_json::from_slice(&bytes) {
                Ok(problem) => Err(refusal(status, &problem, list)),
                Err(_) => Err(self.no_node(format_args!("it answers {status}"))),
            };
        }
        let mut deserializer = serde_json::Deserializer::from_slice(&bytes);
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            if error.inner().classify() == Category::Data {
                return self.not_understood(error);
            }
            self.no_node("its answer is no JSON")
        })
    }

    /// What answers speaks another language than nodes do.
    fn no_node(&self, how: impl Display) -> CliError {
        let hint = "name the address of a node's API with --api or KOLO_API; kolo node says it when it starts";
        CliError::failed(format!("what answers at {} is no Kolo node: {how}", self.base)).hinted(hint)
    }

    /// What answers is no node, or one of another version.
    fn not_understood(&self, why: impl Display) -> CliError {
        let hint = "it is no Kolo node, or one of another version";
        CliError::failed(format!("the answer of {} is not understood: {why}", self.base)).hinted(hint)
    }

    /// Nobody who is trusted has signed the certificate, or it is of another name.
    fn untrusted(&self, why: impl Display) -> CliError {
        CliError::failed(format!("the node at {} is not trusted: {why}", self.base)).hinted(
            "name the certificate of who has signed that of the node with --ca-file, and the node as its certificate \
             does with --api; a node's own certificate must be none of an authority (CaUsedAsEndEntity: make it with \
             -addext basicConstraints=CA:FALSE)",
        )
    }

    fn transport_error(&self, error: &ureq::Error) -> CliError {
        match error {
            // So says rustls when a certificate or a handshake is not as it should be.
            ureq::Error::Io(error) if self.is_tls() && error.kind() == io::ErrorKind::InvalidData => {
                self.untrusted(error)
            }
            ureq::Error::Rustls(error) => self.untrusted(error),
            ureq::Error::Io(_)
            | ureq::Error::Timeout(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed => {
                let message = format!("no node answers at {}: {error}", self.base);
                let address = self.base.trim_start_matches("http://").trim_start_matches("https://");
                let hint = format!("is `kolo node` running at {address}? Start it, or name another address with --api");
                CliError::Failed { message, exit: Exit::Unreachable }.hinted(hint)
            }
            other => self.not_understood(other),
        }
    }
}

/// The command that lists what is of the kind of the thing at `path`.
fn list_of(path: &str) -> Option<&'static str> {
    match path.split('/').nth(2) {
        Some("local") => Some("kolo local list"),
        Some("requests" | "reservations") => Some("kolo list"),
        Some("batches") => Some("kolo batch list"),
        Some("tokens") => Some("kolo token list"),
        _ => None,
    }
}

/// The path of one request; `selector` may hold anything.
pub fn request_path(selector: &str) -> String {
    escaped("/v1/requests/", selector)
}

/// The path of a request that waits for a batch.
pub fn waiting_path(selector: &str) -> String {
    escaped("/v1/batches/waiting/", selector)
}

/// The path of what a site keeps of the bookings of a request.
pub fn kept_receipts_path(id: &str) -> String {
    escaped("/v1/receipts/", id)
}

/// The path of the reservation of a request that may have been made through any node.
pub fn reservation_path(id: &str) -> String {
    escaped("/v1/reservations/", id)
}

/// The path of a token with a scope.
pub fn token_path(name: &str) -> String {
    escaped("/v1/tokens/", name)
}

/// The path of what a request has of this site.
pub fn promised_path(selector: &str) -> String {
    escaped("/v1/local/promised/", selector)
}

/// The path that ends what a request runs on this site.
pub fn running_path(selector: &str, seat: Option<u32>, reason: &str) -> String {
    let seat = seat.map_or_else(String::new, |seat| format!("&seat={seat}"));
    escaped(&(escaped("/v1/local/running/", selector) + "?reason="), reason) + &seat
}

/// The path of an entry of own work.
pub fn local_path(selector: &str) -> String {
    escaped("/v1/local/", selector)
}

/// The path of a job of the own queue.
pub fn job_path(selector: &str) -> String {
    escaped("/v1/local/queue/", selector)
}

fn escaped(path: &str, selector: &str) -> String {
    let mut path = path.to_owned();
    for byte in selector.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::cli::samples::serve;

    #[test]
    fn the_token_is_shown_and_the_answer_read() {
        let (client, server) = serve(vec![("200 OK", r#"{"sites":[],"bans":[],"next":null}"#.to_owned())]);
        let sites: SiteList = client.get("/v1/sites").unwrap();
        assert!(sites.sites.is_empty());
        let asked = &server.join().unwrap()[0];
        assert!(asked.starts_with("GET /v1/sites HTTP/1.1") && asked.contains("Bearer 00ff"), "{asked}");
    }

    #[test]
    fn a_list_is_read_to_its_last_page() {
        let page = |next: &str| format!(r#"{{"sites":[],"bans":[],"next":{next}}}"#);
        let (client, server) = serve(vec![("200 OK", page("\"a b\"")), ("200 OK", page("null"))]);
        assert!(client.sites().unwrap().next.is_none());
        let asked = server.join().unwrap();
        assert!(asked[1].starts_with("GET /v1/sites?after=a%20b HTTP"), "{asked:?}");
    }

    #[test]
    fn a_problem_becomes_a_message_and_an_exit_code() {
        let (client, server) = serve(vec![(
            "400 Bad Request",
            r#"{"type":"about:blank","status":400,"title":"bad","detail":"expected 1 or more","key":"hosts"}"#
                .to_owned(),
        )]);
        let error = client.post::<serde_json::Value>("/v1/requests", &1).unwrap_err();
        server.join().unwrap();
        assert_eq!(error.exit(), Exit::Usage);
        assert_eq!(error.to_string(), "hosts: expected 1 or more");
    }

    #[test]
    fn a_refused_token_hints_at_the_token_file() {
        let (client, server) = serve(vec![("401 Unauthorized", String::new())]);
        let error = client.get::<serde_json::Value>("/v1/status").unwrap_err();
        server.join().unwrap();
        assert_eq!(error.exit(), Exit::Failure);
        assert!(error.hint().is_some_and(|hint| hint.contains("--token-file")));
    }

    #[test]
    fn nobody_listening_is_exit_3_with_a_hint() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let client = Client::new(format!("http://{address}"), Shown::Nothing);
        let error = client.get::<serde_json::Value>("/v1/status").unwrap_err();
        assert_eq!(error.exit(), Exit::Unreachable);
        assert!(error.hint().is_some_and(|hint| hint.contains("kolo node") && hint.contains("--api")));
    }

    #[test]
    fn what_is_no_node_is_called_so() {
        for (status, body, expected) in [
            ("200 OK", "<html>hello</html>", "is no Kolo node: its answer is no JSON"),
            ("200 OK", "", "is no Kolo node: its answer is no JSON"),
            ("404 Not Found", "<html>nothing here</html>", "is no Kolo node: it answers 404 Not Found"),
            ("404 Not Found", "", "is no Kolo node: it answers 404 Not Found"),
            ("200 OK", "{\"other\":1}", "is not understood: missing field"),
            ("501 Not Implemented", "{\"message\":\"no\"}", "is no Kolo node: it answers 501"),
        ] {
            let (client, server) = serve(vec![(status, body.to_owned())]);
            let error = client.get::<SiteList>("/v1/sites").unwrap_err();
            server.join().unwrap();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("Kolo node") || hint.contains("--api")));
        }
    }

    #[test]
    fn a_selector_cannot_leave_its_path() {
        assert_eq!(request_path("a-b.1"), "/v1/requests/a-b.1");
        assert_eq!(request_path("../x?y#ž"), "/v1/requests/..%2Fx%3Fy%23%C5%BE");
    }
}
