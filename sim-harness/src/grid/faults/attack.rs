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
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use serde::Serialize;

use super::attacker::Deeds;
use crate::stats::{Percentiles, percentiles};
use crate::{
    grid::{
        load::{figures::counters, users::Placed},
        nodes::cluster::Cluster,
    },
    hostile::Attack,
    usage,
};

/// Between two looks at the memory of the nodes.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// How little the polite attackers ask for.
const POLITE: &str = "19";

/// The attackers of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// None.
    Baseline,
    /// Attackers at the lowest priority.
    Polite,
    /// Attackers at the nodes' priority.
    Equal,
}

impl Phase {
    /// All, in the order in which they are run.
    pub const ALL: [Phase; 3] = [Phase::Baseline, Phase::Polite, Phase::Equal];

    /// Name in reports and in labels of requests.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Baseline => "baseline",
            Phase::Polite => "polite",
            Phase::Equal => "equal",
        }
    }
}

/// What a phase cost.
#[derive(Debug, Clone, Serialize)]
pub struct PhaseFigures {
    pub phase: &'static str,
    /// Requests that were due in it.
    pub requests: usize,
    /// Those of them that were reserved.
    pub reserved: usize,
    /// From the due moment to the confirmation of these.
    pub latency_ms: Option<Percentiles>,
    /// The 99th percentile as a multiple of that without attackers.
    pub p99_ratio: Option<f64>,
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
    /// Starts `count` attackers on all nodes of `grid`; they do everything when no `attacks` are named.
    pub fn start(
        cluster: &Cluster,
        grid: &str,
        phase: Phase,
        count: usize,
        attacks: &[Attack],
    ) -> anyhow::Result<Attackers> {
        let mut attackers = Attackers { children: Vec::new() };
        if phase == Phase::Baseline {
            return Ok(attackers);
        }
        let own = env::current_exe().context("the place of this binary is unknown")?;
        let mut targets = Vec::new();
        for node in cluster.nodes.iter() {
            targets.extend(node.client().status().with_context(|| node.name.clone())?.listen);
        }
        for _ in 0..count {
            let mut command = match phase {
                Phase::Polite => {
                    let mut command = Command::new("nice");
                    command.args(["-n", POLITE]).arg(&own);
                    command
                }
                Phase::Baseline | Phase::Equal => Command::new(&own),
            };
            command.args(["attacker", "--grid", grid]);
            for target in &targets {
                command.arg("--target").arg(target);
            }
            for attack in attacks {
                command.args(["--attack", attack.name()]);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            attackers.children.push(command.spawn().context("cannot start an attacker")?);
        }
        Ok(attackers)
    }

    fn cpu(&self) -> Duration {
        self.children.iter().filter_map(|child| usage::processor_time(child.id())).sum()
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

/// What was measured while a phase lasted.
pub struct Measured {
    lasted: Duration,
    memory_growth_mib: f64,
    nodes_cpu: Duration,
    attackers_cpu: Duration,
    defence: BTreeMap<String, u64>,
    deeds: Deeds,
}

/// Lets `attackers` work for `time` and watches what it costs the nodes.
pub fn watch(cluster: &Cluster, attackers: Attackers, time: Duration) -> anyhow::Result<Measured> {
    let pids = cluster.pids();
    let resident = || pids.iter().map(|pid| usage::resident_mib(*pid).unwrap_or_default()).collect::<Vec<f64>>();
    let processor = || pids.iter().filter_map(|pid| usage::processor_time(*pid)).sum::<Duration>();
    let (before, cpu_before, counted_before) = (resident(), processor(), defence_of(cluster));
    let begun = Instant::now();
    let mut growth: f64 = 0.0;
    while begun.elapsed() < time {
        cluster.check()?;
        thread::sleep(LOOK_PAUSE);
        let grown = resident().into_iter().zip(&before).map(|(now, before)| now - before);
        growth = grown.fold(growth, f64::max);
    }
    let (lasted, nodes_cpu, attackers_cpu) = (begun.elapsed(), processor() - cpu_before, attackers.cpu());
    let deeds = attackers.stop()?;
    let mut defence = defence_of(cluster);
    for (name, count) in &mut defence {
        *count -= counted_before.get(name).copied().unwrap_or_default().min(*count);
    }
    defence.retain(|_, count| *count > 0);
    Ok(Measured { lasted, memory_growth_mib: growth, nodes_cpu, attackers_cpu, defence, deeds })
}

/// The nodes' counters about bad behaviour.
fn defence_of(cluster: &Cluster) -> BTreeMap<String, u64> {
    counters(cluster, |name| ["banned", "refused", "dropped", "invalid"].iter().any(|word| name.contains(word)))
}

impl PhaseFigures {
    /// Puts together what users saw and what was measured. `baseline` is that phase, when this one is not.
    pub fn new(phase: Phase, placed: &[Placed], measured: Measured, baseline: Option<&PhaseFigures>) -> PhaseFigures {
        let latencies: Vec<f64> = placed.iter().filter_map(|one| one.answer.latency_ms()).collect();
        let latency_ms = percentiles(&latencies);
        let without = baseline.and_then(|baseline| baseline.latency_ms);
        let share = |time: Duration| time.as_secs_f64() / measured.lasted.as_secs_f64();
        PhaseFigures {
            phase: phase.name(),
            requests: placed.len(),
            reserved: latencies.len(),
            latency_ms,
            p99_ratio: latency_ms.zip(without).map(|(with, without)| with.p99 / without.p99),
            memory_growth_mib: measured.memory_growth_mib,
            nodes_cpu: share(measured.nodes_cpu),
            attackers_cpu: share(measured.attackers_cpu),
            defence: measured.defence,
            deeds: measured.deeds,
        }
    }

    /// For people.
    pub fn words(&self) -> String {
        let latency = self.latency_ms.map_or_else(
            || "none".to_owned(),
            |latency| format!("{:.0} / {:.0} / {:.0} ms", latency.p50, latency.p99, latency.max),
        );
        let ratio = self.p99_ratio.map_or_else(String::new, |ratio| format!(", p99 x {ratio:.2}"));
        let sent: u64 = self.deeds.sent.values().sum();
        let defence: Vec<String> = self.defence.iter().map(|(name, count)| format!("{name} {count}")).collect();
        format!(
            "{}: {} of {} reserved, p50 / p99 / max {latency}{ratio}; memory +{:.1} MiB; processors: nodes {:.2}, \
             attackers {:.2}; {sent} hostile messages under {} identities, thrown out {} times\n    {}",
            self.phase,
            self.reserved,
            self.requests,
            self.memory_growth_mib,
            self.nodes_cpu,
            self.attackers_cpu,
            self.deeds.identities,
            self.deeds.thrown_out,
            defence.join(", ")
        )
    }
}
