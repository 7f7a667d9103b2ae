//! One process of nodes (`kolo node`, or many nodes together): its lives and their ends. And the programs that are run beside it.
//!
//! Invariant: dropping a [`NodeProcess`] leaves no process behind; an end that the harness did not cause is a crash.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Write as _,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use anyhow::{Context, ensure};
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};

use super::wait::locked;

/// Lines of a log that an error shows.
const TAIL_LINES: usize = 12;

/// A node's process ended by itself.
#[derive(Debug, thiserror::Error)]
#[error("{node} ended by itself ({status}); its last log lines:\n{log_tail}")]
pub struct Crashed {
    node: String,
    status: ExitStatus,
    log_tail: String,
}

/// What a process of nodes is started from.
#[derive(Debug, Clone)]
pub struct NodeCommand {
    /// The binary.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The network namespace to run in, as the id of a process in it.
    pub namespace: Option<u32>,
}

impl NodeCommand {
    /// Starts a life. `listen` replaces the configured address.
    fn spawn(&self, listen: Option<&str>, log: &Path) -> anyhow::Result<Child> {
        let cannot_write = || format!("cannot write {}", log.display());
        let out = File::options().create(true).append(true).open(log).with_context(cannot_write)?;
        let err = out.try_clone().with_context(cannot_write)?;
        let mut command = match self.namespace {
            Some(pid) => in_namespace(pid, &self.program),
            None => Command::new(&self.program),
        };
        command.args(&self.arguments);
        if let Some(listen) = listen {
            command.args(["--listen", listen]);
        }
        without_own_settings(&mut command).stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        command.spawn().with_context(|| format!("cannot start {}", self.program.display()))
    }
}

/// A command that runs `program` in the network namespace of the process `pid`.
pub fn in_namespace(pid: u32, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{pid}/ns/net")).arg("--").arg(program.as_ref());
    command
}

/// Flags can be given as variables too: what is set for the user's own node must not reach this command.
pub fn without_own_settings(command: &mut Command) -> &mut Command {
    for (variable, _) in std::env::vars_os().filter(|(variable, _)| variable.to_string_lossy().starts_with("KOLO_")) {
        command.env_remove(variable);
    }
    command
}

