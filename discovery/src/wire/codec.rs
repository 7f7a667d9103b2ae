//! Direct requests and answers on a stream, with sizes enforced before and while they are read.
//!
//! Invariant: a peer makes this node keep at most [`REQUEST_BYTES_MAX`] for a request, and of an answer what its kind may
//! have. Of requests, at most [`LARGE_REQUESTS_MAX`] above [`SMALL_REQUEST_BYTES`] are being read at a time, from all peers
//! together (16 MiB), and each must have arrived in time. Decoding happens in the connection's own task, not in the one that owns
//! the swarm.

use std::{io, sync::Arc, time::Duration};

use futures::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use libp2p::{StreamProtocol, request_response};
use tokio::{sync::Semaphore, time};

use super::{
    ask_version::{AskVersion, Written},
    encoding::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX},
    frame::{framed, read_body, read_header, skip_body},
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
    /// A request of a kind that this node does not know, by its number; perhaps of a later version.
    NotUnderstood(u16),
    /// A large request that was not read, because too many are being read already.
    TooLargeForNow,
    /// No request.
    Unreadable(Offence),
}

/// Reads and writes [`WireRequest`] and [`WireAnswer`].
#[derive(Debug, Clone)]
pub struct Codec {
    versions: &'static [&'static dyn AskVersion],
    counters: Arc<Counters>,
    large_requests: Arc<Semaphore>,
    request_arrival: Duration,
}

/// What any request may have without asking: holds on some forty hosts fit.
const SMALL_REQUEST_BYTES: usize = 4096;
/// Larger requests that are being read at the same time.
const LARGE_REQUESTS_MAX: usize = 64;

impl Codec {
    /// A codec of these versions that counts what does not decode, and waits for a request no longer than
    /// `request_arrival`.
    #[must_use]
    pub fn new(
        versions: &'static [&'static dyn AskVersion],
        counters: Arc<Counters>,
        request_arrival: Duration,
    ) -> Codec {
        let large_requests = Arc::new(Semaphore::new(LARGE_REQUESTS_MAX));
        Codec { versions, counters, large_requests, request_arrival }
    }

    /// The version that the two sides of a stream have agreed on.
    fn version(&self, protocol: &StreamProtocol) -> io::Result<&'static dyn AskVersion> {
        let number = protocol.as_ref().rsplit('/').next().and_then(|number| number.parse().ok());
        let version = self.versions.iter().find(|version| Some(version.number()) == number);
        version.copied().ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, format!("{protocol} is not spoken")))
    }

    /// Whoever stops waiting for an answer may stop in the middle of the question: that is an error of the stream, no offence, and costs
    /// the sender's share of requests like any other.
    async fn read_asked<T>(&self, version: &dyn AskVersion, io: &mut T) -> io::Result<Asked>
    where
        T: AsyncRead + Unpin + Send,
    {
        let header = read_header(io).await?;
        if header.length > REQUEST_BYTES_MAX {
            return Ok(self.unreadable());
        }
        if !version.knows_request(header.kind) {
            let is_framed = skip_body(io, header.length).await?;
            return Ok(if is_framed { Asked::NotUnderstood(header.kind) } else { self.unreadable() });
        }
        let is_large = header.length > SMALL_REQUEST_BYTES;
        let permit = is_large.then(|| self.large_requests.try_acquire()).transpose();
        let Ok(_permit) = permit else { return Ok(Asked::TooLargeForNow) };
        let request =
            read_body(io, header.length).await?.and_then(|body| version.read_request(header.kind, &body).ok());
        Ok(request.map_or_else(|| self.unreadable(), Asked::Request))
    }

    fn unreadable(&self) -> Asked {
        self.counters.count(Counter::AskDecodeFailures);
        Asked::Unreadable(Offence::InvalidRequest)
    }

    fn refuse(&self, why: &str) -> io::Error {
        self.counters.count(Counter::AskDecodeFailures);
        io::Error::new(io::ErrorKind::InvalidData, why)
    }
}

async fn write_all<T: AsyncWrite + Unpin + Send>(io: &mut T, message: Written, bytes_max: usize) -> io::Result<()> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let (kind, body) = message.map_err(|error| invalid(error.to_string()))?;
    if body.len() > bytes_max {
        return Err(invalid(format!("{} bytes to send, at most {bytes_max} are read", body.len())));
    }
    io.write_all(&framed(kind, &body)).await
}

