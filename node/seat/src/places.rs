//! Places for the runs of a site, and the disk that their output takes, divided among accounts.
//!
//! Invariant: a site keeps at most [`RUNS_MAX`] runs. An account has its share of them, [`RUNS_OF_ACCOUNT_MAX`], and gets more only while what
//! is left holds the whole share of every other account that has runs, and of two that have none. Ended runs of others are forgotten only
//! while their account has more than its share: a quarter, or an equal part where there are more than four accounts.

use std::{collections::BTreeMap, fmt, time::SystemTime};

use broker::trust::PublicKey;
use kolo_runtime::divided::SHARES;

/// Most runs that a site keeps, those included whose end nobody has asked for.
pub const RUNS_MAX: usize = 1024;
/// The share of one account.
pub const RUNS_OF_ACCOUNT_MAX: usize = RUNS_MAX / SHARES;

/// Whole shares that are left for accounts without runs when an account takes more than its own: so many of them start at once.
const SHARES_KEPT: usize = 2;

/// Runs of one account, and their output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccountRuns {
    pub runs: usize,
    /// Bytes of the disk.
    pub output_bytes: u64,
}

/// A run that is kept.
#[derive(Debug, Clone, Copy)]
pub struct PlacedRun {
    pub account: PublicKey,
    /// Bytes of the disk.
    pub output_bytes: u64,
    /// End of the run; none for one that goes on, and for one that cannot be forgotten.
    pub ended: Option<SystemTime>,
}

/// All runs of a site when one more is to start.
#[derive(Debug)]
pub struct RunPlaces {
    pub runs: Vec<PlacedRun>,
    /// Bytes that users may still take of the disk.
    pub free_bytes: u64,
    /// Most that the outputs of the new run take.
    pub run_bytes: u64,
}

/// Scarce thing, for want of which a run does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// Places of the account, which may have so many now.
    OfAccount { runs: usize, runs_max: usize },
    /// Places of the site; the account has taken so many.
    OfSite(usize),
    /// Room for output: the account takes more than its share.
    Output { bytes: u64, bytes_max: u64 },
    /// Room for output, while the account takes no more than its share.
    Disk,
}

impl NoPlace {
    /// True when the account itself has taken it, so that nobody else can give it back.
    #[must_use]
    pub fn is_account(&self) -> bool {
        matches!(self, NoPlace::OfAccount { .. } | NoPlace::Output { .. })
    }
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FREES: &str = "one that ends frees its place (kolo ps shows them)";
        match self {
            NoPlace::OfAccount { runs, runs_max } => write!(
                f,
                "your account has {runs} of at most {runs_max} runs at this site, and none of them has ended; {FREES}"
            ),
            NoPlace::OfSite(runs) => write!(
                f,
                "the {RUNS_MAX} places for runs of this site are taken ({runs} by your account, which may have {RUNS_OF_ACCOUNT_MAX}), and \
                 none of those that have ended can be given up; {FREES}, so try again later"
            ),
            NoPlace::Output { bytes, bytes_max } => write!(
                f,
                "the output of your account's runs takes {} MiB of the disk of this site, which is nearly full, and its share is {} MiB; the \
                 output of runs that have ended is forgotten first, so end some (kolo ps shows them)",
                bytes >> 20,
                bytes_max >> 20
            ),
            NoPlace::Disk => f.write_str("the disk of the site is full"),
        }
    }
}

/// Runs and output by account.
#[must_use]
pub fn by_account(runs: &[PlacedRun]) -> BTreeMap<PublicKey, AccountRuns> {
    let mut accounts: BTreeMap<PublicKey, AccountRuns> = BTreeMap::new();
    for run in runs {
        let kept = accounts.entry(run.account).or_default();
        kept.runs += 1;
        kept.output_bytes = kept.output_bytes.saturating_add(run.output_bytes);
    }
    accounts
}

