//! What a client has started on a channel: a command, a shell, the transfer of files, or a connection from the seat.
//!
//! Invariants: output waits until the client takes it, and so does who writes it; the end is told after all output; what a client leaves behind
//! when it closes a channel is told to end.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use pty_process::{OwnedReadPty, OwnedWritePty, Size};
use russh::{
    ChannelWriteHalf, Sig,
    server::{Handle, Msg},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    process::Child,
    sync::watch,
    time::timeout,
};

use super::{Home, backlog::Backlog, sftp};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 32 << 10;
/// What a terminal reads as the end of its input.
const END_OF_INPUT: u8 = 4;
/// A terminal whose shell has ended is read until nothing has come for so long.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// Bytes between the transfer of files and its channel.
const FILES_BYTES: usize = 256 << 10;
/// The kind of data that is standard error (RFC 4254, 5.2).
const STDERR: u32 = 1;

/// What is to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A command line, by a shell.
    Command(OsString),
    /// A shell to talk with.
    Shell,
    /// The transfer of files.
    Files,
}

/// What the client sees: where output goes, and by whom the end is told.
pub struct Out {
    pub channel: ChannelWriteHalf<Msg>,
    pub session: Handle,
}

/// What runs on a channel.
#[derive(Debug)]
pub struct Work {
    /// What the client sends to it.
    pub input: Backlog,
    group: Option<Pid>,
    size: Option<watch::Sender<Size>>,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.input.close();
        self.signal(Signal::SIGHUP);
    }
}

impl Work {
    /// Starts what is wanted, with a terminal of this size where one is.
    ///
    /// # Errors
    /// When the system does not start it.
    pub fn start(home: &Home, wanted: Wanted, terminal: Option<Size>, out: Out) -> io::Result<Work> {
        let input = backlog(home)?;
        match (wanted, terminal) {
            (Wanted::Files, _) => {
                let (near, far) = tokio::io::duplex(FILES_BYTES);
                tokio::spawn(russh_sftp::server::run(far, sftp::Files::new(&home.directory)));
                tokio::spawn(join(near, input.clone(), out, |out| out.end(None)));
                Ok(Work { input, group: None, size: None })
            }
            (wanted, Some(size)) => Work::start_in_terminal(home, &wanted, size, (input, out)),
            (wanted, None) => Work::start_with_pipes(home, &wanted, (input, out)),
        }
    }

    fn start_with_pipes(home: &Home, wanted: &Wanted, (input, out): (Backlog, Out)) -> io::Result<Work> {
        let shell = shell();
        let mut command = tokio::process::Command::new(shell);
        command.args(arguments(wanted)).env_clear().envs(&home.variables).current_dir(&home.directory);
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(io::Error::other("it has no streams"));
        };
        let (group, fed) = (group_of(&child), tokio::spawn(feed(input.clone(), stdin)));
        let waiting = input.clone();
        tokio::spawn(async move {
            let both = tokio::join!(pour(stdout, &out.channel, None), pour(stderr, &out.channel, Some(STDERR)));
            if both.0.is_err() || both.1.is_err() {
                hang_up(group);
            }
            let status = child.wait().await;
            fed.abort();
            // What nobody takes any more holds up no client.
            waiting.close();
            out.end(status.ok()).await;
        });
        Ok(Work { input, group, size: None })
    }

    fn start_in_terminal(home: &Home, wanted: &Wanted, size: Size, (input, out): (Backlog, Out)) -> io::Result<Work> {
        let (pty, pts) = pty_process::open().map_err(io::Error::other)?;
        pty.resize(size).map_err(io::Error::other)?;
        let command = pty_process::Command::new(shell()).args(arguments(wanted)).env_clear().envs(&home.variables);
        let mut child = command.current_dir(&home.directory).spawn(pts).map_err(io::Error::other)?;
        let group = group_of(&child);
        let (reader, writer) = pty.into_split();
        let (sizes, new_sizes) = watch::channel(size);
        let fed = tokio::spawn(feed_terminal(input.clone(), writer, new_sizes));
        let waiting = input.clone();
        tokio::spawn(async move {
            let (ended, is_ended) = watch::channel(false);
            let waited = async {
                let status = child.wait().await;
                ended.send_replace(true);
                status
            };
            let (poured, status) = tokio::join!(pour_terminal(reader, &out.channel, is_ended, group), waited);
            // A client that is gone is told nothing.
            drop(poured);
            fed.abort();
            // What nobody takes any more holds up no client.
            waiting.close();
            out.end(status.ok()).await;
        });
        Ok(Work { input, group, size: Some(sizes) })
    }

    /// Connects the channel with a stream.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn connected(home: &Home, stream: TcpStream, out: Out) -> io::Result<Work> {
        let input = backlog(home)?;
        tokio::spawn(join(stream, input.clone(), out, Out::close));
        Ok(Work { input, group: None, size: None })
    }

    /// Sends a signal to what was started.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // An error says that nobody is left to be told.
            let _ = killpg(group, signal);
        }
    }

    /// The client's terminal has another size.
    pub fn resize(&self, size: Size) {
        if let Some(sizes) = &self.size {
            sizes.send_replace(size);
        }
    }
}

