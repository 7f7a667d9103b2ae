//! The node processes: started in waves, watched, killed and revived where the run asks for it, stopped.
//!
//! Each process has a process group and a log file of its own. Invariant: when a [`Cluster`] is gone, so are its
//! processes, on every way out of the harness that runs destructors (errors, panics, Ctrl-C).

use std::{
    collections::BTreeSet,
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use sim_kit::usage;

use super::{
    client::Client,
    launch::{Launch, parent},
    process::NodeProcess,
    wait::{Interrupt, Wait, locked, on_threads},
    wire::Status,
};

/// Nodes started at the same time. More would only compete for the processors while they make their keys and databases.
const WAVE: usize = 8;
/// How long a node may take to open its API.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a node may take to end after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// What all nodes together may take longer, for each of them: all say good-bye at once.
const STOP_LIMIT_MORE: Duration = Duration::from_millis(50);
/// Between two looks at a starting or ending process.
const PAUSE: Duration = Duration::from_millis(5);
/// Between two looks for crashes and interrupts while time passes.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Calls under way at a time while many nodes are looked at, so that the looking leaves the processors to the nodes.
const WORKERS: usize = 4;
/// Longest wait for rest.
const REST_LIMIT: Duration = Duration::from_secs(60);
/// The time over which the processors' load is measured.
const REST_WINDOW: Duration = Duration::from_secs(2);
/// At rest the nodes use less than this share of all processors together.
const BUSY_SHARE: f64 = 0.2;

/// A node that was started.
pub struct Node {
    /// Its position in the order of the starts.
    pub position: usize,
    /// Name for people.
    pub name: String,
    /// The process that it runs in, which it may share with others.
    pub process: Arc<NodeProcess>,
    pub site: String,
    /// Where it keeps its data.
    pub data_dir: PathBuf,
    /// Multiaddr at which other nodes find it, with its peer id.
    pub address: String,
    /// The address that it listens on in all its lives.
    listen: String,
    client: Mutex<Client>,
}

impl Node {
    /// The API of its present life, or of its last one while it is down.
    pub fn client(&self) -> Client {
        locked(&self.client).clone()
    }
}

/// The nodes of a grid.
pub struct Cluster {
    pub launch: Launch,
    /// In the order of their start. Nodes join while others are asked, so the list only grows.
    nodes: Mutex<Vec<Arc<Node>>>,
    interrupt: Interrupt,
}

impl Cluster {
    /// No nodes yet.
    pub fn new(launch: Launch, interrupt: Interrupt) -> Cluster {
        Cluster { launch, nodes: Mutex::default(), interrupt }
    }

    /// All nodes that were started.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        locked(&self.nodes).clone()
    }

    /// The sites of all nodes that were ever started.
    pub fn sites(&self) -> BTreeSet<String> {
        locked(&self.nodes).iter().map(|node| node.site.clone()).collect()
    }

    /// The node at a position, which is handed out only for a node that is there.
    pub fn node(&self, position: usize) -> Arc<Node> {
        Arc::clone(&locked(&self.nodes)[position])
    }

    /// How many nodes were started.
    pub fn len(&self) -> usize {
        locked(&self.nodes).len()
    }

    /// How many sites a node asks for their schedules when it meets them; of the others it may know none.
    pub fn asked_when_met(&self) -> usize {
        let asking = self.launch.timing.asking;
        asking.map_or_else(|| discovery::Limits::default().sites_eager_max, |asking| asking.when_met)
    }

    /// Whether nodes check schedules as often as they like. Where they do not, a node that misses a change may learn of it much
    /// later, so no measurement waits until it is known everywhere.
    pub fn checks_often(&self) -> bool {
        self.launch.timing.asking.is_none()
    }

    /// Starts the first `count` nodes: all in one process, or the first one and then the rest in waves.
    pub fn start(&self, count: usize, progress: impl Fn(usize)) -> anyhow::Result<()> {
        if !self.launch.in_process {
            return self.grow(count, &[], progress);
        }
        let group = self.launch.spawn_group(count)?;
        for index in 0..count {
            self.add(index, Arc::clone(&group))?;
            progress(index + 1);
        }
        Ok(())
    }

    /// Starts more nodes, until there are `count`. They find the grid at `bootstrap`, or else through some that came before
    /// them, the first of which begins alone.
    pub fn grow(&self, count: usize, bootstrap: &[String], progress: impl Fn(usize)) -> anyhow::Result<()> {
        let first = self.len();
        let mut next = first;
        while next < count {
            let is_alone = next == first && bootstrap.is_empty();
            let wave = if is_alone { 1 } else { WAVE.min(count - next) };
            let through = |index: usize| match bootstrap {
                [] if is_alone => Vec::new(),
                [] => vec![self.node(first + parent(index - first).min(next - first - 1)).address.clone()],
                known => known.to_vec(),
            };
            let spawned: Vec<Arc<NodeProcess>> =
                (next..next + wave).map(|index| self.launch.spawn(index, &through(index))).collect::<Result<_, _>>()?;
            for process in spawned {
                self.add(next, process)?;
                next += 1;
                progress(next);
            }
        }
        Ok(())
    }

    /// Waits until the API of the node with number `position` answers, and adds the node.
    fn add(&self, position: usize, process: Arc<NodeProcess>) -> anyhow::Result<()> {
        let (client, status) = self.opened(position, &process)?;
        let place = &self.launch.nodes[position].place;
        let address =
            status.listen.into_iter().next().unwrap_or_else(|| format!("{}/p2p/{}", place.listen, status.site));
        // What it announces is not what it listens on, where there is a proxy.
        let announced = address.split_once("/p2p/").map_or(&*address, |(announced, _)| announced);
        let listen = if place.announce.is_some() { &place.listen } else { announced }.to_owned();
        let (name, data_dir) = (self.launch.nodes[position].name.clone(), self.launch.data_dir(position));
        let client = Mutex::new(client);
        let node = Node { position, name, process, site: status.site, data_dir, address, listen, client };
        locked(&self.nodes).push(Arc::new(node));
        Ok(())
    }

    /// Waits until the API of the node at `position` answers.
    fn opened(&self, position: usize, process: &NodeProcess) -> anyhow::Result<(Client, Status)> {
        let (what, data_dir) =
            (format!("{}: its API", self.launch.nodes[position].name), self.launch.data_dir(position));
        let check = || Ok(self.interrupt.check().map(|()| process.check())??);
        Wait { what: &what, limit: START_LIMIT, pause: PAUSE }.until(check, || {
            let client = match Client::from_data_dir(&data_dir) {
                Ok(client) => client.ok_or("no api.address or api.token yet")?,
                Err(error) => return Ok(Err(anyhow!(error).context(format!("cannot read {}", data_dir.display())))),
            };
            let status = client.status()?;
            if status.listen.is_empty() {
                return Err("it listens nowhere yet".to_owned());
            }
            Ok(Ok((client, status)))
        })?
    }

    /// The processes: one a node, or one for all.
    fn processes(&self) -> Vec<Arc<NodeProcess>> {
        let count = if self.launch.in_process { 1 } else { usize::MAX };
        locked(&self.nodes).iter().take(count).map(|node| Arc::clone(&node.process)).collect()
    }

    /// Ids of the processes.
    pub fn pids(&self) -> Vec<u32> {
        self.processes().iter().map(|process| process.pid()).collect()
    }

    /// Processor time that all nodes have used; `None` where the system does not show it.
    pub fn processor_time(&self) -> Option<Duration> {
        self.pids().into_iter().filter_map(usage::processor_time).reduce(|sum, one| sum + one)
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.check()?;
            thread::sleep(LOOK_PAUSE.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Fails when a process has ended by itself or the run was interrupted.
    ///
    /// # Errors
    /// [`Crashed`](super::process::Crashed) or [`Interrupted`](super::wait::Interrupted).
    pub fn check(&self) -> anyhow::Result<()> {
        self.interrupt.check()?;
        Ok(self.processes().iter().try_for_each(|process| process.check())?)
    }

    /// Starts the node at `position` again after its end, with its data and its address, and waits until its API answers.
    pub fn revive(&self, position: usize) -> anyhow::Result<()> {
        let node = self.node(position);
        let address_file = node.data_dir.join("api.address");
        match fs::remove_file(&address_file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", address_file.display()));
            }
            _ => {}
        }
        node.process.respawn(&node.listen)?;
        let (client, _) = self.opened(position, &node.process)?;
        *locked(&node.client) = client;
        Ok(())
    }

    /// Asks the node at `position` to leave, and waits until its process has ended; when that was.
    pub fn leave(&self, position: usize) -> anyhow::Result<Instant> {
        let node = self.node(position);
        node.process.terminate();
        let is_gone = || if node.process.is_running() { Err("running".to_owned()) } else { Ok(Instant::now()) };
        let what = format!("{} to leave", node.name);
        Wait { what: &what, limit: STOP_LIMIT, pause: PAUSE }.until(|| self.check(), is_gone)
    }

    /// Looks at each of the `nodes` until it is in the state looked for; results in the order of the nodes.
    ///
    /// # Errors
    /// [`Deadline`](super::wait::Deadline) naming one node that is not there yet, or as [`Cluster::check`].
    pub fn at_each<T: Send + Sync>(
        &self,
        wait: Wait<'_>,
        nodes: &[Arc<Node>],
        look: impl Fn(&Node) -> Result<T, String> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let found: Vec<OnceLock<T>> = nodes.iter().map(|_| OnceLock::new()).collect();
        // Each slot belongs to one worker.
        let look_at_some = |first: usize| {
            let mut last = Ok(());
            for (slot, node) in found.iter().zip(nodes).skip(first).step_by(WORKERS) {
                if slot.get().is_none() {
                    if let Err(error) = self.check() {
                        return Ok(Err(error));
                    }
                    match look(node) {
                        Ok(value) => _ = slot.set(value),
                        Err(state) => last = Err(format!("{}: {state}", node.name)),
                    }
                }
            }
            last.map(Ok)
        };
        let ended = on_threads(WORKERS, |first| wait.until(|| self.check(), || look_at_some(first))?);
        ended.into_iter().collect::<anyhow::Result<()>>()?;
        Ok(found.into_iter().filter_map(OnceLock::into_inner).collect())
    }

    /// Waits until the nodes use little processor time, so that a load meets a grid and not the last of its forming: a grid that
    /// knows everything still publishes its index for some seconds. Returns how long that took. Where nothing shows how much
    /// they use, it does not wait.
    pub fn rest(&self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let processors = thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        let enough = REST_WINDOW.mul_f64(processors * BUSY_SHARE);
        while begun.elapsed() < REST_LIMIT {
            let Some(before) = self.processor_time() else { break };
            self.pass(REST_WINDOW)?;
            let used = self.processor_time().map_or(Duration::ZERO, |after| after.saturating_sub(before));
            if used < enough {
                break;
            }
        }
        Ok(begun.elapsed())
    }

    /// How many processes have ended by themselves.
    pub fn crashes(&self) -> usize {
        self.processes().iter().filter(|process| process.check().is_err()).count()
    }

    /// Asks every process to end, waits, and kills those that do not. Returns in words what did not end as it should.
    pub fn stop(self) -> Vec<String> {
        let processes = self.processes();
        processes.iter().for_each(|process| process.terminate());
        let all_ended = || match processes.iter().filter(|process| process.is_running()).count() {
            0 => Ok(()),
            running => Err(format!("{running} processes running")),
        };
        // A deadline is reported below, process by process; an interrupt changes nothing here, since it asks for this stop.
        let limit = STOP_LIMIT + STOP_LIMIT_MORE.mul_f64(self.len() as f64);
        let _ = Wait { what: "stop", limit, pause: PAUSE }.until(|| Ok(()), all_ended);
        processes.iter().filter_map(|process| process.bad_end()).collect()
    }
}
