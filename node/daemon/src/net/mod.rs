//! What this node is to its grid: its membership, and whose membership it believes.

mod excuses;
pub mod membership;
pub mod roots_watch;
