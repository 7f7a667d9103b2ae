//! What the handlers of the API need: the parts of the node, and the door that a call came through.

use std::{net::SocketAddr, sync::Arc};

use axum::http::{HeaderMap, header};
use broker::{ids::SiteId, protocol::Advert};
use discovery::Discovery;

use super::{request_view::SiteWords, sessions::Sessions};
use crate::{
    entry::{bookings::Bookings, driver::Coordinator, requests::Requests},
    net::membership::Membership,
    runtime::{changes::Changes, metrics::Metrics},
    site::{activation::Activations, feed::SharedFeedState, task::SharedLedger},
    trust::Secret,
};

/// What the handlers need.
pub struct ApiState {
    pub discovery: Discovery,
    pub ledger: SharedLedger,
    /// Requests of this node.
    pub requests: Arc<Requests>,
    /// What sites have told of their reservations.
    pub bookings: Bookings,
    /// For new requests.
    pub coordinator: Coordinator,
    /// What is known of the feed of own work, if there is one.
    pub feed: Option<SharedFeedState>,
    /// Who must be shown.
    pub token: Secret,
    /// Browsers that have shown it.
    pub sessions: Sessions,
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
    /// When the node started, Unix seconds.
    pub started: u64,
    /// Where the local API listens.
    pub address: String,
    /// What the node may be called, beside its addresses and `localhost`.
    pub names: Vec<String>,
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
    /// Whether a call shows the token, or the cookie of a session.
    pub fn is_known(&self, headers: &HeaderMap, via: &Via) -> bool {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        shown.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|shown| self.token.is(shown))
            || via.session_cookie(headers).is_some_and(|shown| self.sessions.is_open(shown))
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
