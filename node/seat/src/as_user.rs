//! Becoming the user that commands run as, for good.
//!
//! Invariant: whoever has become that user keeps no group of the one before, and in a unit none of the capabilities that it took.

use std::{ffi::CString, io, os::unix::process::CommandExt as _, process::Command};

use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

use super::confine_error::{ConfineError, system};

/// Capabilities that [`run_as`] needs, as systemd names them. The last one lets it take all three from whatever comes after it.
pub(super) const CAPABILITIES: &str = "CAP_SETUID CAP_SETGID CAP_SETPCAP";
const TAKEN: [CapabilitySet; 3] = [CapabilitySet::SETUID, CapabilitySet::SETGID, CapabilitySet::SETPCAP];
/// The command of this program that calls [`run_as`].
const COMMAND: &str = "as-user";

/// Makes this process one of `uid` and `gid`, with the other groups of the user who is called `name`.
///
/// # Errors
/// [`ConfineError`]; the process is to run nothing of a user's then.
pub(super) fn become_user(name: &str, uid: Uid, gid: Gid) -> Result<(), ConfineError> {
    let called = CString::new(name).map_err(|_| ConfineError::NoUser(name.to_owned()))?;
    let failed = system("it cannot become the user of commands");
    initgroups(&called, gid).and_then(|()| setgid(gid)).and_then(|()| setuid(uid)).map_err(failed)
}

/// Words behind this program by which it becomes `user` and then `program`, whose own words follow.
pub(super) fn words_before(user: &User, program: &str) -> Vec<String> {
    let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
    [COMMAND, &uid, &gid, &user.name, "--", program].map(str::to_owned).into()
}

/// Becomes the user and then the command, in a unit whose processes begin as root with [`CAPABILITIES`]. Returns only when it could not.
///
/// # Errors
/// Why it could not.
pub fn run_as((uid, gid, name): (u32, u32, &str), command: &[String]) -> io::Result<()> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    for capability in TAKEN {
        remove_capability_from_bounding_set(capability)?;
    }
    become_user(name, Uid::from_raw(uid), Gid::from_raw(gid)).map_err(io::Error::other)?;
    Err(Command::new(program).args(arguments).exec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_say_who_it_becomes_and_leave_the_rest_to_the_program() {
        let Ok(Some(nobody)) = User::from_name("nobody") else { return };
        let gid = nobody.gid.to_string();
        let seat = User { uid: Uid::from_raw(0x7800_0001), ..nobody };
        assert_eq!(words_before(&seat, "/run/kolo"), ["as-user", "2013265921", &gid, "nobody", "--", "/run/kolo"]);
    }

    #[test]
    fn nothing_runs_where_there_is_no_command() {
        assert_eq!(run_as((1, 1, "nobody"), &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
