//! What is counted in simulated runs.
//!
//! Invariant: sums over seeds do not depend on the order in which the seeds were run.

use serde::Serialize;

/// Counts over one or many seeds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Seeds run.
    pub seeds: u64,
    /// Events.
    pub steps: u64,
    /// Crashes of nodes.
    pub crashes: u64,
    /// Times that links were cut.
    pub partitions: u64,
    /// Messages sent.
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Of these, arrived twice.
    pub repeated: u64,
    /// Holds that an attacker asked for without a right to them.
    pub attacks: u64,
    /// Times that an owner took something away.
    pub shrinks: u64,
    /// Times that a user learned that hosts are lost.
    pub degraded: u64,
    /// Times that a user learned that a reservation is whole again, at the same start.
    pub repaired: u64,
    /// Times that a user learned that a reservation is whole again, at another start.
    pub moved: u64,
    /// Times that another node took a request over.
    pub taken_over: u64,
    /// Requests of users.
    pub requests: u64,
    /// Requests that were reserved at the end.
    pub reservations: u64,
    /// Requests without a placement.
    pub rejected: u64,
    /// Requests given up, since sites did not answer or others were faster.
    pub failed: u64,
    /// Requests cancelled.
    pub cancelled: u64,
    /// Requests whose users learned nothing, since the entry point was gone for good or crashed before it had them.
    pub never_told: u64,
    /// Seeds in which an invariant did not hold.
    pub violations: u64,
}

impl Figures {
    /// Names and values in the order of printing.
    pub fn rows(&self) -> [(&'static str, u64); 20] {
        [
            ("seeds", self.seeds),
            ("steps", self.steps),
            ("crashes", self.crashes),
            ("partitions", self.partitions),
            ("messages sent", self.sent),
            ("messages lost", self.lost),
            ("messages repeated", self.repeated),
            ("attacks", self.attacks),
            ("shrinks", self.shrinks),
            ("degraded", self.degraded),
            ("repaired", self.repaired),
            ("moved", self.moved),
            ("taken over", self.taken_over),
            ("requests", self.requests),
            ("reservations", self.reservations),
            ("rejected", self.rejected),
            ("failed", self.failed),
            ("cancelled", self.cancelled),
            ("never told", self.never_told),
            ("violations", self.violations),
        ]
    }

    /// Adds the counts of other seeds.
    pub fn add(&mut self, other: &Figures) {
        let Figures { seeds, steps, crashes, partitions, sent, lost, repeated, attacks, .. } = other;
        let Figures { shrinks, degraded, repaired, moved, taken_over, .. } = other;
        let Figures { requests, reservations, rejected, failed, cancelled, never_told, violations, .. } = other;
        self.seeds += seeds;
        self.steps += steps;
        self.crashes += crashes;
        self.partitions += partitions;
        self.sent += sent;
        self.lost += lost;
        self.repeated += repeated;
        self.attacks += attacks;
        self.shrinks += shrinks;
        self.degraded += degraded;
        self.repaired += repaired;
        self.moved += moved;
        self.taken_over += taken_over;
        self.requests += requests;
        self.reservations += reservations;
        self.rejected += rejected;
        self.failed += failed;
        self.cancelled += cancelled;
        self.never_told += never_told;
        self.violations += violations;
    }
}
