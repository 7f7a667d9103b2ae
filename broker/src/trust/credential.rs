//! What a member of a closed grid may do, as the root or an admin has signed it.
//!
//! Invariant: a credential that passed [`Credential::check`] has a subject that fits its role, a name that cannot be
//! taken for a key, and ends after it begins.

use serde::{Deserialize, Serialize};

use super::{PublicKey, Statement, TrustError, key::FINGERPRINT_CHARACTERS};
use crate::{
    ids::{SiteId, tail_of},
    time::{Span, Time},
};

/// Longest name of a member in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// What a credential is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Offers hosts and carries requests.
    Site,
    /// Asks for reservations.
    User,
    /// Makes credentials of sites and users, revokes, and may do what a user may.
    Admin,
}

impl Role {
    /// The role as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Site => "site",
            Role::User => "user",
            Role::Admin => "admin",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who holds a credential. A user or an admin is a key; a site is its peer id, which the transport proves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// A key.
    Key(PublicKey),
    /// A site.
    Site(SiteId),
}

impl Subject {
    /// The key; a site is named by its id.
    #[must_use]
    pub fn key(&self) -> Option<&PublicKey> {
        match self {
            Subject::Key(key) => Some(key),
            Subject::Site(_) => None,
        }
    }

    /// The subject for display: the end of a site's id, the fingerprint of a key.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Subject::Key(key) => format!("key {}", key.fingerprint()),
            Subject::Site(site) => format!("site {}", tail_of(site.as_str())),
        }
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Key(key) => write!(f, "key {key}"),
            Subject::Site(site) => write!(f, "site {site}"),
        }
    }
}

/// How much one user may have at one site. `None` leaves it to the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Most holds at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_holds: Option<u32>,
    /// Most reservations (and holds, which may become some) at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_reservations: Option<u32>,
    /// Most hours, summed over the hosts of all reservations that have not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_host_hours: Option<u64>,
    /// Most credits, agreed in sum for all reservations that have not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_credits: Option<u32>,
    /// No reservation ends later than this from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_reach_s: Option<Span>,
}

impl Limits {
    /// Each limit as `self` has it, else as `default` has it.
    #[must_use]
    pub fn or(self, default: Limits) -> Limits {
        Limits {
            max_holds: self.max_holds.or(default.max_holds),
            max_reservations: self.max_reservations.or(default.max_reservations),
            max_host_hours: self.max_host_hours.or(default.max_host_hours),
            max_credits: self.max_credits.or(default.max_credits),
            max_reach_s: self.max_reach_s.or(default.max_reach_s),
        }
    }

    /// The first limit in which `self` allows more than `other`.
    pub(super) fn wider_than(&self, other: &Limits) -> Option<&'static str> {
        fn is_wider<T: PartialOrd>(own: Option<T>, other: Option<T>) -> bool {
            match (own, other) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(own), Some(other)) => own > other,
            }
        }
        [
            ("max_holds", is_wider(self.max_holds, other.max_holds)),
            ("max_reservations", is_wider(self.max_reservations, other.max_reservations)),
            ("max_host_hours", is_wider(self.max_host_hours, other.max_host_hours)),
            ("max_credits", is_wider(self.max_credits, other.max_credits)),
            ("max_reach_s", is_wider(self.max_reach_s, other.max_reach_s)),
        ]
        .into_iter()
        .find_map(|(name, wider)| wider.then_some(name))
    }
}

/// What a member may do. An invitation is a credential that makes exactly one kind of other credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// In this grid.
    pub grid: String,
    /// Who holds it; of an invitation, the key in the token.
    pub subject: Subject,
    /// What it is for.
    pub role: Role,
    /// The member's name. Only an invitation may leave it empty: the member that uses it then chooses.
    pub name: String,
    /// How much the member may have at one site.
    #[serde(default)]
    pub limits: Limits,
    /// Whether it only makes a credential.
    #[serde(default)]
    pub is_invitation: bool,
    /// When it was made, for display.
    pub issued: Time,
    /// From this second on it is worth nothing.
    pub expires: Time,
}

impl Statement for Credential {
    const KIND: &'static str = "credential";
    const TEXT_BYTES_MAX: usize = 2048;
}

impl Credential {
    /// Checks the credential's own fields.
    ///
    /// # Errors
    /// [`TrustError::Malformed`] names the key and what was expected.
    pub fn check(&self) -> Result<(), TrustError> {
        let malformed = |detail: &str| Err(TrustError::Malformed { kind: Self::KIND, detail: detail.to_owned() });
        if !self.issued.is_in_range() || !self.expires.is_in_range() || self.expires <= self.issued {
            return malformed("expires: expected a time after issued");
        }
        let must_be_site = self.role == Role::Site && !self.is_invitation;
        if must_be_site != matches!(self.subject, Subject::Site(_)) {
            return malformed("subject: expected a site for role site, and a key otherwise and for invitations");
        }
        let may_be_unnamed = self.is_invitation && self.name.is_empty();
        if !may_be_unnamed && !is_name(&self.name) {
            return malformed("name: expected 1 to 64 bytes, no control characters, and nothing that looks like a key");
        }
        Ok(())
    }
}

/// Whether a member may have this name. One that looks like a key could be taken for another user's in a policy.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_plain = !name.trim().is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
    let looks_like_key = name.len() >= FINGERPRINT_CHARACTERS && name.bytes().all(|b| b.is_ascii_hexdigit());
    is_plain && !looks_like_key
}
