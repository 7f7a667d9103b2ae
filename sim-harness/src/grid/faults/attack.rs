//! The same load without attackers, with attackers that get only what processor time is left, and with attackers that
//! compete for it: what the attack does to the users, and what it costs the honest nodes.
//!
//! On a machine with few processors an attacker takes time from its victims just by running; outside it would use a
//! machine of its own. So the polite variant is the one that says what the attack does; the other one bounds it.
//! Invariant: no attacker outlives its phase.

use std::{
    collections::BTreeMap,
    env,
    io::Read,
    net::Ipv4Addr,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::ValueEnum as _;
use serde::Serialize;
use sim_kit::usage;

use crate::{
    grid::{
        load::{
            answer::{Answer, Counts},
            figures::Used,
        },
        nodes::cluster::Cluster,
    },
    hostile::{Attack, Deeds},
};

/// Between two looks at the memory of the nodes.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// The phases in the order in which they are run: the name in reports and in labels of requests, and the attackers, where there are some.
/// The polite ones have the lowest priority, the others that of the nodes.
pub const PHASES: [(&str, Option<Manner>); 3] = [
    ("baseline", None),
    ("polite", Some(Manner { niceness: "19", from: Ipv4Addr::new(127, 66, 1, 1) })),
    ("equal", Some(Manner { niceness: "0", from: Ipv4Addr::new(127, 66, 2, 1) })),
];

/// How attackers run.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    niceness: &'static str,
    /// Where they come from: to a node all attackers of a phase are of one network, and those of the next one of another.
    from: Ipv4Addr,
}

/// What a phase cost.
#[derive(Debug, Clone, Serialize)]
pub struct PhaseFigures {
    pub phase: &'static str,
    #[serde(flatten)]
    pub counts: Counts,
    /// The 99th percentile as a multiple of that without attackers.
    pub p99_ratio: Option<f64>,
    #[serde(flatten)]
    pub costs: Costs,
}

/// What was measured while a phase lasted.
#[derive(Debug, Clone, Serialize)]
pub struct Costs {
    /// Largest growth of the resident memory of one node, from the begin of the phase to its peak.
    pub memory_growth_mib: f64,
    /// Processor time of all nodes, as a share of one processor.
    pub nodes_cpu: f64,
    /// Processor time of all attackers, as a share of one processor.
    pub attackers_cpu: f64,
    /// Growth of the nodes' counters about bad behaviour, all nodes together.
    pub defence: BTreeMap<String, u64>,
    pub deeds: Deeds,
}

/// Attackers, ended when dropped.
pub struct Attackers {
    children: Vec<Child>,
}

