//! What other sites have been told of the schedules, and what they are told next: where the books differ from it.
//!
//! Invariant: after every event others have been told what the books show from the present on. A host of a class whose seats are bound late
//! is counted in its class, unless something is pinned to it that has not begun: then it is told by its name until that begins; so is one
//! with own work that the owner has configured, and each of a class whose hosts differ in their tariffs, since a seat moves only where it
//! costs the same. So a seat that moves within a class changes what is told only where hosts have different things in use, or tariffs.

use std::collections::{BTreeMap, BTreeSet};

use super::{Books, Ledger, Output, ScheduleUpdateParts};
use crate::{
    amount::Amount,
    classes::{Members, class_and_number, numbered},
    ids::HostId,
    plan::Place,
    protocol::{
        AttemptId, ChangeKind, ClassChange, ClassSchedules, Grant, HostChange, ScheduleChange, ScheduleSnapshot,
        SiteSchedules,
    },
    resources::{Amounts, ResourceName, amount_of},
    schedule::{ClassOccupancy, Schedule},
    tariff::Tariff,
    time::{Now, Time, Window},
};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Of each host and the uplink, those that are counted included; none is empty.
    schedules: BTreeMap<HostId, Schedule>,
    classes: BTreeMap<HostId, ClassSchedules>,
    /// The hosts of these classes that are told by name.
    named: BTreeSet<HostId>,
    /// Classes whose hosts differ in their tariffs: a count would show room to a seat of one price that only hosts of another price have.
    unlike: BTreeSet<HostId>,
    /// When what is pinned to a host of these classes begins.
    pins: BTreeMap<HostId, Vec<Time>>,
    /// From when on others were told of the last changes.
    latest: Time,
}

/// A piece of time with what was used in it before, and what is.
type Piece = (Window, Amounts, Amounts);

impl Told {
    /// Nothing of these books.
    fn of<'b, B: Books + 'b>(hosts: impl Iterator<Item = &'b B>) -> Told {
        let mut numbers: BTreeMap<&HostId, Vec<Option<u32>>> = BTreeMap::new();
        for books in hosts {
            let Some(class) = books.class() else { continue };
            let number = class_and_number(&books.host().id).filter(|(name, _)| *name == class.as_str());
            numbers.entry(class).or_default().push(number.map(|(_, number)| number));
        }
        let members = |mut numbers: Vec<Option<u32>>| {
            numbers.sort_unstable();
            let (first, count) = (numbers.first().copied()??, u32::try_from(numbers.len()).ok()?);
            let is_row = (first..).zip(&numbers).all(|(expected, number)| *number == Some(expected));
            is_row.then_some(Members { first, count })
        };
        let classes = numbers.into_iter().filter_map(|(class, numbers)| {
            let members = members(numbers)?;
            Some((class.clone(), ClassSchedules { members, used: ClassOccupancy::default() }))
        });
        Told { classes: classes.collect(), ..Told::default() }
    }

    /// The class in which a host is counted when nothing is pinned to it.
    fn class_of(&self, host: &HostId) -> Option<&HostId> {
        let (class, number) = numbered(host)?;
        let (name, class) = self.classes.get_key_value(&class)?;
        class.members.contains(number).then_some(name)
    }

    /// Names of the classes in which two hosts have different tariffs.
    fn with_many_tariffs<'b, B: Books + 'b>(&self, hosts: impl Iterator<Item = &'b B>) -> BTreeSet<HostId> {
        let mut tariffs: BTreeMap<&HostId, &Tariff> = BTreeMap::new();
        let mut found = BTreeSet::new();
        for books in hosts {
            let (Some(class), tariff) = (self.class_of(&books.host().id), &*books.host().tariff) else { continue };
            if **tariffs.entry(class).or_insert(tariff) != *tariff {
                found.insert(class.clone());
            }
        }
        found
    }

