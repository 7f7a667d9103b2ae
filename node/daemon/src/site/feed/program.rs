//! One run of the feed's program: a process group of its own, with a time limit and a limit on what it may say.
//!
//! Invariant: no run outlasts its limit or the node; one that is cut off is ended with all that it has started. Of the node's
//! environment it gets `PATH` alone, and beside it [`HORIZON`].

use std::{
    ffi::OsString,
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use broker::time::Time;
use kolo_runtime::process_group::RunGroup;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
};

/// Most that a feed may say on standard output: some hundred bytes for each of a quarter of a million entries.
pub const SAID_BYTES_MAX: usize = 32 << 20;
/// The variable that names the time until which work counts, in seconds since 1970: what recurs for ever is told until then.
const HORIZON: &str = "KOLO_HORIZON";
/// What is kept of its complaints.
const COMPLAINT_BYTES_MAX: usize = 500;

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It did not start, or its output could not be read.
    #[error("cannot be run: {0}")]
    System(#[from] io::Error),
    /// It took too long, and was ended.
    #[error("was not done in {0:?}, and was ended")]
    TimeOut(Duration),
    /// It said too much, and was ended.
    #[error("says more than {SAID_BYTES_MAX} bytes, and was ended")]
    TooMuch,
    /// It says so itself.
    #[error("{status}{complaint}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// What it said on standard error, behind a colon.
        complaint: String,
    },
}

/// Runs `command`, which may look ahead until `horizon`, and returns what it has said on standard output.
pub async fn run(
    command: &[String],
    path: Option<&OsString>,
    horizon: Time,
    timeout: Duration,
) -> Result<Vec<u8>, RunError> {
    let (program, arguments) = command.split_first().ok_or_else(|| io::Error::other("there is no program to run"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env(HORIZON, horizon.0.to_string())
        .current_dir("/")
        .process_group(0)
        .kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let mut child = command.spawn()?;
    let group = RunGroup::of(&child);
    let (Some(output), Some(complaints)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other("it has no output").into());
    };
    let ended = async {
        let output = read(output);
        let complaints = keep_beginning(complaints);
        // A feed that says too much is ended at once, not when it has said all.
        let (said, complaint) = tokio::try_join!(output, complaints)?;
        Ok::<_, RunError>((said, complaint, child.wait().await?))
    };
    let (said, complaint, status) =
        tokio::time::timeout(timeout, ended).await.map_err(|_| RunError::TimeOut(timeout))??;
    group.forget();
    if status.success() {
        return Ok(said);
    }
    let complaint = String::from_utf8_lossy(&complaint).trim().to_owned();
    let complaint = if complaint.is_empty() { complaint } else { format!(": {complaint}") };
    Err(RunError::Failed { status, complaint })
}

async fn read(output: impl AsyncRead + Unpin) -> Result<Vec<u8>, RunError> {
    let mut said = Vec::new();
    output.take(SAID_BYTES_MAX as u64 + 1).read_to_end(&mut said).await?;
    if said.len() > SAID_BYTES_MAX { Err(RunError::TooMuch) } else { Ok(said) }
}

/// Reads to the end, and keeps the beginning.
async fn keep_beginning(mut output: impl AsyncRead + Unpin) -> Result<Vec<u8>, RunError> {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match output.read(&mut buffer).await? {
            0 => return Ok(kept),
            count => kept.extend_from_slice(&buffer[..count.min(COMPLAINT_BYTES_MAX - kept.len())]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, time::Instant};

    use super::*;

    async fn run_script(script: &str, timeout: Duration) -> Result<String, String> {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        let said = run(&command, std::env::var_os("PATH").as_ref(), Time(7), timeout).await;
        said.map(|said| String::from_utf8(said).unwrap()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn what_it_says_is_read_and_what_fails_says_why() {
        const LONG: Duration = Duration::from_secs(30);
        assert_eq!(
            run_script("echo a; echo b >&2; pwd; env | grep -c HOME", LONG).await.unwrap_err(),
            "exit status: 1: b"
        );
        assert_eq!(run_script("echo a; echo b >&2; pwd; env | grep HOME; true", LONG).await.unwrap(), "a\n/\n");
        assert_eq!(run_script("echo $KOLO_HORIZON", LONG).await.unwrap(), "7\n");
        assert_eq!(run_script("exit 3", LONG).await.unwrap_err(), "exit status: 3");
        let much = format!("head -c {} /dev/zero; sleep 1000", SAID_BYTES_MAX + 1);
        assert!(run_script(&much, LONG).await.unwrap_err().contains("says more than"));
        let complaint = run_script("head -c 5000000 /dev/zero | tr '\\0' x >&2; exit 1", LONG).await.unwrap_err();
        assert_eq!(complaint.len(), "exit status: 1: ".len() + COMPLAINT_BYTES_MAX);
        let nothing = run(&["/no/such/program".to_owned()], None, Time(7), LONG).await.unwrap_err().to_string();
        assert!(nothing.contains("No such file"), "{nothing}");
    }

    #[tokio::test]
    async fn one_that_hangs_is_ended_with_all_that_it_has_started() {
        let directory = tempfile::tempdir().unwrap();
        let pid: &Path = &directory.path().join("pid");
        let script = format!("trap '' TERM; sleep 1000 & echo $! > {}; sleep 1000", pid.display());
        let told = run_script(&script, Duration::from_secs(1)).await.unwrap_err();
        assert!(told.contains("was not done in 1s"), "{told}");
        let process = Path::new("/proc").join(fs::read_to_string(pid).unwrap().trim());
        let began = Instant::now();
        // One that is ended but not yet waited for has no command line any more.
        while fs::read(process.join("cmdline")).is_ok_and(|line| !line.is_empty()) {
            assert!(began.elapsed() < Duration::from_secs(20), "something is left of it");
            tokio::task::yield_now().await;
        }
    }
}
