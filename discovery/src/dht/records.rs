//! This node's use of the DHT, and its part of it.
//!
//! Invariant: look-ups in flight are bounded by the callers' semaphore, puts by `dht_puts_max`; a foreign record is
//! stored only when it is a signed advert under its author's key and not older than the one that is there; one provider
//! gets no more index keys here than an honest site has.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use broker::{classes::Hosts, time::Millis};
use libp2p::{
    PeerId,
    kad::{
        self, GetProvidersOk, GetRecordOk, InboundRequest, ProviderRecord, QueryId, QueryResult, Record, RecordKey,
        store::{MemoryStore, RecordStore as _},
    },
};
use tokio::sync::oneshot;

use super::index::{self, KEYS_PER_SITE_MAX};
use crate::{
    clock::millis,
    config::DhtUpkeep,
    counters::Counter,
    identity::site_of_peer,
    shared::Shared,
    wire::{self, Payload},
};

type Kad = kad::Behaviour<MemoryStore>;

/// The queries of this node, what it publishes, and what it stores for others.
pub(crate) struct Dht {
    shared: Arc<Shared>,
    /// `QueryId` has no order, so this one map is hashed; nothing iterates over it.
    lookups: HashMap<QueryId, Lookup>,
    puts_open: usize,
    /// How long the next put waits.
    put_pause: Millis,
    puts: VecDeque<Put>,
    /// Whether the last put was the advert's.
    was_advert: bool,
    provided: BTreeSet<RecordBytes>,
    stored: BTreeMap<PeerId, BTreeMap<RecordBytes, Instant>>,
    stored_entries: usize,
}

type RecordBytes = Vec<u8>;

/// Why something of others is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotStored {
    /// No honest node stores that.
    Invalid,
    /// Too old, or newer is there.
    Old,
    /// There is no room, or the provider has its share.
    NoRoom,
}

enum Lookup {
    Providers { found: BTreeSet<PeerId>, reply: oneshot::Sender<BTreeSet<PeerId>> },
    Record(oneshot::Sender<Option<Vec<u8>>>),
    Put { started: Millis },
}

enum Put {
    Advert(Vec<u8>),
    Index(RecordKey),
}

/// Providers collected for one key before its look-up ends; a key rarely returns more. The last answer may add
/// [`kad::K_VALUE`] to them, so one key costs a find the verification of at most 83 sites.
const PROVIDERS_MAX: usize = 64;

/// The pause after a put, in times that it took: they are background work, and slow where nodes are busy.
const PUT_REST: u64 = 8;
/// The longest pause between two puts.
const PUT_PAUSE_MAX: Millis = Millis(64_000);

impl Dht {
    pub(crate) fn new(shared: Arc<Shared>) -> Dht {
        Dht {
            put_pause: millis(shared.config.intervals.dht_put_pause),
            shared,
            lookups: HashMap::new(),
            puts_open: 0,
            puts: VecDeque::new(),
            was_advert: false,
            provided: BTreeSet::new(),
            stored: BTreeMap::new(),
            stored_entries: 0,
        }
    }

    /// Queues an advert, in place of an older one that was queued.
    pub(crate) fn publish_advert(&mut self, envelope: Vec<u8>) {
        self.puts.retain(|put| !matches!(put, Put::Advert(_)));
        self.puts.push_front(Put::Advert(envelope));
    }

    /// Queues the keys of the index, in place of what was queued before, and takes back those that are no longer true.
    pub(crate) fn publish_index(&mut self, kad: &mut Kad, hosts: &Hosts) {
        let grid = &self.shared.config.grid;
        let keys = index::keys_of_site(grid, self.shared.site(), hosts);
        let wanted: BTreeSet<RecordBytes> = keys.iter().map(RecordKey::to_vec).collect();
        for gone in self.provided.difference(&wanted) {
            kad.stop_providing(&RecordKey::new(gone));
        }
        self.provided.retain(|key| wanted.contains(key));
        self.puts.retain(|put| matches!(put, Put::Advert(_)));
        self.puts.extend(keys.into_iter().map(Put::Index));
    }

    /// Whether a put waits.
    pub(crate) fn is_put_waiting(&self) -> bool {
        !self.puts.is_empty()
    }

    /// Whether a put waits and may start.
    pub(crate) fn may_put(&self) -> bool {
        !self.puts.is_empty() && self.puts_open < self.shared.config.limits.dht_puts_max
    }

