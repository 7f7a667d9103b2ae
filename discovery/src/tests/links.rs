//! Tests of the link between two sites: who takes part, and what peers gain that do not keep to the protocol.

use futures::{AsyncReadExt as _, AsyncWriteExt as _, StreamExt as _};
use libp2p::{PeerId, Stream, request_response, swarm::SwarmEvent};
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::{
    LinkError,
    identity::peer_of_site,
    streams::{Opened, Reply},
    swarm_task::{BehaviourEvent, Purpose, build_swarm},
    wire::{ASK_VERSIONS, WireAnswer},
};

fn allowing(config: &mut DiscoveryConfig) {
    config.link_tests = true;
    config.intervals.link_way = Duration::from_secs(20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sites_that_agree_measure_their_link() {
    let over_tcp = |config: &mut DiscoveryConfig| {
        allowing(config);
        config.transport = TransportKind::TcpAndQuic;
        config.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
    };
    let allows = node_with(&[], over_tcp).await;
    let other = node_with(&allows.discovery.listen_addresses(), |config| {
        over_tcp(config);
        config.link_tests = false;
    })
    .await;
    let (site, own) = (allows.discovery.site_id().clone(), other.discovery.site_id().clone());
    eventually("they meet", || !other.discovery.is_alone() && !allows.discovery.is_alone()).await;

    let speed = other.discovery.measure_link(&site).await.unwrap();
    // The throttle of a connection is 67 Mbit/s behind its first 16 MiB.
    assert!(speed.to_mbps > 0 && speed.from_mbps > 0, "{speed:?}");
    let again = other.discovery.measure_link(&site).await;
    assert!(matches!(again, Err(LinkError::NotNow { wait_s: 1..=60 })), "{again:?}");
    assert_eq!(allows.discovery.measure_link(&own).await, Err(LinkError::NotAllowed));
    assert_eq!(other.discovery.measure_link(&own).await, Err(LinkError::Itself));
    let nobody = Identity::generate().unwrap();
    let unreachable = other.discovery.measure_link(nobody.site_id()).await;
    assert!(matches!(unreachable, Err(LinkError::Unreachable(_))), "{unreachable:?}");
    assert_eq!((counter(&allows, Counter::Offences), counter(&other, Counter::Offences)), (0, 0));
}

/// A peer that speaks the protocols and keeps to none of them.
pub(super) struct Stranger {
    site: SiteId,
    open: mpsc::Sender<(Purpose, PeerId, Reply)>,
    asked: mpsc::Receiver<Opened>,
}

/// A stranger that is connected with `victim`.
pub(super) async fn stranger(victim: &Node) -> Stranger {
    let identity = Identity::generate().unwrap();
    let (config, _) = config(&identity);
    let key = identity.keypair().unwrap();
    let mut swarm = build_swarm(&key, &config, (ASK_VERSIONS, &Arc::default()), Arc::default()).unwrap();
    swarm.dial(victim.discovery.listen_addresses().remove(0)).unwrap();
    let (open, mut opened) = mpsc::channel::<(Purpose, PeerId, Reply)>(8);
    let (hand_on, asked) = mpsc::channel(8);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                wanted = opened.recv() => match wanted {
                    Some((Purpose::Link, peer, reply)) => swarm.behaviour_mut().link.open_stream(peer, reply),
                    Some((Purpose::Run, peer, reply)) => swarm.behaviour_mut().run.open_stream(peer, reply),
                    None => return,
                },
                event = swarm.select_next_some() => match event {
                    SwarmEvent::Behaviour(BehaviourEvent::Link(asked)) => hand_on.send(asked).await.unwrap(),
                    SwarmEvent::Behaviour(BehaviourEvent::Ask(request_response::Event::Message {
                        message: request_response::Message::Request { channel, .. }, ..
                    })) => {
                        let nothing = WireAnswer::Adverts { envelopes: Vec::new(), is_complete: true };
                        let _ = swarm.behaviour_mut().ask.send_response(channel, nothing);
                    }
                    _ => {}
                },
            }
        }
    });
    let site = identity.site_id().clone();
    eventually("the stranger to be met", || victim.discovery.status().connected.contains(&site)).await;
    Stranger { site, open, asked }
}

impl Stranger {
    /// A stream to the victim; none when it was refused.
    pub(super) async fn stream(&self, victim: &Node, purpose: Purpose) -> Option<Stream> {
        let (reply, stream) = oneshot::channel();
        self.open.send((purpose, peer_of_site(victim.discovery.site_id()).unwrap(), reply)).await.unwrap();
        stream.await.ok()
    }

