//! Why commands are not confined, and what to do about it.

use std::path::PathBuf;

use nix::errno::Errno;

use super::{cgroup::CgroupError, uids::UidRange};

/// Most characters of the directory of scratch directories where podman takes no path of more than 50.
pub(super) const SCRATCH_PATH_MAX: usize = 25;

/// Why commands cannot be confined as the owner wants, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Nothing runs as root.
    #[error("this node runs as root, and commands of users do not: set runner_user, such as runner_user = \"nobody\"")]
    Root,
    /// The user is not one.
    #[error("runner_user: this machine has no user {0}: sudo useradd --system {0}")]
    NoUser(String),
    /// The user is root.
    #[error("runner_user: {0} is root; name another user")]
    UserIsRoot(String),
    /// Only root becomes somebody else.
    #[error(
        "runner_user: only a node that runs as root can run commands as {0}; leave the key out to run them as the node's user"
    )]
    NotRoot(String),
    /// Runs cannot have ids of their own.
    #[error("runner_uids: {0}: {1}; leave the key out, or set runner_uids = \"off\"")]
    NoUids(UidRange, &'static str),
    /// Commands would run as the user who owns the node's keys.
    #[error(
        "runner = {0:?}: commands would run as the node's own user, who reads its keys and ends its processes: run the node as root with runner_user, or set runner = \"bubblewrap\""
    )]
    NeedsUser(&'static str),
    /// A directory for commands is not there.
    #[error("runner_paths: {path}: {source}; make the directory, or leave it out", path = .path.display())]
    NoPath {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Nothing would close files to commands.
    #[error("runner = \"none\": this kernel has no Landlock (Linux 5.13, lsm=landlock): set runner = \"bubblewrap\"")]
    NoLandlock,
    /// The sandbox is not installed.
    #[error("runner = \"bubblewrap\": bwrap is not installed: sudo apt install bubblewrap (or dnf, zypper, pacman)")]
    NoBubblewrap,
    /// The sandbox does not work here.
    #[error("runner = \"bubblewrap\": bwrap makes no sandbox here ({0}){1}")]
    BubblewrapFails(String, &'static str),
    /// The user of commands cannot run this program, which works within the sandbox.
    #[error(
        "runner = \"bubblewrap\": this program, {path}, works within the sandbox, and the user of commands cannot run it: put it where all users reach it, such as in /usr/local/bin (chmod a+x for the file and each directory above it)",
        path = .0.display()
    )]
    OwnFile(PathBuf),
    /// There is no systemd that makes units.
    #[error(
        "runner = \"systemd\": this machine was not started by systemd, or systemd-run is missing: set runner = \"bubblewrap\""
    )]
    NoSystemd,
    /// systemd makes no unit here.
    #[error("runner = \"systemd\": systemd makes no unit here: {0}")]
    SystemdFails(String),
    /// podman is not installed.
    #[error(
        "runner = \"podman\": podman is not installed: sudo apt install podman crun uidmap (or dnf, zypper, pacman)"
    )]
    NoPodman,
    /// podman makes no container here.
    #[error("runner = \"podman\": podman makes no container here: {0}")]
    PodmanFails(String),
    /// podman makes no container with so long a path.
    #[error(
        "runner_scratch: podman makes no container in {path} ({said}): older ones take a path of at most {SCRATCH_PATH_MAX} characters; name a shorter one, or install podman 5",
        path = .path.display()
    )]
    LongScratch {
        /// Where scratch directories are made.
        path: PathBuf,
        /// What podman says.
        said: String,
    },
    /// Scratch directories cannot be made.
    #[error("runner_scratch: no directory can be made in {path}: {source}", path = .path.display())]
    Scratch {
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: Errno,
    },
    /// The owner has named no image.
    #[error(
        "runner = \"podman\": no image may be used: name some, such as runner_images = [\"docker.io/library/debian:stable\"]"
    )]
    NoImages,
    /// An image is not there, and nothing is pulled when a command starts.
    #[error("runner_images: {0} is not in the store of the user that commands run as: {1}")]
    NoImage(String, String),
    /// Nobody knows where the images are.
    #[error(
        "runner_image_store: the user that commands run as has no home directory; name the directory of his images"
    )]
    NoStore,
    /// podman cannot take it.
    #[error(
        "the variable {0:?} is not handed to a container: its name or value has several lines, or begins as a comment; put it into a file"
    )]
    Variable(String),
    /// The order does not fit what runs here.
    #[error("{0}")]
    Image(String),
    /// Commands would read the node's keys.
    #[error(
        "commands see {1}, and the node's keys are there, in {0}: keep data_dir elsewhere, such as in /var/lib/kolo, or run the node as root with runner_user"
    )]
    ShowsKeys(PathBuf, PathBuf),
    /// A file of the owner that others may not read is visible to commands.
    #[error(
        "commands see {1}, and {0} is there, which the node's own user may read and others may not: keep it elsewhere, such as in /etc/kolo, or run the node as root with runner_user"
    )]
    ShowsFile(PathBuf, PathBuf),
    /// The system refuses.
    #[error("{doing}: {source}")]
    System {
        /// What was done.
        doing: &'static str,
        /// What the system says.
        source: Errno,
    },
    /// The command gets no cgroup.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// Landlock refuses.
    #[error("the files cannot be closed to it: {0}")]
    Landlock(String),
}

/// The error of a call to the system.
pub(super) fn system(doing: &'static str) -> impl Fn(Errno) -> ConfineError {
    move |source| ConfineError::System { doing, source }
}
