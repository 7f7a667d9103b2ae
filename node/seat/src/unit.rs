//! Commands in units of systemd.
//!
//! The machine's own manager makes a unit for each run, as the user of commands; in it this program starts the command when its keeper says
//! so. Invariant: a unit shows what [`SYSTEM`] names, the owner's `runner_paths`, the scratch directory, and nothing else of the machine. No
//! unit of another seat looks into its processes: it has a user id of its own, or else a user namespace of its own.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use nix::unistd::User;

use super::{
    as_user,
    bubblewrap::{SELF_IN_SANDBOX, own_file},
    cgroup::{self, Limits},
    confine::{Confinement, SYSTEM, tool},
    confine_error::ConfineError,
};

/// The socket of the keeper in the unit of its run.
pub const BARRIER_IN_UNIT: &str = "/run/kolo-barrier";
/// What the unit is for: its command line could be read by all, and systemd puts variables in.
pub const WORK_IN_UNIT: &str = "/run/kolo-work";
/// What starts a program that is not there outside of the unit.
const ENV: &str = "/usr/bin/env";
/// What makes units.
const SYSTEMD_RUN: &str = "systemd-run";
/// It is there when systemd has started the machine.
const BOOTED: &str = "/run/systemd/system";
/// How long what a unit has left behind may take to end when nobody sees to it.
const TRIED_GRACE: Duration = Duration::from_secs(2);
/// What every unit has. A killed one has not failed: its keeper has ended it.
const PROPERTIES: [&str; 15] = [
    "TemporaryFileSystem=/:ro",
    "TemporaryFileSystem=/tmp:mode=1777,size=50% /dev/shm:mode=1777,size=50%",
    "PrivateDevices=yes",
    "PrivateIPC=yes",
    "ProtectHostname=yes",
    "ProtectProc=invisible",
    "NoNewPrivileges=yes",
    "RestrictNamespaces=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "LimitCORE=0",
    "MemorySwapMax=0",
    "OOMPolicy=continue",
    "SuccessExitStatus=SIGKILL",
    "UMask=0022",
];

/// What a unit is made of.
#[derive(Debug)]
pub struct Unit<'a> {
    /// How the command is confined.
    pub confinement: &'a Confinement,
    /// Its name.
    pub name: &'a str,
    /// What it shows beside what all show: where that is, and where it is seen.
    pub shown: &'a [(PathBuf, &'static str)],
    /// The scratch directory of the run, when there is one.
    pub scratch: Option<&'a Path>,
    /// How long what it leaves behind may take to end.
    pub grace: Duration,
}

impl Unit<'_> {
    /// What makes it and waits for its end, with its own streams as those of the unit; the words of what runs in it are to be added, the
    /// first of which is this program.
    ///
    /// # Errors
    /// [`ConfineError`] when no unit can be made.
    pub fn command(&self) -> Result<Command, ConfineError> {
        let booted = Path::new(BOOTED).is_dir().then(|| tool(SYSTEMD_RUN)).flatten();
        let mut command = Command::new(booted.ok_or(ConfineError::NoSystemd)?);
        command.env_clear().current_dir("/");
        command.args(["--quiet", "--wait", "--pipe", "--collect", "--no-ask-password", "--unit", self.name]);
        let user = self.confinement.user()?.ok_or(ConfineError::NeedsUser("systemd"))?;
        let (of_user, becoming_user) = words_of_user(&user, self.confinement.uids.is_some());
        command.args(of_user).args(PROPERTIES.iter().flat_map(|property| ["--property", property]));
        command.arg("--property").arg(format!("PrivateNetwork={}", !self.confinement.has_network));
        command.arg("--property").arg(format!("TimeoutStopSec={}ms", self.grace.as_millis()));
        let Limits { memory_mib, cpu_millicores, processes_max } = self.confinement.limits();
        command.arg("--property").arg(format!("TasksMax={processes_max}"));
        if let Some(mib) = memory_mib {
            command.arg("--property").arg(format!("MemoryMax={mib}M"));
        }
        if let Some(millicores) = cpu_millicores.map(|millicores| millicores.max(1)) {
            command.arg("--property").arg(format!("CPUQuota={}.{}%", millicores / 10, millicores % 10));
        }
        let own = (PathBuf::from(own_file().map_err(ConfineError::SystemdFails)?), SELF_IN_SANDBOX);
        // What the system does not have is left out.
        let system = SYSTEM.iter().filter(|path| **path != "/proc").map(|path| bound("ReadOnly", "-", path, path));
        let shown = self.shown.iter().chain([&own]);
        let shown = shown.map(|(path, seen)| bound("ReadOnly", "", &path.to_string_lossy(), seen));
        let written =
            self.confinement.paths.iter().map(PathBuf::as_path).chain(self.scratch).map(Path::to_string_lossy);
        let binds = system.chain(shown).chain(written.map(|path| bound("", "", &path, &path)));
        command.args(binds.flat_map(|bind| ["--property".to_owned(), bind]));
        command.args(["--", ENV, SELF_IN_SANDBOX]).args(becoming_user);
        Ok(command)
    }
}

