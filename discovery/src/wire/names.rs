//! Names of the protocols and topics of a grid.
//!
//! Invariant: every name carries the grid, so nodes of different grids have nothing to say to each other even when they
//! are connected.

use libp2p::{StreamProtocol, gossipsub::IdentTopic};

use super::{ask_version::AskVersion, version::DIALECT};
use crate::config::GridId;

/// The grid's name makes no name of a protocol.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} cannot be the name of a protocol")]
pub struct NameError(String);

/// What identify calls the protocols of this grid.
#[must_use]
pub fn identify_protocol(grid: &GridId) -> String {
    format!("/kolo/{grid}/identify/1")
}

/// The DHT's protocol.
///
/// # Errors
/// [`NameError`] when libp2p refuses the name.
pub fn kad_protocol(grid: &GridId) -> Result<StreamProtocol, NameError> {
    protocol(grid, "kad/1")
}

/// The protocol of the proof of membership.
///
/// # Errors
/// [`NameError`] when libp2p refuses the name.
pub fn proof_protocol(grid: &GridId) -> Result<StreamProtocol, NameError> {
    protocol(grid, "proof/1")
}

/// The protocol of tests of links.
///
/// # Errors
/// [`NameError`] when libp2p refuses the name.
pub fn link_protocol(grid: &GridId) -> Result<StreamProtocol, NameError> {
    protocol(grid, "link/1")
}

/// The protocol of streams to what runs on a seat.
///
/// # Errors
/// [`NameError`] when libp2p refuses the name.
pub fn run_protocol(grid: &GridId) -> Result<StreamProtocol, NameError> {
    protocol(grid, "run/1")
}

/// The protocols of direct requests, one a version, in the order of `versions`.
///
/// # Errors
/// [`NameError`] when libp2p refuses a name.
pub fn ask_protocols(grid: &GridId, versions: &[&dyn AskVersion]) -> Result<Vec<StreamProtocol>, NameError> {
    versions.iter().map(|version| protocol(grid, &format!("ask/{}", version.number()))).collect()
}

/// The number of the version that a protocol of direct requests is of; `None` when it is another protocol.
fn ask_number(grid: &GridId, protocol: &StreamProtocol) -> Option<u16> {
    protocol.as_ref().strip_prefix(&format!("/kolo/{grid}/ask/"))?.parse().ok()
}

fn protocol(grid: &GridId, name: &str) -> Result<StreamProtocol, NameError> {
    let name = format!("/kolo/{grid}/{name}");
    StreamProtocol::try_from_owned(name.clone()).map_err(|_| NameError(name))
}

/// How the names of the gossip protocols begin.
#[must_use]
pub fn gossip_prefix(grid: &GridId) -> String {
    format!("/kolo/{grid}/gossip")
}

/// The topic of adverts.
#[must_use]
pub fn adverts_topic(grid: &GridId) -> IdentTopic {
    IdentTopic::new(format!("kolo/{grid}/adverts/{DIALECT}"))
}

/// The topic of bundles of schedule changes.
#[must_use]
pub fn schedules_topic(grid: &GridId) -> IdentTopic {
    IdentTopic::new(format!("kolo/{grid}/schedules/{DIALECT}"))
}

/// What identify says of a node's program and the dialects that it speaks.
#[must_use]
pub fn agent(spoken: &[u16]) -> String {
    let spoken: Vec<String> = spoken.iter().map(ToString::to_string).collect();
    format!("kolo/{}{SPEAKS}{}", env!("CARGO_PKG_VERSION"), spoken.join(","))
}

/// Stands before the dialects in [`agent`].
const SPEAKS: &str = " speaks/";

/// The dialects that a peer speaks, at most so many: as its agent says, or of a node that does not say it, those of its direct requests.
#[must_use]
pub fn spoken_by(grid: &GridId, agent: &str, protocols: &[StreamProtocol], most: usize) -> Vec<u16> {
    match agent.split_once(SPEAKS) {
        Some((_, spoken)) => spoken.split(',').filter_map(|number| number.parse().ok()).take(most).collect(),
        None => protocols.iter().filter_map(|protocol| ask_number(grid, protocol)).take(most).collect(),
    }
}
