//! Both sides of a test of the link between two sites.
//!
//! The one that asks opens a stream and says how many KiB it wants to see (four bytes); the other answers with three bytes: 0 it
//! takes part, 1 it does not, 2 not now, and the seconds to wait. Then the first sends, is told what came ([`Tally`]), and is sent as
//! much. Invariant: each step has its time; what the other side says was received is never more than what was sent.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use broker::{ids::SiteId, time::Millis};
use futures::{AsyncReadExt as _, AsyncWriteExt as _};
use libp2p::{PeerId, Stream};
use tokio::{
    sync::{Semaphore, SemaphorePermit, mpsc, oneshot},
    task::{AbortHandle, JoinSet},
    time,
};
use tracing::{debug, info};

use super::{
    BYTES_MAX,
    transfer::{Tally, receive, send},
    turns::Turns,
};
use crate::{
    admission::Offence,
    clock::millis,
    command::AskError,
    core::Core,
    identity::{peer_of_site, site_of_peer},
    streams::Opened,
    transport::Unthrottled,
    wire::WireRequest,
};

/// How long a site may take to say whether it takes part.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Streams of others that are open, one a peer; one of them is a test.
const OPEN_MAX: usize = 8;

/// How fast the link between this site and another is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSpeed {
    /// Mbit/s to the other site, as it has clocked it.
    pub to_mbps: u64,
    /// Mbit/s from it, as this one has.
    pub from_mbps: u64,
}

/// Why the link to a site was not measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It was asked about itself.
    #[error("this is the site itself")]
    Itself,
    /// Nothing comes from it.
    #[error(transparent)]
    Unreachable(#[from] AskError),
    /// The stream could not be opened, or was cut off.
    #[error("the site broke off")]
    BrokenOff,
    /// Its owner does not allow it.
    #[error("its owner does not allow tests of links")]
    NotAllowed,
    /// Too many tests lately, or another one runs.
    #[error("the site takes part in another test, or had enough lately; ask again in {wait_s} s")]
    NotNow {
        /// When to ask again.
        wait_s: u16,
    },
    /// Another test runs here.
    #[error("another test of a link runs here")]
    Running,
    /// So slow a link cannot be told from a broken one.
    #[error("too little came in time to say")]
    TooSlow,
    /// It sent something else, or more.
    #[error("the site does not keep to the protocol")]
    Protocol,
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> LinkError {
        if error.kind() == io::ErrorKind::InvalidData { LinkError::Protocol } else { LinkError::BrokenOff }
    }
}

/// The tests that this site takes part in.
pub(crate) struct Links {
    core: Core,
    /// The turn to take part in a test, whoever asked for it.
    one: Semaphore,
    turns: Mutex<Turns>,
}

/// Whether a site takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    NotNow(u16),
}

impl Answer {
    fn to_bytes(self) -> [u8; 3] {
        let (code, wait_s) = match self {
            Answer::Yes => (0, 0),
            Answer::No => (1, 0),
            Answer::NotNow(wait_s) => (2, wait_s),
        };
        let [high, low] = u16::to_be_bytes(wait_s);
        [code, high, low]
    }

    fn read([code, high, low]: [u8; 3]) -> Result<(), LinkError> {
        match code {
            0 => Ok(()),
            1 => Err(LinkError::NotAllowed),
            2 => Err(LinkError::NotNow { wait_s: u16::from_be_bytes([high, low]) }),
            _ => Err(LinkError::Protocol),
        }
    }
}

impl Links {
    pub(crate) fn new(core: Core) -> Links {
        Links { core, one: Semaphore::new(1), turns: Mutex::default() }
    }

    /// Measures the link to a site.
    pub(crate) async fn measure(&self, site: &SiteId) -> Result<LinkSpeed, LinkError> {
        let shared = self.core.shared();
        if site == shared.site() {
            return Err(LinkError::Itself);
        }
        let _turn = self.one.try_acquire().map_err(|_| LinkError::Running)?;
        let peer = peer_of_site(site).ok_or_else(|| AskError::NotASite(site.clone()))?;
        // Makes a connection where there is none.
        self.core.request(site, WireRequest::Advert, millis(ANSWER_TIMEOUT)).await?;
        let (reply, stream) = oneshot::channel();
        self.core.open_link(peer, reply)?;
        let stream = within(ANSWER_TIMEOUT, async { stream.await.map_err(|_| io::ErrorKind::NotConnected.into()) });
        let measured = self.ask(&mut stream.await?).await;
        if measured == Err(LinkError::Protocol) {
            self.core.blame(site, Offence::InvalidAnswer);
        }
        measured
    }

