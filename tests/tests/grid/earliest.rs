//! What a node answers on its view is what the offline planner finds on the same hosts: no start is later, and none is missed.

use std::{collections::BTreeMap, path::Path};

use end_to_end::{Ended, Node, binary, run, seconds_from_now, write};
use serde_json::{Value, json};

/// Numbers that look random.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

const HOSTS: u64 = 20;
const SITES: u64 = 3;
const STEP: u64 = 900;
const HOUR: u64 = 3_600;

/// The hosts of a site, used nearly all day, of some resource in each quarter of an hour something else.
fn hosts(site: u64, begin: u64, drawn: &mut Drawn) -> Vec<Value> {
    let mut host = |number: u64| {
        let capacity = [1_000 * (1 + drawn.below(4)), 1_024 * (1 + drawn.below(8))];
        let mut used = |most: u64| {
            let steps = (0..96).map(|step| json!([begin + step * STEP, drawn.below(8) * most / 7]));
            steps.collect::<Vec<Value>>()
        };
        let occupancy = json!({"cpu": used(capacity[0]), "memory": used(capacity[1])});
        json!({"id": format!("h{site}-{number}"), "site": format!("s{site}"), "attributes": {"arch": "x86_64"},
            "resources": {"cpu": capacity[0], "memory": capacity[1]}, "occupancy": occupancy})
    };
    (0..HOSTS).map(&mut host).collect()
}

/// A request that finds room on few sets of hosts.
fn request(number: u64, begin: u64, drawn: &mut Drawn) -> Value {
    let seats = [2, 3, 5, 8][drawn.below(4) as usize];
    let (cpu, memory) = (seats * (800 + drawn.below(1_400)), seats * (1_000 + drawn.below(3_000)));
    let earliest = begin + drawn.below(24) * STEP;
    json!({"id": format!("r{number}"), "hosts": seats, "duration": STEP * (1 + drawn.below(6)), "earliest": earliest,
        "latest": earliest + 10 * HOUR, "per_host": {"cpu": cpu / seats / 2, "memory": memory / seats / 2},
        "total": {"cpu": cpu, "memory": memory}})
}

fn start_of(plan: &Value) -> Option<i64> {
    (plan["outcome"] == "allocated").then(|| plan["start"].as_i64().unwrap())
}

/// What `kolo plan --grid` says of each, by its name.
fn offline(directory: &Path, hosts: &[Value], requests: &[Value]) -> BTreeMap<String, Value> {
    let grid = json!({"format": "kolo-grid/1", "hosts": hosts}).to_string();
    let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
    let (grid, lines) = (write(directory, "grid.json", &grid), write(directory, "requests.jsonl", &lines));
    let mut command = std::process::Command::new(binary("kolo"));
    let Ended { code, out, err } = run(command.arg("plan").arg("--grid").arg(grid).arg("--requests").arg(lines));
    assert_eq!(code, Some(0), "{err}");
    let plans = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    plans.map(|plan| (plan["id"].as_str().unwrap().to_owned(), plan)).collect()
}

#[test]
fn a_live_answer_is_as_early_as_what_the_node_knows_allows() {
    let directory = tempfile::tempdir().unwrap();
    let (begin, mut drawn) = (seconds_from_now(2 * HOUR), Drawn(43));
    let by_site: Vec<Vec<Value>> = (0..SITES).map(|site| hosts(site, begin, &mut drawn)).collect();
    let file = |site: usize| {
        let grid = json!({"format": "kolo-grid/1", "hosts": by_site[site]}).to_string();
        write(directory.path(), &format!("s{site}.json"), &grid).display().to_string()
    };
    let first = Node::start("alpha", "", &["--hosts-file", &file(0)]);
    let second = Node::joining("beta", "", &first, &["--hosts-file", &file(1)]);
    let third = Node::joining("gamma", "", &first, &["--hosts-file", &file(2)]);
    let nodes = [&first, &second, &third];
    nodes.iter().for_each(|node| node.wait_until_it_knows((HOSTS * SITES) as usize));

    let requests: Vec<Value> = (0..30).map(|number| request(number, begin, &mut drawn)).collect();
    let offline = offline(directory.path(), &by_site.concat(), &requests);
    let (mut possible, mut later) = (0, 0);
    for (at, asked) in requests.iter().enumerate() {
        let expected = &offline[asked["id"].as_str().unwrap()];
        let (status, live) = nodes[at % 3].post("/v1/plan", &asked.to_string());
        assert_eq!(status, 200, "{live}");
        assert_eq!(start_of(&live), start_of(expected), "{asked}\n{live}");
        assert_eq!((&live["start_proven"], live.get("hosts_left_out")), (&true.into(), None), "{live}");
        let question = json!({"mode": "earliest", "request": asked});
        let (_, slots) = nodes[(at + 1) % 3].post("/v1/slots", &question.to_string());
        let slot = slots["is_possible"].as_bool().unwrap().then(|| slots["start"].as_i64().unwrap());
        assert_eq!(slot, start_of(expected), "{asked}\n{slots}");
        possible += usize::from(slot.is_some());
        later += usize::from(slot.is_some_and(|start| start > asked["earliest"].as_i64().unwrap()));
    }
    assert!(possible > 10 && later > 2, "{possible} possible, {later} later than they ask for");

    // Nothing was held so far, so what is taken first begins when it was planned to.
    let taken = requests.iter().find(|asked| start_of(&offline[asked["id"].as_str().unwrap()]).is_some()).unwrap();
    let request = write(directory.path(), "r.json", &taken.to_string());
    let reserved = first.kolo_json(&["submit", "--request", request.to_str().unwrap()], 0);
    let start = start_of(&offline[taken["id"].as_str().unwrap()]);
    assert_eq!(reserved["reservation"]["start"].as_i64(), start, "{reserved}");
    let said = first.kolo(&["show", reserved["id"].as_str().unwrap()]).out;
    assert!(said.contains("  no earlier start exists; "), "{said}");
}
