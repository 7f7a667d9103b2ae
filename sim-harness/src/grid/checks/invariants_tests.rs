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

/// The violations of the right grid with something changed.
fn with(change: impl FnOnce(&mut Grid)) -> Vec<Violation> {
    let ledger = |site: &str, host: &str, cpu: u64| {
        json!({
            "site": site, "ledger_version": {"incarnation": 1, "change": 2},
            "hosts": [{"id": host, "resources": {"cpu": 1000}, "attributes": {"arch": "x86_64"},
                "own": {"cpu": [[0, 200], [130, 400], [200, 0]]},
                "occupancy": {"cpu": [[40, 200], [100, 200 + cpu], [130, 400 + cpu], [160, 400], [200, 0]]}}],
            "bookings": [{"entry_point": "A", "request": "q1", "attempt": 1, "state": "confirmed", "settled": true,
                "user": "u",
                "grants": [{"host": host, "window": {"start": 100, "end": 160}, "amounts": {"cpu": cpu}}]}]
        })
    };
    let host = |site: &str, host: &str, cpu: u64| json!({"site": site, "site_name": site, "host": host, "end": 160, "amounts": {"cpu": cpu}});
    let mut grid = Grid {
        ledgers: json!([ledger("A", "a", 300), ledger("B", "b", 500)]),
        request: json!({"hosts": 2, "duration": 60, "earliest": 90, "latest": 110, "per_host": {"cpu": 300},
            "total": {"cpu": 800}, "attributes": {"arch": "x86_64"}, "candidates": ["a", "b"]}),
        view: json!({"id": "q1", "state": "confirmed", "attempts": 1, "conflicts": 0, "reason": null,
            "reservation": {"start": 100, "end": 160, "hosts": [host("A", "a", 300), host("B", "b", 500)]}}),
    };
    change(&mut grid);
    let ledgers: Vec<Ledger> = serde_json::from_value(grid.ledgers).unwrap();
    let request: Request = serde_json::from_value(grid.request).unwrap();
    let view: RequestView = serde_json::from_value(grid.view).unwrap();
    let sites = ["A", "B", "down"].map(str::to_owned).into();
    check(&ledgers, &sites, &[Reported { request: &request, view: &view }], NOW)
}

fn has(found: &[Violation], breach: Breach) -> bool {
    found.iter().any(|one| one.breach == breach)
}

#[test]
fn the_right_grid_has_no_violation() {
    assert_eq!(with(|_| ()), []);
}

#[test]
fn over_commitment_is_found_at_its_moment() {
    let found = with(|grid| grid.ledgers[0]["hosts"][0]["resources"]["cpu"] = json!(699));
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["A/a: cpu over-committed at 130: 400 used by the owner and 300 granted, of 699"]);
    // A resource that the host does not have has capacity zero.
    let found = with(|grid| {
        grid.ledgers[0]["bookings"][0]["grants"][0]["amounts"] = json!({"cpu": 300, "gpu": 1});
    });
    assert!(found.iter().any(|one| one.to_string().contains("gpu over-committed at 100")), "{found:?}");
    // An owner may over-commit an own host where nothing is granted.
    let found = with(|grid| {
        grid.ledgers[0]["hosts"][0]["own"]["cpu"] = json!([[0, 200], [130, 400], [200, 5000]]);
        grid.ledgers[0]["hosts"][0]["occupancy"]["cpu"] =
            json!([[40, 200], [100, 500], [130, 700], [160, 400], [200, 5000]]);
    });
    assert_eq!(found, []);
}

#[test]
fn a_schedule_that_is_not_the_sum_of_its_parts_is_found() {
    let found = with(|grid| grid.ledgers[1]["hosts"][0]["occupancy"]["cpu"][1][1] = json!(200));
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["B/b: cpu at 100: the schedule shows 200, own use and bookings make 700"]);
}

