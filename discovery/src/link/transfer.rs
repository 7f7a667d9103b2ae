//! Sending bytes that nobody needs, and clocking those that come.
//!
//! On the wire: a length of four bytes and so many bytes, again and again, and a length of zero at the end. Connections are
//! encrypted, so zeros travel as slowly as anything else. The receiver clocks: what a sender has written may still wait in buffers. It
//! does not count the beginning, while the connection finds out how fast it may send. Invariant: nothing beyond the agreed bytes
//! is read.

use std::{
    io,
    time::{Duration, Instant},
};

use futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Bytes behind one length.
const CHUNK: usize = 16 << 10;
/// How long is sent.
const SEND_FOR: Duration = Duration::from_secs(2);
/// The beginning that does not count ends after so long, or after an eighth of the agreed bytes.
const BEGINNING: Duration = Duration::from_millis(500);

/// Bytes that came within some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub(super) bytes: u64,
    pub(super) micros: u64,
}

impl Tally {
    /// Mbit/s; none when too little came to say.
    pub(super) fn mbps(self) -> Option<u64> {
        (self.bytes > 0).then(|| self.bytes.saturating_mul(8).checked_div(self.micros))?
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.bytes) << 64 | u128::from(self.micros)).to_be_bytes()
    }

    pub(super) fn read(bytes: [u8; 16]) -> Tally {
        let number = |half: &[u8]| half.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Tally { bytes: number(&bytes[..8]), micros: number(&bytes[8..]) }
    }
}

/// What has come, and when.
#[derive(Debug)]
struct Meter {
    bytes_max: u64,
    bytes: u64,
    /// When the first chunk was there, which was on its way before; and what was there at the end of the beginning.
    first: Option<(Instant, u64)>,
    settled: Option<(Instant, u64)>,
    last: Instant,
}

impl Meter {
    fn new(bytes_max: u64, now: Instant) -> Meter {
        Meter { bytes_max, bytes: 0, first: None, settled: None, last: now }
    }

    fn came(&mut self, bytes: u64, now: Instant) {
        self.bytes += bytes;
        self.last = now;
        let (began, _) = *self.first.get_or_insert((now, self.bytes));
        if self.settled.is_none() && (self.bytes >= self.bytes_max / 8 || now - began >= BEGINNING) {
            self.settled = Some((now, self.bytes));
        }
    }

    /// The whole counts when too little came behind the beginning.
    fn tally(&self) -> Tally {
        let settled = self.settled.filter(|(_, bytes)| self.bytes - bytes >= self.bytes / 2);
        let Some((from, bytes)) = settled.or(self.first) else { return Tally::default() };
        let micros = u64::try_from((self.last - from).as_micros()).unwrap_or(u64::MAX);
        Tally { bytes: self.bytes - bytes, micros }
    }
}

/// Sends for [`SEND_FOR`], but at most `bytes_max`; how much.
pub(super) async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes_max: u64) -> io::Result<u64> {
    let mut chunk = vec![0; 4 + CHUNK];
    chunk[..4].copy_from_slice(&(CHUNK as u32).to_be_bytes());
    let (began, mut sent) = (Instant::now(), 0);
    while sent + CHUNK as u64 <= bytes_max && began.elapsed() < SEND_FOR {
        stream.write_all(&chunk).await?;
        sent += CHUNK as u64;
        // A fast stream is always ready.
        tokio::task::yield_now().await;
    }
    stream.write_all(&[0; 4]).await?;
    stream.flush().await?;
    Ok(sent)
}

/// Clocks what comes until the end.
///
/// # Errors
/// `InvalidData` when the other side does not keep to what was agreed.
pub(super) async fn receive(stream: &mut (impl AsyncRead + Unpin), bytes_max: u64) -> io::Result<Tally> {
    let (mut chunk, mut length) = (vec![0; CHUNK], [0; 4]);
    let mut meter = Meter::new(bytes_max, Instant::now());
    loop {
        stream.read_exact(&mut length).await?;
        let bytes = u32::from_be_bytes(length);
        if bytes == 0 {
            return Ok(meter.tally());
        }
        let room = usize::try_from(bytes).ok().and_then(|length| chunk.get_mut(..length));
        let Some(room) = room.filter(|_| meter.bytes + u64::from(bytes) <= bytes_max) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more bytes than agreed"));
        };
        stream.read_exact(room).await?;
        meter.came(u64::from(bytes), Instant::now());
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use futures::io::Cursor;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_beginning_does_not_count_unless_it_is_nearly_all() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut meter = Meter::new(8_000, start);
        assert_eq!(meter.tally().mbps(), None);
        meter.came(500, at(1000));
        assert_eq!(meter.tally().mbps(), None, "the first chunk tells nothing");
        meter.came(500, at(1400));
        assert_eq!(meter.tally(), Tally { bytes: 500, micros: 400_000 });
        meter.came(3_000, at(1500));
        assert_eq!(meter.tally(), Tally { bytes: 3_000, micros: 100_000 });
        meter.came(1_000_000, at(1501));
        assert_eq!(meter.tally().mbps(), Some(1_003_000 * 8 / 101_000));
    }

    proptest! {
        #[test]
        fn tallies_travel(bytes: u64, micros: u64) {
            let tally = Tally { bytes, micros };
            prop_assert_eq!(Tally::read(tally.to_bytes()), tally);
        }
    }

    #[tokio::test]
    async fn what_was_sent_is_received_and_more_is_refused() {
        let mut wire = Vec::new();
        let sent = send(&mut wire, 10 * CHUNK as u64 + 1).await.unwrap();
        assert_eq!(sent, 10 * CHUNK as u64);
        let tally = receive(&mut Cursor::new(&wire), sent).await.unwrap();
        assert!(tally.bytes > 0 && tally.bytes < sent, "{tally:?}");
        let refused = receive(&mut Cursor::new(&wire), sent - 1).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        let large = receive(&mut Cursor::new(&u32::MAX.to_be_bytes()), u64::MAX).await.unwrap_err();
        assert_eq!(large.kind(), io::ErrorKind::InvalidData);
        let cut = receive(&mut Cursor::new(&wire[..CHUNK]), sent).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
