//! The product's state machines in one simulated node: its ledger, and the negotiation of each request that it coordinates.
//!
//! Invariant: all of it is lost when the node stops; [`Machines::open`] makes it again from the disk.

use std::{collections::BTreeMap, sync::Arc};

use broker::{
    host::Host,
    ids::{HostId, RequestId, SiteId},
    ledger::{BookingRecord, Kept, Ledger, LedgerLimits},
    negotiation::{Negotiation, NegotiationSettings, RequestRecord},
    receipt::KeyOfSite,
    schedule::Schedule,
    time::Now,
    trust::SharedGate,
};
use ed25519_dalek::SigningKey;
use sim_kit::virtual_time::Moment;

use super::{
    books::{BookFault, FaultyBooks, SiteLedger},
    disk::Disk,
};

/// The settings of a node that starts.
#[derive(Debug)]
pub struct Setup {
    /// Its name.
    pub site: SiteId,
    /// Its hosts with the owner's own work.
    pub hosts: Vec<(Host, Schedule)>,
    /// The class that all of them are of, if any.
    pub class: Option<HostId>,
    /// Its trust and its owner's policy.
    pub gate: SharedGate,
    /// Limits of its ledger.
    pub limits: LedgerLimits,
    /// Settings of its negotiations.
    pub negotiation: NegotiationSettings,
    /// What it signs and checks receipts with; none where they are left out, since their signatures cost more than what is simulated.
    pub receipts: Option<Receipts>,
    /// What its books do wrong.
    pub book_fault: Option<BookFault>,
}

/// What a node signs and checks receipts with.
#[derive(Debug, Clone)]
pub struct Receipts {
    /// Its own key.
    pub key: Arc<SigningKey>,
    /// The keys of all.
    pub key_of: KeyOfSite,
}

/// The state machines of one running node. `A` is the receiver of the answer to a question that the ledger was asked.
#[derive(Debug)]
pub struct Machines<A> {
    /// The site side.
    pub ledger: SiteLedger,
    /// The coordinator side.
    pub negotiations: BTreeMap<RequestId, Negotiation>,
    /// Questions that the ledger has not answered yet, by token.
    pub askers: BTreeMap<u64, A>,
    /// When the node wakes up next.
    pub wake_at: Option<Moment>,
    settings: NegotiationSettings,
    /// The grid, and the keys of its sites, by which receipts are checked.
    check: Option<(String, KeyOfSite)>,
}

impl<A> Machines<A> {
    /// Makes the state machines of a node that starts: the ledger with what is `kept`, and a negotiation of each request on
    /// the disk. `seed_of` gives the seed of each negotiation by its place. Returns the reservations as well that have no
    /// room any more.
    pub fn open(
        setup: Setup,
        disk: &Disk,
        kept: Kept,
        is_resumed: bool,
        seed_of: impl Fn(u64) -> u64,
        now: Now,
    ) -> (Machines<A>, Vec<BookingRecord>) {
        let Setup { site, hosts, class, gate, limits, negotiation: settings, receipts, book_fault } = setup;
        let grid = gate.lock().trust().grid().to_owned();
        let of_class = |(host, _): &(Host, Schedule)| class.clone().filter(|_| !host.id.is_uplink());
        let books = |unit| {
            let class = of_class(&unit);
            FaultyBooks::new(unit, class, book_fault)
        };
        let books = hosts.into_iter().map(books).collect();
        let (mut ledger, misfits) = Ledger::open_with(site, limits, disk.incarnation, gate, books, kept, now);
        let check = receipts.map(|Receipts { key, key_of }| {
            ledger.sign_receipts(key);
            (grid, key_of)
        });
        let (negotiations, askers) = (BTreeMap::new(), BTreeMap::new());
        let mut machines = Machines { ledger, negotiations, askers, wake_at: None, settings, check };
        for (place, record) in (0..).zip(disk.requests.values()) {
            let together = record.together.clone().filter(|batch| disk.tied.contains_key(batch));
            machines.begin(RequestRecord { together, ..record.clone() }, is_resumed, seed_of(place), now);
        }
        (machines, misfits)
    }

    /// Begins with a request, unless it is there already.
    pub fn begin(&mut self, record: RequestRecord, is_resumed: bool, seed: u64, now: Now) {
        let id = record.id.clone();
        if self.negotiations.contains_key(&id) {
            return;
        }
        let (site, settings) = (self.ledger.site().clone(), self.settings.clone());
        let mut negotiation = Negotiation::new(site, settings, record, is_resumed, seed, now);
        if let Some((grid, key_of)) = self.check.clone() {
            negotiation.check_receipts(grid, key_of);
        }
        self.negotiations.insert(id, negotiation);
    }
}
