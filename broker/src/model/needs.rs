//! What a request needs of the nodes of its sites beside hosts: that they run its commands, give them the network, have its image.
//!
//! Source: `formats.md`, version 3 (`needs`, `image`). Invariant: it says nothing of hosts, so it does not bear on a plan: sites that lack it
//! are left out before one is made.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

/// Longest name of an image, in bytes.
pub const IMAGE_BYTES_MAX: usize = 512;

/// What an owner may let users have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// Commands of users are run.
    Run,
    /// They have the network of their machine.
    Network,
}

impl Need {
    /// Its word in the formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Need::Run => "run",
            Need::Network => "network",
        }
    }
}

/// The name of an image of containers, from which nothing else can be read in a command line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct ImageName(String);

/// A text names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot name an image: expected a letter or digit, and behind it no blank and at most {IMAGE_BYTES_MAX} bytes of ASCII in all"
)]
pub struct ImageNameError(String);

impl ImageName {
    /// As podman names it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ImageName {
    type Error = ImageNameError;

    fn try_from(name: String) -> Result<ImageName, ImageNameError> {
        let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.len() <= IMAGE_BYTES_MAX
            && name.bytes().all(|byte| byte.is_ascii_graphic());
        if is_name { Ok(ImageName(name)) } else { Err(ImageNameError(name)) }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a request needs of the nodes of its sites.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Each of these.
    pub of_node: BTreeSet<Need>,
    /// The image that its commands run in; none when they run on the system of the host.
    pub image: Option<ImageName>,
}

impl Needs {
    /// All that a site could lack for them, in the order in which it is told.
    pub fn lacks(&self) -> impl Iterator<Item = Lack> {
        let of_image = match &self.image {
            Some(image) => Some(Lack::Image(image.clone())),
            None => self.of_node.contains(&Need::Run).then_some(Lack::WithoutImage),
        };
        self.of_node.iter().map(|need| Lack::Need(*need)).chain(of_image)
    }
}

/// Something that a site lacks for a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// This is not given.
    Need(Need),
    /// Commands run in containers only, and the request names no image.
    WithoutImage,
    /// It has no such image.
    Image(ImageName),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::Need(need) => f.write_str(need.name()),
            Lack::WithoutImage => f.write_str("commands without an image"),
            Lack::Image(image) => write!(f, "image {image}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    #[test]
    fn needs_are_read_checked_and_written_as_they_were() {
        let read = |text: &str| serde_json::from_str::<Request>(text).map_err(|error| error.to_string());
        let text = r#"{"hosts":1,"duration":5,"needs":["run","network"],"image":"docker.io/library/debian:stable"}"#;
        let request = read(text).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        assert_eq!(request.demand().needs().of_node, BTreeSet::from([Need::Run, Need::Network]));
        let shaped = r#"{"shapes":[{"hosts":1,"duration":5},{"hosts":2,"duration":3}],"needs":["run"]}"#;
        let request = read(shaped).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), shaped);
        assert!(request.shapes().all(|shape| shape.needs().of_node.contains(&Need::Run)));
        assert!(request.widest().needs().of_node.contains(&Need::Run));
        let twice = read(r#"{"hosts":1,"duration":5,"needs":["network","run","network"]}"#).unwrap();
        assert!(serde_json::to_string(&twice).unwrap().ends_with(r#""needs":["run","network"]}"#), "each once");
        for (wrong, expected) in [
            (r#""needs":["gpu"]"#, "unknown variant `gpu`, expected `run` or `network`"),
            (r#""needs":"run""#, "expected a sequence"),
            (r#""image":"-v""#, "cannot name an image"),
            (r#""image":"a b""#, "cannot name an image"),
        ] {
            let error = read(&format!(r#"{{"hosts":1,"duration":5,{wrong}}}"#)).unwrap_err();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }
}
