//! The frames between a user and the keeper of a seat: `length (4, big endian) | body`, in both directions of one stream.
//!
//! Output and input are numbered by the byte, so that a stream that breaks goes on where it was. Invariants: no frame is longer than
//! [`FRAME_BYTES_MAX`], and its length is looked at before anything of it is kept; a stream that ends without an [`End`] says nothing of the
//! command, in particular not that it succeeded.

use std::{fmt, io};

use discovery::wire::{self, DecodeError};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Most bytes of output or input in one frame.
pub const DATA_BYTES_MAX: usize = 64 * 1024;
/// Longest reason for people, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;
/// Longest body: the data, and what stands around it.
pub const FRAME_BYTES_MAX: usize = DATA_BYTES_MAX + 64;
/// How much input may be on its way: a user sends no byte further than this beyond what the keeper has acknowledged.
pub const STDIN_BYTES_AHEAD_MAX: u64 = 256 * 1024;
/// How much output may be on its way: a keeper sends no byte further than this beyond what the user has acknowledged.
pub const OUTPUT_BYTES_AHEAD_MAX: u64 = 4 * 1024 * 1024;
/// Bytes that stand before a body.
const LENGTH_BYTES: usize = 4;

/// Bytes of a stream; written whole, not number by number.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Data(pub Vec<u8>);

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Data, D::Error> {
        struct Whole;
        impl serde::de::Visitor<'_> for Whole {
            type Value = Data;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Data, E> {
                Ok(Data(bytes.to_vec()))
            }
            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Data, E> {
                Ok(Data(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Whole)
    }
}

/// Which output. A terminal has the first only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Output {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a run ended, as its site knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The command ended by itself, with this code.
    Code(i32),
    /// A signal ended it that was none of the following.
    Signal(i32),
    /// It was ended for wanting more memory than the seat has.
    OutOfMemory,
    /// The window of the seat was over.
    WindowEnded,
    /// The owner of the machine ended it, and said this.
    Owner(String),
    /// The site could not run it, for this reason: nothing of it has run.
    Failed(String),
    /// It was started, and what became of it is lost with its keeper. It is not run again.
    Lost,
    /// It was started, and the site could not go on with it, for this reason.
    Broken(String),
}

/// What a keeper sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromKeeper {
    /// Everything is prepared; the command starts with [`ToKeeper::Go`].
    Ready,
    /// The command has started, as this process of its machine.
    Started {
        /// The number of the process.
        pid: u32,
    },
    /// A piece of an output.
    Output {
        /// Which one.
        output: Output,
        /// How many bytes of it came before.
        offset: u64,
        /// The piece, at most [`DATA_BYTES_MAX`] bytes.
        data: Data,
    },
    /// The bytes `from..to` of an output are not kept; it goes on at `to`.
    Gap {
        /// Which output.
        output: Output,
        /// The first byte that is missing.
        from: u64,
        /// The first byte after it that is there.
        to: u64,
    },
    /// So much of the input was given to the command; also sent at first, so that a user who comes back knows where to go on.
    StdinAck {
        /// The number of bytes.
        offset: u64,
    },
    /// Everything that is kept was sent so far: said the first time that it is so, and then when nothing happens for a while.
    Heartbeat,
    /// The run is over, and all of its output that is kept was sent. The last frame.
    Ended(End),
}

/// What a user sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToKeeper {
    /// The first frame: from where on the outputs are wanted.
    Attach {
        /// How many bytes of standard output the user has.
        from_stdout: u64,
        /// How many bytes of standard error the user has.
        from_stderr: u64,
    },
    /// All seats are ready: start.
    Go,
    /// A piece of the input.
    Stdin {
        /// How many bytes of it came before.
        offset: u64,
        /// The piece, at most [`DATA_BYTES_MAX`] bytes.
        data: Data,
    },
    /// There is no more input.
    StdinEnd,
    /// Send this signal to the command.
    Signal(i32),
    /// The user's terminal has a new size.
    Resize(TerminalSize),
    /// So much of the outputs has arrived and is not asked for again.
    Acknowledge {
        /// Bytes of standard output.
        stdout: u64,
        /// Bytes of standard error.
        stderr: u64,
    },
    /// The end has arrived; the site may forget the run.
    EndSeen,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// Why a stream cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream itself failed, or ended inside a frame.
    #[error("the stream failed: {0}")]
    Stream(#[from] io::Error),
    /// A frame claims more than [`FRAME_BYTES_MAX`], or what is to be sent is as long.
    #[error("a frame of {0} bytes, at most {FRAME_BYTES_MAX} are accepted")]
    TooLong(usize),
    /// A frame is not one of those that there are.
    #[error("a frame that cannot be read: {0}")]
    Malformed(#[from] DecodeError),
}

/// What travels as frames.
pub trait Frame: Serialize + DeserializeOwned {}
impl Frame for FromKeeper {}
impl Frame for ToKeeper {}

/// The bytes of a frame, with its length before it.
///
/// # Errors
/// [`FrameError::TooLong`] when it holds more than a frame may.
pub fn encode<F: Frame>(frame: &F) -> Result<Vec<u8>, FrameError> {
    let body = wire::encode(frame).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= FRAME_BYTES_MAX);
    let length = length.ok_or(FrameError::TooLong(body.len()))?;
    Ok([&length.to_be_bytes()[..], &body].concat())
}

