//! The client of the node's local API.
//!
//! Invariant: every call has a time limit and a limit on the answer's size; a call goes to the named address only (no proxy, no redirects).
//! A token goes out over TLS only, to a node with a certificate that somebody trusted has signed; without TLS the node shows first that it
//! knows the token and is at the address that was called, and the token itself stays here.

mod failures;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use broker::ids::SiteId;
use data_encoding::HEXLOWER;
use kolo_api::{
    grid::{HostList, LinkView, SiteList},
    request_view::RequestList,
    session::{Challenge, NodeProof},
    signed_call::sign,
    token_call::authorize,
};
use kolo_runtime::https;
use kolo_trust::{TokenKey, UserKey, random_bytes};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::error::Category;
use ureq::{
    Agent, Body, RequestBuilder,
    http::{Method, Response, StatusCode},
    tls::Certificate,
    unversioned::{resolver::DefaultResolver, transport::DefaultConnector},
};

use self::failures::{Called, list_of, refusal};
use super::{by_socket::BySocket, dialled::Dialled, error::CliError};

/// How long a connection may take: the node is on the same machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer may take beside the time it was asked to wait: planning at full effort on a large grid.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for a test of the link to another site.
const LINK_WAIT: Duration = Duration::from_secs(45);
/// Largest answer, in bytes: 10,000 hosts take some 5 MB.
const MAX_ANSWER_BYTES: u64 = 256 << 20;

/// The path that requests are handed to.
const SUBMIT: &str = "/v1/requests";
/// The header that says who calls.
const AUTHORIZATION: &str = "authorization";
const CONTENT_TYPE: &str = "content-type";
/// The base of URLs for a node that is asked by a socket; the address is never connected to.
const BASE_OF_SOCKET: &str = "http://127.0.0.1";
/// How long a client without a token waits when it has called too often, and how many times.
const BUSY_PAUSE: Duration = Duration::from_secs(1);
const BUSY_RETRIES: u32 = 20;

/// Most pages of one list: no view of a node is as large.
const MAX_PAGES: usize = 1_000;

/// What every agent is bound to.
fn limited() -> ureq::config::ConfigBuilder<ureq::typestate::AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(ANSWER_TIMEOUT))
}

/// The longest time for an answer that the node may take `wait` for.
fn answer_max(wait: Duration) -> Duration {
    ANSWER_TIMEOUT.saturating_add(wait)
}

/// A request with its header of authorization and its time limit.
fn prepared<B>(request: RequestBuilder<B>, authorization: Option<&str>, wait: Duration) -> RequestBuilder<B> {
    let request = authorization.into_iter().fold(request, |request, value| request.header(AUTHORIZATION, value));
    request.config().timeout_global(Some(answer_max(wait))).build()
}

/// How a client says who it is.
#[derive(Debug, Clone)]
pub enum Shown {
    /// Nothing is shown: only calls that anybody may make, and all calls by the socket of the node's own user, are answered.
    Nothing,
    /// A token and its file. Over TLS the token itself is sent, otherwise a keyed hash of each call.
    Token { token: String, file: PathBuf },
    /// By signing each call for this node. What is submitted is signed by itself.
    Key { key: UserKey, site: SiteId },
}

/// A client of one node.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    base: String,
    /// The socket by which the node is asked instead of its address; none where it is asked by TCP.
    socket: Option<PathBuf>,
    shown: Shown,
    dialled: Dialled,
    /// Who has signed the certificates of nodes that are trusted.
    authorities: Arc<[Certificate<'static>]>,
}

impl Client {
    /// A client of the node at `base` (`http://address:port`).
    pub fn new(base: String, shown: Shown) -> Client {
        let dialled = Dialled::default();
        let agent = Agent::with_parts(limited().build(), DefaultConnector::default(), dialled.clone());
        Client { agent, base, socket: None, shown, dialled, authorities: Arc::default() }
    }

    /// A client of the node that listens at this socket in its data directory, and knows this user by that.
    pub fn by_socket(path: PathBuf) -> Client {
        let agent = Agent::with_parts(limited().build(), BySocket(path.clone()), DefaultResolver::default());
        Client { agent, socket: Some(path), ..Client::new(BASE_OF_SOCKET.to_owned(), Shown::Nothing) }
    }

