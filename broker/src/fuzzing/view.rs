//! What a node believes of a site that may say anything, in any order, repeated or lost.
//!
//! The model keeps what the site really had at each version. A view without a gap must show exactly that.

use std::collections::BTreeMap;

use fuzz_support::{Input, Seed, Target};

use super::words;
use crate::{
    ids::HostId,
    protocol::{Advert, ChangeKind, LedgerVersion, ScheduleChange, ScheduleSnapshot, ScheduleUpdate},
    schedule::Schedule,
    time::{Millis, Time},
    view::{Heard, Schedules, SiteView},
};

/// A view under messages of an honest site and of a liar.
pub const VIEW: Target = Target { name: "view", run, seeds };

const HOSTS: [&str; 3] = ["h0", "h1", "h2"];
const OPERATIONS_MAX: usize = 300;

/// An honest site: every change that it ever made, and its schedules after each.
struct Site {
    incarnation: u64,
    changes: Vec<ScheduleChange>,
    states: Vec<BTreeMap<HostId, Schedule>>,
}

impl Site {
    fn start(incarnation: u64) -> Site {
        let state = HOSTS.iter().map(|name| (words::host_id(name), Schedule::default())).collect();
        Site { incarnation, changes: Vec::new(), states: vec![state] }
    }

    fn version(&self, change: usize) -> LedgerVersion {
        LedgerVersion { incarnation: self.incarnation, change: change as u64 }
    }

    fn present(&self) -> LedgerVersion {
        self.version(self.changes.len())
    }

    fn change(&mut self, input: &mut Input<'_>) {
        let kind = if input.below(3) == 0 { ChangeKind::Removed } else { ChangeKind::Added };
        let change = some_change(input, kind);
        let mut state = self.states.last().cloned().unwrap_or_default();
        let schedule = state.entry(change.host.clone()).or_default();
        match kind {
            ChangeKind::Added => schedule.add(change.window, &change.amounts),
            ChangeKind::Removed if schedule.remove(change.window, &change.amounts).is_err() => return,
            ChangeKind::Removed => {}
        }
        self.changes.push(change);
        self.states.push(state);
    }

    fn update(&self, from: usize, count: usize) -> ScheduleUpdate {
        let end = (from + count).min(self.changes.len());
        ScheduleUpdate { site: words::site("s"), from: self.version(from), changes: self.changes[from..end].to_vec() }
    }

    fn snapshot(&self, at: usize) -> ScheduleSnapshot {
        let hosts = self.states[at].clone().into_iter().collect();
        ScheduleSnapshot { site: words::site("s"), version: self.version(at), hosts }
    }
}

fn some_change(input: &mut Input<'_>, kind: ChangeKind) -> ScheduleChange {
    let host = words::host_id(input.one_of(&HOSTS));
    let window = words::window(i64::from(input.below(60)), 1 + u64::from(input.below(30)));
    let amounts = words::amounts([("cpu", u64::from(input.below(9))), ("memory", u64::from(input.below(3)))]);
    ScheduleChange { host, window, amounts, kind }
}

fn advert(sequence: u64) -> Advert {
    Advert {
        site: words::site("s"),
        name: String::new(),
        sequence,
        time_to_live_s: 60,
        contact: None,
        hosts: Vec::new(),
        addresses: Vec::new(),
    }
}

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut site = Site::start(1);
    let mut view = SiteView::new(advert(1), Millis(0), Millis(60_000));
    let mut has_lied = false;
    let mut now = 0;
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        now += u64::from(input.below(4));
        let known = known_version(&view);
        match input.below(10) {
            0..4 => site.change(&mut input),
            4 | 5 => {
                let from = usize::from(input.byte()).min(site.changes.len());
                let update = site.update(from, usize::from(input.below(12)));
                let heard = view.hear_update(&update, Millis(now));
                assert!(heard != Heard::Old || known >= Some(update.from), "an update from later on is no old one");
            }
            6 => {
                let at = usize::from(input.byte()).min(site.changes.len());
                view.hear_snapshot(site.snapshot(at), Millis(now));
            }
            7 => {
                view.hear_version(site.present(), Millis(now));
            }
            8 => {
                let sequence = u64::from(input.byte());
                let before = view.advert().sequence;
                let heard = view.hear_advert(advert(sequence), Millis(now), Millis(1000));
                assert_eq!(heard == Heard::Applied, sequence > before);
            }
            _ => has_lied |= rare(&mut input, &mut site, &mut view, now),
        }
        assert!(known_version(&view) >= known || known_version(&view).is_none(), "versions only grow");
        if !has_lied {
            compare(&site, &view, now);
        }
    }
}

/// The site restarts, or lies, or what is known of it is forgotten. True when it has lied.
fn rare(input: &mut Input<'_>, site: &mut Site, view: &mut SiteView, now: u64) -> bool {
    match input.below(3) {
        0 => {
            let state = site.states.last().cloned().unwrap_or_default();
            *site = Site { incarnation: site.incarnation + 1, changes: Vec::new(), states: vec![state] };
            false
        }
        1 => {
            view.forget_schedules();
            false
        }
        _ => {
            let kind = if input.flag() { ChangeKind::Removed } else { ChangeKind::Added };
            let from = LedgerVersion { incarnation: u64::from(input.below(4)), change: input.long() >> 11 };
            let changes = (0..input.below(5)).map(|_| some_change(input, kind)).collect();
            view.hear_update(&ScheduleUpdate { site: words::site("s"), from, changes }, Millis(now));
            view.forget_before(Time(i64::from(input.below(90))));
            true
        }
    }
}

fn known_version(view: &SiteView) -> Option<LedgerVersion> {
    match view.schedules() {
        Schedules::Known(known) => Some(known.version),
        Schedules::Unknown => None,
    }
}

/// What is known is what the site had at that version; and a gap is known to be one.
fn compare(site: &Site, view: &SiteView, now: u64) {
    let Schedules::Known(known) = view.schedules() else { return };
    assert!(known.version <= site.present(), "nothing is known of the future");
    if known.version.incarnation != site.incarnation {
        return;
    }
    let at = usize::try_from(known.version.change).expect("no later than the present");
    assert_eq!(known.by_host, site.states[at], "at {at} of {}", site.changes.len());
    assert!(known.learnt <= Millis(now), "nothing was learnt in the future");
    assert_eq!(view.fresh_schedules(Millis(now), Millis(u64::MAX)).is_some(), !known.has_gap);
}

fn seeds() -> Vec<Seed> {
    let change = [0, 0, 1, 0, 5, 9, 4, 1];
    let snapshot = [1, 6, 0];
    let update = [1, 4, 0, 8];
    vec![
        ("in-order", [&snapshot[..], &change, &change, &update].concat()),
        ("gap", [&snapshot[..], &change, &change, &[1, 4, 1, 3], &update].concat()),
        ("restart", [&snapshot[..], &change, &update, &[1, 9, 0], &change, &update, &snapshot].concat()),
        (
            "liar",
            [&snapshot[..], &change, &update, &[1, 9, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2], &change, &change].concat(),
        ),
    ]
}
