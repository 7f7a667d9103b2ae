//! Whether what shows that site and operator belong to the grid still counts, and for how long.

use std::path::Path;

use broker::{
    time::{Span, Time},
    trust::Role,
};
use jiff::tz::TimeZone;

use super::{Finding, Level};
use crate::{
    cli::time::{format_span, format_time},
    trust::{GridFile, Wallet, member},
};

const CHECK: &str = "credential";
/// From how long before its end on a credential is worth a note: time enough to ask for another one.
const SOON: Span = Span(14 * 86_400);

/// Looks at the credentials in the data directory and in the user's own one.
pub(super) fn check(data_dir: &Path, user_dir: Option<&Path>, now: Time, zone: &TimeZone) -> Vec<Finding> {
    let grid = match GridFile::load(data_dir) {
        Ok(Some(grid)) => grid,
        Ok(None) => return Vec::new(),
        Err(error) => {
            let to_do = "put grid.json back from a copy, or join again with a token";
            return vec![Finding::problem(CHECK, error.to_string(), to_do)];
        }
    };
    if grid.root.is_none() {
        return vec![Finding::new(CHECK, Level::Good, format!("{} is an open grid, which needs none", grid.id))];
    }
    let mut findings = Vec::new();
    let own = [(data_dir, Role::Site), (data_dir, Role::Admin), (data_dir, Role::User)];
    let users = user_dir.into_iter().flat_map(|directory| [(directory, Role::Admin), (directory, Role::User)]);
    for (directory, role) in own.into_iter().chain(users) {
        findings.extend(check_one(&grid, directory, role, now, zone));
    }
    let has_site = Wallet::at(data_dir).credential_path(&grid.id, Role::Site).exists();
    if !has_site {
        let what = format!("this site has none for {}, so other sites will not believe it", grid.id);
        findings.push(Finding::problem(
            CHECK,
            what,
            "ask for a token (kolo grid invite --role site), then kolo join TOKEN",
        ));
    }
    findings
}

fn check_one(grid: &GridFile, directory: &Path, role: Role, now: Time, zone: &TimeZone) -> Option<Finding> {
    let wallet = Wallet::at(directory);
    let path = wallet.credential_path(&grid.id, role);
    let again = format!("ask for a new token (kolo grid invite --role {role}), then kolo join TOKEN");
    let chain = match wallet.credential(&grid.id, role) {
        Ok(chain) => chain?,
        Err(error) => return Some(Finding::problem(CHECK, error.to_string(), again)),
    };
    Some(match member(grid, &chain, now) {
        Err(error) => Finding::problem(CHECK, format!("{}: {error}", path.display()), again),
        // Of an open grid, where nobody needs one.
        Ok(None) => return None,
        Ok(Some(holder)) => {
            let left = holder.expires.since(now);
            let what = format!("{role} {:?}: good until {}", holder.name, format_time(holder.expires, zone));
            if left < SOON {
                let what = format!("{what}, for {} only", format_span(left));
                Finding { to_do: Some(again), ..Finding::new(CHECK, Level::Note, what) }
            } else {
                Finding::new(CHECK, Level::Good, what)
            }
        }
    })
}
