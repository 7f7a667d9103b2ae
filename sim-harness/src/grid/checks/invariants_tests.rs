//! Every kind of violation, seeded by hand into ledgers and reservations that are otherwise right.

use serde_json::{Value, json};

use super::*;

const NOW: i64 = 50;

/// Two sites with one host each; request q1 holds 300 + 500 millicores in [100, 160).
struct Grid {
    ledgers: Value,
    request: Value,
    view: Value,
}

impl Grid {
    fn right() -> Grid {
        let ledger = |site: &str, host: &str, cpu: u64| {
            json!({
                "site": site, "ledger_version": {"incarnation": 1, "change": 2},
                "hosts": [{"id": host, "resources": {"cpu": 1000}, "attributes": {"arch": "x86_64"},
                    "own": {"cpu": [[0, 200], [130, 400], [200, 0]]},
                    "occupancy": {"cpu": [[40, 200], [100, 200 + cpu], [130, 400 + cpu], [160, 400], [200, 0]]}}],
                "bookings": [{"entry_point": "A", "request": "q1", "attempt": 1, "state": "confirmed", "settled": true,
                    "user": "u", "window": {"start": 100, "end": 160}, "grants": [{"host": host, "amounts": {"cpu": cpu}}]}]
            })
        };
        let host = |site: &str, host: &str, cpu: u64| json!({"site": site, "site_name": site, "host": host, "amounts": {"cpu": cpu}});
        Grid {
            ledgers: json!([ledger("A", "a", 300), ledger("B", "b", 500)]),
            request: json!({"hosts": 2, "duration": 60, "earliest": 90, "latest": 110, "per_host": {"cpu": 300},
                "total": {"cpu": 800}, "attributes": {"arch": "x86_64"}, "candidates": ["a", "b"]}),
            view: json!({"id": "q1", "state": "confirmed", "attempts": 1, "conflicts": 0, "reason": null,
                "reservation": {"start": 100, "end": 160, "hosts": [host("A", "a", 300), host("B", "b", 500)]}}),
        }
    }

    fn violations(&self) -> Vec<Violation> {
        let ledgers: Vec<Ledger> = serde_json::from_value(self.ledgers.clone()).unwrap();
        let request: Request = serde_json::from_value(self.request.clone()).unwrap();
        let view: RequestView = serde_json::from_value(self.view.clone()).unwrap();
        check(&ledgers, &[Reported { request: &request, view: &view }], NOW)
    }

    fn is_unsettled(&self) -> bool {
        let ledgers: Vec<Ledger> = serde_json::from_value(self.ledgers.clone()).unwrap();
        let request: Request = serde_json::from_value(self.request.clone()).unwrap();
        let view: RequestView = serde_json::from_value(self.view.clone()).unwrap();
        is_unsettled(&ledgers, &[Reported { request: &request, view: &view }])
    }

    /// The right grid with one value changed.
    fn with(change: impl FnOnce(&mut Grid)) -> Vec<Violation> {
        let mut grid = Grid::right();
        change(&mut grid);
        grid.violations()
    }
}

#[test]
fn the_right_grid_has_no_violation() {
    assert_eq!(Grid::right().violations(), []);
    assert!(!Grid::right().is_unsettled());
}

#[test]
fn over_commitment_is_found_at_its_moment() {
    let found = Grid::with(|grid| grid.ledgers[0]["hosts"][0]["resources"]["cpu"] = json!(699));
    assert!(
        matches!(&found[..], [Violation::OverCommitted { t: 130, own: 400, granted: 300, capacity: 699, .. }]),
        "{found:?}"
    );
    // A resource that the host does not have has capacity zero.
    let found = Grid::with(|grid| {
        grid.ledgers[0]["bookings"][0]["grants"][0]["amounts"] = json!({"cpu": 300, "gpu": 1});
    });
    assert!(found.iter().any(|one| matches!(one, Violation::OverCommitted { capacity: 0, .. })), "{found:?}");
    // An owner may over-commit an own host where nothing is granted.
    let found = Grid::with(|grid| {
        grid.ledgers[0]["hosts"][0]["own"]["cpu"] = json!([[0, 200], [130, 400], [200, 5000]]);
        grid.ledgers[0]["hosts"][0]["occupancy"]["cpu"] =
            json!([[40, 200], [100, 500], [130, 700], [160, 400], [200, 5000]]);
    });
    assert_eq!(found, []);
}

