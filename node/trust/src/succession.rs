//! Rotation of a grid's root key: the keys as files, the statement that lets the new one follow, and revocations and credentials signed
//! anew.
//!
//! Invariant: neither key is lost when it is interrupted, and given again it goes on with the same new key: that lies in a file of its
//! own until the node has the statement on disk and all else is signed anew, and only then takes the old one's place.

use std::path::{Path, PathBuf};

use broker::{
    time::{Span, Time},
    trust::{Chain, Credential, PublicKey, Role, Roots, SignedRevocation, SignedText, Subject, Successor, TrustError},
};
use ed25519_dalek::SigningKey;

use super::{
    error::TrustFileError,
    files::{self, ROOT_KEY_FILE, load_key, load_or_create_key},
    grid_file::GridFile,
    issue::Issuer,
    revocation_file::{known_roots, told_as_revocation},
    wallet::Wallet,
};

/// The new root key, until it is the grid's.
const NEXT_ROOT_KEY_FILE: &str = "grid-root-next.key";

/// Where the key of a root is kept that was followed by another.
pub fn former_root_key_path(data_dir: &Path, root: &PublicKey) -> PathBuf {
    data_dir.join(format!("grid-root-{}.key", root.fingerprint()))
}

/// A rotation of the root key that was begun.
pub struct Rotation {
    /// For the node, which tells it to others.
    pub statement: SignedRevocation,
    /// What it says.
    pub successor: Successor,
    next: SigningKey,
}

/// A credential that the new root has signed in place of the old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    pub role: Role,
    /// The file.
    pub path: PathBuf,
}

impl Rotation {
    /// Makes the new root key and signs that it follows the newest one, whose key is in `old_key`, else in the data directory. One that
    /// was interrupted goes on.
    ///
    /// # Errors
    /// [`TrustFileError`] when the old key is not there, or the grid has had too many roots.
    pub fn begin(
        (grid, data_dir): (&GridFile, &Path),
        old_key: Option<&Path>,
        now: Time,
        overlap: Span,
    ) -> Result<Rotation, TrustFileError> {
        let mut roots = known_roots(data_dir, grid)?;
        let next_path = data_dir.join(NEXT_ROOT_KEY_FILE);
        if load_key(&next_path)?.is_none_or(|next| PublicKey::of(&next) != *roots.newest()) {
            let own = data_dir.join(ROOT_KEY_FILE);
            let old = root_key(old_key.unwrap_or(&own), roots.newest())?;
            let next = load_or_create_key(&next_path)?;
            roots.learn(&grid.id, &Successor::sign(&grid.id, (&old, &next), now, now + overlap)?)?;
        }
        let next = root_key(&next_path, roots.newest())?;
        let (Some(signed), Some(successor)) = (roots.statements().last(), roots.last()) else {
            return Err(TrustError::UnknownRoot(PublicKey::of(&next)).into());
        };
        Ok(Rotation { statement: told_as_revocation(signed.clone()), successor: successor.clone(), next })
    }

    /// Signs the last succession again, so that the old root counts until `now` only. The old key is in `old_key`, else where
    /// [`Rotation::finish`] has left it.
    ///
    /// # Errors
    /// [`TrustFileError`] when a key is not there, or the first root has no successor.
    pub fn end_overlap(
        (grid, data_dir): (&GridFile, &Path),
        old_key: Option<&Path>,
        now: Time,
    ) -> Result<Rotation, TrustFileError> {
        let roots = known_roots(data_dir, grid)?;
        let own = data_dir.join(ROOT_KEY_FILE);
        let Some(last) = roots.last() else {
            let detail = "this root follows no other: kolo grid rotate-root lets another one follow".to_owned();
            return Err(TrustFileError::Malformed { path: own, detail });
        };
        let next = root_key(&own, &last.new)?;
        let former = former_root_key_path(data_dir, &last.old);
        let old = root_key(old_key.unwrap_or(&former), &last.old)?;
        // Only an earlier end counts.
        let until = now.max(last.issued).min(last.until);
        let signed = Successor::sign(&grid.id, (&old, &next), last.issued, until)?;
        let successor = Successor::open(&signed)?;
        Ok(Rotation { statement: told_as_revocation(signed), successor, next })
    }

