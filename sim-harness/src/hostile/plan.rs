//! What a hostile peer does to whom, and the count of what it did.

use std::{collections::BTreeMap, net::Ipv4Addr, sync::Mutex};

use clap::ValueEnum;
use discovery::{GridId, Multiaddr};
use serde::{Deserialize, Serialize};

/// One way to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// Whole hosts of the targets, reserved for as long and as far ahead as the targets let it, without haste.
    Hoard,
    /// Whole hosts of the targets, held and never confirmed, again and again, without haste.
    Block,
    /// Connections: half-open ones, and complete ones under fresh identities on which nothing follows.
    Connections,
    /// Records that are no adverts, put into the DHT.
    DhtRecords,
    /// Providers that do not exist, in answer to every lookup, and index keys that mean nothing.
    DhtProviders,
}

impl Attack {
    /// The attacks that keep to all limits of the network, each under an identity of its own.
    pub const PATIENT: [Attack; 2] = [Attack::Hoard, Attack::Block];
}

/// What to do to whom.
#[derive(Debug, Clone)]
pub struct AttackPlan {
    /// The grid whose protocols are spoken.
    pub grid: GridId,
    /// Addresses of the victims, with their peer ids at the end or without.
    pub targets: Vec<Multiaddr>,
    /// What to do, all at once; all there is when empty.
    pub attacks: Vec<Attack>,
    /// The address of this machine that a flood of connections comes from; the other attacks come from those that follow, of the same network.
    pub from: Ipv4Addr,
}

impl AttackPlan {
    pub fn has(&self, attack: Attack) -> bool {
        self.attacks.is_empty() || self.attacks.contains(&attack)
    }

    /// The same with only those attacks that `which` takes; none when none is left.
    pub fn only(&self, which: impl Fn(Attack) -> bool) -> Option<AttackPlan> {
        let all = Attack::value_variants().iter().copied();
        let attacks: Vec<Attack> = all.filter(|attack| self.has(*attack) && which(*attack)).collect();
        (!attacks.is_empty()).then(|| AttackPlan { attacks, ..self.clone() })
    }

    /// The same from an address so far behind. Where there is only one, as on other systems than Linux, all attacks share it.
    pub fn beside(self, number: u32) -> AttackPlan {
        let from = match self.from {
            Ipv4Addr::LOCALHOST => Ipv4Addr::LOCALHOST,
            from => Ipv4Addr::from_bits(from.to_bits().saturating_add(number)),
        };
        AttackPlan { from, ..self }
    }

    /// The attack, when it is a patient one that is done alone.
    pub fn patient(&self) -> Option<Attack> {
        Attack::PATIENT.into_iter().find(|patient| self.attacks == [*patient])
    }
}

/// What attackers did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deeds {
    /// Messages sent (connections opened, for [`Attack::Connections`]) by attack.
    pub sent: BTreeMap<Attack, u64>,
    /// Holds and reservations granted to the patient attacks.
    pub granted: BTreeMap<Attack, u64>,
    /// Identities used, those of [`Attack::Connections`] and of made-up sites not counted.
    pub identities: u64,
    /// Connections that were established.
    pub connections: u64,
    /// Connections that the other side closed or refused.
    pub thrown_out: u64,
    /// Direct requests that were answered at all, be it with "busy".
    pub answers: u64,
}

impl Deeds {
    /// Adds what another attacker did.
    pub fn add(&mut self, other: Deeds) {
        for (attack, count) in other.sent {
            *self.sent.entry(attack).or_default() += count;
        }
        for (attack, count) in other.granted {
            *self.granted.entry(attack).or_default() += count;
        }
        self.identities += other.identities;
        self.connections += other.connections;
        self.thrown_out += other.thrown_out;
        self.answers += other.answers;
    }
}

/// What an attacker has done so far, shared with whoever measures.
#[derive(Debug)]
pub struct Tally(Mutex<Deeds>);

impl Tally {
    /// Nothing yet, of every attack.
    pub fn new() -> Tally {
        let sent = Attack::value_variants().iter().map(|attack| (*attack, 0)).collect();
        Tally(Mutex::new(Deeds { sent, ..Deeds::default() }))
    }

    /// All of it.
    pub fn deeds(&self) -> Deeds {
        self.count(|deeds| deeds.clone())
    }

    pub fn count<T>(&self, count: impl FnOnce(&mut Deeds) -> T) -> T {
        count(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    pub fn sent(&self, attack: Attack) {
        self.count(|deeds| *deeds.sent.entry(attack).or_default() += 1);
    }
}
