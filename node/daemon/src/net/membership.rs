//! Who belongs to the grid, as this node sees it: its own credential, the check of others', revocations, and the user who
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
    trust::{
        Authorization, Chain, Denial, Holder, Permit, PublicKey, REVOCATIONS_MAX, Revocation, Role, Rule, SharedGate,
        SignedRevocation, Subject, TrustError,
    },
};
use discovery::{
    membership::{CREDENTIAL_BYTES_MAX, Learnt, NotMember},
    wire,
};
use kolo_runtime::{clock::Clock, lock::locked};
use kolo_seat::opening::{Opening, Wish};
use kolo_storage::data_dir::DataDir;
use kolo_trust::{GridFile, RevocationFile, Signer, TAKE_BACKS_MAX, TakeBacks, TrustFileError, UserKey, Wallet};
use tracing::{info, warn};

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
    clock: Clock,
    file: RevocationFile,
    /// Held while the file is written, so that an older list never replaces a newer one.
    writing: Mutex<()>,
    wallet: Wallet,
    operator: Mutex<Option<Arc<Signer>>>,
    /// That others do not believe this node was said.
    is_warned: AtomicBool,
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
            clock,
            file: RevocationFile::at(data_dir.path()),
            writing: Mutex::new(()),
            wallet,
            operator: Mutex::new(None),
            is_warned: AtomicBool::new(false),
        };
        membership.remember_revocations()?;
        membership.check_own_credential();
        Ok(membership)
    }

    fn remember_revocations(&self) -> Result<(), MembershipError> {
        for revocation in self.file.load()? {
            // Lapsed since, or no longer to be believed: not worth keeping.
            if let Err(error) = self.put_in_force(&revocation) {
                info!(%error, "a revocation is forgotten");
            }
        }
        Ok(())
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

    pub fn grid(&self) -> &GridFile {
        &self.grid
    }

    fn put_in_force(&self, revocation: &SignedRevocation) -> Result<bool, TrustError> {
        let now = self.clock.now();
        let mut gate = self.gate.lock();
        gate.prune(now.utc);
        let mut take_backs = locked(&self.take_backs);
        let is_new = match gate.revoke(revocation, now.utc) {
            Err(TrustError::NotUnderstood { .. }) => {
                take_backs.add(&revocation.statement, &self.grid.id, gate.revocations())?
            }
            taken => taken?,
        };
        take_backs.prune(gate.revocations());
        let digest = gate.revocations().digest().wrapping_add(take_backs.digest());
        self.digest.store(digest, Ordering::Relaxed);
        Ok(is_new)
    }

    /// Plain ones before those that take hosts back, which count beside them only; no more than a site may tell.
    fn signed_revocations(&self) -> Vec<SignedRevocation> {
        let gate = self.gate.lock();
        let take_backs = locked(&self.take_backs);
        let plain = gate.revocations().all().take(REVOCATIONS_MAX - TAKE_BACKS_MAX).cloned();
        plain.chain(take_backs.all()).collect()
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
        self.file.save(self.signed_revocations().iter())
    }

    /// Takes a revocation; false when it was known. When it returns it is on disk and in force.
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

    /// Who shows this credential in its adverts; none when it does not count, or in an open grid.
    pub fn holder_of(&self, credential: &[u8]) -> Option<Holder> {
        self.holder(&decode(credential)?)
    }

    /// Who holds these credentials; none when they do not count, or in an open grid.
    pub fn holder(&self, chain: &Chain) -> Option<Holder> {
        kolo_trust::member(&self.grid, chain, self.clock.now().utc).ok().flatten()
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
        let Some(holder) = self.holder_of(credential) else { return Vec::new() };
        let gate = self.gate.lock();
        holder.lineage.iter().flat_map(|subject| gate.revocations().of(subject)).filter_map(encode).collect()
    }

    fn learn_revocations(&self, revocations: &[Vec<u8>]) -> Learnt {
        let mut learnt = Learnt::default();
        for bytes in revocations {
            let taken = decode_revocation(bytes).map(|revocation| self.put_in_force(&revocation));
            match taken {
                Some(Ok(is_new)) => learnt.news += usize::from(is_new),
                // An honest site may not know better.
                Some(Err(
                    TrustError::Lapsed
                    | TrustError::IssuerRevoked
                    | TrustError::Expired { .. }
                    | TrustError::NotUnderstood { .. },
                )) => {}
                Some(Err(_)) | None => {
                    learnt.is_false = true;
                    break;
                }
            }
        }
        if learnt.news > 0 {
            info!(news = learnt.news, "revocations learnt from another site");
            self.check_own_credential();
            if let Err(error) = self.write_down() {
                warn!(%error, "revocations are in force until this node stops");
            }
        }
        learnt
    }
}
