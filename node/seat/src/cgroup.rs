//! Cgroups of version 2: one for each run, with the seat's amounts as limits of all its processes together.
//!
//! They lie in `kolo-runs`, in the highest cgroup that the node may change; keepers are in one beside them, out of the reach of whoever ends
//! the node's. Invariants: a cgroup has a user's command in it or cgroups below it, never both; each is noted in its run's directory before it
//! is made, so that a later node finds it; only what is called `kolo-runs` is touched.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{AccessFlags, Pid, eaccess},
};

/// What limits the processes of a seat, and what is not limited where it is missing.
const CONTROLLERS: [(&str, &str); 3] =
    [("cpu", "the processors"), ("memory", "the sum of the memory"), ("pids", "the number of the processes")];
/// Where the cgroups of runs lie.
const RUNS: &str = "kolo-runs";
/// The cgroup of keepers.
const KEEPERS: &str = "keepers";
/// The share of the processors that all keepers have beside a cgroup of the usual weight, 100.
const KEEPERS_WEIGHT: &str = "25";
/// The cgroup of a node that may not stay where it was started: no cgroup has processes and limits for those below it.
const NODE: &str = "node";
/// The cgroup of the units of the machine.
const UNITS: &str = "system.slice";
/// What a process reads of its own cgroup.
const OWN: &str = "/proc/self/cgroup";
/// The file that says whether all of a cgroup are ended when one of them wants more memory than there is, and the score of one that never is.
const WHOLE: &str = "memory.oom.group";
const NEVER: &str = "-1000";
/// The time in which the processors are shared out, in microseconds.
const PERIOD_US: u64 = 100_000;
/// The least that the kernel takes for it.
const QUOTA_US_MIN: u64 = 1_000;
/// How long processes that were killed may take to go. Only one that the system itself holds takes longer.
const GONE_MAX: Duration = Duration::from_secs(2);

/// Why there are no cgroups for runs, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The machine has none.
    #[error("cgroups of version 2 are not mounted: boot with systemd.unified_cgroup_hierarchy=1")]
    NoVersion2,
    /// The kernel cannot end all processes of one.
    #[error("cgroups here cannot be ended as a whole (Linux 5.14 can)")]
    NoKill,
    /// The node may change none.
    #[error(
        "the node may not change its cgroup {path}: give its service Delegate=yes, DelegateSubgroup=node and ProtectControlGroups=no, or start it with `systemd-run --user --scope -p Delegate=yes kolo node ...`",
        path = .0.display()
    )]
    NotDelegated(PathBuf),
    /// The cgroup is used by others.
    #[error("the cgroup {path} has other processes in it: start the node in one of its own, such as by `systemd-run --scope -p Delegate=yes kolo node ...`", path = .0.display())]
    Shared(PathBuf),
    /// The system refuses.
    #[error("{path}: {source}", path = path.display())]
    System {
        /// What was used.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

fn system(path: &Path) -> impl Fn(io::Error) -> CgroupError {
    move |source| CgroupError::System { path: path.to_owned(), source }
}

/// The most that the processes of a seat may use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory, in MiB.
    pub memory_mib: Option<u64>,
    /// Processors, in thousandths of one.
    pub cpu_millicores: Option<u64>,
    /// Processes and threads.
    pub processes_max: u64,
}

/// Makes the place for the cgroups of runs, and moves this process away where it stands in the way. Where it is.
///
/// # Errors
/// [`CgroupError`], which says what to do; nothing is changed then but that `kolo-runs` may be there.
pub fn prepare() -> Result<PathBuf, CgroupError> {
    let (mount, own) = places_of(&read_text(Path::new(OWN))?)?;
    let mut ancestors: Vec<&Path> = own.ancestors().take_while(|path| path.starts_with(&mount)).collect();
    ancestors.reverse();
    let base = ancestors.into_iter().find(|path| may_change(path));
    let base = base.ok_or_else(|| CgroupError::NotDelegated(own.clone()))?;
    let runs = base.join(RUNS);
    make_directory(&runs)?;
    if !runs.join("cgroup.kill").exists() {
        return Err(CgroupError::NoKill);
    }
    if is_occupied(base)? {
        make_directory(&runs.join(NODE))?;
        join(&runs.join(NODE))?;
        if is_occupied(base)? {
            return Err(CgroupError::Shared(base.to_owned()));
        }
    }
    enable(base)?;
    make_directory(&runs.join(KEEPERS))?;
    enable(&runs)?;
    // A machine without the controller is told of by `misses`. Their memory is not limited: what they write for a run on a disk that is
    // memory counts for them, and one user's files would end the keepers of all.
    let _ = fs::write(runs.join(KEEPERS).join("cpu.weight"), KEEPERS_WEIGHT);
    Ok(runs)
}

/// What is not limited for the runs in a place, for their owner; the processes of a run are ended together all the same.
pub fn misses(runs: &Path) -> Vec<String> {
    missing_in(runs, "cgroup.subtree_control")
}

