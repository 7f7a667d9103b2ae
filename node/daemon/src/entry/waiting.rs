//! Requests that wait for a batch.
//!
//! Invariant: what is here is on disk, and at most [`WAITING_MAX`] wait. One that has become a request of this node, under the id that its
//! user has signed, waits no more, also when the node ended before that was written down here.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex as StdMutex},
};

use broker::{
    ids::RequestId,
    time::{Span, Time},
};
use kolo_runtime::lock::locked;
use kolo_storage::{
    Change, Store, StoreError,
    waiting::{HowEnded, WaitingEnd, WaitingRecord},
};
use tokio::sync::{Mutex, MutexGuard};

/// Most requests that wait.
pub const WAITING_MAX: usize = 1_000;
/// Most of them on one account.
pub const WAITING_PER_ACCOUNT_MAX: usize = 250;
/// Most that wait before somebody without a token may add no more.
pub const WAITING_STRANGERS_MAX: usize = WAITING_MAX / 2;
/// How long one is shown whose wait has ended.
const ENDED_KEPT_FOR: Span = Span(7 * 86_400);
/// Most that are shown whose wait has ended.
const ENDED_MAX: usize = 1_000;

/// Why requests were not added.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// Too many on this account.
    #[error("at most {WAITING_PER_ACCOUNT_MAX} requests of one user wait for a batch; {waiting} do")]
    Account {
        /// So many do.
        waiting: usize,
    },
    /// Too many in all.
    #[error("at most {max} requests wait for a batch; {waiting} do")]
    Full {
        /// Most for who has asked.
        max: usize,
        /// So many do.
        waiting: usize,
    },
    /// One of this id, or of this label on this account, is here.
    #[error("{0} is known here already")]
    Known(RequestId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All that wait, or have waited a while ago.
pub struct Waiting {
    /// How they are planned, unless who runs the batch says otherwise.
    pub policy: String,
    by_id: Mutex<BTreeMap<RequestId, WaitingRecord>>,
    /// Held by whoever plans what waits.
    turn: Mutex<()>,
    /// What has a plan that is being submitted.
    under_way: Arc<StdMutex<BTreeSet<RequestId>>>,
    store: Store,
}

impl Waiting {
    /// What the disk remembers; `is_request` says which ids are requests of this node. That these wait no more is on disk when it returns:
    /// the request may be forgotten before the node starts again.
    ///
    /// # Errors
    /// [`StoreError`], and then the node cannot start.
    pub async fn open(
        store: Store,
        policy: String,
        records: Vec<WaitingRecord>,
        now: Time,
        is_request: impl Fn(&RequestId) -> bool,
    ) -> Result<Waiting, StoreError> {
        let mut by_id: BTreeMap<_, _> = records.into_iter().map(|record| (record.id.clone(), record)).collect();
        let submitted = by_id.values_mut().filter(|record| record.end.is_none() && is_request(&record.id));
        let changes = submitted.map(|record| {
            record.end = Some(WaitingEnd { at: now, how: HowEnded::Submitted });
            Change::Waiting(Box::new(record.clone()))
        });
        store.commit(changes.collect()).await?;
        Ok(Waiting { policy, by_id: Mutex::new(by_id), turn: Mutex::default(), under_way: Arc::default(), store })
    }

    /// The turn to plan what waits; none when somebody else has it.
    pub fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.turn.try_lock().ok()
    }

    /// Keeps these out of other runs until what is returned is dropped; whoever does so has the turn.
    pub fn under_way(&self, ids: BTreeSet<RequestId>) -> UnderWay {
        locked(&self.under_way).extend(ids.iter().cloned());
        UnderWay { all: self.under_way.clone(), ids }
    }

    /// Whether a run submits it at this moment.
    pub fn is_under_way(&self, id: &RequestId) -> bool {
        locked(&self.under_way).contains(id)
    }

    /// All; those that wait in the order in which they are planned: first what was postponed before, then who came first.
    pub async fn all(&self) -> Vec<WaitingRecord> {
        let mut all: Vec<WaitingRecord> = self.by_id.lock().await.values().cloned().collect();
        all.sort_by_key(|record| (record.end.is_some(), record.postponed == 0, record.number));
        all
    }

    /// Adds all of these or none, and forgets what is shown long enough. `max` wait then at most.
    ///
    /// # Errors
    /// [`AddError`]; the store's stops the node.
    pub async fn add(&self, mut records: Vec<WaitingRecord>, max: usize, now: Time) -> Result<(), AddError> {
        let mut by_id = self.by_id.lock().await;
        check(&by_id, &records, max)?;
        let next = by_id.values().map(|record| record.number + 1).max().unwrap_or(1);
        for (number, record) in (next..).zip(&mut records) {
            record.number = number;
        }
        let old = old(&by_id, now);
        let forgotten = old.iter().cloned().map(Change::ForgetWaiting);
        let added = records.iter().map(|record| Change::Waiting(Box::new(record.clone())));
        self.store.commit(added.chain(forgotten).collect()).await?;
        by_id.retain(|id, _| !old.contains(id));
        by_id.extend(records.into_iter().map(|record| (record.id.clone(), record)));
        Ok(())
    }

    /// Forgets one; none when it is not here.
    ///
    /// # Errors
    /// [`StoreError`], which stops the node.
    pub async fn forget(&self, id: &RequestId) -> Result<Option<WaitingRecord>, StoreError> {
        let mut by_id = self.by_id.lock().await;
        if by_id.contains_key(id) {
            self.store.commit(vec![Change::ForgetWaiting(id.clone())]).await?;
        }
        Ok(by_id.remove(id))
    }

    /// Writes what `change` does to those of these that still wait.
    ///
    /// # Errors
    /// [`StoreError`], which stops the node.
    pub async fn update(
        &self,
        ids: impl IntoIterator<Item = &RequestId>,
        mut change: impl FnMut(&mut WaitingRecord),
    ) -> Result<(), StoreError> {
        let mut by_id = self.by_id.lock().await;
        let mut changed = Vec::new();
        for id in ids {
            if let Some(record) = by_id.get(id).filter(|record| record.end.is_none()) {
                let mut record = record.clone();
                change(&mut record);
                changed.push(record);
            }
        }
        self.store.commit(changed.iter().map(|record| Change::Waiting(Box::new(record.clone()))).collect()).await?;
        by_id.extend(changed.into_iter().map(|record| (record.id.clone(), record)));
        Ok(())
    }

    /// Submits one that still waits, and writes down how its wait has ended, if it has; meanwhile nobody drops it.
    ///
    /// # Errors
    /// [`StoreError`], which stops the node.
    pub async fn end_with<T>(
        &self,
        id: &RequestId,
        submit: impl Future<Output = (Option<(WaitingEnd, Option<String>)>, T)>,
    ) -> Result<Option<T>, StoreError> {
        let mut by_id = self.by_id.lock().await;
        let Some(record) = by_id.get_mut(id).filter(|record| record.end.is_none()) else { return Ok(None) };
        let (end, value) = submit.await;
        if let Some((end, reason)) = end {
            let ended = WaitingRecord { end: Some(end), reason, ..record.clone() };
            self.store.commit(vec![Change::Waiting(Box::new(ended.clone()))]).await?;
            *record = ended;
        }
        Ok(Some(value))
    }
}

