//! Features: what the program of a site can do, by short names that its advert carries.
//!
//! Some a request needs: a site that lacks one of them would refuse it, so its hosts are not even looked at. Others only say which
//! messages a site understands. Invariant: what this program says of itself ([`Features::own`]) is all that any request it can read needs.

use std::{borrow::Borrow, collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::demand::Demand;

/// Longest name of a feature, in bytes.
pub const FEATURE_BYTES_MAX: usize = 32;
/// Most features of one site.
pub const FEATURES_MAX: usize = 64;

/// Requests as they were from the beginning.
const REQUESTS_1: &str = "requests/1";
/// Requests with shapes.
const SHAPES_1: &str = "shapes/1";
/// Requests with traffic, which their sites put on the books of their uplinks.
const LINKS_1: &str = "links/1";

/// Requests with slack: their sites may let them wait for own jobs, and tell so.
const SLACK_1: &str = "slack/1";
/// Moldable requests.
const SCALE_1: &str = "scale/1";

/// What this program can do.
const OWN: &[&str] = &[REQUESTS_1, SHAPES_1, LINKS_1, SCALE_1, SLACK_1];

/// Whether a request uses something that a feature stands for.
type IsUsed = fn(&Demand) -> bool;

/// Which demand needs which feature. A key that a later version adds gets a line here, with a feature of its own.
const NEEDS: &[(&str, IsUsed)] = &[
    (REQUESTS_1, |_| true),
    (SHAPES_1, Demand::is_of_shape),
    (LINKS_1, |demand| demand.traffic().is_some()),
    (SCALE_1, |demand| demand.scale().is_some()),
    (SLACK_1, |demand| !demand.slack().is_zero()),
];

/// A feature.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Feature(String);

/// A text is no name of a feature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: expected 1 to {FEATURE_BYTES_MAX} of a-z 0-9 - /")]
pub struct FeatureError(String);

impl Feature {
    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Feature {
    type Error = FeatureError;

    fn try_from(name: String) -> Result<Feature, FeatureError> {
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'/';
        let is_name = !name.is_empty() && name.len() <= FEATURE_BYTES_MAX && name.bytes().all(is_plain);
        if is_name { Ok(Feature(name)) } else { Err(FeatureError(name)) }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for Feature {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The features of a site, in order; at most [`FEATURES_MAX`] in an advert that was checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features(BTreeSet<Feature>);

impl Features {
    /// Those of this program.
    #[must_use]
    pub fn own() -> Features {
        OWN.iter().filter_map(|name| Feature::try_from((*name).to_owned()).ok()).collect()
    }

    /// Those that a site needs to understand a request with this demand.
    #[must_use]
    pub fn needed_by(demand: &Demand) -> Features {
        needed_by(demand, NEEDS)
    }

    /// The first of the `needed` ones that is not among these.
    #[must_use]
    pub fn lacks<'a>(&self, needed: &'a Features) -> Option<&'a Feature> {
        needed.0.iter().find(|feature| !self.0.contains(*feature))
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the feature of this name is among them.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<T: IntoIterator<Item = Feature>>(features: T) -> Features {
        Features(features.into_iter().collect())
    }
}

fn needed_by(demand: &Demand, table: &[(&str, IsUsed)]) -> Features {
    let needed = table.iter().filter(|(_, is_used)| is_used(demand));
    needed.filter_map(|(name, _)| Feature::try_from((*name).to_owned()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{request::Request, time::Span};

    fn demand(text: &str) -> Demand {
        serde_json::from_str::<Request>(text).unwrap().demand().clone()
    }

    fn features(names: &[&str]) -> Features {
        names.iter().map(|name| Feature::try_from((*name).to_owned()).unwrap()).collect()
    }

    #[test]
    fn names_are_short_and_plain() {
        for bad in ["", "Requests/2", "a b", "ä", &"x".repeat(FEATURE_BYTES_MAX + 1)] {
            assert!(Feature::try_from(bad.to_owned()).is_err(), "{bad}");
        }
        let from_json = serde_json::from_str::<Features>(r#"["z","requests/2","z"]"#).unwrap();
        assert_eq!(from_json, features(&["requests/2", "z"]));
        assert!(serde_json::from_str::<Features>(r#"["A"]"#).is_err());
    }

    #[test]
    fn every_name_of_the_tables_is_one_and_this_program_understands_every_request_that_it_reads() {
        assert_eq!(Features::own().len(), OWN.len());
        for (name, _) in NEEDS {
            assert!(Features::own().contains(name), "{name}");
        }
    }

    #[test]
    fn a_request_needs_what_its_keys_need() {
        let table: &[(&str, IsUsed)] = &[("requests/1", |_| true), ("names/1", |demand| demand.candidates().is_some())];
        let (plain, named) =
            (demand(r#"{"hosts":1,"duration":1}"#), demand(r#"{"hosts":1,"duration":1,"candidates":["x"]}"#));
        assert_eq!(needed_by(&plain, table), features(&["requests/1"]));
        let needed = needed_by(&named, table);
        assert_eq!(needed, features(&["names/1", "requests/1"]));
        assert_eq!(Features::own().lacks(&needed).map(Feature::as_str), Some("names/1"));
        assert_eq!(features(&["names/1", "requests/1", "more"]).lacks(&needed), None);
        assert_eq!(Features::own().lacks(&Features::needed_by(&named)), None);
        let shaped = demand(r#"{"shapes":[{"hosts":1,"duration":1}]}"#);
        assert_eq!(Features::needed_by(&shaped), features(&["requests/1", "shapes/1"]));
        let talking = demand(r#"{"hosts":2,"work":1,"traffic":{"mbps":1}}"#);
        assert_eq!(Features::needed_by(&talking), features(&["links/1", "requests/1"]));
        let scaled = demand(r#"{"hosts":1,"duration":9,"per_host":{"cpu":1},"scale":[1,2]}"#);
        assert_eq!(Features::needed_by(&scaled), features(&["requests/1", "scale/1"]));
        let patient = demand(r#"{"hosts":1,"duration":9,"slack":60}"#);
        assert_eq!(Features::needed_by(&patient), features(&["requests/1", "slack/1"]));
        let rest = shaped.rest(1, &std::iter::empty(), (&BTreeSet::new(), Span(1))).unwrap();
        assert_eq!(Features::needed_by(&rest), features(&["requests/1", "shapes/1"]), "so does what is left of it");
    }
}
