//! Private files and keys.
//!
//! Invariant: what is written here has mode 600 from its first byte on, is on disk before its name appears, and takes the
//! place of another file only where the function says so.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use data_encoding::HEXLOWER;
use ed25519_dalek::SigningKey;
use rand::{TryRng as _, rngs::SysRng};

use super::{error::TrustFileError, ssh_key};

/// The file in the founder's data directory with the root key of the grid.
pub const ROOT_KEY_FILE: &str = "grid-root.key";
/// The file with a user's key.
pub const USER_KEY_FILE: &str = "user.key";

/// Bytes of a key or a token.
pub const SECRET_BYTES: usize = 32;
/// What a file of a key begins with that an SSH agent holds: its public line.
pub(super) const AGENT_KEY_BEGINS: &str = "ssh-ed25519 ";
/// A secret in hexadecimal digits and a line end, or as OpenSSH writes a key.
const SECRET_FILE_BYTES_MAX: u64 = 4096;

fn failed(path: &Path, action: &'static str) -> impl Fn(io::Error) -> TrustFileError {
    let path = path.to_owned();
    move |source| TrustFileError::Io { path: path.clone(), action, source }
}

/// Makes a directory that only its owner can look into, unless it is there.
pub fn open_directory(path: &Path) -> Result<(), TrustFileError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed(path, "make the directory"))
}

/// Reads a text of at most `bytes_max` bytes; none when there is no such file.
pub fn read(path: &Path, bytes_max: u64) -> Result<Option<String>, TrustFileError> {
    let failed = failed(path, "read it");
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(&failed)?;
    if text.len() as u64 > bytes_max {
        return Err(failed(io::Error::other(format!("larger than {bytes_max} bytes"))));
    }
    Ok(Some(text))
}

/// Writes a new file; refuses to replace one.
pub fn create(path: &Path, text: &str) -> Result<(), TrustFileError> {
    let temporary = write_beside(path, text)?;
    let linked = fs::hard_link(&temporary, path);
    // What counts is whether the link stands; the temporary name is of no use any more.
    let _ = fs::remove_file(&temporary);
    match linked {
        Ok(()) => sync_directory(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(TrustFileError::Exists { path: path.to_owned() })
        }
        Err(error) => Err(failed(path, "write it")(error)),
    }
}

/// Writes a file, in place of the one that may be there.
pub fn replace(path: &Path, text: &str) -> Result<(), TrustFileError> {
    let temporary = write_beside(path, text)?;
    fs::rename(&temporary, path).map_err(failed(path, "write it"))?;
    sync_directory(path)
}

/// Gives a file another name, in place of the one that may have it.
pub fn rename(from: &Path, to: &Path) -> Result<(), TrustFileError> {
    fs::rename(from, to).map_err(failed(from, "rename it"))?;
    sync_directory(to)
}

fn write_beside(path: &Path, text: &str) -> Result<PathBuf, TrustFileError> {
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        open_directory(directory)?;
    }
    // The process id keeps two processes from writing into the same file.
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.new", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(failed(path, "write it"))?;
    Ok(temporary)
}

fn sync_directory(path: &Path) -> Result<(), TrustFileError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed(path, "write its directory"))
}

/// Random bytes of the operating system.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], TrustFileError> {
    let mut bytes = [0; N];
    SysRng.try_fill_bytes(&mut bytes).map_err(|error| TrustFileError::Random(error.to_string()))?;
    Ok(bytes)
}

/// Reads a text that nobody but its owner may read; none when there is no such file.
pub fn read_private(path: &Path, bytes_max: u64) -> Result<Option<String>, TrustFileError> {
    let Some(text) = read(path, bytes_max)? else { return Ok(None) };
    check_private(path)?;
    Ok(Some(text))
}

