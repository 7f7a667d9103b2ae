//! What the handlers of the API need: the parts of the node, and the door that a call came through.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, HeaderName, header};
use broker::{ids::SiteId, protocol::Advert};
use discovery::Discovery;
use kolo_api::batch_run::RunQuestion;
use kolo_runtime::{audit::AuditLog, changes::Changes, lock::locked, metrics::Metrics, rare::Rare};
use kolo_trust::{ApiTokens, TokenKey, TrustFileError};
use tokio::sync::watch;
use tracing::warn;

use super::{
    challenge::Challenges, local_port::LocalPort, operator_token::OperatorToken, prices_seen::PricesSeen,
    proofs::Proofs, rates::Rates, scopes::Caller, sessions::Sessions, shown::SiteWords, upkeep::Upkeep,
};
use crate::{
    entry::{bookings::Bookings, driver::Coordinator, requests::Requests, waiting::Waiting},
    net::membership::Membership,
    seats::RunSite,
    site::{activation::Activations, feed::SharedFeedState, task::SharedLedger},
};

/// How often the node runs batches by itself, and how.
pub type BatchRuns = watch::Sender<(Option<Duration>, RunQuestion)>;

/// What the handlers need.
pub struct ApiState {
    pub discovery: Discovery,
    pub ledger: SharedLedger,
    /// Requests of this node.
    pub requests: Arc<Requests>,
    /// Requests that wait for a batch.
    pub waiting: Waiting,
    /// How often they are planned without anybody asking.
    pub batch_runs: BatchRuns,
    /// What sites have told of their reservations.
    pub bookings: Bookings,
    /// For new requests.
    pub coordinator: Coordinator,
    /// What is known of the feed of own work, if there is one.
    pub feed: Option<SharedFeedState>,
    /// The operator's token.
    pub token: OperatorToken,
    /// Those with a scope.
    pub tokens: ApiTokens,
    /// Browsers that have shown one of them.
    pub sessions: Sessions,
    /// For callers who show no token.
    pub strangers: Strangers,
    /// What runs here.
    pub run_site: Arc<RunSite>,
    /// Who has changed what.
    pub audit: Arc<AuditLog>,
    /// What this node has done.
    pub metrics: Arc<Metrics>,
    /// Announces changes.
    pub changes: Changes,
    /// What the owner's hook has not done.
    pub activations: Activations,
    /// This site's name for people.
    pub name: String,
    /// Who belongs to the grid, and for whom this node signs.
    pub membership: Arc<Membership>,
    /// What the owner changes while the node runs.
    pub upkeep: Arc<Upkeep>,
    /// When the node started, Unix seconds.
    pub started: u64,
    /// Where the local API listens, once the node has that port.
    pub port: LocalPort,
    /// What the node may be called, beside its addresses and `localhost`.
    pub names: Vec<String>,
}

/// What is kept for callers who show no token.
pub struct Strangers {
    /// Calls by those who have a token.
    pub proofs: Proofs,
    /// Calls that users are about to sign.
    pub challenges: Challenges,
    /// How often they may call.
    pub rates: Rates,
    /// Whether they are told of prices.
    pub prices: PricesSeen,
    /// Calls that were not let through.
    refused: Mutex<Rare>,
}

impl Strangers {
    /// Nobody has called yet.
    ///
    /// # Errors
    /// [`TrustFileError::Random`].
    pub fn new(now: Instant) -> Result<Strangers, TrustFileError> {
        Ok(Strangers {
            proofs: Proofs::new(now)?,
            challenges: Challenges::default(),
            rates: Rates::new(now),
            prices: PricesSeen::default(),
            refused: Mutex::default(),
        })
    }
}

/// Header with the half of a session's secret that the page keeps.
const PAGE: HeaderName = HeaderName::from_static("kolo-page");

/// The door through which a call has come.
#[derive(Debug, Clone)]
pub struct Via {
    /// Where a browser finds the page.
    pub address: SocketAddr,
    /// Whether it speaks TLS.
    pub is_tls: bool,
    /// Whether only the node's own user and root come through it. Commands of users that run as the node's user do not see its directory.
    pub is_socket: bool,
}

impl Via {
    /// How a browser calls the door's protocol.
    pub fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// Cookies are shared by all ports of a machine, so the name says which node it is of.
    pub fn cookie_name(&self) -> String {
        format!("kolo-{}", self.address.port())
    }

    /// The secret of the session that a call shows: the cookie, and what only the page at this port has.
    pub fn session(&self, headers: &HeaderMap) -> Option<String> {
        let page = headers.get(PAGE)?.to_str().ok()?;
        Some(self.session_cookie(headers)?.to_owned() + page)
    }

    fn session_cookie<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = self.cookie_name();
        let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

impl ApiState {
    /// Whose token this is.
    pub fn holder_of(&self, token: &str) -> Option<Caller> {
        if self.token.is(token) {
            return Some(Caller::Operator);
        }
        self.tokens.find(token).map(Caller::Token)
    }

    /// The holder and the key of the token with this [`TokenKey::name`].
    pub fn holder_named(&self, name: &str) -> Option<(Caller, TokenKey)> {
        let own = self.token.key();
        if own.name() == name {
            return Some((Caller::Operator, own));
        }
        self.tokens.named(name).map(|(token, key)| (Caller::Token(token), key))
    }

    /// Whether the token by which a session was opened still counts.
    pub fn is_in_force(&self, caller: &Caller) -> bool {
        match caller {
            Caller::Token(token) => self.tokens.contains(token),
            Caller::Stranger | Caller::User(_) | Caller::Operator => true,
        }
    }

    /// Counts a call that is not let through, and tells the owner once in a while.
    pub fn denied(&self, why: &'static str, from: IpAddr) {
        self.metrics.denied(why);
        if let Some(times) = locked(&self.strangers.refused).add(Instant::now()) {
            warn!(times, why, %from, "calls of the API were refused");
        }
    }

    /// The name that a site gives itself; empty when it is not known.
    pub fn site_name(&self, site: &SiteId) -> String {
        self.discovery.view().with_site(site, |view| view.advert().name.clone()).unwrap_or_default()
    }

    /// What a site says of itself.
    pub fn site_words(&self, site: &SiteId) -> SiteWords {
        let words = |advert: &Advert| SiteWords { name: advert.name.clone(), contact: advert.contact.clone() };
        self.discovery.view().with_site(site, |view| words(view.advert())).unwrap_or_default()
    }
}
