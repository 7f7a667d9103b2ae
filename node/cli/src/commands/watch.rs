//! `kolo watch`: prints each notice about a request until it is over, and runs the user's command with each. The first one says how things
//! stand.
//!
//! Invariant: a node that does not answer for a while, as at its restart, loses no event that is
//! still so afterwards.

use std::{
    io::Write as _,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use broker::time::Time;
use jiff::Timestamp;
use kolo_api::{
    notice::{Heard, Notice, NoticeEvent, Told, lost_hosts, next, next_moment},
    request_view::{RequestState, RequestView},
};
use kolo_text::{
    safe::safe,
    time::{format_span, format_time},
    words::site_text,
};

use super::{
    Context, path_of,
    waiting::{POLL, question, until_ms},
};
use crate::{
    args::WatchArgs,
    client::{Client, request_path},
    error::CliError,
    exit::Exit,
    output::{Look, Report, remark},
};

/// Wait before a node that does not answer is asked again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Runs the command. Exit codes are those of `kolo wait`.
///
/// # Errors
/// [`CliError`]; [`CliError::Unreserved`] when the request ended without a reservation.
pub fn run(context: &mut Context, args: &WatchArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let mut view: RequestView = client.get(&path_of(&client, &args.request.selector)?)?;
    let (mut told, mut number) = (Told::default(), 0);
    loop {
        while let Some((event, after)) = next(&view, &told, now()) {
            (told, number) = (after, number + 1);
            let notice = Said { notice: Notice::new(event, number, 1, &view), at: now() };
            context.output.print(&notice)?;
            if let Err(why) = tell(&args.command, &notice.notice) {
                remark(&format!("the command has failed: {why}"));
            }
        }
        if told.heard == Heard::Over && view.state == RequestState::Ended {
            return Ok(Exit::Done);
        }
        if told.heard == Heard::Over || view.state == RequestState::HandedOver {
            return Err(CliError::Unreserved(Box::new(view)));
        }
        view = changed(&client, &view)?;
    }
}

fn now() -> Time {
    Time(Timestamp::now().as_second())
}

/// The next view, when something has changed or time has.
fn changed(client: &Client, view: &RequestView) -> Result<RequestView, CliError> {
    let path = question(view, next_moment(view, now()).map(until_ms));
    let mut is_said = false;
    loop {
        // A node that has started anew counts its revisions anew.
        let answer =
            if is_said { client.get(&request_path(view.id.as_str())) } else { client.get_waiting(&path, POLL) };
        match answer {
            Err(error) if error.exit() == Exit::Unreachable => {
                if !is_said {
                    remark(&format!("{error}; it is asked again"));
                    is_said = true;
                }
                thread::sleep(AGAIN_AFTER);
            }
            answer => return answer,
        }
    }
}

/// Runs the user's command with a notice and waits for its end; says how it failed.
fn tell(command: &[String], notice: &Notice<'_>) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let mut told = Command::new(program);
    told.args(arguments).envs(notice.variables()).stdin(Stdio::piped());
    let mut child = told.spawn().map_err(|error| format!("{program}: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        // It need not read it.
        let _ = input.write_all(&notice.document());
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{program}: {status}")) }
}

/// A notice as it is printed, with its time.
#[derive(serde::Serialize)]
struct Said<'a> {
    #[serde(flatten)]
    notice: Notice<'a>,
    at: Time,
}

impl Report for Said<'_> {
    fn text(&self, look: &Look) -> String {
        let Notice { event, request: view, .. } = &self.notice;
        let name = event.name();
        let shown = match event {
            NoticeEvent::Reserved | NoticeEvent::Start | NoticeEvent::Repaired => look.paint.good(name),
            NoticeEvent::Later | NoticeEvent::End | NoticeEvent::Cancelled => name.to_owned(),
            NoticeEvent::Degraded | NoticeEvent::Lost | NoticeEvent::Failed => look.paint.bad(name),
        };
        let lost: Vec<String> = lost_hosts(view)
            .map(|host| {
                format!("{}/{}", safe(&site_text(host.site.as_str(), &host.site_name)), safe(host.host.as_str()))
            })
            .collect();
        let mut text = format!("{}  {shown}  {}", format_time(self.at, &look.zone), safe(view.id.as_str()));
        if !lost.is_empty() {
            text.push_str(&format!("  lost: {}", lost.join(", ")));
        }
        // Only what is at one site waits.
        if let (NoticeEvent::Later, Some(reservation)) = (event, &view.reservation)
            && let Some(host) = reservation.hosts.first()
        {
            let site = safe(&site_text(host.site.as_str(), &host.site_name));
            text.push_str(&format!("  {} later, for an own job of {site}", format_span(reservation.wait)));
        }
        if let Some(reason) = &view.reason {
            text.push_str(&format!("  ({})", safe(&reason.detail)));
        }
        text + "\n"
    }

    fn ids(&self) -> Vec<String> {
        vec![self.notice.event.name().to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use broker::{negotiation::Loss, time::Span};
    use kolo_api::samples::view;

    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn a_line_says_what_when_and_which_hosts_are_lost() {
        let mut view = view("active", None);
        view.reservation.as_mut().unwrap().hosts[0].lost = Some(Loss::SiteSilent);
        let said = |event| Said { notice: Notice::new(event, 3, 1, &view), at: Time(1_763_712_000) };
        let text = printed(&said(NoticeEvent::Degraded), OutputFormat::Table);
        assert!(text.contains("  degraded  r-42  lost: alpha") && text.ends_with("/h1\n"), "{text}");
        let json = printed(&said(NoticeEvent::Degraded), OutputFormat::Json);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&json["event"], &json["number"], &json["at"]),
            (&"degraded".into(), &3.into(), &1_763_712_000.into())
        );
        assert_eq!(printed(&said(NoticeEvent::Start), OutputFormat::Quiet), "start\n");
    }

    #[test]
    fn a_line_says_by_how_much_and_for_whose_job_it_is_later() {
        let mut view = view("active", None);
        view.reservation.as_mut().unwrap().wait = Span(90);
        let said = Said { notice: Notice::new(NoticeEvent::Later, 3, 1, &view), at: Time(1_763_712_000) };
        let text = printed(&said, OutputFormat::Table);
        assert!(text.contains("  later  r-42  1m 30s later, for an own job of alpha"), "{text}");
    }

    #[test]
    fn a_command_hears_of_it_and_says_how_it_failed() {
        let view = view("active", None);
        let notice = Notice::new(NoticeEvent::Start, 1, 1, &view);
        let sh = |script: &str| ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let checks = "grep -q '\"event\":\"start\"' && test $KOLO_EVENT = start && test $KOLO_REQUEST = r-42";
        assert_eq!(tell(&sh(checks), &notice), Ok(()));
        assert_eq!(tell(&[], &notice), Ok(()));
        assert_eq!(tell(&sh("exec 0<&-; exit 3"), &notice), Err("/bin/sh: exit status: 3".to_owned()));
        assert!(tell(&["/no/such".to_owned()], &notice).unwrap_err().contains("No such file"));
    }
}
