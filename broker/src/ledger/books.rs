//! The schedules of one host: the owner's own work, all reservations, and all promises.
//!
//! Invariant: these are the only operations by which what a ledger grants changes, and only `promises` calls them. The product implements [`Books`] in one way, [`HostLedger`]; a simulator puts another one around it to show that it
//! would find a fault here.

use std::sync::Arc;

use super::admission::fit_beside;
use crate::{
    host::Host,
    ids::HostId,
    protocol::Grant,
    resources::Amounts,
    schedule::{Schedule, Shortage},
    tariff::Tariff,
    time::{Time, Window},
};

/// The schedules of one host.
pub trait Books {
    /// The host as offered.
    fn host(&self) -> &Host;

    /// The class that it is one of, where seats on it are bound late.
    fn class(&self) -> Option<&HostId>;

    /// Puts another tariff into force.
    fn set_tariff(&mut self, tariff: Arc<Tariff>);

    /// The owner's own work as configured.
    fn own(&self) -> &Schedule;

    /// The owner's own work, unless it may be stopped, and all reservations: the schedule that other nodes see.
    fn reserved(&self) -> &Schedule;

    /// The owner's own work, all reservations and all holds.
    fn promised(&self) -> &Schedule;

    /// Checks that all these grants on this host fit together beside all promises.
    ///
    /// # Errors
    /// The first resource that is short.
    fn admits(&self, grants: &[&Grant]) -> Result<(), Shortage>;

    /// Promises amounts that were admitted.
    fn hold(&mut self, window: Window, amounts: &Amounts);

    /// Reserves amounts that are held.
    fn confirm(&mut self, window: Window, amounts: &Amounts);

    /// Gives back amounts that were held, or held and confirmed.
    fn release(&mut self, window: Window, amounts: &Amounts, was_confirmed: bool);

    /// Clears the schedules before `time`.
    fn forget_before(&mut self, time: Time);
}

/// One host of the site with its schedules.
#[derive(Debug, Clone)]
pub struct HostLedger {
    host: Host,
    class: Option<HostId>,
    own: Schedule,
    reserved: Schedule,
    promised: Schedule,
}

impl HostLedger {
    /// A host of which nothing but the owner's own work is reserved.
    #[must_use]
    pub fn new(host: Host, own: Schedule) -> HostLedger {
        HostLedger { host, class: None, reserved: own.clone(), promised: own.clone(), own }
    }

    /// The same as one of a class, if any is given, whose seats are bound late.
    #[must_use]
    pub fn in_class(self, class: Option<HostId>) -> HostLedger {
        HostLedger { class, ..self }
    }
}

impl Books for HostLedger {
    fn host(&self) -> &Host {
        &self.host
    }

    fn class(&self) -> Option<&HostId> {
        self.class.as_ref()
    }

    fn set_tariff(&mut self, tariff: Arc<Tariff>) {
        self.host.tariff = tariff;
    }

    fn own(&self) -> &Schedule {
        &self.own
    }

    fn reserved(&self) -> &Schedule {
        &self.reserved
    }

    fn promised(&self) -> &Schedule {
        &self.promised
    }

    fn admits(&self, grants: &[&Grant]) -> Result<(), Shortage> {
        fit_beside(&self.promised, &self.host.capacity, grants)
    }

    fn hold(&mut self, window: Window, amounts: &Amounts) {
        self.promised.add(window, amounts);
    }

    fn confirm(&mut self, window: Window, amounts: &Amounts) {
        self.reserved.add(window, amounts);
    }

    fn release(&mut self, window: Window, amounts: &Amounts, was_confirmed: bool) {
        let freed = self.promised.remove(window, amounts);
        debug_assert!(freed.is_ok(), "a booking takes back what it has put in");
        if was_confirmed {
            let freed = self.reserved.remove(window, amounts);
            debug_assert!(freed.is_ok(), "a reservation takes back what it has put in");
        }
    }

    fn forget_before(&mut self, time: Time) {
        for schedule in [&mut self.own, &mut self.reserved, &mut self.promised] {
            schedule.forget_before(time);
        }
    }
}
