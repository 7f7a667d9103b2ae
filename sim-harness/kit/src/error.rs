//! How a subcommand fails: with an [`anyhow::Error`] whose chain says what was attempted and why it failed.
//!
//! Invariant: an error that has [`BadUsage`] anywhere in its chain ends the program with exit code 64, any other with 1.

use std::{fmt, process::ExitCode};

/// Exit code of bad usage.
pub const BAD_USAGE: u8 = 64;

/// Marks an error that is the fault of the arguments or of the files that they name, and says which.
///
/// It serves as an error (`bail!(BadUsage::new("..."))`) and as a context (`.with_context(|| BadUsage::new(path.display()))`).
#[derive(Debug)]
pub struct BadUsage(String);

impl BadUsage {
    /// The message, without the command's name.
    pub fn new(message: impl fmt::Display) -> BadUsage {
        BadUsage(message.to_string())
    }
}

impl fmt::Display for BadUsage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for BadUsage {}

/// The exit code for a subcommand's error.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<BadUsage>() || error.chain().any(|cause| cause.is::<BadUsage>()) {
        ExitCode::from(BAD_USAGE)
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn bad_usage_is_found_wherever_it_is_in_the_chain() {
        let is_bad = |error: anyhow::Error| exit_code(&error) == ExitCode::from(BAD_USAGE);
        let as_context = || Err::<(), _>(std::io::Error::other("full")).with_context(|| BadUsage::new("a.swf"));
        assert!(is_bad(anyhow!(BadUsage::new("x"))));
        assert!(is_bad(as_context().unwrap_err()));
        assert!(is_bad(as_context().context("while reading").unwrap_err()));
        assert!(is_bad(anyhow!(BadUsage::new("x")).context("while reading")));
        assert_eq!(format!("{:#}", as_context().context("reading").unwrap_err()), "reading: a.swf: full");
        assert!(!is_bad(anyhow!("x")));
    }
}
