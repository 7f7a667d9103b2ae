//! Making credentials: a grid's first ones, invitations, those made with an invitation, and revocations.
//!
//! Invariant: what is made here has been verified as every site will verify it.

use broker::{
    ids::SiteId,
    time::{Span, Time},
    trust::{
        Chain, Credential, Holder, Limits, PublicKey, Revocation, Role, Roots, SignedRevocation, SignedText, Subject,
        TrustError,
    },
};
use ed25519_dalek::SigningKey;

use super::{
    error::TrustFileError,
    files::{ROOT_KEY_FILE, load_key, random_bytes},
    grid_file::GridFile,
    issued::Issued,
    revocation_file::known_roots,
    take_back::TakeBack,
    token::Invitation,
    wallet::Wallet,
};

/// How long the founder's own credentials last: ten years.
pub const LIFE_OF_FOUNDER: Span = Span(3653 * 86_400);

/// Who may invite and revoke: the root, or an admin.
pub struct Issuer {
    key: SigningKey,
    /// The admin's credentials; none of the root.
    chain: Option<Chain>,
    /// The roots that are known where the key is.
    roots: Roots,
}

/// What an invitation is to say.
#[derive(Debug, Clone)]
pub struct Terms {
    pub role: Role,
    /// The member's name; empty to leave it to them.
    pub name: String,
    pub limits: Limits,
    /// When the invitation and every credential made with it expire.
    pub expires: Time,
}

/// An invitation, and what its maker keeps of it.
pub struct Invited {
    /// For the token.
    pub invitation: Invitation,
    /// For the list of those made.
    pub issued: Issued,
}

/// The first root of a closed grid.
fn root_of(grid: &GridFile) -> Result<PublicKey, TrustFileError> {
    grid.root.ok_or(TrustFileError::Trust(TrustError::OpenGrid))
}

/// The founder's credentials in a grid that is being made: of the first site, and of an admin.
///
/// # Errors
/// [`TrustFileError::Trust`] when a name cannot be one.
pub fn found(
    grid: &GridFile,
    root: &SigningKey,
    site: (&SiteId, &str),
    admin: (&PublicKey, &str),
    now: Time,
) -> Result<(Chain, Chain), TrustFileError> {
    let of_root = |subject: Subject, role: Role, name: &str| {
        let credential = Credential {
            grid: grid.id.clone(),
            subject,
            role,
            name: name.to_owned(),
            limits: Limits::default(),
            is_invitation: false,
            issued: now,
            expires: now + LIFE_OF_FOUNDER,
        };
        let chain = Chain::of_root(SignedText::sign(&credential, root)?);
        chain.verify(&grid.id, &PublicKey::of(root), now)?;
        Ok::<_, TrustFileError>(chain)
    };
    let site = of_root(Subject::Site(site.0.clone()), Role::Site, site.1)?;
    let admin = of_root(Subject::Key(*admin.0), Role::Admin, admin.1)?;
    Ok((site, admin))
}

impl Issuer {
    /// The root itself, which needs no credentials.
    pub(crate) fn root(key: SigningKey) -> Issuer {
        let roots = Roots::of(PublicKey::of(&key));
        Issuer { key, chain: None, roots }
    }

    /// Who may invite and revoke in `grid` from here: the newest root's key in the data directory, else an admin's in one of the
    /// wallets. None when there is neither.
    ///
    /// # Errors
    /// [`TrustFileError`] when a file of theirs is wrong.
    pub fn find(
        grid: &GridFile,
        data_dir: &std::path::Path,
        wallets: &[Wallet],
    ) -> Result<Option<Issuer>, TrustFileError> {
        let roots = known_roots(data_dir, grid)?;
        if let Some(key) = load_key(&data_dir.join(ROOT_KEY_FILE))?
            && PublicKey::of(&key) == *roots.newest()
        {
            return Ok(Some(Issuer { key, chain: None, roots }));
        }
        for wallet in wallets {
            if let (Some(key), Some(chain)) = (wallet.key()?, wallet.credential(&grid.id, Role::Admin)?) {
                return Ok(Some(Issuer { key, chain: Some(chain), roots }));
            }
        }
        Ok(None)
    }