    /// The same client, that says otherwise who it is.
    pub fn showing(self, shown: Shown) -> Client {
        Client { shown, ..self }
    }

    /// Where a browser that reaches what this client does finds the page; none when the node says it better.
    pub fn page(&self) -> Option<&str> {
        self.socket.is_none().then_some(&self.base)
    }

    /// The path of the node's socket; none where the node is asked by TCP.
    pub(super) fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// The address or socket of the node, for messages.
    fn place(&self) -> String {
        self.socket.as_ref().map_or_else(|| self.base.clone(), |path| path.display().to_string())
    }

    fn called(&self) -> Called<'_> {
        Called { base: &self.base, place: self.place(), is_tls: self.is_tls() }
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

    /// Address of the node in calls without TLS; none before the first call.
    pub(super) fn dialled(&self) -> Option<SocketAddr> {
        self.dialled.address()
    }

    /// Who has signed the certificates of nodes that are trusted.
    pub(super) fn authorities(&self) -> &[Certificate<'static>] {
        &self.authorities
    }

    /// A nonce for one call, and which node of which grid answers.
    pub fn challenge(&self, method: &str, path: &str) -> Result<Challenge, CliError> {
        let path = escaped(&format!("/v1/challenge?method={method}&path="), path);
        self.call_with(&Method::GET, &path, &[], Duration::ZERO, || match &self.shown {
            Shown::Token { .. } => self.authorization(&Method::GET, &path, &[]),
            Shown::Nothing | Shown::Key { .. } => Ok(None),
        })
    }

    /// The header that says who calls; none when the call says so itself.
    ///
    /// # Errors
    /// [`CliError`] when a call cannot be signed, or who answers does not know the token.
    pub(super) fn authorization(&self, method: &Method, path: &str, body: &[u8]) -> Result<Option<String>, CliError> {
        match &self.shown {
            Shown::Nothing => Ok(None),
            Shown::Token { token, .. } if self.is_tls() => Ok(Some(format!("Bearer {token}"))),
            Shown::Token { token, file } => {
                let key = TokenKey::of(token);
                let nonce = self.nonce_of_node(&key, file)?;
                Ok(Some(authorize(&key, method.as_str(), path, &nonce, body)))
            }
            Shown::Key { .. } if *method == Method::POST && path == SUBMIT => Ok(None),
            Shown::Key { key, site } => {
                let nonce = self.challenge(method.as_str(), path)?.nonce;
                Ok(sign(key, method.as_str(), path, &nonce, site).map(Some)?)
            }
        }
    }

    /// A nonce for one call, of the node that has shown that it knows the token with this key.
    fn nonce_of_node(&self, key: &TokenKey, file: &Path) -> Result<String, CliError> {
        let asked = HEXLOWER.encode(&random_bytes::<16>()?);
        let path = format!("/v1/proof?token={}&nonce={asked}", key.name());
        let response = self.send(&Method::GET, &path, &[], Duration::ZERO, None)?;
        let is_shown = |node: &NodeProof| {
            let dialled = self.dialled.address();
            dialled.is_some_and(|address| key.is_of_node(address, &asked, &node.nonce, &node.proof))
        };
        match self.read::<NodeProof>(None, response, |error| self.called().transport_error(&error)) {
            Ok(node) if is_shown(&node) => Ok(node.nonce),
            Ok(_) => Err(self.called().not_the_node(file, "")),
            Err(error) => Err(self.called().not_the_node(file, &format!(" ({error})"))),
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
        let unwritten = |error: serde_json::Error| CliError::failed(format!("the call cannot be written: {error}"));
        let body = if *method == Method::POST { serde_json::to_vec(body).map_err(unwritten)? } else { Vec::new() };
        self.call_with(method, path, &body, wait, || self.authorization(method, path, &body))
    }

    /// Calls, and again after a while when the node bears no more calls without a token at the moment; each time `authorization` says
    /// who calls.
    fn call_with<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: &[u8],
        wait: Duration,
        authorization: impl Fn() -> Result<Option<String>, CliError>,
    ) -> Result<T, CliError> {
        let once = || {
            let response = self.send(method, path, body, wait, authorization()?.as_deref())?;
            self.read(list_of(path), response, |error| self.called().unanswered(&error, method, answer_max(wait)))
        };
        for _ in 0..BUSY_RETRIES {
            match once() {
                Err(CliError::Problem { status, .. }) if status == StatusCode::TOO_MANY_REQUESTS => {
                    thread::sleep(BUSY_PAUSE);
                }
                answer => return answer,
            }
        }
        once()
    }

