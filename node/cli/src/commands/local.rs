//! `kolo local`: the owner's own work enters the schedule, so that the grid does not get what the owner uses; and who of the grid uses
//! the owner's hosts.

use broker::{
    amount::parse_amount,
    ids::HostId,
    resources::{Amounts, ResourceName},
};
use kolo_api::{
    local::{LocalEntry, LocalList, LocalView, PromiseView, TakenBack},
    running::{AccountShare, RunningList, RunningView},
};
use kolo_text::{
    safe::safe,
    time::format_time,
    words::{amounts_text, or_dash},
};
use serde::Serialize;

use super::{Context, own_queue, stop_all};
use crate::{
    client::{local_path, promised_path, running_path},
    error::CliError,
    exit::Exit,
    local_args::{AmountArgs, LocalAddArgs, LocalArgs, LocalCommand},
    output::{Look, Report, columns},
    request,
};

pub fn run(context: &mut Context, args: &LocalArgs) -> Result<Exit, CliError> {
    match &args.command {
        LocalCommand::Add(args) => {
            let entry = checked(args, context)?;
            let view: LocalView = context.connect()?.post("/v1/local", &entry)?;
            context.output.print(&Done { word: "entered", view })?;
        }
        LocalCommand::List => {
            let list: LocalList = context.connect()?.get("/v1/local")?;
            context.output.print(&list)?;
        }
        LocalCommand::Remove(args) => {
            let view: LocalView = context.connect()?.delete(&local_path(&args.id))?;
            context.output.print(&Done { word: "taken out", view })?;
        }
        LocalCommand::Queue(args) => return own_queue::run(context, args),
        LocalCommand::Evict(args) => {
            let taken: TakenBack = context.connect()?.delete(&promised_path(&args.request))?;
            context.output.print(&taken)?;
        }
        LocalCommand::Running(args) => {
            let list: RunningList = context.connect()?.get("/v1/local/running")?;
            if args.accounts {
                context.output.print(&AccountShares { list })?;
            } else {
                context.output.print(&list)?;
            }
        }
        LocalCommand::StopAll(args) => return stop_all::stop(context, &args.reason),
        LocalCommand::Resume => return stop_all::resume(context),
        LocalCommand::End(args) => {
            let path = running_path(&args.request, args.seat, &args.reason);
            let list: RunningList = context.connect()?.delete(&path)?;
            context.output.print(&list)?;
        }
    }
    Ok(Exit::Done)
}

fn checked(args: &LocalAddArgs, context: &Context) -> Result<LocalEntry, CliError> {
    let start = context.time_of("--from", &args.from)?.unwrap_or_else(|| context.time());
    let end = match args.duration {
        Some(duration) => Some(start + duration),
        None => context.time_of("--until", &args.until)?,
    };
    let end = end.filter(|end| *end > start);
    let end = end.ok_or_else(|| CliError::Usage("--until: expected a time behind --from".to_owned()))?;
    let amounts = amounts_of(&args.amounts)?;
    let host = args
        .host
        .as_ref()
        .map(|text| HostId::new(text).map_err(|error| CliError::of_flag("--host", error)))
        .transpose()?;
    Ok(LocalEntry { host, start, end, amounts: (!amounts.is_empty()).then_some(amounts) })
}

/// What the flags say that own work uses.
pub(super) fn amounts_of(args: &AmountArgs) -> Result<Amounts, CliError> {
    let mut amounts = request::amounts(&args.uses).map_err(|error| CliError::of_flag("--use", error))?;
    for (name, text) in [("cpu", &args.cpu), ("memory", &args.memory), ("disk", &args.disk), ("gpu", &args.gpu)] {
        let Some(text) = text else { continue };
        let flag = format!("--{name}");
        let name = ResourceName::new(name).map_err(|error| CliError::of_flag(&flag, error))?;
        amounts.insert(name.clone(), parse_amount(&name, text).map_err(|error| CliError::of_flag(&flag, error))?);
    }
    Ok(amounts)
}

impl Report for LocalList {
    fn text(&self, look: &Look) -> String {
        let state = if self.is_draining { "this site gives no new promises (kolo drain --end)\n" } else { "" };
        let mut text = state.to_owned() + &own_work_text(&self.local, look);
        if !self.queue.is_empty() {
            text.push('\n');
            text.push_str(&look.paint.title("own queue"));
            text.push('\n');
            text.push_str(&own_queue::jobs_text(&self.queue, look));
            text.push('\n');
        }
        if self.promised.is_empty() {
            text.push_str("nothing is promised to users of the grid\n");
        } else {
            text.push('\n');
            text.push_str(&look.paint.title("promised to users of the grid"));
            text.push('\n');
            text.push_str(&promised_text(&self.promised, look));
        }
        text
    }

    fn ids(&self) -> Vec<String> {
        self.local.iter().map(|work| work.id.to_string()).collect()
    }
}

fn own_work_text(local: &[LocalView], look: &Look) -> String {
    if local.is_empty() {
        return "no own work is entered\n".to_owned();
    }
    let row = |work: &LocalView| {
        [
            work.id.to_string(),
            or_dash(work.host.as_ref().map(ToString::to_string).unwrap_or_default()),
            amounts_text(&work.amounts),
            format_time(work.start, &look.zone),
            format_time(work.end, &look.zone),
        ]
    };
    columns(look, ["ID", "HOST", "USES", "FROM", "UNTIL"], local.iter().map(row))
}

