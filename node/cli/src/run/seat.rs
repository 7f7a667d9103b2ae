//! One seat of a run, as its user's command line sees it: talks with the keeper, and comes back to it after a cut.
//!
//! Invariants: every byte of output is printed once, in order, and what is missing is named; input that the keeper has not acknowledged is kept,
//! at most [`STDIN_BYTES_AHEAD_MAX`] bytes; a cut has its time, after which the end of the run is unknown.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use data_encoding::HEXLOWER;
use kolo_runtime::clock::unix_time;
use kolo_seat::{
    frame::{
        DATA_BYTES_MAX, Data, End, Frame, FrameError, FrameReader, FromKeeper, Output, STDIN_BYTES_AHEAD_MAX,
        TerminalSize, ToKeeper, encode,
    },
    opening::{FromUser, Wish},
};
use kolo_trust::{TrustFileError, UserKey, random_bytes};
use tokio::{
    io::{AsyncRead, AsyncWriteExt as _},
    sync::mpsc,
    task::{self, JoinHandle},
    time::{self, Instant},
};

use super::{
    connection::{self, NoStream, Stream},
    each::Each,
    input::{Chunk, UserInput},
    job::{SIGKILL, SIGTERM},
    printer::Printer,
};
use crate::client::Client;

/// How long a run that was started is looked for after a cut.
pub const CUT_MAX: Duration = Duration::from_secs(120);
/// How long a seat may take to be reached at first: the node called may have just been started. What is to start waits less, at its barrier.
const FIRST_MAX: Duration = Duration::from_secs(60);
/// The first pause before the next try; each is twice the one before.
pub const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// The longest pause.
pub const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A keeper that says nothing for so long is asked anew; it gives a sign of life far more often.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Output is acknowledged when so much has come.
const ACKNOWLEDGE_BYTES: u64 = 256 << 10;
/// Most pieces of input that are kept.
const CHUNKS_MAX: usize = 1024;
/// A stream that was cut sooner does not count as having worked.
pub const WORKED: Duration = Duration::from_secs(5);
/// Frames that wait to be sent.
const QUEUE: usize = 64;
/// Places in that queue that input leaves to everything else.
const QUEUE_KEPT: usize = 16;
/// How long the last frame may take.
const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// No run says or hears more bytes.
const OFFSET_MAX: u64 = u64::MAX / 4;

/// What a seat tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It waits for the others.
    Ready,
    /// Its command runs.
    Started,
    /// Its run is over.
    Ended(End),
    /// It could not be made ready; nothing has run.
    NotReady(String),
    /// What became of its run is not known.
    Unknown(String),
    /// The user does not read its output any more.
    Unread,
    /// All of the log that there is was printed.
    Printed,
}

/// What a seat is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tell {
    /// All are ready.
    Go,
    /// Send the command a signal.
    Signal(i32),
    /// The user's terminal has this size.
    Resize(TerminalSize),
}

/// Random words, so that no two orders are the same.
///
/// # Errors
/// When the operating system has none.
pub fn nonce() -> Result<String, TrustFileError> {
    Ok(HEXLOWER.encode(&random_bytes::<16>()?))
}

/// Who signs what is wanted of seats.
#[derive(Clone)]
pub enum Opener {
    /// The user.
    Key(UserKey),
    /// The node, for its operator.
    Node,
}

impl Opener {
    /// What is handed to the node, valid from now on.
    ///
    /// # Errors
    /// When it is too large to be signed.
    pub fn wanted(&self, wish: &Wish) -> Result<FromUser, NoStream> {
        let now = unix_time();
        let wish = wish.clone().issued(now);
        let refused = |error: &dyn std::fmt::Display| NoStream::Refused(error.to_string());
        match self {
            Opener::Node => FromUser::plain(&wish).map_err(|error| refused(&error)),
            Opener::Key(key) => wish.sign(key).map(FromUser::Signed).map_err(|error| refused(&error)),
        }
    }
}

