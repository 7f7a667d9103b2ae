//! Losses: a site drops only what does not fit any more; a user is told of a loss only when there is one; what is repaired
//! keeps its start and the hosts that are left, unless the user allows it to move; what has begun is never moved.
//!
//! Invariant: compares what the user was told before with what is told now, and with the disks and the messages of the
//! simulation, never with what a negotiation believes.

use broker::{
    ids::RequestId,
    negotiation::{Loss, Reservation},
    plan::HostGrant,
    protocol::AttemptId,
    time::Span,
};

use super::{
    super::{losses, names, users::Reported, world::World},
    capacity,
};
use crate::engine::Moment;

/// From the decision to its being told: writes of a slow node.
const TELLING: Span = Span(8);
/// Sites may forget a reservation when it has ended on their clock.
const CLOCKS_DIFFER: Span = Span(45);
/// Longest that a slow node is late with anything.
const SLOW_MS_MAX: u64 = 1_500;
/// Clocks of nodes run wrong by at most 1 in 100; of `lost_after` so many percent must have passed.
const PERCENT_OF_SILENCE: u64 = 97;

impl World {
    /// A ledger was opened: what it has dropped of what was on disk had not begun and has no room any more.
    pub(in super::super) fn check_dropped(&mut self, node: usize) {
        let now = self.clock(node);
        let Some(running) = self.nodes[node].running() else { return };
        let dropped = losses::dropped(self.nodes[node].disk.reservations.values(), &running.machines.ledger);
        let mut wrong = None;
        for (attempt, host) in &dropped {
            let reservation = &self.nodes[node].disk.reservations[attempt];
            for grant in reservation.grants.iter().filter(|grant| grant.host == *host) {
                let what = (reservation.window, grant);
                let fits = !capacity::has_no_room(
                    &self.nodes[node].hosts,
                    &running.machines.ledger,
                    what,
                    &attempt.request,
                    now,
                );
                let has_begun = reservation.window.start <= now.utc;
                if fits || has_begun {
                    wrong = Some((attempt.request.clone(), format!("s{node} has dropped {host} of {attempt:?}")));
                }
            }
        }
        if let Some((request, what)) = wrong {
            return self.violate("only what has no room is dropped", Some(&request), what);
        }
        for (attempt, host) in &dropped {
            self.truth.note_lost(&attempt.request, node, host);
        }
        self.nodes[node].dropped = dropped;
    }

    /// The user of a request, which `node` acts for, has been told something new.
    pub(in super::super) fn check_news(&mut self, node: usize, id: &RequestId, before: &Reported) {
        let Some(user) = self.users.get(id) else { return };
        let found = match (before, &user.told) {
            (_, Reported::Degraded(reservation)) => {
                self.figures.degraded += u64::from(!matches!(before, Reported::Degraded(_)));
                self.check_losses(node, id, before, reservation)
            }
            (Reported::Degraded(old), Reported::Reserved { plan, .. }) => {
                let has_moved = old.plan.start != plan.start;
                self.figures.moved += u64::from(has_moved);
                self.figures.repaired += u64::from(!has_moved);
                Ok(())
            }
            _ => Ok(()),
        };
        let continues = self.check_continuity(node, id, before);
        if let Err(what) = found.and(continues) {
            self.violate("losses are real and made good for", Some(id), what);
        }
    }

