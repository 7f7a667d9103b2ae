//! Classes: hosts of one site that are alike, told as one, so that a thousand of them take no more room than one.
//!
//! Invariant: [`Hosts`] unfold into what they were made of, in the same order. The name of a member is that of its class, a hyphen, and its
//! number without a zero in front; so a name is of one class at most.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use serde::{Deserialize, Serialize};

use crate::model::{
    host::Host,
    ids::{HostId, IdError},
};

/// Why hosts are no class, or no hosts of one site.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClassError {
    /// There would be none, or more than there may be.
    #[error("expected 1 to {most} hosts, got {count}")]
    Count {
        /// How many were asked for.
        count: u64,
        /// How many there may be.
        most: usize,
    },
    /// The name of the class leaves no room for a number.
    #[error("the names of its hosts: {0}")]
    Name(IdError),
    /// A class has no host, or numbers that are too large.
    #[error("class {0}: its numbers are none, or too large")]
    Numbers(HostId),
    /// Two hosts have one name.
    #[error("host {0} is named twice")]
    Twice(HostId),
}

/// The names of the hosts of a class: its own name with a number, from 1 on.
///
/// # Errors
/// [`ClassError`] of no host, of more than `most`, and of a name that is too long.
pub fn hosts_of_class(class: &HostId, count: u64, most: usize) -> Result<Vec<HostId>, ClassError> {
    let is_allowed = count > 0 && usize::try_from(count).is_ok_and(|count| count <= most);
    let count = u32::try_from(count).ok().filter(|_| is_allowed).ok_or(ClassError::Count { count, most })?;
    (1..=count).map(|number| name(class, number).map_err(ClassError::Name)).collect()
}

fn name(class: &HostId, number: u32) -> Result<HostId, IdError> {
    HostId::new(&format!("{class}-{number}"))
}

/// The class and the number in a name that has both.
#[must_use]
pub fn numbered(host: &HostId) -> Option<(HostId, u32)> {
    let (class, number) = class_and_number(host)?;
    Some((HostId::new(class).ok()?, number))
}

/// The same, with the name of the class as it stands there.
pub(crate) fn class_and_number(host: &HostId) -> Option<(&str, u32)> {
    let (class, digits) = host.as_str().rsplit_once('-')?;
    let is_plain = digits == "0" || digits.starts_with(|digit: char| ('1'..='9').contains(&digit));
    Some((class, digits.parse().ok().filter(|_| is_plain)?))
}

/// One host, or several that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostClass {
    /// What each of them is. Its name is the host's own where there are no members, else that of the class.
    pub host: Host,
    /// The hosts of the class; none of one host.
    pub members: Option<Members>,
}

/// The numbers in the names of a class's hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Members {
    /// The first.
    pub first: u32,
    /// How many there are, one after the other.
    pub count: u32,
}

impl Members {
    /// The last number; none where that is too large, or there is none.
    fn last(self) -> Option<u32> {
        self.first.checked_add(self.count.checked_sub(1)?)
    }

    /// Whether one of them has this number.
    #[must_use]
    pub fn contains(self, number: u32) -> bool {
        number.checked_sub(self.first).is_some_and(|behind| behind < self.count)
    }
}

/// How many hosts a class has.
#[must_use]
pub fn count_of(members: Option<Members>) -> usize {
    members.map_or(1, |members| members.count as usize)
}

/// The name of the host at this place, from 0 on, of a class that was checked.
#[must_use]
pub fn name_at((class, members): (&HostId, Option<Members>), place: usize) -> Option<HostId> {
    match members {
        None => (place == 0).then(|| class.clone()),
        Some(members) => {
            let place = u32::try_from(place).ok().filter(|place| *place < members.count)?;
            name(class, members.first.checked_add(place)?).ok()
        }
    }
}

impl HostClass {
    /// How many hosts these are.
    #[must_use]
    pub fn count(&self) -> usize {
        count_of(self.members)
    }