/// A seat, and what it needs.
pub struct Seat {
    pub client: Client,
    pub opener: Opener,
    pub rank: u32,
    pub wish: Wish,
    pub printer: Arc<Printer>,
    pub news: mpsc::Sender<(u32, News)>,
    pub told: mpsc::Receiver<Tell>,
    pub input: Option<UserInput>,
    /// The lines that it runs, where it runs lines of a file.
    pub each: Option<Arc<Each>>,
    /// Whether the log is followed to the end of the run; else what there is of it is printed.
    pub follows: bool,
    /// Whether the site may forget the run once its end was told.
    pub takes_end: bool,
}

/// What outlasts one stream.
#[derive(Default)]
struct Progress {
    is_released: bool,
    has_started: bool,
    /// Nobody reads the output.
    is_unread: bool,
    /// Bytes of standard output and error that have come.
    have: [u64; 2],
    /// Bytes that were acknowledged.
    acknowledged: [u64; 2],
    input: Input,
    /// The size that the command's terminal was given last; told again after a cut.
    terminal: Option<TerminalSize>,
    /// The last signal by which the command was to end; told again after a cut.
    ending: Option<i32>,
    /// When the last frame came.
    heard: Option<Instant>,
}

impl Progress {
    /// What a keeper is told first on each stream.
    fn first_frames(&self) -> impl Iterator<Item = ToKeeper> {
        let [from_stdout, from_stderr] = self.have;
        let again = [
            self.is_released.then_some(ToKeeper::Go),
            self.terminal.map(ToKeeper::Resize),
            self.ending.map(ToKeeper::Signal),
        ];
        [ToKeeper::Attach { from_stdout, from_stderr }].into_iter().chain(again.into_iter().flatten())
    }

    /// What the keeper is told, noted for when it has to be told again.
    fn pass_on(&mut self, told: Tell) -> ToKeeper {
        match told {
            Tell::Go => {
                self.is_released = true;
                ToKeeper::Go
            }
            Tell::Signal(signal) => {
                // Nothing ends it more surely than that.
                if matches!(signal, SIGTERM | SIGKILL) && self.ending != Some(SIGKILL) {
                    self.ending = Some(signal);
                }
                ToKeeper::Signal(signal)
            }
            Tell::Resize(size) => {
                self.terminal = Some(size);
                ToKeeper::Resize(size)
            }
        }
    }
}

/// Input that the keeper has not acknowledged.
#[derive(Default)]
struct Input {
    kept: VecDeque<Chunk>,
    /// Bytes before what is kept.
    start: u64,
    /// Bytes that were read.
    end: u64,
    has_ended: bool,
}

impl Input {
    fn has_room(&self) -> bool {
        let has_room = self.end - self.start + DATA_BYTES_MAX as u64 <= STDIN_BYTES_AHEAD_MAX;
        !self.has_ended && has_room && self.kept.len() < CHUNKS_MAX
    }

    fn push(&mut self, chunk: Chunk) -> ToKeeper {
        let frame = ToKeeper::Stdin { offset: self.end, data: Data(chunk.to_vec()) };
        self.end += chunk.len() as u64;
        self.kept.push_back(chunk);
        frame
    }

    /// Forgets what the keeper has.
    fn acknowledge(&mut self, offset: u64) {
        if offset > self.end {
            // Another command has sent what is before.
            self.kept.clear();
            (self.start, self.end) = (offset, offset);
        }
        while let Some(first) = self.kept.front().filter(|first| self.start + first.len() as u64 <= offset) {
            self.start += first.len() as u64;
            self.kept.pop_front();
        }
    }

    /// What is to be sent again on a new stream.
    fn again(&self) -> Vec<ToKeeper> {
        let all: Vec<u8> = self.kept.iter().flat_map(|chunk| chunk.iter().copied()).collect();
        let offsets = (self.start..).step_by(DATA_BYTES_MAX);
        let pieces = offsets.zip(all.chunks(DATA_BYTES_MAX));
        let mut frames: Vec<ToKeeper> =
            pieces.map(|(offset, piece)| ToKeeper::Stdin { offset, data: Data(piece.to_vec()) }).collect();
        frames.extend(self.has_ended.then_some(ToKeeper::StdinEnd));
        frames
    }
}

