//! One user at a keeper: from where he was, everything that is kept, and the end.
//!
//! Invariants: he is sent each byte once and in order, with the gaps named; at most [`OUTPUT_BYTES_AHEAD_MAX`] beyond what he has
//! acknowledged; and the end after everything else. What he sends is hostile until it is read as a frame that makes sense now.

use std::{pin::pin, rc::Rc, time::Duration};

use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

use super::{
    owner, process,
    state::{InputError, Keeper, Phase, State, Stop},
};
use crate::frame::{
    DATA_BYTES_MAX, Data, FrameError, FrameReader, FromKeeper, OUTPUT_BYTES_AHEAD_MAX, Output, ToKeeper, encode,
};
use crate::spool::Kept;

/// Most users who are attached at a time.
const CONNECTIONS_MAX: usize = 8;
/// Most other connections: those of the node, and those that have not named their kind.
const UNATTACHED_MAX: usize = 16;
/// A user who has acknowledged enough hears something at least this often.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long the first frame, and the last one, may take.
const GREETING_MAX: Duration = Duration::from_secs(30);
/// How long what a user has said is read when he hears nothing any more.
const GONE_MAX: Duration = Duration::from_secs(5);
/// The first byte of a connection of a user; the node writes it, and carries the user's bytes after it.
pub const OF_USER: u8 = b'u';
/// The first byte of the node's own word.
pub const OF_OWNER: u8 = b'o';

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The stream cannot go on.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The stream cannot go on.
    #[error(transparent)]
    Stream(#[from] std::io::Error),
    /// Input that does not follow.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A frame that has no sense now.
    #[error("{0}")]
    Order(&'static str),
}

/// Serves a connection until it ends. Users have places of their own: however many they are, the node is heard.
pub async fn serve(keeper: Rc<Keeper>, stream: UnixStream) -> Result<(), ConnectionError> {
    if keeper.unattached.get() >= UNATTACHED_MAX {
        return Err(ConnectionError::Order("too many at once"));
    }
    keeper.unattached.set(keeper.unattached.get() + 1);
    let of_user = timeout(GREETING_MAX, greet(&keeper, stream)).await;
    keeper.unattached.set(keeper.unattached.get() - 1);
    let Some(stream) = of_user.map_err(|_| ConnectionError::Order("nothing came"))?? else { return Ok(()) };
    if keeper.attached.get() >= CONNECTIONS_MAX {
        return Err(ConnectionError::Order("as many users are attached as may be"));
    }
    keeper.attached.set(keeper.attached.get() + 1);
    let served = serve_user(keeper.clone(), stream).await;
    keeper.attached.set(keeper.attached.get() - 1);
    served
}

/// Hears the node, or gives back the connection of a user.
async fn greet(keeper: &Keeper, mut stream: UnixStream) -> Result<Option<UnixStream>, ConnectionError> {
    match stream.read_u8().await? {
        OF_USER => Ok(Some(stream)),
        OF_OWNER => Ok(owner::serve(keeper, stream).await.map(|()| None)?),
        _ => Err(ConnectionError::Order("neither a user nor the node")),
    }
}

async fn serve_user(keeper: Rc<Keeper>, stream: UnixStream) -> Result<(), ConnectionError> {
    let (read, write) = stream.into_split();
    let mut frames = FrameReader::new(read);
    let first = timeout(GREETING_MAX, frames.next()).await.map_err(|_| ConnectionError::Order("nothing came"))??;
    let from = match first {
        Some(ToKeeper::Attach { from_stdout, from_stderr }) => [from_stdout, from_stderr],
        Some(_) => return Err(ConnectionError::Order("the first frame is not where to go on")),
        None => return Ok(()),
    };
    let number = keeper.change(|state| {
        let from = std::array::from_fn(|index| from[index].min(state.spools[index].end()));
        state.attach(from)
    });
    let attached = Attached { keeper, number };
    let mut listen = pin!(attached.listen(frames));
    let told = tokio::select! {
        listened = &mut listen => return listened,
        told = attached.tell(write, from) => told,
    };
    // He is gone; what he has said before holds, such as the word to start.
    timeout(GONE_MAX, listen).await.unwrap_or(told)
}

/// A user who holds what he has not acknowledged, until this goes.
struct Attached {
    keeper: Rc<Keeper>,
    number: u64,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.keeper.change(|state| state.detach(self.number));
    }
}

impl Attached {
    async fn listen(&self, mut frames: FrameReader<OwnedReadHalf>) -> Result<(), ConnectionError> {
        while let Some(frame) = frames.next().await? {
            match frame {
                ToKeeper::Attach { .. } => return Err(ConnectionError::Order("attached already")),
                ToKeeper::Go => self.keeper.change(|state| state.may_start |= state.stop.is_none()),
                ToKeeper::Stdin { offset, data } => self.keeper.change(|state| state.input.take(offset, data.0))?,
                ToKeeper::StdinEnd => self.keeper.change(|state| state.input.is_ended = true),
                ToKeeper::Signal(number) => self.signal(number)?,
                ToKeeper::Resize(size) => self.keeper.change(|state| state.terminal = Some(size)),
                ToKeeper::Acknowledge { stdout, stderr } => {
                    self.keeper.change(|state| state.acknowledge(self.number, [stdout, stderr]));
                }
                ToKeeper::EndSeen => {
                    let is_over = self.keeper.change(|state| {
                        state.is_seen = matches!(state.phase, Phase::Ended(_));
                        state.is_seen
                    });
                    return if is_over { Ok(()) } else { Err(ConnectionError::Order("it has not ended")) };
                }
            }
        }
        Ok(())
    }

