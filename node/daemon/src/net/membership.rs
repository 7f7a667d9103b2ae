//! Who belongs to the grid, as this node sees it: its own credential, the check of others', revocations, roots, and the user who
//! submits through the local API without a signature of their own.
//!
//! Invariant: a revocation that is in force here is on disk, and in force in the ledger as well as for adverts and
//! submissions, since all of them ask one gate.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use broker::{
    ids::SiteId,
    request::Request,
    time::Time,
    trust::{
        Authorization, Chain, Denial, Gate, Holder, Permit, PublicKey, REVOCATIONS_MAX, Revocation, Role, Roots, Rule,
        SUCCESSORS_MAX, SharedGate, SignedRevocation, Subject, Successor, TrustError,
    },
};
use discovery::{
    membership::{CREDENTIAL_BYTES_MAX, Learnt, NotMember},
    wire,
};
use kolo_runtime::{clock::Clock, lock::locked};
use kolo_seat::opening::{Opening, Wish};
use kolo_storage::data_dir::DataDir;
use kolo_trust::{
    GridFile, RevocationFile, Signer, TAKE_BACKS_MAX, TakeBacks, TrustFileError, UserKey, Wallet, told_as_revocation,
};
use tracing::{info, warn};

use super::excuses::Excuses;

/// Revocations are encoded as they are kept: as JSON.
fn encode(revocation: &SignedRevocation) -> Option<Vec<u8>> {
    serde_json::to_vec(revocation).ok()
}

/// Reads a revocation that another site sends; unchecked.
pub fn decode_revocation(bytes: &[u8]) -> Option<SignedRevocation> {
    serde_json::from_slice(bytes).ok()
}

/// Why a revocation was not taken.
#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    /// It must not be believed.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// It could not be written down; it is in force until the node stops.
    #[error("{0}; the revocation is in force until this node stops")]
    File(#[from] TrustFileError),
}

/// Why a node does not know what it is to its grid.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// Keys, credentials or revocations.
    #[error(transparent)]
    Trust(#[from] TrustFileError),
    /// A node without a credential in a closed grid.
    #[error(
        "this site has no credential of grid {grid}: ask for an invitation (kolo grid invite --role site) and use it with \
         kolo join FILE"
    )]
    NoCredential { grid: String },
}

pub struct Membership {
    site: SiteId,
    grid: GridFile,
    credential: Option<Chain>,
    encoded_credential: Vec<u8>,
    gate: SharedGate,
    /// Locked after the gate.
    take_backs: Mutex<TakeBacks>,
    digest: AtomicU64,
    /// Digest of the roots that the log has and other sites are told.
    told_roots: AtomicU64,
    /// [`kept_digest`] of the roots that are on disk.
    kept_roots: AtomicU64,
    clock: Clock,
    file: RevocationFile,
    /// Held while the file is written, so that an older list never replaces a newer one.
    writing: Mutex<()>,
    wallet: Wallet,
    operator: Mutex<Option<Arc<Signer>>>,
    /// That others do not believe this node was said.
    is_warned: AtomicBool,
    /// That somebody else has the key of an older root was said.
    is_rival_told: AtomicBool,
}

impl Membership {
    /// Reads credential and revocations from the data directory.
    ///
    /// # Errors
    /// [`MembershipError`] when a file is wrong, or a node of a closed grid has no credential.
    pub fn open(
        data_dir: &DataDir,
        site: &SiteId,
        grid: GridFile,
        gate: SharedGate,
        clock: Clock,
    ) -> Result<Membership, MembershipError> {
        let wallet = Wallet::at(data_dir.path());
        let credential = wallet.credential(&grid.id, Role::Site)?;
        if grid.root.is_some() && credential.is_none() {
            return Err(MembershipError::NoCredential { grid: grid.id });
        }
        // Whoever may use the API of an open grid's node has a name in the grid from the first start on.
        let operator = if grid.root.is_none() { Some(wallet.key_or_new()?) } else { wallet.key()? };
        if let Some(operator) = operator {
            gate.lock().set_owner(PublicKey::of(&operator));
        }
        let encoded_credential = credential.as_ref().and_then(|chain| wire::encode(chain).ok()).unwrap_or_default();
        let membership = Membership {
            site: site.clone(),
            gate,
            grid,
            credential,
            encoded_credential,
            take_backs: Mutex::default(),
            digest: AtomicU64::new(0),
            told_roots: AtomicU64::new(0),
            kept_roots: AtomicU64::new(0),
            clock,
            file: RevocationFile::at(data_dir.path()),
            writing: Mutex::new(()),
            wallet,
            operator: Mutex::new(None),
            is_warned: AtomicBool::new(false),
            is_rival_told: AtomicBool::new(false),
        };
        membership.remember_revocations()?;
        membership.check_own_credential();
        membership.check_own_root();
        Ok(membership)
    }

