//! How the root key of a grid is followed by another: a statement that the old root signs and the new one proves, and the line of
//! roots that a site knows.
//!
//! Credentials under a later root show the statements that lead to it, so whoever trusts the first root, which the grid's id names, can
//! check them without having heard of any. Invariants: a root has one successor, whose statement is the first that was heard; of
//! statements with the same two roots, which both have signed, the one that ends earlier counts, in whatever order they come; no root
//! counts for longer than one that follows it.

use ed25519_dalek::SigningKey;
use serde::{Deserialize, Serialize};

use super::{PublicKey, Signature, SignedText, Statement, TrustError};
use crate::time::{Span, Time};

/// Most roots that follow the first one: a chain shows all of their statements, and still fits into a proof of membership.
pub const SUCCESSORS_MAX: usize = 8;
/// Longest time for which credentials under a root count once it has a successor: as long as credentials last unless they say otherwise.
pub const OVERLAP_MAX: Span = Span(366 * 86_400);

/// Names the root that follows another; signed by the old one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Successor {
    /// The grid.
    pub grid: String,
    /// The root that is followed: the author.
    pub old: PublicKey,
    /// The root that follows.
    pub new: PublicKey,
    /// When it was signed, by the author's clock.
    pub issued: Time,
    /// From this second on nothing counts that leads to the old root, or to one before it, only.
    pub until: Time,
    /// The new root's signature over all of the above: nobody names a key that is not at hand.
    pub proof: Signature,
}

impl Statement for Successor {
    const KIND: &'static str = "successor";
    const TEXT_BYTES_MAX: usize = 1024;
}

/// The text that the new root signs.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Acceptance {
    grid: String,
    old: PublicKey,
    new: PublicKey,
    issued: Time,
    until: Time,
}

impl Statement for Acceptance {
    const KIND: &'static str = "successor-proof";
    const TEXT_BYTES_MAX: usize = Successor::TEXT_BYTES_MAX;
}

impl Successor {
    /// Lets the root `new` follow the root `old`, with the keys of both.
    ///
    /// # Errors
    /// [`TrustError::Malformed`] when the two are the same, or `until` is before `issued` or more than [`OVERLAP_MAX`] after it.
    pub fn sign(
        grid: &str,
        (old, new): (&SigningKey, &SigningKey),
        issued: Time,
        until: Time,
    ) -> Result<SignedText, TrustError> {
        let accepted =
            Acceptance { grid: grid.to_owned(), old: PublicKey::of(old), new: PublicKey::of(new), issued, until };
        let proof = SignedText::sign(&accepted, new)?.signature;
        let Acceptance { grid, old: from, new: to, .. } = accepted;
        let signed = SignedText::sign(&Successor { grid, old: from, new: to, issued, until, proof }, old)?;
        Successor::open(&signed)?;
        Ok(signed)
    }

    /// Checks both signatures and the statement itself; whether `old` is a root is checked elsewhere.
    ///
    /// # Errors
    /// [`TrustError`] says what is wrong.
    pub fn open(signed: &SignedText) -> Result<Successor, TrustError> {
        let successor: Successor = signed.open()?;
        let malformed = |detail: &str| Err(TrustError::Malformed { kind: Self::KIND, detail: detail.to_owned() });
        if successor.old != signed.author {
            return malformed("old: expected the key that has signed it");
        }
        if successor.new == successor.old {
            return malformed("new: expected another key than old");
        }
        let (issued, until) = (successor.issued, successor.until);
        let are_times = issued.is_in_range() && until.is_in_range();
        if !are_times || until < issued || until.since(issued) > OVERLAP_MAX {
            return malformed("until: expected a time from issued on, at most 366 days later");
        }
        let (old, new, grid) = (successor.old, successor.new, successor.grid.clone());
        let text = SignedText::text_of(&Acceptance { grid, old, new, issued, until })?;
        if !new.has_signed(text.as_bytes(), &successor.proof) {
            return malformed("proof: expected the new root's signature");
        }
        Ok(successor)
    }
}

/// A statement that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    statement: Successor,
    signed: SignedText,
}

/// The roots of a grid that are known, in the order in which they follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    first: PublicKey,
    /// Each step leads from the root before it to the next one; at most [`SUCCESSORS_MAX`].
    steps: Vec<Step>,
    /// The last one that was refused because its old root has another successor.
    rival: Option<Step>,
}

impl Roots {
    /// The root that the grid's id names, without a successor.
    #[must_use]
    pub fn of(first: PublicKey) -> Roots {
        Roots { first, steps: Vec::new(), rival: None }
    }

