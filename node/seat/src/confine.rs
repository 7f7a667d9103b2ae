//! What a command may do on its owner's machine.
//!
//! Commands run as a user who is not root, with the limits of the seat, and without privileges to gain. Around that either Landlock
//! ([`Runner::None`]: the files of the system to read, its scratch directory to write, no signals to others), a sandbox
//! ([`Runner::Bubblewrap`]: namespaces of its own, and Landlock within them), a unit ([`Runner::Systemd`]: the same by systemd) or a
//! container ([`Runner::Podman`]: these, and the files of an image). Invariant: what the owner has asked for holds or the command does not
//! run; what this machine cannot do is found by [`Confinement::check`] before the first one.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use nix::{
    sys::{
        prctl::set_no_new_privs,
        resource::{Resource, getrlimit, setrlimit},
    },
    unistd::{Gid, Uid, User, geteuid},
};
use serde::{Deserialize, Serialize};

use super::{
    as_user::become_user,
    bubblewrap::SANDBOX_TEMPORARY,
    cgroup::{self, Cgroup, Limits},
    closing::{close_files, landlock_misses},
    confine_error::{ConfineError, system},
    peers::has_cgroups_of_sockets,
    processes,
    uids::UidRange,
};

/// The file in the data directory in which a node notes how commands are confined; `null` when it runs none.
pub const NOTE_FILE: &str = "runner";
/// What of the system a command reads.
pub(super) const SYSTEM: [&str; 12] = [
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/proc",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/sbin",
    "/sys",
    "/usr",
];
/// Directory of the node's configuration and keys, which a sandbox replaces by an empty one.
pub(super) const MASKED: &str = "/etc/kolo";
/// The processes of a sandbox, beside those of the command.
const SANDBOX_PROCESSES: u64 = 2;
/// The processes and threads of podman, beside those of the command: several of its programs work at a time.
const PODMAN_PROCESSES: u64 = 96;
/// Where programs that confine are looked for, whatever anybody's environment says.
const TOOLS_IN: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin"];

/// Words for a kernel that tells the user of a socket, but not its run.
const PORTS_OF_ALL: &str = "the ports of a run (--port) are open to all commands: the kernel does not tell the cgroup of a socket (CONFIG_SOCK_CGROUP_DATA and CONFIG_INET_DIAG do)";

/// What stands between commands and the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", try_from = "String")]
pub enum Runner {
    /// No sandbox: another user's rights, limits of the process, and Landlock.
    None,
    /// bubblewrap: namespaces of its own, of files, processes, and network.
    Bubblewrap,
    /// podman: a container of one of the owner's images.
    Podman,
    /// systemd: a unit of the machine's own manager.
    Systemd,
}

impl Runner {
    /// As the configuration names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Runner::None => "none",
            Runner::Bubblewrap => "bubblewrap",
            Runner::Podman => "podman",
            Runner::Systemd => "systemd",
        }
    }
}

impl Runner {
    /// Whether its commands share the network of the machine, where those in a sandbox have it or not.
    pub fn is_on_network(self, has_network: bool) -> bool {
        self == Runner::None || has_network
    }
}

impl TryFrom<String> for Runner {
    type Error = String;

    fn try_from(name: String) -> Result<Runner, String> {
        let all = [Runner::None, Runner::Bubblewrap, Runner::Podman, Runner::Systemd];
        let known = || all.map(|runner| format!("{:?}", runner.as_str())).join(", ");
        let found = all.into_iter().find(|runner| runner.as_str() == name);
        found.ok_or_else(|| format!("unknown runner {name:?}, expected one of {}", known()))
    }
}

