//! The members of a closed grid: the first site founds it; every other one is invited by it and joins with keys of its own.
//!
//! Invariant: each step is the command that people use, so that nothing works here that would not work for them.

use std::{
    io::{self, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use super::{
    error::GridError,
    process::{system, without_own_settings},
};

/// Makes the grid `grid` in the data directory of its first site, which is called `name`.
///
/// # Errors
/// [`GridError::System`] with what the command said.
pub fn found(kolo: &Path, data_dir: &Path, grid: &str, name: &str) -> Result<(), GridError> {
    let arguments = ["grid", "init", "--name", grid, "--site", name];
    told(kolo, data_dir, &arguments, "").map(|_| ())
}

/// Has the founder invite the site `name`, which joins with a new key in its own data directory and finds the grid at
/// `bootstrap`.
///
/// # Errors
/// As [`found`].
pub fn join(kolo: &Path, founder: &Path, data_dir: &Path, name: &str, bootstrap: &[String]) -> Result<(), GridError> {
    let mut arguments = vec!["grid", "invite", "--role", "site", "--name", name, "--output", "quiet"];
    for address in bootstrap {
        arguments.extend(["--bootstrap", address]);
    }
    let token = told(kolo, founder, &arguments, "")?;
    told(kolo, data_dir, &["join", "-"], &token).map(|_| ())
}

/// What the command prints, given `input`.
fn told(kolo: &Path, data_dir: &Path, arguments: &[&str], input: &str) -> Result<String, GridError> {
    let what = format!("kolo {}", arguments[..2].join(" "));
    let mut command = Command::new(kolo);
    without_own_settings(&mut command);
    command.args(arguments).arg("--data-dir").arg(data_dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(system(&what))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read it says why by its end.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(system(&what))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(system(&what)(io::Error::other(format!("{}: {}", output.status, why.trim()))))
}
