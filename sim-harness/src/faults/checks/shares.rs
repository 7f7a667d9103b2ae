//! Nobody gets more of a site than its owner lets one user, one node or one network have: summed up anew from the site's bookings for
//! each that is new, by what users have asked and where nodes are.
//!
//! Invariant: shares no code with the ledger. What was promised before an owner took hosts away may be more than the share of what is
//! left.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    amount::Amount,
    ids::HostId,
    ledger::Booking,
    protocol::AttemptId,
    resources::{Amounts, ResourceName, amount_of},
    time::{Span, Time, Window},
    trust::PublicKey,
};

use super::{
    super::{grid::Grid, names, shares::Shares},
    links,
};

/// How far ahead all ledgers promise at most.
const FARTHEST: Span = Span(7 * 86_400);

/// Who has a share of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Party {
    User(PublicKey),
    Node(usize),
    Network(usize),
}

/// What a booking takes of one host, or of the uplink.
struct Taken<'a> {
    host: Option<&'a HostId>,
    window: Window,
    amounts: Amounts,
}

/// These bookings are new in the ledger of a site.
pub fn check_shares(grid: &mut Grid, site: usize, new: &[AttemptId]) {
    let (Some(shares), Some(running)) = (&grid.options.shares, grid.nodes[site].running()) else { return };
    let of_new = running.machines.ledger.bookings().filter(|booking| new.contains(&booking.attempt));
    let wrong = |booking: &Booking| Some((booking.attempt.clone(), above_share(grid, shares, site, booking)?));
    let found: Vec<(AttemptId, String)> = of_new.filter_map(wrong).collect();
    for (attempt, what) in found {
        grid.violate("nobody has more than a share", Some(&attempt.request), format!("s{site}: {what}"));
    }
}

/// Those that share what a booking at a site takes. The site's own node is bound by none.
fn parties(grid: &Grid, shares: &Shares, site: usize, booking: &Booking) -> Vec<Party> {
    let user = grid.users.get(&booking.attempt.request).map(|user| Party::User(user.user));
    let node = names::index_of(&booking.attempt.entry_point).filter(|node| *node != site);
    let network = node.and_then(|node| shares.network_of(node)).map(Party::Network);
    [user, node.map(Party::Node), network].into_iter().flatten().collect()
}

/// All that a booking takes.
fn taken<'b>(grid: &Grid, site: usize, booking: &'b Booking) -> Vec<Taken<'b>> {
    let of_grant = |grant: &'b broker::protocol::Grant| Taken {
        host: Some(grant.host()),
        window: grant.window,
        amounts: grant.amounts.clone(),
    };
    let load = links::load_of(grid, booking).filter(|_| grid.nodes[site].uplink.is_some());
    let on_link = load.map(|load| {
        let amounts = Amounts::from([(ResourceName::mbps(), Amount(load))]);
        Taken { host: None, window: booking.window, amounts }
    });
    booking.grants.iter().map(of_grant).chain(on_link).collect()
}

/// How a new booking lifts somebody above a share, if it does.
fn above_share(grid: &Grid, shares: &Shares, site: usize, new: &Booking) -> Option<String> {
    let ledger = &grid.nodes[site].running()?.machines.ledger;
    parties(grid, shares, site, new).into_iter().find_map(|party| {
        let theirs = ledger.bookings().filter(|booking| parties(grid, shares, site, booking).contains(&party));
        let all: Vec<Taken<'_>> = theirs.flat_map(|booking| taken(grid, site, booking)).collect();
        taken(grid, site, new).iter().find_map(|one| {
            let is_user = matches!(party, Party::User(_));
            let what = above_of_site(grid, shares, site, (&all, one))
                .or_else(|| is_user.then(|| above_of_host(grid, shares, site, (&all, one))).flatten())?;
            Some(format!("{party:?} has {what}"))
        })
    })
}

/// The most that is taken at any time of a window.
fn most_at_a_time<'a>(all: impl Iterator<Item = &'a Taken<'a>>, name: &ResourceName, window: Window) -> u128 {
    let all: Vec<(Window, u64)> = all.map(|taken| (taken.window, amount_of(&taken.amounts, name).0)).collect();
    let starts = all.iter().map(|(taken, _)| taken.start).filter(|at| window.start <= *at && *at < window.end);
    let times: BTreeSet<Time> = starts.chain([window.start]).collect();
    let sum_at = |at: Time| {
        let under_way = all.iter().filter(|(taken, _)| taken.start <= at && at < taken.end);
        under_way.map(|(_, amount)| u128::from(*amount)).sum()
    };
    times.into_iter().map(sum_at).max().unwrap_or(0)
}

/// Of the whole site: at a time, and in all.
fn above_of_site(grid: &Grid, shares: &Shares, site: usize, (all, new): (&[Taken<'_>], &Taken<'_>)) -> Option<String> {
    let node = &grid.nodes[site];
    let mut there: BTreeMap<ResourceName, (u128, u128)> = BTreeMap::new();
    for (name, amount) in node.hosts.iter().flat_map(|(host, _)| &host.capacity) {
        let (sum, one) = there.entry(name.clone()).or_default();
        (*sum, *one) = (*sum + u128::from(amount.0), (*one).max(u128::from(amount.0)));
    }
    there.entry(ResourceName::mbps()).or_default().0 += node.uplink.map_or(0, |mbps| u128::from(mbps.0));
    let percent = u128::from(shares.site_percent);
    let reach = shares.reach.unwrap_or(FARTHEST);
    let longest = shares.longest.unwrap_or(reach).min(reach);
    new.amounts.keys().find_map(|name| {
        let (sum, one) = there.get(name).copied().unwrap_or_default();
        let (has, may) = (most_at_a_time(all.iter(), name, new.window), one.max(sum * percent / 100));
        if has > may {
            return Some(format!("{has} of {} at a time, may have {may}", name.as_str()));
        }
        let of_time =
            |taken: &Taken<'_>| u128::from(amount_of(&taken.amounts, name).0) * u128::from(taken.window.duration().0);
        let has: u128 = all.iter().map(of_time).sum();
        let may = (one * u128::from(longest.0)).max(sum * u128::from(reach.0) * percent / 100);
        (has > may).then(|| format!("{has} of {} times seconds, may have {may}", name.as_str()))
    })
}

/// Of one host.
fn above_of_host(grid: &Grid, shares: &Shares, site: usize, (all, new): (&[Taken<'_>], &Taken<'_>)) -> Option<String> {
    let (percent, name) = (shares.host_percent?, ResourceName::new("cpu").ok()?);
    let (host, _) = grid.nodes[site].hosts.iter().find(|(host, _)| Some(&host.id) == new.host)?;
    let may = u128::from(amount_of(&host.capacity, &name).0) * u128::from(percent) / 100;
    let has = most_at_a_time(all.iter().filter(|taken| taken.host == new.host), &name, new.window);
    (has > may).then(|| format!("{has} of {} on {}, may have {may}", name.as_str(), host.id))
}