impl Out {
    /// Tells how it ended; none: as well as can be.
    async fn end(self, status: Option<ExitStatus>) {
        let told = match status.map(|status| (status.code(), status.signal())) {
            Some((None, Some(signal))) => {
                let id = self.channel.id();
                self.session.exit_signal_request(id, name_of(signal), false, String::new(), String::new()).await.ok()
            }
            Some((Some(code), _)) => self.channel.exit_status(u32::try_from(code).unwrap_or(u32::MAX)).await.ok(),
            Some((None, None)) => None,
            None => self.channel.exit_status(0).await.ok(),
        };
        if told.is_some() {
            self.close().await;
        }
    }

    async fn close(self) {
        // A client that is gone is told nothing.
        let _ = self.channel.eof().await;
        let _ = self.channel.close().await;
    }
}

fn backlog(home: &Home) -> io::Result<Backlog> {
    let directory = home.variables.get("TMPDIR").map_or(home.directory.as_path(), |path| Path::new(path));
    Backlog::new(directory)
}

fn shell() -> &'static str {
    if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" }
}

fn arguments(wanted: &Wanted) -> Vec<&OsStr> {
    match wanted {
        Wanted::Command(line) => vec![OsStr::new("-c"), line],
        Wanted::Shell | Wanted::Files => vec![OsStr::new("-l")],
    }
}

fn group_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw)
}

fn hang_up(group: Option<Pid>) {
    if let Some(group) = group {
        let _ = killpg(group, Signal::SIGHUP);
    }
}

/// The name of a signal that has ended a command.
fn name_of(signal: i32) -> Sig {
    let name = Signal::try_from(signal).map_or("TERM", Signal::as_str);
    match name.trim_start_matches("SIG") {
        "ABRT" => Sig::ABRT,
        "ALRM" => Sig::ALRM,
        "FPE" => Sig::FPE,
        "HUP" => Sig::HUP,
        "ILL" => Sig::ILL,
        "INT" => Sig::INT,
        "KILL" => Sig::KILL,
        "PIPE" => Sig::PIPE,
        "QUIT" => Sig::QUIT,
        "SEGV" => Sig::SEGV,
        "TERM" => Sig::TERM,
        "USR1" => Sig::USR1,
        other => Sig::Custom(other.to_owned()),
    }
}

/// Carries both ways of a channel, and then ends it.
async fn join<E: Future<Output = ()>>(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    input: Backlog,
    out: Out,
    end: impl FnOnce(Out) -> E,
) {
    let (reader, writer) = tokio::io::split(stream);
    let fed = tokio::spawn(feed(input, writer));
    let poured = pour(reader, &out.channel, None).await;
    if poured.is_err() {
        fed.abort();
    }
    end(out).await;
}

/// Gives what the client sends to `to`. That it takes no more is no error.
async fn feed(input: Backlog, mut to: impl AsyncWrite + Unpin) {
    while let Ok(piece) = input.take().await {
        if piece.is_empty() || to.write_all(&piece).await.is_err() || to.flush().await.is_err() {
            break;
        }
    }
    input.close();
    let _ = to.shutdown().await;
}

/// The same for a terminal, whose size changes meanwhile.
async fn feed_terminal(input: Backlog, mut to: OwnedWritePty, mut sizes: watch::Receiver<Size>) {
    loop {
        tokio::select! {
            Ok(()) = sizes.changed() => {
                // A size that the system does not take leaves the old one.
                let size = *sizes.borrow_and_update();
                let _ = to.resize(size);
            }
            piece = input.take() => {
                let Ok(piece) = piece else { break };
                let typed = if piece.is_empty() { &[END_OF_INPUT][..] } else { &piece[..] };
                if to.write_all(typed).await.is_err() || piece.is_empty() {
                    break;
                }
            }
        }
    }
    input.close();
    while sizes.changed().await.is_ok() {
        let size = *sizes.borrow_and_update();
        let _ = to.resize(size);
    }
}

/// Gives the client everything that comes from `from`, as fast as he takes it.
async fn pour(
    mut from: impl AsyncRead + Unpin,
    to: &ChannelWriteHalf<Msg>,
    kind: Option<u32>,
) -> Result<(), russh::Error> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        // A stream that fails has ended.
        let count = from.read(&mut piece).await.unwrap_or(0);
        match (count, kind) {
            (0, _) => return Ok(()),
            (_, None) => to.data_bytes(piece[..count].to_vec()).await?,
            (_, Some(kind)) => to.extended_data_bytes(kind, piece[..count].to_vec()).await?,
        }
    }
}

/// The same for a terminal, which others may have open when its shell has ended.
async fn pour_terminal(
    mut from: OwnedReadPty,
    to: &ChannelWriteHalf<Msg>,
    mut is_ended: watch::Receiver<bool>,
    group: Option<Pid>,
) -> Result<(), russh::Error> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = async {
            tokio::select! {
                biased;
                read = from.read(&mut piece) => read.unwrap_or(0),
                () = until(&mut is_ended) => {
                    timeout(LAST_WORDS, from.read(&mut piece)).await.map_or(0, |read| read.unwrap_or(0))
                }
            }
        };
        let count = read.await;
        if count == 0 {
            return Ok(());
        }
        to.data_bytes(piece[..count].to_vec()).await.inspect_err(|_| hang_up(group))?;
    }
}

async fn until(is_ended: &mut watch::Receiver<bool>) {
    // Whoever tells it is there until this ends.
    let _ = is_ended.wait_for(|is_ended| *is_ended).await;
}
