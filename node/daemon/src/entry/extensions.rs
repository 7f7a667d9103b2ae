//! Requests that lengthen reservations: which of them belong to which, and how long a reservation lasts with them.
//!
//! A site grants what the user has signed, and a signed request has one duration; so more time is a request of its own, for
//! the same hosts right behind. Its key `extends` says which reservation it lengthens. Invariant: a request counts as a part of
//! another only when both are of the same user, and a reservation lasts as long as all its hosts are there without a gap.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use broker::{
    ids::{HostId, RequestId, SiteId},
    negotiation::RequestRecord,
    plan::{Plan, Seat},
    time::{Time, Window},
};
use kolo_runtime::lock::locked;

use super::request::{ShownStage, Snapshot};

/// Most parts of a reservation that are looked at, the first ones.
pub const PARTS_MAX: usize = 1_000;

fn is_of_same_user(one: &RequestRecord, other: &RequestRecord) -> bool {
    let key = |record: &RequestRecord| record.authorization.as_ref().map(|authorization| authorization.request.author);
    key(one) == key(other) && one.submitted_for == other.submitted_for && (key(one).is_some() || one.user == other.user)
}

/// Requests by the reservation that they say they lengthen, in the order in which they came.
#[derive(Default)]
pub(super) struct Extensions {
    by_base: Mutex<BTreeMap<RequestId, BTreeSet<(u64, RequestId)>>>,
}

impl Extensions {
    /// Takes a request in, if it says that it lengthens another.
    pub(super) fn add(&self, record: &RequestRecord) {
        if let Some(base) = record.request.extends() {
            locked(&self.by_base).entry(base.clone()).or_default().insert((record.submitted_ms, record.id.clone()));
        }
    }

    /// Takes a request out that is forgotten.
    pub(super) fn remove(&self, record: &RequestRecord) {
        let Some(base) = record.request.extends() else { return };
        let mut by_base = locked(&self.by_base);
        if let Some(parts) = by_base.get_mut(base) {
            parts.remove(&(record.submitted_ms, record.id.clone()));
            if parts.is_empty() {
                by_base.remove(base);
            }
        }
    }

    /// The requests that say they lengthen `base`, the oldest first.
    pub(super) fn behind(&self, base: &RequestId) -> Vec<RequestId> {
        let by_base = locked(&self.by_base);
        by_base.get(base).into_iter().flatten().take(PARTS_MAX).map(|(_, id)| id.clone()).collect()
    }
}

/// The reservation that `part` lengthens, if it is known and of the same user. `get` finds requests of this node.
pub(super) fn base_of(
    part: &RequestRecord,
    get: impl Fn(&RequestId) -> Option<Arc<RequestRecord>>,
) -> Option<RequestId> {
    let base = get(part.request.extends()?)?;
    // What lengthens something is no reservation of its own, so chains do not arise.
    let is_base = base.request.extends().is_none() && is_of_same_user(part, &base);
    is_base.then(|| base.id.clone())
}

/// When each seat of `plan` ends with the `parts` that lengthen its reservation, in the order of the seats.
pub fn seat_ends(plan: &Plan, parts: &[Snapshot]) -> Vec<Time> {
    let mut behind: BTreeMap<(&SiteId, &HostId), Vec<Window>> = BTreeMap::new();
    for part in parts {
        for seat in part.stage.reserved_plan().into_iter().flat_map(|plan| &plan.seats) {
            let is_lost = match &part.stage {
                ShownStage::Degraded { reservation, .. } => reservation.is_lost(seat.number),
                _ => false,
            };
            if !is_lost {
                behind.entry((&seat.site, seat.host())).or_default().push(seat.window);
            }
        }
    }
    behind.values_mut().for_each(|windows| windows.sort_by_key(|window| window.start));
    let end_of = |seat: &Seat| {
        let windows = behind.get(&(&seat.site, seat.host())).into_iter().flatten();
        windows.fold(seat.window.end, |end, window| if window.start <= end { end.max(window.end) } else { end })
    };
    plan.seats.iter().map(end_of).collect()
}

