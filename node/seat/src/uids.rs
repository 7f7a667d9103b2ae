//! User ids of this machine for runs, so that sockets, terminals and processes of two tenants are not of one user.
//!
//! Each seat of a reservation has one, for all that its user runs there, with the group of the user that commands run as. Nobody is called by
//! it. Invariants: a seat keeps its id as long as anything is known of it; no two seats of a site have the same.

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{Path, PathBuf},
};

use kolo_trust::random_bytes;
use nix::unistd::{Uid, User, geteuid};
use serde::{Deserialize, Serialize};

use super::{
    confine::{Confinement, Runner},
    confine_error::ConfineError,
    directory::{read_json, write_json},
    keepers::RunError,
    processes,
};

/// The file of a seat with its id.
const FILE: &str = "uid";
const FILE_BYTES_MAX: u64 = 64;
/// The ids of this process's user namespace.
const MAPPED: &str = "/proc/self/uid_map";
/// Least size of a range. A seat keeps its id until its window is over, whether or not it has runs, so that an account with many short
/// runs takes many.
const COUNT_MIN: u32 = 65_536;

/// A range of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UidRange {
    first: u32,
    last: u32,
}

/// Whether runs have ids of their own, as the owner wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunUids {
    /// All are of the user of commands.
    Off,
    /// Out of this range.
    Of(UidRange),
}

impl UidRange {
    /// What systemd's list of ids leaves unused; so many that no two nodes of a machine pick the same.
    pub const UNUSED: UidRange = UidRange { first: 0x7000_0000, last: 0x7fff_ffff };

    /// The first of them, and the only one of a run.
    pub fn first(self) -> Uid {
        Uid::from_raw(self.first)
    }

    fn only(id: u32) -> UidRange {
        UidRange { first: id, last: id }
    }

    /// One of them that is not among `taken`, and of nobody that the machine knows by name.
    fn pick(self, taken: &BTreeSet<u32>) -> Option<UidRange> {
        let random = u32::from_ne_bytes(random_bytes().ok()?);
        let count = self.last - self.first + 1;
        let begin = random % count;
        // A process that outlived its seat may still have one.
        let is_idle = |id: u32| processes::threads_of(id) == 0;
        let is_free =
            |id: &u32| !taken.contains(id) && matches!(User::from_uid(Uid::from_raw(*id)), Ok(None)) && is_idle(*id);
        let ids = (0..count).map(|at| self.first + (begin + at) % count);
        // As many as are taken, and one behind them; names stand where there are few.
        ids.take(taken.len() + COUNT_MIN as usize).find(is_free).map(UidRange::only)
    }

    /// Whether processes here can have all of them.
    fn is_mapped(self) -> bool {
        let map = fs::read_to_string(MAPPED).unwrap_or_default();
        map.lines().any(|line| {
            let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
            let (Some(Ok(inside)), _, Some(Ok(count))) = (numbers.next(), numbers.next(), numbers.next()) else {
                return false;
            };
            inside <= u64::from(self.first) && u64::from(self.last) < inside.saturating_add(count)
        })
    }
}

impl TryFrom<String> for UidRange {
    type Error = String;

    fn try_from(text: String) -> Result<UidRange, String> {
        let bounds = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        match bounds {
            Some((first, last)) if 0 < first && first <= last && last < u32::MAX => Ok(UidRange { first, last }),
            _ => Err(format!("{text:?}: expected the first and the last user id, such as \"{}\"", UidRange::UNUSED)),
        }
    }
}

impl fmt::Display for UidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl From<UidRange> for String {
    fn from(range: UidRange) -> String {
        range.to_string()
    }
}

impl RunUids {
    /// Reads `off`, or a range that has one for each seat.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str) -> Result<RunUids, String> {
        if text == "off" {
            return Ok(RunUids::Off);
        }
        let range = UidRange::try_from(text.to_owned()).map_err(|error| format!("{error}, or \"off\""))?;
        if range.last - range.first < COUNT_MIN - 1 {
            return Err(format!("{range}: expected at least {COUNT_MIN} ids"));
        }
        Ok(RunUids::Of(range))
    }
}

impl fmt::Display for RunUids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunUids::Off => f.write_str("off"),
            RunUids::Of(range) => range.fmt(f),
        }
    }
}

impl Confinement {
    /// With ids for runs as the owner wants it. Where nothing is said, they are of [`UidRange::UNUSED`] in a sandbox that writes no directory of
    /// the owner, to which the user of commands has rights that they would not have; without a sandbox programs would miss their name.
    ///
    /// # Errors
    /// [`ConfineError::NoUids`] where the owner has named some that runs here cannot have.
    pub fn with_uids(self, wanted: Option<RunUids>) -> Result<Confinement, ConfineError> {
        let is_of_runner = matches!(self.runner, Runner::None | Runner::Bubblewrap);
        let why_not = |range: UidRange| match (is_of_runner, geteuid().is_root(), range.is_mapped()) {
            (false, ..) => Some("only runner = \"none\" and \"bubblewrap\" take them"),
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
            None => {
                let is_plain = self.runner == Runner::Bubblewrap && self.paths.is_empty();
                Some(UidRange::UNUSED).filter(|range| is_plain && why_not(*range).is_none())
            }
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
    write_json(seat.join(FILE), &picked.first)?;
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
        let three = range(0x7000_0000, 0x7000_0001);
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
        // Names are left to whoever bears them.
        assert_eq!(range(1, 1).pick(&BTreeSet::new()), None, "daemon");
    }

    #[test]
    fn only_ranges_are_read_and_none_has_root_in_it() {
        for wrong in ["", "1", "0-5", "5-4", "1-4294967295", "a-b", "1-1000", "on"] {
            assert!(RunUids::parse(wrong).is_err(), "{wrong}");
        }
        for right in ["off", "1000-3000", &UidRange::UNUSED.to_string()] {
            assert_eq!(RunUids::parse(right).unwrap().to_string(), right);
        }
    }

    #[test]
    fn ids_are_given_where_the_machine_can_and_refused_where_it_is_told_to_and_cannot() {
        let user = geteuid().is_root().then(|| "nobody".to_owned());
        let plain = Confinement { user, ..confinement() };
        let podman = Confinement { runner: Runner::Podman, ..plain.clone() };
        let sandbox = Confinement { runner: Runner::Bubblewrap, ..plain.clone() };
        let shared = Confinement { paths: vec!["/srv".into()], ..sandbox.clone() };
        let of = |one: &Confinement, wanted| one.clone().with_uids(wanted).map(|one| one.uids);
        let can = geteuid().is_root() && UidRange::UNUSED.is_mapped();
        let wanted = Some(RunUids::Of(UidRange::UNUSED));
        assert_eq!(of(&sandbox, None).unwrap().is_some(), can);
        for one in [&plain, &sandbox, &shared] {
            assert_eq!(of(one, wanted).is_ok(), can);
        }
        for (one, wanted) in [(&sandbox, Some(RunUids::Off)), (&plain, None), (&podman, None), (&shared, None)] {
            assert_eq!(of(one, wanted).unwrap(), None);
        }
        assert!(matches!(of(&podman, wanted), Err(ConfineError::NoUids(..))));
        if can {
            let own = Confinement { uids: Some(UidRange::only(0x7000_0007)), ..plain };
            assert_eq!(own.owner().unwrap().map(|(uid, _)| uid.as_raw()), Some(0x7000_0007));
        }
    }
}
