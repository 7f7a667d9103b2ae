//! The process's limit of open files: raised when a node starts, and shared out, so that who opens connections never takes
//! the descriptors that the ledger needs.
//!
//! Invariant: all connections of a node together, those that are still being opened included, have at most three quarters of
//! the limit.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What a node wants. Above it nothing gets better, and programs of the owner that close all descriptors that they might have
/// inherited would take long.
const WANTED: u64 = 65_536;
/// Assumed when the system does not tell: what it usually is at least.
const ASSUMED: u64 = 1_024;

/// Connections from this machine, by the local API and by the socket each; every request under way may have somebody who waits for it.
const LOCAL_MAX: u64 = 1_024;
/// Connections from other machines.
const REMOTE_MAX: u64 = 512;
/// Streams, listeners and connections for what users run here.
const RUNS_MAX: u64 = 32_768;

/// Raises the soft limit as far as the hard one lets it, up to [`WANTED`]; the limit that is in force then.
pub fn raise() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return ASSUMED };
    let wanted = hard.min(WANTED);
    if soft < wanted && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok() { wanted } else { soft }
}

/// How many connections of each kind a node bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// At the local API.
    pub local: usize,
    /// At the socket in the data directory.
    pub socket: usize,
    /// At the API for other machines.
    pub remote: usize,
    /// With other nodes, of each of three kinds: open, and being opened from either side.
    pub peers: u32,
    /// Streams, listeners and connections for what users run on this site's seats, of all users together.
    pub runs: usize,
}

impl Shares {
    /// The shares under a limit of `open_files`; `peers_max` is what is wanted of the last one.
    pub fn of(open_files: u64, peers_max: u32) -> Shares {
        let part = |divisor: u64, most: u64| (open_files / divisor).clamp(1, most);
        let size = |share: u64| usize::try_from(share).unwrap_or(usize::MAX);
        let peers = u32::try_from(part(8, u64::from(peers_max))).unwrap_or(peers_max);
        let (own, remote) = (size(part(16, LOCAL_MAX)), size(part(8, REMOTE_MAX)));
        let others = 2 * own as u64 + remote as u64 + 3 * u64::from(peers);
        let runs = size((open_files / 4).saturating_mul(3).saturating_sub(others).clamp(1, RUNS_MAX));
        Shares { local: own, socket: own, remote, peers, runs }
    }

    /// Whether the limit takes something from what a node bears otherwise.
    pub fn is_short(&self, peers_max: u32) -> bool {
        *self != Shares::of(u64::MAX, peers_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_a_quarter_whatever_the_limit() {
        for open_files in [64, 150, 1_024, 4_096, 8_192, WANTED] {
            let shares = Shares::of(open_files, 512);
            let all = shares.local + shares.socket + shares.remote + shares.runs;
            assert!(all as u64 + 3 * u64::from(shares.peers) <= open_files / 4 * 3, "{open_files}: {shares:?}");
            assert_eq!(shares.is_short(512), open_files < WANTED, "{open_files}: {shares:?}");
        }
        assert_eq!(Shares::of(0, 512), Shares { local: 1, socket: 1, remote: 1, peers: 1, runs: 1 });
    }

    #[test]
    fn the_limit_is_never_lowered() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let raised = raise();
        assert!(raised >= soft && raised <= hard);
        assert_eq!(raise(), raised);
    }
}
