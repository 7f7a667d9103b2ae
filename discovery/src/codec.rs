//! Direct requests and answers on a stream: bincode, with sizes enforced while reading.
//!
//! Invariant: a peer makes this node read at most [`wire::REQUEST_BYTES_MAX`] for a request; for an answer
//! [`wire::SCHEDULES_BYTES_MAX`] when it is schedules and [`wire::ANSWER_BYTES_MAX`] otherwise. Decoding happens in the
//! connection's own task, not in the one that owns the swarm.

use std::{io, sync::Arc};

use broker::{
    ids::HostId,
    protocol::{LedgerVersion, ScheduleSnapshot, SiteAnswer, SiteRequest},
    schedule::Schedule,
};
use futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use libp2p::{StreamProtocol, request_response};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{
    check::HOSTS_PER_SITE_MAX,
    counters::{Counter, Counters},
    wire,
};

/// What one node asks another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum WireRequest {
    /// Something about an attempt, for the node.
    Site(SiteRequest),
    /// All schedules, unless the version is the one named.
    Schedules(Option<LedgerVersion>),
    /// The site's own signed advert.
    Advert,
    /// Signed adverts of all sites, unless the asker has one of the same sequence or a later one: by short site hash.
    Adverts(Vec<(u64, u64)>),
}

/// The answer.
///
/// The order of the variants is the format: the first byte of an answer tells its kind, and with it its largest size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum WireAnswer {
    /// All schedules at a version.
    Schedules(Arc<WireSchedules>),
    /// Nothing changed since the version that was named.
    Unchanged(LedgerVersion),
    /// The node's answer about an attempt.
    Site(SiteAnswer),
    /// Signed adverts.
    Adverts {
        /// Envelopes.
        envelopes: Vec<Vec<u8>>,
        /// Whether these are all; else ask again.
        is_complete: bool,
    },
    /// Too busy to answer now.
    Busy,
}

const SCHEDULES_KIND: u8 = 0;

/// All schedules of a site. Its list of hosts is bounded while it is read: a host that takes three bytes on the wire
/// takes a hundred in memory, so the limit on bytes alone would let a hostile site fill a few hundred MiB.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WireSchedules {
    version: LedgerVersion,
    #[serde(deserialize_with = "bounded_hosts")]
    hosts: Vec<(HostId, Schedule)>,
}

impl WireSchedules {
    /// Takes what the site's ledger says.
    #[must_use]
    pub fn from_snapshot(snapshot: ScheduleSnapshot) -> WireSchedules {
        WireSchedules { version: snapshot.version, hosts: snapshot.hosts }
    }

    /// Names the site again, which is the one that was asked, whatever it says.
    #[must_use]
    pub fn into_snapshot(self, site: broker::ids::SiteId) -> ScheduleSnapshot {
        ScheduleSnapshot { site, version: self.version, hosts: self.hosts }
    }
}

struct BoundedHosts;

impl<'de> de::Visitor<'de> for BoundedHosts {
    type Value = Vec<(HostId, Schedule)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at most {HOSTS_PER_SITE_MAX} hosts with their schedules")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut hosts = Vec::new();
        while let Some(host) = sequence.next_element()? {
            if hosts.len() == HOSTS_PER_SITE_MAX {
                return Err(de::Error::invalid_length(hosts.len() + 1, &self));
            }
            hosts.push(host);
        }
        Ok(hosts)
    }
}

fn bounded_hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(HostId, Schedule)>, D::Error> {
    deserializer.deserialize_seq(BoundedHosts)
}

/// Reads and writes [`WireRequest`] and [`WireAnswer`].
#[derive(Debug, Clone)]
pub struct Codec {
    counters: Arc<Counters>,
}

impl Codec {
    /// A codec that counts what does not decode.
    #[must_use]
    pub fn new(counters: Arc<Counters>) -> Codec {
        Codec { counters }
    }

    fn refuse(&self, why: &impl ToString) -> io::Error {
        self.counters.count(Counter::AskDecodeFailures);
        io::Error::new(io::ErrorKind::InvalidData, why.to_string())
    }

    async fn read_at_most<T>(&self, io: &mut T, bytes: &mut Vec<u8>, bytes_max: usize) -> io::Result<()>
    where
        T: AsyncRead + Unpin + Send,
    {
        let room = bytes_max.saturating_sub(bytes.len());
        io.take(room as u64 + 1).read_to_end(bytes).await?;
        if bytes.len() > bytes_max {
            return Err(self.refuse(&format!("larger than {bytes_max} bytes")));
        }
        Ok(())
    }
}

