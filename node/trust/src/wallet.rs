//! A directory with a user's key and the credentials that its owner has in grids: `user.key`, and `GRID.ROLE.json` for each.
//! A node's data directory is one (the site's own credential, its operator's), `$XDG_CONFIG_HOME/kolo` another.
//!
//! Invariant: a credential that still counts is not replaced, but by one under a later root of the grid.

use std::path::{Path, PathBuf};

use broker::{
    document::read_object,
    time::Time,
    trust::{Chain, Credential, Role},
};
use data_encoding::HEXLOWER;
use ed25519_dalek::SigningKey;
use serde::Serialize;

use super::{
    error::TrustFileError,
    files::{self, USER_KEY_FILE, load_key, load_or_create_key},
    grid_file::GridFile,
    issue::member,
    signing::Signer,
    user_key::{AgentKey, UserKey},
};

const BYTES_MAX: u64 = 64 * 1024;

/// Who a user is in a grid, as a credential of his says; whether it counts there is not checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    /// The grid.
    pub grid: String,
    /// What he may do.
    pub role: Role,
    /// What he is called.
    pub name: String,
    /// Until when it counts.
    pub expires: Time,
}

#[derive(Debug, Clone)]
/// A directory with a key and credentials, which need not be there.
pub struct Wallet {
    directory: PathBuf,
    key_file: PathBuf,
}

impl Wallet {
    /// The wallet in `directory`, which need not be there.
    pub fn at(directory: &Path) -> Wallet {
        Wallet { directory: directory.to_owned(), key_file: directory.join(USER_KEY_FILE) }
    }

    /// The wallet around the key `file`.
    pub fn of_key(file: &Path) -> Wallet {
        Wallet { directory: file.parent().unwrap_or(Path::new("")).to_owned(), key_file: file.to_owned() }
    }

    /// Where the user's key is, or would be.
    pub fn key_path(&self) -> &Path {
        &self.key_file
    }

    /// The key that signs for the user, if there is one.
    ///
    /// # Errors
    /// As for [`UserKey::load`].
    pub fn user_key(&self) -> Result<Option<UserKey>, TrustFileError> {
        UserKey::load(&self.key_file)
    }

    /// The key that signs for the user, made if need be.
    ///
    /// # Errors
    /// As for [`UserKey::load`].
    pub fn user_key_or_new(&self) -> Result<UserKey, TrustFileError> {
        match self.user_key()? {
            Some(key) => Ok(key),
            None => self.key_or_new().map(UserKey::from),
        }
    }

    /// Takes the key of an SSH agent as the user's own; the one that is there stays.
    ///
    /// # Errors
    /// [`TrustFileError::Exists`] when another one is there.
    pub fn take_agent_key(&self, key: &AgentKey) -> Result<(), TrustFileError> {
        match self.user_key()? {
            Some(UserKey::Agent(own)) if own.public() == key.public() => Ok(()),
            Some(_) => Err(TrustFileError::Exists { path: self.key_file.clone() }),
            None => files::create(&self.key_file, &format!("{}\n", key.line()?)),
        }
    }

    /// The user's key, if it is in a file.
    ///
    /// # Errors
    /// [`TrustFileError`] when the file is no key, or others can read it.
    pub fn key(&self) -> Result<Option<SigningKey>, TrustFileError> {
        load_key(&self.key_file)
    }

    /// The user's key, made if need be.
    pub fn key_or_new(&self) -> Result<SigningKey, TrustFileError> {
        load_or_create_key(&self.key_file)
    }

    /// Takes a key as the user's own; the one that is there stays.
    ///
    /// # Errors
    /// [`TrustFileError::Exists`] when another one is there.
    pub fn take_key(&self, key: &SigningKey) -> Result<(), TrustFileError> {
        match self.key()? {
            Some(own) if own == *key => Ok(()),
            Some(_) => Err(TrustFileError::Exists { path: self.key_file.clone() }),
            None => files::create(&self.key_file, &format!("{}\n", HEXLOWER.encode(key.as_bytes()))),
        }
    }

