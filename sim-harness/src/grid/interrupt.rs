//! Ctrl-C and SIGTERM as a flag that every wait looks at.
//!
//! Invariant: once set the flag stays set. The nodes run in process groups of their own, so a Ctrl-C in a terminal
//! reaches the harness only, which then stops them in order.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};
use std::{io, thread};

use tokio::signal::unix::{SignalKind, signal};

use super::error::GridError;

/// Whether the run was asked to stop.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Starts to listen for SIGINT, SIGTERM and SIGHUP; from the return on none of them ends the process any more.
    ///
    /// # Errors
    /// [`GridError::System`] when the handlers cannot be installed.
    pub fn install() -> Result<Interrupt, GridError> {
        let interrupt = Interrupt::default();
        let asked = Arc::clone(&interrupt.asked);
        let (ready, installed) = mpsc::sync_channel(1);
        thread::spawn(move || listen(&asked, &ready));
        let failed = |source| GridError::System { what: "signal handlers".to_owned(), source };
        installed.recv().unwrap_or_else(|_| Err(io::Error::other("the listening thread ended"))).map_err(failed)?;
        Ok(interrupt)
    }

    /// Fails once the run was asked to stop.
    ///
    /// # Errors
    /// [`GridError::Interrupted`].
    pub fn check(&self) -> Result<(), GridError> {
        if self.asked.load(Ordering::Relaxed) { Err(GridError::Interrupted) } else { Ok(()) }
    }
}

fn listen(asked: &AtomicBool, ready: &mpsc::SyncSender<io::Result<()>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(ready, Err(error)),
    };
    runtime.block_on(async {
        let handlers = || -> io::Result<_> {
            Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?))
        };
        let (mut interrupt, mut terminate, mut hangup) = match handlers() {
            Ok(handlers) => handlers,
            Err(error) => return report(ready, Err(error)),
        };
        report(ready, Ok(()));
        loop {
            let alive = tokio::select! {
                heard = interrupt.recv() => heard,
                heard = terminate.recv() => heard,
                heard = hangup.recv() => heard,
            };
            if alive.is_none() {
                return;
            }
            asked.store(true, Ordering::Relaxed);
        }
    });
}

/// Tells the installing thread; when that is gone there is nobody to tell.
fn report(ready: &mpsc::SyncSender<io::Result<()>>, result: io::Result<()>) {
    let _ = ready.send(result);
}
