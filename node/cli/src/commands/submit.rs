//! `kolo submit`: hands a request to the node and waits until its reservation stands.

use std::path::Path;

use broker::{
    cost::Cost,
    ids::{HostId, ShapeNumber, SiteId},
    negotiation::{HandedPlan, HandedSeat},
    resources::Amounts,
    scale::Factor,
    time::Time,
};
use kolo_api::request_view::RequestView;
use kolo_text::{document::read_text, safe::safe};
use serde::Deserialize;

use super::{Context, waiting, with_suggestion};
use crate::{
    error::CliError,
    exit::Exit,
    output::{Look, OutputFormat, remark},
    price::{limited, with_budget},
    report::{OfRequest, request_text, reservation_text, variant_line},
    request,
    request_args::SubmitArgs,
    signing,
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
    let printed = args.plan.as_deref().map(read_plan).transpose()?;
    let client = context.connect_as(&args.key)?;
    // Who hands a plan in has seen what it costs.
    let request = match &printed {
        Some((_, cost)) if request.budget().is_none() && !cost.is_zero() => limited(request, *cost)?,
        Some(_) => request,
        None => with_budget(&client, request, context.usual_budget()?)?,
    };
    let plan = printed.map(|(plan, _)| plan);
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

/// The part of what `kolo plan` prints that is to be reserved.
#[derive(Deserialize)]
struct PrintedPlan {
    #[serde(default)]
    shape: ShapeNumber,
    #[serde(default)]
    scale: Factor,
    start: Time,
    #[serde(default)]
    cost: Cost,
    hosts: Vec<PrintedHost>,
}

#[derive(Deserialize)]
struct PrintedHost {
    site: SiteId,
    id: HostId,
    end: Time,
    amounts: Amounts,
}

/// The plan in a file that `kolo plan --output json` has written, and what it costs.
fn read_plan(file: &Path) -> Result<(HandedPlan, Cost), CliError> {
    let wrong = |what: String| CliError::Usage(format!("--plan {}: {what}", file.display()));
    let text = read_text(file)?;
    let printed: serde_json::Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if printed["outcome"] == "rejected" {
        return Err(wrong("there is no plan in it".to_owned()));
    }
    let plan: PrintedPlan =
        serde_json::from_value(printed).map_err(|error| wrong(format!("no plan of kolo plan: {error}")))?;
    let seat = |host: PrintedHost| HandedSeat { site: host.site, host: host.id, end: host.end, amounts: host.amounts };
    let PrintedPlan { start, shape, scale, cost, hosts } = plan;
    Ok((HandedPlan { start, shape, scale, hosts: hosts.into_iter().map(seat).collect() }, cost))
}

/// The id alone: the request is not waited for.
fn id_text(view: &RequestView, _: &Look) -> String {
    format!("{}\n", safe(view.id.as_str()))
}

/// The end of a request.
fn settled_text(view: &RequestView, look: &Look) -> String {
    match &view.reservation {
        Some(reservation) => {
            let head = format!("reserved {}", safe(view.id.as_str()));
            reservation_text(&head, (reservation, view.request.budget().is_some()), look)
                + &variant_line(&view.request, reservation.variant())
        }
        None => request_text(view, look),
    }
}

#[cfg(test)]
mod tests {
    use kolo_api::samples::view;

    use super::*;
    use crate::samples::printed;

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
    fn a_plan_is_read_as_kolo_plan_prints_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("plan.json");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read_plan(&file).map_err(|error| error.to_string())
        };
        let printed = r#"{"schema":"kolo-cli/1","outcome":"allocated","shape":1,"scale":500,"start":5,"end":65,"objective":{"kind":"start","value":5},
            "hosts":[{"id":"h1","site":"s1","site_name":"","end":65,"amounts":{"cpu":500},"schedule_age_s":2}]}"#;
        let (plan, _) = read(printed).unwrap();
        assert_eq!((plan.shape, plan.start, plan.hosts.len()), (ShapeNumber(1), Time(5), 1));
        assert_eq!(plan.scale.thousandths(), 500);
        assert_eq!(plan.hosts[0].host.as_str(), "h1");
        for (text, expected) in
            [("{", "plan.json"), (r#"{"outcome":"rejected"}"#, "no plan in it"), (r#"{"start":5}"#, "hosts")]
        {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_unreserved_request_says_what_to_do() {
        let error = CliError::Unreserved(Box::new(view("rejected", Some(("no_window", "memory short by 3 GiB")))));
        assert_eq!(error.to_string(), "no placement in the window for request r-42: memory short by 3 GiB");
        assert_eq!(error.hint().as_deref(), Some("kolo explain r-42 says why"));
        assert_eq!(error.exit(), Exit::NoPlacement);
    }
}
