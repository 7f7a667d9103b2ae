//! An order to run a command, for tests of this crate and of those that build on it.

#![allow(clippy::missing_panics_doc, clippy::unwrap_used, reason = "all names in it are valid")]

use std::collections::BTreeMap;

use broker::{
    ids::{RequestId, SeatNumber, SiteId},
    time::Time,
    trust::testing,
};

use super::{RunNumber, RunOrder};

/// An order of a command that needs nothing.
pub fn order(command: &[&str]) -> RunOrder {
    RunOrder {
        grid: testing::GRID.to_owned(),
        site: SiteId::new("s").unwrap(),
        request: RequestId::new("r").unwrap(),
        seat: SeatNumber(2),
        run: RunNumber(1),
        rank: 1,
        hosts: vec!["a".to_owned(), "b".to_owned()],
        peers: None,
        command: command.iter().map(|&text| text.to_owned()).collect(),
        image: None,
        ssh_keys: vec![],
        environment: BTreeMap::new(),
        directory: None,
        terminal: None,
        has_stdin: false,
        files: None,
        keeps_files: false,
        issued: Time(1000),
        expires: Time(1060),
        nonce: "n".to_owned(),
    }
}
