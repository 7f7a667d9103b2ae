//! `kolo`: the node of a site and the command line of its users.

use std::process::ExitCode;

fn main() -> ExitCode {
    kolo::run_command_line()
}
