//! The process that becomes the command.
//!
//! The keeper starts it with the outputs and the input of the command already in place. It prepares itself, says so at the `barrier` of
//! the run's directory, waits there for the word, and then runs the command in its own place. Invariant: nothing of the user's has run before
//! the word; and it ends with its keeper, but for a container: podman starts that elsewhere, and the node ends it when it sees that its
//! keeper is gone, or when it starts again. A unit of systemd is made before the word, and waits for it ([`in_unit`]).

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::{
        fd::{IntoRawFd as _, OwnedFd, RawFd},
        unix::{
            fs::{PermissionsExt as _, chown},
            net::UnixStream,
            process::CommandExt as _,
        },
    },
    path::{Path, PathBuf},
    process::Command,
};

use kolo_trust::files;
use nix::{
    sys::{
        memfd::{MFdFlags, memfd_create},
        prctl::set_pdeathsig,
        signal::{SigSet, Signal},
        stat::Mode,
    },
    unistd::{getppid, setsid},
};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::{
    Runner,
    bubblewrap::{SELF_IN_SANDBOX, own_file},
    cgroup::Cgroup,
    closing::close_files,
    directory::{RunDirectory, Task},
    keeper::{environment, in_unit::Work},
    podman::Container,
    ssh,
    unit::{BARRIER_IN_UNIT, Unit, WORK_IN_UNIT},
};

/// What stands at the barrier before a reason.
pub const READY: u8 = b'r';
/// What stands before a reason when it is not ready, or could not start.
pub const FAILED: u8 = b'f';
/// The word that it may start.
pub const GO: u8 = b'g';
/// The file in the directory of a run in which the sandbox says how far it came.
pub const SANDBOX_STATUS: &str = "sandbox";
/// Most words that bubblewrap takes, with those of the command.
const SANDBOX_WORDS_MAX: usize = 9000;
/// The variables of the command inside of a sandbox: they mean nothing to anything before the command.
const VARIABLES_IN_SANDBOX: &str = "/run/kolo-variables";
/// Largest file of variables.
const VARIABLES_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What is known of a run of which nothing was started yet.
struct Begun {
    task: Task,
    scratch: PathBuf,
    cgroup: Option<Cgroup>,
    /// Where the sandbox says how far it came.
    status: File,
}

/// What this process becomes.
enum Prepared {
    Command(Command),
    /// The server of SSH: it is in this program, and needs no other one.
    Ssh(Vec<String>, ssh::Home),
}

/// Prepares, waits for the word, and becomes the command. Returns only when it could not, and has then said why at the barrier.
pub fn launch(directory: &Path) -> io::Result<()> {
    let keeper = getppid();
    let directory = RunDirectory::at(directory);
    // The keeper is in that directory; a longer path than a socket may have is no trouble then.
    let barrier = || UnixStream::connect("barrier");
    if directory.task().is_ok_and(|task| task.confinement.runner == Runner::Systemd) {
        // The unit comes to the barrier itself, unless there is none.
        let failed = match begin(&directory, keeper).and_then(|begun| in_unit(&directory, &begun)) {
            Ok(mut command) => {
                let error = command.exec();
                cannot_be_run(&command.get_program().to_string_lossy(), &error)
            }
            Err(why) => why,
        };
        return say_failed(&mut barrier()?, &failed);
    }
    // Later it would be closed to it.
    let mut barrier = barrier()?;
    let failed = match begin(&directory, keeper).and_then(|begun| prepare(begun, &barrier)) {
        Ok(prepared) => {
            barrier.write_all(&[READY])?;
            let mut word = [0];
            barrier.read_exact(&mut word)?;
            if word[0] != GO {
                return Ok(());
            }
            // The barrier closes with it: the keeper sees that it has become the command.
            match prepared {
                Prepared::Command(mut command) => {
                    let error = command.exec();
                    cannot_be_run(&command.get_program().to_string_lossy(), &error)
                }
                Prepared::Ssh(keys, home) => {
                    drop(barrier);
                    return ssh::serve(&keys, home).map_err(io::Error::other);
                }
            }
        }
        Err(reason) => reason,
    };
    say_failed(&mut barrier, &failed)
}

pub(super) fn say_failed(barrier: &mut UnixStream, reason: &str) -> io::Result<()> {
    barrier.write_all(&[&[FAILED], reason.as_bytes()].concat())
}

pub(super) fn cannot_be_run(program: &str, error: &io::Error) -> String {
    format!("{program} cannot be run: {error}")
}

