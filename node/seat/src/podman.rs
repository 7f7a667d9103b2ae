//! Commands in containers of podman, from images that the owner has named.
//!
//! podman runs as the user of commands, with a place of its own for each run beside its scratch directory: the container and podman's own
//! state are in there, and the images come from that user's store, which is only read. So runs share nothing, and once the processes of one
//! are gone nothing is left but its place. Invariants: nothing is pulled; no image is used that the owner has not named; a container has no
//! capabilities, and its root is the user of commands.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io::{self, Read as _, Seek as _},
    os::unix::{
        fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use kolo_trust::files;
use nix::{
    libc::{O_DIRECTORY, O_NOFOLLOW},
    sys::memfd::{MFdFlags, memfd_create},
    unistd::{Gid, Uid, User, fchown, geteuid, mkdtemp},
};

use super::{
    confine::{Confinement, tool},
    confine_error::{ConfineError, SCRATCH_PATH_MAX},
    processes,
    removal::remove_tree,
};

/// The program.
const PODMAN: &str = "podman";
/// Where podman looks for what it starts.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// Where podman keeps what goes with the machine; older ones take no path of more than 50 characters.
const RUNROOT: &str = "r";
/// The container of a place.
const NAME: &str = "seat";
/// The variable of podman's processes that says whose place they work in.
const MARK: &str = "XDG_RUNTIME_DIR";
/// The file with the number of the first process of the container.
const PID: &str = "pid";
/// Longest number of a process, with its end of line.
const PID_BYTES_MAX: u64 = 16;
/// Most of what podman complains of that is looked at.
const SAID_BYTES_MAX: u64 = 64 * 1024;
/// Where a user's images are, below his home directory, unless the owner says otherwise.
const STORE: &str = ".local/share/containers/storage";
/// A command that no image has: it is tried whether a container comes up, not what is in it.
const NOTHING: &str = "/kolo-tries-this-image";

/// The directory in which podman works for one run.
#[derive(Debug)]
pub struct Place(PathBuf);

impl Place {
    /// That of the run with this scratch directory, whether or not it is there.
    pub fn of(scratch: &Path) -> Place {
        Place(scratch.with_extension(PODMAN))
    }

    /// Makes it, for this user only.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn make(&self, owner: Option<(Uid, Gid)>) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(&self.0)?;
        let opened = File::options().read(true).custom_flags(O_DIRECTORY | O_NOFOLLOW).open(&self.0)?;
        owner.map_or(Ok(()), |(uid, gid)| Ok(fchown(&opened, Some(uid), Some(gid))?))
    }

    /// The first process of the container; none before it has one.
    pub fn init(&self) -> Option<u32> {
        files::read(&self.0.join(PID), PID_BYTES_MAX).ok().flatten()?.trim().parse().ok()
    }

    /// Ends what podman has left running there, and removes it.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn remove(&self) -> io::Result<()> {
        if !self.0.exists() {
            return Ok(());
        }
        processes::kill_marked(MARK, &self.0.to_string_lossy());
        remove_tree(&self.0)
    }

    /// podman in this place, as whoever starts it.
    fn podman(&self, store: &Path) -> Result<Command, ConfineError> {
        let program = tool(PODMAN).ok_or(ConfineError::NoPodman)?;
        let mut command = Command::new(program);
        command.env_clear().env("PATH", PATH).env("HOME", &self.0).env(MARK, &self.0).current_dir("/");
        command.arg("--root").arg(self.0.join("root")).arg("--runroot").arg(self.0.join(RUNROOT));
        command.args(["--storage-driver", "overlay", "--storage-opt"]);
        command.arg(format!("additionalimagestore={}", store.display()));
        command.args(["--events-backend", "none", "--cgroup-manager", "cgroupfs", "--log-level", "error"]);
        Ok(command)
    }

    /// Runs a podman that ends soon; what it complains of is the error. It leaves a process behind that keeps what it writes to open.
    fn finish(&self, mut command: Command, user: Option<&User>) -> Result<(), ConfineError> {
        let failed = |error: io::Error| ConfineError::PodmanFails(error.to_string());
        let said = memfd_create("said", MFdFlags::MFD_CLOEXEC).map_err(|error| failed(error.into()))?;
        let mut said = File::from(said);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone().map_err(failed)?);
        if let Some(user) = user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        if command.status().map_err(failed)?.success() {
            return Ok(());
        }
        said.rewind().map_err(failed)?;
        let mut bytes = Vec::new();
        said.take(SAID_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
        let said = String::from_utf8_lossy(&bytes);
        // Warnings stand between.
        let errors: Vec<&str> = said.lines().filter(|line| !line.starts_with("time=")).collect();
        Err(ConfineError::PodmanFails(errors.join("; ").trim_start_matches("Error: ").to_owned()))
    }
}

