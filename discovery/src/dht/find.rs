//! Finding hosts for a request: from the view, then from the DHT index, with current schedules.
//!
//! What the view has with a schedule costs no message, so a find gives all of it. Of hosts without a current schedule it asks a sample:
//! each has the same chance. Those of sites without known schedules come last, since any peer can make up sites that never answer; the
//! schedules of a real one are fetched in the background as soon as it is known. Invariant: a host is handed out only when its site's
//! signed advert was checked and its schedules are without a gap and confirmed within the age that was asked for; work and time are
//! bounded by [`HOSTS_MAX`], the limits on keys, sites and fan-out, and by the query's time-out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use broker::{
    amount::format_amount,
    classes::{HostClass, Members, count_of, name_at, numbered},
    demand::{Demand, Unmet},
    features::{Feature, Features},
    host::Host,
    ids::{HostId, SiteId},
    needs::Lack,
    negotiation::{Excluded, FoundHost},
    protocol::Advert,
    time::Millis,
    view::{KnownSchedules, SiteView},
};
use futures::{StreamExt as _, stream};
use libp2p::kad::RecordKey;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};

use super::index;
use crate::{
    core::{Core, within},
    counters::Counter,
    identity::site_of_peer,
    shared::Shared,
    view::SharedView,
};

/// The hosts that are wanted.
#[derive(Debug, Clone)]
pub struct Query {
    /// The schedules of so many hosts are asked for at most, where they are not current (of all of them when candidates are named).
    pub count: usize,
    /// With this many fitting hosts in the view the find does not wait for the DHT index; the index is then searched in
    /// the background, for the next time. At most `count`.
    pub enough: usize,
    /// What a host must be and have.
    pub demand: Demand,
    /// How long ago a schedule may have been confirmed that is planned on.
    pub max_schedule_age: Millis,
    /// A schedule that was confirmed longer ago is not current: its site may be asked. At most `max_schedule_age`.
    pub ask_after: Millis,
    /// How long the find may take.
    pub timeout: Millis,
    /// What to leave out.
    pub exclude: Excluded,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// All that fit and have a schedule, site by site in random order.
    pub hosts: Vec<FoundHost>,
    /// How many hosts are known, fitting or not.
    pub known_hosts: usize,
    /// How many of them each constraint cut; a host counts for the first that it fails.
    pub cut: Vec<(Constraint, usize)>,
    /// Fitting hosts whose schedules were asked for in vain.
    pub without_schedule: usize,
    /// Fitting hosts whose schedules are not known and were not asked for, or which are beyond [`HOSTS_MAX`].
    pub left_out: usize,
}

/// Something that hosts must fulfil.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Constraint {
    /// The site is not left out.
    NotExcluded,
    /// The site's program can do what the request needs.
    Feature(Feature),
    /// The site's owner allows commands what the request needs.
    Allows(Lack),
    /// The site has not refused lately what its advert claims.
    KeepsWord(Lack),
    /// A need of the request that hosts do not meet.
    Need(Unmet),
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constraint::NotExcluded => f.write_str("excluded sites"),
            Constraint::Feature(feature) => write!(f, "feature {feature}"),
            Constraint::Allows(lack) => write!(f, "allows {lack}"),
            Constraint::KeepsWord(lack) => write!(f, "has not refused {lack}"),
            Constraint::Need(Unmet::Candidates) => f.write_str("candidates"),
            Constraint::Need(Unmet::Attribute(key, value)) => write!(f, "attribute {key}={value}"),
            Constraint::Need(Unmet::Speed(least)) => write!(f, "speed {least}"),
            Constraint::Need(Unmet::Length(longest)) => write!(f, "longest reservation {longest}"),
            Constraint::Need(Unmet::Minimum(name, least)) => {
                write!(f, "per_host {name}>={}", format_amount(name, *least))
            }
        }
    }
}

/// Hosts that fit: one, or a class of them.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fitting {
    site: SiteId,
    class: HostId,
    members: Option<Members>,
}

