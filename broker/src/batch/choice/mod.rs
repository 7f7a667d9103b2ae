//! One alternative of each request, so that the objective of the batch is least within its budget.
//!
//! More requests placed wins, then the objective, then the earlier last end (`formats.md`, version 2). Where alternatives do not
//! collide, a sum is a multiple-choice knapsack (`knapsack`, `lagrange`), a latest end a search for a threshold (`latest`); what
//! collides, or is no sum, is searched with a bound (`search`). Invariant: an answer comes with a bound, and work is counted, not timed.

mod knapsack;
mod lagrange;
mod latest;
mod question;
mod search;
#[cfg(test)]
mod tests;

pub use self::{
    question::{Choice, Item, LARGEST, Question, REQUESTS_MAX, WORK_MAX, Worth},
    search::Room,
};

/// How the values of what is chosen make up the objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// Their sum.
    Sum,
    /// The latest end; values are ends.
    Latest,
    /// Something that only the room can tell, and that no choice makes smaller by adding to it.
    Together,
}

/// The best choice where no two alternatives collide. [`Aim::Together`] needs a room: see [`choose_in`].
#[must_use]
pub fn choose(question: &Question<'_>, aim: Aim) -> Choice {
    match aim {
        Aim::Sum | Aim::Together => knapsack::best(question),
        Aim::Latest => latest::earliest(question),
    }
}

/// The best choice found of what fits into `room` together; never worse than `known`, which fits. The room is left empty.
#[must_use]
pub fn choose_in(question: &Question<'_>, aim: Aim, room: &mut dyn Room, known: Option<&[Option<usize>]>) -> Choice {
    search::best(question, aim, room, known)
}
