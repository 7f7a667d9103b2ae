//! How a credential leads back to the root of its grid: each credential is signed by the subject of the one before.
//!
//! Before them stand the statements that lead from the grid's first root to the one that has signed, where that is a later one.
//! The longest way: the root invites an admin, who makes a credential of its own with that invitation, then an
//! invitation, with which a member makes a credential of its own. Invariant: no link outlives or exceeds the one before.

use serde::{Deserialize, Serialize};

use super::{Credential, Limits, PublicKey, Role, Roots, SignedText, Statement as _, Subject, Successor, TrustError};
use crate::time::Time;

/// Most credentials of a chain.
pub const LINKS_MAX: usize = 4;

/// Statements about successors of the root, if any, and credentials: the first signed by the root, the last the holder's; unchecked
/// until [`Chain::verify`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Chain(Vec<SignedText>);

/// The holder of a verified chain, with its rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Who.
    pub subject: Subject,
    /// What for.
    pub role: Role,
    /// The name that an admin has given the holder, not unique. One that a user has chosen is `NAME@FINGERPRINT`, with that of the
    /// invitation, so that nobody takes a name that another was given; a site's is as it says.
    pub name: String,
    /// How much the holder may have at one site.
    pub limits: Limits,
    /// From this second on the chain is worth nothing: it has expired, or its root counts no more.
    pub expires: Time,
    /// Every subject of the chain: when one is revoked, so is the holder.
    pub lineage: Vec<Subject>,
    /// To whom the limits were given: the first subject that is no admin, however many keys it has made credentials for.
    pub account: Subject,
}

impl Chain {
    /// The chain of one credential that the root has signed.
    #[must_use]
    pub fn of_root(link: SignedText) -> Chain {
        Chain(vec![link])
    }

