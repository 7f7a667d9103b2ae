//! Requests of other sites: queued for the node, or answered at once by this crate.
//!
//! Invariant: at most `inbound_open_max` are open, of one peer at most `asks_per_peer_max` and at most as many as are left; every one
//! gets an answer, "busy" at worst. A peer that asks faster than its tokens come back is answered "busy" before anything is looked at.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use broker::{
    ids::{Network, SiteId},
    protocol::{SiteAnswer, SiteRequest},
};
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use libp2p::{PeerId, request_response::ResponseChannel};
use tokio::time;

use super::{dial_backs::DialBacks, inbound::InboundQueue, schedules::ScheduleServer};
use crate::{
    admission::{Buckets, Rate},
    config::HEAVY_ANSWER,
    counters::Counter,
    identity::peer_of_site,
    membership::Members,
    shared::Shared,
    wire::{ANSWER_BYTES_MAX, WireAnswer, WireRequest, site_is_busy},
};

/// An answer and the stream that waits for it.
pub(crate) type Served = (ResponseChannel<WireAnswer>, WireAnswer);

/// An answer that is being made for a peer.
type Open = BoxFuture<'static, (Option<PeerId>, Served)>;

/// The requests of others that are being answered.
pub(crate) struct Serving {
    shared: Arc<Shared>,
    inbound: InboundQueue,
    schedules: ScheduleServer,
    open: FuturesUnordered<Open>,
    /// Only peers with something open.
    open_of: BTreeMap<PeerId, usize>,
    tokens: Buckets<PeerId>,
    /// KiB of large answers.
    answered_kib: Buckets<PeerId>,
    pub(crate) dial_backs: DialBacks,
}

/// Adverts in one answer, in bytes; half of what an answer may have.
const ADVERTS_PAGE_BYTES: usize = ANSWER_BYTES_MAX / 2;

/// Revocations in one answer, in bytes.
const REVOCATIONS_PAGE_BYTES: usize = ANSWER_BYTES_MAX / 2;

impl Serving {
    pub(crate) fn new(shared: Arc<Shared>, inbound: InboundQueue, schedules: ScheduleServer) -> Serving {
        let limits = &shared.config.limits;
        let per_s = limits.asks_per_peer_per_s;
        let tokens = Buckets::new(Rate::per_s(per_s, per_s.saturating_mul(2)), limits.sites_max);
        let kib_per_s = limits.answers_per_peer_kib_per_s;
        let answered_kib = Buckets::new(Rate::per_s(kib_per_s, kib_per_s.saturating_mul(16)), limits.sites_max);
        let (open, open_of, dial_backs) = (FuturesUnordered::new(), BTreeMap::new(), DialBacks::default());
        Serving { shared, inbound, schedules, open, open_of, tokens, answered_kib, dial_backs }
    }

    /// Takes the tokens of a request, none if it is of an unknown kind; the answer that it gets when its peer has too few.
    pub(crate) fn throttle(&mut self, from: PeerId, request: Option<&WireRequest>) -> Option<WireAnswer> {
        let of_node = request.map_or(1, WireRequest::site_requests);
        let is_site = request.is_some() && of_node > 0;
        let tokens = request.map_or(HEAVY_ANSWER, WireRequest::tokens);
        if self.take_tokens(from, tokens) {
            return None;
        }
        Some(if is_site && of_node == 1 { WireAnswer::Site(site_is_busy()) } else { WireAnswer::Busy })
    }

    /// Takes the tokens of a peer that opens a stream: as many as for a large answer. Whether it had them.
    pub(crate) fn admit_stream(&mut self, from: PeerId) -> bool {
        self.take_tokens(from, HEAVY_ANSWER)
    }

    fn take_tokens(&mut self, from: PeerId, tokens: u64) -> bool {
        if self.tokens.take(from, tokens, self.shared.clock.now()) {
            return true;
        }
        self.shared.count(Counter::AsksIn);
        self.shared.count(Counter::AsksInRefused);
        false
    }

