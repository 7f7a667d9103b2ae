//! Version 7 of the protocol of direct requests: the kinds, and what is in their bodies.
//!
//! Invariant: the numbers and the order of what is in a body are the format (`golden.rs` has their bytes).

use std::sync::Arc;

use broker::protocol::{HostState, LedgerVersion, Refusal, RefusalReason, SiteAnswer, SiteRequest};

use super::{
    ask_version::{AskVersion, Written},
    check::check_tariff,
    encoding::{ANSWER_BYTES_MAX, DecodeError, EncodeError, REQUEST_BYTES_MAX, decode, encode},
    message::{MANY_MAX, SinceThen, WireAnswer, WireRequest},
    version::DIALECT,
};

/// The version.
#[derive(Debug, Clone, Copy)]
pub struct Ask7;

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $kind:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u16)]
        enum $name {
            $($(#[$of])* $kind = $number,)*
        }

        impl $name {
            const ALL: &[$name] = &[$($name::$kind),*];

            fn of(number: u16) -> Option<$name> {
                $name::ALL.iter().find(|kind| **kind as u16 == number).copied()
            }
        }
    };
}

kinds! {
    /// What is asked.
    Question {
        Schedules = 1,
        Advert = 2,
        Adverts = 3,
        Revocations = 4,
        DialBack = 5,
        Many = 6,
        SchedulesPart = 7,
        Hold = 16,
        Confirm = 17,
        Release = 18,
        Settle = 19,
        Inquire = 20,
        Inspect = 21,
        Lookup = 22,
        TakeOver = 23,
        Bookings = 24,
        Book = 25,
        Quote = 26,
        Standing = 27,
    }
}

kinds! {
    /// What is answered.
    Answer {
        Schedules = 1,
        Adverts = 2,
        Unchanged = 3,
        Revocations = 4,
        DialedBack = 5,
        Busy = 6,
        NotUnderstood = 7,
        Many = 8,
        Changes = 9,
        PartsGone = 10,
        Held = 16,
        Confirmed = 17,
        Released = 18,
        Settled = 19,
        Status = 20,
        Booked = 21,
        Found = 22,
        Refused = 23,
        Bookings = 24,
        Quoted = 25,
        Standing = 26,
    }
}

/// One of several in a message: its kind and its body.
type Part = (u16, Vec<u8>);

/// Longest text of a refusal that is read, in characters.
const REFUSAL_TEXT_MAX: usize = 300;

impl AskVersion for Ask7 {
    fn number(&self) -> u16 {
        DIALECT
    }

    fn knows_request(&self, kind: u16) -> bool {
        Question::of(kind).is_some()
    }

    fn answer_bytes_max(&self, kind: u16) -> Option<usize> {
        Answer::of(kind).map(|_| ANSWER_BYTES_MAX)
    }

    fn write_request(&self, request: &WireRequest) -> Written {
        let (kind, body) = match request {
            WireRequest::Schedules(known) => (Question::Schedules, encode(known)),
            WireRequest::SchedulesPart { version, number } => (Question::SchedulesPart, encode(&(version, number))),
            WireRequest::Advert => (Question::Advert, encode(&())),
            WireRequest::Adverts(known) => (Question::Adverts, encode(known)),
            WireRequest::Revocations { from } => (Question::Revocations, encode(from)),
            WireRequest::DialBack => (Question::DialBack, encode(&())),
            WireRequest::Site(request) => return write_site_request(request),
            WireRequest::Many(requests) => {
                let written: Result<Vec<_>, _> = requests.iter().map(write_site_request).collect();
                (Question::Many, encode(&written?))
            }
        };
        Ok((kind as u16, body?))
    }

    fn read_request(&self, kind: u16, body: &[u8]) -> Result<WireRequest, DecodeError> {
        let kind = Question::of(kind).ok_or(DecodeError::UnknownKind(kind))?;
        Ok(match kind {
            Question::Schedules => WireRequest::Schedules(question(body)?),
            Question::SchedulesPart => {
                let (version, number) = question(body)?;
                WireRequest::SchedulesPart { version, number }
            }
            Question::Advert => question::<()>(body).map(|()| WireRequest::Advert)?,
            Question::Adverts => WireRequest::Adverts(question(body)?),
            Question::Revocations => WireRequest::Revocations { from: question(body)? },
            Question::DialBack => question::<()>(body).map(|()| WireRequest::DialBack)?,
            Question::Many => WireRequest::Many(read_many(body)?),
            _ => WireRequest::Site(read_site_request(kind, body)?),
        })
    }