    /// Revokes `subject` with the new root's key, which need not be in its place yet; as [`Issuer::revoke_taking_back`].
    ///
    /// # Errors
    /// As for [`Issuer::revoke`].
    pub fn revoke_taking_back(
        &self,
        grid: &GridFile,
        subject: Subject,
        revoked: Time,
        keep_until: Time,
    ) -> Result<[SignedRevocation; 2], TrustFileError> {
        Issuer::root(self.next.clone()).revoke_taking_back(grid, subject, revoked, keep_until)
    }

    /// Lets `revoke_again` tell the node what the new root revokes, signs credentials in `wallets` anew that led to an older root, and
    /// puts the new key in the old one's place: from then on another rotation begins. The node must have taken the statement.
    ///
    /// # Errors
    /// That of `revoke_again`; [`TrustFileError`] when the node of this data directory does not know the new root, or a file cannot be
    /// written.
    pub fn finish<T, E: From<TrustFileError>>(
        &self,
        (grid, data_dir): (&GridFile, &Path),
        wallets: &[Wallet],
        now: Time,
        revoke_again: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Vec<Renewed>, T), E> {
        let roots = known_roots(data_dir, grid)?;
        if *roots.newest() != self.successor.new {
            let detail =
                "the node that has taken the new root keeps it elsewhere: name its own --data-dir, and try again";
            return Err(TrustFileError::Malformed { path: data_dir.to_owned(), detail: detail.to_owned() }.into());
        }
        let revoked = revoke_again()?;
        let mut renewed = Vec::new();
        for wallet in wallets {
            renewed.extend(self.renew(grid, &roots, wallet, now)?);
        }
        let (own, next) = (data_dir.join(ROOT_KEY_FILE), data_dir.join(NEXT_ROOT_KEY_FILE));
        if let Some(old) = load_key(&own)?
            && PublicKey::of(&old) != self.successor.new
        {
            files::rename(&own, &former_root_key_path(data_dir, &PublicKey::of(&old)))?;
        }
        if load_key(&own)?.is_none() {
            files::rename(&next, &own)?;
        }
        Ok((renewed, revoked))
    }

    fn renew(
        &self,
        grid: &GridFile,
        roots: &Roots,
        wallet: &Wallet,
        now: Time,
    ) -> Result<Vec<Renewed>, TrustFileError> {
        let mut renewed = Vec::new();
        for role in [Role::Site, Role::Admin, Role::User] {
            let Some(chain) = wallet.credential(&grid.id, role)? else { continue };
            let is_newest = chain.root() == Some(roots.newest());
            // A credential that does not count any more is not worth another signature.
            if is_newest || chain.verify_under(&grid.id, roots, now).is_err() {
                continue;
            }
            wallet.replace(&grid.id, role, &self.signed_anew(grid, roots, &chain, now)?)?;
            renewed.push(Renewed { role, path: wallet.credential_path(&grid.id, role) });
        }
        Ok(renewed)
    }

    /// The chain with its first credential signed by the new root. The others are signed by their makers, whose keys stay.
    fn signed_anew(&self, grid: &GridFile, roots: &Roots, chain: &Chain, now: Time) -> Result<Chain, TrustFileError> {
        let Some((first, rest)) = chain.credentials().split_first() else { return Err(TrustError::Links(0).into()) };
        let link = SignedText::sign(&first.open::<Credential>()?, &self.next)?;
        let anew = Chain::of_later_root(roots.statements(), link);
        let anew = rest.iter().fold(anew, |chain, link| chain.with(link.clone()));
        anew.verify_under(&grid.id, roots, now)?;
        Ok(anew)
    }
}

