//! How the ledger answers each request. Only the entry point of an attempt may hold, confirm, release or settle it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Booking, BookingState, Books, Ledger, Output, ReplyToken,
    floating::{Wanted, bind_seats},
    receipts::SEATS_THAT_FIT,
    substitutes::{Substitutes, is_what_it_gives, replaced},
    uplink::talk_of,
};
use crate::{
    ids::{HostId, Network, RequestId, SeatNumber, SiteId},
    offered::Offered,
    plan::Place,
    protocol::{
        AttemptId, AttemptStatus, Grant, HoldRequest, HostState, Places, Refusal, RefusalReason, SiteAnswer,
        SiteRequest,
    },
    time::{Millis, Now, Span, Time, Window},
    traffic::Talk,
    trust::{Denial, Permit, PublicKey, Rule},
};

/// Most hosts that a refusal names in its text.
const HOSTS_SHOWN: usize = 16;

impl<B: Books> Ledger<B> {
    pub(super) fn on_request(
        &mut self,
        now: Now,
        (from, network): (&SiteId, Option<Network>),
        token: ReplyToken,
        request: SiteRequest,
    ) {
        let of_entry_point = match &request {
            SiteRequest::Inquire(_)
            | SiteRequest::TakeOver { .. }
            | SiteRequest::Lookup(_)
            | SiteRequest::Bookings { .. }
            | SiteRequest::Standing(_) => None,
            SiteRequest::Hold(HoldRequest { attempt, .. })
            | SiteRequest::Quote(HoldRequest { attempt, .. })
            | SiteRequest::Book { hold: HoldRequest { attempt, .. }, .. }
            | SiteRequest::Confirm { attempt, .. }
            | SiteRequest::Release(attempt)
            | SiteRequest::Settle(attempt)
            | SiteRequest::Inspect(attempt) => Some(attempt),
        };
        let coordinator = of_entry_point.map(|attempt| self.coordinator_of(attempt));
        let answer = if coordinator.is_some_and(|coordinator| coordinator != from) {
            let authorization = of_entry_point.and_then(|attempt| self.authorization_of_coordinator(attempt));
            self.refusal(authorization.map_or(RefusalReason::NotYours, RefusalReason::HandedOver))
        } else {
            match request {
                SiteRequest::Lookup(id) => self.on_lookup(&id),
                SiteRequest::Standing(authorization) => self.on_standing(now, (from, network.as_ref()), &authorization),
                SiteRequest::Bookings { after } => self.list_bookings(after.as_ref()),
                SiteRequest::TakeOver { attempt, authorization, step } => {
                    self.on_takeover(now, from, &attempt, (&authorization, step))
                }
                SiteRequest::Hold(hold) => self.on_hold(now, (from, network), hold, self.holds_cut_from(now)),
                SiteRequest::Quote(hold) => self.on_quote(now, (from, network), &hold),
                SiteRequest::Book { hold, incarnation } => self.on_book(now, (from, network), hold, incarnation),
                SiteRequest::Confirm { attempt, held_in } => self.on_confirm(now, &attempt, held_in),
                // The node sent it before it took the attempt over.
                SiteRequest::Release(attempt) if self.is_taken_over(&attempt) => self.refusal(RefusalReason::NotYours),
                SiteRequest::Release(attempt) => {
                    self.give_back(now, &attempt);
                    SiteAnswer::Released { version: self.version, charged: self.charged_for(&attempt) }
                }
                SiteRequest::Settle(attempt) => self.on_settle(&attempt),
                SiteRequest::Inquire(attempt) => self.on_inquiry(&attempt),
                SiteRequest::Inspect(attempt) => self.on_inspection(now, &attempt),
            }
        };
        self.outputs.push_back(Output::Reply { token, answer });
    }

