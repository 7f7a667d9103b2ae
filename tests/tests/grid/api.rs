//! The API of a real node against its own description, and against callers that it must refuse.

use std::{
    collections::BTreeSet,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use end_to_end::{Node, binary, hosts, run};
use serde_json::{Value, json};

pub(super) struct Api {
    base: String,
    token: String,
    pub(super) document: Value,
}

impl Api {
    pub(super) fn of(node: &Node) -> Api {
        let mut api = Api { base: format!("http://{}", node.address()), token: node.token(), document: json!(null) };
        let (status, _, document) = api.call("GET", "/openapi.json", &[], None);
        assert_eq!(status, 200);
        api.document = document;
        api
    }

    fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> (u16, String, Value) {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = request.body(body.unwrap_or_default().to_owned()).unwrap();
        // The node answers a body that is too large before it has all of it, and closes: a client that still writes may then see
        // a broken pipe in the place of the answer.
        let mut answers = (0..20).map(|_| agent.run(request.clone()));
        let mut answer = answers.find_map(Result::ok).expect("one of twenty calls is answered");
        let kind = answer.headers().get("content-type").map_or("", |kind| kind.to_str().unwrap()).to_owned();
        let text = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), kind, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Calls with the token, and holds the answer against the description of `operation`, a path with its parameters.
    pub(super) fn checked(&self, method: &str, operation: &str, path: &str, body: Option<&str>) -> (u16, Value) {
        let bearer = format!("Bearer {}", self.token);
        let (status, kind, answer) = self.call(method, path, &[("authorization", &bearer)], body);
        let described = &self.document["paths"][operation][method.to_lowercase()]["responses"];
        let response = described.get(status.to_string()).unwrap_or(&described["default"]);
        let media = &response["content"][&kind];
        assert!(media.is_object(), "{method} {path}: {status} {kind} is not described: {answer}");
        // The document goes along, so that its references are found.
        let schema = json!({ "allOf": [media["schema"]], "components": self.document["components"] });
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&answer).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{method} {path}: {status}: {errors:?}\n{answer}");
        (status, answer)
    }
}

