//! Names as texts: sites, grids, addresses. They come in configurations, messages and adverts.

use broker::ids::SiteId;
use discovery::{
    config::GridId,
    identity::{peer_of_site, site_of_peer},
};
use libp2p::Multiaddr;

use crate::{Seed, Target};

/// Texts that may be names.
pub const NAMES: Target = Target { name: "names", run, seeds };

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

fn seeds() -> Vec<Seed> {
    let texts = [
        ("grid", "my-grid-2"),
        ("site", "12D3KooWGRUgzZVLGCXXaWqBPQWJZLDVJy3vYMHsaFqvu2H2wLJ4"),
        ("tcp", "/ip4/192.0.2.1/tcp/7741"),
        ("quic", "/ip6/2001:db8::1/udp/7741/quic-v1/p2p/12D3KooWGRUgzZVLGCXXaWqBPQWJZLDVJy3vYMHsaFqvu2H2wLJ4"),
        ("dns", "/dns4/example.org/tcp/1/p2p-circuit"),
    ];
    texts.into_iter().map(|(name, text)| (name, text.as_bytes().to_vec())).collect()
}