    /// Notes that a reservation takes what was free.
    pub(super) fn pin(&mut self, place: &Place, from: Time, present: Time) {
        let Place::Host(host) = place else { return };
        if from > present && self.class_of(host).is_some() {
            self.pins.entry(host.clone()).or_default().push(from);
        }
    }

    /// Notes that a reservation gives back what it had.
    pub(super) fn unpin(&mut self, place: &Place, from: Time) {
        let Place::Host(host) = place else { return };
        let Some(pins) = self.pins.get_mut(host) else { return };
        if let Some(at) = pins.iter().position(|start| *start == from) {
            pins.swap_remove(at);
        }
    }

    /// Drops what is before `time`.
    pub(super) fn forget_before(&mut self, time: Time) {
        self.schedules.retain(|_, schedule| {
            schedule.forget_before(time);
            !schedule.is_empty()
        });
        self.classes.values_mut().for_each(|class| class.used.forget_before(time));
        self.pins.retain(|_, starts| {
            starts.retain(|start| *start > time);
            !starts.is_empty()
        });
    }

    /// Tells from the present on what a host shows, as far as it may have changed in the window.
    fn follow<B: Books>(&mut self, books: &B, present: Time, window: Window, news: &mut News) {
        let host = &books.host().id;
        let class = self.class_of(host).cloned();
        let is_pinned = self.pins.get(host).is_some_and(|starts| starts.iter().any(|start| *start > present));
        let is_unlike = class.as_ref().is_some_and(|class| self.unlike.contains(class));
        let is_named = class.is_none() || is_pinned || is_unlike || !books.own().is_empty();
        let was_named = class.is_none() || self.named.contains(host);
        let (old, new, free) = (self.schedules.remove(host).unwrap_or_default(), books.reserved(), Schedule::default());
        let told = if is_named == was_named {
            let window = Window { start: window.start.max(present), ..window };
            let pieces = differences(&old, new, window);
            let mut told = old;
            for (window, before, after) in &pieces {
                let had = told.remove(*window, before);
                debug_assert!(had.is_ok(), "it was told that this is used");
                told.add(*window, after);
            }
            news.note(host, class.filter(|_| !is_named), pieces);
            told
        } else {
            let always = Window { start: present, end: Time(i64::MAX) };
            let (from, to) = if is_named { (class, None) } else { (None, class) };
            news.note(host, from, differences(&old, &free, always));
            news.note(host, to, differences(&free, new, always));
            if is_named {
                self.named.insert(host.clone());
            } else {
                self.named.remove(host);
            }
            new.clone()
        };
        if !told.is_empty() {
            self.schedules.insert(host.clone(), told);
        }
    }

    /// Takes note of changes that are told.
    fn count(&mut self, changes: &[ScheduleChange]) {
        for change in changes {
            let ScheduleChange::Class(ClassChange { class, window, hosts, before, after }) = change else { continue };
            let counted = self.classes.get_mut(class);
            let counted = counted.map(|class| class.used.exchange(*window, Amount((*hosts).into()), (before, after)));
            debug_assert!(counted.is_some_and(|counted| counted.is_ok()), "it was told that this is used: {change:?}");
        }
    }