impl Confinement {
    /// Makes a unit around nothing; what is not limited in it.
    pub(super) fn try_unit(&self) -> Result<Vec<String>, ConfineError> {
        let name = format!("kolo-try-{}.service", std::process::id());
        let unit = Unit { confinement: self, name: &name, shown: &[], scratch: None, grace: TRIED_GRACE };
        let mut command = unit.command()?;
        command.args(["in-sandbox", "--", "cat", "/proc/self/cgroup"]);
        let done = command.output().map_err(|error| ConfineError::SystemdFails(error.to_string()))?;
        let [said, complained] = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if !done.status.success() {
            return Err(ConfineError::SystemdFails(why_not(done.status, complained.trim(), &name)));
        }
        let expected = cgroup::of_unit(&name)?;
        if !cgroup::path_of(&said).is_ok_and(|found| found == expected) {
            let why = format!("its cgroup is {said:?}, and not {}", expected.display());
            return Err(ConfineError::SystemdFails(why));
        }
        cgroup::misses_of_units().map_err(ConfineError::from)
    }
}

/// The words that give a unit its user, and those behind this program in it. systemd takes no user without a name, and a user namespace has
/// no id that systemd does not know: a unit whose user is but a number begins as root, who can do nothing but become that user.
fn words_of_user(user: &User, has_own_id: bool) -> (Vec<String>, Vec<String>) {
    let property = |text: String| ["--property".to_owned(), text];
    if has_own_id {
        let capabilities = property(format!("CapabilityBoundingSet={}", as_user::CAPABILITIES));
        return (capabilities.into(), as_user::words_before(user, SELF_IN_SANDBOX));
    }
    let closed = ["CapabilityBoundingSet=", "PrivateUsers=yes"].map(|text| property(text.to_owned()));
    let named = ["--uid".to_owned(), user.name.clone()];
    (named.into_iter().chain(closed.into_iter().flatten()).collect(), Vec::new())
}

/// What is known of a unit that has ended before anything has run in it.
pub fn why_not(status: ExitStatus, complained: &str, name: &str) -> String {
    format!("{complained} ({status}; journalctl -u {name} may say more)")
}

/// The property that shows a path as another one, which systemd reads as a shell does.
fn bound(kind: &str, sign: &str, path: &str, seen: &str) -> String {
    let [path, seen] = [path, seen].map(|path| path.replace('\\', "\\\\").replace('"', "\\\""));
    format!("Bind{kind}Paths=\"{sign}{path}\":\"{seen}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_of_a_number_begins_as_root_who_can_only_become_it() {
        let Ok(Some(nobody)) = User::from_name("nobody") else { return };
        let (of_name, nothing) = words_of_user(&nobody, false);
        assert_eq!(of_name[..2], ["--uid", "nobody"]);
        assert!(of_name.contains(&"PrivateUsers=yes".to_owned()), "{of_name:?}");
        assert!(
            of_name.contains(&"CapabilityBoundingSet=".to_owned()) && nothing.is_empty(),
            "{of_name:?} {nothing:?}"
        );
        let seat = User { uid: nix::unistd::Uid::from_raw(0x7800_0001), ..nobody };
        let (of_number, becoming) = words_of_user(&seat, true);
        assert_eq!(of_number, ["--property", "CapabilityBoundingSet=CAP_SETUID CAP_SETGID CAP_SETPCAP"]);
        assert!(becoming.starts_with(&["as-user".to_owned(), "2013265921".to_owned()]), "{becoming:?}");
        assert!(becoming.ends_with(&["--".to_owned(), SELF_IN_SANDBOX.to_owned()]), "{becoming:?}");
    }

    #[test]
    fn a_path_may_hold_anything() {
        assert_eq!(bound("ReadOnly", "-", "/usr", "/usr"), r#"BindReadOnlyPaths="-/usr":"/usr""#);
        assert_eq!(bound("", "", r#"/a b:c"\"#, "/d"), r#"BindPaths="/a b:c\"\\":"/d""#);
    }
}
