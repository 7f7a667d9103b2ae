//! Commands in a sandbox of bubblewrap.
//!
//! bwrap runs as the user of commands; within it this program closes files and becomes the command. Invariant: a sandbox shows what
//! [`SYSTEM`] names without [`MASKED`], the owner's `runner_paths`, the scratch directory, and nothing else of the machine.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use nix::unistd::User;

use super::{
    confine::{Confinement, MASKED, Runner, SYSTEM, tool},
    confine_error::ConfineError,
};

/// This program inside of a sandbox.
pub const SELF_IN_SANDBOX: &str = "/run/kolo";
/// The directory for temporary files of a sandbox.
pub(super) const SANDBOX_TEMPORARY: &str = "/tmp";
/// Option that takes user namespaces from commands: such namespaces open much of the kernel.
const NO_NAMESPACES: &str = "--disable-userns";
/// Words for a bubblewrap without this option.
const NAMESPACES_LEFT: &str = "commands can make user namespaces, which open more of the kernel to them: bubblewrap forbids it from version 0.8 on, without setuid, where /proc/sys can be written";
/// The sandbox.
const BUBBLEWRAP: &str = "bwrap";

impl Confinement {
    /// The program of the sandbox; none where there is no sandbox.
    ///
    /// # Errors
    /// [`ConfineError::NoBubblewrap`].
    pub fn sandbox(&self) -> Result<Option<PathBuf>, ConfineError> {
        match self.runner {
            Runner::None | Runner::Podman | Runner::Systemd => Ok(None),
            Runner::Bubblewrap => tool(BUBBLEWRAP).map(Some).ok_or(ConfineError::NoBubblewrap),
        }
    }

    /// The words of the sandbox before a command, which starts in `directory`.
    pub fn wrapped(&self, scratch: &Path, directory: &Path) -> Vec<OsString> {
        if self.runner == Runner::None {
            return Vec::new();
        }
        let mut words: Vec<OsString> = [
            "--die-with-parent",
            "--unshare-user",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup-try",
            "--cap-drop",
            "ALL",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            SANDBOX_TEMPORARY,
        ]
        .map(Into::into)
        .into();
        if !self.has_nested_namespaces {
            words.push(NO_NAMESPACES.into());
        }
        if !self.has_network {
            words.push("--unshare-net".into());
        }
        // Many programs want to know what their user is called.
        let named = self.user.as_deref().filter(|_| self.uids.is_some()).map(User::from_name);
        if let Some(Ok(Some(user))) = named {
            words.extend(["--uid".into(), user.uid.to_string().into()]);
        }
        for path in SYSTEM.iter().filter(|path| **path != "/proc") {
            words.extend(["--ro-bind-try".into(), path.into(), path.into()]);
        }
        if Path::new(MASKED).is_dir() {
            words.extend(["--tmpfs".into(), MASKED.into()]);
        }
        for path in self.paths.iter().map(PathBuf::as_path).chain([scratch]) {
            words.extend(["--bind".into(), path.into(), path.into()]);
        }
        words.extend(["--chdir".into(), directory.into(), "--".into()]);
        words
    }

    /// The confinement, with user namespaces for commands where bubblewrap makes a sandbox only so. The need is found once, before commands could bring
    /// it about.
    #[must_use]
    pub fn suited_to_bubblewrap(self) -> Confinement {
        let nested = Confinement { has_nested_namespaces: true, ..self.clone() };
        let is_needed =
            self.runner == Runner::Bubblewrap && self.try_sandbox().is_err() && nested.try_sandbox().is_ok();
        if is_needed { nested } else { self }
    }

    /// Words about what a sandbox leaves open to commands.
    pub(super) fn namespaces_left(&self) -> Vec<String> {
        self.has_nested_namespaces.then(|| NAMESPACES_LEFT.to_owned()).into_iter().collect()
    }

