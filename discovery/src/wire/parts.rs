//! The schedules of a site as they travel: in parts, whatever their size, all of one version.
//!
//! Invariants: a part fits into an answer; a host, a resource or a use that does not fit into one goes on in the next; and an [`Assembly`]
//! keeps no more than a site may tell, whatever is put into it, and gives nothing out before the last part is there. Lists are bounded while
//! they are read: a host that takes three bytes on the wire takes a hundred in memory.

use std::{collections::BTreeMap, marker::PhantomData};

use broker::{
    amount::Amount,
    classes::Members,
    ids::{HostId, SiteId},
    protocol::{ClassSchedules, LedgerVersion, ScheduleSnapshot, SiteSchedules, USE_STEPS},
    request::MAX_NAMES,
    resources::{Amounts, ResourceName},
    schedule::{Occupancy, Schedule},
    time::Time,
};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{
    check::{Invalid, STEPS_PER_SITE_MAX, UNITS_PER_SITE_MAX, USES_PER_PART_MAX, check_snapshot, check_version},
    encoding::ANSWER_BYTES_MAX,
};

/// Bytes of a part beyond which nothing is put into it.
pub const PART_BYTES: usize = ANSWER_BYTES_MAX / 2;
/// Most parts: twice as many as the most steps need with the longest numbers.
pub const PARTS_MAX: u32 = 256;

/// Steps, as `[time, used]`, in the order of time.
type Steps = Vec<(Time, Amount)>;
/// Some steps of some resources of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HostSteps {
    host: HostId,
    #[serde(deserialize_with = "bounded::<_, _, MAX_NAMES>")]
    resources: Vec<(ResourceName, Steps)>,
}

/// Some steps of a use: on how many hosts of a class, by its place, just these amounts are used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct UseSteps {
    class: u32,
    used: Amounts,
    hosts: Steps,
}

/// What all parts say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// The version of all parts.
    pub version: LedgerVersion,
    /// How many there are.
    pub parts: u32,
    /// From when on hosts may look busier than they are.
    pub coarse_from: Option<Time>,
}

/// A part of the schedules of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSchedules {
    whole: Whole,
    /// Its number, from 0.
    number: u32,
    #[serde(deserialize_with = "bounded::<_, _, UNITS_PER_SITE_MAX>")]
    hosts: Vec<HostSteps>,
    /// All classes; in the first part only.
    #[serde(deserialize_with = "bounded::<_, _, UNITS_PER_SITE_MAX>")]
    classes: Vec<(HostId, Members)>,
    #[serde(deserialize_with = "bounded::<_, _, USES_PER_PART_MAX>")]
    uses: Vec<UseSteps>,
}

impl WireSchedules {
    /// A snapshot of the ledger in parts, at least one; `coarse_from` says from when on it is coarse.
    #[must_use]
    pub fn parts_of(snapshot: &ScheduleSnapshot, coarse_from: Option<Time>) -> Vec<WireSchedules> {
        let mut cutter = Cutter::new(snapshot.version, coarse_from);
        for (class, told) in snapshot.schedules.classes() {
            cutter.part.classes.push((class.clone(), told.members));
            cutter.bytes += class.as_str().len() + NAME_BYTES;
        }
        for (host, schedule) in snapshot.schedules.hosts() {
            for (name, occupancy) in schedule.occupancies() {
                cutter.cut(occupancy, host.as_str().len() + name.as_str().len(), |part, steps| {
                    part.add_host(host, name, steps);
                });
            }
        }
        for (class, (_, told)) in (0..).zip(snapshot.schedules.classes()) {
            for (used, hosts) in told.used.uses() {
                let bytes = used.keys().map(|name| name.as_str().len() + NAME_BYTES).sum();
                cutter.cut(hosts, bytes, |part, hosts| part.uses.push(UseSteps { class, used: used.clone(), hosts }));
            }
        }
        cutter.finish()
    }

    /// What all parts say.
    #[must_use]
    pub fn whole(&self) -> Whole {
        self.whole
    }