fn begin(directory: &RunDirectory, keeper: nix::unistd::Pid) -> Result<Begun, String> {
    let failed = |doing: &'static str| move |error: nix::Error| format!("{doing}: {}", error.desc());
    let task = directory.task().map_err(|error| error.to_string())?;
    let scratch = directory.scratch().map_err(|error| error.to_string())?.ok_or("it has no scratch directory")?;
    let cgroup = directory.cgroup().map_err(|error| error.to_string())?;
    setsid().map_err(failed("it gets no session of its own"))?;
    // In a sandbox or unit it is the command that gets it: what a terminal sends must not reach what is around it.
    // podman passes them on itself.
    if task.order.terminal.is_some() && matches!(task.confinement.runner, Runner::None | Runner::Podman) {
        rustix::process::ioctl_tiocsctty(io::stdin()).map_err(|error| format!("it gets no terminal: {error}"))?;
    }
    nix::sys::stat::umask(Mode::from_bits_truncate(0o022));
    let status = File::create(directory.file(SANDBOX_STATUS)).map_err(|error| error.to_string())?;
    task.confinement.enter(&scratch, cgroup.as_ref()).map_err(|error| error.to_string())?;
    // A process that becomes another user forgets this.
    set_pdeathsig(Signal::SIGKILL).map_err(failed("it would outlive its keeper"))?;
    if getppid() != keeper {
        return Err("its keeper has ended".to_owned());
    }
    Ok(Begun { task, scratch, cgroup, status })
}

fn prepare(Begun { task, scratch, cgroup, status }: Begun, barrier: &UnixStream) -> Result<Prepared, String> {
    match task.confinement.runner {
        Runner::Podman => in_container(&task, &scratch, task.confinement.process_memory_mib(cgroup.as_ref())),
        Runner::None | Runner::Bubblewrap | Runner::Systemd => prepared(&task, &scratch, (status, barrier)),
    }
}

/// The command with its environment and its directory; an error when there is no such program.
fn prepared(task: &Task, scratch: &Path, (status, barrier): (File, &UnixStream)) -> Result<Prepared, String> {
    let order = &task.order;
    let variables = environment::of(task, scratch);
    let directory = directory_of(task, scratch);
    // What a sandbox hides is as if it were not there.
    let is_shown = |file: &Path| task.confinement.shows(scratch, file);
    enter(&directory, is_shown(&directory))?;
    let is_ssh = !order.ssh_keys.is_empty();
    let sandbox = task.confinement.sandbox().map_err(|error| error.to_string())?;
    let Some(sandbox) = sandbox else {
        if is_ssh {
            return Ok(Prepared::Ssh(order.ssh_keys.clone(), ssh::Home { directory, variables }));
        }
        let (program, arguments) = order.command.split_first().ok_or("there is no command")?;
        let mut command = Command::new(find_program(program, path_of(&variables), is_shown)?);
        command.arg0(program).args(arguments).env_clear().envs(&variables);
        return Ok(Prepared::Command(command));
    };
    let given = |fd: OwnedFd| given_to_sandbox(fd).map_err(|error| format!("it cannot say how far it came: {error}"));
    // A server says itself what goes wrong with it.
    let barrier = (!is_ssh).then(|| barrier.try_clone().map_err(|error| format!("it cannot be told from: {error}")));
    let barrier = barrier.transpose()?.map(|barrier| given(barrier.into())).transpose()?;
    if !is_ssh {
        find_program(order.command.first().ok_or("there is no command")?, path_of(&variables), is_shown)?;
    }
    let own = task.confinement.own_paths(scratch);
    let inside = words_in_sandbox(is_ssh, own, (order.terminal.is_some(), barrier), words_of(task));
    let words = task.confinement.wrapped(scratch, &directory);
    let count = words.len() + inside.len() + 9;
    if count > SANDBOX_WORDS_MAX {
        let most = "the sandbox takes";
        return Err(format!("too many arguments and variables: {most} {SANDBOX_WORDS_MAX} words, not {count}"));
    }
    let handed = hand_over(&variables).map_err(|error| format!("its variables cannot be handed over: {error}"))?;
    // It closes it before it becomes the command.
    let status = given(status.into())?;
    let mut command = Command::new(sandbox);
    // The sandbox itself runs outside of it: nothing of the order's is in its environment but what it is known by.
    command.env_clear().envs([environment::mark(scratch)]);
    command.arg("--json-status-fd").arg(status.to_string());
    command.args(["--ro-bind", &own_file()?, SELF_IN_SANDBOX, "--file", &handed.to_string(), VARIABLES_IN_SANDBOX]);
    command.args(words).arg(SELF_IN_SANDBOX).args(inside);
    Ok(Prepared::Command(command))
}

