//! The bounded queue of requests of other sites to this node.
//!
//! Invariant: no request waits for a place in the queue. What does not fit is answered "busy" at once, and a request whose
//! [`Responder`] is dropped is answered "busy" as well, so that an asker never waits for nothing. Sites take turns: a request waits
//! for at most one of each other site and those of its own, and no site takes the last places from the others.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use broker::{
    ids::{Network, SiteId},
    protocol::{SiteAnswer, SiteRequest},
};
use tokio::sync::{mpsc, oneshot};

use crate::run::RunInbound;

/// A request of another site (or of this node itself, when it is its own entry point) for the ledger.
#[derive(Debug)]
pub struct InboundRequest {
    /// The asking site; proven by the connection.
    pub from: SiteId,
    /// The network that its connection comes from, where that says something about its owner.
    pub network: Option<Network>,
    /// The request.
    pub request: SiteRequest,
    /// Where the answer goes.
    pub reply: Responder,
}

/// Takes the one answer to a request.
#[derive(Debug)]
pub struct Responder(oneshot::Sender<SiteAnswer>);

impl Responder {
    /// Sends the answer. When the asker has gone in the meantime, the answer goes nowhere, which the protocol allows
    /// for: an answer may always be lost.
    pub fn answer(self, answer: SiteAnswer) {
        // An error means that the asker has gone.
        let _ = self.0.send(answer);
    }

    /// Whether the asker still waits for the answer.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        !self.0.is_closed()
    }
}

/// What waits, by the site that asks.
#[derive(Debug, Default)]
struct Waiting {
    /// Only sites with something that waits.
    of_site: BTreeMap<SiteId, VecDeque<InboundRequest>>,
    /// Each of them once, the one whose turn is next first.
    turns: VecDeque<SiteId>,
}

impl Waiting {
    fn count_of(&self, site: &SiteId) -> usize {
        self.of_site.get(site).map_or(0, VecDeque::len)
    }

    fn push(&mut self, request: InboundRequest) {
        let of_site = self.of_site.entry(request.from.clone()).or_default();
        if of_site.is_empty() {
            self.turns.push_back(request.from.clone());
        }
        of_site.push_back(request);
    }

    fn pop(&mut self) -> Option<InboundRequest> {
        let site = self.turns.pop_front()?;
        let of_site = self.of_site.get_mut(&site)?;
        let request = of_site.pop_front();
        if of_site.is_empty() {
            self.of_site.remove(&site);
        } else {
            self.turns.push_back(site);
        }
        request
    }
}

type SharedWaiting = Arc<Mutex<Waiting>>;

fn locked(waiting: &SharedWaiting) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The node's end of the queue of requests.
#[derive(Debug)]
pub struct Inbound {
    /// One for each request that waits.
    places: mpsc::Receiver<()>,
    waiting: SharedWaiting,
    runs: Option<RunInbound>,
}

impl Inbound {
    /// The next request; `None` when discovery has stopped.
    pub async fn next(&mut self) -> Option<InboundRequest> {
        self.places.recv().await?;
        locked(&self.waiting).pop()
    }

    /// The next request if one is waiting already, so that a node can group its writes.
    pub fn try_next(&mut self) -> Option<InboundRequest> {
        self.places.try_recv().ok()?;
        locked(&self.waiting).pop()
    }

    /// What takes the streams that others open to what runs here; none the second time. While nobody has taken it they are refused.
    pub fn take_runs(&mut self) -> Option<RunInbound> {
        self.runs.take()
    }

    pub(crate) fn set_runs(&mut self, runs: RunInbound) {
        self.runs = Some(runs);
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        self.places.close();
        *locked(&self.waiting) = Waiting::default();
    }
}

/// Discovery's end of the queue.
#[derive(Debug, Clone)]
pub(crate) struct InboundQueue {
    places: mpsc::Sender<()>,
    waiting: SharedWaiting,
}

