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
    protocol::{AttemptId, Places},
};

use crate::runtime::lock::locked;

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

    /// Tells of seats that were bound, and whose hook has not run, that they float.
    pub fn hide(&self, attempt: &AttemptId, places: &mut Places) {
        if locked(&self.0).as_ref().is_none_or(|usable| usable.contains(attempt)) {
            return;
        }
        for (_, place) in places {
            if let Place::Bound { class, host } = place {
                *place = Place::Floating { class: class.clone(), host: host.clone() };
            }
        }
    }
}
