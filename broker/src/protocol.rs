//! What nodes send each other about holds and reservations. Meaning only: how it is encoded and signed is the
//! business of the `discovery` crate.
//!
//! Invariant: everything here that came from the network is unchecked until [`HoldRequest::check`], the ledger or the
//! view has looked at it.

mod coarse;
mod schedules;
mod standing;

use std::{collections::BTreeSet, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

pub use self::coarse::Coarseness;
pub use self::schedules::{
    ChangeKind, ClassChange, ClassSchedules, ClassesLeft, HostChange, ScheduleChange, ScheduleSnapshot, ScheduleUpdate,
    SiteSchedules, USE_STEPS,
};
pub(crate) use self::standing::share_of;
pub use self::standing::{ShareLeft, Standing, WantedSeat};
use crate::{
    amount::{Amount, format_amount},
    classes::Hosts,
    cost::Cost,
    features::Features,
    ids::{HostId, RequestId, SeatNumber, SiteId},
    offered::Offered,
    plan::{Place, Seat},
    request::{MAX_HOSTS, MAX_NAMES},
    resources::{Amounts, ResourceName},
    schedule::Schedule,
    tariff::{Agreement, Tariff},
    time::{Millis, Span, Window},
    trust::{Authorization, Denial, Rule, SignedText},
    variant::Variant,
};

/// One attempt of one request by one entry point. Every message of an attempt names it, so that a late message of an earlier attempt
/// is not taken for one of the present.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The node that coordinates the attempt.
    pub entry_point: SiteId,
    /// The request.
    pub request: RequestId,
    /// 1 for the first attempt.
    pub attempt: u32,
}

/// How far a site's ledger has come. Versions of one site are totally ordered; those of different sites have nothing to
/// do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LedgerVersion {
    /// Grows at every start of the site's node (Unix milliseconds of the start).
    pub incarnation: u64,
    /// Counts the changes of the schedules since that start.
    pub change: u64,
}

/// A seat at the addressed site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Which of the request's seats.
    pub seat: SeatNumber,
    /// Where it is.
    pub place: Place,
    /// From when to when.
    pub window: Window,
    /// What is granted there.
    pub amounts: Amounts,
    /// For how much.
    #[serde(default)]
    pub agreed: Agreement,
}

impl Grant {
    /// Its host.
    #[must_use]
    pub fn host(&self) -> &HostId {
        self.place.host()
    }
}

impl From<&Seat> for Grant {
    fn from(seat: &Seat) -> Grant {
        let Seat { number, place, window, amounts, agreed, .. } = seat.clone();
        Grant { seat: number, place, window, amounts, agreed }
    }
}

/// From the first start to the last end of these grants; none of no grant.
#[must_use]
pub fn hull(grants: &[Grant]) -> Option<Window> {
    Window::hull(grants.iter().map(|grant| grant.window))
}

/// Asks one site to hold seats; one message carries all seats at the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRequest {
    /// The attempt.
    pub attempt: AttemptId,
    /// Which of all that the request allows the seats are of.
    pub variant: Variant,
    /// The seats.
    pub grants: Vec<Grant>,
    /// All sites of the attempt, the addressed one among them: they are asked for the outcome when the coordinator does not answer.
    pub participants: Vec<SiteId>,
    /// How long the hold lasts from its receipt on. The site may shorten it.
    pub hold_for: Millis,
    /// Whether the site may give other hosts of its own than those named, where it has no room on them.
    pub may_substitute: bool,
    /// The user's signed authorization.
    pub authorization: Arc<Authorization>,
}

/// Seats with the places that a site has given them.
pub type Places = Vec<(SeatNumber, Place)>;

impl HoldRequest {
    /// Checks what a site can check without its ledger.
    ///
    /// # Errors
    /// A text that says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.grants.is_empty() || self.grants.len() > MAX_HOSTS as usize {
            return Err(format!("expected 1 to {MAX_HOSTS} grants, got {}", self.grants.len()));
        }
        if self.participants.is_empty() || self.participants.len() > MAX_HOSTS as usize {
            return Err(format!("expected 1 to {MAX_HOSTS} participants, got {}", self.participants.len()));
        }
        let mut seats = BTreeSet::new();
        for Grant { seat, place, window, amounts, agreed } in &self.grants {
            if !seats.insert(seat) {
                return Err(format!("seat {seat} is named twice"));
            }
            if !matches!(place, Place::Host(_)) {
                return Err(format!("seat {seat}: a hold names hosts"));
            }
            if place.host().is_uplink() {
                return Err(format!("seat {seat}: the uplink is no host"));
            }
            if !window.is_valid() {
                return Err(format!("seat {seat}: window {window:?} is empty or out of range"));
            }
            if amounts.len() > MAX_NAMES || amounts.values().any(|amount| *amount > Amount::MAX) {
                return Err(format!("seat {seat}: too many resources, or an amount above {}", Amount::MAX));
            }
            if !agreed.is_bounded() {
                return Err(format!("seat {seat}: a cost above {}, or too many refunds", Cost::MAX));
            }
        }
        Ok(())
    }
}