    /// Takes in a statement; false when it changes nothing.
    ///
    /// # Errors
    /// [`TrustError`] when it must not be believed: [`TrustError::Rival`] when the old root is known to have another successor,
    /// [`TrustError::UnknownRoot`] when it is not known as a root.
    pub fn learn(&mut self, grid: &str, signed: &SignedText) -> Result<bool, TrustError> {
        // Every chain under a later root shows these again; they were checked when they came.
        if self.statements().any(|known| known == signed) {
            return Ok(false);
        }
        let statement = Successor::open(signed)?;
        if statement.grid != grid {
            let expected = grid.to_owned();
            return Err(TrustError::WrongGrid { kind: Successor::KIND, expected, found: statement.grid });
        }
        let Some(at) = self.position(&statement.old) else { return Err(TrustError::UnknownRoot(statement.old)) };
        if let Some(known) = self.steps.get_mut(at) {
            if known.statement.new != statement.new {
                let (old, known, other) = (statement.old, known.statement.new, statement.new);
                self.rival = Some(Step { statement, signed: signed.clone() });
                return Err(TrustError::Rival { old, known, other });
            }
            // All sites keep the same one of several, whichever they hear first.
            let is_earlier = (statement.until, signed) < (known.statement.until, &known.signed);
            if is_earlier {
                *known = Step { statement, signed: signed.clone() };
            }
            return Ok(is_earlier);
        }
        if self.position(&statement.new).is_some() {
            let detail = "new: expected a key that was no root before".to_owned();
            return Err(TrustError::Malformed { kind: Successor::KIND, detail });
        }
        if self.steps.len() >= SUCCESSORS_MAX {
            return Err(TrustError::TooManyRoots);
        }
        self.steps.push(Step { statement, signed: signed.clone() });
        Ok(true)
    }

    /// These roots and those that a chain shows.
    ///
    /// # Errors
    /// As for [`Roots::learn`]; [`TrustError::TooManyRoots`] before anything is checked.
    pub(super) fn with(&self, grid: &str, shown: &[SignedText]) -> Result<Roots, TrustError> {
        if shown.len() > SUCCESSORS_MAX {
            return Err(TrustError::TooManyRoots);
        }
        let mut roots = self.clone();
        shown.iter().try_for_each(|signed| roots.learn(grid, signed).map(drop))?;
        Ok(roots)
    }

    fn position(&self, root: &PublicKey) -> Option<usize> {
        if *root == self.first {
            return Some(0);
        }
        self.steps.iter().position(|step| step.statement.new == *root).map(|at| at + 1)
    }

    /// From when on nothing counts that leads to `root` only: the earliest end of it and of those that follow it, so that the end of a
    /// root ends all before it; [`Time::MAX`] of the newest; none when it is no root.
    #[must_use]
    pub fn until(&self, root: &PublicKey) -> Option<Time> {
        let ends = |at: usize| self.steps.iter().skip(at).map(|step| step.statement.until);
        self.position(root).map(|at| ends(at).min().unwrap_or(Time::MAX))
    }

    /// The root that has no successor.
    #[must_use]
    pub fn newest(&self) -> &PublicKey {
        self.steps.last().map_or(&self.first, |step| &step.statement.new)
    }

    /// All roots, the first one first.
    pub fn all(&self) -> impl Iterator<Item = &PublicKey> {
        std::iter::once(&self.first).chain(self.steps.iter().map(|step| &step.statement.new))
    }

    /// The statements that lead from the first root to the newest, in this order: for others, for the disk and for chains.
    pub fn statements(&self) -> impl Iterator<Item = &SignedText> {
        self.steps.iter().map(|step| &step.signed)
    }

    /// The statement that has made the newest root one; none while the first has no successor.
    #[must_use]
    pub fn last(&self) -> Option<&Successor> {
        self.steps.last().map(|step| &step.statement)
    }

    /// A key that an old root has signed as its successor as well, after another one was known: whoever signed it has the old key.
    #[must_use]
    pub fn rival(&self) -> Option<&PublicKey> {
        self.rival.as_ref().map(|rival| &rival.statement.new)
    }

    /// The statement that names [`Roots::rival`]: for the disk.
    #[must_use]
    pub fn refused(&self) -> Option<&SignedText> {
        self.rival.as_ref().map(|rival| &rival.signed)
    }

    /// The roots as a site knows them that has heard of [`Roots::rival`] first; none without one.
    #[must_use]
    pub fn by_rival(&self) -> Option<Roots> {
        let rival = self.rival.as_ref()?;
        let at = self.position(&rival.statement.old)?;
        let steps = self.steps.iter().take(at).chain([rival]).cloned().collect();
        Some(Roots { first: self.first, steps, rival: None })
    }

    /// A number that two nodes share exactly when they (as good as surely) know the same statements; zero of none.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let word = |signed: &SignedText| {
            let bytes = signed.signature.as_bytes().iter().take(8);
            bytes.fold(0_u64, |word, byte| word << 8 | u64::from(*byte))
        };
        self.statements().fold(0, |sum: u64, signed| sum.wrapping_add(word(signed)))
    }
}
