//! What a keeper knows: how far the run is, what was said, who is attached.
//!
//! All tasks of the keeper share it on one thread, and wait for news of it. Invariants: output that somebody who is attached has not
//! acknowledged is kept as long as he takes something ([`HELD_FOR`]); no more input waits than a user may send ahead.

use std::{
    cell::{Cell, OnceCell, RefCell, RefMut},
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use broker::time::Time;
use tokio::sync::watch;

use crate::{
    cgroup::Cgroup,
    confine::Runner,
    directory::{RunDirectory, Task},
    frame::{End, Output, STDIN_BYTES_AHEAD_MAX, TerminalSize},
    spool::Spool,
};

/// How long unacknowledged output holds the command up, once there is no room beside it, when nothing of it is acknowledged. Later it
/// is given up for the gap.
pub const HELD_FOR: Duration = Duration::from_secs(60);

/// How far the run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The command is being prepared.
    Preparing,
    /// It waits for the word.
    Ready,
    /// It runs as this process.
    Running {
        /// The process, and its group.
        pid: u32,
    },
    /// The command has ended; no signal may go to its number, which may be another one's soon.
    Ending {
        /// The process that it was.
        pid: u32,
    },
    /// It is over and all of its output is in the spools.
    Ended(End),
}

/// Why a run ends before its command does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The owner of the machine said this.
    Owner(String),
    /// Its user may run nothing here any more, for this reason.
    Denied(String),
    /// The site cannot keep it, for this reason.
    Broken(String),
    /// Its user does not want it any more, before it was started.
    User,
}

/// What a connection has and holds.
#[derive(Debug)]
struct Holder {
    acknowledged: [u64; 2],
    /// Since when it leaves no room for more output.
    full_since: Option<Instant>,
}

/// What the user sends to the command.
#[derive(Debug, Default)]
pub struct Input {
    /// Pieces that were not given to it yet.
    pub waiting: VecDeque<Vec<u8>>,
    /// Bytes that have come.
    pub taken: u64,
    /// Bytes that the command was given, or will never take.
    pub given: u64,
    /// No more will come.
    pub is_ended: bool,
    /// The command takes no more; what comes is dropped.
    pub is_closed: bool,
}

/// Input that does not follow what has come, or comes too fast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("input at {offset}, but {taken} bytes have come and {given} were acknowledged")]
pub struct InputError {
    offset: u64,
    taken: u64,
    given: u64,
}

impl Input {
    /// Takes a piece. What has come before, as after a break, is skipped.
    pub fn take(&mut self, offset: u64, mut bytes: Vec<u8>) -> Result<(), InputError> {
        let error = InputError { offset, taken: self.taken, given: self.given };
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(|| error.clone())?;
        if offset > self.taken || end > self.given + STDIN_BYTES_AHEAD_MAX {
            return Err(error);
        }
        if end <= self.taken || self.is_ended {
            return Ok(());
        }
        let known = usize::try_from(self.taken - offset).unwrap_or(bytes.len());
        bytes.drain(..known);
        self.taken = end;
        if self.is_closed {
            self.given = end;
        } else {
            self.waiting.push_back(bytes);
        }
        Ok(())
    }

    /// The command takes nothing any more.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.waiting.clear();
        self.given = self.taken;
    }
}

/// Everything that changes.
#[derive(Debug)]
pub struct State {
    /// How far the run is.
    pub phase: Phase,
    /// The outputs, by [`Output`].
    pub spools: [Spool; 2],
    /// The input.
    pub input: Input,
    /// The user has said that all seats are ready.
    pub may_start: bool,
    /// Why it is to end, when it is.
    pub stop: Option<Stop>,
    /// The end of the window.
    pub deadline: Time,
    /// A user has the end.
    pub is_seen: bool,
    /// The size that the user's terminal has got.
    pub terminal: Option<TerminalSize>,
    holders: BTreeMap<u64, Holder>,
    connections: u64,
}

/// A keeper's state, and the news that it has changed.
#[derive(Debug)]
pub struct Keeper {
    /// Where the run lies.
    pub directory: RunDirectory,
    /// What stands around the command.
    pub runner: Runner,
    /// The cgroup of the command, where it has one.
    pub cgroup: OnceCell<Cgroup>,
    /// How long the command was on processors, when that was last asked.
    pub cpu_ms: Cell<Option<u64>>,
    state: RefCell<State>,
    news: watch::Sender<()>,
    /// Connections of users that are open.
    pub attached: Cell<usize>,
    /// Connections of whom it is not known yet whose they are, or which are the node's.
    pub unattached: Cell<usize>,
}

impl Keeper {
    /// A keeper of a run that is so far.
    pub fn new(directory: RunDirectory, task: &Task, phase: Phase, spools: [Spool; 2]) -> Keeper {
        let (deadline, runner) = (task.deadline, task.confinement.runner);
        let state = State {
            phase,
            spools,
            input: Input::default(),
            may_start: false,
            stop: None,
            deadline,
            is_seen: false,
            terminal: None,
            holders: BTreeMap::new(),
            connections: 0,
        };
        let (state, news) = (RefCell::new(state), watch::Sender::new(()));
        Keeper {
            directory,
            runner,
            cgroup: OnceCell::new(),
            cpu_ms: Cell::new(None),
            state,
            news,
            attached: Cell::new(0),
            unattached: Cell::new(0),
        }
    }