/// A request of one node to another node's site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteRequest {
    /// Hold these amounts.
    Hold(HoldRequest),
    /// Asks what such a hold would cost the site's own jobs that wait. It changes nothing.
    Quote(HoldRequest),
    /// Hold, and turn the hold into a reservation at once, durably: all seats of the attempt are at this site, so its answer decides.
    Book {
        /// What to hold. The site is the only participant.
        hold: HoldRequest,
        /// The ledger's incarnation as the coordinator knows it: a site that has restarted since may have seen the end of this attempt,
        /// and forgotten it.
        incarnation: u64,
    },
    /// Turn the hold into a reservation, durably.
    Confirm {
        /// The attempt.
        attempt: AttemptId,
        /// The ledger's incarnation that answered [`SiteAnswer::Held`]. A site that restarted since has lost the hold;
        /// a repeated hold that reached it late must not make this confirm valid again.
        held_in: u64,
    },
    /// Give everything of the attempt back, whatever its state. Later messages of the attempt are refused.
    Release(AttemptId),
    /// The outcome: all sites have confirmed.
    Settle(AttemptId),
    /// Asks for the status of the attempt. Sent by a participant that waits for its outcome.
    Inquire(AttemptId),
    /// Asks whether the attempt's booking is still there. Sent by the coordinator of a reservation.
    Inspect(AttemptId),
    /// Asks for the bookings of a request. Sent by a node that takes it over for its user, because its coordinator is gone.
    Lookup(RequestId),
    /// The asking node coordinates the request from now on.
    TakeOver {
        /// The attempt.
        attempt: AttemptId,
        /// The user's request, signed for the asking node.
        authorization: Arc<Authorization>,
        /// What the site does with its booking of the attempt.
        step: TakeOverStep,
    },
    /// Asks what the owner's rules about users leave to the user who has signed this. It changes nothing.
    Standing(Arc<Authorization>),
    /// Asks for all bookings, for display, in the order of their attempts, page by page.
    Bookings {
        /// The last one of the page before.
        after: Option<AttemptId>,
    },
}

impl SiteRequest {
    /// The attempt that it names, if any, and the kind of request, for logs.
    #[must_use]
    pub fn about(&self) -> (Option<&AttemptId>, &'static str) {
        match self {
            SiteRequest::Hold(hold) => (Some(&hold.attempt), "hold"),
            SiteRequest::Quote(hold) => (Some(&hold.attempt), "quote"),
            SiteRequest::Book { hold, .. } => (Some(&hold.attempt), "book"),
            SiteRequest::Confirm { attempt, .. } => (Some(attempt), "confirm"),
            SiteRequest::Release(attempt) => (Some(attempt), "release"),
            SiteRequest::Settle(attempt) => (Some(attempt), "settle"),
            SiteRequest::Inquire(attempt) => (Some(attempt), "inquire"),
            SiteRequest::Inspect(attempt) => (Some(attempt), "inspect"),
            SiteRequest::TakeOver { attempt, step, .. } => {
                let what = match step {
                    TakeOverStep::Prepare => "take over",
                    TakeOverStep::Commit => "take over, commit",
                    TakeOverStep::Abort => "take over, abort",
                };
                (Some(attempt), what)
            }
            SiteRequest::Lookup(_) => (None, "lookup"),
            SiteRequest::Bookings { .. } => (None, "bookings"),
            SiteRequest::Standing(_) => (None, "standing"),
        }
    }
}

/// What a site does for a node that takes an attempt over. A takeover is a two-phase commit of its own: the new coordinator
/// reports a reservation when every site of it has prepared, and has then committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TakeOverStep {
    /// Acknowledge the new coordinator. The outcome of the attempt is as open as it was.
    Prepare,
    /// The attempt is part of the reservation: its outcome is known.
    Commit,
    /// Give everything of the attempt back.
    Abort,
}

