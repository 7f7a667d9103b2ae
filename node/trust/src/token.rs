//! A join token: everything that somebody needs to join a closed grid, in one line of text.
//!
//! `kolo1-` and base64url of: the grid's id and root key, addresses of its nodes, one or two invitations each with its
//! secret key, and a signature over all that with the first invitation's key, so that a token which was cut or misread is
//! found out here and not later. Invariant: a token that was read has invitations that lead to the root which its grid
//! names; whether they have expired is found when they are used.

use std::fmt;

use broker::trust::{Chain, PublicKey, Signature, names_root};
use data_encoding::BASE64URL_NOPAD;
use discovery::wire;
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

const PREFIX: &str = "kolo1-";
const SIGNED_PREFIX: &[u8] = b"kolo-token/1\n";
const SIGNATURE_BYTES: usize = 64;
/// Longest token, in characters; one for a site and its owner has some 1,500.
const CHARACTERS_MAX: usize = 32 * 1024;
/// Most invitations in one token.
const INVITATIONS_MAX: usize = 4;
/// Most addresses in one token.
pub const ADDRESSES_MAX: usize = 16;

/// An invitation and the key that makes credentials with it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The invitation's own credentials.
    pub chain: Chain,
    /// The secret half of its key.
    pub secret: [u8; 32],
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation").field("chain", &self.chain).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
/// What somebody needs to join a closed grid.
pub struct Token {
    /// Id of the grid to join.
    pub grid: String,
    /// The grid's root key.
    pub root: PublicKey,
    /// Multiaddresses of nodes of the grid.
    pub bootstrap: Vec<String>,
    /// What it invites to.
    pub invitations: Vec<Invitation>,
}

/// Why a text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It does not begin like one.
    #[error("this is no join token: expected one line that begins with {PREFIX}")]
    NotAToken,
    /// It begins like one of another version.
    #[error("this join token is of another version of Kolo; this one understands {PREFIX}...")]
    Version,
    /// It is longer than any token.
    #[error("this is longer than any join token ({CHARACTERS_MAX} characters)")]
    TooLong,
    /// Something is missing or was changed.
    #[error("this join token is damaged: was it copied as a whole?")]
    Damaged,
    /// It is a token, but of a grid that its root does not belong to.
    #[error("this join token does not fit together: its grid's id does not name its root key")]
    Inconsistent,
}

