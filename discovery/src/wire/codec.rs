//! Direct requests and answers on a stream: bincode, with sizes enforced while reading.
//!
//! Invariant: a peer makes this node read at most [`REQUEST_BYTES_MAX`] for a request; for an answer
//! [`SCHEDULES_BYTES_MAX`] when it is schedules and [`ANSWER_BYTES_MAX`] otherwise. Of requests, at most
//! [`LARGE_REQUESTS_MAX`] above [`SMALL_REQUEST_BYTES`] are being read at a time, from all peers together (16
//! MiB), and each must have arrived in time. Decoding happens in the connection's own task, not in the one that owns the swarm.

use std::{io, sync::Arc, time::Duration};

use futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use libp2p::{StreamProtocol, request_response};
use serde::Serialize;
use tokio::{sync::Semaphore, time};

use super::{
    encoding::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, SCHEDULES_BYTES_MAX, decode, encode},
    message::{WireAnswer, WireRequest},
};
use crate::{
    admission::Offence,
    counters::{Counter, Counters},
};

/// What has arrived as a request. libp2p does not report a request that could not be read, so this does.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// A request.
    Request(WireRequest),
    /// A large request that was not read, because too many are being read already.
    TooLargeForNow,
    /// No request.
    Unreadable(Offence),
}

const SCHEDULES_KIND: u8 = 0;

/// Reads and writes [`WireRequest`] and [`WireAnswer`].
#[derive(Debug, Clone)]
pub struct Codec {
    counters: Arc<Counters>,
    large_requests: Arc<Semaphore>,
    request_arrival: Duration,
}

/// What any request may have without asking: holds on some forty hosts fit.
const SMALL_REQUEST_BYTES: usize = 4096;
/// Larger requests that are being read at the same time.
const LARGE_REQUESTS_MAX: usize = 64;

impl Codec {
    /// A codec that counts what does not decode, and waits for a request no longer than `request_arrival`.
    #[must_use]
    pub fn new(counters: Arc<Counters>, request_arrival: Duration) -> Codec {
        Codec { counters, large_requests: Arc::new(Semaphore::new(LARGE_REQUESTS_MAX)), request_arrival }
    }

    async fn read_asked<T>(&self, io: &mut T) -> io::Result<Asked>
    where
        T: AsyncRead + Unpin + Send,
    {
        let mut bytes = Vec::new();
        (&mut *io).take(SMALL_REQUEST_BYTES as u64).read_to_end(&mut bytes).await?;
        if bytes.len() == SMALL_REQUEST_BYTES {
            let Ok(_permit) = self.large_requests.try_acquire() else { return Ok(Asked::TooLargeForNow) };
            match self.read_at_most(io, &mut bytes, REQUEST_BYTES_MAX).await {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Ok(Asked::Unreadable(Offence::InvalidRequest));
                }
                outcome => outcome?,
            }
        }
        match decode::<_, { REQUEST_BYTES_MAX }>(&bytes) {
            Ok(request) => Ok(Asked::Request(request)),
            // Whoever stops waiting for an answer may stop in the middle of the question. That is no offence, and costs the
            // sender's share of requests like any other.
            Err(error) if error.is_cut_short() => Err(self.refuse(&error)),
            Err(_) => {
                self.counters.count(Counter::AskDecodeFailures);
                Ok(Asked::Unreadable(Offence::InvalidRequest))
            }
        }
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
    let bytes = encode(value).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    if bytes.len() > bytes_max {
        let text = format!("{} bytes to send, at most {bytes_max} are read", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    io.write_all(&bytes).await
}

impl request_response::Codec for Codec {
    type Protocol = StreamProtocol;
    type Request = Asked;
    type Response = WireAnswer;

    async fn read_request<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<Asked>
    where
        T: AsyncRead + Unpin + Send,
    {
        time::timeout(self.request_arrival, self.read_asked(io)).await.unwrap_or_else(|_| {
            self.counters.count(Counter::AsksInSlow);
            Ok(Asked::Unreadable(Offence::SlowRequest))
        })
    }

    async fn read_response<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<WireAnswer>
    where
        T: AsyncRead + Unpin + Send,
    {
        let mut bytes = vec![0; 1];
        io.read_exact(&mut bytes).await?;
        let bytes_max = if bytes[0] == SCHEDULES_KIND { SCHEDULES_BYTES_MAX } else { ANSWER_BYTES_MAX };
        self.read_at_most(io, &mut bytes, bytes_max).await?;
        decode::<_, { SCHEDULES_BYTES_MAX }>(&bytes).map_err(|error| self.refuse(&error))
    }

    async fn write_request<T>(&mut self, _: &StreamProtocol, io: &mut T, request: Asked) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        let Asked::Request(request) = request else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no request"));
        };
        write_all(io, &request, REQUEST_BYTES_MAX).await
    }

