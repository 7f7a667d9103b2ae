//! What a ban does to its peer.

use futures::StreamExt as _;
use libp2p::swarm::SwarmEvent;

use super::*;
use crate::{
    swarm_task::build_swarm,
    wire::{ASK_VERSIONS, names::adverts_topic},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_banned_peer_is_refused_until_its_ban_ends() {
    let victim = node_with(&[], |config| config.intervals.ban_first = Duration::from_secs(2)).await;
    let identity = Identity::generate().unwrap();
    let (config, _) = config(&identity);
    let mut swarm =
        build_swarm(&identity.keypair().unwrap(), &config, (ASK_VERSIONS, &Arc::default()), Arc::default()).unwrap();
    let address = victim.discovery.listen_addresses().remove(0);
    let topic = adverts_topic(&config.grid);
    let mut number = 0_u32;
    let start = Instant::now();
    swarm.dial(address.clone()).unwrap();
    loop {
        let status = victim.discovery.status();
        assert!(start.elapsed() < DEADLINE, "{status:?}");
        let is_banned = !status.bans.is_empty();
        let was_refused = counter(&victim, Counter::ConnectionsRefusedBanned) > 0;
        if was_refused && !is_banned && status.connected.contains(identity.site_id()) {
            break;
        }
        // The time-out only lets the loop publish and dial again; an event or none, both are fine.
        if let Ok(SwarmEvent::ConnectionClosed { .. } | SwarmEvent::OutgoingConnectionError { .. }) =
            tokio::time::timeout(Duration::from_millis(5), swarm.select_next_some()).await
        {
            swarm.dial(address.clone()).unwrap();
        }
        number += 1;
        if !is_banned && !was_refused {
            let _ = swarm.behaviour_mut().gossip.publish(topic.clone(), number.to_be_bytes().repeat(20));
        }
    }
    assert_eq!(counter(&victim, Counter::PeersBanned), 1, "it was let in again, and stayed");
}