    /// Starts the next put.
    pub(crate) fn put_next(&mut self, kad: &mut Kad) {
        let Some(put) = take_turn(&mut self.puts, self.was_advert) else { return };
        self.was_advert = matches!(put, Put::Advert(_));
        self.shared.count(Counter::DhtPuts);
        let started = match put {
            Put::Advert(envelope) => {
                let key = index::advert_key(&self.shared.config.grid, self.shared.site());
                let mut record = Record::new(key, envelope);
                record.expires = Some(Instant::now() + self.shared.advert_time_to_live());
                kad.put_record(record, kad::Quorum::One)
            }
            Put::Index(key) => {
                self.provided.insert(key.to_vec());
                kad.start_providing(key)
            }
        };
        match started {
            Ok(id) => {
                self.puts_open += 1;
                self.lookups.insert(id, Lookup::Put { started: self.shared.clock.now() });
            }
            Err(_) => self.shared.count(Counter::DhtPutsFailed),
        }
    }

    /// Takes everything back that makes this site findable, and leaves the departure in its place.
    pub(crate) fn leave(&mut self, kad: &mut Kad, departure: Vec<u8>) {
        self.publish_index(kad, &Hosts::default());
        self.publish_advert(departure);
        self.put_next(kad);
    }

    pub(crate) fn find_providers(&mut self, kad: &mut Kad, key: RecordKey, reply: oneshot::Sender<BTreeSet<PeerId>>) {
        self.shared.count(Counter::DhtGets);
        let id = kad.get_providers(key);
        self.lookups.insert(id, Lookup::Providers { found: BTreeSet::new(), reply });
    }

    pub(crate) fn find_record(&mut self, kad: &mut Kad, key: RecordKey, reply: oneshot::Sender<Option<Vec<u8>>>) {
        self.shared.count(Counter::DhtGets);
        let id = kad.get_record(key);
        self.lookups.insert(id, Lookup::Record(reply));
    }

    /// Follows the queries of this node.
    pub(crate) fn progressed(&mut self, kad: &mut Kad, id: QueryId, result: QueryResult, is_last: bool) {
        let is_done = match result {
            QueryResult::GetProviders(Ok(GetProvidersOk::FoundProviders { providers, .. })) => {
                match self.lookups.get_mut(&id) {
                    Some(Lookup::Providers { found, .. }) => {
                        // No honest node keeps more of one key than this, so a liar gets no more in either.
                        found.extend(providers.into_iter().take(kad::K_VALUE.get()));
                        found.len() >= PROVIDERS_MAX
                    }
                    _ => false,
                }
            }
            QueryResult::GetRecord(Ok(GetRecordOk::FoundRecord(found))) => {
                if let Some(Lookup::Record(reply)) = self.lookups.remove(&id) {
                    // An error means that the caller has gone.
                    let _ = reply.send(Some(found.record.value));
                }
                true
            }
            QueryResult::PutRecord(Err(_)) | QueryResult::StartProviding(Err(_)) => {
                self.shared.count(Counter::DhtPutsFailed);
                false
            }
            _ => false,
        };
        if is_done && let Some(mut query) = kad.query_mut(&id) {
            query.finish();
        }
        if is_done || is_last {
            self.finish(id);
        }
    }

    /// A put asks some twenty nodes. The longer they take, the later comes the next one: when many sites share few
    /// processors, none of them would get anywhere otherwise.
    fn put_ended(&mut self, started: Millis) {
        self.puts_open -= 1;
        self.put_pause = rest_after(self.shared.clock.now() - started, self.shortest_pause());
    }

    fn shortest_pause(&self) -> Millis {
        let keys = self.provided.len().max(self.puts.len());
        let (upkeep, sites) = (self.shared.dht_upkeep(), self.shared.view.site_count());
        millis(self.shared.config.intervals.dht_put_pause_at(upkeep, sites, keys))
    }

    fn finish(&mut self, id: QueryId) {
        // An error of a send means that the caller has gone.
        match self.lookups.remove(&id) {
            Some(Lookup::Providers { found, reply }) => {
                if found.is_empty() {
                    self.shared.count(Counter::DhtGetsEmpty);
                }
                let _ = reply.send(found);
            }
            Some(Lookup::Record(reply)) => {
                self.shared.count(Counter::DhtGetsEmpty);
                let _ = reply.send(None);
            }
            Some(Lookup::Put { started }) => self.put_ended(started),
            None => {}
        }
    }

    /// Goes on from one step of looking for neighbours in the DHT to the next. The first one finds those nearest to this node;
    /// the others, one for each greater distance, would open some twenty connections each, and in a large grid a node meets
    /// nodes of all distances anyway: it first asks those that gossip brings.
    pub(crate) fn neighbours_found(&self, kad: &mut Kad, id: QueryId) {
        if self.shared.dht_upkeep() == DhtUpkeep::Rare
            && let Some(mut query) = kad.query_mut(&id)
        {
            query.finish();
        }
    }

