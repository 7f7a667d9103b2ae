//! Whether what shows that site and operator belong to the grid still counts, and for how long.

use std::path::Path;

use broker::{
    time::{Span, Time},
    trust::{Gate, OwnerPolicy, Role, Subject, Successor},
};
use discovery::Identity;
use jiff::tz::TimeZone;
use kolo_storage::data_dir::IDENTITY_FILE;
use kolo_text::time::{format_span, format_time};
use kolo_trust::{GridFile, RevocationFile, Wallet};

use super::finding::Finding;

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
        return vec![Finding::good(CHECK, format!("{} is an open grid, which needs none", grid.id))];
    }
    let (gate, mut findings) = match gate(&grid, data_dir, now) {
        Ok(gate) => (gate, Vec::new()),
        Err(finding) => (Gate::new(grid.trust(), OwnerPolicy::default()), vec![finding]),
    };
    let own = [(data_dir, Role::Site), (data_dir, Role::Admin), (data_dir, Role::User)];
    let users = user_dir.into_iter().flat_map(|directory| [(directory, Role::Admin), (directory, Role::User)]);
    for (directory, role) in own.into_iter().chain(users) {
        findings.extend(check_one(&grid, &gate, directory, role, now, zone));
    }
    let has_site = Wallet::at(data_dir).credential_path(&grid.id, Role::Site).exists();
    if !has_site {
        let what = format!("this site has none for {}, so other sites will not believe it", grid.id);
        findings.push(Finding::problem(
            CHECK,
            what,
            "ask for a token (kolo grid invite --role site), then kolo join FILE",
        ));
    }
    findings
}

/// What the node of this directory knows to be revoked, and which roots.
fn gate(grid: &GridFile, data_dir: &Path, now: Time) -> Result<Gate, Finding> {
    let mut gate = Gate::new(grid.trust(), OwnerPolicy::default());
    let all = RevocationFile::at(data_dir).load().map_err(|error| {
        let to_do = "move the file away; the node learns what is revoked from other sites again";
        Finding::problem(CHECK, error.to_string(), to_do)
    })?;
    for revocation in all {
        // One that lapsed, or that nobody must believe, changes nothing.
        let _ = match revocation.statement.claims_to_be::<Successor>() {
            true => gate.succeed(&revocation.statement),
            false => gate.revoke(&revocation, now),
        };
    }
    Ok(gate)
}

/// Whose key is in the directory; none when there is none that can be read.
fn own_subject(directory: &Path, role: Role) -> Option<Subject> {
    if role == Role::Site {
        let identity = Identity::load(&directory.join(IDENTITY_FILE)).ok()?;
        return Some(Subject::Site(identity.site_id().clone()));
    }
    Wallet::at(directory).user_key().ok().flatten().map(|key| Subject::Key(key.public()))
}

fn check_one(
    grid: &GridFile,
    gate: &Gate,
    directory: &Path,
    role: Role,
    now: Time,
    zone: &TimeZone,
) -> Option<Finding> {
    let wallet = Wallet::at(directory);
    let path = wallet.credential_path(&grid.id, role);
    let again = format!("ask for a new token (kolo grid invite --role {role}), then kolo join FILE");
    let chain = match wallet.credential(&grid.id, role) {
        Ok(chain) => chain?,
        Err(error) => return Some(Finding::problem(CHECK, error.to_string(), again)),
    };
    // In an open grid nobody needs one.
    let roots = gate.roots()?;
    Some(match chain.verify_under(&grid.id, roots, now) {
        Err(error) => Finding::problem(CHECK, format!("{}: {error}", path.display()), again),
        Ok(holder) if holder.lineage.iter().any(|subject| gate.revocations().is_revoked(subject)) => {
            let what = format!("{role} {:?}: revoked, or made with an invitation that is", holder.name);
            let to_do = format!("ask an admin of the grid why; if it was a mistake, {again}");
            Finding::problem(CHECK, what, to_do)
        }
        Ok(holder) if own_subject(directory, role).as_ref() != Some(&holder.subject) => {
            let what =
                format!("{role} {:?}: it is for {}, whose key is not the one beside it", holder.name, holder.subject);
            Finding::problem(CHECK, what, format!("put that key back from its backup, or {again}"))
        }
        Ok(holder) => {
            let left = holder.expires.since(now);
            let what = format!("{role} {:?}: good until {}", holder.name, format_time(holder.expires, zone));
            if left < SOON {
                let what = format!("{what}, for {} only", format_span(left));
                Finding::note(CHECK, what, again)
            } else {
                Finding::good(CHECK, what)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use broker::trust::PublicKey;
    use kolo_storage::data_dir::DataDir;
    use kolo_trust::{
        found,
        testing::{NOW, grid, key},
    };

    use super::{super::finding::Level, *};

    #[test]
    fn a_credential_that_is_revoked_or_of_another_key_is_a_problem() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path();
        let (grid, root) = grid();
        grid.create(data_dir).unwrap();
        let site = DataDir::open(data_dir).unwrap().identity().unwrap().site_id().clone();
        let user = PublicKey::of(&Wallet::at(data_dir).key_or_new().unwrap());
        let keep = |user: &PublicKey, at: Time| {
            let (of_site, of_admin) = found(&grid, &key(1), (&site, "lab"), (user, "ada"), at).unwrap();
            for (role, chain) in [(Role::Site, of_site), (Role::Admin, of_admin)] {
                let path = Wallet::at(data_dir).credential_path(&grid.id, role);
                std::fs::write(path, serde_json::to_string(&chain).unwrap()).unwrap();
            }
        };
        let levels = || -> Vec<Level> {
            check(data_dir, None, NOW, &TimeZone::UTC).into_iter().map(|finding| finding.level).collect()
        };
        keep(&user, NOW);
        assert_eq!(levels(), [Level::Good, Level::Good]);
        keep(&PublicKey::of(&key(7)), NOW);
        assert_eq!(levels(), [Level::Good, Level::Problem]);
        keep(&user, NOW);
        let revocation = root.revoke(&grid, Subject::Site(site.clone()), NOW, NOW + Span(60)).unwrap();
        RevocationFile::at(data_dir).save([&revocation].into_iter()).unwrap();
        assert_eq!(levels(), [Level::Problem, Level::Good]);
        let successor = Successor::sign(&grid.id, (&key(1), &key(8)), NOW, NOW + Span(60)).unwrap();
        RevocationFile::at(data_dir).save([&kolo_trust::told_as_revocation(successor)].into_iter()).unwrap();
        assert_eq!(levels(), [Level::Note, Level::Note], "the root behind it counts for a minute");
        std::fs::write(data_dir.join("grid-revocations.jsonl"), "{}\n").unwrap();
        assert_eq!(levels(), [Level::Problem, Level::Good, Level::Good]);
    }
}