    /// How many steps it has, and other entries.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let resources = || self.hosts.iter().flat_map(|host| &host.resources);
        let of_hosts: usize = resources().map(|(_, steps)| steps.len()).sum();
        let of_uses: usize = self.uses.iter().map(|used| used.hosts.len()).sum();
        (of_hosts + of_uses, resources().count() + self.classes.len() + self.uses.len())
    }

    fn add_host(&mut self, host: &HostId, name: &ResourceName, steps: Steps) {
        let resource = (name.clone(), steps);
        match self.hosts.last_mut().filter(|last| last.host == *host) {
            Some(last) => last.resources.push(resource),
            None => self.hosts.push(HostSteps { host: host.clone(), resources: vec![resource] }),
        }
    }
}

/// Cuts schedules into parts.
struct Cutter {
    full: Vec<WireSchedules>,
    part: WireSchedules,
    /// What `part` takes on the wire, at most.
    bytes: usize,
}

/// What stands around a name or a list, at most.
const NAME_BYTES: usize = 16;

impl Cutter {
    fn new(version: LedgerVersion, coarse_from: Option<Time>) -> Cutter {
        let whole = Whole { version, parts: 0, coarse_from };
        let part = WireSchedules { whole, number: 0, hosts: Vec::new(), classes: Vec::new(), uses: Vec::new() };
        Cutter { full: Vec::new(), part, bytes: 64 }
    }

    /// Puts the steps of an occupancy into as many parts as it takes; each time its names take so many bytes more.
    fn cut(&mut self, occupancy: &Occupancy, name_bytes: usize, mut put: impl FnMut(&mut WireSchedules, Steps)) {
        let head = name_bytes + 4 * NAME_BYTES;
        let steps = occupancy.steps();
        let mut rest = &steps[..];
        while !rest.is_empty() {
            let has_room = self.bytes + head + STEP_BYTES_MAX <= PART_BYTES && self.part.uses.len() < USES_PER_PART_MAX;
            if !has_room {
                self.next_part();
            }
            self.bytes += head;
            let fits = |step: &&(Time, Amount)| {
                self.bytes += step_bytes(**step);
                self.bytes <= PART_BYTES
            };
            // At least one, so that this ends.
            let count = rest.iter().take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            put(&mut self.part, now.to_vec());
            rest = later;
        }
    }

    fn next_part(&mut self) {
        let number = self.part.number + 1;
        let next =
            WireSchedules { number, hosts: Vec::new(), classes: Vec::new(), uses: Vec::new(), whole: self.part.whole };
        self.full.push(std::mem::replace(&mut self.part, next));
        self.bytes = 64;
    }

    fn finish(mut self) -> Vec<WireSchedules> {
        self.full.push(self.part);
        let parts = u32::try_from(self.full.len()).unwrap_or(u32::MAX);
        self.full.iter_mut().for_each(|part| part.whole.parts = parts);
        self.full
    }
}

/// The most that a step takes on the wire.
const STEP_BYTES_MAX: usize = 18;

fn step_bytes((time, used): (Time, Amount)) -> usize {
    let number = |number: u64| match number {
        0..=250 => 1,
        251..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    };
    // Of two numbers of one size one stands for a time before 1970.
    number(time.0.unsigned_abs().saturating_mul(2)) + number(used.0)
}

/// Parts of the schedules of one site, put together one after the other.
#[derive(Debug)]
pub struct Assembly {
    whole: Whole,
    /// How many parts are there.
    have: u32,
    hosts: BTreeMap<HostId, BTreeMap<ResourceName, Occupancy>>,
    classes: Vec<(HostId, Members)>,
    uses: BTreeMap<(u32, Amounts), Occupancy>,
    /// As [`SiteSchedules::len`] counts.
    steps: usize,
}

impl Assembly {
    /// Begins with the first part.
    ///
    /// # Errors
    /// [`Invalid`] names the limit that it breaks.
    pub fn of(first: WireSchedules) -> Result<Assembly, Invalid> {
        let whole = first.whole;
        check_version(whole.version)?;
        Invalid::unless((1..=PARTS_MAX).contains(&whole.parts), || {
            format!("{} parts of schedules; expected 1 to {PARTS_MAX}", whole.parts)
        })?;
        let (hosts, classes, uses) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let mut assembly = Assembly { whole, have: 0, hosts, classes, uses, steps: 0 };
        assembly.add(first)?;
        Ok(assembly)
    }