#[test]
fn a_schedule_that_is_not_the_sum_of_its_parts_is_found() {
    let found = Grid::with(|grid| grid.ledgers[1]["hosts"][0]["occupancy"]["cpu"][1][1] = json!(200));
    assert!(matches!(&found[..], [Violation::ScheduleDiffers { t: 100, shown: 200, sum: 700, .. }]), "{found:?}");
}

#[test]
fn what_is_left_behind_is_found() {
    let mut grid = Grid::right();
    grid.ledgers[0]["bookings"][0]["state"] = json!("held");
    assert!(grid.is_unsettled());
    assert!(grid.violations().contains(&Violation::HoldLeft { site: "A".to_owned(), request: "q1".to_owned() }));

    let mut grid = Grid::right();
    grid.view["state"] = json!("failed");
    assert!(grid.is_unsettled());
    let found = grid.violations();
    assert!(matches!(&found[..], [Violation::Leftover { .. }, Violation::Leftover { .. }]), "{found:?}");

    let found = Grid::with(|grid| {
        let booking = grid.ledgers[0]["bookings"][0].clone();
        grid.ledgers[0]["bookings"] = json!([booking, booking]);
    });
    assert!(found.iter().any(|one| matches!(one, Violation::Repeated { times: 2, .. })), "{found:?}");

    let found = Grid::with(|grid| grid.ledgers[0]["bookings"][0]["grants"][0]["host"] = json!("z"));
    assert!(found.iter().any(|one| matches!(one, Violation::UnknownHost { host, .. } if host == "z")), "{found:?}");
}

#[test]
fn a_reservation_that_the_ledgers_do_not_have_is_found() {
    let missing = Grid::with(|grid| {
        grid.ledgers[1]["bookings"] = json!([]);
        grid.ledgers[1]["hosts"][0]["occupancy"] = grid.ledgers[1]["hosts"][0]["own"].clone();
    });
    let moved = Grid::with(|grid| grid.ledgers[0]["bookings"][0]["window"]["end"] = json!(150));
    let shrunk = Grid::with(|grid| grid.ledgers[0]["bookings"][0]["grants"][0]["amounts"]["cpu"] = json!(299));
    for found in [missing, moved, shrunk] {
        assert!(found.iter().any(|one| matches!(one, Violation::NotAsAcknowledged { .. })), "{found:?}");
    }
    // What is over by the time of the check may be gone.
    let over = Grid::with(|grid| {
        grid.ledgers = json!([]);
        grid.request["earliest"] = json!(0);
        grid.request["duration"] = json!(10);
        grid.view["reservation"]["start"] = json!(10);
        grid.view["reservation"]["end"] = json!(20);
        grid.request["latest"] = json!(20);
    });
    assert_eq!(over, []);
}

#[test]
fn a_reservation_that_is_not_what_was_asked_is_found() {
    let changes: [fn(&mut Grid); 9] = [
        |grid| grid.request["hosts"] = json!(1),
        |grid| grid.request["duration"] = json!(61),
        |grid| grid.request["earliest"] = json!(101),
        |grid| grid.request["latest"] = json!(99),
        |grid| grid.request["per_host"]["cpu"] = json!(301),
        |grid| grid.request["total"]["cpu"] = json!(801),
        |grid| grid.request["total"]["cpu"] = json!(799),
        |grid| grid.request["attributes"]["arch"] = json!("aarch64"),
        |grid| grid.request["candidates"] = json!(["a", "c"]),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let found = Grid::with(change);
        assert!(!found.is_empty(), "change {index} is not found");
        assert!(found.iter().all(|one| matches!(one, Violation::NotAsAsked { .. })), "change {index}: {found:?}");
    }
    let twice = Grid::with(|grid| {
        let host = grid.view["reservation"]["hosts"][0].clone();
        grid.view["reservation"]["hosts"] = json!([host, host]);
    });
    assert!(
        twice
            .iter()
            .any(|one| matches!(one, Violation::NotAsAsked { acknowledged, .. } if acknowledged.contains("1 of them")))
    );
    let nothing = Grid::with(|grid| grid.view["reservation"] = Value::Null);
    assert!(nothing.iter().any(|one| matches!(one, Violation::NotAsAsked { .. })), "{nothing:?}");
}
