//! A revocation that takes hosts back: what the revoked account has reserved ends as well.
//!
//! It is the text of a revocation with one key more, signed by the same author, and travels beside the plain one, so that a node that
//! does not know the key keeps to that. Invariant: it counts only beside a revocation of its subject by its author, and as long as that.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    time::Time,
    trust::{PublicKey, Revocation, Revocations, SignedRevocation, SignedText, Statement, Subject, TrustError},
};
use serde::{Deserialize, Serialize};

/// A [`Revocation`] with the key `take_back`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakeBack {
    grid: String,
    pub subject: Subject,
    revoked: Time,
    keep_until: Time,
    /// Always true.
    take_back: bool,
}

impl Statement for TakeBack {
    const KIND: &'static str = Revocation::KIND;
    const TEXT_BYTES_MAX: usize = Revocation::TEXT_BYTES_MAX;
}

impl From<Revocation> for TakeBack {
    fn from(Revocation { grid, subject, revoked, keep_until }: Revocation) -> TakeBack {
        TakeBack { grid, subject, revoked, keep_until, take_back: true }
    }
}

impl TakeBack {
    /// Reads one, whoever has signed it.
    ///
    /// # Errors
    /// [`TrustError`] when its author has not signed it, or it is something else.
    pub fn open(statement: &SignedText) -> Result<TakeBack, TrustError> {
        let read: TakeBack = statement.open()?;
        if read.take_back {
            return Ok(read);
        }
        Err(TrustError::Malformed { kind: TakeBack::KIND, detail: "take_back: expected true".to_owned() })
    }
}

/// Most that a node keeps; who comes later is revoked all the same.
pub const TAKE_BACKS_MAX: usize = 256;

/// All that a node knows: at most one for each revocation in force.
#[derive(Debug, Default)]
pub struct TakeBacks(BTreeMap<(Subject, PublicKey), SignedText>);

impl TakeBacks {
    /// Adds one; false when it was known.
    ///
    /// # Errors
    /// [`TrustError`] when it must not be believed: [`TrustError::Lapsed`] where its revocation is not in force.
    pub fn add(&mut self, statement: &SignedText, grid: &str, revocations: &Revocations) -> Result<bool, TrustError> {
        let read = TakeBack::open(statement)?;
        if read.grid != grid {
            let expected = grid.to_owned();
            return Err(TrustError::WrongGrid { kind: TakeBack::KIND, expected, found: read.grid });
        }
        let key = (read.subject, statement.author);
        if !is_in_force(&key, revocations) {
            return Err(TrustError::Lapsed);
        }
        if self.0.len() >= TAKE_BACKS_MAX && !self.0.contains_key(&key) {
            return Ok(false);
        }
        // All nodes keep the same one of several.
        if self.0.get(&key).is_some_and(|known| known >= statement) {
            return Ok(false);
        }
        self.0.insert(key, statement.clone());
        Ok(true)
    }

    /// Drops those whose revocation is in force no longer.
    pub fn prune(&mut self, revocations: &Revocations) {
        self.0.retain(|key, _| is_in_force(key, revocations));
    }

    /// Whose hosts are taken back: whoever has one of these keys in the line of the credential.
    pub fn keys(&self, revocations: &Revocations) -> BTreeSet<PublicKey> {
        let in_force = self.0.keys().filter(|key| is_in_force(key, revocations));
        in_force.filter_map(|(subject, _)| subject.key()).copied().collect()
    }

    /// Whether the revocation of `subject` by `author` takes hosts back.
    pub fn has(&self, subject: &Subject, author: PublicKey) -> bool {
        self.0.contains_key(&(subject.clone(), author))
    }

    /// A number that two nodes share exactly when they (as good as surely) know the same ones.
    pub fn digest(&self) -> u64 {
        let word = |statement: &SignedText| {
            let bytes = statement.signature.as_bytes().iter().take(8);
            bytes.fold(0_u64, |word, byte| word << 8 | u64::from(*byte))
        };
        self.0.values().fold(0, |sum, statement| sum.wrapping_add(word(statement)))
    }