    /// Takes a request of a site, which asks from `network`; an answer that is ready at once is handed back.
    pub(crate) fn accept(
        &mut self,
        (from, network): (SiteId, Option<Network>),
        request: WireRequest,
        channel: ResponseChannel<WireAnswer>,
    ) -> Option<Served> {
        self.shared.counters.add(Counter::AsksIn, request.site_requests().max(1) as u64);
        let (peer, now) = (peer_of_site(&from), self.shared.clock.now());
        let is_too_much = request.may_bring_much() && peer.is_some_and(|peer| self.answered_kib.is_spent(&peer, now));
        if is_too_much || !self.has_room_for(peer.as_ref()) {
            self.shared.count(Counter::AsksInBusy);
            let is_site = matches!(request, WireRequest::Site(_));
            let answer = if is_site { WireAnswer::Site(site_is_busy()) } else { WireAnswer::Busy };
            return Some((channel, answer));
        }
        let answer = match request {
            WireRequest::Site(request) => {
                let Some(answer) = self.inbound.offer(from, network, request) else {
                    self.shared.count(Counter::AsksInBusy);
                    return Some((channel, WireAnswer::Site(site_is_busy())));
                };
                answer.map(|answer| WireAnswer::Site(answer.unwrap_or_else(|_| site_is_busy()))).boxed()
            }
            WireRequest::Many(requests) => {
                let answers = requests.into_iter().map(|request| self.answer_one(&from, network.as_ref(), request));
                let answers: Vec<_> = answers.collect();
                join_all(answers).map(WireAnswer::Many).boxed()
            }
            WireRequest::Schedules(known) => match self.schedules.ask(known) {
                Some(answer) => answer.map(|answer| answer.unwrap_or(WireAnswer::Busy)).boxed(),
                None => return Some((channel, self.busy())),
            },
            WireRequest::SchedulesPart { version, number } => match self.schedules.ask_part(version, number) {
                Some(answer) => answer.map(|answer| answer.unwrap_or(WireAnswer::Busy)).boxed(),
                None => return Some((channel, self.busy())),
            },
            WireRequest::Advert => {
                let own = self.shared.view.envelope(self.shared.site());
                let envelopes = own.map(|envelope| envelope.to_vec()).into_iter().collect();
                return Some((channel, WireAnswer::Adverts { envelopes, is_complete: true }));
            }
            WireRequest::Adverts(known) => {
                let shared = Arc::clone(&self.shared);
                // Comparing some thousand sites is not the swarm task's work.
                let page = tokio::spawn(async move {
                    let known = known.into_iter().collect();
                    let (envelopes, is_complete) = shared.view.envelopes_later_than(&known, ADVERTS_PAGE_BYTES);
                    WireAnswer::Adverts { envelopes, is_complete }
                });
                page.map(|page| page.unwrap_or(WireAnswer::Busy)).boxed()
            }
            WireRequest::Revocations { from } => {
                let membership = Arc::clone(&self.shared.config.membership);
                // Encoding some thousand of them is not the swarm task's work.
                let page = tokio::spawn(async move {
                    let (revocations, total) = revocations_page(&*membership, from);
                    WireAnswer::Revocations { revocations, total }
                });
                page.map(|page| page.unwrap_or(WireAnswer::Busy)).boxed()
            }
            WireRequest::DialBack => {
                let now = self.shared.clock.now();
                let outcome = peer_of_site(&from).and_then(|peer| self.dial_backs.ask(peer, now));
                let Some(outcome) = outcome else { return Some((channel, self.busy())) };
                outcome.map(|outcome| outcome.ok().flatten().map_or(WireAnswer::Busy, WireAnswer::DialedBack)).boxed()
            }
        };
        let patience = self.shared.config.intervals.request;
        let answer = async move { (channel, time::timeout(patience, answer).await.unwrap_or(WireAnswer::Busy)) };
        self.open.push(answer.map(move |served| (peer, served)).boxed());
        if let Some(peer) = peer {
            *self.open_of.entry(peer).or_default() += 1;
        }
        None
    }

    fn busy(&self) -> WireAnswer {
        self.shared.count(Counter::AsksInBusy);
        WireAnswer::Busy
    }

    /// Whether one more may be open of a peer. No honest one has more than so many on the wire.
    fn has_room_for(&self, peer: Option<&PeerId>) -> bool {
        let limits = &self.shared.config.limits;
        let left = limits.inbound_open_max.saturating_sub(self.open.len());
        let of_peer = peer.and_then(|peer| self.open_of.get(peer)).copied().unwrap_or_default();
        of_peer < left.min(limits.asks_per_peer_max)
    }

    /// The answer to one of many; none when it is not ready in time.
    fn answer_one(
        &self,
        from: &SiteId,
        network: Option<&Network>,
        request: SiteRequest,
    ) -> impl Future<Output = Option<SiteAnswer>> + use<> {
        let answer = self.inbound.offer(from.clone(), network.cloned(), request);
        if answer.is_none() {
            self.shared.count(Counter::AsksInBusy);
        }
        let patience = self.shared.config.intervals.request;
        async move {
            let Some(answer) = answer else { return Some(site_is_busy()) };
            time::timeout(patience, answer).await.ok().map(|answer| answer.unwrap_or_else(|_| site_is_busy()))
        }
    }

    /// The next answer that is ready; never, while nothing is open.
    pub(crate) async fn next(&mut self) -> Served {
        let Some((peer, mut served)) = self.open.next().await else { return std::future::pending().await };
        if let Some(peer) = peer {
            let now = self.shared.clock.now();
            if self.answered_kib.is_spent(&peer, now) {
                served.1.shorten();
            }
            self.answered_kib.charge(peer, served.1.size_kib(), now);
            if let Entry::Occupied(mut open) = self.open_of.entry(peer) {
                *open.get_mut() -= 1;
                if *open.get() == 0 {
                    open.remove();
                }
            }
        }
        served
    }
}

/// The revocations from number `from` on that fit into an answer, and how many there are in all.
fn revocations_page(membership: &dyn Members, from: u32) -> (Vec<Vec<u8>>, u32) {
    let all = membership.revocations();
    let total = u32::try_from(all.len()).unwrap_or(u32::MAX);
    let mut bytes = 0;
    let fits = |revocation: &Vec<u8>| {
        bytes += revocation.len() + 8;
        bytes <= REVOCATIONS_PAGE_BYTES
    };
    (all.into_iter().skip(usize::try_from(from).unwrap_or(usize::MAX)).take_while(fits).collect(), total)
}
