//! A stream to what runs on a seat, whatever carries it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use libp2p::Stream;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt as _};

use super::open::OpenStream;
use crate::transport::Unthrottled;

/// Bytes in both directions between the two nodes; dropped, it is reset.
#[derive(Debug)]
pub struct RunStream(Carrier);

#[derive(Debug)]
enum Carrier {
    /// Over a connection.
    Peer { stream: Box<Compat<Unthrottled<Stream>>>, _open: OpenStream },
    /// Within the node: a site may be its user's entry point.
    Own(DuplexStream),
}

impl RunStream {
    pub(super) fn of_peer(stream: Stream, open: OpenStream) -> RunStream {
        RunStream(Carrier::Peer { stream: Box::new(Unthrottled(stream).compat()), _open: open })
    }

    pub(super) fn within(stream: DuplexStream) -> RunStream {
        RunStream(Carrier::Own(stream))
    }
}

impl AsyncRead for RunStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Carrier::Peer { stream, .. } => Pin::new(stream).poll_read(context, buffer),
            Carrier::Own(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for RunStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Carrier::Peer { stream, .. } => Pin::new(stream).poll_write(context, bytes),
            Carrier::Own(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Carrier::Peer { stream, .. } => Pin::new(stream).poll_flush(context),
            Carrier::Own(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Carrier::Peer { stream, .. } => Pin::new(stream).poll_shutdown(context),
            Carrier::Own(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
