//! The command's own streams: two pipes and an input, or a terminal.
//!
//! Invariant: the keeper reads no more than the spools have room for, so that a user who is attached loses nothing.

use std::{
    fs::File,
    io::{self, pipe},
    os::fd::OwnedFd,
    process::Stdio,
    rc::Rc,
    time::{Duration, Instant},
};

use nix::unistd::{Gid, Uid};
use rustix::{
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe::{Receiver, Sender},
    time::timeout,
};

use super::state::{Keeper, State, Stop};
use crate::{
    directory::is_disk_full,
    frame::{Output, REASON_BYTES_MAX, TerminalSize},
    order::RunOrder,
    spool::APPEND_BYTES_MAX,
};

/// How often somebody who holds the outputs up is looked at.
const HELD_TICK: Duration = Duration::from_secs(1);
/// What a terminal reads as the end of its input.
const END_OF_INPUT: u8 = 4;

/// The ends that the keeper has.
#[derive(Debug)]
pub struct Streams {
    outputs: Vec<(Output, OwnedFd)>,
    input: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
}

/// The ends that the command gets.
#[derive(Debug)]
pub struct Given {
    /// Its standard input.
    pub stdin: Stdio,
    /// Its standard output.
    pub stdout: Stdio,
    /// Its standard error.
    pub stderr: Stdio,
}

/// Makes what the order wants, a terminal for `owner`.
pub fn make(order: &RunOrder, owner: Option<(Uid, Gid)>) -> io::Result<(Streams, Given)> {
    if let Some(size) = order.terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        tcsetwinsize(&ours, winsize(size))?;
        let theirs = File::from(ioctl_tiocgptpeer(&ours, flags)?);
        if let Some((uid, gid)) = owner {
            nix::unistd::fchown(&theirs, Some(uid), Some(gid))?;
        }
        let given =
            Given { stdin: theirs.try_clone()?.into(), stdout: theirs.try_clone()?.into(), stderr: theirs.into() };
        rustix::io::ioctl_fionbio(&ours, true)?;
        let outputs = vec![(Output::Stdout, ours.try_clone()?)];
        return Ok((Streams { outputs, input: Some(ours.try_clone()?), terminal: Some(ours) }, given));
    }
    let (stdout, stdout_given) = pipe()?;
    let (stderr, stderr_given) = pipe()?;
    let (input, stdin) = if order.has_stdin {
        let (given, ours) = pipe()?;
        (Some(ours.into()), given.into())
    } else {
        (None, Stdio::null())
    };
    let outputs = vec![(Output::Stdout, stdout.into()), (Output::Stderr, stderr.into())];
    Ok((
        Streams { outputs, input, terminal: None },
        Given { stdin, stdout: stdout_given.into(), stderr: stderr_given.into() },
    ))
}

fn winsize(size: TerminalSize) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Streams {
    /// What was complained of until now by who has ended, as far as it is short.
    pub fn complaints(&self) -> String {
        let mut said = vec![0; REASON_BYTES_MAX];
        let mut read = |output: &OwnedFd| {
            rustix::io::ioctl_fionbio(output, true)?;
            rustix::io::read(output, &mut *said)
        };
        // Nothing, or one who goes on and says nothing.
        let count = self.outputs.last().map_or(Ok(0), |(_, output)| read(output)).unwrap_or(0);
        String::from_utf8_lossy(&said[..count]).trim().to_owned()
    }

    /// Copies everything until the command's outputs are closed. The input and the terminal are served meanwhile.
    pub async fn copy(self, keeper: Rc<Keeper>) {
        let is_terminal = self.terminal.is_some();
        let mut readers = Vec::new();
        for (output, from) in self.outputs {
            readers.push(tokio::task::spawn_local(read(keeper.clone(), output, from)));
        }
        let mut served = Vec::new();
        match self.input {
            Some(input) => served.push(tokio::task::spawn_local(write(keeper.clone(), input, is_terminal))),
            None => keeper.change(|state| state.input.close()),
        }
        if let Some(terminal) = self.terminal {
            served.push(tokio::task::spawn_local(resize(keeper.clone(), terminal)));
        }
        for reader in readers {
            // A reader does not panic; if it did, its output would end here.
            let _ = reader.await;
        }
        served.into_iter().for_each(|task| task.abort());
        keeper.change(|state| state.input.close());
    }
}

async fn read(keeper: Rc<Keeper>, output: Output, from: OwnedFd) {
    let Err(error) = try_read(&keeper, output, from).await else { return };
    // A terminal that nobody has open any more.
    if error.raw_os_error() == Some(nix::libc::EIO) {
        return;
    }
    let what = if is_disk_full(&error) {
        "the disk of the site is full, and takes no more of its output"
    } else {
        "its output cannot be kept"
    };
    let broken = Stop::Broken(format!("{what}: {error}"));
    keeper.change(|state| {
        state.stop.get_or_insert(broken);
    });
}

async fn try_read(keeper: &Keeper, output: Output, from: OwnedFd) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&from, true)?;
    let mut from = Receiver::from_owned_fd_unchecked(from)?;
    let mut buffer = vec![0; APPEND_BYTES_MAX];
    loop {
        let has_room = |state: &mut State| Some(state.room(output, Instant::now())).filter(|room| *room > 0);
        let Ok(room) = timeout(HELD_TICK, keeper.until(has_room)).await else { continue };
        let most = usize::try_from(room).unwrap_or(usize::MAX).min(buffer.len());
        let count = from.read(&mut buffer[..most]).await?;
        if count == 0 {
            return Ok(());
        }
        keeper.change(|state| state.spools[output as usize].append(&buffer[..count]))?;
    }
}

/// Gives the command what the user sends. That it takes no more is no error.
async fn write(keeper: Rc<Keeper>, to: OwnedFd, is_terminal: bool) {
    let _ = try_write(&keeper, to, is_terminal).await;
    keeper.change(|state| state.input.close());
}

async fn try_write(keeper: &Keeper, to: OwnedFd, is_terminal: bool) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&to, true)?;
    let mut to = Sender::from_owned_fd_unchecked(to)?;
    loop {
        let next = |state: &mut State| match state.input.waiting.pop_front() {
            Some(piece) => Some(Some(piece)),
            None => state.input.is_ended.then_some(None),
        };
        let Some(piece) = keeper.until(next).await else { break };
        to.write_all(&piece).await?;
        keeper.change(|state| state.input.given += piece.len() as u64);
    }
    if is_terminal { to.write_all(&[END_OF_INPUT]).await } else { Ok(()) }
}

/// Gives the command's terminal the size of the user's.
async fn resize(keeper: Rc<Keeper>, terminal: OwnedFd) {
    loop {
        let size = keeper.until(|state| state.terminal.take()).await;
        // A size that the system does not take leaves the old one.
        let _ = tcsetwinsize(&terminal, winsize(size));
    }
}