#[test]
fn what_is_left_behind_is_found() {
    let found = with(|grid| grid.ledgers[0]["bookings"][0]["state"] = json!("held"));
    assert!(has(&found, Breach::HoldLeft) && found.iter().all(Violation::may_pass), "{found:?}");
    let found = with(|grid| grid.view["state"] = json!("failed"));
    assert_eq!(found.iter().map(|one| one.breach).collect::<Vec<_>>(), [Breach::Leftover; 2]);
    assert!(found.iter().all(Violation::is_left) && found[0].request.as_deref() == Some("q1"));
    let of = |entry_point: &str| {
        with(|grid| {
            let mut booking = grid.ledgers[0]["bookings"][0].clone();
            booking["request"] = json!("q2");
            booking["entry_point"] = json!(entry_point);
            booking["grants"] = json!([]);
            grid.ledgers[0]["bookings"].as_array_mut().unwrap().push(booking);
        })
    };
    assert!(has(&of("down"), Breach::Leftover), "its coordinator need not run");
    assert_eq!(of("of nobody"), [], "a hostile peer may book for itself");
    let found = with(|grid| {
        let booking = grid.ledgers[0]["bookings"][0].clone();
        grid.ledgers[0]["bookings"] = json!([booking, booking]);
    });
    assert!(has(&found, Breach::Repeated), "{found:?}");
    let found = with(|grid| grid.ledgers[0]["bookings"][0]["grants"][0]["host"] = json!("z"));
    assert!(found.iter().any(|one| one.breach == Breach::UnknownHost && one.to_string().contains(" on z,")));
}

#[test]
fn a_reservation_that_the_ledgers_do_not_have_is_found() {
    let missing = with(|grid| {
        grid.ledgers[1]["bookings"] = json!([]);
        grid.ledgers[1]["hosts"][0]["occupancy"] = grid.ledgers[1]["hosts"][0]["own"].clone();
    });
    let moved = with(|grid| grid.ledgers[0]["bookings"][0]["grants"][0]["window"]["end"] = json!(150));
    let shrunk = with(|grid| grid.ledgers[0]["bookings"][0]["grants"][0]["amounts"]["cpu"] = json!(299));
    for found in [missing, moved, shrunk] {
        assert!(has(&found, Breach::NotAsAcknowledged), "{found:?}");
    }
    // What is over by the time of the check may be gone.
    let over = with(|grid| {
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
    let changes: [fn(&mut Grid); 12] = [
        |grid| grid.request["hosts"] = json!(1),
        |grid| grid.request["duration"] = json!(61),
        |grid| grid.request["earliest"] = json!(101),
        |grid| grid.request["latest"] = json!(99),
        |grid| grid.request["per_host"]["cpu"] = json!(301),
        |grid| grid.request["total"]["cpu"] = json!(801),
        |grid| grid.request["total"]["cpu"] = json!(799),
        |grid| grid.request["attributes"]["arch"] = json!("aarch64"),
        |grid| grid.request["candidates"] = json!(["a", "c"]),
        |grid| grid.request["sites_max"] = json!(1),
        |grid| grid.request["deadline"] = json!(159),
        |grid| {
            (grid.request["work"], grid.ledgers[0]["hosts"][0]["speed"]) =
                (grid.request["duration"].take(), json!(2000));
        },
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let found = with(change);
        assert!(!found.is_empty(), "change {index} is not found");
        assert!(found.iter().all(|one| one.breach == Breach::NotAsAsked), "change {index}: {found:?}");
    }
    let twice = with(|grid| {
        let host = grid.view["reservation"]["hosts"][0].clone();
        grid.view["reservation"]["hosts"] = json!([host, host]);
    });
    let is_named = |one: &Violation| one.breach == Breach::NotAsAsked && one.to_string().contains("1 of them distinct");
    assert!(twice.iter().any(is_named), "{twice:?}");
    let nothing = with(|grid| grid.view["reservation"] = Value::Null);
    assert!(has(&nothing, Breach::NotAsAsked), "{nothing:?}");
}
