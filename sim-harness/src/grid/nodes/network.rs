//! A network that can be cut: one network namespace a part of the grid, all joined by the harness, which routes between
//! them and lets nothing through where a link is cut.
//!
//! The harness itself moves into a namespace of its own (with a user namespace around it, so that no privilege is
//! needed), from which the APIs of all parts can be reached whatever happens between the parts:
//!
//! ```text
//!   part 0: nodes on 10.91.x.y, APIs on 127.91.x.y --+
//!   part 1: nodes on 10.92.x.y, APIs on 127.92.x.y --+-- the harness: routes, and rules that swallow what is cut
//!   ...                                            --+
//! ```
//!
//! A cut is silent, as outside: packets leave and arrive nowhere. Invariant: nothing outside these namespaces is
//! touched, and they are gone when their processes are.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, anyhow, bail, ensure};
use sim_kit::error::BadUsage;

use super::{
    place::{Place, numbered},
    process::{in_namespace, output_of},
};

/// Set while the harness runs in its own namespaces.
const MARK: &str = "KOLO_SIM_IN_NAMESPACE";
/// Second octet of the addresses of the first part; the others follow.
const FIRST_PART: u8 = 91;
/// Most parts: their octets must not pass 255.
const PARTS_MAX: usize = 100;
/// Whether addresses of 127/8 may come from outside.
const ROUTE_LOCALNET: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";

/// Goes on inside a namespace of its own: replaces this process by one that runs the same command there.
pub fn enter() -> anyhow::Result<()> {
    if env::var_os(MARK).is_some() {
        return Ok(());
    }
    let refused = |why: &str| {
        let needs = "a cut needs network namespaces that a user may make, and the programs unshare, nsenter and ip";
        anyhow!(BadUsage::new(format!("{needs}: {why}")))
    };
    let flags = ["--user", "--map-root-user", "--net", "--"];
    if let Err(error) = output_of(Command::new("unshare").args(flags).args(["ip", "link", "show"]), "") {
        bail!(refused(&format!("{error:#}")));
    }
    let own = env::current_exe().context("the place of this binary is unknown")?;
    let mut command = Command::new("unshare");
    command.args(flags).arg(own).args(env::args_os().skip(1)).env(MARK, "1");
    // Returns only when it fails.
    bail!(refused(&command.exec().to_string()))
}

/// The namespace of a part, which lives as long as the process that holds it.
struct Part {
    holder: Child,
    /// Second octet of its addresses.
    octet: u8,
}

