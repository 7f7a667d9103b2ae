//! A closed grid's site under the packaged limit of open files, with two hostile tenants and an honest one.
//!
//! Invariant: all commands of users end with the [`Siege`].

use std::{
    fs,
    process::{Command, Stdio},
};

use end_to_end::{
    Node, binary, hosts, run,
    small_disk::SmallDisk,
    tenants::{Person, found, runner, shared, three_users_of},
};
use nix::sys::resource::{Resource, getrlimit};
use serde_json::Value;
use tempfile::TempDir;

use crate::honest::Measured;

/// The service, as it is packaged. It names no limit of memory; what a node takes is bounded by the test.
const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/kolo.service");
/// Hosts, of four cores each: enough for the seats of two tenants that take all ports, and others.
pub const HOSTS: usize = 30;
/// Size of the disk of the node: less than what the runs of both tenants want to say.
const DISK_MIB: u32 = 256;
/// Most of each of the two outputs of a run that is kept: the least that an owner can choose.
pub const SPOOL_MIB: u32 = 8;

/// A site and its users.
pub struct Siege {
    /// None where no disk can be mounted: then outputs fill nothing. It goes before the directory that it is mounted in.
    _disk: Option<SmallDisk>,
    pub site: Node,
    /// Bob and eve.
    pub hostile: [Person; 2],
    pub carol: Person,
    /// Where commands have their directories.
    pub scratch: TempDir,
}

impl Siege {
    /// A site at which nothing has happened yet.
    pub fn begin() -> Siege {
        let (scratch, spool) = (shared(), format!("--runner-spool-mib={SPOOL_MIB}"));
        let more = ["--runner-scratch", scratch.path().to_str().unwrap(), &spool];
        let mut disk = None;
        let mut site = Node::prepared_with("alpha", &hosts("a", HOSTS), &[runner(), &more].concat(), |data| {
            disk = SmallDisk::at(data, DISK_MIB);
            found(data, "alpha");
        });
        site.limit_open_files(open_files_max());
        site.kill();
        site.restart();
        site.wait_until_it_knows(HOSTS);
        let [bob, eve, carol] = three_users_of(&site);
        Siege { _disk: disk, site, hostile: [bob, eve], carol, scratch }
    }

    /// What carol sees.
    pub fn measured(&self) -> Measured {
        Measured::of(&self.carol, &self.site.data())
    }

    /// What runs here and what accounts have, by the socket: the port of the API may be taken.
    pub fn running(&self) -> Value {
        let told = Person::new().kolo(&["local", "running", "--output", "json"], &self.site.data());
        assert_eq!(told.code, Some(0), "{told:?}");
        told.json()
    }

    /// Accounts that have more than half of the files for ports that one may have.
    pub fn full_accounts(&self) -> usize {
        let shown = self.running();
        let most = shown["open_files_max"].as_u64().unwrap();
        let is_full = |account: &&Value| account["open_files"].as_u64().unwrap() * 2 > most;
        shown["accounts"].as_array().unwrap().iter().filter(is_full).count()
    }

    /// Checks that carol still has a reservation, and runs a command in it.
    pub fn serves(&self, kept: &str) {
        assert!(self.site.bookings().iter().any(|booking| booking["request"] == kept), "carol's promise is lost");
        let mut kolo = self.carol.command(&["run", "--in", kept], &self.site.data());
        let ended = run(kolo.args(["--", "echo", "still"]).stdin(Stdio::null()));
        assert_eq!((ended.code, &*ended.out), (Some(0), "still\n"), "{ended:?}");
    }
}

impl Drop for Siege {
    fn drop(&mut self) {
        // Commands outlive their node, and a test that fails may have none.
        let mut kolo = Command::new(binary("kolo"));
        kolo.args(["local", "stop-all", "--reason", "the test is over", "--data-dir"]).arg(self.site.data());
        let _ = kolo.output();
    }
}

/// Open files that the packaged service may have, or as many as this process may give.
fn open_files_max() -> u32 {
    let unit = fs::read_to_string(UNIT).unwrap();
    let packaged: u64 = unit.lines().find_map(|line| line.strip_prefix("LimitNOFILE=")).unwrap().parse().unwrap();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    u32::try_from(packaged.min(hard)).unwrap()
}
