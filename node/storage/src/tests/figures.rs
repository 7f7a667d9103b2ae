//! What a durable commit costs. Prints; run it by hand with
//! `cargo test -p kolo-storage --release figures -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use super::*;
use crate::{start, writer};

const COMMITS: usize = 1000;

fn print(what: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let at = |permille: usize| took[(took.len() * permille / 1000).min(took.len() - 1)].as_secs_f64() * 1e3;
    println!("{what:<28} p50 {:.3} ms  p99 {:.3} ms  max {:.3} ms", at(500), at(990), at(1000));
}

#[tokio::test]
#[ignore = "prints figures; run by hand: cargo test -p kolo-storage --release figures -- --ignored --nocapture"]
async fn figures_of_a_commit() {
    let directory = tempfile::Builder::new().prefix("kolo-figures").tempdir_in(".").unwrap();
    let change = |index: usize| {
        let record = RequestRecord { user: "x".repeat(700), ..request(&format!("r{index}"), 1) };
        vec![Change::Request(Box::new(record))]
    };
    let (mut writer, _) = start::start(&directory.path().join("b"), 1, StoreSettings::default()).unwrap();
    let mut took = Vec::new();
    for index in 0..COMMITS {
        let start = Instant::now();
        let mut content = Vec::new();
        writer::push_changes(&change(index), &mut content).unwrap();
        writer.write(&content).unwrap();
        took.push(start.elapsed());
        writer.seal(false).unwrap();
    }
    print("journal, one request of 1 kB", took);

    let (store, _) = Store::open(&directory.path().join("ledger"), 1, StoreSettings::default()).unwrap();
    let mut took = Vec::new();
    for index in 0..COMMITS {
        let start = Instant::now();
        store.commit(change(index)).await.unwrap();
        took.push(start.elapsed());
    }
    print("the same, by the store", took);
    drop(store);
    let start = Instant::now();
    let (_store, found) = reopen(&directory.path().join("ledger"), 1, &StoreSettings::default());
    println!("start with {} requests: {:.1} ms", found.requests.len(), start.elapsed().as_secs_f64() * 1e3);
}