impl Part {
    fn make(number: usize) -> anyhow::Result<Part> {
        let what = "cannot make a network namespace";
        // The holder ends when its input does, that is with the harness, however that ends.
        let mut holder = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo here; exec cat > /dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(what)?;
        let stdout = holder.stdout.take();
        let part = Part { holder, octet: octet(number) };
        let mut line = String::new();
        stdout.map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut line)).context(what)?;
        ensure!(line.trim() == "here", "{what}: its holder did not start");
        Ok(part)
    }

    /// Runs `ip` with one command a line inside.
    fn ip(&self, commands: &str) -> anyhow::Result<()> {
        ip(&mut in_namespace(self.holder.id(), "ip"), commands)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// The parts and what joins them.
pub struct Network {
    parts: Vec<Part>,
}

impl Network {
    /// Makes so many parts and joins them. Only inside the namespace that [`enter`] leads to.
    pub fn make(parts: usize) -> anyhow::Result<Network> {
        ensure!(parts <= PARTS_MAX, "cannot make a network of more than {PARTS_MAX} parts");
        let parts: Vec<Part> = (0..parts).map(Part::make).collect::<Result<_, _>>()?;
        // 127/8 belongs to the inside of a machine; the harness gives most of it away, to reach APIs that listen there.
        let mut own = "link set lo up\naddr del 127.0.0.1/8 dev lo\naddr add 127.0.0.1/32 dev lo\n".to_owned();
        for Part { holder, octet } in &parts {
            own += &format!(
                "link add part{octet} type veth peer name harness netns {}\n\
                 addr add 10.{octet}.255.1/24 dev part{octet}\nlink set part{octet} up\n",
                holder.id()
            );
        }
        ip(&mut Command::new("ip"), &own)?;
        for setting in [ROUTE_LOCALNET, "/proc/sys/net/ipv4/ip_forward"] {
            fs::write(setting, "1").with_context(|| format!("cannot write {setting}"))?;
        }
        let mut routes = String::new();
        for part in &parts {
            let octet = part.octet;
            part.ip(&format!(
                "link set lo up\naddr add 10.{octet}.255.2/24 dev harness\nlink set harness up\n\
                 route add default via 10.{octet}.255.1\n"
            ))?;
            output_of(in_namespace(part.holder.id(), "tee").arg(ROUTE_LOCALNET), "1")?;
            for first in [127, 10] {
                routes += &format!("route add {first}.{octet}.0.0/16 via 10.{octet}.255.2\n");
            }
        }
        ip(&mut Command::new("ip"), &routes)?;
        Ok(Network { parts })
    }

    /// The places of nodes, of which the first is in the part `part_of[0]`, and so on.
    pub fn places(&self, part_of: &[usize]) -> anyhow::Result<Vec<Place>> {
        let mut addresses = vec![String::new(); self.parts.len()];
        let mut places = Vec::new();
        for (index, part) in part_of.iter().enumerate() {
            let Part { holder, octet } = &self.parts[*part];
            let address = numbered(10, *octet, index);
            addresses[*part] += &format!("addr add {address}/32 dev lo\n");
            let api = format!("{}:0", numbered(127, *octet, index));
            let namespace = Some(holder.id());
            places.push(Place { listen: format!("/ip4/{address}/tcp/0"), announce: None, api, namespace });
        }
        self.parts.iter().zip(&addresses).try_for_each(|(part, addresses)| part.ip(addresses))?;
        Ok(places)
    }

    /// Cuts links, each from a part to another one: what is sent there arrives nowhere. None of them is cut already.
    pub fn cut(&self, links: &[(usize, usize)]) -> anyhow::Result<()> {
        change_rules("add", links)
    }

    /// Joins links that were cut.
    pub fn heal(&self, links: &[(usize, usize)]) -> anyhow::Result<()> {
        change_rules("del", links)
    }
}

/// Adds or deletes the rules that swallow what goes over these links.
fn change_rules(change: &str, links: &[(usize, usize)]) -> anyhow::Result<()> {
    let rule = |(from, to): &(usize, usize)| {
        format!("rule {change} iif part{} to 10.{}.0.0/16 blackhole\n", octet(*from), octet(*to))
    };
    ip(&mut Command::new("ip"), &links.iter().map(rule).collect::<String>())
}

/// Runs `ip` with one command a line.
fn ip(command: &mut Command, commands: &str) -> anyhow::Result<()> {
    let what = || format!("cannot set up the network (of: {})", commands.trim().replace('\n', "; "));
    output_of(command.args(["-batch", "-"]), commands).map(|_| ()).with_context(what)
}

/// Second octet of the addresses of a part.
fn octet(part: usize) -> u8 {
    FIRST_PART.saturating_add(u8::try_from(part).unwrap_or(u8::MAX))
}

/// Both directions between the two parts of a grid that is cut in two.
pub const HALVES: [(usize, usize); 2] = [(0, 1), (1, 0)];

/// The half (0 or 1) of the node with number `index`, of `nodes`.
pub fn side_of(index: usize, nodes: usize) -> usize {
    usize::from(index >= nodes.div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_differ_by_one_node_at_most() {
        for nodes in 2..40 {
            let first = (0..nodes).filter(|index| side_of(*index, nodes) == 0).count();
            assert!(first.abs_diff(nodes - first) <= 1, "{nodes}: {first}");
        }
        assert_eq!((side_of(7, 15), side_of(8, 15)), (0, 1));
    }
}
