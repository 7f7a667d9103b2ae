//! `kolo show`: one request in full.

use super::{Context, path_of};
use crate::cli::{
    args::SelectorArgs,
    error::CliError,
    exit::Exit,
    report::{OfRequest, request_text},
};

/// Runs the command.
pub fn run(context: &mut Context, args: &SelectorArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let view = client.get(&path_of(&client, &args.selector)?)?;
    context.output.print(&OfRequest { view, text: request_text })?;
    Ok(Exit::Done)
}
