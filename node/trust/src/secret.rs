//! Secrets that callers of the local API show: its token, kept in a file that only its owner can read, and the random
//! texts of sessions and links.

use std::{fmt, path::Path};

use data_encoding::HEXLOWER;

use super::{
    error::TrustFileError,
    files::{self, SECRET_BYTES, random_bytes},
};

/// 256 random bits in hexadecimal.
#[derive(Clone)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads the secret in a file, or makes one when there is no file.
    ///
    /// # Errors
    /// [`TrustFileError`] when the file cannot be read or written, is readable by others, or holds something else.
    pub fn load_or_create(path: &Path) -> Result<Secret, TrustFileError> {
        let secret = files::load_or_create_secret(path).map_err(|error| match error {
            TrustFileError::Malformed { path, detail } => {
                TrustFileError::Malformed { path, detail: format!("{detail}; delete it to get a new one") }
            }
            other => other,
        })?;
        Ok(Secret(HEXLOWER.encode(&secret)))
    }

    /// Writes it in place of the one in a file.
    ///
    /// # Errors
    /// [`TrustFileError`] when the file cannot be written.
    pub fn replace(&self, path: &Path) -> Result<(), TrustFileError> {
        files::replace(path, &format!("{}\n", self.0))
    }

    /// A new one.
    ///
    /// # Errors
    /// [`TrustFileError::Random`].
    pub fn random() -> Result<Secret, TrustFileError> {
        Ok(Secret(HEXLOWER.encode(&random_bytes::<SECRET_BYTES>()?)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `shown` is this secret; takes the same time wherever they differ.
    pub fn is(&self, shown: &str) -> bool {
        let differs = self.0.bytes().zip(shown.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
        self.0.len() == shown.len() && differs == 0
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn it_is_made_once_and_kept_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.token");
        let token = Secret::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Secret::load_or_create(&path).unwrap();
        assert!(again.is(&token.0) && !again.is("") && !again.is(&"0".repeat(2 * SECRET_BYTES)));
        assert!(!again.is(&token.0[1..]));
        let other = Secret::random().unwrap();
        other.replace(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Secret::load_or_create(&path).unwrap().is(&other.0) && format!("{other:?}") == "Secret");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Secret::load_or_create(&path).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "no token").unwrap();
        let error = Secret::load_or_create(&path).err().unwrap().to_string();
        assert!(error.ends_with("; delete it to get a new one"), "{error}");
    }
}
