//! Which seats of a run reach each other, and at which ports, as its user has signed it.
//!
//! Invariant: [`Peers::check`] bounds how many listeners a site makes for a seat.

use std::{fmt, str::FromStr};

use broker::ids::{SeatNumber, SiteId};
use serde::{Deserialize, Serialize};

/// Most ports that seats reach at each other.
pub const PORTS_MAX: usize = 8;
/// Most listeners of a seat: its seats but for one, times ports.
pub const LISTENERS_MAX: usize = 512;
/// The lowest port that a command may listen on without privileges.
const PORT_MIN: u16 = 1024;

/// A seat that is reached by others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerSeat {
    /// Its site.
    pub site: SiteId,
    /// Its number.
    pub seat: SeatNumber,
}

/// A port of one seat, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerPort {
    /// The rank of the only seat that is reached at it; every seat when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The port, 1024 or higher.
    pub port: u16,
}

impl PeerPort {
    /// Whether the seat of this rank is reached at it.
    pub fn is_of(&self, rank: u32) -> bool {
        self.rank.is_none_or(|only| only == rank)
    }
}

impl FromStr for PeerPort {
    type Err = String;

    fn from_str(text: &str) -> Result<PeerPort, String> {
        let (rank, port) = text.split_once(':').map_or((None, text), |(rank, port)| (Some(rank), port));
        let rank = rank.map(str::parse).transpose().map_err(|_| format!("{text:?}: before the colon stands a rank"))?;
        let port =
            port.parse().map_err(|_| format!("{text:?} is no port: PORT or RANK:PORT, such as 29500 or 0:29500"))?;
        Ok(PeerPort { rank, port })
    }
}

impl fmt::Display for PeerPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "{rank}:{}", self.port),
            None => self.port.fmt(f),
        }
    }
}

/// The seats of a run, and where they reach each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    /// All seats of the run, in the order of their ranks.
    pub seats: Vec<PeerSeat>,
    /// The ports.
    pub ports: Vec<PeerPort>,
}

/// Why seats cannot reach each other like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeersError {
    /// The order names other seats than it has hosts, or itself elsewhere.
    #[error("the seats that are to reach each other are not those of the run")]
    Seats,
    /// A port that takes privileges.
    #[error("port {0}: a command listens on {PORT_MIN} or higher")]
    Low(u16),
    /// There is no such seat.
    #[error("port {0}: the run has no seat of this rank")]
    Rank(PeerPort),
    /// A port is named twice.
    #[error("port {0} is named twice")]
    Twice(u16),
    /// There are too many.
    #[error(
        "{ports} ports of {seats} seats: at most {PORTS_MAX} ports, and {LISTENERS_MAX} of all other seats together"
    )]
    TooMany {
        /// Ports.
        ports: usize,
        /// Seats.
        seats: usize,
    },
}

impl Peers {
    /// Whether any site could do this for the seat `own` of this rank, of a run with so many hosts.
    ///
    /// # Errors
    /// [`PeersError`].
    pub fn check(&self, (rank, own): (u32, &PeerSeat), hosts: usize) -> Result<(), PeersError> {
        let at_rank = usize::try_from(rank).ok().and_then(|rank| self.seats.get(rank));
        if self.seats.len() != hosts || at_rank != Some(own) {
            return Err(PeersError::Seats);
        }
        let (ports, seats) = (self.ports.len(), self.seats.len());
        if ports > PORTS_MAX || ports * (seats - 1) > LISTENERS_MAX {
            return Err(PeersError::TooMany { ports, seats });
        }
        for (index, one) in self.ports.iter().enumerate() {
            if one.port < PORT_MIN {
                return Err(PeersError::Low(one.port));
            }
            if one.rank.is_some_and(|rank| usize::try_from(rank).is_ok_and(|rank| rank >= seats)) {
                return Err(PeersError::Rank(*one));
            }
            if self.ports[..index].iter().any(|other| other.port == one.port) {
                return Err(PeersError::Twice(one.port));
            }
        }
        Ok(())
    }

    /// The listeners that the seat of this rank needs: the rank of each other seat, with each port at which that is reached.
    pub fn listeners_of(&self, rank: u32) -> impl Iterator<Item = (u32, u16)> {
        let others = (0..).zip(&self.seats).map(|(other, _)| other).filter(move |other| *other != rank);
        others.flat_map(|other| {
            self.ports.iter().filter(move |port| port.is_of(other)).map(move |port| (other, port.port))
        })
    }

    /// The rank of a seat.
    pub fn rank_of(&self, seat: SeatNumber) -> Option<u32> {
        (0..).zip(&self.seats).find(|(_, one)| one.seat == seat).map(|(rank, _)| rank)
    }

    /// Whether the seat of this rank is reached at this port.
    pub fn has_port(&self, rank: u32, port: u16) -> bool {
        self.ports.iter().any(|one| one.port == port && one.is_of(rank))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two seats at two sites, of which `s` has the second.
    pub fn peers() -> Peers {
        let seat = |site: &str, seat| PeerSeat { site: SiteId::new(site).unwrap(), seat: SeatNumber(seat) };
        Peers {
            seats: vec![seat("x", 0), seat("s", 2)],
            ports: vec!["0:29500".parse().unwrap(), "4000".parse().unwrap()],
        }
    }

    #[test]
    fn ports_are_those_of_one_seat_or_of_all() {
        let peers = peers();
        let reached = [(0, 29500), (1, 29500), (0, 4000), (1, 4000), (1, 4001)];
        assert_eq!(reached.map(|(rank, port)| peers.has_port(rank, port)), [true, false, true, true, false]);
        assert_eq!(peers.ports.iter().map(ToString::to_string).collect::<Vec<_>>(), ["0:29500", "4000"]);
        for wrong in ["", "x", "x:1", "0:", "0:70000", ":4000", "0:0:1"] {
            assert!(wrong.parse::<PeerPort>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_no_site_could_do_is_refused() {
        let own = peers().seats.remove(1);
        let checked = |ports: &[&str]| {
            let ports = ports.iter().map(|port| port.parse().unwrap()).collect();
            Peers { ports, ..peers() }.check((1, &own), 2)
        };
        assert_eq!(checked(&["4000", "1:5000"]), Ok(()));
        assert_eq!(checked(&["1023"]), Err(PeersError::Low(1023)));
        assert_eq!(checked(&["2:4000"]), Err(PeersError::Rank(PeerPort { rank: Some(2), port: 4000 })));
        assert_eq!(checked(&["4000", "1:4000"]), Err(PeersError::Twice(4000)));
        assert_eq!(checked(&["4000"; 9]), Err(PeersError::TooMany { ports: 9, seats: 2 }));
        let many = Peers { seats: vec![own.clone(); 514], ..peers() };
        assert_eq!(many.check((1, &own), 514), Err(PeersError::TooMany { ports: 2, seats: 514 }));
        assert_eq!(peers().check((0, &own), 2), Err(PeersError::Seats), "it has another rank");
        assert_eq!(peers().check((1, &own), 3), Err(PeersError::Seats), "it has another size");
    }
}
