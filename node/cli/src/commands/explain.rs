//! `kolo explain`: which constraint cut how many hosts, and what every asked site answered.

use jiff::tz::TimeZone;
use kolo_api::explanation::{AttemptView, Explanation, RoundView};
use kolo_text::{
    safe::safe,
    time::format_time,
    words::{counted, site_text},
};

use super::{Context, path_of};
use crate::{
    args::SelectorArgs,
    error::CliError,
    exit::Exit,
    output::{Look, Report},
};

pub fn run(context: &mut Context, args: &SelectorArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let explanation: Explanation = client.get(&format!("{}/explain", path_of(&client, &args.selector)?))?;
    context.done(&explanation)
}

impl Report for Explanation {
    fn text(&self, look: &Look) -> String {
        let mut text = format!("{} {}", self.state, safe(self.id.as_str()));
        if let Some(reason) = &self.reason {
            text.push_str(&format!(": {} ({})", safe(&reason.detail), safe(&reason.code)));
        }
        text.push('\n');
        if !self.user.is_empty() {
            text.push_str(&format!("user {}\n", safe(&self.user)));
        }
        if let Some(variant) = &self.variant {
            text.push_str(&format!("{}\n", safe(variant)));
        }
        if let Some(price) = &self.price {
            text.push_str(&format!("price: {}\n", safe(price)));
        }
        for (index, round) in self.rounds.iter().enumerate() {
            text.push_str(&round_text(index + 1, round, &look.zone));
        }
        for attempt in &self.attempts {
            text.push_str(&attempt_text(attempt, &look.zone));
        }
        text
    }
    fn ids(&self) -> Vec<String> {
        vec![self.id.to_string()]
    }
}

fn round_text(number: usize, round: &RoundView, zone: &TimeZone) -> String {
    let mut text = format!(
        "round {number}: of {} known hosts, {} fit and have a schedule\n",
        round.known_hosts, round.found_hosts
    );
    for cut in &round.cut {
        let hosts = counted(usize::try_from(cut.hosts).unwrap_or(usize::MAX), "host");
        text.push_str(&format!("  {} cut {hosts}\n", safe(&cut.constraint)));
    }
    if round.without_schedule > 0 {
        let hosts = counted(round.without_schedule, "host");
        text.push_str(&format!("  {hosts} left out: asked for the schedule, in vain\n"));
    }
    if round.left_out > 0 {
        let (hosts, asked) = (counted(round.left_out, "host"), counted(round.asked_hosts, "such host"));
        text.push_str(&format!(
            "  {hosts} left out: schedule not known; {asked} at most were asked (M = {})\n",
            round.multiplier
        ));
    }
    text.push_str(&format!("  {}", safe(&round.outcome)));
    // What is told of a start is the same time in UTC.
    match round.start {
        Some(start) => text.push_str(&format!(" for {}", format_time(start, zone))),
        None if round.detail.is_empty() => {}
        None => text.push_str(&format!(": {}", safe(&round.detail))),
    }
    text.push('\n');
    for quote in &round.quotes {
        let site = safe(&site_text(quote.site.as_str(), &quote.site_name));
        text.push_str(&format!("  quote of {site}: {}\n", safe(&quote.answer)));
    }
    text
}

fn attempt_text(attempt: &AttemptView, zone: &TimeZone) -> String {
    let mut text = format!("attempt {} for {}\n", attempt.attempt, format_time(attempt.start, zone));
    for answer in &attempt.sites {
        text.push_str(&format!(
            "  {} ({}): {} after {} ms",
            safe(&site_text(answer.site.as_str(), &answer.site_name)),
            counted(answer.hosts, "host"),
            safe(&answer.answer),
            answer.milliseconds
        ));
        if let Some(detail) = &answer.detail {
            text.push_str(&format!(": {}", safe(detail)));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn an_explanation_names_constraints_and_answers() {
        let explanation: Explanation = serde_json::from_str(
            r#"{"id":"r-1","user":"","state":"failed","reason":{"code":"patience_over","detail":"60 s are over"},
            "price":"it costs 1.50 credits","variant":"shape 2 of 2: 8 hosts for 1h",
            "rounds":[{"multiplier":3,"asked_hosts":15,"found_hosts":6,"known_hosts":60,"without_schedule":2,"left_out":1,
              "cut":[{"constraint":"attribute arch=x86_64","hosts":50},{"constraint":"per_host memory>=4GiB","hosts":1}],
              "outcome":"planned","start":1763712000,"detail":"",
              "quotes":[{"site":"12D3KooWaaaa1111","site_name":"alpha","answer":"would refuse: x"}]}],
            "attempts":[{"attempt":1,"start":1763712000,"sites":[
              {"site":"12D3KooWaaaa1111","site_name":"alpha","hosts":2,"answer":"refused","detail":"cpu short by 1",
               "milliseconds":12}]}]}"#,
        )
        .unwrap();
        assert_eq!(
            printed(&explanation, OutputFormat::Table),
            "failed r-1: 60 s are over (patience_over)\nshape 2 of 2: 8 hosts for 1h\nprice: it costs 1.50 credits\nround 1: of 60 known hosts, 6 fit and have a schedule\n  \
             attribute arch=x86_64 cut 50 hosts\n  per_host memory>=4GiB cut 1 host\n  2 hosts left out: asked for the schedule, in vain\n  \
             1 host left out: schedule not known; 15 such hosts at most were asked (M = 3)\n  planned for 2025-11-21 \
             08:00:00+00:00\n  quote of alpha (..aaaa1111): would refuse: x\nattempt 1 for 2025-11-21 08:00:00+00:00\n  alpha (..aaaa1111) (2 hosts): refused after 12 \
             ms: cpu short by 1\n"
        );
    }
}
