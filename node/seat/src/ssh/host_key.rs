//! How a client comes to know the server of a seat.
//!
//! The server has a new key each time, and says it in a line before its first word of SSH, which clients pass over (RFC 4253, 4.2); the user's
//! `kolo ssh-proxy` reads it there. Invariant: what is no such line names no key.

use kolo_trust::ssh_key::{KeyError, line, read};
use russh::keys::PublicKey;

/// What stands before the key.
const ANNOUNCES: &str = "kolo-host-key ";

/// What the server says before anything else.
///
/// # Errors
/// [`KeyError::Write`].
pub fn announcement(key: &PublicKey) -> Result<String, KeyError> {
    Ok(format!("{ANNOUNCES}{}\r\n", line(key)?))
}

/// The server's key in the first line that came from it, as a line without a comment; none in any other line.
#[must_use]
pub fn announced(line_read: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(line_read).ok()?.strip_prefix(ANNOUNCES)?.trim_end();
    line(&read(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use kolo_trust::ssh_key::private;

    use super::*;

    #[test]
    fn only_an_announcement_names_a_key() {
        let key = private(&[7; 32]);
        let said = announcement(key.public_key()).unwrap();
        assert_eq!(announced(said.as_bytes()), line(key.public_key()).ok());
        for other in ["SSH-2.0-kolo\r\n", "kolo-host-key x\r\n", "", "kolo-host-key ssh-ed25519 AAAA\r\n"] {
            assert_eq!(announced(other.as_bytes()), None, "{other}");
        }
    }
}
