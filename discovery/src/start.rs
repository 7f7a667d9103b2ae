//! Starting the peer-to-peer layer: listening first, everything else behind it.
//!
//! Invariant: when [`start`] returns, the node listens on every configured address; if it cannot, nothing runs.

use std::{io, sync::Arc, time::Duration};

use futures::StreamExt as _;
use libp2p::{Multiaddr, Swarm, TransportError, multiaddr::Protocol, swarm::SwarmEvent};
use tokio::{sync::mpsc, time};

use crate::{
    addresses::DialFilter,
    config::{ConfigError, DiscoveryConfig},
    core::Core,
    counters::Counters,
    direct::{Inbound, Serving, inbound::InboundQueue, schedules::ScheduleServer},
    dissemination::{Checks, exchange, fetch_queue::FetchQueue, fetching},
    handle::Discovery,
    health::PeerHealth,
    identity::{Identity, IdentityError},
    link::Links,
    membership::revocations,
    run::{self, Runs},
    shared::Shared,
    swarm_task::{Behaviour, SetUpError, StreamsAsked, SwarmTask, build_swarm},
    tasks::Tasks,
    view::SharedView,
    wire::Dialect,
};

/// Starts the peer-to-peer layer. It must be called on a tokio runtime of several threads, with timers and
/// network.
///
/// # Errors
/// [`StartError`] when a setting cannot be used or an address cannot be listened on.
pub async fn start(identity: Identity, config: DiscoveryConfig) -> Result<(Discovery, Inbound), StartError> {
    start_speaking(identity, config, Dialect::default()).await
}

/// Starts a node that speaks `dialect`.
pub(crate) async fn start_speaking(
    identity: Identity,
    config: DiscoveryConfig,
    dialect: Dialect,
) -> Result<(Discovery, Inbound), StartError> {
    config.check()?;
    let counters = Arc::new(Counters::default());
    let dials = Arc::new(DialFilter::new(&config.bootstrap, &config.dial_ranges));
    let mut swarm = build_swarm(&identity.keypair()?, &config, (dialect.asks, &dials), Arc::clone(&counters))?;
    listen(&mut swarm, &config.listen).await?;

    let times = &config.intervals;
    let health = PeerHealth::default();
    let fetches = FetchQueue::new(health.clone(), config.limits.sites_max, times.repair_jitter, times.repair_patience);
    let view = SharedView::new(
        identity.site_id().clone(),
        (config.limits.sites_max, config.limits.sites_eager_max),
        fetches.clone(),
        Arc::clone(&counters),
    );
    let (queue, mut inbound) = InboundQueue::new(config.limits.inbound_queue);
    let (schedules, serve_schedules) = ScheduleServer::new(Arc::clone(&config.schedules), Arc::clone(&counters));
    let (commands, command_queue) = mpsc::channel(config.limits.commands);
    let exchanges = config.gossip;
    let shared = Arc::new(Shared::new(identity, (config, dialect, dials), view, health, counters));

    let core = Core::new(Arc::clone(&shared), commands, queue.clone(), schedules.clone());
    let serving = Serving::new(Arc::clone(&shared), queue, schedules);
    let (checks, checker) = Checks::new(Arc::clone(&shared));
    let links = Arc::new(Links::new(core.clone()));
    let (link_asked, links_asked) = mpsc::channel(1);
    let (runs, run_inbound) = Runs::new(core.clone());
    inbound.set_runs(run_inbound);
    let (run_asked, runs_asked) = mpsc::channel(run::STREAMS_PER_PEER_MAX);
    let asked = StreamsAsked { link: link_asked, run: run_asked };
    let mut task = SwarmTask::new(swarm, shared, command_queue, (serving, asked), checks);
    task.tell_addresses();
    let mut tasks = Tasks::new();
    tasks.spawn("swarm", task.run());
    tasks.spawn_fed("checks", checker.run());
    tasks.spawn("schedules", serve_schedules);
    tasks.spawn("fetching", fetching::run(core.clone(), fetches));
    tasks.spawn_fed("links", Arc::clone(&links).serve(links_asked));
    tasks.spawn_fed("runs", Arc::clone(&runs).serve(runs_asked));
    tasks.spawn("revocations", revocations::run(core.clone()));
    if exchanges {
        tasks.spawn("exchange", exchange::run(core.clone()));
    }
    Ok((Discovery::new(core, (links, runs), tasks), inbound))
}

