//! A node's Ed25519 key: its name in the grid, and what it signs with.
//!
//! The same key gives the libp2p peer id, and the peer id is the site's name. Invariant: the key leaves the process only
//! into a file that nobody but its owner can read; a file that other users could have read is refused, not repaired.

use std::{
    fmt, fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use broker::{ids::SiteId, trust::PublicKey};
use data_encoding::HEXLOWER;
use ed25519_dalek::{Signer as _, SigningKey};
use libp2p::{
    PeerId,
    identity::{self, Keypair},
};

/// A node's key and the site name that follows from it.
#[derive(Clone)]
pub struct Identity {
    signing: Arc<SigningKey>,
    peer: PeerId,
    site: SiteId,
}

/// Why an identity could not be had.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file could not be read or written.
    #[error("{path}: cannot {action} the identity key: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What went wrong.
        source: io::Error,
    },
    /// Others can read the file.
    #[error(
        "{path}: mode {mode:03o} lets others read the identity key; expected 600 (chmod 600 it, or make a new one)"
    )]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file does not hold a key.
    #[error("{path}: expected an identity key: one line of 64 hexadecimal digits")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// The operating system gave no random numbers, or the key makes no peer id.
    #[error("no identity key could be made: {0}")]
    Generate(String),
}

/// The key file: 64 hexadecimal digits and a line end.
const KEY_FILE_BYTES_MAX: u64 = 66;

impl Identity {
    /// Makes a new identity that is kept nowhere.
    ///
    /// # Errors
    /// [`IdentityError::Generate`] when the operating system has no random numbers to give.
    pub fn generate() -> Result<Identity, IdentityError> {
        let mut secret = [0_u8; 32];
        rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut secret)
            .map_err(|error| IdentityError::Generate(error.to_string()))?;
        Identity::from_secret(&secret)
    }

    /// Reads the identity from `path`, or makes one and writes it there with mode 600.
    ///
    /// The file appears complete or not at all: it is written beside its place and linked into it, which also refuses to
    /// replace a file that another process made at the same moment.
    ///
    /// # Errors
    /// [`IdentityError`] when the file is readable by others, is no key, or cannot be read or written.
    pub fn load_or_create(path: &Path) -> Result<Identity, IdentityError> {
        match Identity::load(path) {
            Err(IdentityError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            loaded => return loaded,
        }
        let identity = Identity::generate()?;
        match identity.write_new(path) {
            Ok(()) => Ok(identity),
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => Identity::load(path),
            Err(source) => Err(IdentityError::Io { path: path.to_owned(), action: "write", source }),
        }
    }

    /// The site's name: the peer id as text.
    #[must_use]
    pub fn site_id(&self) -> &SiteId {
        &self.site
    }

    /// The peer id.
    #[must_use]
    pub fn peer_id(&self) -> PeerId {
        self.peer
    }

    /// The public key.
    #[must_use]
    pub fn public_key(&self) -> [u8; 32] {
        self.signing.verifying_key().to_bytes()
    }

    /// The key itself, for a part of this program that signs.
    #[must_use]
    pub fn signing_key(&self) -> Arc<SigningKey> {
        self.signing.clone()
    }

    /// Signs `message`.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.signing.sign(message).to_bytes()
    }

    /// The key as libp2p wants it.
    ///
    /// # Errors
    /// [`IdentityError::Generate`] when libp2p refuses it.
    pub fn keypair(&self) -> Result<Keypair, IdentityError> {
        Keypair::ed25519_from_bytes(self.signing.to_bytes()).map_err(|error| IdentityError::Generate(error.to_string()))
    }

    pub(crate) fn from_secret(secret: &[u8; 32]) -> Result<Identity, IdentityError> {
        let signing = SigningKey::from_bytes(secret);
        let generate = |why: &dyn fmt::Display| IdentityError::Generate(why.to_string());
        let peer =
            peer_of_key(&signing.verifying_key().to_bytes()).ok_or_else(|| generate(&"the public key is not valid"))?;
        let site = SiteId::new(&peer.to_base58()).map_err(|error| generate(&error))?;
        Ok(Identity { signing: Arc::new(signing), peer, site })
    }

    /// Reads the identity from `path`.
    ///
    /// # Errors
    /// [`IdentityError`] when the file is not there, is readable by others, is no key, or cannot be read.
    pub fn load(path: &Path) -> Result<Identity, IdentityError> {
        let io = |source| IdentityError::Io { path: path.to_owned(), action: "read", source };
        let file = fs::File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(IdentityError::TooOpen { path: path.to_owned(), mode });
        }
        let mut text = Vec::new();
        file.take(KEY_FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(io)?;
        let malformed = || IdentityError::Malformed { path: path.to_owned() };
        if text.len() as u64 > KEY_FILE_BYTES_MAX {
            return Err(malformed());
        }
        let bytes = HEXLOWER.decode(text.trim_ascii_end()).map_err(|_| malformed())?;
        let secret: [u8; 32] = bytes.try_into().map_err(|_| malformed())?;
        Identity::from_secret(&secret)
    }

    fn write_new(&self, path: &Path) -> io::Result<()> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        // The process id keeps two nodes that start on one directory from writing into the same file.
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}.new", std::process::id()));
        let temporary = PathBuf::from(temporary);
        let written = self.write_to(&temporary).and_then(|()| fs::hard_link(&temporary, path));
        // The temporary name is of no use any more, whether or not the link was made; what counts is the outcome above.
        let removed = fs::remove_file(&temporary);
        written?;
        removed?;
        fs::File::open(directory)?.sync_all()
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(format!("{}\n", HEXLOWER.encode(self.signing.as_bytes())).as_bytes())?;
        file.sync_all()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("site", &self.site).finish_non_exhaustive()
    }
}

