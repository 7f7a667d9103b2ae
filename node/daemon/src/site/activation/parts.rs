//! Which bookings are one activation: a reservation and what lengthens it, as long as it goes on without a gap on the same
//! hosts with the same amounts.
//!
//! Pure: the ledger, the records on disk and the time decide. Invariant: no booking is in two activations; what has
//! begun by itself stays by itself; only what the ledger has counts, so that nothing but the records has to survive a crash.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use broker::{
    ids::{HostId, RequestId},
    ledger::Booking,
    protocol::{AttemptId, Grant, hull},
    resources::Amounts,
    time::{Time, Window},
    trust::PublicKey,
};
use kolo_storage::activation::{ActivationRecord, Terms};

/// What of an activation is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent<'a> {
    /// From its beginning to the end of its last part.
    pub window: Window,
    /// The seats at this site, as they were booked first.
    pub grants: &'a [Grant],
}

impl Extent<'_> {
    /// Whether both are the same for a hook: on the same hosts, whether they are bound to them or not.
    pub fn is_like(self, other: Extent<'_>) -> bool {
        let is_alike = |(one, other): (&Grant, &Grant)| {
            let on_same = Grant { place: other.place.clone(), ..one.clone() };
            one.host() == other.host() && on_same == *other
        };
        self.window == other.window
            && self.grants.len() == other.grants.len()
            && self.grants.iter().zip(other.grants).all(is_alike)
    }

    /// As it is kept on disk.
    pub fn terms(self) -> Terms {
        Terms { window: self.window, grants: self.grants.to_vec() }
    }
}

impl<'a> From<&'a Booking> for Extent<'a> {
    fn from(booking: &'a Booking) -> Extent<'a> {
        Extent { window: hull(&booking.grants).unwrap_or(booking.window), grants: &booking.grants }
    }
}

impl<'a> From<&'a Terms> for Extent<'a> {
    fn from(terms: &'a Terms) -> Extent<'a> {
        Extent { window: terms.window, grants: &terms.grants }
    }
}

/// One activation, known from its record, from the ledger, or from both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activation<'a> {
    /// The booking that it is named after: the first one.
    pub attempt: &'a AttemptId,
    /// What is on disk of it.
    pub record: Option<&'a ActivationRecord>,
    /// The booking that it is named after, while the ledger has it.
    pub booking: Option<&'a Booking>,
    /// What of it is reserved; none when nothing is.
    pub extent: Option<Extent<'a>>,
    /// It lengthens a reservation, but follows nothing here that it could go on from.
    pub is_apart: bool,
}

/// Whose reservation a booking is a part of: its user, and the request that the others lengthen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Family<'a> {
    user_key: Option<PublicKey>,
    /// Who booked, where there is no key.
    user: &'a str,
    request: &'a str,
}

impl<'a> Family<'a> {
    fn new(user_key: Option<PublicKey>, user: &'a str, request: &'a str) -> Family<'a> {
        Family { user_key, user: if user_key.is_some() { "" } else { user }, request }
    }
}

/// All activations. `bases` names the request that a booking says it lengthens, of those without a record.
pub fn activations<'a>(
    records: &'a BTreeMap<AttemptId, ActivationRecord>,
    bookings: impl Iterator<Item = &'a Booking>,
    bases: &'a BTreeMap<AttemptId, RequestId>,
    now: Time,
) -> Vec<Activation<'a>> {
    let mut all = Vec::new();
    let mut parts: BTreeMap<Family<'a>, Vec<&'a Booking>> = BTreeMap::new();
    let mut gone: BTreeMap<&AttemptId, &ActivationRecord> = records.iter().collect();
    for booking in bookings {
        let record = gone.remove(&booking.attempt);
        match bases.get(&booking.attempt) {
            Some(base) => {
                let family = Family::new(booking.user_key, &booking.user, base.as_str());
                parts.entry(family).or_default().push(booking);
            }
            None => all.push(Activation {
                attempt: &booking.attempt,
                record,
                booking: Some(booking),
                extent: Some(booking.into()),
                is_apart: false,
            }),
        }
    }
    all.extend(gone.into_iter().map(|(attempt, record)| Activation {
        attempt,
        record: Some(record),
        booking: None,
        extent: None,
        is_apart: false,
    }));
    for activation in &mut all {
        let open = activation.record.filter(|record| !record.is_closing());
        if activation.record.is_some() && open.is_none() {
            continue;
        }
        if let Some(parts) = parts.get_mut(&family_of(activation)) {
            activation.extent = match (activation.extent, open) {
                (None, Some(record)) => gone_on(&record.told, parts, now),
                (extent, _) => extent.map(|extent| joined(extent, parts)),
            };
        }
    }
    for mut apart in parts.into_values() {
        apart.sort_by_key(|booking| (Reverse(booking.window.start), Reverse(&booking.attempt)));
        while let Some(first) = apart.pop() {
            let extent = Some(joined(first.into(), &mut apart));
            all.push(Activation {
                attempt: &first.attempt,
                record: None,
                booking: Some(first),
                extent,
                is_apart: true,
            });
        }
    }
    all
}

