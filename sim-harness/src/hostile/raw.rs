//! Bytes on the streams of direct requests, without any of the checks that honest nodes make.

use std::{io, time::Duration};

use futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use libp2p::{StreamProtocol, request_response};

/// What goes out as a request.
#[derive(Debug, Clone)]
pub enum RawAsk {
    /// These bytes.
    Bytes(Vec<u8>),
    /// One byte a second, for as long as the other side takes them.
    Slowly,
}

/// Reads and writes anything.
#[derive(Debug, Clone, Default)]
pub struct RawCodec;

/// What is read of anything that honest nodes send; more is of no interest.
const READ_MAX: u64 = 4 << 20;

async fn read<T: AsyncRead + Unpin + Send>(io: &mut T) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io.take(READ_MAX).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

impl request_response::Codec for RawCodec {
    type Protocol = StreamProtocol;
    type Request = RawAsk;
    type Response = Vec<u8>;

    async fn read_request<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<RawAsk>
    where
        T: AsyncRead + Unpin + Send,
    {
        read(io).await.map(RawAsk::Bytes)
    }

    async fn read_response<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<Vec<u8>>
    where
        T: AsyncRead + Unpin + Send,
    {
        read(io).await
    }

    async fn write_request<T>(&mut self, _: &StreamProtocol, io: &mut T, ask: RawAsk) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        match ask {
            RawAsk::Bytes(bytes) => io.write_all(&bytes).await,
            RawAsk::Slowly => loop {
                io.write_all(&[1]).await?;
                io.flush().await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
            },
        }
    }

    async fn write_response<T>(&mut self, _: &StreamProtocol, io: &mut T, answer: Vec<u8>) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        io.write_all(&answer).await
    }
}
