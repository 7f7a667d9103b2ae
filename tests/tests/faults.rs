//! Real nodes under faults: killed at any moment, cut off from each other. The harness checks reservations and ledgers; these
//! tests run it at a size that fits, and look at its figures.

#![allow(clippy::unwrap_used, reason = "a test fails loudly when something is missing")]

use end_to_end::{grid_figures, has_namespaces, kolo_sim};

#[test]
fn what_was_acknowledged_survives_kills_at_any_moment() {
    let size = ["--nodes", "5", "--hosts", "20", "--free", "--hosts-per-request", "3"];
    let figures = grid_figures(&[&size[..], &["--kill", "10", "--seed", "3"]].concat());
    assert_eq!(figures["kills"], 10, "{figures}");
    assert!(figures["acknowledged"].as_u64().unwrap() > 10, "{figures}");
    assert!(figures["recovery_ms"]["answers"]["p50"].as_f64().unwrap() > 0.0, "{figures}");
    assert!(figures["recovery_ms"]["settled"]["max"].as_f64().unwrap() > 0.0, "{figures}");
}

#[test]
fn each_half_of_a_cut_grid_goes_on_and_all_agree_after_it_is_healed() {
    if !has_namespaces() {
        return;
    }
    let size = ["--nodes", "6", "--hosts", "24", "--free", "--hosts-per-request", "2", "--entry-points", "6"];
    let figures = grid_figures(&[&size[..], &["--partition", "20s", "--seed", "3"]].concat());
    for half in figures["halves"].as_array().unwrap() {
        assert!(half["reserved"].as_u64().unwrap() > 0, "{figures}");
    }
    assert!(figures["agree_after_heal_ms"].as_f64().unwrap() <= 30_000.0, "{figures}");
}

#[test]
fn impossible_scenarios_are_refused_with_the_flag() {
    for (arguments, expected) in [
        (&["--kill", "5", "--partition", "5s"][..], "--partition"),
        (&["--partition", "60"], "--partition <DURATION>': expected a duration with its unit"),
        (&["--rate", "5"], "--rate needs --duration"),
        (&["--rate", "0", "--duration", "5s"], "--rate <R>': expected 0.01 to 10000 requests a second"),
        (&["--hostile", "0"], "--hostile <N>': 0 is not in 1..=64"),
        (&["--churn"], "--rate"),
        (&["--churn", "--rate", "5", "--duration", "5s", "--hostile", "1"], "--hostile"),
        (&["--closed", "--in-process"], "--in-process"),
    ] {
        let refused = kolo_sim(&[&["grid"], arguments].concat());
        assert!(refused.code == Some(64) && refused.err.contains(expected), "{arguments:?}: {refused:?}");
    }
}

#[test]
fn new_sites_are_invited_join_under_load_and_their_ledgers_are_checked() {
    let size = ["--closed", "--nodes", "3", "--hosts", "9", "--free", "--hosts-per-request", "2", "--seed", "2"];
    let figures = grid_figures(&[&size[..], &["--churn", "--rate", "4", "--duration", "8s"]].concat());
    assert!(figures["joined"].as_u64().unwrap() > 0, "{figures}");
    assert!(figures["join_ms"]["knows_grid"]["max"].as_f64().unwrap() > 0.0, "{figures}");
}

#[test]
fn ten_complete_nodes_in_one_process_reserve() {
    let size = ["--in-process", "--nodes", "10", "--hosts", "40", "--free"];
    let figures = grid_figures(&[&size[..], &["--hosts-per-request", "3", "--rate", "5", "--duration", "2s"]].concat());
    assert!(figures["reserved"].as_u64().unwrap() > 0, "{figures}");
    assert_eq!(figures["loads"][0]["failed"], 0, "{figures}");
    assert!(figures["rest_ms"].as_f64().unwrap() > 0.0, "{figures}");
}

#[test]
fn nodes_that_are_far_apart_reserve_as_late_as_that_costs() {
    let folder = tempfile::tempdir().unwrap();
    let [json, html] = ["result.json", "result.html"].map(|name| folder.path().join(name));
    let size =
        ["--nodes", "4", "--hosts", "16", "--free", "--hosts-per-request", "5", "--rate", "2", "--duration", "3s"];
    let files = ["--json", json.to_str().unwrap(), "--html", html.to_str().unwrap()];
    let figures = grid_figures(&[&size[..], &["--latency", "40ms", "--loss", "0%"], &files].concat());
    // Five hosts are on two sites at least: a hold and a confirm, each there and back.
    assert!(figures["latency_ms"]["p50"].as_f64().unwrap() >= 160.0, "{figures}");
    let written: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(written, figures);
    assert!(std::fs::read_to_string(&html).unwrap().contains("A grid of 4 nodes and 16 hosts"));
}
