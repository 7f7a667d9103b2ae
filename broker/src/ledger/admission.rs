//! Admission: whether the site can promise what is asked of it, and the promise.
//!
//! Invariant: [`Ledger::check_room`] is the one check of room. [`Ledger::admit`] makes it for holds and for the owner's own work, and
//! makes room for all that it is given, some of it perhaps on other hosts, or for nothing; of a booking on disk it is made for what is still to come of each
//! grant. What is confirmed was admitted as a hold.

use std::collections::BTreeMap;

use super::{
    Books, Ledger,
    floating::{Arrangement, Wanted},
    substitutes::Substitutes,
};
use crate::{
    ids::HostId,
    protocol::{Grant, RefusalReason, hull},
    resources::{Amounts, ResourceName},
    schedule::{Schedule, Shortage},
    time::{Now, Time, Window},
    traffic::Talk,
};

/// Checks that all these grants on one host fit together beside `schedule`.
///
/// # Errors
/// The first resource that is short.
pub fn fit_beside(schedule: &Schedule, capacity: &Amounts, grants: &[&Grant]) -> Result<(), Shortage> {
    if let [one] = grants {
        return schedule.admits(capacity, one.window, &one.amounts);
    }
    let mut schedule = schedule.clone();
    for grant in grants {
        schedule.admits(capacity, grant.window, &grant.amounts)?;
        schedule.add(grant.window, &grant.amounts);
    }
    Ok(())
}

/// Where everything that is wanted fits.
pub(super) struct Room {
    /// What is given.
    pub given: Vec<Grant>,
    /// From when to when.
    pub window: Window,
    /// What has to move for it, and why it does not fit when that may not.
    pub moves: Option<(Arrangement, RefusalReason)>,
}