    /// Until when an invitation can count that is made here: no longer than its maker does.
    ///
    /// # Errors
    /// [`TrustFileError::Trust`] when an admin's own credentials do not count.
    pub fn counts_until(&self, grid: &GridFile, now: Time) -> Result<Time, TrustFileError> {
        match &self.chain {
            Some(chain) => Ok(chain.verify_under(&grid.id, &self.roots, now)?.expires),
            None => Ok(Time::MAX),
        }
    }

    /// Makes an invitation.
    ///
    /// # Errors
    /// [`TrustFileError::Trust`] when no site would accept it: the issuer's own credential is narrower, has expired, or leads to a root
    /// that counts no more.
    pub fn invite(&self, grid: &GridFile, terms: &Terms, now: Time) -> Result<Invited, TrustFileError> {
        let root = root_of(grid)?;
        let own = self.chain.as_ref().map(|chain| chain.verify_under(&grid.id, &self.roots, now)).transpose()?;
        let token_key = SigningKey::from_bytes(&random_bytes()?);
        let subject = Subject::Key(PublicKey::of(&token_key));
        let credential = Credential {
            grid: grid.id.clone(),
            subject: subject.clone(),
            role: terms.role,
            name: terms.name.clone(),
            // What is not said is as its maker has it, which is the most that it may be.
            limits: terms.limits.or(own.map(|own| own.limits).unwrap_or_default()),
            is_invitation: true,
            issued: now,
            expires: terms.expires,
        };
        let link = SignedText::sign(&credential, &self.key)?;
        let chain = match &self.chain {
            None => Chain::of_later_root(self.roots.statements(), link),
            Some(chain) => chain.with(link),
        };
        chain.verify_invitation(&grid.id, &root, now)?;
        let issued = Issued {
            subject,
            role: terms.role,
            name: terms.name.clone(),
            issued: now,
            expires: terms.expires,
            issuer: Some(PublicKey::of(&self.key)),
        };
        Ok(Invited { invitation: Invitation { chain, secret: token_key.to_bytes() }, issued })
    }

    /// Revokes `subject`, whose credential expires at `keep_until`.
    ///
    /// # Errors
    /// [`TrustFileError::Trust`] when it cannot be signed.
    pub fn revoke(
        &self,
        grid: &GridFile,
        subject: Subject,
        now: Time,
        keep_until: Time,
    ) -> Result<SignedRevocation, TrustFileError> {
        let revocation = Revocation { grid: grid.id.clone(), subject, revoked: now, keep_until };
        let statement = SignedText::sign(&revocation, &self.key)?;
        Ok(SignedRevocation { statement, issuer: self.chain.clone() })
    }

    /// Revokes `subject` as [`Issuer::revoke`] does, and takes its hosts back: to be told in this order.
    ///
    /// # Errors
    /// As for [`Issuer::revoke`].
    pub fn revoke_taking_back(
        &self,
        grid: &GridFile,
        subject: Subject,
        now: Time,
        keep_until: Time,
    ) -> Result<[SignedRevocation; 2], TrustFileError> {
        let plain = self.revoke(grid, subject, now, keep_until)?;
        let taking = TakeBack::from(plain.statement.open::<Revocation>()?);
        let statement = SignedText::sign(&taking, &self.key)?;
        Ok([plain, SignedRevocation { statement, issuer: None }])
    }
}

/// Makes a member's own credential with an invitation.
///
/// # Errors
/// [`TrustFileError::Trust`] when the invitation is no good (any more), or not for this.
pub fn accept(
    grid: &GridFile,
    invitation: &Invitation,
    subject: Subject,
    name: &str,
    now: Time,
) -> Result<Chain, TrustFileError> {
    let root = root_of(grid)?;
    let invited = invitation.chain.verify_invitation(&grid.id, &root, now)?;
    let credential = Credential {
        grid: grid.id.clone(),
        subject,
        role: invited.role,
        name: if invited.name.is_empty() { name.to_owned() } else { invited.name },
        limits: invited.limits,
        is_invitation: false,
        issued: now,
        expires: invited.expires,
    };
    let link = SignedText::sign(&credential, &SigningKey::from_bytes(&invitation.secret))?;
    let chain = invitation.chain.with(link);
    chain.verify(&grid.id, &root, now)?;
    Ok(chain)
}

