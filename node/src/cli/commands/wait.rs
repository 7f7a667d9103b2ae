//! `kolo wait`: waits until a request is settled, has begun or has ended.

use super::{Context, path_of, waiting};
use crate::{
    cli::{
        args::WaitArgs,
        error::{CliError, Exit},
        output::OutputFormat,
    },
    text::time::parse_duration,
};

/// Runs the command. Exit codes are those of `kolo submit`.
///
/// # Errors
/// [`CliError`]; [`CliError::Unreserved`] when the request ended without a reservation.
pub fn run(context: &mut Context, args: &WaitArgs) -> Result<Exit, CliError> {
    let timeout = match &args.timeout {
        Some(text) => Some(parse_duration(text).map_err(|error| CliError::Usage(format!("--timeout: {error}")))?),
        None => None,
    };
    let client = context.connect()?;
    let path = path_of(&client, &args.selector)?;
    let view = waiting::wait(client, args.goal, timeout, move |client| client.get(&path))?;
    let stands = view.state.stands();
    // People read what became of it in the complaint.
    if stands || context.output.format() != OutputFormat::Table {
        context.output.print(&view)?;
    }
    if stands { Ok(Exit::Done) } else { Err(CliError::Unreserved(Box::new(view))) }
}
