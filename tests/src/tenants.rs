//! Users of closed grids, and sites that run their commands.
//!
//! Invariant: no key, home or configuration of whoever runs the tests is used.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use nix::unistd::geteuid;
use serde_json::Value;
use tempfile::TempDir;

use crate::{Ended, Node, binary, run, seconds_from_now, write_private};

/// How commands run here: as another user where the tests run as root, else in a sandbox.
#[must_use]
pub fn runner() -> &'static [&'static str] {
    match geteuid().is_root() {
        true => &["--runner", "none", "--runner-user", "nobody"],
        false => &["--runner", "bubblewrap"],
    }
}

/// A directory that every user may write to.
///
/// # Panics
/// When none can be made.
#[must_use]
pub fn shared() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).expect("ours");
    directory
}

/// A person with a home of their own, so that no key of whoever runs the tests is used.
pub struct Person {
    home: TempDir,
}

impl Default for Person {
    fn default() -> Person {
        Person::new()
    }
}

impl Person {
    /// Somebody who has no key yet.
    ///
    /// # Panics
    /// When no home can be made.
    #[must_use]
    pub fn new() -> Person {
        Person { home: tempfile::tempdir().expect("a temporary directory can be made") }
    }

    /// The home directory.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A command line of `kolo` by this person.
    #[must_use]
    pub fn command(&self, arguments: &[&str], data_dir: &Path) -> Command {
        let mut command = Command::new(binary("kolo"));
        command.args(arguments).arg("--data-dir").arg(data_dir).env("TZ", "UTC").env_remove("KOLO_KEY");
        command.env("HOME", self.home.path()).env("XDG_CONFIG_HOME", self.home.path().join("config"));
        command
    }

    /// Runs `kolo`.
    #[must_use]
    pub fn kolo(&self, arguments: &[&str], data_dir: &Path) -> Ended {
        run(&mut self.command(arguments, data_dir))
    }

    /// Runs `kolo` and checks its exit code; everything that it said.
    ///
    /// # Panics
    /// When the exit code is another one.
    #[must_use]
    pub fn told(&self, arguments: &[&str], data_dir: &Path, exit: i32) -> String {
        let Ended { code, out, err } = self.kolo(arguments, data_dir);
        assert_eq!(code, Some(exit), "kolo {arguments:?}: {out}{err}");
        out + &err
    }

    /// The file in which the person keeps a token.
    #[must_use]
    pub fn keeps(&self, token: &str) -> String {
        write_private(self.home.path(), "token", token)
    }

    /// Uses a token for a user's own directory.
    ///
    /// # Panics
    /// When it is refused.
    pub fn join(&self, token: &str) {
        let mut kolo = Command::new(binary("kolo"));
        kolo.args(["join", &self.keeps(token)]).env("HOME", self.home.path());
        let ended = run(kolo.env("XDG_CONFIG_HOME", self.home.path().join("config")));
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

/// Makes a closed grid in a data directory; its founder is ada.
pub fn found(data_dir: &Path, site: &str) {
    let _ = Person::new().told(&["grid", "init", "--name", "lab", "--site", site, "--user", "ada"], data_dir, 0);
}

/// The first site of a closed grid; its founder is ada.
#[must_use]
pub fn founded(name: &str, hosts: &str) -> Node {
    founded_with(name, hosts, &[])
}

/// The first site of a closed grid, with more arguments of the node.
#[must_use]
pub fn founded_with(name: &str, hosts: &str, more: &[&str]) -> Node {
    Node::prepared_with(name, hosts, more, |data| found(data, name))
}

/// An invitation to the grid of a first site.
#[must_use]
pub fn invite(first: &Node, arguments: &[&str]) -> String {
    let arguments = [&["grid", "invite", "--output", "quiet"], arguments].concat();
    Person::new().told(&arguments, &first.data(), 0).trim().to_owned()
}

/// A site that joins with a token, without a user of its own.
#[must_use]
pub fn joined(first: &Node, name: &str, hosts: &str) -> Node {
    joined_with(first, name, hosts, &[])
}

/// A site that joins with a token, without a user of its own, with more arguments of the node.
#[must_use]
pub fn joined_with(first: &Node, name: &str, hosts: &str, more: &[&str]) -> Node {
    let token = invite(first, &["--role", "site", "--name", name, "--no-user"]);
    Node::prepared_with(name, hosts, more, |data| {
        let person = Person::new();
        let _ = person.told(&["join", &person.keeps(&token)], data, 0);
    })
}

/// Bob, eve and carol, who may book hosts of this site.
#[must_use]
pub fn three_users_of(site: &Node) -> [Person; 3] {
    ["bob", "eve", "carol"].map(|name| {
        let person = Person::new();
        person.join(&invite(site, &["--role", "user", "--name", name]));
        person
    })
}

/// Copies a run of a request that goes on without ports until its user has `runs` at the site; the directory of the copies, each of which
/// waits for the word of its user.
///
/// # Panics
/// When the request has no such run.
#[must_use]
pub fn copy_run(site: &Node, request: &str, name: &str, runs: usize) -> PathBuf {
    let directory = site.data().join("runs");
    let seats = fs::read_dir(&directory).expect("commands have run here").filter_map(Result::ok);
    let found = seats.filter_map(|seat| fs::read_dir(seat.path()).ok()).flatten().filter_map(Result::ok);
    let tasks = found.filter_map(|run| serde_json::from_slice(&fs::read(run.path().join("task")).ok()?).ok());
    let tasks: Vec<Value> = tasks.collect();
    let is_it = |task: &&Value| task["order"]["request"] == request && task["order"]["peers"].is_null();
    let mut task = tasks.iter().find(is_it).expect("the run that was started has a task").clone();
    let of_user = tasks.iter().filter(|one| one["user"] == task["user"]).count();
    task["order"]["expires"] = seconds_from_now(3_600).into();
    let copies = directory.join(name);
    for number in of_user..runs {
        let copy = copies.join(number.to_string());
        fs::create_dir_all(&copy).expect("writable");
        fs::write(copy.join("task"), task.to_string()).expect("writable");
    }
    copies
}
