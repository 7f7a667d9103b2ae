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
    pub root: Option<PublicKey>,
    pub site: SiteId,
    pub members: Vec<MemberView>,
    pub revocations: Vec<RevocationView>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    pub subject: Subject,
    pub role: Role,
    pub name: String,
    pub expires: Option<Time>,
    pub revoked: bool,
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
