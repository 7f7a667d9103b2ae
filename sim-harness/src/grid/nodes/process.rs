//! One process of nodes (`kolo node`, or many nodes together): its lives and their ends.
//!
//! Invariant: dropping a [`NodeProcess`] leaves no process behind; an end that the harness did not cause is a crash.

use std::{
    env,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use anyhow::Context;
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};

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

/// How a process ended, as far as the harness has seen.
enum Life {
    /// It runs.
    Running,
    /// It was asked to end and may take its time.
    Terminating,
    /// It ended after it was asked to.
    Ended(ExitStatus),
    /// It ended without having been asked.
    Crashed(ExitStatus),
    /// The harness killed it, as a fault of the run.
    Killed,
}

struct State {
    child: Child,
    life: Life,
    started: Instant,
}

/// What runs in a process.
#[derive(Debug, Clone)]
pub enum Inhabitants {
    /// A node with this configuration file.
    One(PathBuf),
    /// A node for each configuration file.
    Many(Vec<PathBuf>),
}

/// The binary of many nodes in one process, beside this one.
const GROUP_BINARY: &str = "kolo-node-group";

/// What a node's process is started from.
#[derive(Debug, Clone)]
pub struct NodeCommand {
    /// The `kolo` binary.
    pub kolo: PathBuf,
    /// What runs in it.
    pub inhabitants: Inhabitants,
    /// The network namespace to run in, as the id of a process in it.
    pub namespace: Option<u32>,
}

impl NodeCommand {
    /// The program that runs the nodes.
    fn program(&self) -> PathBuf {
        match self.inhabitants {
            Inhabitants::One(_) => self.kolo.clone(),
            Inhabitants::Many(_) => {
                env::current_exe().unwrap_or_else(|_| self.kolo.clone()).with_file_name(GROUP_BINARY)
            }
        }
    }

    /// The command of a life that begins now. `listen` replaces the configured address.
    fn command(&self, listen: Option<&str>) -> Command {
        let program = self.program();
        let mut command = match self.namespace {
            Some(pid) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/proc/{pid}/ns/net")).arg("--").arg(program);
                command
            }
            None => Command::new(program),
        };
        match &self.inhabitants {
            Inhabitants::One(config) => command.arg("node").arg("--config").arg(config),
            Inhabitants::Many(configs) => command.args(configs),
        };
        if let Some(listen) = listen {
            command.arg("--listen").arg(listen);
        }
        without_own_settings(&mut command);
        command
    }

    fn spawn(&self, listen: Option<&str>, log: &Path) -> anyhow::Result<Child> {
        let cannot_write = || format!("cannot write {}", log.display());
        let out = File::options().create(true).append(true).open(log).with_context(cannot_write)?;
        let err = out.try_clone().with_context(cannot_write)?;
        let mut command = self.command(listen);
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let hint = match self.inhabitants {
            Inhabitants::One(_) => "",
            Inhabitants::Many(_) => " (cargo build --release -p node-group builds it)",
        };
        command.spawn().with_context(|| format!("cannot start {}{hint}", self.program().display()))
    }
}

/// Flags can be given as variables too: what is set for the user's own node must not reach this command.
pub fn without_own_settings(command: &mut Command) {
    for (variable, _) in std::env::vars_os().filter(|(variable, _)| variable.to_string_lossy().starts_with("KOLO_")) {
        command.env_remove(variable);
    }
}

/// A started node, which may live several times.
pub struct NodeProcess {
    command: NodeCommand,
    name: String,
    log: PathBuf,
    state: Mutex<State>,
}

impl NodeProcess {
    /// Starts `kolo node`. What it prints goes to `log`.
    pub fn spawn(command: NodeCommand, name: String, log: PathBuf) -> anyhow::Result<NodeProcess> {
        let started = Instant::now();
        let child = command.spawn(None, &log)?;
        let state = Mutex::new(State { child, life: Life::Running, started });
        Ok(NodeProcess { command, name, log, state })
    }

    /// Ends the process with SIGKILL, as a fault of the run: no crash, and nothing is said to it.
    pub fn kill(&self) {
        let mut state = self.look();
        if matches!(state.life, Life::Running | Life::Terminating) {
            kill_and_reap(&mut state);
            state.life = Life::Killed;
        }
    }

    /// Starts the process again after its end, with the same data, listening on `listen`.
    pub fn respawn(&self, listen: &str) -> anyhow::Result<()> {
        let mut state = self.look();
        if !matches!(state.life, Life::Running | Life::Terminating) {
            state.started = Instant::now();
            state.child = self.command.spawn(Some(listen), &self.log)?;
            state.life = Life::Running;
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
        match self.look().life {
            Life::Crashed(status) => Err(Crashed { node: self.name.clone(), status, log_tail: self.log_tail() }),
            Life::Running | Life::Terminating | Life::Ended(_) | Life::Killed => Ok(()),
        }
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        matches!(self.look().life, Life::Running | Life::Terminating)
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        let mut state = self.look();
        if matches!(state.life, Life::Running) {
            // The child is not reaped yet, so the id is still its own; a failure shows when waiting for the end.
            let _ = kill(Pid::from_raw(state.child.id().cast_signed()), Signal::SIGTERM);
            state.life = Life::Terminating;
        }
    }

    /// In words, what was wrong with its end: a crash, an error code, or that it had to be killed, which is done here.
    pub fn bad_end(&self) -> Option<String> {
        let mut state = self.look();
        let what = match &state.life {
            Life::Ended(status) if status.success() => return None,
            Life::Killed => return None,
            Life::Ended(status) => format!("ended with {status} when asked to end"),
            Life::Crashed(status) => format!("ended by itself ({status})"),
            Life::Running | Life::Terminating => {
                kill_and_reap(&mut state);
                "did not end when asked to, and was killed".to_owned()
            }
        };
        drop(state);
        Some(format!("{} {what}; its last log lines:\n{}", self.name, self.log_tail()))
    }

    fn look(&self) -> MutexGuard<'_, State> {
        // A thread that panicked while holding the lock cannot have left it half-changed: each change is one assignment.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Life::Running | Life::Terminating = state.life
            && let Ok(Some(status)) = state.child.try_wait()
        {
            state.life = match state.life {
                Life::Terminating => Life::Ended(status),
                _ => Life::Crashed(status),
            };
        }
        state
    }

    fn log_tail(&self) -> String {
        let text = fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

fn kill_and_reap(state: &mut State) {
    // The whole group, in case the node ever starts processes. Fails only when all are gone already, as is wanted.
    let _ = killpg(Pid::from_raw(state.child.id().cast_signed()), Signal::SIGKILL);
    if let Ok(status) = state.child.wait() {
        state.life = Life::Ended(status);
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let mut state = self.look();
        if matches!(state.life, Life::Running | Life::Terminating) {
            kill_and_reap(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::grid::nodes::wait::{Look, Wait};

    /// A process that behaves as the script says; the script is what would be the `kolo` binary.
    fn spawn(script: &str) -> (tempfile::TempDir, NodeProcess) {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let log = dir.path().join("log");
        let command = NodeCommand { kolo: program, inhabitants: Inhabitants::One("x".into()), namespace: None };
        let process = NodeProcess::spawn(command, "n".to_owned(), log).unwrap();
        (dir, process)
    }

    fn wait(what: &str, is_there: impl Fn() -> bool) {
        let wait = Wait { what, limit: Duration::from_secs(30), pause: Duration::from_millis(2) };
        let look = || Ok(if is_there() { Look::Done(()) } else { Look::NotYet(String::new()) });
        wait.until(|| Ok(()), look).unwrap();
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
}
