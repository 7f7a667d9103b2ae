//! Views show what was: each is compared with what the ledger of its site showed at the version that the view names.
//!
//! Invariant: a view never goes back to an earlier version.

use broker::{ids::HostId, protocol::LedgerVersion, view::Schedules};

use super::super::{
    grid::Grid,
    truth::{FORGOTTEN, after},
    views::known_version,
};

fn shown(version: LedgerVersion) -> String {
    format!("version {}.{}", version.incarnation, version.change)
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
        let (truth, believed) = (after(truth, from), after(&known.schedules, from));
        let hosts = truth.hosts().chain(believed.hosts()).map(|(host, _)| host);
        let hosts = hosts.filter(|host| truth.host(host) != believed.host(host));
        let of_class = |(one, other): (_, _)| (one != other).then_some(one);
        let classes = truth.classes().zip(believed.classes()).filter_map(of_class).map(|(class, _)| class);
        let differs = (truth != believed).then(|| hosts.chain(classes).next().map_or("other classes", HostId::as_str));
        differs.map(|what| format!("shows {what} otherwise than the site did at {}", shown(known.version)))
    } else {
        Some(format!("shows {}, which the site never had", shown(known.version)))
    };
    if let Some(what) = what {
        grid.violate("a view shows what was", None, format!("the view that s{node} has of s{site} {what}"));
    }
}