/// The container with the command, which is made, and starts when it hears the word.
fn in_container(task: &Task, scratch: &Path, process_memory_mib: Option<u64>) -> Result<Prepared, String> {
    let order = &task.order;
    let directory = order.directory.as_ref().map_or_else(|| scratch.to_owned(), |path| scratch.join(path));
    // Elsewhere the image has it.
    if directory.starts_with(scratch) {
        enter(&directory, true)?;
    }
    let container = Container {
        confinement: &task.confinement,
        scratch,
        image: order.image.as_deref().ok_or("it names no image")?,
        command: &order.command,
        variables: &environment::of(task, scratch),
        directory: &directory,
        has_stdin: order.has_stdin,
        has_terminal: order.terminal.is_some(),
        process_memory_mib,
    };
    container.make().map(Prepared::Command).map_err(|error| error.to_string())
}

/// What makes the unit with the command, which waits in it for the word.
fn in_unit(directory: &RunDirectory, Begun { task, scratch, cgroup, .. }: &Begun) -> Result<Command, String> {
    let name = cgroup.as_ref().and_then(Cgroup::name).ok_or("it has no name")?;
    let order = &task.order;
    let work = Work {
        directory: directory_of(task, scratch),
        own: task.confinement.own_paths(scratch).map(Path::to_owned).collect(),
        has_terminal: order.terminal.is_some(),
        is_ssh: !order.ssh_keys.is_empty(),
        words: words_of(task).to_owned(),
    };
    let work = serde_json::to_string(&work).map_err(|error| error.to_string())?;
    let owner = task.confinement.owner().map_err(|error| error.to_string())?;
    let mut shown = vec![(directory.file("barrier"), BARRIER_IN_UNIT)];
    let variables = text_of(&environment::of(task, scratch));
    for (name, text, seen) in [("work", work, WORK_IN_UNIT), ("variables", variables, VARIABLES_IN_SANDBOX)] {
        let file = directory.file(name);
        files::replace(&file, &text).map_err(|error| error.to_string())?;
        let (uid, gid) = owner.map_or((None, None), |(uid, gid)| (Some(uid.as_raw()), Some(gid.as_raw())));
        chown(&file, uid, gid).map_err(|error| format!("its {name} cannot be handed over: {error}"))?;
        shown.push((file, seen));
    }
    let unit = Unit { confinement: &task.confinement, name, shown: &shown, scratch: Some(scratch), grace: task.grace };
    let mut command = unit.command().map_err(|error| error.to_string())?;
    command.arg("in-unit");
    Ok(command)
}

/// Where the command starts.
fn directory_of(task: &Task, scratch: &Path) -> PathBuf {
    let begins_in = || task.order.directory.as_ref().map_or_else(|| scratch.to_owned(), |path| scratch.join(path));
    task.home.as_ref().map_or_else(begins_in, |home| home.directory.clone())
}

/// The command, or the keys of a session of SSH.
fn words_of(task: &Task) -> &[String] {
    if task.order.ssh_keys.is_empty() { &task.order.command } else { &task.order.ssh_keys }
}

/// What runs in a sandbox: this program, which closes files and becomes the command.
pub(super) fn words_in_sandbox<'a>(
    is_ssh: bool,
    own: impl Iterator<Item = &'a Path>,
    (has_terminal, barrier): (bool, Option<RawFd>),
    words_of_order: &[String],
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![if is_ssh { "ssh-server" } else { "in-sandbox" }.into()];
    words.extend(own.flat_map(|path| ["--own".into(), path.into()]));
    words.extend(has_terminal.then(|| "--terminal".into()));
    words.extend(barrier.into_iter().flat_map(|number| ["--barrier".into(), number.to_string().into()]));
    words.push("--".into());
    words.extend(words_of_order.iter().map(Into::into));
    words
}

/// Closes files to this process, which is in a sandbox, but for what is its `own`. The variables of the command.
///
/// # Errors
/// When they cannot be read, or files not be closed.
pub fn enter_sandbox(own: &[PathBuf]) -> io::Result<BTreeMap<String, String>> {
    let variables = variables_in_sandbox()?;
    close_files(own.iter().map(PathBuf::as_path)).map_err(io::Error::other)?;
    // What has started it may hear none.
    SigSet::empty().thread_set_mask()?;
    Ok(variables)
}

/// The variables of the command that this process is in a sandbox for.
pub(super) fn variables_in_sandbox() -> io::Result<BTreeMap<String, String>> {
    let text = files::read(Path::new(VARIABLES_IN_SANDBOX), VARIABLES_BYTES_MAX).map_err(io::Error::other)?;
    let text = text.unwrap_or_default();
    let variables = text.split_terminator('\0').filter_map(|variable| variable.split_once('='));
    Ok(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// Goes into the directory of the command.
pub(super) fn enter(directory: &Path, is_shown: bool) -> Result<(), String> {
    let entered = match is_shown {
        true => std::env::set_current_dir(directory),
        false => Err(io::ErrorKind::NotFound.into()),
    };
    entered.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{}: no such directory", directory.display()),
        _ => format!("{}: {error}", directory.display()),
    })
}

