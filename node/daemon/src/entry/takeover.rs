//! Takes a reservation over whose coordinator is gone, because its user wants that.
//!
//! Invariant: what sites report of the reservation counts only with the request that its user has signed; at most
//! [`ASKED_AT_ONCE`] sites are asked at the same time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use broker::{
    ids::{RequestId, SiteId},
    negotiation::{LookupAnswers, RequestRecord, TakeOverError},
    protocol::{FoundBooking, SiteAnswer, SiteRequest},
    time::Millis,
    trust::{Authorization, Permit, PublicKey, RequestStatement},
};
use kolo_runtime::clock::unix_ms;
use tokio::{sync::Semaphore, task::JoinSet};

use crate::entry::{
    driver::Coordinator,
    request::{RequestHandle, SubmitError},
    requests::Requests,
};

/// Sites asked at the same time.
const ASKED_AT_ONCE: usize = 64;
/// How long a site may take to answer.
const ANSWER_TIMEOUT: Millis = Millis(2_000);

/// What the sites of the grid report of a request.
#[derive(Debug)]
pub struct LookUp {
    /// What is reserved, by the sites that have it, and which nodes may coordinate it.
    pub answers: LookupAnswers,
    /// What its user has signed in the highest term, and with which key.
    pub signed: Option<(PublicKey, RequestStatement)>,
    pub asked: usize,
    /// Sites that did not answer, this node's own included.
    pub silent: usize,
}

/// What sites report of one user's request.
#[derive(Debug)]
struct OfUser {
    sites: BTreeSet<SiteId>,
    /// What the user has signed in the highest term.
    signed: RequestStatement,
    parts: Vec<(SiteId, FoundBooking)>,
}

/// Asks every known site what it has reserved for a request of `user`, or of the user that most sites report.
pub async fn look_up(coordinator: &Coordinator, id: &RequestId, user: Option<PublicKey>) -> LookUp {
    let mut sites = coordinator.discovery.view().site_ids();
    let own = coordinator.discovery.site_id();
    if !sites.contains(own) {
        sites.push(own.clone());
    }
    let (asked, turns) = (sites.len(), Arc::new(Semaphore::new(ASKED_AT_ONCE)));
    let mut asking = JoinSet::new();
    for site in sites {
        let (coordinator, id, turns) = (coordinator.clone(), id.clone(), turns.clone());
        asking.spawn(async move {
            // The semaphore is never closed.
            let _turn = turns.acquire().await;
            let answer = coordinator.ask(&site, SiteRequest::Lookup(id), ANSWER_TIMEOUT).await;
            (site, answer)
        });
    }
    let (mut reported, mut coordinating, mut silent) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    while let Some(Ok((site, answer))) = asking.join_next().await {
        if let Ok(SiteAnswer::Found { parts, is_coordinated, .. }) = answer {
            sort_out(&mut reported, id, &site, parts);
            coordinating.extend(Some(site).filter(|_| is_coordinated));
        } else {
            silent.insert(site);
        }
    }
    let silent_sites = silent.len();
    for others in [&mut coordinating, &mut silent] {
        others.remove(own);
    }
    let (signed, parts) = match of_one_user(reported, user) {
        Some((user, OfUser { signed, parts, .. })) => (Some((user, signed)), parts),
        None => (None, Vec::new()),
    };
    LookUp { answers: LookupAnswers { parts, coordinating, silent }, signed, asked, silent: silent_sites }
}

/// Adds what a site reports, as far as it fits the request, to the user who has signed it.
fn sort_out(reported: &mut BTreeMap<PublicKey, OfUser>, id: &RequestId, site: &SiteId, parts: Vec<FoundBooking>) {
    for part in parts {
        let Ok(statement) = part.statement.open::<RequestStatement>() else { continue };
        if statement.id != *id || part.attempt.request != *id {
            continue;
        }
        let of_user = reported.entry(part.statement.author).or_insert_with(|| OfUser {
            sites: BTreeSet::new(),
            signed: statement.clone(),
            parts: Vec::new(),
        });
        if of_user.signed.term < statement.term {
            of_user.signed = statement;
        }
        of_user.sites.insert(site.clone());
        of_user.parts.push((site.clone(), part));
    }
}

/// What is reported of `user`, if anything is, else of the user that most sites report, in the order of sites and attempts: a site that
/// lies, and has signed something under the same name, hides nothing that others have.
fn of_one_user(mut reported: BTreeMap<PublicKey, OfUser>, user: Option<PublicKey>) -> Option<(PublicKey, OfUser)> {
    let most = || reported.iter().max_by_key(|(_, of_user)| of_user.sites.len()).map(|(user, _)| *user);
    let user = user.filter(|user| reported.contains_key(user)).or_else(most)?;
    let mut of_user = reported.remove(&user)?;
    of_user.parts.sort_by(|a, b| (&a.0, &a.1.attempt).cmp(&(&b.0, &b.1.attempt)));
    Some((user, of_user))
}

