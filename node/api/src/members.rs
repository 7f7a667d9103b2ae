//! Members and revocations of the grid.

use broker::{
    ids::SiteId,
    time::Time,
    trust::{PublicKey, Role, Subject},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer of `GET /v1/grid`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GridView {
    pub id: String,
    pub form: String,
    /// The first root, which the id names; none of an open grid.
    pub root: Option<PublicKey>,
    /// All roots that are known, the first one first.
    pub roots: Vec<RootView>,
    /// A second successor of one of them, which is refused: whoever has signed it has the key of an older root.
    pub rival: Option<PublicKey>,
    pub site: SiteId,
    pub members: Vec<MemberView>,
    pub revocations: Vec<RevocationView>,
}

impl GridView {
    /// Whether `key` is a root of the grid, of whatever time.
    #[must_use]
    pub fn is_root(&self, key: &PublicKey) -> bool {
        self.roots.iter().any(|root| root.key == *key)
    }
}

/// A root key of a closed grid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RootView {
    pub key: PublicKey,
    /// From when on nothing counts that leads to it only; none of the newest.
    pub until: Option<Time>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    pub subject: Subject,
    pub role: Role,
    pub name: String,
    pub expires: Option<Time>,
    pub revoked: bool,
    /// Start of the member's credential, where the node knows the credential.
    pub since: Option<Time>,
    /// The invitation that it came by, as far as the node knows it.
    pub invitation: Option<InvitationView>,
}

/// An invitation; only its key is always known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvitationView {
    /// Whoever revokes it revokes all who came by it.
    pub key: PublicKey,
    /// The root, or an admin.
    pub issuer: Option<PublicKey>,
    pub role: Option<Role>,
    /// Empty when it leaves the name to the member.
    pub name: Option<String>,
    pub issued: Option<Time>,
    pub expires: Option<Time>,
}

impl InvitationView {
    /// One of which nothing else is known.
    #[must_use]
    pub fn of_key(key: PublicKey) -> InvitationView {
        InvitationView { key, issuer: None, role: None, name: None, issued: None, expires: None }
    }

    /// Adds what another view of the same invitation knows.
    pub fn learn(&mut self, other: &InvitationView) {
        self.issuer = self.issuer.or(other.issuer);
        self.role = self.role.or(other.role);
        self.name = self.name.take().or_else(|| other.name.clone());
        self.issued = self.issued.or(other.issued);
        self.expires = self.expires.or(other.expires);
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RevocationView {
    pub subject: Subject,
    pub revoked: Time,
    pub keep_until: Time,
    pub author: PublicKey,
    /// Whether the hosts that the subject had reserved became free.
    pub takes_back: bool,
}

/// Answer of `POST /v1/grid/revocations`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Revoked {
    /// Whether it was news.
    pub added: bool,
    /// How many are known now.
    pub revocations: usize,
}
