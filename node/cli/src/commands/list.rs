//! `kolo list`: the requests made through this node.

use broker::time::Span;
use jiff::tz::TimeZone;
use kolo_api::request_view::{RequestList, RequestView};
use kolo_text::{
    time::{format_span, format_time},
    words::{moment_text, or_dash},
};

use super::Context;
use crate::{
    args::ListArgs,
    error::CliError,
    exit::Exit,
    output::{Look, Report, columns},
};

pub fn run(context: &mut Context, args: &ListArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let list: RequestList = client.get(&format!("/v1/requests?limit={}", args.limit))?;
    context.done(&list)
}

impl Report for RequestList {
    fn text(&self, look: &Look) -> String {
        if self.requests.is_empty() {
            return "no requests yet\n".to_owned();
        }
        columns(
            look,
            ["ID", "LABEL", "STATE", "HOSTS", "DURATION", "START", "SUBMITTED", "REASON"],
            self.requests.iter().map(|view| row(view, &look.zone)),
        )
    }
    fn ids(&self) -> Vec<String> {
        self.requests.iter().map(|view| view.id.to_string()).collect()
    }
}

fn row(view: &RequestView, zone: &TimeZone) -> [String; 8] {
    [
        view.id.to_string(),
        or_dash(view.label.as_ref().map(ToString::to_string).unwrap_or_default()),
        view.state.to_string(),
        view.reservation.as_ref().map_or(view.request.demand().seats(), |reserved| reserved.hosts.len()).to_string(),
        format_span(duration_of(view)),
        or_dash(view.reservation.as_ref().map(|reservation| format_time(reservation.start, zone)).unwrap_or_default()),
        moment_text(view.submitted_ms, zone),
        or_dash(view.reason.as_ref().map(|reason| reason.code.clone()).or_else(|| exit_text(view)).unwrap_or_default()),
    ]
}

/// How the command ended that the reservation was for.
fn exit_text(view: &RequestView) -> Option<String> {
    view.exit_code.map(|code| format!("exit code {code}"))
}

/// How long the reservation lasts with what lengthens it; without one, how long it was asked for.
fn duration_of(view: &RequestView) -> Span {
    view.reservation
        .as_ref()
        .map_or(view.request.demand().length().at_reference(), |reservation| reservation.end.since(reservation.start))
}

#[cfg(test)]
mod tests {
    use kolo_api::samples::view;

    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn requests_are_listed_in_columns() {
        let mut hostile = view("rejected", Some(("no_window", "x")));
        hostile.reason.as_mut().unwrap().code = "a\u{1b}[31m".to_owned();
        let list = RequestList { requests: vec![view("confirmed", None), hostile], next: None };
        assert_eq!(
            printed(&list, OutputFormat::Table),
            "ID    LABEL  STATE      HOSTS  DURATION  START                      SUBMITTED                  REASON\n\
             r-42  mine   confirmed  3      2h        2025-11-21 08:00:00+00:00  2025-11-21 04:40:00+00:00  -\n\
             r-42  mine   rejected   3      2h        -                          2025-11-21 04:40:00+00:00  \
             a\\u{1b}[31m\n"
        );
        assert_eq!(printed(&list, OutputFormat::Quiet), "r-42\nr-42\n");
        let mut done = view("done", None);
        done.exit_code = Some(3);
        let text = printed(&RequestList { requests: vec![done], next: None }, OutputFormat::Table);
        assert!(text.contains("  done   3  ") && text.ends_with("  exit code 3\n"), "{text}");
        let none = RequestList { requests: vec![], next: None };
        assert_eq!(printed(&none, OutputFormat::Json), "{\"schema\":\"kolo-cli/1\",\"requests\":[],\"next\":null}\n");
    }
}
