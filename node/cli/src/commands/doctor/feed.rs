//! What the node that runs here says of the feed of the owner's own work.
//!
//! Invariant: a node that does not answer is no finding here; see [`super::running`].

use jiff::tz::TimeZone;
use kolo_api::local::{FeedView, LocalList};
use kolo_text::{time::format_time, words::counted};

use super::finding::Finding;
use crate::{client::Client, error::CliError};

/// Asks the node here, if one answers and has a feed.
pub(super) fn check(client: Result<Client, CliError>, zone: &TimeZone) -> Vec<Finding> {
    let local = client.ok().and_then(|client| client.get::<LocalList>("/v1/local").ok());
    local.and_then(|local| local.feed).map_or_else(Vec::new, |feed| findings(&feed, zone))
}

fn findings(feed: &FeedView, zone: &TimeZone) -> Vec<Finding> {
    const CHECK: &str = "feed";
    let heard = feed.heard.map(|heard| format_time(heard, zone));
    let mut findings = Vec::new();
    if let Some(failure) = &feed.failure {
        let since = heard
            .clone()
            .map_or("no answer since the node has started".to_owned(), |heard| format!("last answer {heard}"));
        let until = if feed.is_awaited {
            "this node gives the grid nothing until it works"
        } else {
            "until it works, its last answer stays in force"
        };
        let to_do =
            format!("run its program (local.feed in the configuration) by hand as the user of the node; {until}");
        findings.push(Finding::problem(CHECK, format!("the feed of own work fails, {since}: {failure}"), to_do));
    }
    if feed.left_out > 0 {
        let what = format!(
            "{} of the owner could not be entered: the grid may be given their hosts",
            counted(feed.left_out, "job")
        );
        findings.push(Finding::problem(
            CHECK,
            what,
            "let the feed report less: only hosts that are offered, only the next days",
        ));
    }
    if feed.short > 0 {
        let what = format!("{} of the owner need what was promised to the grid before", counted(feed.short, "job"));
        let to_do = "see kolo gantt; an activation hook keeps the local batch system off the promised hosts";
        findings.push(Finding::note(CHECK, what, to_do));
    }
    if findings.is_empty() {
        let heard = heard.map_or("no answer yet".to_owned(), |heard| format!("last answer {heard}"));
        let what = format!("{heard}: {} of own work", counted(feed.entries, "piece"));
        findings.push(Finding::good(CHECK, what));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Level, *};

    fn told(feed: &str) -> Vec<(Level, String)> {
        let feed: FeedView = serde_json::from_str(feed).unwrap();
        findings(&feed, &TimeZone::UTC).into_iter().map(|finding| (finding.level, finding.what)).collect()
    }

    #[test]
    fn what_is_wrong_with_a_feed_is_told() {
        let good = told(
            r#"{"heard":1763712000,"failure":null,"is_awaited":false,"entries":2,"elsewhere":9,"short":0,"left_out":0,"queued":0}"#,
        );
        assert_eq!(good.len(), 1);
        assert!(good[0].0 == Level::Good && good[0].1.starts_with("last answer 2025-11-21 08:00:00"), "{good:?}");
        let bad = told(
            r#"{"heard":null,"failure":"exit status: 1","is_awaited":true,"entries":0,"elsewhere":0,"short":3,"left_out":1,"queued":0}"#,
        );
        let levels: Vec<Level> = bad.iter().map(|(level, _)| *level).collect();
        assert_eq!(levels, [Level::Problem, Level::Problem, Level::Note]);
        assert!(bad[0].1.contains("no answer since the node has started: exit status: 1"), "{bad:?}");
        let to_do = |is_awaited| {
            let feed = FeedView { heard: None, failure: Some("x".to_owned()), is_awaited, ..FeedView::default() };
            findings(&feed, &TimeZone::UTC)[0].to_do.clone().unwrap_or_default()
        };
        assert!(to_do(true).ends_with("this node gives the grid nothing until it works"), "{}", to_do(true));
        assert!(to_do(false).ends_with("its last answer stays in force"), "{}", to_do(false));
    }
}