    /// Their names, in the order of their numbers.
    pub fn names(&self) -> impl Iterator<Item = HostId> + '_ {
        (0..self.count()).map_while(|place| name_at((&self.host.id, self.members), place))
    }

    /// The hosts, in the same order.
    pub fn hosts(&self) -> impl Iterator<Item = Host> + '_ {
        self.names().map(|id| Host { id, ..self.host.clone() })
    }

    /// Takes a host in that is like these and has the next number; whether it is.
    fn take(&mut self, next: &Host) -> bool {
        let Some((class, number)) = numbered(&next.id) else { return false };
        let members = match self.members {
            Some(members) if self.host.id == class => members,
            Some(_) => return false,
            None => match numbered(&self.host.id) {
                Some((own, first)) if own == class => Members { first, count: 1 },
                _ => return false,
            },
        };
        let is_next = members.last().and_then(|last| last.checked_add(1)) == Some(number);
        let like = Host { id: self.host.id.clone(), ..next.clone() };
        if !is_next || like != self.host {
            return false;
        }
        self.host.id = class;
        self.members = Some(Members { count: members.count + 1, ..members });
        true
    }
}

/// The hosts of a site, those that are alike as one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hosts(Vec<HostClass>);

impl FromIterator<Host> for Hosts {
    fn from_iter<I: IntoIterator<Item = Host>>(hosts: I) -> Hosts {
        let mut classes: Vec<HostClass> = Vec::new();
        for host in hosts {
            if !classes.last_mut().is_some_and(|last| last.take(&host)) {
                classes.push(HostClass { host, members: None });
            }
        }
        Hosts(classes)
    }
}

impl Hosts {
    /// The classes, also of one host.
    #[must_use]
    pub fn classes(&self) -> &[HostClass] {
        &self.0
    }

    /// The same, to change them.
    pub fn classes_mut(&mut self) -> &mut [HostClass] {
        &mut self.0
    }

