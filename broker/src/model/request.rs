//! A collective request: N hosts, a duration, a window for the start, minima on every host and on all together.
//!
//! Source: section 3.2 and appendix A.1 of the dissertation. Invariant: a [`Request`] is checked; everything behind
//! this module may rely on the bounds below.

use serde::{Deserialize, Serialize};

use crate::model::{
    amount::Amount,
    host::Host,
    ids::{HostId, RequestId, SiteId},
    resources::{Amounts, Attributes, ResourceName, amount_of},
    time::{Span, Time},
};

/// Most hosts in one request; keeps sums of amounts inside 64 bits.
pub const MAX_HOSTS: u32 = 10_000;
/// Most resources and most attributes named in one request.
pub const MAX_NAMES: usize = 32;
/// Most candidates named in one request.
pub const MAX_CANDIDATES: usize = 100_000;

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

/// A request as it is written down (`formats.md`); unchecked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestDocument {
    /// The writer's name for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<RequestId>,
    /// N.
    pub hosts: u32,
    /// `t_res` in seconds.
    pub duration: i64,
    /// `t_earliest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest: Option<Time>,
    /// `t_latest`, the latest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Time>,
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
    /// How much work the planner may spend; the node's or the command's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// When hosts of the reservation are lost and cannot be replaced at its start, all hosts may be reserved anew at
    /// another start inside the window.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub move_on_loss: bool,
}

/// What is wrong with a request. Every text names the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// N is zero or above [`MAX_HOSTS`].
    #[error("hosts: expected 1 to {MAX_HOSTS}, got {0}")]
    Hosts(u32),
    /// The duration is zero, negative or absurd.
    #[error("duration: expected 1 to {max} seconds, got {0}", max = Span::MAX.0)]
    Duration(i64),
    /// A time is out of range.
    #[error("{key}: expected 0 to {max} (seconds), got {value}", max = Time::MAX.0)]
    TimeOutOfRange {
        /// `earliest` or `latest`.
        key: &'static str,
        /// What was given.
        value: i64,
    },
    /// The window ends before it starts.
    #[error("latest: {latest} is before earliest ({earliest})", latest = .latest.0, earliest = .earliest.0)]
    WindowEndsBeforeStart {
        /// Given or default earliest start.
        earliest: Time,
        /// Given latest start.
        latest: Time,
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
            RequestError::Duration(_) => "duration".to_owned(),
            RequestError::WindowEndsBeforeStart { .. } => "latest".to_owned(),
            RequestError::AmountTooLarge { key, resource, .. } => format!("{key}.{resource}"),
            RequestError::TimeOutOfRange { key, .. } | RequestError::TooMany { key, .. } => (*key).to_owned(),
        }
    }
}

/// A checked request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RequestDocument", into = "RequestDocument")]
pub struct Request {
    document: RequestDocument,
}

impl TryFrom<RequestDocument> for Request {
    type Error = RequestError;

    fn try_from(mut document: RequestDocument) -> Result<Request, RequestError> {
        let hosts = document.hosts;
        if hosts == 0 || hosts > MAX_HOSTS {
            return Err(RequestError::Hosts(hosts));
        }
        if document.duration < 1 || document.duration > Time::MAX.0 {
            return Err(RequestError::Duration(document.duration));
        }
        for (key, value) in [("earliest", document.earliest), ("latest", document.latest)] {
            if let Some(value) = value.filter(|time| !time.is_in_range()) {
                return Err(RequestError::TimeOutOfRange { key, value: value.0 });
            }
        }
        if let (Some(earliest), Some(latest)) = (document.earliest, document.latest)
            && latest < earliest
        {
            return Err(RequestError::WindowEndsBeforeStart { earliest, latest });
        }
        for (key, amounts) in [("per_host", &document.per_host), ("total", &document.total)] {
            too_many(key, MAX_NAMES, amounts.len())?;
            if let Some((resource, amount)) = amounts.iter().find(|(_, amount)| **amount > Amount::MAX) {
                return Err(RequestError::AmountTooLarge { key, resource: resource.clone(), amount: *amount });
            }
        }
        too_many("attributes", MAX_NAMES, document.attributes.len())?;
        if let Some(candidates) = &mut document.candidates {
            too_many("candidates", MAX_CANDIDATES, candidates.len())?;
            candidates.sort();
            candidates.dedup();
            if candidates.len() < hosts as usize {
                return Err(RequestError::FewerCandidatesThanHosts { hosts, candidates: candidates.len() });
            }
        }
        Ok(Request { document })
    }
}

