//! `kolo submit`: hands a request to the node and waits until its reservation stands.

use serde::Serialize;

use super::{Context, waiting, with_suggestion};
use crate::{
    cli::{
        error::{CliError, Exit},
        output::{Look, OutputFormat, Report},
        remark,
        report::{request_text, reservation_text},
        request,
        request_args::SubmitArgs,
        signing,
        views::RequestView,
    },
    text::{safe::safe, time::parse_duration},
};

/// Runs the command.
///
/// # Errors
/// [`CliError`]; [`CliError::Unreserved`] when the request ended without a reservation.
pub fn run(context: &mut Context, args: &SubmitArgs) -> Result<Exit, CliError> {
    let timeout = match &args.timeout {
        Some(text) => Some(parse_duration(text).map_err(|error| CliError::Usage(format!("--timeout: {error}")))?),
        None => None,
    };
    let request = request::checked(args.script.as_deref(), &args.request, &context.now)?;
    if let Some(note) = request::note_on(&request) {
        remark(note);
    }
    let client = context.connect()?;
    let submission = signing::submission(context, &client, &args.key, request)?;
    let asking = client.clone();
    if args.no_wait {
        let view = client.post("/v1/requests", &submission)?;
        context.output.print(&Submitted { view })?;
        return Ok(Exit::Done);
    }
    let view = waiting::submit_and_wait(client, submission, timeout)?;
    if view.state.stands() {
        context.output.print(&Settled { view })?;
        return Ok(Exit::Done);
    }
    let view = if context.output.format() == OutputFormat::Table {
        view
    } else {
        let settled = Settled { view };
        context.output.print(&settled)?;
        settled.view
    };
    let request = view.request.clone();
    Err(with_suggestion(&asking, &request, CliError::Unreserved(Box::new(view))))
}

/// A request that was handed over and not waited for.
struct Submitted {
    view: RequestView,
}

impl Report for Submitted {
    fn body(&self) -> impl Serialize {
        &self.view
    }
    fn text(&self, _: &Look) -> String {
        format!("{}\n", safe(&self.view.id))
    }
    fn ids(&self) -> Vec<String> {
        vec![self.view.id.clone()]
    }
}

/// A request that has come to its end.
struct Settled {
    view: RequestView,
}

impl Report for Settled {
    fn body(&self) -> impl Serialize {
        &self.view
    }
    fn text(&self, look: &Look) -> String {
        match &self.view.reservation {
            Some(reservation) => reservation_text(&format!("reserved {}", safe(&self.view.id)), reservation, look),
            None => request_text(&self.view, look),
        }
    }
    fn ids(&self) -> Vec<String> {
        vec![self.view.id.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{output::tests::printed, views::tests::view};

    #[test]
    fn a_settled_request_prints_in_every_format() {
        let settled = Settled { view: view("confirmed", None) };
        assert!(
            printed(&settled, OutputFormat::Table).starts_with("reserved r-42: 3 hosts at 2 sites from 2025-11-21 ")
        );
        assert_eq!(printed(&settled, OutputFormat::Quiet), "r-42\n");
        let json: serde_json::Value = serde_json::from_str(&printed(&settled, OutputFormat::Json)).unwrap();
        assert_eq!(json["schema"], "kolo-cli/1");
        assert_eq!(json["reservation"]["hosts"][0]["amounts"]["cpu"], 2400);
        assert_eq!(json["state"], "confirmed");
    }

    #[test]
    fn an_unreserved_request_says_what_to_do() {
        let error = CliError::Unreserved(Box::new(view("rejected", Some(("no_window", "memory short by 3 GiB")))));
        assert_eq!(error.to_string(), "no placement in the window for request r-42: memory short by 3 GiB");
        assert_eq!(error.hint().as_deref(), Some("kolo explain r-42 says why"));
        assert_eq!(error.exit(), Exit::NoPlacement);
    }
}