    /// The chain of one credential that a later root has signed, to which `statements` lead from the first.
    #[must_use]
    pub fn of_later_root<'a>(statements: impl IntoIterator<Item = &'a SignedText>, link: SignedText) -> Chain {
        Chain(statements.into_iter().cloned().chain([link]).collect())
    }

    /// The chain with one more link, signed by the subject of the last.
    #[must_use]
    pub fn with(&self, link: SignedText) -> Chain {
        Chain(self.0.iter().cloned().chain([link]).collect())
    }

    /// Who signed the last link.
    #[must_use]
    pub fn last_author(&self) -> Option<&PublicKey> {
        self.0.last().map(|link| &link.author)
    }

    /// The links, the root's first.
    #[must_use]
    pub fn links(&self) -> &[SignedText] {
        &self.0
    }

    fn parts(&self) -> (&[SignedText], &[SignedText]) {
        let successors = self.0.iter().take_while(|link| link.claims_to_be::<Successor>()).count();
        self.0.split_at(successors)
    }

    /// The statements before the credentials, that lead to a later root.
    #[must_use]
    pub fn successors(&self) -> &[SignedText] {
        self.parts().0
    }

    /// The credentials, the root's first.
    #[must_use]
    pub fn credentials(&self) -> &[SignedText] {
        self.parts().1
    }

    /// The root that the credentials lead to, unchecked.
    #[must_use]
    pub fn root(&self) -> Option<&PublicKey> {
        self.credentials().first().map(|link| &link.author)
    }

    /// Bytes of all texts, keys and signatures, for bounds on memory.
    pub(super) fn size_bytes(&self) -> usize {
        self.0.iter().map(SignedText::size_bytes).sum()
    }

    /// Checks every link and returns the holder of the last, where nothing is known but the grid's first root. Revocations are checked
    /// elsewhere.
    ///
    /// # Errors
    /// [`TrustError`] names the first link that is wrong. An invitation is no credential.
    pub fn verify(&self, grid: &str, root: &PublicKey, now: Time) -> Result<Holder, TrustError> {
        self.verify_under(grid, &Roots::of(*root), now)
    }

    /// Checks every link under the roots that are known, and returns the holder of the last one.
    ///
    /// # Errors
    /// [`TrustError`] names the first link that is wrong; [`TrustError::RootFollowed`] when the root's time is over.
    pub fn verify_under(&self, grid: &str, roots: &Roots, now: Time) -> Result<Holder, TrustError> {
        self.walk(grid, &roots.with(grid, self.successors())?, now, false)
    }

    /// Checks the credentials alone, for a caller whose `roots` have taken in the chain's statements about successors: no signature is
    /// checked twice.
    ///
    /// # Errors
    /// As for [`Chain::verify_under`].
    pub(super) fn verify_credentials(&self, grid: &str, roots: &Roots, now: Time) -> Result<Holder, TrustError> {
        self.walk(grid, roots, now, false)
    }

    /// As [`Chain::verify`], for a chain whose last link is an invitation.
    ///
    /// # Errors
    /// [`TrustError`] names the first link that is wrong.
    pub fn verify_invitation(&self, grid: &str, root: &PublicKey, now: Time) -> Result<Holder, TrustError> {
        let roots = Roots::of(*root).with(grid, self.successors())?;
        self.walk(grid, &roots, now, true)
    }

    fn walk(&self, grid: &str, roots: &Roots, now: Time, to_invitation: bool) -> Result<Holder, TrustError> {
        let credentials = self.credentials();
        if credentials.is_empty() || credentials.len() > LINKS_MAX {
            return Err(TrustError::Links(credentials.len()));
        }
        let root = credentials[0].author;
        let no_root = TrustError::BrokenChain { link: 1, signer: "the root of the grid" };
        let root_until = roots.until(&root).ok_or(no_root)?;
        let (mut lineage, mut account, mut is_named) = (Vec::with_capacity(credentials.len()), None, true);
        let mut last: Option<Credential> = None;
        for (link, signed) in (1..).zip(credentials) {
            let (signer, name) = match last.as_ref().map(|maker| &maker.subject) {
                None => (Some(&root), "the root of the grid"),
                Some(Subject::Key(key)) => (Some(key), "the holder of the one before"),
                Some(Subject::Site(_)) => (None, "anybody who may: a site makes no credentials"),
            };
            if signer != Some(&signed.author) {
                return Err(TrustError::BrokenChain { link, signer: name });
            }
            let credential: Credential = signed.open()?;
            credential.check()?;
            if credential.grid != grid {
                let expected = grid.to_owned();
                return Err(TrustError::WrongGrid { kind: Credential::KIND, expected, found: credential.grid });
            }
            if credential.expires <= now {
                return Err(TrustError::Expired { kind: Credential::KIND, at: credential.expires });
            }
            if let Some(maker) = &last {
                may_make(maker, &credential).map_err(|detail| TrustError::Exceeds { link, detail })?;
            }
            is_named = last.as_ref().is_none_or(|maker| !maker.is_invitation || !maker.name.is_empty());
            lineage.push(credential.subject.clone());
            if credential.role != Role::Admin {
                account.get_or_insert_with(|| credential.subject.clone());
            }
            last = Some(credential);
        }
        let Some(holder) = last else { return Err(TrustError::Links(0)) };
        // Not before all signatures: what is made up is no old credential.
        if root_until <= now {
            return Err(TrustError::RootFollowed { old: root, new: *roots.newest(), at: root_until });
        }
        match (holder.is_invitation, to_invitation) {
            (true, false) => Err(TrustError::Invitation("an invitation is no credential: join with it first")),
            (false, true) => Err(TrustError::Invitation("a credential is no invitation")),
            _ => Ok(Holder {
                name: match &account {
                    Some(Subject::Key(account)) if !is_named && holder.role != Role::Site => {
                        format!("{}@{}", holder.name, account.fingerprint())
                    }
                    _ => holder.name,
                },
                account: account.unwrap_or_else(|| holder.subject.clone()),
                subject: holder.subject,
                role: holder.role,
                limits: holder.limits,
                expires: holder.expires.min(root_until),
                lineage,
            }),
        }
    }
}

/// Whether the holder of `maker` may make `made`; else why not.
fn may_make(maker: &Credential, made: &Credential) -> Result<(), String> {
    if maker.is_invitation {
        if made.is_invitation {
            return Err("an invitation cannot make another invitation".to_owned());
        }
        if made.role != maker.role {
            return Err(format!("role: the invitation is for {}, not {}", maker.role, made.role));
        }
        if !maker.name.is_empty() && made.name != maker.name {
            return Err(format!("name: the invitation is for {:?}", maker.name));
        }
    } else if maker.role != Role::Admin {
        return Err(format!("role: a {} makes no credentials", maker.role));
    } else if made.role == Role::Admin {
        return Err("role: only the root makes admins".to_owned());
    }
    if let Some(limit) = made.limits.wider_than(&maker.limits) {
        return Err(format!("limits.{limit}: wider than its maker's"));
    }
    if made.expires > maker.expires {
        return Err("expires: later than its maker's".to_owned());
    }
    Ok(())
}