    /// Holds, and cuts own jobs for what begins from that time on.
    fn on_hold(
        &mut self,
        now: Now,
        (from, network): (&SiteId, Option<Network>),
        hold: HoldRequest,
        cuts_from: Time,
    ) -> SiteAnswer {
        let permit = match self.permit(now, from, &hold) {
            Ok(permit) => permit,
            Err(reason) => return self.refusal(reason),
        };
        // A coordinator that has lost the attempt in a crash may give its number to another plan.
        let is_held = self.bookings.get(&hold.attempt).filter(|booking| booking.is_held());
        if is_held.is_some_and(|held| held.variant != hold.variant || !is_what_it_gives(&hold, &held.grants)) {
            return self.refusal(RefusalReason::AttemptIsOver);
        }
        if let Some(answer) = self.answer_again(now, &hold) {
            return answer;
        }
        self.give_back_earlier_holds(now, &hold.attempt);
        if let Err(reason) = self.check_hold(now, &hold, &permit) {
            return self.refusal(reason);
        }
        let lease_max = match self.lease_of(now, &hold, (network.as_ref(), &permit)) {
            Ok(most) => most,
            Err(refusal) => return *refusal,
        };
        let talk = talk_of(&permit);
        let (given, window) = match self.admit_hold(&hold, &permit, talk, (now, cuts_from)) {
            Ok(admitted) => admitted,
            Err(reason) => return self.refusal_with_states(reason, (&hold.grants, talk), now),
        };
        let hold_for = hold.hold_for.min(self.limits.hold_max).min(lease_max).min(self.stays_until_stop(now, &given));
        let places = replaced(&given, &hold.grants);
        let slack = self.slack_of(now, &hold, &permit);
        self.begin(Booking {
            attempt: hold.attempt,
            variant: hold.variant,
            window,
            grants: given,
            participants: hold.participants,
            user: permit.name,
            user_key: Some(permit.user),
            account: Some(permit.account),
            lineage: permit.lineage,
            network,
            statement: Some(Arc::new(hold.authorization.request.clone())),
            state: BookingState::Held { since: now.monotonic, deadline: now.monotonic + hold_for },
            coordinator: None,
            fed_as: None,
            is_substituted: !places.is_empty(),
            confirmed: None,
            lost: Vec::new(),
            talk,
            slack,
            wait: Span::default(),
        });
        SiteAnswer::Held { version: self.version, hold_for, places }
    }

    /// Whether a node may hold this, whatever room there is.
    pub(super) fn permit(&self, now: Now, from: &SiteId, hold: &HoldRequest) -> Result<Permit, RefusalReason> {
        hold.check().map_err(RefusalReason::Malformed)?;
        if !hold.participants.contains(&self.site) {
            return Err(RefusalReason::Malformed("this site is not among the participants".to_owned()));
        }
        if self.tombstones.is_buried(&hold.attempt) || self.ended.may_be_asked_about(&hold.attempt) {
            return Err(RefusalReason::AttemptIsOver);
        }
        let host = |id: &HostId| self.hosts.get(id).map(Books::host);
        let permit = self.gate.lock().admit(now.utc, (from, &self.site), hold, host);
        let permit = permit.map_err(|denial| self.not_allowed(denial))?;
        if self.evicted.until(&(Some(permit.user), hold.attempt.request.clone())) > Some(now.monotonic) {
            return Err(RefusalReason::AttemptIsOver);
        }
        Ok(permit)
    }

    /// When, how long and how far ahead the owner offers the hosts, to whomever.
    #[must_use]
    pub fn offered(&self) -> Arc<Offered> {
        Arc::new(self.gate.lock().policy().offered(Some(self.limits.farthest_future)))
    }

    /// A denial as a refusal: what is offered to nobody is shown with what is.
    fn not_allowed(&self, denial: Denial) -> RefusalReason {
        match denial.rule {
            Rule::OwnerHours | Rule::OwnerMaxDuration | Rule::OwnerMaxReach => {
                RefusalReason::NotOffered { denial, offer: self.offered() }
            }
            _ => RefusalReason::NotAllowed(denial),
        }
    }

    /// The longest lease of a hold, at its price and within the shares of who asks; else the refusal.
    pub(super) fn lease_of(
        &mut self,
        now: Now,
        hold: &HoldRequest,
        (network, permit): (Option<&Network>, &Permit),
    ) -> Result<Millis, Box<SiteAnswer>> {
        if let Err(reason) = self.check_tariffs(now.utc, &hold.grants) {
            return Err(Box::new(self.refusal_with_states(reason, (&hold.grants, None), now)));
        }
        let lease = self.lapses.lease(now.monotonic, &hold.attempt.entry_point, network);
        let lease = lease.map_err(|denial| Box::new(self.refusal(RefusalReason::NotAllowed(denial))))?;
        if let Err(over) = self.check_shares_of(hold, network, permit) {
            let hosts = self.states_within_share(hold, &over, now);
            let reason = RefusalReason::NotAllowed(over.denial);
            return Err(Box::new(SiteAnswer::Refused(Refusal { reason, version: self.version, hosts })));
        }
        Ok(lease)
    }

