//! `kolo submit`: hands a request to the node and waits until its reservation stands.

use std::path::Path;

use broker::negotiation::{HandedPlan, HandedSeat};

use super::{Context, waiting, with_suggestion};
use crate::{
    api::{
        plan::{AllocatedPlan, LivePlan, PlannedHost},
        request_view::RequestView,
    },
    cli::{
        error::CliError,
        exit::Exit,
        output::{Look, OutputFormat, remark},
        report::{OfRequest, request_text, reservation_text},
        request,
        request_args::SubmitArgs,
        signing,
    },
    text::{document::read_text, safe::safe},
};

/// Runs the command.
///
/// # Errors
/// [`CliError`]; [`CliError::Unreserved`] when the request ended without a reservation.
pub fn run(context: &mut Context, args: &SubmitArgs) -> Result<Exit, CliError> {
    let request = request::checked(args.script.as_deref(), &args.request, &context.now)?;
    if let Some(note) = request::note_on(&request) {
        remark(note);
    }
    let plan = args.plan.as_deref().map(read_plan).transpose()?;
    let client = context.connect()?;
    let submission = signing::submission(context, &client, &args.key, request, plan)?;
    let asking = client.clone();
    if args.no_wait {
        let view = client.post("/v1/requests", &submission)?;
        return context.done(&OfRequest { view, text: id_text });
    }
    let view = waiting::submit_and_wait(client, submission, args.timeout)?;
    if view.state.is_reserved() {
        return context.done(&OfRequest { view, text: settled_text });
    }
    let view = if context.output.format() == OutputFormat::Table {
        view
    } else {
        let settled = OfRequest { view, text: settled_text };
        context.output.print(&settled)?;
        settled.view
    };
    let request = view.request.clone();
    Err(with_suggestion(&asking, &request, CliError::Unreserved(Box::new(view))))
}

/// The plan in a file that `kolo plan --output json` has written.
fn read_plan(file: &Path) -> Result<HandedPlan, CliError> {
    let text = read_text(file)?;
    let wrong = |what: String| CliError::Usage(format!("--plan {}: {what}", file.display()));
    let plan: LivePlan = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("expected what kolo plan --output json prints: {error}")))?;
    match plan {
        LivePlan::Allocated(plan) => Ok(handed(plan)),
        LivePlan::Rejected(plan) => Err(wrong(format!("there is no plan in it: {}", plan.reason.detail))),
    }
}

fn handed(plan: AllocatedPlan) -> HandedPlan {
    let seat = |host: PlannedHost| HandedSeat { site: host.site, host: host.id, end: host.end, amounts: host.amounts };
    HandedPlan { start: plan.start, hosts: plan.hosts.into_iter().map(seat).collect() }
}

/// The id alone: the request is not waited for.
fn id_text(view: &RequestView, _: &Look) -> String {
    format!("{}\n", safe(view.id.as_str()))
}

/// The end of a request.
fn settled_text(view: &RequestView, look: &Look) -> String {
    match &view.reservation {
        Some(reservation) => reservation_text(&format!("reserved {}", safe(view.id.as_str())), reservation, look),
        None => request_text(view, look),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::samples::view, cli::samples::printed};

    #[test]
    fn a_settled_request_prints_in_every_format() {
        let settled = OfRequest { view: view("confirmed", None), text: settled_text };
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