pub(super) fn path_of(variables: &BTreeMap<String, String>) -> &str {
    variables.get("PATH").map_or("", String::as_str)
}

/// Becomes a command in a sandbox, as the leader of a session that has its standard input as its terminal where it `has_terminal`. Returns
/// only when it could not, and has then said why at the barrier, which is open as this number.
///
/// # Errors
/// The same, where the barrier is not there.
pub fn in_sandbox(command: &[String], own: &[PathBuf], has_terminal: bool, barrier: Option<RawFd>) -> io::Result<()> {
    let barrier = barrier.and_then(taken);
    let error = becomes(command, own, has_terminal);
    match barrier {
        Some(barrier) => {
            let program = command.first().map(String::as_str).unwrap_or_default();
            say_failed(&mut UnixStream::from(barrier), &cannot_be_run(program, &error))
        }
        None => Err(error),
    }
}

/// Becomes the command; why not, when it returns.
fn becomes(command: &[String], own: &[PathBuf], has_terminal: bool) -> io::Error {
    let prepared = || {
        let variables = enter_sandbox(own)?;
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        if has_terminal {
            setsid()?;
            rustix::process::ioctl_tiocsctty(io::stdin())?;
        }
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(variables);
        io::Result::Ok(command)
    };
    prepared().map_or_else(|error| error, |mut command| command.exec())
}

/// What is left open over the start of the sandbox, and its number there.
fn given_to_sandbox(fd: OwnedFd) -> io::Result<RawFd> {
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty())?;
    Ok(fd.into_raw_fd())
}

/// Takes over what was left open as this number, so that it closes when this process becomes another program; none where the system gives
/// nobody his own descriptors.
fn taken(number: RawFd) -> Option<OwnedFd> {
    let own = pidfd_open(getpid(), PidfdFlags::empty());
    let taken = own.and_then(|own| pidfd_getfd(own, number, PidfdGetfdFlags::empty())).ok();
    // The command is to have neither.
    let _ = nix::unistd::close(number);
    taken
}

/// The variables in a file without a name that the sandbox has open: a command line could be read by all.
fn hand_over(variables: &BTreeMap<String, String>) -> io::Result<RawFd> {
    let mut file = File::from(memfd_create("variables", MFdFlags::empty())?);
    file.write_all(text_of(variables).as_bytes())?;
    file.rewind()?;
    Ok(file.into_raw_fd())
}

fn text_of(variables: &BTreeMap<String, String>) -> String {
    variables.iter().flat_map(|(name, value)| [name, "=", value, "\0"]).collect()
}

/// The file of a program, looked for as a shell does, from the present directory, among those that are shown.
pub(super) fn find_program(program: &str, path: &str, is_shown: impl Fn(&Path) -> bool) -> Result<PathBuf, String> {
    let executable = |file: PathBuf| executable(file, &is_shown);
    if program.contains('/') {
        return executable(PathBuf::from(program)).map_err(|why| format!("{program}: {why}"));
    }
    let candidates = path.split(':').map(|directory| Path::new(directory).join(program));
    candidates.map(executable).find_map(Result::ok).ok_or_else(|| format!("{program}: not found in PATH ({path})"))
}

fn executable(file: PathBuf, is_shown: &impl Fn(&Path) -> bool) -> Result<PathBuf, String> {
    let found = if is_shown(&file) { file.metadata() } else { Err(io::ErrorKind::NotFound.into()) };
    match found {
        Ok(found) if found.is_dir() => Err("is a directory".to_owned()),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => Err("is not executable (chmod +x)".to_owned()),
        Ok(_) => Ok(file),
        // One text for what is not there and what is hidden.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err("no such file".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let find_program = |program: &str, path: &str| find_program(program, path, |_| true);
        assert!(find_program("sh", "/no/such:/bin").is_ok_and(|found| found == Path::new("/bin/sh")));
        assert!(find_program("/bin/sh", "").is_ok());
        assert_eq!(find_program("no-such-program", "/bin").unwrap_err(), "no-such-program: not found in PATH (/bin)");
        assert_eq!(find_program("/bin", "").unwrap_err(), "/bin: is a directory");
        assert_eq!(find_program("/etc/passwd", "").unwrap_err(), "/etc/passwd: is not executable (chmod +x)");
        assert_eq!(find_program("/no/such", "").unwrap_err(), "/no/such: no such file");
        let hidden =
            |program: &str| super::find_program(program, "/bin", |file| !file.starts_with("/etc")).unwrap_err();
        assert_eq!(hidden("/etc/passwd"), "/etc/passwd: no such file");
        assert_eq!(hidden("/etc/no-such"), "/etc/no-such: no such file");
    }
}
