//! How the nodes of a grid are started: their names, places, hosts and configuration files, and, in a closed grid, their
//! membership.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use broker::{snapshot::GridSnapshot, time::Span};
use serde::Serialize;

use super::{
    place::Place,
    process::{Inhabitants, NodeCommand, NodeProcess, without_own_settings},
};
use crate::shift::shifted_snapshot;

/// Nodes that find the grid through the same node. Were it the first one for all, hundreds would ask it at once, and it
/// would answer them too late.
const CHILDREN: usize = 8;

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

/// How soon losses are noticed.
#[derive(Debug, Clone, Copy)]
pub struct LossTiming {
    /// Between two questions whether all of a reservation is still there.
    pub check: Duration,
    /// How long a site has to be silent to count as lost.
    pub lost_after: Duration,
}

/// How eagerly nodes ask for schedules that no plan needs yet. In a large grid each question goes to a node without a connection,
/// and opening one takes 5 ms of a processor; nodes on machines of their own do not mind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    /// Between two checks of the oldest schedules.
    pub recheck: Duration,
    /// Sites that are asked when they are met.
    pub when_met: usize,
}

impl Asking {
    /// Up to so many nodes in one process are as eager as any.
    const EAGER_NODES_MAX: usize = 200;
    /// Time in which one node of all makes a check.
    const RECHECK_EACH: Duration = Duration::from_millis(20);

    /// For `nodes` nodes that share one process and its processors; none when they may do as they like.
    pub fn in_process(nodes: usize) -> Option<Asking> {
        let recheck = Asking::RECHECK_EACH * u32::try_from(nodes).unwrap_or(u32::MAX);
        (nodes > Asking::EAGER_NODES_MAX).then_some(Asking { recheck, when_met: 16 })
    }

    /// In words.
    pub fn words(&self) -> String {
        let Asking { recheck, when_met } = self;
        let every = recheck.as_secs();
        format!("each asks {when_met} sites for their schedules when it meets them, and checks one every {every} s")
    }
}

/// The node's configuration file, as far as the harness sets it.
#[derive(Debug, Serialize)]
struct ConfigFile<'a> {
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

/// How to start the nodes of a grid.
pub struct Launch<'a> {
    pub kolo: &'a Path,
    /// For data directories and configurations.
    pub run_dir: &'a Path,
    /// For log files.
    pub log_dir: &'a Path,
    /// The hosts of each node, of those too that come later.
    pub nodes: &'a [GridSnapshot],
    /// The name of each node, for people and for its files.
    pub names: &'a [String],
    /// The sockets of each node.
    pub places: &'a [Place],
    /// Whether all nodes share one process.
    pub in_process: bool,
    /// How quick the nodes are.
    pub timing: NodeTiming,
    /// Time 0 of the snapshots.
    pub epoch: Span,
    pub grid: &'a str,
    /// Whether the grid is one of members: the first node founds it and invites the others.
    pub is_closed: bool,
}

