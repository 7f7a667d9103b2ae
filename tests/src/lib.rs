//! Runs real `kolo` nodes for the end-to-end tests: processes, disks and loopback sockets, nothing in between.
//!
//! Invariant: every process that was started is ended when its [`Node`] is dropped; every wait has a deadline and looks
//! for crashes; nothing sleeps for a fixed time and hopes.

pub mod browser;
pub mod skip;
pub mod small_disk;
pub mod squatter;
pub mod tenants;

use std::{
    env,
    ffi::OsStr,
    fmt::Debug,
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant, SystemTime},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rustix::process::{self, Resource, Rlimit};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take before a test fails.
const DEADLINE: Duration = Duration::from_secs(180);

/// The grids are open, and most tests may book all of a site for days.
const WIDE: &[&str] = &["--policy-site-share=100%", "--policy-max-duration=366d", "--policy-max-reach=366d"];

/// Writes a program for `sh` that may be started at once. A child writes it: what this process starts meanwhile in other threads would
/// inherit the open file, and a file that anybody has open for writing cannot be started ("text file busy").
///
/// # Panics
/// When it cannot be written.
pub fn write_program(path: &Path, text: &str) {
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat >\"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut writer = writer.spawn().expect("sh starts");
    let mut input = writer.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes()).expect("sh reads");
    drop(input);
    assert!(writer.wait().expect("it ends").success(), "{} cannot be written", path.display());
}

/// The path of a binary of this workspace, built if need be.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let directory = BUILT.get_or_init(|| {
        let test = env::current_exe().expect("the test's own path is known");
        let directory = test.ancestors().nth(2).expect("tests run from target/PROFILE/deps").to_owned();
        let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut build = Command::new(cargo);
        // What cargo tells this test about itself is nothing to the build: build scripts that look at it would run again.
        for (name, _) in env::vars_os().filter(|(name, _)| is_about_this_test(name)) {
            build.env_remove(name);
        }
        // What scripts/check builds, so that no dependency is built again with other features.
        build.args(["build", "--locked", "--workspace", "--exclude", "studies"]);
        if directory.ends_with("release") {
            build.arg("--release");
        }
        let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
        assert!(status.success(), "the binaries do not build");
        directory
    });
    directory.join(name)
}

/// Whether this system lets its users make network namespaces; reports the test as skipped where it does not.
#[must_use]
pub fn has_namespaces() -> bool {
    let missing = skip::missing(&["unshare", "ip"]);
    if !missing.is_empty() {
        skip::skip(&format!("not installed: {}", missing.join(", ")));
        return false;
    }
    let tried = Command::new("unshare").args(["--user", "--map-root-user", "--net", "ip", "link", "show"]).output();
    let has = tried.is_ok_and(|output| output.status.success());
    if !has {
        skip::skip("this system does not let its users make network namespaces");
    }
    has
}

fn is_about_this_test(variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"].iter().any(|head| name.starts_with(head))
}

/// Looks again and again until `look` gives something.
///
/// # Panics
/// After the deadline, with `what` and the last thing that `look` complained about.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(last) => assert!(Instant::now() < deadline, "waited in vain for {what}; last seen: {last}"),
        }
        thread::park_timeout(Duration::from_millis(20));
    }
}

