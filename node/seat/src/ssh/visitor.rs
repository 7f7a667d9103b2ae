//! One client of the server: who he is, and what his channels ask for.
//!
//! Invariant: nothing here waits for what was started: a channel that takes nothing holds up no other, until its backlog on disk is full.

use std::{collections::BTreeMap, ffi::OsString, os::unix::ffi::OsStringExt as _, time::Duration};

use nix::sys::signal::Signal;
use pty_process::Size;
use russh::{
    Channel, ChannelId, ChannelOpenFailure, ChannelWriteHalf, Pty, Sig,
    keys::PublicKey,
    server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey},
};
use tokio::{net::TcpStream, time::timeout};

use super::{
    Home, SshError,
    work::{Out, Wanted, Work},
};

/// Most channels at a time.
const CHANNELS_MAX: usize = 64;
/// Most variables that a client sets on a channel, and their longest text in bytes.
const VARIABLES_MAX: usize = 64;
const VARIABLE_BYTES_MAX: usize = 4096;
/// How long a connection from the seat may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Most lines and columns of a terminal.
const SIZE_MAX: u32 = 10_000;

/// What a client is.
pub struct Visitor {
    keys: Vec<PublicKey>,
    home: Home,
    channels: BTreeMap<ChannelId, Slot>,
}

/// A channel of his, which is asked for one thing.
struct Slot {
    out: Option<ChannelWriteHalf<Msg>>,
    variables: BTreeMap<String, String>,
    terminal: Option<Size>,
    work: Option<Work>,
}

impl Visitor {
    /// Somebody who must hold one of these keys.
    pub fn new(keys: Vec<PublicKey>, home: Home) -> Visitor {
        Visitor { keys, home, channels: BTreeMap::new() }
    }

    fn knows(&self, key: &PublicKey) -> Auth {
        let is_known = self.keys.iter().any(|known| known.key_data() == key.key_data());
        if is_known { Auth::Accept } else { Auth::reject() }
    }

    fn has_room(&self) -> bool {
        self.channels.len() < CHANNELS_MAX
    }

    fn open(&mut self, channel: Channel<Msg>) -> ChannelId {
        let id = channel.id();
        // What comes is taken from `Handler::data`; here it would wait in memory.
        let (_, out) = channel.split();
        let slot = Slot { out: Some(out), variables: BTreeMap::new(), terminal: None, work: None };
        self.channels.insert(id, slot);
        id
    }

    fn start(&mut self, id: ChannelId, wanted: Wanted, session: &mut Session) -> Result<(), SshError> {
        let started = self.channels.get_mut(&id).and_then(|slot| {
            let out = Out { channel: slot.out.take()?, session: session.handle() };
            let mut home = self.home.clone();
            home.variables.append(&mut slot.variables);
            Some(Work::start(&home, wanted, slot.terminal, out).map(|work| slot.work = Some(work)))
        });
        match started {
            Some(Ok(())) => session.channel_success(id)?,
            Some(Err(error)) => {
                session.extended_data(id, 1, format!("kolo: it cannot be started: {error}\r\n").into_bytes())?;
                session.channel_failure(id)?;
            }
            None => session.channel_failure(id)?,
        }
        Ok(())
    }

    fn work(&self, id: ChannelId) -> Option<&Work> {
        self.channels.get(&id)?.work.as_ref()
    }
}

fn size(columns: u32, rows: u32) -> Size {
    let cut = |count: u32, usual: u16| match u16::try_from(count.min(SIZE_MAX)) {
        Ok(0) | Err(_) => usual,
        Ok(count) => count,
    };
    Size::new(cut(rows, 24), cut(columns, 80))
}

fn signal_of(signal: &Sig) -> Option<Signal> {
    Some(match signal {
        Sig::ABRT => Signal::SIGABRT,
        Sig::ALRM => Signal::SIGALRM,
        Sig::FPE => Signal::SIGFPE,
        Sig::HUP => Signal::SIGHUP,
        Sig::ILL => Signal::SIGILL,
        Sig::INT => Signal::SIGINT,
        Sig::KILL => Signal::SIGKILL,
        Sig::PIPE => Signal::SIGPIPE,
        Sig::QUIT => Signal::SIGQUIT,
        Sig::SEGV => Signal::SIGSEGV,
        Sig::TERM => Signal::SIGTERM,
        Sig::USR1 => Signal::SIGUSR1,
        Sig::Custom(name) => format!("SIG{name}").parse().ok()?,
    })
}

