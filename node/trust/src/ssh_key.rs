//! Keys of SSH, as OpenSSH writes them.
//!
//! Invariant: only Ed25519, and no secret leaves a private file.

use russh::keys::{
    Algorithm, PrivateKey, PublicKey,
    ssh_key::{
        self, LineEnding,
        private::Ed25519Keypair,
        public::{Ed25519PublicKey, KeyData},
    },
};

/// Longest line of a public key, in bytes.
pub const LINE_BYTES_MAX: usize = 1024;
/// What a file with a private key begins with.
pub const FILE_BEGINS: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";

/// Why a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is no line with a public key.
    #[error("{0:?} is no public key of SSH; expected a line such as `ssh-ed25519 AAAA...`")]
    Malformed(String),
    /// It is no private key.
    #[error("it is no private key of SSH: {0}")]
    MalformedFile(String),
    /// It is of another kind.
    #[error("a key of kind {0}: only ssh-ed25519 is taken (ssh-keygen -t ed25519 makes one)")]
    Kind(String),
    /// Nobody is asked for a passphrase.
    #[error("it has a passphrase: give a copy without one (ssh-keygen -p), or a key of its own")]
    Passphrase,
    /// It cannot be written.
    #[error("the key cannot be written: {0}")]
    Write(String),
}

/// Reads the line of a public key.
///
/// # Errors
/// [`KeyError`].
pub fn read(line: &str) -> Result<PublicKey, KeyError> {
    let malformed = || KeyError::Malformed(line.chars().take(80).collect());
    if line.len() > LINE_BYTES_MAX || line.contains('\n') {
        return Err(malformed());
    }
    let key = PublicKey::from_openssh(line).map_err(|_| malformed())?;
    if key.algorithm() == Algorithm::Ed25519 { Ok(key) } else { Err(KeyError::Kind(key.algorithm().to_string())) }
}

/// The key that a seed stands for.
pub fn private(seed: &[u8; 32]) -> PrivateKey {
    PrivateKey::from(Ed25519Keypair::from_seed(seed))
}

/// The public key with these bytes.
pub fn public(bytes: &[u8; 32]) -> PublicKey {
    PublicKey::from(KeyData::Ed25519(Ed25519PublicKey(*bytes)))
}

/// The seed of a private key's file.
///
/// # Errors
/// [`KeyError`].
pub fn seed_of_file(text: &str) -> Result<[u8; 32], KeyError> {
    let key = PrivateKey::from_openssh(text).map_err(|error| KeyError::MalformedFile(error.to_string()))?;
    if key.is_encrypted() {
        return Err(KeyError::Passphrase);
    }
    let pair = key.key_data().ed25519().ok_or_else(|| KeyError::Kind(key.algorithm().to_string()))?;
    Ok(pair.private.to_bytes())
}

/// A private key as `ssh` reads it from a file.
///
/// # Errors
/// [`KeyError::Write`].
pub fn to_file(key: &PrivateKey) -> Result<String, KeyError> {
    key.to_openssh(LineEnding::LF).map(|text| text.to_string()).map_err(|error| KeyError::Write(error.to_string()))
}

/// A public key as one line, without a comment.
///
/// # Errors
/// [`KeyError::Write`].
pub fn line(key: &PublicKey) -> Result<String, KeyError> {
    let bare = PublicKey::new(key.key_data().clone(), "");
    bare.to_openssh()
        .map(|line| line.trim().to_owned())
        .map_err(|error: ssh_key::Error| KeyError::Write(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first example of RFC 8032.
    const SEED: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    const LINE: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea";

    #[test]
    fn a_key_comes_back_from_its_line_and_its_file() {
        let seed: [u8; 32] = data_encoding::HEXLOWER.decode(SEED.as_bytes()).unwrap().try_into().unwrap();
        let key = private(&seed);
        assert_eq!(line(key.public_key()).unwrap(), LINE);
        assert_eq!(read(&format!("{LINE} ada@desk")).unwrap().key_data(), key.public_key().key_data());
        let file = to_file(&key).unwrap();
        assert!(file.starts_with(FILE_BEGINS));
        assert_eq!(seed_of_file(&file).unwrap(), seed);
        assert!(matches!(seed_of_file(&file[..100]), Err(KeyError::MalformedFile(_))));
    }

    #[test]
    fn only_whole_keys_of_ed25519_are_taken() {
        let ecdsa = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBHwf2HMM5TRXvo2SQJjsNkiDD5KqiiNjrGVv3UUh+mMT5RHxiRtOnlqvjhQtBq0VpmpCV/PwUdhOig4vkbqAcEc=";
        assert!(matches!(read(ecdsa), Err(KeyError::Kind(_))), "{:?}", read(ecdsa));
        for wrong in [String::new(), "ada".to_owned(), format!("{LINE}\n{LINE}"), "x".repeat(LINE_BYTES_MAX + 1)] {
            assert!(matches!(read(&wrong), Err(KeyError::Malformed(_))), "{wrong}");
        }
    }
}
