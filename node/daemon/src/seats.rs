//! The site's end of streams to its seats: checks what a user wants, starts the keeper or comes back to it, and then carries bytes.
//!
//! Invariants: a run starts only for the user whose confirmed seat it is, within the seat's window, and once; every refusal says why; what
//! runs ends with its seat, and goes on as long as its seat: within [`SWEEP_EVERY`] and a moment. Whoever is revoked, or denied by the
//! owner, opens nothing, and what runs for such a user ends likewise; what is reserved stays.

pub mod allowed;
mod check;
mod stopped;
mod sweep;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use broker::{
    ids::{HostId, RequestId, SeatNumber, SiteId},
    ledger::Booking,
    protocol::{AttemptId, Grant},
    time::Time,
    trust::PublicKey,
};
use discovery::{
    Discovery, RunAsked, RunInbound, RunStream,
    opening::{Answer, Want},
};
use kolo_runtime::{
    audit::{AuditLine, AuditLog, By},
    clock::{Clock, unix_ms},
    divided::{Divided, NoneLeft, Part},
    lock::locked,
};
use kolo_seat::{
    Confinement, Keepers, RunError, RunId, RunNumber, RunOrder, Task,
    carry::carry,
    confine_error::ConfineError,
    directory::{RunState, is_disk_full},
    files::{
        order::{FilesOrder, FilesWish, Patterns},
        serve::{self, SeatFiles, Stores, Work},
    },
    keepers::KeptRun,
    opening::{Opening, Wish},
    peers::{
        forward::{Bound, Forwarders, Target},
        order::Peers,
    },
};
use tokio::{
    net::UnixStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};
use tracing::{debug, info, warn};

use self::check::{Bases, is_worth_reading, memory_of, seat_end, usable_seat};
use crate::site::{task::SharedLedger, usable::Usable};

/// How often it is seen which files are wanted no longer.
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// How often it is seen whether the seats of what runs are still booked.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What a seat has of the processors, in thousandths of one, where its host counts them.
fn cpu_of(grant: &Grant) -> Option<u64> {
    grant.amounts.iter().find(|(name, _)| name.as_str() == "cpu").map(|(_, amount)| amount.0)
}

/// Which part of a short window is its grace.
const GRACE_PART: u32 = 10;

/// Most connections of users to runs; as many as a node opens streams to other sites.
const STREAMS_MAX: usize = 512;
/// Files that a transfer has open at once: the one that is carried, its directory and the one above it.
const FILES_OF_TRANSFER: usize = 3;

/// How runs are kept.
#[derive(Debug, Clone)]
pub struct RunTerms {
    /// How long before the end of a long window a command is told to end; of a short one a tenth.
    pub grace_max: Duration,
    /// Most output of a run that is kept, in bytes, of each of its two outputs.
    pub spool_bytes: u64,
    /// Where scratch directories are made.
    pub scratch_in: PathBuf,
    /// How commands are confined, but for what depends on the seat.
    pub confinement: Confinement,
}

/// A run whose seat is watched.
#[derive(Debug, Clone)]
struct Watched {
    host: HostId,
    /// When it ends, as its keeper knows.
    deadline: Time,
}

impl Watched {
    fn of(task: &Task) -> Watched {
        Watched { host: task.host.clone(), deadline: task.deadline }
    }
}

/// The files that this process may have open for runs, divided among the accounts of the site's users.
#[derive(Debug, Clone)]
pub struct RunShares {
    /// Streams to runs, and to their files.
    pub streams: Arc<Divided>,
    /// Listeners for the ports of runs, and connections to these.
    pub open_files: Arc<Divided>,
}

