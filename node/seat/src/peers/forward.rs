//! Carries connections between the seats of a run.
//!
//! For each seat of a run that is to reach others, its site picks a loopback address for every seat of the run, and listens on those of the
//! others. A connection there is carried over a stream to the site of the seat that it is for, which connects to that seat's own address.
//! Invariants: only connections that the command of the run has opened are carried, and only to what it has opened itself ([`RunCommand`]); a
//! site takes a connection only from a site that the order of its own seat names for that run, to a port that the order names; connections
//! are bounded, and end with the run. Listeners and connections count against the share of open files of the account that the run is on.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener as StdListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use broker::{ids::SiteId, trust::PublicKey};
use discovery::{Discovery, RunAsked, RunError as StreamError, opening::Answer, wire};
use kolo_runtime::{
    divided::{Divided, Part},
    lock::locked,
};
use kolo_trust::random_bytes;
use socket2::SockRef;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{self, Instant},
};
use tracing::{debug, warn};

use super::{command::RunCommand, order::Peers};
use crate::{
    directory::Task,
    keepers::{Keepers, RunId},
    opening::{Opening, PeerOpening},
};

/// Connections that a seat has to others, and others have to it.
const OF_SEAT_MAX: usize = 64;
/// Connections from this site to another one; fewer than the streams of a peer, so that runs there are still heard.
const TO_SITE_MAX: usize = 48;
/// How long a connection waits for the other seat to listen.
const LISTEN_MAX: Duration = Duration::from_secs(60);
/// How long the other seat's site waits for that, before it is asked again.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// How often addresses are picked that turn out to be in use.
const PICKS_MAX: u32 = 16;

/// The runs of a site whose seats reach each other.
pub struct Forwarders {
    discovery: Discovery,
    runs: Mutex<BTreeMap<RunId, Forwarder>>,
    to_sites: Mutex<BTreeMap<SiteId, Arc<Semaphore>>>,
    /// Open files for runs.
    files: Arc<Divided>,
    /// Held by who looks whose a connection is: one at a time, in the order in which they came.
    checks: tokio::sync::Mutex<()>,
}

/// One of them; what it carries ends when this goes.
struct Forwarder {
    command: RunCommand,
    peers: Peers,
    /// The address of the seat itself.
    own: Ipv4Addr,
    inbound: Arc<Semaphore>,
    ends: watch::Sender<()>,
    /// The share of the open files that its listeners take.
    part: Part,
}

/// The listeners of a seat, with the addresses by rank, before it is started.
pub struct Bound {
    /// By rank.
    pub addresses: Vec<Ipv4Addr>,
    listeners: Vec<(u32, StdListener)>,
    part: Part,
}

/// A way to a seat here, for a connection of one of its peers.
pub struct Target {
    command: RunCommand,
    address: SocketAddrV4,
    ends: watch::Receiver<()>,
    _place: OwnedSemaphorePermit,
    _part: Part,
}

/// What all connections from one seat to one other seat's port share.
struct Route {
    site: SiteId,
    opening: Vec<u8>,
    /// Whose connections are carried.
    command: RunCommand,
    account: PublicKey,
    places: Arc<Semaphore>,
}

impl Bound {
    /// Picks addresses that no other run has, and listens on those of the other seats.
    ///
    /// # Errors
    /// When the system lets nobody listen there.
    pub fn pick(peers: &Peers, rank: u32, part: Part) -> io::Result<Bound> {
        let mut tries = 0;
        loop {
            let addresses = random_addresses(peers.seats.len()).map_err(io::Error::other)?;
            match listeners_at(&addresses, peers, rank) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < PICKS_MAX => tries += 1,
                listeners => return Ok(Bound { addresses, listeners: listeners?, part }),
            }
        }
    }
}

/// Listens at the addresses of the other seats, by rank.
fn listeners_at(addresses: &[Ipv4Addr], peers: &Peers, rank: u32) -> io::Result<Vec<(u32, StdListener)>> {
    let listen = |(other, port)| {
        let address = usize::try_from(other).ok().and_then(|other: usize| addresses.get(other));
        let listener = StdListener::bind(SocketAddrV4::new(*address.ok_or(io::ErrorKind::InvalidInput)?, port))?;
        listener.set_nonblocking(true)?;
        Ok((other, listener))
    };
    peers.listeners_of(rank).map(listen).collect()
}

