//! What a feed says: a document `kolo-local/1` with the owner's running and planned work.
//!
//! Invariant: a document is taken as a whole or not at all, but for jobs that wait behind the first [`QUEUE_MAX`]: however many
//! wait, what runs is known. What is taken has only times and amounts that the ledger can reckon with, and ends at the horizon
//! at the latest.

use std::{collections::BTreeMap, fmt, marker::PhantomData, num::TryFromIntError};

use broker::{
    amount::Amount,
    document::{Misfit, read_object},
    ids::{HostId, RequestId, SiteId},
    ledger::{FEED_NAME_BYTES_MAX, LocalWork, QUEUE_JOBS_MAX, QueuedJob},
    protocol::AttemptId,
    resources::Amounts,
    time::{Span, Time, Window},
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

const SCHEMA: &str = "kolo-local/1";
/// Most entries of `work`: ten times as many as the ledger takes, which keeps what runs and leaves out what is planned last.
const WORK_MAX: usize = 100_000;
/// Most entries of `queue` that are read: as many as the own queue holds. The others are counted.
const QUEUE_MAX: usize = QUEUE_JOBS_MAX;

/// Why a document is not taken.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is not JSON, or not of this shape.
    #[error("{path}: {detail}")]
    Shape { path: String, detail: String },
    /// It is of another format.
    #[error("schema: expected \"{SCHEMA}\", found {0:?}")]
    Schema(String),
    /// It is too long.
    #[error("{0} entries of work; at most {WORK_MAX} are read")]
    TooMany(usize),
    /// An entry is wrong.
    #[error("{list}[{index}].{key}: {detail}")]
    Entry {
        /// Of which list.
        list: &'static str,
        /// Which, from 0.
        index: usize,
        key: &'static str,
        /// What is wrong, and what was expected.
        detail: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    schema: String,
    work: Head<Entry, WORK_MAX>,
    /// Jobs that wait, for the own queue.
    #[serde(default)]
    queue: Head<JobEntry, QUEUE_MAX>,
}

/// A list of which the first `MAX` entries are read.
struct Head<T, const MAX: usize> {
    first: Vec<T>,
    /// Entries behind these.
    more: usize,
}

impl<T, const MAX: usize> Default for Head<T, MAX> {
    fn default() -> Self {
        Head { first: Vec::new(), more: 0 }
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Head<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(HeadVisitor(PhantomData))
    }
}

struct HeadVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for HeadVisitor<T, MAX> {
    type Value = Head<T, MAX>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut head = Head::default();
        while head.first.len() < MAX {
            let Some(entry) = entries.next_element()? else { return Ok(head) };
            head.first.push(entry);
        }
        while entries.next_element::<IgnoredAny>()?.is_some() {
            head.more += 1;
        }
        Ok(head)
    }
}

/// What a feed says, checked.
#[derive(Debug, Default)]
pub struct Said {
    /// What runs and what is planned.
    pub works: Vec<LocalWork>,
    /// What waits, as far as it is read.
    pub queue: Vec<QueuedJob>,
    /// Jobs that wait behind these.
    pub unread: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobEntry {
    /// Not that of another job that waits.
    id: String,
    /// In seconds.
    length: Span,
    deadline: Option<Time>,
    #[serde(default = "one")]
    hosts: u32,
    /// On each host.
    amounts: Amounts,
}

fn one() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    host: HostId,
    /// Left out: it has begun.
    start: Option<Time>,
    /// Left out: nobody knows.
    end: Option<Time>,
    /// Left out: all of the host.
    amounts: Option<Amounts>,
}

/// Until when work counts. It moves on once a reach only: work without an end would else be entered anew again and again.
pub fn horizon(now: Time, reach: Span) -> Result<Time, TryFromIntError> {
    let reach = i64::try_from(reach.0.max(1))?;
    Ok(Time((now.0.div_euclid(reach) + 2) * reach))
}