    fn write_answer(&self, answer: &WireAnswer) -> Written {
        let (kind, body) = match answer {
            WireAnswer::Schedules(schedules) => (Answer::Schedules, encode(schedules)),
            WireAnswer::Changes(SinceThen { from, changes, is_complete }) => {
                (Answer::Changes, encode(&(from, changes, is_complete)))
            }
            WireAnswer::PartsGone => (Answer::PartsGone, encode(&())),
            WireAnswer::Adverts { envelopes, is_complete } => (Answer::Adverts, encode(&(envelopes, is_complete))),
            WireAnswer::Unchanged(version) => (Answer::Unchanged, encode(version)),
            WireAnswer::Revocations { revocations, total } => (Answer::Revocations, encode(&(revocations, total))),
            WireAnswer::DialedBack(is_reached) => (Answer::DialedBack, encode(is_reached)),
            WireAnswer::Busy => (Answer::Busy, encode(&())),
            WireAnswer::NotUnderstood { kind } => (Answer::NotUnderstood, encode(kind)),
            WireAnswer::Site(answer) => return write_site_answer(answer),
            WireAnswer::Many(answers) => (Answer::Many, encode(&write_many(answers)?)),
        };
        Ok((kind as u16, body?))
    }

    fn read_answer(&self, kind: u16, body: &[u8]) -> Result<WireAnswer, DecodeError> {
        let kind = Answer::of(kind).ok_or(DecodeError::UnknownKind(kind))?;
        Ok(match kind {
            Answer::Schedules => WireAnswer::Schedules(Arc::new(told(body)?)),
            Answer::Changes => {
                let (from, changes, is_complete) = told(body)?;
                WireAnswer::Changes(SinceThen { from, changes, is_complete })
            }
            Answer::PartsGone => told::<()>(body).map(|()| WireAnswer::PartsGone)?,
            Answer::Adverts => {
                let (envelopes, is_complete) = told(body)?;
                WireAnswer::Adverts { envelopes, is_complete }
            }
            Answer::Unchanged => WireAnswer::Unchanged(told(body)?),
            Answer::Revocations => {
                let (revocations, total) = told(body)?;
                WireAnswer::Revocations { revocations, total }
            }
            Answer::DialedBack => WireAnswer::DialedBack(told(body)?),
            Answer::Busy => told::<()>(body).map(|()| WireAnswer::Busy)?,
            Answer::NotUnderstood => WireAnswer::NotUnderstood { kind: told(body)? },
            Answer::Many => WireAnswer::Many(read_many_answers(body)?),
            _ => WireAnswer::Site(read_site_answer(kind, body)?),
        })
    }
}

fn question<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, DecodeError> {
    decode::<_, REQUEST_BYTES_MAX>(body)
}

fn told<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, DecodeError> {
    decode::<_, ANSWER_BYTES_MAX>(body)
}

fn write_site_request(request: &SiteRequest) -> Written {
    let (kind, body) = match request {
        SiteRequest::Hold(hold) => (Question::Hold, encode(hold)),
        SiteRequest::Quote(hold) => (Question::Quote, encode(hold)),
        SiteRequest::Book { hold, incarnation } => (Question::Book, encode(&(hold, incarnation))),
        SiteRequest::Confirm { attempt, held_in } => (Question::Confirm, encode(&(attempt, held_in))),
        SiteRequest::Release(attempt) => (Question::Release, encode(attempt)),
        SiteRequest::Settle(attempt) => (Question::Settle, encode(attempt)),
        SiteRequest::Inquire(attempt) => (Question::Inquire, encode(attempt)),
        SiteRequest::Inspect(attempt) => (Question::Inspect, encode(attempt)),
        SiteRequest::Lookup(request) => (Question::Lookup, encode(request)),
        SiteRequest::TakeOver { attempt, authorization, step } => {
            (Question::TakeOver, encode(&(attempt, authorization, step)))
        }
        SiteRequest::Bookings { after } => (Question::Bookings, encode(after)),
        SiteRequest::Standing(authorization) => (Question::Standing, encode(authorization)),
    };
    Ok((kind as u16, body?))
}

