//! A view fed with repeated, reordered and lost messages, against the site's own history.

use proptest::prelude::*;

use super::*;
use crate::{
    amount::Amount,
    classes::Members,
    features::Features,
    ids::SiteId,
    protocol::{ChangeKind, ClassChange, ClassSchedules, HostChange, ScheduleChange},
    resources::{Amounts, ResourceName},
    schedule::ClassOccupancy,
    time::Window,
};

/// What the site's ledger had at each version, as snapshots, and the changes between them.
struct History {
    site: SiteId,
    changes: Vec<ScheduleChange>,
    snapshots: Vec<ScheduleSnapshot>,
}

fn amounts(amount: u64) -> Amounts {
    Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(amount))])
}

/// A random but consistent history: some of the removals take away what an earlier change added.
fn history(choices: &[(u8, u8, u8, bool)]) -> History {
    let site = SiteId::new("s").unwrap();
    let class = HostId::new("n").unwrap();
    let classes = ClassSchedules { members: Members { first: 1, count: 1000 }, used: ClassOccupancy::default() };
    let mut schedules = SiteSchedules::new([], [(class.clone(), classes)]);
    let mut standing: Vec<ScheduleChange> = Vec::new();
    let mut history = History { site: site.clone(), changes: Vec::new(), snapshots: Vec::new() };
    let snapshot = |change: usize, schedules: &SiteSchedules| ScheduleSnapshot {
        site: site.clone(),
        version: LedgerVersion { incarnation: 5, change: change as u64 },
        schedules: schedules.clone(),
    };
    history.snapshots.push(snapshot(0, &schedules));
    for (index, &(host, start, amount, removes)) in choices.iter().enumerate() {
        let change = if removes && !standing.is_empty() {
            match standing.remove(usize::from(start) % standing.len()) {
                ScheduleChange::Host(gone) => ScheduleChange::Host(HostChange { kind: ChangeKind::Removed, ..gone }),
                ScheduleChange::Class(ClassChange { class, window, hosts, before, after }) => {
                    ScheduleChange::Class(ClassChange { class, window, hosts, before: after, after: before })
                }
            }
        } else {
            let start = Time(i64::from(start));
            let (window, amounts) = (Window { start, end: Time(start.0 + 10) }, amounts(u64::from(amount) % 4 + 1));
            let added = match host % 4 {
                3 => ScheduleChange::Class(ClassChange {
                    class: class.clone(),
                    window,
                    hosts: u32::from(host) % 3 + 1,
                    before: Amounts::new(),
                    after: amounts,
                }),
                host => ScheduleChange::Host(HostChange {
                    host: HostId::new(&format!("h{host}")).unwrap(),
                    window,
                    amounts,
                    kind: ChangeKind::Added,
                }),
            };
            standing.push(added.clone());
            added
        };
        assert!(schedules.apply(&change, Time::ZERO), "{change:?}");
        history.changes.push(change);
        history.snapshots.push(snapshot(index + 1, &schedules));
    }
    history
}

impl History {
    fn update(&self, from: usize, count: usize) -> ScheduleUpdate {
        let from = from.min(self.changes.len());
        let to = (from + count).min(self.changes.len());
        ScheduleUpdate {
            site: self.site.clone(),
            from: LedgerVersion { incarnation: 5, change: from as u64 },
            changes: self.changes[from..to].to_vec(),
        }
    }
}

pub(crate) fn advert(sequence: u64) -> Advert {
    Advert {
        site: SiteId::new("s").unwrap(),
        name: String::new(),
        sequence,
        time_to_live_s: 60,
        contact: None,
        hosts: Default::default(),
        uplink: None,
        quotes: false,
        addresses: Vec::new(),
        features: Features::own(),
        offer: Default::default(),
    }
}

fn new_view() -> SiteView {
    SiteView::new(advert(1), Millis(0), Millis(60_000))
}

fn is_same(known: &KnownSchedules, snapshot: &ScheduleSnapshot) -> bool {
    known.schedules == snapshot.schedules
}

#[derive(Debug, Clone)]
enum Message {
    Update { from: usize, count: usize },
    Snapshot(usize),
    Version(usize),
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        4 => (0_usize..20, 0_usize..5).prop_map(|(from, count)| Message::Update { from, count }),
        1 => (0_usize..20).prop_map(Message::Snapshot),
        1 => (0_usize..20).prop_map(Message::Version),
    ]
}

