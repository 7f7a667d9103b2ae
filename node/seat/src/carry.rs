//! Carrying bytes between two streams, which neither end of this process reads.
//!
//! Invariant: at most [`CHUNK_BYTES`] of each direction are in memory here; a side that takes nothing makes the other wait.

use std::{io, pin::pin, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// How long what a side has said may take to arrive when it hears nothing any more.
const LAST_WORDS_MAX: Duration = Duration::from_secs(5);

/// Carries both ways until one side has ended, and lets what it said last arrive.
///
/// # Errors
/// When a side has gone without an end.
pub async fn carry(
    one: impl AsyncRead + AsyncWrite + Send,
    other: impl AsyncRead + AsyncWrite + Send,
) -> io::Result<()> {
    let ((mut from_one, mut to_one), (mut from_other, mut to_other)) = (tokio::io::split(one), tokio::io::split(other));
    let mut there = pin!(one_way(&mut from_one, &mut to_other));
    let mut back = pin!(one_way(&mut from_other, &mut to_one));
    tokio::select! {
        ended = &mut there => {
            if ended.is_err() {
                let _ = timeout(LAST_WORDS_MAX, back).await;
            }
            ended
        }
        ended = &mut back => {
            if ended.is_err() {
                let _ = timeout(LAST_WORDS_MAX, there).await;
            }
            ended
        }
    }
}

async fn one_way(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&chunk[..read]).await?;
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_side_has_said_arrives_though_it_has_gone_and_is_told_more() {
        for _ in 0..16 {
            let (mut user, near) = tokio::io::duplex(16);
            let (far, mut keeper) = tokio::io::duplex(16);
            user.write_all(b"last").await.unwrap();
            drop(user);
            keeper.write_all(&[7; 16]).await.unwrap();
            let carried = tokio::spawn(carry(near, far));
            let mut word = [0; 4];
            keeper.read_exact(&mut word).await.unwrap();
            assert_eq!(&word, b"last");
            let _ = carried.await.unwrap();
        }
    }

    #[tokio::test]
    async fn both_ways_are_carried_and_an_end_ends_both_when_all_has_arrived() {
        let (mut user, near) = tokio::io::duplex(16);
        let (far, mut keeper) = tokio::io::duplex(16);
        let carried = tokio::spawn(carry(near, far));
        user.write_all(b"in").await.unwrap();
        let mut word = [0; 2];
        keeper.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"in");
        let said = tokio::spawn(async move {
            keeper.write_all(&[7; 1000]).await.unwrap();
            keeper.shutdown().await.unwrap();
            keeper
        });
        let mut all = Vec::new();
        user.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, [7; 1000]);
        carried.await.unwrap().unwrap();
        let mut keeper = said.await.unwrap();
        assert_eq!(keeper.read(&mut word).await.unwrap(), 0, "its other way has ended as well");
    }
}
