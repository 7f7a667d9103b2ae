//! Features: what the program of a site can do and what its owner lets it do for users, by short names that its advert carries.
//!
//! Some a request needs: a site that lacks one of them would refuse it, so its hosts are not even looked at. Others only say which
//! messages a site understands. Invariant: what this program says of itself ([`Features::own`]) is all that any request it can read needs
//! of a program; what an owner allows is added ([`Features::allowing`]).

use std::{borrow::Borrow, collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    demand::Demand,
    needs::{ImageName, Lack, Need},
};

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

/// Commands of users are run.
const RUN_1: &str = "run/1";
/// They have the network.
const NETWORK_1: &str = "network/1";

/// Most images of one site.
pub const IMAGES_MAX: usize = 1024;
/// Most bytes of the names of images that are told; of more, numbers are.
const IMAGE_NAMES_BYTES_MAX: usize = 4096;

/// What an owner's permission for commands is called.
fn feature_of(need: Need) -> &'static str {
    match need {
        Need::Run => RUN_1,
        Need::Network => NETWORK_1,
    }
}

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

/// The images that containers of a site are made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Images {
    /// Their names.
    Named(BTreeSet<ImageName>),
    /// Where their names are long together: numbers made of them, of which two may be the same.
    Numbered(BTreeSet<u64>),
}

impl Default for Images {
    fn default() -> Images {
        Images::Named(BTreeSet::new())
    }
}

impl Images {
    /// These, as an advert tells them.
    #[must_use]
    pub fn of(names: BTreeSet<ImageName>) -> Images {
        let bytes: usize = names.iter().map(|name| name.as_str().len()).sum();
        if bytes <= IMAGE_NAMES_BYTES_MAX {
            return Images::Named(names);
        }
        Images::Numbered(names.iter().map(number_of).collect())
    }

    /// Whether there is none: commands run without one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Images::Named(names) => names.len(),
            Images::Numbered(numbers) => numbers.len(),
        }
    }

    /// Whether this one may be among them.
    #[must_use]
    pub fn may_have(&self, image: &ImageName) -> bool {
        match self {
            Images::Named(names) => names.contains(image),
            Images::Numbered(numbers) => numbers.contains(&number_of(image)),
        }
    }

    /// Whether they are as [`Images::of`] makes them: not too many, and their names short together.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let bytes = match self {
            Images::Named(names) => names.iter().map(|name| name.as_str().len()).sum(),
            Images::Numbered(_) => 0,
        };
        self.len() <= IMAGES_MAX && bytes <= IMAGE_NAMES_BYTES_MAX
    }
}

/// The first eight bytes of SHA-256 of a name.
fn number_of(image: &ImageName) -> u64 {
    let hash = Sha256::digest(image.as_str());
    hash.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// The features of a site, in order; at most [`FEATURES_MAX`] in an advert that was checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Features {
    names: BTreeSet<Feature>,
    /// Written apart, since a reader need not know them.
    #[serde(skip)]
    images: Images,
}

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

    /// These, and what an owner allows of commands; those of containers only where there are images.
    #[must_use]
    pub fn allowing(mut self, needs: impl IntoIterator<Item = Need>, images: Images) -> Features {
        self.names.extend(needs.into_iter().filter_map(|need| Feature::try_from(feature_of(need).to_owned()).ok()));
        self.images = images;
        self
    }

    /// The images that commands run in; where there are some, none runs without one.
    #[must_use]
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The same with these images.
    pub fn set_images(&mut self, images: Images) {
        self.images = images;
    }

    /// The first of the `needed` ones that is not among these.
    #[must_use]
    pub fn lacks<'a>(&self, needed: &'a Features) -> Option<&'a Feature> {
        needed.names.iter().find(|feature| !self.names.contains(*feature))
    }

    /// Whether this is what they lack.
    #[must_use]
    pub fn deny(&self, lack: &Lack) -> bool {
        match lack {
            Lack::Need(need) => !self.contains(feature_of(*need)),
            Lack::WithoutImage => !self.images.is_empty(),
            Lack::Image(image) => !self.images.may_have(image),
        }
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether the feature of this name is among them.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<T: IntoIterator<Item = Feature>>(features: T) -> Features {
        Features { names: features.into_iter().collect(), images: Images::default() }
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
    fn a_site_is_left_out_for_the_first_thing_that_its_owner_does_not_allow() {
        let denied_by = |features: &Features, keys: &str| {
            let demand = demand(&format!(r#"{{"hosts":1,"duration":1{keys}}}"#));
            demand.needs().lacks().find(|lack| features.deny(lack))
        };
        let image = |name: &str| ImageName::try_from(name.to_owned()).unwrap();
        let images = |names: &[&str]| Images::of(names.iter().map(|name| image(name)).collect());
        let closed = Features::own();
        let plain = Features::own().allowing([Need::Run], Images::default());
        let open = Features::own().allowing([Need::Run, Need::Network], Images::default());
        let boxed = Features::own().allowing([Need::Run], images(&["a:1", "b"]));
        let of_image = |name: &str| Some(Lack::Image(image(name)));
        let [run, network] = [Need::Run, Need::Network].map(|need| Some(Lack::Need(need)));
        for (keys, expected) in [
            ("", [None, None, None, None]),
            (r#","needs":["run"]"#, [run.clone(), None, None, Some(Lack::WithoutImage)]),
            (r#","needs":["network"]"#, [network.clone(), network.clone(), None, network.clone()]),
            (r#","needs":["network","run"]"#, [run.clone(), network.clone(), None, network.clone()]),
            (r#","image":"b""#, [of_image("b"), of_image("b"), of_image("b"), None]),
            (r#","needs":["run"],"image":"b""#, [run.clone(), of_image("b"), of_image("b"), None]),
            (r#","needs":["run"],"image":"c""#, [run, of_image("c"), of_image("c"), of_image("c")]),
        ] {
            let denied = [&closed, &plain, &open, &boxed].map(|features| denied_by(features, keys));
            assert_eq!(denied, expected, "{keys}");
        }
        let demand = demand(r#"{"hosts":1,"duration":1,"needs":["run"]}"#);
        assert_eq!(closed.lacks(&Features::needed_by(&demand)), None, "a program that reads it can serve it");
    }

    #[test]
    fn many_images_are_told_by_numbers_and_those_who_make_up_more_are_noticed() {
        let names = |count: usize| -> BTreeSet<ImageName> {
            let name = |number| format!("registry.example.org/group/image-{number}:1");
            (0..count).map(|number| ImageName::try_from(name(number)).unwrap()).collect()
        };
        for (count, is_named) in [(0, true), (10, true), (IMAGES_MAX, false)] {
            let (names, images) = (names(count), Images::of(names(count)));
            assert_eq!((matches!(images, Images::Named(_)), images.len()), (is_named, count));
            assert!(images.is_bounded() && names.iter().all(|name| images.may_have(name)));
            assert!(!images.may_have(&ImageName::try_from("other".to_owned()).unwrap()));
        }
        assert!(!Images::Named(names(IMAGES_MAX)).is_bounded());
        assert!(!Images::Numbered((0..=IMAGES_MAX as u64).collect()).is_bounded());
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