/// Where users' runs are started.
pub struct RunSite {
    site: SiteId,
    grid: String,
    ledger: SharedLedger,
    usable: Usable,
    clock: Clock,
    audit: Arc<AuditLog>,
    /// None where nothing was ever run.
    keepers: Option<Arc<Keepers>>,
    /// None where the owner lets nothing start.
    terms: Option<Mutex<RunTerms>>,
    /// Where files of users are kept that runs to come want.
    stores: Stores,
    /// Places for connections of users to runs, here and elsewhere.
    places: Arc<Semaphore>,
    /// What carries connections between seats.
    forwarders: Arc<Forwarders>,
    shares: RunShares,
    /// What was started, until it is known to be over.
    started: Mutex<BTreeMap<RunId, Watched>>,
    /// Locked before the ledger.
    bases: Mutex<Bases>,
    /// The owner's reason for which nothing may run.
    stopped: Mutex<Option<String>>,
}

impl RunSite {
    /// Runs of `site` in `grid`; what is left of earlier ones is ended too where nothing may start.
    pub fn new(
        (discovery, grid): (&Discovery, String),
        (ledger, usable): (SharedLedger, Usable),
        (clock, shares): (Clock, RunShares),
        audit: Arc<AuditLog>,
        (keepers, terms, stores): (Option<Arc<Keepers>>, Option<RunTerms>, Stores),
    ) -> RunSite {
        let known = keepers.as_ref().map(|keepers| keepers.list()).transpose().unwrap_or_default();
        let known: Vec<KeptRun> = known.into_iter().flatten().collect();
        let forwarders = Arc::new(Forwarders::new(discovery.clone(), shares.open_files.clone()));
        let goes_on = |run: &&KeptRun| !matches!(run.state, RunState::Ended(_));
        if let Some(keepers) = &keepers {
            let tasks = known.iter().filter(goes_on).map(|run| &run.task);
            tasks.for_each(|task| forwarders.resume(task, keepers, account_of_run(&ledger, task)));
        }
        let started = known.iter().map(|run| (RunId::of(&run.task), Watched::of(&run.task))).collect();
        let site = discovery.site_id().clone();
        let (places, started) = (Arc::new(Semaphore::new(STREAMS_MAX)), Mutex::new(started));
        let (bases, terms) = (Mutex::default(), terms.map(Mutex::new));
        RunSite {
            site,
            grid,
            ledger,
            usable,
            clock,
            audit,
            keepers,
            terms,
            stores,
            places,
            forwarders,
            shares,
            started,
            bases,
            stopped: Mutex::default(),
        }
    }

    /// The keepers, where anything runs or has run.
    pub fn keepers(&self) -> Option<&Arc<Keepers>> {
        self.keepers.as_ref()
    }

    /// Open files that the accounts of this site's users divide.
    pub fn shares(&self) -> &RunShares {
        &self.shares
    }

    /// How runs are kept that start now; none where none start.
    fn terms(&self) -> Option<RunTerms> {
        self.terms.as_ref().map(|terms| locked(terms).clone())
    }

    /// A place for the connection of one user to a run; none when there are as many as may be.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Takes streams until discovery stops.
    pub async fn serve(self: Arc<RunSite>, inbound: Option<RunInbound>) {
        let Some(mut inbound) = inbound else { return std::future::pending().await };
        let (mut streams, mut sweeping) = (JoinSet::new(), JoinSet::new());
        let mut sweep = tokio::time::interval(SWEEP_EVERY);
        let mut tidy = tokio::time::interval(TIDY_EVERY);
        loop {
            tokio::select! {
                asked = inbound.next() => match asked {
                    Some(asked) => drop(streams.spawn(Arc::clone(&self).take(asked))),
                    None => return,
                },
                Some(_) = streams.join_next(), if !streams.is_empty() => {}
                // Disk, locks and signatures are nothing for the workers of the network.
                _ = sweep.tick(), if sweeping.is_empty() => {
                    let site = Arc::clone(&self);
                    sweeping.spawn_blocking(move || site.sweep());
                }
                Some(_) = sweeping.join_next(), if !sweeping.is_empty() => {}
                _ = tidy.tick() => self.tidy(),
            }
        }
    }

