//! What the kernel knows of one TCP socket of this machine (`sock_diag(7)`).
//!
//! Invariant: an answer is of the asked socket alone, and what cannot be read is an error, so that whoever asks can refuse.

use std::{
    io::{self, Read as _},
    net::SocketAddrV4,
};

use nix::libc::{AF_INET, AF_NETLINK, ENOENT, IPPROTO_TCP, NLM_F_REQUEST, NLMSG_ERROR};
use socket2::{Domain, Protocol, Socket, Type};

/// Numbers of the kernel's interface: the family of netlink, the kind of request and answer, and the attribute.
const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_CGROUP_ID: u16 = 21;
/// The head of every message, and what `struct inet_diag_msg` has behind it before its attributes.
const HEAD_BYTES: usize = 16;
const SOCKET_BYTES: usize = 72;
const REQUEST_BYTES: u32 = 72;
/// Far more than the attributes of one socket take.
const ANSWER_BYTES_MAX: usize = 8 * 1024;

/// A socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diagnosed {
    /// The user that has made it; none once nobody has it open.
    pub user: Option<u32>,
    /// The number of the cgroup of the process that has made it; none where the kernel does not say.
    pub cgroup: Option<u64>,
}

/// The socket at `own` that is connected to `other`; the one that listens at `own` where `other` is port 0.
///
/// # Errors
/// When the kernel cannot be asked, or answers with something else.
pub fn ask(own: SocketAddrV4, other: SocketAddrV4) -> io::Result<Option<Diagnosed>> {
    let mut kernel = Socket::new(Domain::from(AF_NETLINK), Type::RAW, Some(Protocol::from(NETLINK_SOCK_DIAG)))?;
    // The answer is there when the request was sent.
    kernel.set_nonblocking(true)?;
    kernel.send(&request(own, other))?;
    let mut answer = [0; ANSWER_BYTES_MAX];
    let bytes = kernel.read(&mut answer)?;
    read(&answer[..bytes], [own.port(), other.port()])
}

fn request(own: SocketAddrV4, other: SocketAddrV4) -> Vec<u8> {
    let flags = u16::try_from(NLM_F_REQUEST).unwrap_or_default();
    let [family, protocol] = [AF_INET, IPPROTO_TCP].map(|number| u8::try_from(number).unwrap_or_default());
    let padded = |address: SocketAddrV4| [&address.ip().octets()[..], &[0; 12]].concat();
    [
        &REQUEST_BYTES.to_ne_bytes()[..],
        &SOCK_DIAG_BY_FAMILY.to_ne_bytes(),
        &flags.to_ne_bytes(),
        // A sequence number, and the kernel as the receiver.
        &[0; 8],
        &[family, protocol, 0, 0],
        // Sockets in all states.
        &[0xff; 4],
        &own.port().to_be_bytes(),
        &other.port().to_be_bytes(),
        &padded(own),
        &padded(other),
        // Any interface, whatever its cookie.
        &[0; 4],
        &[0xff; 8],
    ]
    .concat()
}

fn read(answer: &[u8], ports: [u16; 2]) -> io::Result<Option<Diagnosed>> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "the kernel answers with something else");
    let bytes = usize::try_from(u32::from_ne_bytes(field(answer, 0).ok_or_else(malformed)?)).unwrap_or(usize::MAX);
    let kind = u16::from_ne_bytes(field(answer, 4).ok_or_else(malformed)?);
    let body = answer.get(HEAD_BYTES..bytes).ok_or_else(malformed)?;
    if i32::from(kind) == NLMSG_ERROR {
        let error = i32::from_ne_bytes(field(body, 0).ok_or_else(malformed)?).saturating_neg();
        return if error == ENOENT { Ok(None) } else { Err(io::Error::from_raw_os_error(error)) };
    }
    if kind != SOCK_DIAG_BY_FAMILY || body.len() < SOCKET_BYTES {
        return Err(malformed());
    }
    let found = [4, 6].map(|at| field(body, at).map(u16::from_be_bytes));
    // In the place of a connection that is gone the kernel tells of who listens there.
    if found != ports.map(Some) {
        return Ok(None);
    }
    let [user, inode] = [64, 68].map(|at| field(body, at).map(u32::from_ne_bytes));
    let is_open = inode.is_some_and(|inode| inode != 0);
    Ok(Some(Diagnosed { user: user.filter(|_| is_open), cgroup: cgroup_among(&body[SOCKET_BYTES..]) }))
}

/// The number of the cgroup, among attributes that begin with their length and kind.
fn cgroup_among(mut attributes: &[u8]) -> Option<u64> {
    loop {
        let bytes = usize::from(u16::from_ne_bytes(field(attributes, 0)?));
        let kind = u16::from_ne_bytes(field(attributes, 2)?);
        if kind == INET_DIAG_CGROUP_ID {
            return field(attributes, 4).map(u64::from_ne_bytes);
        }
        // None is shorter than what it begins with, so that this ends.
        attributes = attributes.get(bytes.max(4).next_multiple_of(4)..)?;
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_another_socket_or_cut_off_names_nobody() {
        let head = |bytes: u32, kind: u16| [&bytes.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
        let mut socket = vec![0; SOCKET_BYTES];
        socket[4..8].copy_from_slice(&[0, 80, 1, 0]);
        socket[64..72].copy_from_slice(&[7_u32.to_ne_bytes(), 9_u32.to_ne_bytes()].concat());
        let cgroup = [&12_u16.to_ne_bytes()[..], &INET_DIAG_CGROUP_ID.to_ne_bytes(), &25_u64.to_ne_bytes()].concat();
        // One of five bytes, which takes eight.
        let other = [&5_u16.to_ne_bytes()[..], &[1, 0, 9, 0, 0, 0]].concat();
        let whole = [&head(108, SOCK_DIAG_BY_FAMILY)[..], &socket, &other, &cgroup].concat();
        let found = Diagnosed { user: Some(7), cgroup: Some(25) };
        assert_eq!(read(&whole, [80, 256]).unwrap(), Some(found));
        assert_eq!(read(&whole, [80, 0]).unwrap(), None, "it is another one");
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut], [80, 256]).is_err(), "{cut}");
        }
        let plain = [&head(88, SOCK_DIAG_BY_FAMILY)[..], &socket].concat();
        assert_eq!(read(&plain, [80, 256]).unwrap(), Some(Diagnosed { cgroup: None, ..found }));
        let error = |number: i32| [&head(20, 2)[..], &number.to_ne_bytes()].concat();
        assert_eq!(read(&error(-ENOENT), [80, 256]).unwrap(), None);
        assert!(read(&error(-1), [80, 256]).is_err());
        assert_eq!(cgroup_among(&[0; 64]), None);
    }
}