/// Who holds a credential of `grid`; none in an open grid.
///
/// # Errors
/// [`TrustError`] when it does not count.
pub fn member(grid: &GridFile, chain: &Chain, now: Time) -> Result<Option<Holder>, TrustError> {
    grid.root.map(|root| chain.verify(&grid.id, &root, now)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, grid, key, terms};

    #[test]
    fn the_founders_credentials_and_those_of_the_invited_are_accepted() {
        let (grid, root) = grid();
        let site = SiteId::new("12D3site").unwrap();
        let ada = PublicKey::of(&key(2));
        let (of_site, of_admin) = found(&grid, &key(1), (&site, "lab"), (&ada, "ada"), NOW).unwrap();
        assert_eq!(member(&grid, &of_site, NOW).unwrap().unwrap().subject, Subject::Site(site));
        let admin = Issuer { key: key(2), chain: Some(of_admin), roots: Roots::of(root_of(&grid).unwrap()) };
        for issuer in [&root, &admin] {
            let limited = Terms { limits: Limits { max_holds: Some(8), ..Limits::default() }, ..terms(Role::User) };
            let invited = issuer.invite(&grid, &limited, NOW).unwrap();
            let bob = Subject::Key(PublicKey::of(&key(3)));
            let chain = accept(&grid, &invited.invitation, bob.clone(), "bob", NOW).unwrap();
            let holder = member(&grid, &chain, NOW).unwrap().unwrap();
            assert!(holder.name.starts_with("bob@") && holder.limits.max_holds == Some(8), "{holder:?}");
            assert!(holder.lineage.contains(&invited.issued.subject), "whoever revokes the invitation revokes bob");
        }
        let error = admin.invite(&grid, &terms(Role::Admin), NOW).err().unwrap().to_string();
        assert!(error.contains("only the root makes admins"), "{error}");
    }

    #[test]
    fn an_admin_with_limits_gives_them_on() {
        let (grid, root) = grid();
        let limits = Limits { max_holds: Some(8), ..Limits::default() };
        let to_admin = root.invite(&grid, &Terms { limits, ..terms(Role::Admin) }, NOW).unwrap();
        let eva = Subject::Key(PublicKey::of(&key(2)));
        let chain = Some(accept(&grid, &to_admin.invitation, eva, "eva", NOW).unwrap());
        let admin = Issuer { key: key(2), chain, roots: Roots::of(root_of(&grid).unwrap()) };
        let until = admin.counts_until(&grid, NOW).unwrap();
        assert_eq!((until, root.counts_until(&grid, NOW).unwrap()), (terms(Role::Admin).expires, Time::MAX));
        let beyond = Terms { expires: until + Span(1), ..terms(Role::User) };
        assert!(admin.invite(&grid, &beyond, NOW).is_err() && admin.invite(&grid, &terms(Role::User), NOW).is_ok());
        for role in [Role::User, Role::Site] {
            let invited = admin.invite(&grid, &terms(role), NOW).unwrap();
            let root = root_of(&grid).unwrap();
            let holder = invited.invitation.chain.verify_invitation(&grid.id, &root, NOW).unwrap();
            assert_eq!(holder.limits.max_holds, Some(8), "{role}");
        }
    }

    #[test]
    fn an_expired_invitation_makes_nothing() {
        let (grid, root) = grid();
        let invited = root.invite(&grid, &terms(Role::User), NOW).unwrap();
        let bob = Subject::Key(PublicKey::of(&key(3)));
        let error = accept(&grid, &invited.invitation, bob, "bob", NOW + Span(3600)).unwrap_err().to_string();
        assert!(error.contains("expired"), "{error}");
    }
}
