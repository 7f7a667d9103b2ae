//! Amounts, ages, sites and reasons in words, for people.
//!
//! Invariant: pure functions; whoever shows the name of another site makes it [`super::safe::safe`] first.

use std::time::Duration;

use broker::{
    amount::format_amount,
    demand::{Demand, Length},
    ids::tail_of,
    reason::Reason,
    request::Request,
    resources::{Amounts, Attributes},
    time::Time,
    variant::Variant,
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
        Length::Work(work) => format!("for work of {}", format_span(demand.factor().length(work))),
    };
    format!("{} {length}", counted(demand.seats(), "host"))
}

/// Which of all that a request allows this is, as `shape 2 of 2, factor 0.5 of 0.5..2: 8 hosts for 1h 10m`; none where it allows only
/// what it says.
pub fn variant_text(request: &Request, variant: Variant) -> Option<String> {
    let demand = request.demand_of(variant)?;
    let shape = || format!("shape {} of {}", variant.shape.0.saturating_add(1), request.shapes().count());
    let factor = demand.scale().map(|scale| format!("factor {} of {scale}", variant.scale));
    let parts: Vec<String> = demand.is_of_shape().then(shape).into_iter().chain(factor).collect();
    (!parts.is_empty()).then(|| format!("{}: {}", parts.join(", "), size_text(&demand)))
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
    fn what_was_chosen_of_a_request_is_said_as_it_was_chosen() {
        let said = |request: &str, shape, factor| {
            let request: Request = serde_json::from_str(request).unwrap();
            let scale = broker::scale::Factor::of_thousandths(factor);
            variant_text(&request, Variant { shape: broker::ids::ShapeNumber(shape), scale })
        };
        let plain = r#"{"hosts":1,"duration":3600,"per_host":{"cpu":1}}"#;
        assert_eq!((said(plain, 0, 1000), said(plain, 0, 999)), (None, None));
        let scaled = r#"{"hosts":1,"work":3600,"per_host":{"cpu":1},"scale":[750,2000]}"#;
        assert_eq!(said(scaled, 0, 1500).as_deref(), Some("factor 1.5 of 0.75..2: 1 host for work of 40m"));
        assert_eq!(said(scaled, 0, 749), None);
        let both = r#"{"per_host":{"cpu":1},"scale":[500,500],"shapes":[{"hosts":1,"duration":60},{"hosts":2,"duration":60}]}"#;
        assert_eq!(said(both, 1, 500).as_deref(), Some("shape 2 of 2, factor 0.5 of 0.5..0.5: 2 hosts for 2m"));
    }

    #[test]
    fn unknown_and_empty_things_are_dashes() {
        assert_eq!(age_text(None), "-");
        assert_eq!(age_text(Some(62)), "1m 2s");
        assert_eq!(amounts_text(&Amounts::new()), "-");
        assert_eq!(site_text("short", ""), "short");
    }
}
