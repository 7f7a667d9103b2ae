//! What a client has sent to something that has not taken it yet, in a file.
//!
//! The library gives a client leave to send more as soon as data has come, not when it was taken. To wait there would hold up everything else
//! of the connection, the client's leave for output included, and a command that writes before it reads on would wait for ever.
//! Invariant: no more than one piece is in memory, and about [`BYTES_MAX`] on disk; only then the connection waits.

use std::{
    fs, io,
    path::Path,
    sync::{Arc, Mutex},
};

use kolo_runtime::lock::locked;
use nix::unistd::mkstemp;
use tokio::sync::Notify;

use crate::{
    frame::DATA_BYTES_MAX,
    spool::{Kept, Spool},
};

/// Most bytes that wait, and some more.
const BYTES_MAX: u64 = 1 << 30;

/// One direction of a channel, with two ends.
#[derive(Debug, Clone)]
pub struct Backlog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// There is something to take, or no more will come.
    came: Notify,
    /// There is room, or nothing is taken any more.
    taken: Notify,
}

#[derive(Debug)]
struct State {
    spool: Spool,
    taken: u64,
    is_ended: bool,
    is_closed: bool,
}

impl Backlog {
    /// An empty one, whose file is in `directory` and has no name.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn new(directory: &Path) -> io::Result<Backlog> {
        Backlog::with_most(directory, BYTES_MAX)
    }

    fn with_most(directory: &Path, bytes_max: u64) -> io::Result<Backlog> {
        let (_, path) = mkstemp(&directory.join("kolo-input-XXXXXX"))?;
        let spool = Spool::open(&path, bytes_max);
        fs::remove_file(path)?;
        let state = State { spool: spool?, taken: 0, is_ended: false, is_closed: false };
        Ok(Backlog(Arc::new(Inner { state: Mutex::new(state), came: Notify::new(), taken: Notify::new() })))
    }

    /// Adds what has come; waits while as much waits as may.
    ///
    /// # Errors
    /// Those of the disk.
    pub async fn push(&self, data: &[u8]) -> io::Result<()> {
        for piece in data.chunks(DATA_BYTES_MAX) {
            while !self.has_added(piece)? {
                self.0.taken.notified().await;
            }
            self.0.came.notify_one();
        }
        Ok(())
    }

    fn has_added(&self, piece: &[u8]) -> io::Result<bool> {
        let mut state = locked(&self.0.state);
        if state.is_closed || state.is_ended {
            return Ok(true);
        }
        let has_room = state.spool.room(state.taken) >= piece.len() as u64;
        if has_room {
            state.spool.append(piece)?;
        }
        Ok(has_room)
    }

    /// No more will come.
    pub fn end(&self) {
        locked(&self.0.state).is_ended = true;
        self.0.came.notify_one();
    }

    /// Nothing is taken any more; what comes is dropped.
    pub fn close(&self) {
        locked(&self.0.state).is_closed = true;
        self.0.taken.notify_one();
        self.0.came.notify_one();
    }

    /// Takes what comes next; nothing at the end.
    ///
    /// # Errors
    /// Those of the disk.
    pub async fn take(&self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(piece) = self.next()? {
                self.0.taken.notify_one();
                return Ok(piece);
            }
            self.0.came.notified().await;
        }
    }

    fn next(&self) -> io::Result<Option<Vec<u8>>> {
        let mut state = locked(&self.0.state);
        if state.is_closed {
            return Ok(Some(Vec::new()));
        }
        match state.spool.read(state.taken, DATA_BYTES_MAX)? {
            Kept::Data(piece) => {
                state.taken += piece.len() as u64;
                Ok(Some(piece))
            }
            Kept::GapTo(_) => Err(io::Error::other("input was lost")),
            Kept::Nothing => Ok(state.is_ended.then(Vec::new)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::spool::{HEAD_BYTES, RING_BYTES_MIN};

    #[tokio::test]
    async fn everything_comes_out_in_order_and_only_so_much_waits() {
        let directory = tempfile::tempdir().unwrap();
        let backlog = Backlog::with_most(directory.path(), RING_BYTES_MIN).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nobody else finds it");
        let whole: Vec<u8> = (0..5_000_000_u32).map(|number| (number / 7) as u8).collect();
        let (from, pushed) = (whole.clone(), backlog.clone());
        let pushing = tokio::spawn(async move {
            for piece in from.chunks(30_000) {
                pushed.push(piece).await.unwrap();
                let state = locked(&pushed.0.state);
                assert!(state.spool.end() - state.taken <= RING_BYTES_MIN + HEAD_BYTES);
            }
            pushed.end();
        });
        let mut all = Vec::new();
        loop {
            let piece = backlog.take().await.unwrap();
            if piece.is_empty() {
                break;
            }
            all.extend(piece);
            tokio::task::yield_now().await;
        }
        pushing.await.unwrap();
        assert!(all == whole);
    }

    #[tokio::test]
    async fn who_takes_nothing_any_more_holds_up_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let backlog = Backlog::with_most(directory.path(), RING_BYTES_MIN).unwrap();
        let most = vec![1; 2_000_000];
        let waiting = timeout(Duration::from_millis(200), backlog.push(&most)).await;
        assert!(waiting.is_err(), "there is no room");
        backlog.close();
        timeout(Duration::from_secs(10), backlog.push(&most)).await.unwrap().unwrap();
        assert!(backlog.take().await.unwrap().is_empty());
    }
}
