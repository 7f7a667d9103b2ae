//! Everything that a site checks of a hold before its ledger looks for room: signature, grid, credentials, what the user
//! asked for, and the owner's policy.
//!
//! Pure. Verified texts and chains are remembered (bounded), so a user's next hold costs no signature check. Invariant: a
//! [`Permit`] is given only for a hold that its user's signed request covers.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Authorization, Chain, Denial, Holder, Limits, OwnerPolicy, PublicKey, RequestStatement, Revocations, Role, Roots,
    Rule, SUCCESSORS_MAX, SignedRevocation, SignedText, Subject, TrustError, asked, cache::Cache, policy::is_beyond,
};
use crate::{
    features::{Features, Images},
    host::Host,
    ids::{HostId, SiteId, tail_of},
    needs::Need,
    offered::{Breach, Offered},
    protocol::{HoldRequest, hull},
    time::{Span, Time, Window},
};

/// Most chains remembered as verified, and their bytes.
const CHAINS: (usize, usize) = (4_096, 8 << 20);
/// Most requests remembered as verified, and their bytes.
const REQUESTS: (usize, usize) = (4_096, 8 << 20);

/// Whom a grid trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Anybody may join and use it; a user is a key.
    Open {
        /// The grid's id.
        grid: String,
    },
    /// Who takes part has a credential that leads to the root.
    Closed {
        /// The grid's id; names the root ([`super::names_root`]).
        grid: String,
        /// The grid's first root.
        root: PublicKey,
    },
}

impl Trust {
    /// The grid's id.
    #[must_use]
    pub fn grid(&self) -> &str {
        match self {
            Trust::Open { grid } | Trust::Closed { grid, .. } => grid,
        }
    }
}

/// The checks of trust at one site, with its revocations and policy.
#[derive(Debug)]
pub struct Gate {
    trust: Trust,
    policy: OwnerPolicy,
    /// The owner as a user.
    owner: Option<PublicKey>,
    /// Whether nothing more is promised.
    is_draining: bool,
    /// Conditions for any promise that are none of the owner's rules.
    ready: Ready,
    /// What the owner lets commands have; none where no request is refused for that.
    allowed: Option<Features>,
    /// The roots that are known; none of an open grid.
    roots: Option<Roots>,
    revocations: Revocations,
    chains: Cache<Chain, Arc<Holder>>,
    requests: Cache<SignedText, Arc<RequestStatement>>,
}

/// Conditions without any one of which a site promises nothing.
#[derive(Debug, Clone, Copy)]
struct Ready {
    /// Whether the ledger has the owner's own work: without it, what seems free may be in use.
    is_own_work_known: bool,
    /// Whether the site's clock is believed: without it, nobody knows what has ended.
    is_clock_believed: bool,
    /// Whether the disk has room for what would be promised: without it, a promise may not get there.
    has_room: bool,
}

impl Ready {
    fn check(self) -> Result<(), Denial> {
        if !self.is_own_work_known {
            return Err(Denial::new(Rule::OwnWork, "the site does not know yet what its owner runs there"));
        }
        if !self.is_clock_believed {
            return Err(Denial::new(Rule::Clock, "the site does not believe its own clock at the moment"));
        }
        if !self.has_room {
            return Err(Denial::new(Rule::Disk, Breach::Disk.to_string()));
        }
        Ok(())
    }
}

/// The one gate of a site, for its ledger and for all else that checks credentials; clones share it.
#[derive(Debug, Clone)]
pub struct SharedGate(Arc<Mutex<Gate>>);

impl SharedGate {
    /// Waits for its turn at the gate. Keep it short: nothing but a few signature checks.
    pub fn lock(&self) -> MutexGuard<'_, Gate> {
        // The gate is valid after every single call, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Gate> for SharedGate {
    fn from(gate: Gate) -> SharedGate {
        SharedGate(Arc::new(Mutex::new(gate)))
    }
}

