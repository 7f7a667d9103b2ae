//! Batches that a simulated coordinator reserves as a whole or not at all, as the node does it: what to do is the broker's ([`Step`]).
//!
//! Invariant: what ties the requests of a batch is on disk with the first of them, and goes when all are reserved there or all have ended.

use broker::{
    ids::RequestId,
    negotiation::{Event, Member, RequestRecord, Step},
};

use super::{canary::Canary, world::World};
use crate::engine::{Actor, Medium, Write};

impl World {
    /// Writes the requests of a batch down, tied together.
    pub fn submit_together(&mut self, node: usize, mut records: Vec<RequestRecord>) {
        let Some(batch) = records.first().map(|record| record.id.clone()) else { return };
        records.iter_mut().for_each(|record| record.together = Some(batch.clone()));
        self.write(node, Actor::Batch(batch.clone()), Write::Tie { batch, records });
    }

    /// What is on disk of a batch has changed: its requests begin, or are told that nothing ties them any more.
    pub fn batch_written(&mut self, node: usize, batch: &RequestId, members: &[RequestId]) {
        let is_tied = self.disk(node).tied.contains_key(batch);
        for id in members {
            if is_tied {
                self.begin(node, id);
                self.perform_request(node, id);
            } else {
                self.feed_request(node, id, Event::BatchReserved);
            }
        }
    }

    /// Goes on with the batch of a request, after that has changed.
    pub fn go_on_with_batch(&mut self, node: usize, id: &RequestId) {
        let together = |world: &World| world.grid.negotiation(node, id)?.record().together.clone();
        let Some(batch) = together(self) else { return };
        let Some(ids) = self.disk(node).tied.get(&batch).cloned() else { return };
        let is_writing =
            |actor: &Actor| self.grid.nodes[node].running().is_some_and(|running| running.is_writing(actor));
        // What is not on disk counts for nothing.
        if is_writing(&Actor::Batch(batch.clone())) || ids.iter().any(|id| is_writing(&Actor::Request(id.clone()))) {
            return;
        }
        let member = |id: &RequestId| self.grid.negotiation(node, id).and_then(|one| one.member());
        let members: Vec<Member> = ids.iter().map(|id| member(id).unwrap_or(Member::Ended)).collect();
        if self.grid.canary == Some(Canary::BatchNotTied) {
            return self.forget_others(node, id);
        }
        let (told, event): (fn(Member) -> bool, _) = match Step::of(&members) {
            Step::Wait => return,
            Step::Confirm => (|member| member == Member::Held, Event::AllHeld),
            Step::GiveUp if members.iter().any(|member| *member != Member::Ended) => {
                (|member| member != Member::Ended, Event::BatchFailed("one has ended".to_owned()))
            }
            Step::GiveUp | Step::Untie => {
                self.grid.figures.tied += u64::from(Step::of(&members) == Step::Untie);
                return self.write(node, Actor::Batch(batch.clone()), Write::Untie { batch, members: ids });
            }
        };
        let told = ids.iter().zip(members).filter(|(_, member)| told(*member));
        for id in told.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.feed_request(node, &id, event.clone());
        }
    }

    /// The fault of not waiting for the others.
    fn forget_others(&mut self, node: usize, id: &RequestId) {
        match self.grid.negotiation(node, id).and_then(|one| one.member()) {
            Some(Member::Held) => self.feed_request(node, id, Event::AllHeld),
            Some(Member::Reserved) => self.feed_request(node, id, Event::BatchReserved),
            _ => {}
        }
    }
}
