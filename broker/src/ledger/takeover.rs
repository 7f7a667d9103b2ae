//! A reservation whose entry point is gone goes on under another one, when its user wants that.
//!
//! Invariant: only a node that shows a request signed by the user who booked, naming that node, ever acts for a booking in
//! the place of its entry point. Of several such nodes that one does whose request the user has signed last, so that all
//! sites come to the same one in whatever order they hear.

use std::{collections::BTreeMap, sync::Arc};

use super::{Booking, BookingState, Ledger, Output};
use crate::{
    canary::{self, Canary},
    ids::{RequestId, SiteId},
    protocol::{AttemptId, BookedPart, RefusalReason, SiteAnswer},
    time::{Millis, Now, Time},
    trust::{Authorization, Permit, PublicKey, RequestStatement},
};

/// Most bookings of one request that a site tells; a request has one a try, and few tries stand.
const MAX_PARTS: usize = 64;

impl Ledger {
    /// Who may act for an attempt: its entry point, or who has taken it over.
    pub(super) fn steward_of<'a>(&'a self, attempt: &'a AttemptId) -> &'a SiteId {
        let taken_over = self.bookings.get(attempt).and_then(|booking| booking.steward.as_ref());
        taken_over.unwrap_or(&attempt.entry_point)
    }

    /// Whether `site`, which may not act for the attempt, once could have: then it hears that another does.
    pub(super) fn was_of(&self, attempt: &AttemptId, site: &SiteId) -> bool {
        attempt.entry_point == *site || self.bookings.get(attempt).is_some_and(|booking| booking.steward.is_some())
    }

    /// What a node hears that wants to take an attempt over while another acts for the request by a later word of the user.
    /// None when this booking is in its hands already: then it must be able to give that back.
    #[must_use]
    pub fn refusal_of_takeover(&self, attempt: &AttemptId, from: &SiteId) -> Option<SiteAnswer> {
        let steward = self.bookings.get(attempt).and_then(|booking| booking.steward.as_ref());
        (steward != Some(from)).then(|| self.refusal(RefusalReason::HandedOver))
    }

    /// What is reserved here for a request. Whoever knows its name may ask: the name is 80 random bits.
    pub(super) fn on_lookup(&self, request: &RequestId) -> SiteAnswer {
        let of_request =
            self.bookings.values().filter(|booking| booking.attempt.request == *request && !booking.is_held());
        let part = |booking: &Booking| {
            Some(BookedPart {
                attempt: booking.attempt.clone(),
                window: booking.window,
                grants: booking.grants.clone(),
                participants: booking.participants.clone(),
                statement: booking.statement.clone()?,
            })
        };
        let parts = of_request.filter_map(part).take(MAX_PARTS);
        SiteAnswer::Found { parts: parts.collect(), version: self.version }
    }

    /// Lets `from` act for the attempt from now on, and says what is reserved.
    pub(super) fn on_takeover(
        &mut self,
        now: Now,
        from: &SiteId,
        attempt: &AttemptId,
        authorization: &Authorization,
    ) -> SiteAnswer {
        let is_checked = !canary::is_on(Canary::TakeOverUnsigned);
        let permit = match self.check_takeover(now, from, attempt, authorization) {
            Ok(permit) => Some(permit),
            Err(reason) if is_checked => return self.refusal(reason),
            Err(_) => None,
        };
        let word = permit.as_ref().map(Word::new);
        let known = word.as_ref().and_then(|word| self.words.get(word));
        let is_superseded = word.as_ref().is_some_and(|word| known.is_some_and(|known| known.is_after(word)));
        if let Some(word) = word.clone().filter(|_| !is_superseded) {
            self.words.insert(word, now.monotonic + self.limits.tombstone_life);
        }
        // Even of a try that the other node has not heard of: there is one node for a request.
        if is_superseded && let Some(refusal) = self.refusal_of_takeover(attempt, from) {
            return refusal;
        }
        let said_before = word.as_ref().filter(|_| !is_superseded).and_then(|word| self.words.before(word)).cloned();
        let Some(booking) = self.bookings.get(attempt).filter(|booking| !booking.is_held()) else {
            // Who acts for it now goes by this answer, so the hold must not be confirmed any more.
            self.give_back(now, attempt);
            return SiteAnswer::Booked { hosts: Vec::new(), before: said_before, version: self.version };
        };
        if is_checked && booking.user_key != permit.as_ref().map(|permit| permit.user) {
            let why = "the reservation is of another user".to_owned();
            return self.refusal(RefusalReason::Malformed(why));
        }
        let is_news =
            booking.steward.as_ref() != Some(from) || booking.statement.as_deref() != Some(&authorization.request);
        let is_last_word = permit.as_ref().is_none_or(|permit| is_last_word(booking, &permit.statement));
        if is_news && !is_last_word && booking.steward.as_ref() != Some(from) {
            return self.refusal(RefusalReason::HandedOver);
        }
        let hosts = booking.grants.iter().map(|grant| grant.host.clone()).collect();
        let mut before = said_before;
        if is_news
            && is_last_word
            && let Some(booking) = self.take(attempt)
        {
            before = before.or(booking.steward.clone().filter(|before| before != from));
            if let Some((word, before)) = word.as_ref().zip(before.clone()) {
                self.words.note_before(word, before);
            }
            let (steward, statement) = (Some(from.clone()), Some(Arc::new(authorization.request.clone())));
            let booking = Booking { steward, statement, state: BookingState::Settled, ..booking };
            self.outputs.push_back(Output::Persist(booking.to_record()));
            self.insert(booking);
        }
        SiteAnswer::Booked { hosts, before, version: self.version }
    }

