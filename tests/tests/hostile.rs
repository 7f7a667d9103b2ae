//! Honest users of an open grid while others attack it; a program of its own, so that the attackers have the machine to themselves and no
//! other test of a grid takes its processors from the nodes.

#![allow(clippy::unwrap_used, reason = "a test fails loudly when something is missing")]

use end_to_end::grid_figures;

#[test]
fn honest_users_of_an_open_grid_get_hosts_while_others_hoard_and_block_them() {
    let size = ["--nodes", "5", "--hosts", "20", "--free", "--hosts-per-request", "2"];
    let figures =
        grid_figures(&[&size[..], &["--hostile", "2", "--rate", "1", "--duration", "8s", "--seed", "3"]].concat());
    // At equal priority two attackers take the processors from the nodes, which says nothing of what they do to them.
    for phase in &figures["hostile"].as_array().unwrap()[..2] {
        assert_eq!(phase["reserved"], phase["requests"], "{figures}");
    }
    let granted =
        |phase: usize, attack: &str| figures["hostile"][phase]["deeds"]["granted"][attack].as_u64().unwrap_or(0);
    // All attackers of both phases are of one network, whose share it is: which of them gets it first, and in which phase, is chance.
    let hoarded = [1, 2].map(|phase| granted(phase, "hoard"));
    let blocked = [1, 2].map(|phase| granted(phase, "block"));
    let taken = hoarded.iter().chain(&blocked).sum::<u64>();
    assert!(hoarded.iter().sum::<u64>() > 0 && taken >= 5, "{figures}");
    // At each of five sites one of four hosts at a time, and all of the time that there is in seven days.
    assert!(hoarded.iter().all(|granted| *granted <= 5 * 14), "{figures}");
}
