//! A plan on the live view: nothing is held.

use std::collections::BTreeMap;

use broker::{
    cost::Cost,
    ids::{HostId, RequestId, ShapeNumber, SiteId},
    plan::ObjectiveValue,
    request::RequestDocument,
    resources::Amounts,
    scale::Factor,
    time::Time,
    trust::Authorization,
    variant::Variant,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    request_view::{ReasonView, is_zero},
    schema,
};

/// The plan object of the formats, with the site of each host and the age of the schedule that was used.
// A tag of serde's would be described as an object without a name, which generators of clients do not understand.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum LivePlan {
    Allocated(AllocatedPlan),
    Rejected(RejectedPlan),
}

/// The outcome of an [`AllocatedPlan`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Allocated {
    Allocated,
}

/// The outcome of a [`RejectedPlan`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rejected {
    Rejected,
}

/// A placement; nothing is held.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AllocatedPlan {
    pub outcome: Allocated,
    pub id: Option<RequestId>,
    /// Which of the request's shapes it is of, from 0, where it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, nullable = false)]
    pub shape: Option<ShapeNumber>,
    /// The factor by which it is scaled, in thousandths, where the request is moldable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, nullable = false)]
    pub scale: Option<Factor>,
    pub start: Time,
    pub end: Time,
    #[schema(value_type = schema::ObjectiveValue)]
    pub objective: ObjectiveValue,
    /// What all hosts together cost, in thousandths of a credit; left out when that is nothing.
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    #[schema(value_type = u64)]
    pub cost: Cost,
    /// Hosts that were looked at.
    pub hosts_seen: usize,
    /// Hosts that fit and were not, since their schedules are not known; left out when there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hosts_left_out: usize,
    pub hosts: Vec<PlannedHost>,
    pub efficiency: f64,
    pub efficiency_bound: f64,
    /// Whether it is proven, on the schedules that were used, that there is no earlier start.
    pub start_proven: bool,
    pub phases_us: BTreeMap<String, f64>,
    /// Of every site whose hosts were looked at, taken or not; none here in a batch, which has them once.
    pub schedules: Vec<UsedSchedule>,
}

impl AllocatedPlan {
    /// Which of all that the request allows it is.
    pub fn variant(&self) -> Variant {
        Variant { shape: self.shape.unwrap_or_default(), scale: self.scale.unwrap_or_default() }
    }
}

/// No placement.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RejectedPlan {
    pub outcome: Rejected,
    pub id: Option<RequestId>,
    pub reason: ReasonView,
    /// Hosts that were looked at.
    pub hosts_seen: usize,
    /// Hosts that fit and were not, since their schedules are not known; left out when there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hosts_left_out: usize,
    pub start_proven: bool,
    pub phases_us: BTreeMap<String, f64>,
    pub schedules: Vec<UsedSchedule>,
}

/// The schedule of a site, as it was used.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UsedSchedule {
    pub site: SiteId,
    pub site_name: String,
    /// Hosts of the site that were looked at.
    pub hosts: usize,
    pub age_s: u64,
    /// From when on the site shows more as used than is, since it has more than it may tell; left out where all of it is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub coarse_from: Option<Time>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PlannedHost {
    pub id: HostId,
    pub site: SiteId,
    pub site_name: String,
    /// Its own end; that of the plan is the latest.
    pub end: Time,
    #[schema(value_type = schema::Amounts)]
    pub amounts: Amounts,
    /// In thousandths of a credit; left out when it is nothing.
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    #[schema(value_type = u64)]
    pub cost: Cost,
    pub schedule_age_s: u64,
}

/// A request to plan, with who asks; [`schema::PlanQuestion`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedRequest {
    pub request: RequestDocument,
    pub asker: Authorization,
}

impl LivePlan {
    /// The same plan, made on these.
    pub fn with_schedules(mut self, used: Vec<UsedSchedule>) -> LivePlan {
        match &mut self {
            LivePlan::Allocated(plan) => plan.schedules = used,
            LivePlan::Rejected(plan) => plan.schedules = used,
        }
        self
    }
}
