//! What its attempts have taught a search of sites: which are left out and why, what is free there now, who was faster.
//!
//! Invariant: a site that is left out for what it has refused stays so for the search, and one that was silent is let in again at most
//! `SILENCES_MAX - 1` times. What quotes show beside what is reserved counts until a plan is held.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng, RngExt};

use super::{Found, NegotiationSettings, hints::Hints, quotes::Quotes};
use crate::{
    ids::SiteId,
    protocol::{HostState, LedgerVersion, Refusal, RefusalReason},
    time::{Millis, Window},
    trust::Denial,
};

/// A site that has refused so often to give more than a share of it is left out: it shows of the hosts asked for only which are
/// beyond the share, and it may have many more.
const SHARE_REFUSALS_MAX: u32 = 3;

/// A site that has refused so often because of its price is left out.
const PRICE_REFUSALS_MAX: u32 = 4;

/// A site that has refused so often by rules that it had just changed is left out.
const RULE_REFUSALS_MAX: u32 = 4;

/// A site that has been silent so often stays left out: one answer may be lost, or come late from a site whose link was down a moment ago.
const SILENCES_MAX: u32 = 3;

/// A site that was busy is asked again after this at the latest, and after half of it at the earliest.
const BUSY_WAIT: Millis = Millis(64);

/// Why a site is left out from now on.
#[derive(Debug)]
enum Exclusion {
    /// It did not answer.
    Silent,
    /// It refused for a reason that another attempt would not change.
    Refused(String),
}

/// How a plan minds the holds of others that refusals have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Ignored,
    AvoidedIfPossible,
    Avoided,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Lessons {
    excluded: BTreeMap<SiteId, Exclusion>,
    hints: Hints,
    quotes: Quotes,
    /// The refusal that ended the last attempt has shown free amounts, on which no plan was made yet.
    has_learned: bool,
    /// The last site that has refused to give more than a share of it, and its words.
    limited_by: Option<(SiteId, String)>,
    /// How often each site has refused so.
    share_refusals: BTreeMap<SiteId, u32>,
    /// How often each site has refused by rules that had changed.
    rule_refusals: BTreeMap<SiteId, u32>,
    /// How often each site has refused because of its price.
    price_refusals: BTreeMap<SiteId, u32>,
    /// How often each site has been silent.
    silences: BTreeMap<SiteId, u32>,
    /// Sites that have been busy once.
    were_busy: BTreeSet<SiteId>,
    /// The last attempt has met one for the first time.
    waits_for_busy: bool,
    /// Attempts that failed on a hold of another request.
    held_by_others: u32,
}

impl Lessons {
    /// The sites that are left out.
    pub fn excluded(&self) -> impl Iterator<Item = &SiteId> {
        self.excluded.keys()
    }

    /// Whether a site is left out.
    pub fn is_excluded(&self, site: &SiteId) -> bool {
        self.excluded.contains_key(site)
    }

    /// A site that is left out for what it has refused, and its words.
    pub fn refused_for_good(&self) -> Option<(&SiteId, &str)> {
        self.excluded.iter().find_map(|(site, exclusion)| match exclusion {
            Exclusion::Refused(detail) => Some((site, detail.as_str())),
            Exclusion::Silent => None,
        })
    }

    /// The last site that has refused to give more than a share of it, and its words.
    pub fn limited_by(&self) -> Option<&(SiteId, String)> {
        self.limited_by.as_ref()
    }

    /// What is known of hosts beyond what discovery has found.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }

    /// What was learned from quotes.
    pub fn quotes(&mut self) -> &mut Quotes {
        &mut self.quotes
    }

    /// The number of a new round of quotes, if there is to be one more.
    pub fn begin_quotes(&mut self) -> Option<u32> {
        self.quotes.begin(&self.hints)
    }

    /// A plan is held: the own jobs that were shown are in nobody's way.
    pub fn end_quotes(&mut self) {
        self.quotes.end(&mut self.hints);
    }

    /// How a plan on hosts that were found minds the holds of others. It avoids them only after two attempts have met one: most go away
    /// or become reservations at once, and a plan around a hold that goes away starts later than it need; but who holds hosts again and
    /// again is not to keep others from all of them.
    pub fn holds(&self) -> Holds {
        if self.held_by_others >= 2 { Holds::AvoidedIfPossible } else { Holds::Ignored }
    }

    /// Reads and clears the note that the last refusal has shown free amounts.
    pub fn take_learned(&mut self) -> bool {
        std::mem::take(&mut self.has_learned)
    }

    /// Whether a search has something new to plan with.
    pub fn has_learned(&self) -> bool {
        self.has_learned
    }

    /// A site has had no room for a question: it is asked once more after a while, and then left out.
    pub fn note_busy(&mut self, site: &SiteId) {
        if self.were_busy.insert(site.clone()) {
            self.waits_for_busy = true;
            self.has_learned = false;
        } else {
            self.exclude_silent(site);
        }
    }

    /// Leaves out a site whose owner gives the user nothing.
    pub fn exclude_denied(&mut self, site: SiteId, denial: &Denial) {
        self.excluded.insert(site, Exclusion::Refused(denial.to_string()));
    }