/// The same for units of systemd, which gives them what the machine has.
///
/// # Errors
/// [`CgroupError`] when the machine has no cgroups.
pub fn misses_of_units() -> Result<Vec<String>, CgroupError> {
    Ok(missing_in(&places_of(&read_text(Path::new(OWN))?)?.0, "cgroup.controllers"))
}

fn missing_in(place: &Path, file: &str) -> Vec<String> {
    let enabled = fs::read_to_string(place.join(file)).unwrap_or_default();
    let is_missing = |controller: &str| !enabled.split_whitespace().any(|name| name == controller);
    let missing = CONTROLLERS.iter().filter(|(controller, _)| is_missing(controller));
    let place = place.display();
    missing
        .map(|(controller, what)| format!("not limited for a seat: {what}, since {place} has no {controller}"))
        .collect()
}

/// The cgroup that systemd makes for a unit of the machine.
///
/// # Errors
/// [`CgroupError`] when the machine has none of version 2, or this process may not change it.
pub fn of_unit(name: &str) -> Result<PathBuf, CgroupError> {
    let units = places_of(&read_text(Path::new(OWN))?)?.0.join(UNITS);
    if may_change(&units) { Ok(units.join(name)) } else { Err(CgroupError::NotDelegated(units)) }
}

/// Where a cgroup is, by what a process in it reads of itself.
///
/// # Errors
/// [`CgroupError::NoVersion2`] where it is in none of version 2.
pub fn path_of(own: &str) -> Result<PathBuf, CgroupError> {
    Ok(places_of(own)?.1)
}

/// Takes a keeper out of the cgroup of its node.
///
/// # Errors
/// [`CgroupError::System`]; it then ends when that cgroup is ended.
pub fn leave_node(runs: &Path) -> Result<(), CgroupError> {
    join(&runs.join(KEEPERS))
}

/// The cgroup of a run.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// The one at this path, whether or not it is there.
    pub fn at(path: PathBuf) -> Cgroup {
        Cgroup(path)
    }

    /// What it is called; that of a unit is called like the unit.
    pub fn name(&self) -> Option<&str> {
        self.0.file_name()?.to_str()
    }

    /// The number by which the kernel tells the cgroup of a socket.
    ///
    /// # Errors
    /// When it is not there.
    pub fn number_of_kernel(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.0)?.ino())
    }

    /// Makes it, with its limits as far as its controllers are there.
    ///
    /// # Errors
    /// [`CgroupError::System`]; there is none then, or one without anything in it.
    pub fn make(&self, limits: Limits) -> Result<(), CgroupError> {
        fs::create_dir(&self.0).map_err(system(&self.0))?;
        let Limits { memory_mib, cpu_millicores, processes_max } = limits;
        if let Some(mib) = memory_mib {
            self.set("memory.max", mib.saturating_mul(1024 * 1024).to_string())?;
            self.set("memory.swap.max", "0")?;
        }
        // What is left of a command of which one process was killed would only seem to go on.
        self.set(WHOLE, "1")?;
        if let Some(millicores) = cpu_millicores {
            let quota_us = (millicores.saturating_mul(PERIOD_US) / 1000).max(QUOTA_US_MIN);
            self.set("cpu.max", format!("{quota_us} {PERIOD_US}"))?;
        }
        self.set("pids.max", processes_max.to_string())?;
        // A command that may write in it makes nothing below it.
        self.set("cgroup.max.descendants", "0")
    }

    /// Has the kernel end all of it but for one process when it wants more memory: who tells of it is to be left.
    ///
    /// # Errors
    /// [`CgroupError::System`]; it is as before then.
    pub fn spare(&self, pid: u32) -> Result<(), CgroupError> {
        let path = PathBuf::from(format!("/proc/{pid}/oom_score_adj"));
        write(&path, NEVER).map_err(system(&path))?;
        self.set(WHOLE, "1")
    }

    /// Puts this process into it, and with it all that come from it.
    ///
    /// # Errors
    /// [`CgroupError::System`].
    pub fn join(&self) -> Result<(), CgroupError> {
        join(&self.0)
    }

    /// Whether it limits the sum of the memory.
    pub fn has_memory(&self) -> bool {
        self.0.join("memory.max").exists()
    }

    /// Whether it limits the number of the processes.
    pub fn has_processes(&self) -> bool {
        self.0.join("pids.max").exists()
    }

    /// Whether the kernel has killed it for wanting more memory.
    pub fn was_out_of_memory(&self) -> bool {
        self.number("memory.events", "oom_kill").is_some_and(|count| count > 0)
    }

    /// How long its processes were on processors, in milliseconds; none where the kernel does not say.
    pub fn cpu_ms(&self) -> Option<u64> {
        self.number("cpu.stat", "usage_usec").map(|us| us / 1000)
    }

    /// Sends a signal to every process in it but for one.
    pub fn signal(&self, signal: Signal, but: u32) {
        let listed = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let but = i32::try_from(but).ok();
        for pid in listed.lines().filter_map(|line| line.parse().ok()).filter(|pid| Some(*pid) != but) {
            // An error says that it has just ended.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Sends SIGKILL to every process in it, those included that are being made.
    pub fn kill(&self) {
        // One that is gone has nothing in it.
        let _ = write(&self.0.join("cgroup.kill"), "1");
    }

    /// Whether a process is in it.
    pub fn is_used(&self) -> bool {
        self.number("cgroup.events", "populated").is_some_and(|count| count > 0)
    }

    /// Ends what is in it and removes it. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`CgroupError::System`] when it stays.
    pub fn end(&self) -> Result<(), CgroupError> {
        let began = Instant::now();
        loop {
            self.kill();
            match fs::remove_dir(&self.0) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if began.elapsed() > GONE_MAX => return Err(system(&self.0)(error)),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Sets a limit where its controller is there.
    fn set(&self, file: &str, value: impl AsRef<str>) -> Result<(), CgroupError> {
        let path = self.0.join(file);
        if path.exists() { write(&path, value.as_ref()).map_err(system(&path)) } else { Ok(()) }
    }

    fn number(&self, file: &str, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.0.join(file)).ok()?;
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        found.trim().parse().ok()
    }
}

fn read_text(path: &Path) -> Result<String, CgroupError> {
    fs::read_to_string(path).map_err(system(path))
}

/// As [`places`], by the mounts of this process.
fn places_of(own: &str) -> Result<(PathBuf, PathBuf), CgroupError> {
    places(&read_text(Path::new("/proc/self/mountinfo"))?, own).ok_or(CgroupError::NoVersion2)
}

/// Where cgroups of version 2 are mounted, and the one of this process; none where it is in none that can be seen.
fn places(mounts: &str, own: &str) -> Option<(PathBuf, PathBuf)> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        kind.strip_prefix("cgroup2 ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = Path::new(own).strip_prefix(root).ok()?;
        let is_plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        is_plain.then(|| (PathBuf::from(point), Path::new(point).join(below)))
    })
}

