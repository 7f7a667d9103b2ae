//! What becomes of runs whose seats change, and of those whose users may run nothing here any more, or nobody may.
//!
//! Invariant: a run is looked at in each sweep from its start until it is known to be over, by lookups only; nobody waits for its keeper
//! but a task of its own.

use std::sync::Arc;

use broker::time::{Span, Time};
use kolo_runtime::lock::locked;
use kolo_seat::{Keepers, RunError, RunId};
use tracing::{info, warn};

use super::{RunSite, Watched, check::seat_end};

/// How long after the end of a window it is seen whether a keeper that died has left something running.
const REST_FOR: Span = Span(60);
/// A keeper ends its run itself when the window is over; a sweep does it after so long.
const LATE_AFTER: Span = Span(30);
const LATE: &str = "the window of its seat is over";
/// What the user of a run is told whose seat is gone.
const TAKEN: &str = "the reservation no longer has this seat: it was cancelled, or its owner has taken it back";

/// What has become of the seat of a run.
enum Fate {
    /// It ends at another time.
    EndsAt(Time),
    /// It is booked no longer.
    Taken,
    /// Its user may no longer use it, for this reason.
    Denied(String),
}

impl RunSite {
    /// Tells keepers what has become of the seats of what runs; may block. What could not be told is told by a later sweep.
    pub fn sweep(self: &Arc<RunSite>) {
        let Some(keepers) = self.keepers() else { return };
        self.forwarders.sweep(keepers);
        let now = self.clock.now().utc;
        let mut started = locked(&self.started);
        started.retain(|id, watched| watched.deadline + REST_FOR > now && !keepers.has_ended(id));
        if started.is_empty() {
            return;
        }
        // What a keeper that was killed has left running ends now.
        let over = started.iter().filter(|(id, watched)| watched.deadline <= now || !keepers.goes_on(id));
        let over: Vec<RunId> = over.map(|(id, _)| id.clone()).collect();
        let stopped = self.stop_notice();
        let changed: Vec<(RunId, Watched, Fate)> = {
            let mut bases = locked(&self.bases);
            let ledger = self.ledger.lock();
            bases.read(&ledger);
            let fate = |id: &RunId, watched: &Watched| {
                let end = seat_end((&*ledger, &*bases), (&id.request, id.seat), (&id.user, &watched.host), now);
                let Some(end) = end else { return Some(Fate::Taken) };
                let denial = ledger.denial_of(&id.user, &id.request).map(|denial| denial.to_string());
                let denial = denial.or_else(|| stopped.clone()).map(Fate::Denied);
                denial.or((end != watched.deadline).then_some(Fate::EndsAt(end)))
            };
            let goes_on = started.iter().filter(|(_, watched)| watched.deadline > now);
            goes_on.filter_map(|(id, watched)| Some((id.clone(), watched.clone(), fate(id, watched)?))).collect()
        };
        for (id, watched, fate) in changed {
            // Not there twice while its keeper is told.
            started.remove(&id);
            let (site, keepers) = (Arc::clone(self), Arc::clone(keepers));
            tokio::task::spawn_blocking(move || site.tell(&keepers, id, watched, fate));
        }
        let is_late = |id: &&RunId| started.get(*id).is_some_and(|watched| watched.deadline + LATE_AFTER <= now);
        let late: Vec<&RunId> = over.iter().filter(is_late).collect();
        drop(started);
        // Their keepers may go by another clock.
        late.into_iter().for_each(|id| drop(keepers.end(id, LATE)));
        // Nothing comes of these any more.
        let ended = over.iter().filter(|id| keepers.end_rest(id));
        ended.for_each(|id| drop(locked(&self.started).remove(id)));
    }

    /// Tells the keeper of a run, and enters again what goes on.
    fn tell(&self, keepers: &Keepers, id: RunId, watched: Watched, fate: Fate) {
        let (request, seat) = (&id.request, id.seat);
        let told = match &fate {
            Fate::EndsAt(end) => keepers.set_deadline(&id, *end),
            Fate::Taken => keepers.end(&id, TAKEN),
            Fate::Denied(denial) => {
                self.forwarders.close(&id);
                keepers.deny(&id, denial)
            }
        };
        let deadline = match (told, fate) {
            (Ok(()), Fate::Taken) => return info!(%request, %seat, "a run was ended: its seat is booked no longer"),
            (Ok(()), Fate::Denied(denial)) => return info!(%request, %seat, %denial, "a run was ended"),
            (Ok(()), Fate::EndsAt(end)) => {
                info!(%request, %seat, until_s = end.0, "a run ends with its seat, whose end has changed");
                end
            }
            (Err(RunError::Over | RunError::Unknown), _) => {
                let _ = keepers.end_rest(&id);
                return;
            }
            (Err(error), _) => {
                warn!(%error, %request, %seat, "a run whose seat has changed");
                watched.deadline
            }
        };
        // Whoever came back meanwhile has entered what the keeper knew before.
        locked(&self.started).insert(id, Watched { deadline, ..watched });
    }
}