/// Reads a document. `capacities` are those of this site's hosts; work on others is left to the ledger to count. Work behind
/// `horizon` is left out.
///
/// # Errors
/// [`DocumentError`] that names the entry and the key.
pub fn read(
    bytes: &[u8],
    (site, capacities): (&SiteId, &BTreeMap<HostId, Amounts>),
    now: Time,
    horizon: Time,
) -> Result<Said, DocumentError> {
    let shape = |path: String, detail: String| DocumentError::Shape { path, detail };
    let document: Document = read_object(bytes).map_err(|Misfit { key, message, .. }| {
        let path = if key.is_empty() { ".".to_owned() } else { key };
        shape(path, message)
    })?;
    if document.schema != SCHEMA {
        return Err(DocumentError::Schema(document.schema));
    }
    if document.work.more > 0 {
        return Err(DocumentError::TooMany(WORK_MAX + document.work.more));
    }
    let mut works = Vec::with_capacity(document.work.first.len());
    for (index, entry) in document.work.first.into_iter().enumerate() {
        let work = checked(entry, capacities, now, horizon);
        let work = work.map_err(|(key, detail)| DocumentError::Entry { list: "work", index, key, detail })?;
        // Planned for later than anybody looks.
        if work.window.start < horizon {
            works.push(work);
        }
    }
    let job = |(index, entry)| {
        queued(entry, site, now).map_err(|(key, detail)| DocumentError::Entry { list: "queue", index, key, detail })
    };
    let queue = document.queue.first.into_iter().enumerate().map(job).collect::<Result<_, _>>()?;
    Ok(Said { works, queue, unread: document.queue.more })
}

/// What a feed calls a piece of work or a job.
fn name(text: &str) -> Result<RequestId, (&'static str, String)> {
    let is_name = text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_name || text.len() > FEED_NAME_BYTES_MAX {
        return Err(("id", format!("expected 1 to {FEED_NAME_BYTES_MAX} printable ASCII characters without blanks")));
    }
    RequestId::new(text).map_err(|error| ("id", error.to_string()))
}

fn queued(entry: JobEntry, site: &SiteId, now: Time) -> Result<QueuedJob, (&'static str, String)> {
    let JobEntry { id, length, deadline, hosts, amounts } = entry;
    if deadline.is_some_and(|deadline| !deadline.is_in_range()) {
        return Err(("deadline", "expected seconds since 1970".to_owned()));
    }
    if let Some((name, _)) = amounts.iter().find(|(_, amount)| **amount > Amount::MAX) {
        return Err(("amounts", format!("{name}: expected at most {}", Amount::MAX)));
    }
    // Its name is no other's: those that are entered by hand have none of the feed.
    let request = RequestId::new(&format!("feed-{}", name(&id)?)).map_err(|error| ("id", error.to_string()))?;
    let attempt = AttemptId { entry_point: site.clone(), request, attempt: 0 };
    Ok(QueuedJob { attempt, arrival: now, length, deadline, hosts, amounts, preempt: false, first_begun: None })
}

fn checked(
    entry: Entry,
    capacities: &BTreeMap<HostId, Amounts>,
    now: Time,
    horizon: Time,
) -> Result<LocalWork, (&'static str, String)> {
    let id = name(&entry.id)?;
    for (key, time) in [("start", entry.start), ("end", entry.end)] {
        if time.is_some_and(|time| !time.is_in_range()) {
            return Err((key, "expected seconds since 1970".to_owned()));
        }
    }
    let start = entry.start.unwrap_or(now);
    if entry.end.is_some_and(|end| end < start) {
        return Err(("end", "expected a time that is not before start".to_owned()));
    }
    let amounts = entry.amounts.or_else(|| capacities.get(&entry.host).cloned()).unwrap_or_default();
    if let Some((name, _)) = amounts.iter().find(|(_, amount)| **amount > Amount::MAX) {
        return Err(("amounts", format!("{name}: expected at most {}", Amount::MAX)));
    }
    let window = Window { start, end: entry.end.unwrap_or(horizon).min(horizon) };
    Ok(LocalWork { id, host: entry.host, window, amounts })
}

#[cfg(test)]
mod tests {
    use broker::resources::ResourceName;

    use super::*;

    const NOW: Time = Time(1_000_000);
    const REACH: Span = Span(1000);
    const HORIZON: Time = Time(1_002_000);

