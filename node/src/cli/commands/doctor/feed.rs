//! What the node that runs here says of the feed of the owner's own work.
//!
//! Invariant: a node that does not answer is no finding here; see [`super::running`].

use broker::time::Time;
use jiff::tz::TimeZone;
use serde::Deserialize;

use super::{Finding, Level};
use crate::{
    cli::{client::Client, error::CliError},
    text::{time::format_time, words::counted},
};

/// What is looked at of `GET /v1/local`.
#[derive(Debug, Deserialize)]
struct Local {
    feed: Option<Feed>,
}

#[derive(Debug, Deserialize)]
struct Feed {
    heard: Option<Time>,
    failure: Option<String>,
    entries: usize,
    short: usize,
    left_out: usize,
}

/// Asks the node here, if one answers and has a feed.
pub(super) fn check(client: Result<Client, CliError>, zone: &TimeZone) -> Vec<Finding> {
    let local = client.ok().and_then(|client| client.get::<Local>("/v1/local").ok());
    local.and_then(|local| local.feed).map_or_else(Vec::new, |feed| findings(&feed, zone))
}

fn findings(feed: &Feed, zone: &TimeZone) -> Vec<Finding> {
    const CHECK: &str = "feed";
    let heard = feed.heard.map(|heard| format_time(heard, zone));
    let mut findings = Vec::new();
    if let Some(failure) = &feed.failure {
        let since = heard
            .clone()
            .map_or("not heard since the node has started".to_owned(), |heard| format!("last heard {heard}"));
        let to_do = "run its program (local.feed in the configuration) by hand as the user of the node; until it works, what \
                     was heard last stays";
        findings.push(Finding::problem(CHECK, format!("the feed of own work fails, {since}: {failure}"), to_do));
    }
    if feed.left_out > 0 {
        let what =
            format!("{} of the owner could not be entered: the grid may be given them", counted(feed.left_out, "job"));
        findings.push(Finding::problem(
            CHECK,
            what,
            "let the feed tell less: only hosts that are offered, only the next days",
        ));
    }
    if feed.short > 0 {
        let what = format!("{} of the owner take what the grid was promised before", counted(feed.short, "job"));
        let to_do = "see kolo gantt; an activation hook keeps the local batch system off what is promised";
        findings.push(Finding { to_do: Some(to_do.to_owned()), ..Finding::new(CHECK, Level::Note, what) });
    }
    if findings.is_empty() {
        let heard = heard.map_or("not heard yet".to_owned(), |heard| format!("heard {heard}"));
        let what = format!("{heard}: {} of own work", counted(feed.entries, "piece"));
        findings.push(Finding::new(CHECK, Level::Good, what));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(feed: &str) -> Vec<(Level, String)> {
        let feed: Feed = serde_json::from_str(feed).unwrap();
        findings(&feed, &TimeZone::UTC).into_iter().map(|finding| (finding.level, finding.what)).collect()
    }

    #[test]
    fn what_is_wrong_with_a_feed_is_told() {
        let good = told(r#"{"heard":1763712000,"failure":null,"entries":2,"elsewhere":9,"short":0,"left_out":0}"#);
        assert_eq!(good.len(), 1);
        assert!(good[0].0 == Level::Good && good[0].1.starts_with("heard 2025-11-21 08:00:00"), "{good:?}");
        let bad = told(r#"{"heard":null,"failure":"exit status: 1","entries":0,"elsewhere":0,"short":3,"left_out":1}"#);
        let levels: Vec<Level> = bad.iter().map(|(level, _)| *level).collect();
        assert_eq!(levels, [Level::Problem, Level::Problem, Level::Note]);
        assert!(bad[0].1.contains("not heard since the node has started: exit status: 1"), "{bad:?}");
    }
}
