//! The node processes: started in waves, watched, killed and revived where the run asks for it, stopped.
//!
//! Each process has a process group and a log file of its own. Invariant: when a [`Cluster`] is gone, so are its
//! processes, on every way out of the harness that runs destructors (errors, panics, Ctrl-C).

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
    time::Duration,
};

use broker::{snapshot::GridSnapshot, time::Span};

use super::{
    client::Client,
    error::GridError,
    interrupt::Interrupt,
    place::Place,
    process::{NodeCommand, NodeConfigFile, NodeProcess, system},
    wait::{Look, wait_until},
    wire::Status,
    workload::shifted_snapshot,
};

/// Nodes started at the same time. More would only compete for the processors while they make their keys and databases.
const WAVE: usize = 8;
/// How long a node may take to open its API.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long all nodes together may take to end after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Between two looks at a starting or ending process.
const PAUSE: Duration = Duration::from_millis(5);

/// How to start the nodes.
pub struct Launch<'a> {
    /// The `kolo` binary.
    pub kolo: &'a Path,
    /// Where data directories and configurations go.
    pub run_dir: &'a Path,
    /// Where log files go.
    pub log_dir: &'a Path,
    /// The hosts of each node.
    pub nodes: &'a [GridSnapshot],
    /// Where each node's sockets are.
    pub places: &'a [Place],
    /// Least time between two gossip messages of a node.
    pub gossip: Duration,
    /// Time 0 of the snapshots.
    pub epoch: Span,
    /// Name of the grid.
    pub grid: &'a str,
}

/// A running node.
pub struct Node {
    /// The process.
    pub process: NodeProcess,
    /// Its site.
    pub site: String,
    /// The address that it listens on in all its lives.
    listen: String,
    client: RwLock<Client>,
}

impl Node {
    /// The API of its present life, or of its last one while it is down.
    pub fn client(&self) -> Client {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All running nodes.
pub struct Cluster {
    /// In the order of their start.
    pub nodes: Vec<Node>,
    interrupt: Interrupt,
}

impl Cluster {
    /// Starts all nodes: the first one, then the rest in waves, which find the grid through the first.
    ///
    /// # Errors
    /// [`GridError`]; nodes that were started already are ended.
    pub fn start(launch: &Launch<'_>, interrupt: &Interrupt, progress: impl Fn(usize)) -> Result<Cluster, GridError> {
        let mut cluster = Cluster { nodes: Vec::new(), interrupt: interrupt.clone() };
        let mut bootstrap = Vec::new();
        let mut next = 0;
        while next < launch.nodes.len() {
            let wave = if next == 0 { 1 } else { WAVE.min(launch.nodes.len() - next) };
            let spawned: Vec<NodeProcess> =
                (next..next + wave).map(|index| launch.spawn(index, &bootstrap)).collect::<Result<_, _>>()?;
            for process in spawned {
                let (client, status) = opened(&process, interrupt)?;
                let listen = status.listen.first().map_or("", |address| without_peer(address)).to_owned();
                if bootstrap.is_empty() {
                    bootstrap = status.listen;
                }
                cluster.nodes.push(Node { process, site: status.site, listen, client: RwLock::new(client) });
                progress(cluster.nodes.len());
            }
            next += wave;
        }
        Ok(cluster)
    }

    /// Fails when a process has ended by itself or the run was interrupted.
    ///
    /// # Errors
    /// [`GridError::Crashed`] with the last log lines, [`GridError::Interrupted`].
    pub fn check(&self) -> Result<(), GridError> {
        self.interrupt.check()?;
        self.nodes.iter().try_for_each(|node| node.process.check())
    }

    /// Starts the node at `index` again after its end, with its data and its address, and waits until its API answers.
    ///
    /// # Errors
    /// [`GridError`] when it does not come up.
    pub fn revive(&self, index: usize) -> Result<(), GridError> {
        let node = &self.nodes[index];
        let address_file = node.process.data_dir().join("api.address");
        match fs::remove_file(&address_file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(system(&format!("cannot remove {}", address_file.display()))(error));
            }
            _ => {}
        }
        node.process.respawn(&node.listen)?;
        let (client, _) = opened(&node.process, &self.interrupt)?;
        *node.client.write().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(())
    }

    /// How many processes have ended by themselves.
    pub fn crashes(&self) -> usize {
        self.nodes.iter().filter(|node| node.process.check().is_err()).count()
    }

    /// Asks every process to end, waits, and kills those that do not. Returns in words what did not end as it should.
    pub fn stop(self) -> Vec<String> {
        for node in &self.nodes {
            node.process.terminate();
        }
        let all_ended = || {
            let running = self.nodes.iter().filter(|node| node.process.is_running()).count();
            Ok(if running == 0 { Look::Done(()) } else { Look::NotYet(format!("{running} processes running")) })
        };
        // A deadline is told below, process by process; an interrupt has no say here, since stopping is what it asks for.
        let _ = wait_until("stop", STOP_LIMIT, PAUSE, || Ok(()), all_ended);
        self.nodes.iter().filter_map(|node| node.process.bad_end()).collect()
    }
}

impl Launch<'_> {
    fn spawn(&self, index: usize, bootstrap: &[String]) -> Result<NodeProcess, GridError> {
        let name = format!("node-{:03}", index + 1);
        let dir = self.run_dir.join(&name);
        let data_dir = dir.join("data");
        fs::create_dir_all(&data_dir).map_err(system(&format!("cannot make {}", data_dir.display())))?;
        let hosts_file = write(&dir, "hosts.json", &shifted_snapshot(&self.nodes[index], self.epoch).write())?;
        let place = &self.places[index];
        let config = NodeConfigFile::new(&data_dir, &name, self.grid, bootstrap, &hosts_file, place, self.gossip);
        let config = write(&dir, "site.toml", &config.to_toml())?;
        let command = NodeCommand { kolo: self.kolo.to_owned(), config, namespace: place.namespace };
        NodeProcess::spawn(command, name.clone(), data_dir, self.log_dir.join(format!("{name}.log")))
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
fn opened(process: &NodeProcess, interrupt: &Interrupt) -> Result<(Client, Status), GridError> {
    let what = format!("{}: its API", process.name());
    let check = || interrupt.check().and_then(|()| process.check());
    wait_until(&what, START_LIMIT, PAUSE, check, || {
        let read = Client::from_data_dir(process.data_dir());
        let found = read.map_err(system(&format!("cannot read {}", process.data_dir().display())))?;
        let Some(client) = found else { return Ok(Look::NotYet("no api.address or api.token yet".to_owned())) };
        Ok(match client.status() {
            Ok(status) if status.listen.is_empty() => Look::NotYet("it listens nowhere yet".to_owned()),
            Ok(status) => Look::Done((client, status)),
            Err(error) => Look::NotYet(error.to_string()),
        })
    })
}
