//! `kolo show`: one request in full.

use serde::Serialize;

use super::{Context, path_of};
use crate::cli::{
    args::SelectorArgs,
    error::{CliError, Exit},
    output::{Look, Report},
    report::request_text,
    views::RequestView,
};

/// Runs the command.
///
/// # Errors
/// [`CliError`].
pub fn run(context: &mut Context, args: &SelectorArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let view: RequestView = client.get(&path_of(&client, &args.selector)?)?;
    context.output.print(&view)?;
    Ok(Exit::Done)
}

impl Report for RequestView {
    fn body(&self) -> impl Serialize {
        self
    }
    fn text(&self, look: &Look) -> String {
        request_text(self, look)
    }
    fn ids(&self) -> Vec<String> {
        vec![self.id.clone()]
    }
}
