//! A network that can be cut in two: one network namespace a side, joined by a pair of virtual cables.
//!
//! The harness itself moves into a namespace of its own (with a user namespace around it, so that no privilege is
//! needed), from which both sides' APIs can be reached whatever happens between the sides:
//!
//! ```text
//!   side 1: nodes on 10.91.x.y, APIs on 127.91.x.y ---- cable that is cut ---- side 2: 10.92.x.y, 127.92.x.y
//!                        \                                                      /
//!                         the harness, which routes 127.91/16 and 127.92/16 there
//! ```
//!
//! A cut is silent, as outside: packets leave and arrive nowhere. Invariant: nothing outside these namespaces is
//! touched, and they are gone when their processes are.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use super::{
    error::{GridError, UsageError},
    place::{Place, numbered},
    process::system,
};

/// Says that the harness runs in its own namespaces already.
const MARK: &str = "KOLO_SIM_IN_NAMESPACE";
/// Hardware addresses of the two ends of the cable between the sides.
const ENDS: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
/// A hardware address that nobody has.
const NOBODY: &str = "02:00:00:00:00:ff";
/// Second octets of the addresses of the two sides.
const SIDES: [u8; 2] = [91, 92];

/// Goes on inside a namespace of its own: replaces this process by one that runs the same command there.
///
/// # Errors
/// [`UsageError::NoNamespaces`] where the system does not let us.
pub fn enter() -> Result<(), UsageError> {
    if env::var_os(MARK).is_some() {
        return Ok(());
    }
    let refused = |why: String| UsageError::NoNamespaces { why };
    let flags = ["--user", "--map-root-user", "--net", "--"];
    let tried = Command::new("unshare").args(flags).args(["ip", "link", "show"]).output();
    match tried {
        Ok(output) if output.status.success() => {}
        Ok(output) => return Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(error) => return Err(refused(format!("unshare: {error}"))),
    }
    let own = env::current_exe().map_err(|source| UsageError::OwnPath { source })?;
    let mut command = Command::new("unshare");
    command.args(flags).arg(own).args(env::args_os().skip(1)).env(MARK, "1");
    // Returns only when it fails.
    Err(refused(command.exec().to_string()))
}

/// One side's namespace, which lives as long as the process that holds it.
struct Side {
    holder: Child,
}

impl Side {
    fn make() -> Result<Side, GridError> {
        let what = "cannot make a network namespace";
        // The holder ends when its input does, that is with the harness, however that ends.
        let mut holder = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo here; exec cat > /dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(system(what))?;
        let mut line = String::new();
        if let Some(stdout) = holder.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(system(what))?;
        }
        let side = Side { holder };
        if line.trim() == "here" { Ok(side) } else { Err(system(what)(io::Error::other("its holder did not start"))) }
    }

    fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// Runs `ip` with one command a line inside.
    fn ip(&self, commands: &str) -> Result<(), GridError> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid())).args(["--", "ip", "-batch", "-"]);
        run(&mut command, commands)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Two sides and what joins them.
pub struct Network {
    sides: [Side; 2],
}

