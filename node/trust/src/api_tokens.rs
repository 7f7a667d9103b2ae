//! `api.tokens` in a node's data directory: tokens with a scope, beside the operator's own in `api.token`.
//!
//! Invariant: only the [`TokenKey`] of a token is kept, in a file that nobody but its owner can read. A token that was made or revoked
//! is on disk, and in force, when the call returns.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use broker::{document::read_object, time::Time};
use clap::ValueEnum;
use kolo_runtime::lock::locked;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{error::TrustFileError, files, secret::Secret, token_key::TokenKey};

const FILE: &str = "api.tokens";
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Most tokens at a time.
const TOKENS_MAX: usize = 64;
/// Longest name of a token or its user, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// What a caller of the API may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Read /metrics
    Metrics,
    /// Look at everything and plan, change nothing
    Read,
    /// Submit as one user, and read, extend and cancel that user's requests
    Submit,
    /// Everything: the scope of the token in `api.token`, and of no other.
    #[value(skip)]
    Operator,
}

impl Scope {
    /// Whether who has this scope may do what `needed` allows.
    pub fn covers(self, needed: Scope) -> bool {
        self == needed || self == Scope::Operator || (self == Scope::Read && needed == Scope::Metrics)
    }

    /// Its name, as people type it.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Metrics => "metrics",
            Scope::Read => "read",
            Scope::Submit => "submit",
            Scope::Operator => "operator",
        }
    }
}

/// What is known of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiToken {
    pub name: String,
    pub scope: Scope,
    /// Whose requests it makes and sees, with the scope `submit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// When it was made.
    #[schema(value_type = i64)]
    pub created: Time,
}

impl ApiToken {
    /// Checks names and scope.
    fn check(&self) -> Result<(), TokenRefusal> {
        let is_name = |text: &str| {
            !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains(|c: char| c.is_control() || c == '/')
        };
        if !is_name(&self.name) {
            return Err(TokenRefusal::Name("name"));
        }
        match (self.scope, &self.user) {
            (Scope::Operator, _) => Err(TokenRefusal::Operator),
            (Scope::Submit, Some(user)) if is_name(user) => Ok(()),
            (Scope::Submit, _) => Err(TokenRefusal::Name("user")),
            (_, Some(_)) => Err(TokenRefusal::UserOfOther),
            (_, None) => Ok(()),
        }
    }
}

