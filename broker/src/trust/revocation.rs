//! Revocations end credentials before they expire: a set that only grows, and is the same at every node that has received the
//! same revocations.
//!
//! Signed by a root, or by an admin; an admin's counts until the admin's own credential expires at the longest, and not
//! at all once a root has revoked that admin (or an admin in its chain). None counts for longer than the root that it leads to.
//! The revoked subjects depend on the set alone, never on the order in which it was received. Invariant: at most
//! [`REVOCATIONS_MAX`]; above it those that lapse first are dropped, so a subject that is still known here may then be forgotten early:
//! the root should make credentials short enough that this never happens.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Chain, PublicKey, Role, Roots, SignedText, Statement, Subject, TrustError};
use crate::time::Time;

/// Most revocations kept.
pub const REVOCATIONS_MAX: usize = 4096;

/// Revokes the credential of a subject, and all credentials that were made with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revocation {
    /// The grid.
    pub grid: String,
    /// The revoked subject; an invitation by its key.
    pub subject: Subject,
    /// When it was revoked, for display.
    pub revoked: Time,
    /// When the credential that it revokes expires: then it need not be known any more.
    pub keep_until: Time,
}

impl Statement for Revocation {
    const KIND: &'static str = "revocation";
    const TEXT_BYTES_MAX: usize = 1024;
}

/// A revocation with what shows that its author may revoke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedRevocation {
    /// The signed [`Revocation`].
    pub statement: SignedText,
    /// The admin's credentials; none when the root has signed it.
    pub issuer: Option<Chain>,
}

#[derive(Debug, Clone)]
struct Entry {
    signed: SignedRevocation,
    /// From this second on it has no effect.
    lapses: Time,
}

/// The revoked subject, the issuer, and every subject of the issuer's chain; none for the root. An admin with two chains has one
/// entry for each, so that the end of one chain leaves the other.
type Key = (Subject, PublicKey, Vec<Subject>);

impl Entry {
    /// Orders revocations of one subject by one author, so that all nodes keep the same one: that with the later lapse.
    fn rank(&self) -> (Time, &SignedText) {
        (self.lapses, &self.signed.statement)
    }
}

/// All revocations that a node knows.
#[derive(Debug, Clone, Default)]
pub struct Revocations {
    entries: BTreeMap<Key, Entry>,
    by_lapse: BTreeSet<(Time, Key)>,
}

impl Revocations {
    /// Adds a revocation; false when it was known. `roots` has taken in what its issuer's chain shows of successors.
    ///
    /// # Errors
    /// [`TrustError`] when it is not signed by who may revoke in this grid, or has lapsed.
    pub fn add(&mut self, grid: &str, roots: &Roots, signed: &SignedRevocation, now: Time) -> Result<bool, TrustError> {
        let author = signed.statement.author;
        let revocation: Revocation = signed.statement.open()?;
        if revocation.grid != grid {
            let expected = grid.to_owned();
            return Err(TrustError::WrongGrid { kind: Revocation::KIND, expected, found: revocation.grid });
        }
        let mut entry = Entry { signed: signed.clone(), lapses: revocation.keep_until };
        let mut issuers = Vec::new();
        match &signed.issuer {
            None => {
                let root_until = roots.until(&author).ok_or(TrustError::NotAnAdmin("no credential is shown"))?;
                entry.lapses = entry.lapses.min(root_until);
            }
            Some(chain) => {
                let issuer = chain.verify_credentials(grid, roots, now)?;
                if issuer.role != Role::Admin || issuer.subject != Subject::Key(author) {
                    return Err(TrustError::NotAnAdmin("the credential is not an admin's, or another's"));
                }
                entry.lapses = entry.lapses.min(issuer.expires);
                issuers = issuer.lineage;
            }
        }
        if entry.lapses <= now || !entry.lapses.is_in_range() {
            return Err(TrustError::Lapsed);
        }
        if issuers.iter().any(|issuer| self.is_out_by_root(issuer)) {
            return Err(TrustError::IssuerRevoked);
        }
        Ok(self.insert(&(revocation.subject, author, issuers), entry))
    }

    fn is_out_by_root(&self, subject: &Subject) -> bool {
        let first = (subject.clone(), PublicKey::from_bytes([0; 32]), Vec::new());
        let mut of_subject = self.entries.range(first..).map(|(key, _)| key).take_while(|(of, ..)| of == subject);
        of_subject.any(|(_, _, issuers)| issuers.is_empty())
    }