impl request_response::Codec for Codec {
    type Protocol = StreamProtocol;
    type Request = Asked;
    type Response = WireAnswer;

    async fn read_request<T>(&mut self, protocol: &StreamProtocol, io: &mut T) -> io::Result<Asked>
    where
        T: AsyncRead + Unpin + Send,
    {
        let version = self.version(protocol)?;
        time::timeout(self.request_arrival, self.read_asked(version, io)).await.unwrap_or_else(|_| {
            self.counters.count(Counter::AsksInSlow);
            Ok(Asked::Unreadable(Offence::SlowRequest))
        })
    }

    /// An error of kind `InvalidData` is an offence; one of kind `Unsupported` is an answer of a kind that is not known.
    async fn read_response<T>(&mut self, protocol: &StreamProtocol, io: &mut T) -> io::Result<WireAnswer>
    where
        T: AsyncRead + Unpin + Send,
    {
        let version = self.version(protocol)?;
        let header = read_header(io).await?;
        let bytes_max = version.answer_bytes_max(header.kind);
        if header.length > bytes_max.unwrap_or(ANSWER_BYTES_MAX) {
            return Err(self.refuse("too large an answer"));
        }
        if bytes_max.is_none() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, format!("an answer of kind {}", header.kind)));
        }
        let body = read_body(io, header.length).await?.ok_or_else(|| self.refuse("more than an answer"))?;
        version.read_answer(header.kind, &body).map_err(|error| self.refuse(&error.to_string()))
    }

    async fn write_request<T>(&mut self, protocol: &StreamProtocol, io: &mut T, request: Asked) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        let Asked::Request(request) = request else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no request"));
        };
        write_all(io, self.version(protocol)?.write_request(&request), REQUEST_BYTES_MAX).await
    }

    async fn write_response<T>(&mut self, protocol: &StreamProtocol, io: &mut T, answer: WireAnswer) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        let version = self.version(protocol)?;
        let message = version.write_answer(&answer);
        let bytes_max = message.as_ref().ok().and_then(|(kind, _)| version.answer_bytes_max(*kind));
        write_all(io, message, bytes_max.unwrap_or(ANSWER_BYTES_MAX)).await
    }
}

#[cfg(test)]
mod tests {
    use futures::io::Cursor;
    use libp2p::request_response::Codec as _;

    use broker::{
        amount::Amount,
        classes::Members,
        ids::HostId,
        protocol::{HostState, LedgerVersion, RefusalReason, SiteAnswer},
        request::MAX_NAMES,
        resources::{Amounts, ResourceName},
        time::Time,
    };

    use super::*;
    use crate::wire::{
        ASK_VERSIONS,
        check::{UNITS_PER_SITE_MAX, USES_PER_PART_MAX},
        encode,
        frame::framed,
        request_bytes,
    };

    const PROTOCOL: StreamProtocol = StreamProtocol::new("/kolo/test/ask/7");

    /// More than is skipped at a time.
    const SKIPPED: usize = 10_000;

    fn codec() -> (Codec, Arc<Counters>) {
        let counters = Arc::new(Counters::default());
        (Codec::new(ASK_VERSIONS, Arc::clone(&counters), Duration::from_secs(5)), counters)
    }

    /// As an answer with the schedules of a site stands on a stream: hosts, resources of each, classes, what is used of them.
    fn schedules(counts: [usize; 4]) -> Vec<u8> {
        type Steps = Vec<(Time, Amount)>;
        let [hosts, resources, classes, uses] = counts;
        let name = HostId::new("n").unwrap();
        let resources = vec![(ResourceName::new("cpu").unwrap(), Steps::new()); resources];
        let hosts = vec![(name.clone(), resources); hosts];
        let classes = vec![(name, Members { first: 1, count: 2 }); classes];
        let uses = vec![(0_u32, Amounts::new(), Steps::new()); uses];
        let whole = (LedgerVersion::default(), 1_u32, None::<Time>);
        const KIND: u16 = 1;
        framed(KIND, &encode(&(whole, 0_u32, hosts, classes, uses)).unwrap())
    }

    async fn asked(codec: &mut Codec, bytes: Vec<u8>) -> io::Result<Asked> {
        codec.read_request(&PROTOCOL, &mut Cursor::new(bytes)).await
    }