impl Fitting {
    fn count(&self) -> usize {
        count_of(self.members)
    }

    /// The names of its hosts, from the given one on and around.
    fn names(&self, first: usize) -> impl Iterator<Item = HostId> {
        let count = self.count();
        (first..first + count).filter_map(move |place| name_at((&self.class, self.members), place % count))
    }
}

/// Fitting hosts of the view.
#[derive(Debug, Default)]
struct Matching {
    hosts: Vec<Fitting>,
    /// Those of sites without known schedules.
    unanswered: Vec<Fitting>,
    known_hosts: usize,
    cut: BTreeMap<Constraint, usize>,
    /// Named candidates that no known host bears.
    missing: BTreeSet<HostId>,
}

impl Matching {
    fn count(&self) -> usize {
        self.hosts.iter().chain(&self.unanswered).map(Fitting::count).sum()
    }
}

/// What searches of the index remember of each other.
#[derive(Debug, Default)]
struct Searches {
    /// Queries (by their first key) whose keys were all looked at lately.
    exhausted: Mutex<BTreeMap<Vec<u8>, Millis>>,
    /// One search in the background at a time.
    background: Arc<tokio::sync::Mutex<()>>,
}

/// The index is not walked again for the same property within this time. A walk costs up to 96 look-ups, for hosts by name
/// up to twice as many, of some 20 messages each, and new sites arrive meanwhile by gossip and by the exchange of adverts.
const EXHAUSTED_FOR: Millis = Millis(120_000);
/// The same for a node that has just started, in a grid that may be forming; it grows with the node's age.
const EXHAUSTED_FOR_FIRST: Millis = Millis(2_000);
/// How long a search in the background may go on when its find has got what it needed.
const BACKGROUND_FOR: Millis = Millis(30_000);
/// How long the schedules of one site are waited for: a site that needs longer would not hold in time either, and the
/// others are as good.
pub const FETCH_TIMEOUT: Millis = Millis(1_000);
/// A site that did not answer is not asked for its schedules again by finds within this time.
pub const SILENT_FOR: Millis = Millis(5_000);
/// A provider that could not be verified is not looked at again within this time, so that an index full of made-up
/// providers costs its look-ups once.
const UNVERIFIED_FOR: Millis = Millis(60_000);
/// Queries remembered.
const REMEMBERED_MAX: usize = 1024;
/// Index keys looked at together; then what they brought is looked at.
const KEYS_AT_ONCE: usize = 4;
/// How often hosts whose sites do not answer are replaced by others.
pub const ROUNDS_MAX: usize = 3;
/// Most hosts given, unless more are named: planning on so many different ones takes a second.
pub const HOSTS_MAX: usize = 20_000;

/// Looking at so many hosts takes some 50 us, less than it costs to let other tasks move to another thread.
const INLINE_HOSTS_MAX: usize = 256;

/// Finds hosts; clones share what they remember of searches.
#[derive(Clone)]
pub(crate) struct Finder {
    core: Core,
    searches: Arc<Searches>,
}

impl Finder {
    pub(crate) fn new(core: Core) -> Finder {
        Finder { core, searches: Arc::default() }
    }

    fn shared(&self) -> &Shared {
        self.core.shared()
    }

