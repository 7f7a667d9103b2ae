//! What bookings of this site have cost that have ended, as other tasks read it.
//!
//! Invariant: at most [`CHARGES_MAX`], with at most [`SIGNED_BYTES_MAX`] of what was signed; at a bound the oldest makes room. The disk keeps as
//! many as it has room for.

use std::{collections::VecDeque, sync::Arc};

use broker::{ledger::Charge, trust::SignedText};

/// Most charges in memory: as many as are shown.
const CHARGES_MAX: usize = 20_000;
/// Most bytes of signed requests and receipts in memory, whatever charges they belong to.
const SIGNED_BYTES_MAX: usize = 64 << 20;

/// See the module; the newest last.
#[derive(Debug, Default)]
pub struct Charges {
    all: VecDeque<Charge>,
    signed_bytes: usize,
    is_cut: bool,
}

fn signed_bytes(charge: &Charge) -> usize {
    let bytes = |signed: &Arc<SignedText>| signed.text.len();
    [&charge.statement, &charge.receipt].into_iter().flatten().map(bytes).sum()
}

impl Charges {
    /// Those that the disk has kept.
    pub fn new(mut kept: Vec<Charge>) -> Charges {
        kept.sort_by_key(|charge| charge.ended);
        let mut charges = Charges::default();
        // The disk has one of each booking.
        kept.into_iter().for_each(|charge| charges.append(charge));
        charges
    }

    /// One more, in the place of an earlier one of the same booking: that had ended by a wrong clock.
    pub fn push(&mut self, charge: Charge) {
        if let Some(at) = self.all.iter().position(|before| before.attempt == charge.attempt)
            && let Some(before) = self.all.remove(at)
        {
            self.signed_bytes -= signed_bytes(&before);
        }
        self.append(charge);
    }

    fn append(&mut self, charge: Charge) {
        self.signed_bytes += signed_bytes(&charge);
        self.all.push_back(charge);
        while self.all.len() > CHARGES_MAX || self.signed_bytes > SIGNED_BYTES_MAX {
            let Some(oldest) = self.all.pop_front() else { return };
            self.signed_bytes -= signed_bytes(&oldest);
            self.is_cut = true;
        }
    }

    /// Whether there were more.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Charge> {
        self.all.iter()
    }
}

#[cfg(test)]
mod tests {
    use broker::{
        cost::Cost,
        ids::{RequestId, SiteId},
        ledger::ChargedFor,
        protocol::AttemptId,
        time::{Time, Window},
        trust::testing,
    };

    use super::*;

    fn charge(ended: i64, text_bytes: usize) -> Charge {
        let (entry_point, request) = (SiteId::new("e").unwrap(), RequestId::new("r").unwrap());
        let signed = testing::sign_text("x".repeat(text_bytes), &testing::key(1));
        Charge {
            attempt: AttemptId { entry_point, request, attempt: u32::try_from(ended).unwrap() },
            user: "ada".to_owned(),
            user_key: Some(signed.author),
            window: Window { start: Time(0), end: Time(ended) },
            seats: 1,
            agreed: Cost(5),
            charged: Cost(5),
            reason: ChargedFor::Use,
            ended: Time(ended),
            counts_until: Time(ended),
            statement: Some(signed.into()),
            receipt: None,
        }
    }

    #[test]
    fn the_oldest_makes_room_by_number_and_by_size() {
        let mut charges = Charges::new(vec![charge(3, 10), charge(1, 10), charge(2, 10)]);
        let ends = |charges: &Charges| charges.iter().map(|charge| charge.ended.0).collect::<Vec<_>>();
        assert!(ends(&charges) == [1, 2, 3] && !charges.is_cut());
        // The booking of the second had ended by a wrong clock.
        charges.push(charge(2, 10));
        assert_eq!((ends(&charges), charges.signed_bytes), (vec![1, 3, 2], 30));
        charges.push(charge(3, 10));
        charges.push(charge(4, SIGNED_BYTES_MAX - 20));
        assert!(ends(&charges) == [2, 3, 4] && charges.is_cut());
        charges.push(charge(5, 20));
        assert_eq!((ends(&charges), charges.signed_bytes), (vec![4, 5], SIGNED_BYTES_MAX));
        (6..).take(CHARGES_MAX).for_each(|ended| charges.push(charge(ended, 0)));
        assert_eq!((charges.iter().count(), charges.signed_bytes), (CHARGES_MAX, 0));
    }
}
