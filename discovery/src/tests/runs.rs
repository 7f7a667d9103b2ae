//! Streams to what runs on a seat: bytes, back-pressure, refusals, and peers that do not keep to the protocol.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{links::stranger, *};
use crate::{
    AskError, RunError, RunInbound, RunStream, STREAMS_PER_PEER_MAX,
    opening::{Answer, OPENING_BYTES_MAX, Want},
    swarm_task::Purpose,
};

fn over_tcp(config: &mut DiscoveryConfig) {
    config.transport = TransportKind::TcpAndQuic;
    config.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
}

/// A node that takes streams, the taking end, and a node that opens them.
async fn two() -> (Node, RunInbound, Node) {
    let mut taker = node_with(&[], over_tcp).await;
    let opener = node_with(&taker.discovery.listen_addresses(), over_tcp).await;
    eventually("they meet", || !opener.discovery.is_alone() && !taker.discovery.is_alone()).await;
    let inbound = taker.inbound.take_runs().unwrap();
    assert!(taker.inbound.take_runs().is_none());
    (taker, inbound, opener)
}

/// An open stream: the opener's end, and the taker's.
async fn open(taker: &Node, inbound: &mut RunInbound, opener: &Node) -> (RunStream, RunStream) {
    let take = async { inbound.next().await.unwrap().accept().await.unwrap() };
    let opened = opener.discovery.open_run(taker.discovery.site_id(), b"seat 1".to_vec());
    let (opened, taken) = timeout(DEADLINE, futures::future::join(opened, take)).await.unwrap();
    (opened.unwrap(), taken)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_go_both_ways_and_an_end_is_seen() {
    let (taker, mut inbound, opener) = two().await;
    let site = taker.discovery.site_id().clone();
    for from in [&opener, &taker] {
        let took = async {
            let asked = inbound.next().await.unwrap();
            assert_eq!((&asked.from, &asked.opening[..]), (from.discovery.site_id(), &b"seat 1"[..]));
            let mut stream = asked.accept().await.unwrap();
            let mut word = [0; 4];
            stream.read_exact(&mut word).await.unwrap();
            stream.write_all(&word).await.unwrap();
            stream.shutdown().await.unwrap();
        };
        let opened = async {
            let mut stream = from.discovery.open_run(&site, b"seat 1".to_vec()).await.unwrap();
            stream.write_all(b"echo").await.unwrap();
            stream.flush().await.unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            assert_eq!(all, b"echo");
        };
        timeout(DEADLINE, futures::future::join(took, opened)).await.unwrap();
    }
}

/// Bytes that a connection takes beyond what is read: the windows of a stream and the buffers of the system's sockets.
const UNREAD_MAX: usize = 16 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_side_that_does_not_read_makes_the_other_wait_and_loses_nothing() {
    let (taker, mut inbound, opener) = two().await;
    taker.discovery.publish_advert(offer("taker".to_owned(), vec![host("h1", 4, "x86_64")])).unwrap();
    let (mut reads, mut writes) = open(&taker, &mut inbound, &opener).await;
    let chunk = vec![7; 64 << 10];
    let mut written = 0;
    while let Ok(wrote) = timeout(Duration::from_secs(2), writes.write(&chunk)).await {
        written += wrote.unwrap();
        assert!(written < UNREAD_MAX, "nothing makes the writer wait");
    }
    // What is asked meanwhile on the same connection is answered.
    let asked = opener.discovery.fetch_schedule(taker.discovery.site_id(), Millis(5_000)).await;
    assert_eq!(asked, Ok(()));
    // Far more than a throttled connection would bring within the deadline.
    let rest = 512 << 20;
    let sent = tokio::spawn(async move {
        let mut left = rest;
        while left > 0 {
            left -= writes.write(&chunk[..left.min(chunk.len())]).await.unwrap();
        }
        writes.shutdown().await.unwrap();
    });
    let (mut read, mut buffer) = (0, vec![0; 64 << 10]);
    let all = async {
        loop {
            let came = reads.read(&mut buffer).await.unwrap();
            if came == 0 {
                return read;
            }
            assert!(buffer[..came].iter().all(|byte| *byte == 7));
            read += came;
        }
    };
    assert_eq!(timeout(DEADLINE, all).await.unwrap(), written + rest);
    sent.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_refuses_is_heard_and_what_is_too_much_is_not_sent() {
    let (taker, mut inbound, opener) = two().await;
    let site = taker.discovery.site_id().clone();
    let long = "ü".repeat(1000);
    let refuse = async { inbound.next().await.unwrap().refuse(&Answer::Refused(long)).await };
    let opened = opener.discovery.open_run(&site, vec![1; OPENING_BYTES_MAX]);
    let (refused, ()) = timeout(DEADLINE, futures::future::join(opened, refuse)).await.unwrap();
    assert_eq!(refused.unwrap_err(), RunError::Refused("ü".repeat(512)));

    let wanting = Answer::Wanting(Want::Network, "no network".to_owned());
    let refuse = async { inbound.next().await.unwrap().refuse(&wanting).await };
    let opened = opener.discovery.open_run(&site, vec![1]);
    let (refused, ()) = timeout(DEADLINE, futures::future::join(opened, refuse)).await.unwrap();
    assert_eq!(refused.unwrap_err(), RunError::Wanting(Want::Network, "no network".to_owned()));

    let too_large = opener.discovery.open_run(&site, vec![1; OPENING_BYTES_MAX + 1]).await;
    assert_eq!(too_large.unwrap_err(), RunError::TooLarge(OPENING_BYTES_MAX + 1));
    let nobody = Identity::generate().unwrap();
    let unreachable = opener.discovery.open_run(nobody.site_id(), Vec::new()).await;
    assert!(matches!(unreachable, Err(RunError::Unreachable(AskError::Unreachable))), "{unreachable:?}");

    let mut streams = Vec::new();
    while streams.len() < STREAMS_PER_PEER_MAX {
        streams.push(open(&taker, &mut inbound, &opener).await);
    }
    let more = opener.discovery.open_run(&site, Vec::new()).await;
    assert_eq!(more.unwrap_err(), RunError::TooMany);
    streams.pop();
    streams.push(open(&taker, &mut inbound, &opener).await);

    drop(inbound);
    streams.pop();
    let refused = opener.discovery.open_run(&site, Vec::new()).await;
    assert_eq!(refused.unwrap_err(), RunError::NotNow("the node is stopping".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_end_its_openings_keeps_nobody_else_out_and_is_blamed() {
    let mut victim = node_with(&[], |_| ()).await;
    let honest = node_with(&victim.discovery.listen_addresses(), |_| ()).await;
    eventually("they meet", || !honest.discovery.is_alone() && !victim.discovery.is_alone()).await;
    let mut inbound = victim.inbound.take_runs().unwrap();
    tokio::spawn(async move {
        let mut taken = Vec::new();
        while let Some(asked) = inbound.next().await {
            taken.push(asked.accept().await);
        }
    });

    let stalls = stranger(&victim).await;
    let mut stalled = Vec::new();
    while stalled.len() < 64 {
        let mut stream = stalls.stream(&victim, Purpose::Run).await.unwrap();
        // One half claims to be large.
        let claimed: u32 = if stalled.len() % 2 == 0 { 1 << 20 } else { 16 };
        futures::AsyncWriteExt::write_all(&mut stream, &claimed.to_be_bytes()).await.unwrap();
        futures::AsyncWriteExt::flush(&mut stream).await.unwrap();
        stalled.push(stream);
    }
    for bytes in [16, 1 << 20] {
        let opening = honest.discovery.open_run(victim.discovery.site_id(), vec![1; bytes]);
        let opened = timeout(Duration::from_secs(5), opening).await;
        assert!(matches!(opened, Ok(Ok(_))), "{bytes}: {opened:?}");
    }
    eventually("those that stall to be blamed", || counter(&victim, Counter::Offences) >= 16).await;
}
