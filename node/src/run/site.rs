//! The site's end of streams to its seats: checks what a user wants, starts the keeper or comes back to it, and then carries bytes.
//!
//! Invariants: a run starts only for the user whose confirmed seat it is, within the seat's window, and once; every refusal says why; what
//! runs ends with its seat, and goes on as long as its seat: within [`SWEEP_EVERY`] and a moment.

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
    time::{Span, Time},
    trust::PublicKey,
};
use discovery::{
    Discovery, RunAsked, RunInbound, RunStream,
    opening::{Answer, Want},
};
use tokio::{
    net::UnixStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};
use tracing::{debug, info, warn};

use super::{
    Confinement, Keepers, RunError, RunId, RunNumber, RunOrder, Task,
    carry::carry,
    check::{Bases, memory_of, seat_end, usable_seat},
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
use crate::{
    runtime::{
        audit::{AuditLine, AuditLog},
        clock::{Clock, unix_ms},
        lock::locked,
    },
    site::{task::SharedLedger, usable::Usable},
};

/// How often it is seen which files are wanted no longer.
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// How long after the end of a window it is seen whether a keeper that died has left something running.
const REST_FOR: Span = Span(5);
/// How often it is seen whether the seats of what runs are still booked.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What a seat has of the processors, in thousandths of one, where its host counts them.
fn cpu_of(grant: &Grant) -> Option<u64> {
    grant.amounts.iter().find(|(name, _)| name.as_str() == "cpu").map(|(_, amount)| amount.0)
}

/// What the user of a run is told whose seat is gone.
const TAKEN: &str = "the reservation no longer has this seat: it was cancelled, or its owner has taken it back";
/// Which part of a short window is its grace.
const GRACE_PART: u32 = 10;

/// Most connections of users to runs; as many as a node opens streams to other sites.
const STREAMS_MAX: usize = 512;

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
    pub(super) terms: Option<Mutex<RunTerms>>,
    /// Where files of users are kept that runs to come want.
    stores: Stores,
    /// Places for connections of users to runs, here and elsewhere.
    places: Arc<Semaphore>,
    /// What carries connections between seats.
    forwarders: Arc<Forwarders>,
    /// What was started, until it is known to be over.
    started: Mutex<BTreeMap<RunId, Watched>>,
    /// Locked before the ledger.
    bases: Mutex<Bases>,
}

impl RunSite {
    /// Runs of `site` in `grid`; what is left of earlier ones is ended too where nothing may start.
    pub fn new(
        (discovery, grid): (&Discovery, String),
        (ledger, usable): (SharedLedger, Usable),
        clock: Clock,
        audit: Arc<AuditLog>,
        (keepers, terms, stores): (Option<Arc<Keepers>>, Option<RunTerms>, Stores),
    ) -> RunSite {
        let known = keepers.as_ref().map(|keepers| keepers.list()).transpose().unwrap_or_default();
        let known: Vec<KeptRun> = known.into_iter().flatten().collect();
        let forwarders = Arc::new(Forwarders::new(discovery.clone()));
        let goes_on = |run: &&KeptRun| !matches!(run.state, RunState::Ended(_));
        known.iter().filter(goes_on).for_each(|run| forwarders.resume(&run.task));
        let started = known.iter().map(|run| (RunId::of(&run.task), Watched::of(&run.task))).collect();
        let site = discovery.site_id().clone();
        let (places, started) = (Arc::new(Semaphore::new(STREAMS_MAX)), Mutex::new(started));
        let (bases, terms) = (Mutex::default(), terms.map(Mutex::new));
        RunSite { site, grid, ledger, usable, clock, audit, keepers, terms, stores, places, forwarders, started, bases }
    }

    /// The keepers, where anything runs or has run.
    pub fn keepers(&self) -> Option<&Arc<Keepers>> {
        self.keepers.as_ref()
    }