    pub(crate) async fn find(&self, query: Query, seed: u64) -> Found {
        let started = self.shared().clock.now();
        let mut rng = StdRng::seed_from_u64(seed);
        let mut matching = self.matching(&query);
        if !is_sufficient(&query, &matching, query.count) {
            if query.demand.candidates().is_none() && matching.count() >= query.enough.min(query.count) {
                self.search_in_background(query.clone(), StdRng::seed_from_u64(seed));
            } else {
                // Half of the time for the search, half for the schedules.
                let until = started + Millis(query.timeout.0 / 2);
                self.search_index(&query, &mut rng, until).await;
                matching = self.matching(&query);
            }
        }
        let Matching { mut hosts, mut unanswered, known_hosts, cut, .. } = matching;
        let old = aside(known_hosts, || {
            // The map has no order; the same view must give the same sample.
            [&mut hosts, &mut unanswered].into_iter().for_each(|classes| classes.sort_unstable());
            [&hosts, &unanswered].map(|classes| self.to_be_asked(&query, classes, (started, &mut rng))).concat()
        });
        hosts.append(&mut unanswered);
        let silent = self.ask_some(&query, &hosts, old, started).await;
        // What was drawn before depends on what had to be asked; where the hosts begin does not.
        let mut order = StdRng::seed_from_u64(!seed);
        let found = aside(known_hosts, || self.with_schedules(&query, &hosts, &silent, (started, &mut order)));
        Found { known_hosts, cut: cut.into_iter().collect(), ..found }
    }

    /// For each of these hosts whose schedule is not current its site, in random order.
    fn to_be_asked(&self, query: &Query, classes: &[Fitting], (now, rng): (Millis, &mut StdRng)) -> Vec<SiteId> {
        let is_old = |class: &&Fitting| !self.shared().view.is_fresh(&class.site, now, query.ask_after);
        let of_class = |class: &Fitting| std::iter::repeat_n(class.site.clone(), class.count());
        let mut old: Vec<SiteId> = classes.iter().filter(is_old).flat_map(of_class).collect();
        old.shuffle(rng);
        old
    }

    fn matching(&self, query: &Query) -> Matching {
        let shared = self.shared();
        let refusing = shared.refusals.of(query.demand.needs(), shared.clock.now());
        aside(shared.view.host_count(), || matching(&shared.view, query, &refusing))
    }

    /// Asks the sites of `old` hosts for their schedules, from the front: of as many hosts as are wanted, and of others while too few have
    /// one. The sites that were asked in vain.
    async fn ask_some(
        &self,
        query: &Query,
        classes: &[Fitting],
        old: Vec<SiteId>,
        started: Millis,
    ) -> BTreeSet<SiteId> {
        let (view, deadline) = (&self.shared().view, started + query.timeout);
        let wanted = if query.demand.candidates().is_some() { usize::MAX } else { query.count };
        let mut hosts_of: BTreeMap<&SiteId, usize> = BTreeMap::new();
        classes.iter().for_each(|class| *hosts_of.entry(&class.site).or_default() += class.count());
        let mut have = hosts_of.values().sum::<usize>().saturating_sub(old.len());
        let (mut old, mut missing) = (old.iter(), wanted);
        let (mut asked, mut silent) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..ROUNDS_MAX {
            let sites: BTreeSet<&SiteId> = old.by_ref().take(missing).filter(|site| !asked.contains(site)).collect();
            if sites.is_empty() {
                break;
            }
            asked.extend(sites.iter().copied());
            self.refresh_schedules(query, &sites, deadline).await;
            let now = self.shared().clock.now();
            for site in sites {
                let is_there = |known: &SiteView| schedules_of(known, (now, query.ask_after), started).is_some();
                if view.with_site(site, is_there) == Some(true) {
                    have += hosts_of.get(site).copied().unwrap_or_default();
                } else {
                    silent.insert(site.clone());
                }
            }
            missing = wanted.saturating_sub(have);
            if now >= deadline {
                break;
            }
        }
        silent
    }

