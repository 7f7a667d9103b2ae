//! Names as texts: sites, grids, addresses. They come in configurations, messages and adverts.

use broker::ids::SiteId;
use discovery::{
    config::GridId,
    identity::{peer_of_site, site_of_peer},
};
use libp2p::Multiaddr;

use crate::Target;

/// Texts that may be names.
pub const NAMES: Target = Target { name: "names", run, golden: Vec::new };

fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(grid) = GridId::new(text) {
        assert_eq!(grid.as_str(), text);
    }
    if let Some(peer) = SiteId::new(text).ok().and_then(|site| peer_of_site(&site)) {
        let site = site_of_peer(&peer).expect("a peer whose name was a site's");
        assert_eq!(peer_of_site(&site), Some(peer));
    }
    if let Ok(address) = text.parse::<Multiaddr>() {
        assert_eq!(address.to_string().parse().ok(), Some(address));
    }
}
