//! Signatures of gossip, checked by a task of its own: a bundle may bring hundreds, some ten milliseconds of work.
//!
//! Invariant: the swarm task never waits for a check, and at most [`BYTES_MAX`] of messages wait for theirs; what does not fit is
//! dropped as overload. Other tasks have their turn after every signature.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use broker::ids::SiteId;
use libp2p::{
    PeerId,
    gossipsub::{MessageAcceptance, MessageId},
};
use tokio::sync::mpsc;

use super::gossip::Verdict;
use crate::{
    shared::Shared,
    wire::{Dropped, Opened},
};

/// Bytes of all messages that wait; some of the largest, or a thousand envelopes of changes.
const BYTES_MAX: usize = 2 << 20;
/// Messages that wait.
const MESSAGES_MAX: usize = 256;

/// An envelope whose header, size and sender were found good.
pub(crate) struct Envelope {
    pub(crate) author: SiteId,
    pub(crate) sequence: u64,
    /// By which copies are told while it waits; none of an advert, of which gossip itself knows the copies.
    pub(crate) hash: Option<u64>,
    pub(crate) bytes: Vec<u8>,
}

/// A message whose signatures have not been looked at.
pub(crate) struct Unchecked {
    pub(crate) id: MessageId,
    /// The neighbour that brought it.
    pub(crate) from: PeerId,
    pub(crate) is_advert: bool,
    pub(crate) envelopes: Vec<Envelope>,
    /// The verdict if nothing is wrong with the envelopes.
    pub(crate) verdict: Verdict,
}

/// A message and what its envelopes hold, up to the first one that `from` should have refused.
pub(crate) struct Checked {
    pub(crate) message: Unchecked,
    pub(crate) opened: Vec<Result<Opened, Dropped>>,
}

/// The messages that are being checked, as the swarm task sees them.
pub(crate) struct Checks {
    waiting: mpsc::Sender<Unchecked>,
    done: mpsc::Receiver<Checked>,
    /// Of each envelope that waits; keyed with a secret, so that nobody can make up one that hides another.
    hashes: BTreeSet<u64>,
    keys: RandomState,
    bytes: usize,
}

/// The other end of [`Checks`].
pub(crate) struct Checker {
    shared: Arc<Shared>,
    waiting: mpsc::Receiver<Unchecked>,
    done: mpsc::Sender<Checked>,
}

impl Unchecked {
    /// A message without envelopes so far, which deserves `acceptance` if all are good.
    pub(crate) fn new(from: PeerId, id: MessageId, is_advert: bool, acceptance: MessageAcceptance) -> Unchecked {
        Unchecked { id, from, is_advert, envelopes: Vec::new(), verdict: Verdict { acceptance, blame: None } }
    }
}

impl Checks {
    pub(crate) fn new(shared: Arc<Shared>) -> (Checks, Checker) {
        let (waiting, unchecked) = mpsc::channel(MESSAGES_MAX);
        let (checked, done) = mpsc::channel(MESSAGES_MAX);
        let checks = Checks { waiting, done, hashes: BTreeSet::new(), keys: RandomState::new(), bytes: 0 };
        (checks, Checker { shared, waiting: unchecked, done: checked })
    }

    /// The hash of these bytes; none when they wait already.
    pub(crate) fn hash_of_new(&self, envelope: &[u8]) -> Option<u64> {
        let hash = self.keys.hash_one(envelope);
        (!self.hashes.contains(&hash)).then_some(hash)
    }

    /// Puts a message into the queue; false when there is no room.
    pub(crate) fn begin(&mut self, message: Unchecked) -> bool {
        let bytes = bytes_of(&message);
        if self.bytes + bytes > BYTES_MAX {
            return false;
        }
        let Ok(place) = self.waiting.try_reserve() else { return false };
        self.bytes += bytes;
        self.hashes.extend(message.envelopes.iter().filter_map(|envelope| envelope.hash));
        place.send(message);
        true
    }

    /// The next message that was checked; never, when the checking task is gone.
    pub(crate) async fn next(&mut self) -> Checked {
        match self.done.recv().await {
            Some(checked) => self.ended(checked),
            None => std::future::pending().await,
        }
    }

    fn ended(&mut self, checked: Checked) -> Checked {
        self.bytes -= bytes_of(&checked.message);
        for hash in checked.message.envelopes.iter().filter_map(|envelope| envelope.hash) {
            self.hashes.remove(&hash);
        }
        checked
    }

    /// The next message, which a test has let be checked.
    #[cfg(test)]
    pub(crate) fn take(&mut self) -> Option<Checked> {
        let checked = self.done.try_recv().ok()?;
        Some(self.ended(checked))
    }
}

fn bytes_of(message: &Unchecked) -> usize {
    message.envelopes.iter().map(|envelope| envelope.bytes.len()).sum()
}

impl Checker {
    /// Checks what comes, until the swarm task is gone.
    pub(crate) async fn run(mut self) {
        while let Some(message) = self.waiting.recv().await {
            let checked = self.check(message).await;
            if self.done.send(checked).await.is_err() {
                return;
            }
        }
    }

    async fn check(&self, message: Unchecked) -> Checked {
        let mut opened = Vec::new();
        for envelope in &message.envelopes {
            let result = self.shared.open(&envelope.bytes);
            let is_fault = result.as_ref().is_err_and(|dropped| dropped.is_forwarders_fault());
            opened.push(result);
            if is_fault {
                break;
            }
            tokio::task::yield_now().await;
        }
        Checked { message, opened }
    }

    /// Checks the message that waits longest.
    #[cfg(test)]
    pub(crate) fn check_one(&mut self) {
        let message = self.waiting.try_recv().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let checked = runtime.block_on(self.check(message));
        self.done.try_send(checked).ok().unwrap();
    }
}