    #[tokio::test]
    async fn an_unknown_kind_is_told_from_garbage() {
        let (mut codec, counters) = codec();
        for length in [0, 1, SKIPPED, REQUEST_BYTES_MAX] {
            assert_eq!(asked(&mut codec, framed(99, &vec![7; length])).await.unwrap(), Asked::NotUnderstood(99));
        }
        assert_eq!(counters.get(Counter::AskDecodeFailures), 0, "that is no offence");
        let garbage = [
            ("of a known kind, but garbage", framed(16, &[255; 50])),
            ("too large for any kind", framed(99, &vec![0; REQUEST_BYTES_MAX + 1])),
            ("more behind the body", [framed(99, b"x"), vec![0]].concat()),
            ("more behind a known body", [request_bytes(&WireRequest::Advert), vec![0]].concat()),
            ("a body for a request that has none", framed(2, b"x")),
        ];
        for (what, bytes) in garbage {
            assert_eq!(asked(&mut codec, bytes).await.unwrap(), Asked::Unreadable(Offence::InvalidRequest), "{what}");
        }
        assert_eq!(counters.get(Counter::AskDecodeFailures), 5);
        let whole = request_bytes(&WireRequest::Revocations { from: 1 });
        for cut in 0..whole.len() {
            assert!(asked(&mut codec, whole[..cut].to_vec()).await.is_err(), "cut short is neither");
        }
        assert_eq!(counters.get(Counter::AskDecodeFailures), 5);
    }

    #[tokio::test]
    async fn an_answer_of_an_unknown_kind_is_told_from_garbage() {
        let (mut codec, counters) = codec();
        let mut kind_of_error = async |bytes: Vec<u8>| {
            codec.read_response(&PROTOCOL, &mut Cursor::new(bytes)).await.map(drop).unwrap_err().kind()
        };
        assert_eq!(kind_of_error(framed(99, b"later")).await, io::ErrorKind::Unsupported);
        assert_eq!(counters.get(Counter::AskDecodeFailures), 0);
        for garbage in [
            framed(99, &vec![0; ANSWER_BYTES_MAX + 1]),
            framed(16, b""),
            framed(6, b"x"),
            [framed(6, b""), vec![0]].concat(),
            vec![255; 200],
        ] {
            assert_eq!(kind_of_error(garbage).await, io::ErrorKind::InvalidData);
        }
        assert_eq!(counters.get(Counter::AskDecodeFailures), 5);
    }

    #[tokio::test]
    async fn another_version_is_not_spoken() {
        let (mut codec, _) = codec();
        let later = StreamProtocol::new("/kolo/test/ask/99");
        let mut stream = Cursor::new(request_bytes(&WireRequest::Advert));
        assert!(codec.read_request(&later, &mut stream).await.unwrap_err().to_string().contains("ask/99"));
    }

    #[tokio::test]
    async fn a_refusal_for_a_reason_of_a_later_version_is_a_refusal() {
        let (mut codec, _) = codec();
        let refusal = |reason: &[u8], words: &str| {
            let body = encode(&(reason, words, LedgerVersion { incarnation: 3, change: 4 }, Vec::<HostState>::new()));
            Cursor::new(framed(23, &body.unwrap()))
        };
        for reason in [&[250_u8][..], &[0], &[]] {
            let answer = codec.read_response(&PROTOCOL, &mut refusal(reason, "too dear\u{7}")).await.unwrap();
            let WireAnswer::Site(SiteAnswer::Refused(refusal)) = answer else { panic!("{answer:?}") };
            assert_eq!(refusal.reason, RefusalReason::NotUnderstood("too dear".to_owned()));
            assert_eq!(refusal.version.change, 4);
        }
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
    async fn an_endless_list_is_refused() {
        let (mut codec, _) = codec();
        let most = [UNITS_PER_SITE_MAX, MAX_NAMES, UNITS_PER_SITE_MAX, USES_PER_PART_MAX];
        for list in 0..most.len() {
            let mut counts = [1; 4];
            counts[list] = most[list];
            assert!(codec.read_response(&PROTOCOL, &mut Cursor::new(schedules(counts))).await.is_ok(), "{list}");
            counts[list] = most[list] + 1;
            assert!(codec.read_response(&PROTOCOL, &mut Cursor::new(schedules(counts))).await.is_err(), "{list}");
        }
    }
}