    fn check_takeover(
        &mut self,
        now: Now,
        from: &SiteId,
        attempt: &AttemptId,
        authorization: &Authorization,
    ) -> Result<Permit, RefusalReason> {
        let Authorization { request, user, entry_point } = authorization;
        self.gate.check_member(from, entry_point.as_ref(), now.utc).map_err(RefusalReason::NotAllowed)?;
        let permit = self.gate.check_submission(now.utc, from, request, user.as_ref());
        let permit = permit.map_err(RefusalReason::NotAllowed)?;
        if permit.statement.id != attempt.request {
            return Err(RefusalReason::Malformed("signed for another request".to_owned()));
        }
        Ok(permit)
    }
}

/// That a user wants a node to act for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    user: PublicKey,
    request: RequestId,
    issued: Time,
    entry_point: SiteId,
}

impl Word {
    fn new(permit: &Permit) -> Word {
        let RequestStatement { id, issued, entry_point, .. } = &*permit.statement;
        Word { user: permit.user, request: id.clone(), issued: *issued, entry_point: entry_point.clone() }
    }

    fn is_after(&self, other: &Word) -> bool {
        let is_after = (self.issued, &self.entry_point) > (other.issued, &other.entry_point);
        is_after && !canary::is_on(Canary::TakeOverUnordered)
    }
}

/// The last word of each user about each request, remembered for a while: two nodes may be asked to act for one request
/// within a short time, and the second may come when nothing is left here of what the first has taken over.
///
/// Invariant: at most `limit` are remembered; at the bound a new one is not.
#[derive(Debug)]
pub(super) struct Words {
    limit: usize,
    last: BTreeMap<(PublicKey, RequestId), LastWord>,
}

#[derive(Debug)]
struct LastWord {
    word: Word,
    /// Who acted for the request before: named in every answer, since any of them may get lost.
    before: Option<SiteId>,
    forget_at: Millis,
}

impl Words {
    pub(super) fn new(limit: usize) -> Words {
        Words { limit: limit.max(1), last: BTreeMap::new() }
    }

    fn get(&self, word: &Word) -> Option<&Word> {
        self.last.get(&(word.user, word.request.clone())).map(|last| &last.word)
    }

    /// Who acted for the request before the node that has this word.
    fn before(&self, word: &Word) -> Option<&SiteId> {
        let last = self.last.get(&(word.user, word.request.clone()))?;
        last.before.as_ref().filter(|_| last.word.entry_point == word.entry_point)
    }

    fn note_before(&mut self, word: &Word, before: SiteId) {
        let last = self.last.get_mut(&(word.user, word.request.clone()));
        if let Some(last) = last.filter(|last| last.word.entry_point == word.entry_point) {
            last.before = Some(before);
        }
    }

    fn insert(&mut self, word: Word, forget_at: Millis) {
        let key = (word.user, word.request.clone());
        let before = match self.last.get(&key) {
            Some(last) if last.word.entry_point == word.entry_point => last.before.clone(),
            Some(last) => Some(last.word.entry_point.clone()),
            None if self.last.len() < self.limit => None,
            None => return,
        };
        self.last.insert(key, LastWord { word, before, forget_at });
    }

    pub(super) fn forget(&mut self, now: Millis) {
        self.last.retain(|_, last| last.forget_at > now);
    }
}

/// Whether the user has signed `statement` after what shows who acts for the booking now, its entry point included: that may
/// be a node that has taken the request over and then made this try. Words of the same second are ordered by the names of
/// their nodes.
fn is_last_word(booking: &Booking, statement: &RequestStatement) -> bool {
    let present = booking.statement.as_ref().and_then(|signed| signed.open::<RequestStatement>().ok());
    let is_later = present.is_none_or(|present| {
        let acting = booking.steward.as_ref().unwrap_or(&booking.attempt.entry_point);
        (statement.issued, &statement.entry_point) > (present.issued, acting)
    });
    is_later || canary::is_on(Canary::TakeOverUnordered)
}
