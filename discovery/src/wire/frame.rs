//! The frame of a direct request or answer on its stream: `kind (2, big endian) | length (4, big endian) | body`.
//!
//! Invariants: the frame is the same in every version, so that a node tells a kind that it does not know from garbage;
//! nothing of a body is read before its length was looked at; and the stream ends with the body.

use std::io;

use futures::{AsyncRead, AsyncReadExt as _};

const HEADER_BYTES: usize = 6;
/// What is skipped at a time of a body that is not wanted.
const SKIPPED_AT_ONCE: usize = 4096;

/// What stands before a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message; which numbers there are is the business of a version.
    pub kind: u16,
    /// How long the body is, as its sender says.
    pub length: usize,
}

impl Header {
    fn of(bytes: [u8; HEADER_BYTES]) -> Header {
        let [kind_high, kind_low, length @ ..] = bytes;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        Header { kind: u16::from_be_bytes([kind_high, kind_low]), length }
    }
}

/// A whole message.
#[must_use]
pub fn framed(kind: u16, body: &[u8]) -> Vec<u8> {
    // No body is longer than its kind may be.
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [&kind.to_be_bytes()[..], &length.to_be_bytes(), body].concat()
}

/// The kind and the body of a whole message; none when it is not framed.
#[must_use]
pub fn unframed(message: &[u8]) -> Option<(u16, &[u8])> {
    let (header, body) = message.split_first_chunk::<HEADER_BYTES>()?;
    let header = Header::of(*header);
    (header.length == body.len()).then_some((header.kind, body))
}

/// Reads what stands before a body.
///
/// # Errors
/// Those of the stream, also when it ends before that.
pub async fn read_header<T: AsyncRead + Unpin + Send>(io: &mut T) -> io::Result<Header> {
    let mut bytes = [0; HEADER_BYTES];
    io.read_exact(&mut bytes).await?;
    Ok(Header::of(bytes))
}

/// Reads a body, whose length the caller has checked; `None` when the stream goes on behind it.
///
/// # Errors
/// Those of the stream, also when it ends before the body does.
pub async fn read_body<T: AsyncRead + Unpin + Send>(io: &mut T, length: usize) -> io::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    io.take(length as u64).read_to_end(&mut body).await?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(is_at_end(io).await?.then_some(body))
}

/// Reads a body that nobody wants, so that its sender comes to look for the answer; false when the stream goes on behind it.
///
/// # Errors
/// Those of the stream, also when it ends before the body does.
pub async fn skip_body<T: AsyncRead + Unpin + Send>(io: &mut T, length: usize) -> io::Result<bool> {
    let mut bytes = vec![0; length.min(SKIPPED_AT_ONCE)];
    let mut left = length;
    while left > 0 {
        let part = left.min(bytes.len());
        io.read_exact(&mut bytes[..part]).await?;
        left -= part;
    }
    is_at_end(io).await
}

async fn is_at_end<T: AsyncRead + Unpin + Send>(io: &mut T) -> io::Result<bool> {
    Ok(io.read(&mut [0; 1]).await? == 0)
}
