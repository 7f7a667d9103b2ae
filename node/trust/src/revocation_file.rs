//! `grid-revocations.jsonl` in a node's data directory: the revocations that it knows, one a line, and before them the statements by which
//! roots of the grid follow each other; behind them a statement that was refused because the old root had another successor already.
//!
//! Invariant: a revocation is in the file before the node says that it knows it. Lines are checked again when they
//! are read, so a file that somebody edited revokes nobody whom the root or an admin has not revoked.

use std::path::{Path, PathBuf};

use broker::{
    document::read_object,
    trust::{Roots, SignedRevocation, SignedText, Successor, TrustError},
};

use super::{error::TrustFileError, files, grid_file::GridFile};

const FILE: &str = "grid-revocations.jsonl";
/// 4,096 revocations with the longest chains of credentials.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Clone)]
/// The file of one data directory, which need not be there.
pub struct RevocationFile(PathBuf);

impl RevocationFile {
    /// The file of a data directory, which need not be there.
    pub fn at(data_dir: &Path) -> RevocationFile {
        RevocationFile(data_dir.join(FILE))
    }

    /// Reads all of them.
    ///
    /// # Errors
    /// [`TrustFileError`] names the line that is none.
    pub fn load(&self) -> Result<Vec<SignedRevocation>, TrustFileError> {
        let text = files::read(&self.0, BYTES_MAX)?.unwrap_or_default();
        let read = |(line, text): (usize, &str)| {
            read_object(text.as_bytes()).map_err(|error| TrustFileError::Malformed {
                path: self.0.clone(),
                detail: format!("line {line}: expected a revocation: {error}"),
            })
        };
        (1..).zip(text.lines()).map(read).collect()
    }

    /// Writes all of them.
    pub fn save<'a>(&self, all: impl Iterator<Item = &'a SignedRevocation>) -> Result<(), TrustFileError> {
        let mut text = String::new();
        for revocation in all {
            let line = serde_json::to_string(revocation)
                .map_err(|error| TrustFileError::Malformed { path: self.0.clone(), detail: error.to_string() })?;
            text.push_str(&line);
            text.push('\n');
        }
        files::replace(&self.0, &text)
    }
}

/// The roots of a closed grid that the node of a data directory has written down.
///
/// # Errors
/// [`TrustFileError`] when the file says something else, or the grid is open.
pub fn known_roots(data_dir: &Path, grid: &GridFile) -> Result<Roots, TrustFileError> {
    let mut roots = Roots::of(grid.root.ok_or(TrustError::OpenGrid)?);
    for line in RevocationFile::at(data_dir).load()? {
        if line.statement.claims_to_be::<Successor>() {
            // A statement that must not be believed names no root.
            let _ = roots.learn(&grid.id, &line.statement);
        }
    }
    Ok(roots)
}

/// A statement about a successor as it is told and kept: in the form of a revocation.
pub fn told_as_revocation(statement: SignedText) -> SignedRevocation {
    SignedRevocation { statement, issuer: None }
}

#[cfg(test)]
mod tests {
    use broker::trust::{PublicKey, Subject};

    use super::{
        super::testing::{NOW, grid, key},
        *,
    };

    #[test]
    fn what_is_saved_is_loaded_and_a_wrong_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = RevocationFile::at(directory.path());
        assert!(file.load().unwrap().is_empty());
        let (grid, root) = grid();
        let subject = Subject::Key(PublicKey::of(&key(9)));
        let revocation = root.revoke(&grid, subject, NOW, NOW + broker::time::Span(60)).unwrap();
        file.save([&revocation, &revocation].into_iter()).unwrap();
        assert_eq!(file.load().unwrap(), [revocation.clone(), revocation]);
        files::replace(&file.0, "{}\n").unwrap();
        assert!(file.load().unwrap_err().to_string().contains("grid-revocations.jsonl: line 1: "));
    }
}