impl Launch<'_> {
    /// The data directory of the node with number `index`.
    pub fn data_dir(&self, index: usize) -> PathBuf {
        self.run_dir.join(&self.names[index]).join("data")
    }

    /// Writes the configuration of the node with number `index`; returns its path.
    fn configure(&self, index: usize, bootstrap: &[String]) -> anyhow::Result<PathBuf> {
        let (name, data_dir, place) = (&self.names[index], self.data_dir(index), &self.places[index]);
        fs::create_dir_all(&data_dir).with_context(|| format!("cannot make {}", data_dir.display()))?;
        let hosts_file = self.write_hosts(index, &self.nodes[index])?;
        let text = |time: Duration| format!("{}ms", time.as_millis());
        let NodeTiming { gossip, losses, asking } = self.timing;
        let config = ConfigFile {
            data_dir: &data_dir,
            name,
            // A node that has joined a closed grid has it in the data directory.
            grid: (!self.is_closed).then_some(self.grid),
            listen: [&place.listen],
            announce: place.announce.as_deref().into_iter().collect(),
            bootstrap,
            api: &place.api,
            hosts_file: &hosts_file,
            gossip: Gossip {
                interval: text(gossip),
                recheck: asking.map(|asking| text(asking.recheck)),
                asked_when_met: asking.map(|asking| asking.when_met),
            },
            log: Log { format: "human" },
            negotiation: losses.map(|losses| Negotiation {
                check_min: text(losses.check),
                check_max: text(losses.check),
                lost_after: text(losses.lost_after),
            }),
        };
        self.write(index, "site.toml", &toml::to_string(&config)?)
    }

    /// Writes the hosts that the node with number `index` has when it starts next; returns the path.
    pub fn write_hosts(&self, index: usize, hosts: &GridSnapshot) -> anyhow::Result<PathBuf> {
        self.write(index, "hosts.json", &shifted_snapshot(hosts, self.epoch).write())
    }

    fn write(&self, index: usize, file: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.run_dir.join(&self.names[index]).join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Starts the node with number `index`, which finds the grid at `bootstrap`.
    pub fn spawn(&self, index: usize, bootstrap: &[String]) -> anyhow::Result<NodeProcess> {
        let inhabitants = Inhabitants::One(self.configure(index, bootstrap)?);
        if self.is_closed {
            self.admit(index, bootstrap)?;
        }
        let command = NodeCommand { kolo: self.kolo.to_owned(), inhabitants, namespace: self.places[index].namespace };
        let name = &self.names[index];
        NodeProcess::spawn(command, name.clone(), self.log_dir.join(format!("{name}.log")))
    }

    /// Starts one process with the first `count` nodes, which find the grid through those before them.
    pub fn spawn_group(&self, count: usize) -> anyhow::Result<Arc<NodeProcess>> {
        let bootstrap = |index| (index > 0).then(|| self.places[parent(index)].listen.clone());
        let configs = (0..count).map(|index| self.configure(index, bootstrap(index).as_slice()));
        let inhabitants = Inhabitants::Many(configs.collect::<Result<_, _>>()?);
        let command = NodeCommand { kolo: self.kolo.to_owned(), inhabitants, namespace: None };
        let log = self.log_dir.join("nodes.log");
        NodeProcess::spawn(command, "the process of all nodes".to_owned(), log).map(Arc::new)
    }

    /// Makes the node with number `index` a member of the closed grid: the first one founds it and invites the others, which join
    /// with keys of their own. Each step is the command that people use.
    fn admit(&self, index: usize, bootstrap: &[String]) -> anyhow::Result<()> {
        let (founder, name) = (self.data_dir(0), &self.names[index]);
        if index == 0 {
            return self.kolo(&founder, &["grid", "init", "--name", self.grid, "--site", name], "").map(|_| ());
        }
        let mut arguments = vec!["grid", "invite", "--role", "site", "--name", name, "--output", "quiet"];
        for address in bootstrap {
            arguments.extend(["--bootstrap", address]);
        }
        let token = self.kolo(&founder, &arguments, "")?;
        self.kolo(&self.data_dir(index), &["join", "-"], &token).map(|_| ())
    }

    /// What `kolo` prints, given `input`.
    fn kolo(&self, data_dir: &Path, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let what = || format!("kolo {}", arguments[..2].join(" "));
        let mut command = Command::new(self.kolo);
        without_own_settings(&mut command);
        command.args(arguments).arg("--data-dir").arg(data_dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(what)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read its input fails, and says why.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output().with_context(what)?;
        if !output.status.success() {
            bail!("{}: {}: {}", what(), output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The node through which the one with number `index` finds the grid.
pub fn parent(index: usize) -> usize {
    index / CHILDREN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_toml() {
        let dir = tempfile::tempdir().unwrap();
        let losses = LossTiming { check: Duration::from_secs(3), lost_after: Duration::from_secs(1) };
        let timing =
            NodeTiming { gossip: Duration::from_millis(200), losses: Some(losses), asking: Asking::in_process(1000) };
        let launch = Launch {
            kolo: Path::new("kolo"),
            run_dir: dir.path(),
            log_dir: dir.path(),
            nodes: &[crate::generate::grid(1, 2)],
            names: &["node-001".to_owned()],
            places: &[Place::loopback(0)],
            in_process: false,
            timing,
            epoch: Span(1_700_000_000),
            grid: "g",
            is_closed: false,
        };
        let bootstrap = ["/ip4/127.0.0.1/tcp/4001/p2p/x\"y".to_owned()];
        let path = launch.configure(0, &bootstrap).unwrap();
        let table: toml::Table = toml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(table["bootstrap"][0].as_str(), Some(bootstrap[0].as_str()));
        assert_eq!(table["gossip"]["interval"].as_str(), Some("200ms"));
        assert_eq!(table["gossip"]["recheck"].as_str(), Some("20000ms"));
        assert_eq!(table["gossip"]["asked_when_met"].as_integer(), Some(16));
        assert_eq!(table["negotiation"]["lost_after"].as_str(), Some("1000ms"));
        assert_eq!(table["api"].as_str(), Some("127.0.0.1:0"));
        assert!(Path::new(table["hosts_file"].as_str().unwrap()).is_file());
        assert_eq!(Asking::in_process(200), None);
    }
}
