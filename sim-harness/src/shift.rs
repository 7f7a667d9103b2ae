//! Moves requests and snapshots, whose times are relative, onto the time axis of a run.

use std::collections::BTreeMap;

use broker::{
    request::{Request, RequestDocument},
    resources::ResourceName,
    schedule::Schedule,
    snapshot::{GridSnapshot, SnapshotHost},
    time::{Span, Time},
};

/// The snapshot with every time moved by `by`.
pub fn shifted_snapshot(snapshot: &GridSnapshot, by: Span) -> GridSnapshot {
    let shift = |entry: &SnapshotHost| {
        let steps: BTreeMap<ResourceName, Vec<_>> = entry
            .schedule
            .occupancies()
            .map(|(name, occupancy)| {
                let steps = occupancy.steps().into_iter().map(|(t, used)| ((t + by).min(Time::MAX), used)).collect();
                (name.clone(), last_of_each_time(steps))
            })
            .collect();
        let schedule =
            Schedule::from_steps(&steps).expect("ascending times stay so when moved, and none passes the end of time");
        SnapshotHost { schedule, ..entry.clone() }
    };
    GridSnapshot { hosts: snapshot.hosts.iter().map(shift).collect(), ..snapshot.clone() }
}

/// Steps that the shift pushed to the end of time fall on one moment there; the last one counts.
fn last_of_each_time<T>(steps: Vec<(Time, T)>) -> Vec<(Time, T)> {
    let mut kept: Vec<(Time, T)> = Vec::with_capacity(steps.len());
    for step in steps {
        if kept.last().is_some_and(|last| last.0 == step.0) {
            kept.pop();
        }
        kept.push(step);
    }
    kept
}

/// The request with its window moved by `by`.
pub fn shifted_request(request: &Request, by: Span) -> Request {
    let mut document = RequestDocument::from(request.clone());
    document.earliest = document.earliest.map(|t| (t + by).min(Time::MAX));
    document.latest = document.latest.map(|t| (t + by).min(Time::MAX));
    Request::try_from(document).expect("moving both ends of a checked window, up to the end of time, keeps their order")
}

#[cfg(test)]
mod tests {
    use broker::amount::Amount;

    use super::*;
    use sim_kit::generate;

    #[test]
    fn shifting_moves_occupancy_and_windows_alike() {
        let snapshot = generate::grid(2, 3);
        let by = Span(1_700_000_000);
        let shifted = shifted_snapshot(&snapshot, by);
        for (before, after) in snapshot.hosts.iter().zip(&shifted.hosts) {
            for (name, occupancy) in before.schedule.occupancies() {
                for (t, used) in occupancy.steps() {
                    assert_eq!(after.schedule.occupancy(name).map(|moved| moved.used_at(t + by)), Some(used));
                    assert_eq!(after.schedule.occupancy(name).map(|moved| moved.used_at(t)), Some(Amount::ZERO));
                }
            }
        }
        let request: Request = serde_json::from_str(r#"{"hosts":1,"duration":60,"earliest":5,"latest":9}"#).unwrap();
        let moved = shifted_request(&request, by);
        assert_eq!(moved.starts(Time(0), Span(0)), Ok((Time(1_700_000_005), Time(1_700_000_009))));
        let open: Request = serde_json::from_str(r#"{"hosts":1,"duration":60}"#).unwrap();
        assert_eq!(shifted_request(&open, by), open);
    }
}
