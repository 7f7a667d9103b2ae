//! `kolo wait`: waits until a request is settled, has begun or has ended.

use super::{Context, path_of, waiting};
use crate::{
    args::WaitArgs,
    error::CliError,
    exit::Exit,
    output::OutputFormat,
    report::{OfRequest, request_text},
};

/// Runs the command. Exit codes are those of `kolo submit`.
///
/// # Errors
/// [`CliError`]; [`CliError::Unreserved`] when the request ended without a reservation.
pub fn run(context: &mut Context, args: &WaitArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let path = path_of(&client, &args.selector)?;
    let view = waiting::wait(client, &args.goal.into(), args.timeout, move |client| client.get(&path))?;
    let is_reserved = view.state.was_reserved();
    let settled = OfRequest { view, text: request_text };
    // Without a reservation, people read the outcome in the error.
    if is_reserved || context.output.format() != OutputFormat::Table {
        context.output.print(&settled)?;
    }
    if is_reserved { Ok(Exit::Done) } else { Err(CliError::Unreserved(Box::new(settled.view))) }
}