/// What a command prints, given `input`.
///
/// # Errors
/// The command, and what it prints as its error.
pub fn output_of(command: &mut Command, input: &str) -> anyhow::Result<String> {
    let what = format!("cannot run {command:?}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| what.clone())?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input fails, and says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| what.clone())?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{what}: {}: {}", output.status, error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What the harness asked of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// To end; it may take its time.
    Terminate,
    /// Killed, as a fault of the run.
    Kill,
}

struct Life {
    child: Child,
    started: Instant,
    asked: Asked,
    ended: Option<ExitStatus>,
}

impl Life {
    fn begin(command: &NodeCommand, listen: Option<&str>, log: &Path) -> anyhow::Result<Life> {
        let started = Instant::now();
        Ok(Life { child: command.spawn(listen, log)?, started, asked: Asked::Nothing, ended: None })
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn is_running(&self) -> bool {
        self.ended.is_none() && self.asked != Asked::Kill
    }

    fn kill(&mut self) {
        // The whole group, in case the node ever starts processes. Fails only when all are gone already, as is wanted.
        let _ = killpg(self.pid(), Signal::SIGKILL);
        self.ended = self.child.wait().ok();
        self.asked = Asked::Kill;
    }
}

/// A started process, which may live several times.
pub struct NodeProcess {
    command: NodeCommand,
    name: String,
    log: PathBuf,
    life: Mutex<Life>,
}

impl NodeProcess {
    /// Starts it. What it prints goes to `log`.
    pub fn spawn(command: NodeCommand, name: String, log: PathBuf) -> anyhow::Result<NodeProcess> {
        let life = Mutex::new(Life::begin(&command, None, &log)?);
        Ok(NodeProcess { command, name, log, life })
    }

    /// Ends the process with SIGKILL, as a fault of the run: no crash, and without a warning.
    pub fn kill(&self) {
        let mut life = self.look();
        if life.is_running() {
            life.kill();
        }
    }

    /// Starts the process again after its end, with the same data, listening on `listen`.
    pub fn respawn(&self, listen: &str) -> anyhow::Result<()> {
        let mut life = self.look();
        if !life.is_running() {
            *life = Life::begin(&self.command, Some(listen), &self.log)?;
        }
        Ok(())
    }

    /// When it was started last.
    pub fn started(&self) -> Instant {
        self.look().started
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.look().child.id()
    }

    /// Fails when the process has ended by itself.
    pub fn check(&self) -> Result<(), Crashed> {
        let life = self.look();
        match life.ended.filter(|_| life.asked == Asked::Nothing) {
            Some(status) => Err(Crashed { node: self.name.clone(), status, log_tail: self.log_tail() }),
            None => Ok(()),
        }
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.look().is_running()
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        let mut life = self.look();
        if life.is_running() && life.asked == Asked::Nothing {
            // The child is not reaped yet, so the id is still its own; a failure shows when waiting for the end.
            let _ = kill(life.pid(), Signal::SIGTERM);
            life.asked = Asked::Terminate;
        }
    }

    /// In words, what was wrong with its end: a crash, an error code, or that it had to be killed, which is done here.
    pub fn bad_end(&self) -> Option<String> {
        let mut life = self.look();
        let what = match (life.asked, life.ended) {
            (Asked::Kill, _) => return None,
            (Asked::Terminate, Some(status)) if status.success() => return None,
            (Asked::Terminate, Some(status)) => format!("ended with {status} when asked to end"),
            (Asked::Nothing, Some(status)) => format!("ended by itself ({status})"),
            (_, None) => {
                life.kill();
                "did not end when asked to, and was killed".to_owned()
            }
        };
        Some(format!("{} {what}; its last log lines:\n{}", self.name, self.log_tail()))
    }

    fn look(&self) -> MutexGuard<'_, Life> {
        let mut life = locked(&self.life);
        if life.is_running() {
            life.ended = life.child.try_wait().unwrap_or_default();
        }
        life
    }

    fn log_tail(&self) -> String {
        let text = fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, time::Duration};

    use super::*;
    use crate::grid::nodes::wait::Wait;

    /// A process that behaves as the script says; the script is what would be the `kolo` binary.
    fn spawn(script: &str) -> (tempfile::TempDir, NodeProcess) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let command = NodeCommand { program, arguments: Vec::new(), namespace: None };
        let process = NodeProcess::spawn(command, "n".to_owned(), dir.path().join("log")).unwrap();
        (dir, process)
    }

    fn wait(what: &str, is_there: impl Fn() -> bool) {
        let wait = Wait { what, limit: Duration::from_secs(30), pause: Duration::from_millis(2) };
        wait.until(|| Ok(()), || if is_there() { Ok(()) } else { Err(String::new()) }).unwrap();
    }

    fn ended(process: &NodeProcess) {
        wait("end", || !process.is_running());
    }

    #[test]
    fn a_crash_is_reported_with_its_status_and_log() {
        let (_dir, process) = spawn("echo broken >&2; exit 3");
        ended(&process);
        let error = process.check().unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("broken"), "{error}");
        assert!(process.bad_end().unwrap().contains("ended by itself"));
    }

    #[test]
    fn a_clean_end_is_no_news_and_a_signal_is() {
        let (_dir, process) = spawn("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done");
        wait("ready", || process.log_tail().contains("ready"));
        process.terminate();
        ended(&process);
        assert_eq!(process.bad_end(), None);
        let (_dir, process) = spawn("exec sleep 1000");
        process.terminate();
        ended(&process);
        assert!(process.bad_end().unwrap().contains("when asked to end"));
        assert!(process.check().is_ok());
    }

    #[test]
    fn a_kill_is_no_crash_and_the_next_life_is_watched_again() {
        let (dir, process) = spawn("[ -e \"$(dirname \"$0\")/broken\" ] && exit 4; exec sleep 1000");
        let first = process.pid();
        process.kill();
        assert!(!process.is_running() && process.check().is_ok());
        assert_eq!(process.bad_end(), None);
        process.respawn("/memory/1").unwrap();
        assert!(process.is_running() && process.pid() != first);
        process.kill();
        fs::write(dir.path().join("broken"), "").unwrap();
        process.respawn("/memory/1").unwrap();
        ended(&process);
        assert!(process.check().unwrap_err().to_string().contains("exit status: 4"));
    }

    #[test]
    fn dropping_leaves_nothing_behind() {
        let (_dir, process) = spawn("trap '' TERM; while :; do sleep 1000; done");
        let pid = Pid::from_raw(process.pid().cast_signed());
        assert!(kill(pid, None).is_ok());
        drop(process);
        assert!(kill(pid, None).is_err());
    }

    #[test]
    fn a_command_reads_its_input_and_says_why_it_fails() {
        assert_eq!(output_of(&mut Command::new("cat"), "tea").unwrap(), "tea");
        let error = output_of(Command::new("sh").args(["-c", "echo cold >&2; exit 3"]), "").unwrap_err().to_string();
        assert!(error.contains("\"sh\"") && error.ends_with("exit status: 3: cold"), "{error}");
    }
}
