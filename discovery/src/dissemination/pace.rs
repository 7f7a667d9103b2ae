//! When something may be sent that costs others work: a few at once after a quiet time, and one an interval on average. Pure.
//!
//! Invariant: in any time of t no more than `BURST + t / interval` are sent.

use broker::time::Millis;

/// So many may go at once. News of a quiet grid travel without a wait; those of a busy one are gathered.
pub(crate) const BURST: u64 = 8;

/// The times of what is sent. An empty bucket is filled after [`BURST`] intervals.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Millis,
    /// When all that was sent would have been sent, one an interval.
    sent_until: Millis,
}

impl Pace {
    /// Nothing was sent yet.
    pub(crate) fn new(interval: Millis) -> Pace {
        Pace { interval, sent_until: Millis(0) }
    }

    /// When the next may be sent.
    pub(crate) fn due(&self) -> Millis {
        Millis(self.sent_until.0.saturating_sub((BURST - 1) * self.interval.0))
    }

    /// Notes that one was sent.
    pub(crate) fn sent(&mut self, now: Millis) {
        self.sent_until = Millis(self.sent_until.0.max(now.0).saturating_add(self.interval.0));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn some_go_at_once_and_one_an_interval_on_average(waits in proptest::collection::vec(0_u64..1_500, 1..200)) {
            let mut pace = Pace::new(Millis(100));
            let (mut now, mut sent) = (Millis(0), Vec::new());
            for wait in waits {
                now = now + Millis(wait);
                if pace.due() <= now {
                    pace.sent(now);
                    sent.push(now.0);
                }
            }
            for (first, from) in sent.iter().enumerate() {
                for (count, to) in (1..).zip(&sent[first..]) {
                    prop_assert!(count <= BURST + (to - from) / 100, "{count} from {from} to {to}");
                }
            }
            prop_assert!(pace.due() <= now + Millis(100), "one an interval goes out");
        }
    }

    #[test]
    fn after_a_quiet_time_a_burst_goes_at_once() {
        let mut pace = Pace::new(Millis(100));
        for _ in 0..BURST {
            assert!(pace.due() <= Millis(5_000));
            pace.sent(Millis(5_000));
        }
        assert_eq!(pace.due(), Millis(5_100));
    }
}