/// What a container is made of.
#[derive(Debug)]
pub struct Container<'a> {
    /// How the command is confined.
    pub confinement: &'a Confinement,
    /// The scratch directory of the run, which the command may write.
    pub scratch: &'a Path,
    /// The image, which the owner has named.
    pub image: &'a str,
    /// What runs in it.
    pub command: &'a [String],
    /// Its environment, beside that of the image.
    pub variables: &'a BTreeMap<String, String>,
    /// Where it starts.
    pub directory: &'a Path,
    /// Whether it gets an input.
    pub has_stdin: bool,
    /// Whether it gets a terminal.
    pub has_terminal: bool,
    /// Most memory that each process has for itself, in MiB, where no cgroup limits the sum.
    pub process_memory_mib: Option<u64>,
}

impl Container<'_> {
    fn place(&self) -> Place {
        Place::of(self.scratch)
    }

    /// Makes the container in its place, as whoever calls this; nothing of it runs yet. What starts it, and ends with it.
    ///
    /// # Errors
    /// [`ConfineError`] when there is none.
    pub fn make(&self) -> Result<Command, ConfineError> {
        self.place().finish(self.creation()?, None)?;
        self.start()
    }

    fn start(&self) -> Result<Command, ConfineError> {
        let mut command = self.place().podman(&self.confinement.image_store()?)?;
        // Without keys to detach by: what is sent to the command is the command's.
        command.args(["start", "--attach", "--sig-proxy=false", "--detach-keys", ""]);
        command.args(self.has_stdin.then_some("--interactive")).arg(NAME);
        Ok(command)
    }

    fn creation(&self) -> Result<Command, ConfineError> {
        let place = self.place();
        let mut command = place.podman(&self.confinement.image_store()?)?;
        command.args(["create", "--name", NAME, "--pull", "never", "--init", "--user", "0:0", "--entrypoint", ""]);
        command.args(["--cap-drop", "all", "--security-opt", "no-new-privileges", "--log-driver", "none"]);
        // The cgroup that it is started in has the limits of the seat, and is ended as a whole.
        command.args(["--cgroups", "disabled", "--systemd=false", "--no-healthcheck", "--image-volume", "ignore"]);
        command.args(["--http-proxy=false", "--network", if self.confinement.has_network { "host" } else { "none" }]);
        if let Some(bytes) = self.process_memory_mib.map(|mib| mib.saturating_mul(1024 * 1024)) {
            command.arg("--ulimit").arg(format!("data={bytes}:{bytes}"));
        }
        for path in &self.confinement.paths {
            command.arg("--volume").arg(format!("{path}:{path}", path = path.display()));
        }
        // Where there is SELinux, it gets the label of this container alone; the owner's own directories keep theirs.
        command.arg("--volume").arg(format!("{path}:{path}:Z", path = self.scratch.display()));
        command.arg("--pidfile").arg(place.0.join(PID)).arg("--workdir").arg(self.directory);
        if !self.variables.is_empty() {
            command.arg("--env-file").arg(self.write_variables()?);
        }
        command.args(self.has_stdin.then_some("--interactive")).args(self.has_terminal.then_some("--tty"));
        command.arg(self.image).args(self.command);
        Ok(command)
    }

    /// The file of the variables: a command line could be read by all.
    fn write_variables(&self) -> Result<PathBuf, ConfineError> {
        let line_of = |(name, value): (&String, &String)| {
            // podman reads the file by lines, and knows no quotes.
            let is_whole = !name.contains(['\n', '\r']) && !value.contains(['\n', '\r']);
            let is_name = !name.starts_with('#') && !name.starts_with(char::is_whitespace);
            (is_whole && is_name)
                .then(|| format!("{name}={value}\n"))
                .ok_or_else(|| ConfineError::Variable(name.clone()))
        };
        let text = self.variables.iter().map(line_of).collect::<Result<String, ConfineError>>()?;
        let path = self.place().0.join("variables");
        files::replace(&path, &text).map_err(|error| ConfineError::PodmanFails(error.to_string()))?;
        Ok(path)
    }
}