    /// All of them, for others and for the disk.
    pub fn all(&self) -> impl Iterator<Item = SignedRevocation> {
        self.0.values().map(|statement| SignedRevocation { statement: statement.clone(), issuer: None })
    }
}

fn is_in_force((subject, author): &(Subject, PublicKey), revocations: &Revocations) -> bool {
    revocations.of(subject).any(|revocation| revocation.statement.author == *author)
}

#[cfg(test)]
mod tests {
    use broker::{time::Span, trust::Roots};

    use super::{
        super::testing::{NOW, grid, key},
        *,
    };

    fn bob() -> Subject {
        Subject::Key(PublicKey::of(&key(9)))
    }

    /// Signed by the key of this number.
    fn signed(number: u8, text: &TakeBack) -> SignedText {
        SignedText::sign(text, &key(number)).unwrap()
    }

    #[test]
    fn it_counts_beside_a_revocation_by_the_same_author_and_no_longer() {
        let (grid, root) = grid();
        let root_key = PublicKey::of(&key(1));
        let roots = Roots::of(root_key);
        let [plain, taking] = root.revoke_taking_back(&grid, bob(), NOW, NOW + Span(60)).unwrap();
        let (mut revocations, mut take_backs) = (Revocations::default(), TakeBacks::default());
        let unknown = take_backs.add(&taking.statement, &grid.id, &revocations);
        assert_eq!(unknown, Err(TrustError::Lapsed), "nobody is revoked");
        assert_eq!(revocations.add(&grid.id, &roots, &plain, NOW), Ok(true));
        let read = TakeBack::open(&taking.statement).unwrap();
        assert_eq!(
            take_backs.add(&signed(2, &read), &grid.id, &revocations),
            Err(TrustError::Lapsed),
            "another author"
        );
        assert!(matches!(take_backs.add(&taking.statement, "other", &revocations), Err(TrustError::WrongGrid { .. })));
        let forged = SignedText { author: PublicKey::of(&key(1)), ..signed(2, &read) };
        let forged = take_backs.add(&forged, &grid.id, &revocations);
        assert!(matches!(forged, Err(TrustError::BadSignature { .. })));
        let no = signed(1, &TakeBack { take_back: false, ..read });
        assert!(matches!(take_backs.add(&no, &grid.id, &revocations), Err(TrustError::Malformed { .. })));

        assert_eq!((take_backs.digest(), take_backs.keys(&revocations).len()), (0, 0));
        assert_eq!(take_backs.add(&taking.statement, &grid.id, &revocations), Ok(true));
        assert_eq!(take_backs.add(&taking.statement, &grid.id, &revocations), Ok(false), "known");
        assert!(take_backs.digest() != 0 && take_backs.has(&bob(), root_key));
        assert_eq!(take_backs.keys(&revocations), BTreeSet::from([PublicKey::of(&key(9))]));
        revocations.prune(NOW + Span(60));
        assert_eq!(take_backs.keys(&revocations).len(), 0, "a revocation lapses with what it revokes");
        take_backs.prune(&revocations);
        assert_eq!(take_backs.all().count(), 0);
    }

    #[test]
    fn a_node_that_does_not_know_the_key_blames_nobody() {
        let (grid, root) = grid();
        let [_, taking] = root.revoke_taking_back(&grid, bob(), NOW, NOW + Span(60)).unwrap();
        let text = &taking.statement.text;
        assert!(text.starts_with("kolo-revocation/1\n{") && text.ends_with(",\"take_back\":true}"), "{text}");
        let taken = Revocations::default().add(&grid.id, &Roots::of(PublicKey::of(&key(1))), &taking, NOW);
        assert!(
            matches!(&taken, Err(TrustError::NotUnderstood { what, .. }) if what.contains("take_back")),
            "{taken:?}"
        );
    }
}