    /// What all parts say.
    #[must_use]
    pub fn whole(&self) -> Whole {
        self.whole
    }

    /// How many parts are there: the number of the next.
    #[must_use]
    pub fn have(&self) -> u32 {
        self.have
    }

    /// Whether all parts are there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.have == self.whole.parts
    }

    /// Puts the next part behind those that are there.
    ///
    /// # Errors
    /// [`Invalid`] when it is another part, or of another version, or makes more than a site may tell; then the assembly is of no use.
    pub fn add(&mut self, part: WireSchedules) -> Result<(), Invalid> {
        let (number, have) = (part.number, self.have);
        Invalid::unless(part.whole == self.whole && number == have && !self.is_complete(), || {
            format!(
                "part {number} of the schedules of {:?}, in the place of part {have} of {:?}",
                part.whole, self.whole
            )
        })?;
        let (steps, entries) = part.size();
        Invalid::unless(self.whole.parts == 1 || entries > 0, || format!("part {number} of the schedules is empty"))?;
        self.have += 1;
        self.steps += steps;
        self.check_steps()?;
        let wrong = |what: &str, error: &dyn std::fmt::Display| Invalid::new(format!("schedules: {what}: {error}"));
        for HostSteps { host, resources } in part.hosts {
            let id = host.to_string();
            let of_host = self.hosts.entry(host).or_default();
            for (name, steps) in resources {
                of_host.entry(name).or_default().append(&steps).map_err(|error| wrong(&id, &error))?;
            }
            let names = of_host.len();
            Invalid::unless(names <= MAX_NAMES, || format!("schedules: {id}: more than {MAX_NAMES} resources"))?;
        }
        let units = self.hosts.len();
        Invalid::unless(units <= UNITS_PER_SITE_MAX, || format!("schedules of more than {UNITS_PER_SITE_MAX} hosts"))?;
        Invalid::unless(number == 0 || part.classes.is_empty(), || "classes behind the first part".to_owned())?;
        self.classes.extend(part.classes);
        for UseSteps { class, used, hosts } in part.uses {
            Invalid::unless((class as usize) < self.classes.len(), || format!("schedules: no class {class}"))?;
            Invalid::unless(used.len() <= MAX_NAMES, || {
                format!("schedules: a use of more than {MAX_NAMES} resources")
            })?;
            let weight = USE_STEPS * (1 + used.len());
            let known = self.uses.entry((class, used)).or_insert_with(|| {
                self.steps += weight;
                Occupancy::default()
            });
            known.append(&hosts).map_err(|error| wrong("a use", &error))?;
        }
        self.check_steps()
    }

    fn check_steps(&self) -> Result<(), Invalid> {
        Invalid::unless(self.steps <= STEPS_PER_SITE_MAX, || {
            format!("schedules of more than {STEPS_PER_SITE_MAX} steps")
        })
    }

    /// The snapshot of `site`, which is the one that was asked.
    ///
    /// # Errors
    /// [`Invalid`] when it breaks a limit, or a part is missing.
    pub fn finish(self, site: SiteId) -> Result<ScheduleSnapshot, Invalid> {
        let Whole { version, parts, .. } = self.whole;
        Invalid::unless(self.have == parts, || format!("{} of {parts} parts of the schedules", self.have))?;
        let mut uses: Vec<Vec<(Amounts, Occupancy)>> = vec![Vec::new(); self.classes.len()];
        for ((class, used), hosts) in self.uses {
            if let Some(of_class) = uses.get_mut(class as usize) {
                of_class.push((used, hosts));
            }
        }
        let classes = self.classes.into_iter().zip(uses);
        let classes = classes
            .map(|((class, members), uses)| (class, ClassSchedules { members, used: uses.into_iter().collect() }));
        let hosts = self.hosts.into_iter().map(|(host, resources)| (host, Schedule::from(resources)));
        let snapshot = ScheduleSnapshot { site, version, schedules: SiteSchedules::new(hosts, classes) };
        check_snapshot(&snapshot).map(|()| snapshot)
    }
}

