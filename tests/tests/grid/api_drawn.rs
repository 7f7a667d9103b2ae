//! Calls drawn from the description that a real node serves: whatever is sent, the answer is one that is described, never the
//! node's own failure, and nothing is taken that the description forbids.

use end_to_end::{Node, hosts};
use proptest::{
    prelude::*,
    sample::select,
    string::string_regex,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Map, Value, json};

use super::api::Api;

/// Calls that are drawn.
const CALLS: u32 = 500;
/// How deep drawn values go.
const DEPTH_MAX: u32 = 5;
/// How long an answer may be waited for; nothing happens on such a node.
const WAIT_MS: u64 = 5;

/// One operation of the description.
#[derive(Debug, Clone)]
struct Operation {
    method: String,
    path: String,
    parameters: Vec<Value>,
    body: Option<Value>,
}

/// A call of an operation.
#[derive(Debug, Clone)]
struct Call {
    operation: Operation,
    /// Path and query.
    target: String,
    body: Option<Value>,
}

/// All operations but the stream of events, which has no end.
fn operations(document: &Value) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap().iter().filter(|(path, _)| *path != "/v1/events") {
        for (method, described) in methods.as_object().unwrap() {
            let parameters = described["parameters"].as_array().cloned().unwrap_or_default();
            let content = described["requestBody"]["content"].as_object();
            let body = content.and_then(|content| content.values().next()).map(|media| media["schema"].clone());
            operations.push(Operation { method: method.to_uppercase(), path: path.clone(), parameters, body });
        }
    }
    operations
}

/// Any value at all, of a few levels.
fn anything() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,9}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
    .boxed()
}

/// Values as `schema` describes them, now and then something else.
fn values(schema: &Value, document: &Value, depth: u32) -> BoxedStrategy<Value> {
    let described = described_values(schema, document, depth);
    prop_oneof![14 => described, 1 => anything()].boxed()
}

fn described_values(schema: &Value, document: &Value, depth: u32) -> BoxedStrategy<Value> {
    if let Some(reference) = schema["$ref"].as_str() {
        return described_values(document.pointer(reference.trim_start_matches('#')).unwrap(), document, depth);
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        if let Some(choices) = schema[key].as_array() {
            let choices: Vec<_> = choices.iter().map(|choice| described_values(choice, document, depth)).collect();
            return prop::strategy::Union::new(choices).boxed();
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        return select(words.clone()).boxed();
    }
    if let Some(kinds) = schema["type"].as_array() {
        let of_kind = |kind: &Value| {
            let mut one = schema.clone();
            one["type"] = kind.clone();
            described_values(&one, document, depth)
        };
        return prop::strategy::Union::new(kinds.iter().map(of_kind).collect::<Vec<_>>()).boxed();
    }
    match schema["type"].as_str() {
        Some("null") => Just(Value::Null).boxed(),
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer" | "number") => integers(schema),
        Some("string") => texts(schema),
        Some("array") if depth < DEPTH_MAX => {
            let least = schema["minItems"].as_u64().unwrap_or(0) as usize;
            let items = values(&schema["items"], document, depth + 1);
            prop::collection::vec(items, least..least + 3).prop_map(Value::from).boxed()
        }
        Some("object") if depth < DEPTH_MAX => objects(schema, document, depth),
        Some("array") => Just(json!([])).boxed(),
        Some("object") => Just(json!({})).boxed(),
        _ => anything(),
    }
}

fn integers(schema: &Value) -> BoxedStrategy<Value> {
    let least = schema["minimum"].as_i64().unwrap_or(i64::MIN);
    let most = schema["maximum"].as_i64().unwrap_or(i64::MAX);
    let small = least.max(0).min(most);
    prop_oneof![
        3 => (small..=small.saturating_add(5).min(most)).prop_map(Value::from),
        1 => (least..=most).prop_map(Value::from),
        1 => select(vec![least, most]).prop_map(Value::from),
    ]
    .boxed()
}

fn texts(schema: &Value) -> BoxedStrategy<Value> {
    let pattern = schema["pattern"].as_str().map(|pattern| pattern.trim_start_matches('^').trim_end_matches('$'));
    let drawn =
        pattern.and_then(|pattern| string_regex(pattern).ok()).unwrap_or_else(|| string_regex("\\PC{1,12}").unwrap());
    // Names that are there, so that some calls are about something.
    prop_oneof![drawn, select(vec!["a1", "cpu", "memory", "h"]).prop_map(str::to_owned)].prop_map(Value::from).boxed()
}

fn objects(schema: &Value, document: &Value, depth: u32) -> BoxedStrategy<Value> {
    let is_required = |key: &str| schema["required"].as_array().is_some_and(|keys| keys.iter().any(|one| one == key));
    let fields: Vec<BoxedStrategy<Option<(String, Value)>>> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, schema)| {
            let (name, share) = (key.clone(), if is_required(key) { 0.98 } else { 0.3 });
            let field = values(schema, document, depth + 1).prop_map(move |value| (name.clone(), value));
            prop::option::weighted(share, field).boxed()
        })
        .collect();
    let names = select(vec!["cpu", "memory", "arch", "Wrong Name"]).prop_map(str::to_owned);
    let more = match &schema["additionalProperties"] {
        Value::Object(_) => values(&schema["additionalProperties"], document, depth + 1),
        _ => anything(),
    };
    let more_max = if schema["additionalProperties"].is_object() { 3 } else { 1 };
    let more = prop::collection::btree_map(names, more, 0..more_max);
    (fields, more)
        .prop_map(|(fields, more)| Value::Object(fields.into_iter().flatten().chain(more).collect::<Map<_, _>>()))
        .boxed()
}

