//! How the nodes of a grid are started: their names, places, hosts and configuration files, and, in a closed grid, their
//! membership.

use std::{env, fs, path::PathBuf, process::Command, sync::Arc, time::Duration};

use anyhow::Context;
use broker::{snapshot::GridSnapshot, time::Span};
use serde_json::json;

use super::{
    place::Place,
    process::{NodeCommand, NodeProcess, output_of, without_own_settings},
};
use crate::shift::shifted_snapshot;

/// Nodes that find the grid through the same node. Were it the first one for all, hundreds would ask it at once, and it
/// would answer them too late.
const CHILDREN: usize = 8;

/// The binary of many nodes in one process, beside this one.
const GROUP_BINARY: &str = "kolo-node-group";

/// How quick nodes are, where that is not the nodes' own choice.
#[derive(Debug, Clone, Copy)]
pub struct NodeTiming {
    /// Least time between two gossip messages of a node.
    pub gossip: Duration,
    /// How soon losses are noticed.
    pub losses: Option<LossTiming>,
    /// How eagerly nodes ask for schedules.
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
}

/// A node to start.
#[derive(Debug)]
pub struct NodeSetup {
    /// For people and for its files.
    pub name: String,
    /// Its sockets.
    pub place: Place,
    /// Its hosts; their times are relative.
    pub hosts: GridSnapshot,
}

/// How to start the nodes of a grid.
#[derive(Debug)]
pub struct Launch {
    pub kolo: PathBuf,
    /// For data directories, configurations and logs.
    pub run_dir: PathBuf,
    /// All nodes, those too that come later.
    pub nodes: Vec<NodeSetup>,
    /// Whether all nodes share one process.
    pub in_process: bool,
    pub timing: NodeTiming,
    /// Time 0 of the snapshots.
    pub epoch: Span,
    pub grid: String,
    /// Whether the grid is one of members: the first node founds it and invites the others.
    pub is_closed: bool,
    /// Whether the owners leave the limits of an open grid as they are; else anybody may have all of every site.
    pub limits_strangers: bool,
    /// What each site's uplink carries, in Mbit/s; none without a limit.
    pub uplink_mbps: Option<u64>,
}

impl Launch {
    /// The data directory of the node with number `index`.
    pub fn data_dir(&self, index: usize) -> PathBuf {
        self.run_dir.join(&self.nodes[index].name).join("data")
    }

    /// Writes the configuration of the node with number `index`; returns its path.
    fn configure(&self, index: usize, bootstrap: &[String]) -> anyhow::Result<PathBuf> {
        let (NodeSetup { name, place, hosts }, data_dir) = (&self.nodes[index], self.data_dir(index));
        fs::create_dir_all(&data_dir).with_context(|| format!("cannot make {}", data_dir.display()))?;
        let text = |time: Duration| format!("{}ms", time.as_millis());
        let mut config = json!({
            "data_dir": data_dir,
            "name": name,
            "listen": [place.listen],
            "announce": place.announce.as_slice(),
            "bootstrap": bootstrap,
            "api": place.api,
            "hosts_file": self.write_hosts(index, hosts)?,
            "gossip": {"interval": text(self.timing.gossip)},
            "log": {"format": "human"},
        });
        if !self.limits_strangers {
            config["policy"] = json!({"site_share": "100%", "max_duration": "366d", "max_reach": "366d"});
        }
        if let Some(mbps) = self.uplink_mbps {
            config["uplink"] = json!(format!("{mbps}Mbit/s"));
        }
        // A node that has joined a closed grid has it in the data directory.
        if !self.is_closed {
            config["grid"] = json!(self.grid);
        }
        if let Some(asking) = self.timing.asking {
            config["gossip"]["recheck"] = json!(text(asking.recheck));
            config["gossip"]["asked_when_met"] = json!(asking.when_met);
        }
        if let Some(losses) = self.timing.losses {
            let check = text(losses.check);
            config["negotiation"] =
                json!({"check_min": check, "check_max": check, "lost_after": text(losses.lost_after)});
        }
        self.write(index, "site.toml", &toml::to_string(&config)?)
    }

