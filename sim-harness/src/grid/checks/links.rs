//! Checks that no site books more traffic than its uplink carries, by plain sums over what the nodes' APIs show.
//!
//! Invariant: what a host sends is read off the requests of users, and where hosts are off the sites' bookings; nothing of the nodes' own
//! books of uplinks is used.

use std::collections::{BTreeMap, BTreeSet};

use broker::{demand::Demand, time::Window};

use super::invariants::{Breach, Reported, Violation};
use crate::grid::nodes::wire::{Booking, Ledger};

/// The sites whose bookings put more than `mbps` on their uplink at some time.
pub fn check(ledgers: &[Ledger], reported: &[Reported<'_>], mbps: u64) -> Vec<Violation> {
    let demands: BTreeMap<&str, &Demand> =
        reported.iter().map(|reported| (reported.view.id.as_str(), reported.request.demand())).collect();
    ledgers.iter().filter_map(|ledger| over(ledger, &demands, mbps)).collect()
}

fn over(ledger: &Ledger, demands: &BTreeMap<&str, &Demand>, mbps: u64) -> Option<Violation> {
    let load =
        |booking: &Booking| Some((window_of(booking)?, load_of(demands.get(booking.request.as_str())?, booking)));
    let loads: Vec<(Window, u64)> = ledger.bookings.iter().filter_map(load).collect();
    let starts: BTreeSet<i64> = loads.iter().map(|(window, _)| window.start.0).collect();
    let sum = |at: &i64| {
        let under_way = loads.iter().filter(|(window, _)| (window.start.0..window.end.0).contains(at));
        (*at, under_way.map(|(_, load)| load).sum::<u64>())
    };
    let (at, sum) = starts.iter().map(sum).find(|(_, sum)| *sum > mbps)?;
    let text = format!("{}: {sum} Mbit/s on the uplink at {at}, which carries {mbps}", ledger.site);
    Some(Violation::new(Breach::OverCommitted, None, text))
}

fn window_of(booking: &Booking) -> Option<Window> {
    let start = booking.grants.iter().map(|grant| grant.window.start).min()?;
    let end = booking.grants.iter().map(|grant| grant.window.end).max()?;
    Some(Window { start, end })
}

/// With t of N hosts at the site: `ceil(t b (N - t) / (N - 1))`; nothing where all are to be at one site.
fn load_of(demand: &Demand, booking: &Booking) -> u64 {
    if demand.sites_max() == Some(1) {
        return 0;
    }
    let (here, seats) = (booking.grants.len() as u64, demand.seats() as u64);
    let sent = demand.traffic().map_or(0, |traffic| here * traffic.mbps.0 * seats.saturating_sub(here));
    sent.div_ceil(seats.saturating_sub(1).max(1))
}

#[cfg(test)]
mod tests {
    use broker::request::Request;
    use serde_json::json;

    use super::*;
    use crate::grid::nodes::wire::RequestView;

    #[test]
    fn what_bookings_put_on_an_uplink_is_summed_at_every_time() {
        let request: Request = serde_json::from_str(r#"{"hosts":3,"work":60,"traffic":{"mbps":40}}"#).unwrap();
        let views: Vec<RequestView> = ["q", "r"]
            .map(|id| json!({"id": id, "state": "confirmed", "attempts": 1, "conflicts": 0, "reservation": null, "reason": null}))
            .into_iter()
            .map(|view| serde_json::from_value(view).unwrap())
            .collect();
        let reported: Vec<Reported<'_>> = views.iter().map(|view| Reported { request: &request, view }).collect();
        let booking = |request: &str, hosts: &[&str], start: i64| {
            let grant =
                |host: &&str| json!({"host": host, "window": {"start": start, "end": start + 60}, "amounts": {}});
            let grants: Vec<_> = hosts.iter().map(grant).collect();
            json!({"entry_point": "A", "request": request, "state": "confirmed", "settled": true, "grants": grants})
        };
        let found = |second_start: i64, mbps| {
            let bookings = json!([booking("q", &["a"], 100), booking("r", &["b", "c"], second_start)]);
            let version = json!({"incarnation": 1, "change": 1});
            let ledger = json!({"site": "A", "ledger_version": version, "hosts": [], "bookings": bookings});
            check(&[serde_json::from_value(ledger).unwrap()], &reported, mbps).len()
        };
        // One or two of three hosts put 40 Mbit/s on the link.
        assert_eq!([found(160, 40), found(160, 39), found(159, 79), found(159, 80)], [0, 1, 1, 0]);
    }
}
