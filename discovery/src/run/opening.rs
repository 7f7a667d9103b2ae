//! How a stream is opened, on each of its legs: from the user to the entry point, and from there to the site.
//!
//! The opener sends a length of four bytes and so many bytes; the other answers with one byte, 0 when it takes the stream, else 1
//! when it never will, or 2 when it may later, with a length of two bytes and why, in words. Behind 1 and these a byte may say for want of
//! what, which a reader need not know. Invariant: what is read is bounded, and costs the memory of what has come.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Largest opening: the signed order of what is to be run may have 7 MiB of text.
pub const OPENING_BYTES_MAX: usize = (7 << 20) + (64 << 10);
/// Bytes of a reason.
const REASON_BYTES_MAX: usize = 1024;

const TAKEN: u8 = 0;
const REFUSED: u8 = 1;
const NOT_NOW: u8 = 2;

/// What an owner does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Commands.
    Run,
    /// Their network.
    Network,
    /// Their image, or that there is none.
    Image,
}

impl Want {
    const ALL: [Want; 3] = [Want::Run, Want::Network, Want::Image];

    fn byte(self) -> u8 {
        match self {
            Want::Run => 1,
            Want::Network => 2,
            Want::Image => 3,
        }
    }
}

/// What is said to whoever opens a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is open.
    Taken,
    /// It is not opened, and will not be; why, in words.
    Refused(String),
    /// The same for want of something that the site's advert tells of.
    Wanting(Want, String),
    /// It is not opened now; it may be worth while to ask again.
    NotNow(String),
}

/// Says what is wanted.
///
/// # Errors
/// When the other side has gone, or the opening is longer than [`OPENING_BYTES_MAX`].
pub async fn send(stream: &mut (impl AsyncWrite + Unpin), opening: &[u8]) -> io::Result<()> {
    let length = u32::try_from(opening.len()).ok().filter(|_| opening.len() <= OPENING_BYTES_MAX);
    let length = length.ok_or_else(|| too_long(opening.len()))?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(opening).await?;
    stream.flush().await
}

/// Hears what is wanted; unchecked.
///
/// # Errors
/// When the other side has gone, or claims more than [`OPENING_BYTES_MAX`].
pub async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let bytes = receive_length(stream).await?;
    receive_rest(stream, bytes).await
}

/// Hears how long the opening is that follows.
///
/// # Errors
/// As for [`receive`].
pub(super) async fn receive_length(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
    let bytes = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX);
    if bytes > OPENING_BYTES_MAX { Err(too_long(bytes)) } else { Ok(bytes) }
}

/// Hears an opening of so many bytes; unchecked.
///
/// # Errors
/// As for [`receive`].
pub(super) async fn receive_rest(stream: &mut (impl AsyncRead + Unpin), bytes: usize) -> io::Result<Vec<u8>> {
    let mut opening = Vec::new();
    // It grows with what comes.
    stream.take(bytes as u64).read_to_end(&mut opening).await?;
    if opening.len() < bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(opening) }
}

/// Answers; nothing follows unless the stream is taken. The rest of a reason that is too long is cut off.
///
/// # Errors
/// When the other side has gone.
pub async fn give(stream: &mut (impl AsyncWrite + Unpin), answer: &Answer) -> io::Result<()> {
    let (kind, reason, want) = match answer {
        Answer::Taken => {
            stream.write_all(&[TAKEN]).await?;
            return stream.flush().await;
        }
        Answer::Refused(reason) => (REFUSED, reason, None),
        Answer::Wanting(want, reason) => (REFUSED, reason, Some(want.byte())),
        Answer::NotNow(reason) => (NOT_NOW, reason, None),
    };
    let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
    let length = u16::try_from(reason.len()).unwrap_or_default().to_be_bytes();
    stream.write_all(&[&[kind][..], &length, reason.as_bytes(), want.as_slice()].concat()).await?;
    stream.shutdown().await
}

/// Hears the answer.
///
/// # Errors
/// When it has gone, or does not keep to the protocol.
pub async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Answer> {
    match stream.read_u8().await? {
        TAKEN => Ok(Answer::Taken),
        kind @ (REFUSED | NOT_NOW) => {
            let length = usize::from(stream.read_u16().await?);
            if length > REASON_BYTES_MAX {
                return Err(too_long(length));
            }
            let mut reason = vec![0; length];
            stream.read_exact(&mut reason).await?;
            let reason = String::from_utf8_lossy(&reason).into_owned();
            if kind == NOT_NOW {
                return Ok(Answer::NotNow(reason));
            }
            let mut want = [0];
            // Nothing more needs to come.
            let has_come = stream.read(&mut want).await.is_ok_and(|bytes| bytes == 1);
            let want = Want::ALL.into_iter().find(|one| has_come && one.byte() == want[0]);
            Ok(match want {
                Some(want) => Answer::Wanting(want, reason),
                None => Answer::Refused(reason),
            })
        }
        other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("an answer of kind {other}"))),
    }
}

fn too_long(bytes: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{bytes} bytes, which is more than may be said"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_said_is_heard_and_what_is_too_long_is_not() {
        let mut wire = Vec::new();
        send(&mut wire, b"seat 1").await.unwrap();
        assert_eq!(wire, b"\0\0\0\x06seat 1");
        assert_eq!(receive(&mut &wire[..]).await.unwrap(), b"seat 1");
        assert_eq!(receive(&mut &wire[..9]).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(receive(&mut &[255; 9][..]).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let long = vec![0; OPENING_BYTES_MAX + 1];
        assert_eq!(send(&mut wire, &long).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(wire.len(), 10, "nothing of it was said");

        let long = || "ü".repeat(1000);
        for (given, heard, bytes) in [
            (Answer::Taken, Answer::Taken, 1),
            (Answer::Refused(long()), Answer::Refused("ü".repeat(512)), 1027),
            (Answer::NotNow("busy".to_owned()), Answer::NotNow("busy".to_owned()), 7),
            (Answer::Wanting(Want::Network, long()), Answer::Wanting(Want::Network, "ü".repeat(512)), 1028),
        ] {
            let mut wire = Vec::new();
            give(&mut wire, &given).await.unwrap();
            assert_eq!((answer(&mut &wire[..]).await.unwrap(), wire.len()), (heard, bytes));
        }
        for (byte, heard) in [(3, Answer::Wanting(Want::Image, "a".to_owned())), (4, Answer::Refused("a".to_owned()))] {
            assert_eq!(answer(&mut &[1, 0, 1, b'a', byte][..]).await.unwrap(), heard);
        }
        for wrong in [&[3][..], &[1, 255, 255], &[1, 0, 3, b'a']] {
            assert!(answer(&mut &wrong[..]).await.is_err(), "{wrong:?}");
        }
    }
}
