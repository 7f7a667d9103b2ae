//! What is on disk of the notices about one request: what people have been told of it last.
//!
//! Invariant: a notice that was taken, or given up, never goes out again, and no two have the same number.

use broker::ids::RequestId;
use kolo_api::notice::{NoticeEvent, Told};
use serde::{Deserialize, Serialize};

/// A notice that has not been taken yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunNotice {
    pub event: NoticeEvent,
    /// How often it has gone out, this time included.
    pub tries: u32,
    /// What people will have heard by it.
    pub told: Told,
}

/// What is on disk of the notices about one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeRecord {
    pub request: RequestId,
    pub told: Told,
    /// How many notices have been begun; the number of the last one.
    pub number: u32,
    /// The last one, until it is taken or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<BegunNotice>,
}

impl NoticeRecord {
    /// That of a request of which people have heard this much by themselves.
    pub fn new(request: RequestId, told: Told) -> NoticeRecord {
        NoticeRecord { request, told, number: 0, begun: None }
    }

    /// `event` goes out, for the first time or again; people will have heard `told` by it.
    pub fn begin(&mut self, event: NoticeEvent, told: &Told) {
        match &mut self.begun {
            Some(begun) if begun.event == event && begun.told == *told => begun.tries = begun.tries.saturating_add(1),
            _ => {
                self.number = self.number.saturating_add(1);
                self.begun = Some(BegunNotice { event, tries: 1, told: told.clone() });
            }
        }
    }

    /// What goes out was taken or given up: people have heard this now.
    pub fn finish(&mut self, told: Told) {
        self.told = told;
        self.begun = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use broker::ids::{HostId, SeatNumber, SiteId};
    use kolo_api::notice::Heard;

    use super::*;

    #[test]
    fn one_that_goes_out_again_keeps_its_number_and_another_one_never_has_it() {
        let mut record = NoticeRecord::new(RequestId::new("r").unwrap(), Told::default());
        let begun = |record: &NoticeRecord| (record.number, record.begun.as_ref().map(|begun| begun.tries));
        let lost = |host: &str| {
            let seat = (SeatNumber(0), SiteId::new("s").unwrap(), HostId::new(host).unwrap());
            Told { heard: Heard::Reserved, lost: BTreeSet::from([seat]), ..Told::default() }
        };
        record.begin(NoticeEvent::Degraded, &lost("h"));
        record.begin(NoticeEvent::Degraded, &lost("h"));
        assert_eq!(begun(&record), (1, Some(2)));
        // Other hosts are lost now.
        record.begin(NoticeEvent::Degraded, &lost("g"));
        assert_eq!(begun(&record), (2, Some(1)));
        // What was to be said is true no more.
        let over = Told { heard: Heard::Over, ..Told::default() };
        record.begin(NoticeEvent::Cancelled, &over);
        assert_eq!(begun(&record), (3, Some(1)));
        record.finish(over);
        assert_eq!(begun(&record), (3, None));
    }
}
