//! The room on the disk of one node, as its writer finds it.
//!
//! Invariant: room that a node has laid out ahead is its own, whoever else fills the disk; only a disk that refuses all writes takes it away.

/// How a full disk takes what a node writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// All of it, in room that was laid out ahead. After so many writes there is only what the node needs for what it has promised.
    Takes { ahead: u64 },
    /// Nothing, as on a file system that never overwrites a block.
    Refuses,
}

/// The room of one node.
#[derive(Debug, Default)]
pub struct Room {
    /// None while the disk has room.
    full: Option<Full>,
    /// The node's last look has found that there is too little for new promises.
    is_missed: bool,
}

impl Room {
    /// Others have filled the disk.
    pub fn fill(&mut self, how: Full) {
        self.full = Some(how);
    }

    /// The disk has room again; whether it was full.
    pub fn free(&mut self) -> bool {
        self.full.take().is_some()
    }

    /// Whether every write fails.
    pub fn refuses_writes(&self) -> bool {
        self.full == Some(Full::Refuses)
    }

    /// Whether there is enough for new promises, as far as the writer sees: a refusal is seen only when something is written.
    pub fn is_enough(&self) -> bool {
        self.full != Some(Full::Takes { ahead: 0 })
    }

    /// A write is on the disk; whether too little is left with it for new promises.
    pub fn use_up(&mut self) -> bool {
        let Some(Full::Takes { ahead }) = &mut self.full else { return false };
        let was_enough = *ahead > 0;
        *ahead = ahead.saturating_sub(1);
        was_enough && *ahead == 0
    }

    /// The node looks whether there is enough for new promises; whether what it finds is news to it.
    pub fn look(&mut self) -> bool {
        let was_missed = self.is_missed;
        self.is_missed = !self.is_enough();
        self.is_missed != was_missed
    }

    /// Whether the node's last look has found too little for new promises.
    pub fn is_missed(&self) -> bool {
        self.is_missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_missed_once_what_was_laid_out_is_used_up_and_until_there_is_more() {
        let mut room = Room::default();
        assert!(!room.use_up() && room.is_enough(), "a disk that is not full has enough");
        room.fill(Full::Takes { ahead: 2 });
        assert!(!room.use_up() && !room.look() && room.is_enough());
        assert!(room.use_up() && !room.is_enough() && !room.is_missed(), "nobody has looked yet");
        assert!(room.look() && room.is_missed() && !room.look());
        assert!(!room.use_up() && !room.refuses_writes(), "what is promised is still written");
        assert!(room.free() && room.is_missed() && room.look() && !room.is_missed());
        assert!(!room.free());
    }

    #[test]
    fn a_refusal_is_seen_only_by_who_writes() {
        let mut room = Room::default();
        room.fill(Full::Refuses);
        assert!(room.refuses_writes() && room.is_enough() && !room.look() && !room.use_up());
        assert!(room.free() && !room.refuses_writes());
    }
}