    /// Whether this is, from `time` on, what the books show, and what of these grants is pinned has its pin.
    fn check<'g, B: Books>(
        &self,
        (hosts, uplink): (&BTreeMap<HostId, B>, Option<&B>),
        mut shown: impl Iterator<Item = &'g Grant>,
        time: Time,
    ) -> Result<(), String> {
        let is_pinned = |grant: &Grant| {
            let Place::Host(host) = &grant.place else { return true };
            let has_pin = || self.pins.get(host).is_some_and(|starts| starts.contains(&grant.window.start));
            self.class_of(host).is_none() || grant.window.start <= time || has_pin()
        };
        if let Some(grant) = shown.find(|grant| !is_pinned(grant)) {
            return Err(format!("{} is not known to be pinned at {:?}", grant.host(), grant.window));
        }
        let after = |schedule: Option<&Schedule>| {
            let mut schedule = schedule.cloned().unwrap_or_default();
            schedule.forget_before(time);
            schedule
        };
        let mut counted: BTreeMap<&HostId, ClassOccupancy> = BTreeMap::new();
        for books in hosts.values().chain(uplink) {
            let host = &books.host().id;
            let is = after(Some(books.reserved()));
            if after(self.schedules.get(host)) != is {
                return Err(format!("others were told of {host} otherwise than the books show"));
            }
            let Some(class) = self.class_of(host).filter(|_| !self.named.contains(host)) else { continue };
            if self.unlike.contains(class) {
                return Err(format!("{host} is counted among hosts of other tariffs"));
            }
            let always = Window { start: time, end: Time(i64::MAX) };
            for (window, before, after) in differences(&Schedule::default(), &is, always) {
                let counted = counted.entry(class).or_default();
                counted.exchange(window, Amount(1), (&before, &after)).map_err(|error| error.to_string())?;
            }
        }
        for (name, class) in &self.classes {
            let mut used = class.used.clone();
            used.forget_before(time);
            if used != counted.remove(name).unwrap_or_default() {
                return Err(format!("others were told of class {name} otherwise than the books show"));
            }
        }
        Ok(())
    }
}

/// What is to be told.
#[derive(Debug, Default)]
struct News {
    of_hosts: Vec<ScheduleChange>,
    /// By class: from when on how many hosts more, or less, use this.
    of_classes: BTreeMap<HostId, Vec<(Time, Amounts, i64)>>,
}

impl News {
    /// Pieces of a host that is told by its name, or counted in a class.
    fn note(&mut self, host: &HostId, class: Option<HostId>, pieces: Vec<Piece>) {
        let Some(class) = class else {
            for kind in [ChangeKind::Removed, ChangeKind::Added] {
                self.of_hosts.extend(changes_of_host(host, &pieces, kind));
            }
            return;
        };
        let turns = self.of_classes.entry(class).or_default();
        for (Window { start, end }, before, after) in pieces {
            turns.extend([(start, before.clone(), -1), (start, after.clone(), 1)]);
            turns.extend([(end, before, 1), (end, after, -1)]);
        }
    }

    fn into_changes(self) -> Vec<ScheduleChange> {
        let mut changes = self.of_hosts;
        for (class, turns) in self.of_classes {
            changes.extend(changes_of_class(&class, turns).into_iter().map(ScheduleChange::Class));
        }
        changes
    }
}

/// How what is used of a host has grown, or shrunk: one change as long as it did so by the same.
fn changes_of_host(host: &HostId, pieces: &[Piece], kind: ChangeKind) -> Vec<ScheduleChange> {
    let mut changes: Vec<HostChange> = Vec::new();
    for (window, before, after) in pieces {
        let (less, more) = if kind == ChangeKind::Added { (before, after) } else { (after, before) };
        let grown = |(name, amount): (&ResourceName, &Amount)| {
            let by = amount.saturating_sub(amount_of(less, name));
            (by > Amount::ZERO).then(|| (name.clone(), by))
        };
        let amounts: Amounts = more.iter().filter_map(grown).collect();
        match changes.last_mut() {
            _ if amounts.is_empty() => {}
            Some(last) if last.window.end == window.start && last.amounts == amounts => last.window.end = window.end,
            _ => changes.push(HostChange { host: host.clone(), window: *window, amounts, kind }),
        }
    }
    changes.into_iter().map(ScheduleChange::Host).collect()
}

