//! How fast one connection may bring bytes and streams, whatever they are for.
//!
//! Every protocol has limits of its own, but each message costs something before such a limit is looked at: a stream to
//! negotiate, bytes to decrypt and decode. Here the reader simply stops for a while, and flow control makes the sender
//! wait. Invariant: of one connection at most `burst + rate * t` bytes and streams are taken in any time `t`, beside what
//! is read of an [`Unthrottled`] stream; a connection keeps some 100 bytes for it, and nothing is dropped.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use futures::{AsyncRead, AsyncWrite};
use libp2p::core::muxing::{StreamMuxer, StreamMuxerBox, StreamMuxerEvent, SubstreamBox};
use tokio::{
    task_local,
    time::{Sleep, sleep},
};

/// What one connection may bring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Throttle {
    pub(crate) bytes_per_s: u32,
    pub(crate) streams_per_s: u32,
}

task_local! {
    /// Set while a stream is read whose bytes are not counted.
    static IS_UNTHROTTLED: ();
}

/// A stream that is read as fast as it comes, and whose bytes are not counted: its own protocol bounds them.
#[derive(Debug)]
pub(crate) struct Unthrottled<S>(pub(crate) S);

impl<S: AsyncRead + Unpin> AsyncRead for Unthrottled<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        IS_UNTHROTTLED.sync_scope((), || Pin::new(&mut self.0).poll_read(context, buffer))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unthrottled<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(context)
    }
}

/// How much may come at once, in terms of what comes in a while.
const BURST: Duration = Duration::from_secs(2);

/// The time until which everything that was taken is paid for; ahead of the clock there is a debt, and a pause.
#[derive(Debug)]
struct Pace {
    per_s: u32,
    paid_until: Instant,
}

impl Pace {
    fn new(per_s: u32, now: Instant) -> Pace {
        Pace { per_s: per_s.max(1), paid_until: now.checked_sub(BURST).unwrap_or(now) }
    }

    fn spend(&mut self, count: usize, now: Instant) {
        let rested = now.checked_sub(BURST).unwrap_or(now);
        let price = Duration::from_nanos(1_000_000_000 / u64::from(self.per_s).max(1));
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.paid_until = self.paid_until.max(rested) + price.saturating_mul(count);
    }

    fn pause(&self, now: Instant) -> Option<Duration> {
        self.paid_until.checked_duration_since(now).filter(|pause| !pause.is_zero())
    }
}

/// A pause that a task waits for.
#[derive(Default)]
struct Pause(Option<Pin<Box<Sleep>>>);

impl Pause {
    /// Ready when the pace allows more.
    fn poll(&mut self, pace: &Pace, context: &mut Context<'_>) -> Poll<()> {
        if let Some(sleeping) = &mut self.0 {
            ready!(sleeping.as_mut().poll(context));
            self.0 = None;
        }
        let Some(pause) = pace.pause(Instant::now()) else { return Poll::Ready(()) };
        let mut sleeping = Box::pin(sleep(pause));
        let is_over = sleeping.as_mut().poll(context).is_ready();
        self.0 = (!is_over).then_some(sleeping);
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A connection that is read from only so fast.
pub(crate) struct ThrottledMuxer {
    inner: StreamMuxerBox,
    bytes: Arc<Mutex<Pace>>,
    streams: Pace,
    pause: Pause,
}

impl ThrottledMuxer {
    pub(crate) fn new(inner: StreamMuxerBox, throttle: Throttle) -> ThrottledMuxer {
        let now = Instant::now();
        ThrottledMuxer {
            inner,
            bytes: Arc::new(Mutex::new(Pace::new(throttle.bytes_per_s, now))),
            streams: Pace::new(throttle.streams_per_s, now),
            pause: Pause::default(),
        }
    }

    fn stream(&self, inner: SubstreamBox) -> ThrottledStream {
        ThrottledStream { inner, bytes: Arc::clone(&self.bytes), pause: Pause::default() }
    }
}

impl StreamMuxer for ThrottledMuxer {
    type Substream = ThrottledStream;
    type Error = io::Error;

    fn poll_inbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<ThrottledStream>> {
        let this = &mut *self;
        ready!(this.pause.poll(&this.streams, context));
        let stream = ready!(Pin::new(&mut this.inner).poll_inbound(context))?;
        this.streams.spend(1, Instant::now());
        Poll::Ready(Ok(this.stream(stream)))
    }

    fn poll_outbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<ThrottledStream>> {
        let stream = ready!(Pin::new(&mut self.inner).poll_outbound(context))?;
        Poll::Ready(Ok(self.stream(stream)))
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(context)
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<StreamMuxerEvent>> {
        Pin::new(&mut self.inner).poll(context)
    }
}

/// A stream of such a connection.
pub(crate) struct ThrottledStream {
    inner: SubstreamBox,
    bytes: Arc<Mutex<Pace>>,
    pause: Pause,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is valid after every single operation, so a panic elsewhere does not spoil it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsyncRead for ThrottledStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if IS_UNTHROTTLED.try_with(|()| ()).is_ok() {
            return Pin::new(&mut this.inner).poll_read(context, buffer);
        }
        ready!(this.pause.poll(&locked(&this.bytes), context));
        let read = ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        locked(&this.bytes).spend(read, Instant::now());
        Poll::Ready(Ok(read))
    }
}

impl AsyncWrite for ThrottledStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::{AsyncReadExt as _, FutureExt as _};
    use proptest::prelude::*;

    use super::*;

    /// A muxed stream of zeros.
    fn zeros() -> ThrottledStream {
        let inner = SubstreamBox::new(Zeros);
        let pace = Pace::new(1, Instant::now());
        ThrottledStream { inner, bytes: Arc::new(Mutex::new(pace)), pause: Pause::default() }
    }

    struct Zeros;

    impl AsyncRead for Zeros {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(buffer.len()))
        }
    }

    impl AsyncWrite for Zeros {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn only_an_unthrottled_stream_is_not_counted() {
        let (mut throttled, mut buffer) = (zeros(), [0; 1024]);
        for _ in 0..100 {
            let read = Unthrottled(&mut throttled).read(&mut buffer).now_or_never();
            assert_eq!(read.unwrap().unwrap(), 1024);
        }
        assert_eq!(throttled.read(&mut buffer).now_or_never().unwrap().unwrap(), 1024, "nothing was counted");
        assert!(throttled.read(&mut buffer).now_or_never().is_none(), "this was");
        assert!(Unthrottled(&mut throttled).read(&mut buffer).now_or_never().is_some());
    }

    proptest! {
        #[test]
        fn a_pace_takes_at_most_its_burst_and_its_rate(steps in proptest::collection::vec((0_u64..500, 1_usize..50), 1..200)) {
            let start = Instant::now() + Duration::from_secs(10);
            let (mut pace, per_s) = (Pace::new(100, start), 100);
            let (mut now, mut taken) = (start, 0_u64);
            for (gap, count) in steps {
                now += Duration::from_millis(gap);
                if let Some(pause) = pace.pause(now) {
                    now += pause;
                }
                prop_assert!(pace.pause(now).is_none(), "the pause suffices");
                pace.spend(count, now);
                taken += count as u64;
                // One read may go into debt; the next one waits for it.
                let allowed = 2 * per_s + (now - start).as_millis() as u64 * per_s / 1000 + 1;
                prop_assert!(taken <= allowed + count as u64);
            }
        }
    }
}