impl<B: Books> Ledger<B> {
    /// Makes room for these grants and what they put on the uplink, all of it or nothing: for a hold on `others` where there is no room on their
    /// own hosts, and where floating seats of others can move out of the way. What the booking that now begins has, and from when to when. What
    /// `user` holds, at this time, must leave the owner's own queue in order; own jobs are cut for it from that time on.
    pub(super) fn admit(
        &mut self,
        (wanted, talk): (&Wanted<'_>, Option<Talk>),
        others: Option<&Substitutes<'_>>,
        user: Option<(Now, Time)>,
    ) -> Result<(Vec<Grant>, Window), RefusalReason> {
        let (room, cuts, plan) = self.room_with_cuts((wanted, talk), others, user, |ledger, room, cuts| {
            let moves = room.moves.as_ref().map(|(moves, _)| moves);
            let plan = user.map(|(now, _)| ledger.plan_for_user(now, moves, (&room.given, &cuts)));
            (room, cuts, plan)
        })?;
        let Room { given, window, moves } = room;
        if let Some((moves, reason)) = &moves
            && !self.may_move(moves)
        {
            return Err(reason.clone());
        }
        let moves = moves.map(|(moves, _)| moves);
        match plan.transpose()? {
            Some(planned) => self.follow_plan(planned),
            None => self.plan_for_owner(moves.as_ref(), &given),
        }
        self.make_cuts(cuts);
        if let Some(moves) = &moves {
            self.make_moves(moves);
        }
        Ok((given, window))
    }

    /// Where [`Ledger::admit`] would put what is wanted, as the ledger is now.
    pub(super) fn room_for(
        &self,
        (wanted, talk): (&Wanted<'_>, Option<Talk>),
        others: Option<&Substitutes<'_>>,
    ) -> Result<Room, RefusalReason> {
        let grants = wanted.grants;
        let window = hull(grants).ok_or_else(|| RefusalReason::Malformed("no grant".to_owned()))?;
        let load = self.load_of(talk, grants.len(), window);
        let mut moves = None;
        let mut given = match (self.check_room(grants), self.stands_apart(wanted)) {
            (Ok(()), true) => grants.to_vec(),
            (room, _) => {
                let reason = room.err().unwrap_or(RefusalReason::OtherAttempt);
                let substituted = others.and_then(|others| self.substituted(grants, others));
                match substituted {
                    Some(given) => given,
                    // Where owners limit what a user has of each host, seats stay where that was checked.
                    None if self.has_user_shares() => return Err(reason),
                    None => match self.arranged(wanted) {
                        Some(found) => moves.insert((found, reason)).0.given.clone(),
                        None => return Err(reason),
                    },
                }
            }
        };
        self.check_room(load.as_slice())?;
        if wanted.floats {
            given = self.floated(given);
        }
        Ok(Room { given, window, moves })
    }

    /// Checks that there is room for all these grants together.
    pub(super) fn check_room(&self, grants: &[Grant]) -> Result<(), RefusalReason> {
        let mut by_host: BTreeMap<&HostId, Vec<&Grant>> = BTreeMap::new();
        for grant in grants {
            by_host.entry(grant.host()).or_default().push(grant);
        }
        for (id, here) in by_host {
            let host = self.unit(id).ok_or_else(|| RefusalReason::UnknownHost(id.clone()))?;
            let Err(Shortage { resource, asked, free }) = host.admits(&here) else { continue };
            let host_id = id.clone();
            return Err(match fit_beside(host.reserved(), &host.host().capacity, &here) {
                Ok(()) => RefusalReason::HeldByAnother { host: host_id, resource },
                Err(_) if id.is_uplink() && resource == ResourceName::mbps() => {
                    RefusalReason::UplinkFull { asked, free }
                }
                Err(_) => RefusalReason::NotEnough { host: host_id, resource, asked, free },
            });
        }
        Ok(())
    }

    /// Whether what is still to come of a grant on disk has room. What is over may have been given to others since.
    pub(super) fn fits_still(&self, grant: &Grant, now: Now) -> bool {
        self.fits_beside(&[], grant, now)
    }

    /// Whether the rest of a grant on disk has room beside other grants of its booking.
    pub(super) fn fits_beside(&self, others: &[Grant], grant: &Grant, now: Now) -> bool {
        let rest = |grant: &Grant| {
            let window = Window { start: grant.window.start.max(now.utc), end: grant.window.end };
            window.is_valid().then(|| Grant { window, ..grant.clone() })
        };
        let Some(last) = rest(grant) else { return true };
        let here = others.iter().filter(|other| other.host() == grant.host()).filter_map(rest);
        self.check_room(&here.chain([last]).collect::<Vec<_>>()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            LedgerLimits,
            promises::tests::booking,
            tests::{at, grant, host, id},
        },
        *,
    };
    use crate::{ids::RequestId, ledger::BookingRecord, protocol::AttemptId, time::Time, trust::testing};

    fn from_to(start: i64, end: i64) -> Window {
        Window { start: Time(start), end: Time(end) }
    }

    #[test]
    fn after_a_restart_what_is_over_is_in_nobodys_way() {
        let record = |name: &str, grants: Vec<Grant>| BookingRecord {
            attempt: AttemptId { entry_point: id("e"), request: RequestId::new(name).unwrap(), attempt: 1 },
            variant: Default::default(),
            window: hull(&grants).unwrap(),
            grants,
            participants: vec![id("site")],
            user: "ada".to_owned(),
            user_key: None,
            account: None,
            lineage: None,
            network: None,
            statement: None,
            settled: true,
            coordinator: None,
            fed_as: None,
            is_substituted: false,
            confirmed: None,
            lost: Vec::new(),
            talk: None,
            slack: Default::default(),
            wait: Default::default(),
        };
        // The first seat on h1 was over when the second booking got its amounts, from a coordinator whose clock is behind.
        let apart = vec![grant(0, "h1", from_to(900, 990), 3_000), grant(1, "h2", from_to(900, 1_100), 3_000)];
        let kept = vec![record("r1", apart), record("r2", vec![grant(0, "h1", from_to(980, 1_100), 3_000)])];
        let open = |kept: Vec<BookingRecord>| {
            let hosts = ["h1", "h2"].map(|name| (host(name), Schedule::default())).to_vec();
            Ledger::open(id("site"), LedgerLimits::default(), 7, testing::open_gate(), hosts, kept, at(0))
        };
        let (ledger, misfits) = open(kept.clone());
        assert!(misfits.is_empty(), "{misfits:?}");
        ledger.sanity_check().unwrap();
        let third = record("r3", vec![grant(0, "h1", from_to(980, 1_100), 3_000)]);
        assert_eq!(open([kept, vec![third.clone()]].concat()).1, [third], "what is still to come counts");
    }

    #[test]
    fn grants_are_admitted_together_or_not_at_all() {
        let hosts = ["h1", "h2"].map(|name| (host(name), Schedule::default())).to_vec();
        let limits = LedgerLimits::default();
        let (mut ledger, _) = Ledger::open(id("site"), limits, 7, testing::open_gate(), hosts, Vec::new(), at(0));
        let admit = |ledger: &mut Ledger, grants: &[Grant]| {
            let wanted = Wanted { grants, request: None, floats: false };
            let (grants, window) = ledger.admit((&wanted, None), None, None)?;
            ledger.begin(booking(ledger.bookings().count(), grants));
            Ok(window)
        };
        // Each of the seats on h1 fits alone.
        let (first, second) =
            (grant(1, "h1", from_to(2_000, 2_050), 2_001), grant(2, "h1", from_to(2_040, 2_090), 2_000));
        let too_many = [grant(0, "h2", from_to(2_000, 2_010), 1), first, second];
        let refused = admit(&mut ledger, &too_many).unwrap_err();
        assert!(matches!(refused, RefusalReason::NotEnough { free, .. } if free.0 == 1_999), "{refused}");
        assert!(ledger.hosts().all(|host| *host.promised() == Schedule::default()), "nothing is promised");
        let elsewhere = admit(&mut ledger, &[grant(0, "h9", from_to(2_000, 2_001), 1)]);
        assert_eq!(elsewhere, Err(RefusalReason::UnknownHost(HostId::new("h9").unwrap())));
        let after_each_other =
            [grant(0, "h1", from_to(2_000, 2_050), 4_000), grant(1, "h1", from_to(2_050, 2_110), 4_000)];
        assert_eq!(admit(&mut ledger, &after_each_other), Ok(from_to(2_000, 2_110)));
        let refused = admit(&mut ledger, &[grant(0, "h1", from_to(2_109, 2_110), 1)]).unwrap_err();
        assert!(matches!(refused, RefusalReason::HeldByAnother { .. }), "{refused}");
        admit(&mut ledger, &[grant(0, "h1", from_to(2_110, 2_111), 1)]).unwrap();
    }
}
