//! One process of nodes (`kolo node`, or many nodes together): its configuration, its lives and their ends.
//!
//! Invariant: dropping a [`NodeProcess`] leaves no process behind; an end that the harness did not cause is a crash.

use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use serde::Serialize;

use super::{error::GridError, place::Place};

/// Lines of a log that an error shows.
const TAIL_LINES: usize = 12;

/// The node's configuration file, as far as the harness sets it.
#[derive(Debug, Serialize)]
pub struct NodeConfigFile<'a> {
    data_dir: &'a Path,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    grid: Option<&'a str>,
    listen: [&'a str; 1],
    announce: Vec<&'a str>,
    bootstrap: &'a [String],
    api: &'a str,
    hosts_file: &'a Path,
    gossip: Gossip,
    log: Log,
    #[serde(skip_serializing_if = "Option::is_none")]
    negotiation: Option<Negotiation>,
}

/// How quick nodes are, where that is not the nodes' own choice.
#[derive(Debug, Clone, Copy)]
pub struct NodeTiming {
    /// Least time between two gossip messages of a node.
    pub gossip: Duration,
    /// How soon losses are noticed.
    pub losses: Option<LossTiming>,
    /// How eagerly they ask for schedules.
    pub asking: Option<Asking>,
}

/// How eagerly nodes ask for schedules that no plan needs yet. In a large grid each question goes to somebody with whom there
/// is no connection, which takes 5 ms of a processor; nodes that have one each do not mind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    /// Between two checks of schedules that were heard of longest ago.
    pub recheck: Duration,
    /// Sites that are asked when they are met.
    pub when_met: usize,
}

impl Asking {
    /// Up to so many nodes in one process are as eager as any.
    const EAGER_NODES_MAX: usize = 200;
    /// Time in which one node of all makes a check.
    const RECHECK_EACH: Duration = Duration::from_millis(20);

    /// What `nodes` nodes that share one process and its processors are told; none when they may do as they like.
    pub fn in_process(nodes: usize) -> Option<Asking> {
        let recheck = Asking::RECHECK_EACH * u32::try_from(nodes).unwrap_or(u32::MAX);
        (nodes > Asking::EAGER_NODES_MAX).then_some(Asking { recheck, when_met: 16 })
    }

    /// In words.
    pub fn words(&self) -> String {
        let Asking { recheck, when_met } = self;
        format!(
            "each asks {when_met} sites for their schedules when it meets them, and checks one every {} s",
            recheck.as_secs()
        )
    }
}

/// How soon losses are noticed.
#[derive(Debug, Clone, Copy)]
pub struct LossTiming {
    /// Between two questions whether all of a reservation is still there.
    pub check: Duration,
    /// How long a site has to be silent to count as lost.
    pub lost_after: Duration,
}

#[derive(Debug, Serialize)]
struct Gossip {
    interval: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    recheck: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_when_met: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Negotiation {
    check_min: String,
    check_max: String,
    lost_after: String,
}

#[derive(Debug, Serialize)]
struct Log {
    format: &'static str,
}

impl<'a> NodeConfigFile<'a> {
    /// A node at `place` that is as quick as `timing` says; of the grid named, or of the one that it has joined.
    pub fn new(
        data_dir: &'a Path,
        name: &'a str,
        grid: Option<&'a str>,
        bootstrap: &'a [String],
        hosts_file: &'a Path,
        place: &'a Place,
        timing: NodeTiming,
    ) -> NodeConfigFile<'a> {
        let text = |time: Duration| format!("{}ms", time.as_millis());
        let negotiation = timing.losses.map(|losses| Negotiation {
            check_min: text(losses.check),
            check_max: text(losses.check),
            lost_after: text(losses.lost_after),
        });
        NodeConfigFile {
            data_dir,
            name,
            grid,
            listen: [&place.listen],
            announce: place.announce.as_deref().into_iter().collect(),
            bootstrap,
            api: &place.api,
            hosts_file,
            gossip: Gossip {
                interval: text(timing.gossip),
                recheck: timing.asking.map(|asking| text(asking.recheck)),
                asked_when_met: timing.asking.map(|asking| asking.when_met),
            },
            log: Log { format: "human" },
            negotiation,
        }
    }

    /// As TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("texts, lists of texts and tables of texts are TOML; run directories are UTF-8")
    }
}