impl Token {
    /// The token as one line of text.
    ///
    /// # Errors
    /// [`TokenError::TooLong`] when nobody would read it; [`TokenError::Damaged`] when it invites to nothing.
    pub fn to_text(&self) -> Result<String, TokenError> {
        let first = self.invitations.first().ok_or(TokenError::Damaged)?;
        let mut bytes = wire::encode(self).map_err(|_| TokenError::Damaged)?;
        let signature = SigningKey::from_bytes(&first.secret).sign(&[SIGNED_PREFIX, &bytes].concat());
        bytes.extend_from_slice(&signature.to_bytes());
        let text = format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes));
        if text.len() > CHARACTERS_MAX { Err(TokenError::TooLong) } else { Ok(text) }
    }

    /// Whether a text is to be a token, good or not, and no name of a file.
    #[must_use]
    pub fn is_meant_by(text: &str) -> bool {
        text.trim_start().starts_with(PREFIX)
    }

    /// Reads a token; blanks and line ends around it do not matter.
    ///
    /// # Errors
    /// [`TokenError`] says what is wrong with it.
    pub fn from_text(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        if text.len() > CHARACTERS_MAX {
            return Err(TokenError::TooLong);
        }
        let Some(encoded) = text.strip_prefix(PREFIX) else {
            let is_other_version = text
                .strip_prefix("kolo")
                .and_then(|rest| rest.split_once('-'))
                .is_some_and(|(version, _)| !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()));
            return Err(if is_other_version { TokenError::Version } else { TokenError::NotAToken });
        };
        let bytes = BASE64URL_NOPAD.decode(encoded.as_bytes()).map_err(|_| TokenError::Damaged)?;
        let split = bytes.len().checked_sub(SIGNATURE_BYTES).ok_or(TokenError::Damaged)?;
        let (body, signature) = bytes.split_at(split);
        let token: Token = wire::decode::<_, CHARACTERS_MAX>(body).map_err(|_| TokenError::Damaged)?;
        let is_whole = (1..=INVITATIONS_MAX).contains(&token.invitations.len())
            && token.bootstrap.len() <= ADDRESSES_MAX
            && token.is_signed(body, signature);
        if !is_whole {
            return Err(TokenError::Damaged);
        }
        if names_root(&token.grid, &token.root) { Ok(token) } else { Err(TokenError::Inconsistent) }
    }

    fn is_signed(&self, body: &[u8], signature: &[u8]) -> bool {
        let Some(first) = self.invitations.first() else { return false };
        let Ok(signature) = signature.try_into().map(Signature::from_bytes) else { return false };
        let key: VerifyingKey = SigningKey::from_bytes(&first.secret).verifying_key();
        let signature = ed25519_dalek::Signature::from_bytes(signature.as_bytes());
        key.verify_strict(&[SIGNED_PREFIX, body].concat(), &signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use broker::trust::Role;
    use proptest::prelude::*;

    use super::{
        super::testing::{NOW, grid, terms},
        *,
    };

    fn token() -> Token {
        let (grid, root) = grid();
        let invitations =
            [Role::Site, Role::User].map(|role| root.invite(&grid, &terms(role), NOW).unwrap().invitation);
        Token {
            grid: grid.id.clone(),
            root: grid.root.unwrap(),
            bootstrap: vec!["/ip4/192.0.2.1/tcp/4001/p2p/12D3KooW".to_owned()],
            invitations: invitations.into(),
        }
    }

    #[test]
    fn a_token_is_one_line_that_is_read_back() {
        let token = token();
        let text = token.to_text().unwrap();
        assert!(text.len() < 2000, "{} characters", text.len());
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'));
        assert_eq!(Token::from_text(&format!("  {text}\r\n")), Ok(token));
    }

    #[test]
    fn hostile_texts_are_refused_with_a_reason() {
        let text = token().to_text().unwrap();
        for (hostile, expected) in [
            (String::new(), TokenError::NotAToken),
            ("hello".to_owned(), TokenError::NotAToken),
            (PREFIX.to_owned(), TokenError::Damaged),
            (format!("{PREFIX}AAAA"), TokenError::Damaged),
            (format!("{PREFIX}{}", "A".repeat(500)), TokenError::Damaged),
            (format!("{PREFIX}{}", "_".repeat(CHARACTERS_MAX)), TokenError::TooLong),
            (format!("{text}{}", "A".repeat(4)), TokenError::Damaged),
            (text.replacen("kolo1-", "kolo2-", 1), TokenError::Version),
            (text.replacen("kolo1-", "kolo-", 1), TokenError::NotAToken),
            (format!("{PREFIX}ä"), TokenError::Damaged),
        ] {
            assert_eq!(Token::from_text(&hostile), Err(expected), "{hostile:.40}");
        }
        for length in PREFIX.len()..text.len() {
            assert_eq!(Token::from_text(&text[..length]), Err(TokenError::Damaged), "cut at {length}");
        }
        let inconsistent = Token { grid: "lab-aaaaaaaaaaaaaaaa".to_owned(), ..token() }.to_text().unwrap();
        assert_eq!(Token::from_text(&inconsistent), Err(TokenError::Inconsistent));
    }

    proptest! {
        #[test]
        fn a_flipped_character_is_found(at in 0_usize..1000, to in "[A-Za-z0-9_-]") {
            let text = token().to_text().unwrap();
            let at = PREFIX.len() + at % (text.len() - PREFIX.len());
            prop_assume!(text[at..=at] != to);
            let flipped = format!("{}{to}{}", &text[..at], &text[at + 1..]);
            prop_assert_eq!(Token::from_text(&flipped), Err(TokenError::Damaged));
        }
    }
}