fn family_of<'a>(activation: &Activation<'a>) -> Family<'a> {
    let request = activation.attempt.request.as_str();
    match (activation.record, activation.booking) {
        (Some(record), _) => {
            let base = record.extends.as_ref().map_or(request, RequestId::as_str);
            Family::new(record.user_key, &record.user, base)
        }
        (None, Some(booking)) => Family::new(booking.user_key, &booking.user, request),
        (None, None) => Family::new(None, "", request),
    }
}

/// `extent` with those parts that it goes on with, which are taken out.
fn joined<'a>(extent: Extent<'a>, parts: &mut Vec<&'a Booking>) -> Extent<'a> {
    let Extent { mut window, grants } = extent;
    while let Some(end) = take_layer(grants, parts, |layer| layer.start == window.end && layer.end > window.end) {
        window.end = end;
    }
    Extent { window, grants }
}

/// What of an activation is reserved whose first booking the ledger has no more: it has gone on when what it was to go on
/// with is reserved now, else it was taken back.
fn gone_on<'a>(told: &'a Terms, parts: &mut Vec<&'a Booking>, now: Time) -> Option<Extent<'a>> {
    let may_be_now = |layer: Window| {
        layer.start <= now && now < layer.end && layer.start > told.window.start && layer.start <= told.window.end
    };
    let end = take_layer(&told.grants, parts, may_be_now)?;
    let window = Window { start: told.window.start, end };
    Some(joined(Extent { window, grants: &told.grants }, parts))
}

/// Takes out parts of one window that `fits` and together give just `grants`, and returns the window's end; the longest
/// one if there are several. Hosts that end apart go on with nothing: there would be a gap.
fn take_layer(grants: &[Grant], parts: &mut Vec<&Booking>, fits: impl Fn(Window) -> bool) -> Option<Time> {
    let wanted: BTreeMap<&HostId, &Amounts> = grants.iter().map(|grant| (grant.host(), &grant.amounts)).collect();
    let ends_together = |grants: &[Grant]| grants.iter().all(|grant| grant.window.end == grants[0].window.end);
    if wanted.is_empty() || wanted.len() < grants.len() || !ends_together(grants) {
        return None;
    }
    let mut layers: BTreeMap<(Reverse<Time>, Time), Vec<&Booking>> = BTreeMap::new();
    for part in parts.iter().filter(|part| fits(part.window) && ends_together(&part.grants)) {
        layers.entry((Reverse(part.window.end), part.window.start)).or_default().push(part);
    }
    layers.into_iter().find_map(|((Reverse(end), _), mut layer)| {
        // A later attempt of a request comes in the place of an earlier one, which may still be there for a moment.
        layer.sort_by_key(|part| {
            let AttemptId { entry_point, request, attempt } = &part.attempt;
            (Reverse(part.grants.len()), request, Reverse(attempt), entry_point)
        });
        let taken = covering(&wanted, &layer)?;
        parts.retain(|part| !taken.contains(&part.attempt));
        Some(end)
    })
}

/// Those of `layer` that give each host of `wanted` once and nothing else, the first ones that fit; none when hosts are left over.
fn covering<'a>(wanted: &BTreeMap<&HostId, &Amounts>, layer: &[&'a Booking]) -> Option<BTreeSet<&'a AttemptId>> {
    let mut left = wanted.clone();
    let mut taken = BTreeSet::new();
    for part in layer {
        let is_wanted = |grant: &Grant| left.get(grant.host()) == Some(&&grant.amounts);
        if !part.grants.is_empty() && part.grants.iter().all(is_wanted) {
            for grant in &part.grants {
                left.remove(grant.host());
            }
            taken.insert(&part.attempt);
        }
    }
    left.is_empty().then_some(taken)
}

#[cfg(test)]
mod tests;