/// Most runs that an account may have beside those of others.
fn most_runs(accounts: &BTreeMap<PublicKey, AccountRuns>, account: &PublicKey) -> usize {
    let others = accounts.iter().filter(|(other, _)| *other != account);
    let of_others: usize = others.map(|(_, kept)| kept.runs.max(RUNS_OF_ACCOUNT_MAX)).sum();
    let left = RUNS_MAX.saturating_sub(of_others + SHARES_KEPT * RUNS_OF_ACCOUNT_MAX);
    left.max(RUNS_OF_ACCOUNT_MAX)
}

impl RunPlaces {
    /// Scarce thing that keeps one more run of `account` from starting; none when there is room.
    #[must_use]
    pub fn short_for(&self, account: &PublicKey) -> Option<NoPlace> {
        let accounts = by_account(&self.runs);
        let own = accounts.get(account).copied().unwrap_or_default();
        let (runs, runs_max) = (own.runs, most_runs(&accounts, account));
        if runs >= runs_max {
            return Some(NoPlace::OfAccount { runs, runs_max });
        }
        if self.runs.len() >= RUNS_MAX {
            return Some(NoPlace::OfSite(own.runs));
        }
        if self.free_bytes >= self.run_bytes {
            return None;
        }
        let bytes_max = self.output_share(&accounts, SHARES);
        let is_above = own.output_bytes > bytes_max;
        Some(if is_above { NoPlace::Output { bytes: own.output_bytes, bytes_max } } else { NoPlace::Disk })
    }

    /// Index of the run that is forgotten next for one more of `account`; none when none may be. An account's own go first, the oldest before
    /// others, then those of the account that has most.
    #[must_use]
    pub fn next_to_go(&self, account: &PublicKey, short: NoPlace) -> Option<usize> {
        let accounts = by_account(&self.runs);
        let parts = SHARES.max(accounts.len() + usize::from(!accounts.contains_key(account)));
        match short {
            NoPlace::OfAccount { .. } => self.oldest_of(account, 0),
            NoPlace::OfSite(_) => self.oldest_of(account, 0).or_else(|| {
                let most = |kept: &AccountRuns| kept.runs as u64;
                self.oldest_of_largest(&accounts, most, (RUNS_MAX / parts) as u64, 0)
            }),
            NoPlace::Output { .. } => self.oldest_of(account, 1),
            NoPlace::Disk => {
                let share = self.output_share(&accounts, parts);
                self.oldest_of_largest(&accounts, |kept| kept.output_bytes, share, 1)
            }
        }
    }

    /// One of so many parts of what output may take, and at least what one run may say.
    fn output_share(&self, accounts: &BTreeMap<PublicKey, AccountRuns>, parts: usize) -> u64 {
        let taken: u64 = accounts.values().map(|kept| kept.output_bytes).sum();
        (self.free_bytes.saturating_add(taken) / parts as u64).max(self.run_bytes)
    }

    /// The run of an account that ended first of those with so much output.
    fn oldest_of(&self, account: &PublicKey, bytes_min: u64) -> Option<usize> {
        let runs = self.runs.iter().enumerate();
        let own = runs.filter(|(_, run)| run.account == *account && run.output_bytes >= bytes_min);
        own.filter_map(|(index, run)| Some((run.ended?, index))).min().map(|(_, index)| index)
    }

    /// The run that ended first of the account with most, among accounts with more than `share` and an ended run.
    fn oldest_of_largest(
        &self,
        accounts: &BTreeMap<PublicKey, AccountRuns>,
        size: impl Fn(&AccountRuns) -> u64,
        share: u64,
        bytes_min: u64,
    ) -> Option<usize> {
        let above = accounts.iter().filter(|(_, kept)| size(kept) > share);
        let ended = above.filter_map(|(account, kept)| Some((size(kept), self.oldest_of(account, bytes_min)?)));
        ended.max_by_key(|(size, _)| *size).map(|(_, index)| index)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const RUN_BYTES: u64 = 100;

    fn account(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
    }

    /// So many runs of each account, the last ones of which go on.
    fn places(accounts: &[(u8, usize, usize)]) -> RunPlaces {
        let mut runs = Vec::new();
        for (number, ended, going_on) in accounts {
            runs.extend((0..ended + going_on).map(|index| PlacedRun {
                account: account(*number),
                output_bytes: RUN_BYTES,
                ended: (index < *ended).then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(index as u64)),
            }));
        }
        RunPlaces { runs, free_bytes: 1 << 30, run_bytes: RUN_BYTES }
    }