/// The reservation has begun and has a receipt for its two hosts, and the command line finds it right.
fn check_receipts(node: &Node, api: &Api, settled: &Value) {
    assert_eq!(settled["state"], "active");
    let id = settled["id"].as_str().unwrap();
    let (_, receipts) = api.checked("GET", "/v1/requests/{id}/receipts", &format!("/v1/requests/{id}/receipts"), None);
    let text = receipts["receipts"][0]["signed"]["text"].as_str().unwrap();
    assert!(text.starts_with("kolo-receipt/1\n"), "{receipts}");
    let shown = node.kolo(&["receipt", id]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(["a1,a2", "a1,a3", "a2,a3"].iter().any(|hosts| shown.out.contains(hosts)), "{shown:?}");
}

#[test]
fn answers_are_as_described() {
    let node = Node::first("alpha", &hosts("a", 3));
    node.wait_until_it_knows(3);
    let api = Api::of(&node);
    assert_eq!(api.document["openapi"], "3.1.0");

    let request = r#"{"hosts":2,"duration":3600,"total":{"cpu":3000}}"#;
    let (status, taken) = api.checked("POST", "/v1/requests", "/v1/requests", Some(request));
    assert_eq!(status, 201);
    let id = taken["id"].as_str().unwrap();
    let (_, settled) =
        api.checked("GET", "/v1/requests/{id}", &format!("/v1/requests/{id}?wait_ms=20000&until=settled"), None);
    check_receipts(&node, &api, &settled);
    let impossible = r#"{"hosts":9,"duration":3600}"#;
    let slots = |mode: &str, at: &str| format!(r#"{{"mode":"{mode}"{at},"request":{request}}}"#);
    let (earliest, most) = (slots("earliest", ""), slots("most", ""));
    let at = slots("at", ",\"at\":4102444800");
    // An hour of all of a host, tomorrow.
    let tomorrow = settled["reservation"]["start"].as_i64().unwrap() + 86_400;
    let own = format!(r#"{{"host":"a1","start":{tomorrow},"end":{}}}"#, tomorrow + 3600);
    for (method, operation, path, body, expected) in [
        ("GET", "/v1/status", "/v1/status", None, 200),
        ("GET", "/v1/sites", "/v1/sites?limit=1", None, 200),
        ("GET", "/v1/sites", "/v1/sites?limit=0", None, 400),
        ("GET", "/v1/hosts", "/v1/hosts", None, 200),
        ("GET", "/v1/ledger", "/v1/ledger", None, 200),
        ("GET", "/v1/grid", "/v1/grid", None, 200),
        ("GET", "/v1/requests", "/v1/requests?limit=5", None, 200),
        ("GET", "/v1/requests", "/v1/requests?after=x", None, 400),
        ("GET", "/v1/requests/{id}", "/v1/requests/none", None, 404),
        ("GET", "/v1/requests/{id}/explain", &format!("/v1/requests/{id}/explain"), None, 200),
        ("POST", "/v1/requests/{id}/repair", &format!("/v1/requests/{id}/repair"), None, 200),
        ("GET", "/v1/reservations/{id}", &format!("/v1/reservations/{id}"), None, 200),
        ("GET", "/v1/bookings", "/v1/bookings", None, 200),
        ("GET", "/v1/bookings", "/v1/bookings?after=x", None, 400),
        ("GET", "/v1/usage", "/v1/usage?points=4", None, 200),
        ("GET", "/v1/usage", "/v1/usage?points=0", None, 400),
        ("GET", "/v1/session", "/v1/session", None, 200),
        ("POST", "/v1/plan", "/v1/plan", Some(request), 200),
        ("POST", "/v1/plan", "/v1/plan", Some(impossible), 200),
        ("POST", "/v1/plan", "/v1/plan", Some("{"), 400),
        ("POST", "/v1/slots", "/v1/slots", Some(earliest.as_str()), 200),
        ("POST", "/v1/slots", "/v1/slots", Some(most.as_str()), 200),
        ("POST", "/v1/slots", "/v1/slots", Some(at.as_str()), 200),
        ("POST", "/v1/slots", "/v1/slots", Some(r#"{"mode":"at","request":{"hosts":1,"duration":1}}"#), 400),
        (
            "POST",
            "/v1/requests/read",
            "/v1/requests/read",
            Some(r#"{"hosts":2,"duration":"2h30m","total":{"memory":"4GiB"}}"#),
            200,
        ),
        ("POST", "/v1/requests/read", "/v1/requests/read", Some(r#"{"hosts":2,"duration":"90"}"#), 400),
        ("POST", "/v1/links", "/v1/links", None, 201),
        ("POST", "/v1/tokens", "/v1/tokens", Some(r#"{"name":"t","scope":"submit","user":"ada"}"#), 201),
        ("POST", "/v1/tokens", "/v1/tokens", Some(r#"{"name":"t","scope":"read"}"#), 409),
        ("GET", "/v1/tokens", "/v1/tokens", None, 200),
        ("DELETE", "/v1/tokens/{name}", "/v1/tokens/t", None, 200),
        ("GET", "/v1/challenge", "/v1/challenge?method=GET&path=/v1/requests", None, 200),
        ("DELETE", "/v1/local/promised/{id}", "/v1/local/promised/nosuch", None, 404),
        ("POST", "/v1/local", "/v1/local", Some(own.as_str()), 201),
        ("POST", "/v1/local", "/v1/local", Some(own.as_str()), 409),
        ("POST", "/v1/local", "/v1/local", Some(r#"{"start":4102444800,"end":4102448400}"#), 400),
        ("GET", "/v1/local", "/v1/local", None, 200),
        ("DELETE", "/v1/local/{id}", "/v1/local/local-", None, 200),
        ("DELETE", "/v1/local/{id}", "/v1/local/local-", None, 404),
        ("DELETE", "/v1/requests/{id}", &format!("/v1/requests/{id}"), None, 200),
    ] {
        let (status, answer) = api.checked(method, operation, path, body);
        assert_eq!(status, expected, "{method} {path} {body:?}: {answer}");
    }
    let (_, slots) = api.checked("POST", "/v1/slots", "/v1/slots", Some(most.as_str()));
    assert_eq!((&slots["is_possible"], &slots["hosts"], &slots["is_proven"]), (&json!(true), &json!(3), &json!(true)));
}

/// Bodies that are refused, and the key that the answer names.
const WRONG_BODIES: [(&str, &str, &str); 40] = [
    ("/v1/requests", r#"{"hosts":0,"duration":1}"#, "hosts"),
    ("/v1/requests", r#"{"hosts":10001,"duration":1}"#, "hosts"),
    ("/v1/requests", r#"{"hosts":-1,"duration":1}"#, "hosts"),
    ("/v1/requests", r#"{"hosts":"x","duration":1}"#, "hosts"),
    ("/v1/requests", r#"{"duration":1}"#, "hosts"),
    ("/v1/requests", r#"{"hosts":1}"#, "duration"),
    ("/v1/requests", r#"{"hosts":1,"duration":0}"#, "duration"),
    ("/v1/requests", r#"{"hosts":1,"duration":253402300800}"#, "duration"),
    ("/v1/requests", r#"{"hosts":1,"duration":1,"earliest":-1}"#, "earliest"),
    ("/v1/requests", r#"{"hosts":1,"duration":1,"earliest":9,"latest":8}"#, "latest"),
    ("/v1/requests", r#"{"hosts":1,"duration":1,"latest":8}"#, "latest"),
    ("/v1/requests", r#"{"hosts":3,"duration":1,"candidates":["a1","a2"]}"#, "hosts"),
    ("/v1/requests", r#"{"hosts":1,"duration":1,"total":{"cpu":281474976710656}}"#, "total.cpu"),
    ("/v1/requests", r#"{"hosts":1,"duration":1,"total":[]}"#, "total"),
    ("/v1/requests", r#"{"hosts":1,"duration":1,"hosts":1}"#, "hosts"),
    ("/v1/requests", r#"{"hosts":1,"duration":1,"totals":{}}"#, "totals"),
    ("/v1/requests", r#"{"hosts":1,"duration":1,"work":1}"#, "work"),
    ("/v1/requests", r#"{"hosts":1,"work":1,"sites_max":0}"#, "sites_max"),
    ("/v1/requests", r#"{"hosts":1,"work":1,"speed_min":1.5}"#, "speed_min"),
    ("/v1/requests", r#"{"hosts":1,"work":1,"earliest":9,"deadline":8}"#, "deadline"),
    ("/v1/requests", r#"{"hosts":1,"work":1,"deadline":8}"#, "deadline"),
    ("/v1/requests", r#"{"hosts":1,"work":1,"budget":-5}"#, "budget"),
    ("/v1/requests", r#"{"hosts":1,"work":1,"budget":281474976710655}"#, "budget"),
    ("/v1/requests", "[null,1,3600,0,null,{},{},{},null,null,false]", ""),
    ("/v1/requests", r#"{"authorization":[{},null,null]}"#, "authorization"),
    ("/v1/plan", "[null,1,3600,0,null,{},{},{},null,null,false]", ""),
    ("/v1/plan", r#"{"hosts":0,"duration":1}"#, "hosts"),
    ("/v1/slots", r#"{"mode":"earliest","request":{"hosts":0,"duration":1}}"#, "request.hosts"),
    ("/v1/slots", r#"{"mode":"earliest","request":{"hosts":1}}"#, "request.duration"),
    ("/v1/slots", r#"{"mode":"earliest","request":[null,1,3600]}"#, "request"),
    ("/v1/slots", r#"{"mode":"most","request":{"hosts":1,"duration":1,"budget":5}}"#, "request.budget"),
    (
        "/v1/slots",
        r#"{"mode":"most","request":{"hosts":2,"work":60,"traffic":{"mbps":9,"compute":700}}}"#,
        "request.traffic",
    ),
    ("/v1/slots", r#"{"mode":"earliest"}"#, "request"),
    ("/v1/slots", r#"["earliest",null,{"hosts":1,"duration":1}]"#, ""),
    ("/v1/local", r#"{"end":4102448400}"#, "start"),
    ("/v1/grid/revocations", "{}", "statement"),
    ("/v1/requests/read", r#"{"hosts":1,"duration":3600}"#, "duration"),
    ("/v1/requests/read", r#"{"hosts":1,"duration":"1h","total":{"cpu":2}}"#, "total.cpu"),
    ("/v1/requests/read", r#"{"hosts":1,"work":"1h","speed_min":"fast"}"#, "speed_min"),
    ("/v1/requests/read", r#"[null,1,"1h"]"#, ""),
];

/// What the references in a document point to.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_description_is_whole_and_every_bad_call_is_answered_with_a_problem() {
    let mut node = Node::first("alpha", &hosts("a", 1));
    let api = Api::of(&node);
    let mut found = BTreeSet::new();
    references(&api.document, &mut found);
    assert!(found.contains("#/components/schemas/Until"), "{found:?}");
    for reference in &found {
        assert!(api.document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} points nowhere");
    }

    let large = "x".repeat(5 << 20);
    for (method, path, body, status, key) in [
        ("GET", "/v1/sites?limit=many", "", 400, "limit"),
        ("GET", "/v1/hosts?limit=-1", "", 400, "limit"),
        ("GET", "/v1/requests?limit=1&limit=2", "", 400, "limit"),
        ("GET", "/v1/requests?order=up", "", 400, "order"),
        ("GET", "/v1/requests/x?until=never", "", 400, "until"),
        ("GET", "/v1/bookings?from=now", "", 400, "from"),
        ("GET", "/v1/bookings?until=-1", "", 400, "until"),
        ("GET", "/v1/bookings?site=", "", 400, "site"),
        ("GET", "/v1/usage?points=99999999999999999999", "", 400, "points"),
        ("GET", "/v1/requests/%ff", "", 400, ""),
        ("GET", "/v1/nothing", "", 404, ""),
        ("GET", "/nothing", "", 404, ""),
        ("PUT", "/v1/requests", "", 405, ""),
        ("DELETE", "/openapi.json", "", 405, ""),
        ("POST", "/v1/plan", large.as_str(), 413, ""),
        ("POST", "/v1/plan", "", 400, ""),
        ("GET", "/v1/bookings?from=10&until=5", "", 400, "until"),
        ("POST", "/v1/session", r#"{"token":"a","link":"b"}"#, 400, "token"),
        ("POST", "/v1/session", "{}", 400, "token"),
    ]
    .into_iter()
    .chain(WRONG_BODIES.map(|(path, body, key)| ("POST", path, body, 400, key)))
    {
        let bearer = format!("Bearer {}", api.token);
        let (got, kind, answer) = api.call(method, path, &[("authorization", &bearer)], Some(body));
        let shown = format!("{method} {path}: {got} {kind}: {answer}");
        assert_eq!((got, kind.as_str()), (status, "application/problem+json"), "{shown}");
        assert_eq!(answer["status"], status, "{shown}");
        assert_eq!(answer["key"].as_str().unwrap_or_default(), key, "{shown}");
        let detail = answer["detail"].as_str().unwrap();
        let names = ["struct ", "enum ", " u32", " u64", " i64", "sequence", "a map"];
        assert!(!names.iter().any(|name| detail.contains(name)), "the program's own names: {shown}");
    }
    listening_does_not_hold_up_the_end(&mut node, &api);
}

/// Who listens to events is let go when the node stops.
fn listening_does_not_hold_up_the_end(node: &mut Node, api: &Api) {
    let bearer = format!("Bearer {}", api.token);
    let events = ureq::get(format!("{}/v1/events", api.base)).header("authorization", &bearer).call();
    assert!(node.stop().success());
    assert!(events.unwrap().body_mut().read_to_string().is_ok(), "the stream ends as it should");
    assert!(!node.log().contains("are cut off"), "{}", node.log());
}

#[test]
fn lists_come_in_pages_that_leave_nothing_out() {
    let node = Node::first("alpha", &hosts("a", 3));
    node.wait_until_it_knows(3);
    let mut expected: Vec<String> = (0..5)
        .map(|number| {
            let request = json!({ "id": format!("label-{number}"), "hosts": 1, "duration": 600 });
            node.kolo_json(&["submit", "-N", "1", "-t", "10min", "--id", request["id"].as_str().unwrap()], 0)["id"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    expected.reverse();
    for (path, key, name, expected) in [
        ("/v1/requests", "requests", "id", expected),
        ("/v1/hosts", "hosts", "host", vec!["a1".to_owned(), "a2".to_owned(), "a3".to_owned()]),
    ] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let answer = node.get(&format!("{path}?limit=2{after}"));
            let page = answer[key].as_array().unwrap();
            assert!((1..=2).contains(&page.len()), "{answer}");
            seen.extend(page.iter().map(|one| one[name].as_str().unwrap().to_owned()));
            let Some(next) = answer["next"].as_str() else { break };
            after = format!("&after={}", next.replace(' ', "%20"));
        }
        assert_eq!(seen, expected, "{path}");
    }
    let told = node.get("/v1/bookings");
    assert_eq!(told["bookings"].as_array().unwrap().len(), 5, "{told}");
}

#[test]
fn who_is_not_known_learns_nothing_and_pages_of_others_are_refused() {
    let node = Node::first("alpha-of-nowhere", &hosts("secret-host", 1));
    node.wait_until_it_knows(1);
    let api = Api::of(&node);
    let bearer = format!("Bearer {}", api.token);
    for path in ["/", "/metrics", "/openapi.json", "/js/main.js", "/v1/session"] {
        let (status, _, answer) = api.call("GET", path, &[], None);
        let text = answer.to_string();
        assert_eq!(status, 200, "{path}");
        for secret in ["alpha-of-nowhere", "secret-host", "kolo_sites", &node.get("/v1/status")["site"].to_string()] {
            assert!(!text.contains(secret.trim_matches('"')), "{path} tells {secret}");
        }
    }
    let (_, _, told) = api.call("GET", "/metrics", &[("authorization", &bearer)], None);
    assert!(told.to_string().contains("kolo_sites"));
    for path in ["/v1/status", "/v1/bookings", "/v1/events", "/v1/usage"] {
        assert_eq!(api.call("GET", path, &[], None).0, 401, "{path}");
        assert_eq!(api.call("GET", path, &[("authorization", "Bearer 00")], None).0, 401, "{path}");
    }
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("host", "evil.example:7740"),
    ] {
        let (status, kind, answer) = api.call("GET", "/v1/status", &[("authorization", &bearer), (name, value)], None);
        assert_eq!((status, kind.as_str()), (403, "application/problem+json"), "{name}: {value}: {answer}");
    }
    let (_, _, opened) = api.call("POST", "/v1/session", &[], Some(r#"{"token":"00"}"#));
    assert_eq!(opened["status"], 401);
}

#[test]
fn a_client_that_a_generator_makes_of_the_description_reserves_a_host() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in the workspace");
    let ended = run(Command::new(root.join("scripts/test-openapi")).arg(binary("kolo")));
    // Without Python or its packages, the last line says that the test was skipped.
    eprintln!("{}", ended.out);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// Calls and clients of the measurement below.
const CALLS: usize = 8_000;
const CLIENTS: usize = 4;

#[test]
#[ignore = "a measurement; run by hand: cargo test --release -p end-to-end --test grid -- --ignored --nocapture lists_are"]
fn lists_are_quick_with_ten_thousand_reservations_stored() {
    let policy = "[policy]\nmax_reservations = 20000\nmax_holds = 1000\n";
    let node = Node::first("alpha", &format!("{policy}{}", hosts("a", 4)));
    node.wait_until_it_knows(4);
    let api = Api::of(&node);
    let bearer = format!("Bearer {}", api.token);
    let headers = [("authorization", bearer.as_str())];
    let share = |number: usize, count: usize| (count * number / CLIENTS)..(count * (number + 1) / CLIENTS);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (api, headers) = (&api, &headers);
            scope.spawn(move || {
                for _ in share(client, 10_000) {
                    let request = r#"{"hosts":1,"duration":86400}"#;
                    let (status, _, taken) = api.call("POST", "/v1/requests", headers, Some(request));
                    assert_eq!(status, 201, "{taken}");
                    let path = format!("/v1/requests/{}?wait_ms=20000&until=settled", taken["id"].as_str().unwrap());
                    assert_eq!(api.call("GET", &path, headers, None).2["state"], "active");
                }
            });
        }
    });
    for path in ["/v1/requests?limit=20", "/v1/requests?limit=100", "/v1/bookings?limit=20"] {
        let began = Instant::now();
        let mut taken: Vec<Duration> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let (url, bearer) = (format!("{}{path}", api.base), &bearer);
                    scope.spawn(move || {
                        let agent: ureq::Agent = ureq::Agent::config_builder().build().into();
                        let call = |_| {
                            let began = Instant::now();
                            let mut answer = agent.get(&url).header("authorization", bearer).call().unwrap();
                            answer.body_mut().with_config().limit(64 << 20).read_to_vec().unwrap();
                            began.elapsed()
                        };
                        share(client, CALLS).map(call).collect::<Vec<_>>()
                    })
                })
                .collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        taken.sort();
        let rate = CALLS as f64 / began.elapsed().as_secs_f64();
        println!("{path}: {rate:.0} calls/s, median {:?}, p99 {:?}", taken[CALLS / 2], taken[CALLS * 99 / 100]);
    }
}