    /// Decides what to store for others; returns the peer that asked for something that no honest node stores.
    pub(crate) fn store(&mut self, kad: &mut Kad, request: InboundRequest) -> Option<PeerId> {
        let stored = match request {
            InboundRequest::PutRecord { record: Some(record), source, .. } => {
                self.store_record(kad, record).map_err(|refused| (refused == NotStored::Invalid).then_some(source))
            }
            InboundRequest::AddProvider { record: Some(record) } => {
                let provider = record.provider;
                self.store_provider(kad, record).map_err(|refused| (refused == NotStored::Invalid).then_some(provider))
            }
            _ => return None,
        };
        stored.err().inspect(|_| self.shared.count(Counter::DhtStoreRefused)).flatten()
    }

    fn store_record(&mut self, kad: &mut Kad, record: Record) -> Result<(), NotStored> {
        let opened = self.shared.open(&record.value).map_err(|dropped| {
            self.shared.count(dropped.counter());
            if dropped.is_forwarders_fault() { NotStored::Invalid } else { NotStored::Old }
        })?;
        let Payload::Advert(advert) = opened.payload else { return Err(NotStored::Invalid) };
        if record.key != index::advert_key(&self.shared.config.grid, &advert.site) {
            return Err(NotStored::Invalid);
        }
        let stored = kad.store_mut().get(&record.key).and_then(|stored| wire::peek(&stored.value));
        if stored.is_some_and(|(_, sequence)| sequence > advert.sequence) {
            return Err(NotStored::Old);
        }
        kad.store_mut().put(record).map_err(|_| NotStored::NoRoom)
    }

    fn store_provider(&mut self, kad: &mut Kad, mut record: ProviderRecord) -> Result<(), NotStored> {
        const ADDRESSES_MAX: usize = 16;
        if record.key.as_ref().len() != 32 || record.addresses.len() > ADDRESSES_MAX {
            return Err(NotStored::Invalid);
        }
        let key = record.key.to_vec();
        let time_to_live = self.shared.config.intervals.index_time_to_live_at(self.shared.dht_upkeep());
        let ours = Instant::now() + time_to_live;
        let expires = record.expires.map_or(ours, |expires| expires.min(ours));
        record.expires = Some(expires);
        let has = self.stored.get(&record.provider);
        if has.is_none_or(|keys| !keys.contains_key(&key)) {
            let keys_max = self.shared.config.limits.dht_keys_max;
            let is_known_site = site_of_peer(&record.provider).is_some_and(|site| self.shared.view.knows(&site));
            // Whoever made up a name gets a part only: sites that are known find room in the rest.
            let entries_max = if is_known_site { keys_max } else { keys_max / 2 };
            if self.stored_entries >= entries_max || has.is_some_and(|keys| keys.len() >= KEYS_PER_SITE_MAX) {
                return Err(NotStored::NoRoom);
            }
        }
        let provider = record.provider;
        kad.store_mut().add_provider(record).map_err(|_| NotStored::NoRoom)?;
        let keys = self.stored.entry(provider).or_default();
        self.stored_entries += usize::from(keys.insert(key, expires).is_none());
        Ok(())
    }

    /// Drops what has expired; libp2p drops it only when a peer happens to ask for it.
    pub(crate) fn drop_expired(&mut self, kad: &mut Kad) {
        let now = Instant::now();
        kad.store_mut().retain(|_, record| !record.is_expired(now));
        self.stored.retain(|provider, keys| {
            keys.retain(|key, expires| {
                let is_live = *expires > now;
                if !is_live {
                    kad.store_mut().remove_provider(&RecordKey::new(key), provider);
                }
                is_live
            });
            !keys.is_empty()
        });
        self.stored_entries = self.stored.values().map(BTreeMap::len).sum();
    }

    /// How many nodes a look-up can start from; without any, puts only reach this node.
    pub(crate) fn is_connected(kad: &mut Kad) -> bool {
        kad.kbuckets().any(|bucket| !bucket.is_empty())
    }

    /// When the queue of puts must wait, how long.
    pub(crate) fn pause(&self) -> Millis {
        self.put_pause.max(self.shortest_pause())
    }
}

/// Takes the put that is next: the advert, which is at the front if it waits, but not twice before a key of the index. Where puts
/// are rare, it would otherwise be renewed before any other got its turn.
fn take_turn(puts: &mut VecDeque<Put>, was_advert: bool) -> Option<Put> {
    let skips = was_advert && puts.len() > 1 && matches!(puts.front(), Some(Put::Advert(_)));
    puts.remove(usize::from(skips))
}

/// How long the next put waits after one that took so long, and at least `shortest`.
fn rest_after(took: Millis, shortest: Millis) -> Millis {
    Millis(took.0.saturating_mul(PUT_REST)).clamp(shortest, shortest.max(PUT_PAUSE_MAX))
}

#[cfg(test)]
mod tests;
