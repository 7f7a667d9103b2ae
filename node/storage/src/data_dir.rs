//! The node's data directory: identity, grid, token, ledger and the address of the API.
//!
//! Invariant: not everybody can put something into the directory; secrets in it are 0600 files.

use std::{
    fs, io,
    io::Write,
    net::SocketAddr,
    os::unix::{
        fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
};

use broker::wall_clock::LastReading;
use data_encoding::BASE32_NOPAD;
use discovery::Identity;
use kolo_runtime::{clock::CLOCK_FILE, own_socket};
use kolo_trust::{ApiTokens, GridFile, Secret, TrustFileError, random_bytes};
use nix::sys::statvfs::statvfs;
use tracing::warn;

use super::{error::is_full, files::sync_directory, room, start::was_begun};

/// The name of the ledger's directory.
pub const LEDGER_DIR: &str = "ledger";
/// Directory of the runs of users.
pub const RUNS_DIR: &str = "runs";
/// Directory of the files of users, kept for the time of their reservations.
pub const FILES_DIR: &str = "files";
/// The file of the node's key.
pub const IDENTITY_FILE: &str = "identity.key";
/// The file that holds the real address of the local API, as `address:port`.
pub const API_ADDRESS_FILE: &str = "api.address";
/// The socket of the local API for the node's own user and root; there while the node runs.
pub const API_SOCKET: &str = "api.sock";
/// The file that holds the token of the local API (mode 0600).
pub const API_TOKEN_FILE: &str = "api.token";
/// The file whose room small files of the node get on a full disk.
pub(super) const SPARE_FILE: &str = "spare";
/// Bytes of that file: less than users leave free on any disk of more than 5 MiB, so that they get nothing of it.
const SPARE_BYTES: u64 = 256 << 10;
/// The file that is there while the site is emptied.
const DRAINING_FILE: &str = "draining";
/// The file that is there while all commands of users are stopped; it holds the owner's reason.
const STOPPED_FILE: &str = "stopped";

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The directory, or a file in it.
    #[error("{path}: {detail}")]
    Path {
        path: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The node's key is gone, and what was promised with it is not.
    #[error(
        "{path} is missing, but a ledger is beside it: a new key would make another site, which keeps none of what this one has \
         promised and reserved; put the key back from its backup, or begin anew with another --data-dir"
    )]
    KeyLost { path: String },
    #[error(transparent)]
    Identity(#[from] discovery::identity::IdentityError),
    /// The file that names the grid.
    #[error(transparent)]
    Trust(#[from] TrustFileError),
}

/// A data directory that is there.
pub struct DataDir(PathBuf);

fn at(path: &Path) -> impl FnOnce(io::Error) -> DataDirError {
    let path = path.display().to_string();
    move |error| DataDirError::Path { path, detail: error.to_string() }
}

impl DataDir {
    /// Opens the directory, made with mode 0700 when it is not there. One that everybody may write into is refused: anybody could put a
    /// key, ledger or token in.
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path))?;
        let mode = fs::metadata(path).map_err(at(path))?.permissions().mode() & 0o777;
        if mode & 0o002 != 0 {
            let path = path.display().to_string();
            let detail =
                format!("everybody may write into it (mode {mode:03o}); chmod 700 {path}, or name another --data-dir");
            return Err(DataDirError::Path { path, detail });
        }
        if mode & 0o077 != 0 {
            let mode = format!("{mode:03o}");
            warn!(mode, path = %path.display(), "others may look or write into the data directory; chmod 700 it");
        }
        Ok(DataDir(path.to_owned()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where the ledger is.
    pub fn ledger_path(&self) -> PathBuf {
        self.0.join(LEDGER_DIR)
    }

    /// The node's key, made at the first start. It is never made beside a ledger: what that promises, only the site promises
    /// that has its key.
    pub fn identity(&self) -> Result<Identity, DataDirError> {
        let path = self.0.join(IDENTITY_FILE);
        if was_begun(&self.ledger_path()) && matches!(path.try_exists(), Ok(false)) {
            return Err(DataDirError::KeyLost { path: path.display().to_string() });
        }
        Ok(Identity::load_or_create(&path)?)
    }

    /// The token of the local API, made at the first start.
    pub fn token(&self) -> Result<Secret, DataDirError> {
        Ok(Secret::load_or_create(&self.0.join(API_TOKEN_FILE))?)
    }

    /// The tokens of the API that have a scope.
    pub fn tokens(&self) -> Result<ApiTokens, DataDirError> {
        Ok(ApiTokens::open(&self.0)?)
    }

    /// The grid: the configured or kept one, else a new open one. It is kept for the next start.
    pub fn grid(&self, configured: Option<GridFile>) -> Result<GridFile, DataDirError> {
        let grid = match configured {
            Some(grid) => grid,
            None => {
                let unique = BASE32_NOPAD.encode(&random_bytes::<5>()?).to_ascii_lowercase();
                GridFile::new(format!("grid-{unique}"), None, Vec::new())
            }
        };
        if !GridFile::path(&self.0).exists() {
            grid.create(&self.0)?;
        }
        Ok(grid)
    }

    /// Sees to it that small files of the node have room on a disk that others fill; false when they have none.
    pub fn keep_spare(&self) -> bool {
        let path = self.0.join(SPARE_FILE);
        if !path.exists() && self.free_bytes() < SPARE_BYTES {
            return false;
        }
        let spare = || {
            let file = fs::File::options().write(true).create(true).truncate(false).mode(0o600).open(path)?;
            room::lay_out_file(&file, SPARE_BYTES)
        };
        let is_there = spare().is_ok_and(|bytes| bytes >= SPARE_BYTES);
        if !is_there {
            // A part of it would be nobody's.
            self.give_spare_up();
        }
        is_there
    }

    /// Gives the room for small files up where the disk has less than that for others: a start writes some.
    pub fn make_room_to_start(&self) {
        if self.free_bytes() < SPARE_BYTES && self.give_spare_up() {
            warn!(path = %self.0.display(), "the disk is full: the room for small files is given up for the start");
        }
    }

    fn free_bytes(&self) -> u64 {
        statvfs(&self.0).map_or(0, |disk| disk.blocks_available().saturating_mul(disk.fragment_size()))
    }

    /// Gives the room for small files up; false when there was none.
    fn give_spare_up(&self) -> bool {
        fs::remove_file(self.0.join(SPARE_FILE)).is_ok()
    }

    /// Whether the site was being emptied when the node last ran.
    pub fn is_draining(&self) -> bool {
        self.0.join(DRAINING_FILE).exists()
    }

    /// Remembers whether the site is being emptied.
    pub fn set_draining(&self, is_draining: bool) -> Result<(), DataDirError> {
        self.mark(DRAINING_FILE, is_draining.then_some("the site promises nothing more; kolo drain --end ends it"))
    }

    /// The owner's reason for which all commands of users were stopped when the node last ran; none when they were not.
    pub fn stopped(&self) -> Option<String> {
        match fs::read_to_string(self.0.join(STOPPED_FILE)) {
            Ok(why) => Some(why.trim_end().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(format!("the reason cannot be read: {error}")),
        }
    }

    /// Remembers that all commands of users are stopped for a reason, or may start.
    pub fn set_stopped(&self, why: Option<&str>) -> Result<(), DataDirError> {
        self.mark(STOPPED_FILE, why)
    }

    /// Makes a file with this line, or removes it where there is none; on disk when this returns.
    fn mark(&self, name: &str, line: Option<&str>) -> Result<(), DataDirError> {
        let path = self.0.join(name);
        if let Some(line) = line {
            return self.replace(&path, &format!("{line}\n"));
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| sync_directory(&self.0)).map_err(at(&path)),
        }
    }

    /// Last reading of the clocks that an earlier process believed; none where that cannot be read, as at a first start.
    pub fn last_reading(&self) -> Option<LastReading> {
        serde_json::from_slice(&fs::read(self.0.join(CLOCK_FILE)).ok()?).ok()
    }

    /// Remembers what the clocks show.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_reading(&self, last: &LastReading) -> Result<(), DataDirError> {
        let path = self.0.join(CLOCK_FILE);
        let text = serde_json::to_string(last).map_err(io::Error::from).map_err(at(&path))?;
        self.replace(&path, &format!("{text}\n"))
    }

    /// Listens for callers of the node's own user; none where the system has no sockets in this directory, which is told.
    pub fn listen(&self) -> Option<UnixListener> {
        let path = self.0.join(API_SOCKET);
        let listening = own_socket::listen(&path);
        if let Err(error) = &listening {
            warn!(%error, path = %path.display(), "no socket for local callers: they use the API's port, and prove the token");
        }
        listening.ok()
    }

    /// A guard that removes socket and address file when it is dropped: local programs find the API by them.
    pub fn announcement(&self) -> Announcement {
        Announcement(self.0.clone())
    }

    /// Tells local programs where the API is. On a full disk they have to be told by people.
    pub fn write_api_address(&self, address: SocketAddr) -> Result<(), DataDirError> {
        let path = self.0.join(API_ADDRESS_FILE);
        match self.write_anew(&path, &format!("{address}\n")) {
            Err(error) if is_full(&error) => {
                warn!(%address, "the disk is full: local programs find the API only by its socket, or with --api");
                Ok(())
            }
            written => written.map_err(at(&path)),
        }
    }

    /// Leaves nothing that tells local programs of an address: that of an earlier run may be another program's now.
    pub fn forget_api_address(&self) -> Result<(), DataDirError> {
        let path = self.0.join(API_ADDRESS_FILE);
        own_socket::remove(&path).map_err(at(&path))
    }

    fn replace(&self, path: &Path, text: &str) -> Result<(), DataDirError> {
        self.write_anew(path, text).map_err(at(path))
    }

    /// Writes to a temporary name and renames, so that no reader sees half of it.
    fn write_anew(&self, path: &Path, text: &str) -> io::Result<()> {
        let temporary = path.with_extension("new");
        let write = || {
            let mut file = fs::File::create(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            sync_directory(&self.0)
        };
        match write() {
            Err(error) if is_full(&error) && self.give_spare_up() => write(),
            written => written,
        }
    }
}

/// Removes what tells where the API is when it is dropped.
pub struct Announcement(PathBuf);

impl Drop for Announcement {
    fn drop(&mut self) {
        for name in [API_SOCKET, API_ADDRESS_FILE] {
            if let Err(error) = own_socket::remove(&self.0.join(name)) {
                warn!(%error, name, "this stays in the data directory, and nobody listens there");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, StoreSettings};

    #[test]
    fn a_directory_that_everybody_may_write_into_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let open_with = |mode| {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            DataDir::open(directory.path()).map(|_| ()).map_err(|error| error.to_string())
        };
        for mode in [0o702, 0o777] {
            let error = open_with(mode).unwrap_err();
            assert!(error.contains("chmod 700") && error.contains(&format!("{mode:o}")), "{error}");
        }
        assert_eq!((open_with(0o775), open_with(0o700)), (Ok(()), Ok(())));
    }

    #[test]
    fn nothing_tells_where_the_api_is_when_it_is_not_served() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = DataDir::open(directory.path()).unwrap();
        let announcement = data_dir.announcement();
        let _listener = data_dir.listen().unwrap();
        data_dir.write_api_address("127.0.0.1:7740".parse().unwrap()).unwrap();
        let names = || fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names(), 2);
        data_dir.forget_api_address().unwrap();
        data_dir.forget_api_address().unwrap();
        assert_eq!(names(), 1, "the socket stays");
        drop(announcement);
        assert_eq!(names(), 0);
    }

    #[test]
    fn what_the_owner_has_stopped_stays_so_with_its_reason() {
        let directory = tempfile::tempdir().unwrap();
        let open = || DataDir::open(directory.path()).unwrap();
        assert_eq!((open().stopped(), open().is_draining()), (None, false));
        open().set_stopped(Some("fire in the rack")).unwrap();
        open().set_draining(true).unwrap();
        assert_eq!((open().stopped().as_deref(), open().is_draining()), (Some("fire in the rack"), true));
        fs::write(directory.path().join(STOPPED_FILE), [0xff]).unwrap();
        assert!(open().stopped().is_some(), "a file that cannot be read stops as well");
        for _ in 0..2 {
            open().set_stopped(None).unwrap();
        }
        assert_eq!((open().stopped(), open().is_draining()), (None, true));
    }

    #[test]
    fn the_room_for_small_files_is_there_until_it_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = DataDir::open(directory.path()).unwrap();
        assert!(!data_dir.give_spare_up() && data_dir.keep_spare() && data_dir.keep_spare());
        let spare = fs::metadata(directory.path().join(SPARE_FILE)).unwrap();
        assert!(std::os::unix::fs::MetadataExt::blocks(&spare) * 512 >= SPARE_BYTES);
        assert!(data_dir.give_spare_up() && !directory.path().join(SPARE_FILE).exists());
    }

    #[test]
    fn no_key_is_made_beside_a_ledger() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = DataDir::open(directory.path()).unwrap();
        let site = data_dir.identity().unwrap().site_id().clone();
        drop(Store::open(&data_dir.ledger_path(), 1, StoreSettings::default()).unwrap());
        assert_eq!(*data_dir.identity().unwrap().site_id(), site);
        fs::rename(directory.path().join(IDENTITY_FILE), directory.path().join("backup")).unwrap();
        let error = data_dir.identity().unwrap_err().to_string();
        assert!(error.contains("identity.key") && error.contains("backup") && error.contains("--data-dir"), "{error}");
        assert!(!directory.path().join(IDENTITY_FILE).exists());
    }
}