/// So many addresses in a row, away from those that are used by hand.
fn random_addresses(count: usize) -> Result<Vec<Ipv4Addr>, kolo_trust::TrustFileError> {
    let [second, third, fourth] = random_bytes()?;
    let first = u32::from(Ipv4Addr::new(127, 16 + second % 224, third, fourth));
    Ok((first..).take(count).map(Ipv4Addr::from).collect())
}

impl Forwarders {
    /// No runs yet; what they take of the open files is out of `files`.
    pub fn new(discovery: Discovery, files: Arc<Divided>) -> Forwarders {
        Forwarders { discovery, runs: Mutex::default(), to_sites: Mutex::default(), files, checks: Default::default() }
    }

    /// Goes on with a run that an earlier node has started for `account`, where that has listened.
    pub fn resume(self: &Arc<Self>, task: &Task, keepers: &Arc<Keepers>, account: PublicKey) {
        let (Some(peers), rank) = (&task.order.peers, task.order.rank) else { return };
        let again = || {
            let part = self.files.take(account, peers.listeners_of(rank).count()).map_err(io::Error::other)?;
            let addresses = task.addresses.clone();
            let listeners = listeners_at(&addresses, peers, rank)?;
            self.open(task, keepers, Bound { addresses, listeners, part })
        };
        if let Err(error) = again() {
            warn!(%error, request = %task.order.request, "a seat that goes on reaches no others");
        }
    }

    /// Carries what comes on these listeners, until the run has ended.
    ///
    /// # Errors
    /// When the listeners cannot be used.
    pub fn open(self: &Arc<Self>, task: &Task, keepers: &Arc<Keepers>, bound: Bound) -> io::Result<()> {
        let order = &task.order;
        let own = usize::try_from(order.rank).ok().and_then(|rank| bound.addresses.get(rank));
        let (Some(peers), Some(own)) = (&order.peers, own) else { return Ok(()) };
        let command = RunCommand::of(task, keepers)?;
        let (account, (ends, ended)) = (bound.part.account(), watch::channel(()));
        let places = Arc::new(Semaphore::new(OF_SEAT_MAX));
        for (rank, listener) in bound.listeners {
            let peer = usize::try_from(rank).ok().and_then(|rank| peers.seats.get(rank));
            let peer = peer.ok_or(io::ErrorKind::InvalidInput)?;
            let opening = Opening::Peer(PeerOpening {
                user: task.user,
                request: order.request.clone(),
                run: order.run,
                from: order.seat,
                to: peer.seat,
                port: listener.local_addr()?.port(),
            });
            let opening = wire::encode(&opening).map_err(io::Error::other)?;
            let (command, places) = (command.clone(), Arc::clone(&places));
            let route = Route { site: peer.site.clone(), opening, command, account, places };
            let (forwarders, listener) = (Arc::clone(self), TcpListener::from_std(listener)?);
            tokio::spawn(until(ended.clone(), forwarders.listen(listener, route, ended.clone())));
        }
        let inbound = Arc::new(Semaphore::new(OF_SEAT_MAX));
        let (part, peers) = (bound.part, peers.clone());
        locked(&self.runs).insert(command.run().clone(), Forwarder { command, peers, own: *own, inbound, ends, part });
        Ok(())
    }

    /// Ends what is carried for runs that are over.
    pub fn sweep(&self, keepers: &Keepers) {
        let known: Vec<RunId> = locked(&self.runs).keys().cloned().collect();
        // The disk is asked while nobody waits: connections that come in look here.
        let over: Vec<RunId> = known.into_iter().filter(|id| !keepers.goes_on(id)).collect();
        locked(&self.runs).retain(|id, _| !over.contains(id));
    }

    /// Ends what is carried for a run.
    pub fn close(&self, id: &RunId) {
        locked(&self.runs).remove(id);
    }

