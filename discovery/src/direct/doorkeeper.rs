//! Showing the schedules of a closed grid to its members only.
//!
//! A site in the view has shown its credential with its advert, and is served at once. Any other site is first asked for
//! its own advert, over the same connection, which has proven its key. Invariant: at most [`WAITING_MAX`] wait
//! and [`AT_ONCE`] are asked at a time; what came of it is remembered for [`REMEMBERED_FOR`], for at most [`REMEMBERED_MAX`]
//! sites, so that a stranger that goes on asking costs a look into a table.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use broker::{ids::SiteId, protocol::LedgerVersion, time::Millis};
use futures::{StreamExt as _, stream};
use tokio::sync::{mpsc, oneshot};

use crate::{
    core::Core,
    counters::Counter,
    identity::peer_of_site,
    wire::{Payload, WireAnswer, WireRequest},
};

/// Questions that wait; above it they are answered "busy".
const WAITING_MAX: usize = 256;
/// Sites that are asked for their adverts at the same time.
const AT_ONCE: usize = 32;
/// How long an advert is waited for.
const PATIENCE: Millis = Millis(2_000);
const REMEMBERED_FOR: Millis = Millis(60_000);
const REMEMBERED_MAX: usize = 1024;

/// A question of a site that is not in the view.
pub(crate) struct Visitor {
    site: SiteId,
    known: Option<LedgerVersion>,
    reply: oneshot::Sender<WireAnswer>,
}

/// Takes the questions.
pub(crate) struct Doorkeeper(mpsc::Sender<Visitor>);

impl Doorkeeper {
    /// A doorkeeper, and the questions that [`run`] answers.
    pub(crate) fn new() -> (Doorkeeper, mpsc::Receiver<Visitor>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Doorkeeper(sender), receiver)
    }

    /// Asks for the schedules, unless they are at the version that is `known`; `None` when too many are waiting.
    pub(crate) fn ask(&self, site: SiteId, known: Option<LedgerVersion>) -> Option<oneshot::Receiver<WireAnswer>> {
        let (reply, receiver) = oneshot::channel();
        self.0.try_send(Visitor { site, known, reply }).ok()?;
        Some(receiver)
    }
}

/// Sites that were asked lately: until when that counts, and whether they are members.
type Remembered = Mutex<BTreeMap<SiteId, (Millis, bool)>>;

/// Answers visitors until it is aborted.
pub(crate) async fn run(core: Core, visitors: mpsc::Receiver<Visitor>) {
    let remembered = Remembered::default();
    stream::unfold(visitors, |mut visitors| async { visitors.recv().await.map(|visitor| (visitor, visitors)) })
        .for_each_concurrent(AT_ONCE, |visitor| answer(&core, &remembered, visitor))
        .await;
}

async fn answer(core: &Core, remembered: &Remembered, visitor: Visitor) {
    let Visitor { site, known, reply } = visitor;
    let answer = if is_member(core, remembered, &site).await {
        match core.schedules().ask(known) {
            Some(answer) => answer.await.unwrap_or(WireAnswer::Busy),
            None => WireAnswer::Busy,
        }
    } else {
        core.shared().count(Counter::AsksInStranger);
        WireAnswer::Busy
    };
    // An error means that the asker has gone.
    let _ = reply.send(answer);
}

async fn is_member(core: &Core, remembered: &Remembered, site: &SiteId) -> bool {
    let now = core.shared().clock.now();
    // The map is valid after every single operation, so a panic elsewhere does not make it worthless.
    let known = remembered.lock().unwrap_or_else(PoisonError::into_inner).get(site).copied();
    if let Some((until, is_member)) = known
        && until > now
    {
        return is_member;
    }
    let is_member = shows_credential(core, site).await;
    let mut remembered = remembered.lock().unwrap_or_else(PoisonError::into_inner);
    remembered.retain(|_, (until, _)| *until > now);
    if remembered.len() < REMEMBERED_MAX {
        remembered.insert(site.clone(), (now + REMEMBERED_FOR, is_member));
    }
    is_member
}

/// Asks a site for its advert, and looks whether it shows a credential of the grid.
async fn shows_credential(core: &Core, site: &SiteId) -> bool {
    let Ok(WireAnswer::Adverts { envelopes, .. }) = core.request(site, WireRequest::Advert, PATIENCE).await else {
        return false;
    };
    let Some(envelope) = envelopes.first() else { return false };
    let opened = core.shared().open(envelope);
    core.receive_from(peer_of_site(site), envelope);
    opened.is_ok_and(|opened| opened.author == *site && matches!(opened.payload, Payload::Advert(_)))
}