    /// All these hosts that have a schedule which may be planned on, but for those of silent sites.
    fn with_schedules(
        &self,
        query: &Query,
        classes: &[Fitting],
        silent: &BTreeSet<SiteId>,
        (started, rng): (Millis, &mut StdRng),
    ) -> Found {
        let mut by_site: BTreeMap<&SiteId, Vec<&Fitting>> = BTreeMap::new();
        classes.iter().for_each(|class| by_site.entry(&class.site).or_default().push(class));
        let mut sites: Vec<_> = by_site.into_iter().collect();
        sites.shuffle(rng);
        let most = if query.demand.candidates().is_some() { usize::MAX } else { HOSTS_MAX };
        let mut found = Found { hosts: Vec::new(), known_hosts: 0, cut: Vec::new(), without_schedule: 0, left_out: 0 };
        let (view, now) = (&self.shared().view, self.shared().clock.now());
        // The age counts from the beginning: what was current then stays so while others are asked.
        let age_max = query.max_schedule_age + (now - started);
        for (site, classes) in sites {
            let fitting: usize = classes.iter().map(|class| class.count()).sum();
            if silent.contains(site) {
                found.without_schedule += fitting;
                continue;
            }
            let mut left = view.without(site, &query.exclude.hosts);
            let before = found.hosts.len();
            let in_use = view.with_site(site, |view| {
                let known = schedules_of(view, (now, age_max), started)?;
                let mut in_use = 0;
                for class in classes {
                    let first = rng.random_range(0..class.count().max(1));
                    for id in class.names(first).take(most - found.hosts.len()) {
                        if query.exclude.hosts.contains(&(site.clone(), id.clone())) {
                            in_use += 1;
                        } else if let Some(host) = view.advert().hosts.get(&id) {
                            let (schedule, version) = (known.schedules.next_of(&host, &mut left), known.version);
                            let offer = view.advert().offer.clone();
                            let site = site.clone();
                            found.hosts.push(FoundHost { site, host, schedule, version, offer, standing: None });
                        }
                    }
                }
                Some(in_use)
            });
            let given = found.hosts.len() - before + in_use.flatten().unwrap_or(0);
            found.left_out += fitting.saturating_sub(given);
        }
        found
    }

    /// Fetches what is missing, old or has a gap, in parallel.
    async fn refresh_schedules(&self, query: &Query, sites: &BTreeSet<&SiteId>, deadline: Millis) {
        let shared = self.shared();
        let now = shared.clock.now();
        let stale: Vec<SiteId> = sites
            .iter()
            .filter(|site| !shared.view.is_fresh(site, now, query.ask_after))
            .filter(|site| !shared.health.is_silent(site, now, SILENT_FOR))
            .map(|site| (*site).clone())
            .collect();
        stream::iter(stale)
            .for_each_concurrent(shared.config.limits.find_fan_out, |site| async move {
                let left = (deadline - self.shared().clock.now()).min(FETCH_TIMEOUT);
                // One that fails is left out of the sample.
                let _ = self.core.fetch_schedule(&site, left).await;
            })
            .await;
    }

    fn search_in_background(&self, query: Query, mut rng: StdRng) {
        let Ok(guard) = Arc::clone(&self.searches.background).try_lock_owned() else { return };
        let finder = self.clone();
        tokio::spawn(async move {
            let until = finder.shared().clock.now() + query.timeout + BACKGROUND_FOR;
            finder.search_index(&query, &mut rng, until).await;
            drop(guard);
        });
    }

    /// Walks the index until the view suffices, the keys are used up, or the time is over.
    async fn search_index(&self, query: &Query, rng: &mut StdRng, until: Millis) {
        let shared = self.shared();
        let mut seen = BTreeSet::new();
        for group in self.keys_to_search(query, rng) {
            for keys in group.chunks(KEYS_AT_ONCE) {
                let left = until - shared.clock.now();
                if left == Millis(0)
                    || within(left, self.learn_providers(keys, &mut seen, left)).await.is_err()
                    || seen.len() >= shared.config.limits.find_sites_max
                    || is_sufficient(query, &self.matching(query), query.count)
                {
                    return;
                }
            }
            if let Some(first) = group.first() {
                self.searches.note_exhausted(first, shared.clock.now());
            }
        }
    }