    /// Where a connection leads that the site `from` wants to a seat here.
    ///
    /// # Errors
    /// Why it leads nowhere.
    pub fn target(&self, wanted: &PeerOpening, from: &SiteId) -> Result<Target, Answer> {
        let PeerOpening { user, request, run, to, port, .. } = wanted;
        let id = RunId { user: *user, request: request.clone(), seat: *to, run: *run };
        let runs = locked(&self.runs);
        // It may be started in a moment, or taken up again.
        let run = runs.get(&id).ok_or_else(|| Answer::NotNow("the seat does not run there".to_owned()))?;
        let is_peer = run.peers.seats.iter().any(|peer| peer.seat == wanted.from && peer.site == *from);
        let is_reached = run.peers.rank_of(*to).is_some_and(|rank| run.peers.has_port(rank, *port));
        if !is_peer || !is_reached {
            return Err(Answer::Refused("the user of the run has not named this seat and port".to_owned()));
        }
        let place = Arc::clone(&run.inbound).try_acquire_owned();
        let place = place.map_err(|_| Answer::NotNow("as many connections lead to the seat as may be".to_owned()))?;
        let part = self.files.take(run.part.account(), 1).map_err(|none| Answer::NotNow(none.to_string()))?;
        let (address, command) = (SocketAddrV4::new(run.own, *port), run.command.clone());
        Ok(Target { command, address, ends: run.ends.subscribe(), _place: place, _part: part })
    }

    async fn listen(self: Arc<Self>, listener: TcpListener, route: Route, ended: watch::Receiver<()>) {
        let route = Arc::new(route);
        loop {
            // One that cannot be taken is gone, or there are no descriptors left; the next may do.
            let Ok((stream, from)) = listener.accept().await else {
                time::sleep(PAUSE).await;
                continue;
            };
            let place = Arc::clone(&route.places).try_acquire_owned().ok().zip(self.files.take(route.account, 1).ok());
            let Some(place) = place else {
                break_off(&stream);
                continue;
            };
            let (forwarders, route) = (Arc::clone(&self), Arc::clone(&route));
            let carried = async move {
                let _place = place;
                if let Err(error) = forwarders.carry(stream, from, &route).await {
                    debug!(%error, site = %route.site, "a connection to a peer was cut off");
                }
            };
            tokio::spawn(until(ended.clone(), carried));
        }
    }

    async fn carry(&self, mut stream: TcpStream, from: SocketAddr, route: &Route) -> io::Result<()> {
        let carried = async {
            let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, stream.local_addr()?) else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            self.check_opened(&route.command, from, to).await?;
            stream.set_nodelay(true)?;
            let (mut run, _place) = self.reach(route).await?;
            copy_bidirectional(&mut stream, &mut run).await
        };
        let ended = carried.await;
        if ended.is_err() {
            break_off(&stream);
        }
        ended.map(drop)
    }

    /// Checks that a connection is the command's. After one that is not the next look waits for twice the time that this one took: whoever
    /// connects to the ports of others without end costs the node a third of a processor at most.
    async fn check_opened(&self, command: &RunCommand, from: SocketAddrV4, to: SocketAddrV4) -> io::Result<()> {
        let _one = self.checks.lock().await;
        let begun = Instant::now();
        let checked = tokio::task::block_in_place(|| command.check_opened(from, to));
        if checked.is_err() {
            time::sleep(2 * begun.elapsed()).await;
        }
        checked
    }

    /// A stream to the other seat, and a place for it; asks until that listens.
    async fn reach(&self, route: &Route) -> io::Result<(discovery::RunStream, OwnedSemaphorePermit)> {
        let until = Instant::now() + LISTEN_MAX;
        loop {
            let why = match self.place_to(&route.site) {
                None => "as many connections lead to its site as may be".to_owned(),
                Some(place) => match self.discovery.open_run(&route.site, route.opening.clone()).await {
                    Ok(stream) => return Ok((stream, place)),
                    Err(error @ (StreamError::Refused(_) | StreamError::Wanting(..) | StreamError::TooLarge(_))) => {
                        return Err(io::Error::other(error));
                    }
                    Err(error) => error.to_string(),
                },
            };
            if Instant::now() >= until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            time::sleep(PAUSE).await;
        }
    }

    fn place_to(&self, site: &SiteId) -> Option<OwnedSemaphorePermit> {
        let mut to_sites = locked(&self.to_sites);
        to_sites.retain(|_, places| places.available_permits() < TO_SITE_MAX);
        let places = to_sites.entry(site.clone()).or_insert_with(|| Arc::new(Semaphore::new(TO_SITE_MAX)));
        Arc::clone(places).try_acquire_owned().ok()
    }
}