    /// The refusal of an account with so many runs that may have no more than its share.
    fn of_account(runs: usize) -> NoPlace {
        NoPlace::OfAccount { runs, runs_max: RUNS_OF_ACCOUNT_MAX }
    }

    /// Forgets runs until one of `account` may start: how many of each account are left, or what is short.
    fn after_a_start(mut places: RunPlaces, account: &PublicKey) -> Result<Vec<usize>, NoPlace> {
        while let Some(short) = places.short_for(account) {
            let gone = places.runs.swap_remove(places.next_to_go(account, short).ok_or(short)?);
            places.free_bytes += gone.output_bytes;
        }
        Ok(by_account(&places.runs).values().map(|kept| kept.runs).collect())
    }

    #[test]
    fn two_who_take_all_they_can_get_a_share_each_and_a_third_starts_without_loss_for_anybody() {
        let greedy = || places(&[(1, 0, RUNS_OF_ACCOUNT_MAX), (2, RUNS_OF_ACCOUNT_MAX, 0), (3, 5, 5)]);
        assert_eq!(after_a_start(greedy(), &account(1)), Err(of_account(RUNS_OF_ACCOUNT_MAX)));
        let left = [RUNS_OF_ACCOUNT_MAX, RUNS_OF_ACCOUNT_MAX - 1, 10];
        assert_eq!(after_a_start(greedy(), &account(2)).unwrap(), left, "its own oldest end goes");
        let all = [RUNS_OF_ACCOUNT_MAX, RUNS_OF_ACCOUNT_MAX, 10];
        assert_eq!(after_a_start(greedy(), &account(3)).unwrap(), all);
        let told = of_account(RUNS_OF_ACCOUNT_MAX).to_string();
        assert!(told.starts_with("your account has 256 of at most 256 runs at this site"), "{told}");
    }

    #[test]
    fn an_account_alone_has_two_shares_until_another_comes_and_gives_up_its_ends_then() {
        let two_shares = 2 * RUNS_OF_ACCOUNT_MAX;
        let alone = |ended, going_on| after_a_start(places(&[(1, ended, going_on)]), &account(1));
        assert_eq!(alone(0, RUNS_OF_ACCOUNT_MAX).unwrap(), [RUNS_OF_ACCOUNT_MAX]);
        assert_eq!(alone(0, two_shares - 1).unwrap(), [two_shares - 1]);
        assert_eq!(alone(1, two_shares - 1).unwrap(), [two_shares - 1], "its own end goes");
        let refused = alone(0, two_shares).unwrap_err();
        assert!(refused.to_string().starts_with("your account has 512 of at most 512 runs"), "{refused}");
        let with_another = |ended, going_on| after_a_start(places(&[(1, ended, going_on), (2, 0, 1)]), &account(1));
        assert_eq!(with_another(300, 100).unwrap(), [RUNS_OF_ACCOUNT_MAX - 1, 1]);
        assert_eq!(with_another(0, 400), Err(of_account(400)));
    }