struct Bounded<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> de::Visitor<'de> for Bounded<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at most {MOST} of a list")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = sequence.next_element()? {
            if values.len() == MOST {
                return Err(de::Error::invalid_length(values.len() + 1, &self));
            }
            values.push(value);
        }
        Ok(values)
    }
}

fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(Bounded::<T, MOST>(PhantomData))
}

#[cfg(test)]
mod tests {
    use broker::{schedule::ClassOccupancy, time::Window};

    use super::*;
    use crate::wire::{decode, encode};

    fn cpu() -> ResourceName {
        ResourceName::new("cpu").unwrap()
    }

    fn amounts(amount: u64) -> Amounts {
        Amounts::from([(cpu(), Amount(amount))])
    }

    fn host(number: usize) -> HostId {
        HostId::new(&format!("host-{number}.example.org")).unwrap()
    }

    /// Hosts with so many steps each, and a class with so many uses.
    fn snapshot(steps_of_hosts: &[usize], uses: u64) -> ScheduleSnapshot {
        let hosts = steps_of_hosts.iter().enumerate().map(|(number, count)| {
            let step = |at: usize| {
                (Time(1_800_000_000 + 60 * i64::try_from(at).unwrap()), Amount(1 + 70_000 * (at as u64 % 2)))
            };
            let steps: Steps = (0..*count).map(step).collect();
            let steps = Occupancy::from_steps(&steps).unwrap();
            (host(number), Schedule::from(BTreeMap::from([(cpu(), steps)])))
        });
        let mut used = ClassOccupancy::default();
        for number in 0..uses {
            let start = Time(1_800_000_000 + 7 * number.cast_signed());
            let window = Window { start, end: Time(start.0 + 100) };
            used.exchange(window, Amount(1), (&Amounts::new(), &amounts(1 + number))).unwrap();
        }
        let class = (HostId::new("n").unwrap(), ClassSchedules { members: Members { first: 1, count: 64 }, used });
        let version = LedgerVersion { incarnation: 1_800_000_000_000, change: 7 };
        let schedules = SiteSchedules::new(hosts, [class]);
        ScheduleSnapshot { site: SiteId::new("s").unwrap(), version, schedules }
    }

    fn assembled(parts: impl IntoIterator<Item = WireSchedules>) -> Result<ScheduleSnapshot, Invalid> {
        let mut parts = parts.into_iter();
        let mut assembly = Assembly::of(parts.next().unwrap())?;
        parts.try_for_each(|part| assembly.add(part))?;
        assembly.finish(SiteId::new("s").unwrap())
    }

    fn travelled(parts: &[WireSchedules]) -> Vec<WireSchedules> {
        let through = |part| {
            let bytes = encode(part).unwrap();
            assert!(bytes.len() <= PART_BYTES, "{} bytes", bytes.len());
            decode::<_, ANSWER_BYTES_MAX>(&bytes).unwrap()
        };
        parts.iter().map(through).collect()
    }

    #[test]
    fn schedules_of_any_size_arrive_as_they_were_in_parts_that_fit() {
        for (steps, uses, expected) in [
            (vec![], 0, 1),
            (vec![3, 1], 2, 1),
            (vec![200_000, 5, 200_000], 3, 5),
            (vec![300; 2_000], 0, 8),
            (vec![1], 20_000, 3),
        ] {
            let sent = snapshot(&steps, uses);
            let parts = WireSchedules::parts_of(&sent, None);
            assert!(parts.len() >= expected && parts.len() <= 2 * expected, "{} parts, {expected}", parts.len());
            assert_eq!(assembled(travelled(&parts)), Ok(sent));
        }
    }

