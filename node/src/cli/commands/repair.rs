//! `kolo repair`: sees whether a reservation is still whole, and has lost hosts replaced.

use jiff::tz::TimeZone;
use serde::Serialize;

use super::{Context, path_of};
use crate::cli::{
    args::SelectorArgs,
    error::{CliError, Exit},
    output::Report,
    report::request_text,
    views::{RequestState, RequestView},
};

/// Runs the command.
///
/// # Errors
/// [`CliError`].
pub fn run(context: &mut Context, args: &SelectorArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let path = format!("{}/repair", path_of(&client, &args.selector)?);
    let view: RequestView = client.post(&path, &())?;
    let exit = match view.state {
        RequestState::Degraded | RequestState::Rebrokering => Exit::NoPlacement,
        _ => Exit::Done,
    };
    context.output.print(&Repaired { view })?;
    Ok(exit)
}

struct Repaired {
    view: RequestView,
}

impl Report for Repaired {
    fn body(&self) -> impl Serialize {
        &self.view
    }
    fn text(&self, zone: &TimeZone) -> String {
        request_text(&self.view, zone)
    }
    fn ids(&self) -> Vec<String> {
        vec![self.view.id.clone()]
    }
}
