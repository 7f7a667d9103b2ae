//! Whether the node's key can be used, and is that of the site whose ledger is beside it.
//!
//! Invariant: no key is made.

use std::path::Path;

use broker::ids::SiteId;
use discovery::Identity;
use kolo_storage::{
    data_dir::{IDENTITY_FILE, LEDGER_DIR},
    was_begun,
};

use super::finding::Finding;

const CHECK: &str = "identity";
/// What to do about a key that is not the one of the ledger.
pub(super) const BACKUP: &str = "put the key back from the backup of this directory; without one the site is lost, so begin \
                                 again with another --data-dir, and make the reservations again";

/// Looks at the key beside the ledger of `site`, if that is known; nothing is said of a key that the first start will make.
pub(super) fn check(data_dir: &Path, site: Option<&SiteId>) -> Option<Finding> {
    let path = data_dir.join(IDENTITY_FILE);
    if matches!(path.try_exists(), Ok(false)) {
        let what = format!("{} is missing, but a ledger is beside it", path.display());
        return was_begun(&data_dir.join(LEDGER_DIR)).then(|| Finding::problem(CHECK, what, BACKUP));
    }
    let identity = match Identity::load(&path) {
        Ok(identity) => identity,
        Err(error) => return Some(Finding::problem(CHECK, error.to_string(), BACKUP)),
    };
    let present = identity.site_id();
    if let Some(site) = site.filter(|site| *site != present) {
        let what = format!("the ledger is that of site {site}, but identity.key is that of site {present}");
        return Some(Finding::problem(CHECK, what, BACKUP));
    }
    Some(Finding::good(CHECK, format!("the key is that of site {present}")))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::{super::finding::Level, *};

    fn level(data_dir: &Path, site: Option<&SiteId>) -> Option<Level> {
        check(data_dir, site).map(|finding| finding.level)
    }

    #[test]
    fn a_key_that_is_missing_empty_or_anothers_is_a_problem() {
        let directory = tempfile::tempdir().unwrap();
        let (data_dir, path) = (directory.path(), directory.path().join(IDENTITY_FILE));
        assert_eq!(level(data_dir, None), None);
        fs::create_dir(data_dir.join("ledger")).unwrap();
        assert_eq!(level(data_dir, None), Some(Level::Problem));
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(level(data_dir, None), Some(Level::Problem));
        fs::remove_file(&path).unwrap();
        let identity = Identity::load_or_create(&path).unwrap();
        assert_eq!(level(data_dir, None), Some(Level::Good));
        assert_eq!(level(data_dir, Some(identity.site_id())), Some(Level::Good));
        assert_eq!(level(data_dir, Some(&SiteId::new("12D3other").unwrap())), Some(Level::Problem));
    }
}
