//! A wide-area network between the nodes: everything that is sent to a node passes through a proxy of the harness, which
//! lets it arrive late.
//!
//! A node listens at an address that only its proxy knows, and announces that of the proxy. What is modelled:
//!
//! - every byte takes `latency` from node to node, in either direction; opening a connection takes a round trip more;
//! - TCP hides loss, so loss is time: of the segments of 1,400 bytes the share `loss` arrives only after a retransmission
//!   ([`RETRANSMIT_AFTER`] and a round trip, doubled when the repetition is lost as well), and what was sent behind it on
//!   the same connection waits, as TCP delivers in order.
//!
//! Not modelled: limits of bandwidth, and what TCP does to its sending rate after a loss. Invariant: nothing overtakes
//! within one direction of a connection, and what waits there is bounded by [`WAITING_MAX`] segments; a sender that is
//! further ahead has to wait, as with a full TCP window.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use rand::RngExt;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::{Semaphore, mpsc},
    time::{Instant, sleep, sleep_until},
};

use super::place::{NODES, PROXIES, Place, own_loopback};

/// Bytes that are lost together.
const SEGMENT_BYTES: usize = 1400;
/// Segments on the way in one direction of a connection: 5.6 MiB, more than a round trip's worth of anything here.
const WAITING_MAX: usize = 4096;
/// The shortest retransmission time-out of TCP on Linux.
const RETRANSMIT_AFTER: Duration = Duration::from_millis(200);
/// Repetitions of one segment that can be lost.
const REPEATS_MAX: u32 = 6;
/// Connections at a time through all proxies; more are not accepted until one ends.
const CONNECTIONS_MAX: usize = 20_000;
/// Pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Largest loss: above it TCP gives up rather than being slow.
const LOSS_MAX_PERCENT: f64 = 50.0;

/// How far apart the nodes are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// From node to node, one way.
    pub latency: Duration,
    /// Share of the segments that are lost, 0 to 0.5.
    pub loss: f64,
}

/// Reads a share such as `1%` or `0.5%`.
///
/// # Errors
/// What was expected.
pub fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=LOSS_MAX_PERCENT).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| format!("expected 0% to {LOSS_MAX_PERCENT}%, got {text:?}"))
}

/// The proxies; they end when this is dropped.
pub struct Wan {
    runtime: Runtime,
    distance: Distance,
    seed: u64,
    places: Arc<Semaphore>,
}

impl Wan {
    /// No node is behind it yet.
    pub fn start(distance: Distance, seed: u64) -> anyhow::Result<Wan> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("wan")
            .enable_all()
            .build()
            .context("cannot start the proxies")?;
        Ok(Wan { runtime, distance, seed, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) })
    }

    /// A place behind a proxy for the node with number `index`. The node's own port was free a moment ago; as each node has
    /// an address of its own, nobody else takes it.
    pub fn place(&self, index: usize) -> anyhow::Result<Place> {
        let open = || -> io::Result<_> {
            let node = std::net::TcpListener::bind((own_loopback(NODES, index), 0))?.local_addr()?;
            let proxy = std::net::TcpListener::bind((own_loopback(PROXIES, index), 0))?;
            proxy.set_nonblocking(true)?;
            let _entered = self.runtime.enter();
            Ok((node, proxy.local_addr()?, TcpListener::from_std(proxy)?))
        };
        let (node, announced, listener) = open().context("cannot find a port for a proxy")?;
        let seed = self.seed.wrapping_add((index as u64) << 32);
        self.runtime.spawn(accept(listener, node, self.distance, seed, Arc::clone(&self.places)));
        let multiaddr = |address: SocketAddr| format!("/ip4/{}/tcp/{}", address.ip(), address.port());
        Ok(Place { announce: Some(multiaddr(announced)), ..Place::at(multiaddr(node)) })
    }
}

