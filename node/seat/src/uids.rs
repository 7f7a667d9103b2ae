//! User ids of this machine for runs, so that sockets, terminals and processes of two tenants are not of one user.
//!
//! Each seat of a reservation has one, for all that its user runs there, with the group of the user that commands run as. Nobody is called by
//! it. Invariant: an id that is picked bears no name and has no process.

use std::{collections::BTreeSet, fmt, fs};

use kolo_trust::random_bytes;
use nix::unistd::{Uid, User};
use serde::{Deserialize, Serialize};

use super::processes;

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
    /// Of the ids that systemd's list leaves unused those above what SSSD gives to a directory's users (up to 2,000,200,000 by default); so many that
    /// no two nodes of a machine pick the same.
    pub const UNUSED: UidRange = UidRange { first: 0x7800_0000, last: 0x7fff_ffff };

    /// The first of them, and the only one of a run.
    pub fn first(self) -> Uid {
        Uid::from_raw(self.first)
    }

    pub(super) fn only(id: u32) -> UidRange {
        UidRange { first: id, last: id }
    }

    /// One of them that is not among `taken`, and of nobody that the machine knows by name.
    pub(super) fn pick(self, taken: &BTreeSet<u32>) -> Option<UidRange> {
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
    pub(super) fn is_mapped(self) -> bool {
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
    /// The form that was expected.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_left_to_whoever_bears_them() {
        let daemon = UidRange::try_from("1-1".to_owned()).unwrap();
        assert_eq!(daemon.pick(&BTreeSet::new()), None);
    }

    #[test]
    fn only_ranges_are_read_and_none_has_root_in_it() {
        for wrong in ["", "1", "0-5", "5-4", "1-4294967295", "a-b", "1-65535", "on"] {
            assert!(RunUids::parse(wrong).is_err(), "{wrong}");
        }
        for right in ["off", "100000-200000", &UidRange::UNUSED.to_string()] {
            assert_eq!(RunUids::parse(right).unwrap().to_string(), right);
        }
    }
}
