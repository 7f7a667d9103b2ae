//! How a program of the harness begins and ends.
//!
//! Invariant: bad usage ends with exit code 64, whichever subcommand it is about.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser;

use crate::error::{self, BAD_USAGE};

/// Reads the command line of `program`.
///
/// # Errors
/// The exit code when there is nothing to run: help was printed, or what is wrong with the arguments.
pub fn command_line<C: Parser>(program: &str) -> Result<C, ExitCode> {
    C::try_parse().map_err(|ended| {
        if ended.use_stderr() {
            // Nothing is left to be done when even the complaint cannot be written.
            let _ = ended.print();
            return ExitCode::from(BAD_USAGE);
        }
        match ended.print().and_then(|()| io::stdout().flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                eprintln!("{program}: standard output: {error}");
                ExitCode::FAILURE
            }
            _ => ExitCode::SUCCESS,
        }
    })
}

/// The exit code of a subcommand that has ended so; prints its error.
pub fn exit_code(program: &str, subcommand: &str, result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("{program} {subcommand}: {error:#}");
        error::exit_code(&error)
    })
}