/// Changes of a class, where those of its hosts that make up for each other cancel out.
fn changes_of_class(class: &HostId, mut turns: Vec<(Time, Amounts, i64)>) -> Vec<ClassChange> {
    turns.sort_unstable_by_key(|(time, ..)| *time);
    let mut net: BTreeMap<Amounts, i64> = BTreeMap::new();
    let mut changes: Vec<ClassChange> = Vec::new();
    // Where those of the piece before begin.
    let mut last = 0;
    let mut groups = turns.chunk_by(|one, next| one.0 == next.0).peekable();
    while let Some(group) = groups.next() {
        for (_, used, hosts) in group {
            *net.entry(used.clone()).or_default() += hosts;
        }
        net.retain(|_, hosts| *hosts != 0);
        let start = group[0].0;
        let Some(end) = groups.peek().map(|next| next[0].0) else { break };
        let (before, after) = changes.split_at(last);
        let exchanged = exchanges(&net);
        let same = |(change, (hosts, uses)): (&ClassChange, &(u32, (Amounts, Amounts)))| {
            change.window.end == start
                && change.hosts == *hosts
                && (&change.before, &change.after) == (&uses.0, &uses.1)
        };
        if after.len() == exchanged.len() && after.iter().zip(&exchanged).all(same) {
            changes[last..].iter_mut().for_each(|change| change.window.end = end);
            continue;
        }
        last = before.len() + after.len();
        let window = Window { start, end };
        let change = |(hosts, (before, after))| ClassChange { class: class.clone(), window, hosts, before, after };
        changes.extend(exchanged.into_iter().map(change));
    }
    changes
}

/// So many hosts that use something else, by what they have used and what they use.
fn exchanges(net: &BTreeMap<Amounts, i64>) -> Vec<(u32, (Amounts, Amounts))> {
    let of_sign = |sign: i64| net.iter().filter(move |(_, hosts)| hosts.signum() == sign);
    let mut gained: Vec<(&Amounts, u64)> = of_sign(1).map(|(used, hosts)| (used, hosts.unsigned_abs())).collect();
    let mut exchanges = Vec::new();
    for (before, hosts) in of_sign(-1) {
        let mut left = hosts.unsigned_abs();
        while let Some((after, more)) = gained.last_mut().filter(|_| left > 0) {
            let both = left.min(*more);
            // A site has far fewer than 2^32 hosts.
            exchanges.push((u32::try_from(both).unwrap_or(u32::MAX), (before.clone(), after.clone())));
            left -= both;
            *more -= both;
            if *more == 0 {
                gained.pop();
            }
        }
    }
    exchanges
}

/// The pieces of a window in which two schedules differ.
fn differences(old: &Schedule, new: &Schedule, window: Window) -> Vec<Piece> {
    let (old, new) = (old.uses(window), new.uses(window));
    let mut times: Vec<Time> = old.iter().chain(&new).map(|(time, _)| *time).collect();
    times.sort_unstable();
    times.dedup();
    let ends = times.iter().skip(1).copied().chain([window.end]);
    let in_force = |uses: &[(Time, Amounts)], at: Time| {
        let after = uses.partition_point(|(time, _)| *time <= at);
        uses[..after].last().map(|(_, used)| used.clone()).unwrap_or_default()
    };
    let piece =
        |(start, end): (&Time, Time)| (Window { start: *start, end }, in_force(&old, *start), in_force(&new, *start));
    times.iter().zip(ends).map(piece).filter(|(_, before, after)| before != after).collect()
}

/// By host the window of these grants.
fn windows_of<'g>(grants: impl IntoIterator<Item = &'g Grant>) -> BTreeMap<HostId, Window> {
    let mut windows: BTreeMap<HostId, Window> = BTreeMap::new();
    for grant in grants {
        let window = windows.entry(grant.host().clone()).or_insert(grant.window);
        *window = Window { start: window.start.min(grant.window.start), end: window.end.max(grant.window.end) };
    }
    windows
}