fn promised_text(promised: &[PromiseView], look: &Look) -> String {
    let row = |seat: &PromiseView| {
        [
            seat.request.to_string(),
            seat.user.clone(),
            seat.host.to_string(),
            amounts_text(&seat.amounts),
            format_time(seat.start, &look.zone),
            format_time(seat.end, &look.zone),
        ]
    };
    columns(look, ["REQUEST", "USER", "HOST", "GIVES", "FROM", "UNTIL"], promised.iter().map(row))
}

impl Report for RunningList {
    fn text(&self, look: &Look) -> String {
        let stopped = self.stopped.as_ref().map_or_else(String::new, |why| {
            format!("all commands of users are stopped (kolo local resume): {}\n", safe(why))
        });
        if self.running.is_empty() {
            return stopped + "users run nothing on this site\n";
        }
        let row = |run: &RunningView| {
            [
                run.request.to_string(),
                run.seat.to_string(),
                run.user_key.clone(),
                or_dash(run.pid.map_or_else(String::new, |pid| pid.to_string())),
                format_time(run.end, &look.zone),
                run.command.join(" "),
            ]
        };
        stopped + &columns(look, ["REQUEST", "SEAT", "USER", "PID", "UNTIL", "COMMAND"], self.running.iter().map(row))
    }

    fn ids(&self) -> Vec<String> {
        self.running.iter().map(|run| run.request.to_string()).collect()
    }
}

/// The shares of a site that accounts have taken, for `kolo local running --accounts`.
#[derive(Serialize)]
struct AccountShares {
    #[serde(flatten)]
    list: RunningList,
}

impl Report for AccountShares {
    fn text(&self, look: &Look) -> String {
        let RunningList { accounts, runs_max, streams_max, open_files_max, .. } = &self.list;
        if accounts.is_empty() {
            return format!(
                "no account has anything here; each may have {runs_max} runs, {streams_max} streams to them, and {open_files_max} files for \
                 their ports\n"
            );
        }
        let row = |share: &AccountShare| {
            let of = |taken: usize, most: &usize| format!("{taken} of {most}");
            [
                share.account.clone(),
                of(share.runs, runs_max),
                format!("{} MiB", share.output_bytes.div_ceil(1 << 20)),
                of(share.streams, streams_max),
                of(share.open_files, open_files_max),
            ]
        };
        columns(look, ["ACCOUNT", "RUNS", "OUTPUT", "STREAMS", "FILES FOR PORTS"], accounts.iter().map(row))
    }

    fn ids(&self) -> Vec<String> {
        self.list.accounts.iter().map(|share| share.account.clone()).collect()
    }
}

impl Report for TakenBack {
    fn text(&self, look: &Look) -> String {
        format!("taken back:\n{}", promised_text(&self.promised, look))
    }

    fn ids(&self) -> Vec<String> {
        self.promised.first().map(|seat| seat.request.to_string()).into_iter().collect()
    }
}

/// What was done with one entry.
#[derive(Serialize)]
struct Done {
    #[serde(skip)]
    word: &'static str,
    #[serde(flatten)]
    view: LocalView,
}

impl Report for Done {
    fn text(&self, look: &Look) -> String {
        format!(
            "{} {}: {} of {} from {} to {}\n",
            self.word,
            safe(self.view.id.as_str()),
            amounts_text(&self.view.amounts),
            safe(self.view.host.as_ref().map_or("-", HostId::as_str)),
            format_time(self.view.start, &look.zone),
            format_time(self.view.end, &look.zone),
        )
    }

    fn ids(&self) -> Vec<String> {
        vec![self.view.id.to_string()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn own_work_is_listed_with_what_it_uses() {
        let list: LocalList = serde_json::from_str(
            r#"{"local":[{"id":"local-1","host":"h1","start":1763712000,"end":1763719200,"amounts":{"cpu":4000}}],"queue":[],"is_draining":false,
                "promised":[{"request":"r-42","user":"ada\u001b","host":"h1","start":1763712000,"end":1763719200,"amounts":{"cpu":1000}}]}"#,
        )
        .unwrap();
        assert_eq!(
            printed(&list, OutputFormat::Table),
            "ID       HOST  USES   FROM                       UNTIL\n\
             local-1  h1    cpu=4  2025-11-21 08:00:00+00:00  2025-11-21 10:00:00+00:00\n\n\
             promised to users of the grid\n\
             REQUEST  USER       HOST  GIVES  FROM                       UNTIL\n\
             r-42     ada\\u{1b}  h1    cpu=1  2025-11-21 08:00:00+00:00  2025-11-21 10:00:00+00:00\n"
        );
        let done = Done { word: "entered", view: list.local[0].clone() };
        assert_eq!(
            printed(&done, OutputFormat::Table),
            "entered local-1: cpu=4 of h1 from 2025-11-21 08:00:00+00:00 to 2025-11-21 10:00:00+00:00\n"
        );
        assert_eq!(
            printed(
                &LocalList {
                    local: Vec::new(),
                    queue: Vec::new(),
                    promised: Vec::new(),
                    is_draining: true,
                    feed: None
                },
                OutputFormat::Table
            ),
            "this site gives no new promises (kolo drain --end)\nno own work is entered\nnothing is promised to users of the grid\n"
        );
    }
}
