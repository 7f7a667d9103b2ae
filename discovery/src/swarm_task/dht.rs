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

use broker::{host::Host, time::Millis};
use libp2p::{
    PeerId,
    kad::{
        self, GetProvidersOk, GetRecordOk, InboundRequest, ProviderRecord, QueryId, QueryResult, Record, RecordKey,
        store::{MemoryStore, RecordStore as _},
    },
};
use tokio::sync::oneshot;

use crate::{
    counters::Counter,
    index::{self, KEYS_PER_SITE_MAX},
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
    puts: VecDeque<Put>,
    provided: BTreeSet<RecordBytes>,
    stored: BTreeMap<PeerId, BTreeMap<RecordBytes, Instant>>,
}

type RecordBytes = Vec<u8>;

enum Lookup {
    Providers { found: BTreeSet<PeerId>, reply: oneshot::Sender<BTreeSet<PeerId>> },
    Record(oneshot::Sender<Option<Vec<u8>>>),
    Put,
}

enum Put {
    Advert(Vec<u8>),
    Index(RecordKey),
}

/// Providers collected for one key; a key rarely returns more.
const PROVIDERS_MAX: usize = 64;

impl Dht {
    pub(crate) fn new(shared: Arc<Shared>) -> Dht {
        Dht {
            shared,
            lookups: HashMap::new(),
            puts_open: 0,
            puts: VecDeque::new(),
            provided: BTreeSet::new(),
            stored: BTreeMap::new(),
        }
    }

    /// Queues an advert, in place of an older one that was queued.
    pub(crate) fn publish_advert(&mut self, envelope: Vec<u8>) {
        self.puts.retain(|put| !matches!(put, Put::Advert(_)));
        self.puts.push_front(Put::Advert(envelope));
    }

    /// Queues the keys of the index, in place of what was queued before, and takes back those that are no longer true.
    pub(crate) fn publish_index(&mut self, kad: &mut Kad, hosts: &[Host]) {
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
        let Some(put) = self.puts.pop_front() else { return };
        self.shared.count(Counter::DhtPuts);
        let started = match put {
            Put::Advert(envelope) => {
                let key = index::advert_key(&self.shared.config.grid, self.shared.site());
                let mut record = Record::new(key, envelope);
                record.expires = Some(Instant::now() + self.shared.config.intervals.advert_time_to_live);
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
                self.lookups.insert(id, Lookup::Put);
            }
            Err(_) => self.shared.count(Counter::DhtPutsFailed),
        }
    }

    /// Takes everything back that makes this site findable, and leaves the departure in its place.
    pub(crate) fn leave(&mut self, kad: &mut Kad, departure: Vec<u8>) {
        self.publish_index(kad, &[]);
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
                        found.extend(providers);
                        found.len() >= PROVIDERS_MAX
                    }
                    _ => false,
                }
            }
            QueryResult::GetRecord(Ok(GetRecordOk::FoundRecord(found))) => {
                if let Some(Lookup::Record(reply)) = self.lookups.remove(&id) {
                    // An error says that the caller has gone.
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

    fn finish(&mut self, id: QueryId) {
        // An error of a send says that the caller has gone.
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
            Some(Lookup::Put) => self.puts_open -= 1,
            None => {}
        }
    }

    /// Decides about what others want stored here.
    pub(crate) fn store(&mut self, kad: &mut Kad, request: InboundRequest) {
        let is_stored = match request {
            InboundRequest::PutRecord { record: Some(record), .. } => self.store_record(kad, record),
            InboundRequest::AddProvider { record: Some(record) } => self.store_provider(kad, record),
            _ => return,
        };
        if !is_stored {
            self.shared.count(Counter::DhtStoreRefused);
        }
    }

    fn store_record(&mut self, kad: &mut Kad, record: Record) -> bool {
        let opened = match self.shared.open(&record.value) {
            Ok(opened) => opened,
            Err(dropped) => {
                self.shared.count(dropped.counter());
                return false;
            }
        };
        let Payload::Advert(advert) = opened.payload else { return false };
        if record.key != index::advert_key(&self.shared.config.grid, &advert.site) {
            return false;
        }
        let stored = kad.store_mut().get(&record.key).and_then(|stored| wire::peek(&stored.value));
        if stored.is_some_and(|(_, sequence)| sequence > advert.sequence) {
            return false;
        }
        kad.store_mut().put(record).is_ok()
    }

    fn store_provider(&mut self, kad: &mut Kad, record: ProviderRecord) -> bool {
        const ADDRESSES_MAX: usize = 16;
        if record.key.as_ref().len() != 32 || record.addresses.len() > ADDRESSES_MAX {
            return false;
        }
        let is_known_provider = self.stored.contains_key(&record.provider);
        if !is_known_provider && self.stored.len() >= self.shared.config.limits.dht_keys_max {
            return false;
        }
        let key = record.key.to_vec();
        let expires = record.expires;
        let keys = self.stored.entry(record.provider).or_default();
        if !keys.contains_key(&key) && keys.len() >= KEYS_PER_SITE_MAX {
            return false;
        }
        let Ok(()) = kad.store_mut().add_provider(record) else { return false };
        if let Some(expires) = expires {
            keys.insert(key, expires);
        }
        true
    }

    /// Drops what has expired; libp2p drops it only when somebody happens to ask for it.
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
    }

    /// How many nodes a look-up can start from; without any, puts only reach this node.
    pub(crate) fn is_connected(kad: &mut Kad) -> bool {
        kad.kbuckets().any(|bucket| !bucket.is_empty())
    }

    /// When the queue of puts must wait, how long.
    pub(crate) fn pause(&self) -> Millis {
        crate::shared::millis(self.shared.config.intervals.dht_put_pause)
    }
}

#[cfg(test)]
mod tests;
