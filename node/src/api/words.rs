//! Times and reasons in words, for people.

use broker::{plan::Reason, time::Time};
use jiff::{Timestamp, tz::TimeZone};

/// A time of a live grid, in UTC; the command line and the page turn epoch seconds into the reader's zone.
pub fn time(time: Time) -> String {
    Timestamp::from_second(time.0)
        .map_or_else(|_| time.0.to_string(), |at| at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A reason with its times in words.
pub fn reason(reason: &Reason) -> String {
    reason.detail_with(time)
}
