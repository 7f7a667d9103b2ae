//! Something of which a site has only so much, divided among the accounts that use it.
//!
//! Invariant: no account has more than its share, and all together no more than there is, however they take and give back: the sum is
//! counted under one lock, and what was taken comes back when its [`Part`] goes.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use broker::trust::PublicKey;

use crate::lock::locked;

/// The share of one account is all divided by this: three accounts that take all they can leave a fourth its whole share.
pub const SHARES: usize = 4;

/// A number of like things that accounts divide.
#[derive(Debug)]
pub struct Divided {
    /// Name of the things in messages, such as "streams to runs".
    what: &'static str,
    all: usize,
    taken: Mutex<BTreeMap<PublicKey, usize>>,
}

/// Why nothing more can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoneLeft {
    what: &'static str,
    /// Number that was asked for.
    asked: usize,
    /// Taken and most, of the account where `is_account`, otherwise of the whole site.
    taken: usize,
    most: usize,
    is_account: bool,
}

impl fmt::Display for NoneLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoneLeft { what, asked, taken, most, is_account } = self;
        match is_account {
            true => write!(
                f,
                "your account has {taken} of at most {most} {what} at this site, and this takes {asked} more; end some of its runs, or \
                 connections to them"
            ),
            false => write!(
                f,
                "{taken} of the {most} {what} of this site are taken, and this takes {asked} more; try again later"
            ),
        }
    }
}

impl std::error::Error for NoneLeft {}

impl NoneLeft {
    /// Whether the account itself has what is wanted, so that nobody else can give it back.
    #[must_use]
    pub fn is_account(&self) -> bool {
        self.is_account
    }
}

/// Things that an account has taken together; dropping this gives them back.
#[derive(Debug)]
pub struct Part {
    of: Arc<Divided>,
    account: PublicKey,
    count: usize,
}

impl Divided {
    /// `all` things, none of them taken.
    #[must_use]
    pub fn new(what: &'static str, all: usize) -> Arc<Divided> {
        Arc::new(Divided { what, all, taken: Mutex::default() })
    }

    /// Most things that one account may have.
    #[must_use]
    pub fn share(&self) -> usize {
        (self.all / SHARES).max(1)
    }

    /// Number of things for all accounts together.
    #[must_use]
    pub fn all(&self) -> usize {
        self.all
    }

    /// Takes `count` for an account.
    ///
    /// # Errors
    /// [`NoneLeft`] when that is more than its share, or than is left.
    pub fn take(self: &Arc<Divided>, account: PublicKey, count: usize) -> Result<Part, NoneLeft> {
        let mut taken = locked(&self.taken);
        let of_account = taken.get(&account).copied().unwrap_or(0);
        let of_all: usize = taken.values().sum();
        let short = |taken, most, is_account| NoneLeft { what: self.what, asked: count, taken, most, is_account };
        if of_account.saturating_add(count) > self.share() {
            return Err(short(of_account, self.share(), true));
        }
        if of_all.saturating_add(count) > self.all {
            return Err(short(of_all, self.all, false));
        }
        *taken.entry(account).or_insert(0) += count;
        Ok(Part { of: Arc::clone(self), account, count })
    }

    /// Number of things that each account has; accounts without any are left out.
    #[must_use]
    pub fn taken(&self) -> BTreeMap<PublicKey, usize> {
        locked(&self.taken).clone()
    }
}

impl Part {
    /// The account that has taken it.
    #[must_use]
    pub fn account(&self) -> PublicKey {
        self.account
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut taken = locked(&self.of.taken);
        let left = taken.get(&self.account).map_or(0, |had| had.saturating_sub(self.count));
        if left == 0 {
            taken.remove(&self.account);
        } else {
            taken.insert(self.account, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
    }

    #[test]
    fn an_account_has_its_share_and_three_that_take_theirs_leave_a_fourth_its_own() {
        let files = Divided::new("files", 8);
        let held: Vec<Part> = (0..3).map(|number| files.take(account(number), 2).unwrap()).collect();
        let refused = files.take(account(0), 1).unwrap_err();
        assert!(refused.to_string().starts_with("your account has 2 of at most 2 files at this site"), "{refused}");
        let last = files.take(account(3), 2).unwrap();
        let refused = files.take(account(4), 1).unwrap_err();
        assert!(refused.to_string().starts_with("8 of the 8 files of this site are taken"), "{refused}");
        drop(held);
        assert_eq!(files.taken(), BTreeMap::from([(account(3), 2)]));
        drop(last);
        assert!(files.taken().is_empty());
    }

    #[test]
    fn where_there_is_little_an_account_may_have_one() {
        let files = Divided::new("files", 1);
        assert_eq!(files.share(), 1);
        let _one = files.take(account(0), 1).unwrap();
        assert!(files.take(account(1), 1).is_err());
    }
}
