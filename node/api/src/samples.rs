//! Answers of the API, for tests of those that read them.

#![allow(clippy::missing_panics_doc, clippy::unwrap_used, reason = "a test fails loudly when a sample is no answer")]

use broker::protocol::LedgerVersion;
use serde_json::{Value, json};

use super::{
    grid::{SOFTWARE, Status},
    request_view::RequestView,
};

/// The status of a node that has just started, but with the keys of `other`.
pub fn status(other: &Value) -> Status {
    let mut status = json!({
        "site": "s", "name": "alpha", "grid": "lab", "grid_form": "open", "software": SOFTWARE, "started": 0, "api": "", "api_holder": null,
        "api_displaced_by": null,
        "listen": [], "peers": 0, "known_sites": 1, "known_hosts": 0, "active_requests": 0, "is_draining": false,
        "ledger_version": LedgerVersion::default(), "bans": [], "seen_as": [], "clock": null,
        "failed_activations": [], "counters": {}, "coarse_from": null, "lacks_room": false, "clock_ahead_s": null,
    });
    for (key, value) in other.as_object().unwrap() {
        assert!(status.get(key).is_some(), "a status has no {key}");
        status[key] = value.clone();
    }
    serde_json::from_value(status).unwrap()
}

/// A view in `state`, with a reservation on three hosts of two sites when it stands.
pub fn view(state: &str, reason: Option<(&str, &str)>) -> RequestView {
    let reservation = r#"{"start":1763712000,"end":1763719200,
        "objective":{"kind":"start","value":1763712000,"bound":1763712000},"hosts_seen":null,"efficiency":0.8123,"efficiency_bound":0.815,
        "start_proven":true,"hosts":[
          {"site":"12D3KooWaaaa1111","site_name":"alpha","host":"h1","seat":0,"end":1763719200,"amounts":{"cpu":2400,"memory":3072}},
          {"site":"12D3KooWbbbb2222","site_name":"beta\u001b[31m","host":"b1","seat":1,"end":1763719200,"amounts":{"cpu":1000,"memory":512}},
          {"site":"12D3KooWaaaa1111","site_name":"alpha","host":"h2","seat":2,"end":1763719200,"amounts":{"cpu":1000,"memory":1024}}]}"#;
    let stands = matches!(state, "confirmed" | "active" | "ended");
    let reason = reason
        .map_or("null".to_owned(), |(code, detail)| serde_json::json!({"code": code, "detail": detail}).to_string());
    let text = format!(
        r#"{{"id":"r-42","label":"mine","user":"","state":"{state}","phase":null,"revision":7,"submitted_ms":1763700000000,
        "elapsed_ms":9,"attempts":2,"conflicts":1,"request":{{"hosts":3,"duration":7200}},
        "reservation":{},"reason":{reason},"new_key":1}}"#,
        if stands { reservation } else { "null" }
    );
    serde_json::from_str(&text).unwrap()
}