    fn check_losses(
        &self,
        node: usize,
        id: &RequestId,
        before: &Reported,
        reservation: &Reservation,
    ) -> Result<(), String> {
        let duration = self.users.get(id).map_or(Span(0), |user| user.request.duration());
        if reservation.plan.start + duration <= self.utc() + CLOCKS_DIFFER {
            return Ok(());
        }
        for (site, host, loss) in
            reservation.lost.iter().flat_map(|(site, hosts)| hosts.iter().map(move |(host, loss)| (site, host, loss)))
        {
            let grant = before
                .plan()
                .and_then(|told| told.grants.iter().find(|grant| grant.site == *site && grant.host == *host));
            if grant.is_some_and(|grant| before.is_lost(grant)) {
                continue;
            }
            let Some(index) = names::index_of(site) else { continue };
            match loss {
                Loss::TakenBack => {
                    let parts =
                        reservation.parts.iter().filter(|part| part.hosts.contains(&(site.clone(), host.clone())));
                    let names: Vec<AttemptId> = parts.map(|part| self.name_of(node, id, part.attempt)).collect();
                    let is_there = losses::has_on_disk(&self.nodes[index], id, |reservation, one| {
                        names.contains(&reservation.attempt) && one.host == *host
                    });
                    let is_taken_away = self.truth.is_lost(id, index, host);
                    if is_there && !is_taken_away {
                        return Err(format!("{host} of {site} is told to be taken back, but is there"));
                    }
                    if matches!(before, Reported::Reserved { .. }) && !is_taken_away {
                        return Err(format!("{host} of {site} is gone, which its owner has not taken away"));
                    }
                }
                Loss::SiteSilent => self.check_silence(node, id, index)?,
            }
        }
        Ok(())
    }

    /// The name that sites know an attempt by.
    fn name_of(&self, node: usize, id: &RequestId, attempt: u32) -> AttemptId {
        let record = self.nodes[node].disk.requests.get(id);
        let of_another = record.and_then(|record| record.taken_over.get(&attempt)).cloned();
        let own = AttemptId { entry_point: self.nodes[node].site.clone(), request: id.clone(), attempt };
        of_another.unwrap_or(own)
    }

    fn check_silence(&self, node: usize, id: &RequestId, site: usize) -> Result<(), String> {
        let Some(running) = self.nodes[node].running() else { return Ok(()) };
        let Some(losses) = &self.options.losses else { return Err("nothing is ever lost in this seed".to_owned()) };
        // Questions of a node that is slow, or waits for its disk, leave late, and their answers come too late for it. What
        // came while it wrote down that the site is silent was too late as well.
        let slow_ms = if self.options.faults.slowness { SLOW_MS_MAX } else { 0 };
        let (last, before) = running.inspected.get(&(id.clone(), site)).copied().unwrap_or_default();
        let is_late = self.now().ms_since(last) <= self.nodes[node].disk_ms_max + slow_ms;
        let heard = if is_late { before } else { last }.max(running.started);
        let late_ms = 2 * (self.nodes[node].disk_ms_max + slow_ms) + self.options.answer_timeout.0;
        let silent_ms = self.now().ms_since(heard) + late_ms;
        // After a crash it is known from the disk that the site was silent before.
        let is_known = self.nodes[node].disk.requests.get(id).and_then(|record| record.reservation.as_ref());
        let is_known = running.started > Moment::default()
            && is_known.is_some_and(|known| known.lost.contains_key(&names::site(site)));
        if silent_ms * 100 < losses.lost_after.0 * PERCENT_OF_SILENCE && !is_known {
            return Err(format!("s{site} is told to be silent, but answered {} ms ago", self.now().ms_since(heard)));
        }
        Ok(())
    }

    /// What is left of what was told stays, at the same start, unless all of it moves in time and the user allows it.
    fn check_continuity(&self, node: usize, id: &RequestId, before: &Reported) -> Result<(), String> {
        let Some(user) = self.users.get(id) else { return Ok(()) };
        let (Some(old), Some(new)) = (before.plan(), user.told.plan()) else { return Ok(()) };
        let now = self.clock(node).utc;
        let is_degraded = matches!(before, Reported::Degraded(_));
        let has_begun = old.start + TELLING <= now;
        if is_degraded && !has_begun && user.request.moves_on_loss() {
            return Ok(());
        }
        if old.start != new.start {
            return Err(format!("it has moved from {} to {} at {}", old.start.0, new.start.0, now.0));
        }
        let is_kept = |grant: &&HostGrant| new.grants.contains(grant);
        let gone = old.grants.iter().find(|grant| !before.is_lost(grant) && !is_kept(grant));
        match gone {
            Some(gone) => Err(format!("{} of {} was not lost and is not part of it any more", gone.host, gone.site)),
            None => Ok(()),
        }
    }
}