/// A booking as its site shows it to every node of the grid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicBooking {
    /// The attempt.
    pub attempt: AttemptId,
    /// The seats at the site; at least one.
    pub grants: Vec<Grant>,
    /// The user's name, for display.
    pub user: String,
    /// What the seats put on the site's uplink, in Mbit/s.
    pub load: Amount,
}

/// A booking of a request, for the node that takes it over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundBooking {
    /// The attempt.
    pub attempt: AttemptId,
    /// Which of all that the request allows the seats are of.
    pub variant: Variant,
    /// The seats at the site, with the windows that they have now; empty when all were lost.
    pub grants: Vec<Grant>,
    /// For how long they have waited for own jobs of the site: they begin so much later than was confirmed.
    pub wait: Span,
    /// All sites of the attempt.
    pub participants: Vec<SiteId>,
    /// The user's signed text for its present coordinator.
    pub statement: Arc<SignedText>,
}

/// What a hold would cost the own jobs that wait at its site if it came now. It is no promise: the hold is judged anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Quote {
    /// How many more of them would be late.
    pub late: u64,
    /// By how much the mean of their slowdowns would grow, in millionths.
    pub slowdown_millionths: u64,
}

impl Quote {
    /// Both costs together.
    #[must_use]
    pub fn and(self, other: Quote) -> Quote {
        Quote {
            late: self.late.saturating_add(other.late),
            slowdown_millionths: self.slowdown_millionths.saturating_add(other.slowdown_millionths),
        }
    }
}

impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.slowdown_millionths / 1_000_000, self.slowdown_millionths % 1_000_000);
        write!(f, "{} more own jobs late, their mean slowdown {whole}.{rest:06} larger", self.late)
    }
}

/// The answer to a [`SiteRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteAnswer {
    /// The amounts are held.
    Held {
        /// The ledger's version, which shows the asking node whether its view is old.
        version: LedgerVersion,
        /// How long the hold lasts.
        hold_for: Millis,
        /// The places given where they are not those asked for.
        places: Places,
    },
    /// The hold would be granted.
    Quoted {
        /// At this cost.
        quote: Quote,
        /// Where it costs something: the hosts that were asked for, with the own jobs that are planned there.
        hosts: Vec<HostState>,
        /// The ledger's version.
        version: LedgerVersion,
    },
    /// The reservation is on disk.
    Confirmed {
        /// Where hosts were held and confirmed at once, the places given where they are not those asked for. To a later confirm
        /// where a host was replaced and no other site takes part, all places: a coordinator that has crashed may not know them.
        places: Places,
        /// The ledger's version after it.
        version: LedgerVersion,
        /// The site's signed [`Receipt`](crate::receipt::Receipt); none for work of its owner.
        receipt: Option<Arc<SignedText>>,
    },
    /// Nothing of the attempt is left, on disk as well.
    Released {
        /// The ledger's version after it.
        version: LedgerVersion,
        /// What is to be paid for it.
        charged: Cost,
    },
    /// The outcome has been noted.
    Settled,
    /// The booking of the attempt.
    Booked {
        /// Its seats; none when there is no booking, and then there never will be one.
        seats: Vec<SeatNumber>,
        /// Where those of them are that float, or have floated.
        places: Places,
        /// Whether there is a booking and the site knows that its attempt was committed.
        is_settled: bool,
        /// The coordinator before the asking node: it may not know yet that it was replaced.
        before: Option<SiteId>,
        /// Other attempts of the request with a booking at this site that the asking node does not coordinate yet; it may not know of
        /// them. Only in answers to a takeover.
        others: Vec<AttemptId>,
        /// What is to be paid for it, when it has ended.
        charged: Cost,
        /// The ledger's version.
        version: LedgerVersion,
        /// The site's signed receipt for the seats. Only in answers to a takeover: who asked it to confirm has it.
        receipt: Option<Arc<SignedText>>,
        /// For how long the booking has waited for own jobs of the site: all its seats begin and end so much later than was confirmed.
        wait: Span,
    },
    /// The bookings of a request.
    Found {
        /// One for each attempt that has a booking here.
        parts: Vec<FoundBooking>,
        /// Whether the site's node coordinates the request itself, or is about to: then it must learn of a takeover.
        is_coordinated: bool,
        /// The ledger's version.
        version: LedgerVersion,
    },
    /// The status of the attempt, in both roles that a node can have.
    Status {
        /// As its coordinator; none when another node is.
        decision: Option<AttemptStatus>,
        /// As a participant.
        booking: AttemptStatus,
    },
    /// What the rules leave to a user.
    Standing(Box<Standing>),
    /// The request is refused.
    Refused(Refusal),
    /// A page of the site's bookings.
    Bookings {
        /// In the order of the attempts.
        bookings: Vec<PublicBooking>,
        /// Whether there is nothing after these.
        is_complete: bool,
        /// The site's owner does not publish them, so the list is empty.
        is_withheld: bool,
        /// The ledger's version.
        version: LedgerVersion,
    },
}

