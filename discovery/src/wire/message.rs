//! Direct requests and their answers, as this node uses them, whatever the version of the protocol that carries them.

use std::sync::Arc;

use broker::{
    protocol::{FoundBooking, LedgerVersion, Refusal, RefusalReason, ScheduleChange, SiteAnswer, SiteRequest},
    schedule::Schedule,
};

use super::{check::steps_of, parts::WireSchedules};
use crate::config::HEAVY_ANSWER;

/// What one node asks another.
#[derive(Debug, Clone, PartialEq)]
pub enum WireRequest {
    /// Something about an attempt, for the node.
    Site(SiteRequest),
    /// Several of these in one message, each with an answer of its own; at least two, at most [`MANY_MAX`], none that may bring much.
    Many(Vec<SiteRequest>),
    /// All schedules, unless the version is the one named: their first part, or what has changed since.
    Schedules(Option<LedgerVersion>),
    /// Another part of the schedules of a version, of which the first was got.
    SchedulesPart {
        /// The version.
        version: LedgerVersion,
        /// The number of the part.
        number: u32,
    },
    /// The site's own signed advert.
    Advert,
    /// Signed adverts of all sites, unless the asker has one of the same sequence or a later one: by short site hash.
    Adverts(Vec<(u64, u64)>),
    /// The revocations that the site knows, from this number on.
    Revocations {
        /// How many are had already.
        from: u32,
    },
    /// Whether the asked site can open a connection to the asker, at the addresses in the asker's advert.
    DialBack,
}

/// The answer.
#[derive(Debug, Clone)]
pub enum WireAnswer {
    /// A part of all schedules at a version.
    Schedules(Arc<WireSchedules>),
    /// What has changed since the version that was named.
    Changes(SinceThen),
    /// The parts of the version that was named are not kept any more: ask for all schedules again.
    PartsGone,
    /// Nothing changed since the version that was named.
    Unchanged(LedgerVersion),
    /// The node's answer about an attempt.
    Site(SiteAnswer),
    /// The answers to [`WireRequest::Many`], in the order of the requests; none where it was not ready in time or had no room.
    Many(Vec<Option<SiteAnswer>>),
    /// Signed adverts.
    Adverts {
        /// Envelopes.
        envelopes: Vec<Vec<u8>>,
        /// Whether these are all; else ask again.
        is_complete: bool,
    },
    /// Too busy to answer now.
    Busy,
    /// The site does not know requests of this kind.
    NotUnderstood {
        /// The number of the kind.
        kind: u16,
    },
    /// Revocations, for the node to check.
    Revocations {
        /// Those that fit into an answer, encoded.
        revocations: Vec<Vec<u8>>,
        /// How many there are in all.
        total: u32,
    },
    /// Whether a connection to the asker could be opened.
    DialedBack(bool),
}

/// What has changed in the schedules of a site since a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinceThen {
    /// The version.
    pub from: LedgerVersion,
    /// The changes in order, at most as many as an update may have.
    pub changes: Vec<ScheduleChange>,
    /// Whether these are all; else ask again.
    pub is_complete: bool,
}

/// Most requests in one message.
pub const MANY_MAX: usize = 32;

impl WireRequest {
    /// How many requests of the node are in it, none for what is not for the node.
    pub(crate) fn site_requests(&self) -> usize {
        match self {
            WireRequest::Site(_) => 1,
            WireRequest::Many(requests) => requests.len(),
            _ => 0,
        }
    }

    /// How many of its peer's tokens it costs.
    pub(crate) fn tokens(&self) -> u64 {
        match self {
            WireRequest::Site(request) => tokens_of(request),
            WireRequest::Many(requests) => requests.iter().map(tokens_of).sum(),
            _ => HEAVY_ANSWER,
        }
    }

    /// These requests as one message.
    pub(crate) fn many(mut requests: Vec<SiteRequest>) -> Option<WireRequest> {
        if requests.len() < 2 { requests.pop().map(WireRequest::Site) } else { Some(WireRequest::Many(requests)) }
    }

    /// The request of the node, when it is one.
    pub(crate) fn into_site(self) -> Option<SiteRequest> {
        if let WireRequest::Site(request) = self { Some(request) } else { None }
    }

    /// Whether it may share a message with others: requests of the node with small answers.
    pub(crate) fn may_share(&self) -> bool {
        matches!(self, WireRequest::Site(_)) && !self.may_bring_much()
    }

