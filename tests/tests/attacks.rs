//! Two hostile tenants of a site and a stranger, and what an honest third user sees of each of their attacks: every call is answered rightly,
//! the slowest of each kind takes at most half as long again as without attacks, and no secret is to be had.
//!
//! A program of its own with one test, so that nothing else takes processors from what is measured.

#![allow(clippy::unwrap_used, reason = "a test fails loudly when something is missing")]

#[path = "attacks/deeds.rs"]
mod deeds;
#[path = "attacks/honest.rs"]
mod honest;
#[path = "attacks/secrets.rs"]
mod secrets;
#[path = "attacks/siege.rs"]
mod siege;
#[path = "attacks/table.rs"]
mod table;

use std::{
    fs,
    time::{Duration, Instant},
};

use end_to_end::{skip, tenants::Person, wait_until};
use nix::unistd::geteuid;

use self::{siege::Siege, table::Table};

/// Time within which a node answers after a start with all shares taken.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// Time within which everything ends that runs for a user who is revoked.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Most memory that a node takes for all of this, in MiB, without optimisation.
const NODE_MIB_MAX: u64 = 512;

#[test]
fn an_honest_user_is_served_while_two_tenants_and_a_stranger_attack() {
    if !geteuid().is_root() {
        return skip::skip("only root can give commands both a user of their own and the network");
    }
    let mut siege = Siege::begin();
    let mut table = Table::beside(siege.measured());
    let kept = secrets::keep(&siege);
    secrets::are_closed_to_commands(&siege);

    let reservations = deeds::take_ports(&siege);
    {
        let _idle = deeds::idle_connections(&siege.site);
        table.judge("all ports of runs, idle connections", || siege.measured());
    }
    assert_eq!(siege.full_accounts(), 2);
    let forks = deeds::fork(&siege);
    table.judge("many processes", || siege.measured());
    // Ten times as slow where no run has a network of its own: connections within the machine are the kernel's work, and the node, which looks at
    // one at a time, takes a quarter of a processor then.
    table.judge_answers("ports of others dialled", &deeds::while_dialling(&siege, || siege.measured()));
    deeds::fill_disk(&siege, &reservations);
    table.judge("output until the disk is full", || siege.measured());
    let copies = deeds::take_places(&siege, &forks);
    table.judge("all places for runs", || siege.measured());
    let token = siege.site.kolo(&["token", "create", "--scope", "read", "--output", "quiet"]);
    assert!(token.code == Some(0) && secrets::audited(&siege.site), "{token:?}");
    table.judge("runs listed without end", || deeds::while_listing(&siege, || siege.measured()));
    assert!(secrets::audited(&siege.site), "a line of the operator's was pushed out");
    table.judge("a stranger at full speed", || deeds::while_a_stranger_attacks(&siege, || siege.measured()));
    table.print_and_check();

    secrets::are_not_opened_by_a_cookie(&siege.site);
    secrets::lines_cannot_be_forged(&siege);
    let peak_mib = siege.site.peak_mib();
    assert!(peak_mib <= NODE_MIB_MAX, "the node took {peak_mib} MiB");

    starts_with_all_taken(&mut siege, &kept);
    copies.iter().for_each(|copies| fs::remove_dir_all(copies).unwrap());
    revoked_tenants_end(&siege);
    siege.serves(&kept);
    starts_with_a_wrong_clock(&mut siege, &kept);
}

fn starts_with_all_taken(siege: &mut Siege, kept: &str) {
    siege.site.kill();
    let began = Instant::now();
    siege.site.restart();
    let took = began.elapsed();
    table::say(&format!("started with all taken in {} ms", took.as_millis()));
    assert!(took < READY_WITHIN, "{took:?}");
    assert_eq!(siege.full_accounts(), 2, "what goes on has as much as before");
    siege.serves(kept);
}

/// Of all that runs, one command of carol's stays.
fn revoked_tenants_end(siege: &Siege) {
    for name in ["bob", "eve"] {
        let _ = Person::new().told(&["grid", "revoke", name], &siege.site.data(), 0);
    }
    let heard = Instant::now();
    let running = || siege.running()["running"].as_array().unwrap().len();
    wait_until("the runs of both to end", running, |count| *count == 1);
    let took = heard.elapsed();
    table::say(&format!("all commands of the revoked had ended in {} ms", took.as_millis()));
    assert!(took < ENDS_WITHIN, "{took:?}");
}

/// While the node is down another program listens in its place, and then the clock has jumped by days.
fn starts_with_a_wrong_clock(siege: &mut Siege, kept: &str) {
    let address = siege.site.address();
    assert!(siege.site.stop().success());
    secrets::are_kept_from_a_squatter(&siege.site, &address);
    siege.site.set_ahead(3);
    siege.site.restart();
    let is_kept = siege.site.bookings().iter().any(|booking| booking["request"] == kept);
    assert!(is_kept, "a jump of the clock forgets nothing");
    let doctor = siege.site.kolo(&["doctor", "--clock-is-right"]);
    assert!(doctor.out.contains("the node believes this machine's clock"), "{doctor:?}");
    siege.serves(kept);
}