    fn remember_revocations(&self) -> Result<(), MembershipError> {
        for revocation in self.file.load()? {
            match self.put_in_force(&revocation) {
                // Refused again, as it is to be: the node knows that somebody else has an older key.
                Ok(_) | Err(TrustError::Rival { .. }) => {}
                // Lapsed since, or no longer to be believed: not worth keeping.
                Err(error) => info!(%error, "a revocation is forgotten"),
            }
        }
        let gate = self.gate.lock();
        self.told_roots.store(gate.roots().map_or(0, Roots::digest), Ordering::Relaxed);
        self.kept_roots.store(gate.roots().map_or(0, kept_digest), Ordering::Relaxed);
        Ok(())
    }

    /// Writes roots down that the gate has learnt from what others showed, and tries again what the disk has refused before; whether there
    /// are any to be told to others.
    pub fn keep_roots(&self) -> bool {
        let (digest, to_keep, rival) = {
            let gate = self.gate.lock();
            let roots = gate.roots();
            let rival = roots.and_then(|roots| roots.rival().copied());
            (roots.map_or(0, Roots::digest), roots.map_or(0, kept_digest), rival)
        };
        if let Some(rival) = rival
            && !self.is_rival_told.swap(true, Ordering::Relaxed)
        {
            warn!(
                rival = %rival.fingerprint(),
                "an older root key of this grid has signed a second successor, which is refused: somebody else has that key"
            );
        }
        let is_news = digest != self.told_roots.swap(digest, Ordering::Relaxed);
        if is_news {
            info!("the root key of the grid was followed by another: kolo grid show lists them");
            self.check_own_credential();
            self.check_own_root();
            self.update_digest();
        }
        if to_keep != self.kept_roots.load(Ordering::Relaxed) {
            match self.write_down() {
                Ok(()) => self.kept_roots.store(to_keep, Ordering::Relaxed),
                Err(error) if is_news => {
                    warn!(%error, "roots of the grid are not written down yet, which is tried again");
                }
                Err(_) => {}
            }
        }
        is_news
    }

    /// The roots of the grid, the first one first, with the time from which on each counts no more; and a second successor of one of
    /// them, if any was shown.
    pub fn roots(&self) -> (Vec<(PublicKey, Option<Time>)>, Option<PublicKey>) {
        let gate = self.gate.lock();
        let Some(roots) = gate.roots() else { return (Vec::new(), None) };
        let until = |root: &PublicKey| roots.until(root).filter(|until| *until < Time::MAX);
        (roots.all().map(|root| (*root, until(root))).collect(), roots.rival().copied())
    }

    /// Says once when this node's own credential does not count, as at the start or after a revocation.
    fn check_own_credential(&self) {
        let now = self.clock.now().utc;
        let checked = self.gate.lock().check_member(&self.site, self.credential.as_ref(), now);
        if let Err(denial) = checked
            && !self.is_warned.swap(true, Ordering::Relaxed)
        {
            warn!(
                %denial,
                "other sites do not believe this node; ask for a new invitation and join with it. What is reserved here stays"
            );
        }
    }

    /// Says when this node's own credential leads to a root that was followed by another.
    fn check_own_root(&self) {
        let until = {
            let gate = self.gate.lock();
            let root = self.credential.as_ref().and_then(Chain::root);
            root.and_then(|root| gate.roots()?.until(root)).filter(|until| *until < Time::MAX)
        };
        if let Some(until) = until {
            warn!(
                until = %until.in_utc(),
                "this node's credential leads to an older root key of the grid, and counts until then: ask for a new invitation, join \
                 with it (kolo join FILE), and restart the node"
            );
        }
    }

    pub fn grid(&self) -> &GridFile {
        &self.grid
    }

    fn put_in_force(&self, revocation: &SignedRevocation) -> Result<bool, TrustError> {
        let now = self.clock.now();
        let mut gate = self.gate.lock();
        gate.prune(now.utc);
        let mut take_backs = locked(&self.take_backs);
        let is_new = if revocation.statement.claims_to_be::<Successor>() {
            gate.succeed(&revocation.statement)?
        } else {
            match gate.revoke(revocation, now.utc) {
                Err(TrustError::NotUnderstood { .. }) => {
                    take_backs.add(&revocation.statement, &self.grid.id, gate.revocations())?
                }
                taken => taken?,
            }
        };
        take_backs.prune(gate.revocations());
        self.digest.store(digest_of(&gate, &take_backs), Ordering::Relaxed);
        Ok(is_new)
    }

