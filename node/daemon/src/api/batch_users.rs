//! What rules of owners about users leave to those who ask for a batch.
//!
//! Each site that has such rules is asked once for each user, as for a request by itself. Invariant: a host that a user gets nothing of is in
//! no plan of that user, as far as its site has answered; and its owner decides of holds all the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use broker::{
    demand::Unmet,
    ids::{HostId, SiteId},
    negotiation::FoundHost,
    offline::Asked,
    plan::{PlanOutcome, Rejection},
    protocol::Standing,
    reason::{CutCounts, Reason},
    request::{Request, RequestDocument},
    trust::{Authorization, PublicKey},
};

use futures::future::join_all;

use super::state::ApiState;

/// Most users whose standings sites are asked for; of further ones nothing is known before their holds.
const USERS_MAX: usize = 16;

/// A user, with something that the user has signed.
#[derive(Clone)]
pub struct Signer {
    pub key: PublicKey,
    pub authorization: Authorization,
}

/// What sites leave to one user, by site.
type Standings = BTreeMap<SiteId, Arc<Standing>>;

/// What the users of a batch get nothing of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Denied {
    /// Hosts that no user of the batch gets.
    by_all: u64,
    /// By request, further hosts that its user does not get.
    of_request: Vec<u64>,
}

/// Asks the sites of these hosts what they leave to whom, and takes away the rest.
pub async fn leave(
    state: &ApiState,
    hosts: &mut Vec<FoundHost>,
    asked: &mut [Asked],
    signers: &[Option<Signer>],
) -> Denied {
    let sites: BTreeSet<SiteId> = hosts.iter().filter(|host| host.offer.asks).map(|host| host.site.clone()).collect();
    let mut users: BTreeMap<PublicKey, &Authorization> = BTreeMap::new();
    for Signer { key, authorization } in signers.iter().flatten().filter(|_| !sites.is_empty()) {
        if users.len() < USERS_MAX {
            users.entry(*key).or_insert(authorization);
        }
    }
    let ask = |(key, authorization): (PublicKey, &Authorization)| {
        let answers = state.coordinator.standings_at(sites.clone(), authorization.clone());
        async move { (key, answers.await) }
    };
    let users: BTreeMap<PublicKey, Standings> = join_all(users.into_iter().map(ask)).await.into_iter().collect();
    let of_request: Vec<Option<&Standings>> = signers.iter().map(|signer| users.get(&signer.as_ref()?.key)).collect();
    taken_away(hosts, asked, &of_request)
}

/// Leaves out the hosts that no user gets, and lets each request choose among those that its user gets. Where all are of one user, what is
/// left of each host is in the host's schedule as well.
fn taken_away(hosts: &mut Vec<FoundHost>, asked: &mut [Asked], standings: &[Option<&Standings>]) -> Denied {
    let is_denied = |of: Option<&Standings>, site: &SiteId| {
        of.and_then(|of| of.get(site)).is_some_and(|standing| standing.denial.is_some())
    };
    let before = hosts.len();
    hosts.retain(|host| standings.is_empty() || !standings.iter().all(|of| is_denied(*of, &host.site)));
    let by_all = (before - hosts.len()) as u64;
    if let [Some(first), others @ ..] = standings
        && others.iter().all(|of| of.is_some_and(|of| std::ptr::eq(of, *first)))
    {
        hosts.iter_mut().for_each(|host| host.standing = first.get(&host.site).cloned());
    }
    let narrow = |(one, of): (&mut Asked, &Option<&Standings>)| {
        let (denied, left): (Vec<&FoundHost>, Vec<&FoundHost>) =
            hosts.iter().partition(|host| is_denied(*of, &host.site));
        let count = denied.len() as u64;
        if count > 0 {
            one.shapes.iter_mut().for_each(|shape| among(shape, &left, count));
        }
        count
    };
    Denied { by_all, of_request: asked.iter_mut().zip(standings).map(narrow).collect() }
}

/// Lets a request choose among these hosts alone, of those that it names if it names any; so many others are denied to its user.
fn among(shape: &mut Result<Request, Rejection>, hosts: &[&FoundHost], denied: u64) {
    let Ok(request) = shape else { return };
    let needs = request.demand().host_needs();
    let is_named = |host: &&&FoundHost| needs.first_unmet(&host.site, &host.host) != Some(Unmet::Candidates);
    let name = |host: &&FoundHost| HostId::new(&format!("{}/{}", host.site, host.host.id)).ok();
    let candidates: Vec<HostId> = hosts.iter().filter(is_named).filter_map(name).collect();
    let (found, asked) = (candidates.len() as u64, request.demand().seats() as u64);
    let narrowed = RequestDocument { candidates: Some(candidates), ..RequestDocument::from(request.clone()) };
    *shape = Request::try_from(narrowed).map_err(|_| {
        let cut = CutCounts { candidates: denied, ..CutCounts::default() }.into();
        Rejection { reason: Reason::TooFewHosts { found, asked, cut }, start_proven: true }
    });
}

