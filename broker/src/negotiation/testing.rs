//! What tests of negotiations share: one with all that it wants done, and answers of sites.

use std::{collections::BTreeMap, sync::Arc};

use super::*;
use crate::{
    amount::Amount,
    host::Host,
    ids::{HostId, RequestId, SeatNumber},
    plan::Place,
    protocol::{
        AttemptStatus, FoundBooking, Grant, HoldRequest, HostState, LedgerVersion, Refusal, RefusalReason, SiteAnswer,
        SiteRequest,
    },
    reason::CutCounts,
    request::Request,
    resources::{Amounts, ResourceName},
    schedule::Schedule,
    time::{Time, Window},
    trust,
    variant::Variant,
};

pub(super) const CAPACITY: u64 = 1_000;

pub(super) fn site(name: &str) -> SiteId {
    SiteId::new(name).unwrap()
}

pub(super) fn at(milliseconds: u64) -> Now {
    Now { monotonic: Millis(milliseconds), utc: Time(5_000 + i64::try_from(milliseconds / 1000).unwrap()) }
}

pub(super) fn version(incarnation: u64) -> LedgerVersion {
    LedgerVersion { incarnation, change: 0 }
}

pub(super) fn record() -> RequestRecord {
    let request: Request = serde_json::from_str(r#"{"hosts":2,"duration":60,"total":{"cpu":1500}}"#).unwrap();
    let id = RequestId::new("r").unwrap();
    let authorization = trust::testing::authorize(1, &site("e"), &id, &request);
    RequestRecord::arrived(id, "ada".to_owned(), request, authorization, 0, (Time(5_000), Time(9_000)))
}

/// A site reports a seat of an attempt that another site has begun: its variant, how long it lasts, and its number.
pub(super) fn told(
    record: RequestRecord,
    from: &str,
    attempt: u32,
    (variant, seconds): (Variant, i64),
    seat: u32,
) -> (SiteId, FoundBooking) {
    let statement = std::sync::Arc::new(record.authorization.unwrap().request);
    let grant = Grant {
        seat: SeatNumber(seat),
        place: Place::Host(HostId::new("h").unwrap()),
        window: Window { start: Time(30_000), end: Time(30_000 + seconds) },
        amounts: Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(700))]),
        agreed: Default::default(),
    };
    let part = FoundBooking {
        wait: Default::default(),
        attempt: AttemptId { entry_point: site("gone"), request: record.id, attempt },
        variant,
        grants: vec![grant],
        participants: vec![site("a"), site("b"), site("c")],
        statement,
    };
    (site(from), part)
}

/// A negotiation and everything that it has wanted done so far.
pub(super) struct Run {
    pub(super) negotiation: Negotiation,
    pub(super) outputs: Vec<Output>,
}

/// The one host of a site.
pub(super) fn host_of(name: &str) -> FoundHost {
    FoundHost {
        site: site(name),
        host: Host {
            id: HostId::new("h").unwrap(),
            capacity: Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(CAPACITY))]),
            attributes: BTreeMap::new(),
            speed: crate::host::Speed::REFERENCE,
            tariff: Default::default(),
        },
        schedule: Arc::default(),
        offer: Default::default(),
        standing: None,
        version: version(0),
    }
}

impl Run {
    pub(super) fn new(record: RequestRecord, is_resumed: bool) -> Run {
        let settings = NegotiationSettings::default();
        let negotiation = Negotiation::new(site("e"), settings, record, is_resumed, 1, at(0));
        let mut run = Run { negotiation, outputs: Vec::new() };
        run.drain();
        run
    }

    /// New, and planned on the hosts of sites `a` and `b`: both are asked to hold.
    pub(super) fn holding() -> Run {
        let mut run = Run::new(record(), false);
        run.find(&["a", "b"]);
        run
    }