    /// Writes the hosts that the node with number `index` has when it starts next; returns the path.
    pub fn write_hosts(&self, index: usize, hosts: &GridSnapshot) -> anyhow::Result<PathBuf> {
        self.write(index, "hosts.json", &shifted_snapshot(hosts, self.epoch).write())
    }

    fn write(&self, index: usize, file: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.run_dir.join(&self.nodes[index].name).join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Starts the node with number `index`, which finds the grid at `bootstrap`.
    pub fn spawn(&self, index: usize, bootstrap: &[String]) -> anyhow::Result<Arc<NodeProcess>> {
        let arguments = vec!["node".into(), "--config".into(), self.configure(index, bootstrap)?.into()];
        if self.is_closed {
            self.admit(index, bootstrap)?;
        }
        let NodeSetup { name, place, .. } = &self.nodes[index];
        let command = NodeCommand { program: self.kolo.clone(), arguments, namespace: place.namespace };
        let log = self.run_dir.join(format!("{name}.log"));
        NodeProcess::spawn(command, name.clone(), log).map(Arc::new)
    }

    /// Starts one process with the first `count` nodes, which find the grid through those before them.
    pub fn spawn_group(&self, count: usize) -> anyhow::Result<Arc<NodeProcess>> {
        let mut arguments = Vec::new();
        for index in 0..count {
            let bootstrap = (index > 0).then(|| self.nodes[parent(index)].place.listen.clone());
            arguments.push(self.configure(index, bootstrap.as_slice())?.into());
        }
        let program = env::current_exe().context("the place of this binary is unknown")?.with_file_name(GROUP_BINARY);
        let command = NodeCommand { program, arguments, namespace: None };
        let log = self.run_dir.join("nodes.log");
        let started = NodeProcess::spawn(command, "the process of all nodes".to_owned(), log);
        started.map(Arc::new).context("cannot start all nodes in one process (cargo build -p node-group builds it)")
    }

    /// Makes the node with number `index` a member of the closed grid: the first one founds it and invites the others, which join
    /// with keys of their own. Each step is the command that people use.
    fn admit(&self, index: usize, bootstrap: &[String]) -> anyhow::Result<()> {
        let (founder, name) = (self.data_dir(0), &self.nodes[index].name);
        let kolo = |data_dir: PathBuf, arguments: &[&str], input: &str| {
            let mut command = Command::new(&self.kolo);
            output_of(without_own_settings(&mut command).args(arguments).arg("--data-dir").arg(data_dir), input)
        };
        if index == 0 {
            return kolo(founder, &["grid", "init", "--name", &self.grid, "--site", name], "").map(|_| ());
        }
        let mut arguments = vec!["grid", "invite", "--role", "site", "--name", name, "--output", "quiet"];
        for address in bootstrap {
            arguments.extend(["--bootstrap", address]);
        }
        let token = kolo(founder, &arguments, "")?;
        kolo(self.data_dir(index), &["join", "-"], &token).map(|_| ())
    }
}

/// The node through which the one with number `index` finds the grid.
pub fn parent(index: usize) -> usize {
    index / CHILDREN
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_configuration_is_toml() {
        let dir = tempfile::tempdir().unwrap();
        let losses = LossTiming { check: Duration::from_secs(3), lost_after: Duration::from_secs(1) };
        let launch = Launch {
            kolo: "kolo".into(),
            run_dir: dir.path().to_owned(),
            nodes: vec![NodeSetup {
                name: "node-001".to_owned(),
                place: Place::loopback(0),
                hosts: sim_kit::generate::grid(1, 2),
            }],
            in_process: false,
            timing: NodeTiming {
                gossip: Duration::from_millis(200),
                losses: Some(losses),
                asking: Asking::in_process(1000),
            },
            epoch: Span(1_700_000_000),
            grid: "g".to_owned(),
            is_closed: false,
            limits_strangers: false,
            uplink_mbps: None,
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