impl Denied {
    /// The same outcome of a request, which says that rules about users have cut these hosts.
    pub fn told(&self, request: usize, outcome: PlanOutcome) -> PlanOutcome {
        let of_request = self.of_request.get(request).copied().unwrap_or(0);
        let count = |cut: CutCounts| {
            let by_name = cut.candidates.min(of_request);
            CutCounts { users: cut.users + self.by_all + of_request, candidates: cut.candidates - by_name, ..cut }
        };
        match outcome {
            PlanOutcome::Rejected(Rejection { reason, start_proven }) => {
                PlanOutcome::Rejected(Rejection { reason: reason.recounted(&count), start_proven })
            }
            allocated @ PlanOutcome::Allocated(_) => allocated,
        }
    }
}

#[cfg(test)]
mod tests {
    use broker::{
        amount::Amount,
        host::Host,
        ids::RequestId,
        resources::{Amounts, ResourceName},
        trust::{Denial, Rule},
    };

    use super::*;

    fn host(site: &str, id: &str) -> FoundHost {
        FoundHost {
            site: SiteId::new(site).unwrap(),
            host: Host {
                id: HostId::new(id).unwrap(),
                capacity: Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(4_000))]),
                attributes: Default::default(),
                speed: Default::default(),
                tariff: Default::default(),
            },
            schedule: Default::default(),
            version: Default::default(),
            offer: Default::default(),
            standing: None,
        }
    }

    fn asked(id: &str, request: &str) -> Asked {
        Asked::new(RequestId::new(id).unwrap(), &serde_json::from_str(request).unwrap())
    }

    /// Nothing at these sites.
    fn denied_at(sites: &[&str]) -> Standings {
        let denial = Some(Denial::new(Rule::OwnerDeny, "not you"));
        let nothing = Arc::new(Standing { denial, ..Standing::default() });
        sites.iter().map(|site| (SiteId::new(site).unwrap(), nothing.clone())).collect()
    }

    fn named(asked: &Asked) -> Vec<String> {
        let request = asked.request().unwrap();
        request.demand().candidates().unwrap_or_default().iter().map(HostId::to_string).collect()
    }

    #[test]
    fn a_host_that_no_user_gets_is_left_out_and_one_that_some_get_is_for_them() {
        let two = r#"{"hosts":2,"duration":60}"#;
        let (ada, bob) = (denied_at(&["a", "b"]), denied_at(&["a"]));
        let mut hosts = vec![host("a", "1"), host("b", "1"), host("c", "1"), host("c", "2")];
        let mut requests = [asked("x", two), asked("y", two), asked("z", r#"{"hosts":3,"duration":60}"#)];
        let denied = taken_away(&mut hosts, &mut requests, &[Some(&ada), Some(&bob), Some(&ada)]);
        assert_eq!(hosts.iter().map(|host| host.site.as_str()).collect::<Vec<_>>(), ["b", "c", "c"]);
        assert_eq!(denied, Denied { by_all: 1, of_request: vec![1, 0, 1] });
        assert_eq!((named(&requests[0]), named(&requests[1])), (vec!["c/1".to_owned(), "c/2".to_owned()], vec![]));
        let Err(rejection) = &requests[2].shapes[0] else { panic!("two hosts are not three") };
        let told = denied.told(2, PlanOutcome::Rejected(rejection.clone()));
        let PlanOutcome::Rejected(Rejection { reason, .. }) = told else { unreachable!() };
        let expected = "2 of 3 hosts satisfy the minima and attributes; hosts cut by rules of owners about users 2";
        assert_eq!(reason.detail(), expected);
    }

    #[test]
    fn of_one_user_all_that_is_left_is_planned_with_and_of_an_unknown_one_nothing_is_taken() {
        let two = r#"{"hosts":2,"duration":60,"candidates":["1","2"]}"#;
        let mut standings = denied_at(&["a"]);
        standings.insert(SiteId::new("b").unwrap(), Arc::default());
        let (mut hosts, mut requests) = (vec![host("a", "1"), host("b", "1"), host("b", "2")], [asked("x", two)]);
        let denied = taken_away(&mut hosts, &mut requests, &[Some(&standings)]);
        assert_eq!((hosts.len(), denied), (2, Denied { by_all: 1, of_request: vec![0] }));
        assert!(hosts.iter().all(|host| host.standing.is_some()));
        assert_eq!(named(&requests[0]), ["1", "2"]);

        let (mut hosts, mut requests) = (vec![host("a", "1")], [asked("x", two), asked("y", two)]);
        let denied = taken_away(&mut hosts, &mut requests, &[Some(&standings), None]);
        assert_eq!((hosts.len(), denied), (1, Denied { by_all: 0, of_request: vec![1, 0] }));
        assert!(requests[0].shapes[0].is_err() && requests[1].shapes[0].is_ok());
    }
}
