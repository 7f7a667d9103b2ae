//! Whether a site may be honest that tells what is refused here: it may know less than this one, or more, or may have heard of a successor
//! of a root first which is refused here.
//!
//! Invariant: what nobody has signed who could, by whichever successor, is no honest site's.

use broker::{
    time::Time,
    trust::{Chain, Revocations, Roots, SharedGate, SignedRevocation, SignedText, Successor, TrustError},
};

/// The excuses of one site for one list.
#[derive(Debug, Default)]
pub struct Excuses {
    /// The roots that a site knows that has heard of the refused successor first, as far as the list has told them; at most as many as a
    /// grid has.
    line: Option<Roots>,
}

impl Excuses {
    /// Whether an honest site may tell this, which the gate has just refused so.
    pub fn excuse(&mut self, gate: &SharedGate, told: &SignedRevocation, error: &TrustError, now: Time) -> bool {
        let is_of_another_line = match error {
            TrustError::Rival { other, .. } => {
                self.line.as_ref().is_none_or(|line| line.all().all(|root| root != other))
            }
            TrustError::NotAnAdmin(_) | TrustError::BrokenChain { .. } | TrustError::UnknownRoot(_) => {
                self.line.is_none()
            }
            _ => return knows_less_or_more(error),
        };
        let gate = gate.lock();
        if is_of_another_line {
            self.line = gate.roots().and_then(Roots::by_rival);
        }
        let grid = gate.trust().grid().to_owned();
        // Signatures are checked while others are at the gate.
        drop(gate);
        self.line.as_mut().is_some_and(|line| counts_under(line, &grid, told, now))
    }
}

fn knows_less_or_more(error: &TrustError) -> bool {
    matches!(
        error,
        TrustError::Lapsed
            | TrustError::IssuerRevoked
            | TrustError::Expired { .. }
            | TrustError::NotUnderstood { .. }
            | TrustError::RootFollowed { .. }
    )
}

/// Whether this counts where the roots of `line` are known, signatures and all; successors that it tells or shows are added to them.
fn counts_under(line: &mut Roots, grid: &str, told: &SignedRevocation, now: Time) -> bool {
    // A site of that line may have been told of a third successor, which it refuses.
    let mut is_told = |signed: &SignedText| matches!(line.learn(grid, signed), Ok(_) | Err(TrustError::Rival { .. }));
    if told.statement.claims_to_be::<Successor>() {
        return is_told(&told.statement);
    }
    let shown = told.issuer.as_ref().map_or(&[][..], Chain::successors);
    if !shown.iter().all(is_told) {
        return false;
    }
    let refused = Revocations::default().add(grid, line, told, now).err();
    refused.is_none_or(|error| knows_less_or_more(&error))
}