/// The frame that `bytes` begin with, and how many bytes it has; none while they are only its beginning.
///
/// # Errors
/// [`FrameError::TooLong`] or [`FrameError::Malformed`]; the stream cannot go on.
pub fn decode<F: Frame>(bytes: &[u8]) -> Result<Option<(F, usize)>, FrameError> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(length));
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    Ok(Some((wire::decode::<F, FRAME_BYTES_MAX>(body)?, LENGTH_BYTES + length)))
}

/// Reads frames from a stream. A read that is given up half-way loses nothing.
#[derive(Debug)]
pub struct FrameReader<R> {
    stream: R,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were read as frames.
    taken: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads from `stream`.
    pub fn new(stream: R) -> FrameReader<R> {
        FrameReader { stream, buffer: Vec::new(), taken: 0 }
    }

    /// The next frame; none when the stream ended behind the last one.
    ///
    /// # Errors
    /// [`FrameError`], after which nothing can be read any more.
    pub async fn next<F: Frame>(&mut self) -> Result<Option<F>, FrameError> {
        loop {
            if let Some((frame, length)) = decode(&self.buffer[self.taken..])? {
                self.taken += length;
                return Ok(Some(frame));
            }
            self.buffer.drain(..self.taken);
            self.taken = 0;
            self.buffer.reserve(DATA_BYTES_MAX);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                let is_between = self.buffer.is_empty();
                return if is_between { Ok(None) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) };
            }
        }
    }
}

