//! `kolo cancel`: gives everything that a request holds back.

use kolo_api::request_view::{RequestState, RequestView};
use kolo_text::safe::safe;

use super::{Context, path_of};
use crate::{args::SelectorArgs, error::CliError, exit::Exit, output::Look, report::OfRequest};

/// Runs the command.
///
/// # Errors
/// [`CliError`], also when the request had come to another end before.
pub fn run(context: &mut Context, args: &SelectorArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let view: RequestView = client.delete(&path_of(&client, &args.selector)?)?;
    if !matches!(view.state, RequestState::Cancelled | RequestState::Cancelling) {
        let not_cancelled = CliError::failed(format!("request {} is {}, not cancelled", view.id, view.state));
        return Err(not_cancelled.hinted(format!("kolo show {} says more", view.id)));
    }
    context.done(&OfRequest { view, text: cancelled_text })
}

fn cancelled_text(view: &RequestView, _: &Look) -> String {
    let id = safe(view.id.as_str());
    if view.state == RequestState::Cancelled {
        format!("cancelled {id}: its hosts are free\n")
    } else {
        format!(
            "cancelling {id}: recorded; a site that does not answer now releases its hosts as soon as it can be asked\n"
        )
    }
}
