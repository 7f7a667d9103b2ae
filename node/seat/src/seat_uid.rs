//! Which user ids a site's runs have, and that of each seat.
//!
//! Invariants: a seat keeps its id as long as anything is known of it; no two seats of a site have the same.

use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::{
    confine::{Confinement, Runner},
    confine_error::ConfineError,
    directory::{read_json, write_json},
    keepers::RunError,
    uids::{RunUids, UidRange},
};

/// The file of a seat with its id.
const FILE: &str = "uid";
const FILE_BYTES_MAX: u64 = 64;

impl Confinement {
    /// With ids for runs as the owner wants it. Where nothing is said, they are of [`UidRange::UNUSED`] where this machine can, unless commands
    /// write directories of the owner, to which the user of commands has rights that these ids would not have.
    ///
    /// # Errors
    /// [`ConfineError::NoUids`] where the owner has named some that runs here cannot have.
    pub fn with_uids(self, wanted: Option<RunUids>) -> Result<Confinement, ConfineError> {
        // Another id could neither read the images of the user of commands nor map their users.
        let is_of_runner = self.runner != Runner::Podman;
        let why_not = |range: UidRange| match (is_of_runner, geteuid().is_root(), range.is_mapped()) {
            (false, ..) => Some("podman makes containers for the user alone whose images they are"),
            (_, false, _) => Some("only a node that runs as root can give them"),
            (_, _, false) => Some("this machine (a container?) does not have them all (/proc/self/uid_map)"),
            _ => None,
        };
        let uids = match wanted {
            Some(RunUids::Off) => None,
            Some(RunUids::Of(range)) => match why_not(range) {
                Some(why) => return Err(ConfineError::NoUids(range, why)),
                None => Some(range),
            },
            None => Some(UidRange::UNUSED).filter(|range| self.paths.is_empty() && why_not(*range).is_none()),
        };
        Ok(Confinement { uids, ..self })
    }
}

/// The id of a seat, picked out of `range` for a new one; none for one that has had runs without, and for a new one without a range.
///
/// # Errors
/// When it cannot be kept, or all are taken.
pub fn of_seat(
    seat: &Path,
    is_new: bool,
    range: Option<UidRange>,
    others: &[PathBuf],
) -> Result<Option<UidRange>, RunError> {
    let known = |seat: &Path| read_json::<u32>(seat.join(FILE), FILE_BYTES_MAX);
    if let Some(id) = known(seat)? {
        return Ok(Some(UidRange::only(id)));
    }
    let Some(range) = range.filter(|_| is_new) else { return Ok(None) };
    let taken = others.iter().filter_map(|other| known(other).ok().flatten()).collect();
    let picked = range.pick(&taken).ok_or(ConfineError::NoUids(range, "all of them are taken"))?;
    write_json(seat.join(FILE), &picked.first().as_raw())?;
    Ok(Some(picked))
}

#[cfg(test)]
mod tests {
    use super::{super::confine::tests::confinement, *};

    fn range(first: u32, last: u32) -> UidRange {
        UidRange::try_from(format!("{first}-{last}")).unwrap()
    }

    #[test]
    fn a_seat_keeps_its_id_and_shares_it_with_none() {
        let runs = tempfile::tempdir().unwrap();
        let seats = ["a", "b", "c"].map(|name| runs.path().join(name));
        let of = |seat: &Path, is_new, range| of_seat(seat, is_new, Some(range), &seats);
        let three = range(0x7800_0000, 0x7800_0001);
        let first = of(&seats[0], true, three).unwrap().unwrap();
        let second = of(&seats[1], true, three).unwrap().unwrap();
        assert_ne!(first, second);
        assert_eq!(of(&seats[0], false, UidRange::UNUSED).unwrap(), Some(first), "whatever is said by now");
        assert_eq!(of_seat(&seats[0], false, None, &seats).unwrap(), Some(first), "also where no more are given");
        assert_eq!(of_seat(&seats[2], true, None, &seats).unwrap(), None);
        assert!(
            matches!(of(&seats[2], true, three), Err(RunError::Confine(ConfineError::NoUids(..)))),
            "both are taken"
        );
        assert_eq!(of(&seats[2], false, UidRange::UNUSED).unwrap(), None, "it has runs of the user of commands");
    }

    #[test]
    fn ids_are_given_where_the_machine_can_and_refused_where_it_is_told_to_and_cannot() {
        let user = geteuid().is_root().then(|| "nobody".to_owned());
        let plain = Confinement { user, ..confinement() };
        let podman = Confinement { runner: Runner::Podman, ..plain.clone() };
        let sandbox = Confinement { runner: Runner::Bubblewrap, ..plain.clone() };
        let unit = Confinement { runner: Runner::Systemd, ..plain.clone() };
        let shared = Confinement { paths: vec!["/srv".into()], ..sandbox.clone() };
        let of = |one: &Confinement, wanted| one.clone().with_uids(wanted).map(|one| one.uids);
        let can = geteuid().is_root() && UidRange::UNUSED.is_mapped();
        let wanted = Some(RunUids::Of(UidRange::UNUSED));
        for one in [&plain, &sandbox, &unit] {
            assert_eq!(of(one, None).unwrap().is_some(), can, "by itself, with {}", one.runner.as_str());
        }
        for one in [&plain, &sandbox, &unit, &shared] {
            assert_eq!(of(one, wanted).is_ok(), can);
        }
        for (one, wanted) in
            [(&sandbox, Some(RunUids::Off)), (&unit, Some(RunUids::Off)), (&podman, None), (&shared, None)]
        {
            assert_eq!(of(one, wanted).unwrap(), None);
        }
        assert!(matches!(of(&podman, wanted), Err(ConfineError::NoUids(..))));
        if can {
            let own = Confinement { uids: Some(UidRange::only(0x7800_0007)), ..plain };
            assert_eq!(own.owner().unwrap().map(|(uid, _)| uid.as_raw()), Some(0x7800_0007));
        }
    }
}
