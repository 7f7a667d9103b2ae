//! Both ends of the opening of a stream between two nodes.
//!
//! Invariants: the length of an opening, and what follows it, have [`OPENING_TIMEOUT`] each to arrive, and whoever lets it pass is blamed;
//! at most [`OPENINGS_MAX`] large openings are being read at a time, and of one peer one, so that none keeps the others out.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use broker::ids::SiteId;
use libp2p::{PeerId, Stream};
use tokio::{
    sync::{
        Mutex, Semaphore,
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    task::JoinSet,
    time,
};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt as _};
use tracing::debug;

use super::{
    inbound::{RunAsked, RunInbound},
    open::OpenStream,
    opening::{self, Answer, OPENING_BYTES_MAX, Want},
    stream::RunStream,
};
use crate::{
    admission::Offence,
    clock::millis,
    command::AskError,
    core::Core,
    identity::{peer_of_site, site_of_peer},
    streams::Opened,
    wire::WireRequest,
};

/// How long an opening may take to arrive, and how long a large one may wait before that until it is its turn.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a site may take to say whether it takes a stream: it may have to start something first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Large openings that are being read.
const OPENINGS_MAX: usize = 8;
/// Largest opening that is read without a turn: as many as there are streams take little memory.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Bytes in each direction that wait between the two ends of a stream within the node.
const OWN_WINDOW: usize = 256 << 10;

/// Why there is no stream to what runs on a seat.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Nothing comes from the site.
    #[error(transparent)]
    Unreachable(#[from] AskError),
    /// The stream could not be opened, or was cut off before the answer.
    #[error("the site broke off")]
    BrokenOff,
    /// The site does not take it.
    #[error("{0}")]
    Refused(String),
    /// The site does not take it, for want of something that its advert tells of.
    #[error("{1}")]
    Wanting(Want, String),
    /// The site does not take it now.
    #[error("{0}")]
    NotNow(String),
    /// What is to be said is too long.
    #[error("the opening has {0} bytes, and at most {OPENING_BYTES_MAX} are taken")]
    TooLarge(usize),
    /// As many streams are open as there may be.
    #[error("as many streams are open to the site as there may be; wait until one has ended")]
    TooMany,
}

/// The streams of this node.
pub(crate) struct Runs {
    core: Core,
    queue: mpsc::Sender<RunAsked>,
    openings: Semaphore,
}

impl Runs {
    pub(crate) fn new(core: Core) -> (Arc<Runs>, RunInbound) {
        let (queue, inbound) = RunInbound::new();
        (Arc::new(Runs { core, queue, openings: Semaphore::new(OPENINGS_MAX) }), inbound)
    }

    /// Opens a stream to a site.
    pub(crate) async fn open(&self, site: &SiteId, opening: Vec<u8>) -> Result<RunStream, RunError> {
        if opening.len() > OPENING_BYTES_MAX {
            return Err(RunError::TooLarge(opening.len()));
        }
        let mut stream = if site == self.core.shared().site() {
            let (own, other) = tokio::io::duplex(OWN_WINDOW);
            self.offer(site.clone(), opening, RunStream::within(other)).await;
            RunStream::within(own)
        } else {
            self.open_to_peer(site, &opening).await?
        };
        match time::timeout(ANSWER_TIMEOUT, opening::answer(&mut stream)).await {
            Ok(Ok(Answer::Taken)) => Ok(stream),
            Ok(Ok(Answer::Refused(reason))) => Err(RunError::Refused(reason)),
            Ok(Ok(Answer::Wanting(want, reason))) => Err(RunError::Wanting(want, reason)),
            Ok(Ok(Answer::NotNow(reason))) => Err(RunError::NotNow(reason)),
            Ok(Err(_)) => Err(RunError::BrokenOff),
            Err(_) => Err(AskError::TimedOut.into()),
        }
    }

