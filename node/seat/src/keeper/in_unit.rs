//! The first process of a unit of systemd, which starts the command and tells its keeper how that has ended.
//!
//! It has two connections to its keeper: the `barrier` of the run, at which it says that it is ready and hears the word, and one by which
//! either hears of the other's end. Invariants: nothing of the user's has run before the word; it ends with its keeper, whereupon systemd ends
//! what is left of the unit.

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{net::UnixStream, process::ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use kolo_trust::files;
use nix::sys::signal::SigSet;
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};

use super::launch::{
    GO, READY, cannot_be_run, enter, find_program, path_of, say_failed, variables_in_sandbox, words_in_sandbox,
};
use crate::{
    bubblewrap::SELF_IN_SANDBOX,
    unit::{BARRIER_IN_UNIT, WORK_IN_UNIT},
};

/// Largest work, as JSON.
const WORK_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What a unit is for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Work {
    /// Where the command starts.
    pub directory: PathBuf,
    /// What it may write to.
    pub own: Vec<PathBuf>,
    /// The standard input is its terminal.
    pub has_terminal: bool,
    /// The words are the keys of a session of SSH.
    pub is_ssh: bool,
    /// The command.
    pub words: Vec<String>,
}

/// Starts the command of this unit when its keeper says so, and tells how it ends. Returns only when there is nothing to tell.
///
/// # Errors
/// When the keeper is not there.
pub fn run() -> io::Result<()> {
    let mut barrier = UnixStream::connect(BARRIER_IN_UNIT)?;
    let keeper = UnixStream::connect(BARRIER_IN_UNIT)?;
    match Work::read().and_then(|work| work.prepare().map(|()| work)) {
        Ok(work) => work.run(barrier, keeper),
        Err(why) => say_failed(&mut barrier, &why),
    }
}

impl Work {
    fn read() -> Result<Work, String> {
        let text = files::read(Path::new(WORK_IN_UNIT), WORK_BYTES_MAX).map_err(|error| error.to_string())?;
        serde_json::from_str(&text.ok_or("there is nothing to do")?).map_err(|error| error.to_string())
    }

    fn run(&self, mut barrier: UnixStream, mut keeper: UnixStream) -> io::Result<()> {
        barrier.write_all(&[READY])?;
        let mut word = [0];
        barrier.read_exact(&mut word)?;
        if word[0] != GO {
            return Ok(());
        }
        let mut hears = keeper.try_clone()?;
        thread::spawn(move || {
            // It says nothing: it has what it wants to know, or is gone.
            let _ = hears.read(&mut [0]);
            std::process::exit(0)
        });
        let mut child = match self.command(&barrier).and_then(|(mut command, _open)| command.spawn()) {
            Ok(child) => child,
            Err(error) => return say_failed(&mut barrier, &cannot_be_run(SELF_IN_SANDBOX, &error)),
        };
        // It closes when the command runs, which has it too.
        drop(barrier);
        let status = child.wait()?;
        keeper.write_all(&status.into_raw().to_ne_bytes())?;
        loop {
            thread::park();
        }
    }

    fn prepare(&self) -> Result<(), String> {
        // What is sent to the unit is for the command.
        SigSet::all().thread_block().map_err(|error| format!("it hears signals: {error}"))?;
        enter(&self.directory, true)?;
        if self.has_terminal {
            rustix::process::ioctl_tiocsctty(io::stdin()).map_err(|error| format!("it gets no terminal: {error}"))?;
        }
        if !self.is_ssh {
            let variables = variables_in_sandbox().map_err(|error| format!("it has no variables: {error}"))?;
            find_program(self.words.first().ok_or("there is no command")?, path_of(&variables), |_| true)?;
        }
        Ok(())
    }

    /// What becomes the command, and the barrier that is open for it as long as this is.
    fn command(&self, barrier: &UnixStream) -> io::Result<(Command, OwnedFd)> {
        let open = OwnedFd::from(barrier.try_clone()?);
        // A server says itself what goes wrong with it, and does not close it.
        let number = if self.is_ssh { None } else { Some(open.as_raw_fd()) };
        if number.is_some() {
            fcntl_setfd(&open, FdFlags::empty())?;
        }
        let mut command = Command::new(SELF_IN_SANDBOX);
        command.args(words_in_sandbox(
            self.is_ssh,
            self.own.iter().map(PathBuf::as_path),
            (false, number),
            &self.words,
        ));
        Ok((command, open))
    }
}
