//! One run of the hook: a process of its own group, with a time limit.
//!
//! Invariant: no run outlasts its limit, holds the node up, or costs it more memory than [`SAID_BYTES_MAX`], whatever the
//! hook does; a hook that is cut off is ended with all that it has started. Of the node's environment it gets `PATH` alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io,
    process::Stdio,
    time::Duration,
};

use broker::ids::HostId;
use futures::{FutureExt as _, future::FusedFuture as _};
use kolo_runtime::process_group::RunGroup;
use kolo_storage::activation::Outcome;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe,
    process::{Child, ChildStdin, Command},
};

/// Bytes of what the hook says that are kept; of the rest only the hosts that it names are.
pub const SAID_BYTES_MAX: usize = 64 << 10;
/// Bytes of a line that are looked at.
const LINE_BYTES_MAX: usize = 512;
/// Hosts on which the hook says it has failed; what it says of further ones is not minded, and the next run says it again.
const FAILED_HOSTS_MAX: usize = 1_024;
/// How long what was said last may take to arrive when the hook has ended. What it has left running may keep the pipe open.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// How a run went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Whether it did what it should.
    pub outcome: Outcome,
    /// What the hook said on both outputs, as far as it is kept.
    pub said: String,
    /// The hosts that the hook says it has failed on, each in a line of its own; at most [`FAILED_HOSTS_MAX`].
    pub failed_hosts: BTreeSet<HostId>,
}

impl Run {
    /// One that has failed, with nothing said.
    pub fn failed(why: &str) -> Run {
        Run { outcome: Outcome::Failed(why.to_owned()), said: String::new(), failed_hosts: BTreeSet::new() }
    }
}

/// What a hook says.
#[derive(Debug, Default)]
struct Said {
    /// The beginning, as far as it is kept.
    kept: Vec<u8>,
    /// The beginning of the line that has not ended yet.
    line: Vec<u8>,
    failed_hosts: BTreeSet<HostId>,
}

impl Said {
    fn take(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(&bytes[..bytes.len().min(SAID_BYTES_MAX - self.kept.len())]);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&part[..part.len().min(LINE_BYTES_MAX - self.line.len())]);
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let name = std::str::from_utf8(&line).ok().and_then(|line| line.strip_prefix("failed host "));
        if let Some(Ok(host)) = name.map(|name| HostId::new(name.trim()))
            && self.failed_hosts.len() < FAILED_HOSTS_MAX
        {
            self.failed_hosts.insert(host);
        }
    }
}

#[derive(Debug, Clone)]
pub struct Hook {
    /// Program and arguments; nothing is run when there are none.
    pub command: Vec<String>,
    /// How long a run may take.
    pub timeout: Duration,
    /// Where programs are looked for.
    pub path: Option<OsString>,
}

impl Hook {
    /// Runs the hook with these variables, and `document` on its standard input.
    pub async fn run(&self, variables: &BTreeMap<String, String>, document: &[u8]) -> Run {
        let mut said = Said::default();
        let outcome = match self.start(variables) {
            Ok((child, input, output)) => self.wait(child, input, output, document, &mut said).await,
            Err(error) => Outcome::Failed(format!("cannot be started: {error}")),
        };
        said.end_line();
        Run { outcome, said: String::from_utf8_lossy(&said.kept).into_owned(), failed_hosts: said.failed_hosts }
    }

    fn start(&self, variables: &BTreeMap<String, String>) -> io::Result<(Child, Option<ChildStdin>, pipe::Receiver)> {
        let (program, arguments) =
            self.command.split_first().ok_or_else(|| io::Error::other("there is no program to run"))?;
        // One pipe for both, so that what was said stays in order.
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(variables).current_dir("/").process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(writer.try_clone()?).stderr(writer);
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        let mut child = command.spawn()?;
        // The command holds the writing ends; the pipe must end with the hook.
        drop(command);
        let input = child.stdin.take();
        Ok((child, input, pipe::Receiver::from_owned_fd(reader.into())?))
    }

    async fn wait(
        &self,
        mut child: Child,
        input: Option<ChildStdin>,
        output: pipe::Receiver,
        document: &[u8],
        said: &mut Said,
    ) -> Outcome {
        let mut group = RunGroup::of(&child);
        let feeding = async {
            if let Some(mut input) = input {
                // A hook need not read it.
                let _ = input.write_all(document).await;
            }
        };
        let mut talking = std::pin::pin!(futures::future::join(feeding, listen(output, said)).fuse());
        let ended = tokio::time::timeout(self.timeout, async {
            loop {
                tokio::select! {
                    status = child.wait() => break status,
                    _ = &mut talking => {}
                }
            }
        });
        let outcome = match ended.await {
            Ok(Ok(status)) if status.success() => Outcome::Done,
            Ok(Ok(status)) => Outcome::Failed(status.to_string()),
            Ok(Err(error)) => Outcome::Failed(format!("cannot be waited for: {error}")),
            Err(_) => {
                group.end();
                // Ended for certain; this takes it off the system's list.
                let _ = child.wait().await;
                Outcome::Failed(format!("was not done in {} s, and was ended", self.timeout.as_secs_f64()))
            }
        };
        group.forget();
        if !talking.is_terminated() {
            let _ = tokio::time::timeout(LAST_WORDS, talking).await;
        }
        outcome
    }
}

