//! `kolo drain` and `kolo reload`: what the owner changes while the node runs.

use kolo_api::upkeep::{Drain, DrainView, Reloaded};
use kolo_text::time::format_time;

use super::Context;
use crate::{
    args::DrainArgs,
    error::CliError,
    exit::Exit,
    output::{Look, Report},
};

pub fn drain(context: &mut Context, args: &DrainArgs) -> Result<Exit, CliError> {
    let view: DrainView = context.connect()?.post("/v1/drain", &Drain { is_draining: !args.end })?;
    context.done(&view)
}

pub fn reload(context: &mut Context) -> Result<Exit, CliError> {
    let reloaded: Reloaded = context.connect()?.post("/v1/reload", &())?;
    context.done(&reloaded)
}

impl Report for DrainView {
    fn text(&self, look: &Look) -> String {
        if !self.is_draining {
            return "this site gives new promises again\n".to_owned();
        }
        let rest = match self.until {
            Some(until) => format!("{} stand, the last until {}", self.bookings, format_time(until, &look.zone)),
            None => "none stand".to_owned(),
        };
        format!("this site gives no new promises; {rest}\n")
    }

    fn ids(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Report for Reloaded {
    fn text(&self, _: &Look) -> String {
        let mut text = match self.changed.as_slice() {
            [] => "nothing else is in force than before\n".to_owned(),
            changed => format!("in force now: {}\n", changed.join(" ")),
        };
        if !self.at_next_start.is_empty() {
            text.push_str(&format!("in force after a restart: {}\n", self.at_next_start.join(" ")));
        }
        text
    }

    fn ids(&self) -> Vec<String> {
        self.changed.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn it_is_said_what_still_stands_and_what_waits() {
        let view: DrainView = serde_json::from_str(r#"{"is_draining":true,"bookings":2,"until":1763712000}"#).unwrap();
        assert_eq!(
            printed(&view, OutputFormat::Table),
            "this site gives no new promises; 2 stand, the last until 2025-11-21 08:00:00+00:00\n"
        );
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        let reloaded = Reloaded { changed: keys(&["policy.deny"]), at_next_start: keys(&["listen", "hosts"]) };
        assert_eq!(
            printed(&reloaded, OutputFormat::Table),
            "in force now: policy.deny\nin force after a restart: listen hosts\n"
        );
    }
}
