//! Who is at the other end of a connection within this machine.
//!
//! A loopback address is open to every user of the machine; the system knows whose a connection is. Invariant: one that cannot be found
//! is nobody's.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddrV4},
};

/// The lists of the machine's TCP sockets; without IPv6 there is no second one.
const TCP: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// What stands before an address of IPv4 that a socket of IPv6 uses.
const MAPPED: &str = "0000000000000000FFFF0000";

/// The user whose socket at `own` is connected to `other`; none when there is none any more, or its user has closed it: then the system does
/// not say whose it was.
pub fn user_of(own: SocketAddrV4, other: SocketAddrV4) -> io::Result<Option<u32>> {
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
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use nix::unistd::geteuid;

    use super::*;

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
    fn what_is_no_list_has_nobody_in_it() {
        let own = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80);
        for list in
            ["", "head\n", "head\n0: x y z", "head\n0: 0100007F:0050", "head\n0: 0100007F:0050 0100007F:0050 01"]
        {
            assert_eq!(find(list, own, own), None, "{list}");
        }
    }
}