/// Whether this process may make cgroups below one and move processes there.
fn may_change(path: &Path) -> bool {
    let files = [path.to_owned(), path.join("cgroup.procs"), path.join("cgroup.subtree_control")];
    files.iter().all(|file| eaccess(file, AccessFlags::W_OK).is_ok())
}

fn make_directory(path: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(system(path)(error)),
        _ => Ok(()),
    }
}

/// Whether processes in a cgroup keep those below it from having any with limits. In that of the whole machine they do not.
fn is_occupied(path: &Path) -> Result<bool, CgroupError> {
    let processes = path.join("cgroup.procs");
    let text = fs::read_to_string(&processes).map_err(system(&processes))?;
    Ok(path.join("cgroup.type").exists() && !text.trim().is_empty())
}

/// Gives the cgroups below one all controllers that it has. What the kernel does not give is among the [`misses`].
fn enable(path: &Path) -> Result<(), CgroupError> {
    let read = |name: &str| fs::read_to_string(path.join(name)).map_err(system(path));
    let (there, enabled) = (read("cgroup.controllers")?, read("cgroup.subtree_control")?);
    let has = |text: &str, controller: &str| text.split_whitespace().any(|name| name == controller);
    for (controller, _) in CONTROLLERS {
        if has(&there, controller) && !has(&enabled, controller) {
            let _ = write(&path.join("cgroup.subtree_control"), &format!("+{controller}"));
        }
    }
    Ok(())
}

fn join(path: &Path) -> Result<(), CgroupError> {
    write(&path.join("cgroup.procs"), "0").map_err(system(path))
}

/// Writes at once, as these files want it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    File::options().write(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_of_a_process_is_found_wherever_they_are_mounted() {
        let at = |mounts: &str, own: &str| {
            places(mounts, own).map(|(mount, own)| (mount.display().to_string(), own.display().to_string()))
        };
        let found = |mount: &str, own: &str| Some((mount.to_owned(), own.to_owned()));
        let plain = "24 31 0:22 / /proc rw - proc proc rw\n34 24 0:29 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let service = "0::/system.slice/kolo.service\n";
        let own = "/sys/fs/cgroup/system.slice/kolo.service";
        assert_eq!(at(plain, service), found("/sys/fs/cgroup", own));
        assert_eq!(at(plain, "0::/\n"), found("/sys/fs/cgroup", "/sys/fs/cgroup/"));
        let hybrid = "30 29 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n39 29 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let both = "4:memory:/a/b\n0::/c\n";
        assert_eq!(at(hybrid, both), found("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/c"));
        let part = "34 24 0:29 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(at(part, "0::/docker/1/x\n"), found("/sys/fs/cgroup", "/sys/fs/cgroup/x"));
        for (mounts, own) in
            [(part, "0::/docker/2\n"), (plain, "0::/../other\n"), (hybrid, "4:memory:/a\n"), ("", service)]
        {
            assert_eq!(at(mounts, own), None, "{own}");
        }
    }
}
