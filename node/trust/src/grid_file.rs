//! `grid.json` in a data directory: which grid its node belongs to.
//!
//! Invariant: a file that was read names the root that its id names, or none when the grid is open.

use std::path::{Path, PathBuf};

use broker::{
    document::read_object,
    trust::{PublicKey, Trust, names_root},
};
use discovery::GridId;
use serde::{Deserialize, Serialize};

use super::{error::TrustFileError, files};

/// The name of the file.
const FILE: &str = "grid.json";
const FORMAT: &str = "kolo-grid-file/1";
const BYTES_MAX: u64 = 64 * 1024;

/// A grid as a node remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridFile {
    format: String,
    /// Id of the grid.
    pub id: String,
    /// The root key of a closed grid; none of an open one.
    pub root: Option<PublicKey>,
    /// Where a node that joined with a token first finds the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bootstrap: Vec<String>,
}

impl GridFile {
    /// A grid as the file will have it.
    pub fn new(id: String, root: Option<PublicKey>, bootstrap: Vec<String>) -> GridFile {
        GridFile { format: FORMAT.to_owned(), id, root, bootstrap }
    }

    /// Where the file is in a data directory.
    pub fn path(data_dir: &Path) -> PathBuf {
        data_dir.join(FILE)
    }

    /// Reads the file of a data directory; none when its node belongs to no grid yet.
    ///
    /// # Errors
    /// [`TrustFileError`] when it cannot be read, or says something else.
    pub fn load(data_dir: &Path) -> Result<Option<GridFile>, TrustFileError> {
        let path = GridFile::path(data_dir);
        let Some(text) = files::read(&path, BYTES_MAX)? else { return Ok(None) };
        let malformed = |detail: String| TrustFileError::Malformed { path: path.clone(), detail };
        let grid: GridFile = read_object(text.as_bytes()).map_err(|error| malformed(error.to_string()))?;
        if grid.format != FORMAT {
            return Err(malformed(format!("format: expected {FORMAT:?}, got {:?}", grid.format)));
        }
        GridId::new(&grid.id).map_err(|error| malformed(format!("id: {error}")))?;
        if grid.root.is_some_and(|root| !names_root(&grid.id, &root)) {
            return Err(malformed("root: it is not the root that the id names".to_owned()));
        }
        Ok(Some(grid))
    }

    /// Writes the file of a data directory that has none.
    ///
    /// # Errors
    /// [`TrustFileError::Exists`] when it has one.
    pub fn create(&self, data_dir: &Path) -> Result<(), TrustFileError> {
        files::create(&GridFile::path(data_dir), &self.text())
    }

    fn text(&self) -> String {
        // Text, keys and lists always have a form in JSON.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// What the grid's credentials are checked against.
    pub fn trust(&self) -> Trust {
        let grid = self.id.clone();
        match self.root {
            Some(root) => Trust::Closed { grid, root },
            None => Trust::Open { grid },
        }
    }

    /// `open` or `closed`.
    pub fn form(&self) -> &'static str {
        if self.root.is_some() { "closed" } else { "open" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(GridFile::load(directory.path()).unwrap(), None);
        let root = PublicKey::from_bytes([7; 32]);
        let id = broker::trust::closed_grid_id("lab", &root).unwrap();
        let grid = GridFile::new(id, Some(root), vec!["/ip4/127.0.0.1/tcp/1".to_owned()]);
        grid.create(directory.path()).unwrap();
        assert_eq!(GridFile::load(directory.path()).unwrap(), Some(grid.clone()));
        assert!(matches!(grid.create(directory.path()), Err(TrustFileError::Exists { .. })));
    }

    #[test]
    fn a_root_that_the_id_does_not_name_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let id = broker::trust::closed_grid_id("lab", &PublicKey::from_bytes([7; 32])).unwrap();
        GridFile::new(id, Some(PublicKey::from_bytes([8; 32])), Vec::new()).create(directory.path()).unwrap();
        let error = GridFile::load(directory.path()).unwrap_err().to_string();
        assert!(error.contains("grid.json: root: "), "{error}");
    }
}