    async fn open_to_peer(&self, site: &SiteId, opening: &[u8]) -> Result<RunStream, RunError> {
        let peer = peer_of_site(site).ok_or_else(|| AskError::NotASite(site.clone()))?;
        let shared = self.core.shared();
        let open = shared.runs.take(peer).ok_or(RunError::TooMany)?;
        if !shared.is_connected(site) {
            self.core.request(site, WireRequest::Advert, millis(OPENING_TIMEOUT)).await?;
        }
        let (reply, stream) = oneshot::channel();
        self.core.open_run(peer, reply)?;
        let opened = async {
            let stream = stream.await.map_err(|_| io::Error::from(io::ErrorKind::NotConnected))?;
            let mut stream = RunStream::of_peer(stream, open);
            opening::send(&mut stream, opening).await?;
            Ok::<_, io::Error>(stream)
        };
        match time::timeout(OPENING_TIMEOUT, opened).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(_)) => Err(RunError::BrokenOff),
            Err(_) => Err(AskError::TimedOut.into()),
        }
    }

    /// Takes the openings of others, and hands them to the node.
    pub(crate) async fn serve(self: Arc<Runs>, mut asked: mpsc::Receiver<Opened>) {
        let mut tasks = JoinSet::new();
        // The turn of each peer whose openings are being read.
        let mut turns = BTreeMap::<PeerId, Arc<Mutex<()>>>::new();
        while let Some(Opened { peer, stream }) = asked.recv().await {
            while tasks.try_join_next().is_some() {}
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            // Dropping a stream resets it. This also bounds the tasks.
            if let Some(open) = self.core.shared().runs.take(peer) {
                let (runs, turn) = (Arc::clone(&self), Arc::clone(turns.entry(peer).or_default()));
                tasks.spawn(async move { runs.take(peer, stream, (open, turn)).await });
            }
        }
    }

    async fn take(&self, peer: PeerId, stream: Stream, (open, turn): (OpenStream, Arc<Mutex<()>>)) {
        // Throttled as everything else until the node has taken it.
        let mut stream = stream.compat();
        let Some(from) = site_of_peer(&peer) else { return };
        match self.receive(&mut stream, &turn).await {
            Ok(Some(opening)) => {
                drop(turn);
                self.offer(from, opening, RunStream::of_peer(stream.into_inner(), open)).await;
            }
            Ok(None) => debug!(%peer, "too many large openings are being read"),
            Err(error) => {
                debug!(%peer, %error, "a stream that was not opened as it should");
                match error.kind() {
                    io::ErrorKind::TimedOut => self.core.blame(&from, Offence::SlowRequest),
                    io::ErrorKind::InvalidData => self.core.blame(&from, Offence::InvalidRequest),
                    _ => {}
                }
            }
        }
    }

    /// An opening; none when it is large and its turn has not come.
    async fn receive(&self, stream: &mut Compat<Stream>, own_turn: &Mutex<()>) -> io::Result<Option<Vec<u8>>> {
        let bytes = time::timeout(OPENING_TIMEOUT, opening::receive_length(stream)).await??;
        if bytes <= SMALL_BYTES_MAX {
            return time::timeout(OPENING_TIMEOUT, opening::receive_rest(stream, bytes)).await?.map(Some);
        }
        let turn = async {
            let own = own_turn.lock().await;
            (own, self.openings.acquire().await)
        };
        let Ok(_turn) = time::timeout(OPENING_TIMEOUT, turn).await else { return Ok(None) };
        time::timeout(OPENING_TIMEOUT, opening::receive_rest(stream, bytes)).await?.map(Some)
    }

    async fn offer(&self, from: SiteId, opening: Vec<u8>, stream: RunStream) {
        let (asked, answer) = match self.queue.try_send(RunAsked::new(from, opening, stream)) {
            Ok(()) => return,
            Err(TrySendError::Full(asked)) => (asked, Answer::NotNow("too much is being started there".to_owned())),
            Err(TrySendError::Closed(asked)) => (asked, Answer::NotNow("the node is stopping".to_owned())),
        };
        asked.refuse(&answer).await;
    }
}