    fn signal(&self, number: i32) -> Result<(), ConnectionError> {
        let signal = Signal::try_from(number).map_err(|_| ConnectionError::Order("there is no such signal"))?;
        let (phase, may_start) = {
            let state = self.keeper.state();
            (state.phase.clone(), state.may_start)
        };
        match phase {
            Phase::Running { pid } => process::send(&self.keeper, pid, signal),
            Phase::Preparing | Phase::Ready if !may_start && matches!(signal, Signal::SIGTERM | Signal::SIGKILL) => {
                self.keeper.change(|state| {
                    state.stop.get_or_insert(Stop::User);
                });
            }
            _ => {}
        }
        Ok(())
    }

    async fn tell(&self, mut stream: OwnedWriteHalf, from: [u64; 2]) -> Result<(), ConnectionError> {
        let mut teller = Teller { sent: from, ..Teller::default() };
        let mut news = self.keeper.news();
        loop {
            news.mark_unchanged();
            let (next, has_all) = {
                let mut state = self.keeper.state();
                (teller.next(&mut state, self.number)?, teller.has_all(&state))
            };
            let frame = match next {
                Some(frame) => frame,
                None if has_all && !std::mem::replace(&mut teller.is_all_told, true) => FromKeeper::Heartbeat,
                None => match timeout(HEARTBEAT, news.changed()).await {
                    Err(_) if has_all => FromKeeper::Heartbeat,
                    // Whoever has more to acknowledge first would take it for the end of what is kept.
                    _ => continue,
                },
            };
            stream.write_all(&encode(&frame)?).await?;
            if matches!(frame, FromKeeper::Ended(_)) {
                // He says that he has it, or goes; `listen` ends this.
                tokio::time::sleep(GREETING_MAX).await;
                return Ok(());
            }
        }
    }
}

/// What one user was told.
#[derive(Debug, Default)]
struct Teller {
    sent: [u64; 2],
    stdin: Option<u64>,
    is_ready_told: bool,
    is_start_told: bool,
    is_all_told: bool,
    /// Which output comes next: one that never ends does not keep the other back.
    turn: usize,
}

impl Teller {
    /// What to tell now; none when there is no news.
    fn next(&mut self, state: &mut State, number: u64) -> std::io::Result<Option<FromKeeper>> {
        let is_ready = matches!(state.phase, Phase::Ready | Phase::Running { .. } | Phase::Ending { .. });
        if is_ready && !std::mem::replace(&mut self.is_ready_told, is_ready) {
            return Ok(Some(FromKeeper::Ready));
        }
        if let Phase::Running { pid } | Phase::Ending { pid } = state.phase
            && !std::mem::replace(&mut self.is_start_told, true)
        {
            return Ok(Some(FromKeeper::Started { pid }));
        }
        if self.stdin != Some(state.input.given) {
            self.stdin = Some(state.input.given);
            return Ok(Some(FromKeeper::StdinAck { offset: state.input.given }));
        }
        for _ in 0..2 {
            let output = [Output::Stdout, Output::Stderr][self.turn];
            self.turn = 1 - self.turn;
            if let Some(frame) = self.next_of(output, state, number)? {
                return Ok(Some(frame));
            }
        }
        match &state.phase {
            Phase::Ended(end) if self.has_all(state) => Ok(Some(FromKeeper::Ended(end.clone()))),
            _ => Ok(None),
        }
    }

    fn next_of(&mut self, output: Output, state: &mut State, number: u64) -> std::io::Result<Option<FromKeeper>> {
        let index = output as usize;
        let offset = self.sent[index];
        let acknowledged = state.acknowledged(number);
        let ahead = offset.saturating_sub(acknowledged[index]);
        let wanted =
            usize::try_from(OUTPUT_BYTES_AHEAD_MAX.saturating_sub(ahead)).unwrap_or(usize::MAX).min(DATA_BYTES_MAX);
        if wanted == 0 {
            return Ok(None);
        }
        Ok(match state.spools[index].read(offset, wanted)? {
            Kept::Data(bytes) => {
                self.sent[index] += bytes.len() as u64;
                Some(FromKeeper::Output { output, offset, data: Data(bytes) })
            }
            Kept::GapTo(to) => {
                // Nobody can acknowledge what he does not get.
                let mut has = acknowledged;
                has[index] = to;
                state.acknowledge(number, has);
                self.sent[index] = to;
                Some(FromKeeper::Gap { output, from: offset, to })
            }
            Kept::Nothing => None,
        })
    }

    fn has_all(&self, state: &State) -> bool {
        self.sent.iter().zip(&state.spools).all(|(sent, spool)| *sent >= spool.end())
    }
}