    /// How many hosts there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.iter().map(HostClass::count).fold(0, usize::saturating_add)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each host on its own.
    pub fn iter(&self) -> impl Iterator<Item = Host> + '_ {
        self.0.iter().flat_map(HostClass::hosts)
    }

    /// The host of this name.
    #[must_use]
    pub fn get(&self, host: &HostId) -> Option<Host> {
        let in_class = numbered(host);
        let has = |class: &&HostClass| match (class.members, &in_class) {
            (None, _) => class.host.id == *host,
            (Some(members), Some((name, number))) => class.host.id == *name && members.contains(*number),
            (Some(_), None) => false,
        };
        let class = self.0.iter().find(has)?;
        Some(Host { id: host.clone(), ..class.host.clone() })
    }

    /// Checks that there are no more than `most`, and that each has a name of its own, without unfolding anything.
    ///
    /// # Errors
    /// [`ClassError`].
    pub fn check(&self, most: usize) -> Result<(), ClassError> {
        let count = self.count();
        if count > most {
            return Err(ClassError::Count { count: count as u64, most });
        }
        let mut names: BTreeSet<HostId> = BTreeSet::new();
        let mut numbers: BTreeMap<HostId, Vec<Members>> = BTreeMap::new();
        for HostClass { host, members } in &self.0 {
            let one = || numbered(&host.id).map(|(class, first)| (class, Members { first, count: 1 }));
            match members.map(|members| (host.id.clone(), members)).or_else(one) {
                Some((class, members)) => {
                    let last = members.last().ok_or_else(|| ClassError::Numbers(class.clone()))?;
                    name(&class, last).map_err(ClassError::Name)?;
                    numbers.entry(class).or_default().push(members);
                }
                None if names.insert(host.id.clone()) => {}
                None => return Err(ClassError::Twice(host.id.clone())),
            }
        }
        for (class, mut spans) in numbers {
            spans.sort_unstable_by_key(|members| members.first);
            let overlaps = |(one, next): &(&Members, &Members)| one.contains(next.first);
            if let Some((_, next)) = iter::zip(&spans, &spans[1..]).find(overlaps) {
                return Err(name(&class, next.first).map_or_else(ClassError::Name, ClassError::Twice));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{amount::Amount, resources::ResourceName};

    fn host(id: &str, cores: u64) -> Host {
        Host {
            id: HostId::new(id).unwrap(),
            capacity: [(ResourceName::new("cpu").unwrap(), Amount(cores))].into(),
            attributes: Default::default(),
            speed: Default::default(),
            tariff: Default::default(),
        }
    }

    fn class(id: &str, first: u32, count: u32) -> HostClass {
        HostClass { host: host(id, 1), members: Some(Members { first, count }) }
    }

    fn a_name() -> impl Strategy<Value = String> {
        let number = prop_oneof![(0_u32..6).prop_map(|number| number.to_string()), Just("01".to_owned())];
        (prop_oneof![Just("a"), Just("a-1"), Just("b"), Just("-")], number).prop_flat_map(
            |(class, number)| prop_oneof![3 => Just(format!("{class}-{number}")), 1 => Just(class.to_owned())],
        )
    }

    proptest! {
        #[test]
        fn hosts_unfold_into_what_they_were_made_of(hosts in prop::collection::vec((a_name(), 1_u64..3), 0..20)) {
            let hosts: Vec<Host> = hosts.iter().map(|(name, cores)| host(name, *cores)).collect();
            let folded: Hosts = hosts.iter().cloned().collect();
            prop_assert_eq!(folded.iter().collect::<Vec<_>>(), hosts.clone());
            prop_assert_eq!(folded.count(), hosts.len());
            for asked in &hosts {
                let first = hosts.iter().find(|host| host.id == asked.id).cloned();
                prop_assert_eq!(folded.get(&asked.id), first);
            }
            let names: BTreeSet<&HostId> = hosts.iter().map(|host| &host.id).collect();
            prop_assert_eq!(folded.check(20).is_ok(), names.len() == hosts.len());
        }
    }

    #[test]
    fn a_thousand_alike_are_one_and_what_is_unlike_or_out_of_order_is_not() {
        let names = hosts_of_class(&HostId::new("n").unwrap(), 1_000, 1_000).unwrap();
        let hosts: Hosts = names.iter().map(|id| host(id.as_str(), 1)).collect();
        assert_eq!(hosts.classes(), [class("n", 1, 1_000)]);
        assert_eq!(
            (hosts.get(&names[999]).map(|host| host.id), hosts.get(&HostId::new("n-1001").unwrap())),
            (Some(names[999].clone()), None)
        );
        let unlike: Hosts =
            [host("n-1", 1), host("n-2", 2), host("n-3", 2), host("n-5", 2), host("n-04", 2)].into_iter().collect();
        let counts: Vec<usize> = unlike.classes().iter().map(HostClass::count).collect();
        assert_eq!(counts, [1, 2, 1, 1]);
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_unfolds() {
        let check = |classes: &[HostClass]| Hosts(classes.to_vec()).check(1_000);
        assert_eq!(check(&[class("n", 1, 1_000)]), Ok(()));
        assert!(matches!(check(&[class("n", 1, u32::MAX), class("m", 1, u32::MAX)]), Err(ClassError::Count { .. })));
        assert!(matches!(check(&[class("n", 1, 0)]), Err(ClassError::Numbers(_))));
        assert!(matches!(check(&[class("n", u32::MAX, 2)]), Err(ClassError::Numbers(_))));
        assert!(matches!(check(&[class(&"n".repeat(126), 9, 2)]), Err(ClassError::Name(IdError::TooLong(129)))));
        let single = |id| HostClass { host: host(id, 1), members: None };
        let twice = |id: &str| Err(ClassError::Twice(HostId::new(id).unwrap()));
        assert_eq!(check(&[class("n", 1, 9), class("n", 9, 2)]), twice("n-9"));
        assert_eq!(check(&[single("n-4"), class("n", 1, 9)]), twice("n-4"));
        assert_eq!(check(&[single("n"), single("n")]), twice("n"));
        assert_eq!(check(&[single("n"), single("n-04"), class("n", 1, 4)]), Ok(()));
    }
}