    /// Finds room for a hold that is permitted.
    fn admit_hold(
        &mut self,
        hold: &HoldRequest,
        permit: &Permit,
        talk: Option<Talk>,
        user: (Now, Time),
    ) -> Result<(Vec<Grant>, Window), RefusalReason> {
        let asked = &permit.statement.request;
        if let Some(base) = asked.extends() {
            self.bind_all_of(permit.user, base);
            self.check_lengthened(permit.user, base, &hold.grants)?;
        }
        let (wanted, others) = wanted_by(hold, permit);
        self.admit((&wanted, talk), others.as_ref(), Some(user))
    }

    /// Checks that what lengthens a reservation is on hosts of it, if it has any here: a seat that floated may have moved since the user
    /// read where it is.
    pub(super) fn check_lengthened(
        &self,
        user: PublicKey,
        base: &RequestId,
        grants: &[Grant],
    ) -> Result<(), RefusalReason> {
        self.check_beside(user, base, grants)?;
        let booked = self.of_request(user, base).filter(|booking| !booking.is_held());
        let there: BTreeSet<&HostId> = booked.flat_map(|booking| &booking.grants).map(Grant::host).collect();
        let elsewhere = grants.iter().find(|grant| !there.contains(grant.host())).filter(|_| !there.is_empty());
        let Some(grant) = elsewhere else { return Ok(()) };
        let hosts: Vec<&str> = there.into_iter().take(HOSTS_SHOWN).map(HostId::as_str).collect();
        let (host, hosts) = (grant.host(), hosts.join(", "));
        let detail = format!("host {host} is not one of request {base}, which it lengthens and which is on {hosts}");
        Err(RefusalReason::NotAllowed(Denial::new(Rule::Candidates, detail)))
    }

    /// Checks that what lengthens a reservation does not begin before that ends: it may have waited since the user read when it does.
    fn check_beside(&self, user: PublicKey, base: &RequestId, grants: &[Grant]) -> Result<(), RefusalReason> {
        let waited = self.of_request(user, base).filter(|booking| !booking.wait.is_zero());
        let end = waited.flat_map(|booking| &booking.grants).map(|grant| grant.window.end).max();
        match end.filter(|end| grants.iter().any(|grant| grant.window.start < *end)) {
            None => Ok(()),
            Some(end) => {
                let detail = format!("request {base}, which it lengthens, began later and ends at {}", end.in_utc());
                Err(RefusalReason::NotAllowed(Denial::new(Rule::Window, detail)))
            }
        }
    }

    /// A refusal that shows how the hosts of the seats are, and the uplink where they talk and it has a limit.
    pub(super) fn refusal_with_states(
        &self,
        reason: RefusalReason,
        (grants, talk): (&[Grant], Option<Talk>),
        now: Now,
    ) -> SiteAnswer {
        let uplink = talk.and(self.uplink()).map(|uplink| &uplink.host().id);
        let mut hosts = self.states_of(grants.iter().map(Grant::host).chain(uplink), now);
        self.add_stoppable(&mut hosts);
        if matches!(&reason, RefusalReason::NotAllowed(denial) if denial.rule == Rule::OwnQueue) {
            self.add_planned(&mut hosts);
        }
        SiteAnswer::Refused(Refusal { reason, version: self.version, hosts })
    }

    /// A hold that is confirmed at once. Where the site is not the only participant, others would have to hold first.
    fn on_book(
        &mut self,
        now: Now,
        from: (&SiteId, Option<Network>),
        hold: HoldRequest,
        incarnation: u64,
    ) -> SiteAnswer {
        if hold.participants != [self.site.clone()] {
            return self.refusal(RefusalReason::Malformed("this site is not the only participant".to_owned()));
        }
        let attempt = hold.attempt.clone();
        if incarnation != self.version.incarnation && !self.bookings.contains_key(&attempt) {
            return self.refusal(RefusalReason::NoSuchHold);
        }
        match self.on_hold(now, from, hold, now.utc) {
            SiteAnswer::Held { version, places, .. } => match self.on_confirm(now, &attempt, version.incarnation) {
                SiteAnswer::Confirmed { version, receipt, .. } => SiteAnswer::Confirmed { places, version, receipt },
                answer => answer,
            },
            answer => answer,
        }
    }

