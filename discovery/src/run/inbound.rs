//! The bounded queue of streams that others want to open to what runs here.
//!
//! Invariant: no opening waits for a place in the queue; what does not fit is refused at once.

use std::{io, time::Duration};

use broker::ids::SiteId;
use tokio::{sync::mpsc, time};

use super::{
    opening::{self, Answer},
    stream::RunStream,
};

/// Openings that wait for the node.
const QUEUE: usize = 64;
/// How long whoever is refused may take to hear it.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A stream that somebody wants to open to what runs here.
#[derive(Debug)]
pub struct RunAsked {
    /// The node that asks, proven by its connection; not the user.
    pub from: SiteId,
    /// What it wants, unchecked.
    pub opening: Vec<u8>,
    stream: RunStream,
}

impl RunAsked {
    pub(super) fn new(from: SiteId, opening: Vec<u8>, stream: RunStream) -> RunAsked {
        RunAsked { from, opening, stream }
    }

    /// Takes the stream.
    ///
    /// # Errors
    /// When the other side has gone.
    pub async fn accept(mut self) -> io::Result<RunStream> {
        opening::give(&mut self.stream, &Answer::Taken).await?;
        Ok(self.stream)
    }

    /// Says why the stream is not taken.
    pub async fn refuse(mut self, answer: &Answer) {
        // Whoever has gone, or does not read, need not know.
        let _ = time::timeout(REFUSAL_TIMEOUT, opening::give(&mut self.stream, answer)).await;
    }
}

/// The node's end of the queue.
#[derive(Debug)]
pub struct RunInbound(mpsc::Receiver<RunAsked>);

impl RunInbound {
    pub(super) fn new() -> (mpsc::Sender<RunAsked>, RunInbound) {
        let (queue, asked) = mpsc::channel(QUEUE);
        (queue, RunInbound(asked))
    }

    /// The next opening; `None` when discovery has stopped.
    pub async fn next(&mut self) -> Option<RunAsked> {
        self.0.recv().await
    }
}
