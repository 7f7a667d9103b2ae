//! Keys and credentials of the simulated grid, open or closed as the seed has it.
//!
//! Invariant: keys follow from numbers: the root's is 0, those of users come after it. Sites need none: the network of the
//! simulation proves who sends.

use std::cell::OnceCell;

use broker::trust::{Authorization, Chain, PublicKey, RequestStatement, Role, Subject, Trust, testing};
use ed25519_dalek::SigningKey;

use super::{names, options::Options};

/// Different users of a run.
const USERS: u64 = 3;
/// Most sites of a run.
const SITES_MAX: usize = 12;

/// Credentials are the same in all runs, and signing them costs as much as a tenth of one.
struct Credentials {
    keys: Vec<SigningKey>,
    users: Vec<Chain>,
    sites: Vec<Chain>,
}

thread_local! {
    static CREDENTIALS: OnceCell<Credentials> = const { OnceCell::new() };
}

fn with_credentials<T>(read: impl FnOnce(&Credentials) -> T) -> T {
    CREDENTIALS.with(|credentials| {
        read(credentials.get_or_init(|| {
            let keys: Vec<SigningKey> = (1..=USERS).map(testing::key).collect();
            let user = |key| testing::member(Subject::Key(PublicKey::of(key)), Role::User, "ada");
            let site = |index| testing::member(Subject::Site(names::site(index)), Role::Site, "site");
            Credentials { users: keys.iter().map(user).collect(), sites: (0..SITES_MAX).map(site).collect(), keys }
        }))
    })
}

/// What users sign with.
pub fn user_keys() -> Vec<SigningKey> {
    with_credentials(|credentials| credentials.keys.clone())
}

/// What the sites of the grid trust.
pub fn trust(options: &Options) -> Trust {
    if options.is_closed { testing::closed() } else { Trust::Open { grid: testing::GRID.to_owned() } }
}

/// What shows that a site belongs to the grid.
pub fn of_site(options: &Options, index: usize) -> Option<Chain> {
    options.is_closed.then(|| with_credentials(|credentials| credentials.sites.get(index).cloned())).flatten()
}

/// What a user hands to an entry point.
pub fn sign(options: &Options, key: &SigningKey, statement: &RequestStatement) -> Authorization {
    let author = PublicKey::of(key);
    let user = options.is_closed.then(|| {
        with_credentials(|credentials| {
            let own = credentials.keys.iter().position(|own| PublicKey::of(own) == author);
            own.and_then(|own| credentials.users.get(own).cloned())
        })
    });
    Authorization { request: testing::sign(statement, key), user: user.flatten(), entry_point: None }
}