/// A hold may be granted, as far as the gate is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    /// The user.
    pub user: PublicKey,
    /// On whose account it is: that of the invitation with which the user has joined, else the user's own.
    pub account: PublicKey,
    /// The name of the [`Holder`] of the user's credential, else the key's fingerprint.
    pub name: String,
    /// Every key of the user's credential, the user's own too: when one is revoked, so is the user. None in an open grid.
    pub lineage: Option<Arc<Vec<PublicKey>>>,
    /// The credential's limits, else the owner's.
    pub limits: Limits,
    /// What the user has signed; of a hold, as if its variant was all that the user had allowed.
    pub statement: Arc<RequestStatement>,
}

impl Gate {
    /// A gate that has verified nothing yet and knows of no revocation.
    #[must_use]
    pub fn new(trust: Trust, policy: OwnerPolicy) -> Gate {
        let roots = match &trust {
            Trust::Open { .. } => None,
            Trust::Closed { root, .. } => Some(Roots::of(*root)),
        };
        Gate {
            trust,
            roots,
            policy,
            owner: None,
            is_draining: false,
            ready: Ready { is_own_work_known: true, is_clock_believed: true, has_room: true },
            allowed: None,
            revocations: Revocations::default(),
            chains: Cache::new(CHAINS.0, CHAINS.1),
            requests: Cache::new(REQUESTS.0, REQUESTS.1),
        }
    }

    /// Whom the grid trusts.
    #[must_use]
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The owner's rules.
    #[must_use]
    pub fn policy(&self) -> &OwnerPolicy {
        &self.policy
    }

    /// Puts other rules of the owner into force. Existing bookings stay.
    pub fn set_policy(&mut self, policy: OwnerPolicy) {
        self.policy = policy;
    }

    /// Whether the site promises nothing more.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Begins or ends to empty the site. What is promised stays.
    pub fn set_draining(&mut self, is_draining: bool) {
        self.is_draining = is_draining;
    }

    /// Says whether the ledger has the owner's own work. Nothing is promised until it has; what is promised stays.
    pub fn set_own_work_known(&mut self, is_known: bool) {
        self.ready.is_own_work_known = is_known;
    }

    /// Says whether the site believes its clock. Nothing is promised until it does; what is promised stays.
    pub fn set_clock_believed(&mut self, is_believed: bool) {
        self.ready.is_clock_believed = is_believed;
    }

    /// Whether the site believes its clock.
    #[must_use]
    pub fn is_clock_believed(&self) -> bool {
        self.ready.is_clock_believed
    }

    /// Says whether the site's disk has room for more. Nothing is promised until it has; what is promised stays.
    pub fn set_room(&mut self, has_room: bool) {
        self.ready.has_room = has_room;
    }

