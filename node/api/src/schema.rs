//! The objects of the core as the API's description shows them: the core itself knows nothing of HTTP.
//!
//! Invariant: these are only described, never made; the tests of the API hold real answers against them.

#![expect(dead_code, reason = "only described")]

use std::borrow::Cow;

use broker::{
    amount::Amount,
    cost::Cost,
    ids::MAX_ID_BYTES,
    needs::IMAGE_BYTES_MAX,
    request::{MAX_CANDIDATES, RequestDocument},
    scale::Factor,
    shapes::MAX_SHAPES,
    time::Time,
    traffic::Traffic,
};
use kolo_text::request_keys::{KEYS, Key, Kind, SHAPE_KEYS};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr, Schema,
        schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder, SchemaType, Type},
    },
};

/// A name: of a request, a host or a site; at most 128 bytes.
#[derive(Deserialize, ToSchema)]
#[schema(min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
pub struct Name(String);

/// Amounts in base units, by resource.
#[derive(Deserialize)]
pub struct Amounts;

impl PartialSchema for Amounts {
    fn schema() -> RefOr<Schema> {
        let name = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[a-z][a-z0-9_.-]{0,63}$"));
        let amount = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(Amount::MAX.0));
        ObjectBuilder::new()
            .description(Some("Amounts in base units, by resource"))
            .property_names(Some(name))
            .additional_properties(Some(Schema::from(amount)))
            .into()
    }
}

impl ToSchema for Amounts {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Amounts")
    }
}

/// A time and the amount from then on.
pub struct Step;

impl PartialSchema for Step {
    fn schema() -> RefOr<Schema> {
        ArrayBuilder::new()
            .description(Some("A time (Unix seconds) and the amount (base units) that is taken from then on"))
            .items(ObjectBuilder::new().schema_type(Type::Integer))
            .min_items(Some(2))
            .max_items(Some(2))
            .into()
    }
}

impl ToSchema for Step {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Step")
    }
}

/// The data of a server-sent event. An event `request` has `id` and `revision`, an event `site` has `site`, and an event
/// `all` has nothing: then anything may have changed.
#[derive(ToSchema)]
pub struct Event {
    /// The request that has changed.
    #[schema(nullable = false)]
    id: Option<String>,
    /// The revision of the request.
    #[schema(nullable = false)]
    revision: Option<u64>,
    /// The site that has changed.
    #[schema(nullable = false)]
    site: Option<String>,
}

/// A request, as in the formats.
#[derive(Deserialize)]
pub struct Request;

impl PartialSchema for Request {
    fn schema() -> RefOr<Schema> {
        let about = "A request, as in the formats, with hosts and either duration or work, or else with shapes that have them. The latest start and the deadline must not be \
                     before the earliest start, or in the past, and candidates must be as many as hosts";
        let closed = AdditionalProperties::<Schema>::FreeForm(false);
        let object = ObjectBuilder::new().description(Some(about)).additional_properties(Some(closed));
        KEYS.iter().fold(object, |object, key| object.property(key.name, schema_of(key))).into()
    }
}

impl ToSchema for Request {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Request")
    }
}