fn too_many(key: &'static str, limit: usize, count: usize) -> Result<(), RequestError> {
    if count > limit { Err(RequestError::TooMany { key, limit, count }) } else { Ok(()) }
}

impl From<Request> for RequestDocument {
    fn from(request: Request) -> RequestDocument {
        request.document
    }
}

impl Request {
    /// The writer's name for the request, if it has one.
    #[must_use]
    pub fn id(&self) -> Option<&RequestId> {
        self.document.id.as_ref()
    }

    /// N, at least 1.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.document.hosts as usize
    }

    /// `t_res`, at least one second.
    #[must_use]
    pub fn duration(&self) -> Span {
        Span(self.document.duration.unsigned_abs())
    }

    /// Earliest and latest start: as asked, else from `arrival` on, for `default_reach` (the source's `t_C`). A start
    /// before `arrival` is impossible, so the earliest start is never before it.
    ///
    /// # Errors
    /// [`RequestError::WindowEndsBeforeStart`] when the latest start has already passed.
    pub fn starts(&self, arrival: Time, default_reach: Span) -> Result<(Time, Time), RequestError> {
        let earliest = self.document.earliest.unwrap_or(arrival).max(arrival);
        let latest = self.document.latest.unwrap_or_else(|| (earliest + default_reach).min(Time::MAX));
        if latest < earliest {
            return Err(RequestError::WindowEndsBeforeStart { earliest, latest });
        }
        Ok((earliest, latest))
    }

    /// Earliest and latest start as written, where they are.
    #[must_use]
    pub fn asked_starts(&self) -> (Option<Time>, Option<Time>) {
        (self.document.earliest, self.document.latest)
    }

    /// `d_i` as asked.
    #[must_use]
    pub fn per_host(&self) -> &Amounts {
        &self.document.per_host
    }

    /// `e_i` as asked.
    #[must_use]
    pub fn total(&self) -> &Amounts {
        &self.document.total
    }

    /// Qualitative requirements.
    #[must_use]
    pub fn attributes(&self) -> &Attributes {
        &self.document.attributes
    }

    /// The hosts to choose from, sorted and distinct, when the request names them.
    #[must_use]
    pub fn candidates(&self) -> Option<&[HostId]> {
        self.document.candidates.as_deref()
    }

    /// The asked effort, if any.
    #[must_use]
    pub fn effort(&self) -> Option<Effort> {
        self.document.effort
    }

    /// Whether the reservation may move to another start when hosts of it are lost.
    #[must_use]
    pub fn moves_on_loss(&self) -> bool {
        self.document.move_on_loss
    }

    /// Every resource named in `per_host` or `total`, in order.
    #[must_use]
    pub fn resources(&self) -> Vec<ResourceName> {
        let mut names: Vec<_> = self.document.per_host.keys().chain(self.document.total.keys()).cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    /// `d_i` as asked; for a resource that only has a total, the source's "small positive amount": one base unit, when the
    /// total has a unit for every host, else nothing.
    #[must_use]
    pub fn minimum_on_each(&self, name: &ResourceName) -> Amount {
        match self.per_host().get(name) {
            Some(asked) => *asked,
            None => Amount(u64::from(amount_of(self.total(), name).0 >= self.hosts() as u64)),
        }
    }

    /// What all hosts together must give of `name`: `max(e_i, N d_i)`.
    #[must_use]
    pub fn needed_in_sum(&self, name: &ResourceName) -> Amount {
        let from_hosts = amount_of(self.per_host(), name).0.saturating_mul(u64::from(self.document.hosts));
        amount_of(self.total(), name).max(Amount(from_hosts))
    }

    /// What every host of this request must be and have, whatever its schedule (phase I).
    #[must_use]
    pub fn host_needs(&self) -> HostNeeds<'_> {
        let minima = self.resources().into_iter().map(|name| (self.minimum_on_each(&name), name));
        let minima = minima.filter(|(least, _)| *least > Amount::ZERO).collect();
        let names_sites = self.candidates().is_some_and(|named| named.iter().any(|name| name.as_str().contains('/')));
        HostNeeds { request: self, minima, names_sites }
    }

    /// The same request under another name.
    #[must_use]
    pub fn with_id(mut self, id: RequestId) -> Request {
        self.document.id = Some(id);
        self
    }
}