    /// Calls, whatever the answer is.
    fn send(
        &self,
        method: &Method,
        path: &str,
        body: &[u8],
        wait: Duration,
        authorization: Option<&str>,
    ) -> Result<Response<Body>, CliError> {
        let url = format!("{}{path}", self.base);
        let result = if *method == Method::POST {
            let request = self.agent.post(&url).header(CONTENT_TYPE, "application/json");
            prepared(request, authorization, wait).send(body)
        } else {
            let request = if *method == Method::DELETE { self.agent.delete(&url) } else { self.agent.get(&url) };
            prepared(request, authorization, wait).call()
        };
        result.map_err(|error| self.called().unanswered(&error, method, answer_max(wait)))
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
            let message = format!("the node at {} refuses the token in {}", self.place(), file.display());
            let hint = "name the api.token of that node's data directory with --token-file or --data-dir";
            return Err(CliError::failed(message).hinted(hint));
        }
        if !status.is_success() {
            return match serde_json::from_slice(&bytes) {
                Ok(problem) => Err(refusal(status, &problem, list)),
                Err(_) => Err(self.called().no_node(format_args!("it answers {status}"))),
            };
        }
        let mut deserializer = serde_json::Deserializer::from_slice(&bytes);
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            if error.inner().classify() == Category::Data {
                return self.called().not_understood(error);
            }
            self.called().no_node("its answer is no JSON")
        })
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

    use kolo_api::token_call::TokenCall;

    use super::*;
    use crate::{
        exit::Exit,
        samples::{TOKEN, answer, serve},
    };

    #[test]
    fn the_token_is_proven_and_the_answer_read() {
        let (client, server) = serve(vec![("200 OK", r#"{"sites":[],"bans":[],"next":null}"#.to_owned())]);
        let sites: SiteList = client.get("/v1/sites").unwrap();
        assert!(sites.sites.is_empty());
        let asked = &server.join().unwrap()[0];
        assert!(asked.starts_with("GET /v1/sites HTTP/1.1") && !asked.contains(TOKEN), "{asked}");
        let shown = asked.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap();
        let call = TokenCall::read(shown).unwrap();
        assert!(call.nonce == "n-1" && call.is_by(&TokenKey::of(TOKEN), "GET", "/v1/sites"), "{asked}");
    }

    #[test]
    fn who_does_not_know_the_token_gets_nothing_of_it() {
        let proof = |proof: String| serde_json::to_string(&NodeProof { nonce: "n-1".to_owned(), proof }).unwrap();
        for (status, body) in [
            ("503 Service Unavailable", String::new()),
            ("404 Not Found", r#"{"status":404,"title":"no","detail":"no such token"}"#.to_owned()),
            ("200 OK", "<html>hello</html>".to_owned()),
            ("200 OK", proof(String::new())),
            ("200 OK", proof("0".repeat(64))),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let base = format!("http://{}", listener.local_addr().unwrap());
            let answered = body.clone();
            let squatter = thread::spawn(move || answer(&mut listener.accept().unwrap().0, status, |_| answered));
            let client = Client::new(base.clone(), Shown::Token { token: TOKEN.to_owned(), file: "a.token".into() });
            let error = client.post::<serde_json::Value>("/v1/drain", &"a secret").unwrap_err();
            let asked = squatter.join().unwrap();
            assert!(!asked.contains(TOKEN) && !asked.contains("secret") && !asked.contains("drain"), "{asked}");
            assert!(!asked.contains(&String::from(TokenKey::of(TOKEN))), "{asked}");
            assert_eq!(error.exit(), Exit::Failure);
            let told = error.to_string();
            let expected =
                format!("what listens at {base} is not the node whose token is in a.token: it does not know");
            assert!(told.starts_with(&expected) && told.ends_with("; nothing was sent"), "{told}");
            assert!(error.hint().is_some_and(|hint| hint.contains("--token-file")));
        }
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