    #[test]
    fn what_is_no_part_of_the_whole_is_refused() {
        let of =
            |change| ScheduleSnapshot { version: LedgerVersion { incarnation: 1, change }, ..snapshot(&[99_000], 2) };
        let parts = WireSchedules::parts_of(&of(3), None);
        let [first, second, ..] = &parts[..] else { panic!("{} parts", parts.len()) };
        let later = WireSchedules::parts_of(&of(4), None);
        let wrong = |parts: Vec<WireSchedules>| assembled(parts).unwrap_err().to_string();
        assert!(wrong(vec![second.clone()]).contains("part 1"), "it does not begin");
        assert!(wrong(vec![first.clone(), first.clone()]).contains("in the place of part 1"));
        assert!(wrong(vec![first.clone(), later[1].clone()]).contains("change: 4"));
        assert!(wrong(vec![first.clone()]).contains("1 of"), "it does not end");
        let many = [parts.clone(), vec![second.clone()]].concat();
        assert!(wrong(many).contains("in the place of"), "it has ended");
        let empty = WireSchedules { hosts: Vec::new(), uses: Vec::new(), ..second.clone() };
        assert!(wrong(vec![first.clone(), empty]).contains("is empty"));
        let mut backwards = second.clone();
        backwards.hosts[0].resources[0].1.reverse();
        assert!(wrong(vec![first.clone(), backwards]).contains("not after"));
        let endless = |parts| Whole { parts, ..first.whole };
        for parts in [0, PARTS_MAX + 1, u32::MAX] {
            assert!(wrong(vec![WireSchedules { whole: endless(parts), ..first.clone() }]).contains("parts of"));
        }
    }

    /// However many parts a site says that there are, what is kept of it is bounded.
    #[test]
    fn a_hostile_site_cannot_make_anybody_keep_more_than_a_site_may_tell() {
        let part = |number: u32, hosts: Vec<HostSteps>, uses: Vec<UseSteps>| {
            let whole = Whole { version: LedgerVersion::default(), parts: PARTS_MAX, coarse_from: None };
            let classes = (0..u32::from(number == 0)).map(|_| (host(0), Members { first: 1, count: 2 })).collect();
            WireSchedules { whole, number, hosts, classes, uses }
        };
        let until_refused = |hostile: &dyn Fn(u32) -> WireSchedules| {
            let mut assembly = Assembly::of(hostile(0)).unwrap();
            let why = (1..PARTS_MAX).find_map(|number| assembly.add(hostile(number)).err());
            (why.map(|why| why.to_string()).unwrap_or_default(), assembly)
        };
        let steps = |number: u32, count: i64| -> Steps {
            let begin = i64::from(number) * count;
            (begin..begin + count).map(|at| (Time(at), Amount(at.unsigned_abs() % 2 + 1))).collect()
        };
        let (why, assembly) = until_refused(&|number| {
            let resources = vec![(cpu(), steps(number, 100_000))];
            part(number, vec![HostSteps { host: host(0), resources }], Vec::new())
        });
        assert!(why.contains("steps") && assembly.hosts[&host(0)][&cpu()].len() <= STEPS_PER_SITE_MAX, "{why}");
        let (why, _) = until_refused(&|number| {
            let resource = |at: usize| (ResourceName::new(&format!("r{number}-{at}")).unwrap(), steps(0, 1));
            part(number, vec![HostSteps { host: host(0), resources: (0..20).map(resource).collect() }], Vec::new())
        });
        assert!(why.contains("resources"), "{why}");
        let (why, _) = until_refused(&|number| {
            let host = |at: usize| HostSteps {
                host: host(1_000 * number as usize + at),
                resources: vec![(cpu(), Vec::new())],
            };
            part(number, (0..1_000).map(host).collect(), Vec::new())
        });
        assert!(why.contains("hosts"), "{why}");
        let (why, assembly) = until_refused(&|number| {
            let of =
                |at: u64| UseSteps { class: 0, used: amounts(1 + u64::from(number) * 5_000 + at), hosts: Vec::new() };
            part(number, Vec::new(), (0..5_000).map(of).collect())
        });
        assert!(why.contains("steps") && assembly.uses.len() <= STEPS_PER_SITE_MAX / USE_STEPS, "{why}");
        let stray = UseSteps { class: 1, used: amounts(1), hosts: Vec::new() };
        assert!(Assembly::of(part(0, Vec::new(), vec![stray])).unwrap_err().to_string().contains("no class 1"));
    }
}