/// What programs write for `key`.
fn schema_of(key: &Key) -> RefOr<Schema> {
    let about = Some(format!("{}{}", key.help, unit_of(key.kind)));
    // Read off the document itself, which knows no word of this.
    let takes_null = serde_json::from_value::<RequestDocument>(json!({ "hosts": 1, key.name: null })).is_ok();
    let of = |kind| match takes_null {
        true => SchemaType::Array(vec![kind, Type::Null]),
        false => kind.into(),
    };
    let integer = |least: i64, most: i64| {
        let integer = ObjectBuilder::new().description(about.as_ref()).schema_type(of(Type::Integer));
        integer.minimum(Some(least)).maximum(Some(most)).into()
    };
    let name = || {
        let name = ObjectBuilder::new().pattern(Some(r"^[^\x00-\x1f\x7f-\x9f]+$"));
        name.min_length(Some(1)).max_length(Some(MAX_ID_BYTES))
    };
    let plain = ObjectBuilder::new().description(about.as_ref());
    match key.kind {
        Kind::Label => name().description(about).schema_type(of(Type::String)).into(),
        Kind::Count(most) => integer(1, most.into()),
        Kind::Span(most) => integer(1, i64::try_from(most.0).unwrap_or(i64::MAX)),
        Kind::Time => integer(0, Time::MAX.0),
        Kind::Speed => integer(1, u32::MAX.into()),
        Kind::Credits => integer(0, i64::try_from(Cost::MAX.0 - 1).unwrap_or(i64::MAX)),
        Kind::Amounts => Amounts::schema(),
        Kind::Attributes => {
            let text = Schema::from(ObjectBuilder::new().schema_type(Type::String));
            plain.schema_type(of(Type::Object)).additional_properties(Some(text)).into()
        }
        Kind::Hosts => {
            let hosts = ArrayBuilder::new().schema_type(of(Type::Array)).description(about);
            hosts.items(name().schema_type(Type::String)).min_items(Some(1)).max_items(Some(MAX_CANDIDATES)).into()
        }
        Kind::Choice(_, words) => {
            let null = takes_null.then_some(Value::Null);
            let words = words.iter().map(|word| Value::from(*word)).chain(null);
            plain.schema_type(of(Type::String)).enum_values(Some(words)).into()
        }
        Kind::Flag => plain.schema_type(of(Type::Boolean)).into(),
        Kind::Shapes => {
            let closed = AdditionalProperties::<Schema>::FreeForm(false);
            let shape = ObjectBuilder::new().additional_properties(Some(closed)).required("hosts");
            let keys = SHAPE_KEYS.iter().filter_map(|name| Key::named(name));
            let shape = keys.fold(shape, |shape, key| shape.property(key.name, schema_of(key)));
            let shapes = ArrayBuilder::new().schema_type(of(Type::Array)).description(about);
            shapes.items(shape).min_items(Some(1)).max_items(Some(MAX_SHAPES)).into()
        }
        Kind::Traffic => {
            let closed = AdditionalProperties::<Schema>::FreeForm(false);
            let whole = |about: &str, most: i64| {
                let whole = ObjectBuilder::new().description(Some(about)).schema_type(Type::Integer);
                whole.minimum(Some(0)).maximum(Some(most))
            };
            let mbps =
                whole("What a host sends to all others, in Mbit/s", i64::try_from(Amount::MAX.0).unwrap_or(i64::MAX));
            let compute =
                whole("Which part of the work a slow host makes longer, in thousandths", Traffic::COMPUTE_MAX.into());
            let traffic = plain.schema_type(of(Type::Object)).additional_properties(Some(closed));
            traffic.property("mbps", mbps).required("mbps").property("compute", compute).into()
        }
        Kind::Scale => {
            let factor = ObjectBuilder::new().schema_type(Type::Integer);
            let factor = factor.minimum(Some(1)).maximum(Some(i64::from(Factor::MAX.thousandths())));
            let range = ArrayBuilder::new().schema_type(of(Type::Array)).description(about);
            range.items(factor).min_items(Some(2)).max_items(Some(2)).into()
        }
        Kind::Words(_, words) => list_of(words, of(Type::Array), about).into(),
        Kind::Image => {
            plain.schema_type(of(Type::String)).pattern(Some(IMAGE_PATTERN)).max_length(Some(IMAGE_BYTES_MAX)).into()
        }
        Kind::Compute | Kind::One => plain.into(),
    }
}

/// What the name of an image looks like.
const IMAGE_PATTERN: &str = "^[A-Za-z0-9][!-~]*$";

/// Some of these words; a word twice is as good as once.
fn list_of(words: &[&str], kind: SchemaType, about: Option<String>) -> ArrayBuilder {
    let word = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words.iter().copied()));
    let list = ArrayBuilder::new().schema_type(kind).description(about);
    list.items(word)
}

/// What the numbers of a kind count.
fn unit_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Span(_) => ", in seconds",
        Kind::Time => " (Unix seconds)",
        Kind::Amounts => ", in base units",
        Kind::Speed => ", in thousandths of the reference speed",
        Kind::Credits => ", in thousandths of a credit",
        Kind::Scale => ": the least and the largest, in thousandths",
        _ => "",
    }
}

/// A request as it is handed in.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Submission {
    /// The node signs it for its operator.
    Plain(Request),
    /// The same, and this plan is reserved or none.
    Planned(PlannedRequest),
    /// Its user has signed it.
    Signed(Signed),
}

/// A request to plan.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub enum PlanQuestion {
    /// For the node's operator.
    Plain(Request),
    /// For another user.
    Asked(AskedRequest),
}

/// A request to plan for the user who has signed `asker`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AskedRequest {
    /// The request.
    request: Request,
    /// Any signed request of the user, such as one whose latest start is over: owners' rules about users are asked with it.
    asker: Authorization,
}

/// A request that its user has signed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// What is signed, and what shows that its author belongs to the grid.
    authorization: Authorization,
    /// With a new request: this plan is reserved, or none.
    plan: Option<HandedPlan>,
    /// When that plan cannot be reserved, another is made.
    #[serde(default)]
    replans: bool,
}

/// A request with the plan to reserve.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedRequest {
    /// The request.
    request: Request,
    /// What is reserved, or nothing.
    plan: HandedPlan,
    /// When that plan cannot be reserved, another is made.
    #[serde(default)]
    replans: bool,
}