impl<B: Books> Ledger<B> {
    /// Begins anew: others fetch all that the books show.
    pub(super) fn tell_anew(&mut self) {
        let present = self.present();
        let mut told = Told { latest: present, ..Told::of(self.hosts.values()) };
        told.unlike = told.with_many_tariffs(self.hosts.values());
        for booking in self.bookings.values().filter(|booking| self.is_shown(booking)) {
            booking.grants.iter().for_each(|grant| told.pin(&grant.place, grant.window.start, present));
        }
        let mut news = News::default();
        let always = Window { start: present, end: Time(i64::MAX) };
        self.units().for_each(|books| told.follow(books, present, always, &mut news));
        told.count(&news.into_changes());
        self.told = told;
    }

    /// Tells others what has changed where these grants are.
    pub(super) fn tell<'g>(&mut self, grants: impl IntoIterator<Item = &'g Grant>) {
        self.tell_of(windows_of(grants));
    }

    /// The same where a booking is.
    pub(super) fn tell_booking(&mut self, attempt: &AttemptId) {
        let booking = self.bookings.get(attempt);
        let windows = booking.map(|booking| windows_of(self.taken_by(booking).iter()));
        self.tell_of(windows.unwrap_or_default());
    }

    /// Counts hosts again that were told by name until what is pinned to them began.
    pub(super) fn tell_of_begun(&mut self) {
        let window = Window { start: Time::ZERO, end: Time::ZERO };
        let named: BTreeMap<HostId, Window> = self.told.named.iter().map(|host| (host.clone(), window)).collect();
        self.tell_of(named);
    }

    /// Tells the hosts of classes by name, or counts them again, after a change of tariffs.
    pub(super) fn tell_of_tariffs(&mut self) {
        let unlike = self.told.with_many_tariffs(self.hosts.values());
        let old = std::mem::replace(&mut self.told.unlike, unlike);
        let changed: BTreeSet<&HostId> = old.symmetric_difference(&self.told.unlike).collect();
        let is_of = |host: &&HostId| self.told.class_of(host).is_some_and(|class| changed.contains(class));
        let window = Window { start: Time::ZERO, end: Time::ZERO };
        let hosts = self.hosts.keys().filter(is_of).map(|host| (host.clone(), window)).collect();
        self.tell_of(hosts);
    }

    fn tell_of(&mut self, windows: BTreeMap<HostId, Window>) {
        let present = self.present();
        self.told.latest = present;
        let mut news = News::default();
        for (host, window) in windows {
            let books = if host.is_uplink() { self.uplink.as_ref() } else { self.hosts.get(&host) };
            if let Some(books) = books {
                self.told.follow(books, present, window, &mut news);
            }
        }
        let changes = news.into_changes();
        if changes.is_empty() {
            return;
        }
        self.told.count(&changes);
        let from = self.version;
        self.version.change += changes.len() as u64;
        self.outputs.push_back(Output::Publish(ScheduleUpdateParts { from, changes }));
    }

    /// From when on others are told of changes: what is over is not given back. It never goes back, as the clock may.
    pub(super) fn present(&self) -> Time {
        self.floating.seen().max(self.forgotten).max(self.told.latest)
    }

    /// The schedules as other nodes see them: without holds, from the present on, and without hosts that are free.
    #[must_use]
    pub fn snapshot(&self, now: Now) -> ScheduleSnapshot {
        let Told { classes, named, .. } = &self.told;
        let is_named = |host: &HostId| named.contains(host) || self.told.class_of(host).is_none();
        let hosts = self.units().map(|books| (&books.host().id, books.reserved()));
        let hosts = hosts.filter(|(host, _)| is_named(host)).map(|(host, schedule)| (host.clone(), schedule.clone()));
        let mut schedules = SiteSchedules::new(hosts, classes.clone());
        schedules.forget_before(now.utc);
        ScheduleSnapshot { site: self.site.clone(), version: self.version, schedules }
    }

    pub(super) fn check_told(&self) -> Result<(), String> {
        let from = self.present().max(self.settled_before);
        let shown = self.bookings.values().filter(|booking| self.is_shown(booking));
        self.told.check((&*self.hosts, self.uplink.as_ref()), shown.flat_map(|booking| &booking.grants), from)
    }
}
