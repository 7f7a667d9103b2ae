//! The bookings whose hosts the owner's hook has made usable.
//!
//! Invariant: while there is a hook, nobody hears of the host of a seat of a class before its hook has run: until then the seat may begin on
//! another.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use broker::{
    plan::Place,
    protocol::{AttemptId, SiteAnswer},
};
use kolo_runtime::lock::locked;

/// Clones show the same.
#[derive(Clone, Default)]
pub struct Usable(Arc<Mutex<Option<BTreeSet<AttemptId>>>>);

impl Usable {
    /// There is a hook, and it has made these usable.
    pub fn begin(&self, attempts: BTreeSet<AttemptId>) {
        *locked(&self.0) = Some(attempts);
    }

    /// The hook has made a booking usable, or was given up.
    pub fn note(&self, attempt: &AttemptId) {
        if let Some(usable) = &mut *locked(&self.0) {
            usable.insert(attempt.clone());
        }
    }

    /// A booking is gone.
    pub fn forget(&self, attempt: &AttemptId) {
        if let Some(usable) = &mut *locked(&self.0) {
            usable.remove(attempt);
        }
    }

    /// Whether the seats of a booking stay on the hosts that they are bound to.
    pub fn is_usable(&self, attempt: &AttemptId) -> bool {
        locked(&self.0).as_ref().is_none_or(|usable| usable.contains(attempt))
    }

    /// Says in an answer about `attempt` of seats that were bound, and whose hook has not run, that they float.
    pub fn hide(&self, attempt: Option<&AttemptId>, answer: &mut SiteAnswer) {
        match (answer, attempt) {
            (
                SiteAnswer::Held { places, .. }
                | SiteAnswer::Confirmed { places, .. }
                | SiteAnswer::Booked { places, .. },
                Some(attempt),
            ) if !self.is_usable(attempt) => places.iter_mut().for_each(|(_, place)| float(place)),
            (SiteAnswer::Found { parts, .. }, _) => {
                let parts = parts.iter_mut().filter(|part| !self.is_usable(&part.attempt));
                parts.flat_map(|part| &mut part.grants).for_each(|grant| float(&mut grant.place));
            }
            _ => {}
        }
    }
}

fn float(place: &mut Place) {
    if let Place::Bound { class, host } = place {
        *place = Place::Floating { class: class.clone(), host: host.clone() };
    }
}

#[cfg(test)]
mod tests {
    use broker::{
        ids::{HostId, RequestId, SeatNumber, SiteId},
        protocol::LedgerVersion,
    };

    use super::*;

    #[test]
    fn no_answer_names_the_host_of_a_seat_of_a_class_before_the_hook_has_run() {
        let name = |text: &str| HostId::new(text).unwrap();
        let attempt =
            AttemptId { entry_point: SiteId::new("e").unwrap(), request: RequestId::new("r").unwrap(), attempt: 1 };
        let bound = Place::Bound { class: name("n"), host: name("n-1") };
        let answers = || {
            let (version, places) = (LedgerVersion { incarnation: 1, change: 0 }, vec![(SeatNumber(0), bound.clone())]);
            let held = SiteAnswer::Held { version, hold_for: broker::time::Millis(1), places: places.clone() };
            [held, SiteAnswer::Confirmed { places, version, receipt: None }]
        };
        let places = |answer: SiteAnswer| match answer {
            SiteAnswer::Held { places, .. } | SiteAnswer::Confirmed { places, .. } => places,
            _ => unreachable!(),
        };
        let usable = Usable::default();
        for (begins, noted, floats) in [(false, false, false), (true, false, true), (true, true, false)] {
            if begins {
                usable.begin(BTreeSet::new());
            }
            if noted {
                usable.note(&attempt);
            }
            for mut answer in answers() {
                usable.hide(Some(&attempt), &mut answer);
                assert_eq!(places(answer)[0].1.is_floating(), floats, "{begins} {noted}");
            }
        }
    }
}
