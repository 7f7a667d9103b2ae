//! Offences of peers, and the bans that follow. Pure.
//!
//! Every offence costs points, which leak away with time; a peer with [`POINTS_TO_BAN`] is banned. An honest node with an
//! occasional bad message (a bug, a clock, a version) leaks faster than it gathers. Invariants: what is remembered is
//! bounded however many names an attacker uses: [`POINTS_KEPT_MAX`] peers with points (the one with the fewest gives
//! way) at 60 bytes, and `bans_max` bans (one that is over gives way first, else the one that ends soonest, whose peer
//! may then come back early) at 80 bytes; together below half a MiB. A ban always ends.

use std::{collections::BTreeMap, time::Duration};

use broker::time::Millis;
use libp2p::PeerId;

use crate::clock::millis;

/// Something that no honest node does, or not so often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offence {
    /// Passed on gossip that it could have checked: malformed, unsigned, of another grid.
    InvalidGossip,
    /// Sent gossip that is larger than its kind may be, which no node passes on.
    OversizedGossip,
    /// Signed more gossip than its share.
    GossipFlood,
    /// Brought more gossip than any honest neighbour passes on.
    GossipOverload,
    /// Broke the rules of gossip itself (by its score).
    GossipRules,
    /// Sent a direct request that does not decode or is too large.
    InvalidRequest,
    /// Sent more direct requests than its share.
    RequestFlood,
    /// Sent a direct request too slowly.
    SlowRequest,
    /// Gave an answer that does not decode, is too large, or carries invalid adverts.
    InvalidAnswer,
    /// Put something into the DHT that is no signed advert of its key.
    InvalidRecord,
    /// Showed a made-up credential, or another's.
    MadeUpProof,
    /// Passed on a revocation that nobody who may has signed.
    FalseRevocation,
}

/// Points at which a peer is banned.
pub const POINTS_TO_BAN: u64 = 1000;
/// Thousandths of a point that leak away in a millisecond: ten points a second.
const LEAK: u64 = 10;
/// Peers whose points are remembered.
pub const POINTS_KEPT_MAX: usize = 2048;

impl Offence {
    /// In words, for status output and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Offence::InvalidGossip => "passes on invalid gossip",
            Offence::OversizedGossip => "sends gossip that is too large",
            Offence::GossipFlood => "signs too much gossip",
            Offence::GossipOverload => "brings too much gossip",
            Offence::GossipRules => "breaks the rules of gossip",
            Offence::InvalidRequest => "sends invalid requests",
            Offence::RequestFlood => "sends too many requests",
            Offence::SlowRequest => "sends requests too slowly",
            Offence::InvalidAnswer => "gives invalid answers",
            Offence::InvalidRecord => "puts invalid records",
            Offence::MadeUpProof => "shows a credential that is made up or another's",
            Offence::FalseRevocation => "passes on false revocations",
        }
    }

    /// What it costs. 1000 divided by it is how many in a short time lead to a ban.
    #[must_use]
    pub fn points(self) -> u64 {
        match self {
            // Of revocations each site checks all that it passes on.
            Offence::GossipRules | Offence::FalseRevocation => POINTS_TO_BAN,
            Offence::OversizedGossip | Offence::MadeUpProof => 200,
            Offence::InvalidRequest | Offence::InvalidAnswer => 100,
            Offence::InvalidGossip | Offence::InvalidRecord => 50,
            // A node that stalls with all its requests (64 to one peer) on their way must not be taken for an attacker.
            Offence::SlowRequest => 5,
            Offence::GossipFlood => 2,
            Offence::RequestFlood | Offence::GossipOverload => 1,
        }
    }
}

/// How long bans last.
#[derive(Debug, Clone, Copy)]
pub struct BanTerms {
    /// The first ban; each further one lasts twice as long.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
    /// Most bans that are remembered.
    pub bans_max: usize,
}