    /// Groups of keys, each in random order; without those that were walked in vain lately.
    fn keys_to_search(&self, query: &Query, rng: &mut StdRng) -> Vec<Vec<RecordKey>> {
        let shared = self.shared();
        let grid = &shared.config.grid;
        let keys_max = shared.config.limits.find_keys_max;
        if query.demand.candidates().is_some() {
            let missing = self.matching(query).missing;
            return vec![index::keys_of_hosts(grid, missing.iter(), keys_max)];
        }
        let keys = index::keys_of_query(grid, &query.demand);
        let now = shared.clock.now();
        let mut groups: Vec<Vec<RecordKey>> = [keys.precise, keys.fallback]
            .into_iter()
            .filter(|keys| keys.first().is_some_and(|first| !self.searches.is_exhausted(first, now)))
            .collect();
        for keys in &mut groups {
            // The first key names the group in the memory of searches, so it keeps its place.
            if let Some((_, others)) = keys.split_first_mut() {
                others.shuffle(rng);
            }
            keys.truncate(keys_max);
        }
        groups
    }

    async fn learn_providers(&self, keys: &[RecordKey], seen: &mut BTreeSet<SiteId>, left: Millis) {
        let shared = self.shared();
        let providers = futures::future::join_all(keys.iter().map(|key| self.core.lookup_providers(key.clone()))).await;
        let (now, sites_max) = (shared.clock.now(), shared.config.limits.find_sites_max);
        let new: Vec<SiteId> = providers
            .into_iter()
            .flatten()
            .filter_map(|peer| site_of_peer(&peer))
            .filter(|site| site != shared.site() && !shared.view.knows(site))
            .filter(|site| !shared.health.is_silent(site, now, UNVERIFIED_FOR))
            .filter(|site| seen.len() < sites_max && seen.insert(site.clone()))
            .collect();
        stream::iter(new)
            .for_each_concurrent(shared.config.limits.find_fan_out, |site| async move {
                if let Err(error) = self.core.learn_site(&site, left).await {
                    tracing::debug!(%site, %error, "a provider of the index could not be verified");
                    self.shared().count(Counter::ProvidersUnverified);
                    self.shared().health.failed(&site, self.shared().clock.now());
                }
            })
            .await;
    }
}

/// Looks at so many `hosts`; while that takes long, other tasks of this thread move to another one.
fn aside<T>(hosts: usize, look: impl FnOnce() -> T) -> T {
    if hosts > INLINE_HOSTS_MAX { tokio::task::block_in_place(look) } else { look() }
}

fn is_sufficient(query: &Query, matching: &Matching, count: usize) -> bool {
    if query.demand.candidates().is_some() { matching.missing.is_empty() } else { matching.count() >= count }
}

/// The schedules of a site that were confirmed within an age and have no gap, or were fetched since the find began: a busy site may have
/// changed again meanwhile.
fn schedules_of(view: &SiteView, (now, age_max): (Millis, Millis), started: Millis) -> Option<&KnownSchedules> {
    view.fresh_schedules(now, age_max).or_else(|| view.schedules_since(started))
}

/// The numbers of members of classes that candidates may mean, by class.
fn members_meant(candidates: &[HostId]) -> BTreeMap<HostId, BTreeSet<u32>> {
    let mut meant: BTreeMap<HostId, BTreeSet<u32>> = BTreeMap::new();
    for candidate in candidates {
        let host = candidate.as_str().rsplit('/').next().and_then(|host| HostId::new(host).ok());
        if let Some((class, number)) = host.as_ref().and_then(numbered) {
            meant.entry(class).or_default().insert(number);
        }
    }
    meant
}

/// What keeps a site from a request whatever its hosts, where some sites have refused what it needs.
fn lacking(
    advert: &Advert,
    (features, needs): (&Features, &[Lack]),
    refusing: &BTreeMap<SiteId, Lack>,
) -> Option<Constraint> {
    let of_program = advert.features.lacks(features).cloned().map(Constraint::Feature);
    let denied = || needs.iter().find(|lack| advert.features.deny(lack)).cloned().map(Constraint::Allows);
    let refused = || refusing.get(&advert.site).cloned().map(Constraint::KeepsWord);
    of_program.or_else(denied).or_else(refused)
}

