//! The one address at which a client reaches its node without TLS.
//!
//! Invariant: a name stands for one address as long as its client lives, so what a node has shown there holds for every later connection.

use std::{
    net::{SocketAddr, TcpStream},
    sync::{Arc, OnceLock},
    time::Duration,
};

use ureq::{
    Error,
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver},
        transport::NextTimeout,
    },
};

/// Longest wait for one of several addresses: all are of this machine, or near.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The address, from the first call on.
#[derive(Debug, Clone, Default)]
pub struct Dialled(Arc<OnceLock<SocketAddr>>);

impl Dialled {
    /// Address of all connections; none before the first one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.get().copied()
    }
}

impl Resolver for Dialled {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut only = self.empty();
        if let Some(address) = self.address() {
            only.push(address);
            return Ok(only);
        }
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, PROBE_TIMEOUT).is_ok();
        let known = if found.len() == 1 { found.first() } else { found.iter().find(answers) };
        only.push(match known {
            Some(address) => *self.0.get_or_init(|| *address),
            // None answers: another one may later.
            None => *found.first().ok_or(Error::HostNotFound)?,
        });
        Ok(only)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, ToSocketAddrs as _};

    use kolo_trust::TokenKey;
    use serde_json::Value;

    use crate::{
        client::{Client, Shown},
        samples::{TOKEN, answer, proof},
    };

    #[test]
    fn a_node_counts_at_the_address_that_was_called_only() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Not every machine can look names up.
        let name = if ("localhost", 0).to_socket_addrs().is_ok_and(|mut all| all.any(|one| one.is_ipv4())) {
            "localhost"
        } else {
            "127.0.0.1"
        };
        let at = |name: &str| {
            let shown = Shown::Token { token: TOKEN.to_owned(), file: "t".into() };
            Client::new(format!("http://{name}:{}", address.port()), shown)
        };
        let server = std::thread::spawn(move || {
            let next = |status, body: &dyn Fn(&str) -> String| {
                loop {
                    let mut stream = listener.accept().unwrap().0;
                    // A name with several addresses is tried by connections on which nothing is said.
                    if stream.peek(&mut [0]).unwrap() > 0 {
                        return answer(&mut stream, status, body);
                    }
                }
            };
            next("200 OK", &|asked| proof(asked, address));
            next("200 OK", &|_| "1".to_owned());
            let mut other = address;
            other.set_ip([127, 0, 0, 2].into());
            next("200 OK", &|asked| proof(asked, other))
        });
        assert_eq!(at(name).get::<Value>("/v1/status").unwrap(), 1);
        let refused = at("127.0.0.1").get::<Value>("/v1/status").unwrap_err().to_string();
        assert!(refused.contains("nothing was sent"), "{refused}");
        let asked = server.join().unwrap();
        assert!(asked.contains(&TokenKey::of(TOKEN).name()) && !asked.contains("uthorization"), "{asked}");
    }
}