/// Looks again and again until what is seen `holds`; what was seen then.
///
/// # Panics
/// After the deadline, with `what` and what was seen last.
pub fn wait_until<T: Debug>(what: &str, mut look: impl FnMut() -> T, holds: impl Fn(&T) -> bool) -> T {
    wait_for(what, || {
        let seen = look();
        if holds(&seen) { Ok(seen) } else { Err(format!("{seen:?}")) }
    })
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; none after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ended {
    /// The JSON value on the last line of standard output.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn json(&self) -> Value {
        let last = self.out.trim().lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a program to its end.
///
/// # Panics
/// When it cannot be started.
pub fn run(command: &mut Command) -> Ended {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ended { code: output.status.code(), out, err }
}

/// Runs `kolo-sim`.
#[must_use]
pub fn kolo_sim(arguments: &[&str]) -> Ended {
    run(Command::new(binary("kolo-sim")).args(arguments))
}

/// Runs `kolo-sim grid` and reads its figures; all its checks must hold.
///
/// # Panics
/// When one does not.
#[must_use]
pub fn grid_figures(arguments: &[&str]) -> Value {
    let ended = kolo_sim(&[&["grid"], arguments, &["--output", "json"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let figures = ended.json();
    for wrong in ["violations", "crashes", "failed_checks", "acknowledged_lost", "wedged"] {
        assert_eq!(figures[wrong], 0, "{wrong}: {ended:?}");
    }
    figures
}

/// A running node and its files.
pub struct Node {
    name: String,
    directory: TempDir,
    arguments: Vec<String>,
    /// The limit of open files that it is started with; ours when none is said.
    open_files_max: Option<u32>,
    child: Option<Child>,
}

impl Node {
    /// Starts the first node of a grid.
    #[must_use]
    pub fn first(name: &str, hosts: &str) -> Node {
        Node::start(name, hosts, &[])
    }

    /// Starts a node that joins the grid of `other`, with `more` arguments.
    #[must_use]
    pub fn joining(name: &str, hosts: &str, other: &Node, more: &[&str]) -> Node {
        let joining = other.joining_arguments();
        Node::start(name, hosts, &[&joining.each_ref().map(String::as_str)[..], more].concat())
    }

    /// Starts a node in a data directory that `prepare` has put in order.
    #[must_use]
    pub fn prepared(name: &str, hosts: &str, prepare: impl FnOnce(&Path)) -> Node {
        Node::prepared_with(name, hosts, &[], prepare)
    }

    /// Starts a node with `more` arguments in a data directory that `prepare` has put in order.
    #[must_use]
    pub fn prepared_with(name: &str, hosts: &str, more: &[&str], prepare: impl FnOnce(&Path)) -> Node {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        prepare(&directory.path().join("data"));
        Node::start_in(directory, name, hosts, &[WIDE, more].concat())
    }

    /// Starts a node with no rules but those of `config`, as the first one or in the grid of `other`.
    #[must_use]
    pub fn ruled(name: &str, config: &str, other: Option<&Node>) -> Node {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let joining = other.map(Node::joining_arguments);
        Node::start_in(directory, name, config, &joining.iter().flatten().map(String::as_str).collect::<Vec<_>>())
    }

    /// What makes a node join the grid of this one.
    fn joining_arguments(&self) -> [String; 4] {
        let status = self.get("/v1/status");
        let grid = status["grid"].as_str().expect("status names the grid");
        let address = status["listen"][0].as_str().expect("status names an address");
        ["--grid", grid, "--bootstrap", address].map(str::to_owned)
    }

    /// Starts a node with `hosts` as TOML `[[hosts]]` tables.
    #[must_use]
    pub fn start(name: &str, hosts: &str, more: &[&str]) -> Node {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        Node::start_in(directory, name, hosts, &[WIDE, more].concat())
    }

    fn start_in(directory: TempDir, name: &str, hosts: &str, more: &[&str]) -> Node {
        let config = directory.path().join("site.toml");
        fs::write(&config, format!("name = \"{name}\"\n[gossip]\ninterval = \"100ms\"\n{hosts}")).expect("writable");
        let mut arguments: Vec<String> = ["node", "--config"].map(str::to_owned).into();
        arguments.push(config.display().to_string());
        arguments.push("--data-dir".to_owned());
        arguments.push(directory.path().join("data").display().to_string());
        for fixed in ["--api", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0"] {
            arguments.push(fixed.to_owned());
        }
        arguments.extend(more.iter().map(|&text| text.to_owned()));
        let mut node = Node { name: name.to_owned(), directory, arguments, open_files_max: None, child: None };
        node.restart();
        node
    }

    /// Starts the process (again) and waits until its API answers.
    pub fn restart(&mut self) {
        self.launch();
        wait_for(&format!("the API of {}", self.name), || {
            self.check_alive();
            self.read("api.address")
        });
        wait_for(&format!("{} to answer", self.name), || {
            self.check_alive();
            self.try_get("/v1/status")
        });
    }

    /// Starts the process (again), and waits for nothing.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn launch(&mut self) {
        let _ = fs::remove_file(self.data().join("api.address"));
        let log = fs::File::options().create(true).append(true).open(self.log_path()).expect("writable");
        let mut command = match self.open_files_max {
            None => Command::new(binary("kolo")),
            Some(most) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", "ulimit -n $0 && exec \"$@\"", &most.to_string()]).arg(binary("kolo"));
                shell
            }
        };
        let child = command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("kolo starts");
        self.child = Some(child);
    }

    /// The limit of open files that it has from its next start on.
    pub fn limit_open_files(&mut self, most: u32) {
        self.open_files_max = Some(most);
    }

    /// What the flag `name` is at the next start.
    ///
    /// # Panics
    /// When the node was started without it.
    pub fn change(&mut self, name: &str, value: &str) {
        let at = self.arguments.iter().position(|argument| argument == name).expect("it was started with this flag");
        value.clone_into(&mut self.arguments[at + 1]);
    }

    /// Has the node believe, at its next start, that it is so many days earlier than the machine's clock shows.
    ///
    /// # Panics
    /// When it has not written down its clock.
    pub fn set_ahead(&self, days: i64) {
        let path = self.data().join("clock.json");
        let text = fs::read(&path).expect("the node has written down its clock");
        let mut last: Value = serde_json::from_slice(&text).expect("it is JSON");
        for key in ["wall_ms", "started_ms"] {
            let at_ms = last[key].as_i64().expect("a time");
            last[key] = (at_ms - days * 86_400_000).into();
        }
        fs::write(path, last.to_string()).expect("writable");
    }

    fn check_alive(&mut self) {
        let status = self.child.as_mut().and_then(|child| child.try_wait().expect("the child can be asked"));
        if let Some(status) = status {
            panic!("{} ended with {status}; its log:\n{}", self.name, self.log());
        }
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.directory.path().join("site.toml")
    }

    /// The result of `f`, during which the node may have no more files open than it has now.
    ///
    /// # Panics
    /// When the node does not run.
    pub fn without_descriptors<T>(&self, f: impl FnOnce() -> T) -> T {
        let pid = process::Pid::from_raw(self.pid().as_raw());
        let set = |limit| process::prlimit(pid, Resource::Nofile, limit).expect("our own child can be limited");
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("our own child can be looked at").count();
        // A child's hard limit is ours, and may not be raised.
        let maximum = process::getrlimit(Resource::Nofile).maximum;
        let before = set(Rlimit { current: u64::try_from(open).ok(), maximum });
        let done = f();
        set(before);
        done
    }

    /// Tells the node to read its configuration again.
    pub fn hang_up(&self) {
        kill(self.pid(), Signal::SIGHUP).expect("our own child can be told");
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("node.log")
    }

    /// Everything the node has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn pid(&self) -> Pid {
        let id = self.child.as_ref().expect("the node runs").id();
        Pid::from_raw(i32::try_from(id).expect("a process id"))
    }

    /// The most memory that the node has had since its start, in MiB.
    ///
    /// # Panics
    /// When the node does not run.
    #[must_use]
    pub fn peak_mib(&self) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("our own child can be looked at");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the system counts memory");
        let kib: u64 = line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number of KiB");
        kib / 1024
    }

    /// Ends the node at once, as a power cut would.
    pub fn kill(&mut self) {
        kill(self.pid(), Signal::SIGKILL).expect("our own child can be ended");
        self.reap();
    }

    /// Stops the node where it is, so that nothing is heard of it, as when its network is cut; or lets it go on.
    pub fn silence(&self, is_silent: bool) {
        let signal = if is_silent { Signal::SIGSTOP } else { Signal::SIGCONT };
        kill(self.pid(), signal).expect("our own child can be stopped");
    }

    /// Asks the node to stop and waits until it has.
    pub fn stop(&mut self) -> ExitStatus {
        kill(self.pid(), Signal::SIGTERM).expect("our own child can be ended");
        self.reap()
    }

    fn reap(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the node runs");
        wait_for(&format!("the end of {}", self.name), || match child.try_wait() {
            Ok(Some(status)) => Ok(status),
            other => Err(format!("{other:?}")),
        })
    }

    /// Runs `kolo` against this node.
    #[must_use]
    pub fn kolo(&self, arguments: &[&str]) -> Ended {
        run(&mut self.command(arguments))
    }

    /// A command line of `kolo` against this node.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary("kolo"));
        command.args(arguments).args(["--api", &self.address(), "--token-file"]).arg(self.data().join("api.token"));
        command.env("TZ", "UTC");
        command
    }

    /// Runs `kolo` with JSON output and checks its exit code.
    ///
    /// # Panics
    /// When the exit code is another one, or the output is not JSON.
    #[must_use]
    pub fn kolo_json(&self, arguments: &[&str], exit: i32) -> Value {
        let ended = self.kolo(&[arguments, &["--output", "json"]].concat());
        let report = format!("kolo {arguments:?}\n{ended:?}\nlog: {}", self.log());
        assert_eq!(ended.code, Some(exit), "{report}");
        if ended.out.trim().is_empty() { Value::Null } else { serde_json::from_str(&ended.out).expect(&report) }
    }

    fn read(&self, name: &str) -> Result<String, String> {
        let text = fs::read_to_string(self.data().join(name)).map_err(|error| format!("{name}: {error}"))?;
        Ok(text.trim().to_owned())
    }

    /// Address and port of the API, while the node runs.
    ///
    /// # Panics
    /// When the node has not written it down.
    #[must_use]
    pub fn address(&self) -> String {
        self.read("api.address").expect("the node has written down its address")
    }

    /// The token of the API.
    ///
    /// # Panics
    /// When the node has not written it down.
    #[must_use]
    pub fn token(&self) -> String {
        self.read("api.token").expect("the node has written down its token")
    }

    fn try_get(&self, path: &str) -> Result<Value, String> {
        ureq::get(format!("http://{}{path}", self.read("api.address")?))
            .header("Authorization", format!("Bearer {}", self.read("api.token")?))
            .call()
            .and_then(|mut answer| answer.body_mut().read_json())
            .map_err(|error| error.to_string())
    }

    /// Asks the node's API.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn get(&self, path: &str) -> Value {
        self.try_get(path).unwrap_or_else(|error| panic!("{} {path}: {error}\n{}", self.name, self.log()))
    }

    /// The node's metrics, as Prometheus would read them.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn metrics(&self) -> String {
        let answer = ureq::get(format!("http://{}/metrics", self.address())).call();
        answer.and_then(|mut answer| answer.body_mut().read_to_string()).expect("the node answers")
    }

    /// Hands a body to the node's API; the status and the answer.
    ///
    /// # Panics
    /// When nothing that is JSON comes back.
    #[must_use]
    pub fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let mut answer = ureq::post(format!("http://{}{path}", self.address()))
            .header("Authorization", format!("Bearer {}", self.token()))
            .config()
            .http_status_as_error(false)
            .build()
            .send(body)
            .expect("the node answers");
        (answer.status().as_u16(), answer.body_mut().read_json().expect("an answer in JSON"))
    }

    /// Takes something back through the node's API; the answer.
    ///
    /// # Panics
    /// When the node refuses.
    #[must_use]
    pub fn delete(&self, path: &str) -> Value {
        let answer = ureq::delete(format!("http://{}{path}", self.address()))
            .header("Authorization", format!("Bearer {}", self.token()))
            .call();
        answer.and_then(|mut answer| answer.body_mut().read_json()).expect("the node answers in JSON")
    }

    /// Opens a path of the node in a browser.
    pub fn open_in(&self, browser: &browser::Browser, path: &str) {
        browser.open(&format!("http://{}{path}", self.address()));
    }

    /// Asks the node's API until the answer `holds`; that answer.
    pub fn wait_until(&self, what: &str, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        wait_until(what, || self.get(path), holds)
    }

    /// Waits until the node knows all hosts with current schedules.
    pub fn wait_until_it_knows(&self, hosts: usize) {
        wait_for(&format!("{} to know {hosts} hosts", self.name), || {
            let status = self.get("/v1/status");
            let sites = self.get("/v1/sites");
            let all_current =
                sites["sites"].as_array().is_some_and(|sites| sites.iter().all(|site| site["schedule"] == "current"));
            if status["known_hosts"] == hosts && all_current { Ok(()) } else { Err(format!("{status} {sites}")) }
        });
    }

    /// The bookings in this site's ledger.
    #[must_use]
    pub fn bookings(&self) -> Vec<Value> {
        self.get("/v1/ledger")["bookings"].as_array().expect("a ledger has bookings").clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `count` hosts of 4 cores and 8 GiB as TOML tables.
#[must_use]
pub fn hosts(prefix: &str, count: usize) -> String {
    (1..=count)
        .map(|index| {
            format!(
                "[[hosts]]\nid = \"{prefix}{index}\"\n\
                 resources = {{ cpu = \"4\", memory = \"8GiB\" }}\nattributes = {{ arch = \"x86_64\" }}\n"
            )
        })
        .collect()
}

/// A time as requests have it.
///
/// # Panics
/// When the clock is before 1970.
#[must_use]
pub fn seconds_from_now(seconds: u64) -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970").as_secs() + seconds
}

/// Writes a file for a test.
///
/// # Panics
/// When it cannot.
pub fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).expect("writable");
    path
}

/// Writes a file for a test that only its owner can read; its path as a text.
///
/// # Panics
/// When it cannot.
pub fn write_private(directory: &Path, name: &str, text: &str) -> String {
    let path = write(directory, name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
    path.display().to_string()
}