    /// What the victim says to a wish for so many KiB.
    async fn ask(&self, victim: &Node, kib: u32) -> Option<(Stream, [u8; 3])> {
        let mut stream = self.stream(victim, Purpose::Link).await?;
        let mut answer = [9; 3];
        stream.write_all(&kib.to_be_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        stream.read_exact(&mut answer).await.ok()?;
        Some((stream, answer))
    }
}

/// The answer to the first wish that is read: one is not while the stream before it is being closed.
async fn answered(stranger: &Stranger, victim: &Node) -> (Stream, [u8; 3]) {
    let start = Instant::now();
    loop {
        if let Some(answered) = stranger.ask(victim, 64).await {
            return answered;
        }
        assert!(start.elapsed() < DEADLINE);
    }
}

async fn is_cut_off(mut stream: Stream) -> bool {
    let ended = tokio::time::timeout(DEADLINE, async { stream.read(&mut [0]).await.is_ok_and(|read| read > 0) });
    !ended.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_and_sends_too_much_or_nothing_gains_nothing() {
    let victim = node_with(&[], |config| {
        allowing(config);
        config.intervals.link_way = Duration::from_secs(2);
    })
    .await;
    let (greedy, silent, waits) = (stranger(&victim).await, stranger(&victim).await, stranger(&victim).await);

    let (mut stream, answer) = greedy.ask(&victim, 64).await.unwrap();
    assert_eq!(answer, [0; 3]);
    let chunk = [&[0, 0, 64, 0][..], &[0; 16 << 10]].concat();
    for _ in 0..5 {
        // It may be cut off before the end.
        let _ = stream.write_all(&chunk).await;
    }
    let _ = stream.flush().await;
    eventually("the offence to be noted", || counter(&victim, Counter::Offences) == 1).await;
    assert!(is_cut_off(stream).await);
    assert_eq!(answered(&greedy, &victim).await.1[0], 2, "it has had its turn");

    // One that sends nothing has the turn for its time and no longer.
    let (stream, answer) = silent.ask(&victim, 64).await.unwrap();
    assert_eq!(answer, [0; 3]);
    assert_eq!(waits.ask(&victim, 64).await.unwrap().1, [2, 0, 11], "one test at a time");
    let site = waits.site.clone();
    assert_eq!(victim.discovery.measure_link(&site).await, Err(LinkError::Running));
    assert!(is_cut_off(stream).await);
    let start = Instant::now();
    while answered(&waits, &victim).await.1 != [0; 3] {
        assert!(start.elapsed() < DEADLINE);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_without_end_is_banned() {
    let victim = node_with(&[], |config| {
        allowing(config);
        config.limits.asks_per_peer_per_s = 10;
    })
    .await;
    let flood = stranger(&victim).await;
    let start = Instant::now();
    while victim.discovery.status().bans.is_empty() {
        assert!(start.elapsed() < DEADLINE, "{:?}", victim.discovery.status());
        let _ = tokio::time::timeout(Duration::from_millis(50), flood.ask(&victim, 64)).await;
    }
    assert_eq!(victim.discovery.status().bans[0].site, flood.site);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_that_answers_wrongly_is_not_believed() {
    type Lie = (&'static str, &'static [u8], &'static [u8], LinkError);
    const MORE_THAN_SENT: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    const A_CHUNK_TOO_LARGE: &[u8] = &[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 255, 255, 255, 255];
    const NOTHING: &[u8] = &[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0];
    const LIES: [Lie; 6] = [
        ("an answer that does not exist", &[7, 0, 0], &[], LinkError::Protocol),
        ("later", &[2, 0, 5], &[], LinkError::NotNow { wait_s: 5 }),
        ("more was received than sent", &[0; 3], MORE_THAN_SENT, LinkError::Protocol),
        ("more is sent than agreed", &[0; 3], A_CHUNK_TOO_LARGE, LinkError::Protocol),
        ("nothing is sent", &[0; 3], NOTHING, LinkError::TooSlow),
        ("no end", &[0; 3], &[], LinkError::TooSlow),
    ];
    let asker = node_with(&[], |config| config.intervals.link_way = Duration::from_secs(4)).await;
    for (name, answer, then, expected) in LIES {
        let mut liar = stranger(&asker).await;
        let site = liar.site.clone();
        let lies = tokio::spawn(async move {
            let mut stream = liar.asked.recv().await.unwrap().stream;
            stream.read_exact(&mut [0; 4]).await.unwrap();
            stream.write_all(answer).await.unwrap();
            stream.flush().await.unwrap();
            let mut rest = vec![0; 1 << 20];
            // What was sent is read later: the asker reads what it is told only when it has sent all.
            stream.write_all(then).await.unwrap();
            stream.flush().await.unwrap();
            // Goes on reading, and says no more.
            while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
        });
        let before = counter(&asker, Counter::Offences);
        assert_eq!(asker.discovery.measure_link(&site).await, Err(expected.clone()), "{name}");
        let is_blamed = u64::from(expected == LinkError::Protocol);
        eventually(name, || counter(&asker, Counter::Offences) == before + is_blamed).await;
        lies.abort();
    }
}