    /// Has so many runs of an account start, none of which ends.
    fn starts(places: &mut RunPlaces, account: PublicKey, count: usize) -> bool {
        (0..count).all(|_| {
            let is_room = places.short_for(&account).is_none();
            if is_room {
                places.runs.push(PlacedRun { account, output_bytes: RUN_BYTES, ended: None });
            }
            is_room
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The oracle lets the run start, then every other account take what is missing of its share, then two accounts that have none take
        /// theirs, and counts.
        #[test]
        fn more_than_a_share_is_taken_only_where_all_others_and_two_new_ones_get_theirs(
            counts in prop::collection::vec(prop_oneof![0_usize..4, 200_usize..=300, 0_usize..=512], 1..5),
        ) {
            let taken: Vec<_> = (1..).zip(&counts).map(|(number, count)| (number, 0, *count)).collect();
            let places = places(&taken);
            prop_assume!(places.runs.len() <= RUNS_MAX);
            let mut taken_in_all = places.runs.len() + 1;
            for count in &counts[1..] {
                let mut count = *count;
                // Whoever has no run is none of the others.
                while count > 0 && count < RUNS_OF_ACCOUNT_MAX {
                    (count, taken_in_all) = (count + 1, taken_in_all + 1);
                }
            }
            let is_left = taken_in_all + 2 * RUNS_OF_ACCOUNT_MAX <= RUNS_MAX;
            let expected = (counts[0] < RUNS_OF_ACCOUNT_MAX || is_left) && places.runs.len() < RUNS_MAX;
            prop_assert_eq!(places.short_for(&account(1)).is_none(), expected, "{:?}", counts);
        }

        #[test]
        fn after_one_more_than_a_share_two_new_accounts_start_all_of_theirs(extra in 0_usize..300, first in 8_u8..10) {
            let mut places = places(&[(1, 0, RUNS_OF_ACCOUNT_MAX)]);
            starts(&mut places, account(1), extra);
            prop_assert!(places.runs.len() <= 2 * RUNS_OF_ACCOUNT_MAX);
            for newcomer in [first, first + 1] {
                prop_assert!(starts(&mut places, account(newcomer), RUNS_OF_ACCOUNT_MAX));
            }
        }
    }

    #[test]
    fn where_all_places_are_taken_the_ends_go_of_whoever_has_more_than_an_equal_part() {
        let full = || places(&[(1, 256, 0), (2, 0, 256), (3, 150, 106), (4, 200, 56)]);
        assert_eq!(after_a_start(full(), &account(5)).unwrap(), [256, 256, 256, 255]);
        let own_first = places(&[(1, 255, 0), (2, 0, 256), (3, 150, 106), (4, 200, 56), (5, 1, 0)]);
        assert_eq!(after_a_start(own_first, &account(5)).unwrap(), [255, 256, 256, 256]);
        // Nobody has more than a fifth that has ended.
        let shares = places(&[(1, 204, 0), (2, 0, 256), (3, 0, 256), (4, 0, 256), (5, 52, 0)]);
        assert_eq!(after_a_start(shares, &account(6)).unwrap(), [203, 256, 256, 256, 52], "a sixth is less");
        let shares = places(&[(1, 170, 0), (2, 0, 256), (3, 0, 256), (4, 0, 256), (5, 86, 0)]);
        assert_eq!(after_a_start(shares, &account(6)), Err(NoPlace::OfSite(0)));
        assert!(of_account(1).is_account() && !NoPlace::OfSite(0).is_account());
    }

    #[test]
    fn the_oldest_ends_of_an_account_go_first() {
        let mut own = places(&[(1, 3, 0)]);
        own.runs.reverse();
        assert_eq!(own.next_to_go(&account(1), of_account(3)), Some(2));
        own.runs[2].ended = None;
        assert_eq!(own.next_to_go(&account(1), of_account(3)), Some(1), "one that cannot be forgotten is passed");
    }

    #[test]
    fn on_a_disk_that_is_nearly_full_output_goes_of_whoever_has_more_than_a_share() {
        let nearly = |accounts| RunPlaces { free_bytes: 0, ..places(accounts) };
        // A quarter of all output is 500.
        let filled = || nearly(&[(1, 12, 0), (2, 0, 5), (3, 3, 0)]);
        assert_eq!(after_a_start(filled(), &account(3)).unwrap(), [11, 5, 3], "a third user loses nothing");
        assert_eq!(after_a_start(filled(), &account(4)).unwrap(), [11, 5, 3]);
        assert_eq!(after_a_start(filled(), &account(1)).unwrap(), [11, 5, 3]);
        let going_on = nearly(&[(1, 0, 16), (2, 4, 0)]);
        let short = after_a_start(going_on, &account(1)).unwrap_err();
        assert_eq!(short, NoPlace::Output { bytes: 1600, bytes_max: 500 });
        // What fills the disk otherwise costs nobody as much as one run may say.
        assert_eq!(after_a_start(nearly(&[(1, 1, 0)]), &account(2)), Err(NoPlace::Disk));
        assert_eq!(after_a_start(nearly(&[(1, 1, 0)]), &account(1)), Err(NoPlace::Disk));
    }
}