proptest! {
    #[test]
    fn whatever_arrives_the_view_is_right_or_says_that_it_has_a_gap(
        choices in proptest::collection::vec(any::<(u8, u8, u8, bool)>(), 0..20),
        messages in proptest::collection::vec(message(), 0..60),
    ) {
        let history = history(&choices);
        let last = history.changes.len();
        let mut view = new_view();
        let mut newest_heard = 0;
        for message in &messages {
            match *message {
                Message::Update { from, count } => {
                    let update = history.update(from, count);
                    newest_heard = newest_heard.max(end_of(&update).change);
                    view.receive_update(&update, Millis(1));
                }
                Message::Snapshot(version) => {
                    let snapshot = history.snapshots[version.min(last)].clone();
                    newest_heard = newest_heard.max(snapshot.version.change);
                    view.receive_snapshot(snapshot, Millis(1));
                }
                Message::Version(version) => {
                    let version = history.snapshots[version.min(last)].version;
                    newest_heard = newest_heard.max(version.change);
                    view.receive_version(version, Millis(1));
                }
            }
            if let Schedules::Known(known) = view.schedules() {
                let version = usize::try_from(known.version.change).unwrap();
                prop_assert!(is_same(known, &history.snapshots[version]), "wrong at version {version}");
                prop_assert_eq!(known.has_gap, known.version.change < newest_heard);
            }
        }
        view.receive_snapshot(history.snapshots[last].clone(), Millis(2));
        prop_assert!(view.fresh_schedules(Millis(2), Millis(0)).is_some(), "one fetch of the latest repairs everything");
    }
}

#[test]
fn a_restarted_site_is_asked_again_and_its_old_changes_are_ignored() {
    let history = history(&[(0, 0, 1, false), (1, 5, 2, false)]);
    let mut view = new_view();
    view.receive_snapshot(history.snapshots[2].clone(), Millis(1));
    let restarted = LedgerVersion { incarnation: 6, change: 0 };
    assert_eq!(view.receive_version(restarted, Millis(2)), Received::Gap);
    assert!(view.fresh_schedules(Millis(2), Millis(100)).is_none());
    assert_eq!(
        view.receive_snapshot(ScheduleSnapshot { version: restarted, ..history.snapshots[0].clone() }, Millis(3)),
        Received::Applied
    );
    assert_eq!(view.receive_update(&history.update(0, 2), Millis(4)), Received::Old);
    assert_eq!(view.receive_snapshot(history.snapshots[2].clone(), Millis(4)), Received::Old);
    assert!(view.fresh_schedules(Millis(4), Millis(100)).is_some());
}

#[test]
fn a_site_that_contradicts_itself_is_not_believed() {
    let history = history(&[(0, 0, 1, false)]);
    let mut view = new_view();
    view.receive_snapshot(history.snapshots[0].clone(), Millis(1));
    let mut lie = history.update(0, 1);
    let ScheduleChange::Host(change) = &mut lie.changes[0] else { panic!() };
    change.kind = ChangeKind::Removed;
    assert_eq!(view.receive_update(&lie, Millis(2)), Received::Gap);
    assert!(view.fresh_schedules(Millis(2), Millis(100)).is_none());
    assert_eq!(view.receive_snapshot(history.snapshots[1].clone(), Millis(3)), Received::Applied);
}

#[test]
fn numbers_at_the_end_of_their_range_do_no_harm() {
    let mut view = new_view();
    let mut snapshot = history(&[]).snapshots.remove(0);
    snapshot.version.change = u64::MAX;
    view.receive_snapshot(snapshot, Millis(1));
    let mut update = history(&[(0, 0, 1, false)]).update(0, 1);
    update.from.change = u64::MAX;
    view.receive_update(&update, Millis(2));
}

#[test]
fn only_newer_adverts_count_and_time_to_live_is_renewed() {
    let mut view = new_view();
    assert_eq!(view.receive_advert(advert(1), Millis(5), Millis(60_000)), Received::Old);
    assert_eq!(view.expires(), Millis(60_000));
    assert_eq!(view.receive_advert(advert(2), Millis(5), Millis(60_000)), Received::Applied);
    assert_eq!(view.expires(), Millis(60_005));
}

#[test]
fn an_empty_update_confirms_the_present_version_and_reveals_a_gap() {
    let history = history(&[(0, 0, 1, false)]);
    let mut view = new_view();
    view.receive_snapshot(history.snapshots[0].clone(), Millis(1));
    assert_eq!(view.receive_update(&history.update(0, 0), Millis(50)), Received::Applied);
    assert!(view.fresh_schedules(Millis(60), Millis(10)).is_some());
    assert_eq!(view.receive_update(&history.update(1, 0), Millis(70)), Received::Gap);
}