/// That a run submits requests.
pub struct UnderWay {
    all: Arc<StdMutex<BTreeSet<RequestId>>>,
    ids: BTreeSet<RequestId>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        locked(&self.all).retain(|id| !self.ids.contains(id));
    }
}

/// Whether these may be added.
fn check(by_id: &BTreeMap<RequestId, WaitingRecord>, records: &[WaitingRecord], max: usize) -> Result<(), AddError> {
    let waiting = || by_id.values().filter(|record| record.end.is_none());
    if waiting().count() + records.len() > max {
        return Err(AddError::Full { max, waiting: waiting().count() });
    }
    let owner = |record: &WaitingRecord| (record.account, record.submitted_for.clone());
    let mut of_owner: BTreeMap<_, usize> = BTreeMap::new();
    let mut labels = BTreeSet::new();
    for record in waiting() {
        *of_owner.entry(owner(record)).or_default() += 1;
        labels.extend(record.request.id().map(|label| (owner(record), label.clone())));
    }
    let mut ids: BTreeSet<&RequestId> = by_id.keys().collect();
    for record in records {
        let count = of_owner.entry(owner(record)).or_default();
        if *count == WAITING_PER_ACCOUNT_MAX {
            let waiting = waiting().filter(|known| owner(known) == owner(record)).count();
            return Err(AddError::Account { waiting });
        }
        *count += 1;
        let label = record.request.id().filter(|label| !labels.insert((owner(record), (*label).clone())));
        let known = label.or_else(|| Some(&record.id).filter(|id| !ids.insert(id)));
        if let Some(known) = known {
            return Err(AddError::Known(known.clone()));
        }
    }
    Ok(())
}

