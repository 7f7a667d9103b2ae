//! The one written form of a request, for files, messages and the API, and what is checked of it.
//!
//! Source: section 3.2 and appendix A.1 of the dissertation; version 2 of `formats.md`. Invariant: an error names the key.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::model::{
    amount::Amount,
    cost::Cost,
    demand::{Demand, Length},
    host::Speed,
    ids::{HostId, RequestId},
    needs::{ImageName, Need, Needs},
    request_error::RequestError,
    resources::{Amounts, Attributes, ResourceName},
    scale::Scale,
    shapes::ShapeDocument,
    time::{Span, Time},
    traffic::Traffic,
};

/// Most hosts in one request; keeps sums of amounts inside 64 bits.
pub const MAX_HOSTS: u32 = 10_000;
/// Most resources and most attributes named in one request.
pub const MAX_NAMES: usize = 32;
/// Most candidates named in one request.
pub const MAX_CANDIDATES: usize = 100_000;

/// Longest slack: who can wait longer has a window for the start.
pub const SLACK_MAX: Span = Span(86_400);

/// How much work the planner may spend on one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Least time.
    Fast,
    /// The default.
    #[default]
    Balanced,
    /// Best answers.
    Thorough,
}

/// What makes one plan better than another. The smallest value wins; among equals the earlier start, then the higher
/// efficiency factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectiveKind {
    /// The start.
    #[default]
    Start,
    /// The latest end of a seat.
    Finish,
    /// The longest seat.
    Runtime,
    /// The sum of the seats' lengths.
    #[serde(alias = "host-time")]
    HostTime,
    /// The sum of the seats' costs.
    Cost,
}

impl ObjectiveKind {
    /// Whether it is the one that a request without `objective` has, which is left out where it is written down.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == ObjectiveKind::default()
    }

    /// Its name in the formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ObjectiveKind::Start => "start",
            ObjectiveKind::Finish => "finish",
            ObjectiveKind::Runtime => "runtime",
            ObjectiveKind::HostTime => "host_time",
            ObjectiveKind::Cost => "cost",
        }
    }
}

/// A request as it is written down (`formats.md`); unchecked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestDocument {
    /// The writer's name for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<RequestId>,
    /// N; absent beside `shapes` only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hosts: u32,
    /// `t_res` in seconds; this or `work`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<i64>,
    /// Seconds of work at reference speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<i64>,
    /// `t_earliest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest: Option<Time>,
    /// `t_latest`, the latest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Time>,
    /// No seat ends after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// What is best.
    #[serde(default, skip_serializing_if = "ObjectiveKind::is_default")]
    pub objective: ObjectiveKind,
    /// `d_i`.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub per_host: Amounts,
    /// `e_i`.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub total: Amounts,
    /// Qualitative requirements, all of which must hold.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
    /// Restricts the host set to these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates: Option<Vec<HostId>>,
    /// The least speed of every host, in thousandths of the reference speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_min: Option<Speed>,
    /// Every seat takes its host whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// The hosts lie at most at so many sites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites_max: Option<u32>,
    /// How much later than planned all seats may begin where they are at one site and wait for an own job there, within the window.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    pub slack: Span,
    /// The reservation of this request of the same user is made longer by this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<RequestId>,
    /// How much work the planner may spend; the node's or the command's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// When hosts of the reservation are lost and cannot be replaced at its start, all hosts may be reserved anew at
    /// another start inside the window.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub move_on_loss: bool,
    /// What all seats together cost is at most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Cost>,
    /// Alternatives, one of which is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shapes: Option<Vec<ShapeDocument>>,
    /// All-to-all traffic between the seats; asks for `work`, except with `extends`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// How far all amounts and the length together may be scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// What the nodes of all its sites give to commands.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needs: BTreeSet<Need>,
    /// The image that its commands run in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageName>,
}

// As serde calls it.
#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_zero(hosts: &u32) -> bool {
    *hosts == 0
}

/// When seats may begin and must have ended, as far as that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartWindow {
    /// The earliest start.
    pub earliest: Option<Time>,
    /// The latest start.
    pub latest: Option<Time>,
    /// The latest end of every seat.
    pub deadline: Option<Time>,
}

pub(super) fn checked_window(document: &RequestDocument) -> Result<StartWindow, RequestError> {
    let &RequestDocument { earliest, latest, deadline, .. } = document;
    for (key, value) in [("earliest", earliest), ("latest", latest), ("deadline", deadline)] {
        if let Some(value) = value.filter(|time| !time.is_in_range()) {
            return Err(RequestError::TimeOutOfRange { key, value: value.0 });
        }
    }
    for (key, last) in [("latest", latest), ("deadline", deadline)] {
        if let (Some(earliest), Some(latest)) = (earliest, last)
            && latest < earliest
        {
            return Err(RequestError::WindowEndsBeforeStart { key, earliest, latest });
        }
    }
    Ok(StartWindow { earliest, latest, deadline })
}

