//! Views show what was: each is compared with what the ledger of its site showed at the version that the view names.
//!
//! Invariant: a view never goes back to an earlier version.

use std::collections::BTreeMap;

use broker::{
    ids::HostId,
    protocol::LedgerVersion,
    schedule::Schedule,
    time::{Span, Time},
    view::Schedules,
};

use super::super::{grid::Grid, views::known_version};

/// Clocks differ by less; before this much after the true time nothing is compared, since each may have forgotten it.
const FORGOTTEN: Span = Span(60);

fn shown(version: LedgerVersion) -> String {
    format!("version {}.{}", version.incarnation, version.change)
}

fn after(schedule: &Schedule, time: Time) -> Schedule {
    let mut schedule = schedule.clone();
    schedule.forget_before(time);
    schedule
}

/// The view that `node` has of `site` has changed; before, it showed version `before`.
pub fn check_view(grid: &mut Grid, node: usize, site: usize, before: Option<LedgerVersion>) {
    let from = grid.utc() + FORGOTTEN;
    let Some(view) = grid.nodes[node].running().and_then(|running| running.views.get(site)) else { return };
    let Schedules::Known(known) = view.schedules() else { return };
    let what = if known_version(view) < before {
        let before = before.map_or_else(|| "nothing".to_owned(), shown);
        Some(format!("went back from {before} to {}", shown(known.version)))
    } else if let Some(truth) = grid.truth.at(site, known.version) {
        let of = |schedules: &BTreeMap<HostId, Schedule>, host| {
            schedules.get(host).map(|schedule| after(schedule, from)).unwrap_or_default()
        };
        let mut hosts = truth.keys().chain(known.by_host.keys());
        let differs = hosts.find(|host| of(truth, host) != of(&known.by_host, host));
        differs.map(|host| format!("shows {host} otherwise than the site did at {}", shown(known.version)))
    } else {
        Some(format!("shows {}, which the site never had", shown(known.version)))
    };
    if let Some(what) = what {
        grid.violate("a view shows what was", None, format!("the view that s{node} has of s{site} {what}"));
    }
}
