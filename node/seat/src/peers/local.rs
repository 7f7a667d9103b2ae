//! Who has opened a socket within this machine.
//!
//! A loopback address is open to every user of the machine; the system knows whose a connection is, and of which cgroup. Invariant: one that
//! cannot be found is nobody's. How the system is asked is decided once, so that nobody brings about that less is checked.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    sync::OnceLock,
};

use super::sock_diag::{Diagnosed, ask};

/// The lists of the machine's TCP sockets; without IPv6 there is no second one.
const TCP: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// What stands before an address of IPv4 that a socket of IPv6 uses.
const MAPPED: &str = "0000000000000000FFFF0000";

/// Whether this machine tells the cgroup of a socket.
pub fn has_cgroups_of_sockets() -> bool {
    static IS_TOLD: OnceLock<bool> = OnceLock::new();
    *IS_TOLD.get_or_init(|| try_one().is_ok_and(|found| found.is_some_and(|found| found.cgroup.is_some())))
}

/// Answer of the kernel about a connection of this process to itself.
fn try_one() -> io::Result<Option<Diagnosed>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    match (near.local_addr()?, near.peer_addr()?) {
        (SocketAddr::V4(own), SocketAddr::V4(other)) => ask(own, other),
        _ => Ok(None),
    }
}

/// Who has the socket at `own` that is connected to `other`; none when there is none any more. Without its cgroup where the machine does not
/// tell those.
///
/// # Errors
/// When the system does not answer.
pub fn opener_of(own: SocketAddrV4, other: SocketAddrV4) -> io::Result<Option<Diagnosed>> {
    if has_cgroups_of_sockets() {
        return ask(own, other);
    }
    Ok(user_of(own, other)?.map(|user| Diagnosed { user: Some(user), cgroup: None }))
}

/// The cgroup of what has taken a connection to `own` from `other`, or is about to; none when nothing has, or the machine does not tell it.
///
/// # Errors
/// When the system does not answer.
pub fn cgroup_of_taker(own: SocketAddrV4, other: SocketAddrV4) -> io::Result<Option<u64>> {
    // Some programs have a connection made only when the first word comes; until then it is the listener's.
    let listens = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    for other in [other, listens] {
        if let Some(Diagnosed { cgroup: Some(cgroup), .. }) = ask(own, other)? {
            return Ok(Some(cgroup));
        }
    }
    Ok(None)
}

/// The user whose socket at `own` is connected to `other`; none when there is none any more, or its user has closed it: then the system does
/// not say whose it was.
fn user_of(own: SocketAddrV4, other: SocketAddrV4) -> io::Result<Option<u32>> {
    for list in TCP {
        match fs::read_to_string(list) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            list => {
                if let Some(user) = find(&list.unwrap_or_default(), own, other) {
                    return Ok(Some(user));
                }
            }
        }
    }
    Ok(None)
}

fn find(list: &str, own: SocketAddrV4, other: SocketAddrV4) -> Option<u32> {
    let lines = list.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let mut of_both = lines.filter(|words| {
        let address = |at: usize| words.get(at).and_then(|word| address(word));
        address(1) == Some(own) && address(2) == Some(other)
    });
    let words = of_both.next()?;
    let is_open = words.get(9).is_some_and(|inode| *inode != "0");
    if is_open { words.get(7)?.parse().ok() } else { None }
}

/// An address as the system lists it: the number as it lies in memory, and the port.
fn address(word: &str) -> Option<SocketAddrV4> {
    let (ip, port) = word.split_once(':')?;
    let ip = ip.strip_prefix(MAPPED).unwrap_or(ip);
    let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.to_ne_bytes());
    Some(SocketAddrV4::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use nix::unistd::geteuid;

    use super::*;
    use crate::cgroup::path_of;

    fn v4(address: SocketAddr) -> SocketAddrV4 {
        match address {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => panic!("{address}"),
        }
    }

    #[test]
    fn a_connection_is_that_of_its_user_and_one_that_is_not_there_of_nobody() {
        let listener = TcpListener::bind("127.77.1.2:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_far, from) = listener.accept().unwrap();
        let (from, to) = (v4(from), v4(listener.local_addr().unwrap()));
        assert_eq!(user_of(from, to).unwrap(), Some(geteuid().as_raw()));
        assert_eq!(v4(near.local_addr().unwrap()), from);
        let mapped = TcpStream::connect((std::net::Ipv4Addr::new(127, 77, 1, 2).to_ipv6_mapped(), to.port()));
        if mapped.is_ok() {
            let (_far, from) = listener.accept().unwrap();
            assert_eq!(user_of(v4(from), to).unwrap(), Some(geteuid().as_raw()), "as some programs connect");
        }
        assert_eq!(user_of(to, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1)).unwrap(), None);
    }

    #[test]
    fn a_connection_is_of_the_cgroup_of_its_opener_until_that_closes_it() {
        if !has_cgroups_of_sockets() {
            return;
        }
        let own = path_of(&fs::read_to_string("/proc/self/cgroup").unwrap()).unwrap();
        let own = fs::metadata(own).unwrap().ino();
        let listener = TcpListener::bind("127.77.1.3:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (from, to) = (v4(near.local_addr().unwrap()), v4(near.peer_addr().unwrap()));
        assert_eq!(cgroup_of_taker(to, from).unwrap(), Some(own), "before it is taken");
        let (_far, _) = listener.accept().unwrap();
        let opener = Diagnosed { user: Some(geteuid().as_raw()), cgroup: Some(own) };
        assert_eq!(opener_of(from, to).unwrap(), Some(opener));
        drop(near);
        assert_eq!(opener_of(from, to).unwrap().and_then(|closed| closed.user), None);
        let nobody = SocketAddrV4::new(Ipv4Addr::new(127, 77, 1, 4), to.port());
        assert_eq!((opener_of(to, nobody).unwrap(), cgroup_of_taker(nobody, from).unwrap()), (None, None));
    }

    #[test]
    fn what_is_no_list_has_nobody_in_it() {
        let own = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80);
        for list in
            ["", "head\n", "head\n0: x y z", "head\n0: 0100007F:0050", "head\n0: 0100007F:0050 0100007F:0050 01"]
        {
            assert_eq!(find(list, own, own), None, "{list}");
        }
    }
}
