//! The core's fuzz targets: what it reads from outside, and operations against slow and obvious models.
//!
//! Invariant: a target panics exactly when the core has a fault; input that is merely wrong is refused, and the target
//! returns. A target depends on its bytes only.

mod documents;
mod ledger;
mod negotiation;
mod planner;
mod schedule;
mod trust;
mod view;
mod words;

pub use fuzz_support::Target;

/// All targets of this crate.
pub const TARGETS: &[Target] = &[
    documents::AMOUNT,
    documents::REQUEST,
    documents::SNAPSHOT,
    ledger::LEDGER,
    negotiation::NEGOTIATION,
    planner::PLANNER,
    schedule::SCHEDULE,
    trust::CHAIN,
    trust::GATE,
    trust::STATEMENT,
    view::VIEW,
];

#[cfg(test)]
mod tests {
    use super::*;

    fuzz_support::replay_tests! {
        amounts: "amount",
        requests: "request",
        snapshots: "snapshot",
        ledgers: "ledger",
        negotiations: "negotiation",
        plans: "planner",
        schedules: "schedule",
        chains: "chain",
        gates: "gate",
        statements: "statement",
        views: "view",
    }

    /// Shows that the model of the ledger would notice.
    #[cfg(feature = "canary")]
    #[test]
    fn deliberate_faults_of_the_ledger_are_found() {
        use crate::canary::{self, Canary};

        for fault in [Canary::AdmitBesideHolds, Canary::DoubleRelease, Canary::TakeOverUnsigned] {
            let run = std::thread::spawn(move || {
                canary::set(Some(fault));
                fuzz_support::replay(&ledger::LEDGER, corpus())
            });
            assert!(run.join().is_err(), "{fault:?} was not found");
        }
    }
}