    fn update_digest(&self) {
        let gate = self.gate.lock();
        let take_backs = locked(&self.take_backs);
        self.digest.store(digest_of(&gate, &take_backs), Ordering::Relaxed);
    }

    /// Successors of roots before what they have signed, and plain revocations before those that take hosts back, which count beside them
    /// only; no more than a site may tell.
    fn signed_revocations(&self) -> Vec<SignedRevocation> {
        let gate = self.gate.lock();
        let take_backs = locked(&self.take_backs);
        let plain = gate.revocations().all().take(REVOCATIONS_MAX - TAKE_BACKS_MAX - SUCCESSORS_MAX).cloned();
        successors(&gate).chain(plain).chain(take_backs.all()).collect()
    }

    /// Whose hosts are taken back: whoever has one of these keys in the line of the credential.
    pub fn taken_back(&self) -> BTreeSet<PublicKey> {
        let gate = self.gate.lock();
        locked(&self.take_backs).keys(gate.revocations())
    }

    /// Whether the revocation of `subject` by `author` takes hosts back.
    pub fn takes_back(&self, subject: &Subject, author: PublicKey) -> bool {
        locked(&self.take_backs).has(subject, author)
    }

    fn write_down(&self) -> Result<(), TrustFileError> {
        let _writing = locked(&self.writing);
        let refused = self.gate.lock().roots().and_then(Roots::refused).cloned().map(told_as_revocation);
        self.file.save(self.signed_revocations().iter().chain(&refused))
    }

    fn write_down_or_warn(&self) {
        if let Err(error) = self.write_down() {
            warn!(%error, "revocations are in force until this node stops");
        }
    }

    /// Takes a revocation, or a successor of a root; false when it was known. When it returns it is on disk and in force.
    pub fn revoke(&self, revocation: &SignedRevocation) -> Result<bool, RevokeError> {
        let is_new = self.put_in_force(revocation)?;
        if is_new {
            self.check_own_credential();
            self.write_down()?;
        }
        Ok(is_new)
    }

    /// What is revoked, with the key of who signed it.
    pub fn all_revocations(&self) -> Vec<(Revocation, PublicKey)> {
        let gate = self.gate.lock();
        let open = |signed: &SignedRevocation| Some((signed.statement.open().ok()?, signed.statement.author));
        gate.revocations().all().filter_map(open).collect()
    }

    /// Whether anybody of a holder's line is revoked.
    pub fn is_revoked(&self, holder: &Holder) -> bool {
        let gate = self.gate.lock();
        holder.lineage.iter().any(|subject| gate.revocations().is_revoked(subject))
    }

    /// Whether this very subject is revoked.
    pub fn is_subject_revoked(&self, subject: &Subject) -> bool {
        self.gate.lock().revocations().is_revoked(subject)
    }

    /// Who holds these credentials; none when they do not count, or in an open grid.
    pub fn holder(&self, chain: &Chain) -> Option<Holder> {
        let roots = self.gate.lock().roots().cloned()?;
        chain.verify_under(&self.grid.id, &roots, self.clock.now().utc).ok()
    }

    /// Signs a request with the key of the operator of this node, for a caller whose token allows to submit.
    ///
    /// # Errors
    /// [`Denial`] when the node has no credential of a user; [`TrustFileError`] when its files are wrong.
    pub fn sign_for_operator(&self, request: Request) -> Result<Authorization, SignError> {
        let signer = self.operator()?;
        let id = kolo_trust::new_request_id()?;
        Ok(signer.sign(&self.grid.id, &self.site, id, request, self.clock.now().utc, None)?)
    }

    /// Signs what is wanted of a seat, from now on, with the key of the operator of this node.
    ///
    /// # Errors
    /// As for [`Membership::sign_for_operator`].
    pub fn sign_run(&self, wish: Wish) -> Result<Opening, SignError> {
        let signer = self.operator()?;
        Ok(wish.issued(self.clock.now().utc).sign(&signer.key)?)
    }

    fn operator(&self) -> Result<Arc<Signer>, SignError> {
        let mut operator = locked(&self.operator);
        if let Some(signer) = &*operator {
            return Ok(Arc::clone(signer));
        }
        let signer = self.wallet.signer(&self.grid.id)?;
        if signer.as_ref().is_some_and(|signer| matches!(signer.key, UserKey::Agent(_))) {
            let detail = "an SSH agent has the key of this node's user, and a node signs only with a key in a file: sign \
                          requests as a user (kolo submit --key FILE)";
            return Err(SignError::Denied(Denial::new(Rule::Credential, detail)));
        }
        let is_good = |signer: &Signer| self.grid.root.is_none() || signer.chain.is_some();
        let Some(signer) = signer.filter(is_good) else {
            let detail = "this node has no user of its own in this closed grid: sign requests as a user who has joined \
                          (kolo submit --key FILE), or give the node one with kolo join FILE --data-dir DIR";
            return Err(SignError::Denied(Denial::new(Rule::Credential, detail)));
        };
        let signer = Arc::new(signer);
        *operator = Some(Arc::clone(&signer));
        Ok(signer)
    }