/// A value in a path or a query, every byte of it escaped that is not plain.
fn escaped(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Calls of `operation`; `ids` are those of requests that there are.
fn calls(operation: &Operation, document: &Value, ids: &[String]) -> BoxedStrategy<Call> {
    let parameters: Vec<BoxedStrategy<Option<(Value, Value)>>> = operation
        .parameters
        .iter()
        .map(|parameter| {
            let described = values(&parameter["schema"], document, 0);
            let drawn = match parameter["name"].as_str().unwrap() {
                "wait_ms" => (0..=WAIT_MS).prop_map(Value::from).boxed(),
                "id" => prop_oneof![described, select(ids.to_vec()).prop_map(Value::from)].boxed(),
                _ => described,
            };
            let (parameter, is_optional) = (parameter.clone(), parameter["in"] != "path");
            let drawn = drawn.prop_map(move |value| (parameter.clone(), value));
            if is_optional { prop::option::of(drawn).boxed() } else { drawn.prop_map(Some).boxed() }
        })
        .collect();
    let body = match &operation.body {
        Some(schema) => values(schema, document, 0).prop_map(Some).boxed(),
        None => Just(None).boxed(),
    };
    let operation = operation.clone();
    (parameters, body)
        .prop_map(move |(parameters, body)| {
            let (mut path, mut query) = (operation.path.clone(), Vec::new());
            for (parameter, value) in parameters.into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap();
                if parameter["in"] == "path" {
                    path = path.replace(&format!("{{{name}}}"), &escaped(&value));
                } else {
                    query.push(format!("{name}={}", escaped(&value)));
                }
            }
            let mark = if query.is_empty() { "" } else { "?" };
            Call { operation: operation.clone(), target: format!("{path}{mark}{}", query.join("&")), body }
        })
        .boxed()
}

#[test]
fn whatever_is_sent_the_answer_is_described_and_nothing_forbidden_is_taken() {
    let node = Node::first("alpha", &hosts("a", 2));
    node.wait_until_it_knows(2);
    let id = node.kolo_json(&["submit", "-N", "1", "-t", "10min", "--per-host", "cpu=0.1"], 0)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let api = Api::of(&node);
    let ids = [id, "last".to_owned()];
    let operations = operations(&api.document);
    assert!(operations.len() > 20, "{operations:?}");
    let calls = operations.iter().map(|operation| calls(operation, &api.document, &ids));
    let calls = prop::strategy::Union::new(calls.collect::<Vec<_>>());
    // The same calls in every run: what fails here fails again.
    let config = Config { cases: CALLS, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    runner
        .run(&calls, |call| {
            let Call { operation, target, body } = &call;
            let text = body.as_ref().map(Value::to_string);
            let (status, answer) = api.checked(&operation.method, &operation.path, target, text.as_deref());
            prop_assert!(status < 500, "{status}: {answer}");
            if let (200..300, Some(schema), Some(body)) = (status, &operation.body, body) {
                let schema = json!({ "allOf": [schema], "components": api.document["components"] });
                prop_assert!(jsonschema::is_valid(&schema, body), "taken, though the description forbids it: {answer}");
            }
            Ok(())
        })
        .unwrap();
}
