//! Nodes that can open connections, but to which nobody can open one, as behind a router that translates addresses.

use end_to_end::{Node, hosts, wait_for};
use serde_json::Value;

/// What the doctor says of connections from outside.
fn inbound(node: &Node) -> Result<Value, String> {
    let doctor = node.kolo(&["doctor", "--output", "json", "--data-dir", &node.data().display().to_string()]);
    let told: Value = serde_json::from_str(&doctor.out).map_err(|error| error.to_string())?;
    let findings = told["findings"].as_array().ok_or_else(|| told.to_string())?;
    let finding = findings.iter().find(|finding| finding["check"] == "inbound");
    // Nobody has tried when the node knows nobody yet, or has just asked.
    let finding =
        finding.filter(|finding| !finding["what"].as_str().is_some_and(|what| what.starts_with("no other site")));
    finding.cloned().ok_or_else(|| told.to_string())
}

#[test]
fn the_doctor_tells_a_node_that_others_cannot_reach_it() {
    let first = Node::first("alpha", &hosts("a", 1));
    // Nobody listens at the discard port.
    let wrong = "/ip4/127.0.0.1/tcp/9";
    let second = Node::joining("beta", &hosts("b", 1), &first, &["--announce", wrong]);
    first.wait_until_it_knows(2);
    second.wait_until_it_knows(2);

    let finding = wait_for("the doctor's finding on the node that is not reached", || inbound(&second));
    assert_eq!(finding["level"], "problem", "{finding}");
    let (what, to_do) = (finding["what"].as_str().unwrap(), finding["to_do"].as_str().unwrap());
    assert!(what.starts_with("0 of 1 other site") && what.contains(wrong), "{what}");
    assert!(to_do.contains("--announce /ip4/127.0.0.1/tcp/PORT"), "{to_do}");

    let finding = wait_for("the doctor's finding on the node that is reached", || inbound(&first));
    assert_eq!(finding["level"], "good", "{finding}");
    // The try has disturbed nothing.
    let placed = second.kolo_json(&["submit", "-N", "2", "-t", "1h"], 0);
    assert_eq!(placed["state"], "active", "{placed}");
}
