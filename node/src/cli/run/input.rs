//! The user's standard input, for one seat or for all.
//!
//! Invariant: what is read waits until every seat that takes input has room for it, so no more than a few chunks are in memory; a seat
//! that has ended holds up nobody.

use std::{io::Read, sync::Arc, thread};

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

/// A piece of the input.
pub type Chunk = Arc<[u8]>;

/// The input as it is read, for so many seats. Typed at a terminal of theirs (`keys`), it may hold the user's word to leave.
///
/// # Errors
/// When no thread can be started.
pub fn of_stdin(seats: usize, keys: Option<Keys>) -> std::io::Result<Vec<mpsc::Receiver<Chunk>>> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..seats).map(|_| mpsc::channel(QUEUE)).unzip();
    // Not joined: it may wait for the user, and ends with the process.
    thread::Builder::new().name("input".to_owned()).spawn(move || pump(std::io::stdin().lock(), senders, keys))?;
    Ok(receivers)
}

fn pump(mut from: impl Read, mut to: Vec<mpsc::Sender<Chunk>>, mut keys: Option<Keys>) {
    let mut chunk = vec![0; CHUNK_BYTES];
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