    /// Lets no revocation lapse later than the root counts that it leads to, after a root was followed.
    pub(super) fn lapse_with(&mut self, roots: &Roots) {
        self.by_lapse.clear();
        for (key, mut entry) in std::mem::take(&mut self.entries) {
            let signed = &entry.signed;
            let root = signed.issuer.as_ref().map_or(Some(&signed.statement.author), Chain::root);
            if let Some(until) = root.and_then(|root| roots.until(root)) {
                entry.lapses = entry.lapses.min(until);
            }
            self.put(key, entry);
        }
    }

    /// Takes a verified entry in; whether it is new, and is kept.
    fn insert(&mut self, key: &Key, entry: Entry) -> bool {
        if self.entries.get(key).is_some_and(|known| known.rank() >= entry.rank()) {
            return false;
        }
        self.put(key.clone(), entry);
        if key.2.is_empty() {
            self.drop_issued_by(&key.0);
        }
        while self.entries.len() > REVOCATIONS_MAX
            && let Some((_, first)) = self.by_lapse.pop_first()
        {
            self.entries.remove(&first);
        }
        self.entries.contains_key(key)
    }

    /// Takes in what was not verified: to fill the set without thousands of signatures.
    #[cfg(test)]
    pub(super) fn fill(&mut self, subject: PublicKey, template: &SignedRevocation, lapses: Time) {
        let entry = Entry { signed: template.clone(), lapses };
        self.insert(&(Subject::Key(subject), template.statement.author, Vec::new()), entry);
    }

    fn put(&mut self, key: Key, entry: Entry) {
        self.remove(&key);
        self.by_lapse.insert((entry.lapses, key.clone()));
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(known) = self.entries.remove(key) {
            self.by_lapse.remove(&(known.lapses, key.clone()));
        }
    }

    /// A root has revoked `subject`: what that has revoked as an admin, or those it made, counts no longer.
    fn drop_issued_by(&mut self, subject: &Subject) {
        let void: Vec<Key> = self.entries.keys().filter(|(_, _, issuers)| issuers.contains(subject)).cloned().collect();
        void.iter().for_each(|key| self.remove(key));
    }

    /// Whether this subject itself is revoked. A holder is revoked when any subject of its chain is.
    #[must_use]
    pub fn is_revoked(&self, subject: &Subject) -> bool {
        let first = (subject.clone(), PublicKey::from_bytes([0; 32]), Vec::new());
        self.entries.range(first..).next().is_some_and(|((revoked, ..), _)| revoked == subject)
    }

    /// A number that two nodes share exactly when they (as good as surely) know the same revocations.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let word = |(_, _, issuers): &Key, entry: &Entry| {
            // Signatures are as good as random; lapse and issuers tell entries apart that differ in the chain only.
            let of_issuer = |issuer: &Subject| match issuer {
                Subject::Key(key) => folded(key.as_bytes()),
                Subject::Site(_) => 0,
            };
            let by = issuers.iter().fold(0, |sum: u64, issuer| sum.rotate_left(7) ^ of_issuer(issuer));
            let of_lapse = entry.lapses.0.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
            folded(entry.signed.statement.signature.as_bytes()) ^ of_lapse ^ by
        };
        self.entries.iter().fold(self.entries.len() as u64, |sum, (key, entry)| sum.wrapping_add(word(key, entry)))
    }

    /// All of them, for others and for the disk.
    pub fn all(&self) -> impl Iterator<Item = &SignedRevocation> {
        self.entries.values().map(|entry| &entry.signed)
    }

    /// Those of one subject.
    pub fn of<'a>(&'a self, subject: &'a Subject) -> impl Iterator<Item = &'a SignedRevocation> {
        let first = (subject.clone(), PublicKey::from_bytes([0; 32]), Vec::new());
        let of_subject = self.entries.range(first..).take_while(move |((of, _, _), _)| of == subject);
        of_subject.map(|(_, entry)| &entry.signed)
    }

    /// Drops revocations that have lapsed.
    pub fn prune(&mut self, now: Time) {
        while let Some((lapses, _)) = self.by_lapse.first()
            && *lapses <= now
        {
            if let Some((_, key)) = self.by_lapse.pop_first() {
                self.entries.remove(&key);
            }
        }
    }

    /// How many are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The bytes as one number, in which each of their words counts.
fn folded(bytes: &[u8]) -> u64 {
    bytes
        .chunks_exact(8)
        .fold(0, |sum, chunk| chunk.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte)).rotate_left(1) ^ sum)
}