/// A plan that was made elsewhere.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HandedPlan {
    /// Which of the request's shapes it is of, from 0.
    #[serde(default)]
    shape: u32,
    /// The factor by which a moldable request is scaled, in thousandths; 1000 when absent.
    #[serde(default = "as_asked")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    scale: u32,
    /// When all hosts begin (Unix seconds).
    start: i64,
    /// As many hosts as the request asks for.
    hosts: Vec<HandedSeat>,
}

fn as_asked() -> u32 {
    Factor::ONE.thousandths()
}

/// A host of it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HandedSeat {
    /// Its site's id.
    site: String,
    /// Its name there.
    host: String,
    /// When it ends (Unix seconds).
    end: i64,
    /// What it gives.
    amounts: Amounts,
}

/// Text, author and signature, and the chains of credentials.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    /// The request.
    request: SignedText,
    /// The user's credentials, the first signed by the root.
    user: Option<Vec<SignedText>>,
    /// The entry point's credentials.
    entry_point: Option<Vec<SignedText>>,
}

/// A text with its author and signature.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignedText {
    /// A line that says what it is, and a statement as JSON.
    text: String,
    /// An Ed25519 key in hexadecimal.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    author: String,
    /// Its signature in hexadecimal.
    #[schema(pattern = "^[0-9a-f]{128}$")]
    signature: String,
}

/// A signed revocation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Revocation {
    /// What is revoked.
    statement: SignedText,
    /// The credentials of who revokes; the root needs none.
    issuer: Option<Vec<SignedText>>,
}

/// How far a site's ledger has come.
#[derive(ToSchema)]
pub struct Version {
    /// Of the node's start.
    incarnation: u64,
    /// Changes since then.
    change: u64,
}

/// What a plan is worth; smaller is better.
#[derive(ToSchema)]
pub struct ObjectiveValue {
    /// What was asked to be smallest.
    kind: String,
    /// A time for `start` and `finish`, thousandths of a credit for `cost`, else seconds.
    value: i64,
    /// Nothing inside the window is better than this, among the hosts looked at; absent when nothing is known.
    bound: Option<i64>,
}

/// Whose turn is first in a batch.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BatchOrder {
    /// The order of the file.
    File,
    /// The earliest `earliest`.
    Fcfs,
    /// The fewest hosts.
    Sjf,
    /// The most hosts.
    Bjf,
    /// The first that fits.
    Fpfs,
    /// The shortest.
    Spt,
    /// The longest.
    Lpt,
    /// The highest demand.
    Hdf,
    /// The earliest deadline.
    Edf,
}

/// What is least for a batch.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BatchObjectiveKind {
    /// The sum of the costs.
    Cost,
    /// The sum of the lengths of all seats.
    HostTime,
    /// The sum over the requests of their latest ends.
    Finish,
    /// The latest end of all.
    Makespan,
    /// The sum over the hosts of their last ends.
    RunTime,
}

/// What is best for a batch, and what is reached of it; smaller is better.
#[derive(ToSchema)]
pub struct BatchObjectiveValue {
    /// What was asked to be smallest.
    kind: String,
    /// Of what was placed.
    value: i64,
    /// No plan of all requests has a smaller value; absent when nothing is known.
    bound: Option<i64>,
}

/// The figures of a batch. Times are seconds after the earliest start of all requests.
#[derive(ToSchema)]
pub struct BatchLine {
    /// The policy.
    policy: String,
    /// Requests that have a plan.
    placed: usize,
    /// Requests that have none.
    postponed: usize,
    /// The latest end.
    makespan: i64,
    /// In thousandths of a credit.
    cost: u64,
    /// The lengths of all seats, in seconds.
    host_time: u64,
    /// The latest ends of all requests together.
    finish_sum: i64,
    /// The last ends of all hosts together.
    run_time: i64,
    /// What was minimised.
    objective: BatchObjectiveValue,
    /// The budget, where there is one.
    #[schema(nullable = false)]
    batch_budget: Option<u64>,
    /// Alternatives found.
    alternatives: usize,
    /// What planning took, in microseconds.
    us: u64,
    /// Those that the policy could not treat, if any.
    #[schema(nullable = false)]
    by_itself: Option<Vec<ByItself>>,
}

/// A request that was planned by itself, on what the policy has left to it.
#[derive(ToSchema)]
pub struct ByItself {
    /// Its label, or `line-K` when it has none.
    request: String,
    /// What of it the policy cannot treat.
    why: String,
}

/// From start until end (Unix seconds).
#[derive(ToSchema)]
pub struct Window {
    /// First second inside.
    start: i64,
    /// First second after.
    end: i64,
}

/// Why a host is lost.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum Loss {
    /// Its site does not answer.
    SiteSilent,
    /// Its site has taken it back.
    TakenBack,
}