impl SiteAnswer {
    /// The version of the site's ledger when it answered, where the answer has it.
    #[must_use]
    pub fn version(&self) -> Option<LedgerVersion> {
        match self {
            SiteAnswer::Held { version, .. }
            | SiteAnswer::Confirmed { version, .. }
            | SiteAnswer::Released { version, .. }
            | SiteAnswer::Booked { version, .. }
            | SiteAnswer::Found { version, .. }
            | SiteAnswer::Quoted { version, .. }
            | SiteAnswer::Bookings { version, .. } => Some(*version),
            SiteAnswer::Refused(refusal) => Some(refusal.version),
            SiteAnswer::Standing(standing) => Some(standing.version),
            SiteAnswer::Settled | SiteAnswer::Status { .. } => None,
        }
    }

    /// Adds whether the node coordinates the request, which its ledger does not know.
    pub fn note_coordinated(&mut self, coordinates: impl FnOnce() -> bool) {
        if let SiteAnswer::Found { is_coordinated, .. } = self {
            *is_coordinated = coordinates();
        }
    }

    /// Adds the coordinator before the asking node, where the ledger does not know it and the node does.
    pub fn name_former_coordinator(&mut self, known: impl FnOnce() -> Option<SiteId>) {
        if let SiteAnswer::Booked { before: before @ None, .. } = self {
            *before = known();
        }
    }
}

/// The status of an attempt at a node, as coordinator or as participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptStatus {
    /// Coordinator: not decided yet, or not confirmed by all yet. Participant: held, not confirmed.
    Pending,
    /// Coordinator: confirmed by all, and the asker's booking is part of the reservation. Participant: confirmed, and perhaps given back after all had confirmed.
    Confirmed,
    /// Coordinator: decided to abort. Participant: given back, expired or unknown; the answer is a promise never to confirm it.
    Aborted,
    /// Coordinator: no record of the request is left, or another node may coordinate it. Proves nothing.
    Unknown,
}

/// A refusal, with the states of the hosts that were asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// The ledger's version that `hosts` shows.
    pub version: LedgerVersion,
    /// The present state of the hosts that were asked for, so that the next plan is better; hosts beyond the share of who asked
    /// look taken. Empty when neither schedule nor share was the reason.
    pub hosts: Vec<HostState>,
}

impl Refusal {
    /// Whether it shows what else there is for who asked, so that another plan may do.
    #[must_use]
    pub fn shows_what_is_free(&self) -> bool {
        self.is_of_schedules() && !self.hosts.is_empty()
    }

    /// Whether the hosts were left out, since the asker was shown so much before.
    #[must_use]
    pub fn is_shortened(&self) -> bool {
        self.is_of_schedules() && self.hosts.is_empty()
    }

    fn is_of_schedules(&self) -> bool {
        match &self.reason {
            RefusalReason::NotEnough { .. } | RefusalReason::UplinkFull { .. } | RefusalReason::PriceChanged { .. } => {
                true
            }
            RefusalReason::NotAllowed(denial) => matches!(denial.rule, Rule::SiteShare | Rule::OwnQueue),
            _ => false,
        }
    }
}

/// The present state of one host in its site's ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostState {
    /// The host, or the uplink ([`HostId::uplink`]) where the hold would put something on it.
    pub host: HostId,
    /// Reservations and the owner's own work, from now on.
    pub schedule: Schedule,
    /// Holds of others, which may or may not become reservations.
    pub held: Vec<(Window, Amounts)>,
}

impl Eq for HostState {}

