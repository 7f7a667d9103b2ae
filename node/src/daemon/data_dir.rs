//! The node's data directory: identity, grid, token, ledger and the address of the API.
//!
//! Invariant: the directory is private to its owner; secrets in it are 0600 files.

use std::{
    fs, io,
    io::Write,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use data_encoding::BASE32_NOPAD;
use discovery::{GridId, Identity};
use rand::{TryRng, rngs::SysRng};

use super::DaemonError;
use crate::{
    api::token::Token,
    config::{API_ADDRESS_FILE, API_TOKEN_FILE, GRID_FILE},
};

/// See the module's documentation.
pub struct DataDir(PathBuf);

fn at(path: &Path) -> impl FnOnce(io::Error) -> DaemonError {
    let path = path.display().to_string();
    move |error| DaemonError::Path { path, detail: error.to_string() }
}

impl DataDir {
    /// Opens the directory, made with mode 0700 when it is not there.
    pub fn open(path: &Path) -> Result<DataDir, DaemonError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path))?;
        Ok(DataDir(path.to_owned()))
    }

    /// Where the ledger is.
    pub fn ledger_path(&self) -> PathBuf {
        self.0.join("ledger.redb")
    }

    /// The node's key, made at the first start.
    pub fn identity(&self) -> Result<Identity, DaemonError> {
        let path = self.0.join("identity.key");
        Identity::load_or_create(&path)
            .map_err(|error| DaemonError::Path { path: path.display().to_string(), detail: error.to_string() })
    }

    /// The token of the local API, made at the first start.
    pub fn token(&self) -> Result<Token, DaemonError> {
        let path = self.0.join(API_TOKEN_FILE);
        Token::load_or_create(&path).map_err(at(&path))
    }

    /// The grid: the configured one, else the one of the last start, else a new one. It is kept for the next start.
    pub fn grid(&self, configured: Option<&str>) -> Result<GridId, DaemonError> {
        let path = self.0.join(GRID_FILE);
        let id = match configured {
            Some(id) => id.to_owned(),
            None => new_grid_id()?,
        };
        let grid = GridId::new(&id).map_err(|error| DaemonError::Value { key: "grid", detail: error.to_string() })?;
        let kept = fs::read_to_string(&path).unwrap_or_default();
        if kept.trim() != id {
            self.replace(&path, &format!("{id}\n"))?;
        }
        Ok(grid)
    }

    /// Tells local programs where the API is.
    pub fn write_api_address(&self, address: SocketAddr) -> Result<(), DaemonError> {
        self.replace(&self.0.join(API_ADDRESS_FILE), &format!("{address}\n"))
    }

    /// Writes to a temporary name and renames, so that no reader sees half of it.
    fn replace(&self, path: &Path, text: &str) -> Result<(), DaemonError> {
        let temporary = path.with_extension("new");
        let write = || {
            let mut file = fs::File::create(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        write().map_err(at(path))
    }
}

fn new_grid_id() -> Result<String, DaemonError> {
    let mut bytes = [0; 5];
    SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| DaemonError::Stopped(format!("the system gives no random numbers: {error}")))?;
    Ok(format!("grid-{}", BASE32_NOPAD.encode(&bytes).to_ascii_lowercase()))
}
