//! What happened, counted by name. Invariant: the set of names is fixed when compiled, so nothing that a peer sends can
//! make it grow.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// What is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
        }

        impl Counter {
            const ALL: &'static [Counter] = &[$(Counter::$variant,)*];

            /// The counter's name in status output and metrics.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Counter::$variant => $name,)*
                }
            }
        }

        /// All counters of one node.
        #[derive(Debug)]
        pub struct Counters([AtomicU64; Counter::ALL.len()]);

        impl Default for Counters {
            fn default() -> Counters {
                Counters([const { AtomicU64::new(0) }; Counter::ALL.len()])
            }
        }
    };
}

counters! {
    /// Gossip messages that reached this node once: adverts, and bundles of updates.
    GossipReceived => "gossip_received",
    /// Gossip messages sent by this site: adverts, and bundles of its own updates and those passed on.
    GossipPublished => "gossip_published",
    /// Gossip messages that could not be sent (no neighbours yet, queues full, too large).
    GossipPublishFailed => "gossip_publish_failed",
    /// Schedule changes given up because too many were waiting; receivers see a gap and ask.
    ChangesDropped => "changes_dropped",
    /// Schedule updates that came again by another neighbour.
    UpdateCopies => "update_copies",
    /// Schedule updates not passed on because too many were waiting; receivers see a gap and ask.
    UpdatesNotPassedOn => "updates_not_passed_on",
    /// Adverts that were news.
    AdvertsApplied => "adverts_applied",
    /// Departures that were news.
    Departures => "departures",
    /// Schedule updates that were news.
    UpdatesApplied => "updates_applied",
    /// Gaps seen in the changes of a site.
    Gaps => "gaps",
    /// Dropped: larger than its kind may be.
    DroppedOversized => "dropped_oversized",
    /// Dropped: does not decode.
    DroppedMalformed => "dropped_malformed",
    /// Dropped: of a version or of a kind that this node does not know.
    DroppedNotUnderstood => "dropped_not_understood",
    /// Dropped: not signed by the author it names.
    DroppedUnsigned => "dropped_unsigned",
    /// Dropped: of another grid.
    DroppedForeignGrid => "dropped_foreign_grid",
    /// Dropped: its time to live is over.
    DroppedExpired => "dropped_expired",
    /// Dropped: signed further in the future than clocks may differ.
    DroppedFromFuture => "dropped_from_future",
    /// Dropped: older than what is known already.
    DroppedStale => "dropped_stale",
    /// Dropped: speaks for another site than its author's.
    DroppedWrongAuthor => "dropped_wrong_author",
    /// Dropped: breaks a limit on names, numbers or amounts.
    DroppedInvalid => "dropped_invalid",
    /// Dropped: its author sends more than its share.
    DroppedFlood => "dropped_flood",
    /// Dropped: its author is banned.
    DroppedBanned => "dropped_banned",
    /// Dropped: its author shows no valid credential of the grid.
    DroppedNotMember => "dropped_not_member",
    /// Revocations learnt from other sites.
    RevocationsLearnt => "revocations_learnt",
    /// Sites dropped from the view because they no longer belong to the grid.
    SitesExpelled => "sites_expelled",
    /// Dropped unchecked: the neighbour brings more than any honest one.
    DroppedOverload => "dropped_overload",
    /// Dropped: of a new site, when too many were introduced.
    DroppedNewcomers => "dropped_newcomers",
    /// Dropped: the view is full of sites that answer, and this one is new.
    DroppedViewFull => "dropped_view_full",
    /// Offences noted, whatever they cost their peer.
    Offences => "offences",
    /// Peers banned.
    PeersBanned => "peers_banned",
    /// Connections refused because their peer is banned.
    ConnectionsRefusedBanned => "connections_refused_banned",
    /// Connections refused because their address has too many.
    ConnectionsRefusedTooMany => "connections_refused_too_many",
    /// Connections refused because they come too fast.
    ConnectionsRefusedTooFast => "connections_refused_too_fast",
    /// Connections refused because too many are open or in their handshake.
    ConnectionsRefusedFull => "connections_refused_full",
    /// Connections that others have opened from other machines.
    ConnectionsFromElsewhere => "connections_from_elsewhere",
    /// Connections closed because the peer did not name its grid.
    ConnectionsClosedSilent => "connections_closed_silent",
    /// Proofs of membership that were refused.
    ProofsRefused => "proofs_refused",
    /// Peers disconnected because they did not prove that they belong to the closed grid, or no longer do.
    NonMembersDisconnected => "non_members_disconnected",
    /// Connections closed because the other side is of another grid.
    StrangersDisconnected => "strangers_disconnected",
    /// Direct requests sent.
    AsksOut => "asks_out",
    /// Direct requests sent that shared a message with others to the same site.
    AsksShared => "asks_shared",
    /// Direct requests that failed, for whatever reason.
    AsksFailed => "asks_failed",
    /// Direct requests refused here because too many were open.
    AsksRefused => "asks_refused",
    /// Direct requests received.
    AsksIn => "asks_in",
    /// Direct requests answered with "busy" because the queue was full.
    AsksInBusy => "asks_in_busy",
    /// Direct requests answered with "busy" because their peer sends more than its share.
    AsksInRefused => "asks_in_refused",
    /// Direct requests of a kind that this node does not know.
    AsksInNotUnderstood => "asks_in_not_understood",
    /// Direct requests cut off because they took too long to arrive.
    AsksInSlow => "asks_in_slow",
    /// Direct requests or answers that did not decode or were too large.
    AskDecodeFailures => "ask_decode_failures",
    /// Records and index entries put into the DHT.
    DhtPuts => "dht_puts",
    /// Puts that reached no node.
    DhtPutsFailed => "dht_puts_failed",
    /// Look-ups in the DHT.
    DhtGets => "dht_gets",
    /// Look-ups that found nothing or ran out of time.
    DhtGetsEmpty => "dht_gets_empty",
    /// Records and index entries of others refused by this node's store.
    DhtStoreRefused => "dht_store_refused",
    /// Providers of the index that could not be verified.
    ProvidersUnverified => "providers_unverified",
    /// Commands that a site has refused for want of what its advert claims.
    ClaimsRefused => "claims_refused",
    /// Schedules fetched from their sites.
    SchedulesFetched => "schedules_fetched",
    /// Fetches of schedules that failed.
    ScheduleFetchesFailed => "schedule_fetches_failed",
    /// Schedules served to others.
    SchedulesServed => "schedules_served",
    /// Adverts learnt from a neighbour's collection.
    AdvertsExchanged => "adverts_exchanged",
    /// Sites dropped from the view because it was full.
    SitesEvicted => "sites_evicted",
    /// Sites dropped from the view because their advert ran out.
    SitesExpired => "sites_expired",
    /// Dials that failed.
    DialsFailed => "dials_failed",
    /// Connections closed because more than enough were open.
    ConnectionsTrimmed => "connections_trimmed",
}

impl Counters {
    /// Counts one.
    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Counts `n`.
    pub fn add(&self, counter: Counter, n: u64) {
        self.0[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// The present value.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }

    /// All values by name.
    #[must_use]
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        Counter::ALL.iter().map(|counter| (counter.name(), self.get(*counter))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_its_own_place_and_name() {
        let counters = Counters::default();
        for (index, counter) in Counter::ALL.iter().enumerate() {
            counters.add(*counter, index as u64);
        }
        let all = counters.all();
        assert_eq!(all.len(), Counter::ALL.len());
        for (index, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(all[counter.name()], index as u64);
        }
    }
}