/// Refuses a file that others than its owner may read or change.
pub fn check_private(path: &Path) -> Result<(), TrustFileError> {
    let mode = fs::metadata(path).map_err(failed(path, "read it"))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(TrustFileError::TooOpen { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Reads a private text as [`read_private`] does, or writes what `make` gives when there is none.
pub fn read_private_or_make<E: From<TrustFileError>>(
    path: &Path,
    bytes_max: u64,
    make: impl FnOnce() -> Result<String, E>,
) -> Result<String, E> {
    if let Some(text) = read_private(path, bytes_max)? {
        return Ok(text);
    }
    let text = make()?;
    match create(path, &text) {
        // Another process was faster.
        Err(TrustFileError::Exists { path }) => {
            Ok(read_private(&path, bytes_max)?.ok_or(TrustFileError::Exists { path })?)
        }
        created => Ok(created.map(|()| text)?),
    }
}

/// The text of a file with a key; none when there is no such file.
pub(super) fn read_key_text(path: &Path) -> Result<Option<String>, TrustFileError> {
    read_private(path, SECRET_FILE_BYTES_MAX)
}

/// The secret that the text of such a file is.
pub(super) fn secret_of(path: &Path, text: &str) -> Result<[u8; SECRET_BYTES], TrustFileError> {
    if text.starts_with(AGENT_KEY_BEGINS) {
        let detail = "an SSH agent has this key, which signs requests and calls of a user only".to_owned();
        return Err(TrustFileError::Malformed { path: path.to_owned(), detail });
    }
    if text.starts_with(ssh_key::FILE_BEGINS) {
        let wrong =
            |error: ssh_key::KeyError| TrustFileError::Malformed { path: path.to_owned(), detail: error.to_string() };
        return ssh_key::seed_of_file(text).map_err(wrong);
    }
    let bytes = HEXLOWER.decode(text.trim_ascii_end().as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    let detail = "expected one line of 64 hexadecimal digits, or a private key of OpenSSH".to_owned();
    bytes.ok_or(TrustFileError::Malformed { path: path.to_owned(), detail })
}

/// Reads a secret, or makes one when there is none.
pub(super) fn load_or_create_secret(path: &Path) -> Result<[u8; SECRET_BYTES], TrustFileError> {
    let make = || Ok(format!("{}\n", HEXLOWER.encode(&random_bytes::<SECRET_BYTES>()?)));
    secret_of(path, &read_private_or_make::<TrustFileError>(path, SECRET_FILE_BYTES_MAX, make)?)
}

/// Reads a key; none when there is no such file.
pub fn load_key(path: &Path) -> Result<Option<SigningKey>, TrustFileError> {
    let Some(text) = read_key_text(path)? else { return Ok(None) };
    Ok(Some(SigningKey::from_bytes(&secret_of(path, &text)?)))
}

/// Reads a key, or makes one when there is none.
pub fn load_or_create_key(path: &Path) -> Result<SigningKey, TrustFileError> {
    Ok(SigningKey::from_bytes(&load_or_create_secret(path)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_private_and_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/user.key");
        assert!(load_key(&path).unwrap().is_none());
        let key = load_or_create_key(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(load_or_create_key(&path).unwrap(), key);
        assert!(matches!(create(&path, "x"), Err(TrustFileError::Exists { .. })));
        assert_eq!(load_key(&path).unwrap(), Some(key));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(load_key(&path), Err(TrustFileError::TooOpen { mode: 0o640, .. })));
    }

    #[test]
    fn a_key_of_ssh_is_a_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("id_ed25519");
        let text = ssh_key::to_file(&ssh_key::private(&[7; 32])).unwrap();
        replace(&path, &text).unwrap();
        assert_eq!(load_key(&path).unwrap(), Some(SigningKey::from_bytes(&[7; 32])));
        replace(&path, &text[..text.len() / 2]).unwrap();
        assert!(load_key(&path).unwrap_err().to_string().contains("id_ed25519: it is no private key of SSH"));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("user.key");
        for garbage in ["", "xyz\n", &"0".repeat(62), &"0".repeat(5000)] {
            replace(&path, garbage).unwrap();
            assert!(load_key(&path).unwrap_err().to_string().contains("user.key: "), "{garbage:?}");
        }
    }
}