    /// The names that the user has in grids, by the credentials beside the key: grid, role and name.
    ///
    /// # Errors
    /// [`TrustFileError`] when a file holds no credential.
    pub fn names(&self) -> Result<Vec<Named>, TrustFileError> {
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(_) => return Ok(Vec::new()),
        };
        let mut names = Vec::new();
        for file in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            for role in [Role::User, Role::Admin] {
                let Some(grid) = file.strip_suffix(&format!(".{role}.json")) else { continue };
                let Some(chain) = self.credential(grid, role)? else { continue };
                let Some(last) = chain.links().last() else { continue };
                let credential = last.open::<Credential>()?;
                names.push(Named { grid: grid.to_owned(), role, name: credential.name, expires: credential.expires });
            }
        }
        names.sort_by(|one, other| (&one.grid, &one.name).cmp(&(&other.grid, &other.name)));
        Ok(names)
    }

    /// Where a credential is, or would be.
    pub fn credential_path(&self, grid: &str, role: Role) -> PathBuf {
        self.directory.join(format!("{grid}.{role}.json"))
    }

    /// The credential for a role in a grid, if there is one; unchecked.
    ///
    /// # Errors
    /// [`TrustFileError`] when the file says something else.
    pub fn credential(&self, grid: &str, role: Role) -> Result<Option<Chain>, TrustFileError> {
        let path = self.credential_path(grid, role);
        let Some(text) = files::read(&path, BYTES_MAX)? else { return Ok(None) };
        read_object(text.as_bytes())
            .map(Some)
            .map_err(|error| TrustFileError::Malformed { path, detail: format!("expected a credential: {error}") })
    }

    /// The name in the site's credential, if there is one; whether that still counts is not checked.
    ///
    /// # Errors
    /// [`TrustFileError`] when the file holds no credential.
    pub fn site_name(&self, grid: &GridFile) -> Result<Option<String>, TrustFileError> {
        let Some(chain) = self.credential(&grid.id, Role::Site)? else { return Ok(None) };
        let credential = chain.links().last().map(|link| link.open::<Credential>()).transpose()?;
        Ok(credential.map(|credential| credential.name))
    }

    /// Keeps a credential, in place of one that no longer counts at `now` or leads to an earlier root.
    ///
    /// # Errors
    /// [`TrustFileError::Exists`] when there is one that does.
    pub fn keep(&self, grid: &GridFile, role: Role, chain: &Chain, now: Time) -> Result<(), TrustFileError> {
        let is_worth_less =
            |kept: Chain| member(grid, &kept, now).is_err() || kept.successors().len() < chain.successors().len();
        if self.credential(&grid.id, role)?.is_some_and(is_worth_less) {
            return self.replace(&grid.id, role, chain);
        }
        let path = self.credential_path(&grid.id, role);
        files::create(&path, &text_of(&path, chain)?)
    }

    /// Keeps a credential, in place of the one that may be there.
    pub(super) fn replace(&self, grid: &str, role: Role, chain: &Chain) -> Result<(), TrustFileError> {
        let path = self.credential_path(grid, role);
        files::replace(&path, &text_of(&path, chain)?)
    }

    /// Who signs requests in `grid` from this wallet: the key, with the credential of a user or else of an admin. None
    /// without a key.
    pub fn signer(&self, grid: &str) -> Result<Option<Signer>, TrustFileError> {
        let Some(key) = self.user_key()? else { return Ok(None) };
        let chain = match self.credential(grid, Role::User)? {
            Some(chain) => Some(chain),
            None => self.credential(grid, Role::Admin)?,
        };
        Ok(Some(Signer { key, chain }))
    }
}

fn text_of(path: &Path, chain: &Chain) -> Result<String, TrustFileError> {
    let malformed =
        |error: serde_json::Error| TrustFileError::Malformed { path: path.to_owned(), detail: error.to_string() };
    serde_json::to_string_pretty(chain).map(|text| text + "\n").map_err(malformed)
}