    /// Whether the site's disk has room for more.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.ready.has_room
    }

    /// Says what the owner lets commands have, as its advert does. What is promised stays.
    pub fn set_allowed(&mut self, needs: impl IntoIterator<Item = Need>, images: Images) {
        self.allowed = Some(Features::default().allowing(needs, images));
    }

    /// Whether the ledger has the owner's own work.
    #[must_use]
    pub fn is_own_work_known(&self) -> bool {
        self.ready.is_own_work_known
    }

    /// Whether the user is the site's owner.
    #[must_use]
    pub fn is_owner(&self, user: PublicKey) -> bool {
        self.owner == Some(user)
    }

    /// Names the owner as a user.
    pub fn set_owner(&mut self, owner: PublicKey) {
        self.owner = Some(owner);
    }

    /// What is revoked.
    #[must_use]
    pub fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// The roots that are known; none of an open grid.
    #[must_use]
    pub fn roots(&self) -> Option<&Roots> {
        self.roots.as_ref()
    }

    /// Takes in that a root is followed by another; false when that changes nothing. What leads to the old one counts until the time that
    /// the statement names.
    ///
    /// # Errors
    /// As for [`Roots::learn`]; [`TrustError::OpenGrid`] in an open grid.
    pub fn succeed(&mut self, signed: &SignedText) -> Result<bool, TrustError> {
        let Some(roots) = &mut self.roots else { return Err(TrustError::OpenGrid) };
        let is_new = roots.learn(self.trust.grid(), signed)?;
        if is_new {
            self.chains.clear();
            self.revocations.lapse_with(roots);
        }
        Ok(is_new)
    }

    /// Takes in what a chain shows of roots that follow each other, whoever shows it and whatever the chain is worth.
    fn succeed_by(&mut self, chain: &Chain) -> Result<(), TrustError> {
        if chain.successors().len() > SUCCESSORS_MAX {
            return Err(TrustError::TooManyRoots);
        }
        chain.successors().iter().try_for_each(|signed| self.succeed(signed).map(drop))
    }

    /// Adds a revocation; false when it was known. Existing bookings stay, as a reservation is a promise, but are used no more
    /// ([`Gate::check_use`]).
    ///
    /// # Errors
    /// [`TrustError`] when it must not be believed; [`TrustError::OpenGrid`] in an open grid.
    pub fn revoke(&mut self, revocation: &SignedRevocation, now: Time) -> Result<bool, TrustError> {
        if let Some(issuer) = &revocation.issuer {
            self.succeed_by(issuer)?;
        }
        let Some(roots) = &self.roots else { return Err(TrustError::OpenGrid) };
        self.revocations.add(self.trust.grid(), roots, revocation, now)
    }

    /// Drops revocations that have lapsed. The caller calls it now and then.
    pub fn prune(&mut self, now: Time) {
        self.revocations.prune(now);
    }

    /// Whether `from` may hold this at `site`, for whom, and within which limits. `host` knows the site's hosts; one that it
    /// does not know is left to the ledger to refuse.
    ///
    /// # Errors
    /// The first rule that the hold breaks.
    pub fn admit<'a>(
        &mut self,
        now: Time,
        (from, site): (&SiteId, &SiteId),
        hold: &HoldRequest,
        host: impl Fn(&HostId) -> Option<&'a Host>,
    ) -> Result<Permit, Denial> {
        let Authorization { request, user, entry_point } = &*hold.authorization;
        let mut permit = self.check_submission(now, from, request, user.as_ref())?;
        if !hold.variant.is_plain() || !permit.statement.is_plain() {
            permit.statement = Arc::new(permit.statement.of_variant(hold.variant)?);
        }
        let statement = &permit.statement;
        if hold.attempt.entry_point != statement.entry_point {
            return Err(Denial::new(Rule::EntryPoint, "the attempt is another entry point's"));
        }
        if hold.attempt.request != statement.id {
            let detail = format!("held for {}, signed for {}", hold.attempt.request, statement.id);
            return Err(Denial::new(Rule::RequestId, detail));
        }
        self.check_member(from, entry_point.as_ref(), now)?;
        let sites = hold.participants.iter().collect::<BTreeSet<_>>().len();
        asked::check(statement, (&hold.grants, sites), site, host)?;
        if let Some(window) = hull(&hold.grants) {
            self.check_policy(&permit, window, now)?;
        }
        self.check_needs(&permit.statement)?;
        Ok(permit)
    }

    /// Whether the owner gives what commands of the request need: its coordinator may have an older advert, or none that is true.
    fn check_needs(&self, statement: &RequestStatement) -> Result<(), Denial> {
        let Some(allowed) = &self.allowed else { return Ok(()) };
        let lack = statement.request.demand().needs().lacks().find(|lack| allowed.deny(lack));
        lack.map_or(Ok(()), |lack| Err(Denial::of_lack(&lack)))
    }

    /// Whether `entry_point` may coordinate a request that its user has signed: every site checks this as well, so
    /// an entry point asks it when the request arrives.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check_submission(
        &mut self,
        now: Time,
        entry_point: &SiteId,
        request: &SignedText,
        user: Option<&Chain>,
    ) -> Result<Permit, Denial> {
        let statement = self.statement(request)?;
        if statement.grid != self.trust.grid() {
            let detail = format!("signed for grid {}, this is {}", statement.grid, self.trust.grid());
            return Err(Denial::new(Rule::Grid, detail));
        }
        if statement.entry_point != *entry_point {
            let signed_for = tail_of(statement.entry_point.as_str());
            let detail = format!("signed for entry point {signed_for}, sent by {}", tail_of(entry_point.as_str()));
            return Err(Denial::new(Rule::EntryPoint, detail));
        }
        if statement.expires <= now {
            let detail = format!("the request expired at {}", statement.expires.in_utc());
            return Err(Denial::new(Rule::Expired, detail));
        }
        let user_key = request.author;
        let (name, limits, account, lineage) = match self.holder("the user", user, now)? {
            None => (user_key.fingerprint(), Limits::default(), user_key, None),
            Some(holder) => {
                if holder.role == Role::Site {
                    return Err(Denial::new(Rule::Role, "the credential is not a user's"));
                }
                if holder.subject != Subject::Key(user_key) {
                    return Err(Denial::new(Rule::Credential, "the user's credential is another's"));
                }
                let Subject::Key(account) = holder.account else {
                    return Err(Denial::new(Rule::Credential, "the user's credential comes from a site"));
                };
                let lineage = holder.lineage.iter().filter_map(Subject::key).copied().collect();
                (holder.name.clone(), holder.limits, account, Some(Arc::new(lineage)))
            }
        };
        Ok(Permit { user: user_key, account, name, lineage, limits: limits.or(self.policy.limits), statement })
    }

    /// Whether `site` belongs to the grid; in an open one everybody does.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check_member(&mut self, site: &SiteId, chain: Option<&Chain>, now: Time) -> Result<(), Denial> {
        let Some(holder) = self.holder("the site", chain, now)? else { return Ok(()) };
        if holder.role != Role::Site {
            return Err(Denial::new(Rule::Role, "the credential is not a site's"));
        }
        if holder.subject != Subject::Site(site.clone()) {
            return Err(Denial::new(Rule::Credential, "the site's credential is another's"));
        }
        Ok(())
    }

    fn statement(&mut self, signed: &SignedText) -> Result<Arc<RequestStatement>, Denial> {
        if let Some(statement) = self.requests.get(signed) {
            return Ok(statement.clone());
        }
        let statement: RequestStatement = signed.open().map_err(|error| Denial::of_request(&error))?;
        let statement = Arc::new(statement);
        // The text, and about as much again for what was read from it; both twice, as the cache keeps the key twice.
        self.requests.insert(signed, statement.clone(), 4 * signed.size_bytes());
        Ok(statement)
    }

    /// Who holds `chain`; nobody in particular in an open grid.
    fn holder(&mut self, whose: &str, chain: Option<&Chain>, now: Time) -> Result<Option<Arc<Holder>>, Denial> {
        if self.roots.is_none() {
            return Ok(None);
        }
        let Some(chain) = chain else {
            return Err(Denial::new(Rule::Credential, format!("{whose} shows no credential of this closed grid")));
        };
        let holder = match self.chains.get(chain) {
            Some(holder) if holder.expires > now => holder.clone(),
            _ => self.verify(chain, now).map_err(|error| Denial::of_chain(whose, &error))?,
        };
        self.check_revoked(whose, holder.lineage.iter().cloned())?;
        Ok(Some(holder))
    }

    fn verify(&mut self, chain: &Chain, now: Time) -> Result<Arc<Holder>, TrustError> {
        self.succeed_by(chain)?;
        let Some(roots) = &self.roots else { return Err(TrustError::OpenGrid) };
        let holder = Arc::new(chain.verify_credentials(self.trust.grid(), roots, now)?);
        self.chains.insert(chain, holder.clone(), 4 * chain.size_bytes());
        Ok(holder)
    }

    fn check_revoked(&self, whose: &str, mut lineage: impl Iterator<Item = Subject>) -> Result<(), Denial> {
        match lineage.find(|subject| self.revocations.is_revoked(subject)) {
            Some(subject) => Err(Denial::new(Rule::Revoked, format!("{whose}: {} is revoked", subject.brief()))),
            None => Ok(()),
        }
    }

    /// Whether the owner's rules, as they are now, leave this time to promises.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check_time(&self, window: Window, now: Time) -> Result<(), Denial> {
        if self.is_draining {
            return Err(Denial::new(Rule::Draining, "the owner is emptying the site"));
        }
        self.ready.check()?;
        Gate::check_offered(&Offered { longest: None, ..self.policy.offered(None) }, window, now)
    }

    /// Whether this is offered at all, to whomever.
    fn check_offered(offered: &Offered, window: Window, now: Time) -> Result<(), Denial> {
        let denial = |breach: Breach| {
            let asked = match breach {
                Breach::Longest(_) => format!("{} asked, ", window.duration()),
                Breach::Draining | Breach::Disk | Breach::Reach(_) | Breach::Spans(_) => String::new(),
            };
            Denial::new(breach.into(), format!("{asked}{breach}"))
        };
        offered.check(window, now).map_err(denial)
    }

    /// Whether the owner's rules let this user have anything here.
    ///
    /// # Errors
    /// The first rule that is against it.
    pub fn check_user(&self, permit: &Permit) -> Result<(), Denial> {
        self.check_lists(&permit.name, (&permit.user, &permit.account))
    }

    /// Whether the user of a booking may still use it, as revocations and the owner's lists are now: lookups only. A credential that
    /// has expired since is no reason against it.
    ///
    /// # Errors
    /// The first rule that is against it.
    pub fn check_use(
        &self,
        name: &str,
        (user, account): (&PublicKey, &PublicKey),
        lineage: &[PublicKey],
    ) -> Result<(), Denial> {
        let keys = lineage.iter().chain([user, account]);
        self.check_revoked("the user", keys.copied().map(Subject::Key))?;
        self.check_lists(name, (user, account))
    }

    /// [`Gate::check_use`] where nothing but the key is known of the user: whom the owner's list of the allowed means cannot be said then.
    ///
    /// # Errors
    /// The first rule that is against it.
    pub fn check_key(&self, user: &PublicKey) -> Result<(), Denial> {
        self.check_revoked("the user", std::iter::once(Subject::Key(*user)))?;
        self.check_deny(&user.fingerprint(), (user, user))
    }

    fn check_lists(&self, name: &str, keys: (&PublicKey, &PublicKey)) -> Result<(), Denial> {
        if self.policy.allow.as_ref().is_some_and(|allow| !OwnerPolicy::names(allow, name, keys)) {
            return Err(Denial::new(Rule::OwnerAllow, format!("user {name} is not among those allowed")));
        }
        self.check_deny(name, keys)
    }

    fn check_deny(&self, name: &str, keys: (&PublicKey, &PublicKey)) -> Result<(), Denial> {
        match OwnerPolicy::names(&self.policy.deny, name, keys) {
            true => Err(Denial::new(Rule::OwnerDeny, format!("user {name} is not allowed"))),
            false => Ok(()),
        }
    }

    fn check_policy(&self, permit: &Permit, window: Window, now: Time) -> Result<(), Denial> {
        let policy = &self.policy;
        self.check_user(permit)?;
        Gate::check_offered(&Offered { longest: policy.max_duration, ..Offered::default() }, window, now)?;
        // Whoever is denied is told so at any time.
        self.check_time(window, now)?;
        check_reach(Rule::MaxReach, permit.limits.max_reach_s, window, now)
    }
}

/// Checks that a window ends within a reach from now, if there is a limit.
fn check_reach(rule: Rule, reach: Option<Span>, window: Window, now: Time) -> Result<(), Denial> {
    match reach.filter(|reach| is_beyond(window.end, now, *reach)) {
        Some(reach) => Err(Denial::new(rule, format!("it would end more than {reach} from now"))),
        None => Ok(()),
    }
}