    /// The state, to be looked at and not to be held over an `await`.
    pub fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Changes the state, and tells all that wait for news.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state.borrow_mut());
        self.news.send_replace(());
        changed
    }

    /// News from now on.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Waits until `look` finds something.
    pub async fn until<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut news = self.news();
        loop {
            if let Some(found) = look(&mut self.state.borrow_mut()) {
                return found;
            }
            // The sender lives as long as this borrows it.
            let _ = news.changed().await;
        }
    }
}

impl State {
    /// Somebody is attached who has so much; his number.
    pub fn attach(&mut self, acknowledged: [u64; 2]) -> u64 {
        self.connections += 1;
        self.holders.insert(self.connections, Holder { acknowledged, full_since: None });
        self.connections
    }

    /// He is gone.
    pub fn detach(&mut self, number: u64) {
        self.holders.remove(&number);
    }

    /// He has so much now, but no more than there is. It never becomes less.
    pub fn acknowledge(&mut self, number: u64, acknowledged: [u64; 2]) {
        let Some(holder) = self.holders.get_mut(&number) else { return };
        for ((had, has), spool) in holder.acknowledged.iter_mut().zip(acknowledged).zip(&self.spools) {
            let has = has.min(spool.end());
            if has > *had {
                *had = has;
                holder.full_since = None;
            }
        }
    }

    /// What a connection has acknowledged.
    pub fn acknowledged(&self, number: u64) -> [u64; 2] {
        self.holders.get(&number).map_or([0; 2], |holder| holder.acknowledged)
    }

    /// How many bytes of an output may be added now.
    pub fn room(&mut self, output: Output, now: Instant) -> u64 {
        let spool = &self.spools[output as usize];
        let holds = self.holders.values_mut().filter_map(|holder| {
            let held = holder.acknowledged[output as usize];
            let is_given_up =
                spool.room(held) == 0 && now.duration_since(*holder.full_since.get_or_insert(now)) >= HELD_FOR;
            (!is_given_up).then_some(held)
        });
        spool.room(holds.min().unwrap_or(u64::MAX / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_reads_slowly_holds_up_the_command_from_when_there_is_no_room_however_long_it_was_quiet() {
        let directory = tempfile::tempdir().unwrap();
        let spools = ["out", "err"].map(|name| Spool::open(&directory.path().join(name), 1).unwrap());
        let mut state = State {
            phase: Phase::Preparing,
            spools,
            input: Input::default(),
            may_start: true,
            stop: None,
            deadline: Time(0),
            is_seen: false,
            terminal: None,
            holders: BTreeMap::new(),
            connections: 0,
        };
        let user = state.attach([0; 2]);
        let quiet = Instant::now() + 2 * HELD_FOR;
        let piece = vec![b'x'; crate::spool::APPEND_BYTES_MAX];
        while state.room(Output::Stdout, quiet) > 0 {
            let room = usize::try_from(state.room(Output::Stdout, quiet)).unwrap();
            state.spools[0].append(&piece[..room.min(piece.len())]).unwrap();
        }
        assert_eq!(state.room(Output::Stdout, quiet + HELD_FOR / 2), 0);
        state.acknowledge(user, [crate::spool::HEAD_BYTES + 1, 0]);
        assert_eq!(state.room(Output::Stdout, quiet + HELD_FOR / 2), 1);
        state.spools[0].append(b"x").unwrap();
        assert_eq!(state.room(Output::Stdout, quiet + HELD_FOR), 0, "he has taken something");
        assert!(state.room(Output::Stdout, quiet + 3 * HELD_FOR) > 0, "now he is given up");
    }

    #[test]
    fn input_is_taken_once_and_in_order_however_often_it_is_sent() {
        let mut input = Input::default();
        input.take(0, b"abc".to_vec()).unwrap();
        input.take(0, b"abc".to_vec()).unwrap();
        input.take(1, b"bcde".to_vec()).unwrap();
        assert_eq!(input.waiting, [b"abc".to_vec(), b"de".to_vec()]);
        assert!(input.take(6, b"x".to_vec()).is_err(), "one byte is missing");
        assert!(input.take(u64::MAX, b"x".to_vec()).is_err());
        let ahead = usize::try_from(STDIN_BYTES_AHEAD_MAX).unwrap();
        assert!(input.take(5, vec![0; ahead - 4]).is_err(), "further than anybody may send ahead");
        input.take(5, vec![0; ahead - 5]).unwrap();
        input.close();
        assert_eq!((input.given, input.waiting.len()), (STDIN_BYTES_AHEAD_MAX, 0));
        input.take(STDIN_BYTES_AHEAD_MAX, b"x".to_vec()).unwrap();
        assert_eq!(input.given, STDIN_BYTES_AHEAD_MAX + 1, "acknowledged, so that the user does not wait for ever");
    }
}
