//! What must hold in every world.

use sim_kit::progress::Progress;

use super::experiments::Worlds;

#[test]
fn binding_late_costs_less_and_the_witness_admits_no_less() {
    let progress = Progress::new("worlds", 8);
    let of = Worlds { seed: 1, count: 8, progress: &progress };
    for point in of.by_hosts().unwrap() {
        let [random, _, dynamic, kolo] = point.figures;
        assert!(kolo.admitted >= dynamic.admitted && kolo.cost() < random.cost(), "{point:?}");
        assert!(point.figures.iter().all(|of| of.requests == 8 * 200 && of.preempted <= of.admitted));
    }
    for point in of.by_failure().unwrap() {
        assert!(point.figures.iter().all(|of| 0 < of.failed && of.failed <= of.admitted), "{point:?}");
    }
}