impl Handler for Visitor {
    type Error = SshError;

    async fn auth_publickey_offered(&mut self, _user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, SshError> {
        Ok(self.knows(offer.public_key))
    }

    async fn auth_publickey(&mut self, _user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, SshError> {
        Ok(self.knows(key.public_key))
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), SshError> {
        if self.has_room() {
            self.open(channel);
            reply.accept().await;
        } else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
        }
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _originator_address: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), SshError> {
        let (Ok(port), true) = (u16::try_from(port), self.has_room()) else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        // It waits here for the connection, and with it the rest of the client; the time for that is short.
        let Ok(Ok(stream)) = timeout(CONNECT_MAX, TcpStream::connect((host, port))).await else {
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        };
        let id = self.open(channel);
        if let Some(slot) = self.channels.get_mut(&id)
            && let Some(channel) = slot.out.take()
        {
            reply.accept().await;
            slot.work = Some(Work::connected(&self.home, stream, Out { channel, session: session.handle() })?);
        }
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _session: &mut Session) -> Result<(), SshError> {
        self.channels.remove(&channel);
        Ok(())
    }

    async fn channel_eof(&mut self, channel: ChannelId, _session: &mut Session) -> Result<(), SshError> {
        if let Some(work) = self.work(channel) {
            work.input.end();
        }
        Ok(())
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], _session: &mut Session) -> Result<(), SshError> {
        match self.work(channel).map(|work| work.input.clone()) {
            Some(input) => Ok(input.push(data).await?),
            None => Ok(()),
        }
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        term: &str,
        columns: u32,
        rows: u32,
        _pixel_width: u32,
        _pixel_height: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), SshError> {
        if let Some(slot) = self.channels.get_mut(&channel) {
            slot.terminal = Some(size(columns, rows));
            let kind = if term.is_empty() || term.len() > VARIABLE_BYTES_MAX { "dumb" } else { term };
            slot.variables.insert("TERM".to_owned(), kind.to_owned());
            session.channel_success(channel)?;
        }
        Ok(())
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), SshError> {
        let is_plain = |text: &str| text.len() <= VARIABLE_BYTES_MAX && !text.contains('\0');
        let is_good = is_plain(name) && is_plain(value) && !name.is_empty() && !name.contains('=');
        match self.channels.get_mut(&channel).filter(|slot| is_good && slot.variables.len() < VARIABLES_MAX) {
            Some(slot) => {
                slot.variables.insert(name.to_owned(), value.to_owned());
                session.channel_success(channel)?;
            }
            None => session.channel_failure(channel)?,
        }
        Ok(())
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), SshError> {
        self.start(channel, Wanted::Shell, session)
    }

    async fn exec_request(&mut self, channel: ChannelId, line: &[u8], session: &mut Session) -> Result<(), SshError> {
        self.start(channel, Wanted::Command(OsString::from_vec(line.to_vec())), session)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), SshError> {
        match name {
            "sftp" => self.start(channel, Wanted::Files, session),
            _ => Ok(session.channel_failure(channel)?),
        }
    }

    async fn window_change_request(
        &mut self,
        channel: ChannelId,
        columns: u32,
        rows: u32,
        _pixel_width: u32,
        _pixel_height: u32,
        _session: &mut Session,
    ) -> Result<(), SshError> {
        if let Some(work) = self.work(channel) {
            work.resize(size(columns, rows));
        }
        Ok(())
    }

    async fn signal(&mut self, channel: ChannelId, signal: Sig, _session: &mut Session) -> Result<(), SshError> {
        if let (Some(work), Some(signal)) = (self.work(channel), signal_of(&signal)) {
            work.signal(signal);
        }
        Ok(())
    }
}
