//! Amounts, ages, sites and reasons in words, for people.
//!
//! Invariant: pure functions; whoever shows the name of another site makes it [`super::safe::safe`] first.

use std::time::Duration;

use broker::{
    amount::format_amount,
    demand::{Demand, Length},
    ids::{ShapeNumber, tail_of},
    plan::Reason,
    request::Request,
    resources::{Amounts, Attributes},
    time::Time,
};
use jiff::{Timestamp, tz::TimeZone};

use super::time::{format_duration, format_span, format_time};

/// Amounts as `cpu=2.4 memory=3GiB`; `-` when there are none.
pub fn amounts_text(amounts: &Amounts) -> String {
    let parts: Vec<_> =
        amounts.iter().map(|(name, amount)| format!("{name}={}", format_amount(name, *amount))).collect();
    or_dash(parts.join(" "))
}

/// Attributes as `arch=x86_64 os=linux`; `-` when there are none.
pub fn attributes_text(attributes: &Attributes) -> String {
    let parts: Vec<_> = attributes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    or_dash(parts.join(" "))
}

/// `text`, or `-` in place of nothing.
pub fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

/// A length of time in seconds; `-` when unknown.
pub fn age_text(seconds: Option<u64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format_duration(Duration::from_secs(seconds)))
}

/// A site's name with the end of its id, since names are not unique: `alpha (..aB3dE9xY)`; only the end when the name is
/// not known.
pub fn site_text(site: &str, name: &str) -> String {
    let tail = tail_of(site);
    if name.is_empty() { tail } else { format!("{name} ({tail})") }
}

/// `1 host`, `2 hosts`.
pub fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("{count} {what}") } else { format!("{count} {what}s") }
}

/// What a demand is in short, as `8 hosts for 1h 10m`.
pub fn size_text(demand: &Demand) -> String {
    let length = match demand.length() {
        Length::Duration(duration) => format!("for {}", format_span(duration)),
        Length::Work(work) => format!("for work of {}", format_span(work)),
    };
    format!("{} {length}", counted(demand.seats(), "host"))
}

/// Which of the shapes of a request this is, as `shape 2 of 2: 8 hosts for 1h 10m`; none where it has no shapes.
pub fn shape_text(request: &Request, shape: ShapeNumber) -> Option<String> {
    let demand = request.shape(shape).filter(|demand| demand.is_of_shape())?;
    Some(format!("shape {} of {}: {}", shape.0.saturating_add(1), request.shapes().count(), size_text(demand)))
}

/// A moment given in milliseconds, to the second.
pub fn moment_text(epoch_ms: u64, zone: &TimeZone) -> String {
    format_time(Time(i64::try_from(epoch_ms / 1000).unwrap_or(i64::MAX)), zone)
}

/// A time in UTC; the command line and the page turn epoch seconds into the reader's zone.
pub fn utc_text(time: Time) -> String {
    Timestamp::from_second(time.0)
        .map_or_else(|_| time.0.to_string(), |at| at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A reason with its times in words.
pub fn reason_text(reason: &Reason) -> String {
    reason.detail_with(utc_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_empty_things_are_dashes() {
        assert_eq!(age_text(None), "-");
        assert_eq!(age_text(Some(62)), "1m 2s");
        assert_eq!(amounts_text(&Amounts::new()), "-");
        assert_eq!(site_text("short", ""), "short");
    }
}