/// How a stream has ended.
enum Talked {
    Ended(End),
    /// All of a log was printed.
    Printed,
    Cut(String),
    /// Nobody listens any more.
    Left,
}

fn no_offset() -> Talked {
    Talked::Cut("the site counts bytes that cannot be".to_owned())
}

impl From<FrameError> for Talked {
    fn from(error: FrameError) -> Talked {
        Talked::Cut(error.to_string())
    }
}

impl Seat {
    /// Talks with the keeper until the run has ended, or is given up.
    pub async fn run(mut self) {
        let mut progress = Progress::default();
        let last = self.follow(&mut progress).await;
        if let Some(last) = last {
            let _ = task::block_in_place(|| match &self.each {
                Some(each) => each.over(&self.printer, self.rank, &last),
                None => self.printer.finish(self.rank),
            });
            self.tell(last).await;
        }
    }

    async fn tell(&self, news: News) {
        // An error says that nobody listens any more.
        let _ = self.news.send((self.rank, news)).await;
    }

    async fn follow(&mut self, progress: &mut Progress) -> Option<News> {
        let (mut since, mut pause) = (Instant::now(), PAUSE_FIRST);
        loop {
            let begun = Instant::now();
            // What has started is come back to, and never ordered again.
            let wish = if progress.has_started { self.wish.again() } else { self.wish.clone() };
            let opened = async { connection::open(&self.client, &self.opener.wanted(&wish)?).await };
            let why = match opened.await {
                Ok(stream) => match self.talk(stream, progress).await {
                    Talked::Ended(end) => return Some(News::Ended(end)),
                    Talked::Printed => return Some(News::Printed),
                    Talked::Left => return None,
                    Talked::Cut(why) => {
                        if let Some(heard) = progress.heard.filter(|heard| *heard >= begun + WORKED) {
                            (since, pause) = (heard, PAUSE_FIRST);
                        }
                        why
                    }
                },
                Err(NoStream::Refused(why)) if progress.is_released => return Some(News::Unknown(why)),
                Err(NoStream::Refused(why)) => return Some(News::NotReady(why)),
                Err(NoStream::NotNow(why)) => why,
            };
            let limit = if progress.is_released { CUT_MAX } else { FIRST_MAX };
            if since.elapsed() >= limit {
                return Some(if progress.is_released { News::Unknown(why) } else { News::NotReady(why) });
            }
            time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Talks over one stream.
    async fn talk(&mut self, stream: Stream, progress: &mut Progress) -> Talked {
        let (read, write) = tokio::io::split(stream);
        let mut reader = FrameReader::new(read);
        let mut writer = Writer::start(write);
        progress.acknowledged = progress.have;
        for frame in progress.first_frames() {
            writer.send(&frame);
        }
        let mut knows_input = false;
        loop {
            let may_read = knows_input && progress.input.has_room() && writer.queue.capacity() > QUEUE_KEPT;
            tokio::select! {
                frame = next_frame(&mut reader) => {
                    let frame = match frame {
                        Ok(frame) => frame,
                        Err(cut) => return cut,
                    };
                    progress.heard = Some(Instant::now());
                    match frame {
                        // All that there was has come before it.
                        FromKeeper::Heartbeat if !self.follows => return Talked::Printed,
                        FromKeeper::Ended(end) => {
                            if self.takes_end {
                                writer.send(&ToKeeper::EndSeen);
                            }
                            writer.finish().await;
                            return Talked::Ended(end);
                        }
                        FromKeeper::StdinAck { offset } if offset > OFFSET_MAX => return no_offset(),
                        FromKeeper::StdinAck { offset } => {
                            progress.input.acknowledge(offset);
                            if !std::mem::replace(&mut knows_input, true) {
                                let _ = progress.input.again().iter().all(|frame| writer.send(frame));
                            }
                        }
                        frame => {
                            match self.take(frame, progress, &writer).await {
                                Ok(()) => {}
                                Err(Talked::Left) => return self.leave(writer).await,
                                Err(cut) => return cut,
                            }
                        }
                    }
                }
                told = self.told.recv() => {
                    let Some(told) = told else { return self.leave(writer).await };
                    writer.send(&progress.pass_on(told));
                }
                chunk = next_chunk(&mut self.input), if may_read => match chunk {
                    Some(chunk) => {
                        writer.send(&progress.input.push(chunk));
                    }
                    None => {
                        progress.input.has_ended = true;
                        writer.send(&ToKeeper::StdinEnd);
                    }
                },
            }
        }
    }

    /// Ends a stream: nobody listens to the seat any more.
    async fn leave(&self, mut writer: Writer) -> Talked {
        if self.each.is_some() {
            // Nobody gives it lines any more.
            writer.send(&ToKeeper::StdinEnd);
        }
        writer.finish().await;
        Talked::Left
    }

    /// Prints output. What the seat is told is passed on meanwhile: whoever reads the output may take his time.
    async fn print(
        &mut self,
        output: Output,
        data: Vec<u8>,
        (progress, writer): (&mut Progress, &Writer),
    ) -> Result<io::Result<()>, Talked> {
        let (printer, each, rank) = (Arc::clone(&self.printer), self.each.clone(), self.rank);
        let mut printed = task::spawn_blocking(move || match each {
            Some(each) => each.take(&printer, rank, output, &data),
            None => printer.print(rank, output, &data),
        });
        loop {
            tokio::select! {
                printed = &mut printed => return Ok(printed.unwrap_or_else(|error| Err(io::Error::other(error)))),
                told = self.told.recv() => {
                    let told = told.ok_or(Talked::Left)?;
                    writer.send(&progress.pass_on(told));
                }
            }
        }
    }

    /// Takes a frame about the run or its output.
    async fn take(&mut self, frame: FromKeeper, progress: &mut Progress, writer: &Writer) -> Result<(), Talked> {
        match frame {
            FromKeeper::Ready if !progress.is_released => self.tell(News::Ready).await,
            FromKeeper::Started { .. } if !progress.has_started => {
                (progress.has_started, progress.is_released) = (true, true);
                self.tell(News::Started).await;
            }
            FromKeeper::Output { output, offset, data } => {
                let have = progress.have[output as usize];
                let known = usize::try_from(have.saturating_sub(offset)).unwrap_or(usize::MAX);
                if offset > have {
                    return Err(Talked::Cut(format!("output was left out at {have}")));
                }
                let mut new = data.0;
                new.drain(..known.min(new.len()));
                if new.is_empty() {
                    return Ok(());
                }
                progress.have[output as usize] = have + new.len() as u64;
                if !progress.is_unread && self.print(output, new, (&mut *progress, writer)).await?.is_err() {
                    progress.is_unread = true;
                    self.tell(News::Unread).await;
                }
                let [stdout, stderr] = progress.have;
                let is_due = stdout + stderr - progress.acknowledged.iter().sum::<u64>() >= ACKNOWLEDGE_BYTES;
                if is_due && writer.send(&ToKeeper::Acknowledge { stdout, stderr }) {
                    progress.acknowledged = progress.have;
                }
            }
            FromKeeper::Gap { from, to, .. } if from > to || to > OFFSET_MAX => return Err(no_offset()),
            FromKeeper::Gap { output, from, to } if to > progress.have[output as usize] => {
                let name = if output == Output::Stdout { "standard output" } else { "standard error" };
                let missing = to - from.max(progress.have[output as usize]);
                self.printer.remark(&format!("[{}] {missing} bytes of {name} were not kept by the site", self.rank));
                progress.have[output as usize] = to;
            }
            _ => {}
        }
        Ok(())
    }
}

/// The next frame of the keeper; else why the talk is over.
async fn next_frame<R: AsyncRead + Unpin>(reader: &mut FrameReader<R>) -> Result<FromKeeper, Talked> {
    match time::timeout(SILENCE_MAX, reader.next()).await {
        Ok(Ok(Some(frame))) => Ok(frame),
        Ok(Ok(None)) => Err(Talked::Cut("the site has closed the stream".to_owned())),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Talked::Cut("the site is silent".to_owned())),
    }
}

/// The next piece of the input; never, where there is none.
async fn next_chunk(input: &mut Option<UserInput>) -> Option<Chunk> {
    match input {
        Some(input) => input.next().await,
        None => std::future::pending().await,
    }
}

/// Sends frames on a task of its own, so that a keeper that does not read holds up no output.
struct Writer {
    queue: mpsc::Sender<Vec<u8>>,
    task: JoinHandle<io::Result<()>>,
}

impl Writer {
    fn start(mut to: tokio::io::WriteHalf<Stream>) -> Writer {
        let (queue, mut frames) = mpsc::channel::<Vec<u8>>(QUEUE);
        let task = tokio::spawn(async move {
            while let Some(frame) = frames.recv().await {
                to.write_all(&frame).await?;
                if frames.is_empty() {
                    to.flush().await?;
                }
            }
            to.shutdown().await
        });
        Writer { queue, task }
    }