    /// Both sites hold, in incarnations 7 and 8: both are asked to confirm.
    pub(super) fn confirming() -> Run {
        let mut run = Run::holding();
        run.answer("a", Purpose::Hold, held(7));
        run.answer("b", Purpose::Hold, held(8));
        run
    }

    /// Both sites have confirmed.
    pub(super) fn reserved() -> Run {
        let mut run = Run::confirming();
        run.answer("a", Purpose::Confirm, confirmed(7));
        run.answer("b", Purpose::Confirm, confirmed(8));
        run
    }

    /// The holds that are asked for now: the site, the variant, and how long the seats last.
    pub(super) fn holds(&self) -> Vec<(String, Variant, u64)> {
        let hold = |output: &Output| match output {
            Output::Ask { site, request: SiteRequest::Hold(HoldRequest { variant, grants, .. }), .. } => {
                Some((site.to_string(), *variant, grants[0].window.duration().0))
            }
            _ => None,
        };
        self.outputs.iter().filter_map(hold).collect()
    }

    /// The reservation is looked at: these sites have the seats with these numbers, one of them none; then hosts of `found` are there.
    pub(super) fn loses(&mut self, seats: &[(&str, Option<u32>)], found: &[&str]) {
        let due = self.wake();
        for (from, seat) in seats {
            self.inspected(due, from, Ok(booked(*seat)));
        }
        assert_eq!(self.lost(), 1);
        self.find_at(due, found);
        if self.outputs.iter().any(|output| matches!(output, Output::Find { .. })) {
            self.find_at(due, found);
        }
    }

    pub(super) fn drain(&mut self) {
        self.outputs.clear();
        while let Some(output) = self.negotiation.poll_output() {
            self.outputs.push(output);
        }
    }

    pub(super) fn find(&mut self, sites: &[&str]) {
        self.find_at(10, sites);
    }

    pub(super) fn find_at(&mut self, now: u64, sites: &[&str]) {
        self.find_with(now, sites, &Schedule::default(), 0);
    }

    /// All hosts are taken in the window.
    pub(super) fn find_busy_at(&mut self, now: u64, sites: &[&str], window: Window) {
        self.find_busy_and_missing_at(now, sites, window, 0);
    }

    /// All hosts are taken in the window, and so many more fit whose schedules could not be had.
    pub(super) fn find_busy_and_missing_at(&mut self, now: u64, sites: &[&str], window: Window, missing: usize) {
        let mut schedule = Schedule::default();
        schedule.add(window, &Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(CAPACITY))]));
        self.find_with(now, sites, &schedule, missing);
    }

    pub(super) fn find_with(&mut self, now: u64, sites: &[&str], schedule: &Schedule, without_schedule: usize) {
        let hosts = sites.iter().map(|name| FoundHost { schedule: Arc::new(schedule.clone()), ..host_of(name) });
        self.find_hosts(now, hosts.collect(), without_schedule);
    }

    pub(super) fn find_hosts(&mut self, now: u64, hosts: Vec<FoundHost>, without_schedule: usize) {
        let found = Found { hosts, known_hosts: 9, without_schedule, cut: CutCounts::default(), ..Found::default() };
        self.negotiation.handle(at(now), Event::Found(found), &mut ());
        self.drain();
    }

    pub(super) fn answer(&mut self, from: &str, purpose: Purpose, answer: SiteAnswer) {
        let attempt = self.negotiation.record().last_attempt;
        let event = Event::Answer { site: site(from), attempt, purpose, answer: Ok(answer) };
        self.negotiation.handle(at(20), event, &mut ());
        self.drain();
    }

    /// What a site hears about an attempt of this entry point.
    pub(super) fn status(&self, attempt: u32, asker: &str) -> AttemptStatus {
        let record = self.negotiation.record();
        let attempt = AttemptId { entry_point: site("e"), request: record.id.clone(), attempt };
        record.status_of(&site("e"), &attempt, &site(asker))
    }

    pub(super) fn time_passes_to(&mut self, milliseconds: u64) {
        assert!(self.negotiation.poll_timeout().is_some_and(|due| due.0 <= milliseconds), "a timer is armed for this");
        self.negotiation.handle_timeout(at(milliseconds));
        self.drain();
    }

    pub(super) fn cancel(&mut self) {
        self.negotiation.handle(at(30), Event::Cancel, &mut ());
        self.drain();
    }

    /// The outputs in short, in order.
    pub(super) fn wanted(&self) -> Vec<String> {
        let short = |output: &Output| match output {
            Output::Find { exclude, .. } => format!("find, without {:?}", exclude.sites),
            Output::Persist(record) => {
                let decision = match &record.decision {
                    Decision::Open => "open",
                    Decision::Commit { .. } => "commit",
                    Decision::Reserved { .. } => "reserved",
                    Decision::Closed(_) => "closed",
                };
                format!("write {decision}, owed {}", record.owed.len())
            }
            Output::Ask { site, attempt, purpose, request, .. } => {
                let held_in = match request {
                    SiteRequest::Confirm { held_in, .. } => format!(" held in {held_in}"),
                    _ => String::new(),
                };
                let purpose = match purpose {
                    Purpose::Inspect(_) => "Inspect".to_owned(),
                    other => format!("{other:?}"),
                };
                format!("{purpose} {attempt} {site}{held_in}")
            }
        };
        self.outputs.iter().map(short).collect()
    }
}

