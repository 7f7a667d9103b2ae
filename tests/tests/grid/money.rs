//! Money over real nodes: what sites have earned is what users have spent, and what was signed for it outlives the node.

use end_to_end::{Node, hosts};
use serde_json::Value;

/// A host for so many credits a core and hour, of which a cancellation gives half back.
fn priced(prefix: &str, price: &str) -> String {
    let refund = r#"refund = [{ notice = "1h", percent = 50 }]"#;
    format!("{}[[price]]\nper_hour = {{ cpu = \"{price}\" }}\n[price.conditions]\n{refund}\n", hosts(prefix, 1))
}

/// The lines of an account as texts, in an order that does not depend on who tells them.
fn lines(accounts: &Value, side: &str) -> Vec<String> {
    let line = |line: &Value| {
        let part = ["site", "request", "seats"].map(|key| line["part"][key].to_string());
        let account = ["state", "agreed", "charged"].map(|key| line[key].to_string());
        [part, account].concat().join(" ")
    };
    let mut lines: Vec<String> = accounts[side].as_array().unwrap().iter().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn what_sites_have_earned_is_what_was_spent_and_both_keep_what_was_signed() {
    let alpha = Node::first("alpha", &priced("a", "6.00"));
    let mut beta = Node::joining("beta", &priced("b", "3.00"), &alpha, &[]);
    alpha.wait_until_it_knows(2);
    let submit = || {
        let asked = ["submit", "-N", "2", "-t", "1h", "--per-host", "cpu=1", "--earliest", "+3h", "--budget", "10"];
        let view = alpha.kolo_json(&asked, 0);
        assert_eq!(view["reservation"]["cost"], 9_000, "{view}");
        view["id"].as_str().unwrap().to_owned()
    };
    let (kept, cancelled) = (submit(), submit());
    let explained = alpha.kolo(&["explain", &kept]).out;
    assert!(
        explained.contains("it costs 9.00 credits of a budget of 10.00: more money changes nothing"),
        "{explained}"
    );
    assert_eq!(alpha.kolo_json(&["cancel", &cancelled], 0)["state"], "cancelled");

    let is_settled = |accounts: &Value| {
        let spent = accounts["spent"].as_array().unwrap();
        spent.iter().filter(|line| line["state"] == "cancelled").count() == 2
    };
    let accounts = alpha.wait_until("what the cancellation costs", "/v1/accounts", is_settled);
    let earned = [lines(&accounts, "earned"), lines(&beta.get("/v1/accounts"), "earned")];
    let mut earned = earned.concat();
    earned.sort();
    assert_eq!(earned, lines(&accounts, "spent"));
    let sum = |key: &str, state: &str| {
        let of_state = accounts["spent"].as_array().unwrap().iter().filter(|line| line["state"] == state);
        of_state.map(|line| line[key].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((sum("agreed", "stands"), sum("charged", "cancelled")), (9_000, 4_500));
    let usage = alpha.kolo(&["usage", "--by", "user"]).out;
    let spent: Vec<&str> = usage.lines().filter(|line| line.starts_with("spent")).collect();
    assert!(spent.len() == 1 && spent[0].contains("9.00") && spent[0].contains("4.50"), "{usage}");

    beta.kill();
    beta.restart();
    for (id, charged) in [(&kept, Value::Null), (&cancelled, 1_500.into())] {
        // It ends so only if both signatures are as they should be.
        let proofs = beta.kolo_json(&["receipt", id, "--site"], 0);
        let booking = &proofs["bookings"][0];
        assert_eq!((&booking["agreed"], &booking["charged"]), (&3_000.into(), &charged), "{proofs}");
        assert!(booking["request"]["text"].is_string() && booking["receipt"]["text"].is_string(), "{proofs}");
    }
    let unknown = beta.kolo(&["receipt", "r-none", "--site"]);
    assert!(unknown.code == Some(1) && unknown.err.contains("keeps no receipt of a request r-none"), "{unknown:?}");
}