/// A reason for people, cut to what a frame may hold.
#[must_use]
pub fn reason(text: &str) -> String {
    text[..text.floor_char_boundary(REASON_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn from_keeper() -> Vec<FromKeeper> {
        let ends = [
            End::Code(3),
            End::Signal(9),
            End::OutOfMemory,
            End::WindowEnded,
            End::Owner("no".to_owned()),
            End::Failed("no".to_owned()),
            End::Lost,
            End::Broken("no".to_owned()),
        ];
        let output = Output::Stderr;
        let others = [
            FromKeeper::Ready,
            FromKeeper::Started { pid: 70_000 },
            FromKeeper::Output { output: Output::Stdout, offset: 300, data: Data(b"ab".to_vec()) },
            FromKeeper::Gap { output, from: 65_536, to: 70_000 },
            FromKeeper::StdinAck { offset: 5 },
            FromKeeper::Heartbeat,
        ];
        others.into_iter().chain(ends.map(FromKeeper::Ended)).collect()
    }

    fn to_keeper() -> Vec<ToKeeper> {
        vec![
            ToKeeper::Attach { from_stdout: 1, from_stderr: 300 },
            ToKeeper::Go,
            ToKeeper::Stdin { offset: 2, data: Data(b"x".to_vec()) },
            ToKeeper::StdinEnd,
            ToKeeper::Signal(15),
            ToKeeper::Resize(TerminalSize { rows: 24, columns: 300 }),
            ToKeeper::Acknowledge { stdout: 9, stderr: 0 },
            ToKeeper::EndSeen,
        ]
    }

    fn bytes_of<F: Frame + fmt::Debug>(frames: &[F]) -> String {
        let line = |frame: &F| format!("{frame:?}: {}\n", encode(frame).unwrap().escape_ascii());
        frames.iter().map(line).collect()
    }

    #[test]
    fn the_bytes_are_those_that_other_versions_read() {
        expect![[r#"
            Ready: \x00\x00\x00\x01\x00
            Started { pid: 70000 }: \x00\x00\x00\x06\x01\xfcp\x11\x01\x00
            Output { output: Stdout, offset: 300, data: b"ab" }: \x00\x00\x00\x08\x02\x00\xfb,\x01\x02ab
            Gap { output: Stderr, from: 65536, to: 70000 }: \x00\x00\x00\x0c\x03\x01\xfc\x00\x00\x01\x00\xfcp\x11\x01\x00
            StdinAck { offset: 5 }: \x00\x00\x00\x02\x04\x05
            Heartbeat: \x00\x00\x00\x01\x05
            Ended(Code(3)): \x00\x00\x00\x03\x06\x00\x06
            Ended(Signal(9)): \x00\x00\x00\x03\x06\x01\x12
            Ended(OutOfMemory): \x00\x00\x00\x02\x06\x02
            Ended(WindowEnded): \x00\x00\x00\x02\x06\x03
            Ended(Owner("no")): \x00\x00\x00\x05\x06\x04\x02no
            Ended(Failed("no")): \x00\x00\x00\x05\x06\x05\x02no
            Ended(Lost): \x00\x00\x00\x02\x06\x06
            Ended(Broken("no")): \x00\x00\x00\x05\x06\x07\x02no
            Attach { from_stdout: 1, from_stderr: 300 }: \x00\x00\x00\x05\x00\x01\xfb,\x01
            Go: \x00\x00\x00\x01\x01
            Stdin { offset: 2, data: b"x" }: \x00\x00\x00\x04\x02\x02\x01x
            StdinEnd: \x00\x00\x00\x01\x03
            Signal(15): \x00\x00\x00\x02\x04\x1e
            Resize(TerminalSize { rows: 24, columns: 300 }): \x00\x00\x00\x05\x05\x18\xfb,\x01
            Acknowledge { stdout: 9, stderr: 0 }: \x00\x00\x00\x03\x06\t\x00
            EndSeen: \x00\x00\x00\x01\x07
        "#]]
        .assert_eq(&(bytes_of(&from_keeper()) + &bytes_of(&to_keeper())));
    }

    #[tokio::test]
    async fn frames_come_out_as_they_went_in_however_the_stream_is_cut() {
        let frames = from_keeper();
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| encode(frame).unwrap()).collect();
        for piece in [1, 2, 7, bytes.len()] {
            let mut stream = tokio_test_stream(&bytes, piece);
            let mut reader = FrameReader::new(&mut stream);
            for frame in &frames {
                assert_eq!(reader.next::<FromKeeper>().await.unwrap().as_ref(), Some(frame));
            }
            assert!(reader.next::<FromKeeper>().await.unwrap().is_none());
        }
    }

    /// A stream that gives `piece` bytes at a time.
    fn tokio_test_stream(bytes: &[u8], piece: usize) -> impl AsyncRead + Unpin {
        struct Pieces(Vec<u8>, usize);
        impl AsyncRead for Pieces {
            fn poll_read(
                mut self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
                buffer: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                let count = self.1.min(self.0.len()).min(buffer.remaining());
                buffer.put_slice(&self.0.drain(..count).collect::<Vec<u8>>());
                std::task::Poll::Ready(Ok(()))
            }
        }
        Pieces(bytes.to_vec(), piece)
    }

    #[tokio::test]
    async fn what_is_no_frame_is_refused_before_it_is_kept() {
        let huge = [&u32::MAX.to_be_bytes()[..], &[0; 64]].concat();
        assert!(matches!(decode::<ToKeeper>(&huge), Err(FrameError::TooLong(_))));
        assert!(matches!(decode::<ToKeeper>(&[0, 0, 0, 1, 99]), Err(FrameError::Malformed(_))));
        assert!(matches!(decode::<ToKeeper>(&[0, 0, 0, 2, 1, 1]), Err(FrameError::Malformed(_))), "a byte too many");
        let too_long = ToKeeper::Stdin { offset: 0, data: Data(vec![0; FRAME_BYTES_MAX]) };
        assert!(matches!(encode(&too_long), Err(FrameError::TooLong(_))));
        let cut = &encode(&ToKeeper::Signal(15)).unwrap()[..5];
        let ended = FrameReader::new(cut).next::<ToKeeper>().await;
        assert!(matches!(ended, Err(FrameError::Stream(_))));
    }

    #[test]
    fn the_largest_pieces_fit_and_reasons_are_cut_between_characters() {
        let offset = u64::MAX;
        let data = Data(vec![7; DATA_BYTES_MAX]);
        assert!(encode(&FromKeeper::Output { output: Output::Stderr, offset, data: data.clone() }).is_ok());
        assert!(encode(&ToKeeper::Stdin { offset, data }).is_ok());
        let cut = reason(&"ä".repeat(REASON_BYTES_MAX));
        assert_eq!(cut.len(), REASON_BYTES_MAX);
        assert_eq!(reason(&format!("x{cut}")).len(), REASON_BYTES_MAX - 1);
    }
}
