//! What can be wrong with a request as it is written down.
//!
//! Invariant: every text begins with the key that it is about, which [`RequestError::key`] says as well.

use super::{
    amount::Amount,
    cost::Cost,
    request::MAX_HOSTS,
    request_document::SLACK_MAX,
    resources::ResourceName,
    scale::Factor,
    time::{Span, Time},
    traffic::Traffic,
};

/// What is wrong with a request. Every text names the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// N is zero or above [`MAX_HOSTS`].
    #[error("hosts: expected 1 to {MAX_HOSTS}, got {0}")]
    Hosts(u32),
    /// The length is zero, negative or absurd.
    #[error("{key}: expected 1 to {max} seconds, got {value}", max = Span::MAX.0)]
    Length {
        /// `duration` or `work`.
        key: &'static str,
        /// What was given.
        value: i64,
    },
    /// Neither `duration` nor `work`.
    #[error("duration: this or work is needed")]
    NoLength,
    /// Both of them.
    #[error("work: given beside duration; one of them says how long the seats last")]
    TwoLengths,
    /// At most no site.
    #[error("sites_max: expected at least 1, got 0")]
    NoSites,
    /// A slack above [`SLACK_MAX`].
    #[error("slack: expected 0 to {max} seconds (a day), got {got}", max = SLACK_MAX.0, got = .0.0)]
    Slack(Span),
    /// A slack of what lengthens a reservation.
    #[error("slack: what lengthens a reservation begins where that ends")]
    SlackOfExtension,
    /// Traffic beside a duration.
    #[error("traffic: asks for work in place of duration, since the slowest host decides how long the seats last")]
    TrafficWithoutWork,
    /// A part above the whole.
    #[error("traffic.compute: expected 0 to {max}, got {0}", max = Traffic::COMPUTE_MAX)]
    Compute(u32),
    /// Traffic above [`Amount::MAX`].
    #[error("traffic.mbps: {0} is larger than any amount ({max})", max = Amount::MAX.0)]
    TrafficTooLarge(Amount),
    /// No range of factors.
    #[error("scale: [{min},{max}]: {}", no_range(*.min, *.max))]
    Scale {
        /// The least.
        min: u32,
        /// The most.
        max: u32,
    },
    /// It cannot be scaled.
    #[error("scale: {0}")]
    NotScaled(&'static str),
    /// No alternative.
    #[error("shapes: expected at least 1, got 0")]
    NoShapes,
    /// Given for all shapes, each of which has its own.
    #[error("{key}: given beside shapes, each of which has its own")]
    BesideShapes {
        /// `hosts`, `duration` or `work`.
        key: &'static str,
    },
    /// Something is wrong with an alternative.
    #[error("shapes[{index}].{error}")]
    Shape {
        /// Which, from 0.
        index: usize,
        /// What is wrong, with the key.
        error: Box<RequestError>,
    },
    /// A budget that no plan can exceed.
    #[error("budget: {0} is larger than any budget ({max})", max = Cost::MAX.0 - 1)]
    BudgetTooLarge(u64),
    /// A time is out of range.
    #[error("{key}: expected 0 to {max} (seconds), got {value}", max = Time::MAX.0)]
    TimeOutOfRange {
        /// `earliest` or `latest`.
        key: &'static str,
        /// What was given.
        value: i64,
    },
    /// The window ends before it starts.
    #[error("{key}: {} is before earliest ({})", .latest.in_utc(), .earliest.in_utc())]
    WindowEndsBeforeStart {
        /// `latest` or `deadline`.
        key: &'static str,
        /// Given earliest start.
        earliest: Time,
        /// Given latest start, or deadline.
        latest: Time,
    },
    /// The window is over.
    #[error("{key}: {} is past, it is {}", .latest.in_utc(), .now.in_utc())]
    WindowPassed {
        /// `latest` or `deadline`.
        key: &'static str,
        /// Given latest start, or deadline.
        latest: Time,
        /// When it was looked at.
        now: Time,
    },
    /// An amount is above [`Amount::MAX`], or a total above what N hosts can be asked for.
    #[error("{key}.{resource}: {amount} is larger than any amount ({max})", max = Amount::MAX.0)]
    AmountTooLarge {
        /// `per_host` or `total`.
        key: &'static str,
        /// The resource.
        resource: ResourceName,
        /// What was given.
        amount: Amount,
    },
    /// Too many resources, attributes or candidates.
    #[error("{key}: at most {limit} entries, got {count}")]
    TooMany {
        /// The key.
        key: &'static str,
        /// The limit.
        limit: usize,
        /// What was given.
        count: usize,
    },
    /// More hosts asked than candidates named.
    #[error("hosts: {hosts} asked, but only {candidates} distinct candidates are named")]
    FewerCandidatesThanHosts {
        /// N.
        hosts: u32,
        /// Distinct candidates.
        candidates: usize,
    },
}

impl RequestError {
    /// The key of the document that is wrong, dotted.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            RequestError::Hosts(_) | RequestError::FewerCandidatesThanHosts { .. } => "hosts".to_owned(),
            RequestError::NoLength => "duration".to_owned(),
            RequestError::TwoLengths => "work".to_owned(),
            RequestError::NoSites => "sites_max".to_owned(),
            RequestError::Slack(_) | RequestError::SlackOfExtension => "slack".to_owned(),
            RequestError::TrafficWithoutWork => "traffic".to_owned(),
            RequestError::Compute(_) => "traffic.compute".to_owned(),
            RequestError::TrafficTooLarge(_) => "traffic.mbps".to_owned(),
            RequestError::Scale { .. } | RequestError::NotScaled(_) => "scale".to_owned(),
            RequestError::BudgetTooLarge(_) => "budget".to_owned(),
            RequestError::NoShapes => "shapes".to_owned(),
            RequestError::Shape { index, error } => format!("shapes[{index}].{}", error.key()),
            RequestError::AmountTooLarge { key, resource, .. } => format!("{key}.{resource}"),
            RequestError::Length { key, .. }
            | RequestError::WindowEndsBeforeStart { key, .. }
            | RequestError::WindowPassed { key, .. }
            | RequestError::TimeOutOfRange { key, .. }
            | RequestError::BesideShapes { key }
            | RequestError::TooMany { key, .. } => (*key).to_owned(),
        }
    }
}

fn no_range(min: u32, max: u32) -> String {
    if min > max {
        return "the least is above the largest".to_owned();
    }
    format!("a factor is from 1 to {} thousandths", Factor::MAX.thousandths())
}