fn checked_length(document: &RequestDocument) -> Result<Length, RequestError> {
    let (key, value) = match (document.duration, document.work) {
        (Some(duration), None) => ("duration", duration),
        (None, Some(work)) => ("work", work),
        (None, None) => return Err(RequestError::NoLength),
        (Some(_), Some(_)) => return Err(RequestError::TwoLengths),
    };
    if !(1..=Time::MAX.0).contains(&value) {
        return Err(RequestError::Length { key, value });
    }
    let span = Span(value.unsigned_abs());
    Ok(if document.work.is_some() { Length::Work(span) } else { Length::Duration(span) })
}

fn checked_traffic(document: &RequestDocument) -> Result<Option<Traffic>, RequestError> {
    let Some(traffic) = document.traffic else { return Ok(None) };
    // What lengthens a reservation is on the hosts that it has.
    if document.work.is_none() && document.extends.is_none() {
        return Err(RequestError::TrafficWithoutWork);
    }
    if traffic.compute > Traffic::COMPUTE_MAX {
        return Err(RequestError::Compute(traffic.compute));
    }
    if traffic.mbps > Amount::MAX {
        return Err(RequestError::TrafficTooLarge(traffic.mbps));
    }
    Ok(Some(traffic))
}

fn checked_scale(document: &RequestDocument) -> Result<Option<Scale>, RequestError> {
    let Some(scale) = document.scale else { return Ok(None) };
    let refused = |what| Err(RequestError::NotScaled(what));
    if document.exclusive {
        return refused("whole hosts cannot be scaled");
    }
    if document.traffic.is_some() {
        return refused("traffic cannot be scaled");
    }
    if document.per_host.values().chain(document.total.values()).all(|amount| *amount == Amount::ZERO) {
        return refused("there are no amounts to scale");
    }
    let (least, largest) = scale.range().into_inner();
    if !scale.is_range() {
        return Err(RequestError::Scale { min: least.thousandths(), max: largest.thousandths() });
    }
    if document.per_host.values().chain(document.total.values()).any(|amount| largest.amount(*amount) > Amount::MAX) {
        return refused("the largest factor makes an amount larger than any");
    }
    let length = document.duration.or(document.work).map_or(Span::default(), |length| Span(length.unsigned_abs()));
    if least.length(length) > Span::MAX {
        return refused("the least factor makes the length longer than any");
    }
    Ok(Some(scale))
}

pub(super) fn checked_demand(document: RequestDocument) -> Result<Demand, RequestError> {
    let seats = document.hosts;
    if seats == 0 || seats > MAX_HOSTS {
        return Err(RequestError::Hosts(seats));
    }
    let length = checked_length(&document)?;
    let traffic = checked_traffic(&document)?;
    for (key, amounts) in [("per_host", &document.per_host), ("total", &document.total)] {
        too_many(key, MAX_NAMES, amounts.len())?;
        if let Some((resource, amount)) = amounts.iter().find(|(_, amount)| **amount > Amount::MAX) {
            return Err(RequestError::AmountTooLarge { key, resource: resource.clone(), amount: *amount });
        }
    }
    let scale = checked_scale(&document)?;
    let names: BTreeSet<&ResourceName> = document.per_host.keys().chain(document.total.keys()).collect();
    too_many("total", MAX_NAMES, names.len())?;
    too_many("attributes", MAX_NAMES, document.attributes.len())?;
    if document.sites_max == Some(0) {
        return Err(RequestError::NoSites);
    }
    if document.slack > SLACK_MAX {
        return Err(RequestError::Slack(document.slack));
    }
    if !document.slack.is_zero() && document.extends.is_some() {
        return Err(RequestError::SlackOfExtension);
    }
    let mut candidates = document.candidates;
    if let Some(candidates) = &mut candidates {
        too_many("candidates", MAX_CANDIDATES, candidates.len())?;
        candidates.sort();
        candidates.dedup();
        if candidates.len() < seats as usize {
            return Err(RequestError::FewerCandidatesThanHosts { hosts: seats, candidates: candidates.len() });
        }
    }
    Ok(Demand {
        seats,
        seats_in_all: seats,
        length,
        per_host: document.per_host,
        total: document.total,
        attributes: document.attributes,
        candidates,
        speed_min: document.speed_min,
        is_exclusive: document.exclusive,
        sites_max: document.sites_max,
        slack: document.slack,
        traffic,
        scale,
        factor: None,
        is_of_shape: false,
        needs: Needs { of_node: document.needs, image: document.image },
    })
}

pub(super) fn too_many(key: &'static str, limit: usize, count: usize) -> Result<(), RequestError> {
    if count > limit { Err(RequestError::TooMany { key, limit, count }) } else { Ok(()) }
}