impl Target {
    /// Connects the two, once the command listens.
    ///
    /// # Errors
    /// When one of them breaks off.
    pub async fn serve(self, asked: RunAsked) -> io::Result<()> {
        let Target { command, address, ends, _place, _part } = self;
        let carried = async {
            let mut stream = match time::timeout(CONNECT_MAX, connect(address, &command)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) if error.kind() == io::ErrorKind::AddrInUse => {
                    return refuse(asked, Answer::Refused(error.to_string())).await;
                }
                Ok(Err(error)) => {
                    return refuse(asked, Answer::NotNow(format!("the seat cannot be reached: {error}"))).await;
                }
                Err(_) => {
                    let why = format!("nothing listens on port {} of the seat", address.port());
                    return refuse(asked, Answer::NotNow(why)).await;
                }
            };
            let mut run = asked.accept().await?;
            let ended = copy_bidirectional(&mut run, &mut stream).await;
            if ended.is_err() {
                break_off(&stream);
            }
            ended.map(drop)
        };
        tokio::select! {
            ended = carried => ended,
            () = is_over(ends) => Ok(()),
        }
    }
}

async fn refuse(asked: RunAsked, answer: Answer) -> io::Result<()> {
    asked.refuse(&answer).await;
    Ok(())
}

/// A connection to what the command listens with at `address`, once it does; `AddrInUse` where something else does.
async fn connect(address: SocketAddrV4, command: &RunCommand) -> io::Result<TcpStream> {
    loop {
        let stream = match TcpStream::connect(address).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                time::sleep(PAUSE).await;
                continue;
            }
            connected => connected?,
        };
        let SocketAddr::V4(from) = stream.local_addr()? else { return Err(io::ErrorKind::Unsupported.into()) };
        if !tokio::task::block_in_place(|| command.takes(address, from))? {
            let why = format!("something that is not of the run listens on port {} of the seat", address.port());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        }
        stream.set_nodelay(true)?;
        return Ok(stream);
    }
}

/// The other side is to see a connection that was broken off, and no end.
fn break_off(stream: &TcpStream) {
    // An error says that it is gone already.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

async fn is_over(mut ends: watch::Receiver<()>) {
    // Nothing is ever sent: it ends with its sender.
    while ends.changed().await.is_ok() {}
}

async fn until(ends: watch::Receiver<()>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        () = is_over(ends) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{super::order::tests::peers, *};

    #[test]
    fn addresses_are_loopback_and_away_from_the_usual_ones() {
        for _ in 0..200 {
            let addresses = random_addresses(300).unwrap();
            assert!(addresses.iter().all(|one| one.is_loopback() && one.octets()[1] >= 16), "{addresses:?}");
        }
    }

    #[test]
    fn a_seat_listens_for_the_others_and_not_for_itself_and_never_twice_at_one_place() {
        let (files, account) = (Divided::new("open files", 16), PublicKey::from_bytes([1; 32]));
        let bind = |rank| {
            let part = files.take(account, peers().listeners_of(rank).count()).unwrap();
            Bound::pick(&peers(), rank, part).unwrap()
        };
        let (first, other) = (bind(1), bind(0));
        let at = |bound: &Bound| -> Vec<(u32, SocketAddr)> {
            bound.listeners.iter().map(|(rank, one)| (*rank, one.local_addr().unwrap())).collect()
        };
        assert_eq!(at(&first), [29500, 4000].map(|port| (0, SocketAddr::from((first.addresses[0], port)))));
        assert_eq!(at(&other), [(1, SocketAddr::from((other.addresses[1], 4000)))], "29500 is rank 0's alone");
        let again = listeners_at(&first.addresses, &peers(), 1).map(|_| ());
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(files.taken()[&account], 3, "one for each listener");
        drop((first, other));
        assert!(files.taken().is_empty());
    }
}
