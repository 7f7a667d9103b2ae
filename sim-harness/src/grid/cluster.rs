//! The node processes: started in waves, watched, killed and revived where the run asks for it, stopped.
//!
//! Each process has a process group and a log file of its own. Invariant: when a [`Cluster`] is gone, so are its
//! processes, on every way out of the harness that runs destructors (errors, panics, Ctrl-C).

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    thread,
    time::{Duration, Instant},
};

use broker::{snapshot::GridSnapshot, time::Span};

use super::{
    client::Client,
    error::GridError,
    interrupt::Interrupt,
    members, memory,
    nodes::Nodes,
    place::Place,
    process::{Inhabitants, NodeCommand, NodeConfigFile, NodeProcess, NodeTiming, system},
    wait::{Look, wait_until},
    wire::Status,
    workload::shifted_snapshot,
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

/// How to start the nodes.
pub struct Launch<'a> {
    /// The `kolo` binary.
    pub kolo: &'a Path,
    /// Where data directories and configurations go.
    pub run_dir: &'a Path,
    /// Where log files go.
    pub log_dir: &'a Path,
    /// The hosts of each node, of those too that come later.
    pub nodes: &'a [GridSnapshot],
    /// The name of each node, for people and for its files.
    pub names: &'a [String],
    /// Where each node's sockets are.
    pub places: &'a [Place],
    /// Whether all nodes share one process.
    pub in_process: bool,
    /// How quick the nodes are.
    pub timing: NodeTiming,
    /// Time 0 of the snapshots.
    pub epoch: Span,
    /// Name of the grid.
    pub grid: &'a str,
    /// Whether the grid is one of members: the first node founds it and invites the others.
    pub is_closed: bool,
}

/// A running node.
pub struct Node {
    /// Name for people.
    pub name: String,
    /// The process that it runs in, which it may share with others.
    pub process: Arc<NodeProcess>,
    /// Its site.
    pub site: String,
    /// Where it keeps its data.
    pub data_dir: PathBuf,
    /// The address that it listens on in all its lives.
    listen: String,
    /// The address that it tells others, with its peer id.
    told: String,
    client: RwLock<Client>,
}

impl Node {
    /// Where other nodes find it.
    pub fn address(&self) -> String {
        self.told.clone()
    }