    /// Leaves out a site that did not answer.
    pub fn exclude_silent(&mut self, site: &SiteId) {
        *self.silences.entry(site.clone()).or_default() += 1;
        self.excluded.insert(site.clone(), Exclusion::Silent);
    }

    /// Lets the silent sites be asked again that have not been silent [`SILENCES_MAX`] times; true where there is one.
    pub fn readmit_silent(&mut self) -> bool {
        let (before, silences) = (self.excluded.len(), &self.silences);
        self.excluded.retain(|site, exclusion| match exclusion {
            Exclusion::Silent => silences.get(site).is_some_and(|count| *count >= SILENCES_MAX),
            Exclusion::Refused(_) => true,
        });
        self.excluded.len() < before
    }

    /// How many sites have been silent; what they would have given is not known, whether or not they are asked again.
    pub fn silent_sites(&self) -> usize {
        self.silences.len()
    }

    /// Learns from a refusal that ended an attempt, of seats in `window`; true when another request was faster.
    pub fn learn(
        &mut self,
        site: &SiteId,
        refusal: Refusal,
        asked: (usize, Option<Window>),
        found: Option<&Found>,
    ) -> bool {
        let is_conflict = match &refusal.reason {
            RefusalReason::HeldByAnother { .. } | RefusalReason::OtherAttempt => {
                self.held_by_others += 1;
                let shows_holds = refusal.hosts.iter().any(|state| !state.held.is_empty());
                // Who meets others again and again waits until it is clear what they get.
                self.has_learned = shows_holds && self.held_by_others == 1;
                true
            }
            RefusalReason::NotEnough { .. } => {
                self.has_learned = !refusal.hosts.is_empty();
                true
            }
            // The plan could have minded it.
            RefusalReason::UplinkFull { .. } if found.is_some_and(|found| found.uplinks.of(site).is_some()) => {
                self.has_learned = !refusal.hosts.is_empty();
                true
            }
            RefusalReason::PriceChanged { host, tariff } => {
                let refusals = self.price_refusals.entry(site.clone()).or_default();
                *refusals += 1;
                // One that shows nothing new would refuse again.
                if *refusals >= PRICE_REFUSALS_MAX || self.hints.has_tariff(site, (host, tariff), found) {
                    self.excluded.insert(site.clone(), Exclusion::Refused(refusal.reason.to_string()));
                }
                self.has_learned = true;
                false
            }
            RefusalReason::NotOffered { denial, offer } => {
                let refusals = self.rule_refusals.entry(site.clone()).or_default();
                *refusals += 1;
                // Rules that the plan has minded would be broken again.
                if *refusals >= RULE_REFUSALS_MAX || self.hints.has_offer(site, offer, found) {
                    self.excluded.insert(site.clone(), Exclusion::Refused(denial.to_string()));
                }
                self.has_learned = true;
                false
            }
            RefusalReason::NotAllowed(denial) if refusal.shows_what_is_free() => {
                self.has_learned = true;
                self.limited_by = Some((site.clone(), denial.to_string()));
                let refusals = self.share_refusals.entry(site.clone()).or_default();
                *refusals += 1;
                if *refusals == SHARE_REFUSALS_MAX {
                    self.excluded.insert(site.clone(), Exclusion::Refused(denial.to_string()));
                }
                false
            }
            RefusalReason::Busy => {
                self.note_busy(site);
                false
            }
            RefusalReason::NotAllowed(_) if refusal.is_shortened() => {
                self.note_busy(site);
                false
            }
            // The site would refuse for the same reason again.
            reason => {
                self.excluded.insert(site.clone(), Exclusion::Refused(reason.to_string()));
                false
            }
        };
        self.remember(site, refusal, asked, found);
        is_conflict
    }

    /// Remembers the hosts that a refusal shows, at most `hosts_max`, and the uplink; it was of seats in `window`, if that is known.
    pub fn remember(
        &mut self,
        site: &SiteId,
        refusal: Refusal,
        (hosts_max, window): (usize, Option<Window>),
        found: Option<&Found>,
    ) {
        if let Some(before) = self.quotes.before() {
            before.remember(site, refusal.clone(), hosts_max, (found, window));
        }
        self.hints.remember(site, refusal, hosts_max, (found, window));
    }

    /// Remembers how a quote shows the hosts of a plan, at most so many, until one is held.
    pub fn remember_quoted(&mut self, site: &SiteId, version: LedgerVersion, hosts: Vec<HostState>, hosts_max: usize) {
        self.hints.remember_states(site, version, hosts, hosts_max);
    }

    /// The wait before the next attempt. Where others hold what it wants, it is longer than their attempts take, and its longest doubles with
    /// every such conflict: so rivals for the same hosts come one after the other, and see what the one before has got.
    pub fn wait(&mut self, settings: &NegotiationSettings, random: &mut impl Rng) -> Millis {
        if self.held_by_others > 0 {
            self.waits_for_busy = false;
            let longest = (settings.backoff_min.0 << self.held_by_others.min(16)).min(settings.backoff_max.0);
            return Millis(random.random_range(settings.backoff_min.0..=longest.max(settings.backoff_min.0)));
        }
        match std::mem::take(&mut self.waits_for_busy) {
            true => Millis(random.random_range(BUSY_WAIT.0 / 2..=BUSY_WAIT.0)),
            false => Millis(0),
        }
    }
}
