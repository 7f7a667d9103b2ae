//! The user's standard input, for one seat or for all.
//!
//! Invariant: nothing is read before a seat wants it, so what was refused has taken nothing, but for keys of a terminal. What is read waits
//! until every seat that takes input has room for it, so no more than a few chunks, or [`KEYS_QUEUE`] short
//! pieces of keys, are in memory; a seat that has ended holds up nobody.

use std::{
    io::Read,
    sync::{Arc, mpsc as std_mpsc},
    thread,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::getpid,
};
use tokio::sync::mpsc;

use super::terminal::Keys;

/// Bytes that are read at once; no more than a frame holds.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that wait for one seat.
const QUEUE: usize = 2;
/// The same of keys: who types must be heard while the seat is not, or could not leave.
const KEYS_QUEUE: usize = 4096;
/// Bytes of keys that are read at once.
const KEYS_BYTES: usize = 1 << 10;

/// A piece of the input.
pub type Chunk = Arc<[u8]>;

/// The input of one seat.
pub struct UserInput {
    chunks: mpsc::Receiver<Chunk>,
    /// Begins the reading.
    want: Option<std_mpsc::Sender<()>>,
}

impl UserInput {
    /// What comes by itself.
    pub fn of(chunks: mpsc::Receiver<Chunk>) -> UserInput {
        UserInput { chunks, want: None }
    }

    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Option<Chunk> {
        if let Some(want) = self.want.take() {
            // An error says that it is read already.
            let _ = want.send(());
        }
        self.chunks.recv().await
    }
}

/// The input as it is read, for so many seats. Typed at a terminal of theirs (`keys`), it may hold the user's word to leave.
///
/// # Errors
/// When no thread can be started.
pub fn of_stdin(seats: usize, keys: Option<Keys>) -> std::io::Result<Vec<UserInput>> {
    let queue = if keys.is_some() { KEYS_QUEUE } else { QUEUE };
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..seats).map(|_| mpsc::channel(queue)).unzip();
    let (want, wanted) = std_mpsc::channel();
    let input = |chunks| UserInput { chunks, want: Some(want.clone()) };
    let inputs = receivers.into_iter().map(input).collect();
    drop(want);
    // Not joined: it may wait for the user, and ends with the process.
    thread::Builder::new().name("input".to_owned()).spawn(move || {
        if keys.is_some() || wanted.recv().is_ok() {
            pump(std::io::stdin().lock(), senders, keys);
        }
    })?;
    Ok(inputs)
}

fn pump(mut from: impl Read, mut to: Vec<mpsc::Sender<Chunk>>, mut keys: Option<Keys>) {
    let mut chunk = vec![0; if keys.is_some() { KEYS_BYTES } else { CHUNK_BYTES }];
    while !to.is_empty() {
        match from.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => {
                let piece = match &mut keys {
                    None => Chunk::from(&chunk[..read]),
                    Some(keys) => match keys.take(&chunk[..read]) {
                        Some(passed) => Chunk::from(passed),
                        // As if the terminal had gone; the input does not end with it.
                        None => return leave(to),
                    },
                };
                to.retain(|seat| seat.blocking_send(Chunk::clone(&piece)).is_ok());
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// The user leaves by a key.
fn leave(to: Vec<mpsc::Sender<Chunk>>) {
    std::mem::forget(to);
    // It fails for no process's own number.
    let _ = kill(getpid(), Signal::SIGHUP);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_seats_get_all_of_it_and_one_that_has_ended_holds_up_nobody() {
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel(QUEUE)).unzip();
        let whole: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
        let from = whole.clone();
        drop(receivers.pop());
        let pumping = thread::spawn(move || pump(&from[..], senders, None));
        let reading: Vec<_> = receivers
            .into_iter()
            .map(|mut seat| {
                thread::spawn(move || {
                    let mut all = Vec::new();
                    while let Some(chunk) = seat.blocking_recv() {
                        all.extend_from_slice(&chunk);
                    }
                    all
                })
            })
            .collect();
        for seat in reading {
            assert!(seat.join().unwrap() == whole);
        }
        pumping.join().unwrap();
    }
}
