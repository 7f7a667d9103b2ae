//! What travels between the nodes of the simulated grid, and how it reads in a history.
//!
//! Invariant: a repeated message has the id of its original; no two sent ones have the same.

use std::{fmt, rc::Rc};

use broker::{
    ids::RequestId,
    ledger::ScheduleUpdateParts,
    negotiation::Purpose,
    protocol::{Advert, AttemptId, HoldRequest, Places, ScheduleSnapshot, SiteAnswer, SiteRequest, TakeOverStep},
};

use super::options::{Options, UNLUCKY_PERCENT, Unlucky};

/// The question that an answer belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// A coordinator asked.
    Negotiation { request: RequestId, attempt: u32, purpose: Purpose },
    /// A participant asked for the outcome of an attempt.
    /// It belongs to a round of the ledger's questions, and to a run of the asking node: the next run knows nothing of it.
    Inquiry { attempt: AttemptId, round: u32, run: u64 },
    /// A node asked what a site has of a request that it is to take over; a look-up has a name.
    Lookup { request: RequestId, name: u64 },
    /// The owner of the site has taken its hosts back from this request, which had these attempts booked.
    Eviction { request: RequestId, attempts: Vec<AttemptId> },
    /// An attacker asked for what it has no right to.
    Attack(AttemptId),
    /// A node asked for a hold that it will not confirm.
    Hoard(AttemptId),
}

impl Question {
    /// The request that it is about.
    pub fn request(&self) -> &RequestId {
        match self {
            Question::Negotiation { request, .. }
            | Question::Lookup { request, .. }
            | Question::Eviction { request, .. } => request,
            Question::Inquiry { attempt, .. } | Question::Attack(attempt) | Question::Hoard(attempt) => {
                &attempt.request
            }
        }
    }
}

/// A gossiped message.
#[derive(Debug)]
pub struct Gossip {
    /// The author's advert.
    pub advert: Advert,
    /// Changes of its schedules; none in a sign of life.
    pub update: ScheduleUpdateParts,
}

/// The content of a message.
#[derive(Debug, Clone)]
pub enum Body {
    /// A direct request; `ask` is its name among all of the run.
    Ask { ask: u64, question: Question, request: SiteRequest },
    /// Its answer.
    Answer { ask: u64, question: Question, answer: SiteAnswer },
    /// Gossip of the sender about itself.
    Gossip(Rc<Gossip>),
    /// The sender leaves.
    Departure,
    /// Asks a site for its advert and all its schedules.
    Fetch,
    /// The advert and the schedules of the sender.
    Schedules(Rc<(Advert, ScheduleSnapshot)>),
}

/// One message on its way.
#[derive(Debug, Clone)]
pub struct Message {
    /// Its name; a repetition has the same.
    pub id: u64,
    /// The sender's run, so that what a node sends to itself dies with it.
    pub run: u64,
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// Its content.
    pub body: Body,
}

impl Body {
    /// The request that it is about, if it is about one.
    pub fn request(&self) -> Option<&RequestId> {
        match self {
            Body::Ask { question, .. } | Body::Answer { question, .. } => Some(question.request()),
            Body::Gossip(_) | Body::Departure | Body::Fetch | Body::Schedules(_) => None,
        }
    }

    /// Of 100 such messages, how many are lost.
    pub fn loss_percent(&self, options: &Options) -> u64 {
        let is_unlucky = match self {
            Body::Ask { request: SiteRequest::Confirm { .. } | SiteRequest::Book { .. }, .. } => {
                options.unlucky == Unlucky::Confirms
            }
            Body::Ask {
                request: SiteRequest::Release(_) | SiteRequest::TakeOver { step: TakeOverStep::Abort, .. },
                ..
            } => options.unlucky == Unlucky::Releases,
            Body::Ask { request: SiteRequest::Settle(_), .. } => {
                matches!(options.unlucky, Unlucky::Outcomes | Unlucky::OutcomesAndInquiries)
            }
            Body::Ask { request: SiteRequest::Inquire(_), .. } => options.unlucky == Unlucky::OutcomesAndInquiries,
            Body::Answer { .. } => options.unlucky == Unlucky::Answers,
            _ => false,
        };
        if is_unlucky { UNLUCKY_PERCENT } else { options.loss_percent }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{} -> s{}: ", self.from, self.to)?;
        match &self.body {
            Body::Ask { request, .. } => write_request(f, request),
            Body::Answer { question, answer, .. } => {
                match question {
                    Question::Negotiation { attempt, purpose, .. } => {
                        write!(f, "answer to {} #{attempt}: ", format!("{purpose:?}").to_lowercase())?;
                    }
                    Question::Lookup { .. } => f.write_str("answer to look-up: ")?,
                    Question::Attack(_) => f.write_str("answer to the attacker: ")?,
                    Question::Hoard(_) => f.write_str("answer to the hoarder: ")?,
                    Question::Eviction { .. } => f.write_str("answer to the owner: ")?,
                    Question::Inquiry { attempt, .. } => write!(f, "answer about #{}: ", attempt.attempt)?,
                }
                write_answer(f, answer)
            }
            Body::Gossip(gossip) => write!(
                f,
                "gossip {} +{} advert {}",
                version(gossip.update.from),
                gossip.update.changes.len(),
                gossip.advert.sequence
            ),
            Body::Departure => f.write_str("leaves"),
            Body::Fetch => f.write_str("fetch schedules"),
            Body::Schedules(schedules) => write!(f, "schedules at {}", version(schedules.1.version)),
        }
    }
}