    /// The API of its present life, or of its last one while it is down.
    pub fn client(&self) -> Client {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All running nodes.
pub struct Cluster {
    /// In the order of their start.
    pub nodes: Nodes,
    /// How many sites a node asks for their schedules when it meets them; of the others it may know none.
    pub asked_when_met: usize,
    /// Whether nodes check schedules as often as they like. Where they do not, whoever misses a change may hear of it much later,
    /// so nobody waits until it is known everywhere.
    pub checks_often: bool,
    interrupt: Interrupt,
}

impl Cluster {
    /// Starts the first `count` nodes: the first one, then the rest in waves, which find the grid through those before.
    ///
    /// # Errors
    /// [`GridError`]; nodes that were started already are ended.
    pub fn start(
        launch: &Launch<'_>,
        count: usize,
        interrupt: &Interrupt,
        progress: impl Fn(usize),
    ) -> Result<Cluster, GridError> {
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

    /// No nodes yet, and room for `most`, which ask so many sites for their schedules when they meet them: as many as by default,
    /// if they are not told.
    pub fn empty(most: usize, asked_when_met: Option<usize>, interrupt: &Interrupt) -> Cluster {
        let checks_often = asked_when_met.is_none();
        let asked_when_met = asked_when_met.unwrap_or_else(|| discovery::Limits::default().sites_eager_max);
        Cluster { nodes: Nodes::with_room(most), asked_when_met, checks_often, interrupt: interrupt.clone() }
    }

    /// Starts more nodes, until there are `count`. They find the grid at `bootstrap`, or else through some that came before
    /// them, the first of which begins alone.
    ///
    /// # Errors
    /// [`GridError`]; nodes that were started already stay.
    pub fn grow(
        &self,
        launch: &Launch<'_>,
        count: usize,
        bootstrap: &[String],
        progress: impl Fn(usize),
    ) -> Result<(), GridError> {
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
    fn add(&self, launch: &Launch<'_>, index: usize, process: Arc<NodeProcess>) -> Result<(), GridError> {
        let (name, data_dir) = (launch.names[index].clone(), launch.data_dir(index));
        let (client, status) = opened(&name, &data_dir, &process, &self.interrupt)?;
        let place = &launch.places[index];
        let listen = match (&place.announce, status.listen.first()) {
            // What it tells is not what it listens on.
            (Some(_), _) | (None, None) => place.listen.clone(),
            (None, Some(told)) => without_peer(told).to_owned(),
        };
        let told = status.listen.first().cloned().unwrap_or_else(|| format!("{listen}/p2p/{}", status.site));
        let node = Node { name, process, site: status.site, data_dir, listen, told, client: RwLock::new(client) };
        if self.nodes.add(node) {
            return Ok(());
        }
        Err(system("cannot add a node")(io::Error::other("more were started than were asked for")))
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

    /// Processor time that all nodes have used; `None` where that cannot be told.
    pub fn processor_time(&self) -> Option<Duration> {
        self.pids().into_iter().filter_map(memory::processor_time).reduce(|sum, one| sum + one)
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// As [`Cluster::check`].
    pub fn pass(&self, time: Duration) -> Result<(), GridError> {
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
    /// [`GridError::Crashed`] with the last log lines, [`GridError::Interrupted`].
    pub fn check(&self) -> Result<(), GridError> {
        self.interrupt.check()?;
        self.processes().try_for_each(|node| node.process.check())
    }

    /// Starts the node at `index` again after its end, with its data and its address, and waits until its API answers.
    ///
    /// # Errors
    /// [`GridError`] when it does not come up.
    pub fn revive(&self, index: usize) -> Result<(), GridError> {
        let node = &self.nodes[index];
        let address_file = node.data_dir.join("api.address");
        match fs::remove_file(&address_file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(system(&format!("cannot remove {}", address_file.display()))(error));
            }
            _ => {}
        }
        node.process.respawn(&node.listen)?;
        let (client, _) = opened(&node.name, &node.data_dir, &node.process, &self.interrupt)?;
        *node.client.write().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(())
    }

    /// Asks the node at `index` to leave, and waits until its process has ended; when that was.
    ///
    /// # Errors
    /// [`GridError`] when it does not end.
    pub fn leave(&self, index: usize) -> Result<Instant, GridError> {
        let node = &self.nodes[index];
        node.process.terminate();
        let is_gone = || {
            Ok(if node.process.is_running() { Look::NotYet("running".to_owned()) } else { Look::Done(Instant::now()) })
        };
        wait_until(&format!("{} to leave", node.name), STOP_LIMIT, PAUSE, || self.check(), is_gone)
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
        // A deadline is told below, process by process; an interrupt has no say here, since stopping is what it asks for.
        let limit = STOP_LIMIT + STOP_LIMIT_MORE.mul_f64(self.nodes.len() as f64);
        let _ = wait_until("stop", limit, PAUSE, || Ok(()), all_ended);
        self.processes().filter_map(|node| node.process.bad_end()).collect()
    }
}

/// Through which node the one with number `index` finds the grid. Were it the first one for all, hundreds would ask it at
/// once, and it could not keep what it promises them.
fn parent(index: usize) -> usize {
    index / WAVE
}

impl Launch<'_> {
    fn data_dir(&self, index: usize) -> PathBuf {
        self.run_dir.join(&self.names[index]).join("data")
    }

    /// Writes the configuration of the node with number `index`; where it is.
    fn configure(&self, index: usize, bootstrap: &[String]) -> Result<PathBuf, GridError> {
        let (name, data_dir) = (&self.names[index], self.data_dir(index));
        let dir = self.run_dir.join(name);
        fs::create_dir_all(&data_dir).map_err(system(&format!("cannot make {}", data_dir.display())))?;
        let hosts_file = self.write_hosts(index, &self.nodes[index])?;
        let place = &self.places[index];
        // Whoever has joined a closed grid has it in the data directory.
        let grid = (!self.is_closed).then_some(self.grid);
        let config = NodeConfigFile::new(&data_dir, name, grid, bootstrap, &hosts_file, place, self.timing);
        write(&dir, "site.toml", &config.to_toml())
    }

    /// Writes down the hosts that the node with number `index` has when it starts next; where that is.
    ///
    /// # Errors
    /// [`GridError::System`].
    pub fn write_hosts(&self, index: usize, hosts: &GridSnapshot) -> Result<PathBuf, GridError> {
        let dir = self.run_dir.join(&self.names[index]);
        write(&dir, "hosts.json", &shifted_snapshot(hosts, self.epoch).write())
    }

    fn spawn(&self, index: usize, bootstrap: &[String]) -> Result<NodeProcess, GridError> {
        let inhabitants = Inhabitants::One(self.configure(index, bootstrap)?);
        if self.is_closed {
            self.admit(index, bootstrap)?;
        }
        let namespace = self.places[index].namespace;
        let command = NodeCommand { kolo: self.kolo.to_owned(), inhabitants, namespace };
        let name = &self.names[index];
        NodeProcess::spawn(command, name.clone(), self.log_dir.join(format!("{name}.log")))
    }

    /// Makes the node with number `index` a member of the closed grid.
    fn admit(&self, index: usize, bootstrap: &[String]) -> Result<(), GridError> {
        let founder = self.data_dir(0);
        match index {
            0 => members::found(self.kolo, &founder, self.grid, &self.names[0]),
            _ => members::join(self.kolo, &founder, &self.data_dir(index), &self.names[index], bootstrap),
        }
    }

    /// Starts one process with the first `count` nodes, which find the grid through those before them.
    fn spawn_group(&self, count: usize) -> Result<Arc<NodeProcess>, GridError> {
        let bootstrap = |index| (index > 0).then(|| self.places[parent(index)].listen.clone());
        let configs = (0..count).map(|index| self.configure(index, bootstrap(index).as_slice()));
        let inhabitants = Inhabitants::Many(configs.collect::<Result<_, _>>()?);
        let command = NodeCommand { kolo: self.kolo.to_owned(), inhabitants, namespace: None };
        let log = self.log_dir.join("nodes.log");
        NodeProcess::spawn(command, "the process of all nodes".to_owned(), log).map(Arc::new)
    }
}

fn write(dir: &Path, name: &str, text: &str) -> Result<PathBuf, GridError> {
    let path = dir.join(name);
    fs::write(&path, text).map_err(system(&format!("cannot write {}", path.display())))?;
    Ok(path)
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
) -> Result<(Client, Status), GridError> {
    let what = format!("{name}: its API");
    let check = || interrupt.check().and_then(|()| process.check());
    wait_until(&what, START_LIMIT, PAUSE, check, || {
        let read = Client::from_data_dir(data_dir);
        let found = read.map_err(system(&format!("cannot read {}", data_dir.display())))?;
        let Some(client) = found else { return Ok(Look::NotYet("no api.address or api.token yet".to_owned())) };
        Ok(match client.status() {
            Ok(status) if status.listen.is_empty() => Look::NotYet("it listens nowhere yet".to_owned()),
            Ok(status) => Look::Done((client, status)),
            Err(error) => Look::NotYet(error.to_string()),
        })
    })
}