    /// Queues a frame; false without room: then the keeper has not read for long.
    fn send(&self, frame: &impl Frame) -> bool {
        encode(frame).is_ok_and(|bytes| self.queue.try_send(bytes).is_ok())
    }

    /// Waits until everything has left.
    async fn finish(&mut self) {
        let (closed, _) = mpsc::channel(1);
        self.queue = closed;
        let _ = time::timeout(FAREWELL_MAX, &mut self.task).await;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(frames: &[ToKeeper]) -> Vec<(u64, usize)> {
        let of = |frame: &ToKeeper| match frame {
            ToKeeper::Stdin { offset, data } => (*offset, data.0.len()),
            _ => (u64::MAX, 0),
        };
        frames.iter().map(of).collect()
    }

    #[test]
    fn input_is_kept_until_it_is_acknowledged_and_sent_again_in_whole_frames() {
        let mut input = Input::default();
        for _ in 0..10 {
            input.push(Chunk::from(&[7_u8; 10_000][..]));
        }
        assert_eq!(bytes(&input.again()), [(0, 65_536), (65_536, 34_464)]);
        // Half of a piece was taken: it is sent whole again, and the keeper leaves out what it has.
        input.acknowledge(25_000);
        input.has_ended = true;
        assert_eq!(bytes(&input.again()), [(20_000, 65_536), (85_536, 14_464), (u64::MAX, 0)]);
        input.acknowledge(100_000);
        assert_eq!((bytes(&input.again()), input.kept.len()), (vec![(u64::MAX, 0)], 0));
    }

    #[test]
    fn what_is_to_end_a_command_is_kept_for_the_next_stream() {
        let mut progress = Progress::default();
        for (signal, kept) in [(2, None), (SIGTERM, Some(SIGTERM)), (SIGKILL, Some(SIGKILL)), (SIGTERM, Some(SIGKILL))]
        {
            progress.pass_on(Tell::Signal(signal));
            let told = progress.first_frames().last();
            assert_eq!(told.filter(|told| matches!(told, ToKeeper::Signal(_))), kept.map(ToKeeper::Signal));
        }
    }

    #[test]
    fn no_more_input_is_taken_than_may_be_ahead() {
        let mut input = Input::default();
        while input.has_room() {
            input.push(Chunk::from(&[7_u8; DATA_BYTES_MAX][..]));
        }
        assert_eq!(input.end, STDIN_BYTES_AHEAD_MAX);
        input.acknowledge(DATA_BYTES_MAX as u64);
        assert!(input.has_room());
        let mut small = Input::default();
        while small.has_room() {
            small.push(Chunk::from(&b"x"[..]));
        }
        assert_eq!(small.kept.len(), CHUNKS_MAX);
    }
}
