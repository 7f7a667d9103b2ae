//! `kolo completions`: what a shell needs to complete the command line.

use clap::CommandFactory;

use super::Context;
use crate::{
    args::{Cli, CompletionsArgs},
    error::CliError,
    exit::Exit,
};

pub fn run(context: &mut Context, args: &CompletionsArgs) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kolo", &mut script);
    context.output.sink().write_all(&script).map_err(CliError::output)?;
    Ok(Exit::Done)
}