    async fn write_response<T>(&mut self, _: &StreamProtocol, io: &mut T, answer: WireAnswer) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        let is_schedules = matches!(answer, WireAnswer::Schedules(_));
        write_all(io, &answer, if is_schedules { SCHEDULES_BYTES_MAX } else { ANSWER_BYTES_MAX }).await
    }
}

#[cfg(test)]
mod tests {
    use futures::io::Cursor;
    use libp2p::request_response::Codec as _;

    use broker::{
        ids::{HostId, SiteId},
        protocol::{LedgerVersion, ScheduleSnapshot},
        schedule::Schedule,
    };

    use super::*;
    use crate::wire::{WireSchedules, check::HOSTS_PER_SITE_MAX};

    const PROTOCOL: StreamProtocol = StreamProtocol::new("/test");

    fn codec() -> (Codec, Arc<Counters>) {
        let counters = Arc::new(Counters::default());
        (Codec::new(Arc::clone(&counters), Duration::from_secs(5)), counters)
    }

    fn schedules(hosts: Vec<(HostId, Schedule)>) -> WireAnswer {
        let site = SiteId::new("s").unwrap();
        let snapshot = ScheduleSnapshot { site, version: LedgerVersion::default(), hosts };
        WireAnswer::Schedules(Arc::new(WireSchedules::from_snapshot(snapshot)))
    }

    #[tokio::test]
    async fn the_first_byte_tells_schedules_from_the_rest() {
        let (mut codec, _) = codec();
        for (answer, is_schedules) in [
            (schedules(Vec::new()), true),
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
        let unreadable = Asked::Unreadable(Offence::InvalidRequest);
        let large = vec![1_u8; REQUEST_BYTES_MAX + 1];
        assert_eq!(codec.read_request(&PROTOCOL, &mut Cursor::new(large)).await.unwrap(), unreadable);
        let large = vec![1_u8; ANSWER_BYTES_MAX + 1];
        assert!(codec.read_response(&PROTOCOL, &mut Cursor::new(large)).await.is_err());
        assert_eq!(codec.read_request(&PROTOCOL, &mut Cursor::new(vec![99_u8; 10])).await.unwrap(), unreadable);
        assert!(codec.read_response(&PROTOCOL, &mut Cursor::new(vec![99_u8; 10])).await.is_err());
        assert_eq!(counters.get(Counter::AskDecodeFailures), 4);
    }

    #[tokio::test]
    async fn large_requests_are_read_only_so_many_at_a_time_and_small_ones_always() {
        let (mut codec, _) = codec();
        for (known, is_large) in [(0, false), (1000, true)] {
            let request = Asked::Request(WireRequest::Adverts(vec![(u64::MAX, u64::MAX); known]));
            let mut stream = Cursor::new(Vec::new());
            codec.write_request(&PROTOCOL, &mut stream, request.clone()).await.unwrap();
            stream.set_position(0);
            assert_eq!(codec.read_request(&PROTOCOL, &mut stream).await.unwrap(), request);
            let permits = Arc::clone(&codec.large_requests);
            let _all = permits.acquire_many(u32::try_from(LARGE_REQUESTS_MAX).unwrap()).await.unwrap();
            stream.set_position(0);
            let asked = codec.read_request(&PROTOCOL, &mut stream).await.unwrap();
            assert_eq!(asked, if is_large { Asked::TooLargeForNow } else { request });
        }
    }

    #[tokio::test]
    async fn an_endless_list_of_hosts_is_refused() {
        let (mut codec, _) = codec();
        let host = (HostId::new("h").unwrap(), Schedule::default());
        for (count, is_taken) in [(HOSTS_PER_SITE_MAX, true), (HOSTS_PER_SITE_MAX + 1, false)] {
            let mut stream = Cursor::new(Vec::new());
            codec.write_response(&PROTOCOL, &mut stream, schedules(vec![host.clone(); count])).await.unwrap();
            stream.set_position(0);
            assert_eq!(codec.read_response(&PROTOCOL, &mut stream).await.is_ok(), is_taken);
        }
    }
}