/// When the reservation of `base` ends with the `parts` that lengthen it: as much later as all its hosts are there longer;
/// none when nothing is reserved.
pub fn end_with(base: &Snapshot, parts: &[Snapshot]) -> Option<Time> {
    let plan = base.stage.reserved_plan()?;
    let longer = plan.seats.iter().zip(seat_ends(plan, parts)).map(|(seat, end)| end.since(seat.window.end)).min();
    Some(plan.end() + longer.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use broker::{
        ids::SeatNumber,
        negotiation::{Loss, Reservation},
        plan::{ObjectiveValue, Place},
        request::Request,
        resources::Amounts,
        trust::{Authorization, PublicKey, Signature, SignedText},
    };
    use ed25519_dalek::SigningKey;
    use proptest::prelude::*;

    use super::*;

    fn request(id: &str, extends: Option<&str>, user: u8, window: (i64, i64), hosts: &[u8]) -> Snapshot {
        let mut document = serde_json::json!({ "hosts": hosts.len().max(1), "duration": window.1 - window.0 });
        if let Some(base) = extends {
            document["extends"] = base.into();
        }
        let request: Request = serde_json::from_value(document).unwrap();
        let author = PublicKey::of(&SigningKey::from_bytes(&[user; 32]));
        let signed = SignedText { text: String::new(), author, signature: Signature::from_bytes([0; 64]) };
        let authorization = Authorization { request: signed, user: None, entry_point: None };
        let id = RequestId::new(id).unwrap();
        let record = RequestRecord::arrived(id, "ada".to_owned(), request, authorization, 1, (Time(0), Time(0)));
        let seat = |(number, host): (u32, &u8)| Seat {
            number: SeatNumber(number),
            site: SiteId::new("s").unwrap(),
            place: Place::Host(HostId::new(&host.to_string()).unwrap()),
            window: Window { start: Time(window.0), end: Time(window.1) },
            amounts: Amounts::new(),
            agreed: Default::default(),
        };
        let plan = Plan {
            shape: Default::default(),
            start: Time(window.0),
            traffic: None,
            scale: Default::default(),
            seats: (0..).zip(hosts).map(seat).collect(),
            objective: ObjectiveValue {
                kind: broker::request::ObjectiveKind::Start,
                value: window.0,
                bound: Some(window.0),
            },
            efficiency: 1.0,
            efficiency_bound: 1.0,
            start_proven: true,
        };
        Snapshot { revision: 1, record: Arc::new(record), stage: ShownStage::Reserved(plan), member: None }
    }

    #[test]
    fn only_requests_of_the_same_user_belong_together() {
        let base = request("base", None, 1, (0, 10), &[1]);
        let known = [base.clone(), request("more", Some("base"), 1, (10, 20), &[1])];
        let get = |id: &RequestId| known.iter().find(|one| one.record.id == *id).map(|one| one.record.clone());
        assert_eq!(base_of(&known[1].record, get), Some(base.record.id.clone()));
        for (extends, user) in [("base", 2), ("none", 1), ("more", 1)] {
            let part = request("x", Some(extends), user, (10, 20), &[1]);
            assert_eq!(base_of(&part.record, get), None, "{extends} {user}");
        }
    }

    #[test]
    fn what_is_added_is_found_in_order_until_it_is_forgotten() {
        let index = Extensions::default();
        let [first, second] = ["a", "b"].map(|id| request(id, Some("base"), 1, (0, 1), &[]).record);
        for record in [&second, &first, &request("c", None, 1, (0, 1), &[]).record] {
            index.add(record);
        }
        let base = RequestId::new("base").unwrap();
        assert_eq!(index.behind(&base), [first.id.clone(), second.id.clone()]);
        index.remove(&first);
        index.remove(&second);
        assert!(index.behind(&base).is_empty() && locked(&index.by_base).is_empty());
    }

    #[test]
    fn hosts_that_end_apart_are_there_longer_each_by_itself() {
        let mut base = request("base", None, 1, (0, 10), &[1, 2]);
        let ShownStage::Reserved(plan) = &mut base.stage else { unreachable!() };
        plan.seats[1].window.end = Time(30);
        let plan = plan.clone();
        let parts =
            [request("slow", Some("base"), 1, (30, 40), &[2]), request("fast", Some("base"), 1, (10, 20), &[1])];
        assert_eq!(seat_ends(&plan, &parts), [Time(20), Time(40)]);
        assert_eq!((end_with(&base, &parts), end_with(&base, &parts[..1])), (Some(Time(40)), Some(Time(30))));
    }

    #[test]
    fn a_lost_host_is_not_there() {
        let base = request("base", None, 1, (0, 10), &[1, 2]);
        let mut more = request("more", Some("base"), 1, (10, 20), &[1, 2]);
        assert_eq!(end_with(&base, &[more.clone()]), Some(Time(20)));
        let ShownStage::Reserved(plan) = more.stage else { unreachable!() };
        let lost = [(SeatNumber(0), Loss::TakenBack)].into();
        let reservation = Reservation { plan, parts: Vec::new(), lost, repair: None, repairs: 0, failure: None };
        more.stage = ShownStage::Degraded { reservation: Box::new(reservation), is_rebrokering: false };
        assert_eq!(end_with(&base, &[more]), Some(Time(10)));
    }

    #[test]
    fn hosts_that_end_apart_end_together_only_when_all_go_on() {
        let mut base = request("base", None, 1, (0, 10), &[1, 2]);
        let ShownStage::Reserved(plan) = &mut base.stage else { unreachable!() };
        plan.seats[1].window.end = Time(7);
        let [both, slower, faster] = [(10, &[1, 2][..]), (10, &[1]), (7, &[2])]
            .map(|(from, hosts)| request("x", Some("behind-base"), 1, (from, 20), hosts));
        assert_eq!(end_with(&base, &[]), Some(Time(10)));
        assert_eq!(end_with(&base, &[both]), Some(Time(10)), "one of them was gone from 7 on");
        assert_eq!(end_with(&base, &[slower, faster]), Some(Time(20)));
    }

    proptest! {
        /// Against a look at every single second.
        #[test]
        fn it_lasts_as_long_as_all_hosts_are_there(
            hosts in prop::collection::btree_set(0_u8..4, 1..4),
            parts in prop::collection::vec((5_i64..20, 1_i64..8, prop::collection::btree_set(0_u8..4, 0..4)), 0..8),
        ) {
            let list = |hosts: &BTreeSet<u8>| hosts.iter().copied().collect::<Vec<_>>();
            let base = request("base", None, 1, (0, 10), &list(&hosts));
            let is_there = |host: u8, at: i64| {
                (0..10).contains(&at)
                    || parts.iter().any(|(from, long, hosts)| (*from..from + long).contains(&at) && hosts.contains(&host))
            };
            let expected = (0..).find(|at| !hosts.iter().all(|host| is_there(*host, *at))).map(Time);
            let parts: Vec<Snapshot> = parts
                .iter()
                .map(|(from, long, hosts)| request("x", Some("base"), 1, (*from, from + long), &list(hosts)))
                .collect();
            prop_assert_eq!(end_with(&base, &parts), expected);
        }
    }
}