async fn write_all<T: AsyncWrite + Unpin + Send>(
    io: &mut T,
    value: &impl Serialize,
    bytes_max: usize,
) -> io::Result<()> {
    let bytes = wire::encode(value).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    if bytes.len() > bytes_max {
        let text = format!("{} bytes to send, at most {bytes_max} are read", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    io.write_all(&bytes).await
}

impl request_response::Codec for Codec {
    type Protocol = StreamProtocol;
    type Request = WireRequest;
    type Response = WireAnswer;

    async fn read_request<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<WireRequest>
    where
        T: AsyncRead + Unpin + Send,
    {
        let mut bytes = Vec::new();
        self.read_at_most(io, &mut bytes, wire::REQUEST_BYTES_MAX).await?;
        wire::decode::<_, { wire::REQUEST_BYTES_MAX }>(&bytes).map_err(|error| self.refuse(&error))
    }

    async fn read_response<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<WireAnswer>
    where
        T: AsyncRead + Unpin + Send,
    {
        let mut bytes = vec![0; 1];
        io.read_exact(&mut bytes).await?;
        let bytes_max = if bytes[0] == SCHEDULES_KIND { wire::SCHEDULES_BYTES_MAX } else { wire::ANSWER_BYTES_MAX };
        self.read_at_most(io, &mut bytes, bytes_max).await?;
        wire::decode::<_, { wire::SCHEDULES_BYTES_MAX }>(&bytes).map_err(|error| self.refuse(&error))
    }

    async fn write_request<T>(&mut self, _: &StreamProtocol, io: &mut T, request: WireRequest) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        write_all(io, &request, wire::REQUEST_BYTES_MAX).await
    }

    async fn write_response<T>(&mut self, _: &StreamProtocol, io: &mut T, answer: WireAnswer) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        let is_schedules = matches!(answer, WireAnswer::Schedules(_));
        write_all(io, &answer, if is_schedules { wire::SCHEDULES_BYTES_MAX } else { wire::ANSWER_BYTES_MAX }).await
    }
}

#[cfg(test)]
mod tests {
    use futures::io::Cursor;
    use libp2p::request_response::Codec as _;

    use super::*;

    const PROTOCOL: StreamProtocol = StreamProtocol::new("/test");

    fn codec() -> (Codec, Arc<Counters>) {
        let counters = Arc::new(Counters::default());
        (Codec::new(Arc::clone(&counters)), counters)
    }

    #[tokio::test]
    async fn the_first_byte_tells_schedules_from_the_rest() {
        let (mut codec, _) = codec();
        let schedules = WireSchedules { version: LedgerVersion::default(), hosts: Vec::new() };
        for (answer, is_schedules) in [
            (WireAnswer::Schedules(Arc::new(schedules)), true),
            (WireAnswer::Busy, false),
            (WireAnswer::Unchanged(LedgerVersion::default()), false),
        ] {
            let mut stream = Cursor::new(Vec::new());
            codec.write_response(&PROTOCOL, &mut stream, answer).await.unwrap();
            assert_eq!(stream.get_ref()[0] == SCHEDULES_KIND, is_schedules);
            stream.set_position(0);
            codec.read_response(&PROTOCOL, &mut stream).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_too_large_or_garbage_is_refused_and_counted() {
        let (mut codec, counters) = codec();
        let large = vec![1_u8; wire::REQUEST_BYTES_MAX + 1];
        assert!(codec.read_request(&PROTOCOL, &mut Cursor::new(large)).await.is_err());
        let large = vec![1_u8; wire::ANSWER_BYTES_MAX + 1];
        assert!(codec.read_response(&PROTOCOL, &mut Cursor::new(large)).await.is_err());
        assert!(codec.read_request(&PROTOCOL, &mut Cursor::new(vec![99_u8; 10])).await.is_err());
        assert!(codec.read_response(&PROTOCOL, &mut Cursor::new(vec![99_u8; 10])).await.is_err());
        assert_eq!(counters.get(Counter::AskDecodeFailures), 4);
    }

    #[tokio::test]
    async fn an_endless_list_of_hosts_is_refused() {
        let (mut codec, _) = codec();
        let host = (HostId::new("h").unwrap(), Schedule::default());
        for (count, is_taken) in [(HOSTS_PER_SITE_MAX, true), (HOSTS_PER_SITE_MAX + 1, false)] {
            let schedules = WireSchedules { version: LedgerVersion::default(), hosts: vec![host.clone(); count] };
            let mut stream = Cursor::new(Vec::new());
            codec.write_response(&PROTOCOL, &mut stream, WireAnswer::Schedules(Arc::new(schedules))).await.unwrap();
            stream.set_position(0);
            assert_eq!(codec.read_response(&PROTOCOL, &mut stream).await.is_ok(), is_taken);
        }
    }
}