/// How the commands of a site are confined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confinement {
    /// What stands around them.
    pub runner: Runner,
    /// The user of this machine that they run as; the node's own when there is none, who must not be root and needs a sandbox.
    pub user: Option<String>,
    /// Directories beside the scratch directory that they may read and write, as far as the user may.
    pub paths: Vec<PathBuf>,
    /// Whether a sandbox has the machine's network. Without one it always has.
    pub has_network: bool,
    /// Most memory that a command may have, in MiB; without a cgroup that each of its processes may have for itself.
    pub memory_mib: Option<u64>,
    /// Most that it may use of the processors, in thousandths of one; unlimited without a cgroup.
    pub cpu_millicores: Option<u64>,
    /// Most processes and threads of a command; without a cgroup of its user, beside those that he has when it starts.
    pub processes_max: u64,
    /// Where the cgroups of commands are made; none where the machine gives the node none.
    pub cgroups: Option<PathBuf>,
    /// The images that containers are made of; runs of before there were any go on after an upgrade.
    #[serde(default)]
    pub images: Vec<String>,
    /// Where they are, unless in the store of the user that commands run as.
    pub image_store: Option<PathBuf>,
    /// Whether commands in a sandbox of bubblewrap can make user namespaces, since bubblewrap cannot forbid it here.
    #[serde(default)]
    pub has_nested_namespaces: bool,
    /// The user ids of runs; in a task the one of its seat. All are of `user` without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uids: Option<UidRange>,
}

/// What a node notes at its start for `kolo doctor`, which reads no configuration.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// How commands are confined.
    pub confinement: Confinement,
    /// Where scratch directories are made.
    pub scratch_in: PathBuf,
}

impl Confinement {
    /// Whether commands can be confined like this here, with scratch directories in `scratch_in`, and see nothing of the node's directory;
    /// if so, what is not enforced, for the owner.
    ///
    /// # Errors
    /// [`ConfineError`], which says what to do.
    pub fn check_for(&self, data_dir: &Path, scratch_in: &Path) -> Result<Vec<String>, ConfineError> {
        self.check_hides(data_dir)?;
        self.check(scratch_in)
    }

    /// Whether commands can be confined like this here, with scratch directories in `scratch_in`; if so, what is not enforced, for the owner.
    ///
    /// # Errors
    /// [`ConfineError`], which says what to do.
    pub fn check(&self, scratch_in: &Path) -> Result<Vec<String>, ConfineError> {
        let user = self.user()?;
        for path in &self.paths {
            let no_path = |source| ConfineError::NoPath { path: path.clone(), source };
            if !std::fs::metadata(path).map_err(no_path)?.is_dir() {
                return Err(no_path(std::io::ErrorKind::NotADirectory.into()));
            }
        }
        let mut misses = match self.runner {
            // The same user could talk to keepers and read keys, whatever files are closed.
            Runner::None | Runner::Systemd if user.is_none() => {
                return Err(ConfineError::NeedsUser(self.runner.as_str()));
            }
            Runner::None => landlock_misses()?,
            Runner::Bubblewrap => self.try_sandbox().map(|()| self.namespaces_left())?,
            Runner::Podman => self.try_images(scratch_in).map(|()| Vec::new())?,
            Runner::Systemd => self.try_unit()?,
        };
        // Units have cgroups of systemd's.
        let own = self.cgroups.as_deref().filter(|_| self.runner != Runner::Systemd);
        misses.extend(own.into_iter().flat_map(cgroup::misses));
        if self.is_on_network() && self.has_cgroup() && !has_cgroups_of_sockets() {
            misses.push(PORTS_OF_ALL.to_owned());
        }
        Ok(misses)
    }

    /// Whether commands see nothing of this directory of the node.
    ///
    /// # Errors
    /// [`ConfineError::ShowsKeys`].
    fn check_hides(&self, directory: &Path) -> Result<(), ConfineError> {
        match self.shown_by(directory)? {
            Some((whole, shown)) => Err(ConfineError::ShowsKeys(whole, shown)),
            None => Ok(()),
        }
    }

