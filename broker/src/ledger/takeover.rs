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
    trust::{Authorization, Permit, PublicKey, RequestStatement, SignedText},
};

/// Most bookings of one request that a site tells; a request has one a try, and few tries stand.
const MAX_PARTS: usize = 64;

impl Ledger {
    /// Who may act for an attempt: its entry point, or who has taken it over.
    pub(super) fn steward_of<'a>(&'a self, attempt: &'a AttemptId) -> &'a SiteId {
        let taken_over = self.bookings.get(attempt).and_then(|booking| booking.steward.as_ref());
        taken_over.unwrap_or(&attempt.entry_point)
    }

    /// Whether another node than the entry point, or that one anew, acts for the attempt by a word of its user's.
    pub(super) fn is_taken_over(&self, attempt: &AttemptId) -> bool {
        self.bookings.get(attempt).is_some_and(|booking| booking.steward.is_some())
    }

    /// What the user has signed for who acts for the attempt in the place of its entry point, if somebody does: whoever
    /// once could have acted hears of it.
    pub(super) fn word_of_steward(&self, attempt: &AttemptId) -> Option<Arc<SignedText>> {
        let booking = self.bookings.get(attempt).filter(|booking| booking.steward.is_some())?;
        booking.statement.clone()
    }

    /// What a node hears that wants to take an attempt over while another acts for the request by a later word of the user,
    /// which is `word`. None when this booking is in its hands already: then it must be able to give that back.
    #[must_use]
    pub fn refusal_of_takeover(&self, attempt: &AttemptId, from: &SiteId, word: Arc<SignedText>) -> Option<SiteAnswer> {
        let steward = self.bookings.get(attempt).and_then(|booking| booking.steward.as_ref());
        (steward != Some(from)).then(|| self.refusal(RefusalReason::HandedOver(word)))
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
        SiteAnswer::Found { parts: parts.collect(), is_carried: false, version: self.version }
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
        let is_of = |booking: &Booking| booking.user_key == permit.as_ref().map(|permit| permit.user);
        if is_checked && !self.bookings.get(attempt).is_none_or(is_of) {
            let why = "the reservation is of another user".to_owned();
            return self.refusal(RefusalReason::Malformed(why));
        }
        let word = permit.as_ref().map(|permit| Word::new(permit, &authorization.request));
        let later = word.as_ref().and_then(|word| self.later_word(word));
        if let Some(word) = word.clone().filter(|_| later.is_none()) {
            self.words.insert(word, now.monotonic + self.limits.tombstone_life);
        }
        // Even of a try that the other node has not heard of: there is one node for a request.
        if let Some(later) = &later
            && let Some(refusal) = self.refusal_of_takeover(attempt, from, later.signed.clone())
        {
            return refusal;
        }
        let said_before =
            word.as_ref().filter(|_| later.is_none()).and_then(|word| self.acted_before(word, attempt, from));
        let others = word.as_ref().filter(|_| later.is_none()).map(|word| self.other_tries(word, attempt));
        let others = others.unwrap_or_default();
        let booking = match self.bookings.get(attempt) {
            Some(booking) if !booking.is_held() => booking,
            held => {
                // As for an inquiry, it will never be confirmed here; who acts for it now goes by this answer.
                if held.is_some() {
                    self.give_back(now, attempt);
                }
                let hosts = Vec::new();
                return SiteAnswer::Booked { hosts, before: said_before, others, version: self.version };
            }
        };
        let is_news =
            booking.steward.as_ref() != Some(from) || booking.statement.as_deref() != Some(&authorization.request);
        let is_last_word = permit.as_ref().is_none_or(|permit| is_last_word(booking, &permit.statement));
        if is_news
            && !is_last_word
            && booking.steward.as_ref() != Some(from)
            && let Some(later) = booking.statement.clone()
        {
            return self.refusal(RefusalReason::HandedOver(later));
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
        SiteAnswer::Booked { hosts, before, others, version: self.version }
    }

    /// Gives back what `from` has taken over, by the very word of the user by which it acts: it may have acted by an earlier
    /// one before, and what it sent in that time may come late.
    pub(super) fn on_give_back(
        &mut self,
        now: Now,
        from: &SiteId,
        attempt: &AttemptId,
        authorization: &Authorization,
    ) -> SiteAnswer {
        if let Some(booking) = self.bookings.get(attempt) {
            let is_shown = booking.statement.as_deref() == Some(&authorization.request);
            match (&booking.steward, &booking.statement) {
                (Some(steward), _) if steward == from && is_shown => self.give_back(now, attempt),
                (Some(steward), Some(word)) if steward != from => {
                    return self.refusal(RefusalReason::HandedOver(word.clone()));
                }
                _ => return self.refusal(RefusalReason::NotYours),
            }
        }
        SiteAnswer::Released { version: self.version }
    }

    /// The last word of the same user about the same request that is known here, if it is later: one that was said a while
    /// ago, or the one by which some node acts for another booking of the request.
    fn later_word(&self, word: &Word) -> Option<Word> {
        let of_bookings = self.of_user(word).filter_map(|booking| Word::of_booking(word, booking));
        let known = self.words.get(word).cloned().into_iter().chain(of_bookings);
        known.filter(|known| known.is_after(word)).max_by(|a, b| a.rank().cmp(&b.rank()))
    }

    /// Which other node acted for the request before the one that has this word, as far as this site knows: it said so, or
    /// acts for another booking of the request.
    fn acted_before(&self, word: &Word, attempt: &AttemptId, by: &SiteId) -> Option<SiteId> {
        let others = || self.of_user(word).map(|booking| &booking.attempt).filter(|other| *other != attempt);
        self.words
            .before(word)
            .or_else(|| others().map(|other| self.steward_of(other)).find(|acting| *acting != by))
            .cloned()
    }

    /// Other tries of the request that have something here, and for which nobody acts by this word yet.
    fn other_tries(&self, word: &Word, attempt: &AttemptId) -> Vec<AttemptId> {
        let is_by_this = |booking: &Booking| booking.statement.as_ref() == Some(&word.signed);
        let others = self.of_user(word).filter(|booking| !booking.is_held() && !is_by_this(booking));
        let others = others.map(|booking| &booking.attempt).filter(|other| *other != attempt);
        others.take(MAX_PARTS).cloned().collect()
    }

    /// What the user of this word has reserved here by this request.
    fn of_user<'a>(&'a self, word: &'a Word) -> impl Iterator<Item = &'a Booking> {
        let is_of = |booking: &&Booking| booking.attempt.request == word.request && booking.user_key == Some(word.user);
        self.bookings.values().filter(is_of)
    }

    fn check_takeover(
        &mut self,
        now: Now,
        from: &SiteId,
        attempt: &AttemptId,
        authorization: &Authorization,
    ) -> Result<Permit, RefusalReason> {
        let Authorization { request, user, entry_point } = authorization;
        let mut gate = self.gate.lock();
        gate.check_member(from, entry_point.as_ref(), now.utc).map_err(RefusalReason::NotAllowed)?;
        let permit = gate.check_submission(now.utc, from, request, user.as_ref());
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
    /// What says so.
    signed: Arc<SignedText>,
}

impl Word {
    fn new(permit: &Permit, signed: &SignedText) -> Word {
        let RequestStatement { id, issued, entry_point, .. } = &*permit.statement;
        Word {
            user: permit.user,
            request: id.clone(),
            issued: *issued,
            entry_point: entry_point.clone(),
            signed: Arc::new(signed.clone()),
        }
    }

    /// The word, of the same user about the same request, by which a node acts for a booking.
    fn of_booking(word: &Word, booking: &Booking) -> Option<Word> {
        let signed = booking.statement.clone()?;
        let RequestStatement { issued, entry_point, .. } = signed.open().ok()?;
        Some(Word { user: word.user, request: word.request.clone(), issued, entry_point, signed })
    }

    fn rank(&self) -> (Time, &SiteId) {
        (self.issued, &self.entry_point)
    }

    fn is_after(&self, other: &Word) -> bool {
        self.rank() > other.rank() && !canary::is_on(Canary::TakeOverUnordered)
    }
}

/// The last word of each user about each request, remembered for a while: two nodes may be asked to act for one request
/// within a short time, and the second may come when nothing is left here of what the first has taken over.
///
/// Invariant: at most `limit` are remembered, of at most [`WORDS_BYTES_MAX`] together; at a bound a new one is not.
#[derive(Debug)]
pub(super) struct Words {
    limit: usize,
    bytes: usize,
    last: BTreeMap<(PublicKey, RequestId), LastWord>,
}

/// What remembered words may take together: anybody in an open grid can say one.
const WORDS_BYTES_MAX: usize = 16 << 20;

#[derive(Debug)]
struct LastWord {
    word: Word,
    /// Who acted for the request before: named in every answer, since any of them may get lost.
    before: Option<SiteId>,
    forget_at: Millis,
}

impl Words {
    pub(super) fn new(limit: usize) -> Words {
        Words { limit: limit.max(1), bytes: 0, last: BTreeMap::new() }
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
        let bytes = word.signed.size_bytes();
        let before = match self.last.get(&key) {
            Some(last) if last.word.entry_point == word.entry_point => last.before.clone(),
            Some(last) => Some(last.word.entry_point.clone()),
            None if self.last.len() < self.limit && self.bytes + bytes <= WORDS_BYTES_MAX => None,
            None => return,
        };
        self.bytes += bytes;
        if let Some(replaced) = self.last.insert(key, LastWord { word, before, forget_at }) {
            self.bytes -= replaced.word.signed.size_bytes();
        }
    }

    pub(super) fn forget(&mut self, now: Millis) {
        self.last.retain(|_, last| last.forget_at > now);
        self.bytes = self.last.values().map(|last| last.word.signed.size_bytes()).sum();
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