    fn cpu(amount: u64) -> Amounts {
        Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(amount))])
    }

    fn site() -> SiteId {
        SiteId::new("s").unwrap()
    }

    fn read_work(work: &str) -> Result<Vec<LocalWork>, String> {
        let capacities = BTreeMap::from([(HostId::new("h1").unwrap(), cpu(4000))]);
        let text = format!("{{\"schema\":\"kolo-local/1\",\"work\":[{work}]}}");
        read(text.as_bytes(), (&site(), &capacities), NOW, HORIZON)
            .map(|said| said.works)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_left_out_is_filled_in() {
        let works = read_work(
            r#"{"id":"7","host":"h1","start":1000500,"end":1001000,"amounts":{"cpu":500}},{"id":"8","host":"h1"},
               {"id":"9","host":"elsewhere","end":1000001},{"id":"10","host":"h1","start":1002000}"#,
        )
        .unwrap();
        let told: Vec<_> = works
            .iter()
            .map(|work| (work.id.as_str(), work.window.start.0, work.window.end.0, &work.amounts))
            .collect();
        let (half, all, none) = (cpu(500), cpu(4000), Amounts::new());
        assert_eq!(
            told,
            [("7", 1_000_500, 1_001_000, &half), ("8", 1_000_000, 1_002_000, &all), ("9", 1_000_000, 1_000_001, &none)],
            "and what is planned beyond the horizon waits"
        );
    }

    #[test]
    fn jobs_that_wait_are_read_with_names_of_their_own() {
        let told = |queue: &str| {
            let text = format!("{{\"schema\":\"kolo-local/1\",\"work\":[],\"queue\":[{queue}]}}");
            let read = read(text.as_bytes(), (&site(), &BTreeMap::new()), NOW, HORIZON);
            read.map(|said| said.queue).map_err(|error| error.to_string())
        };
        let jobs = told(
            r#"{"id":"7","length":60,"deadline":1000500,"hosts":2,"amounts":{"cpu":500}},{"id":"8","length":9,"amounts":{"cpu":1}}"#,
        );
        let jobs = jobs.unwrap();
        assert_eq!((jobs[0].attempt.request.as_str(), jobs[0].length, jobs[0].hosts), ("feed-7", Span(60), 2));
        assert_eq!((jobs[1].deadline, jobs[1].hosts, jobs[1].arrival), (None, 1, NOW));
        for (job, expected) in [
            (r#"{"id":"a b","length":60,"amounts":{"cpu":1}}"#, "queue[0].id: expected 1 to 64"),
            (r#"{"id":"a","length":60,"deadline":-1,"amounts":{"cpu":1}}"#, "queue[0].deadline: expected seconds"),
            (r#"{"id":"a","amounts":{"cpu":1}}"#, "queue[0]"),
        ] {
            let error = told(job).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn however_many_wait_what_runs_is_known() {
        let waiting = vec![r#"{"id":"2","length":3600,"amounts":{"cpu":1000}}"#; 150_000].join(",");
        let text = format!(r#"{{"schema":"kolo-local/1","work":[{{"id":"1","host":"h1"}}],"queue":[{waiting}]}}"#);
        assert!(text.len() < super::super::program::SAID_BYTES_MAX, "the program may say so much");
        let said = read(text.as_bytes(), (&site(), &BTreeMap::new()), NOW, HORIZON).unwrap();
        assert_eq!((said.works.len(), said.queue.len(), said.unread), (1, QUEUE_MAX, 150_000 - QUEUE_MAX));
    }

    #[test]
    fn the_horizon_stays_for_a_reach_and_is_never_nearer_than_one() {
        for now in 999_990..1_002_010 {
            let horizon = horizon(Time(now), REACH).unwrap().0;
            assert!((now + 1000..=now + 2000).contains(&horizon) && horizon % 1000 == 0);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (work, expected) in [
            (r#"{"id":"a b","host":"h1"}"#, "work[0].id: expected 1 to 64"),
            (r#"{"id":"","host":"h1"}"#, "work[0].id: an id must not be empty"),
            (r#"{"id":"7","host":""}"#, "work[0].host: an id must not be empty"),
            (r#"{"id":"7","host":"h1","start":-5}"#, "work[0].start: expected seconds since 1970"),
            (r#"{"id":"7","host":"h1","start":5,"end":4}"#, "work[0].end: expected a time that is not before start"),
            (r#"{"id":"7","host":"h1"},{"id":"8","host":"h1","cpu":4}"#, "work[1].cpu: unknown field"),
            (r#"{"id":"7","host":"h1","amounts":{"cpu":"4"}}"#, "work[0].amounts.cpu: invalid type"),
            (r#"{"id":"7","host":"h1","amounts":{"cpu":18446744073709551615}}"#, "work[0].amounts"),
            (r#"{"id":"7","host":"h1"}"#, ""),
        ] {
            let told = read_work(work).err().unwrap_or_default();
            assert!(told.starts_with(expected) && told.is_empty() == expected.is_empty(), "{work}: {told}");
        }
        let whole =
            |text: &str| read(text.as_bytes(), (&site(), &BTreeMap::new()), NOW, HORIZON).unwrap_err().to_string();
        assert_eq!(
            whole(r#"{"schema":"kolo-local/2","work":[]}"#),
            "schema: expected \"kolo-local/1\", found \"kolo-local/2\""
        );
        assert!(whole(r#"{"schema":"kolo-local/1","work":["#).contains("EOF"), "half of it is nothing");
        assert!(whole(r#"{"schema":"kolo-local/1","work":[]} x"#).starts_with(".: trailing"));
        let many = vec![r#"{"id":"7","host":"h1"}"#; WORK_MAX + 1].join(",");
        assert!(read_work(&many).unwrap_err().contains("100001 entries of work; at most 100000 are read"));
    }
}