/// An error of the system while doing `what`.
pub fn system(what: &str) -> impl FnOnce(io::Error) -> GridError + use<> {
    let what = what.to_owned();
    move |source| GridError::System { what, source }
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
    /// The command of a life that begins now. `listen` replaces the configured address.
    fn command(&self, listen: Option<&str>) -> Command {
        let mut command = match self.namespace {
            Some(pid) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/proc/{pid}/ns/net")).arg("--").arg(&self.kolo);
                command
            }
            None => Command::new(&self.kolo),
        };
        match &self.inhabitants {
            Inhabitants::One(config) => command.arg("node").arg("--config").arg(config),
            Inhabitants::Many(configs) => command.arg("node-group").args(configs),
        };
        if let Some(listen) = listen {
            command.arg("--listen").arg(listen);
        }
        without_own_settings(&mut command);
        command
    }

    fn spawn(&self, listen: Option<&str>, log: &Path) -> Result<Child, GridError> {
        let cannot_write = || format!("cannot write {}", log.display());
        let out = File::options().create(true).append(true).open(log).map_err(system(&cannot_write()))?;
        let err = out.try_clone().map_err(system(&cannot_write()))?;
        let mut command = self.command(listen);
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        command.spawn().map_err(system(&format!("cannot start {}", self.kolo.display())))
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
    ///
    /// # Errors
    /// [`GridError::System`].
    pub fn spawn(command: NodeCommand, name: String, log: PathBuf) -> Result<NodeProcess, GridError> {
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
    ///
    /// # Errors
    /// [`GridError::System`].
    pub fn respawn(&self, listen: &str) -> Result<(), GridError> {
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
    ///
    /// # Errors
    /// [`GridError::Crashed`].
    pub fn check(&self) -> Result<(), GridError> {
        match self.look().life {
            Life::Crashed(status) => Err(GridError::Crashed {
                node: self.name.clone(),
                status: status.to_string(),
                log_tail: self.log_tail(),
            }),
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
    use super::*;
    use crate::grid::wait::{Look, wait_until};

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

    fn ended(process: &NodeProcess) {
        wait_until(
            "end",
            Duration::from_secs(30),
            Duration::from_millis(2),
            || Ok(()),
            || Ok(if process.is_running() { Look::NotYet("running".to_owned()) } else { Look::Done(()) }),
        )
        .unwrap();
    }

    #[test]
    fn a_crash_is_told_with_its_status_and_log() {
        let (_dir, process) = spawn("echo broken >&2; exit 3");
        ended(&process);
        let error = process.check().unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("broken"), "{error}");
        assert!(process.bad_end().unwrap().contains("ended by itself"));
    }

    #[test]
    fn a_clean_end_is_no_news_and_a_signal_is() {
        let (_dir, process) = spawn("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done");
        wait_until(
            "ready",
            Duration::from_secs(30),
            Duration::from_millis(2),
            || process.check(),
            || Ok(if process.log_tail().contains("ready") { Look::Done(()) } else { Look::NotYet(String::new()) }),
        )
        .unwrap();
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
    fn the_configuration_is_toml() {
        let bootstrap = ["/ip4/127.0.0.1/tcp/4001/p2p/x\"y".to_owned()];
        let place = Place::loopback(0);
        let (data_dir, hosts) = (Path::new("/d"), Path::new("/h.json"));
        let losses = LossTiming { check: Duration::from_secs(3), lost_after: Duration::from_secs(1) };
        let asking = Asking::in_process(1000);
        let timing = NodeTiming { gossip: Duration::from_millis(200), losses: Some(losses), asking };
        let file = NodeConfigFile::new(data_dir, "node-001", Some("g"), &bootstrap, hosts, &place, timing);
        let text = file.to_toml();
        let table: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(table["bootstrap"][0].as_str(), Some(bootstrap[0].as_str()));
        assert_eq!(table["gossip"]["interval"].as_str(), Some("200ms"));
        assert_eq!(table["gossip"]["recheck"].as_str(), Some("20000ms"));
        assert_eq!(table["gossip"]["asked_when_met"].as_integer(), Some(16));
        assert_eq!(Asking::in_process(200), None);
        assert_eq!(table["negotiation"]["lost_after"].as_str(), Some("1000ms"));
        assert_eq!(table["api"].as_str(), Some("127.0.0.1:0"));
    }
}