/// Reads to the end.
async fn listen(mut output: pipe::Receiver, said: &mut Said) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = output.read(&mut buffer).await {
        said.take(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Instant};

    use super::*;

    fn hook(script: &str, timeout: Duration) -> Hook {
        let command = ["/bin/sh", "-c", script, "hook"].map(str::to_owned).into();
        Hook { command, timeout, path: std::env::var_os("PATH") }
    }

    async fn run(script: &str) -> Run {
        let variables = BTreeMap::from([("KOLO_EVENT".to_owned(), "start".to_owned())]);
        hook(script, Duration::from_secs(30)).run(&variables, b"{\"run\":1}").await
    }

    /// Whether no process has `mark` on its command line.
    fn is_gone(mark: &str) -> bool {
        let lines =
            fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
        !lines.map(|line| String::from_utf8_lossy(&line).into_owned()).any(|line| line.contains(mark))
    }

    #[tokio::test]
    async fn a_hook_gets_its_variables_its_input_and_nothing_of_the_node() {
        let told = run("echo $KOLO_EVENT; cat; echo; env | cut -d= -f1 | sort | tr '\\n' ' '; pwd >&2").await;
        assert_eq!(told.outcome, Outcome::Done);
        let lines: Vec<&str> = told.said.lines().collect();
        assert_eq!(lines[..2], ["start", "{\"run\":1}"], "{}", told.said);
        // A shell adds some of its own.
        assert!(
            lines[2]
                .split(' ')
                .filter(|name| name.len() > 3)
                .all(|name| ["KOLO_EVENT", "PATH"].contains(&name) || name == "SHLVL"),
            "{}",
            told.said
        );
        assert!(lines[2].ends_with("/"), "both outputs, in order: {}", told.said);
    }

    #[tokio::test]
    async fn what_fails_says_how() {
        assert_eq!(run("exit 3").await.outcome, Outcome::Failed("exit status: 3".to_owned()));
        let nothing = Hook { command: vec!["/no/such/program".to_owned()], ..hook("", Duration::from_secs(1)) };
        let told = nothing.run(&BTreeMap::new(), b"").await;
        assert!(matches!(told.outcome, Outcome::Failed(why) if why.contains("No such file")));
    }

    #[tokio::test]
    async fn megabytes_are_not_kept_and_an_input_that_nobody_reads_does_no_harm() {
        let document = vec![b'x'; 1 << 20];
        let told = hook("exec 0<&-; head -c 5000000 /dev/zero; exit 0", Duration::from_secs(30));
        let told = told.run(&BTreeMap::new(), &document).await;
        assert_eq!((told.outcome, told.said.len()), (Outcome::Done, SAID_BYTES_MAX));
    }

    #[tokio::test]
    async fn hosts_are_named_behind_whatever_else_is_said() {
        let told = run("head -c 100000 /dev/zero; echo; echo failed host n-7; printf 'failed host n-8'").await;
        let hosts: Vec<&str> = told.failed_hosts.iter().map(HostId::as_str).collect();
        assert_eq!(hosts, ["n-7", "n-8"]);
    }

    #[tokio::test]
    async fn a_run_that_hangs_is_ended_with_all_that_it_has_started() {
        // The number marks the processes of this test.
        let mark = format!("3{}.25", std::process::id());
        let script = format!("trap '' TERM; sleep {mark} & sleep {mark}");
        let began = Instant::now();
        let told = hook(&script, Duration::from_millis(300)).run(&BTreeMap::new(), b"").await;
        assert!(matches!(told.outcome, Outcome::Failed(why) if why.contains("0.3 s")));
        assert!(began.elapsed() < Duration::from_secs(20));
        while !is_gone(&mark) {
            assert!(began.elapsed() < Duration::from_secs(20), "something is left of it");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn what_a_hook_leaves_running_does_not_hold_the_run_up() {
        let directory = tempfile::tempdir().unwrap();
        // It ends with the test.
        let script = format!("(while [ -e {} ]; do sleep 0.05; done) & echo left", directory.path().display());
        let told = tokio::time::timeout(Duration::from_secs(20), run(&script)).await.unwrap();
        assert_eq!((told.outcome, told.said.as_str()), (Outcome::Done, "left\n"));
    }

    #[tokio::test]
    async fn a_run_that_is_given_up_by_the_node_ends() {
        let mark = format!("4{}.25", std::process::id());
        let hook = hook(&format!("sleep {mark} & sleep {mark}"), Duration::from_secs(300));
        let running = tokio::spawn(async move { hook.run(&BTreeMap::new(), b"").await });
        let began = Instant::now();
        while is_gone(&mark) {
            assert!(began.elapsed() < Duration::from_secs(20), "it did not start");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        running.abort();
        while !is_gone(&mark) {
            assert!(began.elapsed() < Duration::from_secs(20), "something is left of it");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