/// Why a site refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum RefusalReason {
    /// The amounts do not fit beside what is reserved.
    #[error(
        "host {host}: {} of {resource} asked, {} free",
        format_amount(resource, *asked),
        format_amount(resource, *free)
    )]
    NotEnough {
        /// The first host that is short.
        host: HostId,
        /// The resource.
        resource: ResourceName,
        /// The amount that was asked for.
        asked: Amount,
        /// The amount that is free all through the window.
        free: Amount,
    },
    /// The amounts would fit beside the reservations, but not beside the holds of others, which may still go away.
    #[error("host {host}: held for somebody else at the moment ({resource})")]
    HeldByAnother {
        /// The first host that is short.
        host: HostId,
        /// The resource.
        resource: ResourceName,
    },
    /// The site does not offer the host.
    #[error("host {0} is not offered by this site")]
    UnknownHost(HostId),
    /// There is no hold to confirm: it expired, was given back, or was lost in a restart.
    #[error("there is no such hold: it expired, was given back, or was lost in a restart")]
    NoSuchHold,
    /// The attempt was given back before, or a later one of the same request is known.
    #[error("the attempt is over")]
    AttemptIsOver,
    /// The window has (partly) passed on the site's clock.
    #[error("the window starts in the past of this site's clock")]
    WindowPassed,
    /// The window reaches further into the future than the site promises anything.
    #[error("the window ends after the farthest time this site promises ({0} s from now)")]
    TooFarAhead(u64),
    /// The site holds as much as it can, or as much as it grants this entry point.
    #[error("too many holds are open ({0})")]
    TooManyHolds(u64),
    /// A node that does not coordinate the attempt tries to change it.
    #[error("only the entry point of an attempt may change it")]
    NotYours,
    /// Another node coordinates the attempt now, because its user wanted that; with what the user has signed for that node,
    /// since it ends what the asking node does for the whole request, not only at this site.
    #[error("another node has taken the reservation over for its user")]
    HandedOver(Arc<SignedText>),
    /// The message makes no sense.
    #[error("malformed: {0}")]
    Malformed(String),
    /// Another attempt of the same request has something here; its release may be on its way.
    #[error("another attempt of the same request still has a booking here")]
    OtherAttempt,
    /// It is asked for another than the owner's present price, or on other conditions.
    #[error("the price of host {host} has changed")]
    PriceChanged {
        /// The first such host.
        host: HostId,
        /// Its present tariff.
        tariff: Arc<Tariff>,
    },
    /// A rule of the grid, of the user's credential or of the owner is against it.
    #[error(transparent)]
    NotAllowed(Denial),
    /// The site is too busy or is stopping.
    #[error("the site is busy or stopping")]
    Busy,
    /// The two nodes speak different versions: the site does not know what it was asked, or its reason is not known here.
    #[error("not understood: {0}")]
    NotUnderstood(String),
    /// What the seats send would not fit on the site's uplink beside what is reserved of it.
    #[error("the site's uplink: {asked} Mbit/s asked, {free} Mbit/s free")]
    UplinkFull {
        /// What the seats of the hold would put on it, in Mbit/s.
        asked: Amount,
        /// What is free of it all through the window, in Mbit/s.
        free: Amount,
    },
    /// The owner does not offer this, to anybody: when, how long and how far ahead the hosts are to be had is another now.
    #[error("{denial}")]
    NotOffered {
        /// The rule.
        denial: Denial,
        /// The present rules.
        offer: Arc<Offered>,
    },
}

/// A site's signed and published description: its hosts and its node's addresses, without schedules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advert {
    /// The site.
    pub site: SiteId,
    /// A name for display; not unique, not trusted.
    pub name: String,
    /// Grows with every advert of the site (Unix milliseconds); a receiver drops what is not newer.
    pub sequence: u64,
    /// How long the advert may be believed after `sequence`, in seconds.
    pub time_to_live_s: u32,
    /// How users reach the hosts, with places for host, user and request: for display, not trusted, never run.
    pub contact: Option<String>,
    /// The hosts on offer.
    pub hosts: Hosts,
    /// When, how long and how far ahead they are to be had. It travels beside the advert.
    #[serde(skip)]
    pub offer: Arc<Offered>,
    /// What the site's link to all others carries, in Mbit/s; none when it sets no limit.
    pub uplink: Option<Amount>,
    /// Whether own jobs have waited here, so that a hold may cost them something, or be refused for their sake: a coordinator asks for
    /// a quote first.
    pub quotes: bool,
    /// Multiaddresses of the node.
    pub addresses: Vec<String>,
    /// What the site's program can do.
    pub features: Features,
}
