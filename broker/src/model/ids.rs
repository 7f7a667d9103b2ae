//! Names of things. Each is its own type, so that a site can never be passed for a host.
//!
//! Invariant: an id is never empty, at most [`MAX_ID_BYTES`] long, and free of control characters.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// Longest id in bytes; a peer id has 52.
pub const MAX_ID_BYTES: usize = 128;

/// Why a text cannot be an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty.
    #[error("an id must not be empty")]
    Empty,
    /// The text is longer than [`MAX_ID_BYTES`].
    #[error("an id has at most {MAX_ID_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// The text holds a control character, which would corrupt terminals and logs.
    #[error("an id must not hold control characters")]
    ControlCharacter,
}

/// The end of a site's id behind two dots, which people are shown beside its name: ids of sites all begin alike.
#[must_use]
pub fn tail_of(site: &str) -> String {
    const SHOWN_CHARS: usize = 8;
    match site.char_indices().rev().nth(SHOWN_CHARS - 1) {
        Some((start, _)) if start > 0 => format!("..{}", &site[start..]),
        _ => site.to_owned(),
    }
}

fn checked(text: &str) -> Result<Arc<str>, IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_ID_BYTES {
        return Err(IdError::TooLong(text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err(IdError::ControlCharacter);
    }
    Ok(Arc::from(text))
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` and makes an id of it.
            ///
            /// # Errors
            /// [`IdError`] when the text is empty, too long or holds control characters.
            pub fn new(text: &str) -> Result<Self, IdError> {
                checked(text).map(Self)
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

text_id! {
    /// A site: in a live grid the peer id of its node, in a snapshot any label.
    SiteId
}
text_id! {
    /// A host, unique inside its site. In a grid the pair of site and host names a machine.
    HostId
}
text_id! {
    /// The network that a node's connection comes from: an IP prefix that one owner usually has.
    Network
}
text_id! {
    /// A collective request. In a live grid the entry point makes it, so that it is unique in the grid.
    RequestId
}

/// The name under which a site's uplink travels among its hosts: no host may have it.
const UPLINK: &str = "uplink";

impl HostId {
    /// What stands for a site's uplink in its books, and where its schedules travel.
    #[must_use]
    pub fn uplink() -> HostId {
        HostId(Arc::from(UPLINK))
    }

    /// Whether it stands for a site's uplink.
    #[must_use]
    pub fn is_uplink(&self) -> bool {
        &*self.0 == UPLINK
    }
}

impl RequestId {
    /// Whether somebody who writes `head` means this id: it begins so, and `head` has at least four characters. With fewer a slip of the
    /// finger would often mean somebody else's.
    #[must_use]
    pub fn begins_with(&self, head: &str) -> bool {
        head.chars().count() >= 4 && self.0.starts_with(head)
    }
}

/// Which of the N seats of a request, from 0 on. A seat that replaces a lost one has its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SeatNumber(pub u32);

impl fmt::Display for SeatNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which of the shapes of a request, from 0 on; 0 where a request has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShapeNumber(pub u32);

impl ShapeNumber {
    /// Whether it is the first one, which is left out where it is written down.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for ShapeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_meant_by_four_characters_and_not_by_fewer() {
        let id = RequestId::new("abcde").unwrap();
        let meant = ["", "abc", "abcd", "abcde", "abcdef", "bcde"].map(|head| id.begins_with(head));
        assert_eq!(meant, [false, false, true, true, false, false]);
    }

    #[test]
    fn long_ids_of_sites_are_known_by_their_ends() {
        assert_eq!(tail_of("12D3KooWaB3dE9xY"), "..aB3dE9xY");
        assert_eq!(tail_of("12345678"), "12345678");
        assert_eq!(tail_of("čšžčšžčšž"), "..šžčšžčšž");
        assert_eq!(tail_of(""), "");
    }

    #[test]
    fn an_id_is_checked_when_read_as_well() {
        assert_eq!(SiteId::new(""), Err(IdError::Empty));
        assert_eq!(HostId::new("a\u{1b}[31m"), Err(IdError::ControlCharacter));
        assert_eq!(HostId::new(&"x".repeat(129)), Err(IdError::TooLong(129)));
        assert!(serde_json::from_str::<HostId>("\"\"").is_err());
        assert_eq!(serde_json::from_str::<HostId>("\"h1\"").unwrap().as_str(), "h1");
    }
}