/// The longest seat that the site gives, if the demand lasts longer on the host. Shapes are of different lengths: the planner looks at them.
fn too_long(demand: &Demand, advert: &Advert, host: &Host) -> Option<Unmet> {
    let longest = advert.offer.longest.filter(|longest| !demand.is_of_shape() && demand.length_on(host) > *longest);
    longest.map(Unmet::Length)
}

/// Splits the hosts of the view into those that fit and those that a constraint cuts.
fn matching(view: &SharedView, query: &Query, refusing: &BTreeMap<SiteId, Lack>) -> Matching {
    let mut matching = Matching::default();
    let needs = query.demand.host_needs();
    let mut met: BTreeSet<&HostId> = BTreeSet::new();
    let features = Features::needed_by(&query.demand);
    let of_owner: Vec<Lack> = query.demand.needs().lacks().collect();
    let mut judge = |advert: &Advert, class: &HostClass, has_answered: bool| {
        let (site, host) = (&advert.site, &class.host);
        matching.known_hosts += class.count();
        met.extend(needs.names_of(site, &host.id));
        let unmet = match needs.first_unmet(site, host) {
            // Candidates come first, since a host that nobody asked for says nothing about what is left out.
            Some(Unmet::Candidates) => Some(Constraint::Need(Unmet::Candidates)),
            _ if query.exclude.sites.contains(site) => Some(Constraint::NotExcluded),
            unmet => lacking(advert, (&features, &of_owner), refusing)
                .or_else(|| unmet.or_else(|| too_long(&query.demand, advert, host)).map(Constraint::Need)),
        };
        match unmet {
            Some(constraint) => *matching.cut.entry(constraint).or_default() += class.count(),
            None => {
                let hosts = if has_answered { &mut matching.hosts } else { &mut matching.unanswered };
                hosts.push(Fitting { site: site.clone(), class: host.id.clone(), members: class.members });
            }
        }
    };
    // Whether a host is named is a matter of its own name; all else is the same for its class.
    let meant = query.demand.candidates().map(members_meant);
    let mut not_named = 0;
    view.for_each_class(|advert, class, has_answered| match class.members.zip(meant.as_ref()) {
        None => judge(advert, class, has_answered),
        Some((Members { first, count }, meant)) => {
            let numbers = meant.get(&class.host.id).into_iter().flat_map(|numbers| numbers.range(first..));
            let names = numbers.take_while(|number| **number - first < count).filter_map(|number| {
                let id = name_at((&class.host.id, class.members), (number - first) as usize)?;
                needs.names_of(&advert.site, &id).next().map(|_| id)
            });
            let named: Vec<HostId> = names.collect();
            not_named += class.count() - named.len();
            for id in named {
                let host = Host { id, ..class.host.clone() };
                judge(advert, &HostClass { host, members: None }, has_answered);
            }
        }
    });
    matching.known_hosts += not_named;
    if not_named > 0 {
        *matching.cut.entry(Constraint::Need(Unmet::Candidates)).or_default() += not_named;
    }
    let candidates = query.demand.candidates().unwrap_or_default().iter();
    matching.missing = candidates.filter(|name| !met.contains(name)).cloned().collect();
    matching
}

impl Searches {
    fn is_exhausted(&self, first: &RecordKey, now: Millis) -> bool {
        self.exhausted().get(&first.to_vec()).is_some_and(|until| *until > now)
    }

    fn note_exhausted(&self, first: &RecordKey, now: Millis) {
        let how_long = Millis(now.0 / 4).clamp(EXHAUSTED_FOR_FIRST, EXHAUSTED_FOR);
        let mut exhausted = self.exhausted();
        exhausted.retain(|_, until| *until > now);
        if exhausted.len() < REMEMBERED_MAX {
            exhausted.insert(first.to_vec(), now + how_long);
        }
    }

    fn exhausted(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Millis>> {
        // The map is valid after every single operation, so a panic elsewhere does not make it worthless.
        self.exhausted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