    /// The answer to a hold that was received before: the same as then, as far as it still holds.
    fn answer_again(&self, now: Now, hold: &HoldRequest) -> Option<SiteAnswer> {
        let booking = self.bookings.get(&hold.attempt)?;
        let places = replaced(&booking.grants, &hold.grants);
        Some(match booking.state {
            BookingState::Held { deadline, .. } => {
                SiteAnswer::Held { version: self.version, hold_for: deadline - now.monotonic, places }
            }
            BookingState::Confirmed { .. } | BookingState::Settled | BookingState::Returned { .. } => {
                self.confirmed(places, Some(booking))
            }
        })
    }

    /// A coordinator that begins a new attempt has given up what it held for the same request before.
    fn give_back_earlier_holds(&mut self, now: Now, attempt: &AttemptId) {
        let first = AttemptId { attempt: 0, ..attempt.clone() };
        let earlier: Vec<AttemptId> = self
            .bookings
            .range(first..attempt.clone())
            .filter(|(_, booking)| booking.is_held())
            .map(|(id, _)| id.clone())
            .collect();
        for id in earlier {
            self.give_back(now, &id);
        }
    }

    pub(super) fn check_hold(&self, now: Now, hold: &HoldRequest, permit: &Permit) -> Result<(), RefusalReason> {
        if let Some(reason) = hold.grants.iter().find_map(|grant| self.window_error(grant.window, now.utc)) {
            return Err(reason);
        }
        let held: usize = self.held_by.values().sum();
        let of_peer = self.held_by.get(&hold.attempt.entry_point).copied().unwrap_or(0);
        if held >= self.limits.max_holds || of_peer >= self.limits.max_holds_per_entry_point {
            return Err(RefusalReason::TooManyHolds(held as u64));
        }
        self.check_receipt(&hold.attempt, permit.user, &hold.grants).map_err(RefusalReason::Malformed)?;
        self.check_other_attempts(hold, permit)?;
        self.check_account(hold, permit).map_err(RefusalReason::NotAllowed)
    }

    fn on_confirm(&mut self, now: Now, attempt: &AttemptId, held_in: u64) -> SiteAnswer {
        let Some(booking) = self.bookings.get(attempt) else {
            self.bury(now, attempt);
            return self.refusal(RefusalReason::NoSuchHold);
        };
        if !booking.is_held() {
            // Of several participants each was held first, and the coordinator's decision has the places.
            let is_at_once = booking.is_substituted && booking.participants == [self.site.clone()];
            let places = booking.grants.iter().filter(|_| is_at_once).map(|grant| (grant.seat, grant.place.clone()));
            return self.confirmed(places.collect(), Some(booking));
        }
        if held_in != self.version.incarnation {
            return self.refusal(RefusalReason::NoSuchHold);
        }
        let state = BookingState::confirmed(now.monotonic + self.limits.outcome_wait);
        self.put(attempt, |booking| {
            booking.state = state;
            booking.confirmed = Some(now.utc);
        });
        self.tell_booking(attempt);
        self.confirmed(Places::new(), self.bookings.get(attempt))
    }

    fn on_settle(&mut self, attempt: &AttemptId) -> SiteAnswer {
        self.note_settled(attempt);
        SiteAnswer::Settled
    }

    /// Changes the state of a booking, and keeps it on disk.
    pub(super) fn put(&mut self, attempt: &AttemptId, change: impl FnOnce(&mut Booking)) {
        let open_from = self.open_from();
        let changed = self.amend(attempt, |booking| {
            change(booking);
            bind_seats(booking, open_from);
        });
        if changed.is_some() {
            self.persist(attempt);
        }
    }

    /// Answers a participant that waits for the outcome. Anybody may ask, so the question changes nothing. That an attempt without a
    /// booking here is never confirmed here follows already: the asker has confirmed it, so all sites have held it, and this one
    /// either remembers the end of its hold or has restarted, which makes the confirm worthless.
    fn on_inquiry(&self, attempt: &AttemptId) -> SiteAnswer {
        let booking = match self.bookings.get(attempt) {
            Some(booking) if booking.is_held() => AttemptStatus::Pending,
            Some(_) => AttemptStatus::Confirmed,
            // It was replaced elsewhere, has ended, or the user has cancelled it: only its coordinator knows.
            None if self.ended.may_be_asked_about(attempt) => AttemptStatus::Confirmed,
            None => AttemptStatus::Aborted,
        };
        SiteAnswer::Status { decision: None, booking }
    }