/// Listening takes a system call or two; this is for a machine in trouble.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

async fn listen(swarm: &mut Swarm<Behaviour>, addresses: &[Multiaddr]) -> Result<(), StartError> {
    for address in addresses {
        refuse_address_in_use(address)?;
        let failed = |why: String| StartError::Listen { address: address.clone(), why };
        let listener = swarm.listen_on(address.clone()).map_err(|error| listen_error(address, &error))?;
        let listening = async {
            loop {
                match swarm.select_next_some().await {
                    SwarmEvent::NewListenAddr { listener_id, .. } if listener_id == listener => return Ok(()),
                    SwarmEvent::ListenerClosed { listener_id, reason, .. } if listener_id == listener => {
                        return Err(failed(reason.err().map_or("closed".to_owned(), |error| error.to_string())));
                    }
                    _ => {}
                }
            }
        };
        time::timeout(LISTEN_TIMEOUT, listening)
            .await
            .map_err(|_| failed("no answer from the system".to_owned()))??;
    }
    Ok(())
}

/// Why discovery could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another process listens on the address.
    #[error(
        "{address} is in use, and other sites know this one by it, so it does not start at another: end what listens there (another node \
         of this site?), or configure another address (listen, --listen) and give it to those who bootstrap from this node"
    )]
    AddressInUse {
        /// The address.
        address: Multiaddr,
    },
    /// The address cannot be listened on for another reason.
    #[error("cannot listen on {address}: {why}")]
    Listen {
        /// The address.
        address: Multiaddr,
        /// What went wrong.
        why: String,
    },
    /// The protocols could not be set up.
    #[error(transparent)]
    SetUp(#[from] SetUpError),
    /// The key cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// libp2p listens with `SO_REUSEPORT` (it dials from the listening port), so that a second node of the same user on the
/// same port would not fail but take half of the first one's connections. A plain bind finds out.
fn refuse_address_in_use(address: &Multiaddr) -> Result<(), StartError> {
    let mut parts = address.iter();
    let ip = match parts.next() {
        Some(Protocol::Ip4(ip)) => ip.into(),
        Some(Protocol::Ip6(ip)) => std::net::IpAddr::from(ip),
        _ => return Ok(()),
    };
    let bound = match parts.next() {
        Some(Protocol::Tcp(port)) if port != 0 => std::net::TcpListener::bind((ip, port)).map(drop),
        Some(Protocol::Udp(port)) if port != 0 => std::net::UdpSocket::bind((ip, port)).map(drop),
        _ => return Ok(()),
    };
    match bound {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(StartError::AddressInUse { address: address.clone() })
        }
        // Any other trouble appears again, with its reason, when libp2p listens.
        _ => Ok(()),
    }
}

fn listen_error(address: &Multiaddr, error: &TransportError<io::Error>) -> StartError {
    let address = address.clone();
    match error {
        TransportError::Other(error) if error.kind() == io::ErrorKind::AddrInUse => {
            StartError::AddressInUse { address }
        }
        // The memory transport knows only this one trouble with listening: the port is taken.
        TransportError::Other(_) if matches!(address.iter().next(), Some(Protocol::Memory(_))) => {
            StartError::AddressInUse { address }
        }
        TransportError::Other(error) => StartError::Listen { address, why: error.to_string() },
        TransportError::MultiaddrNotSupported(_) => StartError::Listen {
            address,
            why: "expected an address such as /ip4/0.0.0.0/tcp/7741 or /ip4/0.0.0.0/udp/7741/quic-v1".to_owned(),
        },
    }
}