    async fn take(self: Arc<RunSite>, asked: RunAsked) {
        let (from, site) = (asked.from.clone(), Arc::clone(&self));
        let opening = asked.opening.clone();
        // Signatures of long texts, the disk and the start of a process are nothing for the workers of the network.
        let opened = tokio::task::spawn_blocking(move || site.open(&opening, &from)).await;
        let opened = match opened.map_err(|error| Answer::NotNow(error.to_string())).flatten() {
            Ok(opened) => opened,
            Err(answer) => {
                debug!(from = %asked.from, ?answer, "no stream to a run");
                return asked.refuse(&answer).await;
            }
        };
        let ended = match opened {
            Opened::Run(keeper, _part) => connect(asked, keeper).await,
            Opened::Peer(target) => target.serve(asked).await,
            Opened::Files(work, run, _part) => self.serve_files(asked, &work, &run).await,
        };
        if let Err(error) = ended {
            debug!(%error, "a stream to a run was cut off");
        }
    }

    async fn serve_files(&self, asked: RunAsked, work: &Work, run: &OfRun) -> io::Result<()> {
        let stream = asked.accept().await?;
        tokio::select! {
            served = serve::serve(stream, work) => served.map_err(io::Error::other)?,
            // Whoever tries again is told why.
            denial = self.until_denied(&run.id) => return Err(io::Error::other(denial)),
        }
        if let (true, Some(keepers)) = (run.is_forgotten, &self.keepers) {
            tokio::task::block_in_place(|| keepers.forget(&run.id)).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Waits until the user of a run may use nothing here any more, and why.
    async fn until_denied(&self, id: &RunId) -> String {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            let denial = self.ledger.lock().denial_of(&id.user, &id.request).map(|denial| denial.to_string());
            if let Some(why) = denial.or_else(|| self.stop_notice()) {
                return why;
            }
        }
    }

    /// What is wanted, when the user may have it.
    fn open(&self, opening: &[u8], from: &SiteId) -> Result<Opened, Answer> {
        let refused = |why: &dyn std::fmt::Display| Answer::Refused(why.to_string());
        let opening = Opening::read(opening).map_err(|error| refused(&error))?;
        if let Opening::Peer(wanted) = &opening {
            return self.forwarders.target(wanted, from).map(Opened::Peer);
        }
        if !is_worth_reading(&self.ledger.lock(), &opening) {
            return Err(refused(&"this site has no reservation of this user"));
        }
        let now = self.clock.now().utc;
        let (user, wish) = opening.open_at(&self.site, &self.grid, now).map_err(|error| refused(&error))?;
        let Some(keepers) = &self.keepers else { return Err(nothing_runs()) };
        let denial = self.ledger.lock().denial_of(&user, wish.request());
        if let Some(denial) = denial {
            info!(%user, request = %wish.request(), %from, %denial, "no stream to a run");
            return Err(refused(&denial));
        }
        match wish {
            Wish::Start(order) => {
                let account = account_of(&self.ledger, &user, &order.request);
                let part = self.streams(account, 1)?;
                self.start(keepers, *order, (user, account), (now, from)).map(|keeper| Opened::Run(keeper, part))
            }
            Wish::Attach(order) => {
                let id = latest(keepers, (&order.request, order.seat, order.run), user);
                let id = id.map_err(|error| answer_of(&error))?;
                let run = keepers.find(&id).map_err(|error| answer_of(&error))?;
                let part = self.streams(account_of_run(&self.ledger, &run.task), 1)?;
                self.come_back(keepers, &id, &run, (now, from)).map(|keeper| Opened::Run(keeper, part))
            }
            Wish::Files(order) => self.files(keepers, order, user, (now, from)),
        }
    }

    /// The places of a stream that takes so many open files, for a user of `account`.
    fn streams(&self, account: PublicKey, count: usize) -> Result<Part, Answer> {
        self.shares.streams.take(account, count).map_err(|none| answer_of_none_left(&none))
    }

    /// What is to be done with files, for a user who may.
    fn files(
        &self,
        keepers: &Keepers,
        order: FilesOrder,
        user: PublicKey,
        (now, from): (Time, &SiteId),
    ) -> Result<Opened, Answer> {
        let FilesOrder { request, seat, run, wish, .. } = order;
        let stores = || {
            self.check_not_stopped()?;
            self.terms.as_ref().map(|_| &self.stores).ok_or_else(nothing_runs)
        };
        let of_run = || -> Result<(RunId, SeatFiles, Part), Answer> {
            let id = latest(keepers, (&request, seat, run), user).map_err(|error| answer_of(&error))?;
            let files = keepers.files(&id).map_err(|error| answer_of(&error))?;
            let run = keepers.find(&id).map_err(|error| answer_of(&error))?;
            let part = self.streams(account_of_run(&self.ledger, &run.task), FILES_OF_TRANSFER)?;
            Ok((id, files, part))
        };
        match wish {
            FilesWish::Keep { manifest } => {
                let id = RunId { user, request, seat, run: RunNumber(0) };
                self.usable(&id, now)?;
                let store = stores()?.of(&user, &id.request);
                let part = self.streams(account_of(&self.ledger, &user, &id.request), FILES_OF_TRANSFER)?;
                self.note("keep files", &id, from);
                Ok(Opened::Files(Work::Keep { store, manifest }, OfRun { id, is_forgotten: false }, part))
            }
            FilesWish::Put { manifest, directory } => {
                let (id, seat, part) = of_run()?;
                self.usable(&id, now)?;
                let store = stores()?.of(&user, &id.request);
                self.note("put files", &id, from);
                let work = Work::Put { store, manifest, seat, directory };
                Ok(Opened::Files(work, OfRun { id, is_forgotten: false }, part))
            }
            FilesWish::Get { patterns, forgets } => {
                let (id, seat, part) = of_run()?;
                let patterns = Patterns::of(&patterns).map_err(|error| Answer::Refused(error.to_string()))?;
                self.note("get files", &id, from);
                Ok(Opened::Files(Work::Get { seat, patterns }, OfRun { id, is_forgotten: forgets }, part))
            }
        }
    }

    /// The way back to a run; one that waits still needs what a start needs.
    fn come_back(
        &self,
        keepers: &Keepers,
        id: &RunId,
        run: &KeptRun,
        (now, from): (Time, &SiteId),
    ) -> Result<std::os::unix::net::UnixStream, Answer> {
        if run.state == RunState::Waiting {
            self.terms.as_ref().ok_or_else(nothing_runs)?;
            self.check_not_stopped()?;
            self.usable(id, now)?;
        }
        let stream = keepers.connect(id).map_err(|error| answer_of(&error))?;
        if !matches!(run.state, RunState::Ended(_)) {
            locked(&self.started).insert(id.clone(), Watched::of(&run.task));
        }
        self.note("attach", id, from);
        Ok(stream)
    }

    fn usable(&self, id: &RunId, now: Time) -> Result<Grant, Answer> {
        let is_usable = |attempt: &AttemptId| self.usable.is_usable(attempt);
        let grant = usable_seat(&self.ledger.lock(), (&id.request, id.seat), &id.user, (now, is_usable));
        grant.map_err(|why| match why.may_change() {
            true => Answer::NotNow(why.to_string()),
            false => Answer::Refused(why.to_string()),
        })
    }

    fn start(
        &self,
        keepers: &Arc<Keepers>,
        order: RunOrder,
        (user, account): (PublicKey, PublicKey),
        (now, from): (Time, &SiteId),
    ) -> Result<std::os::unix::net::UnixStream, Answer> {
        let id = RunId { user, request: order.request.clone(), seat: order.seat, run: order.run };
        match keepers.find(&id) {
            // It is there already: its user comes back.
            Ok(run) => return self.come_back(keepers, &id, &run, (now, from)),
            Err(RunError::Unknown) => {}
            Err(error) => return Err(answer_of(&error)),
        }
        let terms = self.terms().ok_or_else(nothing_runs)?;
        self.check_not_stopped()?;
        let grant = self.usable(&id, now)?;
        let host = grant.host().clone();
        let (end, memory_mib) = {
            let mut bases = locked(&self.bases);
            let ledger = self.ledger.lock();
            bases.read(&ledger);
            let end = seat_end((&*ledger, &*bases), (&id.request, id.seat), (&user, &host), now);
            (end, memory_of(&ledger, &grant, now))
        };
        if order.files.is_some_and(|manifest| !self.stores.has(&user, &order.request, &manifest)) {
            return Err(Answer::Refused("the files of the order are not at this site; send them first".to_owned()));
        }
        let bound =
            order.peers.as_ref().map(|peers| self.listen(&terms, peers, (&id, order.rank), account)).transpose()?;
        let task = Task {
            account: Some(account),
            addresses: bound.as_ref().map(|bound| bound.addresses.clone()).unwrap_or_default(),
            home: None,
            files: order.files.map(|_| self.stores.of(&user, &order.request)),
            order,
            user,
            host,
            deadline: end.unwrap_or(grant.window.end),
            grace: terms.grace_max.min(Duration::from_secs(grant.window.duration().0) / GRACE_PART),
            spool_bytes: terms.spool_bytes,
            scratch_in: terms.scratch_in,
            confinement: Confinement { memory_mib, cpu_millicores: cpu_of(&grant), ..terms.confinement },
        };
        keepers.start(&task, now).map_err(|error| answer_of(&error))?;
        locked(&self.started).insert(id.clone(), Watched::of(&task));
        if let Some(bound) = bound {
            // The seat may have got a user id by now.
            let kept = keepers.find(&id).map_err(io::Error::other);
            kept.and_then(|run| self.forwarders.open(&run.task, keepers, bound)).map_err(|error| {
                let why = format!("the seat would reach no other seats: {error}");
                // A run that is over already needs no end.
                let _ = keepers.end(&id, &why);
                Answer::Refused(why)
            })?;
        }
        self.note("run", &id, from);
        keepers.connect(&id).map_err(|error| answer_of(&error))
    }

    /// Listeners that stand for the other seats of a run which is about to start for `account`.
    fn listen(
        &self,
        terms: &RunTerms,
        peers: &Peers,
        (id, rank): (&RunId, u32),
        account: PublicKey,
    ) -> Result<Bound, Answer> {
        if !terms.confinement.is_on_network() {
            let why = "the owner of this site gives commands no network, so they reach no other seats (--port); runner_network = true in site.toml gives it (docs/run.md)";
            return Err(Answer::Wanting(Want::Network, why.to_owned()));
        }
        let here: BTreeSet<SeatNumber> = {
            let ledger = self.ledger.lock();
            let booked = ledger.of_users().filter(|booking| is_of(booking, &id.user, &id.request));
            booked.flat_map(|booking| &booking.grants).map(|grant| grant.seat).collect()
        };
        let mut named = peers.seats.iter().filter(|peer| peer.site == self.site);
        if let Some(made_up) = named.find(|peer| !here.contains(&peer.seat)) {
            let why =
                format!("the order names seat {} of this site, which the reservation does not have", made_up.seat);
            return Err(Answer::Refused(why));
        }
        let take = || self.shares.open_files.take(account, peers.listeners_of(rank).count());
        let part = take().or_else(|_| {
            // A run that has just ended counts until it is seen.
            self.keepers().into_iter().for_each(|keepers| self.forwarders.sweep(keepers));
            take()
        });
        let part = part.map_err(|none| answer_of_none_left(&none))?;
        let bound = Bound::pick(peers, rank, part);
        bound.map_err(|error| Answer::NotNow(format!("nothing can listen for the other seats: {error}")))
    }

    /// Removes the files of reservations and runs that are over.
    fn tidy(self: &Arc<RunSite>) {
        let Some(keepers) = self.keepers.clone() else { return };
        let (stores, now) = (self.stores.clone(), self.clock.now().utc);
        let wanted: BTreeSet<PathBuf> = {
            let ledger = self.ledger.lock();
            let goes_on = |booking: &&Booking| booking.grants.iter().any(|grant| grant.window.end > now);
            let of_users = ledger.of_users().filter(goes_on);
            of_users.filter_map(|one| Some(stores.of(one.user_key.as_ref()?, &one.attempt.request))).collect()
        };
        tokio::task::spawn_blocking(move || {
            if let Err(error) = stores.keep_only(&wanted) {
                warn!(%error, "files of reservations that are over cannot be removed");
            }
            if let Err(error) = keepers.remove_old_files(now) {
                warn!(%error, "files of runs that are over");
            }
        });
    }

    /// Writes down who has started or come back to what.
    fn note(&self, what: &str, id: &RunId, from: &SiteId) {
        let RunId { user, request, seat, run } = id;
        info!(%user, %request, %seat, %run, %from, what, "a stream to a run");
        let (who, id) = (format!("user {user}"), format!("{request}/{seat}/{run}"));
        let line = AuditLine { at_ms: unix_ms(), who: &who, from: from.as_str(), what, id: Some(&id), status: 200 };
        self.audit.write(By::User, &line);
    }
}

/// What a stream is taken for.
enum Opened {
    /// To this keeper.
    Run(std::os::unix::net::UnixStream, Part),
    /// To what listens on a seat.
    Peer(Target),
    /// For files.
    Files(Work, OfRun, Part),
}

/// The run or seat whose files are carried.
struct OfRun {
    id: RunId,
    /// Whether the run is forgotten when its files have come over.
    is_forgotten: bool,
}

/// Whether a booking is of this request of this user.
fn is_of(booking: &Booking, user: &PublicKey, request: &RequestId) -> bool {
    booking.user_key.as_ref() == Some(user) && booking.attempt.request == *request
}

/// The account of a user's reservation here; the user's own key when nothing of the reservation is left.
fn account_of(ledger: &SharedLedger, user: &PublicKey, request: &RequestId) -> PublicKey {
    let ledger = ledger.lock();
    let booked = ledger.of_users().find(|booking| is_of(booking, user, request));
    booked.and_then(|booking| booking.account).unwrap_or(*user)
}

/// The account of a run: as it was when the run started, since nothing of its reservation may be left.
fn account_of_run(ledger: &SharedLedger, task: &Task) -> PublicKey {
    task.account.unwrap_or_else(|| account_of(ledger, &task.user, &task.order.request))
}

/// Others may give back what they have in a moment; what an account has itself it must give back first.
fn answer_of_none_left(none: &NoneLeft) -> Answer {
    match none.is_account() {
        true => Answer::Refused(none.to_string()),
        false => Answer::NotNow(none.to_string()),
    }
}

async fn connect(asked: RunAsked, keeper: std::os::unix::net::UnixStream) -> io::Result<()> {
    keeper.set_nonblocking(true)?;
    let keeper = UnixStream::from_std(keeper)?;
    let stream: RunStream = asked.accept().await?;
    carry(stream, keeper).await
}

fn nothing_runs() -> Answer {
    let why = "the owner of this site lets nothing run on it; the hosts are reserved, and reached as their owner says; runner = \"bubblewrap\" in site.toml lets commands run (docs/run.md)";
    Answer::Wanting(Want::Run, why.to_owned())
}

/// The run of a seat that a user means; the last one when it is not said.
fn latest(
    keepers: &Keepers,
    (request, seat, run): (&RequestId, SeatNumber, Option<RunNumber>),
    user: PublicKey,
) -> Result<RunId, RunError> {
    match run {
        Some(run) => Ok(RunId { user, request: request.clone(), seat, run }),
        None => keepers.latest(user, request, seat),
    }
}

fn answer_of(error: &RunError) -> Answer {
    if is_disk_full(error) {
        return Answer::Refused(format!("the disk of the site is full: {error}"));
    }
    match error {
        RunError::System { .. } | RunError::Directory(_) | RunError::File(_) => Answer::NotNow(error.to_string()),
        RunError::Full(none) if !none.is_account() => Answer::NotNow(error.to_string()),
        RunError::Confine(ConfineError::Image(_)) => Answer::Wanting(Want::Image, error.to_string()),
        _ => Answer::Refused(error.to_string()),
    }
}
