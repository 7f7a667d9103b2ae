//! Names of resources and amounts by name.
//!
//! Invariant: a [`ResourceName`] matches `[a-z][a-z0-9_.-]*` and has at most 64 bytes.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::model::amount::Amount;

/// The name of a quantitative resource (the source's `R_i`): `cpu`, `mhz`, `memory`, `disk`, `gpu`, or a site's own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceName(Arc<str>);

/// The text is not a resource name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no resource name: expected a lower-case letter, then at most 63 of a-z 0-9 _ . -")]
pub struct ResourceNameError(String);

impl ResourceName {
    /// Checks `text` and makes a name of it.
    ///
    /// # Errors
    /// [`ResourceNameError`] when the text does not match `[a-z][a-z0-9_.-]*` or is too long.
    pub fn new(text: &str) -> Result<Self, ResourceNameError> {
        let mut bytes = text.bytes();
        let starts_well = bytes.next().is_some_and(|first| first.is_ascii_lowercase());
        let goes_on_well = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b));
        if starts_well && goes_on_well && text.len() <= 64 {
            Ok(Self(Arc::from(text)))
        } else {
            Err(ResourceNameError(text.chars().take(80).collect()))
        }
    }

    /// Processors, in millicores.
    #[must_use]
    pub fn cpu() -> ResourceName {
        ResourceName(Arc::from("cpu"))
    }

    /// What an uplink has, in Mbit/s.
    #[must_use]
    pub fn mbps() -> ResourceName {
        ResourceName(Arc::from("mbps"))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ResourceName {
    type Error = ResourceNameError;
    fn try_from(text: String) -> Result<Self, ResourceNameError> {
        Self::new(&text)
    }
}

impl From<ResourceName> for String {
    fn from(name: ResourceName) -> String {
        name.0.as_ref().to_owned()
    }
}

impl std::str::FromStr for ResourceName {
    type Err = ResourceNameError;
    fn from_str(text: &str) -> Result<Self, ResourceNameError> {
        Self::new(text)
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Amounts by resource, in the order of the names. A resource that is not named has amount zero.
pub type Amounts = BTreeMap<ResourceName, Amount>;

/// Qualitative properties, `key=value`.
pub type Attributes = BTreeMap<String, String>;

/// The amount of `name` in `amounts`, zero when it is not named.
#[must_use]
pub fn amount_of(amounts: &Amounts, name: &ResourceName) -> Amount {
    amounts.get(name).copied().unwrap_or_default()
}
