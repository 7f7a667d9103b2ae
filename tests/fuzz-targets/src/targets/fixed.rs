//! Names that the targets give; each passes every check.

use broker::ids::{RequestId, SiteId};

const LEGAL: &str = "a legal name";

pub fn site(name: &str) -> SiteId {
    SiteId::new(name).expect(LEGAL)
}

pub fn request_id(name: &str) -> RequestId {
    RequestId::new(name).expect(LEGAL)
}