/// A ban.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ban {
    /// The peer.
    pub peer: PeerId,
    /// Until when, on the node's monotonic clock.
    pub until: Millis,
    /// The offence that was one too many.
    pub why: Offence,
    /// How often the peer was banned, this time included.
    pub times: u32,
}

#[derive(Debug, Clone, Copy)]
struct Points {
    /// Thousandths.
    milli: u64,
    at: Millis,
    /// The offence that the last of them were for.
    last: Offence,
}

/// Points and bans of all peers.
#[derive(Debug)]
pub struct Conduct {
    terms: BanTerms,
    points: BTreeMap<PeerId, Points>,
    bans: BTreeMap<PeerId, Ban>,
}

impl Conduct {
    /// Nobody has done anything.
    #[must_use]
    pub fn new(terms: BanTerms) -> Conduct {
        Conduct { terms, points: BTreeMap::new(), bans: BTreeMap::new() }
    }

    /// Notes an offence; the ban, when it is one too many.
    pub fn note(&mut self, peer: PeerId, offence: Offence, now: Millis) -> Option<Ban> {
        if self.is_banned(&peer, now) {
            return None;
        }
        let milli = self.points.get(&peer).map_or(0, |points| left(*points, now)) + 1000 * offence.points();
        if milli < 1000 * POINTS_TO_BAN {
            self.keep(peer, Points { milli, at: now, last: offence });
            return None;
        }
        let last = self.points.remove(&peer).map(|points| points.last);
        // Invalid messages are also counted by the score of gossip, which may be full a moment before these points are.
        let is_by_score = offence == Offence::GossipRules && last == Some(Offence::InvalidGossip);
        let why = if is_by_score { Offence::InvalidGossip } else { offence };
        Some(self.ban(peer, why, now))
    }

    /// Whether the peer is banned.
    #[must_use]
    pub fn is_banned(&self, peer: &PeerId, now: Millis) -> bool {
        self.bans.get(peer).is_some_and(|ban| ban.until > now)
    }

    /// The bans that last.
    #[must_use]
    pub fn bans(&self, now: Millis) -> Vec<Ban> {
        self.bans.values().filter(|ban| ban.until > now).copied().collect()
    }

    /// Forgets points that have leaked away, and bans that ended so long ago that they no longer count.
    pub fn forget(&mut self, now: Millis) {
        let longest = millis(self.terms.longest);
        self.points.retain(|_, points| left(*points, now) > 0);
        self.bans.retain(|_, ban| ban.until + longest > now);
    }

    fn ban(&mut self, peer: PeerId, why: Offence, now: Millis) -> Ban {
        let times = self.bans.get(&peer).map_or(1, |before| before.times.saturating_add(1));
        let doubled = 1_u64.checked_shl(times - 1).unwrap_or(u64::MAX);
        let lasts = millis(self.terms.first).0.saturating_mul(doubled).min(millis(self.terms.longest).0);
        let ban = Ban { peer, until: now + Millis(lasts), why, times };
        if !self.bans.contains_key(&peer) && self.bans.len() >= self.terms.bans_max {
            let soonest = self.bans.values().min_by_key(|ban| ban.until).map(|ban| ban.peer);
            if let Some(soonest) = soonest {
                self.bans.remove(&soonest);
            }
        }
        self.bans.insert(peer, ban);
        ban
    }

    fn keep(&mut self, peer: PeerId, points: Points) {
        if !self.points.contains_key(&peer) && self.points.len() >= POINTS_KEPT_MAX {
            let fewest = self.points.iter().min_by_key(|(_, kept)| left(**kept, points.at)).map(|(peer, _)| *peer);
            if let Some(fewest) = fewest {
                self.points.remove(&fewest);
            }
        }
        self.points.insert(peer, points);
    }
}

