//! Reachability: this node asks other sites to dial it, since it cannot find out by itself whether they can.
//!
//! Invariant: at most [`SITES_MAX`] sites are asked, all at once; their answers are shown, and nothing is decided by them.

use broker::{ids::SiteId, time::Millis};
use futures::future::join_all;
use rand::seq::IteratorRandom as _;

use crate::{
    core::Core,
    identity::site_of_peer,
    wire::{WireAnswer, WireRequest},
};

/// Sites that are asked.
const SITES_MAX: usize = 5;
/// How long each may take: the time of a dial, and of the question.
const PATIENCE: Millis = Millis(8_000);

/// The result of asking some sites to dial this node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reachability {
    /// Sites that have dialled this node.
    pub asked: usize,
    /// Those of them that could open a connection.
    pub reached: usize,
}

/// Asks some sites that this node is connected to, whichever side opened the connection.
pub(crate) async fn ask(core: &Core) -> Reachability {
    let connected = core.shared().connected();
    let sites: Vec<SiteId> = connected.iter().filter_map(site_of_peer).sample(&mut rand::rng(), SITES_MAX);
    let answers = join_all(sites.iter().map(|site| core.request(site, WireRequest::DialBack, PATIENCE))).await;
    let mut reach = Reachability::default();
    for answer in answers {
        // One that is busy, or gone, has not tried.
        if let Ok(WireAnswer::DialedBack(is_reached)) = answer {
            reach.asked += 1;
            reach.reached += usize::from(is_reached);
        }
    }
    reach
}
