//! When a request could start, and how many hosts it could get: all starts of a window. Nothing is held.

use broker::{cost::Cost, ids::ShapeNumber, request::RequestDocument, scale::Factor, time::Time, trust::Authorization};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{plan::UsedSchedule, request_view::ReasonView, schema};

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// When the hosts asked could be had first
    #[default]
    Earliest,
    /// When most hosts could be had together; the number of hosts asked is the least
    Most,
    /// How many hosts could be had at one time
    At,
}

/// Body of `POST /v1/slots`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SlotQuestion {
    pub mode: Mode,
    /// The start, for mode `at` and no other (Unix seconds); not in the past.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 253_402_300_799_i64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    #[schema(value_type = schema::Request)]
    pub request: RequestDocument,
    /// Any signed request of the user for whom it is asked, such as one whose latest start is over; the node's operator when absent.
    #[schema(value_type = Option<schema::Authorization>, nullable = false)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asker: Option<Authorization>,
}

/// Answer of `POST /v1/slots`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SlotAnswer {
    pub mode: Mode,
    /// Which of the request's shapes it is about, from 0, where it has any: the best, else the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, nullable = false)]
    pub shape: Option<ShapeNumber>,
    /// The factor that it is about, in thousandths, where the request is moldable: the best, else the one nearest to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, nullable = false)]
    pub scale: Option<Factor>,
    /// Whether the request could start at `start`.
    pub is_possible: bool,
    /// The start found, or the one asked for.
    pub start: Option<Time>,
    /// Of the last host; at reference speed, when there is no plan of hosts.
    pub end: Option<Time>,
    /// What all hosts of the plan cost together, in thousandths of a credit; left out when that is nothing.
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    #[schema(value_type = u64)]
    pub cost: Cost,
    /// Hosts that have the minima free from `start` on for the duration.
    pub hosts: usize,
    /// What these have free together, of the resources that the request names.
    #[schema(value_type = std::collections::BTreeMap<String, u64>)]
    pub free: broker::resources::Amounts,
    /// Whether it is proven, on the schedules that were used, that nothing is better by the request's objective, which may be the start
    /// (`earliest`), that no start has more hosts (`most`), or that the answer for this start is right (`at`).
    pub is_proven: bool,
    /// Why not, when it is not possible.
    pub reason: Option<ReasonView>,
    /// Hosts and free amounts over the starts of the window; each step holds until the next one, the last until `until`.
    pub profile: Vec<ProfileStep>,
    /// The latest start looked at.
    pub until: Time,
    /// Of mode `earliest`, where hosts cost something: what it costs to start earlier, in any shape and whatever the budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front: Option<PriceFront>,
    /// Whether the profile was thinned: then a step promises what is there at least.
    pub is_thinned: bool,
    pub known_hosts: usize,
    /// Hosts that could ever have the minima, whatever is reserved.
    pub matching_hosts: usize,
    /// Sites left out because they did not tell their schedules.
    pub without_schedule: usize,
    pub schedules: Vec<UsedSchedule>,
}

/// The starts whose least cost is below that of every earlier start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PriceFront {
    /// At most 100, the earliest and the cheapest among them.
    pub points: Vec<PricedStart>,
    /// How many more there are between these.
    pub left_out: usize,
    /// Whether it is proven that there is no other.
    pub is_proven: bool,
}

/// A start, and the least that it costs, in thousandths of a credit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PricedStart {
    pub start: Time,
    #[schema(value_type = u64)]
    pub cost: Cost,
    /// Whether it is proven that no start up to this one costs less.
    pub is_proven: bool,
    /// Which of the request's shapes costs so little then, where it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, nullable = false)]
    pub shape: Option<ShapeNumber>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProfileStep {
    pub start: Time,
    pub hosts: usize,
    #[schema(value_type = std::collections::BTreeMap<String, u64>)]
    pub free: broker::resources::Amounts,
}