fn version(version: broker::protocol::LedgerVersion) -> String {
    format!("{}.{}", version.incarnation, version.change)
}

fn write_request(f: &mut fmt::Formatter<'_>, request: &SiteRequest) -> fmt::Result {
    match request {
        SiteRequest::Hold(hold) => write_hold(f, hold),
        SiteRequest::Quote(hold) => {
            f.write_str("quote, to ")?;
            write_hold(f, hold)
        }
        SiteRequest::Book { hold, .. } => {
            f.write_str("book at once: ")?;
            write_hold(f, hold)
        }
        SiteRequest::Confirm { attempt, held_in } => write!(f, "confirm #{}, held in {held_in}", attempt.attempt),
        SiteRequest::Release(attempt) => write!(f, "release #{}", attempt.attempt),
        SiteRequest::Settle(attempt) => write!(f, "settle #{}", attempt.attempt),
        SiteRequest::Inquire(attempt) => write!(f, "what became of #{}?", attempt.attempt),
        SiteRequest::Inspect(attempt) => write!(f, "is #{} still there?", attempt.attempt),
        SiteRequest::Lookup(id) => write!(f, "what is reserved for {id}?"),
        SiteRequest::Bookings { .. } => write!(f, "what is reserved?"),
        SiteRequest::Standing(_) => f.write_str("what may this user have?"),
        SiteRequest::TakeOver { attempt, step, .. } => write!(f, "take #{} over: {step:?}", attempt.attempt),
    }
}

fn write_answer(f: &mut fmt::Formatter<'_>, answer: &SiteAnswer) -> fmt::Result {
    match answer {
        SiteAnswer::Held { version: at, hold_for, places } => {
            write!(f, "held at {} for {} ms", version(*at), hold_for.0)?;
            write_places(f, places)
        }
        SiteAnswer::Quoted { quote, .. } => write!(f, "it would cost: {quote}"),
        SiteAnswer::Confirmed { version: at, places, .. } => {
            write!(f, "confirmed at {}", version(*at))?;
            write_places(f, places)
        }
        SiteAnswer::Released { version: at, .. } => write!(f, "released at {}", version(*at)),
        SiteAnswer::Settled => f.write_str("settled"),
        SiteAnswer::Booked { seats, is_settled, .. } => {
            write!(f, "{} seats are reserved{}", seats.len(), if *is_settled { ", settled" } else { "" })
        }
        SiteAnswer::Bookings { bookings, .. } => write!(f, "{} reservations", bookings.len()),
        SiteAnswer::Found { parts, .. } => write!(f, "{} attempts have something", parts.len()),
        SiteAnswer::Status { decision: None, booking } => write!(f, "participant: {booking:?}"),
        SiteAnswer::Status { decision: Some(decision), booking } => {
            write!(f, "entry point: {decision:?}, participant: {booking:?}")
        }
        SiteAnswer::Standing(standing) => write!(f, "may have: {standing:?}"),
        SiteAnswer::Refused(refusal) => write!(f, "refused: {}", refusal.reason),
    }
}

fn write_places(f: &mut fmt::Formatter<'_>, places: &Places) -> fmt::Result {
    places.iter().try_for_each(|(seat, place)| write!(f, " {seat}={}", place.host()))
}

fn write_hold(f: &mut fmt::Formatter<'_>, hold: &HoldRequest) -> fmt::Result {
    write!(f, "hold #{}", hold.attempt.attempt)?;
    for grant in &hold.grants {
        write!(f, " {}={} {:?}", grant.seat, grant.host(), grant.window)?;
        for (name, amount) in &grant.amounts {
            write!(f, " {}={}", name.as_str(), amount.0)?;
        }
    }
    write!(f, " for {} ms", hold.hold_for.0)
}