/// A site says what it has booked for whoever watches over a reservation: this seat, or none.
pub(super) fn booked(seat: Option<u32>) -> SiteAnswer {
    SiteAnswer::Booked {
        seats: seat.map(SeatNumber).into_iter().collect(),
        places: Vec::new(),
        is_settled: seat.is_some(),
        before: None,
        others: Vec::new(),
        charged: Default::default(),
        version: version(1),
        receipt: None,
        wait: Default::default(),
    }
}

/// A site refuses to hold: of its host so much is taken for good.
pub(super) fn taken(amount: u64, asked: u64) -> SiteAnswer {
    let cpu = ResourceName::new("cpu").unwrap();
    let mut schedule = Schedule::default();
    schedule.add(Window { start: Time(0), end: Time(90_000) }, &Amounts::from([(cpu.clone(), Amount(amount))]));
    let (host, free) = (HostId::new("h").unwrap(), Amount(CAPACITY - amount));
    let reason = RefusalReason::NotEnough { host: host.clone(), resource: cpu, asked: Amount(asked), free };
    let hosts = vec![HostState { host, schedule, held: Vec::new() }];
    SiteAnswer::Refused(Refusal { reason, version: version(1), hosts })
}

pub(super) fn confirmed(incarnation: u64) -> SiteAnswer {
    SiteAnswer::Confirmed { places: Vec::new(), version: version(incarnation), receipt: None }
}

pub(super) fn held(incarnation: u64) -> SiteAnswer {
    SiteAnswer::Held { version: version(incarnation), hold_for: Millis(10_000), places: Vec::new() }
}

pub(super) fn refused(reason: RefusalReason) -> SiteAnswer {
    SiteAnswer::Refused(Refusal { reason, version: version(1), hosts: Vec::new() })
}

/// A request for one host, planned at the only site.
pub(super) fn booking() -> Run {
    let one = RequestRecord { request: serde_json::from_str(r#"{"hosts":1,"duration":100}"#).unwrap(), ..record() };
    let mut run = Run::new(one, false);
    run.find(&["a"]);
    run
}

/// A record with a plan of both hosts, made elsewhere.
pub(super) fn handed_in() -> RequestRecord {
    let planned = Run::holding();
    let Stage::Holding(plan) = planned.negotiation.stage() else { panic!("{:?}", planned.negotiation.stage()) };
    RequestRecord { handed_in: Some(plan.clone()), ..record() }
}
