//! The next event of one activation.
//!
//! Pure: the record on disk, what the ledger has and the time decide. Invariant: the events of an activation are a way
//! through reserved, changed (any number), start, changed (any number), and end or cancelled; each but changed comes at most
//! once, nothing follows the last one, and nothing is undone that was not done.

use broker::time::{Span, Time};
use kolo_storage::activation::{ActivationEvent, ActivationRecord, Stage};

use super::parts::Extent;

/// What is to be done about a booking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing until then, or until the ledger changes.
    Wait(Option<Time>),
    /// Run the hook.
    Run(ActivationEvent),
    /// Forget the record.
    Forget,
}

/// What comes next for an activation, of which there is a record, or something in the ledger, or both. `early` is how long before
/// its window a reservation is started.
pub fn next(record: Option<&ActivationRecord>, extent: Option<Extent<'_>>, now: Time, early: Span) -> Next {
    let Some(record) = record else {
        return match extent {
            // What is over, or has lost all its hosts, has nothing that the hook could do.
            Some(extent) if now < extent.window.end && !extent.grants.is_empty() => {
                Next::Run(ActivationEvent::Reserved)
            }
            _ => Next::Wait(None),
        };
    };
    if record.stage == Stage::Over {
        // The ledger keeps what has ended for a moment; without the record it would be taken for a new one.
        return if extent.is_none() { Next::Forget } else { Next::Wait(None) };
    }
    let begun = record.begun.as_ref().map(|begun| begun.event);
    if let Some(event @ (ActivationEvent::End | ActivationEvent::Cancelled)) = begun {
        return Next::Run(event);
    }
    let Some(extent) = extent.filter(|extent| now < extent.window.end) else {
        // What it was to go on with may have been taken back, and the end before that have passed.
        let is_ended = now >= record.told.window.end;
        return Next::Run(if is_ended { ActivationEvent::End } else { ActivationEvent::Cancelled });
    };
    if let Some(event) = begun {
        // It has failed on all hosts, and there are no others.
        let has_none = event == ActivationEvent::Start && extent.grants.is_empty();
        return Next::Run(if has_none { ActivationEvent::Changed } else { event });
    }
    if !extent.is_like(Extent::from(&record.told)) {
        return Next::Run(ActivationEvent::Changed);
    }
    let start = extent.window.start - early;
    match record.stage {
        Stage::Started => Next::Wait(Some(extent.window.end)),
        _ if now >= start && extent.grants.is_empty() => Next::Wait(Some(extent.window.end)),
        // The ledger binds it in a moment, and says so.
        _ if now >= start && extent.grants.iter().any(|grant| grant.place.is_floating()) => Next::Wait(None),
        _ if now >= start => Next::Run(ActivationEvent::Start),
        _ => Next::Wait(Some(start)),
    }
}
