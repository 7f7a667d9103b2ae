//! `kolo local stop-all` and `kolo local resume`: an owner ends all commands of users, and lets them start again.

use std::{thread, time::Duration};

use kolo_api::running::{RunningList, Stop};
use serde::Serialize;

use super::Context;
use crate::{
    error::CliError,
    exit::Exit,
    output::{Look, Report},
};

const STOP: &str = "/v1/local/stop";
/// Pause between two looks at what still runs, and their number: a command has a second to end.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const LOOKS_MAX: u32 = 50;

/// Result of a stop or of its end.
#[derive(Serialize)]
struct Stopped {
    #[serde(skip)]
    count: usize,
    #[serde(flatten)]
    left: RunningList,
}

pub fn stop(context: &mut Context, reason: &str) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let mut left: RunningList = client.post(STOP, &Stop { is_stopped: true, reason: Some(reason.to_owned()) })?;
    let count = left.running.len();
    for _ in 0..LOOKS_MAX {
        if left.running.is_empty() {
            break;
        }
        thread::sleep(LOOK_EVERY);
        left = client.get("/v1/local/running")?;
    }
    let has_ended = left.running.is_empty();
    context.output.print(&Stopped { count, left })?;
    Ok(if has_ended { Exit::Done } else { Exit::Failure })
}

pub fn resume(context: &mut Context) -> Result<Exit, CliError> {
    let list: RunningList = context.connect()?.post(STOP, &Stop { is_stopped: false, reason: None })?;
    context.done(&Stopped { count: 0, left: list })
}

impl Report for Stopped {
    fn text(&self, look: &Look) -> String {
        let Stopped { count, left } = self;
        match &left.stopped {
            None => "users may run commands on this site again\n".to_owned(),
            Some(_) if left.running.is_empty() => format!(
                "{count} of users' commands were ended, and nothing starts here until kolo local resume; what is reserved stays (kolo drain \
                 gives no new promises)\n"
            ),
            Some(_) => format!("not all commands have ended yet:\n{}", left.text(look)),
        }
    }

    fn ids(&self) -> Vec<String> {
        self.left.ids()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn it_is_said_what_is_stopped_and_what_is_left() {
        let left = |stopped: Option<&str>, running: &str| {
            let stopped = stopped.map_or_else(String::new, |why| format!("\"stopped\":\"{why}\","));
            let text = format!(
                "{{{stopped}\"running\":[{running}],\"accounts\":[],\"runs_max\":256,\"streams_max\":8,\"open_files_max\":24}}"
            );
            serde_json::from_str::<RunningList>(&text).unwrap()
        };
        let told = |count, left| printed(&Stopped { count, left }, OutputFormat::Table);
        assert!(
            told(3, left(Some("fire"), "")).starts_with("3 of users' commands were ended, and nothing starts here")
        );
        assert_eq!(told(0, left(None, "")), "users may run commands on this site again\n");
        let run = r#"{"request":"r-1","seat":0,"run":1,"user_key":"k","command":["sleep"],"pid":7,"end":1763712000}"#;
        let text = told(1, left(Some("fire"), run));
        assert!(text.starts_with("not all commands have ended yet:\nall commands of users are stopped"), "{text}");
        assert!(text.contains("fire") && text.contains("r-1"), "{text}");
    }
}
