//! What a hold would cost the own jobs that wait: asked before it is made, so that a coordinator can look for seats that cost less.
//!
//! Invariant: a quote changes nothing and promises nothing. What is asked of a hold is asked of it, but that what an earlier attempt of the
//! request holds stays, which a hold would give back, and that as many seats move as have to.

use super::{Books, Ledger, answers::wanted_by, uplink::talk_of};
use crate::{
    ids::{Network, SiteId},
    protocol::{Grant, HoldRequest, Quote, SiteAnswer},
    time::Now,
};

impl<B: Books> Ledger<B> {
    /// Answers as [`crate::protocol::SiteRequest::Quote`] says.
    pub(super) fn on_quote(
        &mut self,
        now: Now,
        (from, network): (&SiteId, Option<Network>),
        hold: &HoldRequest,
    ) -> SiteAnswer {
        let permit = match self.permit(now, from, hold) {
            Ok(permit) => permit,
            Err(reason) => return self.refusal(reason),
        };
        if let Err(reason) = self.check_hold(now, hold, &permit) {
            return self.refusal(reason);
        }
        if let Err(refusal) = self.lease_of(now, hold, (network.as_ref(), &permit)) {
            return *refusal;
        }
        let asked = &permit.statement.request;
        let lengthens = asked.extends().map(|base| self.check_lengthened(permit.user, base, &hold.grants));
        if let Some(Err(reason)) = lengthens {
            return self.refusal(reason);
        }
        let (wanted, others) = wanted_by(hold, &permit);
        let talk = talk_of(&permit);
        // What only this site is to hold is booked at once.
        let is_booked = hold.participants == [self.site.clone()];
        let user = Some((now, if is_booked { now.utc } else { self.holds_cut_from(now) }));
        let planned = self.room_with_cuts((&wanted, talk), others.as_ref(), user, |ledger, room, cuts| {
            let moves = room.moves.as_ref().map(|(moves, _)| moves);
            ledger.plan_for_user(now, moves, (&room.given, &cuts))
        });
        match planned.flatten() {
            Ok(planned) => {
                let quote = planned.map(|(_, quote)| quote).unwrap_or_default();
                let shown = hold.grants.iter().filter(|_| quote != Quote::default());
                let mut hosts = self.states_of(shown.map(Grant::host), now);
                self.add_planned(&mut hosts);
                self.add_stoppable(&mut hosts);
                SiteAnswer::Quoted { quote, hosts, version: self.version }
            }
            Err(reason) => self.refusal_with_states(reason, (&hold.grants, talk), now),
        }
    }
}
