//! The node processes: started in waves, watched, killed and revived where the run asks for it, stopped.
//!
//! Each process has a process group and a log file of its own. Invariant: when a [`Cluster`] is gone, so are its
//! processes, on every way out of the harness that runs destructors (errors, panics, Ctrl-C).

use std::{
    fs, io,
    ops::Index,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use super::{
    client::{Client, ClientError},
    launch::{Launch, parent},
    process::NodeProcess,
    wait::{Interrupt, Look, Wait},
    wire::Status,
};
use crate::usage;

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

/// A running node.
pub struct Node {
    /// Name for people.
    pub name: String,
    /// The process that it runs in, which it may share with others.
    pub process: Arc<NodeProcess>,
    pub site: String,
    /// Where it keeps its data.
    pub data_dir: PathBuf,
    /// The address that it listens on in all its lives.
    listen: String,
    /// The address that it announces, with its peer id.
    announced: String,
    client: RwLock<Client>,
}

impl Node {
    /// Multiaddr at which other nodes find it, with its peer id.
    pub fn address(&self) -> String {
        self.announced.clone()
    }

    /// The API of its present life, or of its last one while it is down.
    pub fn client(&self) -> Client {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The nodes of a grid in the order of their start. Nodes join while others are asked, so the list only grows and is shared: a
/// node keeps its position, and there is room for no more than was asked for at first.
pub struct Nodes(Box<[OnceLock<Node>]>);

impl Nodes {
    /// For how many there is room.
    pub fn room(&self) -> usize {
        self.0.len()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// All that are there by now.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().map_while(OnceLock::get)
    }

    /// Adds a node behind the others; false, and the node is ended, when there is no room for it.
    fn add(&self, node: Node) -> bool {
        let mut waiting = Some(node);
        for place in &self.0 {
            if let Some(node) = waiting.take() {
                waiting = place.set(node).err();
            }
        }
        waiting.is_none()
    }
}

impl Index<usize> for Nodes {
    type Output = Node;

    fn index(&self, position: usize) -> &Node {
        self.0[position].get().expect("a position is handed out only for a node that is there")
    }
}

/// All running nodes.
pub struct Cluster {
    /// In the order of their start.
    pub nodes: Nodes,
    /// How many sites a node asks for their schedules when it meets them; of the others it may know none.
    pub asked_when_met: usize,
    /// Whether nodes check schedules as often as they like. Where they do not, a node that misses a change may learn of it much
    /// later, so no measurement waits until it is known everywhere.
    pub checks_often: bool,
    interrupt: Interrupt,
}

impl Cluster {
    /// Starts the first `count` nodes: the first one, then the rest in waves, which find the grid through those before.
    pub fn start(
        launch: &Launch<'_>,
        count: usize,
        interrupt: &Interrupt,
        progress: impl Fn(usize),
    ) -> anyhow::Result<Cluster> {
        let asked = launch.timing.asking.map(|asking| asking.when_met);
        let cluster = Cluster::empty(launch.nodes.len(), asked, interrupt);
        if launch.in_process {
            let group = launch.spawn_group(count)?;
            for index in 0..count {
                cluster.add(launch, index, Arc::clone(&group))?;
                progress(cluster.nodes.len());
            }
            return Ok(cluster);
        }
        cluster.grow(launch, count, &[], progress)?;
        Ok(cluster)
    }

    /// No nodes yet, and room for `most`, which ask so many sites for their schedules when they meet them, or as many as by default.
    pub fn empty(most: usize, asked_when_met: Option<usize>, interrupt: &Interrupt) -> Cluster {
        let checks_often = asked_when_met.is_none();
        let asked_when_met = asked_when_met.unwrap_or_else(|| discovery::Limits::default().sites_eager_max);
        let nodes = Nodes((0..most).map(|_| OnceLock::new()).collect());
        Cluster { nodes, asked_when_met, checks_often, interrupt: interrupt.clone() }
    }

    /// Starts more nodes, until there are `count`. They find the grid at `bootstrap`, or else through some that came before
    /// them, the first of which begins alone.
    pub fn grow(
        &self,
        launch: &Launch<'_>,
        count: usize,
        bootstrap: &[String],
        progress: impl Fn(usize),
    ) -> anyhow::Result<()> {
        let first = self.nodes.len();
        while self.nodes.len() < count {
            let next = self.nodes.len();
            let is_alone = next == first && bootstrap.is_empty();
            let wave = if is_alone { 1 } else { WAVE.min(count - next) };
            let through = |index: usize| match bootstrap {
                [] if is_alone => Vec::new(),
                [] => vec![self.nodes[first + parent(index - first).min(next - first - 1)].address()],
                known => known.to_vec(),
            };
            let spawned: Vec<NodeProcess> =
                (next..next + wave).map(|index| launch.spawn(index, &through(index))).collect::<Result<_, _>>()?;
            for (index, process) in (next..).zip(spawned) {
                self.add(launch, index, Arc::new(process))?;
                progress(self.nodes.len());
            }
        }
        Ok(())
    }

    /// Waits until the API of the node with number `index` answers, and adds the node.
    fn add(&self, launch: &Launch<'_>, index: usize, process: Arc<NodeProcess>) -> anyhow::Result<()> {
        let (name, data_dir) = (launch.names[index].clone(), launch.data_dir(index));
        let (client, status) = opened(&name, &data_dir, &process, &self.interrupt)?;
        let place = &launch.places[index];
        let listen = match (&place.announce, status.listen.first()) {
            // What it announces is not what it listens on.
            (Some(_), _) | (None, None) => place.listen.clone(),
            (None, Some(announced)) => without_peer(announced).to_owned(),
        };
        let announced = status.listen.first().cloned().unwrap_or_else(|| format!("{listen}/p2p/{}", status.site));
        let node = Node { name, process, site: status.site, data_dir, listen, announced, client: RwLock::new(client) };
        if !self.nodes.add(node) {
            bail!("cannot add a node: more were started than were asked for");
        }
        Ok(())
    }

    /// The processes: one a node, or one for all.
    fn processes(&self) -> impl Iterator<Item = &Node> {
        let mut first = self.nodes.iter().take(2).map(|node| &node.process);
        let is_shared = first.next().zip(first.next()).is_some_and(|(one, other)| Arc::ptr_eq(one, other));
        self.nodes.iter().take(if is_shared { 1 } else { usize::MAX })
    }

    /// Nodes whose process runs.
    pub fn running(&self) -> usize {
        self.nodes.iter().filter(|node| node.process.is_running()).count()
    }

    /// Ids of the processes.
    pub fn pids(&self) -> Vec<u32> {
        self.processes().map(|node| node.process.pid()).collect()
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
        Ok(self.processes().try_for_each(|node| node.process.check())?)
    }

    /// Starts the node at `index` again after its end, with its data and its address, and waits until its API answers.
    pub fn revive(&self, index: usize) -> anyhow::Result<()> {
        let node = &self.nodes[index];
        let address_file = node.data_dir.join("api.address");
        match fs::remove_file(&address_file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", address_file.display()));
            }
            _ => {}
        }
        node.process.respawn(&node.listen)?;
        let (client, _) = opened(&node.name, &node.data_dir, &node.process, &self.interrupt)?;
        *node.client.write().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(())
    }

    /// Asks the node at `index` to leave, and waits until its process has ended; when that was.
    pub fn leave(&self, index: usize) -> anyhow::Result<Instant> {
        let node = &self.nodes[index];
        node.process.terminate();
        let is_gone = || {
            Ok(if node.process.is_running() { Look::NotYet("running".to_owned()) } else { Look::Done(Instant::now()) })
        };
        let what = format!("{} to leave", node.name);
        Wait { what: &what, limit: STOP_LIMIT, pause: PAUSE }.until(|| self.check(), is_gone)
    }

    /// Looks at the nodes at the `positions` until each is done, and calls `progress` with how many are whenever one more is.
    /// Results come in the order of `positions`. A failing call counts as "not yet".
    ///
    /// # Errors
    /// [`Deadline`](super::wait::Deadline) naming one node that is not there yet, or as [`Cluster::check`].
    pub fn at_each<T: Send + Sync>(
        &self,
        wait: Wait<'_>,
        positions: &[usize],
        look: impl Fn(&Node) -> Result<Look<T>, ClientError> + Sync,
        progress: impl Fn(usize) + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let found: Vec<OnceLock<T>> = positions.iter().map(|_| OnceLock::new()).collect();
        let done = AtomicUsize::new(0);
        let look_at_some = |first: usize| {
            let mut last = None;
            for (slot, position) in found.iter().zip(positions).skip(first).step_by(WORKERS) {
                if slot.get().is_some() {
                    continue;
                }
                self.check()?;
                let node = &self.nodes[*position];
                match look(node) {
                    Ok(Look::Done(value)) => {
                        // Each slot belongs to one worker.
                        let _ = slot.set(value);
                        progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                    }
                    Ok(Look::NotYet(state)) => last = Some(format!("{}: {state}", node.name)),
                    Err(error) => last = Some(format!("{}: {error}", node.name)),
                }
            }
            Ok(last.map_or(Look::Done(()), Look::NotYet))
        };
        thread::scope(|scope| {
            let worker = |first| scope.spawn(move || wait.until(|| self.check(), || look_at_some(first)));
            let workers: Vec<_> = (0..WORKERS).map(worker).collect();
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })?;
        Ok(found.into_iter().filter_map(OnceLock::into_inner).collect())
    }

    /// Waits until the nodes use little processor time, so that a load meets a grid and not the last of its forming: a grid that
    /// knows everything still publishes its index for some seconds. Returns how long that took. Where nothing tells how much
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
        self.processes().filter(|node| node.process.check().is_err()).count()
    }

    /// Asks every process to end, waits, and kills those that do not. Returns in words what did not end as it should.
    pub fn stop(self) -> Vec<String> {
        for node in self.processes() {
            node.process.terminate();
        }
        let all_ended = || {
            let running = self.processes().filter(|node| node.process.is_running()).count();
            Ok(if running == 0 { Look::Done(()) } else { Look::NotYet(format!("{running} processes running")) })
        };
        // A deadline is reported below, process by process; an interrupt changes nothing here, since it asks for this stop.
        let limit = STOP_LIMIT + STOP_LIMIT_MORE.mul_f64(self.nodes.len() as f64);
        let _ = Wait { what: "stop", limit, pause: PAUSE }.until(|| Ok(()), all_ended);
        self.processes().filter_map(|node| node.process.bad_end()).collect()
    }
}

/// The multiaddr without the peer id at its end.
fn without_peer(address: &str) -> &str {
    address.split_once("/p2p/").map_or(address, |(place, _)| place)
}

/// Waits until the node's API answers.
fn opened(
    name: &str,
    data_dir: &Path,
    process: &NodeProcess,
    interrupt: &Interrupt,
) -> anyhow::Result<(Client, Status)> {
    let what = format!("{name}: its API");
    let check = || Ok(interrupt.check().map(|()| process.check())??);
    Wait { what: &what, limit: START_LIMIT, pause: PAUSE }.until(check, || {
        let found = Client::from_data_dir(data_dir).with_context(|| format!("cannot read {}", data_dir.display()))?;
        let Some(client) = found else { return Ok(Look::NotYet("no api.address or api.token yet".to_owned())) };
        Ok(match client.status() {
            Ok(status) if status.listen.is_empty() => Look::NotYet("it listens nowhere yet".to_owned()),
            Ok(status) => Look::Done((client, status)),
            Err(error) => Look::NotYet(error.to_string()),
        })
    })
}
