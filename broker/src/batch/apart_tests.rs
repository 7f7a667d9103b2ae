//! Requests that a policy cannot treat: planned by themselves, named with the reason, and never the end of the others.

use super::{
    tests::{CLUSTER_POLICIES, answer, asked, cores, line, linked, placed, planner, starts},
    *,
};

const COLOCATED: [&str; 3] = ["colocate:set", "colocate:partition", "colocate:best"];

fn apart(answer: &BatchAnswer) -> Vec<(&str, &str)> {
    answer.batch.by_itself.iter().map(|one| (one.request.as_str(), one.why.as_str())).collect()
}

#[test]
fn a_budget_where_nothing_costs_anything_keeps_no_policy_from_a_request() {
    let planner =
        planner(r#"{"id":"h1","site":"s","resources":{"cpu":1000}},{"id":"h2","site":"s","resources":{"cpu":1000}}"#);
    let lines = [
        line("a", r#""hosts":1,"duration":50,"earliest":0,"budget":0"#),
        line("b", r#""hosts":2,"duration":50,"earliest":0,"budget":0"#),
    ];
    for policy in CLUSTER_POLICIES.into_iter().chain(COLOCATED) {
        let with_budget = Options { budget: Some(0), ..Options::default() };
        for options in [Options::default(), with_budget] {
            let answer = answer(&planner, &lines, policy, options);
            assert_eq!((placed(&answer).len(), answer.batch.makespan, apart(&answer)), (2, 100, vec![]), "{policy}");
        }
    }
}

#[test]
fn a_place_that_is_too_dear_is_given_up_for_one_that_the_budget_pays() {
    // The dear host is twice as fast.
    let planner = cores(&[1_000, 2_000]);
    let lines = [line("a", r#""hosts":1,"work":40,"earliest":0,"budget":13"#)];
    for policy in CLUSTER_POLICIES {
        let answer = answer(&planner, &lines, policy, Options::default());
        let plan = placed(&answer)[0];
        assert!(plan.cost() <= Cost(13), "{policy}: {plan:?}");
        assert_eq!(answer.alternatives.iter().filter(|one| one.chosen).count(), 1, "{policy}");
    }
    let of_batch = Options { budget: Some(3), ..Options::default() };
    for policy in CLUSTER_POLICIES.into_iter().chain(COLOCATED) {
        let chosen = policy_named(policy).unwrap();
        let refused = plan(&*chosen, &planner, &asked(&planner, &lines), &of_batch, Watch::NOBODY).unwrap_err();
        assert_eq!(refused.to_string(), format!("{policy}: a budget of the batch cannot be kept"));
    }
}

#[test]
fn one_request_that_clusters_cannot_treat_is_planned_behind_the_others_or_before_them_when_it_has_waited() {
    let planner = linked();
    let with_total = r#"{"id":"t","hosts":4,"work":5,"earliest":0,"total":{"cpu":4000}}"#.to_owned();
    let whole = line("a", r#""hosts":4,"work":5,"earliest":0"#);
    for policy in CLUSTER_POLICIES {
        let lines = [with_total.clone(), whole.clone()];
        let behind = answer(&planner, &lines, policy, Options::default());
        assert_eq!(starts(&behind), [Some(10), Some(0)], "{policy}");
        assert_eq!(apart(&behind), [("t", "total: only amounts per host can be placed")], "{policy}");
        let waited = answer(&planner, &lines, policy, Options { first: 1, ..Options::default() });
        assert_eq!(starts(&waited), [Some(0), Some(10)], "{policy}");
        let bound = waited.batch.objective.bound;
        assert!(bound.is_none_or(|bound| bound <= waited.batch.objective.value), "{policy}: {bound:?}");
        let alone = answer(&planner, &lines[..1], policy, Options::default());
        assert_eq!((starts(&alone), apart(&alone).len()), (vec![Some(0)], 1), "{policy}");
    }
    let many: Vec<String> = (0..10_000).map(|at| line(&at.to_string(), r#""hosts":1,"work":5"#)).collect();
    for policy in CLUSTER_POLICIES {
        let chosen = policy_named(policy).unwrap();
        let refused = plan(&*chosen, &planner, &asked(&planner, &many), &Options::default(), Watch::NOBODY);
        assert_eq!(refused.unwrap_err().to_string(), format!("{policy}: at most 1000 requests, got 10000"));
    }
}

#[test]
fn what_cannot_share_hosts_with_the_others_is_planned_beside_them() {
    let planner = planner(
        r#"{"id":"h1","site":"s","resources":{"cpu":2000},"attributes":{"arch":"x"}},
           {"id":"h2","site":"s","resources":{"cpu":2000},"attributes":{"arch":"x"}},
           {"id":"h3","site":"s","resources":{"cpu":9000},"attributes":{"arch":"y"}}"#,
    );
    let of = |id: &str, keys: &str| {
        format!(r#"{{"id":"{id}","hosts":1,"duration":600,"earliest":0,"per_host":{{"cpu":1000}},{keys}}}"#)
    };
    let on_x = r#""attributes":{"arch":"x"}"#;
    for (other, why) in [
        (r#""exclusive":true"#, "exclusive: seats share hosts"),
        (r#""traffic":{"mbps":1}"#, "traffic: links are not looked at"),
        (r#""sites_max":1"#, "sites_max: sites are not looked at"),
        (r#""total":{"cpu":1000}"#, "total: only amounts per host can be placed"),
        (r#""attributes":{"arch":"y"}"#, "host h1 cannot serve it, and serves most of the others"),
        (r#""candidates":["h2","h3"]"#, "host h1 cannot serve it, and serves most of the others"),
        (r#""speed_min":1"#, "host h3 serves it, and cannot serve most of the others"),
    ] {
        let mut lines = [of("other", other), of("a", on_x), of("b", on_x), of("c", on_x)];
        if other.contains("traffic") {
            lines[0] = lines[0].replace("duration", "work");
        }
        for policy in COLOCATED {
            let answer = answer(&planner, &lines, policy, Options::default());
            assert_eq!((placed(&answer).len(), apart(&answer)), (4, vec![("other", why)]), "{policy} {other}");
            let mut room = planner.clone();
            for plan in placed(&answer) {
                assert!(room.admits(plan), "{policy}: {plan:?}");
                room.occupy(plan);
            }
        }
    }
}

#[test]
fn hosts_of_several_speeds_and_many_resources_end_no_batch() {
    let two = planner(
        r#"{"id":"h0","site":"s","resources":{"cpu":1000},"speed":2000},{"id":"h1","site":"s","resources":{"cpu":4000}}"#,
    );
    let any = |id: &str, keys: &str| {
        format!(r#"{{"id":"{id}","hosts":1,"duration":600,"earliest":0,"per_host":{{"cpu":1000}}{keys}}}"#)
    };
    let lines = [any("a", ""), any("b", ""), any("c", r#","candidates":["h1"]"#)];
    let differ = "hosts h0 and h1 differ in speed; name those of one speed as candidates";
    for policy in COLOCATED {
        let answer = answer(&two, &lines, policy, Options::default());
        assert_eq!((placed(&answer).len(), apart(&answer)), (3, vec![("a", differ), ("b", differ)]), "{policy}");
    }
    let rich = planner(r#"{"id":"h","site":"s","resources":{"cpu":4000,"memory":9,"disk":9,"io":9}}"#);
    let named = |id: &str, amounts: &str| {
        format!(r#"{{"id":"{id}","hosts":1,"duration":600,"earliest":0,"per_host":{{{amounts}}}}}"#)
    };
    let lines = [named("a", r#""cpu":1000,"memory":1"#), named("b", r#""memory":1,"disk":1"#), named("c", r#""io":1"#)];
    let few = "per_host: expected cpu and at most two other resources in all requests";
    for policy in ["colocate:set", "colocate:partition"] {
        let one = answer(&rich, &lines, policy, Options::default());
        assert_eq!((placed(&one).len(), apart(&one)), (3, vec![("c", few)]), "{policy}");
        let none = answer(&rich, &lines[1..], policy, Options::default());
        assert_eq!((placed(&none).len(), apart(&none)), (2, vec![("b", few), ("c", few)]), "{policy}");
    }
}