impl InboundQueue {
    pub(crate) fn new(capacity: usize) -> (InboundQueue, Inbound) {
        let (sender, places) = mpsc::channel(capacity);
        let waiting = SharedWaiting::default();
        (InboundQueue { places: sender, waiting: waiting.clone() }, Inbound { places, waiting, runs: None })
    }

    /// How many requests of a site wait.
    #[cfg(test)]
    pub(crate) fn count_of(&self, site: &SiteId) -> usize {
        locked(&self.waiting).count_of(site)
    }

    /// Queues a request; `None` when the queue has no reader any more, or no place for this site: each may have at most as many as
    /// are left.
    pub(crate) fn offer(
        &self,
        from: SiteId,
        network: Option<Network>,
        request: SiteRequest,
    ) -> Option<oneshot::Receiver<SiteAnswer>> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = locked(&self.waiting);
        if waiting.count_of(&from) >= self.places.capacity() {
            return None;
        }
        // With the lock held: what is put in while the reader goes would stay.
        let place = self.places.try_reserve().ok()?;
        waiting.push(InboundRequest { from, network, request, reply: Responder(sender) });
        place.send(());
        Some(receiver)
    }
}

#[cfg(test)]
mod tests {
    use broker::ids::RequestId;
    use proptest::prelude::*;

    use super::*;

    /// By site, how many it has asked, and the order in which they are taken.
    fn offer(queue: &InboundQueue, site: usize, number: usize) -> bool {
        let request = SiteRequest::Lookup(RequestId::new(&number.to_string()).unwrap());
        queue.offer(SiteId::new(&format!("s{site}")).unwrap(), None, request).is_some()
    }

    proptest! {
        #[test]
        fn sites_take_turns_and_leave_places(steps in proptest::collection::vec(proptest::option::of(0_usize..4), 1..200)) {
            const PLACES: usize = 12;
            let (queue, mut inbound) = InboundQueue::new(PLACES);
            // The oracle: what waits, in the order in which it came, and how often each site was served since then.
            let mut waits: Vec<(usize, usize)> = Vec::new();
            let mut served = [0_usize; 4];
            let mut ahead: BTreeMap<usize, [usize; 4]> = BTreeMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                if let Some(site) = step {
                    let own = waits.iter().filter(|(of, _)| *of == site).count();
                    let is_taken = offer(&queue, site, number);
                    prop_assert_eq!(is_taken, own < PLACES - waits.len());
                    if is_taken {
                        waits.push((site, number));
                        ahead.insert(number, served);
                        // The last place is for a site that has nothing here.
                        prop_assert!(waits.len() < PLACES || own == 0);
                    }
                    continue;
                }
                let Some(taken) = inbound.try_next() else {
                    prop_assert!(waits.is_empty());
                    continue;
                };
                let SiteRequest::Lookup(id) = &taken.request else { unreachable!() };
                let number: usize = id.to_string().parse().unwrap();
                let at = waits.iter().position(|(_, of)| *of == number).unwrap();
                let (site, _) = waits.remove(at);
                prop_assert!(waits[..at].iter().all(|(of, _)| *of != site), "in order");
                let since = ahead.remove(&number).unwrap();
                let own = served[site] - since[site];
                for other in 0..4 {
                    prop_assert!(served[other] - since[other] <= own + 1, "{other} was served too often before {site}");
                }
                served[site] += 1;
            }
        }
    }

    #[test]
    fn each_site_may_have_as_many_as_are_left_and_the_last_place_goes_to_one_with_nothing() {
        let (queue, _inbound) = InboundQueue::new(12);
        let taken = |site| (0..12).filter(|number| offer(&queue, site, *number)).count();
        assert_eq!([0, 1, 2, 3, 4].map(taken), [6, 3, 2, 1, 0]);
    }

    #[test]
    fn what_waits_is_dropped_with_its_reader() {
        let (queue, inbound) = InboundQueue::new(4);
        let answer = queue.offer(SiteId::new("a").unwrap(), None, SiteRequest::Bookings { after: None });
        drop(inbound);
        assert!(answer.unwrap().try_recv().is_err());
        assert!(!offer(&queue, 1, 1));
    }
}