/// Reads the key of this root.
fn root_key(path: &Path, root: &PublicKey) -> Result<SigningKey, TrustFileError> {
    let malformed = |found: &str| {
        let detail = format!("{found}; expected the root key {}... (--root-key names its file)", root.fingerprint());
        TrustFileError::Malformed { path: path.to_owned(), detail }
    };
    let key = load_key(path)?.ok_or_else(|| malformed("there is no such file"))?;
    if PublicKey::of(&key) == *root { Ok(key) } else { Err(malformed("it is another key")) }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use broker::{
        ids::SiteId,
        trust::{Revocation, Revocations},
    };
    use data_encoding::HEXLOWER;

    use super::*;
    use crate::{
        Issuer, RevocationFile, Terms, accept, found, member,
        testing::{NOW, grid, key, terms},
    };

    const DAY: Span = Span(86_400);

    /// The founder's data directory, with root key and credentials.
    fn founded() -> (tempfile::TempDir, GridFile, Wallet) {
        let directory = tempfile::tempdir().unwrap();
        let (grid, _) = grid();
        grid.create(directory.path()).unwrap();
        files::create(&directory.path().join(ROOT_KEY_FILE), &HEXLOWER.encode(key(1).as_bytes())).unwrap();
        let wallet = Wallet::at(directory.path());
        let user = PublicKey::of(&wallet.key_or_new().unwrap());
        let site = SiteId::new("12D3site").unwrap();
        let (of_site, of_admin) = found(&grid, &key(1), (&site, "lab"), (&user, "ada"), NOW).unwrap();
        wallet.keep(&grid, Role::Site, &of_site, NOW).unwrap();
        wallet.keep(&grid, Role::Admin, &of_admin, NOW).unwrap();
        (directory, grid, wallet)
    }

    /// What the node does with a statement.
    fn take(data_dir: &Path, statement: &SignedRevocation) {
        RevocationFile::at(data_dir).save([statement].into_iter()).unwrap();
    }

    /// Nobody is revoked.
    fn nobody() -> Result<(), TrustFileError> {
        Ok(())
    }

    #[test]
    fn a_rotation_goes_on_until_all_is_revoked_again_and_only_then_another_begins() {
        let (directory, grid, _) = founded();
        let at = (&grid, directory.path());
        let rotation = Rotation::begin(at, None, NOW, DAY).unwrap();
        take(directory.path(), &rotation.statement);
        let failed = || Err::<(), _>(TrustFileError::Random("the node is gone".to_owned()));
        assert!(rotation.finish(at, &[], NOW, failed).is_err());
        let on = Rotation::begin(at, None, NOW, DAY).unwrap();
        assert_eq!(on.successor, rotation.successor, "it is not over");
        let roots = known_roots(directory.path(), &grid).unwrap();
        let bob = Subject::Key(PublicKey::of(&key(3)));
        let revoke = || {
            let [plain, taking] = on.revoke_taking_back(&grid, bob.clone(), NOW, NOW + Span(2 * DAY.0))?;
            let mut revocations = Revocations::default();
            assert_eq!(revocations.add(&grid.id, &roots, &plain, NOW), Ok(true), "by the new root");
            revocations.prune(NOW + DAY);
            assert!(revocations.is_revoked(&bob), "for longer than the old root counts");
            assert_eq!(plain.statement.open::<Revocation>().unwrap().revoked, NOW);
            Ok::<_, TrustFileError>((plain.statement.author, taking.statement.author))
        };
        let (_, authors) = on.finish(at, &[], NOW, revoke).unwrap();
        assert_eq!(authors, (on.successor.new, on.successor.new));
        let next = Rotation::begin(at, None, NOW, DAY).unwrap();
        assert_eq!(next.successor.old, on.successor.new);
    }

    #[test]
    fn a_rotation_goes_on_where_it_was_interrupted_and_renews_what_is_at_hand() {
        let (directory, grid, wallet) = founded();
        let at = (&grid, directory.path());
        let first = Rotation::begin(at, None, NOW, DAY).unwrap();
        assert_eq!((first.successor.old, first.successor.until), (PublicKey::of(&key(1)), NOW + DAY));
        let not_taken = first.finish(at, std::slice::from_ref(&wallet), NOW, nobody).unwrap_err().to_string();
        assert!(not_taken.contains("--data-dir"), "{not_taken}");
        let again = Rotation::begin(at, None, NOW + Span(5), DAY).unwrap();
        assert_eq!(again.successor.new, first.successor.new, "the key that was made first");
        take(directory.path(), &again.statement);
        let on = Rotation::begin(at, None, NOW + Span(9), DAY).unwrap();
        assert_eq!(on.statement, again.statement, "the node has it, so nothing else is signed");

        let (renewed, ()) = on.finish(at, std::slice::from_ref(&wallet), NOW, nobody).unwrap();
        assert_eq!(renewed.iter().map(|one| one.role).collect::<Vec<_>>(), [Role::Site, Role::Admin]);
        let roots = known_roots(directory.path(), &grid).unwrap();
        for role in [Role::Site, Role::Admin] {
            let chain = wallet.credential(&grid.id, role).unwrap().unwrap();
            assert_eq!(chain.root(), Some(&on.successor.new));
            assert!(chain.verify_under(&grid.id, &roots, NOW + DAY).is_ok(), "{role}");
            assert!(member(&grid, &chain, NOW).unwrap().is_some(), "whoever knows the first root only believes it");
        }
        for (path, root) in [
            (directory.path().join(ROOT_KEY_FILE), on.successor.new),
            (former_root_key_path(directory.path(), &on.successor.old), on.successor.old),
        ] {
            assert_eq!(load_key(&path).unwrap().map(|key| PublicKey::of(&key)), Some(root));
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(!directory.path().join(NEXT_ROOT_KEY_FILE).exists());
        let (again, ()) = on.finish(at, std::slice::from_ref(&wallet), NOW, nobody).unwrap();
        assert_eq!((again.len(), load_key(&directory.path().join(ROOT_KEY_FILE)).unwrap().is_some()), (0, true));

        let ended = Rotation::end_overlap(at, None, NOW + Span(60)).unwrap();
        assert_eq!((ended.successor.new, ended.successor.until), (on.successor.new, NOW + Span(60)));
    }

    #[test]
    fn without_the_old_key_nothing_is_made() {
        let (directory, grid, _) = founded();
        let at = (&grid, directory.path());
        let elsewhere = directory.path().join("offline.key");
        files::rename(&directory.path().join(ROOT_KEY_FILE), &elsewhere).unwrap();
        let error = Rotation::begin(at, None, NOW, DAY).err().unwrap().to_string();
        assert!(error.contains("grid-root.key: there is no such file") && error.contains("--root-key"), "{error}");
        let other = files::create(&directory.path().join("other.key"), &HEXLOWER.encode(key(7).as_bytes()));
        other.unwrap();
        let error = Rotation::begin(at, Some(&directory.path().join("other.key")), NOW, DAY).err().unwrap();
        assert!(error.to_string().contains("it is another key"), "{error}");
        assert!(!directory.path().join(NEXT_ROOT_KEY_FILE).exists());
        let error = Rotation::end_overlap(at, None, NOW).err().unwrap().to_string();
        assert!(error.contains("follows no other"), "{error}");
        let begun = Rotation::begin(at, Some(&elsewhere), NOW, DAY).unwrap();
        take(directory.path(), &begun.statement);
        assert!(begun.finish(at, &[], NOW, nobody).unwrap().0.is_empty());
        assert!(directory.path().join(ROOT_KEY_FILE).exists() && elsewhere.exists());
    }

    #[test]
    fn who_is_invited_under_the_new_root_joins_in_place_of_the_old_credential() {
        let (directory, grid, wallet) = founded();
        let at = (&grid, directory.path());
        let bob = Subject::Key(PublicKey::of(&key(3)));
        let home = tempfile::tempdir().unwrap();
        let bobs = Wallet::at(home.path());
        let invited = || {
            let issuer = Issuer::find(&grid, directory.path(), &[]).unwrap().unwrap();
            let terms = Terms { expires: NOW + Span(10 * DAY.0), ..terms(Role::User) };
            let invitation = issuer.invite(&grid, &terms, NOW).unwrap().invitation;
            accept(&grid, &invitation, bob.clone(), "bob", NOW).unwrap()
        };
        let old = invited();
        bobs.keep(&grid, Role::User, &old, NOW).unwrap();
        assert!(bobs.keep(&grid, Role::User, &invited(), NOW).is_err(), "one that counts is not replaced");
        let rotation = Rotation::begin(at, None, NOW, DAY).unwrap();
        take(directory.path(), &rotation.statement);
        rotation.finish(at, std::slice::from_ref(&wallet), NOW, nobody).unwrap();
        let new = invited();
        bobs.keep(&grid, Role::User, &new, NOW).unwrap();
        assert_eq!(bobs.credential(&grid.id, Role::User).unwrap(), Some(new.clone()));
        let roots = known_roots(directory.path(), &grid).unwrap();
        assert!(new.verify_under(&grid.id, &roots, NOW + DAY).is_ok());
        let late = old.verify_under(&grid.id, &roots, NOW + DAY);
        assert!(matches!(late, Err(TrustError::RootFollowed { .. })), "{late:?}");
        assert!(bobs.keep(&grid, Role::User, &old, NOW).is_err(), "and not the other way round");
    }
}