impl Confinement {
    /// Where the images of the user of commands are.
    ///
    /// # Errors
    /// [`ConfineError::NoStore`] when he has no home directory, and the owner has named none.
    pub fn image_store(&self) -> Result<PathBuf, ConfineError> {
        if let Some(store) = &self.image_store {
            return Ok(store.clone());
        }
        let me = || User::from_uid(geteuid()).ok().flatten();
        let home = self.user()?.or_else(me).map(|user| user.dir).filter(|home| home.is_dir());
        home.map(|home| home.join(STORE)).ok_or(ConfineError::NoStore)
    }

    /// Whether a container comes up here from each of the owner's images, with its scratch directory in `scratch_in`.
    pub(super) fn try_images(&self, scratch_in: &Path) -> Result<(), ConfineError> {
        if self.images.is_empty() {
            return Err(ConfineError::NoImages);
        }
        let failed = |error: io::Error| ConfineError::PodmanFails(error.to_string());
        let user = self.user()?;
        let scratch = mkdtemp(&scratch_in.join("kolo-try-XXXXXX"))
            .map_err(|source| ConfineError::Scratch { path: scratch_in.to_owned(), source })?;
        let place = Place::of(&scratch);
        let tried = fs::set_permissions(&scratch, fs::Permissions::from_mode(0o755))
            .and_then(|()| place.make(user.as_ref().map(|user| (user.uid, user.gid))))
            .map_err(failed)
            .and_then(|()| self.try_in(&scratch, user.as_ref()));
        place.remove().and_then(|()| remove_tree(&scratch)).map_err(failed)?;
        match tried {
            Err(ConfineError::PodmanFails(said)) if scratch_in.as_os_str().len() > SCRATCH_PATH_MAX => {
                Err(ConfineError::LongScratch { path: scratch_in.to_owned(), said })
            }
            tried => tried,
        }
    }

    fn try_in(&self, scratch: &Path, user: Option<&User>) -> Result<(), ConfineError> {
        let (place, store) = (Place::of(scratch), self.image_store()?);
        for image in &self.images {
            let mut exists = place.podman(&store)?;
            exists.args(["image", "exists", image]);
            place.finish(exists, user).map_err(|error| self.no_image(image, error, &store))?;
        }
        let command = [NOTHING.to_owned()];
        let container = Container {
            confinement: self,
            scratch,
            image: &self.images[0],
            command: &command,
            variables: &BTreeMap::new(),
            directory: Path::new("/"),
            has_stdin: false,
            has_terminal: false,
            process_memory_mib: None,
        };
        place.finish(container.creation()?, user)?;
        let ended = place.finish(container.start()?, user);
        // That what is not there cannot be run is said by the first process of the container.
        if place.init().is_some() { Ok(()) } else { ended }
    }

    /// podman says nothing where the image is not there.
    fn no_image(&self, image: &str, error: ConfineError, store: &Path) -> ConfineError {
        if !matches!(&error, ConfineError::PodmanFails(said) if said.is_empty()) {
            return error;
        }
        let sudo = self.user.as_ref().map(|user| format!("sudo -u {user} ")).unwrap_or_default();
        let store = store.display();
        let pull = format!("{sudo}podman --root {store} --storage-driver overlay pull {image}");
        ConfineError::NoImage(image.to_owned(), pull)
    }
}
