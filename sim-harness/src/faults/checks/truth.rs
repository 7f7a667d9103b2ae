//! What really was, whoever believes what: what the ledger of each site showed at each of its versions (views are
//! compared with it), and which attempts all participants had confirmed at some time.
//!
//! Invariant: a view shows exactly what its site had at the version it names, and never goes back to an earlier one.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    ids::{HostId, RequestId, SiteId},
    ledger::Ledger,
    protocol::{AttemptId, LedgerVersion},
    schedule::Schedule,
    time::{Now, Span, Time},
    view::Schedules,
};

use super::super::{clock, discovery::known_version, names, node::Node, world::World};

/// Clocks differ by less; before this much after the true time nothing is compared, since each may have forgotten it.
const FORGOTTEN: Span = Span(60);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Truth {
    by_version: BTreeMap<(usize, LedgerVersion), Vec<(HostId, Schedule)>>,
    complete: BTreeSet<AttemptId>,
    /// Hosts of requests that their owners have taken away.
    lost: BTreeSet<(RequestId, usize, HostId)>,
}

impl Truth {
    /// Notes what the ledger of a site shows now.
    pub fn note(&mut self, node: usize, ledger: &Ledger, now: Now) {
        self.by_version.entry((node, ledger.version())).or_insert_with(|| ledger.snapshot(now).hosts);
    }

    /// Notes that an attempt is on the disks of all its participants if it is: its last one has just written it.
    pub fn note_confirmed(&mut self, nodes: &[Node], attempt: &AttemptId, participants: &[SiteId]) {
        let mut sites = participants.iter().filter_map(names::index_of);
        if sites.all(|site| nodes[site].disk.reservations.contains_key(attempt)) {
            self.complete.insert(attempt.clone());
        }
    }

    /// Notes that the owner of a host has taken it away from a request.
    pub fn note_lost(&mut self, request: &RequestId, site: usize, host: &HostId) {
        self.lost.insert((request.clone(), site, host.clone()));
    }

    /// Whether the owner of a host has taken it away from a request.
    pub fn is_lost(&self, request: &RequestId, site: usize, host: &HostId) -> bool {
        self.lost.contains(&(request.clone(), site, host.clone()))
    }

    /// Whether all participants of an attempt had confirmed it at some time.
    pub fn was_complete(&self, attempt: &AttemptId) -> bool {
        self.complete.contains(attempt)
    }
}

/// A version for people.
fn shown(version: LedgerVersion) -> String {
    format!("version {}.{}", version.incarnation, version.change)
}

fn after(schedule: &Schedule, time: Time) -> Schedule {
    let mut schedule = schedule.clone();
    schedule.forget_before(time);
    schedule
}

impl World {
    /// The view that `node` has of `site` has changed; before, it showed version `before`.
    pub(in super::super) fn check_view(&mut self, node: usize, site: usize, before: Option<LedgerVersion>) {
        let from = clock::true_utc(self.now) + FORGOTTEN;
        let Some(view) = self.nodes[node].running().and_then(|running| running.views.get(&site)) else { return };
        let Schedules::Known(known) = view.schedules() else { return };
        let what = if known_version(view) < before {
            let before = before.map_or_else(|| "nothing".to_owned(), shown);
            Some(format!("went back from {before} to {}", shown(known.version)))
        } else if let Some(truth) = self.truth.by_version.get(&(site, known.version)) {
            let differs = truth.iter().find(|(host, schedule)| {
                let believed = known.by_host.get(host).cloned().unwrap_or_default();
                after(&believed, from) != after(schedule, from)
            });
            differs.map(|(host, _)| format!("shows {host} otherwise than the site did at {}", shown(known.version)))
        } else {
            Some(format!("shows {}, which the site never had", shown(known.version)))
        };
        if let Some(what) = what {
            self.violate("a view shows what was", None, format!("the view that s{node} has of s{site} {what}"));
        }
    }
}
