//! A peer that breaks every rule it can, for tests and for measuring what it costs honest nodes. Never part of a release:
//! it is compiled for this crate's tests and with the feature `hostile` only.
//!
//! It speaks the grid's protocols over real libp2p, but checks nothing of what it sends. When its targets have thrown it
//! out it comes back under a fresh identity. Invariant: what it keeps is bounded (requests under way, connections held),
//! so that a measurement shows the memory of the victims, not of the attacker.

mod connections;
mod persona;
mod raw;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
};

use libp2p::Multiaddr;

use crate::{
    behaviour::SetUpError,
    config::{GridId, TransportKind},
    identity::IdentityError,
    throttle::Throttle,
};

/// One way to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attack {
    /// Random bytes by gossip.
    GossipGarbage,
    /// Gossip that is larger than its kind may be.
    GossipOversized,
    /// Gossip frames larger than any honest one.
    GossipFrames,
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
    pub const ALL: [Attack; 14] = [
        Attack::GossipGarbage,
        Attack::GossipOversized,
        Attack::GossipFrames,
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

    /// The name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Attack::GossipGarbage => "gossip-garbage",
            Attack::GossipOversized => "gossip-oversized",
            Attack::GossipFrames => "gossip-frames",
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

/// The text names no attack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no attack: expected one of {names}", names = Attack::ALL.map(Attack::name).join(", "))]
pub struct UnknownAttack(String);

impl FromStr for Attack {
    type Err = UnknownAttack;

    fn from_str(text: &str) -> Result<Attack, UnknownAttack> {
        let named = Attack::ALL.into_iter().find(|attack| attack.name() == text);
        named.ok_or_else(|| UnknownAttack(text.chars().take(80).collect()))
    }
}

/// What to do to whom.
#[derive(Debug, Clone)]
pub struct AttackPlan {
    /// The grid whose protocols are spoken.
    pub grid: GridId,
    /// Addresses of the victims, with their peer ids at the end or without.
    pub targets: Vec<Multiaddr>,
    /// What carries the connections.
    pub transport: TransportKind,
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

/// An attacker reads as fast as it can.
const UNLIMITED: Throttle = Throttle { bytes_per_s: u32::MAX, streams_per_s: u32::MAX };

/// Why an attack could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum AttackError {
    /// No key could be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The protocols could not be set up.
    #[error(transparent)]
    SetUp(#[from] SetUpError),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::{eventually, node_with};

    #[test]
    fn attacks_are_named_once_and_found_by_name() {
        for (index, attack) in Attack::ALL.into_iter().enumerate() {
            assert_eq!(attack as usize, index);
            assert_eq!(attack.name().parse(), Ok(attack));
        }
        let error = "none".parse::<Attack>().unwrap_err();
        assert!(error.to_string().contains("dht-records"), "{error}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_attack_reaches_its_victim() {
        for attack in Attack::ALL {
            let victim = node_with(&[], |config| {
                config.transport = TransportKind::TcpAndQuic;
                config.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
                config.intervals.exchange = Duration::from_millis(100);
            })
            .await;
            let plan = AttackPlan {
                grid: GridId::new("test").unwrap(),
                targets: victim.discovery.listen_addresses(),
                transport: TransportKind::TcpAndQuic,
                attacks: BTreeSet::from([attack]),
            };
            let tally = Tally::default();
            tokio::select! {
                outcome = run(&plan, &tally) => outcome.map(drop).unwrap(),
                () = eventually(attack.name(), || tally.sent_by(attack) >= 3) => {}
            }
        }
    }
}
