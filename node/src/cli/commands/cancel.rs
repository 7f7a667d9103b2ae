//! `kolo cancel`: gives everything that a request holds back.

use serde::Serialize;

use super::{Context, path_of};
use crate::{
    cli::{
        args::SelectorArgs,
        error::{CliError, Exit},
        output::{Look, Report},
        views::{RequestState, RequestView},
    },
    text::safe::safe,
};

/// Runs the command.
///
/// # Errors
/// [`CliError`]; [`CliError::NotCancelled`] when the request had come to another end before.
pub fn run(context: &mut Context, args: &SelectorArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let view: RequestView = client.delete(&path_of(&client, &args.selector)?)?;
    if !matches!(view.state, RequestState::Cancelled | RequestState::Cancelling) {
        return Err(CliError::NotCancelled { state: view.state.to_string(), id: view.id });
    }
    context.output.print(&Cancelled { view })?;
    Ok(Exit::Done)
}

struct Cancelled {
    view: RequestView,
}

impl Report for Cancelled {
    fn body(&self) -> impl Serialize {
        &self.view
    }
    fn text(&self, _: &Look) -> String {
        let id = safe(&self.view.id);
        if self.view.state == RequestState::Cancelled {
            format!("cancelled {id}: its hosts are free\n")
        } else {
            format!("cancelling {id}: recorded; sites that do not answer now will be told\n")
        }
    }
    fn ids(&self) -> Vec<String> {
        vec![self.view.id.clone()]
    }
}