impl Network {
    /// Makes both sides and joins them. Only inside the namespace that [`enter`] leads to.
    ///
    /// # Errors
    /// [`GridError::System`] with what the system said.
    pub fn make() -> Result<Network, GridError> {
        let sides = [Side::make()?, Side::make()?];
        // 127/8 belongs to the inside of a machine; the harness gives most of it away, to reach APIs that listen there.
        let mut own = "link set lo up\naddr del 127.0.0.1/8 dev lo\naddr add 127.0.0.1/32 dev lo\n".to_owned();
        for (side, number) in sides.iter().zip(SIDES) {
            own += &format!(
                "link add side{number} type veth peer name harness netns {}\n\
                 addr add 10.90.{number}.1/24 dev side{number}\nlink set side{number} up\n",
                side.pid()
            );
        }
        run(Command::new("ip").args(["-batch", "-"]), &own)?;
        let sysctl = "/proc/sys/net/ipv4/conf/all/route_localnet";
        fs::write(sysctl, "1").map_err(system(&format!("cannot write {sysctl}")))?;
        for (side, number) in sides.iter().zip(SIDES) {
            side.ip(&format!("link set lo up\naddr add 10.90.{number}.2/24 dev harness\nlink set harness up\n"))?;
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/proc/{}/ns/net", side.pid())).args(["--", "tee", sysctl]);
            run(&mut command, "1")?;
        }
        let routes = SIDES.map(|number| format!("route add 127.{number}.0.0/16 via 10.90.{number}.2\n"));
        run(Command::new("ip").args(["-batch", "-"]), &routes.concat())?;
        sides[0].ip(&format!(
            "link add cable address {} type veth peer name cable address {} netns {}\n",
            ENDS[0],
            ENDS[1],
            sides[1].pid()
        ))?;
        let network = Network { sides };
        for (index, side) in network.sides.iter().enumerate() {
            let other = 1 - index;
            side.ip(&format!(
                "addr add 10.93.0.{}/30 dev cable\nlink set cable up\n\
                 neigh replace 10.93.0.{1} lladdr {2} dev cable nud permanent\n\
                 route add 10.{3}.0.0/16 via 10.93.0.{1}\n",
                index + 1,
                other + 1,
                ENDS[other],
                SIDES[other]
            ))?;
        }
        Ok(network)
    }

    /// The places of `nodes` nodes: the first half on one side, the others on the other one.
    ///
    /// # Errors
    /// [`GridError::System`] when an address cannot be added.
    pub fn places(&self, nodes: usize) -> Result<Vec<Place>, GridError> {
        let mut addresses = [String::new(), String::new()];
        let places = (0..nodes).map(|index| {
            let side = side_of(index, nodes);
            let address = numbered(10, SIDES[side], index);
            addresses[side] += &format!("addr add {address}/32 dev lo\n");
            Place {
                listen: format!("/ip4/{address}/tcp/0"),
                announce: None,
                api: format!("{}:0", numbered(127, SIDES[side], index)),
                namespace: Some(self.sides[side].pid()),
            }
        });
        let places = places.collect();
        self.sides.iter().zip(&addresses).try_for_each(|(side, addresses)| side.ip(addresses))?;
        Ok(places)
    }

    /// Cuts the sides off from each other: what is sent goes to a hardware address that nobody has.
    ///
    /// # Errors
    /// [`GridError::System`].
    pub fn cut(&self) -> Result<(), GridError> {
        self.point_to([NOBODY, NOBODY])
    }

    /// Joins the sides again.
    ///
    /// # Errors
    /// [`GridError::System`].
    pub fn heal(&self) -> Result<(), GridError> {
        self.point_to([ENDS[1], ENDS[0]])
    }

    /// Sets where each side sends what is for the other one.
    fn point_to(&self, hardware: [&str; 2]) -> Result<(), GridError> {
        for (index, side) in self.sides.iter().enumerate() {
            let gateway = 2 - index;
            side.ip(&format!("neigh replace 10.93.0.{gateway} lladdr {} dev cable nud permanent\n", hardware[index]))?;
        }
        Ok(())
    }
}

/// The side (0 or 1) of the node with number `index`, of `nodes`.
pub fn side_of(index: usize, nodes: usize) -> usize {
    usize::from(index >= nodes.div_ceil(2))
}

/// Runs a command with `input`; its own words are in the error.
fn run(command: &mut Command, input: &str) -> Result<(), GridError> {
    let text = format!("cannot set up the network: {command:?}");
    let failed = || system(&text);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed())?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).map_err(failed())?;
    }
    let output = child.wait_with_output().map_err(failed())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed()(io::Error::other(format!("{said} (of: {})", input.trim().replace('\n', "; ")))))
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
