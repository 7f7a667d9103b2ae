//! What goes into a negotiation and what comes out of it.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    found::Found,
    record::{Outcome, RequestRecord},
    reservation::Reservation,
};
use crate::{
    ids::{HostId, SiteId},
    plan::Plan,
    protocol::{SiteAnswer, SiteRequest},
    time::Millis,
    trust::Authorization,
};

/// The purpose of a message to a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A quote; in this round of such questions.
    Quote(u32),
    /// A hold.
    Hold,
    /// A confirm.
    Confirm,
    /// A release.
    Release,
    /// The outcome.
    Settle,
    /// Whether what was reserved is still there; in this round of such questions.
    Inspect(u32),
}

/// What happens to a negotiation from outside.
#[derive(Debug, Clone)]
pub enum Event {
    /// The answer to [`Output::Find`].
    Found(Found),
    /// The answer to [`Output::Ask`], or why there is none.
    Answer {
        /// The site that was asked.
        site: SiteId,
        /// The attempt.
        attempt: u32,
        /// The purpose of the message.
        purpose: Purpose,
        /// The answer, or why there is none.
        answer: Result<SiteAnswer, String>,
    },
    /// The user cancels the request.
    Cancel,
    /// The command that it was reserved for has ended with this exit code, and its user gives back the rest.
    GiveBack(u8),
    /// Check at once whether the reservation is whole, and repair it if not.
    Check,
    /// All requests of its batch are held, or further.
    AllHeld,
    /// All requests of its batch are reserved, and the coordinator has forgotten on its disk that they were tied together.
    BatchReserved,
    /// Its batch is given up, for this reason.
    BatchFailed(String),
    /// Another node coordinates the request from now on. This node, as a site, has checked its authorization.
    TakenOver {
        /// The new coordinator.
        by: SiteId,
        /// The user's request, signed for that node.
        authorization: Arc<Authorization>,
    },
}

/// What a find leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excluded {
    /// Sites that did not answer in an earlier attempt, or have refused for good.
    pub sites: BTreeSet<SiteId>,
    /// Hosts, which are known to be in use: the view may show them so for this very request.
    pub hosts: BTreeSet<(SiteId, HostId)>,
}

/// An effect that a negotiation asks for; effects are carried out in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Phase I: find this many hosts.
    Find {
        /// How many (all named candidates when the request names some).
        count: usize,
        /// With this many known already, no wider search is waited for.
        enough: usize,
        /// The seed of the sample.
        seed: u64,
        /// What is not wanted.
        exclude: Excluded,
    },
    /// Write this before letting any later output out.
    Persist(Box<RequestRecord>),
    /// Ask a site; an answer, or that there is none, comes back as [`Event::Answer`].
    Ask {
        /// The site.
        site: SiteId,
        /// The attempt.
        attempt: u32,
        /// The purpose of the message.
        purpose: Purpose,
        /// The message.
        request: SiteRequest,
        /// How long to wait for the answer.
        timeout: Millis,
    },
}

/// The stage of a request, for display.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage<'a> {
    /// Phases I to V.
    Planning,
    /// Phase VI: sites are asked to hold.
    Holding(&'a Plan),
    /// Phase VI: sites are asked to confirm.
    Confirming(&'a Plan),
    /// Between two attempts.
    BackingOff,
    /// All sites have confirmed.
    Reserved(&'a Plan),
    /// Hosts of the reservation are lost; the others are still reserved.
    Degraded {
        /// The reservation, the lost hosts among it.
        reservation: &'a Reservation,
        /// A search for replacements is under way.
        is_rebrokering: bool,
    },
    /// The request has ended.
    Closed {
        /// How it ended.
        outcome: &'a Outcome,
        /// A site has not acknowledged its release yet.
        releasing: bool,
    },
}