    /// Answers the coordinator of a reservation. An attempt without a confirmed booking is buried, because its coordinator relies on
    /// the answer. Only reservations are inspected, so the question tells the outcome as well.
    fn on_inspection(&mut self, now: Now, attempt: &AttemptId) -> SiteAnswer {
        let is_settled = self.bookings.get(attempt).is_some_and(|booking| !booking.is_held());
        let seats = if is_settled {
            self.note_settled(attempt);
            self.seats_of(attempt)
        } else {
            self.give_back(now, attempt);
            Vec::new()
        };
        let (charged, places) = (self.charged_for(attempt), self.floating_places_of(attempt));
        let (before, others, version, receipt) = (None, Vec::new(), self.version, None);
        let wait = self.wait_of(attempt);
        SiteAnswer::Booked { seats, places, is_settled, before, others, charged, version, receipt, wait }
    }

    /// The seats of a booking; none when it is not there.
    pub(super) fn seats_of(&self, attempt: &AttemptId) -> Vec<SeatNumber> {
        let grants = self.bookings.get(attempt).into_iter().flat_map(|booking| &booking.grants);
        grants.map(|grant| grant.seat).collect()
    }

    /// For how long a booking has waited for own jobs.
    pub(super) fn wait_of(&self, attempt: &AttemptId) -> Span {
        self.bookings.get(attempt).map(|booking| booking.wait).unwrap_or_default()
    }

    /// Where the seats of a booking are that float, or have floated.
    pub(super) fn floating_places_of(&self, attempt: &AttemptId) -> Places {
        let grants = self.bookings.get(attempt).into_iter().flat_map(|booking| &booking.grants);
        let grants = grants.filter(|grant| !matches!(grant.place, Place::Host(_)));
        grants.map(|grant| (grant.seat, grant.place.clone())).collect()
    }

    /// That work of the site's owner, or a booking of a user, is on disk.
    pub(super) fn confirmed(&self, places: Places, booking: Option<&Booking>) -> SiteAnswer {
        SiteAnswer::Confirmed { places, version: self.version, receipt: booking.and_then(|of| self.receipt_for(of)) }
    }

    pub(super) fn refusal(&self, reason: RefusalReason) -> SiteAnswer {
        SiteAnswer::Refused(Refusal { reason, version: self.version, hosts: Vec::new() })
    }

    /// The states of `hosts` that a refusal shows.
    pub(super) fn states_of<'a>(&self, hosts: impl Iterator<Item = &'a HostId>, now: Now) -> Vec<HostState> {
        let state_of = |host: &B| {
            let mut schedule = host.reserved().clone();
            schedule.forget_before(now.utc);
            HostState { host: host.host().id.clone(), schedule, held: Vec::new() }
        };
        let mut states: Vec<HostState> = hosts.filter_map(|id| self.unit(id)).map(state_of).collect();
        let places: BTreeMap<HostId, usize> =
            states.iter().enumerate().map(|(place, state)| (state.host.clone(), place)).collect();
        for booking in self.holds() {
            for grant in self.taken_by(booking).iter() {
                if let Some(place) = places.get(grant.host()) {
                    states[*place].held.push((grant.window, grant.amounts.clone()));
                }
            }
        }
        states
    }

    /// Why no booking can have this window at present; none when one can.
    pub(super) fn window_error(&self, window: Window, now: Time) -> Option<RefusalReason> {
        if window.start + self.limits.start_tolerance < now || window.end <= now {
            return Some(RefusalReason::WindowPassed);
        }
        (window.end > now + self.limits.farthest_future)
            .then_some(RefusalReason::TooFarAhead(self.limits.farthest_future.0))
    }
}

/// What a hold that is permitted is to have, and which hosts may take the place of those that it names.
pub(super) fn wanted_by<'a>(hold: &'a HoldRequest, permit: &'a Permit) -> (Wanted<'a>, Option<Substitutes<'a>>) {
    let asked = &permit.statement.request;
    // What lengthens a reservation is on its hosts.
    let may_substitute = hold.may_substitute && asked.extends().is_none();
    // On other hosts the receipt might be longer than the one that was checked.
    let fits = may_substitute && hold.grants.len() <= SEATS_THAT_FIT;
    // Hosts that the user has named are given as they are named.
    let floats = may_substitute && asked.demand().candidates().is_none();
    let wanted = Wanted { grants: &hold.grants, request: Some(&hold.attempt.request), floats };
    (wanted, fits.then(|| Substitutes::of(hold, permit)))
}