fn left(points: Points, now: Millis) -> u64 {
    points.milli.saturating_sub((now - points.at).0.saturating_mul(LEAK))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TERMS: BanTerms =
        BanTerms { first: Duration::from_secs(600), longest: Duration::from_secs(24 * 3600), bans_max: 8 };

    fn offend_until_banned(conduct: &mut Conduct, peer: PeerId, now: Millis) -> (u64, Ban) {
        for number in 1.. {
            if let Some(ban) = conduct.note(peer, Offence::InvalidGossip, now) {
                return (number, ban);
            }
        }
        unreachable!("the loop has no end")
    }

    #[test]
    fn bans_double_up_to_the_longest_and_end() {
        let mut conduct = Conduct::new(TERMS);
        let peer = PeerId::random();
        let mut now = Millis(5);
        for expected_s in [600, 1200, 2400, 4800, 9600, 19_200, 38_400, 76_800, 86_400, 86_400] {
            let (offences, ban) = offend_until_banned(&mut conduct, peer, now);
            assert_eq!((offences, ban.until - now), (20, Millis(expected_s * 1000)));
            assert!(conduct.note(peer, Offence::GossipRules, now).is_none(), "a ban is not prolonged while it lasts");
            now = ban.until;
            assert!(!conduct.is_banned(&peer, now) && conduct.is_banned(&peer, now - Millis(1)));
        }
        now = now + Millis(86_400_000);
        conduct.forget(now);
        assert_eq!(offend_until_banned(&mut conduct, peer, now).1.times, 1, "good conduct is rewarded");
    }

    #[test]
    fn an_occasional_bad_message_never_leads_to_a_ban() {
        let mut conduct = Conduct::new(TERMS);
        let peer = PeerId::random();
        let banned = (0..100_000).find_map(|n| conduct.note(peer, Offence::InvalidGossip, Millis(n * 5000)));
        assert_eq!(banned, None);
    }

    #[test]
    fn made_up_names_do_not_grow_the_tables() {
        let mut conduct = Conduct::new(TERMS);
        let worst = PeerId::random();
        let (_, ban) = offend_until_banned(&mut conduct, worst, Millis(1));
        let (_, again) = offend_until_banned(&mut conduct, worst, ban.until);
        let now = ban.until + Millis(1);
        for _ in 0..POINTS_KEPT_MAX + 100 {
            conduct.note(PeerId::random(), Offence::InvalidGossip, now);
        }
        for _ in 0..50 {
            conduct.note(PeerId::random(), Offence::GossipRules, now);
        }
        assert_eq!((conduct.points.len(), conduct.bans.len()), (POINTS_KEPT_MAX, 8));
        assert!(conduct.is_banned(&worst, now), "the longest ban, until {:?}, is not pushed out", again.until);
        conduct.forget(now + Millis(100_000_000_000));
        assert_eq!((conduct.points.len(), conduct.bans.len()), (0, 0));
    }

    proptest! {
        #[test]
        fn bans_agree_with_a_plain_account(gaps in proptest::collection::vec((0_u64..20_000, 0_u8..3), 1..300)) {
            // The oracle keeps the account millisecond by millisecond, in hundredths.
            let mut conduct = Conduct::new(TERMS);
            let peer = PeerId::random();
            let (mut now, mut account, mut banned_until) = (Millis(0), 0_i64, Millis(0));
            for (gap, kind) in gaps {
                now = now + Millis(gap);
                (0..gap).for_each(|_| account = (account - 1).max(0));
                let offence = [Offence::InvalidRequest, Offence::InvalidGossip, Offence::SlowRequest][usize::from(kind)];
                let ban = conduct.note(peer, offence, now);
                if now < banned_until {
                    prop_assert_eq!(ban, None);
                    account = 0;
                    continue;
                }
                account += 100 * i64::try_from(offence.points()).unwrap();
                prop_assert_eq!(ban.is_some(), account >= 100_000, "{}", account);
                if let Some(ban) = ban {
                    banned_until = ban.until;
                    account = 0;
                }
            }
        }
    }
}
