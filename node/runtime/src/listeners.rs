//! Who listens at an address of this machine, as /proc tells: for an owner whose port another program has.
//!
//! Invariant: it is a hint for people. Nothing is decided by it, as the program may be gone by then.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use nix::unistd::{Uid, User};

/// Tables of the sockets of TCP (proc_pid_net(5)).
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// State of a socket that listens.
const LISTENS: &str = "0A";

/// Words for who listens at `address`, with the user where the system tells it.
#[must_use]
pub fn who_listens(address: SocketAddr) -> String {
    match TABLES.iter().find_map(|table| uid_in(BufReader::new(File::open(table).ok()?), address)) {
        Some(uid) => match User::from_uid(uid) {
            Ok(Some(user)) => format!("a program of user {} (uid {uid})", user.name),
            _ => format!("a program of uid {uid}"),
        },
        None => "another program".to_owned(),
    }
}

/// The user whose socket in this table listens at `address`.
fn uid_in(table: impl BufRead, address: SocketAddr) -> Option<Uid> {
    table.lines().skip(1).map_while(Result::ok).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, _, _, _, uid, ..] = fields[..] else { return None };
        let is_there = state == LISTENS && has(socket_of(local)?, address);
        is_there.then(|| uid.parse().ok().map(Uid::from_raw)).flatten()
    })
}

/// An address as the tables have it: hexadecimal, each 32 bits in the byte order of the machine.
fn socket_of(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(8 * at..8 * (at + 1))?, 16).ok()?.to_ne_bytes());
    let ip: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            Ipv6Addr::from(<[u8; 16]>::try_from(words.as_flattened()).ok()?).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Whether who listens at `listening` has `address`.
fn has(listening: SocketAddr, address: SocketAddr) -> bool {
    let (ip, wanted) = (listening.ip(), address.ip());
    let has_all = ip.is_unspecified() && (ip.is_ipv6() || wanted.is_ipv4());
    listening.port() == address.port() && (has_all || ip.to_canonical() == wanted.to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use nix::unistd::geteuid;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.chunks_exact(4).map(|four| format!("{:08X}", u32::from_ne_bytes(four.try_into().unwrap()))).collect()
    }

    /// A table with a socket in a state that a user has at each of these addresses.
    fn table(rows: &[(&str, &str, u32)]) -> String {
        let row = |(at, (socket, state, uid)): (usize, &(&str, &str, u32))| {
            let socket: SocketAddr = socket.parse().unwrap();
            let address = match socket.ip() {
                IpAddr::V4(ip) => hex(&ip.octets()),
                IpAddr::V6(ip) => hex(&ip.octets()),
            };
            let port = socket.port();
            format!(
                "  {at}: {address}:{port:04X} 00000000:0000 {state} 0:0 00:0 00000000  {uid}   0 1 1 0 100 0 0 10 0\n"
            )
        };
        let rows: String = rows.iter().enumerate().map(row).collect();
        format!(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n{rows}"
        )
    }

    fn found(rows: &[(&str, &str, u32)], address: &str) -> Option<u32> {
        uid_in(table(rows).as_bytes(), address.parse().unwrap()).map(Uid::as_raw)
    }

    #[test]
    fn the_user_is_that_of_the_socket_that_listens_there() {
        let rows = [
            ("127.0.0.1:7740", "01", 1),
            ("127.0.0.1:7741", LISTENS, 2),
            ("127.0.0.2:7740", LISTENS, 3),
            ("127.0.0.1:7740", LISTENS, 1_000),
        ];
        assert_eq!(found(&rows, "127.0.0.1:7740"), Some(1_000));
        assert_eq!(found(&rows, "127.0.0.1:7742"), None);
        assert_eq!(found(&rows, "[::1]:7740"), None);
        assert_eq!(found(&[("[::1]:7740", LISTENS, 4)], "[::1]:7740"), Some(4));
        assert_eq!(uid_in("header\nbroken\n 0: zz:zz 0:0 0A 0 0 0 5 0\n".as_bytes(), rows[0].0.parse().unwrap()), None);
    }

    #[test]
    fn who_listens_at_all_addresses_listens_at_each() {
        for (all, address, expected) in [
            ("0.0.0.0:7740", "127.0.0.1:7740", Some(5)),
            ("[::]:7740", "127.0.0.1:7740", Some(5)),
            ("[::]:7740", "[::1]:7740", Some(5)),
            ("[::ffff:127.0.0.1]:7740", "127.0.0.1:7740", Some(5)),
            ("0.0.0.0:7740", "[::1]:7740", None),
        ] {
            assert_eq!(found(&[(all, LISTENS, 5)], address), expected, "{all} {address}");
        }
    }

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(who_listens(address).contains(&format!("uid {}", geteuid())), "{}", who_listens(address));
        drop(listener);
        assert_eq!(who_listens(address), "another program");
    }
}