    /// Whether commands see none of these files of the owner; those that every user of the machine may read are no secret.
    ///
    /// # Errors
    /// [`ConfineError::ShowsFile`].
    pub fn check_hides_files<'a>(&self, files: impl IntoIterator<Item = &'a Path>) -> Result<(), ConfineError> {
        const READ_BY_ALL: u32 = 0o004;
        let is_closed = |file: &&Path| file.metadata().is_ok_and(|found| found.mode() & READ_BY_ALL == 0);
        for file in files.into_iter().filter(is_closed) {
            if let Some((whole, shown)) = self.shown_by(file)? {
                return Err(ConfineError::ShowsFile(whole, shown));
            }
        }
        Ok(())
    }

    /// The canonical form of `path` with the directory through which commands see it, where they run with the node's own rights; none where
    /// they do not see it.
    fn shown_by(&self, path: &Path) -> Result<Option<(PathBuf, PathBuf)>, ConfineError> {
        // Another user is kept out by the rights of the files, and Landlock names what is open.
        if self.runner == Runner::None || self.user()?.is_some() {
            return Ok(None);
        }
        let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let holds = |shown: &&Path| shown.canonicalize().is_ok_and(|shown| whole.starts_with(shown));
        // What the owner opens is opened in what is masked as well.
        let of_owner = self.paths.iter().map(PathBuf::as_path).find(holds);
        let is_hidden = self.runner != Runner::Bubblewrap || holds(&Path::new(MASKED));
        let of_system = || SYSTEM.iter().map(Path::new).find(holds).filter(|_| !is_hidden);
        let shown = of_owner.or_else(of_system).map(Path::to_owned);
        Ok(shown.map(|shown| (whole, shown)))
    }

    /// Whether each command has a cgroup; systemd makes that of a unit.
    pub fn has_cgroup(&self) -> bool {
        self.cgroups.is_some() || self.runner == Runner::Systemd
    }

    /// Whether commands share the network of the machine.
    pub fn is_on_network(&self) -> bool {
        self.runner.is_on_network(self.has_network)
    }

    /// Whether an order with this image, or for a session of SSH, can be run here.
    ///
    /// # Errors
    /// [`ConfineError::Image`], for the user.
    pub fn check_image(&self, image: Option<&str>, is_ssh: bool) -> Result<(), ConfineError> {
        let known = || self.images.join(", ");
        let why = match (self.runner, image) {
            (Runner::Podman, _) if is_ssh => {
                "this site runs containers, which SSH does not reach: kolo run --pty --image IMAGE does".to_owned()
            }
            (Runner::Podman, None) => {
                format!("this site runs containers: choose by --image one of its images: {}", known())
            }
            (Runner::Podman, Some(image)) if !self.images.iter().any(|known| known == image) => {
                format!("the image {image} is none of those that this site runs: {}", known())
            }
            (Runner::None | Runner::Bubblewrap | Runner::Systemd, Some(_)) => {
                "this site runs no containers: leave --image out".to_owned()
            }
            _ => return Ok(()),
        };
        Err(ConfineError::Image(why))
    }

    /// Most memory that each process may have for itself, in MiB, where the cgroup does not limit the sum.
    pub fn process_memory_mib(&self, cgroup: Option<&Cgroup>) -> Option<u64> {
        self.memory_mib.filter(|_| !cgroup.is_some_and(Cgroup::has_memory))
    }

    /// The most processes that a command has, with those around it.
    fn all_processes_max(&self) -> u64 {
        self.processes_max.saturating_add(match self.runner {
            Runner::None | Runner::Bubblewrap | Runner::Systemd => SANDBOX_PROCESSES,
            Runner::Podman => PODMAN_PROCESSES,
        })
    }

    /// The limits of a command's cgroup.
    pub fn limits(&self) -> Limits {
        let processes_max = self.all_processes_max();
        Limits { memory_mib: self.memory_mib, cpu_millicores: self.cpu_millicores, processes_max }
    }

    /// The user that commands run as, with the id of this run; none when that is the present one.
    ///
    /// # Errors
    /// [`ConfineError`] when that would be root, or cannot be.
    pub fn user(&self) -> Result<Option<User>, ConfineError> {
        let me = geteuid();
        let Some(name) = &self.user else { return if me.is_root() { Err(ConfineError::Root) } else { Ok(None) } };
        let found = User::from_name(name).map_err(system("the users of this machine cannot be read"))?;
        let user = found.ok_or_else(|| ConfineError::NoUser(name.clone()))?;
        if user.uid.is_root() {
            return Err(ConfineError::UserIsRoot(name.clone()));
        }
        match user.uid == me {
            true => Ok(None),
            false if me.is_root() => Ok(Some(User { uid: self.uids.map_or(user.uid, UidRange::first), ..user })),
            false => Err(ConfineError::NotRoot(name.clone())),
        }
    }

    /// Who owns what is made for a command.
    ///
    /// # Errors
    /// As for [`Confinement::user`].
    pub fn owner(&self) -> Result<Option<(Uid, Gid)>, ConfineError> {
        Ok(self.user()?.map(|user| (user.uid, user.gid)))
    }

    /// Gives up everything that the command is not to have, for this process and all that come from it, and goes into its cgroup. What a
    /// sandbox takes away it takes away later.
    ///
    /// # Errors
    /// [`ConfineError`]; the command must not run then.
    pub fn enter(&self, scratch: &Path, cgroup: Option<&Cgroup>) -> Result<(), ConfineError> {
        let user = self.user()?;
        // Only root gets a unit, which then has all of this.
        if self.runner == Runner::Systemd {
            return Ok(());
        }
        cgroup.map_or(Ok(()), Cgroup::join)?;
        limit(Resource::RLIMIT_CORE, 0)?;
        // podman itself needs more; it gives the limit to its container.
        if let Some(mib) = self.process_memory_mib(cgroup).filter(|_| self.runner != Runner::Podman) {
            limit(Resource::RLIMIT_DATA, mib.saturating_mul(1024 * 1024))?;
        }
        if !cgroup.is_some_and(Cgroup::has_processes) {
            let uid = user.as_ref().map_or(geteuid(), |user| user.uid);
            limit(
                Resource::RLIMIT_NPROC,
                processes::threads_of(uid.as_raw()).saturating_add(self.all_processes_max()),
            )?;
        }
        if let Some(user) = user {
            become_user(&user.name, user.uid, user.gid)?;
        }
        // podman asks newuidmap for the users of its image, and takes the privileges from its container.
        if self.runner != Runner::Podman {
            set_no_new_privs().map_err(system("it cannot give up gaining privileges"))?;
        }
        match self.runner {
            Runner::None => close_files(self.own_paths(scratch)),
            // Their namespaces are made of mounts, which Landlock forbids; in a sandbox it comes once they are there.
            Runner::Bubblewrap | Runner::Podman | Runner::Systemd => Ok(()),
        }
    }

    /// What a command may write to.
    pub fn own_paths<'a>(&'a self, scratch: &'a Path) -> impl Iterator<Item = &'a Path> {
        let has_own = matches!(self.runner, Runner::Bubblewrap | Runner::Systemd);
        let of_sandbox = has_own.then(|| Path::new(SANDBOX_TEMPORARY));
        self.paths.iter().map(PathBuf::as_path).chain([scratch]).chain(of_sandbox)
    }

    /// Whether a command may learn of a file, in whose place a link may be: in a sandbox only what lies below what it shows.
    pub fn shows(&self, scratch: &Path, file: &Path) -> bool {
        if self.runner == Runner::None {
            return true;
        }
        let shown = SYSTEM.map(Path::new).into_iter().chain(self.paths.iter().map(PathBuf::as_path)).chain([scratch]);
        let mut shown = shown.filter_map(|path| path.canonicalize().ok());
        file.canonicalize().is_ok_and(|file| shown.any(|path| file.starts_with(path)))
    }
}

