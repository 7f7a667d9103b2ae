//! Short ways to make the core's values out of choices.

use crate::{
    amount::Amount,
    host::Host,
    ids::{HostId, RequestId, SiteId},
    resources::{Amounts, Attributes, ResourceName},
    time::{Span, Time, Window},
};

/// Names are fixed texts of the targets, which pass every check.
const NAME: &str = "a legal name";

pub fn site(name: &str) -> SiteId {
    SiteId::new(name).expect(NAME)
}

pub fn host_id(name: &str) -> HostId {
    HostId::new(name).expect(NAME)
}

pub fn request_id(name: &str) -> RequestId {
    RequestId::new(name).expect(NAME)
}

pub fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).expect(NAME)
}

pub fn amounts<const N: usize>(amounts: [(&str, u64); N]) -> Amounts {
    amounts.into_iter().map(|(name, amount)| (resource(name), Amount(amount))).collect()
}

pub fn host(name: &str, capacity: Amounts) -> Host {
    Host { id: host_id(name), capacity, attributes: Attributes::new(), speed: 1000, price: 0 }
}

pub fn window(start: i64, length: u64) -> Window {
    Window::starting(Time(start), Span(length))
}