    async fn ask(&self, stream: &mut Stream) -> Result<LinkSpeed, LinkError> {
        let way = self.core.shared().config.intervals.link_way;
        let mut answer = [0; 3];
        within(ANSWER_TIMEOUT, async {
            stream.write_all(&kib_of(BYTES_MAX).to_be_bytes()).await?;
            stream.flush().await?;
            stream.read_exact(&mut answer).await
        })
        .await?;
        Answer::read(answer)?;
        let mut tally = [0; 16];
        let sent = within(way, async {
            let sent = send(stream, BYTES_MAX).await?;
            stream.read_exact(&mut tally).await?;
            Ok(sent)
        })
        .await?;
        let there = Tally::read(tally);
        if there.bytes > sent {
            return Err(LinkError::Protocol);
        }
        let here = within(way, receive(&mut Unthrottled(stream), BYTES_MAX)).await?;
        let mbps = |tally: Tally| tally.mbps().ok_or(LinkError::TooSlow);
        Ok(LinkSpeed { to_mbps: mbps(there)?, from_mbps: mbps(here)? })
    }

    /// Takes part in what others ask for, as far as it is allowed and their turn.
    pub(crate) async fn serve(self: Arc<Links>, mut asked: mpsc::Receiver<Opened>) {
        let (mut tasks, mut open) = (JoinSet::new(), Vec::<(PeerId, AbortHandle)>::new());
        while let Some(Opened { peer, stream }) = asked.recv().await {
            while tasks.try_join_next().is_some() {}
            open.retain(|(_, task)| !task.is_finished());
            // Dropping a stream resets it.
            if open.len() < OPEN_MAX && open.iter().all(|(of, _)| *of != peer) {
                let links = Arc::clone(&self);
                open.push((peer, tasks.spawn(async move { links.take_part(peer, stream).await })));
            }
        }
    }

    async fn take_part(&self, peer: PeerId, mut stream: Stream) {
        let ended = self.answer(peer, &mut stream).await;
        // Anybody may ask, and a test that begins is rare.
        if ended == Ok(true) {
            info!(%peer, "took part in a test of the link");
        } else {
            debug!(%peer, ?ended, "asked to test the link");
        }
        if ended == Err(LinkError::Protocol)
            && let Some(site) = site_of_peer(&peer)
        {
            self.core.blame(&site, Offence::InvalidRequest);
        }
    }

    /// Whether a test was made.
    async fn answer(&self, peer: PeerId, stream: &mut Stream) -> Result<bool, LinkError> {
        let way = self.core.shared().config.intervals.link_way;
        let mut wanted = [0; 4];
        // Who is told no in any case need not say how much.
        if self.core.shared().config.link_tests {
            within(ANSWER_TIMEOUT, stream.read_exact(&mut wanted)).await?;
        }
        let bytes = (u64::from(u32::from_be_bytes(wanted)) << 10).min(BYTES_MAX);
        let (answer, turn) = self.turn(peer);
        within(ANSWER_TIMEOUT, async {
            stream.write_all(&answer.to_bytes()).await?;
            stream.flush().await
        })
        .await?;
        let Some(_turn) = turn else { return within(ANSWER_TIMEOUT, stream.close()).await.map(|()| false) };
        let tally = within(way, receive(&mut Unthrottled(&mut *stream), bytes)).await?;
        within(way, async {
            stream.write_all(&tally.to_bytes()).await?;
            send(stream, bytes).await?;
            stream.close().await
        })
        .await
        .map(|()| true)
    }

    /// How long a test lasts at most.
    fn test_max(&self) -> Millis {
        millis(ANSWER_TIMEOUT + 3 * self.core.shared().config.intervals.link_way)
    }

    /// Whether it is a peer's turn, which lasts as long as the permit.
    fn turn(&self, peer: PeerId) -> (Answer, Option<SemaphorePermit<'_>>) {
        if !self.core.shared().config.link_tests {
            return (Answer::No, None);
        }
        let not_now = |wait: Millis| (Answer::NotNow(u16::try_from(wait.0.div_ceil(1000)).unwrap_or(u16::MAX)), None);
        let Ok(turn) = self.one.try_acquire() else { return not_now(self.test_max()) };
        // What is behind the lock is valid after every single operation.
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        match turns.take(peer, self.core.shared().clock.now()) {
            Ok(()) => (Answer::Yes, Some(turn)),
            Err(wait) => not_now(wait),
        }
    }
}

fn kib_of(bytes: u64) -> u32 {
    u32::try_from(bytes >> 10).unwrap_or(u32::MAX)
}

async fn within<T>(timeout: Duration, step: impl Future<Output = io::Result<T>>) -> Result<T, LinkError> {
    Ok(time::timeout(timeout, step).await.map_err(|_| LinkError::TooSlow)??)
}
