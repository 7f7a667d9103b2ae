//! The objects of the core as the API's description shows them: the core itself knows nothing of HTTP.
//!
//! Invariant: these are only described, never made; the tests of the API hold real answers against them.

#![expect(dead_code, reason = "only described")]

use std::{borrow::Cow, collections::BTreeMap};

use broker::amount::Amount;
use serde::Deserialize;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr, Schema,
        schema::{ArrayBuilder, ObjectBuilder, Type},
    },
};

/// A name: of a request, a host or a site; at most 128 bytes.
#[derive(Deserialize, ToSchema)]
#[schema(min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
pub struct Name(String);

/// Amounts in base units, by resource.
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

/// A request, as in the formats. The latest start must not be before the earliest, or in the past, and candidates must be
/// as many as hosts.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The writer's name for the request.
    #[schema(value_type = Option<Name>)]
    id: Option<String>,
    /// How many hosts.
    #[schema(minimum = 1, maximum = 10_000)]
    hosts: u32,
    /// How long, in seconds.
    #[schema(minimum = 1, maximum = 253_402_300_799_i64)]
    duration: i64,
    /// Earliest start (Unix seconds).
    #[schema(minimum = 0, maximum = 253_402_300_799_i64)]
    earliest: Option<i64>,
    /// Latest start (Unix seconds).
    #[schema(minimum = 0, maximum = 253_402_300_799_i64)]
    latest: Option<i64>,
    /// What each host gives at least, in base units.
    #[schema(nullable = false, value_type = Option<Amounts>)]
    per_host: Option<BTreeMap<String, u64>>,
    /// What all hosts together give at least, in base units.
    #[schema(nullable = false, value_type = Option<Amounts>)]
    total: Option<BTreeMap<String, u64>>,
    /// What each host must be.
    #[schema(nullable = false)]
    attributes: Option<BTreeMap<String, String>>,
    /// Only these hosts.
    #[schema(min_items = 1, max_items = 100_000, value_type = Option<Vec<Name>>)]
    candidates: Option<Vec<String>>,
    /// How much work planning may be.
    effort: Option<Effort>,
    /// Whether the reservation may move when hosts of it are lost.
    #[schema(nullable = false)]
    move_on_loss: Option<bool>,
}

/// A request as it is handed in.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Submission {
    /// The node signs it for its operator.
    Plain(Request),
    /// Its user has signed it.
    Signed(Signed),
}

/// A request that its user has signed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// What is signed, and what shows that its author belongs to the grid.
    authorization: Authorization,
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
    /// A statement as JSON.
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

/// How much work planning may be.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Least time.
    Fast,
    /// The default.
    Balanced,
    /// Best answers.
    Thorough,
}

/// How far a site's ledger has come.
#[derive(ToSchema)]
pub struct Version {
    /// Of the node's start.
    incarnation: u64,
    /// Changes since then.
    change: u64,
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