/// What is shown no longer: ended long ago, or many times since.
fn old(by_id: &BTreeMap<RequestId, WaitingRecord>, now: Time) -> BTreeSet<RequestId> {
    let mut ended: Vec<_> =
        by_id.values().filter_map(|record| Some((Reverse(record.end.as_ref()?.at), &record.id))).collect();
    ended.sort();
    let is_old =
        |(place, (Reverse(at), _)): &(usize, (Reverse<Time>, _))| *place >= ENDED_MAX || *at + ENDED_KEPT_FOR < now;
    ended.into_iter().enumerate().filter(is_old).map(|(_, (_, id))| id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_storage::StoreSettings;

    fn record(id: &str, account: u8, label: Option<&str>) -> WaitingRecord {
        let key = format!("{account:02x}").repeat(32);
        let label = label.map_or_else(String::new, |label| format!(r#","id":"{label}""#));
        let text = format!(
            r#"{{"id":"{id}","number":0,"user":"ada","account":"{key}","request":{{"hosts":1,"duration":60{label}}},
            "authorization":{{"request":{{"text":"t","author":"{key}","signature":"{key}{key}"}},"user":null,"entry_point":null}},
            "added_ms":5000,"latest":65}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn many(account: u8, count: usize) -> Vec<WaitingRecord> {
        (0..count).map(|at| record(&format!("{account}-{at}"), account, None)).collect()
    }

    fn ids(records: &[WaitingRecord]) -> Vec<&str> {
        records.iter().map(|record| record.id.as_str()).collect()
    }

    fn submitted(at: i64) -> WaitingEnd {
        WaitingEnd { at: Time(at), how: HowEnded::Submitted }
    }

    fn open(path: &std::path::Path) -> (Store, Vec<WaitingRecord>) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            match Store::open(path, 1, StoreSettings::default()) {
                Ok((store, remembered)) => return (store, remembered.waiting),
                Err(StoreError::InUse(_)) if std::time::Instant::now() < deadline => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[tokio::test]
    async fn what_waits_is_bounded_and_known_once() {
        let directory = tempfile::tempdir().unwrap();
        let (store, records) = open(directory.path());
        let waiting = Waiting::open(store, String::new(), records, Time(0), |_| false).await.unwrap();
        let add = |records: Vec<WaitingRecord>, max| {
            let added = waiting.add(records, max, Time(0));
            async { added.await.map_err(|error| error.to_string()) }
        };
        add(vec![record("a", 1, Some("x")), record("b", 1, None)], 1_000).await.unwrap();
        for (more, expected) in [
            (vec![record("c", 1, None), record("a", 2, None)], "a is known here already"),
            (vec![record("c", 1, None), record("c", 2, None)], "c is known here already"),
            (vec![record("c", 1, None), record("d", 1, Some("x"))], "x is known here already"),
            (many(1, 249), "at most 250 requests of one user wait for a batch; 2 do"),
            ((2..8).flat_map(|account| many(account, 200)).collect(), "at most 1000 requests wait for a batch; 2 do"),
        ] {
            assert_eq!(add(more, 1_000).await.unwrap_err(), expected);
        }
        assert_eq!(ids(&waiting.all().await), ["a", "b"], "all of a call or nothing");
        assert_eq!(add(many(3, 1), 2).await.unwrap_err(), "at most 2 requests wait for a batch; 2 do");
        add(vec![record("d", 2, Some("x"))], 1_000).await.unwrap();
        add(many(1, 248), 1_000).await.unwrap();
        // What has ended makes room, and its label is free again.
        waiting.end_with(&record("a", 1, None).id, async { (Some((submitted(5), None)), ()) }).await.unwrap();
        add(vec![record("e", 1, Some("x"))], 1_000).await.unwrap();
    }

    #[tokio::test]
    async fn a_restart_finds_what_waits_in_its_order() {
        let directory = tempfile::tempdir().unwrap();
        let (store, records) = open(directory.path());
        let waiting = Waiting::open(store, String::new(), records, Time(0), |_| false).await.unwrap();
        let all = ["z", "y", "x", "w", "v"].map(|id| record(id, 1, None)).to_vec();
        waiting.add(all, 1_000, Time(0)).await.unwrap();
        let id = |name: &str| RequestId::new(name).unwrap();
        let postpone = |record: &mut WaitingRecord| record.postponed += 1;
        waiting.update([&id("x"), &id("gone")], postpone).await.unwrap();
        assert_eq!(waiting.forget(&id("y")).await.unwrap().unwrap().id, id("y"));
        assert_eq!(waiting.forget(&id("y")).await.unwrap(), None);
        let ended = waiting.end_with(&id("w"), async { (Some((submitted(5), None)), 7) }).await.unwrap();
        let again = waiting.end_with(&id("w"), async { panic!("submitted twice") }).await.unwrap();
        assert_eq!((ended, again), (Some(7), None::<()>));
        waiting.update([&id("w")], postpone).await.unwrap();
        drop(waiting);

        // The node ended between the submission of `z` and what it writes here.
        let (store, records) = open(directory.path());
        let waiting = Waiting::open(store, String::new(), records, Time(9), |known| *known == id("z")).await.unwrap();
        drop(waiting);
        // And again; the request of `z` was forgotten meanwhile.
        let (store, records) = open(directory.path());
        let waiting = Waiting::open(store, String::new(), records, Time(11), |_| false).await.unwrap();
        let all = waiting.all().await;
        assert_eq!(ids(&all), ["x", "v", "z", "w"]);
        let ends: Vec<_> = all.iter().map(|record| record.end.clone()).collect();
        assert_eq!(ends, [None, None, Some(submitted(9)), Some(submitted(5))]);
        assert_eq!(all[3].postponed, 0, "what has ended stays as it was");

        // Ended long enough ago: `w`, and not yet `z`.
        waiting.add(vec![record("u", 1, None)], 1_000, Time(7 * 86_400 + 6)).await.unwrap();
        assert_eq!(ids(&waiting.all().await), ["x", "v", "u", "z"]);
    }

    #[tokio::test]
    async fn what_one_run_submits_no_other_plans() {
        let directory = tempfile::tempdir().unwrap();
        let (store, records) = open(directory.path());
        let waiting = Waiting::open(store, String::new(), records, Time(0), |_| false).await.unwrap();
        let [a, b] = ["a", "b"].map(|id| RequestId::new(id).unwrap());
        let turn = waiting.turn().unwrap();
        assert!(waiting.turn().is_none(), "one run plans at a time");
        let first = waiting.under_way(BTreeSet::from([a.clone()]));
        drop(turn);
        let _turn = waiting.turn().unwrap();
        let second = waiting.under_way(BTreeSet::from([b.clone()]));
        assert!(waiting.is_under_way(&a) && waiting.is_under_way(&b));
        drop(first);
        assert!(!waiting.is_under_way(&a) && waiting.is_under_way(&b));
        drop(second);
        assert!(!waiting.is_under_way(&b));
    }
}