/// The peer id that belongs to an Ed25519 public key, `None` when the bytes are no key.
#[must_use]
pub fn peer_of_key(key: &[u8; 32]) -> Option<PeerId> {
    let key = identity::ed25519::PublicKey::try_from_bytes(key).ok()?;
    Some(identity::PublicKey::from(key).to_peer_id())
}

/// The site's peer id, `None` when the site's name is not one (a label in a snapshot, say).
#[must_use]
pub fn peer_of_site(site: &SiteId) -> Option<PeerId> {
    site.as_str().parse().ok()
}

/// The key with which the node of this site signs; `None` when the site's name is no peer id that names a key.
#[must_use]
pub fn key_of_site(site: &SiteId) -> Option<PublicKey> {
    // Code 0 is the key itself, and not its hash.
    let peer = peer_of_site(site)?;
    let multihash = Some(peer.as_ref()).filter(|multihash| multihash.code() == 0)?;
    let key = identity::PublicKey::try_decode_protobuf(multihash.digest()).ok()?;
    Some(PublicKey::from_bytes(key.try_into_ed25519().ok()?.to_bytes()))
}

/// The site whose node has this peer id. Every peer id of the grid is short enough for a site id.
#[must_use]
pub fn site_of_peer(peer: &PeerId) -> Option<SiteId> {
    SiteId::new(&peer.to_base58()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_then_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/identity.key");
        let made = Identity::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let found = Identity::load_or_create(&path).unwrap();
        assert_eq!(made.site_id(), found.site_id());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(peer_of_site(made.site_id()), Some(made.peer_id()));
        assert_eq!(key_of_site(made.site_id()).map(|key| *key.as_bytes()), Some(made.public_key()));
        assert_eq!(key_of_site(&SiteId::new("alpha").unwrap()), None);
        assert_eq!(made.keypair().unwrap().public().to_peer_id(), made.peer_id());
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity.key");
        Identity::load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Identity::load_or_create(&path).unwrap_err();
        assert!(matches!(error, IdentityError::TooOpen { mode: 0o640, .. }), "{error}");
        assert!(error.to_string().contains("identity.key: mode 640"), "{error}");
    }

    #[test]
    fn garbage_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity.key");
        for garbage in ["", "xyz\n", &"0".repeat(62), &"0".repeat(1000)] {
            fs::write(&path, garbage).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(matches!(Identity::load_or_create(&path), Err(IdentityError::Malformed { .. })), "{garbage:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), garbage);
        }
    }
}