/// Why a reservation was not taken over.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverFailure {
    /// What sites report is no reservation.
    #[error(transparent)]
    Parts(#[from] TakeOverError),
    /// The signed request is not the one that was reserved.
    #[error("the reservation is of another user, or of another request")]
    Other,
    /// It was signed before another takeover, or at the same time.
    #[error("term {0} is known already; sign a higher one")]
    TermTooLow(u64),
    /// As for every request.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

impl Requests {
    /// The highest term of a request that the sites, or this node itself, know of.
    pub fn highest_term(&self, looked: &LookUp) -> Option<u64> {
        let (user, signed) = looked.signed.as_ref()?;
        let is_users =
            |known: &Arc<RequestRecord>| known.authorization.as_ref().map(|own| own.request.author) == Some(*user);
        let own = self.record(&signed.id).filter(is_users).and_then(|known| known.present_statement());
        Some(own.map_or(signed.term, |own| own.term.max(signed.term)))
    }

    /// Goes on with a reservation that another entry point has made, as far as sites report it: `authorization` is the same
    /// request, signed by its user for this node and checked. It is on disk when this returns.
    pub async fn take_over(
        self: &Arc<Self>,
        coordinator: &Coordinator,
        authorization: Authorization,
        permit: Permit,
    ) -> Result<Arc<RequestHandle>, TakeOverFailure> {
        // Announced before any site is asked: of two nodes that do this at the same time, at least one learns of the other.
        let _arrival = self.arrives(&permit.statement.id)?;
        let looked = look_up(coordinator, &permit.statement.id, Some(permit.user)).await;
        let Some((user, signed)) = &looked.signed else { return Err(TakeOverError::Nothing.into()) };
        if *user != permit.user || signed.request != permit.statement.request {
            return Err(TakeOverFailure::Other);
        }
        let statement = &permit.statement;
        if let Some(highest) = self.highest_term(&looked).filter(|highest| *highest >= statement.term) {
            return Err(TakeOverFailure::TermTooLow(highest));
        }
        let now = coordinator.clock.now().utc;
        // With the window over nothing can be moved; lost hosts can still be replaced.
        let starts = statement.request.starts(now, self.settings().planner.default_reach).unwrap_or((now, now));
        let (id, request) = (statement.id.clone(), statement.request.clone());
        let known = self.get(&id).map(|known| known.watch().borrow().record.last_attempt);
        let mut record = RequestRecord::arrived(id, permit.name.clone(), request, authorization, unix_ms(), starts);
        // A node that has coordinated the request before must not give its attempts the same numbers again.
        record.last_attempt = known.unwrap_or(0);
        let record = record.take_over(&looked.answers)?;
        Ok(self.take_on(coordinator, record, true).await?)
    }
}

#[cfg(test)]
mod tests {
    use broker::{
        protocol::AttemptId,
        request::Request,
        time::Time,
        trust::{Labels, SignedText},
    };
    use ed25519_dalek::SigningKey;

    use super::*;

    fn key(user: u8) -> SigningKey {
        SigningKey::from_bytes(&[user; 32])
    }

    fn site(name: &str) -> SiteId {
        SiteId::new(name).unwrap()
    }

    fn part(user: u8, id: &RequestId, entry_point: &str) -> FoundBooking {
        let request: Request = serde_json::from_str(r#"{"hosts":1,"duration":60,"total":{"cpu":1}}"#).unwrap();
        let statement = RequestStatement {
            grid: "test".to_owned(),
            entry_point: site(entry_point),
            id: id.clone(),
            request,
            term: 1,
            issued: Time(4_000),
            expires: Time(6_000),
            labels: Labels::default(),
        };
        FoundBooking {
            wait: Default::default(),
            variant: Default::default(),
            attempt: AttemptId { entry_point: site(entry_point), request: id.clone(), attempt: 1 },
            grants: Vec::new(),
            participants: vec![site("a")],
            statement: Arc::new(SignedText::sign(&statement, &key(user)).unwrap()),
        }
    }

    #[test]
    fn a_site_that_tells_of_another_user_hides_nothing() {
        let [id, other] = ["r", "s"].map(|name| RequestId::new(name).unwrap());
        let reported = || {
            let mut reported = BTreeMap::new();
            sort_out(
                &mut reported,
                &id,
                &site("liar"),
                vec![part(2, &id, "e"), part(2, &id, "f"), part(1, &other, "e")],
            );
            sort_out(&mut reported, &id, &site("b"), vec![part(1, &id, "e")]);
            sort_out(&mut reported, &id, &site("a"), vec![part(1, &id, "e")]);
            reported
        };
        for (user, expected) in [(None, 1), (Some(1), 1), (Some(3), 1), (Some(2), 2)] {
            let (author, of_user) = of_one_user(reported(), user.map(|user| PublicKey::of(&key(user)))).unwrap();
            let sites: Vec<&str> = of_user.parts.iter().map(|(site, _)| site.as_str()).collect();
            let of_others = ["liar", "liar"];
            assert_eq!(author, PublicKey::of(&key(expected)));
            assert_eq!(sites, if expected == 1 { ["a", "b"] } else { of_others });
        }
        assert!(of_one_user(BTreeMap::new(), None).is_none());
    }
}