impl Attackers {
    /// Starts `count` attackers on all nodes, which attack in the ways named, or in all where none is.
    pub fn start(
        cluster: &Cluster,
        manner: Option<Manner>,
        count: usize,
        attacks: &[Attack],
    ) -> anyhow::Result<Attackers> {
        let mut attackers = Attackers { children: Vec::new() };
        let Some(Manner { niceness, from }) = manner else { return Ok(attackers) };
        let own = env::current_exe().context("the place of this binary is unknown")?;
        let mut command = Command::new("nice");
        command.args(["-n", niceness]).arg(own).args(["attacker", "--grid", &cluster.launch.grid]);
        for node in cluster.nodes() {
            for target in node.client().status().with_context(|| node.name.clone())?.listen {
                command.arg("--target").arg(target);
            }
        }
        for attack in attacks.iter().filter_map(|attack| attack.to_possible_value()) {
            command.args(["--attack", attack.get_name()]);
        }
        // Elsewhere the system has no other addresses of its own.
        if cfg!(target_os = "linux") {
            command.args(["--from", &from.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        for _ in 0..count {
            attackers.children.push(command.spawn().context("cannot start an attacker")?);
        }
        Ok(attackers)
    }

    /// Lets the attackers work for `time` and watches what it costs the nodes.
    pub fn watch(self, cluster: &Cluster, time: Duration) -> anyhow::Result<Costs> {
        let pids = cluster.pids();
        let resident = || pids.iter().map(|pid| usage::resident_mib(*pid).unwrap_or_default()).collect::<Vec<f64>>();
        let (memory, counted, before) = (resident(), defence_of(cluster), Used::look(cluster));
        let mut memory_growth_mib: f64 = 0.0;
        let begun = Instant::now();
        while begun.elapsed() < time {
            cluster.check()?;
            thread::sleep(LOOK_PAUSE);
            let grown = resident().into_iter().zip(&memory).map(|(now, before)| now - before);
            memory_growth_mib = grown.fold(memory_growth_mib, f64::max);
        }
        let used = Used::look(cluster).since(&before);
        let own_time: Duration = self.children.iter().filter_map(|child| usage::processor_time(child.id())).sum();
        let deeds = self.stop()?;
        let mut defence = defence_of(cluster);
        for (name, count) in &mut defence {
            *count -= counted.get(name).copied().unwrap_or_default().min(*count);
        }
        defence.retain(|_, count| *count > 0);
        Ok(Costs {
            memory_growth_mib,
            nodes_cpu: used.processors().unwrap_or_default(),
            attackers_cpu: own_time.as_secs_f64() / used.lasted.as_secs_f64(),
            defence,
            deeds,
        })
    }

    /// Ends them; what they did.
    fn stop(mut self) -> anyhow::Result<Deeds> {
        let mut deeds = Deeds::default();
        for child in &mut self.children {
            // The end of its input is what ends it.
            drop(child.stdin.take());
            let mut report = String::new();
            if let Some(mut stdout) = child.stdout.take() {
                stdout.read_to_string(&mut report).context("cannot read what an attacker did")?;
            }
            let status = child.wait().context("cannot wait for an attacker")?;
            let read = serde_json::from_str(&report);
            deeds.add(read.with_context(|| format!("an attacker did not report what it did ({status})"))?);
        }
        Ok(deeds)
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Takes back what nodes have promised to others than nodes of the grid, so that the next attackers find it as these did.
pub fn take_back(cluster: &Cluster) -> anyhow::Result<()> {
    let sites = cluster.sites();
    for node in cluster.nodes() {
        let client = node.client();
        let bookings = client.ledger().with_context(|| node.name.clone())?.bookings;
        let of_others = bookings.into_iter().filter(|booking| !sites.contains(&booking.entry_point));
        for booking in of_others {
            match client.take_back(&booking.request) {
                // A hold, or one that has lapsed since.
                Err(error) if matches!(error.status, Some(404 | 409)) => {}
                taken => taken.with_context(|| node.name.clone())?,
            }
        }
    }
    Ok(())
}

/// The nodes' counters about bad behaviour, summed. A node that does not answer just now is left out.
fn defence_of(cluster: &Cluster) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let is_defence = |name: &str| ["banned", "refused", "dropped", "invalid"].iter().any(|word| name.contains(word));
    for status in cluster.nodes().iter().filter_map(|node| node.client().status().ok()) {
        for (name, count) in status.counters.into_iter().filter(|(name, _)| is_defence(name)) {
            *sums.entry(name).or_default() += count;
        }
    }
    sums
}

impl PhaseFigures {
    /// Puts together what users saw and what was measured. `baseline` is that phase, when this one is not.
    pub fn new(phase: &'static str, answers: &[Answer], costs: Costs, baseline: Option<&PhaseFigures>) -> PhaseFigures {
        let counts = Counts::of(answers);
        let without = baseline.and_then(|baseline| baseline.counts.latency_ms);
        let p99_ratio = counts.latency_ms.zip(without).map(|(with, without)| with.p99 / without.p99);
        PhaseFigures { phase, counts, p99_ratio, costs }
    }
}
