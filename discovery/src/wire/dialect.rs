//! What a node speaks: all of it that changes from version to version.

use broker::features::Features;

use super::{ask::ASK_VERSIONS, ask_version::AskVersion, envelope::Extra};

/// What a node speaks.
#[derive(Debug, Clone)]
pub struct Dialect {
    /// The versions of direct requests, the newest first.
    pub asks: &'static [&'static dyn AskVersion],
    /// What the node says of itself in its advert.
    pub features: Features,
    /// What it says in its advert besides, by keys that others need not know.
    pub extra: Extra,
}

impl Default for Dialect {
    fn default() -> Dialect {
        Dialect { asks: ASK_VERSIONS, features: Features::own(), extra: Extra::new() }
    }
}

impl Dialect {
    /// The numbers that it speaks, and not only refuses.
    #[must_use]
    pub fn spoken(&self) -> Vec<u16> {
        self.asks.iter().filter(|version| version.is_spoken()).map(|version| version.number()).collect()
    }
}