    /// How runs are kept that start now; none where none start.
    pub(super) fn terms(&self) -> Option<RunTerms> {
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
            Opened::Run(keeper) => connect(asked, keeper).await,
            Opened::Peer(target) => target.serve(asked).await,
            Opened::Files(work, forgotten) => self.serve_files(asked, &work, forgotten).await,
        };
        if let Err(error) = ended {
            debug!(%error, "a stream to a run was cut off");
        }
    }

    async fn serve_files(&self, asked: RunAsked, work: &Work, forgotten: Option<RunId>) -> io::Result<()> {
        let stream = asked.accept().await?;
        serve::serve(stream, work).await.map_err(io::Error::other)?;
        if let (Some(id), Some(keepers)) = (forgotten, &self.keepers) {
            tokio::task::block_in_place(|| keepers.forget(&id)).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// What is wanted, when the user may have it.
    fn open(&self, opening: &[u8], from: &SiteId) -> Result<Opened, Answer> {
        let refused = |why: &dyn std::fmt::Display| Answer::Refused(why.to_string());
        let opening = Opening::read(opening).map_err(|error| refused(&error))?;
        if let Opening::Peer(wanted) = &opening {
            return self.forwarders.target(wanted, from).map(Opened::Peer);
        }
        let now = self.clock.now().utc;
        let (user, wish) = opening.open_at(&self.site, &self.grid, now).map_err(|error| refused(&error))?;
        let Some(keepers) = &self.keepers else { return Err(nothing_runs()) };
        match wish {
            Wish::Start(order) => self.start(keepers, *order, user, (now, from)).map(Opened::Run),
            Wish::Attach(order) => {
                let id = latest(keepers, (&order.request, order.seat, order.run), user);
                let id = id.map_err(|error| answer_of(&error))?;
                let run = keepers.find(&id).map_err(|error| answer_of(&error))?;
                self.come_back(keepers, &id, &run, (now, from)).map(Opened::Run)
            }
            Wish::Files(order) => self.files(keepers, order, user, (now, from)),
        }
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
        let stores = || self.terms.as_ref().map(|_| &self.stores).ok_or_else(nothing_runs);
        let of_run = || -> Result<(RunId, SeatFiles), Answer> {
            let id = latest(keepers, (&request, seat, run), user).map_err(|error| answer_of(&error))?;
            let files = keepers.files(&id).map_err(|error| answer_of(&error))?;
            Ok((id, files))
        };
        match wish {
            FilesWish::Keep { manifest } => {
                let id = RunId { user, request, seat, run: RunNumber(0) };
                self.usable(&id, now)?;
                let store = stores()?.of(&user, &id.request);
                self.note("keep files", &id, from);
                Ok(Opened::Files(Work::Keep { store, manifest }, None))
            }
            FilesWish::Put { manifest, directory } => {
                let (id, seat) = of_run()?;
                self.usable(&id, now)?;
                let store = stores()?.of(&user, &id.request);
                self.note("put files", &id, from);
                Ok(Opened::Files(Work::Put { store, manifest, seat, directory }, None))
            }
            FilesWish::Get { patterns, forgets } => {
                let (id, seat) = of_run()?;
                let patterns = Patterns::of(&patterns).map_err(|error| Answer::Refused(error.to_string()))?;
                self.note("get files", &id, from);
                Ok(Opened::Files(Work::Get { seat, patterns }, forgets.then_some(id)))
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
        keepers: &Keepers,
        order: RunOrder,
        user: PublicKey,
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
        let bound = order.peers.as_ref().map(|peers| listen(&terms, peers, order.rank)).transpose()?;
        let task = Task {
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
            self.forwarders.open(&task, bound).map_err(|error| {
                let why = format!("the seat would reach no other seats: {error}");
                // A run that is over already needs no end.
                let _ = keepers.end(&id, &why);
                Answer::Refused(why)
            })?;
        }
        self.note("run", &id, from);
        keepers.connect(&id).map_err(|error| answer_of(&error))
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
        self.audit.write(&AuditLine {
            at_ms: unix_ms(),
            who: &format!("user {user}"),
            from: from.as_str(),
            what,
            id: Some(&format!("{request}/{seat}/{run}")),
            status: 200,
        });
    }

    /// Tells keepers what has become of the seats of what runs; may block. What could not be told is told by a later sweep.
    fn sweep(self: &Arc<RunSite>) {
        let Some(keepers) = self.keepers() else { return };
        self.forwarders.sweep(keepers);
        let now = self.clock.now().utc;
        let mut started = locked(&self.started);
        started.retain(|id, watched| watched.deadline + REST_FOR > now && !keepers.has_ended(id));
        if started.is_empty() {
            return;
        }
        // What a keeper that was killed has left running ends now.
        let over = started.iter().filter(|(id, watched)| watched.deadline <= now || !keepers.goes_on(id));
        let over: Vec<RunId> = over.map(|(id, _)| id.clone()).collect();
        let changed: Vec<(RunId, Watched, Option<Time>)> = {
            let mut bases = locked(&self.bases);
            let ledger = self.ledger.lock();
            bases.read(&ledger);
            let changed = |(id, watched): (&RunId, &Watched)| {
                let is_over = watched.deadline <= now;
                let end = seat_end((&*ledger, &*bases), (&id.request, id.seat), (&id.user, &watched.host), now);
                (!is_over && end != Some(watched.deadline)).then(|| (id.clone(), watched.clone(), end))
            };
            started.iter().filter_map(changed).collect()
        };
        for (id, watched, end) in changed {
            // Not there twice while its keeper is told.
            started.remove(&id);
            let (site, keepers) = (Arc::clone(self), Arc::clone(keepers));
            tokio::task::spawn_blocking(move || {
                let told = end.map_or_else(|| keepers.end(&id, TAKEN), |end| keepers.set_deadline(&id, end));
                let (request, seat) = (&id.request, id.seat);
                let deadline = match (told, end) {
                    (Ok(()), None) => return info!(%request, %seat, "a run was ended: its seat is booked no longer"),
                    (Ok(()), Some(end)) => {
                        info!(%request, %seat, until_s = end.0, "a run ends with its seat, whose end has changed");
                        end
                    }
                    (Err(RunError::Over | RunError::Unknown), _) => {
                        let _ = keepers.end_rest(&id);
                        return;
                    }
                    (Err(error), _) => {
                        warn!(%error, %request, %seat, "a run whose seat has changed");
                        watched.deadline
                    }
                };
                // Whoever came back meanwhile has entered what the keeper knew before.
                locked(&site.started).insert(id, Watched { deadline, ..watched });
            });
        }
        drop(started);
        // Nothing comes of these any more.
        let ended = over.iter().filter(|id| keepers.end_rest(id));
        ended.for_each(|id| drop(locked(&self.started).remove(id)));
    }
}

/// What a stream is taken for.
enum Opened {
    /// To this keeper.
    Run(std::os::unix::net::UnixStream),
    /// To what listens on a seat.
    Peer(Target),
    /// For files; the run is forgotten when they have come over.
    Files(Work, Option<RunId>),
}

/// What listens for the other seats of a run.
fn listen(terms: &RunTerms, peers: &Peers, rank: u32) -> Result<Bound, Answer> {
    if !terms.confinement.is_on_network() {
        let why = "the owner of this site gives commands no network, so they reach no other seats (--port); runner_network = true in site.toml gives it (docs/run.md)";
        return Err(Answer::Wanting(Want::Network, why.to_owned()));
    }
    Bound::pick(peers, rank).map_err(|error| Answer::NotNow(format!("nothing can listen for the other seats: {error}")))
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
        RunError::Confine(ConfineError::Image(_)) => Answer::Wanting(Want::Image, error.to_string()),
        _ => Answer::Refused(error.to_string()),
    }
}