/// Something that a host lacks to serve a request, whatever its schedule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unmet {
    /// It is not one of the named candidates.
    Candidates,
    /// An attribute does not have this value.
    Attribute(String, String),
    /// The capacity is below this minimum.
    Minimum(ResourceName, Amount),
}

/// The one definition of "could serve": the hosts of phase I, for the planner, for discovery and for the simulators.
#[derive(Debug, Clone)]
pub struct HostNeeds<'r> {
    request: &'r Request,
    /// `d_i` above zero, in the order of the resources.
    minima: Vec<(Amount, ResourceName)>,
    /// Whether some candidate is named as `site/host`.
    names_sites: bool,
}

impl<'r> HostNeeds<'r> {
    /// The candidates of the request that mean this host: its id (of any site), or `site/host`.
    pub fn names_of(&self, site: &SiteId, host: &HostId) -> impl Iterator<Item = &'r HostId> + use<'r> {
        let named = self.request.candidates().unwrap_or_default();
        let qualified = self.names_sites.then(|| format!("{site}/{host}"));
        [Some(host.as_str()), qualified.as_deref()]
            .map(|name| {
                let name = name?;
                named.binary_search_by(|candidate| candidate.as_str().cmp(name)).ok().map(|at| &named[at])
            })
            .into_iter()
            .flatten()
    }

    /// The first need that this host does not meet: candidates, then attributes, then minima.
    #[must_use]
    pub fn first_unmet(&self, site: &SiteId, host: &Host) -> Option<Unmet> {
        if self.request.candidates().is_some() && self.names_of(site, &host.id).next().is_none() {
            return Some(Unmet::Candidates);
        }
        let lacks = |(key, value): &(&String, &String)| host.attributes.get(*key) != Some(*value);
        if let Some((key, value)) = self.request.attributes().iter().find(lacks) {
            return Some(Unmet::Attribute(key.clone(), value.clone()));
        }
        let short = self.minima.iter().find(|(least, name)| amount_of(&host.capacity, name) < *least);
        short.map(|(least, name)| Unmet::Minimum(name.clone(), *least))
    }

    /// Whether this host could serve the request if it were empty.
    #[must_use]
    pub fn are_met_by(&self, site: &SiteId, host: &Host) -> bool {
        self.first_unmet(site, host).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Request, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn bad_requests_name_their_key() {
        for (text, expected) in [
            (r#"{"hosts":0,"duration":1}"#, "hosts:"),
            (r#"{"hosts":1,"duration":0}"#, "duration:"),
            (r#"{"hosts":1,"duration":-3}"#, "duration:"),
            (r#"{"hosts":1,"duration":1,"earliest":9,"latest":8}"#, "latest:"),
            (r#"{"hosts":1,"duration":1,"earliest":-9}"#, "earliest:"),
            (r#"{"hosts":1,"duration":1,"total":{"cpu":281474976710656}}"#, "total.cpu"),
            (r#"{"hosts":1,"duration":1,"totals":{}}"#, "totals"),
            (r#"{"hosts":3,"duration":1,"candidates":["a","b","a"]}"#, "distinct candidates"),
            (r#"{"hosts":1,"duration":1,"per_host":{"CPU":1}}"#, "no resource name"),
            (r#"{"hosts":1}"#, "duration"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_key_is_what_the_text_begins_with() {
        for text in [
            r#"{"hosts":0,"duration":1}"#,
            r#"{"hosts":1,"duration":0}"#,
            r#"{"hosts":1,"duration":1,"earliest":9,"latest":8}"#,
            r#"{"hosts":1,"duration":1,"latest":-9}"#,
            r#"{"hosts":1,"duration":1,"total":{"cpu":281474976710656}}"#,
            r#"{"hosts":3,"duration":1,"candidates":["a","b","a"]}"#,
        ] {
            let error = Request::try_from(serde_json::from_str::<RequestDocument>(text).unwrap()).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{}: ", error.key())), "{error}");
        }
    }

    #[test]
    fn the_window_defaults_to_arrival_and_reach_and_never_starts_in_the_past() {
        let request = read(r#"{"hosts":1,"duration":10}"#).unwrap();
        assert_eq!(request.starts(Time(100), Span(50)), Ok((Time(100), Time(150))));
        let request = read(r#"{"hosts":1,"duration":10,"earliest":20,"latest":120}"#).unwrap();
        assert_eq!(request.starts(Time(100), Span(50)), Ok((Time(100), Time(120))));
        assert!(request.starts(Time(121), Span(50)).is_err());
    }
}