/// Why a token was not made.
#[derive(Debug, thiserror::Error)]
pub enum TokenRefusal {
    #[error("expected 1 to {NAME_BYTES_MAX} bytes without control characters and slashes")]
    Name(&'static str),
    #[error("only the token in api.token has the scope operator")]
    Operator,
    #[error("only the scope submit has a user")]
    UserOfOther,
    #[error("there is a token of this name; revoke it first")]
    Exists,
    #[error("there are {TOKENS_MAX} tokens; revoke one first")]
    TooMany,
    #[error(transparent)]
    File(#[from] TrustFileError),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    token: Arc<ApiToken>,
    sha256: TokenKey,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    tokens: Vec<Entry>,
}

/// The tokens of one data directory.
#[derive(Debug)]
pub struct ApiTokens {
    path: PathBuf,
    table: Mutex<Table>,
}

impl ApiTokens {
    /// Reads them; without a file there are none.
    ///
    /// # Errors
    /// [`TrustFileError`] when others can read the file, or it holds something else.
    pub fn open(data_dir: &Path) -> Result<ApiTokens, TrustFileError> {
        let path = data_dir.join(FILE);
        let table = match files::read_private(&path, FILE_BYTES_MAX)? {
            None => Table::default(),
            Some(text) => read_object(text.as_bytes()).map_err(|error| {
                let detail = format!("expected the tokens of the API: {error}");
                TrustFileError::Malformed { path: path.clone(), detail }
            })?,
        };
        Ok(ApiTokens { path, table: Mutex::new(table) })
    }

    /// The token with this secret.
    pub fn find(&self, secret: &str) -> Option<Arc<ApiToken>> {
        let shown = TokenKey::of(secret);
        let table = locked(&self.table);
        table.tokens.iter().find(|entry| entry.sha256 == shown).map(|entry| entry.token.clone())
    }

    /// The token of which this is the [`TokenKey::name`].
    pub fn named(&self, name: &str) -> Option<(Arc<ApiToken>, TokenKey)> {
        let table = locked(&self.table);
        let entry = table.tokens.iter().find(|entry| entry.sha256.name() == name)?;
        Some((entry.token.clone(), entry.sha256.clone()))
    }

    /// Whether this very token has not been revoked.
    pub fn contains(&self, token: &Arc<ApiToken>) -> bool {
        locked(&self.table).tokens.iter().any(|entry| Arc::ptr_eq(&entry.token, token))
    }

    /// All of them, in the order in which they were made.
    pub fn all(&self) -> Vec<Arc<ApiToken>> {
        locked(&self.table).tokens.iter().map(|entry| entry.token.clone()).collect()
    }

    /// Makes a token, and gives its secret, which is kept nowhere.
    ///
    /// # Errors
    /// [`TokenRefusal`]; then there is no such token.
    pub fn create(&self, token: ApiToken) -> Result<Secret, TokenRefusal> {
        token.check()?;
        let secret = Secret::random()?;
        let mut table = locked(&self.table);
        if table.tokens.iter().any(|entry| entry.token.name == token.name) {
            return Err(TokenRefusal::Exists);
        }
        if table.tokens.len() >= TOKENS_MAX {
            return Err(TokenRefusal::TooMany);
        }
        let mut tokens = table.tokens.clone();
        tokens.push(Entry { token: Arc::new(token), sha256: TokenKey::of(secret.as_str()) });
        self.replace(&mut table, tokens)?;
        Ok(secret)
    }

    /// Takes a token back; none when there is none of this name.
    ///
    /// # Errors
    /// [`TrustFileError`] when it could not be written down; then the token still counts.
    pub fn revoke(&self, name: &str) -> Result<Option<Arc<ApiToken>>, TrustFileError> {
        let mut table = locked(&self.table);
        let (gone, kept): (Vec<Entry>, Vec<Entry>) =
            table.tokens.clone().into_iter().partition(|entry| entry.token.name == name);
        let Some(gone) = gone.into_iter().next() else { return Ok(None) };
        self.replace(&mut table, kept)?;
        Ok(Some(gone.token))
    }

    fn replace(&self, table: &mut Table, tokens: Vec<Entry>) -> Result<(), TrustFileError> {
        let new = Table { tokens };
        let text = serde_json::to_string_pretty(&new)
            .map_err(|error| TrustFileError::Malformed { path: self.path.clone(), detail: error.to_string() })?;
        files::replace(&self.path, &(text + "\n"))?;
        *table = new;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn token(name: &str, scope: Scope, user: Option<&str>) -> ApiToken {
        ApiToken { name: name.to_owned(), scope, user: user.map(str::to_owned), created: Time(7) }
    }

    #[test]
    fn tokens_outlive_a_restart_as_hashes_until_they_are_revoked() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = ApiTokens::open(directory.path()).unwrap();
        let secret = tokens.create(token("page", Scope::Read, None)).unwrap();
        let other = tokens.create(token("ci", Scope::Submit, Some("ada"))).unwrap();
        let path = directory.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(secret.as_str()) && !text.contains(other.as_str()), "{text}");

        let again = ApiTokens::open(directory.path()).unwrap();
        assert_eq!(*again.find(secret.as_str()).unwrap(), token("page", Scope::Read, None));
        assert_eq!(again.all().len(), 2);
        let held = again.find(other.as_str()).unwrap();
        assert!(
            again.contains(&held)
                && again.find("").is_none()
                && again.find(&String::from(TokenKey::of(secret.as_str()))).is_none()
        );
        let (named, key) = again.named(&TokenKey::of(other.as_str()).name()).unwrap();
        assert!(Arc::ptr_eq(&named, &held) && key == TokenKey::of(other.as_str()) && again.named("").is_none());
        assert_eq!(again.revoke("ci").unwrap().unwrap().user.as_deref(), Some("ada"));
        assert!(
            !again.contains(&held) && again.find(other.as_str()).is_none() && again.revoke("ci").unwrap().is_none()
        );
        assert_eq!(ApiTokens::open(directory.path()).unwrap().all().len(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(ApiTokens::open(directory.path()), Err(TrustFileError::TooOpen { .. })));
    }

    #[test]
    fn tokens_are_bounded_and_named_once() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = ApiTokens::open(directory.path()).unwrap();
        for (name, scope, user) in [
            ("", Scope::Read, None),
            ("a/b", Scope::Read, None),
            ("a", Scope::Operator, None),
            ("a", Scope::Submit, None),
            ("a", Scope::Submit, Some("a\n")),
            ("a", Scope::Metrics, Some("ada")),
        ] {
            assert!(tokens.create(token(name, scope, user)).is_err(), "{name:?} {scope:?} {user:?}");
        }
        for number in 0..TOKENS_MAX {
            tokens.create(token(&number.to_string(), Scope::Metrics, None)).unwrap();
        }
        assert!(matches!(tokens.create(token("0", Scope::Metrics, None)), Err(TokenRefusal::Exists)));
        assert!(matches!(tokens.create(token("more", Scope::Metrics, None)), Err(TokenRefusal::TooMany)));
    }
}