fn write_site_answer(answer: &SiteAnswer) -> Written {
    let (kind, body) = match answer {
        SiteAnswer::Held { version, hold_for, places } => (Answer::Held, encode(&(version, hold_for, places))),
        SiteAnswer::Quoted { version, quote, hosts } => (Answer::Quoted, encode(&(version, quote, hosts))),
        SiteAnswer::Confirmed { version, places, receipt } => (Answer::Confirmed, encode(&(version, places, receipt))),
        SiteAnswer::Released { version, charged } => (Answer::Released, encode(&(version, charged))),
        SiteAnswer::Settled => (Answer::Settled, encode(&())),
        SiteAnswer::Status { decision, booking } => (Answer::Status, encode(&(decision, booking))),
        SiteAnswer::Booked { seats, places, is_settled, before, others, charged, version, receipt, wait } => {
            (Answer::Booked, encode(&(seats, places, is_settled, before, others, charged, version, receipt, wait)))
        }
        SiteAnswer::Found { parts, is_coordinated, version } => {
            (Answer::Found, encode(&(parts, is_coordinated, version)))
        }
        SiteAnswer::Standing(standing) => (Answer::Standing, encode(standing)),
        SiteAnswer::Refused(refusal) => (Answer::Refused, Ok(refusal_body(refusal)?)),
        SiteAnswer::Bookings { bookings, is_complete, is_withheld, version } => {
            (Answer::Bookings, encode(&(bookings, is_complete, is_withheld, version)))
        }
    };
    Ok((kind as u16, body?))
}

/// The answers that fit into a message; whoever misses one asks again, as after a broken connection.
fn write_many(answers: &[Option<SiteAnswer>]) -> Result<Vec<Option<Part>>, EncodeError> {
    let mut room = ANSWER_BYTES_MAX - 64 * MANY_MAX;
    let mut fitting = |answer: &SiteAnswer| {
        let written = write_site_answer(answer)?;
        let is_fitting = written.1.len() <= room;
        if is_fitting {
            room -= written.1.len();
        }
        Ok(is_fitting.then_some(written))
    };
    answers.iter().map(|answer| answer.as_ref().map_or(Ok(None), &mut fitting)).collect()
}

/// Several requests of a message, none of a kind that may bring much.
fn read_many(body: &[u8]) -> Result<Vec<SiteRequest>, DecodeError> {
    let written: Vec<Part> = question(body)?;
    if !(2..=MANY_MAX).contains(&written.len()) {
        return Err(DecodeError::Malformed(format!("{} requests in one message, at most {MANY_MAX}", written.len())));
    }
    let read = |(number, body): Part| {
        let kind = Question::of(number).filter(|kind| !matches!(kind, Question::Lookup | Question::Bookings));
        read_site_request(kind.ok_or(DecodeError::UnknownKind(number))?, &body)
    };
    written.into_iter().map(read).collect()
}

fn read_many_answers(body: &[u8]) -> Result<Vec<Option<SiteAnswer>>, DecodeError> {
    let written: Vec<Option<Part>> = told(body)?;
    if written.len() > MANY_MAX {
        return Err(DecodeError::Malformed(format!("{} answers in one message, at most {MANY_MAX}", written.len())));
    }
    let read =
        |(number, body): Part| read_site_answer(Answer::of(number).ok_or(DecodeError::UnknownKind(number))?, &body);
    written.into_iter().map(|written| written.map(read).transpose()).collect()
}

