//! A unix socket for callers of one user: at a path of any length, closed to others by its mode, and each end knows who the other is.
//!
//! Invariant: nobody finds the socket at its path before it has its mode, and what an earlier run has left there is gone.

use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd as _},
        unix::{
            ffi::OsStrExt as _,
            fs::{MetadataExt as _, PermissionsExt as _},
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
    time::Duration,
};

use nix::unistd::{AccessFlags, access, geteuid};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// Longest path that fits into a socket's address: 108 bytes with its end (unix(7)).
const PATH_BYTES_MAX: usize = 107;
/// Time that a listener has to take a connection, as by TCP.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// Listens at `path` without blocking.
///
/// # Errors
/// Those of the system.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    // It gets its name when it has its mode.
    let new = path.with_extension("new");
    remove(path)?;
    remove(&new)?;
    let listener = with_short(&new, |new| UnixListener::bind(new))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    fs::rename(&new, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Whether there is something at `path` that this user may connect to.
#[must_use]
pub fn may_connect(path: &Path) -> bool {
    access(path, AccessFlags::W_OK).is_ok()
}

/// Connects to who listens at `path`, if that is root or the owner of the directory, within three seconds.
///
/// # Errors
/// Errors of the system, [`io::ErrorKind::TimedOut`], and [`io::ErrorKind::PermissionDenied`] when it is somebody else.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    connect_within(path, CONNECT_MAX)
}

fn connect_within(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Who listens is waited for as long as a write waits, where its queue is full.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(limit))?;
    let connected = with_short(path, |path| Ok(net::connect(&socket, &SocketAddrUnix::new(path)?)?));
    connected.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, format!("it has taken no connection within {limit:?}"))
        }
        _ => error,
    })?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
    let stream = UnixStream::from(socket);
    let owner = fs::metadata(path.parent().unwrap_or(Path::new("/")))?.uid();
    if is_root_or(owner, &stream)? {
        return Ok(stream);
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is listened on by neither the directory's owner nor root"))
}

/// Whether this process's own user, or root, is at the other end.
#[must_use]
pub fn is_own(stream: &impl AsFd) -> bool {
    is_root_or(geteuid().as_raw(), stream).unwrap_or(false)
}

fn is_root_or(user: u32, stream: &impl AsFd) -> io::Result<bool> {
    let peer = sockopt::socket_peercred(stream)?.uid.as_raw();
    Ok(peer == 0 || peer == user)
}

/// Removes a file that may not be there.
///
/// # Errors
/// When it is there still.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Where `path` is too long for a socket's address, there is a shorter one through the opened directory.
fn with_short<T>(path: &Path, with: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if path.as_os_str().as_bytes().len() > PATH_BYTES_MAX => {
            let directory = fs::File::open(parent)?;
            with(&Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name))
        }
        _ => with(path),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn who_connects_is_known_whatever_the_length_of_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let long = directory.path().join("a".repeat(120));
        fs::create_dir(&long).unwrap();
        for path in [directory.path().join("api.sock"), long.join("api.sock")] {
            assert!(!may_connect(&path));
            let stale = listen(&path).unwrap();
            drop(stale);
            assert!(may_connect(&path));
            assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            let listener = listen(&path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            let mut near = connect(&path).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            assert!(is_own(&near) && is_own(&far));
            near.write_all(b"here").unwrap();
            drop(near);
            let mut heard = String::new();
            far.read_to_string(&mut heard).unwrap();
            assert_eq!(heard, "here");
            remove(&path).unwrap();
            remove(&path).unwrap();
            assert!(!may_connect(&path));
            assert_eq!(
                fs::read_dir(path.parent().unwrap())
                    .unwrap()
                    .filter(|one| one.as_ref().unwrap().path() != long)
                    .count(),
                0
            );
        }
    }

    #[test]
    fn nobody_waits_for_ever_for_one_who_takes_no_connection() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let listener = listen(&path).unwrap();
        net::listen(&listener, 0).unwrap();
        let _one = connect(&path).unwrap();
        let error = connect_within(&path, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn a_socket_of_somebody_else_is_not_taken_for_the_nodes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let _listener = listen(&path).unwrap();
        let stream = connect(&path).unwrap();
        let own = geteuid().as_raw();
        assert_eq!(is_root_or(own + 1, &stream).unwrap(), own == 0);
    }
}
