//! A peer that breaks every rule it can, for tests and for measuring what it costs honest nodes.
//!
//! It speaks the grid's protocols over real libp2p, but checks nothing of what it sends. When its targets have banned it,
//! it comes back under a fresh identity. Invariant: what it keeps is bounded (requests under way, connections held), so
//! that a measurement shows the memory of the victims, not of the attacker.

mod connections;
mod persona;
mod raw;
#[cfg(test)]
mod tests;
mod transport;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use discovery::{GridId, Multiaddr, identity::IdentityError, wire::names::NameError};

/// One way to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attack {
    /// Random bytes by gossip.
    GossipGarbage,
    /// Gossip that is larger than its kind may be.
    GossipOversized,
    /// Envelopes with broken signatures, of another grid, expired, or in another site's name, by gossip.
    GossipForged,
    /// Valid adverts of sites made up on the spot, by gossip.
    GossipFreshIdentities,
    /// Valid adverts of its own, one after the other, by gossip.
    GossipFlood,
    /// Direct requests that are well formed, as many as go out.
    AskFlood,
    /// Direct requests that do not decode, or are larger than any honest one.
    AskGarbage,
    /// Direct requests that arrive one byte a second.
    AskSlow,
    /// Answers to the requests of honest nodes: pages of adverts of made-up sites, or garbage.
    LyingAnswers,
    /// Holds on all hosts of the targets that are never confirmed.
    Holds,
    /// Connections: half-open ones, and complete ones under fresh identities that then say nothing.
    Connections,
    /// Records that are no adverts, put into the DHT.
    DhtRecords,
    /// Providers that do not exist, told to whoever looks something up, and index keys that mean nothing.
    DhtProviders,
}

impl Attack {
    /// All of them.
    pub const ALL: [Attack; 13] = [
        Attack::GossipGarbage,
        Attack::GossipOversized,
        Attack::GossipForged,
        Attack::GossipFreshIdentities,
        Attack::GossipFlood,
        Attack::AskFlood,
        Attack::AskGarbage,
        Attack::AskSlow,
        Attack::LyingAnswers,
        Attack::Holds,
        Attack::Connections,
        Attack::DhtRecords,
        Attack::DhtProviders,
    ];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Attack::GossipGarbage => "gossip-garbage",
            Attack::GossipOversized => "gossip-oversized",
            Attack::GossipForged => "gossip-forged",
            Attack::GossipFreshIdentities => "gossip-fresh-identities",
            Attack::GossipFlood => "gossip-flood",
            Attack::AskFlood => "ask-flood",
            Attack::AskGarbage => "ask-garbage",
            Attack::AskSlow => "ask-slow",
            Attack::LyingAnswers => "lying-answers",
            Attack::Holds => "holds",
            Attack::Connections => "connections",
            Attack::DhtRecords => "dht-records",
            Attack::DhtProviders => "dht-providers",
        }
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What to do to whom.
#[derive(Debug, Clone)]
pub struct AttackPlan {
    /// The grid whose protocols are spoken.
    pub grid: GridId,
    /// Addresses of the victims, with their peer ids at the end or without.
    pub targets: Vec<Multiaddr>,
    /// What to do, all at once.
    pub attacks: BTreeSet<Attack>,
}

/// What an attacker did so far. Shared with whoever measures.
#[derive(Debug, Default)]
pub struct Tally {
    sent: [AtomicU64; Attack::ALL.len()],
    identities: AtomicU64,
    connections: AtomicU64,
    thrown_out: AtomicU64,
    answers: AtomicU64,
}

impl Tally {
    /// Messages sent (connections opened, for [`Attack::Connections`]) by attack.
    #[must_use]
    pub fn sent(&self) -> BTreeMap<&'static str, u64> {
        Attack::ALL.iter().map(|attack| (attack.name(), self.sent_by(*attack))).collect()
    }

    /// Messages sent by one attack.
    #[must_use]
    pub fn sent_by(&self, attack: Attack) -> u64 {
        self.sent[attack as usize].load(Ordering::Relaxed)
    }

    /// Identities used so far, those of [`Attack::Connections`] and of made-up sites not counted.
    #[must_use]
    pub fn identities(&self) -> u64 {
        self.identities.load(Ordering::Relaxed)
    }

    /// Connections that were established.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections that were closed or refused by the other side.
    #[must_use]
    pub fn thrown_out(&self) -> u64 {
        self.thrown_out.load(Ordering::Relaxed)
    }

    /// Direct requests that were answered at all, be it with "busy".
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    fn add(&self, attack: Attack, count: u64) {
        self.sent[attack as usize].fetch_add(count, Ordering::Relaxed);
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Why an attack could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum AttackError {
    /// No key could be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The grid's name makes no name of a protocol.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A protocol could not be set up.
    #[error("cannot set up {part}: {why}")]
    SetUp {
        /// The protocol.
        part: &'static str,
        /// What went wrong.
        why: String,
    },
}

fn set_up(part: &'static str) -> impl Fn(&dyn fmt::Display) -> AttackError {
    move |why| AttackError::SetUp { part, why: why.to_string() }
}

/// Attacks at full speed until dropped. It must run on a tokio runtime with timers and network, best in a process of its
/// own.
///
/// # Errors
/// [`AttackError`] when no identity or no protocols can be had; victims that cannot be reached are tried again for ever.
pub async fn run(plan: &AttackPlan, tally: &Tally) -> Result<Infallible, AttackError> {
    let connections = async {
        if plan.attacks.contains(&Attack::Connections) {
            connections::flood(plan, tally).await
        } else {
            std::future::pending().await
        }
    };
    tokio::select! {
        outcome = persona::one_after_the_other(plan, tally) => outcome,
        outcome = connections => outcome,
    }
}
