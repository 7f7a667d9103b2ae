//! Cutting connections whose gossip frames are larger than any.
//!
//! gossipsub drops the stream of such a frame and says nothing, and yamux lets the sender write on into the void: nobody is
//! to blame, and a quarter of a MiB was kept for it. Here the length of each frame is looked at when its first bytes arrive,
//! before anything is kept, and the connection ends with an error that says why. Invariant: bytes are only looked at,
//! never changed or kept but for one line of the negotiation and one length; what is no gossip is looked at up to its name.

use std::{fmt, io};

use crate::wire;

/// Largest frame of gossip that is read: an advert, and room for what was read behind it already, which gossipsub counts
/// as well.
pub(crate) const FRAME_BYTES_MAX: usize = wire::ADVERT_BYTES_MAX + 32 * 1024;
/// The longest protocol name that is looked at; longer ones are not gossip's.
const LINE_BYTES_MAX: usize = 256;
/// What comes before the name of a protocol.
const NEGOTIATION: &[u8] = b"/multistream/1.0.0\n";
/// The part of the name by which gossip is known; the grid is before it, the version behind.
const GOSSIP: &[u8] = b"/gossip/";

/// A frame of gossip is larger than any may be.
#[derive(Debug)]
pub(crate) struct OversizedFrame(usize);

impl fmt::Display for OversizedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a gossip frame of {} bytes, at most {FRAME_BYTES_MAX} are read", self.0)
    }
}

impl std::error::Error for OversizedFrame {}

/// Whether a connection ended because of such a frame.
pub(crate) fn is_oversized_frame(error: &io::Error) -> bool {
    let Some(inner) = error.get_ref() else { return false };
    inner.is::<OversizedFrame>() || inner.downcast_ref::<io::Error>().is_some_and(is_oversized_frame)
}

/// What the bytes that come next are.
#[derive(Debug)]
enum Next {
    /// The digits of a length, so far as they have come.
    Length { value: usize, shift: u32 },
    /// The rest of a line of the negotiation.
    Line { line: Vec<u8>, left: usize },
    /// The rest of a frame.
    Frame { left: usize },
    /// Nothing that matters here.
    Other,
}

/// Watches one stream that the other side has opened.
#[derive(Debug)]
pub(crate) struct FrameWatch {
    next: Next,
    is_gossip: bool,
}

const LENGTH: Next = Next::Length { value: 0, shift: 0 };

impl FrameWatch {
    pub(crate) fn new() -> FrameWatch {
        FrameWatch { next: LENGTH, is_gossip: false }
    }

    /// Looks at bytes that have arrived.
    ///
    /// # Errors
    /// [`OversizedFrame`], with the first frame that is too large.
    pub(crate) fn see(&mut self, mut bytes: &[u8]) -> Result<(), OversizedFrame> {
        while let Some((first, rest)) = bytes.split_first() {
            match &mut self.next {
                Next::Other => return Ok(()),
                Next::Length { value, shift } => {
                    bytes = rest;
                    *value |= usize::from(first & 0x7f) << *shift;
                    *shift += 7;
                    // Four digits reach far beyond the limit, and no further digit can make it less.
                    if first & 0x80 == 0 || *shift >= 28 {
                        let length = *value;
                        self.begin(length)?;
                    }
                }
                Next::Line { line, left } => {
                    let (seen, rest) = bytes.split_at(bytes.len().min(*left));
                    bytes = rest;
                    line.extend_from_slice(seen);
                    *left -= seen.len();
                    if *left == 0 {
                        self.is_gossip = line.windows(GOSSIP.len()).any(|part| part == GOSSIP);
                        self.next = if self.is_gossip || line == NEGOTIATION { LENGTH } else { Next::Other };
                    }
                }
                Next::Frame { left } => {
                    let seen = bytes.len().min(*left);
                    bytes = &bytes[seen..];
                    *left -= seen;
                    if *left == 0 {
                        self.next = LENGTH;
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, length: usize) -> Result<(), OversizedFrame> {
        self.next = match (self.is_gossip, length) {
            (true, length) if length > FRAME_BYTES_MAX => return Err(OversizedFrame(length)),
            (_, 0) => LENGTH,
            (true, left) => Next::Frame { left },
            (false, left) if left <= LINE_BYTES_MAX => Next::Line { line: Vec::with_capacity(left), left },
            (false, _) => Next::Other,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(content: &[u8]) -> Vec<u8> {
        let (mut length, mut bytes) = (content.len(), Vec::new());
        while length >= 0x80 {
            bytes.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        [&bytes[..], content].concat()
    }

    fn opened(protocol: &str) -> Vec<u8> {
        [framed(NEGOTIATION), framed(format!("{protocol}\n").as_bytes())].concat()
    }

    proptest! {
        /// However the bytes are cut, the first frame that is too large is told, and none before.
        #[test]
        fn the_first_frame_above_the_limit_is_told(
            sizes in proptest::collection::vec(prop_oneof![
                0_usize..300,
                Just(FRAME_BYTES_MAX - 1),
                Just(FRAME_BYTES_MAX),
                Just(FRAME_BYTES_MAX + 1),
                Just(3 * FRAME_BYTES_MAX),
            ], 0..6),
            cut in 1_usize..70_000,
        ) {
            let mut bytes = opened("/kolo/test/gossip/1.2.0");
            sizes.iter().for_each(|size| bytes.extend(framed(&vec![7; *size])));
            let mut watch = FrameWatch::new();
            let told = bytes.chunks(cut).find_map(|part| watch.see(part).err()).map(|error| error.0);
            prop_assert_eq!(told, sizes.into_iter().find(|size| *size > FRAME_BYTES_MAX));
        }

        /// Whatever else a stream is for, its bytes are let through.
        #[test]
        fn what_is_no_gossip_is_let_through(garbage in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let mut watch = FrameWatch::new();
            prop_assert!(watch.see(&opened("/kolo/test/ask/3")).is_ok());
            prop_assert!(watch.see(&[0xff; 40]).is_ok() && watch.see(&garbage).is_ok());
            let mut unnegotiated = FrameWatch::new();
            let _ = unnegotiated.see(&garbage);
        }
    }

    #[test]
    fn a_length_without_end_is_too_large_and_the_error_is_found_inside_others() {
        let mut watch = FrameWatch::new();
        watch.see(&opened("/kolo/test/gossip/1.2.0")).unwrap();
        let error = watch.see(&[0xff; 4]).unwrap_err();
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error));
        assert!(is_oversized_frame(&wrapped));
        assert!(!is_oversized_frame(&io::Error::other("reset")));
    }
}
