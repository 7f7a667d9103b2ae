//! `kolo local`: the owner's own work enters the schedule, so that the grid does not get what the owner uses.

use broker::{
    amount::parse_amount,
    ids::HostId,
    resources::{Amounts, ResourceName},
    time::Time,
};
use serde::{Deserialize, Serialize};

use super::Context;
use crate::{
    cli::{
        client::local_path,
        error::{CliError, Exit},
        local_args::{LocalAddArgs, LocalArgs, LocalCommand},
        output::{Look, Report, columns},
        request,
    },
    text::{
        safe::safe,
        time::{format_time, parse_span, parse_time},
        words::{amounts_text, or_dash},
    },
};

/// Runs the command.
///
/// # Errors
/// [`CliError`].
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
    }
    Ok(Exit::Done)
}

/// Body of `POST /v1/local`.
#[derive(Debug, Serialize)]
struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostId>,
    start: Time,
    end: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    amounts: Option<Amounts>,
}

fn checked(args: &LocalAddArgs, context: &Context) -> Result<Entry, CliError> {
    let usage = |flag: &str, error: &dyn std::fmt::Display| CliError::Usage(format!("{flag}: {error}"));
    let time =
        |flag: &str, words: &[String]| parse_time(&words.join(" "), &context.now).map_err(|error| usage(flag, &error));
    let start = if args.from.is_empty() { context.time() } else { time("--from", &args.from)? };
    let end = match &args.duration {
        Some(text) => start + parse_span(text).map_err(|error| usage("--for", &error))?,
        None => time("--until", &args.until)?,
    };
    if end <= start {
        return Err(CliError::Usage("--until: expected a time behind --from".to_owned()));
    }
    let mut amounts = request::amounts(&args.uses).map_err(|error| usage("--use", &error))?;
    for (name, text) in [("cpu", &args.cpu), ("memory", &args.memory), ("disk", &args.disk), ("gpu", &args.gpu)] {
        let Some(text) = text else { continue };
        let flag = format!("--{name}");
        let name = ResourceName::new(name).map_err(|error| usage(&flag, &error))?;
        amounts.insert(name.clone(), parse_amount(&name, text).map_err(|error| usage(&flag, &error))?);
    }
    let host = args.host.as_ref().map(|text| HostId::new(text).map_err(|error| usage("--host", &error))).transpose()?;
    Ok(Entry { host, start, end, amounts: (!amounts.is_empty()).then_some(amounts) })
}

/// Own work, as the API shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct LocalView {
    id: String,
    host: Option<String>,
    start: Time,
    end: Time,
    amounts: Amounts,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct LocalList {
    local: Vec<LocalView>,
}

impl Report for LocalList {
    fn body(&self) -> impl Serialize {
        self
    }

    fn text(&self, look: &Look) -> String {
        if self.local.is_empty() {
            return "no own work is entered\n".to_owned();
        }
        let row = |work: &LocalView| {
            [
                work.id.clone(),
                or_dash(work.host.clone().unwrap_or_default()),
                amounts_text(&work.amounts),
                format_time(work.start, &look.zone),
                format_time(work.end, &look.zone),
            ]
        };
        columns(look, ["ID", "HOST", "USES", "FROM", "UNTIL"], self.local.iter().map(row))
    }

    fn ids(&self) -> Vec<String> {
        self.local.iter().map(|work| work.id.clone()).collect()
    }
}

/// What was done with one entry.
struct Done {
    word: &'static str,
    view: LocalView,
}

impl Report for Done {
    fn body(&self) -> impl Serialize {
        &self.view
    }

    fn text(&self, look: &Look) -> String {
        format!(
            "{} {}: {} of {} from {} to {}\n",
            self.word,
            safe(&self.view.id),
            amounts_text(&self.view.amounts),
            safe(self.view.host.as_deref().unwrap_or("-")),
            format_time(self.view.start, &look.zone),
            format_time(self.view.end, &look.zone),
        )
    }

    fn ids(&self) -> Vec<String> {
        vec![self.view.id.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::{OutputFormat, tests::printed};

    #[test]
    fn own_work_is_listed_with_what_it_uses() {
        let list: LocalList = serde_json::from_str(
            r#"{"local":[{"id":"local-1","host":"h1","start":1763712000,"end":1763719200,"amounts":{"cpu":4000}}]}"#,
        )
        .unwrap();
        assert_eq!(
            printed(&list, OutputFormat::Table),
            "ID       HOST  USES   FROM                       UNTIL\n\
             local-1  h1    cpu=4  2025-11-21 08:00:00+00:00  2025-11-21 10:00:00+00:00\n"
        );
        let done = Done { word: "entered", view: list.local[0].clone() };
        assert_eq!(
            printed(&done, OutputFormat::Table),
            "entered local-1: cpu=4 of h1 from 2025-11-21 08:00:00+00:00 to 2025-11-21 10:00:00+00:00\n"
        );
        assert_eq!(printed(&LocalList { local: Vec::new() }, OutputFormat::Table), "no own work is entered\n");
    }
}