    /// Whether its answer is large as a rule: schedules, adverts, revocations or bookings. Holds are not refused for what a refused one
    /// shows, but when that was too much, refusals show nothing: [`WireAnswer::shorten`].
    pub(crate) fn may_bring_much(&self) -> bool {
        match self {
            WireRequest::Site(request) => matches!(request, SiteRequest::Bookings { .. } | SiteRequest::Lookup(_)),
            WireRequest::Schedules(_)
            | WireRequest::SchedulesPart { .. }
            | WireRequest::Adverts(_)
            | WireRequest::Revocations { .. } => true,
            WireRequest::Many(_) | WireRequest::Advert | WireRequest::DialBack => false,
        }
    }
}

/// What a site without room for a request answers to it.
pub(crate) fn site_is_busy() -> SiteAnswer {
    SiteAnswer::Refused(Refusal { reason: RefusalReason::Busy, version: LedgerVersion::default(), hosts: Vec::new() })
}

/// Each seat of a hold is work for the ledger, and one more host in a refusal.
fn tokens_of(request: &SiteRequest) -> u64 {
    match request {
        SiteRequest::Hold(hold) | SiteRequest::Quote(hold) | SiteRequest::Book { hold, .. } => {
            1 + (hold.grants.len() / SEATS_PER_TOKEN) as u64
        }
        _ => 1,
    }
}

/// Seats of a hold that cost as much as one request more.
const SEATS_PER_TOKEN: usize = 16;

/// About how much an answer takes on the wire; nothing for a small one.
fn site_answer_bytes(answer: &SiteAnswer) -> usize {
    match answer {
        SiteAnswer::Refused(Refusal { hosts, .. }) | SiteAnswer::Quoted { hosts, .. } => {
            hosts.iter().map(|state| of_schedule(&state.schedule) + ENTRY_BYTES * state.held.len()).sum()
        }
        SiteAnswer::Standing(standing) => {
            let schedules =
                standing.on_hosts.iter().map(|(_, used)| used).chain(standing.of_site.iter().map(|share| &share.used));
            schedules.map(of_schedule).sum()
        }
        SiteAnswer::Confirmed { receipt: Some(receipt), .. } | SiteAnswer::Booked { receipt: Some(receipt), .. } => {
            receipt.text.len()
        }
        SiteAnswer::Found { parts, .. } => {
            let of_part = |part: &FoundBooking| {
                part.statement.text.len() + ENTRY_BYTES * (1 + part.grants.len() + part.participants.len())
            };
            parts.iter().map(of_part).sum()
        }
        SiteAnswer::Bookings { bookings, .. } => {
            bookings.iter().map(|booking| ENTRY_BYTES * (2 + booking.grants.len())).sum()
        }
        _ => 0,
    }
}

fn of_schedule(schedule: &Schedule) -> usize {
    ENTRY_BYTES + STEP_BYTES * steps_of(schedule)
}

/// About the bytes on the wire of one step of a schedule, and of what stands around it for one host, seat or booking.
const STEP_BYTES: usize = 16;
const ENTRY_BYTES: usize = 64;

impl WireAnswer {
    /// Leaves out of refusals and quotes what is free instead: the peer has had too much.
    pub(crate) fn shorten(&mut self) {
        let shorten = |answer: &mut SiteAnswer| {
            if let SiteAnswer::Refused(Refusal { hosts, .. }) | SiteAnswer::Quoted { hosts, .. } = answer {
                hosts.clear();
            }
        };
        match self {
            WireAnswer::Site(answer) => shorten(answer),
            WireAnswer::Many(answers) => answers.iter_mut().flatten().for_each(shorten),
            _ => {}
        }
    }

    /// About how much it takes on the wire, rounded down: small answers cost nothing.
    pub(crate) fn size_kib(&self) -> u64 {
        let bytes: usize = match self {
            WireAnswer::Schedules(schedules) => {
                let (steps, entries) = schedules.size();
                STEP_BYTES * steps + ENTRY_BYTES * entries
            }
            WireAnswer::Changes(SinceThen { changes, .. }) => ENTRY_BYTES * changes.len(),
            WireAnswer::Adverts { envelopes: parts, .. } | WireAnswer::Revocations { revocations: parts, .. } => {
                parts.iter().map(Vec::len).sum()
            }
            WireAnswer::Site(answer) => site_answer_bytes(answer),
            WireAnswer::Many(answers) => answers.iter().flatten().map(site_answer_bytes).sum(),
            _ => 0,
        };
        (bytes / 1024) as u64
    }
}
