//! What happened in a run, for people. Kept only when a seed is replayed: writing it costs more than the run itself.
//!
//! Invariant: entries are in the order in which things happened; the same seed gives the same entries.

use std::fmt::{self, Write};

use broker::ids::RequestId;

use crate::engine::Moment;

/// An invariant that did not hold. A run ends with the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, in short.
    pub invariant: &'static str,
    /// The request concerned; `None` when it is about the grid.
    pub request: Option<RequestId>,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = self.request.as_ref().map_or_else(String::new, |id| format!(" ({id})"));
        write!(f, "{}{request}: {}", self.invariant, self.what)
    }
}

/// The entries of a run; see the top of this file.
pub struct History {
    is_kept: bool,
    entries: Vec<(Moment, Option<RequestId>, String)>,
}

impl History {
    /// An empty history that keeps what is noted, or not.
    pub fn new(is_kept: bool) -> History {
        History { is_kept, entries: Vec::new() }
    }

    /// Notes what happened to a request, or (without one) to the grid.
    pub fn note(&mut self, at: Moment, request: Option<&RequestId>, text: fmt::Arguments<'_>) {
        if self.is_kept {
            self.entries.push((at, request.cloned(), text.to_string()));
        }
    }

    /// The entries about one request and about the grid as a whole, or all of them.
    pub fn of(&self, request: Option<&RequestId>) -> String {
        let mut lines = String::new();
        for (at, about, text) in &self.entries {
            if request.is_none() || about.is_none() || about.as_ref() == request {
                let name = about.as_ref().map_or("", RequestId::as_str);
                // Writing to a String cannot fail.
                let _ = writeln!(lines, "{:>9.3} s  {name:<4} {text}", at.ms() as f64 / 1000.0);
            }
        }
        lines
    }
}