async fn accept(listener: TcpListener, node: SocketAddr, distance: Distance, seed: u64, places: Arc<Semaphore>) {
    let mut connections = 0_u64;
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((dialler, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        connections += 1;
        let seed = seed.wrapping_add(connections * 2);
        tokio::spawn(async move {
            // A failing connection ends as it would without a proxy: the other side sees it closed.
            let _ = pass_on(dialler, node, distance, seed).await;
            drop(place);
        });
    }
}

/// Passes one connection on, to its end.
async fn pass_on(dialler: TcpStream, node: SocketAddr, distance: Distance, seed: u64) -> io::Result<()> {
    dialler.set_nodelay(true)?;
    // The three messages by which TCP opens a connection.
    sleep(distance.latency * 2).await;
    let node = TcpStream::connect(node).await?;
    node.set_nodelay(true)?;
    let (from_dialler, to_dialler) = dialler.into_split();
    let (from_node, to_node) = node.into_split();
    tokio::join!(
        pump(from_dialler, to_node, Way::new(distance, seed)),
        pump(from_node, to_dialler, Way::new(distance, seed + 1)),
    );
    Ok(())
}

/// Passes one direction on until its sender ends it, or its receiver is gone. The end arrives late as well.
async fn pump(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, mut way: Way) {
    let (sender, mut waiting) = mpsc::channel::<(Instant, Vec<u8>)>(WAITING_MAX);
    let read = async move {
        let mut segment = vec![0; SEGMENT_BYTES];
        loop {
            let length = from.read(&mut segment).await.unwrap_or(0);
            let sent = sender.send((way.arrival(Instant::now()), segment[..length].to_vec())).await;
            if sent.is_err() || length == 0 {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due, segment)) = waiting.recv().await {
            sleep_until(due).await;
            if segment.is_empty() || to.write_all(&segment).await.is_err() {
                break;
            }
        }
        // An error says that the receiver is gone already.
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}

/// One direction of a connection: when what is sent now arrives. Pure.
struct Way {
    distance: Distance,
    random: Xoshiro256PlusPlus,
    latest: Option<Instant>,
}

impl Way {
    fn new(distance: Distance, seed: u64) -> Way {
        Way { distance, random: Xoshiro256PlusPlus::seed_from_u64(seed), latest: None }
    }

    fn arrival(&mut self, sent: Instant) -> Instant {
        let mut wait = RETRANSMIT_AFTER + self.distance.latency * 2;
        let mut late = self.distance.latency;
        for _ in 0..REPEATS_MAX {
            if !self.random.random_bool(self.distance.loss) {
                break;
            }
            late += wait;
            wait *= 2;
        }
        let due = self.latest.map_or(sent + late, |latest| latest.max(sent + late));
        self.latest = Some(due);
        due
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        time::Instant,
    };

    use super::*;

    fn distance(latency_ms: u64, loss: f64) -> Distance {
        Distance { latency: Duration::from_millis(latency_ms), loss }
    }

    #[test]
    fn a_share_needs_its_sign_and_has_bounds() {
        assert_eq!(share("1%").unwrap(), 0.01);
        assert_eq!(share("0.5%").unwrap(), 0.005);
        for bad in ["1", "%", "-1%", "51%", "NaN%", "x%"] {
            assert!(share(bad).unwrap_err().starts_with("expected 0% to 50%"), "{bad}");
        }
    }

    #[test]
    fn without_loss_everything_takes_the_latency() {
        let zero = tokio::time::Instant::now();
        let mut way = Way::new(distance(40, 0.0), 1);
        for ms in [0, 1, 5, 5] {
            let sent = zero + Duration::from_millis(ms);
            assert_eq!(way.arrival(sent), sent + Duration::from_millis(40));
        }
    }

    #[test]
    fn the_lost_share_is_late_by_a_retransmission_and_nothing_overtakes() {
        let zero = tokio::time::Instant::now();
        let mut way = Way::new(distance(40, 0.1), 7);
        let mut late = 0;
        let mut latest = zero;
        // Far enough apart that nothing waits for what was sent before it.
        for number in 0..2000_u32 {
            let sent = zero + Duration::from_secs(60) * number;
            let arrived = way.arrival(sent);
            assert!(arrived >= latest);
            latest = arrived;
            match (arrived - sent).as_millis() {
                40 => {}
                320.. => late += 1,
                other => panic!("after {other} ms"),
            }
        }
        assert!((150..250).contains(&late), "{late} of 2000 were late");
        let mut full = Way::new(distance(40, 0.5), 7);
        let arrivals: Vec<_> = (0..500).map(|_| full.arrival(zero)).collect();
        assert!(arrivals.is_sorted() && arrivals[499] > zero + Duration::from_secs(1));
    }

    #[test]
    fn a_proxy_passes_on_what_is_sent_late_and_whole_and_the_end_too() {
        let wan = Wan::start(distance(30, 0.0), 1).unwrap();
        let place = wan.place(200).unwrap();
        let socket = |multiaddr: &str| multiaddr.trim_start_matches("/ip4/").replace("/tcp/", ":");
        let node = TcpListener::bind(socket(&place.listen)).unwrap();
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = node.accept().unwrap();
            let mut received = Vec::new();
            let mut part = [0; 5];
            stream.read_exact(&mut part).unwrap();
            stream.write_all(&part).unwrap();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        let begun = Instant::now();
        let mut stream = TcpStream::connect(socket(place.announce.as_deref().unwrap())).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        // A round trip to open the connection, and one for the question.
        assert!(begun.elapsed() >= Duration::from_millis(120), "{:?}", begun.elapsed());
        assert_eq!(&answer, b"hello");
        let large: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        stream.write_all(&large).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(echo.join().unwrap() == large);
    }
}
