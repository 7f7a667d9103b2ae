//! The books of a simulated host: those of the product, with a deliberate fault where one is switched on.
//!
//! Invariant: without a fault every call goes to [`HostLedger`] unchanged.

use std::sync::Arc;

use broker::{
    host::Host,
    ids::HostId,
    ledger::{Books, HostLedger, Ledger, fit_beside},
    protocol::Grant,
    resources::Amounts,
    schedule::{Schedule, Shortage},
    tariff::Tariff,
    time::{Span, Time, Window},
};

use super::work;

/// The ledger of a simulated site.
pub type SiteLedger = Ledger<FaultyBooks>;

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookFault {
    /// Admission does not see the holds of others.
    AdmitBesideHolds,
    /// What is given back is freed twice.
    DoubleRelease,
    /// A lapsed hold is never given back.
    LapsedHoldKept,
    /// What is given back is not given back on the uplink.
    LinkKept,
    /// The owner's prices are not known.
    NoTariff,
    /// What is promised is not shown.
    PromisesUnseen,
    /// A host of a class has room for any number of seats.
    ClassNeverFull,
    /// There is never room for a single second.
    SecondsFull,
    /// A look at a host goes through as many steps as an event may cost.
    LooksEndlessly,
}

/// The books of one host.
#[derive(Debug)]
pub struct FaultyBooks {
    books: HostLedger,
    fault: Option<BookFault>,
}

impl FaultyBooks {
    /// The books of a host, of a class perhaps, of which only the owner's own work is reserved.
    pub fn new((mut host, own): (Host, Schedule), class: Option<HostId>, fault: Option<BookFault>) -> FaultyBooks {
        if fault == Some(BookFault::NoTariff) {
            host.tariff = Arc::default();
        }
        FaultyBooks { books: HostLedger::new(host, own).in_class(class), fault }
    }
}

impl Books for FaultyBooks {
    fn host(&self) -> &Host {
        self.books.host()
    }

    fn class(&self) -> Option<&HostId> {
        self.books.class()
    }

    fn set_tariff(&mut self, tariff: Arc<Tariff>) {
        if self.fault != Some(BookFault::NoTariff) {
            self.books.set_tariff(tariff);
        }
    }

    fn own(&self) -> &Schedule {
        self.books.own()
    }

    fn reserved(&self) -> &Schedule {
        work::note_calls(1);
        self.books.reserved()
    }

    fn promised(&self) -> &Schedule {
        work::note_calls(1);
        if self.fault == Some(BookFault::PromisesUnseen) {
            return self.books.own();
        }
        self.books.promised()
    }

    fn admits(&self, grants: &[&Grant]) -> Result<(), Shortage> {
        work::note_calls(if self.fault == Some(BookFault::LooksEndlessly) { work::CALLS_MAX } else { 1 });
        match self.fault {
            Some(BookFault::AdmitBesideHolds) => fit_beside(self.reserved(), &self.host().capacity, grants),
            Some(BookFault::ClassNeverFull) if self.class().is_some() => Ok(()),
            Some(BookFault::SecondsFull) if grants.iter().any(|grant| grant.window.duration() == Span(1)) => {
                fit_beside(self.reserved(), &Amounts::new(), grants)
            }
            _ => self.books.admits(grants),
        }
    }

    fn hold(&mut self, window: Window, amounts: &Amounts) {
        work::note_calls(1);
        self.books.hold(window, amounts);
    }

    fn confirm(&mut self, window: Window, amounts: &Amounts) {
        work::note_calls(1);
        self.books.confirm(window, amounts);
    }

    fn release(&mut self, window: Window, amounts: &Amounts, was_confirmed: bool) {
        work::note_calls(1);
        if self.fault == Some(BookFault::LapsedHoldKept) && !was_confirmed {
            return;
        }
        if self.fault == Some(BookFault::LinkKept) && self.host().id.is_uplink() {
            return;
        }
        self.books.release(window, amounts, was_confirmed);
        if self.fault == Some(BookFault::DoubleRelease) {
            self.books.release(window, amounts, false);
        }
    }

    fn forget_before(&mut self, time: Time) {
        self.books.forget_before(time);
    }
}
