//! Secrets that callers of the local API show: its token, kept in a file that only its owner can read, and the random
//! texts of sessions and links.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use data_encoding::HEXLOWER;
use rand::{TryRng, rngs::SysRng};

/// Length of the token in hexadecimal digits.
const DIGITS: usize = 64;

/// 256 random bits in hexadecimal.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Reads the secret in a file, or makes one when there is no file.
    ///
    /// # Errors
    /// When the file cannot be read or written, is readable by others, or holds something else.
    pub fn load_or_create(path: &Path) -> io::Result<Secret> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        match fs::read_to_string(path) {
            Ok(text) => {
                let mode = fs::metadata(path)?.permissions().mode() & 0o777;
                if mode & 0o077 != 0 {
                    return refuse(format!("mode is {mode:o}, others can read it; run chmod 600 on it or delete it"));
                }
                let text = text.trim();
                if text.len() != DIGITS || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return refuse(format!("expected {DIGITS} hexadecimal digits; delete it to get a new one"));
                }
                Ok(Secret(text.to_owned()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let token = Secret::random()?;
                let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
                file.write_all(token.0.as_bytes())?;
                file.sync_all()?;
                Ok(token)
            }
            Err(error) => Err(error),
        }
    }

    /// A new one.
    ///
    /// # Errors
    /// When the system gives no random bits.
    pub fn random() -> io::Result<Secret> {
        let mut bytes = [0; DIGITS / 2];
        SysRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
        Ok(Secret(HEXLOWER.encode(&bytes)))
    }

    /// The text.
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
    use super::*;

    #[test]
    fn it_is_made_once_and_kept_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.token");
        let token = Secret::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Secret::load_or_create(&path).unwrap();
        assert!(again.is(&token.0) && !again.is("") && !again.is(&"0".repeat(DIGITS)));
        assert!(!again.is(&token.0[1..]));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Secret::load_or_create(&path).is_err());
    }
}
