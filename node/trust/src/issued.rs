//! `grid-issued.json` in the data directory of who invites: whom, so that a member can be revoked by name.
//!
//! Invariant: at most [`ENTRIES_MAX`] entries; those that expired go first, then the oldest.

use std::path::{Path, PathBuf};

use broker::{
    document::read_object,
    time::Time,
    trust::{PublicKey, Role, Subject},
};
use serde::{Deserialize, Serialize};

use super::{error::TrustFileError, files};

const FILE: &str = "grid-issued.json";
/// Most entries kept: as many as there can be revocations.
const ENTRIES_MAX: usize = 4096;
const BYTES_MAX: u64 = 4 << 20;

/// An invitation that was made here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issued {
    /// The key in the token; revoked, it takes along whoever joined with it.
    pub subject: Subject,
    pub role: Role,
    /// The name, empty when it was left to the member.
    pub name: String,
    pub issued: Time,
    /// When it and what was made with it expire.
    pub expires: Time,
    /// The root, or the admin, that made it; unknown of those that older builds made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<PublicKey>,
}

#[derive(Debug, Default)]
/// The invitations that were made from one data directory.
pub struct IssuedList {
    path: PathBuf,
    entries: Vec<Issued>,
}

impl IssuedList {
    /// Reads the list of a data directory.
    ///
    /// # Errors
    /// [`TrustFileError`] when the file says something else.
    pub fn load(data_dir: &Path) -> Result<IssuedList, TrustFileError> {
        let path = data_dir.join(FILE);
        let Some(text) = files::read(&path, BYTES_MAX)? else { return Ok(IssuedList { path, entries: Vec::new() }) };
        match read_object(text.as_bytes()) {
            Ok(entries) => Ok(IssuedList { path, entries }),
            Err(error) => Err(TrustFileError::Malformed { path, detail: error.to_string() }),
        }
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[Issued] {
        &self.entries
    }

    /// Adds entries and writes the list.
    pub fn add(&mut self, new: impl IntoIterator<Item = Issued>, now: Time) -> Result<(), TrustFileError> {
        self.entries.retain(|issued| issued.expires > now);
        self.entries.extend(new);
        let over = self.entries.len().saturating_sub(ENTRIES_MAX);
        self.entries.drain(..over);
        let text = serde_json::to_string_pretty(&self.entries)
            .map_err(|error| TrustFileError::Malformed { path: self.path.clone(), detail: error.to_string() })?;
        files::replace(&self.path, &(text + "\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_expired_is_forgotten_and_the_rest_kept() {
        let directory = tempfile::tempdir().unwrap();
        let issued = |number: u8, expires: i64| Issued {
            subject: Subject::Key(PublicKey::from_bytes([number; 32])),
            role: Role::User,
            name: "ada".to_owned(),
            issued: Time(1),
            expires: Time(expires),
            issuer: None,
        };
        IssuedList::load(directory.path()).unwrap().add([issued(1, 10), issued(2, 20)], Time(5)).unwrap();
        let mut list = IssuedList::load(directory.path()).unwrap();
        list.add([issued(3, 30)], Time(10)).unwrap();
        let list = IssuedList::load(directory.path()).unwrap();
        assert_eq!(list.entries(), [issued(2, 20), issued(3, 30)]);
    }
}
