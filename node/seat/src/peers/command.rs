//! The command of a run as the owner of sockets of this machine.
//!
//! All commands of a site may be of one user, and loopback addresses are open to everybody: a socket is the command's when a process in the
//! cgroup of the run has opened it. Invariant: where the run has a cgroup and the kernel tells those of sockets, no other socket is carried.

use std::{io, net::SocketAddrV4, sync::Arc};

use nix::unistd::geteuid;

use super::local::{cgroup_of_taker, has_cgroups_of_sockets, opener_of};
use crate::{
    directory::Task,
    keepers::{Keepers, RunId},
};

/// The command of a run that goes on, or is about to start.
#[derive(Clone)]
pub struct RunCommand {
    keepers: Arc<Keepers>,
    run: RunId,
    user: u32,
    has_cgroup: bool,
}

impl RunCommand {
    /// That of a task.
    ///
    /// # Errors
    /// When its user is not known here.
    pub fn of(task: &Task, keepers: &Arc<Keepers>) -> io::Result<RunCommand> {
        let owner = task.confinement.owner().map_err(io::Error::other)?;
        let user = owner.map_or(geteuid(), |(user, _)| user).as_raw();
        let has_cgroup = task.confinement.has_cgroup() && has_cgroups_of_sockets();
        Ok(RunCommand { keepers: Arc::clone(keepers), run: RunId::of(task), user, has_cgroup })
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns when it has opened the socket at `own` that is connected to `other`.
    ///
    /// # Errors
    /// When it has not, has closed it, or that cannot be told.
    pub fn check_opened(&self, own: SocketAddrV4, other: SocketAddrV4) -> io::Result<()> {
        let found = opener_of(own, other)?.and_then(|found| Some((found.user?, found.cgroup)));
        let (user, cgroup) = found.ok_or_else(|| io::Error::other("it was closed before it was known whose it is"))?;
        if user != self.user {
            return Err(io::Error::other("it comes from another user of this machine"));
        }
        match self.cgroup()? {
            own @ Some(_) if own != cgroup => Err(io::Error::other("it comes from something that is not of the run")),
            _ => Ok(()),
        }
    }

    /// Whether it takes the connection to `own` from `other`, or nobody can tell.
    ///
    /// # Errors
    /// When nothing takes it any more, or the system does not answer.
    pub fn takes(&self, own: SocketAddrV4, other: SocketAddrV4) -> io::Result<bool> {
        let Some(cgroup) = self.cgroup()? else { return Ok(true) };
        let taker = cgroup_of_taker(own, other)?;
        taker.map(|taker| taker == cgroup).ok_or_else(|| io::Error::other("nothing takes the connection"))
    }

    /// The number of its cgroup; none where it has none, or the machine does not tell those of sockets.
    fn cgroup(&self) -> io::Result<Option<u64>> {
        self.has_cgroup.then(|| self.keepers.cgroup_number(&self.run)).transpose()
    }
}
