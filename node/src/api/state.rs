//! What the handlers of the API need: the parts of the node, and the door that a call came through.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Instant,
};

use axum::http::{HeaderMap, header};
use broker::{ids::SiteId, protocol::Advert};
use discovery::Discovery;
use tracing::warn;

use super::{
    batch_every::BatchRuns, challenge::Challenges, prices::PricesSeen, rates::Rates, request_view::SiteWords,
    scopes::Caller, sessions::Sessions, upkeep::Upkeep,
};
use crate::{
    entry::{bookings::Bookings, driver::Coordinator, requests::Requests, waiting::Waiting},
    net::membership::Membership,
    run::site::RunSite,
    runtime::{audit::AuditLog, changes::Changes, lock::locked, metrics::Metrics, rare::Rare},
    site::{activation::Activations, feed::SharedFeedState, task::SharedLedger},
    trust::{ApiTokens, Secret},
};

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
    pub token: Secret,
    /// Those with a scope.
    pub tokens: ApiTokens,
    /// Browsers that have shown one of them.
    pub sessions: Sessions,
    /// For callers without a token.
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
    /// Where the local API listens.
    pub address: String,
    /// What the node may be called, beside its addresses and `localhost`.
    pub names: Vec<String>,
}

/// What is kept for callers without a token.
pub struct Strangers {
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
    pub fn new(now: Instant) -> Strangers {
        Strangers {
            challenges: Challenges::default(),
            rates: Rates::new(now),
            prices: PricesSeen::default(),
            refused: Mutex::default(),
        }
    }
}

/// The door through which a call has come.
#[derive(Debug, Clone)]
pub struct Via {
    pub address: SocketAddr,
    /// Whether it speaks TLS.
    pub is_tls: bool,
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

    /// The session that a call shows.
    pub fn session_cookie<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
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
