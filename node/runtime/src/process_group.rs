//! The processes of one run of a program of the owner.
//!
//! Invariant: what was started ends when the run is given up, with all that it has started itself.

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::process::Child;

/// The processes of a run, ended all together unless the run has ended by itself. The program was started as the leader of a
/// process group of its own.
pub struct RunGroup(Option<Pid>);

impl RunGroup {
    /// The group that `child` leads.
    pub fn of(child: &Child) -> RunGroup {
        RunGroup(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }

    /// Ends what is left of it.
    pub fn end(&mut self) {
        if let Some(group) = self.0.take() {
            // An error says that there is nobody left.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }

    /// Lets go of it when its leader has ended and been waited for: its number may become another one's.
    pub fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for RunGroup {
    fn drop(&mut self) {
        self.end();
    }
}