fn read_site_request(kind: Question, body: &[u8]) -> Result<SiteRequest, DecodeError> {
    Ok(match kind {
        Question::Hold => SiteRequest::Hold(question(body)?),
        Question::Quote => SiteRequest::Quote(question(body)?),
        Question::Book => {
            let (hold, incarnation) = question(body)?;
            SiteRequest::Book { hold, incarnation }
        }
        Question::Confirm => {
            let (attempt, held_in) = question(body)?;
            SiteRequest::Confirm { attempt, held_in }
        }
        Question::Release => SiteRequest::Release(question(body)?),
        Question::Settle => SiteRequest::Settle(question(body)?),
        Question::Inquire => SiteRequest::Inquire(question(body)?),
        Question::Inspect => SiteRequest::Inspect(question(body)?),
        Question::Lookup => SiteRequest::Lookup(question(body)?),
        Question::TakeOver => {
            let (attempt, authorization, step) = question(body)?;
            SiteRequest::TakeOver { attempt, authorization, step }
        }
        Question::Bookings => SiteRequest::Bookings { after: question(body)? },
        Question::Standing => SiteRequest::Standing(question(body)?),
        Question::Schedules
        | Question::SchedulesPart
        | Question::Advert
        | Question::Adverts
        | Question::Revocations
        | Question::DialBack
        | Question::Many => {
            return Err(DecodeError::UnknownKind(kind as u16));
        }
    })
}

fn read_site_answer(kind: Answer, body: &[u8]) -> Result<SiteAnswer, DecodeError> {
    Ok(match kind {
        Answer::Held => {
            let (version, hold_for, places) = told(body)?;
            SiteAnswer::Held { version, hold_for, places }
        }
        Answer::Quoted => {
            let (version, quote, hosts) = told(body)?;
            SiteAnswer::Quoted { version, quote, hosts }
        }
        Answer::Confirmed => {
            let (version, places, receipt) = told(body)?;
            SiteAnswer::Confirmed { version, places, receipt }
        }
        Answer::Released => {
            let (version, charged) = told(body)?;
            SiteAnswer::Released { version, charged }
        }
        Answer::Settled => told::<()>(body).map(|()| SiteAnswer::Settled)?,
        Answer::Status => {
            let (decision, booking) = told(body)?;
            SiteAnswer::Status { decision, booking }
        }
        Answer::Booked => {
            let (seats, places, is_settled, before, others, charged, version, receipt, wait) = told(body)?;
            SiteAnswer::Booked { seats, places, is_settled, before, others, charged, version, receipt, wait }
        }
        Answer::Found => {
            let (parts, is_coordinated, version) = told(body)?;
            SiteAnswer::Found { parts, is_coordinated, version }
        }
        Answer::Refused => SiteAnswer::Refused(refusal_in(body)?),
        Answer::Standing => SiteAnswer::Standing(told(body)?),
        Answer::Bookings => {
            let (bookings, is_complete, is_withheld, version) = told(body)?;
            SiteAnswer::Bookings { bookings, is_complete, is_withheld, version }
        }
        Answer::Schedules
        | Answer::Changes
        | Answer::PartsGone
        | Answer::Adverts
        | Answer::Unchanged
        | Answer::Revocations
        | Answer::DialedBack
        | Answer::Busy
        | Answer::Many
        | Answer::NotUnderstood => return Err(DecodeError::UnknownKind(kind as u16)),
    })
}

/// A refusal: its reason apart, and in words for a reader that does not know the reason.
fn refusal_body(refusal: &Refusal) -> Result<Vec<u8>, EncodeError> {
    let Refusal { reason, version, hosts } = refusal;
    encode(&(encode(reason)?, reason.to_string(), version, hosts))
}

fn refusal_in(body: &[u8]) -> Result<Refusal, DecodeError> {
    let (reason, words, version, hosts): (Vec<u8>, String, LedgerVersion, Vec<HostState>) = told(body)?;
    let is_sound = |reason: &RefusalReason| match reason {
        RefusalReason::PriceChanged { tariff, .. } => check_tariff(tariff).is_ok(),
        _ => true,
    };
    // Later versions refuse for more reasons; whatever the reason is, the site has refused.
    let reason = told(&reason).ok().filter(is_sound).unwrap_or_else(|| {
        RefusalReason::NotUnderstood(words.chars().filter(|c| !c.is_control()).take(REFUSAL_TEXT_MAX).collect())
    });
    Ok(Refusal { reason, version, hosts })
}
