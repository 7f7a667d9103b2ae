//! What nodes log of a request.

use end_to_end::{Node, hosts, wait_until};

#[test]
fn the_name_of_a_request_is_in_its_lines_at_its_coordinator_and_at_every_participant() {
    let with_log = |prefix: &str| format!("[log]\nfilter = \"kolo=debug\"\n{}", hosts(prefix, 2));
    let coordinator = Node::start("alpha", &with_log("a"), &[]);
    let participants = ["beta", "gamma"].map(|name| Node::joining(name, &with_log(name), &coordinator, &[]));
    coordinator.wait_until_it_knows(6);
    let submit = ["submit", "-N", "6", "--per-host", "cpu=1", "-t", "1h"];
    let view = coordinator.kolo_json(&submit, 0);
    let id = view["id"].as_str().unwrap();
    assert_eq!(coordinator.kolo_json(&["cancel", id], 0)["state"], "cancelled");

    let span = format!("request{{id={id}}}");
    let lines =
        |node: &Node, what: &str| node.log().lines().filter(|line| line.contains(what)).map(str::to_owned).collect();
    for (node, said) in [
        (&coordinator, &["decided", "answered", "hosts of this site are reserved"][..]),
        (&participants[0], &["asked", "answered", "hosts of this site are reserved"][..]),
        (&participants[1], &["asked", "answered", "hosts of this site are reserved"][..]),
    ] {
        for said in said {
            wait_until(
                &format!("{said:?} about {id}"),
                || lines(node, said),
                |lines: &Vec<String>| lines.iter().any(|line| line.contains(&span)),
            );
        }
        // The audit log is about calls, not about the way of the request.
        let is_other = |line: &String| !line.contains(&span) && !line.contains("kolo::audit");
        let others: Vec<String> = lines(node, id).into_iter().filter(is_other).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}