    /// Checks a user's signed request as every site will, and adds this entry point's own credential.
    pub fn admit(&self, mut authorization: Authorization) -> Result<(Authorization, Permit), Denial> {
        let now = self.clock.now().utc;
        let permit =
            self.gate.lock().check_submission(now, &self.site, &authorization.request, authorization.user.as_ref())?;
        authorization.entry_point.clone_from(&self.credential);
        Ok((authorization, permit))
    }
}

/// What the gate knows of roots that follow each other, as it is told.
fn successors(gate: &Gate) -> impl Iterator<Item = SignedRevocation> {
    gate.roots().into_iter().flat_map(Roots::statements).cloned().map(told_as_revocation)
}

/// A number for what the disk is to have of roots: the statements, and a refused one, if any; which one of several does not matter.
fn kept_digest(roots: &Roots) -> u64 {
    roots.digest().wrapping_add(u64::from(roots.rival().is_some()))
}

/// One number for all that this site tells of revocations and roots.
fn digest_of(gate: &Gate, take_backs: &TakeBacks) -> u64 {
    let of_roots = gate.roots().map_or(0, Roots::digest);
    gate.revocations().digest().wrapping_add(take_backs.digest()).wrapping_add(of_roots)
}

/// Why a request could not be signed for the operator.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The node has nobody to sign for.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// Key or credential cannot be used, or the request is too large to be signed.
    #[error(transparent)]
    File(#[from] TrustFileError),
}

/// Reads what a site shows of itself; unchecked.
pub fn decode(credential: &[u8]) -> Option<Chain> {
    wire::decode::<_, CREDENTIAL_BYTES_MAX>(credential).ok()
}

impl discovery::Members for Membership {
    fn is_closed(&self) -> bool {
        self.grid.root.is_some()
    }

    fn credential(&self) -> Vec<u8> {
        self.encoded_credential.clone()
    }

    fn check(&self, site: &SiteId, credential: &[u8]) -> Result<(), NotMember> {
        if self.grid.root.is_none() {
            return Ok(());
        }
        if credential.is_empty() {
            return Err(NotMember::Lapsed);
        }
        let chain = decode(credential).ok_or(NotMember::MadeUp)?;
        let checked = self.gate.lock().check_member(site, Some(&chain), self.clock.now().utc);
        checked.map_err(|denial| match denial.rule {
            Rule::Expired | Rule::Revoked | Rule::Understood => NotMember::Lapsed,
            _ => NotMember::MadeUp,
        })
    }

    fn revocations_digest(&self) -> u64 {
        self.digest.load(Ordering::Relaxed)
    }

    fn revocations(&self) -> Vec<Vec<u8>> {
        self.signed_revocations().iter().filter_map(encode).collect()
    }

    fn revocations_of(&self, credential: &[u8]) -> Vec<Vec<u8>> {
        let Some(chain) = decode(credential) else { return Vec::new() };
        let gate = self.gate.lock();
        let Some(roots) = gate.roots() else { return Vec::new() };
        match chain.verify_under(&self.grid.id, roots, self.clock.now().utc) {
            Ok(holder) => {
                let of_line = holder.lineage.iter().flat_map(|subject| gate.revocations().of(subject));
                // A later root may have signed them, of which the holder has not heard.
                let news = successors(&gate).filter(|told| !chain.successors().contains(&told.statement));
                news.chain(of_line.cloned()).filter_map(|told| encode(&told)).collect()
            }
            Err(TrustError::RootFollowed { .. }) => successors(&gate).filter_map(|told| encode(&told)).collect(),
            Err(_) => Vec::new(),
        }
    }

    fn learn_revocations(&self, revocations: &[Vec<u8>]) -> Learnt {
        let mut learnt = Learnt::default();
        let mut excuses = Excuses::default();
        for bytes in revocations {
            let taken = decode_revocation(bytes).map(|told| (self.put_in_force(&told), told));
            match taken {
                Some((Ok(is_new), _)) => learnt.news += usize::from(is_new),
                Some((Err(error), told)) if excuses.excuse(&self.gate, &told, &error, self.clock.now().utc) => {}
                Some((Err(_), _)) | None => {
                    learnt.is_false = true;
                    break;
                }
            }
        }
        if learnt.news > 0 {
            info!(news = learnt.news, "revocations learnt from another site");
            self.check_own_credential();
            self.write_down_or_warn();
        }
        learnt
    }
}

#[cfg(test)]
mod tests;