/// The file of a program of this machine.
pub(super) fn tool(name: &str) -> Option<PathBuf> {
    TOOLS_IN.iter().map(|directory| Path::new(directory).join(name)).find(|file| file.is_file())
}

/// Lowers a limit of this process; one that is lower already stays.
fn limit(resource: Resource, most: u64) -> Result<(), ConfineError> {
    let failed = system("a limit cannot be set");
    let (_, hard) = getrlimit(resource).map_err(&failed)?;
    let most = most.min(hard);
    setrlimit(resource, most, most).map_err(failed)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;

    pub fn confinement() -> Confinement {
        Confinement {
            runner: Runner::None,
            user: None,
            paths: vec![],
            has_network: true,
            memory_mib: None,
            cpu_millicores: None,
            processes_max: 100,
            cgroups: None,
            images: vec![],
            image_store: None,
            has_nested_namespaces: false,
            uids: None,
        }
    }

    #[test]
    fn only_images_that_the_owner_has_named_run_and_only_in_containers() {
        let plain = confinement();
        let named =
            Confinement { runner: Runner::Podman, images: vec!["a:1".to_owned(), "b".to_owned()], ..confinement() };
        assert!(plain.check_image(None, false).is_ok() && plain.check_image(None, true).is_ok());
        assert!(named.check_image(Some("b"), false).is_ok());
        let refused =
            |confinement: &Confinement, image, is_ssh| confinement.check_image(image, is_ssh).unwrap_err().to_string();
        assert!(refused(&plain, Some("a:1"), false).contains("leave --image out"));
        for image in [None, Some("a"), Some("a:1 ")] {
            assert!(refused(&named, image, false).ends_with("a:1, b"), "{image:?}");
        }
        assert!(refused(&named, None, true).contains("--pty"));
        let none = Confinement { user: geteuid().is_root().then(|| "nobody".to_owned()), images: vec![], ..named };
        assert!(matches!(none.check(&std::env::temp_dir()), Err(ConfineError::NoImages)));
    }

    #[test]
    fn a_sandbox_that_shows_the_nodes_directory_is_refused() {
        let data = tempfile::tempdir().unwrap();
        let own = Confinement { runner: Runner::Bubblewrap, ..confinement() };
        if geteuid().is_root() {
            // Then nothing runs without a user of its own, who may not read it.
            assert!(matches!(own.check_hides(data.path()), Err(ConfineError::Root)));
            return;
        }
        own.check_hides(data.path()).unwrap();
        let shows = Confinement { paths: vec![data.path().to_owned()], ..own };
        assert!(matches!(shows.check_hides(&data.path().join("node")), Err(ConfineError::ShowsKeys(..))));
        assert!(matches!(shows.check_hides(Path::new("/etc/node")), Err(ConfineError::ShowsKeys(..))));
        let key = data.path().join("key.pem");
        std::fs::write(&key, "secret").unwrap();
        let checked = |mode| {
            std::fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
            shows.check_hides_files([&*key])
        };
        assert!(matches!(checked(0o600), Err(ConfineError::ShowsFile(..))));
        checked(0o644).expect("what everybody may read is no secret");
    }

    #[test]
    fn nothing_runs_as_root_and_an_unknown_user_is_told() {
        let as_user = |name: &str| Confinement { user: Some(name.to_owned()), ..confinement() };
        let check = |confinement: &Confinement| confinement.check(&std::env::temp_dir());
        let refused = check(&as_user("no-such-user")).unwrap_err().to_string();
        assert!(refused.contains("useradd --system no-such-user"), "{refused}");
        assert!(matches!(check(&as_user("root")), Err(ConfineError::UserIsRoot(_))));
        if geteuid().is_root() {
            assert!(matches!(check(&confinement()), Err(ConfineError::Root)));
            assert!(as_user("nobody").owner().unwrap().is_some());
        } else {
            assert!(matches!(check(&confinement()), Err(ConfineError::NeedsUser(_))));
            assert!(matches!(check(&as_user("nobody")), Err(ConfineError::NotRoot(_))));
        }
    }
}