    /// Makes a sandbox around nothing, as the user that commands run as.
    pub(super) fn try_sandbox(&self) -> Result<(), ConfineError> {
        let words = self.wrapped(Path::new("/usr"), Path::new("/"));
        let Some(sandbox) = self.sandbox()? else { return Ok(()) };
        let own_file = own_file().map_err(|why| ConfineError::BubblewrapFails(why, ""))?;
        let user = self.user()?;
        let mut command = as_user(sandbox, user.as_ref());
        command.args(["--ro-bind", &own_file, SELF_IN_SANDBOX]).args(words);
        command.args([SELF_IN_SANDBOX, "in-sandbox", "--", "true"]);
        let done = match command.output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ConfineError::NoBubblewrap),
            Err(error) => return Err(ConfineError::BubblewrapFails(error.to_string(), "")),
            Ok(done) => done,
        };
        if done.status.success() {
            return Ok(());
        }
        check_runs(Path::new(&own_file), user.as_ref())?;
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        Err(ConfineError::BubblewrapFails(said, what_mends_namespaces()))
    }
}

/// A program with no environment, run by `user`, or by this process's own.
fn as_user(program: impl AsRef<OsStr>, user: Option<&User>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().current_dir("/");
    if let Some(user) = user {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command
}

/// Whether a program can be run by `user`: rights of the file and of each directory above it.
///
/// # Errors
/// [`ConfineError::OwnFile`].
fn check_runs(file: &Path, user: Option<&User>) -> Result<(), ConfineError> {
    let is_closed = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    match as_user(file, user).arg("--version").output().is_err_and(is_closed) {
        true => Err(ConfineError::OwnFile(file.to_owned())),
        false => Ok(()),
    }
}

/// The file of this program.
pub fn own_file() -> Result<String, String> {
    let file = std::fs::read_link("/proc/self/exe").map_err(|error| format!("the program has no file: {error}"))?;
    let is_gone = !file.exists();
    let file = file.into_os_string().into_string().map_err(|_| "the path of the program is not UTF-8".to_owned())?;
    if is_gone { Err(format!("{file} cannot be reached, or was replaced: start the node again")) } else { Ok(file) }
}

/// What lets users make namespaces on this machine.
fn what_mends_namespaces() -> &'static str {
    let is = |file: &str, value: &str| std::fs::read_to_string(file).is_ok_and(|text| text.trim() == value);
    if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "; AppArmor forbids it: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or a profile for bwrap with `userns,`"
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "; the kernel forbids it: sudo sysctl -w kernel.unprivileged_userns_clone=1"
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        "; the kernel forbids it: sudo sysctl -w user.max_user_namespaces=15000"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt as _,
    };

    use nix::unistd::geteuid;

    use super::{super::confine::tests::confinement, *};

    #[test]
    fn a_program_that_the_user_of_commands_does_not_reach_is_told() {
        if !geteuid().is_root() {
            return;
        }
        let user = User::from_name("nobody").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        fs::copy("/bin/true", &program).unwrap();
        let with_mode = |mode: u32| {
            fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            check_runs(&program, user.as_ref())
        };
        let refused = with_mode(0o700).unwrap_err().to_string();
        assert!(refused.contains(program.to_str().unwrap()) && refused.contains("chmod"), "{refused}");
        with_mode(0o755).unwrap();
    }

    #[test]
    fn a_sandbox_gets_the_network_only_where_the_owner_lets_it() {
        let words = |has_network| {
            let sandbox = Confinement { runner: Runner::Bubblewrap, has_network, ..confinement() };
            sandbox.wrapped(Path::new("/scratch"), Path::new("/scratch/x"))
        };
        assert!(!words(true).contains(&"--unshare-net".into()) && words(false).contains(&"--unshare-net".into()));
        assert!(words(true).ends_with(&["--chdir".into(), "/scratch/x".into(), "--".into()]));
        assert!(confinement().wrapped(Path::new("/scratch"), Path::new("/scratch")).is_empty());
    }

    #[test]
    fn a_sandbox_takes_namespaces_from_commands_unless_bubblewrap_cannot_and_then_says_so() {
        let closed = Confinement { runner: Runner::Bubblewrap, ..confinement() };
        let open = Confinement { has_nested_namespaces: true, ..closed.clone() };
        let closes = |one: &Confinement| one.wrapped(Path::new("/"), Path::new("/")).contains(&NO_NAMESPACES.into());
        assert!(closes(&closed) && !closes(&open));
        assert_eq!((closed.namespaces_left().len(), open.namespaces_left().len()), (0, 1));
    }
}
